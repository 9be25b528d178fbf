//! `sabul sync` sends only the changed ranges of large files, and renames moved files.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use serde_json::Value;

use crate::common::{Bench, content, expect_code, run};

const SIZE: usize = 20_000_000;

/// A bench with equal files `src/big` and `root/copy/big`.
fn with_big() -> Bench {
    let bench = Bench::with(&["serve", "--root", "root"]);
    fs::create_dir(bench.path("src")).unwrap();
    fs::create_dir(bench.root("copy")).unwrap();
    write(&bench.path("src/big"), &content(1, SIZE), 1);
    write(&bench.root("copy/big"), &content(1, SIZE), 1);
    bench
}

/// Writes a file with a time of its own, so that a comparison finds the change.
fn write(path: &Path, content: &[u8], time: u64) {
    fs::write(path, content).unwrap();
    let file = fs::File::options().write(true).open(path).unwrap();
    file.set_modified(UNIX_EPOCH + Duration::from_secs(1_600_000_000 + time)).unwrap();
}

/// Runs `sync` with JSON; returns the new bytes and the kept bytes.
fn sync(bench: &Bench, arguments: &[&str]) -> (u64, u64) {
    let output = run(bench.sabul().args(["sync", "--json"]).args(arguments));
    expect_code(&output, 0);
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&json["verified"], &json["durable"]), (&true.into(), &true.into()));
    (json["bytes"].as_u64().unwrap(), json["kept_bytes"].as_u64().unwrap())
}

/// The content of the big file after each kind of change, and the most bytes that may be sent.
fn changes() -> Vec<(Vec<u8>, u64)> {
    let old = content(1, SIZE);
    let mut pages = old.clone();
    for page in 0..20 {
        pages[page * 1_000_000 + 5000] ^= 1;
    }
    let mut run = old.clone();
    run[7_000_000..7_200_000].fill(9);
    vec![
        (pages, 20 * 16_384),
        (run, 200_000 + 2 * 16_384),
        (content(2, 1_000_000).into_iter().chain(old.iter().copied()).collect(), 1_300_000),
        ([&old[..9_000_000], &old[9_500_000..]].concat(), 300_000),
        (old[..12_000_000].to_vec(), 16_384),
        ([&old[..], b"more"].concat(), 16_384),
        (content(3, SIZE), SIZE as u64),
    ]
}

#[test]
fn only_the_changed_ranges_of_a_large_file_are_sent() {
    let bench = with_big();
    let there = bench.url("copy");
    for (number, (new, most)) in changes().into_iter().enumerate() {
        for is_push in [true, false] {
            let (source, destination) = match is_push {
                true => (bench.path("src/big"), bench.root("copy/big")),
                false => (bench.root("copy/big"), bench.path("src/big")),
            };
            write(&destination, &content(1, SIZE), 1);
            write(&source, &new, 100 + number as u64);
            let places = match is_push {
                true => ["src/".to_owned(), there.clone()],
                false => [format!("{there}/"), "src".to_owned()],
            };
            let (sent, kept) = sync(&bench, &[&places[0], &places[1]]);
            assert!(fs::read(&destination).unwrap() == new, "{number} {is_push}");
            assert!(sent <= most, "{number} {is_push}: {sent} bytes of at most {most}");
            assert_eq!(sent + kept, new.len() as u64, "{number} {is_push}");
            assert_eq!(sync(&bench, &[&places[0], &places[1]]), (0, 0), "{number} {is_push}");
        }
    }
}

#[test]
fn whole_files_are_sent_on_request_and_between_local_directories() {
    let bench = with_big();
    let mut new = content(1, SIZE);
    new[5] ^= 1;
    write(&bench.path("src/big"), &new, 2);
    assert_eq!(sync(&bench, &["-W", "src/", &bench.url("copy")]), (SIZE as u64, 0));
    new[7] ^= 1;
    write(&bench.path("src/big"), &new, 3);
    assert_eq!(sync(&bench, &["src/", "root/copy"]), (SIZE as u64, 0));
    new[9] ^= 1;
    write(&bench.path("src/big"), &new, 4);
    let (sent, _) = sync(&bench, &["--read-back", "src/", &bench.url("copy")]);
    assert_eq!(sent, 16_384);
    assert!(fs::read(bench.root("copy/big")).unwrap() == new);
}

/// Runs `sync -a --delete` with JSON; returns the new bytes, and the numbers of renamed and removed entries.
fn mirror(bench: &Bench, from: &str, to: &str) -> (u64, u64, u64) {
    let limit = ["-a", "--delete", "--delete-limit", "99", "--json"];
    let output = run(bench.sabul().arg("sync").args(limit).args([from, to]));
    expect_code(&output, 0);
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    let number = |name: &str| json[name].as_u64().unwrap();
    (number("bytes"), number("moved_files"), number("removed"))
}

fn rsync_finds_nothing(bench: &Bench, one: &Path, other: &Path) {
    let slash = |path: &Path| format!("{}/", path.display());
    let mut rsync = std::process::Command::new("rsync");
    rsync.args(["-n", "-a", "--delete", "-i"]).args([slash(one), slash(other)]);
    match rsync.current_dir(bench.path("")).output() {
        Ok(output) => assert_eq!(String::from_utf8_lossy(&output.stdout), ""),
        Err(_) => eprintln!("rsync is not installed: the times of directories are not compared"),
    }
}

#[test]
fn moved_files_are_renamed_at_the_destination() {
    let bench = Bench::with(&["serve", "--root", "root", "--allow-rm"]);
    let (here, there) = (bench.path("src"), bench.root("copy"));
    fs::create_dir_all(here.join("old/deep")).unwrap();
    for number in 0..9_u8 {
        let folder = if number % 2 == 0 { "old" } else { "old/deep" };
        let place = here.join(format!("{folder}/{number}"));
        write(&place, &content(number.into(), 200_000), 7);
    }
    fs::write(here.join("old/small"), "small").unwrap();
    let url = bench.url("copy");
    mirror(&bench, "src/", &url);
    for (from, to, is_push) in [("old", "new", true), ("new", "newer", false)] {
        let (changed, other) = if is_push { (&here, &there) } else { (&there, &here) };
        fs::create_dir(changed.join("below")).unwrap();
        fs::rename(changed.join(from), changed.join("below").join(to)).unwrap();
        // Another content of the same size and time is no moved file.
        let place = changed.join(format!("below/{to}/4"));
        write(&place, &content(100, 200_000), 7);
        let (source, destination) = match is_push {
            true => ("src/".to_owned(), url.clone()),
            false => (format!("{url}/"), "src".to_owned()),
        };
        let (bytes, moved, _) = mirror(&bench, &source, &destination);
        assert_eq!((bytes, moved), (200_005, 8), "push {is_push}");
        rsync_finds_nothing(&bench, changed, other);
        fs::rename(changed.join("below").join(to), changed.join(to)).unwrap();
        fs::remove_dir(changed.join("below")).unwrap();
        write(&changed.join(to).join("4"), &content(4, 200_000), 7);
        mirror(&bench, &source, &destination);
        rsync_finds_nothing(&bench, changed, other);
    }
}

#[test]
fn a_moved_file_that_others_can_change_is_sent() {
    let bench = Bench::with(&["serve", "--root", "root", "--allow-rm"]);
    let (here, there) = (bench.path("src"), bench.root("copy"));
    fs::create_dir_all(here.join("old")).unwrap();
    for name in ["kept", "open"] {
        write(&here.join("old").join(name), &content(1, 200_000), 7);
    }
    let url = bench.url("copy");
    mirror(&bench, "src/", &url);
    for (from, to, is_push) in [("old", "new", true), ("new", "newer", false)] {
        let (changed, other) = if is_push { (&here, &there) } else { (&there, &here) };
        fs::create_dir(changed.join(to)).unwrap();
        for name in ["kept", "open"] {
            fs::rename(changed.join(from).join(name), changed.join(to).join(name)).unwrap();
        }
        let id = |name: &str| fs::metadata(other.join(name)).unwrap().ino();
        let open = other.join(from).join("open");
        fs::set_permissions(&open, fs::Permissions::from_mode(0o666)).unwrap();
        let before = [id(&format!("{from}/kept")), id(&format!("{from}/open"))];
        let (source, destination) = match is_push {
            true => ("src/".to_owned(), url.clone()),
            false => (format!("{url}/"), "src".to_owned()),
        };
        let (bytes, moved, _) = mirror(&bench, &source, &destination);
        assert_eq!((bytes, moved), (200_000, 1), "push {is_push}");
        let after = [id(&format!("{to}/kept")), id(&format!("{to}/open"))];
        assert!(before[0] == after[0] && before[1] != after[1], "push {is_push}");
        assert!(!other.join(from).join("open").exists(), "push {is_push}");
    }
}

#[test]
fn directories_of_moved_and_trashed_files_are_as_private_as_theirs() {
    let bench = Bench::with(&["serve", "--root", "root", "--allow-rm"]);
    let (here, there) = (bench.path("src"), bench.root("copy"));
    let private = |path: &Path| {
        fs::create_dir(path).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o700)).unwrap();
    };
    fs::create_dir(&here).unwrap();
    fs::create_dir(here.join("open")).unwrap();
    private(&here.join("secret"));
    private(&here.join("open/secret"));
    write(&here.join("big"), &content(1, 200_000), 7);
    for file in ["secret/old", "open/secret/old", "open/secret/stays"] {
        write(&here.join(file), b"content", 7);
    }
    let url = bench.url("copy");
    mirror(&bench, "src/", &url);
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    for (name, is_push) in [("new", true), ("newer", false)] {
        let (changed, other) = if is_push { (&here, &there) } else { (&there, &here) };
        private(&changed.join(name));
        private(&changed.join(name).join("deep"));
        let was = if is_push { "big" } else { "new/deep/big" };
        fs::rename(changed.join(was), changed.join(name).join("deep/big")).unwrap();
        fs::remove_file(changed.join("open/secret/old")).unwrap();
        fs::remove_dir_all(changed.join("secret")).unwrap();
        let (source, destination) = match is_push {
            true => ("src/".to_owned(), url.clone()),
            false => (format!("{url}/"), "src".to_owned()),
        };
        let trash = if is_push { "trash".into() } else { bench.path("trash") };
        let output = run(bench
            .sabul()
            .args(["sync", "--delete", "--delete-limit", "99", "--json", "--trash"])
            .args([trash.as_os_str(), source.as_ref(), destination.as_ref()]));
        expect_code(&output, 0);
        let json: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(json["moved_files"], 1, "push {is_push}");
        for folder in ["", "deep"] {
            assert_eq!(mode(&other.join(name).join(folder)), 0o700, "push {is_push}: {folder}");
        }
        let trash = if is_push { bench.root("trash") } else { bench.path("trash") };
        assert_eq!(mode(&trash), mode(other), "push {is_push}");
        assert_eq!(mode(&trash.join("open")), mode(&other.join("open")), "push {is_push}");
        for folder in ["secret", "open/secret"] {
            assert_eq!(mode(&trash.join(folder)), 0o700, "push {is_push}: {folder}");
            assert!(trash.join(folder).join("old").exists(), "push {is_push}: {folder}");
        }
        private(&changed.join("secret"));
        for file in ["secret/old", "open/secret/old"] {
            write(&changed.join(file), b"content", 7);
        }
        mirror(&bench, &source, &destination);
    }
}
