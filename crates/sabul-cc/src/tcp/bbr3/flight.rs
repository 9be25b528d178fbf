//! What is in flight, what of it is lost, and the rounds that losses begin.

use super::super::delivery::Sample;
use crate::controller::{Acked, LossReport, SentNumber};

/// Packets on the way.
#[derive(Debug, Default)]
pub(super) struct Flight {
    /// Lost since the start, as told by reports alone.
    told: u64,
    /// Lost since the start, as told by reports or by ACKs.
    pub(super) lost: u64,
    /// In flight after the newest ACK.
    pub(super) packets: f64,
    /// In flight before it.
    pub(super) before: f64,
}

impl Flight {
    /// Packets were reported lost.
    pub(super) const fn note_loss(&mut self, loss: &LossReport) {
        self.told = self.told.saturating_add(loss.first_time.0);
    }

    /// Takes in an ACK; how many packets more are lost than by the one before.
    pub(super) fn note_ack(&mut self, acked: &Acked) -> f64 {
        let lost = self.lost.max(acked.lost.0).max(self.told);
        let newly_lost = (lost - self.lost) as f64;
        self.lost = lost;
        self.packets = acked.in_flight.0 as f64;
        self.before = self.packets + acked.newly.0 as f64 + newly_lost;
        newly_lost
    }
}

/// A round that began with the first loss after the one before. [BBR3 §5.5.10]
#[derive(Debug, Default)]
pub(super) struct LossRound {
    end: SentNumber,
    pub(super) lost: f64,
    pub(super) bw_latest: f64,
    pub(super) inflight_latest: f64,
}

impl LossRound {
    /// Takes in an ACK; whether it ends the round.
    pub(super) fn note_ack(&mut self, acked: &Acked, newly_lost: f64) -> bool {
        // The first loss of a round begins one of its own.
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

    /// Keeps the most that arrived in the round.
    pub(super) fn keep(&mut self, sample: Sample) {
        self.bw_latest = self.bw_latest.max(sample.rate.unwrap_or(0.0));
        self.inflight_latest = self.inflight_latest.max(sample.delivered);
    }

    /// The next round begins with what the last ACK of this one brought.
    pub(super) fn restart(&mut self, sample: Sample) {
        self.bw_latest = sample.rate.unwrap_or(0.0);
        self.inflight_latest = sample.delivered;
    }

    /// What was lost and arrived says nothing from now on.
    pub(super) const fn forget(&mut self) {
        (self.lost, self.bw_latest, self.inflight_latest) = (0.0, 0.0, 0.0);
    }
}
