//! Object stores: where the content of a transfer comes from and goes to.
//!
//! An [`ObjectSource`] has objects that can be listed and read in ranges. An [`ObjectDestination`] takes objects in parts, in any
//! order, and publishes each with one call. A folder of a file system ([`Folder`]) and memory ([`Memory`]) implement
//! both. The traits also fit a bucket: reads are range requests of a version, writes are numbered parts, and
//! publication is one request. Every call may take long and blocks; several threads call at the same time. A store with
//! latency may read ahead and upload parts in the background. Errors are of the type
//! [`Failure`](sabul_wire::control::Failure), whose code is the kind of the error.
//!
//! Contract: `store/suite.rs`, which runs against every implementation.
//! Not here: owners, links and journals of files, which only file systems have (`destination.rs`).

pub(crate) mod file;
mod folder;
mod memory;
pub(crate) mod object;
mod sink;
#[cfg(any(test, feature = "testing"))]
pub mod suite;

pub use folder::Folder;
pub use memory::Memory;
pub use object::{NewObject, Object, ObjectDestination, ObjectSource, Objects, Upload, Version};
pub use sink::{StoreReceiver, StoreSink};
