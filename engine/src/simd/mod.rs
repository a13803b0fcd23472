//! Loops that the processor does several at once. Each has a portable form, and both say the same.

pub(crate) mod decode;
pub(crate) mod search;
pub(crate) mod shift_bits;
pub(crate) mod unpack;
