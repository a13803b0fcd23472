//! Reading entries in order.

use super::{Leaf, PART};
use crate::key::order::Tid;
use crate::packed::alphabet::Alphabet;
use crate::packed::bits::mask;
use crate::packed::layout::{Form, MAX_SHORT, SHORT_BITS};
use crate::packed::tids::expand_with;
use crate::simd::decode;
use crate::simd::decode::Work;
use core::ops::Range;

impl Leaf<'_> {
    /// Reads the TIDs of at most [`PART`] ranks. Returns how many. The caller validates.
    #[inline]
    pub fn tids(&self, ranks: Range<usize>, out: &mut [Tid; PART]) -> usize {
        let ranks = self.part(ranks);
        if ranks.len() == 1 {
            out[0] = self.tid_at(ranks.start);
            return 1;
        }
        let l = &self.layout;
        let (offset, unused) = (mask(l.obits), 16 - l.obits as u32);
        let out = &mut out[..ranks.len()];
        l.tids.numbers(self.words, ranks.start, out, |number| {
            expand_with(l.tbase.wrapping_add(number), offset, unused)
        });
        ranks.len()
    }

    /// The key, appended, and the TID of an entry; nothing and 0 of one that is not there. To be
    /// validated by the caller.
    #[inline]
    pub fn entry(&self, rank: usize, out: &mut Vec<u8>) -> Tid {
        if rank >= self.layout.n {
            return 0;
        }
        let k = self.key_at(rank);
        const MOST: usize = 40;
        if self.layout.keylen <= MOST
            && let Some(even) = self.even()
        {
            let mut key = [0; MOST + Even::BEHIND];
            even.write(self, k, self.layout.heads.get(self.words, k), &mut key);
            out.extend_from_slice(&key[..self.layout.keylen]);
            return self.tid_at(rank);
        }
        self.key(k, self.spelling().as_ref(), out);
        self.tid_at(rank)
    }

    /// Returns the bytes of the symbols, if keys have an alphabet.
    pub fn spelling(&self) -> Option<[u8; 128]> {
        self.alphabet.as_ref().map(Alphabet::table)
    }

    /// Appends key number `k`. The caller validates.
    pub fn key(&self, k: usize, spelling: Option<&[u8; 128]>, out: &mut Vec<u8>) {
        let start = out.len();
        let mut writer = Writer { out, at: start, ahead: 0 };
        let width = self.layout.sbits;
        let spell = spelling.map(|table| move |symbols| decode::portable(table, symbols, width));
        self.write_key(k, spell, &mut writer);
        let end = writer.at;
        out.truncate(end);
    }

    /// Returns the abbreviation of an entry's key, 0 in byte order. The caller validates.
    pub fn number(&self, rank: usize) -> u64 {
        let l = &self.layout;
        if l.form != Form::Compared {
            return 0;
        }
        l.kbase.wrapping_add(l.heads.get(self.words, self.key_at(rank)))
    }

    /// Reads the abbreviations of at most [`PART`] ranks.
    pub fn numbers(&self, ranks: Range<usize>, out: &mut [u64; PART]) {
        self.spread(ranks, out, |head| self.layout.kbase.wrapping_add(head));
    }

    /// Reads the values that are made of the heads of at most [`PART`] ranks.
    #[inline(always)]
    pub(in crate::packed) fn spread(
        &self,
        ranks: Range<usize>,
        out: &mut [u64; PART],
        make: impl Fn(u64) -> u64,
    ) {
        let (ranks, l) = (self.part(ranks), &self.layout);
        if l.ends.width == 0 {
            return self.unpack_heads(ranks.start, &mut out[..ranks.len()], make);
        }
        let (mut i, mut copies) = (0, [0; PART]);
        let (first, copies) = self.copies(&ranks, &mut copies);
        for (&copies, head) in copies.iter().zip(self.heads(first, copies.len())) {
            out[i..i + copies].fill(make(head));
            i += copies;
        }
    }

    /// Appends the keys of at most [`PART`] ranks, and where each ends; returns how many there are.
    /// Memory is asked for at most once. To be validated by the caller.
    pub fn keys(&self, ranks: Range<usize>, out: &mut Vec<u8>, ends: &mut [u32; PART]) -> usize {
        let ranks = self.part(ranks);
        if ranks.is_empty() {
            return 0;
        }
        if ranks.len() == 1 {
            self.entry(ranks.start, out);
            ends[0] = out.len() as u32;
            return 1;
        }
        let l = &self.layout;
        let mut copies = [0; PART];
        let (first, copies) = self.copies(&ranks, &mut copies);
        let start = out.len();
        let mut writer = Writer { out, at: start, ahead: 0 };
        let written = if let Some(even) = self.even() {
            writer.reserve(ranks.len() * l.keylen + Even::BEHIND);
            let out = &mut writer.out[start..];
            // Most have no tail: a loop of their own.
            let n = match even.tail {
                0 => self.even_keys(&Even { tail: 0, ..even }, first, copies, out),
                _ => self.even_keys(&even, first, copies, out),
            };
            writer.at += n * l.keylen;
            for (i, end) in ends[..n].iter_mut().enumerate() {
                *end = (start + (i + 1) * l.keylen) as u32;
            }
            n
        } else if l.form == Form::Wide && self.alphabet.is_none() && l.tlen <= 16 {
            // Their lengths vary, and tails have all of them.
            self.varying_keys(first, copies, &mut writer, ends)
        } else if l.form == Form::Short && l.tlen <= 16 {
            self.short_keys(first, copies, &mut writer, ends)
        } else {
            writer.ahead = 1024;
            let odd = OddKeys { leaf: self, first, copies, writer: &mut writer, ends };
            match &self.alphabet {
                None => odd.write(None::<fn(u64) -> u64>),
                Some(alphabet) => {
                    decode::with_table(&alphabet.table(), alphabet.end(), l.sbits, odd)
                }
            }
        };
        let end = writer.at;
        out.truncate(end);
        // Only in a torn leaf are there less.
        written
    }

    /// Reads the heads of keys, at most a part.
    #[inline(always)]
    pub(in crate::packed) fn heads(&self, first: usize, n: usize) -> [u64; PART] {
        let mut heads = [0; PART];
        self.unpack_heads(first, &mut heads[..n], |head| head);
        heads
    }

    /// Reads the values that are made of heads, until the output is full.
    #[inline(always)]
    fn unpack_heads(&self, first: usize, out: &mut [u64], make: impl Fn(u64) -> u64) {
        self.layout.heads.numbers(self.words, first, out, make);
    }

    /// Does the same as [`Leaf::keys`] for even keys, into given memory. Returns how many.
    #[inline(always)]
    fn even_keys(&self, even: &Even, first: usize, copies: &[usize], out: &mut [u8]) -> usize {
        let l = &self.layout;
        let (heads, mut i) = (self.heads(first, copies.len()), 0);
        for (k, (&copies, head)) in copies.iter().zip(heads).enumerate() {
            for _ in 0..copies {
                even.write(self, first + k, head, &mut out[i * l.keylen..]);
                i += 1;
            }
        }
        i
    }

    /// Does the same as [`Leaf::keys`] for keys of bytes of any length, with a short template.
    fn varying_keys(
        &self,
        first: usize,
        copies: &[usize],
        writer: &mut Writer<'_>,
        ends: &mut [u32; PART],
    ) -> usize {
        let l = &self.layout;
        let (most, begin) = (self.most_in_tails(), self.tail(first).start);
        let (mut numbers, mut tail_ends) = ([0; PART], [0; PART]);
        let numbers = &mut numbers[..copies.len()];
        let (mut from, mut bytes) = (begin, 0);
        l.tail_ends.numbers(self.words, first, numbers, |end| end);
        for ((&mut number, end), copies) in numbers.iter_mut().zip(&mut tail_ends).zip(copies) {
            *end = (number as usize).clamp(from, most);
            bytes += copies * (l.tlen + (*end - from));
            from = *end;
        }
        // What is written of a key behind its end: the rest of sixteen bytes.
        writer.reserve(bytes + 24);
        let (start, template) = (writer.at, self.template());
        let out = &mut writer.out[start..];
        let (mut at, mut i, mut from) = (0, 0, begin);
        for (&copies, &end) in copies.iter().zip(&tail_ends) {
            for _ in 0..copies {
                out[at..][..16].copy_from_slice(template.as_flattened());
                self.copy_tail(from..end, &mut out[at + l.tlen..]);
                at += l.tlen + (end - from);
                ends[i] = (start + at) as u32;
                i += 1;
            }
            from = end;
        }
        writer.at += at;
        i
    }

    /// Decodes a head of the short form: the bytes behind the shared ones, and their number.
    #[inline(always)]
    fn short(&self, head: u64) -> ([u8; 8], usize) {
        let unused = 64 - 8 * self.layout.ncolumns.clamp(1, MAX_SHORT);
        ((head >> SHORT_BITS << unused).to_be_bytes(), (head as usize) % (MAX_SHORT + 1))
    }

    /// Does the same as [`Leaf::keys`] for the short form, with a short template.
    fn short_keys(
        &self,
        first: usize,
        copies: &[usize],
        writer: &mut Writer<'_>,
        ends: &mut [u32; PART],
    ) -> usize {
        let l = &self.layout;
        let n: usize = copies.iter().sum();
        // What is written of the last key behind its end.
        writer.reserve(n * (l.tlen + MAX_SHORT) + 24);
        let (start, template) = (writer.at, self.template());
        let out = &mut writer.out[start..];
        let (heads, mut at, mut i) = (self.heads(first, copies.len()), 0, 0);
        for (&copies, head) in copies.iter().zip(heads) {
            let (bytes, len) = self.short(l.kbase.wrapping_add(head));
            for _ in 0..copies {
                out[at..][..16].copy_from_slice(template.as_flattened());
                out[at + l.tlen..][..8].copy_from_slice(&bytes);
                at += l.tlen + len;
                ends[i] = (start + at) as u32;
                i += 1;
            }
        }
        writer.at += at;
        i
    }

    /// Copies these bytes of the tails, and up to fifteen behind them.
    #[inline(always)]
    fn copy_tail(&self, tail: Range<usize>, to: &mut [u8]) {
        let mut at = 0;
        while at < tail.len() {
            let from = self.layout.tails.offset + tail.start + at;
            to[at..][..16].copy_from_slice(&self.words.sixteen(from));
            at += 16;
        }
    }

    /// Returns sixteen bytes from the beginning of the template, which may be shorter.
    #[inline]
    fn template(&self) -> [[u8; 8]; 2] {
        let at = self.layout.template();
        [0, 8].map(|i| self.words.bits(8 * (at + i)).to_le_bytes())
    }

    /// Returns how keys of one length are put together, if that is simple. Mostly it is.
    #[inline]
    fn even(&self) -> Option<Even> {
        let l = &self.layout;
        let (column, unused) = match l.form {
            Form::Adjacent if l.keylen <= 16 && l.column(0) + l.ncolumns == l.keylen => {
                (l.column(0), 8 * (8 - l.ncolumns) as u32)
            }
            Form::Wide if self.alphabet.is_none() && l.keylen > 0 && l.tlen <= 16 => (l.tlen, 0),
            _ => return None,
        };
        let template = self.template();
        let tail = if l.form == Form::Wide { l.tail_len() } else { 0 };
        Some(Even { template, column, unused, tail })
    }

    /// Clips the ranks to those of the leaf, at most a part.
    pub(in crate::packed) fn part(&self, ranks: Range<usize>) -> Range<usize> {
        let start = ranks.start.min(self.layout.n);
        start..ranks.end.min(self.layout.n).clamp(start, start + PART)
    }

    /// Returns the first key of these ranks, and how many ranks each key has from there on. There
    /// is at least one rank, and at most a part. In a torn leaf the numbers may be less.
    #[inline(always)]
    pub(in crate::packed) fn copies<'c>(
        &self,
        ranks: &Range<usize>,
        of: &'c mut [usize; PART],
    ) -> (usize, &'c [usize]) {
        let l = &self.layout;
        if l.ends.width == 0 {
            of.fill(1);
            return (ranks.start, &of[..ranks.len()]);
        }
        let first = self.key_at(ranks.start);
        let most = ranks.len().min(l.d - first);
        let (mut rank, mut n, mut ends) = (ranks.start, 0, [0; PART]);
        while n < most && rank < ranks.end {
            // Mostly as many as are among these ranks, and not many more.
            let likely = (ranks.end - rank) * l.d / l.n + 8;
            let ends = &mut ends[..likely.min(most - n)];
            l.ends.numbers(self.words, first + n, ends, |end| end);
            for (&end, of) in ends.iter().zip(&mut of[n..]) {
                let before = rank;
                rank = (end as usize).clamp(rank, ranks.end);
                *of = rank - before;
            }
            n += ends.len();
        }
        (first, &of[..of[..n].iter().rposition(|&n| n > 0).map_or(0, |last| last + 1)])
    }

    /// Writes key `k`, which is not even. `spell` decodes the symbols of an alphabet.
    #[inline(always)]
    fn write_key(&self, k: usize, spell: Option<impl Fn(u64) -> u64>, to: &mut Writer<'_>) {
        let l = &self.layout;
        let head = l.kbase.wrapping_add(l.heads.get(self.words, k));
        let tail = self.tail(k);
        to.reserve(l.tlen + 8 + tail.len() + 1);
        for i in (0..l.tlen).step_by(8) {
            to.eight(self.words.bits(8 * (l.template() + i)), (l.tlen - i).min(8));
        }
        if l.form == Form::Adjacent && l.column(0) + l.ncolumns == l.keylen {
            let at = to.at - l.ncolumns;
            let unused = 8 * (8 - l.ncolumns) as u32;
            let head = head.checked_shl(unused).unwrap_or(0).to_be_bytes();
            to.out[at..at + 8].copy_from_slice(&head);
            return;
        }
        if l.form == Form::Compared {
            return self.write_tail(tail, spell, to);
        }
        if l.form == Form::Short {
            let (bytes, len) = self.short(head);
            return to.eight(u64::from_le_bytes(bytes), len);
        }
        if l.form != Form::Wide {
            let key = &mut to.out[to.at - l.tlen..to.at];
            for i in 0..l.ncolumns {
                key[l.column(i)] = (head >> (8 * (l.ncolumns - 1 - i))) as u8;
            }
            return;
        }
        let Some(spell) = spell else {
            if l.keylen != 0 {
                to.eight(head.swap_bytes(), l.body().min(8));
            }
            return self.write_tail(tail, None::<fn(u64) -> u64>, to);
        };
        // The first symbol is the highest.
        let bytes = spell(head).swap_bytes();
        let count = match l.keylen {
            0 => zeros_from(bytes),
            _ => l.body().min(8),
        };
        to.eight(bytes, count);
        self.write_tail(tail, Some(spell), to);
        to.eight(0, 1);
    }

    /// Writes these bytes, or the bytes of these symbols.
    #[inline(always)]
    fn write_tail(
        &self,
        tail: Range<usize>,
        spell: Option<impl Fn(u64) -> u64>,
        to: &mut Writer<'_>,
    ) {
        let l = &self.layout;
        for at in tail.clone().step_by(8) {
            let eight = self.words.bits(l.tails.bit(at));
            to.eight(spell.as_ref().map_or(eight, |spell| spell(eight)), (tail.end - at).min(8));
        }
    }
}

/// Returns the place of the first zero of eight bytes, the lowest first. 8: none.
#[inline]
fn zeros_from(bytes: u64) -> usize {
    const ONE: u64 = u64::MAX / 255;
    (bytes.wrapping_sub(ONE) & !bytes & (0x80 * ONE)).trailing_zeros() as usize / 8
}

/// Keys, at most a part, that are written one by one.
struct OddKeys<'k, 'w> {
    leaf: &'k Leaf<'k>,
    first: usize,
    /// The number of entries of each.
    copies: &'k [usize],
    writer: &'k mut Writer<'w>,
    ends: &'k mut [u32; PART],
}

impl Work for OddKeys<'_, '_> {
    type Done = usize;

    #[inline(always)]
    fn with(self, spell: impl Fn(u64) -> u64) -> usize {
        self.write(Some(spell))
    }
}

impl OddKeys<'_, '_> {
    /// Returns how many entries they have.
    #[inline(always)]
    fn write(self, spell: Option<impl Fn(u64) -> u64>) -> usize {
        let OddKeys { leaf, first, copies, writer, ends } = self;
        let mut i = 0;
        for (k, &copies) in copies.iter().enumerate() {
            let begin = writer.at;
            if copies > 0 {
                leaf.write_key(first + k, spell.as_ref(), writer);
            }
            let len = writer.at - begin;
            for copy in 0..copies {
                if copy > 0 {
                    writer.reserve(len);
                    writer.out.copy_within(begin..begin + len, writer.at);
                    writer.at += len;
                }
                ends[i] = writer.at as u32;
                i += 1;
            }
        }
        i
    }
}

/// Keys of one length: a template of sixteen bytes, eight over it, and a tail of bytes.
struct Even {
    template: [[u8; 8]; 2],
    /// The place of the head, and its shift.
    column: usize,
    unused: u32,
    tail: usize,
}

impl Even {
    /// Bytes behind a key that may be written, too.
    const BEHIND: usize = 24;

    /// Writes key `k`, whose head is this.
    #[inline(always)]
    fn write(&self, leaf: &Leaf<'_>, k: usize, head: u64, to: &mut [u8]) {
        let l = &leaf.layout;
        let head = l.kbase.wrapping_add(head);
        let head = head.checked_shl(self.unused).unwrap_or(0).to_be_bytes();
        to[..16].copy_from_slice(self.template.as_flattened());
        to[self.column..self.column + 8].copy_from_slice(&head);
        if self.tail > 0 {
            let from = k * self.tail;
            leaf.copy_tail(from..from + self.tail, &mut to[self.column + 8..]);
        }
    }
}

/// A vector being written behind its end in units of eight bytes.
struct Writer<'a> {
    out: &'a mut Vec<u8>,
    at: usize,
    /// Bytes of room beyond those that were asked for.
    ahead: usize,
}

impl Writer<'_> {
    /// Makes room for this number of bytes, and a unit over them.
    #[inline]
    fn reserve(&mut self, bytes: usize) {
        if self.out.len() < self.at + bytes + 8 {
            self.out.resize(self.at + bytes + 8 + self.ahead, 0);
        }
    }

    /// Appends the first `count` <= 8 of eight bytes, the lowest first.
    #[inline]
    fn eight(&mut self, bytes: u64, count: usize) {
        self.out[self.at..self.at + 8].copy_from_slice(&bytes.to_le_bytes());
        self.at += count;
    }
}
