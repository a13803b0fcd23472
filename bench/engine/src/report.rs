//! The table.

use std::collections::HashMap;
use std::io::Write;

/// All samples of a run by engine and measure.
#[derive(Default)]
pub struct Samples(HashMap<(String, String), Vec<f64>>);

struct Row {
    measure: &'static str,
    title: &'static str,
    /// More is better (a rate), or less (a time, a size).
    more: bool,
    /// What the best must reach: itself, against ferntree, against crossbeam.
    floors: [Option<f64>; 3],
}

const NONE: [Option<f64>; 3] = [None; 3];

const ROWS: &[Row] = &[
    row("insert", "insert, M/s", true, [None, Some(1.2), Some(4.5)]),
    row("hit", "lookup, key present, M/s", true, [None, Some(1.4), Some(5.0)]),
    row("miss", "lookup, key absent, M/s", true, [None, Some(1.4), Some(5.0)]),
    row("batch", "16 lookups at once, M/s", true, NONE),
    row("seek", "seek and 100 entries, M/s", true, NONE),
    row("scan", "full scan, ns/entry", false, [Some(7.0), None, None]),
    row("back", "full scan backward, ns/entry", false, [Some(7.0), None, None]),
    row("bytes", "bytes/entry", false, [Some(41.0), None, None]),
    row("ascending", "ascending insert, M/s", true, NONE),
    row("ascending-bytes", "  its bytes/entry", false, NONE),
    row("bulk", "bulk build, M/s", true, NONE),
    row("bulk-bytes", "  its bytes/entry", false, NONE),
    row("bulk-scan", "  its full scan, ns/entry", false, NONE),
    row("bulk-back", "  backward, ns/entry", false, NONE),
];

const fn row(
    measure: &'static str,
    title: &'static str,
    more: bool,
    floors: [Option<f64>; 3],
) -> Row {
    Row { measure, title, more, floors }
}

impl Samples {
    pub fn add(&mut self, engine: &str, measure: &str, value: f64) {
        self.0.entry((engine.into(), measure.into())).or_default().push(value);
    }

    /// Best and median.
    fn get(&self, engine: &str, row: &Row) -> Option<(f64, f64)> {
        let mut all = self.0.get(&(engine.into(), row.measure.into()))?.clone();
        all.sort_by(f64::total_cmp);
        let best = if row.more { *all.last()? } else { *all.first()? };
        Some((best, all[all.len() / 2]))
    }

    /// Adds all samples to a file, as bench/all.sh reads them: less is better, so rates become times.
    pub fn add_to(&self, file: &str) -> std::io::Result<()> {
        let mut file = std::fs::OpenOptions::new().append(true).create(true).open(file)?;
        for row in ROWS {
            let title = row.title.trim().replace(", M/s", ", ns");
            let (title, unit) = title.rsplit_once(", ").unwrap_or((&title, "bytes"));
            let basis = if unit == "bytes" { "size" } else { "cpu" };
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
        let engines = ["nitro", "nitro-9", "ferntree", "crossbeam"];
        let titles = ["nitro", "nitro, 9 bytes", "ferntree", "crossbeam"];
        print!("{:30}", "");
        titles.iter().for_each(|title| print!("{title:>17}"));
        println!("{:>16}{:>16}", "/ ferntree", "/ crossbeam");
        let mut short = Vec::new();
        for row in ROWS {
            print!("{:30}", row.title);
            for engine in engines {
                let cell = self.get(engine, row);
                let text = cell.map_or("-".into(), |(b, m)| format!("{b:.2} / {m:.2}"));
                print!("{text:>17}");
            }
            let Some((nitro, _)) = self.get("nitro", row) else {
                println!();
                continue;
            };
            for (engine, floor) in [("ferntree", row.floors[1]), ("crossbeam", row.floors[2])] {
                let ratio = self
                    .get(engine, row)
                    .map(|(b, _)| if row.more { nitro / b } else { b / nitro });
                let text = match (ratio, floor) {
                    (Some(r), Some(f)) => format!("{r:.2} (>= {f})"),
                    (Some(r), None) => format!("{r:.2}"),
                    _ => "-".into(),
                };
                print!("{text:>16}");
                if let (Some(r), Some(f)) = (ratio, floor)
                    && r < f
                {
                    short.push(format!("{}: {r:.2} times {engine}, wanted {f}", row.title));
                }
            }
            match row.floors[0] {
                Some(most) if nitro > most => {
                    println!("  (<= {most})");
                    short.push(format!("{}: {nitro:.2}, wanted at most {most}", row.title));
                }
                Some(most) => println!("  (<= {most})"),
                None => println!(),
            }
        }
        match &short[..] {
            [] => println!("All goals reached."),
            _ => println!("Short of the goal:\n  {}", short.join("\n  ")),
        }
    }
}
