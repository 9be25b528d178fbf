//! Window controllers of the TCP family.
//!
//! They run in simulated TCP hosts, where a number is a segment's, and in this project's sender on
//! the wire, where each transmission has a new number. Both hosts report the same events. `window`
//! holds the state that all members share. A `Law` defines growth and decrease of the window, and
//! `law` turns it into a controller; `cubic` is a controller of its own.

pub(crate) mod bbr1;
pub(crate) mod bbr3;
pub(crate) mod bic;
pub(crate) mod copa;
pub(crate) mod cubic;
pub(crate) mod dctcp;
mod delivery;
pub(crate) mod fast;
pub(crate) mod highspeed;
pub(crate) mod htcp;
mod hystart;
mod law;
pub(crate) mod ledbatpp;
pub(crate) mod lowpriority;
pub(crate) mod ltcp;
pub(crate) mod multcp;
pub(crate) mod newreno;
pub(crate) mod reno;
pub(crate) mod scalable;
#[cfg(test)]
mod testing;
mod window;
