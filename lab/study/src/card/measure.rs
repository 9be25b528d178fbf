//! Numbers of a card, computed from its runs: pure functions, one per test.
//!
//! Numbers are means over seeds unless stated otherwise. A missing number is NaN, which JSON
//! represents as `null`.

use sabul_net::QueueLimit;
use sabul_run::results::{Completion, FlowResult, FlowSeries, Region, Series};
use sabul_run::scenario::{FlowPlan, Scenario};
use sabul_run::statistics;
use sabul_scenario::Run;
use sabul_units::Instant;
use serde::Serialize;

use super::cost::{Cost, cost};
use super::plan::{Exam, FAR_MS, NEAR_MS, Question};
use crate::runs::Finished;

/// Largest deviation from the fair share that still counts as fair.
const FAIR_WITHIN: f64 = 0.2;
/// Least duration of fairness, and the averaging window of goodput, in seconds.
const FAIR_FOR_S: f64 = 5.0;
const FAIR_WINDOW_S: f64 = 1.0;

/// A scenario of the card and its runs, one per seed.
#[derive(Clone, Debug)]
pub(crate) struct Answer<Q = Question> {
    pub(crate) exam: Exam<Q>,
    /// Valid runs.
    pub(crate) trials: Vec<Trial>,
    /// Invalid runs in the lab: the path was not as requested.
    pub(crate) invalid: Vec<Trial>,
}

impl<Q> Answer<Q> {
    /// Returns any run, a valid run if possible.
    pub(crate) fn first(&self) -> Option<&Trial> {
        self.trials.first().or_else(|| self.invalid.first())
    }
}

/// One run.
#[derive(Clone, Debug)]
pub(crate) struct Trial {
    pub(crate) run: Run,
    pub(crate) finished: Finished,
}

/// All numbers of a card. Tests that were not requested or have no valid run are absent.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Numbers {
    pub(crate) regions: Vec<RegionTest>,
    pub(crate) loss: Vec<LossPoint>,
    pub(crate) beside: Vec<BesidePoint>,
    pub(crate) rtt_fairness: Option<RttFairness>,
    /// Seconds from the start of the second flow. `None` if at least one seed did not converge.
    pub(crate) convergence_s: Option<f64>,
    /// Length of the observation, in seconds.
    pub(crate) convergence_within_s: Option<f64>,
    pub(crate) standing_queue: Option<StandingQueue>,
    pub(crate) mice: Option<MiceTest>,
    pub(crate) cross: Option<Cross>,
}

/// Test of seven regions at one RTT.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct RegionTest {
    pub(crate) rtt_ms: f64,
    pub(crate) link_bps: f64,
    pub(crate) regions: Vec<RegionResult>,
    /// Mean total goodput, over one-second reports from start to end.
    pub(crate) mean_bps: f64,
    pub(crate) sd_bps: f64,
    /// Standard deviation ÷ mean.
    pub(crate) stability: f64,
    /// Smallest and largest value over regions and seeds.
    pub(crate) jain_min: f64,
    pub(crate) jain_max: f64,
    pub(crate) rtt_ms_mean: f64,
    /// Cost of all flows together, in the lab.
    #[serde(flatten)]
    pub(crate) cost: Option<Cost>,
}

/// One of the seven regions.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct RegionResult {
    pub(crate) from_s: f64,
    pub(crate) to_s: f64,
    pub(crate) flows: usize,
    pub(crate) mean_bps: f64,
    pub(crate) sd_bps: f64,
    pub(crate) stability: f64,
    pub(crate) jain: f64,
    pub(crate) rtt_ms_mean: f64,
    #[serde(flatten)]
    pub(crate) cost: Option<Cost>,
}

/// One flow under random loss.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct LossPoint {
    /// Share of the packets that the link loses.
    pub(crate) loss: f64,
    pub(crate) goodput_bps: f64,
    /// Goodput ÷ the link's rate.
    pub(crate) share_of_link: f64,
    pub(crate) rtt_ms_mean: f64,
}

/// One flow beside one CUBIC flow.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct BesidePoint {
    pub(crate) rtt_ms: f64,
    pub(crate) queue_bdp: f64,
    /// CUBIC's goodput ÷ total goodput of both flows.
    pub(crate) cubic_share: f64,
    pub(crate) cubic_bps: f64,
    pub(crate) cc_bps: f64,
}

/// Two flows that differ only in RTT.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct RttFairness {
    pub(crate) near_ms: f64,
    pub(crate) far_ms: f64,
    pub(crate) near_bps: f64,
    pub(crate) far_bps: f64,
    /// Near ÷ far.
    pub(crate) ratio: f64,
}

/// Standing queue before a link with a large queue.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct StandingQueue {
    pub(crate) mean_ms: f64,
    pub(crate) p99_ms: f64,
    /// Time that a full queue takes to drain, in milliseconds.
    pub(crate) full_ms: f64,
    pub(crate) goodput_bps: f64,
}

/// Short transfers beside the controller, and without it.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct MiceTest {
    pub(crate) beside: Option<Mice>,
    pub(crate) alone: Option<Mice>,
    /// Goodput of the controller's own flow in the same run.
    pub(crate) goodput_bps: f64,
}

impl Default for MiceTest {
    fn default() -> Self {
        Self { beside: None, alone: None, goodput_bps: f64::NAN }
    }
}

/// Completion times of short transfers.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Mice {
    pub(crate) median_s: f64,
    pub(crate) p99_s: f64,
    /// Total over all seeds.
    pub(crate) started: u64,
    pub(crate) completed: u64,
}

/// One flow beside intermittent constant-rate traffic.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Cross {
    /// Goodput ÷ capacity that the cross traffic leaves, over the whole measurement.
    pub(crate) share: f64,
    /// Share while cross traffic is present.
    pub(crate) share_during: f64,
    /// Share while cross traffic is absent.
    pub(crate) share_between: f64,
    /// Delivered share of the cross traffic.
    pub(crate) cross_delivered: f64,
}

impl Numbers {
    /// Computes the numbers of a card. The order of the answers does not matter. `mhz` is the
    /// processors' clock.
    pub(crate) fn new(answers: &[Answer], mhz: Option<f64>) -> Self {
        let mut numbers = Self::default();
        for Answer { exam, trials, .. } in answers.iter().filter(|one| !one.trials.is_empty()) {
            match exam.question {
                Question::Regions { rtt_ms } => {
                    numbers.regions.push(region_test(rtt_ms, trials, mhz));
                }
                Question::Loss { share } => numbers.loss.push(loss_point(share, trials)),
                Question::Beside { rtt_ms, queue_bdp } => {
                    numbers.beside.push(beside_point(rtt_ms, queue_bdp, trials));
                }
                Question::RttFairness => numbers.rtt_fairness = Some(rtt_fairness(trials)),
                Question::Convergence { entry_s, watched_s } => {
                    let times =
                        trials.iter().map(|one| convergence_s(&one.finished.series, entry_s));
                    let times: Option<Vec<f64>> = times.collect();
                    numbers.convergence_s = times.map(mean);
                    numbers.convergence_within_s = Some(watched_s);
                }
                Question::Queue => numbers.standing_queue = Some(standing_queue(trials)),
                Question::Mice => {
                    let test = numbers.mice.get_or_insert_default();
                    test.beside = Some(mice(trials));
                    test.goodput_bps = over(trials, |one| one.goodput("a"));
                }
                Question::MiceAlone => {
                    numbers.mice.get_or_insert_default().alone = Some(mice(trials));
                }
                Question::Cross { from_s } => numbers.cross = Some(cross(from_s, trials)),
            }
        }
        numbers.regions.sort_by(|a, b| a.rtt_ms.total_cmp(&b.rtt_ms));
        numbers
    }
}

impl Trial {
    pub(super) fn scenario(&self) -> &Scenario {
        &self.run.scenario
    }

    pub(super) fn flow(&self, id: &str) -> Option<&FlowResult> {
        self.finished.results.flows.iter().find(|flow| flow.id == id)
    }

    pub(super) fn goodput(&self, id: &str) -> f64 {
        self.flow(id).map_or(f64::NAN, |flow| flow.goodput_bps)
    }

    /// Returns the link's rate in bit/s, headers included.
    pub(crate) fn link_bps(&self) -> f64 {
        let rate = self.scenario().links.first().and_then(|link| link.forward.rate());
        rate.map_or(f64::NAN, |rate| rate.0 as f64)
    }

    /// Returns the serialization time of a packet on the link, in milliseconds.
    pub(crate) fn packet_ms(&self) -> f64 {
        let bytes = self.scenario().flows.first().map_or(0, |flow| flow.packet_bytes);
        f64::from(bytes) * 8e3 / self.link_bps()
    }

    /// Returns the link capacity that cross traffic leaves, for each row of the series.
    pub(crate) fn free_bps(&self) -> Vec<f64> {
        let end = Instant::ZERO + self.scenario().duration;
        let is_live = |flow: &FlowPlan, t_s: f64| {
            let stop = flow.stop.unwrap_or(end).elapsed().as_secs_f64();
            flow.start.elapsed().as_secs_f64() + 1e-9 < t_s && t_s <= stop + 1e-9
        };
        let cross = |t_s: f64| {
            let flows = self.scenario().flows.iter();
            let live = flows.filter(|flow| is_live(flow, t_s));
            live.filter_map(FlowPlan::constant_rate).map(|rate| rate.0 as f64).sum::<f64>()
        };
        let times = self.finished.series.t_s.iter();
        times.map(|t_s| (self.link_bps() - cross(*t_s)).max(0.0)).collect()
    }
}

/// Returns a description of a number that only a faulty controller can produce.
pub(crate) fn invalid_number(trial: &Trial) -> Option<String> {
    for flow in &trial.finished.results.flows {
        for (what, value) in [("goodput", flow.goodput_bps), ("round trip", flow.rtt_ms.mean)] {
            if !value.is_finite() || value < 0.0 {
                return Some(format!("the {what} of flow '{}' is {value}", flow.id));
            }
        }
        if flow.started > 0 && flow.packets_sent == 0 {
            return Some(format!("flow '{}' sent nothing", flow.id));
        }
    }
    None
}

/// Returns the mean, or NaN of no values.
pub(super) fn mean(values: impl IntoIterator<Item = f64>) -> f64 {
    statistics::mean(values).unwrap_or(f64::NAN)
}

/// Returns the mean of a number over seeds.
fn over(trials: &[Trial], number: impl Fn(&Trial) -> f64) -> f64 {
    mean(trials.iter().map(number))
}

pub(crate) fn region_test(rtt_ms: f64, trials: &[Trial], mhz: Option<f64>) -> RegionTest {
    let count = trials.first().map_or(0, |one| one.finished.results.regions.len());
    let region = |index: usize| {
        let of = |number: fn(&Region) -> f64| {
            over(trials, |one| one.finished.results.regions.get(index).map_or(f64::NAN, number))
        };
        let first = trials.first().and_then(|one| one.finished.results.regions.get(index));
        RegionResult {
            from_s: of(|region| region.from_s),
            to_s: of(|region| region.to_s),
            flows: first.map_or(0, |region| region.flows.len()),
            mean_bps: of(|region| region.aggregate_bps),
            sd_bps: of(|region| region.stability * region.aggregate_bps),
            stability: of(|region| region.stability),
            jain: of(|region| region.jain),
            rtt_ms_mean: over(trials, |one| {
                let Finished { results, series, .. } = &one.finished;
                results.regions.get(index).map_or(f64::NAN, |region| rtt_ms_within(series, region))
            }),
            cost: cost(trials, mhz, |one| {
                let region = one.finished.results.regions.get(index)?;
                Some((region.from_s, region.to_s, region.aggregate_bps))
            }),
        }
    };
    let together = |one: &Trial| mean(together_bps(&one.finished));
    let spread = |one: &Trial| {
        let values: Vec<f64> = together_bps(&one.finished).into_iter().collect();
        statistics::deviation(&values).unwrap_or(0.0)
    };
    let whole = |one: &Trial| Some((0.0, one.finished.series.t_s.last().copied()?, together(one)));
    let all = trials.iter().flat_map(|one| &one.finished.results.regions);
    let jains: Vec<f64> = all.map(|region| region.jain).collect();
    RegionTest {
        rtt_ms,
        link_bps: over(trials, Trial::link_bps),
        regions: (0..count).map(region).collect(),
        mean_bps: over(trials, |one| together(one)),
        sd_bps: over(trials, |one| spread(one)),
        stability: over(trials, |one| spread(one) / together(one)),
        jain_min: jains.iter().copied().fold(f64::NAN, f64::min),
        jain_max: jains.iter().copied().fold(f64::NAN, f64::max),
        rtt_ms_mean: over(trials, |one| {
            let Finished { results, series, .. } = &one.finished;
            mean(rtts_ms(series, &results.regions).into_iter().filter(|rtt| rtt.is_finite()))
        }),
        cost: cost(trials, mhz, whole),
    }
}

/// Returns the total goodput of the flows in regions, one value per sample.
fn together_bps(Finished { results, series, .. }: &Finished) -> Vec<f64> {
    let is_meant = |flow: &&FlowSeries| {
        results.regions.iter().any(|region| region.flows.contains_key(&flow.id))
    };
    let meant: Vec<&FlowSeries> = series.flows.iter().filter(is_meant).collect();
    let row = |row: usize| meant.iter().filter_map(|flow| flow.goodput_bps.get(row)).sum();
    (0..series.t_s.len()).map(row).collect()
}

/// Returns the mean RTT of a region's flows during the region.
fn rtt_ms_within(series: &Series, region: &Region) -> f64 {
    let rows = series.t_s.iter().enumerate();
    let rows = rows.filter(|(_, t_s)| region.from_s < **t_s && **t_s <= region.to_s);
    let rtts = rows.flat_map(|(row, _)| present_rtts_ms(series, region, row));
    mean(rtts)
}

/// Returns the mean RTT of the flows present at each sample.
pub(crate) fn rtts_ms(series: &Series, regions: &[Region]) -> Vec<f64> {
    let rows = series.t_s.iter().enumerate();
    rows.map(|(row, t_s)| {
        let region = regions.iter().find(|region| region.from_s < *t_s && *t_s <= region.to_s);
        region.map_or(f64::NAN, |region| mean(present_rtts_ms(series, region, row)))
    })
    .collect()
}

fn present_rtts_ms(series: &Series, region: &Region, row: usize) -> Vec<f64> {
    let flows = series.flows.iter().filter(|flow| region.flows.contains_key(&flow.id));
    flows.filter_map(|flow| flow.rtt_ms.get(row).copied()).filter(|rtt| rtt.is_finite()).collect()
}

fn loss_point(loss: f64, trials: &[Trial]) -> LossPoint {
    LossPoint {
        loss,
        goodput_bps: over(trials, |one| one.goodput("a")),
        share_of_link: over(trials, |one| one.goodput("a") / one.link_bps()),
        rtt_ms_mean: over(trials, |one| one.flow("a").map_or(f64::NAN, |flow| flow.rtt_ms.mean)),
    }
}

fn beside_point(rtt_ms: f64, queue_bdp: f64, trials: &[Trial]) -> BesidePoint {
    let share = |one: &Trial| one.goodput("cubic") / (one.goodput("cubic") + one.goodput("a"));
    BesidePoint {
        rtt_ms,
        queue_bdp,
        cubic_share: over(trials, share),
        cubic_bps: over(trials, |one| one.goodput("cubic")),
        cc_bps: over(trials, |one| one.goodput("a")),
    }
}

fn rtt_fairness(trials: &[Trial]) -> RttFairness {
    RttFairness {
        near_ms: NEAR_MS,
        far_ms: FAR_MS,
        near_bps: over(trials, |one| one.goodput("a")),
        far_bps: over(trials, |one| one.goodput("b")),
        ratio: over(trials, |one| one.goodput("a") / one.goodput("b")),
    }
}

/// Returns the time from the start of the second flow until both flows are fair for [`FAIR_FOR_S`].
/// Fair means: over each second, each flow has half of the total within a fifth. `None` if the
/// flows never become fair.
fn convergence_s(series: &Series, entry_s: f64) -> Option<f64> {
    let [first, second, ..] = series.flows.as_slice() else { return None };
    let sample_s = *series.t_s.first()?;
    let rows = |span_s: f64| rows_of(span_s, sample_s);
    let is_fair = |row: usize| {
        let window = row..row + rows(FAIR_WINDOW_S);
        let sum = |values: &[f64]| values.get(window.clone()).map(|part| part.iter().sum::<f64>());
        let (Some(a), Some(b)) = (sum(&first.goodput_bps), sum(&second.goodput_bps)) else {
            return false;
        };
        // One flow exceeds its half by as much as the other falls short.
        let half = f64::midpoint(a, b);
        half > 0.0 && (a - half).abs() <= half * FAIR_WITHIN
    };
    // Number of windows that begin within the time and end with the time.
    let wanted = rows(FAIR_FOR_S) - rows(FAIR_WINDOW_S) + 1;
    let mut fair = 0;
    // A row's time is the end of its sample.
    for (row, end_s) in series.t_s.iter().enumerate() {
        let starts_after_entry = end_s - sample_s >= entry_s - sample_s / 2.0;
        fair = if starts_after_entry && is_fair(row) { fair + 1 } else { 0 };
        if fair == wanted {
            let begun = row + 1 - wanted;
            return Some((series.t_s[begun] - sample_s - entry_s).max(0.0));
        }
    }
    None
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a few, and over zero")]
fn rows_of(span_s: f64, sample_s: f64) -> usize {
    ((span_s / sample_s).round() as usize).max(1)
}

fn standing_queue(trials: &[Trial]) -> StandingQueue {
    let queue = |one: &Trial| one.finished.results.links.first().map(|link| link.queue_packets);
    let full = |one: &Trial| match one.scenario().links.first().map(|link| link.forward.queue()) {
        Some(QueueLimit::Packets(packets)) => packets as f64,
        _ => f64::NAN,
    };
    StandingQueue {
        mean_ms: over(trials, |one| queue(one).map_or(f64::NAN, |q| q.mean) * one.packet_ms()),
        p99_ms: over(trials, |one| queue(one).map_or(f64::NAN, |q| q.p99) * one.packet_ms()),
        full_ms: over(trials, |one| full(one) * one.packet_ms()),
        goodput_bps: over(trials, |one| one.goodput("a")),
    }
}

fn mice(trials: &[Trial]) -> Mice {
    let all = || trials.iter().filter_map(|one| one.flow("mice"));
    let of = |number: fn(&Completion) -> f64| {
        mean(all().map(|mice| mice.completion.as_ref().map_or(f64::NAN, number)))
    };
    Mice {
        median_s: of(|times| times.median_s),
        p99_s: of(|times| times.p99_s),
        started: all().map(|mice| mice.started).sum(),
        completed: all().map(|mice| mice.completed).sum(),
    }
}

fn cross(from_s: f64, trials: &[Trial]) -> Cross {
    let share = |is_wanted: fn(f64, f64) -> bool| {
        over(trials, |one| {
            let series = &one.finished.series;
            let free = one.free_bps();
            let Some(flow) = series.flows.iter().find(|flow| flow.id == "a") else {
                return f64::NAN;
            };
            let rows = series.t_s.iter().zip(&flow.goodput_bps).zip(&free);
            let rows = rows.filter(|((t_s, _), free)| {
                **t_s > from_s + 1e-9 && is_wanted(**free, one.link_bps())
            });
            let (used, free) =
                rows.fold((0.0, 0.0), |sum, ((_, used), free)| (sum.0 + used, sum.1 + free));
            used / free
        })
    };
    let delivered = |one: &Trial| {
        let plans = one.scenario().flows.iter().zip(&one.finished.results.flows);
        let shares = plans.filter_map(|(plan, flow)| {
            let rate = plan.constant_rate()?;
            Some(flow.throughput_bps / rate.0 as f64)
        });
        mean(shares)
    };
    Cross {
        share: share(|_, _| true),
        share_during: share(|free, link| free < link),
        share_between: share(|free, link| free >= link),
        cross_delivered: over(trials, delivered),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use sabul_run::results::{FlowSeries, LinkResult, LinkSeries, Queue, Results, Rtt};

    use super::*;

    #[track_caller]
    pub(crate) fn close(ours: f64, wanted: f64) {
        assert!((ours - wanted).abs() < 1e-9, "{ours}, not {wanted}");
    }

    pub(crate) fn series(sample_s: f64, flows: &[(&str, Vec<f64>)]) -> Series {
        let rows = flows.iter().map(|(_, rates)| rates.len()).max().unwrap_or(0);
        let flow = |(id, rates): &(&str, Vec<f64>)| FlowSeries {
            id: (*id).to_owned(),
            goodput_bps: rates.clone(),
            rtt_ms: rates.clone(),
            ..FlowSeries::default()
        };
        Series {
            t_s: (1..=rows).map(|row| row as f64 * sample_s).collect(),
            flows: flows.iter().map(flow).collect(),
            links: vec![LinkSeries::default()],
        }
    }

    fn flow(id: &str, goodput_bps: f64) -> FlowResult {
        FlowResult {
            id: id.to_owned(),
            goodput_bps,
            packets_sent: 9,
            started: 1,
            rtt_ms: Rtt { min: 10.0, mean: 12.0, p99: 15.0 },
            ..FlowResult::default()
        }
    }

    /// A run over 10 Mb/s, where a packet of 1500 bytes takes 1.2 ms; the queue holds 100 packets.
    pub(crate) fn trial(flows: &str, results: Results, series: Series) -> Trial {
        let text = format!(
            "duration_s = 60\nlink = [{{ id = 'bottleneck', rate_mbps = 10, delay_ms = 5, \
             queue_packets = 100 }}]\nflow = [{{ id = 'a', path = ['bottleneck'] }}{flows}]"
        );
        let run = sabul_scenario::read(&text, "x.toml", &[]).unwrap().remove(0);
        Trial {
            run,
            finished: Finished {
                results,
                series,
                wall_s: 0.0,
                lab: None,
                why: crate::Why::default(),
            },
        }
    }

    fn of_flows(flows: Vec<FlowResult>) -> Trial {
        trial("", Results { flows, ..Results::default() }, Series::default())
    }

    #[test]
    fn goodput_of_one_flow_is_averaged_over_seeds_and_divided_by_the_link_rate() {
        let point = loss_point(0.01, &[4e6, 6e6].map(|rate| of_flows(vec![flow("a", rate)])));
        close(point.goodput_bps, 5e6);
        close(point.share_of_link, 0.5);
        close(point.rtt_ms_mean, 12.0);
    }

    #[test]
    fn shares_and_ratios_of_two_flows() {
        let point = beside_point(40.0, 1.0, &[of_flows(vec![flow("a", 6e6), flow("cubic", 2e6)])]);
        close(point.cubic_share, 0.25);
        let pair = rtt_fairness(&[of_flows(vec![flow("a", 6e6), flow("b", 2e6)])]);
        close(pair.ratio, 3.0);
        let starved = rtt_fairness(&[of_flows(vec![flow("a", 6e6), flow("b", 0.0)])]);
        assert_eq!(serde_json::to_value(starved).unwrap()["ratio"], serde_json::Value::Null);
    }

    #[test]
    fn regions_have_mean_and_deviation_of_the_total_of_all_flows() {
        // The totals are 1, 3, 5 and 3 Mb/s: mean 3, squares 4 + 0 + 4 + 0 over 3. Cross traffic
        // belongs to no region and is not counted.
        let flows = [
            ("a", vec![1e6, 2e6, 4e6, 3e6]),
            ("b", vec![f64::NAN, 1e6, 1e6, f64::NAN]),
            ("cross", vec![5e6; 4]),
        ];
        let mut seen = series(1.0, &flows);
        for row in [0, 3] {
            seen.flows[1].goodput_bps[row] = 0.0;
        }
        let region = |from_s: f64, ids: &[&str], jain: f64| Region {
            from_s,
            to_s: from_s + 2.0,
            aggregate_bps: 4e6,
            stability: 0.25,
            jain,
            flows: ids.iter().map(|id| ((*id).to_owned(), 1e6)).collect(),
        };
        let regions = vec![region(0.0, &["a", "b"], 0.75), region(2.0, &["a"], 1.0)];
        let results = Results { regions, ..Results::default() };
        let test = region_test(180.0, &[trial("", results, seen)], Some(2000.0));
        assert_eq!(test.cost, None, "not counted in virtual time");
        close(test.mean_bps, 3e6);
        close(test.sd_bps, (8.0_f64 / 3.0).sqrt() * 1e6);
        close(test.stability, (8.0_f64 / 3.0).sqrt() / 3.0);
        close(test.jain_min, 0.75);
        close(test.jain_max, 1.0);
        let numbers: Vec<_> =
            test.regions.iter().map(|r| (r.flows, r.sd_bps, r.rtt_ms_mean)).collect();
        // RTTs are the same numbers: 1, 2 and 1 of both, then 4 and 3 of one flow.
        assert_eq!(numbers, [(2, 1e6, 4e6 / 3.0), (1, 1e6, 3.5e6)]);
        // Means of the flows present at each moment: 1, 1.5, 4 and 3.
        close(test.rtt_ms_mean, 9.5e6 / 4.0);
    }

    #[test]
    fn a_test_without_a_valid_run_has_no_numbers() {
        let exam =
            |question, name: &str| Exam { question, name: name.to_owned(), text: String::new() };
        let lone = || vec![of_flows(vec![flow("a", 5e6)])];
        let answers = [
            Answer {
                exam: exam(Question::Loss { share: 0.1 }, "loss"),
                trials: Vec::new(),
                invalid: lone(),
            },
            Answer { exam: exam(Question::Queue, "queue"), trials: lone(), invalid: lone() },
        ];
        let numbers = Numbers::new(&answers, None);
        assert!(numbers.loss.is_empty() && numbers.cross.is_none() && numbers.mice.is_none());
        close(numbers.standing_queue.unwrap().goodput_bps, 5e6);
    }

    #[test]
    fn a_second_flow_has_converged_when_both_are_fair_for_five_seconds() {
        // The second flow starts after 2 s. The rates are 0 : 10 for 3 s, and 4.5 : 5.5 from 5 s
        // on.
        let rates = |early: f64, late: f64| {
            (0..150).map(|row| if row < 50 { early } else { late }).collect::<Vec<_>>()
        };
        let seen = series(0.1, &[("a", rates(10.0, 5.5)), ("b", rates(0.0, 4.5))]);
        // A second with 10 : 0 for 0.3 s and 5.5 : 4.5 for 0.7 s has 6.85 : 3.15, which is unfair.
        // The first fair second has 10 : 0 for 0.1 s: 5.95 : 4.05, within a fifth of 5.
        let found = convergence_s(&seen, 2.0).unwrap();
        close(found, 2.9);
        // Seven to three is never fair.
        let apart = series(0.1, &[("a", rates(10.0, 7.0)), ("b", rates(0.0, 3.0))]);
        assert_eq!(convergence_s(&apart, 2.0), None);
        // Fair from the start of the second flow, and before.
        let equal = series(0.1, &[("a", rates(5.0, 5.0)), ("b", rates(5.0, 5.0))]);
        close(convergence_s(&equal, 2.0).unwrap(), 0.0);
        // Fair only for the last four seconds; and no goodput at all.
        let late: Vec<f64> = (0..150).map(|row| if row < 110 { 0.0 } else { 10.0 }).collect();
        let short = series(0.1, &[("a", vec![10.0; 150]), ("b", late)]);
        assert_eq!(convergence_s(&short, 2.0), None);
        let silent = series(0.1, &[("a", vec![0.0; 150]), ("b", vec![0.0; 150])]);
        assert_eq!(convergence_s(&silent, 2.0), None);
        assert_eq!(convergence_s(&Series::default(), 2.0), None);
    }

    #[test]
    fn queued_packets_are_converted_to_a_delay() {
        let link = LinkResult {
            queue_packets: Queue { mean: 25.0, p99: 90.0, max: 100 },
            ..LinkResult::default()
        };
        let results =
            Results { flows: vec![flow("a", 9e6)], links: vec![link], ..Results::default() };
        let queue = standing_queue(&[trial("", results, Series::default())]);
        close(queue.mean_ms, 30.0);
        close(queue.p99_ms, 108.0);
        close(queue.full_ms, 120.0);
    }

    #[test]
    fn short_flows_that_never_completed_have_no_times() {
        let mut mouse = flow("mice", 1e5);
        mouse.completion = Some(Completion { median_s: 0.2, p99_s: 0.9 });
        (mouse.started, mouse.completed) = (10, 8);
        let found = mice(&[of_flows(vec![mouse.clone()])]);
        close(found.median_s, 0.2);
        close(found.p99_s, 0.9);
        assert_eq!((found.started, found.completed), (10, 8));
        mouse.completion = None;
        assert!(mice(&[of_flows(vec![mouse])]).median_s.is_nan());
    }

    #[test]
    fn the_share_beside_cross_traffic_is_of_the_remaining_capacity() {
        // 4 of 10 Mb/s are taken from 30 to 40 s. Nothing before 20 s counts.
        let taken = ", { id = 'c', transport = 'udp-cbr', rate_mbps = 4, path = ['bottleneck'], \
                     start_s = 30, stop_s = 40 }";
        let ours: Vec<f64> = (1..=60)
            .map(|second| match second {
                0..=20 => 1e6,
                31..=40 => 3e6,
                _ => 8e6,
            })
            .collect();
        let seen = series(1.0, &[("a", ours)]);
        let mut c = flow("c", 3.8e6);
        c.throughput_bps = 3.9e6;
        let results = Results { flows: vec![flow("a", 7e6), c], ..Results::default() };
        let found = cross(20.0, &[trial(taken, results, seen)]);
        close(found.share_during, 0.5);
        close(found.share_between, 0.8);
        // Goodput: 3 Mb/s for 10 s and 8 Mb/s for 30 s. Free: 6 Mb/s for 10 s and 10 Mb/s for 30 s.
        close(found.share, 270.0 / 360.0);
        close(found.cross_delivered, 0.975);
    }

    #[test]
    fn impossible_numbers_are_reported_as_nonsense() {
        assert_eq!(invalid_number(&of_flows(vec![flow("a", 5e6)])), None);
        for rate in [f64::NAN, f64::INFINITY, -1.0] {
            let found = invalid_number(&of_flows(vec![flow("a", rate)])).unwrap();
            assert!(found.contains("goodput of flow 'a'"), "{found}");
        }
        let mut silent = flow("a", 0.0);
        silent.packets_sent = 0;
        assert_eq!(invalid_number(&of_flows(vec![silent])).unwrap(), "flow 'a' sent nothing");
    }
}
