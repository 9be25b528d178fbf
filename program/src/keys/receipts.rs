//! Keys with which an end signs receipts.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use sabul::files::receipts::{Signer, Signing, add_identity};
use sabul::keys::{Identities, Search, ServerIdentity};

use super::config_folder;
use crate::error::CliError;

/// Name of the key file for receipts, in the directory of this user's settings.
const RECEIPT_KEY: &str = "receipt_key";
/// Keys of the host, which root can read.
const HOST_KEYS: [&str; 2] = ["/etc/ssh/ssh_host_ed25519_key", "/etc/ssh/ssh_host_ecdsa_key"];

/// Returns the key of the end that runs a command: the named key, the key for receipts, the key for logins, or the first
/// key of the agent or `~/.ssh`.
pub(crate) fn signer(
    named: Option<&Path>,
    identity: Option<&Path>,
) -> Result<Arc<Signer>, CliError> {
    let file = named.map(Path::to_owned).or_else(own_file).or_else(|| identity.map(Path::to_owned));
    let found = Identities::find(&Search::of_user(file.as_deref()));
    let notes = found.notes().join("; ");
    Signer::new(found).map(Arc::new).ok_or_else(|| {
        let why = match (&file, notes.is_empty()) {
            (Some(file), true) => format!("'{}' is not a key that can sign", file.display()),
            (None, true) => "neither the ssh agent nor ~/.ssh has a key".to_owned(),
            (_, false) => notes,
        };
        CliError::usage(format!("no key for receipts: {why}; {}", remedy("this machine")))
    })
}

/// Returns whether a server signs receipts: with the named key, the key for receipts, the key of its certificate, or a key
/// file of its user or host. The agent is not used, because over ssh it can be the agent of the client.
pub(crate) fn signing(
    named: Option<&Path>,
    identity: Option<&ServerIdentity>,
) -> Result<Signing, CliError> {
    if let Some(named) = named {
        return Ok(Signing::Key(signer(Some(named), None)?));
    }
    let mut keys = Identities::default();
    if let Some(file) = own_file() {
        keys.add_key_file(&file);
    }
    if let Some(identity) = identity {
        add_identity(&mut keys, identity);
    }
    let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
    let names = ["id_ed25519", "id_ecdsa", "id_rsa"];
    let of_user = names.iter().map(|name| home.join(".ssh").join(name));
    for file in of_user.chain(HOST_KEYS.map(PathBuf::from)).filter(|file| file.exists()) {
        keys.add_key_file(&file);
    }
    Ok(match Signer::new(keys) {
        Some(signer) => Signing::Key(Arc::new(signer)),
        None => Signing::Missing(format!(
            "the server has no key for receipts; {}",
            remedy("the machine of the server, as the user that runs it")
        )),
    })
}

/// The key file for receipts, if it exists.
fn own_file() -> Option<PathBuf> {
    config_folder().ok().map(|folder| folder.join(RECEIPT_KEY)).filter(|file| file.exists())
}

fn remedy(machine: &str) -> String {
    format!(
        "make one on {machine}: mkdir -p ~/.config/sabul && ssh-keygen -t ed25519 -N '' -f ~/.config/sabul/{RECEIPT_KEY}"
    )
}
