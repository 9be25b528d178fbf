//! Congestion controllers: algorithms that turn ACKs, losses and timeouts into send limits.
//!
//! A [`Controller`] receives events and returns send limits from [`Controller::limits`]. It has no
//! connection, socket or clock, so the same object runs on the wire and in the simulator.
//! [`registry`] lists the controllers offered to users with their parameters and sources, and
//! accepts controllers of other crates and of a program. Senders own a [`Guarded`], which turns a
//! controller's panics and unusable limits into a [`Fault`]. Every controller must pass the suite in
//! [`conformance`]. [`router`] is the interface of routers that take part in explicit congestion
//! control. [`tcp`], [`search`] and [`tfrc`] are parts for controllers in any crate.

mod breaker;
mod channel;
pub mod conformance;
mod controller;
mod entry;
pub mod events;
mod fixed;
mod guard;
mod memory;
mod params;
mod phase;
mod policy;
mod reason;
pub mod registry;
pub mod router;
mod sabul2026;
pub mod search;
mod shared;
pub mod tcp;
pub mod tfrc;

pub use channel::{BulkReport, ChannelRules};
pub use controller::{
    Acked, Constants, Context, Controller, Echo, IntervalReport, LossReport, Moment, RttEstimate,
    SYN_INTERVAL, SendLimits, SentNumber, ack_interval,
};
pub use guard::{Catch, Fault, Guarded, PAUSE_MAX, Panic, catch_panic, catch_panics_with};
pub use memory::PathFacts;
pub use params::{ConfigError, ParamSpec, ParamValues, Unit};
pub use phase::Phase;
pub use policy::Policy;
pub use reason::Reason;
pub use shared::SharedController;
