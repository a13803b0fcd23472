//! Leaves in which the last bytes count.

use crate::common::*;
use nitro_engine::adopt;
use nitro_engine::prelude::*;
use nitro_engine::{Builder, Cursor, Forms, Index, IndexOptions, KeyOrder, Memcmp, Process};
use std::cell::Cell;
use std::cmp::Ordering;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

fn verify(p: &Process, ix: Index) {
    ix.verify(p, &Memcmp, true, &mut |_, _| ()).unwrap_or_else(|v| panic!("{v}"));
}

/// A leaf that absorbs another one and is then left with one long entry takes one more.
#[test]
fn merged_leaf_takes_another_entry() {
    let mapping = Mapping::new(1 << 26, 1);
    let p = mapping.process(0);
    for tail in 48..64 {
        let ix = Index::create(&p, &IndexOptions { fillfactor: 90, key_len_hint: 8 }).unwrap();
        ix.force(Forms::Slots);
        let short = |i: u64| i.to_be_bytes().to_vec();
        let long = |i: u64| [short(i), vec![b'x'; tail]].concat();
        for i in 0..300 {
            ix.insert(&p, &Memcmp, &short(i), i).unwrap();
            ix.insert(&p, &Memcmp, &long(1000 + i), i).unwrap();
        }
        for i in 0..300 {
            assert!(ix.remove(&p, &Memcmp, &short(i), i));
            assert!(i == 200 || ix.remove(&p, &Memcmp, &long(1000 + i), i));
        }
        collect(&p, ix);
        assert!(ix.stats().merges > 0);
        ix.insert(&p, &Memcmp, &long(500), 500).unwrap();
        verify(&p, ix);
        // SAFETY: no other process or thread uses it.
        unsafe { ix.destroy(&p) };
    }
}

/// Most of the key area is on the right of the middle, and the separator there is long.
#[test]
fn right_half_of_a_full_leaf() {
    let mapping = Mapping::new(1 << 26, 1);
    let p = mapping.process(0);
    let ix = Index::create(&p, &IndexOptions { fillfactor: 90, key_len_hint: 320 }).unwrap();
    ix.force(Forms::Slots);
    let long = |first: u8, i: u8| [vec![first, i], vec![b'x'; 516]].concat();
    let insert = |key: &[u8], tid| assert!(ix.insert(&p, &Memcmp, key, tid).unwrap());
    (0..27).for_each(|i| insert(&[0, i], 0));
    (0..2).for_each(|tid| insert(&long(1, 0), tid));
    (0..27).for_each(|i| insert(&long(2, 2 * i), 0));
    assert_eq!(ix.stats().splits, 0);
    insert(&long(2, 5), 0);
    assert!(ix.stats().splits > 0);
    verify(&p, ix);
}

/// The new leaf of an append among equal keys has their chunk as its low key.
#[test]
fn long_duplicates_in_full_leaves() {
    let mapping = Mapping::new(1 << 26, 1);
    let p = mapping.process(0);
    for len in [2000, 16000] {
        let ix = Index::create(&p, &IndexOptions { fillfactor: 100, key_len_hint: 0 }).unwrap();
        for tid in 0..300 {
            assert!(ix.insert(&p, &Memcmp, &vec![7; len], tid).unwrap());
        }
        verify(&p, ix);
        // SAFETY: no other process or thread uses it.
        unsafe { ix.destroy(&p) };
    }
}

/// Unwinds when it has compared so often.
struct Unwinding(Cell<u32>);

impl KeyOrder for Unwinding {
    const MEMCMP: bool = false;
    fn abbrev(&self, _: &[u8]) -> u64 {
        0
    }
    fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        if self.0.replace(self.0.get().wrapping_sub(1)) == 0 {
            resume_unwind(Box::new(()));
        }
        a.cmp(b)
    }
}

/// An insert unwinds after a split that used its chunk for the low key of the new leaf.
#[test]
fn unwinding_leaves_low_keys_alone() {
    let mapping = Mapping::new(1 << 27, 1);
    let p = mapping.process(0);
    let ix = Index::create(&p, &IndexOptions { fillfactor: 100, key_len_hint: 0 }).unwrap();
    let order = Unwinding(Cell::new(0));
    let long = |i: u64| [&i.to_be_bytes()[..], &[0; 1500]].concat();
    let mut fillers = 0;
    for i in 0..150 {
        for compares in 0.. {
            order.0.set(compares);
            let insert = || ix.insert(&p, &order, &long(1 << 32 | i), i).unwrap();
            match catch_unwind(AssertUnwindSafe(insert)) {
                Ok(inserted) => {
                    assert!(inserted);
                    break;
                }
                // Takes what has been freed.
                Err(_) => {
                    order.0.set(u32::MAX);
                    assert!(ix.insert(&p, &order, &long(fillers), 0).unwrap());
                    fillers += 1;
                }
            }
        }
    }
    order.0.set(u32::MAX);
    let report = ix.verify(&p, &order, true, &mut |_, _| ()).unwrap_or_else(|v| panic!("{v}"));
    assert_eq!(report.live, 150 + fillers);
}

/// Removing the same positions of a batch twice is removing them once.
#[test]
fn positions_given_twice() {
    let mapping = Mapping::new(1 << 24, 1);
    let p = mapping.process(0);
    let ix = create(&p);
    // Two entries refer to one chunk.
    for tid in 0..4 {
        ix.insert(&p, &Memcmp, &[tid as u8 / 2; 2000], tid).unwrap();
    }
    let mut cursor = Cursor::new(true);
    cursor.set_range(&[], None, u32::MAX - 1);
    assert_eq!(cursor.next(&p, ix, &Memcmp), 4);
    for (which, removed) in [([0, 0], 1), ([0, 2], 1), ([2, 0], 0), ([1, 1], 1)] {
        assert_eq!(cursor.remove(&p, ix, &which), removed);
    }
    assert_eq!((ix.stats().live, ix.stats().garbage), (1, 1));
    verify(&p, ix);
}

/// Removals from packed leaves, beside snapshots that need what goes, when there is no memory left
/// to keep it.
#[test]
fn removals_beside_a_snapshot_in_a_full_area() {
    let mapping = Mapping::new(1 << 21, 1);
    let p = mapping.process(0);
    let key = |i: u64| i.to_be_bytes();
    let ix = create(&p);
    let mut builder = Builder::new(&p, ix);
    (0..50_000).for_each(|i| builder.push(&Memcmp, &key(10 * i), i).unwrap());
    adopt(&ix, &p, vec![builder.finish().unwrap()]).unwrap();
    let other = create(&p);
    let full = (0..).find(|&i| other.insert(&p, &Memcmp, &[i as u8; 4000], i).is_err());
    assert!(full.is_some());
    let snapshot = ix.create_snapshot(&p, 7, &mut || ()).unwrap();
    assert!(ix.keeps(&snapshot));
    // What is left of pages is enough for the first ones.
    for i in (0..50_000).step_by(10) {
        assert!(ix.remove(&p, &Memcmp, &key(10 * i), i));
    }
    assert!(!ix.keeps(&snapshot));
    assert!(ix.stats().snapshots.is_empty());
    let next = ix.create_snapshot(&p, 7, &mut || ()).unwrap();
    ix.release(&p, snapshot);
    assert!(ix.keeps(&next));
    ix.release(&p, next);
    assert_eq!(ix.stats().live, 45_000);
    verify(&p, ix);
}
