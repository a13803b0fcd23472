//! The rest of a leaf at once: its TIDs, and the numbers of one column side by side, read without
//! the keys.

use std::ops::Range;

use nitro_engine::{MOST_OF_LEAF, Rest, Segments, Tid};

use super::groups::Tally;
use crate::am::scan::Scan;
use crate::am::token::Trust;
use crate::key::KeyDesc;
use crate::key::codec::{self, Codec};
use crate::key::columns::MOST;

/// Columns before the one that is wanted, at most.
const BEFORE: usize = 4;

/// Where keys of a leaf have the number of a column.
#[derive(Clone, Copy)]
pub struct Numbers {
    /// The first bytes of the columns before it, which say how long they are.
    fixed: [usize; BEFORE],
    before: usize,
    at: usize,
    flip: u8,
}

impl Numbers {
    /// Of a column of numbers; behind `prefix` bytes, which are the same in all keys, and columns
    /// `before` come first. `key`: one of the leaf.
    pub fn of(desc: &KeyDesc, prefix: usize, before: Range<usize>, key: &[u8]) -> Option<Numbers> {
        let is_number = |i: usize| matches!(desc.columns[i].codec, Codec::Int(_));
        let flip = desc.columns[before.end].flip();
        let mut numbers = Numbers { fixed: [0; BEFORE], before: before.len(), at: prefix, flip };
        if before.len() > BEFORE || !(before.start..=before.end).all(is_number) {
            return None;
        }
        for fixed in &mut numbers.fixed[..before.len()] {
            *fixed = numbers.at;
            numbers.at += codec::int_len(*key.get(numbers.at)?);
        }
        Some(numbers)
    }
}

/// The rows that were read of a leaf.
pub struct Leaf {
    tids: Box<[Tid; MOST_OF_LEAF]>,
    /// The first byte of each number, if they are not all `alike`, and those behind it.
    firsts: Box<[u8; MOST_OF_LEAF]>,
    eights: Box<[u64; MOST_OF_LEAF]>,
    alike: Option<u8>,
    n: usize,
    /// Which bits of the visibility map count for these entries.
    trust: Trust,
}

impl Default for Leaf {
    fn default() -> Leaf {
        let (tids, firsts) = (Box::new([0; MOST_OF_LEAF]), Box::new([0; MOST_OF_LEAF]));
        let eights = Box::new([0; MOST_OF_LEAF]);
        Leaf { tids, firsts, eights, alike: None, n: 0, trust: Trust::default() }
    }
}

impl Leaf {
    /// Reads what follows the batch of the scan in its leaf; see `Scan::rest_of_leaf`.
    pub fn read(
        &mut self,
        own: &mut Scan,
        prefix: &[u8],
        forward: bool,
        numbers: Option<&Numbers>,
    ) -> bool {
        let segments = numbers.map(|numbers| Segments {
            fixed: &numbers.fixed[..numbers.before],
            at: numbers.at,
            len: |first| codec::int_len(first) - 1,
            firsts: &mut self.firsts[..],
            eights: &mut self.eights[..],
            alike: None,
        });
        let mut rest = Rest { tids: &mut self.tids, segments };
        (self.n, self.trust) = own.rest_of_leaf(prefix, forward, &mut rest);
        self.alike = rest.segments.and_then(|segments| segments.alike);
        self.n > 0
    }

    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.n
    }

    /// The TIDs, in order of the keys, and which bits of the visibility map count for them.
    pub fn rows(&self) -> (&[Tid], Trust) {
        (&self.tids[..self.n], self.trust)
    }

    /// A number; None for NULL.
    #[inline(always)]
    pub fn number(&self, numbers: &Numbers, i: usize) -> Option<i64> {
        let first = self.alike.unwrap_or(self.firsts[i]);
        (!codec::is_marker(first)).then(|| codec::int_of(first, self.eights[i], numbers.flip))
    }

    /// Adds the numbers of those rows, a bit each from row `from` on.
    pub fn add(&self, numbers: &Numbers, from: usize, which: u64, tally: &mut Tally) {
        // Most often these are all of them, begin with the same byte, and the least and the
        // greatest one are at the ends.
        let all = which.trailing_ones();
        if let Some(first) = self.alike
            && numbers.before == 0
            && all == which.count_ones()
            && !codec::is_marker(first)
        {
            let eights = &self.eights[from..from + all as usize];
            let ends = [eights.first(), eights.last()].into_iter().flatten();
            let ends = ends.map(|&eight| codec::int_of(first, eight, numbers.flip));
            let sum = codec::sum_of(first, eights, numbers.flip);
            return tally.add_sorted(all.into(), sum, ends);
        }
        let (mut some, mut n, mut rest) = ([0; MOST], 0, which);
        while rest != 0 {
            if let Some(number) = self.number(numbers, from + rest.trailing_zeros() as usize) {
                some[n] = number;
                n += 1;
            }
            rest &= rest - 1;
        }
        tally.add_all(&some[..n]);
    }
}
