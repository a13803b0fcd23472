//! Merging: a leaf and its right neighbour become one if both are sparse. Only the collector does
//! it. `tree/relink.rs` makes the change.

use super::nodes::MERGED;
use crate::collect::absorb;
use crate::collect::absorb::end_of;
use crate::collect::workspace::{Pair, Workspace, undisturbed};
use crate::index::root::Index;
use crate::memory::place::Ref;
use crate::node::block::{LEFTMOST, MIN_FREE, PACKED, Retry, View, WHOLE};
use crate::node::entry::key_area_size;
use crate::node::low_key::{Low, LowKeyCopy, MAX_SKIP, RangeEnd, SharedBytes};
use crate::node::packing::{EntryRange, MOST};
use crate::node::writer::LeafWriter;
use crate::packed::Shape;
use crate::tree::relink;
use crate::tree::relink::{Content, Relink};

/// Merges a leaf with its neighbours, if it is sparse enough.
pub(crate) fn merge(index: &Index, leaf: Ref, workspace: &mut Workspace) {
    let b = index.block(leaf);
    let v = b.view();
    if v.dead() || !v.is_sparse(MERGED / 2) {
        return;
    }
    // Neighbours that were visited while this one was still full. Ends when the leaf has no room.
    while absorb_right(index, leaf, workspace) {}
    let prev = b.prev();
    if prev != 0 && index.block(prev).next() == leaf {
        absorb_right(index, prev, workspace);
    }
}

/// Lets the leaf absorb its right neighbour, if it can.
fn absorb_right(index: &Index, leaf: Ref, workspace: &mut Workspace) -> bool {
    undisturbed(|| try_absorb_right(index, leaf, workspace))
}

/// Prepares everything from copies.
pub(crate) fn try_absorb_right(
    index: &Index,
    leaf: Ref,
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
    let both = v.entries()? + rv.entries()?;
    // A packed one takes part: then what comes of it is packed, unless it is nothing.
    let packed = (b.has(PACKED) || rv.b.has(PACKED)) && both > 0;
    if !packed && both > MERGED || relink::stays(rv.b) {
        return Ok(false);
    }
    let mut pair = workspace.load(leaf, &v, &rv)?;
    let mut low = LowKeyCopy::new(index.area);
    if !low.copy(&v) {
        return Err(Retry);
    }
    let low = low.low();
    if !packed {
        return absorb_slots(index, (leaf, v), (right, rv), low, pair);
    }
    if !pair.packable {
        return Ok(false);
    }
    let fits = |shape: &Shape, all: &EntryRange<'_>| {
        let size = shape.size(all, low.size(MAX_SKIP), b.size());
        shape.entries() <= MOST && size <= b.size() * 75 / 100
    };
    let gathered = absorb::gather(index, (right, rv), &mut pair, fits)?;
    let ver = absorb::absorb_gathered(index, (leaf, v), &gathered, low, pair)?;
    if let Some(ver) = ver {
        workspace.keep(leaf, ver);
    }
    Ok(ver.is_some())
}

/// Lets a leaf of slots absorb another one.
fn absorb_slots(
    index: &Index,
    (leaf, v): (Ref, View),
    (right, rv): (Ref, View),
    low: Low<'_>,
    pair: Pair<'_>,
) -> Result<bool, Retry> {
    let (b, memcmp) = (v.b, index.memcmp());
    let entries = pair.entries;
    let both = entries.len();
    let (next, number) = end_of(&rv)?;
    let mut high = LowKeyCopy::new(index.area);
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
        SharedBytes { likely: b.skip(), low: low.key, last, high }.skip(MAX_SKIP)
    };
    let size = low.size(skip) + key_area_size(entries.range(0..both), skip, !memcmp);
    if size + MIN_FREE > b.key_area_size() {
        return Ok(false);
    }
    let flags = b.flags() & LEFTMOST | if memcmp { 0 } else { WHOLE };
    let content = pair.page.block();
    entries.write(LeafWriter::new(content, b.class(), flags, low, skip), 0..both, 0);
    let plan = Relink {
        left: (leaf, v),
        content: Content::Slots(content),
        range_end: RangeEnd::new(memcmp, low.key, skip, high.as_ref()),
        rights: &[(right, rv)],
        new: None,
        next,
        ndead: entries.ndead(),
    };
    Ok(absorb::absorb(index, plan)?.is_some())
}
