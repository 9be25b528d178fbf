//! Simulated network of real connectors and listeners, in virtual time.
//!
//! Sessions, control messages, transfers, channels and files run the product's code. Links of
//! `sabul-net` replace UDP, [`Wire`]s replace TCP and TLS, tasks replace threads, and the
//! runtime's clock jumps to the next event. All randomness comes from one seed, so failures are
//! reproducible.
//!
//! Not here: TLS itself, the hello packets that open a UDP path, races between threads.

#![expect(clippy::cast_possible_truncation, reason = "what tests draw is small")]

mod host;
pub(crate) mod hostile;
mod net;
mod priority;
mod replicate;
mod run;
mod second;
mod swarm;
mod sync;
mod wire;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use tokio::task::{AbortHandle, JoinHandle};

use crate::lock::lock;

pub(crate) use net::{End, Socket};
pub(crate) use run::{run_channel, run_reader, run_writer};
pub(crate) use wire::Wire;

/// Tasks of a simulated process. Clones share the tasks.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tasks(Arc<Process>);

#[derive(Debug, Default)]
struct Process {
    handles: Mutex<Vec<AbortHandle>>,
    is_dead: AtomicBool,
    /// A task has panicked.
    is_at_fault: AtomicBool,
}

/// Guard that detects a panic of a task.
struct PanicGuard(Tasks);

impl Drop for PanicGuard {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.0.is_at_fault.store(true, Ordering::Release);
        }
    }
}

impl Tasks {
    /// Runs a task, unless the process was killed.
    pub(crate) fn spawn<T: Send + 'static>(
        &self,
        task: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<T> {
        let witness = PanicGuard(self.clone());
        let handle = tokio::spawn(async move {
            let _witness = witness;
            task.await
        });
        if self.0.is_dead.load(Ordering::Acquire) {
            handle.abort();
        }
        let mut handles = lock(&self.0.handles);
        handles.retain(|handle| !handle.is_finished());
        handles.push(handle.abort_handle());
        handle
    }

    /// Kills the process, as `kill -9` or a power failure. Drop handlers of its values must have no
    /// visible effect, so the host is disconnected first.
    pub(crate) fn kill(&self) {
        self.0.is_dead.store(true, Ordering::Release);
        let handles = lock(&self.0.handles);
        for handle in handles.iter() {
            handle.abort();
        }
    }

    /// Whether the process was killed.
    pub(crate) fn is_dead(&self) -> bool {
        self.0.is_dead.load(Ordering::Acquire)
    }

    /// Whether a task has panicked.
    pub(crate) fn is_at_fault(&self) -> bool {
        self.0.is_at_fault.load(Ordering::Acquire)
    }
}
