//! Writing entries into new leaves (split, bottom-up build), or into private memory that then
//! replaces the content of a leaf.

use super::block::{Block, LEAF_KEYS, LOWBIG, LOWTID, Latch, PACKED, WHOLE, full_mask};
use super::empty::init_block;
use super::entry::Entry;
use super::low_key::{Low, RangeEnd};
use crate::key::bytes::prefix_at;
use crate::memory::class::Class;
use crate::memory::place::Ref;
use crate::sync::stop::stop;

/// Fills a private leaf with entries in order.
pub(crate) struct LeafWriter {
    b: Block,
    skip: usize,
    whole: bool,
    n: usize,
    ndead: u8,
    max_born: u32,
    /// The tail of the last entry.
    tail: usize,
}

impl LeafWriter {
    /// Begins with an empty leaf of `class`. `flags`: WHOLE, LEFTMOST.
    pub(crate) fn new(b: Block, class: Class, flags: u8, low: Low<'_>, skip: usize) -> LeafWriter {
        init_block(b, class, 0, flags);
        b.set_skip(skip);
        let inline = low.inline(skip);
        let mut at = LEAF_KEYS;
        b.set_low_len(inline.len() as u16);
        b.write_bytes(at, inline);
        at += inline.len();
        if let Some(tid) = low.tid {
            b.write_bytes(at, &tid.to_le_bytes()[..6]);
            at += 6;
            b.set_flag(LOWTID, true);
        }
        if low.chunk != 0 {
            b.write_bytes(at, &low.chunk.to_le_bytes());
            at += 4;
            b.set_flag(LOWBIG, true);
        }
        b.set_keys_top(at as u16);
        LeafWriter { b, skip, whole: flags & WHOLE != 0, n: 0, ndead: 0, max_born: 0, tail: 0 }
    }

    /// Adds the next entry, behind `previous`.
    pub(crate) fn push(&mut self, entry: &Entry<'_>, previous: Option<&Entry<'_>>) {
        let b = self.b;
        let inline = if self.whole { 0 } else { self.skip + 8 };
        let prefix = if self.whole { entry.abbrev } else { prefix_at(entry.key, self.skip) };
        if entry.chunk == 0 && !self.whole && entry.key.len() <= inline {
            self.tail = entry.key.len() - self.skip;
        } else if entry.size(previous, self.skip, self.whole) > 0 {
            self.tail = match entry.chunk {
                0 => b.push_record(&entry.key[inline..]),
                chunk => b.push_chunk(chunk),
            };
        }
        b.set_prefix(self.n, prefix);
        b.set_tid_word(self.n, entry.tid, self.tail);
        b.set_born_dead(self.n, entry.born, entry.dead);
        self.ndead += u8::from(entry.dead != 0);
        self.max_born = self.max_born.max(entry.born);
        self.n += 1;
    }

    /// Completes the leaf, on `side`.
    pub(crate) fn finish(self, side: usize) {
        let b = self.b;
        b.set_mask(side, full_mask(self.n));
        b.set_perm(side, &core::array::from_fn(|i| i as u8));
        b.set_ndead(self.ndead);
        b.set_max_born(self.max_born);
    }
}

/// Private memory for a leaf of any class.
#[repr(C, align(64))]
pub(crate) struct Page([u8; 16384]);

impl Page {
    /// Returns a page together with a value that is arranged in it.
    pub(crate) fn with<T>(content: T) -> Box<(T, Page)> {
        // In place: the page is too large to be moved.
        let mut new = Box::<(T, Page)>::new_zeroed();
        // SAFETY: the content is initialised here, and zeroes are a page.
        unsafe {
            (&raw mut (*new.as_mut_ptr()).0).write(content);
            new.assume_init()
        }
    }

    pub(crate) fn block(&mut self) -> Block {
        // SAFETY: aligned, as large as the largest class; the callers keep the page while they use
        // the block.
        unsafe { Block::private(self.0.as_mut_ptr().cast()) }
    }

    /// Returns a block of this class without content.
    pub(crate) fn block_of(&mut self, class: Class) -> Block {
        let b = self.block();
        b.set_class(class);
        b
    }
}

/// Replaces the content of the leaf by a private one of slots, and the end of its range, in one
/// exclusive phase. Keeps the latch.
pub(crate) fn replace(latch: Latch, content: Block, right: &RangeEnd, next: Ref) -> Latch {
    let b = latch.b();
    latch.exclude();
    b.set_flag(WHOLE, content.has(WHOLE));
    b.set_flag(PACKED, false);
    b.copy_from(content, latch.other());
    right.store(b, next);
    stop!("replace: excluded");
    latch.finish_latched()
}
