//! Hostile or half-dead peers that hold a ticket or are the listener: bounds on memory and on waiting time.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod cancelled;
mod digests;
mod listener;
mod messages;
mod peer;
mod receipts;
mod sender;
mod udp;

use std::env;
use std::fs;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use sabul::internal::tls::{self, Identity};
use sabul::settings::{Direction, MeasureLimit, Timeouts};
use sabul::{
    Bytes, ConnectConfig, Error, Listener, ListenerConfig, Service, Session, Ticket,
    TransferOptions, connect,
};
use sabul_wire::control::{
    self, CONTROL_VERSION, ChannelParams, Failure, FailureCode, MAX_SOURCES, Message, Open, Range,
    Request,
};
use tempfile::TempDir;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_rustls::client::TlsStream;

pub(crate) use peer::{receive, say};

/// Longer than any step takes, so that a failure ends too.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Most memory of a process with one test. Without bounds each attack takes gigabytes.
const MEMORY_MAX: u64 = 300 << 20;

fn run<T>(test: impl Future<Output = T>) -> T {
    crate::common::within(TIMEOUT, test)
}

/// Memory of this process in bytes.
fn resident() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").trim().parse::<u64>().unwrap() << 10
}

fn hasty() -> Timeouts {
    Timeouts::default().silence(Duration::from_secs(2))
}

/// The result of a session that a listener serves.
type Served = JoinHandle<Result<(), Error>>;

/// A listener that serves an empty directory, and the result of its next session.
async fn serving(timeouts: Timeouts) -> (Ticket, Served) {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().to_owned();
    serve(timeouts, path, Some(root)).await
}

/// As [`serving`], with this directory.
async fn serving_at(root: &Path) -> (Ticket, Served) {
    serve(Timeouts::default(), root.to_owned(), None).await
}

async fn serve(timeouts: Timeouts, root: PathBuf, kept: Option<TempDir>) -> (Ticket, Served) {
    let mut config = ListenerConfig::new("127.0.0.1:0".parse().unwrap());
    config.timeouts = timeouts;
    let listener = Listener::bind(config).await.unwrap();
    let ticket = listener.ticket().clone();
    let serving = tokio::spawn(async move {
        let session = listener.accept().await.unwrap();
        let served = session.serve(&Service::default().root(root)).await;
        drop((kept, listener));
        served.map(drop)
    });
    (ticket, serving)
}

/// Hash of a file of this size without data.
fn hole_hash(size: u64) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(b"sabul holes 2\n").update(&size.to_le_bytes()).update(&0_u64.to_le_bytes());
    *hasher.update(blake3::hash(b"").as_bytes()).finalize().as_bytes()
}

/// An authenticated connector that sends only the messages of the test.
async fn dial(ticket: &Ticket) -> TlsStream<TcpStream> {
    peer::Client::dial(ticket).await.control
}

fn open(transfer: u32, direction: control::Direction, request: Request) -> Message {
    let channel = ChannelParams::new("fixed");
    Message::Open(Open { transfer, direction, request, channel })
}

fn long_failure() -> Failure {
    Failure::new(FailureCode::Changed, "x".repeat(1_000_000))
}

/// Sends the messages of `next` until the other end closes; returns the failure of its last cancel.
async fn flood(
    mut stream: TlsStream<TcpStream>,
    mut next: impl FnMut(u32) -> Message,
    count: u32,
) -> Option<Failure> {
    for number in 0..count {
        if !say(&mut stream, &next(number)).await {
            break;
        }
        assert!(resident() < MEMORY_MAX, "{} MiB", resident() >> 20);
    }
    let mut last = None;
    while let Ok(Some(message)) =
        tokio::time::timeout(Duration::from_secs(1), receive(&mut stream)).await
    {
        if let Message::Cancel { transfer: None, failure } = message {
            last = Some(failure);
        }
    }
    last
}

/// Runs the test of this name alone in a process, whose memory then is that of the test. Returns true in that process.
fn is_alone(name: &str) -> bool {
    const ALONE: &str = "SABUL_TEST_ALONE";
    if env::var_os(ALONE).is_some() {
        return true;
    }
    let mut command = Command::new(env::current_exe().unwrap());
    command.args([name, "--exact", "--nocapture"]).env(ALONE, "1");
    let output = command.output().unwrap();
    let shown = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && shown.contains("1 passed"), "alone:\n{output:?}");
    false
}

/// One test for all, because each would need a process of its own.
#[test]
fn a_ticket_holder_cannot_exhaust_the_memory_of_a_listener() {
    if !is_alone("hostile::a_ticket_holder_cannot_exhaust_the_memory_of_a_listener") {
        return;
    }
    run(async {
        let get = |sources| Request::Get {
            sources: vec![Vec::new(); sources],
            recursive: false,
            rules: Vec::new(),
            ranges: Vec::new(),
            archive: false,
            hard_links: false,
            links_out: false,
            selected: false,
            growing: false,
            literal: false,
            state: None,
            from_end: false,
        };
        // More sources than a request may have: rejected before decoding.
        let (ticket, served) = serving(Timeouts::default()).await;
        let request = |number| open(2 * number + 1, control::Direction::Pull, get(1_000_000));
        let why = flood(dial(&ticket).await, request, 256).await.expect("a reason");
        assert_eq!(why.code, FailureCode::Protocol, "{why}");
        served.await.unwrap().unwrap_err();
        // The maximum of sources, in the maximum number of transfers, and more.
        let (ticket, _served) = serving(Timeouts::default()).await;
        let request = |number| open(2 * number + 1, control::Direction::Pull, get(MAX_SOURCES));
        flood(dial(&ticket).await, request, 1000).await;
        // Refused requests, from a peer that does not read the answers.
        let (ticket, served) = serving(hasty()).await;
        let stream = |number| {
            let request = Request::Stream { name: String::new() };
            open(2 * number + 1, control::Direction::Push, request)
        };
        flood(dial(&ticket).await, stream, 300_000).await;
        let error = served.await.unwrap().unwrap_err();
        assert!(matches!(error, Error::PeerGone(_)), "{error:?}");
        // Texts of one megabyte.
        let (ticket, served) = serving(Timeouts::default()).await;
        let cancel = |_| Message::Cancel { transfer: Some(1), failure: long_failure() };
        flood(dial(&ticket).await, cancel, 200).await;
        served.await.unwrap().unwrap_err();
    });
}

#[test]
fn ranges_without_a_source_of_their_own_are_refused() {
    run(async {
        let request = |sources: &[&str], ranges, literal, recursive| Request::Get {
            sources: sources.iter().map(|source| source.as_bytes().to_vec()).collect(),
            recursive,
            rules: Vec::new(),
            ranges: vec![Range { offset: 0, length: None }; ranges],
            archive: false,
            hard_links: false,
            links_out: false,
            selected: false,
            growing: false,
            literal,
            state: None,
            from_end: false,
        };
        let refused = [
            request(&["a"], 2, true, false),
            request(&["a", "b"], 3, true, false),
            request(&["a", "b"], 2, false, false),
            request(&["a", "b"], 2, true, true),
        ];
        for request in refused {
            let (ticket, _served) = serving(Timeouts::default()).await;
            let mut stream = dial(&ticket).await;
            let words = format!("{request:?}");
            let Message::Open(open) = open(1, control::Direction::Pull, request) else { panic!() };
            let channel = ChannelParams::new("cubic");
            assert!(say(&mut stream, &Message::Open(Open { channel, ..open })).await);
            let answer = loop {
                match receive(&mut stream).await {
                    Some(Message::Cancel { failure, .. }) => break failure,
                    Some(_) => {}
                    None => panic!("no reason for {words}"),
                }
            };
            assert_eq!(answer.code, FailureCode::Protocol, "{words}: {answer}");
            assert!(answer.message.contains("ranges of"), "{words}: {answer}");
        }
    });
}

/// Behaviour of a hostile listener towards its one connector.
async fn listening<F, G>(act: F) -> Ticket
where
    F: FnOnce(tokio_rustls::server::TlsStream<TcpStream>) -> G + Send + 'static,
    G: Future<Output = ()> + Send,
{
    let identity = Identity::generate().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let ticket = Ticket::generate(vec![address], identity.fingerprint()).unwrap();
    let config = identity.server_config().unwrap();
    tokio::spawn(async move {
        let (tcp, _) = listener.accept().await.unwrap();
        act(tls::accept(tcp, config).await.unwrap()).await;
    });
    ticket
}

async fn request(session: &Session) -> Error {
    let limit = MeasureLimit::default().bytes(Bytes(1));
    let options = TransferOptions::default();
    match session.measure(Direction::Send, limit, &options).await {
        Ok(transfer) => transfer.finish().await.unwrap_err(),
        Err(error) => error,
    }
}

#[test]
fn a_listener_cannot_fill_the_memory_of_a_client_that_serves_nothing() {
    run(async {
        let ticket = listening(|mut stream| async move {
            let software = "hostile".to_owned();
            let welcome = Message::Welcome { version: CONTROL_VERSION, suite: 1, software };
            say(&mut stream, &welcome).await;
            let request = Request::Measure { bytes: None, millis: None };
            say(&mut stream, &open(2, control::Direction::Push, request)).await;
            let failure = Failure::new(FailureCode::Changed, "x".repeat(1000));
            let reported = Message::EntryFailed { transfer: 2, index: 0, failure };
            while say(&mut stream, &reported).await {}
        })
        .await;
        let session = connect(&ticket, ConnectConfig::default()).await.unwrap();
        let error = request(&session).await;
        assert!(matches!(&error, Error::Failed(f) if f.code == FailureCode::Protocol), "{error:?}");
    });
}

#[test]
fn a_silent_listener_ends_the_session_with_a_named_error() {
    run(async {
        let ticket = listening(|stream| async move {
            // Like a stopped process: its kernel continues, the process does not.
            tokio::time::sleep(TIMEOUT).await;
            drop(stream);
        })
        .await;
        let config = ConnectConfig::default().timeouts(hasty());
        let session = connect(&ticket, config).await.unwrap();
        let began = Instant::now();
        let error = request(&session).await;
        assert!(matches!(error, Error::PeerGone(_)), "{error:?}");
        assert!(error.to_string().contains("not even an answer to pings"), "{error}");
        assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    });
}

#[test]
fn an_idle_connector_that_vanishes_is_removed() {
    run(async {
        let (ticket, served) = serving(hasty()).await;
        let _silent = dial(&ticket).await;
        let error = served.await.unwrap().unwrap_err();
        assert!(error.to_string().contains("not even an answer to pings"), "{error}");
    });
}

#[test]
fn a_live_connector_without_transfers_is_disconnected_after_its_timeout() {
    run(async {
        let idle = Some(Duration::from_secs(4));
        let (ticket, served) = serving(hasty().idle(idle)).await;
        let session = connect(&ticket, ConnectConfig::default()).await.unwrap();
        let error = served.await.unwrap().unwrap_err();
        assert!(error.to_string().contains("had no transfer for 4 s"), "{error}");
        let error = request(&session).await;
        assert!(error.to_string().contains("had no transfer for 4 s"), "{error}");
    });
}

#[test]
fn a_request_unanswered_by_a_live_peer_times_out() {
    run(async {
        let mut config = ListenerConfig::new("127.0.0.1:0".parse().unwrap());
        config.timeouts = Timeouts::default();
        let listener = Listener::bind(config).await.unwrap();
        let timeouts = Timeouts::default().accept(Duration::from_secs(2));
        let config = ConnectConfig::default().timeouts(timeouts);
        let session = connect(listener.ticket(), config).await.unwrap();
        // The peer is alive, but its application does not read requests.
        let peer = listener.accept().await.unwrap();
        let error = request(&session).await;
        assert!(error.to_string().contains("did not answer the request within 2 s"), "{error}");
        // The answer to a stream has no timeout.
        let stream = session.send_stream("slow", &TransferOptions::default()).await.unwrap();
        tokio::time::sleep(Duration::from_secs(4)).await;
        let sabul::server::Request::Measure(_) = peer.next_request().await.unwrap() else {
            panic!("the first request waits still");
        };
        let sabul::server::Request::Stream(request) = peer.next_request().await.unwrap() else {
            panic!("a stream is asked for");
        };
        request.refuse("not today");
        assert_eq!(stream.finish().await.unwrap_err().to_string(), "not today");
    });
}

#[test]
fn text_from_a_peer_is_escaped_for_the_terminal() {
    run(async {
        let (ticket, served) = serving(Timeouts::default()).await;
        let mut stream = dial(&ticket).await;
        let failure = Failure::new(FailureCode::Refused, "\x1b]0;owned\x07\x1b[31mred");
        say(&mut stream, &Message::Cancel { transfer: None, failure }).await;
        let text = served.await.unwrap().unwrap_err().to_string();
        assert_eq!(text, "\\u{1b}]0;owned\\u{7}\\u{1b}[31mred");
    });
}

/// A peer that requests a measurement with a terminal escape in the controller's name.
#[test]
fn refused_settings_are_shown_escaped_and_not_applied() {
    run(async {
        let (ticket, served) = serving(Timeouts::default()).await;
        let mut stream = dial(&ticket).await;
        let request = Request::Measure { bytes: None, millis: None };
        let Message::Open(mut open) = open(1, control::Direction::Pull, request) else {
            unreachable!("it is one")
        };
        open.channel.controller = "\x1b[2Jfixed".to_owned();
        say(&mut stream, &Message::Open(open)).await;
        let Some(Message::Welcome { .. }) = receive(&mut stream).await else { panic!("a welcome") };
        let Some(Message::Cancel { transfer: Some(1), failure }) = receive(&mut stream).await
        else {
            panic!("a refusal");
        };
        assert!(!failure.message.contains('\x1b'), "{failure}");
        drop(stream);
        served.await.unwrap().unwrap_err();
    });
}

/// A further connection with this first message; returns whether the listener answered.
async fn joins(ticket: &Ticket, join: impl FnOnce([u8; 32]) -> Message) -> bool {
    let tcp = TcpStream::connect(ticket.addresses()[0].as_str()).await.unwrap();
    let mut stream = tls::connect(tcp, ticket.fingerprint()).await.unwrap();
    let exporter = tls::proof_exporter(&**stream.get_ref().1).unwrap();
    assert!(say(&mut stream, &join(exporter)).await);
    // A listener that has closed the connection may refuse this message.
    let _ = say(&mut stream, &Message::Joined).await;
    matches!(tokio::time::timeout(Duration::from_secs(5), receive(&mut stream)).await, Ok(Some(_)))
}

#[test]
fn connections_without_the_secret_of_a_session_join_no_transfer() {
    run(async {
        let (ticket, served) = serving(Timeouts::default()).await;
        // A session with a running transfer, whose identifier an observer may have guessed.
        let mut stream = dial(&ticket).await;
        let export = |label: &[u8], stream: &TlsStream<TcpStream>| -> [u8; 40] {
            tls::exporter(&**stream.get_ref().1, label, &1_u32.to_be_bytes()).unwrap()
        };
        let secrets = export(b"EXPORTER-sabul-join", &stream);
        let id = u64::from_be_bytes(*secrets.first_chunk().unwrap());
        let key: [u8; 32] = secrets[8..].try_into().unwrap();
        let put = Request::Put {
            destination: b"a".to_vec(),
            into_directory: false,
            preserve: false,
            sync: false,
            read_back: false,
            origins: Vec::new(),
            expected: control::Expected::Any,
        };
        assert!(say(&mut stream, &open(1, control::Direction::Push, put)).await);
        while !matches!(receive(&mut stream).await, Some(Message::Accept { .. })) {}
        let proof = |exporter: [u8; 32]| sabul::internal::ticket::proof(&key, &exporter);
        let message =
            |id, proof, index, count| Message::Join { id, proof, attempt: 1, index, count };
        assert!(!joins(&ticket, |_| message(id, [7; 32], 0, 1)).await, "a wrong proof");
        assert!(
            !joins(&ticket, |_| message(id, proof([0; 32]), 0, 1)).await,
            "of another connection"
        );
        assert!(
            !joins(&ticket, |it| message(id ^ 1, proof(it), 0, 1)).await,
            "an unknown transfer"
        );
        assert!(!joins(&ticket, |it| message(id, proof(it), 1, 1)).await, "an index too large");
        assert!(!joins(&ticket, |it| message(id, proof(it), 0, 17)).await, "too many");
        assert!(joins(&ticket, |it| message(id, proof(it), 0, 1)).await, "the session's own");
        assert!(!joins(&ticket, |it| message(id, proof(it), 0, 1)).await, "a second time");
        drop(stream);
        drop(served);
    });
}
