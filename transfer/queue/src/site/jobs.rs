//! Jobs of a site, for its users: add, list, and act.

use tokio_postgres::{GenericClient, Row};

use super::row::{COLUMNS, read};
use super::work::random_word;
use super::{Site, SiteError};
use crate::action::{Action, Refusal};
use crate::columns::joined;
use crate::job::{Job, JobId, NewJob, State};
use crate::rules::millis;

impl Site {
    /// Adds a job. The job is on the disk of the database when this method returns.
    ///
    /// # Errors
    ///
    /// If the database fails.
    pub(crate) fn add(&mut self, job: &NewJob) -> Result<JobId, SiteError> {
        let NewJob { priority, name, command, retry_for, not_before_ms } = job;
        let token = random_word()?;
        let (words, environment) = (joined(&command.words), joined(&command.environment));
        let retry_for_ms = millis(*retry_for);
        // A repeated call finds the token of the first one.
        self.call(async |jobs| {
            jobs.execute(
                "INSERT INTO sabul.job (added_token, state, priority, name, words, directory, environment, hook_command, \
                 retry_for_ms, not_before_ms) VALUES ($1, 'waiting', $2, $3, $4, $5, $6, $7, $8, $9) \
                 ON CONFLICT (added_token) DO NOTHING",
                &[
                    &token,
                    priority,
                    name,
                    &words,
                    &command.directory,
                    &environment,
                    &command.hook,
                    &retry_for_ms,
                    not_before_ms,
                ],
            )
            .await?;
            let id = "SELECT id FROM sabul.job WHERE added_token = $1";
            Ok(jobs.query_one_scalar(id, &[&token]).await?)
        })
    }

    /// Returns the job with this number.
    pub(crate) fn job(&mut self, id: JobId) -> Result<Option<Job>, SiteError> {
        self.call(async |jobs| job_in(jobs, id, "").await)
    }

    /// Returns all jobs that have not ended, and at most this number of the jobs that ended last.
    pub(crate) fn jobs(&mut self, ended_max: usize) -> Result<Vec<Job>, SiteError> {
        let ended_max = i64::try_from(ended_max).unwrap_or(i64::MAX);
        let select = format!(
            "SELECT {COLUMNS} FROM sabul.job WHERE state NOT IN ('done', 'failed', 'cancelled') OR id IN (SELECT id FROM \
             sabul.job WHERE state IN ('done', 'failed', 'cancelled') ORDER BY ended_ms DESC, id DESC LIMIT $1) \
             ORDER BY id"
        );
        self.call(async |jobs| jobs.query(&select, &[&ended_max]).await?.iter().map(read).collect())
    }

    /// Carries out an action of a user, and returns the state of the job.
    pub(crate) fn act(
        &mut self,
        id: JobId,
        action: Action,
    ) -> Result<Result<State, Refusal>, SiteError> {
        self.call_unrepeated(async |client| {
            let jobs = client.transaction().await?;
            let Some(job) = job_in(&jobs, id, "FOR UPDATE").await? else {
                return Ok(Err(Refusal::Missing(id)));
            };
            let (state, request) = match action.change(&job) {
                Ok(change) => change,
                Err(refusal) => return Ok(Err(refusal)),
            };
            if let Some(request) = request {
                let change = "UPDATE sabul.job SET request = $2 WHERE id = $1";
                jobs.execute(change, &[&id, &request.word()]).await?;
            } else {
                if action == Action::Retry {
                    jobs.execute(
                        "UPDATE sabul.job SET failures = 0, failing_since_ms = NULL, due_ms = sabul.now_ms(), \
                         not_before_ms = 0, hook = 0 WHERE id = $1",
                        &[&id],
                    )
                    .await?;
                }
                set_state(&jobs, &job, state).await?;
            }
            jobs.commit().await?;
            Ok(Ok(state))
        })
    }

    /// Sets a variable of the environment of a job. A job that does not exist stays missing.
    pub(crate) fn set_variable(
        &mut self,
        id: JobId,
        name: &str,
        value: &[u8],
    ) -> Result<(), SiteError> {
        let start = [name.as_bytes(), b"="].concat();
        self.call(async |client| {
            let jobs = client.transaction().await?;
            let Some(job) = job_in(&jobs, id, "FOR UPDATE").await? else { return Ok(()) };
            let mut environment = job.command.environment;
            environment.retain(|variable| !variable.starts_with(&start));
            environment.push([&start, value].concat());
            let change = "UPDATE sabul.job SET environment = $2 WHERE id = $1";
            jobs.execute(change, &[&id, &joined(&environment)]).await?;
            Ok(jobs.commit().await?)
        })
    }

    /// Removes jobs that ended before this time before now. Returns their number.
    pub(crate) fn remove_ended(&mut self, keep_ms: i64) -> Result<usize, SiteError> {
        let removal = "DELETE FROM sabul.job WHERE state IN ('done', 'failed', 'cancelled') AND hook IN (0, 3) \
                       AND ended_ms < sabul.now_ms() - $1";
        let removed = self.call(async |jobs| Ok(jobs.execute(removal, &[&keep_ms]).await?))?;
        Ok(usize::try_from(removed).unwrap_or(usize::MAX))
    }
}

/// Returns a job, locked with `FOR UPDATE` until the end of the transaction.
pub(super) async fn job_in(
    jobs: &impl GenericClient,
    id: JobId,
    lock: &str,
) -> Result<Option<Job>, SiteError> {
    row_in(jobs, id, lock).await?.as_ref().map(read).transpose()
}

/// Returns the row of a job.
pub(super) async fn row_in(
    jobs: &impl GenericClient,
    id: JobId,
    lock: &str,
) -> Result<Option<Row>, SiteError> {
    let select = format!("SELECT {COLUMNS} FROM sabul.job WHERE id = $1 {lock}");
    Ok(jobs.query_opt(&select, &[&id]).await?)
}

/// Sets the state of a job. The hook is due when the job ends. The end of an attempt ends its lease; the lease of a
/// running hook stays.
pub(super) async fn set_state(
    jobs: &impl GenericClient,
    job: &Job,
    state: State,
) -> Result<(), SiteError> {
    let has_run = job.state == State::Running && state != State::Running;
    let has_ended = has_run || state.is_end();
    let is_hook_due = state.is_end() && job.command.hook.is_some();
    jobs.execute(
        "UPDATE sabul.job SET state = $2, request = NULL, ended_ms = CASE WHEN $3 THEN sabul.now_ms() ELSE ended_ms END, \
         hook = CASE WHEN $4 THEN 1 ELSE hook END, goodput_bps = CASE WHEN $2 = 'done' THEN goodput_bps ELSE 0 END, \
         last_token = CASE WHEN $5 THEN token ELSE last_token END, token = CASE WHEN $5 THEN NULL ELSE token END \
         WHERE id = $1",
        &[&job.id, &state.word(), &has_ended, &is_hook_due, &has_run],
    )
    .await?;
    Ok(())
}
