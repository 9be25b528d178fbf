//! `sabul lab` on real hosts; needs the right to create namespaces. No check depends on the
//! machine's speed: a run may be invalid, but must then be reported as invalid everywhere.

#![cfg(feature = "namespaces")]
#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;
use tempfile::{TempDir, tempdir};

use crate::common::schema::expect;
use crate::common::{
    Running, code, content, expect_code, files_below, json, run, sabul, stderr, wait_for,
};

const SCENARIO: &str = r#"name = "short"
duration_s = 2
warmup_s = 0.5

[[link]]
id = "wire"
rate_mbps = 10
delay_ms = 10

[[flow]]
id = "tcp"
transport = "tcp"
cc = "cubic"
path = ["wire"]

[[flow]]
id = "ours"
path = ["wire"]
"#;

const REASONS: [&str; 3] = ["report.html", "results.json", "scenario.toml"];
const NUMBERS: [&str; 4] = ["links.csv", "plot.svg", "series.csv", "tuples.csv"];

fn desk() -> TempDir {
    let folder = tempdir().unwrap();
    fs::write(folder.path().join("s.toml"), SCENARIO).unwrap();
    folder
}

fn lab(folder: &TempDir, arguments: &[&str]) -> Output {
    let mut command = sabul();
    run(command.current_dir(folder.path()).arg("lab").args(arguments))
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// Checks that the files of a run all belong to a valid run, or all to an invalid one.
#[track_caller]
fn expect_files(dir: &Path, is_valid: bool) {
    let mut wanted: Vec<PathBuf> = REASONS.into_iter().map(PathBuf::from).collect();
    if is_valid {
        wanted.extend(NUMBERS.into_iter().map(PathBuf::from));
    }
    wanted.sort();
    let manifest: Value =
        serde_json::from_slice(&fs::read(dir.join("manifest.json")).unwrap()).unwrap();
    let names = manifest["files"].as_array().unwrap().iter();
    let mut listed: Vec<PathBuf> =
        names.map(|name| PathBuf::from(name.as_str().unwrap())).collect();
    listed.sort();
    assert_eq!(listed, wanted);
    assert_eq!(manifest["arm"], "lab");
    wanted.push(PathBuf::from("manifest.json"));
    wanted.sort();
    assert_eq!(files_below(dir), wanted);
}

#[test]
fn a_file_crosses_the_path_of_a_shell_and_appears_in_the_summary() {
    let folder = desk();
    fs::create_dir(folder.path().join("root")).unwrap();
    fs::write(folder.path().join("big"), content(3, 300_000)).unwrap();
    let sabul = env!("CARGO_BIN_EXE_sabul");
    let peer = format!("exec {sabul} serve --root root --listen 10.66.0.2:4850 --ticket-file t");
    let program = format!(
        "while ! test -s t; do sleep 0.05; done; {sabul} cp -q --ticket t big \
         sabul://10.66.0.2:4850/ || exit 1; exit 7"
    );
    let path =
        ["shell", "--rate", "24M", "--rtt", "10", "--peer", &peer, "--", "sh", "-c", &program];
    let output = lab(&folder, &path);
    expect_code(&output, 7);
    assert_eq!(fs::read(folder.path().join("root/big")).unwrap(), content(3, 300_000));
    let reported = stderr(&output);
    for part in [
        "path 24 Mbit/s, 5 ms one way, queue 20 packets (1 BDP), 10 ms round trip",
        "10.66.0.1 ('near')",
        "UDP",
        "10.66.0.2:4850",
        "near to far: ",
        "Lateness: ",
    ] {
        assert!(reported.contains(part), "{part}: {reported}");
    }
    assert!(output.stdout.is_empty(), "{}", stdout(&output));
}

#[test]
fn the_far_end_is_another_host() {
    let folder = desk();
    let sabul = env!("CARGO_BIN_EXE_sabul");
    let places = format!("echo $SABUL_LAB; {sabul} lab far -- sh -c 'echo $SABUL_LAB; exit 5'");
    let output = lab(&folder, &["shell", "--rtt", "1", "--", "sh", "-c", &places]);
    expect_code(&output, 5);
    assert_eq!(stdout(&output), "near\nfar\n");
}

#[test]
fn exit_code_document_and_files_show_whether_a_run_is_valid() {
    let folder = desk();
    let output = lab(&folder, &["run", "s.toml", "--json", "--out", "out", "--seed", "3"]);
    let document = json(&output);
    expect(&document, "lab");
    let is_valid = document["valid"].as_bool().unwrap();
    expect_code(&output, if is_valid { 0 } else { 1 });
    assert_eq!((&document["arm"], &document["seed"]), (&"lab".into(), &3.into()));
    assert_eq!(document["faults"].as_array().unwrap().is_empty(), is_valid);
    assert_eq!(document["flows"].as_array().unwrap().len(), if is_valid { 2 } else { 0 });
    let details = &document["lab"];
    assert!(!details["calibrations"].as_array().unwrap().is_empty(), "{details}");
    assert!(details["lateness"]["p99_us"].as_f64().unwrap() > 0.0, "{details}");
    let figures = if is_valid { &document } else { &document["discarded"] };
    for flow in figures["flows"].as_array().unwrap() {
        assert!(flow["packets_sent"].as_u64().unwrap() > 10, "{flow}");
    }
    expect_files(&folder.path().join("out"), is_valid);
    let page = fs::read_to_string(folder.path().join("out/report.html")).unwrap();
    assert!(page.contains("Measured in the lab: real sockets over an emulated path"));
    assert_eq!(page.contains("INVALID"), !is_valid);
    let again: Value =
        serde_json::from_slice(&fs::read(folder.path().join("out/results.json")).unwrap()).unwrap();
    assert_eq!(again, document);
}

#[test]
fn a_lab_run_prints_tables_or_the_reasons_for_invalidity() {
    let folder = desk();
    let output = lab(&folder, &["run", "s.toml", "--skip-calibration"]);
    let text = stdout(&output);
    match code(&output) {
        0 => assert!(text.contains("2 s measured in the lab") && text.contains("Jain"), "{text}"),
        1 => assert!(text.contains("INVALID") && !text.contains("Jain"), "{text}"),
        code => panic!("{code}: {}", stderr(&output)),
    }
    assert!(text.contains("calibrat"), "it was left out, which is said: {text}");
}

#[test]
fn an_interrupt_writes_nothing_of_the_run_and_keeps_the_previous_one() {
    let folder = desk();
    let mut command = sabul();
    command.current_dir(folder.path()).args(["lab", "run", "s.toml", "--out", "out"]);
    command.args(["--set", "duration_s=1,600", "--skip-calibration"]);
    let running = Running::start(&mut command);
    let manifest = folder.path().join("out/run-0001/manifest.json");
    wait_for("the end of the first run", || manifest.exists());
    std::thread::sleep(Duration::from_millis(300));
    running.signal(Signal::INT);
    let output = running.finish();
    expect_code(&output, 130);
    assert!(stderr(&output).contains("1 run before it: complete in out"), "{}", stderr(&output));
    assert!(!folder.path().join("out/run-0002").exists());
    assert!(!folder.path().join("out/runs.csv").exists());
}

#[test]
fn a_comparison_has_both_arms_and_their_files() {
    let folder = desk();
    let output = lab(&folder, &["compare", "s.toml", "--repeat", "2", "--json", "--out", "out"]);
    let document = json(&output);
    expect(&document, "lab-compare");
    let one = &document["comparisons"][0];
    let is_valid = one["is_valid"].as_bool().unwrap();
    expect_code(&output, if is_valid { 0 } else { 1 });
    let rows = one["rows"].as_array().unwrap();
    // Goodput and loss of two flows, one queue, Jain's index.
    assert_eq!(rows.len(), 6);
    assert!(rows.iter().all(|row| row["simulated"].is_number()), "{one}");
    assert_eq!(rows[0]["measured"].is_null(), one["measurements"] == 0, "{one}");
    for file in ["compare.json", "compare.csv", "report.html", "run-0001/sim/manifest.json"] {
        assert!(folder.path().join("out").join(file).is_file(), "{file}");
    }
    for n in 1..=2 {
        let dir = folder.path().join(format!("out/run-0001/lab-{n}"));
        expect_files(&dir, dir.join("series.csv").exists());
    }
}

#[test]
fn a_scenario_the_lab_cannot_carry_is_a_configuration_error() {
    let folder = desk();
    let output = lab(&folder, &["run", "s.toml", "--set", "link.wire.rate_mbps=100000"]);
    expect_code(&output, 2);
    assert!(stderr(&output).contains("wire"), "{}", stderr(&output));
    assert!(output.stdout.is_empty());
}

#[test]
fn events_of_both_ends_and_of_the_router_are_written_to_one_file() {
    let folder = desk();
    let tight =
        ["--set", "link.wire.queue_packets=5", "--skip-calibration", "--events", "why.jsonl"];
    let output = lab(&folder, &[&["run", "s.toml", "--quiet"][..], &tight].concat());
    assert!([0, 1].contains(&code(&output)), "{}", stderr(&output));
    let text = fs::read_to_string(folder.path().join("why.jsonl")).unwrap();
    let events: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let are = |wanted: &[(&str, &str)]| {
        let found = |event: &&Value| wanted.iter().all(|(key, value)| event[key] == *value);
        events.iter().filter(found).count()
    };
    assert!(are(&[("source", "flow:ours"), ("host", "near"), ("event", "on_ack")]) > 0, "{text}");
    assert!(are(&[("source", "flow:ours"), ("host", "far"), ("timer", "ack"), ("why", "due")]) > 0);
    assert!(
        are(&[("source", "link:wire"), ("event", "drop"), ("why", "full"), ("flow", "tcp")]) > 0
    );
    assert_eq!(are(&[("source", "flow:tcp")]), 0, "the kernel gives no reasons");
    // All events share one clock, which starts with the run.
    let times: Vec<f64> = events.iter().map(|event| event["t_s"].as_f64().unwrap()).collect();
    assert!(times.iter().all(|t_s| (0.0..60.0).contains(t_s)), "{times:?}");

    let output = lab(&folder, &["run", "s.toml", "--set", "seed=1,2", "--events", "why.jsonl"]);
    expect_code(&output, 2);
    assert!(stderr(&output).contains("--events records one run"), "{}", stderr(&output));
}
