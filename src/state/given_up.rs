//! Indexes that are given up because the area is full.
//!
//! A process that finds no memory for an index gives it up: the process that brings it up, or an
//! insert, if `nitro.when_full` says so. The index is GIVEN UP then. It is tried again only when
//! more memory is free than it held. Each further failure raises that bound, so the tries end.
//!
//! A READY index may be in use at that moment, by scans, snapshots and checks. They keep the engine
//! index from one call to the next, and do not read the state between. So its memory is freed only
//! when no other process has a lock on the index:
//! - A process that uses the index has a lock on it.
//! - A process that gets a lock later reads the state first.
//! - The process that frees cannot tell its own uses by its own locks. It counts them ([`InUse`]).
//!
//! The effects on processes that use the index:
//! - A scan goes on, and finds all rows that its snapshot sees. Rows that were inserted before have
//!   their entries. Rows that were inserted later are invisible to the snapshot.
//! - VACUUM removes no more entries from the index. So a scan that relies on tokens (see `am/scan`)
//!   ends with an ERROR at its next batch, and VACUUM waits for all tokens.
//! - An image that is being made is valid as of an earlier LSN. An insert that does not publish
//!   makes sure that the WAL since that LSN names the block, as a straddler does
//!   (`image::straddler`).
//! - All processes discard their plans with the index. They learn of the change at once, not at a
//!   commit.
//!
//! A cancel or a crash may come between the steps. The state changes in the first step. After that,
//! these processes try to free the memory:
//! - a statement that writes to the table, again and again while it goes on,
//! - a process that plans for the table or brings the index up,
//! - a builder whose image of the index has ended. It fails while a writing statement has a lock.

use std::cell::RefCell;
use std::sync::atomic::Ordering::*;

use nitro_engine::Index;
use nitro_engine::prelude::*;
use pgrx::PgSqlErrorCode;
use pgrx::pg_sys::{self, Relation};

use crate::pg::compat;
use crate::pg::error::Failure;
use crate::pg::stop::{self, Point};
use crate::state::counters::count;
use crate::state::directory::{Entry, State};
use crate::state::handle::Handle;
use crate::state::holders::room;
use crate::state::transition::Event;
use crate::state::{nesting, shmem};

/// An index is tried again when more memory is free than it held. The bound is larger by this
/// fraction of the bytes that it held (1 / MORE), so that each failure raises it.
const MORE: u64 = 4;
/// The bound is also larger by this number of bytes, for an index that held little.
const LEAST: u64 = 1 << 20;

thread_local! {
    /// The roots that this process uses beyond one call.
    static USED: RefCell<Vec<u32>> = const { RefCell::new(Vec::new()) };
}

/// A use of an engine index by this process, until the value is dropped. Meanwhile the process need
/// not read the state.
pub struct InUse(u32);

impl InUse {
    /// Counts a use of the engine index. The caller reads the state once more after this.
    pub fn of(engine: Index) -> InUse {
        USED.with_borrow_mut(|all| all.push(engine.root()));
        InUse(engine.root())
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        // Not there if the process has ended.
        let _ = USED.try_with(|all| {
            let mut all = all.borrow_mut();
            if let Some(i) = all.iter().rposition(|&root| root == self.0) {
                all.swap_remove(i);
            }
        });
    }
}

/// Gives up an index that publishes, for lack of memory, and leaves its memory to [`reclaim`].
/// Returns false if another process has changed its state.
///
/// # Safety
/// `index` must be the open and locked index of the handle.
pub unsafe fn give_up(index: Relation, handle: &Handle) -> bool {
    let entry = handle.entry;
    {
        // A builder may be giving it up as well.
        let _inside = entry.enter(shmem::process());
        let held = handle.index().map_or(0, |engine| engine.stats().bytes as u64);
        lacks(entry, held);
    }
    if entry.condition.may(Event::Retire).is_none() {
        return false;
    }
    stop::at(Point::Retired);
    count(&entry.counters.given_up);
    // SAFETY: an open index.
    unsafe { plan_again((*(*index).rd_index).indrelid) };
    true
}

/// Gives up a FOLLOWING index that no follower keeps up to date. Its memory is left to [`reclaim`].
///
/// # Safety
/// `index` must be the open and locked index of the entry.
pub unsafe fn stop_following(index: Relation, entry: &Entry) {
    if entry.state() == State::Following && retire(entry) {
        // SAFETY: an open index.
        unsafe { plan_again((*(*index).rd_index).indrelid) };
    }
}

/// An index that is or was FOLLOWING cannot be kept: scans that began in recovery may still read
/// it. False if its state is another one by now.
pub(super) fn retire(entry: &Entry) -> bool {
    // VACUUM waits for them.
    entry.was_given_up.store(1, SeqCst);
    entry.condition.may(Event::Retire).is_some()
}

/// Notes that there was no memory for a new index: the free memory does not suffice.
pub fn refused(entry: &Entry) {
    lacks(entry, room(entry).1);
    count(&entry.counters.given_up);
}

/// Notes that the index needs more memory than the `held` bytes that it had.
///
/// Scans that began before may go on with its entries, so from now on VACUUM waits for them. The
/// caller changes the state afterwards: a VACUUM that finds the index given up finds this note,
/// too.
pub(super) fn lacks(entry: &Entry, held: u64) {
    entry.was_given_up.store(1, SeqCst);
    let before = entry.needs.load(Relaxed);
    entry.needs.store((held + held / MORE + LEAST).max(before + before / MORE), Relaxed);
}

/// Whether there was no memory for it when it was last wanted.
pub fn is_lacking(entry: &Entry) -> bool {
    entry.needs.load(Relaxed) != 0
}

/// Whether there is a point in bringing an index up: it was not given up, or memory has become free
/// since.
pub fn may_fit(entry: &Entry) -> bool {
    match entry.needs.load(Relaxed) {
        0 => true,
        needs => room(entry).1 >= needs,
    }
}

/// Whether nothing is left of the memory of an index that does not publish.
pub fn is_free(entry: &Entry) -> bool {
    entry.condition.read().1 == 0
}

/// Frees the memory of an index that was given up, unless it is in use.
///
/// # Safety
/// `index` must be the open and locked index of the entry.
pub unsafe fn reclaim(index: Relation, entry: &Entry) -> bool {
    let (state, root) = entry.condition.read();
    if root == 0 || state != State::GivenUp {
        return true;
    }
    // SAFETY: by contract.
    let used = unsafe {
        USED.with_borrow(|all| all.contains(&root))
            || !nesting::may_bring_up()
            || pg_sys::IsInParallelMode()
            || !compat::lock_holders(index).is_empty()
    };
    if used {
        return false;
    }
    if let Some(root @ 1..) = entry.condition.may(Event::Reclaim) {
        let process = shmem::process();
        entry.was_followed.store(0, Relaxed);
        // SAFETY: a process that used it from one call to the next has no lock any more. The engine
        // waits for processes that are inside for one call. The root is in no entry any more.
        unsafe { nitro_engine::destroy_later(Index::open(process.area(), root), process) };
        if let Some(map) = entry.take_reverse(process) {
            // SAFETY: a follower uses it under a lock on the index.
            unsafe { nitro_engine::destroy_later(map, process) };
        }
    }
    true
}

/// A scan cannot go on: VACUUM does not wait for it any more.
///
/// # Safety
/// `index` must be open.
pub unsafe fn scan_ends(index: Relation) -> ! {
    Failure::new(
        PgSqlErrorCode::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
        // SAFETY: by contract.
        format!("nitro index \"{}\" was given up while it was read", unsafe {
            compat::name(index)
        }),
    )
    .detail("There was no memory for it.")
    .hint("Run the query again; it will be planned without the index.")
    .raise()
}

/// Makes all processes discard their plans with an index of this table. At once, because the change
/// is in no transaction.
unsafe fn plan_again(table: pg_sys::Oid) {
    // SAFETY: a message as CacheInvalidateRelcache would make it.
    unsafe {
        let rc = pg_sys::SharedInvalRelcacheMsg {
            id: pg_sys::SHAREDINVALRELCACHE_ID as i8,
            dbId: pg_sys::MyDatabaseId,
            relId: table,
        };
        pg_sys::SendSharedInvalidMessages(&pg_sys::SharedInvalidationMessage { rc }, 1);
    }
}
