//! Documents of the queue in JSON.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::job::{HookState, Job, JobId, State};

/// Version of the documents.
const SCHEMA: u32 = 1;

/// The queue: the document of `queue list --json`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct QueueJson {
    /// Version of this document.
    pub schema: u32,
    /// Process id of the runner; null if no runner runs, and for the queue of a site.
    pub runner_pid: Option<u32>,
    /// Jobs in the order of their numbers.
    pub jobs: Vec<JobJson>,
}

impl QueueJson {
    /// Returns the document of these jobs.
    pub fn new(runner_pid: Option<u32>, jobs: &[Job]) -> Self {
        Self { schema: SCHEMA, runner_pid, jobs: jobs.iter().map(JobJson::of).collect() }
    }
}

/// A job of the queue.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct JobJson {
    /// Number of the job.
    pub id: JobId,
    /// State: `waiting`, `running`, `paused`, `waiting-for-you`, `done`, `failed` or `cancelled`.
    pub state: String,
    /// Jobs of a higher priority run first.
    pub priority: i32,
    /// Name for people; null without a name.
    pub name: Option<String>,
    /// Words of the command, after the name of the program.
    pub command: Vec<String>,
    /// Working directory.
    pub directory: String,
    /// Command that runs when the job has ended for good; null without a hook.
    pub hook: Option<String>,
    /// Whether the hook has ended.
    pub is_hook_done: bool,
    /// Number of started attempts.
    pub attempts: u32,
    /// Number of failed attempts since the last progress.
    pub failures: u32,
    /// Attempts fail for this time without progress before the job fails, in seconds.
    pub retry_for_s: f64,
    /// Time when the job was added, in seconds since 1970.
    pub added_s: f64,
    /// Earliest time of the next attempt, in seconds since 1970; null unless the job waits.
    pub next_s: Option<f64>,
    /// Start of the last attempt, in seconds since 1970; null before the first.
    pub started_s: Option<f64>,
    /// End of the last attempt, in seconds since 1970; null before the first end.
    pub ended_s: Option<f64>,
    /// Content bytes that have arrived in the current or last attempt.
    pub bytes: u64,
    /// Total content bytes; null if unknown.
    pub bytes_total: Option<u64>,
    /// Rate of the content in bit/s: of the current attempt, or of a finished job.
    pub goodput_bps: f64,
    /// Exit code of the last attempt; null if the attempt did not end by itself.
    pub exit: Option<i32>,
    /// Message of the last attempt; null without a message.
    pub message: Option<String>,
    /// Worker that has the job or had the job last; null in the queue of a user, and before the first attempt.
    #[serde(default)]
    pub worker: Option<String>,
    /// Time until the lease of the worker ends, in seconds; negative for a worker that was lost; null without a lease.
    #[serde(default)]
    pub lease_left_s: Option<f64>,
}

impl JobJson {
    /// Returns the document of a job. Bytes that are not UTF-8 are replaced.
    pub fn of(job: &Job) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let times = &job.times;
        let next_ms = times.not_before_ms.max(times.due_ms).max(times.added_ms);
        Self {
            id: job.id,
            state: job.state.word().to_owned(),
            priority: job.priority,
            name: job.name.clone(),
            command: job.command.words.iter().map(|word| text(word)).collect(),
            directory: text(&job.command.directory),
            hook: job.command.hook.as_deref().map(text),
            is_hook_done: job.hook == HookState::Ended,
            attempts: job.attempts,
            failures: job.failures,
            retry_for_s: job.retry_for.as_secs_f64(),
            added_s: seconds(times.added_ms),
            next_s: (job.state == State::Waiting).then(|| seconds(next_ms)),
            started_s: times.started_ms.map(seconds),
            ended_s: times.ended_ms.map(seconds),
            bytes: job.progress.bytes,
            bytes_total: job.progress.bytes_total,
            goodput_bps: job.progress.goodput_bps,
            exit: job.code,
            message: job.message.clone(),
            worker: job.worker.clone(),
            lease_left_s: job.lease_left_ms.map(seconds),
        }
    }
}

/// A single job: the document of `queue show --json` and `queue add --json`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Shown {
    /// Version of this document.
    pub schema: u32,
    /// The job.
    #[serde(flatten)]
    pub job: JobJson,
}

impl Shown {
    /// Returns the document of this job.
    pub fn of(job: &Job) -> Self {
        Self { schema: SCHEMA, job: JobJson::of(job) }
    }
}

fn seconds(ms: i64) -> f64 {
    ms as f64 / 1000.0
}
