//! Execution environment of sessions: threads and a runtime, or a simulated world in virtual time.

use std::io;
use std::panic::{self, AssertUnwindSafe};
use std::sync::mpsc;
use std::thread::Builder;

use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use crate::channel::ChannelError;
use crate::channel::driver::Job;
use crate::error::Error;

/// Where tasks, channel endpoints, readers and writers run.
#[derive(Clone, Debug)]
pub(crate) enum Machine {
    /// Tasks on this runtime; blocking work on dedicated threads.
    Threads(Handle),
    /// Everything is a task of a simulated host.
    #[cfg(test)]
    World(crate::world::Tasks),
}

/// A thread that waits for work; dropping the value ends the thread.
#[derive(Debug)]
pub(crate) struct ReservedThread(mpsc::Sender<Box<dyn FnOnce() + Send>>);

impl ReservedThread {
    fn reserve(name: &str) -> io::Result<Self> {
        let (work, todo) = mpsc::channel::<Box<dyn FnOnce() + Send>>();
        let run = move || todo.recv().map_or((), |work| work());
        Builder::new().name(name.to_owned()).spawn(run)?;
        Ok(Self(work))
    }
}

/// Threads reserved for a transfer before it has work for them.
#[derive(Debug, Default)]
pub(crate) struct ReservedThreads {
    pub(crate) channel: Option<ReservedThread>,
    pub(crate) files: Option<ReservedThread>,
}

impl Machine {
    /// Starts the threads of a transfer in advance, so that a transfer can wait if the system refuses threads.
    pub(crate) fn reserve(&self, sends: bool) -> io::Result<ReservedThreads> {
        match self {
            Self::Threads(_) => {
                let (channel, files) = if sends {
                    ("sabul-send", "sabul-read")
                } else {
                    ("sabul-recv", "sabul-write")
                };
                Ok(ReservedThreads {
                    channel: Some(ReservedThread::reserve(channel)?),
                    files: Some(ReservedThread::reserve(files)?),
                })
            }
            #[cfg(test)]
            Self::World(_) => Ok(ReservedThreads::default()),
        }
    }

    /// The environment of the current tokio runtime.
    pub(crate) fn current() -> Self {
        Self::Threads(Handle::current())
    }

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

    /// Runs a call that may block briefly, such as file system calls; `None` if it could not run or panicked.
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

    /// Runs a channel endpoint, on the reserved thread or on a new one.
    pub(crate) fn run_channel(
        &self,
        reserved: Option<ReservedThread>,
        job: Job,
    ) -> Result<(), ChannelError> {
        match self {
            Self::Threads(_) => {
                let name = job.name;
                start(reserved, name, move || job.run()).map_err(ChannelError::Io)
            }
            #[cfg(test)]
            Self::World(tasks) => {
                tasks.spawn(crate::world::run_channel(job));
                Ok(())
            }
        }
    }
}

/// Runs a closure on a new thread.
pub(crate) fn thread(name: &str, run: impl FnOnce() + Send + 'static) -> Result<(), Error> {
    on_thread(None, name, run)
}

/// Runs a closure on the reserved thread or on a new one.
pub(crate) fn on_thread(
    reserved: Option<ReservedThread>,
    name: &str,
    run: impl FnOnce() + Send + 'static,
) -> Result<(), Error> {
    // Jobs report their end when they are dropped, so a panic is reported too.
    start(reserved, name, move || drop(panic::catch_unwind(AssertUnwindSafe(run))))
        .map_err(Error::io(format!("start the thread {name}")))
}

fn start(
    reserved: Option<ReservedThread>,
    name: &str,
    run: impl FnOnce() + Send + 'static,
) -> io::Result<()> {
    let reserved = reserved.map_or_else(|| ReservedThread::reserve(name), Ok)?;
    // The thread ends when its `ReservedThread` is dropped.
    reserved.0.send(Box::new(run)).map_err(|_| io::Error::other("the thread is gone"))
}
