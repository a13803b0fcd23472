//! Plots of what grows from measure to measure.

use crate::samples::Measure;
use plotters::prelude::*;
use std::error::Error;
use std::path::Path;

const COLOURS: [RGBColor; 4] =
    [RGBColor(0, 114, 178), RGBColor(213, 94, 0), RGBColor(0, 158, 115), RGBColor(150, 150, 150)];

/// A file for each measure that was taken at several sizes; says which.
pub fn all(measures: &[Measure], into: &Path, name: &str) -> Result<Vec<String>, Box<dyn Error>> {
    let mut known: Vec<(&str, &str)> = Vec::new();
    let mut files = Vec::new();
    for measure in measures.iter().filter(|m| m.at.is_some()) {
        let key = (&measure.section[..], &measure.name[..]);
        if known.contains(&key) {
            continue;
        }
        known.push(key);
        let same = |m: &&Measure| (&m.section[..], &m.name[..]) == key;
        let points: Vec<&Measure> = measures.iter().filter(same).collect();
        if points.len() > 1 {
            let file = format!("{name}-{}-{}.svg", measure.section, measure.name);
            one(&points, &into.join(&file))?;
            files.push(file);
        }
    }
    Ok(files)
}

fn one(points: &[&Measure], file: &Path) -> Result<(), Box<dyn Error>> {
    let at = |m: &Measure| m.at.unwrap_or_default();
    let figures = || points.iter().flat_map(|m| m.methods.values().map(|f| f.min));
    let most = figures().fold(0.0, f64::max) * 1.05;
    let (first, last) =
        points.iter().fold((f64::INFINITY, 0.0_f64), |(a, b), m| (a.min(at(m)), b.max(at(m))));

    let area = SVGBackend::new(file, (640, 360)).into_drawing_area();
    area.fill(&WHITE)?;
    let title = format!("{}, {}", points[0].title, points[0].unit);
    let mut chart = ChartBuilder::on(&area)
        .caption(title, ("sans-serif", 16))
        .margin(12)
        .x_label_area_size(34)
        .y_label_area_size(56)
        .build_cartesian_2d((first..last).log_scale(), 0.0..most)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(TRANSPARENT)
        .x_desc(&points[0].section)
        .x_label_formatter(&|x| format!("{}", x.round()))
        .draw()?;

    let mut methods: Vec<&String> = points.iter().flat_map(|m| m.methods.keys()).collect();
    methods.sort_by_key(|method| (*method != "nitro", *method));
    methods.dedup();
    for (method, colour) in methods.into_iter().zip(COLOURS.into_iter().cycle()) {
        let line = || points.iter().filter_map(|m| Some((at(m), m.methods.get(method)?.min)));
        chart
            .draw_series(LineSeries::new(line(), colour.stroke_width(2)))?
            .label(method)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(2)));
        chart.draw_series(line().map(|point| Circle::new(point, 3, colour.filled())))?;
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE.mix(0.8))
        .border_style(TRANSPARENT)
        .draw()?;
    area.present()?;
    Ok(())
}
