//! Processes that the runner starts: the command of a job, and its hook.
//!
//! Each takes the lock of the job first, so two attempts of one job, or an attempt and its hook, never run at the
//! same time, also after a kill of the runner. The kernel kills an attempt when its runner dies. A hook survives
//! its runner, and the hook itself records its end; otherwise a new runner would run the hook again.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::CommandExt as _;
use std::process::{self, Stdio};
use std::time::Duration;

use clap::Parser as _;
use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal, setsid};
use sabul::internal::{Location, Server};
use sabul_queue::site::hook_lease;
use sabul_queue::{HookState, JobId, Jobs, folder};

use super::leases::Renewal;
use super::open::Queue;
use crate::args::{Cli, Command, QueueAttemptArgs, QueueHookArgs};
use crate::error::CliError;
use crate::options::own_program;
use crate::stop::Stop;
use crate::{exit, output};

/// Ours: time for the process of an earlier attempt to end. The kernel has killed the process; the end takes longer
/// while a disk does not answer.
const LOCK_TIMEOUT: Duration = Duration::from_secs(60);
/// Ours: time for a hook of an earlier runner to end, before this process gives up. The runner then tries again.
const HOOK_LOCK_TIMEOUT: Duration = Duration::from_secs(600);

/// Becomes the command of a job. Returns only the error that prevented this.
pub(super) fn become_attempt(args: &QueueAttemptArgs) -> CliError {
    // Without a session of its own, a child could prompt on the terminal of the runner.
    let _ = setsid();
    if let Err(error) = set_parent_process_death_signal(Some(Signal::KILL)) {
        return CliError::failed(format!("cannot bind the attempt to its runner: {error}"));
    }
    if getppid().map(Pid::as_raw_pid) != i32::try_from(args.runner).ok() {
        return CliError::interrupted("the runner has ended");
    }
    match folder::keep_job_lock(&args.lock, LOCK_TIMEOUT) {
        Ok(true) => {}
        Ok(false) => return CliError::lost("an earlier attempt of this job has not ended yet"),
        Err(error) => {
            return CliError::failed(format!("cannot lock '{}': {error}", args.lock.display()));
        }
    }
    if let Err(error) = check_ticket(args) {
        return error;
    }
    match own_program() {
        Ok(program) => {
            let error = process::Command::new(&program).arg0("sabul").args(&args.words).exec();
            CliError::failed(format!("cannot run '{}': {error}", program.display()))
        }
        Err(error) => CliError::failed(format!("cannot find the program itself: {error}")),
    }
}

/// Rejects a job whose ticket file cannot be used: a person has to put the file there, as for a failed login.
fn check_ticket(args: &QueueAttemptArgs) -> Result<(), CliError> {
    let line = ["sabul".into()].into_iter().chain(args.words.iter().cloned());
    let copy = match Cli::try_parse_from(line).map(|cli| cli.command) {
        Ok(Command::Cp(cp)) => cp.copy,
        Ok(Command::Sync(sync)) => sync.copy,
        // The command itself reports its errors.
        _ => return Ok(()),
    };
    let is_dialled = copy.places.iter().any(|place| {
        matches!(Location::parse(place), Ok(Location::Remote(remote)) if matches!(remote.server, Server::Listener(_)))
    });
    match copy.channel.read_ticket() {
        Err(error) if is_dialled && copy.channel.has_ticket() => {
            Err(CliError::unauthenticated(error.to_string()))
        }
        _ => Ok(()),
    }
}

/// Runs the hook of a job, unless the hook has run.
pub(super) fn run_hook(args: &QueueHookArgs, store: Option<&OsStr>) -> Result<u8, CliError> {
    let id = args.id;
    let _ = setsid();
    // The hook of a site waits for the database; the first signal ends only this waiting.
    let stop = store.map(|_| Stop::listen()).transpose()?;
    let mut queue = Queue::open_for(store, stop.as_ref())?;
    queue.enter(&args.worker)?;
    queue.become_worker(&args.worker, hook_lease(args.worker.lease))?;
    let renewal = match &queue.store {
        Jobs::Site(site) => Some(Renewal::start(site)?),
        Jobs::User(_) => None,
    };
    let failed = |error| CliError::failed(format!("cannot lock the hook of job {id}: {error}"));
    let lock = folder::job_lock(&queue.folder, id).map_err(failed)?;
    if !folder::keep_job_lock(&lock, HOOK_LOCK_TIMEOUT).map_err(failed)? {
        return Err(CliError::failed(format!("another process of job {id} runs")));
    }
    let Some(job) = queue.store.start_hook(id)? else {
        // The hook of an earlier runner has ended meanwhile, and this process made the lock again.
        if queue.store.job(id)?.is_none_or(|job| job.hook == HookState::Ended) {
            folder::remove_job_lock(&queue.folder, id);
        }
        return Ok(exit::DONE);
    };
    let hook = job.command.hook.unwrap_or_default();
    let mut command = process::Command::new("sh");
    command.arg("-c").arg(OsStr::from_bytes(&hook)).stdin(Stdio::null());
    command.env("SABUL_JOB_ID", id.to_string()).env("SABUL_JOB_STATE", job.state.word());
    // Empty for a job that was cancelled before its first attempt ended.
    let code = job.code.map(|code| code.to_string()).unwrap_or_default();
    command.env("SABUL_JOB_EXIT_CODE", code);
    let directory = OsStr::from_bytes(&job.command.directory);
    command.current_dir(if std::path::Path::new(directory).is_dir() {
        directory
    } else {
        "/".as_ref()
    });
    match run_in_group(command, id, renewal.as_ref()) {
        Ok(status) if status.success() => {}
        Ok(status) => output::error(format_args!("job {id}: the hook ended with {status}")),
        Err(error) => output::error(format_args!("job {id}: cannot run the hook: {error}")),
    }
    if !queue.store.end_hook(id)? {
        output::error(format_args!(
            "job {id}: the lease of the hook was lost, so another worker runs the hook again"
        ));
    }
    folder::remove_job_lock(&queue.folder, id);
    Ok(exit::DONE)
}

/// Runs a hook. With a lease, the hook leads a group of processes that ends with the lease.
fn run_in_group(
    mut command: process::Command,
    id: JobId,
    renewal: Option<&Renewal>,
) -> io::Result<process::ExitStatus> {
    let Some(renewal) = renewal else { return command.status() };
    let mut hook = command.process_group(0).spawn()?;
    renewal.add_group(id, Pid::from_child(&hook));
    let status = hook.wait();
    renewal.remove(id);
    status
}
