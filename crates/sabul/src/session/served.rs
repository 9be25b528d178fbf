//! What a server can tell of the transfers that its peers asked for.

use std::net::SocketAddr;

use sabul_wire::control::{self, Open};

use crate::config::Direction;
use crate::error::Error;
use crate::transfer::Report;

/// A transfer that a peer asked for, which has ended.
#[derive(Clone, Copy, Debug)]
pub struct Served<'a> {
    /// Who asked.
    pub peer: SocketAddr,
    /// What was asked for.
    pub order: &'a Order,
    /// What came of it. Entries that failed alone are in the report.
    pub result: Result<&'a Report, &'a Error>,
}

/// What a peer asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    /// Which way the data went, seen from this side.
    pub direction: Direction,
    /// The paths that the peer named, as it named them: of what it reads, or the one that it writes to. None of a
    /// measurement.
    pub names: Vec<Vec<u8>>,
    /// From memory to memory.
    pub is_measurement: bool,
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
        let is_measurement = matches!(open.request, control::Request::Measure { .. });
        Self { direction: Direction::for_acceptor(open.direction), names, is_measurement }
    }
}
