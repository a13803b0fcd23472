//! The shape of entries that are collected for a leaf: their common properties, and the bits that
//! they will take. Both take constant time per entry.

use super::alphabet::Alphabet;
use super::bits::{mask, width};
use super::coming::{Bounds, Grows};
use super::layout::{
    ALPHABET, Form, LOW, Layout, MAX_ENTRIES, MAX_NARROW, MAX_SHORT, MAX_TEMPLATE, RANK_BITS,
};
use super::range::{both_sides, head, reaching};
use super::tids::{narrow, offset_bits};
use crate::key::bytes::{common, prefix_at};
use crate::key::order::Tid;

/// Entries in ascending order, by bytes or under a comparator.
pub trait Sorted {
    /// Returns the number of entries.
    fn len(&self) -> usize;
    /// Returns true if there are no entries.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Returns the key of an entry.
    fn key(&self, i: usize) -> &[u8];
    /// Returns the TID of an entry.
    fn tid(&self, i: usize) -> Tid;
    /// Returns the abbreviation of its key under a comparator. The entries are then in the
    /// comparator's order, and equal keys are those with the same bytes.
    fn number(&self, _: usize) -> Option<u64> {
        None
    }
}

/// Common properties of entries.
#[derive(Clone, Debug)]
pub struct Shape {
    pub(super) n: usize,
    /// Number of different keys. (The next field has a bit for the first entry of each.)
    pub(super) d: usize,
    begins: [u64; MAX_ENTRIES / 64],
    /// Number of first bytes that all keys share.
    shared: usize,
    /// Lengths of the shortest and the longest key, and of all together.
    shortest: usize,
    longest: usize,
    total: usize,
    /// The columns, of 64, in which keys of one length differ. More than eight are not looked for.
    differ: u64,
    scattered: bool,
    /// Whether the entries are in the order of a comparator.
    compared: bool,
    /// Whether all keys end with a zero.
    zterm: bool,
    /// The bytes that occur behind the shared ones, except for that zero. Not 0: the byte occurs.
    occurs: [u8; 256],
    /// Number of bytes behind the first eight of these, in all keys.
    in_tails: usize,
    lowest: Tid,
    highest: Tid,
    /// Bits that occur in offsets.
    offsets: u64,
}

impl Default for Shape {
    fn default() -> Shape {
        Shape {
            n: 0,
            d: 0,
            begins: [0; MAX_ENTRIES / 64],
            shared: 0,
            shortest: 0,
            longest: 0,
            total: 0,
            differ: 0,
            scattered: false,
            compared: false,
            zterm: false,
            occurs: [0; 256],
            in_tails: 0,
            lowest: 0,
            highest: 0,
            offsets: 0,
        }
    }
}

impl Shape {
    /// Returns the number of entries that were added.
    pub fn entries(&self) -> usize {
        self.n
    }

    /// Adds the entries up to `to`.
    pub fn extend(&mut self, entries: &(impl Sorted + ?Sized), to: usize) {
        let from = self.n;
        if from >= to {
            return;
        }
        if from == 0 {
            let (key, tid) = (entries.key(0), entries.tid(0));
            let (shortest, compared) = (key.len(), entries.number(0).is_some());
            let shared = shortest.min(MAX_TEMPLATE);
            let zterm = !compared;
            *self = Shape { shared, shortest, compared, zterm, lowest: tid, ..Shape::default() };
        }
        for i in from..to {
            let tid = entries.tid(i);
            self.lowest = self.lowest.min(tid);
            self.highest = self.highest.max(tid);
            self.offsets |= tid & 0xffff;
        }
        let mut i = from;
        while i < to {
            i = self.add_short(entries, i, to);
            if i < to {
                self.add_key(entries, i);
                i += 1;
            }
        }
        self.n = to;
    }

    /// Adds the keys of entries from `i` on as long as they are short and of one length, most often
    /// numbers. It does the same as [`Shape::add_key`] in few instructions each. Returns the first
    /// entry that is left.
    fn add_short(&mut self, entries: &(impl Sorted + ?Sized), i: usize, to: usize) -> usize {
        let len = self.shortest;
        if i == 0 || self.compared || self.zterm || len != self.longest || len > 16 {
            return i;
        }
        let (first, mut before) = (sixteen(entries.key(0)), sixteen(entries.key(i - 1)));
        let (mut at, mut differ, d) = (i, 0, self.d);
        while at < to {
            let key = entries.key(at);
            if key.len() != len {
                break;
            }
            let key = sixteen(key);
            if key != before {
                differ |= key ^ first;
                self.begin(at);
                before = key;
            }
            at += 1;
        }
        self.total += (self.d - d) * len;
        let [high, low] = [(differ >> 64) as u64, differ as u64].map(unequal);
        self.differ |= high | low << 8;
        self.scattered |= self.differ.count_ones() > 8;
        self.shared = self.shared.min(self.differ.trailing_zeros() as usize);
        at
    }

    /// Notes that entry `i` has another key than the one before.
    #[inline]
    fn begin(&mut self, i: usize) {
        self.d += 1;
        // More than fit a leaf are added only to find that out.
        if let Some(word) = self.begins.get_mut(i / 64) {
            *word |= 1 << (i % 64);
        }
    }

    /// Returns the entries that have another key than the one before, including the first entry.
    pub(super) fn begins(&self) -> impl Iterator<Item = usize> {
        self.begins.iter().enumerate().flat_map(|(i, &word)| {
            let rests =
                core::iter::successors(Some(word), |rest| Some(rest & rest.wrapping_sub(1)));
            rests
                .take_while(|&rest| rest != 0)
                .map(move |rest| 64 * i + rest.trailing_zeros() as usize)
        })
    }

    /// Adds the key of entry `i`. Those before it have been added.
    fn add_key(&mut self, entries: &(impl Sorted + ?Sized), i: usize) {
        let key = entries.key(i);
        if i > 0 && same(entries.key(i - 1), key) {
            return;
        }
        self.begin(i);
        if self.compared {
            let first = entries.key(0);
            let shared = common(first, key).min(self.shared);
            // Bytes that all keys had in common so far occur in them.
            self.occur(&first[shared..self.shared]);
            self.occur(&key[shared..]);
            self.shared = shared;
            return self.count(key);
        }
        // Once a key has another end, alphabets are of no more interest.
        self.zterm &= key.last() == Some(&0);
        let body = &key[..key.len() - usize::from(self.zterm)];
        let first = entries.key(0);
        let one_length = self.shortest == self.longest || i == 0;
        let narrow = one_length && key.len() == self.shortest && key.len() <= MAX_NARROW;
        let shared = if narrow && !self.scattered {
            if !self.differ_to_the_end(first, key) {
                self.differ |= differing(first, key);
                self.scattered = self.differ.count_ones() > 8;
            }
            (self.differ.trailing_zeros() as usize).min(key.len())
        } else {
            common(first, key)
        };
        let shared = shared.min(self.shared);
        if shared < self.shared && !self.zterm {
            self.shared = shared;
        }
        if shared < self.shared {
            // Bytes that all keys had in common so far occur in them, and tails begin earlier. The
            // zero at the end of the first one is not the end of other keys with this zero.
            let alone = self.d == 2;
            let end = self.shared.min(first.len().saturating_sub(usize::from(alone)));
            self.occur(first.get(shared..end).unwrap_or_default());
            self.shared = shared;
            self.in_tails = 0;
            for j in (0..i).filter(|&j| j == 0 || entries.key(j) != entries.key(j - 1)) {
                self.in_tails += entries.key(j).len().saturating_sub(shared + 9);
            }
        }
        self.count(key);
        if self.zterm {
            self.in_tails += key.len().saturating_sub(shared + 9);
            self.occur(body.get(shared..).unwrap_or_default());
        }
    }

    fn count(&mut self, key: &[u8]) {
        self.shortest = self.shortest.min(key.len());
        self.longest = self.longest.max(key.len());
        self.total += key.len();
    }

    /// Returns true if all columns in which a key of the same length can differ are known already.
    /// Most added keys show nothing new.
    #[inline]
    fn differ_to_the_end(&self, first: &[u8], key: &[u8]) -> bool {
        let from = self.differ.trailing_zeros() as usize;
        if from >= 8 || self.differ >> from != mask(key.len() - from) {
            return false;
        }
        let other = prefix_at(first, 0) ^ prefix_at(key, 0);
        from == 0 || other >> (64 - 8 * from) == 0
    }

    fn occur(&mut self, bytes: &[u8]) {
        let mut note = |byte: u8| self.occurs[usize::from(byte)] = 1;
        let Some(last) = bytes.last_chunk::<8>() else {
            return bytes.iter().for_each(|&byte| note(byte));
        };
        // Eight at a time. Those at the end are met twice: that is faster than to count how many
        // are left.
        for eight in bytes.as_chunks().0.iter().chain([last]) {
            eight.iter().for_each(|&byte| note(byte));
        }
    }

    /// Returns how many bytes of a block of `block` bytes the entries take, with a low key of `low`
    /// bytes. Returns more than `block` if they are too many for a leaf.
    pub fn size(&self, entries: &(impl Sorted + ?Sized), low: usize, block: usize) -> usize {
        if self.n > MAX_ENTRIES {
            return usize::MAX;
        }
        let l = self.content(entries, block);
        let arrays: usize = self.needs(&l).iter().map(|bits| 8 * bits.div_ceil(64)).sum();
        heads_offset(&l, low) + arrays
    }

    /// Returns the bits of the arrays, in the order in which they are stored.
    pub(super) fn needs(&self, l: &Layout) -> [usize; 5] {
        let d = self.d;
        let symbols = match (l.form, l.keylen, l.zterm) {
            (Form::Wide, 0, true) => self.in_tails,
            (Form::Wide | Form::Compared, 0, false) => self.total - d * l.tlen,
            _ => d * l.tail_len(),
        };
        [
            d * l.heads.width,
            self.n * l.tids.width,
            d * l.ends.width,
            d * l.tail_ends.width,
            symbols * l.sbits,
        ]
    }

    /// Returns the alphabet of keys that end with their only zero, or that a function compares.
    /// None: all bytes are used.
    pub(super) fn alphabet(&self, l: &Layout) -> Option<Alphabet> {
        (l.symbols > 0).then(|| Alphabet::new(self.bitmap(), l.first_symbol()))
    }

    /// Returns a bit for each byte that occurs.
    pub(super) fn bitmap(&self) -> [u64; 4] {
        let mut bitmap = [0; 4];
        let (words, _) = self.occurs.as_chunks();
        for (i, &eight) in words.iter().enumerate() {
            bitmap[i / 8] |= side_by_side(u64::from_le_bytes(eight)) << (8 * (i % 8));
        }
        bitmap
    }

    /// Returns the form and the widths that just these entries take.
    pub(super) fn content(&self, entries: &(impl Sorted + ?Sized), block: usize) -> Layout {
        let mut l = Layout { size: block, ..Layout::default() };
        l.obits = offset_bits(self.offsets);
        l.tbase = narrow(self.lowest, l.obits);
        l.tids.width = width(narrow(self.highest, l.obits) - l.tbase);
        l.ends.width = if self.d == self.n { 0 } else { RANK_BITS };
        if self.compared {
            return self.with_heads(self.compared(l), entries);
        }
        let wide = self.wide(l);
        let Some(other) = self.narrow(l).or_else(|| self.short(l)) else {
            return self.with_heads(wide, entries);
        };
        let other = self.with_heads(other, entries);
        if other.form != Form::Short && !wide.zterm {
            return other;
        }
        // The smaller one. A part of a leaf's entries may take some bytes more than all of them, if
        // there are few keys: without the shortest one the template is longer. Code that arranges a
        // part of a leaf must handle that.
        let wide = self.with_heads(wide, entries);
        let bits = |l: &Layout| 8 * heads_offset(l, 0) + self.needs(l).iter().sum::<usize>();
        if bits(&wide) < bits(&other) { wide } else { other }
    }

    /// Returns the layout of short keys of varying lengths.
    fn short(&self, mut l: Layout) -> Option<Layout> {
        let most = self.longest - self.shared;
        let able = self.shortest < self.longest && self.longest <= MAX_NARROW && most <= MAX_SHORT;
        able.then(|| {
            (l.form, l.tlen, l.ncolumns, l.columns) =
                (Form::Short, self.shared, most, self.shared as u64);
            l
        })
    }

    /// Returns the layout of keys that differ in few columns.
    fn narrow(&self, mut l: Layout) -> Option<Layout> {
        let columns = self.differ.count_ones() as usize;
        if self.shortest != self.longest || !(1..=MAX_NARROW).contains(&self.longest) || columns > 8
        {
            return None;
        }
        (l.keylen, l.tlen) = (self.longest, self.longest);
        let first = self.differ.trailing_zeros() as usize % 64;
        let span = width(self.differ).saturating_sub(first);
        if span <= 8 {
            set_columns(&mut l, (first..first + span).fold(0, |set, at| set | 1 << at));
        } else {
            l.form = Form::Scattered;
            set_columns(&mut l, self.differ);
        }
        Some(l)
    }

    /// Returns the layout of any keys.
    fn wide(&self, mut l: Layout) -> Layout {
        let fixed = self.shortest == self.longest && self.longest <= MAX_TEMPLATE;
        l.form = Form::Wide;
        l.keylen = if fixed { self.longest } else { 0 };
        l.tlen = self.shared;
        l.zterm = self.zterm && self.shared < self.shortest && self.occurs[0] == 0;
        let symbols =
            if l.zterm { self.occurs.iter().map(|&one| usize::from(one)).sum() } else { 0 };
        let most = symbols as u64 + l.first_symbol();
        l.zterm &= (1..128).contains(&symbols) && most <= 128;
        (l.symbols, l.sbits) = if l.zterm { (symbols, width(most - 1).max(4)) } else { (0, 8) };
        l.tail_ends.width = if l.keylen == 0 { l.bits_of_tail_ends() } else { 0 };
        l.tails.width = l.sbits;
        l
    }

    /// Returns the layout of any keys in the order of a comparator.
    fn compared(&self, mut l: Layout) -> Layout {
        let fixed = self.shortest == self.longest && self.longest <= MAX_TEMPLATE;
        l.form = Form::Compared;
        l.keylen = if fixed { self.longest } else { 0 };
        l.tlen = self.shared;
        let symbols = self.occurs.iter().map(|&one| usize::from(one)).sum();
        (l.symbols, l.sbits) = match symbols {
            1..128 => (symbols, width(symbols as u64 - 1).max(4)),
            _ => (0, 8),
        };
        l.tail_ends.width = if l.keylen == 0 { l.bits_of_tail_ends() } else { 0 };
        l.tails.width = l.sbits;
        l
    }

    /// Sets the bits of heads by the first and the last key.
    fn with_heads(&self, mut l: Layout, entries: &(impl Sorted + ?Sized)) -> Layout {
        let alphabet = self.alphabet(&l);
        let head = |i| {
            let by_bytes = || head(&l, alphabet.as_ref(), entries.key(i));
            entries.number(i).unwrap_or_else(by_bytes)
        };
        let (low, high) = (head(0), head(self.n - 1));
        (l.kbase, l.heads.width) = (low, width(high - low));
        l
    }

    /// Widens the widths for all keys that may come into the range, if that costs little, and for a
    /// TID that is known to come.
    pub(super) fn widened(&self, mut l: Layout, bounds: &Bounds<'_>) -> Layout {
        let Bounds { low, high, coming } = *bounds;
        if let Some(tid) = coming.tid {
            l.obits = offset_bits(self.offsets | tid);
            l.tbase = narrow(self.lowest.min(tid), l.obits);
            l.tids.width = width(narrow(self.highest.max(tid), l.obits) - l.tbase);
            if coming.grows == Grows::Entries {
                l.ends.width = RANK_BITS;
            }
        }
        // The table grows: a leaf that has lived as long as the table before need not be encoded
        // anew.
        l.tids.width = (l.tids.width + 1).min(48);
        if l.form == Form::Compared {
            return both_sides(l);
        }
        let Some(high) = high else { return l };
        let mut wide = l;
        if matches!(l.form, Form::Adjacent | Form::Scattered) {
            let ever = common(low, high);
            if ever + 8 < l.keylen || ever > l.keylen {
                return l;
            }
            wide.form = Form::Adjacent;
            set_columns(&mut wide, (ever..l.keylen).fold(0, |set, at| set | 1 << at));
        }
        let Some(wide) = reaching(wide, self.alphabet(&l).as_ref(), low, high) else { return l };
        if wide.heads.width <= l.heads.width + 2 { wide } else { l }
    }
}

/// Returns true if the keys are the same. Most are short.
#[inline]
pub(super) fn same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && prefix_at(a, 0) == prefix_at(b, 0) && (a.len() <= 8 || a[8..] == b[8..])
}

/// Returns the positions in which keys of one length, at most 64, differ.
fn differing(a: &[u8], b: &[u8]) -> u64 {
    let eight = |at| unequal(prefix_at(a, at) ^ prefix_at(b, at)) << at;
    (0..a.len()).step_by(8).map(eight).fold(0, |positions, eight| positions | eight)
}

/// Returns a bit for each of eight bytes that is not zero. `bytes` has the first one highest, and
/// it gets bit 0.
fn unequal(bytes: u64) -> u64 {
    const LOW: u64 = u64::MAX / 255;
    // Of each the highest bit; then these bits side by side.
    let bytes = bytes.swap_bytes();
    side_by_side((((bytes & (0x7f * LOW)) + 0x7f * LOW) | bytes) >> 7 & LOW)
}

/// Returns a key of at most sixteen bytes as a number.
#[inline]
fn sixteen(key: &[u8]) -> u128 {
    u128::from(prefix_at(key, 0)) << 64 | u128::from(prefix_at(key, 8))
}

/// Gathers the lowest bits of eight bytes, which have no others.
#[inline]
fn side_by_side(bits: u64) -> u64 {
    bits.wrapping_mul(0x0102_0408_1020_4080) >> 56
}

fn set_columns(l: &mut Layout, positions: u64) {
    let columns = (0..64).filter(|at| positions >> at & 1 != 0);
    // In place of those that the layout may have from before.
    l.columns = columns.enumerate().fold(0, |columns, (i, at)| columns | at << (8 * i));
    l.ncolumns = positions.count_ones() as usize;
}

/// Returns where heads begin behind a low key of this number of bytes.
pub(super) fn heads_offset(l: &Layout, low: usize) -> usize {
    let alphabet = if l.symbols > 0 { ALPHABET } else { 0 };
    (LOW + low + l.tlen + alphabet).next_multiple_of(8)
}

/// Returns `number` minus `base`, if it fits the width.
pub(super) fn fits(number: u64, base: u64, width: usize) -> Option<u64> {
    number.checked_sub(base).filter(|&relative| relative <= mask(width))
}
