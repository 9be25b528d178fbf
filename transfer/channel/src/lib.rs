//! Sans-IO protocol core of one channel: a sender and a receiver of blocks.
//!
//! Sender and receiver are state machines without sockets, clocks or threads. The caller passes
//! each event with its time, then calls [`Sender::poll`] or [`Receiver::poll`]. Each poll returns
//! one packet to send or the time of the next deadline. The core decides *which* piece of *which*
//! block goes into *which* packet. The caller holds the bytes: sealing, sending, opening and
//! storing are not here. The same code runs on the network and in the simulator.
//!
//! Path of a DATA packet: [`Sender::push_block`] → `poll` assigns a sequence number and a packet
//! number → wire → [`Receiver::admit`] accepts or refuses the packet → the caller opens the payload
//! into the block → [`Receiver::accept`] → an ACK → [`Sender::handle_feedback`] → the block is
//! released.
//!
//! Path of a loss: the receiver detects a gap in the numbers → NAK at once → the sender's loss list
//! → retransmission, before any new data, under a new packet number.
//!
//! Related protocols send in another order or report losses in another way. [`rules`] has the traits
//! that their crates implement.

mod fired;
mod flow_window;
mod interval_set;
mod marks;
mod receiver;
mod reports;
mod rtt;
pub mod rules;
mod sender;

pub use fired::{Fired, FiredTimer};
pub use flow_window::FlowWindow;
pub use interval_set::IntervalSet;
pub use receiver::{
    Admission, Arrival, Lateness, Receiver, ReceiverConfig, ReceiverStats, ReceiverWait, Refusal,
};
pub use reports::{AckRule, Repeat, RepeatRtt, ReportRule};
pub use sender::{
    Cause, DataPacket, Expiry, Limiter, PeerError, Sender, SenderConfig, SenderStats, Transmit,
    WaitReason, congestion_bytes,
};
