//! Spellings of a name that one file system takes for the same name: letters in another case, or composed in another way.
//!
//! An entry is never replaced under another spelling of its name. The source may have entries of both names, and then
//! the file system keeps only one. A comparison of both ends also takes the old spelling for an entry of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

use sabul_wire::control::{Failure, FailureCode};

use super::entry_error::EntryError;
use crate::disk::Disk;
use crate::root::{LinkTarget, RootError, RootPath};

/// Maximum number of names that are remembered. Ours: some MB.
const NAMES_MAX: usize = 1 << 16;
/// Maximum number of directories that a transfer may name in another spelling. Ours.
const REFUSED_MAX: usize = 10_000;

/// Names of folders as they were listed, and directories that were refused because of their spelling.
#[derive(Debug, Default)]
pub(super) struct Spellings {
    listed: Mutex<BTreeMap<RootPath, BTreeSet<Vec<u8>>>>,
    refused: BTreeMap<RootPath, EntryError>,
}

impl Spellings {
    /// Checks that an existing entry has this spelling of the name.
    ///
    /// # Errors
    /// If the entry has another spelling, or the folder has to be listed and cannot be.
    pub(super) fn check(&self, disk: &dyn Disk, path: &RootPath) -> Result<(), EntryError> {
        let (Some(folder), Some(name)) = (path.parent(), path.name()) else { return Ok(()) };
        if !may_have_others(disk, &folder, name) || self.has_listed(&folder, name) {
            return Ok(());
        }
        let names = disk.names(&folder)?.map(|it| it.map(|it| it.name));
        let names = names.collect::<Result<BTreeSet<_>, RootError>>()?;
        let is_there = names.contains(name);
        let other = names.iter().find(|other| is_alike(other, name)).cloned();
        self.remember(folder, names);
        if is_there || (other.is_none() && is_gone(disk, path)) {
            return Ok(());
        }
        let other = other.and_then(|other| path.parent()?.join(&other).ok());
        let other = other.map_or_else(|| "another name".to_owned(), |other| format!("'{other}'"));
        let message = format!(
            "'{path}' is not written: this file system takes {other} for the same name; rename one of the two"
        );
        Err(Failure::new(FailureCode::Unwritable, message).into())
    }

    /// As [`Self::check`], for a directory. Entries below a refused directory are refused, too.
    ///
    /// # Errors
    /// As [`Self::check`].
    pub(super) fn check_folder(
        &mut self,
        disk: &dyn Disk,
        path: &RootPath,
    ) -> Result<(), EntryError> {
        let checked = self.check(disk, path);
        if let Err(entry_error) = &checked {
            if self.refused.len() >= REFUSED_MAX {
                return Err(EntryError { ends_transfer: true, ..entry_error.clone() });
            }
            self.refused.insert(path.clone(), entry_error.clone());
        }
        checked
    }

    /// Checks that no directory above a path was refused.
    ///
    /// # Errors
    /// With the reason of the refusal.
    pub(super) fn check_above(&self, path: &RootPath) -> Result<(), EntryError> {
        let mut above = path.parent().filter(|_| !self.refused.is_empty());
        while let Some(folder) = above {
            if let Some(entry_error) = self.refused.get(&folder) {
                return Err(entry_error.clone());
            }
            above = folder.parent();
        }
        Ok(())
    }

    fn has_listed(&self, folder: &RootPath, name: &[u8]) -> bool {
        let listed = self.listed.lock().unwrap_or_else(PoisonError::into_inner);
        listed.get(folder).is_some_and(|names| names.contains(name))
    }

    fn remember(&self, folder: RootPath, names: BTreeSet<Vec<u8>>) {
        let mut listed = self.listed.lock().unwrap_or_else(PoisonError::into_inner);
        let known: usize = listed.values().map(BTreeSet::len).sum();
        if known + names.len() > NAMES_MAX {
            listed.clear();
        }
        listed.insert(folder, names);
    }
}

/// Whether the file system may take other spellings for this name. Where no other machine writes, only file systems that
/// ignore the case of letters do.
fn may_have_others(disk: &dyn Disk, folder: &RootPath, name: &[u8]) -> bool {
    if let Some(other) = other_case(name)
        && let Ok(other) = folder.join(&other)
        && disk.stat(&other, LinkTarget::Itself).is_ok()
    {
        return true;
    }
    let is_local = || disk.open_dir(folder).is_ok_and(|it| it.has_shared_locks().unwrap_or(false));
    !name.is_ascii() && !is_local()
}

/// The name with letters in the other case; `None` if it has no such letters.
fn other_case(name: &[u8]) -> Option<Vec<u8>> {
    if name.iter().any(u8::is_ascii_alphabetic) {
        let swap = |byte: &u8| match byte.is_ascii_lowercase() {
            true => byte.to_ascii_uppercase(),
            false => byte.to_ascii_lowercase(),
        };
        return Some(name.iter().map(swap).collect());
    }
    let name = std::str::from_utf8(name).ok()?;
    [name.to_lowercase(), name.to_uppercase()]
        .into_iter()
        .find(|other| other != name)
        .map(String::into_bytes)
}

/// Whether two names are equal except for the case of their letters.
fn is_alike(one: &[u8], other: &[u8]) -> bool {
    let lower = |name| std::str::from_utf8(name).ok().map(str::to_lowercase);
    one.eq_ignore_ascii_case(other) || lower(one).is_some_and(|one| Some(one) == lower(other))
}

fn is_gone(disk: &dyn Disk, path: &RootPath) -> bool {
    disk.stat(path, LinkTarget::Itself).is_err_and(|error| error.is_not_found())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::memory::MemoryDisk;

    #[test]
    fn the_other_case_of_a_name_has_at_least_one_other_letter() {
        for (name, other) in
            [("a.B1", Some("A.b1")), ("файл", Some("ФАЙЛ")), ("ÄÖ", Some("äö")), ("1", None)]
        {
            let found = other_case(name.as_bytes());
            assert_eq!(found.as_deref(), other.map(str::as_bytes), "{name}");
        }
        assert_eq!(other_case(b"\xFF"), None);
        assert!(is_alike("ÄB".as_bytes(), "äb".as_bytes()) && !is_alike(b"a", b"b"));
    }

    #[test]
    fn names_beyond_ascii_are_compared_with_the_listing_where_other_machines_write() {
        let disk = MemoryDisk::new(0);
        let path = RootPath::new(["d", "日本"]).unwrap();
        disk.put(&path, b"content").unwrap();
        let listings = || disk.calls().iter().filter(|call| **call == "list").count();
        let spellings = Spellings::default();
        spellings.check(&disk, &path).unwrap();
        assert_eq!(listings(), 0, "a local disk");
        disk.keep_locks_to_itself();
        spellings.check(&disk, &path).unwrap();
        spellings.check(&disk, &path).unwrap();
        assert_eq!(listings(), 1, "the names are remembered");
        let gone = RootPath::new(["d", "é"]).unwrap();
        spellings.check(&disk, &gone).unwrap();
    }
}
