//! A full area, and memory that serves other keys than those it was taken for.

use crate::common::*;
use nitro_engine::prelude::*;
use nitro_engine::{Index, InsertError, Memcmp, Process};

const WIDTHS: [usize; 11] = [8, 20, 40, 70, 120, 300, 480, 700, 1500, 6000, 12000];

/// Distinct, in no order.
fn key(i: u64, width: usize) -> Vec<u8> {
    let mut key = i.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes().to_vec();
    key.resize(width, 1);
    key
}

/// Inserts entries from `from` on until the area is full.
fn fill(p: &Process, ix: Index, width: usize, from: u64) -> u64 {
    let mut i = from;
    loop {
        match ix.insert(p, &Memcmp, &key(i, width), i) {
            Ok(inserted) => assert!(inserted),
            Err(InsertError::OutOfMemory(_)) => return i,
            Err(e) => panic!("{e}"),
        }
        i += 1;
    }
}

fn remove(p: &Process, ix: Index, width: usize, entries: impl Iterator<Item = u64>) {
    entries.for_each(|i| assert!(ix.remove(p, &Memcmp, &key(i, width), i)));
    collect(p, ix);
    ix.verify(p, &Memcmp, true, &mut |_, _| ()).unwrap_or_else(|v| panic!("{v}"));
}

/// An area that is full of entries of one width has room for those of every other when they are
/// gone.
#[test]
fn every_width_after_every_other() {
    let mapping = Mapping::new(1 << 24, 1);
    let p = mapping.process(0);
    let ix = create(&p);
    let widths = WIDTHS.iter().chain(WIDTHS.iter().rev());
    for &width in widths {
        let n = fill(&p, ix, width, 0);
        let fresh = {
            let other = Mapping::new(1 << 24, 1);
            let p = other.process(0);
            fill(&p, create(&p), width, 0)
        };
        assert!(n * 10 > fresh * 9, "{n} keys of {width} bytes, {fresh} in a new index");
        remove(&p, ix, width, 0..n);
        assert!(ix.stats().bytes < 1 << 16, "{} bytes after {width}", ix.stats().bytes);
    }
}

/// While an index is full of one kind of entries and has let some of them go here and there, no
/// extent is free, and blocks of other sizes serve.
#[test]
fn larger_blocks_serve_when_nothing_else_does() {
    let mapping = Mapping::new(1 << 24, 1);
    let p = mapping.process(0);
    for width in [2500, 6000] {
        let ix = create(&p);
        let n = fill(&p, ix, width, 0);
        remove(&p, ix, width, (0..n).filter(|i| i % 2 == 0));
        let free = mapping.area.usage().free;
        let more = fill(&p, ix, 8, n);
        assert!(
            (more - n) as usize > 2 * free / 30,
            "{} short keys beside {} long ones",
            more - n,
            n / 2
        );
        remove(&p, ix, 8, n..more);
        remove(&p, ix, width, (0..n).filter(|i| i % 2 != 0));
        // SAFETY: no other process or thread uses it.
        unsafe { ix.destroy(&p) };
    }
}

/// A queue. Memory that it frees in front serves its end. At last the rest serves another index.
#[test]
fn memory_of_one_index_serves_another() {
    let mapping = Mapping::new(1 << 24, 1);
    let p = mapping.process(0);
    let ix = create(&p);
    let key = |i: u64| [&i.to_be_bytes()[..], &[1; 40]].concat();
    for i in 0..600_000u64 {
        assert!(ix.insert(&p, &Memcmp, &key(i), i).unwrap());
        if i >= 50_000 {
            assert!(ix.remove(&p, &Memcmp, &key(i - 50_000), i - 50_000));
        }
        if i % 10_000 == 0 {
            collect(&p, ix);
        }
    }
    assert!(ix.stats().bytes < 10 << 20, "{} bytes", ix.stats().bytes);
    (550_000..599_000).for_each(|i| assert!(ix.remove(&p, &Memcmp, &key(i), i)));
    collect(&p, ix);
    assert!(ix.stats().bytes < 5 << 18, "{} bytes", ix.stats().bytes);
    let other = create(&p);
    assert!(fill(&p, other, 40, 0) > 100_000);
}

/// Entries come in no order, and go by ranges or one here and there. Their extents are of all
/// ranges, so none would be free if leaves did not move.
#[test]
fn an_index_shrinks_with_its_leaves() {
    let mapping = Mapping::new(1 << 26, 1);
    let p = mapping.process(0);
    let ranges = |i: u64| key(i, 8)[0] >= 230;
    let scattered = |i: u64| i.is_multiple_of(10);
    for (width, kept) in
        [(8, ranges as fn(u64) -> bool), (40, ranges), (8, scattered), (40, scattered)]
    {
        let ix = create(&p);
        let n = 600_000;
        (0..n).for_each(|i| assert!(ix.insert(&p, &Memcmp, &key(i, width), i).unwrap()));
        let before = ix.stats().bytes;
        remove(&p, ix, width, (0..n).filter(|&i| !kept(i)));
        let stats = ix.stats();
        let leaves = before / stats.bytes.max(1);
        assert!(leaves >= 4, "{width}: {before} bytes before, {} with {stats:?}", stats.bytes);
        for i in 0..n {
            assert_eq!(ix.contains(&p, &Memcmp, &key(i, width), i), kept(i));
        }
        (0..n)
            .for_each(|i| assert_eq!(ix.insert(&p, &Memcmp, &key(i, width), i).unwrap(), !kept(i)));
        assert!(ix.stats().bytes < before * 5 / 4, "{} bytes again", ix.stats().bytes);
        // SAFETY: no other process or thread uses it.
        unsafe { ix.destroy(&p) };
    }
}
