//! Starts of one flow: searches for the rate, the resumption after a silence, and epochs that still report the time before.
//!
//! Source: ours.
//! States:      Searching --rate found--> Settling --epochs--> Settled --no train showed the link--> Searching
//! Not here:    a search later on, for a link whose rate has changed.

use sabul_units::{Instant, Rate};

use crate::search::RateSearch;

/// Ours: searches, where a full queue swallowed the trains of the one before.
const SEARCHES: u32 = 4;
/// Ours: epochs in which the search's own losses, and a link that it did not fill, are still reported.
const EPOCHS: u32 = 2;

/// See the module.
#[derive(Debug)]
pub(super) struct Start {
    pub(super) search: Option<RateSearch>,
    count: u32,
    /// The next one.
    again_at: Instant,
    /// Epochs since the last one.
    epochs: u32,
    /// The window before a silence, in packets, until the path answers again.
    pub(super) before_silence: Option<f64>,
}

impl Start {
    /// No search; it has settled.
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

    /// The search is over; what its trains arrived at, if they did.
    pub(super) fn end(&mut self) -> Option<Rate> {
        self.epochs = 0;
        self.search.take().and_then(|search| search.train_rate())
    }

    /// No train has shown the link: another search then, unless that makes too many.
    pub(super) fn ask_again(&mut self, at: Instant) {
        if self.count < SEARCHES {
            self.again_at = at;
        }
    }

    pub(super) fn is_due(&self, now: Instant) -> bool {
        now > self.again_at
    }

    /// The next epochs report losses of before.
    pub(super) const fn unsettle(&mut self) {
        self.epochs = 0;
    }

    /// An epoch is over; whether it is one that a search had no part in.
    pub(super) fn note_epoch(&mut self) -> bool {
        let is_settled = self.epochs >= EPOCHS;
        self.epochs = (self.epochs + 1).min(EPOCHS);
        is_settled
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sabul_units::Span;

    #[test]
    fn two_epochs_are_the_searchs_and_a_fourth_search_is_the_last() {
        let mut start = Start::none();
        assert!(start.note_epoch());
        let later = Instant::ZERO + Span::from_secs(2);
        for count in 1..=4 {
            start.begin();
            assert_eq!(start.end(), None);
            assert_eq!([(); 3].map(|()| start.note_epoch()), [false, false, true]);
            start.ask_again(Instant::ZERO);
            assert_eq!(start.is_due(later), count < 4, "{count}");
        }
    }
}
