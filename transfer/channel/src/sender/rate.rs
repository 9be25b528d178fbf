//! Rate control: the controller with its limits, RTT estimate and interval clock.
//!
//! Source: [SABUL §II-D]: a rate control event every SYN interval, or with every SYN report of a
//! peer that sends them.
//! States:      no data yet → in an interval → between intervals, while nothing is outstanding → …

use sabul_cc::{
    Acked, BulkReport, Guarded, IntervalReport, LossReport, Moment, PathFacts, Policy, RttEstimate,
    SendLimits,
};
use sabul_units::{Bytes, Gap, Instant, PacketNumber, Packets, Span};
use sabul_wire::{DATA_OVERHEAD, congestion_len};

use super::waits::WaitReason;
use crate::rtt;

/// Bytes of IPv4 and UDP headers. Rates count IP packets; IPv6 adds 20 bytes, which the gap
/// ignores.
const IP_UDP_BYTES: u64 = 28;

/// Returns the size in bytes of the congestion header in each DATA packet of this controller.
pub fn congestion_bytes(controller: &Guarded) -> usize {
    controller.header().map_or(0, |fields| congestion_len(fields.form()))
}

/// Ours: least time between two readings of the limits of a shared controller.
const REFRESH_INTERVAL: Span = Span::from_millis(1);

/// Counts of the present interval.
#[derive(Clone, Copy, Debug, Default)]
struct Interval {
    sent: u64,
    resent: u64,
    lost: u64,
    ran_dry: bool,
    paced: bool,
}

#[derive(Debug)]
pub(super) struct RateControl {
    controller: Guarded,
    limits: SendLimits,
    /// The controller's newest gap, and the packet size when the controller set it.
    gap_given: (Gap, Bytes),
    rtt: Option<RttEstimate>,
    /// Size of a full packet on the wire, and the part of it that is not payload.
    packet_bytes: Bytes,
    overhead: u64,
    /// Whether the peer's reports end intervals, instead of the local clock.
    is_driven_by_peer: bool,
    interval: Interval,
    began: Instant,
    ends: Option<Instant>,
    /// Packets below this number left while the application had less to send, or a rate limit permitted less, than the
    /// controller did,
    app_limited_until: PacketNumber,
    /// or while the receiver, the flow window or memory had less room than the controller's window
    /// allowed.
    room_limited_until: PacketNumber,
    /// Time of the next reading of the limits; `None` unless the controller is shared.
    refresh_at: Option<Instant>,
}

impl RateControl {
    pub(super) fn new(
        now: Instant,
        controller: Guarded,
        payload_bytes: u32,
        is_driven_by_peer: bool,
    ) -> Self {
        let limits = controller.limits();
        let overhead = (DATA_OVERHEAD + congestion_bytes(&controller)) as u64 + IP_UDP_BYTES;
        let packet_bytes = Bytes(u64::from(payload_bytes) + overhead);
        let refresh_at = controller.constants().is_shared.then_some(now);
        Self {
            limits,
            gap_given: (limits.gap, packet_bytes),
            controller,
            rtt: None,
            packet_bytes,
            overhead,
            is_driven_by_peer,
            interval: Interval::default(),
            began: now,
            ends: None,
            app_limited_until: PacketNumber(0),
            room_limited_until: PacketNumber(0),
            refresh_at,
        }
    }

    pub(super) fn controller(&self) -> &Guarded {
        &self.controller
    }

    pub(super) const fn controller_mut(&mut self) -> &mut Guarded {
        &mut self.controller
    }

    #[cfg(test)]
    pub(super) fn set_controller(&mut self, controller: Guarded) {
        self.controller = controller;
        self.take_limits();
    }

    /// Reads the limits of a shared controller again, if they are old.
    #[inline]
    pub(super) fn refresh(&mut self, now: Instant) {
        if self.refresh_at.is_some_and(|at| now >= at) {
            self.refresh_at = Some(now + REFRESH_INTERVAL);
            self.controller.refresh(&self.moment(now));
            self.take_limits();
        }
    }

    pub(super) const fn limits(&self) -> &SendLimits {
        &self.limits
    }

    pub(super) const fn packet_bytes(&self) -> Bytes {
        self.packet_bytes
    }

    /// Bytes of a DATA packet on the wire that are not payload.
    pub(super) const fn overhead(&self) -> u64 {
        self.overhead
    }

    /// Changes the packet size at a constant rate: the gap scales with the size until the
    /// controller sets a new gap. The controller receives the size with its next event.
    pub(super) fn set_payload_bytes(&mut self, bytes: u32) {
        self.packet_bytes = Bytes(u64::from(bytes) + self.overhead);
        self.take_limits();
    }

    fn take_limits(&mut self) {
        self.limits = self.controller.limits();
        let (gap, bytes) = self.gap_given;
        if self.limits.gap != gap {
            self.gap_given = (self.limits.gap, self.packet_bytes);
        } else if self.packet_bytes != bytes {
            self.limits.gap = Gap(gap.0.mul_ratio(self.packet_bytes.0, bytes.0.max(1)));
        }
    }

    pub(super) const fn rtt(&self) -> Option<RttEstimate> {
        self.rtt
    }

    /// Smoothed RTT, or a default before the first sample.
    pub(super) fn smoothed_rtt(&self) -> Span {
        self.rtt.map_or(rtt::UNKNOWN_TO_SENDER, |rtt| rtt.smoothed)
    }

    /// [UDT4 §3.5] Smoothed RTT plus four deviations, or a default before the first sample.
    pub(super) fn longest_rtt(&self) -> Span {
        self.rtt.map_or(rtt::UNKNOWN_TO_SENDER, |rtt| rtt.smoothed + rtt.variance * 4)
    }

    pub(super) fn note_rtt(&mut self, sample: Span) {
        self.rtt = Some(rtt::update(self.rtt, sample));
    }

    fn moment(&self, now: Instant) -> Moment {
        Moment::new(now, self.rtt, self.packet_bytes)
    }

    /// Records a DATA packet; starts the interval clock if it is stopped.
    #[inline]
    pub(super) fn note_sent(&mut self, now: Instant, is_retransmission: bool) {
        self.interval.sent += 1;
        self.interval.resent += u64::from(is_retransmission);
        if self.ends.is_none() {
            self.began = now;
            self.ends = Some(self.end_after(now));
        }
    }

    /// Counts packets reported lost for the first time.
    pub(super) const fn note_lost(&mut self, packets: u64) {
        self.interval.lost += packets;
    }

    /// Records why nothing may leave now; `next` is the number after the newest packet sent. With `is_capped`, a rate
    /// limit and not the controller sets the gap.
    #[inline]
    pub(super) fn note_held(
        &mut self,
        why: WaitReason,
        is_capped: bool,
        in_flight: u64,
        next: PacketNumber,
    ) {
        match why {
            WaitReason::Pacing | WaitReason::Freeze => self.interval.paced = true,
            WaitReason::Application | WaitReason::Receiver | WaitReason::Window => {
                self.interval.ran_dry = true;
            }
        }
        if self.limits.window.is_some_and(|most| in_flight >= most.0) {
            return;
        }
        match why {
            WaitReason::Application => self.app_limited_until = next,
            WaitReason::Pacing if is_capped => self.app_limited_until = next,
            WaitReason::Receiver | WaitReason::Window => self.room_limited_until = next,
            WaitReason::Pacing | WaitReason::Freeze => {}
        }
    }

    /// When the interval ends by the local clock.
    pub(super) const fn ends(&self) -> Option<Instant> {
        self.ends
    }

    /// Ends the interval by the local clock; starts another if data is outstanding.
    pub(super) fn advance(&mut self, now: Instant, is_outstanding: bool, has_feedback: bool) {
        self.end_interval(now, has_feedback);
        self.ends = is_outstanding.then(|| self.end_after(now));
    }

    /// When an interval that begins now ends by the local clock.
    fn end_after(&self, now: Instant) -> Instant {
        if self.is_driven_by_peer { Instant::MAX } else { now + self.controller.syn_interval() }
    }

    /// Ends the interval and reports it to the controller, unless the peer is silent.
    pub(super) fn end_interval(&mut self, now: Instant, has_feedback: bool) {
        let Interval { sent, resent, lost, ran_dry, paced } = std::mem::take(&mut self.interval);
        let report = IntervalReport::new(
            Packets(sent),
            Packets(resent),
            Packets(lost),
            now.since(self.began),
            // Pacing never held a packet back: the machine was the limit, and the rate was not
            // reached.
            ran_dry || !paced,
        );
        self.began = now;
        // DEV-015: as published, an interval without a report counts as one without a loss, so a
        // sender that receives no reports keeps increasing its rate.
        if has_feedback {
            self.controller.on_interval(&report, &self.moment(now));
            self.take_limits();
        }
    }

    pub(super) fn on_loss(&mut self, now: Instant, report: &LossReport) {
        self.controller.on_loss(report, &self.moment(now));
        self.take_limits();
    }

    pub(super) fn on_ack(&mut self, now: Instant, mut acked: Acked) {
        acked.is_app_limited = PacketNumber(acked.largest.0) < self.app_limited_until;
        acked.is_room_limited = PacketNumber(acked.largest.0) < self.room_limited_until;
        self.controller.on_ack(&acked, &self.moment(now));
        self.take_limits();
    }

    pub(super) fn on_report(&mut self, now: Instant, report: &BulkReport) {
        self.controller.on_report(report, &self.moment(now));
        self.take_limits();
    }

    pub(super) fn on_timeout(&mut self, now: Instant) {
        self.controller.on_timeout(&self.moment(now));
        self.take_limits();
    }

    pub(super) fn set_policy(&mut self, now: Instant, policy: Policy) {
        self.controller.on_policy(policy, &self.moment(now));
        self.take_limits();
    }

    pub(super) fn remember(&mut self, now: Instant, facts: &PathFacts) {
        self.controller.on_memory(facts, &self.moment(now));
        self.take_limits();
    }
}
