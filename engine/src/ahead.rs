//! Read-ahead for scans. The next pointers let a scan wait for memory once per leaf; level 1 names
//! the leaves to come, so they can be asked for a few leaves earlier. All of it is a hint.

use crate::area::Ref;
use crate::block::EXACT;
use crate::prefetch;
use crate::root::Index;

/// How many leaves ahead. A distance that grows would undo the effect.
const DISTANCE: usize = 4;

/// Leaves around the scan's place, in order, copied from index nodes.
#[derive(Clone, Default)]
pub(crate) struct Ahead {
    leaves: Vec<Ref>,
    at: usize,
    /// The index node whose leaves come next in the direction of the scan.
    beyond: Ref,
    forward: bool,
}

impl Ahead {
    pub(crate) fn clear(&mut self) {
        self.leaves.clear();
    }

    /// A forward scan is about to read `leaf`. Inside the barrier.
    #[inline]
    pub(crate) fn forward(&mut self, index: Index, leaf: Ref) {
        self.step(index, leaf, true);
    }

    /// A backward scan has found `leaf`.
    #[inline]
    pub(crate) fn backward(&mut self, index: Index, leaf: Ref) {
        self.step(index, leaf, false);
    }

    #[inline]
    fn step(&mut self, index: Index, leaf: Ref, forward: bool) {
        self.at += 1;
        if self.forward != forward || self.leaves.get(self.at) != Some(&leaf) {
            self.load(index, leaf, forward);
        } else if self.at + DISTANCE >= self.leaves.len() && self.beyond != 0 {
            self.extend(index);
        }
        if let Some(&coming) = self.leaves.get(self.at + DISTANCE) {
            prefetch::scan(index.area, coming);
        }
    }

    /// Starts at `leaf`.
    #[cold]
    fn load(&mut self, index: Index, leaf: Ref, forward: bool) {
        self.forward = forward;
        self.leaves.clear();
        self.at = 0;
        self.beyond = index.block(leaf).parent();
        if self.beyond == 0 {
            return;
        }
        self.append(index);
        self.at = self.leaves.iter().position(|&l| l == leaf).unwrap_or(self.leaves.len());
        for &coming in self.leaves.iter().skip(self.at + 1).take(DISTANCE) {
            prefetch::scan(index.area, coming);
        }
    }

    /// Drops what is behind and appends the leaves of the next index node. Between two calls the
    /// scan may have been outside the barrier: then `beyond` is any node, and whatever it says is
    /// only asked for.
    fn extend(&mut self, index: Index) {
        self.leaves.drain(..self.at);
        self.at = 0;
        self.append(index);
    }

    fn append(&mut self, index: Index) {
        let v = index.block(self.beyond).view();
        let start = self.leaves.len();
        let n = v.mask().count_ones() as usize;
        self.leaves.extend((0..n).map(|rank| v.b.child(v.slot(rank)) & !EXACT));
        let neighbour = if self.forward { v.b.next() } else { v.b.prev() };
        if v.dead() || !v.valid() {
            self.leaves.truncate(start);
            self.beyond = 0;
            return;
        }
        if !self.forward {
            self.leaves[start..].reverse();
        }
        self.beyond = neighbour;
        if neighbour != 0 {
            prefetch::node(index.area, neighbour);
        }
    }
}
