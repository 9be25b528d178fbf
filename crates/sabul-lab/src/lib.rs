//! Emulated paths for real programs: the links of `sabul-sim`, driven by the real clock.
//!
//! [`Relay`] needs no privileges: it sits between a connector and a listener as an ordinary pair of
//! UDP and TCP sockets, and whatever passes it takes the time, the losses and the damage of the
//! path.

mod relay;

pub use relay::{Lateness, Relay, RelayConfig, RelayError, RelayStats};
