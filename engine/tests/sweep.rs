//! What inserts have left is packed by a sweep, and takes inserts and removals as before.

use crate::common::{Mapping, Random, collect, create_with};
use nitro_engine::prelude::*;
use nitro_engine::{Cursor, Forms, Index, Memcmp, Process, Sweep, Swept, Tid};
use std::collections::BTreeSet;

type Entries = BTreeSet<(Vec<u8>, Tid)>;

/// The bytes of a key of this length; of text, each with one of sixteen values.
fn key(i: u64, len: usize, text: bool) -> Vec<u8> {
    let mut random = Random(i);
    let mut key: Vec<u8> = (0..len).map(|_| random.next() as u8).collect();
    if text {
        key.iter_mut().for_each(|byte| *byte = b'a' + *byte % 16);
        key.push(0);
    }
    key
}

fn sweep(p: &Process, ix: Index) {
    let mut sweep = Sweep::new(p, ix);
    while sweep.next_leaves(10) == Swept::More {}
    collect(p, ix);
}

fn check(p: &Process, ix: Index, model: &Entries) {
    ix.verify(p, &Memcmp, true, &mut |_, _| ()).unwrap_or_else(|v| panic!("{v}"));
    let mut cursor = Cursor::new(true);
    cursor.set_range(&[], None, u32::MAX - 1);
    let mut all = model.iter();
    while cursor.next(p, ix, &Memcmp) > 0 {
        for i in 0..cursor.len() {
            let (key, tid) = all.next().unwrap();
            assert_eq!((cursor.key(i), cursor.tid(i)), (&key[..], *tid));
        }
    }
    assert!(all.next().is_none());
}

#[test]
fn sweeps_between_changes() {
    for (len, text) in
        [(3, false), (8, false), (16, false), (25, true), (150, true), (256, true), (500, false)]
    {
        let mapping = Mapping::new(1 << 27, 2);
        let p = mapping.process(0);
        let ix = create_with(&p, Forms::Best);
        let mut model = Entries::new();
        let add = |model: &mut Entries, rows: std::ops::Range<u64>| {
            for i in rows {
                let key = key(i, len, text);
                assert!(ix.insert(&p, &Memcmp, &key, i).unwrap(), "{len} {text}");
                model.insert((key, i));
            }
        };
        add(&mut model, 0..6000);
        let before = ix.stats();
        sweep(&p, ix);
        // Keys that cannot be made shorter are in full leaves already.
        assert!(len >= 500 || ix.stats().blocks[0] < before.blocks[0] * 2 / 3, "{len} {text}");
        check(&p, ix, &model);
        add(&mut model, 6000..12000);
        check(&p, ix, &model);
        for i in (0..12000).filter(|i| i % 10 != 0) {
            let key = key(i, len, text);
            assert!(ix.remove(&p, &Memcmp, &key, i), "{len} {text}");
            model.remove(&(key, i));
        }
        let before = ix.stats();
        sweep(&p, ix);
        assert!(ix.stats().blocks[0] < before.blocks[0] / 2, "{len} {text}");
        check(&p, ix, &model);
        add(&mut model, 12000..15000);
        check(&p, ix, &model);
    }
}

/// The next call begins behind the leaves of the last one, even if all keys are the same.
#[test]
fn a_sweep_goes_on_behind_equal_keys() {
    let mapping = Mapping::new(1 << 27, 2);
    let p = mapping.process(0);
    let ix = create_with(&p, Forms::Best);
    let mut model = Entries::new();
    for i in 0..20_000 {
        let (key, tid) = (vec![7, (i % 2) as u8], i * 7919 % 20_011);
        assert!(ix.insert(&p, &Memcmp, &key, tid).unwrap());
        model.insert((key, tid));
    }
    let before = ix.stats().blocks[0];
    let (mut sweep, mut calls) = (Sweep::new(&p, ix), 0);
    while sweep.next_leaves(1) == Swept::More {
        calls += 1;
        assert!(calls <= before, "{before} leaves, and no end");
    }
    collect(&p, ix);
    assert!(ix.stats().blocks[0] < before * 2 / 3);
    check(&p, ix, &model);
}

/// A leaf that begins among the entries with the empty key is not where a sweep begins.
#[test]
fn sweeps_of_the_empty_key() {
    let mapping = Mapping::new(1 << 27, 2);
    let p = mapping.process(0);
    let ix = create_with(&p, Forms::Best);
    for i in 1..5000 {
        assert!(ix.insert(&p, &Memcmp, &[], i * 7919 % 5003).unwrap());
    }
    let mut sweep = Sweep::new(&p, ix);
    let rounds = (0..5000).take_while(|_| sweep.next_leaves(1) == Swept::More).count();
    assert!((1..5000).contains(&rounds), "{rounds} rounds");
    ix.verify(&p, &Memcmp, true, &mut |_, _| ()).unwrap();
}
