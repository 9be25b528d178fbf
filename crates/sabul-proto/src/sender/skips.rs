//! Packet numbers that are left out, to find out a peer that acknowledges what it has not received.
//!
//! Such a peer makes a controller send as fast as it likes. It cannot know which numbers are missing
//! on purpose, and a receiver that tells the truth lists each of them: at the latest
//! [`WINDOW_MAX`] after a larger number has come to it, and then in every list until one is confirmed.
//! So a peer that has acknowledged a number which left that much later than the larger one was heard
//! of, in an ACK with a complete list that lacks the one left out, has lied. \[RFC9000 §21.4\]
//!
//! A full list may lack some missing numbers. An honest receiver then lists all of them in turn, a round, which
//! takes one list for each [`MAX_RANGES`] of them; at the end of a round its reports have named them all, so the
//! sender knows how long a round can be. After [`ROUNDS_MAX`] rounds of full lists that all lack the number left
//! out, the peer has lied.
//! Invariants:  one number at a time is under watch; none of them counts as sent or lost.

use std::fmt;

use sabul_units::{Instant, PacketNumber, Random};
use sabul_wire::{Ack, MAX_RANGES, NumberRange};

use super::error::PeerError;
use crate::receiver::{REPLAY_WINDOW, WINDOW_MAX};

/// Ours: numbers before the first one that is left out, at least; up to twice as many.
const DISTANCE_MIN: u64 = 256;
/// Ours: the distance doubles each time up to this.
const DISTANCE_MAX: u64 = 1 << 16;
/// Behind so many numbers a receiver may have forgotten which were missing.
const WATCH_NUMBERS: u64 = REPLAY_WINDOW;

/// Ours: rounds of full lists without the number under watch. Of an honest peer all these ACKs were lost:
/// at a loss rate of 30 % one watch in 10^8.
const ROUNDS_MAX: u64 = 16;

const LIE: PeerError = PeerError("it acknowledged a packet that was never sent");

/// A number that was left out.
#[derive(Clone, Copy, Debug)]
struct Watch {
    number: PacketNumber,
    /// When an ACK first told of a larger one.
    passed_at: Option<Instant>,
    /// An ACK that tells of this one must have listed it.
    due: Option<PacketNumber>,
    /// Full lists without this one since then.
    full_lists: u64,
}

/// Which numbers are left out, and whether the peer knows that they are missing.
pub(super) struct Skips {
    random: Option<Box<dyn Random + Send>>,
    /// Where the next one is.
    next: PacketNumber,
    distance: u64,
    watch: Option<Watch>,
    named: Named,
}

/// Missing numbers that the peer has reported lately: of the last one to two [`REPLAY_WINDOW`]s. Older
/// numbers are in no list, since receivers forget them.
#[derive(Clone, Copy, Debug, Default)]
struct Named {
    /// Which window the next number to be sent is in.
    window: u64,
    /// Reported before this window and the one before began.
    before: [u64; 2],
    total: u64,
}

impl Named {
    const fn note(&mut self, next: PacketNumber, total: u64) {
        let window = next.0 / REPLAY_WINDOW;
        if window != self.window {
            let last = if window == self.window + 1 { self.before[0] } else { self.total };
            self.before = [self.total, last];
            self.window = window;
        }
        self.total = total;
    }

    /// Full lists in which an honest receiver names each of its missing numbers once.
    const fn lists_in_a_round(&self) -> u64 {
        1 + (self.total - self.before[1]) / MAX_RANGES as u64
    }
}

impl fmt::Debug for Skips {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Skips")
            .field("next", &self.next)
            .field("watch", &self.watch)
            .field("named", &self.named)
            .finish_non_exhaustive()
    }
}

impl Skips {
    pub(super) const fn none() -> Self {
        Self {
            random: None,
            next: PacketNumber(u64::MAX),
            distance: DISTANCE_MIN,
            watch: None,
            named: Named { window: 0, before: [0; 2], total: 0 },
        }
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
        self.watch = Some(Watch { number, passed_at: None, due: None, full_lists: 0 });
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
        let lists_max = match ack.missing.len() {
            MAX_RANGES => ROUNDS_MAX * self.named.lists_in_a_round(),
            _ => 0,
        };
        if ack.largest == watch.number || (watch.lacks(ack) && watch.full_lists >= lists_max) {
            return Err(LIE);
        }
        Ok(())
    }

    /// Takes note of an ACK that has been checked. `named` is how many missing numbers the peer has reported
    /// before, each counted once.
    pub(super) fn note_ack(&mut self, now: Instant, ack: &Ack, next: PacketNumber, named: u64) {
        self.named.note(next, named);
        self.note_missing(&ack.missing, next);
        let Some(watch) = &mut self.watch else { return };
        if ack.largest > watch.number {
            watch.passed_at.get_or_insert(now);
        }
        watch.full_lists += u64::from(watch.lacks(ack));
    }

    /// Takes note of numbers that the peer reports missing.
    pub(super) fn note_missing(&mut self, missing: &[NumberRange], next: PacketNumber) {
        if self.watch.is_some_and(|watch| names(missing, watch.number)) {
            self.close(next);
        }
    }
}

impl Watch {
    /// Whether the number is due in the lists of this ACK and not in this one.
    fn lacks(&self, ack: &Ack) -> bool {
        let is_due = self.due.is_some_and(|due| ack.largest >= due);
        let is_kept = ack.largest.0.saturating_sub(self.number.0) <= WATCH_NUMBERS;
        is_due && is_kept && !names(&ack.missing, self.number)
    }
}

fn names(ranges: &[NumberRange], number: PacketNumber) -> bool {
    ranges.iter().any(|range| (range.first..=range.last).contains(&number.0))
}
