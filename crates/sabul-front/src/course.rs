//! How a copy goes, as people read it: one line for a state, and whether it is too slow.

use std::collections::VecDeque;
use std::time::Duration;

use sabul::{ChannelStats, Progress, Totals};
use sabul_units::{Rate, show_bytes, show_rate};

use crate::limiter;

/// Over how long the shown rate is averaged.
const RATE_WINDOW: Duration = Duration::from_secs(2);
/// Time from the start that no minimum counts.
const START_UP: Duration = Duration::from_secs(5);
/// Over how long a transfer has to be too slow.
const MINIMUM_WINDOW: Duration = Duration::from_secs(30);

/// Follows a copy.
#[derive(Debug, Default)]
pub struct Course {
    samples: VecDeque<(Duration, u64)>,
}

/// A state of a copy.
#[derive(Clone, Debug, PartialEq)]
pub struct View {
    /// Everything as one line.
    pub line: String,
    /// How much of it is done, 0..=1; none where nobody knows how much there is.
    pub share: Option<f64>,
}

impl View {
    /// As much of the line as fits so many columns, in whole parts: what matters least goes first.
    pub fn fitting(&self, columns: usize) -> &str {
        let mut line = self.line.as_str();
        while line.chars().count() > columns
            && let Some((shorter, _)) = line.rsplit_once(", ")
        {
            line = shorter;
        }
        line
    }
}

impl Course {
    /// Takes in a state.
    pub fn look(&mut self, progress: &Progress) -> View {
        let rate =
            self.rate(progress.elapsed, progress.bytes.saturating_sub(progress.bytes_resumed));
        let totals = match (progress.bytes_total, progress.entries_total) {
            (Some(bytes), Some(entries)) => Some(Totals { entries, bytes, is_all: true }),
            _ => progress.ahead,
        };
        View { line: describe(progress, totals, rate), share: share(progress, totals) }
    }

    fn rate(&mut self, at: Duration, bytes: u64) -> f64 {
        self.samples.push_back((at, bytes));
        while self.samples.get(1).is_some_and(|(next, _)| at.saturating_sub(*next) >= RATE_WINDOW) {
            self.samples.pop_front();
        }
        let (from, before) = self.samples.front().copied().unwrap_or_default();
        rate_bps(bytes.saturating_sub(before), at.saturating_sub(from))
    }
}

/// A bar is drawn from certain totals alone: one that shrinks is worse than none.
fn share(progress: &Progress, totals: Option<Totals>) -> Option<f64> {
    let totals = totals.filter(|totals| totals.is_all)?;
    let (done, all) = match totals.bytes {
        0 => (progress.entries, totals.entries),
        bytes => (progress.bytes, bytes),
    };
    #[expect(clippy::cast_precision_loss, reason = "a share needs few digits")]
    let share = (all > 0).then(|| (done as f64 / all as f64).clamp(0.0, 1.0));
    share
}

/// How much, how fast, how long still, what limits it, over what kind of path: what matters most first, since
/// terminals cut the line.
fn describe(progress: &Progress, totals: Option<Totals>, rate_bps: f64) -> String {
    let mut line = show_bytes(progress.bytes);
    match totals {
        Some(Totals { bytes, is_all: true, .. }) => line += &format!(" of {}", show_bytes(bytes)),
        Some(Totals { bytes, .. }) => line += &format!(" of at least {}", show_bytes(bytes)),
        None => {}
    }
    line += &format!(", {}", show_rate(rate_bps));
    let left = totals.filter(|totals| totals.is_all);
    let left = left.map(|totals| totals.bytes.saturating_sub(progress.bytes));
    if let Some(left) = left.filter(|&left| left > 0 && rate_bps >= 1.0) {
        #[expect(clippy::cast_precision_loss, reason = "a time needs few digits")]
        let seconds = (left as f64 * 8.0 / rate_bps).ceil().min(359_999.0);
        line += &format!(", {} left", show_time(Duration::from_secs_f64(seconds)));
    }
    // All is there, and the receiver still waits for its disk.
    if left == Some(0) && (1..progress.bytes).contains(&progress.bytes_durable) {
        line += &format!(", {} on disk", show_bytes(progress.bytes_durable));
    }
    match totals {
        Some(Totals { entries: ..=1, is_all: true, .. }) => {}
        Some(Totals { entries, is_all: true, .. }) => {
            line += &format!(", {} of {entries} entries", progress.entries);
        }
        Some(Totals { entries, .. }) => {
            line += &format!(", {} of at least {entries} entries", progress.entries);
        }
        None if progress.entries > 1 => line += &format!(", {} entries", progress.entries),
        None => {}
    }
    let channel = &progress.channel;
    if let Some(name) = limiter::main(channel) {
        line += &format!(", limited by {name}");
    }
    if channel.rtt_ms > 0.0 {
        line += &format!(", RTT {:.1} ms", channel.rtt_ms);
    }
    line += &format!(", loss {:.2} %", channel.loss_rate() * 100.0);
    line
}

/// A time as `m:ss`, or `h:mm:ss` from an hour on.
pub(crate) fn show_time(time: Duration) -> String {
    let s = time.as_secs();
    if s >= 3600 {
        format!("{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60)
    } else {
        format!("{}:{:02}", s / 60, s % 60)
    }
}

#[expect(clippy::cast_precision_loss, reason = "a rate needs few digits")]
fn rate_bps(bytes: u64, time: Duration) -> f64 {
    if time.is_zero() { 0.0 } else { bytes as f64 * 8.0 / time.as_secs_f64() }
}

/// Looks whether a copy is slower than it may be: content that has arrived over the last half a minute, from the
/// fifth second on, until all of it has.
#[derive(Debug)]
pub struct Minimum {
    least: Rate,
    seen: VecDeque<(Duration, u64)>,
}

impl Minimum {
    /// At least this.
    pub const fn new(least: Rate) -> Self {
        Self { least, seen: VecDeque::new() }
    }

    /// Takes in how far a transfer is; its rate in bit/s, if that is too low.
    #[expect(clippy::cast_precision_loss, reason = "a rate needs few digits")]
    pub fn look(&mut self, at: Duration, bytes: u64, total: Option<u64>) -> Option<f64> {
        if at < START_UP || total.is_some_and(|total| bytes >= total) {
            return None;
        }
        self.seen.push_back((at, bytes));
        while self.seen.get(1).is_some_and(|(next, _)| at.saturating_sub(*next) >= MINIMUM_WINDOW) {
            self.seen.pop_front();
        }
        let (from, before) = *self.seen.front()?;
        let time = at.saturating_sub(from);
        let rate = rate_bps(bytes.saturating_sub(before), time);
        (time >= MINIMUM_WINDOW && rate < self.least.0 as f64).then_some(rate)
    }

    /// What is said of a transfer that was so slow.
    #[expect(clippy::cast_precision_loss, reason = "a rate needs few digits")]
    pub fn verdict(&self, rate_bps: f64, channel: &ChannelStats) -> String {
        let limiter = match limiter::shares(channel) {
            shares if shares.is_empty() => "what limited it, the end that sends knows".to_owned(),
            shares => format!("limited by: {shares} of the time"),
        };
        format!(
            "slower than --min-rate: {} over the last {} s instead of {}; {limiter}",
            show_rate(rate_bps),
            MINIMUM_WINDOW.as_secs(),
            show_rate(self.least.0 as f64),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn second(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    fn progress(bytes: u64, entries: u64) -> Progress {
        Progress { bytes, entries, elapsed: second(1), ..Progress::default() }
    }

    fn with(progress: Progress, ahead: Totals) -> Progress {
        Progress { ahead: Some(ahead), ..progress }
    }

    #[test]
    fn while_the_total_is_unknown_there_is_no_bar_and_the_line_says_so() {
        let mut course = Course::default();
        let view = course.look(&progress(14_680_064, 90));
        assert_eq!(view.share, None);
        assert_eq!(view.line, "14.0 MiB, 0 bit/s, 90 entries, loss 0.00 %");
        let ahead = Totals { entries: 800, bytes: 40 << 20, is_all: false };
        let view = course.look(&with(progress(14 << 20, 90), ahead));
        assert_eq!(view.share, None);
        assert!(view.line.starts_with("14.0 MiB of at least 40.0 MiB, "), "{}", view.line);
        assert!(view.line.contains(", 90 of at least 800 entries"), "{}", view.line);
        let all = Totals { is_all: true, ..ahead };
        let view = course.look(&with(progress(10 << 20, 90), all));
        assert_eq!(view.share, Some(0.25));
        assert!(view.line.starts_with("10.0 MiB of 40.0 MiB, "), "{}", view.line);
        assert!(view.line.contains(", 90 of 800 entries"), "{}", view.line);
    }

    #[test]
    fn a_narrow_terminal_shows_whole_parts_of_the_line() {
        let view = View { line: "1 B of 2 B, 3 bit/s, 0:04 left".to_owned(), share: None };
        assert_eq!(view.fitting(30), view.line);
        assert_eq!(view.fitting(29), "1 B of 2 B, 3 bit/s");
        assert_eq!(view.fitting(18), "1 B of 2 B");
        assert_eq!(view.fitting(3), "1 B of 2 B", "the first part is cut by the terminal");
    }

    #[test]
    fn what_the_peers_agree_on_counts_more_than_the_scan() {
        let mut state = progress(50, 1);
        (state.bytes_total, state.entries_total) = (Some(100), Some(2));
        let ahead = Totals { entries: 9, bytes: 900, is_all: true };
        let view = Course::default().look(&with(state, ahead));
        assert_eq!(view.share, Some(0.5));
        assert!(view.line.starts_with("50 B of 100 B, "), "{}", view.line);
    }

    #[test]
    fn a_pipe_has_no_percent() {
        let mut state = progress(1 << 20, 0);
        (state.bytes_total, state.entries_total) = (None, Some(1));
        let view = Course::default().look(&state);
        assert_eq!(view.share, None);
        assert!(view.line.starts_with("1.0 MiB, "), "{}", view.line);
    }

    #[test]
    fn files_without_content_are_counted() {
        let mut state = progress(0, 3);
        (state.bytes_total, state.entries_total) = (Some(0), Some(4));
        assert_eq!(Course::default().look(&state).share, Some(0.75));
    }

    #[test]
    fn the_limiter_and_the_time_left_are_named() {
        let mut course = Course::default();
        let total = Totals { entries: 1, bytes: 61_000_000, is_all: true };
        course.look(&Progress { elapsed: second(0), ..with(progress(0, 0), total) });
        let mut state = progress(1_000_000, 0);
        state.channel.limiter = vec![("network", 0.9)];
        let line = course.look(&with(state.clone(), total)).line;
        assert!(line.contains("8.0 Mbit/s") && line.contains("limited by network"), "{line}");
        assert!(line.contains("8.0 Mbit/s, 1:00 left"), "{line}");
        state.bytes = 60_999_000;
        state.elapsed = second(2);
        let line = course.look(&with(state, total)).line;
        assert!(line.contains(", 0:01 left"), "what is left takes some time: {line}");
        assert_eq!(show_time(Duration::from_secs(3_723)), "1:02:03");
    }

    #[test]
    fn what_is_on_the_disk_is_told_while_only_the_disk_is_waited_for() {
        let total = Totals { entries: 1, bytes: 8 << 20, is_all: true };
        let line = |bytes: u64, bytes_durable: u64| {
            let state = Progress { bytes_durable, ..progress(bytes << 20, 0) };
            Course::default().look(&with(state, total)).line
        };
        assert!(line(8, 5 << 20).starts_with("8.0 MiB of 8.0 MiB, 0 bit/s, 5.0 MiB on disk"));
        assert!(!line(7, 5 << 20).contains("on disk"), "the network is waited for");
        assert!(!line(8, 8 << 20).contains("on disk"), "nothing is waited for");
        assert!(!line(8, 0).contains("on disk"), "nothing was promised, or nothing is known");
    }

    #[test]
    fn the_rate_is_that_of_the_last_two_seconds() {
        let mut course = Course::default();
        // 1 MB a second for 10 s, then nothing.
        for s in 0..=10 {
            let rate = course.rate(second(s), s * 1_000_000);
            assert!(s == 0 || (rate - 8e6).abs() < 1.0, "{rate} at {s}");
        }
        let mut rate = 0.0;
        for s in 11..=13 {
            rate = course.rate(second(s), 10_000_000);
        }
        assert!(rate.abs() < 1.0, "{rate}");
    }

    #[test]
    fn half_a_minute_below_the_minimum_is_too_slow_and_less_is_not() {
        let mut watch = Minimum::new(Rate(8_000_000));
        // 1 MB a second is the minimum itself; then half of it.
        for s in 0..60 {
            assert_eq!(watch.look(second(s), s * 1_000_000, None), None, "{s}");
        }
        let slow = (60..90).find_map(|s| {
            let bytes = 59_000_000 + (s - 59) * 500_000;
            watch.look(second(s), bytes, None).map(|rate| (s, rate))
        });
        // The second of half a megabyte takes the mean of the thirty below.
        let (at, rate) = slow.unwrap();
        assert_eq!(at, 60);
        assert!(rate < 8e6 && rate > 7.8e6, "{rate}");
    }

    #[test]
    fn the_start_does_not_count_and_neither_does_what_follows_the_last_byte() {
        let mut watch = Minimum::new(Rate(8_000_000));
        assert!((0..35).all(|s| watch.look(second(s), 0, Some(9)).is_none()));
        assert_eq!(watch.look(second(35), 9, Some(9)), None, "it waits for a disk");
        assert_eq!(watch.look(second(35), 0, Some(9)), Some(0.0));
    }

    #[test]
    fn the_verdict_names_what_limited_it_first() {
        let limiter = vec![("network", 0.2), ("receiver", 0.7), ("loss", 0.001)];
        let channel = ChannelStats { limiter, ..ChannelStats::default() };
        let text = Minimum::new(Rate(8_000_000)).verdict(1e6, &channel);
        assert!(text.ends_with("limited by: receiver 70 %, network 20 % of the time"), "{text}");
        let text = Minimum::new(Rate(8_000_000)).verdict(1e6, &ChannelStats::default());
        assert!(text.contains("the end that sends"), "{text}");
    }
}
