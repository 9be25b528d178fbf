//! Channel rules of related protocols, each end alone: packets, reports and rejected reports.

#![expect(clippy::unwrap_used, reason = "a test's own numbers")]

use std::num::NonZeroU32;

use sabul_cc::ChannelRules;
use sabul_channel::{
    Admission, Arrival, DataPacket, Expiry, Receiver, ReceiverConfig, ReportRule, Sender,
    SenderConfig, Transmit,
};
use sabul_lab_cc::{registry, rules};
use sabul_units::{Bytes, Instant, PacketNumber, Polled, SeqNo, Span};
use sabul_wire::{Ack, Feedback, LossPolicy, Mark, Missing, Nak, NumberRange};

const BLOCK_BYTES: u32 = 100_000;

/// Returns a sender of pieces of 1000 bytes, 1072 on the wire.
fn sender(cc: &str, params: &[(&str, &str)], pieces: u32) -> Sender {
    let given: Vec<_> =
        params.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    let controller = registry::find(cc).unwrap().build(&given, Bytes(1072)).unwrap();
    let (policy, reports) =
        ReportRule::of_rules(controller.constants().rules, LossPolicy::Current).unwrap();
    let config = SenderConfig {
        policy,
        block_bytes: BLOCK_BYTES,
        window_bytes: 1 << 30,
        payload_bytes: NonZeroU32::new(1000).unwrap(),
        block_limit: u32::MAX,
        first_number: PacketNumber(0),
        reports,
        expiry: Expiry::Adaptive,
    };
    let mut sender = Sender::new(Instant::ZERO, config, controller).unwrap();
    sender.seed_rtt(Span::from_millis(10));
    sender.push_block(pieces * 1000);
    sender
}

fn at_us(us: u64) -> Instant {
    Instant::ZERO + Span::from_micros(us)
}

/// Returns the sequence numbers of everything that leaves now, and the marks after them.
fn leave(sender: &mut Sender, us: u64) -> (Vec<u64>, Vec<Mark>) {
    let (mut seqs, mut marks) = (Vec::new(), Vec::new());
    for _ in 0..1000 {
        match sender.poll(at_us(us)) {
            Polled::Ready(Transmit::Data(DataPacket { seq, .. })) => seqs.push(seq.0),
            Polled::Ready(Transmit::Mark { mark, .. }) => marks.push(mark),
            Polled::Ready(Transmit::Ack2 { .. } | Transmit::RateProbe { .. }) => {}
            Polled::Wait { .. } => return (seqs, marks),
        }
        sender.check_invariants();
    }
    panic!("it sends without end");
}

fn missing(serial: u64, from: u64, below: u64, ranges: &[(u64, u64)]) -> Feedback {
    let ranges = ranges.iter().map(|(first, last)| NumberRange { first: *first, last: *last });
    let (from, below) = (SeqNo(from), SeqNo(below));
    Feedback::Missing(Missing { serial, from, below, ranges: ranges.collect() })
}

#[test]
fn a_round_ends_with_a_mark_that_is_repeated_until_answered() {
    // 8.576 Mb/s of 1072 bytes: one a millisecond.
    let mut sender = sender("rbudp", &[("rate_mbps", "8.576")], 10);
    assert_eq!(leave(&mut sender, 0), (vec![0], vec![]));
    // Three milliseconds late: everything due since the start of the round leaves at once.
    assert_eq!(leave(&mut sender, 5_000).0, [1, 2, 3, 4, 5]);
    let first = Mark { serial: 1, end: SeqNo(10) };
    assert_eq!(leave(&mut sender, 20_000), (vec![6, 7, 8, 9], vec![first]));
    assert_eq!(leave(&mut sender, 21_000), (vec![], vec![]), "it waits");
    let repeated = leave(&mut sender, 200_000);
    assert_eq!(repeated, (vec![], vec![first]), "the mark was lost");
    sender.handle_feedback(at_us(210_000), &missing(1, 0, 10, &[(2, 3), (9, 9)])).unwrap();
    // The next round begins now; the waiting time is not caught up.
    assert_eq!(leave(&mut sender, 210_000), (vec![2], vec![]));
    // The answer to the repeated mark also arrives and has no effect.
    sender.handle_feedback(at_us(211_000), &missing(1, 0, 10, &[(2, 3), (9, 9)])).unwrap();
    let second = Mark { serial: 2, end: SeqNo(10) };
    assert_eq!(leave(&mut sender, 220_000), (vec![3, 9], vec![second]));
    let largest = PacketNumber(14);
    let ack = Ack { serial: 1, seq: SeqNo(10), largest, packets: 10, ..Ack::default() };
    sender.handle_feedback(at_us(230_000), &Feedback::Ack(ack)).unwrap();
    assert!(sender.is_idle());
}

#[test]
fn reports_beyond_the_sent_data_or_of_other_rules_are_refused() {
    let cases = [
        ("sabul2003", missing(0, 0, 1, &[])),
        ("sabul2003", Feedback::ErrorRate(0)),
        ("sabul2003", Feedback::PairTime(Span::from_micros(12))),
        ("udt4", Feedback::PairTime(Span::ZERO)),
        ("rbudp", missing(1, 0, 1_000_000, &[])),
        ("rbudp", missing(1, 0, 5, &[(5, u64::MAX - 1)])),
        ("rbudp", missing(u64::MAX, 0, 1, &[])),
        ("rbudp", Feedback::ErrorRate(0)),
        ("netblt", missing(0, 1 << 60, 1 << 61, &[(1 << 60, 1 << 60)])),
        ("fobs", missing(0, 0, u64::MAX, &[])),
    ];
    for (cc, report) in cases {
        let mut sender = sender(cc, &[], 10);
        leave(&mut sender, 0);
        assert!(sender.handle_feedback(at_us(1), &report).is_err(), "{cc} believed {report:?}");
        sender.check_invariants();
    }
    for cc in ["rbudp", "fobs", "tsunami", "netblt"] {
        let nak = Nak { policy: LossPolicy::Historical, ranges: vec![] };
        let mut sender = sender(cc, &[], 10);
        assert!(sender.handle_feedback(at_us(1), &Feedback::Nak(nak)).is_err(), "{cc}");
    }
}

#[test]
fn packet_pairs_are_sent_back_to_back_and_their_spacing_is_reported() {
    let mut sender = sender("udt4", &[], 40);
    assert_eq!(leave(&mut sender, 0).0, [0, 1], "the others have a gap of 1 us");
    assert!(sender.handle_feedback(at_us(1), &Feedback::PairTime(Span::from_micros(12))).is_ok());
    let mut receiver = receiver(rules::PAIRS);
    arrive(&mut receiver, 0, 0, 0);
    arrive(&mut receiver, 12, 1, 0);
    let is_pair_time = |report: &Feedback| matches!(report, Feedback::PairTime(_));
    assert!(said(&mut receiver, 12).iter().any(is_pair_time));
}

#[test]
fn netblt_sends_bursts_and_requested_packets_first_in_the_next_burst() {
    let params = [("burst_packets", "3"), ("burst_interval_ms", "5")];
    let mut sender = sender("netblt", &params, 12);
    assert_eq!(leave(&mut sender, 0).0, [0, 1, 2]);
    assert_eq!(leave(&mut sender, 4_999).0, [] as [u64; 0]);
    assert_eq!(leave(&mut sender, 5_000).0, [3, 4, 5]);
    sender.handle_feedback(at_us(6_000), &missing(0, 0, 6, &[(1, 1), (4, 4)])).unwrap();
    assert_eq!(leave(&mut sender, 10_000).0, [1, 4, 6]);
}

#[test]
fn fobs_cycles_over_packets_that_have_not_arrived() {
    let mut sender = sender("fobs", &[("rate_mbps", "8.576")], 5);
    let mut sent = Vec::new();
    for ms in 0..7 {
        sent.extend(leave(&mut sender, ms * 1000).0);
    }
    assert_eq!(sent, [0, 1, 2, 3, 4, 0, 1], "it does not wait");
    sender.handle_feedback(at_us(6_500), &missing(0, 0, 5, &[(1, 1), (4, 4)])).unwrap();
    let mut sent = Vec::new();
    for ms in 7..11 {
        sent.extend(leave(&mut sender, ms * 1000).0);
    }
    assert_eq!(sent, [4, 1, 4, 1], "the pass goes on where it was");
}

#[test]
fn a_pass_continues_after_a_piece_that_had_to_be_split() {
    let mut sender = sender("fobs", &[("rate_mbps", "8.576")], 3);
    for ms in 0..3 {
        leave(&mut sender, ms * 1000);
    }
    sender.set_payload_bytes(NonZeroU32::new(400).unwrap());
    let mut sent = Vec::new();
    for ms in 3..14 {
        sent.extend(leave(&mut sender, ms * 1000).0);
    }
    // The fronts of 0, 1 and 2 and the parts cut off them, each once; then the next pass.
    assert_eq!(sent[..11], [0, 3, 4, 1, 5, 6, 2, 7, 8, 3, 4]);
}

fn receiver(rules: ChannelRules) -> Receiver {
    registry::register();
    let (policy, reports) = ReportRule::of_rules(rules, LossPolicy::Current).unwrap();
    let block_limit = u32::MAX;
    Receiver::new(ReceiverConfig { policy, block_bytes: BLOCK_BYTES, block_limit, reports })
}

/// Delivers a packet whose packet number is its sequence number, plus `again`.
fn arrive(receiver: &mut Receiver, us: u64, seq: u64, again: u64) {
    let (number, seq) = (PacketNumber(seq + again), SeqNo(seq));
    let admission = receiver.admit(number, seq, 0, 0, 1000);
    assert!(!matches!(admission, Admission::Refused(_)), "{number:?}: {admission:?}");
    let arrival = Arrival { number, data: Some((seq, 1000)), is_marked: false };
    receiver.accept(at_us(us), &arrival);
    receiver.check_invariants();
}

/// Returns the reports that leave now, except ACKs.
fn said(receiver: &mut Receiver, us: u64) -> Vec<Feedback> {
    let all: Vec<_> = std::iter::from_fn(|| receiver.poll(at_us(us)).ready()).collect();
    receiver.check_invariants();
    all.into_iter().filter(|report| !matches!(report, Feedback::Ack(_))).collect()
}

#[test]
fn a_mark_is_answered_once_the_path_is_quiet_excluding_late_packets() {
    let mut receiver = receiver(rules::ROUNDS);
    for seq in (0..200).filter(|seq| *seq != 50) {
        arrive(&mut receiver, seq * 1000, seq, 0);
    }
    assert_eq!(said(&mut receiver, 200_000), [], "no word before the mark");
    receiver.handle_mark(at_us(200_000), Mark { serial: 3, end: SeqNo(203) });
    assert_eq!(said(&mut receiver, 200_500), []);
    // Overtaken by the mark.
    arrive(&mut receiver, 201_000, 201, 0);
    assert_eq!(said(&mut receiver, 203_000), [], "not quiet yet");
    let due = receiver.poll(at_us(203_000)).until().unwrap();
    assert!(due > at_us(203_000) && due < at_us(212_000), "{due:?}");
    let answer = [missing(3, 50, 203, &[(50, 50), (200, 200), (202, 202)])];
    assert_eq!(said(&mut receiver, 212_000), answer);
    assert_eq!(said(&mut receiver, 300_000), [], "once");
    // The mark was repeated, so the answer is repeated with the present state.
    arrive(&mut receiver, 300_000, 50, 1000);
    receiver.handle_mark(at_us(300_000), Mark { serial: 3, end: SeqNo(203) });
    let answer = [missing(3, 200, 203, &[(200, 200), (202, 202)])];
    assert_eq!(said(&mut receiver, 400_000), answer);
}

#[test]
fn marks_far_beyond_the_received_data_are_ignored() {
    for rules in rules::ALL {
        let mut receiver = receiver(rules);
        arrive(&mut receiver, 0, 0, 0);
        receiver.handle_mark(at_us(1), Mark { serial: 1, end: SeqNo(u64::MAX) });
        receiver.check_invariants();
        assert_eq!(receiver.ack_seq(), SeqNo(1), "{rules:?}");
        // Far but possible: the mark costs one range and little memory.
        receiver.handle_mark(at_us(2), Mark { serial: 2, end: SeqNo(1 << 39) });
        assert!(said(&mut receiver, 10_000_000).len() < 5000, "{rules:?}");
    }
}

#[test]
fn the_error_rate_averages_three_quarters_new_and_one_quarter_old() {
    let mut receiver = receiver(rules::REQUESTS);
    // Numbers 10 to 29 never arrive; a block each 4 ms. The update is checked at the 50th and the
    // 100th block: by then 396 ms have passed, 20 numbers were requested, and then once more.
    let mut reports = Vec::new();
    for (n, seq) in (0..10).chain(30..).take(100).enumerate() {
        let us = n as u64 * 4000;
        arrive(&mut receiver, us, seq, 0);
        reports.extend(said(&mut receiver, us));
    }
    let requested = missing(0, 10, 30, &[(10, 29)]);
    // 0.75 × 50 000 × 40 ÷ (1 + 40 + 100) = 10 638.
    assert_eq!(reports, [requested.clone(), requested, Feedback::ErrorRate(10_638)]);
}

#[test]
fn a_buffer_is_reported_after_its_last_packet_or_a_timeout() {
    let mut receiver = receiver(rules::BUFFERS);
    for seq in (0..64).filter(|seq| *seq != 7) {
        arrive(&mut receiver, seq * 100, seq, 0);
        if seq < 63 {
            assert_eq!(said(&mut receiver, seq * 100), []);
        }
    }
    assert_eq!(said(&mut receiver, 6_300), [missing(0, 0, 64, &[(7, 7)])]);
    arrive(&mut receiver, 7_000, 7, 1000);
    assert_eq!(said(&mut receiver, 7_000), [missing(0, 0, 64, &[])], "all here");
    // The last packet of the next buffer is lost, and nothing follows.
    for seq in 64..127 {
        arrive(&mut receiver, seq * 100, seq, 1000);
    }
    assert_eq!(said(&mut receiver, 12_700), []);
    receiver.handle_mark(at_us(13_000), Mark { serial: 1, end: SeqNo(128) });
    assert_eq!(said(&mut receiver, 13_000), [missing(0, 64, 128, &[(127, 127)])]);
    // The requested packet is lost again: the request repeats after a round trip, assumed to be 100
    // ms.
    let due = receiver.poll(at_us(13_000)).until().unwrap();
    assert!(due > at_us(113_000) && due < at_us(130_000), "{due:?}");
    assert_eq!(said(&mut receiver, 130_000), [missing(0, 64, 128, &[(127, 127)])]);
}
