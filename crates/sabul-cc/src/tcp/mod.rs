//! Window controllers of the TCP family.
//!
//! They drive simulated TCP hosts, where a packet number is a segment's, and the sender of this
//! project on the wire, where it is new for each transmission. Both tell the same facts; `window`
//! keeps what all members of the family share. A law says how the window grows and by how much it
//! shrinks, and `law` makes a controller of it; `cubic` is one of its own.

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
