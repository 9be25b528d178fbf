//! What a controller did, and why: one event for each fact that mattered.
//!
//! A fact makes an event if the controller gave a reason ([`Reason`]), if its phase or its hold changed,
//! or if it was a loss or a timeout that changed its limits. Nothing is kept unless somebody listens.
//! Text of an event, one line, columns separated by one blank ([`COLUMNS`]):
//!
//! ```text
//! t_s               time of the fact on the driver's clock, seconds with six digits
//! fact              the callback: on_ack, on_loss, on_timeout, on_undo, on_interval, on_report
//! phase             what the controller says it is doing, after the fact
//! gap_ns            least spacing between packets after it, 0 without pacing
//! window_packets    most packets on the way after it; - without a window
//! hold_until_s      nothing is sent before this time; - where nothing is held
//! reasons           why, joined by +; - where only phase, hold or limits changed
//! ```

use std::collections::VecDeque;
use std::fmt;

use sabul_units::Instant;

use crate::controller::SendLimits;
use crate::reason::{REASONS_MAX, Reason, Reasons};

/// The columns of an event's text, as a first line of a file names them.
pub const COLUMNS: &str = "t_s fact phase gap_ns window_packets hold_until_s reasons";

/// Ours: events kept for whoever listens; of more, the oldest are counted and forgotten.
const EVENTS_MAX: usize = 1024;

/// One fact that mattered, and what came of it. Displayed as the module says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Event {
    /// When the fact was told.
    pub at: Instant,
    /// The callback.
    pub fact: &'static str,
    /// The phase after it.
    pub phase: &'static str,
    /// The limits after it.
    pub limits: SendLimits,
    reasons: [Option<Reason>; REASONS_MAX],
}

impl Event {
    /// Why, in the order in which the controller said it; nothing where it said nothing.
    pub fn reasons(&self) -> impl Iterator<Item = Reason> {
        self.reasons.into_iter().flatten()
    }
}

impl Event {
    /// One JSON object with the same columns and `source`, whose controller it was: `gap_ns` and the times
    /// are numbers, `reasons` an array, and what there is not is `null`.
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

/// A text as JSON writes it.
pub fn json_text(text: &str) -> String {
    let mut json = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => json.extend(['\\', c]),
            // What has no name of its own in JSON is no part of a name here.
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

/// The events of one controller that nobody has fetched yet.
#[derive(Debug)]
pub(crate) struct Journal {
    /// What the controller says while it takes in a fact.
    pub(crate) reasons: Reasons,
    kept: VecDeque<Event>,
    missed: u64,
}

impl Journal {
    pub(crate) fn new() -> Self {
        Self { reasons: Reasons::default(), kept: VecDeque::with_capacity(EVENTS_MAX), missed: 0 }
    }

    /// A fact was taken in; `before` and `after` are phase and limits.
    pub(crate) fn note(
        &mut self,
        at: Instant,
        fact: &'static str,
        before: (&'static str, SendLimits),
        after: (&'static str, SendLimits),
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
        self.kept.push_back(Event { at, fact, phase, limits, reasons });
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
