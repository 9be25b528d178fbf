//! Output on standard output and standard error. Names, errors and log lines contain text from
//! files and other machines, so everything except results is escaped here.

use std::fmt::Display;
use std::io::{self, ErrorKind, IsTerminal, Write};
use std::sync::{Mutex, PoisonError};

use indicatif::ProgressBar;
use sabul::internal::Printable;

use sabul_scenario::Run;
use sabul_study::runs::{self, Finished};
use tracing_subscriber::filter::LevelFilter;

use crate::error::CliError;

/// The live line on standard error, if there is one.
static LIVE: Mutex<Option<ProgressBar>> = Mutex::new(None);

/// Makes this line the live line. Output removes the line, and draws the line again below.
pub(crate) fn set_live(line: &ProgressBar) {
    *LIVE.lock().unwrap_or_else(PoisonError::into_inner) = Some(line.clone());
}

/// Writes to the terminal without the live line.
fn apart<T>(write: impl FnOnce() -> T) -> T {
    let line = LIVE.lock().unwrap_or_else(PoisonError::into_inner).clone();
    match line.filter(|line| !line.is_finished()) {
        Some(line) => line.suspend(write),
        None => write(),
    }
}

/// Writes a result to standard output. A closed pipe is not an error.
pub(crate) fn print(bytes: impl AsRef<[u8]>) -> Result<(), CliError> {
    let result = apart(|| {
        let mut out = io::stdout().lock();
        out.write_all(bytes.as_ref()).and_then(|()| out.flush())
    });
    match result {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(CliError::failed(format!("cannot write to standard output: {error}")))
        }
        _ => Ok(()),
    }
}

/// Writes one line of results to standard output.
pub(crate) fn print_line(line: impl Display) -> Result<(), CliError> {
    print(format!("{line}\n"))
}

/// Prints the results of a run.
pub(crate) fn show(
    run: &Run,
    finished: &Finished,
    is_json: bool,
    is_sweep: bool,
) -> Result<(), CliError> {
    if is_json {
        print_line(runs::document(run, finished)?.to_json())
    } else {
        print(runs::text(run, finished, is_sweep))
    }
}

/// Returns the width of the terminal on standard output in columns, if there is a terminal.
pub(crate) fn width() -> Option<usize> {
    terminal_size::terminal_size_of(io::stdout()).map(|(width, _)| width.0.into())
}

/// Returns the width of the terminal on standard error in columns, if there is a terminal.
pub(crate) fn error_width() -> Option<usize> {
    terminal_size::terminal_size_of(io::stderr()).map(|(width, _)| width.0.into())
}

/// Whether standard error is a terminal on which a line can be drawn again. Without `TERM`, or with `TERM=dumb`, progress
/// is printed line by line.
pub(crate) fn can_redraw() -> bool {
    let is_dumb = std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb");
    io::stderr().is_terminal() && !is_dumb
}

/// Writes a line for users to standard error. A write error is ignored, because it cannot be
/// reported.
pub(crate) fn note(line: impl Display) {
    // A single write, so that lines of several processes do not mix.
    message(&(escaped(line.to_string().as_bytes()) + "\n"));
}

/// Writes text without control characters to standard error.
pub(crate) fn message(text: &str) {
    let _ = apart(|| io::stderr().lock().write_all(text.as_bytes()));
}

/// Escapes control characters, except ends of lines.
fn escaped(text: &[u8]) -> String {
    let lines = text.split(|&byte| byte == b'\n').map(|line| Printable(line).to_string());
    lines.collect::<Vec<_>>().join("\n")
}

/// Writer for log lines; writes each line as a whole.
struct Log;

impl Write for Log {
    fn write(&mut self, lines: &[u8]) -> io::Result<usize> {
        message(&escaped(lines));
        Ok(lines.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes an error to standard error.
pub(crate) fn error(error: impl Display) {
    note(format_args!("sabul: {error}"));
}

/// Warns that rates of a build without optimisation are meaningless.
pub(crate) fn warn_of_debug_build() {
    if cfg!(debug_assertions) {
        note("sabul: debug build: measured rates are meaningless");
    }
}

/// Log level of normal runs.
pub(crate) const WARN: LevelFilter = LevelFilter::WARN;
/// Log level of `-vv`, for developers.
pub(crate) const DEBUG: LevelFilter = LevelFilter::DEBUG;

/// Starts the log on standard error, at this level or at that of SABUL_LOG: error, warn, info,
/// debug, trace.
pub(crate) fn start_log(level: LevelFilter) {
    let requested = std::env::var("SABUL_LOG").ok().and_then(|level| level.parse().ok());
    tracing_subscriber::fmt()
        .with_writer(|| Log)
        .with_ansi(false)
        .with_max_level(requested.unwrap_or(level))
        .with_target(false)
        .init();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_escapes_all_control_characters_except_newlines() {
        assert_eq!(escaped(b"a\n  \x1b[31mb\r\n"), "a\n  \\u{1b}[31mb\\r\n");
    }
}
