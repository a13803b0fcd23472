//! Writers beside ordered scans. Some entries live through everything and must be in every scan
//! exactly once; others come and go.

use crate::common::*;
use nitro_engine::prelude::*;
use nitro_engine::{Cursor, Forms, Index, InsertError, KeyOrder, Memcmp, Process, Prune, Sweep};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use std::thread;

const CURRENT: u32 = u32::MAX - 1;
const STABLE: u64 = 20_000;

/// The key of entry `i`: stable ones have TID 0, changing ones in the gaps have others.
type MakeKey = fn(u64) -> Vec<u8>;

fn full_scan<O: KeyOrder>(p: &Process, ix: Index, order: &O, key: MakeKey, forward: bool) {
    let mut cursor = Cursor::new(true);
    cursor.set_range(&[], None, CURRENT);
    let mut expected: Box<dyn Iterator<Item = u64>> =
        if forward { Box::new(0..STABLE) } else { Box::new((0..STABLE).rev()) };
    let mut last: Option<(Vec<u8>, u64)> = None;
    loop {
        let n = if forward { cursor.next(p, ix, order) } else { cursor.prev(p, ix, order) };
        if n == 0 {
            break;
        }
        let order_of: Box<dyn Iterator<Item = usize>> =
            if forward { Box::new(0..n) } else { Box::new((0..n).rev()) };
        for i in order_of {
            let entry = (cursor.key(i).to_vec(), cursor.tid(i));
            if let Some(last) = &last {
                assert!(if forward { *last < entry } else { *last > entry }, "{last:?} {entry:?}");
            }
            if entry.1 == 0 {
                assert_eq!(Some(&entry.0), expected.next().map(key).as_ref(), "forward {forward}");
            }
            last = Some(entry);
        }
    }
    assert_eq!(expected.next(), None);
}

fn run<O: KeyOrder + Sync>(order: O, key: MakeKey, forms: Forms, seconds: u64) {
    let mapping = Mapping::new(512 << 20, 8);
    let p = mapping.process(0);
    let ix = create_with(&p, forms);
    let mut random = Random(1);
    let mut ids: Vec<u64> = (0..STABLE).collect();
    for i in (1..ids.len()).rev() {
        ids.swap(i, random.below(i as u64 + 1) as usize);
    }
    for &i in &ids {
        ix.insert(&p, &order, &key(i), 0).unwrap();
    }
    let stop = AtomicBool::new(false);
    let (scans, changes) = (AtomicU64::new(0), AtomicU64::new(0));
    thread::scope(|scope| {
        for writer in 1..4u32 {
            let (mapping, order, stop, changes) = (&mapping, &order, &stop, &changes);
            scope.spawn(move || {
                let p = mapping.process(writer);
                let mut random = Random(u64::from(writer) * 1000);
                while !stop.load(Relaxed) {
                    // A burst of inserts in one region, then their removal: splits, then merges.
                    let start = random.below(STABLE);
                    let n = 1 + random.below(2000);
                    let tid = |i: u64| u64::from(writer) + 10 * (1 + i % 5);
                    let mut done = 0;
                    for i in 0..n {
                        match ix.insert(&p, order, &key((start + i / 5) % STABLE), tid(i)) {
                            Ok(true) => done += 1,
                            Ok(false) => panic!("inserted twice"),
                            Err(InsertError::OutOfMemory(_)) => break,
                            Err(e) => panic!("{e}"),
                        }
                    }
                    if random.below(2) == 0 {
                        for i in 0..done {
                            assert!(ix.remove(&p, order, &key((start + i / 5) % STABLE), tid(i)));
                        }
                    } else {
                        // In one pass, everything of this writer.
                        let mut pass = Prune::new(&p, ix);
                        while pass.next_leaf(&mut |tids, dead| {
                            tids.iter()
                                .zip(dead)
                                .for_each(|(&tid, dead)| *dead = tid % 10 == u64::from(writer));
                        }) {}
                        assert_eq!(pass.counts().1, done);
                    }
                    if random.below(4) == 0 {
                        ix.collect(&p, 100);
                        let _ = Sweep::new(&p, ix).next_leaves(1000);
                    }
                    changes.fetch_add(done, Relaxed);
                }
            });
        }
        for reader in 4..6u32 {
            let (mapping, order, stop, scans) = (&mapping, &order, &stop, &scans);
            scope.spawn(move || {
                let p = mapping.process(reader);
                while !stop.load(Relaxed) {
                    full_scan(&p, ix, order, key, reader == 4);
                    scans.fetch_add(1, Relaxed);
                }
            });
        }
        let (mapping, order, stop) = (&mapping, &order, &stop);
        scope.spawn(move || {
            // Snapshots come and go; each sees the same every time.
            let p = mapping.process(6);
            while !stop.load(Relaxed) {
                let snapshot = ix.create_snapshot(&p, 1, &mut thread::yield_now).unwrap();
                let read = || {
                    let mut cursor = Cursor::new(true);
                    cursor.set_snapshot_range(&[], None, snapshot.sn());
                    let mut sum = Vec::new();
                    while cursor.next(&p, ix, order) > 0 {
                        sum.extend(
                            (0..cursor.len()).map(|i| (cursor.key(i).to_vec(), cursor.tid(i))),
                        );
                    }
                    sum
                };
                let first = read();
                assert!(first == read(), "the snapshot has changed");
                ix.release(&p, snapshot);
            }
        });
        thread::sleep(std::time::Duration::from_secs(seconds));
        stop.store(true, Relaxed);
    });
    println!("{} scans, {} changes, {:?}", scans.load(Relaxed), changes.load(Relaxed), ix.stats());
    collect(&p, ix);
    let report = ix.verify(&p, &order, true, &mut |_, _| ()).unwrap_or_else(|v| panic!("{v}"));
    assert_eq!((report.live, report.dead), (STABLE, 0));
    assert!(scans.load(Relaxed) > 0);
}

fn seconds() -> u64 {
    std::env::var("NITRO_TEST_SECONDS").ok().and_then(|s| s.parse().ok()).unwrap_or(2)
}

#[test]
fn bytes_8() {
    for forms in FORMS {
        run(Memcmp, |i| (i * 3).to_be_bytes().to_vec(), forms, seconds());
    }
}

#[test]
fn strings() {
    let key: MakeKey = |i| format!("{:06}{}", i, "tail".repeat(1 + i as usize % 7)).into_bytes();
    for forms in FORMS {
        run(Memcmp, key, forms, seconds());
    }
}

#[test]
fn comparator() {
    run(
        IgnoreCase { abbreviate: true },
        |i| format!("A{i:06}").into_bytes(),
        Forms::Best,
        seconds(),
    );
}
