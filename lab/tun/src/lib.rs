//! TUN devices, and the packets that the kernel passes through them.
//!
//! | Part | Is |
//! |---|---|
//! | [`Device`] | an open device with virtio headers, whose reader does the segmentation |
//! | [`Bundle`] | one frame: up to 64 KiB behind one header, to be cut and joined |
//! | [`headers`] | congestion headers of a frame: found, copied out, written back |
//!
//! The lab's router and the program `sabul router` both use this crate.

mod device;
mod error;
pub mod headers;
mod packet;

pub use device::{Device, check_available};
pub use error::TunError;
pub use packet::{Bundle, Carried, FRAME_MAX, Malformed, Protocol, Tuple, VNET_BYTES};
