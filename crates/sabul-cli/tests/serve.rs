//! A server and the system around it: folders of other users.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod common;

use std::fs;
use std::os::unix::fs::{DirBuilderExt as _, chown};

use rustix::process::{Signal, geteuid};

use common::{Running, expect_code, run, sabul, stderr, wait_for};

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
