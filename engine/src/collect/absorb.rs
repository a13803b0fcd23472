//! Absorbing: a leaf gets the entries of right neighbours, which are DEAD then. The protocol, in
//! `collect/merge.rs`.

use super::nodes::SPARSE_NODE;
use crate::collect::workspace::Pair;
use crate::collect::{nodes, relink};
use crate::index::root::Index;
use crate::memory::place::Ref;
use crate::node::block::{
    Block, DIRTY, EXACT, LOWBIG, Latch, PACKED, Retry, View, WHOLE, keep_slots,
};
use crate::node::low_key::{Low, LowKeyCopy, RangeEnd};
use crate::node::packing::{EntryRange, arrange_shaped};
use crate::node::{packing, pin};
use crate::packed::{Draft, Shape, Sorted};
use crate::sync::mutants::mutant;
use crate::sync::stop::stop;
use crate::tree::drop;
use core::sync::atomic::Ordering::*;

/// As many leaves are absorbed at once: who comes from behind them walks past all of them, a few
/// steps (`left_of`).
pub(crate) const AT_ONCE: usize = 6;

/// What a leaf becomes that absorbs its right neighbours.
pub(crate) struct Absorbed<'a> {
    pub(crate) content: Content<'a>,
    pub(crate) low: Low<'a>,
    pub(crate) skip: usize,
    pub(crate) range_end: RangeEnd,
    /// The leaf behind them.
    pub(crate) next: Ref,
    /// How many dead entries were copied.
    pub(crate) ndead: usize,
}

pub(crate) enum Content<'a> {
    Packed(&'a Draft),
    /// With these flags.
    Slots(Block, u8),
}

/// Right neighbours that a leaf has room for.
pub(crate) struct Gathered {
    rights: [(Ref, View); AT_ONCE],
    n: usize,
}

impl Gathered {
    pub(crate) fn is_empty(&self) -> bool {
        self.n == 0
    }

    fn rights(&self) -> &[(Ref, View)] {
        &self.rights[..self.n]
    }
}

/// The right neighbour, and those behind it, as many as fit into one packed leaf; all entries of a
/// pair can be packed. The shape of the pair is that of the entries of those that fit.
pub(crate) fn gather(
    index: &Index,
    right: (Ref, View),
    pair: &mut Pair<'_>,
    fits: impl Fn(&Shape, &EntryRange<'_>) -> bool,
) -> Result<Gathered, Retry> {
    let (entries, shape) = (&mut *pair.entries, &mut *pair.shape);
    shape.extend(&EntryRange(entries, 0..pair.own), pair.own);
    let mut gathered = Gathered { rights: [right; AT_ONCE], n: 0 };
    // At most `AT_ONCE` turns.
    loop {
        let all = EntryRange(entries, 0..entries.len());
        let mut longer = shape.clone();
        longer.extend(&all, all.len());
        if !fits(&longer, &all) {
            return Ok(gathered);
        }
        *shape = longer;
        gathered.n += 1;
        let Some(coming) = goes_along(index, gathered.rights())? else { return Ok(gathered) };
        entries.load(&coming.1)?;
        gathered.rights[gathered.n] = coming;
    }
}

/// The leaf behind these neighbours that can be absorbed together with them, if there is one.
fn goes_along(index: &Index, rights: &[(Ref, View)]) -> Result<Option<(Ref, View)>, Retry> {
    let ([(_, first), .., (_, last)] | [(_, first @ last)]) = rights else { return Ok(None) };
    let next = last.b.next();
    if last.dead() || !last.valid() {
        return Err(Retry);
    }
    if rights.len() == AT_ONCE || next == 0 {
        return Ok(None);
    }
    let v = index.block(next).view();
    let b = v.b;
    // The last leaf stays as it is, and only packed ones certainly can be packed.
    let able = b.next() != 0
        && b.parent() == first.b.parent()
        && b.has(PACKED)
        && !b.has(DIRTY)
        && !pin::has_pins(b)
        && !v.dead();
    Ok(able.then_some((next, v)))
}

/// The leaf absorbs those that were gathered, as a packed leaf; returns its version then, and
/// nothing is done if it must not be.
pub(crate) fn absorb_gathered(
    index: &Index,
    (leaf, v): (Ref, View),
    gathered: &Gathered,
    low: Low<'_>,
    pair: Pair<'_>,
) -> Result<Option<u64>, Retry> {
    let Pair { entries, shape, draft, .. } = pair;
    let (next, high) = match gathered.rights().last() {
        Some((_, last)) => end_of(last)?,
        None => return Ok(None),
    };
    let mut buffer = LowKeyCopy::new(index.area);
    let high = match next {
        0 => None,
        next => Some(Low { abbrev: high, ..buffer.load(next).ok_or(Retry)? }),
    };
    let skip = packing::skip_of(index.memcmp(), &low, high.as_ref());
    let all = EntryRange(entries, 0..shape.entries());
    if !arrange_shaped(draft, &all, shape, &low, high.as_ref(), skip, v.b.class()) {
        return Ok(None);
    }
    let range_end = RangeEnd::new(index.memcmp(), low.key, skip, high.as_ref());
    let content = Content::Packed(draft);
    let absorbed = Absorbed { content, low, skip, range_end, next, ndead: 0 };
    absorb(index, (leaf, v), gathered.rights(), absorbed)
}

/// The left leaf becomes what was prepared from these states, and of its right neighbours, at most
/// [`AT_ONCE`]; returns its version then. Nothing is done if it must not be.
pub(crate) fn absorb(
    index: &Index,
    (leaf, v): (Ref, View),
    rights: &[(Ref, View)],
    absorbed: Absorbed<'_>,
) -> Result<Option<u64>, Retry> {
    let Absorbed { content, low, skip, range_end, next, ndead } = absorbed;
    let b = v.b;
    stop!("merge: built");
    // From left to right. None of them is DEAD: that takes the latch of its left neighbour.
    let latch = v.latch().ok_or(Retry)?;
    stop!("merge: left latched");
    let Some(right_latches) = Latches::of(rights) else {
        latch.release();
        return Err(Retry);
    };
    stop!("merge: right latched");
    let dead_now: usize = rights.iter().map(|(_, rv)| rv.b.ndead() as usize).sum();
    let marked = b.ndead() as usize + dead_now != ndead
        && !mutant!("a merge looks again for what was marked");
    let first = usize::from(!mutant!("the first child is not merged"));
    // Only slots could tell them when entries were born.
    let snapshots = matches!(content, Content::Packed(_))
        && !index.shared().snapshots.quiet()
        && !mutant!("a merge into a packed leaf looks for snapshots");
    let stays = marked || rights.iter().any(|(_, rv)| relink::stays(rv.b)) || snapshots;
    let separators = if stays { None } else { separators_latched(index, rights, first) };
    let Some((node_latch, rank)) = separators else {
        right_latches.each(Latch::release);
        latch.release();
        return if marked { Err(Retry) } else { Ok(None) };
    };
    stop!("merge: separator latched");
    let node = rights[0].1.b.parent();
    let separators = remove_separators(node_latch, rank, rights.len());
    stop!("merge: separator removed");
    if next != 0 {
        if !mutant!("a merge tells the right neighbour") {
            index.block(next).set_prev(leaf);
        }
        stop!("merge: prev leads to left");
    }
    let latch = match content {
        Content::Packed(draft) => packing::pack(latch, draft, &low, skip, &range_end, next),
        Content::Slots(content, flags) => {
            latch.exclude();
            b.copy_from(content, latch.other());
            b.set_flag(WHOLE, flags & WHOLE != 0);
            b.set_flag(PACKED, false);
            range_end.store(b, next);
            stop!("merge: left excluded");
            latch.finish_latched()
        }
    };
    let ver = latch.v.ver;
    latch.release();
    stop!("merge: left finished");
    right_latches.each(|right| {
        if mutant!("a leaf that was merged is dead") {
            right.release();
        } else {
            right.kill(leaf);
        }
        stop!("merge: right dead");
    });

    let root = index.shared();
    for &(right, rv) in rights {
        if !mutant!("a merge forgets where inserts append") {
            let _ = root.last.compare_exchange(right, 0, AcqRel, Relaxed);
        }
        stop!("merge: append forgotten");
        if rv.b.has(LOWBIG) {
            drop::unref_chunk(index, rv.b.low_chunk());
        }
        index.retire(right);
        root.counters.leaves.fetch_sub(1, Relaxed);
        root.counters.merges.fetch_add(1, Relaxed);
    }
    if separators <= SPARSE_NODE {
        nodes::merge_node(index, node);
    }
    Ok(Some(ver))
}

/// The index node with the separators of these latched leaves, neighbours, latched, and the rank of
/// the first one there, unless it is before `first`, or the others are elsewhere.
fn separators_latched(
    index: &Index,
    leaves: &[(Ref, View)],
    first: usize,
) -> Option<(Latch, usize)> {
    let (latch, rank) = relink::separator_latched(index, leaves[0].0, first)?;
    let n = latch.v.mask().count_ones() as usize;
    let child = |rank| latch.b().child(latch.v.slot(rank)) & !EXACT;
    let here = rank + leaves.len() <= n
        && leaves.iter().enumerate().all(|(i, &(leaf, _))| child(rank + i) == leaf);
    if here {
        Some((latch, rank))
    } else {
        latch.release();
        None
    }
}

/// Removes `gone` separators from this rank on. Returns the number of those that are left.
fn remove_separators(latch: Latch, rank: usize, gone: usize) -> usize {
    let b = latch.b();
    let mask = latch.v.mask();
    let n = mask.count_ones() as usize;
    let slots = (rank..rank + gone).fold(0, |slots, rank| slots | 1 << latch.v.slot(rank));
    let keep = if mutant!("a merge removes the separator") { mask } else { mask & !slots };
    b.set_perm(latch.other(), &keep_slots(&b.perm(latch.v.side()), n, keep).0);
    b.set_mask(latch.other(), keep);
    latch.publish();
    n - gone
}

/// The right neighbour in this state of a leaf, and the number of its low key.
pub(crate) fn end_of(v: &View) -> Result<(Ref, u64), Retry> {
    let end = (v.b.next(), v.b.high());
    if v.dead() || !v.valid() { Err(Retry) } else { Ok(end) }
}

/// The latches of neighbours.
struct Latches([Option<Latch>; AT_ONCE]);

impl Latches {
    /// From left to right, all or none.
    fn of(leaves: &[(Ref, View)]) -> Option<Latches> {
        debug_assert!(leaves.len() <= AT_ONCE);
        let mut latches = Latches([const { None }; AT_ONCE]);
        for (to, (_, v)) in latches.0.iter_mut().zip(leaves) {
            *to = v.latch();
            if to.is_none() {
                latches.each(Latch::release);
                return None;
            }
        }
        Some(latches)
    }

    /// Gives all of them up in this way.
    fn each(self, mut end: impl FnMut(Latch)) {
        self.0.into_iter().flatten().for_each(&mut end);
    }
}
