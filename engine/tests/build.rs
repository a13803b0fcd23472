//! Bottom-up builds in several shards, and operations on the result.

use crate::common::*;
use nitro_engine::adopt;
use nitro_engine::prelude::*;
use nitro_engine::{
    BuildError, Builder, Chain, Cursor, Forms, Index, IndexOptions, KeyOrder, Memcmp, Process, Tid,
};
use proptest::prelude::*;
use std::collections::BTreeSet;

const CURRENT: u32 = u32::MAX - 1;

fn build<O: KeyOrder>(
    p: &Process,
    ix: Index,
    order: &O,
    entries: &[(Vec<u8>, Tid)],
    shards: usize,
    packed: bool,
) {
    if !packed {
        ix.force(Forms::Slots);
    }
    let per_shard = entries.len().div_ceil(shards).max(1);
    let chains: Vec<Chain> = (0..shards)
        .map(|shard| {
            let mut builder = Builder::new(p, ix);
            for (key, tid) in entries.iter().skip(shard * per_shard).take(per_shard) {
                builder.push(order, key, *tid).unwrap();
                // Repeated ones are dropped.
                builder.push(order, key, *tid).unwrap();
            }
            let chain = builder.finish().unwrap();
            // As if another process had built it, or not.
            if shard % 2 == 0 {
                return chain;
            }
            // SAFETY: of this index, and not adopted yet.
            unsafe { Chain::open(ix, chain.name()) }.unwrap()
        })
        .collect();
    adopt(&ix, p, chains).unwrap();
}

fn check<O: KeyOrder>(p: &Process, ix: Index, order: &O, expected: &[(Vec<u8>, Tid)]) {
    let mut found = Vec::new();
    ix.verify(p, order, true, &mut |key, tid| found.push((key.to_vec(), tid)))
        .unwrap_or_else(|violation| panic!("{violation}"));
    assert_eq!(found, expected);
    let mut cursor = Cursor::new(true);
    cursor.set_range(&[], None, CURRENT);
    let mut backward = Vec::new();
    while cursor.prev(p, ix, order) > 0 {
        backward.extend((0..cursor.len()).rev().map(|i| (cursor.key(i).to_vec(), cursor.tid(i))));
    }
    backward.reverse();
    assert_eq!(backward, expected);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(60), ..ProptestConfig::default() })]

    #[test]
    fn bytes(
        entries in prop::collection::btree_set((hostile_key(), 0..5u64), 0..1500),
        more in prop::collection::vec((hostile_key(), 0..5u64), 0..500),
        shards in 1..4usize,
        fillfactor in 10..=100u8,
        packed: bool,
    ) {
        let mapping = Mapping::new(256 << 20, 1);
        let before = mapping.area.usage().used;
        let p = mapping.process(0);
        let ix = Index::create(&p, &IndexOptions { fillfactor, key_len_hint: 0 }).unwrap();
        let sorted: Vec<_> = entries.iter().cloned().collect();
        build(&p, ix, &Memcmp, &sorted, shards, packed);
        check(&p, ix, &Memcmp, &sorted);
        let mut model: BTreeSet<_> = entries;
        for (i, (key, tid)) in more.into_iter().enumerate() {
            if i % 3 == 0 {
                prop_assert_eq!(ix.remove(&p, &Memcmp, &key, tid), model.remove(&(key, tid)));
            } else {
                prop_assert_eq!(ix.insert(&p, &Memcmp, &key, tid).unwrap(), model.insert((key, tid)));
            }
        }
        check(&p, ix, &Memcmp, &model.into_iter().collect::<Vec<_>>());
        // SAFETY: no other process or thread uses it.
        unsafe { ix.destroy(&p) };
        prop_assert_eq!(mapping.area.usage().used, before);
    }

    #[test]
    fn comparator(
        entries in prop::collection::btree_map(hostile_key().prop_map(|key| key.to_ascii_lowercase()), 0..5u64, 0..800),
        more in prop::collection::vec((hostile_key(), 0..5u64), 0..300),
        shards in 1..4usize,
        abbreviate: bool,
    ) {
        let mapping = Mapping::new(256 << 20, 1);
        let p = mapping.process(0);
        let ix = create(&p);
        let order = IgnoreCase { abbreviate };
        let sorted: Vec<_> = entries.into_iter().collect();
        build(&p, ix, &order, &sorted, shards, true);
        check(&p, ix, &order, &sorted);
        let mut model: BTreeSet<_> = sorted.into_iter().collect();
        for (key, tid) in more {
            let key = key.to_ascii_lowercase();
            prop_assert_eq!(ix.insert(&p, &order, &key, tid).unwrap(), model.insert((key, tid)));
        }
        check(&p, ix, &order, &model.into_iter().collect::<Vec<_>>());
    }
}

/// Keys that are as long as a packed leaf has them need much more in slots, which they get one by
/// one.
#[test]
fn long_packed_keys_get_slots() {
    let mapping = Mapping::new(1 << 30, 1);
    let p = mapping.process(0);
    let key = |i: u64, len: usize| {
        let mut random = Random(i);
        let bytes = (0..len).map(|_| random.next() as u8);
        i.to_be_bytes().into_iter().chain(bytes).collect::<Vec<u8>>()
    };
    // The bytes behind the number, the same for all or different.
    // In one leaf, whose range does not end: nothing of its keys can be left out in slots.
    let alone = (285, 0, 60);
    for (len, seed, n) in
        [alone, (480, 0, 3000), (480, 1, 3000), (120, 1, 3000), (30, 1, 3000), (30, 0, 3000)]
    {
        let key = |i: u64| {
            let mut key = key(if seed == 0 { 0 } else { i }, len);
            key[..8].copy_from_slice(&i.to_be_bytes());
            key.rotate_left(if seed == 0 { 8 } else { 0 });
            key
        };
        let ix = create(&p);
        let mut entries: Vec<_> = (0..n).map(|i| (key(i * 10), i)).collect();
        build(&p, ix, &Memcmp, &entries, 1, true);
        check(&p, ix, &Memcmp, &entries);
        let before = ix.stats().blocks[0];
        let snapshot = ix.create_snapshot(&p, 7, &mut || ()).unwrap();
        for i in 0..300 {
            let i = if i == 0 { n / 2 } else { Random(i).next() % n };
            let entry = (key(i * 10 + 1), i);
            if ix.insert(&p, &Memcmp, &entry.0, i).unwrap() {
                entries.push(entry);
            }
        }
        entries.sort();
        check(&p, ix, &Memcmp, &entries);
        // Of 480 shared bytes a packed leaf repeats what its template has no room for, and slots
        // leave out all.
        assert!(ix.stats().blocks[0] > before || (len, seed) == (480, 0));
        ix.release(&p, snapshot);
        // SAFETY: no other process or thread uses it.
        unsafe { ix.destroy(&p) };
    }
}

#[test]
fn large() {
    let mapping = Mapping::new(1 << 30, 1);
    let p = mapping.process(0);
    let ix = create(&p);
    let entries: Vec<_> = (0..300_000u64).map(|i| ((i * 7).to_be_bytes().to_vec(), i)).collect();
    build(&p, ix, &Memcmp, &entries, 3, false);
    check(&p, ix, &Memcmp, &entries);
    assert!(ix.stats().bytes as u64 / 300_000 < 35);
    let ix = create(&p);
    build(&p, ix, &Memcmp, &entries, 3, true);
    check(&p, ix, &Memcmp, &entries);
    let bytes = ix.stats().bytes as f64 / 300_000.0;
    assert!(bytes < 6.0, "{bytes}");
}

#[test]
fn refused() {
    let mapping = Mapping::new(1 << 20, 1);
    let p = mapping.process(0);
    let before = mapping.area.usage().used;
    let ix = create(&p);
    let mut builder = Builder::new(&p, ix);
    builder.push(&Memcmp, b"b", 1).unwrap();
    assert_eq!(builder.push(&Memcmp, b"a", 1), Err(BuildError::OutOfOrder));
    assert_eq!(builder.push(&Memcmp, b"b", 0), Err(BuildError::OutOfOrder));
    let chain = builder.finish().unwrap();
    ix.insert(&p, &Memcmp, b"c", 1).unwrap();
    assert_eq!(adopt(&ix, &p, vec![chain]), Err(BuildError::NotEmpty));
    let mut builder = Builder::new(&p, ix);
    let full = (0u64..).find_map(|i| builder.push(&Memcmp, &i.to_be_bytes(), i).err()).unwrap();
    assert!(matches!(full, BuildError::OutOfMemory(_)));
    drop(builder);
    // SAFETY: no other process or thread uses it.
    unsafe { ix.destroy(&p) };
    assert_eq!(mapping.area.usage().used, before);
}

/// Keys that end with their only zero, of one length or not, with this number of different bytes in
/// one leaf.
#[test]
fn every_size_of_an_alphabet() {
    for (symbols, vary) in (90..=160u64).flat_map(|symbols| [(symbols, false), (symbols, true)]) {
        let mapping = Mapping::new(1 << 24, 1);
        let p = mapping.process(0);
        let ix = create_with(&p, Forms::Packed);
        let mut entries: Vec<(Vec<u8>, Tid)> = (0..symbols)
            .map(|i| {
                let mut key = vec![b'k', 1 + i as u8];
                key.resize(10 + if vary { i as usize % 3 } else { 0 }, 1 + (i * 7 % symbols) as u8);
                key.push(0);
                (key, i)
            })
            .collect();
        build(&p, ix, &Memcmp, &entries, 1, true);
        check(&p, ix, &Memcmp, &entries);
        for (key, tid) in entries.split_off(symbols as usize / 2) {
            assert!(ix.remove(&p, &Memcmp, &key, tid), "{symbols}");
            assert!(ix.insert(&p, &Memcmp, &key, tid + 1000).unwrap(), "{symbols}");
            assert!(ix.contains(&p, &Memcmp, &key, tid + 1000), "{symbols}");
        }
    }
}
