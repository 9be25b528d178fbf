//! `sabul sync`, files that are there already, and `sabul mv`.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, symlink};
use std::process::Output;

use crate::common::schema::expect;
use crate::common::{Bench, content, expect_code, run, stderr};

const SERVE: [&str; 4] = ["serve", "--root", "root", "--allow-rm"];

fn at(bench: &Bench, arguments: &[&str]) -> Output {
    run(bench.sabul().args(arguments))
}

/// Runs a command that must succeed; returns standard output, then the last line of standard error.
fn done(bench: &Bench, arguments: &[&str]) -> (String, String) {
    let output = at(bench, arguments);
    expect_code(&output, 0);
    let last = stderr(&output).trim_end().lines().last().unwrap_or_default().to_owned();
    (String::from_utf8_lossy(&output.stdout).into_owned(), last)
}

/// A bench with a tree beside its root: `src/a/f0` to `src/a/f19`, `src/a/b/big`, `src/c/x` and a link.
fn with_tree(arguments: &[&str]) -> Bench {
    let bench = Bench::with(arguments);
    fs::create_dir_all(bench.path("src/a/b")).unwrap();
    fs::create_dir_all(bench.path("src/c")).unwrap();
    for number in 0..20_u8 {
        fs::write(bench.path(format!("src/a/f{number}")), content(number.into(), 100)).unwrap();
    }
    fs::write(bench.path("src/a/b/big"), content(7, 300_000)).unwrap();
    fs::write(bench.path("src/c/x"), "").unwrap();
    symlink("f0", bench.path("src/a/link")).unwrap();
    bench
}

#[test]
fn a_second_copy_sends_only_what_has_changed() {
    let bench = with_tree(&SERVE);
    let url = bench.url("");
    let copy = ["cp", "-r", "src", &url, "--json"];
    let json = |text: &str| -> serde_json::Value { serde_json::from_str(text).unwrap() };
    let first = json(&done(&bench, &copy).0);
    assert_eq!((&first["files"], &first["skipped_files"]), (&23.into(), &0.into()));
    let again = json(&done(&bench, &copy).0);
    assert_eq!((&again["files"], &again["skipped_files"]), (&0.into(), &23.into()));
    assert_eq!(again["skipped_bytes"], 300_000 + 21 * 100);
    // The same size, and another time.
    fs::write(bench.path("src/a/f3"), content(99, 100)).unwrap();
    let third = json(&done(&bench, &copy).0);
    assert_eq!((&third["files"], &third["skipped_files"]), (&1.into(), &22.into()));
    assert_eq!(fs::read(bench.root("src/a/f3")).unwrap(), content(99, 100));
    let all = json(&done(&bench, &[&copy[..], &["--again"]].concat()).0);
    assert_eq!((&all["files"], &all["skipped_files"]), (&23.into(), &0.into()));
    // A download, and a single file under another name.
    let (_, last) = done(&bench, &["cp", "-r", &bench.url("src"), "back/"]);
    assert!(last.contains("in 23 files"), "{last}");
    let (_, last) = done(&bench, &["cp", "-r", &bench.url("src"), "back/"]);
    assert!(last.starts_with("nothing to copy; 23 files"), "{last}");
    for _ in 0..2 {
        let (_, _) = done(&bench, &["cp", "src/a/b/big", &bench.url("other")]);
    }
    let (_, last) = done(&bench, &["cp", &bench.url("other"), "mine"]);
    assert!(last.contains("in 1 file"), "{last}");
    let (_, last) = done(&bench, &["cp", &bench.url("other"), "mine"]);
    assert!(last.starts_with("nothing to copy; 1 file"), "{last}");
}

#[test]
fn modification_times_are_kept_without_any_option() {
    let bench = with_tree(&SERVE);
    let time = std::time::UNIX_EPOCH + std::time::Duration::new(1_500_000_000, 5);
    let times = fs::FileTimes::new().set_modified(time);
    for name in ["src/a/b/big", "src/a/f1", "src/c"] {
        fs::File::open(bench.path(name)).unwrap().set_times(times).unwrap();
    }
    done(&bench, &["cp", "-r", "src", &bench.url("")]);
    for name in ["src/a/b/big", "src/a/f1", "src/c"] {
        assert_eq!(fs::metadata(bench.root(name)).unwrap().modified().unwrap(), time, "{name}");
    }
}

#[test]
fn sync_copies_differences_and_removes_only_with_delete() {
    let bench = with_tree(&SERVE);
    let url = bench.url("copy");
    let sync = ["sync", "-a", "-i", "src/", &url];
    done(&bench, &sync);
    assert_eq!(done(&bench, &sync).0, "");
    fs::remove_file(bench.path("src/a/f7")).unwrap();
    fs::write(bench.path("src/a/f8"), "longer or shorter").unwrap();
    fs::set_permissions(bench.path("src/a/f9"), fs::Permissions::from_mode(0o600)).unwrap();
    fs::create_dir(bench.path("src/new")).unwrap();
    let expected = "<f.st...... a/f8\n.f...p..... a/f9\n.d..t...... a/\ncd+++++++++ new/\n";
    let inode = |name: &str| fs::metadata(bench.root(name)).unwrap().ino();
    let before = inode("copy/a/f9");
    let (dry, last) = done(&bench, &[&sync[..], &["-n", "--delete"]].concat());
    assert!(dry.contains("*deleting   a/f7\n"), "{dry}");
    assert!(last.starts_with("dry run: would copy 17 B in 1 file and remove 1 entry"), "{last}");
    assert!(!bench.root("copy/new").exists());
    let (changes, _) = done(&bench, &sync);
    assert_eq!(changes, expected);
    assert!(bench.root("copy/a/f7").exists() && bench.root("copy/new").is_dir());
    assert_eq!(fs::metadata(bench.root("copy/a/f9")).unwrap().mode() & 0o777, 0o600);
    assert_eq!(inode("copy/a/f9"), before, "its content is not sent");
    let (changes, last) = done(&bench, &[&sync[..], &["--delete"]].concat());
    assert_eq!(changes, "*deleting   a/f7\n");
    assert!(last.contains("1 entry removed"), "{last}");
    assert!(!bench.root("copy/a/f7").exists());
    let time = |path: std::path::PathBuf| fs::metadata(path).unwrap().modified().unwrap();
    for name in ["", "/a", "/a/b", "/new"] {
        let (here, there) = (bench.path(format!("src{name}")), bench.root(format!("copy{name}")));
        assert_eq!(time(here), time(there), "{name}");
    }
}

#[test]
fn a_large_removal_and_an_empty_source_are_refused() {
    let bench = with_tree(&SERVE);
    let url = bench.url("copy");
    done(&bench, &["sync", "-a", "src/", &url]);
    fs::remove_dir_all(bench.path("src/a")).unwrap();
    let refused = at(&bench, &["sync", "-a", "--delete", "src/", &url]);
    expect_code(&refused, 1);
    assert!(stderr(&refused).contains("--delete-limit 24"), "{}", stderr(&refused));
    assert!(bench.root("copy/a/f7").exists());
    let permitted = ["sync", "-a", "--delete", "--delete-limit", "24", "src/", &url];
    done(&bench, &[&permitted[..], &["--exclude", "/a/f1"]].concat());
    assert!(bench.root("copy/a/f1").exists() && !bench.root("copy/a/f2").exists());
    done(&bench, &permitted);
    assert!(!bench.root("copy/a").exists());
    fs::remove_dir_all(bench.path("src")).unwrap();
    fs::create_dir(bench.path("src")).unwrap();
    let refused = at(&bench, &["sync", "--delete", "--delete-limit", "99", "src/", &url]);
    expect_code(&refused, 1);
    assert!(stderr(&refused).contains("the source is empty"), "{}", stderr(&refused));
    assert!(bench.root("copy/c/x").exists());
}

#[test]
fn a_source_without_entries_makes_the_directory() {
    let bench = with_tree(&SERVE);
    fs::create_dir(bench.root("there")).unwrap();
    let exclude = ["--exclude", "*"];
    done(&bench, &[&["sync", "-a", "src/", &bench.url("put")][..], &exclude].concat());
    done(&bench, &["sync", "-a", &format!("{}/", bench.url("there")), "got"]);
    done(&bench, &[&["sync", "src/", "own"][..], &exclude].concat());
    done(&bench, &[&["sync", "--existing", "src/", "no"][..], &exclude].concat());
    let made = [bench.root("put"), bench.path("got"), bench.path("own")];
    assert!(made.iter().all(|path| path.is_dir()), "{made:?}");
    assert!(!bench.path("no").exists());
}

#[test]
fn removed_entries_go_to_the_trash() {
    let bench = with_tree(&SERVE);
    done(&bench, &["sync", "-a", "src/", &bench.url("copy")]);
    fs::remove_dir_all(bench.path("src/a/b")).unwrap();
    done(&bench, &["sync", "-a", "--delete", "--trash", "trash", "src/", &bench.url("copy")]);
    assert!(!bench.root("copy/a/b").exists());
    assert_eq!(fs::read(bench.root("trash/a/b/big")).unwrap(), content(7, 300_000));
}

#[test]
fn a_directory_in_place_of_a_file_needs_delete() {
    let bench = with_tree(&SERVE);
    let url = bench.url("copy");
    done(&bench, &["sync", "src/", &url]);
    fs::remove_file(bench.path("src/a/f1")).unwrap();
    fs::create_dir(bench.path("src/a/f1")).unwrap();
    fs::write(bench.path("src/a/f1/inside"), "x").unwrap();
    let refused = at(&bench, &["sync", "src/", &url]);
    expect_code(&refused, 1);
    assert!(stderr(&refused).contains("--delete replaces"), "{}", stderr(&refused));
    done(&bench, &["sync", "--delete", "src/", &url]);
    assert_eq!(fs::read(bench.root("copy/a/f1/inside")).unwrap(), b"x");
}

#[test]
fn entries_that_cannot_be_read_are_failures() {
    let bench = with_tree(&SERVE);
    symlink(".", bench.path("src/c/self")).unwrap();
    for arguments in [["cp", "-r"], ["sync", "-p"]] {
        let failed = at(&bench, &[&arguments[..], &["src", &bench.url("copy/")]].concat());
        expect_code(&failed, 1);
        assert!(stderr(&failed).contains("self"), "{}", stderr(&failed));
        assert!(bench.root("copy/src/a/f1").exists() && !bench.root("copy/src/c/self").exists());
    }
    // A directory without -r beside a file.
    let failed = at(&bench, &["cp", "src/a/f1", "src/a/b", &bench.url("flat/")]);
    expect_code(&failed, 1);
    assert!(stderr(&failed).contains("copy it with -r"), "{}", stderr(&failed));
    assert!(bench.root("flat/f1").exists() && !bench.root("flat/b").exists());
    // Nothing is removed or renamed then.
    fs::write(bench.root("copy/src/mine"), "x").unwrap();
    fs::rename(bench.path("src/a/b/big"), bench.path("src/big")).unwrap();
    let failed = at(&bench, &["sync", "--delete", "src", &bench.url("copy")]);
    expect_code(&failed, 1);
    assert!(bench.root("copy/src/mine").exists());
    assert!(bench.root("copy/src/a/b/big").exists() && bench.root("copy/src/big").exists());
}

#[test]
fn an_empty_source_without_a_slash_removes_nothing() {
    let bench = with_tree(&SERVE);
    done(&bench, &["sync", "src", &bench.url("copy")]);
    fs::remove_dir_all(bench.path("src")).unwrap();
    fs::create_dir(bench.path("src")).unwrap();
    let delete = ["sync", "--delete", "--delete-limit", "999", "src", &bench.url("copy")];
    let refused = at(&bench, &delete);
    expect_code(&refused, 1);
    assert!(stderr(&refused).contains("the source is empty"), "{}", stderr(&refused));
    assert!(bench.root("copy/src/a/f1").exists());
}

#[test]
fn the_trash_keeps_earlier_files_of_a_name() {
    let bench = with_tree(&SERVE);
    let url = bench.url("copy");
    for text in ["first", "second"] {
        fs::write(bench.path("src/a/gone"), text).unwrap();
        done(&bench, &["sync", "src/", &url]);
        fs::remove_file(bench.path("src/a/gone")).unwrap();
        done(&bench, &["sync", "--delete", "--trash", "trash", "src/", &url]);
    }
    assert_eq!(fs::read(bench.root("trash/a/gone")).unwrap(), b"first");
    assert_eq!(fs::read(bench.root("trash/a/gone.~1~")).unwrap(), b"second");
}

#[test]
fn a_directory_in_the_trash_gives_the_file_of_its_name_a_number() {
    let bench = with_tree(&SERVE);
    let (url, trash) = (bench.url("copy"), bench.path("trash"));
    let delete = ["--delete", "--delete-limit", "99", "--trash"];
    for (to, place) in [(&url[..], "trash"), ("here", trash.to_str().unwrap())] {
        let at = |name: &str| match to {
            "here" => bench.path(name),
            _ => bench.root(name.replace("here", "copy")),
        };
        done(&bench, &["sync", "src/", to]);
        fs::write(at("here/n"), "file").unwrap();
        done(&bench, &[&["sync", "src/", to], &delete[..], &[place]].concat());
        fs::create_dir(at("here/n")).unwrap();
        fs::write(at("here/n/x"), "inside").unwrap();
        done(&bench, &[&["sync", "src/", to], &delete[..], &[place]].concat());
        assert_eq!(fs::read(at("trash/n.~1~")).unwrap(), b"file");
        assert_eq!(fs::read(at("trash/n/x")).unwrap(), b"inside");
    }
    // Another file system, if there is one.
    let Ok(other) = tempfile::tempdir_in("/dev/shm") else { return };
    if fs::metadata(other.path()).unwrap().dev() == fs::metadata(bench.path("here")).unwrap().dev()
    {
        return;
    }
    fs::write(bench.path("here/n"), "file").unwrap();
    let place = other.path().to_str().unwrap();
    let output = at(&bench, &[&["sync", "src/", "here"], &delete[..], &[place]].concat());
    expect_code(&output, 1);
    assert!(stderr(&output).contains("another file system"), "{}", stderr(&output));
}

#[test]
fn names_that_look_like_patterns_are_taken_literally() {
    let bench = Bench::with(&SERVE);
    fs::create_dir_all(bench.path("d[1]")).unwrap();
    fs::write(bench.path("d[1]/f*"), "x").unwrap();
    fs::create_dir_all(bench.root("d1")).unwrap();
    fs::write(bench.root("d1/f2"), "not mine").unwrap();
    let url = bench.url("d[1]");
    done(&bench, &["sync", "--delete", "--delete-limit", "9", "d[1]/", &url]);
    done(&bench, &["sync", "--delete", "--delete-limit", "9", "d[1]/", &url]);
    assert_eq!(fs::read(bench.root("d1/f2")).unwrap(), b"not mine");
    assert_eq!(fs::read(bench.root("d[1]/f*")).unwrap(), b"x");
}

#[test]
fn verify_compares_a_file_with_a_file() {
    let bench = Bench::new();
    for name in ["near", "root/far", "root/near"] {
        fs::write(bench.path(name), "text").unwrap();
    }
    let (far, root) = (bench.url("far"), bench.url(""));
    for places in [["near", &far], ["near", &root], [&far, "near"], ["near", "root/far"]] {
        let (_, last) = done(&bench, &[&["verify"], &places[..]].concat());
        assert_eq!(last, "1 file (4 B) equal", "{places:?}");
    }
    fs::write(bench.path("near"), "TEXT").unwrap();
    for places in [["near", &far], [&far, "near"]] {
        let output = at(&bench, &[&["verify"], &places[..]].concat());
        expect_code(&output, 5);
        let lines = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(lines.starts_with("differs  "), "{lines}");
    }
    let nowhere = bench.url("nowhere/");
    let output = at(&bench, &["verify", "near", &nowhere]);
    expect_code(&output, 5);
    let said = stderr(&output);
    assert!(said.contains("nowhere/' has no entry of the source; check its name"), "{said}");
}

#[test]
fn verify_fails_if_the_destination_of_an_empty_source_is_missing() {
    let bench = Bench::new();
    fs::create_dir_all(bench.path("empty")).unwrap();
    for places in [["empty/", "none"], ["empty/", &bench.url("none")]] {
        let output = at(&bench, &[&["verify"], &places[..]].concat());
        expect_code(&output, 1);
        assert!(stderr(&output).contains("No such file"), "{}", stderr(&output));
    }
    fs::create_dir_all(bench.path("there")).unwrap();
    done(&bench, &["verify", "empty/", "there"]);
}

#[test]
fn a_users_file_with_the_name_of_a_part_or_journal_is_reported() {
    let bench = with_tree(&SERVE);
    let name = "x.0123456789abcdef.sabul-part";
    for name in [name, ".resume-0.sabul-part"] {
        fs::write(bench.path("src").join(name), "mine").unwrap();
        for to in ["here", &bench.url("copy")] {
            let output = at(&bench, &["sync", "src/", to]);
            expect_code(&output, 1);
            assert!(stderr(&output).contains(name), "{}", stderr(&output));
            let output = at(&bench, &["verify", "src/", to]);
            expect_code(&output, 1);
            assert!(stderr(&output).contains(name), "{}", stderr(&output));
        }
        fs::remove_file(bench.path("src").join(name)).unwrap();
    }
    // A part at the destination belongs to another copy.
    fs::write(bench.path("here").join(name), "part").unwrap();
    done(&bench, &["sync", "--delete", "src/", "here"]);
    done(&bench, &["verify", "src/", "here"]);
}

#[test]
fn verify_finds_each_difference_in_content() {
    let bench = with_tree(&SERVE);
    let url = bench.url("copy");
    let verify = ["verify", "src/", &url];
    done(&bench, &["sync", "-a", "src/", &url]);
    let (_, last) = done(&bench, &verify);
    assert!(last.starts_with("23 files"), "{last}");
    // Another content with the size and time of the source.
    let time = fs::metadata(bench.path("src/a/f3")).unwrap().modified().unwrap();
    fs::write(bench.root("copy/a/f3"), content(99, 100)).unwrap();
    fs::File::open(bench.root("copy/a/f3")).unwrap().set_modified(time).unwrap();
    fs::remove_file(bench.root("copy/a/f4")).unwrap();
    fs::write(bench.root("copy/mine"), "x").unwrap();
    let differs = at(&bench, &verify);
    expect_code(&differs, 5);
    let lines = String::from_utf8_lossy(&differs.stdout).into_owned();
    assert_eq!(lines, "differs  a/f3\nmissing  a/f4\nextra    mine\n");
    let json = at(&bench, &[&verify[..], &["--json"]].concat());
    expect(&serde_json::from_slice(&json.stdout).unwrap(), "verify");
    // Size and time do not show the difference, but -c does.
    done(&bench, &["cp", "-r", "src/", &url]);
    assert_eq!(fs::read(bench.root("copy/a/f3")).unwrap(), content(99, 100));
    let (_, last) = done(&bench, &["cp", "-rc", "src/", &url]);
    assert!(last.contains("in 1 file"), "{last}");
    assert_eq!(fs::read(bench.root("copy/a/f3")).unwrap(), content(3, 100));
    let (_, last) = done(&bench, &["cp", "-c", "src/a/f5", &bench.url("copy/a/f5")]);
    assert!(last.starts_with("nothing to copy; 1 file"), "{last}");
    fs::File::open(bench.root("copy/a/f5")).unwrap().set_modified(std::time::UNIX_EPOCH).unwrap();
    let (_, last) = done(&bench, &["sync", "-c", "src/", &url]);
    assert!(last.starts_with("nothing to copy"), "{last}");
    let (here, there) = (bench.path("src/a/f5"), bench.root("copy/a/f5"));
    let time = |path| fs::metadata(path).unwrap().modified().unwrap();
    assert_eq!(time(here), time(there), "only the time is set");
    let (_, last) = done(&bench, &["verify", &bench.url("copy/a/"), "src/a"]);
    assert!(last.starts_with("22 files"), "{last}");
}

#[test]
fn two_directories_on_this_machine_are_synchronised() {
    let bench = with_tree(&SERVE);
    done(&bench, &["sync", "-a", "src", "here"]);
    assert_eq!(fs::read(bench.path("here/src/a/b/big")).unwrap(), content(7, 300_000));
    fs::remove_file(bench.path("src/a/f1")).unwrap();
    let (_, last) = done(&bench, &["sync", "-a", "--delete", "src/", "here/src"]);
    assert!(last.contains("1 entry removed"), "{last}");
    assert!(!bench.path("here/src/a/f1").exists());
    let refused = at(&bench, &["sync", "src/", "src/a/new"]);
    expect_code(&refused, 2);
    assert!(stderr(&refused).contains("inside of the source"), "{}", stderr(&refused));
}

#[test]
fn mv_renames_on_the_other_machine() {
    let bench = Bench::with(&["serve", "--root", "root"]);
    fs::create_dir_all(bench.root("d")).unwrap();
    for name in ["a", "b", "c"] {
        fs::write(bench.root(name), name).unwrap();
    }
    done(&bench, &["mv", &bench.url("a"), &bench.url("a2")]);
    done(&bench, &["mv", &bench.url("a2"), &bench.url("b"), &bench.url("d/")]);
    assert_eq!(fs::read(bench.root("d/a2")).unwrap(), b"a");
    assert_eq!(fs::read(bench.root("d/b")).unwrap(), b"b");
    let refused = at(&bench, &["mv", "-n", &bench.url("c"), &bench.url("d/b")]);
    expect_code(&refused, 1);
    assert_eq!(fs::read(bench.root("d/b")).unwrap(), b"b");
    done(&bench, &["mv", &bench.url("c"), &bench.url("d/b")]);
    assert_eq!(fs::read(bench.root("d/b")).unwrap(), b"c");
    expect_code(&at(&bench, &["mv", &bench.url("none"), &bench.url("x")]), 1);
    expect_code(&at(&bench, &["mv", &bench.url("d/b"), &bench.url("../out")]), 1);
    expect_code(&at(&bench, &["mv", &bench.url("d/b")]), 2);
}

#[test]
fn mv_replaces_nothing_that_it_has_just_moved_and_makes_no_file_of_a_directory_name() {
    let bench = Bench::with(&["serve", "--root", "root"]);
    for name in ["a", "b", "to"] {
        fs::create_dir_all(bench.root(name)).unwrap();
    }
    for name in ["one", "two", "three", "a/f", "b/f"] {
        fs::write(bench.root(name), name).unwrap();
    }
    let url = |name: &str| bench.url(name);
    let mv = |names: &[&str]| {
        let places = names.iter().map(|name| url(name));
        run(bench.sabul().arg("mv").args(places))
    };
    for new in ["new/", "new"] {
        let refused = mv(&["one", "two", "three", new]);
        expect_code(&refused, 1);
        assert_eq!(stderr(&refused).matches("'new/': no such directory; make it").count(), 3);
    }
    for (from, new) in [("one", "new/"), ("a", "new/"), ("one", "two/")] {
        expect_code(&mv(&[from, new]), 1);
    }
    expect_code(&mv(&["a", "b", "two"]), 1);
    assert!(!bench.root("new").exists());
    for name in ["one", "two", "three", "a/f", "b/f"] {
        assert_eq!(fs::read(bench.root(name)).unwrap(), name.as_bytes(), "{name} is not moved");
    }
    let output = mv(&["a/f", "b/f", "one", "to/"]);
    expect_code(&output, 1);
    let text = stderr(&output);
    assert!(text.contains("just moved another 'f' into 'to/'"), "{text}");
    for (name, content) in [("to/f", "a/f"), ("b/f", "b/f"), ("to/one", "one")] {
        assert_eq!(fs::read(bench.root(name)).unwrap(), content.as_bytes(), "{name}");
    }
    expect_code(&mv(&["two", "three", "to"]), 0);
    assert_eq!(fs::read(bench.root("to/two")).unwrap(), b"two");
}

#[test]
fn only_the_entries_of_a_list_are_copied_and_a_plan_has_the_list() {
    let bench = with_tree(&SERVE);
    let url = bench.url("to");
    fs::write(bench.path("list"), "a/f1\n./a/f2\na/b\nc/\n# a/f3\n").unwrap();
    let sync = ["sync", "-a", "--files-from", "list", "src", &url];
    let (_, last) = done(&bench, &sync);
    assert!(last.contains("in 3 files"), "{last}");
    for (name, is_there) in
        [("a/f1", true), ("a/f2", true), ("a/f3", false), ("a/b", true), ("a/b/big", false)]
    {
        assert_eq!(bench.root(format!("to/{name}")).exists(), is_there, "{name}");
    }
    assert!(bench.root("to/c/x").exists());
    let (_, last) = done(&bench, &sync);
    assert!(last.starts_with("nothing to copy"), "{last}");
    // A missing name, and names that leave the source.
    fs::write(bench.path("list"), "a/none\na/f4\n").unwrap();
    let output = at(&bench, &sync);
    expect_code(&output, 1);
    assert!(stderr(&output).contains("a/none"), "{}", stderr(&output));
    assert!(bench.root("to/a/f4").exists());
    for bad in ["../src/a/f5", "/etc/passwd"] {
        fs::write(bench.path("list"), bad).unwrap();
        let output = at(&bench, &sync);
        expect_code(&output, 2);
        assert!(stderr(&output).contains(bad), "{}", stderr(&output));
    }
    // Outside of the named directory, nothing is removed.
    fs::write(bench.root("to/extra"), "").unwrap();
    fs::write(bench.root("to/a/b/extra"), "").unwrap();
    fs::write(bench.path("list"), "a/b").unwrap();
    let delete = ["-r", "--delete", "--delete-limit", "9"];
    done(&bench, &[&["sync", "-n", "--plan", "p"], &delete[..], &sync[1..]].concat());
    done(&bench, &["apply", "p"]);
    assert!(bench.root("to/extra").exists() && bench.root("to/a/b/big").exists());
    assert!(bench.root("to/a/f1").exists() && !bench.root("to/a/b/extra").exists());
}

#[test]
fn permission_bits_are_changed_on_the_way_in_both_directions() {
    let bench = with_tree(&SERVE);
    let mode = |path: std::path::PathBuf| path.metadata().unwrap().permissions().mode() & 0o777;
    let url = bench.url("to");
    let up = ["sync", "-p", "--chmod", "D750,F640", "src/", &url];
    done(&bench, &up);
    assert_eq!((mode(bench.root("to/a")), mode(bench.root("to/a/f1"))), (0o750, 0o640));
    let (_, last) = done(&bench, &up);
    assert!(last.starts_with("nothing to copy"), "{last}");
    let down = bench.url("to/");
    done(&bench, &["cp", "-rp", "--chmod=go=,Fu-w", &down, "back/"]);
    assert_eq!((mode(bench.path("back/a")), mode(bench.path("back/a/f1"))), (0o700, 0o400));
    let (_, last) = done(&bench, &["sync", "-p", "--chmod=go=,Fu-w", &down, "back"]);
    assert!(last.starts_with("nothing to copy"), "{last}");
    let output = at(&bench, &["cp", "--chmod", "u+s", "src/c/x", &url]);
    expect_code(&output, 2);
    assert!(stderr(&output).contains("u+s"), "{}", stderr(&output));
}

#[test]
fn a_file_with_two_names_is_adjusted_without_a_failure() {
    let bench = Bench::with(&SERVE);
    fs::create_dir_all(bench.path("src/sub")).unwrap();
    fs::write(bench.path("src/a"), "content").unwrap();
    fs::hard_link(bench.path("src/a"), bench.path("src/sub/b")).unwrap();
    let to = bench.url("to");
    let sync = || done(&bench, &["sync", "-a", "src/", &to]);
    sync();
    fs::set_permissions(bench.path("src/a"), fs::Permissions::from_mode(0o604)).unwrap();
    let found = |name: &str| fs::metadata(bench.root("to").join(name)).unwrap();
    sync();
    assert!(sync().1.contains("nothing to copy"));
    assert_eq!(["a", "sub/b"].map(|name| found(name).mode() & 0o777), [0o604; 2]);
    if rustix::process::geteuid().is_root() {
        chown(bench.path("src/a"), Some(65534), Some(65534)).unwrap();
        sync();
        assert_eq!(["a", "sub/b"].map(|name| found(name).uid()), [65534; 2]);
        assert_eq!(found("a").ino(), found("sub/b").ino());
    }
}

#[test]
fn a_large_tree_is_compared_in_both_directions_although_its_listing_is_shortened() {
    let bench = Bench::with(&SERVE);
    for directory in 0..3 {
        fs::create_dir_all(bench.path(format!("src/{directory}"))).unwrap();
        for number in 0..8000 {
            fs::write(bench.path(format!("src/{directory}/{number:04}")), "").unwrap();
        }
    }
    let url = bench.url("tree/");
    let json = |from: &str, to: &str| -> serde_json::Value {
        let (text, _) = done(&bench, &["sync", "--delete", from, to, "--json"]);
        serde_json::from_str(&text).unwrap()
    };
    assert_eq!(json("src/", &url)["files"], 24_000);
    let unchanged = json("src/", &url);
    assert_eq!((&unchanged["files"], &unchanged["skipped_files"]), (&0.into(), &24_000.into()));
    for (side, from, to) in [("src", "src/", &url[..]), ("root/tree", &url, "src/")] {
        let path = |name: &str| bench.path(side).join(name);
        // The last directory is beyond the entries that are listed completely.
        fs::write(path("2/4000"), side).unwrap();
        fs::write(path(&format!("2/5000-{}", side.len())), "new").unwrap();
        fs::remove_file(path(&format!("2/600{}", side.len()))).unwrap();
        let changed = json(from, to);
        assert_eq!((&changed["files"], &changed["removed"]), (&2.into(), &1.into()), "{changed}");
        assert_eq!(changed["skipped_files"], 24_000 - 2);
        let names = |place: &str| {
            let entries = fs::read_dir(bench.path(place).join("2")).unwrap();
            let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
            names.sort();
            names
        };
        assert_eq!(names("src"), names("root/tree"));
    }
}
