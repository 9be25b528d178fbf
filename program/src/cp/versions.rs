//! Versions that a replica received, in a database of this user: one database for each source and replica.
//! The decisions are those of [`sabul::internal::replica`].

use std::fs::File;
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags, OptionalExtension as _, params};
use rustix::fs::{FlockOperation, OFlags, flock};
use sabul::internal::replica::{Version, Versions};
use sabul_content::Printable;
use sabul_front::state;

use crate::database;
use crate::error::CliError;

/// Name of the directory of the databases, in the state directory.
const FOLDER: &str = "replicas";
const EXTENSION: &str = "db";
/// Ours: time to wait for a process that reads.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);
/// Version of the tables.
const FORMAT: i64 = 1;
/// Changes that are committed at once, after the first changes. Ours: a commit costs some ten changes, and a process that
/// is killed loses the versions of so many entries.
const CHANGES_AT_ONCE: u32 = 50;
/// Ours: so many changes are committed one by one.
const SINGLE_CHANGES: u32 = 1000;

const TABLES: &str = "
    CREATE TABLE site (
        directory BLOB NOT NULL,
        place BLOB NOT NULL,
        rules TEXT NOT NULL,
        archive INTEGER NOT NULL,
        completed_s REAL,
        tried_s REAL,
        error TEXT,
        kept INTEGER NOT NULL DEFAULT 0
    ) STRICT;
    CREATE TABLE version (
        path BLOB PRIMARY KEY,
        kind INTEGER NOT NULL,
        size INTEGER NOT NULL,
        modified_ns INTEGER,
        sent_kind INTEGER,
        sent_size INTEGER,
        sent_modified_ns INTEGER
    ) STRICT, WITHOUT ROWID;";

/// Entries that another replica sent, and whose contents were not compared with those of the source since.
const UNCHECKED: &str =
    "CREATE TABLE IF NOT EXISTS unchecked (path BLOB PRIMARY KEY) STRICT, WITHOUT ROWID;";

/// Versions that were sent in this pass become versions that the replica had. A negative kind is that of a version that was
/// sent before: its copy may have ended without the entry.
const ARRIVED: &str = "
    UPDATE version SET kind = sent_kind, size = sent_size, modified_ns = sent_modified_ns, sent_kind = NULL
    WHERE sent_kind > 0";

/// Kind of a version that does not exist.
const NO_KIND: i64 = 0;

/// Places and settings of a replica, and the results of its passes.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Site {
    /// Source: an absolute path, with a slash at its end for the content of the directory.
    pub(super) directory: Vec<u8>,
    /// Place of the replica, in one spelling.
    pub(super) place: Vec<u8>,
    /// Filter rules, as JSON.
    pub(super) rules: String,
    /// Links are copied as links.
    pub(super) archive: bool,
}

/// Results of the passes of a replica. Times are in seconds since 1970.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Passes {
    /// End of the last pass after which the replica was in step.
    pub(super) completed_s: Option<f64>,
    /// End of the last pass.
    pub(super) tried_s: Option<f64>,
    /// Why the last pass failed.
    pub(super) error: Option<String>,
    /// Entries that were kept beside, in all passes.
    pub(super) kept: u64,
}

/// Database of a replica.
#[derive(Debug)]
pub(super) struct Store {
    path: PathBuf,
    connection: Connection,
    /// Changes since the last commit, and in all.
    changes: u32,
    all_changes: u32,
    /// Lock of the process that writes; the kernel releases the lock at its end.
    _lock: Option<File>,
}

impl Store {
    /// Opens the database of this replica for writing; creates a missing database.
    pub(super) fn write(folder: &Path, site: &Site) -> Result<Self, CliError> {
        let key = [&site.directory[..], &site.place].join(&0);
        let name = blake3::hash(&key).to_hex()[..16].to_owned();
        let path = folder.join(name).with_extension(EXTENSION);
        let lock = lock(&path)?.ok_or_else(|| {
            CliError::failed(format!(
                "another process replicates to '{}'; stop that process first",
                Printable(&site.place)
            ))
        })?;
        let mut store = Self::open(&path, OpenFlags::default())?;
        store._lock = Some(lock);
        store.prepare(site).map_err(|error| store.failed(&error))?;
        Ok(store)
    }

    /// Opens all databases for reading.
    pub(super) fn all(folder: &Path) -> Result<Vec<Self>, CliError> {
        let fail = |error: io::Error| {
            CliError::failed(format!("cannot read the directory '{}': {error}", folder.display()))
        };
        let mut paths = Vec::new();
        for entry in folder.read_dir().map_err(fail)? {
            let path = entry.map_err(fail)?.path();
            if path.extension().is_some_and(|it| it == EXTENSION) {
                paths.push(path);
            }
        }
        paths.sort();
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let mut stores = Vec::new();
        for path in paths {
            let store = Self::open(&path, flags)?;
            // Another process may be about to create the tables.
            if store.format().map_err(|error| store.failed(&error))? == FORMAT {
                stores.push(store);
            }
        }
        Ok(stores)
    }

    fn open(path: &Path, flags: OpenFlags) -> Result<Self, CliError> {
        let fail = |error: rusqlite::Error| unusable(path, &error);
        let connection = Connection::open_with_flags(path, flags).map_err(fail)?;
        connection.busy_timeout(BUSY_TIMEOUT).map_err(fail)?;
        let store =
            Self { path: path.to_owned(), connection, changes: 0, all_changes: 0, _lock: None };
        match store.format().map_err(fail)? {
            0 | FORMAT => Ok(store),
            other => Err(CliError::usage(format!(
                "'{}' has format {other} of another version of sabul; this version reads format {FORMAT}",
                path.display()
            ))),
        }
    }

    fn format(&self) -> rusqlite::Result<i64> {
        self.connection.pragma_query_value(None, "user_version", |row| row.get(0))
    }

    /// Creates missing tables, and records the settings.
    fn prepare(&mut self, site: &Site) -> rusqlite::Result<()> {
        self.connection.pragma_update(None, "journal_mode", "wal")?;
        // A power cut may lose the last versions; then files of the replica may be kept without need.
        self.connection.pragma_update(None, "synchronous", "normal")?;
        let is_new = self.format()? == 0;
        let work = self.connection.transaction()?;
        if is_new {
            work.execute_batch(TABLES)?;
            work.pragma_update(None, "user_version", FORMAT)?;
            work.execute(
                "INSERT INTO site (directory, place, rules, archive) VALUES (?1, ?2, '', 0)",
                params![site.directory, site.place],
            )?;
        }
        work.execute_batch(UNCHECKED)?;
        work.execute(
            "UPDATE site SET rules = ?1, archive = ?2",
            params![site.rules, site.archive],
        )?;
        work.commit()
    }

    fn failed(&self, error: &rusqlite::Error) -> CliError {
        unusable(&self.path, error)
    }

    /// Returns places, settings and results.
    pub(super) fn site(&self) -> Result<(Site, Passes), CliError> {
        let text =
            "SELECT directory, place, rules, archive, completed_s, tried_s, error, kept FROM site";
        let row = self.connection.query_row(text, [], |row| {
            let site = Site {
                directory: row.get(0)?,
                place: row.get(1)?,
                rules: row.get(2)?,
                archive: row.get(3)?,
            };
            let passes = Passes {
                completed_s: row.get(4)?,
                tried_s: row.get(5)?,
                error: row.get(6)?,
                kept: row.get(7)?,
            };
            Ok((site, passes))
        });
        row.map_err(|error| self.failed(&error))
    }

    /// Records the end of a pass: `Ok` if the replica is in step.
    pub(super) fn end_pass(
        &mut self,
        now_s: f64,
        result: Result<(), &str>,
    ) -> Result<(), CliError> {
        self.commit()?;
        let mut write = || -> rusqlite::Result<()> {
            let work = self.connection.transaction()?;
            work.execute(
                "UPDATE site SET tried_s = ?1, error = ?2,
                 completed_s = CASE WHEN ?2 IS NULL THEN ?1 ELSE completed_s END",
                params![now_s, result.err()],
            )?;
            if result.is_ok() {
                work.execute(ARRIVED, [])?;
            }
            work.commit()
        };
        write().map_err(|error| unusable(&self.path, &error))
    }

    /// Begins a pass: versions that were sent before do not arrive in this pass.
    pub(super) fn begin_pass(&mut self) -> Result<(), CliError> {
        self.change("UPDATE version SET sent_kind = -sent_kind WHERE sent_kind > 0", [])?;
        self.commit()
    }

    /// Records that each version that was sent in this pass has arrived, except those of failed entries and of entries
    /// below them.
    pub(super) fn record_arrivals(&mut self, failed: &[&[u8]]) -> Result<(), CliError> {
        self.commit()?;
        let mut write = || -> rusqlite::Result<()> {
            let work = self.connection.transaction()?;
            for path in failed {
                // '0' is the byte after '/'.
                let (from, to) = ([*path, b"/"].concat(), [*path, b"0"].concat());
                work.prepare_cached(
                    "UPDATE version SET sent_kind = -sent_kind
                     WHERE sent_kind > 0 AND (path = ?1 OR (path >= ?2 AND path < ?3))",
                )?
                .execute(params![path, from, to])?;
            }
            work.execute(ARRIVED, [])?;
            work.commit()
        };
        write().map_err(|error| unusable(&self.path, &error))
    }

    /// Counts entries that were kept beside.
    pub(super) fn add_kept(&mut self, kept: u64) -> Result<(), CliError> {
        if kept == 0 {
            return Ok(());
        }
        self.change("UPDATE site SET kept = kept + ?1", [kept])?;
        self.commit()
    }

    /// Returns the versions of an entry.
    pub(super) fn versions(&self, path: &[u8]) -> Result<Versions, CliError> {
        let read = || -> rusqlite::Result<Option<Versions>> {
            let mut row = self.connection.prepare_cached(
                "SELECT kind, size, modified_ns, sent_kind, sent_size, sent_modified_ns FROM version
                 WHERE path = ?1",
            )?;
            row.query_row([path], |row| {
                let version = |at| -> rusqlite::Result<Option<Version>> {
                    let kind: Option<i64> = row.get(at)?;
                    let Some(kind) = kind.filter(|&kind| kind != NO_KIND) else { return Ok(None) };
                    Ok(Some(Version {
                        kind: kind.abs(),
                        size: row.get(at + 1)?,
                        modified_ns: row.get(at + 2)?,
                    }))
                };
                Ok(Versions { had: version(0)?, sent: version(3)? })
            })
            .optional()
        };
        Ok(read().map_err(|error| self.failed(&error))?.unwrap_or_default())
    }

    /// Records the versions of an entry; on disk after the next commit.
    pub(super) fn record(&mut self, path: &[u8], versions: Versions) -> Result<(), CliError> {
        let none = Version { kind: NO_KIND, size: 0, modified_ns: None };
        let (had, sent) = (versions.had.unwrap_or(none), versions.sent);
        self.change(
            "INSERT OR REPLACE INTO version VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
            params![
                path,
                had.kind,
                had.size,
                had.modified_ns,
                sent.map(|it| it.kind),
                sent.map(|it| it.size),
                sent.and_then(|it| it.modified_ns)
            ],
        )
    }

    /// Records that another replica is about to send an entry; on disk after the next commit.
    pub(super) fn add_unchecked(&mut self, path: &[u8]) -> Result<(), CliError> {
        self.change("INSERT OR IGNORE INTO unchecked VALUES (?1)", [path])
    }

    /// Records that the content of an entry was compared; on disk after the next commit.
    pub(super) fn remove_unchecked(&mut self, path: &[u8]) -> Result<(), CliError> {
        self.change("DELETE FROM unchecked WHERE path = ?1", [path])
    }

    /// Returns the entries whose contents were not compared yet.
    pub(super) fn unchecked(&self) -> Result<Vec<Vec<u8>>, CliError> {
        let read = || -> rusqlite::Result<Vec<Vec<u8>>> {
            let mut rows = self.connection.prepare("SELECT path FROM unchecked ORDER BY path")?;
            rows.query_map([], |row| row.get(0))?.collect()
        };
        read().map_err(|error| self.failed(&error))
    }

    fn change(&mut self, text: &str, values: impl rusqlite::Params) -> Result<(), CliError> {
        let write = || -> rusqlite::Result<()> {
            if self.changes == 0 {
                self.connection.execute_batch("BEGIN IMMEDIATE")?;
            }
            self.connection.prepare_cached(text)?.execute(values)?;
            Ok(())
        };
        write().map_err(|error| self.failed(&error))?;
        self.changes += 1;
        self.all_changes = self.all_changes.saturating_add(1);
        let is_due = self.all_changes < SINGLE_CHANGES || self.changes >= CHANGES_AT_ONCE;
        if is_due { self.commit() } else { Ok(()) }
    }

    /// Writes all changes.
    pub(super) fn commit(&mut self) -> Result<(), CliError> {
        if std::mem::take(&mut self.changes) == 0 {
            return Ok(());
        }
        self.connection.execute_batch("COMMIT").map_err(|error| self.failed(&error))
    }
}

/// Returns the directory of this user's databases.
pub(super) fn folder() -> Result<PathBuf, CliError> {
    state::directory(FOLDER).map_err(|error| CliError::usage(error.to_string()))
}

/// Locks the file beside a database; `None` if another process has the lock.
fn lock(path: &Path) -> Result<Option<File>, CliError> {
    let path = path.with_extension("lock");
    let mut options = File::options();
    // With both rights and without waiting, a FIFO does not block.
    let options = options.read(true).append(true).create(true);
    let options = options.custom_flags(OFlags::NONBLOCK.bits().cast_signed());
    let file = options.open(&path).and_then(|file| {
        if !file.metadata()?.is_file() {
            return Err(io::Error::other("it is not a regular file; remove it"));
        }
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(file)),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(error.into()),
        }
    });
    file.map_err(|error| CliError::failed(format!("cannot lock '{}': {error}", path.display())))
}

fn unusable(path: &Path, error: &rusqlite::Error) -> CliError {
    database::failed(path, "a replica", error)
}

#[cfg(test)]
mod tests {
    use sabul::internal::replica::is_failed;

    use super::*;

    fn site() -> Site {
        let (directory, place) = (b"/source/".to_vec(), b"host:copy".to_vec());
        Site { directory, place, rules: "[]".to_owned(), archive: false }
    }

    fn version(size: i64) -> Version {
        Version { kind: 1, size, modified_ns: Some(7) }
    }

    #[test]
    fn a_fifo_in_place_of_the_lock_is_refused_without_waiting() {
        let folder = tempfile::tempdir().unwrap();
        let fifo = folder.path().join("a.lock");
        rustix::fs::mkfifoat(rustix::fs::CWD, fifo, rustix::fs::Mode::RWXU).unwrap();
        let path = folder.path().join("a.db");
        let (sender, receiver) = std::sync::mpsc::channel();
        std::thread::spawn(move || sender.send(lock(&path).map(drop)));
        let refused = receiver.recv_timeout(Duration::from_secs(10)).unwrap();
        let text = refused.unwrap_err().to_string();
        assert!(text.contains("a.lock': it is not a regular file; remove it"), "{text}");
    }

    #[test]
    fn a_sent_version_counts_at_once_and_has_arrived_after_a_complete_pass() {
        let folder = tempfile::tempdir().unwrap();
        let mut store = Store::write(folder.path(), &site()).unwrap();
        let versions = Versions { had: None, sent: Some(version(3)) };
        store.record(b"a", versions).unwrap();
        assert_eq!(store.versions(b"a").unwrap(), versions);
        store.end_pass(1.0, Err("lost")).unwrap();
        assert_eq!(store.versions(b"a").unwrap(), versions);
        store.end_pass(2.0, Ok(())).unwrap();
        let arrived = Versions { had: Some(version(3)), sent: None };
        assert_eq!(store.versions(b"a").unwrap(), arrived);
        drop(store);
        let all = Store::all(folder.path()).unwrap();
        assert_eq!(all[0].versions(b"a").unwrap(), arrived);
        let (read, passes) = all[0].site().unwrap();
        assert_eq!((read, passes.completed_s, passes.error), (site(), Some(2.0), None));
    }

    #[test]
    fn a_version_of_an_earlier_pass_does_not_arrive_in_a_later_one() {
        let folder = tempfile::tempdir().unwrap();
        let mut store = Store::write(folder.path(), &site()).unwrap();
        let versions = Versions { had: Some(version(2)), sent: Some(version(3)) };
        store.begin_pass().unwrap();
        for path in [b"a", b"b"] {
            store.record(path, versions).unwrap();
        }
        // The copy ends with the process.
        drop(store);
        let mut store = Store::write(folder.path(), &site()).unwrap();
        store.begin_pass().unwrap();
        store.record(b"b", versions).unwrap();
        store.record_arrivals(&[]).unwrap();
        store.end_pass(1.0, Ok(())).unwrap();
        assert_eq!(store.versions(b"a").unwrap(), versions, "both count");
        let arrived = Versions { had: Some(version(3)), sent: None };
        assert_eq!(store.versions(b"b").unwrap(), arrived);
        store.begin_pass().unwrap();
        store.end_pass(2.0, Ok(())).unwrap();
        assert_eq!(store.versions(b"a").unwrap(), versions, "both count in each later pass");
    }

    #[test]
    fn versions_of_failed_entries_have_not_arrived() {
        let folder = tempfile::tempdir().unwrap();
        let mut store = Store::write(folder.path(), &site()).unwrap();
        let sent = Versions { had: None, sent: Some(version(3)) };
        let arrived = Versions { had: Some(version(3)), sent: None };
        let paths = [&b"a"[..], b"x", b"x/y/z", b"x-", b"x0", b"xy"];
        for path in paths {
            store.record(path, sent).unwrap();
        }
        store.record_arrivals(&[b"x", b"unknown"]).unwrap();
        for path in paths {
            let is_expected = matches!(path, b"x" | b"x/y/z");
            assert_eq!(is_failed(path, &[b"x", b"unknown"]), is_expected, "the rule without SQL");
            let expected = if is_expected { sent } else { arrived };
            assert_eq!(sent.arrived(), arrived);
            assert_eq!(store.versions(path).unwrap(), expected, "{}", Printable(path));
        }
    }

    #[test]
    fn one_process_writes_and_others_read() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::write(folder.path(), &site()).unwrap();
        let error = Store::write(folder.path(), &site()).unwrap_err().to_string();
        assert!(error.contains("another process replicates to 'host:copy'"), "{error}");
        assert_eq!(Store::all(folder.path()).unwrap().len(), 1);
        drop(store);
        assert!(Store::write(folder.path(), &site()).is_ok());
    }
}
