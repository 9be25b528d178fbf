//! Tests of the rate search: packet trains, estimates and their end.

use sabul_units::Instant;

use super::*;
use crate::controller::Moment;

#[test]
fn a_train_that_arrives_in_batches_is_timed_from_its_head() {
    let rtt = Span::from_millis(100);
    let estimate = RttEstimate { latest: rtt, smoothed: rtt, variance: Span::ZERO, min: rtt };
    let moment = Moment::new(Instant::ZERO, Some(estimate), Bytes(1500));
    let mut search = RateSearch::new();
    let mut ack = |total: u64, next: u64, ms: f64| {
        let acked = Acked {
            newly: Packets(1),
            total: Packets(total),
            cumulative_ack: SentNumber(total - 1),
            largest: SentNumber(total - 1),
            next: SentNumber(next),
            delivered: Bytes(total * 1500),
            arrived_at: Span::from_secs_f64(ms / 1e3),
            ..Acked::default()
        };
        search.on_ack(&acked, &Context::without_chance(&moment));
        search.estimate
    };
    // 32 packets arrive at once. The first 45 of the next 128 arrive together, the others 1 ms later: 83
    // × 12 000 bit in a millisecond.
    assert_eq!(ack(32, 32, 50.0), None);
    assert_eq!(ack(77, 160, 151.0), None);
    assert_eq!(ack(160, 400, 152.0), Some(Rate(996_000_000)));
}

/// A search on a path of 100 ms, and a closure that passes ACKs: total, cumulative and next number, arrival in ms,
/// losses before.
fn searching() -> impl FnMut(u64, u64, u64, f64, u64) -> RateSearchView {
    let rtt = Span::from_millis(100);
    let estimate = RttEstimate { latest: rtt, smoothed: rtt, variance: Span::ZERO, min: rtt };
    let moment = Moment::new(Instant::ZERO, Some(estimate), Bytes(1500));
    let mut search = RateSearch::gentle();
    let mut before = 0;
    move |total, cumulative_ack, next, ms, lost| {
        search.round.lost += lost;
        let newly = Packets(total - std::mem::replace(&mut before, total));
        let acked = Acked {
            newly,
            total: Packets(total),
            cumulative_ack: SentNumber(cumulative_ack),
            largest: SentNumber(cumulative_ack),
            next: SentNumber(next),
            delivered: Bytes(total * 1500),
            arrived_at: Span::from_secs_f64(ms / 1e3),
            ..Acked::default()
        };
        let step = search.on_ack(&acked, &Context::without_chance(&moment));
        RateSearchView { step, estimate: search.estimate, stage: search.stage }
    }
}

#[test]
fn a_train_that_a_rate_limit_spaces_does_not_grow() {
    let rtt = Span::from_millis(100);
    let estimate = RttEstimate { latest: rtt, smoothed: rtt, variance: Span::ZERO, min: rtt };
    let moment = Moment::new(Instant::ZERO, Some(estimate), Bytes(1500));
    let mut search = RateSearch::gentle();
    // Five packets an RTT, 20 ms apart.
    for n in 1..=40 {
        let acked = Acked {
            newly: Packets(1),
            total: Packets(n),
            cumulative_ack: SentNumber(n - 1),
            largest: SentNumber(n - 1),
            next: SentNumber(n + 5),
            delivered: Bytes(n * 1500),
            arrived_at: Span::from_millis(20 * n),
            ..Acked::default()
        };
        search.on_ack(&acked, &Context::without_chance(&moment));
    }
    assert_eq!(search.window, 128, "only the first train may grow");
}

struct RateSearchView {
    step: SearchStep,
    estimate: Option<Rate>,
    stage: Stage,
}

#[test]
fn a_short_train_in_one_batch_is_refuted_by_the_next_train() {
    let mut ack = searching();
    ack(9, 17, 41, 102.505, 0);
    // 23 packets in 0.117 ms: a batch of the host, 2.4 Gb/s on a link of 1 Gb/s.
    let first = ack(32, 40, 51, 102.622, 0);
    assert_eq!(first.estimate, Some(Rate(2_358_974_358)));
    ack(41, 50, 555, 202.998, 0);
    // 502 packets in 7.6 ms are 790 Mb/s of 2.65 Gb/s that were sent: the link has 1.13 Gb/s at most.
    let second = ack(543, 554, 565, 210.619, 0);
    let estimate = second.estimate.map_or(0, |rate| rate.0 / 1_000_000);
    assert!((1100..1160).contains(&estimate), "{estimate}");
}

#[test]
fn the_head_of_a_train_and_retransmissions_before_it_do_not_end_the_ramp() {
    let mut ack = searching();
    ack(9, 17, 41, 102.5, 0);
    ack(32, 40, 51, 102.8, 6);
    ack(41, 50, 555, 203.0, 0);
    let trains = ack(543, 554, 565, 209.0, 30);
    assert!(matches!(trains.stage, Stage::Ramp));
    // 35 packets in 95 ms, before the long train.
    assert!(matches!(ack(578, 566, 4000, 303.6, 0).stage, Stage::Ramp));
    let reported = ack(1400, 1380, 4000, 313.6, 0);
    let Stage::Fill { part, .. } = reported.stage else { panic!("{:?}", reported.stage) };
    assert!(part > 0.25, "{part}");
}

#[test]
fn losses_reported_before_the_arrivals_of_a_train_are_not_an_overrun() {
    let mut ack = searching();
    ack(9, 17, 41, 102.5, 0);
    ack(32, 40, 51, 102.8, 0);
    let early = ack(62, 51, 555, 203.0, 98);
    assert_eq!(early.step, SearchStep::Continue, "98 of 512 packets, and 30 arrivals so far");
}

#[test]
fn a_train_that_came_too_fast_is_refuted_by_the_fill() {
    let rtt = Span::from_millis(10);
    let estimate = RttEstimate { latest: rtt, smoothed: rtt, variance: Span::ZERO, min: rtt };
    let moment = Moment::new(Instant::ZERO, Some(estimate), Bytes(1250));
    let cx = Context::without_chance(&moment);
    let mut search = RateSearch::new();
    let mut ack = |from: u64, to: u64, next: u64, ms: f64, lost: u64| {
        search.round.lost += lost;
        let acked = Acked {
            newly: Packets(to - from),
            total: Packets(to),
            cumulative_ack: SentNumber(to + lost - 1),
            largest: SentNumber(to + lost - 1),
            next: SentNumber(next),
            delivered: Bytes(to * 1250),
            arrived_at: Span::from_secs_f64(ms / 1e3),
            ..Acked::default()
        };
        search.on_ack(&acked, &cx)
    };
    // 10 packets a millisecond are 100 Mb/s; a machine that was suspended sends them at 400 Mb/s.
    for (from, to, next, ms) in
        [(0, 16, 32, 5.0), (16, 32, 32, 5.4), (32, 48, 137, 15.0), (48, 137, 137, 17.3)]
    {
        assert_eq!(ack(from, to, next, ms, 0), SearchStep::Continue);
    }
    // Three of four packets of the fill are lost.
    let SearchStep::Overrun { rate } = ack(137, 237, 600, 27.0, 300) else {
        panic!("three quarters are lost");
    };
    assert!((80_000_000..=110_000_000).contains(&rate.0), "{rate}");
    let trained = search.train_rate().expect("a train has shown a rate");
    assert!((100_000_000..=140_000_000).contains(&trained.0), "{trained}");
}

#[test]
fn brief_sending_below_the_link_rate_does_not_lower_the_trained_rate() {
    let moment = Moment::new(Instant::ZERO, None, Bytes(1500));
    let after = |arrived| {
        let mut search = RateSearch::new();
        search.trained = Some(Rate::from_mbps(1000));
        search.gap = Rate::from_mbps(125).gap(Bytes(1500));
        search.doubt_train(Rate::from_mbps(arrived), &Context::without_chance(&moment));
        search.train_rate()
    };
    // 110 of 125 gives a bound of 917, 92 of 348.
    let link = Some(Rate::from_mbps(1000));
    assert_eq!([125, 110, 92].map(after), [link, link, None]);
}

#[test]
fn the_fill_ends_on_low_arrivals_only_if_losses_explain_them() {
    let rtt = Span::from_millis(100);
    let rtt = RttEstimate { latest: rtt, smoothed: rtt, variance: Span::ZERO, min: rtt };
    let moment = Moment::new(Instant::ZERO, Some(rtt), Bytes(1500));
    let end = |lost| {
        let mut search = RateSearch::new();
        search.gap = Rate::from_mbps(1000).gap(Bytes(1500));
        search.round = ReportedPackets { arrived: 1000 - lost, lost };
        let seen = Filled {
            rate: Rate::from_mbps(600),
            least: rtt.min,
            delayed: false,
            is_round_over: true,
            is_half_over: true,
        };
        search.judge_fill(1.0, seen, &Acked::default(), rtt, &Context::without_chance(&moment))
    };
    assert_eq!(end(0), SearchStep::Continue);
    assert_eq!(end(10), SearchStep::Continue, "a late machine, and chance");
    assert!(matches!(end(400), SearchStep::Found { hold: None, .. }));
}
