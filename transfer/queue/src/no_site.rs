//! Stand-in for the queue of a site in a program without the feature `site`: each address is refused, so no value of the
//! other types exists.

use std::ffi::OsStr;
use std::fmt;
use std::path::Path;
use std::time::Duration;

use crate::action::{Action, Refusal};
use crate::job::{Ending, Job, JobId, NewJob, Progress, Request, State};
pub use crate::lease::{End, LEASE, LEASE_MAX, LEASE_MIN, hook_lease};

/// Decides how long calls wait for a database that does not answer.
pub trait Patience: Send {
    /// Whether to wait on after this error, and this time since the first error.
    fn goes_on(&mut self, error: &SiteError, waited: Duration) -> bool;
    /// The database answers again.
    fn is_over(&mut self, waited: Duration);
}

/// The private content of types without a value. Outside of this file, they look like other types.
#[derive(Clone, Copy, Debug)]
enum Never {}

/// Address of a database.
#[derive(Clone, Debug)]
pub struct Address(Never);

/// The program has no queue of a site.
#[derive(Debug)]
pub struct AddressError;

impl fmt::Display for AddressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "this sabul was built without queues in PostgreSQL; build it with the feature 'site'",
        )
    }
}

impl std::error::Error for AddressError {}

impl Address {
    /// Refuses each address.
    ///
    /// # Errors
    ///
    /// Always.
    pub fn read(_: &OsStr) -> Result<Self, AddressError> {
        Err(AddressError)
    }

    /// Whether the address contains a password.
    pub fn has_password(&self) -> bool {
        match self.0 {}
    }
}

/// Error of the queue of a site.
#[derive(Debug)]
pub struct SiteError(Never);

impl SiteError {
    /// Whether the database was unreachable.
    pub const fn is_unreachable(&self) -> bool {
        match self.0 {}
    }
}

impl fmt::Display for SiteError {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {}
    }
}

impl std::error::Error for SiteError {}

/// Connection to the queue of a site.
#[derive(Debug)]
pub struct Site(Never);

/// Methods of a connection that does not exist.
macro_rules! methods {
    ($($visible:vis $name:ident($($argument:ty),*) -> $result:ty;)*) => {
        #[expect(missing_docs, clippy::missing_errors_doc, reason = "the same as with the feature `site`")]
        impl Site {
            $($visible fn $name(&mut self, $(_: $argument),*) -> Result<$result, SiteError> {
                match self.0 {}
            })*
        }
    };
}

methods! {
    pub become_worker(&str, &Path, Duration) -> ();
    pub(crate) add(&NewJob) -> JobId;
    pub(crate) job(JobId) -> Option<Job>;
    pub(crate) jobs(usize) -> Vec<Job>;
    pub(crate) act(JobId, Action) -> Result<State, Refusal>;
    pub(crate) set_variable(JobId, &str, &[u8]) -> ();
    pub(crate) recover(bool) -> Vec<(JobId, State)>;
    pub(crate) take() -> Option<Job>;
    pub(crate) next_in_ms() -> Option<i64>;
    pub(crate) set_progress(JobId, &Progress) -> ();
    pub(crate) finish(JobId, &Ending) -> Option<State>;
    pub(crate) requests() -> Vec<(JobId, Request)>;
    pub(crate) hooks() -> Vec<JobId>;
    pub(crate) start_hook(JobId) -> Option<Job>;
    pub(crate) end_hook(JobId) -> bool;
    pub(crate) remove_ended(i64) -> usize;
}

impl Site {
    /// Connects to the queue.
    ///
    /// # Errors
    ///
    /// Never: no address exists.
    pub fn open(address: Address, _: Box<dyn Patience>) -> Result<Self, SiteError> {
        match address.0 {}
    }

    /// Returns the keeper of the leases.
    ///
    /// # Errors
    ///
    /// Never: no connection exists.
    pub fn keeper(&self) -> Result<Keeper, SiteError> {
        match self.0 {}
    }

    /// Returns the leases.
    pub fn leases(&self) -> Leases {
        match self.0 {}
    }
}

/// Leases of this process.
#[derive(Clone, Debug)]
pub struct Leases(Never);

impl Leases {
    /// Whether the keeper ended the attempt of this job.
    pub fn is_ended(&self, _: JobId) -> bool {
        match self.0 {}
    }
}

/// Renews the leases of a process.
#[derive(Debug)]
pub struct Keeper(Never);

impl Keeper {
    /// Renews leases.
    pub fn run(self, _: impl Fn() -> bool, _: impl FnMut(JobId, End)) {
        match self.0 {}
    }
}
