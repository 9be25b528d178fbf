//! Header-only probes: before the first data, and within a gap longer than a round trip.

#![expect(clippy::unwrap_used, reason = "a test's own numbers")]

use std::num::NonZeroU32;

use sabul_channel::{
    DataPacket, Expiry, Receiver, ReceiverConfig, ReportRule, Sender, SenderConfig, Transmit,
};
use sabul_lab_cc::registry;
use sabul_units::{
    Bytes, CongestionFields, CongestionHeader, Instant, PacketNumber, Polled, Rate, Span,
};
use sabul_wire::{Ack, Echo, Feedback, LossPolicy};

const PACKET: u64 = 1500;

fn at_ms(ms: u64) -> Instant {
    Instant::ZERO + Span::from_millis(ms)
}

fn sender(cc: &str) -> Sender {
    let controller = registry::find(cc).unwrap().build(&[], Bytes(PACKET)).unwrap();
    let config = SenderConfig {
        policy: LossPolicy::Current,
        block_bytes: 100_000,
        window_bytes: 1 << 30,
        payload_bytes: NonZeroU32::new(1408).unwrap(),
        block_limit: 1000,
        first_number: PacketNumber(0),
        reports: ReportRule::of_policy(LossPolicy::Current),
        expiry: Expiry::Adaptive,
    };
    let mut sender = Sender::new(at_ms(0), config, controller).unwrap();
    sender.push_block(100_000);
    sender
}

/// Returns an ACK with a router's rate, echoed from packet `number`, before any other packet has
/// arrived.
fn ack_with_rate(serial: u64, number: u64, packets: u64, rate: Rate) -> Feedback {
    let fields = CongestionFields::Rcp { rtt: Span::ZERO, rate };
    let header = CongestionHeader { routers: 1, queued: Span::ZERO, fields };
    let number = PacketNumber(number);
    Feedback::Ack(Ack {
        serial,
        largest: number,
        packets,
        bytes: packets * 1408,
        block_limit: 1000,
        echo: Some(Echo { number, header, delta_sum: 0 }),
        ..Ack::default()
    })
}

/// Returns the packets, data and probes, that leave until then, with their times.
fn run(sender: &mut Sender, from: Instant, until: Instant) -> Vec<(Instant, Transmit)> {
    let (mut now, mut left) = (from, Vec::new());
    loop {
        sender.check_invariants();
        match sender.poll(now) {
            Polled::Ready(packet) => left.push((now, packet)),
            Polled::Wait { until: next, .. } => match next {
                Some(next) if next <= until => {
                    assert!(next > now, "it waits for the past");
                    now = next;
                }
                _ => return left,
            },
        }
    }
}

fn data(left: &[(Instant, Transmit)]) -> Vec<Instant> {
    let is_data = |packet: &Transmit| matches!(packet, Transmit::Data(DataPacket { .. }));
    left.iter().filter(|(_, packet)| is_data(packet)).map(|(at, _)| *at).collect()
}

fn probes(left: &[(Instant, Transmit)]) -> Vec<Instant> {
    let is_probe = |packet: &Transmit| matches!(packet, Transmit::RateProbe { .. });
    left.iter().filter(|(_, packet)| is_probe(packet)).map(|(at, _)| *at).collect()
}

#[test]
fn the_first_data_is_sent_at_the_rate_assigned_by_a_router() {
    let mut sender = sender("rcp");
    let left = run(&mut sender, at_ms(0), at_ms(39));
    assert_eq!((data(&left), probes(&left)), (vec![], vec![at_ms(0)]));
    // 6 Mb/s is a packet each 2 ms; the initial 1 Mb/s would be a packet each 12 ms.
    sender.handle_feedback(at_ms(40), &ack_with_rate(1, 0, 0, Rate::from_mbps(6))).unwrap();
    assert_eq!(sender.rtt().map(|rtt| rtt.smoothed), Some(Span::from_millis(40)));
    let left = run(&mut sender, at_ms(40), at_ms(45));
    // One millisecond of the wait is caught up, as after any wait that pacing did not cause.
    assert_eq!(data(&left), [at_ms(40), at_ms(41), at_ms(43), at_ms(45)]);
}

#[test]
fn the_first_data_is_sent_without_an_answer_after_a_timeout() {
    for (rtt, leaves) in [(None, 300), (Some(20), 60)] {
        let mut sender = sender("rcp");
        if let Some(rtt) = rtt {
            sender.seed_rtt(Span::from_millis(rtt));
        }
        let left = run(&mut sender, at_ms(0), at_ms(leaves));
        assert_eq!((data(&left), probes(&left)), (vec![at_ms(leaves)], vec![at_ms(0)]));
    }
}

#[test]
fn within_a_gap_longer_than_an_rtt_routers_are_queried_each_rtt() {
    let mut sender = sender("rcp");
    run(&mut sender, at_ms(0), at_ms(39));
    // One packet each 187.5 ms.
    sender.handle_feedback(at_ms(40), &ack_with_rate(1, 0, 0, Rate(64_000))).unwrap();
    let left = run(&mut sender, at_ms(40), at_ms(120));
    assert_eq!(data(&left), [at_ms(40)]);
    let each = Span::from_micros(46_875);
    assert_eq!(probes(&left), [at_ms(40) + each], "a quarter of the gap is longer than the 40 ms");
    // The answer arrives long before the next packet would leave, and brings that packet forward.
    let number = left.iter().find_map(|(_, packet)| match packet {
        Transmit::RateProbe { number } => Some(number.0),
        _ => None,
    });
    let number = number.unwrap();
    sender.handle_feedback(at_ms(127), &ack_with_rate(2, number, 1, Rate::from_mbps(6))).unwrap();
    let left = run(&mut sender, at_ms(127), at_ms(130));
    assert_eq!(data(&left).len(), 1, "at 227 ms without it: {left:?}");
}

#[test]
fn a_flow_without_congestion_headers_sends_no_queries_and_does_not_wait() {
    let mut sender = sender("sabul2026");
    let left = run(&mut sender, at_ms(0), at_ms(5));
    assert_eq!((data(&left)[0], probes(&left).len()), (at_ms(0), 0));
}

#[test]
fn a_receiver_answers_a_query_at_once_with_the_router_fields() {
    let config = ReceiverConfig {
        policy: LossPolicy::Current,
        block_bytes: 100_000,
        block_limit: 1000,
        reports: ReportRule::of_policy(LossPolicy::Current),
    };
    let mut receiver = Receiver::new(config);
    let fields = CongestionFields::Rcp { rtt: Span::ZERO, rate: Rate::from_mbps(6) };
    let header = CongestionHeader { routers: 1, queued: Span::ZERO, fields };
    let number = PacketNumber(0);
    let arrival = sabul_channel::Arrival { number, data: None, is_marked: false };
    receiver.handle_probe(at_ms(20), &arrival, Some(&header));
    let Polled::Ready(Feedback::Ack(ack)) = receiver.poll(at_ms(20)) else { panic!("no ACK") };
    assert_eq!((ack.packets, ack.largest), (0, number));
    assert_eq!(ack.echo, Some(Echo { number, header, delta_sum: 0 }));
    assert!(receiver.is_replayed(number));
}
