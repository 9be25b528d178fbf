//! Progress on standard error: one live line on a terminal, a plain line now and then elsewhere.

use std::io::{self, IsTerminal as _};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use sabul::{Progress, Transfer};
use sabul_front::course::{Course, Minimum};
use sabul_front::lines::Teller;
use tokio::time::MissedTickBehavior;

use crate::interrupt::Interrupt;
use crate::{json, output};

/// Time between two lines where there is no terminal. A line leaves at the first tick after this, so
/// that two lines are never more than 2 s apart.
const LINE_INTERVAL: Duration = Duration::from_millis(1800);
/// Time between two looks at a transfer, whether anything has come or not.
const TICK: Duration = Duration::from_millis(200);
/// How often a minimum is looked at.
const LOOK: Duration = Duration::from_secs(1);
/// A transfer that has brought nothing is shown from this time on: most refusals come before.
const SHOW_AFTER: Duration = Duration::from_secs(1);

/// Shows how far a transfer has come: bytes that have arrived at the receiver.
#[derive(Debug)]
pub(crate) struct Meter {
    style: Style,
    course: Course,
}

#[derive(Debug)]
enum Style {
    Quiet,
    Live(ProgressBar),
    Lines { next: Instant },
}

impl Meter {
    /// For standard error as it is, or silent; of a copy that dials again when it has given up, or does not.
    pub(crate) fn new(is_quiet: bool, is_repeated: bool) -> Self {
        let style = if is_quiet {
            Style::Quiet
        } else if io::stderr().is_terminal() {
            let style = ProgressStyle::with_template("{wide_msg}").expect("a constant template");
            let target = ProgressDrawTarget::stderr();
            Style::Live(ProgressBar::with_draw_target(None, target).with_style(style))
        } else {
            Style::Lines { next: Instant::now() + LINE_INTERVAL }
        };
        Self { style, course: Course::new(is_repeated) }
    }

    /// Takes in the latest state.
    fn update(&mut self, progress: &Progress) {
        let view = self.course.look(progress);
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

    /// Shows this text in place of the state of a transfer.
    pub(crate) fn say(&self, text: String) {
        match &self.style {
            Style::Live(bar) => bar.set_message(text),
            Style::Lines { .. } => output::note(text),
            Style::Quiet => {}
        }
    }

    /// Says how far it is now, because somebody asked.
    fn tell(&mut self, progress: &Progress) {
        let line = self.course.look(progress).line();
        match &self.style {
            Style::Live(bar) => bar.suspend(|| output::note(line)),
            Style::Quiet | Style::Lines { .. } => output::note(line),
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
    minimum: &mut Option<Minimum>,
    lines: &mut Option<Teller>,
) -> (Progress, Option<String>) {
    let mut slow = None;
    let mut ticks = tokio::time::interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut look = tokio::time::interval(LOOK);
    let mut questions = interrupt.questions();
    let mut is_due = true;
    loop {
        let progress = transfer.progress();
        if is_due || progress.is_finished {
            meter.update(&progress);
            if let Some(teller) = lines {
                json::follow(teller, transfer, &progress);
            }
        }
        if progress.is_finished {
            break;
        }
        is_due = false;
        tokio::select! {
            // By the clock: an outage changes nothing that would wake this up.
            _ = ticks.tick() => is_due = true,
            () = transfer.changed() => {}
            Ok(()) = questions.changed() => meter.tell(&transfer.progress()),
            _ = look.tick(), if minimum.is_some() && progress.place.is_none() => {
                let progress = transfer.progress();
                let moved = progress.elapsed.saturating_sub(progress.waited);
                let Progress { bytes, bytes_resumed, bytes_total, channel, .. } = progress;
                slow = minimum.as_mut().and_then(|minimum| {
                    let rate = minimum.look(moved, bytes - bytes_resumed.min(bytes), bytes_total)?;
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
