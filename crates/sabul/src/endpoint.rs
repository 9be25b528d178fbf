//! What the sessions of one listener share, or what the session of a connector has for itself.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use sabul_wire::control::{Failure, FailureCode};
use tokio::sync::Semaphore;

use crate::budget::MemoryBudget;
use crate::ceiling::Ceiling;
use crate::events::EventSink;
use crate::jail::{Jail, RootLink};
use crate::machine::Machine;
use crate::paths::PathMemory;
use crate::patience::Patience;
use crate::policy::SendPolicy;
use crate::writers::Writers;

/// Calls into file systems at the same time that open something. A file system that hangs keeps so
/// many threads, and tokio has 512 for everybody.
const LOOKS_MAX: usize = 64;
/// How long such a call may take before the peer hears that nothing comes of it.
const LOOK_PATIENCE: Duration = Duration::from_secs(20);

/// What sessions share.
#[derive(Debug)]
pub(crate) struct Endpoint {
    pub(crate) machine: Machine,
    /// How long to wait for peers.
    pub(crate) patience: Patience,
    /// Memory for all of them.
    pub(crate) memory: MemoryBudget,
    /// What peers may choose.
    pub(crate) sending: SendPolicy,
    /// What this end receives is part of this.
    pub(crate) receiving: Option<Ceiling>,
    /// Who hears what controllers do.
    pub(crate) events: Option<EventSink>,
    /// What transfers saw of the paths to peers.
    pub(crate) paths: PathMemory,
    /// Directories that are served, as long as somebody uses them: one descriptor each.
    roots: Mutex<BTreeMap<PathBuf, Weak<Jail>>>,
    looks: Arc<Semaphore>,
    /// Those who write to files.
    pub(crate) writers: Writers,
}

impl Endpoint {
    pub(crate) fn new(
        machine: Machine,
        memory: MemoryBudget,
        patience: Patience,
        sending: SendPolicy,
        receiving: Option<Ceiling>,
        events: Option<EventSink>,
        paths: PathMemory,
    ) -> Arc<Self> {
        let looks = Arc::new(Semaphore::new(LOOKS_MAX));
        let roots = Mutex::default();
        let writers = Writers::default();
        Arc::new(Self {
            machine,
            patience,
            memory,
            sending,
            receiving,
            events,
            paths,
            roots,
            looks,
            writers,
        })
    }

    /// The directory to serve; the same one for all who ask for it at the same time.
    pub(crate) async fn open_root(&self, root: &Path) -> Result<Arc<Jail>, Failure> {
        let known = {
            let mut roots = self.roots.lock().unwrap_or_else(PoisonError::into_inner);
            roots.retain(|_, jail| jail.strong_count() > 0);
            roots.get(root).and_then(Weak::upgrade)
        };
        if let Some(jail) = known {
            return Ok(jail);
        }
        let path = root.to_owned();
        let jail = self
            .look(move || Jail::open(&path, RootLink::Follow))
            .await?
            .map_err(|error| Failure::new(FailureCode::Unwritable, error.to_string()))?;
        let mut roots = self.roots.lock().unwrap_or_else(PoisonError::into_inner);
        // Another session may have been faster.
        if let Some(jail) = roots.get(root).and_then(Weak::upgrade) {
            return Ok(jail);
        }
        let jail = Arc::new(jail);
        roots.insert(root.to_owned(), Arc::downgrade(&jail));
        Ok(jail)
    }

    /// Calls into a file system, which may hang, on a thread for that. A call that hangs keeps its
    /// thread; there are so many of them and no more.
    pub(crate) async fn look<T: Send + 'static>(
        &self,
        call: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Failure> {
        self.look_within(LOOK_PATIENCE, call).await
    }

    async fn look_within<T: Send + 'static>(
        &self,
        patience: Duration,
        call: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Failure> {
        let hangs = || {
            let text = "the file system does not answer; try again later";
            Failure::new(FailureCode::Unwritable, text)
        };
        let looking = async {
            let place = Arc::clone(&self.looks).acquire_owned().await;
            let looked = self.machine.block(move || {
                let result = call();
                drop(place);
                result
            });
            looked.await
        };
        match tokio::time::timeout(patience, looking).await {
            Ok(Some(result)) => Ok(result),
            Ok(None) => Err(Failure::new(FailureCode::Internal, "a fault of this program")),
            Err(_) => Err(hangs()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint() -> Arc<Endpoint> {
        Endpoint::new(
            Machine::current(),
            MemoryBudget::default(),
            Patience::default(),
            SendPolicy::default(),
            None,
            None,
            PathMemory::default(),
        )
    }

    #[tokio::test]
    async fn a_root_is_open_once_for_all_who_serve_it() {
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
    async fn a_file_system_that_hangs_keeps_few_threads_and_is_reported() {
        let endpoint = endpoint();
        // All places are taken by calls that hang.
        let places = u32::try_from(LOOKS_MAX).unwrap();
        let hanging = Arc::clone(&endpoint.looks).acquire_many_owned(places).await.unwrap();
        let failure = endpoint.look_within(Duration::from_millis(20), || ()).await.unwrap_err();
        assert!(failure.message.contains("does not answer"), "{failure}");
        drop(hanging);
        assert_eq!(endpoint.look(|| 7).await, Ok(7));
    }
}
