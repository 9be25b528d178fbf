//! Randomized simulation of directories in step: each seed draws trees, changes, two writers and faults.
//!
//! Two clients send what differs from their trees to one directory of the server, and remove what their trees lack, as
//! `sabul sync --delete` does. Files travel through sessions. Listings, removals and new metadata use the functions that
//! serve these requests, directly on the disks, because the requests themselves need threads.
//!
//! Checked throughout: each file of the server is a whole version of its name; a file vanishes only if a comparison
//! listed exactly that file as extra; no excluded file vanishes. Checked at the end: after the last fault, the sync of one
//! client succeeds, and its tree and the directory are equal.
//! `SABUL_SYNC_SEED=n` runs one seed, `SABUL_SYNC_SEEDS=n` runs the first n.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::io::Errno;
use sabul_files::disk::Disk as _;
use sabul_files::root::RootError;
use sabul_files::testing::{Fault, MemoryDisk};
use sabul_files::{
    CompareOptions, Comparison, Difference, DirectoryListing, ListingStep, NameChange, PART_SUFFIX,
    Rules, Selected, Selection, is_journal, is_part, recognized, set_metadata,
};
use sabul_net::LinkConfig;
use sabul_units::{Probability, Random as _, Rate, SeededRandom};
use sabul_wire::control::{
    Facts, Failure, FailureCode, ListOptions, NewMetadata, Rule, RuleKind, Seen, SeenKind, View,
};
use tokio::time::sleep;

use super::host::{Client, Server, outage};
use super::net::Net;
use super::swarm::{BOUND, CHECK_INTERVAL, Draw, in_virtual_time, number, path};
use crate::error::Error;

const SEEDS_BY_DEFAULT: u64 = 1000;
const CLIENTS: u64 = 2;
/// Directory of the server, and of each client.
pub(super) const TO: &[u8] = b"to/";
pub(super) const FROM: &[u8] = b"tree/";
/// Names with this end are excluded.
const EXCLUDED: &[u8] = b".log";

/// Files by name, with their contents.
pub(super) type Files = BTreeMap<Vec<u8>, Vec<u8>>;

#[derive(Clone)]
enum Act {
    /// A sync of this client.
    Sync(usize),
    /// A file of this client is replaced by another one.
    Replace(usize, Vec<u8>, Vec<u8>),
    /// The content of a file of this client is overwritten.
    Overwrite(usize, Vec<u8>, u8),
    /// A file or an empty directory of this client is removed.
    Remove(usize, Vec<u8>),
    /// Another program makes a file in the directory of the server.
    Make(Vec<u8>, Vec<u8>),
    /// The clock of the server, or of a client, moves by these nanoseconds.
    Clock(Option<usize>, i64),
    KillServer,
    CutPower,
    KillClient(usize),
    Reset,
    Outage(Duration),
    Disk(usize, Fault),
    Flaky(Errno),
    Full(u64),
}

#[derive(Clone)]
struct Plan {
    forward: LinkConfig,
    back: LinkConfig,
    rtt: Duration,
    is_overlay: bool,
    trees: Vec<Files>,
    old: Files,
    acts: Vec<(Duration, Act)>,
    /// The client whose sync is the last.
    last: usize,
    /// Extra entries are removed whatever has their names meanwhile.
    is_careless: bool,
}

/// Numbers of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    /// Syncs that succeeded, and others.
    complete: u32,
    failed: u32,
    /// Extra entries that were removed, and others.
    removed: u32,
    left: u32,
    copied: u64,
}

impl fmt::Debug for Act {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = String::from_utf8_lossy;
        match self {
            Self::Sync(client) => write!(f, "client {client} syncs"),
            Self::Replace(client, name, _) => write!(f, "client {client} replaces {}", shown(name)),
            Self::Overwrite(client, name, _) => {
                write!(f, "client {client} changes {}", shown(name))
            }
            Self::Remove(client, name) => write!(f, "client {client} removes {}", shown(name)),
            Self::Make(name, _) => write!(f, "another program makes {}", shown(name)),
            Self::Clock(client, by_ns) => write!(f, "clock of {client:?} by {by_ns} ns"),
            Self::KillServer => f.write_str("server killed"),
            Self::CutPower => f.write_str("power of the server cut"),
            Self::KillClient(client) => write!(f, "client {client} killed"),
            Self::Reset => f.write_str("connections reset"),
            Self::Outage(time) => write!(f, "outage of {time:?}"),
            Self::Disk(call, fault) => write!(f, "{fault:?} at call {call}"),
            Self::Flaky(errno) => write!(f, "some calls fail: {errno}"),
            Self::Full(bytes) => write!(f, "{bytes} bytes free"),
        }
    }
}

impl Draw {
    fn client(&mut self) -> usize {
        usize::try_from(self.0.below(CLIENTS)).unwrap()
    }

    fn name(&mut self) -> Vec<u8> {
        let folder = ["", "", "a/", "a/b/", "c/"][self.0.below(5) as usize];
        let end = if self.one_in(8) { ".log" } else { "" };
        format!("{folder}{}{end}", self.between(0, 5)).into_bytes()
    }

    /// Content that no other file has: it begins with a number, and no two pages of a file are equal.
    fn content(&mut self) -> Vec<u8> {
        let serial = self.0.next_u64().to_be_bytes();
        let length = if self.one_in(4) { 0 } else { self.between(1, 30_000) };
        let rest = (0..length).map(|i| serial[0].wrapping_add((i / 97) as u8));
        serial.into_iter().chain(rest).collect()
    }

    fn files(&mut self, most: u64) -> Files {
        (0..self.between(0, most)).map(|_| (self.name(), self.content())).collect()
    }

    fn act(&mut self) -> Act {
        let client = self.client();
        match self.0.below(24) {
            0..=6 => Act::Sync(client),
            7..=9 => Act::Replace(client, self.name(), self.content()),
            10 => Act::Overwrite(client, self.name(), self.0.below(256) as u8),
            11 | 12 => {
                let folder = ["a", "a/b", "c"][self.0.below(3) as usize];
                let name = if self.one_in(3) { folder.into() } else { self.name() };
                Act::Remove(client, name)
            }
            13 | 14 => Act::Make(self.name(), self.content()),
            15 => {
                let hours = i64::try_from(self.between(0, 100)).unwrap() - 50;
                let whose = if self.one_in(3) { None } else { Some(client) };
                Act::Clock(whose, hours * 3_600_000_000_000)
            }
            16 => Act::KillServer,
            17 => Act::CutPower,
            18 => Act::KillClient(client),
            19 => Act::Reset,
            20 => Act::Outage(self.millis(200, 45_000)),
            21 => {
                let fault = match self.0.below(4) {
                    0 => Fault::ReadOnly,
                    1 => Fault::Kill,
                    2 => Fault::PowerCut,
                    _ => Fault::Error(Errno::IO),
                };
                Act::Disk(self.between(0, 60) as usize, fault)
            }
            22 => Act::Flaky([Errno::IO, Errno::NOSPC][self.0.below(2) as usize]),
            _ => Act::Full(self.between(0, 60_000)),
        }
    }

    fn sync_plan(&mut self) -> Plan {
        let delay = self.between(100, 60_000);
        let rate = Rate::from_mbps(self.between(2, 200));
        let acts = (0..self.between(1, 12)).map(|_| (self.millis(0, 6000), self.act())).collect();
        Plan {
            forward: self.link(delay, rate),
            back: self.link(delay, rate),
            rtt: Duration::from_micros(2 * delay),
            is_overlay: self.one_in(2),
            trees: (0..CLIENTS).map(|_| self.files(10)).collect(),
            old: self.files(10),
            acts,
            last: self.client(),
            is_careless: false,
        }
    }
}

/// Permitted content of the directory of the server.
#[derive(Debug, Default)]
struct Permitted {
    /// Contents that a name may have.
    versions: BTreeMap<Vec<u8>, BTreeSet<Vec<u8>>>,
    /// Files that a comparison listed as extra.
    extras: BTreeSet<(Vec<u8>, Vec<u8>)>,
    /// Files that survive a power failure.
    durable: Files,
    /// Files at the last check.
    before: Files,
}

impl Permitted {
    fn add(&mut self, name: &[u8], content: &[u8]) {
        self.versions.entry(name.to_vec()).or_default().insert(content.to_vec());
    }

    /// Checks all files, and that none has vanished without a reason.
    fn check(&mut self, now: Files) {
        for (name, content) in &now {
            let shown = String::from_utf8_lossy(name);
            let is_known = self.versions.get(name).is_some_and(|known| known.contains(content));
            assert!(is_known, "{shown} has {} bytes that nobody wrote", content.len());
        }
        for (name, content) in &self.before {
            let shown = String::from_utf8_lossy(name);
            let is_extra = self.extras.contains(&(name.clone(), content.clone()));
            assert!(now.contains_key(name) || is_extra, "{shown} has vanished");
        }
        self.before = now;
    }
}

/// Names for a transfer.
struct Chosen(VecDeque<Vec<u8>>);

impl Selection for Chosen {
    fn next(&mut self) -> Selected {
        self.0.pop_front().map_or(Selected::End, Selected::Name)
    }
}

/// Differences between a tree and the directory.
#[derive(Default)]
struct Found {
    names: VecDeque<Vec<u8>>,
    adjusted: Vec<(Vec<u8>, Facts, Facts)>,
    extras: Vec<(Vec<u8>, Facts)>,
    failures: Vec<Failure>,
}

struct World {
    plan: Plan,
    net: Net,
    server: Server,
    clients: Vec<Client>,
    permitted: Mutex<Permitted>,
    counts: Mutex<Counts>,
}

fn rules() -> Rules {
    Rules::new(&[Rule { kind: RuleKind::Exclude, pattern: b"*.log".to_vec() }]).unwrap()
}

/// Lists the directory of the server.
pub(super) fn listed(disk: &MemoryDisk, rules: Rules) -> Vec<Seen> {
    let options = ListOptions { literal: true, ..ListOptions::default() };
    let (disk, places) = (Arc::new(disk.clone()), vec![TO.to_vec()]);
    let mut listing =
        DirectoryListing::new(Some(disk), places, View::Archive, &options, rules).unwrap();
    let mut entries = Vec::new();
    loop {
        match listing.step(&|| false) {
            ListingStep::Seen(seen) => entries.push(seen),
            ListingStep::Pause => {}
            ListingStep::End => break,
        }
    }
    let is_missing = |seen: &Seen| {
        let missing = |failure: &Failure| failure.code == FailureCode::NotFound;
        seen.outcome.as_ref().is_err_and(missing)
    };
    if entries.len() == 1 && is_missing(&entries[0]) { Vec::new() } else { entries }
}

/// Name below a directory, as a path of the disk.
pub(super) fn below(directory: &[u8], name: &[u8]) -> Vec<u8> {
    [directory, name].concat()
}

/// Files of a directory, without those of transfers in progress.
pub(super) fn files(disk: &MemoryDisk, directory: &[u8]) -> Files {
    let tree = disk.tree().into_iter();
    let files = tree.filter_map(|(name, content)| {
        let name = name.strip_prefix(directory)?.to_vec();
        Some((name, content?)).filter(|(name, _)| !name.ends_with(PART_SUFFIX))
    });
    files.collect()
}

/// Stores a file with a time of its own: files of equal size and time are not copied.
pub(super) fn store(disk: &MemoryDisk, place: &[u8], content: &[u8]) -> Result<(), RootError> {
    let number = content.first_chunk().map_or(1, |bytes| u32::from_be_bytes(*bytes));
    disk.turn_clock(i64::from(number));
    disk.put(&path(place), content)
}

impl World {
    fn new(seed: u64, plan: Plan) -> Self {
        let net = Net::new(plan.forward.clone(), plan.back.clone(), seed);
        let disk = MemoryDisk::new(seed);
        if plan.is_overlay {
            disk.be_overlay();
        }
        let mut permitted = Permitted::default();
        for (name, content) in &plan.old {
            store(&disk, &below(TO, name), content).unwrap();
            permitted.add(name, content);
        }
        permitted.durable.clone_from(&plan.old);
        let clients = plan.trees.iter().enumerate().map(|(number, tree)| {
            let disk = MemoryDisk::new(seed ^ (number as u64 + 1) << 32);
            for (name, content) in tree {
                store(&disk, &below(FROM, name), content).unwrap();
                permitted.add(name, content);
            }
            // A tree without files exists, too.
            disk.put(&path(b"tree/keep"), b"keep").unwrap();
            permitted.add(b"keep", b"keep");
            Client::new(disk, number, true, 1)
        });
        let clients = clients.collect();
        let server = Server::new(net.clone(), plan.rtt, disk);
        let (permitted, counts) = (Mutex::new(permitted), Mutex::default());
        Self { plan, net, server, clients, permitted, counts }
    }

    fn check(&self) {
        self.permitted.lock().unwrap().check(files(self.server.disk(), TO));
        assert!(!self.server.is_at_fault(), "a task of the server panicked");
        assert!(!self.clients.iter().any(Client::is_at_fault), "a task of a client panicked");
    }

    /// Compares the tree of a client with the directory.
    fn compare(&self, client: usize, disk: &MemoryDisk) -> Found {
        let options = CompareOptions {
            directories: true,
            removes: true,
            extras: true,
            rules: rules(),
            ..CompareOptions::default()
        };
        let source = self.clients[client].sources(FROM.to_vec()).with_rules(rules());
        let source = source.plan_compared(options.parts()).map(Ok::<_, Failure>);
        let destination = listed(disk, rules()).into_iter().map(Ok);
        let mut found = Found::default();
        for difference in Comparison::new(options, source, destination) {
            match difference.unwrap() {
                Difference::Copy { path, .. } => found.names.push_back(path),
                Difference::Adjust { path, source, old } => {
                    found.adjusted.push((path, source, old));
                }
                Difference::Extra { path, old } => found.extras.push((path, old)),
                Difference::Same { .. } | Difference::Narrow { .. } => {}
                Difference::DestinationFailed(path, _) if is_journal(&path) || is_part(&path) => {}
                other => found.failures.extend(failure_of(other)),
            }
        }
        found
    }

    /// Removes an extra entry, if it is the one of the comparison.
    fn remove(
        &self,
        disk: &MemoryDisk,
        name: &[u8],
        seen: Facts,
        content: Option<&Vec<u8>>,
    ) -> Result<(), Failure> {
        self.check();
        let condition = (!self.plan.is_careless).then_some(seen);
        let change = NameChange::Remove { recursive: false, seen: condition };
        let now = files(self.server.disk(), TO).remove(name);
        let removed = change.apply(Some(disk), &below(TO, name), &|| false);
        let is_other = seen.kind == SeenKind::File && now.as_ref() != content;
        let shown = String::from_utf8_lossy(name);
        assert!(removed.is_err() || !is_other, "{shown} was removed and had changed");
        self.check();
        let mut counts = self.counts.lock().unwrap();
        counts.removed += u32::from(removed.is_ok());
        counts.left += u32::from(removed.is_err());
        removed.map(drop)
    }

    /// Makes the directory equal to the tree of a client.
    async fn sync(&self, client: usize, pause: Duration) -> Result<(), Error> {
        let gone = || Error::PeerGone("nobody listens".into());
        let disk = self.server.disk_of_process().ok_or_else(gone)?;
        let Found { names, adjusted, extras, failures } = self.compare(client, &disk);
        let there = files(self.server.disk(), TO);
        let listed =
            extras.iter().filter_map(|(name, _)| Some((name.clone(), there.get(name)?.clone())));
        self.permitted.lock().unwrap().extras.extend(listed);
        sleep(pause).await;
        if !names.is_empty() {
            let sources = self.clients[client].sources(FROM.to_vec());
            let sources = sources.with_selection(Box::new(Chosen(names)), None);
            let report = self.clients[client].put_set(&self.server, sources, TO.to_vec()).await?;
            if let Some((_, failure)) = report.failures.first() {
                return Err(Error::Failed(failure.clone()));
            }
            assert!(report.verified && report.entries_failed == 0, "{report:?}");
            self.counts.lock().unwrap().copied += report.entries;
        }
        if let Some(failure) = failures.into_iter().next() {
            return Err(Error::Failed(failure));
        }
        let mut failed = None;
        let is_file = |(_, facts): &&(Vec<u8>, Facts)| facts.kind != SeenKind::Directory;
        let (files, directories): (Vec<_>, Vec<_>) = extras.iter().rev().partition(is_file);
        for (name, seen) in files.into_iter().chain(directories) {
            sleep(pause / 8).await;
            let removed = self.remove(&disk, name, *seen, there.get(name));
            // A directory with an excluded entry stays.
            let is_filled = |failure: &Failure| failure.code == FailureCode::Refused;
            let is_directory = seen.kind == SeenKind::Directory;
            failed = removed.err().filter(|it| !(is_directory && is_filled(it))).or(failed);
        }
        for (name, source, old) in adjusted {
            let change = NewMetadata {
                path: below(TO, &name),
                mode: None,
                modified_ns: source.modified_ns,
                owner: None,
                seen: recognized(&source, &old),
            };
            failed = set_metadata(Some(&disk), &change).err().or(failed);
        }
        failed.map_or(Ok(()), |failure| Err(Error::Failed(failure)))
    }

    /// Syncs once, within the time limit.
    async fn attempt(&self, client: usize, pause: Duration) -> Result<(), Error> {
        let died = self.clients[client].death();
        let sync = async {
            tokio::select! {
                biased;
                result = self.sync(client, pause) => result,
                () = died => Err(Error::Cancelled),
            }
        };
        let result = tokio::time::timeout(BOUND, sync).await;
        let result = result.unwrap_or_else(|_| panic!("the sync of client {client} does not end"));
        let mut counts = self.counts.lock().unwrap();
        counts.complete += u32::from(result.is_ok());
        counts.failed += u32::from(result.is_err());
        result
    }

    /// Changes the tree of a client.
    fn change(&self, client: usize, name: &[u8], content: Option<&[u8]>) {
        let (disk, place) = (self.clients[client].disk(), below(FROM, name));
        let _ = disk.take(&path(&place));
        if let Some(content) = content
            && store(disk, &place, content).is_ok()
        {
            self.permitted.lock().unwrap().add(name, content);
        }
    }

    fn overwrite(&self, client: usize, name: &[u8], fill: u8) {
        let disk = self.clients[client].disk();
        let Some(mut content) = files(disk, FROM).remove(name) else { return };
        content.iter_mut().for_each(|byte| *byte ^= fill);
        let Ok(file) = disk.process().open_file(&path(&below(FROM, name))) else { return };
        file.write_all_at(&content, 0).unwrap();
        self.permitted.lock().unwrap().add(name, &content);
    }

    /// Makes a file at the server, unless the name is in use.
    fn make(&self, name: &[u8], content: &[u8]) {
        let disk = self.server.disk();
        let mut permitted = self.permitted.lock().unwrap();
        permitted.add(name, content);
        if store(disk, &below(TO, name), content).is_ok() {
            permitted.durable.insert(name.to_vec(), content.to_vec());
        }
    }

    /// Restarts the server, and checks that all durable files survive a power failure.
    async fn restart(&self, is_power_cut: bool) {
        self.check();
        let restarting = self.server.restart(is_power_cut);
        self.permitted.lock().unwrap().before.clear();
        restarting.await;
        self.check_durable();
    }

    fn check_durable(&self) {
        self.permitted.lock().unwrap().before.clear();
        self.check();
        let Permitted { durable, extras, before, .. } = &*self.permitted.lock().unwrap();
        for (name, content) in durable {
            let shown = String::from_utf8_lossy(name);
            let is_extra = extras.iter().any(|(extra, _)| extra == name);
            let is_excluded = name.ends_with(EXCLUDED);
            assert!(before.contains_key(name) || is_extra, "{shown} has not survived");
            assert!(!is_excluded || before.get(name) == Some(content), "{shown} was excluded");
        }
    }

    async fn perform(&self, act: Act, pause: Duration) {
        match act {
            Act::Sync(client) => drop(self.attempt(client, pause).await),
            Act::Replace(client, name, content) => self.change(client, &name, Some(&content)),
            Act::Overwrite(client, name, fill) => self.overwrite(client, &name, fill | 1),
            Act::Remove(client, name) => self.change(client, &name, None),
            Act::Make(name, content) => self.make(&name, &content),
            Act::Clock(None, by) => self.server.disk().turn_clock(by),
            Act::Clock(Some(client), by) => self.clients[client].disk().turn_clock(by),
            Act::KillServer => self.restart(false).await,
            Act::CutPower => self.restart(true).await,
            Act::KillClient(client) => self.clients[client].restart(),
            Act::Reset => self.clients.iter().for_each(Client::reset),
            Act::Outage(time) => {
                let links = [&self.plan.forward, &self.plan.back];
                outage(&self.net, &self.clients, links, time).await;
            }
            Act::Disk(call, fault) => {
                if fault == Fault::PowerCut {
                    self.permitted.lock().unwrap().before.clear();
                }
                self.server.disk().fail_at(call, fault);
                self.wait_and_heal().await;
            }
            Act::Flaky(errno) => {
                self.server.disk().fail_sometimes(Probability::per_mille(100), errno);
                self.wait_and_heal().await;
            }
            Act::Full(bytes) => {
                self.server.disk().leave_room(bytes);
                self.wait_and_heal().await;
            }
        }
    }

    async fn wait_and_heal(&self) {
        sleep(Duration::from_secs(2)).await;
        self.heal().await;
    }

    /// Heals the disk, and restarts the server if a disk fault has killed it.
    async fn heal(&self) {
        self.server.disk().heal();
        if self.server.disk_is_dead() {
            self.restart(false).await;
        }
    }

    async fn run(self: &Arc<Self>) {
        let mut acts = tokio::task::JoinSet::new();
        for (after, act) in self.plan.acts.clone() {
            let world = Arc::clone(self);
            acts.spawn(async move {
                sleep(after).await;
                world.perform(act, after / 4).await;
            });
        }
        let has_power_cuts =
            |(_, act): &(Duration, Act)| matches!(act, Act::Disk(_, Fault::PowerCut));
        let has_power_cuts = self.plan.acts.iter().any(has_power_cuts);
        while !acts.is_empty() {
            tokio::select! {
                biased;
                ended = acts.join_next() => if let Some(Err(error)) = ended {
                    std::panic::resume_unwind(error.into_panic());
                },
                () = sleep(CHECK_INTERVAL) => {
                    // A fault of the disk can cut the power at any time.
                    if has_power_cuts {
                        self.permitted.lock().unwrap().before.clear();
                    }
                    self.check();
                }
            }
        }
        self.heal().await;
        self.end().await;
    }

    /// Final phase: one client syncs, and the directory equals its tree.
    async fn end(&self) {
        self.restart(true).await;
        self.clients.iter().for_each(Client::restart);
        let last = self.plan.last;
        let mut result = Err(Error::Cancelled);
        for _ in 0..3 {
            result = self.attempt(last, Duration::from_millis(1)).await;
            if result.is_ok() {
                break;
            }
        }
        assert!(result.is_ok(), "the sync fails though nothing is wrong: {result:?}");
        let disk = self.server.disk_of_process().unwrap();
        let found = self.compare(last, &disk);
        assert!(found.names.is_empty(), "{:?}", found.names);
        for (name, seen) in &found.extras {
            let content = disk.tree().into_keys().filter(|it| it.starts_with(&below(TO, name)));
            let is_filled = seen.kind == SeenKind::Directory && content.count() > 1;
            assert!(is_filled, "{} was not removed", String::from_utf8_lossy(name));
        }
        let is_compared = |(name, _): &(Vec<u8>, Vec<u8>)| !name.ends_with(EXCLUDED);
        let files = |disk: &MemoryDisk, directory| -> Files {
            files(disk, directory).into_iter().filter(is_compared).collect()
        };
        let names = |files: &Files| -> Vec<String> {
            files.keys().map(|name| String::from_utf8_lossy(name).into_owned()).collect()
        };
        let tree = files(self.clients[last].disk(), FROM);
        let there = files(self.server.disk(), TO);
        assert_eq!(names(&there), names(&tree));
        assert!(there == tree, "a file has another content");
        // A removal may be undone by a power failure, a copy may not.
        self.restart(true).await;
        let there = files(self.server.disk(), TO);
        let is_there = |(name, content): (&Vec<u8>, &Vec<u8>)| there.get(name) == Some(content);
        assert!(tree.iter().all(is_there), "a copied file has not survived");
    }
}

/// Returns the failure that this difference is.
pub(super) fn failure_of(difference: Difference) -> Option<Failure> {
    match difference {
        Difference::SourceFailed(_, failure)
        | Difference::DestinationFailed(_, failure)
        | Difference::Unknown(_, failure) => Some(failure),
        Difference::Disordered(path) => {
            let text = format!("{} is in disorder", String::from_utf8_lossy(&path));
            Some(Failure::new(FailureCode::Changed, text))
        }
        Difference::Copy { .. }
        | Difference::Adjust { .. }
        | Difference::Extra { .. }
        | Difference::Same { .. }
        | Difference::Narrow { .. } => None,
    }
}

fn plan(seed: u64) -> Plan {
    Draw(SeededRandom::new(seed).fork("sync")).sync_plan()
}

fn run(seed: u64, plan: Plan) -> Counts {
    let shown = format!("{:?}", plan.acts);
    in_virtual_time(&format!("SABUL_SYNC_SEED={seed}"), "sync", &shown, async {
        let world = Arc::new(World::new(seed, plan));
        world.run().await;
        *world.counts.lock().unwrap()
    })
}

#[test]
fn under_random_faults_two_syncs_leave_whole_files_and_remove_only_what_they_listed() {
    if let Some(seed) = number("SABUL_SYNC_SEED") {
        println!("{:?}", run(seed, plan(seed)));
        return;
    }
    let mut all = Counts::default();
    for seed in 0..number("SABUL_SYNC_SEEDS").unwrap_or(SEEDS_BY_DEFAULT) {
        let Counts { complete, failed, removed, left, copied } = run(seed, plan(seed));
        all.complete += complete;
        all.failed += failed;
        all.removed += removed;
        all.left += left;
        all.copied += copied;
    }
    println!("{all:?}");
}

#[test]
fn a_seed_determines_the_simulated_directories() {
    for seed in 0..5 {
        assert_eq!(run(seed, plan(seed)), run(seed, plan(seed)), "seed {seed}");
    }
}

/// Control test: the checks must notice removals that do not compare the entry.
#[test]
fn careless_removals_are_noticed() {
    let is_noticed = |seed: u64| {
        let plan = Plan { is_careless: true, ..plan(seed) };
        std::panic::catch_unwind(|| run(seed, plan)).is_err()
    };
    assert!((0..SEEDS_BY_DEFAULT).any(is_noticed), "no removal hit another entry");
}
