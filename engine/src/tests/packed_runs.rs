//! Runs of entries that come into a packed leaf at once, beside single inserts of the same entries.

use super::layout::Layout;
use super::tests::*;
use super::words::Words;
use super::*;
use crate::Tid;
use crate::sync::atomic::plain::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;
use proptest::prelude::*;

/// Most entries of a run that come at once.
const MOST: usize = 32;

/// Inserts entries one after the other, until one does not fit, or `MOST` have come. Returns how
/// many are in the leaf then, and how many of them came.
fn insert_each(memory: &[AtomicU64], new: &[Entry], draft: &mut Draft) -> (usize, usize) {
    let (mut done, mut came) = (0, 0);
    for (key, tid) in new {
        let leaf = Leaf::new(memory).unwrap();
        let found = leaf.search(key, *tid);
        if found.equal == 0 {
            if came == MOST || !leaf.insert(&found, key, 0, *tid, draft) {
                break;
            }
            draft.store(memory);
            came += 1;
        }
        done += 1;
    }
    (done, came)
}

fn pairs(entries: &[Entry]) -> impl Iterator<Item = (&[u8], Tid)> {
    entries.iter().map(|(key, tid)| (&key[..], *tid))
}

proptest! {
    #![proptest_config(crate::seeds::of("proptest-regressions/packed_runs.txt"))]
    /// A run makes the leaf that single inserts make. It ends with the same entry.
    #[test]
    fn runs_are_single_inserts(
        kind in prop::sample::select(KINDS.to_vec()),
        other in prop::sample::select(KINDS.to_vec()),
        mixed in prop::bool::weighted(0.2),
        tids in 0u8..3,
        grows in 0u8..3,
        numbers in prop::collection::vec(any::<u64>(), 1..300),
        coming in prop::collection::vec(any::<u64>(), 1..120),
        // How many entries a key has, and how many keys there are.
        each in 1u64..5,
        span in prop::sample::select(vec![10u64, 300, 5000, u64::MAX]),
        known in 0usize..10,
        size in sizes(),
    ) {
        let near = |x: u64| numbers[0].wrapping_add(x % span);
        let start: Vec<u64> = numbers.iter().map(|&x| near(x)).collect();
        let mut model = entries(kind, tids, &start, false);
        let memory = block(size);
        let grows = [Grows::Keys, Grows::Below, Grows::Entries][grows as usize];
        let bounds = Bounds { low: &[], high: None, coming: grows.into() };
        let n = fill(&model, &bounds, &[], &memory);
        // Half of the time there is room for many.
        model.truncate(n - n * (numbers[0] as usize % 2) / 2);
        model.truncate(fill(&model, &bounds, &[], &memory));
        let mut new: Vec<Entry> = coming
            .iter()
            .flat_map(|&x| {
                let kind = if mixed && x % 5 == 0 { other } else { kind };
                (0..1 + x % each).map(move |i| (key(kind, near(x)), tid(tids, mix(x ^ i << 50))))
            })
            .collect();
        new.extend(model.iter().filter(|e| mix(e.1 ^ coming[0]) as usize % 10 < known).cloned());
        new.sort();
        new.dedup();
        // Several runs, one behind the other.
        let (single, mut draft, mut at) = (block(size), Draft::default(), 0);
        while at < new.len() {
            for (to, from) in single.iter().zip(&memory) {
                to.store(from.load(Relaxed), Relaxed);
            }
            let expected = insert_each(&single, &new[at..], &mut draft);
            let leaf = Leaf::new(&memory).unwrap();
            let found = leaf.insert_all(pairs(&new[at..]), &mut draft);
            prop_assert_eq!(found, expected);
            let (done, came) = found;
            if came > 0 {
                draft.store(&memory);
            }
            model.extend_from_slice(&new[at..at + done]);
            model.sort();
            model.dedup();
            let leaf = Leaf::new(&memory).unwrap();
            prop_assert_eq!(&read(&leaf), &model);
            prop_assert_eq!(&read(&Leaf::new(&single).unwrap()), &model);
            for (key, tid) in &new[at..at + done] {
                check(&leaf, &model, key, *tid)?;
            }
            // One that does not fit is left out.
            at += done.max(1);
        }
    }

    /// The leaf changes between any two entries: a run ends, and does not panic.
    #[test]
    fn nothing_torn_leads_a_run_astray(
        kinds in prop::array::uniform2(prop::sample::select(KINDS.to_vec())),
        tids in 0u8..3,
        numbers in prop::collection::vec(any::<u64>(), 200..300),
        mixed in any::<u64>(),
        size in sizes(),
    ) {
        let memory = block(size);
        let others = kinds.map(|kind| {
            let other = block(size);
            let bounds = Bounds { low: &[], high: None, coming: Grows::Entries.into() };
            fill(&entries(kind, tids, &numbers, false), &bounds, &[], &other);
            other
        });
        let tear = |round: u64| {
            for (i, word) in memory.iter().enumerate() {
                let seed = mix(mixed.wrapping_add(round << 32) ^ (i as u64 / 4));
                let other = if i > 12 { seed as usize % 2 } else { 0 };
                let torn = others[other][i].load(Relaxed);
                // Now and then any number.
                word.store(if i > 12 && seed.is_multiple_of(61) { seed } else { torn }, Relaxed);
            }
        };
        for (word, from) in memory.iter().zip(&others[0]) {
            word.store(from.load(Relaxed), Relaxed);
        }
        let leaf = Leaf::new(&memory).unwrap();
        let new = |i: u64| (key(kinds[0], mix(mixed ^ (i / 2))), tid(tids, mix(i)));
        let mut new: Vec<Entry> = (0..100).map(new).collect();
        new.sort();
        new.dedup();
        let mut draft = Draft::default();
        for round in 0..4 {
            let torn = pairs(&new).enumerate().inspect(|&(i, _)| tear(round << 16 | i as u64));
            let (done, came) = leaf.insert_all(torn.map(|(_, entry)| entry), &mut draft);
            prop_assert!(came <= done && came <= MOST && done <= new.len());
        }
    }
}

/// A leaf of these keys, with room for more.
fn leaf_of(keys: impl Iterator<Item = u32>) -> Vec<AtomicU64> {
    let mut entries: Vec<Entry> = keys.map(|key| (key.to_be_bytes().into(), 5 << 16 | 1)).collect();
    // Each key may have several entries. The first one has room for some before its own.
    entries[0].1 = 9 << 16 | 1;
    entries.insert(0, (entries[0].0.clone(), 8 << 16 | 1));
    let memory = block(16384);
    let bounds = Bounds { low: &[], high: None, coming: Grows::Keys.into() };
    assert_eq!(fill(&entries, &bounds, &[], &memory), entries.len());
    memory
}

/// The first of two entries of a key finds it in the leaf. The second one does not: the leaf has
/// changed meanwhile.
#[test]
fn a_key_that_vanishes_ends_a_run() {
    let memory = leaf_of((0..50).map(|i| 1000 * i));
    let leaf = Leaf::new(&memory).unwrap();
    let new: Vec<Entry> = (6..8).map(|page| (0u32.to_be_bytes().into(), page << 16 | 1)).collect();
    let heads = Layout::load(Words(&memory)).unwrap().heads.offset / 8;
    let vanishing = pairs(&new).enumerate().inspect(|&(i, _)| {
        // The first key gets another head.
        memory[heads].fetch_add(i as u64, Relaxed);
    });
    let mut draft = Draft::default();
    assert_eq!(leaf.insert_all(vanishing.map(|(_, entry)| entry), &mut draft), (1, 1));
}

/// Every second entry finds its place before that of the entry before.
#[test]
fn places_that_descend_end_a_run() {
    let memory = leaf_of((0..800).chain([60_000]));
    let leaf = Leaf::new(&memory).unwrap();
    let l = Layout::load(Words(&memory)).unwrap();
    let mut draft = Draft::default();
    let mut move_heads = |by: u64| {
        draft.clear();
        draft.load(Words(&memory), l.heads, 0, l.d);
        (0..l.d).for_each(|k| draft.set(l.heads, k, k as u64 + by));
        draft.store(&memory);
    };
    let new: Vec<Entry> =
        (0..32u32).map(|i| ((30_000 + i).to_be_bytes().into(), 5 << 16 | 1)).collect();
    let moving = pairs(&new).enumerate().inspect(|(i, _)| move_heads(50_000 * (*i as u64 % 2)));
    let mut draft = Draft::default();
    assert_eq!(leaf.insert_all(moving.map(|(_, entry)| entry), &mut draft), (1, 1));
}
