//! The directory of indexes in shared memory: which incarnation is where in the area, and in which
//! state.
//!
//! An entry belongs to one (database OID, incarnation, file number of the table). Lookup, creation
//! and removal take the directory's LWLock. Fields that change while the entry is in use are
//! atomics. A process remembers (entry, generation). The generation counts removals, so a process
//! notices that a remembered entry was removed and reused.
//!
//! An entry's engine index is destroyed only where no process can be inside it:
//! - at commit of a DROP, TRUNCATE, REINDEX, move or rewrite, under its AccessExclusiveLock;
//! - at abort of the transaction that created it (no other process ever saw it);
//! - when another transaction that moved the table was prepared and has ended since: see
//!   `lifecycle::sweep`;
//! - when it was given up: the area destroys it once all processes have left it (see `given_up`).

use std::sync::atomic::{AtomicI32, AtomicI64, AtomicPtr, AtomicU32, AtomicU64, Ordering::*};

use nitro_engine::{Index, Process};
use pgrx::prelude::*;

use crate::pg::wait::Clocks;
use crate::pg::{error, guc};
use crate::state::alarm::Alarm;
use crate::state::counters::Counters;
use crate::state::file::{File, Table};
use crate::state::image::ImageState;
use crate::state::packed::PackedState;
use crate::state::shmem;
use crate::state::tenants::{self, KINDS, Kind, Tenant, Terms};
use crate::state::transition::{Condition, Event};

pub use crate::state::transition::State;

mod entry;

/// 128 random bits in the metapage; see `identity`.
pub type Incarnation = u128;

/// One index in memory.
#[repr(C, align(128))]
pub struct Entry {
    in_use: AtomicU32,
    generation: AtomicU32,
    /// Next entry of the hash chain or of the free list, as index + 1.
    next: AtomicU32,
    /// State and engine root; see `transition`.
    pub(super) condition: Condition,
    database: AtomicU32,
    tablespace: AtomicU32,
    number: AtomicU32,
    /// See [`File`].
    backend: AtomicI32,
    incarnation: [AtomicU64; 2],
    /// See [`Table`].
    table: AtomicU32,
    table_tablespace: AtomicU32,
    table_number: AtomicU32,
    /// OID of the index relation that attached last.
    pub relid: AtomicU32,
    /// First heap block that a walk has not reached yet.
    pub next_block: AtomicU32,
    /// PID of the process that walks the heap, 0 when none does.
    pub builder: AtomicI32,
    /// A sort of its table has begun and not ended. The sorting process goes on, was cancelled, or
    /// is gone.
    pub cut_short: AtomicU32,
    /// Duration of the last completed build in milliseconds.
    pub build_ms: AtomicU64,
    /// An insert has warned about the FAILED state.
    pub warned: AtomicU32,
    /// When a builder was asked to bring the index up; 0 = none is asked. See `upkeep::worker`.
    pub requested: AtomicU32,
    /// Plans that could have used the index since it was last brought up, plus one; 0 = no plan has
    /// met it.
    pub demand: AtomicU32,
    /// Not 0: it is unique, so inserts wait for it.
    pub unique: AtomicU32,
    /// It was given up in this life of the server: see `given_up`.
    pub was_given_up: AtomicU32,
    /// Bytes that must be free before it is brought up again, after it was given up for lack of
    /// memory. 0 = it was not.
    pub needs: AtomicU64,
    /// On a standby: the root of the reverse map, 0 = none. It is freed with the root of the index.
    reverse: AtomicU32,
    /// On a standby, while FOLLOWING: the index has what all records that end at or before this LSN
    /// say. Only rises.
    pub reflects: AtomicU64,
    /// On a standby: the time since which the follower waits for a lock that it needs for the
    /// index, in microseconds of the server's clock. 0 = it does not wait.
    pub held_up: AtomicU64,
    /// It was taken over and is not READY yet: scans that began in recovery may read its root.
    pub was_followed: AtomicU32,
    /// Bytes that it may hold.
    limit: AtomicU64,
    /// The messages given about that limit.
    pub alarm: Alarm,
    /// The numbers of its tenants, which share limits.
    tenants: [AtomicU32; KINDS.len()],
    /// Its images on disk.
    pub image: ImageState,
    /// When it was packed.
    pub packed: PackedState,
    /// Counts for the views.
    pub counters: Counters,
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

/// Shared state of all processes of one server life.
#[derive(Default)]
pub struct Life {
    /// Process slots of the engine's area that threads have.
    pub thread_slots: AtomicU64,
    /// The replication slot as the keeper found it: see `image::slot`.
    pub slot_found: AtomicU32,
    /// Where a copied slot keeps WAL from; 0 = none was there when the keeper looked first.
    pub slot_copy: AtomicU64,
    /// When a copied slot was dropped, in seconds since 1970. 0 = never.
    pub slot_dropped: AtomicI64,
    /// PID of the keeper; 0 = none came up yet, negative: see `upkeep::keeper`.
    pub keeper: AtomicI32,
    /// When a process first missed the keeper, in seconds since 1970.
    pub keeper_missed: AtomicU64,
    /// The builders of the server: see `upkeep::worker`.
    pub builders: [AtomicU64; guc::MAX_BUILDERS],
    /// Where each of them was sent last.
    pub builder_databases: [AtomicU32; guc::MAX_BUILDERS],
    /// The table whose indexes each of them brings up; 0 = none.
    pub builder_tables: [AtomicU32; guc::MAX_BUILDERS],
    /// Not 0: a process asked for an index when no place for a builder was free.
    pub turned_away: AtomicU32,
    /// When it was last said that there is no place for a builder.
    pub no_builder: AtomicU64,
    /// The messages given about `nitro.max_memory`.
    pub alarm: Alarm,
    /// How long processes have waited: see [`Clocks`].
    pub waited: Clocks,
    /// When that was last taken back, in seconds since 1970; 0 = never.
    pub waited_since: AtomicI64,
    /// Counts changes of the tenants' limits: see `limits`.
    pub settings: AtomicU64,
    /// The limits of tenants in the configuration files.
    pub defaults: [AtomicI32; guc::TENANT_SETTINGS],
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

static DIRECTORY: AtomicPtr<Directory> = AtomicPtr::new(std::ptr::null_mut());

/// The directory, or `None` when the library was not preloaded.
pub fn if_loaded() -> Option<&'static Directory> {
    // SAFETY: set once by the startup hook to memory that lives as long as the process.
    unsafe { DIRECTORY.load(Relaxed).as_ref() }
}

/// The directory; ERROR when the library was not preloaded.
pub fn get() -> &'static Directory {
    if_loaded().unwrap_or_else(|| error::not_preloaded())
}

/// Makes formatted shared memory the directory of this process and its forks.
///
/// # Safety
/// A directory was formatted there, and stays for ever.
pub(super) unsafe fn set(directory: *mut Directory) {
    DIRECTORY.store(directory, Relaxed);
}

impl Directory {
    /// Bytes of shared memory for `capacity` entries.
    pub fn size(capacity: usize) -> usize {
        size_of::<Directory>()
            + (capacity * 4).next_multiple_of(128)
            + capacity * size_of::<Entry>()
            + tenants::capacity(capacity) * size_of::<Tenant>()
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

    fn tenants(&self) -> &'static [Tenant] {
        let capacity = self.capacity as usize;
        // SAFETY: `format` reserved this number of tenants behind the entries, zeroed, all atomics.
        unsafe {
            let first = std::ptr::from_ref(self.entry(0)).add(capacity).cast::<Tenant>();
            std::slice::from_raw_parts(first, tenants::capacity(capacity))
        }
    }

    fn locked(&self, mode: pg_sys::LWLockMode::Type) -> Locked<'_> {
        // SAFETY: a lock of our own tranche.
        unsafe { pg_sys::LWLockAcquire(self.lock, mode) };
        Locked(self)
    }

    fn find(
        &self,
        database: u32,
        incarnation: Incarnation,
        wanted: impl Fn(&Entry) -> bool,
    ) -> Option<&'static Entry> {
        let mut link = self.bucket(database, incarnation).load(Acquire);
        while link != 0 {
            let entry = self.entry(link - 1);
            if entry.incarnation() == incarnation
                && entry.database.load(Relaxed) == database
                && wanted(entry)
            {
                return Some(entry);
            }
            link = entry.next.load(Relaxed);
        }
        None
    }

    /// The entry of an incarnation for a file of its table, created UNBUILT when it is unknown.
    /// `None`: the directory is full.
    ///
    /// ALTER TABLE SET TABLESPACE gives a table another file without its indexes. A rollback gives
    /// the old file back. Meanwhile the two differ, so each has an entry of its own. Another file
    /// always has another number. ALTER DATABASE SET TABLESPACE keeps numbers and contents.
    pub fn attach(
        &self,
        file: File,
        incarnation: Incarnation,
        relid: u32,
        table: Table,
        terms: &Terms,
    ) -> Option<&'static Entry> {
        let database = file.locator.database;
        let find = || self.find(database, incarnation, |entry| entry.is_for(&table));
        {
            let _shared = self.locked(pg_sys::LWLockMode::LW_SHARED);
            if let Some(entry) = find().filter(|entry| entry.is_on(terms)) {
                entry.name(file, relid, table);
                return Some(entry);
            }
        }
        let process = shmem::process();
        let _exclusive = self.locked(pg_sys::LWLockMode::LW_EXCLUSIVE);
        let entry = match find() {
            Some(entry) => entry,
            None => self.create(database, incarnation, terms)?,
        };
        entry.name(file, relid, table);
        self.settle(process, entry, terms)?;
        Some(entry)
    }

    /// From now on an entry is on these terms, and so are its tenants.
    fn settle(&self, process: &Process, entry: &Entry, terms: &Terms) -> Option<()> {
        let owner = entry.tenant(Kind::Owner);
        if !owner.is(Kind::Owner, terms.owner) {
            // The table has got another owner. Its limit is not checked.
            let number = tenants::find_or_make(self.tenants(), Kind::Owner, terms.owner)?;
            owner.lose();
            self.tenants()[number as usize].gain();
            entry.tenants[Kind::Owner as usize].store(number, Relaxed);
        }
        entry.limit.store(terms.memory, Relaxed);
        for (kind, limits) in KINDS.into_iter().zip(terms.tenants) {
            entry.tenant(kind).limit(limits, terms.seen);
        }
        self.charge_locked(process, entry);
        Some(())
    }

    /// Charges an engine index that its entry has just got. It was charged by the limits of its
    /// beginning. A process that changed the limits meanwhile found no index to charge.
    pub fn charge(&self, process: &Process, entry: &Entry) {
        let _exclusive = self.locked(pg_sys::LWLockMode::LW_EXCLUSIVE);
        self.charge_locked(process, entry);
    }

    /// Under the exclusive lock, so that the terms charged last are the last ones.
    fn charge_locked(&self, process: &Process, entry: &Entry) {
        let _inside = process.enter();
        for engine in [entry.kept_index(process), entry.reverse(process)].into_iter().flatten() {
            // SAFETY: tenants are in shared memory, at one address for ever, and not free while
            // charged.
            unsafe { engine.charge_to(process, &entry.charge()) };
        }
    }

    /// The tenant that gets one more entry, if it has room (exclusive lock).
    fn join(&self, kind: Kind, oid: u32, terms: &Terms) -> Option<u32> {
        let number = tenants::find_or_make(self.tenants(), kind, oid)?;
        let tenant = &self.tenants()[number as usize];
        tenant.limit(terms.tenants[kind as usize], terms.seen);
        tenant.has_room().then(|| {
            tenant.gain();
            number
        })
    }

    fn create(
        &self,
        database: u32,
        incarnation: Incarnation,
        terms: &Terms,
    ) -> Option<&'static Entry> {
        let link = self.free.load(Relaxed);
        if link == 0 {
            return None;
        }
        let entry = self.entry(link - 1);
        let of_database = self.join(Kind::Database, database, terms)?;
        let Some(of_owner) = self.join(Kind::Owner, terms.owner, terms) else {
            self.tenants()[of_database as usize].lose();
            return None;
        };
        for (at, number) in entry.tenants.iter().zip([of_database, of_owner]) {
            at.store(number, Relaxed);
        }
        self.free.store(entry.next.load(Relaxed), Relaxed);
        entry.database.store(database, Relaxed);
        entry.incarnation[0].store(incarnation as u64, Relaxed);
        entry.incarnation[1].store((incarnation >> 64) as u64, Relaxed);
        entry.next_block.store(0, Relaxed);
        entry.builder.store(0, Relaxed);
        entry.cut_short.store(0, Relaxed);
        entry.build_ms.store(0, Relaxed);
        entry.warned.store(0, Relaxed);
        entry.requested.store(0, Relaxed);
        entry.demand.store(0, Relaxed);
        entry.was_given_up.store(0, Relaxed);
        entry.needs.store(0, Relaxed);
        entry.reverse.store(0, Relaxed);
        entry.reflects.store(0, Relaxed);
        entry.held_up.store(0, Relaxed);
        entry.was_followed.store(0, Relaxed);
        entry.alarm.reset();
        entry.image.reset();
        entry.packed.reset();
        entry.counters.reset(0);
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
            // Allowed in every state.
            if let Some(root @ 1..) = entry.condition.may(Event::Remove) {
                // SAFETY: no process is inside, by the caller's contract, and the root is unlinked.
                unsafe { Index::open(process.area(), root).destroy(process) };
            }
            if let Some(map) = entry.take_reverse(process) {
                // SAFETY: as above; only a follower uses it, under a lock on the index.
                unsafe { map.destroy(process) };
            }
            KINDS.into_iter().for_each(|kind| entry.tenant(kind).lose());
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

    /// The tenants of a kind that have something.
    pub fn tenants_of(&self, kind: Kind) -> Vec<&'static Tenant> {
        let _shared = self.locked(pg_sys::LWLockMode::LW_SHARED);
        self.tenants().iter().filter(|tenant| tenant.counts(kind)).collect()
    }

    /// The tenant of this name, if there is one.
    pub fn tenant(&self, kind: Kind, oid: u32) -> Option<&'static Tenant> {
        let _shared = self.locked(pg_sys::LWLockMode::LW_SHARED);
        self.tenants().iter().find(|tenant| tenant.is(kind, oid))
    }

    /// Returns the indexes of a database that are in a state.
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
        self.knows_one(database, incarnation, |_| true)
    }

    /// Whether an index has an entry for which `wanted` says yes.
    pub fn knows_one(
        &self,
        database: u32,
        incarnation: Incarnation,
        wanted: impl Fn(&Entry) -> bool,
    ) -> bool {
        let _shared = self.locked(pg_sys::LWLockMode::LW_SHARED);
        self.find(database, incarnation, wanted).is_some()
    }

    /// How many entries have an engine root. Only for assertions: it is never more than one.
    pub fn owners(&self, root: u32) -> usize {
        let mut all = 0;
        self.for_each(|entry| {
            let roots = [entry.condition.read().1, entry.reverse.load(Relaxed)];
            all += roots.into_iter().filter(|&own| own == root).count();
        });
        all
    }

    /// Entries in use and room for entries.
    pub fn fill(&self) -> (u32, u32) {
        (self.used.load(Relaxed), self.capacity)
    }
}
