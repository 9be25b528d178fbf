//! Progress line of a copy, and detection of copies below a minimum rate.

use std::collections::VecDeque;
use std::time::Duration;

use sabul::files::Totals;
use sabul::{ChannelStats, Progress};
use sabul_units::{Rate, show_bytes, show_rate};

use crate::limiter;

/// Ours: averaging window of the displayed rate.
const RATE_WINDOW: Duration = Duration::from_secs(2);
/// Ours: longest averaging window, for paths on which no block arrives for longer than
/// [`RATE_WINDOW`].
const RATE_WINDOW_MAX: Duration = Duration::from_secs(20);
/// Ours: start-up time that the minimum rate does not cover.
const START_UP: Duration = Duration::from_secs(5);
/// Ours: averaging window of the minimum rate.
const MINIMUM_WINDOW: Duration = Duration::from_secs(30);

/// Ours: shortest silence of the peer that is displayed. An idle peer answers a ping every 0.5 s.
const SILENCE_SHOWN: Duration = Duration::from_secs(2);
/// Columns of the progress bar without its brackets: wide and narrow.
const BARS: [usize; 2] = [16, 8];

/// Progress of a copy over time.
#[derive(Debug, Default)]
pub struct ProgressLine {
    samples: VecDeque<Sample>,
    /// Whether the copy reconnects after the connection is lost.
    is_reconnecting: bool,
}

/// Progress at one time.
#[derive(Clone, Debug, Default)]
struct Sample {
    at: Duration,
    bytes: u64,
    /// Seconds for which each limiter held the transfer back.
    spent: Vec<(&'static str, f64)>,
}

/// Priority of a part of the line. Parts of the lowest priority are dropped first on a narrow
/// terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Weight {
    Loss,
    RoundTrip,
    Time,
    Limiter,
    Carrier,
    Entries,
    Rate,
    Always,
}

/// Progress of a copy, formatted in parts.
#[derive(Clone, Debug, PartialEq)]
pub struct View {
    parts: Vec<(Weight, String)>,
    /// Share that has arrived, 0 to 1, or `None` if the total is unknown. Below 1 if an entry
    /// failed.
    pub share: Option<f64>,
}

impl View {
    /// Returns all parts as one line.
    pub fn line(&self) -> String {
        self.from(Weight::Loss, "limited by ")
    }

    /// Returns a progress bar and as many whole parts as fit into `columns`.
    pub fn fitting(&self, columns: usize) -> String {
        let full = "limited by ";
        let [wide, narrow] = BARS;
        let levels = [
            (wide, Weight::Loss, full),
            (wide, Weight::RoundTrip, full),
            (wide, Weight::Time, full),
            (narrow, Weight::Time, full),
            (0, Weight::Time, full),
            (0, Weight::Time, ""),
            (0, Weight::Limiter, ""),
            (0, Weight::Carrier, ""),
            (0, Weight::Entries, ""),
            (0, Weight::Rate, ""),
        ];
        let draw = |(bar, weight, prefix)| self.bar(bar) + &self.from(weight, prefix);
        let lines = levels.into_iter().map(draw);
        let smallest = || draw((0, Weight::Always, ""));
        lines.into_iter().find(|line| line.chars().count() <= columns).unwrap_or_else(smallest)
    }

    /// Returns the parts of at least this priority.
    fn from(&self, least: Weight, prefix: &str) -> String {
        let parts = self.parts.iter().filter(|(weight, _)| *weight >= least);
        let text = |(weight, text): &(Weight, String)| match weight {
            Weight::Limiter => format!("{prefix}{text}"),
            _ => text.clone(),
        };
        parts.map(text).collect::<Vec<_>>().join(", ")
    }

    /// Returns a bar of `columns` columns and the percentage, or an empty text if the share is
    /// unknown.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0..=100")]
    fn bar(&self, columns: usize) -> String {
        let Some(share) = self.share else { return String::new() };
        let percent = format!("{:>3}% ", (share * 100.0) as u64);
        if columns == 0 {
            return percent;
        }
        let done = (share * columns as f64) as usize;
        let head = if done < columns { ">" } else { "" };
        format!("[{:<columns$}] {percent}", "=".repeat(done) + head)
    }
}

impl ProgressLine {
    /// Creates the progress of a copy. `is_reconnecting` marks a copy that reconnects after a lost
    /// connection.
    pub fn new(is_reconnecting: bool) -> Self {
        Self { is_reconnecting, ..Self::default() }
    }

    /// Records the progress and returns its view.
    pub fn update(&mut self, progress: &Progress) -> View {
        if let Some(place) = progress.place {
            let line = format!("waiting for the server: place {place} in line");
            return View { parts: vec![(Weight::Always, line)], share: None };
        }
        let new = progress.bytes.saturating_sub(progress.bytes_resumed);
        let spent = progress.channel.limiter.iter();
        let total_s = progress.elapsed.as_secs_f64();
        let spent = spent.map(|&(name, share)| (name, share * total_s)).collect();
        let is_silent = progress.channel.silence >= SILENCE_SHOWN;
        let rate = self.take(Sample { at: progress.elapsed, bytes: new, spent }, is_silent);
        let totals = match (progress.bytes_total, progress.entries_total) {
            (Some(bytes), Some(entries)) => Some(Totals { entries, bytes, is_all: true }),
            _ => progress.ahead,
        };
        View { parts: self.describe(progress, totals, rate), share: share(progress, totals) }
    }

    /// Records a sample and returns the rate in bit/s since the oldest sample kept. The oldest
    /// sample is about two seconds old. It is older if nothing has arrived since and the peer still
    /// answers, because content arrives in blocks, which take long on slow paths.
    fn take(&mut self, sample: Sample, is_silent: bool) -> f64 {
        let (at, bytes) = (sample.at, sample.bytes);
        self.samples.push_back(sample);
        while let Some(next) = self.samples.get(1) {
            let age = at.saturating_sub(next.at);
            let has_come = bytes > next.bytes || is_silent || age >= RATE_WINDOW_MAX;
            if age < RATE_WINDOW || !has_come {
                break;
            }
            self.samples.pop_front();
        }
        self.samples.front().map_or(0.0, |first| {
            rate_bps(bytes.saturating_sub(first.bytes), at.saturating_sub(first.at))
        })
    }

    /// Returns the limiter with the largest share of the time since the oldest sample.
    fn limiter(&self) -> Option<&'static str> {
        let (first, last) = (self.samples.front()?, self.samples.back()?);
        let before = |name| first.spent.iter().find(|(it, _)| *it == name).map_or(0.0, |it| it.1);
        let spent = last.spent.iter().map(|&(name, time)| (name, time - before(name)));
        let most = spent.max_by(|one, other| one.1.total_cmp(&other.1));
        most.filter(|(_, time)| *time > 0.0).map(|(name, _)| name)
    }

    /// Returns the parts: amount, rate, remaining time, entries, limiter, RTT and loss.
    fn describe(
        &self,
        progress: &Progress,
        totals: Option<Totals>,
        rate_bps: f64,
    ) -> Vec<(Weight, String)> {
        let mut parts = vec![(Weight::Always, amount(progress.bytes, totals))];
        parts.push((Weight::Rate, show_rate(rate_bps)));
        let channel = &progress.channel;
        let is_silent = channel.silence >= SILENCE_SHOWN;
        let left = totals.filter(|totals| totals.is_all);
        let left = left.map(|totals| totals.bytes.saturating_sub(progress.bytes));
        if let Some(left) = left.filter(|&left| left > 0 && rate_bps >= 1.0 && !is_silent) {
            #[expect(clippy::cast_precision_loss, reason = "a time needs few digits")]
            let seconds = (left as f64 * 8.0 / rate_bps).ceil().min(359_999.0);
            let left = show_time(Duration::from_secs_f64(seconds));
            parts.push((Weight::Time, format!("{left} left")));
        }
        // All content has arrived; the receiver still waits for its disk.
        if left == Some(0) && (1..progress.bytes).contains(&progress.bytes_durable) {
            parts.push((Weight::Time, format!("{} on disk", show_bytes(progress.bytes_durable))));
        }
        parts.extend(entries(progress, totals).map(|text| (Weight::Entries, text)));
        if progress.entries_failed > 0 {
            parts.push((Weight::Always, format!("{} failed", progress.entries_failed)));
        }
        if is_silent {
            let then = if self.is_reconnecting { "reconnects" } else { "gives up" };
            let (silence, limit) = (channel.silence.as_secs(), channel.silence_limit.as_secs());
            let text = format!("no answer for {silence} s, {then} at {limit} s");
            parts.push((Weight::Always, text));
            return parts;
        }
        if let Some(name) = self.limiter() {
            parts.push((Weight::Limiter, name.to_owned()));
        }
        if channel.rtt_ms > 0.0 {
            parts.push((Weight::RoundTrip, format!("RTT {:.1} ms", channel.rtt_ms)));
        }
        if channel.paths > 1 {
            parts.push((Weight::Carrier, format!("over {} channels", channel.paths)));
        }
        // The kernel's connections do not count losses.
        parts.push(match carrier_name(channel.carrier) {
            Some(name) => (Weight::Carrier, format!("over {name}: {}", channel.carrier_reason)),
            None => (Weight::Loss, format!("loss {:.2} %", channel.loss_rate() * 100.0)),
        });
        parts
    }
}

/// Returns the name of a carrier for the user; `None` for UDP, the usual one.
pub fn carrier_name(carrier: &str) -> Option<&'static str> {
    match carrier {
        "tcp" => Some("TCP"),
        "ssh" => Some("ssh"),
        "relay" => Some("the introducer"),
        _ => None,
    }
}

/// Returns the share for the bar. Only final totals count, because a shrinking bar is worse than
/// none.
fn share(progress: &Progress, totals: Option<Totals>) -> Option<f64> {
    let totals = totals.filter(|totals| totals.is_all)?;
    let arrived = progress.entries.saturating_sub(progress.entries_failed);
    let (done, all) = match totals.bytes {
        0 => (arrived, totals.entries),
        bytes => (progress.bytes, bytes),
    };
    let most = if progress.entries_failed > 0 { 0.99 } else { 1.0 };
    #[expect(clippy::cast_precision_loss, reason = "a share needs few digits")]
    let share = (all > 0).then(|| (done as f64 / all as f64).clamp(0.0, most));
    share
}

/// Formats the amount, such as `10.0 of 40.0 MiB`.
fn amount(bytes: u64, totals: Option<Totals>) -> String {
    let done = show_bytes(bytes);
    let Some(Totals { bytes, is_all, .. }) = totals else { return done };
    let all = show_bytes(bytes);
    let done = match (done.split_once(' '), all.split_once(' ')) {
        (Some((number, unit)), Some((_, same))) if unit == same => number,
        _ => &done,
    };
    format!("{done} of {}{all}", if is_all { "" } else { "at least " })
}

/// Formats the number of entries, if there are several.
fn entries(progress: &Progress, totals: Option<Totals>) -> Option<String> {
    let done = progress.entries;
    match totals {
        Some(Totals { entries: ..=1, is_all: true, .. }) => None,
        Some(Totals { entries, is_all: true, .. }) => Some(format!("{done} of {entries} entries")),
        Some(Totals { entries, .. }) => Some(format!("{done} of at least {entries} entries")),
        None => (done > 1).then(|| format!("{done} entries")),
    }
}

/// Formats a time as `m:ss`, or as `h:mm:ss` from one hour on.
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

/// MinimumRate rate of a copy: mean rate of arriving content over 30 s, from the fifth second on, until
/// all content has arrived.
#[derive(Debug)]
pub struct MinimumRate {
    min_rate: Rate,
    seen: VecDeque<(Duration, u64)>,
}

impl MinimumRate {
    /// Creates the check for this minimum rate.
    pub const fn new(min_rate: Rate) -> Self {
        Self { min_rate, seen: VecDeque::new() }
    }

    /// Records the bytes at a time. Returns the rate in bit/s if the rate is below the minimum.
    #[expect(clippy::cast_precision_loss, reason = "a rate needs few digits")]
    pub fn update(&mut self, at: Duration, bytes: u64, total: Option<u64>) -> Option<f64> {
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
        (time >= MINIMUM_WINDOW && rate < self.min_rate.0 as f64).then_some(rate)
    }

    /// Returns the error message for a transfer at this rate.
    #[expect(clippy::cast_precision_loss, reason = "a rate needs few digits")]
    pub fn verdict(&self, rate_bps: f64, channel: &ChannelStats) -> String {
        let limiter = match limiter::shares(channel) {
            shares if shares.is_empty() => {
                "only the sending side measures the limiters of the copy".to_owned()
            }
            shares => format!("limited by: {shares} of the time"),
        };
        format!(
            "slower than --min-rate: {} over the last {} s instead of {}; {limiter}",
            show_rate(rate_bps),
            MINIMUM_WINDOW.as_secs(),
            show_rate(self.min_rate.0 as f64),
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
        let mut progress = Progress::default();
        (progress.bytes, progress.entries, progress.elapsed) = (bytes, entries, second(1));
        progress
    }

    fn with(mut progress: Progress, ahead: Totals) -> Progress {
        progress.ahead = Some(ahead);
        progress
    }

    /// State at the start.
    fn start(mut progress: Progress) -> Progress {
        progress.elapsed = second(0);
        progress
    }

    #[test]
    fn while_the_total_is_unknown_no_bar_is_shown() {
        let mut progress_line = ProgressLine::default();
        let view = progress_line.update(&progress(14_680_064, 90));
        assert_eq!(view.share, None);
        assert_eq!(view.line(), "14.0 MiB, 0 bit/s, 90 entries, loss 0.00 %");
        let ahead = Totals { entries: 800, bytes: 40 << 20, is_all: false };
        let view = progress_line.update(&with(progress(14 << 20, 90), ahead));
        assert_eq!(view.share, None);
        assert!(view.line().starts_with("14.0 of at least 40.0 MiB, "), "{}", view.line());
        assert!(view.line().contains(", 90 of at least 800 entries"), "{}", view.line());
        let all = Totals { is_all: true, ..ahead };
        let view = progress_line.update(&with(progress(10 << 20, 90), all));
        assert_eq!(view.share, Some(0.25));
        assert!(view.line().starts_with("10.0 of 40.0 MiB, "), "{}", view.line());
        assert!(view.line().contains(", 90 of 800 entries"), "{}", view.line());
    }

    /// State of a directory copy, two seconds after its start.
    fn tree(bytes: u64, all: u64, done: u64, entries: u64, limiter: &'static str) -> View {
        let mut progress_line = ProgressLine::default();
        let totals = Totals { entries, bytes: all, is_all: true };
        progress_line.update(&start(with(progress(0, 0), totals)));
        let mut state = with(progress(bytes, done), totals);
        (state.elapsed, state.channel.rtt_ms) = (second(2), 40.0);
        state.channel.limiter = vec![(limiter, 0.9)];
        progress_line.update(&state)
    }

    #[test]
    fn eighty_columns_fit_the_entries_and_the_limiter_of_a_tree() {
        let view = tree(7_100_000, 40 << 20, 12, 800, "path");
        assert_eq!(
            view.fitting(80),
            " 16% 6.8 of 40.0 MiB, 28.4 Mbit/s, 0:10 left, 12 of 800 entries, limited by path"
        );
        let view = tree(1_099_500_000_000, 1_099_511_000_000, 12_345, 54_321, "destination");
        assert_eq!(
            view.fitting(80),
            " 99% 1024.0 of 1024.0 GiB, 4398.00 Gbit/s, 12345 of 54321 entries, destination"
        );
        let view = tree(7_100_000, 40 << 20, 0, 1, "path");
        assert_eq!(
            view.fitting(80),
            "[==>             ]  16% 6.8 of 40.0 MiB, 28.4 Mbit/s, 0:10 left, limited by path"
        );
    }

    #[test]
    fn a_waiting_transfer_shows_its_queue_position_and_no_rate() {
        let mut waiting = progress(0, 0);
        waiting.place = Some(12);
        let view = ProgressLine::default().update(&waiting);
        assert_eq!(view.line(), "waiting for the server: place 12 in line");
        assert_eq!(view.share, None);
    }

    #[test]
    fn a_narrow_terminal_omits_whole_parts_of_the_line() {
        let view = tree(7_100_000, 40 << 20, 12, 800, "path");
        assert!(view.fitting(200).ends_with(", limited by path, RTT 40.0 ms, loss 0.00 %"));
        assert!(view.fitting(200).starts_with("[==>             ]  16% 6.8 of 40.0 MiB, "));
        for columns in 21..200 {
            let line = view.fitting(columns);
            assert!(line.chars().count() <= columns, "{columns}: {line}");
        }
        assert_eq!(view.fitting(3), " 16% 6.8 of 40.0 MiB", "the terminal cuts the first part");
    }

    #[test]
    fn an_outage_is_shown_with_its_duration_and_the_rate_falls_to_zero() {
        let mut progress_line = ProgressLine::new(false);
        let total = Totals { entries: 1, bytes: 20 << 20, is_all: true };
        let mut line = String::new();
        // 1 MiB per second for 5 s, then nothing; sampled ten times a second.
        for tenth in 0..=120 {
            let time = Duration::from_millis(tenth * 100);
            let mut state = with(progress((tenth.min(50) << 20) / 10, 0), total);
            state.elapsed = time;
            state.channel.silence = time.saturating_sub(second(5));
            state.channel.silence_limit = second(30);
            state.channel.limiter = vec![("path", 0.5)];
            line = progress_line.update(&state).line();
            assert_eq!(line.contains("no answer"), tenth >= 70, "{tenth}: {line}");
            assert_eq!(line.contains(", 0 bit/s"), tenth == 0 || tenth >= 70, "{tenth}: {line}");
        }
        assert_eq!(line, "5.0 of 20.0 MiB, 0 bit/s, no answer for 7 s, gives up at 30 s");
        let mut progress_line = ProgressLine::new(true);
        let mut state = with(progress(0, 0), total);
        (state.channel.silence, state.channel.silence_limit) = (second(7), second(30));
        assert!(
            progress_line.update(&state).line().ends_with("no answer for 7 s, reconnects at 30 s")
        );
    }

    #[test]
    fn the_shown_limiter_covers_the_last_two_seconds() {
        let mut progress_line = ProgressLine::default();
        let mut state = progress(0, 0);
        for s in 0..=10_u32 {
            (state.elapsed, state.bytes) = (second(s.into()), u64::from(s) * 1000);
            let cap = f64::from(s.saturating_sub(6)) / f64::from(s.max(1));
            state.channel.limiter = vec![("path", 1.0 - cap), ("cap", cap)];
            let line = progress_line.update(&state).line();
            // At 7 s the two limiters share the window equally.
            assert!(s == 7 || line.contains("limited by cap") == (s >= 8), "{s}: {line}");
        }
    }

    #[test]
    fn a_progress_bar_does_not_reach_its_end_if_an_entry_failed() {
        for (total, share) in [(0, Some(0.75)), (100, Some(0.5)), (50, Some(0.99))] {
            let mut state = progress(50, 4);
            (state.bytes_total, state.entries_total) = (Some(total), Some(4));
            state.entries_failed = 1;
            let view = ProgressLine::default().update(&state);
            assert_eq!(view.share, share, "{total}");
            assert!(view.line().contains(", 4 of 4 entries, 1 failed"), "{}", view.line());
        }
    }

    #[test]
    fn totals_agreed_with_the_peer_take_precedence_over_the_scan() {
        let mut state = progress(50, 1);
        (state.bytes_total, state.entries_total) = (Some(100), Some(2));
        let ahead = Totals { entries: 9, bytes: 900, is_all: true };
        let view = ProgressLine::default().update(&with(state, ahead));
        assert_eq!(view.share, Some(0.5));
        assert!(view.line().starts_with("50 of 100 B, "), "{}", view.line());
    }

    #[test]
    fn progress_of_a_pipe_shows_no_percentage() {
        let mut state = progress(1 << 20, 0);
        (state.bytes_total, state.entries_total) = (None, Some(1));
        let view = ProgressLine::default().update(&state);
        assert_eq!(view.share, None);
        assert!(view.line().starts_with("1.0 MiB, "), "{}", view.line());
    }

    #[test]
    fn files_without_content_are_counted() {
        let mut state = progress(0, 3);
        (state.bytes_total, state.entries_total) = (Some(0), Some(4));
        assert_eq!(ProgressLine::default().update(&state).share, Some(0.75));
    }

    #[test]
    fn the_limiter_and_the_remaining_time_are_shown() {
        let mut progress_line = ProgressLine::default();
        let total = Totals { entries: 1, bytes: 61_000_000, is_all: true };
        progress_line.update(&start(with(progress(0, 0), total)));
        let mut state = progress(1_000_000, 0);
        state.channel.limiter = vec![("path", 0.9)];
        let line = progress_line.update(&with(state.clone(), total)).line();
        assert!(line.contains("8.0 Mbit/s") && line.contains("limited by path"), "{line}");
        assert!(line.contains("8.0 Mbit/s, 1:00 left"), "{line}");
        state.bytes = 60_999_000;
        state.elapsed = second(2);
        let line = progress_line.update(&with(state, total)).line();
        assert!(line.contains(", 0:01 left"), "what is left takes some time: {line}");
        assert_eq!(show_time(Duration::from_secs(3_723)), "1:02:03");
    }

    #[test]
    fn durable_bytes_are_reported_while_only_flushes_are_pending() {
        let total = Totals { entries: 1, bytes: 8 << 20, is_all: true };
        let line = |bytes: u64, bytes_durable: u64| {
            let mut state = progress(bytes << 20, 0);
            state.bytes_durable = bytes_durable;
            ProgressLine::default().update(&with(state, total)).line()
        };
        assert!(line(8, 5 << 20).starts_with("8.0 of 8.0 MiB, 0 bit/s, 5.0 MiB on disk"));
        assert!(!line(7, 5 << 20).contains("on disk"), "the network is waited for");
        assert!(!line(8, 8 << 20).contains("on disk"), "nothing is waited for");
        assert!(!line(8, 0).contains("on disk"), "nothing was promised, or nothing is known");
    }

    #[test]
    fn the_rate_covers_the_last_two_seconds() {
        let sample = |s, bytes| Sample { at: second(s), bytes, spent: Vec::new() };
        let mut progress_line = ProgressLine::default();
        // 1 MB per second for 10 s, then nothing.
        for s in 0..=10 {
            let rate = progress_line.take(sample(s, s * 1_000_000), false);
            assert!(s == 0 || (rate - 8e6).abs() < 1.0, "{rate} at {s}");
        }
        let mut rate = 0.0;
        for s in 11..=13 {
            rate = progress_line.take(sample(s, 10_000_000), true);
        }
        assert!(rate.abs() < 1.0, "{rate}");
    }

    #[test]
    fn a_slow_path_shows_a_rate_between_two_blocks() {
        let sample = |s, bytes| Sample { at: second(s), bytes, spent: Vec::new() };
        let mut progress_line = ProgressLine::default();
        // One block of 1 MB every four seconds.
        for s in 0..40 {
            let rate = progress_line.take(sample(s, s / 4 * 1_000_000), false);
            assert!(s < 4 || (1e6..=4.1e6).contains(&rate), "{rate} at {s}");
        }
        for s in 40..62 {
            progress_line.take(sample(s, 9_000_000), false);
        }
        assert!(progress_line.take(sample(62, 9_000_000), false).abs() < 1.0, "not for ever");
    }

    #[test]
    fn only_half_a_minute_below_the_minimum_rate_is_too_slow() {
        let mut minimum = MinimumRate::new(Rate(8_000_000));
        // 1 MB per second is exactly the minimum; half of it follows.
        for s in 0..60 {
            assert_eq!(minimum.update(second(s), s * 1_000_000, None), None, "{s}");
        }
        let slow = (60..90).find_map(|s| {
            let bytes = 59_000_000 + (s - 59) * 500_000;
            minimum.update(second(s), bytes, None).map(|rate| (s, rate))
        });
        // One second at half the rate lowers the 30 s mean below the minimum.
        let (at, rate) = slow.unwrap();
        assert_eq!(at, 60);
        assert!(rate < 8e6 && rate > 7.8e6, "{rate}");
    }

    #[test]
    fn the_minimum_rate_ignores_the_start_and_the_time_after_the_last_byte() {
        let mut minimum = MinimumRate::new(Rate(8_000_000));
        assert!((0..35).all(|s| minimum.update(second(s), 0, Some(9)).is_none()));
        assert_eq!(minimum.update(second(35), 9, Some(9)), None, "it waits for a disk");
        assert_eq!(minimum.update(second(35), 0, Some(9)), Some(0.0));
    }

    #[test]
    fn the_verdict_names_the_largest_limiter_first() {
        let limiter = vec![("path", 0.2), ("destination", 0.7), ("loss", 0.001)];
        let mut channel = ChannelStats::default();
        channel.limiter = limiter;
        let text = MinimumRate::new(Rate(8_000_000)).verdict(1e6, &channel);
        assert!(text.ends_with("limited by: destination 70 %, path 20 % of the time"), "{text}");
        let text = MinimumRate::new(Rate(8_000_000)).verdict(1e6, &ChannelStats::default());
        assert!(text.contains("only the sending side"), "{text}");
    }
}
