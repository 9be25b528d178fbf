//! Repeated loss reports under the historical policy.
//!
//! Source: [SABUL §II-D]: after k × RTT with k = 2, 3, …, so that NAKs never overload a congested
//! path. [`ReportRule`] holds the differences of 2002.

use std::collections::BTreeSet;

use sabul_units::{Instant, Span};
use sabul_wire::NumberRange;

use super::syn::Clock;
use crate::reports::{ERR_INTERVAL, Repeat, ReportRule};

/// [SABUL §II-D] k of the first report of a loss.
pub(super) const K_START: u64 = 2;
/// Ours: least time to a repeat. The sender's ACK2 sets the RTT, so a wrong RTT must not flood it.
const PERIOD_MIN: Span = Span::from_millis(1);
/// Ours: most ranges repeated within each [`RANGES_PERIOD`].
const RANGES_MAX: u32 = 4000;
const RANGES_PERIOD: Span = Span::from_millis(10);

/// A repeat and its time; ordered by time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Planned {
    due: Instant,
    first: u64,
    last: u64,
    k: u64,
}

#[derive(Debug)]
pub(super) struct Repeats {
    planned: BTreeSet<Planned>,
    /// Ranges repeated in this period.
    repeated: u32,
    period_end: Instant,
}

impl Repeats {
    pub(super) const fn new() -> Self {
        Self { planned: BTreeSet::new(), repeated: 0, period_end: Instant::ZERO }
    }

    /// Schedules the repeat of a reported range; `k` grows by one with each report of the range.
    pub(super) fn plan(
        &mut self,
        now: Instant,
        range: NumberRange,
        k: u64,
        rule: Repeat,
        rtt: Span,
        clock: &Clock,
    ) {
        let due = match rule {
            Repeat::KTimesRtt => now + (rtt * k).max(PERIOD_MIN),
            // At the first periodic check at which the report is old enough.
            Repeat::Periodic => clock.next(ERR_INTERVAL, now + ReportRule::report_age(rtt)),
        };
        self.planned.insert(Planned { due, first: range.first, last: range.last, k });
    }

    /// Returns the next range to repeat now, with its k.
    pub(super) fn next(&mut self, now: Instant) -> Option<(NumberRange, u64)> {
        let Planned { due, first, last, k } = *self.planned.first()?;
        if due > now || !self.may_repeat(now) {
            return None;
        }
        self.planned.pop_first();
        Some((NumberRange { first, last }, k))
    }

    /// Whether one more range may be repeated now; counts the range.
    fn may_repeat(&mut self, now: Instant) -> bool {
        if now >= self.period_end {
            (self.period_end, self.repeated) = (now + RANGES_PERIOD, 0);
        }
        let may = self.repeated < RANGES_MAX;
        self.repeated += u32::from(may);
        may
    }

    pub(super) fn due(&self) -> Option<Instant> {
        let due = self.planned.first()?.due;
        Some(if self.repeated < RANGES_MAX { due } else { due.max(self.period_end) })
    }
}
