//! Index nodes that give separators and move beside writers, readers and passes. At the end of each
//! round the index has what its writers say, and then nothing.

use crate::build::adopt;
use crate::collect::sweep::{Sweep, Swept};
use crate::collect::{collector, nodes};
use crate::memory::area::tests::Mapping;
use crate::memory::process::Process;
use crate::prelude::*;
use crate::tree::top;
use crate::{
    Builder, Cursor, Forms, Index, IndexOptions, InsertError, KeyOrder, Memcmp, Prune, Tid,
};
use core::cmp::Ordering;
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::collections::BTreeSet;
use std::thread;
use std::time::{Duration, Instant};

const CURRENT: u32 = u32::MAX - 1;
/// Entries that stay have this TID; those of a writer another one each time.
const STABLE: Tid = 1 << 20;

type Model = BTreeSet<(Vec<u8>, Tid)>;

fn seconds() -> u64 {
    std::env::var("NITRO_TEST_SECONDS").ok().and_then(|s| s.parse().ok()).unwrap_or(3)
}

/// splitmix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
}

/// Byte order, by a function.
struct Compared(bool);

impl KeyOrder for Compared {
    const MEMCMP: bool = false;
    fn abbrev(&self, key: &[u8]) -> u64 {
        if self.0 { key.first().map_or(0, |&first| u64::from(first) + 1) } else { 0 }
    }
    fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        a.cmp(b)
    }
}

/// Ascending, and different, but for the last two kinds.
fn make_key(kind: u64, i: u64) -> Vec<u8> {
    let bytes = i.to_be_bytes();
    match kind {
        0 => bytes.to_vec(),
        1 => [&[7; 250][..], &bytes].concat(),
        // Low keys that are too long for index nodes, which have their first bytes.
        2 => [&[7; 590][..], &bytes[5..]].concat(),
        // How many bytes are shared changes all the time.
        3 => [&bytes[5..7], &vec![0; 60 + 9 * (i % 60) as usize], &bytes[7..], &[0; 3]].concat(),
        4 => [&bytes[5..7], &[0; 90][..], &bytes[7..], &[0; 80]].concat(),
        5 => {
            [&bytes[5..7], &vec![0; 90 * (i % 3) as usize], &bytes[7..], &vec![0; (i % 5) as usize]]
                .concat()
        }
        // Chunks.
        6 => [&[9; 1200][..], &bytes[5..]].concat(),
        // Few keys, the empty one among them.
        7 => vec![0; (i % 40) as usize],
        _ => vec![0xff; 400 * (i % 2) as usize],
    }
}
const KINDS: u64 = 9;

fn scan<O: KeyOrder>(p: &Process, ix: Index, order: &O, forward: bool) -> Vec<(Vec<u8>, Tid)> {
    let mut cursor = Cursor::new(true);
    cursor.set_range(&[], None, CURRENT);
    let mut all = Vec::new();
    loop {
        let n = if forward { cursor.next(p, ix, order) } else { cursor.prev(p, ix, order) };
        if n == 0 {
            break;
        }
        let part = (0..n).map(|i| (cursor.key(i).to_vec(), cursor.tid(i)));
        if forward { all.extend(part) } else { all.extend(part.rev()) }
    }
    if !forward {
        all.reverse();
    }
    all
}

struct Round<'a, O> {
    order: &'a O,
    kind: u64,
    forms: Forms,
    n: u64,
    bytes: usize,
    seed: u64,
    snapshots: bool,
    limited: bool,
}

impl<O: KeyOrder + Sync> Round<'_, O> {
    fn key(&self, i: u64) -> Vec<u8> {
        make_key(self.kind, i)
    }

    fn writer(&self, p: &Process, ix: Index, w: u64, stop: &AtomicBool) -> Model {
        let mut random = Random(self.seed ^ w << 32);
        let mut model = Model::new();
        let tid = |i: u64| STABLE + 8 * (1 + i) + w;
        let mut serial = 0;
        while !stop.load(Relaxed) {
            let (from, n) = (random.below(self.n), random.below(400));
            match random.below(6) {
                0 | 1 => {
                    let step = 1 + random.below(3);
                    for i in 0..n {
                        serial += 1;
                        let key = self.key((from + i * step) % self.n);
                        match ix.insert(p, self.order, &key, tid(serial)) {
                            Ok(new) => {
                                assert!(new);
                                model.insert((key, tid(serial)));
                            }
                            Err(InsertError::OutOfMemory(_)) => break,
                            Err(e) => panic!("{e}"),
                        }
                    }
                }
                2 | 3 => {
                    let first = (self.key(from), 0);
                    let some: Vec<_> = model
                        .range(first..)
                        .step_by(1 + random.below(3) as usize)
                        .take(n as usize)
                        .cloned()
                        .collect();
                    for entry in some {
                        assert!(ix.contains(p, self.order, &entry.0, entry.1), "{entry:?}");
                        assert!(ix.remove(p, self.order, &entry.0, entry.1), "{entry:?}");
                        assert!(!ix.contains(p, self.order, &entry.0, entry.1), "{entry:?}");
                        model.remove(&entry);
                    }
                }
                4 => {
                    for entry in model.range((self.key(from), 0)..).take(50) {
                        assert!(ix.contains(p, self.order, &entry.0, entry.1), "{entry:?}");
                    }
                    for i in from..(from + 50).min(self.n) {
                        assert!(!ix.contains(p, self.order, &self.key(i), tid(serial + 1)));
                    }
                }
                _ if random.below(10) == 0 => {
                    let keep = 1 + random.below(6);
                    let is_dead =
                        |t: Tid| t > STABLE && t % 8 == w && !(t / 8).is_multiple_of(keep);
                    let mut pass = Prune::new(p, ix);
                    while pass.next_leaf(&mut |tids, dead| {
                        tids.iter().zip(dead).for_each(|(&t, d)| *d = is_dead(t));
                    }) {}
                    let before = model.len();
                    model.retain(|&(_, t)| !is_dead(t));
                    assert_eq!(pass.counts().1 as usize, before - model.len());
                }
                _ => {}
            }
        }
        model
    }

    /// Shifts nodes, and does all else that a collector does. Returns how many shifted.
    fn collector(&self, p: &Process, ix: Index, stop: &AtomicBool) -> usize {
        let mut random = Random(self.seed);
        let mut sweep = Sweep::new(p, ix);
        let mut shifted = 0;
        while !stop.load(Relaxed) {
            match random.below(8) {
                0..4 => {
                    let most = random.below(64) as usize;
                    shifted += nodes::shift_nodes(&ix, p, most);
                }
                4 => shifted += nodes::shift_nodes(&ix, p, 0),
                5 => _ = ix.collect(p, 1 + random.below(3000) as usize),
                6 if random.below(8) == 0 => {
                    let _ = sweep.next_leaves(1 + random.below(60) as usize);
                }
                _ => {
                    let _section = ix.enter(p);
                    top::rebuild_top(&ix);
                }
            }
        }
        shifted
    }

    fn reader(&self, p: &Process, ix: Index, stable: &Model, forward: bool, stop: &AtomicBool) {
        while !stop.load(Relaxed) {
            let mut all = scan(p, ix, self.order, forward);
            assert!(all.windows(2).all(|two| two[0] < two[1]), "order, forward {forward}");
            all.retain(|e| e.1 == STABLE);
            assert!(all.iter().eq(stable), "forward {forward}: {} of {}", all.len(), stable.len());
            if self.snapshots {
                // Without memory they are lost.
                if let Ok(snapshot) = ix.create_snapshot(p, 1, &mut thread::yield_now) {
                    ix.release(p, snapshot);
                }
            }
        }
    }

    /// Runs writers, readers and a collector for a while. The writers' entries go to the model.
    /// Says how many nodes were shifted.
    fn all_at_once(
        &self,
        ix: Index,
        stable: &Model,
        model: &mut Model,
        process: &(impl Fn(u32) -> Process + Sync),
    ) -> usize {
        let stop = &AtomicBool::new(false);
        thread::scope(|scope| {
            let writers: Vec<_> = (1..3u32)
                .map(|w| scope.spawn(move || self.writer(&process(w), ix, w.into(), stop)))
                .collect();
            let collector = scope.spawn(move || self.collector(&process(3), ix, stop));
            for r in 4..6u32 {
                scope.spawn(move || self.reader(&process(r), ix, stable, r == 4, stop));
            }
            thread::sleep(Duration::from_millis(300));
            stop.store(true, Relaxed);
            for writer in writers {
                model.extend(writer.join().unwrap());
            }
            collector.join().unwrap()
        })
    }

    fn run(&self) {
        let mapping = Mapping::new(self.bytes, 6);
        let area = *mapping;
        // SAFETY: each slot is used by one process at a time.
        let process = |slot| unsafe { Process::attach(area, slot) };
        let p = process(0);
        let empty = area.usage().used;
        let options = IndexOptions { fillfactor: 10, ..IndexOptions::default() };
        let ix = Index::create(&p, &options).unwrap();
        ix.force(Forms::Slots);
        let stable: Model = (0..self.n).step_by(3).map(|i| (self.key(i), STABLE)).collect();
        let mut builder = Builder::new(&p, ix);
        stable.iter().for_each(|(key, tid)| builder.push(self.order, key, *tid).unwrap());
        adopt::adopt(&ix, &p, vec![builder.finish().unwrap()]).unwrap();
        ix.force(self.forms);
        let first = ix.stats();
        if self.limited {
            let limit = first.bytes as u64 + self.seed * 7919 * 4096 % (1 << 19);
            // SAFETY: no accounts.
            unsafe {
                ix.charge_to(
                    &p,
                    &crate::Charge { limit, ..crate::memory::charge::Charge::default() },
                )
            };
        }
        let mut model = stable.clone();
        let shifted = self.all_at_once(ix, &stable, &mut model, &process);
        let what = format!(
            "kind {} seed {} built {:?} shifted {shifted} {:?}",
            self.kind,
            self.seed,
            first.blocks,
            ix.stats()
        );
        let check = |model: &Model| {
            for forward in [true, false] {
                let all = scan(&p, ix, self.order, forward);
                assert!(all.iter().eq(model), "forward {forward}, {what}");
            }
            match ix.verify(&p, self.order, true, &mut |_, _| ()) {
                // Where there is no memory a promotion has to wait.
                Err(v) if v.what.contains("no separator") => (),
                Err(v) => panic!("{v}, {what}"),
                Ok(_) => (),
            }
        };
        check(&model);
        for most in [60, 0, 60] {
            nodes::shift_nodes(&ix, &p, most);
            collector::collect_all(&ix, &p);
        }
        check(&model);
        for _ in 0..3 {
            let mut sweep = Sweep::new(&p, ix);
            let mut calls = 0;
            while sweep.next_leaves(50) == Swept::More {
                calls += 1;
                assert!(calls < 100_000, "{what}");
            }
            collector::collect_all(&ix, &p);
        }
        check(&model);
        let mut pass = Prune::new(&p, ix);
        while pass.next_leaf(&mut |_, dead| dead.fill(true)) {}
        assert_eq!(pass.counts().1, model.len() as u64);
        (0..4).for_each(|_| collector::collect_all(&ix, &p));
        check(&Model::new());
        let left = ix.stats();
        assert_eq!((left.garbage, left.dirty), (0, 0), "{left:?}");
        assert!(left.bytes <= 120 << 10, "{left:?} of {what}");
        // SAFETY: no other process or thread uses it.
        unsafe { ix.destroy(&p) };
        assert_eq!(area.usage().used, empty);
    }
}

fn rounds(comparator: bool) {
    let start = Instant::now();
    let mut seed = 0;
    while start.elapsed().as_secs() < seconds() {
        seed += 1;
        let mut random = Random(seed);
        let kind = seed % KINDS;
        let n = match kind {
            0 | 4 | 5 => 30_000,
            6 => 3000,
            _ => 14_000,
        };
        let forms =
            [Forms::Slots, Forms::Slots, Forms::Best, Forms::Mixed][random.below(4) as usize];
        let bytes = 256 << 20;
        let snapshots = random.below(3) == 0;
        if comparator {
            let order = &Compared(random.below(2) == 0);
            Round { order, kind, forms, n, bytes, seed, snapshots, limited: seed % 4 == 0 }.run();
        } else {
            Round {
                order: &Memcmp,
                kind,
                forms,
                n,
                bytes,
                seed,
                snapshots,
                limited: seed % 4 == 0,
            }
            .run();
        }
    }
}

#[test]
fn byte_order() {
    rounds(false);
}

#[test]
fn under_a_comparator() {
    rounds(true);
}
