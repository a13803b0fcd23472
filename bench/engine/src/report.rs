//! The tables.

use std::collections::HashMap;
use std::fs::File;
use std::io::Write;

/// All samples of a run by engine and measure.
#[derive(Default)]
pub struct Samples(HashMap<(String, String), Vec<f64>>);

struct Row {
    measure: &'static str,
    title: &'static str,
    /// More is better (a rate), or less (a time, a size).
    more: bool,
    /// What nitro must be at most.
    most: Option<f64>,
    /// How many times as good as a peer, or as itself in another measure, nitro must be.
    times: &'static [(&'static str, f64)],
}

const LOOKUP: &[(&str, f64)] =
    &[("ferntree", 1.5), ("masstree", 1.8), ("scc", 2.2), ("rwlock", 2.0), ("crossbeam", 6.0)];
const INSERT: &[(&str, f64)] =
    &[("ferntree", 1.25), ("masstree", 1.8), ("scc", 1.9), ("crossbeam", 5.0)];

const ROWS: &[Row] = &[
    rate("insert", "insert, M/s", INSERT),
    rate("hit", "lookup, key present, M/s", LOOKUP),
    rate("miss", "lookup, key absent, M/s", LOOKUP),
    rate("seek", "seek and 100 entries, M/s", &[("ferntree", 1.5)]),
    cost("scan", "full scan, ns/entry", Some(7.0)),
    cost("back", "full scan backward, ns/entry", Some(7.0)),
    cost("bytes", "bytes/entry", Some(41.0)),
    rate("packed-hit", "packed by a sweep: lookup, M/s", &[]),
    cost("packed-scan", "packed by a sweep: full scan, ns/entry", Some(5.0)),
    cost("packed-back", "packed by a sweep: backward, ns/entry", Some(5.0)),
    rate("ascending", "ascending insert, M/s", &[("ferntree", 1.1)]),
    cost("ascending-bytes", "ascending insert, bytes/entry", None),
    rate("insert-1", "1 thread beside none: insert, M/s", &[]),
    rate("insert-2", "2 threads: insert, M/s", &[("insert-1", 1.85)]),
    rate("insert-2-elapsed", "2 threads: insert by the clock, M/s", &[]),
    rate("hit-1", "1 thread beside none: lookup, M/s", &[]),
    rate("hit-2", "2 threads: lookup, M/s", &[("hit-1", 1.85)]),
    rate("hit-2-elapsed", "2 threads: lookup by the clock, M/s", &[]),
    rate("text-insert", "25-byte strings: insert, M/s", &[("masstree", 1.4)]),
    rate("text-hit", "25-byte strings: lookup, present, M/s", &[("masstree", 1.6)]),
    rate("text-miss", "25-byte strings: lookup, absent, M/s", &[("masstree", 1.6)]),
    rate("text-seek", "25-byte strings: seek and 100, M/s", &[]),
    cost("text-scan", "25-byte strings: full scan, ns/entry", None),
    cost("text-back", "25-byte strings: backward, ns/entry", None),
    cost("text-bytes", "25-byte strings: bytes/entry", None),
    rate("bulk", "bulk build, M/s", &[]),
    cost("bulk-bytes", "bulk build: bytes/entry", None),
    cost("bulk-scan", "bulk build: full scan, ns/entry", Some(5.0)),
    cost("bulk-back", "bulk build: backward, ns/entry", Some(5.0)),
];

const fn rate(
    measure: &'static str,
    title: &'static str,
    times: &'static [(&'static str, f64)],
) -> Row {
    Row { measure, title, more: true, most: None, times }
}

const fn cost(measure: &'static str, title: &'static str, most: Option<f64>) -> Row {
    Row { measure, title, more: false, most, times: &[] }
}

/// A line of a table.
fn line(cells: impl IntoIterator<Item = String>) {
    println!("| {} |", cells.into_iter().collect::<Vec<_>>().join(" | "));
}

fn head(first: &str, others: &[&str]) {
    line(std::iter::once(first).chain(others.iter().copied()).map(String::from));
    line(std::iter::repeat_n("---".into(), others.len() + 1));
}

/// Where the samples are left for bench/all.sh, if they are to be.
pub fn results() -> Option<File> {
    let file = std::env::var("RESULTS").ok()?;
    Some(File::options().append(true).create(true).open(file).expect("a file for the samples"))
}

impl Samples {
    pub fn add(&mut self, engine: &str, measure: &str, value: f64) {
        self.0.entry((engine.into(), measure.into())).or_default().push(value);
    }

    /// Best and median.
    fn get(&self, engine: &str, measure: &str, more: bool) -> Option<(f64, f64)> {
        let mut all = self.0.get(&(engine.into(), measure.into()))?.clone();
        all.sort_by(f64::total_cmp);
        let best = if more { *all.last()? } else { *all.first()? };
        Some((best, all[all.len() / 2]))
    }

    /// Adds all samples to a file, as bench/all.sh reads them: less is better, so rates become
    /// times.
    pub fn add_to(&self, file: &mut File) -> std::io::Result<()> {
        for row in ROWS {
            let title =
                row.title.replace(", M/s", ", ns").replace("bytes/entry", "an entry, bytes");
            let (title, unit) = title.rsplit_once(", ").expect("a unit");
            let basis = match unit {
                "bytes" => "size",
                _ if row.measure.ends_with("-elapsed") => "elapsed",
                _ => "cpu",
            };
            for ((engine, _), samples) in self.0.iter().filter(|((_, m), _)| m == row.measure) {
                for sample in samples {
                    let value = if row.more { 1e3 / sample } else { *sample };
                    let name = row.measure;
                    writeln!(
                        file,
                        "engine\t{name}\t{title}\t{unit}\t{engine}\t-\t{basis}\t{value:.3}\t-"
                    )?;
                }
            }
        }
        Ok(())
    }

    pub fn print(&self) {
        head("", crate::ENGINES);
        for row in ROWS {
            let cell = |engine: &&str| match self.get(engine, row.measure, row.more) {
                Some((best, median)) => format!("{best:.2} ({median:.2})"),
                None => String::new(),
            };
            let cells: Vec<String> = crate::ENGINES.iter().map(cell).collect();
            if cells.iter().any(|cell| !cell.is_empty()) {
                line(std::iter::once(row.title.into()).chain(cells));
            }
        }
        println!("\nTimes as good as the peers, by the best (the goal)\n");
        let peers: Vec<&str> =
            crate::ENGINES.iter().copied().filter(|e| !e.starts_with("nitro")).collect();
        head("", &peers);
        let mut short = Vec::new();
        for row in ROWS {
            let cells: Vec<String> =
                peers.iter().map(|peer| self.relation(row, peer, &mut short)).collect();
            if cells.iter().any(|cell| !cell.is_empty()) {
                line(std::iter::once(row.title.into()).chain(cells));
            }
        }
        println!();
        for row in ROWS {
            self.alone(row, &mut short);
        }
        match &short[..] {
            [] => println!("\nAll goals reached."),
            _ => println!("\nShort of the goal:\n  {}", short.join("\n  ")),
        }
    }

    /// Nitro beside a peer.
    fn relation(&self, row: &Row, peer: &str, short: &mut Vec<String>) -> String {
        let Some((theirs, _)) = self.get(peer, row.measure, row.more) else { return String::new() };
        let Some((ours, _)) = self.get("nitro", row.measure, row.more) else {
            return String::new();
        };
        let times = if row.more { ours / theirs } else { theirs / ours };
        let Some((_, goal)) = row.times.iter().find(|(name, _)| *name == peer) else {
            return format!("{times:.2}");
        };
        if times < *goal {
            short.push(format!("{}: {times:.2} times {peer}, wanted {goal}", row.title));
        }
        format!("{times:.2} ({goal})")
    }

    /// What nitro alone must reach.
    fn alone(&self, row: &Row, short: &mut Vec<String>) {
        let Some((ours, _)) = self.get("nitro", row.measure, row.more) else { return };
        if let Some(most) = row.most.filter(|most| ours > *most) {
            short.push(format!("{}: {ours:.2}, wanted at most {most}", row.title));
        }
        for (measure, goal) in row.times {
            let Some((one, _)) = self.get("nitro", measure, row.more) else { continue };
            let times = ours / one;
            println!("{}: {times:.2} times one thread ({goal})", row.title);
            if times < *goal {
                short.push(format!("{}: {times:.2} times one thread, wanted {goal}", row.title));
            }
        }
    }
}
