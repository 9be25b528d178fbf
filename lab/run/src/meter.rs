//! Measurement of a running scenario, for both simulator and lab.
//!
//! The caller of a [`Meter`] reports when flows start, complete and end ([`Meter::flow_started`]
//! and similar). At the times that [`Meter::next_tick`] returns, the caller passes a snapshot to
//! [`Meter::tick`].

pub use sabul_cc::RttEstimate;
use sabul_net::{LinkConfig, LinkSnapshot, LinkStats, Topology, Way};
use sabul_units::{Instant, Rate, Span};

use crate::results::{
    Completion, FlowResult, FlowSeries, LinkResult, LinkSeries, Queue, Region, Results, Rtt, Series,
};
use crate::scenario::{Arrivals, FlowPlan, FlowSize, Scenario, Transport};
use crate::statistics::{jain, mean, quantile, stability};

/// [SLAC] judges stability by reports of one second.
const STABILITY_BIN: Span = Span::from_secs(1);

/// Counters since the start of a flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// New payload bytes at the receiver.
    pub fresh_bytes: u64,
    /// Bytes of data packets at the receiver, headers included.
    pub arrived_bytes: u64,
    /// Data packets sent.
    pub sent: u64,
    /// Bytes of the data packets sent, headers included.
    pub sent_bytes: u64,
    /// Data packets that the sender declared lost.
    pub lost: u64,
    /// Retransmissions, included in `sent`.
    pub resent: u64,
    /// Number of times the circuit breaker opened.
    pub breaker_opened: u64,
}

impl Counters {
    /// Adds other counters to these.
    pub fn add(&mut self, other: Self) {
        self.fresh_bytes += other.fresh_bytes;
        self.arrived_bytes += other.arrived_bytes;
        self.sent += other.sent;
        self.sent_bytes += other.sent_bytes;
        self.lost += other.lost;
        self.resent += other.resent;
        self.breaker_opened += other.breaker_opened;
    }

    /// Returns the difference to earlier counters.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        Self {
            fresh_bytes: self.fresh_bytes.saturating_sub(earlier.fresh_bytes),
            arrived_bytes: self.arrived_bytes.saturating_sub(earlier.arrived_bytes),
            sent: self.sent.saturating_sub(earlier.sent),
            sent_bytes: self.sent_bytes.saturating_sub(earlier.sent_bytes),
            lost: self.lost.saturating_sub(earlier.lost),
            resent: self.resent.saturating_sub(earlier.resent),
            breaker_opened: self.breaker_opened.saturating_sub(earlier.breaker_opened),
        }
    }
}

/// Current state of a sender.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Gauges {
    /// The controller's inter-packet gap; zero without pacing.
    pub gap: Span,
    /// RTT as the sender measures it.
    pub rtt: Option<RttEstimate>,
    /// Packets in flight.
    pub in_flight: u64,
    /// The controller's window, in packets; `None` without a window.
    pub window: Option<u64>,
    /// Recent delivery rate in payload bits; `None` where the sender does not report that rate.
    pub delivery: Option<Rate>,
}

/// Access to link statistics; positions are those of the scenario.
pub trait Links {
    /// Returns a snapshot of one direction of a link.
    fn snapshot(&mut self, link: usize, way: Way, now: Instant) -> LinkSnapshot;
    /// Restarts the measurement of the longest queue of a direction.
    fn restart_queue_max(&mut self, link: usize, way: Way);
}

impl<P: Clone, T: Copy> Links for Topology<P, T> {
    fn snapshot(&mut self, link: usize, way: Way, now: Instant) -> LinkSnapshot {
        Self::snapshot(self, link, way, now)
    }

    fn restart_queue_max(&mut self, link: usize, way: Way) {
        Self::restart_queue_max(self, link, way);
    }
}

/// A measured direction of a link.
#[derive(Clone, Debug)]
struct Measured {
    /// Position of the link.
    link: usize,
    way: Way,
    /// Name in results.
    id: String,
    at_last_sample: LinkStats,
    at_warmup: LinkSnapshot,
}

impl Measured {
    /// The data direction of each link, then the back direction of each link that carries data of a
    /// reverse flow. Names of the latter end in `.back`.
    fn of(scenario: &Scenario) -> Vec<Self> {
        let new = |link: usize, way: Way, id: String| Self {
            link,
            way,
            id,
            at_last_sample: LinkStats::default(),
            at_warmup: LinkSnapshot::default(),
        };
        let carries_back = |link: &usize| {
            scenario.flows.iter().any(|flow| flow.is_reverse && flow.path.contains(link))
        };
        let links = scenario.links.iter().enumerate();
        let forward = links.map(|(link, plan)| new(link, Way::Forward, plan.id.clone()));
        let back = (0..scenario.links.len()).filter(carries_back);
        let back =
            back.map(|link| new(link, Way::Back, format!("{}.back", scenario.links[link].id)));
        forward.chain(back).collect()
    }

    fn config<'a>(&self, scenario: &'a Scenario) -> &'a LinkConfig {
        let plan = &scenario.links[self.link];
        if self.way == Way::Forward { &plan.forward } else { &plan.back }
    }
}

/// Start of one flow, for averages.
#[derive(Clone, Copy, Debug)]
pub struct Life {
    /// Start time.
    pub started: Instant,
    /// New payload bytes at the end of the warm-up.
    pub bytes_at_warmup: u64,
}

/// Measurements of all flows of one plan.
#[derive(Clone, Debug, Default)]
struct PlanMeter {
    /// Counters of flows that have ended.
    retired: Counters,
    at_warmup: Counters,
    at_last_sample: Counters,
    /// New payload bytes at the end of each sample.
    fresh: Vec<u64>,
    rtt_min_ms: Option<f64>,
    rtts_ms: Vec<f64>,
    started: u64,
    completions_s: Vec<f64>,
    last_completion: Option<Instant>,
    goodputs: Vec<f64>,
}

/// Time at which flows are compared: a long flow starts or stops.
#[derive(Clone, Debug)]
struct Boundary {
    at: Instant,
    fresh: Vec<u64>,
}

/// Measurements of one run.
#[derive(Clone, Debug)]
pub struct Meter {
    scenario: Scenario,
    plans: Vec<PlanMeter>,
    series: Series,
    boundaries: Vec<Boundary>,
    next_boundary: usize,
    measured: Vec<Measured>,
    next_sample: Instant,
    is_warm: bool,
}

/// Counters of a plan's live flows, and their current state.
pub type PlanState = (Counters, Option<Gauges>);

impl Meter {
    /// A meter at time zero.
    pub fn new(scenario: Scenario) -> Self {
        let end = Instant::ZERO + scenario.duration;
        let mut times = vec![Instant::ZERO, end];
        for flow in scenario.flows.iter().filter(|flow| is_long(scenario.flows.len(), flow)) {
            times.push(flow.start.min(end));
            times.extend(flow.stop.map(|stop| stop.min(end)));
        }
        times.sort_unstable();
        times.dedup();
        let boundaries = times.into_iter().map(|at| Boundary { at, fresh: Vec::new() }).collect();
        let measured = Measured::of(&scenario);
        let series = Series {
            t_s: Vec::new(),
            flows: scenario
                .flows
                .iter()
                .map(|flow| FlowSeries { id: flow.id.clone(), ..FlowSeries::default() })
                .collect(),
            links: measured
                .iter()
                .map(|link| LinkSeries { id: link.id.clone(), ..LinkSeries::default() })
                .collect(),
        };
        Self {
            plans: vec![PlanMeter::default(); scenario.flows.len()],
            series,
            boundaries,
            next_boundary: 0,
            measured,
            next_sample: Instant::ZERO + scenario.sample,
            is_warm: false,
            scenario,
        }
    }

    /// Returns the time series so far.
    pub const fn series(&self) -> &Series {
        &self.series
    }

    /// Returns the time of the next snapshot.
    pub fn next_tick(&self) -> Option<Instant> {
        let boundary = self.boundaries.get(self.next_boundary).map(|boundary| boundary.at);
        let warmup = (!self.is_warm).then_some(Instant::ZERO + self.scenario.warmup);
        Instant::earliest([boundary, warmup, Some(self.next_sample)])
    }

    /// Returns whether averages have begun; true after the tick at the end of the warm-up.
    pub const fn is_warm(&self) -> bool {
        self.is_warm
    }

    /// Records the start of a flow of this plan.
    pub fn flow_started(&mut self, plan: usize) {
        self.plans[plan].started += 1;
    }

    /// Records that a flow delivered all its data.
    pub fn flow_completed(&mut self, now: Instant, plan: usize, life: Life) {
        let meter = &mut self.plans[plan];
        meter.completions_s.push(now.since(life.started).as_secs_f64());
        meter.last_completion = Some(now);
    }

    /// Records the end of a flow, or the end of the run for that flow.
    pub fn flow_retired(
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

    /// Processes a snapshot of all plans and links at a tick.
    pub fn tick(&mut self, now: Instant, plans: &[PlanState], links: &mut impl Links) {
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
            for Measured { link, way, at_warmup, .. } in &mut self.measured {
                links.restart_queue_max(*link, *way);
                *at_warmup = links.snapshot(*link, *way, now);
            }
        }
        if let Some(boundary) = self.boundaries.get_mut(self.next_boundary)
            && boundary.at <= now
        {
            boundary.fresh = totals.iter().map(|total| total.fresh_bytes).collect();
            self.next_boundary += 1;
        }
        if now >= self.next_sample {
            self.sample(now, &totals, plans, links);
            self.next_sample = self.next_sample + self.scenario.sample;
        }
    }

    fn sample(
        &mut self,
        now: Instant,
        totals: &[Counters],
        plans: &[PlanState],
        links: &mut impl Links,
    ) {
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
            let window = gauges.and_then(|gauges| gauges.window);
            row.cwnd_pkts.push(window.map_or(f64::NAN, |window| window as f64));
            let delivery = gauges.and_then(|gauges| gauges.delivery);
            row.delivery_bps.push(delivery.map_or(f64::NAN, |rate| rate.0 as f64));
        }
        for (measured, row) in self.measured.iter_mut().zip(&mut self.series.links) {
            let LinkSnapshot { stats, queue_packets, .. } =
                links.snapshot(measured.link, measured.way, now);
            let before = std::mem::replace(&mut measured.at_last_sample, stats);
            let config = measured.config(&self.scenario);
            let (rate, framing) = (config.mean_rate(now - span, now), config.framing());
            row.queue_pkts.push(queue_packets as f64);
            row.drops.push((stats.dropped() - before.dropped()) as f64);
            let carried = stats.carried_bytes(framing) - before.carried_bytes(framing);
            let carried = bps(carried, span);
            row.utilisation.push(share(carried, rate));
        }
    }

    /// Returns the results. Every flow must have been retired and the last tick processed.
    pub fn finish(self, now: Instant, links: &mut impl Links) -> (Results, Series) {
        let flows =
            (0..self.plans.len()).map(|plan| self.flow_result(now, plan)).collect::<Vec<_>>();
        let snapshots = self.measured.iter().map(|it| links.snapshot(it.link, it.way, now));
        let links =
            snapshots.enumerate().map(|(index, it)| self.link_result(now, index, it)).collect();
        let long: Vec<f64> = self.goodputs(|size| size == FlowSize::Endless);
        let jain = if long.is_empty() { jain(&self.goodputs(|_| true)) } else { jain(&long) };
        let regions = self.regions();
        (Results { flows, links, jain, regions }, self.series)
    }

    fn goodputs(&self, wanted: impl Fn(FlowSize) -> bool) -> Vec<f64> {
        let flows = self.scenario.flows.iter().zip(&self.plans);
        flows
            .filter(|(plan, _)| plan.transport() != Transport::UdpCbr && wanted(plan.size))
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
        let completed_s = mean(times.iter().copied());
        let mut rtts = meter.rtts_ms.clone();
        rtts.sort_unstable_by(f64::total_cmp);
        FlowResult {
            id: flow.id.clone(),
            transport: flow.transport().name().to_owned(),
            cc: flow.cc.clone(),
            goodput_bps: bps(passed.fresh_bytes, span),
            throughput_bps: bps(passed.arrived_bytes, span),
            packets_sent: passed.sent,
            packets_lost: passed.lost,
            loss_rate: ratio(passed.lost, passed.sent),
            retransmissions: passed.resent,
            breaker_opened: flow
                .sabul()
                .is_some_and(|ends| ends.has_breaker(&flow.cc))
                .then_some(passed.breaker_opened),
            rtt_ms: Rtt {
                min: meter.rtt_min_ms.unwrap_or(0.0),
                mean: mean(rtts.iter().copied()).unwrap_or(0.0),
                p99: quantile(&rtts, 0.99),
            },
            stability: stability(&self.binned(from, until, |row| meter.fresh[row])),
            completed_s,
            started: meter.started,
            completed: meter.completions_s.len() as u64,
            completion,
        }
    }

    fn link_result(&self, now: Instant, index: usize, link: LinkSnapshot) -> LinkResult {
        let LinkSnapshot { stats, queue_packet_time, .. } = link;
        let measured = &self.measured[index];
        let config = measured.config(&self.scenario);
        let LinkSnapshot { stats: before, queue_packet_time: area, .. } = measured.at_warmup;
        let begin = Instant::ZERO + self.scenario.warmup;
        let span = now.since(begin);
        let (rate, framing) = (config.mean_rate(begin, now), config.framing());
        let carried = stats.carried_bytes(framing) - before.carried_bytes(framing);
        let carried = bps(carried, span);
        let from = self.scenario.warmup.as_secs_f64();
        let rows = self.series.t_s.iter().zip(&self.series.links[index].queue_pkts);
        let mut queue: Vec<f64> =
            rows.filter(|(t_s, _)| **t_s > from).map(|(_, queue)| *queue).collect();
        queue.sort_unstable_by(f64::total_cmp);
        LinkResult {
            id: measured.id.clone(),
            utilisation: share(carried, rate),
            drops: stats.dropped() - before.dropped(),
            marks: stats.marked - before.marked,
            queue_packets: Queue {
                mean: (queue_packet_time - area) as f64 / span.0.max(1) as f64,
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

    /// Bytes in each whole second of an interval, from totals at the ends of samples.
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

/// Whether regions include this flow: the flow is endless, and not constant-rate cross traffic
/// unless the scenario has no other flow.
fn is_long(plans: usize, flow: &FlowPlan) -> bool {
    flow.size == FlowSize::Endless && (flow.transport() != Transport::UdpCbr || plans == 1)
}

/// Whether the number of flows is known beforehand.
fn is_counted(arrivals: Arrivals) -> bool {
    !matches!(arrivals, Arrivals::Poisson { .. })
}

/// Bits carried ÷ capacity in bits; zero without capacity, as in a gap of a trace.
fn share(carried_bps: f64, rate_bps: Option<f64>) -> f64 {
    rate_bps.filter(|rate| *rate > 0.0).map_or(0.0, |rate| carried_bps / rate)
}

fn bps(bytes: u64, span: Span) -> f64 {
    if span == Span::ZERO { 0.0 } else { bytes as f64 * 8.0 / span.as_secs_f64() }
}

fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}
