//! Ranges that are read together.

use crate::common::*;
use nitro_engine::adopt;
use nitro_engine::prelude::*;
use nitro_engine::{Builder, Cursor, Index, KeyOrder, Memcmp, Process, Prune, TOGETHER, Tid};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

const CURRENT: u32 = u32::MAX - 1;

fn together<O: KeyOrder>(
    order: &O,
    fold: fn(&[u8]) -> Vec<u8>,
    entries: &BTreeMap<Vec<u8>, u8>,
    more: &[Vec<u8>],
    packed: bool,
) {
    let mapping = Mapping::new(256 << 20, 1);
    let p = mapping.process(0);
    let ix = create(&p);
    let mut model: BTreeMap<Vec<u8>, BTreeSet<Tid>> = BTreeMap::new();
    let mut builder = Builder::new(&p, ix);
    for (key, n) in entries.iter().filter(|_| packed) {
        for tid in 0..u64::from(*n) {
            builder.push(order, key, tid).unwrap();
            model.entry(fold(key)).or_default().insert(tid);
        }
    }
    adopt(&ix, &p, vec![builder.finish().unwrap()]).unwrap();
    for (key, n) in entries.iter().filter(|_| !packed) {
        for tid in 0..u64::from(*n) {
            let new = model.entry(fold(key)).or_default().insert(tid);
            assert_eq!(ix.insert(&p, order, key, tid).unwrap(), new);
        }
    }
    let keys: Vec<&[u8]> = entries.keys().chain(more).map(|key| &key[..]).collect();
    check(order, fold, &p, ix, &keys, &model);
}

/// Ranges between neighbours among these keys, whatever their order, and of one key each, read
/// together.
fn check<O: KeyOrder>(
    order: &O,
    fold: fn(&[u8]) -> Vec<u8>,
    p: &Process,
    ix: Index,
    keys: &[&[u8]],
    model: &BTreeMap<Vec<u8>, BTreeSet<Tid>>,
) {
    let mut ranges: Vec<(&[u8], Option<Vec<u8>>)> = Vec::new();
    for (i, key) in keys.iter().enumerate() {
        ranges.push((key, keys.get(i + 1).map(|next| next.to_vec())));
        ranges.push((key, Some([key, &[0xff][..]].concat())));
    }
    for group in ranges.chunks(TOGETHER) {
        let mut cursors: Vec<Box<Cursor>> = Vec::new();
        for (i, (lower, upper)) in group.iter().enumerate() {
            let mut cursor = Box::new(Cursor::new(i % 3 == 0));
            cursor.set_range(lower, upper.as_deref(), CURRENT);
            cursors.push(cursor);
        }
        Cursor::first_of_each(&mut cursors, 1, p, ix, order);
        for ((lower, upper), mut cursor) in group.iter().zip(cursors) {
            let mut found = Vec::new();
            found.extend_from_slice(cursor.tids());
            while cursor.next(p, ix, order) > 0 {
                found.extend_from_slice(cursor.tids());
            }
            let (lower, upper) = (fold(lower), upper.as_deref().map(fold));
            let inside =
                |key: &Vec<u8>| *key >= lower && upper.as_ref().is_none_or(|end| key < end);
            let expected: Vec<Tid> = model
                .iter()
                .filter(|(key, _)| inside(key))
                .flat_map(|(_, tids)| tids)
                .copied()
                .collect();
            assert_eq!(found, expected, "{lower:?} {upper:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(40), ..ProptestConfig::default() })]

    #[test]
    fn ranges_together(
        entries in prop::collection::btree_map(hostile_key(), any::<u8>(), 0..60),
        more in prop::collection::vec(hostile_key(), 0..60),
        abbreviate: bool,
        packed: bool,
    ) {
        together(&Memcmp, |key| key.to_vec(), &entries, &more, packed);
        together(&IgnoreCase { abbreviate }, fold_case, &entries, &more, false);
    }
}

/// Everything goes, in several ways, and memory is reused.
#[test]
fn delete_everything() {
    let mapping = Mapping::new(64 << 20, 1);
    let p = mapping.process(0);
    let ix = create(&p);
    let mut bytes = 0;
    for round in 0..6u64 {
        for i in 0..50_000 {
            ix.insert(&p, &Memcmp, &Random(i).next().to_be_bytes(), round).unwrap();
        }
        let snapshot = (round % 2 == 0).then(|| ix.create_snapshot(&p, 0, &mut || ()).unwrap());
        if round % 3 == 0 {
            for i in 0..50_000 {
                assert!(ix.remove(&p, &Memcmp, &Random(i).next().to_be_bytes(), round));
            }
        } else if snapshot.is_none() {
            let mut cursor = Cursor::new(false);
            cursor.set_range(&[], None, CURRENT);
            let step = |c: &mut Cursor| {
                if round == 1 { c.next(&p, ix, &Memcmp) } else { c.prev(&p, ix, &Memcmp) }
            };
            while step(&mut cursor) > 0 {
                let all: Vec<u16> = (0..cursor.len() as u16).collect();
                assert_eq!(cursor.remove(&p, ix, &all), all.len());
            }
        } else {
            let mut pass = Prune::new(&p, ix);
            while pass.next_leaf(&mut |_, dead| dead.fill(true)) {}
            assert_eq!(pass.counts(), (0, 50_000));
        }
        if let Some(snapshot) = snapshot {
            let mut cursor = Cursor::new(false);
            cursor.set_snapshot_range(&[], None, snapshot.sn());
            let mut n = 0;
            while cursor.next(&p, ix, &Memcmp) > 0 {
                n += cursor.len();
            }
            assert_eq!(n, 50_000);
            ix.release(&p, snapshot);
        }
        collect(&p, ix);
        let report = ix.verify(&p, &Memcmp, true, &mut |_, _| ()).unwrap_or_else(|v| panic!("{v}"));
        assert_eq!((report.live, report.dead), (0, 0));
        let stats = ix.stats();
        println!("round {round}: {stats:?}");
        assert!(report.leaves < 30 && report.nodes < 5, "{report:?}");
        assert_eq!((stats.garbage, stats.dirty), (0, 0));
        if round == 0 {
            bytes = stats.bytes;
        }
        assert!(stats.bytes <= bytes + (1 << 20), "{} then {}", bytes, stats.bytes);
    }
}
