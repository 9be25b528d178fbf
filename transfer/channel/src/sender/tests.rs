//! Tests of the sender: order of packets, feedback, expiry and rejected reports.

use sabul_lab_cc::registry;
use sabul_units::{CongestionFields, Polled};
use sabul_wire::{Ack, Feedback, Nak, NumberRange};

use super::*;

#[path = "tests/accounting.rs"]
mod accounting;
#[path = "tests/controller.rs"]
mod controller;
#[path = "tests/false_reports.rs"]
mod false_reports;
#[path = "tests/idle.rs"]
mod idle;
#[path = "tests/limiters.rs"]
mod limiters;

const PAYLOAD: u32 = 1000;

fn payload(bytes: u32) -> NonZeroU32 {
    NonZeroU32::new(bytes).expect("a packet has data")
}

fn sender(policy: LossPolicy, params: &[(&str, &str)]) -> Sender {
    sender_under("fixed", policy, params)
}

fn sender_under(name: &str, policy: LossPolicy, params: &[(&str, &str)]) -> Sender {
    let given: Vec<_> = params.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    let controller = registry::find(name).unwrap().build(&given, Bytes(1500)).unwrap();
    let config = SenderConfig {
        policy,
        block_bytes: 10_000,
        window_bytes: 1 << 20,
        payload_bytes: payload(PAYLOAD),
        block_limit: 100,
        first_number: PacketNumber(0),
        reports: ReportRule::of_policy(policy),
        expiry: Expiry::Adaptive,
    };
    Sender::new(Instant::ZERO, config, controller).unwrap()
}

#[test]
fn a_flow_window_below_two_packets_is_an_error_at_the_start() {
    let start = |window_bytes, payload_bytes| {
        let config = SenderConfig {
            window_bytes,
            payload_bytes: payload(payload_bytes),
            ..sender(LossPolicy::Current, &[]).config
        };
        let controller = registry::find("fixed").unwrap().build(&[], Bytes(1500)).unwrap();
        Sender::new(Instant::ZERO, config, controller)
    };
    for payload_bytes in [1, PAYLOAD, 65_535] {
        let least = 2 * u64::from(payload_bytes);
        assert!(start(least, payload_bytes).is_ok(), "{payload_bytes}");
        for window in [least - 1, 0] {
            let error = start(window, payload_bytes).unwrap_err();
            let words =
                format!("flow window: '{window} bytes' is not allowed; use {least} bytes or more");
            assert!(error.to_string().starts_with(&words), "{error}");
        }
    }
    // The path search may find larger packets later.
    let mut sender = start(2000, PAYLOAD).unwrap();
    sender.set_payload_bytes(payload(1500));
    for _ in 0..3 {
        sender.push_block(1500);
    }
    assert_eq!(drain(&mut sender, at_ms(0)).len(), 2);
}

fn at_ms(ms: u64) -> Instant {
    Instant::ZERO + Span::from_millis(ms)
}

/// Returns (packet number, sequence number) of every packet that leaves now.
fn drain(sender: &mut Sender, now: Instant) -> Vec<(u64, u64)> {
    let mut sent = Vec::new();
    loop {
        sender.check_invariants();
        match sender.poll(now) {
            Polled::Ready(Transmit::Data(packet)) => sent.push((packet.number.0, packet.seq.0)),
            Polled::Ready(_) => {}
            Polled::Wait { .. } => return sent,
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
    while let Polled::Ready(Transmit::Data(packet)) = sender.poll(at_ms(0)) {
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
fn skipped_ack_serial_numbers_count_as_lost_acks() {
    let mut sender = sender(LossPolicy::Current, &[]);
    sender.push_block(10_000);
    drain(&mut sender, at_ms(0));
    for (serial, largest, lost) in [(2, 0, 1), (3, 1, 1), (7, 2, 4), (5, 3, 4)] {
        sender.handle_feedback(at_ms(50), &ack(serial, largest + 1, largest)).unwrap();
        assert_eq!(sender.report_state.acks_lost, lost, "ACK {serial}");
    }
}

#[test]
fn retransmissions_precede_new_data_and_have_new_numbers() {
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

/// Returns (sequence number, offset, length, whether the piece ends its block) of every packet that
/// leaves now.
fn ranges(sender: &mut Sender, now: Instant) -> Vec<(u64, u32, u32, bool)> {
    let mut sent = Vec::new();
    loop {
        sender.check_invariants();
        match sender.poll(now) {
            Polled::Ready(Transmit::Data(packet)) => {
                sent.push((packet.seq.0, packet.offset, packet.length, packet.ends_block));
            }
            Polled::Ready(_) => {}
            Polled::Wait { .. } => return sent,
        }
    }
}

#[test]
fn a_lost_piece_that_no_longer_fits_is_split_and_its_rest_renumbered() {
    for policy in [LossPolicy::Current, LossPolicy::Historical] {
        let mut sender = sender(policy, &[]);
        sender.push_block(2000);
        sender.push_block(10_000);
        let first = ranges(&mut sender, at_ms(0));
        assert_eq!(first[..2], [(0, 0, 1000, false), (1, 1000, 1000, true)]);
        sender.set_payload_bytes(payload(400));
        sender.handle_feedback(at_ms(50), &nak(policy, &[(1, 1)])).unwrap();
        let again = [(1, 1000, 400, false), (12, 1400, 400, false), (13, 1800, 200, true)];
        assert_eq!(ranges(&mut sender, at_ms(50)), again, "{policy:?}");
        // The block waits for the last of its pieces, whatever the piece's number is.
        sender.handle_feedback(at_ms(90), &ack(1, 13, 12)).unwrap();
        assert_eq!(sender.released_blocks(), 0);
        sender.handle_feedback(at_ms(91), &ack(2, 14, 13)).unwrap();
        assert!(sender.is_idle(), "{policy:?}");
    }
}

#[test]
fn a_block_is_kept_until_all_parts_split_from_its_pieces_are_sent() {
    let mut sender = sender(LossPolicy::Current, &[("window_packets", "1")]);
    sender.push_block(1000);
    drain(&mut sender, at_ms(0));
    sender.set_payload_bytes(payload(900));
    sender.handle_feedback(at_ms(50), &nak(LossPolicy::Current, &[(0, 0)])).unwrap();
    assert!(
        matches!(sender.poll(at_ms(50)), Polled::Ready(Transmit::Data(packet)) if packet.length == 900)
    );
    // The front is acknowledged; the rest has no number yet.
    sender.handle_feedback(at_ms(60), &ack(1, 1, 1)).unwrap();
    assert!(!sender.is_idle());
    assert_eq!(ranges(&mut sender, at_ms(60)), [(1, 900, 100, true)]);
    sender.handle_feedback(at_ms(70), &ack(2, 2, 2)).unwrap();
    assert!(sender.is_idle());
}

#[test]
fn processing_a_report_costs_only_its_new_entries() {
    let mut sender = sender(LossPolicy::Current, &[]);
    for _ in 0..10 {
        sender.push_block(10_000);
    }
    drain(&mut sender, at_ms(0));
    sender.handle_feedback(at_ms(1), &nak(LossPolicy::Current, &[(10, 19), (30, 98)])).unwrap();
    let all = NumberRange { first: 0, last: u64::MAX - 1 };
    let new: Vec<_> = sender
        .ledger
        .numbers
        .report(all)
        .into_iter()
        .map(|range| (range.first, range.last))
        .collect();
    assert_eq!(new, [(0, 9), (20, 29), (99, 99)]);
    assert_eq!(sender.ledger.numbers.report(all), [], "and once");
    assert_eq!(sender.stats().lost, 79);
}

#[test]
fn historical_reports_name_sequence_numbers_and_count_repeats_separately() {
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
fn pacing_catches_up_1_ms_of_lateness_at_once_and_10_ms_gradually() {
    // 1072 wire bytes; the controller was given 1500: 12 Mb/s is one packet per millisecond.
    let mut sender = sender(LossPolicy::Current, &[("rate_mbps", "12")]);
    sender.push_block(10_000);
    assert_eq!(drain(&mut sender, at_ms(0)).len(), 1);
    assert_eq!(drain(&mut sender, at_ms(0) + Span::from_micros(500)).len(), 0);
    assert_eq!(drain(&mut sender, at_ms(1)).len(), 1);
    assert_eq!(drain(&mut sender, at_ms(5)).len(), 2, "four are due, one burst is allowed");
    let half = Span::from_micros(500);
    assert_eq!(drain(&mut sender, at_ms(5) + half).len(), 1, "twice the pace");
    assert_eq!(drain(&mut sender, at_ms(6)).len(), 1);
    assert_eq!(drain(&mut sender, at_ms(6) + half).len(), 1, "seven by six");
    assert_eq!(drain(&mut sender, at_ms(7)).len(), 1);
    assert_eq!(drain(&mut sender, at_ms(7) + half).len(), 0, "on time again");
}

/// Sets a constant rate with this gap between packets.
fn set_gap(sender: &mut Sender, ms: f64) {
    let bytes = sender.packet_bytes();
    let mbps = if ms > 0.0 { bytes.0 as f64 * 8e-3 / ms } else { 0.0 };
    let given = [("rate_mbps".to_owned(), mbps.to_string())];
    let controller = registry::find("fixed").unwrap().build(&given, bytes).unwrap();
    sender.rate.set_controller(controller);
}

#[test]
fn a_changed_gap_moves_the_next_packet() {
    let mut sender = sender(LossPolicy::Current, &[]);
    set_gap(&mut sender, 100.0);
    sender.push_block(10_000);
    assert_eq!(drain(&mut sender, at_ms(0)).len(), 1);
    // Half of the gap is left, of whatever length.
    set_gap(&mut sender, 10.0);
    assert_eq!(drain(&mut sender, at_ms(50)).len(), 0);
    assert_eq!(drain(&mut sender, at_ms(54)).len(), 0);
    assert_eq!(drain(&mut sender, at_ms(55)).len(), 1);
    set_gap(&mut sender, 100.0);
    assert_eq!(drain(&mut sender, at_ms(60)).len(), 0);
    assert_eq!(drain(&mut sender, at_ms(109)).len(), 0);
    assert_eq!(drain(&mut sender, at_ms(110)).len(), 1);
    // Without a gap there is nothing to wait for.
    set_gap(&mut sender, 0.0);
    assert_eq!(drain(&mut sender, at_ms(111)).len(), 7);
}

#[test]
fn a_constant_rate_is_kept_when_the_packet_size_changes() {
    let mut sender = sender(LossPolicy::Current, &[]);
    set_gap(&mut sender, 1.0);
    let (before, rate) = (sender.packet_bytes(), |it: &Sender| it.limits().rate(it.packet_bytes()));
    sender.push_block(10_000);
    assert_eq!(drain(&mut sender, at_ms(0)).len(), 1);
    let rate_before = rate(&sender);
    sender.set_payload_bytes(payload(2 * PAYLOAD + 72));
    assert_eq!(sender.packet_bytes(), Bytes(2 * before.0));
    assert_eq!(rate(&sender), rate_before, "before the controller hears of it");
    assert_eq!(drain(&mut sender, at_ms(0)).len(), 0, "the next in 2 ms");
    assert_eq!(drain(&mut sender, at_ms(0) + Span::from_micros(1900)).len(), 0);
    assert_eq!(drain(&mut sender, at_ms(2)).len(), 1);
    drain(&mut sender, at_ms(11));
    assert_eq!(rate(&sender), rate_before, "after an interval");
}

#[test]
fn wait_reasons_distinguish_no_data_no_receiver_space_and_full_memory() {
    let why = |sender: &mut Sender, now| {
        drain(sender, now);
        let Polled::Wait { because, .. } = sender.poll(now) else { panic!("it waits") };
        because
    };
    let mut sender = sender(LossPolicy::Current, &[]);
    sender.push_block(10_000);
    assert_eq!(why(&mut sender, at_ms(0)), WaitReason::Application);
    sender.hold_source(true);
    assert_eq!(why(&mut sender, at_ms(1)), WaitReason::Window, "there is more, without a place");
    sender.hold_source(false);
    for _ in 0..100 {
        sender.push_block(1000);
    }
    assert_eq!(why(&mut sender, at_ms(2)), WaitReason::Receiver, "it has room for 100 blocks");
}

#[test]
fn expiry_resends_one_packet_with_growing_intervals() {
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
fn historical_expiry_resends_everything_with_growing_intervals() {
    let mut sender = sender(LossPolicy::Historical, &[]);
    sender.seed_rtt(Span::from_millis(20));
    sender.push_block(3000);
    drain(&mut sender, at_ms(0));
    let mut floods = Vec::new();
    for ms in 1..6000 {
        if drain(&mut sender, at_ms(ms)).len() > 1 {
            floods.push(ms);
        }
    }
    // The expiries are at 70, 210, 490, 990, 1490 …; everything is sent again at the 1st, 2nd, 4th
    // and 8th. The probe of an expiry takes one piece off the list; pacing spreads the rest.
    let sent = sender.stats().sent;
    assert!(floods.len() <= 4, "{floods:?}");
    assert!((3 + 4 * 3..=3 + 4 * 3 + 12).contains(&sent), "{sent}");
}

#[test]
fn the_rate_does_not_rise_without_acks() {
    let start = [("start", "published"), ("rate_mbps_initial", "100"), ("window_packets", "2")];
    let mut sender = sender_under("sabul2003", LossPolicy::Current, &start);
    sender.seed_rtt(Span::from_millis(20));
    sender.push_block(10_000);
    drain(&mut sender, at_ms(0));
    // The window is open, so rate control has begun; then no report arrives.
    sender.handle_feedback(at_ms(20), &ack(1, 1, 0)).unwrap();
    for ms in 20..60 {
        drain(&mut sender, at_ms(ms));
    }
    sender.handle_feedback(at_ms(60), &ack(2, 2, 1)).unwrap();
    let mut gaps = Vec::new();
    for ms in 61..2000 {
        drain(&mut sender, at_ms(ms));
        gaps.push(sender.limits().gap.0);
    }
    let expiry = gaps.windows(2).rposition(|pair| pair[1] < pair[0]).unwrap_or(0);
    assert!(expiry < 200, "the rate last rose {expiry} ms after the last ACK");
    assert!(gaps[1900] > gaps[0], "each expiry after the first slows the sender");
}

#[test]
fn a_lost_tail_is_resent_with_any_round_trip() {
    let mut sender = sender(LossPolicy::Current, &[]);
    sender.seed_rtt(Span::from_millis(400));
    sender.push_block(3000);
    drain(&mut sender, at_ms(0));
    // The peer has the first packet, and answers every request within 400 ms.
    let (mut again, mut answer_at) = (None, Some(400));
    for ms in 1..3000 {
        match sender.poll(at_ms(ms)) {
            Polled::Ready(Transmit::Data(_)) => again = again.or(Some(ms)),
            Polled::Ready(Transmit::Ack2 { serial: 0, .. }) => answer_at = Some(ms + 400),
            Polled::Ready(_) | Polled::Wait { .. } => {}
        }
        if answer_at == Some(ms) {
            sender.handle_feedback(at_ms(ms), &ack(ms, 1, 0)).unwrap();
        }
    }
    // One sample more leaves a deviation of 150 ms: 400 + 4 × 150 + 10 ms after the ACK.
    assert_eq!(again, Some(400 + 1010), "answers without news do not put it off");
}

#[test]
fn a_receiver_without_space_stops_new_blocks_and_is_probed() {
    let mut sender = sender(LossPolicy::Current, &[]);
    sender.window = FlowWindow::new(at_ms(0), Packets(1000), 1);
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
    assert!(matches!(sender.poll(at_ms(20)), Polled::Wait { because: WaitReason::Receiver, .. }));
    let probes = |sender: &mut Sender, ms| {
        matches!(sender.poll(at_ms(ms)), Polled::Ready(Transmit::Ack2 { serial: 0, .. }))
    };
    assert!(probes(&mut sender, 600), "the ACK that makes room may have been lost");
    sender.handle_feedback(at_ms(610), &ack(2, 1, 0)).unwrap();
    assert_eq!(drain(&mut sender, at_ms(610)).len(), 1);
}

#[test]
fn reports_about_packets_never_sent_are_refused() {
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
fn more_packets_or_bytes_than_were_sent_are_refused() {
    let mut sender = sender(LossPolicy::Current, &[]);
    sender.push_block(2500);
    drain(&mut sender, at_ms(0));
    let reported = |packets, bytes| {
        Feedback::Ack(Ack { serial: 1, largest: PacketNumber(2), packets, bytes, ..Ack::default() })
    };
    for (packets, bytes) in [(4, 2500), (3, 2501), (3, u64::MAX)] {
        assert!(sender.handle_feedback(at_ms(1), &reported(packets, bytes)).is_err(), "{bytes}");
    }
    sender.handle_feedback(at_ms(1), &reported(3, 2500)).unwrap();
}

#[test]
fn reported_socket_drops_discount_only_packets_that_may_be_lost() {
    let mut sender = sender(LossPolicy::Current, &[]);
    sender.push_block(10_000);
    drain(&mut sender, at_ms(0));
    // Six have arrived; four may be lost. Then ten more leave.
    let mut lie = Ack { serial: 1, largest: PacketNumber(9), packets: 6, ..Ack::default() };
    lie.overflowed = 1_000_000;
    sender.handle_feedback(at_ms(5), &Feedback::Ack(lie)).unwrap();
    sender.push_block(10_000);
    drain(&mut sender, at_ms(6));
    sender.handle_feedback(at_ms(7), &nak(LossPolicy::Current, &[(3, 6), (12, 18)])).unwrap();
    let stats = sender.stats();
    assert_eq!(stats.lost_at_receiver, 4, "{stats:?}");
    assert!(stats.lost >= 6, "{stats:?}");
}

#[test]
fn socket_drops_at_the_receiver_are_not_congestion() {
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
    sender.rate.set_controller(controller);
    for _ in 0..40 {
        sender.push_block(10_000);
    }
    for number in 0..300 {
        // Ten packets are in flight at a time: one in ten is lost and reported in a NAK of its own.
        let range = PieceRange { block: 0, offset: 0, length: 1, ends_block: false };
        sender.ledger.pieces.push(range, PacketNumber(number));
        sender.ledger.numbers.push(SeqNo(number), at_ms(0));
    }
    let gap = sender.limits().gap;
    for (number, ms) in (0..20).map(|i| (i * 10, 1 + i / 10)) {
        let report = nak(LossPolicy::Current, &[(number, number)]);
        sender.handle_feedback(at_ms(ms), &report).unwrap();
    }
    assert_eq!(sender.stats().lost, 20, "each is counted");
    assert_eq!(sender.limits().gap.0, gap.0.mul_ratio(9, 8), "one decrease, for the first");
}

// The peer reports as in 2002.

/// Creates a sender whose controller assumes 500 Mb/s and 1500-byte packets: a gap of 12 µs.
fn sender_2002(expiry: Expiry, params: &[(&str, &str)]) -> Sender {
    let given: Vec<_> = [("rate_mbps_initial", "500")]
        .iter()
        .chain(params)
        .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
        .collect();
    let controller = registry::find("sabul2002").unwrap().build(&given, Bytes(1500)).unwrap();
    let config = SenderConfig {
        policy: LossPolicy::Historical,
        block_bytes: 1 << 20,
        window_bytes: 1 << 24,
        payload_bytes: payload(1500 - 44 - 28),
        block_limit: 100,
        first_number: PacketNumber(0),
        reports: ReportRule::sabul2002(controller.syn_interval()),
        expiry,
    };
    Sender::new(Instant::ZERO, config, controller).unwrap()
}

/// Sends this many packets, each when it is due; returns when the last left.
fn send(sender: &mut Sender, mut now: Instant, count: usize) -> Instant {
    for _ in 0..count {
        loop {
            match sender.poll(now) {
                Polled::Ready(Transmit::Data(_)) => break,
                Polled::Ready(_) => {}
                Polled::Wait { until, because } => {
                    assert_eq!(because, WaitReason::Pacing);
                    now = until.unwrap();
                }
            }
        }
    }
    now
}

fn syn(sender: &mut Sender, ms: u64, received: u64) {
    sender.handle_feedback(at_ms(ms), &Feedback::Syn { received }).unwrap();
    sender.check_invariants();
}

#[test]
fn rate_control_runs_once_per_syn_report_and_not_on_a_timer() {
    let mut sender = sender_2002(Expiry::Adaptive, &[]);
    sender.push_block(1 << 20);
    let gap = |sender: &Sender| sender.limits().gap.0.saturating_sub(Span::from_micros(12)).0;
    assert_eq!(gap(&sender), 12_000_000);
    send(&mut sender, at_ms(0), 100);
    // An ACK each 100 ms keeps it from expiring; five SYN intervals pass without a report.
    for round in 1..=10_u64 {
        let acknowledge = ack(round, round, round - 1);
        sender.handle_feedback(at_ms(round * 100), &acknowledge).unwrap();
        send(&mut sender, at_ms(round * 100), 10);
    }
    assert_eq!(gap(&sender), 12_000_000);
    syn(&mut sender, 1_000, 150);
    assert_eq!(gap(&sender), 11_880_000, "12 µs × 0.99");
    // Nothing was sent since: a second report at the same moment has nothing to judge.
    syn(&mut sender, 1_000, 0);
    assert_eq!(gap(&sender), 11_880_000);
    send(&mut sender, at_ms(1_000), 10);
    syn(&mut sender, 1_200, 10);
    assert_eq!(gap(&sender), 11_761_200, "12 µs × 0.99 × 0.99");
}

#[test]
fn a_syn_report_covers_packets_and_losses_since_the_previous_report() {
    let gap = |sender: &Sender| sender.limits().gap.0.saturating_sub(Span::from_micros(12)).0;
    let err = nak(LossPolicy::Historical, &[(5, 14)]);
    // 10 of 1000 sent packets are lost, or 20 if both reports of them count:
    // 12 × (1 + 0.1 × (0.01 − 0.001)) + 0.5 and 12 × (1 + 0.1 × (0.02 − 0.001)) + 0.5 µs.
    for (switch, after) in [("off", 12_510_800), ("on", 12_522_800)] {
        let mut sender = sender_2002(Expiry::Adaptive, &[("count_repeats", switch)]);
        for _ in 0..3 {
            sender.push_block(1 << 20);
        }
        let last = send(&mut sender, at_ms(0), 990);
        sender.handle_feedback(last, &err).unwrap();
        send(&mut sender, last, 10);
        sender.handle_feedback(at_ms(190), &err).unwrap();
        syn(&mut sender, 200, 990);
        assert_eq!(sender.stats().repeats, 10);
        assert_eq!(gap(&sender), after, "count_repeats {switch}");
    }
}

#[test]
fn impossible_or_unnegotiated_syn_reports_are_refused() {
    let mut ours = sender(LossPolicy::Historical, &[]);
    ours.push_block(1000);
    drain(&mut ours, at_ms(0));
    assert!(ours.handle_feedback(at_ms(1), &Feedback::Syn { received: 0 }).is_err());
    let mut sender = sender_2002(Expiry::Adaptive, &[]);
    sender.push_block(1 << 20);
    send(&mut sender, at_ms(0), 10);
    syn(&mut sender, 200, 8);
    for received in [3, u64::MAX] {
        assert!(sender.handle_feedback(at_ms(400), &Feedback::Syn { received }).is_err());
    }
    syn(&mut sender, 400, 2);
}

#[test]
fn expiry_allows_for_the_ack_interval_of_2002_and_ignores_syn_reports() {
    let mut sender = sender_2002(Expiry::Adaptive, &[("syn_interval_ms", "10")]);
    sender.seed_rtt(Span::from_millis(1));
    sender.push_block(1 << 20);
    send(&mut sender, at_ms(0), 10);
    sender.handle_feedback(at_ms(0), &ack(1, 1, 0)).unwrap();
    let expired_at = (1..500).find(|ms| {
        if ms % 10 == 0 {
            syn(&mut sender, *ms, 0);
        }
        let _ = sender.poll(at_ms(*ms));
        sender.stats().expiries > 0
    });
    // Samples of 1 ms and 1 µs: smoothed 0.875 ms, deviation 0.625 ms; 0.875 + 4 × 0.625 = 3.4 ms,
    // and 100 ms until the next ACK.
    assert_eq!(expired_at, Some(104));
}

#[test]
fn after_a_second_all_packets_above_the_loss_list_are_added_to_it() {
    let mut sender = sender_2002(Expiry::Everything, &[]);
    sender.push_block(1428 * 10);
    send(&mut sender, at_ms(0), 10);
    let err = nak(LossPolicy::Historical, &[(2, 3)]);
    sender.handle_feedback(at_ms(300), &err).unwrap();
    // Nothing makes the sender send until the expiry, a second after the ERR.
    sender.run_timers(at_ms(1299));
    assert_eq!(sender.ledger.loss_list.count(), 2);
    syn(&mut sender, 1299, 10);
    sender.run_timers(at_ms(1300));
    let listed: Vec<_> =
        sender.ledger.loss_list.iter().map(|range| (range.first, range.last)).collect();
    assert_eq!(listed, [(2, 9)], "0 and 1 lie below what was on the list");
    sender.check_invariants();
    send(&mut sender, at_ms(1300), 8);
    assert!(sender.ledger.loss_list.is_empty());
    sender.run_timers(at_ms(2300));
    assert_eq!(sender.ledger.loss_list.count(), 10, "and all of it after the next second");
    // The adaptive expiry has sent one packet long before, and nothing else.
    let mut adaptive = sender_2002(Expiry::Adaptive, &[]);
    adaptive.push_block(1428 * 10);
    send(&mut adaptive, at_ms(0), 10);
    adaptive.handle_feedback(at_ms(300), &err).unwrap();
    adaptive.run_timers(at_ms(1300));
    assert_eq!((adaptive.ledger.loss_list.count(), adaptive.stats().expiries), (2, 1));
}

/// Returns an ACK that echoes these fields of packet `number`, before any data has arrived.
fn echoing(serial: u64, number: u64, fields: CongestionFields) -> Feedback {
    let Feedback::Ack(mut ack) = ack(serial, 0, 0) else { unreachable!() };
    ack.packets = 0;
    let header = CongestionHeader { routers: 1, ..CongestionHeader::new(fields) };
    let number = PacketNumber(number);
    ack.echo = Some(sabul_wire::Echo { number, header, delta_sum: 0 });
    Feedback::Ack(ack)
}

#[test]
fn router_rates_apply_up_to_the_user_limit_and_headers_count_as_bytes() {
    let reported = |mbps| CongestionFields::Rcp { rtt: Span::ZERO, rate: Rate::from_mbps(mbps) };
    for (limit, expected) in [(None, 40), (Some(Rate::from_mbps(8)), 8)] {
        let mut sender = sender_under("rcp", LossPolicy::Current, &[("rise", "1000000")]);
        assert_eq!(sender.packet_bytes(), Bytes(u64::from(PAYLOAD) + 72 + 20));
        let fields = sender.congestion_header().map(|header| header.fields);
        assert!(matches!(fields, Some(CongestionFields::Rcp { .. })), "{fields:?}");
        sender.limit_rate(limit);
        (0..60).for_each(|_| sender.push_block(10_000));
        let mut sent = drain(&mut sender, at_ms(0)).len();
        assert_eq!(sent, 0, "nothing but a question until routers have said something");
        sender.handle_feedback(at_ms(10), &echoing(1, 0, reported(40))).unwrap();
        let before = sent;
        for us in (10_000..40_000).step_by(100) {
            sent += drain(&mut sender, Instant::ZERO + Span::from_micros(us)).len();
        }
        // 30 ms at that rate: at most two round trips of it leave without an answer.
        let bits = (sent - before) as u64 * 1092 * 8;
        assert!(bits <= expected * 31_000 + 2 * 8736 && bits >= expected * 20_000, "{bits}");
    }
}

#[test]
fn an_echo_of_another_form_is_ignored_and_of_an_unsent_packet_refused() {
    let mut sender = sender_under("rcp", LossPolicy::Current, &[("fallback", "off")]);
    sender.push_block(10_000);
    assert_eq!(drain(&mut sender, at_ms(0)).len(), 0);
    let other = CongestionFields::MaxNet { price: Span::ZERO };
    sender.handle_feedback(at_ms(10), &echoing(1, 0, other)).unwrap();
    assert_eq!(sender.phase().name(), "start");
    let reported = CongestionFields::Rcp { rtt: Span::ZERO, rate: Rate::from_mbps(40) };
    let lie = sender.handle_feedback(at_ms(20), &echoing(2, 1, reported)).unwrap_err();
    assert_eq!(
        lie.to_string(),
        "peer echoed the congestion header of packet 1, but the newest packet sent is 0"
    );
}
