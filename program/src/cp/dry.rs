//! `sabul cp --dry-run`: reports the steps of a copy without performing them.

use std::path::Path;
use std::sync::Arc;

use sabul::Session;
use sabul::files::{RemoteDestination, View};
use sabul::internal::Rules;
use sabul::internal::ssh::UploadObserver;
use sabul_content::Printable;
use sabul_front::dry::{self, Step, StepKind, Sums};
use sabul_front::json::DryJson;
use sabul_units::{count, show_bytes};

use super::plan::{Plan, is_into, source_set};
use crate::args::CopyArgs;
use crate::error::CliError;
use crate::exit::code_of_failures;
use crate::files;
use crate::interrupt::Interrupt;
use crate::json;
use crate::output;
use crate::upload::UploadProgress;

/// Runs the dry run and returns the exit code.
pub(super) async fn run(args: &CopyArgs) -> Result<u8, CliError> {
    let found = find(args).await;
    let steps = found.as_deref().unwrap_or_default();
    let sums = Sums::of(steps);
    if args.json {
        let errors = found.as_ref().err().map(json::error).into_iter().collect();
        json::print(&DryJson::of(steps, &sums, errors))?;
    }
    let steps = found?;
    for step in &steps {
        print_step(step, args.json)?;
    }
    if !args.quiet {
        let skipped = match sums.skipped {
            0 => String::new(),
            skipped => format!("; {skipped} would not be copied"),
        };
        output::note(format_args!(
            "dry run: would send {} in {} ({} of them replace others) and make {}{skipped}",
            show_bytes(sums.bytes),
            count(sums.files, "file"),
            sums.replaced,
            count(sums.folders, "folder")
        ));
    }
    Ok(code_of_failures(steps.iter().filter_map(|step| match &step.kind {
        StepKind::Skip(failure) => Some(failure),
        _ => None,
    })))
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

async fn find(args: &CopyArgs) -> Result<Vec<Step>, CliError> {
    let plan = Plan::of(args)?;
    if plan.reads_stdin() || plan.writes_stdout() {
        return Err(CliError::usage("--dry-run does not support '-'; name files"));
    }
    let missing = plan.none_to_send(args)?;
    if !missing.is_empty() {
        let skip = |(path, failure)| Step { path, bytes: 0, kind: StepKind::Skip(failure) };
        return Ok(missing.into_iter().map(skip).collect());
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
    let steps = tokio::select! {
        steps = query_plan(args, plan, &session) => steps,
        () = interrupt.wait() => Err(CliError::interrupted("interrupted")),
    };
    session.close().await;
    let steps = steps?;
    if let Some(bridge) = bridge {
        bridge.close().await;
    }
    Ok(steps)
}

async fn query_plan(args: &CopyArgs, plan: Plan, session: &Session) -> Result<Vec<Step>, CliError> {
    let rules = &args.rules.0;
    Ok(match plan {
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
            dry::upload(session, sources, &destination).await?
        }
        Plan::Get { sources, destination, .. } => {
            let into = is_into(&sources, &destination);
            let to = (Path::new(&destination), into);
            let view = match (args.archive, args.recursive) {
                (true, _) => View::Archive,
                (_, true) => View::Tree,
                _ => View::Files,
            };
            dry::download(session, sources, view, rules.clone(), to).await?
        }
    })
}
