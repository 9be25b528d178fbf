//! `sabul cp`: copies files to or from another machine.

mod dry;
mod report;
mod totals;

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sabul::files::{LocalDestination, RemoteDestination};
use sabul::files::{Source, SourceSet};
use sabul::internal::ssh::UploadObserver;
use sabul::internal::{Location, Remote, Retry, Server};
use sabul::{Failure, Progress, Report, Session, Transfer, TransferOptions};
use sabul_content::Printable;
use sabul_front::control_socket::Job;
use sabul_front::failures::{self, Machines};
use sabul_front::json::{Document, ErrorJson, TransferJson};
use sabul_front::limiter;
use sabul_front::lines::{CopyEvent, LineBuilder};
use sabul_front::lost_metadata;
use sabul_front::pipe::Pipe;
use sabul_front::progress_line::{MinimumRate, carrier_name};
use sabul_units::{count, show_bytes, show_rate};

use crate::args::CpArgs;
use crate::error::CliError;
use crate::events::EventFile;
use crate::exit::{self, End, FAILED, code_of_failures};
use crate::files::dial;
use crate::interrupt::Interrupt;
use crate::policy::{self, controller};
use crate::progress::{Meter, follow};
use crate::upload::UploadProgress;
use crate::{control_socket, json, output};
pub(crate) use report::Recorder;
use totals::AttemptTotals;

/// Ours: interval between two lines while there is no connection.
const LINE_INTERVAL: Duration = Duration::from_millis(1800);
/// Ours: maximum number of lines on standard error for failures of single files.
const FAILURES_SHOWN: usize = 20;

/// Ours: shorter transfers do not report their limiter.
const WORTH_A_WORD: Duration = Duration::from_secs(1);

/// Runs `sabul cp` and returns the exit code.
pub(crate) async fn run(mut args: CpArgs) -> Result<u8, CliError> {
    if let Some(reason) = args.foreign.refusal() {
        return Err(CliError::usage(reason));
    }
    args.recursive |= args.archive;
    if args.dry_run {
        return dry::run(&args).await;
    }
    let nothing = TransferJson::nothing(controller(&args));
    let lines = args.json_lines.then(LineBuilder::default);
    let job = job(&args);
    let mut outcome = Outcome {
        json: nothing,
        code: exit::DONE,
        lines,
        job,
        totals: AttemptTotals::default(),
        machines: Machines::default(),
        recorder: None,
    };
    let mut result = copy(&args, &mut outcome).await;
    outcome.json.policy = Some(args.policy.name());
    outcome.totals.complete(&mut outcome.json);
    if let Err(error) = &result {
        outcome.json.errors.push(json::error(error));
    }
    if let Some(recorder) = outcome.recorder.take()
        && let Err(error) = recorder.finish(&format!("sabul cp {}", title(&args)), &outcome.json)
    {
        outcome.json.errors.push(json::error(&error));
        result = result.and(Err(error));
    }
    let code = result.as_ref().map_or_else(CliError::code, |()| outcome.code);
    outcome.json.exit = code;
    if args.json {
        json::print(&Document::of(&outcome.json))?;
    }
    if let Some(line_builder) = outcome.lines {
        json::print(&line_builder.line(CopyEvent::Done(Box::new(outcome.json))))?;
    }
    result.map(|()| code)
}

/// Results of a copy, complete at any end of the command.
#[derive(Debug)]
struct Outcome {
    json: TransferJson,
    code: u8,
    /// JSON Lines, if requested.
    lines: Option<LineBuilder>,
    /// State for `sabul ps` and `sabul set`.
    job: Job,
    /// Sum of all attempts.
    totals: AttemptTotals,
    /// Names of the two machines, for messages.
    machines: Machines,
    /// Samples for `--report`.
    recorder: Option<Recorder>,
}

/// Returns the places of the copy, separated by spaces.
fn title(args: &CpArgs) -> String {
    let places = args.places.iter().map(|place| Printable(place.as_bytes()).to_string());
    places.collect::<Vec<_>>().join(" ")
}

/// Returns the copy as `sabul ps` shows it.
fn job(args: &CpArgs) -> Job {
    let bps = |rate: Option<sabul_units::Rate>| rate.map(|rate| rate.0);
    Job::new("cp", &title(args)).with_rates(
        args.policy.name(),
        bps(args.bwlimit),
        bps(args.min_rate),
    )
}

async fn copy(args: &CpArgs, outcome: &mut Outcome) -> Result<(), CliError> {
    let plan = Plan::of(args)?;
    outcome.machines = plan.machines();
    sabul::internal::allow_many_files();
    let options = args.channel.transfer_options(controller(args))?;
    let mut options = options
        .rate_limit(args.bwlimit)
        .preserve(args.preserve)
        .archive_mode(args.archive)
        .sync(!args.no_sync)
        .resume(!args.no_resume)
        .read_back(args.read_back)
        .links_out(args.copy_links)
        .rules(args.rules.0.clone());
    policy::apply(args, &mut options)?;
    if (args.json || args.json_lines) && plan.writes_stdout() {
        return Err(CliError::usage(
            "--json and the destination '-' both use standard output; leave out one of them",
        ));
    }
    if args.retry.is_some() && (plan.writes_stdout() || plan.reads_stdin()) {
        return Err(CliError::usage(
            "--retry cannot repeat a copy from or to '-'; name files, or leave out --retry",
        ));
    }
    outcome.recorder = args.report.as_deref().map(Recorder::new).transpose()?;
    let missing = plan.none_to_send(args)?;
    if !missing.is_empty() {
        outcome.json.errors =
            missing.iter().map(|(path, why)| ErrorJson::of_entry(path, why)).collect();
        print_failures(&missing, missing.len() as u64, outcome);
        return Ok(());
    }
    let interrupt = Interrupt::listen()?;
    let events = args.channel.event_file()?;
    let _control_socket = control_socket::open(&outcome.job);
    let pipe_closed = Arc::default();
    let result = attempts(args, plan, &options, &interrupt, events.as_ref(), outcome, &pipe_closed);
    let result = result.await;
    events.map_or(Ok(()), |events| events.finish())?;
    match result {
        Ok(report) => {
            conclude(args, &report, &pipe_closed, outcome);
            Ok(())
        }
        Err(_) if pipe_closed.load(Ordering::Acquire) => Ok(()),
        Err(_) if interrupt.is_seen() => {
            Err(CliError::interrupted(format!("interrupted: {}", what_stays(outcome))))
        }
        Err(error) => {
            // The message of a failed file names the file's machine.
            let message = match error.failure_code() {
                Some(code) => outcome.machines.place(&Failure::new(code, error.to_string())),
                None => error.to_string(),
            };
            let message = match outcome.json.files {
                0 => message,
                _ => format!("{message}; {}", what_stays(outcome)),
            };
            Err(error.in_words(message))
        }
    }
}

/// Describes the data that an interrupted copy keeps. More may have arrived than this side knows.
fn what_stays(outcome: &Outcome) -> String {
    let stays = match (outcome.json.files, outcome.json.durable_bytes) {
        (0, 0) => String::new(),
        (0, bytes) => {
            format!("the receiver keeps the data on its disk (at least {}); ", show_bytes(bytes))
        }
        (files, _) => {
            format!("the receiver keeps complete files (at least {}); ", count(files, "file"))
        }
    };
    stays + "run the same command again to resume"
}

/// Connects and copies; repeats after a lost connection as `--retry` allows.
async fn attempts(
    args: &CpArgs,
    plan: Plan,
    options: &TransferOptions,
    interrupt: &Interrupt,
    events: Option<&EventFile>,
    outcome: &mut Outcome,
    pipe_closed: &Arc<AtomicBool>,
) -> Result<Report, CliError> {
    let mut retry = Retry::new(args.retry.unwrap_or_default());
    let observer: Arc<dyn UploadObserver> = Arc::new(match &outcome.lines {
        Some(line_builder) => UploadProgress::in_json(line_builder.clone()),
        None => UploadProgress::new(args.quiet || args.json, !plan.reads_stdin()),
    });
    let mut lost = None;
    loop {
        let before = outcome.json.bytes;
        retry.begin();
        let dialled = async {
            let dialled =
                dial(&args.channel, &args.ssh, plan.server(), interrupt, events, &observer);
            match (retry.deadline(), lost.take()) {
                (Some(until), Some(lost)) => {
                    tokio::time::timeout_at(until, dialled).await.unwrap_or(Err(lost))
                }
                _ => dialled.await,
            }
        };
        let result = match outcome.meanwhile(args, dialled).await {
            Ok((session, bridge)) => {
                outcome.totals.connected();
                if args.verbose > 0 {
                    output::note(format_args!("connected to {}", session.peer_addr()));
                }
                let pipe = Pipe::closing(pipe_closed);
                let result =
                    transfer(args, plan.clone(), &session, options, interrupt, outcome, pipe).await;
                // Closed in order even after a failure: otherwise the peer reports a broken
                // connection.
                session.close().await;
                if let (Ok(_), Some(bridge)) = (&result, bridge) {
                    bridge.close().await;
                }
                result
            }
            Err(error) => Err(error),
        };
        let error = match result {
            Err(error) if !interrupt.is_seen() => error,
            result => return result,
        };
        if outcome.json.bytes > before {
            retry.reset_backoff();
        }
        let pause = match error.end() {
            End::Error(kind) => retry.on_failure(kind),
            _ => None,
        };
        let Some(pause) = pause else { return Err(error) };
        output::error(format_args!("{error}; next attempt in {:.1} s", pause.as_secs_f64()));
        let (attempt, pause_s) = (retry.attempts(), pause.as_secs_f64());
        let event = CopyEvent::Reconnect { attempt, pause_s, error: json::error(&error) };
        json::print_event(outcome.lines.as_ref(), event);
        let pause = async {
            tokio::select! {
                () = tokio::time::sleep(pause) => false,
                () = interrupt.wait() => true,
            }
        };
        if outcome.meanwhile(args, pause).await {
            return Err(error);
        }
        lost = Some(error);
    }
}

impl Outcome {
    /// Waits for `work` between two attempts and reports meanwhile that there is no connection.
    async fn meanwhile<T>(&self, args: &CpArgs, work: impl Future<Output = T>) -> T {
        let Some(since) = self.totals.lost_at else { return work.await };
        let meter = Meter::new(args.quiet || args.json_lines, true);
        let mut work = std::pin::pin!(work);
        let mut ticks = tokio::time::interval(LINE_INTERVAL);
        ticks.tick().await;
        loop {
            tokio::select! {
                result = &mut work => {
                    meter.clear();
                    return result;
                }
                _ = ticks.tick() => {}
            }
            let line = self.lines.as_ref().and_then(LineBuilder::still);
            line.iter().for_each(|line| drop(json::print(line)));
            meter.say(format!("no connection for {} s; reconnecting", since.elapsed().as_secs()));
        }
    }
}

/// Runs the transfer and records its progress in `outcome`.
async fn transfer(
    args: &CpArgs,
    plan: Plan,
    session: &Session,
    options: &TransferOptions,
    interrupt: &Interrupt,
    outcome: &mut Outcome,
    pipe: Pipe,
) -> Result<Report, CliError> {
    let mut meter = Meter::new(args.quiet || args.json_lines, args.retry.is_some());
    let started = tokio::select! {
        started = plan.start(session, args.recursive, options, pipe) => started,
        () = interrupt.wait() => Err(CliError::interrupted("interrupted")),
    };
    let result = match started {
        Ok(mut transfer) => {
            outcome.job.begins(&transfer);
            let mut minimum = args.min_rate.map(MinimumRate::new);
            let (cc, policy) = (controller(args).to_owned(), args.policy.name().to_owned());
            json::print_event(outcome.lines.as_ref(), CopyEvent::Started { cc, policy });
            outcome.lines.iter_mut().for_each(LineBuilder::start);
            outcome.recorder.iter_mut().for_each(Recorder::begin);
            let (progress, slow): (Progress, _) = follow(
                &mut transfer,
                &mut meter,
                interrupt,
                &mut minimum,
                &mut outcome.lines,
                &mut outcome.recorder,
            )
            .await;
            outcome.json = TransferJson::of_progress(controller(args), &progress);
            outcome.totals.add(&progress);
            let finished = transfer.finish().await.map_err(CliError::from);
            match slow {
                // A transfer that completed before the cancellation counts as complete.
                Some(text) if finished.is_err() => Err(CliError::too_slow(text)),
                _ => finished,
            }
        }
        Err(error) => Err(error),
    };
    meter.clear();
    result
}

/// Reports the result of a transfer that reached its end.
fn conclude(args: &CpArgs, report: &Report, pipe_closed: &AtomicBool, outcome: &mut Outcome) {
    outcome.json = TransferJson::of_report(controller(args), report);
    if pipe_closed.load(Ordering::Acquire) {
        // The reader of standard output closed the pipe, which is not an error.
        outcome.json.errors.clear();
        return;
    }
    print_failures(&report.failures, report.entries_failed, outcome);
    outcome.totals.complete(&mut outcome.json);
    let is_all_lost = report.entries == 0 && outcome.code != exit::DONE;
    if !args.quiet && !is_all_lost {
        output::note(summary(report, &outcome.json));
        if args.verbose > 0 {
            output::note(path_line(&outcome.json));
        }
        if let Some(line) = lost_metadata::line(&report.not_kept) {
            output::note(line);
        }
        if let Some(hint) = &report.channel.hint {
            output::note(format_args!("hint: {hint}"));
        }
    }
}

/// Formats the summary of a transfer that reached its end: amount, time, rate and failures.
fn summary(report: &Report, json: &TransferJson) -> String {
    let mut line = format!("{} in {}", show_bytes(json.bytes), count(json.files, "file"));
    if json.resumed_bytes > 0 {
        line += &format!(" ({} resumed)", show_bytes(json.resumed_bytes));
    }
    // "verified" and "durable" apply only to the files named before them.
    line += match (report.entries > 0 && report.verified, report.durable) {
        (true, true) => ", verified, durable",
        (true, false) => ", verified",
        (false, _) => "",
    };
    line += &format!(", {:.2} s", json.seconds);
    if json.reconnects > 0 {
        line += &format!(" with {}", count(json.reconnects, "reconnect"));
    }
    if json.waited_s > 0.0 {
        line += &format!(" ({:.2} s of them waiting in line)", json.waited_s);
    }
    line += &format!(", {}", show_rate(json.goodput_bps));
    if report.entries_failed > 0 {
        line += &format!("; {} failed", report.entries_failed);
    }
    if let Some(carrier) = carrier_name(json.carrier) {
        line += &format!("; over {carrier}: {}", json.carrier_reason);
    } else if json.paths > 1 {
        line += &format!("; over {} paths", json.paths);
    }
    let shares = limiter::listed(json.limiter.iter().map(|(name, share)| (name.as_str(), *share)));
    if !shares.is_empty() && json.seconds >= WORTH_A_WORD.as_secs_f64() {
        line += &format!("; limited by {shares}");
    }
    line
}

/// Formats the line about the path for `--verbose`.
fn path_line(copy: &TransferJson) -> String {
    format!(
        "path: RTT {:.2} ms (minimum {:.2}), loss {:.3} %, MTU {} bytes, {} packets sent, {} retransmitted, controller {}",
        copy.rtt_ms,
        copy.rtt_ms_min,
        copy.loss_rate * 100.0,
        copy.mtu,
        copy.packets_sent,
        copy.packets_retransmitted,
        copy.cc,
    )
}

/// Prints failures that were not printed before, of `count` failed entries in all. The most severe
/// failure determines the exit code.
fn print_failures(failures: &[(Vec<u8>, Failure)], count: u64, outcome: &mut Outcome) {
    if let Some(line_builder) = &mut outcome.lines {
        let late = failures.get(line_builder.failures()..).unwrap_or_default();
        for line in line_builder.failed(late) {
            let _ = json::print(&line);
        }
    }
    for line in failures::lines(failures, count, &outcome.machines, FAILURES_SHOWN) {
        output::error(line);
    }
    if count > 0 || !failures.is_empty() {
        outcome.code = code_of_failures(failures.iter().map(|(_, failure)| failure)).max(FAILED);
    }
}

/// Sources and destination of a copy.
#[derive(Clone, Debug)]
enum Plan {
    Put { sources: Vec<OsString>, destination: Remote },
    Get { server: Server, sources: Vec<Vec<u8>>, destination: OsString },
}

impl Plan {
    fn of(args: &CpArgs) -> Result<Self, CliError> {
        let places: Vec<Location> =
            args.places.iter().map(|place| Location::parse(place)).collect::<Result<_, _>>()?;
        let (destination, sources) = match places.split_last() {
            Some((destination, sources)) if !sources.is_empty() => (destination, sources),
            _ => {
                return Err(CliError::usage(
                    "give at least one source and a destination: sabul cp SRC... DST",
                ));
            }
        };
        match destination {
            Location::Remote(destination) => {
                let locals = sources.iter().map(|source| match source {
                    Location::Local(path) => Ok(path.clone()),
                    Location::Remote(_) => Err(CliError::usage(
                        "both sides are remote; copy to this machine first, then to the other one",
                    )),
                });
                let sources = locals.collect::<Result<_, _>>()?;
                Ok(Self::Put { sources, destination: destination.clone() })
            }
            Location::Local(destination) => {
                let (server, sources) = remote_sources(sources)?;
                let plan = Self::Get { server, sources, destination: destination.clone() };
                if plan.writes_stdout() && (args.recursive || sources_count(&plan) > 1) {
                    return Err(CliError::usage(
                        "standard output takes a single file; name one source, without -r",
                    ));
                }
                Ok(plan)
            }
        }
    }

    const fn server(&self) -> &Server {
        match self {
            Self::Put { destination, .. } => &destination.server,
            Self::Get { server, .. } => server,
        }
    }

    fn reads_stdin(&self) -> bool {
        matches!(self, Self::Put { sources, .. } if sources.iter().any(|source| source == "-"))
    }

    fn writes_stdout(&self) -> bool {
        matches!(self, Self::Get { destination, .. } if destination == "-")
    }

    /// Returns the names of the two machines.
    fn machines(&self) -> Machines {
        let name = match self.server() {
            Server::Ticket => "the server".to_owned(),
            Server::Listener(host) => host.name().to_owned(),
            Server::Ssh(account) => account.clone(),
        };
        match self {
            Self::Put { .. } => Machines { source: None, destination: Some(name) },
            Self::Get { .. } => Machines { source: Some(name), destination: None },
        }
    }

    /// Returns the reason for each local source if no source can be sent; otherwise an empty list.
    /// Avoids a useless connection.
    fn none_to_send(&self, args: &CpArgs) -> Result<Vec<(Vec<u8>, Failure)>, CliError> {
        match self {
            // Standard input can always be sent.
            Self::Put { sources, .. } if !self.reads_stdin() => {
                let set = source_set(sources, args.recursive)?.with_archive_mode(args.archive);
                Ok(set.none_to_send())
            }
            _ => Ok(Vec::new()),
        }
    }

    async fn start(
        self,
        session: &Session,
        is_recursive: bool,
        options: &TransferOptions,
        pipe: Pipe,
    ) -> Result<Transfer, CliError> {
        Ok(match self {
            Self::Put { sources, destination } => {
                let sources = source_set(&sources, is_recursive)?;
                let path = destination.path;
                let into_directory =
                    sources.needs_directory() || path.is_empty() || path.ends_with(b"/");
                let mut destination = RemoteDestination::path(path);
                destination.into_directory = into_directory;
                session.put(sources, destination, options).await?
            }
            Self::Get { sources, destination, .. } => {
                let to = if destination == "-" {
                    LocalDestination::Writer(Box::new(pipe))
                } else {
                    let into_directory = is_into(&sources, &destination);
                    LocalDestination::Path { path: PathBuf::from(destination), into_directory }
                };
                session.get(sources, is_recursive, to, options).await?
            }
        })
    }
}

/// Returns the source set for the paths of the command line.
fn source_set(sources: &[OsString], is_recursive: bool) -> Result<SourceSet, CliError> {
    let sources = sources.iter().map(|source| Source::from_argument(source)).collect();
    SourceSet::local(sources, is_recursive).map_err(|failure| CliError::usage(failure.to_string()))
}

fn sources_count(plan: &Plan) -> usize {
    match plan {
        Plan::Put { sources, .. } => sources.len(),
        Plan::Get { sources, .. } => sources.len(),
    }
}

/// Returns the common server and the paths of remote sources.
fn remote_sources(sources: &[Location]) -> Result<(Server, Vec<Vec<u8>>), CliError> {
    let mut server: Option<&Server> = None;
    let mut paths = Vec::with_capacity(sources.len());
    for source in sources {
        let Location::Remote(remote) = source else {
            return Err(CliError::usage(if server.is_some() {
                "some sources are remote and some are local; copy them with two commands"
            } else {
                "both sides are local; write the remote one as HOST:PATH"
            }));
        };
        if server.is_some_and(|server| *server != remote.server) {
            return Err(CliError::usage(
                "the sources are on several hosts; run one command for each host",
            ));
        }
        server = Some(&remote.server);
        paths.push(remote.path.clone());
    }
    let server = server.ok_or_else(|| CliError::usage("give at least one source"))?;
    Ok((server.clone(), paths))
}

/// Returns whether a local destination must be a directory.
fn is_into(sources: &[Vec<u8>], destination: &OsStr) -> bool {
    sources.len() > 1
        || sources.iter().any(|source| means_content(source))
        || destination.as_bytes().ends_with(b"/")
}

/// Returns whether a remote source means the content of a directory: the root, or a path that ends
/// in `/`, `.` or `..`.
fn means_content(path: &[u8]) -> bool {
    matches!(path.rsplit(|&byte| byte == b'/').next(), None | Some(b"" | b"." | b".."))
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::args::{Cli, Command};

    fn plan(words: &[&str]) -> Result<Plan, CliError> {
        let line = ["sabul", "cp"].iter().chain(words);
        match Cli::try_parse_from(line).unwrap().command {
            Command::Cp(args) => Plan::of(&args),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn exactly_one_side_is_remote() {
        assert!(matches!(plan(&["a", "b", "sabul://h/"]), Ok(Plan::Put { .. })));
        assert!(matches!(plan(&["sabul://h/a", "sabul://h/b", "."]), Ok(Plan::Get { .. })));
        assert!(matches!(plan(&["a", "h:"]), Ok(Plan::Put { .. })));
        assert!(matches!(plan(&["h:a", "h:/b", "."]), Ok(Plan::Get { .. })));
        for (words, part) in [
            (&["a", "b"][..], "both sides are local"),
            (&["sabul://h/a", "sabul://h/b"], "both sides are remote"),
            (&["sabul://h/a", "b", "c"], "some sources are remote"),
            (&["a", "sabul://h/b", "c"], "both sides are local"),
            (&["sabul://h/a", "sabul://i/b", "c"], "several hosts"),
            (&["sabul://h/a", "h:b", "c"], "several hosts"),
            (&["h:a", "me@h:b", "c"], "several hosts"),
            (&["-r", "sabul://h/a", "-"], "standard output"),
            (&["sabul://h/a", "sabul://h/b", "-"], "standard output"),
        ] {
            let error = plan(words).unwrap_err();
            assert!(error.to_string().contains(part), "{words:?}: {error}");
            assert_eq!(error.code(), 2);
        }
    }

    #[test]
    fn a_source_that_ends_in_a_slash_means_its_content() {
        for (path, expected) in
            [(&b""[..], true), (b"a/", true), (b".", true), (b"a/..", true), (b"a", false)]
        {
            assert_eq!(means_content(path), expected, "{path:?}");
        }
        use std::os::unix::ffi::OsStringExt as _;
        let bytes = OsString::from_vec(b"caf\xE9/".to_vec());
        assert!(means_content(bytes.as_bytes()));
    }
}
