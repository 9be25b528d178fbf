//! RACK-TLP: which segments are late enough to be lost, and the probe for a lost tail.
//!
//! Source: [RFC8985 §6, §7]; details after [LINUX tcp_recovery.c].
//! Model:       a segment is lost once one that left later has arrived, and now is at least
//!                  its departure + rtt + window
//!              rtt      of the newest segment, by departure, that has arrived
//!              window   0 until reordering is seen, in a recovery or with three segments beyond a hole;
//!                       else steps × rtt_min / 4, at most the smoothed round trip
//!              steps    one more for each round trip with a DSACK; one again after 16 recoveries
//!              probe    after 2 smoothed round trips without an ACK, once a tail: a new segment, or the
//!                       last one again
//! Invariants:  1 <= steps; `newest` only moves forward.
//! Not here:    which segments there are (`scoreboard`), the timers (`sender`).

use sabul_cc::RttEstimate;
use sabul_units::{Instant, Span};

use super::scoreboard::Outstanding;

/// [RFC8985 §6.2 step 4] DupThresh: so many selective acknowledgements are no reordering.
const DUP_THRESH: u64 = 3;
/// [RFC8985 §6.2 step 4] Recoveries without a DSACK after which the window is as at first.
const PERSIST: u32 = 16;

/// The segment that left last of those that have arrived.
#[derive(Clone, Copy, Debug)]
struct Newest {
    serial: u64,
    rtt: Span,
}

/// A probe that has not been answered. [RFC8985 §7.3]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tail {
    /// Place in the stream after it.
    pub(super) end: u64,
    /// Number of its segment.
    pub(super) number: u64,
    pub(super) is_resent: bool,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Rack {
    newest: Option<Newest>,
    /// The largest number that has arrived.
    highest: u64,
    is_reordering_seen: bool,
    steps: u32,
    persist: u32,
    /// The round trip in which a DSACK has counted ends with this number.
    dsack_round: Option<u64>,
    pub(super) tail: Option<Tail>,
}

impl Rack {
    pub(super) const fn new() -> Self {
        Self {
            newest: None,
            highest: 0,
            is_reordering_seen: false,
            steps: 1,
            persist: 0,
            dsack_round: None,
            tail: None,
        }
    }

    /// A segment has arrived; `echo` is that of the ACK, where the ACK is cumulative. [RFC8985 §6.2 steps 2
    /// and 3]
    pub(super) fn deliver(
        &mut self,
        now: Instant,
        number: u64,
        segment: Outstanding,
        rtt_min: Option<Span>,
        echo: Option<Instant>,
    ) {
        if number > self.highest {
            self.highest = number;
        } else if !segment.was_resent() {
            self.is_reordering_seen = true;
        }
        let rtt = now.since(segment.sent_at);
        // The ACK may be of an earlier copy.
        let is_early = rtt_min.is_some_and(|least| rtt < least)
            || echo.is_some_and(|echo| echo < segment.sent_at);
        let is_ambiguous = segment.was_resent() && is_early;
        if !is_ambiguous && self.newest.is_none_or(|newest| segment.serial > newest.serial) {
            self.newest = Some(Newest { serial: segment.serial, rtt });
        }
    }

    /// An ACK of everything before number `first` has arrived, `next` not sent yet. [RFC8985 §6.2 step 4]
    pub(super) fn note_ack(&mut self, has_duplicate: bool, first: u64, next: u64) {
        if self.dsack_round.is_some_and(|round| first >= round) {
            self.dsack_round = None;
        }
        if has_duplicate && self.dsack_round.is_none() {
            self.dsack_round = Some(next);
            self.steps = self.steps.saturating_add(1);
            self.persist = PERSIST;
        }
    }

    /// A recovery has ended. [RFC8985 §6.2 step 4]
    pub(super) const fn end_recovery(&mut self) {
        self.persist = self.persist.saturating_sub(1);
        if self.persist == 0 {
            self.steps = 1;
        }
    }

    /// How long after its departure a segment is lost that left before the one with this serial number.
    pub(super) fn deadline(
        &self,
        is_recovering: bool,
        sacked: u64,
        rtt: Option<RttEstimate>,
    ) -> Option<(u64, Span)> {
        let newest = self.newest?;
        let is_at_once = !self.is_reordering_seen && (is_recovering || sacked >= DUP_THRESH);
        // Before an ACK has moved on, this is the only sample.
        let (least, smoothed) = rtt.map_or((newest.rtt, newest.rtt), |rtt| (rtt.min, rtt.smoothed));
        let window =
            if is_at_once { Span::ZERO } else { (least / 4 * u64::from(self.steps)).min(smoothed) };
        Some((newest.serial, newest.rtt + window))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Span = Span::from_millis;

    #[test]
    fn each_round_trip_with_a_dsack_widens_the_window_up_to_a_round_trip() {
        let mut rack = Rack::new();
        rack.is_reordering_seen = true;
        rack.newest = Some(Newest { serial: 9, rtt: MS(100) });
        let rtt = RttEstimate { latest: MS(100), smoothed: MS(120), variance: MS(1), min: MS(80) };
        let wait =
            |rack: &Rack| rack.deadline(true, 9, Some(rtt)).unwrap().1.saturating_sub(MS(100));
        assert_eq!(wait(&rack), MS(20));
        rack.note_ack(true, 5, 20);
        rack.note_ack(true, 19, 30);
        assert_eq!(wait(&rack), MS(40), "once a round trip");
        for round in 1..9 {
            rack.note_ack(true, 20 * round, 20 * round + 20);
        }
        assert_eq!(wait(&rack), MS(120), "no more than the smoothed round trip");
        for _ in 0..15 {
            rack.end_recovery();
        }
        assert_eq!(wait(&rack), MS(120));
        rack.end_recovery();
        assert_eq!(wait(&rack), MS(20), "sixteen recoveries without a DSACK");
    }
}
