//! `nitro-bench-report SAMPLES INTO NAME [KEY=VALUE ...]`: from the samples that a run has left in
//! the file SAMPLES, makes INTO/NAME.json, INTO/NAME.md and INTO/NAME-*.svg. What is said of the
//! run (KEY=VALUE) goes into both.

mod page;
mod plot;
mod samples;

use std::path::Path;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [from, into, name, about @ ..] = &arguments[..] else {
        return Err("usage: nitro-bench-report SAMPLES INTO NAME [KEY=VALUE ...]".into());
    };
    let about: Vec<(&str, &str)> = about.iter().filter_map(|a| a.split_once('=')).collect();
    let measures = samples::read(&std::fs::read_to_string(from)?)?;
    let into = Path::new(into);
    std::fs::create_dir_all(into)?;

    let run: serde_json::Map<_, _> =
        about.iter().map(|(key, value)| (key.to_string(), (*value).into())).collect();
    let lines: Vec<String> =
        measures.iter().map(serde_json::to_string).collect::<Result<_, _>>()?;
    let (run, lines) = (serde_json::to_string(&run)?, lines.join(",\n"));
    // A line for each measure.
    let json = format!("{{\"run\":{run},\n\"measures\":[\n{lines}\n]}}\n");
    std::fs::write(into.join(format!("{name}.json")), json)?;
    let plots = plot::all(&measures, into, name)?;
    std::fs::write(into.join(format!("{name}.md")), page::of(&about, &measures, &plots))?;
    Ok(())
}
