//! TIDs as numbers, without offset bits that no TID of a leaf has.

use super::bits::{mask, width};
use crate::key::order::Tid;

/// Returns a TID without the unused bits of its offset.
pub(super) fn narrow(tid: Tid, obits: usize) -> u64 {
    tid >> 16 << obits | tid & mask(obits)
}

/// Returns the TID with this number.
#[inline]
pub(super) fn expand(number: u64, obits: usize) -> Tid {
    expand_with(number, mask(obits), 16 - obits as u32)
}

/// Does the same with masks for the bits of the offset.
#[inline]
pub(super) fn expand_with(number: u64, offset: u64, unused: u32) -> Tid {
    ((number & !offset) << unused | number & offset) & mask(48)
}

/// Returns the number of bits for the offsets of all these TIDs.
pub(super) fn offset_bits(offsets: u64) -> usize {
    width(offsets & 0xffff)
}
