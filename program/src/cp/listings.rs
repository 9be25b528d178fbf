//! Listing of the other machine for a comparison.

use sabul::Error;
use sabul::files::{Listing, Seen};
use tokio::runtime::Handle;

/// Listing of the other machine; blocks.
pub(super) struct Remote {
    pub(super) listing: Listing,
    pub(super) runtime: Handle,
}

impl Iterator for Remote {
    type Item = Result<Seen, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        self.runtime.block_on(self.listing.next()).transpose()
    }
}
