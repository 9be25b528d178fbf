//! File metadata: applies the metadata of an entry and counts metadata that was lost.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::io;

use rustix::io::Errno;
use sabul_wire::control::{Entry, EntryKind, More, NotKept, Owner, Trait};

use crate::acl;
use crate::disk::DiskFile;
use crate::root::FileTime;

/// Permission bits that let the owner read and write.
const OWNERS: u32 = 0o600;
/// Bits that are never kept: setuid and setgid. The sticky bit of files is not kept either; it has
/// no meaning there.
const SETID: u32 = 0o6000;
/// The sticky bit of a folder, which stops users from renaming or removing files of others.
const STICKY: u32 = 0o1000;

/// Lost metadata of entries that are otherwise complete: a count per kind, with the first reason.
#[derive(Debug, Default)]
pub(super) struct LostMetadata(BTreeMap<Trait, (u64, String)>);

impl LostMetadata {
    /// Counts lost metadata of one kind.
    pub(super) fn note(&mut self, what: Trait, count: u64, why: impl Display) {
        self.0.entry(what).or_insert_with(|| (0, why.to_string())).0 += count;
    }

    /// Adds the counts of `other`.
    pub(super) fn add(&mut self, other: Self) {
        for (what, (count, why)) in other.0 {
            self.note(what, count, why);
        }
    }

    /// Returns all counts.
    pub(super) fn list(&self) -> Vec<NotKept> {
        let list = self.0.iter();
        list.map(|(&what, (count, why))| NotKept { what, count: *count, why: why.clone() })
            .collect()
    }
}

/// Sets the announced modification time of a file or folder, and with `preserve` also owner, extended
/// attributes and mode. Failures to set owner or attributes are counted as lost, and are no error.
pub(super) fn keep_metadata(
    file: &dyn DiskFile,
    entry: &Entry,
    preserve: bool,
) -> io::Result<LostMetadata> {
    let (mut lost, mode) = keep_all_but_mode(file, entry, preserve)?;
    if let Some(mode) = mode {
        keep_mode(file, mode, &mut lost)?;
    }
    Ok(lost)
}

/// Sets permission bits. Bits that the system does not accept are counted as lost.
pub(super) fn keep_mode(file: &dyn DiskFile, mode: u32, lost: &mut LostMetadata) -> io::Result<()> {
    if let Some(error) = try_mode(file, mode)? {
        let is_broader = file.metadata()?.mode & 0o777 & !mode != 0;
        let rights = if is_broader { "; some have more rights than at the source" } else { "" };
        lost.note(Trait::Bits, 1, format_args!("{error}{rights}"));
    }
    Ok(())
}

/// Sets permission bits. Returns the error of a system that does not accept them, as some file systems, if other bits are
/// set.
pub(super) fn try_mode(file: &dyn DiskFile, mode: u32) -> io::Result<Option<io::Error>> {
    let Err(error) = file.set_mode(mode) else { return Ok(None) };
    let errno = error.raw_os_error().map(Errno::from_raw_os_error);
    match errno {
        Some(Errno::PERM | Errno::NOSYS | Errno::OPNOTSUPP) => {
            Ok(((file.metadata()?.mode ^ mode) & 0o777 != 0).then_some(error))
        }
        _ => Err(error),
    }
}

/// As [`keep_metadata`], without the mode. Returns the mode that the file gets at last, if it is preserved.
pub(super) fn keep_all_but_mode(
    file: &dyn DiskFile,
    entry: &Entry,
    preserve: bool,
) -> io::Result<(LostMetadata, Option<u32>)> {
    let mut lost = LostMetadata::default();
    let mut mode = None;
    if preserve {
        // The system clears bits when the owner changes, so the mode is set afterwards.
        if let Some(owner) = entry.more.as_ref().and_then(|more| more.owner) {
            keep_owner(file, owner, &mut lost)?;
        }
        mode = keep_attributes(file, entry, &mut lost)?;
    }
    if let Some(mode) = &mut mode {
        let is_directory = entry.kind == EntryKind::Directory;
        let dropped = if is_directory { SETID } else { SETID | STICKY };
        if *mode & dropped != 0 {
            lost.note(Trait::Bits, 1, "they lend rights");
        }
        *mode &= !dropped;
    }
    if let Some(time) = entry.modified_ns.map(file_time) {
        file.set_mtime(time)?;
    }
    Ok((lost, mode))
}

/// Sets the extended attributes of an entry, and removes those that the source does not have: the access control list of
/// the directory above, and attributes of an existing directory. Returns the mode to set.
fn keep_attributes(
    file: &dyn DiskFile,
    entry: &Entry,
    lost: &mut LostMetadata,
) -> io::Result<Option<u32>> {
    let nothing = More::default();
    let more = entry.more.as_deref().unwrap_or(&nothing);
    let mut mode = entry.mode;
    let has = |name: &[u8]| more.attributes.iter().any(|it| it.name == name);
    let is_archive = more.owner.is_some();
    if let Some(mode) = mode
        && !has(acl::NAME)
        && (is_archive || file.metadata()?.mode & 0o7777 != mode)
    {
        acl::remove(file)?;
    }
    if is_archive && entry.kind == EntryKind::Directory && more.attributes_left == 0 {
        let found = file.attributes()?.list;
        for stale in found.iter().filter(|it| !has(&it.name)) {
            file.remove_attribute(&stale.name)?;
        }
    }
    if !more.attributes.is_empty() {
        let now = file.metadata()?.mode;
        if now & OWNERS != OWNERS {
            file.set_mode(now & 0o7777 | OWNERS)?;
        }
    }
    for attribute in &more.attributes {
        if let Err(error) = file.set_attribute(attribute) {
            lost.note(Trait::Attribute, 1, error);
            if attribute.name == acl::NAME {
                mode = mode.map(|mode| acl::of_list(mode, &attribute.value));
            }
        }
    }
    if more.attributes_left > 0 {
        let why = "too many or too long to send";
        lost.note(Trait::Attribute, more.attributes_left.into(), why);
    }
    Ok(mode)
}

/// Sets owner, mode and modification time of an existing entry of which only these differ. An owner that cannot be set is
/// no error, nor are permission bits, unless the entry has more of them than wanted.
pub(super) fn adjust_metadata(
    file: &dyn DiskFile,
    owner: Option<Owner>,
    mode: Option<u32>,
    modified_ns: Option<i64>,
) -> io::Result<()> {
    if let Some(owner) = owner {
        keep_owner(file, owner, &mut LostMetadata::default())?;
    }
    if let Some(error) = mode.map(|mode| try_mode(file, mode & !SETID)).transpose()?.flatten()
        && file.metadata()?.mode & 0o777 & !mode.unwrap_or(0) != 0
    {
        return Err(error);
    }
    modified_ns.map_or(Ok(()), |ns| file.set_mtime(file_time(ns)))
}

fn keep_owner(file: &dyn DiskFile, owner: Owner, lost: &mut LostMetadata) -> io::Result<()> {
    let now = file.metadata()?;
    give(owner, (now.owner, now.group), lost, |user| file.set_owner(user, owner.group));
    Ok(())
}

/// Changes owner and group by `set`; if that fails, tries to change only the group.
pub(super) fn give<E: Display>(
    owner: Owner,
    now: (u32, u32),
    lost: &mut LostMetadata,
    set: impl Fn(Option<u32>) -> Result<(), E>,
) {
    if now == (owner.user, owner.group) {
        return;
    }
    let user = Some(owner.user).filter(|user| *user != now.0);
    if let Err(error) = set(user) {
        lost.note(Trait::Owner, 1, error);
        if user.is_some() && now.1 != owner.group {
            // A member of the group may change the group alone.
            let _ = set(None);
        }
    }
}

/// Converts an announced time in nanoseconds since the Unix epoch.
pub(super) fn file_time(ns: i64) -> FileTime {
    const SECOND: i64 = 1_000_000_000;
    // The remainder of a euclidean division is not negative and below a second.
    let nanoseconds = u32::try_from(ns.rem_euclid(SECOND)).unwrap_or(0);
    FileTime { seconds: ns.div_euclid(SECOND), nanoseconds }
}

#[cfg(test)]
mod tests {
    use sabul_wire::control::Attribute;

    use super::*;
    use crate::acl::tests::list;
    use crate::disk::Disk as _;
    use crate::disk::memory::{Fault, MemoryDisk};
    use crate::root::RootPath;

    #[test]
    fn the_mask_of_a_list_that_is_not_kept_is_no_right_of_the_group() {
        // The disk keeps no lists.
        let disk = MemoryDisk::new(0);
        let path = RootPath::new(["f"]).unwrap();
        disk.put(&path, b"").unwrap();
        let file = disk.open_file(&path).unwrap();
        let attributes = vec![Attribute { name: acl::NAME.to_vec(), value: list(0, 6) }];
        let more = More { attributes, ..More::default() };
        let entry = Entry {
            path: b"f".to_vec(),
            kind: EntryKind::File(0),
            mode: Some(0o664),
            modified_ns: None,
            more: Some(Box::new(more)),
        };
        let lost = keep_metadata(&*file, &entry, true).unwrap().list();
        assert_eq!(file.metadata().unwrap().mode & 0o777, 0o604);
        assert_eq!(
            lost.iter().map(|lost| (lost.what, lost.count)).collect::<Vec<_>>(),
            [(Trait::Attribute, 1)]
        );
    }

    #[test]
    fn permission_bits_that_the_system_does_not_accept_are_counted() {
        let path = RootPath::new(["f"]).unwrap();
        let entry = |mode| Entry {
            path: b"f".to_vec(),
            kind: EntryKind::File(0),
            mode: Some(mode),
            modified_ns: Some(7),
            more: None,
        };
        for errno in [Errno::PERM, Errno::NOSYS, Errno::OPNOTSUPP, Errno::IO] {
            // The file has the bits 0o644.
            for (mode, rights) in [(0o600, Some("more rights")), (0o664, Some("")), (0o644, None)] {
                let disk = MemoryDisk::new(0);
                disk.put(&path, b"").unwrap();
                let file = disk.open_file(&path).unwrap();
                let before = disk.calls().len();
                keep_metadata(&*file, &entry(0o644), true).unwrap();
                let calls = disk.calls();
                let at = calls[before..].iter().position(|call| *call == "set mode").unwrap();
                disk.fail_at(at, Fault::Error(errno));
                let kept = keep_metadata(&*file, &entry(mode), true);
                if errno == Errno::IO {
                    kept.unwrap_err();
                    continue;
                }
                let lost = kept.unwrap().list();
                assert_eq!(lost.len(), usize::from(rights.is_some()), "{errno} {mode:o}");
                if let Some(rights) = rights {
                    assert_eq!((lost[0].what, lost[0].count), (Trait::Bits, 1));
                    assert!(lost[0].why.contains(rights), "{}", lost[0].why);
                    assert_eq!(lost[0].why.contains("more rights"), !rights.is_empty());
                }
                let now = file.metadata().unwrap();
                assert_eq!((now.mode & 0o777, now.mtime), (0o644, file_time(7)));
            }
        }
    }
}
