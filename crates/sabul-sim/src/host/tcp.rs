//! Both ends of a TCP flow.

use sabul_cc::Controller;
use sabul_cc::registry::{self, Family};
use sabul_units::{Instant, Span};

use super::Port;
use crate::meter::{Counters, Gauges};
use crate::net::{Body, Way};
use crate::scenario::FlowPlan;
use crate::tcp::{TcpConfig, TcpReceiver, TcpSender, TcpTransmit};

/// What Linux uses where [RFC6298 §2] asks for one second.
pub(super) const RTO_MIN: Span = Span::from_millis(200);
/// What an endless flow has to send: more than any run can.
const ENDLESS: u64 = 1 << 60;

/// Both ends of a TCP flow.
#[derive(Debug)]
pub(crate) struct TcpHost {
    sender: TcpSender,
    receiver: TcpReceiver,
    counters: Counters,
    has_end: bool,
    is_paced: bool,
}

impl TcpHost {
    pub(crate) fn new(
        now: Instant,
        plan: &FlowPlan,
        bytes: Option<u64>,
        controller: Box<dyn Controller>,
    ) -> Self {
        let config = TcpConfig {
            packet_bytes: plan.packet_bytes,
            initial_window: plan.initial_window,
            window_packets: plan.window_packets,
            rto_min: RTO_MIN,
            is_ecn_capable: plan.is_ecn_capable,
            // A controller of windows leaves bursts as TCP makes them.
            is_paced: registry::find(&plan.cc)
                .is_ok_and(|entry| entry.family == Family::PacedWindow),
        };
        let is_paced = config.is_paced;
        let mut sender = TcpSender::new(now, config, controller);
        sender.write(bytes.unwrap_or(ENDLESS));
        Self {
            sender,
            receiver: TcpReceiver::new(),
            counters: Counters::default(),
            has_end: bytes.is_some(),
            is_paced,
        }
    }

    pub(crate) fn at_receiver(&mut self, now: Instant, body: &Body, is_marked: bool) {
        if let Body::Segment(segment) = body {
            self.receiver.accept(now, segment, is_marked);
            self.counters.arrived_bytes += u64::from(segment.wire_bytes());
        }
    }

    pub(crate) fn at_sender(&mut self, now: Instant, body: &Body) {
        if let Body::TcpAck(ack) = body {
            self.sender.handle_ack(now, ack);
        }
    }

    pub(crate) fn wake_sender(&mut self, now: Instant, port: &mut Port<'_>) -> Option<Instant> {
        loop {
            match self.sender.poll_transmit(now) {
                TcpTransmit::Segment(segment) => {
                    let size = segment.wire_bytes();
                    self.counters.sent_bytes += u64::from(size);
                    port.send(now, Way::Forward, size, Body::Segment(segment));
                }
                TcpTransmit::Wait(until) => return until,
            }
        }
    }

    pub(crate) fn wake_receiver(&mut self, now: Instant, port: &mut Port<'_>) -> Option<Instant> {
        while let Some(ack) = self.receiver.poll_ack(now) {
            port.send(now, Way::Back, ack.wire_bytes(), Body::TcpAck(Box::new(ack)));
        }
        self.receiver.deadline()
    }

    pub(crate) fn is_over(&self) -> bool {
        self.has_end && self.sender.is_idle()
    }

    pub(crate) fn counters(&self) -> Counters {
        let stats = self.sender.stats();
        Counters {
            fresh_bytes: self.receiver.delivered(),
            sent: stats.sent,
            resent: stats.resent,
            lost: stats.lost,
            ..self.counters
        }
    }

    pub(crate) fn gauges(&self) -> Gauges {
        let gap = if self.is_paced { self.sender.limits().gap.0 } else { Span::ZERO };
        Gauges { gap, rtt: self.sender.rtt(), in_flight: self.sender.in_flight().0 }
    }

    pub(crate) fn check_invariants(&self) {
        self.sender.check_invariants();
        self.receiver.check_invariants();
    }
}
