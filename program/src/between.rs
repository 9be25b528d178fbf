//! Copies between two other machines: one of them runs the copy, and this machine shows its progress.
//!
//! The source runs `sabul cp` over ssh and dials a server that ssh started at the destination. If the source cannot
//! reach the destination, the destination runs the copy and dials the source. Data never passes this machine. Both ends
//! stop when their standard input ends, so they do not outlive this command.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::sync::Arc;
use std::time::Duration;

use sabul::ErrorKind;
use sabul::internal::ssh::{self, RemoteCommand, UploadObserver};
use sabul::internal::{Location, Remote, Server};
use sabul_units::{show_bytes, show_rate};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _};

use crate::args::{self, CarrierArg, CopyArgs};
use crate::error::CliError;
use crate::exit;
use crate::interrupt::Interrupt;
use crate::progress::Meter;
use crate::upload::UploadProgress;
use crate::{json, output};

/// Ours: time for the other machines to stop after an interrupt.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// Exit code of a command whose peer is unreachable.
const UNREACHABLE: u8 = exit::code_of(ErrorKind::Unreachable);
/// Flags for this machine only.
const OWN_FLAGS: &[&str] =
    &["ssh", "remote-sabul", "push", "ports", "ticket", "json", "json-lines"];
/// Flags for files of this machine, or for both ends of one session.
const UNSUPPORTED: &[&str] = &[
    "--receipt",
    "--receipt-key",
    "--bag",
    "--report",
    "--events",
    "--relay",
    "--files-from",
    "--exclude-from",
    "--include-from",
    "--plan",
    "--identity",
];

/// Returns the flag in this word if it is not supported.
fn unsupported_flag(word: &OsStr) -> Option<&'static str> {
    let name = word.as_bytes().split(|&byte| byte == b'=').next().unwrap_or_default();
    UNSUPPORTED.iter().copied().find(|flag| flag.as_bytes() == name)
}

/// A copy between two other machines.
#[derive(Debug)]
struct Between<'a> {
    sources: Vec<Place<'a>>,
    destination: Place<'a>,
}

/// A place on another machine, as written and as parsed.
#[derive(Debug)]
struct Place<'a> {
    written: &'a OsStr,
    remote: Remote,
}

/// Runs the command here, or on another machine if all places are remote.
pub(crate) async fn run_or<A: AsMut<CopyArgs>>(
    name: &str,
    mut args: A,
    run: impl AsyncFnOnce(A) -> Result<u8, CliError>,
) -> Result<u8, CliError> {
    let copy = args.as_mut();
    if copy.stdio {
        copy.channel.read_stdin()?;
    } else if let Some(between) = Between::of(copy)? {
        return between.run(name, copy).await;
    }
    run(args).await
}

/// Machine that runs the copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Driver {
    Source,
    Destination,
}

impl<'a> Between<'a> {
    /// Returns the copy if all places are remote.
    fn of(args: &'a CopyArgs) -> Result<Option<Self>, CliError> {
        let mut places = Vec::new();
        for written in &args.places {
            match Location::parse(written)? {
                Location::Remote(mut remote) => {
                    if let Server::Listener(host) = &remote.server
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

    /// Runs the copy and returns the exit code.
    async fn run(&self, name: &str, args: &CopyArgs) -> Result<u8, CliError> {
        if args.channel.carrier == CarrierArg::Ssh {
            return Err(unsupported("--carrier ssh"));
        }
        if let Some(flag) =
            args::given(name, OWN_FLAGS).iter().find_map(|word| unsupported_flag(word))
        {
            return Err(unsupported(flag));
        }
        let interrupt = Interrupt::listen()?;
        let drivers: &[Driver] = match (self.source(), &self.destination.remote.server) {
            (Server::Ssh(_), Server::Ssh(_)) if self.has_pattern() => &[Driver::Destination],
            (Server::Ssh(_), Server::Ssh(_)) => &[Driver::Source, Driver::Destination],
            (Server::Ssh(_), _) => &[Driver::Source],
            (_, Server::Ssh(_)) => &[Driver::Destination],
            _ => {
                return Err(CliError::usage(
                    "no ssh host runs the copy; write one side as [USER@]HOST:PATH, or run the command on one of \
                     the machines",
                ));
            }
        };
        let mut code = exit::FAILED;
        for (turn, driver) in drivers.iter().enumerate() {
            if turn > 0 {
                output::note(
                    "the source cannot reach the destination; the destination dials the source now",
                );
            }
            code = self.attempt(name, args, *driver, &interrupt).await?;
            if code != UNREACHABLE || interrupt.is_seen() {
                break;
            }
        }
        Ok(code)
    }

    fn source(&self) -> &Server {
        &self.sources[0].remote.server
    }

    fn has_pattern(&self) -> bool {
        self.sources.iter().any(|source| {
            let path = &source.remote.path;
            sabul::internal::escape_pattern(path) != *path
        })
    }

    /// Runs the copy on one of the two machines.
    async fn attempt(
        &self,
        name: &str,
        args: &CopyArgs,
        driver: Driver,
        interrupt: &Interrupt,
    ) -> Result<u8, CliError> {
        let observer: Arc<dyn UploadObserver> =
            Arc::new(UploadProgress::new(args.quiet || args.json || args.json_lines, true));
        let (runs, serves) = match driver {
            Driver::Source => (self.source(), &self.destination.remote.server),
            Driver::Destination => (&self.destination.remote.server, self.source()),
        };
        let starting = async {
            let Server::Ssh(account) = runs else {
                return Err(CliError::usage("no ssh host runs the copy"));
            };
            let (ticket, bridge) = match serves {
                Server::Ssh(peer) => {
                    let order = args.ssh.order(peer, args.channel.carrier, &observer);
                    let started = ssh::start_server(&order).await?;
                    (started.ticket, Some(started.bridge))
                }
                _ => (args.channel.read_ticket()?, None),
            };
            let order = args.ssh.order(account, args.channel.carrier, &observer);
            let mut command = ssh::run(&order, &self.words(name, args, driver)?).await?;
            // A command that has ended is reported by its exit code.
            let _ = command.input.write_all(format!("{}\n", ticket).as_bytes()).await;
            Ok((command, bridge))
        };
        let (command, bridge) = tokio::select! {
            started = starting => started?,
            () = interrupt.wait() => return Err(CliError::interrupted("interrupted while connecting; nothing was transferred")),
        };
        let code = follow(args, command, interrupt).await;
        if let Some(bridge) = bridge {
            bridge.close().await;
        }
        code
    }

    /// Returns the arguments of the command on the other machine.
    fn words(&self, name: &str, args: &CopyArgs, driver: Driver) -> Result<Vec<String>, CliError> {
        let mut words = vec![name.to_owned(), "--stdio".to_owned()];
        if !args.dry_run {
            words.push("--json-lines".to_owned());
        }
        for flag in args::given(name, OWN_FLAGS) {
            words.push(in_text(&flag)?);
        }
        words.push("--".to_owned());
        for source in &self.sources {
            words.push(place(source, driver == Driver::Source)?);
        }
        words.push(place(&self.destination, driver == Driver::Destination)?);
        Ok(words)
    }
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

fn in_text(word: &OsStr) -> Result<String, CliError> {
    word.to_str().map(str::to_owned).ok_or_else(|| {
        let shown = OsString::from(word);
        CliError::usage(format!(
            "'{}' is not UTF-8; copies between two other machines need names in UTF-8",
            shown.display()
        ))
    })
}

/// Shows the progress of the command until its end, and returns its exit code. An interrupt stops the command.
async fn follow(
    args: &CopyArgs,
    command: RemoteCommand,
    interrupt: &Interrupt,
) -> Result<u8, CliError> {
    let RemoteCommand { mut child, input, output } = command;
    let meter = Meter::new(args.quiet || args.json || args.json_lines, args.retry.is_some());
    let mut lines = output.lines();
    let mut input = Some(input);
    let mut done = None;
    let mut stop_at = None;
    loop {
        let line = tokio::select! {
            line = lines.next_line() => line,
            () = interrupt.wait(), if input.is_some() => {
                input = None;
                stop_at = Some(tokio::time::Instant::now() + STOP_TIMEOUT);
                continue;
            }
            () = until(stop_at) => break,
        };
        let Ok(Some(line)) = line else { break };
        let Ok(event) = serde_json::from_str::<Value>(&line) else {
            if args.dry_run {
                output::print_line(line)?;
            }
            continue;
        };
        if args.json_lines {
            output::print_line(line)?;
        }
        match event["event"].as_str() {
            Some("progress") => meter.say(progress(&event)),
            Some("done") => done = Some(event),
            _ => {}
        }
    }
    meter.clear();
    drop(input);
    let status = tokio::time::timeout(STOP_TIMEOUT, child.wait()).await;
    if args.json
        && let Some(Value::Object(fields)) = &mut done
    {
        fields.remove("event");
        fields.remove("t_s");
        json::print(&fields)?;
    }
    let code = status.ok().and_then(Result::ok).and_then(|status| status.code());
    let code = code.and_then(|code| u8::try_from(code).ok());
    match (done, code) {
        (_, Some(exit::INTERRUPTED)) if interrupt.is_seen() => Ok(exit::INTERRUPTED),
        _ if interrupt.is_seen() => {
            Err(CliError::interrupted("interrupted: run the same command again to resume"))
        }
        (Some(_), Some(code)) => Ok(code),
        (None, Some(code)) if code != SSH_FAILED && code != 0 => Ok(code),
        (None, Some(0)) if args.dry_run => Ok(exit::DONE),
        _ => Err(CliError::lost(
            "the connection to the machine that runs the copy was lost; run the same command again to resume",
        )),
    }
}

/// Exit code of ssh after a lost connection.
const SSH_FAILED: u8 = 255;

async fn until(time: Option<tokio::time::Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time).await,
        None => std::future::pending().await,
    }
}

/// Formats an event of progress.
fn progress(event: &Value) -> String {
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
