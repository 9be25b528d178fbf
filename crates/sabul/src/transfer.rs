//! A transfer under way, as the application sees it: progress, cancelling, the report.
//!
//! What happens in it is in `transfer/run.rs` (opening and the course of both ends) and
//! `transfer/work.rs` (the threads that read and write); `transfer/ahead.rs` tells how much there is to send;
//! what it writes down is in `transfer/board.rs`.

mod ahead;
mod board;
mod handle;
mod run;
mod work;

use std::fmt;
use std::sync::Arc;

use sabul_cc::Policy;
use sabul_wire::control::Failure;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use crate::control::Event;
use crate::error::Error;

pub(crate) use board::Board;
use board::CHANGE_INTERVAL;
pub use board::{Interval, Progress, Report};
pub use handle::TransferHandle;
pub(crate) use run::{Context, Plan, Resume, Side, Work, start};
pub(crate) use work::Writer;
#[cfg(test)]
pub(crate) use work::{Load, Reading, Writing};

/// A transfer under way. Dropping it cancels it.
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
        board: Arc<Board>,
        tell: mpsc::UnboundedSender<Event>,
        controller: String,
    ) -> Self {
        let versions = board.versions.subscribe();
        let handle = TransferHandle::new(board, tell, controller);
        Self { handle, versions, last_change: None }
    }

    /// What can be seen and changed of it from elsewhere.
    pub fn handle(&self) -> TransferHandle {
        self.handle.clone()
    }

    /// How far it has come.
    pub fn progress(&self) -> Progress {
        self.handle.progress()
    }

    /// What failed so far, by path, but for the first `known`, in the order of the report. Of a transfer that is over,
    /// the report alone has them.
    pub fn failures_after(&self, known: usize) -> Vec<(Vec<u8>, Failure)> {
        self.board().failures_after(known)
    }

    /// Waits until it has come further or is over; at most about ten times per second.
    pub async fn changed(&mut self) {
        if let Some(last) = self.last_change
            && !self.progress().is_finished
        {
            let rest = CHANGE_INTERVAL.saturating_sub(last.elapsed());
            tokio::select! {
                () = tokio::time::sleep(rest) => {}
                () = self.handle.board().finished() => {}
            }
        }
        // An error says that the board is gone, which cannot be while we hold it.
        let _ = self.versions.changed().await;
        self.last_change = Some(Instant::now());
    }

    /// Ends it: the peer is told, and what is half-written is removed. [`Self::finish`] tells when
    /// that is done.
    pub fn cancel(&self) {
        self.handle.abort();
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
    /// If it is zero.
    pub fn set_rate_limit(&self, limit_bps: Option<u64>) -> Result<(), Error> {
        self.handle.set_rate_limit(limit_bps)
    }

    /// Waits for the end. Entries that failed alone are in the report and are no error.
    ///
    /// # Errors
    /// If the transfer as a whole failed or was cancelled.
    pub async fn finish(self) -> Result<Report, Error> {
        self.outcome().await
    }

    pub(crate) async fn outcome(&self) -> Result<Report, Error> {
        self.board().outcome().await
    }

    pub(crate) const fn board(&self) -> &Arc<Board> {
        self.handle.board()
    }
}

impl Drop for Transfer {
    fn drop(&mut self) {
        self.cancel();
    }
}
