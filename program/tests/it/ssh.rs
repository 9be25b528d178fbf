//! `sabul cp` to and from `host:path`, with a replacement for ssh that runs the far end on this
//! machine.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use tempfile::TempDir;

use crate::common::{Running, content, expect_code, run, run_with_input, sabul, stderr, wait_for};

/// Replacement for ssh: parses its arguments like ssh and runs the command in the other home
/// directory. The host's name selects special behaviour.
const SSH: &str = r#"#!/bin/sh
here=$(dirname "$0")
echo "$*" >> "$here/calls"
for word; do if [ "$word" = -G ]; then echo "hostname ${FAKE_ADDRESS:-127.0.0.1}"; exit 0; fi; done
while [ $# -gt 0 ] && [ "$1" != -- ]; do shift; done
host=${2#*@} command=$3
cd "$here/home" || exit 1
export HOME="$here/home" SSH_CONNECTION="127.0.0.1 9 127.0.0.1 22" PATH="$here/bin:/usr/bin:/bin"
unset SABUL_TICKET_FILE
[ -e "$here/away.$host" ] && host=refused
case $host in
    refused) echo "ssh: connect to host refused port 22: Connection refused" >&2; exit 255 ;;
    denied) echo "me@denied: Permission denied (publickey,password)." >&2; exit 255 ;;
    banner) printf 'Welcome to banner\r\n\nlast login: never\n@sabul\nno newline at the end: ' ;;
    late) sleep 0.3; echo "motd"; sleep 0.3 ;;
    mute) exit 0 ;;
    steering) printf '@sabul failed \033]0;owned\007\033[31mred\n'; exit 1 ;;
    sftp-only) echo "This service allows sftp connections only."; exit 1 ;;
    endless) yes 'all work and no play' ; exit 0 ;;
    bare) PATH=/usr/bin:/bin ;;
    elsewhere) export SSH_CONNECTION="127.0.0.1 9 192.0.2.1 22" ;;
esac
echo $$ > "$here/pid"
echo $$ >> "$here/pids.$host"
exec sh -c "exec $command"
"#;

/// Home directory of the other machine, beside a directory of this machine.
pub(crate) struct Bridge {
    folder: TempDir,
}

impl Bridge {
    pub(crate) fn new() -> Self {
        let bridge = Self { folder: tempfile::tempdir().unwrap() };
        for name in ["home", "bin", "near"] {
            fs::create_dir(bridge.path(name)).unwrap();
        }
        bridge.program("ssh", SSH);
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_sabul"), bridge.path("bin/sabul")).unwrap();
        bridge
    }

    pub(crate) fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.folder.path().join(name)
    }

    fn program(&self, name: &str, text: &str) {
        let path = self.path(name);
        let _ = fs::remove_file(&path);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// Returns `sabul cp` in the near directory.
    pub(crate) fn cp(&self, arguments: &[&str]) -> Command {
        self.sabul(&[&["cp"], arguments].concat())
    }

    /// Returns the program in the near directory.
    pub(crate) fn sabul(&self, arguments: &[&str]) -> Command {
        let mut command = sabul();
        command.current_dir(self.path("near")).env("SABUL_SSH", self.path("ssh"));
        command.args(arguments);
        if !arguments.contains(&"--ports") {
            command.args(["--ports", "0"]);
        }
        command
    }

    pub(crate) fn try_cp(&self, arguments: &[&str]) -> Output {
        run(&mut self.cp(arguments))
    }

    pub(crate) fn calls(&self) -> String {
        fs::read_to_string(self.path("calls")).unwrap_or_default()
    }

    /// Returns the process at the far end.
    pub(crate) fn far(&self) -> Pid {
        let text = fs::read_to_string(self.path("pid")).unwrap();
        Pid::from_raw(text.trim().parse().unwrap()).unwrap()
    }

    fn expect_no_process(&self) {
        let far = self.far();
        wait_for("the end of the other end", || test_kill_process(far).is_err());
    }
}

#[track_caller]
pub(crate) fn expect_words(output: &Output, code: i32, words: &[&str]) {
    expect_code(output, code);
    for word in words {
        assert!(stderr(output).contains(word), "no '{word}' in: {}", stderr(output));
    }
}

#[test]
fn files_are_copied_both_ways_over_ssh_and_no_process_remains() {
    let bridge = Bridge::new();
    let bytes = content(1, 3_000_001);
    fs::write(bridge.path("near/a.bin"), &bytes).unwrap();
    let output = bridge.try_cp(&["a.bin", "me@host:"]);
    expect_words(&output, 0, &["verified"]);
    assert_eq!(fs::read(bridge.path("home/a.bin")).unwrap(), bytes);
    bridge.expect_no_process();
    expect_code(&bridge.try_cp(&["host:a.bin", "b.bin"]), 0);
    assert_eq!(fs::read(bridge.path("near/b.bin")).unwrap(), bytes);
    let there = bridge.path("home/sub dir");
    expect_code(&bridge.try_cp(&["a.bin", "b.bin", &format!("host:{}/", there.display())]), 0);
    assert_eq!(fs::read(there.join("b.bin")).unwrap(), bytes);
    expect_code(&bridge.try_cp(&["-r", "host:~/sub dir", "."]), 0);
    assert_eq!(fs::read(bridge.path("near/sub dir/a.bin")).unwrap(), bytes);
    bridge.expect_no_process();
}

#[cfg(feature = "join")]
#[test]
fn tables_of_an_account_are_joined() {
    let bridge = Bridge::new();
    fs::create_dir(bridge.path("home/logs")).unwrap();
    for (name, first) in
        [("logs/1.csv", 0), ("logs/2.csv", 50), ("here1.csv", 0), ("here2.csv", 50)]
    {
        let rows: String = (first..first + 50).map(|id| format!("{id},{}\n", id * 2)).collect();
        fs::write(bridge.path("home").join(name), format!("id,size\n{rows}")).unwrap();
    }
    fs::write(bridge.path("near/few.csv"), "id,x\n7,a\n70,b\n700,c\n").unwrap();
    for place in ["host:logs", "me@host:logs/*.csv", "host:here*.csv"] {
        let out = ["--on", "id", "-o", "out.parquet"];
        let output = run(&mut bridge.sabul(&[&["join", "few.csv", place], &out[..]].concat()));
        expect_words(&output, 0, &["2 rows from 103 rows"]);
        bridge.expect_no_process();
    }
    let output =
        run(&mut bridge.sabul(&["join", "few.csv", "host:no*.csv", "--on", "id", "-o", "o"]));
    expect_words(&output, 1, &["no files"]);
    bridge.expect_no_process();
}

/// An account may change its own files without further permission.
#[test]
fn files_of_an_account_are_listed_removed_and_named_by_patterns() {
    let bridge = Bridge::new();
    fs::create_dir_all(bridge.path("home/data")).unwrap();
    for name in ["a.nc", "b.nc", "c.txt"] {
        fs::write(bridge.path("home/data").join(name), name).unwrap();
    }
    let out = |output: &Output| String::from_utf8_lossy(&output.stdout).into_owned();
    let there = |arguments: &[&str]| run(&mut bridge.sabul(arguments));
    let listed = there(&["ls", "host:", "--ports", "0"]);
    expect_code(&listed, 0);
    assert_eq!(out(&listed), "data/\n");
    let full = format!("host:{}/*.nc", bridge.path("home/data").display());
    expect_code(&bridge.try_cp(&[&full, "."]), 0);
    assert!(bridge.path("near/a.nc").exists() && bridge.path("near/b.nc").exists());
    expect_code(&bridge.try_cp(&["host:data/c*", "c"]), 0);
    assert_eq!(out(&there(&["cat", "host:data/a.nc", "--offset", "2"])), "nc");
    expect_code(&there(&["mkdir", "-p", "host:new/one", "--ports", "0"]), 0);
    assert!(bridge.path("home/new/one").is_dir());
    expect_code(&there(&["rm", "-r", "host:data", "host:~/new/one", "--ports", "0"]), 0);
    assert!(!bridge.path("home/data").exists() && bridge.path("home/new").exists());
    expect_code(&there(&["rm", "-r", "host:", "--ports", "0"]), 1);
    bridge.expect_no_process();
}

#[test]
fn the_ticket_is_not_in_the_ssh_arguments_and_user_options_are() {
    let bridge = Bridge::new();
    fs::write(bridge.path("near/a"), "x").unwrap();
    let ssh = format!("{} -p 2222 -J 'my gate'", bridge.path("ssh").display());
    expect_code(&bridge.try_cp(&["-e", &ssh, "a", "me@host:b"]), 0);
    let calls = bridge.calls();
    assert!(calls.contains("-p 2222 -J my gate -- me@host sh -c"), "{calls}");
    assert!(!calls.contains("sabul1-"), "{calls}");
}

#[test]
fn streams_are_copied_both_ways_over_ssh() {
    let bridge = Bridge::new();
    let bytes = content(2, 200_000);
    expect_code(&run_with_input(&mut bridge.cp(&["-", "host:in.bin"]), &bytes), 0);
    let output = bridge.try_cp(&["-q", "host:in.bin", "-"]);
    expect_code(&output, 0);
    assert!(output.stdout == bytes);
}

#[test]
fn banners_and_slow_logins_do_not_disturb_a_copy() {
    let bridge = Bridge::new();
    fs::write(bridge.path("near/a"), "x").unwrap();
    for host in ["banner", "late"] {
        expect_code(&bridge.try_cp(&["a", &format!("{host}:{host}")]), 0);
        assert_eq!(fs::read(bridge.path("home").join(host)).unwrap(), b"x");
    }
}

#[test]
fn each_ssh_failure_has_its_own_message() {
    let bridge = Bridge::new();
    fs::write(bridge.path("near/a"), "x").unwrap();
    expect_words(
        &bridge.try_cp(&["a", "refused:"]),
        3,
        &["Connection refused", "ssh could not connect to refused"],
    );
    expect_words(
        &bridge.try_cp(&["a", "me@denied:"]),
        4,
        &["me@denied: Permission denied (publickey,password).", "could not log in"],
    );
    expect_words(
        &bridge.try_cp(&["a", "mute:"]),
        3,
        &["did not start there", "there was no output"],
    );
    expect_words(
        &bridge.try_cp(&["a", "sftp-only:"]),
        3,
        &["exit code 1", "This service allows sftp connections only."],
    );
    expect_words(
        &bridge.try_cp(&["a", "endless:"]),
        3,
        &["more than 1 MiB", "all work and no play"],
    );
    let ssh = bridge.path("none/ssh");
    let output = run(bridge.cp(&["a", "host:"]).env("SABUL_SSH", &ssh));
    expect_words(&output, 2, &["no such program", "OpenSSH"]);
    expect_words(&bridge.try_cp(&["a", "C:\\b"]), 2, &["Windows", "./C:\\b"]);
    expect_words(&bridge.try_cp(&["-e", "", "a", "host:"]), 2, &["name a program"]);
}

#[test]
fn a_host_without_sabul_is_reported_with_the_searched_places() {
    let bridge = Bridge::new();
    fs::write(bridge.path("near/a"), "x").unwrap();
    expect_words(
        &bridge.try_cp(&["a", "bare:"]),
        1,
        &["bare (Linux ", "no sabul in /usr/bin:/bin", "--push", "--remote-sabul"],
    );
    let there = bridge.path("bin/sabul");
    expect_code(&bridge.try_cp(&["--remote-sabul", there.to_str().unwrap(), "a", "bare:"]), 0);
    let output = bridge.try_cp(&["--remote-sabul", "/no/such", "a", "bare:"]);
    expect_words(&output, 1, &["no program /no/such on bare", "see --remote-sabul"]);
}

#[test]
fn a_remote_sabul_of_another_version_is_reported() {
    let bridge = Bridge::new();
    fs::write(bridge.path("near/a"), "x").unwrap();
    fs::remove_file(bridge.path("bin/sabul")).unwrap();
    let old = "#!/bin/sh\nif [ \"$1\" = --version ]; then echo sabul 0.0.7; exit; fi\n\
        echo \"error: unexpected argument '--stdio' found\" >&2; exit 2\n";
    let newer = "#!/bin/sh\nif [ \"$1\" = --version ]; then echo sabul 9.0.0; exit; fi\n\
        echo '@sabul ready 1 4711 9.0.0 sabul9-x'; cat\n";
    for (text, version) in [(old, "0.0.7"), (newer, "9.0.0")] {
        bridge.program("bin/sabul", text);
        let ours = format!("this is sabul {}", env!("CARGO_PKG_VERSION"));
        let theirs = format!("sabul {version} (");
        expect_words(&bridge.try_cp(&["a", "host:"]), 3, &[&theirs, &ours, "--push"]);
    }
    bridge.program("bin/sabul", "#!/bin/sh\nexit 139\n");
    expect_words(&bridge.try_cp(&["a", "host:"]), 3, &["host has", "--push"]);
}

#[test]
fn push_sends_the_program_only_once() {
    let bridge = Bridge::new();
    fs::write(bridge.path("near/a"), "x").unwrap();
    let output = bridge.try_cp(&["--push", "--json-lines", "a", "bare:one"]);
    expect_code(&output, 0);
    let lines = String::from_utf8_lossy(&output.stdout).into_owned();
    let push: Vec<serde_json::Value> = lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .filter(|line: &serde_json::Value| line["event"] == "push")
        .collect();
    let last = push.last().unwrap_or_else(|| panic!("{lines}"));
    assert!(push.len() >= 2 && last["bytes"] == last["bytes_total"], "{lines}");
    let own = fs::metadata(env!("CARGO_BIN_EXE_sabul")).unwrap().len();
    assert!(last["bytes"].as_u64().unwrap() < own / 2, "{last} of {own}");
    let cache = bridge.path("home/.cache/sabul");
    let pushed = |cache: &Path| fs::read_dir(cache).unwrap().next().unwrap().unwrap().path();
    let first = pushed(&cache);
    let made = fs::metadata(&first).unwrap().modified().unwrap();
    expect_code(&bridge.try_cp(&["--push", "a", "bare:two"]), 0);
    assert_eq!(fs::metadata(pushed(&cache)).unwrap().modified().unwrap(), made);
    // A pushed program is also found without `--push`.
    expect_code(&bridge.try_cp(&["a", "bare:three"]), 0);
    let names = ["one", "two", "three"].map(|name| bridge.path("home").join(name).exists());
    assert_eq!(names, [true; 3]);
    let output = bridge.try_cp(&["--push=/no/such", "a", "bare:"]);
    expect_words(&output, 2, &["cannot read '/no/such' for the upload: No such file"]);
}

#[test]
fn a_terminal_user_is_prompted_before_the_program_is_sent() {
    let bridge = Bridge::new();
    fs::write(bridge.path("near/a"), "x").unwrap();
    let query = |answer: &str, name: &str, term: &str| {
        let (mut terminal, slave) = crate::common::terminal(80);
        let mut command = bridge.cp(&["a", &format!("bare:{name}")]);
        command.stdin(slave.try_clone().unwrap()).stdout(Stdio::null()).stderr(slave);
        command.env("TERM", term);
        let mut child = command.spawn().unwrap();
        drop(command);
        let (mut seen, mut part) = (Vec::new(), [0; 4096]);
        let mut is_answered = false;
        // Closing the last slave end is a read error on Linux.
        while let Ok(n @ 1..) = terminal.read(&mut part) {
            seen.extend_from_slice(&part[..n]);
            if !is_answered && String::from_utf8_lossy(&seen).contains("[y/N]") {
                is_answered = true;
                terminal.write_all(answer.as_bytes()).unwrap();
            }
        }
        (child.wait().unwrap().code(), String::from_utf8_lossy(&seen).into_owned())
    };
    let (code, seen) = query("n\n", "one", "xterm");
    assert!(code == Some(1) && seen.contains("bare (Linux "), "{seen}");
    assert!(
        seen.contains("has no sabul. Upload this program, ") && seen.contains("--push"),
        "{seen}"
    );
    assert!(!bridge.path("home/one").exists() && !bridge.path("home/.cache").exists());
    for (name, term) in [("two", "xterm"), ("three", "dumb")] {
        let (code, seen) = query("y\n", name, term);
        assert!(code == Some(0) && seen.contains("sending sabul to bare: "), "{term}: {seen}");
        assert_eq!(fs::read(bridge.path("home").join(name)).unwrap(), b"x");
        fs::remove_dir_all(bridge.path("home/.cache")).unwrap();
    }
}

#[test]
fn perf_measures_a_host_that_ssh_reaches() {
    let bridge = Bridge::new();
    let output = run(&mut bridge.sabul(&["perf", "host:", "-n", "3M", "--json"]));
    expect_code(&output, 0);
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["bytes"], 3 << 20, "{document}");
    bridge.expect_no_process();
    let output = run(&mut bridge.sabul(&["perf", "me@denied:"]));
    expect_words(&output, 4, &["could not log in"]);
}

#[test]
fn push_refuses_a_machine_of_another_kind() {
    let bridge = Bridge::new();
    fs::write(bridge.path("near/a"), "x").unwrap();
    bridge.program("bin/uname", "#!/bin/sh\necho Linux pdp11\n");
    expect_words(&bridge.try_cp(&["--push", "a", "host:"]), 2, &["Linux pdp11", "--push[=FILE]"]);
    // ELF header of a program for riscv64.
    let other = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x02\0\xf3\0";
    fs::write(bridge.path("near/other"), other).unwrap();
    let output = bridge.try_cp(&["--push=other", "a", "host:"]);
    expect_words(&output, 2, &["upload other to host", "for Linux riscv64", "for Linux pdp11"]);
    let left = fs::read_dir(bridge.path("home/.cache/sabul")).unwrap();
    assert!(left.flatten().all(|entry| fs::metadata(entry.path()).unwrap().len() == 0));
}

#[test]
fn push_refuses_a_file_that_is_no_program() {
    let bridge = Bridge::new();
    fs::write(bridge.path("near/a"), "echo ran >&2\n").unwrap();
    let output = bridge.try_cp(&["--push=a", "a", "bare:"]);
    expect_words(&output, 2, &["cannot upload 'a'", "no ELF program", "--push[=FILE]"]);
    // Another program of the right processor arrives, and replaces nothing.
    expect_code(&bridge.try_cp(&["--push", "a", "bare:"]), 0);
    let output = bridge.try_cp(&["--push=/bin/ls", "a", "bare:"]);
    expect_words(&output, 6, &["cannot run there", "its --version prints no version of sabul"]);
    expect_code(&bridge.try_cp(&["a", "bare:b"]), 0);
}

#[test]
fn ports_in_use_are_named() {
    let bridge = Bridge::new();
    fs::write(bridge.path("near/a"), "x").unwrap();
    let taken = std::net::TcpListener::bind("0.0.0.0:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let output = bridge.try_cp(&["--ports", &port, "a", "host:"]);
    expect_words(&output, 1, &["host: every port of", &port, "--ports"]);
}

#[test]
fn the_address_is_taken_from_ssh_or_else_from_the_host_name() {
    let bridge = Bridge::new();
    fs::write(bridge.path("near/a"), "x").unwrap();
    // No host answers at 192.0.2.1, a documentation address; the host's name leads to this machine.
    expect_code(&bridge.try_cp(&["a", "elsewhere:b"]), 0);
    assert_eq!(fs::read(bridge.path("home/b")).unwrap(), b"x");
}

#[test]
fn an_interrupted_or_killed_copy_leaves_no_remote_process() {
    for (signal, carrier) in
        [(Signal::INT, "auto"), (Signal::KILL, "auto"), (Signal::INT, "ssh"), (Signal::KILL, "ssh")]
    {
        let bridge = Bridge::new();
        let mut command = bridge.cp(&["--carrier", carrier, "--bwlimit", "8M", "a", "host:b"]);
        fs::write(bridge.path("near/a"), content(5, 8 << 20)).unwrap();
        let mut copying = Running::start(&mut command);
        crate::common::wait_for_part(&bridge.path("home"));
        assert!(!copying.is_over());
        copying.signal(signal);
        let output = copying.finish();
        if signal == Signal::INT {
            expect_words(&output, 130, &["interrupted"]);
        }
        bridge.expect_no_process();
        assert!(!bridge.path("home/b").exists());
    }
}

#[test]
fn the_remote_process_ends_when_ssh_ends() {
    let bridge = Bridge::new();
    fs::write(bridge.path("near/a"), content(6, 8 << 20)).unwrap();
    let copying = Running::start(&mut bridge.cp(&["--bwlimit", "8M", "a", "host:b"]));
    crate::common::wait_for_part(&bridge.path("home"));
    kill_process(bridge.far(), Signal::KILL).unwrap();
    let output = copying.finish();
    assert_ne!(crate::common::code(&output), 0);
    assert!(!bridge.path("home/b").exists());
}

#[test]
fn remote_text_and_local_names_are_escaped_on_the_terminal() {
    let bridge = Bridge::new();
    fs::write(bridge.path("near/a"), "x").unwrap();
    let output = bridge.try_cp(&["a", "steering:"]);
    expect_words(&output, 1, &["owned", "red"]);
    let json = bridge.try_cp(&["--json", "a", "steering:"]);
    let name = bridge.try_cp(&["\u{1b}[31ma'b:c", "a"]);
    expect_words(&name, 2, &["\\u{1b}[31ma"]);
    for output in [output, json, name] {
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8(said).unwrap();
        assert!(!said.replace('\n', "").contains(sabul_content::steers), "{said:?}");
    }
}

/// Makes the host unreachable for everything but the replacement for ssh: nothing answers at a documentation address.
fn only_ssh(command: &mut Command) -> &mut Command {
    command.env("FAKE_ADDRESS", "192.0.2.1")
}

fn carrier(output: &Output) -> (String, String) {
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let text = |key: &str| json[key].as_str().unwrap().to_owned();
    (text("carrier"), text("carrier_reason"))
}

#[test]
fn the_connection_of_ssh_carries_files_both_ways_with_one_login() {
    let bridge = Bridge::new();
    let bytes = content(7, 9_000_001);
    fs::write(bridge.path("near/a.bin"), &bytes).unwrap();
    let output = bridge.try_cp(&["--carrier", "ssh", "--json", "a.bin", "host:"]);
    expect_code(&output, 0);
    assert_eq!(carrier(&output), ("ssh".to_owned(), "as requested".to_owned()));
    assert_eq!(fs::read(bridge.path("home/a.bin")).unwrap(), bytes);
    bridge.expect_no_process();
    assert_eq!(bridge.calls().lines().filter(|call| call.contains("serve --stdio")).count(), 1);
    let output = bridge.try_cp(&["--carrier", "ssh", "host:a.bin", "b.bin"]);
    expect_words(&output, 0, &["verified", "over ssh: as requested"]);
    assert_eq!(fs::read(bridge.path("near/b.bin")).unwrap(), bytes);
    fs::create_dir_all(bridge.path("near/tree/sub")).unwrap();
    for name in ["tree/a", "tree/sub/b", "tree/sub/c"] {
        fs::write(bridge.path("near").join(name), name).unwrap();
    }
    expect_code(&bridge.try_cp(&["--carrier", "ssh", "-r", "tree", "host:"]), 0);
    assert_eq!(fs::read(bridge.path("home/tree/sub/c")).unwrap(), b"tree/sub/c");
    bridge.expect_no_process();
}

#[test]
fn a_host_without_a_reachable_port_is_reached_through_ssh() {
    let bridge = Bridge::new();
    fs::write(bridge.path("near/a"), content(8, 300_000)).unwrap();
    let output = run(only_ssh(&mut bridge.cp(&["a", "elsewhere:b"])));
    expect_words(&output, 0, &["over ssh: no other port answers"]);
    assert_eq!(fs::read(bridge.path("home/b")).unwrap(), content(8, 300_000));
    let output = run(only_ssh(&mut bridge.sabul(&["ls", "elsewhere:"])));
    expect_code(&output, 0);
    assert!(String::from_utf8_lossy(&output.stdout).contains('b'));
    for name in ["udp", "tcp"] {
        let output = run(only_ssh(&mut bridge.cp(&["--carrier", name, "a", "elsewhere:c"])));
        expect_words(&output, 3, &["is unreachable", "go through ssh", "--ports and --carrier"]);
    }
    bridge.expect_no_process();
}

/// Returns the length of the incomplete file in this directory.
fn part_length(directory: &Path) -> u64 {
    let entries = fs::read_dir(directory).unwrap().flatten();
    let parts =
        entries.filter(|entry| entry.file_name().to_string_lossy().ends_with(".sabul-part"));
    parts.filter_map(|entry| entry.metadata().ok()).map(|facts| facts.len()).sum()
}

#[test]
fn a_copy_through_ssh_is_resumed_after_the_end_of_ssh() {
    let bridge = Bridge::new();
    let bytes = content(9, 24 << 20);
    fs::write(bridge.path("home/b"), &bytes).unwrap();
    let flags = ["--carrier", "ssh", "--bwlimit", "64M", "host:b", "a"];
    let copying = Running::start(&mut bridge.cp(&flags));
    wait_for("some blocks", || part_length(&bridge.path("near")) >= 12 << 20);
    kill_process(bridge.far(), Signal::KILL).unwrap();
    expect_words(&copying.finish(), 3, &["ssh or the program at its other end has ended"]);
    bridge.expect_no_process();
    expect_words(&bridge.try_cp(&["--carrier", "ssh", "host:b", "a"]), 0, &["resumed", "verified"]);
    assert_eq!(fs::read(bridge.path("near/a")).unwrap(), bytes);
}

#[test]
fn the_carrier_ssh_needs_a_host_that_ssh_reaches() {
    let bridge = Bridge::new();
    fs::write(bridge.path("near/a"), "x").unwrap();
    let output = bridge.try_cp(&["--carrier", "ssh", "a", "sabul://127.0.0.1:1/"]);
    expect_words(&output, 2, &["--carrier ssh", "HOST:PATH"]);
}

#[test]
fn a_copy_to_several_hosts_leaves_this_machine_once() {
    let bridge = Bridge::new();
    fs::create_dir(bridge.path("near/data")).unwrap();
    for number in 0..5_u8 {
        let bytes = content(number.into(), 100_000);
        fs::write(bridge.path(format!("near/data/f{number}")), bytes).unwrap();
    }
    let output = run(&mut bridge.cp(&["-r", "--json", "data", "a:one", "b:two/", "c:three"]));
    expect_code(&output, 0);
    let mut from = Vec::new();
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let document: serde_json::Value = serde_json::from_str(line).unwrap();
        crate::common::schema::expect(&document, "cp-sites");
        from.push(document["from"].as_str().unwrap().to_owned());
    }
    let again = run(&mut bridge.cp(&["-r", "--json-lines", "data", "a:one", "b:two/", "c:three"]));
    expect_code(&again, 0);
    let lines = String::from_utf8_lossy(&again.stdout).into_owned();
    let done = lines.lines().filter(|line| line.contains("\"done\""));
    assert!(
        done.clone().count() >= 3 && done.clone().all(|line| line.contains("\"place\"")),
        "{lines}"
    );
    from.sort();
    assert_eq!(from, ["a:one/", "b:two/", "this machine"], "{}", stderr(&output));
    for site in ["one", "two", "three"] {
        for number in 0..5_u8 {
            let path = bridge.path(format!("home/{site}/data/f{number}"));
            assert!(
                fs::read(&path).unwrap() == content(number.into(), 100_000),
                "{}",
                path.display()
            );
        }
    }
}

#[test]
fn a_host_that_fails_does_not_stop_the_next_one() {
    let bridge = Bridge::new();
    fs::write(bridge.path("near/x"), "text").unwrap();
    let output = run(&mut bridge.cp(&["x", "a:one", "denied:two", "c:three"]));
    expect_code(&output, 4);
    assert!(stderr(&output).contains("denied:two/: "), "{}", stderr(&output));
    for site in ["one", "three"] {
        assert_eq!(fs::read_to_string(bridge.path(format!("home/{site}/x"))).unwrap(), "text");
    }
    for wrong in [&["x/", "a:", "b:"][..], &["--dry-run", "x", "a:", "b:"]] {
        expect_code(&run(&mut bridge.cp(wrong)), 2);
    }
}

#[test]
fn a_copy_to_several_hosts_that_is_killed_leaves_no_copy_running() {
    let bridge = Bridge::new();
    fs::write(bridge.path("near/x"), content(10, 24 << 20)).unwrap();
    let copying = Running::start(&mut bridge.cp(&["--bwlimit", "16M", "x", "a:one", "b:two"]));
    // Any thread may have started a copy.
    let children = || {
        let tasks = fs::read_dir(format!("/proc/{}/task", copying.id())).unwrap().flatten();
        let lists = tasks.map(|task| fs::read_to_string(task.path().join("children")).unwrap());
        let ids = lists.collect::<Vec<_>>().join(" ");
        ids.split_whitespace().map(|id| Pid::from_raw(id.parse().unwrap()).unwrap()).collect()
    };
    wait_for("the first bytes", || {
        bridge.path("home/one").is_dir() && part_length(&bridge.path("home/one")) > 1 << 20
    });
    let all: Vec<Pid> = children();
    assert!(!all.is_empty());
    copying.signal(Signal::KILL);
    copying.finish();
    wait_for("the end of the copies", || all.iter().all(|pid| test_kill_process(*pid).is_err()));
    bridge.expect_no_process();
    assert!(!bridge.path("home/one/x").exists(), "the copy ended by itself");
}

#[test]
fn the_list_of_another_machine_cannot_control_the_terminal() {
    let bridge = Bridge::new();
    let job = concat!(
        r#"{"id":1,"state":"\u001b[31mx","priority":0,"name":null,"command":["cp"],"directory":"/","hook":null,"#,
        r#""is_hook_done":false,"attempts":0,"failures":0,"retry_for_s":1.0,"added_s":1.0,"next_s":null,"#,
        r#""started_s":null,"ended_s":null,"bytes":0,"bytes_total":null,"goodput_bps":0.0,"exit":null,"message":null}"#
    );
    let list = format!(r#"{{"schema":1,"runner_pid":null,"jobs":[{job}]}}"#);
    let version = env!("CARGO_PKG_VERSION");
    bridge.program(
        "bin/sabul",
        &format!(
            "#!/bin/sh\n[ \"$1\" = --version ] && echo 'sabul {version}' || printf '%s' '{list}'\n"
        ),
    );
    let output = run(&mut bridge.sabul(&["queue", "list", "host:"]));
    expect_code(&output, 0);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("\\u{1b}[31mx") && !text.contains('\u{1b}'), "{text:?}");
}

#[test]
fn the_queue_of_another_machine_is_listed_and_ssh_never_prompts_in_a_job() {
    let bridge = Bridge::new();
    let mut add = sabul();
    add.args(["queue", "add", "--name", "there", "--", "cp", "a", "h:"]);
    expect_code(&run(add.env("HOME", bridge.path("home")).env_remove("XDG_STATE_HOME")), 0);
    let output = run(&mut bridge.sabul(&["queue", "list", "me@host:"]));
    expect_words(&output, 0, &["no runner runs"]);
    assert!(
        String::from_utf8_lossy(&output.stdout).contains("there: cp a h:; priority 0"),
        "{output:?}"
    );
    expect_words(&run(&mut bridge.sabul(&["queue", "list", "host:a"])), 2, &["[USER@]HOST:"]);
    expect_code(&run(&mut bridge.sabul(&["queue", "list", "refused:"])), 3);
    fs::write(bridge.path("near/a"), "x").unwrap();
    expect_code(&bridge.try_cp(&["--batch", "a", "host:b"]), 0);
    assert!(bridge.calls().contains("-oBatchMode=yes"), "{}", bridge.calls());
}
