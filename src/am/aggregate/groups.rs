//! Groups of rows in the order of the index, and the values of each group.
//!
//! Equal groups have equal bytes at the beginning of their keys (the planner sees to that), and lie
//! one behind the other. So a row is of the last group if its key begins as that group's does.
//! Nothing is allocated for a group by itself.

use std::ops::Range;

use nitro_engine::Cursor;

use super::leaf::{Leaf, Numbers};
use crate::key::KeyDesc;
use crate::key::codec::{self, Codec, Reader};
use crate::key::columns::{Columns, MOST};
use crate::pg::memory;

/// Count, sum and extremes of a column's values, without NULLs.
#[derive(Clone, Copy)]
pub struct Tally {
    pub count: i64,
    pub sum: i128,
    /// Of none it is the greatest number that there is, and the other way round.
    pub least: i64,
    pub greatest: i64,
}

impl Default for Tally {
    fn default() -> Tally {
        Tally { count: 0, sum: 0, least: i64::MAX, greatest: i64::MIN }
    }
}

impl Tally {
    /// Adds a number `count` times.
    #[inline(always)]
    pub fn add(&mut self, number: i64, times: i64) {
        self.count += times;
        self.sum += i128::from(number) * i128::from(times);
        self.least = self.least.min(number);
        self.greatest = self.greatest.max(number);
    }

    /// Adds `count` numbers. The least and the greatest one are at the ends.
    pub fn add_sorted(&mut self, count: i64, sum: i128, ends: impl Iterator<Item = i64>) {
        self.count += count;
        self.sum += sum;
        for end in ends {
            self.least = self.least.min(end);
            self.greatest = self.greatest.max(end);
        }
    }

    /// Adds at most [`MOST`] numbers.
    pub fn add_all(&mut self, numbers: &[i64]) {
        // This number of 32-bit halves cannot overflow 64 bits.
        let (mut high, mut low) = (0, 0);
        for &number in numbers {
            high += number >> 32;
            low += number & 0xffff_ffff;
            self.least = self.least.min(number);
            self.greatest = self.greatest.max(number);
        }
        self.count += numbers.len() as i64;
        self.sum += (i128::from(high) << 32) + i128::from(low);
    }
}

struct Head {
    /// The key of its first row, in `keys`.
    key: Range<usize>,
    /// Number of its bytes that belong to the group.
    prefix: usize,
    rows: i64,
}

/// The groups that a node has not given up yet. The last one may go on.
pub struct Groups {
    /// Number of index columns that make a group.
    columns: usize,
    /// The columns whose values are wanted, in order; and how many of them are among those of the
    /// group, where all rows have the same.
    inputs: Vec<usize>,
    outer: usize,
    heads: Vec<Head>,
    keys: Vec<u8>,
    /// For each group one for each input behind the columns of the group.
    tallies: Vec<Tally>,
}

impl Groups {
    pub fn new(columns: usize, inputs: Vec<usize>) -> Groups {
        let outer = inputs.iter().filter(|&&column| column < columns).count();
        Groups { columns, inputs, outer, heads: Vec::new(), keys: Vec::new(), tallies: Vec::new() }
    }

    pub fn len(&self) -> usize {
        self.heads.len()
    }

    pub fn clear(&mut self) {
        self.heads.clear();
        self.keys.clear();
        self.tallies.clear();
    }

    /// Forgets the groups before the last one.
    pub fn keep_last(&mut self) {
        let n = self.len();
        let Some(last) = self.heads.last_mut() else { return };
        self.keys.copy_within(last.key.clone(), 0);
        self.keys.truncate(last.key.len());
        last.key = 0..last.key.len();
        self.heads.swap(0, n - 1);
        self.heads.truncate(1);
        let each = self.inputs.len() - self.outer;
        self.tallies.copy_within((n - 1) * each.., 0);
        self.tallies.truncate(each);
    }

    /// Begins a group with the key of its first row, which is not added yet. There is no key if
    /// there is only one group and no row need be read.
    fn begin(&mut self, prefix: usize, key: &[u8]) {
        let start = self.keys.len();
        memory::append(&mut self.keys, key);
        memory::reserve(&mut self.heads, 1);
        self.heads.push(Head { key: start..self.keys.len(), prefix, rows: 0 });
        let each = self.inputs.len() - self.outer;
        let n = self.tallies.len() + each;
        memory::resize(&mut self.tallies, n, Tally::default());
    }

    /// Begins a group, if the row with this key is not of the last one.
    pub fn enter(&mut self, desc: &KeyDesc, key: &[u8]) {
        if !self.has(key) {
            self.begin(desc.split(key, self.columns).map(<[u8]>::len).sum(), key);
        }
    }

    /// Whether the row with this key is of the last group.
    pub fn has(&mut self, key: &[u8]) -> bool {
        self.last().is_some_and(|last| key.starts_with(last.prefix))
    }

    /// Adds a row, to the last group or to a new one.
    pub fn add(&mut self, desc: &KeyDesc, key: &[u8]) {
        self.enter(desc, key);
        if let Some(Last { prefix, column, inputs, rows, tallies }) = self.last() {
            let values = values(desc, inputs, prefix, column, key);
            for (tally, value) in tallies.iter_mut().zip(values) {
                value.into_iter().for_each(|number| tally.add(number, 1));
            }
            *rows += 1;
        }
    }

    /// Adds a row with these values to a group.
    pub fn add_values(&mut self, i: usize, values: &[Option<i64>]) {
        self.heads[i].rows += 1;
        let tallies = &mut self.tallies[i * values.len()..];
        for (tally, &value) in tallies.iter_mut().zip(values) {
            if let Some(number) = value {
                tally.add(number, 1);
            }
        }
    }

    /// The memory that is in use.
    pub fn bytes(&self) -> usize {
        self.keys.len() + size_of_val(&self.heads[..]) + size_of_val(&self.tallies[..])
    }

    /// Adds rows, without values, to the last group. Without GROUP BY there always is one.
    pub fn count(&mut self, rows: u64) {
        if self.heads.is_empty() {
            self.begin(0, &[]);
        }
        if let Some(mut last) = self.last() {
            last.count(rows);
        }
    }

    /// The last group, to which rows can be added.
    #[inline]
    pub fn last(&mut self) -> Option<Last<'_>> {
        let head = self.heads.last_mut()?;
        let prefix = &self.keys[head.key.clone()][..head.prefix];
        let each = self.inputs.len() - self.outer;
        let at = self.tallies.len() - each;
        Some(Last {
            prefix,
            column: self.columns,
            inputs: &self.inputs[self.outer..],
            rows: &mut head.rows,
            tallies: &mut self.tallies[at..],
        })
    }

    /// The key of the first row of a group, and how many rows it has.
    pub fn group(&self, i: usize) -> (&[u8], i64) {
        let head = &self.heads[i];
        (&self.keys[head.key.clone()], head.rows)
    }

    /// Returns the tally of an input in a group.
    pub fn tally(&self, desc: &KeyDesc, i: usize, input: usize) -> Tally {
        if let Some(inner) = input.checked_sub(self.outer) {
            return self.tallies[i * (self.inputs.len() - self.outer) + inner];
        }
        let (key, rows) = self.group(i);
        let mut tally = Tally::default();
        let column = self.inputs[input];
        if let Some(segment) = desc.split(key, column + 1).nth(column)
            && let (Some(number), _) = number(desc, column, segment)
        {
            tally.add(number, rows);
        }
        tally
    }
}

/// The last group while rows are added.
pub struct Last<'g> {
    /// The bytes with which their keys begin.
    pub prefix: &'g [u8],
    column: usize,
    inputs: &'g [usize],
    rows: &'g mut i64,
    tallies: &'g mut [Tally],
}

impl Last<'_> {
    /// Whether nothing is wanted of further rows but how many they are.
    pub fn only_counts(&self) -> bool {
        self.inputs.is_empty()
    }

    pub fn rows(&self) -> i64 {
        *self.rows
    }

    /// Adds rows without their values.
    #[inline]
    pub fn count(&mut self, rows: u64) {
        *self.rows += rows as i64;
    }

    /// Adds the values of rows whose keys begin with the prefix: of these entries of a batch, a bit
    /// each.
    pub fn add_values(&mut self, desc: &KeyDesc, batch: &Cursor, which: u64) {
        if self.only_counts() {
            return;
        }
        let mut columns = Columns::of(batch, which, self.prefix.len());
        let mut numbers = [0; MOST];
        let mut next = self.column;
        for (&wanted, tally) in self.inputs.iter().zip(self.tallies.iter_mut()) {
            desc.columns[next..wanted].iter().for_each(|column| columns.skip(column));
            next = wanted + 1;
            tally.add_all(columns.numbers(&desc.columns[wanted], &mut numbers));
        }
    }

    /// Returns the place of the wanted numbers in the keys of a leaf, if they are of one column.
    /// `key` is one of these keys.
    pub fn numbers(&self, desc: &KeyDesc, key: Option<&[u8]>) -> Option<Numbers> {
        let &[column] = self.inputs else { return None };
        Numbers::of(desc, self.prefix.len(), self.column..column, key?)
    }

    /// Adds rows of a leaf, a bit for each from row `from` on, with their numbers if these are
    /// wanted.
    pub fn add_rows(&mut self, leaf: &Leaf, numbers: Option<&Numbers>, from: usize, which: u64) {
        self.count(which.count_ones().into());
        if let (Some(numbers), [tally]) = (numbers, &mut *self.tallies) {
            leaf.add(numbers, from, which, tally);
        }
    }

    /// The values of a row whose key begins with the prefix.
    pub fn values<'k>(
        &'k self,
        desc: &'k KeyDesc,
        key: &'k [u8],
    ) -> impl Iterator<Item = Option<i64>> {
        values(desc, self.inputs, self.prefix, self.column, key)
    }
}

/// The values of columns, in order, from `column` on, of a row whose key begins with the prefix
/// that the columns before have.
fn values<'k>(
    desc: &'k KeyDesc,
    columns: &'k [usize],
    prefix: &[u8],
    mut column: usize,
    key: &'k [u8],
) -> impl Iterator<Item = Option<i64>> + use<'k> {
    let mut rest = &key[prefix.len()..];
    columns.iter().map(move |&wanted| value(desc, &mut rest, &mut column, wanted))
}

/// The value of the `wanted` column, where `rest` is a key from `column` on; moves behind it.
#[inline(always)]
fn value(desc: &KeyDesc, rest: &mut &[u8], column: &mut usize, wanted: usize) -> Option<i64> {
    while *column < wanted {
        *rest = &rest[desc.columns[*column].segment_len(rest)..];
        *column += 1;
    }
    let (number, behind) = number(desc, *column, rest);
    (*rest, *column) = (behind, *column + 1);
    number
}

/// Reads the number in the segment at the beginning of these bytes. Returns 0 for a value that is
/// no number, None for NULL, and the bytes behind it.
#[inline(always)]
fn number<'k>(desc: &KeyDesc, column: usize, bytes: &'k [u8]) -> (Option<i64>, &'k [u8]) {
    let column = &desc.columns[column];
    if codec::is_marker(bytes[0]) {
        return (None, &bytes[1..]);
    }
    match column.codec {
        Codec::Int(_) => {
            let mut reader = Reader::new(bytes, column.flip());
            (Some(codec::get_int(&mut reader)), reader.rest())
        }
        _ => (Some(0), &bytes[column.segment_len(bytes)..]),
    }
}
