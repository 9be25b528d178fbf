//! One copy over a connected session: comparison, transfer, removals and metadata, receipt.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::sync_channel;

use sabul::files::{NewMetadata, Owner};
use sabul::internal::compare::{CompareOptions, mode_of, recognized};
use sabul::{
    ErrorKind, Failure, FailureCode, Progress, Report, Session, Transfer, TransferOptions,
};
use sabul_content::Printable;
use sabul_front::json::{ErrorJson, TransferJson};
use sabul_front::lines::{CopyEvent, LineBuilder};
use sabul_front::pipe::Pipe;
use sabul_front::progress_line::MinimumRate;
use tokio::runtime::Handle;

use super::compare::{self, Adjusted, Compared, Comparing, ListedArgs};
use super::delta::Deltas;
use super::guard::Guard;
use super::names::Names;
use super::narrow::Narrowing;
use super::outcome::Outcome;
use super::plan::Plan;
use super::portions::CHANGES_AT_ONCE;
use super::report::Recorder;
use super::sides::Sides;
use super::summary::{entries, name_way, print_failures};
use super::sync::{Selecting, Sync, Target};
use super::tops::TopsReader;
use super::totals::sum;
use crate::args::CopyArgs;
use crate::error::CliError;
use crate::exit::{End, FAILED};
use crate::interrupt::Interrupt;
use crate::policy::{self, controller};
use crate::progress::{Meter, follow};
use crate::{json, output};

/// Settings of the transfer.
pub(crate) fn transfer_options(args: &CopyArgs) -> Result<TransferOptions, CliError> {
    let options = args.channel.transfer_options(controller(args))?;
    let mut options = options
        .rate_limit(args.bwlimit)
        .preserve(args.preserve)
        .archive_mode(args.archive)
        .hard_links(args.hard_links)
        .sync(!args.no_sync)
        .resume(!args.no_resume)
        .read_back(args.read_back)
        .links_out(args.copy_links)
        .growing(args.growing)
        .origins(args.queued.origins.clone())
        .rules(args.rules.0.clone())
        .chmod(args.chmod.clone().unwrap_or_default());
    policy::apply(args, &mut options)?;
    Ok(options)
}

impl CopyArgs {
    /// Which entries of the sources are listed.
    pub(super) fn listed(&self) -> ListedArgs<'_> {
        let &Self { recursive, archive, copy_links, .. } = self;
        let chmod = self.chmod.clone().unwrap_or_default();
        ListedArgs { recursive, archive, copy_links, chmod, rules: &self.rules.0 }
    }
}

/// A copy that has started.
enum Started {
    /// The transfer, and the comparison that selects its entries.
    Transfer(Transfer, Option<compare::Task>),
    /// Nothing needs a copy.
    Nothing(Compared),
}

/// Changes of directories that lose rights at the destination.
pub(super) fn narrowing(
    plan: &Plan,
    session: &Session,
    tops: Option<&Arc<TopsReader>>,
) -> Narrowing {
    let (plan, session, runtime) = (plan.clone(), session.clone(), Handle::current());
    let tops = tops.cloned();
    Narrowing::new(Box::new(move |changes| {
        let (plan, session, tops) = (plan.clone(), session.clone(), tops.clone());
        let (done, result) = sync_channel(1);
        runtime.spawn(async move {
            let id = match &tops {
                Some(tops) => tops.get().await?.id(),
                None => None,
            };
            // Several calls of this function run at the same time, and a server limits the requests of a session.
            let target = Target::of(&plan, &session, false, [id, None]);
            let set = target.set_metadata(changes, 1).await;
            // Without a receiver the comparison is over.
            let _ = done.send(());
            set
        });
        result
    }))
}

/// Compares both ends, if the copy requires it, and starts the transfer.
async fn start(
    args: &CopyArgs,
    plan: &Plan,
    session: &Session,
    options: &TransferOptions,
    selecting: &Selecting,
    tops: Option<&Arc<TopsReader>>,
    pipe: Pipe,
) -> Result<Started, CliError> {
    let comparing = match selecting.order(args, plan) {
        Some(mut order) => {
            order.tops = tops.cloned();
            let has_deltas = selecting.sync.as_ref().is_some_and(Sync::has_deltas);
            let has_deltas = has_deltas && !selecting.is_dry;
            order.deltas = has_deltas.then(|| Deltas::of(plan, session)).flatten();
            let has_moves = selecting.sync.as_ref().is_some_and(Sync::has_moves);
            let has_moves = has_moves && !selecting.is_dry;
            order.moves = has_moves.then(|| Sides::of(plan, session, tops));
            let replica = selecting.sync.as_ref().and_then(Sync::replica);
            order.narrowing = (!selecting.is_dry).then(|| narrowing(plan, session, tops));
            order.guard =
                replica.map(|replica| Guard::new(replica, Sides::of(plan, session, tops)));
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
                    // A transfer without entries makes the directory, and removes the journal of an interrupted one.
                    Ok(compared)
                        if !selecting.is_dry
                            && (compared.has_journal || makes_top(selecting, tops).await?) =>
                    {
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
    let mut options = options.clone();
    if let Some(tops) = tops {
        if let Some(sync) = &selecting.sync {
            sync.narrow_top(plan, session, tops).await?;
        }
        options.expected = tops.get().await?.expected;
    }
    let transfer = plan.start(session, args, &options, pipe, names).await?;
    Ok(Started::Transfer(transfer, task))
}

/// Whether the transfer has to make the destination although no entry needs a copy.
async fn makes_top(
    selecting: &Selecting,
    tops: Option<&Arc<TopsReader>>,
) -> Result<bool, CliError> {
    Ok(match (&selecting.sync, tops) {
        (Some(sync), Some(tops)) => sync.makes_top(&tops.get().await?),
        _ => false,
    })
}

/// Runs the transfer, and a second one for the entries that another kind of entry blocked.
pub(super) async fn in_session(
    args: &CopyArgs,
    plan: &Plan,
    session: &Session,
    options: &TransferOptions,
    interrupt: &Interrupt,
    outcome: &mut Outcome,
    pipe_closed: &Arc<AtomicBool>,
) -> Result<Report, CliError> {
    let pipe = Pipe::closing(pipe_closed);
    let first = transfer(args, plan, session, options, interrupt, outcome, pipe).await?;
    if outcome.compared.conflicts.is_empty() || outcome.removed == 0 {
        return Ok(first);
    }
    // Entries of another kind are removed now.
    let (pipe, removed) = (Pipe::closing(pipe_closed), std::mem::take(&mut outcome.removed));
    let mut second = transfer(args, plan, session, options, interrupt, outcome, pipe).await?;
    take_conflicts(&mut second, outcome);
    outcome.removed += removed;
    Ok(sum(&first, second))
}

/// Counts the entries that were not copied, because an entry of another kind stays in their place, as failures.
fn take_conflicts(report: &mut Report, outcome: &mut Outcome) {
    let conflicts = std::mem::take(&mut outcome.compared.conflicts);
    report.entries_failed += conflicts.len() as u64;
    report.failures.extend(conflicts.into_iter().map(|path| {
        let text = format!(
            "'{}' is not written: an entry of another kind stays in its place; remove that entry, or change the \
             filters",
            Printable(&path)
        );
        (path, Failure::new(FailureCode::Unwritable, text))
    }));
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
    let is_sync = outcome.selecting.sync.is_some();
    let is_dry = is_sync && outcome.selecting.is_dry;
    let trash = outcome.selecting.sync.as_ref().and_then(Sync::trash);
    let tops = (is_sync && !is_dry)
        .then(|| TopsReader::start(plan, session, args, trash, outcome.destination));
    let tops = tops.as_ref();
    let started = tokio::select! {
        started = start(args, plan, session, options, &outcome.selecting, tops, pipe) => started,
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
        Ok(Started::Transfer(transfer, task)) => {
            comparing = task;
            run(args, transfer, &mut meter, interrupt, outcome).await
        }
        Err(error) => Err(error),
    };
    meter.clear();
    let mut report = result?;
    if let Some(task) = comparing {
        outcome.compared = task.await.map_err(|_| CliError::failed("the comparison failed"))??;
    }
    take_failures(&mut report, outcome);
    if let Some(tops) = tops {
        let found = tops.get().await?.destination.or(report.destination);
        outcome.destination = found.and_then(|found| found.id);
    }
    complete(args, plan, session, interrupt, outcome, &report, tops.map(|tops| &**tops)).await?;
    if is_dry {
        outcome.compared.conflicts.clear();
        return Ok(report);
    }
    if outcome.removed == 0 {
        take_conflicts(&mut report, outcome);
    }
    write_receipt(args, plan, (session, options), interrupt, outcome, &report).await?;
    Ok(report)
}

/// Follows a transfer to its end, and records its progress.
async fn run(
    args: &CopyArgs,
    mut transfer: Transfer,
    meter: &mut Meter,
    interrupt: &Interrupt,
    outcome: &mut Outcome,
) -> Result<Report, CliError> {
    outcome.job.begins(&transfer);
    let mut minimum = args.min_rate.map(MinimumRate::new);
    let (cc, policy) = (controller(args).to_owned(), args.policy.name().to_owned());
    json::print_event(outcome.lines.as_ref(), CopyEvent::Started { cc, policy });
    outcome.lines.iter_mut().for_each(LineBuilder::start);
    outcome.recorder.iter_mut().for_each(Recorder::begin);
    let (progress, slow): (Progress, _) = follow(
        &mut transfer,
        meter,
        interrupt,
        &mut minimum,
        &mut outcome.lines,
        &mut outcome.recorder,
    )
    .await;
    outcome.json = TransferJson::of_progress(controller(args), &progress);
    name_way(args, &mut outcome.json);
    outcome.totals.add(&progress);
    let finished = transfer.finish().await.map_err(CliError::from);
    match slow {
        // A transfer that completed before the cancellation counts as complete.
        Some(text) if finished.is_err() => Err(CliError::too_slow(text)),
        _ => finished,
    }
}

/// Adds the failures of the comparison to those of the copy.
fn take_failures(report: &mut Report, outcome: &mut Outcome) {
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
}

/// Completes the copy: removals of `sabul sync`, and metadata of existing entries. Without `tops`, `sabul sync` only
/// checks the removals.
async fn complete(
    args: &CopyArgs,
    plan: &Plan,
    session: &Session,
    interrupt: &Interrupt,
    outcome: &mut Outcome,
    report: &Report,
    tops: Option<&TopsReader>,
) -> Result<(), CliError> {
    let sync = outcome.selecting.sync.as_ref();
    if let (Some(sync), None) = (sync, &tops) {
        if let Err(error) = sync.check(report, &outcome.compared) {
            output::error(&error);
            outcome.code = FAILED;
        }
        return sync.finish_plan();
    }
    let changed = tokio::select! {
        changed = async {
            let (Some(sync), Some(tops)) = (sync, tops) else {
                return adjust(args, plan, session, &outcome.selecting, &outcome.compared)
                    .await
                    .map(|()| 0);
            };
            let tops = tops.get().await?;
            sync.complete(plan, session, report, &outcome.compared, &tops).await
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
    Ok(())
}

/// Sets the metadata of files that the destination has with the same content.
pub(super) async fn adjust(
    args: &CopyArgs,
    plan: &Plan,
    session: &Session,
    selecting: &Selecting,
    compared: &Compared,
) -> Result<(), CliError> {
    let adjusted = &compared.adjusted;
    let Some(order) = selecting.order(args, plan).filter(|_| !adjusted.is_empty()) else {
        return Ok(());
    };
    let CompareOptions { modes, owners, .. } = order.options;
    let (place, name) = match &adjusted[..] {
        [only] if only.path.is_empty() => plan.beside(),
        _ => (plan.clone(), Vec::new()),
    };
    let change = |Adjusted { path, source, old }: &Adjusted| NewMetadata {
        path: if path.is_empty() { name.clone() } else { path.clone() },
        mode: modes.then_some(mode_of(source, Some(old)) & 0o1777),
        modified_ns: source.modified_ns,
        owner: owners.then_some(Owner { user: source.owner, group: source.group }),
        seen: recognized(source, old),
    };
    let target = Target::of(&place, session, false, [None; 2]);
    target.set_metadata(adjusted.iter().map(change).collect(), CHANGES_AT_ONCE).await
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
    if !outcome.compared.conflicts.is_empty() {
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
