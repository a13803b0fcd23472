//! Utility statements that nitro looks at: COPY FROM, and those that the server would refuse
//! without a reason.

use std::ffi::{CStr, c_char};

use pgrx::pg_sys::ffi::pg_guard_ffi_boundary;
use pgrx::prelude::*;

use crate::pg::error::Failure;

static mut PREVIOUS: pg_sys::ProcessUtility_hook_type = None;
static mut AROUND_COPY: Option<AroundCopy> = None;

/// Calls the server's part of COPY FROM, once.
type AroundCopy = unsafe fn(&mut dyn FnMut());

/// Chains the hook. `around_copy` runs COPY FROM.
pub fn install_utility_hook(around_copy: AroundCopy) {
    // SAFETY: runs once, in the single-threaded postmaster.
    unsafe {
        AROUND_COPY = Some(around_copy);
        PREVIOUS = pg_sys::ProcessUtility_hook;
        pg_sys::ProcessUtility_hook = Some(on_statement);
    }
}

/// `ProcessUtility_hook`
#[pg_guard]
#[allow(clippy::too_many_arguments, reason = "the server's hook")]
unsafe extern "C-unwind" fn on_statement(
    statement: *mut pg_sys::PlannedStmt,
    query: *const c_char,
    read_only: bool,
    context: pg_sys::ProcessUtilityContext::Type,
    params: pg_sys::ParamListInfo,
    environment: *mut pg_sys::QueryEnvironment,
    receiver: *mut pg_sys::DestReceiver,
    completion: *mut pg_sys::QueryCompletion,
) {
    crate::pg::witness!();
    // SAFETY: a statement of the server, whose node says what it is; the rest is passed on.
    unsafe {
        let node = (*statement).utilityStmt;
        let mut work = || match PREVIOUS {
            Some(previous) => pg_guard_ffi_boundary(|| {
                previous(
                    statement,
                    query,
                    read_only,
                    context,
                    params,
                    environment,
                    receiver,
                    completion,
                )
            }),
            None => pg_sys::standard_ProcessUtility(
                statement,
                query,
                read_only,
                context,
                params,
                environment,
                receiver,
                completion,
            ),
        };
        match (*node).type_ {
            pg_sys::NodeTag::T_IndexStmt
                if cfg!(any(feature = "pg15", feature = "pg16", feature = "pg17")) =>
            {
                let index = node.cast::<pg_sys::IndexStmt>();
                let method = (*index).accessMethod;
                if (*index).unique && !method.is_null() && CStr::from_ptr(method) == c"nitro" {
                    refuse_unique();
                }
                work();
            }
            pg_sys::NodeTag::T_CopyStmt
                if (*node.cast::<pg_sys::CopyStmt>()).is_from
                    && let Some(around) = AROUND_COPY =>
            {
                around(&mut work);
            }
            _ => work(),
        }
    }
}

fn refuse_unique() -> ! {
    Failure::new(
        PgSqlErrorCode::ERRCODE_FEATURE_NOT_SUPPORTED,
        "access method \"nitro\" does not support unique indexes on this version of PostgreSQL",
    )
    .detail("Before PostgreSQL 18, ON CONFLICT, foreign keys and partitioned tables raise internal errors if a table has a unique index that is not a btree.")
    .hint("Use btree, or PostgreSQL 18 or later.")
    .raise()
}
