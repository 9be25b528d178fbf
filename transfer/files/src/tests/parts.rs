//! Tests of part files: content stays under a part's name until it is complete and verified.

use super::*;

#[test]
fn content_altered_in_transit_never_gets_its_final_name() {
    let from = TempDir::new().unwrap();
    let file = write(from.path(), "f", &[1; 2500]);
    let to = TempDir::new().unwrap();
    write(to.path(), "f", b"old");
    let (mut sent, _) = record(local(&[&file]), BLOCK_BYTES);
    sent.blocks[1][3] ^= 1;
    let mut receiver = receiver(to.path(), "", true);
    let messages = replay(sent, &mut receiver);
    assert!(messages.iter().any(|message| matches!(message,
        Message::EntryFailed { index: 0, failure, .. }
            if failure.code == FailureCode::Verification)));
    assert_eq!(tree(to.path()), BTreeMap::from([(b"f".to_vec(), Some(b"old".to_vec()))]));
}

#[test]
fn a_transfer_that_ends_early_leaves_no_parts() {
    for abort in [true, false] {
        let to = TempDir::new().unwrap();
        let mut receiver = receiver(to.path(), "", true);
        receiver.sink_mut().small_max = 0;
        let long = "\u{e9}".repeat(127);
        let mut builder = BlockBuilder::default();
        builder.entry(entry(long.as_str(), EntryKind::File(9))).content(b"bbb");
        receiver.on_block(builder.block()).unwrap();
        assert_eq!(names(to.path()).len(), 1);
        assert!(names(to.path()).iter().all(|name| name.ends_with(".sabul-part")));
        if abort {
            receiver.abort();
        } else {
            drop(receiver);
        }
        assert!(names(to.path()).is_empty());
    }
}

#[test]
fn a_name_reserved_for_parts_is_refused() {
    let to = TempDir::new().unwrap();
    let mut receiver = receiver(to.path(), "", true);
    receiver.on_block(BlockBuilder::default().file("z.sabul-part", &[0]).block()).unwrap();
    let failure = &receiver.failures()[0].1;
    assert_eq!(failure.code, FailureCode::Refused);
    assert!(failure.message.contains("reserved"), "{failure}");
    assert!(names(to.path()).is_empty());
}

#[test]
fn part_files_are_skipped_and_cannot_be_requested() {
    let from = TempDir::new().unwrap();
    write(from.path(), "d/a", b"a");
    write(from.path(), "d/b.0123456789abcdef.sabul-part", b"half");
    write(from.path(), "d/c.sabul-part/inner", b"a folder may have the name");
    for set in [
        local(&[&from.path().join("d")]),
        SourceSet::in_disk(root_dir(from.path()), vec![b"d".to_vec()], true),
    ] {
        let (sent, summary) = record(set, BLOCK_BYTES);
        assert_eq!(summary.failures, []);
        let to = TempDir::new().unwrap();
        let mut receiver = receiver(to.path(), "", true);
        replay(sent, &mut receiver);
        assert_eq!(names(to.path()), ["d", "d/a", "d/c.sabul-part", "d/c.sabul-part/inner"]);
    }
    let name = "d/b.0123456789abcdef.sabul-part";
    for set in [
        local(&[&from.path().join(name)]),
        SourceSet::in_disk(root_dir(from.path()), vec![name.into()], true),
    ] {
        let (_, summary) = record(set, BLOCK_BYTES);
        assert_eq!(summary.failures[0].1.code, FailureCode::Refused);
        assert!(summary.failures[0].1.message.contains("under construction"));
    }
}

#[test]
fn a_file_larger_than_the_disk_ends_the_transfer_before_its_first_byte() {
    let to = TempDir::new().unwrap();
    let mut receiver = receiver(to.path(), "", true);
    let mut builder = BlockBuilder::default();
    builder.file("a", b"a").entry(entry("huge", EntryKind::File(1 << 60))).content(b"bcdefghij");
    let failure = receiver.on_block(builder.block()).unwrap_err();
    assert_eq!(failure.code, FailureCode::NoSpace);
    assert!(failure.message.contains("'huge'"), "{failure}");
    assert_eq!(receiver.on_block(builder.block()).unwrap_err(), failure, "and stays ended");
    assert_eq!(receiver.counts().files, 1, "what is complete stays");
    drop(receiver);
    assert_eq!(names(to.path()), ["a"]);
}

/// A transfer of one file in two halves, whose end can be delayed.
fn halfway(to: &Path, content: &[u8], sync: bool) -> (FileReceiver, BlockBuilder) {
    let destination = Destination {
        path: Vec::new(),
        into_directory: true,
        preserve: false,
        sync,
        resume: false,
        ..Destination::default()
    };
    let mut receiver = FileReceiver::new(root_dir(to), &destination, TRANSFER).unwrap();
    receiver.sink_mut().small_max = 0;
    let mut builder = BlockBuilder::default();
    builder.entry(entry("x", EntryKind::File(content.len() as u64)));
    builder.content(&content[..content.len() / 2]);
    receiver.on_block(builder.block()).unwrap();
    (receiver, builder)
}

fn second_half((receiver, builder): &mut (FileReceiver, BlockBuilder), content: &[u8]) {
    builder.content(&content[content.len() / 2..]).end(content).last();
    receiver.on_block(builder.block()).unwrap();
}

#[test]
fn two_writers_to_one_name_write_separate_files() {
    let (one, two) = ([1_u8; 3000], [2_u8; 5000]);
    for sync in [true, false] {
        let to = TempDir::new().unwrap();
        let mut first = halfway(to.path(), &one, sync);
        let mut second = halfway(to.path(), &two, sync);
        assert_eq!(names(to.path()).len(), 2, "a part for each");
        second_half(&mut first, &one);
        assert_eq!(first.0.finished().unwrap().files, 1);
        assert_eq!(fs::read(to.path().join("x")).unwrap(), one);
        // The slower transfer dies: the content of the faster transfer stays.
        second.0.abort();
        assert_eq!(fs::read(to.path().join("x")).unwrap(), one);
        assert_eq!(names(to.path()), ["x"]);

        // The slower transfer completes: the last complete file has the name.
        let mut second = halfway(to.path(), &two, sync);
        let mut first = halfway(to.path(), &one, sync);
        second_half(&mut first, &one);
        second_half(&mut second, &two);
        assert_eq!((first.0.failures(), second.0.failures()), (&[][..], &[][..]));
        assert_eq!(fs::read(to.path().join("x")).unwrap(), two);
        assert_eq!(names(to.path()), ["x"]);
    }
}

#[test]
fn a_retry_is_unaffected_by_the_end_of_the_transfer_it_replaces() {
    let content = [3_u8; 4000];
    let to = TempDir::new().unwrap();
    let stalled = halfway(to.path(), &content, true);
    let mut retry = halfway(to.path(), &content, true);
    drop(stalled);
    second_half(&mut retry, &content);
    assert_eq!(retry.0.failures(), []);
    assert_eq!(fs::read(to.path().join("x")).unwrap(), content);
    assert_eq!(names(to.path()), ["x"]);
}

#[test]
fn a_part_removed_or_replaced_by_others_fails_its_file() {
    let content = [4_u8; 4000];
    for (sync, replace) in [(true, true), (true, false), (false, true), (false, false)] {
        let to = TempDir::new().unwrap();
        write(to.path(), "x", b"old");
        let mut receiver = halfway(to.path(), &content, sync);
        let part = names(to.path()).into_iter().find(|name| name != "x").unwrap();
        fs::remove_file(to.path().join(&part)).unwrap();
        if replace {
            write(to.path(), &part, b"somebody else's");
        }
        second_half(&mut receiver, &content);
        let failure = &receiver.0.failures()[0].1;
        assert!(failure.message.contains("removed or replaced"), "{failure}");
        assert_eq!(fs::read(to.path().join("x")).unwrap(), b"old");
        assert_eq!(to.path().join(&part).exists(), replace, "what is not ours stays");
    }
}

#[test]
fn parts_of_dead_processes_are_removed_and_parts_of_live_ones_kept() {
    let from = TempDir::new().unwrap();
    let file = write(from.path(), "f", b"content");
    let to = TempDir::new().unwrap();
    let living = halfway(to.path(), &[5; 100], true);
    let kept = names(to.path());
    for left in ["x.0123456789abcdef.sabul-part", "y.aaaaaaaaaaaaaaaa.sabul-part"] {
        write(to.path(), left, b"left behind");
    }
    let foreign = ["a.sabul-part", "x.0123456789abcdef.sabul-part.txt", "0123456789abcdef"];
    for name in foreign {
        write(to.path(), name, b"not ours");
    }
    // A kept part may be resumed within a week.
    write(to.path(), "p.0123456789abcdef.kept.sabul-part", b"kept");
    copy(&[&file], to.path(), "", true);
    let mut expected: Vec<String> = foreign.map(str::to_owned).to_vec();
    expected.extend(kept);
    expected.extend(["f".to_owned(), "p.0123456789abcdef.kept.sabul-part".to_owned()]);
    expected.sort();
    assert_eq!(names(to.path()), expected);
    drop(living);
}

#[test]
fn many_files_in_one_block_need_few_descriptors() {
    const COUNT: usize = 2000;
    for sync in [true, false] {
        let to = TempDir::new().unwrap();
        let destination = Destination {
            path: Vec::new(),
            into_directory: true,
            preserve: false,
            sync,
            resume: false,
            ..Destination::default()
        };
        let mut receiver = FileReceiver::new(root_dir(to.path()), &destination, TRANSFER).unwrap();
        let mut builder = BlockBuilder::default();
        for i in 0..COUNT {
            builder.file(&format!("{i:04}"), format!("{i:04}").as_bytes());
        }
        receiver.on_block(builder.block()).unwrap();
        let descriptors = fs::read_dir("/proc/self/fd").unwrap();
        let below = |entry: io::Result<fs::DirEntry>| {
            fs::read_link(entry.unwrap().path()).is_ok_and(|path| path.starts_with(to.path()))
        };
        assert!(descriptors.filter_map(|entry| Some(below(entry)).filter(|&it| it)).count() < 530);
        receiver.on_block(builder.last().block()).unwrap();
        assert_eq!(receiver.failures(), []);
        assert_eq!(receiver.finished().unwrap().files, COUNT as u64);
        assert_eq!(names(to.path()).len(), COUNT);
        assert_eq!(fs::read(to.path().join("1999")).unwrap(), b"1999");
    }
}

#[test]
fn a_duplicate_name_fails_unless_both_are_directories() {
    for sync in [true, false] {
        let to = TempDir::new().unwrap();
        write(to.path(), "a", b"old");
        let destination = Destination {
            path: Vec::new(),
            into_directory: true,
            preserve: true,
            sync,
            resume: false,
            ..Destination::default()
        };
        let mut receiver = FileReceiver::new(root_dir(to.path()), &destination, TRANSFER).unwrap();
        let folder = || entry("d", EntryKind::Directory);
        let mut builder = BlockBuilder::default();
        builder.entry(folder()).file("a", b"1").entry(folder()).file("a", b"2").file("d", b"3");
        builder.file("d/x", b"4").file("d/x", b"5").last();
        receiver.on_block(builder.block()).unwrap();
        let failed: Vec<_> = receiver
            .poll_messages(Duration::ZERO)
            .into_iter()
            .filter_map(|message| match message {
                Message::EntryFailed { index, failure, .. } => Some((index, failure.message)),
                _ => None,
            })
            .collect();
        let [(3, first), (4, second), (6, third)] = &failed[..] else { panic!("{failed:?}") };
        assert!(first.contains("'a' comes twice") && third.contains("'d/x' comes twice"));
        assert!(second.contains("is a folder"), "{second}");
        assert_eq!(
            receiver.finished(),
            Some(Counts {
                bytes: 2,
                durable: if sync { 2 } else { 0 },
                entries: 4,
                files: 2,
                failed: 3,
                ..Counts::default()
            })
        );
        assert_eq!(fs::read(to.path().join("a")).unwrap(), b"1", "the first one stays");
        assert_eq!(names(to.path()), ["a", "d", "d/x"]);
    }
}

#[test]
fn the_times_of_many_directories_are_kept_in_little_memory() {
    let to = TempDir::new().unwrap();
    let mut receiver = receiver(to.path(), "", true);
    receiver.sink_mut().directories.max = 1000;
    let directory = |path: &str, seconds: i64| {
        let modified_ns = Some(seconds * 1_000_000_000);
        Entry { modified_ns, mode: Some(0o755), ..entry(path, EntryKind::Directory) }
    };
    let mut builder = BlockBuilder::default();
    builder.entry(directory("top", 1));
    for i in 0..50 {
        builder.entry(directory(&format!("top/{i:02}"), 100 + i));
        builder.file(&format!("top/{i:02}/f"), b"x");
    }
    let count = builder.entries;
    receiver.on_block(builder.last().block()).unwrap();
    assert_eq!(receiver.failures(), []);
    assert_eq!(receiver.finished().unwrap().entries, count);
    for i in 0..50 {
        let metadata = fs::metadata(to.path().join(format!("top/{i:02}"))).unwrap();
        assert_eq!(metadata.mtime(), 100 + i, "top/{i:02}");
    }
    assert_eq!(fs::metadata(to.path().join("top")).unwrap().mtime(), 1);
}

/// The sources of one copy may have a directory in common, so a repetition is no violation.
#[test]
fn a_directory_that_is_announced_again_and_again_takes_little_memory() {
    let to = TempDir::new().unwrap();
    let mut receiver = receiver(to.path(), "", true);
    receiver.sink_mut().directories.max = 1000;
    let directory = |seconds: i64| {
        let modified_ns = Some(seconds * 1_000_000_000);
        Entry { modified_ns, mode: Some(0o755), ..entry("top", EntryKind::Directory) }
    };
    let mut builder = BlockBuilder::default();
    for seconds in 1..1000 {
        builder.entry(directory(seconds));
    }
    receiver.on_block(builder.block()).unwrap();
    let waiting = receiver.sink().directories.waiting.len();
    assert!(waiting < 20, "{waiting}");
    let mut builder = BlockBuilder { entries: 999, ..BlockBuilder::default() };
    receiver.on_block(builder.last().block()).unwrap();
    assert_eq!(receiver.finished().unwrap().entries, 999);
    assert_eq!(fs::metadata(to.path().join("top")).unwrap().mtime(), 1, "the first one counts");
}
