//! The range of a node: from its low key up to the low key of its right neighbour. What a node says of
//! a low key (a number, and whether it is exact), and how many leading bytes (`skip`) it leaves out.
//!
//! A low key is the shortest separator that told two neighbours apart when the right one was made. It
//! never changes as long as the node lives.

use crate::key::bytes::{common, prefix_at};
use crate::key::order::Tid;
use crate::memory::area::Area;
use crate::memory::place::Ref;
use crate::node::block::{Block, EXACT, HIGHEXACT, LEFTMOST, LOWBIG, LOWTID, MAX_RECORD, View};
use crate::node::chunk::chunk_key;
use crate::node::entry::Entry;
use crate::sync::mutants::mutant;
use crate::sync::racy;

/// The most that `skip` is in a leaf and in the flat top; an index node has room for as much.
pub(crate) const MAX_SKIP: usize = 512;
/// Longest low key that is stored in a leaf itself: as long as what a leaf leaves out, a prefix and a record together. Longer
/// keys have a chunk that the low key can share, so this is never exceeded by one without a chunk.
pub(crate) const MAX_INLINE_LOW: usize = MAX_SKIP + 8 + MAX_RECORD;
// A low key is copied by whole words.
const _: () = assert!(MAX_INLINE_LOW.is_multiple_of(8));

/// A low key.
#[derive(Clone, Copy)]
pub(crate) struct Low<'a> {
    pub(crate) key: &'a [u8],
    /// If the keys on both sides were equal.
    pub(crate) tid: Option<Tid>,
    /// The chunk that holds `key`, or 0.
    pub(crate) chunk: Ref,
    /// The number of the key under a comparator, 0 in byte order and where it is not known.
    pub(crate) abbrev: u64,
}

impl<'a> Low<'a> {
    /// The low key of the first node of a level, below every key.
    pub(crate) const FIRST: Low<'static> = Low { key: &[], tid: None, chunk: 0, abbrev: 0 };

    /// One that tells these neighbours apart, which have no chunks: in byte order the shortest.
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

    /// Bytes of the key area in a leaf with this `skip`.
    pub(crate) fn size(&self, skip: usize) -> usize {
        let key = if self.chunk != 0 { skip + 4 } else { self.key.len() };
        key + if self.tid.is_some() { 6 } else { 0 }
    }

    /// The part of the key that is in a leaf with this `skip`.
    pub(crate) fn inline(&self, skip: usize) -> &'a [u8] {
        if self.chunk != 0 { &self.key[..skip] } else { self.key }
    }

    /// Whether the key begins with the bytes that this node leaves out of its keys. To be validated by the caller.
    pub(crate) fn shares(&self, b: Block) -> bool {
        let (src, len) = b.low_bytes();
        let skip = b.skip().min(len);
        // SAFETY: `low_bytes` clips to the block.
        self.key.len() >= skip && unsafe { racy::compare(&self.key[..skip], src, skip) }.is_eq()
    }

    /// What a node with this `skip`, which the key shares, says of it: its number, and whether that is
    /// all of it, so that a key with the same number is not below.
    pub(crate) fn number(&self, memcmp: bool, skip: usize) -> (u64, bool) {
        if !memcmp {
            return (self.abbrev, false);
        }
        // The eight bytes are all of it if it ends in them, and not in a zero, which could be padding.
        let padding = self.key.last() == Some(&0)
            && !mutant!("a separator that could end in padding is not exact");
        let ends = self.key.len() <= skip + 8 && !padding;
        (prefix_at(self.key, skip), ends && self.tid.is_none())
    }
}

/// What decides how many leading bytes a node of byte order leaves out.
pub(crate) struct SharedBytes<'a> {
    /// No more than this is left out because of what the node has now: see [`likely`].
    pub(crate) likely: usize,
    pub(crate) low: &'a [u8],
    /// The last key in the node.
    pub(crate) last: &'a [u8],
    /// The low key of the right neighbour.
    pub(crate) high: Option<&'a [u8]>,
}

impl SharedBytes<'_> {
    /// How many bytes are left out, at most `most`: what all keys that can ever come share, up to `high`; or
    /// what everything in the node shares now and keys to come are likely to share. A key of the range that does
    /// not is above everything in the node, and begins another.
    pub(crate) fn skip(&self, most: usize) -> usize {
        let ever = self.high.map_or(0, |high| common(self.low, high));
        let told = mutant!("ascending groups share a node");
        let now = common(self.low, self.last).min(if told { usize::MAX } else { self.likely });
        now.max(ever).min(most)
    }
}

/// How many leading bytes are likely to be shared by keys that come, if these two told nodes apart when the
/// right one was made. Not the byte that told: of ascending keys each group would get a node of its own, for
/// ever. Nor the one before it, which changes with every 256th group.
pub(crate) fn likely(left: &[u8], right: &[u8]) -> usize {
    common(left, right).saturating_sub(1)
}

/// What a node says of its right neighbour's low key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RangeEnd {
    high: u64,
    exact: bool,
}

impl RangeEnd {
    /// As a node with this low key and `skip` sees the end of its range; None: it has none.
    pub(crate) fn new(memcmp: bool, low: &[u8], skip: usize, high: Option<&Low<'_>>) -> RangeEnd {
        let (high, exact) = match high {
            // Everything that shares the node's first bytes is below a neighbour that does not.
            Some(high) if !memcmp || common(high.key, low) >= skip => high.number(memcmp, skip),
            _ => (u64::MAX, false),
        };
        RangeEnd { high, exact }
    }

    /// What a node says. To be validated by the caller.
    pub(crate) fn of(b: Block) -> RangeEnd {
        RangeEnd { high: b.high(), exact: b.has(HIGHEXACT) }
    }

    /// Is it what the node says?
    pub(crate) fn is_stored(&self, b: Block) -> bool {
        (b.high(), b.has(HIGHEXACT)) == (self.high, self.exact)
    }

    /// Stores it, and the neighbour (0: none), in a private or exclusively latched node.
    pub(crate) fn store(&self, b: Block, next: Ref) {
        b.set_next(next);
        b.set_high(self.high);
        b.set_flag(HIGHEXACT, self.exact);
    }
}

/// A copy of a low key: of fixed size, so that nothing is allocated to look at one. A key in a chunk is
/// not copied: the chunk lives as long as the node, and for those inside the barrier longer.
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

    /// What was copied last.
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

    /// The low key of the node at `r`, leaf or index node; None if it is DEAD. Inside the barrier, or
    /// of a node that is private or cannot die. It looks again while other processes
    /// change the node.
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
                // The first child is never merged away, and has all of it. One that has moved is DEAD, and the
                // node leads to its copy by then.
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

    /// The low key of a leaf, if it is that of this state.
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

/// The leaf whose low key is also that of this index node: it is never merged away. It may move
/// (`collect/moves.rs`): who finds it DEAD looks at the node again.
pub(crate) fn first_child(v: &View) -> Ref {
    v.b.child(v.slot(0)) & !EXACT
}
