//! The simulator: a [`World`] of links and flows in virtual time.
//!
//! | Part | Is |
//! |---|---|
//! | [`scenario`] | what a run is made of: links, flows, how long |
//! | [`TcpSender`], [`TcpReceiver`] | hosts that TCP flows consist of |
//! | [`traffic`] | when flows arrive and how much each of them sends |
//! | [`World`] | all of it, and the agenda of who acts when |
//! | [`meter`] | what is measured while a run goes on |
//! | [`results`] | what a run has shown: averages and series |
//!
//! Flows of our own protocol are the very sender and receiver that ship (`sabul-proto`), and the links
//! are those of `sabul-path`, which the lab drives by real time: all of them speak about the same path.
//! The same scenario gives the same bits on every machine, on one thread or many.
//!
//! What the model leaves out: processors (hosts take no time to think, unless a defect says so),
//! handshakes (flows start with their first data), and everything below IP but rate, delay and queue.

mod agenda;
mod host;
pub mod meter;
mod net;
pub mod results;
pub mod scenario;
mod tcp;
pub mod traffic;
mod world;

pub use tcp::{
    Segment, TCP_HEADER_BYTES, TcpAck, TcpConfig, TcpReceiver, TcpReceiverStats, TcpSender,
    TcpSenderStats, TcpTransmit,
};
pub use world::{FlowFault, Outcome, World};
