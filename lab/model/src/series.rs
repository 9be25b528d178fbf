//! Plot data: pairs of numbers, with units in the names.

use schemars::JsonSchema;
use serde::Serialize;

use crate::map::{Map, Round};
use crate::params::Params;

/// Values of one flow over time. The first number of each pair is the start of the round, in seconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct Series {
    /// Rate λ, in Mb/s.
    pub rate_mbps: Vec<(f64, f64)>,
    /// Loss rate ρ, 0 to 1.
    pub loss: Vec<(f64, f64)>,
    /// Packets in the queue at the end of the round.
    pub queue_packets: Vec<(f64, f64)>,
    /// Gap δ, in microseconds.
    pub gap_us: Vec<(f64, f64)>,
}

/// Follows the first flow alone, for `rounds` or until its gap is not positive.
pub fn series(p: &Params, rounds: u64) -> Series {
    let mut series = Series::default();
    let [gap, _] = p.gaps_initial();
    for (at, round) in steps(Map::new(p, [gap]), p, rounds) {
        series.rate_mbps.push((at, round.rate / 1e6));
        series.loss.push((at, round.loss));
        series.queue_packets.push((at, round.queue / p.packet()));
        series.gap_us.push((at, round.gaps[0] * 1e6));
    }
    series
}

fn steps<const N: usize>(
    mut map: Map<N>,
    p: &Params,
    rounds: u64,
) -> impl Iterator<Item = (f64, Round<N>)> {
    let length = p.round();
    (0..rounds).map_while(move |number| Some((number as f64 * length, map.step().ok()?)))
}

/// Two flows in the plane of their gaps, in microseconds: the first flow's to the right. Above the
/// line of fairness the first flow is the faster one. [OVV-T §VI], proof of Lemma 8, Figure 2.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct PhasePlane {
    /// Gaps of both flows, round by round.
    pub path_us: Vec<(f64, f64)>,
    /// Both ends of the line of equal gaps.
    pub fairness_us: Vec<(f64, f64)>,
    /// Line on which both flows together send µ/(1−α); nearer to the origin the loss exceeds the
    /// target. Empty if two interfaces cannot reach this rate.
    pub overload_us: Vec<(f64, f64)>,
    /// Rate of the first flow, in Mb/s over seconds.
    pub rate_mbps_first: Vec<(f64, f64)>,
    /// Rate of the second flow, in Mb/s over seconds.
    pub rate_mbps_second: Vec<(f64, f64)>,
}

/// Number of points of the overload line.
const LINE: u32 = 96;

/// Follows both flows, for `rounds` or until a gap is not positive.
pub fn phase_plane(p: &Params, rounds: u64) -> PhasePlane {
    let mut plane = PhasePlane::default();
    for (at, round) in steps(Map::new(p, p.gaps_initial()), p, rounds) {
        plane.path_us.push((round.gaps[0] * 1e6, round.gaps[1] * 1e6));
        plane.rate_mbps_first.push((at, round.rates[0] / 1e6));
        plane.rate_mbps_second.push((at, round.rates[1] / 1e6));
    }
    let far = plane.path_us.iter().fold(0.0_f64, |far, &(x, y)| far.max(x).max(y));
    plane.fairness_us = vec![(0.0, 0.0), (far, far)];
    let total = p.service() / (1.0 - p.alpha());
    plane.overload_us = (1..LINE)
        .map(|i| total * f64::from(i) / f64::from(LINE))
        .filter(|&first| first < p.capacity() && total - first < p.capacity())
        .map(|first| (p.gap_of(first) * 1e6, p.gap_of(total - first) * 1e6))
        .collect();
    plane
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::params::{Key, Set};

    #[test]
    fn a_series_has_one_point_at_the_start_of_each_round() {
        let p = Params::preset(Set::Pr0);
        let series = series(&p, 10);
        assert_eq!(series.rate_mbps.len(), 10);
        assert!((series.rate_mbps[0].1 - 300.0).abs() < 1e-9);
        assert!((series.loss[5].0 - 1.0).abs() < 1e-12, "round 5 starts after 1 s");
        // A round without loss shrinks the gap by 1 %.
        assert!((series.gap_us[1].1 / series.gap_us[0].1 - 0.99).abs() < 1e-12);
    }

    #[test]
    fn a_series_ends_when_the_gap_becomes_invalid() {
        let p = Params::preset(Set::Pr0).to_builder().with(Key::K2, 1500.0).build().unwrap();
        assert_eq!(series(&p, 10).rate_mbps.len(), 1);
    }

    #[test]
    fn the_path_nears_the_fairness_line_and_the_overload_line_meets_the_target() {
        let p = Params::preset(Set::Pr0);
        let plane = phase_plane(&p, 3000);
        let off = |&(x, y): &(f64, f64)| (x / y - 1.0).abs();
        let (first, last) = (&plane.path_us[0], plane.path_us.last().unwrap());
        assert!(off(first) > 0.5 && off(last) < 1e-3);
        assert!(first.1 > first.0, "the faster first flow is above the line");
        for &(x, y) in &plane.overload_us {
            let total = p.rate_of(x / 1e6) + p.rate_of(y / 1e6);
            assert!((1.0 - p.service() / total - p.alpha()).abs() < 1e-9);
        }
        assert_eq!(plane.overload_us.len(), 95);
    }
}
