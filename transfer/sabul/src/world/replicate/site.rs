//! A replica, the passes to it, and its faults.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sabul_files::replica::{
    self, Guarded, Removal, RemovalRefused, Renamed, Replica, Versions, failed_entry,
};
use sabul_files::testing::MemoryDisk;
use sabul_files::{
    CompareOptions, Comparison, Difference, NameChange, RenameOf, Rules, is_journal, is_part,
    recognized, set_metadata,
};
use sabul_net::LinkConfig;
use sabul_units::Probability;
use sabul_wire::control::{Facts, Failure, FailureCode, NewMetadata, Replaces, SeenKind};
use tokio::time::{Instant, sleep};

use super::super::host::{Client, Server};
use super::super::net::Net;
use super::super::swarm::{BOUND, path};
use super::super::sync::{FROM, TO, below, failure_of, files, listed, store};
use super::Counts;
use super::plan::{BLOCK, Cut, Link, Plan};
use super::record::{Chosen, Permitted, Record};
use crate::config::TransferOptions;
use crate::error::Error;
use crate::lock::lock;
use crate::transfer::Report;

/// More entries than a directory ever has.
pub(super) const REMOVALS_MAX: u64 = 1000;

/// Differences between the tree of the writer and a replica, after the decisions.
#[derive(Default)]
pub(super) struct Found {
    pub(super) names: VecDeque<(Vec<u8>, Replaces)>,
    pub(super) adjusted: Vec<(Vec<u8>, Facts, Facts)>,
    pub(super) extras: Vec<(Vec<u8>, Facts)>,
    pub(super) failures: Vec<Failure>,
    pub(super) source_entries: u64,
    pub(super) destination_entries: u64,
}

/// A replica, and the writer's end of the way there. The writer is one process with three ends.
pub(super) struct Site {
    pub(super) link: Link,
    pub(super) net: Net,
    pub(super) server: Server,
    pub(super) writer: Client,
    pub(super) record: Arc<Mutex<Record>>,
    pub(super) permitted: Mutex<Permitted>,
    pub(super) counts: Mutex<Counts>,
    pub(super) cut_until: Mutex<Instant>,
    pub(super) is_forgetful: bool,
}

/// A replica for the decisions of one pass.
pub(super) struct Deciding<'a> {
    pub(super) site: &'a Site,
    pub(super) disk: &'a MemoryDisk,
}

impl Replica for Deciding<'_> {
    type Error = Error;

    fn versions(&self, path: &[u8]) -> Result<Versions, Error> {
        Ok(lock(&self.site.record).versions(path))
    }

    fn record(&self, path: &[u8], versions: Versions) -> Result<(), Error> {
        let sent = versions.sent.filter(|_| !self.site.is_forgetful);
        lock(&self.site.record).record(path, Versions { sent, ..versions });
        Ok(())
    }

    fn rename(&self, from: &[u8], to: &[u8], seen: &Facts) -> Result<Renamed, Error> {
        self.site.reach()?;
        let mut permitted = lock(&self.site.permitted);
        let now = files(self.site.server.disk(), TO).remove(from);
        let place = |name: &[u8]| [b"to/./", name].concat();
        let conditions = RenameOf { seen: Some(*seen), below: None };
        let (from_place, to_place) = (place(from), place(to));
        let renamed =
            sabul_files::rename(Some(self.disk), &from_place, &to_place, false, conditions);
        match renamed {
            Ok(()) => {
                let content = now.unwrap();
                let mut counts = lock(&self.site.counts);
                match permitted.foreign.contains(&content) {
                    true => counts.kept += 1,
                    false => counts.needless += 1,
                }
                permitted.add(to, &content);
                permitted.gone.insert((from.to_vec(), content));
                Ok(Renamed::Done)
            }
            Err(failure)
                if failure == Failure::existing(String::from_utf8_lossy(&below(TO, to))) =>
            {
                Ok(Renamed::Exists)
            }
            Err(failure) => Ok(Renamed::Failed(failure)),
        }
    }

    fn time(&self) -> String {
        // Names of the same time need numbers.
        "20261127T064800Z".to_owned()
    }
}

impl Site {
    pub(super) fn new(seed: u64, number: usize, plan: &Plan, source: &MemoryDisk) -> Self {
        let link = &plan.links[number];
        let seed = seed ^ (number as u64 + 1) << 32;
        let there = MemoryDisk::new(seed);
        let mut permitted = Permitted::default();
        for (name, content) in &plan.old[number] {
            store(&there, &below(TO, name), content).unwrap();
            permitted.add_foreign(name, content);
        }
        for (name, content) in &files(source, FROM) {
            permitted.add(name, content);
        }
        let net = Net::new(link.forward.clone(), link.back.clone(), seed);
        Self {
            link: link.clone(),
            net: net.clone(),
            server: Server::new(net, link.rtt, there),
            writer: Client::new(source.clone(), number, true, 1),
            record: Arc::new(Mutex::new(Record::new(plan.changes_at_once))),
            permitted: Mutex::new(permitted),
            counts: Mutex::default(),
            cut_until: Mutex::new(Instant::now()),
            is_forgetful: plan.is_forgetful,
        }
    }

    /// Fails during a partition: a request in either direction needs the other one for its answer.
    pub(super) fn reach(&self) -> Result<(), Error> {
        match *lock(&self.cut_until) > Instant::now() {
            true => Err(Error::PeerGone("the path is cut".into())),
            false => Ok(()),
        }
    }

    pub(super) fn check(&self) {
        lock(&self.permitted).check(files(self.server.disk(), TO));
        assert!(!self.server.is_at_fault(), "a task of a replica panicked");
        assert!(!self.writer.is_at_fault(), "a task of the writer panicked");
    }

    pub(super) fn options() -> CompareOptions {
        CompareOptions {
            directories: true,
            removes: true,
            extras: true,
            keeps_unknown: true,
            ..CompareOptions::default()
        }
    }

    /// Compares the tree with the replica. The listings are those of this moment; the first has these names.
    fn compare(&self, disk: &MemoryDisk) -> (BTreeSet<Vec<u8>>, Vec<Difference>) {
        let options = Self::options();
        let source = self.writer.sources(FROM.to_vec());
        let source: Vec<_> = source.plan_compared(options.parts()).collect();
        let names = source.iter().map(|seen| seen.path.clone()).collect();
        let source = source.into_iter().map(Ok::<_, Failure>);
        let destination = listed(disk, Rules::default()).into_iter().map(Ok);
        let differences = Comparison::new(options, source, destination).map(Result::unwrap);
        (names, differences.collect())
    }

    /// Compares, decides about each difference, and keeps the entries that were changed at the replica.
    async fn decide(&self, disk: &MemoryDisk, step: Duration) -> Result<Found, Error> {
        let mut found = Found::default();
        let (tree, differences) = self.compare(disk);
        // A text that another program writes to one of these names from now on is not part of the comparison.
        lock(&self.permitted).copying = differences.iter().filter_map(copied_name).collect();
        for difference in differences {
            if step > Duration::ZERO {
                sleep(step).await;
            }
            match &difference {
                Difference::DestinationFailed(path, _) | Difference::SourceFailed(path, _)
                    if is_journal(path) || is_part(path) =>
                {
                    continue;
                }
                _ => found.source_entries += u64::from(difference.source_size().is_some()),
            }
            let guarded = replica::check(&Deciding { site: self, disk }, difference)?;
            Self::take(&mut found, guarded, &tree);
        }
        lock(&self.record).commit();
        Ok(found)
    }

    /// Takes a difference that was decided.
    fn take(found: &mut Found, guarded: Guarded, tree: &BTreeSet<Vec<u8>>) {
        let difference = match guarded {
            Guarded::CarriedOut(difference) => difference,
            Guarded::Left(_) => {
                found.destination_entries += 1;
                return;
            }
            Guarded::Refused(_, failure) => {
                found.failures.push(failure);
                return;
            }
        };
        match difference {
            Difference::Copy { path, old, .. } => {
                found.destination_entries += u64::from(old.is_some());
                let replaces = old.map_or(Replaces::Nothing, |old| Replaces::Seen(Box::new(old)));
                found.names.push_back((path, replaces));
            }
            Difference::Adjust { path, source, old } => {
                found.destination_entries += 1;
                found.adjusted.push((path, source, old));
            }
            Difference::Extra { path, old } => {
                found.destination_entries += 1;
                let shown = String::from_utf8_lossy(&path);
                assert!(!tree.contains(&path), "the writer has {shown}, which counts as extra");
                found.extras.push((path, old));
            }
            Difference::Same { .. } => found.destination_entries += 1,
            Difference::Narrow { .. } => {}
            other => found.failures.extend(failure_of(other)),
        }
    }

    /// Makes the replica equal to the tree. Returns whether the replica is in step.
    pub(super) async fn pass(&self, step: Duration) -> Result<bool, Error> {
        let gone = || Error::PeerGone("nobody listens".into());
        let disk = self.server.disk_of_process().ok_or_else(gone)?;
        self.reach()?;
        lock(&self.record).begin_pass();
        let Found { names, adjusted, extras, failures, source_entries, destination_entries } =
            self.decide(&disk, step).await?;
        let report = if names.is_empty() { Report::default() } else { self.copy(names).await? };
        lock(&self.permitted).copying.clear();
        let removal = Removal {
            extras: extras.len() as u64,
            failures: report.entries_failed + failures.len() as u64,
            source_entries,
            destination_entries,
            limit: Some(REMOVALS_MAX),
        };
        let mut is_complete = removal.failures == 0;
        if !extras.is_empty() {
            is_complete &= match removal.check() {
                Ok(()) => self.remove_all(&disk, &extras, step).await?,
                Err(RemovalRefused::Failures(_)) => false,
                Err(other) => panic!("{other}"),
            };
        }
        for (name, source, old) in adjusted {
            self.reach()?;
            let change = NewMetadata {
                path: below(TO, &name),
                mode: None,
                modified_ns: source.modified_ns,
                owner: None,
                seen: recognized(&source, &old),
            };
            is_complete &= set_metadata(Some(&disk), &change).is_ok();
        }
        self.record_arrivals(&report, is_complete);
        Ok(is_complete)
    }

    /// Copies these entries.
    async fn copy(&self, names: VecDeque<(Vec<u8>, Replaces)>) -> Result<Report, Error> {
        self.reach()?;
        let sources = self.writer.sources(FROM.to_vec());
        let chosen = Chosen { names, record: Arc::clone(&self.record), last: None };
        let sources = sources.with_selection(Box::new(chosen), None);
        let options = TransferOptions::default().block_size(BLOCK).growing(true).sync(true);
        let report = self.writer.put_with(&self.server, sources, TO.to_vec(), &options).await?;
        assert!(report.verified, "{report:?}");
        lock(&self.counts).copied += report.entries;
        Ok(report)
    }

    fn record_arrivals(&self, report: &Report, is_complete: bool) {
        let failed = report.failures.iter().map(|(path, _)| failed_entry(path, FROM));
        let failed: Vec<_> = failed.collect();
        if is_complete || failed.len() as u64 == report.entries_failed {
            lock(&self.record).record_arrivals(&failed);
        }
    }

    /// Removes the extra entries, the content of a directory before the directory. Returns whether all are removed.
    pub(super) async fn remove_all(
        &self,
        disk: &MemoryDisk,
        extras: &[(Vec<u8>, Facts)],
        step: Duration,
    ) -> Result<bool, Error> {
        let is_file = |(_, facts): &&(Vec<u8>, Facts)| facts.kind != SeenKind::Directory;
        let (files, directories): (Vec<_>, Vec<_>) = extras.iter().rev().partition(is_file);
        let mut is_complete = true;
        for (name, seen) in files.into_iter().chain(directories) {
            if step > Duration::ZERO {
                sleep(step).await;
            }
            self.reach()?;
            let removed = self.remove(disk, name, *seen);
            // A directory with an entry of another program stays.
            let is_directory = seen.kind == SeenKind::Directory;
            is_complete &= match removed {
                Ok(()) => true,
                Err(failure) => is_directory && failure.code == FailureCode::Refused,
            };
        }
        Ok(is_complete)
    }

    /// Removes an extra entry, if it is the one of the comparison.
    pub(super) fn remove(
        &self,
        disk: &MemoryDisk,
        name: &[u8],
        seen: Facts,
    ) -> Result<(), Failure> {
        self.check();
        let now = files(self.server.disk(), TO).remove(name);
        let change = NameChange::Remove { recursive: false, seen: Some(seen) };
        change.apply(Some(disk), &below(TO, name), &|| false)?;
        let mut permitted = lock(&self.permitted);
        if let Some(content) = now {
            let shown = String::from_utf8_lossy(name);
            let is_foreign = permitted.foreign.contains(&content);
            assert!(!is_foreign, "{shown} was removed and is of another program");
            permitted.gone.insert((name.to_vec(), content));
        }
        lock(&self.counts).removed += 1;
        Ok(())
    }

    /// Makes one pass, within the time limit. Returns whether the replica is in step.
    pub(super) async fn attempt(&self, step: Duration) -> bool {
        let died = self.writer.death();
        let pass = async {
            tokio::select! {
                biased;
                result = self.pass(step) => result,
                () = died => Err(Error::Cancelled),
            }
        };
        let result = tokio::time::timeout(BOUND, pass).await;
        let result = result.unwrap_or_else(|_| panic!("a pass does not end"));
        lock(&self.permitted).copying.clear();
        let is_complete = result.unwrap_or(false);
        let mut counts = lock(&self.counts);
        counts.complete += u32::from(is_complete);
        counts.failed += u32::from(!is_complete);
        is_complete
    }

    /// Another program removes a file, and writes another one of the name.
    pub(super) fn foreign(&self, name: &[u8], content: Option<&[u8]>) {
        self.check();
        let disk = self.server.disk();
        let mut permitted = lock(&self.permitted);
        if let Some(old) = files(disk, TO).remove(name) {
            permitted.foreign.remove(&old);
            let _ = disk.take(&path(&below(TO, name)));
            permitted.gone.insert((name.to_vec(), old));
        }
        let Some(content) = content else { return };
        if store(disk, &below(TO, name), content).is_ok() {
            let mut counts = lock(&self.counts);
            counts.foreign += 1;
            counts.racing += u32::from(permitted.copying.contains(name));
            permitted.add_foreign(name, content);
        }
    }

    pub(super) fn foreign_overwrite(&self, name: &[u8], fill: u8) {
        let found = files(self.server.disk(), TO).remove(name);
        let Some(mut content) = found.filter(|content| !content.is_empty()) else { return };
        content.iter_mut().for_each(|byte| *byte ^= fill);
        self.foreign(name, Some(&content));
    }

    pub(super) async fn partition(&self, cut: Cut, time: Duration) {
        lock(&self.counts).partitions += 1;
        let until = Instant::now() + time;
        *lock(&self.cut_until) = until;
        self.writer.hold(until);
        let silent = LinkConfig::builder().with_loss(Probability::ONE).build().unwrap();
        let Link { forward, back, .. } = self.link.clone();
        let (there, here) = match cut {
            Cut::Both => (silent.clone(), silent),
            Cut::ToReplica => (silent, back.clone()),
            Cut::ToWriter => (forward.clone(), silent),
        };
        self.net.set_links(there, here, 7);
        tokio::time::sleep_until(until).await;
        // Another partition may have begun.
        if self.reach().is_ok() {
            self.net.set_links(forward, back, 8);
        }
    }

    pub(super) async fn restart(&self, is_power_cut: bool) {
        self.check();
        lock(&self.counts).kills += 1;
        let restarting = self.server.restart(is_power_cut);
        lock(&self.permitted).before.clear();
        restarting.await;
        lock(&self.permitted).before.clear();
        self.check();
    }
}

/// Name of an entry that is about to be copied.
pub(super) fn copied_name(difference: &Difference) -> Option<Vec<u8>> {
    match difference {
        Difference::Copy { path, .. } => Some(path.clone()),
        _ => None,
    }
}
