//! Why an operation failed: one variant per cause, each with its exit code.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use sabul_wire::control::{Failure, FailureCode};

use crate::channel::ChannelError;
use crate::tls::TlsError;

/// Why an operation failed.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// A setting is not one that can be used.
    Config(String),
    /// Nobody answers at the address.
    Unreachable {
        /// What was dialled, `host:port`.
        address: String,
        /// What the system said.
        source: io::Error,
    },
    /// Something answers at the address, and it is not a sabul of this version.
    NotSabul {
        /// What was dialled, `host:port`.
        address: String,
        /// What it did instead.
        reason: String,
    },
    /// The peer left, or fell silent, before the work was done.
    PeerGone(String),
    /// TCP passes between the two ends and UDP does not.
    UdpBlocked {
        /// Where UDP should have come from.
        address: SocketAddr,
        /// How long it was tried.
        waited: Duration,
    },
    /// One end does not accept the other: wrong key or wrong secret.
    Authentication(String),
    /// Content does not match its hash.
    Verification(String),
    /// No space at the destination.
    NoSpace(String),
    /// No permission at the destination.
    Permission(String),
    /// Another failure, found here or told by the peer.
    Failed(Failure),
    /// Somebody on this side or the other stopped it.
    Cancelled,
    /// The system refused something this end needs.
    Io {
        /// What was tried.
        action: &'static str,
        /// What the system said.
        source: io::Error,
    },
}

impl Error {
    /// The exit code of a program that ends because of this.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Config(_) => 2,
            Self::Unreachable { .. }
            | Self::NotSabul { .. }
            | Self::PeerGone(_)
            | Self::UdpBlocked { .. } => 3,
            Self::Authentication(_) => 4,
            Self::Verification(_) => 5,
            Self::NoSpace(_) | Self::Permission(_) => 6,
            Self::Failed(failure) => failure_exit_code(failure.code),
            Self::Cancelled => 130,
            Self::Io { .. } => 1,
        }
    }

    /// The form in which this crosses the wire.
    pub(crate) fn to_failure(&self) -> Failure {
        let code = match self {
            Self::Config(_) => FailureCode::BadSetting,
            Self::Unreachable { .. } | Self::NotSabul { .. } | Self::PeerGone(_) => {
                FailureCode::Timeout
            }
            Self::UdpBlocked { .. } => FailureCode::UdpBlocked,
            Self::Authentication(_) => FailureCode::Authentication,
            Self::Verification(_) => FailureCode::Verification,
            Self::NoSpace(_) => FailureCode::NoSpace,
            Self::Permission(_) => FailureCode::Permission,
            Self::Failed(failure) => return failure.clone(),
            Self::Cancelled => FailureCode::Cancelled,
            Self::Io { .. } => FailureCode::Internal,
        };
        Failure::new(code, self.to_string())
    }

    /// What a failure told by the peer, or found by the file layer, is here.
    pub(crate) fn from_failure(failure: Failure) -> Self {
        match failure.code {
            FailureCode::Authentication => Self::Authentication(failure.message),
            FailureCode::Verification => Self::Verification(failure.message),
            FailureCode::NoSpace => Self::NoSpace(failure.message),
            FailureCode::Permission => Self::Permission(failure.message),
            FailureCode::BadSetting => Self::Config(failure.message),
            FailureCode::Timeout => Self::PeerGone(failure.message),
            FailureCode::Cancelled => Self::Cancelled,
            _ => Self::Failed(failure),
        }
    }

    pub(crate) fn from_channel(error: ChannelError) -> Self {
        match error {
            ChannelError::Silent(_) => Self::PeerGone(error.to_string()),
            ChannelError::Io(source) => Self::Io { action: "use the UDP socket", source },
            ChannelError::Stopped => Self::Cancelled,
            ChannelError::Config(error) => Self::Config(error.to_string()),
            ChannelError::Peer(_) => {
                Self::Failed(Failure::new(FailureCode::Protocol, error.to_string()))
            }
            ChannelError::Controller(_)
            | ChannelError::Seal(_)
            | ChannelError::TooManyBlocks
            | ChannelError::Broken => {
                Self::Failed(Failure::new(FailureCode::Internal, error.to_string()))
            }
        }
    }

    /// What a failed handshake with the listener at `address` means.
    pub(crate) fn from_tls(error: TlsError, address: &str) -> Self {
        match error {
            TlsError::WrongKey { .. } | TlsError::KeyRefused => {
                Self::Authentication(error.to_string())
            }
            TlsError::NotSabul(reason) => Self::NotSabul { address: address.to_owned(), reason },
            TlsError::Closed => Self::NotSabul {
                address: address.to_owned(),
                reason: "it closed the connection during the TLS handshake".to_owned(),
            },
            TlsError::Busy => {
                let source = io::Error::new(io::ErrorKind::TimedOut, error.to_string());
                Self::Unreachable { address: address.to_owned(), source }
            }
            TlsError::Other(reason) => {
                Self::NotSabul { address: address.to_owned(), reason: format!("TLS: {reason}") }
            }
        }
    }
}

/// The exit code of a program that ends because of a failure of this class.
pub fn failure_exit_code(code: FailureCode) -> u8 {
    match code {
        FailureCode::BadSetting => 2,
        FailureCode::Timeout | FailureCode::UdpBlocked => 3,
        FailureCode::Authentication => 4,
        FailureCode::Verification => 5,
        FailureCode::NoSpace | FailureCode::Permission => 6,
        FailureCode::Cancelled => 130,
        FailureCode::Version => 3,
        FailureCode::Protocol
        | FailureCode::Refused
        | FailureCode::NotFound
        | FailureCode::Unreadable
        | FailureCode::Changed
        | FailureCode::Unwritable
        | FailureCode::Internal => 1,
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Config(text)
            | Self::PeerGone(text)
            | Self::Authentication(text)
            | Self::Verification(text)
            | Self::NoSpace(text)
            | Self::Permission(text) => f.write_str(text),
            Self::Unreachable { address, source } => write!(
                f,
                "cannot reach {address}: {source}; check the address, that the listener runs, and \
                 that TCP to its port is allowed"
            ),
            Self::NotSabul { address, reason } => write!(
                f,
                "{address} is not a sabul of this version ({reason}); check address and port"
            ),
            Self::UdpBlocked { address, waited } => write!(
                f,
                "TCP reaches {address}, but no UDP packet came back within {:.0} s: open UDP port \
                 {} in the firewall",
                waited.as_secs_f64(),
                address.port()
            ),
            Self::Failed(failure) => failure.fmt(f),
            Self::Cancelled => f.write_str("the transfer was cancelled"),
            Self::Io { action, source } => write!(f, "cannot {action}: {source}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Unreachable { source, .. } | Self::Io { source, .. } => Some(source),
            Self::Failed(failure) => Some(failure),
            _ => None,
        }
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        Self::from_failure(failure)
    }
}
