//! Two processes over one shared mapping: both insert, remove and scan, then everything is
//! verified. Not under ThreadSanitizer, which sees threads and not processes.

mod common;

use common::*;
use nitro_engine::prelude::*;
use nitro_engine::{Builder, Cursor, Index, KeyOrder, Memcmp, Process, adopt};
use std::cell::Cell;
use std::cmp::Ordering;
use std::collections::BTreeSet;

const N: u64 = 60_000;

fn key(i: u64) -> [u8; 8] {
    i.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()
}

/// Inserts the numbers of one parity, removes every fifth of them, scans in between.
fn work(p: &Process, ix: Index, parity: u64) {
    for i in (0..N).filter(|i| i % 2 == parity) {
        assert!(ix.insert(p, &Memcmp, &key(i), i).unwrap());
        if i % 10 == parity {
            assert!(ix.remove(p, &Memcmp, &key(i), i));
        }
        if i % 10_000 == parity {
            let mut cursor = Cursor::new(true);
            cursor.set_range(&[], None, u32::MAX - 1);
            let mut last = Vec::new();
            while cursor.next(p, ix, &Memcmp) > 0 {
                for n in 0..cursor.len() {
                    assert!(last.as_slice() < cursor.key(n));
                    last = cursor.key(n).to_vec();
                }
            }
        }
    }
}

#[test]
fn two_processes() {
    let mapping = Mapping::inherited(64 << 20, 2);
    let p = mapping.process(0);
    let ix = create(&p);
    // SAFETY: the child uses the mapping and its own memory, and leaves by `_exit`.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        let ok = std::panic::catch_unwind(|| work(&mapping.process(1), ix, 1)).is_ok();
        // SAFETY: ends the child without the parent's exit handlers.
        unsafe { libc::_exit(if ok { 0 } else { 1 }) };
    }
    work(&p, ix, 0);
    let mut status = 0;
    // SAFETY: waits for our own child.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0, "the other process failed");
    collect(&p, ix);
    let mut entries = 0u64;
    ix.verify(&p, &Memcmp, true, &mut |_, tid| {
        assert!(tid % 10 != tid % 2);
        entries += 1;
    })
    .unwrap();
    assert_eq!(entries, N - N / 5);
    // SAFETY: no process or thread uses it any more.
    unsafe { ix.destroy(&p) };
}

/// Byte order that ends the process when the countdown is over, without unwinding.
struct Deadly(Cell<u32>);

impl KeyOrder for Deadly {
    const MEMCMP: bool = false;
    fn abbrev(&self, _: &[u8]) -> u64 {
        0
    }
    fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        if self.0.get() == 0 {
            // SAFETY: ends the child without the parent's exit handlers.
            unsafe { libc::_exit(7) };
        }
        self.0.set(self.0.get() - 1);
        a.cmp(b)
    }
}

/// Processes that end inside a comparator (as FATAL does) take no memory of the index with them.
#[test]
fn ends_in_a_comparator() {
    let mapping = Mapping::inherited(64 << 20, 2);
    let p = mapping.process(0);
    let ix = create(&p);
    let never = Deadly(Cell::new(u32::MAX));
    // Long keys: each has a chunk, and the leaf is full.
    let long = |i: u64| [format!("{i:05}").into_bytes(), vec![b'x'; 10_000]].concat();
    for i in 0..64 {
        ix.insert(&p, &never, &long(i * 10), i).unwrap();
    }
    let mut before = 0;
    let mut ended = 0;
    for round in 0..400 {
        // SAFETY: as above.
        let child = unsafe { libc::fork() };
        assert!(child >= 0);
        if child == 0 {
            let order = Deadly(Cell::new(round / 10));
            let _ = ix.insert(&mapping.process(1), &order, &long(315), 1);
            // SAFETY: as above.
            unsafe { libc::_exit(0) };
        }
        let mut status = 0;
        // SAFETY: waits for our own child.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        let exit = libc::WEXITSTATUS(status);
        assert!(libc::WIFEXITED(status) && (exit == 0 || exit == 7), "{status}");
        // What its exit would have done.
        drop(mapping.process(1));
        ended += u32::from(exit == 7);
        ix.remove(&p, &never, &long(315), 1);
        ix.collect(&p, 100);
        ix.collect(&p, 100);
        if round == 0 {
            before = ix.stats().bytes;
        }
    }
    assert!(ended > 50, "{ended}");
    let grown = ix.stats().bytes - before;
    assert!(grown < 500_000, "{grown} bytes more after {ended} processes ended");
}

/// Processes that end in the middle of a batch of inserts. Each entry is there or not. No memory of
/// the index is lost, and the same batch may be inserted again.
#[test]
fn ends_in_a_batch() {
    let mapping = Mapping::inherited(64 << 20, 2);
    let p = mapping.process(0);
    let ix = create(&p);
    let mut builder = Builder::new(&p, ix);
    for i in 0..1000u64 {
        builder.push(&Memcmp, &(1000 * i).to_be_bytes(), i).unwrap();
    }
    adopt(&ix, &p, vec![builder.finish().unwrap()]).unwrap();
    // Some leaves get few entries, and others many.
    let key = |i: u64| if i < 60 { 7000 * i + 3 } else { 600_000 + 20 * i + 3 };
    let mut entries: Vec<_> = (0..900).map(|i| (key(i).to_be_bytes().to_vec(), i)).collect();
    entries.sort();
    let insert = |p: &Process, left: u64| {
        // SAFETY: ends the child without the parent's exit handlers.
        let end = || unsafe { libc::_exit(7) };
        let batch = Ending { entries: &entries, left: Cell::new(left), end };
        let mut at = 0;
        while at < entries.len() {
            at = ix.insert_sorted(p, &Memcmp, &batch, at, ix.term()).unwrap().unwrap();
        }
    };
    let there = || entries.iter().filter(|(key, tid)| ix.contains(&p, &Memcmp, key, *tid)).count();
    let remove = || entries.iter().for_each(|(key, tid)| _ = ix.remove(&p, &Memcmp, key, *tid));
    let (mut before, mut parts) = (0, BTreeSet::new());
    for round in 0..60 {
        // SAFETY: as above.
        let child = unsafe { libc::fork() };
        assert!(child >= 0);
        if child == 0 {
            insert(&mapping.process(1), round * 150);
            // SAFETY: as above.
            unsafe { libc::_exit(0) };
        }
        let mut status = 0;
        // SAFETY: waits for our own child.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert!(libc::WIFEXITED(status) && [0, 7].contains(&libc::WEXITSTATUS(status)), "{status}");
        // What its exit would have done.
        drop(mapping.process(1));
        parts.insert(there());
        insert(&p, u64::MAX);
        assert_eq!(there(), entries.len());
        assert_eq!(ix.verify(&p, &Memcmp, true, &mut |_, _| ()).unwrap().live, 1900);
        remove();
        collect(&p, ix);
        if round == 0 {
            before = ix.stats().bytes;
        }
    }
    assert!(parts.len() > 5 && parts.last() == Some(&entries.len()), "{parts:?}");
    assert!(ix.stats().bytes < before + 100_000, "{before} bytes became {}", ix.stats().bytes);
}
