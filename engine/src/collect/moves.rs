//! Leaves and index nodes that move, so that memory becomes free in one piece.
//!
//! After removals here and there, and after a sweep, every extent has some of them left. The
//! collector takes a sparse one out of service, moves what is in it to free blocks of others, and
//! it is idle.
//!
//! A leaf R moves to F under the latches of its left neighbour B, its own, and that of the index
//! node M with its separator. F is a copy of one state of R, latched before anything leads to it.
//! In one exclusive phase of B and M: N.prev = F for R's right neighbour N, R's separator in M
//! leads to F, B's `next` = F, and R is DEAD and leads to F, which has the same range.
//! * who comes to B or M waits for the end of the phase, some tens of nanoseconds, and finds F;
//! * who has read B before goes to R: alive, with the same entries, or DEAD, and searches;
//! * who has read M before finds R, or DEAD what leads to F;
//! * a backward scan on N reads F, which is complete, and then B, which leads to it. One that is on
//!   R finds that B does not lead to it, and searches;
//! * who looks for M's low key at its first child, and that is R: DEAD, he looks at M again.
//! * an insert or a removal that found its place in R: its latch fails.
//!
//! Nothing can fail from the first latch on; what fails before gives F back, which nobody has seen.
//!
//! R does not move while it has no separator (a promotion is on its way), or dead entries, or pins
//! (a walk stands there), or is on a list (which would lead astray), or is the first leaf.
//!
//! How an index node moves: `collect/nodes.rs`. The first index node stays, since the root leads to
//! it.

use crate::collect::workspace::{Workspace, undisturbed};
use crate::collect::{nodes, relink};
use crate::index::root::Index;
use crate::memory::place::Ref;
use crate::node::block::{DIRTY, EXACT, LEFTMOST, PACKED, Retry, View, WHOLE};
use crate::node::fresh::Fresh;
use crate::node::low_key::{Low, LowKeyCopy, RangeEnd};
use crate::node::packing::{EntryRange, arrange, init_packed};
use crate::node::pin;
use crate::node::writer::LeafWriter;
use crate::packed::Grows;
use crate::sync::mutants::mutant;
use crate::sync::stop::stop;
use crate::tree::seek::left_of;
use core::sync::atomic::Ordering::*;

/// Moves leaves out of sparse extents, up to about `budget` of them; returns how many. Collector
/// only, inside the barrier.
pub(crate) fn leave_sparse_extents(index: &Index, budget: usize) -> usize {
    let allocator = index.allocator();
    allocator.begin_round(&index.area);
    // While somebody stays inside, what has moved before still takes its old place.
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

/// Moves what is in this block, if it is a node of the index that can move.
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
    let memcmp = index.memcmp();
    let b = rv.b;
    let pinned = || pin::has_pins(b) && !mutant!("a leaf with pins does not move");
    let stays = || b.has(DIRTY) || b.ndead() > 0 || pinned();
    if b.has(LEFTMOST) || b.parent() == 0 || stays() {
        return Ok(false);
    }
    let Some((left, lv)) = left_of(*index, r) else { return Ok(false) };
    let (entries, draft) = workspace.packing();
    entries.load(&rv)?;
    let [low, high] = &mut core::array::from_fn(|_| LowKeyCopy::new(index.area));
    if !low.copy(&rv) {
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
    // Never in new memory: inserts may have taken the room that was there, and what is left behind
    // is free only when this section is over.
    let Some(fresh) = Fresh::among(index.allocator(), index.area, class) else { return Ok(false) };
    let f = fresh.block();
    if packed {
        let all = EntryRange(entries, 0..entries.len());
        if !arrange(draft, &all, &low, high.as_ref(), skip, class, Grows::Keys) {
            // It was arranged with entries that are gone, and has hardly room for what is left
            // (`Shape::content`).
            return Ok(false);
        }
        init_packed(f, draft, class, 0, &low, skip);
    } else {
        let flags = if memcmp { 0 } else { WHOLE };
        let side = f.first_side();
        entries.write(LeafWriter::new(f, class, flags, low, skip), 0..entries.len(), side);
    }
    RangeEnd::new(memcmp, low.key, skip, high.as_ref()).store(f, next);
    f.set_prev(left);

    stop!("move: built");
    let latch = lv.latch().ok_or(Retry)?;
    stop!("move: left latched");
    let Some(old_latch) = rv.latch() else {
        latch.release();
        return Err(Retry);
    };
    stop!("move: old latched");
    let separator = if stays() { None } else { relink::separator_latched(index, r, 0) };
    let Some((node_latch, rank)) = separator else {
        old_latch.release();
        latch.release();
        return Ok(false);
    };
    stop!("move: separator latched");
    f.set_parent(b.parent());
    let (new, new_latch) = fresh.latch();
    let (left, m, slot) = (latch.b(), node_latch.b(), node_latch.v.slot(rank));
    latch.exclude();
    node_latch.exclude();
    stop!("move: excluded");
    if !left.has(PACKED) {
        left.set_perm(latch.other(), &left.perm(latch.v.side()));
        left.set_mask(latch.other(), latch.v.mask());
    }
    left.set_next(new);
    m.set_perm(node_latch.other(), &m.perm(node_latch.v.side()));
    m.set_mask(node_latch.other(), node_latch.v.mask());
    if !mutant!("the separator of a leaf that moves leads to it") {
        m.set_child(slot, new | m.child(slot) & EXACT);
    }
    if next != 0 && !mutant!("a leaf that moves tells the right neighbour") {
        index.block(next).set_prev(new);
    }
    stop!("move: new linked");
    if mutant!("a leaf that has moved is dead") {
        old_latch.release();
    } else {
        old_latch.kill(new);
    }
    stop!("move: old dead");
    node_latch.finish();
    stop!("move: node finished");
    latch.finish();
    stop!("move: left finished");
    let _ = index.shared().last.compare_exchange(r, 0, AcqRel, Relaxed);
    new_latch.release();
    stop!("move: new released");
    index.retire(r);
    Ok(true)
}

#[cfg(all(test, not(loom), not(shuttle)))]
#[path = "../tests/moves.rs"]
mod tests;
