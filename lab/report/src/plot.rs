//! SVG renderer for a [`Chart`].

use crate::axis::{Fit, Scale, Ticks, tick_count};
use crate::chart::{Chart, LabelPosition, Line, Style};
use crate::draw::{Anchor, Drawing, Font, GREY, GRID, INK, PathData, TEXT};
use crate::format::{shortened, text_width};
use crate::frame::{self, Entry, Plot, Swatch};
use crate::palette::{dashes, marker, series};
use crate::thin::thin;

/// Most points of all lines in one picture. A point takes about ten bytes, so a picture stays below
/// 300 kB.
const POINTS: usize = 20_000;
/// A line with at most this many points has a marker at each point.
const FEW: usize = 40;
/// Distance of the markers along a line with many points, in pixels.
const MARKER_EVERY: f64 = 110.0;

impl Chart {
    /// Returns the chart as one SVG file of this size in pixels. The least size is 200 × 140.
    ///
    /// Lines with more points than pixels are thinned; extremes are kept. The size of each line is
    /// limited to about its share of 300 kB.
    #[must_use]
    pub fn to_svg(&self, width: u32, height: u32) -> String {
        let mut d = Drawing::new(width, height, &self.title);
        let top = frame::header(&mut d, &self.title, &self.legend()) + frame::CAPTION;
        let (across, down) = (d.width, d.height);
        let mut plot = Plot { left: 50.0, top, right: across - 18.0, bottom: down - 42.0 };
        plot.bottom = plot.bottom.max(plot.top + 30.0);
        let count_y = tick_count(plot.height(), 42.0);
        let Some((x, y)) = self.scales(count_y) else {
            d.message((across / 2.0, (plot.top + plot.bottom) / 2.0), self.nothing());
            return d.finish();
        };
        let y_ticks = y.ticks(&self.y.unit, count_y);
        plot.left = frame::left_margin(&y_ticks);
        let x_ticks = self.x_ticks(&x, plot.width());
        self.x_bands(&mut d, &plot, &x);
        frame::value_axis(&mut d, &plot, &self.y, &y, &y_ticks);
        self.x_axis(&mut d, &plot, &x, &x_ticks);
        frame::edges(&mut d, &plot);

        // Half a line's width and half a marker may exceed the edge.
        let ((left, top), (w, h)) = plot.area();
        d.clip((left - 4.0, top - 4.0), (w + 8.0, h + 8.0));
        for (i, line) in self.lines.iter().enumerate() {
            self.draw_line(&mut d, &plot, (&x, &y), i, line);
        }
        self.draw_references(&mut d, &plot, &x, &y);
        d.unclip();
        self.reference_labels(&mut d, &plot, &x, &y);
        self.band_labels(&mut d, &plot, &x);
        d.finish()
    }

    /// Returns whether any point can be drawn.
    pub(crate) fn has_data(&self) -> bool {
        self.scales(5).is_some()
    }

    /// Returns the reason why nothing can be drawn.
    pub(crate) fn nothing(&self) -> &'static str {
        let finite = self
            .lines
            .iter()
            .flat_map(|l| &l.points)
            .any(|p| crate::format::usable(p.0) && crate::format::usable(p.1));
        if finite { "no data: nothing positive on a log axis" } else { "no data" }
    }

    /// Returns both scales; `None` if no line has a drawable point.
    pub(crate) fn scales(&self, count_y: usize) -> Option<(Scale, Scale)> {
        let points = || {
            let all = self.lines.iter().flat_map(|l| l.points.iter().copied());
            all.filter(|p| self.x.can_show(p.0) && self.y.can_show(p.1))
        };
        points().next()?;
        let marked = |pick: fn(&LabelPosition) -> Option<f64>| {
            self.references.iter().filter_map(move |m| pick(&m.position))
        };
        let xs = points().map(|p| p.0).chain(marked(|p| match p {
            LabelPosition::At(x) => Some(*x),
            LabelPosition::Level(_) => None,
        }));
        let ys = points().map(|p| p.1).chain(marked(|p| match p {
            LabelPosition::Level(y) => Some(*y),
            LabelPosition::At(_) => None,
        }));
        let fit = if self.runs_along_x() { Fit::Exact } else { Fit::Round };
        let x = Scale::fit(&self.x, xs, fit, 8)?;
        // If the caller set the x range, only points inside the range determine the y scale.
        let ys = if self.x.wanted_range().is_some() && self.y.wanted_range().is_none() {
            let seen = |p: &(f64, f64)| x.low <= p.0 && p.0 <= x.high;
            let inside: Vec<f64> = points().filter(seen).map(|p| p.1).collect();
            let references =
                marked(|p| if let LabelPosition::Level(y) = p { Some(*y) } else { None });
            if inside.is_empty() {
                ys.collect()
            } else {
                inside.into_iter().chain(references).collect()
            }
        } else {
            ys.collect::<Vec<f64>>()
        };
        let y = Scale::fit(&self.y, ys.into_iter(), Fit::Round, count_y)?;
        Some((x, y))
    }

    fn legend(&self) -> Vec<Entry> {
        let entry = |(i, line): (usize, &Line)| {
            let dash = if line.style == Style::Dashed { dashes(i) } else { "" };
            let shape = self.is_marked(line).then_some(i);
            Entry {
                name: line.name.clone(),
                swatch: Swatch::Line { color: series(i), dash, shape },
            }
        };
        self.lines.iter().enumerate().map(entry).collect()
    }

    /// Returns whether a line has markers: to distinguish it from other lines, or because it has
    /// few points.
    pub(crate) fn is_marked(&self, line: &Line) -> bool {
        self.lines.len() > 1 || line.points.len() <= FEW
    }

    fn x_ticks(&self, scale: &Scale, width: f64) -> Ticks {
        let mut count = tick_count(width, 78.0);
        loop {
            let ticks = scale.ticks(&self.x.unit, count);
            let widest = ticks.labelled.iter().map(|t| text_width(&t.label)).fold(0.0, f64::max);
            let room = width / ticks.labelled.len().max(1) as f64;
            if count <= 2 || widest * TEXT + 8.0 <= room {
                return ticks;
            }
            count -= 1;
        }
    }

    fn x_axis(&self, d: &mut Drawing, plot: &Plot, scale: &Scale, ticks: &Ticks) {
        for at in &ticks.minor {
            let x = plot.x(scale, *at);
            d.line((x, plot.top), (x, plot.bottom), "#f1f1f1", "");
        }
        for tick in &ticks.labelled {
            let x = plot.x(scale, tick.at);
            d.line((x, plot.top), (x, plot.bottom), GRID, "");
            // A label near the right edge is moved left, so it is not cut.
            let half = text_width(&tick.label) * TEXT / 2.0;
            let at = x.min(d.width - half - 2.0);
            d.text(at, plot.bottom + 17.0, Font::plain(Anchor::Middle), &tick.label);
        }
        let caption = shortened(&self.x.caption(&ticks.unit), TEXT, d.width - 20.0);
        let font = Font { fill: GREY, ..Font::plain(Anchor::Middle) };
        d.text(f64::midpoint(plot.left, plot.right), plot.bottom + 35.0, font, &caption);
    }

    fn draw_line(
        &self,
        d: &mut Drawing,
        plot: &Plot,
        scales: (&Scale, &Scale),
        i: usize,
        line: &Line,
    ) {
        let (x, y) = scales;
        let color = series(i);
        let points = self.drawable(line);
        let seen = |p: &(f64, f64)| (plot.x(x, p.0), plot.y(y, p.1));
        let few = points.len() <= FEW;
        let columns = crate::format::index(plot.width()) * 4;
        let points = thin(&points, columns.min(POINTS / self.lines.len()), self.x.log);
        let mut path = PathData::default();
        let mut alone = PathData::default();
        for run in points.split(Option::is_none) {
            let run: Vec<(f64, f64)> = run.iter().flatten().map(seen).collect();
            join(&run, line.style, &mut path, &mut alone);
        }
        let dash = if line.style == Style::Dashed {
            format!(" stroke-dasharray=\"{}\"", dashes(i))
        } else {
            String::new()
        };
        let style = format!(" fill=\"none\" stroke=\"{color}\" stroke-linejoin=\"round\"");
        d.path(&path.finish(), &format!("{style} stroke-width=\"1.8\"{dash}"));
        d.path(&alone.finish(), &format!("{style} stroke-width=\"4\" stroke-linecap=\"round\""));
        if self.is_marked(line) {
            let mut path = PathData::default();
            let on_line: Vec<(f64, f64)> = points.iter().flatten().map(seen).collect();
            for (px, py) in self.marker_places(&on_line, plot, i, few) {
                path.move_to(px, py);
                path.raw(marker(i));
            }
            d.path(&path.finish(), &frame::marker_paint(i, color));
        }
    }

    /// Returns the positions of markers: every point of a line with few points. Otherwise markers
    /// are spread out, with an offset to those of other lines.
    fn marker_places(
        &self,
        points: &[(f64, f64)],
        plot: &Plot,
        i: usize,
        few: bool,
    ) -> Vec<(f64, f64)> {
        if few {
            return points.to_vec();
        }
        let offset = (i as f64 + 0.5) / self.lines.len() as f64;
        if !self.runs_along_x() {
            let every = (points.len() / 12).max(1);
            let skip = crate::format::index(offset * every as f64);
            return points.iter().copied().skip(skip).step_by(every).collect();
        }
        let mut next = plot.left + MARKER_EVERY * offset;
        let mut places = Vec::new();
        for p in points {
            if p.0 >= next && p.0 <= plot.right {
                places.push(*p);
                next = (((p.0 - next) / MARKER_EVERY).floor() + 1.0) * MARKER_EVERY + next;
            }
        }
        places
    }

    fn draw_references(&self, d: &mut Drawing, plot: &Plot, x: &Scale, y: &Scale) {
        let style = " stroke-width=\"1.5\" stroke-dasharray=\"6 3\"";
        for reference in &self.references {
            match reference.position {
                LabelPosition::Level(v) if self.y.can_show(v) => {
                    let at = plot.y(y, v);
                    d.line((plot.left, at), (plot.right, at), INK, style);
                }
                LabelPosition::At(v) if self.x.can_show(v) => {
                    let at = plot.x(x, v);
                    d.line((at, plot.top), (at, plot.bottom), INK, style);
                }
                _ => {}
            }
        }
    }

    fn reference_labels(&self, d: &mut Drawing, plot: &Plot, x: &Scale, y: &Scale) {
        let inside = |px: f64, py: f64| {
            px >= plot.left - 1.0
                && px <= plot.right + 1.0
                && py >= plot.top - 1.0
                && py <= plot.bottom + 1.0
        };
        let mut levels: Vec<(f64, &str)> = Vec::new();
        for reference in &self.references {
            let text = shortened(&reference.label, 11.0, plot.width() * 0.6);
            let width = text_width(&text) * 11.0;
            match reference.position {
                LabelPosition::Level(v)
                    if self.y.can_show(v) && inside(plot.right, plot.y(y, v)) =>
                {
                    levels.push((plot.y(y, v), &reference.label));
                }
                LabelPosition::At(v) if self.x.can_show(v) && inside(plot.x(x, v), plot.top) => {
                    let at = plot.x(x, v);
                    let (at, anchor) = beside(at, width, plot.right, 5.0);
                    d.text(at, plot.top + 11.0, Font::over(anchor), &text);
                }
                _ => {}
            }
        }
        // From the top down. Each label is above its line, or below if there is no room, and below
        // the previous label.
        levels.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut last = plot.top - 4.0;
        for (at, label) in levels {
            let text = shortened(label, 11.0, plot.width() * 0.6);
            let beside = if at - 5.0 < plot.top + 9.0 { at + 13.0 } else { at - 5.0 };
            last = beside.max(last + 13.0);
            d.text(plot.right - 4.0, last, Font::over(Anchor::End), &text);
        }
    }

    fn x_bands(&self, d: &mut Drawing, plot: &Plot, x: &Scale) {
        for band in &self.bands {
            let Some((a, b)) = span(x, band.from, band.to) else { continue };
            let left = plot.left + a * plot.width();
            d.rect((left, plot.top), ((b - a) * plot.width(), plot.height()), "#efece4", "");
        }
    }

    fn band_labels(&self, d: &mut Drawing, plot: &Plot, x: &Scale) {
        for band in &self.bands {
            let Some((a, b)) = span(x, band.from, band.to) else { continue };
            let room = ((b - a) * plot.width() - 6.0).max(60.0);
            let text = shortened(&band.label, 11.0, room);
            let at = plot.left + a * plot.width() + 4.0;
            let font = Font { fill: GREY, ..Font::over(Anchor::Start) };
            d.text(at, plot.bottom - 6.0, font, &text);
        }
    }
}

/// Returns a band in fractions of an axis, clipped to the axis. `None` if the band is outside or
/// not a range.
pub(crate) fn span(scale: &Scale, from: f64, to: f64) -> Option<(f64, f64)> {
    if from.is_nan() || to.is_nan() || from >= to {
        return None;
    }
    let place = |v: f64| scale.fraction(v.clamp(scale.low, scale.high)).clamp(0.0, 1.0);
    let (a, b) = (place(from), place(to));
    (a < b).then_some((a, b))
}

/// Returns the position of a text beside an item: right of the item if there is room, otherwise
/// left.
fn beside(at: f64, width: f64, right: f64, distance: f64) -> (f64, Anchor) {
    if at + distance + width <= right {
        (at + distance, Anchor::Start)
    } else {
        (at - distance, Anchor::End)
    }
}

/// Joins one run of points. A point without neighbours becomes a dot.
fn join(run: &[(f64, f64)], style: Style, path: &mut PathData, alone: &mut PathData) {
    let Some((first, rest)) = run.split_first() else { return };
    if rest.is_empty() {
        alone.move_to(first.0, first.1);
        alone.dot();
        return;
    }
    path.move_to(first.0, first.1);
    let mut before = *first;
    for p in rest {
        if style == Style::Step {
            path.line_to(p.0, before.1);
        }
        path.line_to(p.0, p.1);
        before = *p;
    }
}
