//! Files of a copy, read again at both ends for a receipt.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sabul_content::{Printable, RelativePath};
use sabul_wire::control::{EntryKind, Failure, FailureCode};

use super::entry_error::{read_failure, write_failure};
use super::selection::{Selected, Selection};
use super::source::{SourceSet, Walk};
use super::tree::{Tree, unreadable};
use crate::disk::{Disk, ReadFile};
use crate::published::Published;
use crate::root::{Kind, LinkTarget, Metadata};

/// Bytes of a file that are read at once.
const READ_AT_ONCE: usize = 1 << 20;

/// Takes the next bytes of a file; returns false to stop.
type Taker<'a> = dyn FnMut(&[u8]) -> bool + 'a;

/// Files of the sources, by their names in the transfer.
#[derive(Debug)]
pub struct SentFiles {
    walk: Walk,
}

/// A selection whose names are given one by one.
struct GivenNames;

impl Selection for GivenNames {
    fn next(&mut self) -> Selected {
        Selected::End
    }
}

impl SentFiles {
    /// The files of these sources.
    pub fn new(set: SourceSet) -> Self {
        Self { walk: set.with_selection(Box::new(GivenNames), None).into_listing(false) }
    }

    /// Reads the first `bytes` bytes of a file.
    ///
    /// # Errors
    /// If the file is shorter, or cannot be read.
    pub fn read(&mut self, name: &[u8], bytes: u64, take: &mut Taker<'_>) -> Result<(), Failure> {
        let missing = || {
            let text = format!("'{}' is not a file of the sources", Printable(name));
            Failure::new(FailureCode::NotFound, text)
        };
        let found = self.walk.visit_chosen(name.to_vec()).ok_or_else(missing)?;
        if let Some(failure) = found.failure {
            return Err(failure);
        }
        if !matches!(found.entry.kind, EntryKind::File(_)) {
            return Err(missing());
        }
        let file = found.open_same()?;
        let read = read_file(&*file, &found.path, Some(bytes), take)?;
        if read < bytes {
            let text = format!(
                "'{}' shrank after the copy: {read} of {bytes} bytes are left; copy it again",
                Printable(name)
            );
            return Err(Failure::new(FailureCode::Changed, text));
        }
        Ok(())
    }
}

/// Files below a directory of the destination. Each file is on the disk, with its name, when the reading is finished.
#[derive(Debug)]
pub struct ReceivedFiles {
    tree: Tree,
    place: PathBuf,
    /// Device of the file system that was flushed as a whole.
    flushed: Option<u64>,
    /// Directory of the last file that was flushed alone.
    folder: Option<PathBuf>,
    /// Only these files are read.
    only: Option<Arc<Published>>,
}

impl ReceivedFiles {
    /// The files below `place`, under the root of `disk` or with the rights of this process's user. Flushes the file
    /// system, if the system can flush it as a whole.
    ///
    /// # Errors
    /// If the directory cannot be opened or flushed.
    pub fn new(disk: Option<Arc<dyn Disk>>, place: Vec<u8>) -> Result<Self, Failure> {
        let place = if place.is_empty() { b".".to_vec() } else { place };
        let place = PathBuf::from(OsString::from_vec(place));
        let tree = disk.map_or(Tree::Local, Tree::Disk);
        let folder = tree.open_directory(&place)?;
        let flushed = match folder.sync_file_system() {
            Ok(()) => {
                let fail = |error| read_failure(place.as_os_str().as_bytes(), &error);
                Some(folder.metadata().map_err(fail)?.id.device)
            }
            Err(error) if error.kind() == io::ErrorKind::Unsupported => None,
            Err(error) => return Err(write_failure(place.as_os_str().as_bytes(), &error)),
        };
        Ok(Self { tree, place, flushed, folder: None, only: None })
    }

    /// Reads only files that the session has written.
    #[must_use]
    pub fn only(self, only: Option<Arc<Published>>) -> Self {
        Self { only, ..self }
    }

    /// Returns the size of a file in bytes.
    ///
    /// # Errors
    /// If there is no regular file of this path.
    pub fn size(&self, path: &[u8]) -> Result<u64, Failure> {
        let place = self.place_of(path)?;
        let metadata = self.tree.examine(&place, LinkTarget::Itself)?;
        match metadata.kind {
            Kind::File => Ok(metadata.size),
            _ => Err(unreadable(&place, "is not a regular file")),
        }
    }

    /// Reads a file, and flushes the file if its file system was not flushed.
    ///
    /// # Errors
    /// If there is no regular file of this path, or it cannot be read or flushed.
    pub fn read(&mut self, path: &[u8], take: &mut Taker<'_>) -> Result<(), Failure> {
        self.size(path)?;
        let place = self.place_of(path)?;
        let file = self.tree.open(&place)?;
        let bytes = place.as_os_str().as_bytes();
        let fail = |error: io::Error| read_failure(bytes, &error);
        let found = file.metadata().map_err(fail)?;
        self.check_written(&place, &found)?;
        let device = found.id.device;
        if self.flushed != Some(device) {
            file.sync().map_err(|error| write_failure(bytes, &error))?;
            let folder = place.parent().map(Path::to_path_buf);
            if self.folder != folder {
                self.flush_folders(folder.as_deref())?;
                self.folder = folder;
            }
        }
        read_file(&*file, &place, None, take)?;
        // Another process may have written meanwhile.
        let now = file.metadata().map_err(|error| read_failure(bytes, &error))?;
        self.check_written(&place, &now)
    }

    /// Refuses a file whose hash would show content to a user who may not read.
    fn check_written(&self, place: &Path, file: &Metadata) -> Result<(), Failure> {
        if self.only.as_ref().is_none_or(|published| published.has(file)) {
            return Ok(());
        }
        let text = format!(
            "'{}' was not written in this session, or was changed since; its hash needs the right 'read', which this \
             key or ticket lacks: copy it again with --again --no-resume, or contact the listener's administrator",
            Printable(place.as_os_str().as_bytes())
        );
        Err(Failure::new(FailureCode::Refused, text))
    }

    /// Flushes the remaining names.
    ///
    /// # Errors
    /// If a directory cannot be flushed.
    pub fn finish(mut self) -> Result<(), Failure> {
        self.flush_folders(None)
    }

    /// Flushes the names in the last directory, and in those above, up to the first that also contains `next`.
    fn flush_folders(&mut self, next: Option<&Path>) -> Result<(), Failure> {
        let Some(last) = self.folder.take() else { return Ok(()) };
        for folder in last.ancestors().take_while(|folder| folder.starts_with(&self.place)) {
            if next.is_some_and(|next| next.starts_with(folder)) {
                break;
            }
            let opened = self.tree.open_directory(folder)?;
            opened.sync().map_err(|error| write_failure(folder.as_os_str().as_bytes(), &error))?;
        }
        Ok(())
    }

    fn place_of(&self, path: &[u8]) -> Result<PathBuf, Failure> {
        RelativePath::new(path)
            .map_err(|error| Failure::new(FailureCode::Refused, error.to_string()))?;
        Ok(self.place.join(OsStr::from_bytes(path)))
    }
}

/// Reads a file from its start, up to `most` bytes. Returns the number of bytes.
fn read_file(
    file: &dyn ReadFile,
    path: &Path,
    most: Option<u64>,
    take: &mut Taker<'_>,
) -> Result<u64, Failure> {
    let (mut content, mut at) = (Vec::new(), 0);
    loop {
        let left = most.map_or(u64::MAX, |most| most - at);
        if left == 0 {
            return Ok(at);
        }
        content.clear();
        content.reserve_exact(READ_AT_ONCE);
        match file.read_at(&mut content, at) {
            Ok(0) => return Ok(at),
            Ok(_) => {
                content.truncate(usize::try_from(left).unwrap_or(usize::MAX));
                at += content.len() as u64;
                if !take(&content) {
                    return Err(Failure::new(FailureCode::Cancelled, "the receipt was cancelled"));
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(read_failure(path.as_os_str().as_bytes(), &error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn collect(into: &mut Vec<u8>) -> impl FnMut(&[u8]) -> bool + '_ {
        |part| {
            into.extend_from_slice(part);
            true
        }
    }

    #[test]
    fn sources_are_read_up_to_the_size_that_was_copied() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("a/b")).unwrap();
        fs::write(dir.path().join("a/b/f"), "grown since").unwrap();
        let mut files = SentFiles::new(SourceSet::path(dir.path().join("a")));
        let mut content = Vec::new();
        files.read(b"a/b/f", 5, &mut collect(&mut content)).unwrap();
        assert_eq!(content, b"grown");
        let failure = files.read(b"a/b/f", 12, &mut |_| true).unwrap_err();
        assert_eq!(failure.code, FailureCode::Changed, "{failure}");
        for name in [&b"a/b"[..], b"a/missing", b"other", b"a/../a/b/f"] {
            assert!(files.read(name, 0, &mut |_| true).is_err(), "{name:?}");
        }
    }

    #[test]
    fn only_regular_files_below_the_destination_are_read() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("d/e")).unwrap();
        fs::write(dir.path().join("outside"), "x").unwrap();
        fs::write(dir.path().join("d/e/f"), "content").unwrap();
        std::os::unix::fs::symlink("e/f", dir.path().join("d/link")).unwrap();
        let place = dir.path().join("d").into_os_string().into_vec();
        let mut files = ReceivedFiles::new(None, place).unwrap();
        let mut content = Vec::new();
        files.read(b"e/f", &mut collect(&mut content)).unwrap();
        assert_eq!((files.size(b"e/f"), &content[..]), (Ok(7), &b"content"[..]));
        for path in [&b"link"[..], b"e", b"../outside", b"missing", b"/etc/passwd"] {
            assert!(files.read(path, &mut |_| true).is_err(), "{path:?}");
        }
        let failure = files.read(b"e/f", &mut |_| false).unwrap_err();
        assert_eq!(failure.code, FailureCode::Cancelled);
        files.finish().unwrap();
    }
}
