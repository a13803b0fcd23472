//! A trial build. Keys that are made up from statistics go into an engine index in this process'
//! own memory. Its size is the estimate. So the estimate knows no layout, and follows every change
//! of it.
//!
//! Of many rows only some are built, in windows of neighbours. The bytes that a leaf leaves out of
//! its keys depend on the common bytes of neighbours. The bits of its TIDs depend on the distance
//! of their rows.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::cmp::Ordering;
use std::ptr::NonNull;

use nitro_engine::prelude::*;
use nitro_engine::{
    Area, Backing, BuildError, Builder, Index, IndexOptions, IndexStats, KeyOrder, Memcmp, Process,
};

use super::made_up::{Column, Part, scatter};
use crate::pg::memory;

/// Most entries that are built.
const ENTRIES: u64 = 1 << 16;
/// Most bytes of keys that are built.
const KEY_BYTES: usize = 32 << 20;
/// The runs of neighbours among them, each of many leaves.
const WINDOWS: u64 = 4;
/// Bytes of the area for an entry beside its key, far more than it takes.
const ROOM: usize = 512;

/// Where the rows are.
#[derive(Clone, Copy)]
pub struct Table {
    pub rows: f64,
    pub pages: f64,
}

impl Table {
    /// The TID of the row at a place from 0 to 1.
    fn tid(self, place: f64) -> u64 {
        let on_page = (self.rows / self.pages.max(1.0)).ceil().max(1.0) as u64;
        let row = (place * self.rows) as u64;
        (row / on_page) << 16 | (row % on_page + 1)
    }
}

/// The order of the keys.
#[derive(Clone, Copy, PartialEq)]
pub enum Order {
    /// Their bytes.
    Bytes,
    /// A comparison function.
    Compared,
    /// A comparison function, and a number for each key that says most of it.
    Abbreviated,
}

/// An index that is not there.
pub struct Trial {
    pub table: Table,
    pub columns: Vec<Column>,
    pub entries: u64,
    pub order: Order,
    pub fillfactor: u8,
}

impl Trial {
    /// The bytes of shared memory that it would hold.
    pub fn bytes(&self) -> u64 {
        let average: usize = self.columns.iter().map(Column::average).sum();
        let built = ENTRIES.min((KEY_BYTES / average.max(1)) as u64).max(1).min(self.entries);
        let (empty, stats) = match self.order {
            Order::Bytes => self.build(&Memcmp, built, average),
            Order::Compared => self.build(&ByBytes { heads: false }, built, average),
            Order::Abbreviated => self.build(&ByBytes { heads: true }, built, average),
        };
        if built == self.entries {
            return stats.bytes as u64;
        }
        // The size without entries, and idle memory, do not grow with the rest. The rest is zero if
        // no entry could be built because all keys are too long.
        let grows = stats.bytes.saturating_sub(empty + stats.idle / 2) as f64;
        empty as u64 + (grows * self.entries as f64 / built as f64) as u64
    }

    /// Returns the size without entries, and the statistics with `n`.
    fn build<O: KeyOrder>(&self, order: &O, n: u64, average: usize) -> (usize, IndexStats) {
        let mut entries: Vec<(Vec<u8>, u64)> = Vec::new();
        memory::reserve(&mut entries, n as usize);
        memory::expect(n as usize * average);
        for i in 0..n {
            if i % 1024 == 0 {
                crate::pg::wait::interrupts();
                memory::check();
            }
            entries.push(self.entry(self.number(i, n)));
        }
        entries.sort_unstable();
        let memory = Memory::new(n as usize * (2 * average + ROOM) + (4 << 20));
        memory.build(order, &entries, self.fillfactor, average)
    }

    /// The number, in the order of the index, of the i-th of n entries that are built.
    fn number(&self, i: u64, n: u64) -> u64 {
        if n == self.entries {
            return i;
        }
        let run = n.div_ceil(WINDOWS);
        let begin = u128::from(i / run) * u128::from(self.entries) / u128::from(WINDOWS);
        (begin as u64 + i % run).min(self.entries - 1)
    }

    /// The key and the TID of an entry, by its number in the order of the index.
    fn entry(&self, number: u64) -> (Vec<u8>, u64) {
        let n = self.entries as f64;
        let place = (number as f64 + 0.5) / n;
        let mut key = Vec::new();
        // The entries with the same values so far: their place in the order of the index, and the
        // places of their rows.
        let (mut group, mut rows) = (Part::ALL, Part::ALL);
        for column in &self.columns {
            let members = column.distinct.min(group.len * n).max(1.0);
            let (value, ordered) = column.append(group.place_of(place), group, members, &mut key);
            if ordered {
                rows = rows.correlated(value, column.correlation);
            }
            group = group.part(value);
        }
        // The rows with one key are in order, about as far from one another as they are many. Where
        // that is no whole number, what would come behind the last one is before the first.
        let count = (group.len * n).max(1.0);
        let from_row_to_row = rows.len * self.table.rows / count;
        let free = (from_row_to_row - 1.0).max(0.0) * scatter(number);
        let row = (group.place_of(place) * count).floor() * from_row_to_row + free;
        let within = row / self.table.rows.max(1.0) % rows.len;
        (key, self.table.tid(rows.begin + within))
    }
}

/// Bytes, as a comparison function would have it; with the first of them as a number or without.
struct ByBytes {
    heads: bool,
}

impl KeyOrder for ByBytes {
    const MEMCMP: bool = false;

    fn abbrev(&self, key: &[u8]) -> u64 {
        if !self.heads {
            return 0;
        }
        let mut head = [0; 8];
        head.iter_mut().zip(key).for_each(|(to, from)| *to = *from);
        u64::from_be_bytes(head)
    }

    fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        a.cmp(b)
    }
}

/// Memory of this process for an area.
struct Memory {
    at: NonNull<u8>,
    len: usize,
    layout: Layout,
}

impl Memory {
    fn new(bytes: usize) -> Memory {
        let len = bytes.next_multiple_of(Area::GRANULE);
        let layout = Layout::from_size_align(Area::mapped(len), 4096)
            .unwrap_or_else(|_| memory::out_of_memory(bytes));
        // SAFETY: not empty.
        let at = unsafe { alloc_zeroed(layout) };
        let at = NonNull::new(at).unwrap_or_else(|| memory::out_of_memory(bytes));
        Memory { at, len, layout }
    }

    /// Builds an index of ascending entries in it.
    fn build<O: KeyOrder>(
        self,
        order: &O,
        keys: &[(Vec<u8>, u64)],
        fillfactor: u8,
        average: usize,
    ) -> (usize, IndexStats) {
        // SAFETY: zeroed, ours alone, and there as long as `self`, which outlives everything below.
        let area = unsafe { Area::format(self.at, self.len, 1, &Backing::MAPPED) }
            .expect("aligned, and not small");
        // SAFETY: its only slot, whose owner ends below.
        let process = unsafe { Process::attach(area, 0) };
        let options = IndexOptions { fillfactor, key_len_hint: average as u32 };
        let full = || -> ! { memory::out_of_memory(self.layout.size()) };
        let index = Index::create(&process, &options).unwrap_or_else(|_| full());
        let empty = index.stats().bytes;
        let mut builder = Builder::new(&process, index);
        for (i, (key, tid)) in keys.iter().enumerate() {
            if i % 1024 == 0 {
                crate::pg::wait::interrupts();
            }
            match builder.push(order, key, *tid) {
                // This row cannot be in the index.
                Ok(()) | Err(BuildError::KeyTooLong(_)) => (),
                Err(_) => full(),
            }
        }
        let built =
            builder.finish().and_then(|chain| nitro_engine::adopt(&index, &process, vec![chain]));
        if built.is_err() {
            full();
        }
        (empty, index.stats())
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout.
        unsafe { dealloc(self.at.as_ptr(), self.layout) };
    }
}
