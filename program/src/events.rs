//! Event log file (`--events FILE`): JSON Lines, or qlog if the name ends in `.qlog` or `.sqlog`.

use std::fs::File;
use std::io::{LineWriter, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use sabul::settings::EventSink;
use sabul_study::qlog::Qlog;

use crate::error::CliError;
use crate::links;

/// Open event log. Clones share the file.
#[derive(Clone, Debug)]
pub(crate) struct EventFile {
    path: PathBuf,
    writer: Arc<Mutex<Writer>>,
}

#[derive(Debug)]
struct Writer {
    file: LineWriter<File>,
    qlog: Option<Qlog>,
}

impl EventFile {
    pub(crate) fn create(path: &Path) -> Result<Self, CliError> {
        let mut file =
            LineWriter::new(links::create(path).map_err(|error| cannot_write(path, &error))?);
        let is_qlog = path.extension().is_some_and(|end| end == "qlog" || end == "sqlog");
        if is_qlog {
            let title = path.file_stem().unwrap_or_default().to_string_lossy();
            file.write_all(Qlog::head(&title).as_bytes())
                .map_err(|error| cannot_write(path, &error))?;
        }
        let writer = Writer { file, qlog: is_qlog.then(Qlog::default) };
        Ok(Self { path: path.to_owned(), writer: Arc::new(Mutex::new(writer)) })
    }

    /// Writes one event. [`Self::finish`] reports write errors.
    pub(crate) fn write_line(&self, line: &str) {
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let Writer { file, qlog } = &mut *writer;
        // The error is not lost: the next flush fails as well.
        let _ = match qlog {
            Some(qlog) => file.write_all(qlog.records(line).as_bytes()),
            None => file.write_all(line.as_bytes()).and_then(|()| file.write_all(b"\n")),
        };
    }

    pub(crate) fn sink(&self) -> EventSink {
        let file = self.clone();
        EventSink::new(move |event| file.write_line(&event.to_json()))
    }

    /// Flushes the file after the last event and reports write errors.
    pub(crate) fn finish(&self) -> Result<(), CliError> {
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        writer.file.flush().map_err(|error| cannot_write(&self.path, &error))
    }
}

/// Rejects `--events` for more than one run.
pub(crate) fn check_for_one_run(path: Option<&Path>, count: usize) -> Result<(), CliError> {
    if path.is_some() && count > 1 {
        return Err(CliError::usage(format!(
            "--events records one run, but there are {count} runs; give each setting a single value"
        )));
    }
    Ok(())
}

fn cannot_write(path: &Path, error: &std::io::Error) -> CliError {
    let path = path.display();
    CliError::usage(format!(
        "cannot write events to {path}: {error}; choose another file with --events"
    ))
}
