//! The state of a database's follower, in shared memory, for the view `pg_stat_nitro_followers`.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};

/// How far a follower has come, and counts of its work. Zeroed it is that of a new database.
#[repr(C)]
#[derive(Default)]
pub struct Following {
    /// All records that end at or before this position are noted.
    pub decoded: AtomicU64,
    /// When all indexes had what recovery had replayed, in microseconds of the server's clock.
    pub current_at: AtomicI64,
    /// WAL records read.
    pub records: AtomicU64,
    /// Rows that records named.
    pub rows: AtomicU64,
    /// Blocks looked at.
    pub blocks: AtomicU64,
    /// Entries removed.
    pub removed: AtomicU64,
    /// Scans that waited.
    pub waits: AtomicU64,
    /// How long they waited, in microseconds.
    pub waited_us: AtomicU64,
    /// Steps that did not get a lock.
    pub refused_locks: AtomicU64,
    /// Indexes that builders have brought up and left to the follower.
    pub loaded: AtomicU64,
    /// When the counts were last taken back, in seconds since 1970. 0 means never.
    pub reset_at: AtomicI64,
}

impl Following {
    /// Sets all counts to zero at `now`; 0 for a database that is new.
    pub fn reset(&self, now: i64) {
        let Following { records, rows, blocks, removed, waits, waited_us, refused_locks, .. } =
            self;
        for count in [records, rows, blocks, removed, waits, waited_us, refused_locks] {
            count.store(0, Relaxed);
        }
        self.reset_at.store(now, Relaxed);
    }

    /// Begins for another database.
    pub fn begin(&self) {
        self.decoded.store(0, Relaxed);
        self.current_at.store(0, Relaxed);
        self.loaded.store(0, Relaxed);
        self.reset(0);
    }

    /// In the follower: all indexes have the changes that were replayed at that time.
    pub fn is_current(&self, at: i64) {
        self.current_at.store(at, Relaxed);
    }
}

/// Counts a scan that waits, and how long it does, also if it ends with an ERROR.
pub struct Waiting<'a> {
    following: &'a Following,
    begun: std::time::Instant,
}

impl<'a> Waiting<'a> {
    /// Begins to wait.
    pub fn begin(following: &'a Following) -> Waiting<'a> {
        following.waits.fetch_add(1, Relaxed);
        Waiting { following, begun: std::time::Instant::now() }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let waited = self.begun.elapsed().as_micros() as u64;
        self.following.waited_us.fetch_add(waited, Relaxed);
    }
}
