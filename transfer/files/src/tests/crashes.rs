//! Crash tests: a process or machine dies between any two disk calls, or a disk call fails.
//!
//! After every crash, a final name leads to the complete old content, the complete new content, or
//! nothing if nothing was there. Files reported as finished survive a power failure. The next
//! transfer to the same destination completes and leaves no parts.

use std::collections::BTreeSet;

use rustix::io::Errno;

use super::*;
use crate::disk::Disk;
use crate::disk::memory::{Fault, MemoryDisk};
use crate::root::RootPath;

/// Directories and files to send, by path, in order.
type Tree = Vec<(String, Option<Vec<u8>>)>;

/// A small tree: new folders, a file that replaces another, and an empty file.
fn few() -> Tree {
    let file = |path: &str, fill: u8, len: usize| (path.to_owned(), Some(vec![fill; len]));
    let folder = |path: &str| (path.to_owned(), None);
    vec![
        folder("d"),
        file("d/old", 1, 9000),
        folder("n"),
        file("n/a", 2, 5000),
        folder("n/m"),
        file("n/m/b", 3, 10),
        file("empty", 4, 0),
        file("top", 5, 4097),
    ]
}

/// More small files than are flushed one by one.
fn many() -> Tree {
    let folder = |path: &str| (path.to_owned(), None);
    let file = |i: u8| (format!("n/{i:02}"), Some(vec![i; 100 + usize::from(i)]));
    [folder("d"), folder("n")].into_iter().chain((0..12).map(file)).collect()
}

fn old() -> MemoryDisk {
    old_with(0)
}

/// The disk before the transfer: a file that will be replaced, and another that stays.
fn old_with(seed: u64) -> MemoryDisk {
    let disk = MemoryDisk::new(seed);
    disk.put(&path("d/old"), b"old content").unwrap();
    disk.put(&path("d/other"), b"other").unwrap();
    disk
}

fn path(text: &str) -> RootPath {
    RootPath::new(text.split('/')).unwrap()
}

/// The blocks of a transfer; with `lag`, each file ends in the block after its content.
fn steps(tree: &Tree, lag: bool) -> Vec<Vec<u8>> {
    let (mut builder, mut blocks) = (BlockBuilder::default(), Vec::new());
    for (path, content) in tree {
        let kind =
            content.as_ref().map_or(EntryKind::Directory, |it| EntryKind::File(it.len() as u64));
        builder.entry(entry(path, kind));
        let Some(content) = content else { continue };
        for chunk in content.chunks(4000) {
            blocks.push(builder.content(chunk).block());
        }
        builder.end(content);
        if !lag {
            blocks.push(builder.block());
        }
    }
    blocks.push(builder.last().block());
    blocks
}

/// A transfer in progress on an in-memory disk.
struct Copy {
    receiver: FileReceiver,
    steps: std::vec::IntoIter<Vec<u8>>,
    at: u32,
    /// Time between two steps.
    pace: Duration,
    error: Option<Failure>,
}

impl Copy {
    fn start(disk: &MemoryDisk, tree: &Tree, lag: bool) -> Result<Self, Failure> {
        let disk: Arc<dyn Disk> = Arc::new(disk.clone());
        let destination = Destination {
            path: Vec::new(),
            into_directory: true,
            preserve: true,
            sync: true,
            resume: false,
            ..Destination::default()
        };
        let mut receiver = FileReceiver::new(disk, &destination, TRANSFER)?;
        if lag {
            // Small files are treated as large files.
            receiver.sink_mut().small_max = 0;
        }
        let (steps, pace) = (steps(tree, lag).into_iter(), Duration::from_millis(400));
        Ok(Self { receiver, steps, at: 0, pace, error: None })
    }

    /// Runs one step; returns whether another follows.
    fn step(&mut self) -> bool {
        let Some(block) = self.steps.next().filter(|_| self.error.is_none()) else { return false };
        self.error = self.receiver.on_block(block).err();
        self.at += 1;
        self.receiver.poll_messages(self.pace * self.at);
        true
    }

    fn run(mut self) -> Self {
        while self.step() {}
        self
    }

    /// Files and directories reported as finished, in the order of the manifest, without failed
    /// entries.
    fn finished_files<'a>(&self, tree: &'a Tree) -> Vec<&'a (String, Option<Vec<u8>>)> {
        let counts = self.receiver.counts();
        let failed = |path: &str| {
            self.receiver.failures().iter().any(|(failed, _)| failed == path.as_bytes())
        };
        let kind = |is_file: bool, count: u64| {
            let count = usize::try_from(count).unwrap();
            let all = tree.iter().filter(move |(_, content)| content.is_some() == is_file);
            all.filter(|(path, _)| !failed(path)).take(count).collect::<Vec<_>>()
        };
        [kind(true, counts.files), kind(false, counts.entries - counts.files)].concat()
    }
}

/// Every final name has the complete old or new content; returns the names of parts.
#[track_caller]
fn check_whole(disk: &MemoryDisk, trees: &[&Tree], what: &str) -> Vec<String> {
    let mut parts = Vec::new();
    for (name, content) in disk.tree() {
        let name = String::from_utf8(name).unwrap();
        let Some(content) = content else { continue };
        if name.ends_with(".sabul-part") {
            parts.push(name);
            continue;
        }
        let is_old = match name.as_str() {
            "d/old" => content == b"old content",
            "d/other" => content == b"other",
            _ => false,
        };
        let is_new = trees.iter().any(|tree| {
            tree.iter().any(|(path, it)| *path == name && it.as_ref() == Some(&content))
        });
        assert!(is_old || is_new, "{what}: '{name}' has {} bytes of neither", content.len());
    }
    let kept = disk.tree();
    assert!(kept.contains_key(&b"d/other"[..]), "{what}: what nobody touched is gone");
    assert!(kept.contains_key(&b"d/old"[..]), "{what}: neither the old nor the new file is there");
    parts
}

/// All entries reported as finished exist.
#[track_caller]
fn check_finished(disk: &MemoryDisk, copy: &Copy, tree: &Tree, what: &str) {
    let there = disk.tree();
    for (path, content) in copy.finished_files(tree) {
        assert_eq!(there.get(path.as_bytes()), Some(content), "{what}: '{path}' was told finished");
    }
}

/// The same transfer again, hours later, completes and leaves nothing else.
#[track_caller]
fn check_repeat(disk: &MemoryDisk, tree: &Tree, what: &str) {
    disk.heal();
    disk.wait(7200);
    let next = Copy::start(&disk.process(), tree, false).unwrap().run();
    assert_eq!((&next.error, next.receiver.failures()), (&None, &[][..]), "{what}");
    assert!(next.receiver.finished().is_some(), "{what}");
    drop(next);
    assert_eq!(check_whole(disk, &[tree], what), [""; 0], "{what}: parts stay");
    let there = disk.tree();
    for (path, content) in tree {
        assert_eq!(there.get(path.as_bytes()), Some(content), "{what}: '{path}'");
    }
}

/// Both trees, with both positions of end records.
fn scripts() -> [(Tree, bool); 4] {
    [(few(), false), (few(), true), (many(), false), (many(), true)]
}

/// Number of disk calls of a transfer without errors.
fn calls(tree: &Tree, lag: bool) -> usize {
    let disk = old();
    let copy = Copy::start(&disk, tree, lag).unwrap().run();
    assert!(copy.receiver.finished().is_some(), "{:?}", copy.error);
    disk.calls().len()
}

#[test]
fn a_part_whose_name_is_removed_before_its_lock_is_created_again() {
    let tree = many();
    let undisturbed = old();
    Copy::start(&undisturbed, &tree, false).unwrap().run();
    for (call, name) in undisturbed.calls().into_iter().enumerate() {
        if name == "lock" {
            let disk = old();
            disk.fail_at(call, Fault::Unlink);
            let copy = Copy::start(&disk, &tree, false).unwrap().run();
            check_finished(&disk, &copy, &tree, &format!("removed before call {call}"));
            assert_eq!(copy.finished_files(&tree).len(), tree.len(), "removed before call {call}");
        }
    }
}

#[test]
fn a_small_file_costs_few_disk_calls() {
    let tree = |files: u8| -> Tree {
        let file = |i: u8| (format!("n/{i:02}"), Some(vec![i; 100]));
        std::iter::once(("n".to_owned(), None)).chain((0..files).map(file)).collect()
    };
    let receive = |files| {
        let (tree, disk) = (tree(files), MemoryDisk::new(0));
        let copy = Copy::start(&disk, &tree, false).unwrap().run();
        assert_eq!(copy.finished_files(&tree).len(), tree.len());
        disk.calls()
    };
    let send = |files| {
        let disk = MemoryDisk::new(0);
        for (name, content) in &tree(files)[1..] {
            disk.put(&path(name), content.as_ref().unwrap()).unwrap();
        }
        let set = SourceSet::in_disk(Arc::new(disk.clone()), vec![b"n".to_vec()], true);
        assert_eq!(record(set, BLOCK_BYTES).1.failures, []);
        disk.calls()
    };
    let count = |calls: &[&str], name: &str| calls.iter().filter(|call| **call == name).count();
    let cost = |calls: &dyn Fn(u8) -> Vec<&'static str>, names: [&'static str; 6]| {
        let (some, more) = (calls(20), calls(40));
        names.map(|name| (count(&more, name) - count(&some, name)) / 20)
    };
    // Examined: the name before the part is created; the name and the part before the rename.
    let names = ["examine", "create", "lock", "examine open", "write", "rename"];
    assert_eq!(cost(&receive, names), [3, 1, 1, 1, 1, 1]);
    // Opened to find that it may be read, and again to read it.
    let names = ["examine", "open to read", "read", "examine open", "create", "write"];
    assert_eq!(cost(&send, names), [1, 2, 1, 1, 0, 0]);
}

#[test]
fn a_killed_process_leaves_whole_files_and_removable_parts() {
    for (tree, lag) in scripts() {
        for call in 0..=calls(&tree, lag) {
            let what = format!("killed before call {call}, lag {lag}");
            let disk = old();
            let process = disk.process();
            process.fail_at(call, Fault::Kill);
            if let Ok(copy) = Copy::start(&process, &tree, lag) {
                let copy = copy.run();
                check_whole(&disk, &[&tree], &what);
                check_finished(&disk, &copy, &tree, &what);
            }
            check_repeat(&disk, &tree, &what);
        }
    }
}

#[test]
fn a_power_cut_loses_no_file_reported_as_finished() {
    for (tree, lag) in scripts() {
        for call in 0..=calls(&tree, lag) {
            for seed in 0..12 {
                let what = format!("power cut before call {call}, seed {seed}, lag {lag}");
                let disk = old_with(seed);
                disk.fail_at(call, Fault::PowerCut);
                if let Ok(copy) = Copy::start(&disk, &tree, lag) {
                    let copy = copy.run();
                    // Files finished before the last call survive a power failure after the call.
                    disk.cut_power();
                    check_whole(&disk, &[&tree], &what);
                    check_finished(&disk, &copy, &tree, &what);
                }
                check_repeat(&disk, &tree, &what);
            }
        }
    }
}

#[test]
fn files_left_undurable_by_a_killed_process_are_flushed_by_the_next() {
    let tree = few();
    for call in 0..=calls(&tree, false) {
        for seed in 0..6 {
            let what = format!("killed before call {call}, then a power cut, seed {seed}");
            let disk = old_with(seed);
            let process = disk.process();
            process.fail_at(call, Fault::Kill);
            drop(Copy::start(&process, &tree, false).map(Copy::run));
            disk.heal();
            let next = Copy::start(&disk.process(), &tree, false).unwrap().run();
            assert!(next.receiver.finished().is_some(), "{what}");
            disk.cut_power();
            check_finished(&disk, &next, &tree, &what);
            assert_eq!(next.finished_files(&tree).len(), tree.len(), "{what}");
        }
    }
}

#[test]
fn one_failed_disk_call_fails_files_without_corrupting_any() {
    for (tree, lag) in scripts() {
        let count = calls(&tree, lag);
        for errno in [Errno::NOSPC, Errno::DQUOT, Errno::IO, Errno::ACCESS, Errno::MFILE] {
            for call in 0..count {
                let disk = old();
                disk.fail_at(call, Fault::Error(errno));
                let Ok(copy) = Copy::start(&disk, &tree, lag) else { continue };
                let copy = copy.run();
                let name = disk.calls()[call];
                let what = format!("{errno} at call {call}, '{name}', lag {lag}");
                match &copy.error {
                    Some(failure) => {
                        assert_eq!(failure.code, FailureCode::NoSpace, "{what}: {failure}");
                        assert!(matches!(errno, Errno::NOSPC | Errno::DQUOT), "{what}");
                    }
                    None => {
                        let counts = copy.receiver.finished().expect("it came to its end");
                        let failed = copy.receiver.failures();
                        assert_eq!(counts.entries + counts.failed, tree.len() as u64, "{what}");
                        assert_eq!(counts.failed, failed.len() as u64, "{what}");
                        let code = match errno {
                            Errno::NOSPC | Errno::DQUOT => FailureCode::NoSpace,
                            Errno::ACCESS => FailureCode::Permission,
                            _ => FailureCode::Unwritable,
                        };
                        assert!(
                            failed.iter().any(|(_, it)| it.code == code) || failed.is_empty(),
                            "{what}: {failed:?}"
                        );
                    }
                }
                check_finished(&disk, &copy, &tree, &what);
                drop(copy);
                let parts = check_whole(&disk, &[&tree], &what);
                // If examining or removing a part fails, the part waits for the next transfer.
                if !matches!(name, "examine" | "remove" | "examine open" | "lock") {
                    assert_eq!(parts, [""; 0], "{what}");
                }
                check_repeat(&disk, &tree, &what);
            }
        }
    }
}

#[test]
fn a_disk_that_becomes_read_only_ends_the_transfer() {
    let tree = few();
    for call in 0..calls(&tree, false) {
        let what = format!("read-only from call {call}");
        let disk = old();
        disk.fail_at(call, Fault::ReadOnly);
        let copy = Copy::start(&disk, &tree, false).unwrap().run();
        if let Some(failure) = &copy.error {
            assert_eq!(failure.code, FailureCode::Permission, "{what}: {failure}");
        }
        check_finished(&disk, &copy, &tree, &what);
        drop(copy);
        check_whole(&disk, &[&tree], &what);
        check_repeat(&disk, &tree, &what);
    }
}

#[test]
fn a_full_disk_ends_the_transfer_and_keeps_complete_files() {
    let tree = few();
    for room in (0..19_000).step_by(500) {
        let what = format!("room for {room} bytes");
        let disk = old();
        disk.leave_room(room);
        disk.write_in_pieces();
        let copy = Copy::start(&disk, &tree, false).unwrap().run();
        let needed: usize = tree.iter().filter_map(|(_, it)| it.as_ref().map(Vec::len)).sum();
        assert_eq!(copy.error.is_some(), room < needed as u64, "{what}");
        check_finished(&disk, &copy, &tree, &what);
        drop(copy);
        assert_eq!(check_whole(&disk, &[&tree], &what), [""; 0], "{what}");
        check_repeat(&disk, &tree, &what);
    }
}

#[test]
fn two_writers_and_a_kill_at_any_call_leave_whole_files() {
    let one = few();
    let two: Tree = few()
        .into_iter()
        .map(|(path, it)| {
            (path, it.map(|bytes| vec![bytes.first().map_or(9, |b| b + 100); bytes.len() + 3]))
        })
        .collect();
    let run = |disk: &MemoryDisk| {
        let mut copies: Vec<_> = [&one, &two]
            .into_iter()
            .filter_map(|tree| Copy::start(&disk.process(), tree, false).ok())
            .collect();
        while copies.iter_mut().map(Copy::step).filter(|&resume_offset| resume_offset).count() > 0 {
        }
        copies
    };
    let undisturbed = old();
    for copy in run(&undisturbed) {
        assert!(copy.receiver.finished().is_some() && copy.receiver.failures().is_empty());
    }
    assert_eq!(check_whole(&undisturbed, &[&one, &two], "undisturbed"), [""; 0]);
    for fault in [Fault::Kill, Fault::PowerCut, Fault::Error(Errno::IO)] {
        for call in 0..=undisturbed.calls().len() {
            let what = format!("{fault:?} at call {call}");
            let disk = old_with(call as u64);
            disk.fail_at(call, fault);
            let copies = run(&disk);
            check_whole(&disk, &[&one, &two], &what);
            drop(copies);
            check_whole(&disk, &[&one, &two], &what);
            check_repeat(&disk, &one, &what);
        }
    }
}

#[test]
fn a_thousand_small_files_need_a_handful_of_flushes() {
    let file = |i: u32| (format!("f{i:03}"), Some(i.to_le_bytes().repeat(4096)));
    let tree: Tree = (0..1000).map(file).collect();
    let disk = old();
    let mut copy = Copy::start(&disk, &tree, false).unwrap();
    copy.pace = Duration::from_millis(1);
    let copy = copy.run();
    assert_eq!(copy.receiver.finished().unwrap().files, 1000);
    let flushes = disk.calls().iter().filter(|call| call.starts_with("flush")).count();
    assert!(flushes <= 30, "{flushes}");
}

#[test]
fn names_equal_to_the_disk_do_not_overwrite_each_other() {
    let file = |path: &str, fill: u8| (path.to_owned(), Some(vec![fill; 10]));
    let tree = vec![file("a", 1), file("A", 2), file("b", 3)];
    for is_folded in [true, false] {
        let disk = old();
        if is_folded {
            disk.fold_case();
        }
        let copy = Copy::start(&disk, &tree, false).unwrap().run();
        let failed = copy.receiver.failures();
        assert_eq!(failed.len(), usize::from(is_folded));
        assert!(
            failed.iter().all(|(path, it)| path == b"A" && it.message.contains("takes for one"))
        );
        assert_eq!(disk.tree()[&b"a"[..]], tree[0].1, "the first one stays");
    }
}

#[test]
fn an_entry_with_another_spelling_of_the_name_is_not_replaced() {
    let file = |path: &str| (path.to_owned(), Some(vec![7; 10]));
    let folder = |path: &str| (path.to_owned(), None);
    let put = |disk: &MemoryDisk| {
        for name in ["file", "photos/pic", "photos/raw/pic"] {
            disk.put(&path(name), name.as_bytes()).unwrap();
        }
    };
    let other = ["File", "Photos", "Photos/pic", "Photos/raw", "Photos/raw/new"];
    let tree = vec![
        file(other[0]),
        folder(other[1]),
        file(other[2]),
        folder(other[3]),
        file(other[4]),
        file("new"),
    ];
    for lag in [false, true] {
        let disk = MemoryDisk::new(0);
        put(&disk);
        disk.fold_case();
        let before = disk.tree();
        let copy = Copy::start(&disk, &tree, lag).unwrap().run();
        let failed = copy.receiver.failures();
        let paths: BTreeSet<_> = failed.iter().map(|(path, _)| &path[..]).collect();
        assert_eq!(paths, other.iter().map(|path| path.as_bytes()).collect());
        let text = |failed: &str| {
            let is_it = |(path, _): &&(Vec<u8>, Failure)| path == failed.as_bytes();
            copy.receiver.failures().iter().find(is_it).unwrap().1.message.clone()
        };
        let expected = "'File' is not written: this file system takes 'file' for the same name; rename one of the two";
        assert_eq!(text("File"), expected);
        assert!(text("Photos/raw/new").contains("takes 'photos' for the same name"));
        let mut after = disk.tree();
        assert_eq!(after.remove(&b"new"[..]), Some(tree[5].1.clone()));
        assert_eq!(after, before, "nothing else changed");
    }
    // The same spelling is replaced, and another file system keeps both.
    let same = vec![file("file"), folder("photos"), file("photos/pic")];
    for (is_folded, tree) in [(true, &same), (false, &tree)] {
        let disk = MemoryDisk::new(0);
        put(&disk);
        if is_folded {
            disk.fold_case();
        }
        let copy = Copy::start(&disk, tree, false).unwrap().run();
        assert_eq!(copy.receiver.failures(), []);
        assert_eq!(disk.tree()[tree[0].0.as_bytes()], tree[0].1);
    }
}

#[test]
fn a_file_in_progress_lost_by_a_full_flush_is_not_reported_as_durable() {
    let small = |first: u8| (first..first + 8).map(|i| (format!("{i:02}"), Some(vec![i; 100])));
    let big = ("big".to_owned(), Some(vec![7; 9000]));
    let tree: Tree = small(0).chain([big]).chain(small(20)).collect();
    let disk = old();
    let mut copy = Copy::start(&disk, &tree, false).unwrap();
    copy.pace = Duration::from_millis(1);
    copy.receiver.sink_mut().small_max = 100;
    // The first small files are flushed while the large file is arriving; the flush includes its
    // first bytes.
    while copy.receiver.counts().bytes < 800 + 4000 {
        assert!(copy.step());
    }
    let flushes =
        |disk: &MemoryDisk| disk.calls().iter().filter(|call| **call == "flush all").count();
    let before = flushes(&disk);
    disk.fail_at(0, Fault::Error(Errno::IO));
    copy.receiver.poll_messages(Duration::from_secs(3600));
    assert_eq!(flushes(&disk), before + 1);
    let copy = copy.run();
    assert_eq!(copy.error, None);
    let failed: Vec<_> = copy.receiver.failures().iter().map(|(path, _)| path.as_slice()).collect();
    assert!(failed.contains(&&b"big"[..]), "{failed:?}");
    assert_eq!(failed.len(), 9, "{failed:?}");
    let reported = copy.finished_files(&tree).len();
    drop(copy);
    disk.cut_power();
    assert_eq!(disk.tree().keys().filter(|name| !name.starts_with(b"d")).count(), reported);
}
