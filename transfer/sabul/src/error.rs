//! Error type of all operations: one variant per cause, and a kind for each variant.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use rustix::io::Errno;
use sabul_cc::ConfigError;
use sabul_cc::registry::UnknownController;
use sabul_files::os_text;
use sabul_udp::{UdpError, bind_advice};
use sabul_wire::control::{Failure, FailureCode};

use crate::budget::NoMemory;
use crate::channel::ChannelError;
use crate::ticket::TicketError;
use crate::tls::TlsError;

/// Cause of a failed operation.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// A setting is invalid.
    Config(ConfigError),
    /// An address is invalid or cannot be used.
    Address {
        /// The address as given.
        address: String,
        /// Its fault, as a phrase that follows the address.
        reason: String,
        /// Form of a valid address.
        form: String,
    },
    /// A ticket is invalid, or was not read or written.
    Ticket(TicketError),
    /// Two settings exclude each other, or the session cannot serve the request.
    Impossible {
        /// The request, as a noun.
        request: String,
        /// Why the request is impossible.
        reason: String,
        /// Action that makes the request possible.
        advice: String,
    },
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
    PeerGone(Cause),
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
    Authentication(Cause),
    /// Content does not match its hash.
    Verification(Cause),
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

/// Message of an error, and the error that led to it, if any.
#[derive(Debug)]
pub struct Cause {
    message: String,
    source: Option<Source>,
}

/// Error that led to another error.
pub(crate) type Source = Box<dyn std::error::Error + Send + Sync>;

impl Cause {
    /// Makes a message that includes the text of the error that led to it.
    pub(crate) fn of(message: impl Into<String>, source: impl Into<Source>) -> Self {
        Self { message: message.into(), source: Some(source.into()) }
    }

    /// Returns the error that led to this error, as an error's source.
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_deref().map(|source| source as &(dyn std::error::Error + 'static))
    }
}

impl From<String> for Cause {
    fn from(message: String) -> Self {
        Self { message, source: None }
    }
}

impl From<&str> for Cause {
    fn from(message: &str) -> Self {
        message.to_owned().into()
    }
}

impl From<Failure> for Cause {
    fn from(failure: Failure) -> Self {
        Self::of(failure.message.clone(), failure)
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
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
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Ssh { kind, .. } => *kind,
            // A TCP connection without a route is unreachable, too.
            Self::Udp(UdpError::Connect { source, .. }) if is_without_route(source) => {
                ErrorKind::Unreachable
            }
            Self::Listen { .. } | Self::Udp(_) | Self::Io { .. } => ErrorKind::Failure,
            _ => ErrorKind::of(self.code()),
        }
    }

    /// Returns the failure class that the peer receives for this error.
    pub const fn code(&self) -> FailureCode {
        match self {
            Self::Config(_) | Self::Address { .. } | Self::Ticket(_) | Self::Impossible { .. } => {
                FailureCode::BadSetting
            }
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

    /// Makes the error of a setting with this rejected value; `allowed` completes "use".
    pub(crate) fn setting(
        setting: &str,
        value: impl fmt::Display,
        allowed: impl Into<String>,
    ) -> Self {
        let (setting, value) = (setting.to_owned(), value.to_string());
        Self::Config(ConfigError { setting, value, allowed: allowed.into() })
    }

    /// Makes the error of an impossible request.
    pub(crate) fn impossible(
        request: impl Into<String>,
        reason: impl Into<String>,
        advice: impl Into<String>,
    ) -> Self {
        let (request, reason, advice) = (request.into(), reason.into(), advice.into());
        Self::Impossible { request, reason, advice }
    }

    /// Makes the error of a lost peer; `message` includes the text of `source`.
    pub(crate) fn gone(message: impl Into<String>, source: impl Into<Source>) -> Self {
        Self::PeerGone(Cause::of(message, source))
    }

    /// Whether a setting or the request is invalid, here or according to the peer.
    pub(crate) const fn is_of_request(&self) -> bool {
        matches!(self.code(), FailureCode::BadSetting)
    }

    /// Converts an error of the operating system; `action` names the attempt with its object.
    pub(crate) fn io(action: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { action: action.into(), source }
    }

    /// Converts an error of the TLS handshake with the listener at `address`.
    pub(crate) fn from_tls(error: TlsError, address: &str) -> Self {
        match error {
            TlsError::WrongKey { .. } | TlsError::KeyRefused => {
                Self::Authentication(Cause::of(error.to_string(), error))
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
            Self::Config(error) => error.fmt(f),
            Self::Address { address, reason, form } => {
                write!(f, "'{address}' {reason}; write {form}")
            }
            Self::Ticket(error) => error.fmt(f),
            Self::Impossible { request, reason, advice } => {
                write!(f, "{request} is not possible: {reason}; {advice}")
            }
            Self::PeerGone(cause) | Self::Authentication(cause) | Self::Verification(cause) => {
                cause.fmt(f)
            }
            Self::NoSpace(text) | Self::Permission(text) | Self::Ssh { message: text, .. } => {
                f.write_str(text)
            }
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
                let cause = blocked_by(*has_own_address, *own_is_symmetric, *peer_is_symmetric);
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

/// Returns the probable cause why no UDP packet passes two NATs, from the fields of [`Error::NatBlocked`].
const fn blocked_by(
    has_own_address: bool,
    own_is_symmetric: Option<bool>,
    peer_is_symmetric: Option<bool>,
) -> &'static str {
    match (has_own_address, own_is_symmetric, peer_is_symmetric) {
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
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Unreachable { source, .. }
            | Self::Listen { source, .. }
            | Self::Io { source, .. } => Some(source),
            Self::Udp(error) => Some(error),
            Self::Config(error) => Some(error),
            Self::Ticket(error) => Some(error),
            Self::PeerGone(cause) | Self::Authentication(cause) | Self::Verification(cause) => {
                cause.source()
            }
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
            FailureCode::Authentication => Self::Authentication(failure.into()),
            FailureCode::Verification => Self::Verification(failure.into()),
            FailureCode::NoSpace => Self::NoSpace(failure.message),
            FailureCode::Permission => Self::Permission(failure.message),
            FailureCode::Timeout => Self::PeerGone(failure.into()),
            FailureCode::Cancelled => Self::Cancelled,
            _ if failure.is_existing() => Self::Exists(failure),
            _ => Self::Failed(failure),
        }
    }
}

impl From<ChannelError> for Error {
    fn from(error: ChannelError) -> Self {
        match error {
            ChannelError::Silent(_) | ChannelError::Superseded => {
                Self::PeerGone(error.to_string().into())
            }
            ChannelError::Tcp(_) => Self::gone(error.to_string(), error),
            ChannelError::NoPath { address, waited } => Self::UdpBlocked { address, waited },
            ChannelError::Path(text) => Self::impossible(
                "a transfer from these local addresses",
                text,
                "choose local addresses that reach the peer",
            ),
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

impl From<TicketError> for Error {
    fn from(error: TicketError) -> Self {
        Self::Ticket(error)
    }
}

impl From<ConfigError> for Error {
    fn from(error: ConfigError) -> Self {
        Self::Config(error)
    }
}

/// The error of a session that this end cannot open.
impl From<NoMemory> for Error {
    fn from(shortage: NoMemory) -> Self {
        let advice = "wait for some to end, or give a larger memory budget";
        Self::impossible("another session", shortage.use_of_memory(), advice)
    }
}

/// Whether a socket could not be connected because the route to the peer is lost. Linux reports an invalid argument if the
/// route is unreachable and the socket has a fixed address.
fn is_without_route(error: &io::Error) -> bool {
    let error = Errno::from_io_error(error);
    let lost = [Errno::NETUNREACH, Errno::HOSTUNREACH, Errno::NETDOWN, Errno::INVAL];
    error.is_some_and(|error| lost.contains(&error))
}

impl From<UnknownController> for Error {
    fn from(error: UnknownController) -> Self {
        Self::Config(error.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::error::Error as _;

    #[test]
    fn a_route_that_is_lost_makes_the_peer_unreachable() {
        let peer = SocketAddr::from(([192, 0, 2, 1], 4850));
        let connect = |errno: Errno| Error::Udp(UdpError::Connect { peer, source: errno.into() });
        for lost in [Errno::NETUNREACH, Errno::INVAL] {
            assert_eq!(connect(lost).kind(), ErrorKind::Unreachable);
        }
        assert_eq!(connect(Errno::ACCESS).kind(), ErrorKind::Failure);
        let port = io::Error::new(io::ErrorKind::InvalidInput, "port 0 is no port");
        let port = Error::Udp(UdpError::Connect { peer, source: port });
        assert_eq!(port.kind(), ErrorKind::Failure);
        let bind = Error::Udp(UdpError::Bind { address: peer, source: Errno::NETUNREACH.into() });
        assert_eq!(bind.kind(), ErrorKind::Failure);
    }

    #[test]
    fn errors_return_the_error_that_led_to_them() {
        let broken = || io::Error::from(io::ErrorKind::ConnectionReset);
        let failure = |code| Error::from(Failure::new(code, "x"));
        let wrong_key = TlsError::WrongKey { expected: [0; 32], found: [1; 32] };
        let unread = TicketError::Read { path: "t".into(), source: broken() };
        for error in [
            Error::from_tls(wrong_key, "a:1"),
            ChannelError::Tcp(broken()).into(),
            Error::gone("the introducer a:1: reset", broken()),
            failure(FailureCode::Authentication),
            failure(FailureCode::Verification),
            failure(FailureCode::Timeout),
            failure(FailureCode::BadSetting),
            Error::setting("block size", 3, "a power of two"),
            unread.into(),
        ] {
            assert!(error.source().is_some(), "{error:?}");
        }
        let tcp = Error::from(ChannelError::Tcp(broken()));
        let cause = tcp.source().and_then(|channel| channel.source()).expect("two causes");
        let cause = cause.downcast_ref::<io::Error>().map(io::Error::kind);
        assert_eq!(cause, Some(io::ErrorKind::ConnectionReset), "{tcp:?}");
        assert!(Error::PeerGone("the listener has ended".into()).source().is_none());
    }

    #[test]
    fn invalid_settings_and_requests_have_one_kind_and_name_object_value_and_remedy() {
        let unknown = UnknownController { name: "bbr".to_owned(), near: vec!["bbr3"] };
        for (error, words) in [
            (Error::setting("paths", 0, "1 to 8"), "paths: '0' is not allowed; use 1 to 8"),
            (
                Error::impossible("a copy", "there is no way", "choose another"),
                "a copy is not possible: there is no way; choose another",
            ),
            (
                Error::Address {
                    address: "a b:c".to_owned(),
                    reason: "names no host".to_owned(),
                    form: "HOST:PATH".to_owned(),
                },
                "'a b:c' names no host; write HOST:PATH",
            ),
            (TicketError::CutShort.into(), "ticket is cut short: copy the whole line"),
            (
                unknown.into(),
                "controller: 'bbr' is not allowed; use 'bbr3' (the nearest), or one of: ",
            ),
            (Failure::new(FailureCode::BadSetting, "of the peer").into(), "of the peer"),
        ] {
            assert!(error.to_string().starts_with(words), "{error}");
            assert_eq!(error.kind(), ErrorKind::Request, "{error:?}");
            assert!(error.is_of_request(), "{error:?}");
        }
    }
}
