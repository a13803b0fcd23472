//! What is measured, and on what.

/// Keys looked up together.
pub const GROUP: usize = 16;

/// A map from 8-byte keys to TIDs. Every method is the fastest way the engine's API has for it.
pub trait Engine: Sized {
    /// Empty, with room for `n` entries.
    fn new(n: u64) -> Self;
    fn insert(&mut self, key: u64, tid: u64);
    fn get(&mut self, key: u64) -> Option<u64>;

    /// How many of the keys are there.
    fn get_group(&mut self, keys: &[u64; GROUP]) -> usize {
        keys.iter().filter(|&&key| self.get(key).is_some()).count()
    }

    /// Number and sum of all TIDs in key order.
    fn scan(&mut self) -> (u64, u64);
    /// The same in the opposite order.
    fn scan_back(&mut self) -> (u64, u64);
    /// Sum of the TIDs of the first `n` entries from `key` on.
    fn seek(&mut self, key: u64, n: usize) -> u64;

    /// Bottom up from sorted entries. `None` if the engine has no such way.
    fn build(sorted: &[(u64, u64)]) -> Option<Self> {
        let _ = sorted;
        None
    }
}
