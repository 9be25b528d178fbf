//! `sabul queue`: jobs that a runner carries out, and `--detach` of `cp` and `sync`.

mod add;
mod attempt;
mod children;
mod detach;
mod list;
mod open;
mod runner;
mod watch;

use std::os::unix::ffi::OsStrExt as _;

use sabul_queue::{Action, ActionError, JobId, State, now_ms};

use crate::args::QueueCommand;
use crate::error::CliError;
use crate::{exit, output};
pub(crate) use detach::run as detach;
use open::Queue;

/// Runs a command of the queue and returns its exit code.
pub(crate) fn run(command: QueueCommand) -> Result<u8, CliError> {
    match command {
        QueueCommand::Add(args) => add::run(args),
        QueueCommand::List(args) => list::run(&args),
        QueueCommand::Show(args) => list::show(&args),
        QueueCommand::Pause(args) => act(&args.ids, Action::Pause),
        QueueCommand::Resume(args) => act(&args.ids, Action::Resume),
        QueueCommand::Cancel(args) => act(&args.ids, Action::Cancel),
        QueueCommand::Retry(args) => act(&args.ids, Action::Retry),
        QueueCommand::Run(args) => runner::run(args),
        QueueCommand::Watch(args) => watch::run(&args),
        QueueCommand::Attempt(args) => Err(children::become_attempt(&args)),
        QueueCommand::Hook(args) => children::run_hook(args.id),
    }
}

/// Carries out an action on each of the jobs. An impossible action does not stop the others.
fn act(ids: &[JobId], action: Action) -> Result<u8, CliError> {
    let mut queue = Queue::open()?;
    let mut code = exit::DONE;
    // The agent that had the keys can have ended with its session.
    let agent = std::env::var_os("SSH_AUTH_SOCK").filter(|_| action == Action::Retry);
    for id in ids {
        if let Some(agent) = &agent {
            queue.store.set_variable(*id, "SSH_AUTH_SOCK", agent.as_bytes())?;
        }
        match queue.store.act(*id, action, now_ms()) {
            Ok(State::Running) if action != Action::Resume => {
                output::note(format_args!("job {id} runs; the runner ends the attempt"));
            }
            Ok(state) => output::note(format_args!("job {id}: {state}")),
            Err(ActionError::Store(error)) => return Err(error.into()),
            Err(error) => {
                output::error(error);
                code = exit::FAILED;
            }
        }
    }
    if action == Action::Retry || action == Action::Resume {
        detach::remark_without_runner(&queue.folder);
    }
    Ok(code)
}
