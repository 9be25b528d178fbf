//! Tokio runtime of this process, and the two ways to run a future: blocking and as an awaitable.
//!
//! Threads do not survive a fork, so a child process gets a runtime of its own. Objects of the parent process cannot be
//! used there.

use std::future::Future;
use std::pin::Pin;
use std::process;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use pyo3::IntoPyObjectExt as _;
use pyo3::prelude::*;
use pyo3_async_runtimes::TaskLocals;
use pyo3_async_runtimes::generic::{self, ContextExt};
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::task::{JoinError, JoinHandle};

use crate::error::Fault;

/// Threads of the runtime. Ours: one may be busy with a handshake while the other sends messages.
const THREADS: usize = 2;
/// Ours: interval at which a blocking call checks for signals such as Ctrl-C.
const SIGNAL_INTERVAL: Duration = Duration::from_millis(100);

/// Runtime of the process with this id. Locked only by threads that hold the GIL: `os.fork` holds the GIL too, so a
/// child process never inherits a locked mutex.
static RUNTIME: Mutex<Option<(u32, &'static Runtime)>> = Mutex::new(None);

/// Returns the runtime of this process. The first call starts the runtime.
///
/// # Errors
/// If the runtime cannot start.
pub(crate) fn runtime(_holds_gil: Python<'_>) -> PyResult<&'static Runtime> {
    let mut slot = RUNTIME.lock().unwrap_or_else(PoisonError::into_inner);
    match *slot {
        Some((pid, runtime)) if pid == process::id() => Ok(runtime),
        _ => {
            let mut builder = Builder::new_multi_thread();
            let runtime =
                builder.worker_threads(THREADS).thread_name("sabul").enable_all().build()?;
            // A runtime is never stopped: a child process must not touch the runtime of its parent.
            let runtime: &'static Runtime = Box::leak(Box::new(runtime));
            *slot = Some((process::id(), runtime));
            Ok(runtime)
        }
    }
}

/// Runs a future: blocks without the GIL if `waits`, otherwise returns an awaitable.
///
/// # Errors
/// If the future fails, a signal arrives, or no event loop runs.
pub(crate) fn run<'py, T>(
    py: Python<'py>,
    waits: bool,
    future: impl Future<Output = Result<T, Fault>> + Send + 'static,
) -> PyResult<Bound<'py, PyAny>>
where
    T: for<'a> IntoPyObject<'a> + Send + 'static,
{
    let runtime = runtime(py)?;
    let future = async { future.await.map_err(PyErr::from) };
    if !waits {
        return generic::future_into_py::<Tokio, _, _>(py, future);
    }
    let mut future = Box::pin(future);
    loop {
        let step = py.detach(|| {
            runtime.block_on(async { tokio::time::timeout(SIGNAL_INTERVAL, &mut future).await })
        });
        match step {
            Ok(result) => return result?.into_bound_py_any(py),
            // The future is dropped, which cancels the operation.
            Err(_) => py.check_signals()?,
        }
    }
}

/// A value of the process that made the value. In a child process the value is neither used nor dropped, because its
/// threads do not exist there.
#[derive(Debug)]
pub(crate) struct OfProcess<T> {
    pid: u32,
    value: Option<T>,
}

impl<T> OfProcess<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { pid: process::id(), value: Some(value) }
    }

    /// Returns the value.
    ///
    /// # Errors
    /// In a child process.
    pub(crate) fn get(&self) -> Result<&T, Fault> {
        match &self.value {
            Some(value) if self.pid == process::id() => Ok(value),
            _ => Err(Fault::usage(format!(
                "this session belongs to process {}, and a forked process cannot use it; connect again in process {}",
                self.pid,
                process::id()
            ))),
        }
    }
}

impl<T> Drop for OfProcess<T> {
    fn drop(&mut self) {
        if self.pid != process::id() {
            std::mem::forget(self.value.take());
        }
    }
}

/// The runtime of this process for [`generic`].
struct Tokio;

/// Error of a task that panicked or was cancelled.
struct TaskError(JoinError);

impl generic::JoinError for TaskError {
    fn is_panic(&self) -> bool {
        self.0.is_panic()
    }

    fn into_panic(self) -> Box<dyn std::any::Any + Send + 'static> {
        self.0.into_panic()
    }
}

/// A task as [`generic`] requires it.
struct Task(JoinHandle<()>);

impl Future for Task {
    type Output = Result<(), TaskError>;

    fn poll(
        mut self: Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Self::Output> {
        Pin::new(&mut self.0).poll(cx).map_err(TaskError)
    }
}

/// Returns the runtime of this thread, or of this process.
fn handle() -> Handle {
    Handle::try_current().unwrap_or_else(|_| {
        let started = Python::attach(runtime);
        started.expect("`run` has started the runtime").handle().clone()
    })
}

impl generic::Runtime for Tokio {
    type JoinError = TaskError;
    type JoinHandle = Task;

    fn spawn<F>(future: F) -> Task
    where
        F: Future<Output = ()> + Send + 'static,
    {
        Task(handle().spawn(future))
    }

    fn spawn_blocking<F>(function: F) -> Task
    where
        F: FnOnce() + Send + 'static,
    {
        Task(handle().spawn_blocking(function))
    }
}

tokio::task_local! {
    static LOCALS: TaskLocals;
}

impl ContextExt for Tokio {
    fn scope<F, R>(locals: TaskLocals, future: F) -> Pin<Box<dyn Future<Output = R> + Send>>
    where
        F: Future<Output = R> + Send + 'static,
    {
        Box::pin(LOCALS.scope(locals, future))
    }

    fn get_task_locals() -> Option<TaskLocals> {
        LOCALS.try_with(TaskLocals::clone).ok()
    }
}
