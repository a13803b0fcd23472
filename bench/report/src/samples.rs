//! What the scripts have written: a line of nine fields for each sample, separated by tabs.

use serde::Serialize;
use std::collections::BTreeMap;

/// One thing that was measured by all methods.
#[derive(Serialize)]
pub struct Measure {
    pub section: String,
    pub name: String,
    pub title: String,
    pub unit: String,
    /// How large what grows was, if something grows from measure to measure.
    pub at: Option<f64>,
    /// What counts: time of the processor (`cpu`), of the clock (`elapsed`), or `size`.
    pub basis: String,
    /// By method. Less is better.
    pub methods: BTreeMap<String, Figures>,
    /// By method: what it took, divided by what nitro did.
    pub ratios: BTreeMap<String, Ratio>,
}

/// Of the least, the medians and the largest; and of the least by the clock.
#[derive(Debug, PartialEq, Serialize)]
pub struct Ratio {
    pub min: f64,
    pub median: f64,
    pub max: f64,
    pub elapsed: Option<f64>,
}

/// The samples of one method, without what is taken by the statement where there is no index.
#[derive(Default, Serialize)]
pub struct Figures {
    pub samples: Vec<f64>,
    /// By the clock, if that is not what counts.
    pub elapsed: Vec<f64>,
    pub min: f64,
    pub median: f64,
    pub max: f64,
}

/// Reads all lines, in their order.
pub fn read(text: &str) -> Result<Vec<Measure>, String> {
    let mut measures: Vec<Measure> = Vec::new();
    for (i, line) in text.lines().enumerate() {
        let fields: Vec<&str> = line.split('\t').collect();
        let [section, name, title, unit, method, at, basis, value, elapsed] = fields[..] else {
            return Err(format!("line {}: {} fields, not 9", i + 1, fields.len()));
        };
        let number = |s: &str| s.parse::<f64>().map_err(|e| format!("line {}: {s}: {e}", i + 1));
        let at = if at == "-" { None } else { Some(number(at)?) };
        let same = |m: &&mut Measure| m.section == section && m.name == name && m.at == at;
        let measure = match measures.iter_mut().rev().find(same) {
            Some(known) => known,
            None => {
                let (section, name, title) = (section.into(), name.into(), title.into());
                let (unit, basis) = (unit.into(), basis.into());
                let (methods, ratios) = Default::default();
                measures.push(Measure { section, name, title, unit, at, basis, methods, ratios });
                measures.last_mut().expect("what was pushed")
            }
        };
        let figures = measure.methods.entry(method.into()).or_default();
        figures.samples.push(number(value)?);
        if elapsed != "-" {
            figures.elapsed.push(number(elapsed)?);
        }
    }
    measures.iter_mut().for_each(Measure::work_out);
    Ok(measures)
}

fn least(samples: &[f64]) -> f64 {
    samples.iter().copied().fold(f64::INFINITY, f64::min)
}

impl Measure {
    /// The figures of the samples. What was taken without an index is taken off first, where there
    /// is anything beside it.
    fn work_out(&mut self) {
        if self.methods.len() > 1
            && let Some(none) = self.methods.remove("none")
        {
            let (samples, elapsed) = (least(&none.samples), least(&none.elapsed));
            for figures in self.methods.values_mut() {
                figures.samples.iter_mut().for_each(|v| *v -= samples);
                figures.elapsed.iter_mut().for_each(|v| *v -= elapsed);
            }
            self.title += ", the indexes' part";
        }
        for figures in self.methods.values_mut() {
            let mut sorted = figures.samples.clone();
            sorted.sort_by(f64::total_cmp);
            (figures.min, figures.max) = (sorted[0], sorted[sorted.len() - 1]);
            figures.median = sorted[sorted.len() / 2];
        }
        // Of nothing nothing is a multiple: nitro writes no WAL.
        if let Some(nitro) = self.methods.get("nitro").filter(|nitro| nitro.min > 0.0) {
            let ratio = |m: &Figures| Ratio {
                min: m.min / nitro.min,
                median: m.median / nitro.median,
                max: m.max / nitro.max,
                elapsed: (!m.elapsed.is_empty()).then(|| least(&m.elapsed) / least(&nitro.elapsed)),
            };
            let others = self.methods.iter().filter(|(method, _)| *method != "nitro");
            self.ratios = others.map(|(method, m)| (method.clone(), ratio(m))).collect();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_part_of_indexes() {
        let line = |method: &str, value: &str| {
            format!("s\tn\tt\tus\t{method}\t-\tcpu\t{value}\t{value}\n")
        };
        let samples =
            [("none", "2"), ("none", "1"), ("nitro", "3"), ("nitro", "2"), ("btree", "5")];
        let text: String = samples.iter().map(|(m, v)| line(m, v)).collect();
        let measures = read(&text).unwrap();
        let [measure] = &measures[..] else { panic!("{} measures", measures.len()) };
        let nitro = &measure.methods["nitro"];
        assert_eq!((nitro.min, nitro.median, nitro.max), (1.0, 2.0, 2.0));
        let ratio = Ratio { min: 4.0, median: 2.0, max: 2.0, elapsed: Some(4.0) };
        assert_eq!(measure.ratios["btree"], ratio);
        assert!(!measure.methods.contains_key("none"));
    }

    #[test]
    fn without_an_index_only() {
        let measures = read("s\tn\tt\tus\tnone\t-\tcpu\t2\t2\n").unwrap();
        assert_eq!(measures[0].methods["none"].min, 2.0);
    }

    #[test]
    fn no_ratio_to_nothing() {
        let text =
            "s\tn\tt\tbytes\tnitro\t-\tsize\t0.00\t-\ns\tn\tt\tbytes\tbtree\t-\tsize\t70\t-\n";
        assert!(read(text).unwrap()[0].ratios.is_empty());
    }

    #[test]
    fn what_is_no_sample() {
        assert!(read("s\tn\n").is_err());
        assert!(read("s\tn\tt\tus\tnitro\t-\tcpu\tfast\t-\n").is_err());
    }
}
