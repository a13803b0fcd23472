//! Element columns: an array or a document that has one entry per distinct element.
//!
//! ```text
//! row (a, {y,x,y}, b)  ->  keys (a, x, b), (a, y, b)
//! ```
//! A row without elements has one key with a placeholder in their place, so that every row is in
//! the index. The placeholder of `{}` is `key::EMPTY`, that of a NULL among the elements
//! `key::NULL_ELEMENT`. A column that is NULL has the marker of NULL. They sort behind all
//! elements.
//!
//! Strings are kept in byte order whatever their collation: equality and prefixes need no other,
//! and bytes are compared many times faster. Only a range of strings depends on the collation; it
//! is answered by the operator alone, unless the collation's order is that of the bytes.
//!
//! No value is read back from an index with an element column: keys have no payload, and there are
//! no INCLUDE columns.

pub mod column;
pub mod index;
pub mod json;
pub mod range;
pub mod segment;
pub mod source;
pub mod strategy;
