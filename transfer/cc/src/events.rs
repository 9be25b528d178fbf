//! Event log of a controller: changes of its limits, with reasons.
//!
//! A callback produces an event if the controller recorded a [`Reason`], or if its phase or hold changed. A loss or
//! timeout that changed its limits does so too. Nothing is recorded without a listener.
//! The text of an event is one line with columns separated by one blank ([`COLUMNS`]):
//!
//! ```text
//! t_s               time of the callback on the driver's clock, seconds with six digits
//! fact              the callback: on_ack, on_loss, on_timeout, on_undo, on_interval, on_report, on_policy,
//!                   on_memory
//! phase             phase of the controller after the callback
//! gap_ns            least spacing between packets after the callback, 0 without pacing
//! window_packets    most packets in flight after the callback; - without a window
//! hold_until_s      nothing is sent before this time; - without a hold
//! reasons           reasons joined by +; - where only phase, hold or limits changed
//! ```

use std::collections::VecDeque;
use std::fmt;

use sabul_units::Instant;

use crate::controller::SendLimits;
use crate::phase::Phase;
use crate::reason::{REASONS_MAX, Reason, Reasons};

/// Column names of an event's text, as a file's first line lists them.
pub const COLUMNS: &str = "t_s fact phase gap_ns window_packets hold_until_s reasons";

/// Ours: events kept for a listener; beyond this the oldest are dropped and counted.
const EVENTS_MAX: usize = 1024;

/// Event of a controller. Displayed as described in the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Event {
    /// Time of the callback.
    pub at: Instant,
    /// Name of the callback.
    pub fact: &'static str,
    /// Phase after the callback.
    pub phase: &'static str,
    /// Limits after the callback.
    pub limits: SendLimits,
    reasons: [Option<Reason>; REASONS_MAX],
}

impl Event {
    /// Returns the reasons in the order of their recording; empty if only phase, hold or limits
    /// changed.
    pub fn reasons(&self) -> impl Iterator<Item = Reason> {
        self.reasons.into_iter().flatten()
    }
}

impl Event {
    /// Returns one JSON object with the same columns, and `of` as `source`: `gap_ns` and times are
    /// numbers, `reasons` is an array, missing values are `null`.
    pub fn to_json(&self, of: &str) -> String {
        let Self { at, fact, phase, limits, .. } = self;
        let gap_ns = limits.gap.0.as_nanos();
        let window = limits.window.map_or_else(|| "null".to_owned(), |window| window.0.to_string());
        let hold = limits.hold_until.map(|hold| format!("{:.6}", hold.elapsed().as_secs_f64()));
        let hold = hold.unwrap_or_else(|| "null".to_owned());
        let reasons: Vec<String> = self.reasons().map(|reason| format!("\"{reason}\"")).collect();
        format!(
            "{{\"t_s\":{:.6},\"source\":{},\"event\":\"{fact}\",\"phase\":\"{phase}\",\"gap_ns\":{gap_ns},\
             \"window_packets\":{window},\"hold_until_s\":{hold},\"reasons\":[{}]}}",
            at.elapsed().as_secs_f64(),
            json_text(of),
            reasons.join(",")
        )
    }
}

/// Returns a text as a JSON string.
pub fn json_text(text: &str) -> String {
    let mut json = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => json.extend(['\\', c]),
            // Control characters do not occur in names; a blank replaces them.
            c if c < ' ' => json.push(' '),
            c => json.push(c),
        }
    }
    json.push('"');
    json
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { at, fact, phase, limits, .. } = self;
        let gap_ns = limits.gap.0.as_nanos();
        write!(f, "{:.6} {fact} {phase} {gap_ns}", at.elapsed().as_secs_f64())?;
        match limits.window {
            Some(window) => write!(f, " {}", window.0)?,
            None => f.write_str(" -")?,
        }
        match limits.hold_until {
            Some(hold) => write!(f, " {:.6} ", hold.elapsed().as_secs_f64())?,
            None => f.write_str(" - ")?,
        }
        if self.reasons().next().is_none() {
            return f.write_str("-");
        }
        for (index, reason) in self.reasons().enumerate() {
            write!(f, "{}{reason}", if index == 0 { "" } else { "+" })?;
        }
        Ok(())
    }
}

/// Events that have not been fetched yet.
#[derive(Debug)]
pub(crate) struct Journal {
    /// Reasons of the current callback.
    pub(crate) reasons: Reasons,
    kept: VecDeque<Event>,
    missed: u64,
}

impl Journal {
    pub(crate) fn new() -> Self {
        Self { reasons: Reasons::default(), kept: VecDeque::with_capacity(EVENTS_MAX), missed: 0 }
    }

    /// Records a callback if it produces an event; `before` and `after` are phase and limits.
    pub(crate) fn note(
        &mut self,
        at: Instant,
        fact: &'static str,
        before: (Phase, SendLimits),
        after: (Phase, SendLimits),
    ) {
        let reasons = self.reasons.take();
        let (phase, limits) = after;
        let is_blow = matches!(fact, "on_loss" | "on_timeout");
        let is_event = reasons[0].is_some()
            || phase != before.0
            || limits.hold_until != before.1.hold_until
            || (is_blow && limits != before.1);
        if !is_event {
            return;
        }
        if self.kept.len() == EVENTS_MAX {
            self.kept.pop_front();
            self.missed += 1;
        }
        self.kept.push_back(Event { at, fact, phase: phase.name(), limits, reasons });
    }

    pub(crate) fn next(&mut self) -> Option<Event> {
        self.kept.pop_front()
    }

    pub(crate) const fn missed(&self) -> u64 {
        self.missed
    }
}

#[cfg(test)]
mod tests;
