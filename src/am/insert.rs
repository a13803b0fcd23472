//! `aminsert`: one entry for one new heap tuple, or one per distinct element.
//!
//! Order of events of one insertion, and why each comes where it does:
//! 1. The executor has put the tuple into the heap, and cleared the page's all-visible bit: an
//!    index-only scan that sees the entry sees the cleared bit.
//! 2. The insert enters a barrier section and reads the state. If the state does not publish, the
//!    insert returns: the walk that builds the index will find the tuple (see `Claim::build`).
//! 3. If the tuple may be older than an image that is being made, the insert looks at the tuple's
//!    page, with nothing held (see `image::straddler`). Then 2 begins again.
//! 4. The insert publishes the entry under the term for which 3 was answered, insert-if-absent: a
//!    walk may have indexed the tuple already.
//! 5. After a full fence comes the second serializable check. A reader takes its predicate lock,
//!    then reads. The insert publishes, then looks for locks. The server's own check ran before
//!    step 1 and cannot see a reader that came in between.
//!
//! A unique index needs no more than 4 if no entry has the row's key. Otherwise the row is
//! *admitted* before 2, and until 5 no other row with its key is admitted (see `unique`).
//!
//! An ERROR or a crash after 1 leaves at most entries of a dead tuple, which VACUUM removes. All
//! keys of a row are made before the first is published.

use std::cell::{Cell, RefCell};
use std::sync::atomic::{Ordering::*, fence};

use nitro_engine::InsertError;
use nitro_engine::prelude::*;
use pgrx::pg_sys::{Datum, Relation};
use pgrx::prelude::*;

use super::unique::{self, Newcomer};
use crate::image::{self, straddler};
use crate::key::row::Keys;
use crate::pg::compat;
use crate::pg::error::Failure;
use crate::pg::guc::{self, Mechanism, WhenFull};
use crate::pg::stop::{self, Point};
use crate::pg::wait::{self, Wait};
use crate::state::directory::State;
use crate::state::file::Table;
use crate::state::handle::{Handle, with_order};
use crate::state::refusal;
use crate::state::{given_up, hosts, lifecycle, shmem};
use crate::upkeep::worker;

/// Keys of one row that are published between two looks at interrupts.
const PUBLISHED: usize = 64;

thread_local! {
    static KEYS: RefCell<Keys> = RefCell::default();
}

/// Inserts one entry (`aminsert`). Returns whether the row is known to be the only one with its
/// key.
#[allow(clippy::too_many_arguments, reason = "the server's callback")]
#[pg_guard]
pub unsafe extern "C-unwind" fn insert(
    index: Relation,
    values: *mut Datum,
    isnull: *mut bool,
    tid: pg_sys::ItemPointer,
    heap: Relation,
    check: pg_sys::IndexUniqueCheck::Type,
    _unchanged: bool,
    _info: *mut pg_sys::IndexInfo,
) -> bool {
    crate::pg::witness!();
    use pg_sys::IndexUniqueCheck::*;
    // SAFETY: the server passes an open index and one value per column.
    unsafe {
        let checked = check != UNIQUE_CHECK_NO;
        let may_conflict = checked && unique::can_conflict(index, isnull);
        let Some(handle) = Handle::open_for(index, Table::of(heap)) else {
            if may_conflict {
                refusal::no_entry(index).raise();
            }
            refusal::left_out(index);
            return checked;
        };
        stop::at(Point::InsertInHeap);
        // It stays so: what brings the index here excludes writers, or is a promotion before them.
        if hosts::stays_away(index, handle.entry) {
            if !has_fixed_width(index) {
                check_length(index, &handle, values, isnull);
            }
            check_readers(index);
            return checked;
        }
        // An expression inside `encode` may insert into another nitro index: take, do not borrow.
        let mut keys = KEYS.take();
        keys.set(&handle.desc, values, isnull);
        keys.check_length(index);
        let tid = compat::tid_to_u64(&*tid);
        let mut row = Publication { heap, index, handle: &handle, tid, changed_after: 0 };
        let mut alone = checked;
        if may_conflict {
            let newcomer = Newcomer { heap, index, handle: &handle, values, isnull, tid };
            // An index with many keys per row is not unique.
            let key = keys.iter().next().unwrap_or_default();
            newcomer.check_caller();
            if !(handle.desc.keys_are_bytes() && row.publish(key, Only::New)) {
                let admission = newcomer.admit(key, check == UNIQUE_CHECK_PARTIAL);
                row.publish(key, Only::Absent);
                alone = admission.end();
            }
        } else {
            for (i, key) in keys.iter().enumerate() {
                if i % PUBLISHED == PUBLISHED - 1 {
                    crate::pg::wait::interrupts();
                }
                row.publish(key, Only::Absent);
            }
        }
        keys.trim();
        KEYS.set(keys);
        check_readers(index);
        alone
    }
}

/// Whether all columns have values of a fixed width, so that no key is too long.
unsafe fn has_fixed_width(index: Relation) -> bool {
    // SAFETY: an open index has its descriptor.
    let columns = unsafe { pgrx::PgTupleDesc::from_pg_unchecked((*index).rd_att) };
    columns.iter().all(|column| column.attlen > 0)
}

/// ERROR if a server that hosts the index could not index the row.
unsafe fn check_length(index: Relation, handle: &Handle, values: *mut Datum, isnull: *mut bool) {
    let mut keys = KEYS.take();
    // SAFETY: an open index, and a value for each of its columns.
    unsafe {
        keys.set(&handle.desc, values, isnull);
        keys.check_length(index);
    }
    keys.trim();
    KEYS.set(keys);
}

/// The second serializable check.
unsafe fn check_readers(index: Relation) {
    // SAFETY: an open index.
    unsafe {
        if pg_sys::XactIsoLevel == pg_sys::XACT_SERIALIZABLE as i32 {
            fence(SeqCst);
            compat::check_serializable_conflict_in(index);
        }
    }
}

/// Under which condition an entry is published.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Only {
    /// It is not there.
    Absent,
    /// No other row has its key. The index is READY, so it has all earlier rows.
    New,
}

/// How often an insert that finds no memory tries again. Before each try it naps for 1 ms, and once
/// it looks for indexes that are gone. The engine does not wait inside the insert's section, so
/// these are all waits for memory.
const RELIEFS: u32 = 5;

/// How an attempt to publish ended.
enum Step {
    Done,
    /// The term ended meanwhile.
    Again,
    /// The page must be compared with this LSN first.
    Look(u64),
    Failed(InsertError),
    /// The index has failed.
    Unusable,
    /// There was no memory for it.
    GivenUp,
    /// Another row may have the key.
    Refused,
}

/// A row whose entries are published.
struct Publication<'a> {
    heap: Relation,
    index: Relation,
    handle: &'a Handle,
    tid: u64,
    /// The row's page is known to have changed after this LSN.
    changed_after: u64,
}

impl Publication<'_> {
    /// Publishes the entry of a key. Returns false, and has published nothing, if another row may
    /// have the key ([`Only::New`]). Returns true without an entry if the index publishes nothing
    /// now.
    ///
    /// # Safety
    /// The relations are open, inside a transaction.
    unsafe fn publish(&mut self, key: &[u8], only: Only) -> bool {
        let mut reliefs = 0;
        loop {
            match self.attempt(key, only) {
                Step::Done => return true,
                Step::Refused => return false,
                Step::Again => wait::interrupts(),
                // SAFETY: the server holds a pin at most while it calls aminsert.
                Step::Look(lsn) => unsafe { self.look(lsn) },
                Step::Unusable => {
                    warn_once(self.index, self.handle);
                    return true;
                }
                Step::GivenUp => {
                    // SAFETY: by contract.
                    unsafe { self.leave_out() };
                    return true;
                }
                Step::Failed(InsertError::OutOfMemory(_)) if reliefs < RELIEFS => {
                    // SAFETY: by contract.
                    unsafe { relieve(reliefs == 0) };
                    reliefs += 1;
                }
                // SAFETY: by contract.
                Step::Failed(error) => unsafe { self.fail(error) },
            }
        }
    }

    /// Tries once to publish the entry of a key, in one section of the barrier.
    fn attempt(&self, key: &[u8], only: Only) -> Step {
        let (entry, tid) = (self.handle.entry, self.tid);
        let process = shmem::process();
        let _inside = entry.enter(process);
        fence(SeqCst);
        let engine = match only {
            Only::New if guc::holds(Mechanism::KeyReady) => self.handle.ready_index(),
            _ => self.handle.index(),
        };
        let Some(engine) = engine else { return self.nowhere(only) };
        let term = engine.term();
        if let Some(lsn) = straddler::question(&entry.image)
            && lsn > self.changed_after
        {
            return Step::Look(lsn);
        }
        let inserted = with_order!(self.handle.desc, order => match only {
            Only::Absent => engine.insert_in_term(process, order, key, tid, term),
            Only::New => engine.insert_new_in_term(process, order, key, tid, term),
        });
        match inserted {
            Ok(Some(false)) if only == Only::New => Step::Refused,
            Ok(Some(_)) => Step::Done,
            Ok(None) => Step::Again,
            Err(error) => Step::Failed(error),
        }
    }

    /// Says what an attempt comes to where the index has no place for the entry. Inside the section
    /// in which the attempt found none.
    fn nowhere(&self, only: Only) -> Step {
        if only == Only::New {
            return Step::Refused;
        }
        match self.handle.entry.state() {
            State::Failed => Step::Unusable,
            State::Loading | State::Sorting => Step::Done,
            _ if given_up::is_lacking(self.handle.entry) => Step::GivenUp,
            _ => Step::Done,
        }
    }

    /// Compares the row's page with the LSN of an image that is being made.
    unsafe fn look(&mut self, lsn: u64) {
        // SAFETY: the caller holds a pin at most.
        unsafe { straddler::mark(self.heap, (self.tid >> 16) as u32, lsn) };
        self.changed_after = lsn;
        stop::at(Point::InsertLooked);
    }

    /// Gives the index up, or raises an ERROR. After the first the entry is tried once more: it is
    /// left out, or published if another process has changed the index' state.
    unsafe fn fail(&self, error: InsertError) {
        let (index, entry) = (self.index, self.handle.entry);
        // SAFETY: open relation.
        unsafe {
            match error {
                InsertError::OutOfMemory(memory)
                    if guc::WHEN_FULL.get() == WhenFull::GiveUpIndex
                        && !unique::is_unique(index) =>
                {
                    if given_up::give_up(index, self.handle) {
                        refusal::gave_up(&compat::name(index), entry, memory);
                        given_up::reclaim(index, entry);
                        image::remove(entry);
                    }
                }
                _ => refusal::insert_failed(index, entry, error),
            }
        }
    }

    /// Leaves the row of a table out whose index was given up. An image that is being made is as of
    /// before: if it goes on, the WAL must name the block. An image that begins later sees the
    /// state after it has said what its LSN is.
    unsafe fn leave_out(&self) {
        let (index, entry) = (self.index, self.handle.entry);
        fence(SeqCst);
        // SAFETY: open relations; nothing is held.
        unsafe {
            if let Some(lsn) = straddler::question(&entry.image)
                && lsn > self.changed_after
            {
                straddler::mark(self.heap, (self.tid >> 16) as u32, lsn);
            }
            let now = pg_sys::GetCurrentTimestamp();
            if now.abs_diff(TRIED.get()) >= BETWEEN {
                TRIED.set(now);
                given_up::reclaim(index, entry);
            }
            if guc::WHEN_FULL.get() == WhenFull::Error {
                if given_up::may_fit(entry) {
                    worker::wake(&[(entry, true)], false);
                }
                refusal::was_given_up(&compat::name(index), entry);
            }
        }
    }
}

/// Lets memory become free. Each attempt of the engine moves memory one step further: from the
/// barrier to the free lists of the index, and from there to the area. The first time this also
/// frees directory entries that no callback could free.
unsafe fn relieve(first: bool) {
    if first {
        // SAFETY: a transaction is running.
        unsafe { lifecycle::sweep() };
    }
    wait::nap(Wait::Barrier, 1);
}

thread_local! {
    /// When this process last tried to free the memory of an index that was given up.
    static TRIED: Cell<i64> = const { Cell::new(0) };
}

/// Between two tries, in microseconds. A builder whose image was under way could not free it when
/// that had ended, as long as this statement goes on.
const BETWEEN: u64 = 10_000;

/// A failed index does not stop writes; it says so once.
fn warn_once(index: Relation, handle: &Handle) {
    if handle.entry.warned.swap(1, Relaxed) == 0 {
        Failure::new(
            PgSqlErrorCode::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
            // SAFETY: open relation.
            format!("nitro index \"{}\" could not be built and is not used", unsafe {
                compat::name(index)
            }),
        )
        .hint("The server log has the cause. REINDEX the index after you have removed it.")
        .warn();
    }
}
