//! The path model: a [`Link`] that queues, serialises, delays, loses, repeats, reorders and damages
//! packets, and the named paths ([`preset`]) made of a pair of them.
//!
//! A link is a plain state machine: time and packets go in, deliveries come out. It owns no socket,
//! clock or thread, so the simulator drives it by virtual time and the lab by real time, and both
//! speak about the same path.

mod config;
mod corrupt;
mod discipline;
mod link;
mod presets;
pub mod results;
pub mod scenario;

pub use config::{ConfigError, LinkConfig, LinkConfigBuilder, Outage, QueueLimit};
pub use corrupt::corrupt_bytes;
pub use discipline::{BurstLoss, Codel, Discipline, Drr, EcnThreshold, FqCodel, Red};
pub use link::{Delivery, Link, LinkStats, Verdict};
pub use presets::{PathPreset, preset, presets};
