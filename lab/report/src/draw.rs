//! SVG writer: elements as text.

use std::fmt::Write as _;

use crate::escape::xml;
use crate::format::index;

/// Fonts that most machines have. No font file is loaded.
pub(crate) const FONTS: &str =
    "system-ui,-apple-system,'Segoe UI','DejaVu Sans',Arial,Helvetica,sans-serif";
/// Colour of text and axes.
pub(crate) const INK: &str = "#222222";
/// Colour of secondary text.
pub(crate) const GREY: &str = "#555555";
/// Colour of grid lines.
pub(crate) const GRID: &str = "#e2e2e2";
/// Size of ordinary text in pixels.
pub(crate) const TEXT: f64 = 12.0;

/// Part of a text that is placed at the position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Anchor {
    /// The start.
    Start,
    /// The middle.
    Middle,
    /// The end.
    End,
}

/// Text style.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Font {
    /// Size in pixels.
    pub(crate) size: f64,
    /// Part of the text at the position.
    pub(crate) anchor: Anchor,
    /// Colour.
    pub(crate) fill: &'static str,
    /// Further attributes, each with a space before it.
    pub(crate) extra: &'static str,
}

impl Font {
    /// Ordinary dark text.
    pub(crate) const fn plain(anchor: Anchor) -> Self {
        Self { size: TEXT, anchor, fill: INK, extra: "" }
    }

    /// Text with a white outline, readable over lines.
    pub(crate) const fn over(anchor: Anchor) -> Self {
        let extra = " paint-order=\"stroke\" stroke=\"#ffffff\" stroke-width=\"3.5\" stroke-linejoin=\"round\"";
        Self { size: 11.0, anchor, fill: INK, extra }
    }
}

/// A picture under construction.
#[derive(Debug)]
pub(crate) struct Drawing {
    out: String,
    /// Width in pixels.
    pub(crate) width: f64,
    /// Height in pixels.
    pub(crate) height: f64,
}

impl Drawing {
    /// Returns an empty picture on white. The least size is 200 × 140.
    pub(crate) fn new(width: u32, height: u32, title: &str) -> Self {
        let (width, height) = (width.clamp(200, 20_000), height.clamp(140, 20_000));
        let title = xml(title);
        let out = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
             viewBox=\"0 0 {width} {height}\" font-family=\"{FONTS}\" role=\"img\">\n\
             <title>{title}</title>\n\
             <rect width=\"{width}\" height=\"{height}\" fill=\"#ffffff\"/>\n"
        );
        Self { out, width: f64::from(width), height: f64::from(height) }
    }

    /// Draws a straight line. `extra` holds further attributes, each preceded by a space.
    pub(crate) fn line(&mut self, from: (f64, f64), to: (f64, f64), stroke: &str, extra: &str) {
        let (x1, y1, x2, y2) = (num(from.0), num(from.1), num(to.0), num(to.1));
        let _ = writeln!(
            self.out,
            "<line x1=\"{x1}\" y1=\"{y1}\" x2=\"{x2}\" y2=\"{y2}\" stroke=\"{stroke}\"{extra}/>"
        );
    }

    /// Draws a filled rectangle. Negative sizes count as zero.
    pub(crate) fn rect(&mut self, at: (f64, f64), size: (f64, f64), fill: &str, extra: &str) {
        let (x, y, w, h) = (num(at.0), num(at.1), num(size.0.max(0.0)), num(size.1.max(0.0)));
        let _ = writeln!(
            self.out,
            "<rect x=\"{x}\" y=\"{y}\" width=\"{w}\" height=\"{h}\" fill=\"{fill}\"{extra}/>"
        );
    }

    /// Draws a path with its attributes, each preceded by a space.
    pub(crate) fn path(&mut self, d: &str, extra: &str) {
        if !d.is_empty() {
            let _ = writeln!(self.out, "<path d=\"{d}\"{extra}/>");
        }
    }

    /// Writes a text with its baseline at `y`.
    pub(crate) fn text(&mut self, x: f64, y: f64, font: Font, text: &str) {
        let anchor = match font.anchor {
            Anchor::Start => "",
            Anchor::Middle => " text-anchor=\"middle\"",
            Anchor::End => " text-anchor=\"end\"",
        };
        let (x, y, size) = (num(x), num(y), num(font.size));
        let _ = writeln!(
            self.out,
            "<text x=\"{x}\" y=\"{y}\" font-size=\"{size}\" fill=\"{}\"{anchor}{}>{}</text>",
            font.fill,
            font.extra,
            xml(text)
        );
    }

    /// Writes a rising text that ends at a position.
    pub(crate) fn slanted(&mut self, x: f64, y: f64, text: &str) {
        let (x, y) = (num(x), num(y));
        let _ = writeln!(
            self.out,
            "<text font-size=\"{TEXT}\" fill=\"{INK}\" text-anchor=\"end\" \
             transform=\"translate({x} {y}) rotate(-35)\">{}</text>",
            xml(text)
        );
    }

    /// Clips the following elements to a rectangle, until [`Drawing::unclip`].
    pub(crate) fn clip(&mut self, at: (f64, f64), size: (f64, f64)) {
        let (x, y, w, h) = (num(at.0), num(at.1), num(size.0), num(size.1));
        let _ = writeln!(
            self.out,
            "<svg x=\"{x}\" y=\"{y}\" width=\"{w}\" height=\"{h}\" viewBox=\"{x} {y} {w} {h}\" \
             overflow=\"hidden\">"
        );
    }

    /// Ends the innermost [`Drawing::clip`].
    pub(crate) fn unclip(&mut self) {
        self.out.push_str("</svg>\n");
    }

    /// Writes a message centred at a point.
    pub(crate) fn message(&mut self, center: (f64, f64), text: &str) {
        let font = Font { size: 14.0, fill: GREY, ..Font::plain(Anchor::Middle) };
        self.text(center.0, center.1, font, text);
    }

    /// Returns the finished picture.
    pub(crate) fn finish(mut self) -> String {
        self.out.push_str("</svg>\n");
        self.out
    }
}

/// Returns a coordinate in tenths of a pixel, limited to the range that viewers can draw.
pub(crate) fn tenths(value: f64) -> i32 {
    crate::format::whole(value.clamp(-1e6, 1e6) * 10.0)
}

/// Formats a length with at most one decimal.
pub(crate) fn num(value: f64) -> String {
    let mut out = String::new();
    write_tenths(&mut out, tenths(value));
    out
}

fn write_tenths(out: &mut String, tenths: i32) {
    let size = tenths.unsigned_abs();
    if tenths < 0 {
        out.push('-');
    }
    let _ = match (size / 10, size % 10) {
        (whole, 0) => write!(out, "{whole}"),
        (0, part) => write!(out, ".{part}"),
        (whole, part) => write!(out, "{whole}.{part}"),
    };
}

/// Compact path data: relative coordinates, rounded without drift.
#[derive(Debug, Default)]
pub(crate) struct PathData {
    out: String,
    at: (i32, i32),
}

impl PathData {
    /// Moves to a point without drawing.
    pub(crate) fn move_to(&mut self, x: f64, y: f64) {
        self.at = (tenths(x), tenths(y));
        self.out.push('M');
        write_tenths(&mut self.out, self.at.0);
        self.separate(self.at.1);
    }

    /// Draws a straight line to a point, unless it equals the present point to a tenth of a pixel.
    pub(crate) fn line_to(&mut self, x: f64, y: f64) {
        let to = (tenths(x), tenths(y));
        let (dx, dy) = (to.0 - self.at.0, to.1 - self.at.1);
        match (dx, dy) {
            (0, 0) => return,
            (_, 0) => self.short('h', dx),
            (0, _) => self.short('v', dy),
            _ => {
                self.short('l', dx);
                self.separate(dy);
            }
        }
        self.at = to;
    }

    /// Draws a dot at the present point. With round ends it is as wide as the stroke.
    pub(crate) fn dot(&mut self) {
        self.out.push_str("h0");
    }

    /// Adds path data of the caller.
    pub(crate) fn raw(&mut self, data: &str) {
        self.out.push_str(data);
    }

    fn short(&mut self, command: char, by: i32) {
        self.out.push(command);
        write_tenths(&mut self.out, by);
    }

    fn separate(&mut self, value: i32) {
        if value >= 0 {
            self.out.push(' ');
        }
        write_tenths(&mut self.out, value);
    }

    /// Returns the path data.
    pub(crate) fn finish(self) -> String {
        self.out
    }
}

/// Returns a hatching of a rectangle, which distinguishes the bars of different series without
/// colour.
pub(crate) fn hatching(kind: usize, at: (f64, f64), size: (f64, f64)) -> String {
    let ((x, y), (w, h)) = (at, size);
    let mut path = PathData::default();
    let gap = 5.0;
    let steps = |length: f64| (1..=index((length / gap).min(2000.0))).map(|i| i as f64 * gap);
    if w < 2.0 || h < 2.0 {
        return String::new();
    }
    match kind % 5 {
        1 => diagonals(&mut path, at, size, gap * 1.4),
        2 => steps(h).for_each(|d| {
            path.move_to(x, y + h - d);
            path.line_to(x + w, y + h - d);
        }),
        3 => steps(w).for_each(|d| {
            path.move_to(x + d, y);
            path.line_to(x + d, y + h);
        }),
        4 => {
            steps(h).for_each(|d| {
                path.move_to(x, y + h - d);
                path.line_to(x + w, y + h - d);
            });
            steps(w).for_each(|d| {
                path.move_to(x + d, y);
                path.line_to(x + d, y + h);
            });
        }
        _ => {}
    }
    path.finish()
}

/// Adds rising diagonals, cut to the rectangle.
fn diagonals(path: &mut PathData, at: (f64, f64), size: (f64, f64), gap: f64) {
    let ((x, y), (w, h)) = (at, size);
    let count = index(((w + h) / gap).min(4000.0));
    for i in 1..=count {
        // From the left or lower edge to the upper or right edge, `d` along both edges.
        let d = i as f64 * gap;
        let (from_x, from_y) = if d <= h { (0.0, d) } else { (d - h, h) };
        let (to_x, to_y) = if d <= w { (d, 0.0) } else { (w, d - w) };
        path.move_to(x + from_x, y + from_y);
        path.line_to(x + to_x, y + to_y);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn coordinates_are_short_and_finite() {
        for (value, text) in [
            (0.0, "0"),
            (-0.04, "0"),
            (0.26, ".3"),
            (-12.34, "-12.3"),
            (f64::NAN, "0"),
            (f64::INFINITY, "1000000"),
        ] {
            assert_eq!(num(value), text);
        }
    }

    #[test]
    fn rounded_steps_do_not_drift() {
        let mut path = PathData::default();
        path.move_to(0.0, 0.0);
        for i in 1..=1000 {
            path.line_to(f64::from(i) * 0.26, 0.0);
        }
        let sum: f64 =
            path.finish().split('h').skip(1).map(|step| step.parse::<f64>().unwrap()).sum();
        assert!((sum - 260.0).abs() < 0.05, "{sum}");
    }

    #[test]
    fn hatching_stays_inside_its_bar() {
        for kind in 0..10 {
            let path = hatching(kind, (10.0, 20.0), (17.0, 83.0));
            assert_eq!(path.is_empty(), kind % 5 == 0);
            for start in path.split('M').skip(1) {
                let first = start.split(['h', 'v', 'l']).next().unwrap();
                let (x, y) = first.split_once(' ').unwrap();
                assert!((10.0..=27.0).contains(&x.parse::<f64>().unwrap()), "{path}");
                assert!((20.0..=103.0).contains(&y.parse::<f64>().unwrap()), "{path}");
            }
        }
        assert_eq!(hatching(1, (0.0, 0.0), (10.0, -1.0)), "");
    }
}
