//! `sabul cp --dry-run`: reports the steps of a copy without performing them.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use sabul::Session;
use sabul::files::{RemoteDestination, View};
use sabul::internal::Rules;
use sabul::internal::compare::Difference;
use sabul::internal::ssh::UploadObserver;
use sabul_content::Printable;
use sabul_front::dry::{self, Step, StepKind, Sums};
use sabul_front::json::DryJson;
use sabul_units::{count, show_bytes};

use super::compare::Comparing;
use super::plan::{Plan, is_into, source_set};
use super::sync::Selecting;
use crate::args::CopyArgs;
use crate::error::CliError;
use crate::exit::code_of_failures;
use crate::files;
use crate::interrupt::Interrupt;
use crate::json;
use crate::output;
use crate::upload::UploadProgress;

/// Memory of a step in a JSON document beside its path, and the copies of its path. Ours: estimated.
const STEP: usize = 512;
const COPIES: usize = 4;

/// Runs the dry run and returns the exit code.
pub(super) async fn run(args: &CopyArgs, selecting: &Selecting) -> Result<u8, CliError> {
    let found = find(args, selecting).await;
    if args.json {
        let errors = found.as_ref().err().map(json::error).into_iter().collect();
        let (steps, sums) = match &found {
            Ok(found) => (&found.steps[..], found.sums),
            Err(_) => (&[][..], Sums::default()),
        };
        json::print(&DryJson::of(steps, &sums, errors))?;
    }
    let found = found?;
    if !args.quiet {
        output::note(summary(&found.sums, (found.same_files, found.same_bytes)));
    }
    Ok(found.exit)
}

/// Formats the amount of the copy, and the files and bytes that the destination has already.
fn summary(sums: &Sums, (same_files, same_bytes): (u64, u64)) -> String {
    let mut line = match (sums.files, sums.folders, sums.skipped) {
        (0, 0, 0) => "dry run: nothing to copy".to_owned(),
        _ => format!(
            "dry run: would send {} in {} ({} of them replace others) and make {}",
            show_bytes(sums.bytes),
            count(sums.files, "file"),
            sums.replaced,
            count(sums.folders, "folder")
        ),
    };
    if same_files > 0 {
        let (files, bytes) = (count(same_files, "file"), show_bytes(same_bytes));
        line += &format!("; {files} ({bytes}) there already");
    }
    if sums.skipped > 0 {
        line += &format!("; {} would not be copied", sums.skipped);
    }
    line
}

fn print_step(step: &Step, is_json: bool) -> Result<(), CliError> {
    let path = Printable(&step.path).to_string();
    match &step.kind {
        StepKind::Skip(failure) => {
            output::error(format_args!("{path}: would not be copied: {failure}"));
        }
        StepKind::Keep => {}
        _ if is_json => {}
        StepKind::Make => output::print_line(format!("make    {:>10} {path}/", ""))?,
        StepKind::Send | StepKind::Replace => {
            let bytes = show_bytes(step.bytes);
            output::print_line(format!("{:<7} {bytes:>10} {path}", step.kind.word()))?;
        }
    }
    Ok(())
}

/// Totals of the steps so far.
#[derive(Default)]
struct Found {
    sums: Sums,
    /// Files that need no copy, and their bytes.
    same_files: u64,
    same_bytes: u64,
    /// The exit code for the entries that would not be copied.
    exit: u8,
    /// All steps for the JSON document, and the memory of the document.
    steps: Vec<Step>,
    memory: usize,
}

impl Found {
    /// Prints a step, or keeps the step for the JSON document. `same` has the files that the copy would skip.
    fn take(
        &mut self,
        args: &CopyArgs,
        same: &BTreeSet<Vec<u8>>,
        mut step: Step,
    ) -> Result<(), CliError> {
        if step.kind == StepKind::Replace && same.contains(&step.path) {
            self.same_files += 1;
            self.same_bytes += step.bytes;
            (step.kind, step.bytes) = (StepKind::Keep, 0);
        }
        self.sums.add(&step);
        if let StepKind::Skip(failure) = &step.kind {
            self.exit = self.exit.max(code_of_failures([failure]));
        }
        print_step(&step, args.json)?;
        if !args.json {
            return Ok(());
        }
        self.memory += STEP + COPIES * step.path.len();
        let budget = args.channel.session.memory().bytes();
        if self.memory > budget {
            return Err(CliError::failed(format!(
                "the document of {} and more steps needs more than --memory ({}); raise it, or leave out --json",
                self.steps.len(),
                show_bytes(budget as u64)
            )));
        }
        self.steps.push(step);
        Ok(())
    }
}

async fn find(args: &CopyArgs, selecting: &Selecting) -> Result<Found, CliError> {
    let plan = Plan::of(args)?;
    if plan.reads_stdin() || plan.writes_stdout() {
        return Err(CliError::usage("--dry-run does not support '-'; name files"));
    }
    let missing = plan.none_to_send(args)?;
    if !missing.is_empty() {
        let skip = |(path, failure)| Step { path, bytes: 0, kind: StepKind::Skip(failure) };
        let (mut found, same) = (Found::default(), BTreeSet::new());
        missing.into_iter().map(skip).try_for_each(|step| found.take(args, &same, step))?;
        return Ok(found);
    }
    let interrupt = Interrupt::listen()?;
    let events = args.channel.event_file()?;
    let observer: Arc<dyn UploadObserver> =
        Arc::new(UploadProgress::new(args.quiet || args.json, true));
    let dialled = files::dial(
        &args.channel,
        &args.ssh,
        plan.server(),
        &interrupt,
        events.as_ref(),
        &observer,
    );
    let (session, bridge) = dialled.await?;
    let found = tokio::select! {
        found = query(args, plan, &session, selecting) => found,
        () = interrupt.wait() => Err(CliError::interrupted("interrupted")),
    };
    session.close().await;
    let found = found?;
    if let Some(bridge) = bridge {
        bridge.close().await;
    }
    Ok(found)
}

/// Takes the steps, with those of files that the copy would skip as kept.
async fn query(
    args: &CopyArgs,
    plan: Plan,
    session: &Session,
    selecting: &Selecting,
) -> Result<Found, CliError> {
    let same = unchanged(args, &plan, session, selecting).await?;
    let mut found = Found::default();
    query_plan(args, plan, session, |step| found.take(args, &same, step)).await?;
    Ok(found)
}

/// Returns the names of the entries whose content needs no copy, from the comparison that a copy makes.
async fn unchanged(
    args: &CopyArgs,
    plan: &Plan,
    session: &Session,
    selecting: &Selecting,
) -> Result<BTreeSet<Vec<u8>>, CliError> {
    let same = Arc::<Mutex<BTreeSet<Vec<u8>>>>::default();
    let Some(mut order) = selecting.order(args, plan) else { return Ok(BTreeSet::new()) };
    let names = Arc::clone(&same);
    order.observer = Some(Box::new(move |difference| {
        if let Difference::Same { path, is_there: true, .. } | Difference::Adjust { path, .. } =
            difference
            && let Ok(mut names) = names.lock()
        {
            names.insert(path.clone());
        }
        Ok(())
    }));
    if let Some(comparing) = Comparing::start(&args.listed(), plan, session, order)? {
        let (_, task) = comparing.names(true).await;
        match task.await.map_err(|_| CliError::failed("the comparison failed"))? {
            Err(error) if !error.is_refusal() => return Err(error),
            _ => {}
        }
    }
    let mut same = same.lock().unwrap_or_else(PoisonError::into_inner);
    Ok(std::mem::take(&mut *same))
}

async fn query_plan(
    args: &CopyArgs,
    plan: Plan,
    session: &Session,
    visit: impl FnMut(Step) -> Result<(), CliError>,
) -> Result<(), CliError> {
    let rules = &args.rules.0;
    match plan {
        Plan::Put { sources, destination } => {
            let rules =
                Rules::new(rules).map_err(|failure| CliError::usage(failure.to_string()))?;
            let sources = source_set(&sources, args.recursive)?
                .with_rules(rules)
                .with_archive_mode(args.archive)
                .with_links_out(args.copy_links);
            let path = destination.path;
            let into_directory =
                sources.needs_directory() || path.is_empty() || path.ends_with(b"/");
            let mut destination = RemoteDestination::path(path);
            destination.into_directory = into_directory;
            let steps = dry::upload(session, sources, &destination).await?;
            steps.into_iter().try_for_each(visit)
        }
        Plan::Get { sources, destination, .. } => {
            let into = is_into(&sources, &destination);
            let to = (Path::new(&destination), into);
            let view = match (args.archive, args.recursive) {
                (true, _) => View::Archive,
                (_, true) => View::Tree,
                _ => View::Files,
            };
            dry::download(session, sources, view, rules.clone(), to, visit).await
        }
    }
}
