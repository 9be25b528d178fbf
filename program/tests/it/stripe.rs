//! `sabul cp --stripe` with a replacement for ssh: each host has a home directory of its own, and hosts that share a file
//! system have the same one.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::fs::{self, FileTimes};
use std::os::unix::fs::{FileExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use tempfile::TempDir;

use crate::common::{Running, content, expect_code, json, run, sabul, stderr, wait_for};

const SSH: &str = r#"#!/bin/sh
here=$(dirname "$0")
while [ $# -gt 0 ] && [ "$1" != -- ]; do shift; done
host=$2 command=$3
[ "$host" = lost ] && exit 255
cd "$here/$host" || exit 1
export HOME="$here/$host" SSH_CONNECTION="127.0.0.1 9 127.0.0.1 22" PATH="$here/bin:/usr/bin:/bin"
[ "$host" = false ] && PATH="$here/false-bin:$PATH"
exec sh -c "exec $command"
"#;

/// A destination host that announces another size than that of the file.
const FALSE_HOST: &str = r#"#!/bin/sh
case " $* " in *" --pieces "*) ;; *) exec "$HOME/../bin/sabul" "$@" ;; esac
read -r ticket
echo '{"is":"ready"}'
while read -r order; do case $order in
    *'"prepare"'*) echo '{"is":"prepared","state":null,"probe":"shared.0123456789abcdef.sabul-part"}' ;;
    *'"begin"'*) state=$(printf '1,%.0s' $(seq 31))1
        echo '{"is":"begun","file":0,"bytes":4611686018427387904,"part":"x","state":['"$state"']}' ;;
esac; done
"#;

/// Hosts a1, a2 and b1, b2, of which both pairs share a file system.
struct Site(TempDir);

impl Site {
    fn new() -> Self {
        let site = Self(tempfile::tempdir().unwrap());
        for name in ["a1", "b1", "bin", "false-bin", "false"] {
            fs::create_dir(site.path(name)).unwrap();
        }
        symlink("a1", site.path("a2")).unwrap();
        symlink("b1", site.path("b2")).unwrap();
        symlink(env!("CARGO_BIN_EXE_sabul"), site.path("bin/sabul")).unwrap();
        for (name, text) in [("ssh", SSH), ("false-bin/sabul", FALSE_HOST)] {
            fs::write(site.path(name), text).unwrap();
            fs::set_permissions(site.path(name), fs::Permissions::from_mode(0o755)).unwrap();
        }
        fs::write(site.path("pairs"), "a1 b1\na2 b2\n").unwrap();
        site
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Gives a host a file system of its own.
    fn separate(&self, host: &str) {
        fs::remove_file(self.path(host)).unwrap();
        fs::create_dir(self.path(host)).unwrap();
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = sabul();
        command.current_dir(self.0.path()).env("SABUL_SSH", self.path("ssh"));
        command.args(["cp", "--ports", "0", "--stripe", "pairs"]).args(arguments);
        command
    }

    fn copy(&self, arguments: &[&str]) -> Output {
        run(&mut self.command(arguments))
    }
}

fn set_time_of(path: &Path, other: &Path) {
    let time = fs::metadata(other).unwrap().modified().unwrap();
    let file = fs::File::options().write(true).open(path).unwrap();
    file.set_times(FileTimes::new().set_modified(time)).unwrap();
}

#[test]
fn a_source_host_with_another_state_of_the_file_takes_no_part() {
    let site = Site::new();
    site.separate("a2");
    let bytes = content(1, 24_000_000);
    fs::write(site.path("a1/big"), &bytes).unwrap();
    fs::write(site.path("a2/big"), content(2, 24_000_000)).unwrap();
    set_time_of(&site.path("a2/big"), &site.path("a1/big"));
    let output = site.copy(&["a1:big", "b1:out"]);
    expect_code(&output, 0);
    let said = stderr(&output);
    assert!(
        said.contains(
            "a2 to b2: takes no part: 'b2': 'big' is in another state at this source host"
        ),
        "{said}"
    );
    assert!(fs::read(site.path("b1/out")).unwrap() == bytes);
}

#[test]
fn a_source_that_changes_between_two_requests_is_copied_by_one_pair() {
    let site = Site::new();
    let path = site.path("a1/big");
    fs::write(&path, vec![b'a'; 44_000_000]).unwrap();
    let running = Running::start(&mut site.command(&["--bwlimit", "160M", "a1:big", "b1:out"]));
    wait_for("the part", || fs::read_dir(site.path("b1")).unwrap().count() > 0);
    std::thread::sleep(Duration::from_millis(1000));
    let time = fs::metadata(&path).unwrap().modified().unwrap();
    let file = fs::File::options().write(true).open(&path).unwrap();
    file.write_all_at(&vec![b'b'; 44_000_000], 0).unwrap();
    file.set_times(FileTimes::new().set_modified(time)).unwrap();
    let output = running.finish();
    expect_code(&output, 0);
    assert!(stderr(&output).contains("big: not striped"), "{}", stderr(&output));
    let found = fs::read(site.path("b1/out")).unwrap();
    assert!(found.iter().all(|&byte| byte == b'b'), "two states of the file");
}

#[test]
fn a_destination_host_without_the_shared_file_system_takes_no_part() {
    let site = Site::new();
    site.separate("b2");
    fs::create_dir(site.path("a1/d")).unwrap();
    for name in ["1", "2", "3"] {
        fs::write(site.path("a1/d").join(name), content(3, 9_000_000)).unwrap();
    }
    let output = site.copy(&["-r", "a1:d", "b1:out"]);
    expect_code(&output, 0);
    let said = stderr(&output);
    assert!(
        said.contains("a2 to b2: takes no part: 'b2'") && said.contains("do not share"),
        "{said}"
    );
    for name in ["1", "2", "3"] {
        assert!(fs::read(site.path("b1/out/d").join(name)).unwrap() == content(3, 9_000_000));
    }
    let count = |name: &str| fs::read_dir(site.path(name)).unwrap().count();
    assert_eq!(count("b1/out"), 1, "the probe is removed");
    assert_eq!(count("b2"), 0, "another host is unchanged");
}

#[test]
fn links_inside_of_a_source_are_striped_and_links_out_of_it_are_not_followed() {
    let site = Site::new();
    fs::create_dir(site.path("a1/d")).unwrap();
    fs::write(site.path("a1/d/f"), content(4, 9_000_000)).unwrap();
    fs::write(site.path("a1/secret"), content(5, 9_000_000)).unwrap();
    symlink("f", site.path("a1/d/inside")).unwrap();
    symlink("../secret", site.path("a1/d/outside")).unwrap();
    let output = site.copy(&["-r", "a1:d", "b1:"]);
    expect_code(&output, 1);
    let said = stderr(&output);
    assert!(said.contains("in 2 files") && !said.contains("not striped"), "{said}");
    assert!(fs::read(site.path("b1/d/inside")).unwrap() == content(4, 9_000_000));
    assert!(!site.path("b1/d/outside").exists());
}

#[test]
fn a_false_size_of_a_destination_host_costs_the_file_only() {
    let site = Site::new();
    fs::write(site.path("a1/big"), content(6, 9_000_000)).unwrap();
    fs::write(site.path("pairs"), "a1 false\n").unwrap();
    let output = site.copy(&["a1:big", "false:out"]);
    expect_code(&output, 0);
    assert!(stderr(&output).contains("when the files were listed"), "{}", stderr(&output));
    assert!(fs::read(site.path("false/out")).unwrap() == content(6, 9_000_000));
}

#[test]
fn flags_are_applied_refused_or_passed_on() {
    let site = Site::new();
    fs::write(site.path("a1/big"), content(7, 9_000_000)).unwrap();
    fs::write(site.path("b1/events"), "of the destination host").unwrap();
    let output = site.copy(&["-q", "a1:big", "b1:quiet"]);
    expect_code(&output, 0);
    assert_eq!((&*output.stdout, &*stderr(&output)), (&b""[..], ""));
    for (flags, words) in [
        (&["--events", "events"][..], "--events is not supported"),
        (&["--receipt", "r"], "--receipt is not supported"),
        (&["--identity", "missing"], "--identity is not supported"),
        (&["--min-rate", "1k"], "--min-rate is not supported with --stripe"),
        (&["--retry", "10"], "--retry is not supported with --stripe"),
        (&["--carrier", "ssh"], "--carrier ssh is not supported"),
        (&["--cc", "missing"], "unknown controller"),
        (&["--bwlimit", "1"], "rate above 0"),
    ] {
        let output = site.copy(&[flags, &["a1:big", "b1:refused"]].concat());
        expect_code(&output, 2);
        assert!(stderr(&output).contains(words), "{}", stderr(&output));
    }
    assert!(!site.path("b1/refused").exists());
    assert_eq!(fs::read(site.path("b1/events")).unwrap(), b"of the destination host");
}

#[test]
fn json_has_a_document_if_no_pair_is_reachable() {
    let site = Site::new();
    fs::write(site.path("pairs"), "lost b1\n").unwrap();
    for flag in ["--json", "--json-lines"] {
        let output = site.copy(&[flag, "lost:big", "b1:out"]);
        let done = json(&output);
        assert_eq!(done["exit"].as_i64(), output.status.code().map(i64::from), "{done}");
        assert_ne!(done["exit"], 0);
    }
}

#[test]
fn a_destination_that_cannot_be_opened_leaves_all_files_to_one_pair() {
    let site = Site::new();
    fs::create_dir(site.path("a1/d")).unwrap();
    fs::write(site.path("a1/d/big"), content(8, 9_000_000)).unwrap();
    fs::write(site.path("b1/file"), "in the way").unwrap();
    let output = site.copy(&["-r", "a1:d", "b1:file/below/"]);
    let said = stderr(&output);
    assert!(said.contains("'b1': cannot make") && said.contains("one pair copies"), "{said}");
    assert_ne!(output.status.code(), Some(0));
}

#[test]
fn a_file_of_another_source_host_is_not_taken_for_that_of_the_named_one() {
    let site = Site::new();
    site.separate("a2");
    for host in ["a1", "a2"] {
        fs::create_dir(site.path(host).join("d")).unwrap();
    }
    // The hosts share the first file only. The second pair begins the second one.
    fs::write(site.path("a1/d/1"), content(1, 24_000_000)).unwrap();
    fs::hard_link(site.path("a1/d/1"), site.path("a2/d/1")).unwrap();
    fs::write(site.path("a1/d/2"), content(2, 24_000_000)).unwrap();
    fs::write(site.path("a2/d/2"), content(3, 24_000_000)).unwrap();
    set_time_of(&site.path("a2/d/2"), &site.path("a1/d/2"));
    let output = site.copy(&["-r", "a1:d", "b1:"]);
    expect_code(&output, 0);
    let said = stderr(&output);
    assert!(said.contains("d/2: not striped"), "{said}");
    assert!(fs::read(site.path("b1/d/1")).unwrap() == content(1, 24_000_000));
    assert!(fs::read(site.path("b1/d/2")).unwrap() == content(2, 24_000_000));
}
