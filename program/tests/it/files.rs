//! File commands on another machine: `ls`, `stat`, `cat`, `rm`, `mkdir`, and file name patterns.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::process::Output;

use rustix::fs::{Mode, OFlags};
use serde_json::Value;

use crate::common::schema::expect;
use crate::common::{Bench, code, content, expect_code, files_below, run, stderr};

/// Runs the program beside the root of a bench, with the ticket.
fn at(bench: &Bench, arguments: &[&str]) -> Output {
    run(bench.sabul().args(arguments))
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn lines(output: &Output) -> Vec<Value> {
    stdout(output).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// A bench with a tree below its root, a secret beside it, and a link to the secret.
fn with_tree(arguments: &[&str]) -> Bench {
    let bench = Bench::with(arguments);
    fs::create_dir_all(bench.root("data/sub")).unwrap();
    for (name, len) in [("data/a.nc", 10), ("data/b.nc", 2000), ("data/sub/c.nc", 3), ("x", 1)] {
        fs::write(bench.root(name), content(7, len)).unwrap();
    }
    fs::create_dir(bench.path("secret")).unwrap();
    fs::write(bench.path("secret/key.nc"), "secret").unwrap();
    symlink("../secret", bench.root("out")).unwrap();
    bench
}

const SERVE: [&str; 3] = ["serve", "--root", "root"];

#[test]
fn ls_prints_one_name_per_line() {
    let bench = with_tree(&SERVE);
    let listed = at(&bench, &["ls", &bench.url("")]);
    expect_code(&listed, 0);
    assert_eq!(stdout(&listed), "data/\nout\nx\n");
    let listed = at(&bench, &["ls", &bench.url("data")]);
    assert_eq!(stdout(&listed), "a.nc\nb.nc\nsub/\n");
    let listed = at(&bench, &["ls", "-r", &bench.url("data/")]);
    assert_eq!(stdout(&listed), "a.nc\nb.nc\nsub/\nsub/c.nc\n");
    let listed = at(&bench, &["ls", "--json", &bench.url("data")]);
    lines(&listed).iter().for_each(|line| expect(line, "ls"));
    let listed = at(&bench, &["ls", "-l", &bench.url("x")]);
    assert!(stdout(&listed).starts_with("-rw"), "{}", stdout(&listed));
    assert!(stdout(&listed).trim_end().ends_with("Z x"), "{}", stdout(&listed));
    let both = at(&bench, &["ls", &bench.url("x"), &bench.url("data/sub")]);
    assert_eq!(stdout(&both), "x\ndata/sub/c.nc\n");
    let missing = at(&bench, &["ls", &bench.url("none"), &bench.url("x")]);
    expect_code(&missing, 1);
    assert_eq!(stdout(&missing), "x\n", "the others are told of");
    assert!(stderr(&missing).contains("none"), "{}", stderr(&missing));
}

#[test]
fn json_has_a_line_with_metadata_for_each_name() {
    let bench = with_tree(&SERVE);
    fs::set_permissions(bench.root("x"), fs::Permissions::from_mode(0o640)).unwrap();
    let listed =
        at(&bench, &["stat", "--json", &bench.url("x"), &bench.url("out"), &bench.url("no")]);
    expect_code(&listed, 1);
    let lines = lines(&listed);
    lines.iter().for_each(|line| expect(line, "stat"));
    assert_eq!(lines.len(), 3);
    assert_eq!((&lines[0]["path"], &lines[0]["kind"]), (&"x".into(), &"file".into()));
    assert_eq!((&lines[0]["bytes"], &lines[0]["mode"]), (&1.into(), &"0640".into()));
    assert!(lines[0]["modified_ns"].is_i64() && lines[0]["modified"].is_string());
    assert_eq!(lines[1]["kind"], "link", "a link is not followed");
    assert_eq!(lines[2]["error"]["code"], "not-found");
}

#[test]
fn nothing_outside_the_root_is_listed_or_read() {
    let bench = with_tree(&SERVE);
    for place in ["../secret", "out", "out/", "../", "data/../../secret", "/../secret"] {
        for command in [&["ls"][..], &["ls", "-r"], &["cat"]] {
            let output = at(&bench, &[command, &[&bench.url(place)]].concat());
            let text = stdout(&output);
            // The name of the link is not secret.
            assert!(!text.contains("key") && !text.contains("secret"), "{place}: {text}");
            assert!(code(&output) == 1 || text == "out\n", "{place}: {}", stderr(&output));
        }
    }
    let all = stdout(&at(&bench, &["ls", "-r", &bench.url("")]));
    assert!(all.contains("out\n") && !all.contains("out/"), "{all}");
}

#[test]
fn cat_prints_the_requested_range_of_a_file() {
    let bench = Bench::new();
    let bytes = content(3, 300_000);
    fs::write(bench.root("f"), &bytes).unwrap();
    fs::write(bench.root("empty"), "").unwrap();
    let cat = |arguments: &[&str]| at(&bench, &[&["cat"], arguments].concat());
    let url = bench.url("f");
    let whole = cat(&[&url]);
    expect_code(&whole, 0);
    assert!(whole.stdout == bytes);
    for (offset, length) in
        [(0, 10), (5, 1), (299_990, 100), (300_000, 5), (100_000, 150_000), (7, 0)]
    {
        let (from, most) = (offset.to_string(), length.to_string());
        let some = cat(&[&url, "--offset", &from, "--length", &most]);
        expect_code(&some, 0);
        let end = bytes.len().min(offset + length);
        assert!(some.stdout == bytes[offset..end], "{offset} {length}: {}", some.stdout.len());
    }
    assert!(cat(&[&url, "--offset", "299999"]).stdout == bytes[299_999..]);
    let behind = cat(&[&url, "--offset", "300001"]);
    expect_code(&behind, 1);
    assert!(stderr(&behind).contains("has 300000 bytes"), "{}", stderr(&behind));
    expect_code(&cat(&[&bench.url("empty")]), 0);
    let local = cat(&["f"]);
    expect_code(&local, 2);
    assert!(stderr(&local).contains("is a local path"), "{}", stderr(&local));
}

#[test]
fn removal_is_refused_unless_the_server_allows_it() {
    let bench = with_tree(&SERVE);
    let refused = at(&bench, &["rm", &bench.url("x")]);
    expect_code(&refused, 1);
    assert!(stderr(&refused).contains("--allow-rm"), "{}", stderr(&refused));
    assert!(bench.root("x").exists());
    // Directories are created where files are written.
    expect_code(&at(&bench, &["mkdir", &bench.url("new")]), 0);
    assert!(bench.root("new").is_dir());
    let reading = with_tree(&["serve", "--root", "root", "--read-only"]);
    for command in [&["mkdir"][..], &["rm"], &["rm", "-r"]] {
        let refused = at(&reading, &[command, &[&reading.url("data/new")]].concat());
        expect_code(&refused, 1);
        assert!(stderr(&refused).contains("only lets files be read"), "{}", stderr(&refused));
    }
    assert!(!reading.root("data/new").exists());
}

#[test]
fn rm_removes_names_and_never_link_targets() {
    let bench = with_tree(&["serve", "--root", "root", "--allow-rm"]);
    symlink("../../secret", bench.root("data/sub/out")).unwrap();
    let rm = |arguments: &[&str]| at(&bench, &[&["rm"], arguments].concat());
    let folder = rm(&[&bench.url("data")]);
    expect_code(&folder, 1);
    assert!(stderr(&folder).contains("-r"), "{}", stderr(&folder));
    for place in ["", "..", "../secret/key.nc", "out/key.nc", "data/../../secret", ".", "/"] {
        let refused = rm(&["-r", &bench.url(place)]);
        assert_eq!(code(&refused), 1, "{place}: {}", stderr(&refused));
    }
    let gone = rm(&[&bench.url("none"), &bench.url("x")]);
    expect_code(&gone, 1);
    assert!(!bench.root("x").exists(), "the others are removed");
    expect_code(&rm(&["-r", &bench.url("data"), &bench.url("out")]), 0);
    assert_eq!(fs::read_dir(bench.root("")).unwrap().count(), 0);
    assert_eq!(fs::read(bench.path("secret/key.nc")).unwrap(), b"secret");
}

#[test]
fn mkdir_makes_folders_inside_the_root_and_needs_p_for_existing_ones() {
    let bench = with_tree(&SERVE);
    let mkdir = |arguments: &[&str]| at(&bench, &[&["mkdir"], arguments].concat());
    expect_code(&mkdir(&[&bench.url("a")]), 0);
    expect_code(&mkdir(&[&bench.url("a")]), 1);
    expect_code(&mkdir(&[&bench.url("b/c/d")]), 1);
    expect_code(&mkdir(&["-p", &bench.url("b/c/d"), &bench.url("a")]), 0);
    assert!(bench.root("b/c/d").is_dir());
    for place in ["out/made", "../made", "data/../../made"] {
        expect_code(&mkdir(&["-p", &bench.url(place)]), 1);
    }
    assert!(!bench.path("made").exists() && !bench.path("secret/made").exists());
}

#[test]
fn a_pattern_matches_names_below_the_root() {
    let bench = with_tree(&SERVE);
    fs::write(bench.root("data/.hidden.nc"), "h").unwrap();
    fs::create_dir(bench.path("here")).unwrap();
    expect_code(&run(&mut bench.cp([&bench.url("data/*.nc"), "here"])), 0);
    let names = files_below(&bench.path("here"));
    assert_eq!(names, ["a.nc", "b.nc"].map(std::path::PathBuf::from));
    // A single match takes the name of the destination, like any source.
    expect_code(&run(&mut bench.cp([&bench.url("data/a.*"), "renamed"])), 0);
    assert_eq!(fs::read(bench.path("renamed")).unwrap(), content(7, 10));
    let several = run(&mut bench.cp([&bench.url("data/*.nc"), "one"]));
    assert_ne!(code(&several), 0);
    assert!(stderr(&several).contains("directory"), "{}", stderr(&several));
    let nothing = run(&mut bench.cp([&bench.url("data/*.csv"), "here"]));
    expect_code(&nothing, 1);
    assert!(stderr(&nothing).contains("no file matches"), "{}", stderr(&nothing));
    for outside in ["out/*", "../secret/*", "*/key*", "../s*/*"] {
        assert_eq!(code(&run(&mut bench.cp([&bench.url(outside), "here"]))), 1, "{outside}");
    }
    expect_code(&run(&mut bench.cp(["-r", &bench.url("d*"), "here"])), 0);
    assert_eq!(fs::read(bench.path("here/data/sub/c.nc")).unwrap(), content(7, 3));
    assert_eq!(stdout(&at(&bench, &["ls", &bench.url("data/[ab].nc")])), "data/a.nc\ndata/b.nc\n");
}

#[test]
fn an_existing_name_with_stars_is_not_a_pattern() {
    let bench = Bench::new();
    for name in ["a*", "ab", "[x"] {
        fs::write(bench.root(name), name).unwrap();
    }
    expect_code(&run(&mut bench.cp([&bench.url("a*"), "got"])), 0);
    assert_eq!(fs::read(bench.path("got")).unwrap(), b"a*");
    expect_code(&run(&mut bench.cp([&bench.url("[x"), "odd"])), 0);
    assert_eq!(fs::read(bench.path("odd")).unwrap(), b"[x");
    fs::remove_file(bench.root("a*")).unwrap();
    expect_code(&run(&mut bench.cp([&bench.url("a\\*"), "gone"])), 1);
}

#[test]
fn expensive_patterns_are_refused_or_finish_soon() {
    let bench = Bench::new();
    for link in ["l1", "l2", "l3"] {
        symlink(".", bench.root(link)).unwrap();
    }
    fs::write(bench.root("a".repeat(250)), "x").unwrap();
    let too_long = "*".repeat(1500);
    let deep = "*/".repeat(40) + "x";
    let crossing = "*/".repeat(15) + "none";
    let stars = "*a".repeat(300) + "b";
    for (pattern, why) in [
        (&too_long, "are possible"),
        (&deep, "parts with stars"),
        (&crossing, "too much"),
        (&stars, "no file matches"),
        (&"[".to_owned(), "no pattern"),
    ] {
        let refused = at(&bench, &["ls", &bench.url(pattern)]);
        expect_code(&refused, 1);
        let text = stderr(&refused);
        assert!(text.contains(why), "{why}: {}", &text[text.len().saturating_sub(300)..]);
    }
}

/// Returns the sent, made and skipped entries of a dry run.
fn entries(output: &Output) -> Vec<(String, String)> {
    let document = crate::common::json(output);
    assert_eq!(document["dry_run"], true);
    let entries = document["entries"].as_array().unwrap().iter();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    entries.map(|entry| (text(&entry["what"]), text(&entry["path"]))).collect()
}

fn pairs(list: &[(&str, &str)]) -> Vec<(String, String)> {
    list.iter().map(|&(what, path)| (what.to_owned(), path.to_owned())).collect()
}

#[test]
fn a_users_file_with_a_reserved_name_is_a_failure() {
    let bench = with_tree(&SERVE);
    fs::create_dir(bench.path("data")).unwrap();
    fs::write(bench.path("data/notes.sabul-part"), "text").unwrap();
    let copy = run(&mut bench.cp(["-r", "data", &bench.url("")]));
    expect_code(&copy, 1);
    assert!(stderr(&copy).contains("notes.sabul-part"), "{}", stderr(&copy));
}

#[test]
fn an_upload_dry_run_prints_its_plan_and_changes_nothing() {
    let bench = with_tree(&SERVE);
    fs::create_dir_all(bench.path("data/new")).unwrap();
    for name in ["data/a.nc", "data/new/n", "data/z.0123456789abcdef.sabul-part"] {
        fs::write(bench.path(name), "1234567").unwrap();
    }
    let before = (files_below(&bench.root("")), files_below(&bench.path("data")));
    let dry = run(&mut bench.cp(["-rn", "--json", "data", &bench.url("")]));
    expect_code(&dry, 0);
    let expected =
        [("keep", "data"), ("replace", "data/a.nc"), ("make", "data/new"), ("send", "data/new/n")];
    assert_eq!(entries(&dry), pairs(&expected));
    let document = crate::common::json(&dry);
    expect(&document, "cp-dry-run");
    let sums =
        ["files", "replaced", "bytes", "folders", "skipped"].map(|key| document[key].as_u64());
    assert_eq!(sums, [2, 1, 14, 1, 0].map(Some));
    // Into an empty destination everything would be created.
    let far = run(&mut bench.cp(["-rn", "data", &bench.url("far/away")]));
    expect_code(&far, 0);
    let text = stdout(&far);
    assert!(text.contains("make") && text.contains("send") && !text.contains("replace"), "{text}");
    assert!(stderr(&far).contains("dry run: would send 14 B in 2 files "), "{}", stderr(&far));
    let folders = |url: &str| {
        let dry = run(&mut bench.cp(["-rn", "--json", "data", url]));
        let document = crate::common::json(&dry);
        expect(&document, "cp-dry-run");
        let made = entries(&dry).into_iter().filter(|(what, _)| what == "make");
        (document["folders"].as_u64().unwrap(), made.map(|(_, path)| path).collect::<Vec<_>>())
    };
    let made =
        |paths: &[&str]| (paths.len() as u64, paths.iter().map(|&it| it.to_owned()).collect());
    // At the last component of the path, or below it.
    assert_eq!(folders(&bench.url("far/away")), made(&["far", "data", "data/new"]));
    assert_eq!(folders(&bench.url("far/away/")), made(&["far", "far/away", "data", "data/new"]));
    let missing = run(&mut bench.cp(["-n", "none", "x", &bench.url("")]));
    expect_code(&missing, 1);
    assert!(stderr(&missing).contains("would not be copied"), "{}", stderr(&missing));
    // A copy of one file creates no parent directories.
    for (from, to) in [("data/a.nc", bench.url("no/such/file")), ("data/a.nc", bench.url("no/x"))] {
        let dry = run(&mut bench.cp(["-n", "--json", from, &to]));
        expect_code(&dry, 1);
        assert_eq!(entries(&dry), pairs(&[("skip", "a.nc")]));
        expect_code(&run(&mut bench.cp([from, &to])), 1);
    }
    assert_eq!((files_below(&bench.root("")), files_below(&bench.path("data"))), before);
    assert!(!bench.root("far").exists() && !bench.root("no").exists());
}

#[test]
fn a_download_dry_run_prints_its_plan_and_changes_nothing() {
    let bench = with_tree(&SERVE);
    fs::create_dir_all(bench.path("here/data")).unwrap();
    fs::write(bench.path("here/data/a.nc"), "old").unwrap();
    let dry = run(&mut bench.cp(["-rn", "--json", &bench.url("data"), "here"]));
    expect_code(&dry, 0);
    let expected = [
        ("keep", "data"),
        ("replace", "data/a.nc"),
        ("send", "data/b.nc"),
        ("make", "data/sub"),
        ("send", "data/sub/c.nc"),
    ];
    assert_eq!(entries(&dry), pairs(&expected));
    let dry = run(&mut bench.cp(["-n", "--json", &bench.url("data/*.nc"), "gone/"]));
    assert_eq!(entries(&dry), pairs(&[("make", "gone"), ("send", "a.nc"), ("send", "b.nc")]));
    assert!(!bench.path("gone").exists());
    assert_eq!(files_below(&bench.path("here")).len(), 1);
    assert_eq!(fs::read(bench.path("here/data/a.nc")).unwrap(), b"old");
    let nowhere = run(&mut bench.cp(["-n", "--json", &bench.url("data/b.nc"), "no/such/file"]));
    expect_code(&nowhere, 1);
    assert_eq!(entries(&nowhere), pairs(&[("skip", "b.nc")]));
    let several = run(&mut bench.cp(["-n", &bench.url("data/*.nc"), "one"]));
    assert_eq!(code(&several), 2, "{}", stderr(&several));
    let nowhere = run(&mut bench.cp(["-n", &bench.url("x"), "-"]));
    expect_code(&nowhere, 2);
}

#[test]
fn a_dry_run_keeps_no_steps_and_its_document_at_most_the_memory() {
    let bench = Bench::new();
    let deep = bench.root(format!("data/{}", ["d"; 3].map(|name| name.repeat(250)).join("/")));
    fs::create_dir_all(&deep).unwrap();
    for file in 0..6000 {
        fs::write(deep.join(file.to_string()), "").unwrap();
    }
    let url = bench.url("data");
    let dry = |flag| run(&mut bench.cp(["-rn", "--memory", "16M", flag, &url, "here"]));
    let printed = dry("--again");
    expect_code(&printed, 0);
    assert_eq!(stdout(&printed).matches("send ").count(), 6000);
    let refused = dry("--json");
    expect_code(&refused, 1);
    assert!(stderr(&refused).contains("more than --memory (16.0 MiB)"), "{}", stderr(&refused));
    expect(&crate::common::json(&refused), "cp-dry-run");
}

/// Creates a tree with objects, sources and a cache, on either side.
fn sources(root: &Path) {
    for name in ["src/a.c", "src/a.o", "src/sub/b.c", "src/sub/keep.o", "src/cache/x.c"] {
        let path = root.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, name).unwrap();
    }
}

#[test]
fn the_first_matching_filter_rule_decides_for_uploads_and_downloads() {
    let bench = Bench::new();
    sources(&bench.path(""));
    sources(&bench.root("there"));
    let flags = ["-r", "--include", "keep.o", "--exclude", "*.o", "--exclude", "/src/cache/"];
    expect_code(&run(&mut bench.cp([&flags[..], &["src", &bench.url("up/")]].concat())), 0);
    let there = bench.url("there/src");
    expect_code(&run(&mut bench.cp([&flags[..], &[&there, "down/"]].concat())), 0);
    let expected = ["src/a.c", "src/sub/b.c", "src/sub/keep.o"].map(std::path::PathBuf::from);
    assert_eq!(files_below(&bench.root("up")), expected);
    assert_eq!(files_below(&bench.path("down")), expected);
    assert!(!bench.root("up/src/cache").exists() && !bench.path("down/src/cache").exists());
    let dry = run(&mut bench.cp([&flags[..], &["-n", "--json", &there, "new/"]].concat()));
    let files = entries(&dry).into_iter().filter(|(what, _)| what == "send").count();
    assert_eq!(files, 3);
    // The order counts: an entry excluded first stays excluded.
    let other = ["-r", "--exclude", "*.o", "--include", "keep.o"];
    expect_code(&run(&mut bench.cp([&other[..], &["src", &bench.url("o/")]].concat())), 0);
    assert!(!bench.root("o/src/sub/keep.o").exists());
    let one = ["-r", "--include", "*/", "--include", "*.o", "--exclude", "*"];
    expect_code(&run(&mut bench.cp([&one[..], &[&there, "objects/"]].concat())), 0);
    let objects = files_below(&bench.path("objects"));
    assert_eq!(objects, ["src/a.o", "src/sub/keep.o"].map(std::path::PathBuf::from));
    let bad = run(&mut bench.cp(["--exclude", "[", "src", &bench.url("")]));
    expect_code(&bad, 2);
    assert!(stderr(&bad).contains("no pattern"), "{}", stderr(&bad));
}

/// Makes a directory with a path that is longer than any path of a message.
fn make_too_deep(top: &Path) {
    let mut at = rustix::fs::open(top, OFlags::DIRECTORY, Mode::empty()).unwrap();
    for name in std::iter::once("d".to_owned()).chain((0..20).map(|_| "n".repeat(250))) {
        rustix::fs::mkdirat(&at, &*name, Mode::RWXU).unwrap();
        at = rustix::fs::openat(&at, &*name, OFlags::DIRECTORY, Mode::empty()).unwrap();
    }
}

#[test]
fn a_path_that_is_too_long_stops_no_other_entry() {
    let bench = Bench::with(&SERVE);
    fs::create_dir(bench.root("t")).unwrap();
    make_too_deep(&bench.root("t"));
    for name in ["a", "e", "z"] {
        fs::write(bench.root("t").join(name), name).unwrap();
    }
    let listed = at(&bench, &["ls", "-r", &bench.url("t")]);
    expect_code(&listed, 1);
    assert!(stdout(&listed).ends_with("e\nz\n"), "{}", stdout(&listed));
    assert!(stderr(&listed).contains("paths have at most"), "{}", stderr(&listed));
    for words in [&["cp", "-r"][..], &["cp", "-r", "--again"], &["sync"]] {
        let to = bench.path(words.join("_"));
        let from = bench.url("t/");
        let arguments = [words, &[&from, to.to_str().unwrap()]].concat();
        expect_code(&at(&bench, &arguments), 1);
        for name in ["a", "e", "z"] {
            let copied = fs::read_to_string(to.join(name)).unwrap_or_default();
            assert_eq!(copied, name, "{words:?}");
        }
    }
}
