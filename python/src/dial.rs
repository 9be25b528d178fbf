//! Connection to the server of an address, by the rules of the program: a ticket, else a key, else ssh.

use std::ffi::OsString;
use std::net::IpAddr;
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use sabul::internal::{Host, Location, Remote, Server, escape_pattern};
use sabul::keys::{Identities, KnownHosts, Search};
use sabul::settings::{Carrier, PathMemory, Timeouts};
use sabul::ssh::Ssh;
use sabul::{ConnectConfig, Error, Ticket};
use sabul_front::paths::PathFile;

use crate::error::Fault;
use crate::runtime;
use crate::session::Session;

/// Variable with the name of a ticket file.
const TICKET_VARIABLE: &str = "SABUL_TICKET_FILE";

/// Settings of a connection.
#[derive(Clone, Debug, FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct Reach {
    #[pyo3(default)]
    ticket_file: Option<PathBuf>,
    /// Private key in place of those that ssh would use.
    #[pyo3(default)]
    identity: Option<PathBuf>,
    /// Command of ssh with its options.
    #[pyo3(default)]
    ssh: Option<String>,
    /// Path of the program on the far machine.
    #[pyo3(default)]
    remote_sabul: Option<String>,
    /// Program to upload to the far machine.
    #[pyo3(default)]
    push: Option<PathBuf>,
    /// Carrier that ssh uses: `auto`, `udp`, `tcp` or `ssh`.
    carrier: Option<String>,
    /// Local addresses.
    #[pyo3(default)]
    bind: Option<Vec<String>>,
    /// Silence of the peer that ends the session, in seconds.
    #[pyo3(default)]
    timeout_s: Option<f64>,
    /// Let an introducer relay the data.
    #[pyo3(default)]
    relay: Option<bool>,
}

/// Returns the carrier of this name.
pub(crate) fn carrier(name: &str) -> Result<Carrier, Fault> {
    match name {
        "auto" => Ok(Carrier::Auto),
        "udp" => Ok(Carrier::Udp),
        "tcp" => Ok(Carrier::Tcp),
        "ssh" => Ok(Carrier::Ssh),
        _ => Err(Fault::usage(format!("carrier '{name}' is unknown; use auto, udp, tcp or ssh"))),
    }
}

/// Connects to the server of `address`; without an address, to the server of the ticket file.
#[pyfunction]
pub(crate) fn connect(
    py: Python<'_>,
    address: Option<OsString>,
    mut reach: Reach,
    waits: bool,
) -> PyResult<Bound<'_, PyAny>> {
    // Here, because Python changes the environment only while this thread does not have the GIL.
    if reach.ticket_file.is_none() {
        let named = std::env::var_os(TICKET_VARIABLE).filter(|name| !name.is_empty());
        reach.ticket_file = named.map(PathBuf::from);
    }
    let server = match address {
        None => Server::Ticket,
        Some(address) => match Location::parse(&address).map_err(Fault::from)? {
            Location::Remote(Remote { server, .. }) => server,
            Location::Local(path) => {
                return Err(Fault::usage(format!(
                    "'{}' names no host: write sabul://HOST[:PORT]/ or [USER@]HOST:, or give only a ticket file",
                    path.display()
                ))
                .into());
            }
        },
    };
    runtime::run(py, waits, async move { Ok(Session::new(dial(server, reach).await?)) })
}

/// Splits a place into the address of its server and the path there; `None` for a local path.
#[pyfunction]
pub(crate) fn split<'py>(
    py: Python<'py>,
    place: OsString,
) -> PyResult<Option<(OsString, Bound<'py, PyBytes>)>> {
    let Location::Remote(remote) = Location::parse(&place).map_err(Fault::from)? else {
        return Ok(None);
    };
    let mut address = place.into_vec();
    // The path is the end of the text.
    address.truncate(address.len() - remote.path.len());
    Ok(Some((OsString::from_vec(address), PyBytes::new(py, &remote.path))))
}

/// Returns the path with its special characters quoted, which means only this path.
#[pyfunction]
pub(crate) fn escape<'py>(py: Python<'py>, path: &[u8]) -> Bound<'py, PyBytes> {
    PyBytes::new(py, &escape_pattern(path))
}

async fn dial(server: Server, reach: Reach) -> Result<sabul::Session, Fault> {
    let config = reach.config()?;
    match server {
        Server::Ssh(account) => reach.by_ssh(&account, config).await,
        Server::Listener(host) => reach.listener(&host, config).await,
        Server::Ticket => Ok(sabul::connect(&reach.ticket()?, config).await?),
        Server::Here => Err(Fault::usage("this machine is no server; name a host")),
    }
}

impl Reach {
    fn config(&self) -> Result<ConnectConfig, Fault> {
        let mut config = ConnectConfig::default().paths(path_memory());
        if let Some(seconds) = self.timeout_s {
            let silence = Duration::try_from_secs_f64(seconds).ok().filter(|it| !it.is_zero());
            let silence = silence.ok_or_else(|| {
                Fault::usage(format!(
                    "timeout_s {seconds} is invalid; use a number of seconds above 0"
                ))
            })?;
            config = config.timeouts(Timeouts::default().with_silence(silence));
        }
        let mut bind = Vec::new();
        for address in self.bind.iter().flatten() {
            bind.push(address.parse::<IpAddr>().map_err(|_| {
                Fault::usage(format!(
                    "'{address}' in bind is no IP address; use addresses of this machine"
                ))
            })?);
        }
        Ok(config.bind(bind).relay(self.relay.unwrap_or_default()))
    }

    fn ticket(&self) -> Result<Ticket, Fault> {
        let path = self.ticket_file.as_deref().ok_or_else(|| {
            Fault::usage(format!(
                "no ticket: name the server's ticket file by ticket_file or in the variable {TICKET_VARIABLE}"
            ))
        })?;
        Ticket::read_file(path).map_err(|error| Error::Ticket(error).into())
    }

    async fn by_ssh(&self, account: &str, config: ConnectConfig) -> Result<sabul::Session, Fault> {
        let mut ssh = Ssh::new(account)?;
        if let Some(command) = &self.ssh {
            ssh = ssh.command(command)?;
        }
        if let Some(path) = &self.remote_sabul {
            ssh = ssh.remote_program(path);
        }
        if let Some(program) = &self.push {
            ssh = ssh.upload(program);
        }
        if let Some(name) = &self.carrier {
            ssh = ssh.carrier(carrier(name)?);
        }
        Ok(ssh.connect(config).await?)
    }

    /// Connects to a named listener by ticket or key. A host without a port, for which this user has neither, is
    /// reached through ssh.
    async fn listener(&self, host: &Host, config: ConnectConfig) -> Result<sabul::Session, Fault> {
        let address = host.standing();
        if self.ticket_file.is_some() && self.identity.is_none() {
            let ticket = self.ticket()?;
            return Ok(sabul::internal::connect_to(&host.dial(&ticket)?, &ticket, config).await?);
        }
        let known = known_hosts().map(|hosts| hosts.find(&address)).transpose();
        let known = known.map_err(|error| Fault::usage(error.to_string()))?.flatten();
        let Some(server) = known else {
            let account =
                host.account().map_err(|why| Fault::usage(format!("'{}' {why}", host.name())))?;
            return match account.filter(|_| self.identity.is_none()) {
                Some(account) => self.by_ssh(&account, config).await,
                None => Err(Fault::usage(format!(
                    "no ticket, and {address} is not a trusted server: name its ticket file by ticket_file or in the \
                     variable {TICKET_VARIABLE}, or trust a standing server with 'sabul key trust {address} FINGERPRINT'"
                ))),
            };
        };
        let search = Search::of_user(self.identity.as_deref());
        // An agent may not answer for some seconds.
        let identities = tokio::task::spawn_blocking(move || Identities::find(&search)).await;
        let identities = identities.map_err(|error| Fault::failed(error.to_string()))?;
        Ok(sabul::keys::connect(&address, server, &Arc::new(identities), config).await?)
    }
}

/// Returns the file of this user's trusted servers; `None` without a home directory.
fn known_hosts() -> Option<KnownHosts> {
    let path = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let folder = path("XDG_CONFIG_HOME").or_else(|| Some(path("HOME")?.join(".config")))?;
    Some(KnownHosts::at(folder.join("sabul").join("known_hosts")))
}

/// Rates and RTTs that earlier copies of this user measured, and the file that keeps them.
static PATHS: OnceLock<PathFile> = OnceLock::new();

/// Returns what this user's transfers measured.
pub(crate) fn path_memory() -> PathMemory {
    PATHS.get_or_init(PathFile::of_user).memory()
}

/// Writes the measured rates and RTTs for later processes. A failure is ignored: the file only speeds up the start.
pub(crate) fn keep_paths() {
    if let Some(file) = PATHS.get() {
        let _ = file.keep();
    }
}
