//! Many connections without a ticket, and an honest connector that must still be admitted.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::future::Future;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use sabul::settings::{Direction, MeasureLimit};
use sabul::{
    Bytes, ConnectConfig, Listener, ListenerConfig, Service, Session, Ticket, TransferOptions,
    connect,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream, UdpSocket};

/// Longer than any step takes, so that a failure ends too.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Longest wait of an honest connector. Without load it waits for milliseconds; a busy machine is slower. A listener
/// that let strangers fill all slots took 10 s and more.
const PROMPT: Duration = Duration::from_secs(5);

fn run<T>(test: impl Future<Output = T>) -> T {
    crate::common::within(TIMEOUT, test)
}

/// A listener that serves measurements.
async fn listening() -> (Ticket, SocketAddr) {
    let listener = Listener::bind(ListenerConfig::new("127.0.0.1:0".parse().unwrap()));
    let listener = listener.await.unwrap();
    let (ticket, address) = (listener.ticket().clone(), listener.local_addr());
    tokio::spawn(async move {
        while let Ok(session) = listener.accept().await {
            let service = Service::default().measure(true);
            tokio::spawn(async move { session.serve(&service).await });
        }
    });
    (ticket, address)
}

/// Connects from another address of this machine.
async fn call_from(source: &str, to: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::new(source.parse().unwrap(), 0)).unwrap();
    socket.connect(to).await.unwrap()
}

/// Connects and transfers a little data, which requires admission by the listener.
async fn work(ticket: &Ticket) -> Session {
    let session = connect(ticket, ConnectConfig::default()).await.unwrap();
    measure(&session).await;
    session
}

async fn measure(session: &Session) {
    let limit = MeasureLimit::default().bytes(Bytes(1000));
    let options = TransferOptions::default();
    let transfer = session.measure(Direction::Send, limit, &options).await.unwrap();
    assert_eq!(transfer.finish().await.unwrap().bytes, 1000);
}

#[test]
fn hundreds_of_silent_connections_do_not_delay_a_client() {
    run(async {
        let (ticket, address) = listening().await;
        let mut silent = Vec::new();
        for _ in 0..300 {
            silent.push(call_from("127.0.0.2", address).await);
        }
        let begun = Instant::now();
        work(&ticket).await.close().await;
        assert!(begun.elapsed() < PROMPT, "{:?}", begun.elapsed());
    });
}

#[test]
fn one_address_has_few_connections_that_are_not_authenticated() {
    /// Limit of the listener for one address.
    const PER_SOURCE: usize = 8;
    run(async {
        let (_ticket, address) = listening().await;
        let mut silent = Vec::new();
        for _ in 0..100 {
            silent.push(call_from("127.0.0.9", address).await);
        }
        // Each connection beyond the limit receives the busy message.
        let begun = Instant::now();
        while silent.len() > PER_SOURCE {
            assert!(begun.elapsed() < PROMPT, "{} connections are open", silent.len());
            tokio::time::sleep(Duration::from_millis(20)).await;
            silent.retain(|it| it.try_read(&mut [0]).is_err());
        }
    });
}

#[test]
fn a_stream_of_silent_connections_does_not_delay_a_client() {
    run(async {
        let (ticket, address) = listening().await;
        let flood = tokio::spawn(async move {
            let mut silent = std::collections::VecDeque::new();
            loop {
                silent.push_back(call_from("127.0.0.2", address).await);
                if silent.len() > 300 {
                    silent.pop_front();
                }
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        });
        tokio::time::sleep(Duration::from_millis(500)).await;
        for _ in 0..5 {
            let begun = Instant::now();
            work(&ticket).await.close().await;
            assert!(begun.elapsed() < PROMPT, "{:?}", begun.elapsed());
        }
        flood.abort();
    });
}

#[test]
fn many_clients_from_one_address_get_in_gradually() {
    run(async {
        let (ticket, _) = listening().await;
        let callers = (0..64).map(|_| {
            let ticket = ticket.clone();
            tokio::spawn(async move { work(&ticket).await.close().await })
        });
        for caller in callers.collect::<Vec<_>>() {
            caller.await.unwrap();
        }
    });
}

#[test]
fn a_connection_with_a_wrong_secret_occupies_no_slot() {
    run(async {
        let (ticket, _) = listening().await;
        let forged = Ticket::generate(ticket.addresses().to_vec(), ticket.fingerprint()).unwrap();
        let mut strangers = Vec::new();
        let begun = Instant::now();
        // Each would hold its slot for a second or more.
        for _ in 0..64 {
            strangers.push(connect(&forged, ConnectConfig::default()).await.unwrap());
        }
        work(&ticket).await.close().await;
        assert!(begun.elapsed() < PROMPT, "{:?}", begun.elapsed());
    });
}

#[test]
fn a_client_without_a_proof_is_disconnected_soon() {
    run(async {
        let (ticket, address) = listening().await;
        for length in [1025_u32, 1 << 20, u32::MAX] {
            let stream = TcpStream::connect(address).await.unwrap();
            let mut stream =
                sabul::internal::tls::connect(stream, ticket.fingerprint()).await.unwrap();
            stream.write_all(&length.to_be_bytes()).await.unwrap();
            stream.flush().await.unwrap();
            let mut answer = Vec::new();
            // A close or a reset, without waiting for the announced bytes.
            let ended = tokio::time::timeout(PROMPT, stream.read_to_end(&mut answer)).await;
            assert!(ended.is_ok(), "{length} bytes are awaited");
            assert!(answer.is_empty());
        }
    });
}

#[test]
fn a_silent_port_is_not_reported_as_another_program() {
    run(async {
        let (ticket, _) = listening().await;
        let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = silent.local_addr().unwrap().to_string();
        let timeout = Duration::from_millis(300);
        let config = ConnectConfig::default().timeout(timeout);
        let error = sabul::internal::connect_to(&address, &ticket, config).await.unwrap_err();
        assert!(matches!(error, sabul::Error::Unreachable { .. }), "{error:?}");
        assert!(
            error.to_string().contains("took the connection and then gave no answer"),
            "{error}"
        );
    });
}

/// Answer of a listener that is busy: a fatal TLS alert.
const BUSY: [u8; 7] = [21, 3, 3, 0, 2, 2, 80];

#[test]
fn a_caller_that_is_evicted_in_the_middle_of_its_first_message_learns_why() {
    run(async {
        let (_, address) = listening().await;
        let mut callers = Vec::new();
        for _ in 0..8 {
            let mut caller = call_from("127.0.0.2", address).await;
            // The first bytes of a ClientHello of 1000 bytes.
            caller.write_all(&[22, 3, 1, 3, 232, 1, 0]).await.unwrap();
            callers.push(caller);
        }
        let mut answer = Vec::new();
        let mut first = callers.remove(0);
        // Each further connection from there evicts one of the eight.
        let evicting = async {
            loop {
                tokio::time::sleep(Duration::from_millis(100)).await;
                callers.push(call_from("127.0.0.2", address).await);
            }
        };
        tokio::select! {
            () = evicting => {}
            read = first.read_to_end(&mut answer) => drop(read.unwrap()),
        }
        assert_eq!(answer, BUSY);
    });
}

/// Ways in which the gate of [`behind_a_gate`] treats one connection.
#[derive(Clone, Copy)]
enum Treatment {
    /// Sends the busy message and closes while the ClientHello is unread.
    Busy,
    /// Closes when the connector has sent its ClientHello.
    Close,
    /// Forwards the listener's part of the handshake, and closes at the connector's next bytes.
    CloseAfterCertificate,
}

/// Forwards datagrams between a listener and the connector that sent the last one.
async fn forward_datagrams(near: UdpSocket, listener: SocketAddr) {
    let far = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    far.connect(listener).await.unwrap();
    let (mut there, mut back, mut connector) = (vec![0; 1 << 16], vec![0; 1 << 16], listener);
    loop {
        tokio::select! {
            got = near.recv_from(&mut there) => {
                let (length, from) = got.unwrap();
                connector = from;
                far.send(&there[..length]).await.unwrap();
            }
            got = far.recv(&mut back) => {
                near.send_to(&back[..got.unwrap()], connector).await.unwrap();
            }
        }
    }
}

/// Starts a gate before a listener. The gate treats the first connections as listed and forwards all later ones.
async fn behind_a_gate(listener: SocketAddr, treatments: &'static [Treatment]) -> String {
    let gate = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = gate.local_addr().unwrap().to_string();
    tokio::spawn(forward_datagrams(UdpSocket::bind(&address).await.unwrap(), listener));
    tokio::spawn(async move {
        let mut treatments = treatments.iter();
        loop {
            let (mut near, _) = gate.accept().await.unwrap();
            let mut far = TcpStream::connect(listener).await.unwrap();
            let mut bytes = [0; 1 << 14];
            match treatments.next() {
                Some(Treatment::Busy) => {
                    near.readable().await.unwrap();
                    near.write_all(&BUSY).await.unwrap();
                }
                Some(Treatment::Close) => drop(near.read(&mut bytes).await.unwrap()),
                Some(Treatment::CloseAfterCertificate) => {
                    let length = near.read(&mut bytes).await.unwrap();
                    far.write_all(&bytes[..length]).await.unwrap();
                    let length = far.read(&mut bytes).await.unwrap();
                    near.write_all(&bytes[..length]).await.unwrap();
                    near.readable().await.unwrap();
                }
                None => {
                    tokio::spawn(async move {
                        tokio::io::copy_bidirectional(&mut near, &mut far).await
                    });
                }
            }
        }
    });
    address
}

#[test]
fn a_connector_that_is_rejected_at_any_point_of_the_handshake_dials_again() {
    use Treatment::{Busy, Close, CloseAfterCertificate};
    run(async {
        let (ticket, listener) = listening().await;
        for treatments in [
            &[Busy, Busy][..],
            &[Close, Close, Close, Close],
            &[Busy, CloseAfterCertificate, Close, CloseAfterCertificate],
            &[Close, CloseAfterCertificate],
        ] {
            let gate = behind_a_gate(listener, treatments).await;
            let session =
                sabul::internal::connect_to(&gate, &ticket, ConnectConfig::default()).await;
            measure(&session.unwrap()).await;
        }
    });
}

#[test]
fn a_program_that_closes_every_connection_is_not_dialled_for_long() {
    run(async {
        let (ticket, _) = listening().await;
        let other = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = other.local_addr().unwrap().to_string();
        tokio::spawn(async move { while other.accept().await.is_ok() {} });
        let begun = Instant::now();
        let error = sabul::internal::connect_to(&address, &ticket, ConnectConfig::default()).await;
        let error = error.unwrap_err();
        assert!(matches!(error, sabul::Error::NotSabul { .. }), "{error:?}");
        assert!(begun.elapsed() < PROMPT, "{:?}", begun.elapsed());
    });
}
