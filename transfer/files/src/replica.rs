//! Decisions about a replica of a directory that has one writer: which versions of an entry came from the writer, which
//! entries are kept beside, and which may be removed.
//!
//! An entry of a replica that has another version was changed there. Two versions count: the last version that the
//! replica had, and the version that was sent since. A sent version is recorded before its copy starts, so that a process
//! that is killed at any time leaves no entry of the writer that counts as changed. After a pass, a version has arrived only
//! if that pass has sent it: the copy of an earlier pass may have ended without the entry.
//! Not here:    the comparison ([`super::Comparison`]), the database of the versions, the copy.

use std::fmt;

use sabul_wire::control::{Facts, Failure, FailureCode, SeenKind};

pub use catch_up::{CATCH_UP_MIN, Caught, may_send, sends};

use super::compare::Difference;
use super::part::start_of_name;

mod catch_up;

/// Names that are tried for an entry that is kept.
const NAMES_TRIED: u32 = 100;
/// Bytes of the number at the end of such a name.
const NUMBER_BYTES: usize = "-100".len();
const NS_PER_S: i64 = 1_000_000_000;

/// Identity of the content of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version {
    /// Number of the kind, above zero.
    pub kind: i64,
    /// Bytes of a file or of the target of a link.
    pub size: i64,
    /// Only of files.
    pub modified_ns: Option<i64>,
}

impl Version {
    /// Returns the version of an entry.
    pub fn of(facts: &Facts) -> Self {
        let (kind, is_file) = match facts.kind {
            SeenKind::File => (1, true),
            SeenKind::Directory => (2, false),
            SeenKind::Link => (3, false),
            SeenKind::Other => (4, false),
        };
        let size = if facts.kind == SeenKind::Directory { 0 } else { facts.size };
        Self {
            kind,
            size: i64::try_from(size).unwrap_or(i64::MAX),
            modified_ns: facts.modified_ns.filter(|_| is_file),
        }
    }

    /// Whether an entry of the replica has this version. A time without a fraction of a second is compared in seconds,
    /// because the file system of the replica may keep no more.
    pub fn is_copy_of(self, version: Self) -> bool {
        let times = match (self.modified_ns, version.modified_ns) {
            (Some(there), Some(sent)) if there % NS_PER_S == 0 => {
                there.div_euclid(NS_PER_S) == sent.div_euclid(NS_PER_S)
            }
            (there, sent) => there == sent,
        };
        times && (self.kind, self.size) == (version.kind, version.size)
    }

    /// The same version, if this is no file; a file with this size and time.
    fn of_file(self, size: u64, modified_ns: Option<i64>) -> Self {
        match self.modified_ns {
            None => self,
            Some(_) => Self { size: i64::try_from(size).unwrap_or(i64::MAX), modified_ns, ..self },
        }
    }
}

/// Versions of one entry at a replica.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Versions {
    /// Version that the replica had.
    pub had: Option<Version>,
    /// Version that was sent since.
    pub sent: Option<Version>,
}

impl Versions {
    /// The versions after a file of this size and time was sent. The file may have changed since the comparison.
    #[must_use]
    pub fn with_sent(self, size: u64, modified_ns: Option<i64>) -> Self {
        Self { sent: self.sent.map(|sent| sent.of_file(size, modified_ns)), ..self }
    }

    /// The versions after the sent version has arrived.
    #[must_use]
    pub fn arrived(self) -> Self {
        match self.sent {
            Some(_) => Self { had: self.sent, sent: None },
            None => self,
        }
    }

    /// Whether the replica has received this entry of the source.
    pub fn has(self, source: &Facts) -> bool {
        self.had == Some(Version::of(source))
    }

    /// Whether an entry of the replica has one of these versions.
    fn are_of(self, facts: &Facts) -> bool {
        let found = Version::of(facts);
        [self.had, self.sent].into_iter().flatten().any(|version| found.is_copy_of(version))
    }
}

/// Whether an entry failed, or one above the entry.
pub fn is_failed(path: &[u8], failed: &[&[u8]]) -> bool {
    failed.iter().any(|above| {
        path.strip_prefix(*above).is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
    })
}

/// Returns the entry of a failure. The sender names a failed entry by its place in the directory, and the receiver by the
/// entry. The directory ends in `/` if its content is the source.
pub fn failed_entry<'a>(path: &'a [u8], directory: &[u8]) -> &'a [u8] {
    let end = directory.iter().rposition(|&byte| byte != b'/').map_or(0, |last| last + 1);
    let (bare, is_content) = (&directory[..end], end < directory.len());
    let name_at = bare.iter().rposition(|&byte| byte == b'/').map_or(0, |at| at + 1);
    match path.strip_prefix(bare) {
        Some(rest) if rest.is_empty() || rest[0] == b'/' => {
            let slashes = rest.iter().take_while(|&&byte| byte == b'/').count();
            if is_content { &rest[slashes..] } else { &path[name_at..] }
        }
        _ => path,
    }
}

/// Decision about a difference.
#[derive(Debug)]
pub enum Guarded {
    /// The difference is carried out.
    CarriedOut(Difference),
    /// The entry of the replica stays.
    Left(Difference),
    /// The entry of the replica stays, because it cannot be renamed.
    Refused(Difference, Failure),
}

/// Result of a rename.
#[derive(Debug)]
pub enum Renamed {
    /// The entry has its new name.
    Done,
    /// The new name is in use.
    Exists,
    /// The entry was not renamed.
    Failed(Failure),
}

/// A replica, and the record of the versions that the replica received.
pub trait Replica {
    /// Error that ends the comparison.
    type Error;

    /// Returns the recorded versions of an entry.
    ///
    /// # Errors
    /// If the record cannot be read.
    fn versions(&self, path: &[u8]) -> Result<Versions, Self::Error>;

    /// Records the versions of an entry.
    ///
    /// # Errors
    /// If the record cannot be written.
    fn record(&self, path: &[u8], versions: Versions) -> Result<(), Self::Error>;

    /// Gives an unused name to the entry that was compared. Paths are relative to the replica.
    ///
    /// # Errors
    /// If the replica cannot be reached.
    fn rename(&self, from: &[u8], to: &[u8], seen: &Facts) -> Result<Renamed, Self::Error>;

    /// Time for the name of a kept entry, as text without `/`.
    fn time(&self) -> String;
}

/// Decides about a difference, keeps an entry that was changed at the replica, and records the versions of the entry.
///
/// # Errors
/// If the record fails, or the replica cannot be reached.
pub fn check<R: Replica>(replica: &R, difference: Difference) -> Result<Guarded, R::Error> {
    Ok(match difference {
        Difference::Copy { path, source, old } => return check_copy(replica, path, source, old),
        Difference::Extra { path, old } => {
            let is_ours = replica.versions(&path)?.are_of(&old);
            let extra = Difference::Extra { path, old };
            if is_ours { Guarded::CarriedOut(extra) } else { Guarded::Left(extra) }
        }
        Difference::Same { ref path, ref source, is_there: true }
        | Difference::Adjust { ref path, ref source, .. } => {
            let had = Some(Version::of(source));
            let equal = Versions { had, sent: None };
            if replica.versions(path)? != equal {
                replica.record(path, equal)?;
            }
            Guarded::CarriedOut(difference)
        }
        other => Guarded::CarriedOut(other),
    })
}

fn check_copy<R: Replica>(
    replica: &R,
    path: Vec<u8>,
    source: Facts,
    old: Option<Facts>,
) -> Result<Guarded, R::Error> {
    let versions = replica.versions(&path)?;
    let is_foreign = |old: &Facts| old.kind != SeenKind::Directory && !versions.are_of(old);
    let left = match old.filter(is_foreign) {
        Some(old) => match keep(replica, &path, &old)? {
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
    replica.record(&path, Versions { had, sent })?;
    Ok(Guarded::CarriedOut(Difference::Copy { path, source, old: left }))
}

/// Renames an entry of the replica.
///
/// # Errors
/// If the replica cannot be reached. An entry that cannot be renamed is no error of the replica.
pub fn keep<R: Replica>(
    replica: &R,
    path: &[u8],
    old: &Facts,
) -> Result<Result<(), Failure>, R::Error> {
    let stem = kept_name(path, &replica.time());
    for number in 1..=NAMES_TRIED {
        let mut kept = stem.clone();
        if number > 1 {
            kept.extend(format!("-{number}").bytes());
        }
        match replica.rename(path, &kept, old)? {
            Renamed::Done => return Ok(Ok(())),
            Renamed::Exists => {}
            Renamed::Failed(failure) => return Ok(Err(failure)),
        }
    }
    let text = "the replica's changed entry cannot be renamed: too many names exist";
    Ok(Err(Failure::new(FailureCode::Unwritable, text)))
}

/// Name of an entry that is kept. A long name is cut, so that the time and a number fit.
fn kept_name(path: &[u8], time: &str) -> Vec<u8> {
    let suffix = [b".kept-", time.as_bytes()].concat();
    let name_at = path.iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1);
    let (directory, name) = path.split_at(name_at);
    [directory, start_of_name(name, suffix.len() + NUMBER_BYTES), &suffix].concat()
}

/// Ours: a removal of more entries needs a limit.
const REMOVED_MAX: u64 = 1000;
/// Ours: a removal of a larger part of the destination needs a limit.
const REMOVED_SHARE_MAX: u64 = 10;

/// Counts that decide about the removal of the entries that exist only at the destination.
#[derive(Clone, Copy, Debug)]
pub struct Removal {
    /// Entries to remove, at least one.
    pub extras: u64,
    /// Entries of the source that were not listed or not copied.
    pub failures: u64,
    /// All entries of the source.
    pub source_entries: u64,
    /// All entries of the destination.
    pub destination_entries: u64,
    /// Most entries to remove, as the user has set.
    pub limit: Option<u64>,
}

/// Why nothing is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemovalRefused {
    /// So many entries of the source failed, so that the source may have an entry under another name.
    Failures(u64),
    /// The source has no entries.
    EmptySource,
    /// So many entries are more than the limit of the user.
    AboveLimit(u64, u64),
    /// So many of all entries of the destination are too many without a limit of the user.
    Many(u64, u64),
}

impl Removal {
    /// Checks that the entries may be removed.
    ///
    /// # Errors
    /// With the reason why nothing is removed.
    pub fn check(self) -> Result<(), RemovalRefused> {
        let Self { extras, failures, source_entries, destination_entries, limit } = self;
        if failures > 0 {
            return Err(RemovalRefused::Failures(failures));
        }
        if source_entries == 0 {
            return Err(RemovalRefused::EmptySource);
        }
        let is_much =
            extras > REMOVED_MAX || extras * 100 > destination_entries * REMOVED_SHARE_MAX;
        match limit {
            Some(limit) if extras > limit => Err(RemovalRefused::AboveLimit(extras, limit)),
            None if is_much => Err(RemovalRefused::Many(extras, destination_entries)),
            _ => Ok(()),
        }
    }
}

impl fmt::Display for RemovalRefused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("nothing was removed: ")?;
        match self {
            Self::Failures(1) => f.write_str("an entry of the source was not read or copied"),
            Self::Failures(failures) => {
                write!(f, "{failures} entries of the source were not read or copied")
            }
            Self::EmptySource => f.write_str(
                "the source is empty, or the filters exclude all of it; check the source and the filters",
            ),
            Self::AboveLimit(extras, limit) => write!(
                f,
                "{extras} entries exist only at the destination, more than --delete-limit {limit}"
            ),
            Self::Many(extras, all) => write!(
                f,
                "{extras} of {all} entries exist only at the destination, which is more than \
                 {REMOVED_SHARE_MAX} % or {REMOVED_MAX}; permit it with --delete-limit {extras}"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_kept_entry_has_the_time() {
        let name = kept_name(b"a/b.txt", "20261127T064800Z");
        assert_eq!(String::from_utf8(name).unwrap(), "a/b.txt.kept-20261127T064800Z");
    }

    #[test]
    fn a_long_name_leaves_room_for_the_time_and_a_number() {
        let path = ["d/", &"é".repeat(127)].concat();
        let kept = String::from_utf8(kept_name(path.as_bytes(), "19700101T000000Z")).unwrap();
        let name = kept.strip_prefix("d/").unwrap();
        assert!((248..=251).contains(&name.len()), "{}", name.len());
        assert!(name.ends_with("é.kept-19700101T000000Z"), "{name}");
    }

    #[test]
    fn a_time_without_a_fraction_is_compared_in_seconds() {
        let at = |modified_ns| Version { kind: 1, size: 3, modified_ns: Some(modified_ns) };
        assert!(at(5 * NS_PER_S).is_copy_of(at(5 * NS_PER_S + 123)));
        assert!(!at(5 * NS_PER_S).is_copy_of(at(6 * NS_PER_S)));
        assert!(!at(5 * NS_PER_S + 1).is_copy_of(at(5 * NS_PER_S + 123)));
        assert!(!at(7).is_copy_of(Version { size: 4, ..at(7) }));
    }

    #[test]
    fn a_failure_at_the_source_has_the_name_of_its_entry() {
        for (path, directory, entry) in [
            ("/data/photos/a/b", "/data/photos/", "a/b"),
            ("/data/photos/a/b", "/data/photos", "photos/a/b"),
            ("/data/photos", "/data/photos", "photos"),
            ("/data/photos/", "/data/photos/", ""),
            ("/a", "//", "a"),
            ("a/b", "/data/photos/", "a/b"),
            ("/data/photos-2/a", "/data/photos/", "/data/photos-2/a"),
        ] {
            let found = failed_entry(path.as_bytes(), directory.as_bytes());
            assert_eq!(found, entry.as_bytes(), "{path} in {directory}");
        }
    }

    #[test]
    fn a_removal_needs_a_complete_source_and_few_entries_or_a_limit() {
        let usual = Removal {
            extras: 10,
            failures: 0,
            source_entries: 100,
            destination_entries: 100,
            limit: None,
        };
        assert_eq!(usual.check(), Ok(()));
        for (removal, why) in [
            (Removal { failures: 1, ..usual }, RemovalRefused::Failures(1)),
            (Removal { source_entries: 0, ..usual }, RemovalRefused::EmptySource),
            (Removal { extras: 11, ..usual }, RemovalRefused::Many(11, 100)),
            (Removal { limit: Some(9), ..usual }, RemovalRefused::AboveLimit(10, 9)),
        ] {
            assert_eq!(removal.check(), Err(why));
        }
        let many = Removal { extras: 1001, destination_entries: 1_000_000, ..usual };
        assert_eq!(many.check(), Err(RemovalRefused::Many(1001, 1_000_000)));
        assert_eq!(Removal { limit: Some(1001), ..many }.check(), Ok(()));
    }
}
