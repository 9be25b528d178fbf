//! Access control list of a file that a transfer replaces.
//!
//! With a list, the group bits of the mode are the mask of the list, and not the rights of the owning group.

use std::io;

use sabul_wire::control::Attribute;

use crate::disk::{Disk, DiskFile};
use crate::root::{Metadata, RootPath};

/// Name of the attribute with the list.
pub(super) const NAME: &[u8] = b"system.posix_acl_access";
/// Start of the names of attributes with lists: that of the entry, and that of new entries in a directory.
pub(super) const LISTS: &[u8] = b"system.";
/// Rights of the group in a mode.
pub(super) const GROUP: u32 = 0o070;
/// Kinds of entries: the owner, the owning group, the mask, and other users. [Linux, posix_acl_xattr.h]
const USER_OBJ: u16 = 0x01;
const GROUP_OBJ: u16 = 0x04;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;
/// Bytes of the version at the start, and of an entry: kind, rights, user or group.
const START: usize = 4;
const ENTRY: usize = 8;

/// The rights that replace those of the owning group.
#[derive(Debug)]
pub(super) enum Access {
    /// The mode has all rights.
    Mode(u32),
    /// The mode, and the list with the rights behind the mode.
    List(u32, Attribute),
}

impl Access {
    /// The rights of the file at `path`, which has this metadata. If the list cannot be read, the owning group has no
    /// more rights than other users.
    pub(super) fn of(disk: &dyn Disk, path: &RootPath, old: &Metadata) -> Self {
        let mode = old.mode & 0o777;
        // A mask without rights permits nothing to the group.
        if mode & GROUP == 0 {
            return Self::Mode(mode);
        }
        let list = disk.open_read(path).ok().and_then(|file| {
            let is_same = file.metadata().is_ok_and(|now| now.id == old.id);
            is_same.then(|| file.access_list()).and_then(Result::ok)
        });
        match list {
            Some(None) => Self::Mode(mode),
            Some(Some(value)) => Self::List(mode, Attribute { name: NAME.to_vec(), value }),
            None => Self::Mode(without_list(mode)),
        }
    }
}

/// Removes the list of a file or directory, if it has one. The owning group has no rights until the mode is set, because
/// the mask would become its right.
pub(super) fn remove(file: &dyn DiskFile) -> io::Result<()> {
    if file.access_list()?.is_some() {
        file.set_mode(file.metadata()?.mode & 0o7777 & !GROUP)?;
        file.remove_attribute(NAME)?;
    }
    Ok(())
}

/// A mode whose owning group has no more rights than other users.
pub(super) const fn without_list(mode: u32) -> u32 {
    mode & !GROUP | mode & (mode & 0o007) << 3
}

/// A list without the rights that the mode has too. A change of the mode changes only those.
pub(super) fn without_mode(list: &[u8]) -> Vec<u8> {
    let mut bytes = list.to_vec();
    for entry in bytes.get_mut(START..).unwrap_or_default().chunks_exact_mut(ENTRY) {
        if [USER_OBJ, MASK, OTHER].contains(&u16::from_le_bytes([entry[0], entry[1]])) {
            entry[2..4].fill(0);
        }
    }
    bytes
}

/// A mode whose group bits are the rights that this list permits to the owning group.
pub(super) fn of_list(mode: u32, list: &[u8]) -> u32 {
    let rights = |kind: u16| {
        let entries = list.get(START..).unwrap_or_default().chunks_exact(ENTRY);
        let mut entries = entries.map(|entry| {
            let number = |at: usize| u16::from_le_bytes([entry[at], entry[at + 1]]);
            (number(0), u32::from(number(2)))
        });
        entries.find(|(found, _)| *found == kind).map(|(_, rights)| rights)
    };
    let group = rights(GROUP_OBJ).unwrap_or(0) & rights(MASK).unwrap_or(0o007);
    mode & (!GROUP | (group & 0o007) << 3)
}

#[cfg(test)]
pub(crate) mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use rustix::fs::XattrFlags;
    use sabul_wire::control::{Entry, EntryKind};

    use super::*;
    use crate::group::give_name;
    use crate::part::Part;
    use crate::root::{RootDir, RootLink};
    use crate::spelling::Spellings;

    /// A list for the owner, user 1000, the owning group with these rights, and others, with this mask.
    pub(crate) fn list(group: u16, mask: u16) -> Vec<u8> {
        let entries = [
            (1, 6, u32::MAX),
            (2, 6, 1000),
            (4, group, u32::MAX),
            (16, mask, u32::MAX),
            (32, 0, u32::MAX),
        ];
        let mut bytes = 2_u32.to_le_bytes().to_vec();
        for (kind, rights, id) in entries {
            bytes.extend([kind, rights].map(u16::to_le_bytes).concat());
            bytes.extend(u32::to_le_bytes(id));
        }
        bytes
    }

    #[test]
    fn a_replaced_file_passes_on_its_list() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        fs::write(&path, "old").unwrap();
        if let Err(error) = rustix::fs::setxattr(&path, NAME, &list(0, 6), XattrFlags::empty()) {
            println!("not tested: this file system has no access control lists ({error})");
            return;
        }
        let disk = RootDir::open(dir.path(), RootLink::Follow).unwrap();
        let target = RootPath::new(["f"]).unwrap();
        let entry = Entry {
            path: b"f".to_vec(),
            kind: EntryKind::File(0),
            mode: Some(0o644),
            modified_ns: None,
            more: None,
        };
        let mut part = Part::create(&disk, target, &entry, false).unwrap();
        give_name(&disk, &mut part, &Spellings::default(), |_| false).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o660);
        let mut kept = [0; 64];
        let length = rustix::fs::getxattr(&path, NAME, &mut kept).unwrap();
        assert_eq!(kept[..length], list(0, 6));
    }

    #[test]
    fn the_mask_is_not_the_right_of_the_owning_group() {
        assert_eq!(of_list(0o660, &list(0, 6)), 0o600);
        assert_eq!(of_list(0o664, &list(6, 4)), 0o644);
        assert_eq!(of_list(0o664, &list(4, 6)), 0o644);
        assert_eq!(of_list(0o660, b"\x02\0\0\0short"), 0o600);
        // Owner, mask and others are in the mode.
        assert_eq!(without_mode(&list(4, 6)), without_mode(&list(4, 0)));
        assert_ne!(without_mode(&list(4, 6)), without_mode(&list(0, 6)));
        assert_eq!(
            (without_list(0o664), without_list(0o640), without_list(0o646)),
            (0o644, 0o600, 0o646)
        );
    }
}
