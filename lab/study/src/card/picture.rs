//! Picture that compares several controllers: goodput on a path with random loss, and what each
//! leaves to TCP.
//!
//! Both halves are scenarios like those of a card, simulated with seed 1. The picture can therefore
//! be redrawn after any change to a controller. No number in the picture is typed in by hand.

use std::num::NonZeroUsize;

use sabul_lab_cc::registry;
use sabul_report::{Axis, Bar, BarChart, BarSeries, significant, stacked};
use sabul_scenario::Run;

use super::plan::{Carrier, Subject, Times, link, tcp};
use crate::runs::Finished;
use crate::{Error, Observer};

/// Controllers in the picture, and their transports: our protocol, or TCP for controllers that
/// kernels implement.
const SHOWN: [(&str, Carrier); 5] = [
    ("sabul2026", Carrier::Sabul),
    ("bbr3", Carrier::Sabul),
    ("cubic", Carrier::Tcp),
    ("bbr1", Carrier::Tcp),
    ("sabul2003", Carrier::Sabul),
];
/// The path with loss: rate, RTT, and shares of lost packets.
const LOSS_MBPS: f64 = 1000.0;
const LOSS_RTT_MS: f64 = 100.0;
const LOSSES: [f64; 6] = [0.0, 0.0001, 0.001, 0.01, 0.05, 0.1];
/// The paths with a CUBIC flow.
const BESIDE_MBPS: f64 = 100.0;
const BESIDE_RTTS_MS: [f64; 4] = [10.0, 50.0, 100.0, 200.0];
/// Seconds of warm-up, and seconds of measurement.
const LOSS_S: (f64, f64) = (20.0, 60.0);
const BESIDE_S: (f64, f64) = (30.0, 90.0);
const WIDTH: u32 = 860;
const HEIGHT: u32 = 300;

/// Returns the picture as an SVG file. The runs take a few minutes of processor time.
///
/// # Errors
/// If a controller fails.
pub fn picture(threads: Option<NonZeroUsize>, observer: &Observer) -> Result<String, Error> {
    let mut all = Vec::new();
    for (cc, transport) in SHOWN {
        let subject = Subject { entry: registry::find(cc)?, params: &[], transport };
        for text in LOSSES.map(|loss| with_loss(&subject, loss)) {
            all.extend(read(&text)?);
        }
        for text in BESIDE_RTTS_MS.map(|rtt_ms| beside_cubic(&subject, rtt_ms)) {
            all.extend(read(&text)?);
        }
    }
    let finished = super::run_all(&all, threads.map(NonZeroUsize::get), observer)?;
    let each = finished.chunks(LOSSES.len() + BESIDE_RTTS_MS.len());
    let halves: Vec<_> = each.map(|runs| runs.split_at(LOSSES.len())).collect();
    let speed = halves.iter().map(|(lossy, _)| {
        let arrives = |loss: &f64| LOSS_MBPS * 1e6 * (1.0 - loss);
        lossy.iter().zip(&LOSSES).map(|(run, loss)| goodput(run, "a") / arrives(loss)).collect()
    });
    let left = halves.iter().map(|(_, beside)| {
        beside.iter().map(|run| goodput(run, "cubic") / (BESIDE_MBPS * 1e6)).collect()
    });
    Ok(stacked(WIDTH, &[(loss_chart(speed), HEIGHT), (beside_chart(left), HEIGHT)]))
}

fn with_loss(subject: &Subject<'_>, loss: f64) -> String {
    let more = format!("queue_bdp = 1\nloss = {loss}\n");
    let link = link(LOSS_MBPS, LOSS_RTT_MS, &more);
    let flow = subject.flow("a", "");
    subject.exam((), format!("loss-{loss}"), Times::new(LOSS_S, 1000), &link, &flow).text
}

fn beside_cubic(subject: &Subject<'_>, rtt_ms: f64) -> String {
    let link = link(BESIDE_MBPS, rtt_ms, "queue_bdp = 1\n");
    let flows = [tcp("cubic", "cubic", ""), subject.flow("a", "start_s = 1\n")].join("\n");
    subject.exam((), format!("beside-{rtt_ms}ms"), Times::new(BESIDE_S, 1000), &link, &flows).text
}

fn read(text: &str) -> Result<Vec<Run>, Error> {
    sabul_scenario::read(text, "picture.toml", &[]).map_err(|error| Error::usage(error.to_string()))
}

/// Returns the goodput of a flow, or NaN if the flow is absent.
fn goodput(run: &Finished, id: &str) -> f64 {
    let flow = run.results.flows.iter().find(|flow| flow.id == id);
    flow.map_or(f64::NAN, |flow| flow.goodput_bps)
}

fn loss_chart(shares: impl Iterator<Item = Vec<f64>>) -> String {
    let title = format!(
        "Speed over random loss, one flow, {LOSS_MBPS} Mb/s × {LOSS_RTT_MS} ms (simulated)"
    );
    let groups = LOSSES.map(|loss| format!("{} %", significant(loss * 100.0, 3)));
    chart(&title, "of what can arrive", groups.to_vec(), shares)
}

fn beside_chart(shares: impl Iterator<Item = Vec<f64>>) -> String {
    let title = format!(
        "Goodput of a CUBIC flow beside one of each, {BESIDE_MBPS} Mb/s (simulated; 50 is even)"
    );
    let groups = BESIDE_RTTS_MS.map(|rtt_ms| format!("{rtt_ms} ms"));
    chart(&title, "of the link", groups.to_vec(), shares)
}

fn chart(
    title: &str,
    y: &str,
    groups: Vec<String>,
    shares: impl Iterator<Item = Vec<f64>>,
) -> String {
    let axis = Axis::new(y, "%").with_range(0.0, 100.0);
    let chart = BarChart::new(title, axis, groups);
    let series = SHOWN.iter().zip(shares).map(|((cc, carrier), shares)| {
        let name = match carrier {
            Carrier::Sabul => (*cc).to_owned(),
            Carrier::Tcp => format!("TCP {cc}"),
        };
        BarSeries::new(name, shares.into_iter().map(|share| Bar::new(share * 100.0)).collect())
    });
    series.fold(chart, BarChart::with_series).to_svg(WIDTH, HEIGHT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_scenario_of_the_picture_reads_back_with_the_flows_that_it_names() {
        for (cc, transport) in SHOWN {
            let subject = Subject { entry: registry::find(cc).unwrap(), params: &[], transport };
            let ids = |text: &str| {
                let flows = read(text).unwrap().remove(0).scenario.flows;
                flows.into_iter().map(|flow| flow.id).collect::<Vec<_>>()
            };
            assert_eq!(ids(&with_loss(&subject, 0.01)), ["a"]);
            assert_eq!(ids(&beside_cubic(&subject, 50.0)), ["cubic", "a"]);
        }
    }

    #[test]
    fn both_charts_name_every_controller_shown() {
        let shares = |count: usize| SHOWN.map(|_| vec![0.5; count]).into_iter();
        for svg in [loss_chart(shares(LOSSES.len())), beside_chart(shares(BESIDE_RTTS_MS.len()))] {
            for name in ["sabul2026", "bbr3", "TCP cubic", "TCP bbr1", "simulated"] {
                assert!(svg.contains(name), "{name}");
            }
        }
    }
}
