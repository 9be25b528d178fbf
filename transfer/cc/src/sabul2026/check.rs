//! Later trains that measure the link's rate again.
//!
//! Source: ours. Flows that start within a few RTTs of each other send their first trains at the same time. Each then
//! measures a part of the link, and the law gives each flow a share in proportion to its measurement.
//! States:      Idle --a queue of others | a probe of a flow that is not alone--> Scheduled --random time--> trains --> Idle
//! Bounds:      at most two checks for a flow; the second only if the first found a higher rate. A flow that is alone
//!              checks nothing.
//! Invariants:  the estimate never falls: a check that meets another check measures a part of the link, too.
//! Not here:    links whose rate has changed.

use sabul_units::Span;

use super::start::Checks;
use super::{LOST_LIGHT, Sabul2026, packets_per_second};
use crate::controller::{Acked, Context, Moment, RttEstimate};
use crate::reason::Reason;
use crate::search::{RateSearch, SearchStep};

/// Room that the trains need in the queue, as a part of the base RTT: they are a quarter of the BDP.
const ROOM: f64 = 0.25;
/// A rate higher by this factor is checked again.
const HIGHER: f64 = 1.05;

impl Sabul2026 {
    /// Begins a check if one is due and the queue has room for its trains; returns whether a check has begun.
    pub(super) fn begin_check(&mut self, cx: &mut Context<'_>) -> bool {
        let (base, queue) = (self.path.base_s(), self.path.queue_s());
        let is_of_others = queue > self.omega_s() + self.theta_s() / 2.0;
        self.start.checks.note_queue(is_of_others, base + queue, cx);
        if !self.start.checks.is_due(cx.now)
            || self.competitor.is_detected()
            // A flow that takes only unused capacity does not send trains into the queue of others.
            || !self.gains.keeps_share()
            || !self.link.is_trained()
            || self.losses.recent() >= LOST_LIGHT
            || queue + ROOM * base >= self.losses.queue_limit_s(base)
        {
            return false;
        }
        cx.log_reason(Reason::Own("check"));
        self.start.checks.begin(self.window_packets);
        self.start.search = Some(RateSearch::gentle());
        // Packets in flight would count as part of a train.
        self.hold_until = Some(cx.now + Span::from_secs_f64(2.0 * (base + queue)));
        true
    }

    /// Processes an ACK of a check, which ends with its longest train.
    pub(super) fn check(&mut self, acked: &Acked, cx: &mut Context<'_>) {
        let Some(search) = &mut self.start.search else { return };
        // For the trains, the queue of other flows is a part of the path.
        let least = Span::from_secs_f64(self.path.base_s() + self.path.least_queue_s());
        let rtt = cx.rtt.map(|rtt| RttEstimate { min: rtt.min.max(least.min(rtt.latest)), ..rtt });
        let moment = Moment::new(cx.now, rtt, cx.packet_bytes);
        let step = search.on_ack(acked, &Context::new(&moment, cx.random));
        if step != SearchStep::Continue || search.offered(cx.packet_bytes).is_some() {
            self.end_check(cx);
        }
    }

    /// Ends a check, if one is running. The flow continues with the window before the check.
    pub(super) fn end_check(&mut self, cx: &mut Context<'_>) {
        let Some(window) = self.start.checks.end() else { return };
        let rate = self.start.end();
        let rate = rate.map_or(0.0, |rate| packets_per_second(rate, cx.packet_bytes));
        let before = self.link.trained_pps();
        if rate < before * HIGHER {
            self.start.checks = Checks::none();
        }
        self.link.train(Some(rate.max(before)), cx.now);
        self.set_window(window);
        self.probing.schedule(cx);
        self.hold_until = None;
    }
}
