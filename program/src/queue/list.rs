//! `sabul queue list` and `show`.

use std::ffi::OsStr;
use std::sync::Arc;

use sabul::internal::ssh::{self, UploadObserver};
use sabul::internal::{Location, Printable, Server};
use sabul_queue::folder::RunnerLock;
use sabul_queue::{JobJson, QueueJson, Shown, State, show_time};
use sabul_units::{show_bytes, show_rate};
use tokio::io::AsyncReadExt as _;

use super::add;
use super::open::Queue;
use crate::args::{CarrierArg, QueueListArgs, QueueShowArgs};
use crate::error::CliError;
use crate::upload::UploadProgress;
use crate::{exit, json, output};

/// Ours: number of ended jobs in a list.
const ENDED_SHOWN: usize = 20;
/// Ours: characters of a message in a list; `queue show` prints the whole message.
const MESSAGE_SHOWN: usize = 100;
/// Ours: maximum size of the list of another machine in bytes; about 100,000 jobs.
const REMOTE_MAX: u64 = 64 << 20;

/// Runs `sabul queue list` and returns the exit code.
pub(super) fn run(args: &QueueListArgs, store: Option<&OsStr>) -> Result<u8, CliError> {
    let list = match &args.host {
        Some(host) => crate::block_on_value(remote(args, host))?,
        None => {
            let mut queue = Queue::open(store)?;
            let runner = runner(&queue)?;
            let ended_max = if args.all { usize::MAX } else { ENDED_SHOWN };
            let jobs = queue.store.jobs(ended_max)?;
            // A runner may have started meanwhile.
            let runner = match runner {
                Some(_) => runner,
                None => self::runner(&queue)?,
            };
            QueueJson::new(runner, &jobs)
        }
    };
    if args.json {
        json::print(&list)?;
        return Ok(exit::DONE);
    }
    for job in &list.jobs {
        output::print_line(line(job, list.runner_pid))?;
    }
    let needs_runner =
        |job: &JobJson| [State::Waiting, State::Running].map(State::word).contains(&&*job.state);
    let needs_runner = list.jobs.iter().any(needs_runner);
    if store.is_some() && args.host.is_none() && needs_runner {
        // The workers of a site run on other machines.
        return Ok(exit::DONE);
    }
    match (list.runner_pid, needs_runner) {
        (Some(pid), _) => output::note(format_args!("runner: process {pid}")),
        (None, true) => output::note("no runner runs; start one: sabul queue run"),
        (None, false) if list.jobs.is_empty() => output::note("the queue is empty"),
        (None, false) => {}
    }
    Ok(exit::DONE)
}

/// Runs `sabul queue show` and returns the exit code.
pub(super) fn show(args: &QueueShowArgs, store: Option<&OsStr>) -> Result<u8, CliError> {
    let mut queue = Queue::open(store)?;
    let job = Shown::of(&add::job(&mut queue, args.id)?);
    if args.json {
        json::print(&job)?;
        return Ok(exit::DONE);
    }
    let job = job.job;
    let time = |seconds: Option<f64>| seconds.map(|seconds| show_time(milliseconds(seconds)));
    let rows = [
        ("job", Some(job.id.to_string())),
        ("name", job.name.clone()),
        ("state", Some(state(&job, runner(&queue)?))),
        ("command", Some(command(&job))),
        ("directory", Some(job.directory.clone())),
        ("hook", job.hook.clone()),
        ("priority", Some(job.priority.to_string())),
        ("progress", Some(progress(&job))),
        ("attempts", Some(job.attempts.to_string())),
        ("failures", Some(job.failures.to_string())),
        ("added", time(Some(job.added_s))),
        ("started", time(job.started_s)),
        ("ended", time(job.ended_s)),
        ("next attempt", time(job.next_s)),
        ("exit code", job.exit.map(|code| code.to_string())),
        ("message", job.message.clone()),
        ("worker", job.worker.clone()),
    ];
    for (name, value) in rows {
        if let Some(value) = value {
            let value = Printable(value.as_bytes());
            output::print_line(format_args!("{name:<13} {value}"))?;
        }
    }
    Ok(exit::DONE)
}

/// Returns the process id of the runner of this user; `None` if no runner runs.
fn runner(queue: &Queue) -> Result<Option<u32>, CliError> {
    if queue.is_site() {
        return Ok(None);
    }
    RunnerLock::holder(&queue.folder)
        .map_err(|error| CliError::failed(format!("cannot read the queue: {error}")))
}

/// Reads the list of another machine.
async fn remote(args: &QueueListArgs, host: &str) -> Result<QueueJson, CliError> {
    let account = match Location::parse(host.as_ref())? {
        Location::Remote(remote) if remote.path.is_empty() => match remote.server {
            Server::Ssh(account) => Some(account),
            _ => None,
        },
        _ => None,
    };
    let account = account.ok_or_else(|| {
        CliError::usage(format!("'{host}' is not [USER@]HOST: of a machine that ssh reaches"))
    })?;
    let observer: Arc<dyn UploadObserver> = Arc::new(UploadProgress::new(args.json, true));
    let order = args.ssh.order(&account, CarrierArg::Auto, &observer);
    let mut words = vec!["queue".to_owned(), "list".to_owned(), "--json".to_owned()];
    if args.all {
        words.push("--all".to_owned());
    }
    let mut command = ssh::run(&order, &words).await?;
    drop(command.input);
    let mut text = Vec::new();
    let lost = |error| CliError::lost(format!("cannot read the queue of {account}: {error}"));
    (&mut command.output).take(REMOTE_MAX).read_to_end(&mut text).await.map_err(lost)?;
    serde_json::from_slice(&text).map_err(|error| {
        CliError::failed(format!(
            "{account} returned no list of a queue ({error}); use the same version of sabul there"
        ))
    })
}

/// Formats a job as one line.
fn line(job: &JobJson, runner: Option<u32>) -> String {
    let name = job.name.as_deref().map(|name| format!("{name}: ")).unwrap_or_default();
    let text = format!("{name}{}", command(job));
    let waits = if is_interrupted(job, runner) { "waits for a runner; " } else { "" };
    let (text, detail) = (Printable(text.as_bytes()), detail(job));
    let state = state(job, runner);
    format!("{:>6}  {state:<15}  {text}; {waits}{}", job.id, Printable(detail.as_bytes()))
}

/// Whether the runner of the job has ended, and its attempt with it. The next runner continues the job. A worker of a
/// site has ended when its lease has.
fn is_interrupted(job: &JobJson, runner: Option<u32>) -> bool {
    let has_runner = match job.worker {
        Some(_) => job.lease_left_s.is_some_and(|left| left >= 0.0),
        None => runner.is_some(),
    };
    !has_runner && job.state == State::Running.word()
}

fn state(job: &JobJson, runner: Option<u32>) -> String {
    match State::of_word(&job.state) {
        Some(_) if is_interrupted(job, runner) => "interrupted".to_owned(),
        Some(state) => state.to_string(),
        // A word of another machine.
        None => Printable(job.state.as_bytes()).to_string(),
    }
}

/// Describes progress, next attempt or cause.
fn detail(job: &JobJson) -> String {
    let message = job.message.as_deref().unwrap_or("no message");
    let message = match message.char_indices().nth(MESSAGE_SHOWN) {
        Some((end, _)) => format!("{}…", &message[..end]),
        None => message.to_owned(),
    };
    match (State::of_word(&job.state), job.next_s) {
        (Some(State::Waiting), Some(next)) if job.attempts > 0 => {
            let (attempt, at) = (job.attempts.saturating_add(1), show_time(milliseconds(next)));
            format!("attempt {attempt} at {at}, after: {message}")
        }
        (Some(State::Waiting), Some(next)) if next > job.added_s => {
            format!("starts at {}", show_time(milliseconds(next)))
        }
        (Some(State::Waiting), _) => format!("priority {}", job.priority),
        (Some(State::Blocked | State::Failed), _) => message,
        (Some(State::Running), _) => match &job.worker {
            Some(worker) => format!("{} on {worker}", progress(job)),
            None => progress(job),
        },
        _ => progress(job),
    }
}

fn progress(job: &JobJson) -> String {
    let of = job.bytes_total.map(|total| format!(" of {}", show_bytes(total))).unwrap_or_default();
    let rate = match job.goodput_bps {
        rate if rate > 0.0 => format!(", {}", show_rate(rate)),
        _ => String::new(),
    };
    format!("{}{of}{rate}", show_bytes(job.bytes))
}

/// Formats the command as for a shell.
fn command(job: &JobJson) -> String {
    let words = job.command.iter().map(|word| {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./:,=@%+~".contains(&byte);
        match !word.is_empty() && word.bytes().all(is_plain) {
            true => word.clone(),
            false => format!("'{}'", word.replace('\'', "'\\''")),
        }
    });
    words.collect::<Vec<_>>().join(" ")
}

#[expect(clippy::cast_possible_truncation, reason = "a cast from a float saturates")]
fn milliseconds(seconds: f64) -> i64 {
    (seconds * 1000.0) as i64
}
