//! Handle of a running transfer for the application: progress, cancellation, final report.
//!
//! `transfer/run.rs` opens and drives both ends. `transfer/channels.rs` chooses the number of channels.
//! `transfer/work.rs` has the reader and writer threads. `transfer/ahead.rs` counts the files to send.
//! `transfer/progress.rs` holds progress and report.

mod ahead;
pub(crate) mod channels;
mod context;
mod handle;
mod progress;
mod run;
mod work;

use std::fmt;
use std::sync::Arc;

use sabul_cc::Policy;
use sabul_units::Rate;
use sabul_wire::control::Failure;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use crate::control::Event;
use crate::error::Error;

pub(crate) use context::{Context, Side, Through};
pub use handle::TransferHandle;
use progress::CHANGE_INTERVAL;
pub(crate) use progress::SharedProgress;
pub use progress::{Interval, Progress, Report};
pub(crate) use run::{Plan, Resume, Work, start};
pub(crate) use work::Writer;
#[cfg(test)]
pub(crate) use work::{DataSource, ReaderTask, WriterTask};

/// A running transfer. Dropping the value cancels the transfer.
pub struct Transfer {
    handle: TransferHandle,
    versions: watch::Receiver<u64>,
    last_change: Option<Instant>,
}

impl fmt::Debug for Transfer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transfer").field("progress", &self.progress()).finish_non_exhaustive()
    }
}

impl Transfer {
    pub(crate) fn new(
        shared_progress: Arc<SharedProgress>,
        event_sender: mpsc::UnboundedSender<Event>,
        controller: String,
    ) -> Self {
        let versions = shared_progress.versions.subscribe();
        let handle = TransferHandle::new(shared_progress, event_sender, controller);
        Self { handle, versions, last_change: None }
    }

    /// Returns a cloneable handle to observe and change the transfer.
    pub fn handle(&self) -> TransferHandle {
        self.handle.clone()
    }

    /// Returns the current progress.
    pub fn progress(&self) -> Progress {
        self.handle.progress()
    }

    /// Returns the failures so far, by path, without the first `known`; the order is that of the report. After the end
    /// of the transfer the report has the failures.
    pub fn failures_after(&self, known: usize) -> Vec<(Vec<u8>, Failure)> {
        self.shared_progress().failures_after(known)
    }

    /// Waits until the progress has changed or the transfer is over; returns at most about ten times per second.
    pub async fn changed(&mut self) {
        if let Some(last) = self.last_change
            && !self.progress().is_finished
        {
            let rest = CHANGE_INTERVAL.saturating_sub(last.elapsed());
            tokio::select! {
                () = tokio::time::sleep(rest) => {}
                () = self.handle.shared_progress().finished() => {}
            }
        }
        // An error means that the board was dropped, which is impossible while this value holds it.
        let _ = self.versions.changed().await;
        self.last_change = Some(Instant::now());
    }

    /// Cancels the transfer: notifies the peer and removes partial files. [`Self::finish`] returns when both are done.
    pub fn cancel(&self) {
        self.handle.cancel();
    }

    /// As [`TransferHandle::set_policy`].
    ///
    /// # Errors
    /// If the controller does not follow policies.
    pub fn set_policy(&self, policy: Policy) -> Result<(), Error> {
        self.handle.set_policy(policy)
    }

    /// As [`TransferHandle::set_rate_limit`].
    ///
    /// # Errors
    /// If the limit is zero.
    pub fn set_rate_limit(&self, limit: Option<Rate>) -> Result<(), Error> {
        self.handle.set_rate_limit(limit)
    }

    /// Waits for the end and returns the report. Failures of single entries are in the report and are no error;
    /// [`Report::into_result`] makes them an error.
    pub async fn finish(self) -> Result<Report, Error> {
        self.outcome().await
    }

    pub(crate) async fn outcome(&self) -> Result<Report, Error> {
        self.shared_progress().outcome().await
    }

    pub(crate) const fn shared_progress(&self) -> &Arc<SharedProgress> {
        self.handle.shared_progress()
    }
}

impl Drop for Transfer {
    fn drop(&mut self) {
        self.cancel();
    }
}
