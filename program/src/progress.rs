//! Progress on standard error: one live line on a terminal, periodic lines elsewhere.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use sabul::{Progress, Transfer};
use sabul_front::lines::LineBuilder;
use sabul_front::progress_line::{MinimumRate, ProgressLine};
use tokio::time::MissedTickBehavior;

use crate::cp::report::Recorder;
use crate::interrupt::Interrupt;
use crate::{json, output};

/// Ours: interval between two lines without a terminal. A line is printed at the first tick after
/// this interval, so two lines are at most 2 s apart.
const LINE_INTERVAL: Duration = Duration::from_millis(1800);
/// Interval between two updates of the display, with or without new data.
const TICK: Duration = Duration::from_millis(200);
/// Interval between two checks of the minimum rate.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Ours: a transfer without any data is shown only after this time, because most refusals arrive
/// earlier.
const SHOW_AFTER: Duration = Duration::from_secs(1);

/// Progress display of a transfer: bytes that arrived at the receiver.
#[derive(Debug)]
pub(crate) struct Meter {
    style: Style,
    progress_line: ProgressLine,
}

#[derive(Debug)]
enum Style {
    Quiet,
    Live(ProgressBar),
    Lines { next: Instant },
}

impl Meter {
    /// Creates the display for standard error, or a silent one. `is_reconnecting` marks a copy that
    /// reconnects after a lost connection.
    pub(crate) fn new(is_quiet: bool, is_reconnecting: bool) -> Self {
        let style = if is_quiet {
            Style::Quiet
        } else if output::can_redraw() {
            let style = ProgressStyle::with_template("{wide_msg}").expect("a constant template");
            let target = ProgressDrawTarget::stderr();
            let bar = ProgressBar::with_draw_target(None, target).with_style(style);
            output::set_live(&bar);
            Style::Live(bar)
        } else {
            Style::Lines { next: Instant::now() + LINE_INTERVAL }
        };
        Self { style, progress_line: ProgressLine::new(is_reconnecting) }
    }

    /// Updates the display with the latest progress.
    fn update(&mut self, progress: &Progress) {
        let view = self.progress_line.update(progress);
        match &mut self.style {
            Style::Quiet => {}
            Style::Live(bar) => {
                if progress.bytes > 0 || progress.elapsed >= SHOW_AFTER {
                    // The only call that draws.
                    bar.set_message(view.fitting(output::error_width().unwrap_or(usize::MAX)));
                }
            }
            Style::Lines { next } => {
                if Instant::now() >= *next {
                    *next = Instant::now() + LINE_INTERVAL;
                    output::note(view.line());
                }
            }
        }
    }

    /// Shows this text instead of the progress of a transfer.
    pub(crate) fn say(&self, text: String) {
        match &self.style {
            Style::Live(bar) => bar.set_message(text),
            Style::Lines { .. } => output::note(text),
            Style::Quiet => {}
        }
    }

    /// Shows an empty live line.
    pub(crate) fn say_nothing(&self) {
        if let Style::Live(bar) = &self.style {
            bar.set_message("");
        }
    }

    /// Prints the progress now, in response to SIGUSR1.
    fn print(&mut self, progress: &Progress) {
        output::note(self.progress_line.update(progress).line());
    }

    /// Removes the live line.
    pub(crate) fn clear(&self) {
        if let Style::Live(bar) = &self.style {
            bar.finish_and_clear();
        }
    }
}

/// Follows a transfer until its end. An interrupt cancels the transfer, and so does a rate below
/// `minimum`. Returns the last progress, and the error text if the transfer was too slow.
pub(crate) async fn follow(
    transfer: &mut Transfer,
    meter: &mut Meter,
    interrupt: &Interrupt,
    minimum: &mut Option<MinimumRate>,
    lines: &mut Option<LineBuilder>,
    recorder: &mut Option<Recorder>,
) -> (Progress, Option<String>) {
    let mut slow = None;
    let mut ticks = tokio::time::interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut interval = tokio::time::interval(CHECK_INTERVAL);
    let mut progress_requests = interrupt.progress_requests();
    let mut is_due = true;
    loop {
        let progress = transfer.progress();
        if is_due || progress.is_finished {
            meter.update(&progress);
            if let Some(line_builder) = lines {
                json::follow(line_builder, transfer, &progress);
            }
            if let Some(recorder) = recorder {
                recorder.record(&progress);
            }
        }
        if progress.is_finished {
            break;
        }
        is_due = false;
        tokio::select! {
            // Timer: during an outage no change of the transfer wakes this loop.
            _ = ticks.tick() => is_due = true,
            () = transfer.changed() => {}
            Ok(()) = progress_requests.changed() => meter.print(&transfer.progress()),
            _ = interval.tick(), if minimum.is_some() && progress.place.is_none() => {
                let progress = transfer.progress();
                let moved = progress.elapsed.saturating_sub(progress.waited);
                let Progress { bytes, bytes_resumed, bytes_total, channel, .. } = progress;
                slow = minimum.as_mut().and_then(|minimum| {
                    let rate = minimum.update(moved, bytes - bytes_resumed.min(bytes), bytes_total)?;
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
