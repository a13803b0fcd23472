//! One engine in one process: every sample is printed as a line `measure value`.

use crate::engine::{Engine, Thread};
use crate::keys::{Key, Rows, random as random_key, tid};
use std::hint::black_box;
use std::sync::Barrier;
use std::time::Instant;

const SEEK: usize = 100;

/// How much to do.
pub struct Plan {
    /// Entries.
    pub rows: u64,
    /// Lookups in one repetition.
    pub lookups: u64,
    /// Repetitions of the read measures.
    pub repetitions: u64,
}

fn sample(measure: &str, value: f64) {
    println!("{measure} {value}");
}

/// Seconds of processor time that `f` takes, in the kernel too. On a machine that does something
/// else besides, elapsed time would say more about that.
pub fn time(f: impl FnOnce()) -> f64 {
    let begin = processor_time();
    f();
    processor_time() - begin
}

fn processor_time() -> f64 {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes the struct.
    let failed = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut t) };
    assert!(failed == 0, "no clock");
    t.tv_sec as f64 + t.tv_nsec as f64 / 1e9
}

fn millions(measure: &str, n: u64, f: impl FnOnce()) {
    sample(measure, n as f64 / time(f) / 1e6);
}

/// Resident memory of this process, shared mappings too.
fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("a /proc file system");
    let pages: u64 = statm.split(' ').nth(1).and_then(|n| n.parse().ok()).expect("two numbers");
    // SAFETY: asks for a constant.
    pages * unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as u64
}

/// Random inserts into an empty structure, then everything that reads it.
pub fn random<K: Key, E: Engine<K>>(plan: &Plan) {
    let n = plan.rows;
    let e = E::new(n);
    let mut thread = e.thread(0);
    let before = resident();
    millions("insert", n, || insert(&mut thread, 1, 0, n));
    sample("bytes", (resident() - before) as f64 / n as f64);

    for repetition in 0..plan.repetitions {
        let rows = |seed, n| Rows::new(seed + 100 * repetition, n);
        millions("hit", plan.lookups, || look_up(&mut thread, plan.lookups, rows(1, n)));
        millions("miss", plan.lookups, || {
            for i in rows(2, n).take(plan.lookups as usize) {
                assert!(black_box(thread.get(&random_key(n + i))).is_none());
            }
        });
        let seeks = plan.lookups / 8;
        millions("seek", seeks, || {
            for i in rows(5, n).take(seeks as usize) {
                black_box(thread.seek(&random_key(i), SEEK));
            }
        });
        scans("scan", "back", &mut thread, n);
    }

    if thread.pack() {
        for repetition in 0..plan.repetitions {
            let rows = Rows::new(4 + 100 * repetition, n);
            millions("packed-hit", plan.lookups, || look_up(&mut thread, plan.lookups, rows));
            scans("packed-scan", "packed-back", &mut thread, n);
        }
    }
}

fn scans<K: Key>(forward: &str, backward: &str, thread: &mut impl Thread<K>, n: u64) {
    let want = (n, (0..n).fold(0u64, |sum, i| sum.wrapping_add(tid(i))));
    let entry = |measure, seconds: f64| sample(measure, seconds * 1e9 / n as f64);
    entry(forward, time(|| assert!(thread.scan() == want)));
    entry(backward, time(|| assert!(thread.scan_back() == want)));
}

/// Keys that come in ascending order.
pub fn ascending<K: Key, E: Engine<K>>(plan: &Plan) {
    let n = plan.rows;
    let e = E::new(n);
    let mut thread = e.thread(0);
    let before = resident();
    millions("ascending", n, || {
        for i in 0..n {
            thread.insert(K::of(i << 20), tid(i));
        }
    });
    sample("ascending-bytes", (resident() - before) as f64 / n as f64);
    assert!(thread.get(&K::of((n - 1) << 20)) == Some(tid(n - 1)));
}

/// Bottom up from sorted entries.
pub fn bulk<K: Key, E: Engine<K>>(plan: &Plan) {
    let mut sorted: Vec<_> = (0..plan.rows).map(|i| (random_key(i), tid(i))).collect();
    sorted.sort_unstable();
    let before = resident();
    let mut built = None;
    let seconds = time(|| built = E::build(&sorted));
    let Some(e) = built else { return };
    sample("bulk", plan.rows as f64 / seconds / 1e6);
    sample("bulk-bytes", (resident() - before) as f64 / plan.rows as f64);
    drop(sorted);
    let mut thread = e.thread(0);
    for _ in 0..plan.repetitions {
        scans("bulk-scan", "bulk-back", &mut thread, plan.rows);
    }
}

/// One thread and two: random inserts into one structure, then look-ups in it.
pub fn threads<K: Key, E: Engine<K>>(plan: &Plan) {
    let n = plan.rows;
    let report = |measure: &str, threads: u64, rates: Rates| {
        sample(&format!("{measure}-{threads}"), rates.processor);
        sample(&format!("{measure}-{threads}-elapsed"), rates.elapsed);
    };
    report("insert", 1, insert_together(&E::new(n), 1, n));
    let e = E::new(n);
    report("insert", 2, insert_together(&e, 2, n));
    for repetition in 0..plan.repetitions {
        for threads in [1, 2] {
            let rates = look_up_together(&e, threads, plan.lookups, n, repetition);
            report("hit", threads, rates);
        }
    }
}

/// What one thread took.
pub struct Took {
    processor: f64,
    elapsed: f64,
}

/// Millions a second of some threads together.
#[derive(Clone, Copy)]
pub struct Rates {
    /// The sum of what each did in a second of its processor.
    pub processor: f64,
    /// By the clock.
    pub elapsed: f64,
}

impl Rates {
    /// Where each did `share` of something.
    pub fn of(all: &[Took], share: u64) -> Rates {
        let share = share as f64 / 1e6;
        let longest = all.iter().fold(0f64, |longest, took| longest.max(took.elapsed));
        Rates {
            processor: all.iter().map(|took| share / took.processor).sum(),
            elapsed: share * all.len() as f64 / longest,
        }
    }
}

/// Threads that begin together and do what belongs to their number.
pub fn together(threads: u64, work: impl Fn(u64) + Sync) -> Vec<Took> {
    let ready = Barrier::new(threads as usize);
    let (work, ready) = (&work, &ready);
    std::thread::scope(|scope| {
        let spawn = |number| {
            scope.spawn(move || {
                ready.wait();
                let begin = Instant::now();
                let processor = time(|| work(number));
                Took { processor, elapsed: begin.elapsed().as_secs_f64() }
            })
        };
        let all: Vec<_> = (0..threads).map(spawn).collect();
        all.into_iter().map(|thread| thread.join().expect("a thread")).collect()
    })
}

/// Threads insert rows `0..n`, each every so many.
fn insert_together<K: Key, E: Engine<K>>(e: &E, threads: u64, n: u64) -> Rates {
    let all = together(threads, |number| insert(&mut e.thread(number as u32), threads, number, n));
    Rates::of(&all, n / threads)
}

/// Inserts every so many rows of `0..n`.
pub fn insert<K: Key>(thread: &mut impl Thread<K>, every: u64, from: u64, n: u64) {
    for i in (from..n).step_by(every as usize) {
        thread.insert(random_key(i), tid(i));
    }
}

/// Threads look up `lookups` keys of `n`, each its share.
fn look_up_together<K: Key, E: Engine<K>>(
    e: &E,
    threads: u64,
    lookups: u64,
    n: u64,
    seed: u64,
) -> Rates {
    let share = lookups / threads;
    let all = together(threads, |number| {
        look_up(&mut e.thread(number as u32), share, Rows::new(100 * seed + number, n));
    });
    Rates::of(&all, share)
}

/// Looks up rows that are there.
pub fn look_up<K: Key>(thread: &mut impl Thread<K>, lookups: u64, rows: Rows) {
    for i in rows.take(lookups as usize) {
        assert!(black_box(thread.get(&random_key(i))) == Some(tid(i)));
    }
}
