//! Tests of controllers against published figures of their laws: mean window at a given loss rate,
//! part of the window left by one loss, and recovery time. A wrong constant fails a row.

use super::response::{Flow, additive};
use crate::registry::find;

/// Tolerances for a mean window, a remaining part and a time.
const MEAN_WITHIN: f64 = 0.1;
const SHARE_WITHIN: f64 = 0.01;
const TIME_WITHIN: f64 = 0.03;

fn holds(row: &str, found: f64, published: f64, within: f64) -> bool {
    let is_near = (found / published - 1.0).abs() <= within;
    println!("{row}: {found:.3}, published {published:.3}{}", if is_near { "" } else { " FAILS" });
    is_near
}

#[test]
fn each_controller_has_its_published_response_to_loss() {
    // Rows: one packet lost of so many, number of losses.
    const LOSSES: [(u64, u64); 3] = [(10_000, 40), (1000, 100), (100, 400)];
    let of = |gain, drop| LOSSES.map(|(every, _)| Some(additive(gain, drop, 1.0 / every as f64)));
    // [RFC5681]: the square root of 1.5/p where the window is large.
    let reno = of(1.0, 0.5);
    let rows = [
        ("newreno", reno),
        // [RFC9438 §4.3]: Reno's window where it is larger, as here below 50 packets. Above, fast
        // convergence, which the formula lacks, leaves 0.87 of the formula's mean.
        ("cubic", [None, reno[1], reno[2]]),
    ];
    let mut failed = Vec::new();
    for (name, published) in rows {
        for ((every, losses), published) in LOSSES.into_iter().zip(published) {
            let Some(published) = published else { continue };
            let found = Flow::new(find(name).unwrap(), &[]).response(every, losses);
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
    let rows: [(&str, f64, f64); 2] = [
        // 500 packets at one packet per RTT.
        ("newreno", 0.5, 501.0),
        // [RFC9438 §4.2]: K is the cube root of 1000 × 0.3 / 0.4, 9.09 s.
        ("cubic", 0.7, 91.9),
    ];
    let mut failed = Vec::new();
    for (name, share, rounds) in rows {
        let given = [("initial_window", "1000"), ("ssthresh_packets", "1000")];
        let mut flow = Flow::new(find(name).unwrap(), &given);
        flow.step(false);
        let before = flow.window();
        if !holds(&format!("{name} keeps"), flow.lose_one(), share, SHARE_WITHIN) {
            failed.push(name);
        }
        if !holds(&format!("{name} is back"), flow.rounds_until(before), rounds, TIME_WITHIN) {
            failed.push(name);
        }
    }
    assert!(failed.is_empty(), "{failed:?}");
}
