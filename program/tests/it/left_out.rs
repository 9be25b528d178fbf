//! Entries that cannot be copied or compared are failures: no command leaves them out with exit code 0.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Output};

use crate::common::{Bench, expect_code, run, stderr};

/// A user without rights to the files of others.
const USER: u32 = 65_534;

fn at(bench: &Bench, arguments: &[&str]) -> Output {
    run(bench.sabul().args(arguments))
}

/// Runs a command with the rights of a user other than root.
fn as_user(bench: &Bench, arguments: &[&str]) -> Output {
    let mut command: Command = bench.sabul();
    command.args(arguments).env("HOME", bench.path("user"));
    command.env("XDG_STATE_HOME", bench.path("user")).env("XDG_RUNTIME_DIR", bench.path("user"));
    if rustix::process::geteuid().is_root() {
        command.uid(USER).gid(USER);
    }
    run(&mut command)
}

/// Gives an entry these permission bits, and to the user without rights.
fn give(path: &Path, mode: u32) {
    if rustix::process::geteuid().is_root() {
        chown(path, Some(USER), Some(USER)).unwrap();
    }
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn write(path: &Path, content: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, content).unwrap();
}

#[test]
fn a_directory_that_keeps_the_place_of_a_file_is_a_failure() {
    let bench = Bench::with(&["serve", "--root", "root", "--allow-rm"]);
    write(&bench.path("src/g"), "the only new version");
    for number in 0..20 {
        write(&bench.path(format!("src/{number}")), "x");
    }
    write(&bench.root("copy/g/cache.o"), "excluded");
    let url = bench.url("copy");
    let sync = ["sync", "--delete", "--exclude", "*.o", "src/", &url];
    for extra in [false, true] {
        if extra {
            // A removal elsewhere starts a second pass.
            write(&bench.root("copy/gone"), "x");
        }
        let output = at(&bench, &[&sync[..], &["--json"]].concat());
        expect_code(&output, 1);
        assert!(
            stderr(&output)
                .contains("g' is not written: an entry of another kind stays in its place")
        );
        assert!(String::from_utf8_lossy(&output.stdout).contains("\"path\":\"g\""));
        assert!(bench.root("copy/g/cache.o").exists() && !bench.root("copy/gone").exists());
    }
    // A dry run only prints, and without the excluded entry the file is copied.
    expect_code(&at(&bench, &[&sync[..], &["-n"]].concat()), 0);
    fs::remove_file(bench.root("copy/g/cache.o")).unwrap();
    expect_code(&at(&bench, &sync), 0);
    assert_eq!(fs::read(bench.root("copy/g")).unwrap(), b"the only new version");
}

#[test]
fn a_file_that_the_replica_keeps_out_is_a_failure_of_the_pass() {
    let bench = Bench::with(&["serve", "--root", "root", "--allow-rm"]);
    for name in ["g", "a", "b"] {
        write(&bench.path("src").join(name), name);
    }
    let url = bench.url("copy");
    let replicate = |arguments: &[&str]| {
        let mut command = bench.sabul();
        command.env("XDG_STATE_HOME", bench.path("state")).arg("replicate").args(arguments);
        run(&mut command)
    };
    let pass = ["--delete", "--delete-limit", "100", "src/", &url];
    expect_code(&replicate(&pass), 0);
    fs::remove_file(bench.root("copy/g")).unwrap();
    write(&bench.root("copy/g/own"), "of the replica");
    write(&bench.path("src/g"), "a new version");
    let output = replicate(&pass);
    expect_code(&output, 1);
    assert!(stderr(&output).contains("stays in its place"), "{}", stderr(&output));
    let status = replicate(&["status", "src", "--json"]);
    assert!(String::from_utf8_lossy(&status.stdout).contains("\"in_step\":false"));
    assert!(bench.root("copy/g/own").exists());
}

#[test]
fn the_second_file_of_a_name_is_a_failure_of_each_download() {
    let bench = Bench::new();
    for run in ["run1", "run2"] {
        write(&bench.root(run).join("r.csv"), run);
        write(&bench.root(run).join("data").join(run), run);
    }
    for _ in 0..2 {
        let output = at(&bench, &["cp", &bench.url("run*/r.csv"), "to/"]);
        expect_code(&output, 1);
        assert!(stderr(&output).contains("r.csv"), "{}", stderr(&output));
        assert_eq!(fs::read(bench.path("to/r.csv")).unwrap(), b"run1");
    }
    // Directories of one name become one directory.
    for _ in 0..2 {
        expect_code(&at(&bench, &["cp", "-r", &bench.url("run*/data"), "both/"]), 0);
        assert!(bench.path("both/data/run1").exists() && bench.path("both/data/run2").exists());
    }
}

#[test]
fn the_content_of_a_directory_that_cannot_be_listed_stays_with_options_that_keep_files() {
    let bench = Bench::new();
    write(&bench.path("src/box/f"), "of the source");
    write(&bench.path("src/other"), "x");
    fs::create_dir(bench.path("user")).unwrap();
    give(&bench.path("user"), 0o700);
    let replicate = ["replicate", "--no-sync"];
    for options in
        [&["sync", "--ignore-existing"][..], &["sync", "-u"], &["sync", "--existing"], &replicate]
    {
        let to = bench.path("to");
        let _ = fs::remove_dir_all(&to);
        write(&to.join("box/f"), "a newer version of the destination");
        for (name, mode) in [("", 0o755), ("box/f", 0o644), ("box", 0o300)] {
            give(&to.join(name), mode);
        }
        let output = as_user(&bench, &[options, &["src/", "to"]].concat());
        fs::set_permissions(to.join("box"), fs::Permissions::from_mode(0o700)).unwrap();
        expect_code(&output, 1);
        assert!(stderr(&output).contains("box"), "{options:?}: {}", stderr(&output));
        let found = fs::read_to_string(to.join("box/f")).unwrap();
        assert_eq!(found, "a newer version of the destination", "{options:?}");
        assert_eq!(to.join("other").exists(), options != ["sync", "--existing"], "{options:?}");
    }
}

#[test]
fn verify_reports_a_file_of_the_destination_that_cannot_be_read() {
    let bench = Bench::new();
    for name in ["a", "b"] {
        write(&bench.path("src").join(name), "content");
        write(&bench.path("to").join(name), "content");
    }
    fs::create_dir(bench.path("user")).unwrap();
    give(&bench.path("user"), 0o700);
    fs::set_permissions(bench.path("to/b"), fs::Permissions::from_mode(0o000)).unwrap();
    let output = as_user(&bench, &["verify", "--json", "src/", "to"]);
    expect_code(&output, 1);
    assert!(stderr(&output).contains("denied"), "{}", stderr(&output));
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&json["files"], &json["different"]), (&1.into(), &0.into()));
    assert_eq!(json["errors"][0]["path"], "b");
}
