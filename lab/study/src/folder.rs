//! Result folder with a manifest. The manifest is written last: if it exists, all files are
//! complete.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

const MANIFEST: &str = "manifest.json";

/// A result folder under construction.
#[derive(Debug)]
pub(crate) struct Folder<'a> {
    dir: &'a Path,
    files: Vec<String>,
}

impl<'a> Folder<'a> {
    /// Starts to fill an existing folder. Removes the manifest of an earlier experiment, because
    /// its results are no longer complete.
    pub(crate) fn begin(dir: &'a Path) -> io::Result<Self> {
        remove_manifest(dir)?;
        Ok(Self { dir, files: Vec::new() })
    }

    /// Writes a file and lists it in the manifest.
    pub(crate) fn write(&mut self, name: &str, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        fs::write(self.add(name), bytes)
    }

    /// Returns the path for a file that the caller writes, and lists the file in the manifest.
    pub(crate) fn add(&mut self, name: &str) -> PathBuf {
        self.files.push(name.to_owned());
        self.dir.join(name)
    }

    /// Removes those of the named files that were not written by this run.
    pub(crate) fn remove_others(&self, names: &[&str]) -> io::Result<()> {
        let others = names.iter().filter(|name| !self.files.iter().any(|file| file == *name));
        others.into_iter().try_for_each(|name| remove(&self.dir.join(name)))
    }

    /// Writes the manifest, which `manifest` builds from the names of all files.
    pub(crate) fn end(
        self,
        manifest: impl FnOnce(&[String]) -> io::Result<String>,
    ) -> io::Result<()> {
        fs::write(self.dir.join(MANIFEST), manifest(&self.files)?)
    }
}

/// Removes the manifest, so that the folder no longer counts as results.
pub(crate) fn remove_manifest(dir: &Path) -> io::Result<()> {
    remove(&dir.join(MANIFEST))
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manifest_exists_only_when_the_folder_is_complete() {
        let dir = tempfile::tempdir().unwrap();
        let has = |name: &str| dir.path().join(name).exists();
        let mut folder = Folder::begin(dir.path()).unwrap();
        folder.write("a.txt", "a").unwrap();
        folder.write("b.txt", "b").unwrap();
        folder.end(|files| Ok(files.join(","))).unwrap();
        assert_eq!(fs::read_to_string(dir.path().join(MANIFEST)).unwrap(), "a.txt,b.txt");
        let mut folder = Folder::begin(dir.path()).unwrap();
        assert!(!has(MANIFEST) && has("a.txt"));
        folder.write("b.txt", "b").unwrap();
        folder.remove_others(&["a.txt", "b.txt", "c.txt"]).unwrap();
        assert!(!has("a.txt") && has("b.txt"));
        folder.end(|files| Ok(files.join(","))).unwrap();
        remove_manifest(dir.path()).unwrap();
        remove_manifest(dir.path()).unwrap();
        assert!(!has(MANIFEST));
    }
}
