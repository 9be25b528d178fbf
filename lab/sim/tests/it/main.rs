//! The simulator: worlds, TCP hosts, controllers, channels, goldens.

mod batches;
mod bbr;
mod bulk_family;
mod channel_bulk;
mod channel_probes;
mod channel_states;
mod channel_swarm;
mod clocks;
mod common;
mod explicit;
mod golden;
mod memory;
mod parallel;
mod policies;
mod requests;
mod sabul2003;
mod sabul2026;
mod tcp_family;
mod tcp_host;
mod udt_family;
mod world;
mod world_swarm;
