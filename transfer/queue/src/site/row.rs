//! Rows of the table of jobs.

use std::time::Duration;

use tokio_postgres::Row;

use super::error::SiteError;
use crate::columns::split;
use crate::job::{Command, HookState, Job, Progress, Request, State, Times};

/// Columns of a job, for [`read`].
pub(super) const COLUMNS: &str = "job.*, CASE WHEN job.token IS NOT NULL THEN \
    sabul.lease_end_ms(job.lease_until_ms, job.lease_ms) - sabul.now_ms() END AS lease_left_ms";

/// Returns the job in a row.
pub(super) fn read(row: &Row) -> Result<Job, SiteError> {
    let number = |name: &str| row.try_get::<_, i64>(name);
    let optional = |name: &str| row.try_get::<_, Option<i64>>(name);
    let bytes = |name: &str| row.try_get::<_, &[u8]>(name);
    let (id, state) = (number("id")?, row.try_get::<_, &str>("state")?);
    let hook = usize::try_from(row.try_get::<_, i32>("hook")?).unwrap_or_default();
    Ok(Job {
        id,
        state: State::of_word(state).ok_or_else(|| SiteError::Row(id, state.to_owned()))?,
        request: row.try_get::<_, Option<&str>>("request")?.and_then(Request::of_word),
        priority: row.try_get("priority")?,
        name: row.try_get("name")?,
        command: Command {
            words: split(bytes("words")?),
            directory: bytes("directory")?.to_owned(),
            environment: split(bytes("environment")?),
            hook: row.try_get("hook_command")?,
        },
        retry_for: Duration::from_millis(number("retry_for_ms")?.unsigned_abs()),
        times: Times {
            added_ms: number("added_ms")?,
            not_before_ms: number("not_before_ms")?,
            due_ms: number("due_ms")?,
            started_ms: optional("started_ms")?,
            ended_ms: optional("ended_ms")?,
            failing_since_ms: optional("failing_since_ms")?,
        },
        attempts: count(number("attempts")?),
        failures: count(number("failures")?),
        progress: Progress {
            bytes: number("bytes")?.unsigned_abs(),
            bytes_total: optional("bytes_total")?.map(i64::unsigned_abs),
            goodput_bps: row.try_get("goodput_bps")?,
        },
        code: row.try_get("code")?,
        message: row.try_get("message")?,
        hook: HookState::ALL.get(hook).copied().unwrap_or_default(),
        worker: row.try_get("worker")?,
        lease_left_ms: optional("lease_left_ms")?,
    })
}

fn count(value: i64) -> u32 {
    u32::try_from(value.max(0)).unwrap_or(u32::MAX)
}
