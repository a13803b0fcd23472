//! Trying something that may raise an ERROR, and going on afterwards.

use std::panic::AssertUnwindSafe;

use pgrx::pg_sys::panic::CaughtError;
use pgrx::prelude::*;

/// Runs `work` in a subtransaction; an ERROR rolls it back and is returned.
pub fn subtransaction<T>(work: impl FnOnce() -> T) -> Result<T, Box<CaughtError>> {
    // SAFETY: the subtransaction ends here in every case, before anything else happens; memory context
    // and resource owner of the caller are restored, as PL/pgSQL does it.
    unsafe {
        let context = pg_sys::CurrentMemoryContext;
        let owner = pg_sys::CurrentResourceOwner;
        pg_sys::BeginInternalSubTransaction(std::ptr::null());
        pg_sys::MemoryContextSwitchTo(context);
        let mut work = Some(work);
        let outcome = PgTryBuilder::new(AssertUnwindSafe(|| {
            let work = work.take().expect("runs once");
            Ok(work())
        }))
        .catch_others(|error| Err(Box::new(error)))
        .catch_rust_panic(|error| Err(Box::new(error)))
        .execute();
        match outcome {
            Ok(_) => pg_sys::ReleaseCurrentSubTransaction(),
            Err(_) => pg_sys::RollbackAndReleaseCurrentSubTransaction(),
        }
        pg_sys::MemoryContextSwitchTo(context);
        pg_sys::CurrentResourceOwner = owner;
        outcome
    }
}

/// Errors that say nothing about the data: cancel, shutdown, deadlock, lack of resources.
pub fn is_transient(error: &CaughtError) -> bool {
    let (CaughtError::PostgresError(report) | CaughtError::ErrorReport(report)) = error else {
        return false;
    };
    use PgSqlErrorCode::*;
    matches!(
        report.sql_error_code(),
        ERRCODE_QUERY_CANCELED
            | ERRCODE_ADMIN_SHUTDOWN
            | ERRCODE_CRASH_SHUTDOWN
            | ERRCODE_T_R_DEADLOCK_DETECTED
            | ERRCODE_LOCK_NOT_AVAILABLE
            | ERRCODE_OUT_OF_MEMORY
            | ERRCODE_DISK_FULL
            | ERRCODE_TOO_MANY_CONNECTIONS
    )
}

/// The message of an ERROR that was caught, which is not in the log yet.
pub fn message(error: &CaughtError) -> &str {
    use CaughtError::*;
    let (PostgresError(report) | ErrorReport(report) | RustPanic { ereport: report, .. }) = error;
    report.message()
}

/// Whether an ERROR has this SQLSTATE.
pub fn is(error: &CaughtError, code: PgSqlErrorCode) -> bool {
    use CaughtError::*;
    let (PostgresError(report) | ErrorReport(report) | RustPanic { ereport: report, .. }) = error;
    report.sql_error_code() == code
}
