//! `sabul queue`: jobs that a runner carries out, and `--detach` of `cp` and `sync`.

mod add;
mod attempt;
mod children;
mod detach;
mod leases;
mod list;
mod open;
mod runner;
mod watch;

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;

use sabul_queue::{Action, JobId, State, now_ms};

use crate::args::{QueueArgs, QueueCommand};
use crate::error::CliError;
use crate::{exit, output};
pub(crate) use detach::run as detach;
use open::Queue;

/// Runs a command of the queue and returns its exit code.
pub(crate) fn run(args: QueueArgs) -> Result<u8, CliError> {
    let store = args.store.as_deref().filter(|store| !store.is_empty());
    match args.command {
        QueueCommand::Add(args) => add::run(args, store),
        QueueCommand::List(args) => list::run(&args, store),
        QueueCommand::Show(args) => list::show(&args, store),
        QueueCommand::Pause(args) => act(&args.ids, Action::Pause, store),
        QueueCommand::Resume(args) => act(&args.ids, Action::Resume, store),
        QueueCommand::Cancel(args) => act(&args.ids, Action::Cancel, store),
        QueueCommand::Retry(args) => act(&args.ids, Action::Retry, store),
        QueueCommand::Run(args) => runner::run(&args, store),
        QueueCommand::Watch(args) => watch::run(&args, store),
        QueueCommand::Attempt(args) => Err(children::become_attempt(&args)),
        QueueCommand::Hook(args) => children::run_hook(&args, store),
    }
}

/// Carries out an action on each of the jobs. An impossible action does not stop the others.
fn act(ids: &[JobId], action: Action, store: Option<&OsStr>) -> Result<u8, CliError> {
    let mut queue = Queue::open(store)?;
    let mut code = exit::DONE;
    // The agent that had the keys can have ended with its session.
    let agent = std::env::var_os("SSH_AUTH_SOCK").filter(|_| action == Action::Retry);
    for id in ids {
        if let Some(agent) = &agent {
            queue.store.set_variable(*id, "SSH_AUTH_SOCK", agent.as_bytes())?;
        }
        match queue.store.act(*id, action, now_ms())? {
            Ok(State::Running) if action != Action::Resume => {
                output::note(format_args!("job {id} runs; the runner ends the attempt"));
            }
            Ok(state) => output::note(format_args!("job {id}: {state}")),
            Err(refusal) => {
                output::error(refusal);
                code = exit::FAILED;
            }
        }
    }
    if action == Action::Retry || action == Action::Resume {
        detach::remark_without_runner(&queue);
    }
    Ok(code)
}
