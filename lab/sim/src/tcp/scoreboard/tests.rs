//! Tests of the SACK scoreboard against worked cases and a reference list.

use sabul_units::{Random, SeededRandom, Span};

use super::*;

const MSS: u32 = 1000;

fn at(ms: u64) -> Instant {
    Instant::ZERO + Span::from_millis(ms)
}

/// Returns segments 1 to `count`, all full and in flight; segment n left at n ms.
fn flight(count: u64) -> Scoreboard {
    let mut board = Scoreboard::new(MSS);
    for n in 1..=count {
        board.push(at(n), MSS);
    }
    board
}

/// Marks segments `first` to `last` as arrived.
fn arrive(board: &mut Scoreboard, first: u64, last: u64) -> u64 {
    let newly = board.arrive((first - 1) * 1000, last * 1000, &mut |_, _| ());
    board.check_invariants();
    newly
}

fn acknowledge(board: &mut Scoreboard, ack: u64) -> u64 {
    let newly = board.acknowledge(ack, &mut |_, _| ());
    board.check_invariants();
    newly
}

/// Marks everything lost that left before transmission `serial`.
fn lose_before(board: &mut Scoreboard, serial: u64) -> u64 {
    let (lost, next) = board.lose_late(serial, |_| true);
    board.check_invariants();
    assert_eq!(next, None);
    lost
}

fn resend(board: &mut Scoreboard, ms: u64, number: u64) {
    assert!(board.resend(at(ms), number).was_resent());
    board.check_invariants();
}

#[test]
fn an_overdue_segment_sent_before_an_arrived_one_is_lost() {
    let mut board = flight(10);
    arrive(&mut board, 6, 7);
    assert_eq!((board.pipe(), board.sacked(), board.missing()), (8, 2, 8));
    // Segments that left by 3 ms are late; 4 and 5 also left before 7, 8 did not.
    let (lost, next) = board.lose_late(7, |sent_at| sent_at <= at(3));
    board.check_invariants();
    assert_eq!((lost, next, board.pipe()), (3, Some(at(4)), 5));
    assert_eq!((board.first_lost(), board.next_lost()), (Some(1), Some(1)));
    assert_eq!(lose_before(&mut board, 7), 2);
    assert_eq!(board.pipe(), 3, "8, 9, 10");
}

#[test]
fn a_retransmission_is_judged_by_its_own_send_time() {
    let mut board = flight(5);
    arrive(&mut board, 3, 5);
    lose_before(&mut board, 5);
    resend(&mut board, 20, 1);
    resend(&mut board, 21, 2);
    board.push(at(22), MSS);
    assert_eq!((board.pipe(), board.next_lost(), board.first_lost()), (3, None, Some(1)));
    // The copies are transmissions 6 and 7, segment 6 is 8: its arrival shows that both are lost,
    // if late.
    assert_eq!(lose_before(&mut board, 6), 0);
    assert_eq!(board.take_lost_copy(), None);
    arrive(&mut board, 6, 6);
    assert_eq!(lose_before(&mut board, 8), 2);
    assert_eq!((board.pipe(), board.next_lost()), (0, Some(1)));
    assert_eq!((board.take_lost_copy(), board.take_lost_copy()), (Some(6), None));
    resend(&mut board, 40, 1);
    assert_eq!((board.pipe(), board.next_lost()), (1, Some(2)));
    assert_eq!((acknowledge(&mut board, 6000), board.pipe()), (2, 0));
    assert_eq!((board.first_lost(), board.next_lost()), (None, None));
}

#[test]
fn a_segment_retransmitted_before_it_is_lost_counts_twice_in_the_pipe() {
    let mut board = flight(4);
    resend(&mut board, 10, 4);
    assert_eq!(board.pipe(), 5);
    // Its older transmission has no effect any more; the newer shows that both are lost.
    assert_eq!(lose_before(&mut board, 5), 3);
    assert_eq!((board.pipe(), board.next_lost()), (2, Some(1)));
    assert_eq!(lose_before(&mut board, 6), 2);
    assert_eq!(board.pipe(), 0);
}

#[test]
fn a_lost_segment_that_arrives_is_not_retransmitted() {
    let mut board = flight(6);
    lose_before(&mut board, 5);
    assert_eq!(arrive(&mut board, 2, 3), 2);
    assert_eq!(acknowledge(&mut board, 3000), 1);
    assert_eq!((board.first(), board.next_lost(), board.pipe()), (4, Some(4), 2));
}

#[test]
fn arrivals_are_reported_once_with_their_send_time() {
    let mut board = flight(6);
    let mut seen = Vec::new();
    let mut deliver = |number, segment: Outstanding| seen.push((number, segment.sent_at));
    board.arrive(2000, 4000, &mut deliver);
    board.arrive(1000, 5000, &mut deliver);
    board.acknowledge(6000, &mut deliver);
    assert_eq!(seen, [3, 4, 2, 5, 1, 6].map(|n| (n, at(n))));
}

#[test]
fn a_timeout_marks_all_outstanding_segments_lost() {
    let mut board = flight(8);
    arrive(&mut board, 4, 6);
    lose_before(&mut board, 6);
    resend(&mut board, 20, 1);
    // On the path: 1 again, 7, 8; lost and not sent again: 2, 3.
    assert_eq!(board.pipe(), 3);
    assert_eq!(board.lose_all(), 3);
    board.check_invariants();
    let mut order = Vec::new();
    while let Some(number) = board.next_lost() {
        resend(&mut board, 30, number);
        order.push(number);
    }
    assert_eq!((order, board.pipe()), (vec![1, 2, 3, 7, 8], 5));
    assert_eq!(board.take_lost_copy(), None);
    board.push(at(31), MSS);
    assert_eq!((board.pipe(), board.next_lost()), (6, None));
}

#[test]
fn short_segments_are_found_at_their_own_offset() {
    let mut board = Scoreboard::new(MSS);
    for length in [1000, 10, 500, 1000, 1000, 1000] {
        board.push(at(1), length);
    }
    // The third is 1010..1510, the fourth 1510..2510.
    assert_eq!(board.arrive(1010, 2510, &mut |_, _| ()), 2);
    assert_eq!(board.arrive(1010, 3510, &mut |_, _| ()), 1);
    board.check_invariants();
    assert_eq!(board.pipe(), 3);
}

#[test]
fn sack_blocks_that_match_no_segment_are_ignored() {
    let mut board = flight(5);
    for (start, end) in [(500, 2000), (1000, 2500), (1000, 9000), (3000, 3000), (4000, 2000)] {
        assert_eq!(board.arrive(start, end, &mut |_, _| ()), 0, "{start}..{end}");
    }
    assert_eq!(acknowledge(&mut board, 1000), 1);
    assert_eq!(board.arrive(0, 2000, &mut |_, _| ()), 0, "already acknowledged");
    board.check_invariants();
}

/// A segment of the model: whether it has arrived, its newest transmission, and copies on the path.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    has_arrived: bool,
    serial: u64,
    pipe: u64,
    is_due: bool,
}

#[test]
fn the_scoreboard_matches_a_reference_list() {
    for seed in 0..100 {
        let mut rng = SeededRandom::new(seed);
        let mut board = Scoreboard::new(MSS);
        let mut model: Vec<Seen> = Vec::new();
        let mut serial = 0;
        for _ in 0..400 {
            let (first, count) = (board.first(), model.len() as u64);
            match rng.below(6) {
                0..2 => {
                    serial += 1;
                    board.push(at(serial), MSS);
                    model.push(Seen { serial, pipe: 1, ..Seen::default() });
                }
                2 if first < count => {
                    // Never the first outstanding, else it would be acknowledged.
                    let start = first + 1 + rng.below(count - first);
                    let end = (start + rng.below(5)).min(count);
                    arrive(&mut board, start, end);
                    for n in start..=end {
                        let seen = &mut model[usize::try_from(n).unwrap() - 1];
                        *seen = Seen { has_arrived: true, ..Seen::default() };
                    }
                }
                3 => {
                    let newest = rng.below(serial + 2);
                    let lost = lose_before(&mut board, newest);
                    let mut expected = 0;
                    for seen in model.iter_mut().filter(|one| one.pipe > 0 && one.serial < newest) {
                        expected += seen.pipe;
                        (seen.pipe, seen.is_due) = (0, true);
                    }
                    assert_eq!(lost, expected, "seed {seed}");
                }
                4 => {
                    let rule = model.iter().position(|one| one.is_due).map(|n| n as u64 + 1);
                    assert_eq!(board.next_lost(), rule, "seed {seed}");
                    let last = (first <= count && !model.last().unwrap().has_arrived)
                        .then_some(count)
                        .filter(|_| model.last().unwrap().pipe == 1);
                    if let Some(number) = rule.or(last) {
                        serial += 1;
                        resend(&mut board, serial, number);
                        let seen = &mut model[usize::try_from(number).unwrap() - 1];
                        // After a retransmission, a second copy replaces the first.
                        let is_second = seen.is_due || board.get(number).unwrap().has(LOST);
                        seen.pipe = if is_second { 1 } else { 2 };
                        (seen.serial, seen.is_due) = (serial, false);
                    }
                }
                _ if first <= count => {
                    let mut to = first + rng.below(2);
                    while to <= count && model[usize::try_from(to).unwrap() - 1].has_arrived {
                        to += 1;
                    }
                    acknowledge(&mut board, (to.min(count + 1) - 1) * 1000);
                    for seen in &mut model[..usize::try_from(to.min(count + 1)).unwrap() - 1] {
                        *seen = Seen { has_arrived: true, ..Seen::default() };
                    }
                }
                _ => {}
            }
            let pipe: u64 = model.iter().map(|one| one.pipe).sum();
            assert_eq!(board.pipe(), pipe, "seed {seed}: {board:?}");
        }
    }
}
