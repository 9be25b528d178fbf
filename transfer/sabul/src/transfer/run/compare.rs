//! Comparison of UDP and TCP: detects a path that throttles UDP, and decides whether TCP delivers more.
//!
//! The sender of the data samples the bytes that have arrived, and the time in which the path was the limit. The state
//! machine has no clock; [`watch`] passes the samples.
//! Model: UDP has *collapsed* if the path was the limit for half of the last second, and the rate of this second is
//! below 1/8 of the median before. TCP is then tried, and stays if TCP delivers at least twice as much. The slow start of
//! a CUBIC flow can reduce UDP as far for some seconds, but then the RTT shows a queue: TCP is tried later, because two
//! flows of CUBIC need longer than UDP to share a path again. A policer drops packets and causes no queue.
//!
//! States:
//! ```text
//! Udp --collapse--> Udp, TCP preferred --TCP carries--> Trial --at least 2x--> Tcp
//!  ^                                                      |                     |
//!  |<-- UDP carries -- Trial, UDP preferred <-- less -----+                     |
//!  +<------------------- UDP carries, below half of TCP is a collapse ----------+
//! ```
//! Invariants:  after each failed trial, the next trial waits twice as long.
//! Not here:    silence of UDP, and the pauses after which UDP is tried again ([`super::carrier`]).

use std::collections::VecDeque;
use std::time::Duration;

use sabul_wire::control::Preferred;
use tokio::time::Instant;

use super::udp::{CHECK_INTERVAL, Task};
use crate::channel::ChannelStats;

/// Time over which a rate is measured; at least [`WINDOW_RTTS`] RTTs. Ours: TCP shall carry the data within 5 s.
const WINDOW: Duration = Duration::from_secs(1);
const WINDOW_RTTS: f64 = 5.0;
/// A rate below this part of the earlier median is a collapse. Ours: competing flows and lossy links take less.
const COLLAPSE: f64 = 1.0 / 8.0;
/// The same for UDP that has replaced TCP, as part of the rate of TCP, for [`RETURN_TIME`].
const RETURN_COLLAPSE: f64 = 1.0 / 2.0;
/// Time in which UDP is compared with TCP. Ours: throttles begin within seconds.
const RETURN_TIME: Duration = Duration::from_secs(10);
/// Least part of the window in which the path must be the limit.
const PATH_SHARE: f64 = 0.5;
/// A queue that another flow fills: at least this delay, this part of the smallest RTT, and at most this multiple of the
/// smallest RTT. A longer queue is that of a shaper for UDP alone.
const QUEUE_DELAY_MIN: Duration = Duration::from_millis(5);
const QUEUE_RTT: (f64, f64) = (1.25, 6.0);
/// Time for which a collapse beside such a queue must last. Measured: UDP recovers 5 to 7 s after the begin of a flow.
const QUEUE_HOLD: Duration = Duration::from_secs(10);
/// TCP must deliver this multiple of the rate of UDP.
const TCP_GAIN: f64 = 2.0;
/// Interval of the earlier rates, and their number: 30 s.
const EARLIER_INTERVAL: Duration = Duration::from_millis(500);
const EARLIER_MAX: usize = 60;
/// Least number of earlier rates: one second.
const EARLIER_MIN: usize = 2;
/// Time until TCP is tried again, doubled by each failed trial up to the maximum.
const PAUSE: Duration = Duration::from_secs(10);
const PAUSE_MAX: Duration = Duration::from_secs(320);

/// Figures of a sender at one time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    /// Time since the begin.
    at: Duration,
    is_udp: bool,
    /// Bytes that have arrived.
    bytes: u64,
    /// Time in which the path was the limit.
    path_limited: Duration,
    rtt: Duration,
    rtt_min: Duration,
}

impl Sample {
    fn new(at: Duration, stats: &ChannelStats) -> Self {
        let duration = |ms: f64| Duration::try_from_secs_f64(ms / 1e3).unwrap_or_default();
        Self {
            at,
            is_udp: stats.carrier == "udp",
            bytes: stats.received,
            path_limited: stats.path_limited,
            rtt: duration(stats.rtt_ms),
            rtt_min: duration(stats.rtt_ms_min),
        }
    }

    /// Whether the RTT shows a queue that another flow can fill.
    fn has_shared_queue(&self) -> bool {
        let (least, most) = (self.rtt_min.mul_f64(QUEUE_RTT.0), self.rtt_min.mul_f64(QUEUE_RTT.1));
        self.rtt >= least.max(self.rtt_min + QUEUE_DELAY_MIN) && self.rtt <= most
    }

    /// Rate since an earlier sample, in byte/s.
    fn rate_since(&self, earlier: &Self) -> f64 {
        let time = self.at.saturating_sub(earlier.at).as_secs_f64().max(1e-9);
        #[expect(clippy::cast_precision_loss, reason = "a rate needs few digits")]
        let bytes = self.bytes.saturating_sub(earlier.bytes) as f64;
        bytes / time
    }
}

/// State of the carrier.
#[derive(Clone, Copy, Debug)]
enum State {
    /// UDP carries the blocks. `returned`: the best rate of TCP before, and the time until which UDP is compared with
    /// this rate.
    Udp { returned: Option<(f64, Duration)> },
    /// TCP carries the blocks because UDP had collapsed to this rate.
    Trial { udp_rate: f64 },
    /// TCP carries the blocks, with this best rate of a window.
    Tcp { rate: f64 },
    /// TCP carries the blocks until UDP takes over: TCP was no better.
    Failed,
}

/// Compares the rates of UDP and TCP.
#[derive(Debug)]
pub(super) struct Comparison {
    state: State,
    /// Samples of the present carrier within the window.
    window: VecDeque<Sample>,
    /// Time from which on samples count: UDP that replaces TCP first searches its rate.
    counts_from: Duration,
    /// Rates of intervals that have passed, with their ends, and the first sample of the present interval.
    earlier: VecDeque<(Duration, f64)>,
    interval: Option<Sample>,
    /// Rate of UDP when TCP was preferred.
    collapsed: Option<f64>,
    /// Begin of the present collapse beside a queue, and the median rate before.
    queued_since: Option<(Duration, Option<f64>)>,
    /// RTT over UDP; TCP measures none.
    rtt: Duration,
    next_trial: Duration,
    failed_trials: u32,
}

impl Comparison {
    pub(super) const fn new() -> Self {
        Self {
            state: State::Udp { returned: None },
            window: VecDeque::new(),
            counts_from: Duration::ZERO,
            earlier: VecDeque::new(),
            interval: None,
            collapsed: None,
            queued_since: None,
            rtt: Duration::ZERO,
            next_trial: Duration::ZERO,
            failed_trials: 0,
        }
    }

    /// Processes the next sample. Returns the carrier that the transfer should change to, if any.
    pub(super) fn take(&mut self, sample: Sample) -> Option<Preferred> {
        if sample.is_udp {
            self.rtt = sample.rtt;
        }
        let length = WINDOW.max(self.rtt.mul_f64(WINDOW_RTTS));
        self.change(&sample, length);
        if sample.at < self.counts_from {
            return None;
        }
        self.window.push_back(sample);
        while self.window.get(1).is_some_and(|second| sample.at >= second.at + length) {
            self.window.pop_front();
        }
        let first = *self.window.front()?;
        let preferred =
            if sample.at >= first.at + length { self.compare(&first, &sample) } else { None };
        self.note_rate(sample);
        preferred
    }

    /// Follows a change of the carrier.
    fn change(&mut self, sample: &Sample, length: Duration) {
        let mut counts_from = sample.at;
        self.state = match self.state {
            State::Udp { .. } if !sample.is_udp => match self.collapsed.take() {
                Some(udp_rate) => State::Trial { udp_rate },
                None => State::Tcp { rate: 0.0 },
            },
            State::Tcp { rate } if sample.is_udp => {
                counts_from = sample.at + length;
                State::Udp { returned: Some((rate, sample.at + RETURN_TIME)) }
            }
            State::Trial { .. } | State::Failed if sample.is_udp => State::Udp { returned: None },
            _ => return,
        };
        self.counts_from = counts_from;
        self.queued_since = None;
        self.window.clear();
        self.interval = None;
    }

    fn compare(&mut self, first: &Sample, last: &Sample) -> Option<Preferred> {
        let rate = last.rate_since(first);
        // The first half has the rate before a collapse, the slow start of TCP, and bursts that an idle limiter lets
        // through.
        let middle = *self.window.get(self.window.len() / 2).unwrap_or(first);
        let recent_rate = last.rate_since(&middle);
        match self.state {
            State::Udp { returned } => {
                let has_collapsed = self.has_collapsed(first, last, returned);
                // UDP that delivers nothing is silent, which is another reason for TCP.
                let is_silent = last.bytes <= middle.bytes;
                if !has_collapsed || is_silent || last.at < self.next_trial {
                    return None;
                }
                self.next_trial = last.at + self.pause();
                self.collapsed = Some(recent_rate);
                Some(Preferred::Tcp)
            }
            State::Trial { udp_rate } => {
                if recent_rate >= udp_rate * TCP_GAIN {
                    self.state = State::Tcp { rate };
                    (self.failed_trials, self.next_trial) = (0, last.at);
                    return None;
                }
                self.state = State::Failed;
                self.failed_trials += 1;
                self.next_trial = last.at + self.pause();
                Some(Preferred::Udp)
            }
            State::Tcp { rate: best } => {
                self.state = State::Tcp { rate: best.max(rate) };
                None
            }
            State::Failed => None,
        }
    }

    /// Whether UDP delivers far less than before, for long enough beside a queue that another flow can fill.
    fn has_collapsed(
        &mut self,
        first: &Sample,
        last: &Sample,
        returned: Option<(f64, Duration)>,
    ) -> bool {
        let limited = last.path_limited.saturating_sub(first.path_limited);
        let time = last.at.saturating_sub(first.at);
        let is_path = limited.as_secs_f64() >= PATH_SHARE * time.as_secs_f64();
        let median = match self.queued_since {
            // The rates of the collapse itself make later medians small.
            Some((_, median)) => median,
            None => self.median_before(first.at),
        };
        let rate = last.rate_since(first);
        let is_slow = median.is_some_and(|median| rate < median * COLLAPSE)
            || returned.is_some_and(|(tcp_rate, until)| {
                last.at < until && rate < tcp_rate * RETURN_COLLAPSE
            });
        let queued = self.window.iter().filter(|sample| sample.has_shared_queue()).count();
        if !(is_slow && is_path && 2 * queued >= self.window.len()) {
            self.queued_since = None;
            return is_slow && is_path;
        }
        let (since, _) = *self.queued_since.get_or_insert((last.at, median));
        last.at >= since + QUEUE_HOLD
    }

    /// Time until TCP is tried again.
    fn pause(&self) -> Duration {
        PAUSE.saturating_mul(2_u32.saturating_pow(self.failed_trials)).min(PAUSE_MAX)
    }

    /// Median of the rates of the intervals that ended before this time; `None` if they are too few.
    fn median_before(&self, time: Duration) -> Option<f64> {
        let before = self.earlier.iter().filter(|(end, _)| *end <= time);
        let mut rates: Vec<f64> = before.map(|(_, rate)| *rate).collect();
        rates.sort_by(f64::total_cmp);
        (rates.len() >= EARLIER_MIN).then(|| rates[rates.len() / 2])
    }

    /// Adds the rate of the present interval to the earlier rates once the interval has passed.
    fn note_rate(&mut self, sample: Sample) {
        let first = *self.interval.get_or_insert(sample);
        if sample.at >= first.at + EARLIER_INTERVAL {
            self.earlier.push_back((sample.at, sample.rate_since(&first)));
            self.earlier.drain(..self.earlier.len().saturating_sub(EARLIER_MAX));
            self.interval = Some(sample);
        }
    }
}

/// Compares the carriers of a sending end by its statistics, and calls `prefer` when another carrier should be used.
pub(super) fn watch(
    stats: impl Fn() -> ChannelStats + Send + 'static,
    prefer: impl Fn(Preferred) + Send + 'static,
) -> Task {
    Task::from(tokio::spawn(async move {
        let (begin, mut comparison) = (Instant::now(), Comparison::new());
        loop {
            tokio::time::sleep(CHECK_INTERVAL).await;
            let stats = stats();
            if stats.carrier.is_empty() {
                continue;
            }
            if let Some(preferred) = comparison.take(Sample::new(begin.elapsed(), &stats)) {
                tracing::info!(?preferred, "the rates of the carriers differ");
                prefer(preferred);
            }
        }
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MBPS: f64 = 1e6 / 8.0;

    /// A transfer in virtual time, whose end follows the comparison.
    struct Run {
        comparison: Comparison,
        at: Duration,
        bytes: f64,
        path_limited: Duration,
        is_udp: bool,
        rtt: Duration,
        queue: Duration,
        /// Times of the preferences in milliseconds, and the preferred carriers.
        preferred: Vec<(u128, Preferred)>,
    }

    impl Run {
        fn new() -> Self {
            Self {
                comparison: Comparison::new(),
                at: Duration::ZERO,
                bytes: 0.0,
                path_limited: Duration::ZERO,
                is_udp: true,
                rtt: Duration::from_millis(40),
                queue: Duration::ZERO,
                preferred: Vec::new(),
            }
        }

        /// Runs for some time at these rates of UDP and TCP in Mb/s. The path is the limit in this share of the time. A
        /// preferred carrier takes over after 300 ms.
        fn run(&mut self, seconds: f64, (udp, tcp): (f64, f64), path: f64) {
            let step = Duration::from_millis(100);
            let end = self.at + Duration::from_secs_f64(seconds);
            let mut change = None;
            while self.at < end {
                self.at += step;
                let mbps = if self.is_udp { udp } else { tcp };
                self.bytes += mbps * MBPS * step.as_secs_f64();
                self.path_limited += step.mul_f64(path);
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "small and positive"
                )]
                let sample = Sample {
                    at: self.at,
                    is_udp: self.is_udp,
                    bytes: self.bytes as u64,
                    path_limited: self.path_limited,
                    rtt: self.rtt + self.queue,
                    rtt_min: self.rtt,
                };
                if let Some(preferred) = self.comparison.take(sample) {
                    self.preferred.push((self.at.as_millis(), preferred));
                    change = Some((self.at + Duration::from_millis(300), preferred));
                }
                if let Some((_, preferred)) = change.take_if(|(at, _)| *at <= self.at) {
                    self.is_udp = preferred == Preferred::Udp;
                }
            }
        }

        fn times(&self) -> Vec<u128> {
            self.preferred.iter().map(|(at, _)| *at).collect()
        }
    }

    #[test]
    fn tcp_is_preferred_within_two_seconds_of_a_throttle_and_stays() {
        let mut run = Run::new();
        run.run(2.0, (200.0, 0.0), 1.0);
        run.run(60.0, (1.0, 150.0), 1.0);
        assert!(
            matches!(run.preferred[..], [(2900..=3100, Preferred::Tcp)]),
            "{:?}",
            run.preferred
        );
        assert!(!run.is_udp);
    }

    #[test]
    fn tcp_waits_while_another_flow_fills_the_queue() {
        let mut run = Run::new();
        run.run(5.0, (80.0, 0.0), 1.0);
        run.queue = Duration::from_millis(40);
        run.run(9.0, (5.0, 40.0), 1.0);
        assert_eq!(run.preferred, []);
        run.run(60.0, (30.0, 40.0), 1.0);
        assert_eq!(run.preferred, []);
        let again = run.at.as_millis();
        run.run(20.0, (1.0, 40.0), 1.0);
        assert!(matches!(run.times()[..], [at] if (10_500..=11_500).contains(&(at - again))));
    }

    #[test]
    fn a_throttle_beside_a_queue_is_left_also_early_in_a_transfer() {
        for begin in [2.0, 9.0, 40.0] {
            let mut run = Run::new();
            run.run(begin, (200.0, 0.0), 1.0);
            let throttled = run.at.as_millis();
            run.queue = Duration::from_millis(40);
            run.run(60.0, (1.0, 150.0), 1.0);
            let after: Vec<_> = run.times().iter().map(|at| at - throttled).collect();
            assert!(matches!(after[..], [10_500..=12_000]), "{after:?}");
        }
    }

    #[test]
    fn an_rtt_that_falls_for_a_moment_does_not_end_the_wait() {
        let mut run = Run::new();
        run.run(5.0, (80.0, 0.0), 1.0);
        for _ in 0..14 {
            run.queue = Duration::from_millis(40);
            run.run(0.5, (5.0, 40.0), 1.0);
            run.queue = Duration::ZERO;
            run.run(0.1, (5.0, 40.0), 1.0);
        }
        assert_eq!(run.preferred, []);
    }

    #[test]
    fn a_throttle_with_a_short_or_a_very_long_queue_is_left_at_once() {
        for queue_ms in [4, 400] {
            let mut run = Run::new();
            run.run(2.0, (200.0, 0.0), 1.0);
            run.queue = Duration::from_millis(queue_ms);
            run.run(10.0, (1.0, 150.0), 1.0);
            assert!(matches!(run.times()[..], [2900..=4500]), "{:?}", run.preferred);
        }
    }

    #[test]
    fn udp_is_preferred_again_where_tcp_is_no_faster_and_trials_become_rare() {
        let mut run = Run::new();
        run.run(20.0, (200.0, 0.0), 1.0);
        run.run(300.0, (1.0, 1.5), 1.0);
        let carriers: Vec<_> = run.preferred.iter().map(|(_, carrier)| *carrier).collect();
        assert_eq!(carriers, [Preferred::Tcp, Preferred::Udp].repeat(carriers.len() / 2));
        assert!(run.is_udp && (2..=4).contains(&carriers.len()), "{:?}", run.preferred);
        let times = run.times();
        assert!(times[1] - times[0] <= 1500, "{times:?}");
        assert!(times.get(2).is_none_or(|again| again - times[1] >= 20_000), "{times:?}");
    }

    #[test]
    fn a_rate_that_the_path_does_not_limit_is_no_collapse() {
        let mut run = Run::new();
        run.run(10.0, (200.0, 0.0), 1.0);
        run.run(60.0, (1.0, 200.0), 0.4);
        assert_eq!(run.preferred, []);
    }

    #[test]
    fn silence_of_udp_is_no_collapse() {
        let mut run = Run::new();
        run.run(10.0, (200.0, 0.0), 1.0);
        run.run(60.0, (0.0, 200.0), 1.0);
        assert_eq!(run.preferred, []);
    }

    #[test]
    fn a_seventh_of_the_rate_is_no_collapse() {
        let mut run = Run::new();
        run.run(10.0, (70.0, 0.0), 1.0);
        run.run(60.0, (10.0, 200.0), 1.0);
        assert_eq!(run.preferred, []);
    }

    #[test]
    fn a_short_dip_is_no_collapse() {
        let mut run = Run::new();
        for _ in 0..10 {
            run.run(3.0, (100.0, 0.0), 1.0);
            run.run(0.8, (0.5, 100.0), 1.0);
        }
        assert_eq!(run.preferred, []);
    }

    #[test]
    fn udp_that_returns_and_is_slower_than_half_of_tcp_is_left_again() {
        let mut run = Run::new();
        run.run(3.0, (100.0, 0.0), 1.0);
        run.run(10.0, (1.0, 6.0), 1.0);
        // The connector has opened a UDP path.
        run.is_udp = true;
        let returned = run.at.as_millis();
        run.run(9.0, (1.0, 6.0), 1.0);
        let times = run.times();
        assert!(times.len() == 2 && (1900..=2300).contains(&(times[1] - returned)), "{times:?}");
        assert!(!run.is_udp);
    }

    #[test]
    fn udp_that_returns_and_is_good_stays() {
        let mut run = Run::new();
        run.run(3.0, (100.0, 0.0), 1.0);
        run.run(10.0, (1.0, 80.0), 1.0);
        run.is_udp = true;
        run.run(60.0, (100.0, 80.0), 1.0);
        assert!(run.is_udp && run.preferred.len() == 1, "{:?}", run.preferred);
    }

    #[test]
    fn a_long_rtt_makes_the_window_longer() {
        let mut run = Run::new();
        run.rtt = Duration::from_millis(400);
        run.run(10.0, (100.0, 0.0), 1.0);
        run.run(1.6, (0.1, 0.0), 1.0);
        assert_eq!(run.preferred, []);
        run.run(1.0, (0.1, 50.0), 1.0);
        assert_eq!(run.preferred.len(), 1);
    }
}
