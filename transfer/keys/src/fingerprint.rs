//! Fingerprints: SHA-256 of a public key, written as ssh writes them.

use std::fmt;
use std::str::FromStr;

use aws_lc_rs::digest;
use data_encoding::{BASE64, BASE64_NOPAD};

/// SHA-256 of a user's public key in ssh's encoding, or of a server's certificate. The text is `SHA256:` and base64
/// without padding, as `ssh-keygen -l` prints fingerprints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint(pub [u8; 32]);

impl Fingerprint {
    /// Returns the fingerprint of a public key in ssh's encoding.
    pub fn of(blob: &[u8]) -> Self {
        let hash = digest::digest(&digest::SHA256, blob);
        Self(hash.as_ref().try_into().expect("SHA-256 has 32 bytes"))
    }

    /// Returns the fingerprint of a public key as a line of ssh; `None` if the line has another form.
    pub fn of_line(line: &str) -> Option<Self> {
        let blob = BASE64.decode(line.split(' ').nth(1)?.as_bytes()).ok()?;
        Some(Self::of(&blob))
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SHA256:{}", BASE64_NOPAD.encode(&self.0))
    }
}

impl FromStr for Fingerprint {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let encoded = text.trim().strip_prefix("SHA256:").unwrap_or_else(|| text.trim());
        BASE64_NOPAD
            .decode(encoded.as_bytes())
            .ok()
            .and_then(|bytes| bytes.try_into().ok())
            .map(Self)
            .ok_or_else(|| {
                format!("'{text}' is not a fingerprint: write SHA256: and 43 characters")
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fingerprint_is_read_as_printed() {
        let fingerprint = Fingerprint::of(b"key");
        let text = fingerprint.to_string();
        assert_eq!(text.len(), 7 + 43);
        assert_eq!(text.parse(), Ok(fingerprint));
        assert_eq!(text[7..].parse(), Ok(fingerprint));
        for wrong in ["", "SHA256:", "MD5:00", &text[..40], &format!("{text}A")] {
            assert!(wrong.parse::<Fingerprint>().is_err(), "{wrong}");
        }
    }
}
