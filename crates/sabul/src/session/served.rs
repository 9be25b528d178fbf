//! What a server can tell of the transfers that its peers asked for.

use std::net::SocketAddr;

use sabul_wire::control::{self, Open};

use crate::config::Direction;
use crate::error::Error;
use crate::transfer::{Report, TransferHandle};

/// What a server hears of the requests of its peers.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Serving<'a> {
    /// A transfer begins.
    Begun(&'a Begun),
    /// It has ended, or a request came to nothing.
    Over(Served<'a>),
}

/// A transfer that a peer asked for, which is under way.
#[derive(Clone, Debug)]
pub struct Begun {
    /// Who asked.
    pub peer: SocketAddr,
    /// What was asked for.
    pub order: Order,
    /// How far it is.
    pub transfer: TransferHandle,
}

/// A transfer that a peer asked for, which has ended, or another request that came to nothing.
#[derive(Clone, Copy, Debug)]
pub struct Served<'a> {
    /// Who asked.
    pub peer: SocketAddr,
    /// What was asked for.
    pub order: &'a Order,
    /// What came of it. Entries that failed alone are in the report.
    pub result: Result<&'a Report, &'a Error>,
}

/// What a peer wants with the names of its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Purpose {
    /// To write or read the content of files.
    Files,
    /// To measure the path from memory to memory; it has no names.
    Measurement,
    /// A stream between applications.
    Stream,
    /// To hear what there is.
    Listing,
    /// To remove names.
    Removal,
    /// To make folders.
    Folders,
}

/// What a peer asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    /// Which way the data went, seen from this side.
    pub direction: Direction,
    /// The paths that the peer named, as it named them: of what it reads, or the one that it writes to. None of a
    /// measurement.
    pub names: Vec<Vec<u8>>,
    /// What it wants with them.
    pub purpose: Purpose,
}

impl Order {
    pub(super) fn of(open: &Open) -> Self {
        let names = match &open.request {
            control::Request::Put { destination, .. } => vec![destination.clone()],
            control::Request::Get { sources, .. } => sources.clone(),
            control::Request::Look { places, .. }
            | control::Request::Remove { places, .. }
            | control::Request::MakeFolders { places, .. } => places.clone(),
            control::Request::Stream { name } => vec![name.clone().into_bytes()],
            control::Request::Measure { .. } => Vec::new(),
        };
        let purpose = match &open.request {
            control::Request::Put { .. } | control::Request::Get { .. } => Purpose::Files,
            control::Request::Measure { .. } => Purpose::Measurement,
            control::Request::Stream { .. } => Purpose::Stream,
            control::Request::Look { .. } => Purpose::Listing,
            control::Request::Remove { .. } => Purpose::Removal,
            control::Request::MakeFolders { .. } => Purpose::Folders,
        };
        Self { direction: Direction::for_acceptor(open.direction), names, purpose }
    }
}
