//! `sabul queue add`: checks a command and puts it into the queue.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};

use clap::Parser as _;
use sabul_queue::{Command, Job, JobId, NewJob, Shown, now_ms};

use super::detach;
use super::open::Queue;
use crate::args::{self, Cli, CopyArgs, JobArgs, QueueAddArgs};
use crate::error::CliError;
use crate::{exit, json, output};

/// Variables that a job keeps. Names of files and commands, no secrets.
const KEPT_VARIABLES: &[&str] = &["SABUL_SSH", "SABUL_TICKET_FILE", "SABUL_LOG", "SSH_AUTH_SOCK"];

/// Runs `sabul queue add` and returns the exit code.
pub(super) fn run(args: QueueAddArgs, store: Option<&OsStr>) -> Result<u8, CliError> {
    check_words(&args.words)?;
    let mut queue = Queue::open(store)?;
    let id = queue.store.add(&new_job(&args.job, args.words)?, now_ms())?;
    if args.json {
        json::print(&Shown::of(&job(&mut queue, id)?))?;
    } else {
        output::print_line(id)?;
    }
    detach::remark_without_runner(&queue);
    Ok(exit::DONE)
}

/// Returns the job with this number.
pub(super) fn job(queue: &mut Queue, id: JobId) -> Result<Job, CliError> {
    queue
        .store
        .job(id)?
        .ok_or_else(|| CliError::failed(sabul_queue::Refusal::Missing(id).to_string()))
}

/// Returns the job of this command in the present directory and environment.
pub(super) fn new_job(args: &JobArgs, words: Vec<OsString>) -> Result<NewJob, CliError> {
    let directory = std::env::current_dir().map_err(|error| {
        CliError::failed(format!(
            "cannot read the working directory: {error}; change to another one"
        ))
    })?;
    let environment = KEPT_VARIABLES.iter().filter_map(|name| {
        let value = std::env::var_os(name)?;
        Some([name.as_bytes(), b"=", value.as_bytes()].concat())
    });
    Ok(NewJob {
        priority: args.priority,
        name: args.name.clone(),
        command: Command {
            words: words.into_iter().map(OsString::into_vec).collect(),
            directory: directory.into_os_string().into_vec(),
            environment: environment.collect(),
            hook: args.hook.clone().map(OsString::into_vec),
        },
        retry_for: args.retry_for,
        not_before_ms: args.not_before.unwrap_or(0),
    })
}

/// Rejects a command that is not `cp` or `sync`, or is invalid.
pub(super) fn check_words(words: &[OsString]) -> Result<(), CliError> {
    let name = words.first().map(|word| word.to_string_lossy()).unwrap_or_default();
    if name != "cp" && name != "sync" {
        return Err(CliError::usage(format!(
            "the queue runs cp and sync, not '{name}'; write: sabul queue add -- cp SRC... DST"
        )));
    }
    let line = [OsString::from("sabul")].into_iter().chain(words.iter().cloned());
    let cli = Cli::try_parse_from(line).map_err(|error| {
        let text = args::without_far_tips(error).to_string();
        CliError::usage(text.trim_start_matches("error: ").to_owned())
    })?;
    match cli.command {
        args::Command::Cp(cp) => {
            if let Some(reason) = cp.foreign.refusal() {
                return Err(CliError::usage(reason));
            }
            refuse(&[(cp.detach, "--detach")])?;
            check(&cp.copy)?;
            refuse(&[(cp.copy.json, "--json"), (cp.copy.json_lines, "--json-lines")])
        }
        args::Command::Sync(sync) => {
            let reads_names = sync.files_from.as_deref().map(|path| path.as_os_str());
            refuse(&[
                (sync.detach, "--detach"),
                (reads_names == Some(OsStr::new("-")), "--files-from -"),
                (sync.itemize_changes, "-i"),
            ])?;
            check(&sync.copy)?;
            refuse(&[(sync.copy.json, "--json"), (sync.copy.json_lines, "--json-lines")])
        }
        _ => Ok(()),
    }
}

/// Rejects a copy that needs a terminal or a pipe.
pub(super) fn check(copy: &CopyArgs) -> Result<(), CliError> {
    let has_pipe = copy.places.iter().any(|place| place == "-");
    refuse(&[
        (has_pipe, "the place '-'"),
        (copy.stdio, "--stdio"),
        (copy.dry_run, "--dry-run"),
        (copy.queued.queue_limit.is_some(), "--queue-limit"),
    ])
}

fn refuse(flags: &[(bool, &str)]) -> Result<(), CliError> {
    match flags.iter().find(|(is_given, _)| *is_given) {
        Some((_, what)) => Err(CliError::usage(format!(
            "{what} is not possible in the queue, where copies run without a terminal; leave it out"
        ))),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_line(line: &str) -> Result<(), String> {
        let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        check_words(&words).map_err(|error| error.to_string())
    }

    #[test]
    fn only_copies_that_need_no_terminal_are_accepted() {
        check_line("cp -r --bwlimit 5M a h:").unwrap();
        check_line("sync -a --delete a/ h:b").unwrap();
        for (line, part) in [
            ("ls h:", "not 'ls'"),
            ("cp --frobnicate a h:", "--frobnicate"),
            ("cp a", "cp"),
            ("cp - h:a", "'-'"),
            ("cp h:a -", "'-'"),
            ("cp -n a h:", "--dry-run"),
            ("cp --json a h:", "--json"),
            ("cp --detach a h:", "--detach"),
            ("cp -z a h:", "compress"),
            ("sync -i a h:", "-i"),
            ("sync --files-from - a h:", "--files-from -"),
        ] {
            match check_line(line) {
                // A single place is found by the copy itself.
                Ok(()) => assert_eq!(line, "cp a"),
                Err(text) => assert!(text.contains(part), "{line}: {text}"),
            }
        }
    }
}
