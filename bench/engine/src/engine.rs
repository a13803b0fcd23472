//! What is measured, and on what.

use crate::keys::Key;

/// A map from keys to TIDs that several threads use.
pub trait Engine<K: Key>: Sized + Sync {
    /// What one thread works with.
    type Thread<'a>: Thread<K>
    where
        Self: 'a;

    /// Empty, with room for `n` entries.
    fn new(n: u64) -> Self;

    /// For the thread with this number; every other one has another number.
    fn thread(&self, number: u32) -> Self::Thread<'_>;

    /// Bottom up from sorted entries. `None` if the engine has no such way.
    fn build(sorted: &[(K, u64)]) -> Option<Self> {
        let _ = sorted;
        None
    }
}

/// Every method is the fastest way the engine's API has for it.
pub trait Thread<K: Key> {
    fn insert(&mut self, key: K, tid: u64);
    fn get(&mut self, key: &K) -> Option<u64>;

    /// Number and sum of all TIDs in key order.
    fn scan(&mut self) -> (u64, u64);
    /// The same in the opposite order.
    fn scan_back(&mut self) -> (u64, u64);
    /// Sum of the TIDs of the first `n` entries from `key` on.
    fn seek(&mut self, key: &K, n: usize) -> u64;

    /// Makes what inserts have left smaller. False if the engine has no such way.
    fn pack(&mut self) -> bool {
        false
    }
}

/// Number and sum of what an iterator gives.
pub fn sum(tids: impl Iterator<Item = u64>) -> (u64, u64) {
    tids.fold((0, 0), |(n, sum), tid| (n + 1, sum.wrapping_add(tid)))
}
