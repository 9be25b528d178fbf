//! Progress of `--push`, the upload of this program through ssh, and the question whether to upload
//! it.

use std::io::{self, IsTerminal as _, Write as _};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use sabul::internal::ssh::UploadObserver;
use sabul_front::lines::{CopyEvent, LineBuilder};

use crate::{json, output};

/// Interval between two lines without a terminal, and between two lines of JSON.
const INTERVAL: Duration = Duration::from_secs(2);
/// Ours: no time estimate is shown before this; the first second's rate is not representative.
const ESTIMATE_AFTER: Duration = Duration::from_secs(1);

/// Shows the progress of the upload on standard error, or prints JSON Lines.
#[derive(Debug)]
pub(crate) struct UploadProgress {
    style: Style,
    /// Whether a user at the terminal can answer a question.
    may_prompt: bool,
    times: Mutex<Times>,
}

#[derive(Debug)]
enum Style {
    Silent,
    Live(ProgressBar),
    Lines,
    Json(LineBuilder),
}

/// Time at which sending began, and time of the next line.
#[derive(Debug, Default)]
struct Times {
    started: Option<Instant>,
    next: Option<Instant>,
}

impl UploadProgress {
    /// Creates the progress display for users, or a silent one. With `may_prompt` the user is asked,
    /// provided that standard input and standard error are terminals.
    pub(crate) fn new(is_quiet: bool, may_prompt: bool) -> Self {
        let is_terminal = io::stderr().is_terminal();
        let style = match (is_quiet, output::can_redraw()) {
            (true, _) => Style::Silent,
            (false, true) => {
                let style = ProgressStyle::with_template("{msg}").expect("the template is right");
                let bar = ProgressBar::new_spinner().with_style(style);
                bar.set_draw_target(ProgressDrawTarget::hidden());
                output::set_live(&bar);
                Style::Live(bar)
            }
            (false, false) => Style::Lines,
        };
        let may_prompt = may_prompt && !is_quiet && is_terminal && io::stdin().is_terminal();
        Self { style, may_prompt, times: Mutex::default() }
    }

    /// Creates the display that prints JSON Lines.
    pub(crate) fn in_json(line_builder: LineBuilder) -> Self {
        Self { style: Style::Json(line_builder), may_prompt: false, times: Mutex::default() }
    }
}

impl UploadObserver for UploadProgress {
    fn progress(&self, host: &str, sent: u64, total: u64) {
        let now = Instant::now();
        let mut times = self.times.lock().unwrap_or_else(PoisonError::into_inner);
        let started = *times.started.get_or_insert(now);
        let line = || line(host, sent, total, now - started);
        if let Style::Live(bar) = &self.style {
            if sent == 0 {
                bar.set_draw_target(ProgressDrawTarget::stderr());
            }
            if sent < total {
                bar.set_message(line())
            } else {
                bar.finish_and_clear()
            }
            return;
        }
        let is_due = times.next.is_none_or(|next| now >= next);
        if sent < total && !is_due {
            return;
        }
        times.next = Some(now + INTERVAL);
        match &self.style {
            Style::Lines => output::note(line()),
            Style::Json(line_builder) => {
                json::print_event(
                    Some(line_builder),
                    CopyEvent::Push { bytes: sent, bytes_total: total },
                );
            }
            Style::Silent | Style::Live(_) => {}
        }
    }

    fn show(&self, text: &str) {
        output::message(text);
    }

    fn confirm(&self, host: &str, system: &str, bytes: &dyn Fn() -> u64) -> bool {
        if !self.may_prompt {
            return false;
        }
        let size = megabytes(bytes());
        let mut terminal = io::stderr();
        let _ =
            write!(terminal, "{host} ({system}) has no sabul. Upload this program, {size}? [y/N] ");
        let _ = terminal.flush();
        let mut answer = String::new();
        let is_read = io::stdin().read_line(&mut answer).is_ok();
        is_read && matches!(answer.trim(), "y" | "Y" | "yes")
    }
}

/// Formats one line of progress.
fn line(host: &str, sent: u64, total: u64, elapsed: Duration) -> String {
    let mut line =
        format!("sending sabul to {host}: {:.1} of {}", sent as f64 / 1e6, megabytes(total));
    if elapsed >= ESTIMATE_AFTER && (1..total).contains(&sent) {
        let left = elapsed.as_secs_f64() * (total - sent) as f64 / sent as f64;
        let left = Duration::from_secs_f64(left.ceil()).as_secs();
        line += &format!(", {}:{:02} left", left / 60, left % 60);
    }
    line
}

fn megabytes(bytes: u64) -> String {
    format!("{:.1} MB", bytes as f64 / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_progress_line_shows_sent_bytes_and_remaining_time() {
        let second = Duration::from_secs(1);
        assert_eq!(line("far", 0, 7_100_000, second), "sending sabul to far: 0.0 of 7.1 MB");
        assert_eq!(
            line("far", 3_800_000, 7_100_000, 14 * second),
            "sending sabul to far: 3.8 of 7.1 MB, 0:13 left"
        );
        assert_eq!(
            line("far", 7_100_000, 7_100_000, 26 * second),
            "sending sabul to far: 7.1 of 7.1 MB"
        );
    }

    #[test]
    fn without_a_terminal_sending_the_program_is_not_offered() {
        let progress =
            UploadProgress { style: Style::Lines, may_prompt: false, times: Mutex::default() };
        assert!(!progress.confirm("far", "Linux x86_64", &|| unreachable!()));
    }
}
