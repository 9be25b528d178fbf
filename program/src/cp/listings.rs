//! Listings of another machine for a comparison.

use std::sync::Arc;

use sabul::files::{Listing, Rule, Seen, View};
use sabul::internal::compare::{CompareOptions, ListOptions, Named, ReadParts};
use sabul::{Error, Session};
use tokio::runtime::Handle;

use super::entries::{Destination, Entries};
use super::files_from::NamedListing;
use crate::error::CliError;

/// Entries of a listing after which equal ones are left out. Ours: they take some 0.2 MB, and a small tree never waits for
/// digests.
const DIGESTS_FROM: u64 = 20_000;

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
        let options = self.options(view, rules, is_literal);
        Ok(match self.names {
            Some(names) => Box::new(NamedListing::new(self.session, places, view, options, names)?),
            None => {
                let listing = self.session.list_for_copy(places, view, options)?;
                Box::new(Remote { listing, runtime: Handle::current() })
            }
        })
    }

    /// Starts to list these literal places beside own entries, and returns both listings. With a single place, the other
    /// machine leaves out most entries of a large listing that are equal in a comparison with these options.
    pub(super) fn list_beside(
        &self,
        places: Vec<Vec<u8>>,
        view: View,
        rules: Vec<Rule>,
        compare: Option<&CompareOptions>,
        own: impl Iterator<Item = Seen> + Send + 'static,
    ) -> Result<(Entries, Entries), CliError> {
        let has_digests = places.len() == 1 && self.names.is_none() && !self.parts.content;
        // The own entries that wait would have the texts of their rule files.
        let has_no_texts = |compare: &&CompareOptions| compare.rules.file_name().is_none();
        let Some(compare) = compare.filter(|_| has_digests).filter(has_no_texts) else {
            return Ok((Box::new(own.map(Ok)), self.list(places, view, rules, true)?));
        };
        let digests = Some(compare.digests(DIGESTS_FROM));
        let options = ListOptions { digests, ..self.options(view, rules, true) };
        let (own, listing) = self.session.list_beside(places, view, options, compare, own)?;
        let listing = Remote { listing, runtime: Handle::current() };
        Ok((Box::new(own.map(|seen| seen.map_err(Error::from))), Box::new(listing)))
    }

    fn options(&self, view: View, rules: Vec<Rule>, literal: bool) -> ListOptions {
        let hashes = self.parts.content && view != View::Itself;
        let ReadParts { attributes, .. } = self.parts;
        ListOptions { rules, hashes, attributes, literal, ..ListOptions::default() }
    }

    /// Completes the listing of a destination of sources with these names.
    pub(super) fn destination(
        &self,
        to: &[u8],
        names: &[Vec<u8>],
        view: View,
        inside: Entries,
    ) -> Result<Destination, CliError> {
        if names.len() > 1 || names[0].is_empty() || to.is_empty() || to.ends_with(b"/") {
            return Ok(Destination::Known(inside));
        }
        // Only a listing of a copy has hashes. Only its first item is used.
        let itself = if self.parts.content { view } else { View::Itself };
        let itself = self.list(vec![to.to_vec()], itself, Vec::new(), true)?;
        Ok(Destination::Either { itself, inside, name: names[0].clone() })
    }
}
