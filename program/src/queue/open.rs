//! Queue of this user: its directory and its store.

use std::path::PathBuf;

use sabul_queue::{Store, StoreError};

use crate::error::CliError;

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
        let folder = sabul_front::state::directory("queue")
            .map_err(|error| CliError::failed(format!("cannot use the queue: {error}")))?;
        let store = Store::open(&folder)?;
        Ok(Self { folder, store })
    }
}

impl From<StoreError> for CliError {
    fn from(error: StoreError) -> Self {
        Self::failed(error.to_string())
    }
}
