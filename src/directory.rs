//! The directory of indexes in shared memory: which incarnation is where in the area, and in which
//! state.
//!
//! An entry belongs to one (database OID, incarnation). Lookup, creation and removal take the
//! directory's LWLock; the fields of an entry that change while it is in use are atomics. A process
//! remembers (entry, generation): the generation counts removals, so a remembered entry that was
//! removed and reused is noticed.
//!
//! An entry's engine index is destroyed only where no process can be inside it:
//! - at commit of a DROP, TRUNCATE, REINDEX or rewrite, under its AccessExclusiveLock;
//! - at abort of the transaction that created it (nobody else ever saw it);
//! - when a build fails: the state becomes FAILED or UNBUILT first, then the barrier is awaited.
//!   A writer looks at the state *inside* a barrier section, so it either is awaited or sees it.

use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering::*, fence};

use nitro_engine::{Index, Process};
use pgrx::prelude::*;

use crate::compat::Locator;
use crate::error::Failure;
use crate::image::{ImageState, UNKNOWN};

/// What an index in memory is good for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum State {
    /// Nothing in memory. Non-unique inserts return at once (the heap is the truth).
    Unbuilt = 0,
    /// A walk over the heap is filling it (or was, and will be continued). Inserts publish.
    Building = 1,
    /// Complete: scans use it.
    Ready = 2,
    /// A row cannot be indexed, or memory ran out. As unbuilt, but not retried on its own.
    Failed = 3,
    /// An image is being read into memory that is not the index' yet. As unbuilt.
    Loading = 4,
    /// The image is in; blocks that have changed since are looked at. Inserts publish.
    CatchingUp = 5,
}

impl State {
    fn from(raw: u32) -> State {
        match raw {
            1 => State::Building,
            2 => State::Ready,
            3 => State::Failed,
            4 => State::Loading,
            5 => State::CatchingUp,
            _ => State::Unbuilt,
        }
    }

    /// Lower-case name, as shown in views.
    pub fn name(self) -> &'static str {
        match self {
            State::Unbuilt => "unbuilt",
            State::Building => "building",
            State::Ready => "ready",
            State::Failed => "failed",
            State::Loading => "loading",
            State::CatchingUp => "catching up",
        }
    }

    /// Whether new rows must get their entries.
    pub fn publishes(self) -> bool {
        matches!(self, State::Building | State::Ready | State::CatchingUp)
    }
}

/// 128 random bits in the metapage; see `identity`.
pub type Incarnation = u128;

/// One index in memory.
#[repr(C, align(128))]
pub struct Entry {
    in_use: AtomicU32,
    generation: AtomicU32,
    /// Next entry of the hash chain or of the free list, as index + 1.
    next: AtomicU32,
    state: AtomicU32,
    /// Engine root; valid while inserts publish.
    root: AtomicU32,
    database: AtomicU32,
    tablespace: AtomicU32,
    number: AtomicU32,
    incarnation: [AtomicU64; 2],
    /// OID of the index relation that attached last.
    pub relid: AtomicU32,
    /// First heap block that a walk has not reached yet.
    pub next_block: AtomicU32,
    /// PID of the process that walks the heap, 0 when none does.
    pub builder: AtomicI32,
    /// Duration of the last completed build in milliseconds.
    pub build_ms: AtomicU64,
    /// Index scans started.
    pub scans: AtomicU64,
    /// An insert has warned about the FAILED state.
    pub warned: AtomicU32,
    /// When a query asked the background worker to bring the index up; 0 = it is not asked.
    pub requested: AtomicU32,
    /// Its images on disk.
    pub image: ImageState,
}

/// Header of the shared directory; buckets and entries follow.
#[repr(C, align(128))]
pub struct Directory {
    lock: *mut pg_sys::LWLock,
    /// Facts about this server life, shared by all processes.
    pub life: Life,
    capacity: u32,
    buckets: u32,
    free: AtomicU32,
    used: AtomicU32,
}

/// What the processes of one server life tell each other.
#[derive(Default)]
pub struct Life {
    /// Process slots of the engine's area that threads have.
    pub thread_slots: AtomicU64,
    /// The replication slot as the keeper found it: see `image::slot`.
    pub slot_found: AtomicU32,
}

/// Drops the directory lock when it goes out of scope; an ERROR releases LWLocks anyway.
struct Locked<'a>(&'a Directory);

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        // While an ERROR unwinds, the server has already reset its interrupt holdoff count, which
        // LWLockRelease would decrement; transaction abort releases the lock then.
        if !std::thread::panicking() {
            // SAFETY: taken in `locked` by this process.
            unsafe { pg_sys::LWLockRelease(self.0.lock) };
        }
    }
}

impl Directory {
    /// Bytes of shared memory for `capacity` entries.
    pub fn size(capacity: usize) -> usize {
        size_of::<Directory>()
            + (capacity * 4).next_multiple_of(128)
            + capacity * size_of::<Entry>()
    }

    /// Lays the directory out in zeroed memory.
    ///
    /// # Safety
    /// `at` must point to `size(capacity)` zeroed bytes of shared memory, 128-byte aligned.
    pub unsafe fn format(at: *mut Directory, capacity: usize, lock: *mut pg_sys::LWLock) {
        // SAFETY: exclusive access during startup by contract.
        unsafe {
            at.write(Directory {
                lock,
                life: Life::default(),
                capacity: capacity as u32,
                buckets: capacity as u32,
                free: AtomicU32::new(0),
                used: AtomicU32::new(0),
            });
            let directory = &*at;
            for i in (0..capacity as u32).rev() {
                directory.entry(i).next.store(directory.free.load(Relaxed), Relaxed);
                directory.free.store(i + 1, Relaxed);
            }
        }
    }

    fn bucket(&self, database: u32, incarnation: Incarnation) -> &AtomicU32 {
        let slot = (incarnation as u32 ^ database) % self.buckets;
        // SAFETY: `format` reserved `buckets` words behind the header.
        unsafe { &*std::ptr::from_ref(self).add(1).cast::<AtomicU32>().add(slot as usize) }
    }

    fn entry(&self, i: u32) -> &'static Entry {
        debug_assert!(i < self.capacity);
        let words = (self.buckets as usize * 4).next_multiple_of(128);
        // SAFETY: `format` reserved `capacity` entries behind the buckets; shared memory outlives
        // the process.
        unsafe { &*std::ptr::from_ref(self).add(1).byte_add(words).cast::<Entry>().add(i as usize) }
    }

    fn locked(&self, mode: pg_sys::LWLockMode::Type) -> Locked<'_> {
        // SAFETY: a lock of our own tranche.
        unsafe { pg_sys::LWLockAcquire(self.lock, mode) };
        Locked(self)
    }

    fn find(&self, database: u32, incarnation: Incarnation) -> Option<&'static Entry> {
        let mut link = self.bucket(database, incarnation).load(Acquire);
        while link != 0 {
            let entry = self.entry(link - 1);
            if entry.incarnation() == incarnation && entry.database.load(Relaxed) == database {
                return Some(entry);
            }
            link = entry.next.load(Relaxed);
        }
        None
    }

    /// The entry of an incarnation, created UNBUILT when it is unknown. `None`: the directory is
    /// full.
    pub fn attach(
        &self,
        locator: Locator,
        incarnation: Incarnation,
        relid: u32,
    ) -> Option<&'static Entry> {
        {
            let _shared = self.locked(pg_sys::LWLockMode::LW_SHARED);
            if let Some(entry) = self.find(locator.database, incarnation) {
                entry.name(locator, relid);
                return Some(entry);
            }
        }
        let _exclusive = self.locked(pg_sys::LWLockMode::LW_EXCLUSIVE);
        let entry = match self.find(locator.database, incarnation) {
            Some(entry) => entry,
            None => self.create(locator.database, incarnation)?,
        };
        entry.name(locator, relid);
        Some(entry)
    }

    fn create(&self, database: u32, incarnation: Incarnation) -> Option<&'static Entry> {
        let link = self.free.load(Relaxed);
        if link == 0 {
            return None;
        }
        let entry = self.entry(link - 1);
        self.free.store(entry.next.load(Relaxed), Relaxed);
        entry.database.store(database, Relaxed);
        entry.incarnation[0].store(incarnation as u64, Relaxed);
        entry.incarnation[1].store((incarnation >> 64) as u64, Relaxed);
        entry.state.store(State::Unbuilt as u32, Relaxed);
        entry.root.store(0, Relaxed);
        entry.next_block.store(0, Relaxed);
        entry.builder.store(0, Relaxed);
        entry.build_ms.store(0, Relaxed);
        entry.scans.store(0, Relaxed);
        entry.warned.store(0, Relaxed);
        entry.requested.store(0, Relaxed);
        entry.image.reset();
        let bucket = self.bucket(database, incarnation);
        entry.next.store(bucket.load(Relaxed), Relaxed);
        entry.in_use.store(1, Release);
        bucket.store(link, Release);
        self.used.fetch_add(1, Relaxed);
        Some(entry)
    }

    /// Removes every entry that `gone` names and returns its memory. Infallible: commit and abort
    /// processing call it. The caller knows that no process can be inside those indexes.
    pub fn remove(&self, process: &Process, gone: impl Fn(&Entry) -> bool) {
        if self.used.load(Acquire) == 0 {
            return;
        }
        let _exclusive = self.locked(pg_sys::LWLockMode::LW_EXCLUSIVE);
        for i in 0..self.capacity {
            let entry = self.entry(i);
            if entry.in_use.load(Acquire) == 0 || !gone(entry) {
                continue;
            }
            let mut link = self.bucket(entry.database.load(Relaxed), entry.incarnation());
            while link.load(Relaxed) != i + 1 {
                link = &self.entry(link.load(Relaxed) - 1).next;
            }
            link.store(entry.next.load(Relaxed), Release);
            entry.in_use.store(0, Release);
            entry.generation.fetch_add(1, Release);
            entry.state.store(State::Unbuilt as u32, Release);
            if let Some(index) = entry.take_root() {
                // SAFETY: nobody is inside by the caller's word, and the root is unlinked.
                unsafe { index.destroy(process) };
            }
            entry.next.store(self.free.load(Relaxed), Relaxed);
            self.free.store(i + 1, Relaxed);
            self.used.fetch_sub(1, Relaxed);
        }
    }

    /// Calls `visit` for every entry, with the directory locked so that none is removed meanwhile.
    pub fn for_each(&self, mut visit: impl FnMut(&'static Entry)) {
        let _shared = self.locked(pg_sys::LWLockMode::LW_SHARED);
        for i in 0..self.capacity {
            let entry = self.entry(i);
            if entry.in_use.load(Acquire) != 0 {
                visit(entry);
            }
        }
    }

    /// Who of a database is in a state.
    pub fn incarnations<C: FromIterator<Incarnation>>(&self, database: u32, state: State) -> C {
        let mut all = Vec::new();
        self.for_each(|entry| {
            if entry.database() == database && entry.state() == state {
                all.push(entry.incarnation());
            }
        });
        all.into_iter().collect()
    }

    /// Whether an index has an entry.
    pub fn knows(&self, database: u32, incarnation: Incarnation) -> bool {
        let _shared = self.locked(pg_sys::LWLockMode::LW_SHARED);
        self.find(database, incarnation).is_some()
    }

    /// Entries in use and room for entries.
    pub fn fill(&self) -> (u32, u32) {
        (self.used.load(Relaxed), self.capacity)
    }
}

impl Entry {
    /// Who the index is.
    pub fn incarnation(&self) -> Incarnation {
        u128::from(self.incarnation[0].load(Relaxed))
            | u128::from(self.incarnation[1].load(Relaxed)) << 64
    }

    /// Database OID.
    pub fn database(&self) -> u32 {
        self.database.load(Relaxed)
    }

    /// Notes under which names the index goes now. Under the directory lock, so that whoever removes
    /// an entry by its names sees the last ones.
    fn name(&self, locator: Locator, relid: u32) {
        self.tablespace.store(locator.tablespace, Relaxed);
        self.number.store(locator.number, Relaxed);
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

    /// Whether the entry stands for this file.
    pub fn is_at(&self, l: &Locator) -> bool {
        self.locator() == *l
    }

    /// Whether the entry stands for a file of this number (files of one index differ in it).
    pub fn has_file(&self, number: u32) -> bool {
        self.number.load(Relaxed) == number
    }

    /// Counts the removals of this slot; changes when the entry stands for something else.
    pub fn generation(&self) -> u32 {
        self.generation.load(Acquire)
    }

    /// Current state.
    #[inline]
    pub fn state(&self) -> State {
        State::from(self.state.load(Acquire))
    }

    /// Moves from UNBUILT or FAILED to BUILDING with an empty engine index. From here on inserts
    /// publish.
    ///
    /// Completeness of a build: a writer puts its row into the heap, then reads the state; a
    /// builder stores the state, then reads the heap. With a full fence on both sides one of them
    /// sees the other: the writer publishes, or the walk finds the row.
    pub fn begin_building(&self, index: Index) {
        self.root.store(index.root(), Relaxed);
        self.next_block.store(0, Relaxed);
        // Whatever image there is, it is not of what this engine index will count.
        self.image.operations.store(UNKNOWN, Relaxed);
        self.state.store(State::Building as u32, SeqCst);
        fence(SeqCst);
    }

    /// Moves from UNBUILT to LOADING, which only says what is going on.
    pub fn begin_loading(&self) {
        self.state.store(State::Loading as u32, SeqCst);
    }

    /// Back to UNBUILT: the image was not usable, or reading it was interrupted.
    pub fn stop_loading(&self) {
        self.state.store(State::Unbuilt as u32, SeqCst);
    }

    /// Moves from LOADING to CATCHING UP with an engine index that has the entries of an image valid
    /// as of `since`. From here on inserts publish; the completeness is that of `begin_building`, with
    /// the end of the WAL read after this in the place of the heap.
    pub fn begin_catching_up(&self, index: Index, since: u64, by_pages: bool) {
        self.root.store(index.root(), Relaxed);
        self.next_block.store(0, Relaxed);
        self.image.catch_up_from.store(since, Relaxed);
        self.image.by_pages.store(u32::from(by_pages), Relaxed);
        self.state.store(State::CatchingUp as u32, SeqCst);
        fence(SeqCst);
    }

    /// Publishes a complete index: of a walk that ended, or bottom-up by CREATE INDEX.
    pub fn finish_building(&self, index: Index, milliseconds: u64) {
        self.root.store(index.root(), Relaxed);
        self.build_ms.store(milliseconds, Relaxed);
        self.state.store(State::Ready as u32, SeqCst);
    }

    /// Gives an incomplete index up: state first, then the barrier, then the memory.
    pub fn give_up(&self, process: &Process, to: State) {
        self.state.store(to as u32, SeqCst);
        let area = process.area();
        let session = area.quiesce_begin();
        crate::wait::until(crate::wait::Wait::Barrier, || area.quiesced(session));
        if let Some(index) = self.take_root() {
            // SAFETY: the state told newcomers to stay out, the barrier let the others leave.
            unsafe { index.destroy(process) };
        }
    }

    fn take_root(&self) -> Option<Index> {
        match self.root.swap(0, AcqRel) {
            0 => None,
            // SAFETY: a non-zero root names a live index of our area.
            root => Some(unsafe { Index::open(crate::shmem::area(), root) }),
        }
    }

    /// The engine index, when there is one.
    #[inline]
    pub fn index(&self, process: &Process) -> Option<Index> {
        match self.root.load(Acquire) {
            0 => None,
            // SAFETY: as in `take_root`; callers hold a relation lock or a barrier section.
            root => Some(unsafe { Index::open(process.area(), root) }),
        }
    }
}

/// ERROR for a full directory.
pub fn full() -> ! {
    Failure::new(
        PgSqlErrorCode::ERRCODE_CONFIGURATION_LIMIT_EXCEEDED,
        "too many nitro indexes in memory",
    )
    .hint("Raise \"nitro.max_indexes\" (needs a restart).")
    .raise()
}
