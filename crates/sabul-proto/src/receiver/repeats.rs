//! Historical policy: losses that are reported again unless the data has come.
//!
//! Source: [SABUL §II-D]: after k × RTT with k = 2, 3, …, so that NAKs never bury a blocked path. What
//! differs in 2002 is in [`ReportRule`].

use std::collections::BTreeSet;

use sabul_units::{Instant, Span};
use sabul_wire::NumberRange;

use super::syn::Clock;
use crate::reports::{ERR_INTERVAL, Repeat, ReportRule};

/// [SABUL §II-D] k of a loss that is reported for the first time.
pub(super) const K_START: u64 = 2;
/// Ours: a loss is repeated no sooner, however short the round trip is said to be: the sender times it.
const PERIOD_MIN: Span = Span::from_millis(1);
/// Ours: and no more than so many ranges are repeated within each so long.
const RANGES_MAX: u32 = 4000;
const RANGES_PERIOD: Span = Span::from_millis(10);

/// Some numbers to be looked at again at a time, in the order of times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Planned {
    due: Instant,
    first: u64,
    last: u64,
    k: u64,
}

/// What is to be repeated.
#[derive(Debug)]
pub(super) struct Repeats {
    planned: BTreeSet<Planned>,
    /// How many have been repeated in this period.
    repeated: u32,
    period_end: Instant,
}

impl Repeats {
    pub(super) const fn new() -> Self {
        Self { planned: BTreeSet::new(), repeated: 0, period_end: Instant::ZERO }
    }

    /// A range has been reported; `k` grows by one with each report of it.
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
            // The first check that finds the report older than that.
            Repeat::Periodic => clock.next(ERR_INTERVAL, now + ReportRule::report_age(rtt)),
        };
        self.planned.insert(Planned { due, first: range.first, last: range.last, k });
    }

    /// What is due and may be repeated now, with its k.
    pub(super) fn next(&mut self, now: Instant) -> Option<(NumberRange, u64)> {
        let Planned { due, first, last, k } = *self.planned.first()?;
        if due > now || !self.may_repeat(now) {
            return None;
        }
        self.planned.pop_first();
        Some((NumberRange { first, last }, k))
    }

    /// Whether one more range may be repeated now; takes note of it.
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
