//! Writers that grow and empty ranges, so that leaves split and merge all the time; each writer
//! knows its entries exactly. Beside them snapshots are read in both directions, and the collector
//! runs.

use crate::common::*;
use nitro_engine::prelude::*;
use nitro_engine::{Cursor, Forms, Index, KeyOrder, Memcmp, Process, Sweep};
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::thread;
use std::time::Duration;

const WRITERS: u64 = 3;

type MakeKey = fn(u64) -> Vec<u8>;

fn eight_bytes(i: u64) -> Vec<u8> {
    i.to_be_bytes().to_vec()
}

fn records(i: u64) -> Vec<u8> {
    [eight_bytes(i), vec![b'y'; (i * 7 % 90) as usize]].concat()
}

/// Every fifth key has a chunk, or a long record.
fn chunks(i: u64) -> Vec<u8> {
    let tail = if i.is_multiple_of(5) { 500 + i * 131 % 3000 } else { 0 };
    [eight_bytes(i), vec![b'z'; tail as usize]].concat()
}

struct Writer<'a, O> {
    p: Process,
    ix: Index,
    order: &'a O,
    key: MakeKey,
    /// Which entries are there.
    own: HashSet<u64>,
}

impl<O: KeyOrder> Writer<'_, O> {
    fn insert(&mut self, i: u64) {
        let inserted = self.ix.insert(&self.p, self.order, &(self.key)(i), i).unwrap();
        assert_eq!(inserted, self.own.insert(i), "insert {i}");
    }

    fn remove(&mut self, i: u64) {
        let removed = self.ix.remove(&self.p, self.order, &(self.key)(i), i);
        assert_eq!(removed, self.own.remove(&i), "remove {i}");
    }

    fn check(&self, i: u64) {
        let there = self.ix.contains(&self.p, self.order, &(self.key)(i), i);
        assert_eq!(there, self.own.contains(&i), "contains {i}");
    }

    /// Many changes in one range, mostly inserts or mostly removals; at times, almost everything
    /// goes.
    fn burst(&mut self, random: &mut Random, number: u64) {
        let (from, span) = (random.below(3000), 1 + random.below(3000));
        let (grow, ascending) = (random.below(3) > 0, random.below(2) == 0);
        for j in 0..300 {
            let at = if ascending { j } else { random.below(span) };
            let i = (from + at) * WRITERS + number;
            if (random.below(8) < 6) == grow {
                self.insert(i)
            } else {
                self.remove(i)
            }
            self.check((from + random.below(span)) * WRITERS + number);
        }
        if random.below(3) == 0 {
            for i in self.own.clone() {
                if random.below(50) > 0 {
                    self.remove(i);
                }
            }
        }
    }
}

fn read<O: KeyOrder>(p: &Process, ix: Index, order: &O, sn: u32, forward: bool) -> Vec<u64> {
    let mut cursor = Cursor::new(false);
    cursor.set_snapshot_range(&[], None, sn);
    let mut tids = Vec::new();
    loop {
        let n = if forward { cursor.next(p, ix, order) } else { cursor.prev(p, ix, order) };
        match (n, forward) {
            (0, _) => return tids,
            (_, true) => tids.extend((0..n).map(|i| cursor.tid(i))),
            (_, false) => tids.extend((0..n).rev().map(|i| cursor.tid(i))),
        }
    }
}

fn churn<O: KeyOrder + Sync>(order: &O, key: MakeKey, forms: Forms) {
    let mapping = Mapping::new(1 << 30, 8);
    let before = mapping.area.usage().used;
    let p = mapping.process(0);
    let ix = create_with(&p, forms);
    let stop = AtomicBool::new(false);
    let (mapping, stop) = (&mapping, &stop);
    thread::scope(|scope| {
        for number in 0..WRITERS {
            scope.spawn(move || {
                let p = mapping.process(1 + number as u32);
                let mut writer = Writer { p, ix, order, key, own: HashSet::new() };
                let mut random = Random(number);
                while !stop.load(Relaxed) {
                    writer.burst(&mut random, number);
                }
            });
        }
        scope.spawn(move || {
            let p = mapping.process(5);
            while !stop.load(Relaxed) {
                let snapshot = ix.create_snapshot(&p, 1, &mut thread::yield_now).unwrap();
                let forward = read(&p, ix, order, snapshot.sn(), true);
                let mut backward = read(&p, ix, order, snapshot.sn(), false);
                backward.reverse();
                // The comparator takes some keys for equal that differ.
                assert!(!O::MEMCMP || forward.is_sorted_by(|a, b| a < b));
                assert_eq!(forward, backward, "the snapshot has changed");
                ix.release(&p, snapshot);
            }
        });
        scope.spawn(move || {
            let p = mapping.process(6);
            let mut sweep = Sweep::new(&p, ix);
            while !stop.load(Relaxed) {
                ix.collect(&p, 200);
                let _ = sweep.next_leaves(20);
                thread::sleep(Duration::from_micros(300));
            }
        });
        thread::sleep(Duration::from_secs(2));
        stop.store(true, Relaxed);
    });
    collect(&p, ix);
    ix.verify(&p, order, true, &mut |_, _| ()).unwrap_or_else(|v| panic!("{v}"));
    // SAFETY: no other process or thread uses it.
    unsafe { ix.destroy(&p) };
    assert_eq!(mapping.area.usage().used, before);
}

#[test]
fn keys_of_8_bytes() {
    FORMS.into_iter().for_each(|forms| churn(&Memcmp, eight_bytes, forms));
}

#[test]
fn keys_in_records() {
    FORMS.into_iter().for_each(|forms| churn(&Memcmp, records, forms));
}

#[test]
fn keys_in_chunks() {
    churn(&Memcmp, chunks, Forms::Packed);
}

#[test]
fn comparator() {
    churn(&IgnoreCase { abbreviate: true }, chunks, Forms::Best);
}
