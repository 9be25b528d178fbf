//! `sabul replicate`: passes, changes at a replica, removals, the watch and the status.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;

use crate::common::schema::expect;
use crate::common::{Bench, Running, expect_code, run, stderr};

const SERVE: [&str; 4] = ["serve", "--root", "root", "--allow-rm"];

/// Time for a change to arrive on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

fn command(bench: &Bench, arguments: &[&str]) -> Command {
    let mut command = bench.sabul();
    command.env("XDG_STATE_HOME", bench.path("state")).arg("replicate").args(arguments);
    command
}

fn replicate(bench: &Bench, arguments: &[&str]) -> Output {
    run(&mut command(bench, arguments))
}

/// A directory with three files, and the places of two replicas.
fn with_source() -> (Bench, String, String) {
    let bench = Bench::with(&SERVE);
    fs::create_dir_all(bench.path("src/deep")).unwrap();
    for name in ["a", "b", "deep/c"] {
        fs::write(bench.path("src").join(name), name.repeat(1000)).unwrap();
    }
    let local = bench.path("local").display().to_string();
    let url = bench.url("copy");
    (bench, url, local)
}

/// Names and contents below a directory, sorted.
fn tree(folder: &Path) -> Vec<(String, String)> {
    let mut all = Vec::new();
    let mut rest = vec![folder.to_owned()];
    while let Some(next) = rest.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                rest.push(path);
            } else {
                let name = path.strip_prefix(folder).unwrap().display().to_string();
                all.push((name, fs::read_to_string(&path).unwrap()));
            }
        }
    }
    all.sort();
    all
}

fn status(bench: &Bench) -> Vec<Value> {
    let output = replicate(bench, &["status", "src", "--json"]);
    expect_code(&output, 0);
    let document = serde_json::from_slice(&output.stdout).unwrap();
    expect(&document, "replicas");
    document["replicas"].as_array().unwrap().clone()
}

/// Changes a file so that its size differs.
fn change(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
}

#[test]
fn every_replica_gets_the_tree_and_the_status_shows_the_lag() {
    let (bench, url, local) = with_source();
    expect_code(&replicate(&bench, &["src/", &url, &local]), 0);
    let source = tree(&bench.path("src"));
    assert_eq!(tree(&bench.root("copy")), source);
    assert_eq!(tree(&bench.path("local")), source);
    for replica in status(&bench) {
        assert_eq!((&replica["in_step"], &replica["lag_files"]), (&true.into(), &0.into()));
    }
    change(&bench.path("src/a"), "shorter");
    fs::write(bench.path("src/new"), "12345").unwrap();
    for replica in status(&bench) {
        assert_eq!(replica["in_step"], false, "{replica}");
        assert_eq!((&replica["lag_files"], &replica["lag_bytes"]), (&2.into(), &12.into()));
        assert!(replica["lag_s"].as_f64().unwrap() > 0.0, "{replica}");
    }
    expect_code(&replicate(&bench, &["src/", &url]), 0);
    let states: Vec<_> = status(&bench).iter().map(|it| it["in_step"].clone()).collect();
    assert!(states.contains(&true.into()) && states.contains(&false.into()), "{states:?}");
}

#[test]
fn an_entry_that_was_changed_at_a_replica_is_kept() {
    let (bench, url, _) = with_source();
    expect_code(&replicate(&bench, &["src/", &url]), 0);
    change(&bench.root("copy/a"), "changed there");
    change(&bench.root("copy/own"), "never at the source");
    let output = replicate(&bench, &["--delete", "src/", &url]);
    expect_code(&output, 0);
    assert!(
        stderr(&output).contains("'a' was changed there; kept as 'a.kept-"),
        "{}",
        stderr(&output)
    );
    let names: Vec<String> = tree(&bench.root("copy")).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names.len(), 5, "{names:?}");
    assert_eq!(fs::read_to_string(bench.root("copy/a")).unwrap(), "a".repeat(1000));
    let kept = names.iter().find(|name| name.starts_with("a.kept-")).unwrap();
    assert_eq!(fs::read_to_string(bench.root("copy").join(kept)).unwrap(), "changed there");
    // A second pass changes nothing, and a version that came from the source is replaced.
    change(&bench.path("src/b"), "version 2");
    let output = replicate(&bench, &["--delete", "src/", &url]);
    assert!(!stderr(&output).contains("kept"), "{}", stderr(&output));
    assert_eq!(fs::read_to_string(bench.root("copy/b")).unwrap(), "version 2");
    assert_eq!(status(&bench)[0]["kept"], 1);
}

#[test]
fn a_first_pass_keeps_what_the_replica_has() {
    let (bench, url, _) = with_source();
    fs::create_dir(bench.root("copy")).unwrap();
    fs::write(bench.root("copy/a"), "from before").unwrap();
    expect_code(&replicate(&bench, &["src/", &url]), 0);
    let kept: Vec<_> =
        tree(&bench.root("copy")).into_iter().filter(|it| it.1 == "from before").collect();
    assert!(kept.len() == 1 && kept[0].0.starts_with("a.kept-"), "{kept:?}");
}

#[test]
fn only_delete_removes_what_the_source_removed() {
    let (bench, url, _) = with_source();
    expect_code(&replicate(&bench, &["src/", &url]), 0);
    fs::remove_file(bench.path("src/b")).unwrap();
    expect_code(&replicate(&bench, &["src/", &url]), 0);
    assert!(bench.root("copy/b").exists());
    let output = replicate(&bench, &["--delete", "--delete-limit", "1", "src/", &url]);
    expect_code(&output, 0);
    assert!(!bench.root("copy/b").exists(), "{}", stderr(&output));
}

#[test]
fn the_status_counts_only_what_failed_after_a_pass_with_a_failure() {
    let (bench, url, _) = with_source();
    for source in ["src/", "src"] {
        let copy = if source == "src" { bench.root("copy/src") } else { bench.root("copy") };
        // An own directory of the replica keeps the place of a file.
        fs::create_dir_all(copy.join("b/own")).unwrap();
        expect_code(&replicate(&bench, &[source, &url]), 1);
        let states = status(&bench);
        let state = states.iter().find(|it| it["error"].is_string()).unwrap();
        assert_eq!(
            (&state["lag_files"], &state["lag_bytes"]),
            (&1.into(), &1000.into()),
            "{state}"
        );
        assert_eq!(state["error"], "1 entry failed", "{state}");
        fs::remove_dir_all(copy.join("b")).unwrap();
        expect_code(&replicate(&bench, &[source, &url]), 0);
        assert!(status(&bench).iter().all(|it| it["in_step"] == true));
    }
}

#[test]
fn a_file_that_the_source_removes_during_its_copy_is_removed_from_the_replica() {
    let (bench, url, _) = with_source();
    expect_code(&replicate(&bench, &["src/", &url]), 0);
    // The rate lets the first file be sent for some seconds, and the other one is opened afterwards.
    fs::write(bench.path("src/a"), incompressible(24_000_000)).unwrap();
    fs::write(bench.path("src/b"), incompressible(3_000_000)).unwrap();
    let arguments = ["--delete", "--delete-limit", "9", "src/", &url];
    let slow = [&["--bwlimit", "48M"], &arguments[..]].concat();
    let pass = Running::start(&mut command(&bench, &slow));
    wait_for(|| names(&bench.root("copy")).iter().any(|name| name.ends_with(".sabul-part")));
    fs::remove_file(bench.path("src/b")).unwrap();
    let output = pass.finish();
    expect_code(&output, 1);
    assert!(stderr(&output).contains("src/b"), "{}", stderr(&output));
    expect_code(&replicate(&bench, &arguments), 0);
    assert!(!bench.root("copy/b").exists(), "{:?}", names(&bench.root("copy")));
}

#[test]
fn a_change_at_the_replica_during_the_copy_of_its_file_stays() {
    let (bench, url, _) = with_source();
    let (source, copy) = (bench.path("src"), bench.root("copy"));
    symlink("first", source.join("link")).unwrap();
    expect_code(&replicate(&bench, &["-a", "src/", &url]), 0);
    // The rate lets the first file be sent for some seconds.
    fs::write(source.join("a"), incompressible(24_000_000)).unwrap();
    fs::write(source.join("b"), "b".repeat(9000)).unwrap();
    fs::write(source.join("new"), "new").unwrap();
    fs::remove_file(source.join("link")).unwrap();
    symlink("another text", source.join("link")).unwrap();
    let pass = Running::start(&mut command(&bench, &["-a", "--bwlimit", "48M", "src/", &url]));
    wait_for(|| names(&copy).iter().any(|name| name.ends_with(".sabul-part")));
    fs::write(copy.join("a"), "changed there").unwrap();
    fs::write(copy.join("new"), "written there").unwrap();
    fs::remove_file(copy.join("link")).unwrap();
    fs::write(copy.join("link"), "no link any more").unwrap();
    fs::remove_file(copy.join("b")).unwrap();
    let output = pass.finish();
    expect_code(&output, 1);
    let text = stderr(&output);
    assert!(text.contains("changed at the destination after the comparison"), "{text}");
    assert_eq!(fs::read_to_string(copy.join("a")).unwrap(), "changed there");
    assert_eq!(fs::read_to_string(copy.join("new")).unwrap(), "written there");
    assert_eq!(fs::read_to_string(copy.join("link")).unwrap(), "no link any more");
    // A file that was removed there is no obstacle.
    assert_eq!(fs::read(copy.join("b")).unwrap(), fs::read(source.join("b")).unwrap());
    // The next pass keeps the changes beside.
    let output = replicate(&bench, &["-a", "src/", &url]);
    expect_code(&output, 0);
    for name in ["a", "new"] {
        assert_eq!(fs::read(copy.join(name)).unwrap(), fs::read(source.join(name)).unwrap());
    }
    assert_eq!(fs::read_link(copy.join("link")).unwrap(), Path::new("another text"));
    let kept: Vec<_> = names(&copy).into_iter().filter(|it| it.contains(".kept-")).collect();
    assert_eq!(kept.len(), 3, "{kept:?}");
}

#[test]
fn an_unreachable_replica_does_not_stop_the_others() {
    let (bench, _, local) = with_source();
    let closed = "sabul://127.0.0.1:1/copy";
    let output = replicate(&bench, &["--timeout", "3", "src/", closed, &local]);
    expect_code(&output, 3);
    assert_eq!(tree(&bench.path("local")), tree(&bench.path("src")));
    let states = status(&bench);
    let failed = states.iter().find(|it| it["error"].is_string()).unwrap();
    assert_eq!((&failed["in_step"], &failed["lag_s"]), (&false.into(), &Value::Null));
}

#[test]
fn a_second_process_for_the_same_replica_is_refused() {
    let (bench, _, local) = with_source();
    let watch = Running::start(&mut command(&bench, &["--watch", "src/", &local]));
    wait_for(|| bench.path("local/deep/c").exists());
    let output = replicate(&bench, &["src/", &local]);
    expect_code(&output, 1);
    assert!(stderr(&output).contains("another process replicates"), "{}", stderr(&output));
    stop(watch);
}

#[test]
fn a_watch_copies_each_change_and_ends_with_code_0() {
    let (bench, url, _) = with_source();
    let watch = Running::start(&mut command(&bench, &["--watch", "--delete", "src/", &url]));
    wait_for(|| bench.root("copy/deep/c").exists());
    for text in ["first", "second version"] {
        fs::write(bench.path("src/deep/new"), text).unwrap();
        wait_for(|| fs::read_to_string(bench.root("copy/deep/new")).is_ok_and(|it| it == text));
    }
    stop(watch);
}

#[test]
fn wrong_places_and_options_are_refused() {
    let bench = Bench::with(&SERVE);
    fs::create_dir(bench.path("src")).unwrap();
    for (arguments, part) in [
        (&["src"][..], "at least one replica"),
        (&["missing", "x"], "cannot read 'missing'"),
        (&["host:x", "src"], "on another machine"),
        (&["--json", "src", "x"], "does not support --json"),
        (&["src/", "x", "x"], "the same replica is named twice"),
        (&["src/", "x", "./x/"], "the same replica is named twice, as 'x' and as './x/'"),
    ] {
        let output = replicate(&bench, arguments);
        expect_code(&output, 2);
        assert!(stderr(&output).contains(part), "{arguments:?}: {}", stderr(&output));
    }
}

fn incompressible(bytes: usize) -> Vec<u8> {
    let mut content = vec![0; bytes];
    blake3::Hasher::new().finalize_xof().fill(&mut content);
    content
}

/// Names in a directory.
fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

/// Ends a watch, which is no error.
fn stop(watch: Running) {
    watch.signal(Signal::TERM);
    expect_code(&watch.finish(), 0);
}

fn wait_for(is_there: impl Fn() -> bool) {
    let start = Instant::now();
    while !is_there() {
        assert!(start.elapsed() < PATIENCE, "no change arrived");
        std::thread::sleep(Duration::from_millis(20));
    }
}
