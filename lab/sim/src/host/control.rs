//! Control connection of the historical profiles: reports to the sender over TCP. [SABUL §II-B]
//!
//! The bytes travel over a simulated TCP connection in the direction back. Each report waits in a
//! queue until TCP has delivered its last byte.
use std::collections::VecDeque;

use sabul_lab_cc::registry;
use sabul_net::Way;
use sabul_run::scenario::FlowPlan;
use sabul_units::{Bytes, Instant, Polled};
use sabul_wire::Feedback;

use super::port::Port;
use super::tcp::RTO_MIN;
use crate::net::Body;
use crate::tcp::{Segment, TcpAck, TcpConfig, TcpReceiver, TcpSender};

/// A report's length prefix and kind, plus header, type and tag of its TLS record.
const RECORD_BYTES: usize = 6 + 22;
/// [RFC6928 §2]
const INITIAL_WINDOW: u32 = 10;

/// The connection, and reports in flight from the receiving end to the sending end.
#[derive(Debug)]
pub(crate) struct ControlConnection {
    writer: TcpSender,
    reader: TcpReceiver,
    written: u64,
    /// Reports written and not yet read, each with its end offset in the stream.
    reports: VecDeque<(u64, Feedback)>,
}

impl ControlConnection {
    pub(crate) fn new(now: Instant, plan: &FlowPlan) -> Self {
        let config = TcpConfig {
            packet_bytes: plan.packet_bytes,
            initial_window: INITIAL_WINDOW,
            window_packets: None,
            rto_min: RTO_MIN,
            is_ecn_capable: false,
            is_paced: false,
        };
        let controller = registry::find("newreno")
            .expect("newreno is a controller")
            .build(&[], Bytes(plan.packet_bytes.into()))
            .expect("newreno with its defaults");
        Self {
            writer: TcpSender::new(now, config, controller),
            reader: TcpReceiver::new(),
            written: 0,
            reports: VecDeque::new(),
        }
    }

    /// Writes a report of the receiving end; `bytes` is the length of the report without framing.
    pub(crate) fn write(&mut self, report: Feedback, bytes: usize) {
        let bytes = (bytes + RECORD_BYTES) as u64;
        self.writer.write(bytes);
        self.written += bytes;
        self.reports.push_back((self.written, report));
    }

    /// Returns the next report that TCP has delivered completely.
    pub(crate) fn read(&mut self) -> Option<Feedback> {
        let (end, _) = self.reports.front()?;
        if *end > self.reader.delivered() {
            return None;
        }
        self.reports.pop_front().map(|(_, report)| report)
    }

    pub(crate) fn at_reader(&mut self, now: Instant, segment: &Segment) {
        self.reader.accept(now, segment, false);
    }

    pub(crate) fn at_writer(&mut self, now: Instant, ack: &TcpAck) {
        self.writer.handle_ack(now, ack);
    }

    /// Sends segments; returns when to call again.
    pub(crate) fn wake_writer(&mut self, now: Instant, port: &mut Port<'_>) -> Option<Instant> {
        loop {
            match self.writer.poll(now) {
                Polled::Ready(segment) => {
                    port.send(
                        now,
                        Way::Back,
                        segment.wire_bytes(),
                        Body::Segment { stripe: 0, segment },
                    );
                }
                Polled::Wait { until, .. } => return until,
            }
        }
    }

    /// Sends acknowledgements; returns when to call again.
    pub(crate) fn wake_reader(&mut self, now: Instant, port: &mut Port<'_>) -> Option<Instant> {
        loop {
            let ack = match self.reader.poll(now) {
                Polled::Ready(ack) => ack,
                Polled::Wait { until, .. } => return until,
            };
            let size = ack.wire_bytes();
            port.send(now, Way::Forward, size, Body::TcpAck { stripe: 0, ack: Box::new(ack) });
        }
    }

    pub(crate) fn check_invariants(&self) {
        self.writer.check_invariants();
        self.reader.check_invariants();
    }
}
