//! Sandbox paths: relative paths that cannot leave their root.

use std::fmt;

use super::fault::RootError;

/// Maximum length of a name in bytes (`NAME_MAX` of Linux and the BSDs).
pub const MAX_NAME: usize = 255;
/// Maximum length of a path in bytes, including slashes (`PATH_MAX` of Linux, less its NUL).
pub const MAX_PATH: usize = 4095;
/// Maximum number of bytes of a rejected name in an error message.
const MAX_SHOWN: usize = 64;

/// A path below the root of a sandbox: a list of plain names, empty for the root itself.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RootPath {
    /// The names, joined by slashes.
    joined: Vec<u8>,
}

/// Flaw of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameFault {
    /// The name is empty.
    Empty,
    /// The name is `.` or `..`.
    Dots,
    /// The name contains a slash, as absolute paths do.
    Slash,
    /// The name contains a NUL byte.
    Nul,
    /// The name is longer than [`MAX_NAME`], or makes its path longer than [`MAX_PATH`].
    TooLong,
}

impl fmt::Display for NameFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("it is empty"),
            Self::Dots => f.write_str("it would leave its folder"),
            Self::Slash => f.write_str("it contains a slash"),
            Self::Nul => f.write_str("it contains a NUL byte"),
            Self::TooLong => write!(f, "names have up to {MAX_NAME} bytes, paths {MAX_PATH}"),
        }
    }
}

impl RootPath {
    /// The root of the sandbox.
    pub const fn root() -> Self {
        Self { joined: Vec::new() }
    }

    /// Builds the path of these names, outermost first.
    ///
    /// # Errors
    /// If a name is invalid, or the path is too long.
    pub fn new<N: AsRef<[u8]>>(names: impl IntoIterator<Item = N>) -> Result<Self, RootError> {
        names.into_iter().try_fold(Self::root(), |path, name| path.joined_with(name.as_ref()))
    }

    /// The path of `name` in this folder.
    ///
    /// # Errors
    /// As [`RootPath::new`].
    pub fn join(&self, name: impl AsRef<[u8]>) -> Result<Self, RootError> {
        self.clone().joined_with(name.as_ref())
    }

    /// The parent folder; `None` for the root.
    pub fn parent(&self) -> Option<Self> {
        let parent = match self.last_slash() {
            Some(slash) => &self.joined[..slash],
            None if self.is_root() => return None,
            None => &[],
        };
        Some(Self { joined: parent.to_vec() })
    }

    /// The last name; `None` for the root.
    pub fn name(&self) -> Option<&[u8]> {
        let start = self.last_slash().map_or(0, |slash| slash + 1);
        Some(&self.joined[start..]).filter(|name| !name.is_empty())
    }

    /// Whether this is the root.
    pub const fn is_root(&self) -> bool {
        self.joined.is_empty()
    }

    /// The names, outermost first.
    pub fn components(&self) -> impl DoubleEndedIterator<Item = &[u8]> {
        self.joined.split(|&b| b == b'/').filter(|name| !name.is_empty())
    }

    /// The names joined by slashes, or `.` for the root.
    pub fn as_bytes(&self) -> &[u8] {
        if self.is_root() { b"." } else { &self.joined }
    }

    fn last_slash(&self) -> Option<usize> {
        self.joined.iter().rposition(|&b| b == b'/')
    }

    fn joined_with(mut self, name: &[u8]) -> Result<Self, RootError> {
        let separator = usize::from(!self.is_root());
        let fault = match name {
            b"" => Some(NameFault::Empty),
            b"." | b".." => Some(NameFault::Dots),
            _ if name.contains(&b'/') => Some(NameFault::Slash),
            _ if name.contains(&0) => Some(NameFault::Nul),
            _ if name.len() > MAX_NAME => Some(NameFault::TooLong),
            _ if self.joined.len() + separator + name.len() > MAX_PATH => Some(NameFault::TooLong),
            _ => None,
        };
        if let Some(fault) = fault {
            let shown = &name[..name.len().min(MAX_SHOWN)];
            return Err(RootError::BadName { name: printable(shown), fault });
        }
        if separator == 1 {
            self.joined.push(b'/');
        }
        self.joined.extend_from_slice(name);
        Ok(self)
    }
}

/// Printable form: control characters are escaped, because they could manipulate a terminal.
impl fmt::Display for RootPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&printable(self.as_bytes()))
    }
}

impl fmt::Debug for RootPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RootPath({self})")
    }
}

fn printable(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes)
        .chars()
        .map(|c| if c.is_control() { c.escape_default().to_string() } else { c.to_string() })
        .collect()
}
