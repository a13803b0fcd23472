//! `deploy/monitoring/alerts.yaml`: alert rules for Prometheus ask for metrics that the exporter's
//! file gives.

use std::collections::{BTreeMap, BTreeSet};

const ALERTS: &str = include_str!("../../../../deploy/monitoring/alerts.yaml");
const EXPORTER: &str = include_str!("../../../../deploy/monitoring/postgres_exporter.yaml");

/// The labels and the other columns of each query of the exporter, by the name of the query.
type Queries = BTreeMap<&'static str, (BTreeSet<&'static str>, BTreeSet<&'static str>)>;

fn queries() -> Queries {
    let mut all = Queries::new();
    let (mut query, mut column) = ("", "");
    for line in EXPORTER.lines() {
        if let Some(name) = line.strip_suffix(':').filter(|name| !name.starts_with(' ')) {
            query = name;
        } else if let Some(name) = line.strip_prefix("    - ").and_then(|l| l.strip_suffix(':')) {
            column = name;
        } else if let Some(usage) = line.trim_start().strip_prefix("usage: ") {
            let (labels, metrics) = all.entry(query).or_default();
            if usage == "\"LABEL\"" {
                labels.insert(column)
            } else {
                metrics.insert(column)
            };
        }
    }
    all
}

/// The lines of each rule, without indentation.
fn rules() -> Vec<Vec<&'static str>> {
    let lines = ALERTS.lines().filter(|line| !line.starts_with('#')).map(str::trim);
    let mut rules: Vec<Vec<&str>> = Vec::new();
    for line in lines {
        match line.strip_prefix("- alert: ") {
            Some(name) => rules.push(vec![name]),
            None => rules.last_mut().into_iter().for_each(|rule| rule.push(line)),
        }
    }
    rules
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
}

#[test]
fn each_rule_is_whole_and_asks_for_what_there_is() {
    let (queries, rules) = (queries(), rules());
    assert!(rules.len() > 5, "{rules:?}");
    let names: BTreeSet<_> = rules.iter().map(|rule| rule[0]).collect();
    assert_eq!(names.len(), rules.len(), "names are different");
    for rule in &rules {
        let field = |name: &str| rule.iter().find_map(|line| line.strip_prefix(name));
        let expr = field("expr: ").unwrap_or_else(|| panic!("{}: no expr", rule[0]));
        assert!(matches!(field("severity: "), Some("warning" | "critical")), "{}", rule[0]);
        assert!(field("summary: ").is_some() && field("description: ").is_some(), "{}", rule[0]);
        let metrics: Vec<_> = words(expr).filter(|word| word.starts_with("nitro_")).collect();
        assert!(!metrics.is_empty(), "{}: {expr}", rule[0]);
        for metric in metrics {
            let (_, (labels, _)) = queries
                .iter()
                .find(|(query, (_, columns))| {
                    let column = metric.strip_prefix(**query).and_then(|m| m.strip_prefix('_'));
                    column.is_some_and(|column| columns.contains(column))
                })
                .unwrap_or_else(|| panic!("{}: the exporter has no {metric}", rule[0]));
            for text in [field("summary: "), field("description: ")].into_iter().flatten() {
                let used = text.split("$labels.").skip(1).filter_map(|rest| words(rest).next());
                used.for_each(|label| {
                    assert!(labels.contains(label), "{}: no label {label}", rule[0]);
                });
            }
        }
    }
}

#[test]
fn each_limit_has_a_rule() {
    for metric in
        ["memory", "database", "owner", "index"].map(|of| format!("nitro_{of}_alarm_percent"))
    {
        assert!(ALERTS.contains(&format!("expr: {metric} >= 80")), "no rule of {metric}");
    }
}
