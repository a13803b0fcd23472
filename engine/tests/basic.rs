//! Loads that make many leaves and index nodes, checked as a whole.

use crate::common::*;
use nitro_engine::prelude::*;
use nitro_engine::{Cursor, Index, KeyOrder, Memcmp, Process, Prune};
use std::cell::Cell;
use std::cmp::Ordering;
use std::panic::{AssertUnwindSafe, catch_unwind};

const CURRENT: u32 = u32::MAX - 1;

fn load(p: &Process, ix: Index, n: u64, key: &dyn Fn(u64) -> Vec<u8>) {
    for i in 0..n {
        assert!(ix.insert(p, &Memcmp, &key(i), i).unwrap());
    }
    let report = ix.verify(p, &Memcmp, true, &mut |_, _| ()).unwrap_or_else(|v| panic!("{v}"));
    assert_eq!(report.live, n);
    for i in 0..n {
        assert!(ix.contains(p, &Memcmp, &key(i), i), "{i}");
        assert!(!ix.contains(p, &Memcmp, &key(i), i + n));
    }
    for want_keys in [false, true] {
        let mut cursor = Cursor::new(want_keys);
        cursor.set_range(&[], None, CURRENT);
        let (mut forward, mut backward) = (0, 0);
        while cursor.next(p, ix, &Memcmp) > 0 {
            forward += cursor.len() as u64;
        }
        while cursor.prev(p, ix, &Memcmp) > 0 {
            backward += cursor.len() as u64;
        }
        assert_eq!((forward, backward), (n, n));
    }
    println!("{} bytes per entry, {:?}", ix.stats().bytes as u64 / n, ix.stats().blocks);
}

macro_rules! loads {
    ($($name:ident: $key:expr;)*) => { $(
        #[test]
        fn $name() {
            let mapping = Mapping::new(1 << 30, 1);
            let p = mapping.process(0);
            let before = mapping.area.usage().used;
            let ix = create(&p);
            load(&p, ix, 200_000, &$key);
            // SAFETY: no other process or thread uses it.
            unsafe { ix.destroy(&p) };
            assert_eq!(mapping.area.usage().used, before);
        }
    )* };
}

loads! {
    random_8: |i| Random(i).next().to_be_bytes().to_vec();
    random_9: |i| [&[1], Random(i).next().to_be_bytes().as_slice()].concat();
    ascending_8: |i| i.to_be_bytes().to_vec();
    ascending_9: |i| [&[1], (i * 1000).to_be_bytes().as_slice()].concat();
    descending_9: |i| [&[1], (u64::MAX - i).to_be_bytes().as_slice()].concat();
    long_common_prefix: |i| format!("https://www.example.com/{:08x}", Random(i).next() >> 32).into_bytes();
    two_prefixes: |i| format!("{}{:08x}", if i % 2 == 0 { "https://www." } else { "http://www.a" }, Random(i).next() >> 32).into_bytes();
    duplicates: |i| (i % 7).to_be_bytes().to_vec();
    one_key: |_| b"one and the same key".to_vec();
    mixed_lengths: |i| vec![(Random(i).next() >> 8) as u8; (Random(i).next() % 90) as usize];
    prefix_longer_than_skip: |i| [vec![b'x'; 400], i.to_le_bytes().to_vec()].concat();
}

#[test]
fn key_too_long() {
    let mapping = Mapping::new(1 << 22, 1);
    let p = mapping.process(0);
    let ix = create(&p);
    assert!(ix.insert(&p, &Memcmp, &[1; nitro_engine::MAX_KEY_LEN], 1).unwrap());
    assert!(ix.insert(&p, &Memcmp, &[1; nitro_engine::MAX_KEY_LEN + 1], 1).is_err());
    assert!(ix.contains(&p, &Memcmp, &[1; nitro_engine::MAX_KEY_LEN], 1));
}

#[test]
fn out_of_memory_leaves_the_structure_valid() {
    let mapping = Mapping::new(1 << 20, 1);
    let p = mapping.process(0);
    let ix = create(&p);
    let mut n = 0;
    while ix.insert(&p, &Memcmp, &Random(n).next().to_be_bytes(), n).is_ok() {
        n += 1;
    }
    assert!(n > 10_000, "{n}");
    let report = ix.verify(&p, &Memcmp, true, &mut |_, _| ()).unwrap();
    assert_eq!(report.live, n);
}

/// A position that the batch does not have is noticed before anything is latched.
#[test]
fn removing_what_the_batch_does_not_have() {
    let mapping = Mapping::new(1 << 24, 1);
    let p = mapping.process(0);
    let ix = create(&p);
    for i in 0..10u64 {
        ix.insert(&p, &Memcmp, &i.to_be_bytes(), i).unwrap();
    }
    let mut cursor = Cursor::new(true);
    cursor.set_range(&[], None, CURRENT);
    assert_eq!(cursor.next(&p, ix, &Memcmp), 10);
    let remove = || cursor.remove(&p, ix, &[3, 10]);
    assert!(catch_unwind(AssertUnwindSafe(remove)).is_err());
    assert!(ix.insert(&p, &Memcmp, b"the leaf can be changed", 1).unwrap());
    assert_eq!(ix.stats().live, 11);
}

/// An order that counts how often it is asked.
#[derive(Default)]
struct Counting(Cell<u64>);

impl KeyOrder for Counting {
    const MEMCMP: bool = false;
    fn abbrev(&self, _: &[u8]) -> u64 {
        0
    }
    fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        self.0.set(self.0.get() + 1);
        a.cmp(b)
    }
}

/// A leaf changes at each question about it. The pass then goes on at the beginning of the leaf,
/// and not at the first of many entries of a key.
#[test]
fn a_pass_over_leaves_that_change() {
    const ENTRIES: u64 = 20_000;
    let mapping = Mapping::new(1 << 24, 1);
    let p = mapping.process(0);
    let (ix, order) = (create(&p), Counting::default());
    for tid in 0..ENTRIES {
        ix.insert(&p, &order, b"the key of all", 2 * tid).unwrap();
    }
    let (mut inserted, mut kept, before) = (0, Vec::new(), order.0.get());
    let mut pass = Prune::new(&p, ix);
    while pass.next_leaf(&mut |tids, dead| {
        tids.iter().zip(dead).for_each(|(&tid, dead)| *dead = tid % 2 == 0);
        let new = tids.iter().map(|tid| tid | 1).find(|tid| !tids.contains(tid));
        if let Some(tid) = new {
            inserted += u64::from(ix.insert(&p, &order, b"the key of all", tid).unwrap());
            kept.push(tid);
        }
    }) {}
    let asked = order.0.get() - before;
    assert!(asked < 100 * ENTRIES, "{asked} comparisons for {ENTRIES} entries");
    assert_eq!(pass.counts().1, ENTRIES);
    kept.sort_unstable();
    let mut cursor = Cursor::new(false);
    cursor.set_range(&[], None, CURRENT);
    let mut read = Vec::new();
    while cursor.next(&p, ix, &order) > 0 {
        read.extend((0..cursor.len()).map(|i| cursor.tid(i)));
    }
    assert_eq!(read, kept);
    assert_eq!(inserted, kept.len() as u64);
}

/// What unwinds while it is asked leaves a superset, and the pass can go on.
#[test]
fn a_pass_that_unwinds() {
    let mapping = Mapping::new(1 << 24, 1);
    let p = mapping.process(0);
    let ix = create(&p);
    for i in 0..5000u64 {
        ix.insert(&p, &Memcmp, &i.to_be_bytes(), i).unwrap();
    }
    let (mut pass, mut calls) = (Prune::new(&p, ix), 0);
    loop {
        let prune = || {
            pass.next_leaf(&mut |tids, dead| {
                calls += 1;
                assert!(calls % 3 != 1, "every third call fails");
                tids.iter().zip(dead).for_each(|(&tid, dead)| *dead = tid % 2 == 0);
            })
        };
        if let Ok(false) = catch_unwind(AssertUnwindSafe(prune)) {
            break;
        }
    }
    assert_eq!(pass.counts(), (2500, 2500));
    assert_eq!(ix.verify(&p, &Memcmp, true, &mut |_, _| ()).unwrap().live, 2500);
}
