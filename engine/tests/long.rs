//! Long keys: up to the limit, around the sizes of their chunks, in both directions, in batches
//! that end by bytes.

use crate::common::*;
use nitro_engine::adopt;
use nitro_engine::prelude::*;
use nitro_engine::{
    Builder, Cursor, Index, KeyOrder, MAX_KEY_LEN, MAX_SEPARATOR_LEN, Memcmp, Process, Prune,
    Separator, Tid,
};
use proptest::prelude::*;
use std::collections::BTreeSet;

const CURRENT: u32 = u32::MAX - 1;
/// A batch has no more bytes of keys, unless it is one entry.
const MOST_KEYS: usize = 256 << 10;

type Model = BTreeSet<(Vec<u8>, Tid)>;

/// Lengths next to the limits of chunk sizes, and of the room in batches, separators and blocks.
fn lengths() -> Vec<usize> {
    let large = [4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 40, 48, 64, 80, 96, 128, 160, 192, 256];
    let chunks = large.map(|pages| pages * 4096 - 128 - 24);
    let other = [512, 1024, 2048, 16384 - 24, MAX_SEPARATOR_LEN, MOST_KEYS, 1 << 16];
    let around = chunks.into_iter().chain(other).flat_map(|n| [n - 1, n, n + 1]);
    around.chain([0, 1, 8, 9]).filter(|&n| n <= MAX_KEY_LEN).collect()
}

/// A key of this length; those of one kind share all but the last bytes, or differ in the first.
fn key(kind: u8, len: usize) -> Vec<u8> {
    let mut key = vec![b'x'; len];
    match (kind % 4, &mut key[..]) {
        (0, [.., last]) => *last = b'a' + kind / 4,
        (1, [first, ..]) => *first = b'a' + kind / 4,
        (2, [_, middle, ..]) => *middle = kind,
        _ => (),
    }
    key
}

fn read<O: KeyOrder>(
    p: &Process,
    ix: Index,
    order: &O,
    (lower, upper): (&[u8], Option<&[u8]>),
    forward: bool,
) -> Vec<(Vec<u8>, Tid)> {
    let mut cursor = Cursor::new(true);
    cursor.set_range(lower, upper, CURRENT);
    let mut all = Vec::new();
    loop {
        let n = if forward { cursor.next(p, ix, order) } else { cursor.prev(p, ix, order) };
        if n == 0 {
            return all;
        }
        let bytes: usize = (0..n).map(|i| cursor.key(i).len()).sum();
        assert!(n == 1 || bytes <= MOST_KEYS, "{bytes} bytes in a batch of {n}");
        let batch = (0..n).map(|i| (cursor.key(i).to_vec(), cursor.tid(i)));
        if forward { all.extend(batch) } else { all.extend(batch.rev()) }
    }
}

fn check(p: &Process, ix: Index, model: &Model) {
    let all: Vec<_> = model.iter().cloned().collect();
    assert!(read(p, ix, &Memcmp, (&[], None), true) == all);
    let mut backward = read(p, ix, &Memcmp, (&[], None), false);
    backward.reverse();
    assert!(backward == all);
    ix.verify(p, &Memcmp, true, &mut |_, _| ())
        .unwrap_or_else(|v| panic!("{:.200}", v.to_string()));
}

/// Every length is stored, found, read in both directions, removed, and its memory comes back.
#[test]
fn every_size() {
    for built in [false, true] {
        let mapping = Mapping::new(1 << 28, 1);
        let p = mapping.process(0);
        let ix = create(&p);
        let empty = ix.stats().bytes;
        let model: Model = lengths()
            .iter()
            .enumerate()
            .flat_map(|(i, &n)| [(key(0, n), i as Tid), (key(5, n), 7)])
            .collect();
        if built {
            let mut builder = Builder::new(&p, ix);
            for (key, tid) in &model {
                builder.push(&Memcmp, key, *tid).unwrap();
            }
            adopt(&ix, &p, vec![builder.finish().unwrap()]).unwrap();
        } else {
            for (key, tid) in &model {
                assert!(ix.insert(&p, &Memcmp, key, *tid).unwrap());
                assert!(!ix.insert(&p, &Memcmp, key, *tid).unwrap());
            }
        }
        check(&p, ix, &model);
        for (key, tid) in &model {
            assert!(ix.contains(&p, &Memcmp, key, *tid));
            let only = read(&p, ix, &Memcmp, (key, Some(&[key, &[0][..]].concat())), true);
            assert!(
                only.iter().all(|entry| entry.0 == *key) && only.contains(&(key.clone(), *tid))
            );
        }
        for (key, tid) in &model {
            assert!(ix.remove(&p, &Memcmp, key, *tid));
        }
        collect(&p, ix);
        for _ in 0..4 {
            ix.collect(&p, 1000);
        }
        let left = ix.stats().bytes;
        assert!(left < empty + (1 << 20), "{left} bytes are left of {empty}");
    }
}

#[test]
fn the_limit() {
    let mapping = Mapping::new(8 << 20, 1);
    let p = mapping.process(0);
    let ix = create(&p);
    let long = vec![1; MAX_KEY_LEN + 1];
    assert!(ix.insert(&p, &Memcmp, &long[1..], 1).unwrap());
    assert!(ix.insert(&p, &Memcmp, &long, 1).is_err());
    assert!(Builder::new(&p, create(&p)).push(&Memcmp, &long, 1).is_err());
    check(&p, ix, &BTreeSet::from([(long[1..].to_vec(), 1)]));
    // What does not fit is refused, and nothing else changes.
    let mut n = 0;
    while ix.insert(&p, &Memcmp, &[&[2, n][..], &long[3..]].concat(), 1).is_ok() {
        n += 1;
    }
    assert!((2..8).contains(&n), "{n} keys of 1 MB in 8 MB");
    assert!(ix.insert(&p, &Memcmp, b"short", 2).unwrap());
    assert!(ix.verify(&p, &Memcmp, true, &mut |_, _| ()).is_ok());
}

/// A batch has room for one key, and there are two lives of the one in the middle.
#[test]
fn lives_of_a_long_key() {
    let mapping = Mapping::new(8 << 20, 1);
    let p = mapping.process(0);
    let ix = create(&p);
    let model: Model = (1..4).map(|i| (vec![i; 200_000], 1)).collect();
    for (key, tid) in &model {
        ix.insert(&p, &Memcmp, key, *tid).unwrap();
    }
    let snapshot = ix.create_snapshot(&p, 7, &mut || ()).unwrap();
    assert!(ix.remove(&p, &Memcmp, &[2; 200_000], 1));
    assert!(ix.insert(&p, &Memcmp, &[2; 200_000], 1).unwrap());
    check(&p, ix, &model);
    ix.release(&p, snapshot);
}

/// The keys of these tests in their own order, which is that of the bytes.
struct Compared;

impl KeyOrder for Compared {
    const MEMCMP: bool = false;
    fn abbrev(&self, key: &[u8]) -> u64 {
        key.first().map_or(0, |&byte| u64::from(byte) + 1)
    }
    fn compare(&self, a: &[u8], b: &[u8]) -> std::cmp::Ordering {
        a.cmp(b)
    }
}

#[test]
fn compared_by_a_function() {
    let mapping = Mapping::new(1 << 27, 1);
    let p = mapping.process(0);
    let ix = create(&p);
    let model: Model =
        lengths().iter().flat_map(|&n| [(key(0, n), 1), (key(0, n), 2), (key(7, n), 3)]).collect();
    for (key, tid) in &model {
        ix.insert(&p, &Compared, key, *tid).unwrap();
    }
    let all: Vec<_> = model.iter().cloned().collect();
    assert!(read(&p, ix, &Compared, (&[], None), true) == all);
    ix.verify(&p, &Compared, true, &mut |_, _| ())
        .unwrap_or_else(|v| panic!("{:.200}", v.to_string()));
}

/// Parts of a range meet at separators that are not too long; where there are none, the rest is one
/// part.
#[test]
fn parts_of_long_keys() {
    let mapping = Mapping::new(1 << 28, 1);
    let p = mapping.process(0);
    for len in [200, 2000, MAX_SEPARATOR_LEN - 100, 100_000] {
        let ix = create(&p);
        let mut model = Model::new();
        for i in 0..600u64 {
            let long = if i % 3 == 0 { 1500 } else { len };
            let key = [vec![b'x'; long], i.to_be_bytes().to_vec()].concat();
            ix.insert(&p, &Memcmp, &key, i).unwrap();
            model.insert((key, i));
        }
        let (mut from, mut parts, mut all) = (None::<Separator>, 0, Vec::new());
        loop {
            let mut cursor = Cursor::new(true);
            cursor.set_range(&[], None, CURRENT);
            if let Some(from) = &from {
                cursor.begin_at(from);
            }
            let mut next = Separator::default();
            let found = cursor.cut(true, 2, &p, ix, &Memcmp, &mut next) > 0;
            if found {
                assert!(next.key.len() <= MAX_SEPARATOR_LEN);
                cursor.end_at(&next);
            }
            while cursor.next(&p, ix, &Memcmp) > 0 {
                all.extend((0..cursor.len()).map(|i| (cursor.key(i).to_vec(), cursor.tid(i))));
            }
            parts += 1;
            if !found {
                break;
            }
            from = Some(next);
        }
        assert!(all == model.into_iter().collect::<Vec<_>>());
        assert!(parts > 1, "{parts} parts of keys of {len} bytes");
        // SAFETY: no other process or thread uses it.
        unsafe { ix.destroy(&p) };
    }
}

#[derive(Clone, Debug)]
enum Op {
    Insert(u8, usize, Tid),
    Remove(usize),
    Prune(Tid),
    Snapshot,
    Collect,
    Check,
}

fn op() -> impl Strategy<Value = Op> {
    let len = prop::sample::select(lengths());
    prop_oneof![
        20 => (any::<u8>(), len, 0..4u64).prop_map(|(kind, len, tid)| Op::Insert(kind, len, tid)),
        6 => any::<usize>().prop_map(Op::Remove),
        1 => (0..4u64).prop_map(Op::Prune),
        1 => Just(Op::Snapshot),
        1 => Just(Op::Collect),
        1 => Just(Op::Check),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]
    #[test]
    fn a_model(ops in prop::collection::vec(op(), 1..300)) {
        let mapping = Mapping::new(1 << 29, 1);
        let p = mapping.process(0);
        let ix = create(&p);
        let mut model = Model::new();
        let mut snapshot = None;
        for op in ops {
            match op {
                Op::Insert(kind, len, tid) => {
                    let key = key(kind, len);
                    let new = ix.insert(&p, &Memcmp, &key, tid).unwrap();
                    prop_assert_eq!(new, model.insert((key, tid)));
                }
                Op::Remove(n) if !model.is_empty() => {
                    let (key, tid) = model.iter().nth(n % model.len()).unwrap().clone();
                    prop_assert!(ix.remove(&p, &Memcmp, &key, tid));
                    model.remove(&(key, tid));
                }
                Op::Prune(dead) => {
                    let mut pass = Prune::new(&p, ix);
                    let mut mark = |tids: &[Tid], marks: &mut [bool]| {
                        tids.iter().zip(marks).for_each(|(&tid, mark)| *mark = tid == dead);
                    };
                    while pass.next_leaf(&mut mark) {}
                    let before = model.len();
                    model.retain(|&(_, tid)| tid != dead);
                    prop_assert_eq!(pass.counts().1, (before - model.len()) as u64);
                }
                Op::Snapshot => {
                    if let Some((snapshot, _)) = snapshot.take() {
                        ix.release(&p, snapshot);
                    }
                    snapshot = ix.create_snapshot(&p, 7, &mut || ()).ok().map(|s| (s, model.clone()));
                }
                Op::Collect => collect(&p, ix),
                Op::Check => {
                    check(&p, ix, &model);
                    if let Some((snapshot, then)) = &snapshot {
                        let mut cursor = Cursor::new(true);
                        cursor.set_snapshot_range(&[], None, snapshot.sn());
                        let mut seen = Vec::new();
                        while cursor.prev(&p, ix, &Memcmp) > 0 {
                            seen.extend((0..cursor.len()).rev().map(|i| (cursor.key(i).to_vec(), cursor.tid(i))));
                        }
                        seen.reverse();
                        prop_assert!(seen == then.iter().cloned().collect::<Vec<_>>());
                    }
                }
                _ => (),
            }
        }
        check(&p, ix, &model);
        if let Some((snapshot, _)) = snapshot {
            ix.release(&p, snapshot);
        }
    }
}
