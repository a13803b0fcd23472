//! Processes of the background: transactions of their own, and giving way to users.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, RefUnwindSafe};
use std::time::{Duration, Instant};

use pgrx::pg_sys::panic::CaughtError;
use pgrx::prelude::*;

use crate::pg::error::Failure;
use crate::pg::{compat, subtransaction};

thread_local! {
    /// This process is the background worker of a database.
    static WORKER: Cell<bool> = const { Cell::new(false) };
    /// This process is the follower of a database.
    static FOLLOWER: Cell<bool> = const { Cell::new(false) };
    /// An index and its table that this process uses for long in recovery, and when it looked last
    /// whether another process waits for them.
    static USES: Cell<Option<([pg_sys::Oid; 2], Instant)>> = const { Cell::new(None) };
}

/// Time between two looks whether a process waits for a relation.
const LOOK: Duration = Duration::from_millis(100);

/// Sets aside settings for sessions, as autovacuum does. Timeouts would end a background process in
/// the middle of each long build or image. A snapshot that lasts as long as a transaction would
/// keep VACUUM from its work.
///
/// # Safety
/// In a background worker, before it is connected.
pub unsafe fn set_limits_aside() {
    let isolation = (c"default_transaction_isolation", c"read committed");
    let timeouts = compat::TIMEOUTS.iter().map(|&name| (name, c"0"));
    for (name, value) in timeouts.chain([isolation]) {
        // SAFETY: the values are valid, so nothing is raised.
        unsafe {
            pg_sys::SetConfigOption(
                name.as_ptr(),
                value.as_ptr(),
                pg_sys::GucContext::PGC_SUSET,
                pg_sys::GucSource::PGC_S_OVERRIDE,
            );
        }
    }
}

/// Says whether this process is the background worker of a database; returns what was said before.
pub fn set_worker(is: bool) -> bool {
    WORKER.replace(is)
}

/// Whether this process is the background worker of a database.
pub fn is_worker() -> bool {
    WORKER.get()
}

/// From now on this process follows the WAL of a database.
pub fn set_follower() {
    FOLLOWER.set(true);
}

/// Whether this process follows the WAL of a database.
pub fn is_follower() -> bool {
    FOLLOWER.get()
}

/// In a background worker: raises an ERROR if a process waits to drop, move or copy the database,
/// which would fail after five seconds. Elsewhere the user decides. It looks for replay as well
/// ([`give_way_to_replay`]).
pub fn give_way() {
    if WORKER.get() && compat::database_is_wanted() {
        Failure::new(
            PgSqlErrorCode::ERRCODE_LOCK_NOT_AVAILABLE,
            "another session wants the database for itself",
        )
        .raise();
    }
    give_way_to_replay();
}

/// Says which index and table this process uses from now on in recovery; `None`: it uses none for
/// long.
pub fn set_uses(relations: Option<[pg_sys::Oid; 2]>) {
    USES.set(relations.map(|relations| (relations, Instant::now())));
}

/// Raises an ERROR in a builder of a standby if a process waits for a lock that ends the use of its
/// relations, as replay does. Raises it, too, if recovery has ended. Does nothing elsewhere.
pub fn give_way_to_replay() {
    if let Some((relations, looked)) = USES.get()
        && looked.elapsed() >= LOOK
    {
        set_uses(Some(relations));
        // SAFETY: set inside a transaction, and until its end.
        let (wanted, ended) =
            unsafe { (compat::is_wanted(relations), !pg_sys::RecoveryInProgress()) };
        let why = match (wanted, ended) {
            (true, _) => "another process waits for a lock on the index or its table",
            (_, true) => "recovery has ended",
            _ => return,
        };
        Failure::new(PgSqlErrorCode::ERRCODE_LOCK_NOT_AVAILABLE, why).raise();
    }
}

/// Runs `work` in a transaction; an ERROR is logged by the server and ends only that transaction.
pub fn transaction(what: &str, work: impl FnOnce()) -> bool {
    let outcome = try_transaction(work, |caught| {
        subtransaction::report(format!("nitro could not {what}"), caught)
    });
    outcome.is_ok()
}

/// Runs `work` in a transaction with a snapshot. An ERROR ends only that transaction; what `look`
/// says of it is returned.
pub fn try_transaction<T, E>(
    work: impl FnOnce() -> T,
    look: impl Fn(&CaughtError) -> E + RefUnwindSafe,
) -> Result<T, E> {
    let mut work = Some(work);
    // SAFETY: transaction control at the top level of a background worker.
    unsafe {
        pg_sys::SetCurrentStatementStartTimestamp();
        pg_sys::StartTransactionCommand();
        pg_sys::PushActiveSnapshot(pg_sys::GetTransactionSnapshot());
        let outcome = PgTryBuilder::new(AssertUnwindSafe(|| {
            let work = work.take().expect("runs once");
            Ok(work())
        }))
        .catch_others(|caught| Err(look(&caught)))
        .execute();
        if outcome.is_ok() {
            pg_sys::PopActiveSnapshot();
            pg_sys::CommitTransactionCommand();
        } else {
            pg_sys::AbortCurrentTransaction();
        }
        outcome
    }
}
