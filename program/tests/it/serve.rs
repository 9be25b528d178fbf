//! Servers and the system: sandbox, process limits, and directories of other users.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::fs;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _, chown};
use std::process::{Command, Output};

use rustix::process::{Pid, Resource, Rlimit, Signal, geteuid, prlimit};

use crate::common::{Bench, Running, content, expect_code, json, run, sabul, stderr, wait_for};

/// Returns the values of `Seccomp` and `NoNewPrivs` over all threads of a process, each value once.
fn confinement(pid: u32) -> Vec<(String, String)> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let mut found: Vec<_> = threads
        .map(|thread| {
            let status = fs::read_to_string(thread.unwrap().path().join("status")).unwrap();
            let value = |key: &str| {
                let line = status.lines().find_map(|line| line.strip_prefix(key));
                line.unwrap_or_default().trim().to_owned()
            };
            (value("Seccomp:"), value("NoNewPrivs:"))
        })
        .collect();
    found.sort();
    found.dedup();
    found
}

/// Ends the server and returns its output.
fn end(bench: &mut Bench) -> Output {
    let server = bench.server.take().unwrap();
    server.signal(Signal::TERM);
    server.finish()
}

#[test]
fn every_server_thread_is_sandboxed_before_the_first_connection() {
    let mut bench = Bench::with(&["serve", "--root", "root", "--allow-rm"]);
    let bytes = content(1, 300_000);
    fs::write(bench.path("a"), &bytes).unwrap();
    let run_all = |commands: &[&[&str]]| {
        for command in commands {
            expect_code(&run(bench.sabul().args(*command)), 0);
        }
    };
    let (there, folder, made) = (bench.url("a"), bench.url("d/"), bench.url("d/e"));
    run_all(&[
        &["cp", "-q", "a", &there],
        &["cp", "-q", &there, "b"],
        &["mkdir", "-p", &made],
        &["cp", "-q", "a", "b", &folder],
        &["ls", &folder],
        &["ps", "--json"],
        &["set", "--bwlimit-total", "900M"],
        &["rm", "-r", &folder],
    ]);
    assert_eq!(fs::read(bench.path("b")).unwrap(), bytes);
    assert!(!bench.root("d").exists());
    let threads = confinement(bench.server.as_ref().unwrap().id());
    let output = end(&mut bench);
    expect_code(&output, 0);
    let said = stderr(&output);
    if said.contains("sandbox: landlock, seccomp\n") {
        assert_eq!(threads, [("2".to_owned(), "1".to_owned())], "{said}");
    } else {
        assert!(said.contains("sandbox: "), "{said}");
        println!("skipped: {said}");
    }
}

#[test]
fn a_server_without_a_sandbox_reports_it_and_keeps_its_parents_rights() {
    let mut bench = Bench::with(&["serve", "--root", "root", "--no-sandbox"]);
    let threads = confinement(bench.server.as_ref().unwrap().id());
    assert_eq!(threads, confinement(std::process::id()));
    assert!(stderr(&end(&mut bench)).contains("sandbox: none\n"));
}

#[test]
fn a_server_with_read_back_flushes_and_reads_every_upload() {
    let durable = |server: &[&str]| {
        let bench = Bench::with(server);
        fs::write(bench.path("a"), content(1, 300_000)).unwrap();
        let copy =
            run(bench.sabul().args(["cp", "-q", "--json", "--no-sync", "a", &bench.url("b")]));
        expect_code(&copy, 0);
        json(&copy)["durable_bytes"].as_u64().unwrap()
    };
    // The client requests no flush.
    assert_eq!(durable(&["serve", "--root", "root"]), 0);
    assert_eq!(durable(&["serve", "--root", "root", "--read-back"]), 300_000);
}

#[test]
fn the_file_size_limit_fails_the_transfer_and_not_the_server() {
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
fn a_server_with_too_few_descriptors_does_not_start() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new("sh");
    let script = format!(
        "ulimit -n 100; exec {} serve --root . --listen 127.0.0.1:0",
        env!("CARGO_BIN_EXE_sabul")
    );
    let output = run(command.args(["-c", &script]).current_dir(folder.path()));
    expect_code(&output, 2);
    let said = stderr(&output);
    assert!(said.contains("limit of 100 open files") && said.contains("raise it to 128"), "{said}");
}

#[test]
fn another_users_socket_folder_is_refused_with_a_message_even_by_root() {
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
    // A command continues without a control socket.
    let mut server = sabul();
    server.env_remove("XDG_RUNTIME_DIR").env("TMPDIR", folder.path()).current_dir(folder.path());
    server.args(["serve", "--root", ".", "--listen", "127.0.0.1:0", "--ticket-file", "ticket"]);
    let server = Running::start(&mut server);
    wait_for("the ticket", || folder.path().join("ticket").exists());
    expect_code(&apart(&["ls", "sabul:///", "--ticket", &ticket]), 0);
    server.signal(Signal::TERM);
    let said = stderr(&server.finish());
    assert!(
        said.contains("cannot open a control socket") && said.contains("another user"),
        "{said}"
    );
    assert_eq!(fs::read_dir(&planted).unwrap().count(), 0);
}

#[test]
fn a_private_folder_is_private_while_it_is_copied_and_afterwards() {
    let bench = Bench::new();
    let private = bench.path("private");
    fs::DirBuilder::new().mode(0o700).create(&private).unwrap();
    fs::write(private.join("a"), content(1, 4 << 20)).unwrap();
    for (name, flags) in [("plain", "-rq"), ("kept", "-rpq")] {
        let url = bench.url(name);
        let copy = Running::start(&mut bench.cp(["--bwlimit", "16M", flags, "private", &url]));
        let mode = || fs::metadata(bench.root(name)).unwrap().permissions().mode() & 0o7777;
        wait_for("a part", || {
            fs::read_dir(bench.root(name)).is_ok_and(|mut entries| entries.next().is_some())
        });
        assert_eq!(mode(), 0o700, "{flags}, during the copy");
        assert!(!bench.root(name).join("a").exists(), "the copy ended too early for this test");
        expect_code(&copy.finish(), 0);
        assert_eq!(mode(), 0o700, "{flags}, afterwards");
    }
}
