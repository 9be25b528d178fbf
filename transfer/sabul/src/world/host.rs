//! Simulated hosts: a process with tasks and a disk, which can be killed and restarted.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use sabul_net::LinkConfig;
use sabul_units::{Bytes, Probability};
use sabul_wire::control::{CONTROL_VERSION, Message};
use tokio::time::{Instant, sleep};

use super::Tasks;
use super::net::{End, Net};
use super::wire::{FaultHandle, Wire};
use crate::budget::MemoryBudget;
use crate::config::{LocalDestination, RemoteDestination, Service, TransferOptions};
use crate::connection::{Connection, Stream};
use crate::control::Succession;
use crate::endpoint::Endpoint;
use crate::error::Error;
use crate::lock::lock;
use crate::machine::Machine;
use crate::paths::PathMemory;
use crate::policy::SendPolicy;
use crate::seal::Suite;
use crate::session::{Opening, Session, software};
use crate::timeouts::Timeouts;
use crate::transfer::{Report, Side, Transfer};
use sabul_files::SourceSet;
use sabul_files::testing::MemoryDisk;

/// Memory budget of a process, in bytes.
const MEMORY: usize = 64 << 20;
/// Duration of a server restart.
const RESTART_TIME: Duration = Duration::from_millis(1500);
const SUITE: Suite = Suite::Aes128Gcm;

/// A process: its tasks, and its view of the disk.
#[derive(Debug)]
struct Process {
    tasks: Tasks,
    disk: MemoryDisk,
    is_up: bool,
    endpoint: Arc<Endpoint>,
}

impl Process {
    fn new(disk: MemoryDisk) -> Self {
        let tasks = Tasks::default();
        let machine = Machine::World(tasks.clone());
        let memory = MemoryBudget::of(MEMORY);
        let policy = SendPolicy::default();
        let endpoint = Endpoint::new(
            machine,
            memory,
            Timeouts::default(),
            policy,
            None,
            None,
            PathMemory::default(),
        );
        Self { tasks, disk, is_up: true, endpoint }
    }

    /// Kills the process and starts a new one.
    fn restart(&mut self, is_power_cut: bool) {
        // The disk first: drop handlers of the tasks must not reach it.
        if is_power_cut {
            self.disk.cut_power();
        } else {
            self.disk.kill();
        }
        self.tasks.kill();
        *self = Self::new(self.disk.process());
    }
}

/// Host of a listener.
#[derive(Debug)]
pub(super) struct Server {
    net: Net,
    rtt: Duration,
    process: Mutex<Process>,
    /// The disk, independent of processes.
    disk: MemoryDisk,
    faults: Mutex<Vec<Tasks>>,
}

impl Server {
    pub(super) fn new(net: Net, rtt: Duration, disk: MemoryDisk) -> Self {
        let process = Process::new(disk.process());
        let faults = Mutex::new(vec![process.tasks.clone()]);
        Self { net, rtt, process: Mutex::new(process), disk, faults }
    }

    pub(super) const fn disk(&self) -> &MemoryDisk {
        &self.disk
    }

    /// The disk as the current process sees it; `None` during a restart.
    pub(super) fn disk_of_process(&self) -> Option<MemoryDisk> {
        let process = lock(&self.process);
        process.is_up.then(|| process.disk.clone())
    }

    /// Whether an injected disk fault has killed the process.
    pub(super) fn disk_is_dead(&self) -> bool {
        lock(&self.process).disk.is_dead()
    }

    pub(super) fn is_at_fault(&self) -> bool {
        lock(&self.faults).iter().any(Tasks::is_at_fault)
    }

    /// Kills the process, and starts a new one after the downtime.
    pub(super) async fn restart(&self, is_power_cut: bool) {
        {
            let mut process = lock(&self.process);
            process.restart(is_power_cut);
            process.is_up = false;
            lock(&self.faults).push(process.tasks.clone());
        }
        sleep(RESTART_TIME).await;
        lock(&self.process).is_up = true;
    }

    /// Lent and total bytes of the memory budget.
    pub(super) fn memory(&self) -> (usize, usize) {
        let memory = &lock(&self.process).endpoint.memory;
        (memory.lent(), memory.bytes())
    }

    /// Connects a hostile peer.
    pub(super) fn attack(&self, seed: u64) -> impl Future<Output = ()> + use<> {
        let secret = blake3::hash(&seed.to_be_bytes()).into();
        let (near, far, _) = Wire::pair(self.rtt / 2, secret);
        let is_let_in = self.accept(far).is_ok();
        async move {
            if is_let_in {
                super::hostile::attack(near, seed).await;
            }
        }
    }

    /// Accepts a connection, and sends the Welcome message.
    fn accept(&self, far: Wire) -> Result<(), Error> {
        let process = lock(&self.process);
        if !process.is_up {
            return Err(Error::PeerGone("nobody listens".into()));
        }
        let (endpoint, disk) = (Arc::clone(&process.endpoint), Arc::new(process.disk.clone()));
        let end = End::listener(self.net.clone(), self.rtt);
        process.tasks.spawn(async move {
            let mut far = Connection::over(Stream::World(far));
            let Ok(Some(Message::Hello { .. })) = far.read_at_most(1024).await else { return };
            let welcome = Message::Welcome {
                version: CONTROL_VERSION,
                suite: SUITE.code(),
                software: software(),
            };
            let peer = end.peer();
            let side = Side::World(end);
            let Ok(loan) = endpoint.memory.session() else { return };
            let session = {
                let opening = Opening {
                    first: welcome,
                    suite: Some(SUITE),
                    user: None,
                    succession: Succession::None,
                };
                Session::start(far, side, peer, endpoint, loan, opening)
            };
            let _ = session.serve_on(Some(disk), &Service::default(), None, |_| {}).await;
        });
        Ok(())
    }
}

/// Host of a connector.
#[derive(Debug)]
pub(super) struct Client {
    process: Mutex<Process>,
    disk: MemoryDisk,
    faults: Mutex<Vec<Tasks>>,
    grips: Mutex<Vec<FaultHandle>>,
    calls: Mutex<u32>,
    number: usize,
    /// Uploads with flushes to the disk (`sync`).
    is_durable: bool,
    /// Number of paths of each transfer.
    paths: u8,
}

impl Client {
    pub(super) fn new(disk: MemoryDisk, number: usize, is_durable: bool, paths: u8) -> Self {
        let process = Process::new(disk.process());
        let faults = Mutex::new(vec![process.tasks.clone()]);
        let (grips, calls) = (Mutex::default(), Mutex::new(0));
        Self { process: Mutex::new(process), disk, faults, grips, calls, number, is_durable, paths }
    }

    pub(super) const fn disk(&self) -> &MemoryDisk {
        &self.disk
    }

    pub(super) fn is_at_fault(&self) -> bool {
        lock(&self.faults).iter().any(Tasks::is_at_fault)
    }

    /// Waits until the current process is killed.
    pub(super) fn death(&self) -> impl Future<Output = ()> + use<> {
        let tasks = lock(&self.process).tasks.clone();
        async move {
            while !tasks.is_dead() {
                sleep(Duration::from_millis(10)).await;
            }
        }
    }

    /// Kills the process and starts a new one at once.
    pub(super) fn restart(&self) {
        let mut process = lock(&self.process);
        process.restart(false);
        lock(&self.faults).push(process.tasks.clone());
    }

    /// Resets the control connections.
    pub(super) fn reset(&self) {
        lock(&self.grips).iter().for_each(FaultHandle::cut);
    }

    /// Blocks the control connections until this time.
    pub(super) fn hold(&self, until: Instant) {
        lock(&self.grips).iter().for_each(|grip| grip.hold(until));
    }

    pub(super) fn dial(&self, server: &Server) -> Result<Session, Error> {
        let secret = {
            let mut calls = lock(&self.calls);
            *calls += 1;
            // Each call of each client has its own channel secrets.
            blake3::hash(format!("{} {calls}", self.number).as_bytes()).into()
        };
        let (near, far, grip) = Wire::pair(server.rtt / 2, secret);
        server.accept(far)?;
        lock(&self.grips).push(grip);
        let process = lock(&self.process);
        let end = End::connector(server.net.clone(), server.rtt, self.paths);
        let hello = Message::Hello {
            version: CONTROL_VERSION,
            proof: [0; 32],
            suites: vec![SUITE.code()],
            software: software(),
        };
        let peer = end.peer();
        let near = Connection::over(Stream::World(near));
        let endpoint = Arc::clone(&process.endpoint);
        let loan = endpoint.memory.session()?;
        let opening = Opening::of_connector(hello, Succession::None);
        Ok(Session::start(near, Side::World(end), peer, endpoint, loan, opening))
    }

    fn options(&self) -> TransferOptions {
        let sync = self.is_durable;
        TransferOptions::default().block_size(Bytes(4096)).sync(sync)
    }

    /// Uploads everything below `source` to the server's root.
    pub(super) async fn put(&self, server: &Server, source: Vec<u8>) -> Result<Report, Error> {
        self.put_set(server, self.sources(source), Vec::new()).await
    }

    /// The content of a directory of this host.
    pub(super) fn sources(&self, source: Vec<u8>) -> SourceSet {
        let disk = Arc::new(lock(&self.process).disk.clone());
        SourceSet::in_disk(disk, vec![source], true)
    }

    /// Uploads these sources into a directory of the server.
    pub(super) async fn put_set(
        &self,
        server: &Server,
        set: SourceSet,
        path: Vec<u8>,
    ) -> Result<Report, Error> {
        self.put_with(server, set, path, &self.options()).await
    }

    /// The same with these options.
    pub(super) async fn put_with(
        &self,
        server: &Server,
        set: SourceSet,
        path: Vec<u8>,
        options: &TransferOptions,
    ) -> Result<Report, Error> {
        let session = self.dial(server)?;
        let to = RemoteDestination { path, into_directory: true };
        let transfer = session.put(set, to, options).await?;
        let result = transfer.finish().await;
        session.close().await;
        result
    }

    /// Downloads a folder into another folder.
    pub(super) async fn get(
        &self,
        server: &Server,
        source: Vec<u8>,
        to: Vec<u8>,
    ) -> Result<Report, Error> {
        let session = self.dial(server)?;
        let disk = Arc::new(lock(&self.process).disk.clone());
        let to = LocalDestination::Served { disk, path: to, into_directory: true };
        let transfer = session.get(vec![source], true, to, &self.options()).await?;
        let result = transfer.finish().await;
        session.close().await;
        result
    }
}

impl Client {
    /// Starts the upload of a file, or else its download, into the root of the other end.
    pub(super) async fn copy(
        &self,
        session: &Session,
        is_upload: bool,
        source: Vec<u8>,
        options: &TransferOptions,
    ) -> Result<Transfer, Error> {
        if is_upload {
            let to = RemoteDestination { path: Vec::new(), into_directory: true };
            return session.put(self.sources(source), to, options).await;
        }
        let disk = Arc::new(lock(&self.process).disk.clone());
        let to = LocalDestination::Served { disk, path: Vec::new(), into_directory: true };
        session.get(vec![source], false, to, options).await
    }
}

/// Lets no packet or byte pass for this time. The links are those after the outage.
pub(super) async fn outage(net: &Net, clients: &[Client], links: [&LinkConfig; 2], time: Duration) {
    let until = Instant::now() + time;
    clients.iter().for_each(|client| client.hold(until));
    let silent = LinkConfig::builder().with_loss(Probability::ONE).build().unwrap();
    net.set_links(silent.clone(), silent, 7);
    tokio::time::sleep_until(until).await;
    let [forward, back] = links;
    net.set_links(forward.clone(), back.clone(), 8);
}
