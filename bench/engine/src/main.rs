//! nitro-engine beside other ordered in-memory maps: one process per engine and kind of load, in
//! rounds, so that neither the memory of a peer nor a noisy minute decides. See docs/benchmarks.md.
//!
//! `nitro-bench papers` runs the experiments of the Nitro paper instead, `nitro-bench scaling`
//! measures what docs/scaling.md counts with, `nitro-bench hot` how long the slowest operations on
//! one leaf take.
//!
//! Environment: ENGINE_ROWS (entries, default 10 million), ROUNDS (default 1), REPETITIONS (of the
//! reads in each process, default 3), LOADS (only these), HUGE=1 (huge pages for all engines),
//! RESULTS (a file to which the samples are added).

mod crossbeam;
mod engine;
mod ferntree;
mod hot;
mod keys;
mod locked;
mod masstree;
mod measure;
mod nitro;
mod papers;
mod report;
mod scaling;
mod scc;

use engine::Engine;
use keys::{Key, Marked, Text};
use measure::Plan;
use report::Samples;
use std::process::Command;

/// The columns of the table.
const ENGINES: &[&str] =
    &["nitro", "nitro-9", "ferntree", "masstree", "scc", "rwlock", "crossbeam"];

/// The kinds of load.
const LOADS: &str = "random text threads ascending bulk";

/// In the first round only: the slow one, and the one that differs little.
const ONCE: &[&str] = &["nitro-9", "crossbeam"];

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

/// Does this engine have a place under this load, in this round?
fn is_run(engine: &str, load: &str, round: u64) -> bool {
    match load {
        "random" | "ascending" => round == 0 || !ONCE.contains(&engine),
        // Of the others masstree alone is made for strings.
        "text" => ["nitro", "masstree"].contains(&engine),
        "threads" => !ONCE.contains(&engine),
        _ => engine.starts_with("nitro"),
    }
}

/// The part of a process: one engine, one load.
fn work(engine: &str, load: &str, rows: u64) {
    // crossbeam's skiplist takes ten times longer for everything.
    let (share, repetitions) =
        if engine == "crossbeam" { (40, 2) } else { (10, number("REPETITIONS", 3)) };
    let plan = &Plan { rows, lookups: (rows / share).max(160), repetitions };
    match (engine, load) {
        ("nitro", "text") => under::<Text<25>, nitro::Nitro>(load, plan),
        ("masstree", "text") => under::<Text<25>, masstree::Masstree>(load, plan),
        ("nitro", _) => under::<u64, nitro::Nitro>(load, plan),
        ("nitro-9", _) => under::<Marked, nitro::Nitro>(load, plan),
        ("ferntree", _) => under::<u64, ferntree::Ferntree>(load, plan),
        ("masstree", _) => under::<u64, masstree::Masstree>(load, plan),
        ("scc", _) => under::<u64, scc::Scc>(load, plan),
        ("rwlock", _) => under::<u64, locked::Locked>(load, plan),
        ("crossbeam", _) => under::<u64, crossbeam::Crossbeam>(load, plan),
        _ => panic!("no engine {engine} with load {load}"),
    }
}

fn under<K: Key, E: Engine<K>>(load: &str, plan: &Plan) {
    match load {
        "random" | "text" => measure::random::<K, E>(plan),
        "ascending" => measure::ascending::<K, E>(plan),
        "threads" => measure::threads::<K, E>(plan),
        "bulk" => measure::bulk::<K, E>(plan),
        _ => panic!("no load {load}"),
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
    let kind = if load == "text" { "text-" } else { "" };
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        if let Some((measure, value)) = line.split_once(' ') {
            samples.add(engine, &format!("{kind}{measure}"), value.parse().expect("a number"));
        }
    }
    eprintln!("  {engine}, {load}: {:.0} s", begin.elapsed().as_secs_f64());
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => peers(),
        ["papers"] => papers::run(number("ENGINE_ROWS", 20_000_000), number("REPETITIONS", 3)),
        ["scaling"] => scaling::run(number("ENGINE_ROWS", 10_000_000), number("REPETITIONS", 5)),
        ["hot"] => hot::run(number("SECONDS_EACH", 5), number("REPETITIONS", 1)),
        [engine, load] => work(engine, load, number("ENGINE_ROWS", 10_000_000)),
        _ => panic!("no such arguments: {arguments:?}"),
    }
}

/// All engines under all loads.
fn peers() {
    let rows = number("ENGINE_ROWS", 10_000_000);
    let rounds = number("ROUNDS", 1);
    let loads = std::env::var("LOADS").unwrap_or_else(|_| LOADS.into());
    let mut samples = Samples::default();
    for round in 0..rounds {
        for load in loads.split_whitespace() {
            for engine in ENGINES.iter().filter(|engine| is_run(engine, load, round)) {
                run(&mut samples, engine, load);
            }
        }
    }
    let pages = if huge_pages() { "huge pages" } else { "4 KB pages" };
    println!(
        "engine, {rows} entries, random keys of 8 bytes, one thread, {pages}, {rounds} processes each \
         (nitro-9 and crossbeam 1)\nbest (median) by processor time\n"
    );
    samples.print();
    if let Some(mut file) = report::results() {
        samples.add_to(&mut file).expect("a file for the samples");
    }
}
