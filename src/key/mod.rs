//! Keys: rows of an index as byte strings whose order is the index order.
//!
//! ```text
//! key     = segment of each key column, segment of each INCLUDE column, payload
//! segment = marker byte, body            (see `codec`; inverted for DESC columns)
//! payload = what the segments cannot give back bit for bit (scale of a numeric, -0.0, ...)
//! ```
//! The payload is empty for canonical values. Equal rows have equal keys, so (key, TID) names an
//! index entry. Whether a value is canonical never depends on a type modifier: `ALTER TABLE ...
//! TYPE` may change the modifier of an index without rebuilding it.
//!
//! A column whose order has no byte encoding (text under most collations) is stored raw and
//! compared by its operator class. [`KeyRef`] then orders the index, instead of memcmp. Search keys
//! are whole segments, optionally followed by [`SENTINEL`], "after everything that starts with
//! this".

pub mod abbreviate;
pub mod bound;
pub mod buckets;
pub mod codec;
pub mod collation;
pub mod column;
pub mod columns;
mod comparator;
mod datetime;
pub mod datum;
pub mod desc;
mod distribute;
pub mod elements;
mod inet;
pub mod numeric;
pub mod plain;
mod reader;
pub mod refuse;
pub mod row;
mod scratch;
pub mod sort;
mod strcoll;
#[cfg(test)]
mod tests;

pub use bound::{Bounds, Edge, Interval};
pub use codec::{EMPTY, NULL_ELEMENT, SENTINEL};
pub use desc::{KeyDesc, KeyRef};
