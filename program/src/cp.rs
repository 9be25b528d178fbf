//! `sabul cp`: copies files to or from another machine.

mod compare;
mod delta;
mod dry;
mod entries;
mod files_from;
mod guard;
mod listings;
mod moves;
pub(crate) mod names;
mod narrow;
mod outcome;
mod pass;
mod plan;
mod plan_file;
mod portions;
mod receipt;
pub(crate) mod remotes;
pub(crate) mod replicate;
pub(crate) mod report;
mod sides;
mod summary;
mod sync;
mod tops;
mod totals;
mod verify;
mod versions;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use sabul::files::receipts::Signing;
use sabul::internal::Retry;
use sabul::internal::ssh::UploadObserver;
use sabul::{Failure, Report, TransferOptions};
use sabul_front::json::{Document, ErrorJson};
use sabul_front::lines::CopyEvent;

use crate::args::{ApplyArgs, CopyArgs, CpArgs, SyncArgs};
use crate::error::CliError;
use crate::events::EventFile;
use crate::exit::End;
use crate::files::dial;
use crate::interrupt::Interrupt;
use crate::upload::UploadProgress;
use crate::{control_socket, json, output};
use outcome::{Outcome, title, what_stays};
use pass::in_session;
pub(crate) use pass::transfer_options;
use plan::Plan;
use receipt::Receipt;
use report::Recorder;
use summary::{conclude, print_failures};
pub(crate) use summary::{dry_run, entries, there_already};
pub(crate) use sync::Selecting;
use sync::Sync;
pub(crate) use verify::run as verify;

/// Runs `sabul cp` and returns the exit code.
pub(crate) async fn run(args: CpArgs) -> Result<u8, CliError> {
    let selecting = args.selecting()?;
    let CpArgs { bag, mut copy, foreign, .. } = args;
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
        return dry::run(&copy, &selecting).await;
    }
    run_with("cp", copy, selecting).await
}

/// Runs `sabul sync` and returns the exit code.
pub(crate) async fn sync(mut args: SyncArgs) -> Result<u8, CliError> {
    if let Some(list) = &args.files_from {
        args.names = Some(files_from::read(list, args.from0, args.copy.recursive)?);
    }
    args.copy.recursive = true;
    args.copy.growing = true;
    let selecting = args.selecting()?;
    run_with("sync", args.copy, selecting).await
}

/// Runs `sabul apply` and returns the exit code.
pub(crate) async fn apply(args: ApplyArgs) -> Result<u8, CliError> {
    args.copy.refuse_options_of_plans()?;
    let [path] = &args.copy.places[..] else {
        return Err(CliError::usage("give one plan file: sabul apply PLAN"));
    };
    let path = path.clone();
    let (mut args, planned) = plan_file::read(Path::new(&path), args)?;
    args.copy.growing = true;
    let sync = Some(Sync::of(&args)?.with_plan(planned));
    let selecting = Selecting { is_all: false, is_dry: args.copy.dry_run, sync };
    run_with("apply", args.copy, selecting).await
}

/// A command that copies.
pub(crate) trait CopyCommand: AsRef<CopyArgs> + AsMut<CopyArgs> {
    /// Settings of the selection of entries.
    fn selecting(&self) -> Result<Selecting, CliError>;
}

impl CopyCommand for CpArgs {
    fn selecting(&self) -> Result<Selecting, CliError> {
        let is_all = self.again || self.copy.no_resume;
        Ok(Selecting { is_all, is_dry: false, sync: None })
    }
}

impl CopyCommand for SyncArgs {
    fn selecting(&self) -> Result<Selecting, CliError> {
        let sync = Some(Sync::of(self)?);
        Ok(Selecting { is_all: false, is_dry: self.copy.dry_run, sync })
    }
}

impl CopyArgs {
    /// A plan has the options of its comparison.
    fn refuse_options_of_plans(&self) -> Result<(), CliError> {
        let &Self { archive, hard_links, preserve, checksum, copy_links, ref chmod, .. } = self;
        let flags = [
            (archive, "-a"),
            (hard_links, "-H"),
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
}

async fn run_with(
    name: &'static str,
    mut args: CopyArgs,
    selecting: Selecting,
) -> Result<u8, CliError> {
    let receipt = Receipt::of(&args, name)?;
    if let Some(signer) = receipt.as_ref().and_then(Receipt::signer) {
        args.channel.signing = Signing::Key(signer);
    }
    let mut outcome = Outcome::new(name, &args, selecting, receipt);
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
    let options = transfer_options(args)?;
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
        outcome.totals.begin();
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
                let result =
                    in_session(args, &plan, &session, options, interrupt, outcome, pipe_closed)
                        .await;
                // Closed in order even after a failure: otherwise the peer reports a broken
                // connection.
                session.close().await;
                match (&result, bridge) {
                    (Ok(_), Some(bridge)) => bridge.close().await,
                    (Err(error), Some(_)) if error.is_lost() => {
                        interrupt.follows_soon().await;
                    }
                    _ => {}
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
