//! Queue of this user: its directory and its store.

use std::path::PathBuf;

use sabul_queue::{Store, StoreError, folder};

use crate::database;
use crate::error::CliError;

/// Name of the directory of the queue, in the state directory.
const FOLDER: &str = "queue";

/// Open queue.
#[derive(Debug)]
pub(super) struct Queue {
    /// Directory of the queue.
    pub(super) folder: PathBuf,
    /// Its jobs.
    pub(super) store: Store,
}

impl Queue {
    /// Opens the queue of this user, and creates the queue if it is missing.
    pub(super) fn open() -> Result<Self, CliError> {
        let folder = sabul_front::state::directory(FOLDER)
            .map_err(|error| CliError::failed(format!("cannot use the queue: {error}")))?;
        let store = Store::open(&folder)?;
        Ok(Self { folder, store })
    }
}

impl From<StoreError> for CliError {
    fn from(error: StoreError) -> Self {
        match (&error, sabul_front::state::directory(FOLDER)) {
            (StoreError::Database(error), Ok(folder)) => {
                database::failed(&folder::database(&folder), "the queue", error)
            }
            _ => Self::failed(error.to_string()),
        }
    }
}
