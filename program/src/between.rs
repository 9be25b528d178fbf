//! Copies between two other machines: one of them runs the copy, and this machine shows its progress.
//!
//! The source runs `sabul cp` over ssh and dials a server that ssh started at the destination. If the source cannot
//! reach the destination, the destination runs the copy and dials the source. Data passes this machine only with
//! --relay: through both ssh connections. Both ends stop when their standard input ends, so they do not outlive this
//! command. Two servers that ssh does not reach are steered by `between/servers.rs`.

pub(crate) mod pair;
pub(crate) mod servers;

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::sync::Arc;
use std::time::Duration;

use sabul::internal::ssh::{
    self, Bridge, Forward, ForwardedServer, RemoteCommand, StartedServer, UploadObserver,
};
use sabul::internal::{Location, Remote, Server};
use sabul::{ErrorKind, Ticket};
use sabul_content::Printable;
use sabul_front::json::TransferJson;
use sabul_front::lines::{CopyEvent, LineBuilder};
use sabul_units::{show_bytes, show_rate};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::ChildStdin;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::args::{self, CarrierArg, CopyArgs};
use crate::cp::CopyCommand;
use crate::error::CliError;
use crate::exit;
use crate::interrupt::Interrupt;
use crate::movement::Movements;
use crate::options::interrupt_at_end_of_stdin;
use crate::passing::Passing;
use crate::policy::controller;
use crate::progress::Meter;
use crate::upload::UploadProgress;
use crate::{json, output};
use servers::Places;

/// Ours: time for the other machines to stop after an interrupt.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// Message for an interrupt before the copy.
const INTERRUPTED_EARLY: &str = "interrupted while connecting; nothing was transferred";

/// Ours: maximum length of a line in bytes; the last line names up to 10,000 failed files.
const LINE_MAX: u64 = 32 << 20;
/// Exit code of a command whose peer is unreachable.
const UNREACHABLE: u8 = exit::code_of(ErrorKind::Unreachable);
/// Flags for this machine only.
const OWN_FLAGS: &[&str] = &[
    "ssh",
    "remote-sabul",
    "push",
    "ports",
    "ticket",
    "to-ticket",
    "json",
    "json-lines",
    "batch",
    "end-with-stdin",
    "ticket-line",
    "relay",
    "stripe",
];
/// Flags for files of this machine, or for both ends of one session.
const UNSUPPORTED: &[&str] = &[
    "--receipt",
    "--receipt-key",
    "--bag",
    "--report",
    "--events",
    "--files-from",
    "--exclude-from",
    "--include-from",
    "--ignore-file",
    "--plan",
    "--identity",
];

/// Returns the flag in this word if it is not supported.
fn unsupported_flag(word: &OsStr) -> Option<&'static str> {
    let name = word.as_bytes().split(|&byte| byte == b'=').next().unwrap_or_default();
    UNSUPPORTED.iter().copied().find(|flag| flag.as_bytes() == name)
}

/// A copy between two other machines.
#[derive(Clone, Debug)]
pub(crate) struct Between<'a> {
    sources: Vec<Place<'a>>,
    destination: Place<'a>,
}

/// A place on another machine, as written and as parsed.
#[derive(Clone, Debug)]
struct Place<'a> {
    written: &'a OsStr,
    remote: Remote,
}

/// Runs the command here, or on another machine if all places are remote.
pub(crate) async fn run_or<A: CopyCommand>(
    name: &str,
    mut args: A,
    run: impl AsyncFnOnce(A) -> Result<u8, CliError>,
) -> Result<u8, CliError> {
    let copy = args.as_mut();
    copy.bwlimit = copy.queued.limit(copy.bwlimit, copy.min_rate);
    if copy.queued.end_with_stdin {
        let is_for_another = copy.queued.ticket_line || copy.queued.passed_on;
        if is_for_another && Between::of(copy)?.is_some() {
            copy.queued.passing = Passing::read_bytes();
        } else {
            if copy.queued.ticket_line {
                copy.channel.read_ticket_line()?;
            }
            interrupt_at_end_of_stdin();
        }
    }
    if copy.stdio && copy.queued.passed_on {
        copy.channel.read_ticket_line()?;
        copy.queued.passing = Passing::read_entries();
    } else if copy.stdio {
        copy.channel.read_stdin()?;
    } else if let Some(between) = Between::of(args.as_ref())? {
        return between.run(name, &args).await;
    }
    if args.as_ref().to_ticket.is_some() {
        return Err(only_between_servers());
    }
    run(args).await
}

/// Machine that runs the copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Driver {
    Source,
    Destination,
}

impl<'a> Between<'a> {
    /// Returns the copy if all places are remote.
    pub(crate) fn of(args: &'a CopyArgs) -> Result<Option<Self>, CliError> {
        let mut places = Vec::new();
        for (at, written) in args.places.iter().enumerate() {
            let has_ticket = args.to_ticket.is_some() && at + 1 == args.places.len();
            match Location::parse(written)? {
                Location::Remote(mut remote) => {
                    if let Server::Listener(host) = &remote.server
                        && !has_ticket
                        && let Some(account) = args.channel.account(host)?
                    {
                        remote.server = Server::Ssh(account);
                    }
                    places.push(Place { written, remote });
                }
                Location::Local(_) => return Ok(None),
            }
        }
        let Some(destination) = places.pop() else { return Ok(None) };
        let Some(first) = places.first() else { return Ok(None) };
        if places.iter().any(|source| source.remote.server != first.remote.server) {
            return Err(CliError::usage(
                "the sources are on several hosts; run one command for each host",
            ));
        }
        Ok(Some(Self { sources: places, destination }))
    }

    /// Runs the copy and returns the exit code. Standard output gets one JSON document with `--json`, and one last line
    /// with `--json-lines`, also if both machines tried.
    async fn run(&self, name: &str, args: &impl CopyCommand) -> Result<u8, CliError> {
        let interrupt = Interrupt::listen()?;
        self.run_with(name, args, &interrupt, |_| ()).await
    }

    /// As `run`, with changes of the document.
    pub(crate) async fn run_with(
        &self,
        name: &str,
        command: &impl CopyCommand,
        interrupt: &Interrupt,
        change: impl FnOnce(&mut Value),
    ) -> Result<u8, CliError> {
        let mut last = None;
        let result = self.attempts(name, command, interrupt, &mut last).await;
        let args = command.as_ref();
        if args.json || args.json_lines {
            let mut done = match (last, &result) {
                (Some(done), _) => done,
                (None, Ok(_)) => return result,
                (None, Err(error)) => failed(args, error)?,
            };
            change(&mut done);
            print_done(args, done)?;
        }
        result
    }

    /// The same copy between two other hosts.
    pub(crate) fn by(&self, source: &str, destination: &str) -> Self {
        let mut by = self.clone();
        for place in &mut by.sources {
            place.remote.server = Server::Ssh(source.to_owned());
        }
        by.destination.remote.server = Server::Ssh(destination.to_owned());
        by
    }

    /// Returns the ssh accounts of source and destination; `None` if ssh does not reach both.
    pub(crate) fn accounts(&self) -> Option<(&str, &str)> {
        account(self.source()).zip(account(&self.destination.remote.server))
    }

    /// Returns the paths of the sources as a server of the source host knows them, if they are UTF-8.
    pub(crate) fn source_paths(&self) -> Vec<&str> {
        self.sources
            .iter()
            .filter_map(|place| std::str::from_utf8(&place.remote.path).ok())
            .collect()
    }

    /// Runs the copy at one machine, and at the other if the first cannot reach it. `last` is the event of the end.
    async fn attempts(
        &self,
        name: &str,
        command: &impl CopyCommand,
        interrupt: &Interrupt,
        last: &mut Option<Value>,
    ) -> Result<u8, CliError> {
        if let Some(places) = self.servers()? {
            return servers::run(name, command, &places, interrupt, last).await;
        }
        let args = command.as_ref();
        if args.to_ticket.is_some() {
            return Err(only_between_servers());
        }
        check_flags(name, args)?;
        let mut drivers = self.drivers()?;
        // Only the source finds what it still receives.
        drivers.retain(|(driver, _)| !args.queued.passed_on || *driver == Driver::Source);
        let mut code = exit::FAILED;
        for (turn, (driver, account)) in drivers.into_iter().enumerate() {
            if turn > 0 {
                output::note(
                    "the source cannot reach the destination; the destination dials the source now",
                );
            }
            (code, *last) = self.attempt(name, args, (driver, account), interrupt).await?;
            if code != UNREACHABLE || interrupt.is_seen() {
                break;
            }
        }
        Ok(code)
    }

    /// Returns the machines that can run the copy, with their ssh accounts, the preferred first.
    fn drivers(&self) -> Result<Vec<(Driver, &str)>, CliError> {
        let has_pattern = self.sources.iter().any(|source| {
            let path = &source.remote.path;
            sabul::internal::escape_pattern(path) != *path
        });
        // A server expands patterns, a command does not.
        let source = account(self.source()).filter(|_| !has_pattern);
        let destination = account(&self.destination.remote.server);
        let drivers = [
            source.map(|account| (Driver::Source, account)),
            destination.map(|account| (Driver::Destination, account)),
        ];
        let drivers: Vec<_> = drivers.into_iter().flatten().collect();
        match drivers.is_empty() {
            true if has_pattern => Err(CliError::usage(
                "patterns need a destination that ssh reaches; name the sources, or write [USER@]HOST:PATH",
            )),
            true => Err(CliError::usage(
                "no ssh host runs the copy; write one side as [USER@]HOST:PATH, or run the command on one of the \
                 machines",
            )),
            false => Ok(drivers),
        }
    }

    /// Returns the places if ssh reaches neither machine.
    fn servers(&self) -> Result<Option<Places<'_>>, CliError> {
        let (source, server) = (self.source(), &self.destination.remote.server);
        if account(source).is_some() || account(server).is_some() {
            return Ok(None);
        }
        let path = |place: &Place<'_>| in_text(OsStr::from_bytes(&place.remote.path));
        let sources = self.sources.iter().map(path).collect::<Result<_, _>>()?;
        Ok(Some(Places { source, sources, server, destination: path(&self.destination)? }))
    }

    fn source(&self) -> &Server {
        &self.sources[0].remote.server
    }

    /// Runs the copy on one of the two machines; returns the exit code and the event of the end.
    async fn attempt(
        &self,
        name: &str,
        args: &CopyArgs,
        (driver, account): (Driver, &str),
        interrupt: &Interrupt,
    ) -> Result<(u8, Option<Value>), CliError> {
        let observer: Arc<dyn UploadObserver> =
            Arc::new(UploadProgress::new(args.quiet || args.json || args.json_lines, true));
        let peer = match driver {
            Driver::Source => &self.destination.remote.server,
            Driver::Destination => self.source(),
        };
        let starting = async {
            // Standard input has the ticket of a server at the destination.
            let is_given = args.queued.ticket_line && driver == Driver::Source;
            let (ticket, started) = match is_given {
                true => (None, None),
                false => {
                    let (ticket, started) = start(args, peer, &observer).await?;
                    (Some(ticket), started)
                }
            };
            let mut order = args.ssh.order(account, args.channel.carrier, &observer);
            if let Some(Started { forward: Some(forward), .. }) = &started {
                order.program = order.program.forwarding(forward).ok_or_else(|| {
                    CliError::usage("--relay needs the ssh of OpenSSH; leave out --relay or --ssh")
                })?;
            }
            let mut command = ssh::run(&order, &self.words(name, args, driver)?).await?;
            if let Some(ticket) = ticket {
                // A command that has ended is reported by its exit code.
                let _ = command.input.write_all(format!("{ticket}\n").as_bytes()).await;
            }
            Ok::<_, CliError>((command, started))
        };
        let started = tokio::select! {
            started = starting => started,
            () = interrupt.wait() => Err(CliError::interrupted(INTERRUPTED_EARLY)),
        };
        let (command, started) = match started {
            Err(error) if error.is_lost() && interrupt.follows_soon().await => {
                return Err(CliError::interrupted(INTERRUPTED_EARLY));
            }
            started => started?,
        };
        let ended = follow(args, command, interrupt).await;
        if let Some(started) = started {
            started.close().await;
        }
        ended
    }

    /// Returns the arguments of the command on the other machine.
    fn words(&self, name: &str, args: &CopyArgs, driver: Driver) -> Result<Vec<String>, CliError> {
        let mut words = vec![name.to_owned(), "--stdio".to_owned()];
        if !args.dry_run {
            words.push("--json-lines".to_owned());
        }
        words.extend(self.words_at(name, args, driver)?);
        Ok(words)
    }

    /// Returns the flags of the command line that concern the copy, and the places.
    fn words_at(
        &self,
        name: &str,
        args: &CopyArgs,
        driver: Driver,
    ) -> Result<Vec<String>, CliError> {
        let mut words = Vec::new();
        for flag in args::given(name, OWN_FLAGS) {
            words.push(in_text(&flag)?);
        }
        if args.channel.relay {
            // The copy names this machine as the way of its data.
            words.push("--relay".to_owned());
            if args.channel.carrier == CarrierArg::Auto {
                words.push("--carrier=tcp".to_owned());
            }
        }
        words.extend(self.places_at(driver)?);
        Ok(words)
    }

    /// Returns the places as the machine that runs the copy writes them, after `--`.
    pub(crate) fn places_at(&self, driver: Driver) -> Result<Vec<String>, CliError> {
        let mut words = vec!["--".to_owned()];
        for source in &self.sources {
            words.push(place(source, driver == Driver::Source)?);
        }
        words.push(place(&self.destination, driver == Driver::Destination)?);
        Ok(words)
    }
}

/// Rejects flags of one session, or for files of this machine.
pub(crate) fn check_flags(name: &str, args: &CopyArgs) -> Result<(), CliError> {
    if args.channel.carrier == CarrierArg::Ssh {
        return Err(unsupported("--carrier ssh"));
    }
    if args.channel.relay && args.channel.carrier == CarrierArg::Udp {
        let text = "--relay between two other machines needs TCP; leave out --carrier udp";
        return Err(CliError::usage(text));
    }
    match args::given(name, OWN_FLAGS).iter().find_map(|word| unsupported_flag(word)) {
        Some(flag) => Err(unsupported(flag)),
        None => Ok(()),
    }
}

/// A server that this command started.
#[derive(Debug)]
pub(crate) struct Started {
    bridge: Bridge,
    /// The way of its connections through this machine.
    forward: Option<Forward>,
}

impl Started {
    /// Ends the server.
    pub(crate) async fn close(self) {
        self.bridge.close().await;
    }
}

const fn account(server: &Server) -> Option<&str> {
    match server {
        Server::Ssh(account) => Some(account.as_str()),
        _ => None,
    }
}

/// Starts the server, unless the peer is one; returns its ticket.
pub(crate) async fn start(
    args: &CopyArgs,
    peer: &Server,
    observer: &Arc<dyn UploadObserver>,
) -> Result<(Ticket, Option<Started>), CliError> {
    let Server::Ssh(account) = peer else {
        return match args.channel.relay {
            true => Err(CliError::usage(
                "--relay between two other machines needs ssh on both sides; write [USER@]HOST:PATH twice",
            )),
            false => Ok((args.channel.read_ticket()?, None)),
        };
    };
    let order = args.ssh.order(account, args.channel.carrier, observer);
    if !args.channel.relay {
        let StartedServer { ticket, bridge, .. } = ssh::start_server(&order).await?;
        return Ok((ticket, Some(Started { bridge, forward: None })));
    }
    let ForwardedServer { ticket, bridge, forward, .. } = ssh::start_forwarded(&order).await?;
    Ok((ticket, Some(Started { bridge, forward: Some(forward) })))
}

fn only_between_servers() -> CliError {
    CliError::usage(
        "--to-ticket is for copies between two servers; give the ticket of a single server with --ticket",
    )
}

fn unsupported(flag: &str) -> CliError {
    CliError::usage(format!(
        "{flag} is not supported between two other machines; leave it out, or run the command on one of them"
    ))
}

/// Returns a place as the machine that runs the copy writes it: a local path, or a path of the other machine.
fn place(place: &Place<'_>, is_local: bool) -> Result<String, CliError> {
    let Place { written, remote } = place;
    let path = in_text(OsStr::from_bytes(&remote.path))?;
    if is_local {
        // ssh starts in the home directory.
        let path = path.strip_prefix("~/").unwrap_or(&path);
        return Ok(if path.starts_with('/') { path.to_owned() } else { format!("./{path}") });
    }
    match &remote.server {
        Server::Ssh(_) => Ok(format!("sabul:///{path}")),
        _ => in_text(written),
    }
}

pub(crate) fn in_text(word: &OsStr) -> Result<String, CliError> {
    word.to_str().map(str::to_owned).ok_or_else(|| {
        let shown = OsString::from(word);
        CliError::usage(format!(
            "'{}' is not UTF-8; copies between two other machines need names in UTF-8",
            shown.display()
        ))
    })
}

/// Standard input of the command: its end stops the command.
#[derive(Debug)]
struct Lifeline {
    /// The input, if there is nothing to write.
    _input: Option<ChildStdin>,
    writer: Option<JoinHandle<()>>,
}

impl Lifeline {
    /// Writes these pieces to the input, if any.
    fn of(mut input: ChildStdin, pieces: Option<mpsc::Receiver<Vec<u8>>>) -> Self {
        let Some(mut pieces) = pieces else { return Self { _input: Some(input), writer: None } };
        let writer = tokio::spawn(async move {
            while let Some(piece) = pieces.recv().await {
                if input.write_all(&piece).await.is_err() {
                    break;
                }
            }
            // An interrupt or the end of the copy aborts this task.
            std::future::pending::<()>().await;
        });
        Self { _input: None, writer: Some(writer) }
    }
}

impl Drop for Lifeline {
    fn drop(&mut self) {
        if let Some(writer) = &self.writer {
            writer.abort();
        }
    }
}

/// Events of a copy that another machine runs.
#[derive(Debug)]
struct Events<'a> {
    args: &'a CopyArgs,
    meter: Meter,
    /// The transfer has started.
    has_started: bool,
    /// The event of the end.
    done: Option<Value>,
    movements: Movements,
}

impl<'a> Events<'a> {
    fn new(args: &'a CopyArgs) -> Self {
        let is_quiet = args.quiet || args.json || args.json_lines;
        let meter = Meter::new(is_quiet, args.retry.is_some());
        Self { args, meter, has_started: false, done: None, movements: Movements::new(1) }
    }

    /// Shows a line of the other machine.
    fn take(&mut self, line: &[u8]) -> Result<(), CliError> {
        let event = json::event(line)?;
        event.iter().for_each(|event| self.movements.add(0, event));
        match event {
            Some(event) => match event["event"].as_str() {
                Some("done") => self.done = Some(event),
                Some(word) => {
                    self.has_started |= word == "started";
                    if word == "progress" {
                        self.meter.say(progress(&event));
                    }
                    if self.args.json_lines {
                        json::print(&event)?;
                    }
                }
                None => {}
            },
            // The lines of a dry run. The other machine is not trusted with this terminal.
            None if self.args.dry_run => {
                output::print_line(Printable(line.trim_ascii_end()))?;
            }
            // A banner.
            None => {}
        }
        Ok(())
    }

    /// Waits until nothing has arrived for two minutes.
    async fn stalled(&self) {
        self.movements.stalled(0).await;
    }

    /// Removes the live line; returns the event of the end.
    fn end(self) -> Option<Value> {
        self.meter.clear();
        self.done
    }
}

/// Shows the progress of the command until its end; returns its exit code and the event of the end. An interrupt stops
/// the command.
async fn follow(
    args: &CopyArgs,
    command: RemoteCommand,
    interrupt: &Interrupt,
) -> Result<(u8, Option<Value>), CliError> {
    let RemoteCommand { mut child, input, mut output } = command;
    let mut events = Events::new(args);
    let mut input = Some(Lifeline::of(input, args.queued.passing.take_bytes()));
    let mut stop_at = None;
    let mut line = Vec::new();
    loop {
        // A cancelled read keeps in `line` what has arrived.
        let room = LINE_MAX.saturating_sub(line.len() as u64);
        let mut limited = (&mut output).take(room);
        tokio::select! {
            read = limited.read_until(b'\n', &mut line) => if !matches!(read, Ok(1..)) { break },
            () = interrupt.wait(), if input.is_some() => {
                input = None;
                stop_at = Some(tokio::time::Instant::now() + STOP_TIMEOUT);
                continue;
            }
            () = until(stop_at) => break,
        };
        events.take(&line)?;
        line.clear();
    }
    let done = events.end();
    drop(input);
    let status = tokio::time::timeout(STOP_TIMEOUT, child.wait()).await;
    let code = status.ok().and_then(Result::ok).and_then(|status| status.code());
    let code = code.and_then(|code| u8::try_from(code).ok());
    // The command that started this one has the terminal, and decides about interrupts.
    if done.is_none() && !args.queued.end_with_stdin && matches!(code, None | Some(SSH_FAILED)) {
        interrupt.follows_soon().await;
    }
    conclude(code, done, args.dry_run, interrupt)
}

/// Returns the exit code and the event of the end, from the exit code of ssh.
fn conclude(
    code: Option<u8>,
    done: Option<Value>,
    is_dry: bool,
    interrupt: &Interrupt,
) -> Result<(u8, Option<Value>), CliError> {
    match code {
        Some(exit::INTERRUPTED) if interrupt.is_seen() => Ok((exit::INTERRUPTED, done)),
        _ if interrupt.is_seen() => {
            Err(CliError::interrupted("interrupted: run the same command again to resume"))
        }
        Some(code) if done.is_some() || is_dry && code != SSH_FAILED => {
            Ok((code_of(code, done.as_ref()), done))
        }
        Some(code) if code != SSH_FAILED && code != exit::DONE => Ok((code, None)),
        _ => Err(CliError::lost(
            "the connection to the machine that runs the copy was lost; run the same command again to resume",
        )),
    }
}

/// Returns the exit code of a command that ended with `code` and this event. If only one of both is a failure, the copy
/// failed.
fn code_of(code: u8, done: Option<&Value>) -> u8 {
    match (code, done) {
        (exit::DONE, Some(done)) => exit_of(done),
        _ => code,
    }
}

/// Returns the exit code in the event of the end. An event with failures is no success.
fn exit_of(done: &Value) -> u8 {
    let code = done["exit"].as_u64().and_then(|code| u8::try_from(code).ok());
    let code = code.unwrap_or(exit::FAILED);
    let is_empty = |errors: &Value| errors.as_array().is_none_or(Vec::is_empty);
    let has_failures = done["failed"].as_u64() > Some(0) || !is_empty(&done["errors"]);
    if code == exit::DONE && has_failures { exit::FAILED } else { code }
}

/// Returns the event of a copy that ended without one.
fn failed(args: &CopyArgs, error: &CliError) -> Result<Value, CliError> {
    let mut copy = TransferJson::nothing(controller(args));
    (copy.exit, copy.policy) = (error.code(), Some(args.policy.name()));
    copy.errors.push(json::error(error));
    let line = LineBuilder::default().line(CopyEvent::Done(Box::new(copy)));
    serde_json::to_value(&line).map_err(|error| CliError::failed(error.to_string()))
}

/// Prints the document of a copy that ended without one, if it was requested.
pub(crate) fn print_failed(args: &CopyArgs, error: &CliError) -> Result<(), CliError> {
    if args.json || args.json_lines { print_done(args, failed(args, error)?) } else { Ok(()) }
}

/// Prints the end of the copy: as the last line, or as the document of `--json`.
fn print_done(args: &CopyArgs, mut done: Value) -> Result<(), CliError> {
    if args.json
        && let Value::Object(fields) = &mut done
    {
        fields.remove("event");
        fields.remove("t_s");
    }
    json::print(&done)
}

/// Exit code of ssh after a lost connection.
const SSH_FAILED: u8 = 255;

pub(crate) async fn until(time: Option<tokio::time::Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time).await,
        None => std::future::pending().await,
    }
}

/// Formats an event of progress.
pub(crate) fn progress(event: &Value) -> String {
    let number = |name: &str| event[name].as_f64().unwrap_or_default();
    let bytes = |name: &str| event[name].as_u64().map(show_bytes);
    let of = bytes("bytes_total").map_or_else(String::new, |total| format!(" of {total}"));
    format!(
        "{}{of}, {}, RTT {:.1} ms",
        bytes("bytes").unwrap_or_default(),
        show_rate(number("goodput_bps")),
        number("rtt_ms")
    )
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::args::{Cli, Command};

    #[test]
    fn the_machine_that_runs_the_copy_knows_that_its_data_is_relayed() {
        for (flags, expected) in [(&[][..], false), (&["--relay"], true)] {
            let words = [&["sabul", "cp", "a:x", "b:y"], flags].concat();
            let Command::Cp(args) = Cli::try_parse_from(words).unwrap().command else {
                panic!("another command")
            };
            let between = Between::of(&args.copy).unwrap().unwrap();
            let words = between.words("cp", &args.copy, Driver::Source).unwrap();
            let has = |word: &str| words.iter().any(|it| it == word);
            assert_eq!((has("--relay"), has("--carrier=tcp")), (expected, expected), "{words:?}");
        }
    }

    #[test]
    fn an_invalid_exit_code_of_another_machine_is_a_failure() {
        for (text, code) in [
            ("0", 0),
            ("6", 6),
            ("256", exit::FAILED),
            ("-1", exit::FAILED),
            ("null", exit::FAILED),
        ] {
            let done: Value = serde_json::from_str(&format!("{{\"exit\":{text}}}")).unwrap();
            assert_eq!(exit_of(&done), code, "{text}");
        }
        for failures in [r#""failed":18446744073709551615"#, r#""errors":[0]"#] {
            let done = serde_json::from_str(&format!("{{\"exit\":0,{failures}}}")).unwrap();
            assert_eq!(exit_of(&done), exit::FAILED, "{failures}");
        }
    }

    #[test]
    fn a_command_that_succeeds_with_an_event_of_a_failure_has_failed() {
        let event = |text: &str| serde_json::from_str::<Value>(text).unwrap();
        let done = event(r#"{"event":"done","exit":0,"failed":0,"errors":[]}"#);
        assert_eq!(code_of(0, Some(&done)), 0);
        assert_eq!(code_of(5, Some(&done)), 5);
        assert_eq!(code_of(0, Some(&event(r#"{"event":"done","exit":6}"#))), 6);
        assert_eq!(code_of(0, Some(&event(r#"{"event":"done","exit":"0"}"#))), exit::FAILED);
        assert_eq!(code_of(3, None), 3);
    }
}
