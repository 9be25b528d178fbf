//! An open directory in which files are written.
//!
//! Others may write the directory above, and replace the name of this one by a link. So the files are named relative to
//! the open directory, no link is followed, and the name is compared with the open directory at the end.

use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Mode, OFlags, openat, renameat, unlinkat};

/// An open directory, and its path.
#[derive(Debug)]
pub struct Place {
    path: PathBuf,
    folder: File,
}

impl Place {
    /// Opens a directory. The last name of the path may not be a link; a caller that permits a link passes its target.
    ///
    /// # Errors
    /// If there is no such directory.
    pub fn open(path: &Path) -> io::Result<Self> {
        // With a slash at its end, the name of a link stands for the target.
        let bytes = path.as_os_str().as_bytes();
        let end = bytes.iter().rposition(|&byte| byte != b'/').map_or(1, |last| last + 1);
        let bytes = &bytes[..end.min(bytes.len())];
        let path = match bytes {
            b"" => PathBuf::from("."),
            bytes => PathBuf::from(std::ffi::OsStr::from_bytes(bytes)),
        };
        let flags = (OFlags::DIRECTORY | OFlags::NOFOLLOW).bits().cast_signed();
        let folder = File::options().read(true).custom_flags(flags).open(&path)?;
        Ok(Self { path, folder })
    }

    /// Creates the directory with those above if missing, and opens the directory.
    ///
    /// # Errors
    /// If the directory cannot be created or opened.
    pub fn create(path: &Path) -> io::Result<Self> {
        fs::create_dir_all(path)?;
        Self::open(path)
    }

    /// The path of a file in the directory, for messages.
    pub(crate) fn path_of(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// The path of the directory.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Creates a file in place of an earlier one.
    pub(crate) fn create_file(&self, name: &str) -> io::Result<File> {
        self.remove(name)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        Ok(openat(&self.folder, name, flags, Mode::from_raw_mode(0o666))?.into())
    }

    /// Removes a file, if it exists.
    pub(crate) fn remove(&self, name: &str) -> io::Result<()> {
        match unlinkat(&self.folder, name, AtFlags::empty()) {
            Err(rustix::io::Errno::NOENT) => Ok(()),
            result => Ok(result?),
        }
    }

    pub(crate) fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        Ok(renameat(&self.folder, from, &self.folder, to)?)
    }

    /// Flushes the names in the directory, and checks that its path still names this directory.
    pub(crate) fn finish(&self) -> io::Result<()> {
        self.folder.sync_all()?;
        let (named, opened) = (fs::symlink_metadata(&self.path)?, self.folder.metadata()?);
        if (named.dev(), named.ino()) == (opened.dev(), opened.ino()) {
            return Ok(());
        }
        let text = "another directory or a link took its name meanwhile; choose a directory that others cannot write";
        Err(io::Error::other(text))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_link_is_not_opened_and_a_directory_that_moves_is_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::create_dir_all(at("victim")).unwrap();
        symlink(at("victim"), at("link")).unwrap();
        Place::open(&at("link")).unwrap_err();
        Place::open(&at("link/")).unwrap_err();
        Place::create(&at("link")).unwrap_err();
        let place = Place::create(&at("new/deep/")).unwrap();
        place.create_file("a").unwrap();
        place.finish().unwrap();
        fs::rename(at("new/deep"), at("moved")).unwrap();
        symlink(at("victim"), at("new/deep")).unwrap();
        place.create_file("b").unwrap();
        let error = place.finish().unwrap_err();
        assert!(error.to_string().contains("took its name"), "{error}");
        assert_eq!(fs::read_dir(at("victim")).unwrap().count(), 0);
        assert_eq!(fs::read_dir(at("moved")).unwrap().count(), 2);
    }
}
