//! Walks over all leaves: each entry that is there all the time is read exactly once, beside
//! everything that moves entries.

use crate::common::*;
use nitro_engine::cuts;
use nitro_engine::prelude::*;
use nitro_engine::{
    Boundary, Cut, Forms, Index, KeyOrder, Memcmp, Process, Prune, Sweep, Swept, Tid, Walk,
};
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::thread;

const CURRENT: u32 = u32::MAX - 1;
const STABLE: u64 = 6000;

type Entry = (Vec<u8>, Tid);

fn read(mut walk: Walk<'_>) -> Vec<Entry> {
    let mut all = Vec::new();
    while walk.next_leaf() {
        all.extend((0..walk.len()).map(|i| (walk.key(i).to_vec(), walk.tid(i))));
    }
    assert!(!walk.next_leaf() && walk.is_empty(), "it has ended");
    all
}

fn boundaries<'c>(cuts: &'c [Cut<'_>]) -> Vec<Option<Boundary<'c>>> {
    let inner = cuts.iter().map(|cut| Some(cut.boundary()));
    std::iter::once(None).chain(inner).chain([None]).collect()
}

fn key(i: u64) -> Vec<u8> {
    format!("word{i:06}").into_bytes()
}

/// Too long for a leaf.
fn long_key(i: u64) -> Vec<u8> {
    [&key(i)[..], &[b'x'; 700]].concat()
}

/// The keys of all entries that are there, and where an index is cut into parts of about the same
/// size.
#[test]
fn parts() {
    const N: u64 = 100_000;
    let mapping = Mapping::new(256 << 20, 1);
    let p = mapping.process(0);
    for forms in FORMS {
        let ix = create_with(&p, forms);
        assert!(cuts(&ix, &p, 4).is_empty(), "there is one leaf");
        for i in 0..N {
            ix.insert(&p, &Memcmp, &Random(i).next().to_be_bytes(), i).unwrap();
        }
        let cuts = cuts(&ix, &p, 5);
        assert_eq!(cuts.len(), 4);
        let ends = boundaries(&cuts);
        let mut all = Vec::new();
        for ends in ends.windows(2) {
            let part = read(Walk::between(&p, ix, CURRENT, ends[0], ends[1]));
            assert!((N / 6..N / 4).contains(&(part.len() as u64)), "{}", part.len());
            all.extend(part);
        }
        let mut wanted: Vec<Entry> =
            (0..N).map(|i| (Random(i).next().to_be_bytes().to_vec(), i)).collect();
        wanted.sort();
        assert!(all == wanted);
        assert!(read(Walk::new(&p, ix, CURRENT)) == wanted);
        drop(cuts);
        // SAFETY: no other process or thread uses it.
        unsafe { ix.destroy(&p) };
    }
}

/// Entries that come and go beside those that stay; leaves are split, filled, merged, moved,
/// packed, cut.
fn beside_everything<O: KeyOrder + Sync>(order: &O, key: fn(u64) -> Vec<u8>, forms: Forms) {
    let mapping = Mapping::new(512 << 20, 8);
    let p = mapping.process(0);
    let ix = create_with(&p, forms);
    for i in 0..STABLE {
        ix.insert(&p, order, &key(i * 7919 % STABLE), 1).unwrap();
    }
    let wanted: Vec<Entry> = (0..STABLE).map(|i| (key(i), 1)).collect();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let (mapping, stop) = (&mapping, &stop);
        for w in 1..3u32 {
            scope.spawn(move || {
                let p = mapping.process(w);
                let mut random = Random(u64::from(w));
                while !stop.load(Relaxed) {
                    let (start, n) = (random.below(STABLE), 1 + random.below(1500));
                    for i in 0..n {
                        let tid = 8 + 8 * i + u64::from(w);
                        ix.insert(&p, order, &key((start + i / 3) % STABLE), tid).unwrap();
                    }
                    let mut pass = Prune::new(&p, ix);
                    while pass.next_leaf(&mut |tids, dead| {
                        let mine = |tid: Tid| tid > 1 && tid % 8 == u64::from(w);
                        tids.iter().zip(dead).for_each(|(&tid, dead)| *dead = mine(tid));
                    }) {}
                    assert_eq!(pass.counts().1, n);
                }
            });
        }
        scope.spawn(move || {
            let p = mapping.process(3);
            let mut sweep = Sweep::new(&p, ix);
            while !stop.load(Relaxed) {
                let _ = sweep.next_leaves(7);
                ix.collect(&p, 50);
                let snapshot = ix.create_snapshot(&p, 1, &mut thread::yield_now).unwrap();
                ix.release(&p, snapshot);
            }
        });
        let end = End(stop);
        for round in 0..cases(60).clamp(10, 400) {
            let cuts = cuts(&ix, &p, 1 + round as usize % 3);
            let parts: Vec<Vec<Entry>> = thread::scope(|readers| {
                let ends = boundaries(&cuts);
                let mut parts = Vec::new();
                for (i, ends) in ends.windows(2).enumerate() {
                    let (from, to) = (ends[0], ends[1]);
                    parts.push(readers.spawn(move || {
                        let p = mapping.process(4 + i as u32);
                        read(Walk::between(&p, ix, CURRENT, from, to))
                    }));
                }
                parts.into_iter().map(|reader| reader.join().unwrap()).collect()
            });
            let all = parts.concat();
            assert!(all.is_sorted_by(|a, b| a < b), "round {round}: out of order, or twice");
            assert!(all.into_iter().filter(|entry| entry.1 == 1).eq(wanted.iter().cloned()));
        }
        drop(end);
    });
    ix.verify(&p, order, true, &mut |_, _| ()).unwrap_or_else(|v| panic!("{v}"));
}

/// Ends the others, also when a test fails: the scope waits for them.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

#[test]
fn beside_everything_in_byte_order() {
    beside_everything(&Memcmp, key, Forms::Best);
    beside_everything(&Memcmp, key, Forms::Mixed);
}

#[test]
fn beside_everything_with_long_keys() {
    beside_everything(&Memcmp, long_key, Forms::Best);
}

#[test]
fn beside_everything_under_a_comparator() {
    beside_everything(&IgnoreCase { abbreviate: false }, key, Forms::Best);
}

/// Most entries of full leaves are removed. A sweep leaves a tenth of the leaves.
fn thinned(p: &Process) -> Index {
    let ix = create_with(p, Forms::Best);
    (0..20_000u64).for_each(|i| assert!(ix.insert(p, &Memcmp, &i.to_be_bytes(), i).unwrap()));
    let mut pass = Prune::new(p, ix);
    while pass.next_leaf(&mut |tids, dead| {
        tids.iter().zip(dead).for_each(|(tid, dead)| *dead = tid % 20 != 0);
    }) {}
    ix
}

fn packed(p: &Process, ix: Index) -> u32 {
    let mut sweep = Sweep::new(p, ix);
    while sweep.next_leaves(10) == Swept::More {}
    collect(p, ix);
    ix.verify(p, &Memcmp, true, &mut |_, _| ()).unwrap().leaves
}

/// A walk that stands still keeps a leaf or two. The process that is abandoned keeps none, and its
/// walks begin anew.
#[test]
fn pins_of_a_process_that_is_abandoned() {
    let mapping = Mapping::new(64 << 20, 2);
    let (p, other) = (mapping.process(0), mapping.process(1));
    let fewest = packed(&other, thinned(&other));
    let ix = thinned(&other);
    let (mut pass, mut walk) = (Prune::new(&p, ix), Walk::new(&p, ix, CURRENT));
    let mut asked = 0;
    for _ in 0..100 {
        assert!(walk.next_leaf());
        assert!(pass.next_leaf(&mut |tids, _| asked += tids.len()));
    }
    let kept = packed(&other, ix);
    assert!((fewest + 1..fewest + 8).contains(&kept), "{kept} leaves, without pins {fewest}");
    // SAFETY: no call is under way.
    unsafe { p.abandon() };
    assert_eq!(packed(&other, ix), fewest);
    let mut again = 0;
    while pass.next_leaf(&mut |tids, _| again += tids.len()) {}
    let mut seen = BTreeSet::new();
    while walk.next_leaf() {
        seen.extend((0..walk.len()).map(|i| walk.tid(i)));
    }
    assert_eq!((again, seen.len()), (1000, 1000));
    assert_eq!(packed(&other, ix), fewest, "they have ended");
    assert!(asked > 0);
}

/// A pass that is dropped half way, and one that unwinds and is dropped then, keep nothing.
#[test]
fn pins_of_walks_that_are_dropped() {
    let mapping = Mapping::new(64 << 20, 1);
    let p = mapping.process(0);
    let fewest = packed(&p, thinned(&p));
    let ix = thinned(&p);
    for unwinds in [false, true] {
        let mut pass = Prune::new(&p, ix);
        (0..5).for_each(|_| assert!(pass.next_leaf(&mut |_, _| ())));
        if unwinds {
            let ask =
                || pass.next_leaf(&mut |_, _| std::panic::resume_unwind(Box::new("an error")));
            assert!(catch_unwind(AssertUnwindSafe(ask)).is_err());
        }
    }
    let mut sweep = Sweep::new(&p, ix);
    assert_eq!(sweep.next_leaves(5), Swept::More);
    drop(sweep);
    assert_eq!(packed(&p, ix), fewest);
}

/// More walks at one leaf than there is room for in its count: it is full, and the leaf stays for
/// good. The index goes on.
#[test]
fn many_walks_at_one_leaf() {
    let mapping = Mapping::new(64 << 20, 2);
    let (p, other) = (mapping.process(0), mapping.process(1));
    let ix = thinned(&other);
    let walks: Vec<Walk<'_>> = (0..300)
        .map(|_| {
            let mut walk = Walk::new(&p, ix, CURRENT);
            (0..50).for_each(|_| assert!(walk.next_leaf()));
            walk
        })
        .collect();
    let kept = packed(&other, ix);
    for walk in walks {
        let rest = read(walk);
        assert!(rest.is_sorted() && rest.len() < 1000);
    }
    assert_eq!(packed(&other, ix), kept, "the leaf stays");
    let all = read(Walk::new(&p, ix, CURRENT));
    assert!(all.iter().map(|entry| entry.1).eq((0..20_000).step_by(20)));
}

#[test]
fn a_cut_of_another_index() {
    let mapping = Mapping::new(64 << 20, 1);
    let p = mapping.process(0);
    let (a, b) = (thinned(&p), thinned(&p));
    let cuts = cuts(&a, &p, 2);
    let walk = || Walk::between(&p, b, CURRENT, Some(cuts[0].boundary()), None);
    assert!(catch_unwind(AssertUnwindSafe(walk)).is_err());
}
