//! Shared rate limit of all transfers that a process sends, or of all that it receives.
//!
//! Source:      ours; max-min fair shares, as fair queueing would give.
//! Model:       each end reports its use once per [`UPDATE_INTERVAL`], or later if its share is small. An end that used
//!              less than [`USED_PART`] of its share is granted 1.5 times its use. The rest is divided equally among the
//!              other ends, including newcomers.
//! Invariants:  the shares never sum to more than the ceiling; a share is never zero.
//! Bounds:      an end applies a smaller share at its next update. Until then the sum may exceed the ceiling by a
//!              newcomer's share. A receiver forwards the share to its sender, which takes one RTT more.
//! Not here:    how a sender keeps its share (`sabul-channel`); limits of one transfer, and how a receiver's limit
//!              reaches the sender (`steer.rs`).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use sabul_units::{Instant, Rate, Span};

use crate::lock::lock;

/// Update interval. Ours: long compared with a sender's bursts, short compared with human perception.
const UPDATE_INTERVAL: Span = Span::from_millis(100);
/// An end that used at least this part of its share could use more. Ours: packets, batches and timers cost a sender a
/// few percent.
const USED_PART: f64 = 0.8;
/// A use below that part counts only once the share has allowed this many bytes, two of the largest packets: a slow end
/// sends nothing in most intervals.
const JUDGED_BYTES: f64 = 131_072.0;
/// Grant of an end that used less than [`USED_PART`] of its share, as a multiple of its use.
const HEADROOM: f64 = 1.5;
/// An idle end keeps this fraction (1/n) of an equal share, to show renewed demand.
const LEAST_DIVISOR: f64 = 8.0;

/// Rate limit in bit/s of all transfers that this process sends at the same time, or of all that it receives; clones
/// share the limit.
///
/// The limit counts the bytes of channels, including headers and retransmissions. For received data
/// ([`ListenerConfig::receiving`](crate::ListenerConfig::receiving)), each sender receives its share by message, and
/// may be faster for one RTT.
#[derive(Clone, Debug)]
pub struct Ceiling {
    shared: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    /// `None` is no limit.
    total_bps: Option<u64>,
    next_key: u64,
    members: BTreeMap<u64, Need>,
}

/// Demand of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Need {
    /// As much as possible.
    All,
    /// This many bit/s.
    Some(f64),
}

/// Two ceilings are equal if they are clones of each other.
impl PartialEq for Ceiling {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }
}

impl Eq for Ceiling {}

/// No limit.
impl Default for Ceiling {
    fn default() -> Self {
        Self::open()
    }
}

impl Ceiling {
    /// Makes a ceiling of this rate, at least 1 bit/s.
    pub fn new(total: Rate) -> Self {
        let ceiling = Self::open();
        ceiling.set(Some(total));
        ceiling
    }

    /// Makes a ceiling without a limit, which may be set later.
    pub fn open() -> Self {
        let state = State { total_bps: None, next_key: 0, members: BTreeMap::new() };
        Self { shared: Arc::new(Mutex::new(state)) }
    }

    /// Sets the limit, at least 1 bit/s, or removes the limit. Transfers apply the change within 0.1 s.
    pub fn set(&self, total: Option<Rate>) {
        self.lock().total_bps = total.map(|rate| rate.0.max(1));
    }

    /// Returns the limit in bit/s; `None` without a limit.
    pub fn total_bps(&self) -> Option<u64> {
        self.lock().total_bps
    }

    /// Adds an endpoint that sends or receives.
    pub(crate) fn join(&self) -> Member {
        let mut state = self.lock();
        let key = state.next_key;
        state.next_key += 1;
        state.members.insert(key, Need::All);
        let share_bps = state.share(key);
        drop(state);
        Member { ceiling: self.clone(), key, share_bps, last: None }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.shared)
    }
}

impl State {
    /// Share of this endpoint in bit/s: its demand, or an equal part of the rest.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to the ceiling")]
    fn share(&self, key: u64) -> Option<u64> {
        let total = self.total_bps? as f64;
        let least = total / self.members.len().max(1) as f64 / LEAST_DIVISOR;
        let bound = |need: &Need| match *need {
            Need::All => f64::INFINITY,
            Need::Some(bps) => bps.max(least),
        };
        let mut needs: Vec<f64> = self.members.values().map(bound).collect();
        needs.sort_by(f64::total_cmp);
        // Water-filling: an endpoint that needs less than an equal part of the rest gets its demand.
        let (mut rest, mut left) = (total, needs.len());
        for need in needs {
            if need >= rest / left as f64 {
                break;
            }
            rest -= need;
            left -= 1;
        }
        let equal = if left == 0 { total } else { rest / left as f64 };
        let own = self.members.get(&key).map_or(f64::INFINITY, bound);
        Some((own.min(equal) as u64).max(1))
    }
}

/// An endpoint below a ceiling; dropping the value frees its share.
#[derive(Debug)]
pub(crate) struct Member {
    ceiling: Ceiling,
    key: u64,
    share_bps: Option<u64>,
    /// Time of the last update, and the bytes sent by then.
    last: Option<(Instant, u64)>,
}

impl Member {
    /// Share of the endpoint in bit/s; `None` without a limit.
    pub(crate) const fn share_bps(&self) -> Option<u64> {
        self.share_bps
    }

    /// Reports the total bytes sent or received; returns whether the share has changed.
    pub(crate) fn update(&mut self, now: Instant, sent_bytes: u64) -> bool {
        let Some((since, before)) = self.last else {
            self.last = Some((now, sent_bytes));
            return false;
        };
        let time = now.since(since);
        if time < UPDATE_INTERVAL {
            return false;
        }
        let used = sent_bytes.saturating_sub(before) as f64 * 8.0 / time.as_secs_f64();
        let is_judged = |share: u64| {
            let share = share as f64;
            used >= USED_PART * share || share * time.as_secs_f64() >= 8.0 * JUDGED_BYTES
        };
        if !self.share_bps.is_none_or(is_judged) {
            return false;
        }
        self.last = Some((now, sent_bytes));
        let need = match self.share_bps {
            Some(share) if used < USED_PART * share as f64 => Need::Some(used * HEADROOM),
            _ => Need::All,
        };
        let mut state = self.ceiling.lock();
        state.members.insert(self.key, need);
        let share_bps = state.share(self.key);
        drop(state);
        let has_changed = self.share_bps != share_bps;
        self.share_bps = share_bps;
        has_changed
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.ceiling.lock().members.remove(&self.key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MBPS: u64 = 1_000_000;

    /// Runs endpoints that use their shares up to `demands` Mb/s; returns their last rates in Mb/s.
    fn shares(ceiling: &Ceiling, rounds: u64, demands: &[u64]) -> Vec<u64> {
        let mut members: Vec<Member> = demands.iter().map(|_| ceiling.join()).collect();
        let mut sent = vec![0; demands.len()];
        for round in 0..rounds {
            let now = Instant::ZERO + Span::from_millis(round * 100);
            for (at, member) in members.iter_mut().enumerate() {
                member.update(now, sent[at]);
            }
            for (at, member) in members.iter().enumerate() {
                sent[at] += share_of(member).min(demands[at] * MBPS) / 80;
            }
        }
        let all: u64 = members.iter().map(share_of).sum();
        assert!(all <= ceiling.total_bps().unwrap(), "{all}");
        members
            .iter()
            .zip(demands)
            .map(|(it, demand)| share_of(it).min(demand * MBPS) / MBPS)
            .collect()
    }

    fn share_of(member: &Member) -> u64 {
        member.share_bps().unwrap()
    }

    #[test]
    fn unused_shares_are_divided_equally_among_the_other_transfers() {
        let ceiling = Ceiling::new(Rate(100 * MBPS));
        assert_eq!(shares(&ceiling, 10, &[1000]), [100]);
        assert_eq!(shares(&ceiling, 20, &[1000; 4]), [25; 4]);
        let parts = shares(&ceiling, 40, &[1000, 1000, 10]);
        assert_eq!((parts[2], parts[0]), (10, parts[1]), "{parts:?}");
        assert!((40..=45).contains(&parts[0]), "10 of 100, and half as much again: {parts:?}");
    }

    #[test]
    fn an_end_whose_packets_take_longer_than_an_interval_is_not_idle() {
        let ceiling = Ceiling::new(Rate(4 * MBPS));
        let mut members: Vec<Member> = (0..5).map(|_| ceiling.join()).collect();
        // Packets of 64 KiB, as fast as the share permits.
        let mut sent = [0; 5];
        for update in 0..300 {
            let now = Instant::ZERO + Span::from_millis(update * 100);
            for (member, sent) in members.iter_mut().zip(&mut sent) {
                *sent += share_of(member) / 80;
                member.update(now, *sent / 65_536 * 65_536);
            }
        }
        let least = members.iter().map(share_of).min().unwrap();
        assert!(least > MBPS / 2, "{members:?}");
    }

    #[test]
    fn a_transfer_that_resumes_sending_regains_an_equal_share() {
        let ceiling = Ceiling::new(Rate(100 * MBPS));
        let (mut one, mut other) = (ceiling.join(), ceiling.join());
        let (mut ones, mut others) = (0, 0);
        let mut least = u64::MAX;
        for update in 0..60 {
            let now = Instant::ZERO + Span::from_millis(update * 100);
            one.update(now, ones);
            other.update(now, others);
            ones += share_of(&one) / 80;
            // Idle for two seconds.
            if !(20..40).contains(&update) {
                others += share_of(&other) / 80;
            }
            least = least.min(share_of(&other));
        }
        assert!(least <= 7 * MBPS, "what it did not need went elsewhere: {least}");
        assert_eq!((share_of(&one), share_of(&other)), (50 * MBPS, 50 * MBPS));
        drop(one);
        other.update(Instant::ZERO + Span::from_millis(6000), others);
        assert_eq!(share_of(&other), 100 * MBPS, "an end that is dropped frees its share");
    }

    #[test]
    fn a_changed_ceiling_applies_at_the_next_update_and_is_never_zero() {
        let ceiling = Ceiling::new(Rate(0));
        assert_eq!(ceiling.total_bps(), Some(1));
        let mut member = ceiling.join();
        assert_eq!(share_of(&member), 1);
        ceiling.set(Some(Rate(8 * MBPS)));
        assert!(!member.update(Instant::ZERO, 0), "the first update begins the interval");
        assert!(!member.update(Instant::ZERO + Span::from_millis(50), 0));
        assert!(member.update(Instant::ZERO + Span::from_millis(100), 1000));
        assert_eq!(share_of(&member), 8 * MBPS);
        assert!(ceiling == ceiling.clone() && ceiling != Ceiling::new(Rate(8 * MBPS)));
    }

    #[test]
    fn an_unset_ceiling_does_not_limit_rates() {
        let ceiling = Ceiling::open();
        let (mut one, other) = (ceiling.join(), ceiling.join());
        assert_eq!((one.share_bps(), other.share_bps()), (None, None));
        assert!(!one.update(Instant::ZERO, 0));
        assert!(!one.update(Instant::ZERO + Span::from_millis(100), 1 << 40));
        ceiling.set(Some(Rate(100 * MBPS)));
        assert!(one.update(Instant::ZERO + Span::from_millis(200), 1 << 41));
        assert_eq!(share_of(&one), 50 * MBPS, "as much as an end without a report");
        ceiling.set(None);
        assert!(one.update(Instant::ZERO + Span::from_millis(300), 1 << 41));
        assert_eq!((one.share_bps(), ceiling.total_bps()), (None, None));
    }
}
