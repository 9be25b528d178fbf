//! `sabul cp`: copies files to or from another machine.

mod compare;
mod delta;
mod dry;
mod files_from;
mod moves;
mod names;
mod plan;
mod plan_file;
mod receipt;
mod report;
mod sides;
mod sync;
mod totals;
mod verify;

use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sabul::files::receipts::Signing;
use sabul::internal::Retry;
use sabul::internal::ssh::UploadObserver;
use sabul::{ErrorKind, Failure, Progress, Report, Session, Transfer, TransferOptions};
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

use crate::args::{ApplyArgs, CopyArgs, CpArgs, SyncArgs};
use crate::error::CliError;
use crate::events::EventFile;
use crate::exit::{self, End, FAILED, code_of_failures};
use crate::files::dial;
use crate::interrupt::Interrupt;
use crate::policy::{self, controller};
use crate::progress::{Meter, follow};
use crate::upload::UploadProgress;
use crate::{control_socket, json, output};
use compare::{Compared, Comparing, ListedArgs};
use delta::Deltas;
use names::Names;
use plan::Plan;
use receipt::Receipt;
pub(crate) use report::Recorder;
use sides::Sides;
use sync::{Sync, Tops};
use totals::{AttemptTotals, sum};
pub(crate) use verify::run as verify;

/// Ours: interval between two lines while there is no connection.
const LINE_INTERVAL: Duration = Duration::from_millis(1800);
/// Ours: maximum number of lines on standard error for failures of single files.
const FAILURES_SHOWN: usize = 20;

/// Ours: shorter transfers do not report their limiter.
const LIMITER_AFTER: Duration = Duration::from_secs(1);

/// Runs `sabul cp` and returns the exit code.
pub(crate) async fn run(args: CpArgs) -> Result<u8, CliError> {
    let CpArgs { again, bag, mut copy, foreign } = args;
    if let Some(reason) = foreign.refusal() {
        return Err(CliError::usage(reason));
    }
    copy.recursive |= copy.archive;
    if bag && (copy.dry_run || copy.no_sync) {
        return Err(CliError::usage(
            "--bag needs a complete copy: leave out --dry-run and --no-sync",
        ));
    }
    copy.receipt.bag = bag;
    if copy.dry_run {
        return dry::run(&copy).await;
    }
    let again = again || copy.no_resume;
    run_with("cp", copy, Selecting { is_all: again, is_dry: false, sync: None }).await
}

/// Runs `sabul sync` and returns the exit code.
pub(crate) async fn sync(mut args: SyncArgs) -> Result<u8, CliError> {
    if let Some(list) = &args.files_from {
        args.names = Some(files_from::read(list, args.from0, args.copy.recursive)?);
    }
    args.copy.recursive = true;
    let sync = Sync::of(&args)?;
    run_sync("sync", args.copy, sync).await
}

/// Runs `sabul apply` and returns the exit code.
pub(crate) async fn apply(args: ApplyArgs) -> Result<u8, CliError> {
    args.copy.refuse_options_of_plans()?;
    let [path] = &args.copy.places[..] else {
        return Err(CliError::usage("give one plan file: sabul apply PLAN"));
    };
    let path = path.clone();
    let (args, planned) = plan_file::read(Path::new(&path), args)?;
    let sync = Sync::of(&args)?.with_plan(planned);
    run_sync("apply", args.copy, sync).await
}

async fn run_sync(name: &'static str, mut copy: CopyArgs, sync: Sync) -> Result<u8, CliError> {
    copy.growing = true;
    let selecting = Selecting { is_all: false, is_dry: copy.dry_run, sync: Some(sync) };
    run_with(name, copy, selecting).await
}

impl CopyArgs {
    /// A plan has the options of its comparison.
    fn refuse_options_of_plans(&self) -> Result<(), CliError> {
        let &Self { archive, preserve, checksum, copy_links, ref chmod, .. } = self;
        let flags = [
            (archive, "-a"),
            (preserve, "-p"),
            (checksum, "-c"),
            (copy_links, "-L"),
            (chmod.is_some(), "--chmod"),
            (!self.rules.0.is_empty(), "--exclude and --include"),
        ];
        match flags.iter().find(|(is_given, _)| *is_given) {
            Some((_, flag)) => Err(CliError::usage(format!(
                "the plan decides about {flag}; give the option to 'sabul sync -n --plan'"
            ))),
            None => Ok(()),
        }
    }

    /// Which entries of the sources are listed.
    fn listed(&self) -> ListedArgs<'_> {
        let &Self { recursive, archive, copy_links, .. } = self;
        let chmod = self.chmod.clone().unwrap_or_default();
        ListedArgs { recursive, archive, copy_links, chmod, rules: &self.rules.0 }
    }
}

/// Selection of the entries to copy.
#[derive(Debug)]
struct Selecting {
    /// Everything is copied.
    is_all: bool,
    /// Nothing is changed.
    is_dry: bool,
    /// Settings of `sabul sync`.
    sync: Option<Sync>,
}

async fn run_with(
    name: &'static str,
    mut args: CopyArgs,
    selecting: Selecting,
) -> Result<u8, CliError> {
    let nothing = TransferJson::nothing(controller(&args));
    let lines = args.json_lines.then(LineBuilder::default);
    let job = job(&args);
    let receipt = Receipt::of(&args, name)?;
    if let Some(signer) = receipt.as_ref().and_then(Receipt::signer) {
        args.channel.signing = Signing::Key(signer);
    }
    let mut outcome = Outcome {
        json: nothing,
        code: exit::DONE,
        lines,
        job,
        totals: AttemptTotals::default(),
        machines: Machines::default(),
        recorder: None,
        selecting,
        compared: Compared::default(),
        removed: 0,
        incomplete: Vec::new(),
        receipt,
        receipt_line: None,
    };
    let mut result = copy(&args, &mut outcome).await;
    outcome.json.policy = Some(args.policy.name());
    outcome.totals.complete(&mut outcome.json);
    if let Err(error) = &result {
        outcome.json.errors.push(json::error(error));
    }
    if let Some(recorder) = outcome.recorder.take()
        && let Err(error) =
            recorder.finish(&format!("sabul {name} {}", title(&args)), &outcome.json)
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
    selecting: Selecting,
    /// Result of the comparison of both ends, from the last attempt.
    compared: Compared,
    /// Number of removed entries.
    removed: u64,
    /// Reason why entries were not removed, their metadata was not set, or no receipt was written.
    incomplete: Vec<ErrorJson>,
    /// Receipt to write.
    receipt: Option<Receipt>,
    /// Line about the receipt.
    receipt_line: Option<String>,
}

/// Returns the places of the copy, separated by spaces.
fn title(args: &CopyArgs) -> String {
    let places = args.places.iter().map(|place| Printable(place.as_bytes()).to_string());
    places.collect::<Vec<_>>().join(" ")
}

/// Returns the copy as `sabul ps` shows it.
fn job(args: &CopyArgs) -> Job {
    let bps = |rate: Option<sabul_units::Rate>| rate.map(|rate| rate.0);
    Job::new("cp", &title(args)).with_rates(
        args.policy.name(),
        bps(args.bwlimit),
        bps(args.min_rate),
    )
}

async fn copy(args: &CopyArgs, outcome: &mut Outcome) -> Result<(), CliError> {
    let plan = match &outcome.selecting.sync {
        Some(sync) => Plan::of_sync(args, sync.has_names())?,
        None => Plan::of(args)?,
    };
    let plan = if args.receipt.bag { plan.into_bag()? } else { plan };
    outcome.machines = plan.machines();
    if outcome.receipt.is_some() {
        Receipt::check(args, &plan)?;
    }
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
        .growing(args.growing)
        .rules(args.rules.0.clone())
        .chmod(args.chmod.clone().unwrap_or_default());
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
    args: &CopyArgs,
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
                let mut result =
                    transfer(args, &plan, &session, options, interrupt, outcome, pipe).await;
                if let Ok(first) = &result
                    && outcome.compared.conflicts > 0
                    && outcome.removed > 0
                {
                    let first = first.clone();
                    // Entries of another kind are removed now.
                    let (pipe, removed) = (Pipe::closing(pipe_closed), outcome.removed);
                    let again = transfer(args, &plan, &session, options, interrupt, outcome, pipe);
                    result = again.await.and_then(|second| {
                        outcome.removed += removed;
                        match outcome.compared.conflicts {
                            0 => Ok(sum(&first, second)),
                            left => Err(CliError::failed(format!(
                                "{left} entries were not replaced: remove directories in their place, or change the filters"
                            ))),
                        }
                    });
                }
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
    async fn meanwhile<T>(&self, args: &CopyArgs, work: impl Future<Output = T>) -> T {
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

/// A copy that has started.
enum Started {
    /// The transfer, and the comparison that selects its entries.
    Transfer(Transfer, Option<compare::Task>),
    /// Nothing needs a copy.
    Nothing(Compared),
}

/// Compares both ends, if the copy requires it, and starts the transfer.
async fn start(
    args: &CopyArgs,
    plan: &Plan,
    session: &Session,
    options: &TransferOptions,
    selecting: &Selecting,
    pipe: Pipe,
) -> Result<Started, CliError> {
    let comparing = match selecting.order(args, plan) {
        Some(mut order) => {
            let has_deltas = selecting.sync.as_ref().is_some_and(Sync::has_deltas);
            let has_deltas = has_deltas && !selecting.is_dry;
            order.deltas = has_deltas.then(|| Deltas::of(plan, session)).flatten();
            let has_moves = selecting.sync.as_ref().is_some_and(Sync::has_moves);
            let has_moves = has_moves && !selecting.is_dry;
            order.moves = has_moves.then(|| Sides::of(plan, session));
            Comparing::start(&args.listed(), plan, session, order)?
        }
        None => None,
    };
    let (names, task) = match comparing {
        // An upload starts while the destination is still listed; the first name then costs no round trip.
        Some(comparing) if plan.is_put() && selecting.sync.is_none() => comparing.names_at_once(),
        Some(comparing) => match comparing.names(selecting.is_dry).await {
            (Some(names), task) => (Some(names), Some(task)),
            (None, task) => {
                match task.await.map_err(|_| CliError::failed("the comparison failed"))? {
                    // A transfer without entries removes the journal of an interrupted one.
                    Ok(compared) if compared.has_journal && !selecting.is_dry => {
                        let done = tokio::spawn(std::future::ready(Ok(compared)));
                        (Some(Names::none()), Some(done))
                    }
                    Ok(compared) => return Ok(Started::Nothing(compared)),
                    // The source can be read, but not listed.
                    Err(error) if selecting.sync.is_none() && error.is_refusal() => (None, None),
                    Err(error) => return Err(error),
                }
            }
        },
        None => (None, None),
    };
    let transfer = plan.start(session, args.recursive, options, pipe, names).await?;
    Ok(Started::Transfer(transfer, task))
}

/// Runs the transfer and records its progress in `outcome`.
async fn transfer(
    args: &CopyArgs,
    plan: &Plan,
    session: &Session,
    options: &TransferOptions,
    interrupt: &Interrupt,
    outcome: &mut Outcome,
    pipe: Pipe,
) -> Result<Report, CliError> {
    let mut meter = Meter::new(args.quiet || args.json_lines, args.retry.is_some());
    if let Some(receipt) = &outcome.receipt {
        receipt.probe(plan, session).await?;
    }
    // Beside the comparison, so that this costs no round trip.
    let is_sync = outcome.selecting.sync.is_some() && !outcome.selecting.is_dry;
    let chmod = args.chmod.clone().unwrap_or_default();
    let tops = is_sync.then(|| tokio::spawn(Tops::read(plan.clone(), session.clone(), chmod)));
    let started = tokio::select! {
        started = start(args, plan, session, options, &outcome.selecting, pipe) => started,
        () = interrupt.wait() => Err(CliError::interrupted("interrupted")),
    };
    let mut comparing = None;
    let result = match started {
        Ok(Started::Nothing(compared)) => {
            outcome.compared = compared;
            let mut report = Report::default();
            (report.verified, report.durable) = (true, options.sync);
            report.in_place = plan.is_renamed();
            Ok(report)
        }
        Ok(Started::Transfer(mut transfer, task)) => {
            comparing = task;
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
    let mut report = result?;
    if let Some(task) = comparing {
        outcome.compared = task.await.map_err(|_| CliError::failed("the comparison failed"))??;
    }
    // Entries that were not listed are failures of the copy.
    report.entries_failed += outcome.compared.source_failures;
    report.failures.append(&mut outcome.compared.source_errors);
    let mut failures = std::mem::take(&mut outcome.compared.destination_failures);
    failures.append(&mut outcome.compared.refused);
    // A second transfer of the same copy compares again.
    failures.retain(|(path, why)| !outcome.incomplete.contains(&ErrorJson::of_entry(path, why)));
    print_failures(&failures, failures.len() as u64, outcome);
    let failures = failures.iter().map(|(path, why)| ErrorJson::of_entry(path, why));
    outcome.incomplete.extend(failures);
    if let Some(sync) = &outcome.selecting.sync {
        let Some(tops) = tops else {
            if let Err(error) = sync.check(&report, &outcome.compared) {
                output::error(&error);
                outcome.code = FAILED;
            }
            sync.finish_plan()?;
            return Ok(report);
        };
        let changed = tokio::select! {
            changed = async {
                let tops = tops.await.map_err(|_| CliError::failed("the comparison failed"))??;
                sync.complete(plan, session, &report, &outcome.compared, tops).await
            } => changed,
            () = interrupt.wait() => Err(CliError::interrupted("interrupted")),
        };
        match changed {
            Ok(removed) => outcome.removed = removed,
            Err(error) if interrupt.is_seen() => return Err(error),
            // The copy is complete.
            Err(error) => {
                output::error(&error);
                outcome.code = FAILED;
                outcome.incomplete.push(json::error(&error));
            }
        }
    }
    write_receipt(args, plan, (session, options), interrupt, outcome, &report).await?;
    Ok(report)
}

/// Writes the receipt of a copy without failures, if one is requested.
async fn write_receipt(
    args: &CopyArgs,
    plan: &Plan,
    (session, options): (&Session, &TransferOptions),
    interrupt: &Interrupt,
    outcome: &mut Outcome,
    report: &Report,
) -> Result<(), CliError> {
    let Some(receipt) = &outcome.receipt else { return Ok(()) };
    // Entries of another kind are copied by a second transfer.
    if outcome.compared.conflicts > 0 && outcome.removed > 0 {
        return Ok(());
    }
    let sync = &outcome.selecting.sync;
    let growing = args.growing && !sync.as_ref().is_some_and(Sync::keeps_differences);
    let failed = report.entries_failed + outcome.incomplete.len() as u64;
    let written = match failed {
        0 => tokio::select! {
            written = receipt.write(args, plan, session, options, (report, growing)) => written,
            () = interrupt.wait() => return Err(CliError::interrupted("interrupted")),
        },
        _ => Err(CliError::failed(format!(
            "no receipt was written: {} failed; copy again",
            entries(failed)
        ))),
    };
    match written {
        Ok(line) => outcome.receipt_line = Some(line),
        // The copy is complete, and a lost connection is dialled again.
        Err(error) if matches!(error.end(), End::Error(ErrorKind::Unreachable)) => {
            return Err(error);
        }
        Err(error) => {
            output::error(&error);
            outcome.code = outcome.code.max(error.code());
            outcome.incomplete.push(json::error(&error));
        }
    }
    Ok(())
}

/// Reports the result of a transfer that reached its end.
fn conclude(args: &CopyArgs, report: &Report, pipe_closed: &AtomicBool, outcome: &mut Outcome) {
    outcome.json = TransferJson::of_report(controller(args), report);
    outcome.json.skipped_files = outcome.compared.same_files;
    outcome.json.skipped_bytes = outcome.compared.same_bytes;
    outcome.json.removed = outcome.removed;
    outcome.json.kept_bytes = outcome.compared.kept_bytes;
    outcome.json.moved_files = outcome.compared.moved_files;
    outcome.json.errors.append(&mut outcome.incomplete);
    if pipe_closed.load(Ordering::Acquire) {
        // The reader of standard output closed the pipe, which is not an error.
        outcome.json.errors.clear();
        return;
    }
    print_failures(&report.failures, report.entries_failed, outcome);
    outcome.totals.complete(&mut outcome.json);
    let is_all_lost = report.entries == 0 && outcome.code != exit::DONE;
    if !args.quiet && !is_all_lost {
        output::note(summary(report, outcome));
        if args.verbose > 0 {
            output::note(path_line(&outcome.json));
        }
        if let Some(line) = outcome.receipt_line.take() {
            output::note(line);
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
fn summary(report: &Report, outcome: &Outcome) -> String {
    let (json, compared) = (&outcome.json, &outcome.compared);
    let mut also = String::new();
    if compared.same_files > 0 {
        let (files, bytes) = (count(compared.same_files, "file"), show_bytes(compared.same_bytes));
        also += &format!("; {files} ({bytes}) there already");
    }
    if compared.moved_files > 0 {
        let (files, bytes) =
            (count(compared.moved_files, "file"), show_bytes(compared.moved_bytes));
        also += &format!("; {files} ({bytes}) renamed");
    }
    if compared.deltas > 0 {
        let (files, bytes) = (count(compared.deltas, "file"), show_bytes(compared.kept_bytes));
        also += &format!("; {bytes} of {files} kept from the old versions");
    }
    if compared.whole > 0 {
        let files = count(compared.whole, "file");
        also += &format!("; {files} sent completely, faster than a comparison");
    }
    if json.grown > 0 {
        also += &format!("; {} grew, copied up to the first size", count(json.grown, "file"));
    }
    if outcome.removed > 0 {
        also += &format!("; {} removed", entries(outcome.removed));
    }
    if outcome.selecting.is_dry {
        let (files, bytes) = (count(compared.files, "file"), show_bytes(compared.bytes));
        let removed = match compared.extras.len() as u64 {
            0 => String::new(),
            extras => format!(" and remove {}", entries(extras)),
        };
        return format!("dry run: would copy {bytes} in {files}{removed}{also}");
    }
    let is_compared = outcome.selecting.sync.is_some() || compared.same_files > 0;
    if is_compared && report.entries == 0 && report.entries_failed == 0 {
        return format!("nothing to copy{also}");
    }
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
    line += &also;
    if let Some(carrier) = carrier_name(json.carrier) {
        let relayed = match json.relayed_bytes {
            0 => String::new(),
            bytes => format!(" ({} relayed)", show_bytes(bytes)),
        };
        line += &format!("; over {carrier}{relayed}: {}", json.carrier_reason);
    } else if json.paths > 1 {
        line += &format!("; over {} paths", json.paths);
    }
    let shares = limiter::listed(json.limiter.iter().map(|(name, share)| (name.as_str(), *share)));
    if !shares.is_empty() && json.seconds >= LIMITER_AFTER.as_secs_f64() {
        line += &format!("; limited by {shares}");
    }
    line
}

fn entries(count: u64) -> String {
    if count == 1 { "1 entry".to_owned() } else { format!("{count} entries") }
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
