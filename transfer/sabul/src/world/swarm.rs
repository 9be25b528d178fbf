//! Randomized simulation tests: each seed draws paths, files, transfers and faults.
//!
//! Checked throughout: a final name leads to the complete content of a version sent under that
//! name; no task panics; every transfer ends within its time limit, with success or a reason.
//! Checked at the end: entries reported as complete survive a power failure. After the last fault,
//! the same transfers succeed and leave no partial files. Leftovers of other users stay as they are.
//! `SABUL_WORLD_SEED=n` runs one seed, `SABUL_WORLD_SEEDS=n` runs the first n.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::io::Errno;
use sabul_net::{LinkConfig, QueueLimit};
use sabul_units::{Probability, Random, Rate, SeededRandom, Span};
use tokio::time::{Instant, sleep};

use super::host::{Client, Server, outage};
use super::net::Net;
use crate::error::Error;
use crate::transfer::Report;
use sabul_files::PART_SUFFIX;
use sabul_files::root::RootPath;
use sabul_files::testing::{Fault, HOSTILE_FOLDER, MemoryDisk};

const SEEDS_BY_DEFAULT: u64 = 1000;
/// Time limit of a transfer; after the last fault, transfers must succeed within it.
pub(super) const BOUND: Duration = Duration::from_secs(240);
/// Interval of the checks.
pub(super) const CHECK_INTERVAL: Duration = Duration::from_millis(25);

/// Possible contents by path.
type Versions = BTreeMap<Vec<u8>, BTreeSet<Vec<u8>>>;

#[derive(Clone, PartialEq, Eq)]
struct Job {
    /// Index of the client.
    client: usize,
    /// Upload to the server; otherwise a download.
    is_upload: bool,
    /// Delay before the start.
    after: Duration,
    /// Names below the copied folder, with their contents.
    files: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl fmt::Debug for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let way = if self.is_upload { "puts" } else { "gets" };
        write!(f, "client {} {way} after {:?}:", self.client, self.after)?;
        for (name, content) in &self.files {
            write!(f, " {} ({})", String::from_utf8_lossy(name), content.len())?;
        }
        Ok(())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Disturbance {
    /// Kills the server process; it restarts after a while.
    KillServer,
    /// Power failure of the server.
    CutPower,
    /// Kills a client process; the client retries.
    KillClient(usize),
    /// All control connections are reset.
    Reset,
    /// No packet or byte passes for this time.
    Outage(Duration),
    /// A fault at this disk call of the server; the disk is healed after a while.
    Disk(usize, Fault),
    /// Some disk calls fail with this error.
    Flaky(Errno),
    /// The disk has this much room left, in bytes.
    Full(u64),
    /// A hostile peer with a valid ticket connects.
    HostilePeer(u64),
    /// Another user copies journals and parts on the server's disk, with changed content in parts.
    Leave(u64),
    Nothing,
}

#[derive(Clone, Debug)]
struct Plan {
    /// Uploads with flushes to the disk (`sync`).
    is_durable: bool,
    forward: LinkConfig,
    back: LinkConfig,
    rtt: Duration,
    clients: usize,
    has_short_writes: bool,
    /// The server's disk is an overlay: only the flush of a file returns write errors.
    is_overlay: bool,
    jobs: Vec<Job>,
    disturbances: Vec<(Duration, Disturbance)>,
    /// Number of paths of each transfer.
    paths: u8,
    /// A path drops everything: from when, which, and how long.
    cuts: Vec<(Duration, u8, Duration)>,
}

pub(super) struct Draw(pub(super) SeededRandom);

impl Draw {
    pub(super) fn between(&mut self, least: u64, most: u64) -> u64 {
        least + self.0.below(most - least + 1)
    }

    pub(super) fn one_in(&mut self, n: u64) -> bool {
        self.0.below(n) == 0
    }

    pub(super) fn millis(&mut self, least: u64, most: u64) -> Duration {
        Duration::from_millis(self.between(least, most))
    }

    pub(super) fn link(&mut self, delay_us: u64, rate: Rate) -> LinkConfig {
        let mut link = LinkConfig::builder()
            .with_rate(Some(rate))
            .with_delay(Span::from_micros(delay_us))
            .with_queue(QueueLimit::Packets(self.between(20, 300)));
        if self.one_in(2) {
            link = link.with_loss(Probability::per_mille(self.between(1, 60)));
        }
        if self.one_in(4) {
            link = link.with_duplicate(Probability::per_mille(self.between(1, 30)));
        }
        if self.one_in(4) {
            let by = Span::from_micros(self.between(100, 20_000));
            link = link.with_reorder(Probability::per_mille(self.between(1, 50)), by);
        }
        if self.one_in(6) {
            link = link.with_corrupt(Probability::per_mille(self.between(1, 10)));
        }
        link.build().unwrap()
    }

    fn job(&mut self, clients: usize) -> Job {
        let count = self.between(1, 8);
        let folder = self.between(0, 2);
        let mut files = BTreeMap::new();
        for _ in 0..count {
            // Few names, so that transfers collide.
            let deep = if self.one_in(3) { "deep/" } else { "" };
            let name = format!("f{folder}/{deep}{}", self.between(0, 9));
            let length = if self.one_in(4) { 0 } else { self.between(1, 60_000) };
            let fill = u8::try_from(self.between(0, 255)).unwrap();
            // No two pages are equal, so torn content cannot pass for a complete version.
            let content = (0..length).map(|i| fill.wrapping_add((i / 97) as u8)).collect();
            files.insert(name.into_bytes(), content);
        }
        Job {
            client: usize::try_from(self.between(0, clients as u64 - 1)).unwrap(),
            is_upload: !self.one_in(4),
            after: self.millis(0, 3000),
            files,
        }
    }

    fn disturbance(&mut self, clients: usize) -> Disturbance {
        let errno = [Errno::IO, Errno::NOSPC, Errno::DQUOT][self.0.below(3) as usize];
        match self.0.below(13) {
            0 => Disturbance::KillServer,
            1 => Disturbance::CutPower,
            2 => Disturbance::KillClient(self.0.below(clients as u64) as usize),
            3 => Disturbance::Reset,
            4 => Disturbance::Outage(self.millis(200, 45_000)),
            5 => {
                let fault = match self.0.below(4) {
                    0 => Fault::ReadOnly,
                    1 => Fault::Kill,
                    2 => Fault::PowerCut,
                    _ => Fault::Error(errno),
                };
                Disturbance::Disk(self.between(0, 40) as usize, fault)
            }
            6 => Disturbance::Flaky(errno),
            7 => Disturbance::Full(self.between(0, 100_000)),
            8 => Disturbance::HostilePeer(self.0.next_u64()),
            9 | 10 => Disturbance::Leave(self.0.next_u64()),
            _ => Disturbance::Nothing,
        }
    }

    fn plan(&mut self) -> Plan {
        let clients = self.between(1, 3) as usize;
        let delay = self.between(100, 60_000);
        let rate = Rate::from_mbps(self.between(2, 200));
        let jobs = (0..self.between(1, 4)).map(|_| self.job(clients)).collect();
        let disturbances =
            (0..self.between(0, 3)).map(|_| (self.millis(0, 6000), self.disturbance(clients)));
        let mut plan = Plan {
            is_durable: true,
            disturbances: disturbances.collect(),
            forward: self.link(delay, rate),
            back: self.link(delay, rate),
            rtt: Duration::from_micros(2 * delay),
            clients,
            has_short_writes: self.one_in(3),
            is_overlay: self.one_in(2),
            jobs,
            paths: 1,
            cuts: Vec::new(),
        };
        if self.one_in(2) {
            plan.paths = u8::try_from(self.between(2, 4)).unwrap();
            plan.cuts = (0..self.between(0, 4)).map(|_| self.cut(plan.paths)).collect();
        }
        plan
    }

    fn cut(&mut self, paths: u8) -> (Duration, u8, Duration) {
        let path = u8::try_from(self.0.below(paths.into())).unwrap();
        (self.millis(0, 4000), path, self.millis(50, 20_000))
    }
}

pub(super) fn path(bytes: &[u8]) -> RootPath {
    RootPath::new(bytes.split(|byte| *byte == b'/')).unwrap()
}

/// Folder of a job on the client's disk.
fn folder(job: usize) -> Vec<u8> {
    format!("job{job}").into_bytes()
}

/// Permitted contents on the disks of the server and the clients.
#[derive(Debug, Default)]
struct PermittedContents {
    server: Versions,
    clients: Vec<Versions>,
    /// Names reported as durable on the server by an upload; the content may be that of a later
    /// upload.
    kept: BTreeSet<Vec<u8>>,
    /// Leftovers of another user on the server's disk.
    foreign: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl PermittedContents {
    /// Checks that every final name leads to a complete version sent there.
    fn check(versions: &Versions, disk: &MemoryDisk, whose: &str) {
        for (name, content) in disk.tree() {
            let Some(content) = content else { continue };
            let is_in_lair = name
                .strip_prefix(HOSTILE_FOLDER)
                .is_some_and(|rest| rest.is_empty() || rest.first() == Some(&b'/'));
            if name.ends_with(PART_SUFFIX) || is_in_lair {
                continue;
            }
            let is_known = versions.get(&name).is_some_and(|known| known.contains(&content));
            let shown = String::from_utf8_lossy(&name);
            assert!(is_known, "{whose}: {shown} leads to {} bytes never sent", content.len());
        }
    }
}

struct World {
    plan: Plan,
    net: Net,
    server: Server,
    clients: Vec<Client>,
    truth: Mutex<PermittedContents>,
}

impl World {
    fn new(seed: u64, plan: Plan) -> Self {
        let net = Net::new(plan.forward.clone(), plan.back.clone(), seed);
        let server = Server::new(net.clone(), plan.rtt, MemoryDisk::new(seed));
        let mut truth = PermittedContents::default();
        let mut clients = Vec::new();
        for n in 0..plan.clients {
            let disk = MemoryDisk::new(seed ^ (n as u64 + 1) << 40);
            clients.push(Client::new(disk, n, plan.is_durable, plan.paths));
            truth.clients.push(Versions::new());
        }
        if plan.has_short_writes {
            server.disk().write_in_pieces();
        }
        if plan.is_overlay {
            server.disk().be_overlay();
        }
        for (n, job) in plan.jobs.iter().enumerate() {
            for (name, content) in &job.files {
                let below = |folder: &[u8]| [folder, b"/", name.as_slice()].concat();
                let mine = &mut truth.clients[job.client];
                let know = |versions: &mut Versions, name| {
                    versions.entry(name).or_default().insert(content.clone());
                };
                if job.is_upload {
                    clients[job.client].disk().put(&path(&below(&folder(n))), content).unwrap();
                    know(mine, below(&folder(n)));
                    know(&mut truth.server, name.clone());
                } else {
                    // Download sources are in folders that no upload uses.
                    let there = below(format!("for{n}").as_bytes());
                    server.disk().put(&path(&there), content).unwrap();
                    know(&mut truth.server, there.clone());
                    let here = [b"got/".as_slice(), &there].concat();
                    know(mine, here);
                }
            }
        }
        Self { plan, net, server, clients, truth: Mutex::new(truth) }
    }

    fn check(&self) {
        let truth = self.truth.lock().unwrap();
        PermittedContents::check(&truth.server, self.server.disk(), "server");
        for (client, versions) in self.clients.iter().zip(&truth.clients) {
            PermittedContents::check(versions, client.disk(), "client");
        }
        let (lent, most) = self.server.memory();
        assert!(lent <= most, "{lent} bytes are lent of {most}");
        assert!(!self.server.is_at_fault(), "a task of the server panicked");
        assert!(!self.clients.iter().any(Client::is_at_fault), "a task of a client panicked");
    }

    /// Runs a job once, without a time limit.
    async fn report(&self, n: usize) -> Result<Report, Error> {
        let job = &self.plan.jobs[n];
        let client = &self.clients[job.client];
        if job.is_upload {
            let source = [folder(n).as_slice(), b"/"].concat();
            client.put(&self.server, source).await
        } else {
            client.get(&self.server, format!("for{n}").into_bytes(), b"got".to_vec()).await
        }
    }

    /// Runs a job once, within the time limit.
    async fn attempt(&self, n: usize) -> Result<(), Error> {
        let job = &self.plan.jobs[n];
        let client = &self.clients[job.client];
        let transfer = async {
            let report = self.report(n).await?;
            if let Some((_, failure)) = report.failures.first() {
                return Err(Error::Failed(failure.clone()));
            }
            assert!(report.verified && report.entries_failed == 0, "{report:?}");
            Ok(())
        };
        let died = client.death();
        let transfer = async {
            tokio::select! {
                biased;
                result = transfer => result,
                () = died => Err(Error::Cancelled),
            }
        };
        let result = tokio::time::timeout(BOUND, transfer).await;
        let Ok(result) = result else { panic!("job {n} does not end: {job:?}") };
        if let Err(error) = &result {
            let text = error.to_string();
            assert!(!text.is_empty() && !text.contains("fault of this program"), "{text}");
        }
        if result.is_ok() && job.is_upload {
            self.truth.lock().unwrap().kept.extend(job.files.keys().cloned());
        }
        result
    }

    async fn apply(&self, disturbance: Disturbance) {
        match disturbance {
            Disturbance::KillServer => self.server.restart(false).await,
            Disturbance::CutPower => self.server.restart(true).await,
            Disturbance::KillClient(n) => self.clients[n].restart(),
            Disturbance::Reset => self.clients.iter().for_each(Client::reset),
            Disturbance::Outage(time) => {
                let links = [&self.plan.forward, &self.plan.back];
                outage(&self.net, &self.clients, links, time).await;
            }
            Disturbance::Disk(call, fault) => {
                self.server.disk().fail_at(call, fault);
                sleep(Duration::from_secs(2)).await;
                self.heal().await;
            }
            Disturbance::Flaky(errno) => {
                self.server.disk().fail_sometimes(Probability::per_mille(100), errno);
                sleep(Duration::from_secs(2)).await;
                self.heal().await;
            }
            Disturbance::Full(bytes) => {
                self.server.disk().leave_room(bytes);
                sleep(Duration::from_secs(2)).await;
                self.heal().await;
            }
            Disturbance::HostilePeer(seed) => {
                let attack = self.server.attack(seed);
                attack.await;
            }
            Disturbance::Leave(seed) => self.leave(&mut SeededRandom::new(seed)),
            Disturbance::Nothing => {}
        }
        self.check();
    }

    /// Adds leftovers of another user: copies of the journals and parts that are there, or made up.
    fn leave(&self, random: &mut SeededRandom) {
        let disk = self.server.disk();
        let mut left = Vec::new();
        for (name, content) in disk.tree() {
            let Some(mut content) = content.filter(|_| name.ends_with(PART_SUFFIX)) else {
                continue;
            };
            let text = String::from_utf8_lossy(&name).into_owned();
            let other = match text.split_once(".resume-") {
                Some((folder, _)) => format!("{folder}.resume-{}.sabul-part", 3 + random.below(9)),
                None => {
                    content.iter_mut().for_each(|byte| *byte ^= 0x55);
                    let end = text.find(".kept").map_or(PART_SUFFIX.len(), |at| text.len() - at);
                    let stem = &text[..text.len() - end - 16];
                    format!("{stem}{:016x}{}", random.next_u64(), &text[text.len() - end..])
                }
            };
            left.push((other.into_bytes(), content));
        }
        for job in self.plan.jobs.iter().filter(|job| job.is_upload) {
            let (name, content) = job.files.iter().next().expect("a job has files");
            let part = format!(".{:016x}.kept.sabul-part", random.next_u64());
            left.push(([name.as_slice(), part.as_bytes()].concat(), vec![7; content.len()]));
        }
        let mut truth = self.truth.lock().unwrap();
        for (name, content) in left {
            let mode = [0o600, 0o666][random.below(2) as usize];
            // A name in use, or a file where a folder has to be.
            if disk.tree().contains_key(&name) || disk.put(&path(&name), &content).is_err() {
                continue;
            }
            disk.own(&path(&name), 7, mode).unwrap();
            truth.foreign.insert(name, content);
        }
    }

    /// Heals the disk, and restarts the server if a disk fault has killed it.
    async fn heal(&self) {
        self.server.disk().heal();
        if self.server.disk_is_dead() {
            self.server.restart(false).await;
        }
    }

    async fn run(self: &Arc<Self>) {
        let mut jobs = tokio::task::JoinSet::new();
        for n in 0..self.plan.jobs.len() {
            let world = Arc::clone(self);
            jobs.spawn(async move {
                sleep(world.plan.jobs[n].after).await;
                // The result does not matter here, only that the attempt ends.
                let _ = world.attempt(n).await;
            });
        }
        for (after, disturbance) in self.plan.disturbances.clone() {
            let world = Arc::clone(self);
            jobs.spawn(async move {
                sleep(after).await;
                world.apply(disturbance).await;
            });
        }
        let cuts = self.cut_paths();
        while !jobs.is_empty() {
            tokio::select! {
                biased;
                ended = jobs.join_next() => if let Some(Err(error)) = ended {
                    std::panic::resume_unwind(error.into_panic());
                },
                () = sleep(CHECK_INTERVAL) => self.check(),
            }
        }
        for cut in cuts {
            cut.await.unwrap();
        }
        self.heal().await;
        self.end().await;
    }

    /// Starts the cuts of paths.
    fn cut_paths(&self) -> Vec<tokio::task::JoinHandle<()>> {
        let cut = |(after, path, time)| {
            let net = self.net.clone();
            tokio::spawn(async move {
                sleep(after).await;
                net.set_cut(path, true);
                sleep(time).await;
                net.set_cut(path, false);
            })
        };
        self.plan.cuts.iter().copied().map(cut).collect()
    }

    /// Final phase: all transfers must succeed, and their files must stay.
    async fn end(self: &Arc<Self>) {
        // Entries reported as complete must survive a power failure.
        self.server.restart(true).await;
        self.check();
        let tree = self.server.disk().tree();
        for name in &self.truth.lock().unwrap().kept {
            assert!(tree.contains_key(name), "{} is gone", String::from_utf8_lossy(name));
        }
        // Writers of parts were killed, or their process no longer uses the parts.
        self.clients.iter().for_each(Client::restart);
        for n in 0..self.plan.jobs.len() {
            let mut last = None;
            for _ in 0..3 {
                last = Some(self.attempt(n).await);
                if matches!(last, Some(Ok(()))) {
                    break;
                }
            }
            assert!(
                matches!(last, Some(Ok(()))),
                "job {n} fails though nothing is wrong: {last:?}"
            );
        }
        sleep(Duration::from_secs(3)).await;
        self.check();
        let foreign = self.truth.lock().unwrap().foreign.clone();
        let tree = self.server.disk().tree();
        for (name, content) in &foreign {
            let shown = String::from_utf8_lossy(name);
            assert_eq!(tree.get(name), Some(&Some(content.clone())), "{shown} of another user");
        }
        let disks = self.clients.iter().map(Client::disk).chain([self.server.disk()]);
        for disk in disks {
            let is_own =
                |name: &Vec<u8>| name.ends_with(PART_SUFFIX) && !foreign.contains_key(name);
            let parts = disk.tree().into_keys().filter(is_own);
            let parts: Vec<String> =
                parts.map(|name| String::from_utf8_lossy(&name).into_owned()).collect();
            assert!(parts.is_empty(), "left behind: {parts:?}");
        }
    }
}

/// Runs the simulation of a seed; returns a digest of the run.
fn run(seed: u64) -> String {
    run_plan(seed, Draw(SeededRandom::new(seed)).plan())
}

fn run_plan(seed: u64, plan: Plan) -> String {
    let shown = format!("{plan:?}");
    in_virtual_time(&format!("SABUL_WORLD_SEED={seed}"), "swarm", &shown, async {
        let began = Instant::now();
        let world = Arc::new(World::new(seed, plan));
        world.run().await;
        let calls = world.server.disk().calls().len();
        format!("{:?} {calls} {:?}", began.elapsed(), world.server.disk().tree().len())
    })
}

/// Runs a world on a clock that starts at zero and passes over all waits. If the world fails, prints the command that
/// repeats the run, and its plan.
pub(super) fn in_virtual_time<T>(
    variable: &str,
    tests: &str,
    plan: &str,
    world: impl Future<Output = T>,
) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| runtime.block_on(world)));
    result.unwrap_or_else(|fault| {
        eprintln!("{variable} cargo test -p sabul --lib world::{tests}\n{plan}");
        std::panic::resume_unwind(fault)
    })
}

pub(super) fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap())
}

#[test]
fn under_random_faults_files_equal_the_sent_content_and_transfers_end() {
    if let Some(seed) = number("SABUL_WORLD_SEED") {
        println!("{}", run(seed));
        return;
    }
    let seeds = number("SABUL_WORLD_SEEDS").unwrap_or(SEEDS_BY_DEFAULT);
    let next = std::sync::atomic::AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(2, usize::from) {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    if seed >= seeds {
                        return;
                    }
                    run(seed);
                }
            });
        }
    });
}

#[test]
fn a_seed_determines_the_simulated_world() {
    for seed in 0..3 {
        assert_eq!(run(seed), run(seed), "seed {seed}");
    }
}

/// Longest time without new bytes in a report.
fn longest_stall(report: &Report) -> f64 {
    let times = report.intervals.iter().filter(|it| it.bytes > 0).map(|it| it.t_s);
    let (mut last, mut longest) = (0.0_f64, 0.0_f64);
    for time in times {
        longest = longest.max(time - last);
        last = time;
    }
    longest
}

#[test]
fn while_a_path_works_no_cut_of_others_stalls_a_transfer() {
    for seed in 0..number("SABUL_WORLD_SEEDS").unwrap_or(60) {
        let mut draw = Draw(SeededRandom::new(seed ^ 77));
        let paths = u8::try_from(draw.between(2, 4)).unwrap();
        // Path 0 works all the time; the others are cut and pass again.
        let cuts = (0..draw.between(1, 6)).map(|_| {
            let path = 1 + u8::try_from(draw.0.below(u64::from(paths) - 1)).unwrap();
            (draw.millis(0, 5000), path, draw.millis(50, 3000))
        });
        let cuts: Vec<_> = cuts.collect();
        let link = || {
            let link = LinkConfig::builder().with_rate(Some(Rate::from_mbps(2)));
            link.with_delay(Span::from_millis(15)).with_queue(QueueLimit::Packets(60)).build()
        };
        let files = |n| (0..20).map(move |i| (format!("f{i}").into_bytes(), vec![i ^ n; 60_000]));
        let job = |n: u8| Job {
            client: 0,
            is_upload: n == 0,
            after: Duration::ZERO,
            files: files(n).collect(),
        };
        let plan = Plan {
            is_durable: true,
            forward: link().unwrap(),
            back: link().unwrap(),
            rtt: Duration::from_millis(30),
            clients: 1,
            has_short_writes: false,
            is_overlay: false,
            jobs: vec![job(u8::try_from(seed % 2).unwrap())],
            disturbances: Vec::new(),
            paths,
            cuts,
        };
        let shown = format!("{plan:?}");
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        let report = runtime.block_on(async {
            let world = Arc::new(World::new(seed, plan));
            world.cut_paths();
            world.report(0).await.unwrap()
        });
        let stall = longest_stall(&report);
        assert!(stall <= 3.0, "seed {seed}: no byte for {stall} s\n{shown}");
    }
}

/// Control test: without flushes, the checks must detect lost files.
#[test]
fn unflushed_files_are_detected_as_lost_after_a_power_cut() {
    let loses = |seed: u64| {
        let plan = Draw(SeededRandom::new(seed)).plan();
        let plan = Plan { is_durable: false, disturbances: Vec::new(), ..plan };
        std::panic::catch_unwind(|| run_plan(seed, plan)).is_err()
    };
    assert!((0..20).any(loses), "files that were never flushed all survived");
}
