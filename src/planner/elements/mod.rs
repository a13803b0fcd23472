//! Conditions on element columns (see `key::elements`) in the planner.

mod predicates;
pub mod rewrite;
mod selectivity;
mod support;
