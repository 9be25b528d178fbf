//! Validated relative paths: names received from the peer are checked before use.

use std::fmt;

use sabul_wire::Printable;

/// Maximum path length in bytes; Linux rejects longer paths too.
pub const MAX_PATH: usize = 4096;
/// Maximum length of a path component in bytes, as in all common file systems.
pub const MAX_COMPONENT: usize = 255;

/// A relative path of plain components joined by `/`; the path cannot leave its base directory.
///
/// Components are bytes, since file names need not be UTF-8.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RelativePath(Vec<u8>);

/// Bytes that are not a [`RelativePath`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathError {
    /// The rejected bytes, for the message.
    pub path: Vec<u8>,
    /// The reason for the rejection.
    pub flaw: PathFlaw,
}

/// Reason why bytes are not a valid path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathFlaw {
    /// The path is empty.
    Empty,
    /// The path is longer than [`MAX_PATH`].
    TooLong,
    /// The path starts with `/`.
    Absolute,
    /// The path has two slashes in a row, or ends with a slash.
    EmptyComponent,
    /// A component is `.`.
    Dot,
    /// A component is `..`.
    DotDot,
    /// A component is longer than [`MAX_COMPONENT`].
    ComponentTooLong,
    /// A byte is zero.
    Nul,
}

impl RelativePath {
    /// Validates the bytes.
    ///
    /// # Errors
    /// If the path could leave its base directory, or is too long or has a zero byte.
    pub fn new(path: impl Into<Vec<u8>>) -> Result<Self, PathError> {
        let path = path.into();
        match flaw(&path) {
            Some(flaw) => Err(PathError { path, flaw }),
            None => Ok(Self(path)),
        }
    }

    /// The validated bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The components in order; at least one.
    pub fn components(&self) -> impl DoubleEndedIterator<Item = &[u8]> {
        self.0.split(|&byte| byte == b'/')
    }

    /// Returns the bytes and discards the type.
    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }
}

fn flaw(path: &[u8]) -> Option<PathFlaw> {
    if path.is_empty() {
        return Some(PathFlaw::Empty);
    }
    if path.len() > MAX_PATH {
        return Some(PathFlaw::TooLong);
    }
    if path[0] == b'/' {
        return Some(PathFlaw::Absolute);
    }
    if path.contains(&0) {
        return Some(PathFlaw::Nul);
    }
    path.split(|&byte| byte == b'/').find_map(|component| match component {
        b"" => Some(PathFlaw::EmptyComponent),
        b"." => Some(PathFlaw::Dot),
        b".." => Some(PathFlaw::DotDot),
        _ if component.len() > MAX_COMPONENT => Some(PathFlaw::ComponentTooLong),
        _ => None,
    })
}

impl fmt::Display for RelativePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Printable(&self.0).fmt(f)
    }
}

impl fmt::Display for PathError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = &self.path[..self.path.len().min(MAX_COMPONENT)];
        write!(f, "the path '{}' {}", Printable(shown), self.flaw)
    }
}

impl std::error::Error for PathError {}

impl fmt::Display for PathFlaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("is empty"),
            Self::TooLong => write!(f, "is longer than {MAX_PATH} bytes"),
            Self::Absolute => f.write_str("is absolute"),
            Self::EmptyComponent => f.write_str("has an empty component"),
            Self::Dot => f.write_str("has a component '.'"),
            Self::DotDot => f.write_str("has a component '..'"),
            Self::ComponentTooLong => {
                write!(f, "has a component longer than {MAX_COMPONENT} bytes")
            }
            Self::Nul => f.write_str("contains a zero byte"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_could_leave_its_directory_is_refused_with_the_reason() {
        let long = [b"a/".repeat(2048), b"a".to_vec()].concat();
        let cases: &[(&[u8], PathFlaw)] = &[
            (b"", PathFlaw::Empty),
            (b"/etc/passwd", PathFlaw::Absolute),
            (b"/", PathFlaw::Absolute),
            (b"a//b", PathFlaw::EmptyComponent),
            (b"a/", PathFlaw::EmptyComponent),
            (b".", PathFlaw::Dot),
            (b"a/./b", PathFlaw::Dot),
            (b"..", PathFlaw::DotDot),
            (b"a/..", PathFlaw::DotDot),
            (b"../a", PathFlaw::DotDot),
            (b"a\0b", PathFlaw::Nul),
            (&[b'x'; 256], PathFlaw::ComponentTooLong),
            (&long, PathFlaw::TooLong),
        ];
        for (path, flaw) in cases {
            let error = RelativePath::new(*path).unwrap_err();
            assert_eq!(error.flaw, *flaw, "{error}");
        }
    }

    #[test]
    fn any_bytes_without_a_flaw_are_a_valid_path() {
        for path in [&b"a"[..], b"a/b", b"...", b".a", b"..a/b..", b"caf\xE9", &[b'x'; 255], b"-"] {
            assert_eq!(RelativePath::new(path).unwrap().as_bytes(), path);
        }
        let path = RelativePath::new(b"a/b/c").unwrap();
        assert_eq!(path.components().collect::<Vec<_>>(), [b"a", b"b", b"c"]);
    }

    #[test]
    fn a_path_error_escapes_control_characters() {
        assert!(RelativePath::new(b"x\n/../y").unwrap_err().to_string().contains("x\\n/../y"));
    }
}
