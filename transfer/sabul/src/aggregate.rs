//! Aggregate report of several simultaneous transfers.

use std::time::Duration;

use crate::channel::ChannelStats;
use crate::transfer::{Interval, Report};

/// A last interval shorter than this fraction of the others is merged into the previous one.
const SHORT_SHARE: f64 = 0.1;

/// Averages over an interval of simultaneous transfers, as counted at the receiver.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AggregateInterval {
    /// End of the interval, in seconds since the start.
    pub t_s: f64,
    /// Goodput of all transfers together, in bit/s.
    pub goodput_bps: f64,
    /// Mean RTT in milliseconds.
    pub rtt_ms: f64,
    /// Mean loss rate, 0..=1.
    pub loss_rate: f64,
    /// Mean inter-packet gap in nanoseconds.
    pub gap_ns: f64,
}

impl Report {
    /// Aggregates reports of simultaneous transfers between the same two processes. Counts and rates are sums; RTTs and
    /// shares of time are means. Intervals are left out (see [`AggregateInterval::of_all`]).
    pub fn aggregate(reports: &[Self]) -> Self {
        let mut total = Self::default();
        for report in reports {
            total.bytes += report.bytes;
            total.bytes_durable += report.bytes_durable;
            total.goodput_bps += report.goodput_bps;
            total.elapsed = total.elapsed.max(report.elapsed);
            total.entries += report.entries;
            total.files += report.files;
            total.entries_failed += report.entries_failed;
            // Both values count the whole process, so simultaneous transfers count the same seconds.
            total.cpu_sender = larger(total.cpu_sender, report.cpu_sender);
            total.cpu_receiver = larger(total.cpu_receiver, report.cpu_receiver);
            total.failures.extend(report.failures.iter().cloned());
        }
        total.verified = !reports.is_empty() && reports.iter().all(|report| report.verified);
        total.durable = !reports.is_empty() && reports.iter().all(|report| report.durable);
        let channels: Vec<_> = reports.iter().map(|report| &report.channel).collect();
        total.channel = ChannelStats::aggregate(&channels);
        total
    }
}

fn larger(a: Option<Duration>, b: Option<Duration>) -> Option<Duration> {
    a.into_iter().chain(b).max()
}

impl ChannelStats {
    /// Aggregates statistics of simultaneous channels: counts are sums; RTTs and shares of time are means.
    fn aggregate(channels: &[&Self]) -> Self {
        let mut total = Self::default();
        let share = 1.0 / channels.len().max(1) as f64;
        for channel in channels {
            total.add_counts(channel);
            total.mtu = total.mtu.max(channel.mtu);
            total.rtt_ms += channel.rtt_ms * share;
            for &(name, part) in &channel.limiter {
                match total.limiter.iter_mut().find(|(known, _)| *known == name) {
                    Some((_, sum)) => *sum += part * share,
                    None => total.limiter.push((name, part * share)),
                }
            }
        }
        // One transfer over another carrier than UDP is worth a word.
        let other = channels.iter().find(|channel| !matches!(channel.carrier, "" | "udp"));
        if let Some(channel) = other.or_else(|| channels.first()) {
            (total.carrier, total.carrier_reason) = (channel.carrier, channel.carrier_reason);
            total.paths = channel.paths;
        }
        let smallest = channels.iter().map(|channel| channel.rtt_ms_min).reduce(f64::min);
        total.rtt_ms_min = smallest.unwrap_or_default();
        total
    }

    /// Adds the bytes and packets of another channel.
    pub(crate) fn add_counts(&mut self, other: &Self) {
        self.bytes += other.bytes;
        self.packets += other.packets;
        self.packets_retransmitted += other.packets_retransmitted;
        self.packets_lost += other.packets_lost;
        self.packets_overflowed += other.packets_overflowed;
        self.packets_refused += other.packets_refused;
    }

    /// Returns the share of packets lost on the path, in 0..=1.
    pub fn loss_rate(&self) -> f64 {
        if self.packets == 0 {
            return 0.0;
        }
        (self.packets_lost as f64 / self.packets as f64).min(1.0)
    }
}

impl AggregateInterval {
    /// Resamples the intervals of simultaneous transfers to intervals of `length_s` seconds. Bytes are sums; other
    /// values are averages over time.
    pub fn of_all(reports: &[Report], length_s: f64) -> Vec<Self> {
        let series: Vec<_> = reports.iter().map(|report| report.intervals.as_slice()).collect();
        resample(&series, length_s)
    }

    fn between(series: &[&[Interval]], from_s: f64, to_s: f64) -> Self {
        let (mut time_s, mut bytes, mut rtt, mut loss, mut gap) = (0.0, 0.0, 0.0, 0.0, 0.0);
        for samples in series {
            let mut begin_s = 0.0;
            for sample in *samples {
                let shared_s = sample.t_s.min(to_s) - from_s.max(begin_s);
                if shared_s > 0.0 {
                    bytes += sample.bytes as f64 * shared_s / (sample.t_s - begin_s);
                    rtt += sample.rtt_ms * shared_s;
                    loss += sample.loss_rate * shared_s;
                    gap += sample.gap_ns * shared_s;
                    time_s += shared_s;
                }
                begin_s = sample.t_s;
            }
        }
        let mean = |sum: f64| if time_s > 0.0 { sum / time_s } else { 0.0 };
        Self {
            t_s: to_s,
            goodput_bps: bytes * 8.0 / (to_s - from_s),
            rtt_ms: mean(rtt),
            loss_rate: mean(loss),
            gap_ns: mean(gap),
        }
    }
}

fn resample(series: &[&[Interval]], length_s: f64) -> Vec<AggregateInterval> {
    let last = series.iter().filter_map(|samples| samples.last());
    let end_s = last.map(|sample| sample.t_s).fold(0.0, f64::max);
    let mut result = Vec::new();
    let mut from_s = 0.0;
    while end_s - from_s > 0.0 {
        let is_last = end_s - from_s < length_s * (1.0 + SHORT_SHARE);
        let to_s = if is_last { end_s } else { from_s + length_s };
        result.push(AggregateInterval::between(series, from_s, to_s));
        from_s = to_s;
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_across_interval_boundaries_are_divided() {
        let sample = |t_s, bytes| Interval { t_s, bytes, rtt_ms: t_s, loss_rate: 0.0, gap_ns: 0.0 };
        // 1000 bytes a second, in samples that do not end at whole seconds.
        let intervals = [sample(0.75, 750), sample(1.25, 500), sample(2.05, 800)];
        let shown = resample(&[&intervals, &intervals], 1.0);
        assert_eq!(shown.len(), 2, "the last 0.05 s belong to the second one: {shown:?}");
        for interval in &shown {
            assert!((interval.goodput_bps - 16_000.0).abs() < 1e-6, "{shown:?}");
        }
        assert!((shown[0].rtt_ms - (0.75 * 0.75 + 0.25 * 1.25)).abs() < 1e-9, "{shown:?}");
        assert_eq!(resample(&[], 1.0), []);
        assert_eq!(resample(&[&intervals], 0.1).len(), 21);
    }

    #[test]
    fn combined_reports_sum_counts_and_average_time_shares() {
        let report = |packets, lost, rtt_ms, seconds, limiter| Report {
            bytes: 1000,
            goodput_bps: 8e6,
            elapsed: Duration::from_secs(seconds),
            verified: true,
            cpu_sender: Some(Duration::from_secs(seconds)),
            channel: ChannelStats {
                packets,
                packets_lost: lost,
                rtt_ms,
                rtt_ms_min: rtt_ms,
                limiter: vec![(limiter, 1.0)],
                ..ChannelStats::default()
            },
            ..Report::default()
        };
        let both = Report::aggregate(&[
            report(300, 3, 10.0, 2, "rate"),
            report(100, 1, 30.0, 3, "window"),
        ]);
        assert_eq!((both.bytes, both.elapsed), (2000, Duration::from_secs(3)));
        assert_eq!((both.cpu_sender, both.cpu_receiver), (Some(Duration::from_secs(3)), None));
        assert!(both.verified && (both.goodput_bps - 16e6).abs() < 1e-6);
        assert!((both.channel.loss_rate() - 0.01).abs() < 1e-12);
        assert!((both.channel.rtt_ms - 20.0).abs() < 1e-12);
        assert!((both.channel.rtt_ms_min - 10.0).abs() < 1e-12);
        assert_eq!(both.channel.limiter, [("rate", 0.5), ("window", 0.5)]);
        assert!(!Report::aggregate(&[]).verified);
        assert!(ChannelStats::default().loss_rate().abs() < f64::EPSILON);
    }
}
