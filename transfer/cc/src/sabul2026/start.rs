//! Start phases of a flow: rate searches, the recovery after a timeout, and epochs with stale
//! reports.
//!
//! Source: ours.
//! States:      Searching --rate found--> Settling --epochs--> Settled --no train showed the link--> Searching
//! Not here:    a search later on, for a link whose rate has changed.

use sabul_units::{Instant, Rate};

use crate::search::RateSearch;

/// Ours: most searches of a flow; a search is repeated if a full queue dropped its trains.
const SEARCHES: u32 = 4;
/// Ours: epochs after a search that still report the search's own losses and a link that is not
/// full yet.
const EPOCHS: u32 = 2;

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
    use super::*;
    use sabul_units::Span;

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
}
