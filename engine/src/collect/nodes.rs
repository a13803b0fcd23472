//! Index nodes that give separators to their left neighbours, move, or are merged.
//!
//! An index node L takes as many separators from the front of its right neighbour M as it has room
//! for. The others become a new node F, and M dies. This is a merge of index nodes with a rest. If
//! L takes none, M has moved: F is its copy. `tree/relink.rs` makes the change.
//!
//! The flat top leads to M until there is a flat top without M. M goes to the barrier only then.

use super::workspace::undisturbed;
#[cfg(all(test, not(loom), not(shuttle)))]
use crate::index::reclaim;
use crate::index::root::Index;
use crate::memory::place::Ref;
#[cfg(all(test, not(loom), not(shuttle)))]
use crate::memory::process::Process;
use crate::node::block::{CAPACITY, Retry};
use crate::node::children::{Children, NodePage, node_class};
use crate::node::empty::init_block;
use crate::node::fresh::Fresh;
use crate::node::low_key::{Low, LowKeyCopy, RangeEnd};
use crate::tree::drop::SPARSE;
use crate::tree::relink::{Content, New, Relink, relink};
use crate::tree::seek::left_of;
use crate::tree::{drop, separators, top};
use core::sync::atomic::Ordering::*;

/// Gives separators of `node` to its left neighbour until that has `most`. If it has them already,
/// `node` moves to a free block, not to new memory. Everything is prepared from copies. Collector
/// only, inside the barrier.
pub(crate) fn try_shift(index: &Index, node: Ref, most: usize) -> Result<bool, Retry> {
    let mv = index.block(node).view();
    if mv.dead() {
        return Ok(false);
    }
    let Some((left, v)) = left_of(*index, node) else { return Ok(false) };
    let (b, m) = (v.b, mv.b);
    let (kept, more) = (v.mask().count_ones() as usize, mv.mask().count_ones() as usize);
    let taken = most.saturating_sub(kept);
    if taken >= more {
        return Ok(false);
    }
    let (mut stay, mut rest) = (Children::new(), Children::new());
    stay.load(&v, 0..kept);
    stay.load(&mv, 0..taken);
    rest.load(&mv, taken..more);
    let (next, number) = (m.next(), m.high());
    if !v.valid() || !mv.valid() {
        return Err(Retry);
    }
    let [own, low, high] = &mut core::array::from_fn(|_| LowKeyCopy::new(index.area));
    let own = own.load(left).ok_or(Retry)?;
    let (first, abbrev) = rest.list()[0];
    let low = Low { abbrev, ..low.load(first).ok_or(Retry)? };
    let high = match next {
        0 => None,
        next => Some(Low { abbrev: number, ..high.load(next).ok_or(Retry)? }),
    };
    let (class, fresh) = if taken == 0 {
        (m.class(), Fresh::among(index.allocator(), index.area, m.class()))
    } else {
        let class = node_class(low.key.len());
        (class, index.fresh(class).ok())
    };
    let Some(fresh) = fresh else { return Ok(false) };
    let f = fresh.block();
    init_block(f, class, 1, 0);
    separators::fill_node(index, f, &rest, &low, m.skip(), next, high.as_ref())?;
    let mut page = NodePage::default();
    let content = page.block();
    init_block(content, b.class(), 1, 0);
    separators::fill_node(index, content, &stay, &own, b.skip(), 0, Some(&low))?;
    let plan = Relink {
        left: (left, v),
        content: Content::Separators { node: content, own: kept, n: kept + taken },
        range_end: RangeEnd::new(index.memcmp(), own.key, content.skip(), Some(&low)),
        rights: &[(node, mv)],
        new: Some(New { fresh, low: Some(low) }),
        next,
        ndead: 0,
    };
    Ok(relink(index, plan)?.is_some())
}

/// Nodes are merged if together they have at most this number of entries. A quarter of the node
/// stays free.
pub(crate) const MERGED: usize = CAPACITY * 3 / 4;
/// An index node with at most this number of separators is absorbed, or absorbs its neighbour.
pub(crate) const SPARSE_NODE: usize = CAPACITY.div_ceil(8);
/// A sweep joins two index nodes that together have at most this number of separators. It soon
/// takes many of them away.
const JOINED: usize = CAPACITY * 15 / 16;

/// A sweep publishes a flat top without the DEAD index nodes when more than one index node in this
/// number is DEAD.
const WORTH_A_TOP: u32 = 16;

/// Merges an index node with few separators: its left neighbour absorbs it, or it absorbs its right
/// one. When two neighbours become sparse, the first finds the second still full. So the second
/// also tries its left neighbour.
pub(crate) fn merge_node(index: &Index, node: Ref) {
    let left = index.block(node).prev();
    let absorbed = left != 0 && undisturbed(|| try_absorb_node(index, left, Some(node), MERGED));
    if !absorbed {
        // Ends when the node has no room.
        while undisturbed(|| try_absorb_node(index, node, None, MERGED)) {}
    }
}

/// Joins index nodes, if the next leaf is the first child of another one: a first child gives no
/// entries to the leaf before it. The index node of this leaf absorbs the other one. If both do not
/// fit one node, it takes separators from it, if it has room. Collector only, inside the barrier.
pub(crate) fn join_nodes(index: &Index, leaf: Ref) {
    let b = index.block(leaf);
    let (node, next) = (b.parent(), b.next());
    let other = if next == 0 { 0 } else { index.block(next).parent() };
    if node == 0 || other == 0 || node == other {
        return;
    }
    let joined = undisturbed(|| try_absorb_node(index, node, Some(other), JOINED));
    let v = index.block(node).view();
    // The first node leaves nothing out of its separators: the fewer it has, the faster are
    // searches.
    if !joined && v.b.prev() != 0 && v.mask().count_ones() as usize <= MERGED {
        undisturbed(|| try_shift(index, other, JOINED));
    }
}

/// Lets the index node `left` absorb its right neighbour, if together they have at most `most`
/// separators. If `wanted` is given, the neighbour must be that node. As with leaves, everything is
/// prepared from copies.
fn try_absorb_node(
    index: &Index,
    left: Ref,
    wanted: Option<Ref>,
    most: usize,
) -> Result<bool, Retry> {
    let v = index.block(left).view();
    let b = v.b;
    let node = b.next();
    if v.dead() || node == 0 || wanted.is_some_and(|wanted| wanted != node) {
        return Ok(false);
    }
    if !v.valid() {
        return Err(Retry);
    }
    let mv = index.block(node).view();
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
    let [low, high] = &mut core::array::from_fn(|_| LowKeyCopy::new(index.area));
    let low = low.load(left).ok_or(Retry)?;
    let high = match next {
        0 => None,
        next => Some(Low { abbrev: number, ..high.load(next).ok_or(Retry)? }),
    };
    let mut page = NodePage::default();
    let content = page.block();
    init_block(content, b.class(), 1, 0);
    separators::fill_node(index, content, &children, &low, b.skip(), next, high.as_ref())?;
    let plan = Relink {
        left: (left, v),
        content: Content::Separators { node: content, own: kept, n: kept + more },
        range_end: RangeEnd::new(index.memcmp(), low.key, content.skip(), high.as_ref()),
        rights: &[(node, mv)],
        new: None,
        next,
        ndead: 0,
    };
    if relink(index, plan)?.is_none() {
        return Ok(false);
    }
    let root = index.shared();
    root.top_state.nodes.fetch_sub(1, Relaxed);
    root.counters.merges.fetch_add(1, Relaxed);
    // No longer a first child: it can be absorbed now.
    let boundary = children.list()[kept].0;
    if let Some(latch) = index.block(boundary).latch() {
        if latch.v.is_sparse(SPARSE) {
            drop::make_dirty(index, &latch, boundary);
        }
        latch.release();
    }
    Ok(true)
}

/// Retires DEAD index nodes when they are a certain part of all. The flat top without them takes a
/// look at each of the others.
pub(crate) fn retire_many_nodes(index: &Index) {
    let state = &index.shared().top_state;
    if state.dead.load(Relaxed) > state.nodes.load(Relaxed) / WORTH_A_TOP {
        retire_nodes(index);
    }
}

/// Retires DEAD index nodes after publishing a flat top without them.
pub(crate) fn retire_nodes(index: &Index) {
    let root = index.shared();
    let mut dead = root.dead_nodes.take();
    if dead.head == 0 {
        return;
    }
    if !top::rebuild_top(index) {
        root.dead_nodes.splice(index.area, dead);
        return;
    }
    root.top_state.dead.store(0, Relaxed);
    while let Some(node) = dead.pop(index.area) {
        index.retire(node);
    }
}

/// Lets each index node but the first give separators away or move, if there is room. Returns how
/// many did.
#[cfg(all(test, not(loom), not(shuttle)))]
pub(crate) fn shift_nodes(index: &Index, p: &Process, most: usize) -> usize {
    let Some(_collecting) = index.shared().collecting.try_lock() else { return 0 };
    let mut shifted = 0;
    {
        let _section = index.enter(p);
        let mut node = index.shared().node.load(Relaxed);
        while node != 0 {
            let next = index.block(node).next();
            shifted += usize::from(undisturbed(|| try_shift(index, node, most)));
            node = next;
        }
        retire_nodes(index);
    }
    reclaim::free_all(index);
    shifted
}

#[cfg(all(test, not(loom), not(shuttle)))]
#[path = "../tests/nodes.rs"]
mod tests;
