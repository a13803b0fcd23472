//! Errors that users see: SQLSTATE, lower-case message, DETAIL and HINT.

use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

/// A user error under construction; [`Failure::raise`] throws it as a PostgreSQL ERROR.
pub struct Failure(ErrorReport);

impl Failure {
    /// Starts an error with its SQLSTATE and message.
    pub fn new(code: PgSqlErrorCode, message: impl Into<String>) -> Failure {
        Failure(ErrorReport::new(code, message.into(), "nitro"))
    }

    /// Adds the DETAIL line.
    pub fn detail(self, text: impl Into<String>) -> Failure {
        Failure(self.0.set_detail(text))
    }

    /// Adds the HINT line.
    pub fn hint(self, text: impl Into<String>) -> Failure {
        Failure(self.0.set_hint(text))
    }

    /// Throws. Destructors of the frames above run; must not be called under a latch.
    pub fn raise(self) -> ! {
        self.0.report(PgLogLevel::ERROR);
        unreachable!("an ERROR does not return")
    }

    /// Reports as a WARNING and goes on.
    pub fn warn(self) {
        self.0.report(PgLogLevel::WARNING);
    }
}

/// The library is not in `shared_preload_libraries`, so there is no shared memory to work in.
pub fn not_preloaded() -> ! {
    Failure::new(
        PgSqlErrorCode::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
        "nitro must be loaded by \"shared_preload_libraries\"",
    )
    .detail("Nitro indexes live in shared memory that is reserved when the server starts.")
    .hint("Add nitro to \"shared_preload_libraries\" in postgresql.conf and restart the server.")
    .raise()
}

/// The shared area has no room; the statement fails, everything else goes on.
pub fn out_of_memory(index: &str, requested: usize) -> ! {
    let usage = crate::shmem::area().usage();
    Failure::new(
        PgSqlErrorCode::ERRCODE_OUT_OF_MEMORY,
        format!("out of nitro memory while adding to index \"{index}\""),
    )
    .detail(format!(
        "{} bytes were requested; nitro indexes hold {} of {} bytes, the largest free piece is {} bytes.",
        requested, usage.used, usage.total, usage.largest_free
    ))
    .hint("Raise \"nitro.max_memory\" (needs a restart), or drop nitro indexes; the view pg_stat_nitro_indexes shows what each one holds.")
    .raise()
}

/// A key is longer than the engine stores.
pub fn key_too_long(index: &str, length: usize) -> ! {
    Failure::new(
        PgSqlErrorCode::ERRCODE_PROGRAM_LIMIT_EXCEEDED,
        format!("index row of {length} bytes exceeds the nitro maximum of {} bytes for index \"{index}\"", nitro_engine::MAX_KEY_LEN),
    )
    .hint("Values this large cannot be indexed; consider an index on a hash or a prefix of the value.")
    .raise()
}

/// The engine refused an insertion.
pub fn insert_failed(index: &str, error: nitro_engine::InsertError) -> ! {
    match error {
        nitro_engine::InsertError::OutOfMemory(e) => out_of_memory(index, e.requested),
        nitro_engine::InsertError::KeyTooLong(n) => key_too_long(index, n),
    }
}
