//! File metadata: applies the metadata of an entry and counts metadata that was lost.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::io;

use sabul_wire::control::{Entry, EntryKind, NotKept, Owner, Trait};

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
    let mut lost = LostMetadata::default();
    let mode = entry.mode.filter(|_| preserve);
    if let Some(more) = entry.more.as_ref().filter(|_| preserve) {
        // The system clears bits when the owner changes, so the mode is set afterwards.
        if let Some(owner) = more.owner {
            keep_owner(file, owner, &mut lost)?;
        }
        if let Some(mode) =
            mode.filter(|mode| !more.attributes.is_empty() && mode & OWNERS != OWNERS)
        {
            file.set_mode(mode | OWNERS)?;
        }
        for attribute in &more.attributes {
            if let Err(error) = file.set_attribute(attribute) {
                lost.note(Trait::Attribute, 1, error);
            }
        }
        if more.attributes_left > 0 {
            lost.note(
                Trait::Attribute,
                more.attributes_left.into(),
                "too many or too long to send",
            );
        }
    }
    if let Some(mode) = mode {
        let is_directory = entry.kind == EntryKind::Directory;
        let dropped = if is_directory { SETID } else { SETID | STICKY };
        if mode & dropped != 0 {
            lost.note(Trait::Bits, 1, "they lend rights");
        }
        file.set_mode(mode & !dropped)?;
    }
    if let Some(time) = entry.modified_ns.map(file_time) {
        file.set_mtime(time)?;
    }
    Ok(lost)
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
