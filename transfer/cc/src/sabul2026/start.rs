//! Start phases of a flow: rate searches, the schedule of later checks, the recovery after a timeout, and epochs with
//! stale reports.
//!
//! Source: ours.
//! States:      Searching --rate found--> Settling --epochs--> Settled --no train showed the link--> Searching
//! Not here:    a search later on, for a link whose rate has changed.

use sabul_units::{Instant, Rate, Span};

use crate::controller::Context;
use crate::search::RateSearch;

/// Ours: most searches of a flow; a search is repeated if a full queue dropped its trains.
const SEARCHES: u32 = 4;
/// Ours: epochs after a search that still report the search's own losses and a link that is not
/// full yet.
const EPOCHS: u32 = 2;

/// Ours: checks of a flow.
const CHECKS: u32 = 2;
/// Ours: time before a check, with a random part: flows of one start must not check at the same time.
const CHECK_WAIT: Span = Span::from_millis(500);
const CHECK_WAIT_MORE_NS: u64 = 4_000_000_000;
/// Ours: seconds with a queue of others, less those without, that lead to a check. The queue of a flow alone is longer than
/// its target in single epochs.
const QUEUED_S: f64 = 1.0;

/// Schedule and state of the checks of a flow (`check`).
#[derive(Debug)]
pub(super) struct Checks {
    left: u32,
    /// Time of the next check.
    at: Option<Instant>,
    /// Seconds with a queue of others, less those without.
    queued_s: f64,
    /// Window before the check in progress, in packets.
    before: Option<f64>,
}

impl Checks {
    pub(super) const fn new() -> Self {
        Self { left: CHECKS, at: None, queued_s: 0.0, before: None }
    }

    /// Records an epoch of this length, with or without a queue that only other flows explain.
    pub(super) fn note_queue(&mut self, is_of_others: bool, epoch_s: f64, cx: &mut Context<'_>) {
        let change = if is_of_others { epoch_s } else { -epoch_s };
        self.queued_s = (self.queued_s + change).clamp(0.0, QUEUED_S);
        if self.queued_s >= QUEUED_S {
            self.schedule(cx);
        }
    }

    /// Records whether a probe has shown that the flow is alone on the link. Such a flow needs no check.
    pub(super) fn note_probe(&mut self, is_alone: bool, cx: &mut Context<'_>) {
        if is_alone {
            self.at = None;
        } else {
            self.schedule(cx);
        }
    }

    /// Schedules a check at a random time, if none is scheduled and one is left.
    fn schedule(&mut self, cx: &mut Context<'_>) {
        if self.left > 0 && self.at.is_none() {
            self.at =
                Some(cx.now + CHECK_WAIT + Span::from_nanos(cx.random.below(CHECK_WAIT_MORE_NS)));
        }
    }

    /// Returns the checks of a flow that needs none.
    pub(super) const fn none() -> Self {
        Self { left: 0, ..Self::new() }
    }

    /// Returns whether a check is due.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.at.is_some_and(|at| now > at)
    }

    /// Begins a check by a flow with this window, in packets.
    pub(super) const fn begin(&mut self, window: f64) {
        *self = Self { left: self.left.saturating_sub(1), before: Some(window), ..Self::new() };
    }

    /// Ends the check in progress; returns the window before the check, in packets.
    pub(super) const fn end(&mut self) -> Option<f64> {
        self.before.take()
    }

    /// Returns whether the search in progress is a check.
    pub(super) const fn is_running(&self) -> bool {
        self.before.is_some()
    }
}

/// State of the start; see the module.
#[derive(Debug)]
pub(super) struct Start {
    pub(super) search: Option<RateSearch>,
    count: u32,
    /// Time of the next search.
    again_at: Instant,
    /// Epochs since the last search.
    epochs: u32,
    /// Window before a timeout, in packets, until ACKs arrive again.
    pub(super) before_silence: Option<f64>,
    pub(super) checks: Checks,
}

impl Start {
    /// Creates a settled state without a search.
    pub(super) const fn none() -> Self {
        Self {
            search: None,
            count: 0,
            again_at: Instant::MAX,
            epochs: EPOCHS,
            before_silence: None,
            checks: Checks::new(),
        }
    }

    pub(super) fn begin(&mut self) {
        self.search = Some(RateSearch::gentle());
        self.count += 1;
        self.again_at = Instant::MAX;
    }

    /// Ends the search; returns the arrival rate of its trains, if measured.
    pub(super) fn end(&mut self) -> Option<Rate> {
        self.epochs = 0;
        self.search.take().and_then(|search| search.train_rate())
    }

    /// Schedules another search, because no train has measured the link; at most [`SEARCHES`] in
    /// all.
    pub(super) fn retry_search(&mut self, at: Instant) {
        if self.count < SEARCHES {
            self.again_at = at;
        }
    }

    pub(super) fn is_due(&self, now: Instant) -> bool {
        now > self.again_at
    }

    /// Marks the next epochs as reports of earlier losses.
    pub(super) const fn unsettle(&mut self) {
        self.epochs = 0;
    }

    /// Counts an epoch; returns whether the epoch contains nothing of a search.
    pub(super) fn note_epoch(&mut self) -> bool {
        let is_stable = self.epochs >= EPOCHS;
        self.epochs = (self.epochs + 1).min(EPOCHS);
        is_stable
    }
}

#[cfg(test)]
mod tests {
    use sabul_units::Bytes;

    use super::*;
    use crate::controller::Moment;

    #[test]
    fn losses_of_two_epochs_belong_to_the_search_and_at_most_four_searches_run() {
        let mut start = Start::none();
        assert!(start.note_epoch());
        let later = Instant::ZERO + Span::from_secs(2);
        for count in 1..=4 {
            start.begin();
            assert_eq!(start.end(), None);
            assert_eq!([(); 3].map(|()| start.note_epoch()), [false, false, true]);
            start.retry_search(Instant::ZERO);
            assert_eq!(start.is_due(later), count < 4, "{count}");
        }
    }

    fn at(ms: u64) -> Context<'static> {
        let now = Instant::ZERO + Span::from_millis(ms);
        Context::without_chance(&Moment::new(now, None, Bytes(1500)))
    }

    #[test]
    fn a_lasting_queue_of_others_leads_to_a_check_and_single_epochs_do_not() {
        let mut checks = Checks::new();
        (0..100).for_each(|n| checks.note_queue(n % 2 == 0, 0.1, &mut at(100 * n)));
        assert_eq!(checks.at, None);
        (0..11).for_each(|n| checks.note_queue(true, 0.1, &mut at(10_000 + 100 * n)));
        // Half a second and the middle of the four seconds after the eleventh epoch.
        assert_eq!(checks.at, Some(Instant::ZERO + Span::from_millis(11_000 + 2500)));
        checks.schedule(&mut at(12_000));
        assert_eq!(checks.at, Some(Instant::ZERO + Span::from_millis(13_500)), "the first stays");
        checks.note_probe(true, &mut at(12_000));
        assert_eq!(checks.at, None, "the flow is alone");
        checks.note_probe(false, &mut at(12_000));
        assert_eq!(checks.at, Some(Instant::ZERO + Span::from_millis(14_500)));
        let mut checks = Checks::none();
        checks.schedule(&mut at(0));
        assert_eq!(checks.at, None);
    }
}
