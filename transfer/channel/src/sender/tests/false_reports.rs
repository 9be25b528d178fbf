//! Reports that cannot be true.

use sabul_wire::MAX_RANGES;

use super::super::feedback::{NUMBERS_KEPT_BASE, NUMBERS_KEPT_MAX, NUMBERS_OF_PIECE};
use super::super::skips::Skips;
use super::*;

/// Runs a sender that skips numbers, paced at one packet a millisecond. At each tenth packet, `report`
/// returns the peer's report on everything sent so far. Returns the time of detection, if any.
fn detected_at(mut report: impl FnMut(&Sender, u64, &[u64]) -> Feedback) -> Option<u64> {
    let mut sender = sender(LossPolicy::Current, &[("rate_mbps", "12")]);
    sender.skip_numbers(Box::new(sabul_units::SeededRandom::new(3)));
    let (mut numbers, mut pushed) = (Vec::new(), 0);
    for ms in 0..10_000 {
        while pushed < sender.released_blocks() + 4 {
            sender.push_block(10_000);
            pushed += 1;
        }
        numbers.extend(drain(&mut sender, at_ms(ms)).into_iter().map(|(number, _)| number));
        if ms % 10 == 9 {
            let report = report(&sender, ms / 10 + 1, &numbers);
            if let Err(error) = sender.handle_feedback(at_ms(ms), &report) {
                assert!(matches!(error, PeerError::SkippedNumberNotListed(_)), "{error}");
                return Some(ms);
            }
        }
    }
    assert_eq!(sender.stats().lost, 0, "what was left out is not lost");
    None
}

/// Returns an ACK of everything sent, with this list of missing numbers.
fn all(sender: &Sender, serial: u64, numbers: &[u64], missing: Vec<NumberRange>) -> Feedback {
    Feedback::Ack(Ack {
        serial,
        seq: sender.ledger.pieces.next(),
        largest: PacketNumber(*numbers.last().unwrap()),
        packets: sender.stats().sent,
        block_limit: 100_000,
        missing,
        ..Ack::default()
    })
}

/// Returns the numbers without data: skipped numbers, and those of ACK2s.
fn gaps(numbers: &[u64]) -> Vec<NumberRange> {
    let gaps = numbers.windows(2).filter(|pair| pair[1] > pair[0] + 1);
    gaps.map(|pair| NumberRange { first: pair[0] + 1, last: pair[1] - 1 }).collect()
}

#[test]
fn a_peer_that_acknowledges_unsent_numbers_is_detected() {
    let detected = detected_at(|sender, serial, numbers| all(sender, serial, numbers, Vec::new()));
    // The first is among the first 512, and the second among the next 512; each counts half a second later.
    assert!((1500..2600).contains(&detected.expect("the peer is detected")), "{detected:?}");
    // The same peer, but it lists the skipped numbers, as an honest peer does.
    let of_honest_peer = detected_at(|sender, serial, numbers| {
        let missing = gaps(numbers);
        let from = missing.len().saturating_sub(MAX_RANGES - 1);
        all(sender, serial, numbers, missing[from..].to_vec())
    });
    assert_eq!(of_honest_peer, None);
}

#[test]
fn full_lists_of_long_settled_numbers_do_not_hide_a_false_ack() {
    let detected = detected_at(|sender, serial, numbers| {
        let missing = if *numbers.last().unwrap() > 4 * MAX_RANGES as u64 {
            (0..MAX_RANGES as u64).map(|n| NumberRange { first: 2 * n, last: 2 * n }).collect()
        } else {
            gaps(numbers)
        };
        all(sender, serial, numbers, missing)
    });
    assert!((800..3000).contains(&detected.expect("the peer is detected")), "{detected:?}");
}

/// Returns how many full lists without the watched number pass if the peer has named `named`
/// numbers before.
fn full_lists_that_pass(named_at: PacketNumber, named: u64) -> u64 {
    lists_that_pass(named_at, named, MAX_RANGES as u64)
}

/// Returns the same for lists of this many ranges.
fn lists_that_pass(named_at: PacketNumber, named: u64, ranges: u64) -> u64 {
    let mut skips = Skips::none();
    skips.start(named_at, Box::new(sabul_units::SeededRandom::new(3)));
    let list: Vec<_> = (0..ranges).map(|n| NumberRange { first: n, last: n }).collect();
    let mut next = named_at;
    let number = loop {
        let is_left_out = skips.take(at_ms(0), next);
        next = next.next();
        if is_left_out {
            break PacketNumber(next.0 - 1);
        }
    };
    let ack = |largest| Ack { largest, packets: 1, missing: list.clone(), ..Ack::default() };
    // Named at another time than the first ACK.
    skips.note_ack(at_ms(0), &ack(number), named_at, named);
    skips.note_ack(at_ms(0), &ack(next), next, named);
    assert!(!skips.take(at_ms(600), next), "from here on the number is due");
    (0..10_000)
        .find(|_| {
            assert_eq!(skips.check(&ack(next)), Ok(()), "one number is no proof");
            skips.note_ack(at_ms(610), &ack(next), next.next(), named);
            skips.suspicions() > 0
        })
        .expect("the peer is detected")
}

#[test]
fn a_peer_is_suspect_after_three_complete_lists_without_the_skipped_number() {
    for ranges in [0, 1, MAX_RANGES as u64 - 1] {
        assert_eq!(lists_that_pass(PacketNumber(5 << 20), 0, ranges), 3);
    }
}

#[test]
fn a_skipped_number_that_is_listed_clears_the_suspicion_of_the_number_before() {
    let mut skips = Skips::none();
    skips.start(PacketNumber(0), Box::new(sabul_units::SeededRandom::new(3)));
    let mut next = PacketNumber(0);
    let ack = |largest, missing| Ack { largest, packets: 1, missing, ..Ack::default() };
    for (is_listed, suspicions) in [(false, 1), (true, 0), (false, 1)] {
        while !skips.take(at_ms(0), next) {
            next = next.next();
        }
        let skipped = next;
        next = next.next();
        skips.note_ack(at_ms(0), &ack(next, Vec::new()), next, 0);
        assert!(!skips.take(at_ms(600), next));
        let range = NumberRange { first: skipped.0, last: skipped.0 };
        for _ in 0..4 {
            let ack = ack(next, if is_listed { vec![range] } else { Vec::new() });
            assert_eq!(skips.check(&ack), Ok(()));
            skips.note_ack(at_ms(610), &ack, next.next(), 0);
        }
        assert_eq!(skips.suspicions(), suspicions);
    }
}

#[test]
fn a_peer_may_send_enough_full_lists_to_name_all_missing_numbers() {
    let far = PacketNumber(5 << 20);
    assert_eq!(full_lists_that_pass(PacketNumber(0), 0), 16);
    assert_eq!(full_lists_that_pass(PacketNumber(0), 1000), 16 * 6);
    assert_eq!(full_lists_that_pass(far, 1000), 16 * 6);
}

#[test]
fn a_later_full_list_that_names_the_skipped_number_clears_suspicion() {
    let mut serials = 0..;
    let of_honest_peer = detected_at(|sender, serial, numbers| {
        let missing = gaps(numbers);
        let round = missing.len().div_ceil(MAX_RANGES).max(1);
        let turn = serials.next().unwrap_or(0) % round;
        let from = (turn * MAX_RANGES).min(missing.len().saturating_sub(MAX_RANGES));
        all(sender, serial, numbers, missing.into_iter().skip(from).take(MAX_RANGES).collect())
    });
    assert_eq!(of_honest_peer, None);
}

#[test]
fn an_ack_of_a_skipped_number_is_refused() {
    let mut sender = sender(LossPolicy::Current, &[]);
    sender.skip_numbers(Box::new(sabul_units::SeededRandom::new(3)));
    for _ in 0..60 {
        sender.push_block(10_000);
    }
    let numbers: Vec<_> =
        drain(&mut sender, at_ms(0)).into_iter().map(|(number, _)| number).collect();
    let pair = numbers.windows(2).find(|pair| pair[1] > pair[0] + 1).expect("one was left out");
    let error = sender.handle_feedback(at_ms(1), &ack(1, 1, pair[0] + 1)).unwrap_err();
    assert_eq!(error, PeerError::AckOfSkippedNumber(PacketNumber(pair[0] + 1)));
    sender.handle_feedback(at_ms(1), &ack(1, 1, pair[0])).unwrap();
}

/// Returns a sender that has sent ten packets, none acknowledged.
fn sender_of_ten() -> Sender {
    let mut sender = sender(LossPolicy::Current, &[]);
    sender.push_block(10_000);
    assert_eq!(drain(&mut sender, at_ms(0)).len(), 10);
    sender
}

#[test]
fn an_impossible_ack_ends_the_channel_and_changes_nothing() {
    type Change = fn(&mut Ack);
    let cases: [(&str, Change); 8] = [
        ("largest", |ack| ack.largest = PacketNumber(10)),
        ("seq", |ack| ack.seq = SeqNo(11)),
        ("missing", |ack| ack.missing = vec![NumberRange { first: 9, last: 10 }]),
        ("packets", |ack| ack.packets = 11),
        ("packets up to the largest", |ack| ack.largest = PacketNumber(4)),
        ("bytes", |ack| ack.bytes = 10_001),
        ("marked", |ack| ack.marked = 7),
        ("marked, with few packets", |ack| (ack.packets, ack.marked) = (1, 2)),
    ];
    let of_honest_peer =
        || Ack { serial: 1, largest: PacketNumber(9), packets: 6, ..Ack::default() };
    for (what, change) in cases {
        let mut sender = sender_of_ten();
        let mut ack = of_honest_peer();
        change(&mut ack);
        assert!(sender.handle_feedback(at_ms(5), &Feedback::Ack(ack)).is_err(), "{what}");
        assert_eq!((sender.stats().arrived, sender.stats().lost), (0, 0), "{what}");
        sender.handle_feedback(at_ms(5), &Feedback::Ack(of_honest_peer())).unwrap();
        assert_eq!(sender.stats().arrived, 6, "{what}");
    }
}

#[test]
fn an_ack_overtaken_by_a_newer_ack_changes_nothing() {
    let mut sender = sender_of_ten();
    sender.handle_feedback(at_ms(5), &ack(2, 3, 2)).unwrap();
    for serial in [1, 2] {
        let Feedback::Ack(mut late) = ack(serial, 5, 6) else { unreachable!() };
        late.missing = vec![NumberRange { first: 4, last: 5 }];
        sender.handle_feedback(at_ms(6), &Feedback::Ack(late)).unwrap();
    }
    assert_eq!((sender.stats().arrived, sender.stats().lost), (3, 0));
    assert_eq!(sender.ledger.pieces.first(), SeqNo(3));
    sender.handle_feedback(at_ms(7), &ack(3, 5, 6)).unwrap();
    assert_eq!(sender.stats().arrived, 7);
}

#[test]
fn a_peer_that_never_acknowledges_the_oldest_packet_ends_the_channel_at_a_bound() {
    let limit = NUMBERS_KEPT_BASE + 10 * NUMBERS_OF_PIECE;
    let mut sender = sender_of_ten();
    while sender.ledger.numbers.len() <= limit {
        sender.take_number().unwrap();
    }
    assert_eq!(
        sender.take_number(),
        Err(PeerError::NeverAcknowledged { packets: limit + 1, limit }),
        "no datagram of any kind adds to the table"
    );
    let report = nak(LossPolicy::Current, &[(1, 1)]);
    assert!(sender.handle_feedback(at_ms(5), &report).is_err());
}

#[test]
fn no_data_leaves_while_half_of_the_numbers_wait_for_a_report() {
    let mut sender = sender_of_ten();
    let limit = NUMBERS_KEPT_BASE + 10 * NUMBERS_OF_PIECE;
    sender.push_block(1000);
    while sender.ledger.numbers.len() < limit / 2 {
        sender.ledger.numbers.push_other();
    }
    let data = drain(&mut sender, at_ms(1));
    assert!(data.is_empty(), "{data:?}");
    let Feedback::Ack(mut report) = ack(1, 10, (limit / 2 - 1) as u64) else { unreachable!() };
    report.packets = 10;
    sender.handle_feedback(at_ms(5), &Feedback::Ack(report)).unwrap();
    assert_eq!(drain(&mut sender, at_ms(6)).len(), 1);
}

#[test]
fn a_large_window_keeps_more_numbers_up_to_a_fixed_bound() {
    let mut sender = sender_of_ten();
    let (range, number) =
        (PieceRange { block: 0, offset: 0, length: 1, ends_block: false }, PacketNumber(0));
    for _ in 0..NUMBERS_KEPT_MAX / NUMBERS_OF_PIECE {
        sender.ledger.pieces.push(range, number);
    }
    let push_until = |sender: &mut Sender, count| {
        while sender.ledger.numbers.len() < count {
            sender.ledger.numbers.push_other();
        }
    };
    push_until(&mut sender, NUMBERS_KEPT_MAX);
    let report = nak(LossPolicy::Current, &[(1, 1)]);
    sender.handle_feedback(at_ms(5), &report).unwrap();
    push_until(&mut sender, NUMBERS_KEPT_MAX + 1);
    assert!(sender.handle_feedback(at_ms(6), &report).is_err());
}
