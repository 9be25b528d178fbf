//! The key with which an end signs receipts, and the names of its user and host.

use std::fmt;

use sabul_keys::{Identities, RECEIPT_NAMESPACE, SignError};

/// A key that signs receipts.
#[derive(Debug)]
pub struct Signer {
    identities: Identities,
    public: String,
}

impl Signer {
    /// Takes the first of these keys; `None` if there is no key.
    pub fn new(identities: Identities) -> Option<Self> {
        let public = identities.public_line(0)?;
        Some(Self { identities, public })
    }

    /// Returns the public key as a line of ssh.
    pub fn public(&self) -> &str {
        &self.public
    }

    /// Signs a statement, as SSHSIG in binary form. Blocks while an agent waits for its user.
    ///
    /// # Errors
    /// If the agent refuses.
    pub fn sign(&self, statement: &[u8]) -> Result<Vec<u8>, SignError> {
        self.identities.sign(0, RECEIPT_NAMESPACE, statement)
    }
}

/// Signers are equal if their keys are.
impl PartialEq for Signer {
    fn eq(&self, other: &Self) -> bool {
        self.public == other.public
    }
}

impl Eq for Signer {}

impl fmt::Display for Signer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.public)
    }
}

/// Returns the names of this user and this host. A user without a name has the number of the user.
pub fn here() -> (String, String) {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let number = rustix::process::geteuid().as_raw();
    let name = |variable| std::env::var(variable).ok().filter(|name| !name.is_empty());
    let user = if number == 0 { Some("root".to_owned()) } else { None };
    let user = user.or_else(|| name("LOGNAME")).or_else(|| name("USER"));
    (user.unwrap_or_else(|| number.to_string()), host)
}
