//! System calls for extended attributes and for the data extents of sparse files.

use std::fs::File;
use std::io;

use rustix::buffer::spare_capacity;
use rustix::fs::{SeekFrom, XattrFlags};
use rustix::io::Errno;
use sabul_content::is_copied_attribute;
use sabul_wire::control::{
    Attribute, Extent, MAX_ATTRIBUTE_BYTES, MAX_ATTRIBUTE_NAME, MAX_ATTRIBUTES, MAX_EXTENTS,
    SeenAttributes,
};

use super::Attributes;
use crate::acl;

/// The extended attributes of a file or folder that are copied, sorted by name.
pub(super) fn attributes(file: &File) -> io::Result<Attributes> {
    let mut found = Attributes::default();
    let size = match rustix::fs::flistxattr_query(file) {
        Ok(0) | Err(Errno::OPNOTSUPP) => return Ok(found),
        result => result?,
    };
    let mut names = Vec::with_capacity(size);
    rustix::fs::flistxattr(file, spare_capacity(&mut names))?;
    let mut names: Vec<&[u8]> = names.split(|&byte| byte == 0).collect();
    names.retain(|name| is_copied_attribute(name));
    names.sort_unstable();
    let mut bytes = 0;
    for name in names {
        let value = match value(file, name) {
            // The attribute was removed meanwhile, or an ACL is equivalent to the mode.
            Err(Errno::NODATA) => continue,
            result => result?,
        };
        bytes += name.len() + value.len();
        if found.list.len() >= MAX_ATTRIBUTES
            || name.len() > MAX_ATTRIBUTE_NAME
            || bytes > MAX_ATTRIBUTE_BYTES
        {
            bytes -= name.len() + value.len();
            found.left += 1;
            continue;
        }
        found.list.push(Attribute { name: name.to_vec(), value });
    }
    Ok(found)
}

/// Name of an attribute that no file has, to ask whether the file system keeps attributes of users.
const PROBE: &[u8] = b"user.sabul.probe";

/// Hashes of the extended attributes that are copied.
pub(super) fn seen_attributes(file: &File) -> io::Result<SeenAttributes> {
    let is_list = |it: &Attribute| it.name.starts_with(acl::LISTS);
    let (lists, users): (Vec<_>, Vec<_>) = attributes(file)?.list.into_iter().partition(is_list);
    let mut hashed = lists.clone();
    let mut group = acl::GROUP;
    if let Some(list) = hashed.iter_mut().find(|it| it.name == acl::NAME) {
        group = acl::of_list(acl::GROUP, &list.value);
        list.value = acl::without_mode(&list.value);
    }
    let is_kept = |found: &[Attribute], name: &[u8]| {
        !found.is_empty() || !matches!(value(file, name), Err(Errno::OPNOTSUPP))
    };
    Ok(SeenAttributes {
        users: is_kept(&users, PROBE).then(|| hash_of(&users)),
        lists: is_kept(&lists, acl::NAME).then(|| hash_of(&hashed)),
        group,
    })
}

/// Start of the BLAKE3 hash of names and values.
fn hash_of(attributes: &[Attribute]) -> [u8; 8] {
    let mut hasher = blake3::Hasher::new();
    for bytes in attributes.iter().flat_map(|it| [&it.name, &it.value]) {
        hasher.update(&(bytes.len() as u64).to_le_bytes()).update(bytes);
    }
    let mut hash = [0; 8];
    hasher.finalize_xof().fill(&mut hash);
    hash
}

/// The access control list of a file; `None` if the mode has all rights.
pub(super) fn access_list(file: &File) -> io::Result<Option<Vec<u8>>> {
    match value(file, acl::NAME) {
        Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(None),
        result => Ok(Some(result?)),
    }
}

fn value(file: &File, name: &[u8]) -> Result<Vec<u8>, Errno> {
    let mut value = Vec::with_capacity(rustix::fs::fgetxattr_query(file, name)?);
    if value.capacity() > 0 {
        rustix::fs::fgetxattr(file, name, spare_capacity(&mut value))?;
    }
    Ok(value)
}

/// Sets an extended attribute of a file or folder.
pub(super) fn set_attribute(file: &File, attribute: &Attribute) -> io::Result<()> {
    let Attribute { name, value } = attribute;
    Ok(rustix::fs::fsetxattr(file, &**name, value, XattrFlags::empty())?)
}

/// Removes an extended attribute of a file or folder, if it exists.
pub(super) fn remove_attribute(file: &File, name: &[u8]) -> io::Result<()> {
    match rustix::fs::fremovexattr(file, name) {
        Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(()),
        result => Ok(result?),
    }
}

/// The data extents of a file of this length; `None` if there are no holes or the system does not
/// report them.
pub(super) fn data(file: &File, size: u64) -> io::Result<Option<Vec<Extent>>> {
    let mut found: Vec<Extent> = Vec::new();
    let mut at = 0;
    while at < size {
        let start = match rustix::fs::seek(file, SeekFrom::Data(at)) {
            Ok(start) => start,
            Err(Errno::NXIO) => break,
            Err(Errno::INVAL | Errno::OPNOTSUPP) => return Ok(None),
            Err(errno) => return Err(errno.into()),
        };
        if start >= size {
            break;
        }
        let end = match rustix::fs::seek(file, SeekFrom::Hole(start)) {
            Ok(end) => end.min(size),
            // The file was truncated meanwhile; this is detected when the file is read.
            Err(Errno::NXIO) => size,
            Err(errno) => return Err(errno.into()),
        };
        found.push(Extent { offset: start, bytes: end.saturating_sub(start).max(1) });
        at = end.max(start + 1);
        if found.len() >= 2 * MAX_EXTENTS {
            fill_smallest(&mut found, MAX_EXTENTS);
        }
    }
    fill_smallest(&mut found, MAX_EXTENTS);
    let is_all = matches!(found[..], [Extent { offset: 0, bytes }] if bytes == size);
    Ok((!is_all).then_some(found))
}

/// Treats the smallest holes as data until at most `most` extents are left.
fn fill_smallest(data: &mut Vec<Extent>, most: usize) {
    let Some(excess) = data.len().checked_sub(most).filter(|excess| *excess > 0) else { return };
    let mut holes: Vec<(u64, usize)> = data
        .windows(2)
        .zip(1..)
        .map(|(pair, at)| (pair[1].offset - (pair[0].offset + pair[0].bytes), at))
        .collect();
    // Sizes with positions are unique, so the limit selects exactly the excess holes.
    let (_, &mut limit, _) = holes.select_nth_unstable(excess - 1);
    let mut kept: Vec<Extent> = Vec::with_capacity(most);
    for (at, &extent) in data.iter().enumerate() {
        match kept.last_mut() {
            Some(last) if (extent.offset - (last.offset + last.bytes), at) <= limit => {
                last.bytes = extent.offset + extent.bytes - last.offset;
            }
            _ => kept.push(extent),
        }
    }
    *data = kept;
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt as _;

    use super::*;

    #[test]
    fn the_smallest_holes_are_filled_first() {
        let extent = |offset, bytes| Extent { offset, bytes };
        let mut data = vec![extent(0, 1), extent(3, 1), extent(5, 1), extent(10, 1), extent(13, 1)];
        fill_smallest(&mut data, 5);
        assert_eq!(data.len(), 5);
        fill_smallest(&mut data, 3);
        assert_eq!(data, [extent(0, 6), extent(10, 1), extent(13, 1)]);
        fill_smallest(&mut data, 1);
        assert_eq!(data, [extent(0, 14)]);
    }

    #[test]
    fn data_ranges_are_found_on_file_systems_with_sparse_files() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(1 << 30).unwrap();
        file.write_all_at(b"in the middle", 512 << 20).unwrap();
        file.sync_all().unwrap();
        let Some(found) = data(&file, 1 << 30).unwrap() else { return };
        assert_eq!(found.len(), 1);
        assert!(found[0].offset <= 512 << 20 && found[0].bytes < 1 << 20, "{found:?}");
        assert_eq!(data(&file, 0).unwrap(), Some(Vec::new()));
    }
}
