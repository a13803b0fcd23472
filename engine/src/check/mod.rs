//! Statistics and checks of an index.

pub(crate) mod stats;
pub(crate) mod verify;
