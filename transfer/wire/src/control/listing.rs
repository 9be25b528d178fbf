//! Requests about files and their answers: names and metadata, never content.

use serde::{Deserialize, Serialize};

use super::bounds;
use super::failure::Failure;
use super::limits::{ITEM, MAX_NAME};
use super::more::Owner;

/// Most paths in one request about files.
pub const MAX_PLACES: usize = 1024;
/// Most rules in one request.
pub const MAX_RULES: usize = 256;
/// Longest pattern of a rule, in bytes.
pub const MAX_PATTERN: usize = 1 << 10;
/// Longest rule file of a directory, in bytes.
pub const MAX_RULE_FILE: usize = 64 << 10;
/// Assumed memory use of an entry of a listing, in bytes.
const SEEN_ITEM: usize = ITEM + 96;
/// Most entries that one [`super::Message::Seen`] carries.
pub const MAX_SEEN: usize = 1000;

/// Most digests that one [`super::Message::Digests`] carries: it fits into a small message together with a path.
pub const MAX_DIGESTS: usize = 240;

/// Most names in one request for a listing.
pub const MAX_NAMED: usize = 4096;

/// Settings of a listing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListOptions {
    /// Include and exclude rules of a copy; at most [`MAX_RULES`].
    #[serde(deserialize_with = "bounds::list::<_, _, MAX_RULES>")]
    pub rules: Vec<Rule>,
    /// Read and hash the content of regular files, for the views of a copy.
    pub hashes: bool,
    /// Read the extended attributes of files and directories, for the views of a copy and for [`View::Itself`].
    pub attributes: bool,
    /// No path is a pattern.
    pub literal: bool,
    /// Only these entries and the directories above are listed, for the views of a copy; at most [`MAX_NAMED`].
    #[serde(deserialize_with = "bounds::optional_list::<_, _, MAX_NAMED>")]
    pub names: Option<Vec<Named>>,
    /// The hash of each regular file is that of its state instead of its content, for the views of a copy. The state is what
    /// a change of the content changes: size, times and inode number.
    pub states: bool,
    /// Runs of entries that the opener has too may be left out.
    pub digests: Option<RunDigests>,
}

/// Entries that a listing leaves out: runs of files, links and others whose digest the opener has sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunDigests {
    /// Number of entries at the beginning that are listed completely.
    pub after: u64,
    /// A digest covers the modification times; those of links always.
    pub times: bool,
    /// A digest covers the permission bits, except of links.
    pub modes: bool,
    /// A digest covers owner and group.
    pub owners: bool,
}

/// Start of a BLAKE3 hash over the entries of a run.
pub type RunDigest = [u8; 16];

/// Mark in a listing: the opener has the rest of a run, whose first entry precedes the mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SameRun {
    /// Number of entries of the message before the mark.
    pub at: u32,
    /// Digest of the run. Only the directories among its other entries follow.
    pub digest: RunDigest,
}

impl ListOptions {
    /// Whether the answer depends on the content of files: their hashes, or the text of rule files.
    pub fn reads_content(&self) -> bool {
        self.hashes || self.rules.iter().any(|rule| rule.kind == RuleKind::Files)
    }

    /// Assumed memory use in bytes.
    pub(super) fn weight(&self) -> usize {
        let names = self.names.iter().flatten().map(|named| ITEM + named.path.len());
        let rules = self.rules.iter().map(|rule| ITEM + rule.pattern.len());
        names.chain(rules).sum()
    }
}

/// Name of an entry to list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Named {
    /// Name relative to the directory whose content is listed; empty for the directory itself.
    #[serde(deserialize_with = "bounds::bytes::<_, MAX_NAME>")]
    pub path: Vec<u8>,
    /// Listed part of the content, if the entry is a directory.
    pub content: NamedContent,
}

/// Listed part of the content of a named directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum NamedContent {
    /// Nothing.
    Nothing,
    /// Its entries, without the content of these.
    Entries,
    /// Everything.
    All,
}

/// Include or exclude rule: the first rule of a list that matches a name decides.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rule {
    /// Effect of the rule.
    pub kind: RuleKind,
    /// Glob pattern with `*`, `?`, `[…]` and `{…}`, or name of the rule files; at most [`MAX_PATTERN`] bytes.
    #[serde(deserialize_with = "bounds::bytes::<_, MAX_PATTERN>")]
    pub pattern: Vec<u8>,
}

/// Effect of a [`Rule`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RuleKind {
    /// Matching entries are excluded.
    Exclude,
    /// Matching entries are included.
    Include,
    /// Each directory of the source may have a file of this name, with rules in the syntax of gitignore(5) for the entries
    /// below the directory.
    Files,
}

/// A byte range of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Range {
    /// Offset in bytes.
    pub offset: u64,
    /// Most bytes to read; `None` up to the end of the file.
    pub length: Option<u64>,
}

/// Kind of listing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum View {
    /// Each path itself; links are not followed.
    Itself,
    /// The entries of a directory; for anything else, the path itself.
    Content,
    /// Everything below a directory; links are not followed.
    All,
    /// The files that a copy of these sources would send, without directories.
    Files,
    /// The files that a copy of these sources would send, with the content of directories.
    Tree,
    /// As [`View::Tree`], with links as links.
    Archive,
}

/// Metadata of a file, available without reading the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Facts {
    /// Kind of the file.
    pub kind: SeenKind,
    /// Content size in bytes; for anything but a regular file, the size from the system.
    pub size: u64,
    /// Permission bits, up to 0o7777.
    pub mode: u32,
    /// Modification time in nanoseconds since 1970; `None` outside the years 1678 to 2262.
    pub modified_ns: Option<i64>,
    /// User id of the owner.
    pub owner: u32,
    /// Group id.
    pub group: u32,
    /// BLAKE3 hash of the content of a regular file, if the listing was requested with hashes; or of its state.
    pub hash: Option<[u8; 32]>,
    /// Extended attributes of a file or directory, if requested and readable.
    pub attributes: Option<SeenAttributes>,
    /// Identity; `None` for an object of a store.
    pub id: Option<Identity>,
    /// The file has several names (hard links).
    pub is_shared: bool,
}

impl Facts {
    /// Metadata of an object of root with this kind, size and time: no permissions, hash, attributes or identity.
    pub const fn new(kind: SeenKind, size: u64, modified_ns: Option<i64>) -> Self {
        Self {
            kind,
            size,
            mode: 0,
            modified_ns,
            owner: 0,
            group: 0,
            hash: None,
            attributes: None,
            id: None,
            is_shared: false,
        }
    }
}

/// Extended attributes that a copy keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SeenAttributes {
    /// Start of the BLAKE3 hash of the attributes of users; `None` if the file system keeps none.
    pub users: Option<[u8; 8]>,
    /// Start of the BLAKE3 hash of the access control lists, without the rights that the mode has too; `None` if the file
    /// system keeps none.
    pub lists: Option<[u8; 8]>,
    /// Group bits that an access control list leaves to the owning group, as in a mode. The group bits of the mode are the
    /// mask of the list.
    pub group: u32,
}

/// Identity of a file or directory, whatever its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// Device number.
    pub device: u64,
    /// Inode number.
    pub inode: u64,
    /// Birth time in nanoseconds since 1970; zero if unknown.
    pub born_ns: i64,
}

/// Directory that a transfer may write to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Expected {
    /// Any directory.
    #[default]
    Any,
    /// A directory that the receiver creates.
    New {
        /// Only the receiver's user has rights until the opener sets the metadata.
        is_private: bool,
    },
    /// The directory with this identity.
    Same(Identity),
}

/// Kind of a directory entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SeenKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Link,
    /// A device, pipe or socket.
    Other,
}

/// New metadata of a file or directory that exists.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewMetadata {
    /// Path relative to the root; a symbolic link is not followed.
    #[serde(deserialize_with = "bounds::bytes::<_, MAX_NAME>")]
    pub path: Vec<u8>,
    /// Permission bits.
    pub mode: Option<u32>,
    /// Modification time in nanoseconds since 1970.
    pub modified_ns: Option<i64>,
    /// Owner and group.
    pub owner: Option<Owner>,
    /// Metadata of the entry as it was compared. An entry with another kind, owner, group, mode or identity is not
    /// changed, nor a file with another size or time.
    pub seen: Facts,
}

impl NewMetadata {
    /// Assumed memory use in bytes.
    pub(super) fn weight(&self) -> usize {
        ITEM + size_of::<Facts>() + self.path.len()
    }
}

/// One listed name with its metadata.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seen {
    /// Path, as a request or a copy would name it; any bytes but NUL.
    #[serde(deserialize_with = "bounds::bytes::<_, MAX_NAME>")]
    pub path: Vec<u8>,
    /// Metadata, or the reason why there is none.
    pub outcome: Result<Facts, Failure>,
    /// Text of the rule file of a directory, in a listing of a source; at most [`MAX_RULE_FILE`] bytes.
    #[serde(deserialize_with = "bounds::bytes::<_, MAX_RULE_FILE>")]
    pub rules: Vec<u8>,
}

impl Seen {
    /// Assumed memory use in bytes.
    pub(super) fn weight(&self) -> usize {
        let text = self.outcome.as_ref().err().map_or(0, |failure| failure.message.len());
        SEEN_ITEM + self.path.len() + text + self.rules.len()
    }
}
