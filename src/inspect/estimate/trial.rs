//! A trial build: keys that are made up from statistics go into an engine index of this process' own memory,
//! and what that takes is what the index would take. So the estimate knows of no layout, and follows it.
//!
//! Of many rows only some are built, in windows of neighbours: what a leaf leaves out of its keys depends on
//! how much neighbours share.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::cmp::Ordering;
use std::ptr::NonNull;

use nitro_engine::{
    Area, Backing, BuildError, Builder, Index, IndexOptions, IndexStats, KeyOrder, Memcmp, Process,
};

use crate::key::codec::NULL_LAST;
use crate::pg::memory;

/// Most entries that are built.
const ENTRIES: u64 = 1 << 16;
/// Most bytes of keys that are built.
const KEY_BYTES: usize = 32 << 20;
/// The runs of neighbours among them.
const WINDOWS: u64 = 16;
/// Bytes of the area for an entry beside its key, far more than it takes.
const ROOM: usize = 512;
/// Bytes behind what two values share that tell the values between them apart.
const TELLING: usize = 12;

/// What is known of one column.
pub struct Column {
    /// Segments of some of its values, ascending.
    pub values: Vec<Vec<u8>>,
    /// How many different ones there are.
    pub distinct: f64,
    /// The share of NULLs.
    pub nulls: f64,
}

/// An index that is not there.
pub struct Trial {
    pub columns: Vec<Column>,
    pub entries: u64,
    /// Some column is ordered by its comparison function.
    pub compared: bool,
    pub fillfactor: u8,
}

impl Trial {
    /// The bytes of shared memory that it would hold.
    pub fn bytes(&self) -> u64 {
        let average: usize = self.columns.iter().map(Column::average).sum();
        let built = ENTRIES.min((KEY_BYTES / average.max(1)) as u64).max(1).min(self.entries);
        let stats = if self.compared {
            self.build(&ByBytes, built, average)
        } else {
            self.build(&Memcmp, built, average)
        };
        if built == self.entries {
            return stats.bytes as u64;
        }
        // What lies idle does not grow with the rest.
        let grows = (stats.bytes - stats.idle / 2) as f64;
        (grows * self.entries as f64 / built as f64) as u64
    }

    fn build<O: KeyOrder>(&self, order: &O, n: u64, average: usize) -> IndexStats {
        let mut keys: Vec<(Vec<u8>, u64)> = Vec::new();
        memory::reserve(&mut keys, n as usize);
        let combinations = self.combinations();
        for i in 0..n {
            if i % 1024 == 0 {
                crate::pg::wait::interrupts();
                memory::check();
            }
            let row = self.row(i, n);
            keys.push((self.key(row, &combinations), row));
        }
        keys.sort_unstable();
        let memory = Memory::new(n as usize * (2 * average + ROOM) + (4 << 20));
        memory.build(order, &keys, self.fillfactor, average)
    }

    /// The number of the i-th of n rows that are built.
    fn row(&self, i: u64, n: u64) -> u64 {
        if n == self.entries {
            return i;
        }
        let run = n.div_ceil(WINDOWS);
        let begin = u128::from(i / run) * u128::from(self.entries) / u128::from(WINDOWS);
        (begin as u64 + i % run).min(self.entries - 1)
    }

    /// How many different values the first columns have together.
    fn combinations(&self) -> Vec<f64> {
        let mut all = vec![1.0];
        for column in &self.columns {
            let before = all[all.len() - 1];
            all.push((before * column.distinct.max(1.0)).min(self.entries as f64).max(before));
        }
        all
    }

    /// The key of a row, by its place in the order of the index.
    fn key(&self, row: u64, combinations: &[f64]) -> Vec<u8> {
        let place = (row as f64 + 0.5) / self.entries as f64;
        let mut key = Vec::new();
        for (i, column) in self.columns.iter().enumerate() {
            // Among those that have the same values in the columns before.
            let group = (place * combinations[i]).floor();
            let members = combinations[i + 1] / combinations[i];
            let member = ((place * combinations[i] - group) * members).floor();
            let within = if i == 0 { 0.5 } else { scatter(group as u64) };
            column.append((member + within) / members, &mut key);
        }
        key
    }
}

/// A number from 0 to 1 that looks random.
fn scatter(n: u64) -> f64 {
    (n.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 11) as f64 / (1u64 << 53) as f64
}

impl Column {
    fn average(&self) -> usize {
        self.values.iter().map(Vec::len).sum::<usize>() / self.values.len().max(1) + 1
    }

    /// Appends the value at a place from 0 to 1 in the order of the column.
    fn append(&self, place: f64, key: &mut Vec<u8>) {
        let full = 1.0 - self.nulls;
        if place >= full || self.values.is_empty() {
            return key.push(NULL_LAST);
        }
        let (place, n) = (place / full, self.values.len());
        if self.distinct <= n as f64 || n == 1 {
            let i = (place * n as f64) as usize;
            return key.extend_from_slice(&self.values[i.min(n - 1)]);
        }
        let place = ((place * self.distinct).floor() + 0.5) / self.distinct * (n - 1) as f64;
        let i = (place as usize).min(n - 2);
        between(&self.values[i], &self.values[i + 1], place - i as f64, key);
    }
}

/// Appends something as long as `a` that lies between it and `b`.
fn between(a: &[u8], b: &[u8], share: f64, key: &mut Vec<u8>) {
    let same = a.iter().zip(b).take_while(|(x, y)| x == y).count();
    let number = |bytes: &[u8]| {
        let mut all = [0; 16];
        for (to, from) in all[16 - TELLING..].iter_mut().zip(&bytes[same..]) {
            *to = *from;
        }
        u128::from_be_bytes(all)
    };
    let (low, high) = (number(a), number(b));
    let value = low + (high.saturating_sub(low) as f64 * share) as u128;
    let told = &value.to_be_bytes()[16 - TELLING..];
    key.extend_from_slice(&a[..same]);
    key.extend_from_slice(&told[..TELLING.min(a.len() - same)]);
    key.extend_from_slice(a.get(same + TELLING..).unwrap_or(&[]));
}

/// Bytes, as a comparison function would have it.
struct ByBytes;

impl KeyOrder for ByBytes {
    const MEMCMP: bool = false;

    fn abbrev(&self, key: &[u8]) -> u64 {
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
    ) -> IndexStats {
        // SAFETY: zeroed, ours alone, and there as long as `self`, which outlives everything below.
        let area = unsafe { Area::format(self.at, self.len, 1, &Backing::MAPPED) }
            .expect("aligned, and not small");
        // SAFETY: its only slot, whose owner ends below.
        let process = unsafe { Process::attach(area, 0) };
        let options = IndexOptions { fillfactor, key_len_hint: average as u32 };
        let full = || -> ! { memory::out_of_memory(self.layout.size()) };
        let index = Index::create(&process, &options).unwrap_or_else(|_| full());
        let mut builder = Builder::new(&process, index);
        for (i, (key, tid)) in keys.iter().enumerate() {
            if i % 1024 == 0 {
                crate::pg::wait::interrupts();
            }
            match builder.push(order, key, *tid) {
                // Such a row cannot be in the index.
                Ok(()) | Err(BuildError::KeyTooLong(_)) => (),
                Err(_) => full(),
            }
        }
        let built = builder.finish().and_then(|chain| index.adopt(&process, vec![chain]));
        if built.is_err() {
            full();
        }
        index.stats()
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout.
        unsafe { dealloc(self.at.as_ptr(), self.layout) };
    }
}
