//! What an entry has beside its name, content, bits and time; most have nothing of it.

use serde::{Deserialize, Serialize};

use super::bounds;
use super::limits::{ITEM, MAX_NAME, MAX_WORD};

/// Most extended attributes of one entry.
pub const MAX_ATTRIBUTES: usize = 64;
/// Longest name of an extended attribute, in bytes; Linux refuses longer ones too.
pub const MAX_ATTRIBUTE_NAME: usize = 255;
/// Longest value of an extended attribute, in bytes; Linux refuses longer ones too.
pub const MAX_ATTRIBUTE_VALUE: usize = 64 << 10;
/// Most bytes of names and values of one entry's attributes. Ours: twice what one value may have.
pub const MAX_ATTRIBUTE_BYTES: usize = 128 << 10;
/// Most stretches of data of one file with holes. Ours: a map of 64 KiB in memory; of a file that has more, the
/// smallest holes are sent as the zeros that they are.
pub const MAX_EXTENTS: usize = 4096;
/// Most kinds of things that one [`super::Done`] says were not kept.
pub const MAX_NOT_KEPT: usize = 8;

/// What an entry has beside the rest; what it has nothing of does not cross the wire.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct More {
    /// Who owns it.
    pub owner: Option<Owner>,
    /// Of a symbolic link the text, of a hard link the path of the earlier entry that is the same file; of anything
    /// else nothing.
    #[serde(deserialize_with = "bounds::bytes::<_, MAX_NAME>")]
    pub target: Vec<u8>,
    /// Extended attributes, access lists among them; at most [`MAX_ATTRIBUTES`].
    #[serde(deserialize_with = "bounds::list::<_, _, MAX_ATTRIBUTES>")]
    pub attributes: Vec<Attribute>,
    /// Attributes that it has as well and that were too many or too long to be sent.
    pub attributes_left: u32,
    /// Where a file with holes has data, in order; none of a file without holes.
    #[serde(deserialize_with = "bounds::optional_list::<_, _, MAX_EXTENTS>")]
    pub data: Option<Vec<Extent>>,
}

/// Numbers of an owner and a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    /// Of the owner.
    pub user: u32,
    /// Of the group.
    pub group: u32,
}

/// One extended attribute.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attribute {
    /// With its name space, such as `user.origin`.
    #[serde(deserialize_with = "bounds::bytes::<_, MAX_ATTRIBUTE_NAME>")]
    pub name: Vec<u8>,
    /// Any bytes.
    #[serde(deserialize_with = "bounds::bytes::<_, MAX_ATTRIBUTE_VALUE>")]
    pub value: Vec<u8>,
}

/// A stretch of a file that has data; between two of them there is a hole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Extent {
    /// Bytes before it.
    pub offset: u64,
    /// Its length in bytes; not zero.
    pub bytes: u64,
}

impl More {
    /// What it is taken to need in memory, in bytes.
    pub fn weight(&self) -> usize {
        let attributes = self.attributes.iter();
        let attributes: usize = attributes.map(|it| ITEM + it.name.len() + it.value.len()).sum();
        let data = self.data.as_ref().map_or(0, Vec::len) * size_of::<Extent>();
        2 * ITEM + self.target.len() + attributes + data
    }
}

/// A kind of thing that a receiver could not keep of some entries, which it has otherwise.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotKept {
    /// Which.
    pub what: Trait,
    /// Of how many entries, or how many attributes.
    pub count: u64,
    /// Why the first of them, for people; at most [`MAX_WORD`] bytes.
    #[serde(
        serialize_with = "bounds::short::<_, MAX_WORD>",
        deserialize_with = "bounds::text::<_, MAX_WORD>"
    )]
    pub why: String,
}

/// What may not be kept of an entry. New ones are added at the end: the position is the wire code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Trait {
    /// Owner or group.
    Owner,
    /// An extended attribute or access list.
    Attribute,
    /// Bits that lend rights (setuid, setgid) and the sticky bit, which are never kept.
    Bits,
}
