//! A transfer seen and steered by whoever does not wait for its end.

use std::fmt;
use std::sync::Arc;

use sabul_cc::Policy;
use tokio::sync::mpsc;

use super::board::{Board, Progress};
use crate::control::Event;
use crate::error::Error;
use crate::steer::{Change, check_policy, check_rate_limit};

/// What can be seen and changed of a transfer from anywhere in the program. Clones are of the same transfer, and none
/// of them keeps it going; of one that is over, changes come to nothing.
#[derive(Clone)]
pub struct TransferHandle {
    board: Arc<Board>,
    tell: mpsc::UnboundedSender<Event>,
    controller: String,
}

impl fmt::Debug for TransferHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TransferHandle").field("progress", &self.progress()).finish_non_exhaustive()
    }
}

impl TransferHandle {
    pub(super) const fn new(
        board: Arc<Board>,
        tell: mpsc::UnboundedSender<Event>,
        controller: String,
    ) -> Self {
        Self { board, tell, controller }
    }

    /// How far it has come.
    pub fn progress(&self) -> Progress {
        self.board.progress()
    }

    /// From now on it stands beside other traffic like this. Where the peer sends and this side has asked for it, that
    /// is told to the peer; its own owner's limits hold.
    ///
    /// # Errors
    /// If the controller does not follow policies.
    pub fn set_policy(&self, policy: Policy) -> Result<(), Error> {
        check_policy(&self.controller, policy)?;
        let _ = self.tell.send(Event::Change(Change::Policy(policy)));
        Ok(())
    }

    /// From now on it is never faster than this, in bit/s, or as fast as others allow. Where the peer sends, that is
    /// told to it.
    ///
    /// # Errors
    /// If it is zero.
    pub fn set_rate_limit(&self, limit_bps: Option<u64>) -> Result<(), Error> {
        check_rate_limit(limit_bps)?;
        let _ = self.tell.send(Event::Change(Change::RateLimit(limit_bps)));
        Ok(())
    }

    pub(super) const fn board(&self) -> &Arc<Board> {
        &self.board
    }

    /// Ends it.
    pub(super) fn abort(&self) {
        let _ = self.tell.send(Event::Abort);
    }
}
