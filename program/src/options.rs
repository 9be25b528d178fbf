//! Conversion of command line flags into library options, and connecting.

use std::io::{self, BufRead as _, Read as _};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use sabul::internal::Host;
use sabul::internal::ssh::{self, Dialled, Order};
use sabul::settings::{PathMemory, Timeouts};
use sabul::{ConnectConfig, Listener, ListenerConfig, Service, Session, Ticket, TransferOptions};
use sabul_units::Bytes;

use crate::args::ChannelArgs;
use crate::error::CliError;
use crate::events::EventFile;
use crate::interrupt::Interrupt;
use crate::{keys, paths};

/// Ours: maximum length of a line with a ticket, in bytes; a ticket has at most 8192.
const TICKET_LINE_MAX: u64 = 16 << 10;

impl ChannelArgs {
    /// Reads the ticket file of `--ticket` or SABUL_TICKET_FILE.
    pub(crate) fn read_ticket(&self) -> Result<Ticket, CliError> {
        if let Some(ticket) = &self.given_ticket {
            return Ok(ticket.clone());
        }
        let path: &Path = self.ticket.as_deref().ok_or_else(|| {
            CliError::usage(
                "no ticket: give the server's ticket file with --ticket FILE or in the variable \
                 SABUL_TICKET_FILE",
            )
        })?;
        Ticket::read_file(path).map_err(|error| CliError::usage(error.to_string()))
    }

    /// Whether a ticket is given.
    pub(crate) fn has_ticket(&self) -> bool {
        self.ticket.is_some() || self.given_ticket.is_some()
    }

    /// Reads the ticket from the first line of standard input. The end of standard input later interrupts the command,
    /// because the machine that started it is gone.
    pub(crate) fn read_stdin(&mut self) -> Result<(), CliError> {
        self.read_ticket_line()?;
        interrupt_at_end_of_stdin();
        Ok(())
    }

    /// Reads the ticket from the first line of standard input.
    pub(crate) fn read_ticket_line(&mut self) -> Result<(), CliError> {
        let mut line = String::new();
        let mut input = io::stdin().lock().take(TICKET_LINE_MAX);
        input.read_line(&mut line).map_err(|error| {
            CliError::failed(format!("cannot read the ticket from standard input: {error}"))
        })?;
        let ticket = line.parse::<Ticket>().map_err(|error| CliError::usage(error.to_string()))?;
        self.given_ticket = Some(ticket);
        Ok(())
    }

    /// Returns the name of the congestion controller: `--cc` if given, otherwise the default.
    pub(crate) fn controller(&self) -> &str {
        self.cc.as_deref().unwrap_or(sabul_lab_cc::registry::DEFAULT)
    }

    /// Returns the transfer options with this controller. Checks the controller's name and
    /// parameters.
    pub(crate) fn transfer_options(&self, controller: &str) -> Result<TransferOptions, CliError> {
        check_controller(controller, &self.cc_params)?;
        Ok(TransferOptions::default()
            .controller(controller)
            .controller_params(self.cc_params.clone())
            .carrier(self.carrier.carrier())
            .tcp_connections(self.tcp)
            .channels(self.channels)
            .mtu_max(self.mtu.map(|bytes| Bytes(bytes.into()))))
    }

    /// Creates the event log of `--events`, if given.
    pub(crate) fn event_file(&self) -> Result<Option<EventFile>, CliError> {
        self.session.event_file()
    }

    /// Returns the ssh account of a host without a ticket or key; `None` if `host` is a listener.
    pub(crate) fn account(&self, host: &Host) -> Result<Option<String>, CliError> {
        if self.has_ticket() || keys::has_key(self, &host.standing())? {
            return Ok(None);
        }
        host.account().map_err(|why| CliError::usage(format!("'{}' {why}", host.name())))
    }

    /// Connects to the listener at `host`, or at the addresses of the ticket. Without a ticket the keys
    /// of this user are used. An interrupt cancels.
    pub(crate) async fn connect(
        &self,
        host: Option<&Host>,
        interrupt: &Interrupt,
        events: Option<&EventFile>,
    ) -> Result<Session, CliError> {
        let config = self.connect_config(events);
        let by_key = !self.has_ticket() || self.identity.is_some();
        if let Some(host) = host.filter(|_| by_key) {
            let address = host.standing();
            let dialling = async {
                let (server, identities) = keys::trusted(self, &address).await?;
                Ok(sabul::keys::connect(&address, server, &identities, config).await?)
            };
            return tokio::select! {
                session = dialling => session,
                () = interrupt.wait() => Err(interrupted_early()),
            };
        }
        let ticket = self.read_ticket()?;
        let address = host.map(|host| host.dial(&ticket)).transpose()?;
        let dialling = async {
            match address {
                Some(address) => sabul::internal::connect_to(&address, &ticket, config).await,
                None => sabul::connect(&ticket, config).await,
            }
        };
        tokio::select! {
            session = dialling => Ok(session?),
            () = interrupt.wait() => Err(interrupted_early()),
        }
    }

    /// Starts sabul on another machine through ssh and connects to it. An interrupt cancels.
    pub(crate) async fn connect_by_ssh(
        &self,
        order: &Order,
        interrupt: &Interrupt,
        events: Option<&EventFile>,
    ) -> Result<Dialled, CliError> {
        tokio::select! {
            dialled = ssh::connect(order, self.connect_config(events)) => Ok(dialled?),
            () = interrupt.wait() => Err(interrupted_early()),
        }
    }

    /// Starts a listener in this process and connects to it, for a copy on this machine.
    pub(crate) async fn connect_here(&self) -> Result<Session, CliError> {
        let signing = self.signing.clone();
        let config = ListenerConfig::new((Ipv4Addr::LOCALHOST, 0).into());
        let listener = Listener::bind(config).await?;
        let ticket = listener.ticket().clone();
        tokio::spawn(async move {
            let service = Service::default().as_user(true).remove(true).signing(signing);
            // The connecting end reports failures.
            if let Ok(session) = listener.accept().await {
                let _ = session.serve(&service).await;
            }
        });
        let config = ConnectConfig::default().memory(self.session.memory());
        Ok(sabul::connect(&ticket, config).await?)
    }

    fn connect_config(&self, events: Option<&EventFile>) -> ConnectConfig {
        let events = events.map(EventFile::sink);
        let paths = if self.fresh { PathMemory::default() } else { paths::memory() };
        ConnectConfig::default()
            .memory(self.session.memory())
            .timeouts(Timeouts::default().with_silence(self.session.timeout))
            .events(events)
            .paths(paths)
            .bind(self.bind.clone())
            .relay(self.relay)
    }
}

/// Returns the file of this program. If the file was replaced since the start, as an upgrade does, this is the file that
/// runs.
pub(crate) fn own_program() -> io::Result<PathBuf> {
    let path = std::env::current_exe()?;
    Ok(if path.exists() { path } else { PathBuf::from("/proc/self/exe") })
}

/// Interrupts this process at the end of standard input.
pub(crate) fn interrupt_at_end_of_stdin() {
    std::thread::spawn(|| {
        let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
        let _ = signal_hook::low_level::raise(signal_hook::consts::SIGINT);
    });
}

fn interrupted_early() -> CliError {
    CliError::interrupted("interrupted while connecting; nothing was transferred")
}

/// Checks a controller's name and parameters before anything is sent. The packet size is not known
/// yet; any value serves for this check.
pub(crate) fn check_controller(name: &str, params: &[(String, String)]) -> Result<(), CliError> {
    sabul_lab_cc::registry::find(name)?.build(params, Bytes(1500))?;
    Ok(())
}
