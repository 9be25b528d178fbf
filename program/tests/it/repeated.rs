//! Copies of files that the destination has already: what is skipped, and what a dry run says about it.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::time::{Duration, SystemTime};

use serde_json::Value;

use crate::common::schema::expect;
use crate::common::{Bench, content, expect_code, json, run, stderr};

/// A bench with a copied tree.
fn copied() -> Bench {
    let bench = Bench::new();
    fs::create_dir_all(bench.path("data/sub")).unwrap();
    for (name, len) in [("data/a", 3000), ("data/sub/b", 200_000), ("single", 5)] {
        fs::write(bench.path(name), content(4, len)).unwrap();
    }
    expect_code(&run(&mut bench.cp(["-rpq", "data", &bench.url("")])), 0);
    expect_code(&run(&mut bench.cp(["-pq", "single", &bench.url("renamed")])), 0);
    expect_code(&run(&mut bench.cp(["-rpq", &bench.url("data"), "here/"])), 0);
    fs::write(bench.root("plain"), content(6, 7)).unwrap();
    expect_code(&run(&mut bench.cp(["-pq", &bench.url("plain"), "back"])), 0);
    bench
}

/// Gives a file another time, and returns that time.
fn touch(path: &Path, age_s: u64) -> i64 {
    let time = SystemTime::now() - Duration::from_secs(age_s);
    fs::File::options().write(true).open(path).unwrap().set_modified(time).unwrap();
    fs::metadata(path).unwrap().mtime()
}

fn document(bench: &Bench, words: &[&str]) -> Value {
    let output = run(&mut bench.cp([&["--json"], words].concat()));
    expect_code(&output, 0);
    json(&output)
}

/// Words of the steps of a dry run, without directories.
fn steps(bench: &Bench, words: &[&str]) -> Vec<String> {
    let document = document(bench, &[&["-n"], words].concat());
    expect(&document, "cp-dry-run");
    let entries = document["entries"].as_array().unwrap().iter();
    let files = entries.filter(|entry| {
        let path = entry["path"].as_str().unwrap();
        !path.ends_with("data") && !path.ends_with("sub")
    });
    files.map(|entry| entry["what"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_dry_run_sends_only_what_the_copy_would_send() {
    let bench = copied();
    let (to, data, plain) = (bench.url(""), bench.url("data"), bench.url("plain"));
    let renamed = bench.url("renamed");
    let places: [&[&str]; 4] =
        [&["-r", "data", &to], &["single", &renamed], &["-r", &data, "here/"], &[&plain, "back"]];
    for words in places {
        let kept = steps(&bench, words);
        assert!(!kept.is_empty() && kept.iter().all(|what| what == "keep"), "{words:?}: {kept:?}");
        let sent = document(&bench, words);
        assert_eq!(sent["skipped_files"], kept.len(), "{words:?}: {sent}");
        let again = steps(&bench, &[&["--again"], words].concat());
        assert!(again.iter().all(|what| what == "replace"), "{words:?}: {again:?}");
        let output = run(&mut bench.cp([&["-n"], words].concat()));
        let said = stderr(&output);
        assert!(
            said.contains("dry run: nothing to copy; ") && said.contains("there already"),
            "{said}"
        );
        assert!(output.stdout.is_empty(), "{output:?}");
    }
    touch(&bench.path("data/a"), 1000);
    assert_eq!(steps(&bench, &["-r", "data", &to]), ["replace", "keep"]);
    assert_eq!(steps(&bench, &["-rc", "data", &to]), ["keep", "keep"]);
    fs::write(bench.path("data/new"), "x").unwrap();
    let output = run(&mut bench.cp(["-rn", "data", &to]));
    let said = stderr(&output);
    assert!(
        said.contains("in 2 files (1 of them replace others) and make 0 folders; 1 file"),
        "{said}"
    );
}

#[test]
fn equal_content_is_not_sent_again_but_its_time_is_set() {
    let bench = copied();
    let (to, data, plain) = (bench.url(""), bench.url("data"), bench.url("plain"));
    let renamed = bench.url("renamed");
    let places: [(&[&str], _, _); 4] = [
        (&["-r", "data", &to], bench.path("data/sub/b"), bench.root("data/sub/b")),
        (&["single", &renamed], bench.path("single"), bench.root("renamed")),
        (&["-r", &data, "."], bench.root("data/sub/b"), bench.path("data/sub/b")),
        (&[&plain, "back"], bench.root("plain"), bench.path("back")),
    ];
    for (age, (words, source, copy)) in (1..).zip(places) {
        let time = touch(&source, age * 5000);
        let inode = fs::metadata(&copy).unwrap().ino();
        let sent = document(&bench, &[&["-c"], words].concat());
        assert_eq!((&sent["bytes"], &sent["files"]), (&0.into(), &0.into()), "{words:?}: {sent}");
        assert!(sent["skipped_files"].as_u64() > Some(0), "{words:?}: {sent}");
        let found = fs::metadata(&copy).unwrap();
        assert_eq!((found.mtime(), found.ino()), (time, inode), "{words:?}");
        // Other content of the same size and time is sent.
        let mut bytes = fs::read(&source).unwrap();
        bytes[2] ^= 1;
        fs::write(&source, &bytes).unwrap();
        touch(&source, age * 5000);
        assert_eq!(document(&bench, &[&["-c"], words].concat())["files"], 1, "{words:?}");
        assert!(fs::read(&copy).unwrap() == bytes, "{words:?}");
    }
}

#[test]
fn changed_permission_bits_do_not_send_the_content_again() {
    let bench = copied();
    fs::set_permissions(bench.path("data/a"), fs::Permissions::from_mode(0o604)).unwrap();
    let sent = document(&bench, &["-rp", "data", &bench.url("")]);
    assert_eq!((&sent["files"], &sent["skipped_files"]), (&0.into(), &2.into()), "{sent}");
    assert_eq!(fs::metadata(bench.root("data/a")).unwrap().mode() & 0o777, 0o604);
}
