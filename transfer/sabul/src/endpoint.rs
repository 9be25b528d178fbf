//! Shared state of all sessions of a listener, or state of a connector's single session.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use sabul_wire::control::{Failure, FailureCode};
use tokio::sync::{Notify, Semaphore};

use crate::budget::MemoryBudget;
use crate::ceiling::Ceiling;
use crate::events::EventSink;
use crate::joins::Joins;
use crate::lock::lock;
use crate::machine::Machine;
use crate::passes::Passes;
use crate::paths::PathMemory;
use crate::policy::SendPolicy;
use crate::resume::Sessions;
use crate::ssh::bridge::Bridge;
use crate::timeouts::Timeouts;
use crate::writers::Writers;
use sabul_files::root::{RootDir, RootLink};

/// Most concurrent calls that open something in a file system. A hanging file system blocks this
/// many threads; tokio has 512 in all.
const FILE_CALLS_MAX: usize = 64;
/// Timeout of such a call; after this time the peer receives a failure.
const FILE_CALL_TIMEOUT: Duration = Duration::from_secs(20);
/// Most concurrent calls that compile rules of peers. Ours: each takes some milliseconds of a processor.
const COMPILATIONS_MAX: usize = 2;

/// Places for calls on blocking threads.
#[derive(Debug)]
struct CallPlaces {
    files: Arc<Semaphore>,
    rules: Arc<Semaphore>,
}

/// Connections that a listener expects because of its sessions.
#[derive(Debug, Default)]
pub(crate) struct Arrivals {
    /// Transfers that further connections may join.
    pub(crate) joins: Joins,
    /// Sessions whose control connection can be replaced.
    pub(crate) sessions: Sessions,
    /// Passes for other machines.
    pub(crate) passes: Passes,
}

/// State shared by sessions.
#[derive(Debug)]
pub(crate) struct Endpoint {
    pub(crate) machine: Machine,
    /// Timeouts for peers.
    pub(crate) timeouts: Timeouts,
    /// Memory limit of all sessions together.
    pub(crate) memory: MemoryBudget,
    /// Limits on the settings that peers may choose.
    pub(crate) sending: SendPolicy,
    /// Rate limit shared by everything that this end receives.
    pub(crate) receiving: Option<Ceiling>,
    /// Receiver of controller events.
    pub(crate) events: Option<EventSink>,
    /// Path parameters measured by earlier transfers.
    pub(crate) paths: PathMemory,
    /// Open root directories in use, one descriptor each.
    roots: Mutex<BTreeMap<PathBuf, Weak<RootDir>>>,
    call_places: CallPlaces,
    /// Connections that are expected.
    pub(crate) arrivals: Arrivals,
    /// Notified when a UDP channel finds that an address has changed.
    pub(crate) address_changed: Arc<Notify>,
    /// Held while a transfer dials TCP connections.
    pub(crate) dialling: Arc<tokio::sync::Mutex<()>>,
    /// Active writers of files.
    pub(crate) writers: Writers,
    /// The ssh that keeps the peer of a connector's session alive.
    pub(crate) bridge: Mutex<Option<Bridge>>,
}

impl Endpoint {
    pub(crate) fn new(
        machine: Machine,
        memory: MemoryBudget,
        timeouts: Timeouts,
        sending: SendPolicy,
        receiving: Option<Ceiling>,
        events: Option<EventSink>,
        paths: PathMemory,
    ) -> Arc<Self> {
        let places = |count| Arc::new(Semaphore::new(count));
        let call_places =
            CallPlaces { files: places(FILE_CALLS_MAX), rules: places(COMPILATIONS_MAX) };
        let roots = Mutex::default();
        let writers = Writers::default();
        Arc::new(Self {
            machine,
            timeouts,
            memory,
            sending,
            receiving,
            events,
            paths,
            roots,
            call_places,
            arrivals: Arrivals::default(),
            address_changed: Arc::default(),
            dialling: Arc::default(),
            writers,
            bridge: Mutex::default(),
        })
    }

    /// Opens the directory to serve; concurrent users of the same path share one descriptor.
    pub(crate) async fn open_root(&self, root: &Path) -> Result<Arc<RootDir>, Failure> {
        let known = {
            let mut roots = lock(&self.roots);
            roots.retain(|_, root_dir| root_dir.strong_count() > 0);
            roots.get(root).and_then(Weak::upgrade)
        };
        if let Some(root_dir) = known {
            return Ok(root_dir);
        }
        let path = root.to_owned();
        let root_dir = self
            .file_call(move || RootDir::open(&path, RootLink::Follow))
            .await?
            .map_err(|error| Failure::new(FailureCode::Unwritable, error.to_string()))?;
        let mut roots = lock(&self.roots);
        // Another session may have opened the same root in the meantime.
        if let Some(root_dir) = roots.get(root).and_then(Weak::upgrade) {
            return Ok(root_dir);
        }
        let root_dir = Arc::new(root_dir);
        roots.insert(root.to_owned(), Arc::downgrade(&root_dir));
        Ok(root_dir)
    }

    /// Runs a file system call, which may hang, on a blocking thread. A hanging call keeps its
    /// thread; [`FILE_CALLS_MAX`] bounds the number of such threads.
    pub(crate) async fn file_call<T: Send + 'static>(
        &self,
        call: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Failure> {
        self.file_call_within(FILE_CALL_TIMEOUT, call).await
    }

    async fn file_call_within<T: Send + 'static>(
        &self,
        limit: Duration,
        call: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Failure> {
        let hangs = || {
            let text = "the file system does not answer; try again later";
            Failure::new(FailureCode::Unwritable, text)
        };
        let calling = async {
            let place = Arc::clone(&self.call_places.files).acquire_owned().await;
            let called = self.machine.block(move || {
                let result = call();
                drop(place);
                result
            });
            called.await
        };
        match tokio::time::timeout(limit, calling).await {
            Ok(Some(result)) => Ok(result),
            Ok(None) => Err(fault()),
            Err(_) => Err(hangs()),
        }
    }

    /// Runs a call that compiles rules of a peer, on a blocking thread. Further calls wait, so that other work of the
    /// runtime goes on.
    pub(crate) async fn compile<T: Send + 'static>(
        &self,
        call: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Failure> {
        let place = Arc::clone(&self.call_places.rules).acquire_owned().await;
        let called = self.machine.block(move || {
            let result = call();
            drop(place);
            result
        });
        called.await.ok_or_else(fault)
    }
}

fn fault() -> Failure {
    Failure::new(FailureCode::Internal, "a fault of this program")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint() -> Arc<Endpoint> {
        Endpoint::new(
            Machine::current(),
            MemoryBudget::default(),
            Timeouts::default(),
            SendPolicy::default(),
            None,
            None,
            PathMemory::default(),
        )
    }

    #[tokio::test]
    async fn a_root_is_opened_once_and_shared_by_sessions() {
        let folder = tempfile::tempdir().unwrap();
        let endpoint = endpoint();
        let first = endpoint.open_root(folder.path()).await.unwrap();
        let second = endpoint.open_root(folder.path()).await.unwrap();
        assert!(Arc::ptr_eq(&first, &second));
        let known = || endpoint.roots.lock().unwrap().len();
        assert_eq!(known(), 1);
        drop((first, second));
        let missing = folder.path().join("missing");
        assert_eq!(endpoint.open_root(&missing).await.unwrap_err().code, FailureCode::Unwritable);
        assert_eq!(known(), 0, "nothing is kept that nobody uses");
    }

    #[tokio::test]
    async fn a_hanging_file_system_occupies_few_threads_and_is_reported() {
        let endpoint = endpoint();
        // Hanging calls occupy all places.
        let places = u32::try_from(FILE_CALLS_MAX).unwrap();
        let hanging =
            Arc::clone(&endpoint.call_places.files).acquire_many_owned(places).await.unwrap();
        let failure =
            endpoint.file_call_within(Duration::from_millis(20), || ()).await.unwrap_err();
        assert!(failure.message.contains("does not answer"), "{failure}");
        drop(hanging);
        assert_eq!(endpoint.file_call(|| 7).await, Ok(7));
    }

    #[tokio::test]
    async fn rules_compile_on_few_threads_besides_the_runtime() {
        let endpoint = endpoint();
        let runtime = std::thread::current().id();
        let (release, gate) = std::sync::mpsc::channel::<()>();
        let gate = Arc::new(Mutex::new(gate));
        let call = |number| {
            let (endpoint, gate) = (Arc::clone(&endpoint), Arc::clone(&gate));
            tokio::spawn(async move {
                let compile = move || {
                    let _ = lock(&gate).recv();
                    (number, std::thread::current().id())
                };
                endpoint.compile(compile).await.unwrap()
            })
        };
        // These calls fill all places; the test's only runtime thread goes on.
        let calls: Vec<_> = (0..=COMPILATIONS_MAX).map(call).collect();
        while endpoint.call_places.rules.available_permits() > 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(endpoint.file_call(|| 7).await, Ok(7));
        calls.iter().for_each(|_| release.send(()).unwrap());
        for (number, call) in calls.into_iter().enumerate() {
            let (found, thread) = call.await.unwrap();
            assert_eq!(found, number);
            assert_ne!(thread, runtime);
        }
    }
}
