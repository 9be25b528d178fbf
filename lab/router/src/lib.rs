//! Forwarder for a Linux machine at a bottleneck: paces departing traffic, and reports a rate to
//! flows of sabul.
//!
//! | Part | Is |
//! |---|---|
//! | [`Bottleneck`] | the bottleneck without devices or clock: two classes, their shares, the router half |
//! | [`Frames`] | departing packets, as frames for a device |
//! | [`Router`] | the bottleneck between two TUN devices in real time, on its own thread |
//! | [`Session`] | a router with kernel counters, notices and metrics, as `sabul router` runs it |
//! | [`Watch`] | notices about problems, each reported once |
//! | [`Endpoint`], [`metrics`] | the counters for Prometheus |
//!
//! The bottleneck's rate, its queues and the scheduling of the two classes are a
//! [`sabul_net::Link`] with deficit round robin. The router half is [`sabul_cc::router::Router`].
//! Simulator and lab use the same parts.

mod bottleneck;
mod endpoint;
mod error;
mod frames;
mod kernel;
mod plain;
mod router;
mod session;
mod settings;
mod snapshot;
mod watch;

pub use bottleneck::{Bottleneck, BottleneckWait, Leaving};
pub use endpoint::{Endpoint, metrics};
pub use error::RouterError;
pub use frames::Frames;
pub use kernel::{Kernel, KernelSnapshot, QueueSnapshot};
pub use router::Router;
pub use session::{Line, Session, SessionPlan, Summary};
pub use settings::{QueueSize, Settings};
pub use snapshot::{ClassCounts, RouterSnapshot};
pub use watch::{Notice, Watch};
