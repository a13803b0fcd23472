//! A node: its bytes, and the invariants between nodes. The version protocol, by which many
//! processes read and write it at once, is in `node/block/version.rs`.
//!
//! ```text
//!    0  u64 ver        bit 0 LOCK | bits 1..62 count c | bit 62 DEAD | bit 63 X (exclusive rewrite)
//!    8  u32 next       right neighbour (0 = last); the link of a free or retired block
//!   12  u32 prev       left neighbour; also in a DEAD node, the one at its death
//!   16  u64 high       8 bytes of the right neighbour's low key at `skip`
//!   24  u64 mask[2]    live slots, side = c & 1
//!   40  u32 link       successor on a list of dirty blocks; of DEAD index nodes that wait for a flat top
//!   44  u32 max_born   at least the youngest bornSn of the live slots
//!   48  u16 low_off    the low key: `low_len` bytes, then 6 bytes TID (LOWTID), then 4 bytes
//!   50  u16 low_len    chunk (LOWBIG)
//!   52  u16 keys_top   next free byte of the key area
//!   54  u8  kind       bit 0: 0 leaf, 1 index node | bits 1..7: pins, of walks that stand at this leaf
//!   55  u8  flags
//!   56  u8  class      size class of this block, set once
//!   57  u8  ndead      live slots with deadSn != 0
//!   58  u16 skip       leading bytes that all keys in the block share with its low key
//!   60  u32 parent     the index node with this leaf's separator, 0 = none yet
//!   64  u8  perm[2][64]                slots in key order, side = c & 1
//!  192  u64 prefix[64]                 key bytes [skip, skip + 8), zero padded; or the abbreviation
//!  704  leaf:  u64 tid[64]             48 bits TID, 16 bits tail (below)
//!       index: u32 child[64]           bit 31 EXACT: the separator is its prefix alone
//! 1216  leaf:  {u32 born, u32 dead}[64]
//! 1728  leaf:  key area (the low key first); index: key area at 960, of 64 bytes or more
//! ```
//! A *tail* <= 8 says that the key ends inside the prefix: it has `skip` + tail bytes. Otherwise it
//! is the offset of a record in the key area: {u16 length, key bytes from skip + 8 on}. If bit 15
//! of the length is set, the record is {u16, u32 chunk}: the whole key is in a chunk of its own.
//! Under a comparator (flag WHOLE) records hold whole keys and no key is inline.
//!
//! # Invariants
//! * I1 Concatenating level 0 from the head yields all entries in order. The low key of a block
//!   never changes; it covers [low, low of next).
//! * I2 A separator reaches level 1 after its leaf is linked in level 0; a missing one costs a move
//!   to the right.
//! * I3 Slots outside mask[c & 1] are free. Prefix, TID, tail and born are written only while the
//!   slot is free on the current side and never change while it is live; `dead` changes once, 0 ->
//!   t.
//! * I4 What belongs to side c & 1 does not change from the publication of c until a latch holder
//!   of c + 1 starts.
//! * I5 A DEAD node is not modified again until the barrier lets its memory be reused. Its `prev`
//!   leads to its left neighbour, which took its entries or leads to the node that did. Its `next`
//!   links it on the list of retired blocks until it is free.
//! * I6 Only the holder of `Root::collecting` makes nodes DEAD, and of leaves only those with a
//!   separator in level 1 and without pins.
//! * I7 An entry leaves a leaf that stays alive only by a split, into a new leaf directly behind
//!   its own. The entries of a leaf that becomes DEAD go to the leaf that it then leads to, and to
//!   at most one new leaf directly behind that.
//! * `prev` of a node is written only under the latch of its left neighbour, before the change is
//!   published. `parent` of a leaf is written only under the latch of the index node with its
//!   separator.

use crate::key::order::Tid;
use crate::memory::area::Area;
use crate::memory::class::Class;
use crate::memory::place::Ref;
use crate::sync::atomic::Ordering::*;
use crate::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64};
use crate::sync::racy;

mod laid;
mod slots;
mod version;

pub(crate) use crate::simd::search::SLOTS;
pub(crate) use slots::{full_mask, insert_slot, keep_slots};
#[cfg(all(test, loom))]
pub(crate) use version::models;
pub(crate) use version::{Latch, Retry, View};

/// Number of slots that are used. Few under shuttle and in storms, so that splits and merges happen
/// often.
pub(crate) const CAPACITY: usize = if cfg!(shuttle) {
    4
} else if cfg!(feature = "chaos") {
    6
} else {
    SLOTS
};

/// Flag: the node is on a list of dirty blocks.
pub(crate) const DIRTY: u8 = 2;
/// Flag: the first node of its level. Its low key is below every key.
pub(crate) const LEFTMOST: u8 = 4;
/// Flag: a key whose prefix is `high` is not below the right neighbour's low key.
pub(crate) const HIGHEXACT: u8 = 8;
/// Flag: the low key has a TID.
pub(crate) const LOWTID: u8 = 16;
/// Flag: the low key is in a chunk, and the node has only its first bytes. For an index node the
/// whole key is found at its first child.
pub(crate) const LOWBIG: u8 = 32;
/// Flag: records hold whole keys, prefixes are abbreviations, and no key is inline.
pub(crate) const WHOLE: u8 = 64;
/// Flag: the content of the leaf is packed (`packed/`). It has no masks, permutations and slots.
pub(crate) const PACKED: u8 = 128;

/// In `child`: the separator is its prefix alone.
pub(crate) const EXACT: u32 = 1 << 31;

const PERM: usize = 64;
const PREFIX: usize = 192;
const TIDS: usize = 704;
const SNS: usize = 1216;
/// Where the key area of a leaf begins.
pub(crate) const LEAF_KEYS: usize = 1728;
/// Where the key area of an index node begins.
pub(crate) const NODE_KEYS: usize = 960;
/// Bytes of a chunk in front of the key.
pub(crate) const CHUNK_HEADER: usize = 24;
/// In a record's length: the key is in a chunk.
const BIG: u16 = 1 << 15;

/// Bytes of the longest tail that is stored in a leaf itself.
pub(crate) const MAX_RECORD: usize = 512;
/// Bytes of the key area that stay free when a leaf is made, merged, or gets another `skip`. They
/// hold some chunk references. So a single entry never fills a leaf, and a full leaf can be split.
pub(crate) const MIN_FREE: usize = 32;

#[repr(C)]
#[cfg_attr(loom, derive(Default))]
struct Header {
    ver: AtomicU64,
    next: AtomicU32,
    prev: AtomicU32,
    high: AtomicU64,
    #[cfg(not(loom))]
    mask: [AtomicU64; 2],
    /// All words of the block, also the masks and the words behind the header.
    #[cfg(loom)]
    words: Vec<AtomicU64>,
    link: AtomicU32,
    max_born: AtomicU32,
    low_off: AtomicU16,
    low_len: AtomicU16,
    keys_top: AtomicU16,
    kind: AtomicU8,
    flags: AtomicU8,
    class: AtomicU8,
    ndead: AtomicU8,
    skip: AtomicU16,
    parent: AtomicU32,
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<Header>() == PERM);

/// The address of a node: a block of a live index, or private memory laid out like one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Block(*mut u8);

/// Slots in key order.
pub(crate) type Perm = [u8; SLOTS];

/// Where the rest of a key is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tail {
    /// The key ends inside the prefix, this many bytes behind `skip`.
    Inline(usize),
    /// Bytes in the key area: offset in the block, length.
    Record(usize, usize),
    /// The whole key is in a chunk.
    Chunk(Ref),
}

macro_rules! fields {
    ($($name:ident $set:ident $ty:ty),* $(,)?) => { $(
        #[inline]
        pub(crate) fn $name(self) -> $ty { self.header().$name.load(Relaxed) }
        #[inline]
        pub(crate) fn $set(self, value: $ty) { self.header().$name.store(value, Relaxed) }
    )* };
}

impl Block {
    #[inline]
    pub(crate) fn at(area: Area, r: Ref) -> Block {
        debug_assert!(r != 0 && r & EXACT == 0);
        Block(area.at(r))
    }

    /// Private memory to build a node in.
    ///
    /// # Safety
    /// `memory` is aligned to 64 bytes, large enough for the class that will be set, and outlives
    /// every use of the value.
    pub(crate) unsafe fn private(memory: *mut u8) -> Block {
        Block(memory)
    }

    #[inline]
    fn header<'a>(self) -> &'a Header {
        // SAFETY: a block starts with its header, all atomics; blocks stay mapped and keep their
        // type as long as the index lives, and no `Block` outlives the use of the index.
        unsafe { &*self.0.cast() }
    }

    fields! {
        high set_high u64, max_born set_max_born u32, low_len set_low_len u16,
        low_off set_low_off u16, keys_top set_keys_top u16, link set_link u32,
    }

    #[inline]
    pub(crate) fn next(self) -> Ref {
        self.header().next.load(Acquire)
    }
    pub(crate) fn set_next(self, r: Ref) {
        self.header().next.store(r, Release);
    }
    #[inline]
    pub(crate) fn prev(self) -> Ref {
        self.header().prev.load(Acquire)
    }
    pub(crate) fn set_prev(self, r: Ref) {
        self.header().prev.store(r, Release);
    }
    #[inline]
    pub(crate) fn parent(self) -> Ref {
        self.header().parent.load(Acquire)
    }
    pub(crate) fn set_parent(self, r: Ref) {
        self.header().parent.store(r, Release);
    }
    /// Returns the number of dead entries. It rises after each mark of a death, and falls only with
    /// another state. So a process that reads a number, then the marks, and then the same number
    /// again has read all marks.
    #[inline]
    pub(crate) fn ndead(self) -> u8 {
        self.header().ndead.load(Acquire)
    }
    pub(crate) fn set_ndead(self, n: u8) {
        self.header().ndead.store(n, Release);
    }
    #[inline]
    pub(crate) fn skip(self) -> usize {
        self.header().skip.load(Relaxed) as usize
    }
    pub(crate) fn set_skip(self, skip: usize) {
        self.header().skip.store(skip as u16, Relaxed);
    }
    #[inline]
    pub(crate) fn has(self, flag: u8) -> bool {
        self.header().flags.load(Relaxed) & flag != 0
    }
    pub(crate) fn flags(self) -> u8 {
        self.header().flags.load(Relaxed)
    }
    /// Sets the flags of memory that is still private.
    pub(crate) fn init_flags(self, flags: u8) {
        self.header().flags.store(flags, Relaxed);
    }
    pub(crate) fn set_flag(self, flag: u8, on: bool) {
        if on {
            self.header().flags.fetch_or(flag, AcqRel);
        } else {
            self.header().flags.fetch_and(!flag, AcqRel);
        }
    }

    /// 0: a leaf, 1: an index node.
    #[inline]
    pub(crate) fn level(self) -> u8 {
        self.header().kind.load(Relaxed) & 1
    }
    /// Only for memory that is still private. There are no pins.
    pub(crate) fn set_level(self, level: u8) {
        self.header().kind.store(level, Relaxed);
    }
    /// The level, and behind it the pins: see `node/pin.rs`.
    pub(crate) fn kind<'a>(self) -> &'a AtomicU8 {
        &self.header().kind
    }

    #[inline]
    pub(crate) fn class(self) -> Class {
        Class::from_code(self.header().class.load(Relaxed)).unwrap_or(Class::LEAF[0])
    }
    pub(crate) fn set_class(self, class: Class) {
        self.header().class.store(class.code(), Relaxed);
    }
    /// Returns the bytes of the block. The class never changes once set. Before that it is 0, the
    /// smallest.
    #[inline]
    pub(crate) fn size(self) -> usize {
        self.class().size()
    }
    /// Returns the bytes that the key area of a leaf can hold.
    pub(crate) fn key_area_size(self) -> usize {
        self.size() - LEAF_KEYS
    }

    #[inline]
    pub(crate) fn mask(self, side: usize) -> u64 {
        self.masks()[side & 1].load(Relaxed)
    }
    #[inline]
    pub(crate) fn set_mask(self, side: usize, mask: u64) {
        self.masks()[side & 1].store(mask, Relaxed);
    }

    #[inline]
    pub(crate) fn prefixes(self) -> *const u64 {
        self.0.wrapping_add(PREFIX).cast()
    }
    #[inline]
    pub(crate) fn tids(self) -> *const u64 {
        self.0.wrapping_add(TIDS).cast()
    }
    #[inline]
    fn prefix_cell<'a>(self, slot: usize) -> &'a AtomicU64 {
        self.word(PREFIX, slot % SLOTS)
    }
    #[inline]
    pub(crate) fn prefix(self, slot: usize) -> u64 {
        self.prefix_cell(slot).load(Relaxed)
    }
    pub(crate) fn set_prefix(self, slot: usize, prefix: u64) {
        self.prefix_cell(slot).store(prefix, Relaxed);
    }
    #[inline]
    pub(crate) fn child(self, slot: usize) -> u32 {
        self.cell::<AtomicU32>(TIDS, slot % SLOTS).load(Acquire)
    }
    pub(crate) fn set_child(self, slot: usize, child: u32) {
        self.cell::<AtomicU32>(TIDS, slot % SLOTS).store(child, Release);
    }
    /// Returns TID and tail of a slot.
    #[inline]
    pub(crate) fn tid_word(self, slot: usize) -> u64 {
        self.word(TIDS, slot % SLOTS).load(Relaxed)
    }
    #[inline]
    pub(crate) fn set_tid_word(self, slot: usize, tid: Tid, tail: usize) {
        let word = tid | (tail as u64) << 48;
        self.word(TIDS, slot % SLOTS).store(word, Relaxed);
    }
    #[inline]
    pub(crate) fn born(self, slot: usize) -> u32 {
        self.cell::<AtomicU32>(SNS, 2 * (slot % SLOTS)).load(Relaxed)
    }
    #[inline]
    pub(crate) fn dead(self, slot: usize) -> u32 {
        self.cell::<AtomicU32>(SNS, 2 * (slot % SLOTS) + 1).load(Acquire)
    }
    #[inline]
    pub(crate) fn set_born_dead(self, slot: usize, born: u32, dead: u32) {
        self.cell::<AtomicU32>(SNS, 2 * (slot % SLOTS)).store(born, Relaxed);
        self.set_dead(slot, dead);
    }
    #[inline]
    pub(crate) fn set_dead(self, slot: usize, dead: u32) {
        self.cell::<AtomicU32>(SNS, 2 * (slot % SLOTS) + 1).store(dead, Release);
    }

    /// Returns the slots among these that are not dead.
    pub(crate) fn not_dead(self, slots: u64) -> u64 {
        let (mut rest, mut alive) = (slots, 0);
        while rest != 0 {
            let slot = rest.trailing_zeros() as usize;
            rest &= rest - 1;
            alive |= u64::from(self.dead(slot) == 0) << slot;
        }
        alive
    }

    /// Returns true if the entry of this slot was born in a term up to `born`, and is alive or died
    /// in a term above `dead`.
    #[inline]
    pub(crate) fn visible(self, slot: usize, born: u32, dead: u32) -> bool {
        let died = self.dead(slot);
        self.born(slot) <= born && (died == 0 || died > dead)
    }

    /// Returns address and length of `len` bytes at `offset`, clipped to the block.
    #[inline]
    pub(crate) fn bytes(self, offset: usize, len: usize) -> (*const u8, usize) {
        let size = self.size();
        let offset = offset.min(size);
        (self.0.wrapping_add(offset), len.min(size - offset))
    }

    /// Reads a little-endian number of `N` bytes at `offset`. Returns 0 if that is not inside the
    /// block.
    #[inline]
    pub(crate) fn number<const N: usize>(self, offset: usize) -> u64 {
        match self.bytes(offset, N) {
            // SAFETY: `bytes` clips to the block.
            (at, len) if len == N => unsafe { racy::number::<N>(at) },
            _ => 0,
        }
    }

    /// Writes into the key area (latch held, or private).
    pub(crate) fn write_bytes(self, offset: usize, bytes: &[u8]) {
        assert!(offset + bytes.len() <= self.size());
        // SAFETY: inside the block; the caller has the latch, and readers of the current side do
        // not look there.
        unsafe { racy::write(bytes, self.0.add(offset)) };
    }

    /// Decodes the tail of `word` (from [`tid_word`](Self::tid_word)).
    #[inline]
    pub(crate) fn tail(self, word: u64) -> Tail {
        let tail = (word >> 48) as usize;
        if tail <= 8 {
            return Tail::Inline(tail);
        }
        let len = self.number::<2>(tail) as u16;
        if len & BIG != 0 {
            Tail::Chunk(self.number::<4>(tail + 2) as Ref)
        } else {
            let (_, len) = self.bytes(tail + 2, len as usize);
            Tail::Record(tail + 2, len)
        }
    }

    /// Appends a record to the key area and returns its offset.
    pub(crate) fn push_record(self, bytes: &[u8]) -> usize {
        let at = self.keys_top() as usize;
        self.write_bytes(at, &(bytes.len() as u16).to_le_bytes());
        self.write_bytes(at + 2, bytes);
        self.set_keys_top((at + 2 + bytes.len()) as u16);
        at
    }

    /// Appends a record that refers to a chunk.
    pub(crate) fn push_chunk(self, chunk: Ref) -> usize {
        let at = self.keys_top() as usize;
        self.write_bytes(at, &BIG.to_le_bytes());
        self.write_bytes(at + 2, &chunk.to_le_bytes());
        self.set_keys_top((at + 6) as u16);
        at
    }

    /// Returns the TID of the low key. Without LOWTID returns 0, which is below every entry of that
    /// key.
    pub(crate) fn low_tid(self) -> Tid {
        if !self.has(LOWTID) {
            return 0;
        }
        self.number::<6>(self.low_off() as usize + self.low_len() as usize)
    }

    /// Returns the chunk with the low key (LOWBIG).
    pub(crate) fn low_chunk(self) -> Ref {
        let tid = if self.has(LOWTID) { 6 } else { 0 };
        self.number::<4>(self.low_off() as usize + self.low_len() as usize + tid) as Ref
    }

    /// Returns the bytes of the low key that are in the block.
    #[inline]
    pub(crate) fn low_bytes(self) -> (*const u8, usize) {
        self.bytes(self.low_off() as usize, self.low_len() as usize)
    }

    /// Copies the content of `image` over this leaf, except for its links. The caller is in the
    /// exclusive phase.
    pub(crate) fn copy_from(self, image: Block, side: usize) {
        let top = image.keys_top() as usize;
        assert!(top <= self.size());
        for slot in 0..SLOTS {
            self.set_prefix(slot, image.prefix(slot));
            let tids = self.word(TIDS, slot);
            tids.store(image.tid_word(slot), Relaxed);
            self.set_born_dead(slot, image.born(slot), image.dead(slot));
        }
        // SAFETY: both blocks are at least `top` bytes long; the image is private.
        let key_area =
            unsafe { core::slice::from_raw_parts(image.0.add(LEAF_KEYS), top - LEAF_KEYS) };
        self.write_bytes(LEAF_KEYS, key_area);
        self.set_mask(side, image.mask(0));
        self.set_perm(side, &image.perm(0));
        self.set_max_born(image.max_born());
        self.set_low_off(image.low_off());
        self.set_low_len(image.low_len());
        self.set_keys_top(image.keys_top());
        self.set_ndead(image.ndead());
        self.set_skip(image.skip());
    }
}

/// Returns the TID in a [`Block::tid_word`].
#[inline]
pub(crate) fn tid_of(word: u64) -> Tid {
    word & ((1 << 48) - 1)
}
