//! Tag files of a bag [RFC8493]: a directory whose payload is below `data/`.
//!
//! CR, LF and % in paths are percent-encoded [RFC8493 §2.1.3]. Names must be UTF-8, which `bagit.txt` declares.

use std::collections::HashSet;
use std::fmt;
use std::io::{self, Write as _};
use std::path::PathBuf;

use data_encoding::HEXLOWER;
use jiff::Timestamp;

use crate::hashes::{FileHasher, FileHashes};
use crate::place::Place;

/// Directory of the payload.
pub const PAYLOAD: &str = "data";
const MANIFEST: &str = "manifest-sha256.txt";
const TAG_MANIFEST: &str = "tagmanifest-sha256.txt";

/// Reason why a bag cannot be made.
#[derive(Debug)]
#[non_exhaustive]
pub enum BagError {
    /// A name is not UTF-8.
    Name,
    /// A tag file cannot be written.
    Io {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
}

impl fmt::Display for BagError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name => f.write_str("the name is not UTF-8, which a bag needs; rename the file"),
            Self::Io { path, source } => {
                write!(f, "cannot write '{}' of the bag: {source}", path.display())
            }
        }
    }
}

impl std::error::Error for BagError {}

/// A bag whose payload is complete, while its manifest is made.
#[derive(Clone, Debug, Default)]
pub struct Bag {
    manifest: String,
    files: u64,
    bytes: u64,
}

/// The payload files of a bag, as encoded in its manifest.
#[derive(Debug)]
pub struct Payload<'a>(HashSet<&'a str>);

impl Payload<'_> {
    /// Whether the bag has this payload file; `path` starts with `data/`.
    pub fn has(&self, path: &[u8]) -> bool {
        std::str::from_utf8(path).is_ok_and(|path| self.0.contains(&*encoded(path)))
    }
}

impl Bag {
    /// Adds a payload file; `path` starts with `data/`.
    ///
    /// # Errors
    /// If the path is not UTF-8.
    pub fn add(&mut self, path: &[u8], hashes: &FileHashes) -> Result<(), BagError> {
        let path = std::str::from_utf8(path).map_err(|_| BagError::Name)?;
        let line = line(&hashes.sha256, path);
        self.manifest.push_str(&line);
        self.files += 1;
        self.bytes = self.bytes.saturating_add(hashes.bytes);
        Ok(())
    }

    /// The payload files, for look-ups.
    pub fn payload(&self) -> Payload<'_> {
        let paths = self.manifest.lines().filter_map(|line| line.split_once("  "));
        Payload(paths.map(|(_, path)| path).collect())
    }

    /// Whether a bag may not have this file beside its payload: a manifest that does not match the payload, or a list
    /// of files that are missing.
    pub fn is_foreign(name: &str) -> bool {
        let is_manifest = name.starts_with("manifest-") || name.starts_with("tagmanifest-");
        name == "fetch.txt" || is_manifest && name != MANIFEST && name != TAG_MANIFEST
    }

    /// Writes the tag files into a directory, and flushes each.
    ///
    /// # Errors
    /// If a file cannot be written, or if another directory has taken the name of this one.
    pub fn write(&self, folder: &Place, software: &str) -> Result<(), BagError> {
        let day = Timestamp::now().to_string();
        let day = day.split('T').next().unwrap_or_default();
        let (bytes, files) = (self.bytes, self.files);
        let info = format!(
            "Bag-Software-Agent: {software}\nBagging-Date: {day}\nPayload-Oxum: {bytes}.{files}\n"
        );
        let declaration = "BagIt-Version: 1.0\nTag-File-Character-Encoding: UTF-8\n";
        let tags =
            [("bag-info.txt", &*info), ("bagit.txt", declaration), (MANIFEST, &*self.manifest)];
        let mut tag_manifest = String::new();
        for (name, content) in tags {
            let mut hasher = FileHasher::default();
            hasher.update(content.as_bytes());
            tag_manifest.push_str(&line(&hasher.finish().sha256, name));
            write(folder, name, content)?;
        }
        write(folder, TAG_MANIFEST, &tag_manifest)?;
        let fail = |source| BagError::Io { path: folder.path().to_owned(), source };
        folder.finish().map_err(fail)
    }
}

fn line(hash: &[u8; 32], path: &str) -> String {
    format!("{}  {}\n", HEXLOWER.encode(hash), encoded(path))
}

fn encoded(path: &str) -> String {
    path.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

fn write(folder: &Place, name: &str, content: &str) -> Result<(), BagError> {
    let written = folder.create_file(name).and_then(|mut file| {
        file.write_all(content.as_bytes())?;
        file.sync_all()
    });
    written.map_err(|source| BagError::Io { path: folder.path_of(name), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bag_has_its_tag_files_and_encodes_three_characters() {
        let dir = tempfile::tempdir().unwrap();
        let mut bag = Bag::default();
        let mut hasher = FileHasher::default();
        hasher.update(b"abc");
        let hashes = hasher.finish();
        bag.add("data/a\r\n%ä".as_bytes(), &hashes).unwrap();
        assert!(matches!(bag.add(b"data/\xff", &hashes), Err(BagError::Name)));
        let payload = bag.payload();
        assert!(payload.has("data/a\r\n%ä".as_bytes()) && !payload.has(b"data/a"));
        for (name, is_foreign) in
            [("manifest-md5.txt", true), ("fetch.txt", true), (MANIFEST, false), ("notes", false)]
        {
            assert_eq!(Bag::is_foreign(name), is_foreign, "{name}");
        }
        bag.write(&Place::open(dir.path()).unwrap(), "sabul 1").unwrap();
        let read = |name: &str| std::fs::read_to_string(dir.path().join(name)).unwrap();
        let hash = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(read("manifest-sha256.txt"), format!("{hash}  data/a%0D%0A%25ä\n"));
        assert_eq!(read("bagit.txt"), "BagIt-Version: 1.0\nTag-File-Character-Encoding: UTF-8\n");
        assert!(read("bag-info.txt").contains("Payload-Oxum: 3.1\n"));
        assert_eq!(read("tagmanifest-sha256.txt").lines().count(), 3);
    }
}
