//! ferntree: a B+-tree with optimistic lock coupling.

use crate::engine::{Engine, Thread};
use std::ops::Bound::{Included, Unbounded};

pub struct Ferntree(ferntree::Tree<u64, u64>);

impl Engine<u64> for Ferntree {
    type Thread<'a> = &'a Self;

    fn new(_: u64) -> Self {
        Ferntree(ferntree::Tree::new())
    }

    fn thread(&self, _: u32) -> &Self {
        self
    }
}

impl Thread<u64> for &Ferntree {
    #[inline]
    fn insert(&mut self, key: u64, tid: u64) {
        self.0.insert(key, tid);
    }

    #[inline]
    fn get(&mut self, key: &u64) -> Option<u64> {
        self.0.get_optimistic(key)
    }

    fn scan(&mut self) -> (u64, u64) {
        let (mut n, mut sum) = (0, 0u64);
        let mut iter = self.0.raw_iter();
        iter.seek_to_first();
        loop {
            let more = iter.for_each_in_leaf(|_, tid| {
                n += 1;
                sum = sum.wrapping_add(*tid);
            });
            // Only `next` steps into the next leaf.
            match iter.next() {
                Some((_, tid)) if more => {
                    n += 1;
                    sum = sum.wrapping_add(*tid);
                }
                _ => return (n, sum),
            }
        }
    }

    fn scan_back(&mut self) -> (u64, u64) {
        let (mut n, mut sum) = (0, 0u64);
        let mut iter = self.0.raw_iter();
        iter.seek_to_last();
        while let Some((_, tid)) = iter.prev() {
            n += 1;
            sum = sum.wrapping_add(*tid);
        }
        (n, sum)
    }

    #[inline]
    fn seek(&mut self, key: &u64, n: usize) -> u64 {
        let mut range = self.0.range(Included(key), Unbounded);
        let mut sum = 0u64;
        for _ in 0..n {
            let Some((_, tid)) = range.next() else { break };
            sum = sum.wrapping_add(*tid);
        }
        sum
    }
}
