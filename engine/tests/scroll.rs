//! A cursor that turns at any place, while the leaves it stands on change.

use crate::common::*;
use nitro_engine::prelude::*;
use nitro_engine::{Beyond, Cursor, Memcmp};
use std::collections::BTreeMap;

const ENTRIES: u64 = 3000;

fn key(i: u64) -> [u8; 8] {
    (i * 1000).to_be_bytes()
}

/// A snapshot is read while newer entries come in between.
#[test]
fn turns() {
    let mapping = Mapping::new(1 << 26, 1);
    let p = mapping.process(0);
    for seed in 0..40 {
        let ix = create_with(&p, FORMS[seed as usize / 2 % 3]);
        for i in 0..ENTRIES {
            ix.insert(&p, &Memcmp, &key(i), i).unwrap();
        }
        let holder = ix.create_snapshot(&p, 0, &mut || ()).unwrap();
        let mut random = Random(seed);
        let (from, to) = match seed % 3 {
            0 => (0, ENTRIES),
            1 => (random.next() % 1000, 1000 + random.next() % 2000),
            _ => (ENTRIES - 100, ENTRIES),
        };
        let upper = key(to);
        let mut cursor = Cursor::new(true);
        cursor.set_snapshot_range(&key(from), (to < ENTRIES).then_some(&upper), holder.sn());
        // What the current batch covers; empty at the ends. Nothing read yet is before and behind
        // all.
        let (mut first, mut behind) = (to, from);
        for _ in 0..600 {
            if random.next().is_multiple_of(8) {
                let goal = from + random.next() % (to - from);
                cursor.jump(&key(goal));
                (first, behind) = (goal, goal);
            }
            let forward = random.next() % 5 < 2 + seed % 2;
            let n =
                if forward { cursor.next(&p, ix, &Memcmp) } else { cursor.prev(&p, ix, &Memcmp) }
                    as u64;
            (first, behind) = match (forward, n) {
                (true, 0) => {
                    assert_eq!(behind, to, "seed {seed}");
                    (to, to)
                }
                (false, 0) => {
                    assert_eq!(first, from, "seed {seed}");
                    (from, from)
                }
                (true, n) => (behind, behind + n),
                (false, n) => (first - n, first),
            };
            match cursor.beyond() {
                Beyond::Nothing if n == 0 => {
                    assert!(if forward { to == ENTRIES } else { from == 0 }, "seed {seed}");
                }
                Beyond::From(nearest) if n == 0 => {
                    // The old entry there, or a newer one that lies nearer.
                    let nearest = <[u8; 8]>::try_from(nearest).unwrap();
                    match forward {
                        true => assert_eq!(nearest, upper, "seed {seed}"),
                        false => {
                            assert!((key(from - 1)..key(from)).contains(&nearest), "seed {seed}")
                        }
                    }
                }
                beyond => assert_eq!(beyond, Beyond::Unknown),
            }
            for (i, wanted) in (first..behind).enumerate() {
                assert_eq!(
                    (cursor.tid(i), cursor.key(i)),
                    (wanted, &key(wanted)[..]),
                    "seed {seed}"
                );
            }
            // New entries around the batch: its leaf changes, or splits.
            for _ in 0..random.next() % 8 {
                let near = (first + random.next() % 70).saturating_sub(3);
                let between = (near * 1000 + 1 + random.next() % 900).to_be_bytes();
                ix.insert(&p, &Memcmp, &between, ENTRIES + near).unwrap();
            }
        }
        ix.release(&p, holder);
        // SAFETY: no other process or thread uses it.
        unsafe { ix.destroy(&p) };
    }
}

/// The current state is read while entries come and go. A batch has the entries next to the one
/// before. Only entries that came since that one was read may be missed, if there were no others.
#[test]
fn turns_among_changes() {
    let mapping = Mapping::new(1 << 26, 1);
    let p = mapping.process(0);
    for seed in 0..40 {
        let ix = create_with(&p, FORMS[seed as usize / 2 % 3]);
        let mut random = Random(seed);
        // Entries and the step they came in.
        let mut model = BTreeMap::new();
        let mut cursor = Cursor::new(true);
        cursor.set_range(&[], None, u32::MAX - 1);
        // The first and the last key of the current batch; outside of the range, none of them.
        let (mut first, mut last) = (None, None);
        let mut outside = None;
        for step in 0..2000u64 {
            let around = first.or(last).unwrap_or(ENTRIES * 500);
            for _ in 0..random.next() % 6 {
                let near = match random.next() % 4 {
                    0 => random.next() % (ENTRIES * 1000),
                    _ => (around + random.next() % 2000).saturating_sub(1000),
                };
                if random.next() % 16 < 10 || step < 200 {
                    ix.insert(&p, &Memcmp, &near.to_be_bytes(), near).unwrap();
                    model.entry(near).or_insert(step);
                } else if let Some((&gone, _)) = model.range(near..).next() {
                    ix.remove(&p, &Memcmp, &gone.to_be_bytes(), gone);
                    model.remove(&gone);
                }
            }
            if random.next().is_multiple_of(50) {
                ix.collect(&p, 100);
            }
            let forward = random.next() % 5 < 2 + step / 50 % 2;
            let n = match forward {
                true => cursor.next(&p, ix, &Memcmp),
                false => cursor.prev(&p, ix, &Memcmp),
            };
            let got: Vec<u64> = (0..n).map(|i| cursor.tid(i)).collect();
            let (start, end) = match (forward, outside) {
                (true, Some(true)) | (false, Some(false)) => (0, 0),
                (true, _) => (last.map_or(0, |last: u64| last + 1), u64::MAX),
                (false, _) => (0, first.unwrap_or(u64::MAX)),
            };
            let mut wanted: Vec<(u64, u64)> = match forward {
                true => model.range(start..end).take(n.max(1)).map(|(&k, &s)| (k, s)).collect(),
                false => {
                    model.range(start..end).rev().take(n.max(1)).map(|(&k, &s)| (k, s)).collect()
                }
            };
            if n == 0 {
                wanted.retain(|&(_, since)| since < step);
            }
            wanted.sort();
            let wanted: Vec<u64> = wanted.into_iter().map(|(key, _)| key).collect();
            assert_eq!(got, wanted, "seed {seed}, step {step}");
            (first, last) = (got.first().copied(), got.last().copied());
            outside = got.is_empty().then_some(forward);
        }
        // SAFETY: no other process or thread uses it.
        unsafe { ix.destroy(&p) };
    }
}
