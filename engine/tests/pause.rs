//! A cursor that pauses where nothing is visible, and turns there.

use crate::common::*;
use nitro_engine::prelude::*;
use nitro_engine::{Cursor, Memcmp};

const ENTRIES: u64 = 2000;

fn key(i: u64) -> [u8; 8] {
    (i * 1000).to_be_bytes()
}

/// A snapshot is read while newer entries fill whole leaves between the old ones.
#[test]
fn pauses() {
    let mapping = Mapping::new(1 << 27, 1);
    let p = mapping.process(0);
    let mut pauses = 0;
    for seed in 0..20 {
        let ix = create_with(&p, FORMS[seed as usize / 2 % 3]);
        for i in 0..ENTRIES {
            ix.insert(&p, &Memcmp, &key(i), i).unwrap();
        }
        let holder = ix.create_snapshot(&p, 0, &mut || ()).unwrap();
        let mut random = Random(seed);
        let (from, to) = if seed % 2 == 0 { (0, ENTRIES) } else { (300, ENTRIES - 300) };
        let upper = key(to);
        let mut cursor = Cursor::new(true);
        cursor.set_snapshot_range(&key(from), (to < ENTRIES).then_some(&upper), holder.sn());
        // What the batch covers; nothing after a pause. Nothing read yet is before and behind all.
        let (mut first, mut behind) = (to, from);
        let mut gaps = Vec::new();
        for _ in 0..2000 {
            if random.next().is_multiple_of(20) {
                let gap = random.next() % ENTRIES;
                gaps.push(gap);
                for i in 1..1000 {
                    ix.insert(&p, &Memcmp, &(gap * 1000 + i).to_be_bytes(), ENTRIES + gap).unwrap();
                }
            }
            if random.next().is_multiple_of(8) && !gaps.is_empty() {
                // Among newer entries, near the old one before or behind them.
                let gap: u64 = gaps[random.next() as usize % gaps.len()];
                let near = random.next() % 40;
                let goal = gap * 1000
                    + if random.next().is_multiple_of(2) { 1 + near } else { 999 - near };
                if (from..to).contains(&(gap + 1)) {
                    cursor.jump(&goal.to_be_bytes());
                    (first, behind) = (gap + 1, gap + 1);
                }
            }
            let (forward, leaves) =
                (random.next() % 8 < 4 + seed % 2, 1 + random.next() as usize % 3);
            let read = if forward {
                cursor.next_within(leaves, &p, ix, &Memcmp)
            } else {
                cursor.prev_within(leaves, &p, ix, &Memcmp)
            };
            let n = match read {
                Some(n) => n as u64,
                None => {
                    assert!(cursor.is_empty());
                    pauses += 1;
                    // It has passed nothing that it sees.
                    (first, behind) = if forward { (behind, behind) } else { (first, first) };
                    continue;
                }
            };
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
            for i in 0..n {
                assert_eq!(cursor.tid(i as usize), first + i, "seed {seed}");
                assert_eq!(cursor.key(i as usize), key(first + i), "seed {seed}");
            }
        }
        ix.release(&p, holder);
        // SAFETY: no other process or thread uses it.
        unsafe { ix.destroy(&p) };
    }
    assert!(pauses > 1000, "{pauses} pauses");
}

/// Behind the last leaf there is nothing, also for a cursor that came from there, saw nothing,
/// paused and turned.
#[test]
fn a_turn_in_the_last_leaf() {
    let mapping = Mapping::new(1 << 24, 1);
    let p = mapping.process(0);
    let ix = create(&p);
    let holder = ix.create_snapshot(&p, 0, &mut || ()).unwrap();
    for i in 0..ENTRIES {
        ix.insert(&p, &Memcmp, &key(i), i).unwrap();
    }
    let mut cursor = Cursor::new(true);
    // It has none of them.
    cursor.set_snapshot_range(&[], None, holder.sn());
    assert_eq!(cursor.prev_within(1, &p, ix, &Memcmp), None);
    assert_eq!(cursor.next_within(1, &p, ix, &Memcmp), Some(0));
    assert_eq!(cursor.next_within(1, &p, ix, &Memcmp), Some(0));
    assert_eq!(cursor.prev_within(usize::MAX, &p, ix, &Memcmp), Some(0));
    assert_eq!(cursor.next_within(usize::MAX, &p, ix, &Memcmp), Some(0));
    ix.release(&p, holder);
}
