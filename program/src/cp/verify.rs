//! `sabul verify`: compares two directories by the hashes of their files, without copying; and verifies receipts.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sabul::files::receipts::{has_only_receipt, is_receipt};
use sabul::internal::compare::{CompareOptions, Difference};
use sabul::internal::ssh::UploadObserver;
use sabul::internal::{Chmod, Location};
use sabul::{Failure, FailureCode};
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
    if let Some((folder, target)) = receipt_of(&args)? {
        return verify_receipt(&args, &folder, target.as_deref()).await;
    }
    let plan = Plan::of_two(&args.places, true)?;
    let interrupt = Interrupt::listen()?;
    let channel = &args.reach.channel;
    let events = channel.event_file()?;
    let observer: Arc<dyn UploadObserver> = Arc::new(UploadProgress::new(args.quiet, true));
    let dialled =
        dial(channel, &args.reach.ssh, plan.server(), &interrupt, events.as_ref(), &observer);
    let (session, bridge) = dialled.await?;
    let prints = !args.json;
    let print = move |difference: &Difference| match line(difference) {
        Some(line) if prints => output::print_line(line),
        _ => Ok(()),
    };
    let order = Order {
        options: settings(args.archive),
        is_sync: true,
        keeps_extras: true,
        needs_destination: true,
        follows_links: !args.archive,
        observer: Some(Box::new(print)),
        ..Order::default()
    };
    let listed = ListedArgs {
        recursive: true,
        archive: args.archive,
        copy_links: false,
        chmod: Chmod::default(),
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

/// Settings of the comparison.
fn settings(is_archive: bool) -> CompareOptions {
    CompareOptions {
        content: true,
        // Times are not compared.
        size_only: true,
        extras: true,
        keeps_unknown: true,
        modes: is_archive,
        attributes: is_archive,
        ..CompareOptions::default()
    }
}

/// Returns the receipt to verify, and the directory to compare; `None` if two trees are to be compared.
fn receipt_of(args: &VerifyArgs) -> Result<Option<(PathBuf, Option<PathBuf>)>, CliError> {
    let local = |place: &OsString| match Location::parse(place)? {
        Location::Local(path) => Ok::<_, CliError>(Some(PathBuf::from(path))),
        Location::Remote(_) => Ok(None),
    };
    let (first, second) = match &args.places[..] {
        [first] => (first, None),
        [first, second] => (first, Some(second)),
        _ => return Ok(None),
    };
    let folder = local(first)?.filter(|folder| is_receipt(folder));
    match (folder, second) {
        (Some(folder), None) => Ok(Some((folder, None))),
        // The author of a tree can put a receipt of other files into the tree.
        (Some(folder), Some(_)) if !has_only_receipt(&folder) => {
            output::note(format_args!(
                "'{}' has other files beside those of a receipt: the two trees are compared; to verify a receipt, give \
                 a directory that has only its files",
                folder.display()
            ));
            Ok(None)
        }
        (Some(folder), Some(second)) => {
            let target = local(second)?.ok_or_else(|| {
                CliError::usage(
                    "a receipt is compared with a directory on this machine; run 'sabul verify' on the other machine",
                )
            })?;
            Ok(Some((folder, Some(target))))
        }
        (None, None) => Err(CliError::usage(format!(
            "'{}' is not a directory with a receipt; give two places, or the directory of --receipt",
            Printable(first.as_bytes())
        ))),
        (None, Some(_)) => Ok(None),
    }
}

/// Verifies a receipt and the files of a directory.
async fn verify_receipt(
    args: &VerifyArgs,
    folder: &Path,
    target: Option<&Path>,
) -> Result<u8, CliError> {
    let (folder, target, signers) =
        (folder.to_owned(), target.map(Path::to_owned), args.allowed_signers.clone());
    let has_target = target.is_some();
    let work = tokio::task::spawn_blocking(move || {
        sabul::files::receipts::verify(&folder, target.as_deref(), signers.as_deref())
    });
    let interrupt = Interrupt::listen()?;
    let verified = tokio::select! {
        verified = work => verified.map_err(|_| CliError::failed("the verification failed"))?,
        () = interrupt.wait() => return Err(CliError::interrupted("interrupted")),
    };
    let code = match (verified.unreadable.is_empty(), verified.findings.is_empty()) {
        (_, false) => exit::VERIFICATION,
        (false, true) => exit::FAILED,
        (true, true) => exit::DONE,
    };
    if args.json {
        let json = VerifyJson {
            files: verified.equal,
            bytes: verified.bytes,
            different: verified.findings.len() as u64,
            extra: 0,
            verified: code == exit::DONE,
            exit: code,
            errors: verified
                .unreadable
                .iter()
                .map(|it| {
                    ErrorJson::of_entry(&it.path, &Failure::new(FailureCode::Unreadable, &*it.what))
                })
                .collect(),
        };
        json::print(&Document::of(&json))?;
    }
    for finding in verified.findings.iter().chain(&verified.unreadable) {
        output::error(format_args!("{}: {}", Printable(&finding.path), finding.what));
    }
    if let Some(statement) =
        verified.statement.as_ref().filter(|_| !args.quiet && code == exit::DONE)
    {
        let predicate = &statement.predicate;
        let (receiver, sender) = (&predicate.receiver, &predicate.sender);
        let at = receiver.durable_at.as_deref().unwrap_or_default();
        output::note(format_args!(
            "the receipt is right: {} ({}) durable at {}; receiver {}@{}, sender {}@{}",
            count(predicate.files, "file"),
            show_bytes(predicate.bytes),
            Printable(at.as_bytes()),
            Printable(receiver.user.as_bytes()),
            Printable(receiver.host.as_bytes()),
            Printable(sender.user.as_bytes()),
            Printable(sender.host.as_bytes()),
        ));
        if has_target {
            output::note(format_args!(
                "{} ({}) equal",
                count(verified.files, "file"),
                show_bytes(verified.bytes)
            ));
        }
    }
    Ok(code)
}

fn conclude(args: &VerifyArgs, compared: &Compared) -> Result<u8, CliError> {
    let failures = || compared.source_errors.iter().chain(&compared.destination_failures);
    let conflicts = compared.conflicts.len() as u64;
    let different = compared.entries + compared.adjusted.len() as u64 + conflicts;
    let extra = compared.extras.len() as u64 - conflicts;
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
    if different > 0 && compared.destination_entries == 0 {
        let place = args.places.last().map(|place| Printable(place.as_bytes()).to_string());
        output::error(format_args!(
            "'{}' has no entry of the source; check its name",
            place.unwrap_or_default()
        ));
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
