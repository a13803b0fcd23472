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
//! promotion is on its way to it), or is on a dirty list, or has pins (a walk stands there). Index nodes are
//! absorbed in the same way; the flat top is their upper level.
//!
//! Several neighbours R, S, ... with separators in one M are absorbed at once, each step for all of them: who
//! goes right from B finds them in their order until 3, and each is DEAD and leads to B after 4.

use crate::absorb::{Absorbed, Content, end_of};
use crate::area::Ref;
use crate::block::{Block, CAPACITY, DIRTY, EXACT, LEFTMOST, Latch, PACKED, WHOLE};
use crate::key::Retry;
use crate::leaf::{LeafWriter, heap_size};
use crate::mutants::mutant;
use crate::node::{Children, NodePage};
use crate::pack::{MOST, Of};
use crate::packed::Shape;
use crate::range::{Low, LowBuf, MAX_SKIP, Right, Span};
use crate::root::{Index, init_block};
use crate::split::MIN_FREE;
use crate::stop::stop;
use crate::workspace::{Workspace, undisturbed};
use core::sync::atomic::Ordering::*;

/// Nodes are merged if together they have at most so many entries: a quarter stays free.
const MERGED: usize = CAPACITY * 3 / 4;
/// A leaf with so few entries is put on the dirty list.
pub(crate) const SPARSE: usize = CAPACITY / 4;
/// An index node with so few separators is absorbed if possible, or absorbs its neighbour.
pub(crate) const SPARSE_NODE: usize = CAPACITY.div_ceil(8);
/// A sweep joins index nodes that have at most so many separators together, of which it soon takes many away.
const JOINED: usize = CAPACITY * 15 / 16;
/// A sweep publishes a flat top without the DEAD index nodes when there is more than one to so many others.
const WORTH_A_TOP: u32 = 16;

impl Index {
    /// Merges a leaf with its neighbours, if it is sparse enough.
    pub(crate) fn merge(&self, leaf: Ref, workspace: &mut Workspace) {
        let b = self.block(leaf);
        let v = b.view();
        if v.dead() || !v.is_sparse(MERGED / 2) {
            return;
        }
        // Neighbours that were visited while this one was still full. Ends when the leaf has no room.
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
        let mut pair = workspace.load(leaf, &v, &rv)?;
        let [low, high] = &mut core::array::from_fn(|_| LowBuf::new(self.area));
        if !low.copy(&v) {
            return Err(Retry);
        }
        let low = low.low();
        let both = pair.entries.len();
        if packed {
            if !pair.packable {
                return Ok(false);
            }
            let fits = |shape: &Shape, all: &Of<'_>| {
                let size = shape.size(all, low.size(MAX_SKIP), b.size());
                shape.entries() <= MOST && size <= b.size() * 75 / 100
            };
            let gathered = self.gather((right, rv), &mut pair, fits)?;
            let ver = self.absorb_gathered((leaf, v), &gathered, low, pair)?;
            if let Some(ver) = ver {
                workspace.keep(leaf, ver);
            }
            return Ok(ver.is_some());
        }
        let entries = pair.entries;
        let (next, number) = end_of(&rv)?;
        let high = match next {
            0 => None,
            next => Some(Low { abbrev: number, ..high.load(next).ok_or(Retry)? }),
        };
        let skip = if !memcmp || low.is_first() {
            0
        } else {
            // No more than now, unless the range allows it.
            let last = if both == 0 { &[][..] } else { entries.get(both - 1).key };
            let high = high.map(|high| high.key);
            Span { likely: b.skip(), low: low.key, last, high }.skip(MAX_SKIP)
        };
        let size = low.size(skip) + heap_size(entries.range(0..both), skip, !memcmp);
        if size + MIN_FREE > b.heap_size() {
            return Ok(false);
        }
        let flags = b.flags() & LEFTMOST | if memcmp { 0 } else { WHOLE };
        let content = pair.page.block();
        entries.write(LeafWriter::new(content, b.class(), flags, low, skip), 0..both, 0);
        let content = Content::Slots(content, flags);
        let range_end = Right::new(memcmp, low.key, skip, high.as_ref());
        let ndead = entries.ndead();
        let absorbed = Absorbed { content, low, skip, range_end, next, ndead };
        Ok(self.absorb((leaf, v), &[(right, rv)], absorbed)?.is_some())
    }

    /// A leaf on a list would lead that astray, one whose promotion is on its way has no separator, and at one with pins
    /// a walk stands.
    pub(crate) fn stays(&self, r: Block) -> bool {
        let listed = r.has(DIRTY) && !mutant!("a leaf on a list is not merged");
        let pinned = r.has_pins() && !mutant!("a leaf with pins is not merged");
        listed || pinned || r.parent() == 0 && !mutant!("a leaf without separator is not merged")
    }

    /// The index node with the separator of a latched leaf, latched, and the separator's rank there,
    /// unless it is before `first`.
    pub(crate) fn separator_latched(&self, leaf: Ref, first: usize) -> Option<(Latch, usize)> {
        // Ends: the leaf gets another parent only where another process splits the index node. No other
        // process kills one.
        loop {
            let node = self.block(leaf).parent();
            // DEAD: its children have another parent.
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

    /// An index node with few separators is absorbed by its left neighbour, or absorbs its right one:
    /// of neighbours that both become sparse, the first finds the second still full, so the second has
    /// to look back, from whatever side it came.
    pub(crate) fn merge_node(&self, node: Ref) {
        let left = self.block(node).prev();
        let absorbed = left != 0 && undisturbed(|| self.try_absorb_node(left, Some(node), MERGED));
        if !absorbed {
            // Ends when the node has no room.
            while undisturbed(|| self.try_absorb_node(node, None, MERGED)) {}
        }
    }

    /// If the next leaf is the first child of another index node, the one of this leaf absorbs that, or takes separators from it
    /// if they have too many together and it has room: a first child gives no entries to the leaf before it. Collector only,
    /// inside the barrier.
    pub(crate) fn join_nodes(&self, leaf: Ref) {
        let b = self.block(leaf);
        let (node, next) = (b.parent(), b.next());
        let other = if next == 0 { 0 } else { self.block(next).parent() };
        if node == 0 || other == 0 || node == other {
            return;
        }
        let joined = undisturbed(|| self.try_absorb_node(node, Some(other), JOINED));
        let v = self.block(node).view();
        // The first node leaves nothing out of its separators: the fewer it has, the faster are searches.
        if !joined && v.b.prev() != 0 && v.mask().count_ones() as usize <= MERGED {
            undisturbed(|| self.try_shift(other, JOINED));
        }
    }

    /// The index node `left` absorbs its right neighbour (which is to be `wanted`) if together they have at most `most`
    /// separators. As with leaves, prepared from copies.
    fn try_absorb_node(&self, left: Ref, wanted: Option<Ref>, most: usize) -> Result<bool, Retry> {
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
        if kept + more > most {
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
        let mut page = NodePage::default();
        let content = page.block();
        init_block(content, b.class(), 1, 0);
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
        latch.take_separators(content, kept + more);
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
            root.top_state.dead.fetch_add(1, Relaxed);
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

    /// Retires DEAD index nodes as soon as they are some part of all: to publish a flat top without them takes a look at
    /// each of the others.
    pub(crate) fn retire_many_nodes(&self) {
        let state = &self.shared().top_state;
        if state.dead.load(Relaxed) > state.nodes.load(Relaxed) / WORTH_A_TOP {
            self.retire_nodes();
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
        root.top_state.dead.store(0, Relaxed);
        while let Some(node) = dead.pop(self.area) {
            self.retire(node);
        }
    }
}
