//! More simultaneous copies than a server's memory allows.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::fs;
use std::os::unix::fs::chown;
use std::process::Command;

use rustix::process::{Signal, geteuid};
use serde_json::Value;

use crate::common::{Bench, Running, content, expect_code, run, sabul_apart};

/// More copies than the memory can hold at once.
const COPIES: usize = 26;

fn lines(output: &std::process::Output) -> Vec<Value> {
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn copies_beyond_a_servers_memory_wait_and_none_is_refused() {
    let bench = Bench::with(&["serve", "--root", "root", "--memory", "16MiB"]);
    let bytes = content(3, 100_000);
    fs::write(bench.path("file"), &bytes).unwrap();
    fs::write(bench.root("there"), &bytes).unwrap();
    let copy = |number: usize| {
        let (name, file) = (format!("copy-{number}"), bench.path("file"));
        let url = bench.url(&name);
        let places = match number % 4 {
            0 => [bench.url("there").into(), bench.path(&name).into_os_string()],
            _ => [file.into_os_string(), url.into()],
        };
        let limit = ["--json-lines", "--bwlimit", "200k"].map(Into::into);
        let mut command = bench.cp(limit.into_iter().chain(places));
        (name, Running::start(&mut command))
    };
    let copies: Vec<_> = (0..COPIES).map(copy).collect();
    // A client that disconnects leaves no state behind, in any phase.
    copies[COPIES - 1].1.signal(Signal::KILL);
    let mut in_line = 0;
    for (name, running) in copies.into_iter().take(COPIES - 1) {
        let output = running.finish();
        expect_code(&output, 0);
        let arrived = [bench.root(&name), bench.path(&name)].into_iter().find(|it| it.exists());
        assert_eq!(fs::read(arrived.unwrap()).unwrap(), bytes, "{name}");
        let lines = lines(&output);
        let places = lines.iter().filter(|line| line["event"] == "waiting");
        let places: Vec<_> = places.map(|line| line["place"].as_u64().unwrap()).collect();
        assert!(places.is_sorted_by(|before, after| before > after), "{places:?}");
        let done = lines.last().unwrap();
        let (waited_s, seconds) = (done["waited_s"].as_f64(), done["seconds"].as_f64());
        assert!(waited_s <= seconds, "{done}");
        assert!(places.is_empty() || waited_s > Some(0.0), "{done}");
        in_line += usize::from(!places.is_empty());
    }
    assert!(in_line > 0, "all found memory at once");
}

/// Returns a command that runs `inner` as the last arguments of `outer`.
fn within(outer: &[&str], inner: &Command) -> Command {
    let mut command = Command::new(outer[0]);
    command.args(&outer[1..]).arg(inner.get_program()).args(inner.get_args());
    for (name, value) in inner.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command.current_dir(inner.get_current_dir().unwrap());
    command
}

/// A user without other processes; the limit of processes and threads counts those of a user.
const ALONE: u32 = 54_321;
/// Processes and threads: those of an idle server, and those of two or three transfers.
const THREADS: &str = "--nproc=14";

#[test]
fn copies_beyond_a_servers_threads_wait_and_none_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("root")).unwrap();
    let give = |name: &str| chown(folder.path().join(name), Some(ALONE), Some(ALONE));
    let user = format!("--reuid={ALONE}");
    let mut limited = sabul_apart(folder.path());
    let mut probe = sabul_apart(folder.path());
    probe.arg("--version");
    let mut probe = within(&["setpriv", &user, "--clear-groups"], &probe);
    let can_run = geteuid().is_root() && probe.output().is_ok_and(|it| it.status.success());
    if !can_run || give("").and_then(|()| give("root")).is_err() {
        println!(
            "skipped: the test needs root, setpriv, prlimit and a program that all users can run"
        );
        return;
    }
    limited.args(["serve", "--root", "root"]);
    let server = within(&["setpriv", &user, "--clear-groups", "prlimit", THREADS], &limited);
    let bench = Bench::of(folder, server);
    let bytes = content(4, 100_000);
    fs::write(bench.root("there"), &bytes).unwrap();
    let copy = |number: usize| {
        let name = format!("copy-{number}");
        let places = [bench.url("there").into(), bench.path(&name).into_os_string()];
        let mut command =
            bench.cp(["-q", "--bwlimit", "1M"].map(Into::into).into_iter().chain(places));
        (name, Running::start(&mut command))
    };
    let copies: Vec<_> = (0..12).map(copy).collect();
    for (name, running) in copies {
        expect_code(&running.finish(), 0);
        assert_eq!(fs::read(bench.path(&name)).unwrap(), bytes, "{name}");
    }
}

#[test]
fn a_reader_that_pauses_longer_than_the_timeout_receives_everything() {
    let bench = Bench::with(&["serve", "--root", "root", "--memory", "16MiB", "--timeout", "3"]);
    let bytes = content(5, 40 << 20);
    fs::write(bench.root("file"), &bytes).unwrap();
    let url = bench.url("file");
    let copy = bench.cp(["-q", "--timeout", "3", "--memory", "16MiB", &url, "-"]);
    let script = "set -o pipefail; \"$@\" | (sleep 8; cat)";
    let output = run(&mut within(&["bash", "-c", script, "bash"], &copy));
    expect_code(&output, 0);
    assert!(output.stdout == bytes, "{} of {} bytes", output.stdout.len(), bytes.len());
}
