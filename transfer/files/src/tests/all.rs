//! Tests of symbolic and hard links, including hostile links, and of resumed sparse files.

use std::os::unix::fs::{FileExt as _, MetadataExt as _};

use sabul_wire::control::More;

use super::resume::attempt_of;
use super::*;
use crate::destination::ResumeIndex;

fn link(path: &str, kind: EntryKind, target: &str) -> Entry {
    let more = More { target: target.into(), ..More::default() };
    Entry { more: Some(Box::new(more)), ..entry(path, kind) }
}

/// Receives these entries, where each file is one byte `x`; returns the failures.
fn receive(root: &Path, sync: bool, entries: Vec<Entry>) -> Vec<String> {
    let destination = Destination { preserve: true, sync, ..Destination::default() };
    let mut receiver = FileReceiver::new(root_dir(root), &destination, TRANSFER).unwrap();
    let count = entries.len() as u64;
    let mut builder = BlockBuilder::default();
    for entry in entries {
        let is_file = entry.kind == EntryKind::File(1);
        builder.entry(entry);
        if is_file {
            builder.content(b"x").end(b"x");
        }
    }
    receiver.on_block(builder.last().block()).unwrap();
    let counts = receiver.finished().unwrap();
    assert_eq!(counts.entries + counts.failed, count, "each is finished once");
    receiver.failures().iter().map(|(_, failure)| failure.message.clone()).collect()
}

#[test]
fn a_hard_link_leads_only_to_a_file_of_the_same_transfer() {
    let (symbolic, hard, file) = (EntryKind::SymbolicLink, EntryKind::HardLink, EntryKind::File(1));
    for sync in [false, true] {
        let to = TempDir::new().unwrap();
        let secret = write(to.path(), "secret", b"secret");
        symlink("/etc", to.path().join("out")).unwrap();
        let entries = vec![
            link("s", symbolic, "secret"),
            link("to-what-was-there", hard, "secret"),
            link("through-a-link", hard, "out/passwd"),
            link("to-nothing", hard, "none"),
            link("to-a-link", hard, "s"),
            link("to-a-folder", hard, "d"),
            entry("d", EntryKind::Directory),
            entry("first", file),
            link("right", hard, "first"),
        ];
        let failures = receive(to.path(), sync, entries);
        assert_eq!(failures.len(), 5, "{failures:#?}");
        for name in ["to-what-was-there", "to-nothing", "to-a-link", "to-a-folder"] {
            let said = failures.iter().any(|it| it.contains(name) && it.contains("hard link to"));
            assert!(said, "{name}: {failures:#?}");
        }
        assert_eq!(fs::metadata(&secret).unwrap().nlink(), 1);
        assert_eq!(fs::metadata(to.path().join("first")).unwrap().nlink(), 2);
        assert_eq!(names(to.path()).len(), 6, "{:?}", names(to.path()));
    }
}

#[test]
fn hard_links_are_sent_without_archive_mode_on_request() {
    let from = TempDir::new().unwrap();
    let first = write(from.path(), "a", b"x");
    fs::hard_link(first, from.path().join("b")).unwrap();
    write(from.path(), "c", b"x");
    symlink("c", from.path().join("d")).unwrap();
    let sent = |is_wanted| {
        let set = SourceSet::path(from.path().join("")).with_hard_links(is_wanted);
        let entries = set.into_parts().0.map(|found| found.entry);
        let entries: Vec<_> = entries.map(|it| (it.kind, it.more.map(|more| *more))).collect();
        entries
    };
    let file = (EntryKind::File(1), None);
    let link = link("b", EntryKind::HardLink, "a");
    let link = (link.kind, link.more.map(|more| *more));
    // Without other metadata; a symbolic link is still followed.
    assert_eq!(sent(true), [file.clone(), link, file.clone(), file.clone()]);
    assert_eq!(sent(false), [file.clone(), file.clone(), file.clone(), file]);
}

#[test]
fn nothing_is_written_through_a_link_of_the_same_transfer() {
    let outside = TempDir::new().unwrap();
    let out = outside.path().to_str().unwrap();
    for file_first in [false, true] {
        let to = TempDir::new().unwrap();
        let mut entries = vec![
            link("l", EntryKind::SymbolicLink, out),
            entry("l/x", EntryKind::File(1)),
            entry("l/d", EntryKind::Directory),
        ];
        if file_first {
            entries.rotate_left(1);
        }
        let failures = receive(to.path(), true, entries);
        assert!(!failures.is_empty(), "one of them is in the way of the other");
        assert!(names(outside.path()).is_empty(), "{:?}", names(outside.path()));
    }
    // Links beyond the memory limit are made early, and still lead nowhere.
    let to = TempDir::new().unwrap();
    let mut receiver = receiver(to.path(), "", true);
    receiver.sink_mut().make_links_early();
    let mut builder = BlockBuilder::default();
    receiver.on_block(builder.entry(link("l", EntryKind::SymbolicLink, out)).block()).unwrap();
    assert!(to.path().join("l").is_symlink());
    receiver.on_block(builder.file("l/x", b"x").block()).unwrap();
    assert_eq!(receiver.failures().len(), 1);
    assert!(names(outside.path()).is_empty());
}

#[test]
fn a_duplicate_or_reserved_name_is_refused_for_a_link() {
    let to = TempDir::new().unwrap();
    let symbolic = EntryKind::SymbolicLink;
    let long = "n".repeat(256);
    let entries = vec![
        link("a", symbolic, "1"),
        link("a", symbolic, "2"),
        entry("f", EntryKind::File(1)),
        link("f", symbolic, "3"),
        link("z.sabul-part", symbolic, "4"),
    ];
    let failures = receive(to.path(), false, entries);
    assert_eq!(failures.len(), 3, "{failures:#?}");
    assert_eq!(failures.iter().filter(|it| it.contains("comes twice")).count(), 2);
    assert_eq!(fs::read_link(to.path().join("a")).unwrap(), Path::new("1"));
    assert_eq!(fs::read(to.path().join("f")).unwrap(), b"x");
    let mut receiver = receiver(to.path(), "", true);
    let mut builder = BlockBuilder::default();
    let refused = receiver.on_block(builder.entry(link(&long, symbolic, "5")).block()).unwrap_err();
    assert_eq!(refused.code, FailureCode::Protocol, "no component has 256 bytes");
}

#[test]
fn a_sparse_copy_resumes_and_restarts_if_its_holes_moved() {
    let from = TempDir::new().unwrap();
    let bytes = |seed: u8, length| {
        let mut bytes = vec![0; length];
        blake3::Hasher::new().update(&[seed]).finalize_xof().fill(&mut bytes);
        bytes
    };
    let make = |at: u64| {
        let file = File::create(from.path().join("f")).unwrap();
        file.set_len(1 << 32).unwrap();
        file.write_all_at(&bytes(1, 65_536), 1 << 20).unwrap();
        file.write_all_at(&bytes(2, 65_536), at).unwrap();
        file.sync_all().unwrap();
        file.metadata().unwrap().blocks() * 512 < 1 << 30
    };
    if !make(1 << 30) {
        return;
    }
    let receiver = |to: &TempDir, sync| {
        let destination = Destination { resume: true, sync, ..Destination::default() };
        let mut receiver = FileReceiver::new(root_dir(to.path()), &destination, TRANSFER).unwrap();
        let mut resume_index = ResumeIndex::default();
        (resume_index.keep_from, resume_index.checkpoint_bytes) = (4096, 8192..=8192);
        receiver.sink_mut().resume_index = Some(resume_index);
        receiver
    };
    let source = || SourceSet::local(vec![Source::Path(from.path().join("f"))], true).unwrap();
    for (sync, moves) in [(true, false), (false, false), (true, true)] {
        let to = TempDir::new().unwrap();
        assert!(make(1 << 30));
        let cut = attempt_of(receiver(&to, sync), source(), 100);
        assert!(cut.receiver.finished().is_none() && cut.sent > 100_000);
        drop(cut);
        let second = if moves { (1 << 30) + (1 << 20) } else { 1 << 30 };
        assert!(make(second));
        let rest = attempt_of(receiver(&to, sync), source(), usize::MAX);
        assert_eq!(rest.receiver.failures(), []);
        assert_eq!(rest.receiver.finished().unwrap().bytes, 131_072);
        if moves {
            assert_eq!((rest.sent, rest.summary.resumed), (131_072, 0));
        } else {
            assert!(rest.sent < 60_000 && rest.summary.resumed > 70_000, "{}", rest.sent);
        }
        let file = File::open(to.path().join("f")).unwrap();
        let found = file.metadata().unwrap();
        assert!(found.len() == 1 << 32 && found.blocks() * 512 < 1 << 20, "{}", found.blocks());
        for (seed, at) in [(1, 1 << 20), (2, second)] {
            let mut read = vec![0; 65_536];
            file.read_exact_at(&mut read, at).unwrap();
            assert!(read == bytes(seed, 65_536), "at {at}");
        }
    }
}
