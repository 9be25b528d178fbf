//! Worked equations of SABUL 2002: gap, loss, limits of parameters, and configurable defects.

use super::*;
use sabul_cc::{Moment, RttEstimate, SentNumber};
use sabul_units::Instant;

const PACKET: Bytes = Bytes(1500);
/// L / C of 1500 bytes at 1 Gb/s.
const PACKET_TIME: Span = Span::from_micros(12);
const T: Span = Span::from_millis(200);

fn try_build(given: &[(&str, &str)]) -> Result<Box<dyn Controller>, ConfigError> {
    let given: Vec<_> = given.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    build(&ParamValues::check("sabul2002", PARAMS, &given)?, PACKET)
}

fn controller(given: &[(&str, &str)]) -> Box<dyn Controller> {
    try_build(given).unwrap()
}

fn cx() -> Context<'static> {
    let rtt = Span::from_millis(50);
    let rtt = RttEstimate { latest: rtt, smoothed: rtt, variance: Span::ZERO, min: rtt };
    Context::without_chance(&Moment::new(Instant::ZERO, Some(rtt), PACKET))
}

fn interval_of(controller: &mut dyn Controller, sent: u64, lost: u64, elapsed: Span) {
    let report = IntervalReport::new(Packets(sent), Packets(0), Packets(lost), elapsed, false);
    controller.on_interval(&report, &mut cx());
}

fn interval(controller: &mut dyn Controller, sent: u64, lost: u64) {
    interval_of(controller, sent, lost, T);
}

fn nak(controller: &mut dyn Controller, first_time: u64, repeats: u64) {
    let [first_time, repeats] = [first_time, repeats].map(Packets);
    let report = LossReport::new(first_time, repeats, SentNumber(0), SentNumber(9));
    controller.on_loss(&report, &mut cx());
}

/// Returns the time between packet starts.
fn period(controller: &dyn Controller) -> Span {
    controller.limits().gap.0
}

/// Returns the papers' gap, in picoseconds.
fn gap(controller: &dyn Controller) -> u64 {
    period(controller).saturating_sub(PACKET_TIME).0
}

#[test]
fn the_gap_is_the_pause_after_the_interfaces_serialisation_time() {
    // Eq (5) at 300 Mb/s: 12 000 bit / 300 Mb/s = 40 µs, of which 12 µs are L / C.
    let it = controller(&[("rate_mbps_initial", "300")]);
    assert_eq!(gap(&*it), 28_000_000);
    let rate = it.limits().rate(PACKET).unwrap();
    assert_eq!(rate, Rate::from_mbps(300));
    // With a C of 10 Gb/s L / C is 1.2 µs.
    let fast = controller(&[("rate_mbps_initial", "300"), ("nic_mbps", "10000")]);
    assert_eq!(period(&*fast), Span::from_micros(40));
    assert_eq!(it.limits().window, Some(Packets(25_600)));
}

#[test]
fn a_loss_free_interval_takes_a_hundredth_or_a_tenth_off_the_gap() {
    // Eq (2): 1 + k2 × (0 − 0.001) = 1 − 10 × 0.001 and 1 − 100 × 0.001; of 28 µs.
    for (set, after) in [("pr0", 27_720_000), ("pr1", 25_200_000)] {
        let mut it = controller(&[("rate_mbps_initial", "300"), ("set", set)]);
        interval(&mut *it, 1000, 0);
        assert_eq!(gap(&*it), after, "{set}");
    }
    // On the period: 40 µs × 0.99.
    let mut it = controller(&[("rate_mbps_initial", "300"), ("domain", "period")]);
    interval(&mut *it, 1000, 0);
    assert_eq!(period(&*it), Span::from_nanos(39_600));
}

#[test]
fn one_percent_loss_increases_a_gap_of_12_us_to_12_5108_us() {
    // Eq (1): 12 × (1 + 0.1 × (0.01 − 0.001)) + 0.5 = 12.5108 µs. A period of 24 µs is 500 Mb/s.
    let mut it = controller(&[("rate_mbps_initial", "500")]);
    interval(&mut *it, 1000, 10);
    assert_eq!(gap(&*it), 12_510_800);
    // Pr_1: 12 × (1 + 0.00101 × 0.009) + 0.002 = 12.00210908 µs.
    let mut it = controller(&[("rate_mbps_initial", "500"), ("set", "pr1")]);
    interval(&mut *it, 1000, 10);
    assert_eq!(gap(&*it), 12_002_109);
}

#[test]
fn loss_of_exactly_alpha_adds_d() {
    // Eq (3): 12 + 0.1 µs.
    let mut it = controller(&[("rate_mbps_initial", "500")]);
    interval(&mut *it, 1000, 1);
    assert_eq!(gap(&*it), 12_100_000);
}

#[test]
fn the_tenth_nak_adds_b_and_then_each_510th() {
    // Eq (4): 12 + 2 µs.
    let mut it = controller(&[("rate_mbps_initial", "500")]);
    let mut steps = Vec::new();
    for count in 1..=1040 {
        let before = gap(&*it);
        nak(&mut *it, 1, 0);
        if gap(&*it) > before {
            assert_eq!(gap(&*it) - before, 2_000_000);
            steps.push(count);
        }
        // Interval reports between NAKs do not change the count.
        interval(&mut *it, 0, 0);
    }
    assert_eq!(steps, [10, 520, 1030]);
}

#[test]
fn a_named_gain_takes_precedence_over_that_of_the_set() {
    let mut it = controller(&[("rate_mbps_initial", "500"), ("set", "pr1"), ("k2", "20")]);
    interval(&mut *it, 1000, 0);
    assert_eq!(gap(&*it), 11_760_000, "12 µs × (1 − 20 × 0.001)");
    interval(&mut *it, 1000, 1000);
    // 11.76 × (1 + 0.00101 × 0.999) + 0.002 µs, with k1 and c of Pr_1.
    assert_eq!(gap(&*it), 11_773_866);
    let mut it = controller(&[("c_us", "0"), ("k1", "0"), ("rate_mbps_initial", "500")]);
    interval(&mut *it, 1000, 1000);
    assert_eq!(gap(&*it), 12_000_000);
}

#[test]
fn parameters_that_contradict_each_other_are_refused() {
    for (given, named) in [
        (vec![("set", "pr1"), ("alpha", "0.01")], "k2"),
        (vec![("k2", "1000")], "k2"),
        (vec![("rate_mbps_initial", "2000")], "rate_mbps_initial"),
        (vec![("rate_mbps_initial", "1")], "rate_mbps_initial"),
        (vec![("nic_mbps", "10"), ("rate_mbps_initial", "10")], "period_ms_max"),
        (vec![("k1", "some")], "k1"),
        (vec![("c_us", "-1")], "c_us"),
        (vec![("set", "pr2")], "set"),
    ] {
        let error = try_build(&given).unwrap_err();
        assert_eq!(error.setting, format!("parameter {named} of sabul2002"), "{error}");
    }
    let error = try_build(&[("k2", "1000")]).unwrap_err().to_string();
    assert!(error.contains("less than 1000 with an alpha of 0.001"), "{error}");
    assert!(try_build(&[("k1", "set"), ("k2", "999")]).is_ok());
    let slow = [("nic_mbps", "10"), ("rate_mbps_initial", "1"), ("period_ms_max", "12")];
    assert!(try_build(&slow).is_ok());
}

#[test]
fn the_period_stays_between_the_interfaces_time_and_a_millisecond() {
    for domain in ["gap", "period"] {
        let mut it = controller(&[("rate_mbps_initial", "900"), ("domain", domain)]);
        for _ in 0..5000 {
            interval(&mut *it, 1000, 0);
        }
        assert_eq!(period(&*it), PACKET_TIME, "{domain}");
        for _ in 0..5000 {
            interval(&mut *it, 1000, 1000);
        }
        assert_eq!(period(&*it), Span::from_millis(1), "{domain}");
    }
}

#[test]
fn an_interval_without_packets_changes_nothing_by_default() {
    let mut it = controller(&[("rate_mbps_initial", "500")]);
    interval(&mut *it, 0, 5);
    assert_eq!(gap(&*it), 12_000_000);
    // Those losses do not count in the next interval.
    interval(&mut *it, 1000, 0);
    assert_eq!(gap(&*it), 11_880_000);
    let mut it = controller(&[("rate_mbps_initial", "500"), ("raise_sent", "on")]);
    interval(&mut *it, 0, 5);
    // Eq (1) at a loss of 1: 12 × (1 + 0.1 × 0.999) + 0.5 µs.
    assert_eq!(gap(&*it), 13_698_800);
}

#[test]
fn repeated_loss_reports_count_only_if_configured() {
    for (switch, after, then) in [("off", 12_510_800, 12_385_692), ("on", 12_534_800, 12_409_452)] {
        let given = [("rate_mbps_initial", "500"), ("count_repeats", switch)];
        let mut it = controller(&given);
        nak(&mut *it, 10, 0);
        nak(&mut *it, 0, 10);
        nak(&mut *it, 0, 10);
        // 10 of 1000 are lost; with repeats 30: 12 × (1 + 0.1 × 0.029) + 0.5 µs.
        interval(&mut *it, 1000, 10);
        assert_eq!(gap(&*it), after, "{switch}");
        interval(&mut *it, 1000, 0);
        // × 0.99.
        assert_eq!(gap(&*it), then, "each report belongs to one interval");
    }
}

#[test]
fn the_loss_average_weights_the_newest_interval_by_nine_tenths() {
    let mut it = controller(&[("rate_mbps_initial", "500"), ("loss", "averaged")]);
    interval(&mut *it, 1000, 10);
    // 0.9 × 1 % = 0.9 %: 12 × (1 + 0.1 × 0.008) + 0.5 µs.
    assert_eq!(gap(&*it), 12_509_600);
    interval(&mut *it, 1000, 0);
    // 0.1 × 0.9 % = 0.09 %: × (1 − 10 × 0.0001).
    assert_eq!(gap(&*it), 12_497_090);
    let meant = [("rate_mbps_initial", "500"), ("loss", "averaged"), ("loss_weight_new", "0.1")];
    let mut it = controller(&meant);
    interval(&mut *it, 1000, 50);
    interval(&mut *it, 1000, 0);
    // 0.5 %: 12 × (1 + 0.1 × 0.004) + 0.5 = 12.5048 µs; then 0.45 %: × (1 + 0.1 × 0.0035) + 0.5 µs.
    assert_eq!(gap(&*it), 13_009_177);
}

#[test]
fn syn_reports_close_together_are_one_interval_unless_any_spacing_counts() {
    let soon = Span::from_millis(20);
    let mut it = controller(&[("rate_mbps_initial", "500")]);
    interval_of(&mut *it, 100, 10, soon);
    assert_eq!(gap(&*it), 12_000_000, "too short to judge");
    interval_of(&mut *it, 900, 0, Span::from_millis(180));
    assert_eq!(gap(&*it), 12_510_800, "10 of 1000 in both together");
    let mut it = controller(&[("rate_mbps_initial", "500"), ("any_spacing", "on")]);
    interval_of(&mut *it, 100, 10, soon);
    // 10 of 100: 12 × (1 + 0.1 × 0.099) + 0.5 µs.
    assert_eq!(gap(&*it), 12_618_800);
}

#[test]
fn an_expiry_counts_as_an_interval_that_lost_everything() {
    let mut it = controller(&[("rate_mbps_initial", "500")]);
    it.on_timeout(&mut cx());
    assert_eq!(gap(&*it), 13_698_800);
}

#[test]
fn larger_packets_keep_the_gap_and_add_their_serialisation_time() {
    let mut it = controller(&[("rate_mbps_initial", "300")]);
    let mut jumbo = Context::without_chance(&Moment::new(Instant::ZERO, None, Bytes(9000)));
    let quiet = IntervalReport::new(Packets(9), Packets(0), Packets(0), T, false);
    it.on_interval(&quiet, &mut jumbo);
    // L / C is 72 µs now; the pause is 28 µs × 0.99.
    assert_eq!(period(&*it), Span::from_nanos(99_720));
}

#[test]
fn an_unused_gap_shrinks_only_if_configured() {
    for (word, is_shorter) in [("hold", false), ("rise", true)] {
        let mut controller = controller(&[("unused", word)]);
        let before = period(&*controller);
        controller.on_ack(&Acked { is_app_limited: true, ..Acked::default() }, &mut cx());
        interval(&mut *controller, 10, 0);
        assert_eq!(period(&*controller) < before, is_shorter, "{word}");
    }
}
