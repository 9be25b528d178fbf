//! Writer of a receipt's directory. `receipt.json` is renamed into place last, so an unfinished receipt has none.

use std::fmt;
use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::path::{Path, PathBuf};

use sabul_keys::armored;

use crate::hashes::FileHashes;
use crate::manifest::Manifests;
use crate::names;
use crate::place::Place;
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
    place: Place,
    sha256: BufWriter<File>,
    blake3: BufWriter<File>,
    manifests: Manifests,
}

impl Draft {
    /// Creates the directory if missing, and both manifests under temporary names. The last name of the path may not be
    /// a link.
    ///
    /// # Errors
    /// If the directory cannot be written.
    pub fn create(folder: &Path) -> Result<Self, FolderError> {
        let place = Place::create(folder)
            .map_err(|source| FolderError { path: folder.to_owned(), source })?;
        let open = |name: &str| {
            let file = place.create_file(&unfinished(name));
            file.map(BufWriter::new)
                .map_err(|source| FolderError { path: place.path_of(&unfinished(name)), source })
        };
        let (sha256, blake3) = (open(names::SHA256)?, open(names::BLAKE3)?);
        Ok(Self { place, sha256, blake3, manifests: Manifests::default() })
    }

    /// Adds a file to both manifests.
    ///
    /// # Errors
    /// If the manifests cannot be written.
    pub fn add(&mut self, path: &[u8], hashes: &FileHashes) -> Result<(), FolderError> {
        let (sha256, blake3) = self.manifests.add(path, hashes);
        let written = self.sha256.write_all(&sha256).and_then(|()| self.blake3.write_all(&blake3));
        written.map_err(|source| FolderError { path: self.place.path().to_owned(), source })
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
        let Self { place, sha256, blake3, .. } = self;
        let fail = |source| FolderError { path: place.path().to_owned(), source };
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
                let mut file = place.create_file(&unfinished(name))?;
                file.write_all(content)?;
                file.sync_all()
            };
            write().map_err(fail)?;
        }
        place.remove(names::STATEMENT).map_err(fail)?;
        let large = [names::SHA256, names::BLAKE3];
        for name in large.into_iter().chain(small.iter().map(|(name, _)| *name)) {
            place.rename(&unfinished(name), name).map_err(fail)?;
        }
        place.finish().map_err(fail)
    }

    /// Removes the unfinished manifests.
    pub fn discard(self) {
        for name in [names::SHA256, names::BLAKE3] {
            // A file that stays has the name of an unfinished file.
            let _ = self.place.remove(&unfinished(name));
        }
    }
}

fn unfinished(name: &str) -> String {
    format!("{name}{UNFINISHED}")
}

#[cfg(test)]
mod tests {
    use std::fs;
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
            symlink(&victim, receipt.join(unfinished(name))).unwrap();
        }
        let hashes = FileHashes { bytes: 1, sha256: [1; 32], blake3: [2; 32] };
        let mut draft = Draft::create(&receipt).unwrap();
        draft.add(b"a", &hashes).unwrap();
        assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
        draft.discard();
        let bag = receipt.join("bagit.txt");
        symlink(&victim, &bag).unwrap();
        let place = Place::open(&receipt).unwrap();
        crate::bag::Bag::default().write(&place, "sabul 1").unwrap();
        assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
        assert!(fs::symlink_metadata(&bag).unwrap().is_file());
    }
}
