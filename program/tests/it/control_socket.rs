//! `sabul ps` and `sabul set`: observing and changing running commands.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt as _;
use std::process::Output;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;

use crate::common::schema::expect;
use crate::common::{
    Bench, Running, TIMEOUT, content, expect_code, json, run, sabul_apart, stderr, wait_for,
};

/// Takes 13 minutes at [`SLOW`], and almost no time at full speed.
const BYTES: usize = 10_000_000;
const SLOW: &str = "100k";

fn at(bench: &Bench, arguments: &[&str]) -> Output {
    run(bench.sabul().args(arguments))
}

/// Returns the running commands of `ps --json`.
fn listed(bench: &Bench) -> Vec<Value> {
    let output = at(bench, &["ps", "--json"]);
    expect_code(&output, 0);
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Waits until the process with this id has a transfer, and returns its state.
#[track_caller]
fn transferring(bench: &Bench, pid: u32) -> Value {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        let all = listed(bench);
        let found = all.iter().find(|job| job["pid"] == pid && job["transfers"] == 1);
        if let Some(job) = found.filter(|job| job["bytes_total"] == BYTES) {
            return job.clone();
        }
        assert!(Instant::now() < deadline, "nothing runs there: {all:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_running_copy_is_listed_and_follows_changed_limits() {
    let bench = Bench::new();
    fs::write(bench.path("a"), content(1, BYTES)).unwrap();
    let copy = Running::start(&mut bench.cp(["-q", "--bwlimit", SLOW, "a", &bench.url("")]));
    let job = transferring(&bench, copy.id());
    expect(&job, "ps");
    assert_eq!((&job["command"], &job["policy"]), (&"cp".into(), &"fair".into()));
    assert_eq!(job["rate_limit_bps"], 100_000);
    assert_eq!(job["what"], format!("a {}", bench.url("")));
    let pid = copy.id().to_string();
    let set = at(&bench, &["set", &pid, "--policy", "low", "--bwlimit", "200k", "--json"]);
    expect_code(&set, 0);
    expect(&json(&set), "set");
    assert_eq!((&json(&set)["policy"], &json(&set)["pid"]), (&"low".into(), &copy.id().into()));
    let text = String::from_utf8(at(&bench, &["ps"]).stdout).unwrap();
    let line = text.lines().find(|line| line.contains(&pid)).unwrap();
    assert!(line.contains("of 9.5 MiB") && line.contains("at most 200.0 kbit/s"), "{line}");
    expect_code(&at(&bench, &["set", &pid, "--bwlimit", "none"]), 0);
    expect_code(&copy.finish(), 0);
    assert!(fs::read(bench.root("a")).unwrap() == content(1, BYTES));
    let gone = at(&bench, &["set", &pid, "--bwlimit", "1M"]);
    expect_code(&gone, 1);
    assert!(stderr(&gone).contains("sabul ps"), "{}", stderr(&gone));
}

#[test]
fn a_running_servers_receive_ceiling_can_be_changed() {
    let bench = Bench::with(&["serve", "--root", "root", "--bwlimit-total", SLOW]);
    fs::write(bench.path("a"), content(2, BYTES)).unwrap();
    let server = bench.server.as_ref().unwrap().id();
    let copy = Running::start(&mut bench.cp(["-q", "a", &bench.url("")]));
    let server_now = || listed(&bench).into_iter().find(|job| job["pid"] == server).unwrap();
    // The sender knows the total first.
    wait_for("the server's start of the copy", || {
        server_now()["running"][0]["bytes_total"] == BYTES
    });
    let job = server_now();
    expect(&job, "ps");
    assert_eq!((&job["sessions"], &job["rate_limit_total_bps"]), (&1.into(), &100_000.into()));
    let running = &job["running"][0];
    assert_eq!((&running["direction"], &running["names"][0]), (&"receiving".into(), &"".into()));
    assert_eq!((&job["transfers"], &running["bytes_total"]), (&1.into(), &BYTES.into()));
    assert!(running["peer"].as_str().unwrap().starts_with("127.0.0.1:"), "{running}");
    assert!(running["bytes"].as_u64() <= job["bytes"].as_u64(), "{job}");
    let text = String::from_utf8(at(&bench, &["ps"]).stdout).unwrap();
    let line = text.lines().find(|line| line.contains("receiving"));
    assert!(line.unwrap_or_default().contains(" of 9.5 MiB, "), "{text}");
    let several = at(&bench, &["set", "--bwlimit-total", "none"]);
    expect_code(&several, 2);
    assert!(stderr(&several).contains(&server.to_string()), "{}", stderr(&several));
    let refused = at(&bench, &["set", &server.to_string(), "--bwlimit", "1M"]);
    expect_code(&refused, 2);
    assert!(stderr(&refused).contains("--bwlimit-total"), "{}", stderr(&refused));
    let set = at(&bench, &["set", &server.to_string(), "--bwlimit-total", "none", "--json"]);
    expect_code(&set, 0);
    assert_eq!(json(&set)["rate_limit_total_bps"], Value::Null);
    expect_code(&copy.finish(), 0);
    wait_for("the server's end of the copy", || server_now()["transfers_done"] == 1);
    let over = server_now();
    assert_eq!((&over["running"], &over["bytes"]), (&Value::Array(Vec::new()), &BYTES.into()));
}

#[test]
fn a_killed_command_is_no_longer_listed_and_its_socket_is_removed() {
    let bench = Bench::new();
    let server = bench.server.as_ref().unwrap();
    server.signal(Signal::KILL);
    let deadline = Instant::now() + TIMEOUT;
    while !listed(&bench).is_empty() {
        assert!(Instant::now() < deadline, "a dead server is listed");
    }
    let socket = bench.path("sabul").join(format!("{}.sock", server.id()));
    // The process id exists until the parent has waited for the process.
    drop(bench.server);
    let output = run(sabul_apart(bench.folder.path()).arg("ps"));
    expect_code(&output, 0);
    assert!(stderr(&output).contains("no sabul command of this user"), "{}", stderr(&output));
    assert!(!socket.exists());
}

/// Like the systemd unit of the Debian package: its directory exists before, and holds the ticket.
#[test]
fn a_service_is_reached_in_the_runtime_folder_made_by_systemd() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("state")).unwrap();
    DirBuilder::new().mode(0o700).create(folder.path().join("sabul")).unwrap();
    let unit = include_str!("../../../packaging/sabul.service");
    for line in
        ["Environment=XDG_RUNTIME_DIR=/run", "RuntimeDirectory=sabul", "RuntimeDirectoryMode=0700"]
    {
        assert!(unit.lines().any(|it| it == line), "the unit says {line} no more");
    }
    let with = |arguments: &[&str]| {
        let mut command = sabul_apart(folder.path());
        command.args(arguments);
        command
    };
    let serve =
        ["serve", "--root", "state", "--listen", "127.0.0.1:0", "--ticket-file", "sabul/ticket"];
    let server = Running::start(&mut with(&serve));
    // The server writes the ticket before it opens the control socket.
    let socket = folder.path().join(format!("sabul/{}.sock", server.id()));
    wait_for("the control socket", || socket.exists());
    let listed = json(&run(&mut with(&["ps", "--json"])));
    assert_eq!((&listed["pid"], &listed["command"]), (&server.id().into(), &"serve".into()));
    let set = json(&run(&mut with(&["set", "--bwlimit-total", "1G", "--json"])));
    assert_eq!(set["rate_limit_total_bps"], 1_000_000_000);
    server.signal(Signal::TERM);
    expect_code(&server.finish(), 0);
    let left: Vec<_> = fs::read_dir(folder.path().join("sabul")).unwrap().collect();
    assert_eq!(left.len(), 1, "the ticket alone: {left:?}");
}

#[test]
fn set_requires_a_setting_and_finds_the_only_command() {
    let bench = Bench::new();
    expect_code(&at(&bench, &["set", "1"]), 2);
    expect_code(&at(&bench, &["set", "--bwlimit", "0"]), 2);
    expect_code(&at(&bench, &["set", "--policy", "rude"]), 2);
    // The server is the only running command.
    let set = at(&bench, &["set", "--bwlimit-total", "1G"]);
    expect_code(&set, 0);
    let said = String::from_utf8(set.stdout).unwrap();
    assert!(said.contains("at most 1.00 Gbit/s each way: serving "), "{said}");
}
