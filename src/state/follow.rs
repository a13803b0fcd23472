//! Reading an index on a standby: which snapshots may use it, and how far it has to be.
//!
//! A follower (`upkeep/follow`) keeps an index that is FOLLOWING equal to its table, as far as
//! recovery has replayed the WAL. `Entry::reflects` says how far it has come.
//!
//! *Invariant* (bound): a scan takes its snapshot, then reads the position of recovery. It reads
//! the index only when the index reflects that position. All rows that the snapshot sees were
//! replayed before that position. A commit becomes visible before the position moves past its
//! record, and all other records of the transaction end before it.
//!
//! What the follower does beyond that position is harmless to the scan. It inserts entries of rows
//! that are too new for the snapshot. It removes entries of rows that are dead to every snapshot of
//! this server.
//!
//! *Invariant* (old snapshots): a snapshot that is older than the index' row in `pg_index` does not
//! use the index. A chain of HOT updates that was broken for this index has only the key of its
//! last member here.

use std::sync::atomic::Ordering::{Acquire, Release};
use std::time::{Duration, Instant};

use pgrx::bgworkers::{BackgroundWorkerBuilder, BgWorkerStartTime};
use pgrx::pg_sys::{self, Relation, Snapshot, TransactionId};
use pgrx::prelude::*;

use crate::pg::error::Failure;
use crate::pg::wait::{self, Wait};
use crate::pg::{background, compat, guc};
use crate::state::directory::{Entry, State};
use crate::state::following::Waiting;
use crate::state::given_up;
use crate::state::handle::Handle;
use crate::state::tenants::{Kind, Tenant};

/// Seconds within which a requested follower comes. After them it is requested again.
const START_SECONDS: u32 = 5;
/// How long a scan looks again and again, without sleeping.
const SPIN: Duration = Duration::from_micros(20);
/// How long a scan sleeps between two looks at first.
const NAP: Duration = Duration::from_micros(50);
/// After this long a scan sleeps a millisecond between two looks.
const PATIENCE: Duration = Duration::from_millis(5);

/// Whether a query that is being planned on this standby may use the index of an entry. `made`: the
/// transaction that made its row in `pg_index`.
///
/// # Safety
/// The index must be locked, with an active snapshot.
pub unsafe fn offers(entry: &Entry, made: TransactionId) -> bool {
    // SAFETY: by contract; a plain global of the process.
    entry.state() == State::Following && !background::is_follower() && unsafe { is_older(made) }
}

/// Whether a transaction is older than the oldest one that a snapshot of this process may see
/// running.
///
/// # Safety
/// Inside a transaction, with an active snapshot.
pub unsafe fn is_older(made: TransactionId) -> bool {
    // SAFETY: plain globals.
    unsafe { pg_sys::TransactionIdPrecedes(made, pg_sys::TransactionXmin) }
}

/// Gives up an index that no follower keeps up to date, because `nitro.follow` is off. Its follower
/// does the same before it ends, unless it has ended earlier or a lock was in its way.
///
/// # Safety
/// `index` must be the open and locked index of the entry.
pub unsafe fn stop_if_off(index: Relation, entry: &Entry) {
    if !guc::FOLLOW_WAL.get() {
        // SAFETY: by contract.
        unsafe { given_up::stop_following(index, entry) };
    }
}

/// The name of a state in views. A standby that does not keep an index up to date says so, in place
/// of `unbuilt`.
pub fn shown(state: State) -> &'static str {
    let unbuilt = matches!(state, State::Unbuilt | State::Bare | State::GivenUp);
    // SAFETY: reads shared state.
    if unbuilt && unsafe { pg_sys::RecoveryInProgress() } { "standby" } else { state.name() }
}

/// The transaction that made the row of an open index in `pg_index`.
///
/// # Safety
/// `index` must be open.
pub unsafe fn made_by(index: Relation) -> TransactionId {
    // SAFETY: an open index has its row.
    unsafe { compat::tuple_xmin((*(*index).rd_indextuple).t_data) }
}

/// In a query on a standby: asks for a follower of the current database, if there is none.
pub fn ask(entry: &Entry) {
    let now = std::time::SystemTime::UNIX_EPOCH.elapsed().map_or(0, |d| d.as_secs() as u32);
    if guc::FOLLOW_WAL.get() && entry.tenant(Kind::Database).wants_follower(now, START_SECONDS) {
        start(entry.database());
    }
}

/// Starts a follower of a database. A server without a place for it goes on without: the next query
/// asks again.
pub fn start(database: u32) {
    let worker = BackgroundWorkerBuilder::new("nitro follower")
        .set_type("nitro follower")
        .set_library("nitro")
        .set_function("nitro_follower_main")
        .set_argument(Some(pg_sys::Datum::from(u64::from(database))))
        .enable_spi_access()
        // Last: the bindings let a worker with access to a database wait for the end of recovery.
        .set_start_time(BgWorkerStartTime::ConsistentState)
        .load_dynamic();
    if worker.is_err() {
        pgrx::debug1!("could not start a background worker for a nitro follower");
    }
}

/// Returns true when a scan with this snapshot may read the index, which a follower keeps up to
/// date; false if recovery has ended. ERROR if the scan may not read it, or if the follower takes
/// too long.
///
/// # Safety
/// `index` must be open and locked.
pub unsafe fn await_bound(index: Relation, handle: &Handle, snapshot: Snapshot) -> bool {
    // SAFETY: by contract; the snapshot is null or live.
    unsafe {
        if background::is_follower() {
            refuse(index, "A process that keeps indexes up to date cannot use them.".into());
        }
        let entry = handle.entry;
        stop_if_off(index, entry);
        // Other snapshots do not decide answers.
        let decides = is_mvcc(snapshot) && guc::holds(guc::Mechanism::FollowBound);
        // Read after the snapshot was taken.
        let bound = pg_sys::GetXLogReplayRecPtr(std::ptr::null_mut());
        let begun = Instant::now();
        let mut waiting = None;
        while entry.state() == State::Following && decides && !entry.has_reached(bound) {
            if !pg_sys::RecoveryInProgress() {
                return false;
            }
            let following = entry.tenant(Kind::Database).following();
            waiting.get_or_insert_with(|| Waiting::begin(following));
            pause(index, entry, begun, bound);
        }
        drop(waiting);
        let follows = entry.state() == State::Following;
        if !follows && pg_sys::RecoveryInProgress() {
            refuse(index, "This standby does not keep it up to date at the moment.".into());
        }
        follows
    }
}

/// Whether scans of this session on a standby do without the follower. Rows may be missing then.
pub fn is_not_bounded() -> bool {
    // SAFETY: reads shared state.
    guc::SCAN_CONSISTENCY.get() == guc::ScanConsistency::NotBounded
        && unsafe { pg_sys::RecoveryInProgress() }
}

unsafe fn is_mvcc(snapshot: Snapshot) -> bool {
    // SAFETY: null or live.
    unsafe {
        !snapshot.is_null() && (*snapshot).snapshot_type == pg_sys::SnapshotType::SNAPSHOT_MVCC
    }
}

/// Whether a snapshot is one of MVCC that was taken in recovery.
///
/// # Safety
/// The snapshot is null or live.
pub unsafe fn is_of_recovery(snapshot: Snapshot) -> bool {
    // SAFETY: by contract.
    unsafe { is_mvcc(snapshot) && (*snapshot).takenDuringRecovery }
}

/// ERROR if a snapshot was taken in recovery and is older than the index. A scan may have it after
/// a promotion, too.
///
/// # Safety
/// `index` must be open and locked.
#[inline]
pub unsafe fn check_snapshot(index: Relation, snapshot: Snapshot) {
    // SAFETY: by contract; the snapshot is null or live.
    unsafe {
        if is_of_recovery(snapshot)
            && !pg_sys::TransactionIdPrecedes(made_by(index), (*snapshot).xmin)
        {
            refuse(index, "The query's snapshot is older than the index.".into());
        }
    }
}

/// Waits a moment for the follower; ERROR if that has taken too long.
unsafe fn pause(index: Relation, entry: &Entry, begun: Instant, bound: u64) {
    let waited = begun.elapsed();
    if waited < SPIN {
        std::hint::spin_loop();
        return;
    }
    match entry.tenant(Kind::Database).follower() {
        0 => ask(entry),
        // SAFETY: the process may have ended: then there is none of this PID, or another one whose
        // latch does no harm.
        pid => unsafe { wake(pid) },
    }
    if waited < PATIENCE {
        std::thread::sleep(NAP);
        wait::interrupts();
    } else {
        wait::nap(Wait::Follower, 1);
    }
    if waited >= wait::deadlock_timeout() && entry.is_held_up() {
        // SAFETY: by contract of the caller.
        let name = unsafe { compat::name(index) };
        Failure::new(
            PgSqlErrorCode::ERRCODE_T_R_SERIALIZATION_FAILURE,
            "canceling statement due to conflict with recovery",
        )
        .detail(format!(
            "The statement waits for nitro index \"{name}\" to catch up with recovery, which waits for a lock that the \
             statement's transaction holds."
        ))
        .hint("Run the transaction again.")
        .raise();
    }
    let most = guc::FOLLOW_TIMEOUT.get();
    if most != 0 && waited >= Duration::from_millis(most as u64) {
        let reflects = entry.reflects.load(Acquire);
        // SAFETY: by contract of the caller.
        let name = unsafe { compat::name(index) };
        Failure::new(
            PgSqlErrorCode::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
            format!("nitro index \"{name}\" has not caught up with recovery"),
        )
        .detail(format!(
            "It reflects the WAL up to {}. The query needs it up to {}.",
            compat::lsn_text(reflects),
            compat::lsn_text(bound)
        ))
        .hint("Raise \"nitro.follow_timeout\", or set \"nitro.enable_scan\" to off for this query.")
        .raise();
    }
}

/// In a builder: tells the follower of a database that an index is FOLLOWING.
pub fn tell(database: &Tenant) {
    database.following().loaded.fetch_add(1, Release);
    match database.follower() {
        0 => (),
        // SAFETY: as in `pause`.
        pid => unsafe { wake(pid) },
    }
}

/// Sets the latch of a process, if there is one of this PID.
unsafe fn wake(pid: i32) {
    // SAFETY: a process structure stays valid memory for the life of the server.
    unsafe {
        let process = pg_sys::BackendPidGetProc(pid);
        if !process.is_null() {
            pg_sys::SetLatch(&raw mut (*process).procLatch);
        }
    }
}

unsafe fn refuse(index: Relation, detail: String) -> ! {
    Failure::new(
        PgSqlErrorCode::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
        // SAFETY: open relation by the caller's contract.
        format!("nitro index \"{}\" is not ready", unsafe { compat::name(index) }),
    )
    .detail(detail)
    .hint("Run the query again; it will be planned without the index until the index is ready.")
    .raise()
}
