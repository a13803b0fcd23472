//! Leaves that fill up: one that is not full takes entries from the front of its right neighbour.
//!
//! Removals leave neighbours that are not full and do not fit one leaf together. B takes as many
//! entries of its right neighbour R as it has room for. The others become a new leaf F, and R dies.
//! F's low key is greater than R's. This is a merge with a rest. `tree/relink.rs` makes the change.

use crate::collect::absorb::end_of;
use crate::collect::workspace::{Pair, Workspace, undisturbed};
use crate::collect::{absorb, merge};
use crate::index::root::Index;
use crate::memory::place::Ref;
use crate::node::block::{Retry, View};
use crate::node::low_key::{Low, LowKeyCopy, MAX_SKIP, RangeEnd};
use crate::node::packing;
use crate::node::packing::{
    EntryRange, MOST, arrange_shaped, extend, init_packed, packed_class, shape_of,
};
use crate::packed::Shape;
use crate::tree::drop::SPARSE;
use crate::tree::relink;
use crate::tree::relink::{Content, New, Relink, Relinked, relink};

/// A leaf is full when it uses this percentage of its fill target.
const FULL_PERCENT: usize = 88;
/// A leaf takes entries only if it gains at least one part in this number of its own entries. A
/// smaller gain is not worth the work.
const MIN_GAIN: usize = 16;
/// The most blocks that wait for the barrier before a fill pauses. While a process stays inside,
/// new leaves would take new memory.
pub(crate) const WAITING: u32 = 128;

/// Fills a leaf that is not full with entries of its right neighbours, up to `full` percent.
/// Returns true if it has taken all of one, and may take more. Collector only, inside the barrier.
pub(crate) fn fill(index: &Index, leaf: Ref, full: usize, workspace: &mut Workspace) -> bool {
    undisturbed(|| try_fill(index, leaf, full, workspace))
}

/// Prepares everything from copies.
fn try_fill(
    index: &Index,
    leaf: Ref,
    full: usize,
    workspace: &mut Workspace,
) -> Result<bool, Retry> {
    let v = index.block(leaf).view();
    let b = v.b;
    let right = b.next();
    if v.dead() || right == 0 {
        return Ok(false);
    }
    if !v.valid() {
        return Err(Retry);
    }
    let rv = index.block(right).view();
    let (r, room) = (rv.b, b.size() * full / 100);
    if is_full(&v, &rv, room)? || relink::stays(r) || b.ndead() > 0 || r.ndead() > 0 {
        return Ok(false);
    }
    let last = r.next() == 0;
    if v.entries()? + rv.entries()? == 0 || last && v.is_sparse(SPARSE) {
        return merge::try_absorb_right(index, leaf, workspace);
    }
    if last {
        // It stays as it is, but for a sparse one before it.
        return Ok(false);
    }
    let mut pair = workspace.load(leaf, &v, &rv)?;
    let mut low = LowKeyCopy::new(index.area);
    if !low.copy(&v) {
        return Err(Retry);
    }
    let low = low.low();
    if !pair.packable {
        return Ok(false);
    }
    let fits = |shape: &Shape, all: &EntryRange<'_>| {
        shape.entries() <= MOST * full / 100
            && shape.size(all, low.size(MAX_SKIP), b.size()) <= room
    };
    let gathered = absorb::gather(index, (right, rv), &mut pair, fits)?;
    if !gathered.is_empty() {
        let ver = absorb::absorb_gathered(index, (leaf, v), &gathered, low, pair)?;
        if let Some(ver) = ver {
            workspace.keep(leaf, ver);
        }
        return Ok(ver.is_some());
    }
    if let Some(rest) = take_some(index, (leaf, v), (right, rv), low, pair, fits)? {
        workspace.hold(rest.cut, rest.shape, rest.leaf, rest.ver);
    }
    Ok(false)
}

/// Returns true if the leaf is full, and has no room for all entries of the other one. The packed
/// size of a leaf of slots is not known.
fn is_full(v: &View, rv: &View, room: usize) -> Result<bool, Retry> {
    let used = |v: &View| Ok(v.packed()?.map_or(0, |leaf| leaf.used()));
    let (mine, more) = (used(v)?, used(rv)?);
    Ok(mine >= room * FULL_PERCENT / 100 && mine + more > room && more > 0)
}

/// The new leaf F, with the rest of the entries.
struct Rest {
    leaf: Ref,
    ver: u64,
    /// The number of its first entry in the pair.
    cut: usize,
    shape: Shape,
}

/// Moves as many entries of the right leaf as fit into the left one, if that is worth it.
fn take_some(
    index: &Index,
    (leaf, v): (Ref, View),
    (right, rv): (Ref, View),
    low: Low<'_>,
    pair: Pair<'_>,
    fits: impl Fn(&Shape, &EntryRange<'_>) -> bool,
) -> Result<Option<Rest>, Retry> {
    let Pair { entries, draft, shape, own, .. } = pair;
    let (next, number) = end_of(&rv)?;
    let mut high = LowKeyCopy::new(index.area);
    let high = Low { abbrev: number, ..high.load(next).ok_or(Retry)? };
    let all = EntryRange(entries, 0..entries.len());
    extend(shape, &all, |shape| fits(shape, &all));
    let (memcmp, cut, n) = (index.memcmp(), shape.entries(), entries.len());
    // While a process stays inside, the memory of dead leaves is not free for new ones.
    if cut <= own + own / MIN_GAIN || index.garbage() >= WAITING {
        return Ok(None);
    }
    let sep = Low::between(memcmp, &entries.get(cut - 1), &entries.get(cut));
    let skip = packing::skip_of(memcmp, &sep, Some(&high));
    // As large as R, and for its low key.
    let class = [rv.b.class(), packed_class(sep.size(0))].into_iter().max_by_key(|c| c.size());
    let class = class.expect("one of two");
    let rest = EntryRange(entries, cut..n);
    let shape_of_rest = shape_of(&rest);
    if !arrange_shaped(draft, &rest, &shape_of_rest, &sep, Some(&high), skip, class) {
        return Ok(None);
    }
    let Ok(fresh) = index.fresh(class) else { return Ok(None) };
    init_packed(fresh.block(), draft, class, 0, &sep, skip);
    RangeEnd::new(memcmp, sep.key, skip, Some(&high)).store(fresh.block(), next);
    let skip = packing::skip_of(memcmp, &low, Some(&sep));
    let taken = EntryRange(entries, 0..cut);
    if !arrange_shaped(draft, &taken, shape, &low, Some(&sep), skip, v.b.class()) {
        return Ok(None);
    }
    let plan = Relink {
        left: (leaf, v),
        content: Content::Packed { draft, low, skip },
        range_end: RangeEnd::new(memcmp, low.key, skip, Some(&sep)),
        rights: &[(right, rv)],
        new: Some(New { fresh, low: Some(sep) }),
        next,
        ndead: 0,
    };
    let Some(Relinked { new: (leaf, ver), .. }) = relink(index, plan)? else { return Ok(None) };
    Ok(Some(Rest { leaf, ver, cut, shape: shape_of_rest }))
}
