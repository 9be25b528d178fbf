//! JSON form of charts for the page's script. Field names are short because they repeat.

use serde::Serialize;

use crate::axis::{Axis, Scale};
use crate::chart::{Chart, LabelPosition, Line, Style};
use crate::format::{decade, usable};
use crate::palette::{dashes, series};
use crate::thin::thin;

use super::POINTS;

/// One chart. Charts with the same nonempty link share pointer and zoom.
#[derive(Serialize)]
struct ChartSpec<'a> {
    link: &'a str,
    title: &'a str,
    runs: bool,
    x: AxisSpec<'a>,
    y: AxisSpec<'a>,
    lines: Vec<LineSpec<'a>>,
    marks: Vec<MarkSpec<'a>>,
    bands: Vec<BandSpec<'a>>,
}

#[derive(Serialize)]
struct AxisSpec<'a> {
    label: &'a str,
    unit: String,
    div: f64,
    lo: f64,
    hi: f64,
    log: bool,
    fixed: bool,
}

#[derive(Serialize)]
struct LineSpec<'a> {
    name: &'a str,
    color: String,
    style: &'static str,
    dash: Vec<u8>,
    x: Vec<f64>,
    y: Vec<Option<f64>>,
}

#[derive(Serialize)]
struct MarkSpec<'a> {
    text: &'a str,
    at: [Option<f64>; 2],
}

#[derive(Serialize)]
struct BandSpec<'a> {
    text: &'a str,
    at: [Option<f64>; 2],
}

/// Returns one chart as JSON that is safe inside an HTML `script` element: no text can close the
/// element or open a comment. `None` for a chart without data.
pub(super) fn chart(chart: &Chart, link: &str) -> Option<String> {
    let (x, y) = chart.scales(6)?;
    let marks = chart.references.iter().filter_map(|mark| {
        let (u, v) = match mark.position {
            LabelPosition::Level(v) => (None, Some(v)),
            LabelPosition::At(u) => (Some(u), None),
        };
        let is_shown =
            u.is_none_or(|u| chart.x.can_show(u)) && v.is_none_or(|v| chart.y.can_show(v));
        is_shown.then_some(MarkSpec { text: &mark.label, at: [u, v] })
    });
    let bands = chart.bands.iter().filter_map(|band| {
        crate::plot::span(&x, band.from, band.to)?;
        // An open end is null.
        let at = [band.from, band.to].map(|end| Some(end).filter(|end| usable(*end)));
        Some(BandSpec { text: &band.label, at })
    });
    let spec = ChartSpec {
        link,
        title: &chart.title,
        runs: chart.runs_along_x(),
        x: axis(&chart.x, &x),
        y: axis(&chart.y, &y),
        lines: chart
            .lines
            .iter()
            .enumerate()
            .map(|(i, one)| line(chart, i, one, (&x, &y)))
            .collect(),
        marks: marks.collect(),
        bands: bands.collect(),
    };
    let text = serde_json::to_string(&spec).expect("numbers, texts and lists are JSON");
    Some(text.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026"))
}

fn axis<'a>(axis: &'a Axis, scale: &Scale) -> AxisSpec<'a> {
    let unit = scale.unit(&axis.unit);
    let fixed = axis.wanted_range().is_some();
    let Scale { low: lo, high: hi, log } = *scale;
    AxisSpec { label: &axis.label, unit: unit.name, div: unit.divisor, lo, hi, log, fixed }
}

/// Returns a value rounded to this number of significant digits, which shortens the text.
fn rounded(value: f64, digits: usize) -> f64 {
    format!("{value:.*e}", digits - 1).parse().unwrap_or(value) + 0.0
}

/// Returns the digits that place a value to a millionth of its axis.
fn digits(scale: &Scale) -> usize {
    let offset = scale.low.abs().max(scale.high.abs()) / (scale.high - scale.low);
    let more = if scale.log { 0 } else { decade(offset.max(1.0)) };
    usize::try_from(more + 7).unwrap_or(7).min(16)
}

fn line<'a>(chart: &Chart, i: usize, line: &'a Line, (x, y): (&Scale, &Scale)) -> LineSpec<'a> {
    let style = match line.style {
        Style::Line => "line",
        Style::Step => "step",
        Style::Dashed => "dashed",
    };
    let points = thin(&chart.drawable(line), POINTS, chart.x.log);
    let x_of = |at: usize| points.get(at).copied().flatten().map(|p| p.0);
    // A gap is between its neighbours, so x never decreases and no point has the x of the gap.
    let xs = points.iter().enumerate().map(|(at, p)| match p {
        Some(p) => p.0,
        None => f64::midpoint(
            x_of(at.wrapping_sub(1)).unwrap_or_default(),
            x_of(at + 1).unwrap_or_default(),
        ),
    });
    let dash = if line.style == Style::Dashed { dashes(i) } else { "" };
    LineSpec {
        name: &line.name,
        color: series(i).to_string(),
        style,
        dash: dash.split_whitespace().filter_map(|length| length.parse().ok()).collect(),
        x: xs.map(|value| rounded(value, digits(x))).collect(),
        y: points.iter().map(|p| p.map(|p| rounded(p.1, digits(y)))).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_rounded_and_negative_zero_has_no_sign() {
        for (value, text) in [(0.1 + 0.2, "0.3"), (-0.0, "0.0"), (1234.5678, "1234.568")] {
            assert_eq!(serde_json::to_string(&rounded(value, 7)).unwrap(), text);
        }
    }

    #[test]
    fn small_steps_on_a_large_offset_keep_their_digits() {
        let scale = Scale { low: 1e9, high: 1e9 + 10.0, log: false };
        assert_eq!(rounded(1e9 + 3.25, digits(&scale)).to_string(), "1000000003.25");
    }
}
