//! Calibration of a path: measures the path from host to host before the run and compares with the
//! settings.
//!
//! Model: small probes on the idle path measure its RTT and losses. A train of full packets, faster
//!     than the path, measures its rate and the queue at its slowest link. Expected values are
//!     computed from the links' settings, measured values from the packets' own times and numbers.
//! Tolerances: 2 % for RTT and rate, plus additions for hosts and chance; each check states the
//!     reason. A failed check is measured once more, so that a busy machine does not fail a correct
//!     path.
//! Not here: outages (the caller leaves outages out), the rate of the back direction, and
//!     quantities that the settings hide from probes. [`Calibration::skipped`] lists skipped
//!     checks.
//! Time: about 2 s for one path, and at most about 5 s plus a few round trips; twice that after a
//!     failed check.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::{io, thread};

use sabul_net::{LinkPlan, LinkStats};
use sabul_units::Span;
use serde::Serialize;

use crate::clock::Clock;
use crate::error::LabError;
use crate::flow::Ends;
use crate::router::{PairPlan, Router, RouterSnapshot};
pub use check::Check;
use path::Direction;
use probe::{ProbePlan, loss_check, rtt_check};
use traffic::{Port, SEND_LATE, Talk, echo, join, open, send_train, take_train, talk};
use train::{Counted, LONE, Train};

mod check;
mod path;
mod probe;
mod traffic;
mod train;

/// Lateness of packets beyond the path's delay that still counts as arrived: threads may wait for
/// the processor.
const LATE: Span = Span::from_millis(300);
/// Paths with a longer RTT, jitter and reordering delay included, are not measured.
const ROUND_TRIP_MAX: Span = Span::from_secs(10);

/// Upper bound on the size of a small probe, in bytes.
const PROBE_BYTES_MAX: u32 = 100;

/// Index of the data direction in the router's counters.
const FORWARD: usize = 0;
/// Measurements, for [`tag`].
const RTT: u32 = 1;
const LOSS: u32 = 2;
const TRAIN: u32 = 3;

/// Calibration of one path.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Calibration {
    /// Names of the path's links, joined by " + ".
    pub path: String,
    /// Checks made.
    pub checks: Vec<Check>,
    /// Checks not made, with reasons.
    pub skipped: Vec<String>,
}

impl Calibration {
    /// Returns whether all checks passed.
    pub fn is_met(&self) -> bool {
        self.checks.iter().all(|check| check.is_met)
    }

    fn add(&mut self, Finding { quantity, check }: Finding) {
        match check {
            Ok(check) => self.checks.push(check),
            Err(why) => self.skipped.push(format!("{quantity}: {why}")),
        }
    }
}

/// A check of a quantity, or the reason for skipping that check.
#[derive(Clone, Debug, PartialEq)]
struct Finding {
    quantity: &'static str,
    check: Result<Check, String>,
}

impl Finding {
    fn skip(quantity: &'static str, why: impl Into<String>) -> Self {
        Self { quantity, check: Err(why.into()) }
    }

    /// Whether the check failed and may pass when repeated. Exact checks, with tolerance 0, are not
    /// repeated.
    fn may_be_chance(&self) -> bool {
        self.check.as_ref().is_ok_and(|check| !check.is_met && check.tolerance > 0.0)
    }
}

/// Returns the findings of `measure`. Failed checks are measured once more: a pause of the machine
/// or a rare random draw spoils one measurement, a wrong path both.
fn measured_twice(
    mut measure: impl FnMut(u32) -> io::Result<Vec<Finding>>,
) -> io::Result<Vec<Finding>> {
    let mut findings = measure(0)?;
    if !findings.iter().any(Finding::may_be_chance) {
        return Ok(findings);
    }
    let mut again = measure(1)?;
    for finding in findings.iter_mut().filter(|finding| finding.may_be_chance()) {
        let same = |other: &Finding| other.quantity == finding.quantity && other.check.is_ok();
        if let Some(at) = again.iter().position(same) {
            *finding = again.swap_remove(at);
        }
    }
    Ok(findings)
}

/// Measures the idle path between two hosts.
///
/// The links must have no outages, and the router must have been restarted with those links. The
/// caller should restart the router again afterwards, because the queue may still be full.
///
/// # Errors
/// If the path names a link that does not exist, or a host's socket fails.
pub(crate) fn calibrate(
    router: &Router,
    links: &[LinkPlan],
    pair: &PairPlan,
    ends: &Ends,
) -> Result<Calibration, LabError> {
    let path = Path::new(links, &pair.path, pair.access_delay)?;
    let mut calibration =
        Calibration { path: path.name.clone(), checks: Vec::new(), skipped: Vec::new() };
    if path.round_trip_max(PROBE_BYTES_MAX) > ROUND_TRIP_MAX {
        let seconds = ROUND_TRIP_MAX.as_secs_f64();
        let why = format!("a round trip may take more than {seconds} s");
        calibration.add(Finding::skip("everything", why));
        return Ok(calibration);
    }
    let failed = |doing| LabError::system(format!("{doing} the path '{}'", path.name));
    let (near, far) = (ends.near_address, ends.far_address);
    let near = ends.near.run(|| open(near))?.map_err(failed("open a socket at the near end of"))?;
    let far = ends.far.run(|| open(far))?.map_err(failed("open a socket at the far end of"))?;
    let clock = Clock::start();
    let ports = join(near, far, clock).map_err(failed("join the ends of"))?;
    let bench = Bench { path: &path, router, positions: &pair.path, ports: &ports, clock };

    let mut add = |findings: io::Result<Vec<Finding>>, doing| {
        let findings = findings.map_err(failed(doing))?;
        findings.into_iter().for_each(|finding| calibration.add(finding));
        Ok::<(), LabError>(())
    };
    add(measured_twice(|round| bench.round_trip(round)), "measure the round trip of")?;
    add(measured_twice(|round| bench.losses(round)), "count the losses of")?;
    add(measured_twice(|round| bench.rate_and_queue(round)), "measure the rate of")?;
    Ok(calibration)
}

/// A path in both directions.
#[derive(Debug)]
struct Path {
    name: String,
    forward: Direction,
    back: Direction,
}

impl Path {
    fn new(links: &[LinkPlan], positions: &[usize], access_delay: Span) -> Result<Self, LabError> {
        let find = |&at: &usize| {
            let count = links.len();
            let unknown = || format!("a path has link {at}, counted from 0, of {count} links");
            links.get(at).ok_or_else(|| LabError::CannotCarry(unknown()))
        };
        let plans: Vec<&LinkPlan> = positions.iter().map(find).collect::<Result<_, _>>()?;
        let names: Vec<&str> = plans.iter().map(|plan| plan.id.as_str()).collect();
        let forward = plans.iter().map(|plan| plan.forward.clone()).collect();
        let back = plans.iter().rev().map(|plan| plan.back.clone()).collect();
        Ok(Self {
            name: names.join(" + "),
            forward: Direction { links: forward, access_delay },
            back: Direction { links: back, access_delay },
        })
    }

    /// Longest RTT of a small packet without queueing.
    fn round_trip_max(&self, size: u32) -> Span {
        let way = |way: &Direction| way.transit(size) + way.latest();
        way(&self.forward) + way(&self.back)
    }
}

/// A path with the means to measure that path.
struct Bench<'a> {
    path: &'a Path,
    router: &'a Router,
    /// Positions of the path's links in the router.
    positions: &'a [usize],
    /// Near and far end.
    ports: &'a [Port; 2],
    clock: Clock,
}

impl Bench<'_> {
    fn round_trip(&self, round: u32) -> io::Result<Vec<Finding>> {
        let Path { forward, back, .. } = self.path;
        let [near, far] = self.ports;
        let size = near.probe_bytes();
        let plan = match ProbePlan::rtt(forward, back, size) {
            Ok(plan) => plan,
            Err(why) => return Ok(vec![Finding::skip("rtt_ms", why)]),
        };
        let tag = tag(RTT, round);
        let (sent, expected) = (AtomicU32::new(u32::MAX), AtomicU32::new(plan.count));
        let linger = self.path.round_trip_max(size) + LATE;
        let probing = Talk { tag, plan, sent: &sent, expected: &expected, linger };
        let done = AtomicBool::new(false);
        let echoes = thread::scope(|scope| {
            let echo = scope.spawn(|| echo(far, tag, &done));
            let echoes = talk(near, &probing);
            done.store(true, Ordering::Relaxed);
            joined(echo).and(echoes)
        })?;
        let check = rtt_check(forward, back, size, echoes.fastest);
        Ok(vec![Finding { quantity: "rtt_ms", check }])
    }

    /// Measures both directions at the same time; the two directions do not share queues.
    fn losses(&self, round: u32) -> io::Result<Vec<Finding>> {
        let ways = [&self.path.forward, &self.path.back];
        let size = self.ports[0].probe_bytes();
        let planned = ways.map(|way| ProbePlan::loss(way, size));
        let plans = [0, 1].map(|way| planned[way].clone().unwrap_or_default());
        let sent = [0, 1].map(|_| AtomicU32::new(u32::MAX));
        let hold = |end: usize| {
            let other = 1 - end;
            // The other end may send that much longer.
            let longer = plans[other].time() + SEND_LATE - plans[end].time();
            let linger = longer + ways[other].transit(size) + ways[other].latest() + LATE;
            let (plan, own, expected) = (plans[end], &sent[end], &sent[other]);
            let talking = Talk { tag: tag(LOSS, round), plan, sent: own, expected, linger };
            talk(&self.ports[end], &talking)
        };
        let before = self.router.snapshot();
        let [at_near, at_far] = thread::scope(|scope| {
            let far = scope.spawn(|| hold(1));
            let near = hold(0);
            joined(far).and_then(|far| Ok([near?, far]))
        })?;
        let after = self.router.snapshot();

        let finding = |quantity, way: usize, arrived| {
            let no_room = |snapshot: &RouterSnapshot| -> u64 {
                let drops = |stats: LinkStats| stats.dropped_full + stats.dropped_early;
                self.positions.iter().map(|&at| drops(stats(snapshot, at, way))).sum()
            };
            let no_room = no_room(&after).saturating_sub(no_room(&before));
            let check = planned[way].clone().and_then(|_| {
                let sent = sent[way].load(Ordering::Acquire);
                loss_check(quantity, ways[way].odds(), sent, arrived, no_room)
            });
            Finding { quantity, check }
        };
        Ok(vec![finding("loss", 0, at_far.probes), finding("loss_back", 1, at_near.probes)])
    }

    fn rate_and_queue(&self, round: u32) -> io::Result<Vec<Finding>> {
        let [near, far] = self.ports;
        let way = &self.path.forward;
        let packet_max = near.mtu()?.min(way.mtu().unwrap_or(u32::MAX));
        let train = match Train::plan(way, packet_max) {
            Ok(train) => train,
            Err(why) => return Ok(vec![Finding::skip("rate_mbps, queue_packets", why)]),
        };
        let snapshot = || {
            let (snapshot, last) = (self.router.snapshot(), way.links.len().saturating_sub(1));
            [train.bottleneck, last].map(|link| stats(&snapshot, self.positions[link], FORWARD))
        };
        let tag = tag(TRAIN, round);
        self.router.restart_queue_max();
        let before = snapshot();
        // Fallback; the actual end is set after the train has left.
        let end = self.clock.now() + train.lone_gap * u64::from(LONE) + ROUND_TRIP_MAX;
        let end = AtomicU64::new(end.0);
        let (sent_for, arrivals) = thread::scope(|scope| {
            let arrivals = scope.spawn(|| take_train(far, tag, &end));
            let sent_for = send_train(near, tag, &train);
            let rest = way.transit(train.packet_bytes) + way.latest() + train.drains_for() + LATE;
            let rest = if sent_for.is_ok() { rest } else { Span::ZERO };
            end.store((self.clock.now() + rest).0, Ordering::Release);
            joined(arrivals).and_then(|arrivals| Ok((sent_for?, arrivals)))
        })?;
        let counted = Counted::between(before, snapshot(), sent_for);

        let link = &way.links[train.bottleneck];
        let rate = train.rate_check(link, &arrivals, counted);
        let queue = train.queue_check(link, &arrivals, counted);
        let counted = train.counted_check(link, counted);
        Ok(vec![
            Finding { quantity: "rate_mbps", check: rate },
            Finding { quantity: "queue_packets", check: queue },
            Finding { quantity: "queue_packets_counted", check: counted },
        ])
    }
}

/// Returns the tag that distinguishes the probes of one measurement from all others.
fn tag(measurement: u32, round: u32) -> u32 {
    16 * round + measurement
}

/// Returns the router's counters of one direction of a link; zero for an unknown link.
fn stats(snapshot: &RouterSnapshot, link: usize, way: usize) -> LinkStats {
    snapshot.links.get(link).map_or_else(LinkStats::default, |ways| ways[way].stats)
}

/// Returns the result of a thread; an error if the thread panicked.
fn joined<T>(thread: thread::ScopedJoinHandle<'_, io::Result<T>>) -> io::Result<T> {
    thread.join().unwrap_or_else(|_| Err(io::Error::other("a measuring thread panicked")))
}

#[cfg(test)]
#[cfg(feature = "namespaces")]
mod tests;

#[cfg(test)]
mod path_tests {
    use super::*;
    use path::testing::link;

    fn plans() -> Vec<LinkPlan> {
        let plan = |id: &str, there, back| LinkPlan {
            id: id.to_owned(),
            forward: link(100, there, 9).build().unwrap(),
            back: link(100, back, 9).build().unwrap(),
        };
        vec![plan("a", 1, 10), plan("b", 2, 20), plan("c", 4, 40)]
    }

    #[test]
    fn a_path_runs_through_its_links_and_back_the_other_way() {
        let path = Path::new(&plans(), &[2, 0], Span::from_millis(100)).unwrap();
        assert_eq!(path.name, "c + a");
        let delays = |way: &Direction| -> Vec<Span> {
            way.links.iter().map(sabul_net::LinkConfig::delay).collect()
        };
        assert_eq!(delays(&path.forward), [4, 1].map(Span::from_millis));
        assert_eq!(delays(&path.back), [10, 40].map(Span::from_millis));
        // 4 + 1 + 10 + 40 ms, 200 ms of access, and 125 bytes at 100 Mb/s four times: 40 us.
        assert_eq!(path.round_trip_max(125), Span::from_micros(255_040));
    }

    #[test]
    fn a_path_over_a_missing_link_is_refused() {
        let error = Path::new(&plans(), &[0, 3], Span::ZERO).unwrap_err().to_string();
        assert!(error.contains("link 3") && error.contains("of 3 links"), "{error}");
    }

    /// Returns the results of two rounds with checks (measured, tolerance) around 10, and the
    /// number of rounds made.
    fn rounds(found: [Vec<Option<(i32, i32)>>; 2]) -> (Vec<Option<i32>>, u32) {
        let mut calls = 0;
        let check = |(measured, tolerance): (i32, i32)| {
            Check::new("", 10.0, f64::from(measured), f64::from(tolerance))
        };
        let findings = measured_twice(|round| {
            calls += 1;
            let found = found[round as usize].iter().zip(["a", "b", "c"]);
            let finding = |(found, quantity): (&Option<_>, _)| Finding {
                quantity,
                check: found.map(check).ok_or_else(String::new),
            };
            Ok(found.map(finding).collect())
        });
        #[expect(clippy::cast_possible_truncation, reason = "it was a whole number")]
        let measured = |finding: Finding| finding.check.ok().map(|check| check.measured as i32);
        (findings.unwrap().into_iter().map(measured).collect(), calls)
    }

    #[test]
    fn only_failed_checks_are_measured_again() {
        let (found, calls) = rounds([vec![Some((10, 1)), None], vec![]]);
        assert_eq!((found, calls), (vec![Some(10), None], 1));
        // The first check passed in round one, the second passes in round two, the third could not
        // be measured again.
        let (found, calls) = rounds([
            vec![Some((11, 1)), Some((5, 1)), Some((4, 1))],
            vec![Some((10, 1)), Some((9, 1)), None],
        ]);
        assert_eq!((found, calls), (vec![Some(11), Some(9), Some(4)], 2));
    }

    #[test]
    fn exact_checks_are_not_measured_again() {
        let (found, calls) = rounds([vec![Some((11, 0))], vec![Some((10, 0))]]);
        assert_eq!((found, calls), (vec![Some(11)], 1));
        let exact_and_not = |measured| vec![Some((measured, 0)), Some((measured, 1))];
        let (found, _) = rounds([exact_and_not(5), exact_and_not(10)]);
        assert_eq!(found, [Some(5), Some(10)]);
    }

    #[test]
    fn a_check_accepts_its_tolerance_and_rejects_nan_and_infinity() {
        let is_met = |measured| Check::new("x", 10.0, measured, 0.5).is_met;
        assert!(is_met(10.5) && is_met(9.5));
        for bad in [10.6, 9.4, f64::INFINITY, f64::NAN] {
            assert!(!is_met(bad), "{bad}");
        }
    }
}
