//! Constant-rate UDP flow without feedback, as cross traffic.
use sabul_net::Way;
use sabul_run::meter::{Counters, Gauges};
use sabul_run::scenario::FlowPlan;
use sabul_units::{Bytes, Instant, Rate, Span};

use super::port::Port;
use crate::net::Body;

/// Bytes of IPv4 and UDP headers.
const HEADERS: u32 = 28;

/// Both ends of a constant-rate flow.
#[derive(Debug)]
pub(crate) struct CbrHost {
    gap: Span,
    packet_bytes: u32,
    next_send: Instant,
    left: Option<u64>,
    counters: Counters,
}

impl CbrHost {
    /// Creates the flow; without a rate no packet ever leaves.
    pub(crate) fn new(
        now: Instant,
        plan: &FlowPlan,
        rate: Option<Rate>,
        bytes: Option<u64>,
    ) -> Self {
        let gap = rate.map_or(Span::MAX, |rate| rate.gap(Bytes(plan.packet_bytes.into())).0);
        Self {
            gap,
            packet_bytes: plan.packet_bytes,
            next_send: now,
            left: bytes,
            counters: Counters::default(),
        }
    }

    pub(crate) fn at_receiver(&mut self, body: &Body) {
        if let Body::Filler(size) = body {
            self.counters.fresh_bytes += u64::from(size - HEADERS);
            self.counters.arrived_bytes += u64::from(*size);
        }
    }

    pub(crate) fn wake_sender(&mut self, now: Instant, port: &mut Port<'_>) -> Option<Instant> {
        while self.next_send <= now {
            let payload = u64::from(self.packet_bytes - HEADERS);
            let payload = payload.min(self.left.unwrap_or(payload));
            if payload == 0 {
                return None;
            }
            if let Some(left) = &mut self.left {
                *left -= payload;
            }
            let size = u32::try_from(payload).unwrap_or(u32::MAX - HEADERS) + HEADERS;
            port.send(now, Way::Forward, size, Body::Filler(size));
            self.counters.sent += 1;
            self.counters.sent_bytes += u64::from(size);
            self.next_send = self.next_send + self.gap;
        }
        Some(self.next_send)
    }

    pub(crate) fn is_over(&self) -> bool {
        // The sender has no feedback about arrivals, so the flow keeps its slot until it is
        // stopped.
        false
    }

    pub(crate) fn counters(&self) -> Counters {
        self.counters
    }

    pub(crate) fn gauges(&self) -> Gauges {
        Gauges { gap: self.gap, ..Gauges::default() }
    }
}
