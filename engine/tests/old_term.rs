//! A reader without a snapshot goes on under the term of its beginning. Meanwhile snapshots close
//! that term, and removals beside them only mark. Removed entries are dead to the reader: VACUUM
//! waits only for earlier batches.

use crate::common::*;
use nitro_engine::prelude::*;
use nitro_engine::{Cursor, Index, Memcmp, Process, Prune};

const ENTRIES: u64 = 3000;
/// Where batches are read before anything is removed.
const BEGIN: u64 = 1300;

fn key(i: u64) -> [u8; 8] {
    i.to_be_bytes()
}

fn gone(i: u64) -> bool {
    i % 3 == 1
}

/// Removes a third of the entries: by their keys, by a pass over the leaves, or out of batches.
fn remove_some(p: &Process, ix: Index, way: u64) -> u64 {
    match way {
        0 => (0..ENTRIES)
            .filter(|&i| gone(i))
            .map(|i| u64::from(ix.remove(p, &Memcmp, &key(i), i)))
            .sum(),
        1 => {
            let mut pass = Prune::new(p, ix);
            let mut dead = |tids: &[u64], dead: &mut [bool]| {
                tids.iter().zip(dead).for_each(|(&tid, dead)| *dead = gone(tid));
            };
            while pass.next_leaf(&mut dead) {}
            pass.counts().1
        }
        _ => {
            let (mut cursor, mut removed) = (Cursor::new(false), 0);
            cursor.set_range(&[], None, ix.term());
            while cursor.next(p, ix, &Memcmp) > 0 {
                let tids = cursor.tids().iter().enumerate();
                let which: Vec<u16> =
                    tids.filter(|&(_, &tid)| gone(tid)).map(|(i, _)| i as u16).collect();
                removed += cursor.remove(p, ix, &which) as u64;
            }
            removed
        }
    }
}

/// Reads on to the end.
fn rest(cursor: &mut Cursor, p: &Process, ix: Index, forward: bool) -> Vec<u64> {
    let mut seen = Vec::new();
    loop {
        let n = match forward {
            true => cursor.next(p, ix, &Memcmp),
            false => cursor.prev(p, ix, &Memcmp),
        };
        if n == 0 {
            return seen;
        }
        seen.extend_from_slice(cursor.tids());
    }
}

#[test]
fn the_dead_are_dead_under_an_old_term() {
    let mapping = Mapping::new(1 << 27, 1);
    let p = mapping.process(0);
    for forms in FORMS {
        for way in 0..3 {
            let ix = create_with(&p, forms);
            for i in 0..ENTRIES {
                ix.insert(&p, &Memcmp, &key(i), i).unwrap();
            }
            let term = ix.term();
            let reader = |lower: u64, upper: u64| {
                let mut cursor = Cursor::new(true);
                cursor.set_range(&key(lower), Some(&key(upper)), term);
                cursor
            };
            // One that goes up, one that goes down, each from the middle, and marks of both.
            let (mut up, mut down) = (reader(BEGIN, ENTRIES), reader(0, BEGIN));
            let up_read = up.next(&p, ix, &Memcmp) as u64;
            let down_read = down.prev(&p, ix, &Memcmp) as u64;
            assert!(up_read > 0 && down_read > 0);
            let (mut up_mark, mut down_mark) = (up.clone(), down.clone());
            // Ranges that are looked up together; parts of a range.
            let mut ranges: Vec<_> =
                (0..8).map(|i| Box::new(reader(80 * i, 80 * i + 80))).collect();
            let mut part = reader(0, ENTRIES);
            let mut at = nitro_engine::Separator::default();
            assert!(part.cut(true, 2, &p, ix, &Memcmp, &mut at) > 0);
            part.begin_at(&at);

            let snapshot = ix.create_snapshot(&p, 0, &mut || ()).unwrap();
            let removed = remove_some(&p, ix, way);
            let what = format!("{forms:?}, way {way}");
            if way < 2 {
                assert_eq!(removed, (0..ENTRIES).filter(|&i| gone(i)).count() as u64, "{what}");
            }
            let alive = |i: &u64| ix.contains(&p, &Memcmp, &key(*i), *i);
            let living = |range: std::ops::Range<u64>| range.filter(alive).collect::<Vec<_>>();

            let above = living(BEGIN + up_read..ENTRIES);
            assert!(rest(&mut up, &p, ix, true) == above, "up, {what}");
            assert!(rest(&mut up_mark, &p, ix, true) == above, "up from a mark, {what}");
            for cursor in [&mut down, &mut down_mark] {
                let mut seen = rest(cursor, &p, ix, false);
                seen.sort_unstable();
                assert!(seen == living(0..BEGIN - down_read), "down, {what}");
            }
            Cursor::first_of_each(&mut ranges, usize::MAX, &p, ix, &Memcmp);
            for (cursor, i) in ranges.iter_mut().zip(0..) {
                let mut seen = cursor.tids().to_vec();
                seen.extend(rest(cursor, &p, ix, true));
                assert!(seen == living(80 * i..80 * i + 80), "together, {what}");
            }
            let begins =
                u64::from_be_bytes(std::array::from_fn(|i| at.key.get(i).copied().unwrap_or(0)));
            let seen = rest(&mut part, &p, ix, true);
            assert!(seen == living(begins..ENTRIES), "a part, {what}");

            // The holder of the snapshot sees all of them.
            let mut holder = Cursor::new(false);
            holder.set_snapshot_range(&[], None, snapshot.sn());
            assert!(rest(&mut holder, &p, ix, true).into_iter().eq(0..ENTRIES), "{what}");
            ix.release(&p, snapshot);
            // SAFETY: no other process or thread uses it.
            unsafe { ix.destroy(&p) };
        }
    }
}
