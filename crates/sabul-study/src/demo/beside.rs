//! The demonstration between hosts of a lab: the copy beside the kernel's own TCP, on the same path.
//!
//! Two pairs of hosts share one link: `sabul cp` and `sabul serve` run in one pair, a CUBIC connection of
//! the kernel in the other. Both start together; the demo is over when the copy is.

use std::path::Path;

use sabul_lab::{Lab, LabConfig, LabOutcome, Sample};
use sabul_path::{LinkPlan, PathPreset};
use sabul_report::sparkline;
use sabul_run::results::FlowResult;
use sabul_run::scenario::{Carrier, FlowPlan, Scenario, Transport};
use sabul_units::{Span, show_bytes};
use serde_json::{Value, json};

use super::{Copied, Folder, Request, in_folder, read_answer};
use crate::error::Error;
use crate::observer::Observer;
use sabul_units::show_rate;

/// The longest a copy may take; a path that is slower than that shows nothing.
const PATIENCE: Span = Span::from_secs(600);
/// Time between two drawings.
const SAMPLE: Span = Span::from_millis(250);
/// Bars of a sparkline: the last ten seconds.
const SPARKS: usize = 40;
/// The rival: what Linux takes unless told otherwise.
const RIVAL: &str = "cubic";

/// What a copy beside the kernel's TCP has shown.
#[derive(Debug)]
pub struct Beside {
    path: PathPreset,
    cc: String,
    copied: Copied,
    lab: LabOutcome,
}

/// Makes the file, sends it beside a connection of the kernel, and compares what arrived. `draw` gets a line
/// for each of the two, again and again. The process must be the lab's own (`sabul_lab::isolate`).
///
/// # Errors
/// If the copy fails, the system refuses something, or the observer ends it.
pub fn beside_tcp(
    request: &Request,
    observer: &Observer,
    mut draw: impl FnMut([String; 2]) + Send + 'static,
) -> Result<Beside, Error> {
    in_folder(request, observer, |folder| {
        let lab = Lab::new(scenario(request, folder))?;
        observer.note(
            "measuring the path, then sending: sabul cp and one CUBIC connection of the kernel, together",
        );
        let board = Board::new(request);
        let asked = observer.clone();
        let lab = lab.run(LabConfig {
            ends_with_work: true,
            on_sample: Some(Box::new(move |sample| draw(board.lines(sample)))),
            is_interrupted: Some(Box::new(move || asked.is_interrupted())),
            ..LabConfig::default()
        })?;
        let document = read_answer(&folder.answer, Some(0))?;
        let copied = folder.copied(document, observer)?;
        Ok(Beside { path: request.path.clone(), cc: request.cc.clone(), copied, lab })
    })
}

/// The copy and its rival on the path.
fn scenario(request: &Request, folder: &Folder) -> Scenario {
    let path = &request.path;
    let text = |path: &Path| path.display().to_string();
    let program = text(&request.program);
    let (ticket, answer) = (text(&folder.ticket), text(&folder.answer));
    let mut copy = vec![program.clone(), "cp".into(), "--json".into(), "--quiet".into()];
    copy.extend(["--cc".to_owned(), request.cc.clone()]);
    for (key, value) in &request.params {
        copy.extend(["--cc-param".to_owned(), format!("{key}={value}")]);
    }
    copy.extend(["--ticket".to_owned(), ticket.clone(), text(&folder.file)]);
    copy.push("sabul://{far}:4850/".to_owned());
    // The server listens before its ticket is written. The answer goes to a file; the shell becomes
    // the program.
    let line = r#"out=$1; until [ -s "$2" ]; do sleep 0.02; done; shift 2; exec "$@" >"$out""#;
    let mut near = ["sh", "-c", line, "sh", answer.as_str(), &ticket].map(str::to_owned).to_vec();
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
    ]
    .map(str::to_owned)
    .to_vec();
    let file = FlowPlan::new("sabul", Carrier::Command { near, far }, "", vec![0]);
    let rival = FlowPlan::new("tcp", Transport::Tcp, RIVAL, vec![0]);
    Scenario {
        name: "demo".to_owned(),
        duration: PATIENCE,
        sample: SAMPLE,
        seed: request.seed,
        links: vec![LinkPlan {
            id: path.name.to_owned(),
            forward: path.forward.clone(),
            back: path.back.clone(),
        }],
        flows: vec![file, rival],
        ..Scenario::default()
    }
}

/// Two lines for each sample.
struct Board {
    base_rtt_ms: f64,
    packet_ms: f64,
    names: [String; 2],
}

impl Board {
    fn new(request: &Request) -> Self {
        let (forward, back) = (&request.path.forward, &request.path.back);
        Self {
            base_rtt_ms: (forward.delay() + back.delay()).as_millis_f64(),
            packet_ms: forward.rate().map_or(0.0, |rate| 12_000.0 / rate.0 as f64 * 1e3),
            names: [format!("sabul cp ({})", request.cc), format!("kernel TCP ({RIVAL})")],
        }
    }

    fn lines(&self, sample: &Sample<'_>) -> [String; 2] {
        let queue = sample.router.links.first().map_or(0, |link| link[0].queue_packets);
        let rtt_ms = self.base_rtt_ms + queue as f64 * self.packet_ms;
        [0, 1].map(|n| {
            let (name, flow) = (&self.names[n], sample.series.flows.get(n));
            let rates = flow.map_or(&[][..], |flow| &flow.goodput_bps);
            let recent = &rates[rates.len().saturating_sub(SPARKS)..];
            let loss = flow.and_then(|flow| flow.loss_rate.last()).copied().unwrap_or(0.0);
            format!(
                "{name:<22} {:>12}  RTT {rtt_ms:6.1} ms  loss {:6.3} %  {}",
                show_rate(rates.last().copied().unwrap_or(0.0)),
                loss * 100.0,
                sparkline(recent),
            )
        })
    }
}

impl Beside {
    /// Whether what arrived is what was sent.
    pub fn is_verified(&self) -> bool {
        self.copied.is_verified()
    }

    fn rival(&self) -> Option<&FlowResult> {
        self.lab.results.flows.get(1)
    }

    /// Four lines.
    pub fn text(&self) -> String {
        let (goodput, rival) = (self.copied.number("goodput_bps"), self.rival());
        let rival_bps = rival.map_or(0.0, |flow| flow.goodput_bps);
        let share = if goodput + rival_bps > 0.0 { rival_bps / (goodput + rival_bps) } else { 0.0 };
        let link = self.lab.results.links.first();
        let queue = link.map_or(0.0, |link| link.queue_packets.mean);
        let mut text = format!(
            "file     {} in {:.2} s, {}\n\
             sabul    {} with {}, {:.3} % of its packets lost, RTT {:.1} ms on average\n\
             beside   {} for one {RIVAL} connection of this machine's kernel: {:.0} % of what both \
             got\n",
            show_bytes(self.copied.bytes),
            self.copied.number("seconds"),
            self.copied.verdict(),
            show_rate(goodput),
            self.cc,
            self.copied.number("loss_rate") * 100.0,
            self.copied.number("rtt_ms"),
            show_rate(rival_bps),
            share * 100.0,
        );
        let late = self.lab.router.lateness;
        text += &if self.lab.faults.is_empty() {
            format!(
                "path     {}: {:.0} packets waited on average; 99 % left at most {:.2} ms late\n",
                self.path.name,
                queue,
                late.p99.as_millis_f64()
            )
        } else {
            format!(
                "path     INVALID, the numbers are about this machine and not about the path: {}\n",
                self.lab.faults.join("; ")
            )
        };
        text
    }

    /// The result as a document.
    pub fn json(&self) -> Value {
        let (lab, rival) = (&self.lab, self.rival());
        let link = lab.router.links.first().map(|link| link[0].stats).unwrap_or_default();
        let own = json!({
            "arm": "lab",
            "seconds": self.copied.document["seconds"],
            "goodput_bps": self.copied.document["goodput_bps"],
            "beside": rival.map(|flow| json!({
                "transport": "tcp",
                "cc": RIVAL,
                "goodput_bps": flow.goodput_bps,
                "retransmissions": flow.retransmissions,
                "rtt_ms": flow.rtt_ms.mean,
            })),
            "router_late_ms_p50": lab.router.lateness.p50.as_millis_f64(),
            "router_late_ms_p99": lab.router.lateness.p99.as_millis_f64(),
            "router_late_ms_max": lab.router.lateness.max.as_millis_f64(),
            "calibration": lab.calibrations,
            "disturbed": !lab.faults.is_empty(),
            "disturbances": lab.faults,
            "notes": lab.notes,
        });
        self.copied.document(&self.path, &self.cc, &link, own)
    }
}
