//! A server and the system around it: limits of the process, folders of other users.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod common;

use std::fs;
use std::os::unix::fs::{DirBuilderExt as _, chown};
use std::process::Command;

use rustix::process::{Pid, Resource, Rlimit, Signal, geteuid, prlimit};

use common::{Bench, Running, content, expect_code, run, sabul, stderr, wait_for};

#[test]
fn a_limit_of_file_size_fails_the_transfer_and_not_the_server() {
    let bench = Bench::new();
    let pid = Pid::from_raw(bench.server.as_ref().unwrap().id().try_into().unwrap());
    let limit = Rlimit { current: Some(1 << 20), maximum: Some(1 << 20) };
    prlimit(pid, Resource::Fsize, limit).unwrap();
    for (name, size) in [("large", 3_000_000), ("small", 1000)] {
        fs::write(bench.path(name), content(1, size)).unwrap();
    }
    let output = run(&mut bench.cp(["-q", "large", &bench.url("large")]));
    assert!(!output.status.success(), "{}", stderr(&output));
    assert!(stderr(&output).contains("File too large"), "{}", stderr(&output));
    expect_code(&run(&mut bench.cp(["-q", "small", &bench.url("small")])), 0);
}

#[test]
fn a_server_that_could_let_nobody_in_for_lack_of_descriptors_does_not_start() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new("sh");
    let script = format!(
        "ulimit -n 100; exec {} serve --root . --listen 127.0.0.1:0",
        env!("CARGO_BIN_EXE_sabul")
    );
    let output = run(command.args(["-c", &script]).current_dir(folder.path()));
    expect_code(&output, 2);
    let said = stderr(&output);
    assert!(said.contains("at most 100 open files") && said.contains("allow 128"), "{said}");
}

#[test]
fn a_folder_of_sockets_that_is_another_users_is_left_alone_with_a_word_for_root_too() {
    if !geteuid().is_root() {
        println!("skipped: only root can give a folder away");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let planted = folder.path().join("sabul-0");
    let ticket = folder.path().join("ticket").to_str().unwrap().to_owned();
    fs::DirBuilder::new().mode(0o700).create(&planted).unwrap();
    chown(&planted, Some(1000), Some(1000)).unwrap();
    let apart = |arguments: &[&str]| {
        let mut command = sabul();
        command.env_remove("XDG_RUNTIME_DIR").env("TMPDIR", folder.path()).args(arguments);
        run(&mut command)
    };
    let output = apart(&["ps"]);
    expect_code(&output, 1);
    assert!(stderr(&output).contains("belongs to another user"), "{}", stderr(&output));
    expect_code(&apart(&["ps", "--sockets", planted.to_str().unwrap()]), 0);
    // A command goes on without a control socket.
    let mut server = sabul();
    server.env_remove("XDG_RUNTIME_DIR").env("TMPDIR", folder.path()).current_dir(folder.path());
    server.args(["serve", "--root", ".", "--listen", "127.0.0.1:0", "--ticket-file", "ticket"]);
    let server = Running::start(&mut server);
    wait_for("the ticket", || folder.path().join("ticket").exists());
    expect_code(&apart(&["ls", "sabul:///", "--ticket", &ticket]), 0);
    server.signal(Signal::TERM);
    let said = stderr(&server.finish());
    assert!(said.contains("no control socket") && said.contains("another user"), "{said}");
    assert_eq!(fs::read_dir(&planted).unwrap().count(), 0);
}
