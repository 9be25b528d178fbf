//! Tests of packet trains: plan of a train, measured rate, and measured queue length.

use sabul_net::{BurstLoss, Codel, EcnThreshold, LinkConfigBuilder, Red};
use sabul_units::{Probability, Random as _, SeededRandom};

use super::super::path::testing::{link, way};
use super::super::probe::ProbePlan;
use super::*;

fn plan(links: Vec<LinkConfigBuilder>) -> Train {
    Train::plan(&way(links, Span::ZERO), 1_500).unwrap()
}

fn why_not(links: Vec<LinkConfigBuilder>) -> String {
    Train::plan(&way(links, Span::ZERO), 1_500).unwrap_err()
}

fn near(a: f64, b: f64) -> bool {
    (a / b - 1.0).abs() < 1e-6
}

/// Arrivals `us` apart from number 0 on, each 10 ms after its send time.
fn every(us: u64, count: u32) -> Vec<Arrival> {
    let at = |seq| Instant::ZERO + Span::from_micros(us * u64::from(seq)) + Span::from_millis(10);
    (0..count)
        .map(|seq| Arrival { seq, sent: at(seq) - Span::from_millis(10), at: at(seq) })
        .collect()
}

/// The router's counters for `offered` packets in 0.6 s, of which `delivered` left the path.
fn counted(offered: u64, delivered: u64) -> Counted {
    let in_time = Span::from_millis(600);
    Counted { offered, in_time, refused: 100, queue_max_packets: 0, delivered }
}

#[test]
fn a_train_fills_the_queue_of_the_slowest_link_and_lasts_a_while_longer() {
    // 100 packets of 1500 bytes at 100 Mb/s: 12 ms; filled at 1.4 in 30 ms; 0.4 s more.
    let train = plan(vec![link(100, 10, 100)]);
    assert_eq!((train.packet_bytes, train.bottleneck), (1_500, 0));
    assert_eq!(train.rate, Rate::from_mbps(100));
    assert!(near(train.offered.as_mbps_f64(), 140.0));
    assert!(near(train.lasts.as_secs_f64(), 0.43), "{train:?}");
    assert_eq!(train.queue_time, Some(Span::from_millis(12)));
    assert_eq!(train.step, Span::from_millis(1));
    assert_eq!(train.drains_for(), Span::from_millis(12));
    assert!(train.is_alone);
}

#[test]
fn a_long_queue_is_filled_faster() {
    // 8333 packets at 100 Mb/s: 0.99996 s, so 1 + 0.99996 ÷ 0.75 times the rate.
    let train = plan(vec![link(100, 10, 8_333)]);
    assert!(near(train.load, 1.0 + 0.999_96 / 0.75), "{train:?}");
    assert!(near(train.lasts.as_secs_f64(), 1.15), "{train:?}");
    assert_eq!(train.drains_for(), Span::from_micros(999_960));
    // No train fills a queue of 100 s.
    let train = plan(vec![link(100, 10, 833_333)]);
    assert!(near(train.load, 8.0) && train.lasts <= Span::from_millis(1_500), "{train:?}");
    assert_eq!(train.drains_for(), Span::from_secs(1));
}

#[test]
fn a_fast_link_gets_no_more_bytes_than_the_machine_can_hold() {
    // 1.4 × 100 Gb/s: 512 MB pass in 29.257 ms.
    let queue = QueueLimit::Unlimited;
    let train = plan(vec![link(100_000, 1, 1).with_queue(queue)]);
    assert!((train.lasts.as_millis_f64() - 29.257).abs() < 0.001, "{train:?}");
}

#[test]
fn a_slow_link_gets_smaller_packets() {
    // 50 packets in half of 1.5 s at 100 kb/s: 187 bytes each; at 20 kb/s 37, so 100.
    let slow = |rate| link(1, 1, 5).with_rate(Some(Rate(rate)));
    assert_eq!(plan(vec![slow(100_000)]).packet_bytes, 187);
    assert_eq!(plan(vec![slow(20_000)]).packet_bytes, 100);
    // 1.5 s at 5 kb/s are 937 bytes.
    assert!(why_not(vec![slow(5_000)]).contains("only about 9 packets"));
    // The path's limit on the packet size takes precedence.
    assert_eq!(Train::plan(&way(vec![slow(100_000)], Span::ZERO), 68).unwrap().packet_bytes, 68);
}

#[test]
fn the_measured_bottleneck_is_the_last_overloaded_link() {
    // 14 Mb/s fill the first two queues; the second link gets 12 Mb/s, and the third link no more
    // than its rate.
    let train = plan(vec![link(12, 1, 50), link(10, 1, 50), link(10, 1, 50)]);
    assert_eq!((train.bottleneck, train.is_alone), (1, false));
    assert!(near(train.load, 1.2), "{train:?}");
    let train = plan(vec![link(100, 1, 50), link(10, 1, 50)]);
    assert_eq!((train.bottleneck, train.is_alone), (1, true));
}

#[test]
fn losses_before_the_slowest_link_are_compensated_by_more_packets() {
    let half = Probability::per_mille(500);
    let free = || LinkConfig::builder().with_loss(half);
    let train = plan(vec![free(), link(10, 1, 50)]);
    assert!(near(train.offered.as_mbps_f64(), 28.0) && near(train.load, 1.4), "{train:?}");
    // If a rate limits the offer, that link is the bottleneck: 12 ÷ 2 < 10.
    let train = plan(vec![link(12, 1, 50).with_loss(half), link(10, 1, 50)]);
    assert_eq!((train.bottleneck, train.rate), (0, Rate::from_mbps(12)));
    assert!(near(train.arriving, 6e6), "{train:?}");
    let all = Probability::per_mille(990);
    assert!(why_not(vec![free().with_loss(all), link(10, 1, 50)]).contains("too few"));
}

#[test]
fn the_expected_arrival_rate_includes_loss_duplication_and_corruption() {
    // 10 Mb/s × 0.9 × 1.05 arrive. The router still delivers the 2 % that are damaged.
    let rough = link(10, 1, 50)
        .with_loss(Probability::per_mille(100))
        .with_duplicate(Probability::per_mille(50))
        .with_corrupt(Probability::per_mille(20));
    let train = plan(vec![rough, link(100, 1, 50)]);
    assert!(near(train.arriving, 9.45e6) && near(train.intact, 0.98), "{train:?}");
}

#[test]
fn a_path_without_a_rate_gets_no_packet_train() {
    assert!(why_not(vec![LinkConfig::builder()]).contains("no link has a rate"));
    assert!(why_not(vec![]).contains("no link has a rate"));
}

#[test]
fn a_rate_is_the_bytes_over_the_time_of_those_that_arrive() {
    // 1500 bytes every 120 µs are 100 Mb/s; 5000 of 7000 offered in 0.6 s pass.
    let train = plan(vec![link(100, 10, 100)]);
    let config = link(100, 10, 100).build().unwrap();
    let check = |us| train.rate_check(&config, &every(us, 5_000), counted(7_000, 5_000)).unwrap();
    assert_eq!(check(120).quantity, "rate_mbps");
    assert!(near(check(120).measured, 100.0) && near(check(120).wanted, 100.0));
    assert!(near(check(120).tolerance, 2.0));
    // 118 µs: 101.69; 117 µs: 102.56; 122 µs: 98.36; 123 µs: 97.56.
    for (us, is_met) in [(118, true), (117, false), (122, true), (123, false)] {
        assert_eq!(check(us).is_met, is_met, "{us}");
    }
}

#[test]
fn a_pause_or_two_do_not_change_a_rate() {
    let mut arrivals = every(120, 5_000);
    for arrival in &mut arrivals[3_000..] {
        arrival.at = arrival.at + Span::from_millis(50);
    }
    for arrival in &mut arrivals[4_500..] {
        arrival.at = arrival.at + Span::from_millis(20);
    }
    let times: Vec<Instant> = arrivals[2_500..].iter().map(|arrival| arrival.at).collect();
    assert!(near(typical_rate(&times, 12_000.0, 8).unwrap(), 1e8));
}

#[test]
fn a_train_without_arrivals_has_no_rate() {
    let train = plan(vec![link(100, 10, 100)]);
    let config = link(100, 10, 100).build().unwrap();
    let check = train.rate_check(&config, &[], counted(7_000, 0)).unwrap();
    assert!(!check.is_met && check.measured.abs() < 1e-9, "{check:?}");
    assert_eq!(typical_rate(&[Instant(5)], 1.0, 8), None);
    assert_eq!(typical_rate(&[Instant(5); 40], 1.0, 8), None, "all at once");
    assert_eq!(full_queue_wait(&[]), None);
}

#[test]
fn losses_behind_the_bottleneck_are_added_back_and_widen_the_tolerance() {
    // Half of the packets are lost behind the bottleneck: 240 µs apart are 100 Mb/s again. For 2500
    // arrivals, 3 × 1.4 × √(0.5 ÷ 0.5 ÷ 2500) = 8.4 %, and 2 %.
    let lossy = link(100, 10, 100).with_loss(Probability::per_mille(500));
    let train = plan(vec![lossy.clone()]);
    let config = lossy.build().unwrap();
    let arrivals = every(240, 5_000);
    let check = train.rate_check(&config, &arrivals, counted(7_000, 5_000)).unwrap();
    assert!(near(check.measured, 100.0) && near(check.tolerance, 10.4), "{check:?}");
}

#[test]
fn a_rate_is_not_judged_when_something_else_limited_it() {
    let config = link(100, 10, 100);
    let check = |config: LinkConfigBuilder, offered, delivered| {
        let train = plan(vec![config.clone()]);
        let counted = counted(offered, delivered);
        let config = config.build().unwrap();
        train.rate_check(&config, &every(120, 5_000), counted).unwrap_err()
    };
    // 5000 × 12 000 bit in 0.6 s are exactly the rate.
    assert!(check(config.clone(), 5_000, 5_000).contains("only 100.000 Mbit/s reached"));
    assert!(check(config.clone(), 7_000, 6_000).contains("only 5000 of 6000"));
    // The second half of the arrivals takes 0.3 s; 0.1 s of jitter hides a third.
    let rough = config.clone().with_jitter(Span::from_millis(100));
    assert!(check(rough, 7_000, 5_000).contains("below 35 %"));
    let red = config.clone().with_discipline(Discipline::Red(Red::default()));
    assert!(check(red, 7_000, 5_000).contains("random early detection"));
    // Four packets of 0.12 ms.
    let short = config.with_queue(QueueLimit::Packets(4));
    assert!(check(short, 7_000, 5_000).contains("0.480 ms"));
}

/// A queue that grows from zero to 12 ms over the first 1000 of 5000 packets, behind 10 ms.
fn filling() -> Vec<Arrival> {
    let mut arrivals = every(120, 5_000);
    for arrival in &mut arrivals {
        let waits = Span::from_micros(12 * u64::from(arrival.seq.min(1_000)));
        arrival.sent = arrival.sent - waits;
    }
    arrivals
}

#[test]
fn queue_length_is_derived_from_the_waiting_time_of_packets() {
    // 12 ms at 100 Mb/s are 100 packets of 1500 bytes. 5 % of 100, one packet, and 0.3 ms (2.5).
    let config = link(100, 10, 100).build().unwrap();
    let train = plan(vec![config.to_builder()]);
    let check = train.queue_check(&config, &filling(), counted(7_000, 5_000)).unwrap();
    assert!(near(check.measured, 100.0) && near(check.wanted, 100.0), "{check:?}");
    assert!(near(check.tolerance, 8.5) && check.is_met, "{check:?}");
    let wrong = link(100, 10, 110).build().unwrap();
    let check = train.queue_check(&wrong, &filling(), counted(7_000, 5_000)).unwrap();
    assert!(!check.is_met, "{check:?}");
    // A few packets with additional delay do not count.
    let mut late = filling();
    for arrival in &mut late[4_901..] {
        arrival.at = arrival.at + Span::from_millis(9);
    }
    let check = train.queue_check(&config, &late, counted(7_000, 5_000)).unwrap();
    assert!(near(check.measured, 100.0), "{check:?}");
}

#[test]
fn a_queue_in_bytes_counts_in_packets() {
    // 150 000 bytes are 100 packets; the router may count two fewer.
    let config = link(100, 10, 1).with_queue(QueueLimit::Bytes(150_000)).build().unwrap();
    let train = plan(vec![config.to_builder()]);
    let check = train.queue_check(&config, &filling(), counted(7_000, 5_000)).unwrap();
    assert!(near(check.wanted, 100.0) && check.is_met, "{check:?}");
    let check = |queue_max_packets| {
        let counted = Counted { queue_max_packets, ..counted(7_000, 5_000) };
        train.counted_check(&config, counted).unwrap().is_met
    };
    assert_eq!([97, 98, 100, 102, 103].map(check), [false, true, true, true, false]);
}

#[test]
fn the_routers_count_of_a_queue_in_packets_is_exact() {
    let config = link(100, 10, 100).build().unwrap();
    let train = plan(vec![config.to_builder()]);
    let check = |queue_max_packets| {
        let counted = Counted { queue_max_packets, ..counted(7_000, 5_000) };
        train.counted_check(&config, counted).unwrap()
    };
    assert_eq!(check(100).quantity, "queue_packets_counted");
    assert_eq!([99, 100, 101].map(|max| check(max).is_met), [false, true, false]);
}

#[test]
fn a_queue_is_not_judged_when_its_length_cannot_be_observed() {
    let check = |config: LinkConfigBuilder, refused| {
        let train = plan(vec![config.clone()]);
        let counted = Counted { refused, ..counted(7_000, 5_000) };
        let config = config.build().unwrap();
        let why = |check: Result<Check, String>| check.err().unwrap_or_default();
        [
            why(train.queue_check(&config, &filling(), counted)),
            why(train.counted_check(&config, counted)),
        ]
    };
    let config = || link(100, 10, 100);
    let both = |part: &str, [delays, counted]: [String; 2]| {
        assert!(delays.contains(part) && counted.contains(part), "{delays}; {counted}");
    };
    both(
        "not the length alone",
        check(config().with_discipline(Discipline::Codel(Codel::default())), 9),
    );
    both("no limit", check(config().with_queue(QueueLimit::Unlimited), 9));
    both("did not fill the queue", check(config(), 0));
    let ecn = EcnThreshold { mark_packets: 5 };
    both("", check(config().with_discipline(Discipline::EcnThreshold(ecn)), 9));
    // The router's count remains valid where only the delay does not show the length.
    let delays_only = |part: &str, [delays, counted]: [String; 2]| {
        assert!(delays.contains(part) && counted.is_empty(), "{delays}; {counted}");
    };
    delays_only("jitter", check(config().with_jitter(Span::from_millis(12)), 9));
    delays_only("too fast for a host", check(link(100, 10, 4), 9));
    delays_only("more than a second", check(link(100, 10, 8_400), 9));
    let (train, config) = (plan(vec![link(100, 10, 100)]), link(100, 10, 100).build().unwrap());
    let why = train.queue_check(&config, &filling(), counted(5_000, 5_000)).unwrap_err();
    assert!(why.contains("too little to fill it"), "{why}");
    let two = plan(vec![link(12, 1, 50), link(10, 1, 50)]);
    let second = link(10, 1, 50).build().unwrap();
    let why = two.queue_check(&second, &filling(), counted(7_000, 5_000)).unwrap_err();
    assert!(why.contains("more than one queue"), "{why}");
}

#[test]
fn counts_cover_only_the_train() {
    let stats = |arrived, dropped_full, delivered| LinkStats {
        arrived,
        dropped_full,
        delivered,
        queue_max_packets: 42,
        ..LinkStats::default()
    };
    let before = [stats(10, 1, 9), stats(8, 0, 8)];
    let after = [stats(110, 31, 79), stats(78, 0, 70)];
    let in_time = Span::from_millis(5);
    let counted = Counted::between(before, after, in_time);
    // Six of the hundred were the lone packets.
    let expected =
        Counted { offered: 94, in_time, refused: 30, queue_max_packets: 42, delivered: 62 };
    assert_eq!(counted, expected);
    // After a restart of the router in between, the count is zero.
    assert_eq!(Counted::between(after, before, in_time).offered, 0);
}

/// Any number up to `most`, small numbers as likely as large numbers.
fn some(random: &mut SeededRandom, most: u64) -> u64 {
    let most = most >> random.below(40).min(u64::from(most.ilog2()));
    random.below(most + 1)
}

fn strange_link(random: &mut SeededRandom) -> LinkConfig {
    let hour = 3_600_000_000_000_000;
    let chance = |random: &mut SeededRandom| match random.below(8) {
        0 => Probability::ONE,
        1..4 => Probability::per_mille(some(random, 1_000)),
        _ => Probability::ZERO,
    };
    let queue = match random.below(3) {
        0 => QueueLimit::Unlimited,
        1 => QueueLimit::Bytes(some(random, u64::MAX - 1) + 1),
        _ => QueueLimit::Packets(some(random, u64::MAX - 1) + 1),
    };
    let discipline = match random.below(4) {
        0 => Discipline::Red(Red::default()),
        1 => Discipline::Codel(Codel::default()),
        2 => Discipline::EcnThreshold(EcnThreshold { mark_packets: 1 }),
        _ => Discipline::DropTail,
    };
    let mtu = u32::try_from(68 + some(random, 65_000)).unwrap();
    LinkConfig::builder()
        .with_rate((random.below(4) > 0).then(|| Rate(1_000 + some(random, 999_999_999_000))))
        .with_delay(Span(some(random, hour)))
        .with_jitter(Span(some(random, hour)))
        .with_queue(queue)
        .with_discipline(discipline)
        .with_loss(chance(random))
        .with_burst_loss(BurstLoss::for_mean(chance(random), 3.0))
        .with_duplicate(chance(random))
        .with_corrupt(chance(random))
        .with_reorder(chance(random), Span(1 + some(random, hour - 1)))
        .with_mtu((random.below(2) == 0).then_some(mtu))
        .build()
        .unwrap()
}

/// The seed determines the path: a failure repeats with the printed seed.
#[test]
fn a_random_path_is_measured_in_bounded_time_or_refused() {
    let mut trains = 0;
    for seed in 0..5_000 {
        let mut random = SeededRandom::new(seed);
        let links = (0..random.below(4)).map(|_| strange_link(&mut random)).collect();
        let way = Direction { links, access_delay: Span(some(&mut random, 1_000_000_000_000)) };
        if let Ok(plan) = ProbePlan::rtt(&way, &way, 64) {
            assert!((5..=20).contains(&plan.count), "seed {seed}: {plan:?}");
            assert!(plan.time() <= Span::from_millis(5_200), "seed {seed}: {plan:?}");
        }
        if let Ok(plan) = ProbePlan::loss(&way, 64) {
            assert!(plan.time() <= Span::from_secs(1), "seed {seed}: {plan:?}");
            let tolerance = way.odds().tolerance(plan.count);
            assert!(tolerance.is_finite() && tolerance >= 0.0, "seed {seed}: {tolerance}");
        }
        let Ok(train) = Train::plan(&way, way.mtu().unwrap_or(1_500)) else { continue };
        trains += 1;
        assert!(train.packet_bytes >= 68, "seed {seed}: {train:?}");
        assert!(train.lasts <= Span::from_millis(1_500), "seed {seed}: {train:?}");
        assert!(train.drains_for() <= Span::from_secs(1), "seed {seed}: {train:?}");
        assert!(train.lone_gap * LONE.into() <= Span::from_secs(1), "seed {seed}: {train:?}");
        assert!(train.step >= STEP_MIN && train.step <= STEP_MAX, "seed {seed}: {train:?}");
        assert!(train.load > 1.0 && train.arriving > 0.0, "seed {seed}: {train:?}");
        let link = &way.links[train.bottleneck];
        for arrivals in [vec![], every(10, 1), every(10, 500)] {
            let counted = counted(seed % 3 * 50_000, arrivals.len() as u64);
            let checks = [
                train.rate_check(link, &arrivals, counted),
                train.queue_check(link, &arrivals, counted),
                train.counted_check(link, counted),
            ];
            for check in checks.into_iter().flatten() {
                let numbers = [check.wanted, check.measured, check.tolerance];
                let sane = numbers.iter().all(|number| number.is_finite() && *number >= 0.0);
                assert!(sane, "seed {seed}: {check:?}");
            }
        }
    }
    assert!(trains > 500, "{trains}");
}
