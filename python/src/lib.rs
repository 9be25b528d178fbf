//! Extension module `sabul._sabul`: sessions and transfers of the library for the Python package.
//!
//! The Python files around this module hold types, defaults and documentation. Each function here takes `waits`: if
//! true, the function releases the GIL and blocks; otherwise the function returns an awaitable of asyncio. Streams of
//! `frames` have awaitables only.

mod controller;
mod dial;
mod error;
mod frames;
mod options;
mod runtime;
mod series;
mod session;
mod sim;
mod transfer;
mod upload;

use pyo3::prelude::*;

/// The extension module.
#[pymodule]
mod _sabul {
    #[pymodule_export]
    use crate::controller::{
        Acked, IntervalReport, Limits, LossReport, register, stop_controllers,
    };
    #[pymodule_export]
    use crate::dial::{connect, escape, split};
    #[pymodule_export]
    use crate::frames::{FrameListener, FrameSession, FrameWriter, connect_frames, listen_frames};
    #[pymodule_export]
    use crate::series::Table;
    #[pymodule_export]
    use crate::session::{Reads, Session};
    #[pymodule_export]
    use crate::sim::simulate;
    #[pymodule_export]
    use crate::transfer::Transfer;
    #[pymodule_export]
    use crate::upload::Upload;

    use super::*;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
