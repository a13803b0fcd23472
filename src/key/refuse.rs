//! Indexes and rows that nitro does not support.

use crate::pg::compat;
use crate::pg::error::Failure;
use pgrx::{PgSqlErrorCode, pg_sys};

/// Raises the ERROR that says why an index cannot be.
pub fn refuse(message: String, detail: String, hint: impl AsRef<str>) -> ! {
    Failure::new(PgSqlErrorCode::ERRCODE_FEATURE_NOT_SUPPORTED, message)
        .detail(detail)
        .hint(hint.as_ref())
        .raise()
}

/// A key is longer than the engine stores. btree's limit is below it, but counts what compression
/// leaves.
///
/// # Safety
/// `index` must be open, inside a transaction.
#[track_caller]
pub unsafe fn key_too_long(index: pg_sys::Relation, length: usize) -> ! {
    // SAFETY: by contract.
    let name = unsafe { compat::name(index) };
    let failure = Failure::new(
        PgSqlErrorCode::ERRCODE_PROGRAM_LIMIT_EXCEEDED,
        format!("index row of {length} bytes exceeds the nitro maximum of {} bytes for index \"{name}\"", nitro_engine::MAX_KEY_LEN),
    )
    .detail("The columns of a row are stored together, without compression.")
    .hint("Consider an index on an expression such as md5(value), or a hash index. For arrays and documents, index only the part that queries need.");
    // SAFETY: by contract.
    unsafe { failure.about(index) }.raise()
}
