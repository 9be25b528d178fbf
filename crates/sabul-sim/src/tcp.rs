//! TCP hosts for the simulator: a sender and a receiver that count every segment as the real ones do.
//!
//! Both are plain state machines like the channel of `sabul-proto`: the owner gives them every event
//! with its time and carries [`Segment`]s one way and [`TcpAck`]s the other. Which window a sender
//! keeps is a controller of `sabul-cc`; everything else is here: the retransmission timer after
//! [RFC6298 §2], loss detection by time and tail loss probes after [RFC8985], recovery by selective
//! acknowledgement after [RFC6675 §5] with proportional rate reduction after [RFC9937 §6], delayed ACKs
//! after [RFC5681 §4.2], explicit marks after [RFC3168 §6.1], congestion headers in the way of [XCP] where
//! the controller has them.
//!
//! Not here: the handshake, which costs one round trip before the first [`TcpSender::write`]; the
//! advertised window (a receiver reads at once, so it is the constant
//! [`TcpConfig::window_packets`]); Nagle's rule; the smaller window after an idle time.

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
