//! The header of a packed leaf. Only this file knows the offsets, and only this file uses a number
//! from a block, after checking it.

use super::bits::{Array, Draft, MAX_WORDS, width};
use super::words::Words;

/// The header is not that of a packed leaf: the block was being changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Torn;

/// Most entries of a packed leaf.
pub const MAX_ENTRIES: usize = 1024;
/// Bits of a rank.
pub(super) const RANK_BITS: usize = 11;
/// Where the low key begins.
pub const LOW: usize = 104;
/// Most bytes that keys leave out in front.
pub(super) const MAX_TEMPLATE: usize = u8::MAX as usize;
/// Longest key of the narrow form.
pub(super) const MAX_NARROW: usize = 64;
/// Most bytes of a key of the short form behind the shared bytes.
pub(super) const MAX_SHORT: usize = 7;
/// Bits of a head that tell the number of these bytes.
pub(super) const SHORT_BITS: usize = 3;
/// Bytes of the bitmap of an alphabet.
pub(super) const ALPHABET: usize = 32;

/// The way in which heads are made of keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Form {
    /// All keys have one length and differ in few bytes, which are neighbours.
    #[default]
    Adjacent,
    /// The first eight symbols behind the shared bytes. The others are in the tail.
    Wide,
    /// As `Adjacent`, but the bytes are not neighbours.
    Scattered,
    /// At most [`MAX_SHORT`] bytes behind the shared ones, and their number.
    Short,
    /// In the order of a comparator: the abbreviations of keys. All bytes that they do not share
    /// are in the tail.
    Compared,
}

/// The forms by their numbers in the header.
const FORMS: [Form; 5] = [Form::Adjacent, Form::Wide, Form::Scattered, Form::Compared, Form::Short];

/// Keys end with their only zero behind the shared bytes. It is not stored.
const ZTERM: usize = 1 << 4;

/// The content of the header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Layout {
    /// Entries.
    pub(super) n: usize,
    /// Different keys.
    pub(super) d: usize,
    pub(super) form: Form,
    pub(super) zterm: bool,
    /// Length of all keys, 0: varying.
    pub(super) keylen: usize,
    /// Bits of a symbol.
    pub(super) sbits: usize,
    /// The number of different symbols. 0: all bytes.
    pub(super) symbols: usize,
    /// Bits of a TID that are its offset in the page.
    pub(super) obits: usize,
    pub(super) kbase: u64,
    pub(super) tbase: u64,
    /// Byte i: the place of the i-th column in the key.
    pub(super) columns: u64,
    pub(super) ncolumns: usize,
    /// Length of the template: the whole key (narrow), or the shared bytes.
    pub(super) tlen: usize,
    pub(super) heads: Array,
    pub(super) tids: Array,
    /// Entries up to key k. Width 0: one entry per key.
    pub(super) ends: Array,
    /// Symbols in tails up to key k. Width 0: all tails have one length.
    pub(super) tail_ends: Array,
    /// The tails, `width` bits per symbol.
    pub(super) tails: Array,
    /// Bytes of the block.
    pub(super) size: usize,
}

impl Layout {
    /// Reads the header. Returns Err if it cannot be true.
    #[inline(always)]
    pub(super) fn load(words: Words<'_>) -> Result<Layout, Torn> {
        let [counts, widths, offsets, others] = [3, 4, 11, 12].map(|i| words.word(i));
        let byte = |word: u64, i: usize| (word >> (8 * i)) as usize & 0xff;
        let half = |word: u64, i: usize| (word >> (16 * i)) as usize & 0xffff;
        let form = byte(counts, 7);
        let sbits = byte(widths, 1);
        let l = Layout {
            n: half(counts, 0),
            d: half(counts, 1),
            form: FORMS[(form % 8).min(FORMS.len() - 1)],
            zterm: form & ZTERM != 0,
            keylen: byte(widths, 0),
            sbits,
            symbols: byte(others, 4),
            obits: byte(counts, 6),
            kbase: words.word(8),
            tbase: words.word(9),
            columns: words.word(10),
            ncolumns: byte(others, 3),
            tlen: byte(others, 6),
            heads: Array { offset: half(widths, 2), width: byte(counts, 4) },
            tids: Array { offset: half(widths, 3), width: byte(counts, 5) },
            ends: Array { offset: half(offsets, 2), width: byte(widths, 2) },
            tail_ends: Array { offset: half(others, 0), width: byte(widths, 3) },
            tails: Array { offset: half(offsets, 3), width: sbits },
            size: words.size(),
        };
        if l.is_sound() { Ok(l) } else { Err(Torn) }
    }

    /// Returns true if the arrays are in the block, one behind the other. Readers need not ask:
    /// everything outside of the block reads as zero.
    pub(super) fn is_inside(&self) -> bool {
        let fits = |array: Array, n: usize, to: usize| {
            array.width <= 64 && array.offset.is_multiple_of(8) && array.bit(n) <= 8 * to
        };
        self.tids.width <= 48
            && self.size <= 8 * MAX_WORDS
            && fits(self.heads, self.d, self.tids.offset)
            && fits(self.tids, self.n, self.ends.offset)
            && fits(self.ends, self.d, self.tail_ends.offset)
            && fits(self.tail_ends, self.d, self.tails.offset)
            && fits(self.tails, self.d * self.tail_len(), self.size)
    }

    /// Checks as much as readers need: the numbers that they calculate with have a meaning, and
    /// their loops end.
    #[inline(always)]
    pub(super) fn is_sound(&self) -> bool {
        let narrow = matches!(self.form, Form::Adjacent | Form::Scattered);
        let terminated = self.form != Form::Compared && self.symbols > 0;
        let alphabet = usize::from(self.symbols > 0) * ALPHABET;
        let varies = self.keylen == 0 && self.symbols == 0 && self.tail_ends.width == 0;
        let short = varies && (1..=MAX_SHORT).contains(&self.ncolumns);
        self.n <= MAX_ENTRIES
            && self.d <= self.n
            && (self.d == self.n || self.ends.width > 0)
            && self.obits <= 16
            && LOW + self.tlen + alphabet <= self.heads.offset
            && self.tails.offset <= self.size
            && if self.form == Form::Short {
                short && self.tlen <= MAX_NARROW
            } else if narrow {
                self.tlen == self.keylen
                    && self.keylen <= MAX_NARROW
                    && self.ncolumns <= 8
                    && self.symbols == 0
                    && self.tail_ends.width == 0
                    && match self.form {
                        Form::Scattered => {
                            (0..self.ncolumns).all(|i| self.column(i) < self.keylen)
                                && (1..self.ncolumns).all(|i| self.column(i - 1) < self.column(i))
                        }
                        _ => self.column(0) + self.ncolumns <= self.keylen,
                    }
            } else {
                (4..=8).contains(&self.sbits)
                    && self.zterm == terminated
                    && self.symbols < 128
                    && (self.keylen == 0 || self.tlen + usize::from(self.zterm) <= self.keylen)
                    && (self.keylen == 0) == (self.tail_ends.width > 0)
            }
    }

    /// Lets heads be as far below the present ones as these are from each other. If each new key is
    /// below the one before it, the leaf is then not arranged anew for each.
    pub(super) fn reach_below(&mut self) {
        if self.heads.width < 63 {
            self.kbase = self.kbase.saturating_sub(1 << self.heads.width);
            self.heads.width += 1;
        }
    }

    /// Arranges the header.
    pub(super) fn store(&self, draft: &mut Draft) {
        draft.set_word(3, self.counts());
        let pack = |bytes: [usize; 4], halves: [usize; 2]| {
            let bytes = bytes.iter().rev().fold(0, |word, &byte| word << 8 | byte as u64);
            bytes | (halves[0] as u64) << 32 | (halves[1] as u64) << 48
        };
        let widths = [self.keylen, self.sbits, self.ends.width, self.tail_ends.width];
        draft.set_word(4, pack(widths, [self.heads.offset, self.tids.offset]));
        draft.set_word(8, self.kbase);
        draft.set_word(9, self.tbase);
        draft.set_word(10, self.columns);
        draft.set_word(11, pack([0; 4], [self.ends.offset, self.tails.offset]));
        let (low, high) = (self.tail_ends.offset & 0xff, self.tail_ends.offset >> 8);
        let first = self.column(0);
        let symbols = [low, high, first, self.ncolumns];
        draft.set_word(12, pack(symbols, [self.symbols, self.tlen]));
    }

    /// Returns the word that changes with each entry.
    pub(super) fn counts(&self) -> u64 {
        let form = FORMS.iter().position(|&form| form == self.form).unwrap_or(0)
            | if self.zterm { ZTERM } else { 0 };
        let bytes = [self.heads.width, self.tids.width, self.obits, form];
        let bytes = bytes.iter().rev().fold(0, |word, &byte| word << 8 | byte as u64);
        self.n as u64 | (self.d as u64) << 16 | bytes << 32
    }

    /// Returns the place of column `i` in a key.
    #[inline]
    pub(super) fn column(&self, i: usize) -> usize {
        match self.form {
            Form::Scattered => (self.columns >> (8 * i)) as usize & 0xff,
            _ => (self.columns & 0xff) as usize + i,
        }
    }

    /// Returns the byte at which the template begins.
    #[inline]
    pub(super) fn template(&self) -> usize {
        self.heads.offset - if self.symbols > 0 { ALPHABET } else { 0 } - self.tlen
    }

    /// Returns the byte at which the bitmap of the alphabet begins, if there is one.
    #[inline]
    pub(super) fn alphabet(&self) -> usize {
        self.heads.offset - ALPHABET
    }

    /// Returns the number of symbols behind the template, for keys of one length.
    #[inline]
    pub(super) fn body(&self) -> usize {
        self.keylen.saturating_sub(self.tlen + usize::from(self.zterm))
    }

    /// Returns the number of symbols in the tail of each key, if it is the same for all.
    #[inline]
    pub(super) fn tail_len(&self) -> usize {
        match self.form {
            Form::Wide => self.body().saturating_sub(8),
            Form::Compared => self.body(),
            _ => 0,
        }
    }

    /// Returns the bits for as many symbols as a block could have.
    pub(super) fn bits_of_tail_ends(&self) -> usize {
        width((8 * self.size / self.sbits) as u64)
    }

    /// Returns the symbol of the first byte of the alphabet. If lengths vary, 0 in a head means the
    /// end of the key.
    #[inline]
    pub(super) fn first_symbol(&self) -> u64 {
        u64::from(self.keylen == 0 && self.form == Form::Wide)
    }
}
