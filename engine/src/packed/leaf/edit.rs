//! Inserting and removing an entry in place. What the leaf will be is arranged in private memory,
//! and only the words that change; storing them is all that happens beside readers. And how much
//! room there is.

use super::{Found, Leaf};
use crate::key::order::Tid;
use crate::packed::alphabet::Symbol;
use crate::packed::bits::{Array, Draft, width};
use crate::packed::encode::tail_bytes;
use crate::packed::head::Side;
use crate::packed::layout::{Form, Layout, MAX_ENTRIES, RANK_BITS};
use crate::packed::shape::fits;
use core::ops::Range;

/// A leaf is arranged anew if that gives room for one part in this number more.
const WORTHWHILE: usize = 32;
/// Bits that this may win for an entry: the widths had room for entries to come.
const SPARE_BITS: usize = 3;

impl Leaf<'_> {
    /// Arranges this leaf with (key, TID), the key having this number under a comparator, which was
    /// found to belong at `found`, behind equal ones. False: it does not fit as the leaf is; what
    /// `draft` then has means nothing.
    pub fn insert(
        &self,
        found: &Found,
        key: &[u8],
        number: u64,
        tid: Tid,
        draft: &mut Draft,
    ) -> bool {
        let (words, l) = (self.words, &self.layout);
        let (n, d) = (l.n, l.d);
        let k = found.key.min(d);
        let rank = (found.rank + found.equal).min(n);
        let new_key = !(found.same && k < d);
        if !l.is_inside() {
            return false;
        }
        let (Some(narrow), true) = self.tid_number(tid) else { return false };
        let Some(narrow) = fits(narrow, 0, l.tids.width) else { return false };
        let full = n == MAX_ENTRIES || l.tids.bit(n + 1) > 8 * l.ends.offset;
        if full || !new_key && l.ends.width == 0 {
            return false;
        }
        draft.clear();
        draft.add(3, 4);
        draft.set_word(3, Layout { n: n + 1, d: d + usize::from(new_key), ..*l }.counts());
        if new_key {
            let Some(head) = self.head_of(key, number) else { return false };
            let tail = tail_bytes(l, key);
            let (at, end) = (self.tail_start(k), self.tail_start(d));
            let room = l.heads.bit(d + 1) <= 8 * l.tids.offset
                && l.ends.bit(d + 1) <= 8 * l.tail_ends.offset
                && l.tail_ends.bit(d + 1) <= 8 * l.tails.offset
                && l.tails.bit(end + tail.len()) <= 8 * l.size;
            if !room || at > end {
                return false;
            }
            draft.open(words, l.heads.bit(k), l.heads.bit(d), l.heads.width);
            draft.set(l.heads, k, head);
            draft.open(words, l.tails.bit(at), l.tails.bit(end), tail.len() * l.tails.width);
            for (i, &byte) in tail.iter().enumerate() {
                draft.set(l.tails, at + i, self.symbol_of(byte));
            }
            for (array, before, by) in
                [(l.ends, rank as u64, 1), (l.tail_ends, at as u64, tail.len() as u64)]
            {
                draft.open(words, array.bit(k), array.bit(d), array.width);
                draft.set(array, k, before + by);
                draft.shift_each(array, k + 1, d + 1, by, false);
            }
        } else {
            draft.load(words, l.ends, k, d);
            draft.shift_each(l.ends, k, d, 1, false);
        }
        draft.open(words, l.tids.bit(rank), l.tids.bit(n), l.tids.width);
        draft.set(l.tids, rank, narrow);
        true
    }

    /// Arranges this leaf without the entry at `rank`. Returns false if there is none.
    pub fn remove(&self, rank: usize, draft: &mut Draft) -> bool {
        let (words, l) = (self.words, &self.layout);
        let (n, d) = (l.n, l.d);
        let k = self.key_at(rank);
        if rank >= n || k >= d || !l.is_inside() {
            return false;
        }
        let last = self.entries_of(k).len() <= 1;
        draft.clear();
        draft.add(3, 4);
        draft.set_word(3, Layout { n: n - 1, d: d - usize::from(last), ..*l }.counts());
        if last {
            let (at, next, end) = (self.tail_start(k), self.tail_start(k + 1), self.tail_start(d));
            let len = next.saturating_sub(at);
            draft.close(words, l.heads.bit(k), l.heads.bit(d), l.heads.width);
            draft.close(words, l.tails.bit(at), l.tails.bit(end), len * l.tails.width);
            for (array, by) in [(l.ends, 1), (l.tail_ends, len as u64)] {
                draft.close(words, array.bit(k), array.bit(d), array.width);
                draft.shift_each(array, k, d - 1, by, true);
            }
        } else {
            draft.load(words, l.ends, k, d);
            draft.shift_each(l.ends, k, d, 1, true);
        }
        draft.close(words, l.tids.bit(rank), l.tids.bit(n), l.tids.width);
        true
    }

    /// Arranges this leaf without the entries at these ascending ranks. False: the leaf lacks one.
    pub fn remove_all(&self, ranks: &[u16], draft: &mut Draft) -> bool {
        let (words, l) = (self.words, &self.layout);
        let &[first, .., last] = ranks else {
            // Moving all that is behind it takes less than going through it.
            return ranks.first().is_some_and(|&rank| self.remove(rank.into(), draft));
        };
        let mut k = self.key_at(first.into());
        if ranks.len() > MAX_ENTRIES || usize::from(last) >= l.n || !l.is_inside() {
            return false;
        }
        draft.clear();
        draft.add(3, 4);
        draft.load(words, l.ends, k, l.d);
        draft.load(words, l.tail_ends, k, l.d);
        // The keys that go with their last entries, and their symbols; what the others between
        // these ranks end with.
        let (mut keys, mut less, mut gone) = ([0; MAX_ENTRIES], 0, 0);
        let (mut done, mut symbols) = (0, self.tail_start(k));
        if l.ends.width == 0 && l.tail_ends.width == 0 {
            // Each entry has a key of its own, and nothing is known of where it ends.
            keys[..ranks.len()].copy_from_slice(ranks);
            (less, done, k) = (ranks.len(), ranks.len(), l.d);
        }
        while done < ranks.len() {
            if k >= l.d {
                return false;
            }
            let Range { start, end } = self.entries_of(k);
            let before = done;
            done += ranks[done..].iter().take_while(|&&rank| usize::from(rank) < end).count();
            let tail = if l.tail_ends.width == 0 { 0 } else { self.tail(k).len() };
            if done - before == end.wrapping_sub(start) {
                let Some(key) = keys.get_mut(less) else { return false };
                *key = k as u16;
                (less, gone) = (less + 1, gone + tail);
            } else {
                symbols += tail;
                draft.set(l.ends, k - less, end.wrapping_sub(done) as u64);
                if l.tail_ends.width > 0 {
                    draft.set(l.tail_ends, k - less, symbols as u64);
                }
            }
            k += 1;
        }
        for (array, by) in [(l.ends, done), (l.tail_ends, gone)] {
            draft.close_up(words, array.bit(k - less), array.bit(l.d), less * array.width);
            draft.shift_each(array, k - less, l.d - less, by as u64, true);
        }
        let keys = &keys[..less];
        draft.set_word(3, Layout { n: l.n - ranks.len(), d: l.d - less, ..*l }.counts());
        let width = |array: Array| move |i| (array.bit(i), array.bit(i + 1));
        draft.without(words, ranks, l.tids.bit(l.n), width(l.tids));
        draft.without(words, keys, l.heads.bit(l.d), width(l.heads));
        if l.tail_ends.width > 0 || l.tail_len() > 0 {
            draft.without(words, keys, l.tails.bit(self.tail_start(l.d)), |k| {
                let tail = self.tail(k);
                (l.tails.bit(tail.start), l.tails.bit(tail.end))
            });
        }
        true
    }

    /// Returns true if three quarters of the block are unused.
    pub fn is_sparse(&self) -> bool {
        self.used() <= self.layout.size / 4
    }

    /// Returns how many bytes of the block are used.
    pub fn used(&self) -> usize {
        let l = &self.layout;
        let arrays = [(l.heads, l.d), (l.tids, l.n), (l.ends, l.d), (l.tail_ends, l.d)];
        let bits: usize = arrays.iter().map(|(array, n)| array.width * n).sum();
        let tails = if l.d == 0 { 0 } else { self.tail(l.d - 1).end * l.tails.width };
        l.heads.offset + (bits + tails) / 8
    }

    /// Returns true if there is no room for one more entry, of a new key or of one that is here.
    /// The widths are those that an entry with this TID needs, and the arrays may share the room
    /// in any way. Room for very few entries more is not worth a new arrangement, and counts as
    /// none.
    pub fn is_full(&self, key: bool, tid: Tid) -> bool {
        let mut l = self.layout;
        let number = self.tid_number(tid).0.unwrap_or(0);
        let wider = width(number).saturating_sub(l.tids.width);
        let ends = if key || l.ends.width > 0 { 0 } else { RANK_BITS };
        l.tids.width += (wider + ends).saturating_sub(SPARE_BITS);
        let more = 1 + l.n / WORTHWHILE;
        let (n, d) = (l.n + more, l.d + if key { more } else { 0 });
        let tails = if l.tail_ends.width == 0 { d * l.tail_len() } else { self.tail_start(l.d) };
        let numbers = [(l.heads, d), (l.tids, n), (l.ends, d), (l.tail_ends, d), (l.tails, tails)];
        let words: usize =
            numbers.iter().map(|(array, count)| (array.width * count).div_ceil(64)).sum();
        l.heads.offset + 8 * words > l.size
    }

    /// Returns about how many entries fit one leaf if each gets a second one with a TID near this.
    pub fn twice(&self, tid: Tid) -> usize {
        let l = &self.layout;
        let number = self.tid_number(tid).0.unwrap_or(0);
        let key = l.heads.width + RANK_BITS + l.tail_ends.width;
        let keys = l.d * key + self.tail_start(l.d) * l.tails.width;
        // One bit is for the rows behind that one.
        let tids = 2 * l.n * (width(number).max(l.tids.width) + 1);
        let room = 8 * l.size.saturating_sub(l.heads.offset);
        (room * l.n).checked_div(keys + tids).unwrap_or(l.n)
    }

    /// Returns the symbol at which the tail of key `k` <= `d` begins.
    pub(in crate::packed) fn tail_start(&self, k: usize) -> usize {
        if k < self.layout.d {
            self.tail(k).start
        } else {
            k.checked_sub(1).map_or(0, |k| self.tail(k).end)
        }
    }

    /// The symbol of a byte that the leaf can have in a tail.
    #[inline]
    pub(super) fn symbol_of(&self, byte: u8) -> u64 {
        match self.alphabet.as_ref().map(|alphabet| alphabet.symbol(byte)) {
            Some(Symbol::Is(symbol)) => symbol,
            _ => byte.into(),
        }
    }

    /// Returns the head of a key minus the base, if the key can be in this leaf as it is.
    pub(in crate::packed) fn head_of(&self, key: &[u8], number: u64) -> Option<u64> {
        let l = &self.layout;
        if l.form == Form::Compared {
            let tail = key.get(l.tlen..)?;
            let known =
                |&byte: &u8| self.alphabet.is_none_or(|a| matches!(a.symbol(byte), Symbol::Is(_)));
            let fit = (l.keylen == 0 || key.len() == l.keylen)
                && self.compare_start(key, l.template(), l.tlen).is_eq()
                && tail.iter().all(known);
            return fit.then_some(number).and_then(|head| fits(head, l.kbase, l.heads.width));
        }
        let target = self.target(key).ok()?;
        let fit = match (l.form, &self.alphabet) {
            (Form::Wide, None) => l.keylen == 0 || key.len() == l.keylen,
            (Form::Wide, Some(alphabet)) => {
                let (last, body) = key.get(l.tlen..)?.split_last()?;
                *last == 0
                    && (l.keylen == 0 || key.len() == l.keylen)
                    && body.iter().all(|&byte| matches!(alphabet.symbol(byte), Symbol::Is(_)))
            }
            _ => target.side == Side::Here,
        };
        fit.then_some(target.head).and_then(|head| fits(head, l.kbase, l.heads.width))
    }
}
