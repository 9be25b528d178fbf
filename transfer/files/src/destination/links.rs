//! Links of a transfer: made after all other entries, and never followed.
//!
//! A symbolic link is only a text here. Its target does not matter, because no received content is
//! written through a link. Programs that use the files later follow the link, as at the source. A
//! hard link names an earlier entry, and only a file that this transfer has made can get another
//! name. Links are made last, so no link is in the path of a later entry, except links made early
//! to save memory.

use sabul_content::Printable;
use sabul_wire::control::{Entry, EntryKind, Failure, FailureCode};

use super::FileSink;
use crate::entry_error::EntryError;
use crate::group::comes_twice;
use crate::identity::check_replaced;
use crate::metadata::{file_time, give};
use crate::part::{fresh_name, is_reserved};
use crate::receive::{Commit, CommitResult};
use crate::root::{FileId, Kind, LinkTarget, Metadata, RootError, RootPath};

/// Maximum memory of waiting links in bytes. Ours: beyond this, waiting links are made early.
const WAITING_BYTES: usize = 16 << 20;
/// Approximate memory of a waiting link beyond its path and entry, in bytes.
const OVERHEAD: usize = 64;

/// Links that wait until all other entries exist.
#[derive(Debug)]
pub(super) struct Waiting {
    list: Vec<(u64, RootPath, Entry)>,
    bytes: usize,
    /// Limit of the memory.
    pub(super) bytes_max: usize,
}

impl Default for Waiting {
    fn default() -> Self {
        Self { list: Vec::new(), bytes: 0, bytes_max: WAITING_BYTES }
    }
}

impl FileSink {
    #[cfg(test)]
    pub(crate) fn make_links_early(&mut self) {
        self.links.bytes_max = 0;
    }

    /// Queues a link.
    pub(super) fn note_link(&mut self, index: u64, entry: &Entry) -> Result<Commit, EntryError> {
        let path = self.target(entry)?;
        if path.name().is_none_or(is_reserved) {
            let message = format!("'{path}' has a name that no link can have here; rename it");
            return Err(Failure::new(FailureCode::Refused, message).into());
        }
        self.links.bytes += path.as_bytes().len() + entry.weight() + OVERHEAD;
        self.links.list.push((index, path, entry.clone()));
        if self.links.bytes > self.links.bytes_max {
            self.make_links();
        }
        Ok(Commit::Later)
    }

    /// Makes all queued links; with `sync`, the next flush also flushes their names.
    pub(super) fn make_links(&mut self) {
        if self.links.list.is_empty() {
            return;
        }
        // A hard link needs the final name of its file.
        self.group.flush_all();
        self.collect_committed();
        self.links.bytes = 0;
        for (index, path, entry) in std::mem::take(&mut self.links.list) {
            let result = match self.make_link_now(&path, &entry) {
                Ok(id) if self.sync => {
                    self.group.add_named(index, entry.path, &path, id, true);
                    self.group.flush_if_full();
                    continue;
                }
                Ok(id) => {
                    self.group.note_own(id);
                    Ok(())
                }
                Err(entry_error) => Err(entry_error),
            };
            self.committed.push(CommitResult {
                index,
                path: entry.path,
                is_directory: true,
                result,
            });
        }
    }

    fn make_link_now(&mut self, path: &RootPath, entry: &Entry) -> Result<FileId, EntryError> {
        if self.sync {
            self.group.expect_in(&path.parent().unwrap_or(RootPath::root()))?;
        }
        let there = match self.disk.stat(path, LinkTarget::Itself) {
            Ok(there) => Some(there),
            Err(error) if error.is_not_found() => None,
            Err(error) => return Err(error.into()),
        };
        if there.as_ref().is_some_and(|there| there.kind == Kind::Directory) {
            return Err(RootError::IsADirectory(path.to_string()).into());
        }
        if there.is_some() {
            self.group.spellings.check(&*self.disk, path)?;
        }
        let replaces = entry.more.as_ref().and_then(|more| more.replaces.as_ref());
        check_replaced(&*self.disk, path, there.as_ref(), replaces)?;
        let target = entry.more.as_ref().map(|more| &more.target[..]).unwrap_or_default();
        match entry.kind {
            EntryKind::SymbolicLink => self.make_symlink(path, there.as_ref(), target)?,
            _ => self.make_hard_link(path, there.as_ref(), target)?,
        }
        let found = self.disk.stat(path, LinkTarget::Itself)?;
        if entry.kind == EntryKind::SymbolicLink {
            self.keep_of_symlink(path, entry, &found);
        }
        Ok(found.id)
    }

    fn make_symlink(
        &self,
        path: &RootPath,
        there: Option<&Metadata>,
        text: &[u8],
    ) -> Result<(), EntryError> {
        match there {
            None => self.disk.make_symlink(path, text).map_err(EntryError::from),
            Some(there) if self.group.has_made(there.id) => Err(comes_twice(path).into()),
            Some(there)
                if there.kind == Kind::Symlink
                    && self.disk.read_link(path).is_ok_and(|now| now == text) =>
            {
                Ok(())
            }
            Some(_) => self.replace(path, |name| self.disk.make_symlink(name, text)),
        }
    }

    fn make_hard_link(
        &self,
        path: &RootPath,
        there: Option<&Metadata>,
        target: &[u8],
    ) -> Result<(), EntryError> {
        let refuse = || {
            let message = format!(
                "'{path}' is a hard link to '{}', which is no file that this transfer has made before it; copy both \
                 again",
                Printable(target)
            );
            EntryError::from(Failure::new(FailureCode::Unwritable, message))
        };
        let first = self.place.target_path(target).ok_or_else(refuse)?;
        let is_ours =
            |found: &Metadata| found.kind == Kind::File && self.group.may_have_made(found.id);
        let before = match self.disk.stat(&first, LinkTarget::Itself) {
            Ok(found) if is_ours(&found) => found,
            Ok(_) => return Err(refuse()),
            Err(error) if error.is_not_found() => return Err(refuse()),
            Err(error) => return Err(error.into()),
        };
        let id = before.id;
        match there {
            None => self.disk.make_hard_link(&first, path)?,
            Some(there) if there.id == id => return Ok(()),
            Some(there) if self.group.has_made(there.id) => {
                return Err(comes_twice(path).into());
            }
            Some(_) => self.replace(path, |name| self.disk.make_hard_link(&first, name))?,
        }
        // Another process may have replaced the file meanwhile; its file must not be shared.
        match self.disk.stat(path, LinkTarget::Itself) {
            Ok(made) if made.id == id => {
                self.group.note_linked(&before, &made);
                Ok(())
            }
            _ => {
                let _ = self.disk.remove_file(path);
                Err(refuse())
            }
        }
    }

    /// Creates an object under a temporary name and renames it over the existing object.
    fn replace(
        &self,
        path: &RootPath,
        make: impl Fn(&RootPath) -> Result<(), RootError>,
    ) -> Result<(), EntryError> {
        let name = fresh_name(&*self.disk, path)?;
        make(&name)?;
        self.disk.rename(&name, path).map_err(|error| {
            let _ = self.disk.remove_file(&name);
            error.into()
        })
    }

    fn keep_of_symlink(&mut self, path: &RootPath, entry: &Entry, found: &Metadata) {
        if let Some(owner) =
            entry.more.as_ref().and_then(|more| more.owner).filter(|_| self.preserve)
        {
            let now = (found.owner, found.group);
            let text = entry.more.as_ref().map(|more| &more.target[..]).unwrap_or_default();
            give(owner, now, &mut self.lost, |user| {
                self.disk.set_link_owner(path, text, user, owner.group)
            });
        }
        if let Some(time) = entry.modified_ns.map(file_time) {
            // Some file systems do not store times of links; this is not reported.
            let _ = self.disk.set_link_mtime(path, time);
        }
    }
}
