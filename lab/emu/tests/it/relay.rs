//! The relay on loopback, with plain sockets at both ends.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::io::{ErrorKind, IoSliceMut, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use quinn_udp::{RecvMeta, Transmit, UdpSocketState};
use sabul_emu::{Relay, RelayConfig};
use sabul_net::{LinkConfig, LinkConfigBuilder, Outage};
use sabul_units::{Probability, Rate, Span};
use socket2::SockRef;

const LOOPBACK: &str = "127.0.0.1:0";
/// Longer than any test takes, so that a failing test ends too.
const TIMEOUT: Duration = Duration::from_secs(20);
/// Long enough for packets that still arrive through an idle path without delay.
const SILENCE: Duration = Duration::from_millis(200);

fn config(target: SocketAddr, link: LinkConfigBuilder) -> RelayConfig {
    let link = link.build().unwrap();
    let listen = LOOPBACK.parse().unwrap();
    let (forward, back) = (link.clone(), link);
    RelayConfig { listen, target, forward, back, seed: 1, udp_blocked: false }
}

fn relay(target: SocketAddr, link: LinkConfigBuilder) -> Relay {
    Relay::start(config(target, link)).unwrap()
}

fn delay(ms: u64) -> LinkConfigBuilder {
    LinkConfig::builder().with_delay(Span::from_millis(ms))
}

fn udp(timeout: Duration) -> UdpSocket {
    let socket = UdpSocket::bind(LOOPBACK).unwrap();
    socket.set_read_timeout(Some(timeout)).unwrap();
    socket
}

fn udp_to(relay: &Relay, timeout: Duration) -> UdpSocket {
    let socket = udp(timeout);
    socket.connect(relay.addr()).unwrap();
    socket
}

/// Echoes `count` datagrams.
fn udp_echo(count: usize) -> SocketAddr {
    let socket = udp(TIMEOUT);
    let address = socket.local_addr().unwrap();
    thread::spawn(move || {
        let mut buffer = [0; 2048];
        for _ in 0..count {
            let (len, from) = socket.recv_from(&mut buffer).unwrap();
            socket.send_to(&buffer[..len], from).unwrap();
        }
    });
    address
}

/// Accepts one connection and passes the connection to `serve`.
fn tcp_target(serve: impl FnOnce(TcpStream) + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind(LOOPBACK).unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        serve(stream);
    });
    address
}

fn tcp_echo(mut stream: TcpStream) {
    let mut buffer = [0; 16 * 1024];
    loop {
        match stream.read(&mut buffer).unwrap() {
            0 => break stream.shutdown(Shutdown::Write).unwrap(),
            len => stream.write_all(&buffer[..len]).unwrap(),
        }
    }
}

fn tcp_to(relay: &Relay) -> TcpStream {
    let stream = TcpStream::connect(relay.addr()).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    stream
}

fn pattern(len: usize) -> Vec<u8> {
    (0..=250u8).cycle().take(len).collect()
}

/// Sends the bytes and the end of the stream; returns everything received until EOF.
fn exchange(mut stream: TcpStream, bytes: &[u8]) -> Vec<u8> {
    let mut writer = stream.try_clone().unwrap();
    thread::scope(|scope| {
        scope.spawn(move || {
            writer.write_all(bytes).unwrap();
            writer.shutdown(Shutdown::Write).unwrap();
        });
        let mut got = Vec::new();
        stream.read_to_end(&mut got).unwrap();
        got
    })
}

#[test]
fn a_datagram_arrives_soon_after_the_delay_of_the_path() {
    let relay = relay(udp_echo(40), delay(10));
    let client = udp_to(&relay, TIMEOUT);
    let mut best = Duration::MAX;
    for n in 0..40u8 {
        let start = Instant::now();
        client.send(&[n]).unwrap();
        let mut buffer = [0; 10];
        assert_eq!((client.recv(&mut buffer).unwrap(), buffer[0]), (1, n));
        let took = start.elapsed();
        assert!(took >= Duration::from_micros(19_990), "{took:?} is faster than the path");
        best = best.min(took);
    }
    assert!(best < Duration::from_millis(22), "{best:?} at best for a path of 20 ms");
}

#[test]
fn each_client_gets_its_own_answers() {
    let relay = relay(udp_echo(30), delay(1));
    let clients: Vec<_> = (0..10).map(|_| udp_to(&relay, TIMEOUT)).collect();
    for round in 0..3u8 {
        for (n, client) in (0u8..).zip(&clients) {
            client.send(&[round, n]).unwrap();
        }
        for (n, client) in (0u8..).zip(&clients) {
            let mut buffer = [0; 10];
            assert_eq!(client.recv(&mut buffer).unwrap(), 2);
            assert_eq!(buffer[..2], [round, n]);
        }
    }
}

/// Goal: the rate is the link's within 2 %. Method: fill a long queue five times as fast as it
/// drains and in few calls, so that a starved sender does not matter. Times are the kernel's
/// receive times, so that a starved receiver does not matter either.
#[test]
fn the_rate_of_the_link_holds() {
    const PAYLOAD: usize = 1472;
    const BATCH: u32 = 40;
    // Packets of 1500 bytes at 200 Mb/s: 60 µs each, 1.02 s in all.
    const PACKETS: u32 = 17_000;
    let target = UdpSocket::bind(LOOPBACK).unwrap();
    SockRef::from(&target).set_recv_buffer_size(4 << 20).unwrap();
    let link = delay(5).with_rate(Some(Rate::from_mbps(200)));
    let relay = relay(target.local_addr().unwrap(), link);
    let (client, destination) = (udp(TIMEOUT), relay.addr());

    let sender = thread::spawn(move || {
        let state = UdpSocketState::new((&client).into()).unwrap();
        let contents = &[0; PAYLOAD * BATCH as usize];
        let segment_size = Some(PAYLOAD);
        let batch = Transmit { destination, ecn: None, contents, segment_size, src_ip: None };
        let start = Instant::now();
        for n in 0..PACKETS / BATCH {
            state.try_send((&client).into(), &batch).unwrap();
            let due = start + (n + 1) * BATCH * Duration::from_micros(12);
            thread::sleep(due.saturating_duration_since(Instant::now()));
        }
    });
    let times = receive_times(&target, PAYLOAD, PACKETS as usize);
    sender.join().unwrap();

    let took = *times.last().unwrap() - times[0];
    let mbps = (times.len() - 1) as f64 * 1500.0 * 8.0 / took.as_secs_f64() / 1e6;
    let stats = relay.stats();
    assert_eq!(times.len(), PACKETS as usize, "{stats:?}");
    assert!((196.0..204.0).contains(&mbps), "{mbps:.1} Mbit/s: {stats:?}");
}

/// Returns the kernel's receive time of each of `count` datagrams, or of those that arrived in
/// time.
fn receive_times(socket: &UdpSocket, size: usize, count: usize) -> Vec<Duration> {
    let state = UdpSocketState::new(socket.into()).unwrap();
    let (start, mut buffer, mut times) = (Instant::now(), vec![0; 1 << 16], Vec::new());
    while times.len() < count && start.elapsed() < TIMEOUT {
        let mut meta = [RecvMeta::default()];
        match state.recv(socket.into(), &mut [IoSliceMut::new(&mut buffer)], &mut meta) {
            Ok(_) => times.extend((0..meta[0].len / size).map(|_| meta[0].timestamp.unwrap())),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                thread::sleep(Duration::from_micros(200));
            }
            Err(error) => panic!("{error}"),
        }
    }
    times
}

#[test]
fn packets_over_the_mtu_of_the_path_vanish() {
    // 1280 less 28 bytes of headers.
    let target = udp(SILENCE);
    let relay = relay(target.local_addr().unwrap(), LinkConfig::builder().with_mtu(Some(1280)));
    let client = udp_to(&relay, TIMEOUT);
    client.send(&[1; 1253]).unwrap();
    client.send(&[2; 1252]).unwrap();
    let mut buffer = [0; 2048];
    assert_eq!((target.recv(&mut buffer).unwrap(), buffer[0]), (1252, 2));
    assert!(target.recv(&mut buffer).is_err());
}

#[test]
fn corruption_changes_bytes_and_duplicates_arrive_twice() {
    let target = udp(SILENCE);
    let link =
        LinkConfig::builder().with_corrupt(Probability::ONE).with_duplicate(Probability::ONE);
    let relay = relay(target.local_addr().unwrap(), link);
    let client = udp_to(&relay, TIMEOUT);
    client.send(&[0; 100]).unwrap();
    for _ in 0..2 {
        let mut buffer = [0; 2048];
        assert_eq!(target.recv(&mut buffer).unwrap(), 100);
        let wrong = buffer.iter().filter(|&&byte| byte != 0).count();
        assert!((1..=4).contains(&wrong), "{wrong} bytes changed");
    }
    assert!(target.recv(&mut [0; 2048]).is_err());
}

#[test]
fn empty_datagrams_are_relayed_in_order_with_nonempty_ones() {
    let target = udp(TIMEOUT);
    let relay = relay(target.local_addr().unwrap(), delay(1));
    let client = udp_to(&relay, TIMEOUT);
    for len in [5, 0, 5, 3] {
        client.send(&pattern(len)).unwrap();
    }
    let mut buffer = [0; 10];
    let lens = [(); 4].map(|()| target.recv(&mut buffer).unwrap());
    assert_eq!(lens, [5, 0, 5, 3]);
}

#[test]
fn blocked_udp_leaves_tcp_alone() {
    let target = tcp_target(tcp_echo);
    let listener = UdpSocket::bind(target).unwrap();
    listener.set_read_timeout(Some(SILENCE)).unwrap();
    let mut config = config(target, delay(1));
    config.udp_blocked = true;
    let relay = Relay::start(config).unwrap();
    udp_to(&relay, TIMEOUT).send(b"anybody there").unwrap();
    assert_eq!(exchange(tcp_to(&relay), b"hello"), b"hello");
    assert_eq!(listener.recv(&mut [0; 100]).unwrap_err().kind(), ErrorKind::WouldBlock);
    assert_eq!(relay.stats().udp_blocked, 1);
}

#[test]
fn the_first_reply_over_tcp_takes_two_round_trips() {
    let measure = |_| {
        let relay = relay(tcp_target(tcp_echo), delay(10));
        let start = Instant::now();
        assert_eq!(exchange(tcp_to(&relay), b"hello"), b"hello");
        start.elapsed()
    };
    let best = (0..5).map(measure).min().unwrap();
    assert!(best >= Duration::from_millis(40), "{best:?} is faster than the path");
    assert!(best < Duration::from_millis(50), "{best:?} at best");
}

#[test]
fn a_listener_may_send_first_and_close_first() {
    let (tell, told) = std::sync::mpsc::channel();
    let relay = relay(
        tcp_target(move |mut stream| {
            stream.write_all(b"welcome").unwrap();
            stream.shutdown(Shutdown::Write).unwrap();
            let mut rest = Vec::new();
            stream.read_to_end(&mut rest).unwrap();
            tell.send(rest).unwrap();
        }),
        delay(2),
    );
    let mut stream = tcp_to(&relay);
    let mut got = Vec::new();
    stream.read_to_end(&mut got).unwrap();
    assert_eq!(got, b"welcome");
    stream.write_all(b"thanks").unwrap();
    drop(stream);
    assert_eq!(told.recv_timeout(TIMEOUT).unwrap(), b"thanks");
}

#[test]
fn an_outage_stops_tcp_until_it_ends() {
    let outage = Outage { at: sabul_units::Instant::ZERO, lasts: Span::from_millis(300) };
    let relay = relay(tcp_target(tcp_echo), delay(5).with_outages(vec![outage]));
    let start = Instant::now();
    assert_eq!(exchange(tcp_to(&relay), b"hello"), b"hello");
    let took = start.elapsed();
    assert!(took >= Duration::from_millis(300), "{took:?}");
}

#[test]
fn a_reset_crosses_the_path() {
    let relay = relay(
        tcp_target(|stream| {
            SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
        }),
        delay(2),
    );
    let mut stream = tcp_to(&relay);
    assert_eq!(stream.read(&mut [0; 10]).unwrap_err().kind(), ErrorKind::ConnectionReset);
}

#[test]
fn a_connectors_reset_reaches_the_listener() {
    let (tell, told) = std::sync::mpsc::channel();
    let relay = relay(
        tcp_target(move |mut stream| {
            stream.read_exact(&mut [0; 5]).unwrap();
            tell.send(stream.read(&mut [0; 10]).map_err(|error| error.kind())).unwrap();
        }),
        delay(2),
    );
    let mut stream = tcp_to(&relay);
    stream.write_all(b"hello").unwrap();
    thread::sleep(Duration::from_millis(50));
    SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
    drop(stream);
    assert_eq!(told.recv_timeout(TIMEOUT).unwrap(), Err(ErrorKind::ConnectionReset));
}

#[test]
fn a_target_that_does_not_listen_resets_the_connection() {
    let unused = TcpListener::bind(LOOPBACK).unwrap().local_addr().unwrap();
    let relay = relay(unused, delay(2));
    let mut stream = tcp_to(&relay);
    assert_eq!(stream.read(&mut [0; 10]).unwrap_err().kind(), ErrorKind::ConnectionReset);
}

#[test]
fn a_listener_that_does_not_read_blocks_the_connector() {
    let (hold, held) = std::sync::mpsc::channel::<()>();
    let relay = relay(
        tcp_target(move |stream| {
            // Until the end of the test.
            let _ = held.recv_timeout(TIMEOUT);
            drop(stream);
        }),
        delay(1),
    );
    let mut stream = tcp_to(&relay);
    stream.set_write_timeout(Some(Duration::from_millis(500))).unwrap();
    // The window is 8 MiB at most; the rest fits into four socket buffers of the kernel.
    let chunk = vec![0; 1 << 20];
    let mut written = 0;
    let stopped = loop {
        match stream.write(&chunk) {
            Ok(len) => written += len,
            Err(error) => break error.kind(),
        }
        assert!(written < 64 << 20, "nothing holds the connector back");
    };
    assert_eq!(stopped, ErrorKind::WouldBlock);
    drop(hold);
}

#[test]
fn dropping_a_relay_frees_its_ports_and_its_connections() {
    let relay = relay(tcp_target(tcp_echo), delay(1));
    let address = relay.addr();
    let mut stream = tcp_to(&relay);
    stream.write_all(b"x").unwrap();
    stream.read_exact(&mut [0]).unwrap();
    drop(relay);
    assert!(!matches!(stream.read(&mut [0]), Ok(1)), "the connection is gone");
    UdpSocket::bind(address).unwrap();
    assert!(TcpStream::connect(address).is_err());
}

#[test]
fn an_address_in_use_is_named_in_the_error() {
    let taken = TcpListener::bind(LOOPBACK).unwrap();
    let address = taken.local_addr().unwrap();
    let mut config = config(address, delay(1));
    config.listen = address;
    let error = Relay::start(config).unwrap_err().to_string();
    assert!(error.contains(&address.to_string()), "{error}");
}

#[test]
fn an_idle_relay_uses_no_processor_time() {
    let relay = relay(udp_echo(1), delay(1));
    let client = udp_to(&relay, TIMEOUT);
    client.send(b"x").unwrap();
    client.recv(&mut [0]).unwrap();
    thread::sleep(Duration::from_millis(50));
    let before = relay.stats().cpu_seconds;
    thread::sleep(Duration::from_millis(300));
    client.send(b"x").unwrap();
    thread::sleep(Duration::from_millis(50));
    let used = relay.stats().cpu_seconds - before;
    assert!(used > 0.0 && used < 0.01, "{used} s");
}
