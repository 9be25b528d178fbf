//! Network simulator: a [`World`] of links and flows in virtual time.
//!
//! | Part | Is |
//! |---|---|
//! | [`TcpSender`], [`TcpReceiver`] | the two hosts of a TCP connection |
//! | [`World`] | all links and flows, and the event loop |
//!
//! Flows of our own protocol use the production sender and receiver (`sabul-channel`). The links are
//! those of `sabul-net`, which the lab drives by real time, so simulator and lab share one path
//! model. The same scenario gives the same bits on every machine, on one thread or many.
//!
//! The model omits processing time: hosts respond at once, unless a defect is configured. The model
//! also omits handshakes (flows start with their first data), and everything below IP except rate,
//! delay and queue.

mod host;
mod net;
mod tcp;
mod world;

pub use tcp::{
    Segment, TCP_HEADER_BYTES, TcpAck, TcpConfig, TcpReceiver, TcpReceiverStats, TcpSender,
    TcpSenderStats,
};
pub use world::{FlowFault, Outcome, World};
