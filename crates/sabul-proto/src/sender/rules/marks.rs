//! Marks: everything before this number has been sent, and nothing more for now. DEV-061: in a
//! datagram, repeated; published are a message over TCP, the last block again, or a flag.
//!
//! States:      said → data has left since → due → said

use sabul_units::{Instant, SeqNo, Span};
use sabul_wire::Mark;

/// The marks of one sender.
#[derive(Debug)]
pub(in crate::sender) struct Marks {
    newest: Mark,
    is_due: bool,
    /// Data has left since the newest one.
    is_outdated: bool,
    /// No new one before this.
    next: Instant,
    /// At least so long between two of them.
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

    /// A DATA packet has left.
    pub(super) const fn note_sent(&mut self) {
        self.is_outdated = true;
        self.is_due = false;
    }

    /// Makes a new one if data has left since the newest, or in any case with `again`, unless one is
    /// due. Tells whether it did, or when it may.
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

    /// The one to say now, if there is one.
    pub(super) fn take(&mut self, now: Instant) -> Result<Mark, Instant> {
        if !std::mem::take(&mut self.is_due) {
            return Err(Instant::MAX);
        }
        self.next = now + self.interval;
        Ok(self.newest)
    }

    /// Says the newest again, if nothing has left since.
    pub(super) const fn repeat(&mut self) {
        self.is_due |= self.newest.serial > 0 && !self.is_outdated;
    }
}
