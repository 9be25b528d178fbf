//! Copies to several machines, each with a home directory of its own and processes that can be ended.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Output;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::common::{Running, content, expect_code, sabul, stderr, wait_for};

/// Replacement for ssh: runs the command in the home directory of the host, unless the host is dead.
const SSH: &str = r#"#!/bin/sh
here=$(dirname "$0")
for word; do if [ "$word" = -G ]; then echo "hostname 127.0.0.1"; exit 0; fi; done
while [ $# -gt 0 ] && [ "$1" != -- ]; do shift; done
home=$here/$2 command=$3
cd "$home" || exit 255
export HOME="$home" SSH_CONNECTION="127.0.0.1 9 127.0.0.1 22" PATH="$here/bin:/usr/bin:/bin"
if [ -e "$home.dead" ]; then echo "ssh: connect to host: Connection refused" >&2; exit 255; fi
exec sh -c "exec $command"
"#;
const SIZE: usize = 12 << 20;

/// This machine and the machines a, b and c.
struct Machines(TempDir);

impl Machines {
    fn new() -> Self {
        let machines = Self(tempfile::tempdir().unwrap());
        for name in ["a", "b", "c", "bin", "near/data"] {
            fs::create_dir_all(machines.path(name)).unwrap();
        }
        symlink(env!("CARGO_BIN_EXE_sabul"), machines.path("bin/sabul")).unwrap();
        fs::write(machines.path("ssh"), SSH).unwrap();
        fs::set_permissions(machines.path("ssh"), fs::Permissions::from_mode(0o755)).unwrap();
        fs::write(machines.path("near/data/large"), content(1, SIZE)).unwrap();
        fs::write(machines.path("near/data/small"), content(2, 10_000)).unwrap();
        machines
    }

    fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.0.path().join(name)
    }

    /// Starts a copy of `data` of some seconds.
    fn copy(&self) -> Running {
        self.copy_with(&["--bwlimit", "24M"])
    }

    fn copy_with(&self, flags: &[&str]) -> Running {
        let mut command = sabul();
        command.current_dir(self.path("near")).env("SABUL_SSH", self.path("ssh"));
        command.env("XDG_CACHE_HOME", self.path("cache"));
        command.args(["cp", "-r", "--json", "--ports", "0"]).args(flags);
        command.args(["data", "a:x", "b:x", "c:x"]);
        Running::start(&mut command)
    }

    /// Parts of the large file at a machine.
    fn parts(&self, host: &str) -> Vec<PathBuf> {
        let Ok(all) = fs::read_dir(self.path(host).join("x/data")) else { return Vec::new() };
        let is_part = |path: &PathBuf| {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            name.starts_with("large.") && name.ends_with(".sabul-part")
        };
        all.flatten().map(|entry| entry.path()).filter(is_part).collect()
    }

    /// Bytes of the large file that a machine has received.
    fn received(&self, host: &str) -> u64 {
        let lengths = self.parts(host).into_iter().filter_map(|part| fs::metadata(part).ok());
        lengths.map(|found| found.len()).max().unwrap_or(0)
    }

    /// Ends all processes of a machine, which answers no longer.
    fn kill(&self, host: &str) {
        fs::write(self.path(format!("{host}.dead")), "").unwrap();
        self.end_processes(host);
    }

    fn end_processes(&self, host: &str) {
        let home = format!("HOME={}\0", self.path(host).display());
        for process in fs::read_dir("/proc").unwrap().flatten() {
            let environment = fs::read(process.path().join("environ")).unwrap_or_default();
            let is_there = environment.windows(home.len()).any(|some| some == home.as_bytes());
            let id = process.file_name().to_string_lossy().parse().ok().and_then(Pid::from_raw);
            if let Some(id) = id.filter(|_| is_there) {
                let _ = kill_process(id, Signal::KILL);
            }
        }
    }

    #[track_caller]
    fn expect_complete(&self, hosts: &[&str], output: &Output) {
        for host in hosts {
            for name in ["large", "small"] {
                let there = fs::read(self.path(host).join("x/data").join(name)).unwrap_or_default();
                let here = fs::read(self.path("near/data").join(name)).unwrap();
                assert!(there == here, "{name} at {host}: {}", stderr(output));
            }
        }
    }
}

#[test]
fn a_large_file_reaches_the_third_machine_while_the_first_still_receives() {
    let machines = Machines::new();
    let copying = machines.copy();
    let is_named = |host: &str| machines.path(host).join("x/data/large").exists();
    wait_for("the third machine", || machines.received("c") > 2 << 20);
    assert!(!is_named("a"), "the first machine was complete before");
    wait_for("the name at the third machine", || {
        let is_early = is_named("c") && !is_named("a");
        assert!(!is_early, "the third machine has the name before the first one");
        is_named("c")
    });
    let output = copying.finish();
    expect_code(&output, 0);
    machines.expect_complete(&["a", "b", "c"], &output);
    let lines = String::from_utf8_lossy(&output.stdout).into_owned();
    for line in lines.lines() {
        let site: serde_json::Value = serde_json::from_str(line).unwrap();
        assert_eq!(
            (&site["files"], &site["bytes"]),
            (&2.into(), &(SIZE + 10_000).into()),
            "{site}"
        );
    }
    for from in ["this machine", "a:x/", "b:x/"] {
        assert!(lines.contains(&format!("\"from\":\"{from}\"")), "{lines}");
    }
    for host in ["a", "b", "c"] {
        assert_eq!(fs::read_dir(machines.path(host).join("x/data")).unwrap().count(), 2, "{host}");
    }
}

/// The document of a destination.
fn document(output: &Output, place: &str) -> serde_json::Value {
    let lines = String::from_utf8_lossy(&output.stdout).into_owned();
    let all = lines.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    all.into_iter().find(|document| document["place"] == place).expect("one for each destination")
}

#[test]
fn after_the_death_of_a_receiver_the_next_one_goes_on_with_its_part_from_another_source() {
    for (dead, others, next, from) in [
        ("a", ["b", "c"], "b:x/", "this machine"),
        ("b", ["a", "c"], "c:x/", "a:x/"),
        ("c", ["a", "b"], "b:x/", "a:x/"),
    ] {
        let machines = Machines::new();
        let copying = machines.copy_with(&["--bwlimit", "16M"]);
        wait_for("some bytes", || machines.received("c") > 2 << 20);
        machines.kill(dead);
        let before = machines.received(others[1]);
        wait_for("more bytes", || {
            assert!(!machines.path(others[0]).join("x/data/large").exists(), "{dead}: too late");
            machines.received(others[1]) > before + (1 << 20)
        });
        let output = copying.finish();
        assert_ne!(output.status.code(), Some(0), "{dead}");
        machines.expect_complete(&others, &output);
        let document = document(&output, next);
        assert_eq!(document["from"], from, "{document}");
        let resumed = document["resumed_bytes"].as_u64().unwrap();
        assert_eq!(resumed > 1 << 20, dead != "c", "{document}");
    }
}

#[test]
fn a_part_that_vanishes_at_a_machine_in_the_middle_is_received_again() {
    let machines = Machines::new();
    let copying = machines.copy();
    wait_for("some bytes", || machines.received("c") > 1 << 20);
    machines.parts("b").into_iter().for_each(|part| fs::remove_file(part).unwrap());
    let output = copying.finish();
    expect_code(&output, 0);
    machines.expect_complete(&["a", "b", "c"], &output);
}

#[test]
fn a_machine_whose_server_ends_gets_a_new_login_also_with_retry() {
    for (host, flags) in [("a", &["--retry", "1h"][..]), ("a", &[]), ("b", &["--retry", "1h"])] {
        let machines = Machines::new();
        let copying = machines.copy_with(&[&["--bwlimit", "24M"], flags].concat());
        wait_for("some bytes", || machines.received("c") > 1 << 20);
        machines.end_processes(host);
        let output = copying.finish();
        machines.expect_complete(&["a", "b", "c"], &output);
        expect_code(&output, 0);
    }
}
