//! Lemma 8: two flows become equal. [OVV-T §III-B]

use schemars::JsonSchema;
use serde::Serialize;

use super::statement::{Claim, Context, Draft, Relation, Statement, number, standing};
use crate::map::{GapNotPositive, Map, Mode};
use crate::params::Params;

/// Gaps with a smaller relative difference count as equal.
const EQUAL: f64 = 1e-3;

/// Most rounds that two flows are followed. The remaining difference is extrapolated.
const ROUNDS: u64 = 20_000;

/// Mutual effect of two flows.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Sharing {
    /// Rounds done.
    pub rounds: u64,
    /// Smaller gap over larger gap at the start.
    pub ratio_start: f64,
    /// The same at the end.
    pub ratio_end: f64,
    /// First round after which the ratio was further from 1 than before.
    pub falls_at: Option<u64>,
    /// First round of increase mode that changed the ratio beyond rounding.
    pub increase_moves_at: Option<u64>,
    /// Product over all decreases of `g/(g + c/δ)`, which is what Equation 1 does to the
    /// distance `1 − ratio`.
    pub predicted: f64,
    /// Changes of mode.
    pub switches: u64,
    /// Decrease rounds in the last quarter.
    pub late_decreases: u64,
    /// The increase mode both share has reached its limit below C.
    pub is_locked: bool,
    /// Both have reached C.
    pub is_at_capacity: bool,
    /// A gap that is not positive.
    #[serde(skip)]
    pub fault: Option<GapNotPositive>,
    /// Rates of the last round in bit/s.
    pub rates_end: [f64; 2],
    /// Rounds until the gaps differ by 0.1 %: measured, or extrapolated from the second half.
    pub rounds_to_equal: Option<f64>,
}

impl Sharing {
    /// Returns whether the flows became equal.
    pub fn is_equal(&self) -> bool {
        1.0 - self.ratio_end <= EQUAL
    }
}

/// Follows two flows with gaps in seconds until they are equal, or for `rounds`.
pub fn share(p: &Params, gaps: [f64; 2], rounds: u64) -> Sharing {
    let ratio_of = |[a, b]: [f64; 2]| if a < b { a / b } else { b / a };
    let mut map = Map::new(p, gaps);
    let ratio_start = ratio_of(gaps);
    let mut s = Sharing {
        rounds: 0,
        ratio_start,
        ratio_end: ratio_start,
        falls_at: None,
        increase_moves_at: None,
        predicted: 1.0,
        switches: 0,
        late_decreases: 0,
        is_locked: false,
        is_at_capacity: false,
        fault: None,
        rates_end: [0.0; 2],
        rounds_to_equal: None,
    };
    let mut half = 1.0 - ratio_start;
    let mut was_decrease = None;
    while s.rounds < rounds && !s.is_equal() {
        let round = match map.step() {
            Ok(round) => round,
            Err(fault) => {
                s.fault = Some(fault);
                break;
            }
        };
        s.rates_end = round.rates;
        if round.mode == Mode::Equal && !p.equation3() {
            s.is_locked = true;
            break;
        }
        if round.mode == Mode::Increase && round.gaps.iter().all(|&gap| gap < 1e-18) {
            s.is_at_capacity = true;
            break;
        }
        let is_decrease = round.mode != Mode::Increase;
        s.switches += u64::from(was_decrease.is_some_and(|before| before != is_decrease));
        was_decrease = Some(is_decrease);
        s.late_decreases += u64::from(is_decrease && s.rounds >= rounds / 4 * 3);
        let after = map.gaps();
        if after.iter().any(|&gap| gap <= 0.0) {
            // The ratio is undefined; the next step returns the error.
            continue;
        }
        let ratio = ratio_of(after);
        if is_decrease {
            // The sender with the larger gap: δ' = g·δ + added, so 1 − ratio shrinks by g·δ/δ'.
            let flow = usize::from(round.gaps[1] > round.gaps[0]);
            let added = if round.mode == Mode::Equal { p.d() } else { p.c() };
            s.predicted *= (after[flow] - added) / after[flow];
        } else if (ratio - s.ratio_end).abs() > 1e-12 && s.increase_moves_at.is_none() {
            s.increase_moves_at = Some(s.rounds);
        }
        if ratio < s.ratio_end - 1e-12 && s.falls_at.is_none() {
            s.falls_at = Some(s.rounds);
        }
        s.ratio_end = ratio;
        s.rounds += 1;
        if s.rounds == rounds / 2 {
            half = 1.0 - ratio;
        }
    }
    s.rounds_to_equal = rounds_to_equal(&s, half, rounds);
    s
}

fn rounds_to_equal(s: &Sharing, half: f64, rounds: u64) -> Option<f64> {
    if s.is_equal() {
        return Some(s.rounds as f64);
    }
    let left = 1.0 - s.ratio_end;
    (s.rounds == rounds && left < half * (1.0 - 1e-9)).then(|| {
        let shrink_per_round = (left / half).ln() / (rounds as f64 / 2.0);
        s.rounds as f64 + (EQUAL / left).ln() / shrink_per_round
    })
}

/// Lemma 8. Increases keep the ratio of the gaps. Decreases move the ratio towards 1, because c is
/// added. The lemma therefore needs `c > 0` and endless decreases: if increase mode locks at the
/// target loss, the rates stay different. (The text cites Lemma 4 for this point, but means Lemma
/// 3.)
pub(super) fn lemma8(context: &Context<'_>) -> Draft {
    let p = context.params;
    let gaps = p.gaps_initial();
    let s = share(p, gaps, ROUNDS.min(context.limits.rounds / 4));
    let has_decreases = s.late_decreases > 0 && s.switches >= 4;
    let is_decided = s.is_equal() || s.is_at_capacity || s.is_locked || s.fault.is_some();
    let becomes_equal = if is_decided {
        Some(s.is_equal() || s.is_at_capacity)
    } else {
        // Converging, as long as the necessary decreases continue.
        (has_decreases && s.rounds_to_equal.is_some()).then_some(true)
    };
    let printed = Statement::new(standing(p), || {
        vec![Claim::fact("λ1 and λ2 tend to one limit", becomes_equal)]
    });

    let mut conditions = standing(p);
    conditions.push(Claim::fact("every gap is positive", s.fault.is_none()));
    let decreases_end = s.is_locked || s.is_at_capacity;
    let is_known = s.is_equal() || has_decreases;
    conditions.push(Claim::fact(
        "decreases without end",
        if decreases_end { Some(false) } else { is_known.then_some(true) },
    ));
    let left = 1.0 - s.ratio_end;
    let identity = left / (1.0 - s.ratio_start) / s.predicted - 1.0;
    let corrected = Statement::new(conditions, || {
        vec![
            Claim::fact("λ1 and λ2 tend to one limit", becomes_equal),
            Claim::fact("the ratio of the gaps never moves from 1", s.falls_at.is_none()),
            Claim::fact("increases keep the ratio", s.increase_moves_at.is_none()),
            Claim::compare(
                "distance from 1 against the product of g/(g + c/δ), relative error",
                if s.ratio_start < 1.0 { identity.abs() } else { 0.0 },
                Relation::AtMost,
                // Rounding error of a tiny distance.
                1e-6 + 1e-14 / left.max(1e-14),
            ),
        ]
    });
    let mut numbers = vec![
        number("rounds", s.rounds as f64, ""),
        number("ratio of gaps at the start", s.ratio_start, ""),
        number("ratio of gaps at the end", s.ratio_end, ""),
        number("λ1 at the end", s.rates_end[0] / 1e6, "Mb/s"),
        number("λ2 at the end", s.rates_end[1] / 1e6, "Mb/s"),
        number("changes of mode", s.switches as f64, ""),
    ];
    numbers.extend(super::statement::optional("rounds to equality", s.rounds_to_equal, ""));
    let why = match s.fault {
        Some(fault) => format!("a gap becomes {:.4} us in round {}", fault.gap * 1e6, fault.round),
        None => "increase mode locks at the target loss".to_owned(),
    };
    let what = format!(
        "{why}; the rates stand at {:.1} and {:.1} Mb/s",
        s.rates_end[0] / 1e6,
        s.rates_end[1] / 1e6
    );
    Draft { printed, corrected, numbers, failure: Some((what, left)) }
}
