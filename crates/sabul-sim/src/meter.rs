//! What is measured while a world runs, and what results from it.

use sabul_units::{Instant, Span};

use crate::host::{Counters, Gauges};
use crate::net::{Net, Packet, Way};
use crate::results::{
    Completion, FlowResult, FlowSeries, LinkResult, LinkSeries, Queue, Region, Results, Rtt, Series,
};
use crate::scenario::{Arrivals, FlowPlan, FlowSize, Scenario, Transport};
use crate::{Link, LinkStats};

/// [SLAC] judges stability by reports of one second.
const STABILITY_BIN: Span = Span::from_secs(1);

/// One flow of a plan, as far as averages need it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Life {
    pub(crate) started: Instant,
    /// Fresh bytes when the averages began.
    pub(crate) bytes_at_warmup: u64,
}

/// What is known of all flows of one plan.
#[derive(Clone, Debug, Default)]
struct PlanMeter {
    /// Counts of flows that are gone.
    retired: Counters,
    at_warmup: Counters,
    at_last_sample: Counters,
    /// Fresh bytes at the end of each sample.
    fresh: Vec<u64>,
    rtt_min_ms: Option<f64>,
    rtts_ms: Vec<f64>,
    started: u64,
    completions_s: Vec<f64>,
    last_completion: Option<Instant>,
    goodputs: Vec<f64>,
}

/// A moment at which flows are compared: somebody long enters or leaves.
#[derive(Clone, Debug)]
struct Boundary {
    at: Instant,
    fresh: Vec<u64>,
}

/// The measurements of one run.
#[derive(Clone, Debug)]
pub(crate) struct Meter {
    scenario: Scenario,
    plans: Vec<PlanMeter>,
    series: Series,
    boundaries: Vec<Boundary>,
    next_boundary: usize,
    links_at_last_sample: Vec<LinkStats>,
    /// With packets × picoseconds in the queue.
    links_at_warmup: Vec<(LinkStats, u128)>,
    next_sample: Instant,
    is_warm: bool,
}

/// What the live flows of a plan have counted, and what stands for them.
pub(crate) type PlanState = (Counters, Option<Gauges>);

impl Meter {
    pub(crate) fn new(scenario: Scenario) -> Self {
        let end = Instant::ZERO + scenario.duration;
        let mut times = vec![Instant::ZERO, end];
        for flow in scenario.flows.iter().filter(|flow| is_long(scenario.flows.len(), flow)) {
            times.push(flow.start.min(end));
            times.extend(flow.stop.map(|stop| stop.min(end)));
        }
        times.sort_unstable();
        times.dedup();
        let boundaries = times.into_iter().map(|at| Boundary { at, fresh: Vec::new() }).collect();
        let series = Series {
            t_s: Vec::new(),
            flows: scenario
                .flows
                .iter()
                .map(|flow| FlowSeries { id: flow.id.clone(), ..FlowSeries::default() })
                .collect(),
            links: scenario
                .links
                .iter()
                .map(|link| LinkSeries { id: link.id.clone(), ..LinkSeries::default() })
                .collect(),
        };
        Self {
            plans: vec![PlanMeter::default(); scenario.flows.len()],
            series,
            boundaries,
            next_boundary: 0,
            links_at_last_sample: vec![LinkStats::default(); scenario.links.len()],
            links_at_warmup: vec![(LinkStats::default(), 0); scenario.links.len()],
            next_sample: Instant::ZERO + scenario.sample,
            is_warm: false,
            scenario,
        }
    }

    /// When the next snapshot is wanted.
    pub(crate) fn next_tick(&self) -> Option<Instant> {
        let boundary = self.boundaries.get(self.next_boundary).map(|boundary| boundary.at);
        let warmup = (!self.is_warm).then_some(Instant::ZERO + self.scenario.warmup);
        Instant::earliest([boundary, warmup, Some(self.next_sample)])
    }

    /// Whether averages have begun; true once the tick at the end of the warm-up has been taken.
    pub(crate) const fn is_warm(&self) -> bool {
        self.is_warm
    }

    pub(crate) fn flow_started(&mut self, plan: usize) {
        self.plans[plan].started += 1;
    }

    /// A flow delivered all it had.
    pub(crate) fn flow_completed(&mut self, now: Instant, plan: usize, life: Life) {
        let meter = &mut self.plans[plan];
        meter.completions_s.push(now.since(life.started).as_secs_f64());
        meter.last_completion = Some(now);
    }

    /// A flow is gone, or the run is over.
    pub(crate) fn flow_retired(
        &mut self,
        now: Instant,
        plan: usize,
        life: Life,
        counters: Counters,
        gauges: Gauges,
    ) {
        let from = life.started.max(Instant::ZERO + self.scenario.warmup);
        let meter = &mut self.plans[plan];
        meter.retired.add(counters);
        meter.note_rtt_min(gauges);
        if is_counted(self.scenario.flows[plan].arrivals) && now > from {
            let bytes = counters.fresh_bytes.saturating_sub(life.bytes_at_warmup);
            meter.goodputs.push(bps(bytes, now.since(from)));
        }
    }

    /// Takes what the world looks like at a tick.
    pub(crate) fn tick(&mut self, now: Instant, plans: &[PlanState], net: &mut Net) {
        let totals: Vec<Counters> = self
            .plans
            .iter()
            .zip(plans)
            .map(|(meter, (live, _))| {
                let mut total = meter.retired;
                total.add(*live);
                total
            })
            .collect();
        if !self.is_warm && now >= Instant::ZERO + self.scenario.warmup {
            self.is_warm = true;
            for (meter, total) in self.plans.iter_mut().zip(&totals) {
                meter.at_warmup = *total;
            }
            for (index, before) in self.links_at_warmup.iter_mut().enumerate() {
                let link = net.link_mut(index, Way::Forward);
                link.restart_queue_max();
                *before = (link.stats_at(now), link.queue_packet_time());
            }
        }
        if let Some(boundary) = self.boundaries.get_mut(self.next_boundary)
            && boundary.at <= now
        {
            boundary.fresh = totals.iter().map(|total| total.fresh_bytes).collect();
            self.next_boundary += 1;
        }
        if now >= self.next_sample {
            self.sample(now, &totals, plans, net);
            self.next_sample = self.next_sample + self.scenario.sample;
        }
    }

    fn sample(&mut self, now: Instant, totals: &[Counters], plans: &[PlanState], net: &mut Net) {
        let span = self.scenario.sample;
        let is_warm = self.is_warm && now > Instant::ZERO + self.scenario.warmup;
        self.series.t_s.push(now.elapsed().as_secs_f64());
        for (index, (meter, total)) in self.plans.iter_mut().zip(totals).enumerate() {
            let passed = total.since(meter.at_last_sample);
            meter.at_last_sample = *total;
            meter.fresh.push(total.fresh_bytes);
            let gauges = plans[index].1;
            let rtt = gauges.and_then(|gauges| gauges.rtt).map(|rtt| rtt.latest.as_millis_f64());
            if let (Some(rtt), true) = (rtt, is_warm) {
                meter.rtts_ms.push(rtt);
            }
            if let Some(gauges) = gauges {
                meter.note_rtt_min(gauges);
            }
            let row = &mut self.series.flows[index];
            row.goodput_bps.push(bps(passed.fresh_bytes, span));
            row.rate_bps.push(bps(passed.sent_bytes, span));
            row.gap_ns.push(gauges.map_or(0.0, |gauges| gauges.gap.0 as f64 / 1e3));
            row.rtt_ms.push(rtt.unwrap_or(f64::NAN));
            row.in_flight_pkts.push(gauges.map_or(0.0, |gauges| gauges.in_flight as f64));
            row.loss_rate.push(ratio(passed.lost, passed.sent));
        }
        for index in 0..self.scenario.links.len() {
            let link = net.link_mut(index, Way::Forward);
            let (stats, queue) = (link.stats_at(now), link.queue_len());
            let before = std::mem::replace(&mut self.links_at_last_sample[index], stats);
            let rate = self.scenario.links[index].forward.rate();
            let row = &mut self.series.links[index];
            row.queue_pkts.push(queue as f64);
            row.drops.push((stats.dropped() - before.dropped()) as f64);
            let carried = bps(stats.delivered_bytes - before.delivered_bytes, span);
            row.utilisation.push(rate.map_or(0.0, |rate| carried / rate.0 as f64));
        }
    }

    /// The results, once every flow has been retired and the last tick taken.
    pub(crate) fn finish(self, now: Instant, net: &mut Net) -> (Results, Series) {
        let flows =
            (0..self.plans.len()).map(|plan| self.flow_result(now, plan)).collect::<Vec<_>>();
        let links = (0..self.scenario.links.len())
            .map(|index| self.link_result(now, index, net.link_mut(index, Way::Forward)))
            .collect();
        let long: Vec<f64> = self.goodputs(|size| size == FlowSize::Endless);
        let jain = if long.is_empty() { jain(&self.goodputs(|_| true)) } else { jain(&long) };
        let regions = self.regions();
        (Results { flows, links, jain, regions }, self.series)
    }

    fn goodputs(&self, wanted: impl Fn(FlowSize) -> bool) -> Vec<f64> {
        let flows = self.scenario.flows.iter().zip(&self.plans);
        flows
            .filter(|(plan, _)| plan.transport != Transport::UdpCbr && wanted(plan.size))
            .flat_map(|(_, meter)| meter.goodputs.iter().copied())
            .collect()
    }

    fn flow_result(&self, now: Instant, plan: usize) -> FlowResult {
        let (meter, flow) = (&self.plans[plan], &self.scenario.flows[plan]);
        let from = flow.start.max(Instant::ZERO + self.scenario.warmup);
        let all_done = meter.started > 0
            && meter.completions_s.len() as u64 == meter.started
            && is_counted(flow.arrivals);
        let until = match meter.last_completion.filter(|_| all_done) {
            Some(completion) => completion,
            None => flow.stop.unwrap_or(now).min(now),
        };
        let span = until.max(from).since(from);
        let passed = meter.retired.since(meter.at_warmup);
        let mut times = meter.completions_s.clone();
        times.sort_unstable_by(f64::total_cmp);
        let completion = (times.len() > 1)
            .then(|| Completion { median_s: quantile(&times, 0.5), p99_s: quantile(&times, 0.99) });
        let completed_s = (!times.is_empty()).then(|| mean(&times));
        let mut rtts = meter.rtts_ms.clone();
        rtts.sort_unstable_by(f64::total_cmp);
        FlowResult {
            id: flow.id.clone(),
            transport: flow.transport.name().to_owned(),
            cc: flow.cc.clone(),
            goodput_bps: bps(passed.fresh_bytes, span),
            throughput_bps: bps(passed.arrived_bytes, span),
            packets_sent: passed.sent,
            packets_lost: passed.lost,
            loss_rate: ratio(passed.lost, passed.sent),
            retransmissions: passed.resent,
            rtt_ms: Rtt {
                min: meter.rtt_min_ms.unwrap_or(0.0),
                mean: mean(&rtts),
                p99: quantile(&rtts, 0.99),
            },
            stability: stability(&self.binned(from, until, |row| meter.fresh[row])),
            completed_s,
            started: meter.started,
            completed: meter.completions_s.len() as u64,
            completion,
        }
    }

    fn link_result(&self, now: Instant, index: usize, link: &mut Link<Packet>) -> LinkResult {
        let stats = link.stats_at(now);
        let (plan, (before, area)) = (&self.scenario.links[index], &self.links_at_warmup[index]);
        let span = now.since(Instant::ZERO + self.scenario.warmup);
        let carried = bps(stats.delivered_bytes - before.delivered_bytes, span);
        let from = self.scenario.warmup.as_secs_f64();
        let rows = self.series.t_s.iter().zip(&self.series.links[index].queue_pkts);
        let mut queue: Vec<f64> =
            rows.filter(|(t_s, _)| **t_s > from).map(|(_, queue)| *queue).collect();
        queue.sort_unstable_by(f64::total_cmp);
        LinkResult {
            id: plan.id.clone(),
            utilisation: plan.forward.rate().map_or(0.0, |rate| carried / rate.0 as f64),
            drops: stats.dropped() - before.dropped(),
            marks: stats.marked - before.marked,
            queue_packets: Queue {
                mean: (link.queue_packet_time() - area) as f64 / span.0.max(1) as f64,
                p99: quantile(&queue, 0.99),
                max: stats.queue_max_packets,
            },
        }
    }

    fn regions(&self) -> Vec<Region> {
        let pairs = self.boundaries.windows(2).filter(|pair| !pair[1].fresh.is_empty());
        pairs
            .map(|pair| {
                let [begin, end] = pair else { unreachable!("windows of two") };
                let span = end.at.since(begin.at);
                let present: Vec<usize> = (0..self.plans.len())
                    .filter(|plan| {
                        let flow = &self.scenario.flows[*plan];
                        is_long(self.plans.len(), flow)
                            && flow.start < end.at
                            && flow.stop.is_none_or(|stop| stop > begin.at)
                    })
                    .collect();
                let goodput = |plan: usize| bps(end.fresh[plan] - begin.fresh[plan], span);
                let rates: Vec<f64> = present.iter().map(|plan| goodput(*plan)).collect();
                let together = |row: usize| {
                    present.iter().map(|plan| self.plans[*plan].fresh[row]).sum::<u64>()
                };
                Region {
                    from_s: begin.at.elapsed().as_secs_f64(),
                    to_s: end.at.elapsed().as_secs_f64(),
                    aggregate_bps: rates.iter().sum(),
                    stability: stability(&self.binned(begin.at, end.at, together)),
                    jain: jain(&rates),
                    flows: present
                        .iter()
                        .map(|plan| (self.scenario.flows[*plan].id.clone(), goodput(*plan)))
                        .collect(),
                }
            })
            .collect()
    }

    /// Bytes in each whole second of a time, from totals at the ends of samples.
    fn binned(&self, from: Instant, until: Instant, total: impl Fn(usize) -> u64) -> Vec<f64> {
        let sample = self.scenario.sample.0;
        let rows_in_bin = STABILITY_BIN.0.div_ceil(sample).max(1);
        // Row r ends at (r + 1) samples; the first bin begins at the end of a row.
        let first = from.elapsed().0.div_ceil(sample);
        let last = (until.elapsed().0 / sample).min(self.series.t_s.len() as u64);
        let at = |row: u64| {
            let row = usize::try_from(row).unwrap_or(usize::MAX);
            if row == 0 { 0 } else { total(row - 1) }
        };
        let mut bins = Vec::new();
        let mut row = first;
        while row + rows_in_bin <= last {
            bins.push((at(row + rows_in_bin) - at(row)) as f64);
            row += rows_in_bin;
        }
        bins
    }
}

impl PlanMeter {
    fn note_rtt_min(&mut self, gauges: Gauges) {
        if let Some(rtt) = gauges.rtt {
            let sample = rtt.min.as_millis_f64();
            self.rtt_min_ms = Some(self.rtt_min_ms.map_or(sample, |min| min.min(sample)));
        }
    }
}

/// Whether regions are about this flow: it has no end of its own, and it is not mere cross traffic
/// unless there is nothing else.
fn is_long(plans: usize, flow: &FlowPlan) -> bool {
    flow.size == FlowSize::Endless && (flow.transport != Transport::UdpCbr || plans == 1)
}

/// Whether the number of flows is known beforehand.
fn is_counted(arrivals: Arrivals) -> bool {
    !matches!(arrivals, Arrivals::Poisson { .. })
}

fn bps(bytes: u64, span: Span) -> f64 {
    if span == Span::ZERO { 0.0 } else { bytes as f64 * 8.0 / span.as_secs_f64() }
}

fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

fn mean(values: &[f64]) -> f64 {
    if values.is_empty() { 0.0 } else { values.iter().sum::<f64>() / values.len() as f64 }
}

/// The value below which this share of sorted values lies: the nearest rank.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "within the length")]
fn quantile(sorted: &[f64], share: f64) -> f64 {
    let rank = (sorted.len() as f64 * share).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or(0.0)
}

/// Standard deviation ÷ mean; zero where there is nothing to compare. [SLAC]
fn stability(values: &[f64]) -> f64 {
    let mean = mean(values);
    if values.len() < 2 || mean <= 0.0 {
        return 0.0;
    }
    let squares: f64 = values.iter().map(|value| (value - mean) * (value - mean)).sum();
    (squares / (values.len() - 1) as f64).sqrt() / mean
}

/// Jain's index, (Σx)² ÷ (n Σx²); one where there is nothing to share.
fn jain(rates: &[f64]) -> f64 {
    let sum: f64 = rates.iter().sum();
    let squares: f64 = rates.iter().map(|rate| rate * rate).sum();
    if squares <= 0.0 { 1.0 } else { sum * sum / (rates.len() as f64 * squares) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_measures_follow_their_formulas() {
        // (1 + 3)² ÷ (2 × (1 + 9)) = 0.8.
        assert!((jain(&[1.0, 3.0]) - 0.8).abs() < 1e-12);
        assert!((jain(&[]) - 1.0).abs() < 1e-12);
        // Mean 2, deviations −1, 0, 1: √(2 ÷ 2) ÷ 2 = 0.5.
        assert!((stability(&[1.0, 2.0, 3.0]) - 0.5).abs() < 1e-12);
        let values: Vec<f64> = (1..=200).map(f64::from).collect();
        assert!((quantile(&values, 0.99) - 198.0).abs() < 1e-12);
        assert!((quantile(&values, 0.5) - 100.0).abs() < 1e-12);
        assert!(quantile(&[], 0.5).abs() < 1e-12);
    }
}
