//! Self-contained HTML report: text, tables, and interactive charts in one file.
//!
//! The file loads nothing from the network, and its content security policy forbids loading. Each
//! line chart is included twice: as a drawing for print and for readers without scripts, and as
//! numbers. The library uPlot, which is part of the page, draws the numbers for pointing, zooming
//! and filtering. Numbers and names are passed as data, never as code.

mod spec;

use crate::bars::BarChart;
use crate::chart::Chart;
use crate::escape::xml;
use crate::heat::Heatmap;
use crate::table::Table;

/// Approximate number of points per series in interactive charts.
const POINTS: usize = 2000;
/// Size of the drawn charts on wide screens and paper.
const WIDE: (u32, u32) = (880, 340);
/// Width of the drawn charts on phones.
const NARROW: u32 = 360;

/// A report: summary on top, sections below.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Page {
    /// Title of the report.
    pub title: String,
    /// A line below the title: date, version, seed.
    pub subtitle: String,
    /// Main results, one sentence each.
    pub summary: Vec<String>,
    /// The sections.
    pub sections: Vec<Section>,
}

/// One section of a [`Page`]. Its time series with the same x axis zoom together.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Section {
    /// Heading.
    pub heading: String,
    /// Text; an empty line starts a new paragraph.
    pub text: String,
    /// Content of the section.
    pub items: Vec<Item>,
}

/// Content of a [`Section`].
#[derive(Clone, Debug, PartialEq)]
pub enum Item {
    /// An interactive line chart.
    Chart(Chart),
    /// A chart of bars.
    Bar(BarChart),
    /// A heat map.
    Heat(Heatmap),
    /// A table.
    Table(Table),
    /// Preformatted text, such as a scenario, folded under a title.
    Pre {
        /// Title of the folded text.
        title: String,
        /// The text.
        text: String,
    },
}

impl Section {
    /// Returns a section without items.
    #[must_use]
    pub fn new(heading: impl Into<String>, text: impl Into<String>) -> Self {
        Self { heading: heading.into(), text: text.into(), items: Vec::new() }
    }

    /// Adds an item.
    #[must_use]
    pub fn with_item(mut self, item: Item) -> Self {
        self.items.push(item);
        self
    }
}

impl Page {
    /// Returns a page without sections.
    #[must_use]
    pub fn new(title: impl Into<String>, subtitle: impl Into<String>) -> Self {
        Self { title: title.into(), subtitle: subtitle.into(), ..Self::default() }
    }

    /// Adds a line to the summary.
    #[must_use]
    pub fn with_summary(mut self, line: impl Into<String>) -> Self {
        self.summary.push(line.into());
        self
    }

    /// Adds a section.
    #[must_use]
    pub fn with_section(mut self, section: Section) -> Self {
        self.sections.push(section);
        self
    }

    /// Returns the page as one HTML file.
    #[must_use]
    pub fn to_html(&self) -> String {
        let title = xml(&self.title);
        let mut out = format!(
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n\
             <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; \
             style-src 'unsafe-inline'; script-src 'unsafe-inline'; \
             base-uri 'none'; form-action 'none'\"/>\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n\
             <title>{title}</title>\n<style>\n{}</style>\n</head>\n<body>\n<header>\n\
             <h1>{title}</h1>\n",
            concat!(include_str!("page/uplot/uPlot.min.css"), "\n", include_str!("page/page.css"))
        );
        if !self.subtitle.is_empty() {
            out.push_str(&format!("<p class=\"subtitle\">{}</p>\n", xml(&self.subtitle)));
        }
        if !self.summary.is_empty() {
            out.push_str("<ul class=\"summary\">\n");
            for line in &self.summary {
                out.push_str(&format!("<li>{}</li>\n", xml(line)));
            }
            out.push_str("</ul>\n");
        }
        out.push_str("</header>\n");
        self.contents(&mut out);
        out.push_str("<main>\n");
        for (i, section) in self.sections.iter().enumerate() {
            section.write(&mut out, i);
        }
        out.push_str("</main>\n");
        let interactive = |item: &Item| matches!(item, Item::Chart(chart) if chart.has_data());
        if self.sections.iter().flat_map(|s| &s.items).any(interactive) {
            out.push_str(&format!(
                "<footer><p>Interactive charts hold at most about {POINTS} points of a series; \
                 lows and highs are kept.</p></footer>\n\
                 <script>\n/*\n{}*/\n{}</script>\n<script>\n{}</script>\n",
                include_str!("page/uplot/LICENSE"),
                include_str!("page/uplot/uPlot.iife.min.js"),
                include_str!("page/page.js")
            ));
        }
        out.push_str("</body>\n</html>\n");
        out
    }

    /// Writes links to the sections, if there are at least four.
    fn contents(&self, out: &mut String) {
        if self.sections.len() < 4 {
            return;
        }
        out.push_str("<nav aria-label=\"Contents\"><ul>\n");
        for (i, section) in self.sections.iter().enumerate() {
            out.push_str(&format!("<li><a href=\"#s{i}\">{}</a></li>\n", xml(&section.heading)));
        }
        out.push_str("</ul></nav>\n");
    }
}

impl Section {
    fn write(&self, out: &mut String, number: usize) {
        out.push_str(&format!("<section id=\"s{number}\">\n<h2>{}</h2>\n", xml(&self.heading)));
        for paragraph in self.text.split("\n\n").map(str::trim).filter(|p| !p.is_empty()) {
            out.push_str(&format!("<p>{}</p>\n", xml(paragraph)));
        }
        for item in &self.items {
            match item {
                Item::Chart(chart) => self.chart(out, number, chart),
                Item::Bar(bars) => {
                    let count = bars.series.len() + 1;
                    let (wide, narrow) =
                        (bars.to_svg(WIDE.0, WIDE.1), bars.to_svg(NARROW, tall(count)));
                    figure(out, "", &wide, &narrow, "");
                }
                Item::Heat(heat) => {
                    let rows = u32::try_from(heat.y.len()).unwrap_or(u32::MAX).min(100);
                    let (wide, narrow) = (rows * 36 + 110, rows * 30 + 130);
                    figure(out, "", &heat.to_svg(WIDE.0, wide), &heat.to_svg(NARROW, narrow), "");
                }
                Item::Table(table) => out.push_str(&table.to_html()),
                Item::Pre { title, text } => out.push_str(&format!(
                    "<details><summary>{}</summary><pre>{}</pre></details>\n",
                    xml(title),
                    xml(text)
                )),
            }
        }
        out.push_str("</section>\n");
    }

    fn chart(&self, out: &mut String, number: usize, chart: &Chart) {
        let shared = self.shared_range(chart);
        let chart = match shared {
            Some(range) => {
                &Chart { x: crate::Axis { range: Some(range), ..chart.x.clone() }, ..chart.clone() }
            }
            None => chart,
        };
        let link =
            if chart.runs_along_x() { format!("{number} {}", x_key(chart)) } else { String::new() };
        let Some(data) = spec::chart(chart, &link) else {
            figure(out, "", &chart.to_svg(WIDE.0, 150), "", "");
            return;
        };
        // A phase plane needs a shape closer to a square.
        let more = if chart.runs_along_x() { 0 } else { 140 };
        let wide = chart.to_svg(WIDE.0, WIDE.1 + more);
        let mut note = String::new();
        let all: usize = chart.lines.iter().map(|l| l.points.len()).sum();
        let longest = chart.lines.iter().map(|l| l.points.len()).max().unwrap_or(0);
        if longest > POINTS {
            note = format!(
                "<figcaption>{all} points, thinned to about {POINTS} a series; lows and highs are \
                 kept.</figcaption>"
            );
        }
        let data =
            format!("<script type=\"application/json\" class=\"data\">{data}</script>{note}");
        figure(out, " chart", &wide, "", &data);
    }

    /// Returns the common x range of all charts in this section with the same x axis.
    fn shared_range(&self, chart: &Chart) -> Option<(f64, f64)> {
        if chart.x.wanted_range().is_some() || !chart.runs_along_x() {
            return None;
        }
        let alike = |item: &Item| match item {
            Item::Chart(c)
                if c.x.wanted_range().is_none() && c.runs_along_x() && x_key(c) == x_key(chart) =>
            {
                c.scales(5).map(|(x, _)| (x.low, x.high))
            }
            _ => None,
        };
        let ranges: Vec<(f64, f64)> = self.items.iter().filter_map(alike).collect();
        if ranges.len() < 2 {
            return None;
        }
        Some(ranges.into_iter().fold((f64::INFINITY, f64::NEG_INFINITY), |all, range| {
            (all.0.min(range.0), all.1.max(range.1))
        }))
    }
}

/// Returns the key that charts with the same x axis share.
fn x_key(chart: &Chart) -> String {
    format!("{} {}", chart.x.caption(&chart.x.unit), if chart.x.log { "log" } else { "" })
}

/// Returns the height of a drawn chart on a narrow screen.
fn tall(legend_lines: usize) -> u32 {
    270 + 18 * u32::try_from(legend_lines.min(10)).unwrap_or(10)
}

/// Writes a figure with a drawing, and with another one for narrow screens unless `narrow` is empty.
fn figure(out: &mut String, class: &str, wide: &str, narrow: &str, more: &str) {
    out.push_str(&format!("<figure class=\"plot{class}\">\n<div class=\"wide\">{wide}</div>\n"));
    if !narrow.is_empty() {
        out.push_str(&format!("<div class=\"narrow\">{narrow}</div>\n"));
    }
    out.push_str(&format!("{more}</figure>\n"));
}
