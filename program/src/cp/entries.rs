//! Listings of one end as a comparison needs them, and lookups of single entries.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::Path;

use sabul::files::{Facts, Seen, SeenKind};
use sabul::internal::Chmod;
use sabul::internal::compare::{CompareOptions, Difference, ReadParts, facts_with};
use sabul::{Error, Failure, FailureCode};
use sabul_content::RelativePath;

use super::names::{is_pattern, join};
use super::plan::source_set;
use crate::error::CliError;

/// Listing of one end.
pub(super) type Entries = Box<dyn Iterator<Item = Result<Seen, Error>> + Send>;

/// A listing of the other machine. An invalid name, such as a name with `..`, is a failure: names decide what is
/// changed at this machine.
pub(super) fn valid(source: Entries) -> Entries {
    Box::new(source.map(|seen| {
        let mut seen = seen?;
        let is_content = seen.path.is_empty() && !seen.rules.is_empty();
        if seen.outcome.is_ok() && !is_content && RelativePath::new(&*seen.path).is_err() {
            let text = "the peer lists an invalid name";
            seen.outcome = Err(Failure::new(FailureCode::Protocol, text));
        }
        Ok(seen)
    }))
}

/// A listing of the other machine with changed permission bits.
pub(super) fn changed(source: Entries, chmod: &Chmod) -> Entries {
    let chmod = chmod.clone();
    Box::new(source.map(move |seen| {
        let mut seen = seen?;
        seen.outcome.iter_mut().for_each(|facts| chmod.change_facts(facts));
        Ok(seen)
    }))
}

/// A listing that ends at its first error, if errors do not matter.
pub(super) fn tolerant(entries: Entries, is_tolerant: bool) -> Entries {
    match is_tolerant {
        true => Box::new(entries.take_while(Result::is_ok)),
        false => entries,
    }
}

/// Names of a listing that came before. Only several sources, or a pattern, can have a name twice.
pub(super) struct Repeated(Option<BTreeSet<[u8; 16]>>);

impl Repeated {
    pub(super) fn of(sources: &[Vec<u8>]) -> Self {
        let is_one = matches!(sources, [only] if !is_pattern(only));
        Self((!is_one).then(BTreeSet::new))
    }

    /// Records the name of an entry. Directories of one name become one directory.
    ///
    /// # Errors
    /// If the name came before.
    pub(super) fn check(
        &mut self,
        path: &[u8],
        outcome: Result<Facts, Failure>,
    ) -> Result<Facts, Failure> {
        let source = outcome?;
        let names = self.0.as_mut().filter(|_| source.kind != SeenKind::Directory);
        let mut short = [0; 16];
        short.copy_from_slice(&blake3::hash(path).as_bytes()[..16]);
        if names.is_none_or(|names| names.insert(short)) {
            return Ok(source);
        }
        let text = "two sources have this name, and only the first is copied; rename one, or copy it to another directory";
        Err(Failure::new(FailureCode::Unwritable, text))
    }
}

/// Returns the difference of an entry that both ends may have.
pub(super) fn difference_of(
    options: &CompareOptions,
    path: Vec<u8>,
    source: Facts,
    old: Option<Facts>,
) -> Difference {
    let Some(old) = old else { return Difference::Copy { path, source, old } };
    if options.is_same(&source, &old) {
        return Difference::Same { path, source, is_there: true };
    }
    let are_files = [source.kind, old.kind] == [SeenKind::File; 2];
    let is_adjusted = are_files && options.has_same_content(&source, &old);
    match is_adjusted && !options.would_give_away(&source, &old, []) {
        true => Difference::Adjust { path, source, old },
        false => Difference::Copy { path, source, old: Some(old) },
    }
}

/// Metadata of the file at the destination of an entry, if a file is there.
pub(super) fn lookup(to: &OsStr, is_into: bool, path: &[u8], parts: ReadParts) -> Option<Facts> {
    let below = match is_into {
        true => Some(path),
        false => path.iter().position(|&byte| byte == b'/').map(|slash| &path[slash + 1..]),
    };
    let place = match below {
        Some(below) => OsString::from_vec(join(to.as_bytes(), below)),
        None => to.to_owned(),
    };
    facts_with(Path::new(&place), parts)
}

/// Listing of the destination.
pub(super) enum Destination {
    Known(Entries),
    /// The destination may be a directory that takes the only source of this name, or the place of that source.
    Either {
        itself: Entries,
        inside: Entries,
        name: Vec<u8>,
    },
}

impl Destination {
    /// Destination on this machine of these sources, whose names are listed in `inside`.
    pub(super) fn local(
        place: &OsString,
        inside: Entries,
        names: &[Vec<u8>],
        follows_links: bool,
        parts: ReadParts,
    ) -> Result<Self, CliError> {
        Ok(match names {
            [name] if !name.is_empty() && !place.as_bytes().ends_with(b"/") => {
                let itself = source_set(std::slice::from_ref(place), true)?
                    .with_archive_mode(!follows_links);
                let itself = Box::new(itself.plan_compared(parts).map(Ok));
                Self::Either { itself, inside, name: name.clone() }
            }
            _ => Self::Known(inside),
        })
    }

    /// Returns the entries, and whether the destination is a file that the only source replaces.
    pub(super) fn resolve(self) -> Result<(Entries, bool), Error> {
        match self {
            Self::Known(entries) => Ok((entries, false)),
            Self::Either { mut itself, inside, name } => match itself.next() {
                Some(Ok(Seen { outcome: Ok(facts), .. })) if facts.kind == SeenKind::File => {
                    let seen = Seen { path: name, outcome: Ok(facts), rules: Vec::new() };
                    Ok((Box::new(std::iter::once(Ok(seen))), true))
                }
                None => Ok((Box::new(std::iter::empty()), false)),
                Some(Ok(Seen { outcome: Err(failure), .. }))
                    if failure.code == FailureCode::NotFound =>
                {
                    Ok((Box::new(std::iter::empty()), false))
                }
                // The entries report why the destination cannot be examined.
                Some(_) => Ok((inside, false)),
            },
        }
    }
}
