//! `sabul reproduce`: its list and its rejections. The reproductions take minutes to hours; their
//! parts have unit tests.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::fs;
use std::path::Path;
use std::process::{Output, Stdio};
use std::time::{Duration, Instant};

use tempfile::tempdir;

use crate::common::schema::expect;
use crate::common::{expect_code, run, sabul, stderr};

/// Directories of the repository that hold a plan.
fn folders() -> Vec<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../reproductions");
    let folders = fs::read_dir(root).unwrap().map(|entry| entry.unwrap());
    let mut names: Vec<String> = folders
        .filter(|folder| folder.path().join("plan.toml").is_file())
        .map(|folder| folder.file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// Checks that a command ends at once with a reason.
#[track_caller]
fn refused(arguments: &[&str], expected: i32) -> String {
    let begun = Instant::now();
    let output: Output = run(sabul().arg("reproduce").args(arguments));
    expect_code(&output, expected);
    assert!(output.stdout.is_empty(), "{}", String::from_utf8_lossy(&output.stdout));
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    stderr(&output)
}

#[test]
fn the_list_names_every_reproduction_of_the_repository() {
    let output = run(sabul().args(["reproduce", "list"]));
    expect_code(&output, 0);
    assert_eq!(stderr(&output), "");
    let text = String::from_utf8(output.stdout).unwrap();
    let names: Vec<&str> =
        text.lines().map(|line| line.split_whitespace().next().unwrap()).collect();
    assert_eq!(names, folders());
    assert!(names.len() >= 8, "{names:?}");
    for line in text.lines() {
        let about = line.split_once("  ").unwrap().1;
        assert!(about.contains(": ") && about.contains('['), "a source and a title: {line}");
        let cases = line.rsplit_once('(').unwrap().1;
        let (count, noun) = cases.split_once(' ').unwrap();
        let noun_wanted = if count == "1" { "case)" } else { "cases)" };
        assert!(count.parse::<u32>().unwrap() > 0 && noun == noun_wanted, "{line}");
    }
}

#[test]
fn a_closed_pipe_does_not_fail_reproduce_list() {
    let mut child = sabul()
        .args(["reproduce", "list"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    expect_code(&output, 0);
    assert_eq!(stderr(&output), "");
}

#[test]
fn an_unknown_reproduction_lists_the_known_names() {
    let message = refused(&["run", "table-1", "--json"], 2);
    assert!(message.contains("'table-1'") && message.contains("all"), "{message}");
    for name in folders() {
        assert!(message.contains(&name), "{name}: {message}");
    }
}

#[test]
fn the_lab_arm_is_refused_by_reproduce_run() {
    for name in ["all", "sabul-figure2", "nope"] {
        let message = refused(&["run", name, "--arm", "lab", "--json"], 2);
        assert!(message.contains("lab") && message.contains("possible values: sim"), "{message}");
    }
    let message = refused(&["run", "all", "--arm", "moon"], 2);
    assert!(message.contains("moon") && message.contains("possible values: sim"), "{message}");
    assert!(refused(&["run"], 2).contains("NAME|all"));
}

#[test]
fn an_unwritable_out_is_reported_before_the_reproduction_runs() {
    let folder = tempdir().unwrap();
    let taken = folder.path().join("taken");
    fs::write(&taken, "mine").unwrap();
    let message = refused(&["run", "all", "--out", taken.to_str().unwrap()], 1);
    assert!(message.contains("cannot write to") && message.contains("taken"), "{message}");
    assert_eq!(fs::read_to_string(&taken).unwrap(), "mine");
}

/// The deterministic model, the only reproduction without simulated minutes.
#[test]
fn a_reproduction_prints_judges_and_writes() {
    let dir = tempdir().unwrap();
    let out = dir.path().join("out");
    let mut command = sabul();
    command.args(["reproduce", "run", "ovvt-figure2", "--json", "--out"]).arg(&out);
    let output = run(&mut command);
    expect_code(&output, 0);
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(text.lines().count(), 1);
    let document: serde_json::Value = serde_json::from_str(&text).unwrap();
    expect(&document, "reproduce");
    assert_eq!((&document["schema"], &document["arm"]), (&1.into(), &"sim".into()));
    let cases = document["reproductions"][0]["cases"].as_array().unwrap();
    assert_eq!(cases.len(), 2);
    for case in cases {
        let claim = &case["claims"][0];
        assert_eq!((&claim["verdict"], &claim["committed"]), (&"holds".into(), &"holds".into()));
        assert!(claim["ours"].as_f64().unwrap() <= claim["tolerance"].as_f64().unwrap());
        let rates = case["flows"].as_array().unwrap().iter();
        let sum: f64 = rates.map(|flow| flow["mbps"].as_f64().unwrap()).sum();
        assert!((800.0..1000.0).contains(&sum), "two flows share 900 Mb/s: {sum}");
    }
    for (file, holds) in [
        ("report.html", "</html>"),
        ("report.md", "## [OVV-T] Figure 2"),
        ("ovvt-figure2.svg", "equal gaps"),
    ] {
        let text = fs::read_to_string(out.join(file)).unwrap();
        assert!(text.contains(holds), "{file}");
    }
}
