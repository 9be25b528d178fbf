//! Worked equations of SABUL 2003: increase, loss epochs, slow start, and bounds.

use super::*;
use sabul_cc::{Moment, RttEstimate, SentNumber};

const PACKET: Bytes = Bytes(1500);
const RTT: Span = Span::from_millis(100);

fn published(rate_mbps: &str) -> Box<dyn Controller> {
    let given = [
        ("start", "published"),
        ("bounds", "published"),
        ("rate_mbps_initial", rate_mbps),
        ("window_packets", "64"),
    ]
    .map(|(k, v)| (k.to_owned(), v.to_owned()));
    build(&ParamValues::check("sabul2003", PARAMS, &given).unwrap(), PACKET).unwrap()
}

fn cx(now: Instant) -> Context<'static> {
    let rtt = RttEstimate { latest: RTT, smoothed: RTT, variance: Span::ZERO, min: RTT };
    Context::without_chance(&Moment::new(now, Some(rtt), PACKET))
}

fn quiet_interval() -> IntervalReport {
    IntervalReport::new(Packets(833), Packets(0), Packets(0), SYN_INTERVAL, false)
}

fn loss(first: u64, largest: u64) -> LossReport {
    LossReport::new(Packets(1), Packets(0), SentNumber(first), SentNumber(largest))
}

fn leave_slow_start(controller: &mut dyn Controller) {
    let acked = Acked { total: Packets(64), ..Acked::default() };
    controller.on_ack(&acked, &mut cx(Instant::ZERO));
    assert_eq!(controller.phase().name(), "steady");
}

#[test]
fn the_increase_follows_the_published_table() {
    // Rate → packets added per SYN interval, 1500-byte packets. [SABUL §II-E]
    for (kbps, inc_nano) in [
        (1_000, 1_000_000), // 0.83 packets/SYN → 10^0 / 1000
        (5_000, 10_000_000),
        (12_000, 10_000_000), // exactly 10 packets/SYN: the decade is 10, not 100
        (50_000, 100_000_000),
        (120_000, 100_000_000),
        (121_000, 1_000_000_000),
        (1_000_000, 1_000_000_000),
        (1_200_000, 1_000_000_000),
        (1_201_000, 10_000_000_000),
        (10, 666_666), // the floor 1/1500
    ] {
        let gap = Rate(kbps * 1000).gap(PACKET).0;
        assert_eq!(increase_nano(SYN_INTERVAL, gap), inc_nano, "{kbps} kb/s");
    }
}

#[test]
fn one_quiet_interval_at_12_us_gives_1001_2_mbps() {
    // 10 ms / 12 µs = 833.33 packets; + 1 = 834.33; × 12 000 bit / 10 ms = 1001.2 Mb/s.
    let mut controller = published("1000");
    leave_slow_start(&mut *controller);
    controller.on_interval(&quiet_interval(), &mut cx(Instant::ZERO));
    let rate = controller.limits().rate(PACKET).unwrap();
    assert!((rate.as_mbps_f64() - 1001.2).abs() < 0.001, "{rate}");
}

#[test]
fn near_one_gigabit_each_interval_adds_100_packets_per_second() {
    let mut controller = published("900");
    leave_slow_start(&mut *controller);
    for _ in 0..100 {
        controller.on_interval(&quiet_interval(), &mut cx(Instant::ZERO));
    }
    // One packet more per 10 ms is 100 packets/s more; × 100 intervals × 12 000 bit = 120 Mb/s.
    let rate = controller.limits().rate(PACKET).unwrap();
    assert!((rate.as_mbps_f64() - 1020.0).abs() < 0.1, "{rate}");
}

#[test]
fn the_first_nak_of_an_epoch_cuts_by_a_ninth_and_freezes_one_rtt() {
    let mut controller = published("900");
    leave_slow_start(&mut *controller);
    let now = Instant::ZERO + Span::from_secs(1);
    controller.on_loss(&loss(50, 100), &mut cx(now));
    let limits = controller.limits();
    // 900 × 8/9 = 800 Mb/s.
    assert!((limits.rate(PACKET).unwrap().as_mbps_f64() - 800.0).abs() < 0.01);
    assert_eq!(limits.hold_until, Some(now + RTT));
}

#[test]
fn inside_an_epoch_only_the_16th_32nd_and_64th_nak_cut_and_no_nak_freezes() {
    let mut controller = published("900");
    leave_slow_start(&mut *controller);
    controller.on_loss(&loss(50, 100), &mut cx(Instant::ZERO));
    let held = controller.limits().hold_until;
    let mut cuts = Vec::new();
    for nak in 2..=70 {
        let before = controller.limits().gap;
        controller.on_loss(&loss(60, 200), &mut cx(Instant::ZERO + Span::from_secs(1)));
        if controller.limits().gap > before {
            cuts.push(nak);
        }
    }
    assert_eq!(cuts, [16, 32, 64]);
    assert_eq!(controller.limits().hold_until, held, "only condition 1 freezes");
    controller.on_loss(&loss(100, 300), &mut cx(Instant::ZERO));
    assert_eq!(controller.limits().hold_until, held, "100 was the largest sent: same epoch");
    controller.on_loss(&loss(101, 300), &mut cx(Instant::ZERO + Span::from_secs(2)));
    assert_ne!(controller.limits().hold_until, held, "beyond it a new epoch opens");
}

#[test]
fn loss_above_a_thousandth_stops_the_increase_until_the_average_decays() {
    let mut controller = published("900");
    leave_slow_start(&mut *controller);
    let lossy = IntervalReport::new(Packets(1000), Packets(0), Packets(10), SYN_INTERVAL, false);
    let gap = controller.limits().gap;
    controller.on_interval(&lossy, &mut cx(Instant::ZERO)); // average 0.9 × 1 % = 0.9 %
    assert_eq!(controller.limits().gap, gap);
    controller.on_interval(&quiet_interval(), &mut cx(Instant::ZERO)); // 0.09 %
    assert!(controller.limits().gap < gap);
}

#[test]
fn slow_start_sets_the_window_to_acknowledged_packets_and_keeps_the_rate() {
    let mut controller = published("900");
    assert_eq!(controller.limits().window, Some(Packets(1)));
    let gap = controller.limits().gap;
    for (total, window) in [(1, 1), (2, 2), (5, 5), (40, 40), (64, 64)] {
        let acked = Acked { total: Packets(total), ..Acked::default() };
        controller.on_ack(&acked, &mut cx(Instant::ZERO));
        controller.on_interval(&quiet_interval(), &mut cx(Instant::ZERO));
        assert_eq!(controller.limits().window, Some(Packets(window)));
        if window < 64 {
            assert_eq!(controller.limits().gap, gap, "no increase during slow start");
        }
    }
    assert_eq!(controller.phase().name(), "steady");
}

#[test]
fn a_loss_ends_slow_start_with_the_window_at_its_maximum() {
    let mut controller = published("900");
    controller.on_loss(&loss(0, 1), &mut cx(Instant::ZERO));
    assert_eq!(controller.limits().window, Some(Packets(64)));
    assert_eq!(controller.phase().name(), "steady");
}

#[test]
fn a_search_that_never_sees_a_spacing_stays_bounded() {
    let mut controller =
        build(&ParamValues::check("sabul2003", PARAMS, &[]).unwrap(), PACKET).unwrap();
    for round in 1..1000_u64 {
        // Everything arrives in the same microsecond, so no rate can be measured.
        let acked = Acked {
            newly: Packets(1),
            total: Packets(round),
            cumulative_ack: SentNumber(round * 1000),
            next: SentNumber(round * 1000 + 1),
            delivered: Bytes(round * 1500),
            ..Acked::default()
        };
        controller.on_ack(&acked, &mut cx(Instant::ZERO + RTT * round));
    }
    assert!(controller.limits().window.unwrap().0 <= 1 << 24);
    assert_eq!(controller.phase().name(), "ramp");
}

#[test]
fn an_initial_rate_outside_the_gap_range_is_refused_and_not_clamped() {
    let build = |mbps: &str, bytes: u64| {
        ENTRY.build(&[("rate_mbps_initial".to_owned(), mbps.to_owned())], Bytes(bytes))
    };
    assert!(build("1", 1500).is_ok(), "12 000 bits at 1 Mb/s take the longest gap, 12 ms");
    let error = build("1", 9000).unwrap_err().to_string();
    assert!(error.contains("6 to ") && error.contains("9000 bytes"), "{error}");
    assert!(build("6", 9000).is_ok());
}

#[test]
fn the_freeze_lasts_for_the_configured_rtt() {
    let now = Instant::ZERO + Span::from_secs(1);
    let [min, smoothed, latest] = [20, 50, 80].map(Span::from_millis);
    let rtt = RttEstimate { latest, smoothed, variance: Span::from_millis(7), min };
    for (word, freeze) in [("rtt-min", min), ("rtt", smoothed), ("syn", SYN_INTERVAL)] {
        let given = [("start", "published"), ("window_packets", "64"), ("freeze", word)]
            .map(|(k, v)| (k.to_owned(), v.to_owned()));
        let values = ParamValues::check("sabul2003", PARAMS, &given).unwrap();
        let mut controller = build(&values, PACKET).unwrap();
        leave_slow_start(&mut *controller);
        let mut cx = Context::without_chance(&Moment::new(now, Some(rtt), PACKET));
        controller.on_loss(&loss(1, 9), &mut cx);
        assert_eq!(controller.limits().hold_until, Some(now + freeze), "{word}");
    }
}

#[test]
fn a_half_unused_rate_is_held_only_if_app_limited() {
    // 900 Mb/s are 750 packets of 1500 bytes a SYN interval.
    for (word, is_app_limited, sent, rises) in [
        ("hold", true, 374, false),
        ("hold", true, 376, true),
        ("hold", false, 374, true),
        ("rise", true, 374, true),
    ] {
        let given = [("start", "published"), ("window_packets", "64"), ("unused", word)]
            .into_iter()
            .chain([("rate_mbps_initial", "900")])
            .map(|(k, v)| (k.to_owned(), v.to_owned()))
            .collect::<Vec<_>>();
        let values = ParamValues::check("sabul2003", PARAMS, &given).unwrap();
        let mut controller = build(&values, PACKET).unwrap();
        let acked = Acked { total: Packets(64), is_app_limited, ..Acked::default() };
        controller.on_ack(&acked, &mut cx(Instant::ZERO));
        let before = controller.limits().gap;
        let report =
            IntervalReport::new(Packets(sent), Packets(0), Packets(0), SYN_INTERVAL, false);
        controller.on_interval(&report, &mut cx(Instant::ZERO));
        assert_eq!(controller.limits().gap < before, rises, "{word} {is_app_limited} {sent}");
    }
}

#[test]
fn the_published_bounds_are_ten_microseconds_and_the_largest_window() {
    for (bounds, expected) in [("published", 1200.0), ("none", 1201.2)] {
        let given = [
            ("start", "published"),
            ("bounds", bounds),
            ("rate_mbps_initial", "1200"),
            ("window_packets", "64"),
        ]
        .map(|(k, v)| (k.to_owned(), v.to_owned()));
        let values = ParamValues::check("sabul2003", PARAMS, &given).unwrap();
        let mut controller = build(&values, PACKET).unwrap();
        leave_slow_start(&mut *controller);
        // 1000 packets a SYN interval; one more is 1201.2 Mb/s.
        controller.on_interval(&quiet_interval(), &mut cx(Instant::ZERO));
        let rate = controller.limits().rate(PACKET).unwrap().as_mbps_f64();
        assert!((rate - expected).abs() < 0.01, "{bounds}: {rate}");
        assert_eq!(controller.limits().window, Some(Packets(64)), "{bounds}");
    }
    let given = [("bounds", "published"), ("rate_mbps_initial", "1300")]
        .map(|(k, v)| (k.to_owned(), v.to_owned()));
    assert!(ENTRY.build(&given, PACKET).is_err(), "faster than one in 10 µs");
}
