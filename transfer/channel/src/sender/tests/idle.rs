//! Timers while no data leaves.

use super::*;

/// Returns an ACK that acknowledges nothing.
fn empty(serial: u64) -> Feedback {
    Feedback::Ack(Ack { serial, block_limit: 100, ..Ack::default() })
}

#[test]
fn a_ping_leaves_half_a_second_after_the_newest_report() {
    let mut sender = sender(LossPolicy::Current, &[]);
    let mut pings = Vec::new();
    for ms in 0..2500 {
        if ms % 100 == 0 && ms <= 1200 {
            sender.handle_feedback(at_ms(ms), &empty(ms + 1)).unwrap();
        }
        while let Polled::Ready(packet) = sender.poll(at_ms(ms)) {
            if matches!(packet, Transmit::Ack2 { serial: 0, .. }) {
                pings.push(ms);
            }
        }
    }
    assert_eq!(pings, [1700, 2200], "the newest report is of 1200 ms");
}

#[test]
fn rate_control_stops_while_nothing_is_outstanding() {
    let mut sender = sender(LossPolicy::Current, &[]);
    sender.listen();
    sender.push_block(1000);
    drain(&mut sender, at_ms(0));
    sender.handle_feedback(at_ms(5), &ack(1, 1, 0)).unwrap();
    for ms in 5..100 {
        drain(&mut sender, at_ms(ms));
    }
    let fired = std::iter::from_fn(|| sender.next_fired()).map(|it| (it.at, it.timer));
    assert_eq!(fired.collect::<Vec<_>>(), [(at_ms(10), crate::FiredTimer::Interval)]);
    let ping = at_ms(505);
    let wait = Polled::Wait { until: Some(ping), because: WaitReason::Application };
    assert_eq!(sender.poll(at_ms(100)), wait);
    // New data starts the interval timer again.
    sender.push_block(1000);
    drain(&mut sender, at_ms(100));
    assert_eq!(sender.rate.ends(), Some(at_ms(110)));
}
