//! Indexes that nitro does not support.

use crate::pg::error::Failure;
use pgrx::PgSqlErrorCode;

/// Raises the ERROR that says why an index cannot be.
pub fn refuse(message: String, detail: String, hint: impl AsRef<str>) -> ! {
    Failure::new(PgSqlErrorCode::ERRCODE_FEATURE_NOT_SUPPORTED, message)
        .detail(detail)
        .hint(hint.as_ref())
        .raise()
}
