//! Tests of ownership and metadata: files of other users and transfers, links that lead out,
//! replaced and changed files.

use std::os::unix::fs::chown;

use sabul_wire::control::{Attribute, Expected, More, NewMetadata, Owner};

use super::resume::{
    attempt, attempt_until, attempt_with, check_whole, few, path, read_have, receiver_of, source,
    total,
};
use super::*;
use crate::acl::tests::list;
use crate::disk::Disk;
use crate::disk::memory::MemoryDisk;
use crate::part::{Part, reclaim};
use crate::receive::Sink as _;
use crate::root::{LinkTarget, RootPath};
use crate::{facts_of, set_metadata};

const JOURNAL: &str = "to/.resume-0.sabul-part";

/// A disk with the journal and the kept part of an interrupted copy.
fn interrupted(from: &TempDir) -> (MemoryDisk, RootPath) {
    let disk = MemoryDisk::new(0);
    drop(attempt_until(from, &disk, true, 90));
    let is_part = |name: &&Vec<u8>| name.ends_with(b".kept.sabul-part");
    let part = disk.tree().into_keys().find(|name| is_part(&name)).expect("a part is kept");
    (disk, path(std::str::from_utf8(&part).unwrap()))
}

#[test]
fn parts_owned_or_writable_by_others_are_kept_and_the_copy_restarts() {
    let files = few();
    let from = source(&files);
    let journal = path(JOURNAL);
    for (owner, mode) in [(7, 0o600), (0, 0o620), (0, 0o602)] {
        for both in [false, true] {
            let what = format!("owner {owner}, mode {mode:o}, both {both}");
            let (disk, part) = interrupted(&from);
            disk.own(&part, owner, mode).unwrap();
            if both {
                disk.own(&journal, owner, mode).unwrap();
            }
            let before = disk.tree();
            let second = attempt(&from, &disk.process(), true);
            assert_eq!(second.receiver.failures(), [], "{what}");
            // A file with its final name counts, unless the journal that records it is rejected.
            let whole = if both { 0 } else { total(&files) - second.sent };
            assert!(whole < 100_000, "{what}: {whole} bytes of the part count");
            drop(second);
            let after = disk.tree();
            let name = part.as_bytes();
            assert_eq!(after.get(name), before.get(name), "{what}: the part is left alone");
            assert_eq!(both, after.get(journal.as_bytes()) == before.get(journal.as_bytes()));
            check_whole(&disk, &files, &what);
            let found = disk.stat(&path("to/big"), LinkTarget::Itself).unwrap();
            assert_eq!(found.owner, 0, "{what}");
        }
    }
    // The own part is resumed if no other user may write to it.
    let (disk, part) = interrupted(&from);
    let kept = disk.stat(&part, LinkTarget::Itself).unwrap();
    assert_eq!((kept.owner, kept.mode), (0, 0o600), "nobody else reads it either");
    assert!(attempt(&from, &disk.process(), true).sent < total(&files) - 50_000);
    let found = disk.stat(&path("to/big"), LinkTarget::Itself).unwrap();
    let bits = fs::metadata(from.path().join("big")).unwrap().mode() & 0o777;
    assert_eq!(found.mode, bits, "as if it had not been interrupted");
}

#[test]
fn parts_owned_by_others_are_not_removed() {
    let disk = MemoryDisk::new(0);
    let dead = path("d/f.0123456789abcdef.sabul-part");
    let own = path("d/own");
    disk.put(&dead, b"x").unwrap();
    disk.put(&own, b"").unwrap();
    let now = || disk.stat(&own, LinkTarget::Itself).unwrap();
    disk.own(&dead, 7, 0o600).unwrap();
    assert_eq!(reclaim(&disk, &path("d"), &now()), 0);
    disk.own(&dead, 0, 0o600).unwrap();
    assert_eq!(reclaim(&disk, &path("d"), &now()), 1);
}

#[test]
fn a_part_that_is_checked_before_its_rename_is_not_removed() {
    let disk = MemoryDisk::new(0);
    let own = path("d/own");
    disk.put(&own, b"").unwrap();
    let now = disk.stat(&own, LinkTarget::Itself).unwrap();
    let mut part =
        Part::create(&disk, path("d/f"), &entry("f", EntryKind::File(1)), false).unwrap();
    part.write(b"x", false).unwrap();
    part.check_written().unwrap();
    assert_eq!(reclaim(&disk.process(), &path("d"), &now), 0);
    part.rename(&disk).unwrap();
    assert!(disk.stat(&path("d/f"), LinkTarget::Itself).is_ok());
}

#[test]
fn an_unlocked_part_is_kept_for_ten_minutes_on_network_file_systems() {
    let disk = MemoryDisk::new(0);
    disk.keep_locks_to_itself();
    let dead = path("d/f.0123456789abcdef.sabul-part");
    disk.put(&dead, b"x").unwrap();
    let mut clock = 0;
    let mut reclaim = || {
        // Time by the clock of the disk, as in the metadata of a new file.
        let new = path(&format!("d/{clock}"));
        clock += 1;
        disk.put(&new, b"").unwrap();
        let now = disk.stat(&new, LinkTarget::Itself).unwrap();
        reclaim(&disk, &path("d"), &now)
    };
    disk.wait(1);
    assert_eq!(reclaim(), 0);
    disk.wait(590);
    assert_eq!(reclaim(), 0);
    disk.wait(20);
    assert_eq!(reclaim(), 1);
}

/// Sends a file of 4000 bytes over another file; returns the resulting metadata.
fn replace(bits: u32, old: u32, preserve: bool, sync: bool, small: bool) -> fs::Metadata {
    let (from, to) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let source = write(from.path(), "f", &[1; 4000]);
    fs::set_permissions(&source, Permissions::from_mode(bits)).unwrap();
    let target = write(to.path(), "f", b"old");
    fs::set_permissions(&target, Permissions::from_mode(old)).unwrap();
    if rustix::process::geteuid().is_root() {
        chown(&target, Some(1234), Some(2345)).unwrap();
    }
    let (sent, _) = record(local(&[&source]), BLOCK_BYTES);
    let destination =
        Destination { into_directory: true, preserve, sync, ..Destination::default() };
    let mut receiver = FileReceiver::new(root_dir(to.path()), &destination, TRANSFER).unwrap();
    if !small {
        receiver.sink_mut().small_max = 0;
    }
    for (count, block) in sent.blocks.into_iter().enumerate() {
        if count == 1 && !small && !preserve {
            let is_part = |name: &String| name.ends_with(".sabul-part");
            let part = names(to.path()).into_iter().find(is_part).unwrap();
            let now = fs::metadata(to.path().join(part)).unwrap().mode();
            assert_eq!(now & 0o077 & !old, 0, "{old:o} while it comes");
        }
        receiver.on_block(block).unwrap();
    }
    assert_eq!((receiver.finished().unwrap().files, receiver.failures()), (1, &[][..]));
    assert_eq!(fs::read(&target).unwrap(), [1; 4000]);
    fs::metadata(target).unwrap()
}

#[test]
fn a_replaced_file_keeps_its_permission_bits_and_its_owner() {
    for sync in [true, false] {
        for small in [true, false] {
            for old in [0o600, 0o640, 0o666, 0o444, 0o755] {
                let found = replace(0o644, old, false, sync, small);
                let what = format!("{old:o}, sync {sync}, small {small}");
                assert_eq!(format!("{:o}", found.mode() & 0o7777), format!("{old:o}"), "{what}");
                if rustix::process::geteuid().is_root() {
                    assert_eq!((found.uid(), found.gid()), (1234, 2345), "{what}");
                }
            }
            assert_eq!(replace(0o644, 0o600, true, sync, small).mode() & 0o7777, 0o644, "-p");
        }
    }
    if !rustix::process::geteuid().is_root() {
        println!("SKIPPED the owners: only root may give files away");
    }
}

#[test]
fn folders_keep_the_sticky_bit_and_dropped_setuid_bits_are_counted() {
    let (from, to) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let folder = from.path().join("d");
    write(&folder, "f", b"x");
    fs::set_permissions(folder.join("f"), Permissions::from_mode(0o4755)).unwrap();
    fs::set_permissions(&folder, Permissions::from_mode(0o1777)).unwrap();
    let (sent, _) = record(local(&[&folder]), BLOCK_BYTES);
    let mut receiver = receiver(to.path(), "", true);
    replay(sent, &mut receiver);
    assert_eq!(receiver.failures(), []);
    let mode = |name: &str| fs::metadata(to.path().join(name)).unwrap().mode() & 0o7777;
    assert_eq!(mode("d"), 0o1777);
    assert_eq!(mode("d/f"), 0o755);
    assert_eq!(receiver.not_kept().iter().map(|lost| lost.count).sum::<u64>(), 1);
}

/// Sends three files; the second is changed once the first was announced.
fn send_changed(change: impl FnOnce(&Path) + 'static) -> SendSummary {
    let from = TempDir::new().unwrap();
    let [first, second, last] = ["a", "b", "c"].map(|name| write(from.path(), name, &[2; 400_000]));
    let set = local(&[&first, &second, &last]);
    let mut change = Some(change);
    let mut sent = Record {
        block_bytes: 100_000,
        after_first: Some(Box::new(move || {
            // The file system's clock may be coarse.
            std::thread::sleep(Duration::from_millis(30));
            change.take().expect("once")(&second);
        })),
        ..Record::default()
    };
    send_files(set, 100_000, Have::default(), &mut sent).unwrap()
}

/// Rewrites the last half of a file and restores its modification time.
fn rewrite(path: &Path) {
    let modified = fs::metadata(path).unwrap().modified().unwrap();
    let file = File::options().write(true).open(path).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &[3; 200_000], 200_000).unwrap();
    file.set_times(FileTimes::new().set_modified(modified)).unwrap();
}

#[test]
fn changed_mode_bits_or_links_do_not_count_as_a_changed_source() {
    let bits = send_changed(|path| {
        fs::set_permissions(path, Permissions::from_mode(0o600)).unwrap();
    });
    assert_eq!(bits.failures, []);
    let name = send_changed(|path| fs::hard_link(path, path.with_extension("2")).unwrap());
    assert_eq!(name.failures, []);
    // Rewritten before any byte was read: the sent content is the current content.
    assert_eq!(send_changed(rewrite).failures, []);
}

#[test]
fn a_source_rewritten_during_reading_is_detected_despite_a_reset_mtime() {
    let from = TempDir::new().unwrap();
    let file = write(from.path(), "f", &[2; 400_000]);
    let (to_change, mut blocks) = (file.clone(), 0);
    let mut sent = Record {
        block_bytes: 100_000,
        // Half of the file was read by now.
        before_block: Some(Box::new(move |_| {
            blocks += 1;
            if blocks == 3 {
                std::thread::sleep(Duration::from_millis(30));
                let modified = fs::metadata(&to_change).unwrap().modified().unwrap();
                let file = File::options().write(true).open(&to_change).unwrap();
                std::os::unix::fs::FileExt::write_all_at(&file, &[3; 400_000], 0).unwrap();
                file.set_times(FileTimes::new().set_modified(modified)).unwrap();
            }
        })),
        ..Record::default()
    };
    let summary = send_files(local(&[&file]), 100_000, Have::default(), &mut sent).unwrap();
    let [(_, failure)] = &summary.failures[..] else { panic!("{:?}", summary.failures) };
    assert_eq!(failure.code, FailureCode::Changed, "{failure}");
}

#[test]
fn parts_of_another_source_are_neither_reported_nor_locked() {
    let files = few();
    let from = source(&files);
    let (ours, others) = ([[1; 8], [2; 8]], [[3; 8]]);
    let disk = MemoryDisk::new(0);
    let receive = |origins: &[[u8; 8]]| receiver_of(&disk.process(), true, false, origins).unwrap();
    let came = attempt_with(receive(&ours), &from, 90).receiver.counts().bytes;
    let mut stranger = receive(&others);
    assert!(!read_have(&mut stranger).has_checkpoints(b"big"), "a stranger is not told");
    assert!(!read_have(&mut receive(&[])).has_checkpoints(b"big"), "nor one that names no source");
    // The messages themselves name no leftovers either.
    let names_big = |origins: &[[u8; 8]]| {
        let mut bytes = Vec::new();
        for message in receive(origins).have() {
            message.encode(&mut bytes).unwrap();
        }
        bytes.windows(3).any(|it| it == b"big")
    };
    assert!(names_big(&ours), "the own source is resumed");
    assert!(!names_big(&others) && !names_big(&[]));
    // The copy is also resumed meanwhile, and with an additional source.
    let again = attempt_with(receive(&[[9; 8], [2; 8]]), &from, usize::MAX);
    assert_eq!(again.receiver.failures(), []);
    assert!(again.sent < total(&files) - came + 4096 + 3000, "{} after {came}", again.sent);
    drop((again, stranger));
    assert_eq!(check_whole(&disk, &files, "in the end"), [""; 0]);
}

#[test]
fn an_abandoned_journal_is_removed_after_a_week() {
    let from = source(&few());
    let (disk, _) = interrupted(&from);
    let other = receiver_of(&disk.process(), true, false, &[[3; 8]]).unwrap();
    disk.wait(8 * 86_400);
    assert_eq!(attempt_with(other, &from, usize::MAX).receiver.failures(), []);
    assert_eq!(check_whole(&disk, &few(), "after a week"), [""; 0]);
}

#[test]
fn a_part_altered_between_two_attempts_is_restarted() {
    let files = few();
    let from = source(&files);
    let (disk, part) = interrupted(&from);
    let content = disk.tree().remove(part.as_bytes()).flatten().unwrap();
    let file = disk.open_file(&part).unwrap();
    let mut altered = content;
    altered[10] ^= 1;
    file.set_len(0).unwrap();
    file.write_at(&altered, 0).unwrap();
    drop(file);
    let second = attempt(&from, &disk.process(), true);
    assert_eq!(second.receiver.failures(), [], "it does not fail");
    drop(second);
    assert_eq!(check_whole(&disk, &files, "altered"), [""; 0]);
}

#[test]
fn a_disk_that_returns_wrong_bytes_is_detected_by_reading_back() {
    let files = few();
    let from = source(&files);
    let copy = |alters: bool, read_back: bool| {
        let disk = MemoryDisk::new(0);
        if alters {
            disk.alter();
        }
        let receiver = receiver_of(&disk, true, read_back, &[]).unwrap();
        let failures = attempt_with(receiver, &from, usize::MAX).receiver.failures().to_vec();
        let named = disk.tree().keys().filter(|name| !name.ends_with(b".sabul-part")).count();
        (failures, named)
    };
    let all = copy(false, true);
    assert_eq!(all, (vec![], copy(false, false).1), "a disk that is as it should be");
    assert_eq!(copy(true, false), all, "without reading, nobody sees it");
    let (failures, named) = copy(true, true);
    assert_eq!(failures.len(), 4, "all but the empty one");
    assert_eq!(named, all.1 - 4, "and they have no names");
    for (path, failure) in failures {
        let path = Printable(&path).to_string();
        assert_eq!(failure.code, FailureCode::Verification, "{path}: {failure}");
    }
}

/// A tree with links that stay inside and links that lead out.
fn tree_with_links() -> TempDir {
    let dir = TempDir::new().unwrap();
    let root = dir.path();
    write(root, "secret", b"outside");
    write(root, "other/f", b"outside");
    write(root, "d/f", b"inside");
    write(root, "d/sub/g", b"inside");
    symlink("../secret", root.join("d/out")).unwrap();
    symlink(root.join("secret"), root.join("d/absolute")).unwrap();
    symlink("../../other", root.join("d/sub/folder")).unwrap();
    symlink("f", root.join("d/in")).unwrap();
    symlink("../f", root.join("d/sub/up")).unwrap();
    dir
}

#[test]
fn links_are_followed_inside_the_source_and_outside_on_request() {
    let from = tree_with_links();
    let folder = from.path().join("d");
    let received = |set: SourceSet| {
        let to = TempDir::new().unwrap();
        let (sent, summary) = record(set, BLOCK_BYTES);
        let mut receiver = receiver(to.path(), "", true);
        replay(sent, &mut receiver);
        let failed = summary.failures.into_iter().map(|(_, failure)| failure.message);
        (names(to.path()), failed.collect::<Vec<_>>())
    };
    let inside = ["d", "d/f", "d/in", "d/sub", "d/sub/g", "d/sub/up"];
    let (names, failed) = received(local(&[&folder]));
    assert_eq!((names.as_slice(), failed.len()), (&inside.map(str::to_owned)[..], 3));
    assert!(failed.iter().all(|why| why.contains("leads out") && why.contains("-L")), "{failed:?}");
    // The content of a folder also counts as named, and so does a link that is a source.
    let (names, failed) = received(local(&[&folder.join("")]));
    assert_eq!((names.len(), failed.len()), (5, 3));
    assert_eq!(received(local(&[&folder.join("out")])), (vec!["out".to_owned()], vec![]));
    let (names, failed) = received(local(&[&folder]).with_links_out(true));
    assert_eq!((names.len(), failed.len()), (inside.len() + 4, 0), "{names:?}");
    // The same below a root, and no link leads out of the root.
    let set = || SourceSet::in_disk(root_dir(from.path()), vec![b"d".to_vec()], true);
    let (names, failed) = received(set());
    assert_eq!(names, inside);
    assert_eq!(failed.len(), 3, "{failed:?}");
    let (names, failed) = received(set().with_links_out(true));
    assert_eq!((names.len(), failed.len()), (inside.len() + 1, 2), "{failed:?}");
}

/// A receiver into a directory, with all metadata.
fn receiver_into(to: &Path) -> FileReceiver {
    let disk = Arc::new(RootDir::open(to, RootLink::Follow).unwrap());
    let destination =
        Destination { into_directory: true, preserve: true, ..Destination::default() };
    FileReceiver::new(disk, &destination, 1).unwrap()
}

fn entry_of(path: &str, kind: EntryKind, more: More) -> Entry {
    let (mode, more) = (Some(0o701), Some(Box::new(more)));
    Entry { path: path.into(), kind, mode, modified_ns: Some(0), more }
}

#[test]
fn a_directory_that_replaces_a_new_one_keeps_its_metadata() {
    let to = tempfile::tempdir().unwrap();
    let at = |name: &str| to.path().join(name);
    for name in ["other", "there"] {
        fs::create_dir(at(name)).unwrap();
        fs::set_permissions(at(name), Permissions::from_mode(0o700)).unwrap();
    }
    let mut receiver = receiver_into(to.path());
    let sink = receiver.sink_mut();
    for (index, name) in ["new", "there", "stays"].into_iter().enumerate() {
        let entry = entry_of(name, EntryKind::Directory, More::default());
        sink.make_directory(index as u64, &entry).unwrap();
    }
    let before = fs::metadata(at("other")).unwrap();
    for name in ["new", "there"] {
        fs::rename(at(name), at(&format!("{name}-away"))).unwrap();
    }
    fs::rename(at("other"), at("new")).unwrap();
    fs::create_dir(at("there")).unwrap();
    fs::set_permissions(at("there"), Permissions::from_mode(0o700)).unwrap();
    let failed: Vec<u64> = sink.complete().into_iter().map(|(index, ..)| index).collect();
    assert_eq!(failed, [1, 0]);
    let mode = |name: &str| fs::metadata(at(name)).unwrap().mode() & 0o777;
    assert_eq!((mode("new"), mode("there"), mode("stays")), (0o700, 0o700, 0o701));
    assert_eq!(fs::metadata(at("new")).unwrap().mtime(), before.mtime());
}

#[test]
fn an_entry_that_replaces_a_new_link_keeps_its_owner() {
    let to = tempfile::tempdir().unwrap();
    if !rustix::process::geteuid().is_root() {
        println!("skipped: only root can give a link away");
        return;
    }
    let root = RootDir::open(to.path(), RootLink::Follow).unwrap();
    fs::write(to.path().join("file"), "content").unwrap();
    symlink("target", to.path().join("link")).unwrap();
    fs::hard_link(to.path().join("link"), to.path().join("same")).unwrap();
    symlink("target", to.path().join("own")).unwrap();
    let own = |name: &str| root.set_link_owner(&path(name), b"target", Some(7), 7);
    let owner = |name: &str| fs::symlink_metadata(to.path().join(name)).unwrap().uid();
    for name in ["file", "link", "same"] {
        own(name).unwrap_err();
        assert_eq!(owner(name), 0, "{name}");
    }
    root.set_link_owner(&path("own"), b"other", Some(7), 7).unwrap_err();
    own("own").unwrap();
    assert_eq!(owner("own"), 7);
}

#[test]
fn parts_and_new_directories_are_private_until_their_metadata_is_set() {
    let (from, to) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let folder = from.path().join("d");
    let file = write(&folder, "f", &[1; 40_000]);
    for path in [&folder, &file] {
        fs::set_permissions(path, Permissions::from_mode(0o775)).unwrap();
    }
    let (sent, _) = record(local(&[&folder]), BLOCK_BYTES);
    let mut receiver = receiver(to.path(), "", true);
    receiver.sink_mut().small_max = 0;
    let mode = |name: &str| fs::metadata(to.path().join(name)).unwrap().mode() & 0o777;
    let last = sent.blocks.len() - 1;
    let mut seen = 0;
    for (count, block) in sent.blocks.into_iter().enumerate() {
        receiver.on_block(block).unwrap();
        for name in names(to.path()).iter().filter(|_| count < last) {
            seen += 1;
            let expected = if name == "d" { 0o700 } else { 0o600 };
            assert_eq!(mode(name), expected, "{name} in block {count}");
        }
    }
    assert!(seen > 2, "{seen}");
    assert_eq!(receiver.failures(), []);
    assert_eq!((mode("d"), mode("d/f")), (0o775, 0o775));
}

#[test]
fn an_existing_directory_loses_rights_before_it_gets_content() {
    let to = tempfile::tempdir().unwrap();
    let mode = |name: &str| fs::metadata(to.path().join(name)).unwrap().mode() & 0o777;
    for (name, bits) in [("closes", 0o755), ("opens", 0o700)] {
        fs::create_dir(to.path().join(name)).unwrap();
        fs::set_permissions(to.path().join(name), Permissions::from_mode(bits)).unwrap();
    }
    let mut receiver = receiver_into(to.path());
    let sink = receiver.sink_mut();
    for (index, name) in ["closes", "opens"].into_iter().enumerate() {
        let entry = entry_of(name, EntryKind::Directory, More::default());
        sink.make_directory(index as u64, &entry).unwrap();
    }
    assert_eq!((mode("closes"), mode("opens")), (0o701, 0o700));
    assert_eq!(sink.complete(), []);
    assert_eq!((mode("closes"), mode("opens")), (0o701, 0o701));
}

#[test]
fn the_list_for_new_entries_of_a_directory_does_not_open_replaced_or_preserved_entries() {
    const ACCESS: &str = "system.posix_acl_access";
    const DEFAULT: &str = "system.posix_acl_default";
    let has = |path: &Path, name: &str| rustix::fs::getxattr(path, name, &mut [0; 64]).is_ok();
    for (preserve, small) in [(false, true), (false, false), (true, true), (true, false)] {
        let (from, to) = (TempDir::new().unwrap(), TempDir::new().unwrap());
        let source = write(from.path(), "f", &[1; 4000]);
        let folder = from.path().join("d");
        fs::create_dir(&folder).unwrap();
        let target = write(to.path(), "f", b"old");
        for path in [&source, &target] {
            fs::set_permissions(path, Permissions::from_mode(0o640)).unwrap();
        }
        let list = list(5, 7);
        if let Err(error) =
            rustix::fs::setxattr(to.path(), DEFAULT, &list, rustix::fs::XattrFlags::empty())
        {
            println!("SKIPPED: this file system has no access control lists ({error})");
            return;
        }
        let set = local(&[&source, &folder]).with_archive_mode(true);
        let (sent, _) = record(set, BLOCK_BYTES);
        let destination = Destination { into_directory: true, preserve, ..Destination::default() };
        let mut receiver = FileReceiver::new(root_dir(to.path()), &destination, TRANSFER).unwrap();
        if !small {
            receiver.sink_mut().small_max = 0;
        }
        replay(sent, &mut receiver);
        assert_eq!(receiver.failures(), []);
        let what = format!("preserve {preserve}, small {small}");
        assert_eq!(fs::metadata(&target).unwrap().mode() & 0o777, 0o640, "{what}");
        assert!(!has(&target, ACCESS), "{what}");
        // A new directory without the metadata of the source has the list of the directory above.
        let new = to.path().join("d");
        assert_eq!((has(&new, ACCESS), has(&new, DEFAULT)), (!preserve, !preserve), "{what}");
    }
}

#[test]
fn a_directory_loses_attributes_that_the_source_does_not_have() {
    let to = tempfile::tempdir().unwrap();
    let folder = to.path().join("d");
    fs::create_dir(&folder).unwrap();
    for name in ["user.old", "user.kept"] {
        if let Err(error) =
            rustix::fs::setxattr(&folder, name, b"1", rustix::fs::XattrFlags::empty())
        {
            println!("SKIPPED: this file system has no attributes of users ({error})");
            return;
        }
    }
    let has = |name: &str| rustix::fs::getxattr(&folder, name, &mut [0; 8]).is_ok();
    let attributes = vec![Attribute { name: b"user.kept".to_vec(), value: b"2".to_vec() }];
    for (owner, is_kept) in [(None, true), (Some(owner_of(&folder)), false)] {
        let mut receiver = receiver_into(to.path());
        let sink = receiver.sink_mut();
        let more = More { owner, attributes: attributes.clone(), ..More::default() };
        sink.make_directory(0, &entry_of("d", EntryKind::Directory, more)).unwrap();
        assert_eq!(sink.complete(), []);
        assert_eq!((has("user.old"), has("user.kept")), (is_kept, true));
    }
}

fn owner_of(path: &Path) -> Owner {
    let found = fs::metadata(path).unwrap();
    Owner { user: found.uid(), group: found.gid() }
}

const NEW: Expected = Expected::New { is_private: true };

/// Opens a destination below `at`, which must be the expected directory.
fn open_expected(at: &Path, expected: Expected) -> Result<FileReceiver, Failure> {
    let (root, path) = local_destination(&at.join("new/"), true, expected)?;
    let (into_directory, preserve) = (true, true);
    let destination =
        Destination { path, into_directory, preserve, expected, ..Destination::default() };
    FileReceiver::new(Arc::new(root), &destination, TRANSFER)
}

#[test]
fn a_transfer_writes_to_the_directory_that_it_made_or_that_was_compared() {
    let (from, to) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let at = |name: &str| to.path().join(name);
    let id = |name: &str| facts_of(&at(name), false).unwrap().id.unwrap();
    let swap = || {
        fs::rename(at("new"), at("away")).unwrap();
        symlink(at("victim"), at("new")).unwrap();
    };
    let source = write(from.path(), "f", b"content");
    fs::create_dir(at("victim")).unwrap();
    for expected in [None, Some(())] {
        let expected = match expected {
            None => NEW,
            Some(()) => {
                fs::create_dir(at("new")).unwrap();
                Expected::Same(id("new"))
            }
        };
        let mut receiver = open_expected(to.path(), expected).unwrap();
        let found = receiver.destination().unwrap();
        assert_eq!(found.id, Some(id("new")));
        assert!(expected != NEW || found.mode == 0o700, "private until its metadata is set");
        swap();
        for block in record(local(&[&source]), BLOCK_BYTES).0.blocks {
            receiver.on_block(block).unwrap();
        }
        assert_eq!((receiver.finished().unwrap().files, receiver.failures()), (1, &[][..]));
        assert_eq!(names(&at("away")), ["f"], "the open directory");
        // The metadata of the directory goes to the same directory, too.
        let path = [to.path().as_os_str().as_bytes(), b"/new/./"].concat();
        let owner = None;
        let change =
            NewMetadata { path, mode: Some(0o777), modified_ns: Some(1), owner, seen: found };
        assert_eq!(set_metadata(None, &change).unwrap_err().code, FailureCode::Changed);
        let victim = fs::metadata(at("victim")).unwrap();
        assert_ne!((victim.mode() & 0o777, victim.mtime_nsec()), (0o777, 1));
        assert!(names(&at("victim")).is_empty());
        fs::remove_file(at("new")).unwrap();
        fs::rename(at("away"), at("new")).unwrap();
        set_metadata(None, &change).unwrap();
        fs::remove_dir_all(at("new")).unwrap();
    }
    let refused = |expected| open_expected(to.path(), expected).unwrap_err().code;
    let other = id("victim");
    fs::create_dir(at("new")).unwrap();
    for expected in [NEW, Expected::Same(other)] {
        assert_eq!(refused(expected), FailureCode::Changed);
    }
    let same = Expected::Same(id("new"));
    swap();
    assert_eq!(refused(same), FailureCode::Changed);
    assert_ne!(refused(NEW), FailureCode::Changed, "a link is in the way");
    assert!(names(&at("victim")).is_empty());
}
