//! State of a running command for its control socket, and changes to it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use sabul::server::Started;
use sabul::settings::{Ceiling, Direction};
use sabul::{Policy, Progress, Rate, Transfer, TransferHandle};
use sabul_units::show_rate;

use super::messages::{Change, JobJson, RunningJson};
use crate::json::{SCHEMA, rate_bps};
use crate::served;

/// Ours: maximum length of the description, in characters.
const DESCRIPTION_MAX: usize = 300;
/// Ours: maximum number of transfers of a server in one answer, which bounds the size of the
/// answer.
const RUNNING_MAX: usize = 50;
/// Ours: highest accepted rate in bit/s, above the fastest links in use.
const RATE_MAX: u64 = 1_000_000_000_000;

/// Running command. Clones share the state.
#[derive(Clone, Debug)]
pub struct Job {
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    command: &'static str,
    what: String,
    started: Instant,
    /// Running transfers and the last finished one.
    transfers: Vec<TransferHandle>,
    /// As requested at the start or changed since.
    policy: Option<String>,
    rate_limit_bps: Option<u64>,
    /// Changes that also apply to later transfers.
    requested: RequestedChanges,
    /// Minimum rate in bit/s, below which the command ends.
    min_rate_bps: Option<u64>,
    /// Present for servers only.
    served: Option<Served>,
}

#[derive(Clone, Copy, Debug, Default)]
struct RequestedChanges {
    policy: Option<Policy>,
    rate_limit_bps: Option<Option<u64>>,
}

/// State of a server.
#[derive(Debug)]
struct Served {
    ceilings: [Ceiling; 2],
    /// Running transfers.
    running: Vec<Started>,
    sessions: u64,
    transfers: u64,
    bytes: u64,
}

impl Job {
    /// Creates the state of a command with this name and description.
    pub fn new(command: &'static str, what: &str) -> Self {
        let state = State {
            command,
            what: what.chars().take(DESCRIPTION_MAX).collect(),
            started: Instant::now(),
            transfers: Vec::new(),
            policy: None,
            rate_limit_bps: None,
            requested: RequestedChanges::default(),
            min_rate_bps: None,
            served: None,
        };
        Self { state: Arc::new(Mutex::new(state)) }
    }

    /// Sets the policy, the maximum rate and the minimum rate in bit/s with which transfers start.
    #[must_use]
    pub fn with_rates(
        self,
        policy: &str,
        rate_limit_bps: Option<u64>,
        min_rate_bps: Option<u64>,
    ) -> Self {
        let mut state = self.lock();
        state.policy = Some(policy.to_owned());
        state.rate_limit_bps = rate_limit_bps;
        state.min_rate_bps = min_rate_bps;
        drop(state);
        self
    }

    /// Marks the command as a server with these ceilings for sent and received data.
    #[must_use]
    pub fn serving(self, sent: &Ceiling, received: &Ceiling) -> Self {
        let ceilings = [sent.clone(), received.clone()];
        self.lock().served =
            Some(Served { ceilings, running: Vec::new(), sessions: 0, transfers: 0, bytes: 0 });
        self
    }

    /// Adds a transfer and applies earlier changes to it.
    pub fn begins(&self, transfer: &Transfer) {
        let handle = transfer.handle();
        let mut state = self.lock();
        let RequestedChanges { policy, rate_limit_bps } = state.requested;
        // The same options accepted both changes before.
        if let Some(policy) = policy {
            let _ = handle.set_policy(policy);
        }
        if let Some(limit) = rate_limit_bps {
            let _ = handle.set_rate_limit(limit.map(Rate));
        }
        state.transfers.retain(|known| !known.progress().is_finished);
        state.transfers.push(handle);
    }

    /// Counts a new session of a server.
    pub fn session_begins(&self) {
        if let Some(served) = &mut self.lock().served {
            served.sessions += 1;
        }
    }

    /// Counts the end of a session.
    pub fn session_ends(&self) {
        if let Some(served) = &mut self.lock().served {
            served.sessions = served.sessions.saturating_sub(1);
        }
    }

    /// Adds a running transfer of a server.
    pub fn serves(&self, started: &Started) {
        if let Some(served) = &mut self.lock().served {
            served.running.retain(|known| !known.transfer.progress().is_finished);
            served.running.push(started.clone());
        }
    }

    /// Counts a finished transfer of a server and its content bytes.
    pub fn served(&self, bytes: u64) {
        if let Some(served) = &mut self.lock().served {
            served.transfers += 1;
            served.bytes += bytes;
        }
    }

    /// Returns the current state.
    pub fn report(&self) -> JobJson {
        let state = self.lock();
        let mut json = JobJson {
            schema: SCHEMA,
            pid: std::process::id(),
            command: state.command.to_owned(),
            what: state.what.clone(),
            seconds: state.started.elapsed().as_secs_f64(),
            policy: state.policy.clone(),
            rate_limit_bps: state.rate_limit_bps,
            ..JobJson::default()
        };
        if let Some(served) = &state.served {
            json.sessions = Some(served.sessions);
            json.transfers_done = Some(served.transfers);
            json.bytes = served.bytes;
            json.rate_limit_total_bps = served.ceilings[0].total_bps();
            for started in &served.running {
                let progress = started.transfer.progress();
                if progress.is_finished {
                    continue;
                }
                let running = running(started, &progress);
                json.transfers += 1;
                json.bytes += running.bytes;
                json.goodput_bps += running.goodput_bps;
                if json.running.len() < RUNNING_MAX {
                    json.running.push(running);
                }
            }
        }
        let (mut totals, mut is_certain) = (Some(0), true);
        for progress in state.transfers.iter().map(TransferHandle::progress) {
            json.transfers += u64::from(!progress.is_finished);
            json.bytes += progress.bytes;
            json.goodput_bps += goodput_bps(&progress);
            let (total, is_all) = total(&progress);
            totals = totals.zip(total).map(|(sum, total)| sum + total);
            is_certain &= is_all;
        }
        json.bytes_total = totals.filter(|_| !state.transfers.is_empty());
        json.is_total_certain = json.bytes_total.is_some() && is_certain;
        json
    }

    /// Applies a change.
    ///
    /// # Errors
    ///
    /// If a part of the change is impossible; then the command stays as it was.
    pub fn set(&self, change: &Change) -> Result<(), String> {
        let mut state = self.lock();
        let command = state.command;
        for rate in [change.rate_limit_bps, change.rate_limit_total_bps] {
            if rate.is_some_and(|rate| rate > RATE_MAX) {
                return Err(format!("the highest rate is {}", show_bps(RATE_MAX)));
            }
        }
        let limit = |bps: u64| (bps > 0).then_some(bps);
        if let Some(served) = &state.served {
            if change.policy.is_some() || change.rate_limit_bps.is_some() {
                return Err(format!(
                    "'sabul {command}' can change only --bwlimit-total; rate and policy of a single \
                     transfer are set by its client"
                ));
            }
            for ceiling in change.rate_limit_total_bps.iter().flat_map(|_| &served.ceilings) {
                ceiling.set(change.rate_limit_total_bps.and_then(limit).map(Rate));
            }
            return Ok(());
        }
        if change.rate_limit_total_bps.is_some() {
            return Err(format!("'sabul {command}' is not a server; use --bwlimit"));
        }
        if let (Some(least), Some(most)) =
            (state.min_rate_bps, change.rate_limit_bps.and_then(limit))
            && most < least
        {
            return Err(format!(
                "--bwlimit {} is below the --min-rate of {}, which would end the copy",
                show_bps(most),
                show_bps(least)
            ));
        }
        if let Some(name) = &change.policy {
            let policy = Policy::named(name).ok_or_else(|| {
                let known = Policy::ALL.map(Policy::name).join(", ");
                format!("unknown policy '{name}'; known policies: {known}")
            })?;
            if state.transfers.is_empty() {
                return Err("the command is not connected yet; try again later".to_owned());
            }
            for transfer in &state.transfers {
                transfer.set_policy(policy).map_err(|error| error.to_string())?;
            }
            state.policy = Some(name.clone());
            state.requested.policy = Some(policy);
        }
        if let Some(bps) = change.rate_limit_bps {
            for transfer in &state.transfers {
                transfer.set_rate_limit(limit(bps).map(Rate)).map_err(|error| error.to_string())?;
            }
            state.rate_limit_bps = limit(bps);
            state.requested.rate_limit_bps = Some(limit(bps));
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the state of one transfer of a server.
fn running(started: &Started, progress: &Progress) -> RunningJson {
    let Started { peer, order, .. } = started;
    let (bytes_total, is_certain) = total(progress);
    let direction = match order.direction {
        Direction::Send => "sending",
        Direction::Receive => "receiving",
    };
    RunningJson {
        peer: served::canonical(*peer).to_string(),
        direction: direction.to_owned(),
        purpose: served::purpose(order.purpose).to_owned(),
        names: served::names(order),
        seconds: progress.elapsed.as_secs_f64(),
        bytes: progress.bytes,
        bytes_total,
        is_total_certain: bytes_total.is_some() && is_certain,
        goodput_bps: goodput_bps(progress),
    }
}

/// Returns the rate of new content over the time so far, in bit/s.
fn goodput_bps(progress: &Progress) -> f64 {
    let new = progress.bytes.saturating_sub(progress.bytes_resumed);
    rate_bps(new, progress.elapsed.as_secs_f64())
}

/// Returns the total number of bytes, and whether the total is final.
fn total(progress: &Progress) -> (Option<u64>, bool) {
    match (progress.entries_total, progress.ahead) {
        (None, Some(ahead)) => (Some(ahead.bytes), ahead.is_all),
        (known, _) => (progress.bytes_total, known.is_some()),
    }
}

#[expect(clippy::cast_precision_loss, reason = "a rate needs few digits")]
fn show_bps(bps: u64) -> String {
    show_rate(bps as f64)
}
