//! Notifications of a server about the requests of its peers.

use std::net::SocketAddr;

use sabul_wire::control::{self, Failure, Open};
use tokio::task::JoinError;
use tracing::info;

use super::pending::refused;
use crate::config::Direction;
use crate::error::Error;
use crate::passes::Pass;
use crate::transfer::{Report, TransferHandle};

/// Notification about a request of a peer.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Serving<'a> {
    /// A transfer starts.
    Started(&'a Started),
    /// A transfer has ended, or another request has failed.
    Over(Served<'a>),
}

/// A running transfer opened by a peer.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Started {
    /// Address of the peer.
    pub peer: SocketAddr,
    /// Description of the request.
    pub order: Order,
    /// Handle of the transfer.
    pub transfer: TransferHandle,
}

/// An ended transfer opened by a peer, or another failed request of a peer.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Served<'a> {
    /// Address of the peer.
    pub peer: SocketAddr,
    /// Description of the request.
    pub order: &'a Order,
    /// Result of the transfer. Failures of single entries are in the report.
    pub result: Result<&'a Report, &'a Error>,
}

impl<'a> Served<'a> {
    /// Makes a notification, for example in a test of an observer.
    pub const fn new(
        peer: SocketAddr,
        order: &'a Order,
        result: Result<&'a Report, &'a Error>,
    ) -> Self {
        Self { peer, order, result }
    }
}

/// Summary of [`Session::serve`](super::Session::serve).
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct ServeSummary {
    /// Transfers that ended successfully, including those with failed entries.
    pub transfers: u64,
    /// Answered requests about files, and completed removals and creations.
    pub answers: u64,
    /// Failed transfers and refused requests.
    pub failed: u64,
    /// Content bytes transferred.
    pub bytes: u64,
    /// Failed entries in transfers that ended successfully.
    pub entries_failed: u64,
    /// Error of the last failed transfer.
    pub last_error: Option<Error>,
}

/// A request that has ended, with its description.
type Ended = (Option<Order>, Result<Option<Report>, Error>);

impl ServeSummary {
    /// Adds a request that has ended.
    pub(super) fn add(
        &mut self,
        peer: SocketAddr,
        ended: Result<Ended, JoinError>,
        observe: &impl Fn(Serving<'_>),
    ) {
        match ended {
            Ok((_, Ok(None))) => self.answers += 1,
            Ok((order, Ok(Some(report)))) => {
                if let Some(order) = &order {
                    observe(Serving::Over(Served { peer, order, result: Ok(&report) }));
                }
                info!(%peer, bytes = report.bytes, entries = report.entries,
                    failed = report.entries_failed, "transfer done");
                self.transfers += 1;
                self.bytes += report.bytes;
                self.entries_failed += report.entries_failed;
            }
            Ok((order, Err(error))) => {
                if let Some(order) = &order {
                    observe(Serving::Over(Served { peer, order, result: Err(&error) }));
                }
                info!(%peer, %error, "transfer failed");
                self.failed += 1;
                self.last_error = Some(error);
            }
            // The panic of the task has been reported already.
            Err(_) => self.failed += 1,
        }
    }
}

/// Waits until the session of the user who requested a pass is over; without a pass, for ever.
pub(super) async fn issuer_over(pass: Option<&Pass>) {
    match pass {
        Some(pass) => pass.issuer_over().await,
        None => std::future::pending().await,
    }
}

/// Failure of a session whose pass is over.
pub(super) fn pass_over() -> Failure {
    refused("the command that requested this copy has ended")
}

/// Kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Purpose {
    /// Write or read files.
    Files,
    /// Measure the path from memory to memory; without names.
    Measurement,
    /// Open a stream between applications.
    Stream,
    /// List files.
    Listing,
    /// Remove files or directories.
    Removal,
    /// Create directories.
    Folders,
    /// Rename a file or directory.
    Renaming,
    /// Set metadata of files or directories.
    Metadata,
    /// Hash files and sign a receipt.
    Receipt,
}

/// Description of a peer's request.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Order {
    /// Direction of the data, seen from this side.
    pub direction: Direction,
    /// Paths as named by the peer: the sources that it reads, or the destination that it writes to; for a stream its
    /// name. Empty for a measurement.
    pub names: Vec<Vec<u8>>,
    /// Kind of the request.
    pub purpose: Purpose,
}

impl Order {
    /// Makes a description, for example in a test of an observer.
    pub const fn new(direction: Direction, purpose: Purpose, names: Vec<Vec<u8>>) -> Self {
        Self { direction, names, purpose }
    }

    pub(super) fn of(open: &Open) -> Self {
        let names = match &open.request {
            control::Request::Put { destination, .. } => vec![destination.clone()],
            control::Request::Attest { places: sources, .. }
            | control::Request::Get { sources, .. } => sources.clone(),
            control::Request::List { places, .. }
            | control::Request::Remove { places, .. }
            | control::Request::MakeFolders { places, .. } => places.clone(),
            control::Request::Rename { from, to, .. } => vec![from.clone(), to.clone()],
            control::Request::SetMetadata { changes } => {
                changes.iter().map(|change| change.path.clone()).collect()
            }
            control::Request::Hash { place, .. } => vec![place.clone()],
            control::Request::Stream { name } => vec![name.clone().into_bytes()],
            control::Request::Measure { .. } => Vec::new(),
        };
        let purpose = match &open.request {
            control::Request::Put { .. } | control::Request::Get { .. } => Purpose::Files,
            control::Request::Measure { .. } => Purpose::Measurement,
            control::Request::Stream { .. } => Purpose::Stream,
            control::Request::List { .. } | control::Request::Hash { .. } => Purpose::Listing,
            control::Request::Remove { .. } => Purpose::Removal,
            control::Request::MakeFolders { .. } => Purpose::Folders,
            control::Request::Rename { .. } => Purpose::Renaming,
            control::Request::SetMetadata { .. } => Purpose::Metadata,
            control::Request::Attest { .. } => Purpose::Receipt,
        };
        Self { direction: Direction::for_acceptor(open.direction), names, purpose }
    }
}
