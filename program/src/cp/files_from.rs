//! `--files-from`: the names of the entries to compare, from a file.
//!
//! The names are relative to the source and have no `..` above it. A list is sent to the other machine in portions, and
//! the portions are listed one after another.

use std::collections::{BTreeMap, VecDeque};
use std::ffi::OsStr;
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::Arc;

use sabul::files::{Seen, SeenKind, View};
use sabul::internal::compare::{ListOptions, MAX_NAMED, Named, NamedContent, NamedSet};
use sabul::{Error, Failure, FailureCode, Session};
use sabul_content::{Printable, RelativePath};
use tokio::runtime::Handle;

use super::entries::Entries;
use super::listings::Remote;
use crate::error::CliError;

/// Bytes of the names in one request. Ours: half of the limit of a request.
const BYTES_AT_ONCE: usize = 128 << 10;
/// Assumed bytes of a name besides its own.
const NAME_OVERHEAD: usize = 8;

/// Reads a list of names, sorted as a walk visits them. With `is_recursive`, named directories stand for their content.
pub(super) fn read(path: &Path, from0: bool, is_recursive: bool) -> Result<Vec<Named>, CliError> {
    let shown = path.display();
    let text = match path.as_os_str().as_bytes() {
        b"-" => {
            let mut text = Vec::new();
            std::io::stdin().lock().read_to_end(&mut text).map(|_| text)
        }
        _ => std::fs::read(path),
    };
    let text = text.map_err(|error| {
        CliError::usage(format!("cannot read the list {shown} of --files-from: {error}"))
    })?;
    parse(&text, from0, is_recursive)
        .map_err(|why| CliError::usage(format!("the list {shown} of --files-from: {why}")))
}

fn parse(text: &[u8], from0: bool, is_recursive: bool) -> Result<Vec<Named>, String> {
    let is_end = |byte: &u8| if from0 { *byte == 0 } else { matches!(byte, b'\n' | b'\r') };
    let mut names = BTreeMap::new();
    for line in text.split(is_end) {
        // As in rsync, these are comments. Programs write names with NUL bytes, and no comments.
        if line.is_empty() || !from0 && matches!(line[0], b'#' | b';') {
            continue;
        }
        let (path, content) = name(line, is_recursive)
            .map_err(|why| format!("'{}' {why}; correct the list", Printable(line)))?;
        let known = names.entry(key(&path)).or_insert(Named { path, content });
        known.content = known.content.max(content);
    }
    Ok(names.into_values().collect())
}

/// Normalizes a name.
fn name(line: &[u8], is_recursive: bool) -> Result<(Vec<u8>, NamedContent), String> {
    if line.starts_with(b"/") {
        return Err("is absolute; names are relative to the source".to_owned());
    }
    let mut parts: Vec<&[u8]> = Vec::new();
    for part in line.split(|&byte| byte == b'/') {
        match part {
            b"" | b"." => {}
            b".." => drop(parts.pop().ok_or("leads out of the source")?),
            _ => parts.push(part),
        }
    }
    let path = parts.join(&b'/');
    if !path.is_empty() {
        RelativePath::new(&*path).map_err(|error| format!("is no name: {error}"))?;
    }
    let last = line.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
    let content = match (is_recursive, last) {
        (true, _) => NamedContent::All,
        (false, b"" | b"." | b"..") => NamedContent::Entries,
        (false, _) => NamedContent::Nothing,
    };
    Ok((path, content))
}

/// Sort key of a path in a walk: no name has a NUL byte, so a slash that counts as NUL ends the shorter name first.
fn key(path: &[u8]) -> Vec<u8> {
    path.iter().map(|&byte| if byte == b'/' { 0 } else { byte }).collect()
}

/// Listing of the other machine, restricted to names; blocks.
pub(super) struct NamedListing {
    session: Session,
    runtime: Handle,
    places: Vec<Vec<u8>>,
    view: View,
    options: ListOptions,
    portions: VecDeque<Vec<Named>>,
    listing: Option<Remote>,
    /// Key of the last entry. The directories above a name are listed in each portion.
    last: Option<Vec<u8>>,
}

impl NamedListing {
    /// Starts the listing of one directory. The names are sorted as a walk visits them.
    pub(super) fn new(
        session: &Session,
        places: Vec<Vec<u8>>,
        view: View,
        options: ListOptions,
        names: &[Named],
    ) -> Result<Self, CliError> {
        Ok(Self {
            session: session.clone(),
            runtime: Handle::current(),
            places,
            view,
            options,
            portions: portions(names)?,
            listing: None,
            last: None,
        })
    }
}

impl Iterator for NamedListing {
    type Item = Result<Seen, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(listing) = &mut self.listing {
                match listing.next() {
                    Some(Ok(seen)) => {
                        let key = key(&seen.path);
                        if self.last.as_ref().is_none_or(|last| *last < key) {
                            self.last = Some(key);
                            return Some(Ok(seen));
                        }
                        continue;
                    }
                    Some(Err(error)) => return Some(Err(error)),
                    None => {}
                }
            }
            let names = Some(self.portions.pop_front()?);
            let options = ListOptions { names, ..self.options.clone() };
            let (places, runtime) = (self.places.clone(), self.runtime.clone());
            match self.session.list_for_copy(places, self.view, options) {
                Ok(listing) => self.listing = Some(Remote { listing, runtime }),
                Err(error) => return Some(Err(error)),
            }
        }
    }
}

/// Reports an entry that is no directory as a failure, if entries below it are named.
pub(super) fn checked(source: Entries, named: Option<Arc<NamedSet>>) -> Entries {
    let Some(named) = named else { return source };
    Box::new(source.map(move |seen| {
        let Seen { path, outcome, rules } = seen?;
        let is_parent = named.has_below(&path);
        let outcome = outcome.and_then(|facts| match facts.kind {
            SeenKind::Directory => Ok(facts),
            _ if !is_parent => Ok(facts),
            _ => {
                let text = format!(
                    "'{}' is no directory, but the list of --files-from names entries below it",
                    Printable(&path)
                );
                Err(Failure::new(FailureCode::Unreadable, text))
            }
        });
        Ok(Seen { path, outcome, rules })
    }))
}

/// Divides sorted names into requests. Names below a directory that is listed itself are in the same request.
fn portions(names: &[Named]) -> Result<VecDeque<Vec<Named>>, CliError> {
    let mut portions = VecDeque::from([Vec::new()]);
    let (mut bytes, mut above): (usize, Option<&Named>) = (0, None);
    for named in names {
        let size = named.path.len() + NAME_OVERHEAD;
        let is_below = above.is_some_and(|above| {
            let rest = named.path.strip_prefix(&above.path[..]);
            above.path.is_empty() || rest.is_some_and(|rest| rest.starts_with(b"/"))
        });
        let count = portions.back().map_or(0, Vec::len);
        if count == MAX_NAMED || bytes + size > BYTES_AT_ONCE {
            if let Some(above) = above.filter(|_| is_below) {
                return Err(CliError::usage(format!(
                    "the list of --files-from has too many names in '{}/', which is in the list; leave out these names \
                     or the directory",
                    Path::new(OsStr::from_bytes(&above.path)).display()
                )));
            }
            portions.push_back(Vec::new());
            bytes = 0;
        }
        if !is_below {
            above = (named.content != NamedContent::Nothing).then_some(named);
        }
        bytes += size;
        portions.back_mut().into_iter().for_each(|portion| portion.push(named.clone()));
    }
    Ok(portions)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str, from0: bool, is_recursive: bool) -> Result<Vec<String>, String> {
        let word = |named: Named| {
            let end = ["", "/", "/**"][named.content as usize];
            String::from_utf8(named.path).unwrap() + end
        };
        parse(text.as_bytes(), from0, is_recursive)
            .map(|names| names.into_iter().map(word).collect())
    }

    #[test]
    fn a_list_has_names_below_the_source_in_the_order_of_a_walk() {
        let text = "b\n# comment\n\n./a//c/\r\na/../a-b\n;x\na/c\n d \n";
        assert_eq!(parsed(text, false, false).unwrap(), [" d ", "a/c/", "a-b", "b"]);
        assert_eq!(parsed("x\ny\0z\0", true, true).unwrap(), ["x\ny/**", "z/**"]);
        assert_eq!(parsed("#x\0;y\0", true, false).unwrap(), ["#x", ";y"]);
        assert_eq!(parsed(".", false, false).unwrap(), ["/"]);
        for (text, why) in [("/a", "absolute"), ("../a", "leads out"), ("a/../../b", "leads out")] {
            let error = parsed(text, false, false).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
    }

    #[test]
    fn many_names_are_divided_but_not_below_a_listed_directory() {
        let named = |path: String, content| Named { path: path.into_bytes(), content };
        let mut names = vec![named("a".to_owned(), NamedContent::Entries)];
        names.extend((0..3000).map(|i| named(format!("a/{i:05}"), NamedContent::Nothing)));
        names.extend((0..3000).map(|i| named(format!("b/{i:05}"), NamedContent::Nothing)));
        let sizes: Vec<usize> = portions(&names).unwrap().iter().map(Vec::len).collect();
        assert_eq!(sizes, [MAX_NAMED, 6001 - MAX_NAMED]);
        names.extend((0..3000).map(|i| named(format!("b/x{i:05}"), NamedContent::Nothing)));
        names[0] = named(String::new(), NamedContent::Entries);
        portions(&names).unwrap_err();
    }
}
