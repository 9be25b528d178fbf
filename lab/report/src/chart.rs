//! Chart data: lines, reference lines and bands.

use crate::axis::Axis;

/// A line chart: values over a quantity, for time series, sweeps and phase planes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Chart {
    /// Title of the chart.
    pub title: String,
    /// Horizontal axis.
    pub x: Axis,
    /// Vertical axis.
    pub y: Axis,
    /// The series. Ten can be distinguished; further series repeat colours and markers.
    pub lines: Vec<Line>,
    /// Single values for comparison.
    pub references: Vec<Reference>,
    /// Shaded ranges.
    pub bands: Vec<Band>,
}

/// One series of a [`Chart`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Line {
    /// Name in the legend.
    pub name: String,
    /// Points in drawing order. A point with a coordinate that is not finite is a gap.
    pub points: Vec<(f64, f64)>,
    /// Style of the connection between points.
    pub style: Style,
}

/// Connection between the points of a [`Line`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Style {
    /// Straight lines from point to point.
    #[default]
    Line,
    /// Each value holds until the next point.
    Step,
    /// Straight dashed lines, for models and comparisons.
    Dashed,
}

/// A value for comparison, usually a published value.
#[derive(Clone, Debug, PartialEq)]
pub struct Reference {
    /// Position of the reference.
    pub position: LabelPosition,
    /// Text beside the reference, for example `published 440`.
    pub label: String,
}

/// Position of a [`Reference`], in the units of the data.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LabelPosition {
    /// A horizontal line at this y.
    Level(f64),
    /// A vertical line at this x, for example at an event.
    At(f64),
}

/// A shaded range of x of a [`Chart`], over the whole height.
#[derive(Clone, Debug, PartialEq)]
pub struct Band {
    /// Start of the band, in the unit of the data.
    pub from: f64,
    /// End of the band.
    pub to: f64,
    /// Text in the band; may be empty.
    pub label: String,
}

impl Chart {
    /// Returns a chart without lines.
    #[must_use]
    pub fn new(title: impl Into<String>, x: Axis, y: Axis) -> Self {
        Self { title: title.into(), x, y, ..Self::default() }
    }

    /// Adds a line.
    #[must_use]
    pub fn with_line(mut self, line: Line) -> Self {
        self.lines.push(line);
        self
    }

    /// Adds a reference.
    #[must_use]
    pub fn with_reference(mut self, reference: Reference) -> Self {
        self.references.push(reference);
        self
    }

    /// Adds a band.
    #[must_use]
    pub fn with_band(mut self, band: Band) -> Self {
        self.bands.push(band);
        self
    }

    /// Returns whether x never decreases along any line, as in a time series. False for a phase
    /// plane.
    pub(crate) fn runs_along_x(&self) -> bool {
        self.lines.iter().all(|line| {
            let xs = || line.points.iter().map(|p| p.0).filter(|x| self.x.can_show(*x));
            xs().zip(xs().skip(1)).all(|(a, b)| a <= b)
        })
    }

    /// Returns the points of a line, with `None` for a gap. Gaps at the ends are removed.
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
    /// Returns a line with straight joins and the default colour of its position.
    #[must_use]
    pub fn new(name: impl Into<String>, points: Vec<(f64, f64)>) -> Self {
        Self { name: name.into(), points, style: Style::Line }
    }

    /// Sets how the points are joined.
    #[must_use]
    pub fn with_style(mut self, style: Style) -> Self {
        self.style = style;
        self
    }
}

impl Reference {
    /// Returns a horizontal line at this y.
    #[must_use]
    pub fn level(y: f64, label: impl Into<String>) -> Self {
        Self { position: LabelPosition::Level(y), label: label.into() }
    }

    /// Returns a vertical line.
    #[must_use]
    pub fn at(x: f64, label: impl Into<String>) -> Self {
        Self { position: LabelPosition::At(x), label: label.into() }
    }
}

impl Band {
    /// Returns a band from one x to another.
    #[must_use]
    pub fn x(from: f64, to: f64, label: impl Into<String>) -> Self {
        Self { from, to, label: label.into() }
    }
}
