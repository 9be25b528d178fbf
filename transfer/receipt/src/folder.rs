//! Writer of a receipt's directory. `receipt.json` is renamed into place last, so an unfinished receipt has none.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write as _};
use std::path::{Path, PathBuf};

use sabul_keys::armored;

use crate::hashes::FileHashes;
use crate::manifest::Manifests;
use crate::names;
use crate::statement::Statement;

/// Ending of files that are being written.
const UNFINISHED: &str = ".unfinished";

/// Error of a write into the directory of a receipt.
#[derive(Debug)]
pub struct FolderError {
    path: PathBuf,
    source: io::Error,
}

impl fmt::Display for FolderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot write '{}' of the receipt: {}", self.path.display(), self.source)
    }
}

impl std::error::Error for FolderError {}

/// A receipt that is being written.
#[derive(Debug)]
pub struct Draft {
    folder: PathBuf,
    sha256: BufWriter<File>,
    blake3: BufWriter<File>,
    manifests: Manifests,
}

impl Draft {
    /// Creates the directory if missing, and both manifests under temporary names.
    ///
    /// # Errors
    /// If the directory cannot be written.
    pub fn create(folder: &Path) -> Result<Self, FolderError> {
        let fail = |path: &Path, source| FolderError { path: path.to_owned(), source };
        fs::create_dir_all(folder).map_err(|error| fail(folder, error))?;
        let open = |name: &str| {
            let path = unfinished(folder, name);
            create(&path).map(BufWriter::new).map_err(|error| fail(&path, error))
        };
        Ok(Self {
            folder: folder.to_owned(),
            sha256: open(names::SHA256)?,
            blake3: open(names::BLAKE3)?,
            manifests: Manifests::default(),
        })
    }

    /// Adds a file to both manifests.
    ///
    /// # Errors
    /// If the manifests cannot be written.
    pub fn add(&mut self, path: &[u8], hashes: &FileHashes) -> Result<(), FolderError> {
        let (sha256, blake3) = self.manifests.add(path, hashes);
        let written = self.sha256.write_all(&sha256).and_then(|()| self.blake3.write_all(&blake3));
        written.map_err(|source| FolderError { path: self.folder.clone(), source })
    }

    /// The manifests so far.
    pub const fn manifests(&self) -> &Manifests {
        &self.manifests
    }

    /// Completes the receipt: replaces an earlier receipt, and flushes everything to the disk.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub fn finish(
        self,
        statement: &Statement,
        receiver: &[u8],
        sender: &[u8],
    ) -> Result<(), FolderError> {
        let Self { folder, sha256, blake3, .. } = self;
        let fail = |source| FolderError { path: folder.clone(), source };
        let flush = |writer: BufWriter<File>| {
            writer.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()
        };
        flush(sha256).and_then(|()| flush(blake3)).map_err(fail)?;
        let signers = statement.allowed_signers();
        let (receiver, sender, text) = (armored(receiver), armored(sender), statement.encode());
        let small = [
            (names::SIGNERS, signers.as_bytes()),
            (names::RECEIVER, receiver.as_bytes()),
            (names::SENDER, sender.as_bytes()),
            (names::STATEMENT, &text),
        ];
        for (name, content) in small {
            let write = || {
                let mut file = create(&unfinished(&folder, name))?;
                file.write_all(content)?;
                file.sync_all()
            };
            write().map_err(fail)?;
        }
        match fs::remove_file(folder.join(names::STATEMENT)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(fail(error)),
            _ => {}
        }
        let large = [names::SHA256, names::BLAKE3];
        for name in large.into_iter().chain(small.iter().map(|(name, _)| *name)) {
            fs::rename(unfinished(&folder, name), folder.join(name)).map_err(fail)?;
        }
        File::open(&folder).and_then(|folder| folder.sync_all()).map_err(fail)
    }

    /// Removes the unfinished manifests.
    pub fn discard(self) {
        for name in [names::SHA256, names::BLAKE3] {
            // A file that stays has the name of an unfinished file.
            let _ = fs::remove_file(unfinished(&self.folder, name));
        }
    }
}

/// Creates a file in place of an earlier one. Another user may have put a link there, so no link is followed.
pub(crate) fn create(path: &Path) -> io::Result<File> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    File::options().write(true).create_new(true).open(path)
}

fn unfinished(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("{name}{UNFINISHED}"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_link_at_the_name_of_a_new_file_is_replaced_and_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let victim = folder.path().join("victim");
        fs::write(&victim, "precious").unwrap();
        let receipt = folder.path().join("receipt");
        fs::create_dir(&receipt).unwrap();
        for name in [names::SHA256, names::BLAKE3] {
            symlink(&victim, unfinished(&receipt, name)).unwrap();
        }
        let hashes = FileHashes { bytes: 1, sha256: [1; 32], blake3: [2; 32] };
        let mut draft = Draft::create(&receipt).unwrap();
        draft.add(b"a", &hashes).unwrap();
        assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
        draft.discard();
        let bag = receipt.join("bagit.txt");
        symlink(&victim, &bag).unwrap();
        crate::bag::Bag::default().write(&receipt, "sabul 1").unwrap();
        assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
        assert!(fs::symlink_metadata(&bag).unwrap().is_file());
    }
}
