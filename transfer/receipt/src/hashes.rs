//! Both hashes of a file.

use aws_lc_rs::digest::{Context, SHA256};

/// Size and hashes of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileHashes {
    /// Number of bytes.
    pub bytes: u64,
    /// SHA-256.
    pub sha256: [u8; 32],
    /// BLAKE3.
    pub blake3: [u8; 32],
}

/// Computes both hashes of a file from its content, in order.
#[derive(Clone)]
pub struct FileHasher {
    sha256: Context,
    blake3: blake3::Hasher,
}

impl std::fmt::Debug for FileHasher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FileHasher").field("bytes", &self.blake3.count()).finish_non_exhaustive()
    }
}

impl Default for FileHasher {
    fn default() -> Self {
        Self { sha256: Context::new(&SHA256), blake3: blake3::Hasher::new() }
    }
}

impl FileHasher {
    /// Adds the next bytes.
    pub fn update(&mut self, content: &[u8]) {
        self.sha256.update(content);
        self.blake3.update(content);
    }

    /// Returns the hashes of all bytes.
    pub fn finish(self) -> FileHashes {
        let sha256 = finish(self.sha256);
        FileHashes {
            bytes: self.blake3.count(),
            sha256,
            blake3: *self.blake3.finalize().as_bytes(),
        }
    }
}

/// Returns the SHA-256 of a finished context.
pub(crate) fn finish(context: Context) -> [u8; 32] {
    context.finish().as_ref().try_into().expect("SHA-256 has 32 bytes")
}
