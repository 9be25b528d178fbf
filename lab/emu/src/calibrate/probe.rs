//! RTT and loss probes: small packets on an idle path.
//!
//! Model: the gap between probes is long enough that no probe queues behind another. The fastest of
//!     several round trips is taken as the path's RTT, because hosts and router can only add delay.
//!     Missing packets of a one-way series were lost.

use sabul_units::Span;

use super::check::{Check, HOST_TIME, RELATIVE};
use super::path::{Direction, Odds};

/// Number of RTT probes, and the smallest number on a slow path.
const RTT_PROBES: u64 = 20;
const RTT_PROBES_MIN: u64 = 5;
/// Least gap, so that each probe meets idle hosts and an idle router.
const RTT_GAP_MIN: Span = Span::from_millis(5);
/// Time for sending the probes, unless the probes are too few then.
const RTT_TIME: Span = Span::from_secs(2);
/// Probability of no echo at all, above which RTT is not measured.
const SILENCE_MAX: f64 = 0.001;

/// Jitter above this share of the RTT makes the check meaningless.
const SPREAD_MAX: f64 = 0.5;

/// Number of loss probes, the time for sending them, and the smallest useful number.
pub(super) const LOSS_PROBES: u64 = 20_000;
const LOSS_TIME: Span = Span::from_secs(1);
const LOSS_PROBES_MIN: u64 = 5;
/// Least gap, about the resolution of a host's timers.
const LOSS_GAP_MIN: Span = Span::from_micros(50);
/// A router pause of this length collects no more probes than the smallest queue holds.
const PAUSE: Span = Span::from_millis(5);

/// A series of probes on an idle path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ProbePlan {
    /// Number of probes.
    pub(super) count: u32,
    /// Time between two probes.
    pub(super) gap: Span,
}

impl ProbePlan {
    /// Plans probes of `size` bytes that are sent one way and echoed the other way.
    ///
    /// # Errors
    /// If probably no echo would arrive.
    pub(super) fn rtt(forward: &Direction, back: &Direction, size: u32) -> Result<Self, String> {
        let slowest = forward.slowest(size).max(back.slowest(size));
        let gap = RTT_GAP_MIN.max(slowest * 2);
        let count = to_u32((RTT_TIME.0 / gap.0).clamp(RTT_PROBES_MIN, RTT_PROBES));
        let lost = 1.0 - (1.0 - forward.odds().lost) * (1.0 - back.odds().lost);
        if (Odds { lost, clump: 1.0 }).none_arrives(count) > SILENCE_MAX {
            let share = lost * 100.0;
            return Err(format!("{share:.1} % of echoes are lost, so that none may come back"));
        }
        Ok(Self { count, gap })
    }

    /// Plans probes of `size` bytes that are counted at the far end. The probes use at most half of
    /// the slowest link.
    ///
    /// # Errors
    /// If too few probes would fit into the time.
    pub(super) fn loss(way: &Direction, size: u32) -> Result<Self, String> {
        let apart = way.smallest_queue(size).map_or(Span::ZERO, |packets| PAUSE / packets.max(1));
        let gap = LOSS_GAP_MIN.max(way.slowest(size) * 2).max(apart);
        let count = (LOSS_TIME.0 / gap.0).min(LOSS_PROBES);
        if count < LOSS_PROBES_MIN {
            return Err("too few probes would pass its slowest link in a second".to_owned());
        }
        Ok(Self { count: to_u32(count), gap })
    }

    /// Returns the time that sending takes.
    pub(super) fn time(&self) -> Span {
        self.gap * u64::from(self.count)
    }
}

/// Compares the fastest of some round trips of `size` bytes with the links' settings.
///
/// Tolerance: 2 %, [`HOST_TIME`] and all jitter, because any part of the jitter may apply to the
/// fastest probe.
///
/// # Errors
/// If the jitter makes the check meaningless.
pub(super) fn rtt_check(
    forward: &Direction,
    back: &Direction,
    size: u32,
    fastest: Option<Span>,
) -> Result<Check, String> {
    let wanted = (forward.transit(size) + back.transit(size)).as_millis_f64();
    let spread = (forward.spread() + back.spread()).as_millis_f64();
    if spread > wanted * SPREAD_MAX {
        return Err(format!(
            "{spread:.3} ms of jitter would hide what is wrong with {wanted:.3} ms"
        ));
    }
    let measured = fastest.map_or(f64::INFINITY, Span::as_millis_f64);
    let tolerance = wanted * RELATIVE + spread + HOST_TIME.as_millis_f64();
    Ok(Check::new("rtt_ms", wanted, measured, tolerance))
}

/// Compares the share of `sent` packets that did not arrive with the loss probability.
///
/// Packets that were dropped by a full queue (`no_room`, counted by the router) are no losses of
/// the wire. After a pause of the router or a host, even widely spaced probes arrive in a bunch.
///
/// # Errors
/// If no packet was sent.
pub(super) fn loss_check(
    quantity: &str,
    odds: Odds,
    sent: u32,
    arrived: u32,
    no_room: u64,
) -> Result<Check, String> {
    if sent == 0 {
        return Err("no probe could be sent in time".to_owned());
    }
    let missing = u64::from(sent.saturating_sub(arrived)).saturating_sub(no_room);
    let measured = missing as f64 / f64::from(sent);
    Ok(Check::new(quantity, odds.lost, measured, odds.tolerance(sent)))
}

fn to_u32(count: u64) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use sabul_net::{LinkConfig, QueueLimit};
    use sabul_units::{Probability, Rate};

    use super::super::path::testing::{link, way};
    use super::*;

    fn slow(bits_per_second: u64) -> Direction {
        way(vec![link(1, 0, 9).with_rate(Some(Rate(bits_per_second)))], Span::ZERO)
    }

    #[test]
    fn round_trip_probes_never_queue_behind_each_other() {
        let fast = way(vec![link(1_000, 50, 9)], Span::ZERO);
        let plan =
            |forward: &Direction, back: &Direction| ProbePlan::rtt(forward, back, 44).unwrap();
        assert_eq!(plan(&fast, &fast), ProbePlan { count: 20, gap: Span::from_millis(5) });
        // 44 bytes at 10 kbit/s take 35.2 ms; 2 s ÷ 70.4 ms = 28, so still 20.
        let twenty = ProbePlan { count: 20, gap: Span::from_micros(70_400) };
        assert_eq!(plan(&fast, &slow(10_000)), twenty);
        assert_eq!(twenty.time(), Span::from_millis(1_408));
        // At 1 kbit/s 352 ms: 2 s ÷ 704 ms = 2, so the minimum of five.
        let five = ProbePlan { count: 5, gap: Span::from_millis(704) };
        assert_eq!(plan(&slow(1_000), &fast), five);
    }

    #[test]
    fn an_rtt_plan_is_refused_where_echoes_would_be_too_rare() {
        let lossy = |per_mille| {
            way(vec![link(1, 0, 9).with_loss(Probability::per_mille(per_mille))], Span::ZERO)
        };
        // 40 % loss each way: 64 % of echoes, all 20 in 0.64^20 = 0.013 % of runs.
        assert!(ProbePlan::rtt(&lossy(400), &lossy(400), 44).is_ok());
        // 50 % loss each way: 0.75^20 = 0.3 %.
        let why = ProbePlan::rtt(&lossy(500), &lossy(500), 44).unwrap_err();
        assert!(why.contains("75.0 %"), "{why}");
        assert!(ProbePlan::rtt(&lossy(0), &lossy(1_000), 44).is_err());
    }

    #[test]
    fn loss_probes_spare_the_slowest_link_and_the_smallest_queue() {
        let plan = |rate, queue| {
            let link = LinkConfig::builder().with_rate(rate).with_queue(queue);
            ProbePlan::loss(&way(vec![link], Span::ZERO), 44).ok()
        };
        let (gigabit, megabit) = (Some(Rate::from_mbps(1_000)), Some(Rate::from_mbps(1)));
        let many = Some(ProbePlan { count: 20_000, gap: Span::from_micros(50) });
        assert_eq!(plan(gigabit, QueueLimit::Unlimited), many);
        assert_eq!(plan(gigabit, QueueLimit::Packets(100)), many);
        // 5 ms ÷ 10 packets = 0.5 ms; 440 bytes are ten packets too.
        let few = Some(ProbePlan { count: 2_000, gap: Span::from_micros(500) });
        assert_eq!(plan(gigabit, QueueLimit::Packets(10)), few);
        assert_eq!(plan(gigabit, QueueLimit::Bytes(440)), few);
        // Room for less than one packet counts as one.
        let fewest = Some(ProbePlan { count: 200, gap: Span::from_millis(5) });
        assert_eq!(plan(gigabit, QueueLimit::Bytes(10)), fewest);
        // Without a rate no queue fills.
        assert_eq!(plan(None, QueueLimit::Packets(1)), many);
        // 44 bytes at 1 Mb/s: 352 µs, twice that apart.
        let slow = Some(ProbePlan { count: 1_420, gap: Span::from_micros(704) });
        assert_eq!(plan(megabit, QueueLimit::Unlimited), slow);
        // At 1 kbit/s one probe would fit into a second.
        assert_eq!(plan(Some(Rate(1_000)), QueueLimit::Unlimited), None);
    }

    #[test]
    fn a_round_trip_is_judged_by_its_fastest_probe() {
        // 100 bytes: 0.8 ms at 1 Mb/s and 0.08 ms at 10 Mb/s, each way once; 10 + 5 ms of delay and
        // 2 ms of access twice make 19.88 ms. 2 % and 0.3 ms are 0.6976 ms.
        let (there, back) = (vec![link(1, 10, 9)], vec![link(10, 5, 9)]);
        let access = Span::from_millis(2);
        let check = |links: [_; 2], us| {
            let [there, back] = links.map(|links| way(links, access));
            rtt_check(&there, &back, 100, Some(Span::from_micros(us))).unwrap()
        };
        let links = || [there.clone(), back.clone()];
        let exact = check(links(), 19_880);
        assert!((exact.wanted - 19.88).abs() < 1e-9);
        assert!((exact.tolerance - 0.697_6).abs() < 1e-9);
        assert!(exact.is_met);
        for (us, is_met) in [(20_570, true), (20_590, false), (19_190, true), (19_170, false)] {
            assert_eq!(check(links(), us).is_met, is_met, "{us}");
        }
        // With 3 ms of jitter the fastest probe may be that much later.
        let rough = [there.clone(), vec![link(10, 5, 9).with_jitter(Span::from_millis(3))]];
        assert!(check(rough, 23_500).is_met);
    }

    #[test]
    fn a_round_trip_under_much_jitter_is_not_judged() {
        // 2 ms of delay; 0.6 ms of jitter each way is more than half of the delay.
        let rough = way(vec![link(1_000, 1, 9).with_jitter(Span::from_micros(600))], Span::ZERO);
        let why = rtt_check(&rough, &rough, 44, Some(Span::from_millis(2))).unwrap_err();
        assert!(why.contains("1.200 ms of jitter"), "{why}");
    }

    #[test]
    fn a_round_trip_without_an_echo_fails() {
        let near = way(vec![link(1, 1, 9)], Span::ZERO);
        let check = rtt_check(&near, &near, 44, None).unwrap();
        assert!(!check.is_met && check.measured.is_infinite());
    }

    #[test]
    fn a_loss_rate_is_judged_by_its_statistical_tolerance() {
        // 5 % of 10 000: 3 × √(10 000 × 0.05 × 0.95) + 2 = 67.4 around 500.
        let odds = Odds { lost: 0.05, clump: 1.0 };
        let check =
            |lost: u32, no_room| loss_check("loss", odds, 10_000, 10_000 - lost, no_room).unwrap();
        for (lost, is_met) in [(433, true), (432, false), (567, true), (568, false)] {
            assert_eq!(check(lost, 0).is_met, is_met, "{lost}");
        }
        assert!((check(567, 0).measured - 0.056_7).abs() < 1e-9);
        assert!(check(600, 33).is_met, "a full queue is not the wire");
        assert!(check(3, 5).measured.abs() < 1e-9, "no negative losses");
    }

    #[test]
    fn a_lossless_path_must_lose_no_packets() {
        let odds = Odds { lost: 0.0, clump: 1.0 };
        assert!(loss_check("loss", odds, 10, 10, 0).unwrap().is_met);
        assert!(!loss_check("loss", odds, 20_000, 19_999, 0).unwrap().is_met);
        assert!(loss_check("loss", odds, 0, 0, 0).is_err());
    }
}
