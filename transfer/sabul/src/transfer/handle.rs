//! Cloneable handle to observe and change a running transfer.

use std::fmt;
use std::sync::Arc;

use sabul_cc::Policy;
use sabul_units::Rate;
use tokio::sync::mpsc;

use super::progress::{Progress, SharedProgress};
use crate::control::Event;
use crate::error::Error;
use crate::steer::{Change, check_policy, check_rate_limit};

/// Handle to observe and change a transfer from anywhere in the program. Clones refer to the same transfer and do not
/// keep it running. After the end of the transfer, changes have no effect.
#[derive(Clone)]
pub struct TransferHandle {
    shared_progress: Arc<SharedProgress>,
    event_sender: mpsc::UnboundedSender<Event>,
    controller: String,
}

impl fmt::Debug for TransferHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TransferHandle").field("progress", &self.progress()).finish_non_exhaustive()
    }
}

impl TransferHandle {
    pub(super) const fn new(
        shared_progress: Arc<SharedProgress>,
        event_sender: mpsc::UnboundedSender<Event>,
        controller: String,
    ) -> Self {
        Self { shared_progress, event_sender, controller }
    }

    /// Returns the current progress.
    pub fn progress(&self) -> Progress {
        self.shared_progress.progress()
    }

    /// Sets the policy towards competing traffic. If the peer sends and this side opened the transfer, the policy is
    /// sent to the peer, whose own limits still apply.
    ///
    /// # Errors
    /// If the controller does not support policies.
    pub fn set_policy(&self, policy: Policy) -> Result<(), Error> {
        check_policy(&self.controller, policy)?;
        let _ = self.event_sender.send(Event::Change(Change::Policy(policy)));
        Ok(())
    }

    /// Sets the upper limit of the rate; `None` removes the limit of this handle. If the peer sends, the limit
    /// is sent to the peer.
    ///
    /// # Errors
    /// If the limit is zero.
    pub fn set_rate_limit(&self, limit: Option<Rate>) -> Result<(), Error> {
        let limit_bps = limit.map(|rate| rate.0);
        check_rate_limit(limit_bps)?;
        let _ = self.event_sender.send(Event::Change(Change::RateLimit(limit_bps)));
        Ok(())
    }

    /// As [`Transfer::cancel`](crate::Transfer::cancel).
    pub fn cancel(&self) {
        let _ = self.event_sender.send(Event::Abort);
    }

    pub(super) const fn shared_progress(&self) -> &Arc<SharedProgress> {
        &self.shared_progress
    }
}
