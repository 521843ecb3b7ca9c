//! Time against layers and against devices, as a picture.

use std::collections::BTreeMap;

use anyhow::{Result, anyhow};
use plotters::coord::combinators::LogCoord;
use plotters::prelude::*;

use super::figures::Figures;

/// The groups that are drawn, each with the function whose sizes are `LAYERSxDEVICES`, and its title.
const DRAWN: &[(&str, &str, &str)] =
    &[("fit", "warm", "fit, largest first"), ("min-max", "given order, exact", "exact min–max, given order")];

/// How large one of the four panels is.
const PANEL: (u32, u32) = (460, 340);

/// Lines for people who cannot tell colours apart differ in their marks as well.
const COLOURS: [RGBColor; 5] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(120, 120, 120),
];

type Panel<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;
type Axes<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<LogCoord<f64>, LogCoord<f64>>>;

/// Points of one line: size and microseconds.
type Line = Vec<(f64, f64)>;

/// The picture, or nothing where no group that it shows was measured.
pub(super) fn svg(figures: &Figures) -> Result<Option<String>> {
    let measured: Vec<_> = DRAWN
        .iter()
        .map(|(group, function, title)| (*title, sizes(figures, group, function)))
        .filter(|(_, sizes)| !sizes.is_empty())
        .collect();
    if measured.is_empty() {
        return Ok(None);
    }
    let rows = measured.len();
    let mut text = String::new();
    {
        let height = PANEL.1 * u32::try_from(rows)?;
        let root = SVGBackend::with_string(&mut text, (PANEL.0 * 2, height)).into_drawing_area();
        root.fill(&WHITE).map_err(drawing)?;
        let panels = root.split_evenly((rows, 2));
        for ((title, sizes), pair) in measured.iter().zip(panels.chunks(2)) {
            let [left, right] = pair else { continue };
            let by_devices = lines(sizes, |&(layers, devices)| (devices, layers));
            panel(left, &format!("{title}: by layers"), "layers", "devices", &by_devices)?;
            let by_layers = lines(sizes, |&(layers, devices)| (layers, devices));
            panel(right, &format!("{title}: by devices"), "devices", "layers", &by_layers)?;
        }
        root.present().map_err(drawing)?;
    }
    Ok(Some(text))
}

fn drawing(error: impl std::fmt::Display) -> anyhow::Error {
    anyhow!("cannot draw: {error}")
}

/// Microseconds by layers and devices.
fn sizes(figures: &Figures, group: &str, function: &str) -> BTreeMap<(u32, u32), f64> {
    let of_group = figures.iter().filter(|((g, f, _), _)| g == group && f == function);
    of_group
        .filter_map(|((_, _, input), figure)| {
            let (layers, devices) = input.split_once('x')?;
            Some(((layers.parse().ok()?, devices.parse().ok()?), figure.median / 1e3))
        })
        .collect()
}

/// One line for each first number, over the second ones.
fn lines(
    sizes: &BTreeMap<(u32, u32), f64>,
    split: impl Fn(&(u32, u32)) -> (u32, u32),
) -> BTreeMap<u32, Line> {
    let mut lines: BTreeMap<u32, Line> = BTreeMap::new();
    for (size, &microseconds) in sizes {
        let (line, at) = split(size);
        lines.entry(line).or_default().push((f64::from(at), microseconds));
    }
    lines
}

fn panel(area: &Panel<'_>, title: &str, axis: &str, what: &str, lines: &BTreeMap<u32, Line>) -> Result<()> {
    let points = || lines.values().flatten();
    let span = |of: fn(&(f64, f64)) -> f64| {
        let least = points().map(of).fold(f64::INFINITY, f64::min);
        let most = points().map(of).fold(0.0, f64::max);
        (least / 1.5)..(most * 1.5)
    };
    let mut chart: Axes<'_, '_> = ChartBuilder::on(area)
        .caption(title, ("sans-serif", 15))
        .margin(10)
        .x_label_area_size(36)
        .y_label_area_size(56)
        .build_cartesian_2d(span(|point| point.0).log_scale(), span(|point| point.1).log_scale())
        .map_err(drawing)?;
    let tick = |value: &f64| if *value >= 1.0 { format!("{value:.0}") } else { format!("{value}") };
    chart
        .configure_mesh()
        .light_line_style(WHITE)
        .x_desc(axis)
        .y_desc("µs, median")
        .x_label_formatter(&tick)
        .y_label_formatter(&tick)
        .draw()
        .map_err(drawing)?;
    for (number, (line, points)) in lines.iter().enumerate() {
        let colour = COLOURS[number % COLOURS.len()];
        chart
            .draw_series(LineSeries::new(points.iter().copied(), colour.stroke_width(2)))
            .map_err(drawing)?
            .label(format!("{line} {what}"))
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], colour.stroke_width(2)));
        mark(&mut chart, number, points, colour)?;
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK.mix(0.3))
        .label_font(("sans-serif", 11))
        .draw()
        .map_err(drawing)
}

fn mark(chart: &mut Axes<'_, '_>, number: usize, points: &[(f64, f64)], colour: RGBColor) -> Result<()> {
    let points = points.iter().copied();
    match number % 3 {
        0 => chart.draw_series(points.map(|p| Circle::new(p, 3, colour.filled()))).map(drop),
        1 => chart.draw_series(points.map(|p| TriangleMarker::new(p, 5, colour.filled()))).map(drop),
        _ => chart.draw_series(points.map(|p| Cross::new(p, 4, colour.stroke_width(2)))).map(drop),
    }
    .map_err(drawing)
}

#[cfg(test)]
mod tests {
    use super::super::figures::Figure;
    use super::*;

    #[test]
    fn a_line_stands_for_each_size() -> Result<()> {
        let row = |input: &str, median: f64| {
            let id = ("fit".to_owned(), "warm".to_owned(), input.to_owned());
            (id, Figure { median, p5: median, saved: None })
        };
        let figures = [row("80x4", 40.0), row("1000x4", 60.0), row("1000x100", 900.0)].into();
        let svg = svg(&figures)?.unwrap_or_default();
        for text in ["4 devices", "100 devices", "80 layers", "1000 layers", "by devices"] {
            assert!(svg.contains(text), "{text} is not in the picture");
        }
        assert_eq!(super::svg(&Figures::new())?, None);
        Ok(())
    }
}
