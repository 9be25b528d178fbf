//! Files that decide about access: their owner and permission bits are checked, and new ones are private.
//!
//! Source: sshd's `StrictModes`, for the file and its folder.

use std::fmt;
use std::fs::{self, DirBuilder, Metadata, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{
    DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _,
};
use std::path::{Path, PathBuf};

use data_encoding::HEXLOWER;
use rustix::process::geteuid;

/// Flag for opening a file without waiting for the other end of a FIFO.
const NON_BLOCKING: i32 = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();

/// Permissions that other users must not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Others {
    /// Others may read and not write.
    WriteNothing,
    /// Others may neither read nor write.
    ReadNothing,
}

/// Reason why a file is not used.
#[derive(Debug)]
#[non_exhaustive]
pub enum FileError {
    /// The system reported an error.
    Io {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// Another user owns the file or its folder.
    Owner(PathBuf),
    /// Others may write the file or its folder, or read a secret.
    Mode {
        /// The file or folder.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
        /// The permission bits that it may have.
        allowed: u32,
    },
    /// The path is not a regular file, or the file is too long.
    Kind(PathBuf),
    /// The content is invalid; with the reason.
    Content {
        /// The file.
        path: PathBuf,
        /// The reason, with the number of the line.
        reason: String,
    },
}

impl FileError {
    pub(crate) fn io(path: &Path, source: io::Error) -> Self {
        Self::Io { path: path.to_owned(), source }
    }

    /// Returns whether the file does not exist.
    pub fn is_missing(&self) -> bool {
        matches!(self, Self::Io { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io { path, source } => write!(f, "cannot use '{}': {source}", path.display()),
            Self::Owner(path) => write!(
                f,
                "'{}' belongs to another user: change its owner, or name another file",
                path.display()
            ),
            Self::Mode { path, mode, allowed } => write!(
                f,
                "'{}' is open to other users (mode {mode:04o}): run chmod {allowed:o} '{0}'",
                path.display()
            ),
            Self::Kind(path) => {
                write!(f, "'{}' is not a regular file of a usual size", path.display())
            }
            Self::Content { path, reason } => write!(f, "'{}': {reason}", path.display()),
        }
    }
}

impl std::error::Error for FileError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { source, .. } => Some(source),
            _ => None,
        }
    }
}

/// Reads a file of at most `max` bytes after the checks of the file and its folder.
pub(crate) fn read(path: &Path, others: Others, max: u64) -> Result<Vec<u8>, FileError> {
    let fail = |source| FileError::io(path, source);
    // A FIFO in place of the file would block before its kind is checked.
    let file = OpenOptions::new().read(true).custom_flags(NON_BLOCKING).open(path).map_err(fail)?;
    let facts = file.metadata().map_err(fail)?;
    check(path, &facts, others)?;
    check_folder(path)?;
    let mut bytes = Vec::new();
    file.take(max + 1).read_to_end(&mut bytes).map_err(fail)?;
    if bytes.len() as u64 > max {
        return Err(FileError::Kind(path.to_owned()));
    }
    Ok(bytes)
}

/// Reads a file of at most `max` bytes that belongs to this user or root. Other users must not be able to write the
/// file or its folder, or to read the file if `is_secret`.
///
/// # Errors
/// If the file does not exist, is open to others, belongs to another user, or is too long.
pub fn read_guarded(path: &Path, is_secret: bool, max: u64) -> Result<Vec<u8>, FileError> {
    read(path, if is_secret { Others::ReadNothing } else { Others::WriteNothing }, max)
}

/// Rejects a file that other users control, or whose content they may read although it is secret.
pub(crate) fn check(path: &Path, facts: &Metadata, others: Others) -> Result<(), FileError> {
    if !facts.is_file() {
        return Err(FileError::Kind(path.to_owned()));
    }
    let (refused, allowed) = match others {
        Others::WriteNothing => (0o022, 0o644),
        Others::ReadNothing => (0o077, 0o600),
    };
    check_mode(path, facts, refused, allowed)
}

/// Rejects a folder in which other users can replace a file. `/tmp` is allowed: only owners remove files there.
fn check_folder(path: &Path) -> Result<(), FileError> {
    let folder = match path.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    };
    let facts = fs::metadata(folder).map_err(|source| FileError::io(folder, source))?;
    let is_sticky = facts.mode() & 0o1000 != 0;
    check_mode(folder, &facts, if is_sticky { 0 } else { 0o022 }, 0o755)
}

fn check_mode(path: &Path, facts: &Metadata, refused: u32, allowed: u32) -> Result<(), FileError> {
    if facts.uid() != 0 && facts.uid() != geteuid().as_raw() {
        return Err(FileError::Owner(path.to_owned()));
    }
    let mode = facts.mode() & 0o777;
    if mode & refused != 0 {
        return Err(FileError::Mode { path: path.to_owned(), mode, allowed });
    }
    Ok(())
}

/// Writes a file with mode 0600, atomically, and creates missing folders with mode 0700.
///
/// # Errors
/// If the system refuses, or others may write the folder.
pub fn write_private(path: &Path, content: &[u8]) -> Result<(), FileError> {
    let fail = |source| FileError::io(path, source);
    let folder = path.parent().filter(|folder| *folder != Path::new(""));
    if let Some(folder) = folder {
        DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(fail)?;
    }
    check_folder(path)?;
    let mut random = [0; 8];
    aws_lc_rs::rand::fill(&mut random)
        .map_err(|_| fail(io::Error::other("the system has no random numbers")))?;
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.tmp", HEXLOWER.encode(&random)));
    let temporary = path.with_file_name(name);
    let written = write_new(&temporary, content).and_then(|()| fs::rename(&temporary, path));
    written.map_err(|source| {
        // If the removal fails, the file stays; the first error is reported.
        let _ = fs::remove_file(&temporary);
        fail(source)
    })
}

fn write_new(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    // The umask may have cleared bits of the owner.
    file.set_permissions(fs::Permissions::from_mode(0o600))?;
    file.write_all(content)?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_others_can_write_or_replace_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a/file");
        write_private(&path, b"x").unwrap();
        let set = |path: &Path, mode| {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        };
        let reads = |others| read(&path, others, 10);
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert_eq!(reads(Others::ReadNothing).unwrap(), b"x");
        set(&path, 0o644);
        assert_eq!(reads(Others::WriteNothing).unwrap(), b"x");
        let refused = reads(Others::ReadNothing).unwrap_err().to_string();
        assert!(refused.contains("chmod 600"), "{refused}");
        for mode in [0o664, 0o646] {
            set(&path, mode);
            assert!(reads(Others::WriteNothing).is_err(), "{mode:o}");
        }
        set(&path, 0o600);
        set(&folder.path().join("a"), 0o777);
        assert!(matches!(reads(Others::WriteNothing), Err(FileError::Mode { .. })));
        assert!(write_private(&path, b"y").is_err());
    }

    #[test]
    fn a_fifo_is_refused_and_does_not_block() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("fifo");
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        assert!(matches!(read(&path, Others::ReadNothing, 9), Err(FileError::Kind(_))));
    }

    #[test]
    fn a_file_that_is_too_long_or_a_folder_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        write_private(&path, b"12345").unwrap();
        assert!(matches!(read(&path, Others::WriteNothing, 4), Err(FileError::Kind(_))));
        assert!(read(&path, Others::WriteNothing, 5).is_ok());
        assert!(read(folder.path(), Others::WriteNothing, 5).is_err());
        let missing = read(&folder.path().join("b"), Others::WriteNothing, 5).unwrap_err();
        assert!(missing.is_missing());
    }
}
