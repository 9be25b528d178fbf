//! `sabul replicate`: a replica that lacks much takes its files from another replica.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, SystemTime};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::common::{
    Bench, Running, content, expect_code, files_below, run, sabul, stderr, wait_for, wait_for_part,
};
use crate::ssh::Bridge;

/// Bytes of each of the two large files: together above the threshold.
const LARGE: usize = 40 << 20;
/// The copy of one large file takes some seconds.
const SLOW: [&str; 2] = ["--bwlimit", "80M"];

/// Replicas that ssh reaches, and their source with two large files.
struct Sites {
    bridge: Bridge,
}

impl Sites {
    /// The source is at the first replica already.
    fn new() -> Self {
        let sites = Self { bridge: Bridge::new() };
        make_source(&sites.source(""));
        expect_code(&run(&mut sites.command(&["src/", "a:one"])), 0);
        sites
    }

    fn source(&self, name: &str) -> PathBuf {
        self.bridge.path("near/src").join(name)
    }

    /// A path in a replica.
    fn replica(&self, name: &str) -> PathBuf {
        self.bridge.path("home").join(name)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.bridge.sabul(&[&["replicate"], arguments].concat());
        command.env("XDG_STATE_HOME", self.bridge.path("state"));
        command
    }

    /// A pass to the first two replicas.
    fn both(&self, flags: &[&str]) -> Command {
        self.command(&[flags, &["src/", "a:one", "b:two"]].concat())
    }

    /// A pass to the first two replicas, after which both are in step; returns the messages.
    #[track_caller]
    fn pass(&self, flags: &[&str]) -> String {
        let output = run(&mut self.both(flags));
        expect_code(&output, 0);
        self.expect_equal(&["one", "two"]);
        stderr(&output)
    }

    /// Each replica has the files of the source and is in step.
    #[track_caller]
    fn expect_equal(&self, replicas: &[&str]) {
        assert!(in_step(&self.bridge.path("state"), replicas.len()));
        for replica in replicas {
            expect_files(&self.source(""), &self.replica(replica));
        }
    }

    /// Records for each replica that these entries were not compared.
    fn add_unchecked(&self, names: &[&str]) {
        for entry in fs::read_dir(self.bridge.path("state/sabul/replicas")).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|it| it == "db") {
                let database = rusqlite::Connection::open(path).unwrap();
                for name in names {
                    let insertion = "INSERT INTO unchecked VALUES (?1)";
                    database.execute(insertion, [name.as_bytes()]).unwrap();
                }
            }
        }
    }

    /// Ends the process of a host that was started as the `number`th, once there is one.
    fn kill(&self, host: &str, number: usize) {
        let list = self.bridge.path("pids").with_extension(host);
        let started = || fs::read_to_string(&list).unwrap_or_default();
        wait_for("the start of the server", || started().lines().count() >= number);
        let id = started().lines().nth(number - 1).unwrap().parse().unwrap();
        kill_process(Pid::from_raw(id).unwrap(), Signal::KILL).unwrap();
    }
}

fn make_source(source: &Path) {
    fs::create_dir_all(source.join("deep/er")).unwrap();
    fs::write(source.join("a"), content(1, LARGE)).unwrap();
    fs::write(source.join("deep/er/b"), content(2, LARGE)).unwrap();
    fs::write(source.join("deep/c"), "small").unwrap();
}

/// A replica has the files of the source, beside others.
#[track_caller]
fn expect_files(source: &Path, replica: &Path) {
    for name in files_below(source) {
        let is_equal = fs::read(source.join(&name)).unwrap()
            == fs::read(replica.join(&name)).unwrap_or_default();
        assert!(is_equal, "{} in {}", name.display(), replica.display());
    }
}

/// Whether so many replicas are known and all are in step.
fn in_step(state: &Path, replicas: usize) -> bool {
    let output = run(sabul().env("XDG_STATE_HOME", state).args(["replicate", "status", "--json"]));
    expect_code(&output, 0);
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    let states = document["replicas"].as_array().unwrap();
    states.len() == replicas && states.iter().all(|it| it["in_step"] == true)
}

/// Writes another content of the same size and with the same time.
fn hide(path: &Path, seed: u64) {
    let file = fs::File::options().write(true).open(path).unwrap();
    let modified: SystemTime = file.metadata().unwrap().modified().unwrap();
    let size = usize::try_from(file.metadata().unwrap().len()).unwrap();
    fs::write(path, content(seed, size)).unwrap();
    file.set_modified(modified).unwrap();
}

/// Contents of the kept files of a replica.
fn kept(replica: &Path) -> Vec<Vec<u8>> {
    let all = files_below(replica);
    let kept = all.iter().filter(|name| name.to_string_lossy().contains(".kept-"));
    kept.map(|name| fs::read(replica.join(name)).unwrap()).collect()
}

#[track_caller]
fn expect_line(text: &str, line: &str) {
    assert!(text.contains(line), "'{line}' is missing: {text}");
}

#[track_caller]
fn expect_no_catch_up(text: &str) {
    assert!(!text.contains("has sent"), "{text}");
}

#[test]
fn an_empty_replica_takes_all_files_from_another() {
    let sites = Sites::new();
    let text = sites.pass(&[]);
    expect_line(&text, "b:two: a:one has sent 80.0 MiB in 3 files");
    expect_line(&text, "b:two: nothing to copy");
    // Both replicas are in step, so nothing more is taken.
    expect_no_catch_up(&sites.pass(&[]));
}

#[test]
fn the_directory_itself_is_taken_with_its_name() {
    let sites = Sites::new();
    expect_code(&run(&mut sites.command(&["src", "a:in/it"])), 0);
    let output = run(&mut sites.command(&["src", "a:in/it", "b:with space/*"]));
    expect_code(&output, 0);
    expect_line(&stderr(&output), "a:in/it has sent 80.0 MiB in 3 files");
    expect_files(&sites.source(""), &sites.replica("with space/*/src"));
}

#[test]
fn from_writer_takes_nothing_from_another_replica() {
    let sites = Sites::new();
    let text = sites.pass(&["--from-writer"]);
    expect_no_catch_up(&text);
    expect_line(&text, "b:two: 80.0 MiB in 3 files");
}

#[test]
fn a_small_lag_is_left_to_the_writer() {
    let sites = Sites::new();
    fs::remove_file(sites.source("a")).unwrap();
    let text = sites.pass(&[]);
    expect_no_catch_up(&text);
    expect_line(&text, "b:two: 40.0 MiB in 2 files");
}

#[test]
fn a_file_that_was_changed_at_the_other_replica_comes_from_the_writer() {
    let sites = Sites::new();
    // Such a change is not visible in size and time, so the replica itself keeps the file.
    hide(&sites.replica("one/a"), 3);
    let output = run(&mut sites.both(&[]));
    expect_code(&output, 0);
    let text = stderr(&output);
    expect_line(&text, "b:two: a:one has sent 40.0 MiB in 2 files");
    expect_line(&text, "b:two: 40.0 MiB in 1 file");
    expect_files(&sites.source(""), &sites.replica("two"));
    // A visible change is kept beside at its own replica and does not travel.
    fs::remove_dir_all(sites.replica("two")).unwrap();
    fs::write(sites.replica("one/a"), "changed there").unwrap();
    sites.pass(&[]);
    assert_eq!(kept(&sites.replica("one")), [b"changed there"]);
    assert!(kept(&sites.replica("two")).is_empty());
}

#[test]
fn a_file_of_the_replica_itself_is_kept() {
    let sites = Sites::new();
    fs::create_dir_all(sites.replica("two/deep")).unwrap();
    fs::write(sites.replica("two/a"), "own").unwrap();
    fs::write(sites.replica("two/deep/own"), "own, too").unwrap();
    let text = sites.pass(&[]);
    expect_line(&text, "b:two: a:one has sent 40.0 MiB in 2 files");
    assert_eq!(kept(&sites.replica("two")), [b"own"]);
    assert_eq!(fs::read(sites.replica("two/deep/own")).unwrap(), b"own, too");
}

#[test]
fn names_of_one_file_come_from_the_writer_and_stay_one_file() {
    let sites = Sites::new();
    fs::write(sites.source("d"), content(4, LARGE)).unwrap();
    fs::hard_link(sites.source("a"), sites.source("other-name")).unwrap();
    expect_code(&run(&mut sites.command(&["-a", "src/", "a:one"])), 0);
    let text = sites.pass(&["-a"]);
    expect_line(&text, "b:two: a:one has sent 80.0 MiB in 3 files");
    let [a, other] = ["two/a", "two/other-name"].map(|name| fs::metadata(sites.replica(name)));
    assert_eq!(a.unwrap().ino(), other.unwrap().ino());
}

/// A file changes at the other replica after its comparison and before its copy.
#[test]
fn a_content_that_changes_during_the_copy_is_replaced_by_that_of_the_writer() {
    let sites = Sites::new();
    let pass = Running::start(&mut sites.both(&SLOW));
    wait_for_part(&sites.replica("two"));
    hide(&sites.replica("one/deep/er/b"), 3);
    let output = pass.finish();
    expect_code(&output, 0);
    expect_line(&stderr(&output), "b:two: a:one has sent 40.0 MiB in 2 files");
    expect_files(&sites.source(""), &sites.replica("two"));
    assert!(kept(&sites.replica("two")).is_empty(), "nobody has written there");
}

#[test]
fn a_content_that_was_not_compared_before_an_end_is_compared_by_the_next_pass() {
    let sites = Sites::new();
    sites.pass(&[]);
    // As after a copy from a replica that lies, if this command is killed before the comparison.
    let wrong = sites.replica("two/deep/c");
    let modified = fs::metadata(&wrong).unwrap().modified().unwrap();
    fs::write(&wrong, "wrong").unwrap();
    fs::File::options().write(true).open(&wrong).unwrap().set_modified(modified).unwrap();
    sites.add_unchecked(&["deep/c", "gone"]);
    for flags in [&["--from-writer"][..], &[]] {
        sites.pass(flags);
        assert_eq!(kept(&sites.replica("two/deep")), [b"wrong"]);
        assert!(kept(&sites.replica("one/deep")).is_empty());
    }
}

#[test]
fn a_replica_with_a_content_that_was_not_compared_is_not_in_step() {
    let sites = Sites::new();
    sites.pass(&[]);
    sites.add_unchecked(&["deep/c"]);
    // Without a direct path between the replicas, nothing compares the content.
    let output = run(&mut sites.both(&["--relay"]));
    expect_code(&output, 1);
    expect_line(
        &stderr(&output),
        "b:two: the content of 1 entry, first 'deep/c', came from another",
    );
    assert!(!in_step(&sites.bridge.path("state"), 2));
    sites.pass(&[]);
}

#[test]
fn an_empty_directory_is_an_empty_replica() {
    let sites = Sites::new();
    sites.pass(&[]);
    // As without the file system that is mounted there.
    fs::remove_dir_all(sites.replica("two")).unwrap();
    fs::create_dir(sites.replica("two")).unwrap();
    expect_line(&sites.pass(&[]), "b:two: a:one has sent 80.0 MiB in 3 files");
}

#[test]
fn a_file_that_appears_at_the_replica_during_the_copy_is_kept() {
    let sites = Sites::new();
    let pass = Running::start(&mut sites.both(&SLOW));
    wait_for_part(&sites.replica("two"));
    fs::create_dir_all(sites.replica("two/deep/er")).unwrap();
    fs::write(sites.replica("two/deep/er/b"), "own").unwrap();
    let output = pass.finish();
    expect_code(&output, 0);
    expect_line(&stderr(&output), "b:two: a:one has sent 40.0 MiB in 2 files, then failed: ");
    sites.expect_equal(&["one", "two"]);
    assert_eq!(kept(&sites.replica("two")), [b"own"]);
}

#[test]
fn the_writer_sends_the_rest_if_the_other_replica_dies() {
    let sites = Sites::new();
    let pass = Running::start(&mut sites.both(&SLOW));
    wait_for_part(&sites.replica("two"));
    // One server each for the first copy, the pass, and the files of the other replica.
    sites.kill("a", 3);
    let output = pass.finish();
    expect_code(&output, 0);
    let text = stderr(&output);
    expect_line(&text, "b:two: a:one has sent 0 B in 0 files, then failed: ");
    sites.expect_equal(&["one", "two"]);
}

#[test]
fn a_third_replica_sends_the_rest_if_another_one_dies() {
    let sites = Sites::new();
    sites.pass(&[]);
    let places = [&SLOW[..], &["src/", "a:one", "b:two", "c:three"]].concat();
    let pass = Running::start(&mut sites.command(&places));
    wait_for_part(&sites.replica("three"));
    sites.kill("a", 5);
    let output = pass.finish();
    expect_code(&output, 0);
    let text = stderr(&output);
    expect_line(&text, "c:three: a:one has sent 0 B in 0 files, then failed: ");
    expect_line(&text, "c:three: b:two has sent 80.0 MiB in 3 files");
    sites.expect_equal(&["one", "two", "three"]);
}

#[test]
fn a_replica_that_was_away_takes_the_files_while_the_source_is_watched() {
    let sites = Sites::new();
    fs::write(sites.bridge.path("away.b"), "").unwrap();
    let watch = Running::start(&mut sites.both(&["--watch"]));
    wait_for("a failed attempt", || sites.bridge.calls().contains("-- b "));
    fs::write(sites.source("new"), "new").unwrap();
    wait_for("the new file at the first replica", || sites.replica("one/new").exists());
    fs::remove_file(sites.bridge.path("away.b")).unwrap();
    wait_for("the end of a pass", || in_step(&sites.bridge.path("state"), 2));
    watch.signal(Signal::TERM);
    let output = watch.finish();
    expect_code(&output, 0);
    expect_line(&stderr(&output), "b:two: a:one has sent 80.0 MiB in ");
    expect_files(&sites.source(""), &sites.replica("two"));
}

#[test]
fn an_interrupt_during_the_copy_ends_all() {
    let sites = Sites::new();
    let pass = Running::start(&mut sites.both(&SLOW));
    wait_for_part(&sites.replica("two"));
    let begin = SystemTime::now();
    pass.signal(Signal::INT);
    expect_code(&pass.finish(), 130);
    assert!(begin.elapsed().unwrap() < Duration::from_secs(5), "{begin:?}");
    sites.pass(&[]);
}

/// Two standing servers with one authorized key, and a source with two large files that the first one has.
struct Servers {
    sites: [Bench; 2],
}

impl Servers {
    /// `None` without ssh-keygen.
    fn new(flags: [&[&str]; 2]) -> Option<Self> {
        if Command::new("ssh-keygen").arg("-?").output().is_err() {
            println!("skipped: there is no ssh-keygen");
            return None;
        }
        let usual = ["serve", "--root", "root", "--state", "state", "--allow-rm"];
        let sites = flags.map(|flags| Bench::with(&[&usual[..], flags].concat()));
        let near = &sites[0];
        let mut keygen = Command::new("ssh-keygen");
        keygen.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(near.path("key"));
        expect_code(&run(&mut keygen), 0);
        let key = fs::read(near.path("key.pub")).unwrap();
        for site in &sites {
            wait_for("the server's addresses", || site.path("state/addresses").exists());
            fs::write(site.path("state/authorized_keys"), &key).unwrap();
        }
        make_source(&near.path("src"));
        let servers = Self { sites };
        expect_code(&servers.pass(&[&servers.sites[0].url("")]), 0);
        Some(servers)
    }

    fn pass(&self, places: &[&str]) -> Output {
        let near = &self.sites[0];
        let mut command = near.sabul();
        command.env_remove("SABUL_TICKET_FILE").env_remove("SSH_AUTH_SOCK");
        command.env("HOME", near.path("near")).env("XDG_STATE_HOME", near.path("near-state"));
        command.args(["replicate", "--accept-new", "--identity", "key", "src/"]);
        run(command.args(places))
    }

    /// A pass to both servers; returns the messages.
    #[track_caller]
    fn both(&self) -> String {
        let [first, second] = &self.sites;
        let output = self.pass(&[&first.url(""), &second.url("copy")]);
        expect_code(&output, 0);
        assert!(in_step(&first.path("near-state"), 2));
        expect_files(&first.path("src"), &second.root("copy"));
        stderr(&output)
    }
}

#[test]
fn a_server_that_may_dial_takes_the_files_from_another() {
    let Some(servers) = Servers::new([&[], &["--dial", "127.0.0.1"]]) else { return };
    let text = servers.both();
    expect_line(&text, " has sent 80.0 MiB in 3 files");
    expect_line(&text, ": nothing to copy");
}

#[test]
fn a_server_that_may_not_dial_receives_everything_from_the_writer() {
    let Some(servers) = Servers::new([&["--dial", "127.0.0.1"], &[]]) else { return };
    let text = servers.both();
    expect_no_catch_up(&text);
    assert!(!text.contains("dial"), "{text}");
    expect_line(&text, ": 80.0 MiB in 3 files");
}
