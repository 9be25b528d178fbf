//! Progress on standard error: one live line on a terminal, a plain line now and then elsewhere.

use std::io::{self, IsTerminal as _};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use sabul::{Progress, Transfer};
use sabul_front::course::{Course, Minimum};
use sabul_front::lines::Teller;

use crate::interrupt::Interrupt;
use crate::{json, output};

/// Time between two lines where there is no terminal.
const LINE_INTERVAL: Duration = Duration::from_secs(2);
/// How often a minimum is looked at.
const LOOK: Duration = Duration::from_secs(1);
/// Redraws of the live line per second.
const REDRAW_HZ: u8 = 5;
/// Steps of the bar.
const STEPS: f64 = 1000.0;
/// Where nobody knows how much there is.
const OPEN: &str = "{wide_msg}";
/// Where the total is certain.
const BAR: &str = "[{bar:16}] {percent:>3}% {wide_msg}";
/// Columns of that before the message.
const BAR_COLUMNS: usize = 24;

/// Shows how far a transfer has come: bytes that have arrived at the receiver.
#[derive(Debug)]
pub(crate) struct Meter {
    style: Style,
    course: Course,
}

#[derive(Debug)]
enum Style {
    Quiet,
    Live { bar: ProgressBar, has_total: bool },
    Lines { next: Instant },
}

impl Meter {
    /// For standard error as it is, or silent.
    pub(crate) fn new(is_quiet: bool) -> Self {
        let style = if is_quiet {
            Style::Quiet
        } else if io::stderr().is_terminal() {
            let bar = ProgressBar::new(1000).with_style(style(OPEN));
            bar.set_draw_target(ProgressDrawTarget::stderr_with_hz(REDRAW_HZ));
            Style::Live { bar, has_total: false }
        } else {
            Style::Lines { next: Instant::now() + LINE_INTERVAL }
        };
        Self { style, course: Course::default() }
    }

    /// Takes in the latest state.
    fn update(&mut self, progress: &Progress) {
        let view = self.course.look(progress);
        match &mut self.style {
            Style::Quiet => {}
            Style::Live { bar, has_total } => {
                if view.share.is_some() != *has_total {
                    *has_total = view.share.is_some();
                    bar.set_style(style(if *has_total { BAR } else { OPEN }));
                }
                // The text first: whatever is drawn next has both.
                let taken = if *has_total { BAR_COLUMNS } else { 0 };
                let room = output::error_width().unwrap_or(usize::MAX).saturating_sub(taken);
                bar.set_message(view.fitting(room).to_owned());
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "0..=1000"
                )]
                bar.set_position((view.share.unwrap_or_default() * STEPS) as u64);
            }
            Style::Lines { next } => {
                if Instant::now() >= *next {
                    *next = Instant::now() + LINE_INTERVAL;
                    output::note(view.line);
                }
            }
        }
    }

    /// Says how far it is now, because somebody asked.
    fn tell(&mut self, progress: &Progress) {
        let line = self.course.look(progress).line;
        match &self.style {
            Style::Live { bar, .. } => bar.suspend(|| output::note(line)),
            Style::Quiet | Style::Lines { .. } => output::note(line),
        }
    }

    /// Takes the live line away.
    pub(crate) fn clear(&self) {
        if let Style::Live { bar, .. } = &self.style {
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
    let mut look = tokio::time::interval(LOOK);
    let mut questions = interrupt.questions();
    loop {
        let progress = transfer.progress();
        meter.update(&progress);
        if let Some(teller) = lines {
            json::follow(teller, transfer, &progress);
        }
        if progress.is_finished {
            break;
        }
        tokio::select! {
            () = transfer.changed() => {}
            Ok(()) = questions.changed() => meter.tell(&transfer.progress()),
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

fn style(template: &'static str) -> ProgressStyle {
    ProgressStyle::with_template(template)
        .expect("a constant template, which tests draw")
        .progress_chars("=> ")
}
