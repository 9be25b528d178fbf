//! Totals over all attempts of a copy: time, rate and limiters.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use sabul::{Progress, Report};
use sabul_front::json::{TransferJson, rate_bps};

/// Sum of all attempts so far.
#[derive(Clone, Debug, Default)]
pub(super) struct AttemptTotals {
    /// Start of the first attempt.
    started: Option<Instant>,
    /// Number of attempts, including those without a connection.
    attempts: u64,
    /// Bytes that existed before the first attempt that transferred any.
    resumed: Option<u64>,
    /// Seconds for which each limiter held the transfers back.
    spent: BTreeMap<String, f64>,
    /// Total time in transfers.
    busy: Duration,
    /// Total time in the server's waiting line.
    waited: Duration,
    /// End of the last attempt, since which there is no connection; `None` in the first attempt.
    pub(super) lost_at: Option<Instant>,
    /// Number of connections, including lost ones.
    connections: u64,
}

impl AttemptTotals {
    /// Counts a new attempt.
    pub(super) fn begin(&mut self) {
        self.started.get_or_insert_with(Instant::now);
        self.attempts += 1;
    }

    /// Counts a new connection.
    pub(super) const fn connected(&mut self) {
        self.connections += 1;
    }

    /// Adds a finished attempt.
    pub(super) fn add(&mut self, progress: &Progress) {
        if progress.bytes > 0 {
            self.resumed.get_or_insert(progress.bytes_resumed);
        }
        for &(name, share) in &progress.channel.limiter {
            *self.spent.entry(name.to_owned()).or_default() +=
                share * progress.elapsed.as_secs_f64();
        }
        self.busy += progress.elapsed;
        self.waited += progress.waited;
        self.lost_at = Some(Instant::now());
    }

    /// Replaces the values of the last attempt by the totals, if there were several attempts.
    pub(super) fn complete(&self, json: &mut TransferJson) {
        json.reconnects = self.connections.saturating_sub(1);
        let Some(started) = self.started.filter(|_| self.attempts > 1) else { return };
        let seconds = started.elapsed().as_secs_f64();
        json.seconds = seconds;
        json.resumed_bytes = json.resumed_bytes.min(self.resumed.unwrap_or(0));
        json.waited_s = self.waited.as_secs_f64();
        let moved_s = seconds - json.waited_s;
        json.goodput_bps = rate_bps(json.bytes.saturating_sub(json.resumed_bytes), moved_s);
        if self.spent.is_empty() {
            return;
        }
        let mut limiter = self.spent.clone();
        *limiter.entry("outage".to_owned()).or_default() += seconds - self.busy.as_secs_f64();
        limiter.values_mut().for_each(|time| *time = (*time / seconds).clamp(0.0, 1.0));
        json.limiter = limiter;
    }
}

/// Report of two transfers of one copy.
pub(super) fn sum(first: &Report, mut second: Report) -> Report {
    second.bytes += first.bytes;
    second.bytes_resumed += first.bytes_resumed;
    second.bytes_durable += first.bytes_durable;
    second.bytes_relayed += first.bytes_relayed;
    second.entries += first.entries;
    second.files += first.files;
    second.grown += first.grown;
    second.elapsed += first.elapsed;
    second.waited += first.waited;
    let moved = second.elapsed.saturating_sub(second.waited).as_secs_f64();
    second.goodput_bps = rate_bps(second.bytes.saturating_sub(second.bytes_resumed), moved);
    second
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attempt(seconds: u64, bytes: u64, resumed: u64, limiter: &'static str) -> Progress {
        let mut progress = Progress::default();
        (progress.bytes, progress.bytes_resumed) = (bytes, resumed);
        progress.elapsed = Duration::from_secs(seconds);
        progress.channel.limiter = vec![(limiter, 1.0)];
        progress
    }

    #[test]
    fn time_and_rate_are_those_of_all_attempts_with_the_pause_between_them() {
        let mut whole = AttemptTotals::default();
        whole.begin();
        whole.add(&attempt(30, 15_000_000, 5_000_000, "path"));
        whole.add(&attempt(10, 45_000_000, 15_000_000, "path"));
        // Ten seconds of pause: the first attempt began 50 s ago.
        whole.started = Instant::now().checked_sub(Duration::from_secs(50));
        let mut json = TransferJson {
            bytes: 45_000_000,
            resumed_bytes: 15_000_000,
            ..TransferJson::default()
        };
        whole.connected();
        whole.complete(&mut json);
        assert_eq!((json.reconnects, json.resumed_bytes), (0, 15_000_000), "one stays as it is");
        whole.begin();
        whole.connected();
        whole.complete(&mut json);
        assert_eq!((json.reconnects, json.resumed_bytes), (1, 5_000_000));
        assert!((json.seconds - 50.0).abs() < 1.0, "{}", json.seconds);
        assert!((json.goodput_bps / 6.4e6 - 1.0).abs() < 0.05, "{}", json.goodput_bps);
        assert!((json.limiter["path"] - 0.8).abs() < 0.02, "{:?}", json.limiter);
        assert!((json.limiter["outage"] - 0.2).abs() < 0.02, "{:?}", json.limiter);
    }

    #[test]
    fn an_attempt_without_a_connection_counts_as_time() {
        let mut whole = AttemptTotals::default();
        whole.begin();
        // The server answers after 3 s.
        whole.started = Instant::now().checked_sub(Duration::from_secs(4));
        whole.begin();
        whole.connected();
        whole.add(&attempt(1, 20_000_000, 0, "path"));
        let mut json = TransferJson { bytes: 20_000_000, seconds: 1.0, ..TransferJson::default() };
        whole.complete(&mut json);
        assert_eq!(json.reconnects, 0);
        assert!((json.seconds - 4.0).abs() < 0.5, "{}", json.seconds);
        assert!((json.goodput_bps / 40e6 - 1.0).abs() < 0.15, "{}", json.goodput_bps);
        assert!((json.limiter["outage"] - 0.75).abs() < 0.05, "{:?}", json.limiter);
    }
}
