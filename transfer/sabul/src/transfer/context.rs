//! Parts of a session that its transfers use.

use std::any::Any;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use sabul_files::{Published, Rules};
use sabul_udp::SocketOptions;
use sabul_wire::control::{Failure, Rule};

use crate::access::User;
use crate::calls::Introduced;
use crate::channel::RequestFlows;
use crate::connection::{Connection, Hop};
use crate::control::{Control, Router};
use crate::endpoint::Endpoint;
use crate::machine::Machine;
use crate::path::Demux;
use crate::relay::ThroughSsh;
use crate::seal::Suite;

/// The suite used before the listener has chosen; a listener chooses the first suite that it supports.
pub(crate) fn first_suite() -> Suite {
    Suite::preference()[0]
}

/// How this side opens UDP paths.
#[derive(Clone, Debug)]
pub(crate) enum Side {
    Connector {
        peer: SocketAddr,
        sockets: SocketOptions,
        /// Fingerprint of the listener's certificate.
        fingerprint: [u8; 32],
        /// Local addresses, one for each path; empty if the system chooses the address of the only path.
        bind: Arc<[IpAddr]>,
        /// The way of the session, if not a TCP connection to the listener.
        through: Option<Through>,
    },
    Listener {
        demux: Arc<Demux>,
        peer: IpAddr,
        address: SocketAddr,
    },
    /// A host of a simulated world in virtual time.
    #[cfg(test)]
    World(crate::world::End),
}

/// Way of a connector's session that is not a TCP connection to the listener.
#[derive(Clone, Debug)]
pub(crate) enum Through {
    /// Through ssh, without UDP.
    Ssh(ThroughSsh),
    /// Through an introducer, with UDP from NAT to NAT.
    Introducer(Arc<Introduced>),
}

impl Side {
    /// Returns the way through ssh, if this side connected through ssh.
    pub(crate) fn through_ssh(&self) -> Option<&ThroughSsh> {
        match self {
            Self::Connector { through: Some(Through::Ssh(through)), .. } => Some(through),
            _ => None,
        }
    }

    /// Returns the way of a connector that is not a TCP connection to the listener.
    pub(crate) const fn through(&self) -> Option<&Through> {
        match self {
            Self::Connector { through, .. } => through.as_ref(),
            _ => None,
        }
    }

    /// Returns whether an introducer may relay data.
    pub(crate) fn may_relay(&self) -> bool {
        matches!(self.through(), Some(Through::Introducer(introduced)) if introduced.relay)
    }

    /// Returns the host that passes on the session, if this side connected through one.
    pub(crate) fn hop(&self) -> Option<Hop> {
        match self {
            Self::Connector { through: Some(Through::Ssh(_)), .. } => Some(Hop::Ssh),
            Self::Connector { through: Some(Through::Introducer(_)), .. } => Some(Hop::Introducer),
            _ => None,
        }
    }
}

/// Parts of the session that its transfers use.
#[derive(Clone, Debug)]
pub(crate) struct Context {
    pub(crate) machine: Machine,
    pub(crate) side: Side,
    pub(crate) connection: Connection,
    pub(crate) control: Control,
    pub(crate) router: Arc<Router>,
    pub(crate) endpoint: Arc<Endpoint>,
    /// Common state of requests for ranges; `None` for a transfer with a controller of its own.
    pub(crate) flows: Option<RequestFlows>,
    /// The peer, if authenticated by a key or a named ticket.
    pub(crate) user: Option<Arc<User>>,
    /// Files that the peer has written here, if its user may write and not read.
    pub(crate) published: Option<Arc<Published>>,
}

impl Context {
    /// Compiles rules of the peer, on a blocking thread. The rules count in the memory of the session as long as they
    /// exist.
    pub(crate) async fn compile(&self, rules: Vec<Rule>) -> Result<Rules, Failure> {
        if rules.is_empty() {
            return Ok(Rules::default());
        }
        let memory = Arc::clone(self.control.memory());
        let lender = Arc::new(move |bytes| match memory.hold(bytes) {
            Ok(held) => Ok(Box::new(held) as Box<dyn Any + Send + Sync>),
            Err(shortage) => Err(Failure::from(shortage)),
        });
        self.endpoint.compile(move || Rules::lent(&rules, lender)).await.and_then(|made| made)
    }
}
