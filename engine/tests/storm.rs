//! Storms of many actors over one index. Each actor knows the right answer to all that it asks.
//!
//! An entry (key, TID) belongs to one actor: the TID modulo the number of actors says to which one.
//! No other actor changes it. So an actor compares each answer about its own entries exactly,
//! whatever the others do (`storm/actor.rs`). Of the entries of other actors it checks the order.
//!
//! With the feature `chaos` nodes are small, and each stop point may be a pause. There `LONG=1`
//! tries every form of leaves, for longer.

mod actor;

use crate::common::*;
use actor::{Actor, Keys};
use nitro_engine::destroy_due;
use nitro_engine::destroy_later;
use nitro_engine::prelude::*;
use nitro_engine::{Cursor, Forms, Index, IndexOptions, KeyOrder, Memcmp, Process};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

const ACTORS: u64 = 5;

/// Bytes of an area that is not filled. Under Miri each byte takes many.
const ROOMY: usize = if cfg!(miri) { 4 << 20 } else { 64 << 20 };

fn variable(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// What a storm is about.
struct Storm<'a, O> {
    order: &'a O,
    keys: Keys,
    /// Bytes of the area. If they are few, inserts find no memory, and snapshots are lost.
    area: usize,
}

impl<O: KeyOrder + Sync> Storm<'_, O> {
    /// With one form of leaves, or with each.
    fn rage(&self) {
        let long = cfg!(feature = "chaos") && std::env::var_os("LONG").is_some();
        let seconds = variable("NITRO_TEST_SECONDS").unwrap_or(if long { 30 } else { 1 });
        let seed = variable("NITRO_SEED")
            .unwrap_or_else(|| std::time::UNIX_EPOCH.elapsed().expect("a clock").as_nanos() as u64);
        println!("NITRO_SEED={seed}");
        let forms = if long { &FORMS[..] } else { &FORMS[seed as usize % FORMS.len()..][..1] };
        forms.iter().for_each(|&forms| self.rage_with(forms, seed, seconds));
    }

    fn rage_with(&self, forms: Forms, seed: u64, seconds: u64) {
        let mapping = Mapping::new(self.area, ACTORS as u32 + 2);
        let p = mapping.process(0);
        let before = mapping.area.usage().used;
        let ix = create_with(&p, forms);
        let stop = AtomicBool::new(false);
        let owned = thread::scope(|scope| {
            let (mapping, stop) = (&mapping, &stop);
            let act = |me| {
                move || {
                    let _end = End(stop);
                    let p = mapping.process(me as u32 + 1);
                    let mut actor = Actor::new(&p, ix, self.order, self.keys, (me, ACTORS), seed);
                    while !stop.load(Relaxed) {
                        actor.act();
                    }
                    actor.retire()
                }
            };
            let actors: Vec<_> = (0..ACTORS).map(|me| scope.spawn(act(me))).collect();
            scope.spawn(move || come_and_go(mapping, stop));
            for _ in 0..seconds * 20 {
                thread::sleep(Duration::from_millis(50));
                if stop.load(Relaxed) {
                    break;
                }
            }
            stop.store(true, Relaxed);
            actors.into_iter().flat_map(|actor| actor.join().expect("no panic")).collect()
        });
        println!("{forms:?}: {:?}", ix.stats());
        self.check(&p, ix, &owned);
        self.empty(&p, ix, owned, seed);
        // SAFETY: no other process or thread uses it.
        unsafe { ix.destroy(&p) };
        assert_eq!(mapping.area.usage().used, before, "bytes are lost");
    }

    /// The index has these entries, and is in order.
    fn check(&self, p: &Process, ix: Index, owned: &BTreeSet<(Vec<u8>, u64)>) {
        collect(p, ix);
        let mut found = Vec::new();
        let note = &mut |key: &[u8], tid| found.push(((self.keys.fold)(key), tid));
        let report = ix.verify(p, self.order, true, note).unwrap_or_else(|v| panic!("{v}"));
        assert!(found.iter().eq(owned), "{} entries, not {}", found.len(), owned.len());
        assert_eq!((report.live, report.dead), (owned.len() as u64, 0));
    }

    /// All goes, by keys and by cursors.
    fn empty(&self, p: &Process, ix: Index, mut owned: BTreeSet<(Vec<u8>, u64)>, seed: u64) {
        let mut random = Random(seed);
        let by_key: Vec<_> = owned.iter().filter(|_| random.below(2) == 0).cloned().collect();
        for entry in by_key {
            assert!(ix.remove(p, self.order, &(self.keys.unfold)(&entry.0), entry.1));
            owned.remove(&entry);
        }
        let mut cursor = Cursor::new(true);
        cursor.set_range(&[], None, u32::MAX - 1);
        while cursor.next(p, ix, self.order) > 0 {
            for i in 0..cursor.len() {
                let entry = ((self.keys.fold)(cursor.key(i)), cursor.tid(i));
                assert!(owned.remove(&entry), "{entry:?}");
            }
            let all: Vec<u16> = (0..cursor.len() as u16).collect();
            assert_eq!(cursor.remove(p, ix, &all), all.len());
        }
        assert!(owned.is_empty(), "{owned:?}");
        self.check(p, ix, &owned);
    }
}

/// Ends the others, also when this one fails.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// Other indexes in the same area, which are given up.
fn come_and_go(mapping: &Mapping, stop: &AtomicBool) {
    let _end = End(stop);
    let p = mapping.process(ACTORS as u32 + 1);
    let mut random = Random(9);
    while !stop.load(Relaxed) {
        // Without memory it tries again.
        let Ok(ix) = Index::create(&p, &IndexOptions::default()) else {
            thread::yield_now();
            continue;
        };
        for i in 0..random.below(500) {
            if ix.insert(&p, &Memcmp, &random.next().to_be_bytes(), i).is_err() {
                break;
            }
        }
        // SAFETY: nobody else knows it.
        unsafe { destroy_later(ix, &p) };
    }
    while destroy_due(&mapping.area) {
        thread::yield_now();
    }
}

fn bytes(make: fn(u64) -> Vec<u8>, n: u64) -> Storm<'static, Memcmp> {
    let keys = Keys { make, n, tids: 4, fold: <[u8]>::to_vec, unfold: <[u8]>::to_vec };
    Storm { order: &Memcmp, keys, area: ROOMY }
}

#[test]
fn numbers() {
    bytes(|i| i.to_be_bytes().to_vec(), 1500).rage();
}

#[test]
fn numbers_far_apart() {
    bytes(|i| Random(i).next().to_be_bytes().to_vec(), 1500).rage();
}

#[test]
fn text() {
    let key = |i: u64| format!("name {:05}{}", i * 7, "tail".repeat(i as usize % 9)).into_bytes();
    bytes(key, 1200).rage();
}

/// Zeros at the end, prefixes of one another, the empty key.
#[test]
fn short_keys() {
    let key = |i: u64| {
        let digit = |at: u64| [0, 0, 1, b'a', 255][(i / 6 / 5u64.pow(at as u32) % 5) as usize];
        (0..i % 6).map(digit).collect()
    };
    bytes(key, 3000).rage();
}

/// Some are in chunks of their own.
#[test]
fn long_keys() {
    let key = |i: u64| {
        let n = [5, 100, 510, 600, 3000][i as usize % 5];
        [&(i / 5).to_be_bytes()[..], &vec![b'x'; n]].concat()
    };
    bytes(key, 600).rage();
}

#[test]
fn few_keys_of_many_entries() {
    let mut storm = bytes(|i| vec![i as u8; 1 + i as usize % 3], 12);
    storm.keys.tids = 300;
    storm.rage();
}

#[test]
fn a_comparator() {
    for abbreviate in [true, false] {
        let make = |i: u64| format!("{:04}-{}", i / 2, ["Aa", "aA"][i as usize % 2]).into_bytes();
        let keys = Keys { make, n: 1500, tids: 3, fold: fold_case, unfold: unfold_case };
        Storm { order: &IgnoreCase { abbreviate }, keys, area: ROOMY }.rage();
    }
}

/// Nearly always there is no memory.
#[test]
fn without_memory() {
    let key = |i: u64| format!("{:08}{}", i * 31, "x".repeat(i as usize % 60)).into_bytes();
    let mut storm = bytes(key, 4000);
    storm.area = 3 << 20;
    storm.rage();
}
