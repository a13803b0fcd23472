//! One engine in one process: every sample is printed as a line `measure value`.

use crate::engine::{Engine, GROUP};
use crate::keys::{Rows, key, tid};
use std::hint::black_box;

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

/// Seconds of processor time that `f` takes, in the kernel too. On a machine that does something else
/// besides, elapsed time would say more about that.
fn time(f: impl FnOnce()) -> f64 {
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
pub fn random<E: Engine>(plan: &Plan) {
    let n = plan.rows;
    let mut e = E::new(n);
    let before = resident();
    millions("insert", n, || {
        for i in 0..n {
            e.insert(key(i), tid(i));
        }
    });
    sample("bytes", (resident() - before) as f64 / n as f64);

    for repetition in 0..plan.repetitions {
        let rows = |seed, n| Rows::new(seed + 100 * repetition, n);
        millions("hit", plan.lookups, || {
            for i in rows(1, n).take(plan.lookups as usize) {
                assert!(black_box(e.get(key(i))) == Some(tid(i)));
            }
        });
        millions("miss", plan.lookups, || {
            for i in rows(2, n).take(plan.lookups as usize) {
                assert!(black_box(e.get(key(n + i))).is_none());
            }
        });
        millions("batch", plan.lookups, || {
            let mut rows = rows(3, n);
            for _ in 0..plan.lookups / GROUP as u64 {
                let keys = std::array::from_fn(|_| key(rows.next().unwrap_or(0)));
                assert!(e.get_group(&keys) == GROUP);
            }
        });
        let seeks = plan.lookups / 8;
        millions("seek", seeks, || {
            for i in rows(5, n).take(seeks as usize) {
                black_box(e.seek(key(i), SEEK));
            }
        });
        scans("scan", "back", &mut e, n);
    }
}

fn scans<E: Engine>(forward: &str, backward: &str, e: &mut E, n: u64) {
    let want = (n, (0..n).fold(0u64, |sum, i| sum.wrapping_add(tid(i))));
    let entry = |measure, seconds: f64| sample(measure, seconds * 1e9 / n as f64);
    entry(forward, time(|| assert!(e.scan() == want)));
    entry(backward, time(|| assert!(e.scan_back() == want)));
}

/// Keys that come in ascending order.
pub fn ascending<E: Engine>(plan: &Plan) {
    let n = plan.rows;
    let mut e = E::new(n);
    let before = resident();
    millions("ascending", n, || {
        for i in 0..n {
            e.insert(i << 20, tid(i));
        }
    });
    sample("ascending-bytes", (resident() - before) as f64 / n as f64);
    assert!(e.get((n - 1) << 20) == Some(tid(n - 1)));
}

/// Bottom up from sorted entries.
pub fn bulk<E: Engine>(plan: &Plan) {
    let mut sorted: Vec<_> = (0..plan.rows).map(|i| (key(i), tid(i))).collect();
    sorted.sort_unstable();
    let before = resident();
    let mut built = None;
    let seconds = time(|| built = E::build(&sorted));
    let Some(mut e) = built else { return };
    sample("bulk", plan.rows as f64 / seconds / 1e6);
    sample("bulk-bytes", (resident() - before) as f64 / plan.rows as f64);
    drop(sorted);
    for _ in 0..plan.repetitions {
        scans("bulk-scan", "bulk-back", &mut e, plan.rows);
    }
}
