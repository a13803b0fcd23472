//! The order of entries.

use super::bytes::prefix_at;
use core::cmp::Ordering;

/// A heap TID as a number (block << 16 | offset), 48 bits.
pub type Tid = u64;

/// A total order of keys. Entries are ordered by (key, TID).
pub trait KeyOrder {
    /// Byte order: a key before all its extensions. The methods are then never called.
    const MEMCMP: bool;
    /// Returns the abbreviation of a key: if a < b then abbrev(a) <= abbrev(b), and keys that
    /// compare equal have the same. Returns 0 if the order has no abbreviations.
    fn abbrev(&self, key: &[u8]) -> u64;
    /// Compares two keys. It may be slow, unwind, or use the engine. It is called on private
    /// copies, outside latches. Keys that it calls equal are ordered by their bytes: equal bytes
    /// are the same key, other bytes never are. That can be seen under a latch, where no
    /// comparison may be called.
    fn compare(&self, a: &[u8], b: &[u8]) -> Ordering;
    /// Reports that the order contradicts itself, and unwinds. It is called outside latches, when a
    /// search has found no place for its key.
    fn inconsistent(&self) -> ! {
        panic!(
            "no place for a key: the order of the keys contradicts itself, or the index is damaged"
        )
    }
}

/// Compares two keys.
pub(crate) fn compare<O: KeyOrder>(order: &O, a: &[u8], b: &[u8]) -> Ordering {
    if O::MEMCMP {
        // Most differ in their first bytes.
        prefix_at(a, 0).cmp(&prefix_at(b, 0)).then_with(|| a.cmp(b))
    } else {
        order.compare(a, b).then_with(|| a.cmp(b))
    }
}

/// Byte order.
#[derive(Clone, Copy, Debug, Default)]
pub struct Memcmp;

impl KeyOrder for Memcmp {
    const MEMCMP: bool = true;
    fn abbrev(&self, _: &[u8]) -> u64 {
        0
    }
    fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        a.cmp(b)
    }
}
