//! Plan of a run: links, trees, events, all drawn from the seed.

use std::fmt;
use std::time::Duration;

use sabul_net::LinkConfig;
use sabul_units::{Bytes, Random as _, Rate};

use super::super::swarm::Draw;
use super::super::sync::Files;

pub(super) const SITES: usize = 3;
pub(super) const BLOCK: Bytes = Bytes(4096);
/// Time in which the drawn events happen.
pub(super) const EVENTS_MS: u64 = 5000;
/// Events of one run at most.
pub(super) const EVENTS_MAX: u64 = 20;
/// Direction in which nothing passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cut {
    Both,
    ToReplica,
    ToWriter,
}

#[derive(Clone)]
pub(super) enum Act {
    /// The writer replaces a file, overwrites a file in place, removes a file or an empty directory, renames a file.
    Replace(Vec<u8>, Vec<u8>),
    Overwrite(Vec<u8>, u8),
    Remove(Vec<u8>),
    Move(Vec<u8>, Vec<u8>),
    /// Another program does this at a replica.
    ForeignReplace(usize, Vec<u8>, Vec<u8>),
    ForeignOverwrite(usize, Vec<u8>, u8),
    ForeignRemove(usize, Vec<u8>),
    /// The clock of a replica, or of the writer, moves by these nanoseconds.
    Clock(Option<usize>, i64),
    KillReplica(usize),
    CutPower(usize),
    KillWriter,
    Reset(usize),
    Partition(usize, Cut, Duration),
}

#[derive(Clone)]
pub(super) struct Link {
    pub(super) forward: LinkConfig,
    pub(super) back: LinkConfig,
    pub(super) rtt: Duration,
}

#[derive(Clone)]
pub(super) struct Plan {
    pub(super) links: Vec<Link>,
    pub(super) tree: Files,
    /// Files that the replicas have before the first pass.
    pub(super) old: Vec<Files>,
    pub(super) acts: Vec<(Duration, Act)>,
    /// Pauses between the passes of each replica.
    pub(super) pauses: Vec<Duration>,
    /// Pause between two decisions, and changes that the record writes at once.
    pub(super) step: Duration,
    pub(super) changes_at_once: u32,
    /// The record lacks the sent versions, for the control test.
    pub(super) is_forgetful: bool,
}

impl fmt::Debug for Act {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = String::from_utf8_lossy;
        match self {
            Self::Replace(name, _) => write!(f, "the writer replaces {}", shown(name)),
            Self::Overwrite(name, _) => write!(f, "the writer overwrites {}", shown(name)),
            Self::Remove(name) => write!(f, "the writer removes {}", shown(name)),
            Self::Move(from, to) => write!(f, "the writer moves {} to {}", shown(from), shown(to)),
            Self::ForeignReplace(site, name, _) => {
                write!(f, "another program replaces {} at {site}", shown(name))
            }
            Self::ForeignOverwrite(site, name, _) => {
                write!(f, "another program overwrites {} at {site}", shown(name))
            }
            Self::ForeignRemove(site, name) => {
                write!(f, "another program removes {} at {site}", shown(name))
            }
            Self::Clock(site, by_ns) => write!(f, "clock of {site:?} by {by_ns} ns"),
            Self::KillReplica(site) => write!(f, "replica {site} killed"),
            Self::CutPower(site) => write!(f, "power of replica {site} cut"),
            Self::KillWriter => f.write_str("writer killed"),
            Self::Reset(site) => write!(f, "connections of replica {site} reset"),
            Self::Partition(site, cut, time) => {
                write!(f, "partition of replica {site} for {time:?}: {cut:?}")
            }
        }
    }
}

impl Draw {
    pub(super) fn site(&mut self) -> usize {
        self.0.below(SITES as u64) as usize
    }

    /// Few names, so that changes of several places meet.
    pub(super) fn common_name(&mut self) -> Vec<u8> {
        let folder = ["", "a/", "a/b/"][self.0.below(3) as usize];
        format!("{folder}{}", self.between(0, 2)).into_bytes()
    }

    /// Content that no other file has, of up to three blocks, in few steps.
    pub(super) fn short_content(&mut self) -> Vec<u8> {
        let mut content = self.0.next_u64().to_be_bytes().to_vec();
        let length = if self.one_in(4) { 8 } else { self.between(9, 3 * BLOCK.0) as usize };
        while content.len() < length {
            let fill = content[content.len() - 1].wrapping_add(content[0] | 1);
            content.resize(length.min(content.len() + 1000), fill);
        }
        content
    }

    pub(super) fn common_files(&mut self, most: u64) -> Files {
        (0..self.between(0, most)).map(|_| (self.common_name(), self.short_content())).collect()
    }

    pub(super) fn replicate_act(&mut self) -> Act {
        let site = self.site();
        match self.0.below(28) {
            0..=5 => Act::Replace(self.common_name(), self.short_content()),
            6 | 7 => Act::Overwrite(self.common_name(), self.0.below(256) as u8 | 1),
            8..=10 => {
                let folder = ["a", "a/b"][self.0.below(2) as usize];
                Act::Remove(if self.one_in(4) { folder.into() } else { self.common_name() })
            }
            11 => Act::Move(self.common_name(), self.common_name()),
            12..=15 => Act::ForeignReplace(site, self.common_name(), self.short_content()),
            16 | 17 => Act::ForeignOverwrite(site, self.common_name(), self.0.below(256) as u8 | 1),
            18 => Act::ForeignRemove(site, self.common_name()),
            19 => {
                let hours = i64::try_from(self.between(0, 100)).unwrap() - 50;
                let whose = if self.one_in(3) { None } else { Some(site) };
                Act::Clock(whose, hours * 3_600_000_000_000)
            }
            20 | 21 => Act::KillReplica(site),
            22 => Act::CutPower(site),
            23 | 24 => Act::KillWriter,
            25 => Act::Reset(site),
            _ => {
                let cut = [Cut::Both, Cut::ToReplica, Cut::ToWriter][self.0.below(3) as usize];
                // Some are longer than the timeouts of a session.
                let most = if self.one_in(8) { 45_000 } else { 3000 };
                Act::Partition(site, cut, self.millis(200, most))
            }
        }
    }

    pub(super) fn replicate_plan(&mut self) -> Plan {
        let links = (0..SITES).map(|_| {
            let delay = self.between(100, 60_000);
            let rate = Rate::from_mbps(self.between(1, 50));
            let (forward, back) = (self.link(delay, rate), self.link(delay, rate));
            Link { forward, back, rtt: Duration::from_micros(2 * delay) }
        });
        let links = links.collect();
        let count = self.between(4, EVENTS_MAX);
        let acts = (0..count).map(|_| (self.millis(0, EVENTS_MS), self.replicate_act())).collect();
        Plan {
            links,
            tree: self.common_files(5),
            old: (0..SITES).map(|_| self.common_files(2)).collect(),
            acts,
            pauses: (0..SITES).map(|_| self.millis(600, 3000)).collect(),
            step: Duration::from_millis([0, 5, 20, 50][self.0.below(4) as usize]),
            changes_at_once: if self.one_in(4) { 50 } else { 1 },
            is_forgetful: false,
        }
    }
}
