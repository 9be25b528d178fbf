//! Protection of a replica's own changes: an entry that was changed at the replica is renamed before a copy takes its
//! name, and an entry that never came from the source is not removed.

use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};

use sabul::files::Facts;
use sabul::internal::compare::{Difference, RenameOf, Replaces};
use sabul::internal::replica::{Guarded, Renamed, Replica, Versions, check};
use sabul_front::format;

use super::names::{Replaced, Watch, lock};
use super::sides::Sides;
use super::versions::Store;
use crate::error::CliError;

/// Entries kept beside: the old and the new name.
pub(super) type Kept = Vec<(Vec<u8>, Vec<u8>)>;

/// Database of a replica, and the entries that the current pass has kept.
#[derive(Clone, Debug)]
pub(super) struct ReplicaStore {
    store: Arc<Mutex<Store>>,
    kept: Arc<Mutex<Kept>>,
}

impl ReplicaStore {
    pub(super) fn new(store: Store) -> Self {
        Self { store: Arc::new(Mutex::new(store)), kept: Arc::default() }
    }

    /// Takes the entries that were kept since the last call.
    pub(super) fn take_kept(&self) -> Kept {
        self.kept.lock().map(|mut kept| std::mem::take(&mut *kept)).unwrap_or_default()
    }

    /// Records the version of a file that is sent. The file may have changed since the comparison. A failure only means
    /// that a later pass may keep the file of the replica without need.
    fn sent(&self, path: &[u8], size: u64, modified_ns: Option<i64>) {
        let _ = self.with_store(|store| {
            let versions = store.versions(path)?;
            let sent = versions.with_sent(size, modified_ns);
            match sent == versions {
                true => Ok(()),
                false => {
                    store.record(path, sent)?;
                    store.commit()
                }
            }
        });
    }

    /// Runs `work` with the database.
    pub(super) fn with_store<T>(
        &self,
        work: impl FnOnce(&mut Store) -> Result<T, CliError>,
    ) -> Result<T, CliError> {
        let mut store =
            self.store.lock().map_err(|_| CliError::failed("the comparison ended with a fault"))?;
        work(&mut store)
    }
}

/// Check of each difference of a pass.
pub(super) struct Guard {
    replica: ReplicaStore,
    sides: Sides,
    /// Objects that the entries to copy may replace.
    replaced: Replaced,
}

impl Guard {
    pub(super) fn new(replica: ReplicaStore, sides: Sides) -> Self {
        Self { replica, sides, replaced: Replaced::default() }
    }

    /// Returns an observer that records sent versions, and protects changes of the replica since the comparison.
    pub(super) fn watch(&self) -> Watch {
        let (replica, replaced) = (self.replica.clone(), Arc::clone(&self.replaced));
        let sent =
            Box::new(move |path: &[u8], size, modified_ns| replica.sent(path, size, modified_ns));
        Watch { sent, replaced }
    }

    /// Permits a copy to replace the object of its name that was compared, if there was one, and no other object.
    pub(super) fn may_replace(&self, name: &[u8], old: Option<Facts>) {
        let seen = |old| Replaces::Seen(Box::new(Facts { hash: None, ..old }));
        lock(&self.replaced).insert(name.to_vec(), old.map_or(Replaces::Nothing, seen));
    }

    /// Writes all recorded versions.
    pub(super) fn finish(&self) -> Result<(), CliError> {
        self.replica.with_store(Store::commit)
    }

    /// Decides about a difference, and records the versions of its entry. Blocks.
    pub(super) fn check(&self, difference: Difference) -> Result<Guarded, CliError> {
        check(self, difference)
    }
}

impl Replica for Guard {
    type Error = CliError;

    fn versions(&self, path: &[u8]) -> Result<Versions, CliError> {
        self.replica.with_store(|store| store.versions(path))
    }

    fn record(&self, path: &[u8], versions: Versions) -> Result<(), CliError> {
        self.replica.with_store(|store| store.record(path, versions))
    }

    fn rename(&self, from: &[u8], to: &[u8], seen: &Facts) -> Result<Renamed, CliError> {
        let below = self.sides.destination_id()?;
        let conditions = RenameOf { seen: Some(Facts { hash: None, ..*seen }), below };
        let [old, new] = [from, to].map(|path| self.sides.below_destination(path));
        let renamed = self.sides.session.move_compared(old, new, conditions);
        match self.sides.runtime.block_on(renamed) {
            Ok(()) => {
                if let Ok(mut all) = self.replica.kept.lock() {
                    all.push((from.to_vec(), to.to_vec()));
                }
                Ok(Renamed::Done)
            }
            Err(sabul::Error::Exists(_)) => Ok(Renamed::Exists),
            Err(sabul::Error::Failed(failure)) => Ok(Renamed::Failed(failure)),
            Err(error) => Err(error.into()),
        }
    }

    fn time(&self) -> String {
        time_of_name(SystemTime::now())
    }
}

/// A time in UTC, without characters that some file systems refuse in names.
fn time_of_name(now: SystemTime) -> String {
    let ns = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
    let time = format::time(i64::try_from(ns).ok()).unwrap_or_default();
    time.replace(['-', ':'], "").replace(' ', "T")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_time_in_a_name_has_no_punctuation() {
        let time = time_of_name(UNIX_EPOCH + Duration::from_millis(1_795_762_080_900));
        assert_eq!(time, "20261127T064800Z");
    }
}
