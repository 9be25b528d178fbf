//! Manifests: one line for each file, with its hash and path.
//!
//! Form of coreutils and b3sum: 64 hexadecimal digits, two spaces, path. A path that contains a backslash, LF or CR is
//! escaped, and its line begins with a backslash. A path is bytes; b3sum itself accepts only UTF-8.

use std::fmt;

use aws_lc_rs::digest::{Context, SHA256};
use data_encoding::HEXLOWER;

use crate::hashes::{FileHashes, finish};

/// A line of a manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// Hash of the content.
    pub hash: [u8; 32],
    /// Path relative to the copied root.
    pub path: Vec<u8>,
}

/// A line that is no line of a manifest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LineError;

impl fmt::Display for LineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not a line 'HASH  PATH' as sha256sum writes it")
    }
}

impl std::error::Error for LineError {}

impl Line {
    /// Returns the line with its end.
    pub fn encode(&self) -> Vec<u8> {
        let is_escaped = self.path.iter().any(|byte| matches!(byte, b'\\' | b'\n' | b'\r'));
        let mut line = Vec::with_capacity(self.path.len() + 70);
        if is_escaped {
            line.push(b'\\');
        }
        line.extend(HEXLOWER.encode(&self.hash).as_bytes());
        line.extend(b"  ");
        for &byte in &self.path {
            match byte {
                b'\\' => line.extend(b"\\\\"),
                b'\n' => line.extend(b"\\n"),
                b'\r' => line.extend(b"\\r"),
                _ => line.push(byte),
            }
        }
        line.push(b'\n');
        line
    }

    /// Reads a line without its end; accepts only the form of [`Self::encode`].
    ///
    /// # Errors
    /// If the line has another form.
    pub fn parse(line: &[u8]) -> Result<Self, LineError> {
        let (is_escaped, rest) = match line.strip_prefix(b"\\") {
            Some(rest) => (true, rest),
            None => (false, line),
        };
        let (hash, rest) = rest.split_at_checked(64).ok_or(LineError)?;
        let hash = HEXLOWER.decode(hash).ok().and_then(|hash| hash.try_into().ok());
        let path = rest.strip_prefix(b"  ").filter(|path| !path.is_empty()).ok_or(LineError)?;
        let path = if is_escaped { unescape(path).ok_or(LineError)? } else { path.to_vec() };
        let parsed = Self { hash: hash.ok_or(LineError)?, path };
        let is_exact = parsed.encode().strip_suffix(b"\n") == Some(line);
        if is_exact { Ok(parsed) } else { Err(LineError) }
    }
}

fn unescape(path: &[u8]) -> Option<Vec<u8>> {
    let (mut bytes, mut plain) = (path.iter(), Vec::with_capacity(path.len()));
    while let Some(&byte) = bytes.next() {
        plain.push(match byte {
            b'\\' => match bytes.next()? {
                b'\\' => b'\\',
                b'n' => b'\n',
                b'r' => b'\r',
                _ => return None,
            },
            other => other,
        });
    }
    Some(plain)
}

/// Both manifests while they are written: their hashes and totals.
#[derive(Clone)]
pub struct Manifests {
    sha256: Context,
    blake3: Context,
    files: u64,
    bytes: u64,
}

impl fmt::Debug for Manifests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Manifests").field("files", &self.files).finish_non_exhaustive()
    }
}

impl Default for Manifests {
    fn default() -> Self {
        Self { sha256: Context::new(&SHA256), blake3: Context::new(&SHA256), files: 0, bytes: 0 }
    }
}

impl Manifests {
    /// Adds a file. Returns its lines in the manifest of SHA-256 and in that of BLAKE3.
    pub fn add(&mut self, path: &[u8], hashes: &FileHashes) -> (Vec<u8>, Vec<u8>) {
        let line = |hash| Line { hash, path: path.to_vec() }.encode();
        let lines = (line(hashes.sha256), line(hashes.blake3));
        self.sha256.update(&lines.0);
        self.blake3.update(&lines.1);
        self.files += 1;
        self.bytes = self.bytes.saturating_add(hashes.bytes);
        lines
    }

    /// Number of files, and the sum of their bytes.
    pub const fn totals(&self) -> (u64, u64) {
        (self.files, self.bytes)
    }

    /// SHA-256 of the manifest of SHA-256, and of the manifest of BLAKE3.
    pub fn digests(&self) -> [[u8; 32]; 2] {
        [finish(self.sha256.clone()), finish(self.blake3.clone())]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(path: &[u8]) -> Line {
        Line { hash: [0xAB; 32], path: path.to_vec() }
    }

    #[test]
    fn odd_names_are_escaped_as_coreutils_escapes_them() {
        let hash = "ab".repeat(32);
        for (path, expected) in [
            (&b"a b"[..], format!("{hash}  a b\n")),
            (b"a\nb", format!("\\{hash}  a\\nb\n")),
            (b"a\\b\r", format!("\\{hash}  a\\\\b\\r\n")),
            (b" *x", format!("{hash}   *x\n")),
        ] {
            assert_eq!(line(path).encode(), expected.as_bytes());
        }
    }

    #[test]
    fn every_name_is_read_as_it_was_written() {
        for path in [&b"a"[..], b"\xff\xfe", b"\\", b"\n", b"\r\n\\n", b"  x", b"a/b/c", b"\\\\r"] {
            let text = line(path).encode();
            assert_eq!(Line::parse(&text[..text.len() - 1]), Ok(line(path)));
        }
    }

    #[test]
    fn lines_in_another_form_are_errors() {
        let hash = "ab".repeat(32);
        for text in [
            String::new(),
            hash.clone(),
            format!("{hash}  "),
            format!("{hash} *a"),
            format!("{hash}  a\\b"),
            format!("\\{hash}  ab"),
            format!("\\{hash}  a\\x"),
            format!("\\{hash}  a\\"),
            format!("{}  a", hash.to_uppercase()),
            format!("{}g  a", &hash[1..]),
        ] {
            assert_eq!(Line::parse(text.as_bytes()), Err(LineError), "{text}");
        }
    }
}
