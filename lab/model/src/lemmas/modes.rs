//! Lemmas 1, 2 and 6: behaviour within one mode. [OVV-T §III-B]

use super::statement::{
    Claim, Context, Draft, Relation, Statement, fast_interface, number, optional, positive_gap,
    standing,
};
use crate::formulas::{self, excess, gap_at_service, gap_at_target, k2_printed, k2_sharp};
use crate::map::{GapNotPositive, Map, Mode};
use crate::orbit::End;

/// Distance at which an increase has reached its limits.
const NEAR_LIMIT: f64 = 1e-6;

/// Result of the first increase run, with a queue that counts as always full.
#[derive(Debug)]
struct Climb {
    rate_start: f64,
    rounds: u64,
    rate_end: f64,
    loss_end: f64,
    rises: bool,
    loss_rises: bool,
    /// The run ended with a switch to decrease mode.
    crosses: bool,
    /// The run stays at its limit.
    stands: bool,
    fault: Option<GapNotPositive>,
}

fn climb(context: &Context<'_>) -> Climb {
    let p = context.full_params;
    let given = p.gaps_initial()[0];
    // The lemma is about increase mode, so a start above the target loss is replaced by half of µ.
    let gap = if given > gap_at_target(p) { given } else { p.gap_of(p.service() / 2.0) };
    let mut map = Map::new(p, [gap]);
    let mut climb = Climb {
        rate_start: p.rate_of(gap),
        rounds: 0,
        rate_end: 0.0,
        loss_end: 0.0,
        rises: true,
        loss_rises: true,
        crosses: false,
        stands: false,
        fault: None,
    };
    while climb.rounds < context.limits.rounds {
        let round = match map.step() {
            Ok(round) => round,
            Err(fault) => {
                climb.fault = Some(fault);
                break;
            }
        };
        if round.mode != Mode::Increase {
            climb.stands = round.mode == Mode::Equal;
            climb.crosses = round.mode == Mode::Decrease;
            break;
        }
        climb.rises &= round.rate > climb.rate_end;
        climb.loss_rises &= round.loss >= climb.loss_end - 1e-14;
        (climb.rate_end, climb.loss_end) = (round.rate, round.loss);
        climb.rounds += 1;
    }
    climb
}

/// Lemma 1. As printed, it requires `k2·α > 1`, which makes the gap negative in the first round
/// without loss. The proof and Lemmas 3 and 7 use `< 1`. Losses are those of the proof: a queue
/// that is always full. Increase mode never ends from any start if `k2 ≤ C/(C−µ)`, as the logistic
/// map in [`formulas`] shows. Up to `1/D` the result depends on the start.
pub(super) fn lemma1(context: &Context<'_>) -> Draft {
    let p = context.full_params;
    let climb = climb(context);
    let limit = p.service() / (1.0 - p.alpha());
    let checks = || {
        let is_decided = climb.stands || climb.crosses || climb.fault.is_some();
        vec![
            Claim::fact("every gap is positive", climb.fault.is_none()),
            Claim::fact("λ rises in every round", climb.rises),
            Claim::fact("ρ never falls", climb.loss_rises),
            Claim::compare(
                "|λ/limit - 1| at the end",
                (climb.rate_end / limit - 1.0).abs(),
                Relation::AtMost,
                NEAR_LIMIT,
            )
            .if_decided(is_decided),
            Claim::compare(
                "|ρ - α| at the end",
                (climb.loss_end - p.alpha()).abs(),
                Relation::AtMost,
                NEAR_LIMIT,
            )
            .if_decided(is_decided),
        ]
    };
    let k2_alpha = p.k2() * p.alpha();
    let mut conditions = vec![
        fast_interface(p),
        Claim::compare("k2·α > 1", k2_alpha, Relation::Above, 1.0),
        Claim::fact("stays in increase mode", !climb.crosses),
    ];
    conditions.extend(standing(p).into_iter().skip(1));
    let printed = Statement::new(conditions, checks);

    let mut conditions = vec![
        fast_interface(p),
        positive_gap(p),
        Claim::compare("k2 <= C/(C-µ)", p.k2(), Relation::AtMost, k2_printed(p)),
    ];
    conditions.extend(standing(p).into_iter().skip(1));
    let corrected = Statement::new(conditions, || {
        let mut all = checks();
        all.push(Claim::fact("never leaves increase mode", !climb.crosses));
        all
    });

    let failure = climb.fault.map(|fault| {
        let what = format!(
            "k2·α = {k2_alpha:.4}: from {:.1} Mb/s the gap becomes {:.4} us in round {}",
            climb.rate_start / 1e6,
            fault.gap * 1e6,
            fault.round
        );
        (what, -fault.gap / gap_at_service(p))
    });
    let numbers = vec![
        number("start", climb.rate_start / 1e6, "Mb/s"),
        number("limit µ/(1-α)", limit / 1e6, "Mb/s"),
        number("rounds of the first increase, queue full", climb.rounds as f64, ""),
        number("λ at its end", climb.rate_end / 1e6, "Mb/s"),
        number("ρ at its end", climb.loss_end, ""),
        number("C/(C-µ)", k2_printed(p), ""),
        number("1/D", k2_sharp(p), ""),
        number("slope of the map at the limit, 1 - k2·D", 1.0 - p.k2() * excess(p), ""),
    ];
    let failure = Some(failure.unwrap_or_else(|| ("the limits are not reached".to_owned(), 0.0)));
    Draft { printed, corrected, numbers, failure }
}

/// Lemma 2. Its limit has an empty premise: Equation 1 ends as soon as ρ ≤ α, so ρ cannot tend to 0
/// under this equation. Applied regardless of loss, Equation 1 tends to a rate above 0. True parts:
/// every decrease ends; λ falls in a decrease; ρ falls too if the queue is always full.
pub(super) fn lemma2(context: &Context<'_>) -> Draft {
    let (p, orbit, full) = (context.params, context.orbit, context.full);
    let end_gap = formulas::gap_of_endless_decrease(p);
    let end_rate = p.rate_of(end_gap);
    let has_decrease = orbit.decrease.count > 0 || !orbit.starts_in_increase;
    let mut conditions = vec![fast_interface(p), Claim::fact("has a decrease", has_decrease)];
    conditions.extend(standing(p));
    let printed = Statement::new(conditions.clone(), || {
        vec![
            Claim::fact("λ falls in every decrease", orbit.breaks.decrease_rate.is_none()),
            Claim::fact("ρ falls in every decrease", orbit.breaks.decrease_loss.is_none()),
            Claim::compare(
                "limit of λ under Equation 1 alone <= 0 (Mb/s)",
                end_rate / 1e6,
                Relation::AtMost,
                0.0,
            ),
        ]
    });
    let has_full_decrease = full.decrease.count > 0 || !full.starts_in_increase;
    let is_open = orbit.region == crate::orbit::Region::StaysOverloaded;
    let corrected = Statement::new(conditions, || {
        let falls = |is_broken: Option<u64>| is_broken.is_none();
        vec![
            Claim::fact("every decrease ends", (!is_open).then_some(true)),
            Claim::fact("λ falls in every decrease", falls(orbit.breaks.decrease_rate)),
            Claim::fact(
                "ρ falls in every decrease, queue full",
                !has_full_decrease || falls(full.breaks.decrease_loss),
            ),
        ]
    });
    let what = format!(
        "decreases end after at most {} rounds; Equation 1 applied for ever tends to {:.4} Mb/s \
         (gap {:.4} us), not to 0",
        orbit.decrease.longest.max(if is_open { orbit.last_run } else { 0 }),
        end_rate / 1e6,
        end_gap * 1e6
    );
    let numbers = vec![
        number("decreases", orbit.decrease.count as f64, ""),
        number("longest decrease", orbit.decrease.longest as f64, "rounds"),
        number("limit of Equation 1 alone", end_rate / 1e6, "Mb/s"),
        number("its gap", end_gap * 1e6, "us"),
    ];
    Draft { printed, corrected, numbers, failure: Some((what, end_rate / p.capacity())) }
}

/// Lemma 6. True with the additional condition `k2·α < 1`, without which the gap becomes negative.
/// Then `ρ ≤ 1 − µ/C < α` always.
pub(super) fn lemma6(context: &Context<'_>) -> Draft {
    let (p, orbit) = (context.params, context.orbit);
    let slow = Claim { what: "C < µ/(1-α) (Mb/s)", ..fast_interface(p) };
    let sides =
        slow.sides.map(|sides| super::statement::Sides { relation: Relation::Below, ..sides });
    let holds = sides.map(|sides| sides.relation.holds(sides.left, sides.right));
    let slow = Claim { sides, holds, ..slow };
    let mut conditions =
        vec![slow, Claim::fact("starts in increase mode", orbit.starts_in_increase)];
    conditions.extend(standing(p).into_iter().skip(1));
    let fault = match orbit.end {
        End::GapNotPositive { round, gap_s } => Some((round, gap_s)),
        _ => None,
    };
    let checks = || {
        let is_at_capacity = (orbit.end == End::LockedAtCapacity).then_some(true);
        vec![
            Claim::fact("every gap is positive", fault.is_none()),
            Claim::fact("never leaves increase mode", orbit.switches == 0),
            Claim::fact("λ rises in every round", orbit.breaks.increase_rate.is_none()),
            Claim::fact("λ reaches C", is_at_capacity),
        ]
    };
    let printed = Statement::new(conditions.clone(), checks);
    conditions.push(positive_gap(p));
    let corrected = Statement::new(conditions, checks);
    let failure = fault.map(|(round, gap_s)| {
        let what = format!(
            "k2·α = {:.4}: the gap becomes {:.4} us in round {round}",
            p.k2() * p.alpha(),
            gap_s * 1e6
        );
        (what, -gap_s / gap_at_service(p))
    });
    let mut numbers = vec![
        number("α", p.alpha(), ""),
        number("largest possible loss 1 - µ/C", 1.0 - p.service() / p.capacity(), ""),
    ];
    let last = (orbit.end == End::LockedAtCapacity).then_some(orbit.rounds as f64);
    numbers.extend(optional("rounds to C", last, ""));
    Draft { printed, corrected, numbers, failure }
}
