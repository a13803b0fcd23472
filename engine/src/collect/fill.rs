//! Leaves that fill up: one that is not full takes entries from the front of its right neighbour.
//!
//! Removals leave neighbours that are not full and do not fit one leaf together. B takes as many
//! entries of its right neighbour R as it has room for; the others become a new leaf F. A low key
//! never changes: F has a greater one than R, and R is DEAD. It is a merge that leaves something
//! over, under the latches of a merge, and in one exclusive phase of B and of the index node M, as
//! where a leaf moves: N.prev = F for R's right neighbour N, R's separator in M becomes that of F,
//! B gets its entries and the range up to F, and R is DEAD and leads to B.
//! * a process that comes to B or M waits for the end of the phase, and finds the entries of R in B
//!   or F;
//! * a process that has read B or M before goes to R. If R is alive, it has the same entries. If R
//!   is DEAD, the process goes to B, which is never too far right. F would be too far right for
//!   keys that B has taken;
//! * a forward scan that read B before reads R, or finds it DEAD and searches behind the last key
//!   it has seen, in B. One that reads B after goes to F. Never both, because `next` and entries
//!   are of one state;
//! * a backward scan on N reads F, which is complete, and then waits for B. One that is on R finds
//!   that B does not lead to it, and searches;
//! * an insert or a removal that found its place in R, or in B: its latch fails.
//!
//! From the first latch on only the checks of a merge can fail. F, which is not published, is freed
//! then. R stays if it cannot be merged, or if its index node has no room for F's separator.

use crate::collect::absorb::end_of;
use crate::collect::workspace::{Pair, Workspace, undisturbed};
use crate::collect::{absorb, merge, relink};
use crate::index::root::Index;
use crate::key::bytes::common;
use crate::memory::place::Ref;
use crate::node::block::{DIRTY, EXACT, LOWBIG, Retry, View};
use crate::node::low_key::{Low, LowKeyCopy, MAX_SKIP, RangeEnd};
use crate::node::packing::{
    EntryRange, MOST, arrange_shaped, extend, init_packed, packed_class, shape_of,
};
use crate::node::{packing, pin};
use crate::packed::Shape;
use crate::sync::mutants::mutant;
use crate::sync::stop::stop;
use crate::tree::drop;
use crate::tree::drop::SPARSE;
use core::sync::atomic::Ordering::*;

/// A leaf of which so much of what may be used is used, in hundredths, is full.
const ENOUGH: usize = 88;
/// A leaf takes at least such a part of what it has: less is not worth it.
const WORTH: usize = 16;
/// As many blocks may wait for the barrier: while somebody stays inside, new leaves would take new
/// memory.
pub(crate) const WAITING: u32 = 128;

/// A leaf of which not enough is used takes entries from its right neighbours, up to `full`
/// hundredths; true if it has taken all of some, and might take more. Collector only, inside the
/// barrier.
pub(crate) fn fill(index: &Index, leaf: Ref, full: usize, workspace: &mut Workspace) -> bool {
    undisturbed(|| try_fill(index, leaf, full, workspace))
}

/// Everything is prepared from copies; the latches are given only if nothing has changed since.
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
    let r = rv.b;
    let room = b.size() * full / 100;
    // Full, and too full for all of the other one. What slots would take when they are packed is
    // not known.
    let used = |v: &View| Ok(v.packed()?.map_or(0, |leaf| leaf.used()));
    let (mine, more) = (used(&v)?, used(&rv)?);
    let enough = mine >= room * ENOUGH / 100 && mine + more > room && more > 0;
    let pinned = || pin::has_pins(r) && !mutant!("a leaf with pins gives no entries");
    let stays = || r.has(DIRTY) || b.ndead() > 0 || r.ndead() > 0;
    if enough || r.parent() == 0 || stays() || pinned() {
        return Ok(false);
    }
    if v.entries()? + rv.entries()? == 0 {
        return merge::try_absorb_right(index, leaf, workspace);
    }
    if r.next() == 0 {
        // The last leaf stays as it is, but for a sparse one before it.
        return if v.is_sparse(SPARSE) {
            merge::try_absorb_right(index, leaf, workspace)
        } else {
            Ok(false)
        };
    }
    let mut pair = workspace.load(leaf, &v, &rv)?;
    let [low, old, high] = &mut core::array::from_fn(|_| LowKeyCopy::new(index.area));
    if !low.copy(&v) || !old.copy(&rv) {
        return Err(Retry);
    }
    let (low, old) = (low.low(), old.low());
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
    let Pair { entries, draft, shape, own, .. } = pair;
    let (next, number) = end_of(&rv)?;
    let high = Low { abbrev: number, ..high.load(next).ok_or(Retry)? };
    let all = EntryRange(entries, 0..entries.len());
    extend(shape, &all, |shape| fits(shape, &all));
    let (memcmp, cut, n) = (index.memcmp(), shape.entries(), entries.len());
    // While somebody stays inside, what is given up is not free for what is new.
    if cut <= own + own / WORTH || index.garbage() >= WAITING {
        return Ok(false);
    }
    let sep = Low::between(memcmp, &entries.get(cut - 1), &entries.get(cut));
    let skip = packing::skip_of(index.memcmp(), &sep, Some(&high));
    // As large as R, and for its low key.
    let class = [r.class(), packed_class(sep.size(0))].into_iter().max_by_key(|c| c.size());
    let class = class.expect("one of two");
    let rest = EntryRange(entries, cut..n);
    let left = shape_of(&rest);
    if !arrange_shaped(draft, &rest, &left, &sep, Some(&high), skip, class) {
        return Ok(false);
    }
    let Ok(fresh) = index.fresh(class) else { return Ok(false) };
    let f = fresh.block();
    init_packed(f, draft, class, 0, &sep, skip);
    RangeEnd::new(memcmp, sep.key, skip, Some(&high)).store(f, next);
    f.set_prev(leaf);
    let skip = packing::skip_of(index.memcmp(), &low, Some(&sep));
    if !arrange_shaped(
        draft,
        &EntryRange(entries, 0..cut),
        shape,
        &low,
        Some(&sep),
        skip,
        b.class(),
    ) {
        return Ok(false);
    }
    let range_end = RangeEnd::new(memcmp, low.key, skip, Some(&sep));
    let shared = common(old.key, sep.key);

    stop!("fill: built");
    // From left to right.
    let latch = v.latch().ok_or(Retry)?;
    stop!("fill: left latched");
    let Some(right_latch) = rv.latch() else {
        latch.release();
        return Err(Retry);
    };
    stop!("fill: right latched");
    // What is packed has no terms: see `collect/merge.rs`.
    let snapshots =
        !index.shared().snapshots.quiet() && !mutant!("a leaf that fills up looks for snapshots");
    let stays =
        stays() && !mutant!("a leaf that fills up looks again for what was marked") || pinned();
    let first = usize::from(!mutant!("a first child gives no entries"));
    let separator = match snapshots || stays {
        true => None,
        false => relink::separator_latched(index, right, first),
    };
    let Some((node_latch, rank)) = separator else {
        right_latch.release();
        latch.release();
        return Ok(false);
    };
    stop!("fill: separator latched");
    let m = node_latch.b();
    // A separator that does not share what the node leaves out has no number there.
    if shared < m.skip() && !mutant!("a separator that changes shares what its node leaves out") {
        node_latch.release();
        right_latch.release();
        latch.release();
        return Ok(false);
    }
    f.set_parent(r.parent());
    let (new, new_latch) = fresh.latch();
    let slot = node_latch.v.slot(rank);
    let (number, exact) = sep.number(memcmp, m.skip());
    node_latch.exclude();
    m.set_perm(node_latch.other(), &m.perm(node_latch.v.side()));
    m.set_mask(node_latch.other(), node_latch.v.mask());
    m.set_prefix(slot, number);
    m.set_child(slot, new | if exact { EXACT } else { 0 });
    stop!("fill: node excluded");
    if !mutant!("a leaf that fills up tells the leaf behind its neighbour") {
        index.block(next).set_prev(new);
    }
    stop!("fill: prev leads to new");
    let latch = packing::pack(latch, draft, &low, skip, &range_end, new);
    stop!("fill: left finished");
    if mutant!("a leaf that gave its entries is dead") {
        right_latch.release();
    } else {
        right_latch.kill(leaf);
    }
    stop!("fill: right dead");
    node_latch.finish();
    stop!("fill: node finished");
    let _ = index.shared().last.compare_exchange(right, 0, AcqRel, Relaxed);
    let ver = new_latch.v.ver;
    new_latch.release();
    latch.release();
    stop!("fill: released");
    if r.has(LOWBIG) {
        drop::unref_chunk(index, r.low_chunk());
    }
    index.retire(right);
    workspace.hold(cut, left, new, ver);
    Ok(false)
}
