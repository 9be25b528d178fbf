//! `sabul card`: a small card from start to end, and rejected arguments.

use std::fs;
use std::path::PathBuf;

use serde_json::Value;
use tempfile::tempdir;

use crate::common::schema::expect;
use crate::common::{expect_code, files_below, json, run, sabul, stderr};

/// Arguments that make everything small: links of 3 Mb/s and regions of two seconds.
const SMALL: [&str; 4] = ["--seconds-per-flow", "2", "--set", "link.bottleneck.rate_mbps=3"];

/// Checks that a command ends at once with a reason.
#[track_caller]
fn refused(arguments: &[&str]) -> String {
    let output = run(sabul().arg("card").args(arguments));
    expect_code(&output, 2);
    assert!(output.stdout.is_empty(), "{}", String::from_utf8_lossy(&output.stdout));
    stderr(&output)
}

/// Returns every number below a value, with `None` for null.
fn numbers(value: &Value, found: &mut Vec<Option<f64>>) {
    match value {
        Value::Number(number) => found.push(number.as_f64()),
        Value::Null => found.push(None),
        Value::Array(values) => values.iter().for_each(|value| numbers(value, found)),
        Value::Object(fields) => fields.values().for_each(|value| numbers(value, found)),
        Value::Bool(_) | Value::String(_) => {}
    }
}

#[test]
fn a_small_card_has_every_test_as_numbers_page_and_scenarios() {
    let folder = tempdir().unwrap();
    let out = folder.path().join("card");
    let output = run(sabul()
        .args(["card", "newreno", "--json", "--quiet"])
        .args(SMALL)
        .arg("--out")
        .arg(&out));
    expect_code(&output, 0);
    assert_eq!(stderr(&output), "");
    let card = json(&output);
    expect(&card, "card");
    assert_eq!(
        (&card["schema"], &card["arm"], &card["cc"]),
        (&1.into(), &"sim".into(), &"newreno".into())
    );
    assert_eq!(card["settings"]["link.bottleneck.rate_mbps"], "3");
    assert!(card["commit"].is_string() && card["wall_s"].as_f64().unwrap() > 0.0);

    let rtts: Vec<f64> =
        card["regions"].as_array().unwrap().iter().map(|t| t["rtt_ms"].as_f64().unwrap()).collect();
    assert_eq!(rtts, [10.0, 80.0, 180.0]);
    for test in card["regions"].as_array().unwrap() {
        let regions = test["regions"].as_array().unwrap();
        let flows: Vec<u64> = regions.iter().map(|r| r["flows"].as_u64().unwrap()).collect();
        assert_eq!(flows, [1, 2, 3, 4, 3, 2, 1]);
        let mean = test["mean_bps"].as_f64().unwrap();
        assert!((1e6..3e6).contains(&mean), "{mean}");
        let [least, most] = ["jain_min", "jain_max"].map(|key| test[key].as_f64().unwrap());
        assert!(0.25 <= least && least <= most && most <= 1.0, "{least} {most}");
        assert!(test["rtt_ms_mean"].as_f64() >= test["rtt_ms"].as_f64());
    }
    let loss = card["loss"].as_array().unwrap();
    assert_eq!(loss.len(), 8);
    let [clean, lossy] = [0, 7].map(|at: usize| loss[at]["goodput_bps"].as_f64().unwrap());
    assert!(lossy < clean / 4.0, "{lossy} at 20 % loss, {clean} at none");
    let beside = card["beside"].as_array().unwrap();
    assert_eq!(beside.len(), 9);
    assert!(beside.iter().all(|cell| (0.0..=1.0).contains(&cell["cubic_share"].as_f64().unwrap())));
    let queue = &card["standing_queue"];
    let [mean, p99, full] =
        ["mean_ms", "p99_ms", "full_ms"].map(|key| queue[key].as_f64().unwrap());
    assert!(0.0 < mean && mean <= p99 && p99 <= full, "{queue}");
    let mice = &card["mice"];
    // Short flows alone exceed such a slow link, so the order of the two is random.
    for times in [&mice["beside"], &mice["alone"]] {
        let [median, p99] = ["median_s", "p99_s"].map(|key| times[key].as_f64().unwrap());
        assert!(0.0 < median && median <= p99, "{mice}");
    }
    assert!(card["rtt_fairness"]["ratio"].as_f64().unwrap() > 1.0);
    assert!(card.get("convergence_s").is_some());
    let mut all = Vec::new();
    numbers(&card, &mut all);
    // Cross traffic of 50 Mb/s fills a link of 3 Mb/s, so no share can be computed.
    assert!(all.len() > 200 && all.iter().filter(|number| number.is_none()).count() <= 2, "{card}");

    let files = files_below(&out);
    assert_eq!(files.len(), 29, "{files:?}");
    let manifest: Value =
        serde_json::from_slice(&fs::read(out.join("manifest.json")).unwrap()).unwrap();
    let mut listed: Vec<PathBuf> = manifest["files"]
        .as_array()
        .unwrap()
        .iter()
        .map(|name| PathBuf::from(name.as_str().unwrap()))
        .chain([PathBuf::from("manifest.json")])
        .collect();
    listed.sort();
    assert_eq!(listed, files);
    let kept: Value = serde_json::from_slice(&fs::read(out.join("card.json")).unwrap()).unwrap();
    assert_eq!(kept, card);
    let page = fs::read_to_string(out.join("report.html")).unwrap();
    for part in [
        "Report card of newreno",
        "Goodput at 180 ms",
        "Round trip while it runs",
        "Goodput over random loss",
        "Share left to one CUBIC flow",
        "Goodput as a second flow enters",
        "Queueing delay",
        "Completion of short transfers",
        "Goodput as cross traffic comes and goes",
        "regions-180ms.toml",
    ] {
        assert!(page.contains(part), "{part}");
    }

    // A scenario of the card reproduces its numbers on its own.
    let one = run(sabul().args(["sim", "run", "--json"]).arg(out.join("scenarios/loss-1pct.toml")));
    expect_code(&one, 0);
    assert_eq!(json(&one)["flows"][0]["goodput_bps"], loss[3]["goodput_bps"]);
}

#[test]
fn a_card_of_one_test_has_only_that_test_and_names_its_transport() {
    let folder = tempdir().unwrap();
    let out = folder.path().join("card");
    let output = run(sabul()
        .args(["card", "cubic", "--transport", "sabul", "--only", "loss-1pct", "--json", "--quiet"])
        .args(["--set", "link.bottleneck.rate_mbps=3", "--out"])
        .arg(&out));
    expect_code(&output, 0);
    let card = json(&output);
    assert_eq!((&card["transport"], &card["cc"]), (&"sabul".into(), &"cubic".into()));
    assert_eq!(card["loss"].as_array().unwrap().len(), 1);
    assert!(card["loss"][0]["goodput_bps"].as_f64().unwrap() > 1e5);
    assert_eq!((&card["regions"], &card["beside"]), (&Value::Array(vec![]), &Value::Array(vec![])));
    for test in ["rtt_fairness", "convergence_within_s", "standing_queue", "mice", "cross"] {
        assert_eq!(card[test], Value::Null, "{test}");
    }
    assert!(card.get("machine").is_none() && card.get("exams").is_none(), "those are the lab's");
    assert_eq!(files_below(&out).len(), 4);
    let text = fs::read_to_string(out.join("scenarios/loss-1pct.toml")).unwrap();
    assert!(text.contains("transport = \"sabul\"") && text.contains("cc = \"cubic\""), "{text}");
    let page = fs::read_to_string(out.join("report.html")).unwrap();
    assert!(page.contains("Goodput over random loss") && !page.contains("Standing queue"));
}

#[test]
fn invalid_requests_are_refused_before_anything_runs() {
    for (arguments, parts) in [
        (&["cubik"][..], &["unknown controller 'cubik'; nearest: cubic;", "sabul cc list"][..]),
        (&["sabul2003", "--cc-param", "syn_interval_ms=0"], &["syn_interval_ms", "'0'", " to "]),
        (&["sabul2003", "--cc-param", "speed=9"], &["speed"]),
        (&["fast", "--arm", "lab"], &["kernel", "'fast'", "--transport sabul"]),
        (
            &["cubic", "--arm", "lab", "--cc-param", "initial_window=20"],
            &["--cc-param", "--transport sabul"],
        ),
        (&["sabul2003", "--transport", "tcp"], &["--transport tcp", "sabul2003"]),
        (&["cubic", "--only", "speed"], &["--only speed", "regions-10ms", "cross"]),
        (&["cubic", "--set", "link.bottleneck.loss=0.1"], &["--set link.bottleneck.loss"]),
        (&["cubic", "--set", "link.other.rate_mbps=5"], &["other", "bottleneck"]),
        (&["cubic", "--seconds-per-flow", "0"], &["1 to 3600"]),
        (&["cubic", "--contract", "--draw", "5", "--only", "6"], &["--only 6", "1 to 5"]),
        (&["cubic", "--contract", "--draw", "5", "--arm", "lab"], &["--arm lab", "--arm sim"]),
    ] {
        let text = refused(arguments);
        for part in parts {
            assert!(text.contains(part), "{arguments:?}: {part}: {text}");
        }
    }
}

#[test]
fn an_unwritable_card_folder_is_reported_before_the_runs() {
    let folder = tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "x").unwrap();
    let output = run(sabul().args(["card", "cubic", "--out"]).arg(&file));
    expect_code(&output, 1);
    assert!(stderr(&output).contains("--out"), "{}", stderr(&output));
}

/// The cheapest cell of the contract.
#[test]
fn a_contract_of_one_cell_matches_its_schema() {
    let output = run(sabul()
        .args(["card", "reno", "--contract", "--json", "--quiet", "--only", "rate_mbps=100"])
        .args(["--only", "rtt_ms=1", "--only", "queue_bdp=0.5", "--only", "loss=0.001"]));
    expect_code(&output, 0);
    let contract = json(&output);
    expect(&contract, "card-contract");
    assert_eq!((&contract["cells_judged"], &contract["order"]), (&1.into(), &"cubic-first".into()));
    assert_eq!(contract["cells"][0]["rtt_ms"], 1.0);
    assert_eq!(contract["worst"], contract["cells"][0]);
}

/// Two of the smallest paths, one seed.
#[test]
fn a_draw_of_two_paths_matches_its_schema() {
    let output = run(sabul()
        .args([
            "card",
            "reno",
            "--contract",
            "--json",
            "--quiet",
            "--draw",
            "40",
            "--draw-seed",
            "7",
        ])
        .args(["--seeds", "1", "--only", "18,28"]));
    expect_code(&output, 0);
    let draw = json(&output);
    expect(&draw, "card-draw");
    assert_eq!((&draw["draw"], &draw["draw_seed"]), (&"7".into(), &7.into()));
    assert_eq!(draw["paths"].as_array().map(Vec::len), Some(2));
    let met = &draw["met"];
    let counts = ["yes", "open", "no"].map(|key| met[key].as_u64().unwrap());
    assert_eq!(counts.iter().sum::<u64>(), 2);
}
