//! Record of the versions of a replica, and permitted content.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex};

use sabul_files::replica::{Versions, is_failed};
use sabul_files::{Selected, Selection};
use sabul_wire::control::Replaces;

use super::super::sync::Files;
use crate::lock::lock;

/// Record of the versions of a replica, in place of the database.
#[derive(Debug, Default)]
pub(super) struct Record {
    pub(super) written: BTreeMap<Vec<u8>, Versions>,
    /// Changes that a kill of the writer loses.
    pub(super) pending: BTreeMap<Vec<u8>, Versions>,
    /// Entries that were sent in this pass.
    pub(super) sent: BTreeSet<Vec<u8>>,
    pub(super) changes: u32,
    pub(super) at_once: u32,
}

impl Record {
    pub(super) fn new(at_once: u32) -> Self {
        Self { at_once, ..Self::default() }
    }

    pub(super) fn versions(&self, path: &[u8]) -> Versions {
        let found = self.pending.get(path).or_else(|| self.written.get(path));
        found.copied().unwrap_or_default()
    }

    pub(super) fn record(&mut self, path: &[u8], versions: Versions) {
        if versions.sent.is_some() {
            self.sent.insert(path.to_vec());
        }
        self.pending.insert(path.to_vec(), versions);
        self.changes += 1;
        if self.changes >= self.at_once {
            self.commit();
        }
    }

    pub(super) fn commit(&mut self) {
        self.changes = 0;
        self.written.append(&mut self.pending);
    }

    pub(super) fn kill(&mut self) {
        self.changes = 0;
        self.pending.clear();
    }

    pub(super) fn begin_pass(&mut self) {
        self.commit();
        self.sent.clear();
    }

    /// Records that each version of this pass has arrived, except those of failed entries.
    pub(super) fn record_arrivals(&mut self, failed: &[&[u8]]) {
        self.commit();
        for (path, versions) in &mut self.written {
            if self.sent.contains(path) && !is_failed(path, failed) {
                *versions = versions.arrived();
            }
        }
    }
}

/// Permitted content of a replica.
#[derive(Debug, Default)]
pub(super) struct Permitted {
    /// Contents that a name may have.
    pub(super) versions: BTreeMap<Vec<u8>, BTreeSet<Vec<u8>>>,
    /// Texts of other programs, which have to stay.
    pub(super) foreign: BTreeSet<Vec<u8>>,
    /// Files that may vanish.
    pub(super) gone: BTreeSet<(Vec<u8>, Vec<u8>)>,
    /// Files at the last check.
    pub(super) before: Files,
    /// Names that are about to be copied.
    pub(super) copying: BTreeSet<Vec<u8>>,
}

impl Permitted {
    pub(super) fn add(&mut self, name: &[u8], content: &[u8]) {
        self.versions.entry(name.to_vec()).or_default().insert(content.to_vec());
    }

    pub(super) fn add_foreign(&mut self, name: &[u8], content: &[u8]) {
        self.add(name, content);
        self.foreign.insert(content.to_vec());
    }

    /// Checks all files, that no text of another program is lost, and that no file has vanished without a reason.
    pub(super) fn check(&mut self, now: Files) {
        let shown = String::from_utf8_lossy;
        for (name, content) in &now {
            let is_known = self.versions.get(name).is_some_and(|known| known.contains(content));
            assert!(is_known, "{} has {} bytes that nobody wrote", shown(name), content.len());
        }
        let all: BTreeSet<&Vec<u8>> = now.values().collect();
        for text in &self.foreign {
            assert!(
                all.contains(text),
                "a text of {} bytes of another program is lost",
                text.len()
            );
        }
        for (name, content) in &self.before {
            let is_gone = || self.gone.contains(&(name.clone(), content.clone()));
            assert!(now.contains_key(name) || is_gone(), "{} has vanished", shown(name));
        }
        self.before = now;
    }
}

/// Names for a transfer, each with the object that its entry may replace; each sent version is recorded.
pub(super) struct Chosen {
    pub(super) names: VecDeque<(Vec<u8>, Replaces)>,
    pub(super) record: Arc<Mutex<Record>>,
    pub(super) last: Option<Replaces>,
}

impl Selection for Chosen {
    fn next(&mut self) -> Selected {
        let Some((name, replaces)) = self.names.pop_front() else { return Selected::End };
        self.last = Some(replaces);
        Selected::Name(name)
    }

    fn sent(&mut self, name: &[u8], size: u64, modified_ns: Option<i64>) {
        let mut record = lock(&self.record);
        let versions = record.versions(name).with_sent(size, modified_ns);
        record.record(name, versions);
        record.commit();
    }

    fn replaces(&mut self) -> Option<Replaces> {
        self.last.take()
    }
}
