//! A column of many keys at once: how it is stored is asked once, not for each key.

use nitro_engine::Cursor;

use super::codec::{self, Codec, is_marker};
use super::column::Column;

/// Most entries of a batch.
pub const MOST: usize = 64;

/// Some keys of a batch, from a column on.
pub struct Columns<'k> {
    /// The keys of the batch, and readable bytes behind them.
    bytes: &'k [u8],
    /// Where each of them goes on.
    at: [u32; MOST],
    n: usize,
}

impl<'k> Columns<'k> {
    /// Returns the keys of some entries of a batch, a bit for each, without their first bytes.
    #[inline]
    pub fn of(batch: &'k Cursor, mut which: u64, without: usize) -> Columns<'k> {
        let mut columns = Columns { bytes: batch.keys(), at: [0; MOST], n: 0 };
        while which != 0 {
            let at = batch.start(which.trailing_zeros() as usize) + without;
            columns.at[columns.n % MOST] = at as u32;
            columns.n += 1;
            which &= which - 1;
        }
        columns
    }

    #[inline]
    fn each(&mut self) -> impl Iterator<Item = &mut u32> {
        self.at[..self.n].iter_mut()
    }

    /// Passes over a column.
    #[inline]
    pub fn skip(&mut self, column: &Column) {
        let bytes = self.bytes;
        match column.codec {
            Codec::Int(_) => {
                self.each().for_each(|at| *at += codec::int_len(bytes[*at as usize]) as u32)
            }
            _ => {
                self.each().for_each(|at| *at += column.segment_len(&bytes[*at as usize..]) as u32)
            }
        }
    }

    /// The values of a column that are not NULL, 0 for those that are no numbers; and passes over
    /// it.
    #[inline]
    pub fn numbers<'n>(&mut self, column: &Column, numbers: &'n mut [i64; MOST]) -> &'n [i64] {
        let (bytes, mut n) = (self.bytes, 0);
        if let Codec::Int(_) = column.codec {
            let flip = column.flip();
            for at in self.each() {
                let first = bytes[*at as usize];
                // Of a NULL, too: the next one takes its place.
                numbers[n % MOST] =
                    codec::int_of(first, codec::eight(&bytes[*at as usize + 1..]), flip);
                n += usize::from(!is_marker(first));
                *at += codec::int_len(first) as u32;
            }
        } else {
            n = self.each().filter(|at| !is_marker(bytes[**at as usize])).count();
            numbers[..n].fill(0);
            self.skip(column);
        }
        &numbers[..n]
    }

    /// The eight bytes that each key goes on with, as a number; behind its end there is anything.
    #[inline]
    pub fn eights(&self) -> impl Iterator<Item = u64> {
        self.at[..self.n].iter().map(|&at| codec::eight(&self.bytes[at as usize..]))
    }
}
