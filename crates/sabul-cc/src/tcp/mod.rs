//! Window controllers of the TCP family.
//!
//! They drive simulated TCP hosts, where a packet number is a segment's, and the sender of this
//! project on the wire, where it is new for each transmission. Both tell the same facts; `window`
//! keeps what all members of the family share, each algorithm adds how it grows and by how much it
//! shrinks.

pub(crate) mod cubic;
mod hystart;
pub(crate) mod newreno;
mod window;
