//! Whole sessions from a seed: drawn paths, drawn transfers.

use std::path::Path;
use std::time::Duration;

use sabul_sim::{LinkConfig, QueueLimit};
use sabul_units::{Probability, Rate, Span};
use sabul_wire::control::{CONTROL_VERSION, Message};

use super::Tasks;
use super::net::{End, Net};
use super::wire::{Grip, Wire};
use crate::budget::MemoryBudget;
use crate::config::{RemoteDestination, Service, TransferOptions};
use crate::control::{Connection, Stream};
use crate::error::Error;
use crate::files::{Source, SourceSet};
use crate::machine::Machine;
use crate::patience::Patience;
use crate::policy::SendPolicy;
use crate::seal::Suite;
use crate::session::{Endpoint, Session, software};
use crate::transfer::{Report, Side};

fn link(loss: f64) -> LinkConfig {
    LinkConfig::builder()
        .with_rate(Some(Rate::from_mbps(20)))
        .with_delay(Span::from_millis(10))
        .with_queue(QueueLimit::Packets(50))
        .with_loss(Probability::new(loss).unwrap())
        .build()
        .unwrap()
}

/// Memory of a session, in bytes.
const MEMORY: usize = 64 << 20;

fn start(
    tasks: &Tasks,
    connection: Connection,
    end: End,
    suite: Option<Suite>,
    first: Message,
) -> Session {
    let peer = end.peer();
    let machine = Machine::World(tasks.clone());
    let endpoint = Endpoint::new(
        machine,
        MemoryBudget::new(MEMORY),
        Patience::default(),
        SendPolicy::default(),
    );
    let loan = endpoint.memory.session().unwrap();
    Session::start(connection, Side::World(end), peer, endpoint, loan, suite, first)
}

/// Dials a listener that serves `service`; the connector's end, and a hand on the connection.
fn dial(
    net: &Net,
    here: &Tasks,
    there: &Tasks,
    rtt: Duration,
    service: Service,
) -> (Session, Grip) {
    let (near, far, grip) = Wire::pair(rtt / 2, [7; 32]);
    let suite = Suite::Aes128Gcm;
    let hello = Message::Hello {
        version: CONTROL_VERSION,
        proof: [0; 32],
        suites: vec![suite.code()],
        software: software(),
    };
    let near = Connection::over(Stream::World(near));
    let connector = start(here, near, End::connector(net.clone(), rtt), None, hello);
    let (tasks, net) = (there.clone(), net.clone());
    there.spawn(async move {
        let mut far = Connection::over(Stream::World(far));
        let Ok(Some(Message::Hello { .. })) = far.read_at_most(1024).await else { return };
        let welcome = Message::Welcome {
            version: CONTROL_VERSION,
            suite: suite.code(),
            software: software(),
        };
        let session = start(&tasks, far, End::listener(net, rtt), Some(suite), welcome);
        let _ = session.serve(&service).await;
    });
    (connector, grip)
}

fn in_virtual_time<T>(world: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(world)
}

/// What strikes in the middle of an upload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Blow {
    Nothing,
    /// The control connection is reset.
    Cut,
    /// The listener's process is killed.
    Kill,
    /// Nothing passes for so long, in seconds.
    Silence(u64),
}

const RTT: Duration = Duration::from_millis(20);

/// Uploads a tree, is struck after a while, and says how it ended.
async fn put(from: &Path, root: &Path, blow: Blow) -> Result<Report, Error> {
    let net = Net::new(link(0.01), link(0.0), 1);
    let (here, there) = (Tasks::default(), Tasks::default());
    let service = Service { root: Some(root.to_owned()), read_only: false, measure: false };
    let (connector, grip) = dial(&net, &here, &there, RTT, service);
    let set = SourceSet::local(vec![Source::Path(from.to_owned())], true).unwrap();
    let options = TransferOptions { block_bytes: 1 << 16, ..TransferOptions::default() };
    let destination = RemoteDestination::default();
    let transfer = connector.put(set, destination, &options).await?;
    tokio::time::sleep(Duration::from_millis(500)).await;
    match blow {
        Blow::Nothing => {}
        Blow::Cut => grip.cut(),
        Blow::Kill => there.kill(),
        Blow::Silence(seconds) => {
            let silent = LinkConfig::builder().with_loss(Probability::new(1.0).unwrap());
            net.set_links(silent.clone().build().unwrap(), silent.build().unwrap(), 2);
            let until = tokio::time::Instant::now() + Duration::from_secs(seconds);
            grip.hold(until);
            tokio::time::sleep_until(until).await;
            net.set_links(link(0.01), link(0.0), 3);
        }
    }
    let ended = tokio::time::timeout(Duration::from_secs(120), transfer.finish()).await;
    assert!(!here.is_at_fault() && !there.is_at_fault());
    connector.close().await;
    ended.expect("a transfer ends")
}

/// A tree of five files of 500 kB, and an empty root.
fn tree() -> (tempfile::TempDir, tempfile::TempDir) {
    let (from, root) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    std::fs::create_dir(from.path().join("tree")).unwrap();
    for n in 0..5 {
        std::fs::write(from.path().join(format!("tree/{n}")), vec![n; 500_000]).unwrap();
    }
    (from, root)
}

fn strike(blow: Blow) -> Result<Report, Error> {
    let (from, root) = tree();
    let result = in_virtual_time(put(&from.path().join("tree"), root.path(), blow));
    for n in 0..5 {
        // Complete or not there.
        match std::fs::read(root.path().join(format!("tree/{n}"))) {
            Ok(content) => assert_eq!(content, vec![n; 500_000], "{blow:?}"),
            Err(_) => assert!(result.is_err(), "{blow:?}"),
        }
    }
    result
}

#[test]
fn a_tree_crosses_a_lossy_path_in_virtual_time() {
    assert_eq!(strike(Blow::Nothing).unwrap().bytes, 2_500_000);
}

#[test]
fn an_upload_whose_peer_is_lost_ends_with_a_reason() {
    for blow in [Blow::Cut, Blow::Kill] {
        let error = strike(blow).unwrap_err();
        assert!(matches!(error, Error::PeerGone(_)), "{blow:?}: {error}");
    }
}

#[test]
fn a_short_silence_of_the_path_is_survived() {
    assert_eq!(strike(Blow::Silence(20)).unwrap().bytes, 2_500_000);
}
