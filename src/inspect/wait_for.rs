//! `nitro_wait_for`: waits until this server has replayed the WAL up to a position. A later query
//! sees all commits before that position, by nitro indexes as well: a scan waits for the follower
//! by itself.
//!
//! It is a procedure that gives its snapshot up, as WAIT FOR LSN of 19 does. Replay may wait for
//! snapshots. So a process that keeps one and waits for replay might wait for itself.

use std::time::{Duration, Instant};

use pgrx::fcinfo::pg_getarg_datum;
use pgrx::pg_sys::{self, FunctionCallInfo, XLogRecPtr};
use pgrx::prelude::*;

use crate::pg::compat::lsn_text;
use crate::pg::error::Failure;
use crate::pg::wait::{self, Wait};

/// The longest pause between two looks at the position of recovery, in milliseconds.
const MOST_PAUSE_MS: u64 = 10;
const DAY_US: i128 = 86_400_000_000;

/// Waits until this server has replayed the WAL up to a position, at most for a time. Returns at
/// once outside of recovery if the WAL has this position. ERROR in a transaction that has, or may
/// have, a snapshot, after the time, and if recovery ends before.
#[pg_extern]
fn nitro_wait_for(fcinfo: FunctionCallInfo) {
    crate::pg::witness!();
    // SAFETY: declared as a procedure with two arguments, of type pg_lsn and interval.
    unsafe {
        let Some(target) = pg_getarg_datum(fcinfo, 0) else {
            Failure::new(
                PgSqlErrorCode::ERRCODE_NULL_VALUE_NOT_ALLOWED,
                "the WAL position to wait for must not be null",
            )
            .raise()
        };
        let target = target.value() as XLogRecPtr;
        let timeout = pg_getarg_datum(fcinfo, 1).map(|it| duration(&*it.cast_mut_ptr()));
        give_snapshot_up(fcinfo);
        if pg_sys::RecoveryInProgress() {
            wait_for_replay(target, timeout);
        } else {
            check_written(target);
        }
    }
}

/// The length of an interval, as the server compares them: a month has 30 days.
fn duration(interval: &pg_sys::Interval) -> Duration {
    let days = i128::from(interval.month) * 30 + i128::from(interval.day);
    let microseconds = days * DAY_US + i128::from(interval.time);
    if microseconds < 0 {
        Failure::new(
            PgSqlErrorCode::ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE,
            "timeout cannot be negative",
        )
        .raise();
    }
    Duration::from_micros(u64::try_from(microseconds).unwrap_or(u64::MAX))
}

/// Gives the snapshot of the CALL up, which `PortalRunUtility` of the server allows. ERROR if this
/// is no CALL of a client outside of transaction blocks.
///
/// # Safety
/// A call from SQL.
unsafe fn give_snapshot_up(fcinfo: FunctionCallInfo) {
    // SAFETY: by contract. The context of a CALL is a `CallContext`. Outside of transaction blocks,
    // functions and procedures the only active snapshot is that of the CALL's portal.
    unsafe {
        let context = (*fcinfo).context;
        let is_call = !context.is_null() && (*context).type_ == pg_sys::NodeTag::T_CallContext;
        if !is_call
            || (*context.cast::<pg_sys::CallContext>()).atomic
            || pg_sys::SPI_inside_nonatomic_context()
        {
            refuse(
                "It cannot be called in a transaction block, or from a function, a procedure or a DO block.",
                "Call it before the transaction begins.",
            );
        }
        if pg_sys::ActiveSnapshotSet() {
            pg_sys::PopActiveSnapshot();
        }
        pg_sys::InvalidateCatalogSnapshot();
        if (*pg_sys::MyProc).xmin != pg_sys::InvalidTransactionId {
            refuse(
                "The transaction keeps a snapshot, which replay may wait for.",
                "Call it at the isolation level READ COMMITTED.",
            );
        }
    }
}

fn refuse(detail: &str, hint: &str) -> ! {
    Failure::new(
        PgSqlErrorCode::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
        "nitro_wait_for must be called without a snapshot",
    )
    .detail(detail)
    .hint(hint)
    .raise()
}

/// # Safety
/// Without a snapshot.
unsafe fn wait_for_replay(target: XLogRecPtr, timeout: Option<Duration>) {
    let (begun, mut pause) = (Instant::now(), 1);
    loop {
        // In this order: the position does not move after the end of recovery.
        // SAFETY: reads shared state.
        let (recovers, replayed) = unsafe {
            (pg_sys::RecoveryInProgress(), pg_sys::GetXLogReplayRecPtr(std::ptr::null_mut()))
        };
        if replayed >= target {
            return;
        }
        let now = || format!("Recovery has replayed the WAL up to {}.", lsn_text(replayed));
        if !recovers {
            let code = PgSqlErrorCode::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE;
            let target = lsn_text(target);
            let message = format!("recovery ended before WAL position {target} was replayed");
            Failure::new(code, message).detail(now()).raise();
        }
        let left = timeout.map(|timeout| timeout.saturating_sub(begun.elapsed()));
        if left == Some(Duration::ZERO) {
            let code = PgSqlErrorCode::ERRCODE_QUERY_CANCELED;
            let message =
                format!("timed out while waiting for replay of WAL position {}", lsn_text(target));
            Failure::new(code, message).detail(now()).raise();
        }
        let most = left.map_or(pause, |left| (left.as_millis() as u64).max(1));
        wait::nap(Wait::Replay, pause.min(most) as i64);
        pause = (pause * 2).min(MOST_PAUSE_MS);
    }
}

/// ERROR if the WAL of this server, which is not in recovery, ends before a position.
///
/// # Safety
/// Outside of recovery.
unsafe fn check_written(target: XLogRecPtr) {
    // SAFETY: by contract.
    let end = unsafe { pg_sys::GetXLogInsertRecPtr() };
    if end < target {
        Failure::new(
            PgSqlErrorCode::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
            format!("WAL position {} is behind the end of the WAL", lsn_text(target)),
        )
        .detail(format!(
            "This server is not in recovery, and has written WAL up to {}.",
            lsn_text(end)
        ))
        .raise();
    }
}
