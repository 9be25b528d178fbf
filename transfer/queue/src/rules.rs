//! Rules of the runner: the state of a job after an attempt, and pauses between attempts.

use std::time::Duration;

use crate::job::{Ending, Job, Outcome, Request, State};

/// Ours: attempts fail for this time before the job fails, unless the user chooses another time. A weekend.
pub const RETRY_FOR: Duration = Duration::from_secs(3 * 86_400);
/// Ours: pause after the first failure. Doubled for each further failure.
const PAUSE_MIN: Duration = Duration::from_secs(1);
/// Ours: maximum pause between two attempts.
pub(crate) const PAUSE_MAX: Duration = Duration::from_secs(3600);

/// Returns the pause before the next attempt after this number of failures without progress.
pub fn retry_pause(failures: u32) -> Duration {
    let doublings = failures.saturating_sub(1).min(31);
    PAUSE_MIN.saturating_mul(1 << doublings).min(PAUSE_MAX)
}

/// State and schedule of a job after an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Next {
    pub(crate) state: State,
    pub(crate) due_ms: i64,
    pub(crate) failures: u32,
    pub(crate) failing_since_ms: Option<i64>,
}

/// Returns the state and schedule of a running job after the end of its attempt.
pub(crate) fn after(job: &Job, ending: &Ending, now_ms: i64) -> Next {
    let Job { failures, request, retry_for, times, .. } = *job;
    let same =
        |state| Next { state, due_ms: now_ms, failures, failing_since_ms: times.failing_since_ms };
    match ending.outcome {
        Outcome::Done => return Next { failures: 0, failing_since_ms: None, ..same(State::Done) },
        _ if request == Some(Request::Cancel) => return same(State::Cancelled),
        Outcome::Failed => return same(State::Failed),
        _ if request == Some(Request::Pause) => return same(State::Paused),
        Outcome::Blocked => return same(State::Blocked),
        Outcome::Interrupted => return same(State::Waiting),
        Outcome::Retry => {}
    }
    // A clock that was set back starts the time again.
    let since = times.failing_since_ms.filter(|&since| !ending.has_moved && since <= now_ms);
    let since = since.unwrap_or(now_ms);
    let failures = if ending.has_moved { 1 } else { failures.saturating_add(1) };
    let last_ms = since.saturating_add(millis(retry_for));
    let due_ms = now_ms.saturating_add(millis(retry_pause(failures))).min(last_ms);
    let state = if now_ms >= last_ms { State::Failed } else { State::Waiting };
    Next { state, due_ms, failures, failing_since_ms: Some(since) }
}

/// Returns the time in milliseconds.
pub(crate) fn millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::{Command, HookState, Progress, Times};

    fn job() -> Job {
        Job {
            id: 1,
            state: State::Running,
            request: None,
            priority: 0,
            name: None,
            command: Command::default(),
            retry_for: Duration::from_secs(100),
            times: Times::default(),
            attempts: 1,
            failures: 0,
            progress: Progress::default(),
            code: None,
            message: None,
            hook: HookState::None,
            worker: None,
            lease_left_ms: None,
        }
    }

    fn ending(outcome: Outcome, has_moved: bool) -> Ending {
        Ending { outcome, code: None, message: None, progress: Progress::default(), has_moved }
    }

    #[test]
    fn pauses_double_from_one_second_to_one_hour() {
        let seconds: Vec<_> = [1, 2, 3, 12, 13, 1000, u32::MAX].map(retry_pause).to_vec();
        let expected = [1, 2, 4, 2048, 3600, 3600, 3600].map(Duration::from_secs);
        assert_eq!(seconds, expected);
    }

    #[test]
    fn a_job_fails_when_its_attempts_fail_for_the_given_time() {
        let mut job = job();
        let mut now = 1_000_000;
        let mut pauses = Vec::new();
        loop {
            let next = after(&job, &ending(Outcome::Retry, false), now);
            (job.failures, job.times.failing_since_ms) = (next.failures, next.failing_since_ms);
            if next.state == State::Failed {
                break;
            }
            pauses.push((next.due_ms - now) / 1000);
            now = next.due_ms;
        }
        // 1 + 2 + … + 32 = 63; the last attempt is at the end of the 100 s.
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 37]);
        assert_eq!(now, 1_100_000);
    }

    #[test]
    fn progress_starts_the_retry_time_again() {
        let mut job = job();
        (job.failures, job.times.failing_since_ms) = (9, Some(0));
        let next = after(&job, &ending(Outcome::Retry, true), 1_000_000);
        assert_eq!((next.state, next.due_ms, next.failures), (State::Waiting, 1_001_000, 1));
        assert_eq!(next.failing_since_ms, Some(1_000_000));
    }

    #[test]
    fn a_request_decides_unless_the_attempt_was_the_last() {
        use Outcome::{Blocked, Done, Failed, Interrupted, Retry};
        let state =
            |request, outcome| after(&Job { request, ..job() }, &ending(outcome, false), 5).state;
        let all = [Done, Failed, Blocked, Interrupted, Retry];
        let states = |request| all.map(|outcome| state(request, outcome));
        use State as S;
        assert_eq!(states(None), [S::Done, S::Failed, S::Blocked, S::Waiting, S::Waiting]);
        let paused = states(Some(Request::Pause));
        assert_eq!(paused, [S::Done, S::Failed, S::Paused, S::Paused, S::Paused]);
        let cancelled = states(Some(Request::Cancel));
        assert_eq!(cancelled[0], S::Done);
        assert!(cancelled[1..].iter().all(|state| *state == S::Cancelled));
    }

    #[test]
    fn an_attempt_that_the_runner_ended_counts_as_no_failure() {
        let job = Job { failures: 3, ..job() };
        let next = after(&job, &ending(Outcome::Interrupted, false), 7);
        assert_eq!((next.state, next.due_ms, next.failures), (State::Waiting, 7, 3));
    }
}
