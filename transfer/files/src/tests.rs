//! Tests with both ends of a transfer joined in memory, on real directories.

mod all;
mod crashes;
mod followed;
mod growing;
mod hostile;
mod listing;
mod owners;
mod parts;
mod resume;
mod runs;
mod streams;
mod swapped;

use std::collections::{BTreeMap, VecDeque};
use std::ffi::OsStr;
use std::fs::{self, File, FileTimes, Permissions};
use std::io::{self, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use sabul_content::{Packer, Printable};
use sabul_wire::block::{MAX_PART, Record as Sent, split_block};
use sabul_wire::control::{Entry, EntryKind, Expected, Failure, FailureCode, Message};
use tempfile::TempDir;

use super::entry_error::write_failure;
use super::*;
use crate::root::{RootDir, RootLink};

const TRANSFER: u32 = 7;

/// Runs with a block.
type OnBlock = Box<dyn FnMut(&[u8])>;

/// Outlet that records the sender's output.
#[derive(Default)]
struct Record {
    blocks: VecDeque<Vec<u8>>,
    entries: Vec<Entry>,
    totals: Option<(u64, Option<u64>)>,
    block_bytes: usize,
    /// Allows partial blocks in the middle.
    may_be_short: bool,
    /// Runs when the first entry is announced, before any content is read.
    after_first: Option<Box<dyn FnMut()>>,
    /// Runs before each block is taken, with the block.
    before_block: Option<OnBlock>,
}

impl Outlet for Record {
    fn buffer(&mut self) -> Result<Vec<u8>, Stopped> {
        Ok(Vec::with_capacity(self.block_bytes))
    }

    fn block(&mut self, block: Vec<u8>) -> Result<(), Stopped> {
        if let Some(act) = &mut self.before_block {
            act(&block);
        }
        assert!(!block.is_empty() && block.len() <= self.block_bytes);
        if let Some(last) = self.blocks.back().filter(|_| !self.may_be_short) {
            let room_for_part = self.block_bytes - MAX_PART;
            assert!(last.len() >= room_for_part, "only the last block is short");
        }
        self.blocks.push_back(block);
        Ok(())
    }

    fn announced(&mut self, entry: &Entry) {
        if let Some(mut act) = self.after_first.take() {
            act();
        }
        self.entries.push(entry.clone());
    }

    fn totals(&mut self, entries: u64, bytes: Option<u64>) {
        assert_eq!(self.totals.replace((entries, bytes)), None, "told once");
    }
}

/// Bytes of a block that are content.
fn content_bytes(block: &[u8]) -> u64 {
    split_block(block).unwrap().0.len() as u64
}

/// Builder of blocks for tests.
struct BlockBuilder {
    packer: Packer,
    entries: u64,
    bytes: u64,
}

impl Default for BlockBuilder {
    fn default() -> Self {
        Self { packer: Packer::new(1 << 22), entries: 0, bytes: 0 }
    }
}

impl BlockBuilder {
    /// Adds the next entry.
    fn entry(&mut self, entry: Entry) -> &mut Self {
        self.entries += 1;
        self.bytes = self.bytes.saturating_add(entry.stream_bytes().unwrap_or(0));
        self.packer.record(&Sent::Entry(entry));
        self.packer.begin(self.entries - 1, 0);
        self
    }

    /// Adds content of the entry.
    fn content(&mut self, content: &[u8]) -> &mut Self {
        if self.packer.needs_buffer() {
            self.packer.give(Vec::new());
        }
        let filled = self.packer.fill(content.len() as u64, |block, _| {
            block.extend(content);
            Ok::<_, Failure>(())
        });
        assert_eq!(filled.unwrap(), content);
        self
    }

    /// Ends the entry; its expected content is `content`.
    fn end(&mut self, content: &[u8]) -> &mut Self {
        let (index, outcome) = (self.entries - 1, Ok(blake3::hash(content).into()));
        self.packer.record(&Sent::End { index, outcome });
        self
    }

    /// Adds a complete file with this content.
    fn file(&mut self, path: &str, content: &[u8]) -> &mut Self {
        self.entry(entry(path, EntryKind::File(content.len() as u64)));
        if !content.is_empty() {
            self.content(content);
        }
        self.end(content)
    }

    /// Adds the last record.
    fn last(&mut self) -> &mut Self {
        self.packer.record(&Sent::Last { entries: self.entries, bytes: self.bytes, grown: 0 });
        self
    }

    /// Takes a block with everything added since the previous block.
    fn block(&mut self) -> Vec<u8> {
        if self.packer.needs_buffer() {
            self.packer.give(Vec::new());
        }
        self.packer.take()
    }
}

const BLOCK_BYTES: usize = 1000;

fn record(set: SourceSet, block_bytes: usize) -> (Record, SendSummary) {
    let mut outlet = Record { block_bytes, ..Record::default() };
    let summary = send_files(set, block_bytes, Have::default(), &mut outlet).unwrap();
    let totals = outlet.totals.expect("a few entries are counted before they are sent");
    assert_eq!(totals.0, summary.entries);
    (outlet, summary)
}

/// Passes all blocks to a receiver.
fn replay<S: Sink>(from: Record, to: &mut Receiver<S>) -> Vec<Message> {
    for block in from.blocks {
        to.on_block(block).unwrap();
        assert!(to.poll_free().is_some(), "each block is used up at once");
    }
    to.poll_messages(Duration::from_secs(1))
}

fn local(paths: &[&Path]) -> SourceSet {
    let sources = paths.iter().map(|path| Source::from_argument(path.as_os_str())).collect();
    SourceSet::local(sources, true).unwrap()
}

fn receiver(root: &Path, path: &str, into_directory: bool) -> FileReceiver {
    let destination = Destination {
        path: path.as_bytes().to_vec(),
        into_directory,
        preserve: true,
        sync: false,
        resume: false,
        ..Destination::default()
    };
    FileReceiver::new(root_dir(root), &destination, TRANSFER).unwrap()
}

fn root_dir(root: &Path) -> Arc<RootDir> {
    Arc::new(RootDir::open(root, RootLink::Follow).unwrap())
}

/// Copies paths into a root; all entries must arrive.
fn copy(paths: &[&Path], root: &Path, path: &str, into_directory: bool) -> Counts {
    let (sent, summary) = record(local(paths), BLOCK_BYTES);
    assert_eq!(summary.failures, []);
    let mut to = receiver(root, path, into_directory);
    replay(sent, &mut to);
    assert_eq!(to.failures(), []);
    let counts = to.finished().unwrap();
    assert_eq!((counts.entries, counts.bytes), (summary.entries, summary.bytes));
    counts
}

/// All paths below a directory with their content: bytes of files, text of links, `None` for directories.
fn tree(root: &Path) -> BTreeMap<Vec<u8>, Option<Vec<u8>>> {
    let mut found = BTreeMap::new();
    let mut todo = vec![root.to_path_buf()];
    while let Some(directory) = todo.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(root).unwrap().as_os_str().as_bytes().to_vec();
            if path.is_symlink() {
                let text = fs::read_link(&path).unwrap().into_os_string().into_vec();
                found.insert(name, Some(text));
            } else if path.is_dir() {
                found.insert(name, None);
                todo.push(path);
            } else {
                found.insert(name, Some(fs::read(&path).unwrap()));
            }
        }
    }
    found
}

fn names(root: &Path) -> Vec<String> {
    tree(root).into_keys().map(|name| Printable(&name).to_string()).collect()
}

fn write(root: &Path, path: impl AsRef<Path>, content: &[u8]) -> PathBuf {
    let path = root.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, content).unwrap();
    path
}

/// Makes a directory `src` with an example of every kind that is copied.
fn sample() -> TempDir {
    let dir = TempDir::new().unwrap();
    let root = dir.path().join("src");
    let large: Vec<u8> = (0..123_457_u32).flat_map(u32::to_le_bytes).collect();
    write(&root, "large", &large);
    write(&root, "exact", &large[..1000]);
    write(&root, "empty", b"");
    write(&root, "sub/deep/er", b"down");
    write(&root, OsStr::from_bytes(b"caf\xE9 \n"), b"bytes");
    write(&root, "-n", b"dash");
    fs::create_dir(root.join("sub/none")).unwrap();
    for i in 0..100 {
        write(&root, format!("many/{i}"), &large[..i * 3]);
    }
    write(&root, "n".repeat(255), b"longest name");
    dir
}

#[test]
fn a_tree_arrives_complete_with_any_block_size() {
    let from = sample();
    let source = from.path().join("src");
    let least = Packer::BLOCK_MIN;
    for block_bytes in [least, least + 7, 1000, 1 << 20] {
        let root = if block_bytes == least { source.join("sub") } else { source.clone() };
        let (sent, summary) = record(local(&[&root]), block_bytes);
        assert_eq!(summary.failures, []);
        let to = TempDir::new().unwrap();
        let mut receiver = receiver(to.path(), "copy", false);
        let messages = replay(sent, &mut receiver);
        assert_eq!(receiver.finished().unwrap().entries, summary.entries);
        assert!(matches!(&messages[..], [Message::Progress { bytes, .. }]
            if *bytes == summary.bytes));
        assert_eq!(tree(&to.path().join("copy")), tree(&root));
    }
}

#[test]
fn a_trailing_slash_sends_the_content_and_no_slash_the_directory_itself() {
    let from = TempDir::new().unwrap();
    write(from.path(), "d/x", b"1");
    for (source, expected) in [("d", ["d", "d/x"].as_slice()), ("d/", &["x"]), ("d/.", &["x"])] {
        let to = TempDir::new().unwrap();
        copy(&[&from.path().join(source)], to.path(), "", true);
        assert_eq!(names(to.path()), expected, "{source}");
    }
    assert!(local(&[Path::new("d/")]).needs_directory());
    assert!(local(&[Path::new("a"), Path::new("b")]).needs_directory());
    assert!(!local(&[Path::new("d")]).needs_directory());
}

#[test]
fn the_destination_is_an_existing_directory_or_a_new_name() {
    let from = TempDir::new().unwrap();
    let file = write(from.path(), "f", b"1");
    write(from.path(), "d/x", b"2");
    let directory = from.path().join("d");
    let cases: &[(&Path, &str, bool, &[&str])] = &[
        (&file, "old", false, &["old", "old/f"]),
        (&file, "new", false, &["new", "old"]),
        (&file, "new/", false, &["new", "new/f", "old"]),
        (&file, "new/er", true, &["new", "new/er", "new/er/f", "old"]),
        (&file, "/", false, &["f", "old"]),
        (&directory, "old", false, &["old", "old/d", "old/d/x"]),
        (&directory, "new", false, &["new", "new/x", "old"]),
        (&directory, "./new//", true, &["new", "new/d", "new/d/x", "old"]),
    ];
    for (source, path, into_directory, expected) in cases {
        let to = TempDir::new().unwrap();
        fs::create_dir(to.path().join("old")).unwrap();
        copy(&[source], to.path(), path, *into_directory);
        assert_eq!(names(to.path()), *expected, "{path}");
    }
}

#[test]
fn a_destination_outside_the_root_or_of_a_special_type_is_refused() {
    let to = TempDir::new().unwrap();
    write(to.path(), "f", b"keep");
    let fifo = to.path().join("fifo");
    rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, rustix::fs::Mode::RWXU).unwrap();
    for (path, code) in [
        ("../x", FailureCode::Refused),
        ("a/../../x", FailureCode::Refused),
        ("f/", FailureCode::Unwritable),
        ("fifo", FailureCode::Unwritable),
    ] {
        let path = path.as_bytes().to_vec();
        let destination = Destination { path, ..Destination::default() };
        let failure = FileReceiver::new(root_dir(to.path()), &destination, TRANSFER).unwrap_err();
        assert_eq!(failure.code, code, "{failure}");
    }
    fs::remove_file(fifo).unwrap();
    assert_eq!(names(to.path()), ["f"]);
}

#[test]
fn a_local_destination_may_contain_links() {
    let dir = TempDir::new().unwrap();
    let at = |name: &str| dir.path().join(name);
    fs::create_dir(at("real")).unwrap();
    symlink("real", at("link")).unwrap();
    let file = write(dir.path(), "f", b"1");
    for (path, into_directory, expected) in [
        ("link", false, "real/f"),
        ("link/g", false, "real/g"),
        ("new", false, "new"),
        ("new2/", false, "new2/f"),
        ("new3/deep", true, "new3/deep/f"),
        ("real/../h", false, "h"),
    ] {
        let (root_dir, path) = local_destination(&at(path), into_directory, Expected::Any).unwrap();
        let destination = Destination { path, into_directory, ..Destination::default() };
        let mut receiver = FileReceiver::new(Arc::new(root_dir), &destination, TRANSFER).unwrap();
        replay(record(local(&[&file]), BLOCK_BYTES).0, &mut receiver);
        assert_eq!(receiver.failures(), []);
        assert_eq!(fs::read(at(expected)).unwrap(), b"1", "{expected}");
    }
    for bad in ["none/x", "f/x", ".."] {
        let path = at(bad);
        let path = if bad == ".." { Path::new("/no/..") } else { &path };
        let failure = local_destination(path, false, Expected::Any).unwrap_err();
        assert_eq!(failure.code, FailureCode::Unwritable, "{failure}");
    }
    let failure = local(&[Path::new("")]);
    let (_, summary) = record(failure, BLOCK_BYTES);
    assert_eq!(summary.failures[0].1.code, FailureCode::NotFound, "nothing is no name for '.'");
}

#[test]
fn an_empty_source_list_is_a_valid_transfer() {
    let to = TempDir::new().unwrap();
    assert_eq!(copy(&[], to.path(), "x", false), Counts::default());
    assert!(names(to.path()).is_empty());
}

#[test]
fn unsendable_sources_are_named_and_the_rest_arrives() {
    let from = TempDir::new().unwrap();
    let at = |name: &str| from.path().join(name);
    write(from.path(), "d/good", b"good");
    symlink("nowhere", at("d/dangling")).unwrap();
    symlink("..", at("d/loop")).unwrap();
    symlink("good", at("d/link")).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, at("d/fifo"), rustix::fs::Mode::RWXU).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(at("d/socket")).unwrap();
    write(from.path(), "last", b"last");

    let set = local(&[&at("missing"), &at("d"), Path::new("/dev/null"), &at("last")])
        .with_links_out(true);
    let (sent, summary) = record(set, BLOCK_BYTES);
    let reasons: Vec<_> = summary
        .failures
        .iter()
        .map(|(path, failure)| {
            let name = Path::new(OsStr::from_bytes(path)).file_name().unwrap().to_str().unwrap();
            assert!(failure.message.contains(name), "{failure}");
            (name, failure.code)
        })
        .collect();
    use FailureCode::{NotFound, Unreadable};
    let expected = [
        ("missing", NotFound),
        ("dangling", NotFound),
        ("fifo", Unreadable),
        ("d", Unreadable),
        ("socket", Unreadable),
        ("null", Unreadable),
    ];
    // The loop is found one level down: 'd/loop' is the parent, 'd/loop/d' is 'd' again.
    assert_eq!(reasons, expected);
    assert_eq!(summary.failed, 6);

    let to = TempDir::new().unwrap();
    let mut receiver = receiver(to.path(), "", true);
    let messages = replay(sent, &mut receiver);
    assert!(matches!(&messages[..], [Message::Progress { .. }]), "the sender knows already");
    let counts = receiver.finished().unwrap();
    assert_eq!(counts.failed, 6);
    assert_eq!(receiver.failures().len(), 6, "the receiving end can name them too");
    let got = tree(to.path());
    assert_eq!(got[&b"d/good"[..]].as_deref(), Some(&b"good"[..]));
    assert_eq!(got[&b"d/link"[..]].as_deref(), Some(&b"good"[..]), "links are followed");
    assert_eq!(got[&b"last"[..]].as_deref(), Some(&b"last"[..]));
    assert!(!got.keys().any(|name| name.ends_with(b"fifo") || name.ends_with(b"missing")));
}

#[test]
fn a_directory_needs_recursion() {
    let from = sample();
    let source = Source::Path(from.path().join("src"));
    let (sent, summary) = record(SourceSet::local(vec![source], false).unwrap(), BLOCK_BYTES);
    assert!(summary.failures[0].1.message.contains("copy it with -r"));
    assert_eq!(sent.blocks.iter().map(|block| content_bytes(block)).sum::<u64>(), 0);
}

#[test]
fn a_file_that_changes_while_it_is_read_fails_and_its_neighbours_do_not() {
    type Change = fn(&Path);
    let cases: &[(&str, Change)] = &[
        ("shrank", |path| File::options().write(true).open(path).unwrap().set_len(1500).unwrap()),
        ("shrank", |path| File::options().write(true).open(path).unwrap().set_len(0).unwrap()),
        ("grew", |path| File::options().write(true).open(path).unwrap().set_len(9000).unwrap()),
        ("changed", |path| {
            let times = FileTimes::new().set_modified(SystemTime::UNIX_EPOCH);
            File::options().write(true).open(path).unwrap().set_times(times).unwrap();
        }),
        ("No such file", |path| fs::remove_file(path).unwrap()),
        ("Is a directory", |path| {
            fs::remove_file(path).unwrap();
            fs::create_dir(path).unwrap();
        }),
    ];
    for (word, change) in cases {
        let from = TempDir::new().unwrap();
        let first = write(from.path(), "a", &[1; 700]);
        let changing = write(from.path(), "b", &[2; 4000]);
        let last = write(from.path(), "c", &[3; 700]);
        let to_change = changing.clone();
        let mut sent = Record {
            block_bytes: 1000,
            after_first: Some(Box::new(move || change(&to_change))),
            ..Record::default()
        };
        let set = local(&[&first, &changing, &last]);
        let summary = send_files(set, BLOCK_BYTES, Have::default(), &mut sent).unwrap();
        assert_eq!(summary.failed, 1, "{word}");
        let failure = &summary.failures[0].1;
        assert!(
            failure.message.contains(word) && failure.message.contains("/b'"),
            "{word}: {failure}"
        );

        let to = TempDir::new().unwrap();
        let mut receiver = receiver(to.path(), "", true);
        replay(sent, &mut receiver);
        assert_eq!(names(to.path()), ["a", "c"], "{word}");
        assert_eq!(fs::read(to.path().join("c")).unwrap(), [3; 700], "{word}");
    }
}

#[test]
fn a_file_that_hides_its_size_is_not_sent_as_empty() {
    let (_, summary) = record(local(&[Path::new("/proc/self/status")]), BLOCK_BYTES);
    assert_eq!(summary.failures[0].1.code, FailureCode::Changed);
}

#[test]
fn times_and_modes_are_kept_on_request_without_setuid_bits() {
    let from = TempDir::new().unwrap();
    let time = SystemTime::UNIX_EPOCH + Duration::new(1_000_000_000, 123_456_789);
    for (name, mode) in [("d/tool", 0o4751), ("d/closed", 0o400), ("d/e", 0o640), ("d", 0o555)] {
        let path = from.path().join(name);
        if name != "d" {
            write(from.path(), name, if name == "d/e" { b"" } else { b"content" });
        }
        File::open(&path).unwrap().set_times(FileTimes::new().set_modified(time)).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
    }
    for preserve in [true, false] {
        let to = TempDir::new().unwrap();
        let path = Vec::new();
        let destination = Destination {
            path,
            into_directory: true,
            preserve,
            sync: true,
            ..Destination::default()
        };
        let mut receiver = FileReceiver::new(root_dir(to.path()), &destination, TRANSFER).unwrap();
        let set = local(&[&from.path().join("d")]);
        replay(record(set, BLOCK_BYTES).0, &mut receiver);
        assert_eq!(receiver.failures(), []);
        for (name, mode) in [("d/tool", 0o751), ("d/closed", 0o400), ("d/e", 0o640), ("d", 0o555)] {
            let metadata = fs::metadata(to.path().join(name)).unwrap();
            let got = metadata.mode() & 0o7777;
            assert_eq!(metadata.modified().unwrap(), time, "{name}");
            if preserve {
                assert_eq!(got, mode, "{name}");
            } else {
                let wanted = if name == "d" { 0o755 } else { mode };
                assert_eq!(got & !wanted, 0, "{name}: the umask only takes away: {got:o}");
                assert_eq!(got & 0o500, wanted & 0o500, "{name}: its owner's bits stay: {got:o}");
            }
        }
        fs::set_permissions(to.path().join("d"), Permissions::from_mode(0o755)).unwrap();
    }
    fs::set_permissions(from.path().join("d"), Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn obstructing_names_are_reported_and_the_rest_arrives() {
    let from = TempDir::new().unwrap();
    let source = from.path().join("s");
    write(&source, "a", &[1; 3000]);
    write(&source, "d/x", &[2; 3000]);
    write(&source, "old", b"new content");
    let to = TempDir::new().unwrap();
    write(to.path(), "a/inside", b"keep");
    write(to.path(), "d", b"keep");
    write(to.path(), "old", b"old content");

    let (sent, summary) = record(local(&[&source.join("")]), BLOCK_BYTES);
    assert_eq!(summary.failures, []);
    let mut receiver = receiver(to.path(), "", true);
    let messages = replay(sent, &mut receiver);
    let mut failed: Vec<_> = messages
        .iter()
        .filter_map(|message| match message {
            Message::EntryFailed { index, failure, .. } => Some((*index, failure)),
            _ => None,
        })
        .collect();
    failed.sort_by_key(|(index, _)| *index);
    let expected = [
        (0, FailureCode::Unwritable, "'a': is a folder where a file is needed"),
        (1, FailureCode::Unwritable, "not a folder is where one is needed"),
        (2, FailureCode::Unwritable, "not a folder is where one is needed"),
    ];
    assert_eq!(failed.len(), expected.len(), "{failed:?}");
    for ((index, failure), (at, code, text)) in failed.iter().zip(expected) {
        assert_eq!((*index, failure.code), (at, code), "{failure}");
        assert!(failure.message.contains(text), "{failure}");
    }
    assert_eq!(
        receiver.finished().unwrap(),
        Counts { bytes: 11, entries: 1, files: 1, failed: 3, ..Counts::default() }
    );
    let got = tree(to.path());
    assert_eq!(got.len(), 4, "no parts stay: {:?}", names(to.path()));
    assert_eq!(got[&b"old"[..]].as_deref(), Some(&b"new content"[..]));
    assert_eq!(got[&b"a/inside"[..]].as_deref(), Some(&b"keep"[..]));
    assert_eq!(got[&b"d"[..]].as_deref(), Some(&b"keep"[..]));
}

#[test]
fn two_sources_with_the_same_name_are_refused() {
    let from = TempDir::new().unwrap();
    let (a, b) = (write(from.path(), "a", b"a"), write(from.path(), "b", b"b"));
    let to = TempDir::new().unwrap();
    let mut receiver = receiver(to.path(), "name", false);
    replay(record(local(&[&a, &b]), BLOCK_BYTES).0, &mut receiver);
    assert!(receiver.failures()[0].1.message.contains("only one source can go there"));
    assert_eq!(tree(to.path())[&b"name"[..]].as_deref(), Some(&b"a"[..]));
}

fn entry(path: &str, kind: EntryKind) -> Entry {
    Entry { path: path.as_bytes().to_vec(), kind, mode: None, modified_ns: None, more: None }
}

#[test]
fn permission_and_space_errors_have_their_own_failure_codes() {
    use io::ErrorKind as Kind;
    for (kind, code) in [
        (Kind::PermissionDenied, FailureCode::Permission),
        (Kind::ReadOnlyFilesystem, FailureCode::Permission),
        (Kind::StorageFull, FailureCode::NoSpace),
        (Kind::QuotaExceeded, FailureCode::NoSpace),
        (Kind::Other, FailureCode::Unwritable),
    ] {
        let failure = write_failure(b"a\nb", &kind.into());
        assert_eq!(failure.code, code);
        assert!(failure.message.contains("'a\\nb'"), "{failure}");
    }
}

#[test]
fn entries_outside_the_destination_are_refused() {
    let to = TempDir::new().unwrap();
    for bad in [entry("../x", EntryKind::File(0)), entry("/etc/x", EntryKind::Directory)] {
        let mut receiver = receiver(to.path(), "", true);
        let failure = receiver.on_block(BlockBuilder::default().entry(bad).block()).unwrap_err();
        assert_eq!(failure.code, FailureCode::Protocol);
    }
    // The gate can reject an entry before anything is made for it.
    let odd = |entry: &mut Entry| match &entry.path[..] {
        b"a" => Ok(()),
        _ => Err(Failure::new(FailureCode::Refused, "nobody asked for that")),
    };
    let mut receiver = receiver(to.path(), "", true).with_gate(odd);
    let mut builder = BlockBuilder::default();
    let directory = |path| entry(path, EntryKind::Directory);
    builder.entry(directory("a")).entry(directory("b"));
    let failure = receiver.on_block(builder.block()).unwrap_err();
    assert_eq!(failure.code, FailureCode::Refused);
    assert_eq!(names(to.path()), ["a"]);
}

#[test]
fn progress_is_reported_at_intervals_and_at_the_end() {
    let mut receiver = StreamReceiver::new(Vec::new(), TRANSFER);
    let mut builder = BlockBuilder::default();
    receiver.on_block(builder.entry(entry("a", EntryKind::File(5))).block()).unwrap();
    let reported = |at_ms, receiver: &mut StreamReceiver<Vec<u8>>| {
        let messages = receiver.poll_messages(Duration::from_millis(at_ms));
        messages
            .into_iter()
            .map(|message| match message {
                Message::Progress { bytes, entries, files, at_us, .. } => {
                    assert_eq!(files, entries, "there is no directory");
                    (bytes, entries, at_us)
                }
                other => panic!("{other:?}"),
            })
            .collect::<Vec<_>>()
    };
    assert_eq!(reported(1, &mut receiver), [], "there is nothing to tell");
    receiver.on_block(builder.content(b"a").block()).unwrap();
    assert_eq!(reported(2, &mut receiver), [(1, 0, 2000)]);
    receiver.on_block(builder.content(b"b").block()).unwrap();
    assert_eq!(reported(101, &mut receiver), []);
    assert_eq!(reported(102, &mut receiver), [(2, 0, 102_000)]);
    assert_eq!(reported(900, &mut receiver), [], "nothing is new");
    receiver.on_block(builder.content(b"cde").block()).unwrap();
    assert_eq!(reported(900, &mut receiver), [(5, 0, 900_000)]);
    receiver.on_block(builder.end(b"abcde").block()).unwrap();
    assert_eq!(reported(950, &mut receiver), [], "not yet");
    receiver.on_block(builder.last().block()).unwrap();
    assert_eq!(reported(951, &mut receiver), [(5, 1, 951_000)], "the end does not wait");
    assert_eq!(reported(2000, &mut receiver), [], "and is reported once");
}

#[test]
fn a_directory_that_vanishes_before_its_times_are_set_is_a_failure() {
    let to = TempDir::new().unwrap();
    let mut receiver = receiver(to.path(), "", true);
    let mut builder = BlockBuilder::default();
    builder.entry(entry("a", EntryKind::Directory)).entry(entry("b", EntryKind::Directory));
    receiver.on_block(builder.block()).unwrap();
    fs::remove_dir(to.path().join("a")).unwrap();
    receiver.on_block(builder.last().block()).unwrap();
    assert_eq!(receiver.finished(), Some(Counts { entries: 1, failed: 1, ..Counts::default() }));
    let messages = receiver.poll_messages(Duration::ZERO);
    assert!(matches!(messages[0], Message::EntryFailed { index: 0, .. }));
}

#[test]
fn a_listener_serves_only_files_below_its_root() {
    let outside = TempDir::new().unwrap();
    let secret = write(outside.path(), "secret", b"secret");
    let from = TempDir::new().unwrap();
    write(from.path(), "d/x", b"1");
    write(from.path(), "y", b"2");
    symlink("../y", from.path().join("d/inner")).unwrap();
    symlink(&secret, from.path().join("d/outer")).unwrap();
    symlink("..", from.path().join("d/loop")).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, from.path().join("d/fifo"), rustix::fs::Mode::RWXU)
        .unwrap();
    let up = format!("d/../../{}/secret", outside.path().file_name().unwrap().to_str().unwrap());
    let sources = [b"/d".to_vec(), b"y".to_vec(), up.into_bytes(), b"none".to_vec()];
    let set =
        SourceSet::in_disk(root_dir(from.path()), sources.to_vec(), true).with_links_out(true);
    let (sent, summary) = record(set, BLOCK_BYTES);
    let to = TempDir::new().unwrap();
    let mut receiver = receiver(to.path(), "", true);
    replay(sent, &mut receiver);
    let got = tree(to.path());
    assert_eq!(got[&b"d/x"[..]].as_deref(), Some(&b"1"[..]));
    assert_eq!(got[&b"y"[..]].as_deref(), Some(&b"2"[..]));
    assert!(!got.values().any(|content| content.as_deref() == Some(b"secret")), "{got:?}");
    let reasons: Vec<_> =
        summary.failures.iter().map(|(path, failure)| (&path[..], failure.code)).collect();
    assert_eq!(
        reasons,
        [
            (&b"/d/fifo"[..], FailureCode::Unreadable),
            (b"/d/loop", FailureCode::Unreadable),
            (b"/d/outer", FailureCode::Refused),
            (&sources[2], FailureCode::Refused),
            (b"none", FailureCode::NotFound),
        ]
    );
    let expected = ["d", "d/inner", "d/x", "y"];
    assert_eq!(names(to.path()), expected);
    // A link that is named as a source is followed.
    let set = SourceSet::in_disk(root_dir(from.path()), vec![b"d/loop/".to_vec()], true);
    let (sent, _) = record(set, BLOCK_BYTES);
    assert_eq!(sent.entries[0].path, b"d");

    for all in ["", "/", ".", "./"] {
        let set = SourceSet::in_disk(root_dir(from.path()), vec![all.into()], true);
        assert!(set.needs_directory());
        let (sent, _) = record(set, BLOCK_BYTES);
        assert_eq!(sent.entries[0].path, b"d", "{all}");
    }
}

#[test]
fn a_stopped_outlet_stops_the_sender() {
    struct Closed;
    impl Outlet for Closed {
        fn buffer(&mut self) -> Result<Vec<u8>, Stopped> {
            Err(Stopped)
        }
        fn block(&mut self, _: Vec<u8>) -> Result<(), Stopped> {
            Err(Stopped)
        }
    }
    let from = sample();
    let set = local(&[&from.path().join("src")]);
    assert_eq!(send_files(set, BLOCK_BYTES, Have::default(), &mut Closed), Err(Stopped));
}

/// Joins both ends with a few buffers, as a real channel does.
struct Direct {
    receiver: FileReceiver,
    free: Vec<Vec<u8>>,
}

impl Outlet for Direct {
    fn buffer(&mut self) -> Result<Vec<u8>, Stopped> {
        let mut buffer = self.free.pop().expect("blocks come back");
        buffer.clear();
        Ok(buffer)
    }
    fn block(&mut self, block: Vec<u8>) -> Result<(), Stopped> {
        self.receiver.on_block(block).unwrap();
        self.free.extend(std::iter::from_fn(|| self.receiver.poll_free()));
        Ok(())
    }
}

#[test]
fn tens_of_thousands_of_tiny_files_need_little_memory_and_time() {
    const COUNT: usize = 20_000;
    // In memory where possible: ext4 is slow to reuse space that earlier tests have just freed.
    let memory = Some(PathBuf::from("/dev/shm")).filter(|path| path.is_dir());
    let base = memory.unwrap_or_else(std::env::temp_dir);
    let from = TempDir::new_in(&base).unwrap();
    for i in 0..COUNT {
        let directory = from.path().join(format!("{:03}", i / 500));
        if i % 500 == 0 {
            fs::create_dir(&directory).unwrap();
        }
        fs::write(directory.join(i.to_string()), i.to_string()).unwrap();
    }
    let to = TempDir::new_in(&base).unwrap();
    let begun = Instant::now();
    let mut outlet = Direct { receiver: receiver(to.path(), "", true), free: vec![Vec::new(); 3] };
    let block_bytes = 65_536;
    let set = local(&[&from.path().join("")]);
    let summary = send_files(set, block_bytes, Have::default(), &mut outlet).unwrap();
    let took = begun.elapsed();
    let counts = outlet.receiver.finished().unwrap();
    let entries = (COUNT + COUNT / 500) as u64;
    let files = COUNT as u64;
    let bytes = summary.bytes;
    assert_eq!(counts, Counts { bytes, entries, files, ..Counts::default() });
    assert_eq!(outlet.free.len(), 3, "every buffer came back");
    assert_eq!(fs::read(to.path().join("039/19999")).unwrap(), b"19999");
    assert!(took < Duration::from_secs(20), "{took:?}");
}
