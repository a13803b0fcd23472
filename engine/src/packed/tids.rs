//! TIDs as numbers without the bits of the offset that none of a leaf has.

use super::bits::{mask, width};
use crate::key::order::Tid;

/// A TID without the bits of the offset that no TID has.
pub(super) fn narrow(tid: Tid, obits: usize) -> u64 {
    tid >> 16 << obits | tid & mask(obits)
}

/// The TID with this number.
#[inline]
pub(super) fn expand(number: u64, obits: usize) -> Tid {
    expand_with(number, mask(obits), 16 - obits as u32)
}

/// The same, of what belongs to the bits of the offset.
#[inline]
pub(super) fn expand_with(number: u64, offset: u64, unused: u32) -> Tid {
    ((number & !offset) << unused | number & offset) & mask(48)
}

/// Do these bits suffice for the offsets of all these TIDs?
pub(super) fn offset_bits(offsets: u64) -> usize {
    width(offsets & 0xffff)
}
