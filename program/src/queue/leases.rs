//! Leases of a worker of a site: a thread renews them, and ends attempts whose leases end.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open, pidfd_send_signal};
use sabul_queue::site::{End, Leases, Site};
use sabul_queue::{JobId, QueueError};

use super::attempt::report;
use crate::error::CliError;

/// Process with a lease.
#[derive(Debug)]
enum Holder {
    /// Attempt.
    Process(OwnedFd),
    /// Hook, whose children end with it.
    Group(Pid),
}

impl Holder {
    /// A process that has ended needs no signal.
    fn signal(&self, signal: Signal) {
        let _ = match self {
            Self::Process(process) => pidfd_send_signal(process, signal),
            Self::Group(group) => kill_process_group(*group, signal),
        };
    }
}

/// Processes with leases, and the last signal to each.
type Holders = Arc<Mutex<BTreeMap<JobId, (Holder, Option<End>)>>>;

/// Thread that renews the leases of this process, until this value is dropped.
#[derive(Debug)]
pub(super) struct Renewal {
    holders: Holders,
    leases: Leases,
}

impl Renewal {
    /// Starts the thread.
    pub(super) fn start(site: &Site) -> Result<Self, CliError> {
        let (holders, leases) = (Holders::default(), site.leases());
        let keeper = site.keeper().map_err(QueueError::Site)?;
        // The thread ends when this value is dropped.
        let seen = Arc::downgrade(&holders);
        let work = move || {
            let end = |id, end| {
                if let Some(holders) = seen.upgrade() {
                    signal(&holders, id, end);
                }
            };
            keeper.run(|| seen.strong_count() == 0, end);
        };
        let started = thread::Builder::new().name("leases".to_owned()).spawn(work);
        started.map_err(|error| {
            CliError::failed(format!("cannot start the thread that renews leases: {error}"))
        })?;
        Ok(Self { holders, leases })
    }

    /// Adds an attempt.
    pub(super) fn add(&self, id: JobId, pid: u32) -> io::Result<()> {
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
        let pid = pid.ok_or_else(|| io::Error::other("the attempt has no process"))?;
        self.insert(id, Holder::Process(pidfd_open(pid, PidfdFlags::empty())?));
        Ok(())
    }

    /// Adds a hook, which leads a group of processes.
    pub(super) fn add_group(&self, id: JobId, pid: Pid) {
        self.insert(id, Holder::Group(pid));
    }

    fn insert(&self, id: JobId, holder: Holder) {
        self.holders.lock().unwrap_or_else(PoisonError::into_inner).insert(id, (holder, None));
    }

    /// Removes a process that has ended. Returns whether the process was ended because of its lease.
    pub(super) fn remove(&self, id: JobId) -> bool {
        self.holders.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
        self.leases.is_ended(id)
    }
}

/// Ends the process of a job, with one signal of each kind.
fn signal(holders: &Holders, id: JobId, end: End) {
    let mut holders = holders.lock().unwrap_or_else(PoisonError::into_inner);
    let Some((holder, last)) = holders.get_mut(&id) else { return };
    if *last == Some(end) {
        return;
    }
    *last = Some(end);
    match end {
        End::Stop => {
            report(format_args!("job {id}: the lease was not renewed; the attempt ends"));
            holder.signal(Signal::TERM);
        }
        End::Kill => holder.signal(Signal::KILL),
    }
}
