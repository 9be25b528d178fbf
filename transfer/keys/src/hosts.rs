//! Servers that a client trusts: one line `HOST:PORT SHA256:…` for each server.

use std::path::{Path, PathBuf};

use crate::fingerprint::Fingerprint;
use crate::guard::{self, FileError, Others};

/// Longest file in bytes.
const FILE_MAX: u64 = 4 << 20;

/// List of trusted servers in a file.
#[derive(Clone, Debug)]
pub struct KnownHosts {
    path: PathBuf,
}

impl KnownHosts {
    /// The list in this file, which need not exist.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns all servers with their fingerprints, in the order of the file.
    ///
    /// # Errors
    /// If others can write the file, or a line has another form.
    pub fn all(&self) -> Result<Vec<(String, Fingerprint)>, FileError> {
        let bytes = match guard::read(&self.path, Others::WriteNothing, FILE_MAX) {
            Err(error) if error.is_missing() => return Ok(Vec::new()),
            other => other?,
        };
        let text = String::from_utf8_lossy(&bytes);
        let mut hosts = Vec::new();
        for (number, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let parsed = line.split_once(char::is_whitespace).and_then(|(host, fingerprint)| {
                Some((host.to_owned(), fingerprint.trim().parse().ok()?))
            });
            hosts.push(parsed.ok_or_else(|| FileError::Content {
                path: self.path.clone(),
                reason: format!(
                    "line {} is not 'HOST:PORT SHA256:…': correct or remove it",
                    number + 1
                ),
            })?);
        }
        Ok(hosts)
    }

    /// Returns the fingerprint of a server, `host:port` in lower case.
    ///
    /// # Errors
    /// As [`Self::all`].
    pub fn find(&self, address: &str) -> Result<Option<Fingerprint>, FileError> {
        let address = address.to_ascii_lowercase();
        Ok(self.all()?.into_iter().find(|(host, _)| *host == address).map(|(_, found)| found))
    }

    /// Adds a server, or replaces its fingerprint. The file is written with mode 0600.
    ///
    /// # Errors
    /// As [`Self::all`], or if the file cannot be written.
    pub fn trust(&self, address: &str, fingerprint: Fingerprint) -> Result<(), FileError> {
        let address = address.to_ascii_lowercase();
        let mut hosts = self.all()?;
        hosts.retain(|(host, _)| *host != address);
        hosts.push((address, fingerprint));
        let lines = hosts.iter().map(|(host, fingerprint)| format!("{host} {fingerprint}\n"));
        guard::write_private(&self.path, lines.collect::<String>().as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_trusted_server_is_found_and_its_key_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let hosts = KnownHosts::at(folder.path().join("a/known_hosts"));
        assert_eq!(hosts.find("h:1").unwrap(), None);
        let (one, two) = (Fingerprint([1; 32]), Fingerprint([2; 32]));
        hosts.trust("H:1", one).unwrap();
        hosts.trust("h:2", two).unwrap();
        assert_eq!(hosts.find("h:1").unwrap(), Some(one));
        hosts.trust("h:1", two).unwrap();
        assert_eq!(hosts.find("h:1").unwrap(), Some(two));
        assert_eq!(hosts.all().unwrap().len(), 2);
        fs::write(hosts.path(), "# mine\n\nh:1\n").unwrap();
        assert!(hosts.find("h:2").unwrap_err().to_string().contains("line 3"));
    }
}
