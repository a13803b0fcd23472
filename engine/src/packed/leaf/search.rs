//! Finding a key, and an entry.

use super::Leaf;
use crate::key::order::Tid;
use crate::packed::alphabet::Symbol;
use crate::packed::bits::{mask, partition, try_partition};
use crate::packed::head::{Side, Target, short_head, wide_head};
use crate::packed::layout::Form;
use crate::packed::tids::expand;
use crate::simd::decode;
use crate::sync::mutants::mutant;
use core::cmp::Ordering;
use core::convert::Infallible;
use core::ops::Range;

/// The place of (key, TID) in a leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// The number of different keys below the key.
    pub key: usize,
    /// Whether the leaf has the key.
    pub same: bool,
    /// The number of entries below (key, TID).
    pub rank: usize,
    /// The number of entries equal to (key, TID): lives of one entry.
    pub equal: usize,
}

impl Leaf<'_> {
    /// Finds (key, TID). The caller validates.
    #[inline]
    pub fn search(&self, key: &[u8], tid: Tid) -> Found {
        let (key, same) = self.find_key(key);
        let entries = if same { self.entries_of(key) } else { self.start(key)..self.start(key) };
        let (rank, equal) = if same { self.find_tid(entries, tid) } else { (entries.start, 0) };
        Found { key, same, rank, equal }
    }

    /// As [`search`](Self::search), if that is near key number `at`: between it and the one before,
    /// which may be this key, as it may be itself. Only where the leaf has a key on either side.
    #[inline]
    pub fn search_between(&self, key: &[u8], tid: Tid, at: usize) -> Option<Found> {
        let l = &self.layout;
        if at == 0 || at >= l.d {
            return None;
        }
        let target = self.target(key).ok()?;
        let head = target.head.checked_sub(l.kbase)?;
        let same = match self.against(key, &target, head, at) {
            Ordering::Greater => return None,
            Ordering::Equal => Some(at),
            Ordering::Less => match self.against(key, &target, head, at - 1) {
                Ordering::Greater => None,
                Ordering::Equal => Some(at - 1),
                Ordering::Less => return None,
            },
        };
        let Some(k) = same else {
            return Some(Found { key: at, same: false, rank: self.start(at), equal: 0 });
        };
        let begins = k > 0 || mutant!("entries of a key under a finger begin in its leaf");
        let ends = k + 1 < l.d || mutant!("entries of a key under a finger end in its leaf");
        if !(begins && ends) {
            return None;
        }
        let (rank, equal) = self.find_tid(self.entries_of(k), tid);
        Some(Found { key: k, same: true, rank, equal })
    }

    /// Compares a key with this head with key `k`.
    #[inline(always)]
    fn against(&self, key: &[u8], target: &Target, head: u64, k: usize) -> Ordering {
        let by_head = head.cmp(&self.layout.heads.get(self.words, k));
        by_head.then_with(|| match target.side {
            Side::Below => Ordering::Less,
            Side::Above => Ordering::Greater,
            Side::Here => Ordering::Equal,
            Side::Tails => self.compare_tail(key, k),
        })
    }

    /// Counts the entries with a key below this one. The caller validates.
    #[inline]
    pub fn lower_bound(&self, key: &[u8]) -> usize {
        self.start(self.find_key(key).0)
    }

    /// The same, if at least `from` are of interest: mostly these, a few more, or all. To be
    /// validated by the caller.
    pub fn lower_bound_from(&self, key: &[u8], from: usize) -> usize {
        let l = &self.layout;
        let target = match self.target(key) {
            Ok(target) => target,
            Err(Ordering::Less) => return from,
            Err(_) => return l.n,
        };
        let Some(head) = target.head.checked_sub(l.kbase) else { return from };
        let below = |k: usize| self.against(key, &target, head, k).is_gt();
        let Ok(bound) = self.bound(from, |k| Ok::<_, Infallible>(below(k)));
        bound
    }

    /// How many entries have a key that is `below`, at least `from` of interest: mostly these, a
    /// few more, or all.
    #[inline(always)]
    fn bound<E>(
        &self,
        from: usize,
        mut below: impl FnMut(usize) -> Result<bool, E>,
    ) -> Result<usize, E> {
        let l = &self.layout;
        if from >= l.n || l.d == 0 {
            return Ok(from);
        }
        let mut first = self.key_at(from).min(l.d - 1);
        for _ in 0..2 {
            if !below(first)? {
                return Ok(self.start(first).max(from));
            }
            first += 1;
            if first >= l.d || first == l.d - 1 && below(first)? {
                return Ok(l.n);
            }
        }
        if below(l.d - 1)? {
            return Ok(l.n);
        }
        Ok(self.start(try_partition(first..l.d, below)?).max(from))
    }

    /// As [`search`](Self::search), of a key with this number in the order of a comparator:
    /// `compare` says how it is related to one of the keys of the leaf.
    pub fn search_by<E>(
        &self,
        number: u64,
        tid: Tid,
        mut compare: impl FnMut(usize) -> Result<Ordering, E>,
    ) -> Result<Found, E> {
        let l = &self.layout;
        let heads = |head| l.heads.partition(self.words, 0..l.d, head);
        let (mut key, mut to) = match number.checked_sub(l.kbase) {
            Some(head) => (heads(head), head.checked_add(1).map_or(l.d, heads)),
            None => (0, 0),
        };
        while key < to {
            let middle = key.midpoint(to);
            match compare(middle)? {
                Ordering::Less => to = middle,
                Ordering::Greater => key = middle + 1,
                Ordering::Equal => {
                    let (rank, equal) = self.find_tid(self.entries_of(middle), tid);
                    return Ok(Found { key: middle, same: true, rank, equal });
                }
            }
        }
        Ok(Found { key, same: false, rank: self.start(key), equal: 0 })
    }

    /// As [`lower_bound_from`](Self::lower_bound_from), of a key with this number in the order of a
    /// comparator. `upper` counts the entries with this key, too.
    pub fn bound_by<E>(
        &self,
        number: u64,
        from: usize,
        upper: bool,
        mut compare: impl FnMut(usize) -> Result<Ordering, E>,
    ) -> Result<usize, E> {
        let l = &self.layout;
        let Some(head) = number.checked_sub(l.kbase) else { return Ok(from) };
        self.bound(from, |k| {
            Ok(match head.cmp(&l.heads.get(self.words, k)) {
                Ordering::Equal => match compare(k)? {
                    Ordering::Equal => upper,
                    unequal => unequal.is_gt(),
                },
                unequal => unequal.is_gt(),
            })
        })
    }

    /// Returns the number of entries below key `k`.
    #[inline]
    pub(in crate::packed) fn start(&self, k: usize) -> usize {
        let l = &self.layout;
        match k.checked_sub(1) {
            _ if l.ends.width == 0 => k,
            None => 0,
            Some(k) => (l.ends.get(self.words, k) as usize).min(l.n),
        }
    }

    /// Returns the ranks of key `k`.
    #[inline]
    pub(in crate::packed) fn entries_of(&self, k: usize) -> Range<usize> {
        let start = self.start(k);
        start..self.start(k + 1).max(start).min(self.layout.n)
    }

    /// Returns the key of the entry at `rank`.
    pub(in crate::packed) fn key_at(&self, rank: usize) -> usize {
        let l = &self.layout;
        if l.ends.width == 0 {
            return rank;
        }
        l.ends.partition(self.words, 0..l.d, (rank as u64).saturating_add(1))
    }

    /// Returns how many keys are below this one, and whether the leaf has it.
    #[inline]
    fn find_key(&self, key: &[u8]) -> (usize, bool) {
        let l = &self.layout;
        let target = match self.target(key) {
            Ok(target) => target,
            Err(Ordering::Less) => return (0, false),
            Err(_) => return (l.d, false),
        };
        let Some(head) = target.head.checked_sub(l.kbase) else { return (0, false) };
        let below = |head| l.heads.partition(self.words, 0..l.d, head);
        let not_above = || head.checked_add(1).map_or(l.d, below);
        match target.side {
            Side::Below => (below(head), false),
            Side::Above => (not_above(), false),
            Side::Here => {
                let k = below(head);
                (k, k < l.d && l.heads.get(self.words, k) == head)
            }
            Side::Tails => {
                let from = below(head);
                if from == l.d || l.heads.get(self.words, from) != head {
                    return (from, false);
                }
                if from + 1 == l.d || l.heads.get(self.words, from + 1) != head {
                    let ordering = self.compare_tail(key, from);
                    return (from + usize::from(ordering.is_gt()), ordering.is_eq());
                }
                let to = not_above().max(from);
                let k = partition(from..to, |k| self.compare_tail(key, k).is_gt());
                (k, k < to && self.compare_tail(key, k).is_eq())
            }
        }
    }

    /// Returns the head of a key. Err: the key is below (above) the shared bytes, so all keys.
    #[inline]
    pub(in crate::packed) fn target(&self, key: &[u8]) -> Result<Target, Ordering> {
        let l = &self.layout;
        match l.form {
            Form::Wide => match self.compare_start(key, l.template(), l.tlen) {
                Ordering::Equal => {
                    Ok(wide_head(l, self.alphabet.as_ref(), key.get(l.tlen..).unwrap_or_default()))
                }
                unequal => Err(unequal),
            },
            Form::Adjacent => {
                let first = l.column(0);
                let end = first + l.ncolumns;
                match self.compare_start(key, l.template(), first) {
                    Ordering::Equal => {}
                    unequal => return Err(unequal),
                }
                let unused = 64 - 8 * l.ncolumns;
                let eight = crate::key::bytes::prefix_at(key, first);
                let head = if l.ncolumns == 0 { 0 } else { eight >> unused };
                let rest = key.get(end..).unwrap_or_default();
                let side = if key.len() < end {
                    Side::Below
                } else {
                    match self.compare(rest, l.template() + end, l.keylen - end) {
                        Ordering::Less => Side::Below,
                        Ordering::Greater => Side::Above,
                        Ordering::Equal => Side::Here,
                    }
                };
                Ok(Target { head, side })
            }
            Form::Short => match self.compare_start(key, l.template(), l.tlen) {
                Ordering::Equal => Ok(short_head(l, key.get(l.tlen..).unwrap_or_default())),
                unequal => Err(unequal),
            },
            Form::Scattered => Ok(self.scattered(key)),
            // Of a torn leaf only: nobody asks for the place of bytes in another order.
            Form::Compared => Err(Ordering::Less),
        }
    }

    fn scattered(&self, key: &[u8]) -> Target {
        let l = &self.layout;
        let (mut head, mut at) = (0, 0);
        for i in 0..=l.ncolumns {
            let to = if i < l.ncolumns { l.column(i) } else { l.keylen };
            let mine = key.get(at..).unwrap_or_default();
            // Behind the first difference everything is smaller, or larger.
            let rest = 8 * (l.ncolumns - i);
            let filled = |fill: u64, side| {
                let head = if rest >= 64 { 0 } else { head << rest };
                Target { head: head | fill & mask(rest), side }
            };
            match self.compare_start(mine, l.template() + at, to - at) {
                Ordering::Less => return filled(0, Side::Below),
                Ordering::Greater => return filled(u64::MAX, Side::Above),
                Ordering::Equal => {}
            }
            if i < l.ncolumns {
                let Some(&byte) = key.get(to) else { return filled(0, Side::Below) };
                head = head << 8 | u64::from(byte);
            }
            at = to + 1;
        }
        let side = if key.len() > l.keylen { Side::Above } else { Side::Here };
        Target { head, side }
    }

    /// Compares the first `len` bytes of a key with bytes of the block. A shorter key is below.
    #[inline]
    pub(in crate::packed) fn compare_start(&self, key: &[u8], at: usize, len: usize) -> Ordering {
        let common = key.len().min(len);
        let mut i = 0;
        while i < common {
            let unused = 64 - 8 * (common - i).min(8);
            let ours = crate::key::bytes::prefix_at(key, i) >> unused;
            let theirs = self.words.big_endian(at + i) >> unused;
            if ours != theirs {
                return ours.cmp(&theirs);
            }
            i += 8;
        }
        common.cmp(&len)
    }

    /// Compares all of a key with `len` bytes of the block.
    #[inline]
    pub(in crate::packed) fn compare(&self, key: &[u8], at: usize, len: usize) -> Ordering {
        self.compare_start(key, at, len).then(key.len().cmp(&len))
    }

    /// Returns the symbols of the tail of key `k`: from, to.
    #[inline]
    pub(in crate::packed) fn tail(&self, k: usize) -> Range<usize> {
        let l = &self.layout;
        if l.tail_ends.width == 0 {
            let len = l.tail_len();
            return k * len..(k + 1) * len;
        }
        let most = self.most_in_tails();
        let start = if k == 0 { 0 } else { l.tail_ends.get(self.words, k - 1) as usize };
        let start = start.min(most);
        start..(l.tail_ends.get(self.words, k) as usize).clamp(start, most)
    }

    /// Reads as many symbols as there is room for.
    #[inline]
    pub(in crate::packed) fn most_in_tails(&self) -> usize {
        8 * (self.layout.size - self.layout.tails.offset) / self.layout.tails.width
    }

    /// Compares a key with key `k`, which has the same head.
    fn compare_tail(&self, key: &[u8], k: usize) -> Ordering {
        let l = &self.layout;
        let tail = self.tail(k);
        if !l.zterm {
            // Where lengths vary the tail has all of it, so that its end says where the key ends.
            let skip = if l.keylen == 0 { l.tlen } else { l.tlen + 8 };
            let mine = key.get(skip..).unwrap_or_default();
            return self.compare(mine, l.tails.offset + tail.start, tail.len());
        }
        let Some(alphabet) = &self.alphabet else { return Ordering::Equal };
        let mine = key.get(l.tlen + 8..).unwrap_or_default();
        let mut at = 0;
        if alphabet.is_soon_spelt_out(tail.len()) {
            let table = alphabet.table();
            while at < tail.len() {
                let eight = self.words.bits(l.tails.bit(tail.start + at));
                let unused = 64 - 8 * (tail.len() - at).min(8);
                let theirs = decode::portable(&table, eight, l.sbits).swap_bytes() >> unused;
                let ours = crate::key::bytes::prefix_at(mine, at) >> unused;
                if ours != theirs {
                    return ours.cmp(&theirs);
                }
                at += 8;
            }
        }
        while at < tail.len() {
            let theirs = self.words.bits(l.tails.bit(tail.start + at));
            for i in 0..8.min(tail.len() - at) {
                let Some(&byte @ 1..) = mine.get(at + i) else { return Ordering::Less };
                let theirs = theirs >> (i * l.sbits) & mask(l.sbits);
                let ordering = match alphabet.symbol(byte) {
                    Symbol::Is(symbol) => symbol.cmp(&theirs),
                    Symbol::Before(Some(next)) if theirs >= next => Ordering::Less,
                    Symbol::Before(_) => Ordering::Greater,
                };
                if ordering.is_ne() {
                    return ordering;
                }
            }
            at += 8;
        }
        // Their terminator.
        match mine[self.tail(k).len().min(mine.len())..] {
            [] => Ordering::Less,
            [0] => Ordering::Equal,
            _ => Ordering::Greater,
        }
    }

    /// Finds a TID among those of one key: the entries below it in the leaf, and those equal to it.
    #[inline]
    fn find_tid(&self, entries: Range<usize>, tid: Tid) -> (usize, usize) {
        let l = &self.layout;
        let (number, exact) = self.tid_number(tid);
        let Some(number) = number else { return (entries.start, 0) };
        let (from, to) = (entries.start, entries.end);
        let tids = |number| l.tids.partition(self.words, from..to, number);
        if !exact {
            // Above all with this number, of which the highest bit is free then: offsets have less
            // than sixteen.
            return (tids(number + 1), 0);
        }
        let rank = tids(number);
        let equal = (rank..to).take_while(|&i| l.tids.get(self.words, i) == number).count();
        (rank, equal)
    }

    /// Returns the number of a TID here. None: it is below all. False: it is just above the number.
    #[inline]
    pub(in crate::packed) fn tid_number(&self, tid: Tid) -> (Option<u64>, bool) {
        let l = &self.layout;
        let (page, offset) = (tid >> 16, tid & 0xffff);
        let most = mask(l.obits);
        ((page << l.obits | offset.min(most)).checked_sub(l.tbase), offset <= most)
    }

    /// Returns the TID at `rank`.
    #[inline]
    pub(in crate::packed) fn tid_at(&self, rank: usize) -> Tid {
        let l = &self.layout;
        expand(l.tbase.wrapping_add(l.tids.get(self.words, rank)), l.obits)
    }
}
