//! The plain data of a chart.

use crate::axis::Axis;
use crate::palette::Color;

/// Values over a quantity: time series, sweeps, phase planes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Chart {
    /// What the chart shows.
    pub title: String,
    /// Along.
    pub x: Axis,
    /// Upwards.
    pub y: Axis,
    /// The series. Ten are told apart; more repeat colours and markers.
    pub lines: Vec<Line>,
    /// Single values drawn in for comparison.
    pub marks: Vec<Mark>,
    /// Shaded ranges.
    pub bands: Vec<Band>,
}

/// One series of a [`Chart`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Line {
    /// Its name in the legend.
    pub name: String,
    /// Its points in drawing order. One with a coordinate that is not finite is a gap.
    pub points: Vec<(f64, f64)>,
    /// How they are joined.
    pub style: Style,
    /// Its colour; by its place among the lines if there is none.
    pub color: Option<Color>,
}

/// How the points of a [`Line`] are joined.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Style {
    /// Straight from point to point.
    #[default]
    Line,
    /// Not at all: one marker a point.
    Points,
    /// Each value holds until the next point.
    Step,
    /// Straight and dashed, for models and comparisons.
    Dashed,
}

/// A value drawn in for comparison, usually a published one.
#[derive(Clone, Debug, PartialEq)]
pub struct Mark {
    /// Where it is.
    pub place: Place,
    /// What is written beside it, for example `published 440`.
    pub label: String,
}

/// Where a [`Mark`] is, in the units of the data.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Place {
    /// A horizontal line at a height.
    Level(f64),
    /// A vertical line, for example where something happens.
    At(f64),
    /// A point: x, y.
    Point(f64, f64),
}

/// A shaded range of a [`Chart`], in the units of the data.
#[derive(Clone, Debug, PartialEq)]
pub enum Band {
    /// From one x to another, over the whole height.
    X {
        /// Where it starts.
        from: f64,
        /// Where it ends.
        to: f64,
        /// What is written in it, maybe empty.
        label: String,
    },
    /// From one y to another, over the whole width.
    Y {
        /// Where it starts.
        from: f64,
        /// Where it ends.
        to: f64,
        /// What is written in it, maybe empty.
        label: String,
    },
}

impl Chart {
    /// A chart without lines.
    #[must_use]
    pub fn new(title: impl Into<String>, x: Axis, y: Axis) -> Self {
        Self { title: title.into(), x, y, ..Self::default() }
    }

    /// The chart with one more line.
    #[must_use]
    pub fn with_line(mut self, line: Line) -> Self {
        self.lines.push(line);
        self
    }

    /// The chart with one more mark.
    #[must_use]
    pub fn with_mark(mut self, mark: Mark) -> Self {
        self.marks.push(mark);
        self
    }

    /// The chart with one more band.
    #[must_use]
    pub fn with_band(mut self, band: Band) -> Self {
        self.bands.push(band);
        self
    }

    /// Whether x never decreases along any line, as in a time series; a phase plane is none.
    pub(crate) fn runs_along_x(&self) -> bool {
        self.lines.iter().filter(|line| line.style != Style::Points).all(|line| {
            let xs = || line.points.iter().map(|p| p.0).filter(|x| self.x.can_show(*x));
            xs().zip(xs().skip(1)).all(|(a, b)| a <= b)
        }) && self.lines.iter().any(|line| line.style != Style::Points)
    }

    /// The points of a line, None where it has a gap; without gaps at its ends.
    pub(crate) fn drawable(&self, line: &Line) -> Vec<Option<(f64, f64)>> {
        let mut out: Vec<Option<(f64, f64)>> = Vec::with_capacity(line.points.len());
        for &(x, y) in &line.points {
            if self.x.can_show(x) && self.y.can_show(y) {
                out.push(Some((x, y)));
            } else if matches!(out.last(), Some(Some(_))) {
                out.push(None);
            }
        }
        if let Some(None) = out.last() {
            out.pop();
        }
        out
    }
}

impl Line {
    /// A line joined straight from point to point, coloured by its place.
    #[must_use]
    pub fn new(name: impl Into<String>, points: Vec<(f64, f64)>) -> Self {
        Self { name: name.into(), points, style: Style::Line, color: None }
    }

    /// The line joined another way.
    #[must_use]
    pub fn with_style(mut self, style: Style) -> Self {
        self.style = style;
        self
    }

    /// The line in a colour of the caller's.
    #[must_use]
    pub fn with_color(mut self, color: Color) -> Self {
        self.color = Some(color);
        self
    }
}

impl Mark {
    /// A horizontal line at a height.
    #[must_use]
    pub fn level(y: f64, label: impl Into<String>) -> Self {
        Self { place: Place::Level(y), label: label.into() }
    }

    /// A vertical line.
    #[must_use]
    pub fn at(x: f64, label: impl Into<String>) -> Self {
        Self { place: Place::At(x), label: label.into() }
    }

    /// A point.
    #[must_use]
    pub fn point(x: f64, y: f64, label: impl Into<String>) -> Self {
        Self { place: Place::Point(x, y), label: label.into() }
    }
}

impl Band {
    /// A band from one x to another.
    #[must_use]
    pub fn x(from: f64, to: f64, label: impl Into<String>) -> Self {
        Self::X { from, to, label: label.into() }
    }

    /// A band from one y to another.
    #[must_use]
    pub fn y(from: f64, to: f64, label: impl Into<String>) -> Self {
        Self::Y { from, to, label: label.into() }
    }
}
