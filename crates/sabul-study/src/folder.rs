//! A folder of results: its manifest is written last, so where that is, everything is.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

const MANIFEST: &str = "manifest.json";

/// A folder that is being filled.
#[derive(Debug)]
pub(crate) struct Folder<'a> {
    dir: &'a Path,
    files: Vec<String>,
}

impl<'a> Folder<'a> {
    /// Begins to fill a folder that exists. What an earlier experiment left there is whole no longer.
    pub(crate) fn begin(dir: &'a Path) -> io::Result<Self> {
        forget(dir)?;
        Ok(Self { dir, files: Vec::new() })
    }

    /// Writes a file.
    pub(crate) fn write(&mut self, name: &str, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        fs::write(self.add(name), bytes)
    }

    /// Where a file is to be that somebody else writes.
    pub(crate) fn add(&mut self, name: &str) -> PathBuf {
        self.files.push(name.to_owned());
        self.dir.join(name)
    }

    /// Takes away those of these files that were not written now.
    pub(crate) fn remove_others(&self, names: &[&str]) -> io::Result<()> {
        let others = names.iter().filter(|name| !self.files.iter().any(|file| file == *name));
        others.into_iter().try_for_each(|name| remove(&self.dir.join(name)))
    }

    /// Writes the manifest, which is made of the names of all files.
    pub(crate) fn end(
        self,
        manifest: impl FnOnce(&[String]) -> io::Result<String>,
    ) -> io::Result<()> {
        fs::write(self.dir.join(MANIFEST), manifest(&self.files)?)
    }
}

/// What is in this folder does not count as results any longer.
pub(crate) fn forget(dir: &Path) -> io::Result<()> {
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
    fn the_manifest_is_there_only_while_everything_else_is() {
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
        forget(dir.path()).unwrap();
        forget(dir.path()).unwrap();
        assert!(!has(MANIFEST));
    }
}
