//! Keys that a client can offer: those of its ssh agent, and files of `~/.ssh`.

use std::fmt;
use std::path::{Path, PathBuf};

use data_encoding::BASE64;
use ssh_key::PublicKey;
use ssh_key::public::KeyData;

use crate::agent::{Agent, AgentKey};
use crate::fingerprint::Fingerprint;
use crate::private::SecretKey;
use crate::signature::{envelope, signed_data};
use crate::wire::Reader;

/// Default key files below `~/.ssh`, in order.
const DEFAULT_FILES: [&str; 3] = ["id_ed25519", "id_ecdsa", "id_rsa"];

/// Places of keys.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Search {
    /// Socket of the agent.
    pub agent: Option<PathBuf>,
    /// Home directory, for the default files.
    pub home: Option<PathBuf>,
    /// The only key to offer: a private key file, or a public key file whose key the agent has.
    pub file: Option<PathBuf>,
}

impl Search {
    /// The places of this user: `SSH_AUTH_SOCK` and the home directory, or only this file.
    pub fn of_user(file: Option<&Path>) -> Self {
        let path = |name| std::env::var_os(name).filter(|it| !it.is_empty()).map(PathBuf::from);
        Self { agent: path("SSH_AUTH_SOCK"), home: path("HOME"), file: file.map(Path::to_owned) }
    }
}

/// Keys that can sign, in the order in which they are offered.
#[derive(Debug, Default)]
pub struct Identities {
    list: Vec<Identity>,
    /// Why other keys are not in the list.
    notes: Vec<String>,
}

#[derive(Debug)]
struct Identity {
    fingerprint: Fingerprint,
    public: Vec<u8>,
    name: String,
    signer: Signer,
}

#[derive(Debug)]
enum Signer {
    Agent(Agent),
    File(Box<SecretKey>),
}

/// Reason why a key did not sign.
#[derive(Debug)]
pub struct SignError(String);

impl fmt::Display for SignError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for SignError {}

impl Identities {
    /// Finds the keys: those of the agent, then the default files without a passphrase. May block for 5 s while the
    /// agent does not answer.
    pub fn find(search: &Search) -> Self {
        let mut found = Self::default();
        let agent = search.agent.as_deref().map(Agent::at);
        let of_agent = agent.as_ref().map_or(Ok(Vec::new()), Agent::keys);
        let of_agent = of_agent.unwrap_or_else(|error| {
            found.notes.push(format!("the ssh agent does not answer: {error}"));
            Vec::new()
        });
        if let Some(file) = &search.file {
            found.add_named(file, agent.as_ref(), &of_agent);
            return found;
        }
        for key in &of_agent {
            if let Some(agent) = &agent {
                found.add_of_agent(agent, key);
            }
        }
        let folder = search.home.as_ref().map(|home| home.join(".ssh"));
        for file in DEFAULT_FILES.iter().filter_map(|name| Some(folder.as_ref()?.join(name))) {
            if file.exists() {
                found.add_file(&file);
            }
        }
        found
    }

    /// Returns the fingerprints of the keys, in the order of preference.
    pub fn fingerprints(&self) -> Vec<Fingerprint> {
        self.list.iter().map(|identity| identity.fingerprint).collect()
    }

    /// Returns the public key at this index as a line of ssh: kind, and key in base64.
    pub fn public_line(&self, index: usize) -> Option<String> {
        let public = &self.list.get(index)?.public;
        let kind = Reader(public).string()?;
        Some(format!("{} {}", String::from_utf8_lossy(kind), BASE64.encode(public)))
    }

    /// Adds the key of a private key file without a passphrase, if the file can be used.
    pub fn add_key_file(&mut self, file: &Path) {
        self.add_file(file);
    }

    /// Adds a P-256 key in PKCS #8, such as that of a server's certificate. Returns whether the key can be used.
    pub fn add_p256(&mut self, pkcs8: &[u8], name: &str) -> bool {
        let Some(key) = SecretKey::p256(pkcs8) else { return false };
        self.add(key.public.clone(), name.to_owned(), Signer::File(Box::new(key)));
        true
    }

    /// Returns whether no key was found.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Returns why keys of the usual places are not in the list.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Signs a message for this purpose, as SSHSIG in binary form, by the key at this index. Blocks while the agent
    /// waits for its user, at most 2 min.
    ///
    /// # Errors
    /// If there is no such key, or the agent refuses.
    pub fn sign(
        &self,
        index: usize,
        namespace: &str,
        message: &[u8],
    ) -> Result<Vec<u8>, SignError> {
        let identity =
            self.list.get(index).ok_or_else(|| SignError("there is no such key".to_owned()))?;
        let data = signed_data(namespace, message);
        let signature = match &identity.signer {
            Signer::Agent(agent) => {
                agent.sign(&identity.public, &data).map_err(|error| error.to_string())
            }
            Signer::File(key) => key.sign(&data).ok_or_else(|| "internal error".to_owned()),
        };
        let signature = signature
            .map_err(|why| SignError(format!("the key '{}' did not sign: {why}", identity.name)))?;
        Ok(envelope(&identity.public, namespace, &signature))
    }

    /// Adds the key of `--identity`: the file itself, or the agent's key of the same public key.
    fn add_named(&mut self, file: &Path, agent: Option<&Agent>, of_agent: &[AgentKey]) {
        let before = self.list.len();
        self.add_file(file);
        let mut beside = file.as_os_str().to_owned();
        beside.push(".pub");
        let public = [file, Path::new(&beside)]
            .into_iter()
            .find_map(|path| PublicKey::read_openssh_file(path).ok()?.to_bytes().ok());
        let key = of_agent.iter().find(|key| Some(&key.public) == public.as_ref());
        if let (Some(agent), Some(key)) = (agent, key)
            && self.list.len() == before
        {
            self.add_of_agent(agent, key);
        }
    }

    fn add_file(&mut self, file: &Path) {
        match SecretKey::read(file) {
            Ok(key) => {
                let (public, name) = (key.public.clone(), file.display().to_string());
                self.add(public, name, Signer::File(Box::new(key)));
            }
            Err(why) => self.notes.push(format!("'{}' {why}", file.display())),
        }
    }

    /// Adds a key of the agent. Certificates and keys that no server accepts are skipped.
    fn add_of_agent(&mut self, agent: &Agent, key: &AgentKey) {
        let parsed = PublicKey::from_bytes(&key.public);
        let is_usable =
            parsed.is_ok_and(|key| !matches!(key.key_data(), KeyData::Dsa(_) | KeyData::Other(_)));
        if is_usable {
            let name = key.comment.escape_debug().to_string();
            self.add(key.public.clone(), name, Signer::Agent(agent.clone()));
        }
    }

    fn add(&mut self, public: Vec<u8>, name: String, signer: Signer) {
        let fingerprint = Fingerprint::of(&public);
        if self.list.iter().all(|identity| identity.fingerprint != fingerprint) {
            self.list.push(Identity { fingerprint, public, name, signer });
        }
    }
}
