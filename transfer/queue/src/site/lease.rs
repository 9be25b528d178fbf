//! Leases of a worker, and the thread that renews them.
//!
//! A lease of length L that was renewed at time 0 lasts in the database until L or later, because the database sets its
//! end after the worker sent the renewal. The holder ends before L, whether the database answers or not.
//!
//! ```text
//! 0.2 L   renewal; repeated every L/40 while the database does not answer
//! 0.65 L  SIGTERM to the attempt or the hook
//! 0.8 L   SIGKILL; the keeper waits L/10 for an answer and L/40 between two calls, so at most 0.125 L later
//! L       another worker may take the job
//! ```

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;
use tokio_postgres::Client;

use super::address::Address;
use super::error::SiteError;
use super::tables;
use crate::job::JobId;
use crate::lease::End;
use crate::rules::millis;

/// Ours: longest interval of the keeper, for long leases.
const STEP_MAX: Duration = Duration::from_secs(1);

/// A lease of this process.
#[derive(Clone, Debug)]
struct Lease {
    token: String,
    /// Start of the call that renewed the lease last.
    renewed: Instant,
    is_lost: bool,
    /// The keeper ended the attempt.
    is_ended: bool,
}

/// Leases of this process by job.
#[derive(Clone, Debug, Default)]
pub struct Leases(Arc<Mutex<BTreeMap<JobId, Lease>>>);

impl Leases {
    /// Whether the keeper ended the attempt of this job.
    pub fn is_ended(&self, id: JobId) -> bool {
        self.map().get(&id).is_some_and(|lease| lease.is_ended)
    }

    pub(super) fn insert(&self, id: JobId, token: String, renewed: Instant) {
        let lease = Lease { token, renewed, is_lost: false, is_ended: false };
        self.map().insert(id, lease);
    }

    pub(super) fn token(&self, id: JobId) -> Option<String> {
        self.map().get(&id).map(|lease| lease.token.clone())
    }

    /// Returns the jobs whose attempts have no recorded end.
    pub(super) fn jobs(&self) -> Vec<JobId> {
        self.map().keys().copied().collect()
    }

    pub(super) fn remove(&self, id: JobId) {
        self.map().remove(&id);
    }

    /// A panic of another thread leaves the map whole: each change is one call.
    fn map(&self) -> MutexGuard<'_, BTreeMap<JobId, Lease>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the jobs whose attempts have to end now.
    fn due(&self, length: Duration, now: Instant) -> Vec<(JobId, End)> {
        let mut due = Vec::new();
        for (id, lease) in self.map().iter_mut() {
            let age = now.saturating_duration_since(lease.renewed);
            let end = if age >= length * 4 / 5 {
                End::Kill
            } else if lease.is_lost || age >= length * 13 / 20 {
                End::Stop
            } else {
                continue;
            };
            lease.is_ended = true;
            due.push((*id, end));
        }
        due
    }

    /// Returns the tokens to renew, if the time of a renewal has come for any lease.
    fn to_renew(&self, length: Duration, now: Instant) -> Vec<String> {
        let map = self.map();
        let is_due =
            |lease: &Lease| now.saturating_duration_since(lease.renewed) >= length.mul_f64(0.2);
        let live = || map.values().filter(|lease| !lease.is_lost);
        if live().any(is_due) { live().map(|lease| lease.token.clone()).collect() } else { vec![] }
    }

    /// Records an answer: of the tokens that were sent at this time, these are renewed and the others are lost.
    fn set_renewed(&self, sent: &[String], renewed: &[String], at: Instant) {
        for lease in self.map().values_mut().filter(|lease| sent.contains(&lease.token)) {
            if renewed.contains(&lease.token) {
                lease.renewed = at;
            } else {
                lease.is_lost = true;
            }
        }
    }
}

/// Renews the leases of a process, with a connection of its own.
pub struct Keeper {
    runtime: Runtime,
    address: Address,
    client: Option<Client>,
    length: Duration,
    leases: Leases,
}

impl fmt::Debug for Keeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keeper").field("length", &self.length).finish_non_exhaustive()
    }
}

impl Keeper {
    pub(super) fn new(
        address: Address,
        length: Duration,
        leases: Leases,
    ) -> Result<Self, SiteError> {
        Ok(Self { runtime: tables::runtime()?, address, client: None, length, leases })
    }

    /// Renews leases until `is_over`. Calls `end` for attempts and hooks whose leases end; again until the worker removes
    /// the lease.
    pub fn run(mut self, is_over: impl Fn() -> bool, mut end: impl FnMut(JobId, End)) {
        let step = (self.length / 40).min(STEP_MAX);
        while !is_over() {
            for (id, how) in self.leases.due(self.length, Instant::now()) {
                end(id, how);
            }
            // An outage shows in the age of the leases. The worker reports the outage.
            let _ = self.renew();
            std::thread::sleep(step);
        }
    }

    /// Renews the leases whose time has come.
    fn renew(&mut self) -> Result<(), SiteError> {
        let now = Instant::now();
        let tokens = self.leases.to_renew(self.length, now);
        if tokens.is_empty() {
            return Ok(());
        }
        let (address, client, length) = (&self.address, &mut self.client, self.length);
        let length_ms = millis(length);
        let result = self.runtime.block_on(async {
            let call = async {
                let client = match client {
                    Some(client) if !client.is_closed() => client,
                    place => place.insert(tables::connect(address).await?),
                };
                let rows = client
                    .query(
                        "UPDATE sabul.job SET lease_until_ms = sabul.now_ms() + $2, lease_ms = $2 \
                         WHERE token = ANY ($1) RETURNING token",
                        &[&tokens, &length_ms],
                    )
                    .await?;
                let tokens = rows.iter().map(|row| row.try_get(0));
                Ok(tokens.collect::<Result<Vec<String>, _>>()?)
            };
            let limit = length / 10;
            let timeout = tokio::time::timeout(limit, call).await;
            timeout.unwrap_or_else(|_| Err(SiteError::late(limit)))
        });
        match result {
            Ok(renewed) => self.leases.set_renewed(&tokens, &renewed, now),
            Err(error) => {
                self.client = None;
                return Err(error.at(self.address.place()));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_holder_ends_before_its_lease_also_without_an_answer() {
        let leases = Leases::default();
        let (start, length) = (Instant::now(), Duration::from_secs(100));
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        leases.insert(1, "a".to_owned(), start);
        leases.insert(2, "b".to_owned(), at(10));
        assert!(leases.to_renew(length, at(19)).is_empty());
        assert_eq!(leases.to_renew(length, at(20)), ["a", "b"]);
        assert_eq!(leases.due(length, at(64)), []);
        assert!(!leases.is_ended(1));
        assert_eq!(leases.due(length, at(65)), [(1, End::Stop)]);
        assert!(leases.is_ended(1) && !leases.is_ended(2));
        assert_eq!(leases.due(length, at(80)), [(1, End::Kill), (2, End::Stop)]);
    }

    #[test]
    fn a_lease_that_the_database_does_not_renew_is_lost() {
        let leases = Leases::default();
        let (start, length) = (Instant::now(), Duration::from_secs(100));
        leases.insert(1, "a".to_owned(), start);
        leases.insert(2, "b".to_owned(), start);
        let sent = leases.to_renew(length, start + length / 4);
        // A job that was taken after the call was sent keeps its lease.
        leases.insert(3, "c".to_owned(), start);
        leases.set_renewed(&sent, &["a".to_owned()], start + length / 4);
        assert_eq!(leases.due(length, start + length / 4), [(2, End::Stop)]);
        leases.remove(2);
        assert_eq!(leases.to_renew(length, start + length / 2), ["a", "c"]);
    }
}
