//! Actions of users on jobs.

use std::fmt;

use crate::job::{Job, JobId, Request, State};

/// Action of a user on a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Stop the job until it is resumed.
    Pause,
    /// Let a paused job run again.
    Resume,
    /// End the job.
    Cancel,
    /// Run a job again that failed, was cancelled, or waits for its user or its next attempt.
    Retry,
}

impl Action {
    /// Returns the past participle, for messages.
    pub const fn participle(self) -> &'static str {
        match self {
            Self::Pause => "paused",
            Self::Resume => "resumed",
            Self::Cancel => "cancelled",
            Self::Retry => "retried",
        }
    }

    /// Returns the state of this job after the action, and the request to the runner of a running job.
    pub(crate) fn change(self, job: &Job) -> Result<(State, Option<Request>), Refusal> {
        let state = match (self, job.state) {
            (Self::Pause, State::Waiting | State::Blocked | State::Paused) => State::Paused,
            // A cancelled job cannot be paused.
            (Self::Pause, State::Running) if job.request == Some(Request::Cancel) => {
                return Err(Refusal::State(job.id, State::Cancelled, self));
            }
            (Self::Pause, State::Running) => return Ok((State::Running, Some(Request::Pause))),
            (Self::Resume, State::Paused) => State::Waiting,
            (Self::Resume, State::Running) if job.request == Some(Request::Pause) => State::Running,
            (Self::Cancel, State::Running) => return Ok((State::Running, Some(Request::Cancel))),
            (Self::Cancel, state) if !state.is_end() => State::Cancelled,
            (Self::Retry, State::Failed | State::Cancelled | State::Blocked | State::Waiting) => {
                State::Waiting
            }
            _ => return Err(Refusal::State(job.id, job.state, self)),
        };
        Ok((state, None))
    }
}

/// The action on a job is impossible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// No job has this number.
    Missing(JobId),
    /// The action is impossible in this state.
    State(JobId, State, Action),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(id) => {
                write!(f, "no job has the number {id}; 'sabul queue list --all' lists all jobs")
            }
            Self::State(id, state, action) => {
                write!(f, "job {id} cannot be {}: its state is '{state}'", action.participle())
            }
        }
    }
}

impl std::error::Error for Refusal {}
