//! One hot leaf: eight writers and eight readers of it, on however few processors there are. How
//! long the slowest operations take, in each form that a leaf can have: most of it is the time of
//! threads that hold the leaf and have no processor.

use crate::measure::together;
use crate::nitro::Room;
use crate::report::results;
use nitro_engine::prelude::*;
use nitro_engine::{Area, Cursor, Forms, Index, IndexOptions, Memcmp, Process, Sweep, Swept};
use std::fs::File;
use std::hint::black_box;
use std::io::Write;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Writers, and as many readers.
const EACH: u64 = 8;
/// What readers of the present ask for.
const CURRENT: u32 = u32::MAX - 1;
/// Entries around the leaf, and those in the middle among which they write.
const ROWS: u64 = 100_000;
const WIDTH: u64 = 100;
/// A key has room for what writers add behind it.
const STRIDE: u64 = 1 << 16;

fn attach(area: Area, slot: u32) -> Process {
    // SAFETY: each caller has slots of its own, and one value for each at a time.
    unsafe { Process::attach(area, slot) }
}

/// Nanoseconds of all operations of a kind.
#[derive(Default)]
struct Times(Mutex<Vec<u64>>);

impl Times {
    fn add(&self, own: Vec<u64>) {
        self.0.lock().expect("no thread has failed").extend(own);
    }

    /// A line of the table, and its times as samples.
    fn line(&self, what: &str, forms: Forms, seconds: u64, samples: &mut Option<File>) {
        let mut all = self.0.lock().expect("no thread has failed");
        all.sort_unstable();
        let at =
            |part: f64| all[((all.len() as f64 * part) as usize).min(all.len() - 1)] as f64 / 1e3;
        println!(
            "| {what} | {forms:?} | {:.0} | {:.2} | {:.2} | {:.1} | {:.0} |",
            all.len() as f64 / seconds as f64 / 1e3,
            at(0.5),
            at(0.99),
            at(0.999),
            at(0.9999)
        );
        let Some(file) = samples else { return };
        let method = match forms {
            Forms::Best => "nitro",
            Forms::Slots => "with slots",
            _ => "packed, also where full",
        };
        for (name, part) in [("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999)] {
            let value = at(part);
            writeln!(
                file,
                "hot\t{what} {name}\t{what}, {name}\tus\t{method}\t-\telapsed\t{value:.3}\t-"
            )
            .expect("room for samples");
        }
    }
}

pub fn run(seconds: u64, repetitions: u64) {
    println!("{EACH} writers and {EACH} readers of one leaf, {seconds} s each, us\n");
    println!("| operation | leaves | thousand/s | p50 | p99 | p99.9 | p99.99 |");
    println!("| --- | --- | --- | --- | --- | --- | --- |");
    let mut samples = results();
    for _ in 0..repetitions {
        for forms in [Forms::Slots, Forms::Best, Forms::Packed] {
            one(forms, seconds, &mut samples);
        }
    }
}

/// The times of one index, whose leaves have these forms.
fn one(forms: Forms, seconds: u64, samples: &mut Option<File>) {
    let threads = 2 * EACH;
    let (area, _room) = Room::with_area(256 << 20, threads as u32 + 1);
    let p = attach(area, threads as u32);
    let options = IndexOptions { fillfactor: 90, key_len_hint: 8 };
    let index = Index::create(&p, &options).expect("room for the root");
    index.force(forms);
    for i in 0..ROWS {
        index.insert(&p, &Memcmp, &(i * STRIDE).to_be_bytes(), i).expect("room for the entry");
    }
    let mut sweep = Sweep::new(&p, index);
    while sweep.next_leaves(1000) == Swept::More {}

    let [inserts, removals, lookups, scans] = [(); 4].map(|()| Times::default());
    let end = Instant::now() + Duration::from_secs(seconds);
    together(threads, |number| {
        let p = attach(area, number as u32);
        let mut seed = number + 1;
        let mut random = |below: u64| {
            seed = seed
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % below
        };
        let (mut first, mut second) = (Vec::new(), Vec::new());
        let mut cursor = Cursor::new(false);
        let lap = |times: &mut Vec<u64>, from: Instant| {
            let now = Instant::now();
            times.push((now - from).as_nanos() as u64);
            now
        };
        let mut from = Instant::now();
        while from < end {
            let row = ROWS / 2 + random(WIDTH);
            if number < EACH {
                let (key, tid) = ((row * STRIDE + random(STRIDE)).to_be_bytes(), ROWS + number);
                black_box(index.insert(&p, &Memcmp, &key, tid).expect("room for the entry"));
                from = lap(&mut first, from);
                black_box(index.remove(&p, &Memcmp, &key, tid));
                from = lap(&mut second, from);
            } else {
                black_box(index.contains(&p, &Memcmp, &(row * STRIDE).to_be_bytes(), row));
                from = lap(&mut first, from);
                cursor.set_range(&(row * STRIDE).to_be_bytes(), None, CURRENT);
                black_box(cursor.next(&p, index, &Memcmp));
                from = lap(&mut second, from);
            }
        }
        let (of_first, of_second) =
            if number < EACH { (&inserts, &removals) } else { (&lookups, &scans) };
        of_first.add(first);
        of_second.add(second);
    });
    inserts.line("insert", forms, seconds, samples);
    removals.line("removal", forms, seconds, samples);
    lookups.line("look-up", forms, seconds, samples);
    scans.line("a batch of a scan", forms, seconds, samples);
}
