//! Tests of the lemmas: each lemma as printed and as corrected, with its counterexamples.

use super::*;
use crate::grid::builtin;
use crate::params::Set;
use crate::suspects::{lemma3_example, lemma5_example, lemma7_example};

fn vary(set: Set, changes: &[(Key, f64)]) -> Params {
    let builder = Params::preset(set).to_builder();
    changes.iter().fold(builder, |builder, &(key, value)| builder.with(key, value)).build().unwrap()
}

fn lemma(number: u8, p: &Params) -> LemmaReport {
    check(p).lemmas.into_iter().find(|found| found.lemma == number).unwrap()
}

fn value(report: &LemmaReport, name: &str) -> f64 {
    report.numbers.iter().find(|number| number.name == name).unwrap().value
}

/// Returns the outcomes as printed and as corrected.
fn outcomes(report: &LemmaReport) -> (Outcome, Outcome) {
    (report.printed.outcome, report.corrected.outcome)
}

#[test]
fn lemma_1_as_printed_makes_the_gap_negative_and_as_corrected_rises_to_its_limits() {
    let printed = lemma(1, &vary(Set::Pr0, &[(Key::K2, 1500.0)]));
    assert_eq!(outcomes(&printed), (Outcome::Violated, Outcome::NotApplicable));
    assert!(printed.verdict.counterexample().unwrap().what.contains("-14.0000 us in round 1"));
    // k2 = 1.5 < C/(C−µ) = 2.
    let corrected = lemma(1, &vary(Set::Pr0, &[(Key::K2, 1.5)]));
    assert_eq!(outcomes(&corrected), (Outcome::NotApplicable, Outcome::Holds));
    assert!((value(&corrected, "λ at its end") - 500.5005).abs() < 1e-3);
    assert!((value(&corrected, "ρ at its end") - 0.001).abs() < 1e-6);
}

#[test]
fn lemma_2_holds_except_for_its_limit() {
    let report = lemma(2, &Params::preset(Set::Pr0));
    assert_eq!(outcomes(&report), (Outcome::Violated, Outcome::Holds));
    assert!((value(&report, "limit of Equation 1 alone") - 2.394).abs() < 1e-3);
    assert!((value(&report, "its gap") - 5000.0).abs() < 1e-6);
}

#[test]
fn with_c_zero_a_decrease_never_ends_and_the_lemmas_do_not_apply() {
    let report = check(&vary(Set::Pr0, &[(Key::CUs, 0.0)]));
    for number in [2, 3, 4, 5, 7, 8] {
        let lemma = &report.lemmas[number - 1];
        assert_eq!(lemma.verdict, Verdict::ConditionsNotMet, "lemma {number}");
    }
}

#[test]
fn lemma_3_fails_between_its_bound_and_the_sharp_one_and_holds_beyond() {
    for start in [300.0, 499.0] {
        let report = lemma(3, &lemma3_example(start));
        assert_eq!(outcomes(&report), (Outcome::Violated, Outcome::NotApplicable), "{start}");
    }
    for set in Set::ALL {
        assert_eq!(lemma(3, &Params::preset(set)).verdict, Verdict::Holds);
    }
}

#[test]
fn lemma_4_holds_with_the_bound_of_the_proof() {
    // 91 rounds of the first increase; 85 rounds to reach µ, and at most 24 to fill the queue.
    let report = lemma(4, &Params::preset(Set::Pr0));
    assert_eq!(report.verdict, Verdict::Holds);
    let lengths = [value(&report, "T_1"), value(&report, "T'")];
    assert_eq!(lengths.map(crate::formulas::ceil_rounds), [91, 10]);
    assert!((value(&report, "λ_min measured") - 491.26).abs() < 0.1);
}

#[test]
fn lemma_5_fails_as_printed_and_its_corrected_bound_holds() {
    let report = lemma(5, &lemma5_example());
    assert_eq!(outcomes(&report), (Outcome::Violated, Outcome::Holds));
    assert!(value(&report, "bound (δ* - δ_low)/c") >= 53.0);
    let Verdict::HoldsCorrected { counterexample: Some(found) } = report.verdict else {
        panic!("{:?}", report.verdict)
    };
    assert_eq!(found.what, "decrease number 2 lasts 53 rounds, T_2 is 7");
}

#[test]
fn lemma_6_needs_k2_alpha_below_one_too() {
    let holds = lemma(6, &vary(Set::Pr0, &[(Key::ServiceMbps, 999.5)]));
    assert_eq!(holds.verdict, Verdict::Holds);
    let slow = [(Key::ServiceMbps, 999.5), (Key::K2, 1500.0)];
    let fails = lemma(6, &vary(Set::Pr0, &slow));
    assert_eq!(outcomes(&fails), (Outcome::Violated, Outcome::NotApplicable));
}

#[test]
fn lemma_7_covers_pr1_but_not_pr0_and_its_conditions_are_not_necessary() {
    let pr1 = lemma(7, &Params::preset(Set::Pr1));
    assert_eq!(outcomes(&pr1), (Outcome::Holds, Outcome::Holds));
    let pr0 = lemma(7, &Params::preset(Set::Pr0));
    assert_eq!(pr0.verdict, Verdict::ConditionsNotMet);
    assert_eq!(
        [pr0.printed.conditions[0].holds, pr0.printed.conditions[1].holds],
        [Some(false); 2]
    );
    assert!(value(&pr0, "γ") > 0.0015, "yet it loses more than α");
    // At µ = 100 Mb/s with a full queue, the corrected conditions cover Pr_0, but the printed
    // conditions do not.
    let changes =
        [(Key::ServiceMbps, 100.0), (Key::RateMbpsInitial, 60.0), (Key::QueuePackets, 0.0)];
    let covered = lemma(7, &vary(Set::Pr0, &changes));
    assert_eq!(outcomes(&covered), (Outcome::NotApplicable, Outcome::Holds));
}

#[test]
fn lemma_7_fails_where_k2_d_is_below_two() {
    for variant in [Variant::Recursion, Variant::Full] {
        let p = lemma7_example().to_builder().with_variant(variant).build().unwrap();
        let report = lemma(7, &p);
        assert_eq!(outcomes(&report), (Outcome::Violated, Outcome::NotApplicable));
        assert!((value(&report, "γ") / p.alpha() - 0.956).abs() < 1e-3);
    }
}

fn unfair(set: Set, changes: &[(Key, f64)]) -> Params {
    let start = [
        (Key::ServiceMbps, 900.0),
        (Key::RateMbpsInitial, 600.0),
        (Key::RateMbpsInitialSecond, 100.0),
    ];
    vary(set, &[&start, changes].concat())
}

fn rates_after(p: &Params, rounds: u64) -> [f64; 2] {
    share(p, p.gaps_initial(), rounds).rates_end.map(|rate| rate / 1e6)
}

fn assert_rates(rates: [f64; 2], expected: [f64; 2], within: f64) {
    let near = rates.iter().zip(expected).all(|(rate, expected)| (rate - expected).abs() < within);
    assert!(near, "{rates:?} are not {expected:?} ± {within}");
}

#[test]
fn two_flows_become_equal_with_pr0_and_more_slowly_with_pr1() {
    // The 501st round follows 500 rounds.
    let pr0 = unfair(Set::Pr0, &[]);
    assert_rates(rates_after(&pr0, 501), [470.6, 441.4], 0.1);
    assert!(share(&pr0, pr0.gaps_initial(), 2000).is_equal());
    let pr1 = unfair(Set::Pr1, &[]);
    // Pr_1 is chaotic: the last digits depend on rounding.
    assert_rates(rates_after(&pr1, 4001), [620.0, 281.0], 1.0);
    for p in [pr0, pr1] {
        assert_eq!(lemma(8, &p).verdict, Verdict::Holds);
    }
}

#[test]
fn with_c_zero_the_rates_of_two_flows_stay_unequal() {
    let p = unfair(Set::Pr0, &[(Key::CUs, 0.0)]);
    for rounds in [500, 10_000] {
        assert_rates(rates_after(&p, rounds), [732.4, 168.5], 0.2);
    }
}

#[test]
fn two_flows_that_lock_below_the_interface_stay_unequal() {
    let changes = [(Key::K2, 1.0), (Key::QueuePackets, 0.0), (Key::RateMbpsInitial, 200.0)];
    let report = lemma(8, &vary(Set::Pr0, &changes));
    assert_eq!(outcomes(&report), (Outcome::Violated, Outcome::NotApplicable));
}

#[test]
fn flows_that_start_equal_stay_equal() {
    let p = unfair(Set::Pr0, &[(Key::RateMbpsInitialSecond, 600.0)]);
    assert_eq!(lemma(8, &p).verdict, Verdict::Holds);
}

#[test]
fn late_feedback_or_equation_3_violates_the_conditions_of_every_lemma() {
    let late = vary(Set::Pr1, &[(Key::FeedbackLagRounds, 1.0)]);
    let third = Params::preset(Set::Pr1).to_builder().with_equation3(true).build().unwrap();
    for p in [late, third] {
        for lemma in check(&p).lemmas {
            assert_eq!(lemma.verdict, Verdict::ConditionsNotMet, "lemma {}", lemma.lemma);
        }
    }
}

#[test]
fn no_corrected_lemma_fails_anywhere_in_a_thousand_points() {
    let limits = Limits { rounds: 20_000, window: 2000 };
    for index in 0..1000 {
        let p = builtin(11, index, 1000).unwrap();
        for lemma in check_within(&p, limits).lemmas {
            assert_ne!(lemma.verdict, Verdict::CorrectionViolated, "lemma {}: {p}", lemma.lemma);
        }
    }
}
