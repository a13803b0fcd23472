//! What the tests share: an area over anonymous memory, orders and hostile keys.
#![allow(dead_code, reason = "each test uses a part")]

use nitro_engine::prelude::*;
use nitro_engine::{Area, Backing, Forms, Index, IndexOptions, KeyOrder, Process, Sorted, Tid};
use proptest::prelude::*;
use std::cell::Cell;
use std::cmp::Ordering;
use std::ops::Range;
use std::panic::resume_unwind;
use std::ptr::NonNull;

/// An area that is unmapped when dropped.
pub struct Mapping {
    pub area: Area,
    base: usize,
    len: usize,
}

/// Memory that is not committed cannot be touched. Released memory is zeroed.
static STRICT: Backing = Backing {
    commit: |base, part| {
        protect(base, part, libc::PROT_READ | libc::PROT_WRITE);
        Ok(())
    },
    release: |base, part| {
        if cfg!(miri) {
            // SAFETY: as below.
            unsafe { base.as_ptr().add(part.start).write_bytes(0, part.len()) };
            return;
        }
        // SAFETY: a part of a mapping of these tests that the area does not use.
        let rc = unsafe {
            libc::madvise(base.as_ptr().add(part.start).cast(), part.len(), libc::MADV_REMOVE)
        };
        assert_eq!(rc, 0);
        protect(base, part, libc::PROT_NONE);
    },
};

fn protect(base: NonNull<u8>, part: Range<usize>, how: i32) {
    // Miri knows neither this call nor mappings that processes share.
    if cfg!(miri) {
        return;
    }
    let start = part.start / 4096 * 4096;
    let len = part.end.next_multiple_of(4096) - start;
    // SAFETY: a part of a mapping of these tests.
    let rc = unsafe { libc::mprotect(base.as_ptr().add(start).cast(), len, how) };
    assert_eq!(rc, 0);
}

impl Mapping {
    /// For threads.
    pub fn new(len: usize, processes: u32) -> Mapping {
        Mapping::on(len, processes, &STRICT)
    }

    /// For processes, which have access rights of their own.
    pub fn inherited(len: usize, processes: u32) -> Mapping {
        Mapping::on(len, processes, &Backing::MAPPED)
    }

    fn on(len: usize, processes: u32, backing: &'static Backing) -> Mapping {
        let flags = match cfg!(miri) {
            true => libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            false => libc::MAP_SHARED | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
        };
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        let (anywhere, size) = (std::ptr::null_mut(), Area::mapped(len));
        // SAFETY: a new mapping.
        let base = unsafe { libc::mmap(anywhere, size, rights, flags, -1, 0) };
        assert!(base != libc::MAP_FAILED);
        let base = NonNull::new(base.cast()).unwrap();
        // SAFETY: fresh zeroed pages, mapped until the value is dropped.
        let area = unsafe {
            if std::ptr::eq(backing, &STRICT) {
                protect(base, 0..Area::mapped(len), libc::PROT_NONE);
            }
            Area::format(base, len, processes, backing).unwrap()
        };
        Mapping { area, base: base.as_ptr().addr(), len: Area::mapped(len) }
    }

    pub fn process(&self, slot: u32) -> Process {
        // SAFETY: every test gives every slot away once at a time.
        unsafe { Process::attach(self.area, slot) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped in `new`.
        unsafe { libc::munmap(std::ptr::with_exposed_provenance_mut(self.base), self.len) };
    }
}

pub fn create(p: &Process) -> Index {
    Index::create(p, &IndexOptions::default()).unwrap()
}

/// The forms that leaves are made to have.
pub const FORMS: [Forms; 4] = [Forms::Best, Forms::Slots, Forms::Packed, Forms::Mixed];

/// An index with leaves of these forms.
pub fn create_with(p: &Process, forms: Forms) -> Index {
    let ix = create(p);
    ix.force(forms);
    ix
}

/// ASCII case does not count; no abbreviation, or one of the first byte.
pub struct IgnoreCase {
    pub abbreviate: bool,
}

impl KeyOrder for IgnoreCase {
    const MEMCMP: bool = false;
    fn abbrev(&self, key: &[u8]) -> u64 {
        match key.first() {
            Some(byte) if self.abbreviate => u64::from(byte.to_ascii_lowercase()) + 1,
            _ => 0,
        }
    }
    fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        a.to_ascii_lowercase().cmp(&b.to_ascii_lowercase())
    }
}

/// A key whose byte order is that of [`IgnoreCase`], ties decided by the bytes.
pub fn fold_case(key: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    for byte in key.to_ascii_lowercase() {
        out.push(byte);
        if byte == 0 {
            out.push(1);
        }
    }
    out.extend([0, 0]);
    out.extend(key);
    out
}

/// The key that [`fold_case`] folded.
pub fn unfold_case(folded: &[u8]) -> Vec<u8> {
    let mut at = 0;
    while folded[at..at + 2] != [0, 0] {
        at += if folded[at] == 0 { 2 } else { 1 };
    }
    folded[at + 2..].to_vec()
}

/// Keys that are short, share prefixes, extend each other with zeros, or are long.
pub fn hostile_key() -> impl Strategy<Value = Vec<u8>> {
    let small = prop::sample::select(vec![0u8, 0, 1, b'a', b'A', b'b', 255]);
    let tiny = prop::collection::vec(prop::sample::select(vec![0u8, 1, 255]), 0..9);
    // Two numbers, each with its length in front.
    let number = |n: u64| {
        let bytes = 8 - (n | 1).leading_zeros() as usize / 8;
        [&[0xC0 + bytes as u8][..], &n.to_be_bytes()[8 - bytes..]].concat()
    };
    prop_oneof![
        4 => tiny.clone(),
        2 => (prop::sample::select(vec![16usize, 17, 57, 62]), tiny)
            .prop_map(|(n, last)| [vec![9; n], last].concat()),
        4 => (0u64..40, 0u64..200_000).prop_map(move |(a, b)| [a, b].map(number).concat()),
        4 => prop::collection::vec(small.clone(), 0..4),
        4 => prop::collection::vec(small.clone(), 0..14),
        3 => (0u64..500).prop_map(|i| i.to_be_bytes().to_vec()),
        3 => (0u64..500).prop_map(|i| [b"\x01prefix shared by all ".as_slice(), &i.to_be_bytes()].concat()),
        2 => (prop::sample::select(vec![20usize, 40, 300]), small.clone(), 0..4u8)
            .prop_map(|(n, byte, last)| [vec![byte; n], vec![last]].concat()),
        1 => (prop::sample::select(vec![600usize, 3000, 16000]), small, 0..4u8)
            .prop_map(|(n, byte, last)| [vec![byte; n], vec![last]].concat()),
    ]
}

/// A random number generator (splitmix64).
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
}

/// How many random cases: PROPTEST_CASES, or this many.
pub fn cases(usual: u32) -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|s| s.parse().ok()).unwrap_or(usual)
}

/// All that there is to do, also what a round of the collector has left for the next one. It need
/// not come to an end by itself: leaves beside one that cannot move may move each time.
pub fn collect(p: &Process, ix: Index) {
    let mut rounds = 0..1000;
    while rounds.next().is_some() && ix.collect(p, 1000) > Some(0) {}
}

/// Byte order that fails when the countdown ends.
pub struct Fragile(pub Cell<u32>);

impl KeyOrder for Fragile {
    const MEMCMP: bool = false;
    fn abbrev(&self, _: &[u8]) -> u64 {
        0
    }
    fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        let left = self.0.get();
        self.0.set(left.wrapping_sub(1));
        if left == 0 {
            resume_unwind(Box::new("error"));
        }
        a.cmp(b)
    }
}

/// Entries that are inserted together.
pub struct Batch<'a>(pub &'a [(Vec<u8>, Tid)]);

impl Sorted for Batch<'_> {
    fn len(&self) -> usize {
        self.0.len()
    }
    fn key(&self, i: usize) -> &[u8] {
        &self.0[i].0
    }
    fn tid(&self, i: usize) -> Tid {
        self.0[i].1
    }
}

/// Entries that are inserted together, by a caller that ends when its keys have been asked for so
/// often.
pub struct Ending<'a> {
    pub entries: &'a [(Vec<u8>, Tid)],
    pub left: Cell<u64>,
    pub end: fn() -> !,
}

impl Sorted for Ending<'_> {
    fn len(&self) -> usize {
        self.entries.len()
    }
    fn key(&self, i: usize) -> &[u8] {
        match self.left.get().checked_sub(1) {
            Some(left) => self.left.set(left),
            None => (self.end)(),
        }
        &self.entries[i].0
    }
    fn tid(&self, i: usize) -> Tid {
        self.entries[i].1
    }
}
