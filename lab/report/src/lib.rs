//! Charts, tables and one-page reports from plain data.
//!
//! Input is numbers and names; output is SVG, HTML, Markdown or terminal text. The crate does not
//! access simulators, sockets or files.
//!
//! | From | To |
//! |---|---|
//! | [`Chart`] | [`Chart::to_svg`]: time series, sweeps, phase planes |
//! | [`BarChart`] | [`BarChart::to_svg`]: groups of bars with published values and ranges |
//! | [`Heatmap`] | [`Heatmap::to_svg`]: category × category, one number each |
//! | pictures | [`stacked`]: one file with one picture below the other |
//! | [`Table`] | [`Table::to_text`], [`Table::to_markdown`] |
//! | [`Page`] | [`Page::to_html`]: all of these in one self-contained interactive file |
//!
//! Rules for all output:
//! - The same data gives the same bytes.
//! - Any `f64` is valid input. A value that cannot be drawn is a gap in a line and a dash in a
//!   table. Such values are not finite, beyond ±10^150, or not positive on a log axis. A chart
//!   without drawable values shows "no data".
//! - Any text is valid input. Text is escaped, and shortened where it does not fit.
//! - Series differ by marker or hatching as well as by colour, so a grey print is readable.
//!
//! Pictures are our own SVG. The crate `plotters` 0.3.7 draws its legend over the data, lets long
//! names of groups overlap, and labels only the decades of a log axis. Pages use uPlot.
//!
//! # Examples
//! ```
//! use sabul_report::{Axis, Chart, Line, Reference};
//!
//! let points = (0..100).map(|i| (f64::from(i) * 0.1, 4.0e8 + f64::from(i % 7) * 1.0e7)).collect();
//! let chart = Chart::new("Goodput", Axis::new("time", "s"), Axis::new("goodput", "b/s"))
//!     .with_line(Line::new("sabul", points))
//!     .with_reference(Reference::level(4.4e8, "published 440"));
//! assert!(chart.to_svg(900, 340).contains("goodput (Mb/s)"));
//! ```

mod axis;
mod bars;
mod chart;
mod draw;
mod escape;
mod format;
mod frame;
mod heat;
mod page;
mod palette;
mod plot;
mod spark;
mod stack;
mod table;
mod thin;

pub use axis::Axis;
pub use bars::{Bar, BarChart, BarSeries};
pub use chart::{Band, Chart, LabelPosition, Line, Reference, Style};
pub use format::{quantity, significant};
pub use heat::Heatmap;
pub use page::{Item, Page, Section};
pub use spark::sparkline;
pub use stack::stacked;
pub use table::{Align, Cell, Column, Table, TableOf};
