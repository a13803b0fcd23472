//! The range of a node: from its low key up to the low key of its right neighbour. A node stores a
//! number for the low key of its neighbour, and whether the number is exact. It leaves out the
//! first `skip` bytes of its keys.
//!
//! A low key is the shortest separator that told two neighbours apart when the right one was made.
//! It never changes in the life of the node.

use crate::key::bytes::{common, prefix_at};
use crate::key::order::Tid;
use crate::memory::area::Area;
use crate::memory::place::Ref;
use crate::node::block::{Block, EXACT, HIGHEXACT, LEFTMOST, LOWBIG, LOWTID, MAX_RECORD, View};
use crate::node::chunk::chunk_key;
use crate::node::entry::Entry;
use crate::sync::mutants::mutant;
use crate::sync::racy;

/// The largest `skip` of a leaf and of the flat top, in bytes. An index node has room for it.
pub(crate) const MAX_SKIP: usize = 512;
/// Bytes of the longest low key that is stored in a leaf itself: the bytes left out, a prefix and a
/// record together. Longer keys are in chunks, which the low key can share. So no low key without a
/// chunk is longer.
pub(crate) const MAX_INLINE_LOW: usize = MAX_SKIP + 8 + MAX_RECORD;
// A low key is copied by whole words.
const _: () = assert!(MAX_INLINE_LOW.is_multiple_of(8));

/// A low key.
#[derive(Clone, Copy)]
pub(crate) struct Low<'a> {
    pub(crate) key: &'a [u8],
    /// The TID, if the keys on both sides were equal.
    pub(crate) tid: Option<Tid>,
    /// The chunk that holds `key`, or 0.
    pub(crate) chunk: Ref,
    /// The abbreviation of the key under a comparator. 0 in byte order, and if it is not known.
    pub(crate) abbrev: u64,
}

impl<'a> Low<'a> {
    /// The low key of the first node of a level, below every key.
    pub(crate) const FIRST: Low<'static> = Low { key: &[], tid: None, chunk: 0, abbrev: 0 };

    /// Returns a low key that tells these neighbours apart: in byte order the shortest one. They
    /// have no chunks.
    pub(crate) fn between(memcmp: bool, left: &Entry<'_>, right: &Entry<'a>) -> Low<'a> {
        let Entry { key, abbrev, tid, .. } = *right;
        let (key, tid) = match memcmp && left.key != key {
            true => (&key[..common(left.key, key) + 1], None),
            false => (key, Some(tid)),
        };
        Low { key, tid, chunk: 0, abbrev }
    }

    pub(crate) fn is_first(&self) -> bool {
        self.key.is_empty() && self.tid.is_none()
    }

    /// Returns the bytes that it takes in the key area of a leaf with this `skip`.
    pub(crate) fn size(&self, skip: usize) -> usize {
        let key = if self.chunk != 0 { skip + 4 } else { self.key.len() };
        key + if self.tid.is_some() { 6 } else { 0 }
    }

    /// Returns the part of the key that a leaf with this `skip` stores.
    pub(crate) fn inline(&self, skip: usize) -> &'a [u8] {
        if self.chunk != 0 { &self.key[..skip] } else { self.key }
    }

    /// Returns true if the key begins with the bytes that this node leaves out. The caller
    /// validates.
    pub(crate) fn shares(&self, b: Block) -> bool {
        let (src, len) = b.low_bytes();
        let skip = b.skip().min(len);
        // SAFETY: `low_bytes` clips to the block.
        self.key.len() >= skip && unsafe { racy::compare(&self.key[..skip], src, skip) }.is_eq()
    }

    /// Returns the number of the key in a node with this `skip`, and whether the number is exact.
    /// If it is, a key with the same number is not below this one. The key shares the skipped
    /// bytes.
    pub(crate) fn number(&self, memcmp: bool, skip: usize) -> (u64, bool) {
        if !memcmp {
            return (self.abbrev, false);
        }
        // The eight bytes are all of it if it ends in them, and not in a zero, which could be
        // padding.
        let padding = self.key.last() == Some(&0)
            && !mutant!("a separator that could end in padding is not exact");
        let ends = self.key.len() <= skip + 8 && !padding;
        (prefix_at(self.key, skip), ends && self.tid.is_none())
    }
}

/// The keys that decide how many leading bytes a node in byte order leaves out.
pub(crate) struct SharedBytes<'a> {
    /// A limit for bytes that only the present keys share: see [`likely`].
    pub(crate) likely: usize,
    pub(crate) low: &'a [u8],
    /// The last key in the node.
    pub(crate) last: &'a [u8],
    /// The low key of the right neighbour.
    pub(crate) high: Option<&'a [u8]>,
}

impl SharedBytes<'_> {
    /// Returns the number of bytes to leave out, at most `most`. All keys that can ever come, up to
    /// `high`, share them. Or all present keys share them, and keys to come are likely to. A key of
    /// the range that does not share them is above everything in the node, and begins another node.
    pub(crate) fn skip(&self, most: usize) -> usize {
        let ever = self.high.map_or(0, |high| common(self.low, high));
        let told = mutant!("ascending groups share a node");
        let now = common(self.low, self.last).min(if told { usize::MAX } else { self.likely });
        now.max(ever).min(most)
    }
}

/// Returns the number of leading bytes that keys to come are likely to share. The two keys told
/// nodes apart when the right one was made. The byte that told them apart does not count: with
/// ascending keys each group would get a node of its own, for ever. Nor does the byte before it,
/// which changes with every 256th group.
pub(crate) fn likely(left: &[u8], right: &[u8]) -> usize {
    common(left, right).saturating_sub(1)
}

/// The stored end of a node's range: number and exactness of its right neighbour's low key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RangeEnd {
    high: u64,
    exact: bool,
}

impl RangeEnd {
    /// Returns the end of the range for a node with this low key and `skip`. `high` None: the range
    /// has no end.
    pub(crate) fn new(memcmp: bool, low: &[u8], skip: usize, high: Option<&Low<'_>>) -> RangeEnd {
        let (high, exact) = match high {
            // Everything that shares the node's first bytes is below a neighbour that does not.
            Some(high) if !memcmp || common(high.key, low) >= skip => high.number(memcmp, skip),
            _ => (u64::MAX, false),
        };
        RangeEnd { high, exact }
    }

    /// Reads the end of a node's range. The caller validates.
    pub(crate) fn of(b: Block) -> RangeEnd {
        RangeEnd { high: b.high(), exact: b.has(HIGHEXACT) }
    }

    /// Returns true if the node stores this end.
    pub(crate) fn is_stored(&self, b: Block) -> bool {
        (b.high(), b.has(HIGHEXACT)) == (self.high, self.exact)
    }

    /// Stores the end and the neighbour (0: none) in a node that is private or in its exclusive
    /// phase.
    pub(crate) fn store(&self, b: Block, next: Ref) {
        b.set_next(next);
        b.set_high(self.high);
        b.set_flag(HIGHEXACT, self.exact);
    }
}

/// A copy of a low key. Its size is fixed, so that reading one allocates nothing. A key in a chunk
/// is not copied: the chunk lives as long as the node, and longer for processes inside the barrier.
pub(crate) struct LowKeyCopy {
    bytes: [u8; MAX_INLINE_LOW],
    len: usize,
    tid: Option<Tid>,
    chunk: Ref,
    abbrev: u64,
    area: Area,
}

impl LowKeyCopy {
    pub(crate) fn new(area: Area) -> LowKeyCopy {
        LowKeyCopy { bytes: [0; MAX_INLINE_LOW], len: 0, tid: None, chunk: 0, abbrev: 0, area }
    }

    /// Returns the last copy.
    pub(crate) fn low(&self) -> Low<'_> {
        let key = match self.chunk {
            0 => &self.bytes[..self.len],
            chunk => chunk_key(self.area, chunk),
        };
        Low { key, tid: self.tid, chunk: self.chunk, abbrev: self.abbrev }
    }

    /// Keeps a copy.
    pub(crate) fn set(&mut self, low: &Low<'_>) {
        self.len = if low.chunk == 0 { low.key.len() } else { 0 };
        self.bytes[..self.len].copy_from_slice(&low.key[..self.len]);
        (self.tid, self.chunk, self.abbrev) = (low.tid, low.chunk, low.abbrev);
    }

    /// Loads the low key of the node at `r`, a leaf or an index node. Returns None if it is DEAD.
    /// The caller is inside the barrier, or the node is private or cannot die. It looks again while
    /// other processes change the node.
    pub(crate) fn load(&mut self, r: Ref) -> Option<Low<'_>> {
        let b = Block::at(self.area, r);
        loop {
            let v = b.view();
            if v.dead() {
                return None;
            }
            if b.level() == 0 {
                if self.copy(&v) {
                    return Some(self.low());
                }
                continue;
            }
            let (first, abbrev) = (first_child(&v), b.prefix(v.slot(0)));
            let whole = if b.has(LOWBIG) {
                // The first child is never merged away, and has all of it. A child that has moved
                // is DEAD, and the node leads to its copy already.
                if !v.valid() {
                    continue;
                }
                let first = Block::at(self.area, first).view();
                !first.dead() && self.copy(&first)
            } else {
                self.copy(&v)
            };
            if whole {
                self.abbrev = abbrev;
                return Some(self.low());
            }
        }
    }

    /// Copies the low key of a leaf. Returns false if it is not that of this state.
    pub(crate) fn copy(&mut self, v: &View) -> bool {
        let b = v.b;
        self.abbrev = 0;
        self.tid = b.has(LOWTID).then(|| b.low_tid());
        self.chunk = if b.has(LOWBIG) { b.low_chunk() } else { 0 };
        self.len = 0;
        if self.chunk == 0 && !b.has(LEFTMOST) {
            let (src, len) = b.low_bytes();
            self.len = len.min(MAX_INLINE_LOW);
            // SAFETY: inside the block, and not longer than the buffer, which has whole words.
            unsafe { racy::copy(src, self.bytes.as_mut_ptr(), self.len) };
        }
        v.valid()
    }
}

/// Returns the leaf whose low key is also that of this index node. It is never merged away. It may
/// move (`collect/moves.rs`): a process that finds it DEAD looks at the node again.
pub(crate) fn first_child(v: &View) -> Ref {
    v.b.child(v.slot(0)) & !EXACT
}
