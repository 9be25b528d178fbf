//! Ranges of many files in one request.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::fs;
use std::future::Future;
use std::path::Path;
use std::time::Duration;

use sabul::files::{Range, View};
use sabul::server::ServeSummary;
use sabul::{
    ConnectConfig, Failure, FailureCode, Listener, ListenerConfig, Service, Session,
    TransferOptions, connect,
};
use tempfile::TempDir;

/// Longer than any step takes, so that a failure ends too.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Serves the directory to one session, and runs the test with that session. Returns what was served.
pub(crate) fn with_session<F: Future<Output = ()>>(
    root: &Path,
    test: impl FnOnce(Session) -> F,
) -> ServeSummary {
    crate::common::within(TIMEOUT, async {
        let config = ListenerConfig::new("127.0.0.1:0".parse().unwrap());
        let listener = Listener::bind(config).await.unwrap();
        let ticket = listener.ticket().clone();
        let service = Service::default().root(root);
        let served = tokio::spawn(async move {
            let session = listener.accept().await.unwrap();
            session.serve(&service).await
        });
        let session = connect(&ticket, ConnectConfig::default()).await.unwrap();
        test(session.clone()).await;
        session.close().await;
        served.await.unwrap().unwrap()
    })
}

fn range(path: impl AsRef<[u8]>, offset: u64, length: impl Into<Option<u64>>) -> (Vec<u8>, Range) {
    (path.as_ref().to_vec(), Range { offset, length: length.into() })
}

/// All results in the order of the request.
async fn read(session: &Session, ranges: Vec<(Vec<u8>, Range)>) -> Vec<Result<Vec<u8>, Failure>> {
    let mut found = vec![None; ranges.len()];
    let options = TransferOptions::default();
    let mut reads = session.read_ranges(ranges, &options).await.unwrap();
    while let Some((number, content)) = reads.next().await.unwrap() {
        assert!(found[number].replace(content).is_none(), "range {number} came twice");
    }
    found.into_iter().map(|content| content.expect("every range has a result")).collect()
}

/// Content in which each position has other bytes.
pub(crate) fn content(seed: usize, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| u8::try_from((seed + at * 31 + at / 251) % 256).unwrap()).collect()
}

#[test]
fn many_ranges_of_many_files_arrive_in_one_request() {
    let root = TempDir::new().unwrap();
    for number in 0..20 {
        fs::create_dir_all(root.path().join(format!("d{number}"))).unwrap();
        // The same name in each directory.
        let name = root.path().join(format!("d{number}/part"));
        fs::write(name, content(number, 300_000)).unwrap();
    }
    let mut ranges = Vec::new();
    for at in 0..1000_u64 {
        let (number, offset) = (at * 7 % 20, at * 4099 % 290_000);
        ranges.push(range(format!("d{number}/part"), offset, Some(at % 5000)));
    }
    with_session(root.path(), |session| async move {
        for (at, found) in read(&session, ranges).await.into_iter().enumerate() {
            let (offset, length) = (at * 4099 % 290_000, at % 5000);
            let whole = content(at * 7 % 20, 300_000);
            assert_eq!(found.unwrap(), whole[offset..offset + length], "range {at}");
        }
    });
}

#[test]
fn names_that_do_not_fit_into_one_request_take_several() {
    let root = TempDir::new().unwrap();
    let name = "n".repeat(200);
    fs::write(root.path().join(&name), content(3, 10_000)).unwrap();
    let ranges = (0..5000).map(|at| range(&name, at, Some(3))).collect();
    with_session(root.path(), |session| async move {
        let (found, whole) = (read(&session, ranges).await, content(3, 10_000));
        assert_eq!(found.len(), 5000);
        for (at, found) in found.into_iter().enumerate() {
            assert_eq!(found.unwrap(), whole[at..at + 3]);
        }
    });
}

#[test]
fn ranges_of_a_file_that_changed_since_it_was_seen_fail() {
    let root = TempDir::new().unwrap();
    let name = root.path().join("a");
    fs::write(&name, content(1, 5000)).unwrap();
    fs::write(root.path().join("b"), content(2, 5000)).unwrap();
    let new = root.path().join("new");
    with_session(root.path(), |session| async move {
        let seen = session.list(vec![b"a".to_vec()], View::Itself, Vec::new()).unwrap();
        let time = { seen }.next().await.unwrap().unwrap().outcome.unwrap().modified_ns;
        assert!(time.is_some());
        let read = async |session: &Session| {
            let ranges =
                vec![range("a", 100, Some(9)), range("b", 5, Some(9)), range("a", 0, Some(3))];
            let (times, options) = (vec![time, None], TransferOptions::default());
            let mut reads = session.read_ranges_as_seen(ranges, times, &options).await.unwrap();
            let mut found = [const { None }; 3];
            while let Some((number, content)) = reads.next().await.unwrap() {
                found[number] = Some(content.map_err(|failure| failure.code));
            }
            found.map(Option::unwrap)
        };
        let [a, b, untimed] = [(1, 100, 9), (2, 5, 9), (1, 0, 3)]
            .map(|(seed, at, length)| content(seed, 5000)[at..at + length].to_vec());
        assert_eq!(read(&session).await, [Ok(a), Ok(b.clone()), Ok(untimed)]);
        // The new version has the same size.
        fs::write(&new, content(9, 5000)).unwrap();
        fs::rename(&new, &name).unwrap();
        let untimed = content(9, 5000)[..3].to_vec();
        let expected = [Err(FailureCode::Changed), Ok(b), Ok(untimed)];
        assert_eq!(read(&session).await, expected);
    });
}

#[test]
fn a_range_that_cannot_be_read_fails_alone() {
    let root = TempDir::new().unwrap();
    fs::write(root.path().join("a"), content(0, 100)).unwrap();
    // No source is a pattern.
    fs::write(root.path().join("[a]*"), content(1, 100)).unwrap();
    fs::create_dir(root.path().join("d")).unwrap();
    let ranges = vec![
        range("missing", 0, None),
        range("a", 90, Some(50)),
        range("a", 100, Some(1)),
        range("a", 101, Some(1)),
        range("d", 0, Some(1)),
        range("d/", 0, Some(1)),
        range("[a]*", 10, None),
        range("?", 0, Some(1)),
        range("../a", 0, Some(1)),
        range("a", u64::MAX, None),
        range("a", 0, Some(u64::MAX)),
    ];
    with_session(root.path(), |session| async move {
        let found = read(&session, ranges).await;
        let code = |at: usize| found[at].as_ref().unwrap_err().code;
        assert_eq!(code(0), FailureCode::NotFound);
        assert_eq!(found[1], Ok(content(0, 100)[90..].to_vec()), "cut at the end of the file");
        assert_eq!(found[2], Ok(Vec::new()), "empty at the end of the file");
        let behind = found[3].as_ref().unwrap_err();
        assert!(behind.message.contains("has 100 bytes, but byte 101 was requested"), "{behind}");
        assert_eq!((code(4), code(5)), (FailureCode::Unreadable, FailureCode::Unreadable));
        assert_eq!(found[6], Ok(content(1, 100)[10..].to_vec()));
        assert_eq!(code(7), FailureCode::NotFound);
        assert!(found[8].is_err() && found[9].is_err());
        assert_eq!(found[10], Ok(content(0, 100)));
        // Only failures: the session goes on.
        assert_eq!(read(&session, vec![range("no", 0, None); 2]).await.len(), 2);
        assert!(read(&session, Vec::new()).await.is_empty());
    });
}

#[test]
fn a_dropped_request_ends_and_the_session_goes_on() {
    let root = TempDir::new().unwrap();
    fs::write(root.path().join("a"), content(0, 4 << 20)).unwrap();
    let ranges: Vec<_> = (0..200).map(|_| range("a", 0, None)).collect();
    with_session(root.path(), |session| async move {
        let options = TransferOptions::default();
        let mut reads = session.read_ranges(ranges, &options).await.unwrap();
        let (_, first) = reads.next().await.unwrap().unwrap();
        assert_eq!(first.unwrap().len(), 4 << 20);
        drop(reads);
        let mut listing = session.list(vec![b"a".to_vec()], View::Itself, Vec::new()).unwrap();
        assert!(listing.next().await.unwrap().is_some());
        let again = read(&session, vec![range("a", 5, Some(5)), range("a", 0, Some(2))]).await;
        assert_eq!(again[0], Ok(content(0, 10)[5..].to_vec()));
    });
}

#[test]
fn requests_run_at_the_same_time() {
    let root = TempDir::new().unwrap();
    for number in 0..8 {
        fs::write(root.path().join(format!("f{number}")), content(number, 100_000)).unwrap();
    }
    with_session(root.path(), |session| async move {
        let requests = (0..8).map(|number| {
            let session = session.clone();
            let ranges = (0..50).map(|at| range(format!("f{number}"), at * 1000, Some(1000)));
            let ranges = ranges.collect();
            tokio::spawn(async move { (number, read(&session, ranges).await) })
        });
        let requests: Vec<_> = requests.collect();
        for request in requests {
            let (number, found) = request.await.unwrap();
            let whole: Vec<u8> = found.into_iter().flat_map(Result::unwrap).collect();
            assert_eq!(whole, content(number, 100_000)[..50_000]);
        }
    });
}

#[test]
fn the_example_of_ranges_reads_the_start_of_each_file() {
    let root = TempDir::new().unwrap();
    fs::write(root.path().join("long"), content(0, 1000)).unwrap();
    fs::write(root.path().join("short"), b"abc").unwrap();
    with_session(root.path(), |session| async move {
        let paths = vec!["long".to_owned(), "short".to_owned()];
        let found = crate::examples::ranges::starts(&session, paths).await.unwrap();
        let expected = [
            ("long".to_owned(), content(0, 1000)[..8].to_vec()),
            ("short".to_owned(), b"abc".to_vec()),
        ];
        assert_eq!(found, expected);
    });
}
