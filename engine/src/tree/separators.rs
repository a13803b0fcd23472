//! Level 1: separators of leaves, and the split of index nodes.
//!
//! A separator is the low key of the leaf it leads to. It is entered after the leaf is linked,
//! behind the separator of its left neighbour. No key is compared for that. `parent` of a leaf
//! names the index node with its separator, and changes only under the latch of that node. So the
//! collector finds the separator without comparing keys. The first child of an index node is never
//! merged away. So the low key of the node is found there when it is too long for the node.

use crate::index::root::Index;
use crate::memory::area::OutOfMemory;
use crate::memory::class::Class;
use crate::memory::place::Ref;
use crate::node::block::{Block, CAPACITY, EXACT, Retry, View, full_mask, insert_slot};
use crate::node::children::{Children, flag, low_room, node_class, set_node_low};
use crate::node::empty::init_block;
use crate::node::fresh::Fresh;
use crate::node::low_key::{Low, LowKeyCopy, RangeEnd, SharedBytes, likely};
use crate::sync::lock::Backoff;
use crate::sync::mutants::mutant;
use crate::sync::stop::stop;
use crate::tree::relink::{Content, New, Relink, relink_if};
use crate::tree::seek::left_of;
use crate::tree::top;

/// A promotion gives up after this number of attempts: about a second.
const ATTEMPTS: u32 = 1000;

/// The place for the separator of a leaf.
struct Entrance<'a> {
    /// The left neighbour, which has a separator, and the leaf.
    left: Ref,
    leaf: Ref,
    /// The index node with the neighbour's separator, and the rank behind that.
    node: Ref,
    rank: usize,
    /// The number of the leaf's low key in this node. None if the key does not share the bytes that
    /// the node leaves out.
    prefix: Option<u64>,
    low: Low<'a>,
}

/// Enters the low key of `leaf` into level 1, behind the separator of its left neighbour. A
/// neighbour without separator gets its own first. The caller is inside the barrier but no writer:
/// this may wait. It renews the flat top when enough index nodes have been made.
///
/// No key is compared. So level 1 has the leaves in the order in which they are linked, even if an
/// order lies.
#[cold]
pub(crate) fn promote(index: &Index, leaf: Ref) {
    // An attempt fails only in two cases. Another process has changed one of the nodes meanwhile.
    // Or it is about to show a leaf to which the right neighbour already leads.
    let mut backoff = Backoff::default();
    for _ in 0..ATTEMPTS {
        if index.block(leaf).parent() != 0 {
            break;
        }
        match enter_next(index, leaf) {
            Ok(Ok(())) => {}
            Ok(Err(OutOfMemory { .. })) => break,
            Err(Retry) => backoff.wait(),
        }
    }
    // A leaf that has no separator now is found by moving right, and promoted by a later insert.
    top::renew_top(index);
}

/// Enters `leaf`, or the first one on its left that has no separator.
fn enter_next(index: &Index, mut leaf: Ref) -> Result<Result<(), OutOfMemory>, Retry> {
    // Ends: each step leads to the left, and the first leaf has a separator.
    let (left, lv) = loop {
        let (left, lv) = left_of(*index, leaf).ok_or(Retry)?;
        if index.block(left).parent() != 0 {
            break (left, lv);
        }
        leaf = left;
    };
    // Under a comparator the number of the low key.
    let abbrev = if index.memcmp() { 0 } else { lv.b.high() };
    let mut low = LowKeyCopy::new(index.area);
    let low = Low { abbrev, ..low.load(leaf).ok_or(Retry)? };
    let node = lv.b.parent();
    if !lv.valid() {
        return Err(Retry);
    }
    stop!("promote: node known");
    let v = index.block(node).view();
    stop!("promote: node viewed");
    // DEAD: its children are about to have another parent.
    if v.dead() {
        return Err(Retry);
    }
    let n = v.mask().count_ones() as usize;
    let behind = (0..n).find(|&rank| v.b.child(v.slot(rank)) & !EXACT == left);
    let rank = behind.ok_or(Retry)? + 1;
    let shares = low.shares(v.b);
    let prefix = shares.then(|| low.number(index.memcmp(), v.b.skip()).0);
    if !v.valid() {
        return Err(Retry);
    }
    debug_assert!(shares || rank == n, "what is left out is shared up to the end of the range");
    stop!("promote: place found");
    let to = Entrance { left, leaf, node, rank, prefix, low };
    match prefix {
        Some(prefix) if n < CAPACITY => enter_separator(index, &v, &to, prefix).map(Ok),
        _ => split_node(index, &v, &to),
    }
}

/// Returns true if the leaf still has no separator, and no leaf has come between it and its left
/// neighbour. The caller has the latch of the index node with the neighbour's separator, in the
/// state where that was found. Until it gives the latch up, no separator comes behind it.
fn is_due(index: &Index, to: &Entrance<'_>) -> bool {
    let alone = index.block(to.leaf).parent() == 0 || mutant!("a promotion looks for the parent");
    let next = index.block(to.left).next() == to.leaf
        || mutant!("a promotion looks for leaves that came between");
    alone && next
}

fn enter_separator(index: &Index, v: &View, to: &Entrance<'_>, prefix: u64) -> Result<(), Retry> {
    let b = v.b;
    let (_, exact) = to.low.number(index.memcmp(), b.skip());
    let latch = v.latch().ok_or(Retry)?;
    stop!("promote: node latched");
    if !is_due(index, to) {
        latch.release();
        return Err(Retry);
    }
    let (side, other) = (latch.v.side(), latch.other());
    let mask = b.mask(side);
    let slot = (!mask).trailing_zeros() as usize;
    b.set_prefix(slot, prefix);
    b.set_child(slot, to.leaf | flag(exact));
    b.set_perm(other, &insert_slot(&b.perm(side), to.rank, slot));
    b.set_mask(other, mask | 1 << slot);
    if !mutant!("a separator comes with the parent") {
        index.block(to.leaf).set_parent(to.node);
    }
    stop!("promote: parent set");
    latch.publish();
    stop!("promote: published");
    Ok(())
}

/// Splits a full index node, if it is still in the viewed state. If separators ascend, or if the
/// new one does not share the node's first bytes, nothing moves: the new node gets the new
/// separator alone. Everything is prepared before the latch is taken. Returns `Ok(Err(_))` if there
/// is no memory for a new node.
fn split_node(
    index: &Index,
    v: &View,
    to: &Entrance<'_>,
) -> Result<Result<(), OutOfMemory>, Retry> {
    let (b, memcmp) = (v.b, index.memcmp());
    let n = v.mask().count_ones() as usize;
    let (next, number) = (b.next(), b.high());
    let append = to.prefix.is_none() || next == 0 && to.rank == n;
    let cut = if append { n } else { n / 2 };
    let mut moved = Children::new();
    if append {
        moved.push(to.leaf, to.low.abbrev);
    } else {
        moved.load(v, cut..n);
    }
    let perm = b.perm(v.side());
    let skip = b.skip();
    let left = v.b.child(v.slot(cut - 1)) & !EXACT;
    if !v.valid() {
        return Err(Retry);
    }
    // A leaf that is DEAD now was alive when the node was viewed, so the node has changed since.
    // From now on the first of the moved ones is the first child of another node, or new.
    let [before, low, own, high] = &mut core::array::from_fn(|_| LowKeyCopy::new(index.area));
    let (first, abbrev) = moved.list()[0];
    let low = Low { abbrev, ..low.load(first).ok_or(Retry)? };
    let own = own.load(to.node).ok_or(Retry)?;
    let high = match next {
        0 => None,
        next => Some(Low { abbrev: number, ..high.load(next).ok_or(Retry)? }),
    };
    let likely = likely(before.load(left).ok_or(Retry)?.key, low.key);
    let (class, fresh) = match fresh_node(index, low.key.len()) {
        Ok(fresh) => fresh,
        Err(e) => return Ok(Err(e)),
    };
    init_block(fresh.block(), class, 1, 0);
    fill_node(index, fresh.block(), &moved, &low, likely, next, high.as_ref())?;
    let mask = perm[..cut].iter().fold(0, |mask, &slot| mask | 1u64 << slot);
    let plan = Relink {
        left: (to.node, *v),
        content: Content::Kept { perm, mask, ndead: 0 },
        range_end: RangeEnd::new(memcmp, own.key, skip, Some(&low)),
        rights: &[],
        new: Some(New { fresh, low: None }),
        next,
        ndead: 0,
    };
    stop!("node split: built");
    // No node dies, so none has to stay.
    relink_if(index, plan, &|| is_due(index, to))?.ok_or(Retry)?;
    stop!("node split: linked");
    top::nodes_made(index, 1);
    Ok(Ok(()))
}

/// Takes memory for an index node with a low key of this length. If there is none, it takes the
/// smallest class, for which the split of the leaf has made sure of memory.
fn fresh_node(index: &Index, low: usize) -> Result<(Class, Fresh<'_>), OutOfMemory> {
    let large = node_class(low);
    match index.fresh(large) {
        Ok(fresh) => Ok((large, fresh)),
        Err(_) => index.fresh(Class::INDEX).map(|fresh| (Class::INDEX, fresh)),
    }
}

/// Fills a private, initialised index node with separators of these leaves, up to but not including
/// `high`, the low key of `next`. `likely`: the number of bytes that further separators are likely
/// to share. Does not set its left neighbour. Returns Err if one of the leaves is DEAD.
pub(crate) fn fill_node(
    index: &Index,
    b: Block,
    children: &Children,
    low: &Low<'_>,
    likely: usize,
    next: Ref,
    high: Option<&Low<'_>>,
) -> Result<(), Retry> {
    let memcmp = index.memcmp();
    let mut separator = LowKeyCopy::new(index.area);
    let list = children.list();
    if memcmp && let Some(&(last, _)) = list.last() {
        let last = separator.load(last).ok_or(Retry)?.key;
        // No more than it takes to have the ends of the separators among the 8 bytes: comparing
        // the skipped bytes costs a line of memory.
        let useful = low.key.len().max(last.len()).saturating_sub(8).min(low_room(b.class()));
        let high = high.map(|high| high.key);
        b.set_skip(SharedBytes { likely, low: low.key, last, high }.skip(useful));
    }
    set_node_low(b, low);
    RangeEnd::new(memcmp, low.key, b.skip(), high).store(b, next);
    for (slot, &(child, abbrev)) in list.iter().enumerate() {
        let separator = separator.load(child).ok_or(Retry)?;
        let (prefix, exact) = if separator.is_first() {
            (0, true)
        } else {
            Low { abbrev, ..separator }.number(memcmp, b.skip())
        };
        b.set_prefix(slot, prefix);
        b.set_child(slot, child | flag(exact));
    }
    let side = b.first_side();
    b.set_mask(side, full_mask(list.len()));
    b.set_perm(side, &core::array::from_fn(|i| i as u8));
    Ok(())
}
