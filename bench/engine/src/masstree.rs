//! masstree: a trie of B+-trees over byte strings, as the paper of that name has it.

use crate::engine::{Engine, Thread};
use crate::keys::Key;
use masstree::{MassTree, RangeBound};
use seize::LocalGuard;

pub struct Masstree(MassTree<u64>);

/// The guard is held throughout: nothing that is measured removes.
pub struct Guarded<'a> {
    tree: &'a MassTree<u64>,
    guard: LocalGuard<'a>,
}

impl<K: Key> Engine<K> for Masstree {
    type Thread<'a> = Guarded<'a>;

    fn new(_: u64) -> Self {
        Masstree(MassTree::new())
    }

    fn thread(&self, _: u32) -> Guarded<'_> {
        Guarded { tree: &self.0, guard: self.0.guard() }
    }
}

const ALL: RangeBound<'_> = RangeBound::Unbounded;

impl<K: Key> Thread<K> for Guarded<'_> {
    #[inline]
    fn insert(&mut self, key: K, tid: u64) {
        self.tree.insert_with_guard(key.bytes().as_ref(), tid, &self.guard);
    }

    #[inline]
    fn get(&mut self, key: &K) -> Option<u64> {
        self.tree.get_with_guard(key.bytes().as_ref(), &self.guard)
    }

    fn scan(&mut self) -> (u64, u64) {
        let mut sum = 0u64;
        let add = |tid| {
            sum = sum.wrapping_add(tid);
            true
        };
        (self.tree.scan_values(ALL, ALL, add, &self.guard) as u64, sum)
    }

    fn scan_back(&mut self) -> (u64, u64) {
        let mut sum = 0u64;
        let add = |tid| {
            sum = sum.wrapping_add(tid);
            true
        };
        (self.tree.scan_values_rev(ALL, ALL, add, &self.guard) as u64, sum)
    }

    #[inline]
    fn seek(&mut self, key: &K, n: usize) -> u64 {
        let (mut left, mut sum) = (n, 0u64);
        let add = |tid| {
            sum = sum.wrapping_add(tid);
            left -= 1;
            left > 0
        };
        let key = key.bytes();
        self.tree.scan_values(RangeBound::Included(key.as_ref()), ALL, add, &self.guard);
        sum
    }
}
