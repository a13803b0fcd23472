//! crossbeam-skiplist: a lock-free skiplist with a node per entry.

use crate::engine::Engine;
use crossbeam_skiplist::SkipMap;

pub struct Crossbeam(SkipMap<u64, u64>);

impl Engine for Crossbeam {
    fn new(_: u64) -> Self {
        Crossbeam(SkipMap::new())
    }

    #[inline]
    fn insert(&mut self, key: u64, tid: u64) {
        self.0.insert(key, tid);
    }

    #[inline]
    fn get(&mut self, key: u64) -> Option<u64> {
        self.0.get(&key).map(|entry| *entry.value())
    }

    fn scan(&mut self) -> (u64, u64) {
        self.0.iter().fold((0, 0), |(n, sum), e| (n + 1, sum.wrapping_add(*e.value())))
    }

    fn scan_back(&mut self) -> (u64, u64) {
        self.0.iter().rev().fold((0, 0), |(n, sum), e| (n + 1, sum.wrapping_add(*e.value())))
    }

    #[inline]
    fn seek(&mut self, key: u64, n: usize) -> u64 {
        self.0.range(key..).take(n).fold(0, |sum, e| sum.wrapping_add(*e.value()))
    }
}
