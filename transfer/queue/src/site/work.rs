//! Jobs of a site, for its workers: take, renew, finish; and hooks.

use std::io::{self, Read as _, Seek as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::rand::{GetRandomFlags, getrandom};
use tokio_postgres::types::ToSql;

use super::jobs::{job_in, row_in, set_state};
use super::row::{COLUMNS, read};
use super::{Site, SiteError};
use crate::columns::{shortened, signed};
use crate::folder::{self, open_own};
use crate::job::{Ending, HookState, Job, JobId, Progress, Request, State};
use crate::rules::{self, PAUSE_MAX, millis};

/// Ours: the worker of a job starts its hook within this time; then any worker does.
const HOOK_MS: i64 = 10_000;
/// Ours: time for the attempts of a killed worker to end.
const END_TIMEOUT: Duration = Duration::from_secs(5);

/// Identity of a worker: a name for people, and a random word that stays in the files of the worker.
#[derive(Clone, Debug)]
pub struct Worker {
    name: String,
    id: String,
    lease: Duration,
    folder: PathBuf,
}

impl Worker {
    /// Reads the identity of the worker with its files in this directory, and creates the identity if it is missing.
    pub(super) fn open(name: &str, folder: &Path, lease: Duration) -> Result<Self, SiteError> {
        let path = folder.join("worker");
        let failed = |error: io::Error| SiteError::File(path.clone(), error);
        let mut file = open_own(&path).map_err(failed)?;
        let mut id = String::new();
        (&mut file).take(64).read_to_string(&mut id).map_err(failed)?;
        if id.len() != 32 {
            id = random_word()?;
            file.set_len(0).map_err(failed)?;
            file.rewind().map_err(failed)?;
            file.write_all(id.as_bytes()).map_err(failed)?;
            file.sync_all().map_err(failed)?;
        }
        Ok(Self { name: name.to_owned(), id, lease, folder: folder.to_owned() })
    }

    pub(super) const fn lease(&self) -> Duration {
        self.lease
    }
}

/// Returns a random word of 32 characters.
pub(super) fn random_word() -> Result<String, SiteError> {
    let mut bytes = [0_u8; 16];
    let length = getrandom(&mut bytes, GetRandomFlags::empty())
        .map_err(|error| SiteError::Process(error.into()))?;
    debug_assert_eq!(length, bytes.len(), "the kernel returns up to 256 bytes at once");
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

impl Site {
    /// Ends the attempts of this worker before a restart, and of workers whose leases have ended. Returns the
    /// interrupted jobs with their states.
    pub(crate) fn recover(&mut self, is_start: bool) -> Result<Vec<(JobId, State)>, SiteError> {
        let worker = self.worker()?.clone();
        let own = if is_start { self.free_jobs(&worker)? } else { Vec::new() };
        let select = format!(
            "SELECT {COLUMNS} FROM sabul.job WHERE state = 'running' AND (id = ANY ($1) AND worker_id = $2 \
             OR NOT sabul.is_held(job)) ORDER BY id FOR UPDATE SKIP LOCKED"
        );
        self.call(async |client| {
            let jobs = client.transaction().await?;
            let mut states = Vec::new();
            for row in jobs.query(&select, &[&own, &worker.id]).await? {
                let job = read(&row)?;
                let state = State::after_interrupt(job.request);
                set_state(&jobs, &job, state).await?;
                // The attempt recorded no end.
                let clear = "UPDATE sabul.job SET last_token = NULL WHERE id = $1";
                jobs.execute(clear, &[&job.id]).await?;
                states.push((job.id, state));
            }
            jobs.commit().await?;
            Ok(states)
        })
    }

    /// Returns the running jobs of this worker, before its restart, whose attempts have ended. The others keep their
    /// leases.
    fn free_jobs(&mut self, worker: &Worker) -> Result<Vec<JobId>, SiteError> {
        let select = "SELECT id FROM sabul.job WHERE state = 'running' AND worker_id = $1";
        let rows = self.call(async |jobs| Ok(jobs.query(select, &[&worker.id]).await?))?;
        let mut free = Vec::new();
        for row in rows {
            let id: JobId = row.try_get(0)?;
            let failed = |error| SiteError::File(worker.folder.clone(), error);
            if folder::is_job_free(&worker.folder, id, END_TIMEOUT).map_err(failed)? {
                free.push(id);
            }
        }
        Ok(free)
    }

    /// Takes the next job whose time has come: its state is `running` now, and this worker has its lease. After an outage,
    /// a job can wait again while this worker has not recorded the end of its own attempt. Another worker takes such a
    /// job; this one does so after [`Self::finish`].
    pub(crate) fn take(&mut self) -> Result<Option<Job>, SiteError> {
        let Worker { name, id, lease, .. } = self.worker()?.clone();
        let (token, lease_ms, pause_ms) = (random_word()?, millis(lease), millis(PAUSE_MAX));
        let own = self.leases.jobs();
        let taken = format!("SELECT {COLUMNS} FROM sabul.job WHERE token = $1");
        let take = format!(
            "UPDATE sabul.job SET state = 'running', request = NULL, attempts = attempts + 1, started_ms = sabul.now_ms(), \
             ended_ms = NULL, goodput_bps = 0, worker = $2, worker_id = $3, token = $1, \
             lease_until_ms = sabul.now_ms() + $4, lease_ms = $4 WHERE id = (SELECT id FROM sabul.job \
             WHERE state = 'waiting' AND not_before_ms <= sabul.now_ms() AND NOT sabul.is_held(job) \
             AND (due_ms <= sabul.now_ms() OR due_ms > sabul.now_ms() + $5) AND NOT id = ANY ($6) \
             ORDER BY priority DESC, id LIMIT 1 FOR UPDATE SKIP LOCKED) RETURNING {COLUMNS}"
        );
        let start = Instant::now();
        let mut is_repeated = false;
        let job = self.call(async |jobs| {
            // The first call can have taken a job although its answer was lost.
            if std::mem::replace(&mut is_repeated, true)
                && let Some(row) = jobs.query_opt(&taken, &[&token]).await?
            {
                return Ok(Some(read(&row)?));
            }
            let values: [&(dyn ToSql + Sync); 6] = [&token, &name, &id, &lease_ms, &pause_ms, &own];
            let row = jobs.query_opt(&take, &values).await?;
            row.as_ref().map(read).transpose()
        })?;
        if let Some(job) = &job {
            self.leases.insert(job.id, token, start);
        }
        Ok(job)
    }

    /// Returns the milliseconds until the next attempt of any job that this worker can take, if a job waits.
    pub(crate) fn next_in_ms(&mut self) -> Result<Option<i64>, SiteError> {
        let own = self.leases.jobs();
        let select = "SELECT min(greatest(not_before_ms, due_ms)) - sabul.now_ms() FROM sabul.job \
                      WHERE state = 'waiting' AND NOT id = ANY ($1)";
        self.call(async |jobs| Ok(jobs.query_one_scalar(select, &[&own]).await?))
    }

    /// Records the progress of a job of this worker.
    pub(crate) fn set_progress(&mut self, id: JobId, progress: &Progress) -> Result<(), SiteError> {
        let Some(token) = self.leases.token(id) else { return Ok(()) };
        let Progress { bytes, bytes_total, goodput_bps } = *progress;
        let (bytes, bytes_total) = (signed(bytes), bytes_total.map(signed));
        let change = "UPDATE sabul.job SET bytes = $3, bytes_total = $4, goodput_bps = $5 \
                      WHERE id = $1 AND token = $2 AND state = 'running'";
        self.call(async |jobs| {
            jobs.execute(change, &[&id, &token, &bytes, &bytes_total, &goodput_bps]).await?;
            Ok(())
        })
    }

    /// Records the end of an attempt, and returns the new state of the job; `None` if this worker lost the lease.
    pub(crate) fn finish(
        &mut self,
        id: JobId,
        ending: &Ending,
    ) -> Result<Option<State>, SiteError> {
        let Some(token) = self.leases.token(id) else { return Ok(None) };
        let state = self.call(async |client| {
            let jobs = client.transaction().await?;
            let Some(row) = row_in(&jobs, id, "FOR UPDATE").await? else { return Ok(None) };
            let job = read(&row)?;
            if row.try_get::<_, Option<&str>>("last_token")? == Some(&token) {
                // Only the answer of the first call was lost.
                return Ok(Some(job.state));
            }
            if row.try_get::<_, Option<&str>>("token")? != Some(&token) {
                return Ok(None);
            }
            let now_ms: i64 = jobs.query_one("SELECT sabul.now_ms()", &[]).await?.try_get(0)?;
            let next = rules::after(&job, ending, now_ms);
            let Progress { bytes, bytes_total, goodput_bps } = ending.progress;
            // PostgreSQL has no NUL in texts.
            let message = ending.message.as_deref().map(|it| shortened(it).replace('\0', "\u{FFFD}"));
            jobs.execute(
                "UPDATE sabul.job SET due_ms = $2, failures = $3, failing_since_ms = $4, code = $5, message = $6, \
                 bytes = $7, bytes_total = $8, goodput_bps = $9 WHERE id = $1",
                &[
                    &id,
                    &next.due_ms,
                    &i64::from(next.failures),
                    &next.failing_since_ms,
                    &ending.code,
                    &message,
                    &signed(bytes),
                    &bytes_total.map(signed),
                    &goodput_bps,
                ],
            )
            .await?;
            set_state(&jobs, &job, next.state).await?;
            jobs.commit().await?;
            Ok(Some(next.state))
        })?;
        self.leases.remove(id);
        Ok(state)
    }

    /// Returns the running jobs of this worker that a user stopped.
    pub(crate) fn requests(&mut self) -> Result<Vec<(JobId, Request)>, SiteError> {
        let id = self.worker()?.id.clone();
        let select = "SELECT id, request FROM sabul.job WHERE state = 'running' AND request IS NOT NULL AND worker_id = $1";
        let rows = self.call(async |jobs| Ok(jobs.query(select, &[&id]).await?))?;
        let mut requests = Vec::new();
        for row in rows {
            if let Some(request) = Request::of_word(row.try_get(1)?) {
                requests.push((row.try_get(0)?, request));
            }
        }
        Ok(requests)
    }

    /// Returns the ended jobs whose hooks this worker has to run: hooks of its own jobs, and those that no other
    /// worker runs.
    pub(crate) fn hooks(&mut self) -> Result<Vec<JobId>, SiteError> {
        let id = self.worker()?.id.clone();
        let select = "SELECT id FROM sabul.job WHERE hook IN (1, 2) AND (worker_id = $1 OR NOT sabul.is_held(job) AND \
                      (hook = 2 OR worker_id IS NULL OR ended_ms < sabul.now_ms() - $2)) ORDER BY id";
        let rows = self.call(async |jobs| Ok(jobs.query(select, &[&id, &HOOK_MS]).await?))?;
        rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
    }

    /// Records that this process starts the hook of a job. Returns the job, or `None` if its hook has ended, is not due,
    /// or another process has it.
    pub(crate) fn start_hook(&mut self, id: JobId) -> Result<Option<Job>, SiteError> {
        let worker = self.worker()?.clone();
        let (token, lease_ms) = (random_word()?, millis(worker.lease));
        let start = Instant::now();
        let change = "UPDATE sabul.job SET hook = 2, token = $2, lease_until_ms = sabul.now_ms() + $3, lease_ms = $3, \
                      worker = $4, worker_id = $5 WHERE id = $1 AND hook IN (1, 2) AND (token = $2 OR NOT sabul.is_held(job))";
        let job = self.call(async |client| {
            let values =
                [&id as _, &token as _, &lease_ms as _, &worker.name as _, &worker.id as _];
            match client.execute(change, &values).await? {
                0 => Ok(None),
                _ => job_in(client, id, "").await,
            }
        })?;
        let job = job.filter(|job| job.hook == HookState::Running);
        if job.is_some() {
            self.leases.insert(id, token, start);
        }
        Ok(job)
    }

    /// Records that the hook of a job has ended. Returns `false` if this process lost the lease of the hook.
    pub(crate) fn end_hook(&mut self, id: JobId) -> Result<bool, SiteError> {
        let Some(token) = self.leases.token(id) else { return Ok(false) };
        let change = "UPDATE sabul.job SET hook = CASE hook WHEN 2 THEN 3 ELSE hook END, token = NULL, last_token = $2 \
                      WHERE id = $1 AND token = $2";
        let recorded = "SELECT count(*) FROM sabul.job WHERE id = $1 AND last_token = $2";
        let is_recorded = self.call(async |jobs| {
            jobs.execute(change, &[&id, &token]).await?;
            // Also by an earlier call, whose answer was lost.
            Ok(jobs.query_one_scalar::<i64, _>(recorded, &[&id, &token]).await? > 0)
        })?;
        self.leases.remove(id);
        Ok(is_recorded)
    }
}
