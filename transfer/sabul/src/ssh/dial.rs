//! Near end of an ssh connection: starts ssh, reads the ticket, and connects to its addresses.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

use sabul_wire::control::CONTROL_VERSION;
use tokio::io::{AsyncWriteExt as _, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout};
use tokio::task::JoinSet;
use tracing::info;

use super::answer::Ports;
use super::bridge::{Bridge, Pipes};
use super::command::Program;
use super::error::ssh_error;
use super::forward::Forward;
use super::lines::{LineEvent, Lines, ProtocolLine};
use super::messages::Messages;
use super::observer::UploadObserver;
use super::push::{Push, Upload};
use super::script;
use crate::config::{Carrier, ConnectConfig};
use crate::connector::{connect_through, connect_to};
use crate::error::{Error, ErrorKind, SshSetting};
use crate::relay::{Relay, ThroughSsh};
use crate::session::Session;
use crate::ticket::Ticket;
use sabul_files::os_text;

/// Delay between connection attempts to several addresses of a host [RFC8305 §8].
const ATTEMPT_DELAY: Duration = Duration::from_millis(250);
/// Ours: time until a session goes through ssh, if no port of the host answers.
const DIRECT: Duration = Duration::from_secs(3);
/// Ours: bytes of the program that are sent between two progress reports.
const PIECE: usize = 64 << 10;
/// Exit code of ssh if it fails before the remote command runs.
const SSH_FAILED: i32 = 255;

/// Parameters of a connection through ssh.
#[derive(Clone, Debug)]
pub struct Order {
    /// Account in the form of ssh: `[user@]host`.
    pub account: String,
    /// The ssh program and its options.
    pub program: Program,
    /// Path of sabul on the far end; `None` searches for it.
    pub remote_path: Option<String>,
    /// Ports on which the far end may listen.
    pub ports: Ports,
    /// Program to upload.
    pub push: Push,
    /// Way of the session: `Auto` goes through ssh if no port is reachable.
    pub carrier: Carrier,
    /// Version of this program, for error messages.
    pub version: &'static str,
    /// The server copies to and from other servers on the order of its client.
    pub dials: bool,
    /// Receives the progress of an upload, and decides whether to upload.
    pub observer: Arc<dyn UploadObserver>,
}

/// Session with a server that ssh started.
#[derive(Debug)]
pub struct Dialled {
    /// The session.
    pub session: Session,
    /// The ssh process that keeps the far end alive.
    pub bridge: Bridge,
}

/// Starts sabul on a host through ssh and connects to it. Dropping the future ends ssh.
///
/// # Errors
///
/// If ssh cannot run or cannot log in, sabul is missing there or does not start, its version
/// differs, or its ports are unreachable.
pub async fn connect(order: &Order, config: ConnectConfig) -> Result<Dialled, Error> {
    let arguments = order.server_arguments();
    Dialling::open(order, &arguments)?.run(config).await
}

/// A server on a host, without a session.
#[derive(Debug)]
pub struct StartedServer {
    /// Ticket with the addresses of the host as its ssh connection and this machine name them.
    pub ticket: Ticket,
    /// The ssh process that keeps the server alive.
    pub bridge: Bridge,
}

/// Starts a server on a host through ssh, for a connection from a third machine.
///
/// # Errors
///
/// As [`connect`], except for the ports.
pub async fn start_server(order: &Order) -> Result<StartedServer, Error> {
    let mut dialling = Dialling::open(order, &order.server_arguments())?;
    let (resolved, ticket) =
        tokio::join!(order.program.resolve(&order.account), dialling.greeting());
    let ticket = ticket?;
    let typed = order.account.rsplit('@').next().unwrap_or_default();
    let host = resolved.as_ref().map_or(typed, |resolved| resolved.host.as_str());
    let addresses = addresses(None, ticket.addresses(), host);
    let Dialling { child, input, lines, .. } = dialling;
    let bridge = Bridge { child, pipes: Pipes::Lines { input, lines }, ticket: None };
    Ok(StartedServer { ticket: ticket.with_addresses(addresses), bridge })
}

/// A server on a host that third machines reach through this machine only.
#[derive(Debug)]
pub struct ForwardedServer {
    /// Ticket with the address of the port that [`Program::forwarding`] makes.
    pub ticket: Ticket,
    /// The ssh process that keeps the server alive.
    pub bridge: Bridge,
    /// The port.
    pub forward: Forward,
}

/// Starts a server on a host through ssh, for connections that pass this machine.
///
/// # Errors
///
/// As [`start_server`], and if this machine has no port.
pub async fn start_forwarded(order: &Order) -> Result<ForwardedServer, Error> {
    let mut dialling = Dialling::open(order, &order.server_arguments())?;
    let ticket = dialling.greeting().await?;
    let Dialling { child, input, lines, .. } = dialling;
    let (relay, tasks) = Relay::start(lines.into_reader(), input, None);
    let forward = Forward::start(relay).await.map_err(|error| {
        let text = format!("cannot open a port on loopback: {}", os_text(&error));
        ssh_error(ErrorKind::Failure, &[], text)
    })?;
    let ticket = ticket.with_addresses(vec![forward.address()]);
    let bridge = Bridge { child, pipes: Pipes::Relay(tasks), ticket: None };
    Ok(ForwardedServer { ticket, bridge, forward })
}

/// A command of the program on a host.
#[derive(Debug)]
pub struct RemoteCommand {
    /// The ssh process.
    pub child: Child,
    /// Standard input of the command; the end of the input stops the command.
    pub input: ChildStdin,
    /// Standard output of the command.
    pub output: BufReader<ChildStdout>,
}

/// Runs the program on a host with these arguments. Its messages go to standard error.
///
/// # Errors
///
/// If ssh cannot run or cannot log in, or sabul is missing there.
pub async fn run(order: &Order, arguments: &[String]) -> Result<RemoteCommand, Error> {
    let mut dialling = Dialling::open(order, arguments)?;
    dialling.find().await?;
    let Dialling { child, input, lines, .. } = dialling;
    Ok(RemoteCommand { child, input, output: lines.into_reader() })
}

impl Order {
    /// Arguments of a server that ends with its standard input.
    fn server_arguments(&self) -> Vec<String> {
        let ports = self.ports.to_string();
        let mut words = vec!["serve", "--stdio", "--ports", &ports];
        if self.dials {
            words.extend(["--dial", "0.0.0.0/0,::/0"]);
        }
        words.into_iter().map(str::to_owned).collect()
    }
}

impl<'a> Dialling<'a> {
    /// Starts ssh with the program and these arguments.
    fn open(order: &'a Order, arguments: &[String]) -> Result<Self, Error> {
        let upload = order.push.upload()?.map(Arc::new);
        let pushed = upload.as_ref().map(|upload| upload.hash.as_str());
        let path = order.remote_path.as_deref().unwrap_or_default();
        let remote = script::remote(path, pushed, arguments);
        let mut child = order.program.command(&order.account, &remote).spawn().map_err(|error| {
        let name = order.program.name();
        let text = match error.kind() {
            io::ErrorKind::NotFound => format!(
                "cannot run '{name}': no such program; install the OpenSSH client, or choose another program"
            ),
            _ => format!("cannot run '{name}': {}; choose another program", os_text(&error)),
        };
        ssh_error(ErrorKind::Request, &[SshSetting::Command], text)
    })?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(ssh_error(ErrorKind::Failure, &[], "ssh has no input and output"));
        };
        let messages = Messages::pass_on(child.stderr.take(), Arc::clone(&order.observer));
        let lines = Lines::new(BufReader::new(output));
        Ok(Self { order, upload, child, input, lines, messages, found: None })
    }
}

/// Connection in progress.
struct Dialling<'a> {
    order: &'a Order,
    upload: Option<Arc<Upload>>,
    child: Child,
    input: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
    /// Standard error of ssh.
    messages: Messages,
    /// Path and version of the program on the far end.
    found: Option<(String, String)>,
}

impl Dialling<'_> {
    async fn run(mut self, config: ConnectConfig) -> Result<Dialled, Error> {
        let order = self.order;
        let resolving = order.program.resolve(&order.account);
        let (resolved, ticket) = tokio::join!(resolving, self.greeting());
        let ticket = ticket?;
        let typed = order.account.rsplit('@').next().unwrap_or_default();
        let through = resolved.as_ref().is_some_and(|resolved| resolved.goes_through_another);
        let host = resolved.as_ref().map_or(typed, |resolved| resolved.host.as_str());
        let addresses = addresses(config.address.as_deref(), ticket.addresses(), host);
        let port = addresses.first().and_then(|first| port_of(first)).unwrap_or_default();
        if order.carrier == Carrier::Ssh {
            return self.through_ssh(&ticket, config, "as requested").await;
        }
        let dialling = first_that_answers(&addresses, &ticket, &config);
        let dialled = match order.carrier {
            Carrier::Auto => tokio::time::timeout(DIRECT, dialling).await.ok(),
            _ => Some(dialling.await),
        };
        match dialled {
            Some(Ok(session)) => {
                let Self { child, input, lines, .. } = self;
                let (pipes, ticket) =
                    (Pipes::Lines { input, lines }, Some(ticket.with_addresses(addresses)));
                Ok(Dialled { session, bridge: Bridge { child, pipes, ticket } })
            }
            Some(Err(error)) if order.carrier != Carrier::Auto || error.is_of_request() => {
                Err(self.unreachable(&error, &addresses, port, through))
            }
            failed => {
                let why = failed.and_then(Result::err).map(|error| error.to_string());
                info!(?addresses, why, "no port answers; the session goes through ssh");
                self.through_ssh(&ticket, config, "no other port answers").await
            }
        }
    }

    /// Connects to the far end over its standard input and output.
    async fn through_ssh(
        self,
        ticket: &Ticket,
        config: ConnectConfig,
        reason: &'static str,
    ) -> Result<Dialled, Error> {
        let Self { order, child, input, lines, .. } = self;
        let (relay, tasks) = Relay::start(lines.into_reader(), input, None);
        let bridge = Bridge { child, pipes: Pipes::Relay(tasks), ticket: None };
        let peer = ticket.addresses().iter().find_map(|address| address.parse().ok());
        let peer = peer.unwrap_or_else(|| SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)));
        let session = connect_through(ThroughSsh { relay, reason }, peer, ticket, config).await;
        let session = session
            .map_err(|error| ssh_error(error.kind(), &[], format!("{}: {error}", order.account)))?;
        Ok(Dialled { session, bridge })
    }

    /// Processes the lines from the far end until the program has started.
    async fn find(&mut self) -> Result<(), Error> {
        while self.found.is_none() {
            if self.step().await?.is_some() {
                return Err(self.skew("another version of sabul"));
            }
        }
        match &self.found {
            Some((_, version)) if *version != format!("sabul {}", self.order.version) => {
                Err(self.skew(version))
            }
            _ => Ok(()),
        }
    }

    /// Processes the lines from the far end until it is ready.
    async fn greeting(&mut self) -> Result<Ticket, Error> {
        loop {
            if let Some(ticket) = self.step().await? {
                return Ok(ticket);
            }
        }
    }

    /// Processes one line from the far end; returns the ticket of a server that is ready.
    async fn step(&mut self) -> Result<Option<Ticket>, Error> {
        let account = &self.order.account;
        match self.lines.next().await {
            LineEvent::ProtocolLine(ProtocolLine::Found { path, version }) => {
                self.found = Some((path, version));
            }
            LineEvent::ProtocolLine(ProtocolLine::Wants { system, has_gzip }) => {
                self.send_program(&system, has_gzip).await?;
            }
            LineEvent::ProtocolLine(ProtocolLine::Ready { protocol, version, ticket }) => {
                if protocol != u32::from(CONTROL_VERSION) {
                    return Err(self.skew(&format!("sabul {version}")));
                }
                let ticket = ticket.parse().map_err(|_| self.skew(&format!("sabul {version}")));
                return ticket.map(Some);
            }
            LineEvent::ProtocolLine(ProtocolLine::Missing { system, searched }) => {
                if !self.offer(&system).await? {
                    return Err(missing(self.order, &system, &searched));
                }
            }
            LineEvent::ProtocolLine(ProtocolLine::Damaged { why }) => {
                let text = format!("the program uploaded to {account} cannot run there: {why}");
                return Err(ssh_error(ErrorKind::Destination, &[], text));
            }
            LineEvent::ProtocolLine(ProtocolLine::Failed { why }) => {
                return Err(ssh_error(ErrorKind::Failure, &[], format!("{account}: {why}")));
            }
            LineEvent::ProtocolLine(ProtocolLine::Unknown) => {
                return Err(self.skew("another version of sabul"));
            }
            LineEvent::TooMuch => {
                let text = format!(
                    "{account} printed more than 1 MiB before sabul answered; {}; check what the start-up \
                         files of the shell there print",
                    self.lines.tail()
                );
                return Err(ssh_error(ErrorKind::Unreachable, &[], text));
            }
            LineEvent::End => return Err(self.ended().await),
        }
        Ok(None)
    }

    /// Offers to upload this program to a host that lacks it. Returns true after the user agreed
    /// and the hash was sent.
    async fn offer(&mut self, system: &str) -> Result<bool, Error> {
        let order = self.order;
        if order.remote_path.is_some() || order.push != Push::No {
            return Ok(false);
        }
        let Some(upload) = Push::Own.upload()?.filter(|upload| upload.system == Some(system))
        else {
            return Ok(false);
        };
        let upload = Arc::new(upload);
        let (observer, shared) = (Arc::clone(&order.observer), Arc::clone(&upload));
        let (account, system) = (order.account.clone(), system.to_owned());
        let confirmed = tokio::task::spawn_blocking(move || {
            observer.confirm(&account, &system, &|| shared.packed().len() as u64)
        });
        if !confirmed.await.unwrap_or(false) {
            return Ok(false);
        }
        // If ssh has ended, the next read reports it.
        let _ = self.input.write_all(format!("{}\n", upload.hash).as_bytes()).await;
        self.upload = Some(upload);
        Ok(true)
    }

    async fn send_program(&mut self, system: &str, has_gzip: bool) -> Result<(), Error> {
        let account = &self.order.account;
        let Some(upload) = self.upload.clone() else {
            let text =
                format!("{account} requests an upload of sabul, but no upload was permitted");
            return Err(ssh_error(ErrorKind::Unreachable, &[SshSetting::Upload], text));
        };
        if let Some(made_for) = upload.system.filter(|made_for| *made_for != system) {
            let what = match &self.order.push {
                Push::File(path) => path.display().to_string(),
                _ => "this program".to_owned(),
            };
            let text = format!(
                "cannot upload {what} to {account}: it is built for {made_for}, but the host is {system}; build \
                 sabul for {system} (`make dist`) and upload that file"
            );
            return Err(ssh_error(ErrorKind::Request, &[SshSetting::Upload], text));
        }
        let shared = Arc::clone(&upload);
        if has_gzip {
            let pack = move || shared.packed().len();
            tokio::task::spawn_blocking(pack).await.map_err(|error| {
                ssh_error(ErrorKind::Internal, &[], format!("cannot pack the program: {error}"))
            })?;
        }
        let bytes = if has_gzip { upload.packed() } else { &upload.bytes };
        let (observer, total) = (&self.order.observer, bytes.len() as u64);
        let input = &mut self.input;
        // If the upload fails, ssh has ended, and the next read reports it.
        let mut result = input.write_all(format!("{total}\n").as_bytes()).await;
        let mut sent = 0;
        for piece in bytes.chunks(PIECE) {
            observer.progress(account, sent, total);
            if result.is_ok() {
                result = input.write_all(piece).await;
            }
            sent += piece.len() as u64;
        }
        if result.is_ok() && input.flush().await.is_ok() {
            observer.progress(account, sent, total);
        }
        Ok(())
    }

    /// Returns the error for an end of ssh before the far end was ready.
    async fn ended(&mut self) -> Error {
        let account = &self.order.account;
        let (code, how) = how_it_ended(&mut self.child).await;
        let tail = self.lines.tail();
        match &self.found {
            Some((_, version)) if *version != format!("sabul {}", self.order.version) => {
                self.skew(version)
            }
            Some((path, version)) => ssh_error(
                ErrorKind::Unreachable,
                &[],
                format!("{version} at {path} on {account} did not start ({how}); {tail}"),
            ),
            None if code == Some(SSH_FAILED) && self.messages.name_a_refusal().await => ssh_error(
                ErrorKind::Authentication,
                &[],
                format!(
                    "ssh reached {account} but could not log in; see the message of ssh above. Try: {} {account} true",
                    self.order.program.name()
                ),
            ),
            None if code == Some(SSH_FAILED) => ssh_error(
                ErrorKind::Unreachable,
                &[],
                format!(
                    "ssh could not connect to {account}; see the message of ssh above. Try: {} {account} true{}",
                    self.order.program.name(),
                    local_file_hint(account)
                ),
            ),
            None => ssh_error(
                ErrorKind::Unreachable,
                &[],
                format!(
                    "ssh connected to {account} but sabul did not start there ({how}); {tail}. The account must \
                     be allowed to run commands. Try: {} {account} true",
                    self.order.program.name()
                ),
            ),
        }
    }

    /// Returns the error for a far end of another version.
    fn skew(&self, theirs: &str) -> Error {
        let path = self.found.as_ref().map_or_else(String::new, |(path, _)| format!(" ({path})"));
        let theirs = match &self.found {
            Some((_, version)) if !version.is_empty() => version,
            _ => theirs,
        };
        let text = format!(
            "{} has {theirs}{path}, but this is sabul {}: the versions are incompatible; install the same \
             version on both sides, or upload this program",
            self.order.account, self.order.version
        );
        ssh_error(ErrorKind::Unreachable, &[SshSetting::Upload], text)
    }

    /// Returns the error for a far end whose ports are unreachable although ssh works.
    fn unreachable(&self, error: &Error, addresses: &[String], port: &str, through: bool) -> Error {
        let Error::Unreachable { .. } = error else {
            return ssh_error(error.kind(), &[], format!("{}: {error}", self.order.account));
        };
        let by = if through {
            ". ssh goes through another host, but the data needs a direct path"
        } else {
            ""
        };
        let text = format!(
            "ssh reaches {}, but TCP port {port} there is unreachable ({error}; tried {}){by}; open the ports {} for \
             TCP and UDP in the firewall there, choose open ports, or let the data go through ssh",
            self.order.account,
            addresses.join(", "),
            self.order.ports
        );
        ssh_error(error.kind(), &[SshSetting::Ports, SshSetting::Carrier], text)
    }
}

fn missing(order: &Order, system: &str, searched: &str) -> Error {
    let account = &order.account;
    let (settings, text): (&[_], _) = match &order.remote_path {
        Some(path) => (
            &[SshSetting::RemoteProgram],
            format!(
                "there is no program {path} on {account} ({system}); correct the path, or leave it out to \
                 search for sabul"
            ),
        ),
        None => (
            &[SshSetting::Upload, SshSetting::RemoteProgram],
            format!(
                "{account} ({system}) has no sabul in {searched}, nor in the usual places below the home \
                 directory; upload this program, install sabul there, or give the path of sabul"
            ),
        ),
    };
    ssh_error(ErrorKind::Failure, settings, text)
}

/// Returns the port of `host:port`.
fn port_of(address: &str) -> Option<&str> {
    address.rsplit_once(':').map(|(_, port)| port)
}

/// Returns the addresses to dial: the given address, or those of the ticket and then the host's own name.
fn addresses(given: Option<&str>, of_ticket: &[String], host: &str) -> Vec<String> {
    if let Some(given) = given {
        return vec![given.to_owned()];
    }
    let port = of_ticket.first().and_then(|first| port_of(first)).unwrap_or_default();
    let named =
        if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
    let mut addresses = of_ticket.to_vec();
    if !addresses.contains(&named) {
        addresses.push(named);
    }
    addresses
}

/// Hints at a local file whose name contains a colon and may have been meant.
fn local_file_hint(account: &str) -> String {
    let name = format!("{account}:");
    let is_here = std::fs::read_dir(".").is_ok_and(|entries| {
        entries.flatten().any(|entry| entry.file_name().to_string_lossy().starts_with(&name))
    });
    if is_here {
        format!(
            ". This folder has a file whose name starts with '{name}'; to copy that file, write ./ in front"
        )
    } else {
        String::new()
    }
}

/// Returns the exit code and a description of the end.
async fn how_it_ended(child: &mut Child) -> (Option<i32>, String) {
    // The output has ended, so the process has ended or will end soon.
    let wait = tokio::time::timeout(Duration::from_secs(2), child.wait()).await;
    let status: Option<ExitStatus> = wait.ok().and_then(Result::ok);
    match status.and_then(|status| status.code()) {
        Some(code) => (Some(code), format!("exit code {code}")),
        None => {
            (None, status.map_or_else(|| "still running".to_owned(), |status| status.to_string()))
        }
    }
}

/// Returns the first session that succeeds. Attempts start [`ATTEMPT_DELAY`] apart and run in parallel.
async fn first_that_answers(
    addresses: &[String],
    ticket: &Ticket,
    config: &ConnectConfig,
) -> Result<Session, Error> {
    let mut dialling = JoinSet::new();
    for (turn, address) in (0u32..).zip(addresses) {
        let (address, ticket, config) = (address.clone(), ticket.clone(), config.clone());
        dialling.spawn(async move {
            tokio::time::sleep(ATTEMPT_DELAY * turn).await;
            (turn, connect_to(&address, &ticket, config).await)
        });
    }
    let mut first: Option<(u32, Error)> = None;
    while let Some(ended) = dialling.join_next().await {
        match ended {
            Ok((_, Ok(session))) => return Ok(session),
            Ok((turn, Err(error))) => {
                if first.as_ref().is_none_or(|(before, _)| turn < *before) {
                    first = Some((turn, error));
                }
            }
            // The panic of a task is reported by its hook.
            Err(_) => {}
        }
    }
    Err(first.map_or(Error::Cancelled, |(_, error)| error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_given_address_replaces_those_of_ticket_and_host() {
        let of_ticket = ["192.0.2.1:4850".to_owned()];
        assert_eq!(addresses(None, &of_ticket, "far"), ["192.0.2.1:4850", "far:4850"]);
        assert_eq!(addresses(None, &of_ticket, "192.0.2.1"), ["192.0.2.1:4850"]);
        assert_eq!(addresses(None, &of_ticket, "fe80::1"), ["192.0.2.1:4850", "[fe80::1]:4850"]);
        assert_eq!(addresses(Some("gate:5000"), &of_ticket, "far"), ["gate:5000"]);
    }
}
