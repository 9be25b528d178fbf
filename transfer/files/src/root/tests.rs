//! Tests of the sandbox: links, names and races below an open root.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::*;

/// A sandboxed folder `inside`, next to a folder `outside` with a file that must not leak.
struct Place {
    folder: tempfile::TempDir,
}

const SECRET: &str = "outside content";

impl Place {
    fn new() -> Self {
        let place = Self { folder: tempfile::tempdir().unwrap() };
        fs::create_dir_all(place.inside("sub")).unwrap();
        fs::create_dir(place.outside("")).unwrap();
        fs::write(place.outside("secret"), SECRET).unwrap();
        fs::write(place.inside("sub/file"), "inside content").unwrap();
        place
    }

    fn inside(&self, path: &str) -> PathBuf {
        self.folder.path().join("inside").join(path)
    }

    fn outside(&self, path: &str) -> PathBuf {
        self.folder.path().join("outside").join(path)
    }

    /// The sandbox of `inside`, once for each method of resolution.
    fn root_dirs(&self) -> Vec<RootDir> {
        let open = || RootDir::open(&self.inside(""), RootLink::Refuse).unwrap();
        vec![open(), RootDir { resolver: Resolver::Walk, ..open() }]
    }

    fn assert_outside_untouched(&self) {
        let names: Vec<_> =
            fs::read_dir(self.outside("")).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(names, ["secret"]);
        assert_eq!(fs::read_to_string(self.outside("secret")).unwrap(), SECRET);
        let metadata = fs::metadata(self.outside("secret")).unwrap();
        assert_eq!(metadata.nlink(), 1);
    }
}

fn path(text: &str) -> RootPath {
    RootPath::new(text.split('/').filter(|name| !name.is_empty())).unwrap()
}

/// Entries of a folder, sorted by name.
fn sorted(root_dir: &RootDir, path: &RootPath) -> Result<Vec<Entry>, RootError> {
    let mut entries = root_dir.read_dir(path)?.collect::<Result<Vec<_>, _>>()?;
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(entries)
}

#[track_caller]
fn assert_taken(result: Result<File, RootError>) {
    assert_eq!(result.unwrap_err().io_kind(), Some(io::ErrorKind::AlreadyExists));
}

fn content(file: Result<File, RootError>) -> String {
    let mut text = String::new();
    file.unwrap().read_to_string(&mut text).unwrap();
    text
}

#[test]
fn linux_confines_in_the_kernel() {
    let place = Place::new();
    if cfg!(target_os = "linux") {
        assert_ne!(place.root_dirs()[0].resolver, Resolver::Walk);
    }
    assert_eq!(place.root_dirs()[1].resolver, Resolver::Walk);
}

#[test]
fn only_plain_names_are_valid_path_components() {
    let long = "x".repeat(MAX_NAME + 1);
    for (names, fault) in [
        (vec![".."], NameFault::Dots),
        (vec!["a", "..", "b"], NameFault::Dots),
        (vec!["."], NameFault::Dots),
        (vec![""], NameFault::Empty),
        (vec!["a", ""], NameFault::Empty),
        (vec!["/etc"], NameFault::Slash),
        (vec!["a/../b"], NameFault::Slash),
        (vec!["a/"], NameFault::Slash),
        (vec!["a\0"], NameFault::Nul),
        (vec![&*long], NameFault::TooLong),
        (vec![&long[..MAX_NAME]; 17], NameFault::TooLong),
    ] {
        match RootPath::new(&names) {
            Err(RootError::BadName { fault: found, .. }) => assert_eq!(found, fault, "{names:?}"),
            other => panic!("{names:?} gave {other:?}"),
        }
    }
    for good in ["...", "..a", "a..", " ", "-", "~", "a\\b", "C:", "\u{202e}", "a\nb"] {
        assert_eq!(RootPath::new([good]).unwrap().name(), Some(good.as_bytes()));
    }
    RootPath::new([[0xFF, 0xFE]]).unwrap();
    RootPath::new([&long[..MAX_NAME]; 15]).unwrap();
}

#[test]
fn a_path_returns_its_name_parent_and_components() {
    let deep = path("a/b/c");
    assert_eq!(deep.name(), Some(&b"c"[..]));
    assert_eq!(deep.parent(), Some(path("a/b")));
    assert_eq!(deep.components().collect::<Vec<_>>(), [b"a", b"b", b"c"]);
    assert_eq!(path("a").parent(), Some(RootPath::root()));
    assert_eq!(path("a").join("b").unwrap(), path("a/b"));
    let root = RootPath::root();
    assert_eq!((root.parent(), root.name(), root.components().count()), (None, None, 0));
    assert_eq!(RootPath::new([[0u8; 0]; 0]).unwrap(), root);
    assert_eq!(path("a\x1b[2J\n").to_string(), r"a\u{1b}[2J\n");
}

#[test]
fn the_longest_names_work() {
    let place = Place::new();
    for (root_dir, letter) in place.root_dirs().iter().zip(["x", "y"]) {
        let name = letter.repeat(MAX_NAME);
        let mut deep = RootPath::root();
        for _ in 0..15 {
            deep = deep.join(&name).unwrap();
        }
        root_dir.create_dir_all(&deep).unwrap();
        let file = deep.join("file").unwrap();
        root_dir.create_part(&file, 0o644).unwrap();
        assert_eq!(root_dir.stat(&file, LinkTarget::Itself).unwrap().kind, Kind::File);
    }
}

#[test]
fn a_path_has_at_most_its_maximum_of_bytes_with_slashes() {
    let long = std::iter::repeat_n("x".repeat(MAX_NAME), 15);
    let deep = RootPath::new(long.chain(["y".repeat(253)]).map(String::into_bytes)).unwrap();
    assert!(deep.join("ab").unwrap_err().to_string().contains("paths 4095"));
    assert_eq!(deep.join("a").unwrap().as_bytes().len(), MAX_PATH);
}

#[test]
fn links_that_lead_outside_the_root_are_never_followed() {
    let place = Place::new();
    let up = |name| format!("../outside/{name}");
    symlink(place.outside("secret"), place.inside("absolute-file")).unwrap();
    symlink(up("secret"), place.inside("relative-file")).unwrap();
    symlink(place.outside(""), place.inside("absolute-dir")).unwrap();
    symlink("../outside", place.inside("relative-dir")).unwrap();
    symlink("../../outside/secret", place.inside("sub/deep-file")).unwrap();
    symlink("..", place.inside("up")).unwrap();
    symlink("/", place.inside("slash")).unwrap();
    symlink("sub/../../outside/secret", place.inside("zigzag")).unwrap();
    symlink("relative-dir", place.inside("twice")).unwrap();
    // An absolute target inside the root also leads out: its meaning depends on the position of the
    // root.
    symlink(place.inside("sub/file"), place.inside("absolute-inside")).unwrap();
    let top = place.folder.path().to_str().unwrap()[1..].to_owned();
    for root_dir in place.root_dirs() {
        for name in [
            "absolute-file",
            "relative-file",
            "absolute-dir/secret",
            "relative-dir/secret",
            "sub/deep-file",
            "up/outside/secret",
            "slash/etc/passwd",
            &format!("slash/{top}/outside/secret"),
            "zigzag",
            "twice/secret",
            "absolute-inside",
        ] {
            let path = path(name);
            let resolver = root_dir.resolver;
            let escapes = |error: RootError| {
                assert!(matches!(error, RootError::Escapes(_)), "{name} by {resolver:?}: {error}");
            };
            escapes(root_dir.open_read(&path).unwrap_err());
            escapes(root_dir.stat(&path, LinkTarget::Follow).unwrap_err());
            if path.components().count() > 1 && name != "sub/deep-file" {
                escapes(root_dir.stat(&path, LinkTarget::Itself).unwrap_err());
                escapes(root_dir.read_dir(&path.parent().unwrap()).unwrap_err());
            } else {
                let metadata = root_dir.stat(&path, LinkTarget::Itself).unwrap();
                assert_eq!(metadata.kind, Kind::Symlink, "{name}");
            }
        }
    }
    place.assert_outside_untouched();
}

#[test]
fn links_that_stay_inside_are_followed_for_reading() {
    let place = Place::new();
    symlink("sub/file", place.inside("file-link")).unwrap();
    symlink("sub", place.inside("dir-link")).unwrap();
    symlink("../dir-link/./file", place.inside("sub/around")).unwrap();
    symlink("sub/..", place.inside("self")).unwrap();
    symlink("circle", place.inside("circle")).unwrap();
    symlink("nothing", place.inside("dangling")).unwrap();
    for root_dir in place.root_dirs() {
        for name in ["file-link", "dir-link/file", "sub/around", "self/self/dir-link/around"] {
            assert_eq!(content(root_dir.open_read(&path(name))), "inside content", "{name}");
            let metadata = root_dir.stat(&path(name), LinkTarget::Follow).unwrap();
            assert_eq!((metadata.kind, metadata.size), (Kind::File, 14), "{name}");
        }
        assert_eq!(root_dir.read_dir(&path("dir-link")).unwrap().count(), 2);
        assert_eq!(root_dir.read_dir(&path("self")).unwrap().count(), 6);
        let error = root_dir.open_read(&path("circle")).unwrap_err();
        assert!(matches!(error, RootError::Link(_)), "{error}");
        assert!(root_dir.open_read(&path("dangling")).unwrap_err().is_not_found());
    }
}

#[test]
fn writing_follows_no_link_at_all() {
    let place = Place::new();
    fs::write(place.inside("target"), "kept").unwrap();
    symlink("../outside", place.inside("out")).unwrap();
    symlink("sub", place.inside("in")).unwrap();
    symlink("target", place.inside("file-link")).unwrap();
    symlink("../outside/new", place.inside("dangling")).unwrap();
    for root_dir in place.root_dirs() {
        for folder in ["out", "in"] {
            let inner = path(&format!("{folder}/new"));
            let deeper = path(&format!("{folder}/new/deeper"));
            for error in [
                root_dir.create_part(&inner, 0o644).unwrap_err(),
                root_dir.open_part(&path(&format!("{folder}/file"))).unwrap_err(),
                root_dir.create_dir_all(&inner).unwrap_err(),
                root_dir.create_dir_all(&deeper).unwrap_err(),
                root_dir.create_dir_all(&path(folder)).unwrap_err(),
                root_dir.open_dir(&path(folder)).unwrap_err(),
                root_dir.remove_file(&path(&format!("{folder}/file"))).unwrap_err(),
                root_dir.rename(&path(&format!("{folder}/file")), &inner).unwrap_err(),
            ] {
                assert!(matches!(error, RootError::Link(_)), "{folder}: {error}");
            }
        }
        for name in ["file-link", "dangling"] {
            let error = root_dir.open_part(&path(name)).unwrap_err();
            assert!(matches!(error, RootError::Link(_)), "{name}: {error}");
            let error = root_dir.create_dir_all(&path(name).join("x").unwrap()).unwrap_err();
            assert!(matches!(error, RootError::Link(_)), "{name}: {error}");
        }
    }
    // A link under the part's name is an error, a link under the final name is replaced; its target
    // is unchanged.
    for root_dir in place.root_dirs() {
        for name in ["file-link", "dangling"] {
            assert_taken(root_dir.create_part(&path(name), 0o644));
            assert!(fs::symlink_metadata(place.inside(name)).unwrap().is_symlink());
            root_dir.create_part(&path("part"), 0o644).unwrap().write_all(b"new").unwrap();
            root_dir.rename(&path("part"), &path(name)).unwrap();
            assert_eq!(fs::read_to_string(place.inside(name)).unwrap(), "new");
            root_dir.remove_file(&path(name)).unwrap();
            symlink("target", place.inside(name)).unwrap();
        }
    }
    let root_dir = &place.root_dirs()[0];
    root_dir.remove_file(&path("file-link")).unwrap();
    assert_eq!(fs::read_to_string(place.inside("target")).unwrap(), "kept");
    assert_eq!(fs::read_dir(place.inside("sub")).unwrap().count(), 1);
    place.assert_outside_untouched();
}

/// A local attacker swaps a folder for a link to the outside, and back, as fast as possible.
/// Meanwhile this test reads and writes below the folder.
#[test]
#[cfg(target_os = "linux")]
fn a_folder_swapped_for_a_link_does_not_escape_the_root() {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    let place = Place::new();
    fs::write(place.inside("sub/secret"), "decoy").unwrap();
    symlink("../outside", place.inside("evil")).unwrap();
    for root_dir in place.root_dirs() {
        let start = Instant::now();
        let (least, most) = (Duration::from_millis(400), Duration::from_secs(10));
        let done = AtomicBool::new(false);
        let (mut real, mut refused) = (0u32, 0u32);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let (a, b) = (place.inside("sub"), place.inside("evil"));
                while !done.load(Ordering::Relaxed) && start.elapsed() < most {
                    renameat_with(CWD, &a, CWD, &b, RenameFlags::EXCHANGE).unwrap();
                }
            });
            // A busy machine may let one side run alone for a while.
            while start.elapsed() < least || (real.min(refused) < 10 && start.elapsed() < most) {
                let mut count = |result: Result<(), RootError>| match result {
                    Ok(()) => real += 1,
                    Err(_) => refused += 1,
                };
                let secret = path("sub/secret");
                count(root_dir.open_read(&secret).map(|file| {
                    assert_eq!(content(Ok(file)), "decoy", "by {:?}", root_dir.resolver);
                }));
                count(root_dir.open_part(&secret).map(drop));
                count(root_dir.create_part(&path("sub/part"), 0o600).map(drop));
                count(root_dir.rename(&path("sub/part"), &path("sub/final")));
                count(root_dir.create_dir(&path("sub/y")).map(drop));
                count(root_dir.create_dir_all(&path("sub/x/y")));
                count(root_dir.remove_file(&path("sub/final")));
            }
            done.store(true, Ordering::Relaxed);
        });
        place.assert_outside_untouched();
        assert!(real >= 10 && refused >= 10, "{real} went well, {refused} were refused");
    }
}

#[test]
fn a_part_file_never_overwrites_and_is_renamed_to_the_final_name() {
    let place = Place::new();
    for root_dir in place.root_dirs() {
        let (part, last) = (path("sub/new.part"), path("sub/new"));
        root_dir.create_part(&part, 0o600).unwrap().write_all(b"fre").unwrap();
        assert_taken(root_dir.create_part(&part, 0o644));
        let mut resumed = root_dir.open_part(&part).unwrap();
        assert_eq!(content(resumed.try_clone().map_err(|_| unreachable!())), "fre");
        resumed.write_all(b"sh").unwrap();
        fs::write(place.inside("sub/new"), "older").unwrap();
        root_dir.rename(&part, &last).unwrap();
        assert_eq!(content(root_dir.open_read(&last)), "fresh");
        assert_eq!(root_dir.stat(&last, LinkTarget::Itself).unwrap().mode, 0o600);
        assert!(root_dir.open_part(&part).unwrap_err().is_not_found());
        root_dir.remove_file(&last).unwrap();
        assert!(root_dir.remove_file(&last).unwrap_err().is_not_found());
    }
}

#[test]
fn an_open_folder_gives_access_only_to_its_own_names() {
    let path = |path: &str| RootPath::new(path.split('/').map(str::as_bytes)).unwrap();
    for root_dir in Place::new().root_dirs() {
        assert!(root_dir.near(&path("none")).unwrap_err().is_not_found());
    }
    let place = Place::new();
    symlink("../outside", place.inside("out")).unwrap();
    symlink("sub", place.inside("link")).unwrap();
    fs::write(place.inside("top"), "at the top").unwrap();
    for root_dir in place.root_dirs() {
        root_dir.near(&path("out")).unwrap_err();
        root_dir.near(&path("link")).unwrap_err();
        for held in [path("sub"), RootPath::root().clone()] {
            let near = root_dir.near(&held).unwrap();
            for (name, size) in [("sub/file", 14), ("top", 10)] {
                let found = near.stat(&path(name), LinkTarget::Itself).unwrap();
                assert_eq!((found.kind, found.size), (Kind::File, size), "{name}");
            }
            assert!(near.stat(&path("file"), LinkTarget::Itself).unwrap_err().is_not_found());
            drop(near.create_part(&path("sub/new"), 0o600).unwrap());
            near.rename(&path("sub/new"), &path("sub/last")).unwrap();
            assert!(place.inside("sub/last").exists());
            near.remove_file(&path("sub/last")).unwrap();
            near.create_part(&path("out/secret"), 0o600).unwrap_err();
        }
    }
    place.assert_outside_untouched();
}

#[test]
fn a_hard_link_to_the_outside_is_not_written_to() {
    let place = Place::new();
    for root_dir in place.root_dirs() {
        let planted = place.inside("part");
        fs::hard_link(place.outside("secret"), &planted).unwrap();
        let error = root_dir.open_part(&path("part")).unwrap_err();
        assert!(matches!(error, RootError::Shared(_)), "{error}");
        assert_taken(root_dir.create_part(&path("part"), 0o644));
        fs::remove_file(&planted).unwrap();
    }
    place.assert_outside_untouched();
}

#[test]
fn folders_are_not_opened_as_files_nor_files_as_folders() {
    let place = Place::new();
    for root_dir in place.root_dirs() {
        let part = path("part");
        let _ = root_dir.create_part(&part, 0o644);
        assert_taken(root_dir.create_part(&path("sub"), 0o644));
        for error in [
            root_dir.rename(&part, &path("sub")).unwrap_err(),
            root_dir.open_read(&path("sub")).unwrap_err(),
            root_dir.open_part(&path("sub")).unwrap_err(),
            root_dir.remove_file(&path("sub")).unwrap_err(),
            root_dir.open_read(&RootPath::root()).unwrap_err(),
            root_dir.create_part(&RootPath::root(), 0o644).unwrap_err(),
            root_dir.remove_file(&RootPath::root()).unwrap_err(),
        ] {
            assert!(matches!(error, RootError::IsADirectory(_)), "{error}");
        }
        for error in [
            root_dir.create_dir(&path("sub/file")).unwrap_err(),
            root_dir.create_dir(&path("sub/file/x")).unwrap_err(),
            root_dir.create_dir_all(&path("sub/file")).unwrap_err(),
            root_dir.create_dir_all(&path("sub/file/x")).unwrap_err(),
            sorted(&root_dir, &path("sub/file")).unwrap_err(),
            root_dir.open_read(&path("sub/file/x")).unwrap_err(),
            root_dir.create_part(&path("sub/file/x"), 0o644).unwrap_err(),
        ] {
            assert!(matches!(error, RootError::NotADirectory(_)), "{error}");
        }
        root_dir.rename(&part, &path("sub/part")).unwrap();
        root_dir.rename(&path("sub/part"), &part).unwrap();
    }
}

#[test]
fn opening_a_pipe_does_not_block_and_is_refused() {
    let place = Place::new();
    let pipe = place.inside("pipe");
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, Mode::from_raw_mode(0o644)).unwrap();
    for root_dir in place.root_dirs() {
        for result in [root_dir.open_read(&path("pipe")), root_dir.open_part(&path("pipe"))] {
            let error = result.unwrap_err();
            assert!(matches!(error, RootError::NotAFile(_)), "{error}");
        }
        assert_eq!(root_dir.stat(&path("pipe"), LinkTarget::Follow).unwrap().kind, Kind::Other);
        // Listing a pipe does not block either.
        assert!(root_dir.read_dir(&path("pipe")).is_err());
        assert!(root_dir.open_dir(&path("pipe")).is_err());
    }
}

#[test]
fn ids_and_times_with_a_special_meaning_are_refused() {
    assert_eq!(owner(None, u32::MAX).unwrap_err(), Errno::INVAL);
    assert_eq!(owner(Some(u32::MAX), 0).unwrap_err(), Errno::INVAL);
    assert!(owner(Some(u32::MAX - 1), u32::MAX - 1).is_ok());
    let place = Place::new();
    symlink("target", place.inside("a-link")).unwrap();
    for root_dir in place.root_dirs() {
        let set = |nanoseconds| {
            root_dir.set_link_mtime(&path("a-link"), FileTime { seconds: 1, nanoseconds })
        };
        assert!(set(999_999_999).is_ok());
        assert!(set(1_000_000_000).is_err(), "larger values mean now, or no change");
    }
}

#[test]
fn only_an_empty_folder_is_removed_as_a_folder() {
    let place = Place::new();
    fs::create_dir(place.inside("empty")).unwrap();
    for (root_dir, is_there) in place.root_dirs().iter().zip([true, false]) {
        assert!(root_dir.remove_dir(&path("sub")).is_err(), "not empty");
        assert_eq!(root_dir.remove_dir(&path("empty")).is_ok(), is_there);
        assert!(!place.inside("empty").exists() && place.inside("sub").exists());
    }
}

#[test]
fn the_identity_of_a_file_has_its_birth_time_where_the_system_reports_one() {
    let place = Place::new();
    let reports = fs::metadata(place.inside("sub")).unwrap().created().is_ok();
    for root_dir in place.root_dirs() {
        let id = root_dir.stat(&path("sub"), LinkTarget::Itself).unwrap().id;
        assert_eq!(id.born_ns != 0, reports);
    }
}

#[test]
fn folders_are_created_with_their_parents() {
    let place = Place::new();
    for (root_dir, name) in place.root_dirs().iter().zip(["one", "two"]) {
        let deep = path(&format!("sub/{name}/b/c"));
        root_dir.create_dir_all(&deep).unwrap();
        root_dir.create_dir_all(&deep).unwrap();
        root_dir.create_dir_all(&RootPath::root()).unwrap();
        assert!(!root_dir.create_dir(&RootPath::root()).unwrap());
        assert!(!root_dir.create_dir(&deep).unwrap());
        assert!(root_dir.create_dir(&deep.join("d").unwrap()).unwrap());
        assert!(root_dir.create_dir(&path(&format!("sub/{name}/x/y"))).unwrap_err().is_not_found());
        assert_eq!(root_dir.stat(&deep, LinkTarget::Itself).unwrap().kind, Kind::Directory);
        root_dir.open_dir(&deep).unwrap().sync_all().unwrap();
        root_dir.open_dir(&RootPath::root()).unwrap().sync_all().unwrap();
    }
}

#[test]
fn every_name_is_listed_with_its_kind() {
    let place = Place::new();
    for name in ["b", "a", "B", "é", "a.part"] {
        fs::write(place.inside(name), "").unwrap();
    }
    symlink("a", place.inside("link")).unwrap();
    for root_dir in place.root_dirs() {
        let entries = sorted(&root_dir, &RootPath::root()).unwrap();
        let names: Vec<_> = entries.iter().map(|e| std::str::from_utf8(&e.name).unwrap()).collect();
        assert_eq!(names, ["B", "a", "a.part", "b", "link", "sub", "é"]);
        let kinds: BTreeSet<_> =
            entries.iter().filter(|e| e.kind != Kind::File).map(|e| e.name.as_slice()).collect();
        assert_eq!(kinds, BTreeSet::from([&b"link"[..], b"sub"]));
        assert_eq!(entries[4].kind, Kind::Symlink);
        assert_eq!(entries[5].kind, Kind::Directory);
        assert!(root_dir.read_dir(&path("missing")).unwrap_err().is_not_found());
    }
}

#[test]
fn mode_and_time_are_set_and_special_bits_are_not() {
    let place = Place::new();
    for root_dir in place.root_dirs() {
        let name = path("sub/file");
        let file = root_dir.open_part(&name).unwrap();
        set_mode(&file, 0o6751).unwrap();
        for mtime in [
            FileTime { seconds: 1_000_000_000, nanoseconds: 123_456_789 },
            FileTime { seconds: -5, nanoseconds: 999_999_999 },
        ] {
            set_mtime(&file, mtime).unwrap();
            let metadata = root_dir.stat(&name, LinkTarget::Itself).unwrap();
            let Metadata { kind, size, mode, .. } = metadata;
            assert_eq!((kind, size, mode, metadata.mtime), (Kind::File, 14, 0o751, mtime));
            assert_eq!(Metadata::of(&file).unwrap(), metadata);
        }
        for nanoseconds in [1_000_000_000, (1 << 30) - 1, (1 << 30) - 2, u32::MAX] {
            let error = set_mtime(&file, FileTime { seconds: 1, nanoseconds }).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        }
        let folder = root_dir.open_dir(&path("sub")).unwrap();
        set_mode(&folder, 0o700).unwrap();
        let mode = fs::metadata(place.inside("sub")).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0o700);
        let _ = root_dir.remove_file(&path("suid"));
        let part = root_dir.create_part(&path("suid"), 0o4755).unwrap();
        assert_eq!(Metadata::of(&part).unwrap().mode & 0o7000, 0);
    }
}

#[test]
fn the_root_may_be_a_link_only_if_allowed() {
    let place = Place::new();
    let link = place.folder.path().join("link");
    symlink("inside", &link).unwrap();
    let root_dir = RootDir::open(&link, RootLink::Follow).unwrap();
    assert_eq!(content(root_dir.open_read(&path("sub/file"))), "inside content");
    let error = RootDir::open(&link, RootLink::Refuse).unwrap_err();
    assert!(matches!(error, RootError::Link(_)), "{error}");
    let error = RootDir::open(&place.inside("sub/file"), RootLink::Follow).unwrap_err();
    assert!(matches!(error, RootError::NotADirectory(_)), "{error}");
    let error = RootDir::open(&place.inside("missing"), RootLink::Follow).unwrap_err();
    assert!(error.is_not_found(), "{error}");
    assert_eq!(error.io_kind(), Some(io::ErrorKind::NotFound));
}

#[test]
fn error_messages_show_the_path_as_the_user_wrote_it() {
    let folder = tempfile::tempdir().unwrap();
    let root_dir =
        |name: &str| RootDir::open(folder.path(), RootLink::Follow).unwrap().named(name.as_bytes());
    let path = RootPath::new([&b"d"[..], b"f"]).unwrap();
    for (name, shown) in
        [("", "d/f"), (".", "d/f"), ("/", "/d/f"), ("/a", "/a/d/f"), ("a/", "a/d/f")]
    {
        assert_eq!(root_dir(name).shown(&path), shown, "{name}");
    }
    assert_eq!(root_dir("/a").shown(&RootPath::root()), "/a");
    let refused = io::Error::from_raw_os_error(13);
    let operation = "create";
    let error = RootError::Io { operation, path: "d/f.sabul-part".to_owned(), source: refused };
    assert_eq!(error.to_string(), "cannot create 'd/f.sabul-part': Permission denied");
    assert_eq!(error.reason(), "Permission denied");
    assert!(RootError::Link("x: y".to_owned()).reason().starts_with("a symbolic link"));
}
