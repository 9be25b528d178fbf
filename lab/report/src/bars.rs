//! Bar chart: groups of bars with published values beside them.

use crate::axis::{Axis, Fit, Scale, tick_count};
use crate::draw::{Anchor, Drawing, Font, GREY, INK, TEXT};
use crate::format::{minus, shortened, significant, text_width, wrapped};
use crate::frame::{self, Entry, Plot, Swatch};
use crate::palette::series;

/// A bar chart: one number for each pair of group and series.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BarChart {
    /// Title of the chart.
    pub title: String,
    /// The quantity of the bars. Linear bars start at zero.
    pub y: Axis,
    /// Names of the groups, from left to right.
    pub groups: Vec<String>,
    /// The series; each has one bar in each group.
    pub series: Vec<BarSeries>,
}

/// One series of a [`BarChart`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BarSeries {
    /// Name in the legend.
    pub name: String,
    /// One bar per group, in the order of the groups. Missing bars are marked as missing.
    pub bars: Vec<Bar>,
}

/// One bar.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bar {
    /// Value; not finite if there is no value.
    pub value: f64,
    /// Lower and upper end of the error range.
    pub range: Option<(f64, f64)>,
    /// Published value.
    pub published: Option<f64>,
}

impl Bar {
    /// Returns a bar with a value only.
    #[must_use]
    pub const fn new(value: f64) -> Self {
        Self { value, range: None, published: None }
    }

    /// Adds an error range.
    #[must_use]
    pub const fn with_range(mut self, low: f64, high: f64) -> Self {
        self.range = Some((low, high));
        self
    }

    /// Adds a published value.
    #[must_use]
    pub const fn with_published(mut self, value: f64) -> Self {
        self.published = Some(value);
        self
    }
}

impl BarSeries {
    /// Returns a series with the colour of its position.
    #[must_use]
    pub fn new(name: impl Into<String>, bars: Vec<Bar>) -> Self {
        Self { name: name.into(), bars }
    }
}

impl BarChart {
    /// Returns a chart of groups without series.
    #[must_use]
    pub fn new(title: impl Into<String>, y: Axis, groups: Vec<String>) -> Self {
        Self { title: title.into(), y, groups, series: Vec::new() }
    }

    /// Adds a series.
    #[must_use]
    pub fn with_series(mut self, series: BarSeries) -> Self {
        self.series.push(series);
        self
    }

    /// Returns every bar with the indexes of its group and series.
    fn bars(&self) -> impl Iterator<Item = (usize, usize, Bar)> {
        self.series.iter().enumerate().flat_map(|(s, series)| {
            let bars = series.bars.iter().take(self.groups.len()).enumerate();
            bars.map(move |(g, bar)| (g, s, *bar))
        })
    }

    /// Returns the chart as one SVG file of this size in pixels. The least size is 200 × 140.
    #[must_use]
    pub fn to_svg(&self, width: u32, height: u32) -> String {
        let mut d = Drawing::new(width, height, &self.title);
        let top = frame::header(&mut d, &self.title, &self.legend()) + frame::CAPTION;
        let values = self.bars().flat_map(|(_, _, bar)| {
            let (low, high) = bar.range.unwrap_or((f64::NAN, f64::NAN));
            [bar.value, low, high, bar.published.unwrap_or(f64::NAN)]
        });
        let (right, bottom) = (d.width - 14.0, d.height - 26.0);
        let count = tick_count((bottom - top).max(60.0), 42.0);
        let Some(scale) = Scale::fit(&self.y, values, Fit::FromZero, count) else {
            d.message((d.width / 2.0, f64::midpoint(top, bottom)), "no data");
            return d.finish();
        };
        let ticks = scale.ticks(&self.y.unit, count);
        let left = frame::left_margin(&ticks);
        let mut plot = Plot { left, top, right, bottom };
        let slot = plot.width() / self.groups.len().max(1) as f64;
        let names = self.names(slot - 6.0);
        plot.bottom -= match &names {
            Names::Lines(lines) => {
                15.0 * (lines.iter().map(Vec::len).max().unwrap_or(1).max(1) - 1) as f64
            }
            // A text of 120 px at 35 degrees is 69 px high.
            Names::Slanted(widest) => (widest * 0.574).min(70.0).min(d.height / 4.0) - 4.0,
        };
        plot.bottom = plot.bottom.max(plot.top + 30.0);
        frame::value_axis(&mut d, &plot, &self.y, &scale, &ticks);
        let shown = Layout { plot, scale, slot, unit: ticks.divisor };
        for (group, series, bar) in self.bars() {
            self.draw_bar(&mut d, &shown, group, series, &bar);
        }
        let base = plot.y(&scale, shown.base());
        d.line((plot.left, base), (plot.right, base), GREY, "");
        d.line((plot.left, plot.top), (plot.left, plot.bottom), GREY, "");
        self.group_names(&mut d, &plot, slot, &names);
        d.finish()
    }

    fn legend(&self) -> Vec<Entry> {
        let mut entries: Vec<Entry> = self
            .series
            .iter()
            .enumerate()
            .map(|(kind, s)| Entry {
                name: s.name.clone(),
                swatch: Swatch::Bar { color: series(kind), kind },
            })
            .collect();
        if self.bars().any(|(_, _, bar)| bar.published.is_some()) {
            entries.push(Entry { name: "published".to_owned(), swatch: Swatch::Published });
        }
        entries
    }

    fn draw_bar(&self, d: &mut Drawing, shown: &Layout, group: usize, series_at: usize, bar: &Bar) {
        let Layout { plot, scale, slot, .. } = shown;
        let count = self.series.len().max(1) as f64;
        let pitch = slot * 0.82 / count;
        let width = (pitch * 0.9).min(70.0);
        let middle = plot.left
            + slot * (group as f64 + 0.5)
            + (series_at as f64 - (count - 1.0) / 2.0) * pitch.min(80.0);
        let inside = |v: f64| plot.y(scale, v.clamp(scale.low, scale.high));
        let base = inside(shown.base());
        if self.y.can_show(bar.value) {
            let end = inside(bar.value);
            let at = (middle - width / 2.0, base.min(end));
            frame::bar(d, series_at, series(series_at), at, (width, (base - end).abs()));
        } else {
            let font = Font { fill: GREY, ..Font::plain(Anchor::Middle) };
            d.text(middle, base - 4.0, font, "–");
        }
        let mut highest = if self.y.can_show(bar.value) { inside(bar.value) } else { base };
        let mut lowest = highest;
        if let Some((low, high)) =
            bar.range.filter(|(a, b)| self.y.can_show(*a) && self.y.can_show(*b))
        {
            let (from, to) = (inside(low), inside(high));
            let cap = (width * 0.3).min(6.0);
            for (stroke, extra) in
                [("#ffffff", " stroke-width=\"4\""), (INK, " stroke-width=\"1.5\"")]
            {
                d.line((middle, from), (middle, to), stroke, extra);
            }
            for y in [from, to] {
                d.line((middle - cap, y), (middle + cap, y), INK, " stroke-width=\"1.5\"");
            }
            highest = highest.min(to).min(from);
            lowest = lowest.max(from).max(to);
        }
        if let Some(value) = bar.published.filter(|v| self.y.can_show(*v)) {
            let at = inside(value);
            frame::published(d, middle, at, width.max(8.0) + 4.0);
            highest = highest.min(at - 5.0);
            lowest = lowest.max(at + 5.0);
        }
        let text = minus(&significant(bar.value / shown.unit, 3));
        if self.y.can_show(bar.value) && text_width(&text) * 11.0 <= pitch {
            // Beyond the end of the bar, in the direction of the bar.
            let y = if bar.value >= shown.base() { highest - 4.0 } else { lowest + 13.0 };
            d.text(middle, y, Font::over(Anchor::Middle), &text);
        }
    }

    /// Returns how to write the names of the groups in `room` pixels each.
    fn names(&self, room: f64) -> Names {
        let words = self.groups.iter().flat_map(|g| g.split_whitespace());
        let lines: Vec<_> = self.groups.iter().map(|g| wrapped(g, TEXT, room, 4)).collect();
        if words.map(|w| text_width(w) * TEXT).fold(0.0, f64::max) <= room
            && lines.iter().all(|l| l.len() <= 3)
        {
            Names::Lines(lines)
        } else {
            Names::Slanted(self.groups.iter().map(|g| text_width(g) * TEXT).fold(0.0, f64::max))
        }
    }

    fn group_names(&self, d: &mut Drawing, plot: &Plot, slot: f64, names: &Names) {
        // If the names do not all fit, only some groups are named.
        let every = crate::format::index((15.0 / slot).ceil()).max(1);
        for (g, name) in self.groups.iter().enumerate().step_by(every) {
            let middle = plot.left + slot * (g as f64 + 0.5);
            match names {
                Names::Lines(lines) => {
                    for (i, line) in lines[g].iter().enumerate() {
                        let y = plot.bottom + 17.0 + 15.0 * i as f64;
                        d.text(middle, y, Font::plain(Anchor::Middle), line);
                    }
                }
                Names::Slanted(_) => {
                    let below = d.height - plot.bottom - 12.0;
                    let room = (middle / 0.82).min(below / 0.574);
                    d.slanted(middle + 4.0, plot.bottom + 14.0, &shortened(name, TEXT, room));
                }
            }
        }
    }
}

/// Layout of the names of the groups.
enum Names {
    /// Upright, each in lines.
    Lines(Vec<Vec<String>>),
    /// Slanted, with the width of the widest name in pixels.
    Slanted(f64),
}

/// Positions of the bars of one picture.
struct Layout {
    plot: Plot,
    scale: Scale,
    /// Width of a group in pixels.
    slot: f64,
    /// Written value = value ÷ this.
    unit: f64,
}

impl Layout {
    /// Returns the value at which bars start.
    fn base(&self) -> f64 {
        if self.scale.log { self.scale.low } else { 0f64.clamp(self.scale.low, self.scale.high) }
    }
}
