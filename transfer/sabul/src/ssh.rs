//! Servers on other machines, started through the user's own `ssh`.
//!
//! The near end runs `ssh HOST 'sh -c …'`. A short script (`script.rs`) finds or installs `sabul` there
//! and executes `sabul serve --stdio`, which listens and prints one line with its ticket on standard
//! output. ssh is therefore the secure channel for the secret, and no command line or environment holds
//! it. Other output, such as banners, is skipped. The far end exits at the end of its standard input.
//! If no port of the host is reachable, the session goes through these pipes (`relay.rs`).

mod answer;
pub(crate) mod bridge;
mod command;
mod dial;
mod error;
mod forward;
mod lines;
mod messages;
mod observer;
mod push;
mod script;
mod strip;

use std::ffi::OsStr;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::Arc;

use crate::address::{Location, Remote, Server, check_account, invalid};
use crate::config::{Carrier, ConnectConfig};
use crate::error::Error;
use crate::session::Session;

/// Machinery of the program.
pub(crate) mod parts {
    pub use super::answer::{Ports, bind, failed_line, ready_line, serve_input};
    pub use super::bridge::Bridge;
    pub use super::command::{Program, SplitError};
    pub use super::dial::{
        Dialled, ForwardedServer, Order, RemoteCommand, StartedServer, connect, run,
        start_forwarded, start_server,
    };
    pub use super::forward::Forward;
    pub use super::observer::{NoObserver, UploadObserver};
    pub use super::push::Push;
}
pub use crate::error::SshSetting;
use parts::{Dialled, NoObserver, Order, Ports, Program, Push, SplitError};

/// A host reached through ssh, on which the program `sabul` is installed or uploaded.
///
/// ```no_run
/// use sabul::ssh::Ssh;
/// use sabul::files::{RemoteDestination, SourceSet};
///
/// # async fn copy() -> Result<(), sabul::Error> {
/// let (host, path) = Ssh::parse("me@far:incoming")?;
/// let session = host.command("ssh -p 2222")?.connect(sabul::ConnectConfig::default()).await?;
/// let to = RemoteDestination::directory(path);
/// session.put(SourceSet::path("results.h5"), to, &sabul::TransferOptions::default()).await?.finish().await?;
/// session.close().await;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Ssh {
    order: Order,
}

impl Ssh {
    /// A host in the form of ssh, `[user@]host`.
    ///
    /// # Errors
    /// If the text names no host.
    pub fn new(account: &str) -> Result<Self, Error> {
        let account =
            check_account(account).map_err(|why| invalid(&account, why, "[USER@]HOST"))?;
        Ok(Self::of(account))
    }

    /// Parses `[user@]host:path` into the host and the path there. A relative path starts at the home
    /// directory.
    ///
    /// # Errors
    /// If the text has another form.
    pub fn parse(address: impl AsRef<OsStr>) -> Result<(Self, Vec<u8>), Error> {
        let address = address.as_ref();
        match Location::parse(address)? {
            Location::Remote(Remote { server: Server::Ssh(account), path }) => {
                Ok((Self::of(account), path))
            }
            _ => {
                let why = "names no host that ssh reaches";
                Err(invalid(&address.display(), why, "[USER@]HOST:PATH"))
            }
        }
    }

    fn of(account: String) -> Self {
        Self {
            order: Order {
                account,
                program: Program::default(),
                remote_path: None,
                ports: Ports::default(),
                push: Push::No,
                carrier: Carrier::Auto,
                version: env!("CARGO_PKG_VERSION"),
                dials: false,
                observer: Arc::new(NoObserver),
            },
        }
    }

    /// Uses this ssh program with these options, such as `ssh -p 2222 -J gate`. Words are split as in a
    /// shell; nothing is expanded.
    ///
    /// # Errors
    /// If the text is empty or a quote is not closed.
    pub fn command(mut self, command: &str) -> Result<Self, Error> {
        let program = Program::parse(command);
        self.order.program = program.map_err(|error| {
            let allowed = match error {
                SplitError::Empty => "a program, such as 'ssh -p 2222'".to_owned(),
                SplitError::Quote(quote) => format!("a second {quote} that closes the quote"),
            };
            Error::setting("ssh command", command, allowed)
        })?;
        Ok(self)
    }

    /// Runs the program at this path of the host. Otherwise the usual places are searched.
    #[must_use]
    pub fn remote_program(mut self, path: impl Into<String>) -> Self {
        self.order.remote_path = Some(path.into());
        self
    }

    /// Uploads this file, a program `sabul` for the system of the host, and runs it there. The host
    /// keeps the program, so a later session uploads nothing.
    #[must_use]
    pub fn upload(mut self, program: impl Into<PathBuf>) -> Self {
        self.order.push = Push::File(program.into());
        self
    }

    /// Listens there on the first free port of this range, for TCP and UDP; `0..=0` takes any free
    /// port. The default is 4850 to 4949.
    ///
    /// # Errors
    /// If the range is empty, or starts at 0 and has more ports.
    pub fn ports(mut self, ports: RangeInclusive<u16>) -> Result<Self, Error> {
        let (first, last) = ports.into_inner();
        self.order.ports = Ports::new(first, last).ok_or_else(|| {
            let allowed = "a range of ports, such as 4850..=4949, or 0..=0 for any free port";
            Error::setting("ports", format_args!("{first}..={last}"), allowed)
        })?;
        Ok(self)
    }

    /// Chooses the way of the session. [`Carrier::Ssh`] goes through the connection of ssh; `Auto` does so if no port
    /// of [`Self::ports`] answers within 3 s. `Udp` and `Tcp` need a reachable port.
    #[must_use]
    pub fn carrier(mut self, carrier: Carrier) -> Self {
        self.order.carrier = carrier;
        self
    }

    /// Starts the server and connects to it. [`Session::close`], or the end of the session, ends the
    /// server and ssh. Prompts of ssh use the terminal. If `config` has an address, only that address
    /// is dialled; it is then `host:port` with a port of [`Self::ports`]. See [`Self::carrier`] for unreachable ports.
    ///
    /// # Errors
    /// If ssh cannot run or cannot log in, sabul is missing there or does not start, its version
    /// differs, or its ports are unreachable.
    pub async fn connect(&self, config: ConnectConfig) -> Result<Session, Error> {
        let Dialled { session, bridge } = dial::connect(&self.order, config).await?;
        session.keep(bridge);
        Ok(session)
    }
}
