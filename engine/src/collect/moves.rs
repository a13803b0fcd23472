//! Leaves and index nodes that move, so that memory becomes free in one piece.
//!
//! After scattered removals, and after a sweep, every extent still has some nodes. The collector
//! takes a sparse extent out of service and moves its nodes to free blocks of other extents. Then
//! the extent is idle.
//!
//! A leaf R that moves dies, and a new leaf F with the same low key and entries takes its place.
//! The left neighbour keeps its content. `tree/relink.rs` makes the change.
//!
//! R stays while it lacks a separator, has dead entries or pins, or is on a list. The first leaf
//! always stays.
//!
//! `collect/nodes.rs` moves index nodes. The first index node stays, since the root leads to it.

use crate::collect::nodes;
use crate::collect::workspace::{Workspace, undisturbed};
use crate::index::root::Index;
use crate::memory::place::Ref;
use crate::node::block::{LEFTMOST, PACKED, Retry, View, WHOLE};
use crate::node::fresh::Fresh;
use crate::node::low_key::{Low, LowKeyCopy, RangeEnd};
use crate::node::packing::{EntryRange, arrange, init_packed};
use crate::node::writer::LeafWriter;
use crate::packed::Grows;
use crate::sync::stop::stop;
use crate::tree::relink;
use crate::tree::relink::{Content, New, Relink, relink};
use crate::tree::seek::left_of;

/// Moves up to about `budget` nodes out of sparse extents. Returns how many it has moved. Collector
/// only, inside the barrier.
pub(crate) fn leave_sparse_extents(index: &Index, budget: usize) -> usize {
    let allocator = index.allocator();
    allocator.begin_round(&index.area);
    // While a process stays inside, nodes that have moved still occupy their old places.
    let small = index.garbage() == 0;
    let mut workspace = None;
    let mut moved = 0;
    // Ends: an extent is closed once in a round.
    while moved < budget
        && let Some(extent) = allocator.close_sparse(&index.area, small)
    {
        let mut stuck = false;
        for block in allocator.carved(&index.area, extent) {
            let workspace = workspace.get_or_insert_with(|| Workspace::new(index));
            if undisturbed(|| try_move(index, block, workspace)) {
                moved += 1;
            } else {
                let v = index.block(block).view();
                stuck |= v.ver != 0 && !v.dead();
            }
        }
        if stuck {
            allocator.reopen(&index.area, extent);
        }
    }
    nodes::retire_nodes(index);
    moved
}

/// Moves the node in this block, if it is one of the index and can move.
fn try_move(index: &Index, r: Ref, workspace: &mut Workspace) -> Result<bool, Retry> {
    let rv = index.block(r).view();
    // Free, or never a node.
    if rv.ver == 0 || rv.dead() {
        return Ok(false);
    }
    match rv.b.level() {
        0 => try_move_leaf(index, (r, rv), workspace),
        // All that it has: its neighbour takes nothing.
        _ => nodes::try_shift(index, r, 0),
    }
}

fn try_move_leaf(
    index: &Index,
    (r, rv): (Ref, View),
    workspace: &mut Workspace,
) -> Result<bool, Retry> {
    if rv.b.has(LEFTMOST) || rv.b.ndead() > 0 || relink::stays(rv.b) {
        return Ok(false);
    }
    let Some((left, lv)) = left_of(*index, r) else { return Ok(false) };
    let Some(fresh) = copy_of(index, &rv, workspace)? else { return Ok(false) };
    let plan = Relink {
        left: (left, lv),
        content: Content::Same,
        range_end: RangeEnd::of(lv.b),
        rights: &[(r, rv)],
        next: fresh.block().next(),
        new: Some(New { fresh, low: None }),
        ndead: 0,
    };
    Ok(relink(index, plan)?.is_some())
}

/// Copies a leaf into a free block of another extent. Returns None if no other extent has one.
fn copy_of<'a>(
    index: &'a Index,
    rv: &View,
    workspace: &mut Workspace,
) -> Result<Option<Fresh<'a>>, Retry> {
    let (b, memcmp) = (rv.b, index.memcmp());
    let (entries, draft) = workspace.packing();
    entries.load(rv)?;
    let [low, high] = &mut core::array::from_fn(|_| LowKeyCopy::new(index.area));
    if !low.copy(rv) {
        return Err(Retry);
    }
    // Which form it has, too: an insert may give it the other one from here on.
    let (packed, class) = (b.has(PACKED), b.class());
    let (next, number, skip, low) = (b.next(), b.high(), b.skip(), low.low());
    let high = match next {
        0 => None,
        next => Some(Low { abbrev: number, ..high.load(next).ok_or(Retry)? }),
    };
    if !rv.valid() {
        return Err(Retry);
    }
    stop!("move: read");
    // Never in new memory. Inserts may have taken the free room, and the old leaf is free only when
    // this section is over.
    let Some(fresh) = Fresh::among(index.allocator(), index.area, class) else { return Ok(None) };
    let f = fresh.block();
    if packed {
        let all = EntryRange(entries, 0..entries.len());
        if !arrange(draft, &all, &low, high.as_ref(), skip, class, Grows::Keys) {
            // The leaf was arranged with entries that are gone now. With the widths of a new
            // arrangement the others may not fit (`Shape::content`).
            return Ok(None);
        }
        init_packed(f, draft, class, 0, &low, skip);
    } else {
        let flags = if memcmp { 0 } else { WHOLE };
        let side = f.first_side();
        entries.write(LeafWriter::new(f, class, flags, low, skip), 0..entries.len(), side);
    }
    RangeEnd::new(memcmp, low.key, skip, high.as_ref()).store(f, next);
    Ok(Some(fresh))
}

#[cfg(all(test, not(loom), not(shuttle)))]
#[path = "../tests/moves.rs"]
mod tests;
