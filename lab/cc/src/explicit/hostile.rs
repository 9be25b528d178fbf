//! Tests of real host halves behind their guards with arbitrary congestion headers.

use sabul_cc::{Acked, Echo, Guarded, Moment, RttEstimate, SentNumber};
use sabul_units::{
    Bytes, CongestionFields, CongestionForm, CongestionHeader, Instant, JetMaxFields, NO_RATE,
    Packets, Random, Rate, SeededRandom, Span,
};

use crate::{registry, routers};

const SIZE: Bytes = Bytes(1500);
const RTT: Span = Span::from_millis(40);
/// Rate of the path, in bits a second.
const PATH: f64 = 100e6;
/// Initial rate of all hosts, and largest rise of a rate over the arrival rate.
const INITIAL: f64 = 1e6;
const RISE: f64 = 10.0;

/// Returns a number of any size; extreme values are more frequent.
fn any(random: &mut SeededRandom) -> u64 {
    match random.below(8) {
        0 => 0,
        1 => u64::MAX - random.below(2),
        2 => 1 << 63,
        3 => i64::MAX.cast_unsigned(),
        _ => random.next_u64() >> random.below(64),
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_possible_wrap, reason = "any bits")]
fn forged(form: CongestionForm, random: &mut SeededRandom, controlling: u32) -> CongestionFields {
    let mut any = || any(random);
    match form {
        CongestionForm::Xcp => {
            CongestionFields::Xcp { rtt: Span(any()), interval: Span(any()), delta: any() as i64 }
        }
        CongestionForm::Rcp => CongestionFields::Rcp { rtt: Span(any()), rate: Rate(any()) },
        CongestionForm::PiqiRcp => {
            CongestionFields::PiqiRcp { rtt: Span(any()), rate: Rate(any()) }
        }
        CongestionForm::JetMax => CongestionFields::JetMax(JetMaxFields {
            interval: Span(any()),
            fair: Rate(any()),
            loss: any() as i32,
            loss_max: any() as i32,
            controlling,
            suggested: any() as u32,
            round: any() as u16,
        }),
        CongestionForm::Emkc => CongestionFields::Emkc {
            interval: Span(any()),
            loss: any() as i64,
            router: any() as u32,
            round: any() as u32,
        },
        CongestionForm::MaxNet => CongestionFields::MaxNet { price: Span(any()) },
        CongestionForm::Own => CongestionFields::Own([any(), any(), any(), any()]),
    }
}

fn controlling(host: &Guarded) -> u32 {
    match host.header() {
        Some(CongestionFields::JetMax(fields)) => fields.controlling,
        _ => 0,
    }
}

/// Asserts that the host's current limits are valid.
fn check(name: &str, host: &Guarded, form: CongestionForm) {
    assert_eq!(host.fault(), None, "{name}");
    assert_eq!(host.header().map(|fields| fields.form()), Some(form), "{name}");
    let limits = host.limits();
    let rate = limits.gap.rate(SIZE).map_or(f64::INFINITY, |rate| rate.0 as f64);
    let most = (PATH * RISE).max(INITIAL * RISE) * 1.01;
    assert!(rate <= most, "{name}: {rate} bit/s");
    assert!(rate >= 1e3, "{name}: {rate} bit/s, too slow for further ACKs");
    assert!(limits.window.is_none_or(|window| (1..=1 << 17).contains(&window.0)), "{name}");
    assert_eq!(limits.hold_until, None, "{name}");
}

#[test]
fn host_halves_stay_within_bounds_with_arbitrary_headers() {
    for entry in routers::ENTRIES {
        for seed in 0..20 {
            let mut random = SeededRandom::new(seed);
            let params = [("fallback".to_owned(), "off".to_owned())];
            let host = registry::find(entry.name).unwrap();
            let mut host = host.build(&params, SIZE).unwrap();
            let mut acked = Acked::default();
            for step in 1..2_000_u64 {
                let now = Instant::ZERO + Span::from_millis(10 * step);
                let rate = host.limits().gap.rate(SIZE).map_or(PATH, |rate| rate.0 as f64);
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "small"
                )]
                let newly = (rate.min(PATH) / 100.0 / 12_000.0).max(1.0) as u64;
                acked.newly = Packets(newly);
                acked.in_flight = Packets(any(&mut random) >> 40);
                acked.total.0 += newly;
                acked.delivered.0 += newly * SIZE.0;
                acked.largest = SentNumber(acked.total.0);
                acked.sent_at = Some(now - Span::from_millis(9).min(now.since(Instant::ZERO)));
                acked.arrived_at = now.elapsed();
                let fields = forged(entry.form, &mut random, controlling(&host));
                let routers = any(&mut random).to_le_bytes()[0];
                let header = CongestionHeader { routers, queued: Span(any(&mut random)), fields };
                let delta = any(&mut random).cast_signed();
                acked.echo = Some(Echo { header, delta });
                let rtt = RttEstimate { latest: RTT, smoothed: RTT, variance: RTT, min: RTT };
                host.on_ack(&acked, &Moment::new(now, Some(rtt), SIZE));
                check(&format!("{} seed {seed}", entry.name), &host, entry.form);
            }
        }
    }
}

#[test]
fn router_halves_tolerate_arbitrary_host_headers() {
    for entry in routers::ENTRIES {
        let mut random = SeededRandom::new(7);
        let mut router = entry.router(&[], Rate::from_mbps(100), 3).unwrap();
        for step in 1..20_000_u64 {
            let now = Instant::ZERO + Span::from_micros(100 * step);
            let controlling = if random.below(2) == 0 { 3 } else { 4 };
            let fields = forged(entry.form, &mut random, controlling);
            let mut header = CongestionHeader { routers: 255, queued: Span::ZERO, fields };
            router.arrived(now, SIZE, Bytes(any(&mut random) >> 40), Some(&mut header));
            router.departs(now, SIZE, Bytes(0), Some(&mut header));
            assert_eq!((header.fields.form(), header.routers), (entry.form, 255));
            // Before its first interval a router may have no rate to signal.
            let signalled = router
                .signalled_rate()
                .filter(|signalled| *signalled != NO_RATE)
                .unwrap_or(Rate(1));
            assert!(
                (1..=100_000_000).contains(&signalled.0),
                "{}: signals {signalled}",
                entry.name
            );
        }
    }
}
