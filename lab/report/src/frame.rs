//! Common parts of charts: title, legend above the data, and the value axis.

use crate::axis::{Axis, Scale, Ticks};
use crate::draw::{Anchor, Drawing, Font, GREY, GRID, INK, TEXT};
use crate::format::{shortened, text_width, wrapped};
use crate::palette::{Color, Paint, marker, paint};

/// One entry of a legend.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    /// Name of the explained item.
    pub(crate) name: String,
    /// Appearance.
    pub(crate) swatch: Swatch,
}

/// Appearance of an item in a legend.
#[derive(Clone, Debug)]
pub(crate) enum Swatch {
    /// A line with an optional dash pattern (empty if solid) and an optional marker shape.
    Line { color: Color, dash: &'static str, shape: Option<usize> },
    /// A bar with this kind of hatching.
    Bar { color: Color, kind: usize },
    /// The published value across a bar.
    Published,
}

/// Area of the data, in pixels.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plot {
    /// Left edge.
    pub(crate) left: f64,
    /// Upper edge.
    pub(crate) top: f64,
    /// Right edge.
    pub(crate) right: f64,
    /// Lower edge.
    pub(crate) bottom: f64,
}

impl Plot {
    /// Returns the width in pixels.
    pub(crate) fn width(&self) -> f64 {
        self.right - self.left
    }

    /// Returns the height in pixels.
    pub(crate) fn height(&self) -> f64 {
        self.bottom - self.top
    }

    /// Returns the upper left corner and the size.
    pub(crate) fn area(&self) -> ((f64, f64), (f64, f64)) {
        ((self.left, self.top), (self.width(), self.height()))
    }

    /// Returns the y of a value in pixels from above.
    pub(crate) fn y(&self, scale: &Scale, value: f64) -> f64 {
        self.bottom - scale.fraction(value) * self.height()
    }

    /// Returns the x of a value in pixels.
    pub(crate) fn x(&self, scale: &Scale, value: f64) -> f64 {
        self.left + scale.fraction(value) * self.width()
    }
}

/// Space between the edge of the picture and its contents.
const MARGIN: f64 = 10.0;
/// Height of one legend line.
const ROW: f64 = 18.0;
/// Width of a swatch, including its distance to the name.
const SWATCH: f64 = 30.0;

/// Writes title and legend. Returns the y below the legend, which takes at most half the height.
pub(crate) fn header(d: &mut Drawing, title: &str, entries: &[Entry]) -> f64 {
    let mut y = 8.0;
    if !title.is_empty() {
        let font = Font { size: 14.0, extra: " font-weight=\"600\"", ..Font::plain(Anchor::Start) };
        // Semi-bold text is wider than the estimate for regular text.
        let lines = if d.height < 200.0 { 1 } else { 2 };
        for line in wrapped(title, 14.0 * 1.13, d.width - 2.0 * MARGIN, lines) {
            d.text(MARGIN, y + 12.0, font, &line);
            y += 18.0;
        }
        y += 4.0;
    }
    let shown: Vec<&Entry> = entries.iter().filter(|e| !e.name.is_empty()).collect();
    if shown.is_empty() {
        return y;
    }
    let room = d.width - 2.0 * MARGIN;
    let mut x = MARGIN;
    let mut row = y + 10.0;
    for (i, entry) in shown.iter().enumerate() {
        let name = shortened(&entry.name, TEXT, room - SWATCH);
        let width = SWATCH + text_width(&name) * TEXT;
        if x > MARGIN && x + width > MARGIN + room {
            x = MARGIN;
            row += ROW;
        }
        if row + ROW > d.height / 2.0 && i + 1 < shown.len() {
            let rest = format!("… and {} more", shown.len() - i);
            d.text(x, row + 4.0, Font { fill: GREY, ..Font::plain(Anchor::Start) }, &rest);
            break;
        }
        swatch(d, &entry.swatch, x, row);
        d.text(x + SWATCH, row + 4.0, Font::plain(Anchor::Start), &name);
        x += width + 16.0;
    }
    row + 12.0
}

fn swatch(d: &mut Drawing, swatch: &Swatch, x: f64, y: f64) {
    match swatch {
        Swatch::Line { color, dash, shape } => {
            let dash = if dash.is_empty() {
                String::new()
            } else {
                format!(" stroke-dasharray=\"{dash}\"")
            };
            d.line(
                (x, y),
                (x + 24.0, y),
                &color.to_string(),
                &format!(" stroke-width=\"2\"{dash}"),
            );
            if let Some(shape) = shape {
                one_marker(d, *shape, *color, x + 12.0, y);
            }
        }
        Swatch::Bar { color, kind } => bar(d, *kind, *color, (x + 4.0, y - 6.0), (18.0, 12.0)),
        Swatch::Published => published(d, x + 13.0, y, 20.0),
    }
}

/// Draws one marker with its centre at a point.
pub(crate) fn one_marker(d: &mut Drawing, shape: usize, color: Color, x: f64, y: f64) {
    let mut path = crate::draw::PathData::default();
    path.move_to(x, y);
    path.raw(marker(shape));
    d.path(&path.finish(), &marker_paint(shape, color));
}

/// Returns the attributes of markers of a shape and a colour.
pub(crate) fn marker_paint(shape: usize, color: Color) -> String {
    match paint(shape) {
        Paint::Filled => format!(" fill=\"{color}\" stroke=\"#ffffff\" stroke-width=\".8\""),
        Paint::Hollow => format!(" fill=\"#ffffff\" stroke=\"{color}\" stroke-width=\"1.6\""),
        Paint::Strokes => format!(" fill=\"none\" stroke=\"{color}\" stroke-width=\"1.8\""),
    }
}

/// Draws one bar with its hatching.
pub(crate) fn bar(d: &mut Drawing, kind: usize, color: Color, at: (f64, f64), size: (f64, f64)) {
    d.rect(at, size, &color.to_string(), &format!(" stroke=\"{color}\""));
    let lines = crate::draw::hatching(kind, at, size);
    d.path(&lines, " fill=\"none\" stroke=\"#ffffff\" stroke-width=\"1.1\"");
}

/// Draws a published value across a bar of this width.
pub(crate) fn published(d: &mut Drawing, x: f64, y: f64, width: f64) {
    let half = width / 2.0;
    let (from, to) = ((x - half, y), (x + half, y));
    d.line(from, to, "#ffffff", " stroke-width=\"5\"");
    d.line(from, to, INK, " stroke-width=\"2\"");
    let mut path = crate::draw::PathData::default();
    path.move_to(x, y);
    path.raw("m0-4.5l4.5 4.5l-4.5 4.5l-4.5-4.5z");
    d.path(&path.finish(), &format!(" fill=\"#ffffff\" stroke=\"{INK}\" stroke-width=\"1.5\""));
}

/// Returns the width that the labels of a value axis need on the left.
pub(crate) fn left_margin(ticks: &Ticks) -> f64 {
    let widest = ticks.labelled.iter().map(|t| text_width(&t.label)).fold(1.0, f64::max);
    (widest * TEXT + MARGIN + 8.0).min(110.0)
}

/// Draws the value axis: its caption above, grid lines, and labels on the left.
pub(crate) fn value_axis(d: &mut Drawing, plot: &Plot, axis: &Axis, scale: &Scale, ticks: &Ticks) {
    let caption = shortened(&axis.caption(&ticks.unit), TEXT, d.width - 2.0 * MARGIN);
    let font = Font { fill: GREY, ..Font::plain(Anchor::Start) };
    d.text(MARGIN, plot.top - 12.0, font, &caption);
    for at in &ticks.minor {
        let y = plot.y(scale, *at);
        d.line((plot.left, y), (plot.right, y), "#f1f1f1", "");
    }
    for tick in &ticks.labelled {
        let y = plot.y(scale, tick.at);
        d.line((plot.left, y), (plot.right, y), GRID, "");
        d.text(plot.left - 7.0, y + 4.0, Font::plain(Anchor::End), &tick.label);
    }
}

/// Draws the left and the lower edge of the plot.
pub(crate) fn edges(d: &mut Drawing, plot: &Plot) {
    d.line((plot.left, plot.top), (plot.left, plot.bottom), GREY, "");
    d.line((plot.left, plot.bottom), (plot.right, plot.bottom), GREY, "");
}

/// Height of the caption above the plot.
pub(crate) const CAPTION: f64 = 24.0;
