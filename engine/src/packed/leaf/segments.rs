//! The bytes in one place of each key: a byte and the eight behind it, which are a number in the
//! keys of a column of numbers. An aggregate adds up many of them, and reads no whole keys.
//!
//! The columns before the place must take as many bytes in all keys. The caller knows which bytes
//! say that length. This module asks whether these are the same in all keys of the leaf.

use super::{Leaf, PART};
use crate::packed::bits::mask;
use crate::packed::layout::{Form, SHORT_BITS};
use crate::sync::mutants::mutant;
use core::ops::Range;

/// The place, and room for the bytes of all entries of a leaf. Smaller room is filled to its end.
pub struct Segments<'s> {
    /// Bytes that must be the same in all keys.
    pub fixed: &'s [usize],
    /// The place of the first byte in each key. The bytes behind a key's end may be anything.
    pub at: usize,
    /// The number of wanted bytes behind the first one, at most eight.
    pub len: fn(u8) -> usize,
    /// The first byte of each, if they are not all `alike`.
    pub firsts: &'s mut [u8],
    /// The eight bytes behind it, the first one the highest.
    pub eights: &'s mut [u64],
    /// The first byte of all of them, if that is the same.
    pub alike: Option<u8>,
}

/// Eight bytes of keys, from heads and from the bytes that keys share.
#[derive(Clone, Copy, Default)]
pub struct Window {
    /// The bytes that all keys share, the first one the highest.
    shared: u64,
    /// How far down the head is shifted: its lowest bits belong to bytes behind the window. Then
    /// the bits that belong here, and how far up they are shifted.
    down: u32,
    head: u64,
    up: u32,
}

impl Window {
    #[inline(always)]
    fn of(self, head: u64) -> u64 {
        self.shared | (head >> self.down & self.head) << self.up
    }
}

/// The source of the bytes.
#[derive(Clone, Copy)]
pub enum Place {
    /// The window of the first byte, if that is not the same in all keys, and of the others.
    Heads(Option<Window>, Window),
    /// The number of bytes behind the shared ones.
    Behind(usize),
}

impl Leaf<'_> {
    /// Returns where to read them, if that is simple. The caller validates.
    pub fn place_of(&self, wanted: &mut Segments<'_>) -> Option<Place> {
        let (l, at) = (&self.layout, wanted.at);
        let is_shared = |byte: usize| match l.form {
            Form::Wide | Form::Short => byte < l.tlen,
            _ => byte < l.keylen && (0..l.ncolumns).all(|i| l.column(i) != byte),
        };
        let fixed = wanted.fixed.iter().all(|&byte| is_shared(byte));
        if !fixed && !mutant!("what is before a number has one length") {
            return None;
        }
        let first = self.shared(at);
        wanted.alike = is_shared(at).then_some((first.shared >> 56) as u8);
        let len = wanted.alike.map_or(8, |first| (wanted.len)(first).min(8));
        match l.form {
            Form::Adjacent | Form::Scattered | Form::Short => {
                let first = self.narrow(at, 1)?;
                Some(Place::Heads(
                    wanted.alike.is_none().then_some(first),
                    self.narrow(at + 1, len)?,
                ))
            }
            Form::Wide if self.alphabet.is_none() => Some(match l.tlen.checked_sub(at + 1) {
                Some(shares) => Place::Heads(None, self.wide(at + 1, shares.min(8))),
                None => Place::Behind(at - l.tlen),
            }),
            _ => None,
        }
    }

    fn shared(&self, at: usize) -> Window {
        Window { shared: self.words.big_endian(self.layout.template() + at), ..Window::default() }
    }

    /// For keys that differ in few places: columns in the window must be neighbours.
    fn narrow(&self, at: usize, bytes: usize) -> Option<Window> {
        let l = &self.layout;
        let column = |i: &usize| l.column(*i);
        let before = (0..l.ncolumns).take_while(|i| column(i) < at).count();
        let end = (0..l.ncolumns).take_while(|i| column(i) < at + bytes).count();
        let all = self.shared(at);
        if before >= end {
            return Some(all);
        }
        let (from, to, n) = (l.column(before), l.column(end - 1) + 1, end - before);
        let len = if l.form == Form::Short { SHORT_BITS } else { 0 };
        let (down, head) = ((8 * (l.ncolumns - end) + len) as u32, mask(8 * n));
        let up = 8 * (at + 8 - to) as u32;
        let shared = all.shared & !(head << up);
        (to - from == n).then_some(Window { shared, down, head, up })
    }

    /// Returns the window of keys that share its first `shares` bytes. The others are in the head,
    /// with zeros where the key has ended.
    fn wide(&self, at: usize, shares: usize) -> Window {
        let (head, down) = (mask(64 - 8 * shares), 8 * shares as u32 % 64);
        Window { shared: self.shared(at).shared & !head, down, head, up: 0 }
    }

    /// Reads the bytes of at most [`PART`] ranks. The caller validates.
    pub fn segments(
        &self,
        place: Place,
        ranks: Range<usize>,
        firsts: &mut [u8; PART],
        eights: &mut [u64; PART],
    ) {
        let base = self.layout.kbase;
        let (first, others) = match place {
            Place::Heads(first, others) => (first, others),
            Place::Behind(bytes) => return self.behind(bytes, ranks, firsts, eights),
        };
        if let Some(first) = first {
            self.spread(ranks.clone(), eights, |head| first.of(base.wrapping_add(head)));
            firsts.iter_mut().zip(&*eights).for_each(|(first, word)| *first = (word >> 56) as u8);
        }
        self.spread(ranks, eights, |head| others.of(base.wrapping_add(head)));
    }

    /// Does the same for bytes that are not only in heads.
    fn behind(
        &self,
        behind: usize,
        ranks: Range<usize>,
        firsts: &mut [u8; PART],
        eights: &mut [u64; PART],
    ) {
        let (l, ranks) = (&self.layout, self.part(ranks));
        if ranks.is_empty() {
            return;
        }
        let mut copies = [0; PART];
        let (first, copies) = self.copies(&ranks, &mut copies);
        let sixteen = |at: usize| u128::from_be_bytes(self.words.sixteen(l.tails.offset + at));
        let mut i = 0;
        let mut give = |copies: usize, bytes: u128| {
            firsts[i..i + copies].fill((bytes >> 120) as u8);
            eights[i..i + copies].fill((bytes >> 56) as u64);
            i += copies;
        };
        if l.keylen == 0 {
            let mut ends = [0; PART];
            let ends = &mut ends[..copies.len()];
            let most = self.most_in_tails() as u64;
            l.tail_ends.numbers(self.words, first, ends, |end| end.min(most));
            let ends = ends.iter().map(|&end| end as usize);
            let starts = core::iter::once(self.tail(first).start).chain(ends);
            for (&copies, start) in copies.iter().zip(starts) {
                give(copies, sixteen(start + behind));
            }
            return;
        }
        let heads = self.heads(first, copies.len());
        for (k, (&copies, head)) in (first..).zip(copies.iter().zip(heads)) {
            let tail = k * l.tail_len();
            give(
                copies,
                match behind.checked_sub(8) {
                    Some(at) => sixteen(tail + at),
                    None => {
                        let head = u128::from(l.kbase.wrapping_add(head)) << 64;
                        (head | sixteen(tail) >> 64) << (8 * behind)
                    }
                },
            );
        }
    }
}
