//! The simulator: a [`World`] of links and flows in virtual time.
//!
//! | Part | Is |
//! |---|---|
//! | [`TcpSender`], [`TcpReceiver`] | hosts that TCP flows consist of |
//! | [`World`] | all of it, and the agenda of who acts when |
//!
//! Flows of our own protocol are the very sender and receiver that ship (`sabul-proto`), and the links
//! are those of `sabul-path`, which the lab drives by real time: all of them speak about the same path.
//! The same scenario gives the same bits on every machine, on one thread or many.
//!
//! What the model leaves out: processors (hosts take no time to think, unless a defect says so),
//! handshakes (flows start with their first data), and everything below IP but rate, delay and queue.

mod host;
mod net;
mod tcp;
mod world;

pub use tcp::{
    Segment, TCP_HEADER_BYTES, TcpAck, TcpConfig, TcpReceiver, TcpReceiverStats, TcpSender,
    TcpSenderStats,
};
pub use world::{FlowFault, Outcome, World};
