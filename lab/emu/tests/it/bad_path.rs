//! Transfers over real sockets across the relay's worst path, and with random datagrams sent to the
//! listener.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::fs;
use std::net::{SocketAddr, UdpSocket};
use std::path::Path;
use std::time::Duration;

use sabul::files::{LocalDestination, RemoteDestination};
use sabul::files::{Source, SourceSet};
use sabul::internal::connect_to;
use sabul::settings::{Carrier, LossPolicy, MemoryBudget, ReportCarrier, SendPolicy};
use sabul::{
    Bytes, ConnectConfig, Listener, ListenerConfig, Service, Session, Ticket, TransferOptions,
};
use sabul_emu::{Relay, RelayConfig};
use sabul_net::{LinkConfig, Outage};
use sabul_units::{Instant, Probability, Random, Rate, SeededRandom, Span};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Longer than any step takes, so that a failure ends too.
const TIMEOUT: Duration = Duration::from_secs(240);

fn run<T>(test: impl Future<Output = T>) -> T {
    crate::common::within(TIMEOUT, test)
}

/// 5 % loss, 1 % duplicates, 1 % reordered by 3 ms, 0.1 % corrupted, an outage of 3 s.
fn worst() -> LinkConfig {
    LinkConfig::droptail(Rate::from_mbps(200), Span::from_millis(10), 400)
        .with_mtu(Some(1500))
        .with_loss(Probability::per_mille(50))
        .with_duplicate(Probability::per_mille(10))
        .with_reorder(Probability::per_mille(10), Span::from_millis(3))
        .with_corrupt(Probability::per_mille(1))
        .with_outages(vec![Outage {
            at: Instant::ZERO + Span::from_millis(400),
            lasts: Span::from_secs(3),
        }])
        .build()
        .unwrap()
}

async fn serving(root: &Path) -> (Ticket, SocketAddr) {
    let mut config = ListenerConfig::new("127.0.0.1:0".parse().unwrap());
    config.sending = SendPolicy::any();
    let listener = Listener::bind(config).await.unwrap();
    let (ticket, address) = (listener.ticket().clone(), listener.local_addr());
    let service = Service::default().root(root).measure(true);
    tokio::spawn(async move {
        while let Ok(session) = listener.accept().await {
            let service = service.clone();
            tokio::spawn(async move { session.serve(&service).await });
        }
    });
    (ticket, address)
}

fn random_bytes(count: usize, seed: u64) -> Vec<u8> {
    let mut rng = SeededRandom::new(seed);
    (0..count).map(|_| u8::try_from(rng.below(256)).unwrap()).collect()
}

/// One file in each direction; both must arrive unchanged.
async fn there_and_back(
    session: &Session,
    near: &Path,
    far: &Path,
    options: &TransferOptions,
    bytes: usize,
) {
    let content = random_bytes(bytes, 1);
    fs::write(near.join("up"), &content).unwrap();
    fs::write(far.join("down"), &content).unwrap();
    let sources = SourceSet::local(vec![Source::Path(near.join("up"))], false).unwrap();
    let place = RemoteDestination::directory("");
    let report = session.put(sources, place, options).await.unwrap().finish().await.unwrap();
    assert!(report.verified && report.entries_failed == 0, "{report:?}");
    let place = LocalDestination::directory(near);
    let got = session.get(vec![b"down".to_vec()], false, place, options).await.unwrap();
    let report = got.finish().await.unwrap();
    assert!(report.verified && report.entries_failed == 0, "{report:?}");
    assert!(fs::read(far.join("up")).unwrap() == content, "the file put is whole");
    assert!(fs::read(near.join("down")).unwrap() == content, "the file got is whole");
}

/// At a fixed rate, because a controller of the papers falls to its least rate at a constant loss of 5 %.
fn across_the_worst_path(loss_policy: LossPolicy, carrier: ReportCarrier, seed: u64) {
    let rate = vec![("rate_mbps".to_owned(), "40".to_owned())];
    cross(loss_policy, carrier, seed, "fixed", rate, 1_000_000);
}

fn cross(
    loss_policy: LossPolicy,
    carrier: ReportCarrier,
    seed: u64,
    controller: &str,
    controller_params: Vec<(String, String)>,
    bytes: usize,
) {
    run(async {
        let (near, far) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (ticket, target) = serving(far.path()).await;
        let relay = Relay::start(RelayConfig {
            listen: "127.0.0.1:0".parse().unwrap(),
            target,
            forward: worst(),
            back: worst(),
            seed,
            udp_blocked: false,
        })
        .unwrap();
        let address = relay.addr().to_string();
        let session = connect_to(&address, &ticket, ConnectConfig::default()).await.unwrap();
        let options = TransferOptions::default()
            .loss_policy(loss_policy)
            .carrier(Carrier::Udp)
            .report_carrier(carrier)
            .block_size(Bytes(1 << 16))
            .controller(controller)
            .controller_params(controller_params);
        there_and_back(&session, near.path(), far.path(), &options, bytes).await;
        let stats = relay.stats();
        assert!(stats.forward.dropped() > 0 && stats.back.dropped() > 0, "the path was bad");
        session.close().await;
    });
}

#[test]
fn files_survive_the_worst_path_reported_by_packet_number_over_udp() {
    for seed in [1, 2] {
        across_the_worst_path(LossPolicy::Current, ReportCarrier::Udp, seed);
    }
}

#[test]
fn files_survive_the_worst_path_with_the_default_controller() {
    cross(LossPolicy::Current, ReportCarrier::Udp, 6, "sabul2026", Vec::new(), 200_000);
}

#[test]
fn files_survive_the_worst_path_reported_by_packet_number_over_tcp() {
    across_the_worst_path(LossPolicy::Current, ReportCarrier::Control, 3);
}

#[test]
fn files_survive_the_worst_path_reported_by_sequence_number_over_udp() {
    across_the_worst_path(LossPolicy::Historical, ReportCarrier::Udp, 4);
}

/// Random, truncated and header-like datagrams at the listener's port, before and during a session,
/// are counted and ignored, never answered, and no transfer suffers.
#[test]
fn datagrams_from_strangers_are_ignored_and_get_no_answer() {
    run(async {
        let (near, far) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (ticket, address) = serving(far.path()).await;
        let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
        stranger.set_nonblocking(true).unwrap();
        stranger.connect(address).unwrap();
        let shouting = std::thread::spawn(move || {
            let mut rng = SeededRandom::new(7);
            for round in 0..5000_u64 {
                let length = usize::try_from(rng.below(1500)).unwrap();
                let mut datagram = random_bytes(length, round);
                if let Some(first) = datagram.first_mut() {
                    // Every kind of packet of this version, with a random connection id.
                    *first = 0x10 | u8::try_from(rng.below(8)).unwrap();
                }
                let _ = stranger.send(&datagram);
                if round % 100 == 0 {
                    std::thread::sleep(Duration::from_millis(5));
                }
            }
            std::thread::sleep(Duration::from_millis(200));
            let mut answer = [0; 2000];
            stranger.recv(&mut answer).map_err(|error| error.kind())
        });
        let config = ConnectConfig::default();
        let session = connect_to(&address.to_string(), &ticket, config).await.unwrap();
        let options = TransferOptions::default();
        there_and_back(&session, near.path(), far.path(), &options, 1_000_000).await;
        session.close().await;
        let answer = tokio::task::spawn_blocking(|| shouting.join().unwrap()).await.unwrap();
        assert_eq!(answer, Err(std::io::ErrorKind::WouldBlock), "nobody answers a stranger");
    });
}

/// A receiver that stops reading stops the sender, and no data is lost when the receiver continues.
#[test]
fn a_receiver_that_stops_reading_slows_the_sender() {
    run(async {
        let mut config = ListenerConfig::new("127.0.0.1:0".parse().unwrap());
        config.memory = MemoryBudget::each(Bytes(4 << 20));
        let listener = Listener::bind(config).await.unwrap();
        let address = listener.local_addr().to_string();
        let session =
            connect_to(&address, listener.ticket(), ConnectConfig::default()).await.unwrap();
        let peer = listener.accept().await.unwrap();
        let options = TransferOptions::default().block_size(Bytes(1 << 18));
        let mut sending = session.send_stream("slow", &options).await.unwrap();
        let Some(sabul::server::Request::Stream(request)) = peer.next_request().await else {
            panic!("the peer asks for a stream");
        };
        let mut reading = request.accept_receiver().unwrap();
        let content = random_bytes(20 << 20, 9);
        let sent = content.clone();
        let writer = tokio::spawn(async move {
            sending.write_all(&sent).await.unwrap();
            sending.shutdown().await.unwrap();
            sending.finish().await.unwrap()
        });
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert!(!writer.is_finished(), "20 MiB do not fit into 4 MiB of memory");
        let mut arrived = Vec::new();
        reading.read_to_end(&mut arrived).await.unwrap();
        assert!(arrived == content, "everything arrives all the same");
        let report = writer.await.unwrap();
        assert_eq!(report.bytes, content.len() as u64);
    });
}
