//! The reverse map against a model: the keys of TIDs, changed, freed by block, and cut short
//! anywhere.

use crate::common::*;
use nitro_engine::prelude::*;
use nitro_engine::{Change, Index, KeyOrder, Memcmp, Mismatch, Process, ReverseMap, reverse_entry};
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};

type Model = BTreeMap<u64, BTreeSet<Vec<u8>>>;

fn entries<O: KeyOrder>(p: &Process, order: &O, index: Index) -> BTreeSet<(Vec<u8>, u64)> {
    let mut all = BTreeSet::new();
    index
        .verify(p, order, true, &mut |key, tid| {
            all.insert((key.to_vec(), tid));
        })
        .unwrap_or_else(|violation| panic!("{violation}"));
    all
}

/// Every entry of the main index has one in the map.
fn knows_every_key<O: KeyOrder>(p: &Process, order: &O, main: Index, map: Index) {
    let known = entries(p, &Memcmp, map);
    for (key, tid) in entries(p, order, main) {
        let mut entry = Vec::new();
        reverse_entry(tid, &key, &mut entry);
        assert!(
            known.contains(&(entry, 1)),
            "TID {tid} has a key that the reverse map does not know"
        );
    }
}

/// Sets the keys of some TIDs.
fn set_all<O: KeyOrder>(
    (both, p, order): (&ReverseMap, &Process, &O),
    rows: &Model,
    change: &mut Change,
) -> bool {
    change.clear();
    for (&tid, keys) in rows {
        change.tid(tid);
        keys.iter().for_each(|key| change.key(key));
    }
    both.set(p, order, change).is_ok()
}

/// Sets the keys of one TID.
fn set<O: KeyOrder>(
    all: (&ReverseMap, &Process, &O),
    tid: u64,
    keys: impl IntoIterator<Item: AsRef<[u8]>>,
    change: &mut Change,
) -> bool {
    let keys = keys.into_iter().map(|key| key.as_ref().to_vec()).collect();
    set_all(all, &Model::from([(tid, keys)]), change)
}

fn random_keys(random: &mut Random) -> BTreeSet<Vec<u8>> {
    let n = random.below(4);
    let key = |random: &mut Random| match random.below(8) {
        0 => Vec::new(),
        1 => vec![random.below(256) as u8; random.below(900) as usize],
        _ => format!("key {}", random.below(500)).into_bytes(),
    };
    (0..n).map(|_| key(random)).collect()
}

/// TIDs of three blocks at both ends of all TIDs.
fn random_tid(random: &mut Random) -> u64 {
    let block = [0, 1, (1 << 32) - 1][random.below(3) as usize];
    block << 16 | [1, 2, 3, 0xffff][random.below(4) as usize]
}

fn storm(forms: nitro_engine::Forms, seed: u64, fragile: bool) -> u32 {
    let mapping = Mapping::new(64 << 20, 1);
    let p = mapping.process(0);
    let (main, map) = (create_with(&p, forms), create_with(&p, forms));
    let both = ReverseMap::of(main, map);
    let order = Fragile(Cell::new(u32::MAX));
    let (mut random, mut model, mut changes) = (Random(seed), Model::new(), Change::default());
    let mut unwound = 0;
    for round in 0..4000 {
        let tid = random_tid(&mut random);
        let more = (0..random.below(3)).map(|_| random_tid(&mut random)).collect::<Vec<_>>();
        let tids = more.into_iter().chain([tid]);
        let rows: Model = tids.map(|tid| (tid, random_keys(&mut random))).collect();
        let block = tid >> 16 << 16;
        let kept = random.below(4);
        if fragile {
            order.0.set(random.below(40) as u32);
        }
        let whole_block = random.below(6) == 0;
        let mut change = || {
            if whole_block {
                both.retain(&p, &order, block..block + 0x1_0000, &mut changes, |tid| {
                    tid & 3 == kept
                });
            } else {
                assert!(set_all((&both, &p, &order), &rows, &mut changes));
            }
        };
        // Who is cut short is repeated, after another look.
        if catch_unwind(AssertUnwindSafe(&mut change)).is_err() {
            unwound += 1;
            order.0.set(u32::MAX);
            if round % 16 == 0 {
                knows_every_key(&p, &order, main, map);
            }
            change();
        }
        order.0.set(u32::MAX);
        if whole_block {
            model.retain(|tid, _| tid >> 16 << 16 != block || tid & 3 == kept);
        } else {
            model.extend(rows);
        }
        if round % 64 == 0 {
            let live = model.values().map(|keys| keys.len() as u64).sum();
            assert_eq!(both.verify(&p, &order), Ok(live));
        }
    }
    let all: BTreeSet<_> =
        model.iter().flat_map(|(tid, keys)| keys.iter().map(|key| (key.clone(), *tid))).collect();
    assert_eq!(entries(&p, &order, main), all);
    unwound
}

#[test]
fn keys_are_those_that_were_set_last() {
    for (seed, forms) in FORMS.into_iter().enumerate() {
        assert_eq!(storm(forms, seed as u64 + 1, false), 0);
    }
}

#[test]
fn a_process_that_unwinds_loses_no_key() {
    for (seed, forms) in FORMS.into_iter().enumerate() {
        assert!(storm(forms, seed as u64 + 11, true) > 100);
    }
}

/// Beside the map of keys, a TID may be given to another row at any time: its old keys are found.
#[test]
fn a_key_that_was_cut_short_goes_with_its_tid() {
    let mapping = Mapping::new(64 << 20, 1);
    let p = mapping.process(0);
    let (main, map) = (create(&p), create(&p));
    let both = ReverseMap::of(main, map);
    let mut changes = Change::default();
    let order = Fragile(Cell::new(u32::MAX));
    assert!(set((&both, &p, &order), 8, ["another", "row"], &mut changes));
    for comparisons in 0..40 {
        order.0.set(comparisons);
        let mut cut_short = |keys: &[&str]| {
            let all = (&both, &p, &order);
            let _ = catch_unwind(AssertUnwindSafe(|| set(all, 7, keys, &mut changes)));
        };
        cut_short(&["first", "old"]);
        order.0.set(comparisons / 2);
        cut_short(&["new"]);
        knows_every_key(&p, &Fragile(Cell::new(u32::MAX)), main, map);
        order.0.set(u32::MAX);
        both.retain(&p, &order, 7..8, &mut changes, |_| false);
        assert_eq!(both.verify(&p, &order), Ok(2));
    }
}

#[test]
fn a_difference_is_seen() {
    let mapping = Mapping::new(16 << 20, 1);
    let p = mapping.process(0);
    let (main, map) = (create(&p), create(&p));
    let both = ReverseMap::of(main, map);
    let mut changes = Change::default();
    assert!(set((&both, &p, &Memcmp), 7, ["a"], &mut changes));
    main.insert(&p, &Memcmp, b"b", 7).unwrap();
    assert_eq!(both.verify(&p, &Memcmp), Err(Mismatch::Counts { main: 2, map: 1 }));
    main.remove(&p, &Memcmp, b"a", 7);
    let only = Mismatch::OnlyInMap { key: b"a".to_vec(), tid: 7 };
    assert_eq!(both.verify(&p, &Memcmp), Err(only));
}

#[test]
fn a_lack_of_memory_loses_no_key() {
    let mapping = Mapping::new(4 << 20, 1);
    let p = mapping.process(0);
    let (main, map) = (create(&p), create(&p));
    let both = ReverseMap::of(main, map);
    let mut changes = Change::default();
    let (mut random, mut refused) = (Random(3), 0);
    for tid in 0.. {
        let key = vec![random.below(256) as u8; 200 + random.below(2000) as usize];
        if !set((&both, &p, &Memcmp), tid, [key], &mut changes) {
            refused += 1;
            knows_every_key(&p, &Memcmp, main, map);
            both.retain(&p, &Memcmp, tid..tid + 1, &mut changes, |_| false);
            let freed = random.below(tid + 1);
            both.retain(&p, &Memcmp, freed..freed + 9, &mut changes, |_| false);
        }
        if refused == 24 {
            break;
        }
    }
    both.verify(&p, &Memcmp).unwrap_or_else(|difference| panic!("{difference}"));
}
