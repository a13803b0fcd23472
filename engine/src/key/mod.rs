//! Keys, apart from where they are stored: their order, their bytes, and copies of them.

pub(crate) mod buffer;
pub(crate) mod bytes;
pub(crate) mod order;
