//! Sockets on loopback: batches, offload, one port, waiting.

mod common;
mod delivery;
mod narrow_path;
mod one_port;
mod waiting;
