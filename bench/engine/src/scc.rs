//! scc's TreeIndex: a B+-tree whose readers take no lock.

use crate::engine::{Engine, Thread, sum};
use scc::{Guard, TreeIndex};

pub struct Scc(TreeIndex<u64, u64>);

impl Engine<u64> for Scc {
    type Thread<'a> = &'a Self;

    fn new(_: u64) -> Self {
        Scc(TreeIndex::new())
    }

    fn thread(&self, _: u32) -> &Self {
        self
    }
}

impl Thread<u64> for &Scc {
    #[inline]
    fn insert(&mut self, key: u64, tid: u64) {
        assert!(self.0.insert_sync(key, tid).is_ok());
    }

    #[inline]
    fn get(&mut self, key: &u64) -> Option<u64> {
        self.0.peek_with(key, |_, tid| *tid)
    }

    fn scan(&mut self) -> (u64, u64) {
        sum(self.0.iter(&Guard::new()).map(|(_, tid)| *tid))
    }

    fn scan_back(&mut self) -> (u64, u64) {
        sum(self.0.iter(&Guard::new()).rev().map(|(_, tid)| *tid))
    }

    #[inline]
    fn seek(&mut self, key: &u64, n: usize) -> u64 {
        sum(self.0.range(*key.., &Guard::new()).take(n).map(|(_, tid)| *tid)).1
    }
}
