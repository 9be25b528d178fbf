//! Lemmas 3, 4 and 5: alternation of the modes, and the length of each run. [OVV-T §III-B]

use super::statement::{
    Claim, Context, Draft, Relation, Statement, fast_interface, number, optional, positive_gap,
    standing,
};
use crate::formulas::{
    ceil_rounds, gap_at_target, k2_printed, k2_sharp, lowest_rate, rounds_to_fill,
    rounds_to_service,
};
use crate::map::{Map, Mode};
use crate::orbit::{End, Orbit};
use crate::params::Params;

/// Returns the conditions of Lemma 3, which Lemmas 4 and 5 also require.
fn printed_conditions(p: &Params) -> Vec<Claim> {
    let mut conditions = vec![
        fast_interface(p),
        positive_gap(p),
        Claim::compare("k2 > C/(C-µ)", p.k2(), Relation::Above, k2_printed(p)),
    ];
    conditions.extend(standing(p));
    conditions
}

/// Returns the same conditions with the sharp bound on k2.
fn corrected_conditions(p: &Params) -> Vec<Claim> {
    let mut conditions = vec![fast_interface(p), positive_gap(p)];
    // If D is not positive, the first condition already fails.
    conditions.push(Claim::compare("k2 > 1/D", p.k2(), Relation::Above, k2_sharp(p)));
    conditions.extend(standing(p));
    conditions
}

/// Lemma 3. The proof assumes a queue that is not yet full for `µ ≤ λ < µ/(1−α)`. With a full
/// queue, or without a queue, increase mode has an attracting limit up to `k2 = 1/D`. Between
/// `C/(C−µ)` and `1/D` the result therefore depends on the start.
pub(super) fn lemma3(context: &Context<'_>) -> Draft {
    let (p, orbit) = (context.params, context.orbit);
    let checks = || {
        let oscillates = orbit.oscillates();
        vec![
            Claim::fact("modes take turns: a cycle, or 20 changes without an end", oscillates),
            Claim::fact("increase mode does not lock", !matches!(orbit.end, End::LockedAtTarget)),
        ]
    };
    let printed = Statement::new(printed_conditions(p), checks);
    let corrected = Statement::new(corrected_conditions(p), checks);
    let what = format!(
        "k2 = {:.4} lies between C/(C-µ) = {:.4} and 1/D = {:.4}: increase mode locks at \
         µ/(1-α) after {} changes of mode",
        p.k2(),
        k2_printed(p),
        k2_sharp(p),
        orbit.switches
    );
    let mut numbers = vec![
        number("changes of mode", orbit.switches as f64, ""),
        number("C/(C-µ)", k2_printed(p), ""),
        number("1/D", k2_sharp(p), ""),
    ];
    if let End::Cycle { period } = orbit.end {
        numbers.push(number("cycle", period as f64, "rounds"));
    }
    Draft { printed, corrected, numbers, failure: Some((what, p.k2() / k2_printed(p) - 1.0)) }
}

/// Returns whether a complete run exists; `None` if the iteration was cut off before.
fn has_complete(orbit: &Orbit, has_run: bool) -> Option<bool> {
    if has_run || orbit.end != End::TooLong { Some(has_run) } else { None }
}

/// Returns the rounds of increase mode from `gap` with an empty queue; `None` if it lasts `most`
/// rounds.
fn increase_from(p: &Params, gap: f64, most: u64) -> Option<u64> {
    let mut map = Map::new(p, [gap]);
    (0..most).find(|_| !matches!(map.step(), Ok(round) if round.mode == Mode::Increase))
}

/// Lemma 4, with λ_min measured, because the printed formulas for it are wrong; see
/// [`crate::formulas::LowestRate`]. The corrected statement has the bound of the proof plus two
/// rounds: the round that starts a run, and the round that ends it.
pub(super) fn lemma4(context: &Context<'_>) -> Draft {
    let (p, orbit) = (context.params, context.orbit);
    let start = p.gaps_initial()[0];
    let highest = orbit.gap_highest_s;
    let from_lowest = highest.and_then(|gap| increase_from(p, gap, context.limits.rounds));
    let longest = orbit.increase.longest as f64;
    let has_run = orbit.increase.count > 0;
    let starts = || {
        vec![
            Claim::fact("starts in increase mode", orbit.starts_in_increase),
            Claim::fact("has a complete increase", has_complete(orbit, has_run)),
        ]
    };
    let bound = orbit.increase.first.max(from_lowest.unwrap_or(0));
    let is_known = highest.is_none() || from_lowest.is_some();
    let printed = Statement::new([printed_conditions(p), starts()].concat(), || {
        let what = "longest increase <= max(T_1, T')";
        let claim = Claim::compare(what, longest, Relation::AtMost, bound as f64);
        vec![claim.if_decided(is_known)]
    });
    let gap = highest.map_or(start, |gap| gap.max(start));
    let (climb, fill) = (rounds_to_service(p, gap), rounds_to_fill(p));
    let corrected = Statement::new([corrected_conditions(p), starts()].concat(), || {
        let what = "longest increase <= n' + l + 2";
        vec![Claim::compare(what, longest, Relation::AtMost, (climb + fill + 2) as f64)]
    });
    let low = lowest_rate(p);
    let mut numbers = vec![
        number("T_1", orbit.increase.first as f64, "rounds"),
        number("longest increase", longest, "rounds"),
        number("n', to reach µ", climb as f64, "rounds"),
        number("l, to fill the queue", fill as f64, "rounds"),
    ];
    numbers.extend(optional("T'", from_lowest.map(|rounds| rounds as f64), "rounds"));
    numbers.extend(optional("λ_min measured", highest.map(|gap| p.rate_of(gap) / 1e6), "Mb/s"));
    numbers.extend([
        number("λ_min1 iterated", low.first / 1e6, "Mb/s"),
        number("λ_min1 printed", low.first_printed / 1e6, "Mb/s"),
        number("λ_min1 corrected", low.first_corrected / 1e6, "Mb/s"),
        number("λ_min2 iterated", low.second / 1e6, "Mb/s"),
        number("λ_min2 printed", low.second_printed / 1e6, "Mb/s"),
        number("λ_min2 corrected", low.second_corrected / 1e6, "Mb/s"),
        number("c0 of case (i)", low.c0 * 1e6, "us"),
    ]);
    let what = format!(
        "increase number {} lasts {} rounds, max(T_1, T') is {bound}",
        orbit.increase.longest_number, orbit.increase.longest
    );
    Draft { printed, corrected, numbers, failure: Some((what, longest / bound.max(1) as f64)) }
}

/// Lemma 5. T_2 depends on the start, so later decreases can last longer. The corrected bound: each
/// round of a decrease adds at least c to the gap, from the smallest gap after an increase up to
/// δ*.
pub(super) fn lemma5(context: &Context<'_>) -> Draft {
    let (p, orbit) = (context.params, context.orbit);
    let longest = orbit.decrease.longest as f64;
    let first = orbit.decrease.first as f64;
    let has_run = orbit.decrease.count > 0;
    let starts = || {
        vec![
            Claim::fact("starts in increase mode", orbit.starts_in_increase),
            Claim::fact("has a complete decrease", has_complete(orbit, has_run)),
        ]
    };
    let printed = Statement::new([printed_conditions(p), starts()].concat(), || {
        vec![Claim::compare("longest decrease <= T_2", longest, Relation::AtMost, first)]
    });
    let lowest = orbit.gap_lowest_s.unwrap_or(0.0);
    let bound = ceil_rounds((gap_at_target(p) - lowest) / p.c());
    let corrected = Statement::new([corrected_conditions(p), starts()].concat(), || {
        let what = "longest decrease <= (δ* - δ_low)/c";
        vec![Claim::compare(what, longest, Relation::AtMost, bound as f64)]
    });
    let what = format!(
        "decrease number {} lasts {} rounds, T_2 is {}",
        orbit.decrease.longest_number, orbit.decrease.longest, orbit.decrease.first
    );
    let numbers = vec![
        number("T_2", first, "rounds"),
        number("longest decrease", longest, "rounds"),
        number("δ*", gap_at_target(p) * 1e6, "us"),
        number("δ_low", lowest * 1e6, "us"),
        number("bound (δ* - δ_low)/c", bound as f64, "rounds"),
    ];
    Draft { printed, corrected, numbers, failure: Some((what, longest / first.max(1.0))) }
}
