//! Merging a run with its leaf, into one packed leaf or two.
//!
//! Old and new entries are merged in private memory and packed anew. If one leaf has no room for
//! them, a new leaf comes behind it. That is a relinking (`tree/relink.rs`) in which the entries of
//! the leaf are not those that it had before. A leaf of slots becomes packed, and its entries lose
//! their terms: the caller has found no snapshot, in the state of the leaf that is merged.

use crate::index::root::Index;
use crate::memory::place::Ref;
use crate::node::block::{PACKED, Retry};
use crate::node::entries::Entries;
use crate::node::fresh::Fresh;
use crate::node::low_key::{Low, LowKeyCopy, MAX_SKIP, RangeEnd};
use crate::node::packing::{
    self, EntryRange, MOST, arrange_shaped, extend, init_packed, packable, packed_class, shape_of,
    skip_of,
};
use crate::packed::{Draft, Shape, Sorted};
use crate::sync::mutants::mutant;
use crate::sync::stop::stop;
use crate::tree::copied::{CopiedEnds, copy_ends};
use crate::tree::cutting::fresh_half;
use crate::tree::relink::{Content, New, Relink, Relinked, relink};
use crate::tree::reserve::Reserve;
use crate::tree::seek::Position;
use core::ops::Range;
use core::sync::atomic::Ordering::*;

/// Bytes of a TID that is not packed.
const TID_BYTES: usize = 6;

/// What a merge has done.
pub(super) struct Merged {
    /// How many entries of the run are in the index now,
    pub(super) done: usize,
    /// and how many of these were not before.
    pub(super) inserted: usize,
    /// The new leaf, which wants its separator in level 1.
    pub(super) new: Option<Ref>,
}

/// Merges the first entries of a run with their leaf, under a term. None: nothing has changed, and
/// single inserts can do it.
pub(super) fn merge(
    index: &Index,
    spot: &Position,
    entries: &impl Sorted,
    run: Range<usize>,
    reserve: &mut Reserve<'_>,
) -> Option<Merged> {
    let mut run = run.start..end_of(spot, entries, run);
    // With half as many the last entry of the leaf may have room in the new one.
    while run.len() > 1 {
        match try_merge(index, spot, entries, run.clone(), reserve) {
            Ok(Some(merged)) => return Some(merged),
            Ok(None) => run.end = run.start + run.len() / 2,
            Err(Retry) => return None,
        }
    }
    None
}

/// The end of the entries of a run that two leaves may have room for. To merge more would be in
/// vain.
fn end_of(spot: &Position, entries: &impl Sorted, run: Range<usize>) -> usize {
    // Packed keys take about half of their bytes.
    let mut room = 2 * spot.v.b.size();
    let full = run.clone().find(|&i| {
        let bytes = entries.key(i).len() + TID_BYTES;
        let full = bytes > room;
        room = room.saturating_sub(bytes);
        full
    });
    full.map_or(run.end, |end| end.max(run.start + 2).min(run.end))
}

/// Old and new entries of a leaf, merged.
struct All<'a> {
    entries: &'a Entries,
    /// For each entry of the run how many there are up to it, and whether it was added.
    placed: Vec<(usize, bool)>,
    /// The leaf had this many entries, and the last of them is before this one now.
    old: usize,
    old_end: usize,
    /// Leaves are filled to this percentage.
    percent: usize,
}

impl All<'_> {
    fn range(&self, range: Range<usize>) -> EntryRange<'_> {
        EntryRange(self.entries, range)
    }

    /// The result of a merge after which the first `end` of all entries are in the index.
    fn merged(&self, end: usize, new: Option<Ref>) -> Merged {
        let done = self.placed.partition_point(|&(upto, _)| upto <= end);
        let inserted = self.placed[..done].iter().filter(|(_, came)| *came).count();
        Merged { done, inserted, new }
    }
}

/// Merges a run with its leaf. Returns None if two leaves have no room for all, or there is no
/// memory. Err: the leaf has changed, or cannot be packed.
fn try_merge(
    index: &Index,
    spot: &Position,
    run_entries: &impl Sorted,
    run: Range<usize>,
    reserve: &mut Reserve<'_>,
) -> Result<Option<Merged>, Retry> {
    let v = spot.v;
    let ((entries, _), draft) = reserve.packing();
    let (low, high) = (&mut LowKeyCopy::new(index.area), &mut LowKeyCopy::new(index.area));
    entries.clear();
    entries.load(&v)?;
    let ends = copy_ends(v, low, high)?;
    let old = entries.len();
    if entries.ndead() > 0 || !packable(entries, 0..old) {
        return Err(Retry);
    }
    let more = run.end < run_entries.len();
    let placed = entries.merge(run_entries, run);
    let m = entries.len();
    let came_last = |&(i, &(upto, came)): &(usize, &(usize, bool))| came && upto == m - i;
    let old_end = m - placed.iter().rev().enumerate().take_while(came_last).count();
    let percent = index.shared().fillfactor.load(Relaxed) as usize;
    let mut all = All { entries, placed, old, old_end, percent };
    if m == old {
        // All of them were there when the entries were copied.
        return Ok(Some(all.merged(m, None)));
    }
    let mut shape = fitting(&all, 0..m, &ends.low, v.b.size());
    if 2 * shape.entries() <= old && !mutant!("a run may fill leaves that are full") {
        // Two leaves that are filled to the fillfactor have no room for those of this one.
        all.percent = 100;
        shape = fitting(&all, 0..m, &ends.low, v.b.size());
    }
    if shape.entries() == m {
        return one_leaf(spot, &all, &ends, &shape, draft);
    }
    let full = shape.entries();
    if full == 0 {
        return Err(Retry);
    }
    let cut = if v.b.has(PACKED) && old_end == old && full <= old {
        // All come behind a leaf that is full.
        old
    } else if more || ends.next == 0 {
        // More of the same comes behind the run: the leaf stays full.
        full
    } else {
        full.min(m / 2)
    };
    two_leaves(index, spot, &all, &ends, cut, draft)
}

/// The shape of as many entries of this range as fill a packed leaf.
fn fitting(all: &All<'_>, range: Range<usize>, low: &Low<'_>, size: usize) -> Shape {
    let (entries, percent) = (&all.range(range), all.percent);
    let mut shape = Shape::default();
    extend(&mut shape, entries, |shape| {
        shape.entries() <= MOST * percent / 100
            && shape.size(entries, low.size(MAX_SKIP), size) <= size * percent / 100
    });
    shape
}

/// Packs old and new entries in the leaf.
fn one_leaf(
    spot: &Position,
    all: &All<'_>,
    ends: &CopiedEnds<'_>,
    shape: &Shape,
    draft: &mut Draft,
) -> Result<Option<Merged>, Retry> {
    let (b, low, high, m) = (spot.v.b, &ends.low, ends.high.as_ref(), all.entries.len());
    let skip = skip_of(true, low, high);
    if !arrange_shaped(draft, &all.range(0..m), shape, low, high, skip, b.class()) {
        return Ok(None);
    }
    let range_end = RangeEnd::new(true, low.key, skip, high);
    stop!("merge: built");
    let latch = spot.v.latch().ok_or(Retry)?;
    stop!("merge: latched");
    // A snapshot that was given up meanwhile may have left an entry that is marked dead.
    if latch.b().ndead() > 0 && !mutant!("a merge of a run looks for what was marked") {
        latch.release();
        return Err(Retry);
    }
    packing::pack(latch, draft, low, skip, &range_end, ends.next).release();
    stop!("merge: finished");
    Ok(Some(all.merged(m, None)))
}

/// Leaves the first `cut` entries in the leaf, and makes a new one for as many of the others as it
/// has room for. These are all that the leaf had.
fn two_leaves(
    index: &Index,
    spot: &Position,
    all: &All<'_>,
    ends: &CopiedEnds<'_>,
    cut: usize,
    draft: &mut Draft,
) -> Result<Option<Merged>, Retry> {
    let (v, entries) = (spot.v, all.entries);
    let sep = Low::between(true, &entries.get(cut - 1), &entries.get(cut));
    let class = packed_class(sep.size(0));
    let rest = fitting(all, cut..entries.len(), &sep, class.size());
    let end = cut + rest.entries();
    if end == cut || end < all.old_end {
        return Ok(None);
    }
    let Some(fresh) = right_leaf(index, all, cut..end, &rest, &sep, ends, draft) else {
        return Ok(None);
    };
    let low = &ends.low;
    let skip = skip_of(true, low, Some(&sep));
    let content = if cut == all.old && all.old_end == all.old && v.b.has(PACKED) {
        Content::Same
    } else {
        let left = all.range(0..cut);
        let shape = shape_of(&left);
        if !arrange_shaped(draft, &left, &shape, low, Some(&sep), skip, v.b.class()) {
            return Ok(None);
        }
        Content::Packed { draft, low: *low, skip }
    };
    let skip = if matches!(content, Content::Same) { v.b.skip() } else { skip };
    let plan = Relink {
        left: (spot.leaf, v),
        content,
        range_end: RangeEnd::new(true, low.key, skip, Some(&sep)),
        rights: &[],
        new: Some(New { fresh, low: None }),
        next: ends.next,
        ndead: 0,
    };
    // No node dies, so none has to stay.
    let Relinked { new: (new, _), .. } = relink(index, plan)?.ok_or(Retry)?;
    index.shared().counters.leaf_split();
    Ok(Some(all.merged(end, Some(new))))
}

/// The new leaf with these entries. None: there is no room, or no memory.
fn right_leaf<'a>(
    index: &'a Index,
    all: &All<'_>,
    range: Range<usize>,
    shape: &Shape,
    sep: &Low<'_>,
    ends: &CopiedEnds<'_>,
    draft: &mut Draft,
) -> Option<Fresh<'a>> {
    let (class, high) = (packed_class(sep.size(0)), ends.high.as_ref());
    let skip = skip_of(true, sep, high);
    if !arrange_shaped(draft, &all.range(range), shape, sep, high, skip, class) {
        return None;
    }
    let fresh = fresh_half(index, class).ok()?;
    init_packed(fresh.block(), draft, class, 0, sep, skip);
    RangeEnd::new(true, sep.key, skip, high).store(fresh.block(), ends.next);
    Some(fresh)
}
