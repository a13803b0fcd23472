//! Loops with vector instructions. Each has a portable form, and both give the same result.

pub(crate) mod decode;
pub(crate) mod search;
pub(crate) mod shift_bits;
pub(crate) mod unpack;
