//! Complete sessions over loopback: files, streams, measurements, and their failures.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::fs;
use std::future::Future;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use sabul::files::{LocalDestination, RemoteDestination};
use sabul::files::{Source, SourceSet};
use sabul::internal::connect_to;
use sabul::server::Request;
use sabul::settings::{Carrier, Direction, MeasureLimit, Timeouts};
use sabul::{
    Bytes, ConnectConfig, Error, ErrorKind, FailureCode, Listener, ListenerConfig, Rate, Report,
    Service, Session, Ticket, TransferOptions, connect,
};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinHandle;

/// Longer than any step takes, so that a failure ends too.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Runs a test on its own runtime, for a bounded time.
fn run<T>(test: impl Future<Output = T>) -> T {
    crate::common::within(TIMEOUT, test)
}

async fn listener() -> Listener {
    Listener::bind(ListenerConfig::new("127.0.0.1:0".parse().unwrap())).await.unwrap()
}

/// Serves a directory to every session; ends with the test's runtime.
async fn serving(root: &Path) -> (Ticket, SocketAddr, JoinHandle<()>) {
    let listener = listener().await;
    let (ticket, address) = (listener.ticket().clone(), listener.local_addr());
    let service = Service::default().root(root).measure(true);
    let task = tokio::spawn(async move {
        while let Ok(session) = listener.accept().await {
            let service = service.clone();
            tokio::spawn(async move { session.serve(&service).await });
        }
    });
    (ticket, address, task)
}

/// Both ends of a session.
async fn pair() -> (Session, Session) {
    let listener = listener().await;
    let near = connect(listener.ticket(), ConnectConfig::default()).await.unwrap();
    (near, listener.accept().await.unwrap())
}

fn options() -> TransferOptions {
    TransferOptions::default().block_size(Bytes(64 << 10))
}

/// Content that is cheap to make and shows the order of its bytes.
fn content(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|i| u8::try_from((i * 31 + i / 251) % 256).unwrap()).collect()
}

fn file(directory: &TempDir, name: &str, bytes: usize) -> PathBuf {
    let path = directory.path().join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, content(bytes)).unwrap();
    path
}

fn sources(paths: &[&Path]) -> SourceSet {
    let paths = paths.iter().map(|path| Source::Path(path.to_path_buf())).collect();
    SourceSet::local(paths, true).unwrap()
}

fn to(path: &str) -> RemoteDestination {
    RemoteDestination::path(path)
}

async fn put(session: &Session, path: &Path) -> Result<Report, Error> {
    session.put(sources(&[path]), to(""), &options()).await?.finish().await
}

/// Names below a directory, sorted.
fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let mut names: Vec<_> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn an_uploaded_file_arrives_complete_and_verified() {
    run(async {
        let (from, root) = (TempDir::new().unwrap(), TempDir::new().unwrap());
        let path = file(&from, "a.bin", 3_000_001);
        let (ticket, ..) = serving(root.path()).await;
        let session = connect(&ticket, ConnectConfig::default()).await.unwrap();
        let report = put(&session, &path).await.unwrap();
        assert_eq!((report.bytes, report.entries, report.entries_failed), (3_000_001, 1, 0));
        assert!(report.verified && report.goodput_bps > 0.0 && !report.intervals.is_empty());
        assert!(report.cpu_sender.is_some() && report.cpu_receiver.is_some());
        assert_eq!(names(root.path()), ["a.bin"]);
        assert!(fs::read(root.path().join("a.bin")).unwrap() == content(3_000_001));
        session.close().await;
    });
}

#[test]
fn a_downloaded_file_arrives_complete_and_verified() {
    run(async {
        let (root, here) = (TempDir::new().unwrap(), TempDir::new().unwrap());
        file(&root, "dir/a.bin", 2_500_000);
        let (ticket, ..) = serving(root.path()).await;
        let session = connect(&ticket, ConnectConfig::default()).await.unwrap();
        let path = here.path().join("b.bin");
        let destination = LocalDestination::path(path.clone());
        let transfer =
            session.get(vec![b"dir/a.bin".to_vec()], false, destination, &options()).await.unwrap();
        let report = transfer.finish().await.unwrap();
        assert_eq!((report.bytes, report.entries, report.verified), (2_500_000, 1, true));
        assert!(fs::read(path).unwrap() == content(2_500_000));
    });
}

#[test]
fn directories_and_empty_files_transfer_in_both_directions() {
    run(async {
        let (from, root, here) =
            (TempDir::new().unwrap(), TempDir::new().unwrap(), TempDir::new().unwrap());
        for i in 0..300 {
            file(&from, &format!("tree/d{}/f{i}", i % 7), i * 97 % 5000);
        }
        file(&from, "tree/big", 1_000_000);
        let (ticket, ..) = serving(root.path()).await;
        let session = connect(&ticket, ConnectConfig::default()).await.unwrap();
        let report = put(&session, &from.path().join("tree")).await.unwrap();
        assert_eq!((report.entries, report.files, report.entries_failed), (309, 301, 0));
        let destination = LocalDestination::directory(here.path());
        let transfer =
            session.get(vec![b"tree".to_vec()], true, destination, &options()).await.unwrap();
        let back = transfer.finish().await.unwrap();
        assert_eq!((back.entries, back.files, back.bytes), (309, 301, report.bytes));
        for i in 0..300 {
            let name = format!("tree/d{}/f{i}", i % 7);
            assert!(fs::read(here.path().join(&name)).unwrap() == content(i * 97 % 5000), "{name}");
        }
        assert!(fs::read(here.path().join("tree/big")).unwrap() == content(1_000_000));
    });
}

#[test]
fn a_missing_source_is_reported_and_the_rest_is_sent() {
    run(async {
        let (from, root) = (TempDir::new().unwrap(), TempDir::new().unwrap());
        let path = file(&from, "a", 10);
        let (ticket, ..) = serving(root.path()).await;
        let session = connect(&ticket, ConnectConfig::default()).await.unwrap();
        let set = sources(&[&path, &from.path().join("none")]);
        let report = session.put(set, to("new"), &options()).await.unwrap().finish().await.unwrap();
        assert_eq!((report.entries, report.entries_failed), (1, 1));
        assert_eq!(report.failures.len(), 1);
        assert_eq!(report.failures[0].1.code, FailureCode::NotFound);
        assert_eq!(names(&root.path().join("new")), ["a"]);
    });
}

#[test]
fn a_path_outside_the_root_is_refused() {
    run(async {
        let (from, root) = (TempDir::new().unwrap(), TempDir::new().unwrap());
        let path = file(&from, "a", 10);
        let (ticket, ..) = serving(root.path()).await;
        let session = connect(&ticket, ConnectConfig::default()).await.unwrap();
        let transfer = session.put(sources(&[&path]), to("../x"), &options()).await.unwrap();
        let error = transfer.finish().await.unwrap_err();
        assert!(matches!(&error, Error::Failed(f) if f.code == FailureCode::Refused), "{error:?}");
        // The session continues.
        assert!(put(&session, &path).await.is_ok());
    });
}

#[test]
fn a_read_only_listener_accepts_no_files() {
    run(async {
        let (from, root) = (TempDir::new().unwrap(), TempDir::new().unwrap());
        let path = file(&from, "a", 10);
        let (near, far) = pair().await;
        let service = Service::default().root(root.path()).read_only(true);
        let serving = tokio::spawn(async move { far.serve(&service).await });
        let error = put(&near, &path).await.unwrap_err();
        assert!(matches!(&error, Error::Failed(f) if f.code == FailureCode::Refused), "{error:?}");
        near.close().await;
        let summary = serving.await.unwrap().unwrap();
        assert_eq!((summary.transfers, summary.failed), (0, 1));
        assert!(names(root.path()).is_empty());
    });
}

#[test]
fn a_listener_acting_as_its_user_accepts_user_paths_and_links() {
    run(async {
        let (from, root) = (TempDir::new().unwrap(), TempDir::new().unwrap());
        let path = file(&from, "a", 3000);
        fs::create_dir(root.path().join("real")).unwrap();
        std::os::unix::fs::symlink(root.path().join("real"), root.path().join("link")).unwrap();
        let (near, far) = pair().await;
        let service = Service::default().as_user(true);
        let serving = tokio::spawn(async move { far.serve(&service).await });
        let place = root.path().join("link/b").into_os_string().into_encoded_bytes();
        let there = RemoteDestination::path(place.clone());
        let transfer = near.put(sources(&[&path]), there, &options()).await.unwrap();
        assert_eq!(transfer.finish().await.unwrap().files, 1);
        assert_eq!(fs::read(root.path().join("real/b")).unwrap(), content(3000));
        let back = LocalDestination::path(from.path().join("c"));
        let transfer = near.get(vec![place], false, back, &options()).await.unwrap();
        assert_eq!(transfer.finish().await.unwrap().files, 1);
        assert_eq!(fs::read(from.path().join("c")).unwrap(), content(3000));
        near.close().await;
        assert_eq!(serving.await.unwrap().unwrap().transfers, 2);
    });
}

/// Sends on one end of a stream, receives on the other, and compares.
async fn stream_through(
    mut sender: sabul::SendStream,
    mut receiver: sabul::ReceiveStream,
    bytes: usize,
) {
    let sending = tokio::spawn(async move {
        sender.write_all(&content(bytes)).await.unwrap();
        sender.shutdown().await.unwrap();
        sender.finish().await
    });
    let mut received = Vec::new();
    receiver.read_to_end(&mut received).await.unwrap();
    assert!(received == content(bytes));
    assert_eq!(receiver.finish().await.unwrap().bytes, bytes as u64);
    let report = sending.await.unwrap().unwrap();
    assert_eq!((report.bytes, report.verified), (bytes as u64, true));
}

#[test]
fn streams_are_sent_by_the_opening_side() {
    run(async {
        let (near, far) = pair().await;
        let sender = near.send_stream("log", &options()).await.unwrap();
        let Some(Request::Stream(request)) = far.next_request().await else { panic!("no stream") };
        assert_eq!((request.name.as_str(), request.direction), ("log", Direction::Receive));
        stream_through(sender, request.accept_receiver().unwrap(), 700_001).await;
    });
}

#[test]
fn streams_are_received_by_the_opening_side_even_the_listener() {
    run(async {
        let (near, far) = pair().await;
        let receiver = far.receive_stream("x", &options()).await.unwrap();
        let Some(Request::Stream(request)) = near.next_request().await else { panic!("no stream") };
        assert_eq!(request.direction, Direction::Send);
        stream_through(request.accept_sender().unwrap(), receiver, 300_000).await;
    });
}

#[test]
fn an_empty_stream_transfers() {
    run(async {
        let (near, far) = pair().await;
        let sender = near.send_stream("empty", &options()).await.unwrap();
        let Some(Request::Stream(request)) = far.next_request().await else { panic!("no stream") };
        stream_through(sender, request.accept_receiver().unwrap(), 0).await;
    });
}

#[test]
fn data_written_to_a_stream_arrives_while_it_is_open() {
    run(async {
        let (near, far) = pair().await;
        let mut sender = near.send_stream("log", &options()).await.unwrap();
        let Some(Request::Stream(request)) = far.next_request().await else { panic!("no stream") };
        let mut receiver = request.accept_receiver().unwrap();
        for line in ["first", "later"] {
            sender.write_all(line.as_bytes()).await.unwrap();
            let mut arrived = [0; 5];
            receiver.read_exact(&mut arrived).await.unwrap();
            assert_eq!(arrived, line.as_bytes());
        }
        sender.shutdown().await.unwrap();
        assert_eq!(receiver.read(&mut [0]).await.unwrap(), 0);
        assert_eq!(sender.finish().await.unwrap().bytes, 10);
    });
}

#[test]
fn a_stream_dropped_before_its_end_does_not_look_complete() {
    run(async {
        let (near, far) = pair().await;
        let mut sender = near.send_stream("cut", &options()).await.unwrap();
        let Some(Request::Stream(request)) = far.next_request().await else { panic!("no stream") };
        let mut receiver = request.accept_receiver().unwrap();
        sender.write_all(&content(100_000)).await.unwrap();
        drop(sender);
        let mut received = Vec::new();
        assert!(receiver.read_to_end(&mut received).await.is_err());
    });
}

#[test]
fn an_unwanted_stream_is_refused() {
    run(async {
        let (near, far) = pair().await;
        let sender = near.send_stream("spam", &options()).await.unwrap();
        far.next_request().await.unwrap().refuse("no spam");
        let error = sender.finish().await.unwrap_err();
        assert_eq!(error.to_string(), "no spam");
    });
}

/// The peer requires ascending transfer numbers, whichever thread opens first.
#[test]
fn concurrently_opened_transfers_are_all_accepted() {
    run(async {
        let root = TempDir::new().unwrap();
        let (ticket, _, _serving) = serving(root.path()).await;
        let session = connect(&ticket, ConnectConfig::default()).await.unwrap();
        let session = std::sync::Arc::new(session);
        for _ in 0..100 {
            let transfers: Vec<_> = (0..6)
                .map(|_| {
                    let session = std::sync::Arc::clone(&session);
                    tokio::spawn(async move {
                        let limit = MeasureLimit::default().bytes(Bytes(10_000));
                        session.measure(Direction::Send, limit, &options()).await?.finish().await
                    })
                })
                .collect();
            for transfer in transfers {
                assert_eq!(transfer.await.unwrap().unwrap().bytes, 10_000);
            }
        }
    });
}

#[test]
fn measurements_are_counted_at_the_receiver() {
    run(async {
        let root = TempDir::new().unwrap();
        let (ticket, ..) = serving(root.path()).await;
        let session = connect(&ticket, ConnectConfig::default()).await.unwrap();
        for direction in [Direction::Send, Direction::Receive] {
            let limit = MeasureLimit::default().bytes(Bytes(5_000_001));
            let transfer = session.measure(direction, limit, &options()).await.unwrap();
            let report = transfer.finish().await.unwrap();
            assert_eq!((report.bytes, report.verified), (5_000_001, false));
            let limit = MeasureLimit::default().time(Duration::from_millis(500));
            let transfer = session.measure(direction, limit, &options()).await.unwrap();
            let report = transfer.finish().await.unwrap();
            assert!(report.bytes > 0);
            let took = report.elapsed;
            assert!((0.5..3.0).contains(&took.as_secs_f64()), "{took:?}");
        }
    });
}

#[test]
fn a_wrong_key_and_a_wrong_secret_are_authentication_failures() {
    run(async {
        let root = TempDir::new().unwrap();
        let (ticket, address, _) = serving(root.path()).await;
        let other = listener().await;
        let error =
            connect_to(&address.to_string(), other.ticket(), ConnectConfig::default()).await;
        assert!(matches!(error, Err(Error::Authentication(_))), "{error:?}");

        let forged = Ticket::generate(ticket.addresses().to_vec(), ticket.fingerprint()).unwrap();
        let session = connect(&forged, ConnectConfig::default()).await.unwrap();
        let limit = MeasureLimit::default().bytes(Bytes(1));
        let started = session.measure(Direction::Send, limit, &options()).await;
        let error = match started {
            Ok(transfer) => transfer.finish().await.unwrap_err(),
            Err(error) => error,
        };
        assert!(matches!(error, Error::Authentication(_)), "{error:?}");
        assert_eq!(error.kind(), ErrorKind::Authentication);
    });
}

#[test]
fn an_absent_listener_is_unreachable() {
    run(async {
        let ticket = listener().await.ticket().clone();
        // The listener was dropped, and its port is closed.
        tokio::time::sleep(Duration::from_millis(50)).await;
        let error = connect(&ticket, ConnectConfig::default()).await.unwrap_err();
        assert!(matches!(error, Error::Unreachable { .. }), "{error:?}");
        assert_eq!(error.kind(), ErrorKind::Unreachable);
    });
}

#[test]
fn other_servers_are_reported_as_not_sabul() {
    run(async {
        let ticket = listener().await.ticket().clone();
        for banner in [&b"SSH-2.0-OpenSSH_9.9\r\n"[..], b""] {
            let server = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = server.local_addr().unwrap().to_string();
            let answering = tokio::spawn(async move {
                let (mut stream, _) = server.accept().await.unwrap();
                stream.write_all(banner).await.unwrap();
                // Read the hello, so that closing does not reset the connection.
                let _ = stream.read(&mut [0; 4096]).await;
            });
            let error = connect_to(&address, &ticket, ConnectConfig::default()).await.unwrap_err();
            assert!(matches!(error, Error::NotSabul { .. }), "{error:?}");
            answering.await.unwrap();
        }
    });
}

/// Returns an address that forwards TCP connections to a listener and drops every datagram.
async fn without_udp(target: SocketAddr) -> SocketAddr {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let silent = tokio::net::UdpSocket::bind(address).await.unwrap();
    tokio::spawn(async move {
        let (mut near, _) = listener.accept().await.unwrap();
        let mut far = tokio::net::TcpStream::connect(target).await.unwrap();
        let _ = tokio::io::copy_bidirectional(&mut near, &mut far).await;
        drop(silent);
    });
    address
}

#[test]
fn blocked_udp_is_named_within_eight_seconds() {
    run(async {
        let (from, root) = (TempDir::new().unwrap(), TempDir::new().unwrap());
        let path = file(&from, "a", 10_000);
        let (ticket, address, _) = serving(root.path()).await;
        let dialled = without_udp(address).await;
        let session =
            connect_to(&dialled.to_string(), &ticket, ConnectConfig::default()).await.unwrap();
        let start = Instant::now();
        let options = options().carrier(Carrier::Udp);
        let transfer = session.put(sources(&[&path]), to(""), &options).await.unwrap();
        let error = transfer.finish().await.unwrap_err();
        assert!(matches!(error, Error::UdpBlocked { .. }), "{error:?}");
        assert!(error.to_string().contains(&dialled.port().to_string()), "{error}");
        assert!(start.elapsed() < Duration::from_secs(8));
        assert!(names(root.path()).is_empty());
    });
}

/// A rate limit that makes a transfer of a few megabytes take seconds.
fn slow() -> TransferOptions {
    options().rate_limit(Rate(20_000_000))
}

/// Whether the directory has only resume data of another attempt.
fn has_no_file(root: &Path) -> bool {
    names(root).iter().all(|name| name.ends_with(".sabul-part"))
}

/// Waits until a part file exists, so that there is data to remove.
async fn part_of(root: &Path) {
    while names(root).is_empty() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[test]
fn a_cancelled_transfer_leaves_no_file() {
    run(async {
        let (from, root, here) =
            (TempDir::new().unwrap(), TempDir::new().unwrap(), TempDir::new().unwrap());
        let path = file(&from, "a", 20_000_000);
        let (ticket, ..) = serving(root.path()).await;
        let session = connect(&ticket, ConnectConfig::default()).await.unwrap();
        let transfer = session.put(sources(&[&path]), to(""), &slow()).await.unwrap();
        part_of(root.path()).await;
        transfer.cancel();
        let error = transfer.finish().await.unwrap_err();
        assert!(matches!(error, Error::Cancelled), "{error:?}");
        assert_eq!(error.kind(), ErrorKind::Interrupt);
        assert!(has_no_file(root.path()));
        // In the other direction, partial files are closed before the end is reported.
        file(&root, "b", 20_000_000);
        let destination = LocalDestination::directory(here.path());
        let transfer = session.get(vec![b"b".to_vec()], false, destination, &slow()).await.unwrap();
        part_of(here.path()).await;
        transfer.handle().cancel();
        assert!(matches!(transfer.finish().await, Err(Error::Cancelled)));
        assert!(has_no_file(here.path()));
    });
}

#[test]
fn a_listener_that_dies_fails_the_transfer_and_leaves_no_file() {
    let (root, here) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    file(&root, "b", 20_000_000);
    run(async {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let dying = builder.worker_threads(1).enable_all().build().unwrap();
        let path = root.path().to_owned();
        let (ticket, ..) = dying.spawn(async move { serving(&path).await }).await.unwrap();
        let session = connect(&ticket, ConnectConfig::default()).await.unwrap();
        let destination = LocalDestination::directory(here.path());
        let transfer = session.get(vec![b"b".to_vec()], false, destination, &slow()).await.unwrap();
        part_of(here.path()).await;
        let start = Instant::now();
        // Tasks and sockets end as they would with their process.
        dying.shutdown_background();
        let error = transfer.finish().await.unwrap_err();
        assert!(matches!(error, Error::PeerGone(_)), "{error:?}");
        assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
        assert!(has_no_file(here.path()));
    });
}

#[test]
fn two_sessions_share_a_listener() {
    run(async {
        let (from, root) = (TempDir::new().unwrap(), TempDir::new().unwrap());
        let (one, two) = (file(&from, "one", 4_000_000), file(&from, "two", 4_000_001));
        let (ticket, ..) = serving(root.path()).await;
        let first = connect(&ticket, ConnectConfig::default()).await.unwrap();
        let second = connect(&ticket, ConnectConfig::default()).await.unwrap();
        let (a, b) = tokio::join!(put(&first, &one), put(&second, &two));
        assert_eq!((a.unwrap().bytes, b.unwrap().bytes), (4_000_000, 4_000_001));
        assert!(fs::read(root.path().join("one")).unwrap() == content(4_000_000));
        assert!(fs::read(root.path().join("two")).unwrap() == content(4_000_001));
    });
}

#[test]
fn progress_and_summary_report_the_transfer() {
    run(async {
        let (from, root) = (TempDir::new().unwrap(), TempDir::new().unwrap());
        let path = file(&from, "a", 1_000_000);
        let (near, far) = pair().await;
        let service = Service::default().root(root.path());
        let serving = tokio::spawn(async move { far.serve(&service).await });
        let mut transfer = near
            .put(sources(&[&path]), to(""), &options().rate_limit(Rate(16_000_000)))
            .await
            .unwrap();
        let mut seen = Vec::new();
        while !transfer.progress().is_finished {
            transfer.changed().await;
            seen.push(transfer.progress().bytes);
        }
        assert!(seen.is_sorted() && seen.len() >= 3, "{seen:?}");
        let progress = transfer.progress();
        assert_eq!((progress.bytes, progress.bytes_total), (1_000_000, Some(1_000_000)));
        transfer.finish().await.unwrap();
        near.close().await;
        let summary = serving.await.unwrap().unwrap();
        assert_eq!((summary.transfers, summary.failed, summary.bytes), (1, 0, 1_000_000));
    });
}

#[test]
fn closing_a_session_right_after_a_transfer_does_not_fail_it() {
    run(async {
        for _ in 0..100 {
            let (near, far) = pair().await;
            let service = Service::default().measure(true);
            let serving = tokio::spawn(async move { far.serve(&service).await });
            let limit = MeasureLimit::default().time(Duration::from_millis(30));
            let transfer = near.measure(Direction::Receive, limit, &options()).await.unwrap();
            transfer.finish().await.unwrap();
            near.close().await;
            let summary = serving.await.unwrap().unwrap();
            assert_eq!((summary.transfers, summary.failed), (1, 0), "{:?}", summary.last_error);
        }
    });
}

#[test]
fn invalid_settings_are_refused_before_anything_is_sent() {
    run(async {
        let (near, _far) = pair().await;
        let default = TransferOptions::default;
        for bad in [
            default().block_size(Bytes(1_000_000)),
            default().window(Bytes(0)),
            default().rate_limit(Rate(0)),
            default().controller("sabul1999"),
        ] {
            let limit = MeasureLimit::default().bytes(Bytes(1));
            let error = near.measure(Direction::Send, limit, &bad).await.unwrap_err();
            assert!(matches!(error, Error::Config(_)), "{error:?}");
        }
    });
}

/// Pauses before the first bytes, like a pipe to a busy program.
struct SlowWriter {
    rest: Option<Duration>,
    bytes: u64,
    done: std::sync::mpsc::Sender<u64>,
}

impl std::io::Write for SlowWriter {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if let Some(rest) = self.rest.take() {
            std::thread::sleep(rest);
        }
        self.bytes += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Drop for SlowWriter {
    fn drop(&mut self) {
        let _ = self.done.send(self.bytes);
    }
}

/// All content is in memory long before it is written. A pause longer than any timeout is no
/// failure while both ends are alive.
#[test]
fn a_consumer_that_pauses_still_gets_everything() {
    run(async {
        let root = TempDir::new().unwrap();
        file(&root, "f", 3_000_000);
        let timeouts = Timeouts::default().silence(Duration::from_secs(3));
        let mut config = ListenerConfig::new("127.0.0.1:0".parse().unwrap());
        config.timeouts = timeouts;
        let listener = Listener::bind(config).await.unwrap();
        let config = ConnectConfig::default().timeouts(timeouts);
        let near = connect(listener.ticket(), config).await.unwrap();
        let far = listener.accept().await.unwrap();
        let service = Service::default().root(root.path());
        tokio::spawn(async move { far.serve(&service).await });
        let (done, written) = std::sync::mpsc::channel();
        let rest = Some(Duration::from_secs(7));
        let writer = Box::new(SlowWriter { rest, bytes: 0, done });
        let destination = LocalDestination::Writer(writer);
        let transfer = near.get(vec![b"f".to_vec()], false, destination, &options()).await.unwrap();
        let report = transfer.finish().await.unwrap();
        assert!(report.verified && report.bytes == 3_000_000, "{report:?}");
        assert_eq!(written.recv().unwrap(), 3_000_000);
    });
}

/// Panics at its first use, like an internal error.
struct Faulty;

impl std::io::Read for Faulty {
    fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
        panic!("a fault on purpose")
    }
}

impl std::io::Write for Faulty {
    fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
        panic!("a fault on purpose")
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_panic_in_a_reader_or_writer_thread_fails_its_transfer() {
    run(async {
        let root = TempDir::new().unwrap();
        file(&root, "f", 100_000);
        let (ticket, ..) = serving(root.path()).await;
        let session = connect(&ticket, ConnectConfig::default()).await.unwrap();
        let stream = Source::Stream { name: b"s".to_vec(), reader: Box::new(Faulty) };
        let set = SourceSet::local(vec![stream], false).unwrap();
        let sending = session.put(set, to("s"), &options()).await.unwrap();
        let destination = LocalDestination::Writer(Box::new(Faulty));
        let getting =
            session.get(vec![b"f".to_vec()], false, destination, &options()).await.unwrap();
        for transfer in [sending, getting] {
            let error = transfer.finish().await.unwrap_err();
            let is_ours = matches!(&error, Error::Failed(f) if f.code == FailureCode::Internal);
            assert!(is_ours && error.to_string().contains("fault of this program"), "{error:?}");
        }
        // The session and the other side still work.
        put(&session, &file(&root, "g", 1000)).await.unwrap();
    });
}
