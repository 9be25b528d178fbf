//! `sabul verify`: compares two directories by the hashes of their files, without copying.

use std::sync::Arc;

use sabul::internal::compare::{CompareOptions, Difference};
use sabul::internal::ssh::UploadObserver;
use sabul_content::Printable;
use sabul_front::json::{Document, ErrorJson, VerifyJson};
use sabul_units::{count, show_bytes};

use super::compare::{Compared, Comparing, ListedArgs, Order};
use super::plan::Plan;
use crate::args::VerifyArgs;
use crate::error::CliError;
use crate::exit::{self, code_of_failures};
use crate::files::dial;
use crate::interrupt::Interrupt;
use crate::upload::UploadProgress;
use crate::{json, output};

/// Runs the command and returns the exit code: 5 if anything differs.
pub(crate) async fn run(args: VerifyArgs) -> Result<u8, CliError> {
    let plan = Plan::of_two(&args.places, true)?;
    let interrupt = Interrupt::listen()?;
    let channel = &args.reach.channel;
    let events = channel.event_file()?;
    let observer: Arc<dyn UploadObserver> = Arc::new(UploadProgress::new(args.quiet, true));
    let dialled =
        dial(channel, &args.reach.ssh, plan.server(), &interrupt, events.as_ref(), &observer);
    let (session, bridge) = dialled.await?;
    let (prints, is_archive) = (!args.json, args.archive);
    let print = move |difference: &Difference| match line(difference) {
        Some(line) if prints => output::print_line(line),
        _ => Ok(()),
    };
    let options = CompareOptions {
        content: true,
        // Times are not compared.
        size_only: true,
        extras: true,
        modes: is_archive,
        ..CompareOptions::default()
    };
    let order = Order {
        options,
        is_sync: true,
        keeps_extras: true,
        follows_links: !args.archive,
        observer: Some(Box::new(print)),
        planned: None,
        deltas: None,
        moves: None,
    };
    let listed = ListedArgs {
        recursive: true,
        archive: args.archive,
        copy_links: false,
        rules: &args.rules.0,
    };
    let work = async {
        let comparing = Comparing::start(&listed, &plan, &session, order)?;
        let comparing =
            comparing.ok_or_else(|| CliError::usage("name two directories or files"))?;
        let (_, task) = comparing.names(true).await;
        task.await.map_err(|_| CliError::failed("the comparison failed"))?
    };
    let compared = tokio::select! {
        compared = work => compared,
        () = interrupt.wait() => Err(CliError::interrupted("interrupted")),
    };
    session.close().await;
    let compared = compared?;
    if let Some(bridge) = bridge {
        bridge.close().await;
    }
    conclude(&args, &compared)
}

fn conclude(args: &VerifyArgs, compared: &Compared) -> Result<u8, CliError> {
    let failures = || compared.source_errors.iter().chain(&compared.destination_failures);
    let different = compared.entries - compared.source_failures
        + compared.adjusted.len() as u64
        + compared.conflicts;
    let extra = compared.extras.len() as u64 - compared.conflicts;
    let code = match (failures().next().is_some(), different + extra) {
        (true, _) => code_of_failures(failures().map(|(_, failure)| failure)).max(exit::FAILED),
        (false, 0) => exit::DONE,
        (false, _) => exit::VERIFICATION,
    };
    if args.json {
        let json = VerifyJson {
            files: compared.same_files,
            bytes: compared.same_bytes,
            different,
            extra,
            verified: code == exit::DONE,
            exit: code,
            errors: failures().map(|(path, why)| ErrorJson::of_entry(path, why)).collect(),
        };
        json::print(&Document::of(&json))?;
    }
    for (path, failure) in failures() {
        output::error(format_args!("{}: {failure}", Printable(path)));
    }
    if !args.quiet {
        let mut line = format!(
            "{} ({}) equal",
            count(compared.same_files, "file"),
            show_bytes(compared.same_bytes)
        );
        for (number, word) in
            [(different, "differ or are missing"), (extra, "only at the destination")]
        {
            if number > 0 {
                line += &format!("; {number} {word}");
            }
        }
        output::note(line);
    }
    Ok(code)
}

/// Line about a difference; `None` if nothing differs.
fn line(difference: &Difference) -> Option<String> {
    let (word, path) = match difference {
        Difference::Copy { path, old: None, .. } => ("missing", path),
        Difference::Copy { path, .. } | Difference::Adjust { path, .. } => ("differs", path),
        Difference::Extra { path, .. } => ("extra", path),
        _ => return None,
    };
    Some(format!("{word:<8} {}", Printable(path)))
}
