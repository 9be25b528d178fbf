//! Callbacks for the progress of an upload through ssh, and for the user's decision.

use std::fmt;
use std::io::Write as _;

/// Receives the progress of an upload to the far end, and decides whether to upload.
pub trait UploadObserver: fmt::Debug + Send + Sync {
    /// `sent` of `total` bytes are on their way to this host.
    fn progress(&self, host: &str, sent: u64, total: u64);

    /// Returns whether to upload this program to a host of this system, which lacks it. `bytes`
    /// returns the size of the upload and takes a second. May wait for the user.
    fn confirm(&self, host: &str, system: &str, bytes: &dyn Fn() -> u64) -> bool;

    /// Shows a part of standard error of ssh, without control characters.
    fn show(&self, text: &str) {
        // ssh continues even if standard error has no reader.
        let _ = std::io::stderr().write_all(text.as_bytes());
    }
}

/// Shows nothing, and uploads nothing that the order does not have.
#[derive(Clone, Copy, Debug)]
pub struct NoObserver;

impl UploadObserver for NoObserver {
    fn progress(&self, _host: &str, _sent: u64, _total: u64) {}

    fn confirm(&self, _host: &str, _system: &str, _bytes: &dyn Fn() -> u64) -> bool {
        false
    }
}
