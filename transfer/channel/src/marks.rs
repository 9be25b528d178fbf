//! Marks: packets that report "everything before this number has been sent". DEV-061: here a mark
//! is a repeated datagram; the published protocols use a TCP message, the last block again, or a
//! flag.
//!
//! States:      sent → data has left since → due → sent

use sabul_units::{Instant, Polled, SeqNo, Span};
use sabul_wire::Mark;

/// Timer of a sender's marks, and the newest mark.
#[derive(Debug)]
pub struct Marks {
    newest: Mark,
    is_due: bool,
    /// Whether data has left since the newest mark.
    is_outdated: bool,
    /// No new mark before this time.
    next: Instant,
    /// Least time between two marks.
    interval: Span,
    /// Whether new marks leave although no data has left since the newest mark.
    are_repeated: bool,
}

impl Marks {
    /// Marks at least `interval` apart, each after new data.
    pub const fn new(interval: Span) -> Self {
        Self {
            newest: Mark { serial: 0, end: SeqNo(0) },
            is_due: false,
            is_outdated: false,
            next: Instant::ZERO,
            interval,
            are_repeated: false,
        }
    }

    /// Marks at every `interval`, also without new data.
    pub const fn repeated(interval: Span) -> Self {
        Self { are_repeated: true, ..Self::new(interval) }
    }

    /// Returns the newest mark; its serial number is zero before the first.
    pub const fn newest(&self) -> Mark {
        self.newest
    }

    /// Records that data has left.
    pub(crate) const fn note_sent(&mut self) {
        self.is_outdated = true;
        self.is_due = false;
    }

    /// All that may be sent has been, up to `end`: returns a mark, or the earliest time for a mark.
    pub(crate) fn poll(&mut self, now: Instant, end: SeqNo) -> Polled<Mark, ()> {
        let is_new = !self.is_due && (self.is_outdated || self.are_repeated);
        if is_new && now < self.next {
            return Polled::Wait { until: Some(self.next), because: () };
        }
        if is_new {
            self.newest = Mark { serial: self.newest.serial + 1, end };
            (self.is_outdated, self.is_due) = (false, true);
        }
        if !std::mem::take(&mut self.is_due) {
            return Polled::Wait { until: None, because: () };
        }
        self.next = now + self.interval;
        Polled::Ready(self.newest)
    }

    /// After a timeout: makes the newest mark due again, if no data has left since.
    pub(crate) const fn resend(&mut self) {
        self.is_due |= self.newest.serial > 0 && !self.is_outdated;
    }
}
