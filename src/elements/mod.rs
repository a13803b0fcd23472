//! Element columns: an array or jsonb column whose elements are the keys.
//!
//! What belongs to them stands at several heights: [`key`] and [`json`] make keys, [`quals`] and
//! [`streams`] serve scans, [`rewrite`], [`predicates`] and [`selectivity`] serve the planner.

mod json;
pub mod key;
mod predicates;
pub mod quals;
pub mod rewrite;
mod selectivity;
pub mod streams;
mod tids;
