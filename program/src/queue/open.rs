//! Queue of this user, or of a site: its directory and its store.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::time::Duration;

use sabul_queue::site::{Address, Patience, Site, SiteError};
use sabul_queue::{Jobs, QueueError, Store, StoreError, folder};

use super::attempt::report;
use crate::args::WorkerArgs;
use crate::database;
use crate::error::CliError;
use crate::stop::Stop;

/// Name of the directory of the queue, in the state directory.
const FOLDER: &str = "queue";
/// Variable with the store, if no option names a store.
pub(super) const STORE: &str = "SABUL_QUEUE_STORE";
/// Ours: a command of a user waits for this time for a database that does not answer.
const USER_TIMEOUT: Duration = Duration::from_secs(10);
/// Ours: shorter outages are not reported.
const SILENT: Duration = Duration::from_secs(1);
/// Ours: maximum length of the name of a worker in bytes.
const NAME_MAX: usize = 100;

/// Open queue.
#[derive(Debug)]
pub(super) struct Queue {
    /// Directory of the queue, or of this worker of a site.
    pub(super) folder: PathBuf,
    /// Its jobs.
    pub(super) store: Jobs,
}

impl Queue {
    /// Opens the queue of a site, or without a store that of this user, which is created if it is missing.
    pub(super) fn open(store: Option<&OsStr>) -> Result<Self, CliError> {
        Self::open_for(store, None)
    }

    /// Opens the queue for a process that runs until `stop`. Such a process waits for the database of a site.
    pub(super) fn open_for(store: Option<&OsStr>, stop: Option<&Stop>) -> Result<Self, CliError> {
        let folder = directory(FOLDER)?;
        let store = match store {
            None => Jobs::User(Store::open(&folder).map_err(QueueError::User)?),
            Some(store) => {
                let patience = Waiting { stop: stop.cloned(), is_reported: false };
                let site = Site::open(address(store)?, Box::new(patience));
                Jobs::Site(Box::new(site.map_err(QueueError::Site)?))
            }
        };
        Ok(Self { folder, store })
    }

    /// Whether the queue is that of a site.
    pub(super) const fn is_site(&self) -> bool {
        matches!(self.store, Jobs::Site(_))
    }

    /// Returns the directory of this worker of a site, or of the queue of this user.
    pub(super) fn enter(&mut self, worker: &WorkerArgs) -> Result<(), CliError> {
        if self.is_site() {
            let name = worker_name(worker.worker.as_deref())?;
            self.folder = directory(&format!("{FOLDER}/workers/{name}"))?;
        }
        Ok(())
    }

    /// Becomes the worker of this directory. The caller has its lock.
    pub(super) fn become_worker(
        &mut self,
        worker: &WorkerArgs,
        lease: Duration,
    ) -> Result<(), CliError> {
        if let Jobs::Site(site) = &mut self.store {
            let name = worker_name(worker.worker.as_deref())?;
            site.become_worker(&name, &self.folder, lease).map_err(QueueError::Site)?;
        }
        Ok(())
    }
}

/// Returns the store of this environment.
pub(super) fn store_of_environment() -> Option<OsString> {
    std::env::var_os(STORE).filter(|store| !store.is_empty())
}

fn directory(name: &str) -> Result<PathBuf, CliError> {
    sabul_front::state::directory(name)
        .map_err(|error| CliError::failed(format!("cannot use the queue: {error}")))
}

/// Reads the address of a store. All users of the machine see the command line, so it has no password.
fn address(store: &OsStr) -> Result<Address, CliError> {
    let address = Address::read(store).map_err(|error| CliError::usage(error.to_string()))?;
    let is_shown = std::env::args_os()
        .any(|word| word == store || word.as_encoded_bytes().ends_with(store.as_encoded_bytes()));
    let is_url = store.as_encoded_bytes().starts_with(b"postgres");
    if address.has_password() && is_shown && is_url {
        return Err(CliError::usage(format!(
            "the address of --store has a password, which all users of this machine can read; put the address into a file \
             with mode 0600 and give its name, or set {STORE}"
        )));
    }
    Ok(address)
}

/// Returns the name of a worker: by default that of the machine.
fn worker_name(given: Option<&str>) -> Result<String, CliError> {
    let name = match given {
        Some(name) => name.to_owned(),
        None => rustix::system::uname().nodename().to_string_lossy().into_owned(),
    };
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if name.is_empty()
        || name.len() > NAME_MAX
        || name.starts_with('.')
        || !name.bytes().all(is_plain)
    {
        return Err(CliError::usage(format!(
            "'{name}' is not a name of a worker: use 1 to {NAME_MAX} letters, digits, '-', '_' and '.', with --worker"
        )));
    }
    Ok(name)
}

/// Waits for the database of a site: a user for some seconds, a worker until it is interrupted.
struct Waiting {
    stop: Option<Stop>,
    is_reported: bool,
}

impl Patience for Waiting {
    fn goes_on(&mut self, error: &SiteError, waited: Duration) -> bool {
        if waited > SILENT && !self.is_reported {
            self.is_reported = true;
            report(format_args!("{error}; waiting"));
        }
        match &self.stop {
            Some(stop) => !stop.is_requested(),
            None => waited < USER_TIMEOUT,
        }
    }

    fn is_over(&mut self, waited: Duration) {
        if std::mem::take(&mut self.is_reported) {
            let seconds = waited.as_secs_f64();
            report(format_args!("the database of the queue answers again, after {seconds:.1} s"));
        }
    }
}

impl From<QueueError> for CliError {
    fn from(error: QueueError) -> Self {
        match error {
            QueueError::User(error) => error.into(),
            QueueError::Site(error) if error.is_unreachable() => Self::lost(error.to_string()),
            QueueError::Site(error) => Self::failed(error.to_string()),
        }
    }
}

impl From<StoreError> for CliError {
    fn from(error: StoreError) -> Self {
        match (&error, sabul_front::state::directory(FOLDER)) {
            (StoreError::Database(error), Ok(folder)) => {
                database::failed(&folder::database(&folder), "the queue", error)
            }
            _ => Self::failed(error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_of_a_worker_is_a_name_of_a_directory() {
        assert_eq!(worker_name(Some("node-1.example")).unwrap(), "node-1.example");
        assert!(!worker_name(None).unwrap().is_empty());
        for wrong in ["", "..", ".a", "a/b", "a b", &"a".repeat(101)] {
            let error = worker_name(Some(wrong)).unwrap_err().to_string();
            assert!(error.contains("--worker"), "{wrong}: {error}");
        }
    }
}
