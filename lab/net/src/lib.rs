//! Network emulation between hosts: links, routes and queues, for virtual time, for namespaces and
//! for a relay.
//!
//! | Part | Is |
//! |---|---|
//! | [`Link`] | one direction of a path: queue, serialiser, propagation delay and faults |
//! | [`Topology`] | links both ways, the routes over them, and the queue of events |
//! | [`LinkConfig`], [`Discipline`] | settings of a link |
//! | [`presets`] | named paths, each number with its source |
//!
//! No code here owns a socket, clock or thread: the simulator drives it by virtual time, the lab by
//! real time. The same inputs at the same times give the same outputs, on every machine.

mod agenda;
mod config;
mod corrupt;
mod discipline;
mod drops;
mod forge;
mod impairments;
mod link;
mod loss;
mod packet;
mod presets;
mod queue;
mod router;
mod setting;
mod shape;
mod steps;
mod topology;
mod trace;

pub use config::{
    BURST_LOSS, DELAY_MS, LINK, LinkConfig, LinkConfigBuilder, LinkDraft, LinkError, OUTAGE,
    Outage, QueueLimit, RATE_MBPS,
};
pub use corrupt::corrupt_bytes;
pub use discipline::{
    BurstLoss, Codel, DISCIPLINES, Discipline, DisciplineEntry, Drr, EcnThreshold, Fill, FqCodel,
    Red,
};
pub use drops::{DropEvent, DropReason};
pub use forge::Forgery;
pub use link::{Delivery, Link, LinkSnapshot, LinkStats, LinkWait, Verdict};
pub use packet::PacketMeta;
pub use presets::{PathPreset, preset, presets};
pub use router::{Headed, RouterAccount, RouterPlan};
pub use shape::{POLICER, RATE_WALK, RateWalk, SHAPER, TokenBucket};
pub use steps::{DELAY_STEP, DelayStep, RATE_STEP, RateStep};
pub use topology::{
    Arrival, Both, Damage, Entry, LinkPlan, Output, RouteId, Timer, Topology, TopologyWait,
    Transit, Way,
};
pub use trace::{
    OPPORTUNITIES_MAX, OPPORTUNITY_BYTES, PERIOD_MS_MAX, TRACE_BYTES_MAX, Trace, TraceError,
};
