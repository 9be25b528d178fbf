//! Named entries of a listing, with the directories above them (`--files-from`).
//!
//! A walk visits only these names, and does not read the directories that are not listed themselves.

use std::collections::{BTreeMap, BTreeSet};

use sabul_content::{Printable, RelativePath};
use sabul_wire::control::{Failure, FailureCode, Named, NamedContent};

/// Names of entries below the directory whose content is listed.
#[derive(Clone, Debug, Default)]
pub struct NamedSet {
    /// Names in a directory, by the path of the directory.
    children: BTreeMap<Vec<u8>, BTreeSet<Vec<u8>>>,
    content: BTreeMap<Vec<u8>, NamedContent>,
}

impl NamedSet {
    /// Collects the names.
    ///
    /// # Errors
    /// If a name is no relative path.
    pub fn new(names: &[Named]) -> Result<Self, Failure> {
        let mut set = Self::default();
        for Named { path, content } in names {
            if !path.is_empty() {
                RelativePath::new(&**path).map_err(|error| {
                    let text = format!("'{}' cannot be listed: {error}", Printable(path));
                    Failure::new(FailureCode::BadSetting, text)
                })?;
            }
            let known = set.content.entry(path.clone()).or_insert(*content);
            *known = (*known).max(*content);
            let mut path = &path[..];
            while !path.is_empty() {
                let (above, name) = split(path);
                if !set.children.entry(above.to_vec()).or_default().insert(name.to_vec()) {
                    break;
                }
                path = above;
            }
        }
        Ok(set)
    }

    /// Whether all entries of a directory are listed.
    pub(super) fn lists_all(&self, directory: &[u8]) -> bool {
        let content = |path: &[u8]| self.content.get(path).copied();
        if content(directory).is_some_and(|content| content != NamedContent::Nothing) {
            return true;
        }
        let mut path = directory;
        while !path.is_empty() {
            path = split(path).0;
            if content(path) == Some(NamedContent::All) {
                return true;
            }
        }
        false
    }

    /// The names in a directory that are listed, or that are above listed entries.
    pub(super) fn children(&self, directory: &[u8]) -> Vec<Vec<u8>> {
        self.children.get(directory).into_iter().flatten().cloned().collect()
    }

    /// Whether entries below a path are listed by their names.
    pub fn has_below(&self, path: &[u8]) -> bool {
        self.children.contains_key(path)
    }
}

/// The directory and the last name of a path.
fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|&byte| byte == b'/') {
        Some(slash) => (&path[..slash], &path[slash + 1..]),
        None => (b"", path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_the_directories_above_are_listed() {
        let named = |path: &str, content| Named { path: path.into(), content };
        let set = NamedSet::new(&[
            named("a/b/c", NamedContent::Nothing),
            named("a/d", NamedContent::Entries),
            named("e", NamedContent::All),
            named("e/f/g", NamedContent::Nothing),
        ])
        .unwrap();
        assert_eq!(set.children(b""), [b"a", b"e"]);
        assert_eq!(set.children(b"a"), [b"b", b"d"]);
        assert_eq!(set.children(b"e"), [b"f"]);
        assert!(set.children(b"a/b/c").is_empty());
        for (directory, all) in
            [("", false), ("a", false), ("a/d", true), ("a/d/x", false), ("e", true), ("e/f", true)]
        {
            assert_eq!(set.lists_all(directory.as_bytes()), all, "{directory}");
        }
        assert!(set.has_below(b"a/b") && !set.has_below(b"a/d"));
        for path in ["../x", "/x", "a//b"] {
            NamedSet::new(&[named(path, NamedContent::All)]).unwrap_err();
        }
    }
}
