//! Window controllers of the TCP family, and the parts that they share.
//!
//! They run in simulated TCP hosts, where a number is a segment's, and in this project's sender on
//! the wire, where each transmission has a new number. Both hosts report the same events. `window`
//! holds the state that all members share. A `Law` defines growth and decrease of the window, and
//! `law` turns it into a controller; `cubic` is a controller of its own.

pub(crate) mod bbr3;
pub(crate) mod cubic;
pub mod delivery;
mod hystart;
pub mod law;
pub mod newreno;
pub mod testing;
pub mod window;
