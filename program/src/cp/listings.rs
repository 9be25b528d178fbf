//! Listings of another machine for a comparison.

use std::sync::Arc;

use sabul::files::{Listing, Rule, Seen, View};
use sabul::internal::compare::{ListOptions, Named, ReadParts};
use sabul::{Error, Session};
use tokio::runtime::Handle;

use super::entries::{Destination, Entries};
use super::files_from::NamedListing;
use super::names::join;
use crate::error::CliError;

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

/// Lists places of another machine.
pub(super) struct Lister<'a> {
    pub(super) session: &'a Session,
    /// Parts of files that the other machine reads.
    pub(super) parts: ReadParts,
    /// Only these entries are listed.
    pub(super) names: Option<&'a Arc<[Named]>>,
}

impl Lister<'_> {
    /// Starts to list these places. A literal place is no pattern, and its files are not opened.
    pub(super) fn list(
        &self,
        places: Vec<Vec<u8>>,
        view: View,
        rules: Vec<Rule>,
        is_literal: bool,
    ) -> Result<Entries, CliError> {
        let hashes = self.parts.content && view != View::Itself;
        let ReadParts { attributes, .. } = self.parts;
        let (literal, names, states) = (is_literal, None, false);
        let options = ListOptions { rules, hashes, attributes, literal, names, states };
        Ok(match self.names {
            Some(names) => Box::new(NamedListing::new(self.session, places, view, options, names)?),
            None => {
                let listing = self.session.list_for_copy(places, view, options)?;
                Box::new(Remote { listing, runtime: Handle::current() })
            }
        })
    }

    /// Starts to list a destination of sources with these names.
    pub(super) fn destination(
        &self,
        to: &[u8],
        names: &[Vec<u8>],
        view: View,
        rules: Vec<Rule>,
    ) -> Result<Destination, CliError> {
        let places = names.iter().map(|name| join(to, name)).collect();
        let inside = self.list(places, view, rules, true)?;
        if names.len() > 1 || names[0].is_empty() || to.is_empty() || to.ends_with(b"/") {
            return Ok(Destination::Known(inside));
        }
        // Only a listing of a copy has hashes. Only its first item is used.
        let itself = if self.parts.content { view } else { View::Itself };
        let itself = self.list(vec![to.to_vec()], itself, Vec::new(), true)?;
        Ok(Destination::Either { itself, inside, name: names[0].clone() })
    }
}
