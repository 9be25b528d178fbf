//! Keys of standing servers: `sabul key`, and the files of keys of this user.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use sabul::internal::Host;
use sabul::keys::{
    AuthorizedKeys, Expiry, FileError, Fingerprint, Identities, KnownHosts, Search, ServerIdentity,
    StandingAccess, write_private,
};

use crate::args::{ChannelArgs, KeyArgs, KeyCommand, StandingArgs};
use crate::error::CliError;
use crate::{exit, output};

/// Name of the file with the server's own key, in the state directory.
const IDENTITY: &str = "identity.pem";
/// Name of the file with the keys of users, in the state directory.
const AUTHORIZED: &str = "authorized_keys";

/// Runs `sabul key` and returns the exit code.
pub(crate) fn run(args: &KeyArgs) -> Result<u8, CliError> {
    match &args.command {
        KeyCommand::Fingerprint(args) => {
            let path = state_folder(args.state.as_deref())?.join(IDENTITY);
            let identity = ServerIdentity::read(&path).map_err(|error| {
                CliError::usage(match error.is_missing() {
                    true => format!(
                        "no standing server has been started with '{}': start 'sabul serve --authorized-keys FILE', \
                         or name its directory with --state",
                        path.display()
                    ),
                    false => error.to_string(),
                })
            })?;
            output::print_line(Fingerprint(identity.fingerprint()))?;
        }
        KeyCommand::Trust(args) => {
            let host = Host::parse(&args.host).map_err(|why| {
                CliError::usage(format!("'{}' {why}; write HOST:PORT", args.host))
            })?;
            let hosts = known_hosts()?;
            hosts.trust(&host.standing(), args.fingerprint).map_err(of_file)?;
            output::note(format_args!("{} is trusted", host.standing()));
        }
    }
    Ok(exit::DONE)
}

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

/// Standing access of a server, and the directories that the server reads again.
#[derive(Debug)]
pub(crate) struct Standing {
    pub(crate) access: StandingAccess,
    pub(crate) readable: Vec<PathBuf>,
}

/// Opens the files of a standing server; `None` without `--authorized-keys` and `--state`.
pub(crate) fn standing(args: &StandingArgs) -> Result<Option<Standing>, CliError> {
    if args.authorized_keys.is_none() && args.state.is_none() {
        return Ok(None);
    }
    let state = state_folder(args.state.as_deref())?;
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
    // The working directory of the server does not change, but a sandbox needs a folder.
    let path = std::path::absolute(&path).unwrap_or(path);
    // Local times in the file need the time zone, which the sandbox hides.
    Expiry::prepare();
    let keys = AuthorizedKeys::open(&path).map_err(of_file)?;
    let readable = path.parent().map(Path::to_owned).into_iter().collect();
    Ok(Some(Standing { access: StandingAccess::new(identity).keys(keys), readable }))
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
            let found = sabul::keys::fingerprint_at(address, args.timeout).await?;
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
