//! The standard library's B-tree behind a read-write lock.

use crate::engine::{Engine, Thread, sum};
use parking_lot::RwLock;
use std::collections::BTreeMap;

pub struct Locked(RwLock<BTreeMap<u64, u64>>);

impl Engine<u64> for Locked {
    type Thread<'a> = &'a Self;

    fn new(_: u64) -> Self {
        Locked(RwLock::new(BTreeMap::new()))
    }

    fn thread(&self, _: u32) -> &Self {
        self
    }
}

impl Thread<u64> for &Locked {
    #[inline]
    fn insert(&mut self, key: u64, tid: u64) {
        self.0.write().insert(key, tid);
    }

    #[inline]
    fn get(&mut self, key: &u64) -> Option<u64> {
        self.0.read().get(key).copied()
    }

    fn scan(&mut self) -> (u64, u64) {
        sum(self.0.read().values().copied())
    }

    fn scan_back(&mut self) -> (u64, u64) {
        sum(self.0.read().values().rev().copied())
    }

    #[inline]
    fn seek(&mut self, key: &u64, n: usize) -> u64 {
        sum(self.0.read().range(key..).take(n).map(|(_, tid)| *tid)).1
    }
}
