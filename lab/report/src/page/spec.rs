//! JSON form of charts for the page's script. Field names are short because they repeat.

use std::fmt::Write as _;

use crate::axis::{Axis, Scale};
use crate::chart::{Band, Chart, LabelPosition, Line, Style};
use crate::escape::json;
use crate::format::{decade, usable};
use crate::palette::{MARKERS, Paint, dashes, marker, paint, series};
use crate::thin::{thin, thin_cloud};

use super::POINTS;

/// Returns the data shared by all charts of a page: paths of the markers, and how each is painted.
pub(super) fn appearance() -> String {
    let shapes: Vec<String> = (0..MARKERS).map(|shape| json(marker(shape))).collect();
    let paints: Vec<&str> = (0..MARKERS)
        .map(|shape| match paint(shape) {
            Paint::Filled => "\"filled\"",
            Paint::Hollow => "\"hollow\"",
            Paint::Strokes => "\"strokes\"",
        })
        .collect();
    format!("{{\"shapes\":[{}],\"paints\":[{}]}}", shapes.join(","), paints.join(","))
}

/// Writes a JSON number with this many digits, or `null` if the value cannot be drawn.
fn number(out: &mut String, value: f64, digits: usize) {
    if !usable(value) {
        out.push_str("null");
        return;
    }
    let rounded: f64 = format!("{value:.*e}", digits - 1).parse().unwrap_or(0.0);
    // `-0` is a valid number, but looks odd in a read-out.
    let (plain, scientific) = (format!("{}", rounded + 0.0), format!("{:e}", rounded + 0.0));
    out.push_str(if plain.len() <= scientific.len() { &plain } else { &scientific });
}

/// Writes a list of numbers.
fn numbers(out: &mut String, values: impl Iterator<Item = f64>, digits: usize) {
    out.push('[');
    for (i, value) in values.enumerate() {
        if i > 0 {
            out.push(',');
        }
        number(out, value, digits);
    }
    out.push(']');
}

/// Returns the digits that place a value to a millionth of its axis.
fn digits(scale: &Scale) -> usize {
    let offset = scale.low.abs().max(scale.high.abs()) / (scale.high - scale.low);
    let more = if scale.log { 0 } else { decade(offset.max(1.0)) };
    usize::try_from(more + 7).unwrap_or(7).min(16)
}

fn axis(out: &mut String, key: &str, axis: &Axis, scale: &Scale) {
    let unit = scale.unit(&axis.unit);
    let _ =
        write!(out, "\"{key}\":{{\"label\":{},\"unit\":{}", json(&axis.label), json(&unit.name));
    for (name, value) in [("div", unit.divisor), ("lo", scale.low), ("hi", scale.high)] {
        let _ = write!(out, ",\"{name}\":");
        number(out, value, 16);
    }
    let fixed = axis.wanted_range().is_some();
    let _ = write!(out, ",\"log\":{},\"fixed\":{fixed}}}", scale.log);
}

/// Returns one chart as JSON. Charts with the same nonempty link zoom together.
pub(super) fn chart(chart: &Chart, link: &str) -> String {
    let Some((x, y)) = chart.scales(6) else { return "null".to_owned() };
    let mut out = format!("{{\"link\":{},\"title\":{},", json(link), json(&chart.title));
    let _ = write!(out, "\"runs\":{},", chart.runs_along_x());
    axis(&mut out, "x", &chart.x, &x);
    out.push(',');
    axis(&mut out, "y", &chart.y, &y);
    out.push_str(",\"lines\":[");
    for (i, one) in chart.lines.iter().enumerate() {
        if i > 0 {
            out.push(',');
        }
        line(&mut out, chart, i, one, (&x, &y));
    }
    out.push_str("],\"marks\":[");
    let shown = |place: &LabelPosition| match *place {
        LabelPosition::Level(v) => chart.y.can_show(v),
        LabelPosition::At(v) => chart.x.can_show(v),
        LabelPosition::Point(u, v) => chart.x.can_show(u) && chart.y.can_show(v),
    };
    for (i, mark) in chart.marks.iter().filter(|m| shown(&m.position)).enumerate() {
        if i > 0 {
            out.push(',');
        }
        let (u, v) = match mark.position {
            LabelPosition::Level(v) => (f64::NAN, v),
            LabelPosition::At(u) => (u, f64::NAN),
            LabelPosition::Point(u, v) => (u, v),
        };
        let _ = write!(out, "{{\"text\":{},\"at\":", json(&mark.label));
        numbers(&mut out, [u, v].into_iter(), 16);
        out.push('}');
    }
    out.push_str("],\"bands\":[");
    let bands = chart.bands.iter().filter_map(|band| match band {
        Band::X { from, to, label } => {
            Some(("x", from, to, label)).filter(|b| good(&x, *b.1, *b.2))
        }
        Band::Y { from, to, label } => {
            Some(("y", from, to, label)).filter(|b| good(&y, *b.1, *b.2))
        }
    });
    for (i, (kind, from, to, label)) in bands.enumerate() {
        if i > 0 {
            out.push(',');
        }
        let _ = write!(out, "{{\"axis\":\"{kind}\",\"text\":{},\"at\":", json(label));
        numbers(&mut out, [*from, *to].into_iter(), 16);
        out.push('}');
    }
    out.push_str("]}");
    out
}

/// Returns whether a band can be drawn. Open ends are written as `null`.
fn good(scale: &Scale, from: f64, to: f64) -> bool {
    crate::plot::span(scale, from, to).is_some()
}

fn line(out: &mut String, chart: &Chart, i: usize, line: &Line, (x, y): (&Scale, &Scale)) {
    let style = match line.style {
        Style::Line => "line",
        Style::Points => "points",
        Style::Step => "step",
        Style::Dashed => "dashed",
    };
    let points = chart.drawable(line);
    let points: Vec<Option<(f64, f64)>> = if line.style == Style::Points {
        let cloud: Vec<(f64, f64)> = points.into_iter().flatten().collect();
        let place = |p: (f64, f64)| (x.fraction(p.0), y.fraction(p.1));
        thin_cloud(&cloud, POINTS, place).into_iter().map(Some).collect()
    } else {
        thin(&points, POINTS, chart.x.log)
    };
    let _ = write!(
        out,
        "{{\"name\":{},\"color\":\"{}\",\"style\":\"{style}\",\"shape\":{},\"dash\":\"{}\",\"marked\":{},\"x\":",
        json(&line.name),
        series(i, line.color),
        i % MARKERS,
        dashes(i),
        chart.is_marked(line)
    );
    // A gap has the x of the point before the gap, so x never decreases.
    let mut before = 0.0;
    let xs = points.iter().map(|p| {
        before = p.map_or(before, |p| p.0);
        before
    });
    numbers(out, xs, digits(x));
    out.push_str(",\"y\":");
    numbers(out, points.iter().map(|p| p.map_or(f64::NAN, |p| p.1)), digits(y));
    out.push('}');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(value: f64, digits: usize) -> String {
        let mut out = String::new();
        number(&mut out, value, digits);
        out
    }

    #[test]
    fn json_numbers_are_short_and_finite() {
        for (value, text) in [
            (0.1 + 0.2, "0.3"),
            (4.4e8, "4.4e8"),
            (-0.0, "0"),
            (1234.5678, "1234.568"),
            (f64::NAN, "null"),
            (f64::NEG_INFINITY, "null"),
            (1e200, "null"),
        ] {
            assert_eq!(written(value, 7), text);
        }
    }

    #[test]
    fn small_steps_on_a_large_offset_keep_their_digits() {
        let scale = Scale { low: 1e9, high: 1e9 + 10.0, log: false };
        let text = written(1e9 + 3.25, digits(&scale));
        assert_eq!(text, "1000000003.25");
    }
}
