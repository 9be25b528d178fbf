//! TCP hosts for the simulator: a sender and a receiver with segment-level detail.
//!
//! Both are state machines like the channel of `sabul-channel`: the caller passes each event with its
//! time and carries [`Segment`]s one way and [`TcpAck`]s the other. A controller of `sabul-cc`
//! computes the window. Everything else is here:
//! - the retransmission timer after [RFC6298 §2];
//! - loss detection by time and tail loss probes after [RFC8985];
//! - recovery by selective acknowledgement after [RFC6675 §5], with proportional rate reduction after
//!   [RFC9937 §6];
//! - delayed ACKs after [RFC5681 §4.2], explicit marks after [RFC3168 §6.1], and congestion headers
//!   after [XCP] where the controller has them.
//!
//! Not here: the handshake, which takes one round trip before the first [`TcpSender::write`]; the
//! advertised window (a receiver reads at once, so the window is the constant
//! [`TcpConfig::window_packets`]); Nagle's algorithm; the window reduction after an idle time.

mod echoes;
mod packets;
mod prr;
mod rack;
mod receiver;
mod rtt;
mod scoreboard;
mod sender;
#[cfg(test)]
mod transfers;

pub(crate) use echoes::TcpEchoes;
pub use packets::{Segment, TCP_HEADER_BYTES, TcpAck};
pub use receiver::{TcpReceiver, TcpReceiverStats};
pub use sender::{TcpConfig, TcpSender, TcpSenderStats};
