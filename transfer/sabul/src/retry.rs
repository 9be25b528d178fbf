//! Backoff for reconnecting after the connection to the other end was lost.

use std::time::Duration;

use tokio::time::Instant;

use crate::error::ErrorKind;

/// Shortest and longest pause between two attempts. Ours: a short outage costs little time, and an hour of outage costs
/// little work.
const PAUSES: std::ops::RangeInclusive<Duration> =
    Duration::from_millis(500)..=Duration::from_secs(15);
/// Authentication failures are retried for this time after a loss. Ours: a restarted listener has another key, and its
/// new ticket is available a moment later.
const REFUSALS: Duration = Duration::from_secs(30);

/// Reconnection backoff. Measures how long the other end has been unreachable and returns the time of the next attempt.
/// An outage ends when content arrives.
#[derive(Clone, Debug)]
pub struct Retry {
    limit: Duration,
    /// Start of the outage, once an attempt has failed.
    away_since: Option<Instant>,
    /// Start of the current attempt, until content arrives.
    began: Option<Instant>,
    pause: Duration,
    attempts: u64,
}

impl Retry {
    /// Makes a backoff that retries for `limit` after each loss; zero disables retries.
    pub const fn new(limit: Duration) -> Self {
        Self { limit, away_since: None, began: None, pause: *PAUSES.start(), attempts: 0 }
    }

    /// Records the start of an attempt.
    pub fn begin(&mut self) {
        self.began = Some(Instant::now());
    }

    /// Time at which retries end; `None` before the first failure, and while content arrives.
    pub fn deadline(&self) -> Option<Instant> {
        self.away_since.map(|since| since + self.limit)
    }

    /// Records that content has arrived, which ends the outage.
    pub fn reset_backoff(&mut self) {
        (self.away_since, self.began) = (None, None);
        self.pause = *PAUSES.start();
    }

    /// Records an attempt that ended with an error of this kind. Returns the pause before the next attempt, or `None`
    /// if a retry is useless or the time is over.
    ///
    /// An authentication error is final, except within half a minute of a loss.
    pub fn on_failure(&mut self, kind: ErrorKind) -> Option<Duration> {
        if self.limit.is_zero() {
            return None;
        }
        let now = Instant::now();
        let until = match (kind, self.away_since) {
            (ErrorKind::Unreachable, since) => since.or(self.began).unwrap_or(now) + self.limit,
            (ErrorKind::Authentication, Some(since)) => since + self.limit.min(REFUSALS),
            _ => return None,
        };
        self.away_since.get_or_insert_with(|| self.began.unwrap_or(now));
        let rest = until.saturating_duration_since(now);
        if rest.is_zero() {
            return None;
        }
        let pause = self.pause.min(rest);
        self.pause = (self.pause * 2).min(*PAUSES.end());
        self.attempts += 1;
        Some(pause)
    }

    /// Number of attempts after the first.
    pub const fn attempts(&self) -> u64 {
        self.attempts
    }

    /// Returns how long retries continue after a loss.
    pub const fn limit(&self) -> Duration {
        self.limit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn retry_pauses_grow_until_content_arrives_and_end_at_the_time_limit() {
        let mut retry = Retry::new(Duration::from_secs(60));
        let mut waited = Duration::ZERO;
        let mut pauses = Vec::new();
        while let Some(pause) = retry.on_failure(ErrorKind::Unreachable) {
            tokio::time::sleep(pause).await;
            waited += pause;
            pauses.push(pause.as_millis());
        }
        assert_eq!(waited, Duration::from_secs(60), "the last attempt is at the end");
        assert_eq!(pauses[..6], [500, 1000, 2000, 4000, 8000, 15_000]);
        assert_eq!(retry.attempts(), pauses.len() as u64);
        retry.reset_backoff();
        assert_eq!(retry.on_failure(ErrorKind::Unreachable), Some(Duration::from_millis(500)));
    }

    #[tokio::test(start_paused = true)]
    async fn authentication_errors_after_a_lost_connection_are_retried_for_30_s() {
        let mut retry = Retry::new(Duration::from_secs(600));
        assert!(retry.on_failure(ErrorKind::Unreachable).is_some());
        let mut waited = Duration::ZERO;
        while let Some(pause) = retry.on_failure(ErrorKind::Authentication) {
            tokio::time::sleep(pause).await;
            waited += pause;
        }
        assert_eq!(waited, REFUSALS);
        assert!(
            retry.on_failure(ErrorKind::Unreachable).is_some(),
            "who is silent is waited for longer"
        );
        retry.reset_backoff();
        assert_eq!(retry.on_failure(ErrorKind::Authentication), None, "a refusal out of the blue");
    }

    #[tokio::test(start_paused = true)]
    async fn an_attempt_without_content_counts_toward_the_retry_time_limit() {
        let mut retry = Retry::new(Duration::from_secs(5));
        let start = Instant::now();
        retry.begin();
        assert_eq!(retry.deadline(), None, "the first attempt takes as long as it takes");
        tokio::time::sleep(Duration::from_secs(3)).await;
        assert_eq!(retry.on_failure(ErrorKind::Unreachable), Some(Duration::from_millis(500)));
        assert_eq!(retry.deadline(), Some(start + Duration::from_secs(5)));
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert_eq!(retry.on_failure(ErrorKind::Unreachable), None);
        // A transfer that brought content does not count.
        let mut retry = Retry::new(Duration::from_secs(5));
        retry.begin();
        tokio::time::sleep(Duration::from_secs(60)).await;
        retry.reset_backoff();
        assert!(retry.on_failure(ErrorKind::Unreachable).is_some());
        assert_eq!(retry.deadline(), Some(Instant::now() + Duration::from_secs(5)));
    }

    #[tokio::test(start_paused = true)]
    async fn permanent_errors_are_not_retried() {
        let mut retry = Retry::new(Duration::from_secs(60));
        for kind in [
            ErrorKind::Failure,
            ErrorKind::Request,
            ErrorKind::Authentication,
            ErrorKind::Destination,
            ErrorKind::Interrupt,
        ] {
            assert_eq!(retry.on_failure(kind), None, "{kind:?}");
        }
        assert_eq!(Retry::new(Duration::ZERO).on_failure(ErrorKind::Unreachable), None);
    }
}
