//! JSON output of the commands, validated against the printed schemas.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::fs;
use std::process::Output;

use rustix::process::Signal;
use serde_json::Value;

use crate::common::schema::{expect, schema};
use crate::common::{Bench, content, expect_code, json, run, sabul, stderr, wait_for};

fn lines(output: &Output) -> Vec<Value> {
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    let parse = |line: &str| {
        let Keys(mut keys) = serde_json::from_str(line).unwrap();
        let count = keys.len();
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), count, "a field is there twice: {line}");
        serde_json::from_str(line).unwrap()
    };
    text.lines().map(parse).collect()
}

/// Names of all fields of an object. Includes repeated names, which a `Value` hides.
struct Keys(Vec<String>);

impl<'de> serde::Deserialize<'de> for Keys {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields;
        impl<'de> serde::de::Visitor<'de> for Fields {
            type Value = Keys;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: serde::de::MapAccess<'de>>(self, mut map: A) -> Result<Keys, A::Error> {
                let mut keys = Vec::new();
                while let Some((key, _)) = map.next_entry::<String, serde::de::IgnoredAny>()? {
                    keys.push(key);
                }
                Ok(Keys(keys))
            }
        }
        deserializer.deserialize_map(Fields)
    }
}

fn events(lines: &[Value]) -> Vec<&str> {
    lines.iter().map(|line| line["event"].as_str().unwrap()).collect()
}

#[test]
fn all_schema_names_are_listed_and_unknown_names_refused() {
    let output = run(sabul().arg("schema"));
    expect_code(&output, 0);
    let text = String::from_utf8(output.stdout).unwrap();
    for line in text.lines() {
        let name = line.split_whitespace().next().unwrap();
        assert!(schema(name)["title"].as_str().unwrap().contains("sabul "));
    }
    let wrong = run(sabul().args(["schema", "nothing"]));
    expect_code(&wrong, 2);
    assert!(stderr(&wrong).contains("cp-lines"), "{}", stderr(&wrong));
}

#[test]
fn json_documents_match_their_schemas() {
    let bench = Bench::new();
    fs::write(bench.path("a"), content(1, 100_000)).unwrap();
    let good = run(&mut bench.cp(["--json", "a", &bench.url("")]));
    expect(&json(&good), "cp");
    assert_eq!(json(&good)["exit"], 0);
    let bad = run(&mut bench.cp(["--json", "missing", "a", &bench.url("b/")]));
    expect(&json(&bad), "cp");
    assert_eq!(
        (&json(&bad)["exit"], &json(&bad)["errors"][0]["code"]),
        (&1.into(), &"not-found".into())
    );
    let refused = run(&mut bench.cp(["--json", "--cc", "nope", "a", &bench.url("")]));
    expect(&json(&refused), "cp");
    assert_eq!(json(&refused)["exit"], 2);
    let mut perf = sabul();
    perf.args(["perf", &bench.address, "-n", "1M", "--json"]).current_dir(bench.folder.path());
    let perf = run(perf.env("SABUL_TICKET_FILE", "ticket"));
    expect_code(&perf, 0);
    expect(&json(&perf), "perf");
}

#[test]
fn a_copy_reports_its_events_as_json_lines() {
    let bench = Bench::new();
    fs::write(bench.path("a"), content(1, 100_000)).unwrap();
    let there = run(&mut bench.cp(["--json-lines", "missing", "a", &bench.url("to/")]));
    expect_code(&there, 1);
    let lines = lines(&there);
    lines.iter().for_each(|line| expect(line, "cp-lines"));
    assert_eq!(events(&lines), ["started", "failed", "done"], "{lines:#?}");
    assert_eq!((&lines[1]["path"], &lines[1]["code"]), (&"missing".into(), &"not-found".into()));
    assert_eq!((&lines[2]["files"], &lines[2]["exit"]), (&1.into(), &1.into()));
    // Standard output cannot carry both.
    let both = run(&mut bench.cp(["--json-lines", &bench.url("to/a"), "-"]));
    expect_code(&both, 2);
}

#[test]
fn a_slow_copy_reports_progress_as_json_lines() {
    let bench = Bench::new();
    fs::write(bench.path("a"), content(2, 6_000_000)).unwrap();
    let relay = bench.relay(crate::common::slow_link(), false);
    let url = format!("sabul://{}/", relay.addr());
    let lines = lines(&run(&mut bench.cp(["--json-lines", "a", &url])));
    lines.iter().for_each(|line| expect(line, "cp-lines"));
    let progress: Vec<_> = lines.iter().filter(|line| line["event"] == "progress").collect();
    assert!(!progress.is_empty(), "{lines:#?}");
    for line in progress {
        assert_eq!(line["bytes_total"], 6_000_000);
        assert_eq!(line["is_total_certain"], true);
        assert!(line["durable_bytes"].as_u64() <= line["bytes"].as_u64(), "{line:#}");
    }
    assert_eq!(lines.last().unwrap()["durable_bytes"], 6_000_000);
}

#[test]
fn retries_are_reported_as_json_lines() {
    let bench = Bench::new();
    fs::write(bench.path("a"), "x").unwrap();
    // No server listens there, so the copy is retried until the time limit.
    let gone = "sabul://127.0.0.1:1/";
    let output = run(&mut bench.cp(["--json-lines", "--retry", "1s", "a", gone]));
    expect_code(&output, 3);
    let lines = lines(&output);
    lines.iter().for_each(|line| expect(line, "cp-lines"));
    assert_eq!(lines[0]["event"], "reconnect", "{lines:#?}");
    assert_eq!(lines[0]["error"]["code"], "unreachable");
    assert_eq!(lines.last().unwrap()["exit"], 3);
}

#[test]
fn perf_and_serve_report_events_as_json_lines() {
    let mut bench = Bench::with(&["serve", "--root", "root", "--json-lines"]);
    let mut perf = sabul();
    perf.args(["perf", &bench.address, "-t", "1", "-i", "0.2", "--json-lines"]);
    perf.current_dir(bench.folder.path()).env("SABUL_TICKET_FILE", "ticket");
    let output = run(&mut perf);
    expect_code(&output, 0);
    let reported = lines(&output);
    reported.iter().for_each(|line| expect(line, "perf-lines"));
    assert_eq!(reported[0]["event"], "started");
    assert!(events(&reported).contains(&"interval"), "{reported:#?}");
    assert_eq!(reported.last().unwrap()["event"], "done");
    fs::write(bench.path("a"), "x").unwrap();
    expect_code(&run(&mut bench.cp(["a", &bench.url("in/")])), 0);
    expect_code(&run(&mut bench.cp(["-r", &bench.url("nothing"), "."])), 1);
    let server = bench.server.take().unwrap();
    server.signal(Signal::TERM);
    let reported = lines(&server.finish());
    reported.iter().for_each(|line| expect(line, "serve-lines"));
    assert_eq!(
        (&reported[0]["event"], &reported.last().unwrap()["event"]),
        (&"started".into(), &"done".into())
    );
    let transfers: Vec<_> = reported.iter().filter(|line| line["event"] == "transfer").collect();
    assert_eq!(transfers.len(), 3, "{reported:#?}");
    assert_eq!(transfers[0]["is_measurement"], true);
    assert_eq!(transfers[0]["purpose"], "measurement");
    assert_eq!(
        (&transfers[1]["direction"], &transfers[1]["names"][0]),
        (&"received".into(), &"in/".into())
    );
    assert_eq!((&transfers[2]["direction"], &transfers[2]["failed"]), (&"sent".into(), &1.into()));
}

#[test]
fn a_server_logs_peer_time_file_and_direction() {
    let mut bench = Bench::new();
    fs::write(bench.path("a"), content(3, 1000)).unwrap();
    expect_code(&run(&mut bench.cp(["a", &bench.url("in/")])), 0);
    expect_code(&run(&mut bench.cp([&bench.url("in/a"), "b"])), 0);
    wait_for("the second copy", || bench.path("b").exists());
    let server = bench.server.take().unwrap();
    server.signal(Signal::TERM);
    let said = stderr(&server.finish());
    for part in [" received into 'in/': 1000 B in 1 file, ", " sent 'in/a': 1000 B in 1 file, "] {
        let line = said.lines().find(|line| line.contains(part));
        let line = line.unwrap_or_else(|| panic!("{part}: {said}"));
        assert!(line.starts_with("20") && line.contains("Z 127.0.0.1:"), "{line}");
    }
}

#[test]
fn a_refused_removal_is_logged_and_its_session_ends_normally() {
    let mut bench = Bench::new();
    fs::write(bench.root("a"), "x").unwrap();
    expect_code(&run(bench.sabul().args(["rm", &bench.url("a")])), 1);
    let server = bench.server.take().unwrap();
    server.signal(Signal::TERM);
    let said = stderr(&server.finish());
    assert!(said.contains(" removing 'a' was refused: the listener lets nothing be"), "{said}");
    assert!(said.contains(" session over: 0 transfers, 1 more failed"), "{said}");
    assert!(!said.contains("receiving into") && !said.contains("session failed"), "{said}");
}
