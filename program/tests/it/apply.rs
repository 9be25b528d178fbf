//! Plan files: `sabul sync -n --plan` and `sabul apply`.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::Output;

use crate::common::{Bench, content, expect_code, run, stderr};

const SERVE: [&str; 4] = ["serve", "--root", "root", "--allow-rm"];

fn at(bench: &Bench, arguments: &[&str]) -> Output {
    run(bench.sabul().args(arguments))
}

/// Runs a command; returns the last line of standard error.
fn last(bench: &Bench, code: i32, arguments: &[&str]) -> String {
    let output = at(bench, arguments);
    expect_code(&output, code);
    stderr(&output).trim_end().lines().last().unwrap_or_default().to_owned()
}

/// A bench with equal trees `src` and `root/copy`, and a file name that is not UTF-8.
fn with_copy() -> (Bench, String) {
    let bench = Bench::with(&SERVE);
    for folder in ["src/a/b", "src/c"] {
        fs::create_dir_all(bench.path(folder)).unwrap();
    }
    for number in 0..20_u8 {
        fs::write(bench.path(format!("src/a/f{number}")), content(number.into(), 100)).unwrap();
    }
    fs::write(bench.path("src/c/x"), "x").unwrap();
    fs::write(odd(&bench, "src"), "odd").unwrap();
    let url = bench.url("copy");
    last(&bench, 0, &["sync", "-a", "src/", &url]);
    (bench, url)
}

fn odd(bench: &Bench, tree: &str) -> PathBuf {
    bench.path(tree).join(OsStr::from_bytes(b"odd \xFF\n"))
}

/// Changes the source: two files with new content, a new directory, a directory in place of a file, and four removals.
fn change(bench: &Bench) {
    fs::write(bench.path("src/a/f1"), "first").unwrap();
    fs::write(odd(bench, "src"), "other").unwrap();
    fs::create_dir(bench.path("src/new")).unwrap();
    fs::write(bench.path("src/new/file"), "new").unwrap();
    fs::remove_file(bench.path("src/c/x")).unwrap();
    fs::create_dir(bench.path("src/c/x")).unwrap();
    fs::write(bench.path("src/c/x/inside"), "inside").unwrap();
    fs::remove_dir(bench.path("src/a/b")).unwrap();
    fs::remove_file(bench.path("src/a/f7")).unwrap();
}

const PLAN: [&str; 9] =
    ["sync", "-n", "-a", "--delete", "--delete-limit", "9", "--plan", "p.jsonl", "src/"];

fn equal(bench: &Bench, here: &str, there: &str) -> bool {
    let places = [bench.path(here), bench.path(there)];
    std::process::Command::new("diff").arg("-r").args(places).status().unwrap().success()
}

#[test]
fn a_plan_is_carried_out_once() {
    let (bench, url) = with_copy();
    change(&bench);
    let output = at(&bench, &[&PLAN[..], &[&url]].concat());
    expect_code(&output, 0);
    assert!(String::from_utf8_lossy(&output.stdout).contains("<f.st...... a/f1\n"));
    assert!(!bench.root("copy/new").exists() && bench.root("copy/a/f7").exists());
    // From another directory.
    let elsewhere = bench.path("src/a");
    let plan = bench.path("p.jsonl");
    let apply = || {
        let mut sabul = bench.sabul();
        sabul.env("SABUL_TICKET_FILE", bench.path("ticket"));
        run(sabul.current_dir(&elsewhere).arg("apply").arg(&plan))
    };
    let output = apply();
    expect_code(&output, 0);
    assert!(stderr(&output).contains("4 files"), "{}", stderr(&output));
    assert!(equal(&bench, "src", "root/copy"));
    let output = apply();
    expect_code(&output, 0);
    assert!(stderr(&output).contains("nothing to copy"), "{}", stderr(&output));
    // A later change of the source is not in the plan.
    fs::write(bench.path("src/later"), "later").unwrap();
    fs::write(bench.root("copy/extra"), "extra").unwrap();
    expect_code(&apply(), 0);
    assert!(!bench.root("copy/later").exists() && bench.root("copy/extra").exists());
}

#[test]
fn entries_that_changed_since_the_plan_are_refused_and_the_others_are_copied() {
    let (bench, url) = with_copy();
    change(&bench);
    fs::write(bench.path("src/a/f2"), "second").unwrap();
    fs::write(bench.path("src/a/f3"), "third").unwrap();
    last(&bench, 0, &[&PLAN[..], &[&url]].concat());
    fs::write(bench.path("src/a/f1"), "the source has changed").unwrap();
    fs::write(bench.root("copy/a/f2"), "the destination has changed").unwrap();
    fs::write(bench.root("copy/a/f7"), "the extra file has changed").unwrap();
    fs::remove_file(bench.path("src/new/file")).unwrap();
    fs::remove_file(bench.root("copy/a/f3")).unwrap();
    let output = at(&bench, &["apply", "p.jsonl"]);
    expect_code(&output, 1);
    let text = stderr(&output);
    for line in [
        "'a/f1': the source changed since",
        "'a/f2': the destination changed since",
        "'a/f7': the destination changed since",
        "'new/file': the source has no such entry",
    ] {
        assert_eq!(text.matches(line).count(), 1, "{line}: {text}");
    }
    assert_eq!(fs::read(bench.root("copy/a/f1")).unwrap(), content(1, 100));
    assert_eq!(fs::read(bench.root("copy/a/f2")).unwrap(), b"the destination has changed");
    assert_eq!(fs::read(bench.root("copy/a/f7")).unwrap(), b"the extra file has changed");
    assert_eq!(fs::read(bench.root("copy/a/f3")).unwrap(), b"third", "nothing could be lost");
    assert_eq!(fs::read(bench.root("copy/c/x/inside")).unwrap(), b"inside");
    assert!(!bench.root("copy/a/b").exists());
}

#[test]
fn a_plan_works_for_downloads_and_between_local_directories() {
    let (bench, url) = with_copy();
    fs::write(bench.root("copy/a/f1"), "there").unwrap();
    let url = format!("{url}/");
    last(&bench, 0, &["sync", "-n", "--plan", "p", &url, "src"]);
    assert_ne!(fs::read(bench.path("src/a/f1")).unwrap(), b"there");
    assert!(last(&bench, 0, &["apply", "p"]).contains("1 file,"));
    assert_eq!(fs::read(bench.path("src/a/f1")).unwrap(), b"there");
    last(&bench, 0, &["sync", "-n", "-a", "--plan", "p", "src/", "local"]);
    assert!(!bench.path("local").exists());
    last(&bench, 0, &["apply", "-n", "p"]);
    assert!(!bench.path("local").exists());
    last(&bench, 0, &["apply", "p"]);
    assert!(equal(&bench, "src", "local"));
}

#[test]
fn a_plan_with_one_changed_letter_is_refused() {
    let (bench, url) = with_copy();
    change(&bench);
    last(&bench, 0, &[&PLAN[..], &[&url]].concat());
    let plan = fs::read(bench.path("p.jsonl")).unwrap();
    for place in (0..plan.len()).step_by(plan.len() / 29) {
        let mut changed = plan.clone();
        changed[place] ^= 1;
        fs::write(bench.path("changed"), &changed).unwrap();
        let line = last(&bench, 5, &["apply", "changed"]);
        assert!(line.contains("was changed") && line.contains("sync -n --plan"), "{line}");
    }
    for length in [0, 1, plan.len() / 2, plan.len() - 1] {
        fs::write(bench.path("changed"), &plan[..length]).unwrap();
        last(&bench, 5, &["apply", "changed"]);
    }
    assert!(!bench.root("copy/new").exists());
    for entry in fs::read_dir(bench.path("src/a")).unwrap() {
        fs::remove_file(entry.unwrap().path()).unwrap();
    }
    last(&bench, 1, &["sync", "-n", "--delete", "--plan", "many", "src/", &url]);
    let refused = at(&bench, &["apply", "many"]);
    expect_code(&refused, 1);
    assert!(stderr(&refused).contains("permit it with --delete-limit"), "{}", stderr(&refused));
    assert!(bench.root("copy/a/f9").exists());
    last(&bench, 0, &["apply", "--delete-limit", "99", "many"]);
    assert!(!bench.root("copy/a/f9").exists());
    assert!(last(&bench, 2, &["apply", "-a", "p.jsonl"]).contains("the plan decides about -a"));
    last(&bench, 2, &["apply", "missing"]);
    last(&bench, 2, &["sync", "--plan", "p", "src/", &url]);
}

#[test]
fn a_run_that_was_killed_between_content_and_metadata_is_completed() {
    let (bench, url) = with_copy();
    fs::write(bench.path("src/moved"), content(5, 5000)).unwrap();
    let modes = |bits| fs::Permissions::from_mode(bits);
    fs::set_permissions(bench.path("src/moved"), modes(0o750)).unwrap();
    last(&bench, 0, &[&PLAN[..], &[&url]].concat());
    // The file has its content and time, but not yet its permission bits.
    let time = bench.path("src/moved").metadata().unwrap().modified().unwrap();
    fs::write(bench.path("root/copy/moved"), content(5, 5000)).unwrap();
    fs::set_permissions(bench.path("root/copy/moved"), modes(0o600)).unwrap();
    let file = fs::File::options().write(true).open(bench.path("root/copy/moved")).unwrap();
    file.set_modified(time).unwrap();
    last(&bench, 0, &["apply", "p.jsonl"]);
    let now = bench.path("root/copy/moved").metadata().unwrap().permissions().mode();
    assert_eq!(now & 0o777, 0o750);
}

#[test]
fn a_relative_trash_is_one_of_the_directory_in_which_the_plan_was_made() {
    let bench = Bench::with(&SERVE);
    for folder in ["src", "copy", "elsewhere"] {
        fs::create_dir(bench.path(folder)).unwrap();
    }
    fs::write(bench.path("src/kept"), "kept").unwrap();
    fs::write(bench.path("copy/extra"), "extra").unwrap();
    let plan = bench.path("plan");
    let plan = plan.to_str().unwrap();
    let flags = ["sync", "-n", "--delete", "--delete-limit", "5", "--trash", "trash", "--plan"];
    expect_code(&run(bench.sabul().args(flags).args([plan, "src/", "copy/"])), 0);
    let elsewhere = bench.path("elsewhere");
    expect_code(&run(bench.sabul().current_dir(&elsewhere).args(["apply", plan])), 0);
    assert_eq!(fs::read(bench.path("trash/extra")).unwrap(), b"extra");
    assert_eq!(fs::read_dir(elsewhere).unwrap().count(), 0);
}

#[test]
fn a_run_that_was_killed_after_a_directory_lost_rights_is_completed() {
    let bench = Bench::with(&SERVE);
    for folder in ["src/private", "copy/private"] {
        fs::create_dir_all(bench.path(folder)).unwrap();
    }
    fs::write(bench.path("src/private/new"), "new").unwrap();
    let set = |folder: &str, mode| {
        fs::set_permissions(bench.path(folder), fs::Permissions::from_mode(mode)).unwrap();
    };
    set("src/private", 0o770);
    set("copy/private", 0o755);
    let plan = bench.path("plan");
    let plan = plan.to_str().unwrap();
    expect_code(&run(bench.sabul().args(["sync", "-an", "--plan", plan, "src/", "copy/"])), 0);
    // The rights that both sides have, as before the content is copied.
    set("copy/private", 0o750);
    expect_code(&run(bench.sabul().args(["apply", plan])), 0);
    assert_eq!(fs::read(bench.path("copy/private/new")).unwrap(), b"new");
    let found = fs::metadata(bench.path("copy/private")).unwrap();
    assert_eq!(found.permissions().mode() & 0o777, 0o770);
    // Other rights are a change by somebody else.
    set("src/private", 0o700);
    expect_code(&run(bench.sabul().args(["sync", "-an", "--plan", plan, "src/", "copy/"])), 0);
    set("copy/private", 0o711);
    expect_code(&run(bench.sabul().args(["apply", plan])), 1);
}
