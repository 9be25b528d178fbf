//! A lab: hosts, the path between them, the flows of a scenario, and their results.
//!
//! Each flow has its own pair of hosts, near and far, with one address each; the pairs share only
//! links. A run calibrates every path, restarts links, clock and counters, starts the flows, and
//! measures with the simulator's meter. Results are valid only if the path passed calibration and
//! the machine kept its schedule ([`LabOutcome::faults`]).

mod carry;
mod cpu;
mod machine;
mod measure;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant as Wall};

use sabul_net::LinkPlan;
use sabul_run::results::{Results, Series};
use sabul_run::scenario::{FlowPlan, Scenario};
use sabul_units::Instant;

use crate::calibrate::{Calibration, calibrate};
use crate::error::LabError;
use crate::events::{EventReceiver, OnEvent};
use crate::flow::{self, Ends, Flow};
use crate::host::{Host, HostConfig};
use crate::router::{PairPlan, Router, RouterPlan, RouterSnapshot, TupleSnapshot};
use cpu::CpuMeter;
pub use cpu::FlowCpu;
use machine::Machine;
use measure::Measurement;

/// Callback that returns whether the run should end early.
pub type IsInterrupted = Box<dyn Fn() -> bool + Send>;
/// Callback for each sample.
pub type OnSample = Box<dyn FnMut(&Sample<'_>) + Send>;

/// Settings of a lab run.
#[derive(Default)]
pub struct LabConfig {
    /// Directory for packet captures of each link; `None` for no capture.
    pub capture: Option<PathBuf>,
    /// Skip the calibration; the outcome has a note then.
    pub skip_calibration: bool,
    /// End the run before the scenario's duration if every flow with an own end has ended.
    pub ends_with_work: bool,
    /// Called at each sample.
    pub on_sample: Option<OnSample>,
    /// Called for each event of controllers, timers and links, with reasons. The columns are those
    /// of `sabul_run::events`, with `host` and `transfer` for events of a flow's end.
    pub on_event: Option<OnEvent>,
    /// Polled often; true ends the run early with [`LabError::Interrupted`].
    pub is_interrupted: Option<IsInterrupted>,
}

impl std::fmt::Debug for LabConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LabConfig").field("capture", &self.capture).finish_non_exhaustive()
    }
}

/// State of a running lab at a sample.
#[derive(Clone, Copy, Debug)]
pub struct Sample<'a> {
    /// Time series so far; the last row is the newest.
    pub series: &'a Series,
    /// State of the path.
    pub router: &'a RouterSnapshot,
}

/// Outcome of a run.
#[derive(Clone, Debug)]
pub struct LabOutcome {
    /// Measured averages; invalid if `faults` is not empty.
    pub results: Results,
    /// Time series.
    pub series: Series,
    /// Calibration of each path.
    pub calibrations: Vec<Calibration>,
    /// Reasons why the results reflect this machine, not the path; empty for a valid run.
    pub faults: Vec<String>,
    /// Remarks that do not invalidate the run.
    pub notes: Vec<String>,
    /// State of the path at the end.
    pub router: RouterSnapshot,
    /// Conversations seen by the router.
    pub tuples: Vec<TupleSnapshot>,
    /// Processor time of each flow's hosts.
    pub cpu: Vec<FlowCpu>,
    /// Total duration, calibration included.
    pub wall: Duration,
}

/// A lab for one scenario, with hosts made and no flow running.
#[derive(Debug)]
pub struct Lab {
    scenario: Scenario,
    ends: Vec<Ends>,
    pairs: Vec<PairPlan>,
    router: Router,
}

impl Lab {
    /// Makes the hosts and the path.
    ///
    /// # Errors
    /// If the lab does not support a setting of the scenario, or the system refuses to make hosts.
    pub fn new(scenario: Scenario) -> Result<Self, LabError> {
        carry::check(&scenario)?;
        let mut ends = Vec::new();
        let mut pairs = Vec::new();
        for (index, flow) in scenario.flows.iter().enumerate() {
            let made = make_ends(index, flow)?;
            pairs.push(PairPlan {
                near: Arc::clone(made.near.device()),
                far: Arc::clone(made.far.device()),
                path: flow.path.clone(),
                access_delay: flow.access_delay,
            });
            ends.push(made);
        }
        let router = Router::start(RouterPlan {
            links: steady(&scenario.links),
            pairs: pairs.clone(),
            seed: scenario.seed,
        })?;
        Ok(Self { scenario, ends, pairs, router })
    }

    /// Calibrates, runs the scenario and measures.
    ///
    /// # Errors
    /// If a flow fails, the system fails, or the run is interrupted.
    pub fn run(self, mut config: LabConfig) -> Result<LabOutcome, LabError> {
        let begun = Wall::now();
        let calibrations =
            if config.skip_calibration { Vec::new() } else { self.calibrate(&config)? };
        let Self { scenario, ends, router, .. } = self;
        let events = config.on_event.take().map(|deliver| EventReceiver::new(&scenario, deliver));
        let (event_sender, event_receiver) = events.unzip();
        let mut flows = Vec::new();
        for (plan, ends) in scenario.flows.iter().zip(&ends) {
            flows.push(Flow::prepare(plan, ends.clone(), scenario.seed, event_sender.clone())?);
        }
        if let Some(event_sender) = &event_sender {
            router.report_drops(event_sender.clone());
        }
        let clock =
            router.restart(scenario.links.clone(), scenario.seed, config.capture.clone())?;
        if let Some(event_sender) = event_sender {
            event_sender.start(clock);
        }
        let machine = Machine::now();
        let end = Instant::ZERO + scenario.duration;
        for flow in &flows {
            flow.go(clock, end);
        }
        let cpu = CpuMeter::start(&scenario, &ends);
        let mut measurement = Measurement::new(scenario.clone(), cpu, event_receiver);
        measurement.follow(&router, &flows, clock, &mut config)?;
        let usage = machine.used();
        let at_end = router.snapshot();
        let (results, series, cpu) = measurement.finish(flows, &router, &at_end)?;
        let tuples = router.tuples();
        let mut verdict = machine::Verdict::new(&scenario, &at_end, usage);
        verdict.note_calibrations(&calibrations, config.skip_calibration);
        for (plan, ends) in scenario.flows.iter().zip(&ends) {
            verdict.notes.extend(flow::notes(plan));
            verdict.note_hosts(&plan.id, ends)?;
        }
        router.stop()?;
        Ok(LabOutcome {
            results,
            series,
            calibrations,
            faults: verdict.faults,
            notes: verdict.notes,
            router: at_end,
            tuples,
            cpu,
            wall: begun.elapsed(),
        })
    }

    /// Calibrates each path once, with the first flow of that path.
    fn calibrate(&self, config: &LabConfig) -> Result<Vec<Calibration>, LabError> {
        let links = steady(&self.scenario.links);
        let mut done: Vec<&PairPlan> = Vec::new();
        let mut calibrations = Vec::new();
        for (pair, ends) in self.pairs.iter().zip(&self.ends) {
            let is_same = |other: &&PairPlan| {
                other.path == pair.path && other.access_delay == pair.access_delay
            };
            if done.iter().any(is_same) {
                continue;
            }
            if config.is_interrupted.as_ref().is_some_and(|is_interrupted| is_interrupted()) {
                return Err(LabError::Interrupted);
            }
            self.router.restart(links.clone(), self.scenario.seed, None)?;
            calibrations.push(calibrate(&self.router, &links, pair, ends)?);
            done.push(pair);
        }
        Ok(calibrations)
    }
}

/// Makes the two hosts of a flow. The pairs are isolated, so any addresses would work; distinct
/// addresses keep captures readable.
fn make_ends(index: usize, plan: &FlowPlan) -> Result<Ends, LabError> {
    let number = u8::try_from(index).unwrap_or(u8::MAX);
    let make = |name: &str, host: u8| {
        let addresses = vec![
            (IpAddr::from(Ipv4Addr::new(10, 66, number, host)), 24),
            (
                IpAddr::from(Ipv6Addr::new(0xfd66, 0, 0, index_word(index), 0, 0, 0, host.into())),
                64,
            ),
        ];
        Host::new(HostConfig {
            name: format!("{name} host of flow '{}'", plan.id),
            addresses,
            mtu: plan.packet_bytes,
            settings: flow::host_settings(plan),
        })
    };
    Ok(Ends {
        near: Arc::new(make("near", 1)?),
        near_address: IpAddr::from(Ipv4Addr::new(10, 66, number, 1)),
        far: Arc::new(make("far", 2)?),
        far_address: IpAddr::from(Ipv4Addr::new(10, 66, number, 2)),
    })
}

fn index_word(index: usize) -> u16 {
    u16::try_from(index).unwrap_or(u16::MAX)
}

fn steady(links: &[LinkPlan]) -> Vec<LinkPlan> {
    let clear = |link: &LinkPlan| LinkPlan {
        id: link.id.clone(),
        forward: link.forward.steady(),
        back: link.back.steady(),
    };
    links.iter().map(clear).collect()
}
