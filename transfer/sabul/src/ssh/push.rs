//! Programs to upload: this program, or a file for another system.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use flate2::Compression;
use flate2::write::GzEncoder;

use data_encoding::HEXLOWER;

use super::error::ssh_error;
use super::strip::stripped;
use crate::error::{Error, ErrorKind, SshSetting};
use sabul_files::os_text;

/// First bytes of every program [elf(5)].
const ELF: &[u8] = b"\x7fELF";

/// Program that the far end runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Push {
    /// The program installed there.
    #[default]
    No,
    /// A copy of this program.
    Own,
    /// A copy of this file, built for the far end's system.
    File(PathBuf),
}

/// Program in memory, with its hash.
#[derive(Debug)]
pub(super) struct Upload {
    pub(super) bytes: Vec<u8>,
    pub(super) hash: String,
    packed: OnceLock<Vec<u8>>,
    /// System of the program in the form of `uname -sm`; `None` if unknown.
    pub(super) system: Option<&'static str>,
}

impl Push {
    pub(super) fn upload(&self) -> Result<Option<Upload>, Error> {
        let path = match self {
            Self::No => return Ok(None),
            // The running program itself, even if its file was replaced meanwhile.
            Self::Own => Path::new("/proc/self/exe"),
            Self::File(path) => path.as_path(),
        };
        let whole = fs::read(path).map_err(|error| {
            let text =
                format!("cannot read '{}' for the upload: {}", path.display(), os_text(&error));
            ssh_error(ErrorKind::Request, &[SshSetting::Upload], text)
        })?;
        if !whole.starts_with(ELF) {
            let text = format!(
                "cannot upload '{}': the file is no ELF program; build sabul for the host (`make dist`) and upload \
                 that file",
                path.display()
            );
            return Err(ssh_error(ErrorKind::Request, &[SshSetting::Upload], text));
        }
        let system = system_of(&whole);
        let bytes = stripped(whole);
        Ok(Some(Upload { hash: hash(&bytes), bytes, system, packed: OnceLock::new() }))
    }
}

impl Upload {
    /// Returns the program compressed with gzip. Every Unix has gzip; zstd and xz save another
    /// quarter but are often missing.
    pub(super) fn packed(&self) -> &[u8] {
        self.packed.get_or_init(|| {
            let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
            // Writing to memory cannot fail.
            let _ = encoder.write_all(&self.bytes);
            encoder.finish().unwrap_or_default()
        })
    }
}

/// Returns the SHA-256 hash in hexadecimal, as `sha256sum` prints it.
pub(super) fn hash(bytes: &[u8]) -> String {
    HEXLOWER.encode(aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, bytes).as_ref())
}

/// Returns the system of a program from its ELF header [elf(5)]. `None` for machines
/// with several names.
fn system_of(program: &[u8]) -> Option<&'static str> {
    let (ident, rest) = program.split_first_chunk::<16>()?;
    // 64 bit, little-endian.
    if !ident.starts_with(b"\x7fELF\x02\x01") {
        return None;
    }
    let machine = rest.get(2..4)?.try_into().ok()?;
    match u16::from_le_bytes(machine) {
        62 => Some("Linux x86_64"),
        183 => Some("Linux aarch64"),
        243 => Some("Linux riscv64"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_the_one_of_fips_180() {
        assert_eq!(
            hash(b"abc"),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
    }

    #[test]
    fn an_unreadable_file_is_named_in_the_error() {
        let error = Push::File("/none/sabul".into()).upload().unwrap_err();
        assert!(error.to_string().contains("/none/sabul"), "{error}");
        assert_eq!(Push::No.upload().unwrap().map(|upload| upload.hash), None);
    }

    /// A shell would run the lines of such a file.
    #[test]
    fn a_file_that_is_no_program_is_refused_before_ssh_starts() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("notes");
        for content in [&b""[..], b"\x7fEL", b"#!/bin/sh\nexec sabul\n", b"root:x:0:0\n"] {
            fs::write(&path, content).unwrap();
            let error = Push::File(path.clone()).upload().unwrap_err();
            let text = error.to_string();
            assert!(text.contains("notes") && text.contains("no ELF program"), "{text}");
            assert_eq!(error.kind(), ErrorKind::Request);
        }
    }

    #[test]
    fn a_packed_program_unpacks_with_gzip() {
        let upload = Push::Own.upload().unwrap().unwrap();
        assert!(upload.packed().len() < upload.bytes.len() / 2);
        let mut bytes = Vec::new();
        std::io::copy(&mut flate2::read::GzDecoder::new(upload.packed()), &mut bytes).unwrap();
        assert!(bytes == upload.bytes);
    }

    #[test]
    fn the_target_system_is_read_from_the_program() {
        let own = Push::Own.upload().unwrap().unwrap();
        assert_eq!(own.system.unwrap(), format!("Linux {}", std::env::consts::ARCH));
        let mut bytes = own.bytes[..64].to_vec();
        bytes[18..20].copy_from_slice(&[183, 0]);
        assert_eq!(system_of(&bytes), Some("Linux aarch64"));
        bytes[18..20].copy_from_slice(&[1, 2]);
        assert_eq!(system_of(&bytes), None);
        assert_eq!(system_of(&bytes[..19]), None);
    }
}
