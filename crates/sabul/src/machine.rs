//! The machine that a session runs on: threads and a runtime, or a world in virtual time.

use std::panic::{self, AssertUnwindSafe};

use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use crate::channel::ChannelError;
use crate::channel::engine::Job;
use crate::error::Error;

/// Where tasks, ends of channels, readers and writers run.
#[derive(Clone, Debug)]
pub(crate) enum Machine {
    /// Tasks on this runtime, everything that blocks on a thread of its own.
    Threads(Handle),
    /// Everything is a task of a simulated host.
    #[cfg(test)]
    World(crate::world::Tasks),
}

impl Machine {
    /// The machine of the runtime that this is called on.
    pub(crate) fn current() -> Self {
        Self::Threads(Handle::current())
    }

    /// Runs a task.
    pub(crate) fn spawn<T: Send + 'static>(
        &self,
        task: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<T> {
        match self {
            Self::Threads(runtime) => runtime.spawn(task),
            #[cfg(test)]
            Self::World(tasks) => tasks.spawn(task),
        }
    }

    /// Runs what may block for a moment, such as calls of the file system; nothing where it cannot.
    pub(crate) async fn block<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        match self {
            Self::Threads(runtime) => runtime.spawn_blocking(work).await.ok(),
            #[cfg(test)]
            Self::World(_) => Some(work()),
        }
    }

    /// Runs an end of a channel.
    pub(crate) fn run_channel(&self, job: Job) -> Result<(), ChannelError> {
        match self {
            Self::Threads(_) => job.spawn_thread(),
            #[cfg(test)]
            Self::World(tasks) => {
                tasks.spawn(crate::world::run_channel(job));
                Ok(())
            }
        }
    }
}

/// Runs this on a thread of its own.
pub(crate) fn thread(name: &str, run: impl FnOnce() + Send + 'static) -> Result<(), Error> {
    std::thread::Builder::new()
        .name(name.to_owned())
        // A job tells of its end when it is dropped, so that a panic is an end, too.
        .spawn(move || drop(panic::catch_unwind(AssertUnwindSafe(run))))
        .map(drop)
        .map_err(|source| Error::Io { action: "start a thread", source })
}
