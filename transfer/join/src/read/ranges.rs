//! Files that are read by ranges of bytes.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::ops::Range;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;

use crate::error::JoinError;

/// A file that is read by ranges.
pub trait Ranges: Send + Sync {
    /// Returns the size in bytes.
    fn size(&self) -> u64;

    /// Returns exactly the bytes of a range.
    ///
    /// # Errors
    /// If the range is not within the file, or cannot be read.
    fn read(&self, range: Range<u64>) -> io::Result<Bytes>;
}

/// A local file.
#[derive(Debug)]
pub struct LocalFile {
    file: Mutex<File>,
    size: u64,
}

impl LocalFile {
    /// Opens a file.
    ///
    /// # Errors
    /// If the file cannot be opened.
    pub fn open(path: &Path) -> Result<Self, JoinError> {
        let failed = || JoinError::io(format!("open {}", path.display()));
        let file = File::open(path).map_err(failed())?;
        let size = file.metadata().map_err(failed())?.len();
        Ok(Self { file: Mutex::new(file), size })
    }
}

impl Ranges for LocalFile {
    fn size(&self) -> u64 {
        self.size
    }

    fn read(&self, range: Range<u64>) -> io::Result<Bytes> {
        let length = usize::try_from(range.end - range.start).map_err(io::Error::other)?;
        let mut bytes = vec![0; length];
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        file.seek(SeekFrom::Start(range.start))?;
        file.read_exact(&mut bytes)?;
        Ok(bytes.into())
    }
}
