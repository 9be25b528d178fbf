//! Tests of verdicts on random paths: intervals, ratios, and failed runs.

use super::*;

fn path() -> Path {
    Path {
        number: 3,
        rate_mbps: 100.0,
        rtt_ms: 40.0,
        queue_packets: 300,
        ours: 1,
        theirs: 1,
        ..Path::default()
    }
}

/// Runs with good numbers. The reference has 50 + 50 Mb/s.
fn results(theirs_bps: f64, own_loss: f64) -> SeedResults {
    let alone = TrialResult { share: 0.99, queue_packets: 10.0, ..TrialResult::default() };
    let beside = TrialResult { ours_bps: 40e6, own_loss, theirs_bps, ..TrialResult::default() };
    let reference =
        TrialResult { ours_bps: 50e6, own_loss: 0.01, theirs_bps: 50e6, ..TrialResult::default() };
    SeedResults { alone, beside, reference }
}

fn good(value: f64, low: f64, high: f64, side: Good, bound: f64) -> Verdict {
    Finding::new((value, low, high), side, bound).verdict
}

#[test]
fn a_verdict_is_open_where_the_interval_contains_the_bound() {
    use Verdict::{No, Open, Yes};
    for (low, high, at_least, below, at_most) in [
        (0.8, 0.9, Yes, No, Open),
        (0.7, 0.79, No, Yes, Yes),
        (0.7, 0.8, Open, Open, Yes),
        (0.7, 0.9, Open, Open, Open),
        (0.81, 0.9, Yes, No, No),
    ] {
        let found = [Good::AtLeast, Good::Below, Good::AtMost]
            .map(|side| good(0.5 * (low + high), low, high, side, 0.8));
        assert_eq!(found, [at_least, below, at_most], "{low} {high}");
    }
    assert_eq!(Verdict::all(&[Yes, Open, No]), No);
    assert_eq!(Verdict::all(&[Yes, Open]), Open);
    assert_eq!(Verdict::all(&[Yes, Yes]), Yes);
}

#[test]
fn the_bootstrap_interval_of_the_mean_grows_with_the_spread_of_seeds() {
    let of = |values: &[f64]| {
        bootstrap(values.len(), SeededRandom::new(1), |picked| {
            mean(picked.iter().map(|&seed| values[seed]))
        })
    };
    let equal = of(&[2.0; 10]);
    assert_eq!(equal, (2.0, 2.0, 2.0));
    let values: Vec<f64> = (1..=10).map(f64::from).collect();
    let (value, low, high) = of(&values);
    // Standard error of the mean of ten: 2.872 ÷ √10 = 0.908, times 1.96.
    assert!((value - 5.5).abs() < 1e-12);
    assert!((low - (5.5 - 1.78)).abs() < 0.2 && (high - (5.5 + 1.78)).abs() < 0.2, "{low} {high}");
    assert_eq!(of(&values), (value, low, high), "the generator has a seed");
}

#[test]
fn a_ratio_is_of_sums_over_the_same_seeds() {
    let pairs = [(1.0, 2.0), (3.0, 2.0)];
    assert!((ratio(&[0, 1], |seed| pairs[seed]) - 1.0).abs() < 1e-12);
    assert!((ratio(&[1, 1], |seed| pairs[seed]) - 1.5).abs() < 1e-12);
    assert!((ratio(&[0], |_| (0.0, 0.0)) - 1.0).abs() < 1e-12, "nothing was to be kept");
}

#[test]
fn a_path_is_met_if_all_four_verdicts_are_yes() {
    let seeds = |theirs_bps: f64, own_loss: f64| vec![results(theirs_bps, own_loss); 4];
    let result = PathResult::new(path(), &seeds(45e6, 0.001), &[]);
    assert_eq!(
        (result.alone_verdict, result.keeps_verdict, result.have_verdict),
        (Verdict::Yes, Verdict::Yes, Verdict::Yes)
    );
    assert_eq!((result.loss_verdict, result.met), (Verdict::Yes, Verdict::Yes));
    assert!(
        (result.cubic_keeps.value - 0.9).abs() < 1e-9
            && (result.ours_have.value - 0.8).abs() < 1e-9
    );
    // 0.15 × 333 packets.
    assert!((result.alone_queue_packets.bound - 50.0).abs() < 1e-9);

    let result = PathResult::new(path(), &seeds(38e6, 0.001), &[]);
    assert_eq!((result.keeps_verdict, result.met), (Verdict::No, Verdict::No), "0.76 is below 0.8");
    let more = Path { ours: 4, ..path() };
    assert_eq!(
        PathResult::new(more, &seeds(38e6, 0.001), &[]).keeps_verdict,
        Verdict::Yes,
        "0.7 is asked"
    );
    assert_eq!(PathResult::new(path(), &seeds(45e6, 0.006), &[]).loss_verdict, Verdict::No);

    let mut seeds = seeds(45e6, 0.001);
    seeds[0].beside.theirs_bps = 5e6;
    let result = PathResult::new(path(), &seeds, &[]);
    assert_eq!((result.keeps_verdict, result.met), (Verdict::Open, Verdict::Open));
}

#[test]
fn on_a_tiny_path_only_own_loss_counts_and_is_at_most_that_of_cubic() {
    for tiny in [
        Path { queue_packets: 4, ..path() },
        // 333 packets of 200 flows.
        Path { ours: 100, theirs: 100, ..path() },
    ] {
        let verdicts = |own_loss: f64| {
            let result = PathResult::new(tiny, &[results(1e6, own_loss); 4], &[]);
            [result.keeps_verdict, result.loss_verdict, result.met]
        };
        // CUBIC loses 0.01. Only own loss counts.
        assert_eq!(verdicts(0.009), [Verdict::No, Verdict::Yes, Verdict::Yes]);
        assert_eq!(verdicts(0.011), [Verdict::No; 3]);
    }
}

#[test]
fn the_lower_bound_of_a_share_is_the_wilson_bound() {
    // Without failures n ÷ (n + z²); the others from the formula by hand.
    assert!((lower_bound(20, 20) - 20.0 / (20.0 + 2.7055)).abs() < 1e-4);
    assert!((lower_bound(50, 100) - 0.4191).abs() < 1e-3);
    assert!(lower_bound(0, 20).abs() < 1e-12 && lower_bound(0, 0).abs() < 1e-12);
}

#[test]
fn a_path_with_a_failed_run_is_not_met_and_gives_the_fault() {
    let fault = ["it sent nothing".to_owned()];
    let result = PathResult::new(path(), &[results(45e6, 0.001); 3], &fault);
    assert_eq!((result.keeps_verdict, result.met), (Verdict::Yes, Verdict::No));
    assert_eq!((result.failed_runs, result.fault.as_deref()), (1, Some("it sent nothing")));
    let none = PathResult::new(path(), &[], &fault);
    assert_eq!((none.keeps_verdict, none.met), (Verdict::Open, Verdict::No));
}
