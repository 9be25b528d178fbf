//! Protection of a replica's own changes: an entry that was changed at the replica is renamed before a copy takes its
//! name, and an entry that never came from the source is not removed.

use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};

use sabul::Failure;
use sabul::files::{Facts, SeenKind};
use sabul::internal::compare::{Difference, RenameOf};
use sabul::internal::start_of_name;
use sabul_front::format;

use super::names::SentObserver;
use super::sides::Sides;
use super::versions::{Store, Version, Versions};
use crate::error::CliError;

/// Names that are tried for an entry that is kept.
const NAMES_TRIED: u32 = 100;
/// Bytes of the number at the end of such a name.
const NUMBER_BYTES: usize = "-100".len();

/// Decision about a difference.
#[derive(Debug)]
pub(super) enum Guarded {
    /// The difference is carried out.
    CarriedOut(Difference),
    /// The entry of the replica stays.
    Left(Difference),
    /// The entry of the replica stays, because it cannot be renamed.
    Refused(Difference, Failure),
}

/// Entries kept beside: the old and the new name.
pub(super) type Kept = Vec<(Vec<u8>, Vec<u8>)>;

/// Database of a replica, and the entries that the current pass has kept.
#[derive(Clone, Debug)]
pub(super) struct Replica {
    store: Arc<Mutex<Store>>,
    kept: Arc<Mutex<Kept>>,
}

impl Replica {
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
            let sent = versions.sent.map(|sent| sent.of_file(size, modified_ns));
            match sent == versions.sent {
                true => Ok(()),
                false => {
                    store.record(path, Versions { sent, ..versions })?;
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
    replica: Replica,
    sides: Sides,
}

impl Guard {
    pub(super) const fn new(replica: Replica, sides: Sides) -> Self {
        Self { replica, sides }
    }

    /// Returns the function that records sent versions.
    pub(super) fn observer(&self) -> SentObserver {
        let replica = self.replica.clone();
        Box::new(move |path, size, modified_ns| replica.sent(path, size, modified_ns))
    }

    /// Writes all recorded versions.
    pub(super) fn finish(&self) -> Result<(), CliError> {
        self.replica.with_store(Store::commit)
    }

    /// Decides about a difference, and records the versions of its entry. Blocks.
    pub(super) fn check(&self, difference: Difference) -> Result<Guarded, CliError> {
        Ok(match difference {
            Difference::Copy { path, source, old } => return self.check_copy(path, source, old),
            Difference::Extra { path, old } => {
                let is_ours = self.versions(&path)?.are_of(&old);
                let extra = Difference::Extra { path, old };
                if is_ours { Guarded::CarriedOut(extra) } else { Guarded::Left(extra) }
            }
            Difference::Same { ref path, ref source, is_there: true }
            | Difference::Adjust { ref path, ref source, .. } => {
                let had = Some(Version::of(source));
                let equal = Versions { had, sent: None };
                if self.versions(path)? != equal {
                    self.replica.with_store(|store| store.record(path, equal))?;
                }
                Guarded::CarriedOut(difference)
            }
            other => Guarded::CarriedOut(other),
        })
    }

    fn versions(&self, path: &[u8]) -> Result<Versions, CliError> {
        self.replica.with_store(|store| store.versions(path))
    }

    fn check_copy(
        &self,
        path: Vec<u8>,
        source: Facts,
        old: Option<Facts>,
    ) -> Result<Guarded, CliError> {
        let versions = self.versions(&path)?;
        let is_foreign = |old: &Facts| old.kind != SeenKind::Directory && !versions.are_of(old);
        let left = match old.filter(is_foreign) {
            Some(old) => match self.keep(&path, &old)? {
                Ok(()) => None,
                Err(failure) => {
                    let difference = Difference::Copy { path, source, old: Some(old) };
                    return Ok(Guarded::Refused(difference, failure));
                }
            },
            None => old,
        };
        // The version that the replica has now is known from its entry.
        let had = old.map(|old| Version::of(&old)).filter(|_| left.is_some());
        let sent = Some(Version::of(&source));
        self.replica.with_store(|store| store.record(&path, Versions { had, sent }))?;
        Ok(Guarded::CarriedOut(Difference::Copy { path, source, old: left }))
    }

    /// Renames an entry of the replica.
    fn keep(&self, path: &[u8], old: &Facts) -> Result<Result<(), Failure>, CliError> {
        let below = self.sides.destination_id()?;
        let conditions = RenameOf { seen: Some(Facts { hash: None, ..*old }), below };
        let stem = kept_name(path, SystemTime::now());
        for number in 1..=NAMES_TRIED {
            let mut kept = stem.clone();
            if number > 1 {
                kept.extend(format!("-{number}").bytes());
            }
            let (from, to) =
                (self.sides.below_destination(path), self.sides.below_destination(&kept));
            let renamed = self.sides.session.move_compared(from, to, conditions);
            match self.sides.runtime.block_on(renamed) {
                Ok(()) => {
                    if let Ok(mut all) = self.replica.kept.lock() {
                        all.push((path.to_vec(), kept));
                    }
                    return Ok(Ok(()));
                }
                Err(sabul::Error::Exists(_)) => {}
                Err(sabul::Error::Failed(failure)) => return Ok(Err(failure)),
                Err(error) => return Err(error.into()),
            }
        }
        let text = "the replica's changed entry cannot be renamed: too many names exist";
        Ok(Err(Failure::new(sabul::FailureCode::Unwritable, text)))
    }
}

impl Versions {
    /// Whether an entry of the replica has one of these versions.
    fn are_of(self, facts: &Facts) -> bool {
        let found = Version::of(facts);
        [self.had, self.sent].into_iter().flatten().any(|version| found.is_copy_of(version))
    }
}

/// Name of an entry that is kept: the time is UTC. A long name is cut, so that the time and a number fit.
fn kept_name(path: &[u8], now: SystemTime) -> Vec<u8> {
    let ns = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
    let time = format::time(i64::try_from(ns).ok()).unwrap_or_default();
    let digits = time.replace(['-', ':'], "").replace(' ', "T");
    let suffix = [b".kept-", digits.as_bytes()].concat();
    let name_at = path.iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1);
    let (directory, name) = path.split_at(name_at);
    [directory, start_of_name(name, suffix.len() + NUMBER_BYTES), &suffix].concat()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_name_of_a_kept_entry_has_the_time() {
        let name = kept_name(b"a/b.txt", UNIX_EPOCH + Duration::from_millis(1_795_762_080_900));
        assert_eq!(String::from_utf8(name).unwrap(), "a/b.txt.kept-20261127T064800Z");
    }

    #[test]
    fn a_long_name_leaves_room_for_the_time_and_a_number() {
        let path = ["d/", &"é".repeat(127)].concat();
        let kept = String::from_utf8(kept_name(path.as_bytes(), UNIX_EPOCH)).unwrap();
        let name = kept.strip_prefix("d/").unwrap();
        assert!((248..=251).contains(&name.len()), "{}", name.len());
        assert!(name.ends_with("é.kept-19700101T000000Z"), "{name}");
    }
}
