//! Error type of all operations: one variant per cause, and a kind for each variant.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use sabul_files::os_text;
use sabul_udp::{UdpError, bind_advice};
use sabul_wire::control::{Failure, FailureCode};

use crate::channel::ChannelError;
use crate::ticket::TicketError;
use crate::tls::TlsError;

/// Cause of a failed operation.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// A setting is invalid.
    Config(String),
    /// No host answers at the address.
    Unreachable {
        /// Dialled address, `host:port`.
        address: String,
        /// Error of the operating system.
        source: io::Error,
    },
    /// The program at the address is not sabul, or sabul of another version.
    NotSabul {
        /// Dialled address, `host:port`.
        address: String,
        /// Behaviour of that program.
        reason: String,
    },
    /// The listener was busy for as long as the connector dialled.
    Busy {
        /// Dialled address, `host:port`.
        address: String,
        /// Rejected connections.
        rejected: u32,
        /// Time since the first attempt.
        waited: Duration,
    },
    /// The peer closed the session, or sent nothing for too long, before the work was done.
    PeerGone(String),
    /// TCP passes between the two ends, but UDP does not.
    UdpBlocked {
        /// Address from which UDP packets were expected.
        address: SocketAddr,
        /// Time spent waiting.
        waited: Duration,
    },
    /// An introducer passes on the control connection, but UDP does not pass the NATs of the two ends.
    NatBlocked {
        /// The introducer has seen UDP packets of this end.
        has_own_address: bool,
        /// Whether the NAT of this end uses another port for each destination, if known.
        own_is_symmetric: Option<bool>,
        /// The same for the other end.
        peer_is_symmetric: Option<bool>,
        /// Time spent waiting.
        waited: Duration,
        /// Why the introducer relayed no data, if this end requested that.
        relay: Option<String>,
    },
    /// One end rejected the other: wrong key or wrong secret.
    Authentication(String),
    /// Content does not match its hash.
    Verification(String),
    /// No space at the destination.
    NoSpace(String),
    /// No permission at the destination.
    Permission(String),
    /// The destination exists already and may not be replaced.
    Exists(Failure),
    /// Another failure, detected here or reported by the peer.
    Failed(Failure),
    /// A server could not be started or reached through ssh.
    Ssh {
        /// Category of the cause.
        kind: ErrorKind,
        /// Cause, host, and advice.
        message: String,
        /// Settings of [`Ssh`](crate::ssh::Ssh) whose change may remove the cause.
        settings: &'static [SshSetting],
    },
    /// A user on either side stopped the operation.
    Cancelled,
    /// A TCP port could not be opened.
    Listen {
        /// Requested address.
        address: SocketAddr,
        /// Error of the operating system.
        source: io::Error,
    },
    /// A UDP socket could not be opened or connected.
    Udp(UdpError),
    /// The operating system refused an operation.
    Io {
        /// The attempted action, with its object.
        action: String,
        /// Error of the operating system.
        source: io::Error,
    },
}

/// Setting of [`Ssh`](crate::ssh::Ssh) that an error names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SshSetting {
    /// [`Ssh::command`](crate::ssh::Ssh::command).
    Command,
    /// [`Ssh::remote_program`](crate::ssh::Ssh::remote_program).
    RemoteProgram,
    /// [`Ssh::upload`](crate::ssh::Ssh::upload).
    Upload,
    /// [`Ssh::ports`](crate::ssh::Ssh::ports).
    Ports,
    /// [`Ssh::carrier`](crate::ssh::Ssh::carrier).
    Carrier,
}

/// Category of an error, by the action that the caller can take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The operation was tried and failed.
    Failure,
    /// The operation failed by an internal error of this program.
    Internal,
    /// The request is invalid or impossible.
    Request,
    /// No sabul of this version answers at the address, or the peer stopped answering.
    Unreachable,
    /// One end rejected the other.
    Authentication,
    /// Content differs from the sent content.
    Verification,
    /// The destination has no space or does not permit the write.
    Destination,
    /// A user stopped the operation.
    Interrupt,
}

impl ErrorKind {
    /// Returns the kind of a failure class.
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
    /// Returns the kind of this error.
    pub const fn kind(&self) -> ErrorKind {
        match self {
            Self::Ssh { kind, .. } => *kind,
            Self::Listen { .. } | Self::Udp(_) | Self::Io { .. } => ErrorKind::Failure,
            _ => ErrorKind::of(self.code()),
        }
    }

    /// Returns the failure class that the peer receives for this error.
    pub const fn code(&self) -> FailureCode {
        match self {
            Self::Config(_) => FailureCode::BadSetting,
            Self::Unreachable { .. }
            | Self::NotSabul { .. }
            | Self::Busy { .. }
            | Self::PeerGone(_) => FailureCode::Timeout,
            Self::UdpBlocked { .. } | Self::NatBlocked { .. } => FailureCode::UdpBlocked,
            Self::Authentication(_) => FailureCode::Authentication,
            Self::Verification(_) => FailureCode::Verification,
            Self::NoSpace(_) => FailureCode::NoSpace,
            Self::Permission(_) => FailureCode::Permission,
            Self::Exists(failure) | Self::Failed(failure) => failure.code,
            Self::Cancelled => FailureCode::Cancelled,
            Self::Ssh { .. } | Self::Listen { .. } | Self::Udp(_) | Self::Io { .. } => {
                FailureCode::Internal
            }
        }
    }

    /// Returns the error of the operating system that prevented the use of a socket.
    pub(crate) fn socket_error(&self) -> Option<&io::Error> {
        match self {
            Self::Udp(error) => Some(error.io_error()),
            Self::Listen { source, .. } | Self::Io { source, .. } => Some(source),
            _ => None,
        }
    }

    /// Converts an error of the operating system; `action` names the attempt with its object.
    pub(crate) fn io(action: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { action: action.into(), source }
    }

    /// Converts an error of the TLS handshake with the listener at `address`.
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

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Config(text)
            | Self::PeerGone(text)
            | Self::Authentication(text)
            | Self::Verification(text)
            | Self::NoSpace(text)
            | Self::Permission(text)
            | Self::Ssh { message: text, .. } => f.write_str(text),
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
            Self::Busy { address, rejected, waited } => write!(
                f,
                "{address} is busy: it rejected {rejected} connections in {:.0} s; try again later, or \
                 start fewer clients at once",
                waited.as_secs_f64()
            ),
            Self::UdpBlocked { address, waited } => write!(
                f,
                "TCP reaches {address}, but no UDP packet came back within {:.0} s: open UDP port \
                 {} in the firewall",
                waited.as_secs_f64(),
                address.port()
            ),
            Self::NatBlocked {
                has_own_address,
                own_is_symmetric,
                peer_is_symmetric,
                waited,
                relay,
            } => {
                let cause = match (has_own_address, own_is_symmetric, peer_is_symmetric) {
                    (false, ..) => "no UDP packet came back from the introducer to this end",
                    (_, Some(true), Some(true)) => {
                        "both NATs use another port for each destination (symmetric)"
                    }
                    (_, Some(true), _) => {
                        "the NAT of this end uses another port for each destination (symmetric)"
                    }
                    (_, _, Some(true)) => {
                        "the NAT of the server uses another port for each destination (symmetric)"
                    }
                    _ => "a NAT or a firewall drops the packets",
                };
                write!(
                    f,
                    "no UDP packet passed the NATs of the two ends within {:.1} s: {cause}; forward a UDP and \
                     TCP port to one of the ends and dial that port, let the introducer relay the data with \
                     --relay, or copy through ssh with a jump host (ssh -J)",
                    waited.as_secs_f64()
                )?;
                relay.as_ref().map_or(Ok(()), |why| write!(f, "; the relay failed: {why}"))
            }
            Self::Exists(failure) | Self::Failed(failure) => failure.fmt(f),
            Self::Cancelled => f.write_str("the transfer was cancelled"),
            Self::Listen { address, source } => write!(
                f,
                "cannot listen on TCP address {address}: {}{}",
                os_text(source),
                bind_advice(source.kind())
            ),
            Self::Udp(error) => error.fmt(f),
            Self::Io { action, source } => write!(f, "cannot {action}: {}", os_text(source)),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Unreachable { source, .. }
            | Self::Listen { source, .. }
            | Self::Io { source, .. } => Some(source),
            Self::Udp(error) => Some(error),
            Self::Exists(failure) | Self::Failed(failure) => Some(failure),
            _ => None,
        }
    }
}

/// The failure that the peer receives.
impl From<&Error> for Failure {
    fn from(error: &Error) -> Self {
        match error {
            Error::Exists(failure) | Error::Failed(failure) => failure.clone(),
            _ => Self::new(error.code(), error.to_string()),
        }
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        match failure.code {
            FailureCode::Authentication => Self::Authentication(failure.message),
            FailureCode::Verification => Self::Verification(failure.message),
            FailureCode::NoSpace => Self::NoSpace(failure.message),
            FailureCode::Permission => Self::Permission(failure.message),
            FailureCode::BadSetting => Self::Config(failure.message),
            FailureCode::Timeout => Self::PeerGone(failure.message),
            FailureCode::Cancelled => Self::Cancelled,
            _ if failure.is_existing() => Self::Exists(failure),
            _ => Self::Failed(failure),
        }
    }
}

impl From<ChannelError> for Error {
    fn from(error: ChannelError) -> Self {
        match error {
            ChannelError::Silent(_) | ChannelError::Tcp(_) => Self::PeerGone(error.to_string()),
            ChannelError::NoPath { address, waited } => Self::UdpBlocked { address, waited },
            ChannelError::Path(text) => Self::Config(text),
            ChannelError::Io(source) => Self::io("use the UDP socket of a transfer")(source),
            ChannelError::Stopped => Self::Cancelled,
            ChannelError::Config(error) => error.into(),
            ChannelError::Peer(_)
            | ChannelError::Report(_)
            | ChannelError::Rules(_)
            | ChannelError::Blocks(_) => Self::Failed(Failure::violation(error)),
            ChannelError::Controller(_)
            | ChannelError::Seal(_)
            | ChannelError::TooManyBlocks
            | ChannelError::Broken => {
                Self::Failed(Failure::new(FailureCode::Internal, error.to_string()))
            }
        }
    }
}

/// Implements the conversion of errors about a setting.
macro_rules! from_setting {
    ($($error:ty),*) => {$(
        impl From<$error> for Error {
            fn from(error: $error) -> Self {
                Self::Config(error.to_string())
            }
        }
    )*};
}
from_setting!(TicketError, sabul_cc::ConfigError, sabul_cc::registry::UnknownController);
