//! Detection of optimistic ACKs by skipped packet numbers.
//!
//! A peer that acknowledges packets it did not receive makes the controller send ever faster. The
//! sender therefore skips numbers at random; such a peer cannot detect them. An honest receiver lists each skipped
//! number as missing, at the latest [`WINDOW_MAX`] after a larger number arrived. The number is then in every list
//! until a list is confirmed. Suppose a packet left that much later
//! than the first ACK above the skipped number. An ACK that covers this packet with a complete
//! list, but without the skipped number, is suspect, and a few in a row make the peer suspect. Two
//! skipped numbers in a row prove a false acknowledgement. \[RFC9000 §21.4\]
//!
//! A full list may omit some missing numbers. An honest receiver then lists all of them in turn, a
//! round, which takes one list for each [`MAX_RANGES`] of them. At the end of a round its reports
//! have named all missing numbers, so the sender can compute how long a round can be. After
//! [`ROUNDS_MAX`] rounds of full lists without the skipped number, the peer is suspect.
//! Invariants:  one number at a time is watched; skipped numbers never count as sent or lost.

use std::fmt;

use sabul_units::{Instant, PacketNumber, Random};
use sabul_wire::{Ack, MAX_RANGES, NumberRange};

use super::peer_error::PeerError;
use crate::receiver::numbers::REPLAY_WINDOW;
use crate::receiver::reorder::WINDOW_MAX;

/// Ours: least distance to the first skipped number; at most twice as many.
const DISTANCE_MIN: u64 = 256;
/// Ours: the distance doubles each time up to this.
const DISTANCE_MAX: u64 = 1 << 16;
/// A receiver may have dropped missing numbers that are this far behind.
const WATCH_NUMBERS: u64 = REPLAY_WINDOW;

/// Ours: rounds of full lists without the watched number. For an honest peer all these ACKs must be
/// lost: at a loss rate of 30 % one watch in 10^8.
const ROUNDS_MAX: u64 = 16;

/// Ours: complete lists without the watched number. The thread of an honest receiver may pause
/// between its clock and its socket, and then list the number one ACK late.
const LISTS_MAX: u64 = 3;

/// Ours: skipped numbers in a row that an honest receiver may fail to list. On starved machines an honest
/// receiver was seen to fail once; the cause is not known.
const SUSPICIONS_MAX: u32 = 1;

/// A skipped number.
#[derive(Clone, Copy, Debug)]
struct Watch {
    number: PacketNumber,
    /// When an ACK first acknowledged a larger number.
    passed_at: Option<Instant>,
    /// An ACK at or above this number must have listed the skipped number.
    due: Option<PacketNumber>,
    /// Lists without the skipped number since then.
    lists: u64,
}

/// State of number skipping for one sender.
pub(super) struct Skips {
    random: Option<Box<dyn Random + Send>>,
    /// The next number to skip.
    next: PacketNumber,
    distance: u64,
    watch: Option<Watch>,
    /// Skipped numbers in a row that the peer did not list.
    suspicions: u32,
    named: Named,
}

/// Count of missing numbers that the peer reported within the last one to two [`REPLAY_WINDOW`]s.
/// Lists hold no older numbers, because receivers drop them.
#[derive(Clone, Copy, Debug, Default)]
struct Named {
    /// Index of the window that contains the next number to be sent.
    window: u64,
    /// Totals reported before the present window and before the previous window began.
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

    /// Number of full lists in which an honest receiver names each of its missing numbers once.
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
            suspicions: 0,
            named: Named { window: 0, before: [0; 2], total: 0 },
        }
    }

    /// Starts to skip numbers.
    pub(super) fn start(&mut self, next: PacketNumber, random: Box<dyn Random + Send>) {
        self.random = Some(random);
        self.plan(next);
    }

    #[cfg(test)]
    pub(super) const fn suspicions(&self) -> u32 {
        self.suspicions
    }

    fn plan(&mut self, next: PacketNumber) {
        if let Some(random) = &mut self.random {
            self.next = PacketNumber(next.0 + self.distance + random.below(self.distance));
        }
    }

    /// Returns whether to skip `number`, the next packet number.
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
        self.watch = Some(Watch { number, passed_at: None, due: None, lists: 0 });
        true
    }

    /// Ends the watch and plans the next skipped number.
    fn close(&mut self, next: PacketNumber) {
        self.watch = None;
        self.distance = (self.distance * 2).min(DISTANCE_MAX);
        self.plan(next);
    }

    /// Returns an error if the ACK proves a false acknowledgement.
    pub(super) fn check(&self, ack: &Ack) -> Result<(), PeerError> {
        let Some(watch) = self.watch.filter(|_| ack.packets > 0) else { return Ok(()) };
        if ack.largest == watch.number {
            return Err(PeerError::AckOfSkippedNumber(watch.number));
        }
        if self.suspicions >= SUSPICIONS_MAX && self.is_suspect(&watch, ack) {
            return Err(PeerError::SkippedNumberNotListed(watch.number));
        }
        Ok(())
    }

    /// Returns whether this ACK and those before should have listed the number.
    fn is_suspect(&self, watch: &Watch, ack: &Ack) -> bool {
        let lists_max = match ack.missing.len() {
            MAX_RANGES => ROUNDS_MAX * self.named.lists_in_a_round(),
            _ => LISTS_MAX,
        };
        watch.lacks(ack) && watch.lists >= lists_max
    }

    /// Records a checked ACK. `named` is how many missing numbers the peer has reported before,
    /// each counted once.
    pub(super) fn note_ack(&mut self, now: Instant, ack: &Ack, next: PacketNumber, named: u64) {
        self.named.note(next, named);
        self.note_missing(&ack.missing, next);
        if self.watch.is_some_and(|watch| self.is_suspect(&watch, ack)) {
            self.suspicions += 1;
            self.watch = None;
            self.distance = DISTANCE_MIN;
            self.plan(next);
        }
        let Some(watch) = &mut self.watch else { return };
        if ack.largest > watch.number {
            watch.passed_at.get_or_insert(now);
        }
        watch.lists += u64::from(watch.lacks(ack));
    }

    /// Records numbers that the peer reports missing.
    pub(super) fn note_missing(&mut self, missing: &[NumberRange], next: PacketNumber) {
        if self.watch.is_some_and(|watch| names(missing, watch.number)) {
            self.suspicions = 0;
            self.close(next);
        }
    }
}

impl Watch {
    /// Whether this ACK had to list the number and does not.
    fn lacks(&self, ack: &Ack) -> bool {
        let is_due = self.due.is_some_and(|due| ack.largest >= due);
        let is_kept = ack.largest.0.saturating_sub(self.number.0) <= WATCH_NUMBERS;
        is_due && is_kept && !names(&ack.missing, self.number)
    }
}

fn names(ranges: &[NumberRange], number: PacketNumber) -> bool {
    ranges.iter().any(|range| (range.first..=range.last).contains(&number.0))
}
