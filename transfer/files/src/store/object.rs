//! The traits of object stores, and descriptions of objects.

use std::collections::BTreeMap;
use std::fmt;

use sabul_content::{Layout, RelativePath};
use sabul_wire::control::{Entry, EntryKind, Extent, Failure, FailureCode, More};

/// Objects that a transfer can read.
pub trait ObjectSource: fmt::Debug + Send + Sync {
    /// Lists all objects. Names are sorted component by component, each by its bytes. An object that cannot be sent is a
    /// failure in its place.
    ///
    /// # Errors
    /// If the list cannot be read.
    fn list(&self) -> Result<Objects<'_>, Failure>;

    /// Returns the current version of an object.
    ///
    /// # Errors
    /// [`FailureCode::NotFound`] if there is no such object.
    fn stat(&self, path: &RelativePath) -> Result<Object, Failure>;

    /// Appends bytes of this version from `offset` into the spare capacity of `into`; returns their number. Zero means
    /// the end of the object.
    ///
    /// # Errors
    /// [`FailureCode::Changed`] if the object has another version now.
    fn read(&self, object: &Object, offset: u64, into: &mut Vec<u8>) -> Result<usize, Failure>;
}

/// Where a transfer writes objects.
pub trait ObjectDestination: fmt::Debug + Send + Sync {
    /// Returns the published object of this name; `None` if there is none.
    ///
    /// # Errors
    /// If the destination cannot be read.
    fn find(&self, path: &RelativePath) -> Result<Option<Object>, Failure>;

    /// Starts an object. The object of this name, if any, stays visible until [`Upload::publish`].
    ///
    /// # Errors
    /// [`FailureCode::Refused`] if the destination cannot have this name.
    fn create(&self, new: &NewObject) -> Result<Box<dyn Upload>, Failure>;

    /// Size of a part in bytes: each write begins at a multiple of the size and has the size, except for the last write
    /// of a range of data.
    fn part_bytes(&self) -> usize {
        1
    }
}

/// An object under construction, invisible until it is published. Dropping the upload aborts it.
pub trait Upload: fmt::Debug + Send + Sync {
    /// Writes bytes at this offset. Writes come in any order, and the same bytes may come twice.
    ///
    /// # Errors
    /// If the bytes are outside of the object or cannot be written.
    fn write(&self, offset: u64, content: &[u8]) -> Result<(), Failure>;

    /// Returns once all bytes survive a power failure.
    ///
    /// # Errors
    /// If bytes are missing or lost.
    fn make_durable(&self) -> Result<(), Failure>;

    /// Gives the object its name in one step, in place of an object of this name. After [`Self::make_durable`], the name
    /// survives a power failure, too. If several writers publish a name, the last object stays.
    ///
    /// # Errors
    /// If bytes are missing, or the name cannot be given. The object of this name is then unchanged.
    fn publish(self: Box<Self>) -> Result<(), Failure>;

    /// Removes everything that was written.
    fn abort(self: Box<Self>);
}

/// Iterator over the objects of a source.
pub type Objects<'a> = Box<dyn Iterator<Item = Result<Object, Failure>> + Send + 'a>;

/// Identity of the content of an object, such as an ETag: equal only for equal content.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Version(pub Vec<u8>);

/// One version of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    /// Name, components joined by `/`.
    pub path: RelativePath,
    /// Size in bytes.
    pub size: u64,
    /// Time of the last change, in nanoseconds since 1970.
    pub modified_ns: Option<i64>,
    /// Ranges of data, in order and with gaps between; all other bytes are zero. `None` if holes are unknown.
    pub data: Option<Vec<Extent>>,
    /// Identity of the content.
    pub version: Version,
}

/// An object to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewObject {
    /// Name, components joined by `/`.
    pub path: RelativePath,
    /// Size in bytes; `None` if the object ends at its last written byte.
    pub size: Option<u64>,
    /// Time of the last change, in nanoseconds since 1970.
    pub modified_ns: Option<i64>,
    /// Ranges of data, as in [`Object::data`]; only these are written.
    pub data: Option<Vec<Extent>>,
}

impl NewObject {
    /// The object of a name with this size, without holes.
    ///
    /// # Errors
    /// If the name could leave its destination.
    pub fn new(path: &str, size: u64) -> Result<Self, Failure> {
        let path = checked(path.as_bytes())?;
        Ok(Self { path, size: Some(size), modified_ns: None, data: None })
    }

    /// The announcement of the object as an entry of a transfer.
    pub(crate) fn to_entry(&self) -> Entry {
        let more =
            self.data.clone().map(|data| Box::new(More { data: Some(data), ..More::default() }));
        Entry {
            path: self.path.as_bytes().to_vec(),
            kind: self.size.map_or(EntryKind::Stream, EntryKind::File),
            mode: None,
            modified_ns: self.modified_ns,
            more,
        }
    }
}

/// Checks a name.
pub(crate) fn checked(path: &[u8]) -> Result<RelativePath, Failure> {
    RelativePath::new(path).map_err(|error| Failure::new(FailureCode::Refused, error.to_string()))
}

/// The failure for a version that is no longer there.
pub(crate) fn changed(path: &RelativePath) -> Failure {
    let text = format!("'{path}' changed while it was read; copy it again");
    Failure::new(FailureCode::Changed, text)
}

/// Ranges of an object that were written.
#[derive(Debug, Default)]
pub(crate) struct WrittenRanges {
    /// End of each range by its start; ranges neither overlap nor touch.
    ranges: BTreeMap<u64, u64>,
}

impl WrittenRanges {
    pub(crate) fn add(&mut self, mut start: u64, mut end: u64) {
        while let Some((&before, &until)) = self.ranges.range(..=end).next_back()
            && until >= start
        {
            self.ranges.remove(&before);
            (start, end) = (start.min(before), end.max(until));
        }
        if start < end {
            self.ranges.insert(start, end);
        }
    }

    /// End of the last written byte.
    pub(crate) fn end(&self) -> u64 {
        self.ranges.last_key_value().map_or(0, |(_, &end)| end)
    }

    /// Checks that all data of the object was written.
    pub(crate) fn check_complete(&self, new: &NewObject) -> Result<(), Failure> {
        let all = [Extent { offset: 0, bytes: new.size.unwrap_or_else(|| self.end()) }];
        for extent in new.data.as_deref().unwrap_or(&all) {
            let end = extent.offset.saturating_add(extent.bytes);
            let before = self.ranges.range(..=extent.offset).next_back();
            let reached = before.map_or(extent.offset, |(_, &until)| until.max(extent.offset));
            if reached < end {
                let reason = format!("byte {reached} of {end} was never written; copy it again");
                return Err(Failure::of_file(FailureCode::Unwritable, "write", &new.path, reason));
            }
        }
        Ok(())
    }
}

/// Checks that a write is inside the object; returns its end.
pub(crate) fn check_write(new: &NewObject, offset: u64, content: &[u8]) -> Result<u64, Failure> {
    let end = offset.checked_add(content.len() as u64);
    end.filter(|end| new.size.is_none_or(|size| *end <= size)).ok_or_else(|| {
        let reason = format!("{} bytes at {offset} are outside of the object", content.len());
        Failure::of_file(FailureCode::Unwritable, "write", &new.path, reason)
    })
}

/// Layout of an object in its stream.
pub(crate) fn layout_of(new: &NewObject) -> Layout {
    Layout::of(&new.to_entry())
}
