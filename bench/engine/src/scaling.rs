//! What docs/scaling.md counts with: the cost of the steps that become more, or wait for each
//! other, with more processors, processes, indexes and entries.

use crate::keys::{Rows, key};
use crate::measure::{Rates, time, together};
use crate::nitro::Room;
use nitro_engine::prelude::*;
use nitro_engine::{Area, Builder, Index, IndexOptions, Memcmp, Process, Sweep, Swept};
use std::hint::black_box;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Process slots of an area, as of a server with `max_connections = 4000`.
const SLOTS: u32 = 4096;
/// Slots whose lines another processor has.
const FOREIGN: u32 = 1024;
const OPTIONS: IndexOptions = IndexOptions { fillfactor: 100, key_len_hint: 8 };

fn attach(area: Area, slot: u32) -> Process {
    // SAFETY: each caller has slots of its own, and one value for each at a time.
    unsafe { Process::attach(area, slot) }
}

/// How many samples.
struct Samples(u64);

impl Samples {
    /// The least of them: what disturbs only adds.
    fn least(&self, what: &str, unit: &str, sample: impl FnMut() -> f64) {
        let least = std::iter::repeat_with(sample).take(self.0 as usize).fold(f64::MAX, f64::min);
        println!("| {what} | {least:.3} | {unit} |");
    }

    /// The largest of ten times as many: of two threads, which did not always run at the same time.
    fn most(&self, what: &str, unit: &str, sample: impl FnMut() -> f64) {
        let most = std::iter::repeat_with(sample).take(10 * self.0 as usize).fold(0.0, f64::max);
        println!("| {what} | {most:.3} | {unit} |");
    }
}

pub fn run(rows: u64, repetitions: u64) {
    println!(
        "{rows} entries; the least of {repetitions}; of two processors the most of ten times as many\n\n| what | costs | |\n| --- | --- | --- |"
    );
    let samples = &Samples(repetitions);
    barrier(samples);
    word(samples);
    structure(samples, rows);
}

/// Sections, and who waits for them.
fn barrier(samples: &Samples) {
    let (area, _room) = Room::with_area(64 << 20, SLOTS);
    let processes: Vec<_> = (0..SLOTS).map(|slot| attach(area, slot)).collect();
    let index = Index::create(&processes[0], &OPTIONS).expect("room for the root");
    let root = index.root();
    let n = 10_000_000;
    samples.least("a section, entered and left", "ns", || {
        let seconds = time(|| {
            for _ in 0..n {
                drop(black_box(processes[0].enter_index(root)));
            }
        });
        seconds * 1e9 / n as f64
    });
    let scan = |area: Area| {
        let fence = area.token_fence();
        time(|| assert!(area.older_tokens(root, fence, |_| true).next().is_none())) * 1e9
    };
    samples.least("a scan of all slots that are in the cache", "ns a slot", || {
        scan(area);
        scan(area) / f64::from(SLOTS)
    });
    drop(processes);

    let (area, _room) = Room::with_area(64 << 20, FOREIGN);
    samples.most("a scan of slots that another processor has written", "ns a slot", || {
        let written = Barrier::new(2);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for slot in 0..FOREIGN {
                    drop(attach(area, slot).enter());
                }
                written.wait();
            });
            written.wait();
            scan(area) / f64::from(FOREIGN)
        })
    });
}

/// A word on which one processor counts, or two.
fn word(samples: &Samples) {
    let n = 1_000_000;
    let count = |threads: u64| {
        let word = AtomicU64::new(0);
        let add = |_| {
            for _ in 0..n {
                black_box(word.fetch_add(1, Relaxed));
            }
        };
        threads as f64 * 1e3 / Rates::of(&together(threads, add), n).processor
    };
    samples.least("counting on one word, alone", "ns", || count(1));
    samples.most("counting on one word beside another processor", "ns", || count(2));
}

/// What takes as long as there are leaves or index nodes.
fn structure(samples: &Samples, n: u64) {
    let (area, _room) = Room::with_area(n as usize * 80 + (64 << 20), 4);
    let p = attach(area, 0);
    let insert = |index: Index, i: u64| {
        index.insert(&p, &Memcmp, &key(i).to_be_bytes(), i).expect("room for the entry");
    };
    let each = |seconds: f64, n: u64| seconds * 1e9 / n as f64;

    let index = Index::create(&p, &OPTIONS).expect("room for the root");
    (0..n).for_each(|i| insert(index, i));
    let [leaves, nodes, _] = index.stats().blocks.map(u64::from);
    println!("| entries of a leaf that grew by inserts | {:.1} | |", n as f64 / leaves as f64);
    println!("| leaves of an index node | {:.1} | |", leaves as f64 / nodes as f64);
    samples.least("a rebuild of the flat top", "ns an index node", || {
        let seconds = time(|| assert!(nitro_engine::measured_rebuild(&index, &p)));
        index.collect(&p, 1);
        each(seconds, nodes)
    });

    // While a snapshot sees them, entries that are removed stay.
    for (what, every, seen) in
        [("that a snapshot has kept", 50, true), ("that lose half, and are merged", 2, false)]
    {
        let snapshot = seen.then(|| {
            index.create_snapshot(&p, 1, &mut || ()).expect("the only one, and nobody writes")
        });
        for i in (every / 2..n).step_by(every as usize) {
            index.remove(&p, &Memcmp, &key(i).to_be_bytes(), i);
        }
        let mut visited = 0;
        let seconds = time(|| {
            if let Some(snapshot) = snapshot {
                index.release(&p, snapshot);
            }
            while let Some(more @ 1..) = index.collect(&p, 1000) {
                visited += more as u64;
            }
        });
        println!("| the collector on leaves {what} | {:.3} | ns a leaf |", each(seconds, visited));
    }
    let left = index.stats().live;
    let mut sweep = Sweep::new(&p, index);
    let seconds = time(|| while sweep.next_leaves(1000) == Swept::More {});
    println!("| the sweep of VACUUM | {:.3} | ns an entry |", each(seconds, left));
    // SAFETY: nobody else uses it.
    unsafe { index.destroy(&p) };

    let mut sorted: Vec<u64> = (0..n).map(key).collect();
    sorted.sort_unstable();
    let index = Index::create(&p, &OPTIONS).expect("room for the root");
    let mut builder = Builder::new(&p, index);
    let seconds = time(|| {
        for (i, key) in sorted.iter().enumerate() {
            builder.push(&Memcmp, &key.to_be_bytes(), i as u64).expect("sorted entries");
        }
    });
    println!("| a build from sorted entries | {:.3} | ns an entry |", each(seconds, n));
    let chain = builder.finish().expect("room for the last nodes");
    let seconds = time(|| nitro_engine::adopt(&index, &p, vec![chain]).expect("an empty index"));
    let [leaves, nodes, _] = index.stats().blocks.map(u64::from);
    println!("| what it built becomes the index | {:.3} | ns a leaf |", each(seconds, leaves));
    println!("| entries of a packed leaf | {:.1} | |", n as f64 / leaves as f64);
    println!("| bytes of a packed entry | {:.2} | |", index.stats().bytes as f64 / n as f64);
    println!("| packed leaves of an index node | {:.1} | |", leaves as f64 / nodes as f64);

    let lookups = 1_000_000;
    samples.least("a look-up in packed leaves (contains)", "ns", || {
        let seconds = time(|| {
            for i in Rows::new(1, n).take(lookups) {
                let rank = sorted[i as usize];
                assert!(index.contains(&p, &Memcmp, &rank.to_be_bytes(), i));
            }
        });
        each(seconds, lookups as u64)
    });
}
