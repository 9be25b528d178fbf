//! Facts that the sender passes to a controller, and the values that it reads from one.

use std::sync::{Arc, Mutex};

use sabul_cc::{Acked, Constants, Context, Controller, LossReport};
use sabul_units::Gap;

use super::*;

/// A controller that records each ACK.
#[derive(Debug)]
struct Recorder {
    acks: Arc<Mutex<Vec<Acked>>>,
    limits: SendLimits,
    burst: Packets,
    header: Option<CongestionFields>,
}

impl Recorder {
    const UNLIMITED: SendLimits =
        SendLimits { gap: Gap(Span::ZERO), window: None, hold_until: None };

    fn new() -> Self {
        let acks = Arc::default();
        Self { acks, limits: Self::UNLIMITED, burst: Packets(1), header: None }
    }

    fn into_sender(self) -> Sender {
        let family = registry::Family::Rate;
        let controller = Guarded::around("recorder", family, Box::new(self));
        Sender::new(Instant::ZERO, sender(LossPolicy::Current, &[]).config, controller).unwrap()
    }
}

impl Controller for Recorder {
    fn limits(&self) -> SendLimits {
        self.limits
    }
    fn on_loss(&mut self, _loss: &LossReport, _cx: &mut Context<'_>) {}
    fn on_timeout(&mut self, _cx: &mut Context<'_>) {}
    fn on_ack(&mut self, acked: &Acked, _cx: &mut Context<'_>) {
        self.acks.lock().unwrap().push(*acked);
    }
    fn constants(&self) -> Constants {
        Constants { burst: self.burst, ..Constants::default() }
    }
    fn header(&self) -> Option<CongestionFields> {
        self.header
    }
}

#[test]
fn only_packets_sent_before_space_was_missing_count_as_limited_by_it() {
    let recorder = Recorder::new();
    let acks = Arc::clone(&recorder.acks);
    let mut sender = recorder.into_sender();
    sender.window = FlowWindow::new(at_ms(0), Packets(1000), 1);
    sender.push_block(2000);
    sender.push_block(2000);
    assert_eq!(drain(&mut sender, at_ms(0)), [(0, 0), (1, 1)]);
    sender.window.open_to(2);
    assert_eq!(drain(&mut sender, at_ms(1)), [(2, 2), (3, 3)]);
    for (serial, largest) in [(1, 1), (2, 2)] {
        sender.handle_feedback(at_ms(50), &ack(serial, largest + 1, largest)).unwrap();
    }
    let limited: Vec<_> = acks.lock().unwrap().iter().map(|acked| acked.is_room_limited).collect();
    assert_eq!(limited, [true, false]);
}

#[test]
fn a_controller_receives_each_answer_of_routers_once() {
    let fields = CongestionFields::Rcp { rtt: Span::ZERO, rate: Rate::from_mbps(40) };
    let recorder = Recorder { header: Some(fields), ..Recorder::new() };
    let acks = Arc::clone(&recorder.acks);
    let mut sender = recorder.into_sender();
    // Packets 0 and 1 are probes.
    sender.ledger.numbers.push_probe(at_ms(0));
    sender.ledger.numbers.push_probe(at_ms(1));
    for (serial, number, answers) in [(1, 0, 1), (2, 0, 1), (3, 1, 2), (4, 1, 2), (5, 0, 2)] {
        sender.handle_feedback(at_ms(50), &echoing(serial, number, fields)).unwrap();
        assert_eq!(acks.lock().unwrap().len(), answers, "ACK {serial}");
    }
}

#[test]
fn a_probe_claims_no_rate_and_has_the_form_of_other_headers() {
    let [rtt, interval] = [20, 1].map(Span::from_millis);
    let fields = CongestionFields::Xcp { rtt, interval, delta: 1000 };
    let sender = Recorder { header: Some(fields), ..Recorder::new() }.into_sender();
    assert_eq!(sender.congestion_header().unwrap().fields, fields);
    let of_probe = CongestionFields::Xcp { rtt: Span::ZERO, interval: Span::ZERO, delta: 0 };
    assert_eq!(sender.probe_header().unwrap().fields, of_probe);
    assert_eq!(Recorder::new().into_sender().probe_header(), None);
}

#[test]
fn a_rate_limit_also_spaces_the_packets_of_a_burst() {
    // Four packets every 40 ms; the limit is a packet every 2 ms.
    let limits = SendLimits { gap: Gap(Span::from_millis(10)), ..Recorder::UNLIMITED };
    let mut sender = Recorder { limits, burst: Packets(4), ..Recorder::new() }.into_sender();
    sender.limit_rate(Gap(Span::from_millis(2)).rate(sender.packet_bytes()));
    sender.push_block(10_000);
    let mut times = Vec::new();
    for ms in 0..45 {
        times.extend(drain(&mut sender, at_ms(ms)).iter().map(|_| ms));
    }
    assert_eq!(times, [0, 2, 4, 6, 40, 42, 44]);
}

#[test]
fn packets_that_a_rate_limit_spaces_count_as_limited_and_not_as_the_rate_of_the_path() {
    for (gap_ms, limited) in [(1, true), (3, false)] {
        let limits = SendLimits { gap: Gap(Span::from_millis(gap_ms)), ..Recorder::UNLIMITED };
        let recorder = Recorder { limits, ..Recorder::new() };
        let acks = Arc::clone(&recorder.acks);
        let mut sender = recorder.into_sender();
        sender.limit_rate(Gap(Span::from_millis(2)).rate(sender.packet_bytes()));
        sender.push_block(10_000);
        let sent: usize = (0..10).map(|ms| drain(&mut sender, at_ms(ms)).len()).sum();
        sender.handle_feedback(at_ms(50), &ack(1, sent as u64, sent as u64 - 1)).unwrap();
        assert_eq!(acks.lock().unwrap()[0].is_app_limited, limited, "a gap of {gap_ms} ms");
    }
}

#[test]
fn openings_are_counted_only_with_a_circuit_breaker() {
    let mut sender = sender(LossPolicy::Current, &[]);
    assert_eq!(sender.breaker_opened(), None);
    let controller = registry::find("fixed").unwrap().build(&[], Bytes(1500)).unwrap();
    sender.rate.set_controller(controller.with_breaker());
    assert_eq!(sender.breaker_opened(), Some(0));
}
