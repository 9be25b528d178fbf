//! A world in virtual time: connectors and listeners as they ship, on simulated hosts and paths.
//!
//! Sessions, control messages, transfers, channels and files are the program's own. What stands in
//! for the machine: links of `sabul-path` for UDP, [`Wire`]s for TCP and TLS, tasks for threads, and
//! a runtime whose clock jumps to the next event. One seed decides everything, so a failure repeats.
//!
//! Not here: TLS itself, the hellos that open a UDP path, threads racing each other.

#![expect(clippy::cast_possible_truncation, reason = "what tests draw is small")]

mod host;
pub(crate) mod hostile;
mod net;
mod run;
mod second;
mod swarm;
mod wire;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::task::{AbortHandle, JoinHandle};

pub(crate) use net::{End, Socket};
pub(crate) use run::{run_channel, run_reader, run_writer};
pub(crate) use wire::Wire;

/// The tasks of a host's process. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tasks(Arc<Process>);

#[derive(Debug, Default)]
struct Process {
    handles: Mutex<Vec<AbortHandle>>,
    is_dead: AtomicBool,
    /// A task has panicked.
    is_at_fault: AtomicBool,
}

/// Notices a task that ends by a panic.
struct Witness(Tasks);

impl Drop for Witness {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.0.is_at_fault.store(true, Ordering::Release);
        }
    }
}

impl Tasks {
    /// Runs a task, unless the process is dead.
    pub(crate) fn spawn<T: Send + 'static>(
        &self,
        task: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<T> {
        let witness = Witness(self.clone());
        let handle = tokio::spawn(async move {
            let _witness = witness;
            task.await
        });
        if self.0.is_dead.load(Ordering::Acquire) {
            handle.abort();
        }
        let mut handles = self.0.handles.lock().unwrap_or_else(PoisonError::into_inner);
        handles.retain(|handle| !handle.is_finished());
        handles.push(handle.abort_handle());
        handle
    }

    /// Ends the process without a word, as `kill -9` and a power cut do. Whatever its values do
    /// when they are dropped must not reach anybody: their host is cut off before.
    pub(crate) fn kill(&self) {
        self.0.is_dead.store(true, Ordering::Release);
        let handles = self.0.handles.lock().unwrap_or_else(PoisonError::into_inner);
        for handle in handles.iter() {
            handle.abort();
        }
    }

    /// Whether it was killed.
    pub(crate) fn is_dead(&self) -> bool {
        self.0.is_dead.load(Ordering::Acquire)
    }

    /// Whether a task has panicked.
    pub(crate) fn is_at_fault(&self) -> bool {
        self.0.is_at_fault.load(Ordering::Acquire)
    }
}
