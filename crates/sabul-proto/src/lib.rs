//! The channel, without a socket, a clock or a thread: a sender and a receiver of blocks.
//!
//! Both are plain state machines. The owner gives them every event with the time it happened and
//! asks what to do next; [`Sender::poll`] and [`Receiver::poll`] answer with one
//! packet to send or the time until which there is nothing to do. Bytes are not here either: the
//! core decides *which* piece of *which* block goes into *which* packet, its owner seals, sends,
//! opens and stores. The same objects run on the wire and in the simulator.
//!
//! Life of a DATA packet: [`Sender::push_block`] → `poll` gives it a sequence number and a
//! packet number → wire → [`Receiver::admit`] says whether it is wanted → its owner opens it into
//! the block → [`Receiver::accept`] → an ACK → [`Sender::handle_feedback`] → the block is released.
//!
//! Life of a loss: the receiver sees a gap in the numbers → NAK at once → the sender's loss list →
//! sent again, before any new data, under a new packet number.

mod fired;
mod flow_window;
mod interval_set;
mod receiver;
mod reports;
mod rtt;
mod sender;

pub use fired::Fired;
pub use flow_window::FlowWindow;
pub use interval_set::IntervalSet;
pub use receiver::{
    Admission, Arrival, Receiver, ReceiverConfig, ReceiverStats, ReceiverWait, Refusal,
};
pub use reports::{AckRule, Repeat, RepeatRtt, ReportRule};
pub use sender::{
    Cause, DataPacket, Expiry, Limiter, PeerError, Sender, SenderConfig, SenderStats, Transmit,
    WaitReason, congestion_bytes,
};
