//! The lab and the relay: paths for real sockets.

mod bad_path;
mod common;
mod lab;
mod memory;
mod relay;
