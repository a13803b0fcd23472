//! Trying something that may raise an ERROR, and going on afterwards.

use std::panic::AssertUnwindSafe;

use pgrx::pg_sys::panic::CaughtError;
use pgrx::prelude::*;

use crate::pg::error::Failure;
use crate::pg::witness::{self, Witness};

/// Runs `work` in a subtransaction; an ERROR rolls it back and is returned.
pub fn run<T>(work: impl FnOnce() -> T) -> Result<T, Box<CaughtError>> {
    // SAFETY: the subtransaction ends here in every case, before anything else happens; memory
    // context and resource owner of the caller are restored, as PL/pgSQL does it.
    unsafe {
        let context = pg_sys::CurrentMemoryContext;
        let owner = pg_sys::CurrentResourceOwner;
        pg_sys::BeginInternalSubTransaction(std::ptr::null());
        pg_sys::MemoryContextSwitchTo(context);
        let outcome = caught(work);
        match outcome {
            Ok(_) => pg_sys::ReleaseCurrentSubTransaction(),
            Err(_) => pg_sys::RollbackAndReleaseCurrentSubTransaction(),
        }
        pg_sys::MemoryContextSwitchTo(context);
        pg_sys::CurrentResourceOwner = owner;
        outcome
    }
}

/// Runs `work`, which only reads files of the server: no table, no code of users. Returns an ERROR
/// as a value. VACUUM of several indexes is a parallel operation, and servers before 17 allow no
/// subtransactions there. So this function releases by itself everything that a subtransaction
/// would. (A file of `AllocateFile` stays open until the transaction ends.)
pub fn reading<T>(work: impl FnOnce() -> T) -> Result<T, Box<CaughtError>> {
    use pg_sys::ResourceReleasePhase::*;
    // SAFETY: the resource owner ends here in every case; memory context and resource owner of the
    // caller are restored. The caller holds no lightweight lock.
    unsafe {
        let context = pg_sys::CurrentMemoryContext;
        let owner = pg_sys::CurrentResourceOwner;
        let own = pg_sys::ResourceOwnerCreate(owner, c"nitro reading".as_ptr());
        pg_sys::CurrentResourceOwner = own;
        let outcome = caught(work);
        if outcome.is_err() {
            pg_sys::LWLockReleaseAll();
            pg_sys::my_wait_event_info.write_volatile(0);
        }
        pg_sys::MemoryContextSwitchTo(context);
        for phase in
            [RESOURCE_RELEASE_BEFORE_LOCKS, RESOURCE_RELEASE_LOCKS, RESOURCE_RELEASE_AFTER_LOCKS]
        {
            pg_sys::ResourceOwnerRelease(own, phase, outcome.is_ok(), false);
        }
        pg_sys::CurrentResourceOwner = owner;
        pg_sys::ResourceOwnerDelete(own);
        outcome
    }
}

/// # Safety
/// The caller releases everything that an ERROR leaves behind.
unsafe fn caught<T>(work: impl FnOnce() -> T) -> Result<T, Box<CaughtError>> {
    let mut work = Some(work);
    let mut node = std::mem::MaybeUninit::uninit();
    // SAFETY: in this frame, dropped before the node.
    let _witness = unsafe { Witness::new(&mut node, false) };
    PgTryBuilder::new(AssertUnwindSafe(|| {
        let work = work.take().expect("runs once");
        Ok(work())
    }))
    .catch_others(|error| Err(Box::new(off_the_stack(error))))
    .catch_rust_panic(|error| Err(Box::new(error)))
    .execute()
}

/// Prepares an ERROR for `rethrow`. The bindings throw an ERROR again from the server's error
/// stack. One that is kept beyond the catch is not there any more. So `rethrow` must report it anew
/// from its own fields.
fn off_the_stack(error: CaughtError) -> CaughtError {
    match error {
        CaughtError::PostgresError(report) => CaughtError::ErrorReport(report),
        error => error,
    }
}

/// Returns true for errors that depend on the transaction or the machine, and not on the data.
/// These are cancel, shutdown, deadlock, a failed serialization, READ ONLY, too deep a stack, and
/// lack of resources.
pub fn is_transient(error: &CaughtError) -> bool {
    let (CaughtError::PostgresError(report) | CaughtError::ErrorReport(report)) = error else {
        return false;
    };
    use PgSqlErrorCode::*;
    let code = report.sql_error_code();
    // The first two characters of an SQLSTATE.
    let class = |code: PgSqlErrorCode| code as i32 & 0xfff;
    let classes = [
        ERRCODE_INVALID_TRANSACTION_STATE,
        ERRCODE_TRANSACTION_ROLLBACK,
        ERRCODE_INSUFFICIENT_RESOURCES,
        ERRCODE_OPERATOR_INTERVENTION,
    ];
    classes.into_iter().any(|one| class(one) == class(code))
        || matches!(
            code,
            ERRCODE_STATEMENT_TOO_COMPLEX
                | ERRCODE_OBJECT_IN_USE
                | ERRCODE_LOCK_NOT_AVAILABLE
                | ERRCODE_IO_ERROR
        )
}

/// Whether an ERROR says that a lock was not to be had in time.
pub fn is_for_lock(error: &CaughtError) -> bool {
    let (CaughtError::PostgresError(report) | CaughtError::ErrorReport(report)) = error else {
        return false;
    };
    report.sql_error_code() == PgSqlErrorCode::ERRCODE_LOCK_NOT_AVAILABLE
}

/// Whether an ERROR is meant for the statement or the process as a whole.
pub fn ends(error: &CaughtError) -> bool {
    use PgSqlErrorCode::*;
    let all = [ERRCODE_QUERY_CANCELED, ERRCODE_ADMIN_SHUTDOWN, ERRCODE_CRASH_SHUTDOWN];
    all.into_iter().any(|code| is(error, code))
}

/// The message of an ERROR that was caught last, which is not in the log yet.
pub fn message(error: &CaughtError) -> String {
    use CaughtError::*;
    let (PostgresError(report) | ErrorReport(report) | RustPanic { ereport: report, .. }) = error;
    witness::said(report).message
}

/// Logs a caught ERROR that kept nitro from doing `what`, with its SQLSTATE. As a WARNING if the
/// user must free resources.
#[track_caller]
pub fn report(what: String, error: &CaughtError) {
    use CaughtError::*;
    let (PostgresError(report) | ErrorReport(report) | RustPanic { ereport: report, .. }) = error;
    let code = report.sql_error_code();
    let said = witness::said(report);
    let mut failure = Failure::new(code, format!("{what}: {}", said.message));
    if let Some(detail) = said.detail {
        failure = failure.detail(detail);
    }
    if let Some(hint) = said.hint {
        failure = failure.hint(hint);
    }
    use PgSqlErrorCode::*;
    match code {
        ERRCODE_OUT_OF_MEMORY | ERRCODE_DISK_FULL | ERRCODE_INSUFFICIENT_RESOURCES => {
            failure.warn()
        }
        _ => failure.log(),
    }
}

/// Whether an ERROR has this SQLSTATE.
pub fn is(error: &CaughtError, code: PgSqlErrorCode) -> bool {
    use CaughtError::*;
    let (PostgresError(report) | ErrorReport(report) | RustPanic { ereport: report, .. }) = error;
    report.sql_error_code() == code
}
