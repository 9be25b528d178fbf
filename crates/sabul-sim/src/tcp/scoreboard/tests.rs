use sabul_units::{Random, SeededRandom};

use super::*;

const MSS: u32 = 1000;

/// Segments 1 to `count`, all full and in flight.
fn flight(count: u64) -> Scoreboard {
    let mut board = Scoreboard::new(MSS);
    for _ in 0..count {
        board.push(MSS);
    }
    board
}

/// Segments `first` to `last` have arrived.
fn arrive(board: &mut Scoreboard, first: u64, last: u64) -> u64 {
    let newly = board.arrive((first - 1) * 1000, last * 1000);
    board.lose_overtaken();
    board.check_invariants();
    newly
}

fn resend(board: &mut Scoreboard, number: u64) {
    assert!(board.resend(number).is_some());
    board.pass(number);
    board.check_invariants();
}

#[test]
fn three_later_arrivals_make_a_segment_lost() {
    let mut board = flight(10);
    assert_eq!(board.pipe(), 10);
    // 1 is missing. 2 and 3 arrived: 1, 4 … 10 may be on the path.
    assert_eq!(arrive(&mut board, 2, 3), 2);
    assert_eq!((board.pipe(), board.is_first_lost()), (8, false));
    // 4 as well: 1 is lost, 5 … 10 are on the path.
    assert_eq!(arrive(&mut board, 2, 4), 1);
    assert_eq!((board.pipe(), board.is_first_lost()), (6, true));
    assert_eq!(board.next_lost(), Some(1));
}

#[test]
fn a_copy_is_lost_when_three_segments_first_sent_after_it_have_arrived() {
    let mut board = flight(5);
    // 1 and 2 are lost.
    arrive(&mut board, 3, 5);
    resend(&mut board, 1);
    resend(&mut board, 2);
    // 6, 7, 8 leave after the copies, 9 and 10 later.
    for _ in 0..5 {
        board.push(MSS);
    }
    arrive(&mut board, 6, 7);
    assert_eq!((board.pipe(), board.next_lost()), (5, None), "two are not enough: 1, 2, 8 … 10");
    board.arrive(7000, 8000);
    assert_eq!(board.lose_overtaken(), 2, "both copies");
    assert_eq!((board.pipe(), board.next_lost()), (2, Some(1)), "9 and 10");
    resend(&mut board, 1);
    assert_eq!(board.next_lost(), Some(2));
    // The second copy of 1 left before 11: 9 and 10 say nothing of it.
    arrive(&mut board, 9, 10);
    resend(&mut board, 2);
    assert_eq!((board.pipe(), board.next_lost()), (2, None));
    assert_eq!(board.acknowledge(10_000), 2);
    board.check_invariants();
}

#[test]
fn pipe_and_next_follow_a_recovery_worked_by_hand() {
    // 1, 3 and 7 of 10 are lost on the path.
    let mut board = flight(10);
    arrive(&mut board, 2, 2);
    arrive(&mut board, 4, 4);
    // Missing 1, 3 and 5 … 10; only two are above 1.
    assert_eq!((board.pipe(), board.next_lost()), (8, None));
    arrive(&mut board, 4, 5);
    // 2, 4, 5 are above 1: lost. Above 3 only 4 and 5. On the path: 3, 6 … 10.
    assert_eq!((board.pipe(), board.next_lost()), (6, Some(1)));
    resend(&mut board, 1);
    // The copy of 1 is on the path too.
    assert_eq!((board.pipe(), board.next_lost()), (7, None));
    // Rule 3: 3 is below the highest that arrived, 5, but not lost.
    assert_eq!(board.next_hole(), Some(3));
    arrive(&mut board, 4, 6);
    // 4, 5, 6 are above 3: lost. On the path: 1 again, 7 … 10.
    assert_eq!((board.pipe(), board.next_lost()), (5, Some(3)));
    resend(&mut board, 3);
    assert_eq!((board.pipe(), board.next_lost()), (6, None));
    arrive(&mut board, 8, 10);
    // 7 is lost; on the path: 1 and 3 again.
    assert_eq!((board.pipe(), board.next_lost()), (2, Some(7)));
    resend(&mut board, 7);
    // Rules 1 and 3 have nothing left. Rule 4: the highest that has not arrived is 7.
    assert_eq!((board.pipe(), board.next_lost(), board.next_hole()), (3, None, None));
    assert_eq!(board.last_missing(), Some(7));
    // The copy of 1 arrives: everything to 2. Then 3: everything to 6. Then 7: all.
    assert_eq!((board.acknowledge(2000), board.pipe()), (1, 2));
    assert_eq!((board.acknowledge(6000), board.pipe()), (1, 1));
    assert_eq!((board.acknowledge(10_000), board.pipe()), (1, 0));
    board.check_invariants();
    assert_eq!((board.outstanding(), board.first(), board.last_missing()), (0, 11, None));
}

#[test]
fn a_hole_sent_before_it_was_lost_counts_twice_until_it_is() {
    let mut board = flight(4);
    arrive(&mut board, 2, 2);
    assert_eq!((board.next_hole(), board.pipe()), (Some(1), 3));
    resend(&mut board, 1);
    // 1 twice, 3, 4.
    assert_eq!(board.pipe(), 4);
    arrive(&mut board, 2, 4);
    // The first copy of 1 is lost, the second may be on the path; it is not sent a third time.
    assert_eq!((board.pipe(), board.next_lost()), (1, None));
}

#[test]
fn the_last_missing_segment_may_be_below_what_arrived_last() {
    let mut board = flight(6);
    assert_eq!(board.last_missing(), Some(6));
    arrive(&mut board, 5, 6);
    assert_eq!(board.last_missing(), Some(4));
    arrive(&mut board, 3, 4);
    assert_eq!(board.last_missing(), Some(2));
}

#[test]
fn a_timeout_loses_all_that_has_not_arrived_and_starts_over() {
    let mut board = flight(8);
    arrive(&mut board, 4, 6);
    resend(&mut board, 1);
    // On the path: 1 again, 7, 8; lost and not sent again: 2, 3.
    assert_eq!(board.pipe(), 3);
    assert_eq!(board.lose_all(), 3);
    board.check_invariants();
    let mut order = Vec::new();
    while let Some(number) = board.next_lost() {
        resend(&mut board, number);
        order.push(number);
    }
    assert_eq!((order, board.pipe()), (vec![1, 2, 3, 7, 8], 5));
    // New data after it is judged by what arrives above it, as before.
    board.push(MSS);
    assert_eq!((board.pipe(), board.next_lost()), (6, None));
}

#[test]
fn short_segments_are_found_at_their_own_place() {
    let mut board = Scoreboard::new(MSS);
    for length in [1000, 10, 500, 1000, 1000, 1000] {
        board.push(length);
    }
    // The third is 1010..1510, the fourth 1510..2510.
    assert_eq!(board.arrive(1010, 2510), 2);
    assert_eq!(board.arrive(1010, 3510), 1);
    board.check_invariants();
    assert_eq!((board.pipe(), board.last_missing()), (3, Some(6)));
}

#[test]
fn blocks_that_no_segment_has_say_nothing() {
    let mut board = flight(5);
    for (start, end) in [(500, 2000), (1000, 2500), (1000, 9000), (3000, 3000), (4000, 2000)] {
        assert_eq!(board.arrive(start, end), 0, "{start}..{end}");
    }
    assert_eq!(board.acknowledge(1000), 1);
    assert_eq!(board.arrive(0, 2000), 0, "already acknowledged");
    board.check_invariants();
}

#[test]
fn behaves_like_the_rules_applied_to_a_list() {
    for seed in 0..100 {
        let mut rng = SeededRandom::new(seed);
        let mut board = Scoreboard::new(MSS);
        // For each segment: has arrived, and how many there were when it was last sent again.
        let mut model: Vec<(bool, Option<usize>)> = Vec::new();
        let mut lost_copies: Vec<usize> = Vec::new();
        let mut sent_order: std::collections::BTreeMap<usize, u64> = [].into();
        for step in 0..400 {
            let (first, count) = (board.first(), model.len() as u64);
            match rng.below(6) {
                0..2 => {
                    board.push(MSS);
                    model.push((false, None));
                }
                2..4 if first < count => {
                    // Never the first outstanding, else it would be acknowledged.
                    let start = first + 1 + rng.below(count - first);
                    let end = (start + rng.below(5)).min(count);
                    arrive(&mut board, start, end);
                    for n in start..=end {
                        model[usize::try_from(n).unwrap() - 1].0 = true;
                    }
                }
                4 => {
                    // IsLost and NextSeg rule 1, word for word.
                    let is_lost = |n: usize| model[n..].iter().filter(|seg| seg.0).count() >= 3;
                    let rule = (0..model.len()).find(|n| {
                        *n as u64 + 1 >= board.resend_from
                            && *n as u64 + 1 >= first
                            && !model[*n].0
                            && is_lost(*n)
                    });
                    lost_copies.retain(|n| !model[*n].0 && model[*n].1.is_none());
                    let rule = lost_copies.first().copied().or(rule);
                    let number = board.next_lost();
                    assert_eq!(number, rule.map(|n| n as u64 + 1), "seed {seed}");
                    if let Some(number) = number {
                        resend(&mut board, number);
                        let count = model.len();
                        sent_order.insert(usize::try_from(number).unwrap() - 1, step);
                        model[usize::try_from(number).unwrap() - 1].1 = Some(count);
                    }
                }
                _ if first <= count => {
                    let mut to = first + rng.below(2);
                    while to <= count && model[usize::try_from(to).unwrap() - 1].0 {
                        to += 1;
                    }
                    board.acknowledge((to.min(count + 1) - 1) * 1000);
                    for seg in &mut model[..usize::try_from(to.min(count + 1)).unwrap() - 1] {
                        seg.0 = true;
                    }
                }
                _ => {}
            }
            board.lose_overtaken();
            board.check_invariants();
            // Copies in the order in which they left.
            let arrived: Vec<bool> = model.iter().map(|seg| seg.0).collect();
            let is_overtaken = |count: usize| arrived[count..].iter().filter(|a| **a).count() >= 3;
            let mut newly: Vec<(usize, usize)> = (model.iter().enumerate())
                .filter(|(_, seg)| !seg.0)
                .filter_map(|(n, seg)| Some((seg.1.filter(|count| is_overtaken(*count))?, n)))
                .collect();
            newly.sort_by_key(|(_, n)| sent_order[n]);
            for (_, n) in newly {
                model[n].1 = None;
                lost_copies.push(n);
            }
            // SetPipe, word for word.
            let mut pipe = 0;
            for (n, seg) in model.iter().enumerate().filter(|(_, seg)| !seg.0) {
                let lost = model[n..].iter().filter(|later| later.0).count() >= 3;
                pipe += u64::from(!lost) + u64::from(seg.1.is_some());
            }
            assert_eq!(board.pipe(), pipe, "seed {seed}: {board:?}");
        }
    }
}
