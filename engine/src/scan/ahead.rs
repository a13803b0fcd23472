//! Read-ahead for scans. By `next` pointers alone a scan waits for memory once per leaf. Level 1
//! names the leaves to come, so a scan can prefetch them a few leaves earlier. All of it is a hint.

use crate::index::root::Index;
use crate::memory::place::Ref;
use crate::node::block::EXACT;
use crate::node::prefetch;

/// Number of leaves ahead whose heads are prefetched, and later the entries that a head tells of. A
/// distance that grows would undo the effect.
const FAR: usize = 5;
const NEAR: usize = 2;

/// Leaves around the place of a scan, in order, copied from index nodes.
#[derive(Clone, Default)]
pub(crate) struct Ahead {
    leaves: Vec<Ref>,
    at: usize,
    /// The index node whose leaves come next in the direction of the scan.
    beyond: Ref,
    forward: bool,
}

/// Returns up to `most` leaves in order, as level 1 names them. Forward: the leaves behind `leaf`.
/// Backward: `leaf` and the leaves before it. Returns None if level 1 changes. The caller is still
/// in the section in which it found `leaf`, so no leaf is reused.
pub(crate) fn leaves(index: Index, leaf: Ref, forward: bool, most: usize) -> Option<Vec<Ref>> {
    let b = index.block(leaf);
    let mut all = Ahead { forward, beyond: b.parent(), ..Ahead::default() };
    if all.beyond == 0 {
        // Just split, and not in level 1 yet, or left so by an ERROR: its neighbour has to do.
        let mut all = if forward { vec![b.next()] } else { vec![leaf, b.prev()] };
        all.retain(|&leaf| leaf != 0);
        all.truncate(most);
        return Some(all);
    }
    all.append(index);
    let at = all.leaves.iter().position(|&l| l == leaf)? + usize::from(forward);
    // Ends: each index node is behind the one before, in one direction.
    while all.leaves.len() < at + most && all.beyond != 0 {
        all.append(index);
    }
    all.leaves.truncate(at + most);
    Some(all.leaves.split_off(at))
}

impl Ahead {
    pub(crate) fn clear(&mut self) {
        self.leaves.clear();
        self.beyond = 0;
    }

    /// Prefetches for a forward scan that is about to read `leaf`. Inside the barrier.
    #[inline]
    pub(crate) fn forward(&mut self, index: Index, leaf: Ref, keys: bool) {
        self.step(index, leaf, true, keys);
    }

    /// Prefetches for a backward scan that has found `leaf`.
    #[inline]
    pub(crate) fn backward(&mut self, index: Index, leaf: Ref, keys: bool) {
        self.step(index, leaf, false, keys);
    }

    #[inline]
    fn step(&mut self, index: Index, leaf: Ref, forward: bool, keys: bool) {
        self.at += 1;
        if self.forward != forward || self.leaves.get(self.at) != Some(&leaf) {
            self.load(index, leaf, forward);
        } else if self.at + FAR >= self.leaves.len() && self.beyond != 0 {
            self.extend(index);
        }
        if let Some(&coming) = self.leaves.get(self.at + FAR) {
            prefetch::scan_head(index.area, coming);
        }
        if let Some(&coming) = self.leaves.get(self.at + NEAR) {
            prefetch::scan_entries(index.block(coming), keys);
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
        // Nothing of them is here that could tell what is used.
        for (i, &coming) in self.leaves.iter().skip(self.at + 1).take(FAR).enumerate() {
            match i {
                ..NEAR => prefetch::scan(index.area, coming),
                _ => prefetch::scan_head(index.area, coming),
            }
        }
    }

    /// Drops leaves that the scan has passed, and appends those of the next index node. Between two
    /// calls the scan may have been outside the barrier. Then `beyond` may be any node, and its
    /// leaves are only prefetched.
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
        // An old one may have become a leaf when the area was full.
        if v.dead() || v.b.level() != 1 || !v.valid() {
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
