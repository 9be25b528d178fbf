//! Links whose rate is not constant.

use sabul_units::{Instant, Rate, SeededRandom, Span};

use crate::config::LinkConfigBuilder;
use crate::shape::{RateWalk, TokenBucket};
use crate::{
    DelayStep, Discipline, FqCodel, Link, LinkConfig, QueueLimit, RateStep, Trace, Verdict,
};

fn link(change: impl Fn(LinkConfigBuilder) -> LinkConfigBuilder) -> Link<u32> {
    let builder = LinkConfig::builder()
        .with_rate(Some(Rate::from_mbps(8)))
        .with_queue(QueueLimit::Packets(1_000));
    Link::new(change(builder).build().unwrap(), &SeededRandom::new(1))
}

/// Pushes `count` packets of 1000 bytes at once; returns the arrival of the last.
fn last_of(link: &mut Link<u32>, count: u32) -> Instant {
    for number in 0..count {
        link.push(Instant::ZERO, 1_000, number);
    }
    let mut last = Instant::ZERO;
    while let Some(at) = link.deadline() {
        while let Some(delivery) = link.next_delivery(at) {
            last = delivery.at;
        }
    }
    assert_eq!(link.stats().delivered, u64::from(count));
    last
}

#[test]
fn a_policer_drops_packets_before_the_queue() {
    let policer = TokenBucket { rate: Rate::from_mbps(8), bytes: 3_000 };
    let mut link = link(|it| it.with_policer(Some(policer)).with_rate(Some(Rate::from_mbps(100))));
    let verdicts: Vec<Verdict> = (0..5).map(|n| link.push(Instant::ZERO, 1_000, n)).collect();
    assert_eq!(verdicts[2..4], [Verdict::Queued, Verdict::DroppedEarly]);
    assert_eq!((link.stats().dropped_early, link.stats().dropped_full), (2, 0));
}

#[test]
fn a_shaper_sends_its_bucket_at_the_burst_rate_under_any_discipline() {
    let shaper = TokenBucket { rate: Rate::from_mbps(80), bytes: 10_000 };
    for discipline in [Discipline::DropTail, Discipline::FqCodel(FqCodel::default())] {
        let mut link = link(|it| it.with_shaper(Some(shaper)).with_discipline(discipline.clone()));
        // Ten in one millisecond, and meanwhile one is earned; the other nine take one millisecond
        // each.
        let last = last_of(&mut link, 20).elapsed();
        let wanted = Span::from_micros(10_100);
        assert!(last.0.abs_diff(wanted.0) < Span::from_millis(1).0, "{last:?}");
    }
}

#[test]
fn a_random_walk_rate_serves_packets_between_its_two_extremes() {
    let walk = RateWalk { low: Rate::from_mbps(2), every: Span::from_millis(20) };
    let last = last_of(&mut link(|it| it.with_rate_walk(Some(walk))), 900).elapsed();
    assert!(last > Span::from_millis(950) && last < Span::from_millis(3_600), "{last:?}");
    let steady = link(|it| it.with_rate_walk(Some(walk))).config().steady();
    let last = last_of(&mut Link::new(steady, &SeededRandom::new(1)), 900).elapsed();
    assert_eq!(last, Span::from_millis(900));
}

#[test]
fn a_queue_drains_at_the_rate_of_each_step_under_any_discipline() {
    let at = |ms| Instant::ZERO + Span::from_millis(ms);
    let steps = vec![
        RateStep { at: at(10), rate: Rate::from_mbps(2) },
        RateStep { at: at(50), rate: Rate::from_mbps(80) },
    ];
    for discipline in [Discipline::DropTail, Discipline::FqCodel(FqCodel::default())] {
        let mut link =
            link(|it| it.with_rate_steps(steps.clone()).with_discipline(discipline.clone()));
        // Ten packets in 10 ms, ten in 40 ms, ten in 1 ms.
        let last = last_of(&mut link, 30).elapsed();
        assert!(last.0.abs_diff(Span::from_millis(51).0) < 1_000, "{last:?}");
    }
    let config = link(|it| it.with_rate_steps(steps.clone())).config().clone();
    assert_eq!(config.rate_max(), Some(Rate::from_mbps(80)));
    let mean = config.mean_rate(Instant::ZERO, at(100)).unwrap() / 1e6;
    assert!((mean - (0.8 + 0.8 + 40.0)).abs() < 1e-9, "{mean}");
    assert_eq!(config.steady().rate_steps(), []);
}

#[test]
fn delay_steps_keep_packet_order_and_apply_from_their_time() {
    let at = |ms| Instant::ZERO + Span::from_millis(ms);
    let step = |ms, delay| DelayStep { at: at(ms), delay: Span::from_millis(delay) };
    let steps = vec![step(10, 5), step(40, 100)];
    let delay = Span::from_millis(20);
    let mut link = link(|it| it.with_delay(delay).with_delay_steps(steps.clone()));
    let mut arrivals = Vec::new();
    for number in 0..60 {
        link.push(at(number), 1_000, u32::try_from(number).unwrap());
    }
    while let Some(delivery) = link.next_delivery(at(1_000)) {
        arrivals.push((delivery.payload, delivery.at.elapsed().0 / Span::from_millis(1).0));
    }
    assert!(arrivals.iter().map(|(number, _)| *number).eq(0..60), "{arrivals:?}");
    // Packet n leaves at n + 1 ms. Packets that leave at 10 to 24 ms would arrive before packet 8,
    // at 29 ms.
    let wanted = |number: u64| match number + 1 {
        left @ 0..10 => left + 20,
        left @ 10..40 => (left + 5).max(29),
        left => left + 100,
    };
    assert!(arrivals.iter().all(|(number, ms)| *ms == wanted((*number).into())), "{arrivals:?}");
    assert_eq!(link.config().delay_min(), Span::from_millis(5));
}

#[test]
fn a_trace_sends_only_at_its_opportunities_under_any_discipline() {
    let at = |ms| Instant::ZERO + Span::from_millis(ms);
    let trace = Trace::parse(b"2\n2\n10\n").unwrap();
    for discipline in [Discipline::DropTail, Discipline::FqCodel(FqCodel::default())] {
        let mut link = link(|it| {
            it.with_trace(Some(trace.clone())).with_framing(4).with_discipline(discipline.clone())
        });
        for (ms, size) in [(0, 1_500), (0, 1_500), (0, 1_500), (10, 1_500), (12, 100), (12, 100)] {
            link.push(at(ms), size, u32::try_from(ms).unwrap());
        }
        let next = |link: &mut Link<u32>| Some(link.next_delivery(at(100))?.at.elapsed());
        let times: Vec<u64> = std::iter::from_fn(|| next(&mut link)).map(Span::as_micros).collect();
        // The packet that arrives at 10 ms misses 10 and leaves at 12; those of 12 leave at 20.
        assert_eq!(times, [2_000, 2_000, 10_000, 12_000, 20_000, 20_000], "{discipline:?}");
        let mean = link.config().mean_rate(at(0), at(10)).unwrap();
        assert!((mean - 3.0 * 1_504.0 * 8.0 / 0.01).abs() < 1e-3, "{mean}");
        assert!(link.config().steady().trace().is_none());
        assert_eq!(link.config().steady().rate(), Some(trace.mean_rate()));
    }
}
