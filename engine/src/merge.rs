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
use crate::block::{
    Block, CAPACITY, DIRTY, EXACT, LEFTMOST, LOWBIG, Latch, PACKED, View, WHOLE, full_mask,
    keep_slots,
};
use crate::key::Retry;
use crate::leaf::{LeafWriter, heap_size};
use crate::mutants::mutant;
use crate::node::Children;
use crate::pack::{MOST, Of, arrange_shaped};
use crate::packed::Image;
use crate::range::{Low, LowBuf, MAX_SKIP, Right, Span};
use crate::root::Index;
use crate::split::MIN_FREE;
use crate::stop::stop;
use crate::workspace::{Workspace, undisturbed};
use core::sync::atomic::Ordering::*;

/// Nodes are merged if together they have at most so many entries: a quarter stays free.
const MERGED: usize = CAPACITY * 3 / 4;
/// A leaf with so few entries is put on the dirty list.
pub(crate) const SPARSE: usize = CAPACITY / 4;
/// An index node with so few separators is absorbed if possible, or absorbs its neighbour.
const SPARSE_NODE: usize = CAPACITY.div_ceil(8);
/// What a leaf becomes that absorbs its right neighbour.
pub(crate) struct Absorbed<'a> {
    pub(crate) content: Content<'a>,
    pub(crate) low: Low<'a>,
    pub(crate) skip: usize,
    pub(crate) range_end: Right,
    /// The leaf behind the neighbour.
    pub(crate) next: Ref,
    /// How many dead entries were copied.
    pub(crate) ndead: usize,
}

pub(crate) enum Content<'a> {
    Packed(&'a Image),
    /// With these flags.
    Slots(Block, u8),
}

impl Index {
    /// Merges a leaf with its neighbours, if it is sparse enough.
    pub(crate) fn merge(&self, leaf: Ref, workspace: &mut Workspace) {
        let b = self.block(leaf);
        let v = b.view();
        if v.dead() || !v.is_sparse(MERGED / 2) {
            return;
        }
        // Neighbours that were visited while this one was still full.
        while self.absorb_right(leaf, workspace) {}
        let prev = b.prev();
        if prev != 0 && self.block(prev).next() == leaf {
            self.absorb_right(prev, workspace);
        }
    }

    /// The leaf absorbs its right neighbour if it can.
    fn absorb_right(&self, leaf: Ref, workspace: &mut Workspace) -> bool {
        undisturbed(|| self.try_absorb_right(leaf, workspace))
    }

    /// Everything is prepared from copies; the latches are given only if nothing has changed since.
    pub(crate) fn try_absorb_right(
        &self,
        leaf: Ref,
        workspace: &mut Workspace,
    ) -> Result<bool, Retry> {
        let memcmp = self.memcmp();
        let v = self.block(leaf).view();
        let b = v.b;
        let right = b.next();
        if v.dead() || right == 0 {
            return Ok(false);
        }
        if !v.valid() {
            return Err(Retry);
        }
        let rv = self.block(right).view();
        let r = rv.b;
        let both = v.entries()? + rv.entries()?;
        // A packed one takes part: then what comes of it is packed, unless it is nothing.
        let packed = (b.has(PACKED) || r.has(PACKED)) && both > 0;
        if !packed && both > MERGED || self.stays(r) {
            return Ok(false);
        }
        let pair = workspace.load(leaf, &v, &rv)?;
        let [low, high] = &mut core::array::from_fn(|_| LowBuf::new(self.area));
        if !low.copy(&v) {
            return Err(Retry);
        }
        let (next, number, low) = (r.next(), r.high(), low.low());
        let high = match next {
            0 => None,
            next => Some(Low { abbrev: number, ..high.load(next).ok_or(Retry)? }),
        };
        if rv.dead() || !rv.valid() {
            return Err(Retry);
        }
        let (both, entries) = (pair.entries.len(), pair.entries);
        let skip = if packed {
            self.skip_of(&low, high.as_ref())
        } else if !memcmp || low.is_first() {
            0
        } else {
            // No more than now, unless the range allows it.
            let last = if both == 0 { &[][..] } else { entries.get(both - 1).key };
            let high = high.map(|high| high.key);
            Span { likely: b.skip(), low: low.key, last, high }.skip(MAX_SKIP)
        };
        let content = if packed {
            if !pair.packable || both > MOST {
                return Ok(false);
            }
            let (all, shape, image) = (Of(entries, 0..both), pair.shape, pair.image);
            shape.extend(&all, both);
            let size = shape.size(&all, low.size(skip), b.size());
            if size > b.size() * 75 / 100
                || !arrange_shaped(image, &all, shape, &low, high.as_ref(), skip, b.class())
            {
                return Ok(false);
            }
            Content::Packed(image)
        } else {
            let size = low.size(skip) + heap_size(entries.range(0..both), skip, !memcmp);
            if size + MIN_FREE > b.heap_size() {
                return Ok(false);
            }
            let flags = b.flags() & LEFTMOST | if memcmp { 0 } else { WHOLE };
            let content = pair.page.block();
            entries.write(LeafWriter::new(content, b.class(), flags, low, skip), 0..both, 0);
            Content::Slots(content, flags)
        };
        let range_end = Right::new(memcmp, low.key, skip, high.as_ref());
        let ndead = entries.ndead();
        let absorbed = Absorbed { content, low, skip, range_end, next, ndead };
        Ok(self.absorb((leaf, v), (right, rv), absorbed)?.is_some())
    }

    /// A leaf on a list would lead that astray, and one whose promotion is on its way has no separator.
    fn stays(&self, r: Block) -> bool {
        let listed = r.has(DIRTY) && !mutant!("a leaf on a list is not merged");
        listed || r.parent() == 0 && !mutant!("a leaf without separator is not merged")
    }

    /// The left leaf becomes what was prepared from these states; returns its version then. Nothing is done if it must
    /// not be.
    pub(crate) fn absorb(
        &self,
        (leaf, v): (Ref, View),
        (right, rv): (Ref, View),
        absorbed: Absorbed<'_>,
    ) -> Result<Option<u64>, Retry> {
        let Absorbed { content, low, skip, range_end, next, ndead } = absorbed;
        let (b, r) = (v.b, rv.b);
        stop!("merge: built");
        // From left to right. R is not DEAD: that takes the latch of its left neighbour.
        let latch = v.latch().ok_or(Retry)?;
        stop!("merge: left latched");
        let Some(right_latch) = rv.latch() else {
            latch.release();
            return Err(Retry);
        };
        stop!("merge: right latched");
        let marked = (b.ndead() + r.ndead()) as usize != ndead
            && !mutant!("a merge looks again for what was marked");
        let first = usize::from(!mutant!("the first child is not merged"));
        // Only slots could tell them when entries were born.
        let snapshots = matches!(content, Content::Packed(_))
            && !self.shared().snapshots.quiet()
            && !mutant!("a merge into a packed leaf looks for snapshots");
        let stays = marked || self.stays(r) || snapshots;
        let separator = if stays { None } else { self.separator_latched(right, first) };
        let Some((node_latch, rank)) = separator else {
            right_latch.release();
            latch.release();
            return if marked { Err(Retry) } else { Ok(None) };
        };
        stop!("merge: separator latched");
        let separators = self.remove_separator(node_latch, rank);
        stop!("merge: separator removed");
        let node = r.parent();
        if next != 0 {
            if !mutant!("a merge tells the right neighbour") {
                self.block(next).set_prev(leaf);
            }
            stop!("merge: prev leads to left");
        }
        let latch = match content {
            Content::Packed(image) => latch.pack(image, &low, skip, &range_end, next),
            Content::Slots(content, flags) => {
                latch.exclude();
                b.copy_from(content, latch.other());
                b.set_flag(WHOLE, flags & WHOLE != 0);
                b.set_flag(PACKED, false);
                range_end.store(b, next);
                stop!("merge: left excluded");
                latch.finish_latched()
            }
        };
        let ver = latch.v.ver;
        latch.release();
        stop!("merge: left finished");
        if mutant!("a leaf that was merged is dead") {
            right_latch.release();
        } else {
            right_latch.kill(leaf);
        }
        stop!("merge: right dead");

        let root = self.shared();
        if !mutant!("a merge forgets where inserts append") {
            let _ = root.last.compare_exchange(right, 0, AcqRel, Relaxed);
        }
        stop!("merge: append forgotten");
        if r.has(LOWBIG) {
            self.unref_chunk(r.low_chunk());
        }
        self.retire(right);
        root.counters.leaves.fetch_sub(1, Relaxed);
        root.counters.merges.fetch_add(1, Relaxed);
        if separators <= SPARSE_NODE {
            self.merge_node(node);
        }
        Ok(Some(ver))
    }

    /// The index node with the separator of a latched leaf, latched, and the separator's rank there,
    /// unless it is before `first`.
    pub(crate) fn separator_latched(&self, leaf: Ref, first: usize) -> Option<(Latch, usize)> {
        loop {
            let node = self.block(leaf).parent();
            // DEAD: its children are about to have another parent.
            let Some(latch) = self.block(node).latch() else { continue };
            if self.block(leaf).parent() != node {
                latch.release();
                continue;
            }
            let n = latch.v.mask().count_ones() as usize;
            let rank =
                (first..n).find(|&rank| latch.b().child(latch.v.slot(rank)) & !EXACT == leaf);
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
        let keep = match mutant!("a merge removes the separator") {
            true => mask,
            false => mask & !(1 << latch.v.slot(rank)),
        };
        b.set_perm(latch.other(), &keep_slots(&b.perm(latch.v.side()), n, keep).0);
        b.set_mask(latch.other(), keep);
        latch.publish();
        n - 1
    }

    /// An index node with few separators is absorbed by its left neighbour, or absorbs its right one:
    /// of neighbours that both become sparse, the first finds the second still full, so the second has
    /// to look back, from whatever side it came.
    fn merge_node(&self, node: Ref) {
        let left = self.block(node).prev();
        let absorbed = left != 0 && undisturbed(|| self.try_absorb_node(left, Some(node)));
        if !absorbed {
            while undisturbed(|| self.try_absorb_node(node, None)) {}
        }
    }

    /// The index node `left` absorbs its right neighbour (which is to be `wanted`) if there is room. As
    /// with leaves, prepared from copies.
    fn try_absorb_node(&self, left: Ref, wanted: Option<Ref>) -> Result<bool, Retry> {
        let v = self.block(left).view();
        let b = v.b;
        let node = b.next();
        if v.dead() || node == 0 || wanted.is_some_and(|wanted| wanted != node) {
            return Ok(false);
        }
        if !v.valid() {
            return Err(Retry);
        }
        let mv = self.block(node).view();
        let m = mv.b;
        let (kept, more) = (v.mask().count_ones() as usize, mv.mask().count_ones() as usize);
        if kept + more > MERGED {
            return Ok(false);
        }
        let mut children = Children::new();
        children.load(&v, 0..kept);
        children.load(&mv, 0..more);
        let (next, number) = (m.next(), m.high());
        if mv.dead() || !v.valid() || !mv.valid() {
            return Err(Retry);
        }
        let [low, high] = &mut core::array::from_fn(|_| LowBuf::new(self.area));
        let low = low.load(left).ok_or(Retry)?;
        let high = match next {
            0 => None,
            next => Some(Low { abbrev: number, ..high.load(next).ok_or(Retry)? }),
        };
        let mut page = NodePage([0; 1024]);
        // SAFETY: aligned, of the size of an index node, and alive until the end of this function.
        let content = unsafe { Block::private(page.0.as_mut_ptr()) };
        self.fill_node(content, &children, &low, b.skip(), next, high.as_ref())?;
        let range_end = Right::new(self.memcmp(), low.key, content.skip(), high.as_ref());

        let latch = v.latch().ok_or(Retry)?;
        let Some(right_latch) = mv.latch() else {
            latch.release();
            return Err(Retry);
        };
        stop!("node merge: latched");
        if next != 0 {
            if !mutant!("a merge of index nodes tells the right neighbour") {
                self.block(next).set_prev(left);
            }
            stop!("node merge: prev leads to left");
        }
        latch.exclude();
        b.set_skip(content.skip());
        for slot in 0..kept + more {
            b.set_prefix(slot, content.prefix(slot));
            b.set_child(slot, content.child(slot));
        }
        b.set_perm(latch.other(), &content.perm(0));
        b.set_mask(latch.other(), full_mask(kept + more));
        range_end.store(b, next);
        stop!("node merge: left excluded");
        let latch = latch.finish_latched();
        stop!("node merge: left finished");
        for &(child, _) in children.list() {
            self.block(child).set_parent(left);
        }
        stop!("node merge: parents set");
        latch.release();
        if mutant!("an index node that was merged is dead") {
            right_latch.release();
        } else {
            right_latch.kill(left);
        }
        stop!("node merge: right dead");
        let root = self.shared();
        root.top_state.nodes.fetch_sub(1, Relaxed);
        root.counters.merges.fetch_add(1, Relaxed);
        // The flat top still leads to it.
        if mutant!("an index node is retired behind the flat top") {
            self.retire(node);
        } else {
            root.dead_nodes.push(self.area, node);
        }
        // No longer a first child: it can be absorbed now.
        let boundary = children.list()[kept].0;
        if let Some(latch) = self.block(boundary).latch() {
            if latch.v.is_sparse(SPARSE) {
                self.make_dirty(&latch, boundary);
            }
            latch.release();
        }
        Ok(true)
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
