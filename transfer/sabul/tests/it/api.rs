//! The public interface: names at the root, runtimes, the blocking functions.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::fs;
use std::io::{Read as _, Write as _};
use std::time::Duration;

use sabul::files::{RemoteDestination, SourceSet, View};
use sabul::server::Request;
use sabul::settings::{Direction, MeasureLimit};
use sabul::{
    Bytes, ConnectConfig, Error, FailureCode, Listener, ListenerConfig, Service, TransferOptions,
    blocking, connect,
};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::runtime::{Builder, Runtime};

/// Longer than any step takes, so that a failure ends too.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Most names at the root of the crate: a reader takes in about this many.
const NAMES_MAX: usize = 30;

/// Names that the root exports, in the order of the source.
fn root_names() -> Vec<String> {
    let source = include_str!("../../src/lib.rs");
    let mut names = Vec::new();
    for statement in source.split(';') {
        // Comments and attributes before the statement are on lines of their own.
        let lines = statement.lines().map(str::trim);
        let plain = lines.filter(|line| !line.starts_with("//") && !line.starts_with("#["));
        let plain = plain.collect::<Vec<_>>().concat();
        if let Some(name) = plain.strip_prefix("pub mod ") {
            names.push(name.to_owned());
        } else if let Some(path) = plain.strip_prefix("pub use ") {
            let list = path.split_once("::{").map_or_else(
                || path.rsplit("::").next().unwrap_or_default(),
                |(_, list)| list.trim_end_matches('}'),
            );
            let items = list.split(',').map(str::trim).filter(|item| !item.is_empty());
            names.extend(items.map(|item| item.rsplit(' ').next().unwrap().to_owned()));
        } else {
            assert!(!plain.starts_with("pub "), "a name of another form: {plain}");
        }
    }
    names
}

#[test]
fn the_root_has_at_most_thirty_names_and_its_page_describes_each() {
    let names = root_names();
    for name in ["Session", "connect", "Bytes", "internal", "ssh"] {
        assert!(names.iter().any(|known| known == name), "{name} was not read: {names:?}");
    }
    assert!(names.len() <= NAMES_MAX, "{} names: {names:?}", names.len());
    let page = include_str!("../../src/lib.rs");
    for name in names.iter().filter(|name| *name != "internal") {
        let is_described = page
            .lines()
            .any(|line| line.starts_with("//! | ") && line.contains(&format!("[`{name}`]")));
        assert!(is_described, "{name} is missing in the table of the root's page");
    }
}

fn local() -> ListenerConfig {
    ListenerConfig::new("127.0.0.1:0".parse().unwrap())
}

/// Uses every kind of operation between two ends on this runtime.
fn use_all(runtime: &Runtime) {
    let (here, there) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let file = here.path().join("a");
    fs::write(&file, vec![7; 1_000_000]).unwrap();
    let operations = async {
        let listener = Listener::bind(local()).await.unwrap();
        let ticket = listener.ticket().clone();
        let service = Service::default().root(there.path()).measure(true);
        let far = tokio::spawn(async move {
            let session = listener.accept().await.unwrap();
            session.serve(&service).await.unwrap();
            // The next session is for streams.
            let session = listener.accept().await.unwrap();
            let Some(Request::Stream(request)) = session.next_request().await else { panic!() };
            let (mut stream, mut text) = (request.accept_receiver().unwrap(), String::new());
            stream.read_to_string(&mut text).await.unwrap();
            stream.finish().await.unwrap();
            text
        });
        let session = connect(&ticket, ConnectConfig::default()).await.unwrap();
        let options = TransferOptions::default();
        let to = RemoteDestination::default();
        let mut transfer = session.put(SourceSet::path(file), to, &options).await.unwrap();
        while !transfer.progress().is_finished {
            transfer.changed().await;
        }
        let report = transfer.finish().await.unwrap().into_result().unwrap();
        assert_eq!(report.bytes, 1_000_000);
        let limit = MeasureLimit::default().bytes(Bytes(500_000));
        let measured = session.measure(Direction::Receive, limit, &options).await.unwrap();
        assert_eq!(measured.finish().await.unwrap().bytes, 500_000);
        session.close().await;
        let session = connect(&ticket, ConnectConfig::default()).await.unwrap();
        let mut stream = session.send_stream("s", &options).await.unwrap();
        stream.write_all(b"over the stream").await.unwrap();
        stream.finish().await.unwrap();
        assert_eq!(far.await.unwrap(), "over the stream");
        session.close().await;
    };
    runtime.block_on(async { tokio::time::timeout(TIMEOUT, operations).await }).unwrap();
    assert_eq!(fs::read(there.path().join("a")).unwrap(), vec![7; 1_000_000]);
}

#[test]
fn all_operations_work_on_a_runtime_of_one_thread() {
    use_all(&Builder::new_current_thread().enable_all().build().unwrap());
}

#[test]
fn all_operations_work_on_a_runtime_of_several_threads() {
    use_all(&Builder::new_multi_thread().worker_threads(3).enable_all().build().unwrap());
}

#[test]
fn blocking_functions_send_files_and_streams() {
    let (here, there) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let (file, root) = (here.path().join("a"), there.path().to_owned());
    fs::write(&file, vec![7; 1_000_000]).unwrap();
    let listener = blocking::Listener::bind(local()).unwrap();
    let ticket = listener.ticket().clone();
    let far = std::thread::spawn(move || {
        listener.accept().unwrap().serve(&Service::default().root(root)).unwrap()
    });
    let session = blocking::connect(&ticket, ConnectConfig::default()).unwrap();
    let (to, options) = (RemoteDestination::default(), TransferOptions::default());
    let mut transfer = session.put(SourceSet::path(file), to, &options).unwrap();
    while !transfer.progress().is_finished {
        transfer.changed().unwrap();
    }
    assert_eq!(transfer.finish().unwrap().bytes, 1_000_000);
    session.close().unwrap();
    assert_eq!(far.join().unwrap().transfers, 1);
    assert_eq!(fs::read(there.path().join("a")).unwrap(), vec![7; 1_000_000]);
}

#[test]
fn blocking_functions_list_make_and_remove_files() {
    let there = TempDir::new().unwrap();
    let root = there.path().to_owned();
    let listener = blocking::Listener::bind(local()).unwrap();
    let ticket = listener.ticket().clone();
    let far = std::thread::spawn(move || {
        listener.accept().unwrap().serve(&Service::default().root(root).remove(true)).unwrap()
    });
    let session = blocking::connect(&ticket, ConnectConfig::default()).unwrap();
    let names = || {
        let listing = session.list(vec![Vec::new()], View::Content, Vec::new()).unwrap();
        listing.map(|seen| String::from_utf8(seen.unwrap().path).unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(session.make_folders(vec![b"d/e".to_vec()], true).unwrap().names, 2);
    assert_eq!(names(), ["d"]);
    let removed = session.remove(vec![b"d".to_vec(), b"none".to_vec()], true).unwrap();
    assert_eq!((removed.names, removed.failures.len(), removed.failures[0].0), (2, 1, 1));
    assert_eq!(removed.failures[0].1.code, FailureCode::NotFound);
    assert!(names().is_empty());
    session.close().unwrap();
    far.join().unwrap();
}

#[test]
fn blocking_streams_read_and_write_like_files() {
    let listener = blocking::Listener::bind(local()).unwrap();
    let ticket = listener.ticket().clone();
    let far = std::thread::spawn(move || {
        let session = listener.accept().unwrap();
        let Some(request) = session.next_request().unwrap() else { panic!("no request") };
        let Request::Stream(request) = request else { panic!("another request") };
        let mut stream = blocking::ReceiveStream::accept(request).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        stream.finish().unwrap();
        text
    });
    let session = blocking::connect(&ticket, ConnectConfig::default()).unwrap();
    let mut stream = session.send_stream("s", &TransferOptions::default()).unwrap();
    stream.write_all(b"over the stream").unwrap();
    stream.finish().unwrap();
    assert_eq!(far.join().unwrap(), "over the stream");
}

#[tokio::test]
async fn a_blocking_function_inside_of_a_runtime_is_refused_before_it_blocks() {
    let error = blocking::Listener::bind(local()).unwrap_err();
    assert!(matches!(error, Error::Impossible { .. }), "{error:?}");
    assert!(error.to_string().contains("async runtime"), "{error}");
}
