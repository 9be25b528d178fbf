//! Waits for a program that has the terminal.

use std::io;
use std::process::Child;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{Instant, sleep_until};

use crate::error::LabError;
use crate::isolate::end_of;

/// How long a program may take to end after it was asked to.
pub(super) const PATIENCE: Duration = Duration::from_secs(2);

/// Starts a program, waits for it and gives its exit code. Meanwhile SIGTERM and SIGHUP of this process
/// are handed on to it, two seconds before it is killed; SIGINT and SIGQUIT come from the terminal and
/// reach it without us.
pub(super) fn attend(start: impl FnOnce() -> Result<Child, LabError>) -> Result<u8, LabError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(LabError::system("prepare to wait for a program"))?;
    runtime.block_on(async {
        let catch = |kind| signal(kind).map_err(LabError::system("catch signals"));
        // First, so that nothing is missed.
        let mut ended = catch(SignalKind::child())?;
        let mut terminate = catch(SignalKind::terminate())?;
        let mut hangup = catch(SignalKind::hangup())?;
        // Registered is not ignored: the program still gets these signals, unlike ignored ones.
        let _interrupt = catch(SignalKind::interrupt())?;
        let _quit = catch(SignalKind::quit())?;

        let mut child = start()?;
        let mut deadline: Option<Instant> = None;
        loop {
            let status = child.try_wait().map_err(LabError::system("wait for a program"))?;
            if let Some(status) = status {
                return Ok(end_of(status));
            }
            let signal = tokio::select! {
                _ = ended.recv() => continue,
                _ = terminate.recv() => Signal::TERM,
                _ = hangup.recv() => Signal::HUP,
                () = until(deadline) => Signal::KILL,
            };
            tell(&child, signal).map_err(LabError::system("end a program"))?;
            let later = Instant::now() + PATIENCE;
            deadline = Some(if signal == Signal::KILL { later } else { deadline.unwrap_or(later) });
        }
    })
}

async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

/// Sends a signal to a child that has not been waited for, so that its number is still its own.
fn tell(child: &Child, signal: Signal) -> io::Result<()> {
    Ok(kill_process(Pid::from_child(child), signal)?)
}
