//! Measurement of a lab run: the simulator's meter, with input from sockets, kernel and router.

use std::time::Duration;

use sabul_net::{LinkSnapshot, Way};
use sabul_run::meter::{Counters, Gauges, Life, Links, Meter};
use sabul_run::results::{Results, Series};
use sabul_run::scenario::{Arrivals, FlowPlan, FlowSize, Scenario, Transport};
use sabul_units::Instant;

use super::cpu::{CpuMeter, FlowCpu};
use super::{LabConfig, Sample};
use crate::clock::Clock;
use crate::error::LabError;
use crate::events::EventReceiver;
use crate::flow::{Flow, FlowEvent};
use crate::router::{Amount, Router, RouterSnapshot};

/// Longest sleep between two checks for interrupts and flow failures.
const STEP: Duration = Duration::from_millis(50);

/// Measurements so far.
#[derive(Debug)]
pub(super) struct Measurement {
    meter: Meter,
    cpu: CpuMeter,
    end: Instant,
    /// By plan: number of copies that have not ended; `None` for plans without an own end.
    unfinished: Vec<Option<u64>>,
    /// Start of each flow's copies, by plan and copy.
    started: Vec<Vec<(u64, Instant)>>,
    /// New payload bytes of each plan's copies at the end of the warm-up.
    copies_at_warmup: Vec<Vec<(u64, u64)>>,
    /// The router's count of each plan at the end of the warm-up, for flows that the router counts.
    at_warmup: Vec<u64>,
    event_receiver: Option<EventReceiver>,
}

impl Measurement {
    pub(super) fn new(
        scenario: Scenario,
        cpu: CpuMeter,
        event_receiver: Option<EventReceiver>,
    ) -> Self {
        Self {
            end: Instant::ZERO + scenario.duration,
            unfinished: scenario.flows.iter().map(own_end).collect(),
            started: vec![Vec::new(); scenario.flows.len()],
            copies_at_warmup: vec![Vec::new(); scenario.flows.len()],
            at_warmup: vec![0; scenario.flows.len()],
            meter: Meter::new(scenario),
            cpu,
            event_receiver,
        }
    }

    /// Measures until the end of the run.
    pub(super) fn follow(
        &mut self,
        router: &Router,
        flows: &[Flow],
        clock: Clock,
        config: &mut LabConfig,
    ) -> Result<(), LabError> {
        while let Some(next) = self.meter.next_tick().filter(|at| *at <= self.end) {
            if config.ends_with_work && self.is_work_done() {
                self.end = clock.now();
                return Ok(());
            }
            self.wait(next, flows, clock, config)?;
            let snapshot = router.snapshot();
            let was_warm = self.meter.is_warm();
            let states: Vec<_> = flows
                .iter()
                .enumerate()
                .map(|(n, flow)| state(flow, &snapshot.pairs[n][0]))
                .collect();
            self.meter.tick(next, &states, &mut View { router, snapshot: &snapshot });
            self.cpu.note(self.meter.series().t_s.len());
            if self.meter.is_warm() && !was_warm {
                for (n, flow) in flows.iter().enumerate() {
                    let copies = flow.copies().into_iter();
                    self.copies_at_warmup[n] =
                        copies.map(|(copy, counters)| (copy, counters.fresh_bytes)).collect();
                    self.at_warmup[n] = snapshot.pairs[n][0].fresh_bytes;
                }
            }
            if let Some(report) = &mut config.on_sample {
                report(&Sample { series: self.meter.series(), router: &snapshot });
            }
        }
        self.wait(self.end, flows, clock, config)
    }

    /// Sleeps until then and records events meanwhile.
    fn wait(
        &mut self,
        until: Instant,
        flows: &[Flow],
        clock: Clock,
        config: &LabConfig,
    ) -> Result<(), LabError> {
        loop {
            if config.is_interrupted.as_ref().is_some_and(|is_interrupted| is_interrupted()) {
                return Err(LabError::Interrupted);
            }
            for (plan, flow) in flows.iter().enumerate() {
                let events = flow.events();
                self.note(plan, flow.counts_by_router(), events);
                flow.check()?;
            }
            self.deliver_events();
            let rest = Duration::from(until.since(clock.now()));
            if rest.is_zero() {
                return Ok(());
            }
            std::thread::sleep(rest.min(STEP));
        }
    }

    /// Forwards the events since the last call.
    fn deliver_events(&mut self) {
        if let Some(event_receiver) = &mut self.event_receiver {
            event_receiver.deliver();
        }
    }

    fn note(&mut self, plan: usize, is_by_router: bool, events: Vec<FlowEvent>) {
        for event in events {
            match event {
                FlowEvent::Started { copy, at } => {
                    self.started[plan].push((copy, at));
                    self.meter.flow_started(plan);
                }
                FlowEvent::Completed { copy, at } => {
                    let life = self.life(plan, copy, 0);
                    self.meter.flow_completed(at, plan, life);
                    if let Some(left) = &mut self.unfinished[plan] {
                        *left = left.saturating_sub(1);
                    }
                }
                // The router's count of all copies together is retired at the end.
                FlowEvent::Retired { .. } if is_by_router => {}
                FlowEvent::Retired { copy, at, counters, gauges } => {
                    let warm = self.copies_at_warmup[plan].iter().find(|warm| warm.0 == copy);
                    let life = self.life(plan, copy, warm.map_or(0, |warm| warm.1));
                    self.meter.flow_retired(at, plan, life, counters, gauges);
                }
            }
        }
    }

    /// Whether at least one flow has an own end, and every such flow has ended.
    fn is_work_done(&self) -> bool {
        let mut ends = self.unfinished.iter().flatten().peekable();
        ends.peek().is_some() && ends.all(|left| *left == 0)
    }

    fn life(&self, plan: usize, copy: u64, bytes_at_warmup: u64) -> Life {
        let known = self.started[plan].iter().find(|(number, _)| *number == copy);
        Life { started: known.map_or(Instant::ZERO, |(_, at)| *at), bytes_at_warmup }
    }

    /// Ends the flows and returns the results.
    pub(super) fn finish(
        mut self,
        flows: Vec<Flow>,
        router: &Router,
        snapshot: &RouterSnapshot,
    ) -> Result<(Results, Series, Vec<FlowCpu>), LabError> {
        for (plan, flow) in flows.into_iter().enumerate() {
            let is_by_router = flow.counts_by_router();
            let (counters, gauges) = state(&flow, &snapshot.pairs[plan][0]);
            let events = flow.finish()?;
            self.note(plan, is_by_router, events);
            if let (true, Some((copy, _))) = (is_by_router, self.started[plan].first()) {
                let life = self.life(plan, *copy, self.at_warmup[plan]);
                self.meter.flow_retired(self.end, plan, life, counters, gauges.unwrap_or_default());
            }
        }
        self.deliver_events();
        let (results, series) = self.meter.finish(self.end, &mut View { router, snapshot });
        Ok((results, series, self.cpu.finish()))
    }
}

/// Returns the number of copies of a flow with an own end; `None` for endless flows.
fn own_end(flow: &FlowPlan) -> Option<u64> {
    if flow.transport() != Transport::Command && flow.size == FlowSize::Endless {
        return None;
    }
    match flow.arrivals {
        Arrivals::Together { count, .. } | Arrivals::Chain { count, .. } => Some(count.into()),
        Arrivals::Poisson { .. } => None,
    }
}

/// Returns the counters of a flow, from the router if the router counts that flow.
fn state(flow: &Flow, amount: &Amount) -> (Counters, Option<Gauges>) {
    let (counters, gauges) = flow.snapshot();
    if flow.counts_by_router() {
        return (counters_of(amount), gauges);
    }
    (counters, gauges)
}

/// Converts the router's count. Packets without data are left out, as for all flows. Packets that
/// have not arrived count as lost unless TCP has retransmitted them.
fn counters_of(amount: &Amount) -> Counters {
    let missing = amount.data_packets.saturating_sub(amount.arrived_data_packets);
    Counters {
        fresh_bytes: amount.fresh_bytes,
        arrived_bytes: amount.arrived_bytes,
        sent: amount.data_packets,
        sent_bytes: amount.sent_bytes,
        lost: missing.max(amount.resent_packets),
        resent: amount.resent_packets,
        breaker_opened: 0,
    }
}

/// The links as of the router's last snapshot.
struct View<'a> {
    router: &'a Router,
    snapshot: &'a RouterSnapshot,
}

impl Links for View<'_> {
    fn snapshot(&mut self, link: usize, way: Way, _: Instant) -> LinkSnapshot {
        self.snapshot.links[link][way as usize]
    }

    fn restart_queue_max(&mut self, _: usize, _: Way) {
        self.router.restart_queue_max();
    }
}
