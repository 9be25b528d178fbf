//! Marks: packets that report "everything before this number has been sent". DEV-061: here a mark
//! is a repeated datagram; the published protocols use a TCP message, the last block again, or a
//! flag.
//!
//! States:      sent → data has left since → due → sent

use sabul_units::{Instant, SeqNo, Span};
use sabul_wire::Mark;

#[derive(Debug)]
pub(in crate::sender) struct Marks {
    newest: Mark,
    is_due: bool,
    /// Whether data has left since the newest mark.
    is_outdated: bool,
    /// No new mark before this time.
    next: Instant,
    /// Least time between two marks.
    interval: Span,
}

impl Marks {
    pub(super) const fn new(interval: Span) -> Self {
        let newest = Mark { serial: 0, end: SeqNo(0) };
        Self { newest, is_due: false, is_outdated: false, next: Instant::ZERO, interval }
    }

    pub(super) const fn newest(&self) -> Mark {
        self.newest
    }

    pub(super) const fn note_sent(&mut self) {
        self.is_outdated = true;
        self.is_due = false;
    }

    /// Makes a new mark if data has left since the newest, or in any case with `again`, unless a
    /// mark is due. Returns whether a mark was made, or the earliest time for a mark.
    pub(super) fn renew(&mut self, now: Instant, end: SeqNo, again: bool) -> Result<bool, Instant> {
        if self.is_due || !(self.is_outdated || again) {
            return Ok(false);
        }
        if now < self.next {
            return Err(self.next);
        }
        self.newest = Mark { serial: self.newest.serial + 1, end };
        (self.is_outdated, self.is_due) = (false, true);
        Ok(true)
    }

    /// Returns the mark to send now, if a mark is due.
    pub(super) fn take(&mut self, now: Instant) -> Result<Mark, Instant> {
        if !std::mem::take(&mut self.is_due) {
            return Err(Instant::MAX);
        }
        self.next = now + self.interval;
        Ok(self.newest)
    }

    /// Makes the newest mark due again, if no data has left since.
    pub(super) const fn resend(&mut self) {
        self.is_due |= self.newest.serial > 0 && !self.is_outdated;
    }
}
