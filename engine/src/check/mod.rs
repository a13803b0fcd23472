//! What an index says of itself, and whether it is right.

pub(crate) mod stats;
pub(crate) mod verify;
