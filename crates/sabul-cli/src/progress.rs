//! Progress on standard error: one live line on a terminal, a plain line now and then elsewhere.

use std::io::{self, IsTerminal as _};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use sabul::{Progress, Transfer};
use sabul_study::words::show_rate;
use sabul_units::show_bytes;

use crate::interrupt::Interrupt;
use crate::json::rate_bps;
use crate::output;
use crate::policy::{LOOK, MinRate};

/// Time between two lines where there is no terminal.
const LINE_INTERVAL: Duration = Duration::from_secs(2);
/// Redraws of the live line per second.
const REDRAW_HZ: u8 = 5;
/// Over how long the shown rate is averaged.
const RATE_WINDOW: Duration = Duration::from_secs(2);

/// Shows how far a transfer has come: bytes that the receiver has written.
#[derive(Debug)]
pub(crate) struct Meter {
    style: Style,
    recent: Recent,
}

#[derive(Debug)]
enum Style {
    Quiet,
    Live(ProgressBar),
    Lines { next: Instant },
}

impl Meter {
    /// For standard error as it is, or silent.
    pub(crate) fn new(is_quiet: bool) -> Self {
        let style = if is_quiet {
            Style::Quiet
        } else if io::stderr().is_terminal() {
            let bar = ProgressBar::new(0);
            bar.set_draw_target(ProgressDrawTarget::stderr_with_hz(REDRAW_HZ));
            Style::Live(bar)
        } else {
            Style::Lines { next: Instant::now() + LINE_INTERVAL }
        };
        Self { style, recent: Recent::default() }
    }

    /// Takes in the latest state.
    pub(crate) fn update(&mut self, progress: &Progress) {
        let rate = self
            .recent
            .update(progress.elapsed, progress.bytes.saturating_sub(progress.bytes_resumed));
        match &mut self.style {
            Style::Quiet => {}
            Style::Live(bar) => {
                if let Some(total) = progress.bytes_total.filter(|_| bar.length() == Some(0)) {
                    bar.set_length(total);
                    bar.set_style(bar_style());
                }
                bar.set_position(progress.bytes);
                bar.set_message(describe(progress, rate));
            }
            Style::Lines { next } => {
                if Instant::now() >= *next {
                    *next = Instant::now() + LINE_INTERVAL;
                    output::note(describe(progress, rate));
                }
            }
        }
    }

    /// Takes the live line away.
    pub(crate) fn clear(&self) {
        if let Style::Live(bar) = &self.style {
            bar.finish_and_clear();
        }
    }
}

/// Follows a transfer to its end, or to an interrupt, which it passes on. The last state seen
/// comes back; and what there is to say of a transfer that was slower than `minimum`, which ends it.
pub(crate) async fn follow(
    transfer: &mut Transfer,
    meter: &mut Meter,
    interrupt: &Interrupt,
    minimum: &mut Option<MinRate>,
) -> (Progress, Option<String>) {
    let mut slow = None;
    let mut look = tokio::time::interval(LOOK);
    loop {
        let progress = transfer.progress();
        meter.update(&progress);
        if progress.is_finished {
            break;
        }
        tokio::select! {
            () = transfer.changed() => {}
            _ = look.tick(), if minimum.is_some() => {
                let progress = transfer.progress();
                let Progress { elapsed, bytes, bytes_resumed, bytes_total, channel, .. } = progress;
                slow = minimum.as_mut().and_then(|minimum| {
                    let rate = minimum.look(elapsed, bytes - bytes_resumed.min(bytes), bytes_total)?;
                    Some(minimum.verdict(rate, &channel))
                });
                if slow.is_some() {
                    transfer.cancel();
                    break;
                }
            }
            () = interrupt.wait() => {
                transfer.cancel();
                break;
            }
        }
    }
    meter.clear();
    (transfer.progress(), slow)
}

fn bar_style() -> ProgressStyle {
    ProgressStyle::with_template("[{bar:24}] {percent:>3}% {msg}")
        .expect("a constant template, which a test parses")
        .progress_chars("=> ")
}

/// One line: how much, how fast, over what kind of path, and how long still.
fn describe(progress: &Progress, rate_bps: f64) -> String {
    let mut line = show_bytes(progress.bytes);
    if let Some(total) = progress.bytes_total {
        line += &format!(" of {}", show_bytes(total));
    }
    line += &format!(", {}", show_rate(rate_bps));
    let channel = &progress.channel;
    if channel.rtt_ms > 0.0 {
        line += &format!(", RTT {:.1} ms", channel.rtt_ms);
    }
    line += &format!(", loss {:.2} %", channel.loss_rate() * 100.0);
    if progress.entries_total.is_some_and(|total| total > 1) {
        let total = progress.entries_total.unwrap_or_default();
        line += &format!(", {} of {total} entries", progress.entries);
    }
    let left = progress.bytes_total.map(|total| total.saturating_sub(progress.bytes));
    if let Some(left) = left.filter(|&left| left > 0 && rate_bps >= 1.0) {
        let seconds = (left as f64 * 8.0 / rate_bps).min(359_999.0);
        line += &format!(", {} left", show_time(Duration::from_secs_f64(seconds)));
    }
    line
}

/// A time as `m:ss`, or `h:mm:ss` from an hour on.
fn show_time(time: Duration) -> String {
    let s = time.as_secs();
    if s >= 3600 {
        format!("{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60)
    } else {
        format!("{}:{:02}", s / 60, s % 60)
    }
}

/// The rate over the last while.
#[derive(Debug, Default)]
struct Recent {
    samples: std::collections::VecDeque<(Duration, u64)>,
}

impl Recent {
    fn update(&mut self, at: Duration, bytes: u64) -> f64 {
        self.samples.push_back((at, bytes));
        while self.samples.get(1).is_some_and(|(next, _)| at.saturating_sub(*next) >= RATE_WINDOW) {
            self.samples.pop_front();
        }
        let (from, before) = self.samples.front().copied().unwrap_or_default();
        rate_bps(bytes.saturating_sub(before), at.saturating_sub(from).as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_template_of_the_bar_is_one() {
        drop(bar_style());
    }

    #[test]
    fn a_time_left_has_minutes_and_from_an_hour_on_hours() {
        assert_eq!(show_time(Duration::from_secs(61)), "1:01");
        assert_eq!(show_time(Duration::from_secs(3_723)), "1:02:03");
    }

    #[test]
    fn the_rate_is_that_of_the_last_two_seconds() {
        let mut recent = Recent::default();
        // 1 MB a second for 10 s, then nothing.
        for s in 0..=10 {
            let rate = recent.update(Duration::from_secs(s), s * 1_000_000);
            assert!(s == 0 || (rate - 8e6).abs() < 1.0, "{rate} at {s}");
        }
        let mut rate = 0.0;
        for s in 11..=13 {
            rate = recent.update(Duration::from_secs(s), 10_000_000);
        }
        assert!(rate.abs() < 1.0, "{rate}");
    }
}
