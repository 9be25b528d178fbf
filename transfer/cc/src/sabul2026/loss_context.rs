//! Facts about an epoch that decide the meaning of its losses: queue, number of flows, bounds of the window.
//!
//! Source: ours.
//! Not here:    the meaning itself (`losses`).

use sabul_units::Instant;

use super::losses::{LossContext, Meaning};
use super::path::Epoch;
use super::policy::spread;
use super::{FEW, Sabul2026, TARGET_PART_MAX};
use crate::controller::Context;
use crate::reason::Reason;

/// Ours: part of the base RTT, and number of jitters, above which an RTT shows a queue while the room is unknown.
const PEAK_BASE_PART: f64 = 1.0 / 8.0;
const PEAK_JITTERS: f64 = 4.0;
/// Ours: part of the longest recent queue from which a queue counts as full.
const FULL_PART: f64 = 0.8;
/// Ours: part of the longest recent queue up to which a queue counts as short.
const SHORT_PART: f64 = 0.5;
/// Ours: shortest queue that RTTs can show, in packets.
const SHOWN_PACKETS: f64 = 4.0;

/// Ours: packets in an RTT of each of eight flows, below which losses are not recorded: responses of so few packets decide
/// about the shares, not the losses.
const RECORDED_PACKETS: f64 = 16.0;

impl Sabul2026 {
    /// Processes the losses of an epoch; returns their meaning, and whether a queue stood.
    pub(super) fn note_losses(&mut self, epoch: &Epoch, cx: &mut Context<'_>) -> (Meaning, bool) {
        let context = self.loss_context(epoch, cx.now);
        let was_independent = self.losses.are_independent();
        let meaning = self.losses.note(epoch, &context);
        if self.losses.are_independent() && !was_independent {
            // CUBIC's window counted because of random losses.
            cx.log_reason(Reason::Own("losses-independent"));
            self.fallback.bound_until = cx.now;
        }
        (meaning, context.is_queued)
    }

    /// Returns the circumstances that decide the meaning of this epoch's losses.
    fn loss_context(&self, epoch: &Epoch, now: Instant) -> LossContext {
        let (base, jitter, link) = (self.path.base_s(), self.path.jitter_s(), self.link.rate_pps());
        let queue_limit = self.losses.queue_limit_s(base);
        let shown = SHOWN_PACKETS / link.max(1.0);
        let peak = if queue_limit.is_finite() { queue_limit / 2.0 } else { base * PEAK_BASE_PART };
        let peak = peak.max(PEAK_JITTERS * jitter).max(shown);
        let low = (self.omega_s() + self.theta_s() / 2.0).max(2.0 * jitter);
        // Something else than the path may have held the flow back.
        let sent = self.allowed() / (base + self.path.queue_s());
        let rate = epoch.rate_pps.max((1.0 - epoch.lost) * sent);
        let short = SHORT_PART * (self.path.peak_s() - base);
        let few = self.omega_s() + self.theta_s() * spread(FEW);
        let has_room = TARGET_PART_MAX * (self.path.peak_s() - base) > few;
        let has_packets = link * base >= RECORDED_PACKETS * FEW;
        let is_visible = has_room
            && has_packets
            && short > (PEAK_JITTERS * jitter).max(shown.min(base * PEAK_BASE_PART));
        LossContext {
            short_s: is_visible.then_some(base + short),
            is_queued: self.path.queue_s() > low || epoch.longest_s - base > peak,
            is_full: epoch.longest_s - base > FULL_PART * (self.path.peak_s() - base),
            may_be_few: self.link.is_trained() && rate * FEW >= (1.0 - epoch.lost) * link,
            is_bound: self.fallback.bound(now).is_some(),
            shows_queues: self.path.longest_queue_s() > 1.25 * low + shown,
        }
    }
}
