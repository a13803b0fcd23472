//! Errors that users see: SQLSTATE, lower-case message, DETAIL and HINT.

use std::ffi::{CStr, CString, c_char, c_int};
use std::panic::Location;

use pgrx::pg_sys::ffi::pg_guard_ffi_boundary;
use pgrx::prelude::*;

use crate::pg::text;

// Functions of the macro `ereport`, which the bindings do not export.
unsafe extern "C-unwind" {
    fn errstart(level: c_int, domain: *const c_char) -> bool;
    pub(super) fn errcode(code: c_int) -> c_int;
    pub(super) fn errmsg_internal(format: *const c_char, ...) -> c_int;
    pub(super) fn errdetail_internal(format: *const c_char, ...) -> c_int;
    pub(super) fn errdetail_log(format: *const c_char, ...) -> c_int;
    pub(super) fn errhint(format: *const c_char, ...) -> c_int;
    pub(super) fn errcontext_msg(format: *const c_char, ...) -> c_int;
    pub(super) fn err_generic_string(field: c_int, text: *const c_char) -> c_int;
    fn errfinish(file: *const c_char, line: c_int, function: *const c_char);
}

/// Keeps stack traces out of errors. If the server runs with RUST_BACKTRACE, which is meant for
/// panics, the bindings put a trace into the DETAIL of every ERROR that passes through them. Set
/// RUST_LIB_BACKTRACE to get that.
///
/// # Safety
/// The process must have no other thread.
pub unsafe fn install() {
    const WANTED: &str = "RUST_LIB_BACKTRACE";
    if std::env::var_os(WANTED).is_none() {
        // SAFETY: by contract.
        unsafe { std::env::set_var(WANTED, "0") };
    }
}

/// A user error under construction; [`Failure::raise`] throws it as a PostgreSQL ERROR.
pub struct Failure {
    code: PgSqlErrorCode,
    message: String,
    detail: Option<String>,
    hint: Option<String>,
    index: Option<IndexNames>,
    location: &'static Location<'static>,
}

/// How clients find an index that an error is about; its name counts as that of a constraint.
struct IndexNames {
    schema: CString,
    table: CString,
    index: CString,
}

impl Failure {
    /// Starts an error with its SQLSTATE and message. LOCATION is the caller's.
    #[track_caller]
    pub fn new(code: PgSqlErrorCode, message: impl Into<String>) -> Failure {
        let (message, location) = (message.into(), Location::caller());
        Failure { code, message, detail: None, hint: None, index: None, location }
    }

    /// Adds the DETAIL line.
    pub fn detail(self, text: impl Into<String>) -> Failure {
        Failure { detail: Some(text.into()), ..self }
    }

    /// Adds the HINT line.
    pub fn hint(self, text: impl Into<String>) -> Failure {
        Failure { hint: Some(text.into()), ..self }
    }

    /// Adds the fields SCHEMA, TABLE and CONSTRAINT.
    ///
    /// # Safety
    /// `index` must be open, inside a transaction.
    pub unsafe fn about(self, index: pg_sys::Relation) -> Failure {
        // SAFETY: by contract. A locked relation has its names.
        let names = unsafe {
            let table = (*(*index).rd_index).indrelid;
            let owned = |name: *mut c_char| {
                if name.is_null() { CString::default() } else { CStr::from_ptr(name).into() }
            };
            IndexNames {
                schema: owned(pg_sys::get_namespace_name(pg_sys::get_rel_namespace(table))),
                table: owned(pg_sys::get_rel_name(table)),
                index: CStr::from_ptr((*(*index).rd_rel).relname.data.as_ptr()).into(),
            }
        };
        Failure { index: Some(names), ..self }
    }

    /// Throws. Destructors of the frames above run; must not be called under a latch.
    pub fn raise(self) -> ! {
        self.report(pg_sys::PGERROR as c_int);
        unreachable!("an ERROR does not return")
    }

    /// Reports as a WARNING and goes on.
    pub fn warn(self) {
        self.report(pg_sys::WARNING as c_int);
    }

    /// Reports as INFO and goes on.
    pub fn inform(self) {
        self.report(pg_sys::INFO as c_int);
    }

    /// Writes to the server's log and goes on.
    pub fn log(self) {
        self.report(pg_sys::LOG as c_int);
    }

    fn report(self, level: c_int) {
        let code = self.code as c_int;
        let message = text::to_server(&self.message);
        let [detail, hint] = [&self.detail, &self.hint]
            .map(|text| text.as_deref().map_or_else(CString::default, text::to_server));
        let (location, names) = (self.location, &self.index);
        let fields = names.as_ref().map_or_else(Vec::new, |names| {
            vec![
                (pg_sys::PG_DIAG_SCHEMA_NAME, names.schema.clone()),
                (pg_sys::PG_DIAG_TABLE_NAME, names.table.clone()),
                (pg_sys::PG_DIAG_CONSTRAINT_NAME, names.index.clone()),
            ]
        });
        // An ERROR comes back as a panic, whose destructors free the strings.
        drop(self);
        // SAFETY: the order of calls of `ereport`, on nul-terminated strings; the server copies
        // them, but for the location, which is static. Nothing in the closure has a destructor.
        unsafe {
            pg_guard_ffi_boundary(|| {
                if !errstart(level, std::ptr::null()) {
                    return;
                }
                errcode(code);
                errmsg_internal(c"%s".as_ptr(), message.as_ptr());
                if !detail.is_empty() {
                    errdetail_internal(c"%s".as_ptr(), detail.as_ptr());
                }
                if !hint.is_empty() {
                    errhint(c"%s".as_ptr(), hint.as_ptr());
                }
                for (field, name) in &fields {
                    err_generic_string(c_int::from(*field), name.as_ptr());
                }
                let file: &'static CStr = location.file_as_c_str();
                errfinish(file.as_ptr(), location.line() as c_int, c"nitro".as_ptr());
            });
        }
    }
}

/// Writes a line to the server's log; arguments as for `format!`.
macro_rules! log {
    ($($argument:tt)*) => {
        crate::pg::error::Failure::new(
            pgrx::PgSqlErrorCode::ERRCODE_SUCCESSFUL_COMPLETION,
            format!($($argument)*),
        )
        .log()
    };
}
pub(crate) use log;

/// The library is not in `shared_preload_libraries`, so there is no shared memory to work in.
#[track_caller]
pub fn not_preloaded() -> ! {
    preload_missing().raise()
}

/// Raises the same as a WARNING, when the extension is created.
#[track_caller]
pub fn warn_not_preloaded() {
    preload_missing().warn();
}

#[track_caller]
fn preload_missing() -> Failure {
    Failure::new(
        PgSqlErrorCode::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
        "nitro must be loaded by \"shared_preload_libraries\"",
    )
    .detail("Nitro indexes live in shared memory that is reserved when the server starts.")
    .hint("Add nitro to \"shared_preload_libraries\" in postgresql.conf and restart the server.")
}
