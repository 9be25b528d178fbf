//! Facts of files with their last bytes.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sabul::files::{SeenKind, View};
use sabul::{FailureCode, TransferOptions};
use tempfile::TempDir;

use crate::ranges::{content, with_session};

/// Length of the end of a Parquet file that its readers need first.
const TAIL: u64 = 64 << 10;

#[test]
fn facts_and_tails_of_many_files_come_in_one_request() {
    let root = TempDir::new().unwrap();
    let sizes = [0, 1, 65_535, 65_536, 65_537, 1 << 20];
    for (number, size) in sizes.into_iter().enumerate() {
        fs::write(root.path().join(format!("f{number}")), content(number, size)).unwrap();
    }
    let below = root.path().to_owned();
    fs::create_dir(root.path().join("d")).unwrap();
    fs::write(root.path().join("[f]*"), b"no pattern").unwrap();
    let mut paths: Vec<_> = (0..sizes.len()).map(|number| format!("f{number}")).collect();
    paths.extend(["d", "missing", "[f]*"].map(str::to_owned));
    let summary = with_session(root.path(), |session| async move {
        let places = paths.iter().map(|path| path.clone().into_bytes()).collect();
        let options = TransferOptions::default();
        let found = session.stat_with_tails(places, TAIL, &options).await.unwrap();
        assert_eq!(found.len(), paths.len());
        for (number, size) in sizes.into_iter().enumerate() {
            let end = found[number].as_ref().unwrap();
            let whole = content(number, size);
            let start = size.saturating_sub(65_536);
            assert!(end.tail == whole[start..], "{size}");
            let metadata = fs::metadata(below.join(&paths[number])).unwrap();
            assert_eq!((end.facts.size, end.facts.kind), (size as u64, SeenKind::File));
            assert_eq!(end.facts.mode, metadata.mode() & 0o7777);
            assert_eq!((end.facts.owner, end.facts.group), (metadata.uid(), metadata.gid()));
            let time = metadata.mtime() * 1_000_000_000 + metadata.mtime_nsec();
            assert_eq!(end.facts.modified_ns, Some(time));
            assert_eq!(end.facts.id.unwrap().inode, metadata.ino());
        }
        let code = |at: usize| found[at].as_ref().unwrap_err().code;
        assert_eq!((code(6), code(7)), (FailureCode::Unreadable, FailureCode::NotFound));
        assert_eq!(found[8].as_ref().unwrap().tail, b"no pattern");
    });
    // The facts need no request of their own, so no round trip of their own.
    assert_eq!((summary.transfers, summary.answers, summary.failed), (1, 0, 0));
}

#[test]
fn facts_are_those_of_a_listing() {
    let root = TempDir::new().unwrap();
    fs::write(root.path().join("a"), content(1, 1000)).unwrap();
    fs::hard_link(root.path().join("a"), root.path().join("b")).unwrap();
    with_session(root.path(), |session| async move {
        let mut listing = session.list(vec![b"a".to_vec()], View::Itself, Vec::new()).unwrap();
        let listed = listing.next().await.unwrap().unwrap().outcome.unwrap();
        let options = TransferOptions::default();
        let end = session.stat_with_tail(b"a".to_vec(), 10, &options).await.unwrap();
        assert!(end.facts == listed && listed.is_shared, "{:?}", end.facts);
        assert_eq!(end.tail, content(1, 1000)[990..]);
        let error = session.stat_with_tail(b"no".to_vec(), 10, &options).await.unwrap_err();
        assert_eq!(error.code(), FailureCode::NotFound);
        let none = session.stat_with_tail(b"a".to_vec(), 0, &options).await.unwrap();
        assert_eq!((none.facts.size, none.tail.len()), (1000, 0));
        assert!(session.stat_with_tails(Vec::new(), 10, &options).await.unwrap().is_empty());
    });
}

/// The file is replaced by other versions all the time. Each version has its own size, and its content names the version.
#[test]
fn facts_and_tail_are_of_one_version_of_the_file() {
    let root = TempDir::new().unwrap();
    let (new, name) = (root.path().join("new"), root.path().join("f"));
    let write = move |version: u8| {
        fs::write(&new, vec![version; 100 + usize::from(version)])?;
        fs::rename(&new, &name)
    };
    write(1).unwrap();
    let is_over = Arc::new(AtomicBool::new(false));
    let stop = Arc::clone(&is_over);
    let writer = std::thread::spawn(move || {
        for version in (1..=200).cycle().take_while(|_| !stop.load(Ordering::Relaxed)) {
            write(version).unwrap();
            std::thread::sleep(Duration::from_millis(2));
        }
    });
    with_session(root.path(), |session| async move {
        let mut versions = BTreeSet::new();
        // Ends with the time limit of the test if reads never succeed.
        while versions.len() < 5 {
            let (paths, options) = (vec![b"f".to_vec(); 20], TransferOptions::default());
            for end in session.stat_with_tails(paths, 64, &options).await.unwrap() {
                match end {
                    Ok(end) => {
                        let version = u8::try_from(end.facts.size - 100).unwrap();
                        assert_eq!(end.tail, [version; 64]);
                        versions.insert(version);
                    }
                    Err(failure) => assert_eq!(failure.code, FailureCode::Changed),
                }
            }
        }
    });
    is_over.store(true, Ordering::Relaxed);
    writer.join().unwrap();
}

#[test]
fn the_example_of_ends_returns_size_and_last_bytes_of_each_file() {
    let root = TempDir::new().unwrap();
    fs::write(root.path().join("long"), content(0, 1000)).unwrap();
    fs::write(root.path().join("short"), b"abc").unwrap();
    with_session(root.path(), |session| async move {
        let paths = vec!["long".to_owned(), "short".to_owned()];
        let found = crate::examples::ends::ends(&session, paths).await.unwrap();
        let expected = [
            ("long".to_owned(), 1000, content(0, 1000)[992..].to_vec()),
            ("short".to_owned(), 3, b"abc".to_vec()),
        ];
        assert_eq!(found, expected);
    });
}
