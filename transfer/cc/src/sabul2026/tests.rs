//! Tests of the controller `sabul2026`: growth, losses, policies and path memory.

mod states;

use super::loss_test::TEST_PART;
use super::*;
use crate::controller::{Moment, RttEstimate, SentNumber};
use crate::reason::Reasons;

const PACKET: Bytes = Bytes(1500);
const BASE: Span = Span::from_millis(100);
/// Rate of the link in packets a second.
const LINK: f64 = 10_000.0;

/// Creates a controller that has found the rate of the link.
fn found(rate: f64) -> Sabul2026 {
    let mut controller = Sabul2026::new(0.002);
    controller.probing.at = Instant::MAX;
    controller.link.train(Some(LINK), Instant::ZERO);
    controller.set_window(rate * 0.1);
    controller
}

fn cx<'a>(now: Instant, rtt: Span) -> Context<'a> {
    let rtt = RttEstimate { latest: rtt, smoothed: rtt, variance: Span::ZERO, min: BASE };
    Context::without_chance(&Moment::new(now, Some(rtt), PACKET))
}

/// Simulated path: ten ACKs per RTT for a given number of RTTs. The RTT is `queue` above the base,
/// packets arrive at `rate` packets a second, and the share `lost` is lost.
#[derive(Debug)]
struct Facts {
    now: Instant,
    total: f64,
    lost: f64,
    next: u64,
    reasons: Reasons,
}

impl Facts {
    fn new() -> Self {
        Self { now: Instant::ZERO, total: 0.0, lost: 0.0, next: 0, reasons: Reasons::default() }
    }

    fn feed(
        &mut self,
        controller: &mut Sabul2026,
        rate: f64,
        queue_ms: f64,
        lost: f64,
        rounds: u64,
    ) {
        for _ in 0..rounds * 10 {
            self.feed_once(controller, rate, queue_ms, lost);
        }
    }

    /// One ACK.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small numbers")]
    fn feed_once(&mut self, controller: &mut Sabul2026, rate: f64, queue_ms: f64, lost: f64) {
        let rtt = BASE + Span::from_secs_f64(queue_ms / 1e3);
        self.now = self.now + rtt / 10;
        let sent = rate * (rtt / 10).as_secs_f64();
        self.total += sent * (1.0 - lost);
        self.lost += sent * lost;
        let largest = (self.total + self.lost) as u64;
        self.next = largest + (rate * rtt.as_secs_f64()) as u64;
        let acked = Acked {
            newly: Packets((sent * (1.0 - lost)) as u64),
            total: Packets(self.total as u64),
            lost: Packets(self.lost as u64),
            largest: SentNumber(largest),
            cumulative_ack: SentNumber(largest),
            next: SentNumber(self.next),
            arrived_at: self.now.since(Instant::ZERO),
            ..Acked::default()
        };
        controller.on_ack(&acked, &mut cx(self.now, rtt).with_reasons(Some(&mut self.reasons)));
    }
}

/// Returns the window after a long time with a standing queue.
fn settled_at(rate: f64, queue_ms: f64) -> f64 {
    let mut controller = found(rate);
    let mut facts = Facts::new();
    // One base RTT, then a standing queue, for less time than leads to a drain.
    facts.feed(&mut controller, rate, 0.0, 0.0, 2);
    facts.feed(&mut controller, rate, queue_ms, 0.0, 30);
    assert_eq!(controller.phase().name(), "cruise");
    controller.window_packets
}

#[test]
fn the_window_of_a_lone_flow_is_the_bdp_plus_a_minimal_queue() {
    // 10 000 packets/s × 100.3 ms × 100.3 ÷ 101, count 1.
    let window = settled_at(LINK, 1.0);
    assert!((window - 996.0).abs() < 2.0, "{window}");
}

#[test]
fn the_queue_target_is_one_theta_at_half_the_link_and_three_at_a_quarter() {
    // Aims are 100 + 0.3 + 2 × (2 - 1) and 100 + 0.3 + 2 × (4 - 1) ms: 5000 × 102.3 ms × 102.3 ÷ 110 and
    // 2500 × 106.3 ms × 106.3 ÷ 110.
    for (rate, expected) in [(5000.0, 475.7), (2500.0, 256.8)] {
        let window = settled_at(rate, 10.0);
        assert!((window - expected).abs() < 2.0, "{rate}: {window} for {expected}");
    }
}

#[test]
fn without_a_queue_the_window_grows_by_the_law_and_later_faster() {
    let mut controller = found(5000.0);
    let mut facts = Facts::new();
    // Less arrives than the window, since a machine was late: no reason to shrink. The flow has a
    // quarter of the link, so `target_delay` is 0.3 + 3 × 2 ms above the base: half of the way to
    // 1.063 in each epoch, and from 300 ms on to 1.063 and one, two, ... sixteenths.
    facts.feed(&mut controller, 2500.0, 0.0, 0.0, 5);
    let half_way = |free: f64| 1.0 + (1.063 * (1.0 + free / 16.0) - 1.0) / 2.0;
    let expected = 500.0 * half_way(0.0).powi(2) * half_way(1.0) * half_way(2.0);
    assert!(
        (controller.window_packets - expected).abs() < 2.0,
        "{} {expected}",
        controller.window_packets
    );
}

#[test]
fn the_gap_is_rtt_over_window_and_the_limit_allows_one_more_ack_interval() {
    let mut controller = found(LINK);
    Facts::new().feed(&mut controller, LINK, 0.0, 0.0, 2);
    let SendLimits { gap, window, .. } = controller.limits();
    let expected = BASE.as_secs_f64() / controller.window_packets;
    assert!((gap.0.as_secs_f64() - expected).abs() < 1e-9);
    // ACKs arrive each SYN interval here: 10 ms of 10 000 packets/s.
    let waiting = window.unwrap().0 as f64 - controller.window_packets;
    assert!((waiting - 100.0).abs() < 3.0, "{waiting}");
}

#[test]
fn losses_that_persist_in_a_test_do_not_reduce_the_window() {
    let mut controller = found(LINK);
    let mut facts = Facts::new();
    facts.feed(&mut controller, LINK, 0.0, 0.0, 3);
    let before = controller.window_packets;
    facts.feed(&mut controller, LINK, 0.3, 0.05, 2);
    assert_eq!(controller.phase().name(), "test");
    let allowed = controller.limits().window.unwrap().0 as f64;
    assert!(allowed < before, "{allowed} of {before}");
    facts.feed(&mut controller, LINK * TEST_PART, 0.0, 0.05, 4);
    assert_eq!(controller.phase().name(), "cruise");
    assert!(
        controller.window_packets >= before * 0.99,
        "{} of {before}",
        controller.window_packets
    );
    // From now on these losses are expected.
    facts.feed(&mut controller, LINK, 0.3, 0.05, 5);
    assert_eq!(controller.phase().name(), "cruise");
}

#[test]
fn losses_that_are_reported_late_do_not_count_in_a_test() {
    let mut controller = found(LINK);
    let mut facts = Facts::new();
    facts.feed(&mut controller, LINK, 0.0, 0.0, 3);
    while controller.phase().name() != "test" {
        facts.feed_once(&mut controller, LINK, 0.3, 0.02);
    }
    facts.feed(&mut controller, LINK, 0.3, 0.02, 1);
    facts.feed(&mut controller, LINK * TEST_PART, 0.0, 0.03, 1);
    facts.feed(&mut controller, LINK * TEST_PART, 0.0, 0.0, 4);
    assert!(controller.losses.random_loss() < 1e-3, "{}", controller.losses.random_loss());
}

#[test]
fn losses_that_stop_in_a_test_reduce_the_window_to_the_arrival_rate() {
    let mut controller = found(LINK);
    let mut facts = Facts::new();
    facts.feed(&mut controller, LINK, 0.0, 0.0, 3);
    let before = controller.window_packets;
    while controller.phase().name() != "test" {
        facts.feed(&mut controller, LINK, 0.3, 0.05, 1);
        assert!(facts.now < Instant::ZERO + Span::from_secs(2), "no test");
    }
    // Losses from before the test are reported for two more RTTs.
    while matches!(controller.state, State::Test(LossTest { settles_left: 1.., .. })) {
        facts.feed_once(&mut controller, LINK, 0.3, 0.05);
    }
    while controller.phase().name() == "test" {
        facts.feed_once(&mut controller, LINK * TEST_PART, 0.0, 0.0);
    }
    assert!(controller.window_packets < before, "{} of {before}", controller.window_packets);
    // 0.95 of the link arrived.
    assert!(controller.window_packets > LINK * 0.1 * 0.94, "{}", controller.window_packets);
}

/// Returns a flow with this rate and theta after losses beside a queue of 20 ms, and its window
/// before.
fn overflown(rate: f64, theta: f64) -> (Sabul2026, f64) {
    let mut controller = Sabul2026 { theta_s: theta, ..found(rate) };
    let mut facts = Facts::new();
    // Longer than the least time between two drains.
    facts.feed(&mut controller, rate, 0.0, 0.0, 12);
    let before = controller.window_packets;
    while controller.phase().name() == "cruise" {
        facts.feed_once(&mut controller, rate, 20.0, 0.01);
        assert!(facts.now < Instant::ZERO + Span::from_secs(3), "no response");
    }
    (controller, before)
}

#[test]
fn loss_with_a_queue_cuts_the_window_and_measures_the_queue_capacity() {
    let (controller, before) = overflown(LINK / 2.0, 0.002);
    assert_eq!(controller.phase().name(), "drain");
    let kept = controller.window_packets / before;
    // The window grew a little before the losses.
    assert!((kept / (WINDOW_KEPT * 0.99) - 1.0).abs() < 0.02, "{kept} of the window");
    assert!((controller.losses.queue_limit_s(0.1) - 0.02).abs() < 1e-4);
    assert!(controller.losses.random_loss() < 1e-9, "nothing of it is random");
    assert!(controller.fallback.cubic.is_none(), "two flows fit into the queue");
}

#[test]
fn a_flow_whose_queue_does_not_fit_becomes_a_cubic_flow() {
    // A tenth of the link: ten flows have a target of 4.9 thetas of 3 ms, and the queue holds 20
    // ms.
    let (controller, _) = overflown(LINK / 10.0, 0.003);
    let cubic = controller.fallback.cubic.expect("the law does not fit").window();
    assert!((controller.window_packets - cubic).abs() < 1e-9);
}

#[test]
fn a_queue_above_any_target_indicates_a_rival_after_two_seconds() {
    let mut controller = found(LINK / 10.0);
    let mut facts = Facts::new();
    facts.feed(&mut controller, LINK / 10.0, 0.0, 0.0, 3);
    // 256 flows have a target of 12 thetas of 2 ms.
    for (queue_ms, is_competitor) in [(20.0, false), (40.0, true)] {
        let end = facts.now + Span::from_secs(4);
        while facts.now < end {
            facts.feed_once(&mut controller, LINK / 10.0, queue_ms, 0.0);
        }
        assert_eq!(controller.competitor.is_detected(), is_competitor, "{queue_ms} ms");
    }
    assert!(
        controller.window_packets >= controller.fallback.cubic.expect("a floor").window() - 1e-9
    );
}

#[test]
fn without_a_known_link_rate_a_flow_keeps_half_a_packet_queued() {
    let mut controller = Sabul2026::new(0.002);
    controller.probing.at = Instant::MAX;
    controller.set_window(100.0);
    let mut facts = Facts::new();
    // A hundred packets a second, each with 5 ms of queue: half a packet is queued.
    facts.feed(&mut controller, 100.0, 0.0, 0.0, 2);
    facts.feed(&mut controller, 100.0, 5.0 + 0.3, 0.0, 35);
    let held = 100.0 * (0.1 + controller.omega_s()) + BLIND_PACKETS;
    assert!(
        (controller.window_packets / held - 1.0).abs() < 0.1,
        "{} of {held}",
        controller.window_packets
    );
}

#[test]
fn a_persistent_queue_is_drained_and_the_window_is_restored() {
    let mut controller = found(5000.0);
    let mut facts = Facts::new();
    facts.feed(&mut controller, 5000.0, 0.0, 0.0, 2);
    facts.feed(&mut controller, 5000.0, 5.0, 0.0, 48);
    assert_eq!(controller.phase().name(), "cruise");
    let before = controller.window_packets;
    while controller.phase().name() == "cruise" {
        facts.feed(&mut controller, 5000.0, 5.0, 0.0, 1);
        assert!(facts.now < Instant::ZERO + Span::from_secs(6), "no drain");
    }
    assert_eq!(controller.phase().name(), "drain");
    // The base RTT less three times the queue of 5 ms.
    assert!(controller.allowed() < before * 0.88);
    facts.feed(&mut controller, 5000.0, 0.0, 0.0, 4);
    assert_eq!(controller.phase().name(), "cruise");
    assert!(controller.window_packets > before * 0.95, "{} of {before}", controller.window_packets);
}

#[test]
fn each_timeout_halves_the_window_down_to_the_minimum() {
    let mut controller = found(LINK);
    Facts::new().feed(&mut controller, LINK, 0.0, 0.0, 2);
    let before = controller.window_packets;
    controller.on_timeout(&mut cx(Instant::ZERO, BASE));
    assert!((controller.window_packets - before / 2.0).abs() < 1e-9);
    (0..40).for_each(|_| controller.on_timeout(&mut cx(Instant::ZERO, BASE)));
    assert!((controller.window_packets - WINDOW_MIN).abs() < 1e-9);
}

#[test]
fn loss_of_more_than_half_is_congestion_even_without_a_queue() {
    let mut controller = found(LINK);
    let mut facts = Facts::new();
    facts.feed(&mut controller, LINK, 0.0, 0.0, 3);
    let before = controller.window_packets;
    facts.feed(&mut controller, 0.4 * LINK, 0.3, 0.6, 6);
    assert!(controller.window_packets < before / 4.0, "{} of {before}", controller.window_packets);
}

#[test]
fn a_search_that_found_no_queue_is_followed_by_a_probe() {
    // LINK in packets of 1500 bytes.
    let percent = |share: u64| Rate(120_000_000 / 100 * share);
    let now = Instant::ZERO + Span::from_secs(1);
    let probes_at_once = |share, hold| {
        let mut controller = found(LINK);
        controller.take_step(SearchStep::Found { rate: percent(share), hold }, &mut cx(now, BASE));
        controller.probing.at <= now
    };
    assert!(probes_at_once(90, None));
    assert!(!probes_at_once(90, Some(Span::from_millis(5))), "the link was full");
    assert!(!probes_at_once(50, None), "others have the rest");
}

#[test]
fn an_interrupted_later_search_continues_at_half_the_earlier_arrival_rate() {
    let window_after = |arrived| {
        let mut controller = found(LINK);
        controller.link.note(arrived, Instant::ZERO);
        let step = SearchStep::Overrun { rate: Rate::from_mbps(1) };
        controller.take_step(step, &mut cx(Instant::ZERO, BASE));
        controller.window_packets
    };
    assert!((window_after(0.8 * LINK) / (0.4 * LINK * 0.1) - 1.0).abs() < 0.1);
    assert!(window_after(0.0) < 10.0);
}
