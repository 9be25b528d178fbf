//! A program to take along: our own, or one for another system.

use std::fs;
use std::path::{Path, PathBuf};

use data_encoding::HEXLOWER;
use sabul::ErrorKind;

use super::error::SshError;

/// The program that the other end is to run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Push {
    /// One that it has.
    #[default]
    No,
    /// A copy of the one that runs here.
    Own,
    /// A copy of this file, which is made for the system of the other end.
    File(PathBuf),
}

/// A program in memory, with its hash.
#[derive(Debug)]
pub(super) struct Parcel {
    pub(super) bytes: Vec<u8>,
    pub(super) hash: String,
    /// The system it is made for, as `uname -sm` says it; none where we do not know.
    pub(super) system: Option<String>,
}

impl Push {
    pub(super) fn parcel(&self) -> Result<Option<Parcel>, SshError> {
        let (path, system) = match self {
            Self::No => return Ok(None),
            // The running program itself, also where its file was replaced since.
            Self::Own => (Path::new("/proc/self/exe"), Some(own_system())),
            Self::File(path) => (path.as_path(), None),
        };
        let bytes = fs::read(path).map_err(|error| {
            let text = format!("cannot read the program to push, '{}': {error}", path.display());
            SshError::new(ErrorKind::Request, text)
        })?;
        let hash = hash(&bytes);
        Ok(Some(Parcel { bytes, hash, system }))
    }
}

/// SHA-256 in hexadecimal, as `sha256sum` prints it.
pub(super) fn hash(bytes: &[u8]) -> String {
    HEXLOWER.encode(aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, bytes).as_ref())
}

/// This system as `uname -sm` says it.
fn own_system() -> String {
    format!("Linux {}", std::env::consts::ARCH)
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
    fn what_cannot_be_read_is_named() {
        let error = Push::File("/none/sabul".into()).parcel().unwrap_err();
        assert!(error.to_string().contains("/none/sabul"), "{error}");
        assert_eq!(Push::No.parcel().unwrap().map(|parcel| parcel.hash), None);
        assert!(Push::Own.parcel().unwrap().unwrap().system.unwrap().starts_with("Linux "));
    }
}
