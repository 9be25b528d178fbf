//! Tests of orbits: regions, limit cycles and locked rates of the published sets, and the end of
//! an orbit.

use super::*;
use crate::params::{Key, Set, Variant};
use crate::suspects::{lemma3_example, lemma5_example};

const LONG: Limits = Limits { rounds: 120_000, window: 100_000 };

fn at(set: Set, service_mbps: f64, variant: Variant, equation3: bool) -> Orbit {
    let p = Params::preset(set)
        .to_builder()
        .with(Key::ServiceMbps, service_mbps)
        .with(Key::RateShareInitial, 0.6)
        .with_variant(variant)
        .with_equation3(equation3)
        .build()
        .unwrap();
    follow(&p, p.gaps_initial()[0], LONG)
}

fn assert_gamma(orbit: &Orbit, expected: f64) {
    let gamma = orbit.gamma;
    assert!((gamma - expected).abs() < 5.5e-5, "γ = {gamma:.6}, expected {expected:.4}");
}

#[test]
fn pr1_exceeds_its_target_loss_with_and_without_a_queue() {
    for variant in [Variant::Recursion, Variant::Full] {
        for (mu, gamma) in [(100.0, 0.0015), (300.0, 0.0021), (500.0, 0.0023), (900.0, 0.0014)] {
            assert_gamma(&at(Set::Pr1, mu, variant, false), gamma);
        }
    }
}

#[test]
fn pr0_with_a_queue_exceeds_its_target_loss_except_near_the_interface_rate() {
    for (mu, gamma) in [(100.0, 0.0032), (300.0, 0.0022), (500.0, 0.0016), (900.0, 0.0001)] {
        assert_gamma(&at(Set::Pr0, mu, Variant::Recursion, false), gamma);
    }
}

#[test]
fn pr0_with_the_queue_always_full() {
    for (mu, gamma) in [(100.0, 0.003_22), (300.0, 0.001_45), (500.0, 0.000_35)] {
        assert_gamma(&at(Set::Pr0, mu, Variant::Full, false), gamma);
    }
}

// k2 = 10 equals C/(C−µ) = 10 and is below 1/D = 10.101: increase mode locks and γ = α. A float
// iteration without a tolerance leaves the limit by rounding alone. Equation 3 within the tolerance
// leaves the limit by d. Both average less.
#[test]
fn pr0_with_a_full_queue_locks_at_nine_tenths_of_the_interface() {
    let orbit = at(Set::Pr0, 900.0, Variant::Full, false);
    assert_eq!((orbit.end, orbit.region), (End::LockedAtTarget, Region::Locks));
    assert!((orbit.gamma - 0.001).abs() < 1e-8, "{}", orbit.gamma);
    assert_gamma(&at(Set::Pr0, 900.0, Variant::Full, true), 0.000_34);
}

#[test]
fn pr0_swings_about_the_service_rate_and_pr1_stays_above_it() {
    let pr0 = at(Set::Pr0, 500.0, Variant::Recursion, false);
    assert!((pr0.rate_min / 1e6 - 491.3).abs() < 0.1 && (pr0.rate_max / 1e6 - 510.0).abs() < 0.1);
    assert!(pr0.utilisation > 0.9999, "the queue covers the dips");
    let pr1 = at(Set::Pr1, 500.0, Variant::Recursion, false);
    assert!((pr1.rate_min / 1e6 - 500.5).abs() < 0.1 && (pr1.rate_max / 1e6 - 502.5).abs() < 0.1);
}

#[test]
fn a_limit_cycle_is_found_with_its_period_and_its_exact_average() {
    let orbit = at(Set::Pr0, 900.0, Variant::Recursion, false);
    assert_eq!(orbit.end, End::Cycle { period: 36 });
    assert!(orbit.gamma_error <= 0.0);
    // 35 rounds without loss and one round with loss.
    assert_eq!(orbit.first_runs[2..6], [35, 1, 35, 1]);
}

#[test]
fn later_decreases_can_outlast_the_first() {
    let p = lemma5_example();
    let orbit = follow(&p, p.gaps_initial()[0], Limits::default());
    let decreases: Vec<u64> = orbit.first_runs.iter().skip(1).step_by(2).copied().collect();
    assert_eq!(decreases[..7], [7, 53, 53, 53, 53, 50, 23]);
    assert_eq!((orbit.decrease.first, orbit.decrease.longest), (7, 53));
}

#[test]
fn between_the_bounds_of_lemma_3_the_start_decides_whether_the_target_is_crossed() {
    for (rate, switches) in [(300.0, 0), (499.0, 2)] {
        let p = lemma3_example(rate);
        let orbit = follow(&p, p.gaps_initial()[0], Limits::default());
        assert_eq!((orbit.end, orbit.switches), (End::LockedAtTarget, switches), "{rate}");
    }
}

#[test]
fn a_negative_gap_ends_the_orbit_and_names_the_round() {
    let p = Params::preset(Set::Pr0).to_builder().with(Key::K2, 1500.0).build().unwrap();
    let orbit = follow(&p, 28e-6, Limits::default());
    assert!(matches!(orbit.end, End::GapNotPositive { round: 1, .. }));
    assert_eq!((orbit.region, orbit.oscillates()), (Region::GapNegative, Some(false)));
}

#[test]
fn a_flow_locks_at_the_interface_rate_near_the_service_rate() {
    let p = Params::preset(Set::Pr0).to_builder().with(Key::ServiceMbps, 999.5).build().unwrap();
    let orbit = follow(&p, p.gaps_initial()[0], Limits::default());
    assert_eq!((orbit.end, orbit.switches), (End::LockedAtCapacity, 0));
}

#[test]
fn a_decrease_without_addition_never_ends() {
    // c = 0: δ tends to δ* from below, ρ to α from above.
    let builder = Params::preset(Set::Pr0).to_builder().with(Key::CUs, 0.0);
    let p = builder.with(Key::RateMbpsInitial, 900.0).with(Key::QueuePackets, 0.0).build().unwrap();
    let orbit = follow(&p, p.gaps_initial()[0], Limits { rounds: 2000, window: 500 });
    assert_eq!((orbit.region, orbit.switches), (Region::StaysOverloaded, 0));
}
