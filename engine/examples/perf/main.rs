//! One run of the engine's basic operations, alone: `cargo run --release --example perf [entries
//! [case [slots]]]`; with `slots` no leaf is packed. `make bench-check` counts the instructions of
//! each.

mod batches;
#[path = "../common/mod.rs"]
mod common;

use batches::batches;
use common::{area, cpu, mix};
use nitro_engine::adopt;
use nitro_engine::prelude::*;
use nitro_engine::{
    Builder, Cursor, Forms, Index, IndexOptions, MOST_OF_LEAF, Memcmp, Process, Prune, Rest,
    Segments, Sweep, Swept, TOGETHER, Tid,
};
use std::hint::black_box;
use std::time::Instant;

const LETTERS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
const CURRENT: u32 = u32::MAX - 1;

/// A function of its own: whoever counts instructions knows it by its name.
#[inline(never)]
fn time(what: &str, n: u64, f: impl FnOnce()) {
    let (start, used) = (Instant::now(), cpu());
    f();
    let ns = start.elapsed().as_nanos() as f64 / n as f64;
    let used = (cpu() - used) / n as f64;
    println!(
        "{what:<20} {n:>8} times {used:8.1} ns on the processor, {ns:8.1} ns in all, {:7.2} M/s",
        1e3 / used
    );
}

/// What one dependent access to memory costs here, with the working set of `n` entries.
fn chase(n: u64) {
    let lines = (n * 40 / 64) as usize;
    let mut next: Vec<[u32; 16]> = vec![[0; 16]; lines];
    let mut order: Vec<u32> = (0..lines as u32).collect();
    for i in (1..lines).rev() {
        order.swap(i, mix(i as u64) as usize % i);
    }
    for i in 0..lines {
        next[order[i] as usize][0] = order[(i + 1) % lines];
    }
    let mut at = 0;
    time("chase", 2_000_000, || {
        for _ in 0..2_000_000 {
            at = next[at as usize][0];
        }
    });
    black_box(at);
}

fn print_density(ix: &Index) {
    let stats = ix.stats();
    println!("{:.1} bytes/entry, {:?}", stats.bytes as f64 / stats.live as f64, stats.blocks);
}

fn sweep(p: &Process, ix: &Index) {
    let mut sweep = Sweep::new(p, *ix);
    while sweep.next_leaves(1000) == Swept::More {}
    ix.collect_in_steps(p, 1000, || ());
}

/// What aggregates and nested loops call.
fn leaves_and_ranges(p: &Process, ix: Index, n: u64, key: &dyn Fn(u64, &mut Vec<u8>)) {
    let mut k = Vec::new();
    key(0, &mut k);
    let mut tids = [0; MOST_OF_LEAF];
    let (mut firsts, mut eights) = ([0; MOST_OF_LEAF], [0; MOST_OF_LEAF]);
    for (what, numbers) in [("leaf-wise", false), ("leaf-wise, numbers", true)] {
        // Where they are short, keys are numbers.
        if numbers && k.len() > 9 {
            continue;
        }
        let mut cursor = Cursor::new(false);
        time(what, n, || {
            cursor.set_range(&[], None, CURRENT);
            let (mut seen, mut sum) = (0, 0u64);
            loop {
                let m = cursor.next(p, ix, &Memcmp);
                if m == 0 {
                    break;
                }
                let segments = numbers.then_some(Segments {
                    fixed: &[],
                    at: 0,
                    len: |_| 8,
                    firsts: &mut firsts,
                    eights: &mut eights,
                    alike: None,
                });
                let mut rest = Rest { tids: &mut tids, segments };
                let rest = cursor.rest_of_leaf(true, &[], p, ix, &Memcmp, &mut rest);
                cursor.read_few(rest > 0);
                seen += m + rest;
                sum = sum.wrapping_add(tids[0] + eights[0]);
            }
            black_box(sum);
            assert_eq!(seen as u64, n);
        });
    }
    let mut cursors: Vec<_> = (0..TOGETHER).map(|_| Box::new(Cursor::new(false))).collect();
    let (rounds, mut upper) = (n.min(3_000_000) / TOGETHER as u64, Vec::new());
    time("ranges together", rounds * TOGETHER as u64, || {
        for round in 0..rounds {
            for (i, cursor) in cursors.iter_mut().enumerate() {
                key(mix(round * TOGETHER as u64 + i as u64 + 31) % n, &mut k);
                upper.clear();
                upper.extend_from_slice(&k);
                upper.push(0);
                cursor.set_range(&k, Some(&upper), CURRENT);
            }
            Cursor::first_of_each(&mut cursors, 64, p, ix, &Memcmp);
            assert!(cursors.iter().all(|cursor| cursor.len() == 1));
        }
    });
}

fn run(p: &Process, name: &str, n: u64, key: &dyn Fn(u64, &mut Vec<u8>)) {
    println!("--- {name}");
    let ix = Index::create(p, &IndexOptions { fillfactor: 90, key_len_hint: 0 }).unwrap();
    if std::env::args().nth(3).is_some_and(|forms| forms == "slots") {
        ix.force(Forms::Slots);
    }
    let mut k = Vec::new();
    time("insert", n, || {
        for i in 0..n {
            key(i, &mut k);
            ix.insert(p, &Memcmp, &k, i & 0xffff_ffff).unwrap();
        }
    });
    let density = || print_density(&ix);
    density();
    time("sweep", n, || sweep(p, &ix));
    density();
    let lookups = n.min(3_000_000);
    time("contains", lookups, || {
        for j in 0..lookups {
            let i = mix(j + 77) % n;
            key(i, &mut k);
            assert!(ix.contains(p, &Memcmp, &k, i & 0xffff_ffff));
        }
    });
    let mut cursor = Cursor::new(false);
    let mut upper = Vec::new();
    time("cursor equality", lookups, || {
        for j in 0..lookups {
            let i = mix(j + 99) % n;
            key(i, &mut k);
            upper.clear();
            upper.extend_from_slice(&k);
            upper.push(0);
            cursor.set_range(&k, Some(&upper), CURRENT);
            assert_eq!(cursor.next(p, ix, &Memcmp), 1);
        }
    });
    time("seek + 100", lookups / 10, || {
        for j in 0..lookups / 10 {
            key(mix(j + 99) % n, &mut k);
            cursor.set_range(&k, None, CURRENT);
            let mut seen = 0;
            while seen < 100 {
                match cursor.next(p, ix, &Memcmp) {
                    0 => break,
                    m => seen += m,
                }
            }
        }
    });
    for (what, keys, forward) in
        [("scan", false, true), ("scan backward", false, false), ("scan with keys", true, true)]
    {
        let mut cursor = Cursor::new(keys);
        time(what, n, || {
            cursor.set_range(&[], None, CURRENT);
            let mut sum = 0;
            let mut seen = 0;
            loop {
                let m =
                    if forward { cursor.next(p, ix, &Memcmp) } else { cursor.prev(p, ix, &Memcmp) };
                if m == 0 {
                    break;
                }
                seen += m;
                for i in 0..m {
                    sum += cursor.tid(i);
                }
            }
            black_box(sum);
            assert_eq!(seen as u64, n);
        });
    }
    leaves_and_ranges(p, ix, n, key);
    // A tenth of them, so that some leaves are cut.
    for (what, rows) in
        [("insert, 1st percent", n..n + n / 100), ("insert, ten percent", n + n / 100..n + n / 10)]
    {
        time(what, rows.end - rows.start, || {
            for i in rows {
                key(i, &mut k);
                ix.insert(p, &Memcmp, &k, i & 0xffff_ffff).unwrap();
            }
        });
    }
    density();
    for (what, step) in [("cursor remove, 1/50", 50), ("cursor remove, 1/2", 2)] {
        let mut cursor = Cursor::new(true);
        time(what, n / step, || {
            cursor.set_range(&[], None, CURRENT);
            loop {
                let m = cursor.next(p, ix, &Memcmp);
                let of = |i: &u16| mix(cursor.tid(*i as usize)).is_multiple_of(step);
                let which: Vec<u16> = (0..m as u16).filter(of).collect();
                if m == 0 {
                    break;
                }
                cursor.remove(p, ix, &which);
            }
        });
    }
    density();
    time("remove the rest", lookups, || {
        for i in 0..lookups {
            key(i, &mut k);
            ix.remove(p, &Memcmp, &k, i & 0xffff_ffff);
        }
    });
    // SAFETY: no other process uses it.
    unsafe { ix.destroy(p) };
}

/// The TID of a row: two hundred rows a page.
fn tid(row: u64) -> Tid {
    (row / 200) << 16 | (row % 200 + 1)
}

/// The entries of `n` rows, sorted.
fn entries(n: u64, key: &dyn Fn(u64, &mut Vec<u8>)) -> Vec<(Vec<u8>, Tid)> {
    let mut k = Vec::new();
    let mut all: Vec<_> = (0..n)
        .map(|i| {
            key(i, &mut k);
            (k.clone(), tid(i))
        })
        .collect();
    all.sort();
    all
}

/// The first twentieth of entries that comes into an index just built: new keys, or second versions
/// of rows here and there.
fn just_built(p: &Process, name: &str, n: u64, key: &dyn Fn(u64, &mut Vec<u8>)) {
    println!("--- just built, {name}");
    let mut k = Vec::new();
    let all = entries(n, key);
    for (what, new) in [("new keys", true), ("second versions", false)] {
        let ix = Index::create(p, &IndexOptions { fillfactor: 90, key_len_hint: 0 }).unwrap();
        let mut builder = Builder::new(p, ix);
        all.iter().for_each(|(key, tid)| builder.push(&Memcmp, key, *tid).unwrap());
        adopt(&ix, p, vec![builder.finish().unwrap()]).unwrap();
        time(what, n / 20, || {
            for i in n..n + n / 20 {
                key(if new { i } else { mix(i) % n }, &mut k);
                ix.insert(p, &Memcmp, &k, tid(i)).unwrap();
            }
        });
        print_density(&ix);
        // SAFETY: no other process uses it.
        unsafe { ix.destroy(p) };
    }
}

/// What VACUUM and CREATE INDEX do: a build, a new version of each row, its `again`-th key, the old
/// versions removed, a sweep.
fn upkeep(p: &Process, name: &str, n: u64, again: u64, key: &dyn Fn(u64, &mut Vec<u8>)) {
    println!("--- upkeep, {name}");
    let ix = Index::create(p, &IndexOptions { fillfactor: 90, key_len_hint: 0 }).unwrap();
    let mut k = Vec::new();
    let all = entries(n, key);
    let density = || print_density(&ix);
    time("build", n, || {
        let mut builder = Builder::new(p, ix);
        for (key, tid) in &all {
            builder.push(&Memcmp, key, *tid).unwrap();
        }
        adopt(&ix, p, vec![builder.finish().unwrap()]).unwrap();
    });
    density();
    time("new versions", n, || {
        for i in 0..n {
            key(again + i, &mut k);
            ix.insert(p, &Memcmp, &k, tid(n + i)).unwrap();
        }
    });
    density();
    time("bulk delete", n, || {
        let mut pass = Prune::new(p, ix);
        let mut old = |tids: &[Tid], dead: &mut [bool]| {
            tids.iter().zip(dead).for_each(|(&tid_of, dead)| *dead = tid_of < tid(n));
        };
        while pass.next_leaf(&mut old) {}
    });
    density();
    time("sweep", n, || sweep(p, &ix));
    density();
    assert_eq!(ix.stats().live, n);
    // SAFETY: no other process uses it.
    unsafe { ix.destroy(p) };
}

fn main() {
    let n: u64 = std::env::args().nth(1).and_then(|s| s.parse().ok()).unwrap_or(10_000_000);
    let only = std::env::args().nth(2);
    let area = area(8 << 30);
    // SAFETY: the only process.
    let p = unsafe { Process::attach(area, 0) };
    chase(n);
    type MakeKey = Box<dyn Fn(u64, &mut Vec<u8>)>;
    let cases: Vec<(&str, u64, MakeKey)> = vec![
        (
            "random8",
            n,
            Box::new(|i, k| {
                k.clear();
                k.extend_from_slice(&mix(i).to_be_bytes());
            }),
        ),
        (
            "random9",
            n,
            Box::new(|i, k| {
                k.clear();
                k.push(1);
                k.extend_from_slice(&mix(i).to_be_bytes());
            }),
        ),
        (
            "ascending8",
            n,
            Box::new(|i, k| {
                k.clear();
                k.extend_from_slice(&i.to_be_bytes());
            }),
        ),
        (
            "ascending9",
            n,
            Box::new(|i, k| {
                k.clear();
                k.push(1);
                k.extend_from_slice(&i.to_be_bytes());
            }),
        ),
        (
            "text25",
            n / 2,
            Box::new(|i, k| {
                k.clear();
                k.extend_from_slice(format!("{:016x}{:09}", mix(i), i).as_bytes());
            }),
        ),
        (
            // Of few letters, and an end, as the server's texts have.
            "text129",
            n / 5,
            Box::new(|i, k| {
                k.clear();
                k.extend((0..128).map(|j| b'a' + (mix(i + j / 16) >> (j % 16 * 4) & 15) as u8));
                k.push(0);
            }),
        ),
        // Of many bytes in common, more than an index node spares: leaves tell the rest of a
        // separator.
        (
            "common100",
            n / 5,
            Box::new(|i, k| {
                k.clear();
                k.resize(100, b'p');
                k.extend_from_slice(&mix(i).to_be_bytes());
            }),
        ),
        (
            "common300",
            n / 5,
            Box::new(|i, k| {
                k.clear();
                k.resize(300, b'p');
                k.extend_from_slice(&mix(i).to_be_bytes());
            }),
        ),
    ];
    for (name, n, key) in &cases {
        if only.as_ref().is_none_or(|only| only == name) {
            run(&p, name, *n, key);
        }
    }
    for (name, n, key) in &cases {
        if only.as_ref().is_none_or(|only| only == "upkeep") {
            // What ascends is the number of a row, which stays.
            let again = if name.starts_with("ascending") { 0 } else { *n };
            upkeep(&p, name, *n, again, key);
        }
    }
    let letters = |i: u64, k: &mut Vec<u8>| {
        k.clear();
        k.extend((0..25).map(|at| LETTERS[(mix(i * 32 + at) % 62) as usize]));
        k.push(0);
    };
    // As the server's texts.
    let text: (_, _, MakeKey) = ("text26", n / 2, Box::new(letters));
    for (name, n, key) in cases.iter().chain([&text]) {
        let counted = ["random8", "random9", "text25", "text26"].contains(name);
        if counted && only.as_ref().is_none_or(|only| only == "built") {
            just_built(&p, name, *n, key);
        }
        let counted = ["random9", "text26"].contains(name);
        if counted && only.as_ref().is_none_or(|only| only == "batches") {
            batches(&p, name, *n, key);
        }
    }
    if only.is_none_or(|only| only == "build") {
        println!("--- bottom-up build, ascending8");
        let ix = Index::create(&p, &IndexOptions { fillfactor: 100, key_len_hint: 8 }).unwrap();
        time("build", n, || {
            let mut builder = Builder::new(&p, ix);
            for i in 0..n {
                builder.push(&Memcmp, &i.to_be_bytes(), i).unwrap();
            }
            adopt(&ix, &p, vec![builder.finish().unwrap()]).unwrap();
        });
        println!("{:.1} bytes/entry", ix.stats().bytes as f64 / n as f64);
    }
}
