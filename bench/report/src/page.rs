//! The page: a table for each section, then the plots.

use crate::samples::{Figures, Measure, Ratio};
use std::fmt::Write;

/// Three digits that count.
fn short(value: f64) -> String {
    let digits = (2 - value.abs().log10().floor() as i32).clamp(0, 4) as usize;
    if value == 0.0 { "0".into() } else { format!("{value:.digits$}") }
}

fn cell(figures: &Figures) -> String {
    match figures.samples.len() {
        1 => short(figures.min),
        _ => format!("{} ({}, {})", short(figures.min), short(figures.median), short(figures.max)),
    }
}

/// A ratio: of several samples more than the least, and by the clock where that is not what counts.
fn relation(ratio: &Ratio, several: bool, clock: bool) -> String {
    let bold = |r: f64| if r < 1.0 { format!("**{r:.2}**") } else { format!("{r:.2}") };
    let mut text = bold(ratio.min);
    if several {
        text += &format!(" ({}, {})", bold(ratio.median), bold(ratio.max));
    }
    if let Some(elapsed) = ratio.elapsed.filter(|_| clock) {
        text += &format!("; {}", bold(elapsed));
    }
    text
}

/// Markdown. Where nitro is behind, the ratio is bold.
pub fn of(about: &[(&str, &str)], measures: &[Measure], plots: &[String]) -> String {
    let mut page = String::from("# Measured\n\n");
    for (key, value) in about {
        writeln!(page, "- {key}: {value}").expect("a string");
    }
    page += "\nLeast (median, largest) of the samples; less is better. Ratios likewise, of the least (of the medians, of the largest), behind the semicolon of the least by the clock: above 1 nitro is ahead.\n";
    for part in measures.chunk_by(|a, b| a.section == b.section) {
        let mut methods: Vec<&String> = part.iter().flat_map(|m| m.methods.keys()).collect();
        methods.sort_by_key(|method| (*method != "nitro", *method));
        methods.dedup();
        let others = || methods.iter().filter(|method| **method != "nitro");
        write!(page, "\n## {}\n\n| |", part[0].section).expect("a string");
        methods.iter().for_each(|method| page += &format!(" {method} |"));
        others().for_each(|method| page += &format!(" {method} / nitro |"));
        page += "\n| --- |";
        page += &" --- |".repeat(methods.len() + others().count());
        for measure in part {
            let at = measure.at.map_or(String::new(), |at| format!(" ({at})"));
            let how = if measure.basis == "elapsed" { ", elapsed" } else { "" };
            write!(page, "\n| {}{at}, {}{how} |", measure.title, measure.unit).expect("a string");
            for method in &methods {
                let text = measure.methods.get(*method).map_or(String::new(), cell);
                write!(page, " {text} |").expect("a string");
            }
            for method in others() {
                let text = measure.ratios.get(*method).map_or(String::new(), |ratio| {
                    let several = measure.methods[*method].samples.len() > 1;
                    relation(ratio, several, measure.basis != "elapsed")
                });
                write!(page, " {text} |").expect("a string");
            }
        }
        page += "\n";
    }
    if !plots.is_empty() {
        page += "\n## How it grows\n\n";
        plots.iter().for_each(|file| page += &format!("![{file}]({file})\n"));
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios() {
        let ratio = Ratio { min: 2.0, median: 1.5, max: 0.9, elapsed: Some(0.8) };
        assert_eq!(relation(&ratio, true, true), "2.00 (1.50, **0.90**); **0.80**");
        assert_eq!(relation(&ratio, true, false), "2.00 (1.50, **0.90**)");
        assert_eq!(relation(&ratio, false, true), "2.00; **0.80**");
    }
}
