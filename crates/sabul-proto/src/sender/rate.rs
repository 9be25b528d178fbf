//! Rate control: the controller, what it allows, and the intervals at which it is asked.
//!
//! Source: [SABUL §II-D]: a rate control event every SYN interval, or with every SYN report of a peer
//! that sends them.
//! States:      no data yet → in an interval → between intervals, while nothing is outstanding → …

use sabul_cc::{
    Acked, BulkReport, Guarded, IntervalReport, LossReport, Moment, PathFacts, Policy, RttEstimate,
    SendLimits,
};
use sabul_units::{Bytes, Gap, Instant, PacketNumber, Packets, Span};
use sabul_wire::{DATA_OVERHEAD, congestion_len};

use super::waits::WaitReason;
use crate::rtt;

/// IPv4 and UDP headers: what a datagram is on the wire beyond its payload. Rates count IP packets;
/// IPv6 adds 20 bytes, which the gap ignores.
const IP_UDP_BYTES: u64 = 28;

/// Bytes of the congestion header that each DATA packet of this controller has.
pub fn congestion_bytes(controller: &Guarded) -> usize {
    controller.header().map_or(0, |fields| congestion_len(fields.form()))
}

/// What has happened since the controller was asked last.
#[derive(Clone, Copy, Debug, Default)]
struct Interval {
    sent: u64,
    resent: u64,
    lost: u64,
    starved: bool,
    paced: bool,
}

/// The controller of one sender with its clock.
#[derive(Debug)]
pub(super) struct RateControl {
    controller: Guarded,
    limits: SendLimits,
    /// The controller's newest gap, and the size of packets when it came.
    gap_given: (Gap, Bytes),
    rtt: Option<RttEstimate>,
    /// Size on the wire of a full packet, and what of it is not payload.
    packet_bytes: Bytes,
    overhead: u64,
    /// The peer's reports end intervals, not this end's clock.
    is_driven_by_peer: bool,
    interval: Interval,
    began: Instant,
    ends: Option<Instant>,
    /// Packets below this number left while the controller's window allowed more than there was to send,
    app_limited_until: PacketNumber,
    /// and more than the receiver, the flow window or memory had room for.
    room_limited_until: PacketNumber,
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

    pub(super) const fn limits(&self) -> &SendLimits {
        &self.limits
    }

    pub(super) const fn packet_bytes(&self) -> Bytes {
        self.packet_bytes
    }

    /// Bytes on the wire of a DATA packet that are not payload.
    pub(super) const fn overhead(&self) -> u64 {
        self.overhead
    }

    /// Packets have another size: the rate stands, so the gap follows, until the controller, which
    /// hears of the size with its next fact, has another.
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

    /// The average round trip, or what stands for it.
    pub(super) fn smoothed_rtt(&self) -> Span {
        self.rtt.map_or(rtt::UNKNOWN_TO_SENDER, |rtt| rtt.smoothed)
    }

    /// [UDT4 §3.5] The round trip and four deviations.
    pub(super) fn longest_rtt(&self) -> Span {
        self.rtt.map_or(rtt::UNKNOWN_TO_SENDER, |rtt| rtt.smoothed + rtt.variance * 4)
    }

    pub(super) fn note_rtt(&mut self, sample: Span) {
        self.rtt = Some(rtt::update(self.rtt, sample));
    }

    fn moment(&self, now: Instant) -> Moment {
        Moment::new(now, self.rtt, self.packet_bytes)
    }

    /// A DATA packet has left.
    #[inline]
    pub(super) fn note_sent(&mut self, now: Instant, is_repeat: bool) {
        self.interval.sent += 1;
        self.interval.resent += u64::from(is_repeat);
        if self.ends.is_none() {
            self.began = now;
            self.ends = Some(self.end_after(now));
        }
    }

    /// Packets were reported lost for the first time.
    pub(super) const fn note_lost(&mut self, packets: u64) {
        self.interval.lost += packets;
    }

    /// Nothing may leave now, for this reason; packets up to `next` have left.
    #[inline]
    pub(super) fn note_held(&mut self, why: WaitReason, in_flight: u64, next: PacketNumber) {
        match why {
            WaitReason::Pacing | WaitReason::Freeze => self.interval.paced = true,
            WaitReason::Application | WaitReason::Receiver | WaitReason::Window => {
                self.interval.starved = true;
            }
        }
        if self.limits.window.is_some_and(|most| in_flight >= most.0) {
            return;
        }
        match why {
            WaitReason::Application => self.app_limited_until = next,
            WaitReason::Receiver | WaitReason::Window => self.room_limited_until = next,
            WaitReason::Pacing | WaitReason::Freeze => {}
        }
    }

    /// When the interval ends by this end's clock.
    pub(super) const fn ends(&self) -> Option<Instant> {
        self.ends
    }

    /// This end's clock ends the interval; another begins where data is outstanding.
    pub(super) fn turn(&mut self, now: Instant, is_outstanding: bool, is_heard: bool) {
        self.end_interval(now, is_heard);
        self.ends = is_outstanding.then(|| self.end_after(now));
    }

    /// When this end's own clock ends the interval that begins now.
    fn end_after(&self, now: Instant) -> Instant {
        if self.is_driven_by_peer { Instant::MAX } else { now + self.controller.syn_interval() }
    }

    /// An interval has ended; the controller is asked unless the peer is not heard.
    pub(super) fn end_interval(&mut self, now: Instant, is_heard: bool) {
        let Interval { sent, resent, lost, starved, paced } = std::mem::take(&mut self.interval);
        let report = IntervalReport::new(
            Packets(sent),
            Packets(resent),
            Packets(lost),
            now.since(self.began),
            // Where pacing never bound, the machine did: the rate was not reached.
            starved || !paced,
        );
        self.began = now;
        // DEV-015: as published, an interval without a report counts as one without a loss, and a
        // sender that hears nothing goes faster and faster.
        if is_heard {
            self.tell(now, |controller, moment| {
                controller.on_interval(&report, moment);
            });
        }
    }

    pub(super) fn on_loss(&mut self, now: Instant, report: &LossReport) {
        self.tell(now, |controller, moment| {
            controller.on_loss(report, moment);
        });
    }

    pub(super) fn on_ack(&mut self, now: Instant, mut acked: Acked) {
        acked.is_app_limited = PacketNumber(acked.largest.0) < self.app_limited_until;
        acked.is_room_limited = PacketNumber(acked.largest.0) < self.room_limited_until;
        self.tell(now, |controller, moment| {
            controller.on_ack(&acked, moment);
        });
    }

    pub(super) fn on_report(&mut self, now: Instant, report: &BulkReport) {
        self.tell(now, |controller, moment| {
            controller.on_report(report, moment);
        });
    }

    pub(super) fn on_timeout(&mut self, now: Instant) {
        self.tell(now, |controller, moment| {
            controller.on_timeout(moment);
        });
    }

    pub(super) fn set_policy(&mut self, now: Instant, policy: Policy) {
        self.tell(now, |controller, moment| {
            controller.on_policy(policy, moment);
        });
    }

    pub(super) fn remember(&mut self, now: Instant, facts: &PathFacts) {
        self.tell(now, |controller, moment| {
            controller.on_memory(facts, moment);
        });
    }

    /// The one place where the controller hears anything; what it allows is known afterwards.
    fn tell(&mut self, now: Instant, fact: impl FnOnce(&mut Guarded, &Moment)) {
        let moment = self.moment(now);
        fact(&mut self.controller, &moment);
        self.take_limits();
    }
}
