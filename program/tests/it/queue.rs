//! `sabul queue`: jobs from their addition to their end, with the built program.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::process::{Command, Output};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use serde_json::Value;

use crate::common::schema::expect;
use crate::common::{Bench, Running, content, expect_code, json, run, stderr, wait_for};

/// A server, and a queue in a directory of its own. Ends the runner that a detached copy started.
struct Queue {
    bench: Bench,
}

impl Queue {
    fn new() -> Self {
        Self { bench: Bench::new() }
    }

    /// Returns the program with the queue of this test.
    fn sabul(&self, words: &[&str]) -> Command {
        let mut command = self.bench.sabul();
        command
            .args(words)
            .env("XDG_STATE_HOME", self.bench.path("state"))
            .env("HOME", self.bench.path(""));
        command
    }

    fn queue(&self, words: &[&str]) -> Output {
        run(&mut self.sabul(&[&["queue"], words].concat()))
    }

    /// Adds a job and returns its number.
    fn add(&self, words: &[&str]) -> String {
        let output = self.queue(&[&["add"], words].concat());
        expect_code(&output, 0);
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    fn show(&self, id: &str) -> Value {
        let output = self.queue(&["show", "--json", id]);
        expect_code(&output, 0);
        json(&output)
    }

    fn state(&self, id: &str) -> String {
        self.show(id)["state"].as_str().unwrap().to_owned()
    }

    fn list(&self) -> Value {
        let output = self.queue(&["list", "--json"]);
        expect_code(&output, 0);
        json(&output)
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        let pid = self.list()["runner_pid"].as_i64().and_then(|pid| i32::try_from(pid).ok());
        if let Some(pid) = pid.and_then(Pid::from_raw) {
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}

#[test]
fn jobs_run_by_priority_then_by_age_and_run_their_hooks() {
    let queue = Queue::new();
    let hooks = queue.bench.path("hooks");
    let hook =
        format!("echo $SABUL_JOB_ID $SABUL_JOB_STATE $SABUL_JOB_EXIT_CODE >>'{}'", hooks.display());
    let url = queue.bench.url("");
    for (name, priority) in [("a", "0"), ("b", "5"), ("c", "5")] {
        fs::write(queue.bench.path(name), name).unwrap();
        queue.add(&["--priority", priority, "--hook", &hook, "--", "cp", name, &url]);
    }
    assert_eq!(queue.list()["runner_pid"], Value::Null);
    for expected in ["2 done 0", "3 done 0", "1 done 0"] {
        expect_code(&queue.queue(&["run", "--once"]), 0);
        let text = fs::read_to_string(&hooks).unwrap();
        assert_eq!(text.lines().last(), Some(expected));
    }
    for name in ["a", "b", "c"] {
        assert_eq!(fs::read_to_string(queue.bench.root(name)).unwrap(), name);
    }
    let list = queue.list();
    expect(&list, "queue-list");
    let job = queue.show("1");
    expect(&job, "queue-job");
    assert_eq!((&job["bytes"], &job["exit"], &job["attempts"]), (&1.into(), &0.into(), &1.into()));
    assert!(job["message"].as_str().unwrap().contains("verified"), "{job}");
    let none = queue.queue(&["run", "--once"]);
    expect_code(&none, 0);
    assert!(stderr(&none).contains("no job is due"), "{}", stderr(&none));
}

#[test]
fn a_detached_copy_starts_a_runner_and_is_done_without_its_command() {
    let queue = Queue::new();
    fs::create_dir(queue.bench.path("tree")).unwrap();
    let bytes = content(1, 300_000);
    fs::write(queue.bench.path("tree/a b"), &bytes).unwrap();
    let url = queue.bench.url("");
    let output = run(&mut queue.sabul(&["cp", "--detach", "-r", "--chmod", "F600", "tree", &url]));
    expect_code(&output, 0);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("job 1: 'sabul queue show 1'"), "{text}");
    assert_eq!(stderr(&output), "");
    wait_for("the end of the job", || queue.state("1") == "done");
    assert_eq!(fs::read(queue.bench.root("tree/a b")).unwrap(), bytes);
    // A runner that has ended starts again.
    wait_for("the end of the runner", || queue.list()["runner_pid"].is_null());
    let output =
        run(&mut queue.sabul(&["sync", "--detach", "--json", "tree/", &format!("{url}other")]));
    expect_code(&output, 0);
    expect(&json(&output), "queue-job");
    assert_eq!(json(&output)["command"][0], "sync");
    wait_for("the end of the second job", || queue.state("2") == "done");
    assert_eq!(fs::read(queue.bench.root("other/a b")).unwrap(), bytes);
}

#[test]
fn a_killed_runner_takes_its_attempt_along_and_the_next_one_continues() {
    let queue = Queue::new();
    let bytes = content(2, 12_000_000);
    fs::write(queue.bench.path("a"), &bytes).unwrap();
    let url = queue.bench.url("");
    queue.add(&["--", "cp", "--bwlimit", "20M", "a", &url]);
    let runner = Running::start(&mut queue.sabul(&["queue", "run"]));
    wait_for("some data", || queue.show("1")["bytes"].as_u64() > Some(1_000_000));
    let other = queue.queue(&["run", "--once"]);
    expect_code(&other, 1);
    assert!(stderr(&other).contains("another runner"), "{}", stderr(&other));
    let attempt = child_of(runner.id());
    runner.signal(Signal::KILL);
    runner.finish();
    wait_for("the end of the attempt", || test_kill_process(attempt).is_err());
    assert_eq!(queue.state("1"), "running");
    let list = queue.queue(&["list"]);
    let line = String::from_utf8(list.stdout.clone()).unwrap();
    assert!(line.contains("interrupted") && line.contains("waits for a runner"), "{line}");
    assert!(stderr(&list).contains("no runner runs; start one"), "{}", stderr(&list));
    let shown = String::from_utf8(queue.queue(&["show", "1"]).stdout).unwrap();
    assert!(shown.contains("state         interrupted"), "{shown}");
    let next = queue.queue(&["run", "--drain"]);
    expect_code(&next, 0);
    assert!(stderr(&next).contains("job 1 was interrupted"), "{}", stderr(&next));
    let job = queue.show("1");
    assert_eq!((&job["state"], &job["attempts"]), (&"done".into(), &2.into()));
    assert_eq!(fs::read(queue.bench.root("a")).unwrap(), bytes);
}

/// Returns the only child of a process.
fn child_of(parent: u32) -> Pid {
    let mut found = None;
    wait_for("a child", || {
        let children = fs::read_to_string(format!("/proc/{parent}/task/{parent}/children"));
        // A thread of the runner starts the child.
        let tasks = fs::read_dir(format!("/proc/{parent}/task")).unwrap().flatten();
        let texts = tasks.map(|task| fs::read_to_string(task.path().join("children")));
        let all = texts.chain([children]).flatten().collect::<String>();
        found = all.split_whitespace().next().and_then(|pid| pid.parse().ok());
        found.is_some()
    });
    Pid::from_raw(found.unwrap()).unwrap()
}

#[test]
fn a_running_job_is_paused_resumed_and_cancelled() {
    let queue = Queue::new();
    fs::write(queue.bench.path("a"), content(3, 12_000_000)).unwrap();
    let url = queue.bench.url("");
    queue.add(&["--name", "slow", "--", "cp", "--bwlimit", "10M", "a", &url]);
    let runner = Running::start(&mut queue.sabul(&["queue", "run"]));
    wait_for("some data", || queue.show("1")["bytes"].as_u64() > Some(100_000));
    expect_code(&queue.queue(&["pause", "1"]), 0);
    wait_for("the pause", || queue.state("1") == "paused");
    expect_code(&queue.queue(&["resume", "1"]), 0);
    wait_for("the second attempt", || queue.state("1") == "running");
    let both = queue.queue(&["cancel", "9", "1"]);
    expect_code(&both, 1);
    assert!(stderr(&both).contains("no job has the number 9"), "{}", stderr(&both));
    wait_for("the end", || queue.state("1") == "cancelled");
    expect_code(&queue.queue(&["pause", "1"]), 1);
    runner.signal(Signal::TERM);
    expect_code(&runner.finish(), 130);
    assert!(!queue.bench.root("a").exists());
    let list = queue.queue(&["list"]);
    let text = String::from_utf8(list.stdout).unwrap();
    assert!(text.contains("1  cancelled        slow: cp --bwlimit 10M a "), "{text}");
}

#[test]
fn a_runner_that_is_interrupted_ends_its_attempts_in_order() {
    let queue = Queue::new();
    fs::write(queue.bench.path("a"), content(4, 12_000_000)).unwrap();
    let url = queue.bench.url("");
    queue.add(&["--", "cp", "--bwlimit", "10M", "a", &url]);
    let runner = Running::start(&mut queue.sabul(&["queue", "run", "--drain"]));
    wait_for("some data", || queue.show("1")["bytes"].as_u64() > Some(100_000));
    runner.signal(Signal::INT);
    expect_code(&runner.finish(), 130);
    let job = queue.show("1");
    assert_eq!((&job["state"], &job["failures"]), (&"waiting".into(), &0.into()));
    assert_eq!(job["exit"], 130);
}

#[test]
fn a_runner_with_a_grace_time_ends_its_running_job_and_starts_no_other() {
    let queue = Queue::new();
    fs::write(queue.bench.path("a"), content(4, 5_000_000)).unwrap();
    let url = queue.bench.url("");
    let hook = format!("touch '{}'", queue.bench.path("hook").display());
    queue.add(&["--hook", &hook, "--", "cp", "--bwlimit", "20M", "a", &url]);
    queue.add(&["--", "cp", "a", &format!("{url}b")]);
    let runner = Running::start(&mut queue.sabul(&["queue", "run", "--grace", "60s"]));
    wait_for("some data", || queue.show("1")["bytes"].as_u64() > Some(100_000));
    runner.signal(Signal::TERM);
    let output = runner.finish();
    expect_code(&output, 130);
    assert!(stderr(&output).contains("no further job starts"), "{}", stderr(&output));
    let job = queue.show("1");
    assert_eq!((&job["state"], &job["attempts"]), (&"done".into(), &1.into()));
    assert!(queue.bench.path("hook").exists());
    assert_eq!(queue.show("2")["attempts"], 0);
    // A job that does not end within the time is interrupted.
    let runner = Running::start(&mut queue.sabul(&["queue", "run", "--grace", "1s"]));
    queue.add(&["--priority", "5", "--", "cp", "--again", "--bwlimit", "1M", "a", &url]);
    wait_for("the slow copy", || queue.state("3") == "running");
    runner.signal(Signal::TERM);
    expect_code(&runner.finish(), 130);
    assert_eq!(queue.state("3"), "waiting");
}

#[cfg(feature = "site")]
#[test]
fn the_address_of_a_store_keeps_its_password_and_names_its_errors() {
    let queue = Queue::new();
    let store = |store: &str, words: &[&str]| {
        let output =
            run(queue.sabul(&[&["queue"], words].concat()).env("SABUL_QUEUE_STORE", store));
        let text = stderr(&output);
        assert!(!text.contains("secret"), "{text}");
        (output.status.code().unwrap(), text)
    };
    let url = "postgres://me:secret@localhost:1/queue";
    let (code, text) = store("", &["--store", url, "list"]);
    assert_eq!(code, 2, "{text}");
    assert!(text.contains("all users of this machine can read"), "{text}");
    let (code, text) = store("postgres://me:secret@db.example.org/queue", &["list"]);
    assert!(code == 2 && text.contains("would not be encrypted"), "{text}");
    let path = queue.bench.path("store");
    fs::write(&path, url).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    let (code, text) = store(path.to_str().unwrap(), &["list"]);
    assert!(code == 2 && text.contains("set its mode to 0600"), "{text}");
    // A command of a user waits for some seconds for the database.
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    let (code, text) = store(path.to_str().unwrap(), &["list"]);
    assert_eq!(code, 3, "{text}");
    assert!(text.contains("'queue' at localhost, does not answer"), "{text}");
    assert!(store("", &["run", "--lease", "2s"]).1.contains("5s to 1h"));
}

#[test]
fn exit_codes_decide_between_retry_failure_and_waiting_for_the_user() {
    let queue = Queue::new();
    fs::write(queue.bench.path("a"), "x").unwrap();
    // An unreachable server, a controller that does not exist, a ticket of another server.
    let other = Bench::new();
    fs::copy(other.path("ticket"), queue.bench.path("other")).unwrap();
    let url = queue.bench.url("");
    queue.add(&["--retry-for", "1s", "--", "cp", "a", "sabul://127.0.0.1:1/"]);
    queue.add(&["--", "cp", "--cc", "nope", "a", &url]);
    queue.add(&["--", "cp", "--ticket", "other", "a", &url]);
    queue.add(&["--", "cp", "--ticket", "missing", "a", &url]);
    expect_code(&queue.queue(&["run", "--drain"]), 0);
    let facts = |id| {
        let job = queue.show(id);
        (job["state"].clone(), job["exit"].clone(), job["attempts"].as_u64().unwrap())
    };
    assert_eq!(facts("1"), ("failed".into(), 3.into(), 2));
    assert_eq!(facts("2"), ("failed".into(), 2.into(), 1));
    assert_eq!(facts("3"), ("waiting-for-you".into(), 4.into(), 1));
    assert_eq!(facts("4"), ("waiting-for-you".into(), 4.into(), 1));
    assert!(queue.show("4")["message"].as_str().unwrap().contains("missing"));
    fs::copy(queue.bench.path("ticket"), queue.bench.path("missing")).unwrap();
    fs::copy(queue.bench.path("ticket"), queue.bench.path("other")).unwrap();
    expect_code(&queue.queue(&["retry", "3", "4"]), 0);
    expect_code(&queue.queue(&["run", "--drain"]), 0);
    assert_eq!(facts("3"), ("done".into(), 0.into(), 2));
    assert_eq!(facts("4"), ("done".into(), 0.into(), 2));
}

#[test]
fn commands_that_the_queue_cannot_run_are_refused_at_once() {
    let queue = Queue::new();
    for words in [&["ls", "h:"][..], &["cp", "-", "h:a"], &["cp", "--frob", "a", "h:"]] {
        let output = queue.queue(&[&["add", "--"], words].concat());
        expect_code(&output, 2);
        assert!(output.stdout.is_empty());
    }
    expect_code(&run(&mut queue.sabul(&["cp", "--detach", "-n", "a", "h:"])), 2);
    expect_code(&queue.queue(&["add", "--not-before", "soon", "--", "cp", "a", "h:"]), 2);
    expect_code(&queue.queue(&["run", "--timetable", "8-18 fast"]), 2);
    assert_eq!(queue.list()["jobs"], Value::Array(Vec::new()));
}

#[test]
fn a_job_whose_directory_is_gone_names_the_directory() {
    let queue = Queue::new();
    let directory = queue.bench.path("gone");
    fs::create_dir(&directory).unwrap();
    let url = queue.bench.url("");
    let added = run(queue.sabul(&["queue", "add", "--", "cp", "a", &url]).current_dir(&directory));
    expect_code(&added, 0);
    fs::remove_dir(&directory).unwrap();
    queue.queue(&["run", "--once"]);
    let message = queue.show("1")["message"].as_str().unwrap().to_owned();
    assert!(message.contains(directory.to_str().unwrap()), "{message}");
}

#[test]
fn a_job_waits_for_its_time() {
    let queue = Queue::new();
    fs::write(queue.bench.path("a"), "x").unwrap();
    let url = queue.bench.url("");
    queue.add(&["--not-before", "2d", "--", "cp", "a", &url]);
    expect_code(&queue.queue(&["run", "--once"]), 0);
    assert_eq!(queue.state("1"), "waiting");
    let wait =
        queue.show("1")["next_s"].as_f64().unwrap() - queue.show("1")["added_s"].as_f64().unwrap();
    assert!((172_799.0..172_801.0).contains(&wait), "{wait}");
}

#[test]
fn the_timetable_limits_jobs_at_their_start() {
    let queue = Queue::new();
    fs::write(queue.bench.path("a"), content(5, 500_000)).unwrap();
    let url = queue.bench.url("");
    queue.add(&["--", "cp", "a", &url]);
    let table = queue.bench.path("table");
    fs::File::create(&table).unwrap().write_all(b"# all day\n00:00-24:00 2M\n").unwrap();
    let start = std::time::Instant::now();
    expect_code(&queue.queue(&["run", "--drain", "--timetable", table.to_str().unwrap()]), 0);
    // 500 kB at 2 Mb/s take 2 s.
    assert!(start.elapsed() > Duration::from_millis(1500), "{:?}", start.elapsed());
    assert_eq!(queue.state("1"), "done");
}

#[test]
fn a_queue_that_others_may_write_is_refused() {
    let queue = Queue::new();
    let folder = queue.bench.path("state/sabul/queue");
    queue.list();
    assert_eq!(fs::metadata(&folder).unwrap().permissions().mode() & 0o777, 0o700);
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).unwrap();
    let output = queue.queue(&["list"]);
    expect_code(&output, 1);
    assert!(stderr(&output).contains("every user"), "{}", stderr(&output));
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).unwrap();
}

#[test]
fn files_that_appear_in_a_watched_directory_are_copied() {
    let queue = Queue::new();
    let folder = queue.bench.path("outgoing");
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("old"), "old").unwrap();
    let url = queue.bench.url("in/");
    let mut watch = Running::start(&mut queue.sabul(&["queue", "watch", "outgoing", &url]));
    let jobs = || queue.list()["jobs"].as_array().unwrap().len();
    wait_for("the first job", || jobs() == 1);
    fs::create_dir(folder.join("sub")).unwrap();
    fs::write(folder.join("sub/new"), "new").unwrap();
    fs::write(folder.join(".late"), "late").unwrap();
    wait_for("the second job", || jobs() == 2);
    fs::rename(folder.join(".late"), folder.join("late")).unwrap();
    wait_for("the third job", || jobs() == 3);
    assert!(!watch.is_over());
    watch.signal(Signal::INT);
    expect_code(&watch.finish(), 130);
    expect_code(&queue.queue(&["run", "--drain"]), 0);
    for (name, text) in [("in/old", "old"), ("in/sub/new", "new"), ("in/late", "late")] {
        assert_eq!(fs::read_to_string(queue.bench.root(name)).unwrap(), text, "{name}");
    }
}

#[test]
fn a_watched_file_that_becomes_a_link_does_not_lead_out_of_the_directory() {
    let queue = Queue::new();
    let (folder, secret) = (queue.bench.path("outgoing"), queue.bench.path("secret"));
    for name in ["", "sub"] {
        fs::create_dir(folder.join(name)).unwrap();
    }
    fs::create_dir(&secret).unwrap();
    fs::write(secret.join("key"), "private").unwrap();
    for name in ["key", "sub/key", "good"] {
        fs::write(folder.join(name), "public").unwrap();
    }
    let url = queue.bench.url("in/");
    let watch = Running::start(&mut queue.sabul(&["queue", "watch", "outgoing", &url]));
    wait_for("the jobs", || queue.list()["jobs"].as_array().unwrap().len() == 3);
    watch.signal(Signal::INT);
    expect_code(&watch.finish(), 130);
    fs::remove_file(folder.join("key")).unwrap();
    symlink(secret.join("key"), folder.join("key")).unwrap();
    fs::remove_dir_all(folder.join("sub")).unwrap();
    symlink(&secret, folder.join("sub")).unwrap();
    for _ in 0..3 {
        queue.queue(&["run", "--once"]);
    }
    assert_eq!(fs::read_to_string(queue.bench.root("in/good")).unwrap(), "public");
    for name in ["in/key", "in/sub/key"] {
        assert!(!queue.bench.root(name).exists(), "{name}");
    }
    let messages: Vec<String> =
        ["1", "2", "3"].map(|id| queue.show(id)["message"].to_string()).into();
    assert_eq!(messages.iter().filter(|text| text.contains("verified")).count(), 1, "{messages:?}");
}

#[test]
fn two_processes_of_one_job_never_run_at_the_same_time() {
    let queue = Queue::new();
    let (lock, runner) = (queue.bench.path("lock"), std::process::id().to_string());
    let attempt = |runner: &str, ticket: &str| {
        let words =
            ["queue", "attempt", "--runner", runner, "--lock", lock.to_str().unwrap(), "--"];
        let server =
            ["serve", "--root", "root", "--listen", "127.0.0.1:0", "--ticket-file", ticket];
        Running::start(&mut queue.sabul(&[&words[..], &server].concat()))
    };
    let has = |ticket: &str| queue.bench.path(ticket).exists();
    let first = attempt(&runner, "first");
    wait_for("the first process", || has("first"));
    let mut second = attempt(&runner, "second");
    std::thread::sleep(Duration::from_millis(500));
    assert!(!second.is_over() && !has("second"), "the second process does not wait");
    // Without its runner, a process does not start at all.
    expect_code(&attempt("1", "third").finish(), 130);
    first.signal(Signal::KILL);
    first.finish();
    wait_for("the second process", || has("second"));
    second.signal(Signal::TERM);
    second.finish();
    assert!(!has("third"));
}

#[test]
fn running_jobs_share_the_limit_of_the_timetable() {
    let queue = Queue::new();
    fs::write(queue.bench.path("short"), content(6, 1_000_000)).unwrap();
    fs::write(queue.bench.path("long"), content(7, 12_000_000)).unwrap();
    let url = queue.bench.url("");
    queue.add(&["--", "cp", "long", &url]);
    queue.add(&["--", "cp", "short", &url]);
    let words = ["queue", "run", "--jobs", "2", "--timetable", "00:00-24:00 4M"];
    let runner = Running::start(&mut queue.sabul(&words));
    let limit = || {
        let output = run(&mut queue.sabul(&["ps", "--json"]));
        let text = String::from_utf8(output.stdout).unwrap();
        let jobs = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let long = jobs.into_iter().find(|job| job["what"].as_str().unwrap().starts_with("long"));
        long.and_then(|job| job["rate_limit_bps"].as_u64())
    };
    wait_for("half of the limit", || limit() == Some(2_000_000));
    wait_for("the end of the short job", || queue.state("2") == "done");
    wait_for("the whole limit", || limit() == Some(4_000_000));
    runner.signal(Signal::TERM);
    expect_code(&runner.finish(), 130);
}
