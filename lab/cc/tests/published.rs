//! Tests of controllers against published figures of their laws: mean window at a given loss rate,
//! part of the window left by one loss, and recovery time. A wrong constant fails a row.

use sabul_cc::conformance::path::{PACKET, moment};
use sabul_cc::conformance::response::{Flow, RTT, additive};
use sabul_cc::{Acked, IntervalReport, LossReport, SYN_INTERVAL, SentNumber};
use sabul_lab_cc::registry::find;
use sabul_units::{Instant, Packets};

/// Tolerances for a mean window, a remaining part and a time.
const MEAN_WITHIN: f64 = 0.1;
const SHARE_WITHIN: f64 = 0.01;
const TIME_WITHIN: f64 = 0.03;

fn holds(row: &str, found: f64, published: f64, within: f64) -> bool {
    let is_near = (found / published - 1.0).abs() <= within;
    println!("{row}: {found:.3}, published {published:.3}{}", if is_near { "" } else { " FAILS" });
    is_near
}

/// Parameters where the defaults differ from the published law.
fn params(name: &str) -> Vec<(&'static str, &'static str)> {
    if name == "multcp" { vec![("flows", "2")] } else { Vec::new() }
}

#[test]
fn each_controller_has_its_published_response_to_loss() {
    // Rows: one packet lost of so many, number of losses.
    const LOSSES: [(u64, u64); 3] = [(10_000, 40), (1000, 100), (100, 400)];
    let of = |gain, drop| LOSSES.map(|(every, _)| Some(additive(gain, drop, 1.0 / every as f64)));
    // [RFC5681]: the square root of 1.5/p where the window is large.
    let reno = of(1.0, 0.5);
    // [RFC3649 §5]: 0.12 / p^0.835 above 38 packets.
    let highspeed = [Some(262.5), Some(38.4), reno[2]];
    let rows = [
        ("reno", reno),
        ("tcp-lp", reno),
        ("dctcp", reno),
        // [MULTCP]: N packets per RTT, 1/(2N) off at a loss.
        ("multcp", of(2.0, 0.25)),
        ("highspeed", highspeed),
        ("hstcp-lp", highspeed),
        // [SCALABLE]: ln(8/7) / ln(1.01) = 13.42 RTTs a cycle; one in 100 is at the border to Reno.
        ("scalable", [Some(745.2), Some(74.5), None]),
    ];
    let mut failed = Vec::new();
    for (name, published) in rows {
        for ((every, losses), published) in LOSSES.into_iter().zip(published) {
            let Some(published) = published else { continue };
            let found = Flow::new(find(name).unwrap(), &params(name)).response(every, losses);
            let row = format!("{name} at 1/{every}");
            if !holds(&row, found, published, MEAN_WITHIN) {
                failed.push(row);
            }
        }
    }
    assert!(failed.is_empty(), "{failed:?}");
}

#[test]
fn one_loss_has_the_published_decrease_and_recovery_time() {
    // Part left of 1000 packets; RTTs until the window is back, one of them the recovery.
    let rows: [(&str, f64, Option<f64>); 10] = [
        // 500 packets at one packet per RTT.
        ("reno", 0.5, Some(501.0)),
        ("tcp-lp", 0.5, Some(501.0)),
        ("dctcp", 0.5, Some(501.0)),
        // [MULTCP] Two flows: a quarter off, two packets per RTT.
        ("multcp", 0.75, Some(126.0)),
        // [RFC3649 §5]: b(1000) = 0.330, and the sum of 1/a(w) from 670 to 1000.
        ("highspeed", 0.670, Some(48.2)),
        // [SCALABLE]: ln(8/7) / ln(1.01).
        ("scalable", 0.875, Some(14.4)),
        // [HTCP]: 10 packets in the first second, then 10 x + 50 x^2 + 10/12 x^3 = 490 at x = 2.96 s.
        ("htcp", 0.5, Some(40.6)),
        // [BIC] in Linux: 16 per RTT to 936, a quarter of the rest to 996, 4 ln(64/4), and 0.2 to
        // 1000.
        ("bic", 0.8, Some(40.6)),
        ("ltcp", 0.85, None),
        ("fast", 0.5, None),
    ];
    let mut failed = Vec::new();
    for (name, share, rounds) in rows {
        let entry = find(name).unwrap();
        let mut given = params(name);
        given.push(("initial_window", "1000"));
        if entry.params.iter().any(|spec| spec.name == "ssthresh_packets") {
            given.push(("ssthresh_packets", "1000"));
        }
        let mut flow = Flow::new(entry, &given);
        flow.step(false);
        let before = flow.window();
        if !holds(&format!("{name} keeps"), flow.lose_one(), share, SHARE_WITHIN) {
            failed.push(name);
        }
        let Some(rounds) = rounds else { continue };
        if !holds(&format!("{name} is back"), flow.rounds_until(before), rounds, TIME_WITHIN) {
            failed.push(name);
        }
    }
    assert!(failed.is_empty(), "{failed:?}");
}

#[test]
fn one_loss_costs_sabul_a_ninth_of_its_rate_for_89_intervals() {
    // [SABUL §II-E] 800 packets per SYN interval become 711.1; each interval adds one packet.
    let given = [("start", "published"), ("rate_mbps_initial", "960"), ("window_packets", "64")];
    let given = given.map(|(key, value)| (key.to_owned(), value.to_owned()));
    let mut sabul = find("sabul2003").unwrap().build(&given, PACKET).unwrap();
    let now = moment(Instant::ZERO + RTT, RTT, RTT);
    sabul.on_ack(&Acked { total: Packets(64), ..Acked::default() }, &now);
    let before = sabul.limits().gap;
    sabul.on_loss(&LossReport::new(Packets(1), Packets(0), SentNumber(64), SentNumber(99)), &now);
    let kept = before.0.as_secs_f64() / sabul.limits().gap.0.as_secs_f64();
    assert!((kept - 8.0 / 9.0).abs() < 1e-6, "{kept}");
    let report = IntervalReport::new(Packets(700), Packets(0), Packets(0), SYN_INTERVAL, false);
    let mut intervals = 0;
    while sabul.limits().gap > before {
        sabul.on_interval(&report, &now);
        intervals += 1;
    }
    assert_eq!(intervals, 89);
}
