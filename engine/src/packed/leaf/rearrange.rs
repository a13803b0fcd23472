//! Arranges entries anew by copying bits: a part of a leaf in a block of its own, or all of a leaf
//! with another share of the room. Encoding them would change little but the places of arrays.
//!
//! Form, template, alphabet and tails stay. Numbers get the base and the bits that encoding would
//! give them; where these are the old ones, bits are copied as they are.

use super::{Found, Leaf, PART};
use crate::key::order::Tid;
use crate::packed::bits::{Array, Draft, Writer, mask, width};
use crate::packed::coming::{Bounds, Coming, Grows};
use crate::packed::encode::{begin, place};
use crate::packed::layout::{ALPHABET, Form, LOW, Layout, MAX_ENTRIES, MAX_SHORT, RANK_BITS};
use crate::packed::range::{both_sides, reaching};
use crate::packed::tids::narrow;
use crate::sync::atomic::plain::AtomicU64;
use crate::sync::mutants::mutant;
use core::ops::Range;

/// Heads that have this number of symbols in common tell keys apart too rarely. With a longer
/// template the heads have other symbols.
const MOST_IN_COMMON: usize = 4;

/// The ends of keys that have one entry each.
const ONE_EACH: [u64; (MAX_ENTRIES * RANK_BITS).div_ceil(64)] = {
    let (mut words, mut i) = ([0; (MAX_ENTRIES * RANK_BITS).div_ceil(64)], 0);
    while i < MAX_ENTRIES {
        let (word, shift) = (i * RANK_BITS / 64, i * RANK_BITS % 64);
        words[word] |= (i as u64 + 1) << shift;
        if shift + RANK_BITS > 64 {
            words[word + 1] |= (i as u64 + 1) >> (64 - shift);
        }
        i += 1;
    }
    words
};

impl Leaf<'_> {
    /// Returns true if encoding these entries saves no more than [`Leaf::rearrange`].
    pub fn copies_well(&self, ranks: &Range<usize>) -> bool {
        let l = &self.layout;
        let Some(keys) = self.keys_of(ranks) else { return false };
        let differ = |k| l.kbase.wrapping_add(l.heads.get(self.words, keys.start)) ^ self.head(k);
        match l.form {
            Form::Adjacent => true,
            Form::Short => keys.clone().any(|k| differ(k) & mask(3) != 0),
            Form::Scattered => {
                let all = keys.clone().fold(0, |all, k| all | differ(k));
                (0..l.ncolumns).all(|i| all >> (8 * i) & 0xff != 0)
            }
            Form::Wide => {
                let common = (8 * l.sbits).saturating_sub(width(differ(keys.end - 1)));
                let short = |k| self.tail(k).len() <= MAX_SHORT;
                common < MOST_IN_COMMON * l.sbits
                    && (l.keylen > 0 || l.zterm || !keys.clone().all(short))
                    && self.lengths_vary(&keys)
                    && self.needs_alphabet(&keys)
            }
            Form::Compared => {
                let first = |k| {
                    let tail = self.tail(k);
                    (!tail.is_empty()).then(|| l.tails.get(self.words, tail.start))
                };
                (first(keys.start).is_none() || first(keys.start) != first(keys.end - 1))
                    && self.lengths_vary(&keys)
                    && self.needs_alphabet(&keys)
            }
        }
    }

    /// Arranges a block of `size` bytes with the entries at these ranks. `low`: the stored
    /// bytes of its low key; None: the same as here. False: there is no room, or copied bits are
    /// not enough. Encoding may do.
    pub fn rearrange(
        &self,
        ranks: Range<usize>,
        low: Option<&[u8]>,
        bounds: &Bounds<'_>,
        size: usize,
        draft: &mut Draft,
    ) -> bool {
        let old = &self.layout;
        let Some(keys) = self.keys_of(&ranks).filter(|_| old.is_inside()) else { return false };
        let symbols = self.tail_start(keys.start)..self.tail_start(keys.end);
        let front = low.map_or(old.template() - LOW, <[u8]>::len);
        let Some(l) = self.layout_of(&ranks, &keys, symbols.len(), front, bounds, size) else {
            return false;
        };
        begin(draft, &l);
        match low {
            None => {
                let to = Array { offset: LOW, width: 0 };
                draft.bring(self.words, 8 * LOW..8 * old.heads.offset, to);
            }
            Some(low) => {
                draft.put_bytes(LOW, low);
                let len = l.tlen + if l.symbols > 0 { ALPHABET } else { 0 };
                for at in (0..len).step_by(8) {
                    let eight = self.words.bits(8 * (old.template() + at));
                    draft.put(8 * (l.template() + at), 8 * (len - at).min(8), eight);
                }
            }
        }
        self.copy_numbers((old.heads, old.kbase), keys.clone(), (l.heads, l.kbase), draft);
        self.copy_numbers((old.tids, old.tbase), ranks.clone(), (l.tids, l.tbase), draft);
        self.copy_ends(&ranks, &keys, &l, draft);
        let counted = mutant!("tails of a part are counted from its first symbol");
        let less = if counted { 0 } else { symbols.start as u64 };
        self.copy_numbers((old.tail_ends, 0), keys, (l.tail_ends, less), draft);
        self.copy_numbers((old.tails, 0), symbols, (l.tails, 0), draft);
        true
    }

    /// Arranges all of the leaf anew with one more entry, as [`Leaf::insert`] adds it, which has no
    /// room for it. `page`: private memory of the size of the block. False: encoding may do.
    pub fn insert_rearranged(
        &self,
        found: &Found,
        (key, number, tid): (&[u8], u64, Tid),
        grows: Grows,
        page: &[AtomicU64],
        draft: &mut Draft,
    ) -> bool {
        let size = self.layout.size;
        if !found.same && self.head_of(key, number).is_none() {
            return false;
        }
        let coming = Coming { grows, tid: Some(tid) };
        let bounds = Bounds { low: &[], high: None, coming };
        if !self.rearrange(0..self.layout.n, None, &bounds, size, draft) {
            return false;
        }
        draft.store(page);
        let inserted =
            Leaf::new(page).is_ok_and(|leaf| leaf.insert(found, key, number, tid, draft));
        // What did not change is there from before.
        draft.set_whole(size);
        inserted
    }

    /// Arranges that the first `n` entries stay where they are. False: they should be arranged
    /// anew, for the room or for the entries that come.
    pub fn cut_off(&self, n: usize, bounds: &Bounds<'_>, draft: &mut Draft) -> bool {
        let l = &self.layout;
        let Some(keys) = self.keys_of(&(0..n)).filter(|_| l.is_inside()) else { return false };
        let wanted = self.with_heads(&keys, bounds);
        let d = keys.end;
        let ends = self.has_ends(n, d, bounds) == (l.ends.width > 0);
        let heads = l.heads.width <= wanted.heads.width + 1 && l.kbase <= wanted.kbase;
        let known = |tid| self.number_of(tid).is_some_and(|number| self.covers(number));
        if !ends || !heads || !bounds.coming.tid.is_none_or(known) {
            return false;
        }
        draft.clear();
        draft.add(3, 4);
        draft.set_word(3, Layout { n, d, ..*l }.counts());
        if l.ends.width > 0 {
            draft.load(self.words, l.ends, d - 1, d);
            draft.set(l.ends, d - 1, n as u64);
        }
        true
    }

    /// Returns the keys of entries at these ranks. None: the leaf lacks some of them.
    fn keys_of(&self, ranks: &Range<usize>) -> Option<Range<usize>> {
        let l = &self.layout;
        if ranks.is_empty() || ranks.end > l.n {
            return None;
        }
        let keys = self.key_at(ranks.start)..self.key_at(ranks.end - 1) + 1;
        (keys.end <= l.d && !keys.is_empty() && keys.len() <= ranks.len()).then_some(keys)
    }

    /// Returns the head of key `k`.
    fn head(&self, k: usize) -> u64 {
        self.layout.kbase.wrapping_add(self.layout.heads.get(self.words, k))
    }

    /// Returns true if these keys have one length only if all keys of the leaf have.
    fn lengths_vary(&self, keys: &Range<usize>) -> bool {
        let l = &self.layout;
        let len = |k| match (self.tail(k).len(), l.zterm) {
            // In the head behind the end of a key are zeros.
            (0, true) => 8 - (self.head(k).trailing_zeros() as usize / l.sbits).min(8),
            (tail, _) => 8 + tail,
        };
        l.keylen > 0 || keys.clone().any(|k| len(k) != len(keys.start))
    }

    /// Do these keys have more symbols than fewer bits have numbers? Most often the first of them
    /// do.
    fn needs_alphabet(&self, keys: &Range<usize>) -> bool {
        let l = &self.layout;
        // Fewer bits than four are not used, nor others than eight for keys without an end that
        // bytes order.
        if l.sbits <= 4 || l.form == Form::Wide && l.symbols == 0 {
            return true;
        }
        let (first, mut seen) = (l.first_symbol(), [0u64; 4]);
        let mut needed = |symbols: u64, n: usize| {
            for i in 0..n {
                let symbol = symbols >> (i * l.sbits) & mask(l.sbits);
                seen[(symbol / 64) as usize % 4] |= u64::from(symbol >= first) << (symbol % 64);
            }
            let seen: u32 = seen.iter().map(|seen| seen.count_ones()).sum();
            u64::from(seen) + first > 1 << (l.sbits - 1)
        };
        let symbols = self.tail_start(keys.start)..self.tail_start(keys.end);
        let mut tails = symbols.clone().step_by(8);
        tails.any(|at| needed(self.words.bits(l.tails.bit(at)), (symbols.end - at).min(8)))
            || l.form == Form::Wide && keys.clone().any(|k| needed(self.head(k), 8))
    }

    /// Returns the layout of these entries, with shares of the room.
    fn layout_of(
        &self,
        ranks: &Range<usize>,
        keys: &Range<usize>,
        symbols: usize,
        front: usize,
        bounds: &Bounds<'_>,
        size: usize,
    ) -> Option<Layout> {
        let mut l = self.with_heads(keys, bounds);
        (l.n, l.d, l.size) = (ranks.len(), keys.len(), size);
        (l.tbase, l.tids.width) = self.tids_with(ranks, bounds.coming.tid)?;
        l.ends.width = if self.has_ends(l.n, l.d, bounds) { RANK_BITS } else { 0 };
        if l.tail_ends.width > 0 {
            l.tail_ends.width = l.bits_of_tail_ends();
        }
        let needs = [
            l.d * l.heads.width,
            l.n * l.tids.width,
            l.d * l.ends.width,
            l.d * l.tail_ends.width,
            symbols * l.tails.width,
        ];
        place(l, needs, front, bounds.coming.grows).filter(Layout::is_sound)
    }

    /// Returns true if some key has, or will get, several entries.
    fn has_ends(&self, n: usize, d: usize, bounds: &Bounds<'_>) -> bool {
        let Coming { grows, tid } = bounds.coming;
        d < n || grows == Grows::Entries && tid.is_some()
    }

    /// Returns the layout with the base and the bits for the heads of these keys.
    fn with_heads(&self, keys: &Range<usize>, bounds: &Bounds<'_>) -> Layout {
        let mut l = self.layout;
        if *keys == (0..l.d) {
            return l;
        }
        let (first, last) = (self.head(keys.start), self.head(keys.end - 1));
        (l.kbase, l.heads.width) = (first, width(last.wrapping_sub(first)));
        let wide = match (l.form, bounds.high) {
            (Form::Compared, _) => Some(both_sides(l)),
            (_, Some(high)) => reaching(l, self.alphabet.as_ref(), bounds.low, high),
            (_, None) => None,
        };
        l = wide.filter(|wide| wide.heads.width <= l.heads.width + 2).unwrap_or(l);
        if bounds.coming.grows == Grows::Below {
            l.reach_below();
        }
        l
    }

    /// The base and the bits that the TIDs at these ranks get, with one that is known to come.
    /// None: its offset in the page has more bits than theirs.
    fn tids_with(&self, ranks: &Range<usize>, coming: Option<Tid>) -> Option<(u64, usize)> {
        let l = &self.layout;
        let (mut low, mut high) = (u64::MAX, 0);
        let mut part = [0; PART];
        for first in ranks.clone().step_by(PART) {
            let part = &mut part[..(ranks.end - first).min(PART)];
            l.tids.numbers(self.words, first, part, |number| number);
            for &number in &*part {
                (low, high) = (low.min(number), high.max(number));
            }
        }
        (low, high) = (l.tbase.wrapping_add(low), l.tbase.wrapping_add(high));
        if let Some(tid) = coming {
            let number = self.number_of(tid)?;
            (low, high) = (low.min(number), high.max(number));
        }
        // One more, for rows to come.
        let needed = (width(high.wrapping_sub(low)) + 1).min(48);
        let as_before = l.tids.width <= needed && self.covers(low) && self.covers(high);
        Some(if as_before { (l.tbase, l.tids.width) } else { (low, needed) })
    }

    /// Returns the number of a TID, if its offset has no more bits than those of the leaf.
    fn number_of(&self, tid: Tid) -> Option<u64> {
        let obits = self.layout.obits;
        (tid & 0xffff <= mask(obits)).then(|| narrow(tid, obits))
    }

    /// Returns true if the leaf could store the number of this TID.
    fn covers(&self, number: u64) -> bool {
        let l = &self.layout;
        number.checked_sub(l.tbase).is_some_and(|number| number <= mask(l.tids.width))
    }

    /// Copies these numbers, which are relative to a base, for an array with another base.
    fn copy_numbers(
        &self,
        (from, old_base): (Array, u64),
        which: Range<usize>,
        (to, base): (Array, u64),
        draft: &mut Draft,
    ) {
        if from.width == to.width {
            draft.bring(self.words, from.bit(which.start)..from.bit(which.end), to);
            let down = base >= old_base;
            return draft.shift_each(to, 0, which.len(), base.abs_diff(old_base), down);
        }
        let by = base.wrapping_sub(old_base);
        let (mut part, mut writer) = ([0; PART], Writer::new(to));
        for first in which.clone().step_by(PART) {
            let part = &mut part[..(which.end - first).min(PART)];
            from.numbers(self.words, first, part, |number| number.wrapping_sub(by));
            writer.push_all(draft, to.width, part);
        }
        writer.finish(draft);
    }

    /// Copies how many entries there are up to each of these keys, or writes it, if each has one.
    fn copy_ends(&self, ranks: &Range<usize>, keys: &Range<usize>, l: &Layout, draft: &mut Draft) {
        let old = self.layout.ends;
        if l.ends.width == 0 {
            return;
        }
        if old.width == l.ends.width {
            let counted = mutant!("ends of a part are counted from its first entry");
            let less = if counted { 0 } else { ranks.start as u64 };
            self.copy_numbers((old, 0), keys.clone(), (l.ends, less), draft);
            return draft.set(l.ends, l.d - 1, l.n as u64);
        }
        draft.put_words(l.ends, l.d, &ONE_EACH);
    }
}
