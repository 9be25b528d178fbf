//! Congestion controllers: algorithms that turn ACKs, losses and timeouts into send limits.
//!
//! A [`Controller`] receives events and returns send limits from [`Controller::limits`]. It has no
//! connection, socket or clock, so the same object runs on the wire and in the simulator.
//! [`registry`] lists every controller with its parameters and sources, and accepts controllers of
//! a program. Senders own a [`Guarded`], which turns a controller's panics and unusable limits into
//! a [`Fault`]. Every controller must pass the suite in [`conformance`].

mod breaker;
mod bulk;
mod channel;
pub mod conformance;
mod controller;
mod entry;
pub mod events;
mod explicit;
mod fixed;
mod guard;
mod memory;
mod params;
mod policy;
mod reason;
pub mod registry;
mod sabul2002;
mod sabul2003;
mod sabul2026;
mod search;
mod tcp;
mod tfrc;
mod udt;
mod unused;

pub use channel::{BUFFER_PACKETS, BulkReport, ChannelRules, PAIR_EVERY};
pub use controller::{
    Acked, Context, Controller, Echo, IntervalReport, LossReport, Moment, RttEstimate,
    SYN_INTERVAL, SendLimits, SentNumber, ack_interval,
};
pub use explicit::{Explicit, FALLBACK, LinkState, Router, RouterController, RouterStats, routers};
pub use guard::{Catch, Fault, Guarded, Panic, catch_panic, catch_panics_with};
pub use memory::PathFacts;
pub use params::{ConfigError, ParamSpec, ParamValues, Unit};
pub use policy::{CONSTANT, Policy, YIELDING};
pub use reason::Reason;
