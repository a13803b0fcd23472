//! Element columns: an array or jsonb column whose elements are the keys.
//!
//! What belongs to them stands at several heights: [`index`] says which indexes have some, [`strategy`] has their operators, [`key`] and [`json`] make keys, [`quals`] and
//! [`streams`] serve scans, [`rewrite`], [`predicates`], [`selectivity`] and [`support`] serve the planner.

pub mod index;
mod json;
pub mod key;
mod predicates;
pub mod quals;
pub mod rewrite;
mod selectivity;
pub mod strategy;
pub mod streams;
mod support;
mod tids;
