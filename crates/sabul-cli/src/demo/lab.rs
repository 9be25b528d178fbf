//! The demo between hosts of a lab: the copy beside the kernel's own TCP, on the same path.
//!
//! Two pairs of hosts share one link: `sabul cp` and `sabul serve` run in one pair, a CUBIC connection of
//! the kernel in the other. Both start together; the demo is over when the copy is.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use sabul_lab::{Lab, LabConfig, LabOutcome, Sample};
use sabul_path::{LinkPlan, PathPreset};
use sabul_report::sparkline;
use sabul_run::results::FlowResult;
use sabul_run::scenario::{Carrier, FlowPlan, Scenario, Transport};
use sabul_units::Span;
use serde_json::{Value, json};

use super::{FILE_NAME, find_path, hash, make_file, read_answer};
use crate::args::DemoArgs;
use crate::error::CliError;
use crate::json::SCHEMA;
use crate::lab::Stop;
use crate::output;
use crate::size::{show_bytes, show_rate};

/// The longest a copy may take; a path that is slower than that shows nothing.
const PATIENCE: Span = Span::from_secs(600);
/// Time between two drawings.
const SAMPLE: Span = Span::from_millis(250);
/// Bars of a sparkline: the last ten seconds.
const SPARKS: usize = 40;
/// The rival: what Linux takes unless told otherwise.
const RIVAL: &str = "cubic";

/// What a run has shown.
struct Shown {
    path: PathPreset,
    cc: String,
    bytes: u64,
    copy: Value,
    hashes: [blake3::Hash; 2],
    lab: LabOutcome,
}

/// Runs the demo inside the lab; the result is the exit code.
pub(super) fn run(args: &DemoArgs) -> Result<u8, CliError> {
    let stop = Stop::listen()?;
    let path = find_path(&args.path)?;
    let folder = tempfile::Builder::new()
        .prefix("sabul-demo-")
        .tempdir()
        .map_err(|error| CliError::failed(format!("cannot make a temporary folder: {error}")))?;
    let shown = demonstrate(args, path, folder.path(), stop);
    let removed = folder.close();
    let shown = shown?;
    removed.map_err(|error| {
        CliError::failed(format!("cannot remove the demo's temporary folder: {error}"))
    })?;
    if args.json {
        crate::json::print(&shown.json())?;
    } else {
        output::print(shown.text())?;
    }
    if shown.is_verified() {
        Ok(0)
    } else {
        output::complain("the file that arrived differs from the one that was sent");
        Ok(5)
    }
}

fn demonstrate(
    args: &DemoArgs,
    path: PathPreset,
    folder: &Path,
    stop: Stop,
) -> Result<Shown, CliError> {
    let is_loud = !args.quiet && !args.json;
    let say = |line: &str| {
        if is_loud {
            output::note(line);
        }
    };
    let io = |error: std::io::Error| CliError::failed(format!("a file of the demo: {error}"));
    say(&format!("{}: {}", path.name, path.summary));
    let (file, root) = (folder.join(FILE_NAME), folder.join("received"));
    std::fs::create_dir(&root).map_err(io)?;
    say(&format!("making {} of random bytes", show_bytes(args.size)));
    make_file(&file, args.size).map_err(io)?;

    let lab = Lab::new(scenario(args, &path, folder)?)?;
    say(
        "measuring the path, then sending: sabul cp and one CUBIC connection of the kernel, together",
    );
    let board = Arc::new(Mutex::new(Board::new(is_loud, &path, args)));
    let drawn = Arc::clone(&board);
    let outcome = lab.run(LabConfig {
        ends_with_work: true,
        on_sample: Some(Box::new(move |sample| {
            drawn.lock().unwrap_or_else(PoisonError::into_inner).draw(sample);
        })),
        is_interrupted: Some(Box::new(move || stop.is_asked())),
        ..LabConfig::default()
    });
    board.lock().unwrap_or_else(PoisonError::into_inner).clear();
    let lab = outcome?;
    let copy = read_answer(&folder.join("cp.json"), Some(0))?;
    say("comparing both files");
    let hashes = [hash(&file).map_err(io)?, hash(&root.join(FILE_NAME)).map_err(io)?];
    Ok(Shown { path, cc: args.cc.clone(), bytes: args.size, copy, hashes, lab })
}

/// The copy and its rival on the path.
fn scenario(args: &DemoArgs, path: &PathPreset, folder: &Path) -> Result<Scenario, CliError> {
    let program = std::env::current_exe()
        .map_err(|error| CliError::failed(format!("cannot find this program: {error}")))?;
    let text = |path: &Path| path.display().to_string();
    let program = text(&program);
    let (ticket, answer) = (text(&folder.join("ticket")), text(&folder.join("cp.json")));
    let mut copy = vec![program.clone(), "cp".into(), "--json".into(), "--quiet".into()];
    copy.extend(["--cc".to_owned(), args.cc.clone()]);
    for (key, value) in &args.cc_params {
        copy.extend(["--cc-param".to_owned(), format!("{key}={value}")]);
    }
    copy.extend(["--ticket".to_owned(), ticket.clone(), text(&folder.join(FILE_NAME))]);
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
        &text(&folder.join("received")),
        "--listen",
        "{far}:4850",
        "--ticket-file",
        &ticket,
    ]
    .map(str::to_owned)
    .to_vec();
    let file = FlowPlan::new("sabul", Carrier::Command { near, far }, "", vec![0]);
    let rival = FlowPlan::new("tcp", Transport::Tcp, RIVAL, vec![0]);
    Ok(Scenario {
        name: "demo".to_owned(),
        duration: PATIENCE,
        sample: SAMPLE,
        seed: args.seed,
        links: vec![LinkPlan {
            id: path.name.to_owned(),
            forward: path.forward.clone(),
            back: path.back.clone(),
        }],
        flows: vec![file, rival],
        ..Scenario::default()
    })
}

/// Two lines in the terminal, drawn again and again.
struct Board {
    bars: Option<[ProgressBar; 2]>,
    base_rtt_ms: f64,
    packet_ms: f64,
    names: [String; 2],
}

impl Board {
    fn new(is_loud: bool, path: &PathPreset, args: &DemoArgs) -> Self {
        let bars = is_loud.then(|| {
            let all = MultiProgress::with_draw_target(ProgressDrawTarget::stderr());
            let style = ProgressStyle::with_template("{msg}").expect("the template is right");
            [(); 2].map(|()| all.add(ProgressBar::new_spinner().with_style(style.clone())))
        });
        let (forward, back) = (&path.forward, &path.back);
        Self {
            bars,
            base_rtt_ms: (forward.delay() + back.delay()).as_millis_f64(),
            packet_ms: forward.rate().map_or(0.0, |rate| 12_000.0 / rate.0 as f64 * 1e3),
            names: [format!("sabul cp ({})", args.cc), format!("kernel TCP ({RIVAL})")],
        }
    }

    fn draw(&self, sample: &Sample<'_>) {
        let Some(bars) = &self.bars else { return };
        let queue = sample.router.links.first().map_or(0, |link| link[0].queue_packets);
        let rtt_ms = self.base_rtt_ms + queue as f64 * self.packet_ms;
        for ((bar, name), flow) in bars.iter().zip(&self.names).zip(&sample.series.flows) {
            let rates = &flow.goodput_bps;
            let recent = &rates[rates.len().saturating_sub(SPARKS)..];
            let loss = flow.loss_rate.last().copied().unwrap_or(0.0);
            bar.set_message(format!(
                "{name:<22} {:>12}  RTT {rtt_ms:6.1} ms  loss {:6.3} %  {}",
                show_rate(rates.last().copied().unwrap_or(0.0)),
                loss * 100.0,
                sparkline(recent),
            ));
        }
    }

    fn clear(&self) {
        for bar in self.bars.iter().flatten() {
            bar.abandon();
        }
    }
}

impl Shown {
    fn is_verified(&self) -> bool {
        self.hashes[0] == self.hashes[1]
    }

    fn number(&self, key: &str) -> f64 {
        self.copy[key].as_f64().unwrap_or(0.0)
    }

    fn rival(&self) -> Option<&FlowResult> {
        self.lab.results.flows.get(1)
    }

    /// Four lines.
    fn text(&self) -> String {
        let verdict =
            if self.is_verified() { "BLAKE3 is equal at both ends" } else { "THE FILES DIFFER" };
        let (goodput, rival) = (self.number("goodput_bps"), self.rival());
        let rival_bps = rival.map_or(0.0, |flow| flow.goodput_bps);
        let share = if goodput + rival_bps > 0.0 { rival_bps / (goodput + rival_bps) } else { 0.0 };
        let link = self.lab.results.links.first();
        let queue = link.map_or(0.0, |link| link.queue_packets.mean);
        let mut text = format!(
            "file     {} in {:.2} s, {verdict}\n\
             sabul    {} with {}, {:.3} % of its packets lost, RTT {:.1} ms on average\n\
             beside   {} for one {RIVAL} connection of this machine's kernel: {:.0} % of what both \
             got\n",
            show_bytes(self.bytes),
            self.number("seconds"),
            show_rate(goodput),
            self.cc,
            self.number("loss_rate") * 100.0,
            self.number("rtt_ms"),
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

    fn json(&self) -> Value {
        let (lab, rival) = (&self.lab, self.rival());
        let link = lab.router.links.first().map(|link| link[0].stats).unwrap_or_default();
        let lost = link.dropped_full + link.dropped_loss + link.dropped_outage;
        let share = if link.arrived == 0 { 0.0 } else { lost as f64 / link.arrived as f64 };
        json!({
            "schema": SCHEMA,
            "arm": "lab",
            "path": self.path.name,
            "cc": self.cc,
            "bytes": self.bytes,
            "seconds": self.copy["seconds"],
            "goodput_bps": self.copy["goodput_bps"],
            "verified": self.is_verified(),
            "blake3": self.hashes[1].to_hex().as_str(),
            "rtt_ms": self.copy["rtt_ms"],
            "rtt_ms_min": self.copy["rtt_ms_min"],
            "packets_sent": self.copy["packets_sent"],
            "packets_retransmitted": self.copy["packets_retransmitted"],
            "beside": rival.map(|flow| json!({
                "transport": "tcp",
                "cc": RIVAL,
                "goodput_bps": flow.goodput_bps,
                "retransmissions": flow.retransmissions,
                "rtt_ms": flow.rtt_ms.mean,
            })),
            "path_packets": link.arrived,
            "path_packets_lost": lost,
            "path_packets_lost_queue_full": link.dropped_full,
            "path_packets_too_large": link.dropped_too_large,
            "path_loss_rate": share,
            "router_late_ms_p50": lab.router.lateness.p50.as_millis_f64(),
            "router_late_ms_p99": lab.router.lateness.p99.as_millis_f64(),
            "router_late_ms_max": lab.router.lateness.max.as_millis_f64(),
            "calibration": lab.calibrations,
            "disturbed": !lab.faults.is_empty(),
            "disturbances": lab.faults,
            "notes": lab.notes,
            "copy": self.copy,
        })
    }
}
