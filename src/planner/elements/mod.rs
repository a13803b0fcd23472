//! Conditions on element columns (see `key::elements`): what they mean to the planner.

mod predicates;
pub mod rewrite;
mod selectivity;
mod support;
