//! Counts of events over a run: reasons of rate changes, and drops.

use std::collections::BTreeMap;

use sabul_report::{Axis, Chart, Item, Line, Section, Style};
use serde::Deserialize;

/// Most curves in the chart. A chart with more curves cannot be read.
const LINES_MAX: usize = 10;

/// Cumulative counts by kind of event, from the lines of [`sabul_run::events`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Why {
    /// By source and kind of event: points of (time in seconds, count so far).
    curves: BTreeMap<(String, String), Vec<(f64, f64)>>,
}

/// The columns that are read.
#[derive(Deserialize)]
struct Seen {
    t_s: f64,
    source: String,
    event: String,
    #[serde(default)]
    reasons: Vec<String>,
    why: Option<String>,
    packets: Option<u32>,
}

impl Why {
    /// Adds one line; a line that is not an event is ignored.
    pub(crate) fn note(&mut self, line: &str) {
        let Ok(seen) = serde_json::from_str::<Seen>(line) else { return };
        let Seen { t_s, source, event, reasons, why, packets } = seen;
        if let (Some(why), Some(packets)) = (why, packets) {
            self.count(t_s, source, format!("{event}, {why}"), f64::from(packets));
            return;
        }
        for reason in reasons {
            self.count(t_s, source.clone(), reason, 1.0);
        }
    }

    fn count(&mut self, t_s: f64, source: String, what: String, more: f64) {
        let curve = self.curves.entry((source, what)).or_default();
        let so_far = curve.last().map_or(0.0, |(_, so_far)| *so_far);
        curve.push((t_s, so_far + more));
    }

    /// Returns the section for a page; `None` without recorded events.
    pub(crate) fn section(&self) -> Option<Section> {
        let mut curves: Vec<_> = self.curves.iter().collect();
        curves.sort_by_key(|(_, points)| std::cmp::Reverse(points.len()));
        let first = curves.first()?;
        let most = first.1.len();
        let mut chart =
            Chart::new("Reasons and drops so far", Axis::new("time", "s"), Axis::new("events", ""));
        for ((source, what), points) in curves.iter().take(LINES_MAX) {
            let from_zero = std::iter::once((0.0, 0.0)).chain(points.iter().copied()).collect();
            chart = chart.with_line(
                Line::new(format!("{source}: {what}"), from_zero).with_style(Style::Step),
            );
        }
        let text = if curves.len() > LINES_MAX {
            format!(
                "The {LINES_MAX} most frequent of {} kinds; the file of events has all.",
                curves.len()
            )
        } else {
            format!("From the file of events, which has up to {most} lines of a kind.")
        };
        Some(Section::new("Why", text).with_item(Item::Chart(chart)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_and_dropped_packets_accumulate_over_time() {
        let mut why = Why::default();
        why.note(
            r#"{"t_s":1.5,"source":"flow:a","event":"on_loss","reasons":["loss-epoch","fall"]}"#,
        );
        why.note(r#"{"t_s":2.5,"source":"flow:a","event":"on_loss","reasons":["loss-epoch"]}"#);
        why.note(
            r#"{"t_s":1.4,"source":"link:l","event":"drop","why":"full","packets":3,"flow":null}"#,
        );
        why.note("no event");
        let curve =
            |source: &str, what: &str| why.curves[&(source.to_owned(), what.to_owned())].clone();
        assert_eq!(curve("flow:a", "loss-epoch"), [(1.5, 1.0), (2.5, 2.0)]);
        assert_eq!(curve("link:l", "drop, full"), [(1.4, 3.0)]);
        assert!(why.section().is_some() && Why::default().section().is_none());
    }
}
