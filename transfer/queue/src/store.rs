//! Store of jobs: an SQLite database in WAL mode.
//!
//! Each change of state is one transaction. A transaction is on the disk before its method returns
//! (`synchronous=FULL`), so an acknowledged job survives a power cut. Several processes use the database at the same
//! time; a writer waits for another writer.

use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rusqlite::types::Type;
use rusqlite::{
    Connection, ErrorCode, OpenFlags, OptionalExtension as _, Row, Transaction, params,
};
use rustix::process::geteuid;

use crate::action::{Action, Refusal};
use crate::columns::{joined, shortened, signed, split};
use crate::folder::{database, open_own};
use crate::job::{Command, Ending, HookState, Job, JobId, NewJob, Progress, Request, State, Times};
use crate::rules::{self, PAUSE_MAX, millis};

/// Version of the tables, in `user_version` of the database.
const VERSION: i32 = 1;
/// Ours: time to wait for other writers.
const BUSY_TIMEOUT: Duration = Duration::from_secs(30);
/// Ours: pause before another attempt where SQLite does not wait itself.
const BUSY_PAUSE: Duration = Duration::from_millis(10);

const TABLES: &str = "
CREATE TABLE job (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    state TEXT NOT NULL,
    request TEXT,
    priority INTEGER NOT NULL,
    name TEXT,
    words BLOB NOT NULL,
    directory BLOB NOT NULL,
    environment BLOB NOT NULL,
    hook_command BLOB,
    retry_for_ms INTEGER NOT NULL,
    added_ms INTEGER NOT NULL,
    not_before_ms INTEGER NOT NULL,
    due_ms INTEGER NOT NULL DEFAULT 0,
    started_ms INTEGER,
    ended_ms INTEGER,
    failing_since_ms INTEGER,
    attempts INTEGER NOT NULL DEFAULT 0,
    failures INTEGER NOT NULL DEFAULT 0,
    bytes INTEGER NOT NULL DEFAULT 0,
    bytes_total INTEGER,
    goodput_bps REAL NOT NULL DEFAULT 0,
    code INTEGER,
    message TEXT,
    hook INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE INDEX job_state ON job (state, priority DESC, id);
CREATE INDEX job_hook ON job (hook) WHERE hook IN (1, 2);
";

/// Error of the store.
#[derive(Debug)]
#[non_exhaustive]
pub enum StoreError {
    /// A file of the queue cannot be used.
    File(PathBuf, io::Error),
    /// The database reported an error.
    Database(rusqlite::Error),
    /// A newer version of the program created the database.
    Newer(PathBuf, i32),
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path, error) => {
                write!(f, "cannot use the queue in '{}': {error}", path.display())
            }
            Self::Database(error) => write!(f, "the database of the queue failed: {error}"),
            Self::Newer(path, version) => write!(
                f,
                "'{}' has version {version}, and this program reads version {VERSION}; use the newer sabul",
                path.display()
            ),
        }
    }
}

impl std::error::Error for StoreError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::File(_, error) => Some(error),
            Self::Database(error) => Some(error),
            Self::Newer(..) => None,
        }
    }
}

impl From<rusqlite::Error> for StoreError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Database(error)
    }
}

/// Repeats `work` while the database is locked. SQLite does not wait for a process that is just changing the journal mode,
/// or that removes the journal because it was the last process. [<https://sqlite.org/wal.html>, section 8]
fn patiently<T>(mut work: impl FnMut() -> rusqlite::Result<T>) -> rusqlite::Result<T> {
    let until = Instant::now() + BUSY_TIMEOUT;
    loop {
        match work() {
            Err(rusqlite::Error::SqliteFailure(error, _))
                if error.code == ErrorCode::DatabaseBusy && Instant::now() < until =>
            {
                std::thread::sleep(BUSY_PAUSE);
            }
            result => return result,
        }
    }
}

/// Queue of one user in a directory.
#[derive(Debug)]
pub struct Store {
    connection: Connection,
}

impl Store {
    /// Opens the queue in an existing directory, and creates the database if it is missing.
    ///
    /// # Errors
    ///
    /// If the directory does not belong to this user or others may write to it, or a file in the directory is a link,
    /// of another user, or writable by others; if the database has a newer version.
    pub fn open(folder: &Path) -> Result<Self, StoreError> {
        let refused = |error| StoreError::File(folder.to_owned(), error);
        let facts = fs::symlink_metadata(folder).map_err(refused)?;
        if !facts.is_dir() || facts.uid() != geteuid().as_raw() || facts.mode() & 0o022 != 0 {
            let why = "the directory must belong to you, with mode 0700, and be no link";
            return Err(refused(io::Error::other(why)));
        }
        let folder = fs::canonicalize(folder).map_err(refused)?;
        let path = database(&folder);
        for suffix in ["-wal", "-shm", ""] {
            let file = folder.join(format!("queue.sqlite{suffix}"));
            if suffix.is_empty() || fs::symlink_metadata(&file).is_ok() {
                open_own(&file).map_err(refused)?;
            }
        }
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
            | OpenFlags::SQLITE_OPEN_NO_MUTEX
            | OpenFlags::SQLITE_OPEN_NOFOLLOW;
        let (store, is_new) = Self::on(&path, || Connection::open_with_flags(&path, flags))?;
        if is_new {
            // The names of the new files, too, survive a power cut.
            for folder in folder.ancestors().take(2) {
                fs::File::open(folder).and_then(|it| it.sync_all()).map_err(refused)?;
            }
        }
        Ok(store)
    }

    /// Opens the database of `path` with `connect`, and creates missing tables. Returns whether the database is new.
    fn on(
        path: &Path,
        mut connect: impl FnMut() -> rusqlite::Result<Connection>,
    ) -> Result<(Self, bool), StoreError> {
        let connection = patiently(|| {
            let connection = connect()?;
            connection.busy_timeout(BUSY_TIMEOUT)?;
            connection.pragma_update(None, "journal_mode", "WAL")?;
            connection.pragma_update(None, "synchronous", "FULL")?;
            Ok(connection)
        })?;
        let mut store = Self { connection };
        let version = store.change(|tables| {
            let version = tables.pragma_query_value(None, "user_version", |row| row.get(0))?;
            if version == 0 {
                tables.execute_batch(TABLES)?;
                tables.pragma_update(None, "user_version", VERSION)?;
            }
            Ok::<i32, StoreError>(version)
        })?;
        if version > VERSION {
            return Err(StoreError::Newer(path.to_owned(), version));
        }
        Ok((store, version == 0))
    }

    /// Runs one transaction, which no other writer interrupts. An error rolls the transaction back.
    fn change<T, E: From<rusqlite::Error>>(
        &mut self,
        work: impl FnOnce(&Transaction<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        let behavior = rusqlite::TransactionBehavior::Immediate;
        let transaction = self.connection.transaction_with_behavior(behavior)?;
        let result = work(&transaction)?;
        transaction.commit()?;
        Ok(result)
    }

    /// Adds a job. The job is on the disk when this method returns.
    ///
    /// # Errors
    ///
    /// If the database fails; then the job is not in the queue.
    pub fn add(&mut self, job: &NewJob, now_ms: i64) -> Result<JobId, StoreError> {
        let NewJob { priority, name, command, retry_for, not_before_ms } = job;
        self.change(|jobs| {
            jobs.execute(
                "INSERT INTO job (state, priority, name, words, directory, environment, hook_command, retry_for_ms, \
                 added_ms, not_before_ms) VALUES ('waiting', ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
                params![
                    priority,
                    name,
                    joined(&command.words),
                    command.directory,
                    joined(&command.environment),
                    command.hook,
                    millis(*retry_for),
                    now_ms,
                    not_before_ms
                ],
            )?;
            Ok(jobs.last_insert_rowid())
        })
    }

    /// Returns the job with this number.
    ///
    /// # Errors
    ///
    /// If the database fails.
    pub fn job(&self, id: JobId) -> Result<Option<Job>, StoreError> {
        Ok(job_in(&self.connection, id)?)
    }

    /// Returns all jobs that have not ended, and at most this number of the jobs that ended last; in the order of their
    /// numbers.
    ///
    /// # Errors
    ///
    /// If the database fails.
    pub fn jobs(&self, ended_max: usize) -> Result<Vec<Job>, StoreError> {
        let mut select = self.connection.prepare_cached(
            "SELECT * FROM job WHERE state NOT IN ('done', 'failed', 'cancelled') OR id IN \
             (SELECT id FROM job WHERE state IN ('done', 'failed', 'cancelled') ORDER BY ended_ms DESC, id DESC LIMIT ?1) \
             ORDER BY id",
        )?;
        let ended_max = i64::try_from(ended_max).unwrap_or(i64::MAX);
        Ok(select.query_map([ended_max], read)?.collect::<Result<_, _>>()?)
    }

    /// Takes the next job whose time has come: its state is `running` now.
    ///
    /// # Errors
    ///
    /// If the database fails; then no job is taken.
    pub fn take(&mut self, now_ms: i64) -> Result<Option<Job>, StoreError> {
        self.change(|jobs| {
            let mut update = jobs.prepare_cached(
                "UPDATE job SET state = 'running', request = NULL, attempts = attempts + 1, started_ms = ?1, \
                 ended_ms = NULL, goodput_bps = 0 WHERE id = (SELECT id FROM job WHERE state = 'waiting' \
                 AND not_before_ms <= ?1 AND (due_ms <= ?1 OR due_ms > ?1 + ?2) \
                 ORDER BY priority DESC, id LIMIT 1) RETURNING *",
            )?;
            Ok(update.query_row(params![now_ms, millis(PAUSE_MAX)], read).optional()?)
        })
    }

    /// Returns the time of the next attempt of any job, if a job waits.
    ///
    /// # Errors
    ///
    /// If the database fails.
    pub fn next_ms(&self) -> Result<Option<i64>, StoreError> {
        let mut select = self.connection.prepare_cached(
            "SELECT min(max(not_before_ms, due_ms)) FROM job WHERE state = 'waiting'",
        )?;
        Ok(select.query_row([], |row| row.get(0))?)
    }

    /// Records the progress of a running job.
    ///
    /// # Errors
    ///
    /// If the database fails.
    pub fn set_progress(&mut self, id: JobId, progress: &Progress) -> Result<(), StoreError> {
        self.change(|jobs| {
            let Progress { bytes, bytes_total, goodput_bps } = *progress;
            jobs.prepare_cached(
                "UPDATE job SET bytes = ?2, bytes_total = ?3, goodput_bps = ?4 WHERE id = ?1 AND state = 'running'",
            )?
            .execute(params![id, signed(bytes), bytes_total.map(signed), goodput_bps])?;
            Ok(())
        })
    }

    /// Records the end of an attempt, and returns the new state of the job. A job that does not run keeps its state.
    ///
    /// # Errors
    ///
    /// If the database fails.
    pub fn finish(
        &mut self,
        id: JobId,
        ending: &Ending,
        now_ms: i64,
    ) -> Result<Option<State>, StoreError> {
        self.change(|jobs| {
            let Some(job) = job_in(jobs, id)?.filter(|job| job.state == State::Running) else {
                return Ok(None);
            };
            let next = rules::after(&job, ending, now_ms);
            let Progress { bytes, bytes_total, goodput_bps } = ending.progress;
            jobs.prepare_cached(
                "UPDATE job SET due_ms = ?2, failures = ?3, failing_since_ms = ?4, code = ?5, message = ?6, bytes = ?7, \
                 bytes_total = ?8, goodput_bps = ?9 WHERE id = ?1",
            )?
            .execute(params![
                id,
                next.due_ms,
                next.failures,
                next.failing_since_ms,
                ending.code,
                ending.message.as_deref().map(shortened),
                signed(bytes),
                bytes_total.map(signed),
                goodput_bps
            ])?;
            set_state(jobs, &job, next.state, now_ms)?;
            Ok(Some(next.state))
        })
    }

    /// Carries out an action of a user, and returns the state of the job, or the reason why the action is impossible. An
    /// action on a running job is a request to the runner, and the state stays `running` for now.
    ///
    /// # Errors
    ///
    /// If the database fails.
    pub fn act(
        &mut self,
        id: JobId,
        action: Action,
        now_ms: i64,
    ) -> Result<Result<State, Refusal>, StoreError> {
        self.change(|jobs| {
            let Some(job) = job_in(jobs, id)? else { return Ok(Err(Refusal::Missing(id))) };
            let (state, request) = match action.change(&job) {
                Ok(change) => change,
                Err(refusal) => return Ok(Err(refusal)),
            };
            if let Some(request) = request {
                jobs.execute(
                    "UPDATE job SET request = ?2 WHERE id = ?1",
                    params![id, request.word()],
                )?;
                return Ok(Ok(state));
            }
            if action == Action::Retry {
                jobs.execute(
                    "UPDATE job SET failures = 0, failing_since_ms = NULL, due_ms = ?2, not_before_ms = 0, hook = 0 \
                     WHERE id = ?1",
                    params![id, now_ms],
                )?;
            }
            set_state(jobs, &job, state, now_ms)?;
            Ok(Ok(state))
        })
    }

    /// Sets a variable of the environment of a job. A job that does not exist stays missing.
    ///
    /// # Errors
    ///
    /// If the database fails.
    pub fn set_variable(&mut self, id: JobId, name: &str, value: &[u8]) -> Result<(), StoreError> {
        self.change(|jobs| {
            let Some(job) = job_in(jobs, id)? else { return Ok(()) };
            let start = [name.as_bytes(), b"="].concat();
            let mut environment = job.command.environment;
            environment.retain(|variable| !variable.starts_with(&start));
            environment.push([&start, value].concat());
            jobs.execute(
                "UPDATE job SET environment = ?2 WHERE id = ?1",
                params![id, joined(&environment)],
            )?;
            Ok(())
        })
    }

    /// Returns the running jobs that a user stopped.
    ///
    /// # Errors
    ///
    /// If the database fails.
    pub fn requests(&self) -> Result<Vec<(JobId, Request)>, StoreError> {
        let mut select = self.connection.prepare_cached(
            "SELECT id, request FROM job WHERE state = 'running' AND request IS NOT NULL",
        )?;
        let found = select
            .query_map([], |row| Ok((row.get(0)?, Request::of_word(&row.get::<_, String>(1)?))))?;
        let found: Vec<(JobId, Option<Request>)> = found.collect::<Result<_, _>>()?;
        Ok(found.into_iter().filter_map(|(id, request)| Some((id, request?))).collect())
    }

    /// Ends the attempts of a runner that has died; for a new runner before its first job. Returns the interrupted jobs
    /// with their states: `waiting`, or the state that a user requested.
    ///
    /// # Errors
    ///
    /// If the database fails.
    pub fn recover(&mut self, now_ms: i64) -> Result<Vec<(JobId, State)>, StoreError> {
        self.change(|jobs| {
            let running: Vec<Job> = jobs
                .prepare("SELECT * FROM job WHERE state = 'running' ORDER BY id")?
                .query_map([], read)?
                .collect::<Result<_, _>>()?;
            let mut states = Vec::new();
            for job in running {
                let state = State::after_interrupt(job.request);
                set_state(jobs, &job, state, now_ms)?;
                states.push((job.id, state));
            }
            Ok(states)
        })
    }

    /// Returns the ended jobs whose hooks have not ended.
    ///
    /// # Errors
    ///
    /// If the database fails.
    pub fn hooks(&self) -> Result<Vec<JobId>, StoreError> {
        let mut select = self
            .connection
            .prepare_cached("SELECT id FROM job WHERE hook IN (1, 2) ORDER BY id")?;
        Ok(select.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?)
    }

    /// Records that the hook of a job starts. Returns the job, or `None` if its hook has ended or is not due. The caller
    /// has the lock of the job, so no other process runs the hook.
    ///
    /// # Errors
    ///
    /// If the database fails.
    pub fn start_hook(&mut self, id: JobId) -> Result<Option<Job>, StoreError> {
        self.change(|jobs| {
            jobs.execute("UPDATE job SET hook = 2 WHERE id = ?1 AND hook = 1", [id])?;
            Ok(job_in(jobs, id)?.filter(|job| job.hook == HookState::Running))
        })
    }

    /// Records that the hook of a job has ended.
    ///
    /// # Errors
    ///
    /// If the database fails.
    pub fn end_hook(&mut self, id: JobId) -> Result<(), StoreError> {
        self.change(|jobs| {
            jobs.execute("UPDATE job SET hook = 3 WHERE id = ?1 AND hook = 2", [id])?;
            Ok(())
        })
    }

    /// Removes jobs that ended before this time. Returns their number.
    ///
    /// # Errors
    ///
    /// If the database fails.
    pub fn remove_ended(&mut self, before_ms: i64) -> Result<usize, StoreError> {
        self.change(|jobs| {
            Ok(jobs.execute(
                "DELETE FROM job WHERE state IN ('done', 'failed', 'cancelled') AND ended_ms < ?1 AND hook IN (0, 3)",
                [before_ms],
            )?)
        })
    }
}

/// Sets the state of a job. The hook is due when the job ends.
fn set_state(jobs: &Transaction<'_>, job: &Job, state: State, now_ms: i64) -> rusqlite::Result<()> {
    let has_ended = job.state == State::Running && state != State::Running || state.is_end();
    let is_hook_due = state.is_end() && job.command.hook.is_some();
    jobs.prepare_cached(
        "UPDATE job SET state = ?2, request = NULL, ended_ms = iif(?3, ?4, ended_ms), hook = iif(?5, 1, hook), \
         goodput_bps = iif(?2 = 'done', goodput_bps, 0) WHERE id = ?1",
    )?
    .execute(params![job.id, state.word(), has_ended, now_ms, is_hook_due])?;
    Ok(())
}

fn job_in(jobs: &Connection, id: JobId) -> rusqlite::Result<Option<Job>> {
    jobs.prepare_cached("SELECT * FROM job WHERE id = ?1")?.query_row([id], read).optional()
}

/// Reads a row of the table.
fn read(row: &Row<'_>) -> rusqlite::Result<Job> {
    let millis = |name: &str| row.get::<_, Option<i64>>(name);
    let state: String = row.get("state")?;
    let unknown = |word: &str| {
        let error = format!("unknown state '{word}'");
        rusqlite::Error::FromSqlConversionFailure(1, Type::Text, error.into())
    };
    let request: Option<String> = row.get("request")?;
    let hook: usize = row.get("hook")?;
    let retry_for_ms: i64 = row.get("retry_for_ms")?;
    Ok(Job {
        id: row.get("id")?,
        state: State::of_word(&state).ok_or_else(|| unknown(&state))?,
        request: request.as_deref().and_then(Request::of_word),
        priority: row.get("priority")?,
        name: row.get("name")?,
        command: Command {
            words: split(&row.get::<_, Vec<u8>>("words")?),
            directory: row.get("directory")?,
            environment: split(&row.get::<_, Vec<u8>>("environment")?),
            hook: row.get("hook_command")?,
        },
        retry_for: Duration::from_millis(retry_for_ms.unsigned_abs()),
        times: Times {
            added_ms: row.get("added_ms")?,
            not_before_ms: row.get("not_before_ms")?,
            due_ms: row.get("due_ms")?,
            started_ms: millis("started_ms")?,
            ended_ms: millis("ended_ms")?,
            failing_since_ms: millis("failing_since_ms")?,
        },
        attempts: row.get("attempts")?,
        failures: row.get("failures")?,
        progress: Progress {
            bytes: row.get::<_, i64>("bytes")?.unsigned_abs(),
            bytes_total: millis("bytes_total")?.map(i64::unsigned_abs),
            goodput_bps: row.get("goodput_bps")?,
        },
        code: row.get("code")?,
        message: row.get("message")?,
        hook: HookState::ALL.get(hook).copied().unwrap_or_default(),
        worker: None,
        lease_left_ms: None,
    })
}

#[cfg(test)]
mod tests;
