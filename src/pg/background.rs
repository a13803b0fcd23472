//! Processes of the background: transactions of their own, and giving way to users.

use std::cell::Cell;
use std::panic::AssertUnwindSafe;

use pgrx::prelude::*;

use crate::pg::error::Failure;
use crate::pg::{compat, subtransaction};

thread_local! {
    /// This process is the background worker of a database.
    static WORKER: Cell<bool> = const { Cell::new(false) };
}

/// Says whether this process is the background worker of a database; returns what was said before.
pub fn set_worker(is: bool) -> bool {
    WORKER.replace(is)
}

/// In the background worker: an ERROR if somebody waits to drop, move or copy the database, who would
/// fail after five seconds. Elsewhere the user decides.
pub fn give_way() {
    if WORKER.get() && compat::database_is_wanted() {
        Failure::new(
            PgSqlErrorCode::ERRCODE_LOCK_NOT_AVAILABLE,
            "another session wants the database for itself",
        )
        .raise();
    }
}

/// Runs `work` in a transaction; an ERROR is logged by the server and ends only that transaction.
pub fn transaction(what: &str, work: impl FnOnce()) -> bool {
    // SAFETY: transaction control at the top level of a background worker.
    unsafe {
        pg_sys::SetCurrentStatementStartTimestamp();
        pg_sys::StartTransactionCommand();
        pg_sys::PushActiveSnapshot(pg_sys::GetTransactionSnapshot());
        let ok = PgTryBuilder::new(AssertUnwindSafe(|| {
            work();
            true
        }))
        .catch_others(|caught| {
            subtransaction::report(format!("nitro could not {what}"), &caught);
            false
        })
        .execute();
        if ok {
            pg_sys::PopActiveSnapshot();
            pg_sys::CommitTransactionCommand();
        } else {
            pg_sys::AbortCurrentTransaction();
        }
        ok
    }
}
