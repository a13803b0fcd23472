//! The collector, VACUUM's pass and the sweep: taking entries and nodes out.

pub(crate) mod absorb;
pub(crate) mod collector;
pub(crate) mod fill;
pub(crate) mod merge;
pub(crate) mod moves;
pub(crate) mod nodes;
pub(crate) mod prune;
pub(crate) mod snapshot;
pub(crate) mod sweep;
pub(crate) mod workspace;
