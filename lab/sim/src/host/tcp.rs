//! Both ends of a TCP flow: one connection, or several parallel connections that carry one stream.
//!
//! Parallel connections follow [PSockets] and GridFTP: each has its own controller, the controllers
//! are not coupled, and blocks of the stream are distributed among the connections. A flow is over
//! when its last connection is.
use sabul_cc::{Fault, Guarded};
use sabul_lab_cc::registry::{self, Family};
use sabul_net::Way;
use sabul_run::meter::{Counters, Gauges};
use sabul_run::scenario::{FlowPlan, Striping, TcpEnds};
use sabul_units::{Instant, Polled, Span};

use super::port::Port;
use crate::net::{Body, HeadedSegment};
use crate::tcp::{Segment, TcpConfig, TcpEchoes, TcpReceiver, TcpSender};

/// Linux's minimum; [RFC6298 §2] requires one second.
pub(super) const RTO_MIN: Span = Span::from_millis(200);
/// [RFC7323 §2.3] The largest window that TCP can announce, in bytes. Limits a controller without a
/// limit of its own.
const WINDOW_BYTES_MAX: u64 = 1 << 30;
/// Bytes of an endless flow: more than any run can send.
const ENDLESS: u64 = 1 << 60;
/// Ours: block size for the distribution; [PSockets] does not specify one.
const BLOCK_BYTES: u64 = 64 << 10;

/// Both ends of a TCP flow.
#[derive(Debug)]
pub(crate) struct TcpHost {
    stripes: Vec<Stripe>,
    /// Bytes not yet assigned to a connection.
    left: u64,
    counters: Counters,
    has_end: bool,
    is_paced: bool,
}

/// One connection.
#[derive(Debug)]
struct Stripe {
    sender: TcpSender,
    receiver: TcpReceiver,
    /// Congestion headers to echo.
    echoes: TcpEchoes,
}

impl TcpHost {
    /// Creates a flow with a connection for each controller.
    pub(crate) fn new(
        now: Instant,
        plan: &FlowPlan,
        ends: TcpEnds,
        bytes: Option<u64>,
        controllers: Vec<Guarded>,
    ) -> Self {
        let most = WINDOW_BYTES_MAX / u64::from(plan.packet_bytes);
        let config = TcpConfig {
            packet_bytes: plan.packet_bytes,
            initial_window: ends.initial_window,
            window_packets: Some(plan.window_packets.unwrap_or(most)),
            rto_min: RTO_MIN,
            is_ecn_capable: ends.is_ecn_capable,
            // Window controllers keep TCP's bursts, except controllers with explicit windows. [ECC]
            is_paced: registry::find(&plan.cc)
                .is_ok_and(|entry| entry.family == Family::PacedWindow)
                || controllers.iter().any(|controller| controller.header().is_some()),
        };
        let stripe = |controller: Guarded| Stripe {
            receiver: if controller.constants().needs_accurate_ecn {
                TcpReceiver::with_accurate_ecn()
            } else {
                TcpReceiver::new()
            },
            sender: TcpSender::new(now, config, controller),
            echoes: TcpEchoes::default(),
        };
        let mut host = Self {
            stripes: controllers.into_iter().map(stripe).collect(),
            left: 0,
            counters: Counters::default(),
            has_end: bytes.is_some(),
            is_paced: config.is_paced,
        };
        host.deal(bytes, ends.striping);
        host
    }

    /// Assigns each connection its share, or leaves all bytes for assignment on demand.
    fn deal(&mut self, bytes: Option<u64>, striping: Striping) {
        let count = self.stripes.len() as u64;
        match (bytes, striping) {
            (None, _) => self.stripes.iter_mut().for_each(|one| one.sender.write(ENDLESS)),
            (Some(bytes), _) if count == 1 => self.stripes[0].sender.write(bytes),
            (Some(bytes), Striping::RoundRobin) => {
                for (index, stripe) in self.stripes.iter_mut().enumerate() {
                    stripe.sender.write(share(bytes, count, index as u64));
                }
            }
            (Some(bytes), Striping::OnDemand) => self.left = bytes,
        }
    }

    pub(crate) fn at_receiver(&mut self, now: Instant, body: &Body, is_marked: bool) {
        match body {
            Body::Segment { stripe, segment } => self.accept(now, *stripe, segment, is_marked),
            Body::Headed(packet) => {
                let HeadedSegment { stripe, segment, header } = &**packet;
                self.accept(now, *stripe, segment, is_marked);
                let one = &mut self.stripes[usize::from(*stripe)];
                self.counters.arrived_bytes += u64::from(one.sender.congestion_bytes());
                one.echoes.note(segment.sent_at, header);
            }
            _ => {}
        }
    }

    fn accept(&mut self, now: Instant, stripe: u16, segment: &Segment, is_marked: bool) {
        self.counters.arrived_bytes += u64::from(segment.wire_bytes());
        self.stripes[usize::from(stripe)].receiver.accept(now, segment, is_marked);
    }

    pub(crate) fn at_sender(&mut self, now: Instant, body: &Body) {
        match body {
            Body::TcpAck { stripe, ack } => {
                self.stripes[usize::from(*stripe)].sender.handle_ack(now, ack);
            }
            Body::TcpEcho { stripe, ack } => {
                let (ack, echo) = &**ack;
                self.stripes[usize::from(*stripe)].sender.handle_echo(now, ack, Some(*echo));
            }
            _ => {}
        }
    }

    pub(crate) fn wake_sender(&mut self, now: Instant, port: &mut Port<'_>) -> Option<Instant> {
        let mut next = None;
        for (number, one) in (0..).zip(&mut self.stripes) {
            let until = loop {
                if self.left > 0 && one.sender.unsent() < BLOCK_BYTES {
                    let block = self.left.min(BLOCK_BYTES);
                    self.left -= block;
                    one.sender.write(block);
                }
                match one.sender.poll(now) {
                    Polled::Ready(segment) => {
                        let size = segment.wire_bytes() + one.sender.congestion_bytes();
                        self.counters.sent_bytes += u64::from(size);
                        let body = match one.sender.congestion_header() {
                            None => Body::Segment { stripe: number, segment },
                            Some(header) => Body::Headed(Box::new(HeadedSegment {
                                stripe: number,
                                segment,
                                header,
                            })),
                        };
                        port.send(now, Way::Forward, size, body);
                    }
                    Polled::Wait { until, .. } => break until,
                }
            };
            next = Instant::earliest([next, until]);
        }
        next
    }

    pub(crate) fn wake_receiver(&mut self, now: Instant, port: &mut Port<'_>) -> Option<Instant> {
        let mut next = None;
        for (stripe, one) in (0..).zip(&mut self.stripes) {
            let until = loop {
                let ack = match one.receiver.poll(now) {
                    Polled::Ready(ack) => ack,
                    Polled::Wait { until, .. } => break until,
                };
                let size = ack.wire_bytes();
                let (size, body) = match one.echoes.newest() {
                    None => (size, Body::TcpAck { stripe, ack: Box::new(ack) }),
                    Some(echo) => {
                        let size = size + one.sender.congestion_bytes();
                        (size, Body::TcpEcho { stripe, ack: Box::new((ack, echo)) })
                    }
                };
                port.send(now, Way::Back, size, body);
            };
            next = Instant::earliest([next, until]);
        }
        next
    }

    pub(crate) fn listen(&mut self) {
        self.stripes.iter_mut().for_each(|one| one.sender.listen());
    }

    pub(crate) fn drain_events(&mut self, of: &str, lines: &mut Vec<String>) {
        for one in &mut self.stripes {
            let events = std::iter::from_fn(|| one.sender.next_event());
            lines.extend(events.map(|event| event.to_json(of)));
        }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.has_end && self.left == 0 && self.stripes.iter().all(|one| one.sender.is_idle())
    }

    pub(crate) fn counters(&self) -> Counters {
        let mut counters = self.counters;
        for one in &self.stripes {
            let stats = one.sender.stats();
            counters.fresh_bytes += one.receiver.delivered();
            counters.sent += stats.sent;
            counters.resent += stats.resent;
            counters.lost += stats.lost;
        }
        counters
    }

    /// For several connections: the sum in flight, and the first connection's gap and RTT.
    pub(crate) fn gauges(&self) -> Gauges {
        let first = &self.stripes[0].sender;
        let gap = if self.is_paced { first.limits().gap.0 } else { Span::ZERO };
        let in_flight = self.stripes.iter().map(|one| one.sender.in_flight().0).sum();
        let windows = self.stripes.iter().map(|one| one.sender.limits().window);
        let window = windows.map(|window| window.map(|window| window.0)).sum();
        Gauges { gap, rtt: first.rtt(), in_flight, window, delivery: None }
    }

    pub(crate) fn fault(&self) -> Option<String> {
        self.stripes.iter().find_map(|one| one.sender.fault()).map(Fault::to_string)
    }

    pub(crate) fn check_invariants(&self) {
        for one in &self.stripes {
            one.sender.check_invariants();
            one.receiver.check_invariants();
        }
    }
}

/// Returns one connection's bytes of a stream whose blocks are distributed round-robin among
/// `count`.
fn share(bytes: u64, count: u64, index: u64) -> u64 {
    let round = BLOCK_BYTES * count;
    let last = (bytes % round).saturating_sub(index * BLOCK_BYTES).min(BLOCK_BYTES);
    bytes / round * BLOCK_BYTES + last
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_assigned_to_connections_in_turn() {
        let shares = |bytes, count| -> Vec<u64> {
            (0..count).map(|index| share(bytes, count, index)).collect()
        };
        assert_eq!(shares(10, 2), [10, 0]);
        assert_eq!(shares(65_536 * 3 + 5, 2), [131_072, 65_541]);
        assert_eq!(shares(65_536 * 4, 4), [65_536; 4]);
        for bytes in [1, 65_535, 1_000_003, 50_000_000] {
            assert_eq!(shares(bytes, 7).iter().sum::<u64>(), bytes);
        }
    }
}
