//! Questions to one entry of the directory.

use std::sync::atomic::Ordering::*;

use nitro_engine::{BarrierGuard, Charge, Index, Process, ReverseMap};
use pgrx::pg_sys;

use super::{Entry, Incarnation, State};
use crate::pg::compat::Locator;
use crate::pg::wait;
use crate::state::file::{File, Table};
use crate::state::tenants::{KINDS, Kind, Tenant, Terms};

impl Entry {
    /// Returns the identity of the index.
    pub fn incarnation(&self) -> Incarnation {
        u128::from(self.incarnation[0].load(Relaxed))
            | u128::from(self.incarnation[1].load(Relaxed)) << 64
    }

    /// Database OID.
    pub fn database(&self) -> u32 {
        self.database.load(Relaxed)
    }

    /// Stores the present names of the index. The caller has the directory lock, so a process that
    /// removes an entry by its names sees the last ones.
    pub(super) fn name(&self, file: File, relid: u32, table: Table) {
        self.table.store(table.oid, Relaxed);
        self.table_tablespace.store(table.locator.tablespace, Relaxed);
        self.table_number.store(table.locator.number, Relaxed);
        self.tablespace.store(file.locator.tablespace, Relaxed);
        self.number.store(file.locator.number, Relaxed);
        self.backend.store(file.backend, Relaxed);
        self.relid.store(relid, Relaxed);
    }

    /// The file that the entry stands for.
    pub fn locator(&self) -> Locator {
        Locator {
            tablespace: self.tablespace.load(Relaxed),
            database: self.database(),
            number: self.number.load(Relaxed),
        }
    }

    /// Whether it is the index of a temporary table.
    pub fn is_temporary(&self) -> bool {
        self.backend.load(Relaxed) != File::PERMANENT
    }

    /// As `locator`, with the session.
    pub fn file(&self) -> File {
        File { locator: self.locator(), backend: self.backend.load(Relaxed) }
    }

    /// Whether the entry stands for this file.
    pub fn is_at(&self, file: File) -> bool {
        self.locator() == file.locator && self.backend.load(Relaxed) == file.backend
    }

    /// The table whose rows it has, and that table's file.
    pub fn table(&self) -> Table {
        let locator = Locator {
            tablespace: self.table_tablespace.load(Relaxed),
            database: self.database(),
            number: self.table_number.load(Relaxed),
        };
        Table { oid: self.table.load(Relaxed), locator }
    }

    /// Whether it has the rows of that file of its table.
    pub fn is_for(&self, table: &Table) -> bool {
        self.table_number.load(Relaxed) == table.locator.number
    }

    /// Whether it stands for this file, or for the rows in it.
    pub fn needs(&self, file: File) -> bool {
        self.is_at(file)
            || self.table().locator == file.locator && self.backend.load(Relaxed) == file.backend
    }

    /// Whether the entry stands for a file of this number (files of one index differ in it).
    pub fn has_file(&self, number: u32) -> bool {
        self.number.load(Relaxed) == number
    }

    /// Counts the removals of this slot; changes when the entry stands for something else.
    pub fn generation(&self) -> u32 {
        self.generation.load(Acquire)
    }

    /// Returns its tenant of a kind.
    pub fn tenant(&self, kind: Kind) -> &'static Tenant {
        let number = self.tenants[kind as usize].load(Relaxed);
        &super::get().tenants()[number as usize]
    }

    /// Whether that is how it is limited already.
    pub(super) fn is_on(&self, terms: &Terms) -> bool {
        self.tenant(Kind::Owner).is(Kind::Owner, terms.owner)
            && self.limit() == terms.memory
            && KINDS.into_iter().all(|kind| self.tenant(kind).seen() >= terms.seen)
    }

    /// Bytes that it may hold.
    pub fn limit(&self) -> u64 {
        self.limit.load(Relaxed)
    }

    /// Returns the accounts that its memory is charged to, in the order of [`KINDS`].
    pub fn charge(&self) -> Charge {
        let accounts = KINDS.map(|kind| Some(self.tenant(kind).memory()));
        Charge { limit: self.limit(), accounts }
    }

    /// Current state.
    #[inline]
    pub fn state(&self) -> State {
        self.condition.read().0
    }

    /// The root of the engine index that it has, 0 = none.
    pub fn root(&self) -> u32 {
        self.condition.read().1
    }

    /// Enters the barrier for the index that the entry has now. Should it get another one
    /// meanwhile, whose use makes the section one for any index.
    pub fn enter<'p>(&self, process: &'p Process) -> BarrierGuard<'p> {
        process.enter_index(self.condition.read().1)
    }

    /// Returns the engine index, as long as inserts publish. The caller asks inside a barrier
    /// section, unless a failure cannot overtake it: because of a relation lock and READY, or
    /// because of the build lock.
    #[inline]
    pub fn index(&self, process: &Process) -> Option<Index> {
        self.index_if(process, State::publishes)
    }

    /// Returns the engine index, if the state of the same moment is READY.
    #[inline]
    pub fn ready_index(&self, process: &Process) -> Option<Index> {
        self.index_if(process, |state| state == State::Ready)
    }

    /// Returns the engine index, if scans may read it: it is READY, or a follower keeps it up to
    /// date.
    #[inline]
    pub fn readable_index(&self, process: &Process) -> Option<Index> {
        self.index_if(process, |state| matches!(state, State::Ready | State::Following))
    }

    /// The engine index, as long as inserts or a follower keep it up to date.
    pub fn kept_index(&self, process: &Process) -> Option<Index> {
        self.index_if(process, |_| true)
    }

    #[inline]
    fn index_if(&self, process: &Process, wanted: impl Fn(State) -> bool) -> Option<Index> {
        let (state, root) = self.condition.read();
        // SAFETY: a word of a state that is kept has the root of a live index of our area.
        (state.is_kept() && wanted(state)).then(|| unsafe { Index::open(process.area(), root) })
    }

    /// The reverse map of an index that is FOLLOWING.
    pub fn reverse(&self, process: &Process) -> Option<Index> {
        Entry::map(process, self.reverse.load(Acquire))
    }

    /// Gives an index that is about to be FOLLOWING its reverse map.
    pub(in crate::state) fn set_reverse(&self, map: &Index) {
        self.reverse.store(map.root(), Release);
    }

    /// Takes the reverse map away: the caller frees it, with the index.
    pub(in crate::state) fn take_reverse(&self, process: &Process) -> Option<Index> {
        Entry::map(process, self.reverse.swap(0, AcqRel))
    }

    fn map(process: &Process, root: u32) -> Option<Index> {
        // SAFETY: the root of a live index of the area. The process that takes it out of the entry
        // frees it.
        (root != 0).then(|| unsafe { Index::open(process.area(), root) })
    }

    /// Whether the index has what all records before this position say.
    pub fn has_reached(&self, position: u64) -> bool {
        self.reflects.load(Acquire) >= position
    }

    /// In the follower: the index has what all records before this position say.
    pub fn now_reflects(&self, position: u64) {
        // A follower that reads records again comes by positions that the index reflected before.
        self.reflects.fetch_max(position, Release);
    }

    /// The index and its reverse map, if it is FOLLOWING.
    pub fn followed(&self, process: &Process) -> Option<ReverseMap> {
        let main = self.readable_index(process).filter(|_| self.state() == State::Following)?;
        Some(ReverseMap::of(main, self.reverse(process)?))
    }

    /// In the follower: a step for the index has got the locks that it needs, or it has not.
    pub fn note_held_up(&self, is: bool) {
        if !is {
            self.held_up.store(0, Relaxed);
        } else if self.held_up.load(Relaxed) == 0 {
            self.held_up.store(now(), Relaxed);
        }
    }

    /// Returns true if the follower has waited for a lock longer than `deadlock_timeout`.
    pub fn is_held_up(&self) -> bool {
        let since = self.held_up.load(Relaxed);
        since != 0 && now().saturating_sub(since) >= wait::deadlock_timeout().as_micros() as u64
    }
}

/// Microseconds of the server's clock.
fn now() -> u64 {
    // SAFETY: asks the clock.
    unsafe { pg_sys::GetCurrentTimestamp() as u64 }
}
