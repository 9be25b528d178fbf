//! Verdicts on runs: statistics over seeds, bootstrap intervals, and the terms of the contract.

use sabul_run::statistics::{self, quantile};
use sabul_units::SeededRandom;
use serde::{Deserialize, Serialize};

use super::super::measure::Trial;
use super::paths::{OURS, PLACE, Path, Role, THEIRS, pick};

/// Resamples of a bootstrap, and its percentiles: an interval of 95 %.
pub(super) const RESAMPLES: u64 = 1000;
const PERCENTILES: (f64, f64) = (0.025, 0.975);
/// The bootstrap has a generator of its own, independent of the draw and of the runs.
const BOOTSTRAP_SEED: u64 = 1;
/// Normal quantile of a one-sided bound of 95 %.
const Z: f64 = 1.644_853_627;

/// Bounds of the contract.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Terms {
    /// Least goodput of one flow alone, as a share of the rate that can arrive.
    pub(super) alone_share_min: f64,
    /// Most loss of one flow alone beyond the path's random loss.
    pub(super) alone_own_loss_max: f64,
    /// Most mean queue of one flow alone: the larger of the two limits.
    pub(super) alone_queue_bdp_max: f64,
    pub(super) alone_queue_packets_max: f64,
    /// Least share of its goodput that CUBIC keeps with one flow of the controller, one CUBIC flow
    /// and no background.
    pub(super) cubic_keeps_plain_min: f64,
    /// Least share of its goodput that CUBIC keeps in all other cases.
    pub(super) cubic_keeps_min: f64,
    /// Least goodput of the controller's flows, as a share of the goodput of CUBIC flows in their
    /// place.
    pub(super) ours_have_min: f64,
    /// Own loss beside CUBIC is below this. In a tiny path own loss is at most that of CUBIC in the same place.
    pub(super) own_loss_max: f64,
}

pub(super) const TERMS: Terms = Terms {
    alone_share_min: 0.97,
    alone_own_loss_max: 0.01,
    alone_queue_bdp_max: 0.15,
    alone_queue_packets_max: 3.0,
    cubic_keeps_plain_min: 0.8,
    cubic_keeps_min: 0.7,
    ours_have_min: 0.7,
    own_loss_max: 0.005,
};

/// The answer to a question.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Verdict {
    /// The whole interval is on the good side.
    Yes,
    /// The whole interval is on the bad side.
    No,
    /// The interval contains the bound.
    #[default]
    Open,
}

impl Verdict {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Yes => "yes",
            Self::No => "no",
            Self::Open => "open",
        }
    }

    /// Returns yes if all parts are yes, no if at least one part is no, and open otherwise.
    fn all(parts: &[Self]) -> Self {
        if parts.contains(&Self::No) {
            Self::No
        } else if parts.contains(&Self::Open) {
            Self::Open
        } else {
            Self::Yes
        }
    }
}

/// Side of a bound on which a number is good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Good {
    AtLeast,
    Below,
    AtMost,
}

/// A number over all seeds with its interval, compared with a bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Finding {
    pub(super) value: f64,
    pub(super) low: f64,
    pub(super) high: f64,
    pub(super) bound: f64,
    pub(super) verdict: Verdict,
}

impl Finding {
    fn new((value, low, high): (f64, f64, f64), good: Good, bound: f64) -> Self {
        let is_good = |number: f64| match good {
            Good::AtLeast => number >= bound,
            Good::Below => number < bound,
            Good::AtMost => number <= bound,
        };
        let verdict = match (is_good(low), is_good(high)) {
            (true, true) => Verdict::Yes,
            (false, false) => Verdict::No,
            _ => Verdict::Open,
        };
        Self { value, low, high, bound, verdict }
    }
}

/// Numbers of one run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct TrialResult {
    /// Goodput of the controller's flows, or of the CUBIC flows in their place.
    pub(super) ours_bps: f64,
    /// Loss of these flows beyond the path's random loss.
    pub(super) own_loss: f64,
    /// Goodput of the CUBIC flows.
    pub(super) theirs_bps: f64,
    /// Goodput ÷ rate that can arrive.
    pub(super) share: f64,
    pub(super) queue_packets: f64,
}

impl TrialResult {
    pub(super) fn new(path: &Path, role: Role, trial: &Trial) -> Self {
        let id = if role == Role::Reference { PLACE } else { OURS };
        let flow = trial.flow(id);
        let ours_bps = flow.map_or(f64::NAN, |flow| flow.goodput_bps);
        let plan = trial.scenario().flows.iter().find(|flow| flow.id == id);
        let payload = plan.map_or(f64::NAN, |plan| {
            f64::from(plan.payload_bytes()) / f64::from(plan.packet_bytes)
        });
        let arrives_bps = trial.link_bps() * path.left() * (1.0 - path.loss) * payload;
        let link = trial.finished.results.links.first();
        Self {
            ours_bps,
            own_loss: flow.map_or(f64::NAN, |flow| flow.loss_rate) - path.loss,
            theirs_bps: if role == Role::Alone { 0.0 } else { trial.goodput(THEIRS) },
            share: ours_bps / arrives_bps,
            queue_packets: link.map_or(f64::NAN, |link| link.queue_packets.mean),
        }
    }
}

/// The runs of one path with one seed.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct SeedResults {
    pub(super) alone: TrialResult,
    pub(super) beside: TrialResult,
    pub(super) reference: TrialResult,
}

/// Numbers and verdicts of one path.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(in super::super) struct PathResult {
    #[serde(flatten)]
    pub(super) path: Path,
    pub(super) alone_share: Finding,
    pub(super) alone_own_loss: Finding,
    pub(super) alone_queue_packets: Finding,
    pub(super) cubic_keeps: Finding,
    pub(super) ours_have: Finding,
    /// Own loss beside CUBIC. In a tiny path the loss of CUBIC in the same place is subtracted.
    pub(super) own_loss: Finding,
    pub(super) is_tiny: bool,
    /// Number of failed runs, and the reason of the first failure. A path with a failed run is not
    /// met. Its other numbers are computed from the seeds without a failure.
    pub(super) failed_runs: usize,
    pub(super) fault: Option<String>,
    /// Means over the seeds.
    pub(super) cubic_bps: f64,
    pub(super) ours_bps: f64,
    pub(super) reference_cubic_bps: f64,
    pub(super) reference_ours_bps: f64,
    pub(super) reference_own_loss: f64,
    /// Verdicts on the four questions, and on the contract: all four, or in a tiny path own loss alone.
    pub(super) alone_verdict: Verdict,
    pub(super) keeps_verdict: Verdict,
    pub(super) have_verdict: Verdict,
    pub(super) loss_verdict: Verdict,
    pub(super) met: Verdict,
}

/// Returns a statistic of all seeds, and its percentile interval over resamples of the seeds.
fn bootstrap(
    count: usize,
    mut random: SeededRandom,
    statistic: impl Fn(&[usize]) -> f64,
) -> (f64, f64, f64) {
    let all: Vec<usize> = (0..count).collect();
    let value = statistic(&all);
    let mut picked = all;
    let resample = |_| {
        picked.iter_mut().for_each(|index| *index = pick(&mut random, count));
        statistic(&picked)
    };
    let mut found: Vec<f64> = (0..RESAMPLES).map(resample).collect();
    found.sort_unstable_by(f64::total_cmp);
    (value, quantile(&found, PERCENTILES.0), quantile(&found, PERCENTILES.1))
}

fn mean(values: impl IntoIterator<Item = f64>) -> f64 {
    statistics::mean(values).unwrap_or(f64::NAN)
}

/// Returns numerator ÷ denominator, each summed over the seeds. Returns 1 if the denominator is
/// zero, because the flows of the reference had no goodput to keep.
fn ratio(picked: &[usize], parts: impl Fn(usize) -> (f64, f64)) -> f64 {
    let add = |sum: (f64, f64), part: (f64, f64)| (sum.0 + part.0, sum.1 + part.1);
    let (above, below) = picked.iter().map(|&seed| parts(seed)).fold((0.0, 0.0), add);
    if below > 0.0 { above / below } else { 1.0 }
}

impl PathResult {
    /// Judges a path by its runs, one entry per seed, and by the reasons of the failed runs.
    pub(super) fn new(path: Path, seeds: &[SeedResults], faults: &[String]) -> Self {
        if seeds.is_empty() {
            return Self { path, ..Self::default() }.with_faults(faults);
        }
        let random = SeededRandom::new(BOOTSTRAP_SEED).fork(&format!("path {}", path.number));
        let over = |name: &str, number: &dyn Fn(&SeedResults) -> f64| {
            bootstrap(seeds.len(), random.fork(name), |picked| {
                mean(picked.iter().map(|&seed| number(&seeds[seed])))
            })
        };
        let held = |name: &str, parts: &dyn Fn(&SeedResults) -> (f64, f64)| {
            bootstrap(seeds.len(), random.fork(name), |picked| {
                ratio(picked, |seed| parts(&seeds[seed]))
            })
        };
        let plain = |number: &dyn Fn(&SeedResults) -> f64| mean(seeds.iter().map(number));

        let alone_share = over("alone share", &|one| one.alone.share);
        let alone_share = Finding::new(alone_share, Good::AtLeast, TERMS.alone_share_min);
        let alone_own_loss = over("alone loss", &|one| one.alone.own_loss);
        let alone_own_loss = Finding::new(alone_own_loss, Good::Below, TERMS.alone_own_loss_max);
        let queue_max =
            (TERMS.alone_queue_bdp_max * path.bdp_packets()).max(TERMS.alone_queue_packets_max);
        let alone_queue_packets = over("alone queue", &|one| one.alone.queue_packets);
        let alone_queue_packets = Finding::new(alone_queue_packets, Good::AtMost, queue_max);

        let keeps_min =
            if path.is_plain() { TERMS.cubic_keeps_plain_min } else { TERMS.cubic_keeps_min };
        let cubic_keeps = held("keeps", &|one| (one.beside.theirs_bps, one.reference.theirs_bps));
        let cubic_keeps = Finding::new(cubic_keeps, Good::AtLeast, keeps_min);
        let ours_have = held("have", &|one| (one.beside.ours_bps, one.reference.ours_bps));
        let ours_have = Finding::new(ours_have, Good::AtLeast, TERMS.ours_have_min);

        let is_tiny = path.is_tiny();
        let own_loss = over("loss", &|one| match is_tiny {
            true => one.beside.own_loss - one.reference.own_loss,
            false => one.beside.own_loss,
        });
        let own_loss = match is_tiny {
            true => Finding::new(own_loss, Good::AtMost, 0.0),
            false => Finding::new(own_loss, Good::Below, TERMS.own_loss_max),
        };
        let alone = [alone_share, alone_own_loss, alone_queue_packets].map(|part| part.verdict);
        let alone_verdict = Verdict::all(&alone);
        let answers = [alone_verdict, cubic_keeps.verdict, ours_have.verdict, own_loss.verdict];
        // The other bounds are meant for paths with room for a few packets.
        let met = if is_tiny { own_loss.verdict } else { Verdict::all(&answers) };
        Self {
            path,
            alone_share,
            alone_own_loss,
            alone_queue_packets,
            cubic_keeps,
            ours_have,
            own_loss,
            is_tiny,
            failed_runs: 0,
            fault: None,
            cubic_bps: plain(&|one| one.beside.theirs_bps),
            ours_bps: plain(&|one| one.beside.ours_bps),
            reference_cubic_bps: plain(&|one| one.reference.theirs_bps),
            reference_ours_bps: plain(&|one| one.reference.ours_bps),
            reference_own_loss: plain(&|one| one.reference.own_loss),
            alone_verdict,
            keeps_verdict: cubic_keeps.verdict,
            have_verdict: ours_have.verdict,
            loss_verdict: own_loss.verdict,
            met,
        }
        .with_faults(faults)
    }

    fn with_faults(self, faults: &[String]) -> Self {
        let Some(first) = faults.first() else { return self };
        let fault = Some(first.clone());
        Self { failed_runs: faults.len(), fault, met: Verdict::No, ..self }
    }
}

/// Returns the lower bound (95 %, one-sided) of a probability, given `count` successes in `all`
/// draws. Uses Wilson's score interval \[Wilson\].
pub(super) fn lower_bound(count: usize, all: usize) -> f64 {
    if all == 0 {
        return 0.0;
    }
    let (n, p) = (all as f64, count as f64 / all as f64);
    let spread = Z * (p * (1.0 - p) / n + Z * Z / (4.0 * n * n)).sqrt();
    ((p + Z * Z / (2.0 * n) - spread) / (1.0 + Z * Z / n)).max(0.0)
}

#[cfg(test)]
mod tests;
