//! Carriers of the data: TCP from the start, TCP where UDP does not pass, TCP after UDP stopped.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use sabul::files::{LocalDestination, RemoteDestination, SourceSet};
use sabul::internal::connect_to;
use sabul::settings::{Carrier, Direction, MeasureLimit};
use sabul::{
    Bytes, ConnectConfig, Error, Listener, ListenerConfig, Rate, Report, Service, Session,
    Transfer, TransferOptions,
};
use tempfile::TempDir;
use tokio::net::{TcpListener, TcpSocket, TcpStream, UdpSocket};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Longer than any test takes.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Fault of the TCP connections that exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Both ends get a reset.
    Reset,
    /// No byte passes any more.
    Stall,
}

/// A path that forwards TCP connections, and datagrams while `passes_udp` is set.
pub(crate) struct Forwarder {
    pub(crate) address: SocketAddr,
    /// Faults; a connection has those that begin after it.
    pub(crate) faults: Arc<watch::Sender<Fault>>,
    /// Further TCP connections are reset.
    pub(crate) refuses_tcp: Arc<AtomicBool>,
    /// Number of TCP connections so far.
    pub(crate) connections: Arc<AtomicUsize>,
    /// Address from which everything is forwarded. With each change, the datagrams get other ports, as behind a NAT
    /// that has lost its state.
    pub(crate) outside: Arc<watch::Sender<IpAddr>>,
    /// Sockets of an observer, who sends a copy of each datagram of the client from the next of them before the
    /// datagram itself arrives; with the number of copies so far.
    pub(crate) observer: Arc<Mutex<(Vec<std::net::UdpSocket>, usize)>>,
    passes_udp: Arc<AtomicBool>,
    /// Number of datagrams to the client that are lost next.
    lost_answers: Arc<AtomicUsize>,
    /// Datagrams of each client, and whether they pass.
    pub(crate) clients: Clients,
}

/// Datagrams forwarded for a client's address, and whether datagrams of this address are dropped.
pub(crate) type Clients = Arc<Mutex<HashMap<IpAddr, (usize, bool)>>>;

impl Forwarder {
    pub(crate) async fn to(target: SocketAddr, passes_udp: bool) -> Self {
        let (tcp, udp) = loop {
            let tcp = TcpListener::bind("127.0.0.1:0").await.unwrap();
            if let Ok(udp) = UdpSocket::bind(tcp.local_addr().unwrap()).await {
                break (tcp, udp);
            }
        };
        let address = tcp.local_addr().unwrap();
        let passes_udp = Arc::new(AtomicBool::new(passes_udp));
        let faults = Arc::new(watch::Sender::new(Fault::Reset));
        let outside = Arc::new(watch::Sender::new(target.ip()));
        let (refuses_tcp, connections) = (Arc::<AtomicBool>::default(), Arc::default());
        let of_tcp = (Arc::clone(&faults), Arc::clone(&outside), Arc::clone(&refuses_tcp));
        let count = Arc::<AtomicUsize>::clone(&connections);
        tokio::spawn(async move {
            let (faults, outside, refuses) = of_tcp;
            while let Ok((near, _)) = tcp.accept().await {
                if refuses.load(Ordering::Acquire) {
                    near.set_zero_linger().unwrap();
                    continue;
                }
                count.fetch_add(1, Ordering::AcqRel);
                let local = *outside.borrow();
                tokio::spawn(forward_connection(near, target, local, faults.subscribe()));
            }
        });
        let lost_answers = Arc::<AtomicUsize>::default();
        let clients = Clients::default();
        let observer = Arc::<Mutex<(Vec<std::net::UdpSocket>, usize)>>::default();
        tokio::spawn(forward_datagrams(
            Arc::new(udp),
            target,
            Arc::clone(&passes_udp),
            Arc::clone(&lost_answers),
            Arc::clone(&clients),
            outside.subscribe(),
            Arc::clone(&observer),
        ));
        #[rustfmt::skip]
        let path = Self { address, faults, refuses_tcp, connections, outside, observer, passes_udp, lost_answers, clients };
        path
    }
}

async fn forward_connection(
    mut near: TcpStream,
    target: SocketAddr,
    local: IpAddr,
    mut faults: watch::Receiver<Fault>,
) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind((local, 0).into()).unwrap();
    let mut far = socket.connect(target).await.unwrap();
    tokio::select! {
        _ = tokio::io::copy_bidirectional(&mut near, &mut far) => return,
        Ok(()) = faults.changed() => {}
    }
    if *faults.borrow() == Fault::Stall {
        std::future::pending::<()>().await;
    }
    for socket in [near, far] {
        socket.set_zero_linger().unwrap();
    }
}

/// Counts a datagram of a client, and returns whether it passes.
fn passes_for(clients: &Clients, client: SocketAddr) -> bool {
    let mut clients = clients.lock().unwrap();
    let (count, is_dropped) = clients.entry(client.ip()).or_default();
    *count += usize::from(!*is_dropped);
    !*is_dropped
}

/// Forwards datagrams of each client from a socket of its own.
async fn forward_datagrams(
    udp: Arc<UdpSocket>,
    target: SocketAddr,
    passes: Arc<AtomicBool>,
    lost: Arc<AtomicUsize>,
    counts: Clients,
    mut outside: watch::Receiver<IpAddr>,
    observer: Arc<Mutex<(Vec<std::net::UdpSocket>, usize)>>,
) {
    let mut clients = HashMap::<SocketAddr, (Arc<UdpSocket>, JoinHandle<()>)>::new();
    let mut bytes = vec![0; 1 << 16];
    while let Ok((length, client)) = udp.recv_from(&mut bytes).await {
        if outside.has_changed().unwrap() {
            clients.drain().for_each(|(_, (_, answering))| answering.abort());
        }
        if let Entry::Vacant(place) = clients.entry(client) {
            let local = *outside.borrow_and_update();
            let socket = Arc::new(UdpSocket::bind((local, 0)).await.unwrap());
            socket.connect(target).await.unwrap();
            let answering = tokio::spawn(answer_datagrams(
                Arc::clone(&socket),
                Arc::clone(&udp),
                client,
                Arc::clone(&passes),
                Arc::clone(&lost),
                Arc::clone(&counts),
            ));
            place.insert((socket, answering));
        }
        {
            let (sockets, copies) = &mut *observer.lock().unwrap();
            if !sockets.is_empty() {
                let _ = sockets[*copies % sockets.len()].send_to(&bytes[..length], target);
                *copies += 1;
            }
        }
        if passes.load(Ordering::Acquire) && passes_for(&counts, client) {
            let _ = clients[&client].0.send(&bytes[..length]).await;
        }
    }
}

/// Forwards the answers of the target to a client.
async fn answer_datagrams(
    socket: Arc<UdpSocket>,
    udp: Arc<UdpSocket>,
    client: SocketAddr,
    passes: Arc<AtomicBool>,
    lost: Arc<AtomicUsize>,
    counts: Clients,
) {
    let mut bytes = vec![0; 1 << 16];
    while let Ok(length) = socket.recv(&mut bytes).await {
        let one_less = |left: usize| left.checked_sub(1);
        let is_lost = lost.fetch_update(Ordering::AcqRel, Ordering::Acquire, one_less).is_ok();
        if passes.load(Ordering::Acquire) && !is_lost && passes_for(&counts, client) {
            let _ = udp.send_to(&bytes[..length], client).await;
        }
    }
}

/// A served directory, a directory of the client, and a session over a path between.
pub(crate) struct Site {
    pub(crate) root: TempDir,
    here: TempDir,
    pub(crate) path: Forwarder,
    pub(crate) session: Session,
}

impl Site {
    async fn new(passes_udp: bool) -> Self {
        Self::with(passes_udp, ConnectConfig::default()).await
    }

    pub(crate) async fn with(passes_udp: bool, connect: ConnectConfig) -> Self {
        let (root, here) = (TempDir::new().unwrap(), TempDir::new().unwrap());
        let config = ListenerConfig::new("127.0.0.1:0".parse().unwrap());
        let listener = Listener::bind(config).await.unwrap();
        let ticket = listener.ticket().clone();
        let path = Forwarder::to(listener.local_addr(), passes_udp).await;
        let service = Service::default().root(root.path()).measure(true);
        tokio::spawn(async move {
            while let Ok(session) = listener.accept().await {
                let service = service.clone();
                tokio::spawn(async move { session.serve(&service).await });
            }
        });
        let address = path.address.to_string();
        let session = connect_to(&address, &ticket, connect).await.unwrap();
        Self { root, here, path, session }
    }

    /// Starts the upload of a new file.
    pub(crate) async fn begin(&self, bytes: usize, options: &TransferOptions) -> Transfer {
        let source = self.here.path().join("up");
        fs::write(&source, content(bytes)).unwrap();
        let to = RemoteDestination::path("up");
        self.session.put(SourceSet::path(&source), to, options).await.unwrap()
    }

    /// Starts the download of a new file.
    pub(crate) async fn begin_get(&self, bytes: usize, options: &TransferOptions) -> Transfer {
        fs::write(self.root.path().join("down"), content(bytes)).unwrap();
        let to = LocalDestination::path(self.here.path().join("down"));
        self.session.get(vec![b"down".to_vec()], false, to, options).await.unwrap()
    }

    /// Uploads a new file and checks the copy.
    pub(crate) async fn put(
        &self,
        bytes: usize,
        options: &TransferOptions,
    ) -> Result<Report, Error> {
        let source = self.here.path().join("up");
        fs::write(&source, content(bytes)).unwrap();
        let to = RemoteDestination::path("up");
        let transfer = self.session.put(SourceSet::path(&source), to, options).await?;
        let report = transfer.finish().await?.into_result()?;
        assert!(fs::read(self.root.path().join("up")).unwrap() == content(bytes));
        Ok(report)
    }

    /// Downloads a new file and checks the copy.
    pub(crate) async fn get(
        &self,
        bytes: usize,
        options: &TransferOptions,
    ) -> Result<Report, Error> {
        fs::write(self.root.path().join("down"), content(bytes)).unwrap();
        let to = LocalDestination::path(self.here.path().join("down"));
        let transfer = self.session.get(vec![b"down".to_vec()], false, to, options).await?;
        let report = transfer.finish().await?.into_result()?;
        assert!(fs::read(self.here.path().join("down")).unwrap() == content(bytes));
        Ok(report)
    }
}

impl Forwarder {
    /// Lets UDP pass, or stops UDP, at these times in milliseconds from now.
    fn switch_udp(&self, switches: &'static [(u64, bool)]) {
        let passes_udp = Arc::clone(&self.passes_udp);
        let begin = tokio::time::Instant::now();
        tokio::spawn(async move {
            for &(millis, passes) in switches {
                tokio::time::sleep_until(begin + Duration::from_millis(millis)).await;
                passes_udp.store(passes, Ordering::Release);
            }
        });
    }
}

fn content(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|i| u8::try_from((i * 31 + i / 251) % 256).unwrap()).collect()
}

pub(crate) fn options() -> TransferOptions {
    TransferOptions::default().block_size(Bytes(64 << 10))
}

pub(crate) fn run(test: impl Future<Output = ()>) {
    crate::common::within(TIMEOUT, test);
}

#[test]
fn files_cross_tcp_where_udp_does_not_pass() {
    run(async {
        let site = Site::new(false).await;
        let begin = Instant::now();
        let report = site.put(5_000_000, &options()).await.unwrap();
        assert_eq!(report.channel.carrier, "tcp");
        assert_eq!(report.channel.carrier_reason, "UDP does not pass");
        let report = site.get(5_000_001, &options()).await.unwrap();
        assert_eq!(report.channel.carrier, "tcp");
        assert!(begin.elapsed() < Duration::from_secs(10), "{:?}", begin.elapsed());
    });
}

#[test]
fn udp_carries_the_data_where_udp_passes() {
    run(async {
        let site = Site::new(true).await;
        let report = site.put(1_000_000, &options()).await.unwrap();
        assert_eq!((report.channel.carrier, report.channel.carrier_reason), ("udp", ""));
    });
}

#[test]
fn tcp_carries_files_of_all_sizes_on_any_number_of_connections() {
    run(async {
        let site = Site::new(true).await;
        for (connections, bytes) in [(1, 0), (1, 1), (4, 65_536), (3, 3_000_000), (16, 20_000_000)]
        {
            let options = options().carrier(Carrier::Tcp).tcp_connections(connections);
            let report = site.put(bytes, &options).await.unwrap();
            assert_eq!((report.bytes, report.channel.carrier), (bytes as u64, "tcp"));
            let report = site.get(bytes, &options).await.unwrap();
            assert_eq!(
                (report.bytes, report.channel.carrier_reason),
                (bytes as u64, "as requested")
            );
        }
        for connections in [0, 17] {
            let options = options().carrier(Carrier::Tcp).tcp_connections(connections);
            let error = site.put(1, &options).await.unwrap_err();
            assert!(error.to_string().contains("1 to 16"), "{error}");
        }
    });
}

#[test]
fn a_rate_limit_holds_over_tcp() {
    run(async {
        let site = Site::new(true).await;
        let options = options().carrier(Carrier::Tcp).rate_limit(Some(Rate(20_000_000)));
        let limit = MeasureLimit::default().time(Some(Duration::from_secs(2)));
        for direction in [Direction::Send, Direction::Receive] {
            let transfer = site.session.measure(direction, limit, &options).await.unwrap();
            let rate = transfer.finish().await.unwrap().goodput_bps;
            assert!((14e6..=20.5e6).contains(&rate), "{rate}");
        }
    });
}

#[test]
fn tcp_takes_over_when_udp_stops_in_the_middle_of_a_transfer() {
    run(async {
        let options = options().rate_limit(Some(Rate(40_000_000)));
        for is_upload in [true, false] {
            let site = Site::new(true).await;
            site.path.switch_udp(&[(700, false)]);
            let begin = Instant::now();
            let report = match is_upload {
                true => site.put(10_000_000, &options).await.unwrap(),
                false => site.get(10_000_000, &options).await.unwrap(),
            };
            assert_eq!(report.channel.carrier, "tcp");
            assert_eq!(report.channel.carrier_reason, "UDP stopped passing");
            assert!(begin.elapsed() < Duration::from_secs(8), "{:?}", begin.elapsed());
        }
    });
}

#[test]
fn a_short_outage_of_udp_changes_no_carrier() {
    run(async {
        let site = Site::new(true).await;
        site.path.switch_udp(&[(500, false), (1100, true)]);
        let options = options().rate_limit(Some(Rate(40_000_000)));
        let report = site.put(10_000_000, &options).await.unwrap();
        assert_eq!(report.channel.carrier, "udp");
    });
}

#[test]
fn udp_takes_over_again_when_it_passes_again() {
    run(async {
        let options = options().rate_limit(Some(Rate(20_000_000)));
        for is_upload in [true, false] {
            let site = Site::new(false).await;
            site.path.switch_udp(&[(1500, true)]);
            // The first answers to hellos of the new path are lost, too.
            site.path.lost_answers.store(3, Ordering::Release);
            let report = match is_upload {
                true => site.put(20_000_000, &options).await.unwrap(),
                false => site.get(20_000_000, &options).await.unwrap(),
            };
            assert_eq!((report.channel.carrier, report.channel.carrier_reason), ("udp", ""));
            assert!(report.elapsed < Duration::from_secs(20), "{:?}", report.elapsed);
        }
    });
}

#[test]
fn a_transfer_changes_its_carrier_many_times() {
    run(async {
        let options = options().rate_limit(Some(Rate(10_000_000)));
        let site = Site::new(true).await;
        site.path.switch_udp(&[
            (2000, false),
            (6000, true),
            (8000, false),
            (12_000, true),
            (14_000, false),
            (18_000, true),
        ]);
        let (up, down) =
            tokio::join!(site.put(20_000_000, &options), site.get(20_000_000, &options));
        assert_eq!((up.unwrap().bytes, down.unwrap().bytes), (20_000_000, 20_000_000));
    });
}

/// Carriers of a transfer in their order, until its end.
async fn carriers(transfer: Transfer) -> Vec<&'static str> {
    let handle = transfer.handle();
    let seeing = tokio::spawn(async move {
        let mut seen = Vec::new();
        loop {
            let progress = handle.progress();
            if seen.last() != Some(&progress.channel.carrier)
                && !progress.channel.carrier.is_empty()
            {
                seen.push(progress.channel.carrier);
            }
            if progress.is_finished {
                return seen;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    transfer.finish().await.unwrap().into_result().unwrap();
    seeing.await.unwrap()
}

#[test]
fn the_carrier_is_shown_while_it_changes() {
    run(async {
        let site = Site::new(true).await;
        site.path.switch_udp(&[(1000, false), (4000, true)]);
        let options = TransferOptions::default().rate_limit(Some(Rate(20_000_000)));
        let transfer = site.begin(30_000_000, &options).await;
        assert_eq!(carriers(transfer).await, ["udp", "tcp", "udp"]);
    });
}

#[test]
fn a_slow_limit_over_tcp_is_no_silence() {
    run(async {
        let site = Site::new(false).await;
        let options = TransferOptions::default().rate_limit(Some(Rate(100_000)));
        let transfer = site.begin(60_000, &options).await;
        let handle = transfer.handle();
        for _ in 0..40 {
            tokio::time::sleep(Duration::from_millis(100)).await;
            let silence = handle.progress().channel.silence;
            assert!(silence < Duration::from_millis(1900), "{silence:?}");
        }
        assert_eq!(handle.progress().channel.carrier, "tcp");
        transfer.finish().await.unwrap().into_result().unwrap();
    });
}

#[test]
fn a_transfer_that_is_cancelled_over_tcp_ends_at_once() {
    run(async {
        let site = Site::new(false).await;
        let options = options().rate_limit(Some(Rate(10_000_000)));
        let transfer = site.begin(20_000_000, &options).await;
        tokio::time::sleep(Duration::from_millis(1500)).await;
        let begin = Instant::now();
        transfer.cancel();
        assert!(matches!(transfer.finish().await, Err(Error::Cancelled)));
        assert!(begin.elapsed() < Duration::from_secs(3), "{:?}", begin.elapsed());
        // The session still works.
        site.get(100_000, &options).await.unwrap();
    });
}

#[test]
fn many_transfers_of_a_session_cross_tcp_at_once() {
    run(async {
        let site = Site::new(false).await;
        let limit = MeasureLimit::default().bytes(Some(Bytes(100_000)));
        let mut transfers = Vec::new();
        for _ in 0..40 {
            let started = site.session.measure(Direction::Send, limit, &options()).await;
            transfers.push(started.unwrap());
        }
        for transfer in transfers {
            let report = transfer.finish().await.unwrap();
            assert_eq!((report.bytes, report.channel.carrier), (100_000, "tcp"));
        }
    });
}
