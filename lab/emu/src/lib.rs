//! Emulated paths for real programs: the links of `sabul-net`, driven by the real clock.
//!
//! [`Lab`] makes hosts (network namespaces with a TUN device each) and routes the IP packets
//! between them over the path. [`Relay`] needs no privileges. A relay is an ordinary pair of UDP
//! and TCP sockets between a connector and a listener. The relay applies the whole path
//! to datagrams, and the path's delay to TCP.

mod calibrate;
mod capture;
mod clock;
mod error;
mod events;
mod flow;
mod host;
pub mod isolate;
mod lab;
mod lateness;
mod relay;
mod router;
pub mod shell;
mod tcp_info;

pub use calibrate::{Calibration, Check};
pub use error::LabError;
pub use events::OnEvent;
pub use flow::check_kernel_algorithm;
pub use lab::{FlowCpu, IsInterrupted, Lab, LabConfig, LabOutcome, OnSample, Sample};
pub use lateness::Lateness;
pub use relay::{Relay, RelayConfig, RelayError, RelayStats};
pub use router::{Amount, RouterSnapshot, TupleSnapshot};
pub use sabul_tun::{Protocol, Tuple};
