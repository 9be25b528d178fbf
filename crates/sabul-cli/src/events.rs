//! `--events FILE`: a line of JSON for each event.

use std::fs::File;
use std::io::{LineWriter, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use sabul::EventSink;

use crate::error::CliError;

/// A file of events that is being written; clones share it.
#[derive(Clone, Debug)]
pub(crate) struct EventFile {
    path: PathBuf,
    file: Arc<Mutex<LineWriter<File>>>,
}

impl EventFile {
    pub(crate) fn create(path: &Path) -> Result<Self, CliError> {
        let file = File::create(path).map_err(|error| cannot_write(path, &error))?;
        Ok(Self { path: path.to_owned(), file: Arc::new(Mutex::new(LineWriter::new(file))) })
    }

    /// One more line. Whether all were written, [`Self::finish`] says.
    pub(crate) fn tell(&self, line: &str) {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        // An error stays: the next flush fails as well.
        let _ = file.write_all(line.as_bytes()).and_then(|()| file.write_all(b"\n"));
    }

    pub(crate) fn sink(&self) -> EventSink {
        let file = self.clone();
        EventSink::new(move |told| file.tell(&told.to_json()))
    }

    /// Everything has happened.
    pub(crate) fn finish(&self) -> Result<(), CliError> {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        file.flush().map_err(|error| cannot_write(&self.path, &error))
    }
}

/// `--events` takes one run.
pub(crate) fn check_for_one_run(path: Option<&Path>, count: usize) -> Result<(), CliError> {
    if path.is_some() && count > 1 {
        return Err(CliError::usage(format!(
            "--events is for one run, and these are {count}; give each setting one value"
        )));
    }
    Ok(())
}

fn cannot_write(path: &Path, error: &std::io::Error) -> CliError {
    let path = path.display();
    CliError::usage(format!("cannot write {path}: {error}; give another --events"))
}
