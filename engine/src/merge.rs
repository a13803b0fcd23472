//! Taking sparse nodes out of the structure. Only the collector does, one process at a time.
//!
//! A leaf R is absorbed by its left neighbour B, under both latches and that of the index node M:
//! 1. R's separator leaves level 1. From now on R is found by moving right from B.
//! 2. N.prev = B for R's right neighbour N. Who goes back from N sees that B is not yet N's
//!    neighbour, walks right, and finds R.
//! 3. B gets R's entries, `next` = N and R's range in one exclusive phase. Who has read B before goes
//!    on to R, which still has the same entries; who reads B now goes on to N.
//! 4. R becomes DEAD and leads to B. Who comes to it now (with `next` from before, from N, or with a
//!    remembered version) searches again or moves to B. Nothing leads to R any more but what is held
//!    inside the barrier, so it goes there.
//!
//! R is not absorbed if it is the first child of M (it holds M's low key), or has no separator yet (a
//! promotion is on its way to it), or is on a dirty list. Index nodes are absorbed in the same way;
//! the flat top is their upper level.

use crate::area::Ref;
use crate::block::{Block, DIRTY, EXACT, LEFTMOST, LOWBIG, Latch, SLOTS, WHOLE, keep_slots};
use crate::image::{Entries, Image, Page, full_mask, heap_size};
use crate::key::{common, low_of};
use crate::node::Separator;
use crate::root::Index;
use crate::split::{High, MAX_SKIP, MIN_FREE};
use core::sync::atomic::Ordering::*;

/// Nodes are merged if together they have at most so many entries: a quarter stays free.
const MERGED: usize = SLOTS * 3 / 4;
/// A leaf with so few entries is put on the dirty list.
pub(crate) const SPARSE: usize = SLOTS / 4;
/// An index node with so few separators is absorbed if possible.
const SPARSE_NODE: usize = SLOTS / 8;

/// Private memory of the collector.
pub(crate) struct Workspace(Box<(Entries, Page)>);

impl Workspace {
    pub(crate) fn new(index: &Index) -> Workspace {
        Workspace(Page::with(Entries::of_leaves(index.area, 2)))
    }
}

impl Index {
    /// Merges a leaf that was latched (it may have changed since) with one of its neighbours, if it
    /// is sparse enough.
    pub(crate) fn merge(&self, leaf: Ref, workspace: &mut Workspace) {
        let b = self.block(leaf);
        let Some(latch) = b.latch() else { return };
        if latch.v.mask().count_ones() as usize > MERGED / 2 {
            latch.release();
            return;
        }
        let mut latch = Some(latch);
        while let Some(latched) = latch {
            // Neighbours that were visited while this one was still full.
            latch = if self.absorb_right(latched, leaf, workspace) { b.latch() } else { None };
        }
        // Latches are taken from left to right.
        let prev = b.prev();
        if prev == 0 {
            return;
        }
        if let Some(latch) = self.block(prev).latch() {
            if latch.b().next() == leaf {
                self.absorb_right(latch, prev, workspace);
            } else {
                latch.release();
            }
        }
    }

    /// The latched leaf absorbs its right neighbour if it can; gives the latch up.
    fn absorb_right(&self, latch: Latch, leaf: Ref, workspace: &mut Workspace) -> bool {
        let b = latch.b();
        let right = b.next();
        let n = latch.v.mask().count_ones() as usize;
        if right == 0 {
            latch.release();
            return false;
        }
        // Not DEAD: that takes the latch of its left neighbour.
        let Some(right_latch) = self.block(right).latch() else {
            latch.release();
            return false;
        };
        let r = right_latch.b();
        let both = n + right_latch.v.mask().count_ones() as usize;
        if both > MERGED || r.has(DIRTY) || r.parent() == 0 {
            right_latch.release();
            latch.release();
            return false;
        }
        self.absorb_latched(latch, leaf, right_latch, right, workspace)
    }

    fn absorb_latched(
        &self,
        latch: Latch,
        leaf: Ref,
        right_latch: Latch,
        right: Ref,
        workspace: &mut Workspace,
    ) -> bool {
        let (b, r) = (latch.b(), right_latch.b());
        let (entries, page) = &mut *workspace.0;
        entries.clear();
        entries.load(&latch);
        entries.load(&right_latch);
        let both = entries.len();
        let next = r.next();
        let mut low_key = Vec::new();
        let mut high_key = Vec::new();
        let low = self.low(b, &mut low_key);
        // Under R's latch N is not DEAD.
        let high = match next {
            0 => None,
            next => low_of(self.area, next, &mut high_key),
        };
        let memcmp = self.memcmp();
        let skip = match low {
            Some(low) if memcmp => {
                let now = match both {
                    0 => 0,
                    both => common(low.key, entries.get(both - 1).key).min(b.skip()),
                };
                let ever = high.map_or(0, |_| common(low.key, &high_key));
                now.max(ever).min(MAX_SKIP)
            }
            _ => 0,
        };
        let size =
            low.map_or(0, |low| low.size(skip)) + heap_size(entries.range(0..both), skip, !memcmp);
        let found =
            if size + MIN_FREE <= b.heap_size() { self.separator_latched(right) } else { None };
        let Some((node_latch, rank)) = found else {
            right_latch.release();
            latch.release();
            return false;
        };
        let flags = b.flags() & LEFTMOST | if memcmp { 0 } else { WHOLE };
        let image = page.block();
        entries.write(Image::new(image, b.class(), flags, low, skip), 0..both, 0);
        let separators = self.remove_separator(node_latch, rank);
        let node = r.parent();
        if next != 0 {
            self.block(next).set_prev(leaf);
        }
        latch.exclude();
        b.copy_from(image, latch.other());
        b.set_flag(WHOLE, flags & WHOLE != 0);
        match high {
            None => {
                b.set_next(0);
                b.set_high(u64::MAX);
            }
            Some((_, with_tid)) => {
                let high = High::of(memcmp, &high_key, with_tid, r.high());
                high.set(b, next, low.map_or(&[], |low| low.key));
            }
        }
        latch.finish();
        right_latch.kill(leaf);

        let root = self.shared();
        let _ = root.last.compare_exchange(right, 0, AcqRel, Relaxed);
        if r.has(LOWBIG) {
            self.unref_chunk(r.low_chunk());
        }
        self.retire(right);
        root.counters.leaves.fetch_sub(1, Relaxed);
        root.counters.merges.fetch_add(1, Relaxed);
        if separators <= SPARSE_NODE {
            self.absorb_node(node);
        }
        true
    }

    /// The index node with the separator of a latched leaf, latched, and the separator's rank there,
    /// unless it is the first.
    fn separator_latched(&self, leaf: Ref) -> Option<(Latch, usize)> {
        loop {
            let node = self.block(leaf).parent();
            // DEAD: its children are about to have another parent.
            let Some(latch) = self.block(node).latch() else { continue };
            if self.block(leaf).parent() != node {
                latch.release();
                continue;
            }
            let n = latch.v.mask().count_ones() as usize;
            let rank = (1..n).find(|&rank| latch.b().child(latch.v.slot(rank)) & !EXACT == leaf);
            return match rank {
                Some(rank) => Some((latch, rank)),
                None => {
                    latch.release();
                    None
                }
            };
        }
    }

    /// Returns how many are left.
    fn remove_separator(&self, latch: Latch, rank: usize) -> usize {
        let b = latch.b();
        let mask = latch.v.mask();
        let n = mask.count_ones() as usize;
        let keep = mask & !(1 << latch.v.slot(rank));
        b.set_perm(latch.other(), &keep_slots(&b.perm(latch.v.side()), n, keep).0);
        b.set_mask(latch.other(), keep);
        latch.publish();
        n - 1
    }

    /// An index node with few separators is absorbed by its left neighbour, if there is room.
    fn absorb_node(&self, node: Ref) {
        let left = self.block(node).prev();
        if left == 0 {
            return;
        }
        let Some(latch) = self.block(left).latch() else { return };
        let b = latch.b();
        let right_latch = if b.next() == node { self.block(node).latch() } else { None };
        let Some(right_latch) = right_latch else {
            latch.release();
            return;
        };
        let m = right_latch.b();
        let both = (latch.v.mask().count_ones() + right_latch.v.mask().count_ones()) as usize;
        if both > MERGED {
            right_latch.release();
            latch.release();
            return;
        }
        let kept = latch.v.mask().count_ones() as usize;
        let children: Vec<(Ref, u64)> = [&latch.v, &right_latch.v]
            .iter()
            .flat_map(|v| (0..v.mask().count_ones() as usize).map(|rank| (v.b, v.slot(rank))))
            .map(|(b, slot)| (b.child(slot) & !EXACT, b.prefix(slot)))
            .collect();
        let next = m.next();
        let low = self.node_low(left);
        let high = (next != 0).then(|| Separator { abbrev: m.high(), ..self.node_low(next) });
        let mut page = NodePage([0; 1024]);
        // SAFETY: aligned, of the size of an index node, and alive until the end of this function.
        let image = unsafe { Block::private(page.0.as_mut_ptr()) };
        self.fill_node(image, &children, &low, high.as_ref());
        if next != 0 {
            self.block(next).set_prev(left);
        }
        latch.exclude();
        b.set_skip(image.skip());
        for slot in 0..both {
            b.set_prefix(slot, image.prefix(slot));
            b.set_child(slot, image.child(slot));
        }
        b.set_perm(latch.other(), &image.perm(0));
        b.set_mask(latch.other(), full_mask(both));
        b.set_next(next);
        match &high {
            Some(high) => self.set_node_high(b, &low.key, high),
            None => b.set_high(u64::MAX),
        }
        let latch = latch.finish_latched();
        for &(child, _) in &children {
            self.block(child).set_parent(left);
        }
        latch.release();
        let boundary = children[kept].0;
        right_latch.kill(left);
        let root = self.shared();
        root.top_state.nodes.fetch_sub(1, Relaxed);
        root.counters.merges.fetch_add(1, Relaxed);
        // The flat top still leads to it.
        root.dead_nodes.push(self.area, node);
        // No longer a first child: it can be absorbed now.
        if let Some(latch) = self.block(boundary).latch() {
            if latch.v.mask().count_ones() as usize <= SPARSE {
                self.make_dirty(&latch, boundary);
            }
            latch.release();
        }
    }

    /// Retires DEAD index nodes after publishing a flat top without them.
    pub(crate) fn retire_nodes(&self) {
        let root = self.shared();
        let mut dead = root.dead_nodes.take();
        if dead.head == 0 {
            return;
        }
        if !self.rebuild_top() {
            root.dead_nodes.splice(self.area, dead);
            return;
        }
        while let Some(node) = dead.pop(self.area) {
            self.retire(node);
        }
    }
}

#[repr(C, align(64))]
struct NodePage([u8; 1024]);
