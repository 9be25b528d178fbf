//! Ctrl-C and SIGTERM: the first stops cleanly, the second at once. SIGUSR1 asks how far it is.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;

use crate::error::CliError;
use crate::exit::INTERRUPTED;

/// Tells when the user wants the program to end. Clones see the same signal.
#[derive(Clone, Debug)]
pub(crate) struct Interrupt {
    seen: watch::Receiver<bool>,
    questions: watch::Receiver<()>,
}

/// The same signals before there is a runtime: the first is kept for [`Interrupt::listen_after`].
#[derive(Clone, Debug, Default)]
pub(crate) struct Early(Arc<AtomicBool>);

impl Early {
    /// Takes over the handling of these signals.
    pub(crate) fn catch() -> Result<Self, CliError> {
        let early = Self::default();
        for kind in [SIGINT, SIGTERM] {
            flag::register(kind, Arc::clone(&early.0)).map_err(|error| no_signals(&error))?;
        }
        Ok(early)
    }
}

fn no_signals(error: &io::Error) -> CliError {
    CliError::failed(format!("cannot wait for signals: {error}"))
}

impl Interrupt {
    /// Takes over the handling of these signals.
    pub(crate) fn listen() -> Result<Self, CliError> {
        Self::listen_after(&Early::default())
    }

    /// The same; a signal that has come before counts.
    pub(crate) fn listen_after(early: &Early) -> Result<Self, CliError> {
        let catch = |kind| signal(kind).map_err(|error| no_signals(&error));
        let (interrupt, terminate) =
            (catch(SignalKind::interrupt())?, catch(SignalKind::terminate())?);
        let mut status = catch(SignalKind::user_defined1())?;
        let (sender, seen) = watch::channel(early.0.load(Ordering::SeqCst));
        tokio::spawn(count(interrupt, terminate, sender));
        let (asker, questions) = watch::channel(());
        tokio::spawn(async move {
            while status.recv().await.is_some() {
                asker.send_replace(());
            }
        });
        Ok(Self { seen, questions })
    }

    /// Changes whenever somebody asks how far it is.
    pub(crate) fn questions(&self) -> watch::Receiver<()> {
        self.questions.clone()
    }

    /// Returns once a first signal has come; at once if it has.
    pub(crate) async fn wait(&self) {
        // The sending half lives in a task that never ends by itself.
        let _ = self.seen.clone().wait_for(|&seen| seen).await;
    }

    /// Whether a signal has come.
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
