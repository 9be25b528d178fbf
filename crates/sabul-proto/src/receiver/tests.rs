use super::*;

fn receiver(policy: LossPolicy) -> Receiver {
    Receiver::new(ReceiverConfig { policy, block_bytes: 10_000, block_limit: 8 })
}

fn at_ms(ms: u64) -> Instant {
    Instant::ZERO + Span::from_millis(ms)
}

fn arrive(receiver: &mut Receiver, ms: u64, number: u64, seq: u64) {
    let (number, seq) = (PacketNumber(number), SeqNo(seq));
    let admission = receiver.admit(number, seq, 0, 0, 1000);
    assert!(!matches!(admission, Admission::Refused(_)), "{number:?}: {admission:?}");
    receiver.accept(at_ms(ms), &Arrival { number, data: Some((seq, 1000)), is_marked: false });
    receiver.check_invariants();
}

fn feedback(receiver: &mut Receiver, ms: u64) -> Vec<Feedback> {
    let all = std::iter::from_fn(|| receiver.poll_feedback(at_ms(ms))).collect();
    receiver.check_invariants();
    all
}

fn naks(reports: &[Feedback]) -> Vec<(u64, u64)> {
    let ranges = reports.iter().filter_map(|report| match report {
        Feedback::Nak(nak) => Some(nak.ranges.clone()),
        Feedback::Ack(_) => None,
    });
    ranges.flatten().map(|range| (range.first, range.last)).collect()
}

fn acks(reports: &[Feedback]) -> Vec<Ack> {
    reports
        .iter()
        .filter_map(|report| match report {
            Feedback::Ack(ack) => Some(ack.clone()),
            Feedback::Nak(_) => None,
        })
        .collect()
}

#[test]
fn an_ack_goes_out_each_syn_interval_but_only_when_something_arrived() {
    let mut receiver = receiver(LossPolicy::Historical);
    arrive(&mut receiver, 0, 0, 0);
    assert_eq!(acks(&feedback(&mut receiver, 0))[0].seq, SeqNo(1));
    arrive(&mut receiver, 1, 1, 1);
    assert_eq!(feedback(&mut receiver, 5), []);
    assert_eq!(receiver.deadline(), Some(at_ms(10)));
    assert_eq!(acks(&feedback(&mut receiver, 10))[0].seq, SeqNo(2));
    assert_eq!(feedback(&mut receiver, 100), [], "nothing new, no ACK");
    assert_eq!(receiver.deadline(), None);
}

#[test]
fn a_gap_is_reported_at_once_compressed_into_ranges() {
    for policy in [LossPolicy::Historical, LossPolicy::Current] {
        let mut receiver = receiver(policy);
        for number in [0, 1, 5, 9] {
            arrive(&mut receiver, 0, number, number);
        }
        assert_eq!(naks(&feedback(&mut receiver, 0)), [(2, 4), (6, 8)], "{policy:?}");
    }
}

#[test]
fn historical_losses_repeat_after_2_then_3_then_4_round_trips() {
    let mut receiver = receiver(LossPolicy::Historical);
    arrive(&mut receiver, 0, 0, 0);
    arrive(&mut receiver, 0, 2, 2);
    let mut reports = Vec::new();
    for ms in 0..1000 {
        if !naks(&feedback(&mut receiver, ms)).is_empty() {
            reports.push(ms);
        }
    }
    // RTT unknown counts as 100 ms: at once, then + 200, + 300, + 400.
    assert_eq!(reports, [0, 200, 500, 900]);
    arrive(&mut receiver, 1000, 3, 1);
    assert_eq!(naks(&feedback(&mut receiver, 9000)), [], "what has arrived is reported no more");
}

#[test]
fn a_lost_retransmission_shows_as_a_new_gap_in_the_current_policy() {
    let mut receiver = receiver(LossPolicy::Current);
    arrive(&mut receiver, 0, 0, 0);
    arrive(&mut receiver, 0, 2, 2);
    assert_eq!(naks(&feedback(&mut receiver, 0)), [(1, 1)]);
    // Number 3 carried data 1 again and is lost; number 4 carries data 3.
    arrive(&mut receiver, 50, 4, 3);
    assert_eq!(naks(&feedback(&mut receiver, 50)), [(3, 3)]);
    assert_eq!(naks(&feedback(&mut receiver, 5000)), [], "each transmission is reported once");
}

#[test]
fn unconfirmed_losses_ride_in_every_ack_until_the_sender_confirms_one() {
    let mut receiver = receiver(LossPolicy::Current);
    arrive(&mut receiver, 0, 0, 0);
    arrive(&mut receiver, 0, 2, 2);
    let first = acks(&feedback(&mut receiver, 0)).remove(0);
    assert_eq!(first.missing, [NumberRange { first: 1, last: 1 }]);
    arrive(&mut receiver, 20, 3, 3);
    let second = acks(&feedback(&mut receiver, 20)).remove(0);
    assert_eq!(second.missing, first.missing);
    receiver.handle_ack2(at_ms(60), second.serial);
    assert_eq!(receiver.rtt().unwrap().latest, Span::from_millis(40));
    arrive(&mut receiver, 70, 4, 4);
    assert_eq!(acks(&feedback(&mut receiver, 70))[0].missing, []);
}

#[test]
fn replayed_and_misplaced_packets_are_refused_unopened() {
    let mut receiver = receiver(LossPolicy::Current);
    arrive(&mut receiver, 0, 0, 0);
    arrive(&mut receiver, 0, 5, 5);
    let admit = |number, seq, block, offset, length| {
        receiver.admit(PacketNumber(number), SeqNo(seq), block, offset, length)
    };
    assert_eq!(admit(5, 6, 0, 0, 9), Admission::Refused(Refusal::Replayed));
    assert_eq!(admit(0, 6, 0, 0, 9), Admission::Refused(Refusal::Replayed));
    assert_eq!(admit(3, 3, 0, 0, 9), Admission::Fresh, "late, not replayed");
    assert_eq!(admit(6, 5, 0, 0, 9), Admission::Duplicate);
    assert_eq!(admit(6, 6, 8, 0, 9), Admission::Refused(Refusal::BeyondLimit));
    assert_eq!(admit(6, 6, 0, 9_999, 2), Admission::Refused(Refusal::BadPlace));
    assert_eq!(admit(6, 6, 0, u32::MAX, usize::MAX >> 1), Admission::Refused(Refusal::BadPlace));
    assert_eq!(admit(6, 6, 0, 9_999, 1), Admission::Fresh);
}

#[test]
fn room_for_more_blocks_is_announced_at_once() {
    let mut receiver = receiver(LossPolicy::Current);
    receiver.open_to(12);
    assert_eq!(acks(&feedback(&mut receiver, 20))[0].block_limit, 12);
    receiver.open_to(3);
    assert_eq!(feedback(&mut receiver, 40), [], "room is never taken back");
}

#[test]
fn the_overflow_count_goes_ahead_of_the_losses_it_explains() {
    let mut receiver = receiver(LossPolicy::Current);
    arrive(&mut receiver, 0, 0, 0);
    feedback(&mut receiver, 0);
    receiver.note_overflow(7);
    arrive(&mut receiver, 0, 3, 3);
    let reports = feedback(&mut receiver, 0);
    assert!(matches!(&reports[0], Feedback::Ack(ack) if ack.overflowed == 7), "{reports:?}");
    assert!(matches!(reports[1], Feedback::Nak(_)));
}
