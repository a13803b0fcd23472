//! Symbols of few bits in place of bytes, in the same order.

use super::layout::Layout;
use super::words::Words;

/// The symbol of a byte, or the place where it would be.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Symbol {
    Is(u64),
    /// The byte is not in the alphabet. The first symbol above it, if there is one.
    Before(Option<u64>),
}

/// The alphabet of a leaf: a bitmap.
#[derive(Clone, Copy)]
pub(super) struct Alphabet {
    words: [u64; 4],
    /// For each byte of the bitmap, the symbol of the first occurring byte from there on.
    before: [u64; 4],
    first: u64,
    count: u64,
}

/// Counts of set bits. Not every processor is known to have an instruction for it.
const ONES: [u8; 128] = {
    let (mut ones, mut i) = ([0; 128], 1);
    while i < 128 {
        ones[i] = ones[i / 2] + i as u8 % 2;
        i += 1;
    }
    ones
};

/// Number of symbols whose comparison takes as long as making a table.
const MANY: usize = 8;

impl Alphabet {
    /// Makes the alphabet. `first`: the symbol of its first byte.
    pub(super) fn new(words: [u64; 4], first: u64) -> Alphabet {
        const ONE: u64 = u64::MAX / 255;
        let mut next = first;
        let before = words.map(|word| {
            // How many there are in each byte, and up to it.
            let pairs = word - (word >> 1 & (0x55 * ONE));
            let fours = (pairs & (0x33 * ONE)) + (pairs >> 2 & (0x33 * ONE));
            let upto = ((fours + (fours >> 4)) & (0xf * ONE)).wrapping_mul(ONE);
            let before = (upto << 8).wrapping_add(next.wrapping_mul(ONE));
            next += upto >> 56;
            before
        });
        Alphabet { words, before, first, count: next - first }
    }

    /// Reads the alphabet of a leaf.
    pub(super) fn of(words: Words<'_>, l: &Layout) -> Alphabet {
        let at = l.alphabet();
        Alphabet::new([0, 1, 2, 3].map(|i| words.bits(8 * (at + 8 * i))), l.first_symbol())
    }

    #[inline]
    pub(super) fn symbol(&self, byte: u8) -> Symbol {
        let (word, shift, bit) = (usize::from(byte / 64), (byte % 64) & !7, byte % 8);
        let bits = self.words[word] >> shift & 0xff;
        let below = ONES[(bits & ((1 << bit) - 1)) as usize];
        let symbol = (self.before[word] >> shift & 0xff) + u64::from(below);
        if bits >> bit & 1 != 0 {
            Symbol::Is(symbol)
        } else {
            Symbol::Before((symbol < self.first + self.count).then_some(symbol))
        }
    }

    /// Returns the first symbol without a byte.
    pub(super) fn end(&self) -> usize {
        (self.first + self.count) as usize
    }

    /// Returns true if comparing this number of symbols takes longer than making a table of their
    /// bytes.
    #[inline]
    pub(super) fn is_soon_spelt_out(&self, symbols: usize) -> bool {
        symbols > MANY + self.count as usize
    }

    /// Returns the byte of each symbol, and 0, the end, for unused symbols.
    pub(super) fn table(&self) -> [u8; 128] {
        let mut table = [0; 128];
        let mut at = self.first as usize;
        for (i, &word) in self.words.iter().enumerate() {
            let mut rest = word;
            while rest != 0 {
                table[at % 128] = (64 * i) as u8 + rest.trailing_zeros() as u8;
                rest &= rest - 1;
                at += 1;
            }
        }
        table
    }
}
