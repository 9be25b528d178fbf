//! Arguments of standing servers and of `sabul key`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use sabul::keys::{Expiry, Fingerprint, Grant};

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
    /// Directory of the server's own key, its named tickets, and by default authorized_keys.
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
  sabul key add --rights read guest.pub       on the server: a user
  sabul key trust host:4850 SHA256:...        on the client: trust this server";

/// Commands below `sabul key`.
#[derive(Debug, Subcommand)]
pub(crate) enum KeyCommand {
    /// Print the fingerprint of the standing server of this machine
    #[command(after_help = exit::SHORT_LIST,
              after_long_help = exit::below("Examples:\n  sabul key fingerprint", exit::SHORT_LIST))]
    Fingerprint(StateArgs),
    /// Trust a server with this fingerprint from now on
    #[command(after_help = exit::SHORT_LIST,
              after_long_help = exit::below("Examples:\n  sabul key trust host:4850 SHA256:...", exit::SHORT_LIST))]
    Trust(KeyTrustArgs),
    /// List the keys that the server accepts
    #[command(after_help = exit::SHORT_LIST,
              after_long_help = exit::below("Examples:\n  sabul key list", exit::SHORT_LIST))]
    List(KeyFileArgs),
    /// Accept the public keys of a file
    ///
    /// The keys are added to the file of authorized keys. A key that is in the file gets the new
    /// options.
    #[command(after_help = exit::SHORT_LIST, after_long_help = exit::below(
        "Examples:\n  sabul key add --root inbox --rights write instrument.pub", exit::SHORT_LIST))]
    Add(KeyAddArgs),
    /// Accept a key no longer
    ///
    /// Running sessions of the key continue.
    #[command(after_help = exit::SHORT_LIST,
              after_long_help = exit::below("Examples:\n  sabul key revoke SHA256:...", exit::SHORT_LIST))]
    Revoke(KeyRevokeArgs),
}

/// State directory of the server.
#[derive(Clone, Debug, Args)]
pub(crate) struct StateArgs {
    /// State directory of the server [default: ~/.config/sabul/server].
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

/// The file of authorized keys.
#[derive(Clone, Debug, Args)]
pub(crate) struct KeyFileArgs {
    /// File of authorized keys [default: authorized_keys in the state directory].
    #[arg(long, value_name = "FILE")]
    pub(crate) authorized_keys: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) state: StateArgs,
}

/// Arguments of `sabul key add`.
#[derive(Debug, Args)]
pub(crate) struct KeyAddArgs {
    /// File with public keys, such as ~/.ssh/id_ed25519.pub.
    #[arg(value_name = "FILE")]
    pub(crate) public_keys: PathBuf,
    #[command(flatten)]
    pub(crate) grant: GrantArgs,
    #[command(flatten)]
    pub(crate) file: KeyFileArgs,
}

/// Arguments of `sabul key revoke`.
#[derive(Debug, Args)]
pub(crate) struct KeyRevokeArgs {
    /// Fingerprint of the key, as `sabul key list` prints it.
    #[arg(value_name = "FINGERPRINT")]
    pub(crate) key: Fingerprint,
    #[command(flatten)]
    pub(crate) file: KeyFileArgs,
}

/// Limits of a key or ticket.
#[derive(Clone, Debug, Args)]
pub(crate) struct GrantArgs {
    /// Directory below the root of the server, instead of the root itself.
    #[arg(long, value_name = "DIR")]
    root: Option<String>,
    /// Operations: read, write, list, remove, measure, introduce, dial [default: all].
    #[arg(long, value_name = "RIGHT,..")]
    rights: Option<String>,
    /// Limit of each transfer in bit/s, such as 500M.
    #[arg(long, value_name = "RATE")]
    rate: Option<String>,
    /// Policy of data that the server sends: fair, high or low.
    #[arg(long, value_name = "NAME")]
    policy: Option<String>,
    /// End: after a time such as 12h or 7d, or YYYYMMDD[HHMM[SS]][Z].
    #[arg(long, value_name = "TIME", value_parser = parse_end)]
    expires: Option<String>,
    /// Addresses of clients, such as 192.0.2.0/24.
    #[arg(long, value_name = "ADDR,..")]
    from: Option<String>,
}

impl GrantArgs {
    /// Returns the options by their names in files, checked.
    pub(crate) fn options(&self) -> Result<Vec<(String, String)>, String> {
        let options = [
            ("root", &self.root),
            ("rights", &self.rights),
            ("rate", &self.rate),
            ("policy", &self.policy),
            ("expiry-time", &self.expires),
            ("from", &self.from),
        ];
        let mut grant = Grant::default();
        let mut given = Vec::new();
        for (name, value) in options {
            let Some(value) = value else { continue };
            if value.contains(char::is_control) {
                return Err(format!("the value of {name} has a control character"));
            }
            grant.set(name, value)?;
            given.push((name.to_owned(), value.clone()));
        }
        Ok(given)
    }
}

/// Parses an end and returns its form in files.
fn parse_end(text: &str) -> Result<String, String> {
    let units = [("m", 60), ("h", 3600), ("d", 86_400)];
    let span = units.iter().find_map(|(unit, seconds)| {
        let count: u64 = text.strip_suffix(unit)?.parse().ok()?;
        count.checked_mul(*seconds)
    });
    match span {
        Some(seconds) => Ok(Expiry::after_seconds(seconds).to_string()),
        None => Expiry::parse(text)
            .map(|_| text.to_owned())
            .map_err(|error| format!("{error}; or a time from now, such as 30m, 12h or 7d")),
    }
}

/// Arguments of `sabul ticket`.
#[derive(Debug, Args)]
#[command(after_help = exit::SHORT_LIST, after_long_help = exit::below(TICKET_HELP, exit::SHORT_LIST))]
pub(crate) struct TicketArgs {
    /// The command.
    #[command(subcommand)]
    pub(crate) command: TicketCommand,
}

const TICKET_HELP: &str = "\
A named ticket gives access to a standing server (`sabul serve --state DIR`), also after restarts. The ticket is a secret: everyone with the ticket can connect.

Examples:
  sabul ticket create guest --rights read --expires 7d -o guest.ticket
  sabul ticket list
  sabul ticket revoke guest";

/// Commands below `sabul ticket`.
#[derive(Debug, Subcommand)]
pub(crate) enum TicketCommand {
    /// Create a ticket and print it, or write it to a file
    #[command(after_help = exit::SHORT_LIST, after_long_help = exit::below(
        "Examples:\n  sabul ticket create upload --root inbox --rights write --uses 1 -o upload.ticket",
        exit::SHORT_LIST))]
    Create(TicketCreateArgs),
    /// List the tickets, their uses and their limits
    #[command(after_help = exit::SHORT_LIST,
              after_long_help = exit::below("Examples:\n  sabul ticket list", exit::SHORT_LIST))]
    List(StateArgs),
    /// Accept a ticket no longer
    ///
    /// Running sessions of the ticket continue.
    #[command(after_help = exit::SHORT_LIST,
              after_long_help = exit::below("Examples:\n  sabul ticket revoke guest", exit::SHORT_LIST))]
    Revoke(TicketRevokeArgs),
}

/// Arguments of `sabul ticket create`.
#[derive(Debug, Args)]
pub(crate) struct TicketCreateArgs {
    /// Name of the ticket, for lists, logs and revocation.
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// Number of sessions; without it there is no limit.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) uses: Option<u32>,
    /// Write the ticket to this file (mode 0600) instead of standard output.
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Address for the ticket; repeatable [default: those of the server's last start].
    #[arg(long, value_name = "NAME:PORT")]
    pub(crate) advertise: Vec<String>,
    #[command(flatten)]
    pub(crate) grant: GrantArgs,
    #[command(flatten)]
    pub(crate) state: StateArgs,
}

/// Arguments of `sabul ticket revoke`.
#[derive(Debug, Args)]
pub(crate) struct TicketRevokeArgs {
    /// Name of the ticket.
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) state: StateArgs,
}
