//! Packed leaves beside an index of leaves of 64 slots: `cargo run --release --example packed
//! [entries]`. The packed ones have an array of separators above them, the others are a whole
//! index; so trust what is inside of leaves (reading in order) more than look-ups.

mod common;

use common::{area, cpu, mix};
use nitro_engine::adopt;
use nitro_engine::packed::{Bounds, Draft, Grows, Leaf, PART, Shape, Sorted, encode};
use nitro_engine::prelude::*;
use nitro_engine::{Builder, Cursor, Index, IndexOptions, Memcmp, Process, Tid};
use std::hint::black_box;
use std::sync::atomic::AtomicU64;

const SIZE: usize = 1792;
const CURRENT: u32 = u32::MAX - 1;

type Entry = (Vec<u8>, Tid);

/// A few of many entries.
struct Window<'a>(&'a [Entry]);

impl Sorted for Window<'_> {
    fn len(&self) -> usize {
        self.0.len()
    }
    fn key(&self, i: usize) -> &[u8] {
        &self.0[i].0
    }
    fn tid(&self, i: usize) -> Tid {
        self.0[i].1
    }
}

/// The best of three times, in ns per step.
fn time(steps: usize, mut run: impl FnMut()) -> f64 {
    let mut best = f64::MAX;
    for _ in 0..3 {
        let used = cpu();
        run();
        best = best.min((cpu() - used) / steps as f64);
    }
    best
}

/// Packed leaves in order, and where each begins.
struct Leaves {
    words: Vec<AtomicU64>,
    first: Vec<(u128, Tid)>,
}

fn number(key: &[u8]) -> u128 {
    let mut bytes = [0; 16];
    let n = key.len().min(16);
    bytes[..n].copy_from_slice(&key[..n]);
    u128::from_be_bytes(bytes)
}

impl Leaves {
    fn build(all: &[Entry], fill: usize) -> Leaves {
        let mut leaves = Leaves { words: Vec::new(), first: Vec::new() };
        let (mut draft, mut at) = (Draft::default(), 0);
        while at < all.len() {
            let window = Window(&all[at..]);
            let (mut shape, mut n) = (Shape::default(), 0);
            loop {
                let before = shape.clone();
                if at + n < all.len() {
                    shape.extend(&window, n + 1);
                }
                if at + n == all.len() || shape.size(&window, 8, SIZE) > SIZE * fill / 100 {
                    shape = before;
                    break;
                }
                n += 1;
            }
            let high = all.get(at + n).map(|e| &e.0[..]);
            let bounds = Bounds { low: &all[at].0, high, coming: Grows::Keys.into() };
            assert!(encode(&mut draft, &window, &shape, &[0; 8], &bounds, SIZE));
            let start = leaves.words.len();
            leaves.words.extend((0..SIZE / 8).map(|_| AtomicU64::new(0)));
            draft.store(&leaves.words[start..]);
            leaves.first.push((number(&all[at].0), all[at].1));
            at += n;
        }
        leaves
    }

    fn block(&self, i: usize) -> &[AtomicU64] {
        &self.words[i * SIZE / 8..(i + 1) * SIZE / 8]
    }

    #[inline]
    fn find(&self, key: &[u8], tid: Tid) -> usize {
        let sought = (number(key), tid);
        let i = self.first.partition_point(|&first| first <= sought).saturating_sub(1);
        for line in self.block(i).chunks(8) {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: a hint.
            unsafe {
                use std::arch::x86_64::*;
                _mm_prefetch(line.as_ptr().cast(), _MM_HINT_T0);
            }
            black_box(line.as_ptr());
        }
        i
    }
}

fn run(p: &Process, name: &str, mut all: Vec<Entry>) {
    all.sort();
    all.dedup();
    let n = all.len();
    let index = |all: &mut dyn Iterator<Item = &Entry>, fillfactor| {
        let ix = Index::create(p, &IndexOptions { fillfactor, key_len_hint: 0 }).unwrap();
        let mut builder = Builder::new(p, ix);
        all.for_each(|(key, tid)| builder.push(&Memcmp, key, *tid).unwrap());
        adopt(&ix, p, vec![builder.finish().unwrap()]).unwrap();
        ix
    };
    let mut made = Vec::new();
    let fat_build = time(n, || made.push(index(&mut all.iter(), 90)));
    let fat = made.pop().unwrap();
    // SAFETY: nobody uses them.
    made.into_iter().for_each(|ix| unsafe { ix.destroy(p) });
    let mut packed = Leaves::build(&all[..1], 100);
    let encode_time = time(n, || packed = Leaves::build(&all, 90));
    let bytes = packed.words.len() as f64 * 8.0 / n as f64;
    let fat_bytes = fat.stats().bytes as f64 / n as f64;
    println!("--- {name}: {bytes:.2} bytes/entry, {fat_bytes:.1} in slots");
    let line = |what: &str, packed: f64, fat: f64| {
        println!("{what:<12} {packed:8.1} ns, {fat:8.1} in slots: {:.2}", packed / fat);
    };
    line("build", encode_time, fat_build);
    let lookups: Vec<usize> = (0..1_000_000).map(|i| mix(i) as usize % n).collect();
    let packed_lookup = time(lookups.len(), || {
        for &i in &lookups {
            let (key, tid) = &all[i];
            let leaf = Leaf::new(packed.block(packed.find(key, *tid))).unwrap();
            assert_eq!(leaf.search(key, *tid).equal, 1);
        }
    });
    let fat_lookup = time(lookups.len(), || {
        for &i in &lookups {
            let (key, tid) = &all[i];
            assert!(fat.contains(p, &Memcmp, key, *tid));
        }
    });
    line("look-up", packed_lookup, fat_lookup);
    for want in [false, true] {
        let packed_scan = time(n, || {
            let (mut tids, mut keys, mut ends) = ([0; PART], Vec::new(), [0; PART]);
            let (mut sum, mut seen) = (0, 0);
            for i in 0..packed.first.len() {
                let leaf = Leaf::new(packed.block(i)).unwrap();
                for rank in (0..leaf.len()).step_by(PART) {
                    let m = leaf.tids(rank..rank + PART, &mut tids);
                    if want {
                        keys.clear();
                        leaf.keys(rank..rank + PART, &mut keys, &mut ends);
                    }
                    seen += m;
                    sum += tids[..m].iter().sum::<u64>();
                }
            }
            black_box((sum, &keys));
            assert_eq!(seen, n);
        });
        let fat_scan = time(n, || {
            let mut cursor = Cursor::new(want);
            cursor.set_range(&[], None, CURRENT);
            let (mut sum, mut seen) = (0, 0);
            while cursor.next(p, fat, &Memcmp) > 0 {
                seen += cursor.len();
                sum += (0..cursor.len()).map(|i| cursor.tid(i)).sum::<u64>();
            }
            black_box(sum);
            assert_eq!(seen, n);
        });
        line(if want { "scan, keys" } else { "scan" }, packed_scan, fat_scan);
    }
    // One in ten is inserted.
    // SAFETY: nobody uses it.
    unsafe { fat.destroy(p) };
    let (later, first): (Vec<_>, Vec<_>) =
        all.into_iter().enumerate().partition(|(i, _)| mix(*i as u64).is_multiple_of(10));
    let [mut later, first] = [later, first].map(|v| v.into_iter().map(|e| e.1).collect::<Vec<_>>());
    later.sort_by_key(|e| mix(e.1));
    let packed = Leaves::build(&first, 85);
    let fat = index(&mut first.iter(), 85);
    let (mut draft, mut done) = (Draft::default(), 0);
    let start = cpu();
    for (key, tid) in &later {
        let block = packed.block(packed.find(key, *tid));
        let leaf = Leaf::new(block).unwrap();
        let found = leaf.search(key, *tid);
        if leaf.insert(&found, key, 0, *tid, &mut draft) {
            draft.store(block);
            done += 1;
        }
    }
    let packed_insert = (cpu() - start) / later.len() as f64;
    let start = cpu();
    for (key, tid) in &later {
        fat.insert(p, &Memcmp, key, *tid).unwrap();
    }
    let fat_insert = (cpu() - start) / later.len() as f64;
    line("insert", packed_insert, fat_insert);
    println!("{:.1} % of the inserts in place", 100.0 * done as f64 / later.len() as f64);
    // SAFETY: nobody uses it.
    unsafe { fat.destroy(p) };
}

fn main() {
    let n: u64 = std::env::args().nth(1).and_then(|s| s.parse().ok()).unwrap_or(3_000_000);
    let only = std::env::args().nth(2);
    let area = area(8 << 30);
    // SAFETY: the only process.
    let p = unsafe { Process::attach(area, 0) };
    let row = |i: u64| (i / 226) << 16 | (1 + i % 226);
    let some = |i: u64| row(mix(i) % n);
    type Make<'a> = &'a dyn Fn(u64) -> Entry;
    let cases: [(&str, Make<'_>); 8] = [
        ("int, 10 values", &|i| (((mix(i) % 10) as u32).to_be_bytes().into(), row(i))),
        ("int, 100k values", &|i| (((mix(i) % 100_000) as u32).to_be_bytes().into(), row(i))),
        ("int serial", &|i| ((i as u32).to_be_bytes().into(), some(i))),
        ("timestamp", &|i| ((i * 2_000_000 + mix(i) % 1_000_000).to_be_bytes().into(), some(i))),
        ("int8 random", &|i| (mix(i).to_be_bytes().into(), row(i))),
        ("uuid", &|i| ([mix(i), mix(!i)].map(u64::to_be_bytes).concat(), row(i))),
        ("md5", &|i| (format!("{:016x}{:016x}\0", mix(i), mix(!i)).into(), row(i))),
        ("e-mail", &|i| (format!("{}@{:03}m.org\0", mix(i) % 9_999_991, i % 977).into(), row(i))),
    ];
    for (name, entry) in cases {
        if only.as_ref().is_none_or(|only| only == name) {
            run(&p, name, (0..n).map(entry).collect());
        }
    }
}
