//! Making packed leaves: in a build, from a full leaf of slots, in a merge.

use crate::key::bytes::common;
use crate::key::order::Tid;
use crate::memory::class::Class;
use crate::memory::place::Ref;
use crate::node::block::{Block, CAPACITY, LOWBIG, LOWTID, Latch, MAX_RECORD, MIN_FREE, PACKED};
use crate::node::empty::init_block;
use crate::node::entries::Entries;
use crate::node::low_key::{Low, MAX_SKIP, RangeEnd};
use crate::packed::{Bounds, Coming, Draft, Grows, MAX_ENTRIES, Shape, Sorted, encode};
use crate::sync::stop::stop;
use core::ops::Range;

/// Offset of the low key in a packed leaf.
const LOW: usize = 104;
/// Most entries of a packed leaf. Few under shuttle and in storms.
pub(crate) const MOST: usize = if cfg!(shuttle) {
    2 * CAPACITY
} else if cfg!(feature = "chaos") {
    3 * CAPACITY
} else {
    MAX_ENTRIES
};

/// A range of copied entries without chunks.
pub(crate) struct EntryRange<'a>(pub(crate) &'a Entries, pub(crate) Range<usize>);

impl Sorted for EntryRange<'_> {
    fn len(&self) -> usize {
        self.1.len()
    }
    #[inline]
    fn key(&self, i: usize) -> &[u8] {
        self.0.key(self.1.start + i)
    }
    #[inline]
    fn tid(&self, i: usize) -> Tid {
        self.0.tid(self.1.start + i)
    }
    #[inline]
    fn number(&self, i: usize) -> Option<u64> {
        self.0.number(self.1.start + i)
    }
}

/// Returns the stored bytes of a low key: key, TID, chunk.
pub(crate) fn stored(low: &Low<'_>, skip: usize) -> Vec<u8> {
    let mut bytes = low.inline(skip).to_vec();
    bytes.extend_from_slice(
        &low.tid.map(|tid| tid.to_le_bytes()).unwrap_or_default()
            [..6 * usize::from(low.tid.is_some())],
    );
    if low.chunk != 0 {
        bytes.extend_from_slice(&low.chunk.to_le_bytes());
    }
    bytes
}

/// The class of packed leaves for keys that do not fit the smallest ones: 4 kB.
pub(crate) const WIDE: Class = Class::LEAF[4];

/// Returns the class of a packed leaf with this low key. As a leaf of slots the block has room for
/// the low key and one entry.
pub(crate) fn packed_class(low: usize) -> Class {
    let small = low + MIN_FREE + 6 <= Class::LEAF[0].size() - crate::node::block::LEAF_KEYS;
    if small { Class::LEAF[0] } else { WIDE }
}

/// Arranges these entries as a packed leaf of `class`. Returns false if they do not fit.
pub(crate) fn arrange(
    draft: &mut Draft,
    entries: &impl Sorted,
    low: &Low<'_>,
    high: Option<&Low<'_>>,
    skip: usize,
    class: Class,
    coming: impl Into<Coming>,
) -> bool {
    let high = high.map(|high| high.key);
    let bounds = Bounds { low: low.key, high, coming: coming.into() };
    let shape = shape_of(entries);
    encode(draft, entries, &shape, &stored(low, skip), &bounds, class.size())
}

/// Does the same for entries whose shape is known.
pub(crate) fn arrange_shaped(
    draft: &mut Draft,
    entries: &impl Sorted,
    shape: &Shape,
    low: &Low<'_>,
    high: Option<&Low<'_>>,
    skip: usize,
    class: Class,
) -> bool {
    let high = high.map(|high| high.key);
    let bounds = Bounds { low: low.key, high, coming: Grows::Keys.into() };
    encode(draft, entries, shape, &stored(low, skip), &bounds, class.size())
}

pub(crate) fn shape_of(entries: &impl Sorted) -> Shape {
    let mut shape = Shape::default();
    shape.extend(entries, entries.len());
    shape
}

/// Adds to the shape of the first entries as many more as fit with them. It tries all, then halves.
pub(crate) fn extend(
    shape: &mut Shape,
    entries: &impl Sorted,
    mut fits: impl FnMut(&Shape) -> bool,
) {
    // This number of entries does not fit.
    let mut over = entries.len() + 1;
    let mut at = entries.len();
    while shape.entries() < at {
        let mut longer = shape.clone();
        longer.extend(entries, at);
        if fits(&longer) {
            *shape = longer;
        } else {
            over = at;
        }
        at = (shape.entries() + over) / 2;
    }
}

/// Returns true if a packed leaf can have these entries: none has a chunk. The leaves have no dead
/// entries.
pub(crate) fn packable(entries: &Entries, which: Range<usize>) -> bool {
    entries.range(which).all(|entry| entry.chunk == 0 && entry.key.len() <= MAX_RECORD)
}

/// Begins X, and stores the arranged words.
pub(crate) fn rewrite(latch: &Latch, draft: &Draft) {
    latch.exclude();
    draft.store(latch.b().words());
}

/// Makes the leaf the arranged packed one, with the same low key, and releases the latch. No
/// snapshot may need to know when its entries were born.
pub(crate) fn pack(
    latch: Latch,
    draft: &Draft,
    low: &Low<'_>,
    skip: usize,
    right: &RangeEnd,
    next: Ref,
) -> Latch {
    let b = latch.b();
    rewrite(&latch, draft);
    b.set_skip(skip);
    b.set_low_off(LOW as u16);
    b.set_low_len(low.inline(skip).len() as u16);
    b.set_flag(PACKED, true);
    right.store(b, next);
    stop!("pack: excluded");
    latch.finish_latched()
}

/// Makes a block that no other process knows the arranged leaf.
pub(crate) fn init_packed(
    b: Block,
    draft: &Draft,
    class: Class,
    flags: u8,
    low: &Low<'_>,
    skip: usize,
) {
    init_block(b, class, 0, flags | PACKED);
    b.set_skip(skip);
    b.set_low_off(LOW as u16);
    b.set_low_len(low.inline(skip).len() as u16);
    b.set_flag(LOWTID, low.tid.is_some());
    b.set_flag(LOWBIG, low.chunk != 0);
    draft.store(b.words());
}

/// Returns the number of leading bytes that all keys of this range share.
pub(crate) fn skip_of(memcmp: bool, low: &Low<'_>, high: Option<&Low<'_>>) -> usize {
    let short = low.key.len() <= 8 && high.is_none_or(|high| high.key.len() <= 8);
    if short || !memcmp {
        // Their first eight bytes say it all, without another look at what is shared; under a
        // comparator a range says nothing of bytes.
        return 0;
    }
    high.map_or(0, |high| common(low.key, high.key)).min(MAX_SKIP)
}
