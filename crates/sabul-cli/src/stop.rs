//! Whether a person wants runs to end, for work without a runtime; and that work in a lab of its own.

use std::io::{self, IsTerminal as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use sabul_lab::isolate;
use sabul_study::Observer;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

use crate::error::CliError;
use crate::exit::INTERRUPTED;
use crate::output;

/// Does `work` in namespaces of its own: here if this is the inner process, otherwise by starting it.
pub(crate) fn isolated(work: impl FnOnce() -> Result<u8, CliError>) -> Result<u8, CliError> {
    if isolate::is_inside() { work() } else { Ok(isolate::run_inside()?) }
}

/// Whether a person wants the runs to end. The second signal ends the process at once.
#[derive(Clone, Debug)]
pub(crate) struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Takes over Ctrl-C and SIGTERM, for good.
    pub(crate) fn listen() -> Result<Self, CliError> {
        let seen = Arc::new(AtomicBool::new(false));
        let catch = |signal| -> io::Result<()> {
            // In this order: the first signal sets the flag that the second one finds set.
            flag::register_conditional_shutdown(signal, INTERRUPTED.into(), Arc::clone(&seen))?;
            flag::register(signal, Arc::clone(&seen)).map(drop)
        };
        catch(SIGINT)
            .and_then(|()| catch(SIGTERM))
            .map_err(|error| CliError::failed(format!("cannot wait for signals: {error}")))?;
        Ok(Self(seen))
    }

    /// Somebody who hears of progress unless it is to be quiet, and ends runs when a person asks.
    pub(crate) fn observer(self, is_quiet: bool) -> Observer {
        let observer = Observer::silent().with_interrupt(move || self.is_asked());
        if is_quiet {
            return observer;
        }
        observer.with_notes(|line| output::note(line)).with_samples(io::stderr().is_terminal())
    }

    pub(crate) fn is_asked(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
