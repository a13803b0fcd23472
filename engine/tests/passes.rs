//! Passes, sweeps and changes inside each other, against a model; and beside each other in threads.

use crate::common::*;
use nitro_engine::prelude::*;
use nitro_engine::{
    Cursor, Forms, Index, KeyOrder, Memcmp, Process, Prune, Snapshot, Sweep, Swept, Tid,
};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use std::thread;

const CURRENT: u32 = u32::MAX - 1;
type Model = BTreeSet<(Vec<u8>, Tid)>;
type Fold = fn(&[u8]) -> Vec<u8>;

fn seconds() -> u64 {
    std::env::var("NITRO_TEST_SECONDS").ok().and_then(|s| s.parse().ok()).unwrap_or(2)
}

fn make_key(kind: u64, i: u64) -> Vec<u8> {
    let mut r = Random(i.wrapping_mul(77) ^ kind << 40);
    match kind {
        0 => i.to_be_bytes().to_vec(),
        1 => (i as u32 % 2000).to_be_bytes().to_vec(),
        2 => [&vec![0u8; (i % 40) as usize][..], &[(i % 3) as u8]].concat(),
        3 => vec![0xff; (i % 60) as usize],
        4 => format!("{:06}{}\0", i % 5000, "tail".repeat((i % 9) as usize)).into_bytes(),
        5 => [&vec![b'p'; 240 + (i % 30) as usize][..], &i.to_be_bytes()].concat(),
        6 => (0..r.below(600)).map(|_| [0, 1, 255, b'a'][r.below(4) as usize]).collect(),
        7 => Vec::new(),
        8 => (0..r.below(12)).map(|_| [0, 255, 0, b'a'][r.below(4) as usize]).chain([0]).collect(),
        9 => (0..27).map(|_| r.below(3) as u8).collect(),
        10 => [&[7u8; 30][..], &(i % 900).to_be_bytes()[5..], &[8u8; 9]].concat(),
        _ => vec![(i % 5) as u8; 3],
    }
}

fn make_tid(kind: u64, i: u64) -> Tid {
    let mut r = Random(i ^ kind << 50);
    match kind % 4 {
        0 => 1 + i,
        1 => ((i / 200) << 16) | (1 + i % 200),
        2 => (1 << 48) - 1 - i % 100_000,
        _ => (r.next() >> 16) | (0xffff * (i % 2)),
    }
}

fn scan<O: KeyOrder>(
    p: &Process,
    ix: Index,
    o: &O,
    fold: Fold,
    sn: u32,
    fwd: bool,
) -> Vec<(Vec<u8>, Tid)> {
    let mut c = Cursor::new(true);
    c.set_snapshot_range(&[], None, sn);
    let mut all = Vec::new();
    loop {
        let n = if fwd { c.next(p, ix, o) } else { c.prev(p, ix, o) };
        if n == 0 {
            break;
        }
        let mut part: Vec<_> = (0..n).map(|i| (fold(c.key(i)), c.tid(i))).collect();
        if !fwd {
            part.reverse();
        }
        all.extend(part);
    }
    if !fwd {
        all.reverse();
    }
    all
}

fn nested<O: KeyOrder>(order: O, fold: Fold, unfold: Fold, seconds: u64, seed: u64) {
    let start = std::time::Instant::now();
    let mut round = seed;
    while start.elapsed().as_secs() < seconds {
        round += 1;
        let mut r = Random(round * 7919);
        let mapping = Mapping::new(128 << 20, 2);
        let p = mapping.process(0);
        let forms = FORMS[[0, 0, 2, 3, 1][r.below(5) as usize]];
        let ix = create_with(&p, forms);
        let model = RefCell::new(Model::new());
        let mut snapshots: Vec<(Snapshot, Model)> = Vec::new();
        let partial = RefCell::new(Sweep::new(&p, ix));
        let o = &order;
        let kinds = [r.below(12), r.below(12)];
        let tids = r.below(4);
        let insert = |key: &[u8], tid: Tid| {
            let new = model.borrow_mut().insert((fold(key), tid));
            assert_eq!(ix.insert(&p, o, key, tid).unwrap(), new);
        };
        let remove_some = |from: usize, step: usize, most: usize, may: &dyn Fn(Tid) -> bool| {
            let some: Vec<_> = model
                .borrow()
                .iter()
                .skip(from)
                .filter(|e| may(e.1))
                .step_by(step)
                .take(most)
                .cloned()
                .collect();
            for (key, tid) in some {
                assert!(ix.remove(&p, o, &unfold(&key), tid), "round {round}");
                model.borrow_mut().remove(&(key, tid));
            }
        };
        let step_sweep = |n: usize| {
            let _ = partial.borrow_mut().next_leaves(n);
        };
        for op in 0..14 {
            let n = model.borrow().len();
            match r.below(9) {
                0 | 1 => {
                    let (kind, base, count) =
                        (kinds[r.below(2) as usize], r.below(3000), r.below(4000));
                    for i in base..base + count {
                        insert(&make_key(kind, i), make_tid(tids, i));
                    }
                }
                2 => {
                    // New versions in order.
                    let all: Vec<_> = model.borrow().iter().take(3000).cloned().collect();
                    let base = r.next() >> 20;
                    let wide = r.below(2) * 16;
                    for (i, (key, _)) in all.iter().enumerate() {
                        insert(&unfold(key), (base + i as u64) & ((1 << 48) - 1) | wide);
                    }
                }
                3 => remove_some(
                    r.below(n as u64 + 1) as usize,
                    1 + r.below(4) as usize,
                    r.below(3000) as usize,
                    &|_| true,
                ),
                4 | 5 => {
                    // A pass, inside of which there is anything.
                    let (m, rest) = (1 + r.below(6), r.below(6));
                    let is_dead = |tid: Tid| (tid ^ tid >> 16) % m != rest % m.max(2);
                    let mut pass = Prune::new(&p, ix);
                    let what = r.below(8);
                    let rr = RefCell::new(Random(r.next()));
                    let mut calls = 0;
                    loop {
                        let mut dead = |tids: &[Tid], dead: &mut [bool]| {
                            calls += 1;
                            tids.iter().zip(&mut *dead).for_each(|(&t, d)| *d = is_dead(t));
                            let mut rr = rr.borrow_mut();
                            match what {
                                1 if calls % 3 == 0 => {
                                    let base = rr.below(3000);
                                    for i in base..base + 20 {
                                        let tid = make_tid(tids_kind(m), i);
                                        if !is_dead(tid) {
                                            insert(&make_key(kinds[0], i), tid);
                                        }
                                    }
                                }
                                2 => {
                                    let n = model.borrow().len() as u64;
                                    remove_some(
                                        rr.below(n + 1) as usize,
                                        1 + rr.below(3) as usize,
                                        30,
                                        &|tid| !is_dead(tid),
                                    );
                                }
                                3 => step_sweep(1 + rr.below(30) as usize),
                                4 => {
                                    ix.collect(&p, 1 + rr.below(50) as usize);
                                }
                                5 if rr.below(3) == 0 => {
                                    std::panic::resume_unwind(Box::new("unwinds"))
                                }
                                6 => {
                                    // The same pass inside.
                                    let mut inner = Prune::new(&p, ix);
                                    let mut d = |t: &[Tid], d: &mut [bool]| {
                                        t.iter().zip(d).for_each(|(&t, d)| *d = is_dead(t))
                                    };
                                    if calls % 4 == 0 {
                                        while inner.next_leaf(&mut d) {}
                                    }
                                }
                                _ => {}
                            }
                        };
                        match catch_unwind(AssertUnwindSafe(|| pass.next_leaf(&mut dead))) {
                            Ok(true) => {}
                            Ok(false) => break,
                            Err(e) => {
                                if e.downcast_ref::<&str>() != Some(&"unwinds") {
                                    std::panic::resume_unwind(e);
                                }
                            }
                        }
                    }
                    model.borrow_mut().retain(|&(_, tid)| !is_dead(tid));
                }
                6 => step_sweep(1 + r.below(60) as usize),
                7 => {
                    let mut s = Sweep::new(&p, ix);
                    while s.next_leaves(20) == Swept::More {}
                    *partial.borrow_mut() = Sweep::new(&p, ix);
                    if r.below(2) == 0 {
                        ix.collect(&p, 1000);
                    }
                }
                _ => {
                    if snapshots.len() > 1 || r.below(2) == 0 {
                        if let Some((s, _)) = snapshots.pop() {
                            ix.release(&p, s);
                        }
                    } else if let Ok(s) = ix.create_snapshot(&p, 7, &mut || ()) {
                        snapshots.push((s, model.borrow().clone()));
                    }
                }
            }
            let want: Vec<_> = model.borrow().iter().cloned().collect();
            let what = format!("round {round} op {op} kinds {kinds:?} tids {tids}");
            ix.verify(&p, o, true, &mut |_, _| ()).unwrap_or_else(|v| panic!("{v} {what}"));
            assert!(scan(&p, ix, o, fold, CURRENT, true) == want, "forward {what}");
            assert!(scan(&p, ix, o, fold, CURRENT, false) == want, "backward {what}");
            for (s, m) in &snapshots {
                let want: Vec<_> = m.iter().cloned().collect();
                assert!(scan(&p, ix, o, fold, s.sn(), true) == want, "snapshot {what}");
                assert!(scan(&p, ix, o, fold, s.sn(), false) == want, "snapshot back {what}");
            }
            assert_eq!(ix.stats().live, want.len() as u64, "{what}");
        }
        for (s, _) in snapshots {
            ix.release(&p, s);
        }
        drop(partial);
        // SAFETY: no other process or thread uses it.
        unsafe { ix.destroy(&p) };
    }
    println!("{} rounds", round - seed);
}

fn tids_kind(m: u64) -> u64 {
    m
}

#[test]
fn nested_bytes() {
    nested(Memcmp, |k| k.to_vec(), |k| k.to_vec(), seconds(), 1);
}

#[test]
fn nested_comparator() {
    nested(IgnoreCase { abbreviate: true }, fold_case, unfold_case, seconds(), 1 + 1_000_000);
}

/// Entries that stay are counted once, also if a sweep gives the leaf that is next to the one
/// before it.
#[test]
fn a_pass_counts_each_entry_once() {
    let mapping = Mapping::new(1 << 26, 2);
    let p = mapping.process(0);
    let ix = create_with(&p, Forms::Best);
    for i in 0..3000u64 {
        ix.insert(&p, &Memcmp, &(i * 7919 % 3001).to_be_bytes(), i + 1).unwrap();
    }
    let mut pass = Prune::new(&p, ix);
    let mut calls = 0;
    while pass.next_leaf(&mut |_, _| {
        calls += 1;
        // As another process would, between two leaves.
        if calls % 8 == 0 {
            let mut s = Sweep::new(&p, ix);
            while s.next_leaves(10) == Swept::More {}
        }
    }) {}
    assert_eq!(pass.counts(), (3000, 0));
}

/// Runs that come and go; passes, sweeps, collectors; scans both ways.
fn threads<O: KeyOrder + Sync>(order: O, key: fn(u64) -> Vec<u8>, forms: Forms, seconds: u64) {
    const STABLE: u64 = 4000;
    let mapping = Mapping::new(512 << 20, 10);
    let p = mapping.process(0);
    let ix = create_with(&p, forms);
    for i in 0..STABLE {
        ix.insert(&p, &order, &key(i * 7919 % STABLE), 1 << 20).unwrap();
    }
    let stop = AtomicBool::new(false);
    let (scans, passes, sweeps) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    thread::scope(|scope| {
        for w in 1..4u32 {
            let (mapping, order, stop, passes) = (&mapping, &order, &stop, &passes);
            scope.spawn(move || {
                let p = mapping.process(w);
                let mut r = Random(u64::from(w) * 31 + 1);
                while !stop.load(Relaxed) {
                    let (start, n) = (r.below(STABLE), 1 + r.below(3000));
                    let per = 1 + r.below(6);
                    let mut done = 0u64;
                    for i in 0..n {
                        let k = key((start + i / per) % STABLE);
                        assert!(
                            ix.insert(&p, order, &k, (2 << 20) + i * 8 + u64::from(w)).unwrap()
                        );
                        done += 1;
                    }
                    let mut pass = Prune::new(&p, ix);
                    while pass.next_leaf(&mut |tids, dead| {
                        tids.iter()
                            .zip(dead)
                            .for_each(|(&t, d)| *d = t > 1 << 20 && t % 8 == u64::from(w));
                    }) {}
                    assert_eq!(pass.counts().1, done);
                    assert!(pass.counts().0 >= STABLE);
                    passes.fetch_add(1, Relaxed);
                }
            });
        }
        for w in 4..6u32 {
            let (mapping, stop, sweeps) = (&mapping, &stop, &sweeps);
            scope.spawn(move || {
                let p = mapping.process(w);
                let mut r = Random(u64::from(w) + 1);
                let mut s = Sweep::new(&p, ix);
                while !stop.load(Relaxed) {
                    if s.next_leaves(1 + r.below(20) as usize) == Swept::End {
                        sweeps.fetch_add(1, Relaxed);
                    }
                    if r.below(3) == 0 {
                        ix.collect(&p, 1 + r.below(60) as usize);
                    }
                }
            });
        }
        for w in 6..8u32 {
            let (mapping, order, stop, scans) = (&mapping, &order, &stop, &scans);
            scope.spawn(move || {
                let p = mapping.process(w);
                while !stop.load(Relaxed) {
                    let all = scan(&p, ix, order, |k| k.to_vec(), CURRENT, w == 6);
                    let stable: Vec<_> = all.iter().filter(|e| e.1 == 1 << 20).collect();
                    assert_eq!(stable.len() as u64, STABLE, "forward {}", w == 6);
                    assert!(all.windows(2).all(|w| w[0] < w[1]), "order");
                    for i in 0..50 {
                        assert!(ix.contains(&p, order, &key(i * 97 % STABLE), 1 << 20));
                    }
                    scans.fetch_add(1, Relaxed);
                }
            });
        }
        let (mapping, order, stop) = (&mapping, &order, &stop);
        scope.spawn(move || {
            let p = mapping.process(8);
            let mut n = 0;
            while !stop.load(Relaxed) {
                n += 1;
                if n % 2 == 0 {
                    thread::sleep(std::time::Duration::from_millis(30));
                }
                let s = ix.create_snapshot(&p, 1, &mut thread::yield_now).unwrap();
                let first = scan(&p, ix, order, |k| k.to_vec(), s.sn(), true);
                assert!(first == scan(&p, ix, order, |k| k.to_vec(), s.sn(), false), "snapshot");
                ix.release(&p, s);
            }
        });
        thread::sleep(std::time::Duration::from_secs(seconds));
        stop.store(true, Relaxed);
    });
    println!("{scans:?} scans {passes:?} passes {sweeps:?} sweeps {:?}", ix.stats());
    collect(&p, ix);
    let report = ix.verify(&p, &order, true, &mut |_, _| ()).unwrap_or_else(|v| panic!("{v}"));
    assert_eq!((report.live, report.dead), (STABLE, 0));
    // SAFETY: no other process or thread uses it.
    unsafe { ix.destroy(&p) };
}

#[test]
fn threads_bytes() {
    for forms in [Forms::Best, Forms::Packed, Forms::Mixed] {
        threads(Memcmp, |i| (i * 3).to_be_bytes().to_vec(), forms, seconds());
    }
}

#[test]
fn threads_strings() {
    let key = |i: u64| format!("{:06}{}\0", i, "tail".repeat(1 + i as usize % 7)).into_bytes();
    threads(Memcmp, key, Forms::Best, seconds());
    threads(Memcmp, |i| [&[0u8; 200][..], &i.to_be_bytes()].concat(), Forms::Best, seconds());
}

#[test]
fn threads_comparator() {
    threads(
        IgnoreCase { abbreviate: true },
        |i| format!("A{i:06}").into_bytes(),
        Forms::Best,
        seconds(),
    );
}

#[test]
fn thr_zeros() {
    threads(Memcmp, |i| [&[0u8; 200][..], &i.to_be_bytes()].concat(), Forms::Best, seconds());
}
