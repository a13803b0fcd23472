//! Reading entries in order: cursors, and walks over all leaves.

pub(crate) mod ahead;
pub(crate) mod cursor;
pub(crate) mod place;
pub(crate) mod walk;
