//! Errors of opening or connecting a socket.

use std::fmt;
use std::io;
use std::net::SocketAddr;

/// Opening or connecting a socket failed.
#[derive(Debug)]
#[non_exhaustive]
pub enum UdpError {
    /// The address could not be bound.
    Bind {
        /// The requested address.
        address: SocketAddr,
        /// Error of the system.
        source: io::Error,
    },
    /// The socket could not be set up.
    Configure {
        /// The step that failed.
        what: &'static str,
        /// Error of the system.
        source: io::Error,
    },
    /// The socket could not be connected.
    Connect {
        /// The requested peer.
        peer: SocketAddr,
        /// Error of the system.
        source: io::Error,
    },
}

impl UdpError {
    /// Returns the error of the system.
    pub fn io_error(&self) -> &io::Error {
        match self {
            Self::Bind { source, .. }
            | Self::Configure { source, .. }
            | Self::Connect { source, .. } => source,
        }
    }

    pub(crate) fn configure(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Configure { what, source }
    }
}

/// Advice to a user after an address could not be bound or connected, with a leading semicolon; empty without advice.
pub const fn bind_advice(kind: io::ErrorKind) -> &'static str {
    match kind {
        io::ErrorKind::AddrInUse => "; choose another port or end the program that holds it",
        io::ErrorKind::AddrNotAvailable => "; choose an address of this machine",
        io::ErrorKind::PermissionDenied => "; choose a port above 1023 or run with the right",
        io::ErrorKind::NetworkUnreachable => "; check this machine's routes to that address",
        _ => "",
    }
}

impl fmt::Display for UdpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let advice = bind_advice(self.io_error().kind());
        match self {
            Self::Bind { address, source } => {
                write!(f, "cannot bind UDP address {address}: {source}{advice}")
            }
            Self::Configure { what, source } => {
                write!(f, "cannot set up a UDP socket ({what}): {source}")
            }
            Self::Connect { peer, source } => {
                write!(f, "cannot connect a UDP socket to {peer}: {source}{advice}")
            }
        }
    }
}

impl std::error::Error for UdpError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(self.io_error())
    }
}
