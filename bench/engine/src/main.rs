//! nitro-engine beside ferntree and crossbeam-skiplist: one process per engine and kind of load, in
//! rounds, so that neither the memory of a peer nor a noisy minute decides. See docs/benchmarks.md.
//!
//! Environment: ENGINE_ROWS (entries, default 10 million), ROUNDS (default 2), HUGE=1 (huge pages
//! for all engines), RESULTS (a file to which the samples are added).

mod crossbeam;
mod engine;
mod ferntree;
mod keys;
mod measure;
mod nitro;
mod report;

use measure::Plan;
use report::Samples;
use std::process::Command;

/// Is memory to be in huge pages?
fn huge_pages() -> bool {
    std::env::var("HUGE").is_ok_and(|v| v == "1")
}

fn number(name: &str, default: u64) -> u64 {
    match std::env::var(name) {
        Ok(v) => v.parse().unwrap_or_else(|_| panic!("{name} is not a number: {v}")),
        Err(_) => default,
    }
}

/// The part of a process: one engine, one load.
fn work(engine: &str, load: &str, rows: u64) {
    // crossbeam's skiplist takes ten times longer for everything.
    let (share, repetitions) = if engine == "crossbeam" { (40, 3) } else { (10, 5) };
    let plan = &Plan { rows, lookups: (rows / share).max(160), repetitions };
    match (engine, load) {
        ("nitro", "random") => measure::random::<nitro::Nitro<false>>(plan),
        ("nitro", "ascending") => measure::ascending::<nitro::Nitro<false>>(plan),
        ("nitro", "bulk") => measure::bulk::<nitro::Nitro<false>>(plan),
        ("nitro-9", "random") => measure::random::<nitro::Nitro<true>>(plan),
        ("nitro-9", "ascending") => measure::ascending::<nitro::Nitro<true>>(plan),
        ("nitro-9", "bulk") => measure::bulk::<nitro::Nitro<true>>(plan),
        ("ferntree", "random") => measure::random::<ferntree::Ferntree>(plan),
        ("ferntree", "ascending") => measure::ascending::<ferntree::Ferntree>(plan),
        ("crossbeam", "random") => measure::random::<crossbeam::Crossbeam>(plan),
        ("crossbeam", "ascending") => measure::ascending::<crossbeam::Crossbeam>(plan),
        _ => panic!("no engine {engine} with load {load}"),
    }
}

/// Runs a process for one engine and load and takes its samples.
fn run(samples: &mut Samples, engine: &str, load: &str) {
    let begin = std::time::Instant::now();
    let program = std::env::current_exe().expect("this program");
    let mut command = Command::new(program);
    command.args([engine, load]);
    if huge_pages() {
        command.env("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1");
    }
    let output = command.stderr(std::process::Stdio::inherit()).output().expect("a process");
    assert!(output.status.success(), "{engine} failed at load {load}");
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        if let Some((measure, value)) = line.split_once(' ') {
            samples.add(engine, measure, value.parse().expect("a number"));
        }
    }
    eprintln!("  {engine}, {load}: {:.0} s", begin.elapsed().as_secs_f64());
}

fn main() {
    let rows = number("ENGINE_ROWS", 10_000_000);
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [engine, load] = &arguments[..] {
        return work(engine, load, rows);
    }
    let rounds = number("ROUNDS", 2);
    let mut samples = Samples::default();
    for round in 0..rounds {
        for load in ["random", "ascending", "bulk"] {
            for engine in ["nitro", "ferntree", "nitro-9", "crossbeam"] {
                let slow = engine == "crossbeam" && round > 0;
                let no_such = load == "bulk" && !engine.starts_with("nitro");
                if !slow && !no_such {
                    run(&mut samples, engine, load);
                }
            }
        }
    }
    let pages = if huge_pages() { "huge pages" } else { "4 KB pages" };
    println!(
        "engine, {rows} entries, random 8-byte keys, one thread, {pages}, {rounds} processes each \
         (crossbeam 1)\nbest / median by processor time; ratios are of the best, above 1: nitro is better"
    );
    samples.print();
    if let Ok(file) = std::env::var("RESULTS") {
        samples.add_to(&file).expect("a file for the samples");
    }
}
