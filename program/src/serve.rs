//! `sabul serve` and `sabul perf serve`: servers for clients with a ticket or a key.

mod orders;

use std::io::IsTerminal as _;
use std::net::SocketAddr;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use sabul::internal::{Bound, LISTENER_FILES_MIN, ssh};
use sabul::settings::{Ceiling, Controllers, IntroducerConfig, SendPolicy, Via};
use sabul::{Listener, ListenerConfig, Service, Session, Ticket};
use sabul_front::control_socket::{ControlSocket, Job};
use sabul_front::lines::{LineBuilder, ServeEvent, ServedJson};
use sabul_front::served;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::args::{AllowArgs, IntroductionArgs, ListenArgs, ServeArgs};
use crate::error::CliError;
use crate::events::EventFile;
use crate::exit::{self, End, FAILED, INTERRUPTED};
use crate::interrupt::{Early, Interrupt};
use crate::keys::{self, Standing};
use crate::port_mapping::{self, Mapped};
use crate::sandbox::{self, Files, Kept, Sandbox};
use crate::{block_on, control_socket, json, output, paths};
use orders::{Limits, OrderDesk};

/// Ours: time for sessions to clean up after an interrupt.
const CLEAN_UP: Duration = Duration::from_secs(3);
/// Ours: time that a server started by ssh waits without a session. ssh may not detect that its
/// client is gone.
const IDLE_TIMEOUT: Duration = Duration::from_secs(600);
/// Ours: time after the end of a session at which free memory returns to the system, once for all sessions that end
/// in between.
const MEMORY_KEPT: Duration = Duration::from_secs(1);

/// Runs `sabul serve` and returns the exit code. Must be called while the process has a single
/// thread.
pub(crate) fn files(args: &ServeArgs) -> Result<u8, CliError> {
    let Some(root) = &args.root else {
        return if args.introduction.introduce { introducer(args) } else { over_ssh(args) };
    };
    let refuse = |why: String| CliError::usage(format!("cannot serve '{}': {why}", root.display()));
    let root = std::fs::canonicalize(root)
        .map_err(|error| refuse(format!("{error}; choose an existing directory with --root")))?;
    if !root.is_dir() {
        return Err(refuse("not a directory; choose a directory with --root".to_owned()));
    }
    let what =
        format!("serving {}{}", root.display(), if args.read_only { " (read-only)" } else { "" });
    let service = Service::default()
        .root(&root)
        .read_only(args.read_only)
        .remove(args.allow_rm)
        .measure(true)
        .read_back(args.read_back);
    let standing = keys::standing(&args.standing, Some(&root))?;
    let identity = standing.as_ref().map(|standing| &*standing.access.identity);
    let service = service.signing(keys::signing(args.receipt_key.as_deref(), identity)?);
    let example = if args.read_only { Example::Download } else { Example::Upload };
    let controllers = controllers(&args.allow)?;
    let files = Files::Below { root: &root, read_only: args.read_only };
    let introduction = Some(&args.introduction);
    let (dial, is_read_only, read_back) = (args.dial.clone(), args.read_only, args.read_back);
    let orders = Some(Limits { dial, is_read_only, read_back });
    let offer = Offer {
        command: "serve",
        service,
        files,
        controllers,
        what: &what,
        example,
        standing,
        introduction,
        orders,
    };
    run(&args.listen, offer)
}

/// Runs an introducer that serves no files.
fn introducer(args: &ServeArgs) -> Result<u8, CliError> {
    let service = Service::default().read_only(true);
    let offer = Offer {
        command: "serve",
        service,
        files: Files::None,
        controllers: controllers(&args.allow)?,
        what: "introducing",
        example: Example::Register,
        standing: keys::standing(&args.standing, None)?,
        introduction: Some(&args.introduction),
        orders: None,
    };
    run(&args.listen, offer)
}

/// Runs `sabul perf serve` and returns the exit code. Must be called while the process has a single
/// thread.
pub(crate) fn perf(args: &ListenArgs) -> Result<u8, CliError> {
    output::warn_of_debug_build();
    let service = Service::default().read_only(true).measure(true);
    let offer = Offer {
        command: "perf serve",
        service,
        files: Files::None,
        // Measuring is the purpose of this server.
        controllers: Controllers::Any,
        what: "answering tests",
        example: Example::Measure,
        standing: None,
        introduction: None,
        orders: None,
    };
    run(args, offer)
}

/// Purpose and permissions of a server.
#[derive(Debug)]
struct Offer<'a> {
    command: &'static str,
    service: Service,
    files: Files<'a>,
    controllers: Controllers,
    /// The purpose in words.
    what: &'a str,
    example: Example,
    standing: Option<Standing>,
    introduction: Option<&'a IntroductionArgs>,
    /// Copies to and from other servers.
    orders: Option<Limits>,
}

/// Command of a client, printed for copying.
#[derive(Clone, Copy, Debug)]
enum Example {
    Download,
    Upload,
    Measure,
    /// Registration of a server at this introducer.
    Register,
}

impl Example {
    /// Returns the command for an address, with the ticket of this server in the file `ticket`.
    fn command(self, address: &str, ticket: Option<&Path>) -> String {
        let (command, flag) = match self {
            Self::Download => (format!("sabul cp sabul://{address}/FILE ."), "--ticket"),
            Self::Upload => (format!("sabul cp FILE sabul://{address}/"), "--ticket"),
            Self::Measure => (format!("sabul perf {address}"), "--ticket"),
            Self::Register => (
                format!("sabul serve --root DIR --ticket-file FILE --via {address}"),
                "--via-ticket",
            ),
        };
        match ticket {
            Some(ticket) => format!("{command} {flag} {}", shell_word(ticket)),
            None => command,
        }
    }
}

/// Returns a path as a word of a shell command.
fn shell_word(path: &Path) -> String {
    let path = path.display().to_string();
    let is_plain = |sign: char| sign.is_alphanumeric() || "-_./+,:@%".contains(sign);
    match path.chars().all(is_plain) {
        true => path,
        false => format!("'{}'", path.replace('\'', "'\\''")),
    }
}

/// Returns the controllers that clients may choose.
fn controllers(args: &AllowArgs) -> Result<Controllers, CliError> {
    for name in &args.allow_cc {
        sabul_lab_cc::registry::find(name)?;
    }
    Ok(match args {
        AllowArgs { any_cc: true, .. } => Controllers::Any,
        AllowArgs { allow_cc, .. } if !allow_cc.is_empty() => Controllers::Named(allow_cc.clone()),
        AllowArgs { .. } => Controllers::Adaptive,
    })
}

/// Serves until an interrupt. Ports, files and the ticket are opened before the sandbox, which
/// forbids these operations.
fn run(args: &ListenArgs, mut offer: Offer<'_>) -> Result<u8, CliError> {
    let limits = offer.orders.take();
    let Offer {
        command, service, files, controllers, what, example, standing, introduction, ..
    } = offer;
    let (mut config, events) = prepare(args, controllers)?;
    if let Some(introduction) = introduction {
        introduce(introduction, &mut config)?;
    }
    let via_ports: Vec<u16> = config.via.iter().flat_map(Via::ports).collect();
    let is_via = config.via.is_some();
    config.standing = standing
        .as_ref()
        .map(|standing| standing.access.clone().run_ticket(args.ticket_file.is_some()));
    let ceilings = (config.sending.ceiling.clone(), config.receiving.clone());
    let log = if args.json_lines { Log::Json(Box::default()) } else { Log::Text };
    let dials = limits.as_ref().is_some_and(|limits| limits.dial.is_some());
    let orders = limits.map(|limits| Arc::new(OrderDesk::new(&config, limits, log.clone())));
    // A script that waits for the ticket may end the server at once, and an interrupt must not leave a port mapping.
    let early = Early::catch()?;
    let (bound, mut mapped) = open(args, config)?;
    let mapping = &mut mapped;
    let mut job = Job::new(command, &format!("{what}, at {}", bound.local_addr()));
    if let (Some(sent), Some(received)) = ceilings {
        job = job.serving(&sent, &received);
    }
    let serve = move || {
        write_ticket(args, standing.as_ref(), &bound)?;
        let mut kept = standing.as_ref().map(Standing::kept).unwrap_or_default();
        kept.ports = via_ports;
        kept.dials = dials;
        let sandbox = confine(args, files, &kept);
        block_on(async {
            let interrupt = Interrupt::listen_after(&early)?;
            let _control_socket = control_socket::open(&job);
            let (ticket, address) = (bound.ticket().clone(), bound.local_addr());
            let listener = bound.listen()?;
            if is_via {
                tokio::select! {
                    registered = listener.registered() => registered?,
                    () = interrupt.wait() => return Ok(INTERRUPTED),
                }
            }
            mapping.iter().for_each(Mapped::announce);
            announce(args, &ticket, address, what, example, standing.is_some())?;
            log.json(|| started(address, mapping.as_ref(), sandbox.as_ref()));
            output::note(sandbox.map_or_else(|| "sandbox: none".to_owned(), |it| it.to_string()));
            let once = args.once;
            let answering = Answering { service, orders, interrupt, once, log: log.clone(), job };
            let code = answering.all(&listener, renew(mapping.as_mut())).await?;
            log.json(|| ServeEvent::Done { exit: code });
            events.map_or(Ok(()), |events| events.finish())?;
            Ok(code)
        })
    };
    let code = serve();
    mapped.into_iter().for_each(Mapped::remove);
    code
}

/// Writes the ticket file, and the addresses for the tickets of keys.
fn write_ticket(
    args: &ListenArgs,
    standing: Option<&Standing>,
    bound: &Bound,
) -> Result<(), CliError> {
    if let Some(file) = &args.ticket_file {
        bound.ticket().write_file(file).map_err(|error| CliError::usage(error.to_string()))?;
    }
    standing.map_or(Ok(()), |standing| standing.keep_addresses(bound.ticket()))
}

/// Returns the event of a server that listens at `address`.
fn started(address: SocketAddr, mapped: Option<&Mapped>, sandbox: Option<&Sandbox>) -> ServeEvent {
    ServeEvent::Started {
        address: address.to_string(),
        outside: mapped.map(|mapped| mapped.outside().to_string()),
        sandbox: sandbox.map(Sandbox::in_force).unwrap_or_default(),
    }
}

/// Sets the introducer that the server is, or at which it registers.
fn introduce(args: &IntroductionArgs, config: &mut ListenerConfig) -> Result<(), CliError> {
    let introducer = IntroducerConfig::default().relay(args.relay);
    config.introducer = args.introduce.then_some(introducer);
    let ticket = args.via_ticket.as_deref();
    config.via = args.via.as_ref().map(|host| keys::via(host, ticket)).transpose()?;
    Ok(())
}

/// Binds the ports, and has the router forward the port with `--map-port`.
fn open(args: &ListenArgs, config: ListenerConfig) -> Result<(Bound, Option<Mapped>), CliError> {
    let bound = bind(config)?;
    if !args.map_port {
        return Ok((bound, None));
    }
    let mapped = port_mapping::request(bound.local_addr())?;
    Ok((bound.forwarded_from(mapped.outside()), Some(mapped)))
}

/// Renews the port mapping, if there is one, until the future is dropped.
async fn renew(mapped: Option<&mut Mapped>) {
    match mapped {
        Some(mapped) => mapped.renew().await,
        None => std::future::pending().await,
    }
}

/// Binds the ports.
fn bind(config: ListenerConfig) -> Result<Bound, CliError> {
    let address = config.address;
    Bound::new(config).map_err(|error| {
        CliError::usage(format!(
            "cannot listen at {address}: {error}; choose another address with --listen"
        ))
    })
}

/// Enters the sandbox. Returns `None` with `--no-sandbox`.
fn confine(args: &ListenArgs, files: Files<'_>, kept: &Kept) -> Option<Sandbox> {
    // The directory must exist before the sandbox, which forbids its creation. If it cannot be
    // created, opening the control socket reports the error.
    let sockets = ControlSocket::folder().ok();
    (!args.no_sandbox).then(|| sandbox::enter(files, sockets.as_deref(), kept))
}

/// Serves the user who started this process through ssh, until standard input ends.
fn over_ssh(args: &ServeArgs) -> Result<u8, CliError> {
    // A user with a login can run any program anyway.
    let ready = prepare(&args.listen, Controllers::Any).and_then(|(config, events)| {
        let limits =
            Limits { dial: args.dial.clone(), is_read_only: args.read_only, read_back: false };
        let orders = Arc::new(OrderDesk::new(&config, limits, Log::Silent));
        let connection = std::env::var("SSH_CONNECTION").ok();
        let bound = ssh::bind(config, args.ports, connection.as_deref())?;
        Ok((bound, events, orders))
    });
    let (bound, events, orders) = match ready {
        Ok(ready) => ready,
        Err(error) => {
            output::print_line(ssh::failed_line(&error))?;
            return Ok(error.code());
        }
    };
    let signing = keys::signing(args.receipt_key.as_deref(), None)?;
    // The state of the sandbox is not printed: standard error is the remote user's terminal.
    let kept = Kept { dials: args.dial.is_some(), ..Kept::default() };
    confine(&args.listen, Files::All, &kept);
    block_on(async {
        let interrupt = Interrupt::listen()?;
        let ticket = bound.ticket().clone();
        let listener = bound.listen()?;
        output::print_line(ssh::ready_line(&ticket, env!("CARGO_PKG_VERSION")))?;
        // A user with a login can remove files anyway.
        let service = Service::default().as_user(true).remove(true);
        let service = service.read_only(args.read_only).measure(true);
        let service = service.signing(signing);
        let job = Job::new("serve", "a copy through ssh");
        let (orders, log) = (Some(orders), Log::Silent);
        let answering = Answering { service, orders, interrupt, once: false, log, job };
        let code = answering.all(&listener, ssh::serve_input(&listener)).await?;
        events.map_or(Ok(()), |events| events.finish())?;
        Ok(code)
    })
}

/// Returns the listener configuration and the event log.
fn prepare(
    args: &ListenArgs,
    controllers: Controllers,
) -> Result<(ListenerConfig, Option<EventFile>), CliError> {
    sabul::internal::allow_many_files();
    sabul::internal::return_large_buffers_at_once();
    if let Some(limit) = sabul::internal::files_limit().filter(|limit| *limit < LISTENER_FILES_MIN)
    {
        return Err(CliError::usage(format!(
            "the limit of {limit} open files is too low for a server: raise it to {LISTENER_FILES_MIN} or more \
             (ulimit -Hn, LimitNOFILE=)"
        )));
    }
    let mut config = ListenerConfig::new(args.listen);
    config.advertise.clone_from(&args.advertise);
    config.memory = args.session.memory();
    config.timeouts = config.timeouts.with_silence(args.session.timeout);
    let events = args.session.event_file()?;
    config.events = events.as_ref().map(EventFile::sink);
    config.paths = paths::memory();
    // Links are full duplex, so each direction has its own limit. Limits also exist without a rate,
    // so that `sabul set` can change them.
    let ceiling = || args.bwlimit_total.map_or_else(Ceiling::open, Ceiling::new);
    config.sending =
        SendPolicy::default().controllers(controllers).rate_limit(args.bwlimit).ceiling(ceiling());
    config.receiving = Some(ceiling());
    Ok((config, events))
}

/// State shared by all sessions of a server.
#[derive(Clone, Debug)]
struct Answering {
    service: Service,
    orders: Option<Arc<OrderDesk>>,
    interrupt: Interrupt,
    /// Whether the server ends after one session.
    once: bool,
    log: Log,
    job: Job,
}

/// Log of a server.
#[derive(Clone, Debug)]
enum Log {
    /// No log: the client reports the results.
    Silent,
    /// Lines for users on standard error.
    Text,
    /// JSON Lines on standard output.
    Json(Box<LineBuilder>),
}

impl Log {
    const fn is_silent(&self) -> bool {
        matches!(self, Self::Silent)
    }

    fn json(&self, event: impl FnOnce() -> ServeEvent) {
        if let Self::Json(line_builder) = self {
            // A closed pipe is ignored; the server continues.
            let _ = json::print(&line_builder.line(event()));
        }
    }

    fn text(&self, line: impl FnOnce() -> String) {
        if matches!(self, Self::Text) {
            output::note(format_args!("{} {}", served::now(), line()));
        }
    }
}

impl Answering {
    /// Serves every session until an interrupt or until `over` completes. Returns the exit code.
    async fn all(
        self,
        listener: &Listener,
        over: impl Future<Output = ()>,
    ) -> Result<u8, CliError> {
        let mut over = pin!(over);
        let mut sessions = JoinSet::new();
        let mut return_memory_at = None;
        loop {
            // The interrupt has priority: sessions that it ends must still count as cut off.
            tokio::select! {
                biased;
                () = self.interrupt.wait() => break,
                () = &mut over => break,
                accepted = listener.accept() => {
                    drop(sessions.spawn(answer(accepted?, self.clone())));
                    if self.once {
                        // The listener still takes TCP connections that join the session.
                        listener.refuse_sessions();
                        let ended = tokio::select! {
                            ended = sessions.join_next() => ended,
                            () = &mut over => break,
                        };
                        return Ok(ended.and_then(Result::ok).unwrap_or(FAILED));
                    }
                }
                Some(_) = sessions.join_next() => {
                    return_memory_at.get_or_insert_with(|| Instant::now() + MEMORY_KEPT);
                }
                () = tokio::time::sleep_until(return_memory_at.unwrap_or_else(Instant::now)),
                    if return_memory_at.is_some() =>
                {
                    return_memory_at = None;
                    drop(tokio::task::spawn_blocking(sabul::internal::return_free_memory));
                }
                () = tokio::time::sleep(IDLE_TIMEOUT), if self.log.is_silent() && sessions.is_empty() => break,
            }
        }
        let were_cut_off = !sessions.is_empty();
        let clean_up = async { while sessions.join_next().await.is_some() {} };
        if tokio::time::timeout(CLEAN_UP, clean_up).await.is_err() && !self.log.is_silent() {
            output::error("some sessions did not end in time and were aborted");
        }
        Ok(if were_cut_off { INTERRUPTED } else { exit::DONE })
    }
}

/// Prints the address and the example, then the ticket. The ticket comes last, because its holder
/// may connect at once.
fn announce(
    args: &ListenArgs,
    ticket: &Ticket,
    address: SocketAddr,
    what: &str,
    example: Example,
    is_standing: bool,
) -> Result<(), CliError> {
    let first = ticket.introduction().map(|it| &it.address).or_else(|| ticket.addresses().first());
    let dial = first.map_or_else(|| address.to_string(), String::clone);
    output::note(format_args!("{what}, at {address} (TCP and UDP)"));
    if let Some(introduction) = ticket.introduction() {
        output::note(format_args!("registered at the introducer {}", introduction.address));
    }
    if is_standing {
        let fingerprint = sabul::keys::Fingerprint(ticket.fingerprint());
        output::note(format_args!("key: {fingerprint}"));
        if args.ticket_file.is_none() {
            output::note(format_args!("ready: {}", example.command(&dial, None)));
            return Ok(());
        }
    }
    let file = args.ticket_file.as_deref().unwrap_or_else(|| Path::new("TICKET"));
    let line = example.command(&dial, Some(file));
    if args.ticket_file.is_some() {
        output::note(format_args!("ready: {line}"));
    } else {
        output::note(format_args!(
            "ready: save the line below (a secret) in a file TICKET with mode 0600, then run: {line}"
        ));
        if !std::io::stdout().is_terminal() {
            output::note(
                "warning: standard output is no terminal; everyone who can read it, for example in a service \
                 log, gets the ticket; --ticket-file writes the ticket to a private file",
            );
        }
        output::print_line(ticket)?;
    }
    Ok(())
}

/// Serves one session until its end or an interrupt. Returns the exit code of the session.
async fn answer(session: Session, answering: Answering) -> u8 {
    let Answering { service, orders, interrupt, log, job, .. } = answering;
    let streams = orders.map(|desk| desk.of_session());
    let peer = served::canonical(session.peer_addr());
    let user = session.user().map(|user| format!("({}) ", user.name)).unwrap_or_default();
    job.session_begins();
    let observe = |serving: sabul::server::Serving<'_>| {
        let served = match serving {
            sabul::server::Serving::Started(started) => return job.serves(started),
            sabul::server::Serving::Over(served) => served,
            _ => return,
        };
        if let Ok(report) = served.result {
            job.served(report.bytes);
        }
        let word = |error: &sabul::Error| exit::word_of(End::Error(error.kind()));
        log.text(|| served::transfer_line(&served));
        log.json(|| ServeEvent::Transfer(ServedJson::of(&served, word)));
    };
    let result = tokio::select! {
        result = session.serve_with(&service, streams, observe) => {
            job.session_ends();
            result
        }
        () = interrupt.wait() => {
            session.close().await;
            return INTERRUPTED;
        }
    };
    let (transfers, bytes) = result.as_ref().map_or((0, 0), |it| (it.transfers, it.bytes));
    let error = result.as_ref().err().map(|error| {
        let word = exit::word_of(End::Error(error.kind()));
        sabul_front::json::ErrorJson::of_all(word, error.to_string())
    });
    log.json(|| ServeEvent::Session { peer: peer.to_string(), transfers, bytes, error });
    match result {
        Ok(summary) => {
            log.text(|| format!("{peer} {}{}", user, served::session_line(&summary)));
            match summary.last_error {
                Some(error) => exit::code_of(error.kind()),
                None if summary.failed + summary.entries_failed > 0 => FAILED,
                None => exit::DONE,
            }
        }
        Err(error) => {
            log.text(|| format!("{peer} session failed: {error}"));
            exit::code_of(error.kind())
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::args::Cli;

    #[test]
    fn every_command_for_copying_is_a_valid_command_line() {
        for example in [Example::Download, Example::Upload, Example::Measure, Example::Register] {
            for ticket in [None, Some(Path::new("meet.ticket"))] {
                let command = example.command("192.0.2.1:4850", ticket);
                let parsed = Cli::try_parse_from(command.split(' '));
                assert!(parsed.is_ok(), "{command}: {}", parsed.unwrap_err());
            }
        }
        let command = Example::Register.command("meet:4850", Some(Path::new("it's")));
        assert!(command.ends_with(r" --via meet:4850 --via-ticket 'it'\''s'"), "{command}");
    }
}
