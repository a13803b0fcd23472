//! Points between the steps of a protocol at which a test stops a process, in builds with debug
//! assertions. See docs/testing.md.
//!
//! A process whose `nitro.debug_stop` names a point waits there for the advisory lock ([`CLASS`],
//! its process ID) in share mode, as long as the test holds it. So `pg_locks` shows the waiting
//! process, the deadlock detector sees it, and a cancel ends the wait. The keeper is in no
//! database. It waits for a lock of `template1` with 0 in the place of its ID, so that a prepared
//! transaction can have the lock when the server starts. No point is inside a barrier section or
//! under an LWLock.

/// The first number of the advisory locks.
#[cfg(debug_assertions)]
const CLASS: u32 = 1_852_404_850;

/// All there are; the names are those of the setting.
#[derive(Clone, Copy, PartialEq, Eq)]
#[cfg_attr(debug_assertions, derive(pgrx::PostgresGucEnum))]
#[allow(missing_docs, reason = "each is named after what was done last")]
pub enum Point {
    #[cfg(debug_assertions)]
    None,
    InsertInHeap,
    InsertLooked,
    DrainBegun,
    DrainPublished,
    KeyLocked,
    KeyRead,
    KeyChecked,
    PartSeized,
    AggregateAdds,
    AggregateLooks,
    BackupClaimed,
    BackupLsn,
    BackupXid,
    BackupSnapshot,
    BackupTerm,
    BackupWritten,
    BackupFlushed,
    BackupCommitted,
    RefreshFlushed,
    RefreshCommitted,
    LoadClaimed,
    LoadWal,
    LoadRead,
    LoadPublishes,
    SortClaimed,
    SortRead,
    SortLoaded,
    StandbyLoaded,
    SortPublishes,
    TakeOverRead,
    CatchUpWal,
    BuildPublishes,
    WalkCopied,
    WalkInserted,
    WalkEnded,
    WalkReady,
    Packed,
    GaveUp,
    Retired,
    DeleteBegun,
    DeleteLoaded,
    DeleteLocked,
    DeleteRemoved,
    DeleteUnlocked,
    DeleteFenced,
    DeleteAwaited,
    CreateLoaded,
    ShareBegun,
    ShareScanned,
    ShareSorted,
    DropCommitted,
    DropFreed,
    ExitBegun,
    KeeperLooks,
}

/// Stops here if a test says so. May raise an ERROR (cancel, terminate) unless interrupts are held
/// off: call it with nothing held.
#[inline]
pub fn at(point: Point) {
    #[cfg(debug_assertions)]
    debug::at(point);
    #[cfg(not(debug_assertions))]
    let _ = point;
}

#[cfg(debug_assertions)]
pub use debug::register;

#[cfg(debug_assertions)]
mod debug {
    use pgrx::pg_sys;
    use pgrx::{GucContext, GucFlags, GucRegistry, GucSetting};

    use super::{CLASS, Point};

    static STOP: GucSetting<Point> = GucSetting::<Point>::new(Point::None);

    pub fn at(point: Point) {
        if STOP.get() != point {
            return;
        }
        let mode = pg_sys::ShareLock as i32;
        // SAFETY: plain globals; the tag of an advisory lock, as `pg_advisory_lock(int4, int4)`
        // fills it. A session lock needs no resource owner, so it can be had while a transaction
        // ends.
        unsafe {
            let (database, process) = match pg_sys::MyDatabaseId {
                pg_sys::InvalidOid => (pg_sys::Oid::from(pg_sys::Template1DbOid), 0),
                database => (database, pg_sys::MyProcPid as u32),
            };
            let tag = pg_sys::LOCKTAG {
                locktag_field1: database.to_u32(),
                locktag_field2: CLASS,
                locktag_field3: process,
                locktag_field4: 2,
                locktag_type: pg_sys::LockTagType::LOCKTAG_ADVISORY as u8,
                locktag_lockmethodid: pg_sys::USER_LOCKMETHOD as u8,
            };
            // A process whose locks have a time limit waits here without one.
            let limit = pg_sys::LockTimeout;
            pg_sys::LockTimeout = 0;
            pg_sys::LockAcquire(&tag, mode, true, false);
            pg_sys::LockTimeout = limit;
            pg_sys::LockRelease(&tag, mode, true);
        }
    }

    /// Defines the setting that names a point.
    pub fn register() {
        GucRegistry::define_enum_guc(
            c"nitro.debug_stop",
            c"Where this process waits for a test to let it go on.",
            c"Only in builds for nitro's own tests.",
            &STOP,
            GucContext::Suset,
            GucFlags::default(),
        );
    }
}
