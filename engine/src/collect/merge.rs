//! Taking sparse nodes out of the structure. Only the collector does, one process at a time.
//!
//! A leaf R is absorbed by its left neighbour B, under both latches and that of the index node M:
//! 1. R's separator leaves level 1. From now on R is found by moving right from B.
//! 2. N.prev = B for R's right neighbour N. Who goes back from N sees that B is not yet N's
//!    neighbour, walks right, and finds R.
//! 3. B gets R's entries, `next` = N and R's range in one exclusive phase. Who has read B before
//!    goes on to R, which still has the same entries; who reads B now goes on to N.
//! 4. R becomes DEAD and leads to B. Who comes to it now (with `next` from before, from N, or with
//!    a remembered version) searches again or moves to B. Nothing leads to R any more but what is
//!    held inside the barrier, so it goes there.
//!
//! R is not absorbed if it is the first child of M (it holds M's low key), or has no separator yet
//! (a promotion is on its way to it), or is on a dirty list, or has pins (a walk stands there).
//! Index nodes are absorbed in the same way; the flat top is their upper level.
//!
//! Several neighbours R, S, ... with separators in one M are absorbed at once, each step for all of
//! them: who goes right from B finds them in their order until 3, and each is DEAD and leads to B
//! after 4.

use super::nodes::MERGED;
use crate::collect::absorb::{Absorbed, Content, end_of};
use crate::collect::workspace::{Workspace, undisturbed};
use crate::collect::{absorb, relink};
use crate::index::root::Index;
use crate::memory::place::Ref;
use crate::node::block::{LEFTMOST, MIN_FREE, PACKED, Retry, WHOLE};
use crate::node::entry::key_area_size;
use crate::node::low_key::{Low, LowKeyCopy, MAX_SKIP, RangeEnd, SharedBytes};
use crate::node::packing::{EntryRange, MOST};
use crate::node::writer::LeafWriter;
use crate::packed::Shape;

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

/// The leaf absorbs its right neighbour if it can.
fn absorb_right(index: &Index, leaf: Ref, workspace: &mut Workspace) -> bool {
    undisturbed(|| try_absorb_right(index, leaf, workspace))
}

/// Everything is prepared from copies; the latches are given only if nothing has changed since.
pub(crate) fn try_absorb_right(
    index: &Index,
    leaf: Ref,
    workspace: &mut Workspace,
) -> Result<bool, Retry> {
    let memcmp = index.memcmp();
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
    let r = rv.b;
    let both = v.entries()? + rv.entries()?;
    // A packed one takes part: then what comes of it is packed, unless it is nothing.
    let packed = (b.has(PACKED) || r.has(PACKED)) && both > 0;
    if !packed && both > MERGED || relink::stays(r) {
        return Ok(false);
    }
    let mut pair = workspace.load(leaf, &v, &rv)?;
    let [low, high] = &mut core::array::from_fn(|_| LowKeyCopy::new(index.area));
    if !low.copy(&v) {
        return Err(Retry);
    }
    let low = low.low();
    let both = pair.entries.len();
    if packed {
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
        SharedBytes { likely: b.skip(), low: low.key, last, high }.skip(MAX_SKIP)
    };
    let size = low.size(skip) + key_area_size(entries.range(0..both), skip, !memcmp);
    if size + MIN_FREE > b.key_area_size() {
        return Ok(false);
    }
    let flags = b.flags() & LEFTMOST | if memcmp { 0 } else { WHOLE };
    let content = pair.page.block();
    entries.write(LeafWriter::new(content, b.class(), flags, low, skip), 0..both, 0);
    let content = Content::Slots(content, flags);
    let range_end = RangeEnd::new(memcmp, low.key, skip, high.as_ref());
    let ndead = entries.ndead();
    let absorbed = Absorbed { content, low, skip, range_end, next, ndead };
    Ok(absorb::absorb(index, (leaf, v), &[(right, rv)], absorbed)?.is_some())
}
