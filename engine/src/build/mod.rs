//! Building an index bottom-up.

pub(crate) mod adopt;
pub(crate) mod builder;
