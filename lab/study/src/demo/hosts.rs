//! Demonstration between hosts of the lab: `sabul cp` and the kernel's TCP, first alone, then
//! together.

use std::path::Path;
use std::sync::Arc;

use sabul_emu::{Lab, LabConfig, LabOutcome, Sample};
use sabul_net::LinkPlan;
use sabul_report::sparkline;
use sabul_run::results::FlowResult;
use sabul_run::scenario::{Carrier, FlowPlan, FlowSize, Scenario, Transport};
use sabul_units::{Instant, Span, show_rate};
use serde_json::json;

use super::losses::Losses;
use super::shown::{Alone, RIVAL, Shown, Together};
use super::{Folder, Request, in_folder, read_answer};
use crate::error::Error;
use crate::observer::Observer;

/// Timeout of a copy. A slower path shows nothing.
const TIMEOUT: Span = Span::from_secs(600);
/// Time limit of TCP alone: at least this time, and this multiple of the time that the path's rate
/// needs for the file. On a lossy path TCP would take minutes, at a rate that is known in advance.
const RIVAL_TIMEOUT: (Span, u64) = (Span::from_secs(12), 4);
/// Duration of the run with both flows, and its warm-up, in which the shares still change.
const TOGETHER: (Span, Span) = (Span::from_secs(20), Span::from_secs(10));
/// Interval between two updates of the display.
const SAMPLE: Span = Span::from_millis(250);
/// Bars of a sparkline: the last ten seconds.
const SPARKS: usize = 40;

/// Receives one line per running flow, at each sample.
pub type Draw = Arc<dyn Fn(&[String]) + Send + Sync>;

/// Sends the file over the kernel's TCP and with `sabul`, each alone on the path as it is and with
/// more loss. Then runs both together. The caller must have isolated the process with
/// `sabul_emu::isolate`.
///
/// # Errors
/// If a copy fails, the system refuses an operation, or the observer interrupts.
pub fn beside_tcp(request: &Request, observer: &Observer, draw: &Draw) -> Result<Shown, Error> {
    in_folder(request, observer, |folder| {
        let runs = Runs { request, observer, draw, folder };
        let mut shown = Shown::of_lab(&request.path, &request.cc, request.bytes);
        for losses in Losses::BOTH {
            shown.alone.push(runs.rival(losses)?);
            let (alone, copied, outcome) = runs.copy(losses)?;
            if losses == Losses::Own {
                let link = outcome.router.links.first().map(|link| link[0].stats);
                shown.document = copied.document(
                    &request.path,
                    &request.cc,
                    &link.unwrap_or_default(),
                    own_fields(&alone, &outcome),
                );
            }
            shown.is_verified &= copied.is_verified();
            shown.alone.push(alone);
        }
        shown.together = Some(runs.together()?);
        Ok(shown)
    })
}

/// Returns the document fields of a copy that only this arm has.
fn own_fields(alone: &Alone, outcome: &LabOutcome) -> serde_json::Value {
    let late = outcome.router.lateness;
    json!({
        "arm": "lab",
        "seconds": alone.seconds,
        "goodput_bps": alone.goodput_bps(),
        "router_late_ms_p50": late.p50.as_millis_f64(),
        "router_late_ms_p99": late.p99.as_millis_f64(),
        "router_late_ms_max": late.max.as_millis_f64(),
        "calibration": outcome.calibrations,
        "notes": outcome.notes,
    })
}

/// State shared by the runs.
struct Runs<'a> {
    request: &'a Request,
    observer: &'a Observer,
    draw: &'a Draw,
    folder: &'a Folder,
}

impl Runs<'_> {
    /// Runs TCP alone until the file is complete or the time limit is reached.
    fn rival(&self, losses: Losses) -> Result<Alone, Error> {
        let (request, path) = (self.request, losses.on(&self.request.path));
        self.observer
            .note(format_args!("kernel TCP ({RIVAL}) alone, {}", losses.words(&request.path)));
        let (least, factor) = RIVAL_TIMEOUT;
        let needed = path
            .forward
            .rate()
            .map_or(Span::ZERO, |rate| rate.time_for(sabul_units::Bytes(request.bytes)));
        let limit = least.max(Span(needed.0.saturating_mul(factor))).min(TIMEOUT);
        let mut flow = FlowPlan::new("tcp", Transport::Tcp, RIVAL, vec![0]);
        flow.size = FlowSize::Bytes(request.bytes);
        let outcome = self.run(&self.scenario(&path, vec![flow], limit, Span::ZERO))?;
        let flow = first(&outcome)?;
        let seconds = flow.completed_s.unwrap_or_else(|| outcome_seconds(&outcome, limit));
        let bytes = match flow.completed_s {
            Some(_) => request.bytes,
            None => bytes_of(flow.goodput_bps, seconds).min(request.bytes),
        };
        Ok(Alone {
            is_ours: false,
            losses,
            bytes,
            seconds,
            rtt_ms: flow.rtt_ms.mean,
            faults: outcome.faults,
        })
    }

    /// Runs `sabul cp` alone.
    fn copy(&self, losses: Losses) -> Result<(Alone, super::Copied, LabOutcome), Error> {
        let (request, path) = (self.request, losses.on(&self.request.path));
        self.observer.note(format_args!(
            "sabul cp ({}) alone, {}",
            request.cc,
            losses.words(&request.path)
        ));
        let flow = FlowPlan::new("sabul", self.commands(), "", vec![0]);
        let scenario = self.scenario(&path, vec![flow], TIMEOUT, Span::ZERO);
        let outcome = self.run(&scenario)?;
        let document = read_answer(&self.folder.answer, Some(0))?;
        let copied = self.folder.copied(document, self.observer)?;
        let flow = first(&outcome)?;
        let alone = Alone {
            is_ours: true,
            losses,
            bytes: copied.bytes,
            // From the start of the program to its end, handshake and disk writes included.
            seconds: flow.completed_s.unwrap_or_else(|| copied.number("seconds")),
            rtt_ms: copied.number("rtt_ms"),
            faults: outcome.faults.clone(),
        };
        Ok((alone, copied, outcome))
    }

    /// Runs both without a size limit on the path as it is.
    fn together(&self) -> Result<Together, Error> {
        let (duration, warmup) = TOGETHER;
        self.observer.note(format_args!(
            "both together for {:.0} s, measured from second {:.0} on",
            seconds(duration),
            seconds(warmup)
        ));
        let tcp = FlowPlan::new("tcp", Transport::Tcp, RIVAL, vec![0]);
        let mut sabul = FlowPlan::new("sabul", Transport::Sabul, &self.request.cc, vec![0]);
        sabul.params.clone_from(&self.request.params);
        let path = Losses::Own.on(&self.request.path);
        let outcome = self.run(&self.scenario(&path, vec![tcp, sabul], duration, warmup))?;
        let bps = |n: usize| outcome.results.flows.get(n).map_or(0.0, |flow| flow.goodput_bps);
        Ok(Together {
            from_s: seconds(warmup),
            to_s: seconds(duration),
            tcp_bps: bps(0),
            sabul_bps: bps(1),
            faults: outcome.faults.clone(),
        })
    }

    /// Runs a scenario. If the machine was too busy for a valid run, runs it once more.
    fn run(&self, scenario: &Scenario) -> Result<LabOutcome, Error> {
        let first = self.run_once(scenario)?;
        if first.faults.is_empty() { Ok(first) } else { self.run_once(scenario) }
    }

    fn run_once(&self, scenario: &Scenario) -> Result<LabOutcome, Error> {
        self.folder.reset();
        super::go_on(self.observer)?;
        let interrupt_observer = self.observer.clone();
        let board = Board::new(self.request, scenario);
        let draw = Arc::clone(self.draw);
        let outcome = Lab::new(scenario.clone())?.run(LabConfig {
            // Calibration can be skipped: the router counts drops and delays in each run.
            skip_calibration: scenario
                .flows
                .iter()
                .any(|flow| flow.transport() != Transport::Command)
                || scenario.links[0].forward != self.request.path.forward,
            ends_with_work: true,
            on_sample: Some(Box::new(move |sample| draw(&board.lines(sample)))),
            is_interrupted: Some(Box::new(move || interrupt_observer.is_interrupted())),
            ..LabConfig::default()
        });
        (self.draw)(&[]);
        let mut outcome = outcome?;
        // If the processors are busy, they limit the copy instead of the path.
        let busy: Vec<_> = outcome
            .notes
            .iter()
            .filter(|note| note.starts_with("the processors"))
            .cloned()
            .collect();
        outcome.faults.extend(busy);
        Ok(outcome)
    }

    fn scenario(
        &self,
        link: &LinkPlan,
        flows: Vec<FlowPlan>,
        duration: Span,
        warmup: Span,
    ) -> Scenario {
        Scenario {
            name: "demo".to_owned(),
            duration,
            warmup,
            sample: SAMPLE,
            seed: self.request.seed,
            links: vec![link.clone()],
            flows,
        }
    }

    /// Returns the commands of the copy and of its server.
    fn commands(&self) -> Carrier {
        let (request, folder) = (self.request, self.folder);
        let text = |path: &Path| path.display().to_string();
        let program = text(&request.program);
        let (ticket, answer) = (text(&folder.ticket), text(&folder.answer));
        // A path estimate from an earlier run would be an advantage.
        let copy = [program.as_str(), "cp", "--json", "--quiet", "--fresh", "--cc", &request.cc];
        let mut copy = copy.map(str::to_owned).to_vec();
        for (key, value) in &request.params {
            copy.extend(["--cc-param".to_owned(), format!("{key}={value}")]);
        }
        copy.extend(["--ticket".to_owned(), ticket.clone(), text(&folder.file)]);
        copy.push("sabul://{far}:4850/".to_owned());
        // The server listens before it writes the ticket. The shell redirects the answer to a file
        // and then replaces itself with the program.
        let line = r#"out=$1; until [ -s "$2" ]; do sleep 0.02; done; shift 2; exec "$@" >"$out""#;
        let near = ["sh", "-c", line, "sh", answer.as_str(), &ticket];
        let mut near = near.map(str::to_owned).to_vec();
        near.extend(copy);
        let far = [
            program.as_str(),
            "serve",
            "--root",
            &text(&folder.root),
            "--listen",
            "{far}:4850",
            "--ticket-file",
            &ticket,
        ];
        Carrier::Command { near, far: far.map(str::to_owned).to_vec() }
    }
}

fn first(outcome: &LabOutcome) -> Result<&FlowResult, Error> {
    outcome.results.flows.first().ok_or_else(|| Error::failed("the demo's flow has no result"))
}

/// Returns the duration of a run that may have hit the time limit.
fn outcome_seconds(outcome: &LabOutcome, limit: Span) -> f64 {
    outcome.series.t_s.last().copied().unwrap_or_else(|| seconds(limit))
}

fn seconds(span: Span) -> f64 {
    (Instant::ZERO + span).elapsed().as_secs_f64()
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a number of bytes")]
fn bytes_of(bps: f64, seconds: f64) -> u64 {
    (bps * seconds / 8.0).max(0.0) as u64
}

/// Display with one line per flow at each sample.
struct Board {
    base_rtt_ms: f64,
    packet_ms: f64,
    names: Vec<String>,
}

impl Board {
    fn new(request: &Request, scenario: &Scenario) -> Self {
        let (forward, back) = (&request.path.forward, &request.path.back);
        let name = |flow: &FlowPlan| match flow.transport() {
            Transport::Tcp => format!("kernel TCP ({RIVAL})"),
            _ => format!("sabul ({})", request.cc),
        };
        Self {
            base_rtt_ms: (forward.delay() + back.delay()).as_millis_f64(),
            packet_ms: forward.rate().map_or(0.0, |rate| 12_000.0 / rate.0 as f64 * 1e3),
            names: scenario.flows.iter().map(name).collect(),
        }
    }

    fn lines(&self, sample: &Sample<'_>) -> Vec<String> {
        let queue = sample.router.links.first().map_or(0, |link| link[0].queue_packets);
        let rtt_ms = self.base_rtt_ms + queue as f64 * self.packet_ms;
        let line = |(n, name): (usize, &String)| {
            let rates = sample.series.flows.get(n).map_or(&[][..], |flow| &flow.goodput_bps);
            let recent = &rates[rates.len().saturating_sub(SPARKS)..];
            format!(
                "  {name:<20} {:>12}  RTT {rtt_ms:6.1} ms  {}",
                show_rate(rates.last().copied().unwrap_or(0.0)),
                sparkline(recent),
            )
        };
        self.names.iter().enumerate().map(line).collect()
    }
}
