//! `sabul sim run`: scenario files in virtual time, their results, and errors in them.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::{TempDir, tempdir};

use crate::common::schema::expect;
use crate::common::{code, expect_code, files_below, json, run, sabul, stderr};

/// Two long and three short flows over 10 Mb/s, with random loss and times.
const SCENARIO: &str = r#"name = "three"
duration_s = 4
warmup_s = 1
sample_ms = 100

[[link]]
id = "bottleneck"
rate_mbps = 10
delay_ms = 5
queue_packets = 50
loss = 0.001

[[flow]]
id = "a"
cc = "sabul2003"
path = ["bottleneck"]
rtt_ms = 20
rate_mbps_initial = 5

[[flow]]
id = "b"
transport = "tcp"
cc = "newreno"
path = ["bottleneck"]
rtt_ms = 20

[[flow]]
id = "file"
transport = "tcp"
cc = "cubic"
path = ["bottleneck"]
rtt_ms = 20
start_s = 1.5
bytes = 50000
count = 3
spread_s = 0.5
"#;

/// The first example in the description of the format, as published.
const PUBLISHED: &str = r#"
name = "two-flows"
duration_s = 60.0
warmup_s = 10.0            # left out of the averages
sample_ms = 100
seed = 1

[[link]]
id = "bottleneck"
rate_mbps = 1000.0
delay_ms = 20.0            # one way
queue_packets = 1000       # or queue_bytes, or queue_bdp (of the largest flow RTT)
discipline = "droptail"    # droptail | red | codel | fq-codel | drr | ecn-threshold
loss = 0.0                 # independent, per packet, data direction; loss_back for the other
# reorder, duplicate, corrupt: probabilities; jitter_ms; outage = [{at_s, for_s}]
router = "none"            # none | jetmax | rcp

[[flow]]
id = "a"
transport = "sabul"        # sabul | tcp | udp-cbr
cc = "sabul2003"           # a registry name; for tcp in the lab: what the kernel offers
path = ["bottleneck"]      # links in order; the way back mirrors it
rtt_ms = 57.5              # base round trip, reached by adding access delay; or access_delay_ms
start_s = 0.0
stop_s = 60.0              # or bytes = N
rate_mbps_initial = 280.0
params = { syn_interval_ms = 200 }   # the controller's own, checked

[[flow]]
id = "mice"
transport = "tcp"
cc = "newreno"
path = ["bottleneck"]
rtt_ms = 57.5
arrivals = { process = "poisson", mean_interval_s = 0.2 }
size = { distribution = "pareto", shape = 1.4, mean_packets = 100 }
"#;

/// Results of a run.
const FILES: [&str; 7] = [
    "links.csv",
    "manifest.json",
    "plot.svg",
    "report.html",
    "results.json",
    "scenario.toml",
    "series.csv",
];

const SWEEP: [&str; 4] = ["--set", "link.bottleneck.rate_mbps=5,10", "--set", "seed=1..2"];

/// A directory with a scenario file.
struct ScenarioDir(TempDir);

impl ScenarioDir {
    fn new(scenario: impl AsRef<[u8]>) -> Self {
        let folder = tempdir().unwrap();
        fs::write(folder.path().join("s.toml"), scenario).unwrap();
        Self(folder)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    fn sim(&self, arguments: &[&str]) -> Output {
        let mut command = sabul();
        run(command.current_dir(self.0.path()).args(["sim", "run"]).args(arguments))
    }

    /// Runs `s.toml`, which must succeed. Returns the documents without `wall_s`.
    fn documents(&self, arguments: &[&str]) -> Vec<String> {
        let output = self.sim(&[&["s.toml", "--json"], arguments].concat());
        expect_code(&output, 0);
        String::from_utf8(output.stdout).unwrap().lines().map(without_wall).collect()
    }

    /// Checks that a command is rejected before it does anything.
    #[track_caller]
    fn refuses(&self, arguments: &[&str], parts: &[&str]) {
        let before = files_below(self.0.path());
        let begun = Instant::now();
        let output = self.sim(&[arguments, &["--json", "--out", "out"]].concat());
        assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
        assert_eq!(code(&output), 2, "{arguments:?}: {}", stderr(&output));
        assert!(output.stdout.is_empty(), "{}", String::from_utf8_lossy(&output.stdout));
        for part in parts {
            assert!(stderr(&output).contains(part), "{arguments:?}: {part}: {}", stderr(&output));
        }
        assert_eq!(files_below(self.0.path()), before, "{arguments:?}");
        assert!(!self.path("out").exists(), "{arguments:?}");
    }
}

/// Returns a document without its run time; all other bytes stay.
fn without_wall(line: &str) -> String {
    let (before, rest) = line.split_once("\"wall_s\":").expect("every document has wall_s");
    let (wall_s, after) = rest.split_once(',').expect("which is not last");
    assert!(wall_s.parse::<f64>().is_ok_and(|wall_s| wall_s >= 0.0), "{wall_s}");
    format!("{before}{after}")
}

fn keys(value: &Value) -> BTreeSet<&str> {
    value.as_object().unwrap().keys().map(String::as_str).collect()
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is not a number"))
}

/// Returns the names of all entries in a directory.
fn entries(folder: &Path) -> Vec<String> {
    let names = fs::read_dir(folder).unwrap();
    let mut names: Vec<String> =
        names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn json_has_the_promised_fields_on_one_line() {
    let output = ScenarioDir::new(SCENARIO).sim(&["s.toml", "--json"]);
    expect_code(&output, 0);
    assert_eq!(output.stdout.iter().filter(|byte| **byte == b'\n').count(), 1);
    assert_eq!(output.stdout.last(), Some(&b'\n'));
    let document = json(&output);
    expect(&document, "sim");
    let wanted = [
        "schema", "arm", "scenario", "seed", "commit", "wall_s", "flows", "links", "jain",
        "regions", "settings",
    ];
    assert_eq!(keys(&document), BTreeSet::from(wanted));
    assert_eq!((&document["schema"], &document["seed"]), (&1.into(), &1.into()));
    assert_eq!((&document["arm"], &document["scenario"]), (&"sim".into(), &"three".into()));
    assert!(!document["commit"].as_str().unwrap().is_empty());
    assert_eq!(document["settings"], Value::Object(serde_json::Map::new()));
    let flow = BTreeSet::from([
        "id",
        "transport",
        "cc",
        "goodput_bps",
        "throughput_bps",
        "packets_sent",
        "packets_lost",
        "loss_rate",
        "retransmissions",
        "rtt_ms",
        "stability",
        "completed_s",
        "started",
        "completed",
    ]);
    let flows = document["flows"].as_array().unwrap();
    assert_eq!(flows.len(), 3);
    for one in flows {
        let mut wanted = flow.clone();
        if one["id"] == "file" {
            wanted.insert("completion");
            assert_eq!(keys(&one["completion"]), BTreeSet::from(["median_s", "p99_s"]));
        }
        assert_eq!(keys(one), wanted);
        assert_eq!(keys(&one["rtt_ms"]), BTreeSet::from(["min", "mean", "p99"]));
    }
    let links = document["links"].as_array().unwrap();
    assert_eq!(links.len(), 1);
    let link = BTreeSet::from(["id", "utilisation", "drops", "marks", "queue_packets"]);
    assert_eq!(keys(&links[0]), link);
    assert_eq!(keys(&links[0]["queue_packets"]), BTreeSet::from(["mean", "p99", "max"]));
    let region = ["from_s", "to_s", "aggregate_bps", "stability", "jain", "flows"];
    for one in document["regions"].as_array().unwrap() {
        assert_eq!(keys(one), BTreeSet::from(region));
    }
}

#[test]
fn results_are_physically_possible_on_their_path() {
    let output = ScenarioDir::new(SCENARIO).sim(&["s.toml", "--json"]);
    let document = json(&output);
    let mut names = Vec::new();
    for flow in document["flows"].as_array().unwrap() {
        let id = flow["id"].as_str().unwrap();
        let (sent, lost) = (number(&flow["packets_sent"]), number(&flow["packets_lost"]));
        assert!(lost <= sent && number(&flow["retransmissions"]) < sent, "{flow}");
        assert!((number(&flow["loss_rate"]) - lost / sent).abs() < 1e-9, "{flow}");
        assert!((1e5..1e7).contains(&number(&flow["goodput_bps"])), "{flow}");
        assert!((1e5..1e7).contains(&number(&flow["throughput_bps"])), "{flow}");
        assert!(number(&flow["stability"]) >= 0.0);
        let [min, mean, p99] = ["min", "mean", "p99"].map(|key| number(&flow["rtt_ms"][key]));
        // The base RTT is 20 ms. 51 packets of 1500 bytes at 10 Mb/s add at most 61.2 ms one way,
        // and the host's timers delay acknowledgements.
        assert!(20.0 <= min && min <= mean && mean <= p99 && p99 < 250.0, "{flow}");
        if id == "file" {
            assert_eq!((&flow["started"], &flow["completed"]), (&3.into(), &3.into()), "{flow}");
            // 50 kB take 40 ms at 10 Mb/s; there is room until 4 s.
            let mean = number(&flow["completed_s"]);
            let [median, p99] = ["median_s", "p99_s"].map(|key| number(&flow["completion"][key]));
            assert!(0.04 < mean && mean <= p99 && median <= p99 && p99 < 2.5, "{flow}");
        } else {
            assert_eq!(flow["started"], 1);
            assert_eq!((&flow["completed"], &flow["completed_s"]), (&0.into(), &Value::Null));
        }
        names.push([id, flow["transport"].as_str().unwrap(), flow["cc"].as_str().unwrap()]);
    }
    let expected = [["a", "sabul", "sabul2003"], ["b", "tcp", "newreno"], ["file", "tcp", "cubic"]];
    assert_eq!(names, expected);
    let link = &document["links"][0];
    assert_eq!(link["id"], "bottleneck");
    assert!((0.5..1.01).contains(&number(&link["utilisation"])), "{link}");
    assert!(link["drops"].as_u64().unwrap() > 0 && link["marks"] == 0, "{link}");
    let [mean, p99, max] = ["mean", "p99", "max"].map(|key| number(&link["queue_packets"][key]));
    assert!(0.0 < mean && mean <= max && p99 <= max && max <= 50.0, "{link}");
    // Jain's index of two endless flows: 0.5 if one flow takes everything, 1 for equal shares.
    assert!((0.5..=1.0).contains(&number(&document["jain"])));
    let regions = document["regions"].as_array().unwrap();
    assert_eq!(regions[0]["from_s"], 0.0);
    assert_eq!(regions.last().unwrap()["to_s"], 4.0);
    for region in regions {
        assert!(number(&region["from_s"]) < number(&region["to_s"]));
        let parts: f64 = region["flows"].as_object().unwrap().values().map(number).sum();
        assert!((parts / number(&region["aggregate_bps"]) - 1.0).abs() < 1e-9, "{region}");
        assert!(parts < 1e7, "{region}");
    }
}

#[test]
fn the_published_example_runs() {
    let dir = ScenarioDir::new(PUBLISHED);
    let output = dir.sim(&[
        "s.toml",
        "--json",
        "--set",
        "duration_s=3",
        "--set",
        "warmup_s=1",
        "--set",
        "flow.a.stop_s=3",
    ]);
    expect_code(&output, 0);
    let document = json(&output);
    assert_eq!((&document["scenario"], &document["seed"]), (&"two-flows".into(), &1.into()));
    assert_eq!(document["settings"]["flow.a.stop_s"], "3");
    let [a, mice] = [0, 1].map(|n| &document["flows"][n]);
    assert_eq!(
        [&a["id"], &a["cc"], &mice["id"], &mice["cc"]],
        ["a", "sabul2003", "mice", "newreno"]
    );
    assert!(number(&a["goodput_bps"]) > 2.8e8, "not below its first rate on an empty path: {a}");
    // One flow per 0.2 s on average, for 3 s.
    assert!((4..40).contains(&mice["started"].as_u64().unwrap()), "{mice}");
}

#[test]
fn the_seed_determines_the_output_bytes() {
    let dir = ScenarioDir::new(SCENARIO);
    let first = dir.documents(&[]);
    assert_eq!(first, dir.documents(&[]));
    assert_eq!(first, dir.documents(&["-q", "--threads", "2"]));
    let settings = |documents: &[String]| {
        let (results, settings) = documents[0].rsplit_once(",\"settings\":").unwrap();
        (results.to_owned(), settings.to_owned())
    };
    let explicit = settings(&dir.documents(&["--seed", "1"]));
    assert_eq!(explicit, (settings(&first).0, "{\"seed\":\"1\"}}".to_owned()));
    let other = dir.documents(&["--seed", "2"]);
    assert_eq!(serde_json::from_str::<Value>(&other[0]).unwrap()["seed"], 2);
    assert_ne!(settings(&other).0.replace("\"seed\":2", "\"seed\":1"), settings(&first).0);
}

#[test]
fn the_number_of_threads_changes_nothing() {
    let dir = ScenarioDir::new(SCENARIO);
    let sweep = |more: &[&str]| dir.documents(&[&SWEEP, more].concat());
    let one = sweep(&["--threads", "1", "--out", "one"]);
    assert_eq!(one.len(), 4);
    assert_eq!(one, sweep(&["--threads", "2", "--out", "two"]));
    assert_eq!(one, sweep(&["-q"]));
    let files = files_below(&dir.path("one"));
    assert_eq!(files, files_below(&dir.path("two")));
    for file in files {
        let [a, b] = ["one", "two"].map(|folder| dir.text(&format!("{folder}/{}", file.display())));
        if file.ends_with("results.json") {
            assert_eq!(without_wall(&a), without_wall(&b), "{}", file.display());
        } else {
            assert_eq!(a, b, "{}", file.display());
        }
    }
}

#[test]
fn out_writes_every_documented_file() {
    let dir = ScenarioDir::new(SCENARIO);
    let set = ["--set", "flow.b.cc=cubic", "--seed", "7"];
    let output = dir.sim(&[&["s.toml", "--json", "--out", "deep/out"], &set[..]].concat());
    expect_code(&output, 0);
    assert_eq!(entries(&dir.path("deep/out")), FILES);

    let printed = String::from_utf8(output.stdout).unwrap();
    assert_eq!(dir.text("deep/out/results.json"), printed.trim_end());

    let manifest: Value = serde_json::from_str(&dir.text("deep/out/manifest.json")).unwrap();
    let mut listed: Vec<&str> =
        manifest["files"].as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect();
    listed.sort_unstable();
    let others: Vec<&str> = FILES.into_iter().filter(|name| *name != "manifest.json").collect();
    assert_eq!(listed, others);
    assert_eq!(manifest["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!((&manifest["arm"], &manifest["seed"]), (&"sim".into(), &7.into()));
    assert_eq!(manifest["settings"]["flow.b.cc"], "cubic");
    assert_eq!(manifest["scenario"], dir.text("deep/out/scenario.toml"));

    // The scenario contains every setting and reproduces the results.
    let again = dir.sim(&["deep/out/scenario.toml", "--json"]);
    expect_code(&again, 0);
    let results =
        |line: &str| without_wall(line).rsplit_once(",\"settings\":").unwrap().0.to_owned();
    assert_eq!(results(&String::from_utf8(again.stdout).unwrap()), results(&printed));

    // Repeats the run over existing results.
    expect_code(&dir.sim(&["s.toml", "--json", "--out", "deep/out"]), 0);
    assert_eq!(entries(&dir.path("deep/out")), FILES);
}

/// Checks that a directory with a manifest holds all results, and those of one run.
#[test]
fn a_run_that_cannot_be_written_removes_the_previous_manifest() {
    let dir = ScenarioDir::new(SCENARIO);
    expect_code(&dir.sim(&["s.toml", "-q", "--out", "out"]), 0);
    let out = dir.0.path().join("out");
    assert!(out.join("manifest.json").is_file());
    fs::remove_file(out.join("plot.svg")).unwrap();
    fs::create_dir(out.join("plot.svg")).unwrap();
    let output = dir.sim(&["s.toml", "-q", "--out", "out"]);
    expect_code(&output, 1);
    assert!(stderr(&output).contains("out"), "{}", stderr(&output));
    assert!(!out.join("manifest.json").exists());
}

#[test]
fn series_have_their_columns_and_add_up_to_the_averages() {
    let dir = ScenarioDir::new(SCENARIO);
    let document = json(&dir.sim(&["s.toml", "--json", "--out", "out"]));
    let series = dir.text("out/series.csv");
    let mut lines = series.lines();
    let header = "t_s,flow,goodput_bps,rate_bps,gap_ns,rtt_ms,in_flight_pkts,loss_rate,cwnd_pkts,\
                  delivery_bps";
    assert_eq!(lines.next(), Some(header));
    let rows: Vec<Vec<&str>> = lines.map(|line| line.split(',').collect()).collect();
    assert_eq!(rows.len(), 40 * 3, "4 s of samples of 100 ms for three flows");
    for (n, row) in rows.iter().enumerate() {
        assert_eq!(row.len(), 10, "{row:?}");
        let t_s = (n / 3 + 1) as f64 * 0.1;
        assert!((row[0].parse::<f64>().unwrap() - t_s).abs() < 1e-9, "{row:?}");
        assert_eq!(row[1], ["a", "b", "file"][n % 3]);
        assert!(row[2..].iter().all(|cell| cell.is_empty() || cell.parse::<f64>().unwrap() >= 0.0));
    }
    let warm = |row: &&Vec<&str>| row[0].parse::<f64>().unwrap() > 1.0;
    let of_a: Vec<f64> = rows
        .iter()
        .filter(warm)
        .filter(|row| row[1] == "a")
        .map(|row| row[2].parse().unwrap())
        .collect();
    let mean = of_a.iter().sum::<f64>() / of_a.len() as f64;
    let goodput = number(&document["flows"][0]["goodput_bps"]);
    assert!((mean / goodput - 1.0).abs() < 1e-6, "{mean} in the series, {goodput} on average");

    let links = dir.text("out/links.csv");
    let mut lines = links.lines();
    assert_eq!(lines.next(), Some("t_s,link,queue_pkts,drops,utilisation"));
    let rows: Vec<Vec<&str>> = lines.map(|line| line.split(',').collect()).collect();
    assert_eq!(rows.len(), 40);
    assert!(rows.iter().all(|row| row.len() == 5 && row[1] == "bottleneck"));
    let drops: u64 = rows.iter().filter(warm).map(|row| row[3].parse::<u64>().unwrap()).sum();
    assert_eq!(document["links"][0]["drops"], drops);
}

#[test]
fn reports_load_no_external_resources() {
    let dir = ScenarioDir::new(SCENARIO);
    expect_code(&dir.sim(&[&["s.toml", "-q", "--out", "out"], &SWEEP[..]].concat()), 0);
    let one = dir.text("out/run-0001/report.html");
    for page in [&one, &dir.text("out/report.html"), &dir.text("out/run-0001/plot.svg")] {
        for (at, _) in page.match_indices("http") {
            let rest = &page[at..];
            // The last is the comment that names the library.
            let known =
                ["http://www.w3.org/2000/svg", "http-equiv", "https://github.com/leeoniya/uPlot"];
            assert!(
                known.iter().any(|known| rest.starts_with(known)),
                "{}",
                &rest[..60.min(rest.len())]
            );
        }
        for (attribute, allowed) in [("src=\"", "data:"), ("href=\"", "#"), ("@import", "\n")] {
            for (at, _) in page.match_indices(attribute) {
                let value = &page[at + attribute.len()..];
                assert!(value.starts_with(allowed), "{}", &value[..60.min(value.len())]);
            }
        }
    }
    assert!(one.starts_with("<!DOCTYPE html>") && one.trim_end().ends_with("</html>"));
    assert!(one.contains("default-src 'none'"), "the page forbids itself to load anything");
    for part in ["Goodput", "sabul2003", "newreno", "bottleneck", "duration_s = 4"] {
        assert!(one.contains(part), "{part}");
    }
    let plot = dir.text("out/run-0001/plot.svg");
    assert!(plot.starts_with("<svg ") && plot.trim_end().ends_with("</svg>"));
}

#[test]
fn a_sweep_has_a_folder_for_each_run_and_a_page_of_all() {
    let dir = ScenarioDir::new(SCENARIO);
    let output = dir.sim(&[&["s.toml", "--json", "--out", "out"], &SWEEP[..]].concat());
    expect_code(&output, 0);
    assert_eq!(
        entries(&dir.path("out")),
        ["report.html", "run-0001", "run-0002", "run-0003", "run-0004", "runs.csv"]
    );
    let printed = String::from_utf8(output.stdout).unwrap();
    let settings = [("5", "1"), ("5", "2"), ("10", "1"), ("10", "2")];
    assert_eq!(printed.lines().count(), settings.len());
    for (n, (line, (rate, seed))) in printed.lines().zip(settings).enumerate() {
        let folder = format!("out/run-{:04}", n + 1);
        assert_eq!(entries(&dir.path(&folder)), FILES);
        assert_eq!(dir.text(&format!("{folder}/results.json")), line);
        let document: Value = serde_json::from_str(line).unwrap();
        assert_eq!(document["settings"]["link.bottleneck.rate_mbps"], rate);
        assert_eq!(document["settings"]["seed"], seed);
        assert_eq!(document["seed"].to_string(), seed);
    }
    let table = dir.text("out/runs.csv");
    let mut lines = table.lines();
    let head = "link.bottleneck.rate_mbps,seed,flow,goodput (Mb/s),lost (%),RTT mean (ms),";
    assert!(lines.next().is_some_and(|line| line.starts_with(head)), "{table}");
    let rows: Vec<&str> = lines.collect();
    assert_eq!(rows.len(), 4 * 3, "a row for each flow of each run");
    assert!(rows[0].starts_with("5,1,a,") && rows[11].starts_with("10,2,file,"), "{table}");
    let goodput: f64 = rows[0].split(',').nth(3).unwrap().parse().unwrap();
    let first: Value = serde_json::from_str(printed.lines().next().unwrap()).unwrap();
    assert!((goodput * 1e6 / number(&first["flows"][0]["goodput_bps"]) - 1.0).abs() < 1e-9);
    let page = dir.text("out/report.html");
    assert!(page.contains("4 runs") && page.contains("run-0001"));
}

#[test]
fn tables_go_to_stdout_and_progress_to_stderr() {
    let dir = ScenarioDir::new(SCENARIO);
    let output = dir.sim(&["s.toml", "--out", "out"]);
    expect_code(&output, 0);
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    for part in ["three: 4 s simulated", "seed 1", "sabul2003", "bottleneck", "Jain's index 0."] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(stderr(&output).contains("report.html"), "{}", stderr(&output));

    let sweep = [&["s.toml"], &SWEEP[..]].concat();
    let output = dir.sim(&sweep);
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    assert!(text.contains("three [link.bottleneck.rate_mbps=10, seed=2]"), "{text}");
    assert!(stderr(&output).contains("4 of 4 runs done"), "{}", stderr(&output));
    assert!(!text.contains("runs done"));
    let output = dir.sim(&[&sweep[..], &["-q", "--out", "out"]].concat());
    assert_eq!(stderr(&output), "");
}

#[test]
fn a_closed_output_pipe_is_not_an_error() {
    let dir = ScenarioDir::new(SCENARIO);
    for json in [&["--json"][..], &[]] {
        let mut command = sabul();
        command.current_dir(dir.0.path()).args(["sim", "run", "s.toml", "-q", "--out", "out"]);
        command.args(SWEEP).args(json).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        expect_code(&output, 0);
        assert_eq!(stderr(&output), "");
    }
    assert!(dir.path("out/run-0004/manifest.json").exists());
}

#[test]
fn an_invalid_scenario_is_refused_with_line_key_and_allowed_values() {
    let flow_a = "id = \"a\"\n";
    for (from, to, line, parts) in [
        (
            "rate_mbps = 10\n",
            "rate_mpbs = 10\n",
            8,
            &["'rate_mpbs'", "did you mean 'rate_mbps'"][..],
        ),
        (
            "rate_mbps = 10\n",
            "rate_mbps = -5\n",
            8,
            &["link \"bottleneck\", key rate_mbps: -5", "from 0.001 to 1000000"],
        ),
        ("loss = 0.001", "loss = 1.5", 11, &["key loss: 1.5", "0", "1"]),
        (
            "path = [\"bottleneck\"]\nrtt_ms = 20\nrate",
            "path = [\"botleneck\"]\nrtt_ms = 20\nrate",
            16,
            &["flow \"a\", key path", "botleneck", "bottleneck"],
        ),
        (
            flow_a,
            "id = \"a\"\nstart_s = 9\n",
            15,
            &["flow \"a\", key start_s: ", "never starts", "duration_s, 4"],
        ),
        ("loss = 0.001", "queue_bytes = 9000", 11, &["queue_bytes", "queue_packets"]),
        (flow_a, "id = \"a\"\naccess_delay_ms = 1\n", 15, &["access_delay_ms", "rtt_ms"]),
        (flow_a, "id = \"a\"\nparams = { sin = 1 }\n", 15, &["sabul2003", "sin"]),
        ("loss = 0.001", "router = \"zcp\"", 11, &["zcp", "none", "jetmax"]),
        ("loss = 0.001", "loss = = 1", 11, &[]),
    ] {
        let text = SCENARIO.replacen(from, to, 1);
        assert_ne!(text, SCENARIO, "{from:?} is there");
        let place = format!("sabul: s.toml:{line}: ");
        ScenarioDir::new(text).refuses(&["s.toml"], &[&[place.as_str()], parts].concat());
    }
    ScenarioDir::new("").refuses(&["s.toml"], &["sabul: s.toml: ", "duration_s"]);
    ScenarioDir::new(b"name = \"a\"\n\xFF").refuses(&["s.toml"], &["sabul: s.toml:2: ", "UTF-8"]);
}

#[test]
fn an_invalid_scenario_file_is_refused_at_once() {
    let dir = ScenarioDir::new("# nothing\n".repeat(1_000_000));
    dir.refuses(&["s.toml"], &["sabul: s.toml: is 10000000 bytes", "at most 1048576"]);
    dir.refuses(&["nope.toml"], &["sabul: nope.toml: cannot be read"]);
    dir.refuses(&["."], &["cannot be read"]);
    dir.refuses(&["/dev/zero"], &["sabul: /dev/zero: ", "at most 1048576"]);
}

#[test]
fn an_invalid_setting_is_refused_with_its_text() {
    let dir = ScenarioDir::new(SCENARIO);
    for (set, parts) in [
        ("link.bottleneck.rate_mpbs=5", &["did you mean 'rate_mbps'"][..]),
        ("link.nope.rate_mbps=5", &["nope", "bottleneck"]),
        ("duration=5", &["did you mean 'duration_s'"]),
        ("flow.*.rtt_ms=-1", &["rtt_ms"]),
        ("flow.b.cc=cubik", &["cubik", "cubic"]),
        ("nonsense", &["KEY"]),
        ("seed=1..20000", &["10000"]),
        // The second run of the sweep is invalid, so the first does not start either.
        ("link.bottleneck.rate_mbps=10,-5", &["-5", "from 0.001 to 1000000"]),
    ] {
        dir.refuses(&["s.toml", "--set", set], &[&["--set", set], parts].concat());
    }
    dir.refuses(&["s.toml", "--seed=-1"], &["--seed"]);
    dir.refuses(&["s.toml", "--seed=9223372036854775808"], &["seed"]);
}

#[test]
fn a_wrong_command_line_is_refused() {
    let dir = ScenarioDir::new(SCENARIO);
    for threads in ["0", "-1", "1025", "x", ""] {
        dir.refuses(&["s.toml", &format!("--threads={threads}")], &["--threads", "1 to 1024"]);
    }
    dir.refuses(&[], &["SCENARIO.toml"]);
    dir.refuses(&["s.toml", "s.toml"], &["s.toml"]);
    dir.refuses(&["s.toml", "--sed", "1"], &["--sed", "--seed"]);
}

#[test]
fn an_out_that_cannot_be_written_is_named() {
    let dir = ScenarioDir::new(SCENARIO);
    fs::write(dir.path("taken"), "mine").unwrap();
    fs::create_dir_all(dir.path("half/series.csv")).unwrap();
    for out in ["taken", "taken/below", "half", "/proc/nope"] {
        let output = dir.sim(&["s.toml", "--json", "--out", out]);
        expect_code(&output, 1);
        assert!(output.stdout.is_empty());
        let wanted = format!("sabul: cannot write to {out}: ");
        assert!(stderr(&output).starts_with(&wanted), "{}", stderr(&output));
        assert!(stderr(&output).contains("--out"));
    }
    assert_eq!(dir.text("taken"), "mine");
    assert!(!dir.path("half/manifest.json").exists(), "a manifest says that all is there");
}

#[test]
fn events_are_written_as_json_lines_or_qlog_by_file_name() {
    let dir = ScenarioDir::new(SCENARIO);
    expect_code(&dir.sim(&["s.toml", "--quiet", "--events", "why.jsonl"]), 0);
    let lines = dir.text("why.jsonl");
    for line in lines.lines() {
        let event: Value = serde_json::from_str(line).unwrap();
        assert!(event["t_s"].is_number() && event["source"].is_string(), "{line}");
    }
    for what in ["\"event\":\"drop\"", "\"event\":\"timer\"", "\"event\":\"on_ack\""] {
        assert!(lines.contains(what), "{what}");
    }
    expect_code(&dir.sim(&["s.toml", "--quiet", "--events", "why.qlog"]), 0);
    let text = dir.text("why.qlog");
    let records: Vec<Value> =
        text.split('\u{1e}').skip(1).map(|record| serde_json::from_str(record).unwrap()).collect();
    assert_eq!(records[0]["qlog_format"], "JSON-SEQ");
    let names: BTreeSet<&str> =
        records[1..].iter().map(|record| record["name"].as_str().unwrap()).collect();
    let (metrics, state) = ("recovery:metrics_updated", "recovery:congestion_state_updated");
    assert!(names.contains(metrics) && names.contains(state), "{names:?}");
    assert!(records.len() > lines.lines().count(), "a head, and nothing left out");
    expect_code(&dir.sim(&["s.toml", "--events", "why.jsonl", "--set", "seed=1,2"]), 2);
}
