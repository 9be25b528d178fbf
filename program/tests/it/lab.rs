//! `sabul lab` without privileges: early rejections, presets, and help.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::fs;
use std::process::Output;

use serde_json::Value;
use tempfile::tempdir;

use crate::common::schema::expect;
use crate::common::{code, expect_code, files_below, json, run, sabul, stderr};

const SCENARIO: &str = r#"name = "one"
duration_s = 2

[[link]]
id = "wire"
rate_mbps = 10
delay_ms = 5

[[flow]]
id = "a"
transport = "tcp"
cc = "cubic"
path = ["wire"]
rtt_ms = 20
"#;

fn lab(arguments: &[&str]) -> Output {
    run(sabul().arg("lab").args(arguments))
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// Checks that a command is rejected with advice before anything is written.
#[test]
fn invalid_lab_commands_are_refused_before_any_host_or_file_is_made() {
    let folder = tempdir().unwrap();
    let broken = SCENARIO.replace("rate_mbps = 10", "rate_mpbs = 10");
    fs::write(folder.path().join("good.toml"), SCENARIO).unwrap();
    fs::write(folder.path().join("broken.toml"), broken).unwrap();
    let before = files_below(folder.path());
    for (arguments, parts) in [
        (&["run", "broken.toml", "--out", "out"][..], &["broken.toml:6: ", "'rate_mbps'"][..]),
        (&["run", "nope.toml", "--out", "out"], &["nope.toml: cannot be read"]),
        (&["run", "good.toml", "--set", "seed=-1", "--out", "out"], &["--set", "seed"]),
        (&["run", "broken.toml", "--check"], &["broken.toml:6: "]),
        (&["compare", "good.toml", "broken.toml", "--out", "out"], &["broken.toml:6: "]),
        (&["shell", "--preset", "moon", "--pcap", "out"], &["'moon'", "satellite"]),
        (&["shell", "--rate", "10", "--pcap", "out"], &["--rate: 10 bit/s", "1 kbit/s"]),
        (&["shell", "--rtt", "1", "--delay", "1"], &["--rtt", "--delay"]),
        (&["presets", "moon"], &["'moon'", "1gbit-100ms"]),
    ] {
        let mut command = sabul();
        let output = run(command.current_dir(folder.path()).arg("lab").args(arguments));
        assert_eq!(code(&output), 2, "{arguments:?}: {}", stderr(&output));
        assert!(output.stdout.is_empty(), "{arguments:?}: {}", stdout(&output));
        for part in parts {
            assert!(stderr(&output).contains(part), "{arguments:?}: {part}: {}", stderr(&output));
        }
        assert_eq!(files_below(folder.path()), before, "{arguments:?}");
        assert!(!folder.path().join("out").exists(), "{arguments:?}");
    }
}

#[test]
fn presets_are_listed_shown_and_printed_as_one_document() {
    let list = lab(&["presets"]);
    expect_code(&list, 0);
    let text = stdout(&list);
    let row = text.lines().find(|line| line.starts_with("atlantic")).unwrap();
    for part in ["1 Gbit/s", "110 ms", "0.001 %", "4583 packets", "Amsterdam"] {
        assert!(row.contains(part), "{part}: {row}");
    }
    let one = lab(&["presets", "atlantic"]);
    expect_code(&one, 0);
    assert!(stdout(&one).contains("delay       55 ms"), "{}", stdout(&one));
    assert!(stdout(&one).contains("[SABUL §III]"));
    let all = json(&lab(&["presets", "--json"]));
    expect(&all, "lab-presets");
    assert_eq!(all["schema"], 1);
    assert_eq!(all["presets"].as_array().unwrap().len(), sabul_net::presets().len());
    let one: Value = json(&lab(&["presets", "atlantic", "--json"]));
    assert_eq!(one["presets"][0]["name"], "atlantic");
    assert_eq!(one["presets"][0]["forward"]["queue_packets"], 4583);
}

#[test]
fn lab_far_works_only_inside_a_lab_shell() {
    let output = lab(&["far", "--", "true"]);
    assert_ne!(code(&output), 0);
    assert!(stderr(&output).starts_with("sabul: "), "{}", stderr(&output));
}

#[test]
fn help_completions_and_manual_pages_list_lab_without_its_inner_command() {
    for (command, parts) in [
        ("run", &["--set", "--pcap", "docs/manual/lab.md", "Exit codes", "--check"][..]),
        ("shell", &["--preset", "0.5bdp", "iperf3", "Exit codes", "--peer"]),
        ("far", &["COMMAND", "inside a lab shell"]),
        ("presets", &["--json"]),
        ("compare", &["--repeat", "10 %"]),
    ] {
        let output = lab(&[command, "--help"]);
        expect_code(&output, 0);
        for part in parts {
            assert!(stdout(&output).contains(part), "{command}: {part}: {}", stdout(&output));
        }
    }
    let folder = tempdir().unwrap();
    expect_code(&run(sabul().args(["man", "--out"]).arg(folder.path())), 0);
    let mut written = run(sabul().args(["completion", "bash"])).stdout;
    for name in ["sabul-lab.1", "sabul-lab-run.1", "sabul-lab-shell.1", "sabul-lab-compare.1"] {
        written.extend(fs::read(folder.path().join(name)).unwrap());
    }
    let written = String::from_utf8(written).unwrap();
    for part in ["skip-calibration", "discipline", "presets", "compare"] {
        assert!(written.contains(part), "{part}");
    }
    // The inner process is the same program under another name, and not a command. `join --type` has
    // a value of this name.
    assert!(!written.replace("inner left anti", "").contains("inner"));
}
