//! Strategy numbers of the operator classes `array_ops` and `jsonb_array_ops`, behind btree's. The
//! last argument is of the same type, an element, an array of two elements, a range, a prefix, text
//! or text[].
#![allow(missing_docs, reason = "named by their operators")]

use pgrx::prelude::*;

use crate::pg::error::Failure;

/// btree's strategies end here: `<`, `<=`, `=`, `>=`, `>`.
pub const LAST_OF_BTREE: u16 = 5;
pub const OVERLAPS: u16 = 6;
pub const CONTAINS: u16 = 7;
pub const CONTAINED: u16 = 8;
pub const EQUAL: u16 = 9;
pub const ANY_LESS: u16 = 10;
pub const ANY_LESS_EQUAL: u16 = 11;
pub const ANY_GREATER_EQUAL: u16 = 12;
pub const ANY_GREATER: u16 = 13;
pub const ANY_BETWEEN: u16 = 14;
pub const ANY_IN_RANGE: u16 = 15;
pub const ANY_PREFIX: u16 = 16;
pub const JSON_CONTAINS: u16 = 17;
pub const EXISTS: u16 = 18;
pub const EXISTS_ANY: u16 = 19;
pub const EXISTS_ALL: u16 = 20;
pub const LAST: u16 = EXISTS_ALL;

/// The strategies of arrays, or of documents.
pub fn range(documents: bool) -> std::ops::RangeInclusive<u16> {
    if documents { JSON_CONTAINS..=LAST } else { OVERLAPS..=ANY_PREFIX }
}

/// Whether a condition names elements, rather than a range of them.
pub fn names_elements(strategy: u16) -> bool {
    matches!(strategy, OVERLAPS..=EQUAL | JSON_CONTAINS..=EXISTS_ALL)
}

/// Whether a condition names elements in an array.
pub fn takes_array(strategy: u16) -> bool {
    matches!(strategy, OVERLAPS..=EQUAL | EXISTS_ANY | EXISTS_ALL)
}

/// Whether a condition asks for all of the elements that it names.
pub fn asks_for_all(strategy: u16) -> bool {
    matches!(strategy, CONTAINS | EQUAL | JSON_CONTAINS | EXISTS_ALL)
}

/// An operator was added to the family of an index that knows nothing of it.
pub fn unknown(column: usize, strategy: u16) -> ! {
    Failure::new(
        PgSqlErrorCode::ERRCODE_FEATURE_NOT_SUPPORTED,
        format!("operator class of index column {} cannot be used", column + 1),
    )
    .detail(format!("It has an operator with strategy number {strategy}, which has another meaning for elements of this type."))
    .hint("The operator classes array_ops and jsonb_array_ops show the possible operators.")
    .raise()
}
