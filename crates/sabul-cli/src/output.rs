//! Writing to standard output and standard error.

use std::fmt::Display;
use std::io::{self, ErrorKind, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use sabul_scenario::Run;
use sabul_study::runs::{self, Finished};

use crate::error::CliError;

/// Writes a result to standard output. A reader that has gone away is no error: it has seen
/// what it wanted.
pub(crate) fn print(bytes: impl AsRef<[u8]>) -> Result<(), CliError> {
    let mut out = io::stdout().lock();
    match out.write_all(bytes.as_ref()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(CliError::failed(format!("cannot write to standard output: {error}")))
        }
        _ => Ok(()),
    }
}

/// Writes a line of results to standard output.
pub(crate) fn print_line(line: impl Display) -> Result<(), CliError> {
    print(format!("{line}\n"))
}

/// Prints what a run has shown.
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

/// Writes a line for people to standard error, where a failure has no one left to be told to.
pub(crate) fn note(line: impl Display) {
    let _ = writeln!(io::stderr().lock(), "{line}");
}

/// Writes an error to standard error.
pub(crate) fn complain(error: impl Display) {
    note(format_args!("sabul: {error}"));
}

/// Says that speeds of a build without optimisation mean nothing.
pub(crate) fn warn_of_debug_build() {
    if cfg!(debug_assertions) {
        note("sabul: unoptimised build: speeds mean nothing");
    }
}

/// Sends warnings of the library to standard error.
pub(crate) fn start_log() {
    tracing_subscriber::fmt()
        .with_writer(io::stderr)
        .with_ansi(false)
        .with_max_level(tracing_subscriber::filter::LevelFilter::WARN)
        .with_target(false)
        .init();
}

/// Standard output as the destination of a transfer; remembers that its reader went away.
#[derive(Debug, Default)]
pub(crate) struct Pipe {
    is_closed: Arc<AtomicBool>,
}

impl Pipe {
    /// One that tells here when its reader has gone away.
    pub(crate) fn closing(is_closed: &Arc<AtomicBool>) -> Self {
        Self { is_closed: Arc::clone(is_closed) }
    }

    fn watch<T>(&self, result: io::Result<T>) -> io::Result<T> {
        if matches!(&result, Err(error) if error.kind() == ErrorKind::BrokenPipe) {
            self.is_closed.store(true, Ordering::Release);
        }
        result
    }
}

impl Write for Pipe {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.watch(io::stdout().write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.watch(io::stdout().flush())
    }
}
