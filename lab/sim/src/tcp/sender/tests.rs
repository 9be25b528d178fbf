//! Tests of the TCP sender: loss recovery, timers, ECN, and the facts for its controller.

use std::sync::{Arc, Mutex};

use sabul_cc::{Context, Controller};
use sabul_lab_cc::registry::{self, Family};

use super::*;

const MSS: u64 = 1460;

fn at(ms: u64) -> Instant {
    Instant::ZERO + Span::from_millis(ms)
}

/// A controller with a constant window.
#[derive(Debug)]
struct Fixed(u64);

impl Controller for Fixed {
    fn limits(&self) -> SendLimits {
        let gap = sabul_units::Gap(Span::from_millis(2));
        SendLimits { gap, window: Some(Packets(self.0)), hold_until: None }
    }
    fn on_loss(&mut self, _loss: &LossReport, _cx: &mut Context<'_>) {}
    fn on_timeout(&mut self, _cx: &mut Context<'_>) {}
}

/// The same with a window of ten; records the ACKs.
#[derive(Debug, Default)]
struct AckRecorder(Arc<Mutex<Vec<Acked>>>);

impl Controller for AckRecorder {
    fn limits(&self) -> SendLimits {
        Fixed(10).limits()
    }
    fn on_loss(&mut self, _loss: &LossReport, _cx: &mut Context<'_>) {}
    fn on_timeout(&mut self, _cx: &mut Context<'_>) {}
    fn on_ack(&mut self, acked: &Acked, _cx: &mut Context<'_>) {
        self.0.lock().unwrap().push(*acked);
    }
}

/// Returns a controller of the family that keeps its own window in a recovery.
fn guarded(controller: impl Controller + 'static) -> Guarded {
    Guarded::around("test", Family::PacedWindow, Box::new(controller))
}

fn sender(window: u64) -> TcpSender {
    let config = TcpConfig { initial_window: 1000, ..TcpConfig::default() };
    let mut sender = TcpSender::new(at(0), config, guarded(Fixed(window)));
    sender.write(1000 * MSS);
    sender
}

fn newreno(config: TcpConfig) -> TcpSender {
    let controller = registry::find("newreno").unwrap().build(&[], Bytes(1500)).unwrap();
    let mut sender = TcpSender::new(at(0), config, controller);
    sender.write(1000 * MSS);
    sender
}

/// Returns numbers of the segments that leave now, from zero, and the next deadline.
fn drain(sender: &mut TcpSender, now: Instant) -> (Vec<u64>, Option<Instant>) {
    let mut sent = Vec::new();
    loop {
        let next = sender.poll(now);
        sender.check_invariants();
        match next {
            Polled::Ready(segment) => sent.push(segment.seq / MSS),
            Polled::Wait { until, .. } => return (sent, until),
        }
    }
}

/// Processes an ACK of everything before segment `ack`, with blocks of segments, that answers a
/// segment sent at `echo`.
fn ack(sender: &mut TcpSender, now: Instant, ack: u64, blocks: &[(u64, u64)], echo: Instant) {
    let ack = blocks.iter().fold(TcpAck::new(ack * MSS, echo, false), |ack, (first, last)| {
        ack.with_block(first * MSS, (last + 1) * MSS)
    });
    sender.handle_ack(now, &ack);
    sender.check_invariants();
}

#[test]
fn the_window_is_sent_and_each_ack_releases_another_segment() {
    let mut sender = sender(4);
    assert_eq!(drain(&mut sender, at(0)), (vec![0, 1, 2, 3], Some(at(1000))));
    ack(&mut sender, at(100), 2, &[], at(0));
    // Two new segments; the tail probe is due after two round trips.
    assert_eq!(drain(&mut sender, at(100)), (vec![4, 5], Some(at(300))));
    assert_eq!((sender.acked_bytes(), sender.in_flight()), (2 * MSS, Packets(4)));
    assert!(!sender.is_idle());
}

#[test]
fn the_third_segment_beyond_a_gap_starts_recovery() {
    let mut sender = sender(6);
    drain(&mut sender, at(0));
    // 0 is lost. Limited transmit: each arrival beyond it lets one new segment out.
    ack(&mut sender, at(100), 0, &[(1, 1)], at(0));
    assert_eq!(drain(&mut sender, at(100)).0, [6]);
    ack(&mut sender, at(101), 0, &[(1, 2)], at(0));
    assert_eq!(drain(&mut sender, at(101)).0, [7]);
    assert_eq!(sender.stats().recoveries, 0);
    ack(&mut sender, at(102), 0, &[(1, 3)], at(0));
    // On the path: 4 … 7, and now 0 again: 5 of 6, so one new one.
    assert_eq!(drain(&mut sender, at(102)).0, [0, 8]);
    assert_eq!((sender.stats().recoveries, sender.stats().lost), (1, 1));
    // The recovery ends when everything sent before it (0 … 7) has arrived, not earlier.
    ack(&mut sender, at(200), 7, &[], at(102));
    assert!(matches!(sender.recovery, Recovery::Fast { point: 8, .. }), "{:?}", sender.recovery);
    ack(&mut sender, at(201), 8, &[], at(102));
    assert_eq!(sender.recovery, Recovery::Open);
}

#[test]
fn a_window_controllers_recovery_uses_proportional_rate_reduction() {
    let mut sender = newreno(TcpConfig::default());
    drain(&mut sender, at(0));
    // Lost: 0 of ten. The window halves: ceil(n × 5 / 10) have left after n arrivals, until five
    // are in flight.
    let counts = (3..9).map(|n| {
        ack(&mut sender, at(100 + n), 0, &[(1, n)], at(0));
        drain(&mut sender, at(100 + n)).0.len()
    });
    assert_eq!(counts.collect::<Vec<_>>(), [2, 0, 1, 0, 0, 1]);
    assert_eq!((sender.window(), sender.in_flight()), (Packets(5), Packets(5)));
}

#[test]
fn a_lost_retransmission_reduces_the_window_exactly_once_more() {
    let mut sender = newreno(TcpConfig::default());
    drain(&mut sender, at(0));
    ack(&mut sender, at(100), 0, &[(2, 9)], at(0));
    assert_eq!(drain(&mut sender, at(100)).0, [0, 1, 10, 11, 12]);
    assert_eq!((sender.stats().recoveries, sender.window()), (1, Packets(5)));
    // The three that left after the copies of 0 and 1 arrive, the copies do not.
    ack(&mut sender, at(200), 0, &[(2, 12)], at(0));
    assert_eq!((sender.stats().recoveries, sender.window()), (2, Packets(2)));
    assert_eq!(drain(&mut sender, at(200)).0, [0, 1]);
    ack(&mut sender, at(300), 13, &[], at(200));
    assert_eq!((sender.stats().recoveries, sender.recovery), (2, Recovery::Open));
}

#[test]
fn new_data_is_sent_after_retransmissions() {
    let mut sender = sender(8);
    sender.written = 9 * MSS;
    drain(&mut sender, at(0));
    // 0 and 4 are lost on the path. Three arrivals make everything late that left before 3.
    ack(&mut sender, at(100), 0, &[(1, 3)], at(0));
    assert_eq!(drain(&mut sender, at(100)).0, [0, 8]);
    // In a recovery a hole counts as lost at once if no reordering was seen.
    ack(&mut sender, at(101), 0, &[(5, 5), (1, 3)], at(0));
    assert_eq!(drain(&mut sender, at(101)).0, [4]);
    assert_eq!(sender.stats().resent, 2);
}

#[test]
fn a_late_segment_is_lost_after_a_quarter_of_a_round_trip() {
    let mut sender = sender(3);
    assert_eq!(drain(&mut sender, at(0)).0, [0, 1, 2]);
    // 1 and 2 arrive first: too few to mark 0 lost; it left 100 ms before, and the window adds 25.
    ack(&mut sender, at(100), 0, &[(1, 2)], at(0));
    assert_eq!(drain(&mut sender, at(100)), (vec![3, 4], Some(at(125))));
    assert_eq!((sender.stats().lost, sender.in_flight()), (0, Packets(3)));
    assert_eq!(drain(&mut sender, at(125)).0, [0]);
    assert_eq!((sender.stats().lost, sender.stats().recoveries), (1, 1));
}

#[test]
fn the_reorder_window_applies_during_recovery_too() {
    let mut sender = sender(10);
    drain(&mut sender, at(0));
    ack(&mut sender, at(100), 0, &[(1, 2)], at(0));
    ack(&mut sender, at(101), 3, &[], at(0));
    drain(&mut sender, at(101));
    // Segment 0 arrived after 2, without retransmission. Six arrivals beyond 3 therefore only make
    // 3 late.
    ack(&mut sender, at(110), 3, &[(4, 9)], at(0));
    assert_eq!((sender.stats().lost, sender.stats().recoveries), (0, 0));
    assert!(sender.timers.reorder.is_some());
}

#[test]
fn a_recovery_in_which_only_late_segments_arrive_is_undone() {
    let mut sender = newreno(TcpConfig::default());
    drain(&mut sender, at(0));
    ack(&mut sender, at(100), 0, &[(1, 3)], at(0));
    assert_eq!(sender.window(), Packets(5));
    assert_eq!(drain(&mut sender, at(100)).0, [0, 10]);
    // Segment 0 arrives late, its copy later.
    ack(&mut sender, at(105), 11, &[], at(0));
    assert_eq!((sender.recovery, sender.stats().undone), (Recovery::Open, 1));
    assert!(sender.window() >= Packets(10), "{:?}", sender.window());
}

#[test]
fn a_recovery_ended_by_a_retransmission_is_not_undone() {
    let mut sender = newreno(TcpConfig::default());
    drain(&mut sender, at(0));
    ack(&mut sender, at(100), 0, &[(1, 3)], at(0));
    drain(&mut sender, at(100));
    ack(&mut sender, at(200), 11, &[], at(100));
    assert_eq!((sender.recovery, sender.stats().undone), (Recovery::Open, 0));
    assert_eq!(sender.window(), Packets(6), "half, and one for a round trip");
}

#[test]
fn a_lost_tail_is_repaired_by_a_probe_and_reduces_the_window() {
    let mut sender = newreno(TcpConfig::default());
    sender.written = 10 * MSS;
    drain(&mut sender, at(0));
    ack(&mut sender, at(100), 9, &[], at(0));
    // Only the last segment is missing: 2 × 100 ms and 200 for a delayed ACK, but the timer is at 400.
    assert_eq!(drain(&mut sender, at(100)), (vec![], Some(at(400))));
    assert_eq!(drain(&mut sender, at(400)).0, [9]);
    sender.write(2 * MSS);
    drain(&mut sender, at(410));
    let window = sender.window();
    ack(&mut sender, at(500), 10, &[], at(400));
    assert_eq!((sender.stats().lost, sender.window()), (0, window), "which copy is not known yet");
    ack(&mut sender, at(510), 12, &[], at(410));
    assert_eq!((sender.stats().lost, sender.stats().timeouts, sender.stats().probes), (1, 0, 1));
    assert!(sender.window() < window, "{:?}", sender.window());
}

#[test]
fn a_tail_probe_that_arrives_twice_does_not_reduce_the_window() {
    let mut sender = newreno(TcpConfig::default());
    sender.written = 10 * MSS;
    drain(&mut sender, at(0));
    ack(&mut sender, at(100), 8, &[], at(0));
    assert_eq!(drain(&mut sender, at(300)).0, [9]);
    let window = sender.window();
    ack(&mut sender, at(310), 10, &[], at(0));
    sender.handle_ack(at(400), &TcpAck::new(10 * MSS, at(0), false).with_duplicate());
    sender.write(MSS);
    drain(&mut sender, at(410));
    ack(&mut sender, at(510), 11, &[], at(410));
    assert_eq!(sender.stats().lost, 0);
    assert!(sender.window() >= window);
}

#[test]
fn the_retransmission_timer_marks_all_lost_and_doubles() {
    let mut sender = newreno(TcpConfig::default());
    drain(&mut sender, at(0));
    ack(&mut sender, at(100), 2, &[], at(0));
    assert_eq!(drain(&mut sender, at(100)), (vec![10, 11, 12, 13], Some(at(300))));
    // The probe is new data; from there 100 + max(200, 4 × 50) = 300 ms.
    assert_eq!(drain(&mut sender, at(300)), (vec![14], Some(at(600))));
    assert_eq!(drain(&mut sender, at(599)).0, [] as [u64; 0]);
    // One packet, the first that has not arrived; the next time in 600 ms.
    assert_eq!(drain(&mut sender, at(600)), (vec![2], Some(at(1200))));
    assert_eq!((sender.window(), sender.phase().name()), (Packets(1), "slow-start"));
    assert_eq!(drain(&mut sender, at(1200)), (vec![2], Some(at(2400))));
    assert_eq!(sender.stats().timeouts, 2);
    // The window is 2, then 4.
    ack(&mut sender, at(1300), 3, &[], at(1200));
    assert_eq!(drain(&mut sender, at(1300)).0, [3, 4]);
    ack(&mut sender, at(1400), 5, &[], at(1300));
    assert_eq!(drain(&mut sender, at(1400)).0, [5, 6, 7, 8]);
    assert_eq!(sender.stats().spurious_timeouts, 0);
}

#[test]
fn a_spurious_timeout_is_detected_by_the_timestamp_echo() {
    let mut sender = newreno(TcpConfig::default());
    drain(&mut sender, at(0));
    assert_eq!(drain(&mut sender, at(1000)).0, [10], "the probe");
    assert_eq!(drain(&mut sender, at(2000)).0, [0]);
    // The first copy of segment 0 took 2.1 s.
    ack(&mut sender, at(2100), 1, &[], at(0));
    assert_eq!((sender.stats().timeouts, sender.stats().spurious_timeouts), (1, 1));
    // The previous state is restored: ten of eleven are on the path, and the copy.
    assert_eq!((sender.recovery, sender.window()), (Recovery::Open, Packets(11)));
    assert_eq!(sender.in_flight(), Packets(10));
    ack(&mut sender, at(2101), 2, &[], at(0));
    assert_eq!(sender.stats().spurious_timeouts, 1, "judged once");
}

#[test]
fn after_a_timeout_no_recovery_begins_before_the_recovery_point() {
    let mut sender = newreno(TcpConfig::default());
    drain(&mut sender, at(0));
    drain(&mut sender, at(1000));
    drain(&mut sender, at(2000));
    // The window was 10 and fully used: the threshold is 5.
    ack(&mut sender, at(2100), 1, &[(5, 9)], at(2000));
    drain(&mut sender, at(2100));
    assert_eq!((sender.stats().recoveries, sender.window()), (0, Packets(5)));
    ack(&mut sender, at(2200), 11, &[], at(2100));
    assert_eq!(sender.recovery, Recovery::Open);
}

#[test]
fn the_receive_window_bounds_outstanding_data() {
    let config = TcpConfig { window_packets: Some(3), ..TcpConfig::default() };
    let mut sender = newreno(config);
    assert_eq!(drain(&mut sender, at(0)).0, [0, 1, 2]);
    // 1 and 2 have arrived, but segments beyond a hole still use the receiver's window.
    ack(&mut sender, at(100), 0, &[(1, 2)], at(0));
    assert_eq!(drain(&mut sender, at(100)).0, [] as [u64; 0]);
    ack(&mut sender, at(200), 3, &[], at(0));
    assert_eq!(drain(&mut sender, at(200)).0, [3, 4, 5]);
}

#[test]
fn the_first_window_is_the_smaller_of_both() {
    let mut sender = newreno(TcpConfig { initial_window: 2, ..TcpConfig::default() });
    assert_eq!(drain(&mut sender, at(0)).0, [0, 1]);
}

#[test]
fn a_paced_sender_keeps_the_controllers_gap() {
    let mut sender = sender(8);
    sender.config.is_paced = true;
    assert_eq!(drain(&mut sender, at(0)), (vec![0], Some(at(2))));
    assert_eq!(drain(&mut sender, at(1)), (vec![], Some(at(2))));
    assert_eq!(drain(&mut sender, at(2)), (vec![1], Some(at(4))));
}

#[test]
fn short_writes_make_short_segments_and_the_last_ack_stops_the_timer() {
    let mut sender = newreno(TcpConfig::default());
    sender.written = MSS + 10;
    let mut sizes = Vec::new();
    while let Polled::Ready(segment) = sender.poll(at(0)) {
        sizes.push((segment.length, segment.wire_bytes()));
    }
    assert_eq!(sizes, [(1460, 1500), (10, 50)]);
    sender.handle_ack(at(50), &TcpAck::new(MSS + 10, at(0), false));
    assert!(sender.is_idle());
    assert_eq!(drain(&mut sender, at(50)), (vec![], None));
}

#[test]
fn an_ecn_mark_halves_the_window_and_sets_cwr_on_one_new_segment() {
    let mut sender = newreno(TcpConfig { is_ecn_capable: true, ..TcpConfig::default() });
    drain(&mut sender, at(0));
    let mut answered = Vec::new();
    for n in 1..=10 {
        sender.handle_ack(at(100 + n), &TcpAck::new(n * MSS, at(0), true));
        while let Polled::Ready(segment) = sender.poll(at(100 + n)) {
            assert!(segment.is_ecn_capable);
            answered.push(segment.is_window_reduced);
        }
    }
    assert_eq!((sender.window(), sender.stats().mark_events), (Packets(5), 1));
    // No segment leaves until five are in flight; then one for each ACK.
    assert_eq!(answered, [true, false, false, false, false]);
    // The answering segment, 10, is beyond that round trip.
    sender.handle_ack(at(300), &TcpAck::new(11 * MSS, at(106), true));
    assert_eq!((sender.window(), sender.stats().mark_events), (Packets(2), 2));
    assert_eq!(sender.stats().resent, 0);
}

#[test]
fn impossible_or_old_acks_change_nothing() {
    let mut sender = sender(6);
    drain(&mut sender, at(0));
    ack(&mut sender, at(100), 3, &[], at(0));
    drain(&mut sender, at(100));
    let before = (sender.in_flight(), sender.acked_bytes(), sender.rtt());
    ack(&mut sender, at(101), 2, &[(4, 5)], at(0));
    ack(&mut sender, at(101), 50, &[], at(0));
    ack(&mut sender, at(101), 3, &[(20, 30)], at(0));
    assert_eq!((sender.in_flight(), sender.acked_bytes(), sender.rtt()), before);
}

#[test]
fn the_controller_gets_sacked_lost_and_app_limited_state_with_each_ack() {
    let received = Arc::default();
    let mut sender =
        TcpSender::new(at(0), TcpConfig::default(), guarded(AckRecorder(Arc::clone(&received))));
    sender.write(12 * MSS);
    drain(&mut sender, at(0));
    // Segments 1 to 10 left, of which 1 arrived and 2 did not.
    ack(&mut sender, at(100), 1, &[(2, 2)], at(0));
    ack(&mut sender, at(101), 1, &[(2, 4)], at(0));
    // 11 and 12 leave with the window full but for the last ACKs; then there is nothing to send.
    drain(&mut sender, at(101));
    ack(&mut sender, at(102), 10, &[], at(0));
    drain(&mut sender, at(102));
    sender.write(MSS);
    drain(&mut sender, at(103));
    ack(&mut sender, at(201), 12, &[], at(101));
    let reported: Vec<_> = received
        .lock()
        .unwrap()
        .iter()
        .map(|acked| (acked.cumulative_ack.0, acked.largest.0, acked.lost.0, acked.is_app_limited))
        .collect();
    assert_eq!(reported[..3], [(1, 3, 0, false), (1, 5, 1, false), (10, 10, 1, true)]);
    assert_eq!(reported[3], (12, 12, 1, true));
}

#[test]
fn timer_losses_are_not_reported_as_detected_losses() {
    let received = Arc::default();
    let mut sender =
        TcpSender::new(at(0), TcpConfig::default(), guarded(AckRecorder(Arc::clone(&received))));
    sender.write(100 * MSS);
    drain(&mut sender, at(0));
    drain(&mut sender, at(5000));
    drain(&mut sender, at(6000));
    ack(&mut sender, at(6100), 1, &[], at(6000));
    assert_eq!(sender.stats().lost, 11, "the probe as well");
    assert_eq!(received.lock().unwrap()[0].lost, Packets(0));
}
