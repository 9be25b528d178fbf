//! Signal handling for asynchronous commands. The first SIGINT or SIGTERM stops cleanly, the second
//! ends the process at once. SIGUSR1 requests a progress line.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;

use crate::error::CliError;
use crate::exit::INTERRUPTED;

/// Ours: time between the arrival of one signal at two processes of a group, on a busy machine.
const SOON: Duration = Duration::from_millis(300);

/// Receiver of interrupts and progress requests. Clones see the same signals.
#[derive(Clone, Debug)]
pub(crate) struct Interrupt {
    seen: watch::Receiver<bool>,
    progress_requests: watch::Receiver<()>,
}

/// Signal flag for the time before a runtime exists. [`Interrupt::listen_after`] takes the first
/// signal over.
#[derive(Clone, Debug, Default)]
pub(crate) struct Early(Arc<AtomicBool>);

impl Early {
    /// Installs the handlers for SIGINT and SIGTERM.
    pub(crate) fn catch() -> Result<Self, CliError> {
        let early = Self::default();
        for kind in [SIGINT, SIGTERM] {
            flag::register(kind, Arc::clone(&early.0)).map_err(|error| no_signals(&error))?;
        }
        Ok(early)
    }
}

fn no_signals(error: &io::Error) -> CliError {
    CliError::failed(format!("cannot install signal handlers: {error}"))
}

impl Interrupt {
    /// Installs the handlers for SIGINT, SIGTERM and SIGUSR1.
    pub(crate) fn listen() -> Result<Self, CliError> {
        Self::listen_after(&Early::default())
    }

    /// Like [`Interrupt::listen`]; a signal that `early` has recorded counts as the first one.
    pub(crate) fn listen_after(early: &Early) -> Result<Self, CliError> {
        let catch = |kind| signal(kind).map_err(|error| no_signals(&error));
        let (interrupt, terminate) =
            (catch(SignalKind::interrupt())?, catch(SignalKind::terminate())?);
        let mut status = catch(SignalKind::user_defined1())?;
        let (sender, seen) = watch::channel(early.0.load(Ordering::SeqCst));
        tokio::spawn(count(interrupt, terminate, sender));
        let (sender, progress_requests) = watch::channel(());
        tokio::spawn(async move {
            while status.recv().await.is_some() {
                sender.send_replace(());
            }
        });
        Ok(Self { seen, progress_requests })
    }

    /// Returns a receiver that changes on each SIGUSR1.
    pub(crate) fn progress_requests(&self) -> watch::Receiver<()> {
        self.progress_requests.clone()
    }

    /// Waits for the first SIGINT or SIGTERM. Returns at once if the signal has already arrived.
    pub(crate) async fn wait(&self) {
        // The sender lives in a task that never ends by itself.
        let _ = self.seen.clone().wait_for(|&seen| seen).await;
    }

    /// Returns whether SIGINT or SIGTERM has arrived, or arrives within a moment: a signal of the terminal ends ssh, and
    /// the loss of the connection may be seen first.
    pub(crate) async fn follows_soon(&self) -> bool {
        let _ = tokio::time::timeout(SOON, self.wait()).await;
        self.is_seen()
    }

    /// Returns whether SIGINT or SIGTERM has arrived.
    pub(crate) fn is_seen(&self) -> bool {
        *self.seen.borrow()
    }
}

async fn count(mut interrupt: Signal, mut terminate: Signal, seen: watch::Sender<bool>) {
    loop {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        if seen.send_replace(true) {
            std::process::exit(INTERRUPTED.into());
        }
    }
}
