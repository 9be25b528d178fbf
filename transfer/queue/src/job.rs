//! Jobs of the queue: the command, its schedule and its history.

use std::fmt;
use std::time::Duration;

/// Number of a job. Numbers are never used again.
pub type JobId = i64;

/// State of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum State {
    /// Waits for its turn, or for its next attempt.
    Waiting,
    /// An attempt runs.
    Running,
    /// Waits until a user resumes the job.
    Paused,
    /// Waits until a user removes the cause of the last failure and retries the job.
    Blocked,
    /// Ended: everything was copied.
    Done,
    /// Ended: no further attempt is made.
    Failed,
    /// Ended by a user.
    Cancelled,
}

impl State {
    /// All states.
    pub const ALL: [Self; 7] = [
        Self::Waiting,
        Self::Running,
        Self::Paused,
        Self::Blocked,
        Self::Done,
        Self::Failed,
        Self::Cancelled,
    ];

    /// Returns the word in JSON documents, in the database and in the environment of hooks.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Running => "running",
            Self::Paused => "paused",
            Self::Blocked => "waiting-for-you",
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }

    /// Returns the state with this word.
    pub fn of_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.word() == word)
    }

    /// Returns the state of a running job whose attempt ended without a record.
    pub(crate) const fn after_interrupt(request: Option<Request>) -> Self {
        match request {
            None => Self::Waiting,
            Some(Request::Pause) => Self::Paused,
            Some(Request::Cancel) => Self::Cancelled,
        }
    }

    /// Whether the job has ended for good.
    pub const fn is_end(self) -> bool {
        matches!(self, Self::Done | Self::Failed | Self::Cancelled)
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Blocked => "waiting for you",
            state => state.word(),
        })
    }
}

/// Request of a user to a running job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// End the attempt, and keep the job.
    Pause,
    /// End the attempt and the job.
    Cancel,
}

impl Request {
    /// Returns the word in the database.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Pause => "pause",
            Self::Cancel => "cancel",
        }
    }

    /// Returns the request with this word.
    pub(crate) fn of_word(word: &str) -> Option<Self> {
        [Self::Pause, Self::Cancel].into_iter().find(|request| request.word() == word)
    }
}

/// Command of a job, as its user gave it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Command {
    /// Words of the command without the name of the program. No word contains a NUL byte.
    pub words: Vec<Vec<u8>>,
    /// Working directory.
    pub directory: Vec<u8>,
    /// Variables of the environment, each as `NAME=value`.
    pub environment: Vec<Vec<u8>>,
    /// Command for `sh -c` that runs when the job has ended for good.
    pub hook: Option<Vec<u8>>,
}

/// A job before it is in the queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewJob {
    /// Jobs of a higher priority run first.
    pub priority: i32,
    /// Name for people.
    pub name: Option<String>,
    /// The command.
    pub command: Command,
    /// Attempts fail for this time without progress before the job fails.
    pub retry_for: Duration,
    /// The job does not start before this time, in milliseconds since 1970.
    pub not_before_ms: i64,
}

/// Times of a job in milliseconds since 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// The job was added.
    pub added_ms: i64,
    /// The job does not start earlier; 0 without a limit.
    pub not_before_ms: i64,
    /// The next attempt after a failure does not start earlier.
    pub due_ms: i64,
    /// The last attempt started.
    pub started_ms: Option<i64>,
    /// The last attempt ended, or the job was cancelled.
    pub ended_ms: Option<i64>,
    /// First failure since the last progress.
    pub failing_since_ms: Option<i64>,
}

/// Progress of the current or last attempt.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Progress {
    /// Content bytes that have arrived.
    pub bytes: u64,
    /// Total content bytes, if known.
    pub bytes_total: Option<u64>,
    /// Rate of the content in bit/s.
    pub goodput_bps: f64,
}

/// Whether the hook of a job has run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HookState {
    /// The job has no hook, or has not ended.
    #[default]
    None,
    /// The hook has not started.
    Due,
    /// The hook has started.
    Running,
    /// The hook has ended.
    Ended,
}

impl HookState {
    /// All states, in the order of their numbers in the database.
    pub(crate) const ALL: [Self; 4] = [Self::None, Self::Due, Self::Running, Self::Ended];
}

/// A job in the queue.
#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    /// Its number.
    pub id: JobId,
    /// Its state.
    pub state: State,
    /// Request of a user to the running attempt.
    pub request: Option<Request>,
    /// Jobs of a higher priority run first.
    pub priority: i32,
    /// Name for people.
    pub name: Option<String>,
    /// The command.
    pub command: Command,
    /// Attempts fail for this time without progress before the job fails.
    pub retry_for: Duration,
    /// Its times.
    pub times: Times,
    /// Number of started attempts.
    pub attempts: u32,
    /// Number of failed attempts since the last progress.
    pub failures: u32,
    /// Progress of the current or last attempt.
    pub progress: Progress,
    /// Exit code of the last attempt, if the attempt ended by itself.
    pub code: Option<i32>,
    /// Message of the last attempt.
    pub message: Option<String>,
    /// Whether the hook has run.
    pub hook: HookState,
    /// Name of the worker of a site that has the job, or had the job last.
    pub worker: Option<String>,
    /// Time until the lease of the worker ends, in milliseconds; `None` without a lease.
    pub lease_left_ms: Option<i64>,
}

/// Meaning of the end of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Everything was copied.
    Done,
    /// Another attempt can succeed.
    Retry,
    /// Another attempt can succeed after a user has changed something.
    Blocked,
    /// No attempt can succeed.
    Failed,
    /// The runner ended the attempt.
    Interrupted,
}

/// End of an attempt.
#[derive(Clone, Debug, PartialEq)]
pub struct Ending {
    /// Its meaning.
    pub outcome: Outcome,
    /// Exit code, if the attempt ended by itself.
    pub code: Option<i32>,
    /// Message for people.
    pub message: Option<String>,
    /// Progress at the end.
    pub progress: Progress,
    /// Whether the attempt copied content that was not at the destination before.
    pub has_moved: bool,
}
