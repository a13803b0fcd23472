//! Cutting a packed leaf: the reason, the place, and the halves, made without decoding entries.

use crate::index::root::Index;
use crate::key::order::{KeyOrder, Tid};
use crate::memory::area::OutOfMemory;
use crate::memory::class::Class;
use crate::memory::place::Ref;
use crate::node::block::{MIN_FREE, View, WHOLE};
use crate::node::empty::leaf_class;
use crate::node::entry::Entry;
use crate::node::fresh::Fresh;
use crate::node::low_key::{Low, LowKeyCopy, MAX_INLINE_LOW, RangeEnd};
use crate::node::packing::{WIDE, init_packed, packed_class, skip_of, stored};
use crate::node::probe::Probe;
use crate::node::writer::LeafWriter;
use crate::packed::{Bounds, Coming, Draft, Grows, Leaf, PART};
use crate::tree::copied::{CopiedEnds, copy_ends};
use crate::tree::outcome::Outcome;
use crate::tree::seek::Position;
use crate::tree::tid_order;
use core::sync::atomic::Ordering::*;

/// The reason for the cut of a packed leaf.
pub(crate) struct Cutting<'a> {
    pub(crate) leaf: Ref,
    pub(crate) v: View,
    /// The entry that is inserted or removed. For a removal only its TID counts.
    pub(crate) entry: Entry<'a>,
    /// The number of entries in front of it. For a removal, its own rank.
    pub(crate) rank: usize,
    pub(crate) grows: Grows,
}

impl<'a> Cutting<'a> {
    /// Makes the reason for an entry whose place was searched.
    pub(crate) fn of<O: KeyOrder>(probe: &Probe<'a, O>, spot: &Position) -> Cutting<'a> {
        let (key, abbrev, tid) = (probe.key, probe.abbrev, probe.tid);
        let entry = Entry { key, chunk: 0, abbrev, tid, born: 0, dead: 0 };
        Cutting { leaf: spot.leaf, v: spot.v, entry, rank: spot.place.rank, grows: grows(spot) }
    }

    /// Makes the reason for the removal of the entry at this rank.
    pub(crate) fn to_remove(leaf: Ref, v: View, rank: usize) -> Cutting<'static> {
        let entry = Entry { key: &[], chunk: 0, abbrev: 0, tid: 0, born: 0, dead: 0 };
        Cutting { leaf, v, entry, rank: rank + 1, grows: Grows::Entries }
    }
}

impl Cutting<'_> {
    /// Returns the inserts to expect in the left half, if `cut` entries are left of the cut.
    pub(crate) fn coming_left(&self, cut: usize) -> Coming {
        Coming { grows: self.grows, tid: (self.rank < cut).then_some(self.entry.tid) }
    }

    /// Returns the inserts to expect in the right half.
    pub(crate) fn coming_right(&self, cut: usize) -> Coming {
        let grows = if self.grows == Grows::Below { Grows::Keys } else { self.grows };
        Coming { grows, tid: (self.rank >= cut).then_some(self.entry.tid) }
    }
}

/// Predicts the next inserts from the present one.
pub(crate) fn grows(spot: &Position) -> Grows {
    match spot.place.same {
        Some(_) => Grows::Entries,
        None if spot.place.rank == 0 => Grows::Below,
        None => Grows::Keys,
    }
}

/// Returns how many entries stay on the left when a new one has no room. There are at least two.
/// `end`: the leaf is the last one of the index.
pub(crate) fn where_to_cut(
    index: &Index,
    cutting: &Cutting<'_>,
    n: usize,
    tid_at: impl Fn(usize) -> Tid,
    end: bool,
) -> usize {
    let (rank, tid) = (cutting.rank, cutting.entry.tid);
    let run = tid_order::cut(n, rank, tid, tid_at);
    match run.or((end && rank == n).then_some(n)) {
        Some(cut) if end => {
            let full = n * index.shared().fillfactor.load(Relaxed) as usize / 100;
            cut.min(full).max(1)
        }
        Some(cut) => cut.max(1),
        // New versions of rows come in the order of their keys, from the leaf before. Each key gets
        // another entry, and each insert moves everything behind its place.
        None if rank <= 1 && cutting.grows == Grows::Entries => {
            let twice = cutting.v.packed().ok().flatten().map_or(n, |leaf| leaf.twice(tid));
            twice.clamp(1, n / 2)
        }
        None => n / 2,
    }
}

/// The prepared halves of a cut.
pub(crate) struct Halves<'a, 'l> {
    /// The right half, complete except for `prev`.
    pub(crate) fresh: Fresh<'a>,
    /// The low key of the left half.
    pub(crate) low: Low<'l>,
    /// The number of bytes that its keys share with the low key.
    pub(crate) skip: usize,
    pub(crate) range_end: RangeEnd,
    /// The leaf behind the one that is cut.
    pub(crate) next: Ref,
}

/// Prepares the halves of a packed leaf by copying bits. The left one is in `draft`, most often
/// only its counts. `middle`: the leaf is cut in its middle. Returns None if encoding is better.
pub(crate) fn by_bits<'a, 'l>(
    index: &'a Index,
    cutting: &Cutting<'_>,
    middle: bool,
    low: &'l mut LowKeyCopy,
    high: &'l mut LowKeyCopy,
    draft: &mut Draft,
) -> Result<Option<Halves<'a, 'l>>, Outcome> {
    let (v, class) = (cutting.v, cutting.v.b.class());
    let Some(leaf) = v.packed()?.filter(|leaf| leaf.len() >= 2) else { return Ok(None) };
    let (n, tids) = (leaf.len(), tids_of(&leaf));
    let cut = match middle {
        true => n / 2,
        false => where_to_cut(index, cutting, n, |at| tids[at], v.b.next() == 0),
    };
    let (mut last, mut first) = (Vec::new(), Vec::new());
    let of = |rank: usize, key: &mut Vec<u8>| (leaf.number(rank), leaf.entry(rank, key));
    let (last_of, first_of) = (of(cut - 1, &mut last), of(cut, &mut first));
    let CopiedEnds { low, skip, next, high } = copy_ends(v, low, high)?;
    // The leaf was valid behind all that has been read.
    let entry = |(abbrev, tid), key| Entry { key, chunk: 0, abbrev, tid, born: 0, dead: 0 };
    let first = if cut < n { entry(first_of, &first) } else { cutting.entry };
    let (memcmp, high) = (index.memcmp(), high.as_ref());
    let sep = Low::between(memcmp, &entry(last_of, &last), &first);
    debug_assert!(sep.key.len() <= MAX_INLINE_LOW);
    let (high_key, coming) = (high.map(|high| high.key), cutting.coming_right(cut));
    let right = Bounds { low: sep.key, high: high_key, coming };
    let Some(fresh) = right_half(index, &leaf, cut, class, &sep, (high, &right), draft)? else {
        return Ok(None);
    };
    let new = fresh.block();
    RangeEnd::new(memcmp, sep.key, new.skip(), high).store(new, next);
    let left = Bounds { low: low.key, high: Some(sep.key), coming: cutting.coming_left(cut) };
    let arranged = leaf.copies_well(&(0..cut))
        && (leaf.cut_off(cut, &left, draft)
            || leaf.rearrange(0..cut, None, &left, class.size(), draft));
    // The stored bytes of a low key in a chunk stay as they are.
    let skip = if low.chunk == 0 { skip_of(memcmp, &low, Some(&sep)) } else { skip };
    let range_end = RangeEnd::new(memcmp, low.key, skip, Some(&sep));
    Ok(arranged.then_some(Halves { fresh, low, skip, range_end, next }))
}

/// Makes the leaf with the entries from `cut` on. If there are none, it has slots. Returns None if
/// encoding is better.
fn right_half<'a>(
    index: &'a Index,
    leaf: &Leaf<'_>,
    cut: usize,
    class: Class,
    sep: &Low<'_>,
    (high, bounds): (Option<&Low<'_>>, &Bounds<'_>),
    draft: &mut Draft,
) -> Result<Option<Fresh<'a>>, OutOfMemory> {
    let (ranks, memcmp) = (cut..leaf.len(), index.memcmp());
    let skip = skip_of(memcmp, sep, high);
    if ranks.is_empty() {
        let class = leaf_class(sep.size(skip) + MIN_FREE + 6);
        let fresh = fresh_half(index, class)?;
        let (new, flags) = (fresh.block(), if memcmp { 0 } else { WHOLE });
        LeafWriter::new(new, class, flags, *sep, skip).finish(new.first_side());
        return Ok(Some(fresh));
    }
    let low = stored(sep, skip);
    let fits =
        |&class: &Class| leaf.rearrange(ranks.clone(), Some(&low), bounds, class.size(), draft);
    let well = leaf.copies_well(&ranks);
    let mut classes = right_classes(sep, class).into_iter().filter(|_| well);
    let Some(class) = classes.find(fits) else { return Ok(None) };
    let fresh = fresh_half(index, class)?;
    init_packed(fresh.block(), draft, class, 0, sep, skip);
    Ok(Some(fresh))
}

/// Returns the classes that a packed right half may have. They are at most as large as the leaf,
/// which may be a larger one that had slots for long keys.
pub(crate) fn right_classes(sep: &Low<'_>, class: Class) -> [Class; 3] {
    [packed_class(sep.size(0)), WIDE, class]
}

/// Takes memory for the right half. Fails if there is none for an index node, too, which its
/// separator may need.
pub(crate) fn fresh_half<'a>(index: &'a Index, class: Class) -> Result<Fresh<'a>, OutOfMemory> {
    let fresh = index.fresh(class)?;
    drop(index.fresh(Class::INDEX)?);
    Ok(fresh)
}

/// Returns all TIDs of a leaf.
fn tids_of(leaf: &Leaf<'_>) -> Vec<Tid> {
    let (mut tids, mut part) = (Vec::with_capacity(leaf.len()), [0; PART]);
    for first in (0..leaf.len()).step_by(PART) {
        let n = leaf.tids(first..first + PART, &mut part);
        tids.extend_from_slice(&part[..n]);
    }
    tids
}
