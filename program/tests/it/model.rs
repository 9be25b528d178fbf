//! `sabul model`: lemmas, rounds and regions of the deterministic model.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::tempdir;

use crate::common::schema::expect;
use crate::common::{expect_code, json, run, sabul, stderr};

/// Returns the path of a file in the repository.
fn published(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../reproductions/model/models").join(name)
}

fn model(arguments: &[&str]) -> Output {
    run(sabul().arg("model").args(arguments))
}

fn document(arguments: &[&str]) -> Value {
    let output = model(&[arguments, &["--json"]].concat());
    expect_code(&output, 0);
    assert_eq!(stderr(&output), "", "a document needs no comment");
    let document = json(&output);
    assert_eq!(document["schema"], 1);
    expect(&document, &format!("model-{}", arguments[0]));
    document
}

const OUTCOMES: [&str; 4] = ["not_applicable", "holds", "violated", "undecided"];

/// Lemmas 1 to 8, each with an outcome as printed and as corrected.
#[track_caller]
fn check_lemmas(report: &Value) {
    let lemmas = report["lemmas"].as_array().unwrap();
    let numbers: Vec<u64> = lemmas.iter().map(|lemma| lemma["lemma"].as_u64().unwrap()).collect();
    assert_eq!(numbers, [1, 2, 3, 4, 5, 6, 7, 8]);
    for lemma in lemmas {
        for form in ["printed", "corrected"] {
            let outcome = lemma[form]["outcome"].as_str().unwrap();
            assert!(OUTCOMES.contains(&outcome), "{lemma}");
        }
        assert_ne!(lemma["corrected"]["outcome"], "violated", "{lemma}");
        assert!(lemma["verdict"]["kind"].is_string());
    }
}

#[test]
fn check_judges_eight_lemmas_for_each_set_and_point() {
    let found = document(&["check", "--grid", "50"]);
    let sets = found["sets"].as_array().unwrap();
    let names: Vec<&str> = sets.iter().map(|set| set["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["pr0", "pr1"]);
    sets.iter().for_each(|set| check_lemmas(&set["report"]));
    assert!(!found["suspects"].as_array().unwrap().is_empty());
    let grid = &found["grid"];
    let points = grid["points"].as_u64().unwrap();
    assert_eq!(points + grid["left_out"].as_u64().unwrap(), 50);
    let lemmas = grid["lemmas"].as_array().unwrap();
    assert_eq!(lemmas.len(), 8);
    for form in lemmas.iter().flat_map(|lemma| [&lemma["printed"], &lemma["corrected"]]) {
        let sum: u64 = OUTCOMES.iter().map(|outcome| form[outcome].as_u64().unwrap()).sum();
        assert_eq!(sum, points, "every point has an outcome");
    }
    let in_regions = grid["regions"].as_array().unwrap().iter();
    assert_eq!(in_regions.map(|region| region[1].as_u64().unwrap()).sum::<u64>(), points);
}

#[test]
fn the_same_seed_draws_the_same_grid() {
    let check = |seed: &str| {
        let output = model(&["check", "--grid", "50", "--seed", seed, "--json"]);
        expect_code(&output, 0);
        output.stdout
    };
    assert_eq!(check("1"), check("1"));
    assert_ne!(check("1"), check("2"));
    assert_eq!(document(&["check", "--grid", "0"])["grid"], Value::Null);
}

#[test]
fn the_published_sets_are_checked_from_their_files() {
    for file in ["pr0.toml", "pr1.toml"] {
        let path = published(file);
        let path = path.to_str().unwrap();
        let found = document(&["check", path, "--grid", "0"]);
        let sets = found["sets"].as_array().unwrap();
        assert_eq!(sets.len(), 1);
        assert_eq!(sets[0]["name"], path);
        check_lemmas(&sets[0]["report"]);
        let orbit = &sets[0]["report"]["orbit"];
        assert!(orbit["switches"].as_u64().unwrap() > 0, "it takes turns: {orbit}");
        let text = model(&["check", path, "--grid", "0"]);
        expect_code(&text, 0);
        let text = String::from_utf8(text.stdout).unwrap();
        for part in ["service_mbps = 500", "as printed  as corrected", "Lemma 8"] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
    // The two parameter sets differ as the paper states.
    let k2 = |file| {
        let found = document(&["check", published(file).to_str().unwrap(), "--grid", "0"]);
        found["sets"][0]["report"]["params"]["k2"].as_f64().unwrap()
    };
    assert_eq!((k2("pr0.toml"), k2("pr1.toml")), (10.0, 100.0));
}

#[test]
fn iterate_prints_the_requested_number_of_rounds() {
    let path = published("pr0.toml");
    let path = path.to_str().unwrap();
    let found = document(&["iterate", path, "--rounds", "10"]);
    for key in ["rate_mbps", "loss", "queue_packets", "gap_us"] {
        assert_eq!(found["series"][key].as_array().unwrap().len(), 10, "{key}");
    }
    let rates = found["series"]["rate_mbps"].as_array().unwrap();
    let rate = |n: usize| rates[n][1].as_f64().unwrap();
    assert!((rate(0) - 300.0).abs() < 1e-6, "the first rate of the file: {}", rate(0));
    assert!((1..10).all(|n| rate(n) > rate(n - 1)), "half of the interface is free: {rates:?}");
    assert_eq!(found["phase_plane"]["path_us"].as_array().unwrap().len(), 10);

    let output = model(&["iterate", path, "--rounds", "10"]);
    expect_code(&output, 0);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("rate Mb/s") && text.contains("after 10 rounds"), "{text}");
}

#[test]
fn grid_places_every_point() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("grid.toml");
    let text = "set = \"pr0\"\nqueue_packets = 0\nservice_mbps = [100, 500, 800]\n\
        k2 = { from = 1, to = 1500, steps = 4, spread = \"log\" }\n";
    fs::write(&path, text).unwrap();
    let found = document(&["grid", path.to_str().unwrap()]);
    assert_eq!(found["axes"], serde_json::json!(["service_mbps", "k2"]));
    assert_eq!(
        (&found["summary"]["points"], &found["summary"]["left_out"]),
        (&12.into(), &0.into())
    );
    let points = found["points"].as_array().unwrap();
    assert_eq!(points.len(), 12);
    for point in points {
        assert_eq!(point["values"].as_array().unwrap().len(), 2);
        let [service_mbps, k2] = [0, 1].map(|n| point["values"][n].as_f64().unwrap());
        // Without a queue increase mode locks up to k2 = C/(C-µ), and from k2 = 1/α = 1000 on one
        // round without loss makes the gap negative.
        let region = point["region"].as_str().unwrap();
        assert_eq!(region == "locks", k2 <= 1000.0 / (1000.0 - service_mbps), "{point}");
        assert_eq!(region == "gap_negative", k2 > 1000.0, "{point}");
    }
    assert!(found["heat_map"].is_object());
    let text = model(&["grid", path.to_str().unwrap()]);
    expect_code(&text, 0);
    assert!(String::from_utf8(text.stdout).unwrap().contains("grid: 12 points"));
}

#[test]
fn the_published_grid_is_evaluated() {
    let found = document(&["grid", published("grid.toml").to_str().unwrap()]);
    assert_eq!(found["axes"], serde_json::json!(["service_share", "k2"]));
    assert_eq!(found["points"].as_array().unwrap().len(), 37 * 36);
}

#[test]
fn a_wrong_file_is_refused_with_line_key_and_range() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("p.toml");
    for (command, text, parts) in [
        (
            "check",
            "set = \"pr0\"\nservise_mbps = 1\n",
            &["line 2", "'servise_mbps'", "'service_mbps'"][..],
        ),
        ("check", "set = \"pr0\"\n\nk2 = -1\n", &["line 3", "k2 = -1", "to 1000000"]),
        (
            "iterate",
            "set = \"pr0\"\nservice_mbps = 2000\n",
            &["line 2", "service_mbps", "capacity_mbps"],
        ),
        ("iterate", "set = \"pr2\"\n", &["line 1", "\"pr0\", \"pr1\""]),
        ("iterate", "set = \"pr0\"\nk1 = = 1\n", &["line 2", "not TOML"]),
        ("iterate", "k1 = 1\n", &["capacity_mbps"]),
        ("grid", "set = \"pr0\"\nk2 = []\n", &["line 2", "'k2'"]),
        ("grid", "set = \"pr0\"\nk2 = { from = 9, to = 1 }\n", &["line 2", "from 9 down to 1"]),
        ("grid", "set = \"pr0\"\nk2 = [1, 2]\nx = \"k1\"\n", &["line 3", "'k1' does not vary"]),
    ] {
        fs::write(&path, text).unwrap();
        let output = model(&[command, path.to_str().unwrap(), "--json"]);
        assert_eq!(output.status.code(), Some(2), "{text}: {}", stderr(&output));
        assert!(output.stdout.is_empty());
        let message = stderr(&output);
        for part in [&["sabul: ", "p.toml: "], parts].concat() {
            assert!(message.contains(part), "{part}: {message}");
        }
    }
}

#[test]
fn an_invalid_parameter_file_is_refused_at_once() {
    let folder = tempdir().unwrap();
    let huge = folder.path().join("huge.toml");
    fs::write(&huge, "# nothing\n".repeat(1_000_000)).unwrap();
    let binary = folder.path().join("binary.toml");
    fs::write(&binary, b"set = \"pr0\"\n\xFF").unwrap();
    let (huge, binary) = (huge.to_str().unwrap(), binary.to_str().unwrap());
    for command in ["check", "iterate", "grid"] {
        for file in ["nope.toml", ".", huge, "/dev/zero", binary] {
            let begun = Instant::now();
            let output = model(&[command, file, "--json"]);
            expect_code(&output, 2);
            assert!(output.stdout.is_empty());
            assert!(stderr(&output).contains(file), "{}", stderr(&output));
            assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
        }
    }
}

#[test]
fn a_wrong_command_line_is_refused() {
    let pr0 = published("pr0.toml");
    let pr0 = pr0.to_str().unwrap();
    for (arguments, part) in [
        (&["check", "--grid", "1000001"][..], "0..=1000000"),
        (&["check", "--grid=-1"], "--grid"),
        (&["iterate"], "PARAMS.toml"),
        (&["iterate", pr0, "--rounds", "0"], "1..=1000000"),
        (&["grid"], "GRID.toml"),
    ] {
        let output = model(arguments);
        expect_code(&output, 2);
        assert!(output.stdout.is_empty());
        assert!(stderr(&output).contains(part), "{part}: {}", stderr(&output));
    }
}
