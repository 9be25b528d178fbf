//! Reasons for changes of a controller's limits, as a fixed set of words.

use std::fmt;

/// Reason for a change of limits, or rule by which limits change from now on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// Loss beyond the last loss epoch: a decrease.
    LossEpoch,
    /// Further losses in the same loss epoch, enough for another decrease.
    FurtherLoss,
    /// An ECN mark, treated as a loss.
    MarkEpoch,
    /// The RTT shows a queue.
    DelayRose,
    /// The arrival rate has stopped growing: the path is full.
    PipeFull,
    /// The search at the start has measured the path's rate.
    RateFound,
    /// Losses or a timeout ended the search at the start early.
    SearchCutShort,
    /// Losses bound the rate or the packets in flight.
    LossBound,
    /// From now on: each interval or report raises the rate.
    Rise,
    /// From now on: the rate is constant.
    Hold,
    /// From now on: each interval or report lowers the rate.
    Fall,
    /// Reason of a single controller, as a word without blanks.
    Own(&'static str),
}

impl Reason {
    /// Returns the word used in the text of an event.
    pub const fn word(self) -> &'static str {
        match self {
            Self::LossEpoch => "loss-epoch",
            Self::FurtherLoss => "further-loss",
            Self::MarkEpoch => "mark-epoch",
            Self::DelayRose => "delay-rose",
            Self::PipeFull => "pipe-full",
            Self::RateFound => "rate-found",
            Self::SearchCutShort => "search-cut-short",
            Self::LossBound => "loss-bound",
            Self::Rise => "rise",
            Self::Hold => "hold",
            Self::Fall => "fall",
            Self::Own(word) => word,
        }
    }

    /// Returns whether the reason is a lasting rule, recorded again only after another reason.
    const fn is_lasting(self) -> bool {
        matches!(self, Self::Rise | Self::Hold | Self::Fall)
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// Most reasons recorded per callback; further reasons are dropped.
pub(crate) const REASONS_MAX: usize = 4;

/// Reasons recorded during one callback.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Reasons {
    recorded: [Option<Reason>; REASONS_MAX],
    in_force: Option<Reason>,
}

impl Reasons {
    pub(crate) fn record(&mut self, reason: Reason) {
        if reason.is_lasting() && self.in_force == Some(reason) {
            return;
        }
        self.in_force = reason.is_lasting().then_some(reason);
        if let Some(free) = self.recorded.iter_mut().find(|recorded| recorded.is_none()) {
            *free = Some(reason);
        }
    }

    /// Returns the recorded reasons and clears them.
    pub(crate) fn take(&mut self) -> [Option<Reason>; REASONS_MAX] {
        std::mem::take(&mut self.recorded)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repeated_reason_is_recorded_once_until_another_occurs() {
        let mut reasons = Reasons::default();
        let recorded =
            |reasons: &mut Reasons| reasons.take().into_iter().flatten().collect::<Vec<_>>();
        reasons.record(Reason::Rise);
        reasons.record(Reason::Rise);
        assert_eq!(recorded(&mut reasons), [Reason::Rise]);
        reasons.record(Reason::Rise);
        assert_eq!(recorded(&mut reasons), []);
        reasons.record(Reason::LossEpoch);
        reasons.record(Reason::LossEpoch);
        reasons.record(Reason::Rise);
        assert_eq!(recorded(&mut reasons), [Reason::LossEpoch, Reason::LossEpoch, Reason::Rise]);
        (0..9).for_each(|_| reasons.record(Reason::FurtherLoss));
        assert_eq!(recorded(&mut reasons).len(), REASONS_MAX);
    }
}
