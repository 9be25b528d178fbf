//! Keys of standing servers: `sabul key`, `sabul ticket`, and the files of keys of this user.

mod manage;
mod receipts;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use sabul::Ticket;
use sabul::internal::Host;
use sabul::keys::{
    AuthorizedKeys, Expiry, FileError, Fingerprint, Identities, KnownHosts, NamedTickets, Search,
    ServerIdentity, StandingAccess, write_private,
};
use sabul::settings::{Introduction, Via};

use crate::args::{ChannelArgs, StandingArgs};
use crate::error::CliError;
use crate::output;
use crate::sandbox::Kept;
pub(crate) use manage::{run, tickets};
pub(crate) use receipts::{signer, signing};

/// Name of the file with the server's own key, in the state directory.
const IDENTITY: &str = "identity.pem";
/// Name of the file with the keys of users, in the state directory.
const AUTHORIZED: &str = "authorized_keys";
/// Name of the directory of named tickets, in the state directory.
const TICKETS: &str = "tickets";
/// Name of the file with the addresses of the server's last start, in the state directory.
const ADDRESSES: &str = "addresses";

/// Name of the file with the introducer of the server's last start, in the state directory.
const INTRODUCER: &str = "introducer";

/// Returns the directory of this user's settings.
fn config_folder() -> Result<PathBuf, CliError> {
    let path = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let folder = path("XDG_CONFIG_HOME").or_else(|| Some(path("HOME")?.join(".config")));
    let folder = folder.ok_or_else(|| {
        CliError::usage("this user has no home directory: set HOME or XDG_CONFIG_HOME")
    })?;
    Ok(folder.join("sabul"))
}

fn state_folder(named: Option<&Path>) -> Result<PathBuf, CliError> {
    named.map_or_else(|| Ok(config_folder()?.join("server")), |named| Ok(named.to_owned()))
}

fn known_hosts() -> Result<KnownHosts, CliError> {
    Ok(KnownHosts::at(config_folder()?.join("known_hosts")))
}

fn of_file(error: FileError) -> CliError {
    CliError::usage(error.to_string())
}

/// Files of a standing server.
#[derive(Debug)]
pub(crate) struct Standing {
    pub(crate) access: StandingAccess,
    kept: Kept,
    state: PathBuf,
}

impl Standing {
    /// Returns the directories that the server uses after its start.
    pub(crate) fn kept(&self) -> Kept {
        self.kept.clone()
    }

    /// Keeps the addresses and the introducer of the server, for named tickets.
    pub(crate) fn keep_addresses(&self, ticket: &Ticket) -> Result<(), CliError> {
        let addresses = ticket.addresses().join("\n") + "\n";
        write_private(&self.state.join(ADDRESSES), addresses.as_bytes()).map_err(of_file)?;
        let text = ticket.introduction().map(Introduction::to_string).unwrap_or_default();
        write_private(&self.state.join(INTRODUCER), text.as_bytes()).map_err(of_file)
    }
}

/// Opens the files of a standing server of this directory; `None` without `--authorized-keys` and `--state`.
pub(crate) fn standing(
    args: &StandingArgs,
    root: Option<&Path>,
) -> Result<Option<Standing>, CliError> {
    if args.authorized_keys.is_none() && args.state.is_none() {
        return Ok(None);
    }
    let state = state_folder(args.state.as_deref())?;
    // The working directory does not change, but the sandbox and the lists need a full path.
    let state = std::path::absolute(&state).unwrap_or(state);
    let identity = ServerIdentity::read_or_create(&state.join(IDENTITY)).map_err(of_file)?;
    let path = match &args.authorized_keys {
        Some(path) => path.clone(),
        None => {
            let path = state.join(AUTHORIZED);
            if !path.exists() {
                write_private(&path, b"").map_err(of_file)?;
            }
            path
        }
    };
    let path = std::path::absolute(&path).unwrap_or(path);
    // Local times in the file need the time zone, which the sandbox hides.
    Expiry::prepare();
    let keys = AuthorizedKeys::open(&path).map_err(of_file)?;
    let tickets = NamedTickets::open(&state.join(TICKETS)).map_err(of_file)?;
    let kept = Kept {
        readable: path.parent().map(Path::to_owned),
        tickets: Some(tickets.folder().to_owned()),
        ports: Vec::new(),
        dials: false,
    };
    let access = StandingAccess::new(identity).keys(keys).tickets(tickets);
    let access = access.root(root.map(Path::to_owned));
    Ok(Some(Standing { access, kept, state }))
}

/// Returns the introducer at `host`, and the right to register there.
pub(crate) fn via(host: &Host, ticket: Option<&Path>) -> Result<Via, CliError> {
    let usage = |error: String| CliError::usage(error);
    if let Some(ticket) = ticket {
        let ticket = Ticket::read_file(ticket).map_err(|error| usage(error.to_string()))?;
        let address = host.dial(&ticket)?;
        return Ok(Via::by_ticket(&ticket, Some(&address))?);
    }
    let address = host.standing();
    let introducer = known_hosts()?.find(&address).map_err(of_file)?.ok_or_else(|| {
        usage(format!(
            "the introducer {address} is not trusted: give its ticket with --via-ticket FILE, or run 'sabul key trust \
             {address} FINGERPRINT', as 'sabul key fingerprint' prints it there"
        ))
    })?;
    let identities = Arc::new(Identities::find(&Search::of_user(None)));
    Ok(Via::by_key(&address, introducer, &identities)?)
}

/// Whether a key of this user may open the server: the server is trusted, or shall be trusted now, or a key is named.
pub(crate) fn has_key(args: &ChannelArgs, address: &str) -> Result<bool, CliError> {
    if args.accept_new || args.identity.is_some() {
        return Ok(true);
    }
    // Without a home directory no server is trusted.
    let Ok(hosts) = known_hosts() else { return Ok(false) };
    Ok(hosts.find(address).map_err(of_file)?.is_some())
}

/// Returns the trusted fingerprint of a server, and the keys of this user.
pub(crate) async fn trusted(
    args: &ChannelArgs,
    address: &str,
) -> Result<(Fingerprint, Arc<Identities>), CliError> {
    let hosts = known_hosts()?;
    let server = match hosts.find(address).map_err(of_file)? {
        Some(server) => server,
        None => {
            if !args.accept_new {
                return Err(CliError::usage(format!(
                    "no ticket, and {address} is not a trusted server: give its ticket file with --ticket FILE or in \
                     the variable SABUL_TICKET_FILE; or trust a standing server with 'sabul key trust {address} \
                     FINGERPRINT', as 'sabul key fingerprint' prints it there, or with --accept-new"
                )));
            }
            let found = sabul::keys::fingerprint_at(address, args.session.timeout).await?;
            hosts.trust(address, found).map_err(of_file)?;
            output::note(format_args!("{address} is trusted from now on, with the key {found}"));
            found
        }
    };
    let search = Search::of_user(args.identity.as_deref());
    // An agent may not answer for some seconds.
    let identities = tokio::task::spawn_blocking(move || Identities::find(&search)).await;
    let identities = identities.map_err(|error| CliError::failed(error.to_string()))?;
    Ok((server, Arc::new(identities)))
}
