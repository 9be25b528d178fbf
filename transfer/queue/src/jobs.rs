//! Jobs of a queue in either store: that of a user in SQLite, or that of a site in PostgreSQL.
//!
//! Both stores have the same rules. A site uses the clock of its database instead of that of the caller.

use std::fmt;

use crate::action::{Action, Refusal};
use crate::job::{Ending, Job, JobId, NewJob, Progress, Request, State};
use crate::site::{Site, SiteError};
use crate::store::{Store, StoreError};

/// Jobs of a queue.
#[derive(Debug)]
pub enum Jobs {
    /// The queue of a user on one machine.
    User(Store),
    /// The queue of a site.
    Site(Box<Site>),
}

/// Error of either store.
#[derive(Debug)]
pub enum QueueError {
    /// Error of the queue of a user.
    User(StoreError),
    /// Error of the queue of a site.
    Site(SiteError),
}

impl fmt::Display for QueueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::User(error) => error.fmt(f),
            Self::Site(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for QueueError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::User(error) => error.source(),
            Self::Site(error) => error.source(),
        }
    }
}

impl From<StoreError> for QueueError {
    fn from(error: StoreError) -> Self {
        Self::User(error)
    }
}

impl From<SiteError> for QueueError {
    fn from(error: SiteError) -> Self {
        Self::Site(error)
    }
}

/// Calls the method of the store.
macro_rules! either {
    ($jobs:expr, $user:ident => $of_user:expr, $site:ident => $of_site:expr) => {
        match $jobs {
            Jobs::User($user) => $of_user.map_err(QueueError::User),
            Jobs::Site($site) => $of_site.map_err(QueueError::Site),
        }
    };
}

/// Errors are those of the store: its database fails, or a database of a site does not answer for too long.
#[expect(clippy::missing_errors_doc, reason = "all methods have the errors above")]
impl Jobs {
    /// Adds a job. The job is on the disk when this method returns.
    pub fn add(&mut self, job: &NewJob, now_ms: i64) -> Result<JobId, QueueError> {
        either!(self, user => user.add(job, now_ms), site => site.add(job))
    }

    /// Returns the job with this number.
    pub fn job(&mut self, id: JobId) -> Result<Option<Job>, QueueError> {
        either!(self, user => user.job(id), site => site.job(id))
    }

    /// Returns all jobs that have not ended, and at most this number of the jobs that ended last; in the order of their
    /// numbers.
    pub fn jobs(&mut self, ended_max: usize) -> Result<Vec<Job>, QueueError> {
        either!(self, user => user.jobs(ended_max), site => site.jobs(ended_max))
    }

    /// Carries out an action of a user. Returns the state of the job, or the reason why the action is impossible.
    pub fn act(
        &mut self,
        id: JobId,
        action: Action,
        now_ms: i64,
    ) -> Result<Result<State, Refusal>, QueueError> {
        either!(self, user => user.act(id, action, now_ms), site => site.act(id, action))
    }

    /// Sets a variable of the environment of a job.
    pub fn set_variable(&mut self, id: JobId, name: &str, value: &[u8]) -> Result<(), QueueError> {
        either!(self, user => user.set_variable(id, name, value), site => site.set_variable(id, name, value))
    }

    /// Ends attempts without a runner: those of this runner or worker before its restart, and of a site, also those of
    /// workers whose leases have ended. Returns the interrupted jobs with their states.
    pub fn recover(&mut self, now_ms: i64) -> Result<Vec<(JobId, State)>, QueueError> {
        either!(self, user => user.recover(now_ms), site => site.recover(true))
    }

    /// Ends the attempts of workers whose leases have ended. The queue of a user has none.
    pub fn recover_others(&mut self) -> Result<Vec<(JobId, State)>, QueueError> {
        either!(self, _user => Ok(Vec::new()), site => site.recover(false))
    }

    /// Takes the next job whose time has come: its state is `running` now.
    pub fn take(&mut self, now_ms: i64) -> Result<Option<Job>, QueueError> {
        either!(self, user => user.take(now_ms), site => site.take())
    }

    /// Returns the milliseconds until the next attempt of any job, if a job waits.
    pub fn next_in_ms(&mut self, now_ms: i64) -> Result<Option<i64>, QueueError> {
        either!(
            self,
            user => user.next_ms().map(|next| next.map(|next| next - now_ms)),
            site => site.next_in_ms()
        )
    }

    /// Records the progress of a running job.
    pub fn set_progress(&mut self, id: JobId, progress: &Progress) -> Result<(), QueueError> {
        either!(self, user => user.set_progress(id, progress), site => site.set_progress(id, progress))
    }

    /// Records the end of an attempt, and returns the new state of the job; `None` if the job does not run, or another
    /// worker has it.
    pub fn finish(
        &mut self,
        id: JobId,
        ending: &Ending,
        now_ms: i64,
    ) -> Result<Option<State>, QueueError> {
        either!(self, user => user.finish(id, ending, now_ms), site => site.finish(id, ending))
    }

    /// Returns the running jobs of this runner or worker that a user stopped.
    pub fn requests(&mut self) -> Result<Vec<(JobId, Request)>, QueueError> {
        either!(self, user => user.requests(), site => site.requests())
    }

    /// Returns the ended jobs whose hooks this runner or worker has to run.
    pub fn hooks(&mut self) -> Result<Vec<JobId>, QueueError> {
        either!(self, user => user.hooks(), site => site.hooks())
    }

    /// Records that the hook of a job starts. Returns the job, or `None` if its hook has ended, is not due, or another
    /// worker runs it. The caller has the lock of the job.
    pub fn start_hook(&mut self, id: JobId) -> Result<Option<Job>, QueueError> {
        either!(self, user => user.start_hook(id), site => site.start_hook(id))
    }

    /// Records that the hook of a job has ended. Returns `false` if another worker runs the hook again.
    pub fn end_hook(&mut self, id: JobId) -> Result<bool, QueueError> {
        either!(self, user => user.end_hook(id).map(|()| true), site => site.end_hook(id))
    }

    /// Removes jobs that ended longer ago than this time. Returns their number.
    pub fn remove_ended(&mut self, keep_ms: i64, now_ms: i64) -> Result<usize, QueueError> {
        either!(self, user => user.remove_ended(now_ms - keep_ms), site => site.remove_ended(keep_ms))
    }
}
