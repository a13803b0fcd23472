//! The right to bring an index up: a lock against other processes, and a claim against code that
//! this process runs.
//!
//! Bringing an index up runs code of its owner: expressions, predicates, comparison functions, and
//! the functions that they call. That code may run any query, catch errors, and come back to the
//! same index. A heavyweight lock does not keep it out: a process that has the lock gets it again
//! at once. So there is a claim beside the lock. A process never has two claims on one index:
//! - In three cases a process brings nothing up: it has a claim, it helps a process that has one,
//!   or it is inside the engine (in a comparison function). See [`nesting::may_bring_up`].
//! - Only a claim fills an index or makes it READY, and only as long as its entry stands for the
//!   same index. Some changes need no claim: an index that is forgotten, retired, reclaimed or
//!   removed (see `transition`).
//!
//! CREATE INDEX has a claim, too, on an index that no other process can see. Code of another index
//! that is being brought up may run CREATE INDEX, so claims are a stack.

use std::sync::atomic::Ordering::*;

use nitro_engine::Index;
use pgrx::pg_sys::{self, Relation};
use pgrx::prelude::*;

use crate::pg::error::Failure;
use crate::pg::guc::{self, Mechanism};
use crate::pg::stop::{self, Point};
use crate::pg::wait::{self, Wait};
use crate::state::counters::count;
use crate::state::directory::{self, Entry, State};
use crate::state::given_up;
use crate::state::handle::{Handle, Unfinished};
use crate::state::image::UNKNOWN;
use crate::state::transition::Event;
use crate::state::{nesting, shmem};

/// Sub-id of the object lock that serialises walks of one index.
const BUILD_LOCK: u16 = 1;

/// The build lock of one index, a heavyweight lock. The deadlock detector sees the processes that
/// wait for it. An ERROR releases it with the other locks of the transaction.
pub struct BuildLock {
    index: pg_sys::Oid,
    mode: i32,
}

impl BuildLock {
    /// Waits for the lock, to bring the index up.
    ///
    /// # Safety
    /// `index` must be open and locked, inside a transaction.
    pub unsafe fn exclusive(index: Relation) -> BuildLock {
        // SAFETY: by contract.
        unsafe { BuildLock::take(index, pg_sys::ExclusiveLock) }
    }

    /// Waits for the lock, to keep the index from being brought up (VACUUM).
    ///
    /// # Safety
    /// As `exclusive`.
    pub unsafe fn shared(index: Relation) -> BuildLock {
        let mode = match guc::holds(Mechanism::Walks) {
            true => pg_sys::ShareLock,
            // Conflicts with none that is taken here.
            false => pg_sys::AccessShareLock,
        };
        // SAFETY: by contract.
        unsafe { BuildLock::take(index, mode) }
    }

    /// As `exclusive`, if no other process has the lock or waits for it.
    ///
    /// # Safety
    /// As `exclusive`.
    pub unsafe fn at_once(index: Relation) -> Option<BuildLock> {
        // SAFETY: by contract; a lock tag that no other code uses.
        unsafe {
            let lock = BuildLock { index: (*index).rd_id, mode: pg_sys::ExclusiveLock as i32 };
            pg_sys::ConditionalLockDatabaseObject(
                pg_sys::RelationRelationId,
                lock.index,
                BUILD_LOCK,
                lock.mode,
            )
            .then_some(lock)
        }
    }

    unsafe fn take(index: Relation, mode: u32) -> BuildLock {
        // SAFETY: a lock tag that no other code uses.
        unsafe {
            let lock = BuildLock { index: (*index).rd_id, mode: mode as i32 };
            pg_sys::LockDatabaseObject(
                pg_sys::RelationRelationId,
                lock.index,
                BUILD_LOCK,
                lock.mode,
            );
            lock
        }
    }

    /// Releases the lock before the transaction ends.
    pub fn unlock(self) {
        // SAFETY: taken in `take`.
        unsafe {
            pg_sys::UnlockDatabaseObject(
                pg_sys::RelationRelationId,
                self.index,
                BUILD_LOCK,
                self.mode,
            );
        }
    }

    /// Lets no image of the index be loaded any more in this server life. Returns false if one was
    /// loaded. The caller has the lock, so no process is loading one.
    pub fn forget_image(&self, entry: &Entry) -> bool {
        entry.condition.may(Event::Forget).is_some()
    }
}

/// ERROR: the index is not what it was when the claim was taken.
pub fn went_away() -> ! {
    Failure::new(
        PgSqlErrorCode::ERRCODE_OBJECT_IN_USE,
        "nitro index was dropped or replaced while it was being built",
    )
    .raise()
}

/// The right to bring one index up. It ends with the value, also by an ERROR: LOADING goes back to
/// UNBUILT and SORTING to BARE, a walk stays where it is and is continued by the next.
pub struct Claim {
    entry: &'static Entry,
    generation: u32,
}

impl Claim {
    /// The claim on an index whose build lock the caller holds exclusively.
    pub fn take(handle: &Handle, _lock: &BuildLock) -> Claim {
        // Memory of indexes that were given up may suffice.
        nitro_engine::destroy_due(&shmem::area());
        Claim::take_entry(handle)
    }

    /// The claim of a follower. In recovery there are no heavyweight locks of the strength of a
    /// build lock, and only a follower brings an index up. `None`: another process has the claim.
    pub fn of_follower(handle: &Handle) -> Option<Claim> {
        nitro_engine::destroy_due(&shmem::area());
        Claim::try_take_entry(handle)
    }

    /// Waits until no follower has the claim. It may have one for some milliseconds after the end
    /// of recovery. All others need the build lock, which the caller has.
    pub fn await_follower(entry: &Entry, _lock: &BuildLock) {
        // SAFETY: a plain global.
        let me = unsafe { pg_sys::MyProcPid };
        wait::until(Wait::Ready, || [0, me].contains(&entry.builder.load(Acquire)));
    }

    /// The claim on an index that is new in this transaction.
    pub fn of_new(handle: &Handle) -> Claim {
        Claim::take_entry(handle)
    }

    fn take_entry(handle: &Handle) -> Claim {
        Claim::try_take_entry(handle).unwrap_or_else(|| {
            Failure::new(
                PgSqlErrorCode::ERRCODE_OBJECT_IN_USE,
                "cannot build a nitro index while it is being built",
            )
            .raise()
        })
    }

    fn try_take_entry(handle: &Handle) -> Option<Claim> {
        // However this process ends, its exit callback ends the claim, even if it has not been in
        // the engine.
        shmem::process();
        let (entry, generation) = (handle.entry, handle.generation());
        // SAFETY: a plain global.
        let me = unsafe { pg_sys::MyProcPid };
        entry.builder.compare_exchange(0, me, AcqRel, Acquire).ok()?;
        nesting::enter(entry, generation);
        Some(Claim { entry, generation })
    }

    /// ERROR if the entry stands for something else by now, or for another engine index. Asked
    /// wherever code of the index has run.
    pub fn check(&self, engine: Index) {
        let (state, root) = self.entry.condition.read();
        let same = self.entry.generation() == self.generation
            && matches!(state, State::Building | State::CatchingUp)
            && root == engine.root();
        if !same {
            went_away();
        }
    }

    /// UNBUILT to LOADING; false if no image may be loaded.
    pub fn load(&self) -> bool {
        self.entry.condition.may(Event::Load).is_some()
    }

    /// To SORTING; false if there is something that has to be built on.
    pub fn sort(&self) -> bool {
        // Not before: a walk that was interrupted has to go on where it was.
        let sorting = self.entry.condition.may(Event::Sort).is_some();
        if sorting {
            self.entry.next_block.store(0, Relaxed);
            self.entry.cut_short.store(1, Relaxed);
        }
        sorting
    }

    /// Raises an ERROR if the entry no longer stands for the sorted index. Called after code of the
    /// index has run.
    pub fn check_sorting(&self) {
        let sorting = self.entry.condition.read() == (State::Sorting, 0);
        if self.entry.generation() != self.generation || !sorting {
            went_away();
        }
    }

    /// LOADING back to UNBUILT: there may be an image that can be loaded later. SORTING to BARE:
    /// there is none any more.
    pub fn interrupt(&self) {
        self.entry.condition.must(Event::Interrupt, 0);
        self.entry.cut_short.store(0, Relaxed);
    }

    /// LOADING to BARE: there is no image, or one that is outdated.
    pub fn refuse(&self) {
        self.entry.condition.must(Event::Refuse, 0);
    }

    /// Changes LOADING or SORTING to CATCHING UP. The engine index has the entries of an image that
    /// is valid as of `since`, or of a table that was read after that. From here on inserts
    /// publish. The argument for completeness is that of `build`, with the end of the WAL, read
    /// after this, in the place of the heap.
    pub fn catch_up(&self, index: Unfinished, since: u64, by_pages: bool) -> Index {
        self.entry.next_block.store(0, Relaxed);
        self.entry.image.catch_up_from.store(since, Relaxed);
        self.entry.image.by_pages.store(u32::from(by_pages), Relaxed);
        self.gain(Event::CatchUp, index)
    }

    /// Changes SORTING to FOLLOWING, with a reverse map and an engine index of the rows that a
    /// table had at `since` or later. They were read from the table, or from an image.
    pub fn follow(&self, index: Unfinished, map: Unfinished, since: u64, from_table: bool) {
        self.entry.reflects.store(since, Release);
        self.entry.cut_short.store(0, Relaxed);
        self.entry.needs.store(0, Relaxed);
        self.entry.set_reverse(&map.index());
        map.done();
        if from_table {
            // An existing image does not match the operations that this engine index will count.
            self.entry.image.operations.store(UNKNOWN, Relaxed);
        }
        self.gain(Event::Follow, index);
        let counters = &self.entry.counters;
        count(if from_table { &counters.builds } else { &counters.loads });
    }

    /// Changes FOLLOWING to CATCHING UP, after recovery. The index has no entry of a row that is
    /// gone. Rows that it lacks have records at or behind `since`. Returns false if the index is
    /// not FOLLOWING any more.
    pub fn take_over(&self, since: u64) -> bool {
        let entry = self.entry;
        entry.next_block.store(0, Relaxed);
        entry.image.catch_up_from.store(since, Relaxed);
        entry.image.by_pages.store(0, Relaxed);
        entry.image.operations.store(UNKNOWN, Relaxed);
        entry.was_followed.store(1, Relaxed);
        let taken = entry.condition.may(Event::TakeOver).is_some();
        if taken && let Some(map) = entry.take_reverse(shmem::process()) {
            // SAFETY: only the process with the claim uses it, and it is in no entry any more.
            unsafe { nitro_engine::destroy_later(map, shmem::process()) };
        }
        taken
    }

    /// To BUILDING with an empty engine index. From here on inserts publish.
    ///
    /// Completeness of a build: a writer puts its row into the heap, then reads the state; a
    /// builder stores the state, then reads the heap. With a full fence on both sides one of them
    /// sees the other: the writer publishes, or the walk finds the row.
    pub fn build(&self, index: Unfinished) -> Index {
        self.entry.next_block.store(0, Relaxed);
        // An existing image does not match the operations that this engine index will count.
        self.entry.image.operations.store(UNKNOWN, Relaxed);
        self.gain(Event::Build, index)
    }

    /// CREATE INDEX: to READY with a complete engine index.
    pub fn create(&self, index: Unfinished, milliseconds: u64) {
        self.entry.build_ms.store(milliseconds, Relaxed);
        self.gain(Event::Create, index);
        count(&self.entry.counters.builds);
    }

    /// From the change on the memory is the entry's; until then an ERROR frees it.
    fn gain(&self, event: Event, index: Unfinished) -> Index {
        let root = index.index().root();
        debug_assert_eq!(directory::get().owners(root), 0, "a root has one owner");
        self.entry.packed.reset();
        self.entry.condition.must(event, root);
        let engine = index.done();
        directory::get().charge(shmem::process(), self.entry);
        engine
    }

    /// Changes the state to READY at the end of a walk. The walk covered the whole table, or the
    /// blocks that have changed since an image or a sort.
    pub fn finish(&self, milliseconds: u64, from_table: bool) {
        self.entry.build_ms.store(milliseconds, Relaxed);
        self.entry.warned.store(0, Relaxed);
        self.entry.needs.store(0, Relaxed);
        self.entry.cut_short.store(0, Relaxed);
        self.entry.demand.store(0, Relaxed);
        self.entry.was_followed.store(0, Relaxed);
        let counters = &self.entry.counters;
        let way = if from_table { &counters.builds } else { &counters.loads };
        if self.entry.condition.may(Event::Finish).is_none() {
            went_away();
        }
        count(way);
    }

    /// Gives the index up: a row cannot be indexed.
    pub fn fail(&self) {
        self.leave(Event::Fail);
    }

    /// Gives up the loaded or sorted entries: the changes since then cannot be found out.
    pub fn lose(&self) {
        self.leave(Event::Lose);
    }

    /// Gives the index up for lack of memory. It held this number of bytes.
    pub fn give_up(&self, held: usize) {
        given_up::lacks(self.entry, held as u64);
        count(&self.entry.counters.given_up);
        self.leave(Event::Yield);
    }

    /// Changes the state first, then frees the memory. A writer reads the state inside a barrier
    /// section. So it sees the new state, or the memory stays until it has left. No process waits
    /// for that: this process may have locks that a comparison function waits for, and the deadlock
    /// detector knows nothing of the engine. Nothing in between can be interrupted. If an insert
    /// has retired the index meanwhile, nothing changes.
    fn leave(&self, event: Event) {
        let process = shmem::process();
        if self.entry.was_followed.load(Relaxed) != 0 {
            given_up::retire(self.entry);
        } else if let Some(root) = self.entry.condition.may(event) {
            // SAFETY: the state tells newcomers to stay out, and the root is in no entry any more.
            unsafe { nitro_engine::destroy_later(Index::open(process.area(), root), process) };
        }
        stop::at(Point::GaveUp);
    }

    fn end(entry: &Entry, generation: u32) {
        if entry.generation() == generation {
            entry.condition.may(Event::Interrupt);
            entry.builder.store(0, Release);
        }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        // Not there if the process has ended.
        if nesting::leave(self.entry) {
            Claim::end(self.entry, self.generation);
        }
    }
}

/// Ends all claims of a process that ends without unwinding. `handle::Unfinished` frees the index
/// that it was filling.
pub fn abandon() {
    for (entry, generation) in nesting::take_all() {
        Claim::end(entry, generation);
    }
}
