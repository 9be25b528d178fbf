//! The conformance suite over the controllers of this crate.

use sabul_cc::conformance::path::{PACKET, Path, run};
use sabul_cc::conformance::{CLEAN, check, check_params};
use sabul_lab_cc::registry::{ENTRIES, Entry, find};
use sabul_lab_cc::routers;
use sabul_units::Span;

#[test]
fn every_registered_controller_conforms() {
    let broken = ENTRIES.iter().map(|entry| (entry.name, check(entry)));
    let broken: Vec<_> = broken.filter(|(_, violations)| !violations.is_empty()).collect();
    assert_eq!(broken, []);
}

#[test]
fn only_controllers_with_routers_distinguish_chance_from_overload() {
    let tolerates =
        |entry: &Entry| entry.build(&[], PACKET).unwrap().constants().tolerates_random_loss;
    // Controllers that use sabul2026 without router support separate random loss as sabul2026 does.
    let has_router = |entry: &Entry| routers::find(entry.name).is_ok();
    assert!(ENTRIES.iter().all(|entry| tolerates(entry) == has_router(entry)));
}

/// Bounds that conflict with the defaults of other parameters. The conflicting value is
/// rejected by name.
const NOT_ALONE: [&str; 6] = [
    // k2 × alpha below one: a loss-free interval would set the gap to zero or less.
    "sabul2002 k2=1000000",
    "sabul2002 alpha=0.5",
    // A rate below one packet per `period_ms_max`, or above the interface's rate.
    "sabul2002 rate_mbps_initial=0.012",
    "sabul2002 rate_mbps_initial=100000",
    "sabul2002 nic_mbps=1",
    "sabul2002 period_ms_max=0.001",
];

#[test]
fn every_parameter_accepts_its_default_bounds_and_words_only() {
    let found: Vec<_> = ENTRIES.iter().flat_map(check_params).collect();
    assert!(found.iter().all(|found| found.rule.contains("takes")), "{found:?}");
    assert_eq!(found.iter().map(|found| found.seen.as_str()).collect::<Vec<_>>(), NOT_ALONE);
}

#[test]
fn the_search_fills_paths_of_any_rate_and_leaves_at_most_one_bdp_queued() {
    // Rows: rate, RTT. Three RTTs of ramp and two of filling, at least 100 ms.
    for (mbps, rtt_ms) in [(10, 20), (100, 10), (100, 100), (1000, 20), (1000, 100)] {
        let service = Span::from_nanos(12_000_000 / mbps);
        let rtt = Span::from_millis(rtt_ms);
        let bdp = rtt.0 / service.0;
        let path = Path { service, rtt, queue: bdp * 10, ..CLEAN };
        let mut controller = find("sabul2003").unwrap().build(&[], PACKET).unwrap();
        let trace = run(&mut controller, path, 2);
        let (at, limits) = trace.steady.expect("the search ends");
        let share = service.as_secs_f64() / limits.gap.0.as_secs_f64();
        let queue = trace.start_queue_max;
        println!("{mbps} Mb/s {rtt_ms} ms: {share:.3} at {at:?}, {queue} of {bdp} queued");
        // The first train of 32 packets may exceed the BDP of a short path.
        assert!(queue <= bdp.max(32), "{mbps} Mb/s × {rtt_ms} ms: {queue} queued, BDP {bdp}");
        assert!((0.85..=1.05).contains(&share), "{mbps} Mb/s × {rtt_ms} ms: {share}");
        assert!(at.elapsed() < rtt * 8 + Span::from_millis(60), "{mbps} × {rtt_ms}: {at:?}");
    }
}
