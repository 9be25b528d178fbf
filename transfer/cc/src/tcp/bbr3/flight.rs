//! Packets in flight, lost packets, and rounds of losses.

use super::super::delivery::Sample;
use crate::controller::{Acked, LossReport, SentNumber};

/// Packets in flight and lost packets.
#[derive(Debug, Default)]
pub(super) struct Flight {
    /// Packets lost since the start, by loss reports alone.
    reported: u64,
    /// Packets lost since the start, by loss reports or ACKs.
    pub(super) lost: u64,
    /// Packets in flight after the newest ACK.
    pub(super) packets: f64,
    /// Packets in flight before the newest ACK.
    pub(super) before: f64,
}

impl Flight {
    /// Counts packets reported lost.
    pub(super) const fn note_loss(&mut self, loss: &LossReport) {
        self.reported = self.reported.saturating_add(loss.first_time.0);
    }

    /// Processes an ACK; returns the number of newly lost packets.
    pub(super) fn note_ack(&mut self, acked: &Acked) -> f64 {
        let lost = self.lost.max(acked.lost.0).max(self.reported);
        let newly_lost = (lost - self.lost) as f64;
        self.lost = lost;
        self.packets = acked.in_flight.0 as f64;
        self.before = self.packets + acked.newly.0 as f64 + newly_lost;
        newly_lost
    }
}

/// Round that begins with the first loss after the previous round. [BBR3 §5.5.10]
#[derive(Debug, Default)]
pub(super) struct LossRound {
    end: SentNumber,
    pub(super) lost: f64,
    pub(super) bw_latest: f64,
    pub(super) inflight_latest: f64,
}

impl LossRound {
    /// Processes an ACK; returns whether it ends the round.
    pub(super) fn note_ack(&mut self, acked: &Acked, newly_lost: f64) -> bool {
        // The first loss begins a new round.
        if newly_lost > 0.0 && self.lost <= 0.0 {
            self.end = acked.next;
        }
        self.lost += newly_lost;
        let is_over = acked.largest >= self.end;
        if is_over {
            self.end = acked.next;
        }
        is_over
    }

    /// Records the largest rate and delivery of the round.
    pub(super) fn keep(&mut self, sample: Sample) {
        self.bw_latest = self.bw_latest.max(sample.rate.unwrap_or(0.0));
        self.inflight_latest = self.inflight_latest.max(sample.delivered);
    }

    /// Begins the next round with the sample of this round's last ACK.
    pub(super) fn restart(&mut self, sample: Sample) {
        self.bw_latest = sample.rate.unwrap_or(0.0);
        self.inflight_latest = sample.delivered;
    }

    /// Discards losses and samples so far.
    pub(super) const fn clear(&mut self) {
        (self.lost, self.bw_latest, self.inflight_latest) = (0.0, 0.0, 0.0);
    }
}
