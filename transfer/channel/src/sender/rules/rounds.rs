//! Rounds rules: send everything, then a mark, then wait for the list of missing pieces, which is
//! the next round. \[RBUDP\]
//!
//! States:      sending → waiting for the answer to the mark → sending

use sabul_units::{Instant, SeqNo, Span};
use sabul_wire::{Mark, Missing};

use super::marks::Marks;
use super::verdict::{Account, Verdict, count};
use crate::sender::pace::PaceReference;

/// State of the present round.
#[derive(Debug)]
pub(in crate::sender) struct Rounds {
    pub(super) marks: Marks,
    is_waiting: bool,
    /// The first packet of a round is the time reference for all others.
    is_new: bool,
    sent: u64,
    missing: u64,
}

impl Rounds {
    pub(super) const fn new() -> Self {
        let marks = Marks::new(Span::ZERO);
        Self { marks, is_waiting: false, is_new: true, sent: 0, missing: 0 }
    }

    pub(super) const fn is_waiting(&self) -> bool {
        self.is_waiting
    }

    pub(super) const fn note_sent(&mut self) {
        self.marks.note_sent();
        self.sent += 1;
    }

    /// [RBUDP] The times of a round count from its start.
    pub(super) const fn pace_from(&mut self) -> PaceReference {
        PaceReference::Row { is_first: std::mem::replace(&mut self.is_new, false) }
    }

    pub(super) fn next_mark(&mut self, now: Instant, end: SeqNo) -> Result<Mark, Instant> {
        self.is_waiting |= self.marks.renew(now, end, false)?;
        self.marks.take(now)
    }

    pub(super) fn note_acknowledged(&mut self, seq: SeqNo) -> Option<Account> {
        (self.is_waiting && seq >= self.marks.newest().end).then(|| self.end())
    }

    pub(super) fn on_missing(&mut self, missing: &Missing) -> Verdict {
        let mark = self.marks.newest();
        if !self.is_waiting || missing.serial != mark.serial {
            return Verdict::Known;
        }
        self.missing += count(missing);
        Verdict::Lost((missing.below >= mark.end).then(|| self.end()))
    }

    fn end(&mut self) -> Account {
        self.is_waiting = false;
        self.is_new = true;
        let (sent, missing) = (std::mem::take(&mut self.sent), std::mem::take(&mut self.missing));
        Account { sent, arrived: sent.saturating_sub(missing) }
    }
}
