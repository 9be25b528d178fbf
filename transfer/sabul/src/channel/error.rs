//! Error of a channel.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use sabul_channel::PeerError;
use sabul_wire::DecodeError;

/// Cause of a channel's premature end.
#[derive(Debug)]
pub(crate) enum ChannelError {
    /// The peer was silent for this long.
    Silent(Duration),
    /// Another transfer of the same source, or into the same directory after a silence, takes the place of this one.
    Superseded,
    /// No path to the peer's address opened within this time.
    NoPath { address: SocketAddr, waited: Duration },
    /// No path can be opened.
    Path(String),
    /// The socket failed.
    Io(io::Error),
    /// A TCP connection that carries blocks failed.
    Tcp(io::Error),
    /// The peer violated the rules of blocks over TCP.
    Blocks(String),
    /// The application stopped the channel.
    Stopped,
    /// The name or a parameter of the controller is invalid.
    Config(sabul_cc::ConfigError),
    /// The controller violated its contract.
    Controller(sabul_cc::Fault),
    /// A report of the peer contradicts what this end has sent.
    Peer(PeerError),
    /// A report of the peer does not decode.
    Report(DecodeError),
    /// The peer requested channel rules with this unknown code.
    Rules(u8),
    /// The thread of the channel panicked; standard error has the details.
    Broken,
    /// The transfer has more blocks than the channel has block numbers.
    TooManyBlocks,
    /// The keys of the channel are used up or invalid.
    Seal(crate::seal::SealError),
}

impl ChannelError {
    /// Whether the peer violated the protocol. Another path to the same peer would not help.
    pub(crate) const fn is_violation(&self) -> bool {
        matches!(self, Self::Peer(_) | Self::Report(_) | Self::Rules(_) | Self::Blocks(_))
    }
}

impl fmt::Display for ChannelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Silent(time) => write!(
                f,
                "the peer sent nothing over UDP for {:.0} s; check that it still runs \
                 and that the path between passes UDP",
                time.as_secs_f64()
            ),
            Self::Superseded => f.write_str("the peer went on with another transfer"),
            Self::NoPath { address, waited } => {
                write!(f, "no UDP path to {address} opened within {:.0} s", waited.as_secs_f64())
            }
            Self::Path(text) => f.write_str(text),
            Self::Io(error) => write!(f, "the UDP socket failed: {error}"),
            Self::Tcp(error) => write!(f, "a TCP connection that carried the data failed: {error}"),
            Self::Blocks(text) => f.write_str(text),
            Self::Stopped => f.write_str("the transfer was stopped"),
            Self::Config(error) => error.fmt(f),
            Self::Controller(fault) => fault.fmt(f),
            Self::Peer(error) => error.fmt(f),
            Self::Report(error) => write!(f, "peer sent a report that does not decode: {error}"),
            Self::Rules(code) => write!(f, "peer requested unknown channel rules, code {code}"),
            Self::Broken => {
                f.write_str("a fault of this program ended the channel; please report it")
            }
            Self::TooManyBlocks => f.write_str(
                "the transfer has more than 4294967294 blocks; send it with larger blocks, or in parts",
            ),
            Self::Seal(error) => write!(f, "a packet could not be sealed: {error}"),
        }
    }
}

impl std::error::Error for ChannelError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io(error) | Self::Tcp(error) => Some(error),
            Self::Config(error) => Some(error),
            _ => None,
        }
    }
}
