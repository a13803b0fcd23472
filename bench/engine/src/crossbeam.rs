//! crossbeam-skiplist: a lock-free skiplist with a node per entry.

use crate::engine::{Engine, Thread, sum};
use crossbeam_skiplist::SkipMap;

pub struct Crossbeam(SkipMap<u64, u64>);

impl Engine<u64> for Crossbeam {
    type Thread<'a> = &'a Self;

    fn new(_: u64) -> Self {
        Crossbeam(SkipMap::new())
    }

    fn thread(&self, _: u32) -> &Self {
        self
    }
}

impl Thread<u64> for &Crossbeam {
    #[inline]
    fn insert(&mut self, key: u64, tid: u64) {
        self.0.insert(key, tid);
    }

    #[inline]
    fn get(&mut self, key: &u64) -> Option<u64> {
        self.0.get(key).map(|entry| *entry.value())
    }

    fn scan(&mut self) -> (u64, u64) {
        sum(self.0.iter().map(|e| *e.value()))
    }

    fn scan_back(&mut self) -> (u64, u64) {
        sum(self.0.iter().rev().map(|e| *e.value()))
    }

    #[inline]
    fn seek(&mut self, key: &u64, n: usize) -> u64 {
        sum(self.0.range(*key..).take(n).map(|e| *e.value())).1
    }
}
