//! Why an operation failed: one variant per cause, and what kind of failure each is.

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

/// What a failure means for whoever asked: what there is to do about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// It was tried and went wrong.
    Failure,
    /// The same, by a fault of this program.
    Internal,
    /// What was asked for cannot be meant or done as it is.
    Request,
    /// Nobody is there, or what is there cannot be talked to, or fell silent.
    Unreachable,
    /// One end does not accept the other.
    Authentication,
    /// Content is not what was sent.
    Verification,
    /// The destination has no space, or does not let this be written.
    Destination,
    /// A person stopped it.
    Interrupt,
}

impl ErrorKind {
    /// The kind of a failure of this class.
    pub const fn of(code: FailureCode) -> Self {
        match code {
            FailureCode::BadSetting => Self::Request,
            FailureCode::Timeout | FailureCode::UdpBlocked | FailureCode::Version => {
                Self::Unreachable
            }
            FailureCode::Authentication => Self::Authentication,
            FailureCode::Verification => Self::Verification,
            FailureCode::NoSpace | FailureCode::Permission => Self::Destination,
            FailureCode::Cancelled => Self::Interrupt,
            FailureCode::Protocol
            | FailureCode::Refused
            | FailureCode::NotFound
            | FailureCode::Unreadable
            | FailureCode::Changed
            | FailureCode::Unwritable => Self::Failure,
            FailureCode::Internal => Self::Internal,
        }
    }
}

impl Error {
    /// What kind of failure this is.
    pub const fn kind(&self) -> ErrorKind {
        match self {
            Self::Config(_) => ErrorKind::Request,
            Self::Unreachable { .. }
            | Self::NotSabul { .. }
            | Self::PeerGone(_)
            | Self::UdpBlocked { .. } => ErrorKind::Unreachable,
            Self::Authentication(_) => ErrorKind::Authentication,
            Self::Verification(_) => ErrorKind::Verification,
            Self::NoSpace(_) | Self::Permission(_) => ErrorKind::Destination,
            Self::Failed(failure) => ErrorKind::of(failure.code),
            Self::Cancelled => ErrorKind::Interrupt,
            Self::Io { .. } => ErrorKind::Failure,
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

/// What the system said, without the number of the error.
pub(crate) fn os_text(error: &io::Error) -> String {
    let text = error.to_string();
    match error.raw_os_error() {
        Some(number) => text.trim_end_matches(&format!(" (os error {number})")).to_owned(),
        None => text,
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
                "cannot reach {address}: {}; check the address, that the listener runs, and that TCP \
                 to its port is allowed",
                os_text(source)
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
            Self::Io { action, source } => write!(f, "cannot {action}: {}", os_text(source)),
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
