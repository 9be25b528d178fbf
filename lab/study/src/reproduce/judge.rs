//! Rates of runs, and verdicts on rates.

use sabul_run::results::LinkResult;
use sabul_run::statistics;
use sabul_scenario::{Override, Run, parse_override, read};

use super::found::{Found, Judged, Rates, Variation};
use super::plan::{Case, Claim, Measure, Plan, RateKind, Verdict};
use super::{regions, times};
use crate::Error;
use crate::card::Trial;
use crate::runs::Finished;

/// Returns the runs of one case: all seeds as chosen, then the first seed with each other option of
/// each open setting.
pub(crate) fn runs(plan: &Plan, case: &Case) -> Result<Vec<(Option<Variation>, Run)>, Error> {
    if case.model_rounds.is_some() {
        return Ok(Vec::new());
    }
    let opens = plan.open.iter().enumerate().filter(|(_, open)| open.is_varied_in(case));
    let mut wanted: Vec<(Option<Variation>, u64)> =
        plan.seeds.iter().map(|seed| (None, *seed)).collect();
    let first_seed = plan.seeds.first().copied().unwrap_or(1);
    for (index, open) in opens {
        let options = (0..open.options.len()).filter(|option| open.chosen() != Some(*option));
        wanted.extend(options.map(|option| (Some(Variation { open: index, option }), first_seed)));
    }
    let mut runs = Vec::new();
    for (variation, seed) in wanted {
        let found = read_case(plan, case, variation, seed)?;
        runs.extend(found.into_iter().map(|run| (variation, run)));
    }
    Ok(runs)
}

fn read_case(
    plan: &Plan,
    case: &Case,
    variation: Option<Variation>,
    seed: u64,
) -> Result<Vec<Run>, Error> {
    let (file, text) = plan.scenario(case)?;
    let mut overrides = vec![set(&format!("seed={seed}"))?];
    for text in &case.set {
        overrides.push(set(text)?);
    }
    for (index, open) in plan.open.iter().enumerate().filter(|(_, open)| open.concerns(case)) {
        let varied = variation.filter(|variation| variation.open == index);
        let option = varied.map(|variation| variation.option).or_else(|| open.chosen());
        for text in option.and_then(|option| open.options.get(option)).iter().flat_map(|o| &o.set) {
            overrides.push(set(text)?);
        }
    }
    read(text, &file, &overrides)
        .map_err(|error| Error::usage(format!("case {}: {error}", case.id)))
}

fn set(text: &str) -> Result<Override, Error> {
    parse_override(text).map_err(|error| Error::usage(error.to_string()))
}

/// Runs two flows of the deterministic model.
pub(crate) fn follow_model(plan: &Plan, case: &Case, rounds: u64) -> Result<Found, Error> {
    let (file, text) = plan.scenario(case)?;
    let params = sabul_model::file::read_params(text)
        .map_err(|error| Error::usage(format!("{file}: {error}")))?;
    let plane = sabul_model::series::phase_plane(&params, rounds);
    let last = |rates: &[(f64, f64)]| {
        let mean = rates.last().map_or(f64::NAN, |(_, mbps)| *mbps);
        Rates { mean, least: mean, most: mean }
    };
    let rates = [
        ("first".to_owned(), last(&plane.rate_mbps_first)),
        ("second".to_owned(), last(&plane.rate_mbps_second)),
    ];
    let phase = Some(Box::new(plane));
    Ok(Found { variation: None, trials: Vec::new(), rates: rates.into(), phase })
}

/// Groups the seeds of one case.
pub(crate) fn gather(kind: RateKind, runs: Vec<(Option<Variation>, Run, Finished)>) -> Vec<Found> {
    let mut found: Vec<Found> = Vec::new();
    for (variation, run, finished) in runs {
        let rates = rates(kind, &run, &finished);
        if let Some(found) = found.last_mut().filter(|found| found.variation == variation) {
            for (flow, rate) in rates {
                if let Some(all) = found.rates.get_mut(&flow) {
                    all.least = all.least.min(rate);
                    all.most = all.most.max(rate);
                    all.mean += rate;
                }
            }
            found.trials.push(Trial { run, finished });
        } else {
            let rates = rates
                .into_iter()
                .map(|(flow, rate)| (flow, Rates { mean: rate, least: rate, most: rate }))
                .collect();
            let trials = vec![Trial { run, finished }];
            found.push(Found { variation, trials, rates, phase: None });
        }
    }
    for found in &mut found {
        for rate in found.rates.values_mut() {
            rate.mean /= found.trials.len() as f64;
        }
    }
    found
}

fn rates(kind: RateKind, run: &Run, finished: &Finished) -> Vec<(String, f64)> {
    let warmup = run.scenario.warmup.as_secs_f64();
    let flows = finished.results.flows.iter().zip(&finished.series.flows);
    flows
        .map(|(flow, series)| {
            let rate = match kind {
                RateKind::Goodput => flow.goodput_bps,
                RateKind::Sending => {
                    let rows = finished.series.t_s.iter().zip(&series.rate_bps);
                    let warm = rows.filter(|(t_s, _)| **t_s > warmup).map(|(_, rate)| *rate);
                    statistics::mean(warm).unwrap_or(0.0)
                }
            };
            (flow.id.clone(), rate / 1e6)
        })
        .collect()
}

/// Judges the claims of a case by the results with the chosen settings.
pub(crate) fn judge<'a>(case: &'a Case, found: &Found) -> Vec<Judged<'a>> {
    case.claims.iter().map(|claim| judge_one(claim, found)).collect()
}

fn judge_one<'a>(claim: &'a Claim, found: &Found) -> Judged<'a> {
    let rates: Vec<f64> = claim
        .flows
        .iter()
        .map(|flow| found.rates.get(flow).map_or(f64::NAN, |rate| rate.mean))
        .collect();
    let sum: f64 = rates.iter().sum();
    let ours = match claim.measure {
        Measure::Total => sum,
        Measure::Ratio | Measure::AtMost | Measure::AtLeast => match rates[..] {
            [first, second] => first / second,
            _ => f64::NAN,
        },
        Measure::Spread => {
            let most = rates.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let least = rates.iter().copied().fold(f64::INFINITY, f64::min);
            (most - least) / (sum / rates.len() as f64)
        }
        Measure::Queue | Measure::QueueAtMost => {
            of_link(claim, found, |link| link.queue_packets.max as f64)
        }
        Measure::Used | Measure::UsedAtMost => of_link(claim, found, |link| link.utilisation),
        Measure::Drops => of_link(claim, found, |link| link.drops as f64),
        Measure::Full | Measure::FullAtMost => {
            over_trials(found, |trial| times::full_after(&claim.flows[0], &trial.finished.series))
        }
        Measure::AlikeAtMost => over_trials(found, |trial| {
            times::alike_after(&claim.flows, &trial.run, &trial.finished.series)
        }),
    };
    // Every comparison with NaN is false, so a claim without a number does not hold.
    let holds = match (claim.measure, claim.published) {
        (Measure::Spread | Measure::AtMost | Measure::QueueAtMost, _)
        | (Measure::UsedAtMost | Measure::Drops | Measure::FullAtMost, _)
        | (Measure::AlikeAtMost, _) => ours <= claim.tolerance,
        (Measure::AtLeast | Measure::Used, _) => ours >= claim.tolerance,
        (_, Some(published)) => (ours / published - 1.0).abs() <= claim.tolerance,
        (_, None) => false,
    };
    let verdict = match (holds, claim.fitted) {
        (true, false) => Verdict::Holds,
        (true, true) => Verdict::Fits,
        (false, _) => Verdict::Differs,
    };
    Judged { claim, ours, verdict }
}

/// Returns the mean of a quantity of the claim's links over seeds.
fn of_link(claim: &Claim, found: &Found, what: fn(&LinkResult) -> f64) -> f64 {
    let links = found.trials.iter().flat_map(|trial| &trial.finished.results.links);
    let of_it = links.filter(|link| claim.flows.contains(&link.id)).map(what);
    statistics::mean(of_it).unwrap_or(f64::NAN)
}

/// Returns the mean of a time over seeds, or NaN if a seed has no time.
fn over_trials(found: &Found, time: impl Fn(&Trial) -> Option<f64>) -> f64 {
    let times: Option<Vec<f64>> = found.trials.iter().map(time).collect();
    times.and_then(statistics::mean).unwrap_or(f64::NAN)
}

/// Returns the deviation of a case from the published values: the mean of |ours ÷ published − 1|
/// over rates, or over statistics of regions if there are no rates.
pub(crate) fn misfit(case: &Case, found: &Found) -> Option<f64> {
    let errors: Vec<f64> = case
        .published_mbps
        .iter()
        .filter_map(|(flow, published)| {
            found.rates.get(flow).map(|rate| (rate.mean / published - 1.0).abs())
        })
        .collect();
    if errors.is_empty() {
        return case.published.as_ref().and_then(|published| regions::misfit(published, found));
    }
    statistics::mean(errors)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(measure: Measure, published: Option<f64>, tolerance: f64) -> Claim {
        Claim {
            says: String::new(),
            measure,
            flows: vec!["a".to_owned(), "b".to_owned()],
            published,
            tolerance,
            fitted: false,
            verdict: Verdict::Holds,
            cause: String::new(),
        }
    }

    fn found(a: f64, b: f64) -> Found {
        let text = "duration_s = 1\nlink = [{ id = 'l', rate_mbps = 1, delay_ms = 1 }]\n\
                    flow = [{ id = 'a', transport = 'udp-cbr', rate_mbps = 1, path = ['l'] }]";
        let run = read(text, "x.toml", &[]).unwrap().remove(0);
        let finished = crate::simulate(&run).unwrap();
        let rate = |mean| Rates { mean, least: mean, most: mean };
        let rates = [("a".to_owned(), rate(a)), ("b".to_owned(), rate(b))].into();
        let trials = vec![Trial { run, finished }];
        Found { variation: None, trials, rates, phase: None }
    }

    #[test]
    fn each_claim_measure_is_judged_by_its_rule() {
        let holds = |measure, published, tolerance, a, b| {
            judge_one(&claim(measure, published, tolerance), &found(a, b)).verdict == Verdict::Holds
        };
        assert!(holds(Measure::Total, Some(100.0), 0.05, 50.0, 54.0));
        assert!(!holds(Measure::Total, Some(100.0), 0.05, 50.0, 56.0));
        assert!(holds(Measure::Ratio, Some(0.8), 0.15, 40.0, 50.0));
        assert!(!holds(Measure::Ratio, Some(0.8), 0.15, 50.0, 50.0));
        // (52 − 48) ÷ 50 = 0.08.
        assert!(holds(Measure::Spread, None, 0.08, 48.0, 52.0));
        assert!(!holds(Measure::Spread, None, 0.079, 48.0, 52.0));
        assert!(holds(Measure::AtMost, None, 0.5, 10.0, 30.0));
        assert!(!holds(Measure::AtMost, None, 0.5, 20.0, 30.0));
        assert!(holds(Measure::AtLeast, None, 2.0, 20.0, 10.0));
        assert!(!holds(Measure::Ratio, None, 2.0, 20.0, 10.0), "nothing to compare with");
        assert!(!holds(Measure::Spread, None, 1.0, f64::NAN, 10.0), "no number, no verdict");
    }

    #[test]
    fn a_claim_fitted_to_its_own_number_fits_but_never_holds() {
        let fitted = Claim { fitted: true, ..claim(Measure::Spread, None, 0.1) };
        assert_eq!(judge_one(&fitted, &found(48.0, 52.0)).verdict, Verdict::Fits);
        assert_eq!(judge_one(&fitted, &found(40.0, 52.0)).verdict, Verdict::Differs);
    }

    #[test]
    fn claims_about_a_link_cover_queue_utilisation_and_drops() {
        // One flow at the rate of the link, for a second: full, no queue, no drops.
        let found = found(1.0, 1.0);
        let holds = |measure, published, tolerance, link: &str| {
            let claim =
                Claim { flows: vec![link.to_owned()], ..claim(measure, published, tolerance) };
            judge_one(&claim, &found).verdict == Verdict::Holds
        };
        assert!(
            holds(Measure::Used, None, 0.9, "l") && !holds(Measure::UsedAtMost, None, 0.9, "l")
        );
        assert!(holds(Measure::QueueAtMost, None, 2.0, "l"));
        assert!(!holds(Measure::Queue, Some(9415.0), 0.15, "l"));
        assert!(holds(Measure::Drops, None, 0.5, "l"));
        assert!(!holds(Measure::Drops, None, 0.5, "other"), "no link, no verdict");
        assert!(holds(Measure::FullAtMost, None, 0.1, "l"));
        assert!(!holds(Measure::FullAtMost, None, 0.1, "other"), "no link, no time");
    }
}
