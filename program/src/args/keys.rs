//! Arguments of standing servers and of `sabul key`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use sabul::keys::Fingerprint;

use crate::exit;

/// Standing access of `sabul serve`.
#[derive(Clone, Debug, Args)]
pub(crate) struct StandingArgs {
    /// Accept the ssh keys in this file, instead of a ticket.
    ///
    /// The file has the form of authorized_keys, with options of sabul in front of a key. The file
    /// is read again when it changes. Keep the file in a directory of its own: the server can read
    /// the other files of that directory.
    #[arg(long, value_name = "FILE", conflicts_with = "stdio")]
    pub(crate) authorized_keys: Option<PathBuf>,
    /// Directory of the server's own key, and of authorized_keys by default.
    ///
    /// The key is created at the first start (mode 0600). The default of the directory is
    /// ~/.config/sabul/server.
    #[arg(long, value_name = "DIR", conflicts_with = "stdio")]
    pub(crate) state: Option<PathBuf>,
}

/// Arguments of `sabul key`.
#[derive(Debug, Args)]
#[command(after_help = exit::SHORT_LIST, after_long_help = exit::below(KEY_HELP, exit::SHORT_LIST))]
pub(crate) struct KeyArgs {
    /// The command.
    #[command(subcommand)]
    pub(crate) command: KeyCommand,
}

const KEY_HELP: &str = "\
A standing server (`sabul serve --authorized-keys FILE`) accepts the ssh keys of its users. A client offers the keys of its ssh agent, and the files ~/.ssh/id_* that have no passphrase.

Examples:
  sabul key fingerprint                       on the server: its key
  sabul key trust host:4850 SHA256:...        on the client: trust this server";

/// Commands below `sabul key`.
#[derive(Debug, Subcommand)]
pub(crate) enum KeyCommand {
    /// Print the fingerprint of the standing server of this machine
    #[command(after_help = exit::SHORT_LIST,
              after_long_help = exit::below("Examples:\n  sabul key fingerprint", exit::SHORT_LIST))]
    Fingerprint(KeyFingerprintArgs),
    /// Trust a server with this fingerprint from now on
    #[command(after_help = exit::SHORT_LIST,
              after_long_help = exit::below("Examples:\n  sabul key trust host:4850 SHA256:...", exit::SHORT_LIST))]
    Trust(KeyTrustArgs),
}

/// Arguments of `sabul key fingerprint`.
#[derive(Debug, Args)]
pub(crate) struct KeyFingerprintArgs {
    /// Directory of the server's key [default: ~/.config/sabul/server].
    #[arg(long, value_name = "DIR")]
    pub(crate) state: Option<PathBuf>,
}

/// Arguments of `sabul key trust`.
#[derive(Debug, Args)]
pub(crate) struct KeyTrustArgs {
    /// Address of the server.
    #[arg(value_name = "HOST[:PORT]")]
    pub(crate) host: String,
    /// Fingerprint, as `sabul key fingerprint` prints it on the server.
    #[arg(value_name = "FINGERPRINT")]
    pub(crate) fingerprint: Fingerprint,
}
