//! Numbers of any width in the words of a block, and private memory in which a block's next state
//! is arranged.

use super::words::Words;
use crate::key::bytes::prefix_at;
use crate::simd::{shift_bits, unpack};
use crate::sync::atomic::Ordering::Relaxed;
use crate::sync::atomic::plain::AtomicU64;
use crate::sync::mutants::mutant;
use core::convert::Infallible;
use core::hint::select_unpredictable;
use core::ops::Range;

/// Number of numbers from which on they are read eight at once.
const FEWEST: usize = 16;
/// Words of the largest block.
pub const MAX_WORDS: usize = 16384 / 8;

/// Returns a mask of the lowest `width` <= 64 bits.
#[inline]
pub(super) fn mask(width: usize) -> u64 {
    if width == 0 { 0 } else { u64::MAX >> (64 - width.min(64)) }
}

/// Returns the number of bits that `number` needs.
pub(super) fn width(number: u64) -> usize {
    64 - number.leading_zeros() as usize
}

/// An array of numbers of one width, from a byte on that is a multiple of 8.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Array {
    pub(super) offset: usize,
    pub(super) width: usize,
}

impl Array {
    /// Returns the bit at which number `i` begins.
    #[inline]
    pub(super) fn bit(self, i: usize) -> usize {
        8 * self.offset + i * self.width
    }

    #[inline]
    pub(super) fn get(self, words: Words<'_>, i: usize) -> u64 {
        words.bits(self.bit(i)) & mask(self.width)
    }

    /// Finds the first of these ascending numbers that is not below `number`.
    #[inline]
    pub(super) fn partition(self, words: Words<'_>, range: Range<usize>, number: u64) -> usize {
        let mask = mask(self.width);
        if self.width <= unpack::WIDEST {
            return partition(range, |i| words.near(self.bit(i)) & mask < number);
        }
        partition(range, |i| words.bits(self.bit(i)) & mask < number)
    }

    /// Reads numbers from number `from` on, and stores the value that is made of each, until the
    /// output is full. It has place for at most a part. The numbers have at most 64 bits. Only torn
    /// headers say that they have more.
    #[inline(always)]
    pub(super) fn numbers(
        self,
        words: Words<'_>,
        from: usize,
        out: &mut [u64],
        make: impl Fn(u64) -> u64,
    ) {
        let at = self.bit(from);
        match self.width {
            // Fewer are not worth to find out where eight begin.
            ..=unpack::WIDEST if out.len() >= FEWEST => {
                // A copy, in which a number that is in two words is read at once.
                let mut near = [0; unpack::WORDS];
                words.copy(at / 64, &mut near[..(at % 64 + out.len() * self.width) / 64 + 1]);
                unpack::unpack(&near, at % 64, self.width, out, make);
            }
            64 => {
                out.fill(0);
                words.copy(at / 64, out);
                out.iter_mut().for_each(|number| *number = make(*number));
            }
            _ => {
                for (i, number) in out.iter_mut().enumerate() {
                    *number = make(self.get(words, from + i));
                }
            }
        }
    }
}

/// Finds the first of `range` for which `below` does not hold.
#[inline(always)]
pub(super) fn partition(range: Range<usize>, mut below: impl FnMut(usize) -> bool) -> usize {
    let Ok(first) = try_partition(range, |i| Ok::<_, Infallible>(below(i)));
    first
}

/// Does the same if `below` may fail.
#[inline(always)]
pub(super) fn try_partition<E>(
    range: Range<usize>,
    mut below: impl FnMut(usize) -> Result<bool, E>,
) -> Result<usize, E> {
    let (mut base, mut len) = (range.start, range.len());
    if len == 0 {
        return Ok(base);
    }
    while len > 1 {
        let half = len / 2;
        // Without a branch: the half cannot be predicted.
        base += select_unpredictable(below(base + half - 1)?, half, 0);
        len -= half;
    }
    Ok(base + usize::from(below(base)?))
}

/// The lowest bit of every place of an array of some width.
const PLACES: [u128; 65] = {
    let mut places = [1; 65];
    let mut width = 1;
    while width <= 64 {
        let mut at = width;
        while at < 128 {
            places[width] |= 1 << at;
            at += width;
        }
        width += 1;
    }
    places
};

/// A writer of an array's numbers, from the first on.
pub(super) struct Writer {
    /// The next word, and the bits that are gathered for it.
    word: usize,
    bits: u64,
    filled: usize,
}

impl Writer {
    #[inline]
    pub(super) fn new(array: Array) -> Writer {
        Writer { word: array.offset / 8, bits: 0, filled: 0 }
    }

    /// Adds a number of `width` bits, or several numbers one behind the other.
    #[inline]
    pub(super) fn push(&mut self, draft: &mut Draft, width: usize, number: u64) {
        let number = number & mask(width);
        self.bits |= number << self.filled;
        self.filled += width;
        if self.filled >= 64 {
            draft.words[self.word] = self.bits;
            self.word += 1;
            self.filled -= 64;
            // None of it, if it ended with the word.
            self.bits = number.checked_shr((width - self.filled) as u32).unwrap_or(0);
        }
    }

    /// Adds numbers of `width` bits, two at once where they fit a word.
    #[inline]
    pub(super) fn push_all(&mut self, draft: &mut Draft, width: usize, numbers: &[u64]) {
        let (twos, rest) = if width <= 32 { numbers.as_chunks::<2>() } else { (&[][..], numbers) };
        for &[a, b] in twos {
            self.push(draft, 2 * width, a & mask(width) | b << width);
        }
        rest.iter().for_each(|&number| self.push(draft, width, number));
    }

    /// Copies these bits of a block, as many as fit into the largest block.
    #[inline]
    fn copy(&mut self, draft: &mut Draft, old: Words<'_>, bits: Range<usize>) {
        let mut at = bits.start;
        // In a torn block `end` may be below `start`.
        while at < bits.end && self.word < MAX_WORDS {
            let n = (bits.end - at).min(64);
            self.push(draft, n, old.bits(at));
            at += n;
        }
    }

    /// The bit that comes next.
    fn bit(&self) -> usize {
        64 * self.word + self.filled
    }

    /// Writes the last bits.
    #[inline]
    pub(super) fn finish(self, draft: &mut Draft) {
        if self.filled > 0 {
            draft.words[self.word] = self.bits;
        }
    }
}

/// Private memory for words that will be stored into a block.
pub struct Draft {
    /// Two words more than a block has, for numbers of no bits behind its end.
    words: [u64; MAX_WORDS + 2],
    /// The ranges of words that will be stored: from, to.
    ranges: [(u16, u16); 12],
    count: usize,
}

impl Default for Draft {
    fn default() -> Self {
        Draft { words: [0; MAX_WORDS + 2], ranges: [(0, 0); 12], count: 0 }
    }
}

impl Draft {
    pub(super) fn clear(&mut self) {
        self.count = 0;
    }

    /// Adds words that will be stored.
    pub(super) fn add(&mut self, from: usize, to: usize) {
        self.ranges[self.count] = (from as u16, to as u16);
        self.count += 1;
    }

    /// Makes all words of a block of `size` bytes that belong to a packed leaf be stored, and no
    /// others.
    pub(super) fn set_whole(&mut self, size: usize) {
        self.clear();
        self.add(3, 5);
        self.add(8, size / 8);
    }

    pub(super) fn fill_zero(&mut self, words: Range<usize>) {
        self.words[words].fill(0);
    }

    #[inline]
    pub(super) fn set_word(&mut self, i: usize, word: u64) {
        self.words[i] = word;
    }

    /// Writes a number of `width` bits at bit `at`.
    #[inline]
    pub(super) fn put(&mut self, at: usize, width: usize, number: u64) {
        let (word, shift, mask) = (at / 64, at % 64, mask(width));
        let number = number & mask;
        let low = &mut self.words[word];
        *low = *low & !(mask << shift) | number << shift;
        if shift + width > 64 {
            let high = &mut self.words[word + 1];
            *high = *high & !(mask >> (64 - shift)) | number >> (64 - shift);
        }
    }

    /// Sets number `i` of an array.
    #[inline]
    pub(super) fn set(&mut self, array: Array, i: usize, number: u64) {
        self.put(array.bit(i), array.width, number);
    }

    pub(super) fn put_bytes(&mut self, at: usize, bytes: &[u8]) {
        for (i, eight) in bytes.chunks(8).enumerate() {
            self.put(8 * (at + 8 * i), 8 * eight.len(), prefix_at(eight, 0).swap_bytes());
        }
    }

    /// Makes these words the bits of the block from bit `from` on.
    #[inline]
    fn take(&mut self, old: Words<'_>, words: Range<usize>, from: usize) {
        let at = from / 64;
        if let (Some(to), Some(from_words)) =
            (self.words.get_mut(words.clone()), old.0.get(at..=at + words.len()))
        {
            shift_bits::copy(from_words, from % 64, to);
        } else {
            // At the end of the block, or it is torn.
            for (i, word) in words.enumerate() {
                self.words[word] = old.bits(from + 64 * i);
            }
        }
    }

    /// Copies bits of the block to the beginning of an array.
    pub(super) fn bring(&mut self, old: Words<'_>, bits: Range<usize>, to: Array) {
        let first = to.offset / 8;
        self.take(old, first..first + bits.len().div_ceil(64), bits.start);
        self.end_array(8 * to.offset + bits.len());
    }

    /// Copies `n` numbers from `words` to the beginning of an array.
    pub(super) fn put_words(&mut self, to: Array, n: usize, words: &[u64]) {
        let (first, end) = (to.offset / 8, to.bit(n));
        let count = end.div_ceil(64) - first;
        self.words[first..first + count].copy_from_slice(&words[..count]);
        self.end_array(end);
    }

    /// Clears the bits behind bit `end` in its word.
    fn end_array(&mut self, end: usize) {
        if let (Some(word), 1..) = (self.words.get_mut(end / 64), end % 64)
            && !mutant!("nothing is behind copied bits")
        {
            *word &= mask(end % 64);
        }
    }

    /// Moves the bits from `at` to `end` of the block up by `by` bits. The caller still writes the
    /// bits in between.
    pub(super) fn open(&mut self, old: Words<'_>, at: usize, end: usize, by: usize) {
        if by == 0 {
            return;
        }
        let (first, last) = (at / 64, (end + by).div_ceil(64));
        // Words before these have nothing that has moved.
        let moved = first.max(by.div_ceil(64)).min(last);
        self.words[first..moved].fill(0);
        self.take(old, moved..last, 64 * moved - by);
        self.keep_below(old, at);
        self.add(first, last);
    }

    /// Moves the bits from `at` + `by` to `end` of the block down by `by` bits.
    pub(super) fn close(&mut self, old: Words<'_>, at: usize, end: usize, by: usize) {
        if at + by >= end || by == 0 {
            return;
        }
        let (first, last) = (at / 64, (end - by).div_ceil(64));
        self.take(old, first..last, 64 * first + by);
        self.keep_below(old, at);
        self.add(first, last);
    }

    /// Does the same, but keeps the arranged bits before bit `at`, not those of the block.
    pub(super) fn close_up(&mut self, old: Words<'_>, at: usize, end: usize, by: usize) {
        let (below, Some(&arranged)) = (mask(at % 64), self.words.get(at / 64)) else { return };
        self.close(old, at, end, by);
        let word = &mut self.words[at / 64];
        *word = arranged & below | *word & !below;
    }

    /// Copies the bits of the block up to `end` without some ranges, which ascend. `of` returns
    /// their first and last bits. Clears the bits behind `end` in its word.
    pub(super) fn without(
        &mut self,
        old: Words<'_>,
        gone: &[u16],
        end: usize,
        of: impl Fn(usize) -> (usize, usize),
    ) {
        let of = |i: u16| of(i.into());
        let (Some(&first), Some(&last)) = (gone.first(), gone.last()) else { return };
        let start = of(first).0;
        if start / 64 >= MAX_WORDS {
            return;
        }
        let (word, filled) = (start / 64, start % 64);
        let mut writer = Writer { word, bits: old.word(word) & mask(filled), filled };
        for pair in gone.windows(2) {
            writer.copy(self, old, of(pair[0]).1..of(pair[1]).0);
        }
        let to = writer.bit();
        writer.finish(self);
        // If all that goes is empty, nothing moves.
        let rest = of(last).1;
        if to < rest && to / 64 < MAX_WORDS {
            self.add(word, to.div_ceil(64));
            self.close_up(old, to, end.min(64 * MAX_WORDS), rest - to);
        }
    }

    /// These bits of the block, with numbers in between: each has the bit before which it comes,
    /// its width, and itself. The bits ascend, from `bits.start` to `bits.end`. The result is not
    /// longer than the largest block.
    pub(super) fn with(
        &mut self,
        old: Words<'_>,
        bits: Range<usize>,
        numbers: impl Iterator<Item = (usize, usize, u64)>,
    ) {
        let (first, filled) = (bits.start / 64, bits.start % 64);
        let mut writer = Writer { word: first, bits: old.word(first) & mask(filled), filled };
        let mut at = bits.start;
        for (before, width, number) in numbers {
            writer.copy(self, old, at..before);
            writer.push(self, width, number);
            at = before;
        }
        writer.copy(self, old, at..bits.end);
        let last = writer.bit().div_ceil(64);
        writer.finish(self);
        self.add(first, last);
    }

    /// Keeps the bits before `at` in its word.
    fn keep_below(&mut self, old: Words<'_>, at: usize) {
        let below = mask(at % 64);
        let word = &mut self.words[at / 64];
        *word = old.word(at / 64) & below | *word & !below;
    }

    /// Copies numbers `from` to `to` of an array, to be changed one by one.
    pub(super) fn load(&mut self, old: Words<'_>, array: Array, from: usize, to: usize) {
        let (first, last) = (array.bit(from) / 64, array.bit(to).div_ceil(64));
        if let (Some(to), Some(from)) = (self.words.get_mut(first..last), old.0.get(first..last)) {
            for (to, from) in to.iter_mut().zip(from) {
                *to = u64::from_le(from.load(Relaxed));
            }
        }
        self.add(first, last);
    }

    /// Adds `by` to numbers `from` to `to` of an array, or subtracts it. The numbers stay within
    /// their width. So all of them are one long number, and each word takes one addition.
    pub(super) fn shift_each(&mut self, array: Array, from: usize, to: usize, by: u64, down: bool) {
        match down {
            false => self.change_each(array, from, to, by, u64::overflowing_add),
            true => self.change_each(array, from, to, by, u64::overflowing_sub),
        }
    }

    #[inline(always)]
    fn change_each(
        &mut self,
        array: Array,
        from: usize,
        to: usize,
        by: u64,
        step: impl Fn(u64, u64) -> (u64, bool),
    ) {
        let (start, end) = (array.bit(from), array.bit(to));
        if array.width == 0 || by == 0 || start >= end {
            return;
        }
        // `by` in every place of an array that begins with a word. A word of ours begins `phase`
        // bits behind the beginning of a place.
        let every = u128::from(by & mask(array.width)).wrapping_mul(PLACES[array.width]);
        let phase = start % 64 % array.width;
        let phase = if phase == 0 { 0 } else { array.width - phase };
        let Some(words) = self.words.get_mut(start / 64..end.div_ceil(64)) else { return };
        // The number to add to the next word: the same, with places that begin elsewhere in it.
        let on = 64 % array.width;
        let (back, mut each) = ((array.width - on) % 64, (every >> phase) as u64);
        let mut carry = false;
        let mut change = |number: &mut u64, within: u64| {
            let (sum, one) = step(*number, each & within);
            let (sum, two) = step(sum, carry.into());
            *number = sum;
            carry = one | two;
            each = each >> on | each << back;
        };
        let (above, below) = (!mask(start % 64), mask((end - 1) % 64 + 1));
        match words {
            [] => (),
            [word] => change(word, above & below),
            [first, between @ .., last] => {
                change(first, above);
                between.iter_mut().for_each(|word| change(word, u64::MAX));
                change(last, below);
            }
        }
    }

    /// Stores the arranged words. The block is private to the caller, or latched for writing.
    pub fn store(&self, block: &[AtomicU64]) {
        for &(from, to) in &self.ranges[..self.count] {
            let range = usize::from(from)..usize::from(to).min(block.len());
            let (Some(words), Some(to)) = (self.words.get(range.clone()), block.get(range)) else {
                continue;
            };
            let ((tos, to), (eights, rest)) = (to.as_chunks::<8>(), words.as_chunks::<8>());
            for (to, words) in tos.iter().zip(eights) {
                (0..8).for_each(|i| to[i].store(words[i].to_le(), Relaxed));
            }
            to.iter().zip(rest).for_each(|(to, word)| to.store(word.to_le(), Relaxed));
        }
    }
}

#[cfg(all(test, not(loom), not(shuttle)))]
#[path = "../tests/packed_bits.rs"]
mod tests;
