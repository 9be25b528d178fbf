//! What is asked about files, and what is answered: names and facts, never content.

use serde::{Deserialize, Serialize};

use super::limits::{ITEM, MAX_NAME};
use super::{Failure, bounds};

/// Most places that one request about files names.
pub const MAX_PLACES: usize = 1024;
/// Most rules of one request, and longest pattern of a rule in bytes.
pub const MAX_RULES: usize = 64;
/// Longest pattern of a rule, in bytes.
pub const MAX_PATTERN: usize = 1 << 10;
/// Most entries that one [`super::Message::Seen`] carries.
pub const MAX_SEEN: usize = 1000;

/// Which files are taken and which are left out: the first rule of a list that fits a name decides.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rule {
    /// What fits is taken; otherwise it is left out.
    pub takes: bool,
    /// Where `*`, `?`, `[…]` and `{…}` stand for other bytes; at most [`MAX_PATTERN`] bytes.
    #[serde(deserialize_with = "bounds::bytes::<_, MAX_PATTERN>")]
    pub pattern: Vec<u8>,
}

/// A stretch of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Range {
    /// Bytes before it.
    pub offset: u64,
    /// Most bytes of it; none for all there are.
    pub length: Option<u64>,
}

/// What is told of places.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum View {
    /// Each place itself, links as links.
    Itself,
    /// A folder's entries, or the place where it is no folder.
    Content,
    /// All below a folder, links as links.
    All,
    /// What a copy of these sources would send, without folders.
    Files,
    /// What a copy of these sources would send, with what is in folders.
    Tree,
    /// The same with links as links.
    Archive,
}

/// What is known of a file without reading it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Facts {
    /// What it is.
    pub kind: SeenKind,
    /// Bytes of its content; of anything but a plain file, what the system says.
    pub size: u64,
    /// Permission bits, up to 0o7777.
    pub mode: u32,
    /// Modification time in nanoseconds since 1970; none beyond the years 1678 to 2262.
    pub modified_ns: Option<i64>,
    /// Number of its owner.
    pub owner: u32,
    /// Number of its group.
    pub group: u32,
}

/// What a name stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SeenKind {
    /// A plain file.
    File,
    /// A folder.
    Directory,
    /// A symbolic link.
    Link,
    /// A device, pipe or socket.
    Other,
}

/// One name, and what it stands for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seen {
    /// As a request would name it, or as a copy would; any bytes but NUL.
    #[serde(deserialize_with = "bounds::bytes::<_, MAX_NAME>")]
    pub path: Vec<u8>,
    /// What is known, or why nothing is.
    pub outcome: Result<Facts, Failure>,
}

impl Seen {
    /// What it is taken to need in memory, in bytes.
    pub(super) fn weight(&self) -> usize {
        let text = self.outcome.as_ref().err().map_or(0, |failure| failure.message.len());
        ITEM + self.path.len() + text
    }
}
