//! RACK-TLP: loss detection by time, and tail loss probes.
//!
//! Source: [RFC8985 §6, §7]; details after [LINUX tcp_recovery.c].
//! Model:       a segment is lost once a segment that left later has arrived, and now is at least
//!                  its departure + rtt + window
//!              rtt      of the newest segment, by departure, that has arrived
//!              window   0 until reordering is seen, in a recovery or with three segments beyond a hole;
//!                       else steps × rtt_min / 4, at most the smoothed RTT
//!              steps    one more for each round trip with a DSACK; back to one after 16 recoveries
//!              probe    after 2 smoothed RTTs without an ACK, once per tail: a new segment, or the
//!                       last segment again
//! Invariants:  1 <= steps; `newest` only moves forward.
//! Not here:    the segments (`scoreboard`) and the timers (`sender`).

use sabul_cc::RttEstimate;
use sabul_units::{Instant, Span};

use super::scoreboard::Outstanding;

/// [RFC8985 §6.2 step 4] DupThresh: with this many segments beyond a hole, no window is needed.
const DUP_THRESH: u64 = 3;
/// [RFC8985 §6.2 step 4] Recoveries without a DSACK after which the window is reset.
const PERSIST: u32 = 16;

/// The segment that left last among those that have arrived.
#[derive(Clone, Copy, Debug)]
struct Newest {
    serial: u64,
    rtt: Span,
}

/// An unanswered probe. [RFC8985 §7.3]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tail {
    /// Stream offset after the probe.
    pub(super) end: u64,
    /// Number of the probe's segment.
    pub(super) number: u64,
    pub(super) is_resent: bool,
}

/// State of RACK-TLP; see the module.
#[derive(Debug)]
pub(super) struct Rack {
    newest: Option<Newest>,
    /// The largest segment number that has arrived.
    highest: u64,
    is_reordering_seen: bool,
    steps: u32,
    persist: u32,
    /// A DSACK counts again once this number is acknowledged.
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

    /// Records an arrived segment; `echo` is the ACK's, for cumulative ACKs. [RFC8985 §6.2 steps 2
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
        // The ACK may answer an earlier copy.
        let is_early = rtt_min.is_some_and(|least| rtt < least)
            || echo.is_some_and(|echo| echo < segment.sent_at);
        let is_ambiguous = segment.was_resent() && is_early;
        if !is_ambiguous && self.newest.is_none_or(|newest| segment.serial > newest.serial) {
            self.newest = Some(Newest { serial: segment.serial, rtt });
        }
    }

    /// Records an ACK of everything before segment `first`; `next` is the next new segment.
    /// [RFC8985 §6.2 step 4]
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

    /// Records the end of a recovery. [RFC8985 §6.2 step 4]
    pub(super) const fn end_recovery(&mut self) {
        self.persist = self.persist.saturating_sub(1);
        if self.persist == 0 {
            self.steps = 1;
        }
    }

    /// Returns the newest serial number, and the time after departure at which earlier segments are
    /// lost.
    pub(super) fn deadline(
        &self,
        is_recovering: bool,
        sacked: u64,
        rtt: Option<RttEstimate>,
    ) -> Option<(u64, Span)> {
        let newest = self.newest?;
        let is_at_once = !self.is_reordering_seen && (is_recovering || sacked >= DUP_THRESH);
        // Before a cumulative ACK, this is the only sample.
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
    fn each_round_trip_with_a_dsack_widens_the_reorder_window_up_to_an_rtt() {
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
