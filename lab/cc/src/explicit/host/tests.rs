//! Tests of the guard of host halves: bounds on headers, and the fallback.

use sabul_cc::{Echo, Moment, Phase, RttEstimate, SentNumber};
use sabul_units::{CongestionForm, CongestionHeader, Gap, Instant};

use super::*;

const SIZE: Bytes = Bytes(1500);
const RTT: Span = Span::from_millis(40);

/// Host half that follows each header: four numbers, the first of which is a rate in bit/s.
#[derive(Debug)]
struct Obedient(Rate);

impl Controller for Obedient {
    fn limits(&self) -> SendLimits {
        SendLimits { gap: self.0.gap(SIZE), window: None, hold_until: None }
    }
    fn header(&self) -> Option<CongestionFields> {
        Some(CongestionFields::Own([1, 2, 3, 4]))
    }
    fn on_loss(&mut self, _: &LossReport, _: &mut Context<'_>) {}
    fn on_timeout(&mut self, _: &mut Context<'_>) {}
    fn on_ack(&mut self, acked: &Acked, _: &mut Context<'_>) {
        if let Some(Echo {
            header: CongestionHeader { fields: CongestionFields::Own(reported), .. },
            ..
        }) = acked.echo
        {
            self.0 = Rate(reported[0]);
        }
    }
}

/// Records the last ACK of the fallback controller.
#[derive(Debug)]
struct Beside(Option<Acked>);

impl Controller for Beside {
    fn limits(&self) -> SendLimits {
        SendLimits { gap: Gap::NONE, window: Some(Packets(4)), hold_until: None }
    }
    fn on_loss(&mut self, _: &LossReport, _: &mut Context<'_>) {}
    fn on_timeout(&mut self, _: &mut Context<'_>) {}
    fn on_ack(&mut self, acked: &Acked, _: &mut Context<'_>) {
        self.0.get_or_insert(*acked);
        assert!(acked.total.0 < 1000 && acked.delivered.0 < 1_500_000, "it begins with nothing");
    }
}

/// Flow that sends at its permitted rate, over a path of at most `mbps`, in steps of 10 ms.
struct Flow {
    explicit: Explicit,
    mbps: u64,
    ms: u64,
    acked: Acked,
    /// Header that routers return.
    header: Option<CongestionHeader>,
    /// Addition to the one-way delay.
    late: Span,
    lose_percent: u64,
}

impl Flow {
    fn new(reported: Rate) -> Self {
        let law = Box::new(Obedient(Rate::from_mbps(1)));
        let beside = [(); 2].map(|()| Box::new(Beside(None)) as Box<dyn Controller>);
        let explicit = Explicit::new(law, Rate::from_mbps(1), 10.0, SIZE, Some(beside));
        let fields = CongestionFields::Own([reported.0, 0, 0, 0]);
        let header = Some(CongestionHeader { routers: 1, queued: Span::ZERO, fields });
        let acked = Acked::default();
        Self { explicit, mbps: 1000, ms: 1000, acked, header, late: Span::ZERO, lose_percent: 0 }
    }

    fn rate(&self) -> f64 {
        self.explicit.limits().gap.rate(SIZE).map_or(0.0, Rate::as_mbps_f64)
    }

    fn is_fallen(&self) -> bool {
        self.explicit.phase() == Phase::Fallback
    }

    fn step(&mut self) {
        self.ms += 10;
        let now = Instant::ZERO + Span::from_millis(self.ms);
        let mbps = self.rate().min(self.mbps as f64);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small")]
        let sent = (mbps * 1e6 / 100.0 / 12_000.0) as u64;
        let lost = sent * self.lose_percent / 100;
        let newly = sent - lost;
        self.acked.newly = Packets(newly);
        self.acked.total.0 += newly;
        self.acked.lost.0 += lost;
        self.acked.delivered.0 += newly * SIZE.0;
        self.acked.largest = SentNumber(self.acked.total.0 + self.acked.lost.0);
        self.acked.sent_at = Some(now - RTT);
        // The receiver's clock has another origin.
        self.acked.arrived_at = now.elapsed() + Span::from_secs(77) + self.late;
        self.acked.echo = self.header.map(|header| Echo { header, delta: 0 });
        let rtt = RttEstimate { latest: RTT, smoothed: RTT, variance: Span::ZERO, min: RTT };
        let moment = Moment::new(now, Some(rtt), SIZE);
        self.explicit.on_ack(&self.acked, &mut Context::without_chance(&moment));
    }

    /// Returns the RTTs until the fallback, at most ten.
    fn falls_after(&mut self) -> Option<u64> {
        let start = self.ms;
        (0..40).find_map(|_| {
            self.step();
            self.is_fallen().then(|| (self.ms - start).div_ceil(40))
        })
    }

    /// Runs until losses no longer belong to the start.
    fn begin(&mut self) {
        (0..6).for_each(|_| self.run_until_stable());
    }

    fn run_until_stable(&mut self) {
        (0..40).for_each(|_| self.step());
        assert!(!self.is_fallen());
    }
}

#[test]
fn a_rate_rises_at_most_tenfold_a_round_trip_above_the_arrival_rate() {
    let mut flow = Flow::new(Rate(u64::MAX - 1));
    let mut most = 100.0;
    for _ in 0..12 {
        (0..5).for_each(|_| flow.step());
        assert!(flow.rate() <= most * 1.01, "{} after {most}", flow.rate());
        most = (most * 10.0).min(10_000.0);
    }
    assert!(flow.rate() <= 10_001.0, "ten times what the path carries: {}", flow.rate());
    let mut flow = Flow::new(Rate::from_mbps(300));
    flow.run_until_stable();
    assert!((flow.rate() - 300.0).abs() < 0.1, "an honest router is obeyed to the letter");
}

#[test]
fn a_missing_router_echo_or_lost_router_is_detected_within_two_rtts() {
    let mut flow = Flow::new(Rate::from_mbps(300));
    flow.header = None;
    assert_eq!(flow.falls_after(), Some(1), "an older receiver");
    let mut flow = Flow::new(Rate::from_mbps(300));
    flow.header = flow.header.map(|header| CongestionHeader { routers: 0, ..header });
    assert_eq!(flow.falls_after(), Some(1), "no router");
    let blank = flow.explicit.header();
    assert_eq!(blank, Some(CongestionForm::Own.blank()), "it says nothing more to routers");
    assert_eq!(flow.explicit.limits().window, Some(Packets(4)));
    let mut flow = Flow::new(Rate::from_mbps(300));
    flow.run_until_stable();
    flow.header = flow.header.map(|header| CongestionHeader { routers: 0, ..header });
    assert!(flow.falls_after().is_some_and(|rounds| rounds <= 2), "another route");
}

#[test]
fn only_queues_that_no_router_reports_cause_fallback() {
    let mut flow = Flow::new(Rate::from_mbps(300));
    flow.run_until_stable();
    flow.late = Span::from_millis(15);
    assert!(flow.falls_after().is_some_and(|rounds| rounds <= 2));
    let mut flow = Flow::new(Rate::from_mbps(300));
    flow.run_until_stable();
    flow.late = Span::from_millis(100);
    let queued = Span::from_millis(98);
    flow.header = flow.header.map(|header| CongestionHeader { queued, ..header });
    flow.run_until_stable();
    // A machine that is late now and then.
    let mut flow = Flow::new(Rate::from_mbps(300));
    flow.run_until_stable();
    for n in 0..40 {
        flow.late = Span::from_millis(if n % 3 == 0 { 0 } else { 30 });
        flow.step();
    }
    assert!(!flow.is_fallen());
}

#[test]
fn loss_causes_fallback_only_if_no_router_reports_a_queue() {
    let mut flow = Flow::new(Rate::from_mbps(300));
    flow.run_until_stable();
    flow.lose_percent = 1;
    flow.run_until_stable();
    flow.lose_percent = 5;
    assert!(flow.falls_after().is_some_and(|rounds| rounds <= 2));
    let mut flow = Flow::new(Rate::from_mbps(300));
    flow.begin();
    (flow.lose_percent, flow.late) = (5, Span::from_millis(50));
    let queued = Span::from_millis(50);
    flow.header = flow.header.map(|header| CongestionHeader { queued, ..header });
    flow.run_until_stable();
    assert_eq!(flow.falls_after().map(|rounds| rounds <= 8), Some(true));
}

#[test]
fn lasting_losses_cause_fallback_and_transient_losses_do_not() {
    let reported = |percent: u64| {
        let mut flow = Flow::new(Rate::from_mbps(300));
        flow.begin();
        (flow.lose_percent, flow.late) = (percent, Span::from_millis(60));
        let queued = Span::from_millis(60);
        flow.header = flow.header.map(|header| CongestionHeader { queued, ..header });
        flow
    };
    let falls_after = |flow: &mut Flow| {
        let start = flow.ms;
        (0..400).find_map(|_| {
            flow.step();
            flow.is_fallen().then(|| flow.ms - start)
        })
    };
    // Two seconds of start, then half a second of losses.
    let mut fresh = Flow::new(Rate::from_mbps(300));
    let queued = Span::from_millis(60);
    fresh.header = fresh.header.map(|header| CongestionHeader { queued, ..header });
    (fresh.lose_percent, fresh.late) = (10, queued);
    let after = falls_after(&mut fresh);
    assert!(after.is_some_and(|ms| (2450..2750).contains(&ms)), "{after:?} ms");
    let after = falls_after(&mut reported(10));
    assert!(after.is_some_and(|ms| (450..700).contains(&ms)), "{after:?} ms");
    assert_eq!(falls_after(&mut reported(1)), None, "no more than the path's own");
    // A join every second that overflows the queue for three RTTs.
    let mut flow = reported(0);
    for n in 0..1000 {
        flow.lose_percent = if n % 100 < 12 { 30 } else { 0 };
        flow.step();
    }
    assert!(!flow.is_fallen());
    // Losses most of the time, but not always.
    let mut flow = reported(0);
    let fell = (0..1000).find(|n| {
        flow.lose_percent = if n % 20 < 15 { 30 } else { 0 };
        flow.step();
        flow.is_fallen()
    });
    assert!(fell.is_some_and(|n| n < 200), "{fell:?}");
}

#[test]
fn losses_cause_fallback_only_after_the_router_stops_lowering_the_rate() {
    let mut flow = Flow::new(Rate::from_mbps(300));
    flow.begin();
    (flow.lose_percent, flow.late) = (10, Span::from_millis(60));
    let queued = flow.late;
    // A join every four RTTs, for three seconds.
    let mut reported = 300e6;
    for n in 0..300 {
        reported *= if n % 16 == 0 { 0.95 } else { 1.0 };
        let fields = CongestionFields::Own([rate_of(reported).0, 0, 0, 0]);
        flow.header = Some(CongestionHeader { routers: 1, queued, fields });
        flow.step();
        assert!(!flow.is_fallen(), "{n}");
    }
    let start = flow.ms;
    let fell = (0..100).any(|_| {
        flow.step();
        flow.is_fallen()
    });
    assert!(fell && (400..700).contains(&(flow.ms - start)), "{} ms", flow.ms - start);
}

#[test]
fn a_flow_that_fell_back_for_losses_restarts_once_if_they_end_soon() {
    // Returns the milliseconds from the last loss to the pause before the restart.
    let begins_after = |flow: &mut Flow, lossy_steps: u64| {
        for _ in 0..lossy_steps {
            flow.acked.lost.0 += 1;
            flow.step();
            assert_eq!(flow.explicit.limits().hold_until, None);
        }
        let ended = flow.ms;
        let silent = |flow: &mut Flow| {
            flow.step();
            flow.explicit.limits().hold_until.map(|until| (flow.ms - ended, until))
        };
        (0..3000).find_map(|_| silent(flow))
    };
    let fallen = || {
        let mut flow = Flow::new(Rate::from_mbps(300));
        flow.run_until_stable();
        flow.lose_percent = 5;
        assert!(flow.falls_after().is_some());
        flow
    };
    for lossy_steps in [1, 1400] {
        let mut flow = fallen();
        let (ms, until) = begins_after(&mut flow, lossy_steps).unwrap();
        assert_eq!(ms, 1000);
        assert_eq!(until, Instant::ZERO + Span::from_millis(flow.ms) + RTT * 2);
        (0..10).for_each(|_| flow.step());
        flow.explicit.silent_until = None;
        assert_eq!(begins_after(&mut flow, 0), None, "once");
    }
    assert_eq!(begins_after(&mut fallen(), 1600), None, "it is the path that loses");
    let mut flow = Flow::new(Rate::from_mbps(300));
    flow.header = None;
    assert!(flow.falls_after().is_some());
    assert_eq!(begins_after(&mut flow, 1), None, "no router, no crowd");
}

#[test]
fn a_flow_without_a_fallback_controller_stays_and_tolerates_clock_drift() {
    let mut flow = Flow::new(Rate::from_mbps(300));
    flow.explicit.beside = None;
    flow.header = None;
    assert_eq!(flow.falls_after(), None);
    // 100 parts in a million for a thousand seconds are 100 ms.
    let mut flow = Flow::new(Rate::from_mbps(300));
    for n in 0..100_000 {
        flow.late = Span::from_micros(n);
        flow.step();
    }
    assert!(!flow.is_fallen());
}
