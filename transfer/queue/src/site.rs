//! Queue of a site: jobs of several machines in a PostgreSQL database.
//!
//! Model:       workers on several machines take jobs from one table. A worker has a job for the time of a lease, by the
//!              clock of the database, and renews the lease while the job runs ([`Keeper`]).
//! Invariants:  a row that an attempt or a hook has is leased, and nobody else takes a leased row. The end of an
//!              attempt is recorded only by the process whose token is in the row. A restart of the database
//!              extends each lease to its full length after the start.
//! Outages:     each call has a time limit. A call whose answer was lost is repeated, and each call that is repeated
//!              has the same effect as one call.

mod address;
mod error;
mod jobs;
mod lease;
mod proof;
mod row;
mod tables;
mod work;

use std::fmt;
use std::path::Path;
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;
use tokio_postgres::Client;

pub use crate::lease::{End, LEASE, LEASE_MAX, LEASE_MIN, hook_lease};
pub use address::{Address, AddressError};
pub use error::SiteError;
pub use lease::{Keeper, Leases};
pub use work::Worker;

/// Ours: time limit of a call, from the connection to the answer.
const CALL_TIMEOUT: Duration = Duration::from_secs(15);
/// Ours: pause before the second attempt of a call. Doubled for each further attempt.
const PAUSE_MIN: Duration = Duration::from_millis(100);
/// Ours: maximum pause between two attempts of a call; delays the work after an outage by as much.
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// Ours: interval between two questions whether to wait on.
const WAIT_STEP: Duration = Duration::from_millis(100);

/// Decides how long calls wait for a database that does not answer.
pub trait Patience: Send {
    /// Whether to wait on after this error, and this time since the first error.
    fn goes_on(&mut self, error: &SiteError, waited: Duration) -> bool;
    /// The database answers again.
    fn is_over(&mut self, waited: Duration);
}

/// Connection to the queue of a site.
pub struct Site {
    runtime: Runtime,
    address: Address,
    client: Option<Client>,
    patience: Box<dyn Patience>,
    /// Present in processes that take jobs or run hooks.
    worker: Option<Worker>,
    leases: Leases,
    /// Whether the answers of the next calls get lost; the last value is that of the next call.
    #[cfg(test)]
    lost_answers: Vec<bool>,
}

impl fmt::Debug for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Site").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Site {
    /// Connects to the queue, and creates its tables if they are missing.
    ///
    /// # Errors
    ///
    /// If the database cannot be reached for longer than `patience`, refuses the login, or has tables of a newer
    /// version.
    pub fn open(address: Address, patience: Box<dyn Patience>) -> Result<Self, SiteError> {
        let runtime = tables::runtime()?;
        let leases = Leases::default();
        let mut site = Self {
            runtime,
            address,
            client: None,
            patience,
            worker: None,
            leases,
            #[cfg(test)]
            lost_answers: Vec::new(),
        };
        site.call(async |_| Ok(()))?;
        Ok(site)
    }

    /// Becomes the connection of a worker with its files in this directory. The caller has the lock of the worker.
    ///
    /// # Errors
    ///
    /// If the file with the identity of the worker cannot be used.
    pub fn become_worker(
        &mut self,
        name: &str,
        folder: &Path,
        lease: Duration,
    ) -> Result<(), SiteError> {
        self.worker = Some(Worker::open(name, folder, lease)?);
        Ok(())
    }

    /// Returns the keeper of the leases of this worker, for a thread of its own.
    ///
    /// # Errors
    ///
    /// If the keeper cannot be created, or this process is no worker.
    pub fn keeper(&self) -> Result<Keeper, SiteError> {
        Keeper::new(self.address.clone(), self.worker()?.lease(), self.leases.clone())
    }

    /// Returns the leases of this worker.
    pub fn leases(&self) -> Leases {
        self.leases.clone()
    }

    fn worker(&self) -> Result<&Worker, SiteError> {
        self.worker.as_ref().ok_or(SiteError::NoWorker)
    }

    /// Carries out a call. Repeats the call while the database does not answer and the patience lasts.
    fn call<T>(
        &mut self,
        mut work: impl AsyncFnMut(&mut Client) -> Result<T, SiteError>,
    ) -> Result<T, SiteError> {
        let mut outage: Option<Instant> = None;
        let mut pause = PAUSE_MIN;
        loop {
            let error = match self.call_once(&mut work) {
                Ok(value) => {
                    if let Some(since) = outage {
                        self.patience.is_over(since.elapsed());
                    }
                    return Ok(value);
                }
                Err(error) if error.is_outage() => error,
                Err(error) => return Err(error),
            };
            let since = *outage.get_or_insert_with(Instant::now);
            let until = Instant::now() + pause;
            while Instant::now() < until {
                if !self.patience.goes_on(&error, since.elapsed()) {
                    return Err(error);
                }
                std::thread::sleep(WAIT_STEP.min(until.saturating_duration_since(Instant::now())));
            }
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// Carries out a call that must not be repeated: only the connection is.
    fn call_unrepeated<T>(
        &mut self,
        work: impl AsyncFnMut(&mut Client) -> Result<T, SiteError>,
    ) -> Result<T, SiteError> {
        self.call(async |client| Ok(client.check_connection().await?))?;
        match self.call_once(work) {
            Err(SiteError::Outage { place, cause }) => Err(SiteError::Uncertain { place, cause }),
            result => result,
        }
    }

    /// Carries out a call within its time limit. A connection that failed is closed.
    fn call_once<T>(
        &mut self,
        mut work: impl AsyncFnMut(&mut Client) -> Result<T, SiteError>,
    ) -> Result<T, SiteError> {
        let (address, client) = (&self.address, &mut self.client);
        let result = self.runtime.block_on(async {
            let call = async {
                let client = match client {
                    Some(client) if !client.is_closed() => client,
                    place => place.insert(tables::connect(address).await?),
                };
                work(client).await
            };
            let timeout = tokio::time::timeout(CALL_TIMEOUT, call);
            timeout.await.unwrap_or_else(|_| Err(SiteError::late(CALL_TIMEOUT)))
        });
        #[cfg(test)]
        let result = self.lose_answer(result);
        result.map_err(|error| {
            self.client = None;
            error.at(self.address.place())
        })
    }
}

#[cfg(test)]
impl Site {
    /// Replaces an answer by the loss of the connection before the answer.
    fn lose_answer<T>(&mut self, result: Result<T, SiteError>) -> Result<T, SiteError> {
        match self.lost_answers.pop() {
            Some(true) => result.and_then(|_| Err(SiteError::late(CALL_TIMEOUT))),
            _ => result,
        }
    }
}

#[cfg(test)]
mod tests;
