//! Real hosts, a real router and small amounts of traffic; no test judges speed.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use sabul_net::{LinkConfig, LinkConfigBuilder, LinkPlan, QueueLimit};
use sabul_units::{CongestionFields, CongestionForm, CongestionHeader, Probability, Rate, Span};

use super::*;
use crate::host::{Host, HostConfig};
use sabul_tun::Protocol;

const NEAR: Ipv4Addr = Ipv4Addr::new(10, 66, 0, 1);
const FAR: Ipv4Addr = Ipv4Addr::new(10, 66, 0, 2);
const FAR_V6: Ipv6Addr = Ipv6Addr::new(0xfd66, 0, 0, 0, 0, 0, 0, 2);

struct Bed {
    near: Host,
    far: Host,
    router: Router,
}

fn link() -> LinkConfigBuilder {
    LinkConfig::droptail(Rate::from_mbps(200), Span::from_millis(5), 1_000)
}

fn plan(id: &str, forward: LinkConfigBuilder, back: LinkConfigBuilder) -> LinkPlan {
    LinkPlan { id: id.to_owned(), forward: forward.build().unwrap(), back: back.build().unwrap() }
}

/// Two hosts with these links in a row between them.
fn bed(links: Vec<LinkPlan>, access_delay: Span, mtu: u32) -> Bed {
    let (near, far) = hosts(mtu);
    let pairs = vec![pair(&near, &far, links.len(), access_delay)];
    let router = Router::start(RouterPlan { links, pairs, seed: 1 }).unwrap();
    Bed { near, far, router }
}

fn pair(near: &Host, far: &Host, links: usize, access_delay: Span) -> PairPlan {
    PairPlan {
        near: Arc::clone(near.device()),
        far: Arc::clone(far.device()),
        path: (0..links).collect(),
        access_delay,
    }
}

fn hosts(mtu: u32) -> (Host, Host) {
    let host = |name: &str, v4: Ipv4Addr, last: u16| {
        let v6 = Ipv6Addr::new(0xfd66, 0, 0, 0, 0, 0, 0, last);
        let addresses = vec![(IpAddr::from(v4), 24), (IpAddr::from(v6), 64)];
        Host::new(HostConfig { name: name.to_owned(), addresses, mtu, settings: Vec::new() })
            .unwrap()
    };
    (host("near", NEAR, 1), host("far", FAR, 2))
}

/// Sends `bytes` from near to far over TCP; returns the received bytes.
fn transfer(bed: &Bed, to: IpAddr, bytes: &[u8]) -> Vec<u8> {
    let listener = bed.far.run(|| TcpListener::bind((to, 5000)).unwrap()).unwrap();
    let mut stream = bed.near.run(|| TcpStream::connect((to, 5000)).unwrap()).unwrap();
    let (mut taken, _) = listener.accept().unwrap();
    taken.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            stream.write_all(bytes).unwrap();
        });
        let mut arrived = Vec::new();
        taken.read_to_end(&mut arrived).unwrap();
        arrived
    })
}

fn noise(bytes: usize) -> Vec<u8> {
    use sabul_units::{Random as _, SeededRandom};
    let mut random = SeededRandom::new(3);
    (0..bytes).map(|_| u8::try_from(random.next_u64() >> 56).unwrap()).collect()
}

#[test]
fn tcp_crosses_a_path_unchanged_and_every_byte_is_counted_once() {
    let bytes = noise(5_000_000);
    let bed = bed(vec![plan("l", link(), link())], Span::from_millis(2), 1500);
    for to in [IpAddr::from(FAR), IpAddr::from(FAR_V6)] {
        assert!(transfer(&bed, to, &bytes) == bytes, "what arrived differs");
    }
    let snapshot = bed.router.snapshot();
    assert_eq!(snapshot.pairs[0][0].fresh_bytes, 10_000_000);
    assert_eq!((snapshot.malformed, snapshot.refused), (0, 0));
    let stats = snapshot.links[0][0].stats;
    assert!(stats.arrived >= 10_000_000 / 1460, "queues count packets, not bundles: {stats:?}");
    let tuples = bed.router.tuples();
    let data: Vec<_> = tuples.iter().filter(|tuple| tuple.amount.data_packets > 100).collect();
    assert_eq!(data.len(), 2, "{tuples:?}");
    for tuple in data {
        assert_eq!((tuple.way, tuple.tuple.protocol), (Way::Forward, Protocol::Tcp));
        assert_eq!(tuple.tuple.destination_port, 5000);
        assert_eq!(tuple.amount.fresh_bytes, 5_000_000);
    }
}

#[test]
fn tcp_survives_loss_damage_duplicates_and_reordering_over_two_links() {
    let bytes = noise(1_000_000);
    let rough = link()
        .with_loss(Probability::per_mille(10))
        .with_corrupt(Probability::per_mille(10))
        .with_duplicate(Probability::per_mille(10))
        .with_reorder(Probability::per_mille(10), Span::from_millis(2));
    let links = vec![plan("a", rough.clone(), rough), plan("b", link(), link())];
    let bed = bed(links, Span::ZERO, 1500);
    assert!(transfer(&bed, FAR.into(), &bytes) == bytes, "what arrived differs");
    let snapshot = bed.router.snapshot();
    assert_eq!(snapshot.pairs[0][0].fresh_bytes, 1_000_000);
    let stats = snapshot.links[0][0].stats;
    assert!(stats.dropped_loss > 0 && stats.corrupted > 0 && stats.duplicated > 0, "{stats:?}");
    assert!(snapshot.pairs[0][0].resent_packets >= stats.dropped_loss / 2, "{snapshot:?}");
    assert!(
        snapshot.links[1][0].stats.arrived > 600,
        "the second link carries what the first delivers"
    );
}

#[test]
fn datagrams_take_the_delay_and_large_packets_pass() {
    let bed = bed(vec![plan("l", link(), link())], Span::from_millis(10), 9000);
    let echo = bed.far.run(|| UdpSocket::bind((FAR, 7)).unwrap()).unwrap();
    let probe = bed.near.run(|| UdpSocket::bind((NEAR, 0)).unwrap()).unwrap();
    for socket in [&echo, &probe] {
        socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    }
    let mut buffer = vec![0; 10_000];
    for size in [1, 8972] {
        let begun = std::time::Instant::now();
        probe.send_to(&vec![7; size], (FAR, 7)).unwrap();
        let (bytes, from) = echo.recv_from(&mut buffer).unwrap();
        echo.send_to(&buffer[..bytes], from).unwrap();
        assert_eq!(probe.recv_from(&mut buffer).unwrap().0, size);
        // 2 × (5 + 10) ms; a packet is never early.
        assert!(begun.elapsed() >= Duration::from_millis(30), "{:?}", begun.elapsed());
    }
    let mtu = bed.router.snapshot().links[0][0].stats.delivered_bytes;
    assert_eq!(mtu, 29 + 9000);
}

#[test]
fn a_restart_discards_queued_packets_and_counters() {
    let bed = bed(vec![plan("l", link(), link())], Span::ZERO, 1500);
    transfer(&bed, FAR.into(), &noise(10_000));
    assert!(!bed.router.tuples().is_empty());
    bed.router.restart(vec![plan("l", link(), link())], 1, None).unwrap();
    let snapshot = bed.router.snapshot();
    assert_eq!(snapshot.links[0][0].stats.arrived, 0);
    assert_eq!(snapshot.pairs[0][0], Amount::default());
    assert!(bed.router.tuples().is_empty());
}

#[test]
fn no_host_pair_is_preferred_at_a_full_queue() {
    // 1000 datagrams of each pair meet on a link of 1 Mb/s with a queue of 20.
    let slow = || link().with_rate(Some(Rate::from_mbps(1))).with_queue(QueueLimit::Packets(20));
    let (one, two) = (hosts(1500), hosts(1500));
    let pairs = [&one, &two].map(|(near, far)| pair(near, far, 1, Span::ZERO)).to_vec();
    let links = vec![plan("l", slow(), link())];
    let router = Router::start(RouterPlan { links, pairs, seed: 1 }).unwrap();
    let sockets = [&one, &two].map(|(near, far)| {
        // The port is open, so that no ICMP errors return.
        let taken = far.run(|| UdpSocket::bind((FAR, 9)).unwrap()).unwrap();
        (near.run(|| UdpSocket::bind((NEAR, 0)).unwrap()).unwrap(), taken)
    });
    for round in 0..1_000 {
        for n in [round % 2, 1 - round % 2] {
            sockets[n].0.send_to(&[0; 1_000], (FAR, 9)).unwrap();
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    let arrived =
        router.snapshot().pairs.iter().map(|pair| pair[0].arrived_packets).collect::<Vec<_>>();
    let all: u64 = arrived.iter().sum();
    assert!(all > 50 && all < 500, "the link is too slow for all of it: {arrived:?}");
    assert!(arrived.iter().all(|one| *one > all / 4), "{arrived:?}");
}

#[test]
fn a_host_can_use_an_algorithm_that_the_machine_restricts() {
    let bed = bed(vec![plan("l", link(), link())], Span::ZERO, 1500);
    for name in ["reno", "cubic"] {
        bed.near.run(|| crate::host::prefer_algorithm(name)).unwrap().unwrap();
        for to in [IpAddr::from(FAR), IpAddr::from(FAR_V6)] {
            let listener = bed.far.run(|| TcpListener::bind((to, 0)).unwrap()).unwrap();
            let at = listener.local_addr().unwrap();
            let stream = bed.near.run(|| TcpStream::connect(at).unwrap()).unwrap();
            let chosen = socket2::SockRef::from(&stream).tcp_congestion().unwrap();
            assert_eq!(String::from_utf8_lossy(&chosen).trim_end_matches('\0'), name);
        }
    }
    let refused = bed.near.run(|| crate::host::prefer_algorithm("no-such-one")).unwrap();
    assert!(refused.is_err());
}

/// A DATA packet of our transport with this congestion header, with the parts that a router reads.
fn explicit(header: &CongestionHeader, filler: u8) -> Vec<u8> {
    let length = sabul_wire::congestion_len(header.fields.form());
    let mut data = sabul_wire::DataHeader::new(
        sabul_wire::ConnectionId(1),
        sabul_units::PacketNumber(2),
        sabul_units::SeqNo(3),
        4,
        5,
    );
    data.congestion_len = u8::try_from(length).unwrap();
    let mut datagram = data.encode().to_vec();
    datagram.resize(datagram.len() + length, 0);
    sabul_wire::encode_congestion(header, &mut datagram[sabul_wire::DATA_HEADER_LEN..]);
    datagram.extend([filler; 400]);
    datagram
}

#[test]
fn routers_rewrite_only_congestion_headers_and_keep_checksums_valid() {
    let form = CongestionForm::JetMax;
    let with = |router: Option<&str>| link().with_router(router.map(sabul_net::RouterPlan::new));
    let links = vec![
        plan("a", with(Some("jetmax")), link()),
        plan("b", with(None), link()),
        plan("c", with(Some("jetmax")), link()),
    ];
    let bed = bed(links, Span::ZERO, 1500);
    let sent = CongestionHeader::new(form.blank());
    let strange = CongestionHeader::new(CongestionForm::Rcp.blank());
    // Segmented by the router, and whole.
    for segment in [None, Some(explicit(&sent, 0).len())] {
        let taken = bed.far.run(|| UdpSocket::bind((FAR, 0)).unwrap()).unwrap();
        taken.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        let probe = bed.near.run(|| UdpSocket::bind((NEAR, 0)).unwrap()).unwrap();
        let mut datagrams: Vec<Vec<u8>> = (0..5).map(|n| explicit(&sent, n)).collect();
        let to = taken.local_addr().unwrap();
        if let Some(segment) = segment {
            let state = quinn_udp::UdpSocketState::new((&probe).into()).unwrap();
            let transmit = quinn_udp::Transmit {
                destination: to,
                ecn: None,
                contents: &datagrams.concat(),
                segment_size: Some(segment),
                src_ip: None,
            };
            state.try_send((&probe).into(), &transmit).unwrap();
        } else {
            datagrams.extend([explicit(&strange, 9), vec![7; 500], vec![0x10, 11]]);
            datagrams.iter().for_each(|datagram| {
                probe.send_to(datagram, to).unwrap();
            });
        }
        let mut buffer = [0; 2000];
        for sent in datagrams {
            // The kernel discards datagrams with a wrong checksum.
            let length = taken.recv(&mut buffer).unwrap();
            let (mut arrived, front) = (buffer[..length].to_vec(), sabul_wire::DATA_HEADER_LEN);
            let is_ours = sabul_wire::find_congestion(&sent).is_some_and(|it| it.len() == 44);
            if is_ours {
                let header = sabul_wire::decode_congestion(&arrived[front..front + 44]).unwrap();
                assert_eq!(header.routers, 2);
                let CongestionFields::JetMax(told) = header.fields else { panic!("{header:?}") };
                assert!(told.suggested != 0 && told.loss_max > i32::MIN);
                arrived[front..front + 44].copy_from_slice(&sent[front..front + 44]);
            }
            assert!(arrived == sent, "nothing else has changed");
        }
    }
}
