//! Receipts of copies, and their verification.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::process::{Command, Output};

use crate::common::{Bench, content, expect_code, json, run, stderr};

/// A bench whose server signs with the key `there`, and a key `here`; `None` without ssh-keygen.
fn bench(arguments: &[&str]) -> Option<Bench> {
    let keys = tempfile::tempdir().unwrap().keep();
    for name in ["here", "there"] {
        let mut command = Command::new("ssh-keygen");
        command.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(keys.join(name));
        if command.status().is_err() {
            println!("skipped: there is no ssh-keygen");
            return None;
        }
    }
    let there = keys.join("there");
    let mut all = vec!["serve", "--root", "root", "--receipt-key", there.to_str().unwrap()];
    all.extend(arguments);
    let bench = Bench::with(&all);
    for name in ["here", "here.pub", "there.pub"] {
        fs::rename(keys.join(name), bench.path(name)).unwrap();
    }
    fs::remove_dir_all(keys).unwrap();
    fs::create_dir_all(bench.path("src/a")).unwrap();
    fs::write(bench.path("src/a/large"), content(1, 300_000)).unwrap();
    fs::write(bench.path("src/empty"), "").unwrap();
    for name in [&b"a\nb"[..], b"a\\b", b"a\xff"] {
        fs::write(bench.path("src").join(OsStr::from_bytes(name)), name).unwrap();
    }
    Some(bench)
}

fn at(bench: &Bench, arguments: &[&str]) -> Output {
    let mut command = bench.sabul();
    command.env("HOME", bench.path("home")).env_remove("SSH_AUTH_SOCK");
    command.env("XDG_CONFIG_HOME", bench.path("config"));
    run(command.args(arguments))
}

#[test]
fn a_receipt_covers_all_files_of_the_sources_and_is_refused_after_a_change() {
    let Some(bench) = bench(&[]) else { return };
    let url = bench.url("");
    let copy = ["cp", "-r", "src", &url, "--receipt", "r", "--receipt-key", "here"];
    // The second copy sends nothing.
    for _ in 0..2 {
        let output = at(&bench, &copy);
        expect_code(&output, 0);
        assert!(stderr(&output).contains("receipt in r: 5 files"), "{}", stderr(&output));
    }
    let root = bench.root("").to_str().unwrap().to_owned();
    let verified = at(&bench, &["verify", "r", &root, "--json"]);
    expect_code(&verified, 0);
    assert_eq!((&json(&verified)["files"], &json(&verified)["different"]), (&5.into(), &0.into()));
    let statement: serde_json::Value =
        serde_json::from_slice(&fs::read(bench.path("r/receipt.json")).unwrap()).unwrap();
    let key = |name: &str| fs::read_to_string(bench.path(name)).unwrap();
    let predicate = &statement["predicate"];
    for (end, name) in [("sender", "here.pub"), ("receiver", "there.pub")] {
        let stated = predicate[end]["key"].as_str().unwrap();
        assert!(key(name).starts_with(stated), "{stated}");
    }
    assert!(predicate["receiver"]["durable_at"].is_string(), "{predicate}");
    // One changed letter in a file of the copy.
    fs::write(bench.root("src/a/large"), content(2, 300_000)).unwrap();
    fs::remove_file(bench.root("src/empty")).unwrap();
    let output = at(&bench, &["verify", "r", &root]);
    expect_code(&output, 5);
    let text = stderr(&output);
    assert!(text.contains("src/a/large: the content is not that of the receipt"), "{text}");
    assert!(text.contains("src/empty: the file is missing"), "{text}");
    // An extra line in a manifest.
    let path = bench.path("r/manifest-sha256.txt");
    let manifest = fs::read(&path).unwrap();
    fs::write(&path, [&manifest[..], format!("{}  new\n", "0".repeat(64)).as_bytes()].concat())
        .unwrap();
    let output = at(&bench, &["verify", "r"]);
    expect_code(&output, 5);
    assert!(stderr(&output).contains("manifest-sha256.txt: the file is not the signed one"));
}

#[test]
fn a_receipt_of_a_download_names_the_sender_and_a_new_name_of_a_file() {
    let Some(bench) = bench(&["--read-only"]) else { return };
    fs::write(bench.root("one"), content(3, 5000)).unwrap();
    let url = bench.url("one");
    let copy = ["cp", &url, "new name", "--receipt", "r", "--receipt-key", "here"];
    for _ in 0..2 {
        expect_code(&at(&bench, &copy), 0);
    }
    let manifest = fs::read_to_string(bench.path("r/manifest-blake3.txt")).unwrap();
    let hash = blake3::hash(&content(3, 5000)).to_hex().to_string();
    assert_eq!(manifest, format!("{hash}  new name\n"));
    expect_code(&at(&bench, &["verify", "r", "."]), 0);
    let signers = fs::read_to_string(bench.path("r/allowed_signers")).unwrap();
    let key = fs::read_to_string(bench.path("here.pub")).unwrap();
    let key = key.split(' ').nth(1).unwrap();
    assert!(signers.lines().next().unwrap().contains(key), "the receiver is this end: {signers}");
    // A server without writes is no receiver.
    let output =
        at(&bench, &["cp", "src/empty", &bench.url(""), "--receipt", "s", "--receipt-key", "here"]);
    expect_code(&output, 1);
    assert!(!bench.path("s").exists());
}

#[test]
fn without_a_key_nothing_is_copied_and_the_message_gives_the_command() {
    let Some(bench) = bench(&[]) else { return };
    let url = bench.url("");
    let output = at(&bench, &["cp", "-r", "src", &url, "--receipt", "r"]);
    expect_code(&output, 2);
    assert!(stderr(&output).contains("ssh-keygen -t ed25519"), "{}", stderr(&output));
    assert!(!bench.root("src").exists() && !bench.path("r").exists());
    let no_sync = ["cp", "-r", "src", &url, "--receipt", "r", "--no-sync", "--receipt-key", "here"];
    expect_code(&at(&bench, &no_sync), 2);
}

#[test]
fn two_local_directories_have_a_receipt_by_one_key() {
    let Some(bench) = bench(&[]) else { return };
    let sync = ["sync", "src/", "to", "--receipt", "r", "--receipt-key", "here"];
    expect_code(&at(&bench, &sync), 0);
    expect_code(&at(&bench, &["verify", "r", "to"]), 0);
    // A file that the destination keeps differs from the source.
    fs::write(bench.path("to/empty"), "newer").unwrap();
    let output = at(&bench, &[&sync[..], &["--ignore-existing"]].concat());
    expect_code(&output, 5);
    assert!(stderr(&output).contains("no receipt was written: 'empty'"), "{}", stderr(&output));
}

#[test]
fn a_destination_with_more_than_the_payload_is_no_bag() {
    let Some(bench) = bench(&[]) else { return };
    fs::create_dir(bench.path("tree")).unwrap();
    for name in ["one", "two"] {
        fs::write(bench.path("tree").join(name), name).unwrap();
    }
    let (up, down) = (bench.url("up"), bench.url("tree"));
    expect_code(&at(&bench, &["cp", "-r", "tree", &bench.url("")]), 0);
    for (from, to, place) in
        [("tree", up.as_str(), bench.root("up")), (down.as_str(), "down", bench.path("down"))]
    {
        let copy = ["cp", "-r", from, to, "--bag"];
        let no_bag = |name: &str| {
            let output = at(&bench, &copy);
            expect_code(&output, 1);
            let text = stderr(&output);
            assert!(text.contains("is no bag") && text.contains(name), "{text}");
        };
        expect_code(&at(&bench, &copy), 0);
        expect_code(&at(&bench, &copy), 0);
        fs::write(place.join("manifest-md5.txt"), "").unwrap();
        no_bag("manifest-md5.txt");
        fs::remove_file(place.join("manifest-md5.txt")).unwrap();
        fs::write(place.join("data/tree/old"), "").unwrap();
        no_bag("data/tree/old");
        fs::remove_file(place.join("data/tree/old")).unwrap();
        std::os::unix::fs::symlink("one", place.join("data/tree/link")).unwrap();
        no_bag("data/tree/link");
        fs::remove_file(place.join("data/tree/link")).unwrap();
        expect_code(&at(&bench, &copy), 0);
    }
}

#[test]
fn links_of_another_user_get_neither_a_receipt_nor_a_bag() {
    let Some(bench) = bench(&[]) else { return };
    if !rustix::process::geteuid().is_root() {
        println!("skipped: only root can give a link away");
        return;
    }
    fs::write(bench.root("one"), "1").unwrap();
    fs::create_dir_all(bench.path("victim/data")).unwrap();
    fs::write(bench.path("victim/data/one"), "1").unwrap();
    fs::write(bench.path("victim/allowed_signers"), "own").unwrap();
    for name in ["r", "bag"] {
        let link = bench.path(name);
        std::os::unix::fs::symlink("victim", &link).unwrap();
        std::os::unix::fs::lchown(&link, Some(1000), Some(1000)).unwrap();
    }
    let one = bench.url("one");
    let receipt = ["cp", &one, "to", "--receipt", "r", "--receipt-key", "here"];
    for copy in [&receipt[..], &["cp", &one, "bag", "--bag"]] {
        let output = at(&bench, copy);
        expect_code(&output, 1);
        assert!(stderr(&output).contains("a link of another user"), "{}", stderr(&output));
    }
    assert_eq!(fs::read_to_string(bench.path("victim/allowed_signers")).unwrap(), "own");
    assert_eq!(fs::read_dir(bench.path("victim")).unwrap().count(), 2);
}

#[test]
fn two_trees_are_compared_also_if_the_first_has_a_receipt_of_other_files() {
    let Some(bench) = bench(&[]) else { return };
    let sync = ["sync", "src/", "to", "--receipt", "first", "--receipt-key", "here"];
    expect_code(&at(&bench, &sync), 0);
    expect_code(&at(&bench, &["verify", "first", "to"]), 0);
    fs::write(bench.path("first/important"), "1").unwrap();
    let output = at(&bench, &["verify", "first", "to"]);
    expect_code(&output, 5);
    assert!(stderr(&output).contains("the two trees are compared"), "{}", stderr(&output));
}

#[test]
fn a_ticket_for_uploads_alone_has_receipts_of_what_its_command_writes() {
    let Some(bench) = bench(&["--state", "state"]) else { return };
    let mut create = bench.sabul();
    create.args(["ticket", "create", "drop", "--rights", "write,list", "-o", "drop"]);
    expect_code(&run(create.args(["--state", "state"])), 0);
    let url = bench.url("");
    let copy =
        ["cp", "-r", "src", &url, "--ticket", "drop", "--receipt", "r", "--receipt-key", "here"];
    let again = [&copy[..], &["--again", "--no-resume"]].concat();
    expect_code(&at(&bench, &copy), 0);
    let root = bench.root("").to_str().unwrap().to_owned();
    expect_code(&at(&bench, &["verify", "r", &root]), 0);
    // The second command leaves out what is there.
    fs::remove_dir_all(bench.path("r")).unwrap();
    let output = at(&bench, &copy);
    expect_code(&output, 5);
    let text = stderr(&output);
    assert!(text.contains("needs the right 'read'") && text.contains("--again"), "{text}");
    assert!(!bench.path("r/receipt.json").exists());
    fs::remove_dir_all(bench.path("r")).ok();
    expect_code(&at(&bench, &again), 0);
    expect_code(&at(&bench, &["verify", "r", &root]), 0);
}
