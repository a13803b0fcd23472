//! Experiments 1 to 4 of the Nitro paper (VLDB 2016, section 7): the engine alone, beside what the
//! paper says. Theirs were 40 virtual cores of two Xeon E5-2650 v3 at 2.3 GHz, and 20 million
//! items.

use crate::engine::Engine;
use crate::keys::{Key, Rows, Text};
use crate::measure::{Rates, insert, look_up, together};
use crate::nitro::Nitro;
use crate::report::results;
use std::fs::File;
use std::io::Write;

/// Thousands a second of one of the paper's 40 workers: 4 and 10 million of all.
const INSERTS: f64 = 100.0;
const LOOKUPS: f64 = 250.0;

/// With twice as many threads an area has processes enough.
const MOST_WORKERS: u64 = 8;

struct Experiments {
    rows: u64,
    repetitions: u64,
    /// Numbers of workers.
    workers: Vec<u64>,
    samples: Option<File>,
}

pub fn run(rows: u64, repetitions: u64) {
    let processors = std::thread::available_parallelism().map_or(1, |n| n.get() as u64);
    let mut workers = vec![1, processors.min(MOST_WORKERS)];
    workers.dedup();
    let mut all = Experiments { rows, repetitions, workers, samples: results() };
    println!(
        "The Nitro paper's experiments 1 to 4, {rows} items (a quarter of them where keys are longer than 8 \
         bytes), {processors} processors; best of {repetitions}\n\n\
         | experiment | workers | thousand/s a worker, by its processor | million/s of all, by the clock \
         | paper, thousand/s a worker |\n| --- | --- | --- | --- | --- |"
    );
    all.inserts::<u64>(8, rows);
    all.inserts::<Text<32>>(32, rows / 4);
    all.inserts::<Text<64>>(64, rows / 4);
    all.inserts::<Text<128>>(128, rows / 4);
    all.lookups();
    all.both();
    all.instances();
    println!(
        "\nThe paper: inserts are linear in the cores, 4 million/s with 40, for keys of 8 to 128 bytes; so are \
         look-ups, 10 million/s with 40; of experiment 3 it has a plot without figures; in experiment 4 many \
         instances are as fast as one."
    );
}

fn empty<K: Key>(n: u64) -> Nitro {
    <Nitro as Engine<K>>::new(n)
}

impl Experiments {
    /// One line of the table. Of some the paper has no figure.
    fn line(&mut self, name: &str, title: &str, workers: u64, paper: Option<f64>, all: &[Rates]) {
        let best = |rate: fn(&Rates) -> f64| all.iter().map(rate).fold(0.0, f64::max);
        let (processor, elapsed) = (best(|r| r.processor), best(|r| r.elapsed));
        let worker = processor * 1e3 / workers as f64;
        let theirs = paper.map_or("no figure".into(), |rate| format!("{rate}"));
        println!("| {title} | {workers} | {worker:.0} | {elapsed:.2} | {theirs} |");
        let Some(file) = &mut self.samples else { return };
        // Nanoseconds of a worker.
        let mut add = |method: &str, ns: f64| {
            writeln!(file, "papers\t{name}\t{title}\tns\t{method}\t{workers}\tcpu\t{ns:.1}\t-")
        };
        for rates in all {
            add("nitro", workers as f64 * 1e3 / rates.processor).expect("room for a sample");
        }
        if let Some(rate) = paper {
            add("paper", 1e6 / rate).expect("room for a sample");
        }
    }

    fn repeat(&self, f: impl Fn(u64) -> Rates) -> Vec<Rates> {
        (0..self.repetitions).map(f).collect()
    }

    /// Experiment 1: workers fill an index.
    fn inserts<K: Key>(&mut self, bytes: u64, n: u64) {
        for workers in self.workers.clone() {
            let all = self.repeat(|_| {
                let e = empty::<K>(n);
                let all = together(workers, |number| {
                    insert::<K>(&mut Engine::<K>::thread(&e, number as u32), workers, number, n);
                });
                Rates::of(&all, n / workers)
            });
            let title = format!("1: insert, keys of {bytes} bytes");
            self.line(&format!("nitro-1-{bytes}"), &title, workers, Some(INSERTS), &all);
        }
    }

    /// Experiment 2: workers look up what is there.
    fn lookups(&mut self) {
        let n = self.rows;
        let e = empty::<u64>(n);
        insert::<u64>(&mut Engine::<u64>::thread(&e, 0), 1, 0, n);
        for workers in self.workers.clone() {
            let share = n / 10 / workers;
            let all = self.repeat(|seed| {
                let all = together(workers, |number| {
                    let rows = Rows::new(100 * seed + number, n);
                    look_up::<u64>(&mut Engine::<u64>::thread(&e, number as u32), share, rows);
                });
                Rates::of(&all, share)
            });
            self.line("nitro-2", "2: look-up", workers, Some(LOOKUPS), &all);
        }
    }

    /// Experiment 3: as many insert as look up.
    fn both(&mut self) {
        let n = self.rows;
        for workers in self.workers.clone() {
            // Half is there; a tenth comes while as much is looked up.
            let (there, share) = (n / 2, n / 10 / workers);
            let (inserts, lookups): (Vec<_>, Vec<_>) = (0..self.repetitions)
                .map(|seed| {
                    let e = empty::<u64>(n);
                    insert::<u64>(&mut Engine::<u64>::thread(&e, 0), 1, 0, there);
                    let all = together(2 * workers, |number| {
                        let mut thread = Engine::<u64>::thread(&e, number as u32);
                        if number < workers {
                            let end = there + share * workers;
                            insert::<u64>(&mut thread, workers, there + number, end);
                        } else {
                            look_up::<u64>(
                                &mut thread,
                                share,
                                Rows::new(100 * seed + number, there),
                            );
                        }
                    });
                    let (first, second) = all.split_at(workers as usize);
                    (Rates::of(first, share), Rates::of(second, share))
                })
                .unzip();
            let of_each = format!("of {workers} and {workers} workers");
            self.line("nitro-3-insert", &format!("3: inserts {of_each}"), workers, None, &inserts);
            self.line("nitro-3-lookup", &format!("3: look-ups {of_each}"), workers, None, &lookups);
        }
    }

    /// Experiment 4: the workers of experiment 1 fill one index, or one each.
    fn instances(&mut self) {
        let (n, workers) = (self.rows, self.workers[self.workers.len() - 1]);
        for instances in self.workers.clone() {
            let all = self.repeat(|_| {
                let each = n / instances;
                let indexes: Vec<Nitro> = (0..instances).map(|_| empty::<u64>(each)).collect();
                let all = together(workers, |number| {
                    let mut thread = Engine::<u64>::thread(
                        &indexes[(number % instances) as usize],
                        number as u32,
                    );
                    insert::<u64>(&mut thread, workers, number, n);
                });
                Rates::of(&all, n / workers)
            });
            let title = format!("4: insert into {instances} of them");
            self.line(&format!("nitro-4-{instances}"), &title, workers, Some(INSERTS), &all);
        }
    }
}
