//! Program with additional controllers, good and broken. All commands accept these controllers, and
//! a fault ends the run with the controller's name.
//!
//! This file is both that program and its tests: with [`RUN_PROGRAM`] in the environment it is the
//! program. A lab starts its own program again, so both must be one executable.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

#[allow(dead_code, reason = "the other tests use the rest")]
#[path = "it/common/mod.rs"]
mod common;

use std::path::Path;
use std::process::{Command, ExitCode, Output, Stdio};
use std::{env, fs};

use sabul_cc::registry::{self, Entry, Family};
use sabul_cc::{Acked, Context, Controller, LossReport, ParamSpec, ParamValues, SendLimits, Unit};
use sabul_units::{Gap, Packets, Span};
use tempfile::{TempDir, tempdir};

use common::{Bench, content, expect_code, run, stderr};

/// Environment variable that selects the program instead of the tests.
const RUN_PROGRAM: &str = "SABUL_TEST_PLAYS_PROGRAM";

// ---- the program --------------------------------------------------------------------------------

const PARAMS: &[ParamSpec] = &[
    ParamSpec::new("window", Unit::Packets, "20", (1.0, 100.0))
        .doc("How many packets it has on the way")
        .source("made up"),
    // Kinds of faults, which occur once 200 packets have arrived.
    ParamSpec::word("then", &["on", "panic", "shut"], "on")
        .doc("What it does after 200 packets")
        .source("made up"),
];

const VALID: Entry =
    Entry::new("sturdy", Family::Window, |values, _| Ok(Box::new(Same::new(values))))
        .summary("Always the same window")
        .source("made up for a test")
        .params(PARAMS)
        .without_loss_response();

static ADDED: [Entry; 3] = [
    VALID,
    Entry { name: "wild", build: |values, _| Ok(Box::new(Same::broken(values, "panic"))), ..VALID },
    Entry { name: "shut", build: |values, _| Ok(Box::new(Same::broken(values, "shut"))), ..VALID },
];

#[derive(Debug)]
struct Same {
    window: u64,
    then: String,
}

impl Same {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "1 to 100")]
    fn new(values: &ParamValues) -> Self {
        Self { window: values.number("window") as u64, then: values.word("then").to_owned() }
    }

    fn broken(values: &ParamValues, then: &str) -> Self {
        Self { then: then.to_owned(), ..Self::new(values) }
    }
}

impl Controller for Same {
    fn limits(&self) -> SendLimits {
        // The rate of the slowest link here, so that the machine's speed does not matter.
        let gap = Gap(Span::from_micros(1200));
        SendLimits { gap, window: Some(Packets(self.window)), hold_until: None }
    }
    fn on_loss(&mut self, _loss: &LossReport, _cx: &mut Context<'_>) {}
    fn on_timeout(&mut self, _cx: &mut Context<'_>) {}
    fn on_ack(&mut self, acked: &Acked, _cx: &mut Context<'_>) {
        if acked.total >= Packets(200) {
            match self.then.as_str() {
                "panic" => panic!("two hundred"),
                "shut" => self.window = 0,
                _ => {}
            }
        }
    }
}

// ---- the tests ----------------------------------------------------------------------------------

/// The tests, each with the name that a filter on the command line matches.
const TESTS: &[(&str, fn())] = &[
    ("added_controllers_are_listed_and_shown", added_controllers_are_listed_and_shown),
    ("a_wrong_name_or_parameter_is_refused", a_wrong_name_or_parameter_is_refused),
    (
        "added_controllers_run_in_scenarios_on_either_transport",
        added_controllers_run_in_scenarios_on_either_transport,
    ),
    (
        "a_fault_fails_the_run_and_is_reported_in_one_line",
        a_fault_fails_the_run_and_is_reported_in_one_line,
    ),
    (
        "a_faulty_run_of_a_sweep_does_not_stop_the_other_runs",
        a_faulty_run_of_a_sweep_does_not_stop_the_other_runs,
    ),
    ("a_card_names_the_controller_at_fault", a_card_names_the_controller_at_fault),
    (
        "an_upload_needs_the_controller_locally_and_a_download_remotely",
        an_upload_needs_the_controller_locally_and_a_download_remotely,
    ),
    ("a_fault_ends_a_transfer", a_fault_ends_a_transfer),
    ("a_program_that_adds_nonsense_does_not_start", a_program_that_adds_nonsense_does_not_start),
    #[cfg(feature = "namespaces")]
    ("the_lab_starts_the_program_it_is_part_of", the_lab_starts_the_program_it_is_part_of),
];

fn main() -> ExitCode {
    match env::var(RUN_PROGRAM).as_deref() {
        Ok("nonsense") => return sabul_program::run_with(registry::ENTRIES),
        Ok(_) => return sabul_program::run_with(&ADDED),
        Err(_) => {}
    }
    let filters: Vec<String> = env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    for (name, test) in TESTS {
        if filters.is_empty() || filters.iter().any(|filter| name.contains(filter.as_str())) {
            println!("test {name} ...");
            test();
        }
    }
    ExitCode::SUCCESS
}

fn program() -> Command {
    let mut command = Command::new(env::current_exe().unwrap());
    command.env(RUN_PROGRAM, "1").env_remove("SABUL_TICKET_FILE").env_remove("RUST_BACKTRACE");
    command.stdin(Stdio::null());
    command
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn scenario(cc: &str, more: &str) -> TempDir {
    let folder = tempdir().unwrap();
    let text = format!(
        r#"name = "short"
duration_s = 3
{more}
[[link]]
id = "wire"
rate_mbps = 20
delay_ms = 5

[[flow]]
id = "ours"
transport = "sabul"
cc = "{cc}"
path = ["wire"]

[[flow]]
id = "other"
transport = "tcp"
cc = "cubic"
path = ["wire"]
"#
    );
    fs::write(folder.path().join("s.toml"), text).unwrap();
    folder
}

fn sim(folder: &Path, arguments: &[&str]) -> Output {
    run(program().current_dir(folder).args(["sim", "run", "s.toml"]).args(arguments))
}

/// Checks for one line on standard error that names the faulty controller, without the panic
/// itself.
#[track_caller]
fn expect_fault(output: &Output, cc: &str, what: &str) {
    expect_code(output, 1);
    let text = stderr(output);
    let line = text.lines().find(|line| line.contains("is at fault")).unwrap_or(&text);
    assert!(line.contains(&format!("controller '{cc}' is at fault")), "{text}");
    assert!(line.contains(what), "{text}");
    assert!(!text.contains("thread '"), "the panic is told once: {text}");
}

fn added_controllers_are_listed_and_shown() {
    let list = run(program().args(["cc", "list"]));
    expect_code(&list, 0);
    let text = stdout(&list);
    let (ours, added) = text.split_once("\nAdded by this program:\n").unwrap();
    assert!(ours.contains("cubic ") && !ours.contains("sturdy"), "{text}");
    assert_eq!(added.lines().count(), 3, "{text}");
    let shown = run(program().args(["cc", "show", "sturdy"]));
    expect_code(&shown, 0);
    assert!(stdout(&shown).contains("window = 20 (packets, 1 to 100)"), "{}", stdout(&shown));
    let plain = run(common::sabul().args(["cc", "list"]));
    assert!(!stdout(&plain).contains("Added"), "{}", stdout(&plain));
}

fn a_wrong_name_or_parameter_is_refused() {
    let unknown = run(program().args(["cc", "show", "stury"]));
    expect_code(&unknown, 2);
    assert!(stderr(&unknown).contains("nearest: sturdy;"), "{}", stderr(&unknown));
    let folder = scenario("sturdi", "");
    let output = sim(folder.path(), &[]);
    expect_code(&output, 2);
    assert!(stderr(&output).contains("sturdy"), "{}", stderr(&output));
    let folder = scenario("sturdy", "");
    for (set, part) in [("window=101", "1 to 100"), ("windows=5", "window"), ("then=x", "panic")] {
        let output = sim(folder.path(), &["--set", &format!("flow.ours.params.{set}")]);
        expect_code(&output, 2);
        assert!(stderr(&output).contains(part), "{set}: {}", stderr(&output));
    }
    let card = run(program().args(["card", "sturdy", "--cc-param", "window=0"]));
    expect_code(&card, 2);
    assert!(stderr(&card).contains("1 to 100"), "{}", stderr(&card));
}

fn added_controllers_run_in_scenarios_on_either_transport() {
    let folder = scenario("sturdy", "");
    for transport in ["sabul", "tcp"] {
        let set = format!("flow.ours.transport={transport}");
        let output = sim(folder.path(), &["--json", "--set", &set]);
        expect_code(&output, 0);
        let flow = &common::json(&output)["flows"][0];
        assert_eq!((&flow["id"], &flow["cc"]), (&"ours".into(), &"sturdy".into()));
        assert!(flow["goodput_bps"].as_f64().unwrap() > 1e6, "{flow}");
    }
}

fn a_fault_fails_the_run_and_is_reported_in_one_line() {
    for transport in ["sabul", "tcp"] {
        for (cc, what) in [
            ("wild", "its on_ack panicked at"),
            ("wild", "added_controllers.rs"),
            ("wild", "two hundred"),
            ("shut", "its on_ack left a window of 0 packets"),
        ] {
            let folder = scenario(cc, "");
            let set = format!("flow.ours.transport={transport}");
            let output = sim(folder.path(), &["--set", &set, "--out", "out"]);
            expect_fault(&output, cc, what);
            assert!(
                stderr(&output).contains("scenario 'short', flow 'ours'"),
                "{}",
                stderr(&output)
            );
            assert!(output.stdout.is_empty() && !folder.path().join("out/manifest.json").exists());
        }
    }
}

fn a_faulty_run_of_a_sweep_does_not_stop_the_other_runs() {
    let folder = scenario("sturdy", "");
    let sweep = ["--set", "flow.ours.cc=sturdy,wild,newreno", "--out", "out"];
    let output = sim(folder.path(), &sweep);
    expect_fault(&output, "wild", "[flow.ours.cc=wild]");
    assert!(stderr(&output).contains("1 of 3 runs failed"), "{}", stderr(&output));
    assert!(stdout(&output).contains("cc=sturdy") && stdout(&output).contains("cc=newreno"));
    for (place, is_there) in [("run-0001", true), ("run-0002", false), ("run-0003", true)] {
        let manifest = folder.path().join("out").join(place).join("manifest.json");
        assert_eq!(manifest.exists(), is_there, "{place}");
    }
    let table = fs::read_to_string(folder.path().join("out/runs.csv")).unwrap();
    assert!(table.contains("sturdy") && !table.contains("wild"), "{table}");
}

fn a_card_names_the_controller_at_fault() {
    let small = ["--seconds-per-flow", "2", "--set", "link.bottleneck.rate_mbps=3", "--quiet"];
    for (cc, what) in [("wild", "two hundred"), ("shut", "a window of 0 packets")] {
        let output = run(program().args(["card", cc]).args(small));
        expect_fault(&output, cc, what);
        assert!(stderr(&output).contains(&format!("scenario '{cc} ")), "{}", stderr(&output));
    }
}

/// A plain `sabul serve` without the controllers above, and a file to send.
fn serve() -> (Bench, Vec<u8>) {
    let bench = Bench::new();
    let bytes = content(1, 600_000);
    fs::write(bench.path("here.bin"), &bytes).unwrap();
    (bench, bytes)
}

/// Runs this program's `cp` to that server.
fn copy(bench: &Bench, cc: &str, from: &str, to: &str) -> Output {
    let mut command = program();
    command.current_dir(bench.folder.path()).env("SABUL_TICKET_FILE", "ticket");
    run(command.args(["cp", "--quiet", "--mtu", "1500", "--cc", cc, from, to]))
}

fn an_upload_needs_the_controller_locally_and_a_download_remotely() {
    let (bench, bytes) = serve();
    let up = copy(&bench, "sturdy", "here.bin", &bench.url("up.bin"));
    expect_code(&up, 0);
    assert_eq!(fs::read(bench.root("up.bin")).unwrap(), bytes);
    let down = copy(&bench, "sturdy", &bench.url("up.bin"), "x");
    expect_code(&down, 2);
    let text = stderr(&down);
    assert!(text.contains("the end that sends needs the controller"), "{text}");
    assert!(text.contains("'sturdy'") && text.contains("use one of: sabul2026"), "{text}");
}

fn a_fault_ends_a_transfer() {
    let (bench, _) = serve();
    let up = copy(&bench, "wild", "here.bin", &bench.url("up.bin"));
    expect_fault(&up, "wild", "two hundred");
    assert!(!bench.root("up.bin").exists());
}

fn a_program_that_adds_nonsense_does_not_start() {
    let output = run(program().env(RUN_PROGRAM, "nonsense").args(["cc", "list"]));
    expect_code(&output, 2);
    assert!(stderr(&output).contains("a name that no other controller has"), "{}", stderr(&output));
}

#[cfg(feature = "namespaces")]
fn the_lab_starts_the_program_it_is_part_of() {
    let lab = |cc: &str| {
        let folder = scenario(cc, "");
        let arguments = ["lab", "run", "s.toml", "--skip-calibration", "--quiet"];
        run(program().current_dir(folder.path()).args(arguments))
    };
    // A busy machine may make the run invalid; that does not matter here.
    let good = lab("sturdy");
    assert!(stdout(&good).contains("short"), "{}", stderr(&good));
    assert!(!stderr(&good).contains("fault"), "{}", stderr(&good));
    let bad = lab("wild");
    expect_fault(&bad, "wild", "two hundred");
    assert!(stderr(&bad).contains("flow 'ours'"), "{}", stderr(&bad));
}
