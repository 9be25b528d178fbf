//! Sessions through an introducer over loopback: an introducer, servers that register, and callers.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod limits;

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sabul::files::{LocalDestination, RemoteDestination, SourceSet};
use sabul::internal::{Bound, tls};
use sabul::keys::{NamedTickets, ServerIdentity, StandingAccess};
use sabul::settings::{Carrier, IntroducerConfig, Introduction, MemoryBudget, Via};
use sabul::{
    Bytes, ConnectConfig, Error, Listener, ListenerConfig, Rate, Service, Session, Ticket,
    TransferOptions,
};
use sabul_wire::control::{CONTROL_VERSION, Message, UdpAddress};
use tempfile::TempDir;
use tokio::net::{TcpStream, UdpSocket};
use tokio::task::JoinSet;
use tokio_rustls::client::TlsStream;

use crate::hostile::{receive, say};

fn run<T>(test: impl Future<Output = T>) -> T {
    crate::common::within(Duration::from_secs(60), test)
}

fn local() -> ListenerConfig {
    ListenerConfig::new("127.0.0.1:0".parse().unwrap())
}

async fn introducer(relay: bool) -> Listener {
    let config = local().introducer(Some(IntroducerConfig::default().relay(relay)));
    Listener::bind(config).await.unwrap()
}

/// A server that is registered at an introducer.
struct Server {
    root: TempDir,
    listener: Arc<Listener>,
}

impl Server {
    async fn at(introducer: &Ticket) -> Self {
        let via = Via::by_ticket(introducer, None).unwrap();
        let listener = Arc::new(Listener::bind(local().via(Some(via))).await.unwrap());
        listener.registered().await.unwrap();
        let root = tempfile::tempdir().unwrap();
        let service = Service::default().root(root.path());
        let serving = Arc::clone(&listener);
        tokio::spawn(async move {
            while let Ok(session) = serving.accept().await {
                let service = service.clone();
                tokio::spawn(async move { drop(session.serve(&service).await) });
            }
        });
        Self { root, listener }
    }

    /// The ticket with addresses that nobody can dial.
    fn ticket(&self) -> &Ticket {
        self.listener.ticket()
    }
}

fn options() -> TransferOptions {
    TransferOptions::default().sync(false)
}

async fn put(
    session: &Session,
    from: &Path,
    options: &TransferOptions,
) -> Result<sabul::Report, Error> {
    let to = RemoteDestination::default();
    session.put(SourceSet::path(from), to, options).await?.finish().await?.into_result()
}

fn file(bytes: usize) -> (TempDir, std::path::PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    fs::write(&path, (0..=250).cycle().take(bytes).collect::<Vec<u8>>()).unwrap();
    (folder, path)
}

/// A message to the introducer on a new connection, and its answer.
async fn exchange(introducer: &Listener, message: &Message) -> Option<Message> {
    let tcp = TcpStream::connect(introducer.local_addr()).await.unwrap();
    let mut stream = tls::connect(tcp, introducer.ticket().fingerprint()).await.unwrap();
    assert!(say(&mut stream, message).await);
    receive(&mut stream).await
}

#[track_caller]
fn expect_refusal(answer: Option<Message>, part: &str) {
    let Some(Message::Cancel { transfer: None, failure }) = answer else { panic!("{answer:?}") };
    assert!(failure.message.contains(part), "{failure}");
}

#[test]
fn files_go_both_ways_over_udp_between_the_ends() {
    run(async {
        let introducer = introducer(false).await;
        let server = Server::at(introducer.ticket()).await;
        let session = sabul::connect(server.ticket(), ConnectConfig::default()).await.unwrap();
        let (_folder, from) = file(3_000_000);
        let report = put(&session, &from, &options()).await.unwrap();
        assert_eq!((report.channel.carrier, report.bytes_relayed), ("udp", 0));
        assert_eq!(fs::read(server.root.path().join("file")).unwrap(), fs::read(&from).unwrap());
        let here = tempfile::tempdir().unwrap();
        let to = LocalDestination::directory(here.path());
        let report = session.get(vec![b"file".to_vec()], false, to, &options()).await.unwrap();
        let report = report.finish().await.unwrap().into_result().unwrap();
        assert_eq!(report.channel.carrier, "udp");
        assert_eq!(fs::read(here.path().join("file")).unwrap(), fs::read(&from).unwrap());
        session.close().await;
    });
}

/// An introducer with a ticket that is valid for all its runs.
struct Standing {
    folder: TempDir,
    ticket: Ticket,
}

impl Standing {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let identity = ServerIdentity::generate().unwrap();
        identity.write(&folder.path().join("identity")).unwrap();
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let ticket = Ticket::generate(vec![port.to_string()], identity.fingerprint()).unwrap();
        let standing = Self { folder, ticket };
        standing.permit("server", &standing.ticket);
        standing
    }

    /// Makes a ticket valid, with the right to register.
    fn permit(&self, name: &str, ticket: &Ticket) {
        let tickets = NamedTickets::open(&self.folder.path().join("tickets")).unwrap();
        let options = [("rights".to_owned(), "introduce".to_owned())];
        tickets.create(name, ticket.secret(), &options, None).unwrap();
    }

    async fn start(&self) -> Listener {
        let identity = ServerIdentity::read(&self.folder.path().join("identity")).unwrap();
        let tickets = NamedTickets::open(&self.folder.path().join("tickets")).unwrap();
        let access = StandingAccess::new(identity).tickets(Some(tickets));
        let config = ListenerConfig::new(self.ticket.addresses()[0].parse().unwrap())
            .introducer(Some(IntroducerConfig::default()))
            .standing(Some(access));
        Listener::bind(config).await.unwrap()
    }
}

#[test]
fn an_introducer_that_restarts_during_a_copy_does_not_disturb_it() {
    run(async {
        let standing = Standing::new();
        let first = standing.start().await;
        let server = Server::at(&standing.ticket).await;
        let session = sabul::connect(server.ticket(), ConnectConfig::default()).await.unwrap();
        let (_folder, from) = file(6_000_000);
        let options = options().rate_limit(Some(Rate(12_000_000)));
        let restarting = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            drop(first);
            tokio::time::sleep(Duration::from_secs(1)).await;
            standing.start().await
        };
        let began = Instant::now();
        let (report, _second) = tokio::join!(put(&session, &from, &options), restarting);
        assert_eq!(report.unwrap().bytes, 6_000_000);
        assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
        // A further transfer needs another path, and so the introducer's answer about the new call.
        let report = put(&session, &from, &options.rate_limit(None)).await.unwrap();
        assert_eq!(report.channel.carrier, "udp");
    });
}

#[test]
fn without_udp_data_go_through_the_introducer_only_if_it_and_the_client_permit() {
    run(async {
        for (permits, requests, expected) in [
            (true, true, Ok("relay")),
            (true, false, Err("no TCP connection passes")),
            (false, true, Err("relays no data")),
        ] {
            let introducer = introducer(permits).await;
            let server = Server::at(introducer.ticket()).await;
            let config = ConnectConfig::default().relay(requests);
            let session = sabul::connect(server.ticket(), config).await.unwrap();
            let (_folder, from) = file(3_000_000);
            let options = options().carrier(Carrier::Tcp);
            let report = put(&session, &from, &options).await;
            match (report, expected) {
                (Ok(report), Ok(carrier)) => {
                    assert_eq!(report.channel.carrier, carrier);
                    let relayed = report.bytes_relayed;
                    assert!((3_000_000..3_300_000).contains(&relayed), "{relayed}");
                    let arrived = fs::read(server.root.path().join("file")).unwrap();
                    assert_eq!(arrived, fs::read(&from).unwrap());
                }
                (Err(error), Err(part)) => assert!(error.to_string().contains(part), "{error}"),
                (report, _) => panic!("{permits} {requests}: {report:?}"),
            }
        }
    });
}

#[test]
fn an_introducer_cannot_pose_as_the_server() {
    run(async {
        let introducer = introducer(false).await;
        let (server, other) =
            (Server::at(introducer.ticket()).await, Server::at(introducer.ticket()).await);
        // The introducer passes the caller to another server.
        let wrong = server.ticket().clone();
        let name = other.ticket().introduction().unwrap().name;
        let introduction = Introduction { name, ..wrong.introduction().unwrap().clone() };
        let wrong = wrong.with_introduction(introduction).unwrap();
        let error = sabul::connect(&wrong, ConnectConfig::default()).await.unwrap_err();
        assert!(matches!(error, Error::Authentication(_)), "{error}");
        // Another host poses as the introducer.
        let introduction = Introduction {
            fingerprint: [1; 32],
            ..server.ticket().introduction().unwrap().clone()
        };
        let wrong = server.ticket().clone().with_introduction(introduction).unwrap();
        let error = sabul::connect(&wrong, ConnectConfig::default()).await.unwrap_err();
        assert!(matches!(error, Error::Authentication(_)), "{error}");
    });
}

#[test]
fn a_caller_of_an_unknown_name_gets_a_reason_within_five_seconds() {
    run(async {
        let introducer = introducer(false).await;
        let call = Message::Call { version: CONTROL_VERSION, name: [1; 16], carries_data: false };
        let began = Instant::now();
        expect_refusal(exchange(&introducer, &call).await, "not registered");
        assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
        let old = Message::Call { version: 1, name: [1; 16], carries_data: false };
        expect_refusal(exchange(&introducer, &old).await, "same release");
        // A server that introduces nobody.
        let plain = Listener::bind(local()).await.unwrap();
        expect_refusal(exchange(&plain, &call).await, "introduces nobody");
    });
}

/// Registers this name by the ticket of the introducer, and returns the connection.
async fn register(introducer: &Listener, name: [u8; 16]) -> TlsStream<TcpStream> {
    register_with(introducer, introducer.ticket(), name).await
}

/// As [`register`], by this ticket.
async fn register_with(
    introducer: &Listener,
    ticket: &Ticket,
    name: [u8; 16],
) -> TlsStream<TcpStream> {
    let tcp = TcpStream::connect(introducer.local_addr()).await.unwrap();
    let mut stream = tls::connect(tcp, introducer.ticket().fingerprint()).await.unwrap();
    let exporter = tls::proof_exporter(&**stream.get_ref().1).unwrap();
    let proof = sabul::internal::ticket::proof(ticket.secret(), &exporter);
    let (suites, software) = (vec![1], "test".to_owned());
    let hello = Message::Hello { version: CONTROL_VERSION, proof, suites, software };
    let register = Message::Register { version: CONTROL_VERSION, name };
    assert!(say(&mut stream, &register).await && say(&mut stream, &hello).await);
    assert_eq!(receive(&mut stream).await, Some(Message::Registered));
    stream
}

#[test]
fn a_server_that_registers_again_ends_its_earlier_connection() {
    run(async {
        let introducer = introducer(false).await;
        let mut first = register(&introducer, [7; 16]).await;
        let mut other = register(&introducer, [8; 16]).await;
        let mut again = register(&introducer, [7; 16]).await;
        assert_eq!(receive(&mut first).await, None, "the first connection is closed");
        // The other ones stay.
        for stream in [&mut other, &mut again] {
            let wait = tokio::time::timeout(Duration::from_millis(200), receive(stream));
            assert!(wait.await.is_err(), "the connection is open");
        }
    });
}

#[test]
fn calls_for_unknown_names_borrow_no_memory() {
    run(async {
        let memory = MemoryBudget::new(Bytes(64 << 20)).unwrap();
        let config = local()
            .introducer(Some(IntroducerConfig::default().relay(true)))
            .memory(memory.clone());
        let introducer = Arc::new(Listener::bind(config).await.unwrap());
        let call = Message::Call { version: CONTROL_VERSION, name: [1; 16], carries_data: true };
        let mut calls = JoinSet::new();
        for _ in 0..80 {
            let (introducer, call) = (Arc::clone(&introducer), call.clone());
            // A caller that is rejected because of the many others calls no further.
            calls.spawn(async move {
                let tcp = TcpStream::connect(introducer.local_addr()).await.unwrap();
                let stream = tls::connect(tcp, introducer.ticket().fingerprint()).await;
                let Ok(mut stream) = stream else { return None };
                if say(&mut stream, &call).await { receive(&mut stream).await } else { None }
            });
        }
        let (mut lent, mut refused) = (0, 0);
        loop {
            tokio::select! {
                answer = calls.join_next() => match answer {
                    Some(answer) => refused += u32::from(answer.unwrap().is_some()),
                    None => break,
                },
                () = tokio::time::sleep(Duration::from_millis(10)) => {}
            }
            lent = lent.max(memory.lent());
        }
        assert_eq!(lent, 0, "bytes lent to callers");
        assert!(refused > 0, "calls reach the introducer");
    });
}

#[test]
fn only_the_right_introduce_lets_a_server_register() {
    run(async {
        let folder = tempfile::tempdir().unwrap();
        let tickets = NamedTickets::open(folder.path()).unwrap();
        let identity = ServerIdentity::generate().unwrap();
        let fingerprint = identity.fingerprint();
        let access = StandingAccess::new(identity).tickets(Some(tickets.clone()));
        let config = local().introducer(Some(IntroducerConfig::default())).standing(Some(access));
        let introducer = Listener::bind(config).await.unwrap();
        let address = introducer.local_addr().to_string();
        for (rights, part) in [("introduce", None), ("read,write", Some("right 'introduce'"))] {
            let ticket = Ticket::generate(vec![address.clone()], fingerprint).unwrap();
            let options = [("rights".to_owned(), rights.to_owned())];
            tickets.create(&rights.replace(',', "-"), ticket.secret(), &options, None).unwrap();
            let via = Via::by_ticket(&ticket, None).unwrap();
            let listener = Listener::bind(local().via(Some(via))).await.unwrap();
            let registered = listener.registered().await;
            match part {
                None => registered.unwrap(),
                Some(part) => {
                    let error = registered.unwrap_err();
                    assert!(matches!(error, Error::Authentication(_)), "{error}");
                    assert!(error.to_string().contains(part), "{error}");
                }
            }
        }
        // A ticket of nobody, and a server that introduces nobody.
        let unknown = Ticket::generate(vec![address], fingerprint).unwrap();
        let plain = Listener::bind(local()).await.unwrap();
        for (ticket, part) in [(&unknown, "secret is wrong"), (plain.ticket(), "is no introducer")]
        {
            let via = Via::by_ticket(ticket, None).unwrap();
            let listener = Listener::bind(local().via(Some(via))).await.unwrap();
            let error = listener.registered().await.unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
    });
}

#[test]
fn a_server_waits_for_its_name_while_another_ticket_has_registered_the_name() {
    run(async {
        let standing = Standing::new();
        let introducer = standing.start().await;
        let (addresses, fingerprint) =
            (standing.ticket.addresses().to_vec(), standing.ticket.fingerprint());
        let others = Ticket::generate(addresses, fingerprint).unwrap();
        standing.permit("other", &others);
        let via = Via::by_ticket(&standing.ticket, None).unwrap();
        let bound = Bound::new(local().via(Some(via))).unwrap();
        let name = bound.ticket().introduction().unwrap().name;
        let other = register_with(&introducer, &others, name).await;
        let listener = bound.listen().unwrap();
        let early = tokio::time::timeout(Duration::from_secs(1), listener.registered()).await;
        assert!(early.is_err(), "{early:?}");
        drop(other);
        let late = tokio::time::timeout(Duration::from_secs(10), listener.registered()).await;
        late.expect("the server tries again").unwrap();
    });
}

#[test]
fn a_server_sends_to_no_address_for_a_peer_without_its_ticket_or_introducer() {
    run(async {
        let introducer = introducer(false).await;
        let server = Server::at(introducer.ticket()).await;
        let victim = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let address = UdpAddress::from(victim.local_addr().unwrap());
        let punch = Message::Punch { channel: 7, addresses: vec![address; 8] };
        // Before the proof of the ticket the connection ends.
        let tcp = TcpStream::connect(server.listener.local_addr()).await.unwrap();
        let mut stream = tls::connect(tcp, server.ticket().fingerprint()).await.unwrap();
        assert!(say(&mut stream, &punch).await);
        assert_eq!(receive(&mut stream).await, None);
        // In a session that was dialled directly the message is a violation.
        let tcp = TcpStream::connect(server.listener.local_addr()).await.unwrap();
        let mut stream = tls::connect(tcp, server.ticket().fingerprint()).await.unwrap();
        let exporter = tls::proof_exporter(stream.get_ref().1).unwrap();
        let hello = Message::Hello {
            version: CONTROL_VERSION,
            proof: sabul::internal::ticket::proof(server.ticket().secret(), &exporter),
            suites: vec![1],
            software: "hostile".to_owned(),
        };
        assert!(say(&mut stream, &hello).await && say(&mut stream, &punch).await);
        assert!(matches!(receive(&mut stream).await, Some(Message::Welcome { .. })));
        expect_refusal(receive(&mut stream).await, "without an introducer");
        let mut datagram = [0; 2048];
        let received =
            tokio::time::timeout(Duration::from_millis(300), victim.recv_from(&mut datagram));
        assert!(received.await.is_err(), "a datagram arrived");
    });
}

#[test]
fn the_smallest_block_passes_a_relay_and_a_rate_limit_applies() {
    run(async {
        let introducer = introducer(true).await;
        let server = Server::at(introducer.ticket()).await;
        let config = ConnectConfig::default().relay(true);
        let session = sabul::connect(server.ticket(), config).await.unwrap();
        let (_folder, from) = file(1_000_000);
        let options = options()
            .carrier(Carrier::Tcp)
            .block_size(Bytes(4096))
            .rate_limit(Some(Rate(8_000_000)));
        let began = Instant::now();
        assert_eq!(put(&session, &from, &options).await.unwrap().bytes, 1_000_000);
        assert!(began.elapsed() > Duration::from_millis(700), "{:?}", began.elapsed());
    });
}
