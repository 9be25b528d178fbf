//! Tests of listing, removing and making names on a disk that fails.

use std::cell::Cell;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use sabul_content::MAX_PATH;
use sabul_wire::control::{FailureCode, ListOptions, SeenKind, View};

use crate::disk::Disk;
use crate::disk::memory::{Fault, MemoryDisk};
use crate::root::{RootDir, RootLink, RootPath};
use crate::{DirectoryListing, ListingStep, NameChange, Rules};

fn disk() -> MemoryDisk {
    let disk = MemoryDisk::new(1);
    for names in [&["d", "a"][..], &["d", "sub", "b"], &["d", "sub", "c"], &["x"]] {
        disk.put(&RootPath::new(names).unwrap(), b"content").unwrap();
    }
    disk
}

/// All names below the root, as listed.
fn names(disk: &MemoryDisk) -> Vec<String> {
    let disk = Arc::new(disk.clone());
    let (places, options) = (vec![Vec::new()], ListOptions::default());
    let mut listing =
        DirectoryListing::new(Some(disk), places, View::All, &options, Rules::default()).unwrap();
    let mut names = Vec::new();
    loop {
        match listing.step(&|| false) {
            ListingStep::Seen(seen) => {
                let kind = seen.outcome.unwrap().kind;
                let end = if kind == SeenKind::Directory { "/" } else { "" };
                names.push(String::from_utf8(seen.path).unwrap() + end);
            }
            ListingStep::Pause => {}
            ListingStep::End => return names,
        }
    }
}

const ALL: NameChange = NameChange::Remove { recursive: true, seen: None };

#[test]
fn a_folder_is_removed_with_its_content_but_never_the_root() {
    let disk = disk();
    assert_eq!(names(&disk), ["d/", "d/a", "d/sub/", "d/sub/b", "d/sub/c", "x"]);
    for place in [&b""[..], b".", b"/", b"..", b"d/..", b"../d"] {
        let failure = ALL.apply(Some(&disk), place, &|| false).unwrap_err();
        assert_eq!(failure.code, FailureCode::Refused, "{failure}");
    }
    let one = NameChange::Remove { recursive: false, seen: None };
    assert!(one.apply(Some(&disk), b"d", &|| false).is_err());
    assert_eq!(ALL.apply(Some(&disk), b"/d/", &|| false), Ok(5));
    assert_eq!(one.apply(Some(&disk), b"x", &|| false), Ok(1));
    assert!(names(&disk).is_empty());
    let gone = one.apply(Some(&disk), b"x", &|| false).unwrap_err();
    assert_eq!(gone.code, FailureCode::NotFound, "{gone}");
}

#[test]
fn a_name_with_a_slash_at_its_end_removes_no_file_and_no_link() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    fs::write(at("file"), "content").unwrap();
    fs::create_dir(at("d")).unwrap();
    std::os::unix::fs::symlink("d", at("link")).unwrap();
    let served = RootDir::open(dir.path(), RootLink::Follow).unwrap();
    for disk in [None, Some(&served as &dyn Disk)] {
        for name in ["file/", "link/", "file/.", "./file//"] {
            let place = match disk {
                Some(_) => name.as_bytes().to_vec(),
                None => format!("{}/{name}", dir.path().display()).into_bytes(),
            };
            let failure = ALL.apply(disk, &place, &|| false).unwrap_err();
            assert_eq!(failure.code, FailureCode::Unwritable, "{failure}");
        }
    }
    assert!(at("file").exists() && at("link").exists());
    assert_eq!(ALL.apply(Some(&served), b"d/", &|| false), Ok(1));
}

#[test]
fn a_removal_that_fails_at_any_call_ends_with_an_error() {
    for call in 0..12 {
        let disk = disk();
        disk.fail_at(call, Fault::Error(Errno::ACCESS));
        let result = ALL.apply(Some(&disk), b"d", &|| false);
        disk.heal();
        match result {
            Ok(removed) => assert_eq!((removed, names(&disk)), (5, vec!["x".to_owned()])),
            Err(failure) => {
                assert_eq!(failure.code, FailureCode::Permission, "{call}: {failure}");
                assert!(names(&disk).contains(&"d/".to_owned()), "{call}");
            }
        }
    }
}

#[test]
fn a_cancelled_removal_stops_midway() {
    let disk = disk();
    let requested = Cell::new(0);
    let is_over = || requested.replace(requested.get() + 1) == 1;
    let failure = ALL.apply(Some(&disk), b"d", &is_over).unwrap_err();
    assert_eq!(failure.code, FailureCode::Cancelled);
    assert!(names(&disk).len() > 2, "not all of it is gone");
}

#[test]
fn parent_folders_are_made_only_on_request() {
    let disk = disk();
    let make = |parents, place: &[u8]| {
        NameChange::Make { parents, mode: 0o777, below: None }.apply(Some(&disk), place, &|| false)
    };
    assert!(make(false, b"new/below").is_err());
    assert_eq!(make(false, b"new"), Ok(1));
    assert!(make(false, b"new").is_err());
    assert_eq!(make(true, b"new/a/b"), Ok(2));
    assert_eq!(make(true, b"new/a"), Ok(0));
    assert!(make(true, b"x/y").is_err(), "a file is in the way");
    assert!(names(&disk).contains(&"new/a/b/".to_owned()));
}

#[test]
fn new_folders_have_no_other_bits_than_requested() {
    let dir = tempfile::tempdir().unwrap();
    let root = RootDir::open(dir.path(), RootLink::Follow).unwrap();
    let made = |place: &[u8], mode| {
        NameChange::Make { parents: true, mode, below: None }
            .apply(Some(&root), place, &|| false)
            .unwrap()
    };
    let mode = |name: &str| fs::metadata(dir.path().join(name)).unwrap().permissions().mode();
    assert_eq!(made(b"a/b", 0o050), 2);
    assert_eq!((mode("a") & 0o727, mode("a/b") & 0o727), (0o700, 0o700), "the umask may take more");
    assert_eq!(made(b"a/b", 0o777), 0);
    assert_eq!(mode("a") & 0o727, 0o700, "an existing folder keeps its bits");
}

/// A sparse file can have more bytes than anybody reads in a day.
#[test]
fn hashing_a_file_stops_on_cancellation() {
    let dir = tempfile::tempdir().unwrap();
    fs::File::create(dir.path().join("f")).unwrap().set_len(1 << 40).unwrap();
    let disk: Arc<dyn Disk> = Arc::new(RootDir::open(dir.path(), RootLink::Follow).unwrap());
    let options = ListOptions { hashes: true, ..ListOptions::default() };
    let places = vec![b"f".to_vec()];
    let mut listing =
        DirectoryListing::new(Some(disk), places, View::Tree, &options, Rules::default()).unwrap();
    let looks = Cell::new(0);
    let is_over = || looks.replace(looks.get() + 1) == 3;
    let seen = loop {
        match listing.step(&is_over) {
            ListingStep::Seen(seen) => break seen,
            ListingStep::Pause => {}
            ListingStep::End => panic!("a file is there"),
        }
    };
    let failure = seen.outcome.unwrap_err();
    assert!(failure.message.contains("cancelled"), "{failure}");
}

/// Directories of `depth` names below `d`, of which the last has files, and a file `z` beside `d`.
fn deep(depth: usize) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let mut at = rustix::fs::open(folder.path(), OFlags::DIRECTORY, Mode::empty()).unwrap();
    for number in 0..depth {
        let name = if number == 0 { "d".to_owned() } else { "n".repeat(250) };
        rustix::fs::mkdirat(&at, &*name, Mode::RWXU).unwrap();
        at = rustix::fs::openat(&at, &*name, OFlags::DIRECTORY, Mode::empty()).unwrap();
    }
    for name in ["e", "f"] {
        rustix::fs::openat(&at, name, OFlags::CREATE | OFlags::WRONLY, Mode::RWXU).unwrap();
    }
    fs::write(folder.path().join("z"), "z").unwrap();
    folder
}

/// A path that no message can contain is a failure of the directory above, in the order of the listing. Entries after
/// that directory are listed.
#[test]
fn a_path_that_is_too_long_is_a_failure_of_its_directory() {
    for view in [View::All, View::Tree] {
        let folder = deep(20);
        let root: Arc<dyn Disk> = Arc::new(RootDir::open(folder.path(), RootLink::Follow).unwrap());
        let (places, options) = (vec![b"./".to_vec()], ListOptions::default());
        let mut listing =
            DirectoryListing::new(Some(root), places, view, &options, Rules::default()).unwrap();
        let mut found = Vec::new();
        loop {
            match listing.step(&|| false) {
                ListingStep::Seen(seen) => found.push((seen.path, seen.outcome.is_ok())),
                ListingStep::Pause => {}
                ListingStep::End => break,
            }
        }
        assert!(found.iter().all(|(path, _)| path.len() <= MAX_PATH), "{view:?}");
        let failed: Vec<_> = found.iter().filter(|(_, is_seen)| !is_seen).collect();
        assert_eq!(failed.len(), 1, "{view:?}");
        let above = found.iter().position(|it| it == &(failed[0].0.clone(), true));
        assert!(above.is_some(), "{view:?}: the failure is not that of a listed directory");
        assert_eq!(found.last(), Some(&(b"z".to_vec(), true)), "{view:?}");
    }
}

/// Paths of a listing of one place, and the texts of its failures.
fn listed(disk: &MemoryDisk, place: &str, view: View) -> Vec<String> {
    let (disk, options) = (Arc::new(disk.clone()), ListOptions::default());
    let places = vec![place.as_bytes().to_vec()];
    let mut listing =
        DirectoryListing::new(Some(disk), places, view, &options, Rules::default()).unwrap();
    let mut all = Vec::new();
    loop {
        match listing.step(&|| false) {
            ListingStep::Seen(seen) => all.push(match seen.outcome {
                Ok(_) => String::from_utf8(seen.path).unwrap(),
                Err(failure) => format!("{:?}", failure.code),
            }),
            ListingStep::Pause => {}
            ListingStep::End => return all,
        }
    }
}

/// Another user may make a file whose name is the quoted name of a file.
#[test]
fn a_quoted_name_means_no_file_with_backslashes() {
    let disk = MemoryDisk::new(1);
    let put = |names: &[&str]| disk.put(&RootPath::new(names).unwrap(), b"content").unwrap();
    put(&["a[1]"]);
    put(&["a\\[1\\]"]);
    put(&["a1"]);
    put(&["d*", "in"]);
    put(&["d\\*"]);
    for view in [View::Itself, View::Content, View::Files, View::Tree] {
        assert_eq!(listed(&disk, "a\\[1\\]", view), ["a[1]"], "{view:?}");
        assert_eq!(listed(&disk, "a\\\\\\[1\\\\\\]", view), ["a\\[1\\]"], "{view:?}");
        // Neither the file with backslashes nor a match of a pattern.
        let removal = NameChange::Remove { recursive: false, seen: None };
        assert_eq!(removal.apply(Some(&disk), b"a[1]", &|| false), Ok(1));
        let found = listed(&disk, "a\\[1\\]", view);
        assert!(found.first().is_some_and(|it| !it.starts_with('a')), "{found:?}");
        put(&["a[1]"]);
    }
    // As the name itself, and not as the match of a pattern.
    assert_eq!(listed(&disk, "d\\*", View::Content), ["d*/in"]);
    assert_eq!(listed(&disk, "d\\*", View::Tree), listed(&disk, "d*", View::Tree));
}
