//! TUN devices, and the packets that the kernel hands over through them.
//!
//! | Part | Is |
//! |---|---|
//! | [`Device`] | an open device, with virtio headers and segmentation left to its reader |
//! | [`Bundle`] | one frame of it: up to 64 KiB behind one header, to be cut and joined |
//! | [`headers`] | the congestion headers in it: found, carried beside, written back |
//!
//! The lab's router and the program `sabul router` both stand on this.

mod device;
mod error;
pub mod headers;
mod packet;

pub use device::{Device, check_available};
pub use error::TunError;
pub use packet::{Bundle, Carried, FRAME_MAX, Malformed, Protocol, Tuple, VNET_BYTES};
