//! Making built chains the content of an index.

/// Separators in an index node that is built.
const NODE_FILL: usize = 56;

use crate::build::builder::{BuildError, Chain};
use crate::index::root::Index;
use crate::memory::place::Ref;
use crate::memory::process::Process;
use crate::node::block::{PACKED, WHOLE};
use crate::node::children::{Children, node_class};
use crate::node::empty::init_block;
use crate::node::low_key::{Low, LowKeyCopy, RangeEnd, likely};
use crate::sync::atomic::Ordering::*;
use crate::tree::{separators, top};

/// Makes the entries of the chains the content of this index, which has none yet. The chains are in
/// order: each is above the one before it.
///
/// # Panics
/// A chain was built for another index, or the process is one of another area.
pub fn adopt(index: &Index, p: &Process, chains: Vec<Chain>) -> Result<(), BuildError> {
    let root = index.shared();
    index.check_area(p);
    assert!(chains.iter().all(|chain| chain.of == index.identity()), "built for another index");
    // Until they are published, no leaf of the chains may move.
    let _collecting = root.collecting.lock();
    let mut leaves: Vec<Ref> = Vec::new();
    leaves.try_reserve_exact(chains.iter().map(|chain| chain.leaves.len()).sum())?;
    leaves.extend(chains.iter().flat_map(|chain| &chain.leaves));
    let count: u64 = chains.iter().map(|chain| chain.count).sum();
    let Some(&head) = leaves.first() else { return Ok(()) };
    join_chains(index, &chains);
    let nodes = build_nodes(index, &leaves)?;
    let _section = index.enter(p);
    publish(index, head, nodes[0])?;
    root.counters.leaves.fetch_add(leaves.len() as u32, Relaxed);
    root.counters.built.fetch_add(count as i64, Relaxed);
    top::nodes_made(index, nodes.len() as u32);
    top::rebuild_top(index);
    Ok(())
}

/// Links the end of each chain and the beginning of the next.
fn join_chains(index: &Index, chains: &[Chain]) {
    let [low, high] = &mut core::array::from_fn(|_| LowKeyCopy::new(index.area));
    for pair in chains.iter().filter(|chain| chain.count > 0).collect::<Vec<_>>().windows(2) {
        let (tail, head) = (pair[0].leaves[pair[0].leaves.len() - 1], pair[1].leaves[0]);
        index.block(head).set_prev(tail);
        let b = index.block(tail);
        let (low, high) = (built_low(index, tail, low), built_low(index, head, high));
        RangeEnd::new(index.memcmp(), low.key, b.skip(), Some(&high)).store(b, head);
    }
}

/// Builds level 1 over these leaves. It will come behind the first node of the index, which does
/// not lead there yet.
fn build_nodes(index: &Index, leaves: &[Ref]) -> Result<Vec<Ref>, BuildError> {
    let [left, low, high] = &mut core::array::from_fn(|_| LowKeyCopy::new(index.area));
    let first_node = index.shared().node.load(Relaxed);
    let mut nodes: Vec<Ref> = Vec::new();
    nodes.try_reserve_exact(leaves.len() / NODE_FILL + 1)?;
    for (i, group) in leaves.chunks(NODE_FILL).enumerate() {
        let low = built_low(index, group[0], low);
        let class = node_class(low.key.len());
        let node = index.fresh(class)?;
        let b = node.block();
        let mut children = Children::new();
        for &leaf in group {
            children.push(leaf, number_of(index, leaf));
        }
        let high = leaves.get((i + 1) * NODE_FILL).map(|&leaf| built_low(index, leaf, high));
        let likely = match i {
            0 => low.key.len(),
            _ => likely(built_low(index, leaves[i * NODE_FILL - 1], left).key, low.key),
        };
        init_block(b, class, 1, 0);
        separators::fill_node(index, b, &children, &low, likely, 0, high.as_ref())
            .expect("only this process knows these leaves");
        let (r, latch) = node.latch();
        let prev = nodes.last().copied().unwrap_or(first_node);
        b.set_prev(prev);
        if prev != first_node {
            index.block(prev).set_next(r);
        }
        for &leaf in group {
            index.block(leaf).set_parent(r);
        }
        latch.release();
        nodes.push(r);
    }
    Ok(nodes)
}

/// Links the leaves from `head` on behind the first leaf, which is empty, and the nodes from
/// `first_built` on behind the first node. Inside the barrier.
fn publish(index: &Index, head: Ref, first_built: Ref) -> Result<(), BuildError> {
    let (root, memcmp) = (index.shared(), index.memcmp());
    // Both first nodes are empty in front, and leave nothing out.
    let mut low = LowKeyCopy::new(index.area);
    let range_end = RangeEnd::new(memcmp, &[], 0, Some(&built_low(index, head, &mut low)));
    let (leaf, first_node) = (root.leaf.load(Relaxed), root.node.load(Relaxed));
    let Some(latch) = index.block(leaf).latch() else { return Err(BuildError::NotEmpty) };
    let b = latch.b();
    if !matches!(latch.v.entries(), Ok(0)) || b.next() != 0 {
        latch.release();
        return Err(BuildError::NotEmpty);
    }
    // Before leaves show: a separator of a new one, split from them, belongs behind this node.
    let Some(node_latch) = index.block(first_node).latch() else {
        latch.release();
        return Err(BuildError::NotEmpty);
    };
    // Level 0 first.
    index.block(head).set_prev(leaf);
    latch.exclude();
    if !b.has(PACKED) {
        b.set_mask(latch.other(), 0);
    }
    b.set_flag(WHOLE, !memcmp);
    range_end.store(b, head);
    latch.finish();
    let m = node_latch.b();
    node_latch.exclude();
    m.set_perm(node_latch.other(), &m.perm(node_latch.v.side()));
    m.set_mask(node_latch.other(), node_latch.v.mask());
    range_end.store(m, first_built);
    node_latch.finish();
    Ok(())
}

/// Loads the low key of a leaf that was built and is not published.
fn built_low<'a>(index: &Index, leaf: Ref, to: &'a mut LowKeyCopy) -> Low<'a> {
    let abbrev = number_of(index, leaf);
    to.load(leaf).map_or(Low::FIRST, |low| Low { abbrev, ..low })
}

/// Returns the abbreviation of a built leaf's low key under a comparator: that of its first entry.
fn number_of(index: &Index, leaf: Ref) -> u64 {
    let v = index.block(leaf).view();
    match v.packed() {
        Ok(Some(leaf)) => leaf.number(0),
        _ => v.b.prefix(v.slot(0)),
    }
}
