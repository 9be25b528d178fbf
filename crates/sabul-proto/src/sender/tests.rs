use sabul_cc::registry;
use sabul_wire::{Ack, Feedback, Nak, NumberRange};

use super::*;

const PAYLOAD: u32 = 1000;

fn sender(policy: LossPolicy, params: &[(&str, &str)]) -> Sender {
    let given: Vec<_> = params.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    let controller = registry::find("fixed").unwrap().build(&given, Bytes(1500)).unwrap();
    let config = SenderConfig {
        policy,
        block_bytes: 10_000,
        window_bytes: 1 << 20,
        payload_bytes: PAYLOAD,
        block_limit: 100,
        first_number: PacketNumber(0),
    };
    Sender::new(Instant::ZERO, config, controller)
}

fn at_ms(ms: u64) -> Instant {
    Instant::ZERO + Span::from_millis(ms)
}

/// (packet number, sequence number) of everything that goes out now.
fn drain(sender: &mut Sender, now: Instant) -> Vec<(u64, u64)> {
    let mut sent = Vec::new();
    loop {
        sender.check_invariants();
        match sender.poll_transmit(now) {
            Transmit::Data(packet) => sent.push((packet.number.0, packet.seq.0)),
            Transmit::Ack2 { .. } => {}
            Transmit::Wait { .. } => return sent,
        }
    }
}

fn ack(serial: u64, seq: u64, largest: u64) -> Feedback {
    Feedback::Ack(Ack {
        serial,
        seq: SeqNo(seq),
        largest: PacketNumber(largest),
        packets: largest + 1,
        block_limit: 100,
        ..Ack::default()
    })
}

fn nak(policy: LossPolicy, ranges: &[(u64, u64)]) -> Feedback {
    let ranges = ranges.iter().map(|(first, last)| NumberRange { first: *first, last: *last });
    Feedback::Nak(Nak { policy, ranges: ranges.collect() })
}

#[test]
fn a_block_is_cut_into_pieces_and_released_when_acknowledged() {
    let mut sender = sender(LossPolicy::Current, &[]);
    sender.push_block(2500);
    let mut packets = Vec::new();
    while let Transmit::Data(packet) = sender.poll_transmit(at_ms(0)) {
        packets.push((packet.offset, packet.length, packet.ends_block));
    }
    assert_eq!(packets, [(0, 1000, false), (1000, 1000, false), (2000, 500, true)]);
    sender.handle_feedback(at_ms(50), &ack(1, 2, 1)).unwrap();
    assert_eq!(sender.released_blocks(), 0);
    sender.handle_feedback(at_ms(60), &ack(2, 3, 2)).unwrap();
    assert_eq!(sender.released_blocks(), 1);
    assert!(sender.is_idle());
}

#[test]
fn retransmissions_go_before_new_data_and_have_new_numbers() {
    let mut sender = sender(LossPolicy::Current, &[("window_packets", "5")]);
    sender.push_block(10_000);
    assert_eq!(drain(&mut sender, at_ms(0)), [(0, 0), (1, 1), (2, 2), (3, 3), (4, 4)]);
    sender.handle_feedback(at_ms(50), &nak(LossPolicy::Current, &[(1, 2)])).unwrap();
    sender.handle_feedback(at_ms(50), &ack(1, 1, 3)).unwrap();
    // The ACK takes number 5 for its confirmation; then 1 and 2 again, then new data: 4, 6, 7, 8 and 9 fly.
    assert_eq!(drain(&mut sender, at_ms(50)), [(6, 1), (7, 2), (8, 5), (9, 6)]);
}

#[test]
fn a_transmission_is_lost_at_most_once_and_a_lost_retransmission_at_once() {
    let mut sender = sender(LossPolicy::Current, &[]);
    sender.push_block(3000);
    drain(&mut sender, at_ms(0));
    for _ in 0..3 {
        sender.handle_feedback(at_ms(50), &nak(LossPolicy::Current, &[(1, 1)])).unwrap();
    }
    assert_eq!(sender.stats().lost, 1, "the same report again is no new loss");
    assert_eq!(drain(&mut sender, at_ms(50)), [(3, 1)]);
    sender.handle_feedback(at_ms(99), &nak(LossPolicy::Current, &[(3, 3)])).unwrap();
    assert_eq!(drain(&mut sender, at_ms(99)), [(4, 1)]);
    assert_eq!(sender.stats().lost, 2);
}

#[test]
fn historical_reports_name_sequence_numbers_and_count_repeats_apart() {
    let mut sender = sender(LossPolicy::Historical, &[]);
    sender.push_block(5000);
    drain(&mut sender, at_ms(0));
    sender.handle_feedback(at_ms(50), &nak(LossPolicy::Historical, &[(1, 1), (3, 3)])).unwrap();
    assert_eq!(drain(&mut sender, at_ms(50)), [(5, 1), (6, 3)]);
    sender.handle_feedback(at_ms(250), &nak(LossPolicy::Historical, &[(3, 3)])).unwrap();
    assert_eq!(drain(&mut sender, at_ms(250)).len(), 1);
    assert_eq!(sender.stats().lost, 2, "a repeat is sent again but is no new loss");
}

#[test]
fn the_gap_spaces_packets_and_lateness_is_made_good_up_to_a_millisecond() {
    // 1072 wire bytes … the controller was told 1500: 12 Mb/s is one per millisecond.
    let mut sender = sender(LossPolicy::Current, &[("rate_mbps", "12")]);
    sender.push_block(10_000);
    assert_eq!(drain(&mut sender, at_ms(0)).len(), 1);
    assert_eq!(drain(&mut sender, at_ms(0) + Span::from_micros(500)).len(), 0);
    assert_eq!(drain(&mut sender, at_ms(1)).len(), 1);
    assert_eq!(drain(&mut sender, at_ms(5)).len(), 2, "four are due, one burst is allowed");
}

#[test]
fn silence_brings_one_packet_again_then_ever_more_rarely() {
    let mut sender = sender(LossPolicy::Current, &[]);
    sender.seed_rtt(Span::from_millis(20));
    sender.push_block(3000);
    drain(&mut sender, at_ms(0));
    // 20 + 4 × 10 + 10 ms = 70 ms, then doubled each time, at most 500 ms.
    let mut tries = Vec::new();
    for ms in 1..2000 {
        for (_, seq) in drain(&mut sender, at_ms(ms)) {
            assert_eq!(seq, 0, "the first unacknowledged");
            tries.push(ms);
        }
    }
    assert_eq!(tries, [70, 210, 490, 990, 1490, 1990]);
}

#[test]
fn a_receiver_without_room_stops_new_blocks_and_is_asked_again() {
    let mut sender = sender(LossPolicy::Current, &[]);
    sender.window = FlowWindow::new(Packets(1000), 1);
    sender.push_block(1000);
    sender.push_block(1000);
    assert_eq!(drain(&mut sender, at_ms(0)), [(0, 0)]);
    let full = Feedback::Ack(Ack {
        serial: 1,
        seq: SeqNo(1),
        packets: 1,
        block_limit: 1,
        ..Ack::default()
    });
    sender.handle_feedback(at_ms(10), &full).unwrap();
    assert_eq!(drain(&mut sender, at_ms(10)), []);
    assert!(matches!(
        sender.poll_transmit(at_ms(20)),
        Transmit::Wait { why: WaitReason::Receiver, .. }
    ));
    let asks = |sender: &mut Sender, ms| {
        matches!(sender.poll_transmit(at_ms(ms)), Transmit::Ack2 { serial: 0, .. })
    };
    assert!(asks(&mut sender, 600), "the ACK that makes room may have been lost");
    sender.handle_feedback(at_ms(610), &ack(2, 1, 0)).unwrap();
    assert_eq!(drain(&mut sender, at_ms(610)).len(), 1);
}

#[test]
fn reports_of_what_was_never_sent_are_refused() {
    let mut sender = sender(LossPolicy::Current, &[]);
    sender.push_block(3000);
    drain(&mut sender, at_ms(0));
    for bad in [
        ack(1, 4, 2),
        ack(1, 3, 3),
        nak(LossPolicy::Current, &[(0, 3)]),
        nak(LossPolicy::Historical, &[(0, 1)]),
    ] {
        assert!(sender.handle_feedback(at_ms(1), &bad).is_err(), "{bad:?}");
    }
    sender.check_invariants();
    assert_eq!(sender.stats().lost, 0);
}

#[test]
fn drops_of_the_receivers_socket_are_no_congestion() {
    let mut sender = sender(LossPolicy::Current, &[]);
    sender.push_block(10_000);
    drain(&mut sender, at_ms(0));
    let mut overflow = Ack { serial: 1, largest: PacketNumber(9), packets: 6, ..Ack::default() };
    overflow.overflowed = 4;
    sender.handle_feedback(at_ms(5), &Feedback::Ack(overflow)).unwrap();
    sender.handle_feedback(at_ms(5), &nak(LossPolicy::Current, &[(3, 6)])).unwrap();
    assert_eq!((sender.stats().lost, sender.stats().lost_at_receiver), (0, 4));
    assert!(drain(&mut sender, at_ms(5)).len() >= 4, "they are sent again all the same");
}

#[test]
fn a_burst_of_naks_is_one_loss_event_a_syn_interval_in_the_current_policy() {
    let given = [("start".to_owned(), "published".to_owned())];
    let controller = registry::find("sabul2003").unwrap().build(&given, Bytes(1500)).unwrap();
    let mut sender = sender(LossPolicy::Current, &[]);
    sender.controller = controller;
    sender.refresh_limits();
    for _ in 0..40 {
        sender.push_block(10_000);
    }
    for number in 0..300 {
        // Ten packets fly at a time: one in ten is lost and reported in a NAK of its own.
        sender.pieces.push(0, 0, 1, false, PacketNumber(number));
        sender.numbers.push(SeqNo(number), at_ms(0));
    }
    let gap = sender.limits().gap;
    for (number, ms) in (0..20).map(|i| (i * 10, 1 + i / 10)) {
        let report = nak(LossPolicy::Current, &[(number, number)]);
        sender.handle_feedback(at_ms(ms), &report).unwrap();
    }
    assert_eq!(sender.stats().lost, 20, "each is counted");
    assert_eq!(sender.limits().gap.0, gap.0.mul_ratio(9, 8), "one decrease, for the first");
}
