//! Wait for a program that uses the terminal.

use std::io;
use std::process::Child;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{Instant, sleep_until};

use crate::error::LabError;
use crate::isolate::end_of;

/// Time between a signal to end and SIGKILL.
pub(super) const TIMEOUT: Duration = Duration::from_secs(2);

/// Starts a program, waits for its end and returns its exit code. Meanwhile SIGTERM and SIGHUP of
/// this process are forwarded to the program, which is killed two seconds later. SIGINT and SIGQUIT
/// reach the program from the terminal directly.
pub(super) fn attend(start: impl FnOnce() -> Result<Child, LabError>) -> Result<u8, LabError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(LabError::system("prepare to wait for a program"))?;
    runtime.block_on(async {
        let catch = |kind| signal(kind).map_err(LabError::system("catch signals"));
        // Registered before the start, so that no signal is missed.
        let mut ended = catch(SignalKind::child())?;
        let mut terminate = catch(SignalKind::terminate())?;
        let mut hangup = catch(SignalKind::hangup())?;
        // A handled signal is not inherited as ignored: the program still receives these signals.
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
            send_signal(&child, signal).map_err(LabError::system("end a program"))?;
            let later = Instant::now() + TIMEOUT;
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

/// Sends a signal to a child that has not been reaped, so its process id is still valid.
fn send_signal(child: &Child, signal: Signal) -> io::Result<()> {
    Ok(kill_process(Pid::from_child(child), signal)?)
}
