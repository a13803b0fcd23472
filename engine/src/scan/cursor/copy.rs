//! Copying a batch out of one state of a leaf.

use super::Cursor;
use crate::index::root::Index;
use crate::key::buffer;
use crate::node::block::{MAX_RECORD, Retry, SLOTS, Tail, View, tid_of};
use crate::node::chunk::chunk_key;
use crate::node::copy::append_key;
use crate::node::low_key::MAX_SKIP;
use crate::packed::Leaf;
use crate::sync::mutants::mutant;
use core::ops::Range;

/// Bytes of keys after which a batch ends. Keys may be long, and a leaf has many.
const MOST_KEYS: usize = 256 << 10;

/// Readable bytes behind the keys of a batch.
const BEHIND: usize = 16;

/// The slots of a batch of a packed leaf.
const IN_ORDER: [u8; SLOTS] = {
    let mut slots = [0; SLOTS];
    let mut i = 0;
    while i < SLOTS {
        slots[i] = i as u8;
        i += 1;
    }
    slots
};

impl Cursor {
    /// Returns the bytes of all keys of the batch, one behind the other, and sixteen more. A reader
    /// of a key may read beyond its end.
    #[inline]
    pub fn keys(&self) -> &[u8] {
        debug_assert!(self.has_keys);
        &self.keys
    }

    /// Returns the offset of an entry's key in [`keys`](Self::keys).
    #[inline]
    pub fn start(&self, i: usize) -> usize {
        if i == 0 { 0 } else { self.ends[..self.n][i - 1] as usize }
    }

    /// Returns about how many bytes a clone takes for its keys.
    pub fn key_bytes(&self) -> usize {
        let bounds = [&self.first, &self.last, &self.new_first, &self.new_last].map(|b| &b.key);
        let keys = [&self.keys, &self.lower, &self.upper, &self.sought, &self.goal, &self.nearest];
        bounds.into_iter().chain(keys).map(Vec::len).sum()
    }

    /// Copies the visible entries of these ranks, and the first and the last of all of them. If the
    /// keys are long, it copies fewer, from the side where the scan comes from. It copies all lives
    /// of an entry or none. Returns the ranks.
    pub(super) fn copy(
        &mut self,
        index: Index,
        v: &View,
        packed: Option<&Leaf<'_>>,
        ranks: Range<usize>,
        forward: bool,
    ) -> Result<Range<usize>, Retry> {
        let whole = |ranks| if packed.is_some() { ranks } else { with_lives(v, ranks, forward) };
        let mut ranks = whole(ranks);
        let mut copied = self.copy_unchecked(index, v, packed, ranks.start, ranks.end);
        if let Ok(false) = copied {
            ranks = whole(fewer(index, v, ranks, forward)?);
            copied = self.copy_unchecked(index, v, packed, ranks.start, ranks.end);
        }
        if !matches!(copied, Ok(true)) || !v.valid() {
            self.n = 0;
            self.keys.clear();
            return Err(Retry);
        }
        if !ranks.is_empty() {
            core::mem::swap(&mut self.first, &mut self.new_first);
            core::mem::swap(&mut self.last, &mut self.new_last);
        }
        Ok(ranks)
    }

    /// Returns false if the keys are too long for one batch.
    fn copy_unchecked(
        &mut self,
        index: Index,
        v: &View,
        packed: Option<&Leaf<'_>>,
        from: usize,
        to: usize,
    ) -> Result<bool, Retry> {
        let b = v.b;
        self.n = 0;
        self.has_keys = self.want_keys;
        self.keys.clear();
        if from >= to {
            return Ok(true);
        }
        self.packed = false;
        if let Some(leaf) = packed {
            self.packed = true;
            self.slots = IN_ORDER;
            self.n = leaf.tids(from..to, &mut self.tids);
            self.new_first.key.clear();
            self.new_last.key.clear();
            if self.want_keys && self.n > 0 {
                if !index.memcmp() {
                    leaf.numbers(from..to, &mut self.abbrevs);
                }
                // There are fewer than TIDs only in a torn leaf.
                let n = leaf.keys(from..to, &mut self.keys, &mut self.ends).max(1);
                let start = if n == 1 { 0 } else { self.ends[n - 2] as usize };
                let (first, last) = (..self.ends[0] as usize, start..self.ends[n - 1] as usize);
                self.new_first.key.extend_from_slice(self.keys.get(first).unwrap_or_default());
                self.new_last.key.extend_from_slice(self.keys.get(last).unwrap_or_default());
                (self.new_first.tid, self.new_last.tid) = (self.tids[0], self.tids[n - 1]);
                buffer::append(&mut self.keys, &[0; BEHIND]);
                return Ok(true);
            }
            self.new_first.tid = leaf.entry(from, &mut self.new_first.key);
            if to - from == 1 {
                self.new_last.tid = self.new_first.tid;
                buffer::set(&mut self.new_last.key, &self.new_first.key);
            } else {
                self.new_last.tid = leaf.entry(to - 1, &mut self.new_last.key);
            }
            return Ok(true);
        }
        let all = b.ndead() == 0 && b.max_born() <= self.born;
        let mut n = 0;
        for slot in v.slots(from..to) {
            if !all && !b.visible(slot, self.born, self.dead) {
                continue;
            }
            let word = b.tid_word(slot);
            self.tids[n] = tid_of(word);
            self.slots[n] = slot as u8;
            if self.want_keys {
                self.abbrevs[n] = b.prefix(slot);
                append_key(index.area, v, slot, word, &mut self.keys)?;
                self.ends[n] = self.keys.len() as u32;
                if n > 0 && self.keys.len() > MOST_KEYS && !mutant!("long keys end a batch") {
                    return Ok(false);
                }
            }
            n += 1;
        }
        self.n = n;
        buffer::append(&mut self.keys, &[0; BEHIND]);
        for (bound, rank) in [(&mut self.new_first, from), (&mut self.new_last, to - 1)] {
            let slot = v.slot(rank);
            let word = b.tid_word(slot);
            bound.key.clear();
            append_key(index.area, v, slot, word, &mut bound.key)?;
            bound.tid = tid_of(word);
        }
        Ok(true)
    }
}

/// Extends the ranks by further lives of the last entry, because a search goes on behind all of
/// them. Equal keys of a leaf have one tail.
fn with_lives(v: &View, ranks: Range<usize>, forward: bool) -> Range<usize> {
    let Range { mut start, mut end } = ranks;
    if start < end && v.b.ndead() > 0 && !mutant!("a batch has all lives of an entry") {
        let n = v.mask().count_ones() as usize;
        let entry = |rank| {
            let slot = v.slot(rank);
            (v.b.prefix(slot), v.b.tid_word(slot))
        };
        while forward && end < n && entry(end) == entry(end - 1) {
            end += 1;
        }
        while !forward && start > 0 && entry(start) == entry(start - 1) {
            start -= 1;
        }
    }
    start..end
}

/// Returns the first ranks, in the direction of the scan, whose keys fit a batch, at least one. If
/// not all fit, these are fewer than before, and they fit.
fn fewer(
    index: Index,
    v: &View,
    ranks: Range<usize>,
    forward: bool,
) -> Result<Range<usize>, Retry> {
    let (mut n, mut bytes) = (0, 0);
    while n < ranks.len() {
        let rank = if forward { ranks.start + n } else { ranks.end - 1 - n };
        let tail = v.b.tail(v.b.tid_word(v.slot(rank)));
        if !v.valid() {
            return Err(Retry);
        }
        bytes += match tail {
            Tail::Chunk(chunk) => chunk_key(index.area, chunk).len(),
            _ => MAX_RECORD + MAX_SKIP + 8,
        };
        if n > 0 && bytes > MOST_KEYS {
            break;
        }
        n += 1;
    }
    Ok(if forward { ranks.start..ranks.start + n } else { ranks.end - n..ranks.end })
}
