//! Interrupt flag for commands without a runtime, and the entry into lab namespaces.

use std::io::{self, IsTerminal as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use sabul_emu::isolate;
use sabul_study::Observer;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

use crate::error::CliError;
use crate::exit::INTERRUPTED;
use crate::output;

/// Runs `work` in its own namespaces: directly in the inner process, otherwise by starting that
/// process.
pub(crate) fn isolated(work: impl FnOnce() -> Result<u8, CliError>) -> Result<u8, CliError> {
    if isolate::is_inside() { work() } else { Ok(isolate::run_inside()?) }
}

/// Interrupt flag for running simulations and lab runs. A second signal ends the process at once.
#[derive(Clone, Debug)]
pub(crate) struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Installs handlers for SIGINT and SIGTERM for the rest of the process.
    pub(crate) fn listen() -> Result<Self, CliError> {
        let seen = Arc::new(AtomicBool::new(false));
        let catch = |signal| -> io::Result<()> {
            // The order matters: the first signal sets the flag, the second signal finds the flag
            // set.
            flag::register_conditional_shutdown(signal, INTERRUPTED.into(), Arc::clone(&seen))?;
            flag::register(signal, Arc::clone(&seen)).map(drop)
        };
        catch(SIGINT).and_then(|()| catch(SIGTERM)).map_err(|error| {
            CliError::failed(format!("cannot install signal handlers: {error}"))
        })?;
        Ok(Self(seen))
    }

    /// Returns an observer that stops runs on an interrupt and, unless `is_quiet`, prints progress.
    pub(crate) fn observer(self, is_quiet: bool) -> Observer {
        let observer = Observer::silent().with_interrupt(move || self.is_requested());
        if is_quiet {
            return observer;
        }
        observer.with_notes(|line| output::note(line)).with_samples(io::stderr().is_terminal())
    }

    pub(crate) fn is_requested(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
