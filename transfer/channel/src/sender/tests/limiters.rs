//! Causes of waiting, and the time charged to each.

use super::*;

/// Returns the cause with the most time so far.
fn main_cause(sender: &Sender) -> Cause {
    sender.limiters().into_iter().max_by_key(|limiter| limiter.time).unwrap().why
}

/// Runs a turn each millisecond for a second; returns the cause with the most time.
fn cause_of_a_second(sender: &mut Sender, mut turn: impl FnMut(&mut Sender, Instant)) -> Cause {
    for ms in 0..1000 {
        turn(sender, at_ms(ms));
        drain(sender, at_ms(ms));
    }
    main_cause(sender)
}

#[test]
fn each_limiting_cause_is_accounted_for() {
    let full = |sender: &mut Sender| (0..100).for_each(|_| sender.push_block(10_000));
    let nothing = |_: &mut Sender, _| {};
    let mut source = sender(LossPolicy::Current, &[]);
    assert_eq!(cause_of_a_second(&mut source, nothing), Cause::Application);

    // 1000 packets at 12 Mbit/s and less: one in a millisecond or more.
    let mut path = sender(LossPolicy::Current, &[("rate_mbps", "6")]);
    full(&mut path);
    let answer = |sender: &mut Sender, now: Instant| {
        let sent = sender.stats().sent;
        if sent > 0 {
            let serial = now.elapsed().as_nanos() / 1_000_000 + 1;
            sender.handle_feedback(now, &ack(serial, sent, sent - 1)).unwrap();
        }
    };
    assert_eq!(cause_of_a_second(&mut path, answer), Cause::Path);

    let mut cap = sender(LossPolicy::Current, &[("rate_mbps", "6")]);
    cap.limit_rate(Some(Rate::from_mbps(5)));
    full(&mut cap);
    assert_eq!(cause_of_a_second(&mut cap, answer), Cause::Cap);
    let mut loose = sender(LossPolicy::Current, &[("rate_mbps", "6")]);
    loose.limit_rate(Some(Rate::from_mbps(7)));
    full(&mut loose);
    assert_eq!(cause_of_a_second(&mut loose, answer), Cause::Path);

    // Two packets in flight, and an ACK that acknowledges nothing.
    let mut window = sender(LossPolicy::Current, &[]);
    window.window.set_unacknowledged_max(Packets(2));
    full(&mut window);
    let ping = |sender: &mut Sender, now: Instant| {
        let serial = now.elapsed().as_nanos() / 1_000_000 + 1;
        let nothing = Ack { serial, block_limit: 100, ..Ack::default() };
        sender.handle_feedback(now, &Feedback::Ack(nothing)).unwrap();
        // No expiry while an answer is due.
        sender.silence.stop();
    };
    assert_eq!(cause_of_a_second(&mut window, ping), Cause::Window);

    let mut congested = sender(LossPolicy::Current, &[("window_packets", "2")]);
    full(&mut congested);
    assert_eq!(
        cause_of_a_second(&mut congested, ping),
        Cause::Path,
        "the window is the controller's"
    );

    let mut overflow = sender(LossPolicy::Current, &[]);
    overflow.window.shrink(at_ms(100_000), Packets(16));
    full(&mut overflow);
    assert_eq!(cause_of_a_second(&mut overflow, ping), Cause::Overflow);

    let mut room = sender(LossPolicy::Current, &[]);
    (0..101).for_each(|_| room.push_block(1000));
    assert_eq!(cause_of_a_second(&mut room, ping), Cause::Receiver);
}

/// A controller that freezes sending, or that yields.
#[derive(Debug)]
struct Stub(SendLimits, Phase);

impl sabul_cc::Controller for Stub {
    fn limits(&self) -> SendLimits {
        self.0
    }
    fn on_loss(&mut self, _loss: &sabul_cc::LossReport, _cx: &mut sabul_cc::Context<'_>) {}
    fn on_timeout(&mut self, _cx: &mut sabul_cc::Context<'_>) {}
    fn phase(&self) -> Phase {
        self.1
    }
}

#[test]
fn freezes_and_rates_lowered_for_other_flows_are_separate_causes() {
    let gap = sabul_units::Gap(Span::from_millis(2));
    let paced = SendLimits { gap, window: None, hold_until: None };
    let held = SendLimits { hold_until: Some(at_ms(2000)), ..paced };
    for (limits, phase, cause) in [
        (held, Phase::Named("freeze"), Cause::Freeze),
        (paced, Phase::Yielding, Cause::Policy),
        (paced, Phase::Named("cruise"), Cause::Path),
    ] {
        let mut sender = sender(LossPolicy::Current, &[]);
        let family = registry::Family::Rate;
        let stub = Box::new(Stub(limits, phase));
        sender.rate.set_controller(Guarded::around("stub", family, stub));
        (0..100).for_each(|_| sender.push_block(10_000));
        assert_eq!(cause_of_a_second(&mut sender, |sender, _| sender.silence.stop()), cause);
    }
}

#[test]
fn an_outage_is_accounted_from_the_second_expiry_to_the_next_answer() {
    let mut sender = sender(LossPolicy::Current, &[("window_packets", "5")]);
    sender.seed_rtt(Span::from_millis(20));
    (0..10).for_each(|_| sender.push_block(10_000));
    // Expiries come at 70, 210, 490 ms and so on.
    let outage = |sender: &Sender| {
        let all = sender.limiters();
        all.iter().find(|limiter| limiter.why == Cause::Outage).unwrap().time
    };
    for ms in 0..=10_000 {
        drain(&mut sender, at_ms(ms));
    }
    assert_eq!(outage(&sender), Span::from_millis(9_790));
    assert_eq!(main_cause(&sender), Cause::Outage);
    sender.handle_feedback(at_ms(10_000), &ack(1, 5, 4)).unwrap();
    for ms in 10_000..10_050 {
        drain(&mut sender, at_ms(ms));
    }
    assert_eq!(outage(&sender), Span::from_millis(9_790), "the answer has ended it");
}
