//! Check of announced entries by the application.

use std::fmt;

use sabul_wire::control::{Entry, Failure};

/// Check of the entries of a transfer. A failed check ends the transfer.
pub trait Gate: Send {
    /// Checks an entry before any operation on the entry, and may change its metadata.
    ///
    /// # Errors
    /// If the entry is not admitted.
    fn admit(&mut self, entry: &mut Entry) -> Result<(), Failure>;

    /// Called once all entries were announced.
    ///
    /// # Errors
    /// If an entry is missing.
    fn end(&mut self) -> Result<(), Failure> {
        Ok(())
    }
}

impl<F: FnMut(&mut Entry) -> Result<(), Failure> + Send> Gate for F {
    fn admit(&mut self, entry: &mut Entry) -> Result<(), Failure> {
        self(entry)
    }
}

/// The gate of a receiver.
pub(super) struct BoxedGate(pub(super) Box<dyn Gate>);

impl fmt::Debug for BoxedGate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Gate")
    }
}
