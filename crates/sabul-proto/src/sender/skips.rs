//! Packet numbers that are left out, to find out a peer that acknowledges what it has not received.
//!
//! Such a peer makes a controller send as fast as it likes. It cannot know which numbers are missing
//! on purpose, and a receiver that tells the truth lists each of them: at the latest
//! [`WINDOW_MAX`] after a larger number has come to it, and then in every list until one is confirmed.
//! So a peer that has acknowledged a number which left that much later than the larger one was heard
//! of, in an ACK with a complete list that lacks the one left out, has lied. \[RFC9000 §21.4\]
//! Invariants:  one number at a time is under watch; none of them counts as sent or lost.

use std::fmt;

use sabul_units::{Instant, PacketNumber, Random};
use sabul_wire::{Ack, MAX_RANGES, NumberRange};

use super::error::PeerError;
use crate::receiver::WINDOW_MAX;

/// Ours: numbers before the first one that is left out, at least; up to twice as many.
const DISTANCE_MIN: u64 = 256;
/// Ours: the distance doubles each time up to this.
const DISTANCE_MAX: u64 = 1 << 16;
/// Ours: behind so many numbers a receiver may have forgotten what was missing.
const WATCH_NUMBERS: u64 = 1 << 19;

const LIE: PeerError = PeerError("it acknowledged a packet that was never sent");

/// A number that was left out.
#[derive(Clone, Copy, Debug)]
struct Watch {
    number: PacketNumber,
    /// When an ACK first told of a larger one.
    passed_at: Option<Instant>,
    /// An ACK that tells of this one must have listed it.
    due: Option<PacketNumber>,
}

/// Which numbers are left out, and whether the peer knows that they are missing.
pub(super) struct Skips {
    random: Option<Box<dyn Random + Send>>,
    /// Where the next one is.
    next: PacketNumber,
    distance: u64,
    watch: Option<Watch>,
}

impl fmt::Debug for Skips {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Skips")
            .field("next", &self.next)
            .field("watch", &self.watch)
            .finish_non_exhaustive()
    }
}

impl Skips {
    pub(super) const fn none() -> Self {
        Self { random: None, next: PacketNumber(u64::MAX), distance: DISTANCE_MIN, watch: None }
    }

    /// Leaves numbers out from now on.
    pub(super) fn start(&mut self, next: PacketNumber, random: Box<dyn Random + Send>) {
        self.random = Some(random);
        self.plan(next);
    }

    fn plan(&mut self, next: PacketNumber) {
        if let Some(random) = &mut self.random {
            self.next = PacketNumber(next.0 + self.distance + random.below(self.distance));
        }
    }

    /// Whether this number, the next to be given, is left out.
    #[inline]
    pub(super) fn take(&mut self, now: Instant, number: PacketNumber) -> bool {
        if let Some(watch) = &mut self.watch {
            if watch.due.is_none() && watch.passed_at.is_some_and(|at| at + WINDOW_MAX <= now) {
                watch.due = Some(number);
            }
            if number.0 - watch.number.0 > WATCH_NUMBERS {
                self.close(number);
            }
            return false;
        }
        if number < self.next {
            return false;
        }
        self.watch = Some(Watch { number, passed_at: None, due: None });
        true
    }

    /// The one under watch needs none any more.
    fn close(&mut self, next: PacketNumber) {
        self.watch = None;
        self.distance = (self.distance * 2).min(DISTANCE_MAX);
        self.plan(next);
    }

    /// Whether an ACK can be true.
    pub(super) fn check(&self, ack: &Ack) -> Result<(), PeerError> {
        let Some(watch) = self.watch.filter(|_| ack.packets > 0) else { return Ok(()) };
        let is_complete = ack.missing.len() < MAX_RANGES;
        let is_overdue = watch.due.is_some_and(|due| ack.largest >= due) && is_complete;
        if ack.largest == watch.number || (is_overdue && !names(&ack.missing, watch.number)) {
            return Err(LIE);
        }
        Ok(())
    }

    /// Numbers that the peer lists as missing; `largest` where it says what has come, too.
    pub(super) fn note(
        &mut self,
        now: Instant,
        missing: &[NumberRange],
        largest: Option<PacketNumber>,
        next: PacketNumber,
    ) {
        let Some(watch) = &mut self.watch else { return };
        if names(missing, watch.number) {
            self.close(next);
        } else if largest.is_some_and(|largest| largest > watch.number) {
            watch.passed_at.get_or_insert(now);
        }
    }
}

fn names(ranges: &[NumberRange], number: PacketNumber) -> bool {
    ranges.iter().any(|range| (range.first..=range.last).contains(&number.0))
}
