//! What a user sees and decides while ssh makes the other end ready.

use std::fmt;

/// Gets the progress of a program that is sent to the other end, and decides whether to send one.
pub trait Watch: fmt::Debug + Send + Sync {
    /// `sent` bytes of `total` are on their way to this host.
    fn sending(&self, host: &str, sent: u64, total: u64);

    /// Whether to send this program to a host of this system, which has none. `bytes` returns how much is sent; that takes
    /// a second. May wait for a person.
    fn send_along(&self, host: &str, system: &str, bytes: &dyn Fn() -> u64) -> bool;
}

/// Shows nothing, and sends no program that was not ordered.
#[derive(Clone, Copy, Debug)]
pub struct Unwatched;

impl Watch for Unwatched {
    fn sending(&self, _host: &str, _sent: u64, _total: u64) {}

    fn send_along(&self, _host: &str, _system: &str, _bytes: &dyn Fn() -> u64) -> bool {
        false
    }
}
