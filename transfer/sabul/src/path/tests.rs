//! Tests of the opening of paths, over loopback.

use sabul_units::SeqNo;
use sabul_wire::{DataHeader, HEADER_LEN, TAG_LEN};

use super::*;
use crate::channel::driver::Datagrams;

const SUITE: Suite = Suite::ChaCha20Poly1305;
const BUFFER: usize = 1 << 20;

fn secrets() -> ChannelSecrets {
    ChannelSecrets { connection_id: 7, to_listener: [1; 32], to_connector: [2; 32] }
}

fn demux() -> (Demux, SocketAddr) {
    let demux = DemuxPort::bind("127.0.0.1:0".parse().unwrap(), &SocketOptions::default())
        .unwrap()
        .start()
        .unwrap();
    let address = demux.shared.socket.local_addr();
    (demux, address)
}

/// A connector with these secrets that tries for at most three seconds.
fn connecting(
    peer: SocketAddr,
    secrets: ChannelSecrets,
) -> (thread::JoinHandle<Option<OpenPath>>, Arc<Attempt>) {
    let stop = Arc::<Attempt>::default();
    let (flag, late) = (Arc::clone(&stop), Arc::clone(&stop));
    thread::spawn(move || {
        thread::sleep(Duration::from_secs(3));
        late.end();
    });
    let run =
        move || connect(peer, None, &SocketOptions::default(), &secrets, SUITE, &flag).unwrap();
    (thread::spawn(run), stop)
}

fn wait(expectation: &mut Expectation) -> Option<OpenPath> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let timeout = Duration::from_secs(3);
    runtime
        .block_on(async { tokio::time::timeout(timeout, expectation.wait()).await })
        .ok()
        .map(|path| path.unwrap())
}

#[test]
fn a_hello_from_the_known_address_is_answered_at_once() {
    let (demux, address) = demux();
    let mut expected =
        demux.expect(&secrets(), SUITE, "127.0.0.1".parse().unwrap(), BUFFER).unwrap();
    let (connector, _stop) = connecting(address, secrets());
    let far = wait(&mut expected).unwrap();
    let near = connector.join().unwrap().unwrap();
    assert_eq!(near.socket.local_addr().port(), far.socket.peer_addr().unwrap().port());
    assert_eq!(far.socket.local_addr(), address);
    assert_eq!((far.next_number, near.largest_opened), (PacketNumber(1), Some(PacketNumber(0))));
    assert!(near.rtt.is_some());
}

#[test]
fn a_hello_from_another_address_must_echo_a_challenge() {
    let (demux, address) = demux();
    let mut expected =
        demux.expect(&secrets(), SUITE, "192.0.2.1".parse().unwrap(), BUFFER).unwrap();
    let (connector, _stop) = connecting(address, secrets());
    let far = wait(&mut expected).unwrap();
    let near = connector.join().unwrap().unwrap();
    // One answer with the challenge, and one that accepts its echo.
    assert_eq!((far.next_number, near.largest_opened), (PacketNumber(2), Some(PacketNumber(1))));
    assert!(near.next_number >= PacketNumber(2));
}

/// A listener that a test plays: receives the first hello, then sends `datagrams`. Returns the path of the connector.
fn answered_with(datagrams: impl FnOnce(&mut Sealer) -> Vec<Vec<u8>>) -> OpenPath {
    let any = "127.0.0.1:0".parse().unwrap();
    let listener = UdpSocket::bind(any, &SocketOptions::default()).unwrap();
    let (connector, _stop) = connecting(listener.local_addr(), secrets());
    let mut buffers = RecvBuffers::new(1);
    while listener.recv(&mut buffers).unwrap() == 0 {
        listener.wait(Wait::READABLE, Some(Duration::from_secs(3))).unwrap();
    }
    let to = buffers.datagrams().next().unwrap().source;
    for datagram in datagrams(&mut Sealer::new(SUITE, secrets().to_connector)) {
        let sent = listener.send(&datagram, datagram.len(), Some(to), Ecn::NotEct);
        assert_eq!(sent.unwrap().bytes, datagram.len());
    }
    connector.join().unwrap().unwrap()
}

fn data(sealer: &mut Sealer, number: PacketNumber) -> Vec<u8> {
    let header = DataHeader::new(ConnectionId(7), number, SeqNo(number.0), 0, 0).encode();
    let mut datagram = [&header[..], &[0; 100 + TAG_LEN]].concat();
    sealer.seal(number, &header, &[1; 100], &mut datagram[header.len()..]).unwrap();
    datagram
}

#[test]
fn data_opens_the_path_and_is_kept_if_the_hello_ack_is_lost() {
    let mut sent = Vec::new();
    let path = answered_with(|sealer| {
        let forged = data(&mut Sealer::new(SUITE, [9; 32]), PacketNumber(1));
        sent = vec![forged, data(sealer, PacketNumber(1))];
        sent.clone()
    });
    assert_eq!((path.early, path.largest_opened, path.rtt), (sent[1..].to_vec(), None, None));
}

#[test]
fn packets_before_a_late_hello_ack_are_not_taken_for_the_handshake() {
    for (numbers, largest) in [(&[0, 1][..], Some(PacketNumber(1))), (&[5], None), (&[1], None)] {
        let path = answered_with(|sealer| {
            let last = numbers.len() - 1;
            let ack = |(index, number): (usize, &u64)| {
                // Any but the last requires an echo.
                let mut body = [0; BODY_BYTES];
                body[0] = u8::from(index < last);
                let number = PacketNumber(*number);
                seal(sealer, Kind::HelloAck, ConnectionId(7), number, &body).unwrap()
            };
            numbers.iter().enumerate().map(ack).collect()
        });
        assert_eq!((path.largest_opened, path.early), (largest, Vec::new()), "{numbers:?}");
    }
}

#[test]
fn a_hello_that_overtakes_its_request_is_kept() {
    let (demux, address) = demux();
    let (connector, _stop) = connecting(address, secrets());
    while demux.shared.unknown.load(Ordering::Relaxed) == 0 {
        thread::sleep(Duration::from_millis(1));
    }
    let mut expected =
        demux.expect(&secrets(), SUITE, "127.0.0.1".parse().unwrap(), BUFFER).unwrap();
    assert!(wait(&mut expected).is_some());
    assert!(connector.join().unwrap().is_some());
    assert!(demux.shared.lock().expected.is_empty());
}

#[test]
fn a_forged_hello_gets_no_answer_and_changes_nothing() {
    let (demux, address) = demux();
    let mut expected =
        demux.expect(&secrets(), SUITE, "127.0.0.1".parse().unwrap(), BUFFER).unwrap();
    let forged = ChannelSecrets { connection_id: 7, to_listener: [9; 32], to_connector: [9; 32] };
    let (forger, stop) = connecting(address, forged);
    while demux.shared.lock().expected[&7].opener.forged() == 0 {
        thread::sleep(Duration::from_millis(1));
    }
    stop.end();
    assert!(forger.join().unwrap().is_none());
    let (connector, _stop) = connecting(address, secrets());
    assert!(wait(&mut expected).is_some());
    assert!(connector.join().unwrap().is_some());
}

#[test]
fn a_listener_sends_few_acks_to_a_named_address_and_none_for_unknown_channels() {
    let (demux, address) = demux();
    let unknown = "192.0.2.1".parse().unwrap();
    let _expected = demux.expect(&secrets(), SUITE, unknown, BUFFER).unwrap();
    let target = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    target.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    let to = target.local_addr().unwrap();
    let received = || {
        let mut datagram = [0; 2048];
        let lengths = std::iter::from_fn(|| target.recv(&mut datagram).ok());
        lengths.collect::<Vec<_>>()
    };
    demux.punch(7, &[to]);
    assert_eq!(received(), Vec::<usize>::new(), "this machine is no peer of a distant introducer");
    let secrets = Arc::new(crate::tls::JoinSecrets { id: 1, key: [0; 32] });
    demux.search_outside(vec![outside::Search::new(secrets, address, [0; 8])]);
    demux.punch(8, &[to]);
    assert_eq!(received(), Vec::<usize>::new(), "unknown channel");
    for _ in 0..100 {
        demux.punch(7, &[to; 8]);
    }
    let lengths = received();
    assert_eq!(lengths.len(), 32);
    assert!(lengths.iter().all(|length| *length < 60), "{lengths:?}");
}

#[test]
fn an_ack_that_arrives_first_opens_the_path_from_its_own_source() {
    // The listener is behind a symmetric NAT: the connector knows a wrong address, and the ack comes from the right one.
    let (demux, address) = demux();
    let mut expected =
        demux.expect(&secrets(), SUITE, "192.0.2.1".parse().unwrap(), BUFFER).unwrap();
    let wrong = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let introducer = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let introducer_address = introducer.local_addr().unwrap();
    let reflector = Arc::<outside::Reflector>::default();
    let join = || crate::tls::JoinSecrets { id: 1, key: [3; 32] };
    let permission = reflector.permit(join());
    let answering = thread::spawn(move || {
        let mut datagram = [0; 2048];
        let (length, from) = introducer.recv_from(&mut datagram).unwrap();
        let answer = reflector.answer(&datagram[..length], from, 0, Instant::now()).unwrap();
        introducer.send_to(&answer, from).unwrap();
        drop(permission);
    });
    let peer =
        outside::Outside { addresses: vec![wrong.local_addr().unwrap()], is_symmetric: Some(true) };
    demux.search_outside(vec![outside::Search::new(Arc::new(join()), introducer_address, [0; 8])]);
    let demux = Arc::new(demux);
    let punching = Arc::clone(&demux);
    let meeting = Meeting {
        introducer: introducer_address,
        secrets: Arc::new(join()),
        peer: tokio::sync::watch::Sender::new(Some(peer)).subscribe(),
        own: tokio::sync::watch::Sender::new(None),
        punch: Box::new(move |channel, addresses| {
            let addresses: Vec<_> = addresses.into_iter().map(SocketAddr::from).collect();
            punching.punch(channel, &addresses);
        }),
    };
    let attempt = Attempt::default();
    let options = SocketOptions::default();
    let near = connect_through_nats(&meeting, None, &options, &secrets(), SUITE, &attempt).unwrap();
    let near = near.unwrap();
    assert_eq!(near.socket.peer_addr(), Some(address));
    assert!(wait(&mut expected).is_some());
    answering.join().unwrap();
}

/// A hello from this host for this unknown channel.
fn unexpected(demux: &Demux, host: u32, channel: u64) {
    let secrets = ChannelSecrets { connection_id: channel, ..secrets() };
    let mut sealer = Sealer::new(SUITE, secrets.to_listener);
    let body = [0; HELLO_BYTES - HEADER_LEN - TAG_LEN];
    let connection = ConnectionId(channel);
    let hello = seal(&mut sealer, Kind::Hello, connection, PacketNumber(0), &body).unwrap();
    let source = SocketAddr::new(std::net::Ipv4Addr::from_bits(host).into(), 1);
    demux.shared.take(Datagram { payload: &hello, source, local_ip: None });
}

#[test]
fn unexpected_hellos_use_bounded_memory_with_a_limit_per_host() {
    let (demux, _) = demux();
    unexpected(&demux, 1, 7);
    for channel in 0..1000 {
        unexpected(&demux, 2, channel + 100);
    }
    let channels = || {
        let state = demux.shared.lock();
        let headers = state.early.0.iter().map(|early| Header::decode(&early.payload));
        headers.map(|header| header.unwrap().connection.0).collect::<Vec<_>>()
    };
    assert_eq!(channels(), [7, 1096, 1097, 1098, 1099]);
    for host in 0..1000 {
        unexpected(&demux, 1000 + host, 5000);
    }
    assert_eq!(channels().len(), EARLY_MAX);
    let _expected = demux.expect(
        &ChannelSecrets { connection_id: 5000, ..secrets() },
        SUITE,
        [127, 0, 0, 1].into(),
        BUFFER,
    );
    assert!(channels().is_empty(), "looked at once and not kept");
}

#[test]
fn datagrams_that_are_not_hellos_are_dropped() {
    let (demux, _) = demux();
    let source = "192.0.2.1:1".parse().unwrap();
    let mut hello = vec![0; HELLO_BYTES];
    let header = Header::new(Kind::Data, ConnectionId(7), PacketNumber(0)).encode();
    hello[..HEADER_LEN].copy_from_slice(&header);
    for payload in [&hello[..], &[0xFF; HELLO_BYTES], &[], &hello[..HELLO_BYTES - 1]] {
        demux.shared.take(Datagram { payload, source, local_ip: None });
    }
    assert_eq!(demux.shared.unknown.load(Ordering::Relaxed), 4);
    assert!(demux.shared.lock().early.0.is_empty());
}

#[test]
fn a_link_local_address_keeps_its_scope() {
    let address = |text: &str| text.parse::<SocketAddr>().unwrap();
    let local = |arrived: &str, from| {
        local_address(address("[::]:4850"), Some(arrived.parse().unwrap()), address(from))
    };
    assert_eq!(local("fe80::1", "[fe80::2%3]:9"), address("[fe80::1%3]:4850"));
    assert_eq!(local("2001:db8::1", "[2001:db8::2]:9"), address("[2001:db8::1]:4850"));
    assert_eq!(local("192.0.2.1", "192.0.2.2:9"), address("192.0.2.1:4850"));
}

#[test]
fn a_dropped_expectation_leaves_no_state() {
    let (demux, _) = demux();
    drop(demux.expect(&secrets(), SUITE, "127.0.0.1".parse().unwrap(), BUFFER).unwrap());
    assert!(demux.shared.lock().expected.is_empty());
}

#[test]
fn datagrams_of_an_open_channel_from_another_address_reach_it_within_bounds() {
    let (demux, address) = demux();
    let mut expected =
        demux.expect(&secrets(), SUITE, "127.0.0.1".parse().unwrap(), BUFFER).unwrap();
    let (connector, _stop) = connecting(address, secrets());
    let far = wait(&mut expected).unwrap();
    let near = connector.join().unwrap().unwrap();
    let source: SocketAddr = "127.0.0.9:7".parse().unwrap();
    let datagram = |channel, length| {
        let header = Header::new(Kind::Data, ConnectionId(channel), PacketNumber(0)).encode();
        [&header[..], &vec![0; length]].concat()
    };
    let pass = |channel, length| {
        let payload = &datagram(channel, length)[..];
        demux.shared.take(Datagram { payload, source, local_ip: None });
    };
    let received = |socket: &dyn Datagrams| {
        let mut buffers = RecvBuffers::new(32);
        let mut count = 0;
        while socket.recv(&mut buffers).unwrap() > 0 {
            count += buffers.datagrams().filter(|datagram| datagram.source == source).count();
        }
        count
    };
    pass(8, 100);
    (0..1000).for_each(|_| pass(7, 100));
    assert_eq!(received(&*far.socket), 64);
    (0..1000).for_each(|_| pass(7, 60_000));
    assert_eq!(received(&*far.socket), 3);
    assert_eq!(demux.shared.unknown.load(Ordering::Relaxed), 1, "of another channel");
    // The channel of a new socket is the same.
    let moved = far.socket.toward(near.socket.local_addr()).unwrap();
    pass(7, 100);
    assert_eq!(received(&*moved), 1);
    drop((far, moved));
    pass(7, 100);
    assert_eq!(demux.shared.unknown.load(Ordering::Relaxed), 2, "a closed channel");
}

#[test]
fn a_connector_keeps_its_socket_while_its_address_exists() {
    let way = |local: Option<IpAddr>| Way {
        peer: "127.0.0.1:9".parse().unwrap(),
        local,
        options: SocketOptions::default(),
    };
    let socket = |way: Way| {
        let socket = socket_to(way.peer, way.local, &way.options).unwrap();
        ConnectorSocket::new(socket, way)
    };
    assert!(socket(way(None)).renewed(true).is_none());
    // The user has chosen another address than the system would.
    assert!(socket(way(Some([127, 0, 0, 7].into()))).renewed(true).is_none());
    // The system prefers another address than that of this socket.
    let other = Way { local: None, ..way(None) };
    let bound = socket_to(other.peer, Some([127, 0, 0, 7].into()), &other.options).unwrap();
    let moved = ConnectorSocket::new(bound, other);
    assert!(moved.renewed(false).is_none());
    assert!(moved.renewed(true).is_some(), "after silence");
}
