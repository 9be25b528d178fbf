//! Tests of the receiver: admission of packets, ACKs, NAKs and repeats.

use std::collections::BTreeSet;

use sabul_wire::ConnectionId;

use super::numbers::REPLAY_WINDOW;
use super::sequence::HOLES_MAX;
use super::*;
use crate::reports::Repeat;
use crate::rules::RuleSet;

/// Returns a receiver on a path with known losses and no late packets.
fn receiver(policy: LossPolicy) -> Receiver {
    let mut receiver = with_rule(policy, ReportRule::of_policy(policy));
    receiver.numbers.gaps_mut().note_lost();
    receiver
}

fn with_rule(policy: LossPolicy, reports: ReportRule) -> Receiver {
    Receiver::new(ReceiverConfig { policy, block_bytes: 10_000, block_limit: 8, reports })
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
    let all = std::iter::from_fn(|| receiver.poll(at_ms(ms)).ready()).collect();
    receiver.check_invariants();
    all
}

fn naks(reports: &[Feedback]) -> Vec<(u64, u64)> {
    let ranges = reports.iter().filter_map(|report| match report {
        Feedback::Nak(nak) => Some(nak.ranges.clone()),
        _ => None,
    });
    ranges.flatten().map(|range| (range.first, range.last)).collect()
}

fn acks(reports: &[Feedback]) -> Vec<Ack> {
    reports
        .iter()
        .filter_map(|report| match report {
            Feedback::Ack(ack) => Some(ack.clone()),
            _ => None,
        })
        .collect()
}

#[test]
fn an_ack_is_sent_each_syn_interval_only_if_something_arrived() {
    let mut receiver = receiver(LossPolicy::Historical);
    arrive(&mut receiver, 0, 0, 0);
    assert_eq!(acks(&feedback(&mut receiver, 0))[0].seq, SeqNo(1));
    arrive(&mut receiver, 1, 1, 1);
    assert_eq!(feedback(&mut receiver, 5), []);
    let wait = Polled::Wait { until: Some(at_ms(10)), because: ReceiverWait::Ack };
    assert_eq!(receiver.poll(at_ms(5)), wait);
    assert_eq!(acks(&feedback(&mut receiver, 10))[0].seq, SeqNo(2));
    assert_eq!(feedback(&mut receiver, 100), [], "nothing new, no ACK");
    let wait = Polled::Wait { until: None, because: ReceiverWait::Arrival };
    assert_eq!(receiver.poll(at_ms(100)), wait);
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
    // An unknown RTT counts as 100 ms: at once, then + 200, + 300, + 400.
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
fn every_ack_lists_unconfirmed_losses_until_the_sender_confirms_one() {
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
fn receive_space_for_more_blocks_is_announced_at_once() {
    let mut receiver = receiver(LossPolicy::Current);
    receiver.open_to(12);
    assert_eq!(acks(&feedback(&mut receiver, 20))[0].block_limit, 12);
    receiver.open_to(3);
    assert_eq!(feedback(&mut receiver, 40), [], "room is never taken back");
}

#[test]
fn the_socket_overflow_count_is_sent_before_the_losses_it_explains() {
    let mut receiver = receiver(LossPolicy::Current);
    arrive(&mut receiver, 0, 0, 0);
    feedback(&mut receiver, 0);
    receiver.note_overflow(7);
    arrive(&mut receiver, 0, 3, 3);
    let reports = feedback(&mut receiver, 0);
    assert!(matches!(&reports[0], Feedback::Ack(ack) if ack.overflowed == 7), "{reports:?}");
    assert!(matches!(reports[1], Feedback::Nak(_)));
}

// Late packets.

/// Receives all numbers of the range except those in `not`, a millisecond apart; returns NAKs with
/// their times.
fn stream(
    receiver: &mut Receiver,
    numbers: std::ops::Range<u64>,
    not: &[u64],
) -> Vec<(u64, (u64, u64))> {
    let mut all = Vec::new();
    for number in numbers {
        if !not.contains(&number) {
            arrive(receiver, number, number, number);
        }
        all.extend(errs(&timeline(receiver, number, number + 1)));
    }
    all
}

#[test]
fn packets_that_arrive_late_but_before_a_report_are_not_reported_missing() {
    let mut receiver = receiver(LossPolicy::Current);
    for number in [0, 2, 3, 1, 5] {
        arrive(&mut receiver, 0, number, number);
    }
    assert_eq!(receiver.stats().late, 0);
    let reports = feedback(&mut receiver, 0);
    assert_eq!((naks(&reports), &acks(&reports)[0].missing[..]), (vec![], &[][..]), "window open");
    // Three late packets are few: the window is the longest, 5/4 of the 100 ms an unknown RTT counts.
    let wait = Polled::Wait { until: Some(at_ms(125)), because: ReceiverWait::Gap };
    assert_eq!(receiver.poll(at_ms(0)), wait);
    assert_eq!(naks(&feedback(&mut receiver, 124)), []);
    assert_eq!(naks(&feedback(&mut receiver, 125)), [(4, 4)]);
}

#[test]
fn a_gap_is_reported_once_open_longer_than_the_usual_reordering() {
    let mut receiver = receiver(LossPolicy::Current);
    receiver.seed_rtt(Span::from_millis(40));
    // Each is late by 8 ms; the first is reported nevertheless.
    for late in (0..20).map(|n| n * 10 + 1) {
        stream(&mut receiver, late - 1..late + 9, &[late]);
        arrive(&mut receiver, late + 9, late, late);
    }
    assert_eq!(receiver.stats().late, 1, "the first was reported before anything was known");
    // 16 ms is twice as long, and more than a quarter of the round trip.
    let reports = stream(&mut receiver, 200..260, &[210, 240]);
    assert_eq!(reports, [(227, (210, 210)), (257, (240, 240))]);
    // Nothing late for a minute: the window is zero again.
    let quiet = stream(&mut receiver, 260..61_000, &[]);
    assert_eq!(quiet, []);
    assert_eq!(stream(&mut receiver, 61_000..61_010, &[61_005]), [(61_006, (61_005, 61_005))]);
}

#[test]
fn the_first_gaps_of_a_channel_wait_one_rtt_unless_there_are_many() {
    let of_unknown = || {
        let mut receiver = with_rule(LossPolicy::Current, ReportRule::current());
        receiver.seed_rtt(Span::from_millis(40));
        receiver
    };
    let mut few = of_unknown();
    let reports = stream(&mut few, 0..100, &[10, 80]);
    // 5/4 × 40 ms after it was seen; the second at once.
    assert_eq!(reports, [(61, (10, 10)), (81, (80, 80))]);
    let mut many = of_unknown();
    let gone: Vec<_> = (0..17).map(|n| 10 + 2 * n).collect();
    let reports = stream(&mut many, 0..60, &gone);
    assert_eq!(reports.iter().map(|(ms, _)| *ms).min(), Some(27), "with the ninth");
    assert_eq!(reports.len(), 17);
}

#[test]
fn a_receiver_begins_with_the_measurements_of_an_earlier_one() {
    let of_unknown = || {
        let mut receiver = with_rule(LossPolicy::Current, ReportRule::current());
        receiver.seed_rtt(Span::from_millis(40));
        receiver
    };
    let [mut with_losses, mut with_late] = [(); 2].map(|()| of_unknown());
    stream(&mut with_losses, 0..100, &[10]);
    for late in (0..20).map(|n| n * 10 + 1) {
        stream(&mut with_late, late - 1..late + 9, &[late]);
        arrive(&mut with_late, late + 9, late, late);
    }
    // After losses at once; after late packets twice the 8 ms after the next packet.
    for (mut earlier, reported) in [(with_losses, 11), (with_late, 27)] {
        let mut later = of_unknown();
        *later.lateness() = *earlier.lateness();
        assert_eq!(stream(&mut later, 0..100, &[10]), [(reported, (10, 10))]);
    }
}

#[test]
fn a_packet_late_by_up_to_a_second_is_measured() {
    for (late, reported) in [(1000, vec![]), (1001, vec![(3, 3)])] {
        let mut receiver = receiver(LossPolicy::Current);
        receiver.seed_rtt(Span::from_millis(400));
        arrive(&mut receiver, 0, 0, 0);
        arrive(&mut receiver, 0, 2, 2);
        assert_eq!(naks(&feedback(&mut receiver, 0)), [(1, 1)]);
        feedback(&mut receiver, late);
        arrive(&mut receiver, late, 1, 1);
        assert_eq!(receiver.stats().late, 1);
        // A measured late packet gives the next gap a window.
        arrive(&mut receiver, late, 4, 4);
        assert_eq!(naks(&feedback(&mut receiver, late)), reported, "{late} ms late");
    }
}

#[test]
fn a_gap_is_reported_even_if_the_receiver_was_not_polled_for_long() {
    let mut receiver = receiver(LossPolicy::Current);
    arrive(&mut receiver, 0, 0, 0);
    arrive(&mut receiver, 0, 2, 2);
    assert_eq!(naks(&feedback(&mut receiver, 2000)), [(1, 1)]);
}

#[test]
fn a_gap_event_is_recorded_only_for_a_gap_with_losses() {
    let mut receiver = with_rule(LossPolicy::Current, ReportRule::current());
    receiver.listen();
    // 1 and 3 are only late; 5 is lost.
    for number in [0, 2, 4, 1, 3, 6] {
        arrive(&mut receiver, 0, number, number);
    }
    assert_eq!(naks(&feedback(&mut receiver, 125)), [(5, 5)]);
    let fired: Vec<_> = std::iter::from_fn(|| receiver.next_fired()).map(|it| it.timer).collect();
    assert_eq!(fired, [FiredTimer::Gap, FiredTimer::Ack]);
}

#[test]
fn historical_reports_are_sent_without_a_reordering_window() {
    let mut receiver = with_rule(LossPolicy::Historical, ReportRule::sabul2003());
    arrive(&mut receiver, 0, 0, 0);
    arrive(&mut receiver, 0, 2, 2);
    assert_eq!(naks(&feedback(&mut receiver, 0)), [(1, 1)]);
    arrive(&mut receiver, 9, 1, 1);
    arrive(&mut receiver, 9, 4, 4);
    assert_eq!(naks(&feedback(&mut receiver, 9)), [(3, 3)]);
    assert_eq!(receiver.stats().late, 0);
}

#[test]
fn a_list_that_is_not_full_is_complete() {
    let mut receiver = receiver(LossPolicy::Current);
    for number in (0..=2 * 250).step_by(2) {
        arrive(&mut receiver, 0, number, number);
    }
    let mut listed = BTreeSet::new();
    for ms in [0, 100] {
        arrive(&mut receiver, ms, 1000 + ms, 1000 + ms);
        let missing = acks(&feedback(&mut receiver, ms)).remove(0).missing;
        assert_eq!(missing.len(), MAX_RANGES);
        assert!(missing.is_sorted());
        listed.extend(missing.into_iter().map(|range| range.first));
    }
    assert_eq!(listed.len(), 252, "in two lists, going round");
}

#[test]
fn full_lists_of_losses_continue_after_the_last_listed_number() {
    let mut receiver = receiver(LossPolicy::Current);
    for number in (0..=6 * MAX_RANGES as u64).step_by(2) {
        arrive(&mut receiver, 0, number, number);
    }
    let mut lists = Vec::new();
    for at in 0..4 {
        let next = 6 * MAX_RANGES as u64 + 1 + at;
        arrive(&mut receiver, at * 100, next, next);
        lists.push(acks(&feedback(&mut receiver, at * 100)).remove(0).missing);
    }
    let round: BTreeSet<_> = lists[..3].iter().flatten().collect();
    assert_eq!(round.len(), 3 * MAX_RANGES, "three lists name each range once");
    assert_eq!(lists[3], lists[0]);
}

#[test]
fn a_nak_lists_at_most_200_ranges_in_ascending_order() {
    let lists = |receiver: &mut Receiver, ms| -> Vec<Vec<u64>> {
        let reports = feedback(receiver, ms).into_iter();
        let naks = reports.filter_map(|report| match report {
            Feedback::Nak(nak) => Some(nak.ranges.iter().map(|range| range.first).collect()),
            _ => None,
        });
        naks.collect()
    };
    let mut many = receiver(LossPolicy::Historical);
    for number in 0..MAX_RANGES as u64 + 2 {
        arrive_unchecked(&mut many, 2 * number);
    }
    let lengths: Vec<_> = lists(&mut many, 0).iter().map(Vec::len).collect();
    assert_eq!(lengths, [MAX_RANGES, 1]);
    // The repeat of a loss follows a later loss.
    let mut repeated = receiver(LossPolicy::Historical);
    arrive(&mut repeated, 0, 0, 0);
    arrive(&mut repeated, 0, 2, 2);
    assert_eq!(lists(&mut repeated, 0), [[1]]);
    arrive(&mut repeated, 200, 4, 4);
    assert_eq!(lists(&mut repeated, 200), [[3], [1]]);
}

#[test]
fn a_receiver_waits_until_the_next_repeat_is_due() {
    let mut receiver = receiver(LossPolicy::Historical);
    for (ms, number) in [(0, 0), (0, 2), (5, 4)] {
        arrive(&mut receiver, ms, number, number);
        feedback(&mut receiver, ms);
    }
    // An unknown RTT counts as 100 ms; a loss is repeated after two RTTs.
    assert_eq!(naks(&feedback(&mut receiver, 200)), [(1, 1)]);
    let wait = Polled::Wait { until: Some(at_ms(205)), because: ReceiverWait::Repeat };
    assert_eq!(receiver.poll(at_ms(200)), wait);
}

#[test]
fn packet_numbers_continue_after_those_of_the_handshake() {
    let mut receiver = receiver(LossPolicy::Current);
    receiver.start_after(at_ms(0), PacketNumber(3));
    assert!((0..=3).all(|number| receiver.is_replayed(PacketNumber(number))));
    arrive(&mut receiver, 0, 4, 0);
    let reports = feedback(&mut receiver, 0);
    assert_eq!((naks(&reports), &acks(&reports)[0].missing[..]), (vec![], &[][..]), "no gap");
}

#[test]
fn short_numbers_expand_to_the_nearest_full_numbers() {
    let mut receiver = receiver(LossPolicy::Current);
    let (number, seq) = (PacketNumber((1 << 32) + 2), SeqNo((3 << 32) - 2));
    arrive(&mut receiver, 0, number.0, seq.0);
    for (number, seq) in [(number.0 - 9, seq.0 - 9), (number.0 + 9, seq.0 + 9)] {
        let (number, seq) = (PacketNumber(number), SeqNo(seq));
        let header = DataHeader::new(ConnectionId(1), number, seq, 0, 0);
        assert_eq!(receiver.expand(&header), (number, seq));
    }
}

#[test]
fn a_number_below_the_replay_window_counts_as_replayed() {
    let mut receiver = receiver(LossPolicy::Current);
    arrive(&mut receiver, 0, 0, 0);
    arrive(&mut receiver, 0, 10, 10);
    arrive(&mut receiver, 1, 5 + REPLAY_WINDOW, 11);
    assert!((0..5).all(|number| receiver.is_replayed(PacketNumber(number))));
    assert!(!receiver.is_replayed(PacketNumber(5)), "missing, and the last of the window");
    assert!(!receiver.is_replayed(PacketNumber(11)), "missing, and remembered");
    // Without a further gap, too.
    arrive(&mut receiver, 2, 6 + REPLAY_WINDOW, 12);
    assert!(receiver.is_replayed(PacketNumber(5)));
    arrive(&mut receiver, 3, 7 + REPLAY_WINDOW, 13);
    assert!(receiver.is_replayed(PacketNumber(5)));
}

#[test]
fn the_number_of_gaps_is_bounded() {
    let mut receiver = with_rule(LossPolicy::Historical, ReportRule::sabul2003());
    let far = 4 * HOLES_MAX as u64;
    arrive(&mut receiver, 0, far, far);
    // One hole is there; every other number inside it makes one more.
    let mut seq = 1;
    loop {
        let number = PacketNumber(seq);
        let data = Some((SeqNo(seq), 1));
        if receiver.admit(number, SeqNo(seq), 0, 0, 1) != Admission::Fresh {
            break;
        }
        receiver.accept(at_ms(0), &Arrival { number, data, is_marked: false });
        seq += 2;
        assert!(seq < far, "there is no bound");
    }
    assert_eq!(receiver.data.missing().range_count(), HOLES_MAX);
    let admit = |seq| receiver.admit(PacketNumber(far + 1), SeqNo(seq), 0, 0, 1);
    assert_eq!(admit(seq), Admission::Refused(Refusal::BeyondLimit));
    assert_eq!(admit(far + 2), Admission::Refused(Refusal::BeyondLimit));
    for filling in [0, seq - 1, far - 1, far + 1] {
        assert_eq!(admit(filling), Admission::Fresh, "{filling} makes no hole");
    }
}

#[test]
fn a_small_room_has_few_holes() {
    let mut receiver = with_rule(LossPolicy::Current, ReportRule::current());
    let admit = |receiver: &Receiver, seq| receiver.admit(PacketNumber(seq), SeqNo(seq), 0, 0, 1);
    receiver.limit_holes(100);
    for hole in 1..=100 {
        arrive(&mut receiver, 0, 2 * hole, 2 * hole);
    }
    assert_eq!(admit(&receiver, 202), Admission::Refused(Refusal::BeyondLimit));
    assert_eq!(admit(&receiver, 201), Admission::Fresh, "adds no hole");
    receiver.limit_holes(usize::MAX);
    assert_eq!(admit(&receiver, 202), Admission::Fresh, "the room has grown");
    assert_eq!(admit(&receiver, 1), Admission::Fresh);
}

#[test]
fn repeated_loss_reports_are_rate_limited_with_any_measured_rtt() {
    let mut receiver = with_rule(LossPolicy::Historical, ReportRule::sabul2003());
    receiver.seed_rtt(Span::ZERO);
    for number in 0..20_000 {
        arrive_unchecked(&mut receiver, 2 * number);
    }
    let ranges =
        |report: Feedback| if let Feedback::Nak(nak) = report { nak.ranges.len() } else { 0 };
    let mut now = at_ms(0);
    let mut repeated = 0;
    std::iter::from_fn(|| receiver.poll(now).ready()).for_each(drop);
    while now < at_ms(1000) {
        now = now + Span::from_micros(100);
        let until = loop {
            match receiver.poll(now) {
                Polled::Ready(report) => repeated += ranges(report),
                Polled::Wait { until, .. } => break until,
            }
        };
        assert!(until.is_none_or(|due| due > now), "it would spin");
    }
    assert!((300_000..=404_000).contains(&repeated), "{repeated}");
}

fn arrive_unchecked(receiver: &mut Receiver, number: u64) {
    let data = Some((SeqNo(number), 1));
    let arrival = Arrival { number: PacketNumber(number), data, is_marked: false };
    receiver.accept(at_ms(0), &arrival);
}

// The 2002 rule.

const SYN_2002: Span = Span::from_millis(200);

fn receiver_2002(rtt_ms: u64) -> Receiver {
    let mut receiver = with_rule(LossPolicy::Historical, ReportRule::sabul2002(SYN_2002));
    receiver.seed_rtt(Span::from_millis(rtt_ms));
    receiver
}

/// Returns (millisecond, report) of all reports that leave from `from` to `to`.
fn timeline(receiver: &mut Receiver, from: u64, to: u64) -> Vec<(u64, Feedback)> {
    (from..to).flat_map(|ms| feedback(receiver, ms).into_iter().map(move |it| (ms, it))).collect()
}

fn syns(timeline: &[(u64, Feedback)]) -> Vec<(u64, u64)> {
    let counts = timeline.iter().filter_map(|(ms, report)| match report {
        Feedback::Syn { received } => Some((*ms, *received)),
        _ => None,
    });
    counts.collect()
}

/// Returns when each range was reported missing.
fn errs(timeline: &[(u64, Feedback)]) -> Vec<(u64, (u64, u64))> {
    let at = |(ms, report): &(u64, Feedback)| {
        naks(std::slice::from_ref(report)).into_iter().map(|range| (*ms, range)).collect::<Vec<_>>()
    };
    timeline.iter().flat_map(at).collect()
}

#[test]
fn a_syn_report_is_sent_every_interval_with_any_rtt_and_any_arrivals() {
    for rtt_ms in [1, 500] {
        let mut receiver = receiver_2002(rtt_ms);
        assert_eq!(syns(&timeline(&mut receiver, 0, 7)), [], "nothing has begun");
        for number in 0..3 {
            arrive(&mut receiver, 7, number, number);
        }
        let mut all = timeline(&mut receiver, 7, 500);
        // A duplicate also counts as an arrival.
        arrive(&mut receiver, 500, 3, 1);
        all.extend(timeline(&mut receiver, 500, 900));
        assert_eq!(syns(&all), [(207, 3), (407, 0), (607, 1), (807, 0)], "{rtt_ms} ms");
        let wait = Polled::Wait { until: Some(at_ms(1007)), because: ReceiverWait::Syn };
        assert_eq!(receiver.poll(at_ms(899)), wait);
        // One report covers all intervals missed; the rhythm stays.
        assert_eq!(syns(&timeline(&mut receiver, 1500, 1700)), [(1500, 0), (1607, 0)]);
    }
}

#[test]
fn the_2002_rule_sends_an_ack_every_100_ms() {
    let mut receiver = receiver_2002(1);
    arrive(&mut receiver, 0, 0, 0);
    assert_eq!(acks(&feedback(&mut receiver, 0)).len(), 1);
    arrive(&mut receiver, 1, 1, 1);
    assert_eq!(feedback(&mut receiver, 99), []);
    assert_eq!(acks(&feedback(&mut receiver, 100))[0].seq, SeqNo(2));
    assert_eq!(acks(&feedback(&mut receiver, 199)), [], "nothing new, no ACK");
}

#[test]
fn losses_repeat_at_the_first_check_that_finds_them_older_than_the_estimate() {
    // Estimate: 1.5 × 40 ms; checks every 20 ms from the first packet on.
    let mut receiver = receiver_2002(40);
    arrive(&mut receiver, 0, 0, 0);
    arrive(&mut receiver, 0, 2, 2);
    let mut all = timeline(&mut receiver, 0, 30);
    arrive(&mut receiver, 30, 5, 5);
    all.extend(timeline(&mut receiver, 30, 250));
    let (one, two) = ((1, 1), (3, 4));
    // At 140 ms the first is exactly 60 ms old, which is not older.
    let expected = [(0, one), (30, two), (80, one), (100, two), (160, one), (180, two), (240, one)];
    assert_eq!(errs(&all), expected);
    arrive(&mut receiver, 250, 6, 3);
    assert_eq!(errs(&timeline(&mut receiver, 250, 320)), [(260, (4, 4))], "3 has come");
    // Where the RTT is 20 ms or less, the least age is 20 ms.
    let mut near = receiver_2002(20);
    arrive(&mut near, 0, 0, 0);
    arrive(&mut near, 0, 2, 2);
    let expected = [(0, one), (40, one), (80, one)];
    assert_eq!(errs(&timeline(&mut near, 0, 100)), expected);
}

#[test]
fn repeats_use_the_first_rtt_unless_the_average_is_configured() {
    for (repeat_rtt, again) in [(RepeatRtt::First, 1080), (RepeatRtt::Averaged, 1240)] {
        let rule = ReportRule { repeat_rtt, ..ReportRule::sabul2002(SYN_2002) };
        let mut receiver = with_rule(LossPolicy::Historical, rule);
        receiver.seed_rtt(Span::from_millis(40));
        arrive(&mut receiver, 0, 0, 0);
        let serial = acks(&feedback(&mut receiver, 0))[0].serial;
        // 7/8 × 40 + 1/8 × 920 = 150 ms; × 1.5 = 225 ms.
        receiver.handle_ack2(at_ms(920), serial);
        assert_eq!(receiver.rtt().unwrap().smoothed, Span::from_millis(150));
        arrive(&mut receiver, 1000, 2, 2);
        let found = errs(&timeline(&mut receiver, 1000, again + 1));
        assert_eq!(found, [(1000, (1, 1)), (again, (1, 1))], "{repeat_rtt:?}");
    }
}

#[test]
fn repeats_after_growing_waits_can_replace_the_periodic_check() {
    let rule = ReportRule { repeat: Repeat::KTimesRtt, ..ReportRule::sabul2002(SYN_2002) };
    let mut receiver = with_rule(LossPolicy::Historical, rule);
    receiver.seed_rtt(Span::from_millis(15));
    arrive(&mut receiver, 0, 0, 0);
    arrive(&mut receiver, 0, 2, 2);
    let at: Vec<_> = errs(&timeline(&mut receiver, 0, 150)).iter().map(|(ms, _)| *ms).collect();
    assert_eq!(at, [0, 30, 75, 135]);
}

#[test]
fn losses_are_reported_before_the_syn_report_of_their_interval() {
    let mut receiver = receiver_2002(1);
    arrive(&mut receiver, 0, 0, 0);
    feedback(&mut receiver, 0);
    arrive(&mut receiver, 200, 2, 2);
    let reports = feedback(&mut receiver, 200);
    assert!(
        matches!(reports[..], [Feedback::Ack(_), Feedback::Nak(_), Feedback::Syn { received: 2 }]),
        "{reports:?}"
    );
}

#[test]
#[should_panic(expected = "every zero seconds")]
fn a_syn_interval_of_zero_panics() {
    with_rule(LossPolicy::Historical, ReportRule::sabul2002(Span::ZERO));
}

/// Channel rules that list, with each piece, the numbers since the newest list.
#[derive(Debug)]
struct ListEach;

impl ReceiverRules for ListEach {
    fn on_piece(&mut self, context: &mut ReceiverContext<'_>, _number: PacketNumber, seq: SeqNo) {
        let from = context.listed_below();
        context.list(lists::Listing { serial: 0, from, below: seq.0, lists: 1 });
    }
}

#[test]
fn channel_rules_can_continue_after_the_newest_list() {
    static SET: RuleSet = RuleSet { receiver: Some(|| Box::new(ListEach)), ..RuleSet::STANDARD };
    let rule = ReportRule { rules: &SET, ..ReportRule::current() };
    let mut receiver = with_rule(LossPolicy::Current, rule);
    let mut lists = Vec::new();
    for seq in [2, 5] {
        arrive(&mut receiver, seq, seq, seq);
        lists.extend(feedback(&mut receiver, seq).into_iter().filter_map(|report| match report {
            Feedback::Missing(list) => Some((list.from.0, list.below.0)),
            _ => None,
        }));
    }
    assert_eq!(lists, [(0, 2), (2, 5)]);
    assert_eq!(receiver.stats().reported, 4, "0, 1, 3 and 4");
}
