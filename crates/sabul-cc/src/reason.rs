//! Why a controller changed what it allows, in words of a fixed set.

use std::fmt;

/// Why limits changed, or by which rule they change from now on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// A loss beyond all that was answered: a decrease.
    LossEpoch,
    /// More losses inside such an epoch, enough for a decrease of their own.
    FurtherLoss,
    /// An ECN mark did what a loss does.
    MarkEpoch,
    /// The round trip shows a queue.
    DelayRose,
    /// What arrives has stopped growing: the path is full.
    PipeFull,
    /// The search at the start found the path's rate.
    RateFound,
    /// Losses or silence ended that search before it knew.
    SearchCutShort,
    /// Losses set a bound on the rate or on what is on the way.
    LossBound,
    /// From now on: each interval or report raises the rate.
    Rise,
    /// From now on: the rate stands.
    Hold,
    /// From now on: each interval or report lowers the rate.
    Fall,
    /// A reason that only this controller has, as a word without blanks.
    Own(&'static str),
}

impl Reason {
    /// Its word in the text of an event.
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

    /// Whether it is a rule that stays in force, told again only after something else was.
    const fn is_lasting(self) -> bool {
        matches!(self, Self::Rise | Self::Hold | Self::Fall)
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// Most reasons of one fact; more are left out.
pub(crate) const REASONS_MAX: usize = 4;

/// What a controller said while it took in one fact.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Reasons {
    told: [Option<Reason>; REASONS_MAX],
    in_force: Option<Reason>,
}

impl Reasons {
    pub(crate) fn tell(&mut self, reason: Reason) {
        if reason.is_lasting() && self.in_force == Some(reason) {
            return;
        }
        self.in_force = reason.is_lasting().then_some(reason);
        if let Some(free) = self.told.iter_mut().find(|told| told.is_none()) {
            *free = Some(reason);
        }
    }

    /// What was said since this was last asked.
    pub(crate) fn take(&mut self) -> [Option<Reason>; REASONS_MAX] {
        std::mem::take(&mut self.told)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_in_force_is_told_once_and_again_after_something_else() {
        let mut reasons = Reasons::default();
        let told = |reasons: &mut Reasons| reasons.take().into_iter().flatten().collect::<Vec<_>>();
        reasons.tell(Reason::Rise);
        reasons.tell(Reason::Rise);
        assert_eq!(told(&mut reasons), [Reason::Rise]);
        reasons.tell(Reason::Rise);
        assert_eq!(told(&mut reasons), []);
        reasons.tell(Reason::LossEpoch);
        reasons.tell(Reason::LossEpoch);
        reasons.tell(Reason::Rise);
        assert_eq!(told(&mut reasons), [Reason::LossEpoch, Reason::LossEpoch, Reason::Rise]);
        (0..9).for_each(|_| reasons.tell(Reason::FurtherLoss));
        assert_eq!(told(&mut reasons).len(), REASONS_MAX);
    }
}
