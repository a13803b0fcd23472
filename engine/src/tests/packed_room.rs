//! How many entries a leaf holds, and how many it takes as it is.

use super::tests::{Entry, block, fill, mix, read, shape_of};
use super::*;
use crate::Tid;

/// Bytes per entry of full leaves, each with its separator, when a table of three million rows has
/// these entries among others.
fn density(entries: impl Iterator<Item = Entry>) -> f64 {
    let mut all: Vec<_> = entries.collect();
    all.sort();
    let (memory, mut leaves, mut done) = (block(1792), 0, 0);
    let bounds = Bounds { low: &[], high: None, coming: Grows::Keys.into() };
    // The last leaf is not full.
    while done + 2 * MAX_ENTRIES < all.len() {
        done += fill(&all[done..done + MAX_ENTRIES], &bounds, &[0; 8], &memory);
        leaves += 1;
    }
    f64::from(leaves) * (1792.0 + 1024.0 / 56.0) / done as f64
}

/// The TID of a row.
fn row(i: u64) -> Tid {
    (i / 226) << 16 | (1 + i % 226)
}

/// A leaf holds as many entries as were measured when this form was chosen.
#[test]
fn entries_take_what_they_should() {
    const ROWS: u64 = 3_000_000;
    let some = |i: u64| row(mix(i) % ROWS);
    let hex = |i| [format!("{:016x}{:016x}", i, mix(i)).as_bytes(), &[0]].concat();
    let letters: Vec<u8> = (b'0'..=b'9').chain(b'A'..=b'Z').chain(b'a'..=b'z').collect();
    // Of random keys those of one in a hundred rows, which lie side by side.
    let near = |i: u64| mix(i) / 100;
    let random = |i: u64, j: u64| letters[(mix(i * 32 + j) % 62) as usize];
    let text = |i: u64| -> Vec<u8> {
        let first = near(i);
        let first = [first / (1 << 58), first >> 52].map(|x| letters[x as usize % 62]);
        first.into_iter().chain((2..25).map(|j| random(i, j))).chain([0]).collect()
    };
    let cases: [(&str, f64, Box<dyn Iterator<Item = Entry>>); 7] = [
        (
            "ten values",
            1.92,
            Box::new((0..ROWS / 10).map(|i| (vec![0, 0, 0, 3], row(10 * i + mix(i) % 10)))),
        ),
        (
            "100,000 values",
            3.18,
            Box::new((0..30_000).map(|i: u64| ((i as u32 / 30).to_be_bytes().into(), some(i)))),
        ),
        ("serial", 4.31, Box::new((0..30_000).map(|i| ((i as u32).to_be_bytes().into(), some(i))))),
        ("random", 9.91, Box::new((0..30_000).map(|i| (near(i).to_be_bytes().into(), some(i))))),
        (
            "uuid",
            18.43,
            Box::new((0..30_000).map(|i| ([near(i), i].map(u64::to_be_bytes).concat(), some(i)))),
        ),
        ("md5", 18.66, Box::new((0..30_000).map(|i| (hex(near(i)), some(i))))),
        ("text", 22.35, Box::new((0..30_000).map(|i| (text(i), some(i))))),
    ];
    for (name, expected, entries) in cases {
        let measured = density(entries);
        assert!(measured <= expected * 1.03, "{name}: {measured:.2}, expected {expected}");
    }
}

/// The first key. Those below it differ from it in the columns in which the others do.
const FIRST: u32 = (1 << 30) + (1 << 23);

/// Returns a leaf of 100 keys that was arranged for these inserts, and how many entries of `next`
/// it took.
fn grown(grows: Grows, next: impl Fn(u64) -> Entry) -> (usize, bool) {
    let mut model: Vec<Entry> =
        (0..100).map(|i| ((FIRST + 1000 * i as u32).to_be_bytes().into(), row(i))).collect();
    // One key has two entries, and TIDs are as wide as those to come.
    let last = model[99].0.clone();
    model.push((last, row(1_000_000)));
    let (memory, mut draft, mut came) = (block(1792), Draft::default(), 0);
    let high = [255, 255, 255, 255, 0];
    let bounds = Bounds { low: &[], high: Some(&high), coming: grows.into() };
    assert!(encode(&mut draft, &model[..], &shape_of(&model), &[], &bounds, 1792));
    draft.store(&memory);
    loop {
        let leaf = Leaf::new(&memory).unwrap();
        let (key, tid) = next(came);
        let found = leaf.search(&key, tid);
        assert_eq!(found.equal, 0);
        if !leaf.insert(&found, &key, 0, tid, &mut draft) {
            assert_eq!(read(&leaf), model);
            return (came as usize, leaf.is_full(!found.same, tid));
        }
        draft.store(&memory);
        model.insert(found.rank, (key, tid));
        came += 1;
    }
}

/// It need not be arranged anew before it is full, if what comes is what was expected.
#[test]
fn room_is_where_it_will_be_needed() {
    let key = |i: u64| ((FIRST + mix(i) as u32 % 100_000).to_be_bytes().into(), row(300 + i));
    let entry =
        |i: u64| ((FIRST + 1000 * (mix(i) as u32 % 100)).to_be_bytes().into(), row(300 + i));
    let (keys, full) = grown(Grows::Keys, key);
    assert!(full, "{keys} keys");
    let (entries, full) = grown(Grows::Entries, entry);
    assert!(full, "{entries} entries");
    // Fewer unexpected entries have room.
    let (fewer, full) = grown(Grows::Entries, key);
    assert!(!full && fewer < keys / 4, "{fewer} keys of {keys}");
    let (fewer, full) = grown(Grows::Keys, entry);
    assert!(!full && fewer < entries * 3 / 4, "{fewer} entries of {entries}");
}

/// If each key is below the one before it, the leaf is not arranged anew for each.
#[test]
fn there_is_room_below() {
    let below = |i: u64| ((FIRST - 1 - 500 * i as u32).to_be_bytes().into(), row(300 + i));
    assert_eq!(grown(Grows::Keys, below).0, 0);
    let (keys, _) = grown(Grows::Below, below);
    assert!(keys >= 100, "{keys} keys");
}

/// Nor for a TID that is known to come; of one that is not, it is known how much room all would
/// take with it.
#[test]
fn there_is_room_for_a_tid_that_is_known() {
    let far = row(1 << 30);
    let full_with = |n: u64, tid| {
        let keys = (0..n).map(|i| (FIRST + 1000 * i as u32).to_be_bytes());
        let model: Vec<Entry> = keys.zip(0..).map(|(key, i)| (key.into(), row(i))).collect();
        let (memory, mut draft, high) = (block(1792), Draft::default(), [255; 5]);
        let coming = Coming { grows: Grows::Keys, tid };
        let bounds = Bounds { low: &[], high: Some(&high), coming };
        assert!(encode(&mut draft, &model[..], &shape_of(&model), &[], &bounds, 1792));
        draft.store(&memory);
        let leaf = Leaf::new(&memory).unwrap();
        let key = (FIRST + 1).to_be_bytes();
        let takes = leaf.insert(&leaf.search(&key, far), &key, 0, far, &mut draft);
        assert_eq!(takes, tid.is_some());
        assert!(!leaf.is_full(true, row(1)));
        leaf.is_full(true, far)
    };
    assert!(!full_with(180, None));
    assert!(!full_with(180, Some(far)));
    assert!(full_with(300, None));
}
