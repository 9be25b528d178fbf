//! Copies between two servers, of which one dials the other.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;

use crate::common::{
    Bench, Running, content, expect_code, files_below, json, run, stderr, wait_for_part,
};

const SERVE: [&str; 4] = ["serve", "--root", "root", "--json-lines"];
const DIAL: [&str; 2] = ["--dial", "127.0.0.1"];

/// Two servers, and a client with the tickets of both.
struct Pair {
    from: Bench,
    to: Bench,
}

impl Pair {
    /// Starts the servers with these flags.
    fn new(from: &[&str], to: &[&str]) -> Self {
        let serve = |flags: &[&str]| Bench::with(&[&SERVE[..], flags].concat());
        Self { from: serve(from), to: serve(to) }
    }

    /// The usual pair: the first server may dial.
    fn usual() -> Self {
        Self::new(&DIAL, &[])
    }

    fn to_ticket(&self) -> PathBuf {
        self.to.path("ticket")
    }

    /// Returns `sabul cp` of these sources to this destination.
    fn cp(&self, flags: &[&str], source: &str, destination: &str) -> Command {
        let mut command = self.from.cp(flags);
        command.arg("--to-ticket").arg(self.to_ticket());
        command.arg(self.from.url(source)).arg(self.to.url(destination));
        command
    }

    /// Returns `sabul sync` of this source to this destination.
    fn sync(&self, flags: &[&str], source: &str, destination: &str) -> Command {
        let mut command = self.from.sabul();
        command.arg("sync").args(flags);
        for (flag, bench) in [("--ticket", &self.from), ("--to-ticket", &self.to)] {
            command.arg(flag).arg(bench.path("ticket"));
        }
        command.arg(self.from.url(source)).arg(self.to.url(destination));
        command
    }

    /// Ends both servers; returns their exit codes and events.
    fn end(&mut self) -> [(Option<i32>, Vec<Value>); 2] {
        [&mut self.from, &mut self.to].map(|bench| {
            let server = bench.server.take().unwrap();
            server.signal(Signal::TERM);
            let output = server.finish();
            let lines = output.stdout.split(|&byte| byte == b'\n').filter(|line| !line.is_empty());
            let events = lines.map(|line| serde_json::from_slice(line).unwrap()).collect();
            (output.status.code(), events)
        })
    }
}

fn expect_words(output: &Output, code: i32, words: &[&str]) {
    expect_code(output, code);
    let text = stderr(output);
    for word in words {
        assert!(text.contains(word), "'{word}' is missing: {text}");
    }
}

/// Bytes of the sessions of a server, in ascending order.
fn bytes_of_sessions(events: &[Value]) -> Vec<u64> {
    let sessions = events.iter().filter(|event| event["event"] == "session");
    let mut bytes: Vec<_> = sessions.map(|event| event["bytes"].as_u64().unwrap()).collect();
    bytes.sort_unstable();
    bytes
}

#[test]
fn files_and_directories_go_from_server_to_server() {
    let mut pair = Pair::usual();
    let (big, small) = (content(1, 3 << 20), content(2, 1000));
    fs::create_dir_all(pair.from.root("run/deep")).unwrap();
    fs::write(pair.from.root("big"), &big).unwrap();
    fs::write(pair.from.root("run/deep/small"), &small).unwrap();
    let output = run(&mut pair.cp(&[], "big", "named"));
    expect_words(&output, 0, &["3.0 MiB in 1 file", "verified, durable"]);
    assert_eq!(fs::read(pair.to.root("named")).unwrap(), big);
    let output = run(&mut pair.cp(&["-r", "--json"], "run", "in/"));
    expect_code(&output, 0);
    let document = json(&output);
    assert_eq!((&document["bytes"], &document["files"]), (&1000.into(), &1.into()), "{document}");
    assert_eq!((&document["exit"], &document["verified"]), (&0.into(), &true.into()), "{document}");
    assert!(document.get("event").is_none(), "{document}");
    assert_eq!(fs::read(pair.to.root("in/run/deep/small")).unwrap(), small);
    let output = run(&mut pair.cp(&["--json-lines", "--carrier", "tcp"], "big", ""));
    expect_code(&output, 0);
    let last = String::from_utf8(output.stdout).unwrap();
    let last: Value = serde_json::from_str(last.lines().last().unwrap()).unwrap();
    assert_eq!((&last["event"], &last["carrier"]), (&"done".into(), &"tcp".into()), "{last}");
    // The client's own sessions with the destination carry no content of files.
    let [_, (_, events)] = pair.end();
    assert_eq!(bytes_of_sessions(&events), [0, 0, 0, 1000, 3 << 20, 3 << 20]);
}

#[test]
fn the_destination_dials_if_the_source_may_not() {
    let pair = Pair::new(&[], &DIAL);
    fs::create_dir(pair.from.root("run")).unwrap();
    fs::write(pair.from.root("run/x"), content(3, 1 << 20)).unwrap();
    let output = run(&mut pair.cp(&["-rv"], "run", ""));
    expect_words(&output, 0, &["the destination dialled the source", "1.0 MiB in 1 file"]);
    assert_eq!(fs::read(pair.to.root("run/x")).unwrap(), content(3, 1 << 20));
}

#[test]
fn rules_for_names_hold_between_servers() {
    for (from, to) in [(&DIAL[..], &[][..]), (&[], &DIAL)] {
        let pair = Pair::new(from, to);
        fs::create_dir(pair.from.root("run")).unwrap();
        fs::write(pair.from.root("run/x"), "x").unwrap();
        fs::write(pair.from.root("run/y.o"), "y").unwrap();
        let output = run(&mut pair.cp(&["-r", "--exclude", "*.o"], "run", ""));
        expect_words(&output, 0, &["1 file"]);
        assert_eq!(files_below(&pair.to.root("run")).len(), 1);
    }
}

/// Sends a tree twice with these flags, with a change in between. Returns the last line of each command.
fn copied_again(pair: &Pair, flags: &[&str], destination: &str) -> [String; 2] {
    fs::create_dir_all(pair.from.root("run/deep")).unwrap();
    fs::write(pair.from.root("run/same"), content(7, 5000)).unwrap();
    fs::write(pair.from.root("run/deep/changes"), content(8, 1000)).unwrap();
    let copy = |flags: &[&str]| {
        let output = run(&mut pair.cp(flags, "run", destination));
        expect_code(&output, 0);
        stderr(&output).lines().last().unwrap_or_default().to_owned()
    };
    copy(&["-r"]);
    let unchanged = copy(&[&["-r"][..], flags].concat());
    fs::write(pair.from.root("run/deep/changes"), content(9, 2000)).unwrap();
    fs::write(pair.from.root("run/new"), "new").unwrap();
    let changed = copy(&[&["-r"][..], flags].concat());
    let there = pair.to.root(destination).join("run");
    assert_eq!(fs::read(there.join("deep/changes")).unwrap(), content(9, 2000));
    assert_eq!(fs::read(there.join("new")).unwrap(), b"new");
    [unchanged, changed]
}

#[test]
fn a_repeated_copy_sends_only_what_differs() {
    for (from, to) in [(&DIAL[..], &[][..]), (&[], &DIAL)] {
        for (flags, destination) in [(&[][..], "in/"), (&["-c"], ""), (&["-a"], "deep/er/")] {
            let pair = Pair::new(from, to);
            let [unchanged, changed] = copied_again(&pair, flags, destination);
            assert!(
                unchanged.contains("nothing to copy; 2 files (5.9 KiB) there already"),
                "{unchanged}"
            );
            assert!(changed.contains("2.0 KiB in 2 files"), "{changed}");
            assert!(changed.contains("1 file (4.9 KiB) there already"), "{changed}");
        }
    }
}

#[test]
fn again_sends_everything() {
    let pair = Pair::usual();
    let [unchanged, changed] = copied_again(&pair, &["--again"], "");
    assert!(unchanged.contains("5.9 KiB in 2 files"), "{unchanged}");
    assert!(changed.contains("in 3 files"), "{changed}");
}

#[test]
fn a_file_between_servers_is_compared_under_its_new_name() {
    let pair = Pair::usual();
    fs::write(pair.from.root("x"), content(10, 3000)).unwrap();
    for (destination, words) in [
        ("y", "2.9 KiB in 1 file"),
        ("y", "nothing to copy; 1 file (2.9 KiB) there already"),
        ("", "2.9 KiB in 1 file"),
        ("x", "nothing to copy; 1 file"),
    ] {
        let output = run(&mut pair.cp(&["--json"], "x", destination));
        expect_code(&output, 0);
        let skipped = u64::from(words.starts_with("nothing"));
        assert_eq!(json(&output)["skipped_files"], skipped, "{destination}");
        assert_eq!(json(&output)["files"], 1 - skipped, "{destination}");
        assert_eq!(json(&output)["verified"], true, "{destination}");
    }
    fs::write(pair.from.root("z"), "z").unwrap();
    // A pattern is expanded by the server, and all its matches are sent.
    expect_words(&run(&mut pair.cp(&[], "[xz]", "")), 0, &["2 files"]);
    expect_words(&run(&mut pair.cp(&[], "x", "")), 0, &["nothing to copy; 1 file"]);
    // An entry that cannot be read is a failure, although another one is copied.
    let mut both = pair.from.cp(["--to-ticket"]);
    both.arg(pair.to_ticket()).args([pair.from.url("z"), pair.from.url("none"), pair.to.url("")]);
    let output = run(&mut both);
    expect_words(&output, 1, &["none"]);
}

/// Names of the entries below a directory with kind, permission bits, time and content.
fn tree(directory: &Path) -> BTreeMap<PathBuf, (u32, i64, Vec<u8>)> {
    let mut found = BTreeMap::new();
    let mut ahead = vec![directory.to_owned()];
    while let Some(path) = ahead.pop() {
        let metadata = fs::symlink_metadata(&path).unwrap();
        let content = match metadata.is_dir() {
            true => {
                ahead.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
                Vec::new()
            }
            false if metadata.is_symlink() => {
                fs::read_link(&path).unwrap().into_os_string().into_encoded_bytes()
            }
            false => fs::read(&path).unwrap(),
        };
        let name = path.strip_prefix(directory).unwrap().to_owned();
        found.insert(name, (metadata.mode(), metadata.mtime(), content));
    }
    found
}

fn expect_equal(pair: &Pair) {
    let (from, to) = (tree(&pair.from.root("run")), tree(&pair.to.root("copy")));
    let names = |tree: &BTreeMap<PathBuf, _>| tree.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&from), names(&to));
    for (name, entry) in from {
        // Only an archive keeps the times of links.
        assert_eq!(entry, to[&name], "{}", name.display());
    }
}

#[test]
fn trees_of_two_servers_become_equal() {
    const REMOVES: &[&str] = &["--allow-rm"];
    for (from, to) in [(&DIAL[..], REMOVES), (&[], &[&DIAL[..], REMOVES].concat()[..])] {
        let pair = Pair::new(from, to);
        let at = |name: &str| pair.from.root("run").join(name);
        let sync = |flags: &[&str], code, words: &[&str]| {
            let flags = [&["-a", "--delete", "--delete-limit", "100"], flags].concat();
            let output = run(&mut pair.sync(&flags, "run/", "copy"));
            expect_words(&output, code, words);
            output
        };
        fs::create_dir_all(at("deep/er")).unwrap();
        fs::create_dir(at("empty")).unwrap();
        for (name, size) in [("a", 1000), ("deep/b", 100_000), ("deep/er/c", 0), ("changes", 70)] {
            fs::write(at(name), content(3, size)).unwrap();
        }
        std::os::unix::fs::symlink("a", at("link")).unwrap();
        sync(&[], 0, &["in 4 files"]);
        expect_equal(&pair);
        sync(&[], 0, &["nothing to copy; 4 files"]);
        // Content, metadata, removal, a directory in place of a file and the reverse.
        fs::write(at("changes"), content(1, 71)).unwrap();
        fs::set_permissions(at("a"), fs::Permissions::from_mode(0o600)).unwrap();
        fs::set_permissions(at("deep"), fs::Permissions::from_mode(0o700)).unwrap();
        fs::remove_file(at("deep/b")).unwrap();
        fs::create_dir(at("deep/b")).unwrap();
        fs::write(at("deep/b/new"), "new").unwrap();
        fs::remove_dir(at("empty")).unwrap();
        fs::write(at("empty"), "full").unwrap();
        fs::remove_file(at("deep/er/c")).unwrap();
        let before = tree(&pair.to.root("copy"));
        let dry = sync(&["-n"], 0, &["dry run: would copy"]);
        let lines = String::from_utf8(dry.stdout).unwrap();
        for line in ["<f.st...... changes", "*deleting   deep/er/c", ".f...p..... a"] {
            assert!(lines.contains(line), "no '{line}':\n{lines}");
        }
        assert_eq!(tree(&pair.to.root("copy")), before);
        sync(&[], 0, &["in 3 files", "3 entries removed"]);
        expect_equal(&pair);
        sync(&["-c"], 0, &["nothing to copy"]);
    }
}

#[test]
fn a_sync_between_servers_removes_only_within_its_limits() {
    let pair = Pair::new(&DIAL, &["--allow-rm"]);
    fs::create_dir(pair.from.root("run")).unwrap();
    fs::create_dir(pair.to.root("copy")).unwrap();
    for (at, name) in [(&pair.from, "run/x"), (&pair.to, "copy/y"), (&pair.to, "copy/z")] {
        fs::write(at.root(name), name).unwrap();
    }
    let limited = run(&mut pair.sync(&["--delete"], "run/", "copy/"));
    expect_words(&limited, 1, &["nothing was removed: 2 of 2 entries", "--delete-limit 2"]);
    assert_eq!(files_below(&pair.to.root("copy")).len(), 3);
    let flags = ["--delete", "--delete-limit=2", "--trash=old", "--json"];
    let output = run(&mut pair.sync(&flags, "run/", "copy/"));
    expect_code(&output, 0);
    assert_eq!(json(&output)["removed"], 2);
    assert_eq!(files_below(&pair.to.root("copy")).len(), 1);
    assert_eq!(files_below(&pair.to.root("old")).len(), 2);
    // An empty directory is made, and is no reason to remove the other one.
    fs::create_dir(pair.from.root("none")).unwrap();
    let output = run(&mut pair.sync(&["--delete"], "none/", "new"));
    expect_code(&output, 0);
    assert!(pair.to.root("new").is_dir());
    let output = run(&mut pair.sync(&["--delete", "--delete-limit=9"], "none/", "copy"));
    expect_words(&output, 1, &["the source is empty"]);
    assert_eq!(files_below(&pair.to.root("copy")).len(), 1);
    // A server without --allow-rm removes nothing.
    let pair = Pair::usual();
    fs::create_dir(pair.from.root("run")).unwrap();
    fs::write(pair.from.root("run/x"), "x").unwrap();
    fs::write(pair.to.root("y"), "y").unwrap();
    let output = run(&mut pair.sync(&["--delete", "--delete-limit=9"], "run/", ""));
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert_eq!(files_below(&pair.to.root("")).len(), 2);
}

#[test]
fn a_sync_whose_source_dies_removes_nothing() {
    let mut pair = Pair::new(&[], &[&DIAL[..], &["--allow-rm"]].concat());
    fs::create_dir(pair.from.root("run")).unwrap();
    fs::write(pair.from.root("run/x"), content(12, 24 << 20)).unwrap();
    fs::create_dir(pair.to.root("copy")).unwrap();
    fs::write(pair.to.root("copy/extra"), "extra").unwrap();
    let flags = ["--delete", "--delete-limit=9", "--bwlimit=16M", "--timeout=5"];
    let copying = Running::start(&mut pair.sync(&flags, "run/", "copy"));
    wait_for_part(&pair.to.root("copy"));
    let server = pair.from.server.take().unwrap();
    server.signal(Signal::KILL);
    server.finish();
    assert_eq!(copying.finish().status.code(), Some(3));
    assert_eq!(fs::read(pair.to.root("copy/extra")).unwrap(), b"extra");
}

#[test]
fn a_server_dials_only_with_permission_and_only_permitted_addresses() {
    for (flags, part) in [
        (&[][..], "this server dials no other server"),
        (&["--dial", "192.0.2.0/24,127.0.0.2"], "its --dial permits other addresses"),
        (&["--dial", "127.0.0.0/8,!127.0.0.1"], "its --dial permits other addresses"),
    ] {
        let pair = Pair::new(flags, &[]);
        fs::write(pair.from.root("x"), "x").unwrap();
        let output = run(&mut pair.cp(&[], "x", ""));
        expect_words(&output, 1, &["neither server may dial the other", part]);
        assert!(files_below(&pair.to.root("")).is_empty());
    }
}

#[test]
fn a_destination_that_only_lets_files_be_read_says_so() {
    let pair = Pair::new(&DIAL, &[&DIAL[..], &["--read-only"]].concat());
    fs::write(pair.from.root("x"), "x").unwrap();
    let output = run(&mut pair.cp(&[], "x", ""));
    expect_words(&output, 1, &["only lets files be read"]);
    assert!(!stderr(&output).contains("neither"), "{}", stderr(&output));
}

#[test]
fn a_user_needs_the_right_to_have_a_server_dial() {
    let state = ["--state", "state"];
    let pair = Pair::new(&[&DIAL[..], &state].concat(), &[]);
    fs::write(pair.from.root("x"), "x").unwrap();
    for (name, rights, code) in [("reader", "read", 1), ("dialler", "read,dial", 0)] {
        let mut create = pair.from.sabul();
        create.args(["ticket", "create", name, "--rights", rights, "-o", name]).args(state);
        expect_code(&run(&mut create), 0);
        let output = run(&mut pair.cp(&["--ticket", name], "x", ""));
        let words: &[&str] =
            if code == 0 { &["1 file"] } else { &["the rights 'read' and not 'dial'"] };
        expect_words(&output, code, words);
        assert_eq!(pair.to.root("x").exists(), code == 0);
    }
}

#[test]
fn a_destination_outside_the_root_is_refused() {
    let pair = Pair::usual();
    fs::write(pair.from.root("x"), "x").unwrap();
    fs::write(pair.from.path("private"), "x").unwrap();
    for (source, destination) in [("x", "../escaped"), ("../private", "escaped")] {
        let output = run(&mut pair.cp(&[], source, destination));
        assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
        assert!(!pair.to.path("escaped").exists() && !pair.to.root("escaped").exists());
    }
}

#[test]
fn a_wrong_ticket_and_a_missing_server_have_their_exit_codes() {
    let mut pair = Pair::usual();
    fs::write(pair.from.root("x"), "x").unwrap();
    let wrong = |pair: &Pair, address: &str| {
        let mut command = pair.from.cp(["--to-ticket", "ticket"]);
        command.arg(pair.from.url("x")).arg(address);
        command
    };
    // The ticket of the source has another fingerprint than the destination.
    let output = run(&mut wrong(&pair, &pair.to.url("")));
    assert_eq!(output.status.code(), Some(4), "{}", stderr(&output));
    let server = pair.to.server.take().unwrap();
    server.signal(Signal::TERM);
    server.finish();
    expect_words(&run(&mut pair.cp(&[], "x", "")), 3, &["cannot reach"]);
    let mut without = pair.from.cp([pair.from.url("x"), pair.to.url("")]);
    let nothing = run(without.env_remove("SABUL_TICKET_FILE"));
    assert_eq!(nothing.status.code(), Some(2), "{}", stderr(&nothing));
}

#[test]
fn a_destination_that_dies_ends_the_copy() {
    let mut pair = Pair::usual();
    fs::write(pair.from.root("x"), content(4, 24 << 20)).unwrap();
    let copying = Running::start(&mut pair.cp(&["--bwlimit", "16M", "--timeout", "5"], "x", ""));
    wait_for_part(&pair.to.root(""));
    let server = pair.to.server.take().unwrap();
    server.signal(Signal::KILL);
    server.finish();
    let output = copying.finish();
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
    assert!(!stderr(&output).contains("dial"), "no second attempt: {}", stderr(&output));
}

/// The server that dials ends the copy when the client has gone, and so does the other server.
#[test]
fn a_client_that_dies_ends_the_copy_at_both_servers() {
    let mut pair = Pair::usual();
    fs::write(pair.from.root("x"), content(5, 24 << 20)).unwrap();
    let copying = Running::start(&mut pair.cp(&["--bwlimit", "16M"], "x", ""));
    wait_for_part(&pair.to.root(""));
    copying.signal(Signal::KILL);
    copying.finish();
    std::thread::sleep(Duration::from_secs(3));
    // A server that is ended during a session has exit code 130.
    for (code, events) in pair.end() {
        assert_eq!(code, Some(0), "{events:?}");
    }
    assert!(!pair.to.root("x").exists());
}

#[test]
fn an_interrupt_ends_the_copy_and_the_same_command_resumes() {
    let pair = Pair::usual();
    fs::write(pair.from.root("x"), content(6, 24 << 20)).unwrap();
    let copying = Running::start(&mut pair.cp(&["--bwlimit", "32M"], "x", ""));
    wait_for_part(&pair.to.root(""));
    std::thread::sleep(Duration::from_secs(3));
    copying.signal(Signal::INT);
    expect_words(&copying.finish(), 130, &["run the same command again to resume"]);
    let output = run(&mut pair.cp(&["--json"], "x", ""));
    expect_code(&output, 0);
    let document = json(&output);
    assert!(document["resumed_bytes"].as_u64().unwrap() > 0, "{document}");
    assert_eq!(fs::read(pair.to.root("x")).unwrap(), content(6, 24 << 20));
}

#[test]
fn flags_that_do_not_hold_between_servers_are_refused() {
    let pair = Pair::usual();
    for flag in ["--retry=1m", "--receipt=r", "-n", "--relay", "--min-rate=1M"] {
        expect_words(&run(&mut pair.cp(&[flag], "x", "")), 2, &["is not supported"]);
    }
    for flags in [&["-n", "--plan=p"][..], &["--files-from=l"], &["--receipt=r"], &["--relay"]] {
        expect_words(&run(&mut pair.sync(flags, "x/", "y")), 2, &["is not supported"]);
    }
    expect_words(&run(&mut pair.sync(&[], "[x]/", "y")), 2, &["does not support patterns"]);
    let mut single = pair.from.cp(["--to-ticket", "ticket", "."]);
    expect_words(&run(single.arg(pair.to.url(""))), 2, &["--ticket"]);
}
