//! `sabul perf` and `sabul demo` on loopback.

use std::fs;

use rustix::process::Signal;

use crate::common::schema::expect;
use crate::common::{Bench, Running, expect_code, files_below, json, run, sabul, stderr};

fn perf(bench: &Bench, arguments: &[&str]) -> std::process::Output {
    let mut command = sabul();
    command.current_dir(bench.path("")).args(["perf", &bench.address, "--ticket", "ticket"]);
    run(command.args(arguments))
}

#[test]
fn perf_counts_at_the_receiver_in_both_directions() {
    let bench = Bench::with(&["perf", "serve"]);
    for (role, reverse) in [("sender", &[][..]), ("receiver", &["-R"])] {
        let arguments = [&["-t", "1", "-i", "0.5", "--json"], reverse].concat();
        let output = perf(&bench, &arguments);
        expect_code(&output, 0);
        let document = json(&output);
        assert_eq!(document["schema"], 1);
        assert_eq!(document["role"], role);
        assert_eq!(document["streams"], 1);
        assert!(document["bytes"].as_u64().unwrap() > 1_000_000, "{document}");
        assert!(document["goodput_bps"].as_f64().unwrap() > 1e6, "{document}");
        let intervals = document["intervals"].as_array().unwrap();
        assert!(intervals.len() >= 2, "{document}");
        for interval in intervals {
            for key in ["t_s", "goodput_bps", "rtt_ms", "loss_rate", "gap_ns"] {
                assert!(interval[key].is_number(), "{key}");
            }
        }
        for key in [
            "mtu",
            "cpu_percent_sender",
            "cpu_percent_receiver",
            "mhz_per_mbps_sender",
            "mhz_per_mbps_receiver",
        ] {
            assert!(document.get(key).is_some(), "{key}");
        }
    }
}

#[test]
fn perf_sends_the_requested_bytes_on_every_stream() {
    let bench = Bench::with(&["perf", "serve"]);
    let output = perf(&bench, &["-n", "3M", "--streams", "2", "--json"]);
    expect_code(&output, 0);
    assert_eq!(json(&output)["bytes"], 2 * (3 << 20));
    assert_eq!(json(&output)["streams"], 2);
}

#[test]
fn perf_records_events_and_timers_of_its_end() {
    let bench = Bench::with(&["perf", "serve"]);
    expect_code(&perf(&bench, &["-t", "1", "--json", "--events", "why.jsonl"]), 0);
    let text = fs::read_to_string(bench.path("why.jsonl")).unwrap();
    let first = text.lines().next().unwrap();
    assert!(first.starts_with("{\"t_s\":") && first.contains("\"source\":\"transfer:"), "{first}");
    assert!(text.contains("\"event\":\"on_ack\""), "{text}");
    expect_code(&perf(&bench, &["-R", "-t", "1", "--json", "--events", "why.jsonl"]), 0);
    let text = fs::read_to_string(bench.path("why.jsonl")).unwrap();
    assert!(text.contains("\"event\":\"timer\",\"timer\":\"ack\",\"why\":\"due\""), "{text}");
}

fn doctor(bench: &Bench, arguments: &[&str]) -> std::process::Output {
    let mut command = sabul();
    command.current_dir(bench.path("")).args(["doctor", &bench.address, "--ticket", "ticket"]);
    run(command.args(["-t", "0.3"]).args(arguments))
}

#[test]
fn doctor_measures_both_directions_and_the_disk_of_a_file_server() {
    let bench = Bench::new();
    let output = doctor(&bench, &["--json"]);
    expect_code(&output, 0);
    let found = json(&output);
    expect(&found, "doctor");
    for way in ["upload", "download"] {
        assert!(found[way]["goodput_bps"].as_f64().unwrap() > 1e6, "{found}");
        assert_eq!(found[way]["carrier"], "udp");
    }
    assert!(found["upload"]["limiter"].is_string() && found["download"]["limiter"].is_null());
    assert!(found["write_bps"].as_f64().unwrap() > 1e6, "{found}");
    let slower = found["write_bps"]
        .as_f64()
        .unwrap()
        .min(found["download"]["goodput_bps"].as_f64().unwrap());
    assert!((found["download_limit"]["bps"].as_f64().unwrap() - slower).abs() < 1.0, "{found}");
    let text = String::from_utf8(doctor(&bench, &[]).stdout).unwrap();
    for line in ["connection", "upload", "download", "disk", "limit       downloads: "] {
        assert!(text.contains(line), "{text}");
    }
}

#[test]
fn doctor_reports_a_directory_and_a_server_that_it_cannot_reach() {
    let bench = Bench::new();
    let output = doctor(&bench, &["--json", "--directory", "missing"]);
    expect_code(&output, 0);
    let found = json(&output);
    assert!(found["write_bps"].is_null());
    assert!(found["advice"][0].as_str().unwrap().contains("'missing' was not measured"), "{found}");
    drop(bench.server);
    let mut gone = sabul();
    gone.current_dir(bench.folder.path()).args([
        "doctor",
        &bench.address,
        "--ticket",
        "ticket",
        "--json",
    ]);
    let output = run(&mut gone);
    expect_code(&output, 3);
    assert!(json(&output)["upload"].is_null() && stderr(&output).contains(&bench.address));
}

#[test]
fn perf_keeps_a_fixed_rate() {
    let bench = Bench::with(&["perf", "serve"]);
    let fixed = ["--cc", "fixed", "--rate", "20M", "--mtu", "1500"];
    let output = perf(&bench, &[&["-t", "2", "--json"], &fixed[..]].concat());
    expect_code(&output, 0);
    let rate = json(&output)["goodput_bps"].as_f64().unwrap();
    // Headers use a part of the 20 Mb/s, and start and end use a part of the 2 s.
    assert!((14e6..20e6).contains(&rate), "{rate}");
}

#[test]
fn perf_prints_a_line_for_each_interval() {
    let mut bench = Bench::with(&["perf", "serve", "--once"]);
    let output = perf(&bench, &["-t", "1", "-i", "0.3"]);
    expect_code(&output, 0);
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    assert!(text.contains("0.0-0.") && text.contains("at the receiver"), "{text}");
    assert_eq!(stderr(&output).contains("debug build"), cfg!(debug_assertions));
    expect_code(&bench.server.take().unwrap().finish(), 0);
}

#[test]
fn perf_without_an_address_or_a_ticket_is_a_usage_error() {
    expect_code(&run(sabul().args(["perf"])), 2);
    expect_code(&run(sabul().args(["perf", "127.0.0.1:1"])), 2);
    expect_code(&run(sabul().args(["perf", "127.0.0.1:1", "-t", "0"])), 2);
}

#[test]
fn a_perf_server_refuses_file_transfers() {
    let bench = Bench::with(&["perf", "serve"]);
    fs::write(bench.path("a"), "x").unwrap();
    let output = run(&mut bench.cp(["a", &bench.url("")]));
    assert!(!output.status.success());
    assert!(files_below(&bench.root("")).is_empty());
}

#[test]
fn the_demo_verifies_its_file_and_cleans_up() {
    let place = tempfile::tempdir().unwrap();
    let mut command = sabul();
    command
        .env("TMPDIR", place.path())
        .args(["demo", "--relay", "--path", "metro", "--size", "4MiB"]);
    let output = run(command.arg("--json"));
    expect_code(&output, 0);
    let document = json(&output);
    expect(&document, "demo");
    expect(&document["copy"], "cp");
    let alone = document["alone"].as_array().unwrap();
    assert!(alone.len() == 2 && alone.iter().all(|run| run["transport"] == "sabul"), "{document}");
    assert!(document["together"].is_null(), "{document}");
    assert_eq!(document["bytes"], 4 << 20);
    assert_eq!(document["verified"], true);
    assert!(document["goodput_bps"].as_f64().unwrap() > 1e6, "{document}");
    assert!(document["path_packets"].as_u64().unwrap() > 0, "{document}");
    #[cfg(target_os = "linux")]
    assert!(document["memory_peak_bytes_sender"].as_u64().unwrap() > 1 << 20, "{document}");
    assert_eq!(fs::read_dir(place.path()).unwrap().count(), 0, "the demo left something behind");
}

#[test]
fn an_unknown_demo_path_lists_the_known_paths() {
    let output = run(sabul().args(["demo", "--path", "moon"]));
    expect_code(&output, 2);
    assert!(stderr(&output).contains("1gbit-100ms"), "{}", stderr(&output));
}

#[test]
fn ctrl_c_ends_the_demo_and_removes_its_files() {
    let place = tempfile::tempdir().unwrap();
    let mut command = sabul();
    command.env("TMPDIR", place.path()).args([
        "demo",
        "--relay",
        "--path",
        "satellite",
        "--size",
        "64MiB",
    ]);
    let demo = Running::start(&mut command);
    crate::common::wait_for_part(place.path());
    demo.signal(Signal::INT);
    expect_code(&demo.finish(), 130);
    assert_eq!(fs::read_dir(place.path()).unwrap().count(), 0, "the demo left something behind");
}
