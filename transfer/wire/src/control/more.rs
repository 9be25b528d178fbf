//! Optional metadata of an entry: owner, link target, extended attributes, holes.

use serde::{Deserialize, Serialize};

use super::bounds;
use super::delta::{Kept, MAX_DELTA_EXTENTS};
use super::limits::{ITEM, MAX_NAME, MAX_WORD};
use super::listing::Facts;

/// Most extended attributes of one entry.
pub const MAX_ATTRIBUTES: usize = 64;
/// Longest name of an extended attribute, in bytes; the limit of Linux.
pub const MAX_ATTRIBUTE_NAME: usize = 255;
/// Longest value of an extended attribute, in bytes; the limit of Linux.
pub const MAX_ATTRIBUTE_VALUE: usize = 64 << 10;
/// Most bytes of names and values of one entry's attributes. Ours: twice the longest value.
pub const MAX_ATTRIBUTE_BYTES: usize = 128 << 10;
/// Most data extents that a sender reports for a sparse file. Ours: a map of 64 KiB in memory; of a file with more extents, the smallest
/// holes are sent as zeros.
pub const MAX_EXTENTS: usize = 4096;
/// Most kinds of lost metadata in one [`super::Done`].
pub const MAX_NOT_KEPT: usize = 8;

/// Optional metadata of an entry; an entry without any has no `More` on the wire.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct More {
    /// Owner and group.
    pub owner: Option<Owner>,
    /// Target of a symbolic link, or path of the earlier entry that a hard link names; otherwise empty.
    #[serde(deserialize_with = "bounds::bytes::<_, MAX_NAME>")]
    pub target: Vec<u8>,
    /// Extended attributes, access lists among them; at most [`MAX_ATTRIBUTES`].
    #[serde(deserialize_with = "bounds::list::<_, _, MAX_ATTRIBUTES>")]
    pub attributes: Vec<Attribute>,
    /// Number of attributes that were too many or too long to be sent.
    pub attributes_left: u32,
    /// Extents of a file whose bytes are sent, ascending; `None` for all bytes. The other ranges are holes, or `kept`.
    #[serde(deserialize_with = "bounds::optional_list::<_, _, MAX_DELTA_EXTENTS>")]
    pub data: Option<Vec<Extent>>,
    /// The ranges between the extents come from the receiver's old file.
    pub kept: Option<Kept>,
    /// Object that the entry may replace; `None` for any.
    pub replaces: Option<Replaces>,
    /// Facts of the file, if the request was for ranges from the end.
    pub facts: Option<Box<Facts>>,
}

/// Object of a name at the receiver, as a comparison found it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Replaces {
    /// No object has the name.
    Nothing,
    /// The object that was listed so.
    Seen(Box<Facts>),
}

/// Numeric ids of owner and group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    /// User id.
    pub user: u32,
    /// Group id.
    pub group: u32,
}

/// One extended attribute.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attribute {
    /// Name with its namespace, such as `user.origin`.
    #[serde(deserialize_with = "bounds::bytes::<_, MAX_ATTRIBUTE_NAME>")]
    pub name: Vec<u8>,
    /// Value; any bytes.
    #[serde(deserialize_with = "bounds::bytes::<_, MAX_ATTRIBUTE_VALUE>")]
    pub value: Vec<u8>,
}

/// A contiguous range of a sparse file that has data; between two extents there is a hole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Extent {
    /// Offset in the file, in bytes.
    pub offset: u64,
    /// Length in bytes; not zero.
    pub bytes: u64,
}

impl More {
    /// Assumed memory use in bytes.
    pub fn weight(&self) -> usize {
        let attributes = self.attributes.iter();
        let attributes: usize = attributes.map(|it| ITEM + it.name.len() + it.value.len()).sum();
        let data = self.data.as_ref().map_or(0, Vec::len) * size_of::<Extent>();
        let kept = self.kept.as_ref().map_or(0, Kept::weight);
        let replaces = self.replaces.as_ref().map_or(0, |_| size_of::<Facts>());
        let facts = self.facts.as_ref().map_or(0, |_| size_of::<Facts>());
        2 * ITEM + self.target.len() + attributes + data + kept + replaces + facts
    }
}

/// A kind of metadata that the receiver could not preserve for some entries. The entries themselves are complete.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotKept {
    /// Kind of metadata.
    pub what: Trait,
    /// Number of affected entries, or of attributes.
    pub count: u64,
    /// Cause of the first failure, for users; at most [`MAX_WORD`] bytes.
    #[serde(
        serialize_with = "bounds::short::<_, MAX_WORD>",
        deserialize_with = "bounds::text::<_, MAX_WORD>"
    )]
    pub why: String,
}

/// Kinds of metadata that may be lost. New kinds are added at the end: the position is the wire code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Trait {
    /// Owner or group.
    Owner,
    /// An extended attribute or access list.
    Attribute,
    /// Setuid, setgid and sticky bits, which are never preserved.
    Bits,
}
