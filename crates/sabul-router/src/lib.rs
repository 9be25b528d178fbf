//! A forwarder for a Linux box that owns a bottleneck: it paces what leaves, and tells flows of sabul their rate.
//!
//! | Part | Is |
//! |---|---|
//! | [`Bottleneck`] | the bottleneck without devices or clock: two classes, their shares, the router half |
//! | [`Frames`] | what leaves it, as a device takes it |
//! | [`Router`] | the same between two TUN devices in real time, on a thread of its own |
//! | [`Session`] | that with everything around it, as `sabul router` runs it |
//! | [`Watch`] | what is wrong and worth a sentence, each said once |
//! | [`Endpoint`], [`metrics`] | the counts for Prometheus |
//!
//! The bottleneck's rate, its queues and the turns of the two classes are a [`sabul_path::Link`] under deficit round
//! robin, the router half is [`sabul_cc::Router`]: the parts that the simulator and the lab have, too.

mod bottleneck;
mod endpoint;
mod error;
mod frames;
mod kernel;
mod look;
mod plain;
mod router;
mod session;
mod settings;
mod watch;

pub use bottleneck::{Bottleneck, BottleneckWait, Leaving};
pub use endpoint::{Endpoint, metrics};
pub use error::RouterError;
pub use frames::Frames;
pub use kernel::{Kernel, KernelLook, QueueLook};
pub use look::{ClassCounts, Look};
pub use router::Router;
pub use session::{Line, Session, SessionPlan, Summary};
pub use settings::{QueueSize, Settings};
pub use watch::{Notice, Watch};
