//! The bottleneck in virtual time.

use sabul_lab_cc::routers::ENTRIES;
use sabul_units::NO_RATE;

use super::frames::{explicit, fields};
use super::testing::{bundle, settings};
use super::*;

const PACKET: usize = 1_250;

fn at_us(us: u64) -> Instant {
    Instant::ZERO + Span::from_micros(us)
}

fn plain() -> Vec<u8> {
    vec![7; PACKET - 28]
}

fn of(form: CongestionForm, interval: Span) -> Vec<u8> {
    explicit(fields(form, interval), PACKET)
}

/// Returns all packets that leave by `now`.
fn drain(bottleneck: &mut Bottleneck, now: Instant) -> Vec<Leaving> {
    std::iter::from_fn(|| bottleneck.poll(now).ready()).collect()
}

/// Feeds both classes for `seconds` with these numbers of packets per 100 us. Returns the rate of
/// each class over the second half, in bit/s.
fn feed(bottleneck: &mut Bottleneck, seconds: u64, explicit: u64, plain_packets: u64) -> [f64; 2] {
    let (ours, other) =
        (bundle(&[of(CongestionForm::JetMax, Span::from_micros(100))]), bundle(&[plain()]));
    let mut half = [0; 2];
    for tick in 0..seconds * 10_000 {
        let now = at_us(tick * 100);
        (0..explicit).for_each(|_| bottleneck.push(now, &ours));
        (0..plain_packets).for_each(|_| bottleneck.push(now, &other));
        drain(bottleneck, now);
        if tick == seconds * 5_000 {
            half = bottleneck.classes.map(|class| class.sent_bytes);
        }
    }
    let sent = bottleneck.classes.map(|class| class.sent_bytes);
    [0, 1].map(|n| (sent[n] - half[n]) as f64 * 16.0 / seconds as f64)
}

#[test]
fn packets_leave_at_the_rate_of_the_link_framing_included() {
    let settings = Settings { framing_bytes: 250, ..settings() };
    let mut bottleneck = Bottleneck::new(&settings).unwrap();
    // 1500 bytes at 100 Mb/s are 120 us.
    bottleneck.push(at_us(0), &bundle(&[plain(), plain(), plain()]));
    assert_eq!(bottleneck.deadline(), Some(at_us(120)));
    assert!(drain(&mut bottleneck, at_us(119)).is_empty());
    let left = drain(&mut bottleneck, at_us(1_000));
    let times: Vec<_> = left.iter().map(|leaving| (leaving.segment, leaving.at)).collect();
    assert_eq!(times, [(0, at_us(120)), (1, at_us(240)), (2, at_us(360))]);
    let Polled::Wait { until: None, because: BottleneckWait::Arrival } =
        bottleneck.poll(at_us(2_000))
    else {
        panic!("it is empty");
    };
    let plain = bottleneck.snapshot(at_us(2_000)).plain;
    assert_eq!((plain.sent_packets, plain.sent_bytes, plain.queue_bytes), (3, 3_750, 0));
}

#[test]
fn each_algorithm_rewrites_only_headers_of_its_own_form() {
    for entry in ENTRIES {
        let settings = Settings { algorithm: entry.name.to_owned(), ..settings() };
        let mut bottleneck = Bottleneck::new(&settings).unwrap();
        for other in ENTRIES {
            let own = of(other.form, Span::from_micros(200));
            bottleneck.push(at_us(300_000), &bundle(&[own]));
        }
        let left = drain(&mut bottleneck, at_us(400_000));
        let seen: Vec<_> = left.iter().filter_map(|leaving| leaving.header.as_deref()).collect();
        assert_eq!(seen.len(), 1, "{}", entry.name);
        assert_eq!((seen[0].fields.form(), seen[0].routers), (entry.form, 1));
        let snapshot = bottleneck.snapshot(at_us(400_000));
        assert_eq!((snapshot.headers_written, snapshot.headers_foreign), (1, 5));
        assert_eq!(
            snapshot.first_foreign,
            Some(if entry.name == "jetmax" { "rcp" } else { "jetmax" })
        );
        assert_eq!((snapshot.explicit.sent_packets, snapshot.plain.sent_packets), (1, 5));
    }
}

#[test]
fn headers_of_later_versions_are_forwarded_as_plain_traffic_and_counted() {
    let mut later = of(CongestionForm::JetMax, Span::from_micros(200));
    later[sabul_wire::DATA_HEADER_LEN + 2] = 0x34;
    let mut bottleneck = Bottleneck::new(&settings()).unwrap();
    bottleneck.push(at_us(0), &bundle(&[later]));
    let left = drain(&mut bottleneck, at_us(1_000));
    assert!(left[0].header.is_none(), "written back as it came");
    let snapshot = bottleneck.snapshot(at_us(1_000));
    assert_eq!((snapshot.headers_later, snapshot.first_later), (1, Some((3, 4))));
    assert_eq!((snapshot.plain.sent_packets, snapshot.explicit.sent_packets), (1, 0));
}

#[test]
fn a_flow_with_a_blank_congestion_header_is_plain_traffic() {
    let mut bottleneck = Bottleneck::new(&settings()).unwrap();
    let blank = explicit(CongestionForm::JetMax.blank(), PACKET);
    bottleneck.push(at_us(0), &bundle(&[blank]));
    assert_eq!(bottleneck.snapshot(at_us(0)).plain.arrived_packets, 1);
}

#[test]
fn each_class_gets_its_share_under_overload_by_the_other() {
    for (share_percent, share) in [(50, 50e6), (30, 30e6), (80, 80e6)] {
        // Each class offers 200 Mb/s to a link of 100.
        let settings = Settings { share_percent, ..settings() };
        let [explicit, plain] = feed(&mut Bottleneck::new(&settings).unwrap(), 2, 2, 2);
        assert!((explicit / share - 1.0).abs() < 0.03, "{share_percent} %: {explicit}");
        assert!((plain / (100e6 - share) - 1.0).abs() < 0.03, "{share_percent} %: {plain}");
    }
}

#[test]
fn a_class_may_use_the_capacity_left_by_the_other() {
    let [explicit, plain] = feed(&mut Bottleneck::new(&settings()).unwrap(), 2, 0, 2);
    assert!(explicit == 0.0 && plain > 99e6, "{plain}");
    let [explicit, plain] = feed(&mut Bottleneck::new(&settings()).unwrap(), 2, 2, 0);
    assert!(plain == 0.0 && explicit > 99e6, "{explicit}");
}

#[test]
fn a_class_that_floods_fills_its_own_queue_only() {
    let mut bottleneck = Bottleneck::new(&settings()).unwrap();
    // 300 Mb/s of plain traffic. An explicit packet every 100 us would be 100 Mb/s, so one in four.
    let (ours, other) =
        (bundle(&[of(CongestionForm::JetMax, Span::from_micros(400))]), bundle(&[plain()]));
    for tick in 0..20_000 {
        let now = at_us(tick * 100);
        (0..3).for_each(|_| bottleneck.push(now, &other));
        if tick % 4 == 0 {
            bottleneck.push(now, &ours);
        }
        drain(&mut bottleneck, now);
    }
    let snapshot = bottleneck.snapshot(at_us(2_000_000));
    assert!(snapshot.plain.dropped_packets > 30_000, "{snapshot:?}");
    assert_eq!(snapshot.explicit.dropped_packets, 0);
    assert!(snapshot.explicit.queue_max_bytes <= 4 * PACKET as u64, "{snapshot:?}");
}

#[test]
fn the_explicit_class_capacity_is_what_the_plain_class_leaves() {
    // 100 Mb/s of plain traffic in one of five ticks is 20 Mb/s.
    let mut bottleneck = Bottleneck::new(&settings()).unwrap();
    let other = bundle(&[plain()]);
    for tick in 0..20_000 {
        if tick % 5 == 0 {
            bottleneck.push(at_us(tick * 100), &other);
        }
        drain(&mut bottleneck, at_us(tick * 100));
    }
    let capacity = bottleneck.snapshot(at_us(2_000_000)).explicit_capacity_bps as f64;
    assert!((capacity / 80e6 - 1.0).abs() < 0.02, "{capacity}");
    // The capacity is never less than the share.
    let mut bottleneck = Bottleneck::new(&settings()).unwrap();
    feed(&mut bottleneck, 2, 0, 3);
    assert_eq!(bottleneck.snapshot(at_us(2_000_000)).explicit_capacity_bps, 50_000_000);
}

/// The flow receives each header 20 ms later. A flood is reported to the flow 130 ms after the flood
/// began. Until then the flow sends twice its share, and the queue has to hold these packets.
#[test]
fn a_jetmax_flow_fills_its_share_without_drops_beside_a_sudden_flood() {
    let queue = crate::QueueSize::Time(Span::from_millis(100));
    let mut bottleneck = Bottleneck::new(&Settings { queue, ..settings() }).unwrap();
    let other = bundle(&[plain()]);
    let (mut rate, mut next, mut told) = (1e6_f64, 0_u64, VecDeque::new());
    let mut sent_after = 0;
    for tick in 0..40_000_u64 {
        let now = at_us(tick * 100);
        // Twice the link's rate, for the second half of the time.
        if tick > 20_000 {
            (0..2).for_each(|_| bottleneck.push(now, &other));
        }
        while next <= tick * 100 {
            let interval = Span::from_secs_f64(PACKET as f64 * 8.0 / rate);
            let CongestionFields::JetMax(own) = fields(CongestionForm::JetMax, interval) else {
                panic!("it is JetMax's")
            };
            let own = CongestionFields::JetMax(JetMaxFields { controlling: 7, ..own });
            bottleneck.push(now, &bundle(&[explicit(own, PACKET)]));
            next += interval.as_micros().max(1);
        }
        for leaving in drain(&mut bottleneck, now) {
            if let Some(CongestionFields::JetMax(fields)) = leaving.header.map(|it| it.fields) {
                told.push_back((tick + 200, fields.fair));
            }
        }
        while told.front().is_some_and(|(at, _)| *at <= tick) {
            let Some((_, fair)) = told.pop_front() else { break };
            if fair != NO_RATE {
                rate += 0.01 * (fair.0 as f64 - rate);
            }
        }
        if tick == 20_000 {
            assert!((rate / 95e6 - 1.0).abs() < 0.05, "alone it has all but a twentieth: {rate}");
            assert!(bottleneck.classes[0].dropped_packets == 0);
        }
        if tick == 30_000 {
            sent_after = bottleneck.classes[0].sent_bytes;
        }
    }
    let explicit = (bottleneck.classes[0].sent_bytes - sent_after) as f64 * 8.0;
    assert!((explicit / 47.5e6 - 1.0).abs() < 0.08, "beside it has its share: {explicit}");
    assert_eq!(bottleneck.classes[0].dropped_packets, 0, "{bottleneck:?}");
}
