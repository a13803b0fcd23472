//! Shared memory: the area and its pages, the blocks of an index, and the barrier, which tells when
//! memory may be reused.

pub(crate) mod allocator;
pub(crate) mod area;
pub(crate) mod barrier;
pub(crate) mod charge;
pub(crate) mod class;
mod extent;
pub(crate) mod fingers;
pub(crate) mod pins;
pub(crate) mod place;
pub(crate) mod process;
pub(crate) mod tokens;
