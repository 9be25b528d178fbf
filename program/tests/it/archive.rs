//! Archive mode: links, owners, extended attributes, directory times, and holes.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::fs;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _, symlink};
use std::path::Path;
use std::time::{Duration, SystemTime};

use crate::common::{Bench, content, expect_code, json, run, stderr};

/// Creates a tree with links inside, outside and to nowhere, a hard link, an empty directory, and
/// modes and times.
fn make_tree(top: &Path) {
    fs::create_dir_all(top.join("sub/empty")).unwrap();
    fs::write(top.join("a"), content(1, 3000)).unwrap();
    fs::write(top.join("sub/b"), content(2, 70_000)).unwrap();
    fs::hard_link(top.join("a"), top.join("sub/also-a")).unwrap();
    fs::write(top.join("script"), "#!/bin/sh\n").unwrap();
    fs::set_permissions(top.join("script"), fs::Permissions::from_mode(0o555)).unwrap();
    symlink("a", top.join("inward")).unwrap();
    symlink("/etc/passwd", top.join("outward")).unwrap();
    symlink("../nowhere", top.join("sub/broken")).unwrap();
    symlink("sub", top.join("to-folder")).unwrap();
    let old = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    for folder in ["sub/empty", "sub", ""] {
        fs::File::open(top.join(folder)).unwrap().set_modified(old).unwrap();
    }
}

/// Checks that the tree is the one of [`make_tree`].
fn expect_tree(top: &Path) {
    let text = |name: &str| fs::read_link(top.join(name)).unwrap();
    assert_eq!(text("inward"), Path::new("a"));
    assert_eq!(text("outward"), Path::new("/etc/passwd"));
    assert_eq!(text("sub/broken"), Path::new("../nowhere"));
    assert_eq!(text("to-folder"), Path::new("sub"));
    assert_eq!(fs::read(top.join("a")).unwrap(), content(1, 3000));
    assert_eq!(fs::read(top.join("sub/b")).unwrap(), content(2, 70_000));
    let inode = |name: &str| fs::metadata(top.join(name)).unwrap().ino();
    assert_eq!(inode("a"), inode("sub/also-a"), "two names of one file");
    assert_eq!(fs::metadata(top.join("script")).unwrap().mode() & 0o777, 0o555);
    assert!(top.join("sub/empty").is_dir());
    for folder in ["sub/empty", "sub"] {
        assert_eq!(time(&top.join(folder)), 1_000_000_000, "{folder}");
    }
}

fn time(path: &Path) -> i64 {
    fs::metadata(path).unwrap().mtime()
}

#[test]
fn an_archived_tree_arrives_whole_in_both_directions_and_repeats() {
    let bench = Bench::new();
    make_tree(&bench.path("tree"));
    for at in 0..2 {
        let up = run(bench.cp(["-a", "tree", &bench.url("")]).arg("--json"));
        expect_code(&up, 0);
        // a, script and b; the second name of a counts when it is compared. The rest are links and folders.
        let counts = [&json(&up)["files"], &json(&up)["skipped_files"]].map(|it| it.as_u64());
        assert_eq!(counts, if at == 0 { [Some(3), Some(0)] } else { [Some(0), Some(4)] });
        expect_tree(&bench.root("tree"));
        assert_eq!(time(&bench.root("tree")), 1_000_000_000);
    }
    for _ in 0..2 {
        expect_code(&run(&mut bench.cp(["-a", &bench.url("tree"), "down"])), 0);
        expect_tree(&bench.path("down"));
        assert_eq!(time(&bench.path("down")), 1_000_000_000);
        // The second copy goes to an existing tree.
        fs::create_dir_all(bench.path("again")).unwrap();
        expect_code(&run(&mut bench.cp(["-a", &bench.url("tree/"), "again"])), 0);
        expect_tree(&bench.path("again"));
        fs::remove_dir_all(bench.path("down")).unwrap();
    }
}

#[test]
fn without_the_archive_flag_links_inside_the_source_are_followed() {
    let bench = Bench::new();
    make_tree(&bench.path("tree"));
    fs::remove_file(bench.path("tree/sub/broken")).unwrap();
    // A link to the outside is reported, and followed on request, in both directions.
    make_tree(&bench.root("far"));
    fs::remove_file(bench.root("far/sub/broken")).unwrap();
    for (from, to) in [("tree".to_owned(), bench.url("")), (bench.url("far"), "near".to_owned())] {
        let copied = run(&mut bench.cp(["-r", &from, &to]));
        expect_code(&copied, 1);
        let said = stderr(&copied);
        assert!(said.contains("outward"), "{said}");
    }
    assert!(!bench.root("tree/outward").exists() && !bench.path("near/outward").exists());
    assert!(bench.path("near/inward").exists());
    expect_code(&run(&mut bench.cp(["-rL", "tree", &bench.url("")])), 0);
    let passwd = fs::read("/etc/passwd").unwrap();
    assert_eq!(fs::read(bench.root("tree/outward")).unwrap(), passwd);
    // No link leads out of a served directory.
    expect_code(&run(&mut bench.cp(["-rL", &bench.url("far"), "nearer"])), 1);
    assert!(bench.root("tree/inward").symlink_metadata().unwrap().is_file());
    let inode = |name: &str| fs::metadata(bench.root(name)).unwrap().ino();
    assert_ne!(inode("tree/a"), inode("tree/sub/also-a"));
}

#[test]
fn hard_links_are_kept_without_the_archive_flag() {
    let bench = Bench::new();
    let sources = [bench.path("tree"), bench.root("far")];
    for top in &sources {
        fs::create_dir_all(top.join("sub")).unwrap();
        fs::write(top.join("a"), "").unwrap();
        fs::hard_link(top.join("a"), top.join("sub/also-a")).unwrap();
        fs::write(top.join("b"), content(2, 5)).unwrap();
        symlink("b", top.join("inward")).unwrap();
    }
    let [far, up, put] = ["far/", "up/", "put/"].map(|name| bench.url(name));
    let copies = [
        (["cp", "-rH", "tree/", &up], bench.root("up")),
        (["cp", "-rH", &far, "down"], bench.path("down")),
        (["sync", "-H", "tree/", &put], bench.root("put")),
        (["sync", "-H", &far, "got"], bench.path("got")),
        (["sync", "-H", "tree/", "near"], bench.path("near")),
    ];
    let inode = |top: &Path, name: &str| fs::symlink_metadata(top.join(name)).unwrap().ino();
    for (arguments, top) in &copies {
        // The second time, both names have changed with the file.
        for seed in [3, 4] {
            for source in &sources {
                fs::write(source.join("a"), content(seed, 3000)).unwrap();
            }
            expect_code(&run(bench.sabul().args(arguments)), 0);
            assert_eq!(inode(top, "a"), inode(top, "sub/also-a"), "{arguments:?}");
            assert_eq!(fs::read(top.join("sub/also-a")).unwrap(), content(seed, 3000));
            let followed = top.join("inward").symlink_metadata().unwrap();
            assert!(followed.is_file() && followed.ino() != inode(top, "b"), "{arguments:?}");
        }
    }
    expect_code(&run(bench.sabul().args(["sync", "tree/", "apart"])), 0);
    let apart = bench.path("apart");
    assert_ne!(inode(&apart, "a"), inode(&apart, "sub/also-a"));
}

#[test]
fn a_link_replaces_a_file_and_is_never_written_through() {
    let bench = Bench::new();
    fs::create_dir(bench.path("tree")).unwrap();
    symlink("elsewhere", bench.path("tree/x")).unwrap();
    fs::write(bench.path("tree/y"), "new").unwrap();
    fs::create_dir(bench.root("tree")).unwrap();
    fs::write(bench.root("tree/x"), "a file").unwrap();
    fs::write(bench.path("secret"), "secret").unwrap();
    symlink(bench.path("secret"), bench.root("tree/y")).unwrap();
    expect_code(&run(&mut bench.cp(["-a", "tree", &bench.url("")])), 0);
    assert_eq!(fs::read_link(bench.root("tree/x")).unwrap(), Path::new("elsewhere"));
    assert_eq!(fs::read(bench.root("tree/y")).unwrap(), b"new");
    assert_eq!(fs::read(bench.path("secret")).unwrap(), b"secret", "the link was replaced");
    // A directory in the way stays and is reported.
    fs::remove_file(bench.root("tree/x")).unwrap();
    fs::create_dir(bench.root("tree/x")).unwrap();
    let failed = run(&mut bench.cp(["-a", "tree", &bench.url("")]));
    expect_code(&failed, 1);
    assert!(stderr(&failed).contains("folder"), "{}", stderr(&failed));
    assert!(bench.root("tree/x").is_dir());
}

#[test]
fn owners_that_cannot_be_kept_are_counted_in_one_line() {
    // The owner check needs the right to change owners.
    let bench = Bench::new();
    fs::write(bench.path("f"), "x").unwrap();
    fs::set_permissions(bench.path("f"), fs::Permissions::from_mode(0o4755)).unwrap();
    let is_root = std::os::unix::fs::chown(bench.path("f"), Some(12_345), Some(12_346)).is_ok();
    fs::set_permissions(bench.path("f"), fs::Permissions::from_mode(0o4755)).unwrap();
    let up = run(bench.cp(["-a", "f", &bench.url("")]).arg("--json"));
    expect_code(&up, 0);
    assert_eq!(json(&up)["not_kept"]["bits"], 1);
    assert!(stderr(&up).contains("not kept: permission bits of 1 file"), "{}", stderr(&up));
    let there = fs::metadata(bench.root("f")).unwrap();
    assert_eq!(there.mode() & 0o7777, 0o755, "no rights are lent");
    if is_root {
        assert_eq!((there.uid(), there.gid()), (12_345, 12_346));
        assert_eq!(json(&up)["not_kept"]["owners"], 0);
    }
}

/// Sets an extended attribute. Returns false if the file system does not support them.
fn set_attribute(path: &Path, name: &str, value: &[u8]) -> bool {
    rustix::fs::setxattr(path, name, value, rustix::fs::XattrFlags::empty()).is_ok()
}

fn attribute(path: &Path, name: &str) -> Option<Vec<u8>> {
    let mut value = Vec::with_capacity(1 << 16);
    rustix::fs::getxattr(path, name, rustix::buffer::spare_capacity(&mut value)).ok()?;
    Some(value)
}

#[test]
fn user_extended_attributes_arrive_and_system_attributes_do_not() {
    let bench = Bench::new();
    let tree = bench.path("tree");
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join("f"), "x").unwrap();
    if !set_attribute(&tree.join("f"), "user.origin", b"\0\xFFhere") {
        return;
    }
    assert!(set_attribute(&tree, "user.empty", b""));
    // Fails without privileges; then there is no such attribute to leave out.
    set_attribute(&tree.join("f"), "trusted.x", b"1");
    fs::set_permissions(tree.join("f"), fs::Permissions::from_mode(0o444)).unwrap();
    expect_code(&run(&mut bench.cp(["-a", "tree", &bench.url("")])), 0);
    let there = bench.root("tree");
    assert_eq!(attribute(&there.join("f"), "user.origin").unwrap(), b"\0\xFFhere");
    assert_eq!(attribute(&there, "user.empty").unwrap(), b"");
    assert_eq!(attribute(&there.join("f"), "trusted.x"), None);
    assert_eq!(fs::metadata(there.join("f")).unwrap().mode() & 0o777, 0o444);
    expect_code(&run(&mut bench.cp(["-p", &bench.url("tree/f"), "plain"])), 0);
    assert_eq!(attribute(&bench.path("plain"), "user.origin"), None, "only with -a");
}

/// Creates a file of this length with data at the start, in the middle and near the end.
fn make_sparse(path: &Path, size: u64) -> bool {
    let file = fs::File::create(path).unwrap();
    file.set_len(size).unwrap();
    for (seed, at) in [(1, 0), (2, size / 2 + 12_345), (3, size - 2_000_000)] {
        file.write_all_at(&content(seed, 1_000_000), at).unwrap();
    }
    file.sync_all().unwrap();
    file.metadata().unwrap().blocks() * 512 < size
}

fn expect_sparse(path: &Path, size: u64) {
    let file = fs::File::open(path).unwrap();
    assert_eq!(file.metadata().unwrap().len(), size);
    let mut read = vec![0; 1_000_000];
    for (seed, at) in [(1, 0), (2, size / 2 + 12_345), (3, size - 2_000_000)] {
        file.read_exact_at(&mut read, at).unwrap();
        assert!(read == content(seed, 1_000_000), "at {at}");
        file.read_exact_at(&mut read, at + 1_000_000).unwrap();
        assert!(read.iter().all(|&byte| byte == 0), "behind {at}");
    }
    let allocated = file.metadata().unwrap().blocks() * 512;
    assert!(allocated < 16_000_000, "{allocated} bytes on the disk");
}

#[test]
fn a_sparse_tebibyte_file_transfers_only_its_data_in_both_directions() {
    let size = 1 << 40;
    let bench = Bench::new();
    if !make_sparse(&bench.path("big"), size) {
        return;
    }
    fs::File::create(bench.path("hollow")).unwrap().set_len(1 << 30).unwrap();
    let up = run(bench.cp(["big", "hollow", &bench.url("")]).arg("--json"));
    expect_code(&up, 0);
    assert!(json(&up)["bytes"].as_u64().unwrap() < 4_000_000, "{}", json(&up)["bytes"]);
    assert_eq!(json(&up)["verified"], true);
    expect_sparse(&bench.root("big"), size);
    let hollow = fs::metadata(bench.root("hollow")).unwrap();
    assert_eq!((hollow.len(), hollow.blocks()), (1 << 30, 0));
    expect_code(&run(&mut bench.cp([bench.url("big").as_str(), "down"])), 0);
    expect_sparse(&bench.path("down"), size);
}

#[test]
fn a_sparse_file_is_written_to_a_stream_with_zeros() {
    let bench = Bench::new();
    let size = 5_000_000;
    make_sparse(&bench.root("f"), size);
    let out = run(&mut bench.cp([bench.url("f").as_str(), "-"]));
    expect_code(&out, 0);
    assert!(out.stdout == fs::read(bench.root("f")).unwrap());
}
