//! Publishing entries of rows that are in the heap: steps 2 to 4 of an insertion (see `insert`).

use std::cell::Cell;
use std::sync::atomic::{Ordering::*, fence};

use nitro_engine::prelude::*;
use nitro_engine::{Index, InsertError, Process};
use pgrx::pg_sys::Relation;
use pgrx::prelude::*;

use super::unique;
use crate::image::{self, straddler};
use crate::key::KeyDesc;
use crate::pg::compat;
use crate::pg::error::Failure;
use crate::pg::guc::{self, Mechanism, WhenFull};
use crate::pg::stop::{self, Point};
use crate::pg::wait::{self, Wait};
use crate::state::directory::State;
use crate::state::handle::{Handle, with_order};
use crate::state::refusal;
use crate::state::{given_up, lifecycle, shmem};
use crate::upkeep::worker;

/// Under which condition an entry is published.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Only {
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

/// Rows whose entries are published.
pub(super) struct Publication<'a> {
    pub(super) heap: Relation,
    pub(super) index: Relation,
    pub(super) handle: &'a Handle,
    /// Of the transactions that inserted the rows, the oldest.
    pub(super) xid: pg_sys::TransactionId,
    /// The rows' pages are known to have changed after this LSN.
    pub(super) changed_after: u64,
}

/// Entries that one attempt publishes together.
pub(super) trait Entries {
    /// Inserts them, or the next of them, under this term. As
    /// [`Insert::insert_in_term`](nitro_engine::prelude::Insert::insert_in_term).
    fn insert(
        &mut self,
        engine: &Index,
        process: &Process,
        desc: &KeyDesc,
        only: Only,
        term: u32,
    ) -> Result<Option<bool>, InsertError>;

    /// The blocks of the rows whose entries are not published yet, each once.
    fn blocks(&self) -> Vec<u32>;
}

/// One entry: its key and TID.
pub(super) struct One<'a>(pub(super) &'a [u8], pub(super) u64);

impl Entries for One<'_> {
    fn insert(
        &mut self,
        engine: &Index,
        process: &Process,
        desc: &KeyDesc,
        only: Only,
        term: u32,
    ) -> Result<Option<bool>, InsertError> {
        let &mut One(key, tid) = self;
        with_order!(desc, order => match only {
            Only::Absent => engine.insert_in_term(process, order, key, tid, term),
            Only::New => engine.insert_new_in_term(process, order, key, tid, term),
        })
    }

    fn blocks(&self) -> Vec<u32> {
        vec![(self.1 >> 16) as u32]
    }
}

impl Publication<'_> {
    /// Publishes entries. Returns false, and has published nothing, if another row may have the key
    /// ([`Only::New`]). Returns true without an entry if the index publishes nothing now.
    ///
    /// # Safety
    /// The relations are open, inside a transaction.
    pub(super) unsafe fn publish(&mut self, entries: &mut impl Entries, only: Only) -> bool {
        let mut reliefs = 0;
        loop {
            match self.attempt(entries, only) {
                Step::Done => return true,
                Step::Refused => return false,
                Step::Again => wait::interrupts(),
                // SAFETY: the server holds a pin at most while it calls aminsert.
                Step::Look(lsn) => unsafe { self.look(entries, lsn) },
                Step::Unusable => {
                    warn_once(self.index, self.handle);
                    return true;
                }
                Step::GivenUp => {
                    // SAFETY: by contract.
                    unsafe { self.leave_out(entries) };
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

    /// Tries once to publish entries, in one section of the barrier.
    fn attempt(&self, entries: &mut impl Entries, only: Only) -> Step {
        let entry = self.handle.entry;
        let process = shmem::process();
        let _inside = entry.enter(process);
        fence(SeqCst);
        let engine = match only {
            Only::New if guc::holds(Mechanism::KeyReady) => self.handle.ready_index(),
            _ => self.handle.index(),
        };
        let Some(engine) = engine else { return self.nowhere(only) };
        let term = engine.term();
        if let Some(lsn) = straddler::question(&entry.image, self.xid)
            && lsn > self.changed_after
        {
            return Step::Look(lsn);
        }
        match entries.insert(&engine, process, &self.handle.desc, only, term) {
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

    /// Compares the rows' pages with the LSN of an image that is being made.
    unsafe fn look(&mut self, entries: &impl Entries, lsn: u64) {
        for block in entries.blocks() {
            wait::interrupts();
            // SAFETY: the caller holds a pin at most.
            unsafe { straddler::mark(self.heap, block, lsn) };
        }
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

    /// Leaves the rows of a table out whose index was given up. An image that is being made is as
    /// of before: if it goes on, the WAL must name the block. An image that begins later sees the
    /// state after it has said what its LSN is.
    unsafe fn leave_out(&self, entries: &impl Entries) {
        let (index, entry) = (self.index, self.handle.entry);
        fence(SeqCst);
        // SAFETY: open relations; nothing is held.
        unsafe {
            if let Some(lsn) = straddler::question(&entry.image, self.xid)
                && lsn > self.changed_after
            {
                entries
                    .blocks()
                    .into_iter()
                    .for_each(|block| straddler::mark(self.heap, block, lsn));
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

/// The second serializable check.
pub(super) unsafe fn check_readers(index: Relation) {
    // SAFETY: an open index.
    unsafe {
        if pg_sys::XactIsoLevel == pg_sys::XACT_SERIALIZABLE as i32 {
            fence(SeqCst);
            compat::check_serializable_conflict_in(index);
        }
    }
}
