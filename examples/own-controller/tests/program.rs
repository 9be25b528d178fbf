//! The program with its own controller, from a user's view: listed, run in a scenario, graded by a card.

use std::path::Path;
use std::process::Command;

const SCENARIO: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/two-flows.toml");

/// Runs the program. Returns its exit code, and stdout and stderr together.
fn run(arguments: &[&str]) -> (i32, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_own-controller"))
        .args(arguments)
        .output()
        .expect("the program starts");
    let text = [output.stdout, output.stderr].concat();
    (output.status.code().unwrap_or(-1), String::from_utf8_lossy(&text).into_owned())
}

/// Fails unless the program ends with this exit code, and a line of its output begins with `front`.
fn expect_line(arguments: &[&str], code: i32, front: &str) {
    let (found, text) = run(arguments);
    assert_eq!(found, code, "{arguments:?}: {text}");
    assert!(text.lines().any(|line| line.starts_with(front)), "{arguments:?}: {text}");
}

/// Fails unless the program rejects the command, with exit code 2 and this text.
fn expect_rejection(arguments: &[&str], text: &str) {
    let (found, output) = run(arguments);
    assert_eq!(found, 2, "{arguments:?}: {output}");
    assert!(output.contains(text), "{arguments:?}: {output}");
}

#[test]
fn the_controller_is_listed_beside_the_others() {
    expect_line(&["cc", "list"], 0, "Added by this program:");
    let (_, shown) = run(&["cc", "show", "gentle"]);
    assert!(shown.contains("target_ms = 10 (ms, 0.1 to 1000)"), "{shown}");
    expect_rejection(&["cc", "show", "gentel"], "nearest: gentle;");
}

#[test]
fn its_scenario_runs_with_sabul_and_with_tcp_hosts() {
    let words = |line: &str| line.split_whitespace().take(3).map(str::to_owned).collect::<Vec<_>>();
    for (transport, setting) in [("sabul", "seed=1"), ("tcp", "flow.gentle.transport=tcp")] {
        let (code, text) = run(&["sim", "run", SCENARIO, "--set", setting]);
        assert_eq!(code, 0, "{text}");
        let row = ["gentle", transport, "gentle"];
        assert!(text.lines().any(|line| words(line) == row), "{text}");
    }
}

#[test]
fn unknown_parameters_and_values_out_of_range_are_rejected() {
    expect_rejection(&["sim", "run", SCENARIO, "--set", "flow.gentle.params.speed=9"], "target_ms");
    expect_rejection(
        &["sim", "run", SCENARIO, "--set", "flow.gentle.params.keep=2"],
        "0.1 to 0.95",
    );
}

#[test]
fn its_card_has_a_page() {
    let folder = tempfile::tempdir().expect("a directory for the card");
    let out = folder.path().join("card");
    let out = out.to_str().expect("a path of UTF-8");
    let small = ["--seconds-per-flow", "2", "--set", "link.bottleneck.rate_mbps=3"];
    let (code, text) = run(&[&["card", "gentle", "--out", out, "--quiet"], &small[..]].concat());
    assert_eq!(code, 0, "{text}");
    let page = std::fs::read_to_string(Path::new(out).join("report.html")).expect("a page");
    assert!(page.contains("gentle"));
}
