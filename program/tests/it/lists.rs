//! Access control lists and permission bits of copies and of `sabul sync`.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Instant;

use rustix::fs::XattrFlags;

use crate::common::{Bench, Running, TIMEOUT, expect_code, run, stderr};

const ACCESS: &str = "system.posix_acl_access";

/// A list for the owner, a user, the owning group without rights, and others without rights.
fn list(user: u32, mask: u16) -> Vec<u8> {
    let none = u32::MAX;
    let entries = [(1, 7, none), (2, 7, user), (4, 0, none), (16, mask, none), (32, 0, none)];
    let mut bytes = 2_u32.to_le_bytes().to_vec();
    for (kind, rights, id) in entries {
        bytes.extend([kind, rights].map(u16::to_le_bytes).concat());
        bytes.extend(u32::to_le_bytes(id));
    }
    bytes
}

/// Sets an attribute. Returns false if the file system does not keep it.
fn set(path: &Path, name: &str, value: &[u8]) -> bool {
    let is_set = rustix::fs::setxattr(path, name, value, XattrFlags::empty()).is_ok();
    if !is_set {
        println!("skipped: '{name}' cannot be set at '{}'", path.display());
    }
    is_set
}

fn get(path: &Path, name: &str) -> Option<Vec<u8>> {
    let mut value = Vec::with_capacity(1 << 16);
    rustix::fs::getxattr(path, name, rustix::buffer::spare_capacity(&mut value)).ok()?;
    Some(value)
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// Runs a command that must succeed; returns its messages.
fn done(bench: &Bench, arguments: &[&str]) -> String {
    let output = run(bench.sabul().args(arguments));
    expect_code(&output, 0);
    stderr(&output)
}

#[test]
fn a_changed_list_is_copied_and_its_mask_is_no_right_of_the_group() {
    let bench = Bench::with(&["serve", "--root", "root", "--allow-rm"]);
    let (src, url) = (bench.path("src"), bench.url("copy"));
    fs::create_dir_all(src.join("d")).unwrap();
    for name in ["f", "same", "d/f"] {
        fs::write(src.join(name), name).unwrap();
        set_mode(&src.join(name), 0o600);
    }
    set_mode(&src.join("d"), 0o700);
    if !set(&src.join("same"), ACCESS, &list(1003, 6)) {
        return;
    }
    let ends = [
        (["src/", &url[..]], bench.root("copy")),
        (["src/", "here"], bench.path("here")),
        ([&bench.url("copy/")[..], "back"], bench.path("back")),
    ];
    for (places, _) in &ends {
        done(&bench, &[&["sync", "-a"], &places[..]].concat());
    }
    assert!(set(&src.join("f"), ACCESS, &list(1003, 6)));
    assert!(set(&src.join("d"), ACCESS, &list(1003, 7)));
    assert!(set(&src, ACCESS, &list(1003, 7)));
    // With the same list at both ends, the mask is a permission bit like others.
    set_mode(&src.join("same"), 0o640);
    for (places, to) in &ends {
        let sync = [&["sync", "-a"], &places[..]].concat();
        let verify = [&["verify", "-a"], &places[..]].concat();
        assert_eq!(run(bench.sabul().args(&verify)).status.code(), Some(5), "{places:?}");
        done(&bench, &sync);
        for name in ["f", "d", "same"] {
            let (here, there) = (src.join(name), to.join(name));
            assert_eq!(get(&there, ACCESS), get(&here, ACCESS), "{places:?} {name}");
            assert_eq!(mode(&there), mode(&here), "{places:?} {name}");
        }
        // The destination itself gets no list, and its group no rights.
        assert_eq!(mode(to) & 0o070, 0, "{places:?}");
        done(&bench, &verify);
        assert!(done(&bench, &sync).contains("nothing to copy"), "{places:?}");
    }
    // Another user in the list, and no list.
    assert!(set(&src.join("f"), ACCESS, &list(1004, 6)));
    rustix::fs::removexattr(src.join("d"), ACCESS).unwrap();
    set_mode(&src.join("d"), 0o750);
    for (places, to) in &ends {
        done(&bench, &[&["sync", "-a"], &places[..]].concat());
        assert_eq!(get(&to.join("f"), ACCESS), Some(list(1004, 6)), "{places:?}");
        assert_eq!((get(&to.join("d"), ACCESS), mode(&to.join("d"))), (None, 0o750), "{places:?}");
    }
}

#[test]
fn the_mask_of_a_list_at_the_destination_is_not_widened() {
    let bench = Bench::new();
    for (name, bits) in [("src/f", 0o640), ("to/f", 0o600)] {
        let path = bench.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, "x").unwrap();
        set_mode(&path, bits);
        fs::File::open(&path).unwrap().set_modified(std::time::UNIX_EPOCH).unwrap();
    }
    let there = bench.path("to/f");
    if !set(&there, ACCESS, &list(1003, 0)) {
        return;
    }
    let before = get(&there, ACCESS);
    let refused = run(bench.sabul().args(["sync", "-p", "src/", "to"]));
    expect_code(&refused, 1);
    assert!(stderr(&refused).contains("access control list"), "{}", stderr(&refused));
    assert_eq!(get(&there, ACCESS), before);
    done(&bench, &["sync", "-a", "src/", "to"]);
    assert_eq!((get(&there, ACCESS), mode(&there)), (None, 0o640));
}

#[test]
fn a_directory_loses_rights_before_new_content_comes() {
    let bench = Bench::new();
    for (top, name) in [("src/", "to"), ("src/priv/", "top")] {
        let src = bench.path("src/priv");
        fs::create_dir_all(&src).unwrap();
        fs::write(src.join("old"), "x").unwrap();
        set_mode(&src, 0o755);
        done(&bench, &["sync", "-p", top, name]);
        let there = bench.path(if name == "to" { "to/priv" } else { "top" });
        assert_eq!(mode(&there), 0o755);
        set_mode(&src, 0o700);
        let new = format!("new-{name}");
        fs::write(src.join(&new), vec![7; 2_000_000]).unwrap();
        let mut sync = bench.sabul();
        let running = Running::start(sync.args(["sync", "-p", "--bwlimit", "8M", top, name]));
        let started = Instant::now();
        let part = loop {
            let names = fs::read_dir(&there).unwrap();
            let names = names.map(|it| it.unwrap().path());
            if let Some(part) = names.into_iter().find(|it| it.to_string_lossy().contains(&new)) {
                break part;
            }
            assert!(started.elapsed() < TIMEOUT, "no part appears");
        };
        let found = (mode(&there), fs::metadata(part).map(|it| it.permissions().mode() & 0o077));
        expect_code(&running.finish(), 0);
        assert_eq!(found.0, 0o700, "{top}");
        assert!(
            found.1.is_err() || found.1.is_ok_and(|mode| mode == 0),
            "{top}: the part is private"
        );
        assert_eq!(mode(&there), 0o700, "{top}");
    }
}

#[test]
fn a_new_destination_is_private_until_its_metadata_is_set() {
    let bench = Bench::new();
    fs::create_dir_all(bench.path("src")).unwrap();
    set_mode(&bench.path("src"), 0o750);
    fs::write(bench.path("src/f"), vec![7; 2_000_000]).unwrap();
    let mut sync = bench.sabul();
    let sync = sync.args(["sync", "-p", "--bwlimit", "8M", "src/", "above/new/"]);
    let running = Running::start(sync);
    let started = Instant::now();
    while !bench.path("above/new").exists() {
        assert!(started.elapsed() < TIMEOUT, "no directory appears");
    }
    let found = mode(&bench.path("above/new"));
    expect_code(&running.finish(), 0);
    assert_eq!((found, mode(&bench.path("above/new"))), (0o700, 0o750));
    assert_ne!(mode(&bench.path("above")), 0o700, "nobody sets its metadata later");
}
