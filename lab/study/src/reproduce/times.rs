//! Convergence times of a run, from its series. Values are averaged over one second, so variation
//! within a second is ignored.

use sabul_run::results::Series;
use sabul_run::statistics;
use sabul_scenario::Run;

/// Utilisation from which a link counts as full.
const FULL: f64 = 0.9;
/// Largest relative deviation from the mean rate that counts as alike.
const ALIKE: f64 = 0.1;
const WINDOW_S: f64 = 1.0;

/// Returns the seconds from the start of the run to the first second in which the link is full;
/// `None` if the link is never full.
pub(super) fn full_after(link: &str, series: &Series) -> Option<f64> {
    let link = series.links.iter().find(|one| one.id == link)?;
    let used = seconds(series, &link.utilisation);
    used.into_iter().find(|(_, used)| *used >= FULL).map(|(from_s, _)| from_s)
}

/// Returns the seconds from the last start of these flows until their rates stay alike to the end
/// of the run. Alike means within a tenth of their mean over one second. `None` if the rates do not
/// stay alike.
pub(super) fn alike_after(flows: &[String], run: &Run, series: &Series) -> Option<f64> {
    let plans = run.scenario.flows.iter().filter(|plan| flows.contains(&plan.id));
    let since = plans.map(|plan| plan.start.elapsed().as_secs_f64()).fold(0.0, f64::max);
    let rates: Vec<Vec<(f64, f64)>> = series
        .flows
        .iter()
        .filter(|flow| flows.contains(&flow.id))
        .map(|flow| seconds(series, &flow.rate_bps))
        .collect();
    let count = rates.iter().map(Vec::len).min()?;
    let is_alike = |at: usize| {
        let mean = statistics::mean(rates.iter().map(|rates| rates[at].1)).unwrap_or(f64::NAN);
        rates.iter().all(|rates| (rates[at].1 / mean - 1.0).abs() <= ALIKE)
    };
    let first = (0..count).rev().take_while(|at| is_alike(*at)).last()?;
    Some((rates[0][first].0 - since).max(0.0))
}

/// Returns start time and mean of each second; a new second begins with each sample.
fn seconds(series: &Series, values: &[f64]) -> Vec<(f64, f64)> {
    let Some(sample) = series.t_s.first().copied().filter(|sample| *sample > 0.0) else {
        return Vec::new();
    };
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "1 to 10^6")]
    let width = (WINDOW_S / sample).round().clamp(1.0, 1e6) as usize;
    let ends = series.t_s.iter().zip(values.windows(width));
    ends.map(|(end_s, values)| (end_s - sample, statistics::mean(values.iter().copied())))
        .filter_map(|(from_s, mean)| Some((from_s, mean?)))
        .collect()
}

#[cfg(test)]
mod tests {
    use sabul_run::results::{FlowSeries, LinkSeries};

    use super::*;

    /// Half-second samples of one link and two flows.
    fn series(used: &[f64], rates: [&[f64]; 2]) -> Series {
        let t_s = (1..=used.len()).map(|n| n as f64 / 2.0).collect();
        let link =
            LinkSeries { id: "l".to_owned(), utilisation: used.to_vec(), ..LinkSeries::default() };
        let flows = ["a", "b"].iter().zip(rates).map(|(id, rate)| FlowSeries {
            id: (*id).to_owned(),
            rate_bps: rate.to_vec(),
            ..FlowSeries::default()
        });
        Series { t_s, flows: flows.collect(), links: vec![link] }
    }

    #[test]
    fn a_link_is_full_from_the_first_second_with_ninety_percent_utilisation() {
        let one = series(&[0.0, 0.5, 1.0, 0.85, 0.95, 1.0], [&[], &[]]);
        // The second from 0.5 s has 0.75, and that from 1 s has 0.925.
        assert_eq!(full_after("l", &one), Some(1.0));
        assert_eq!(full_after("l", &series(&[0.8; 6], [&[], &[]])), None);
        assert_eq!(full_after("other", &one), None, "no link, no time");
    }

    #[test]
    fn convergence_time_counts_from_the_last_start_to_lasting_equality() {
        let text = "duration_s = 4\nlink = [{ id = 'l', rate_mbps = 1, delay_ms = 1 }]\nflow = [\
                    { id = 'a', path = ['l'] }, { id = 'b', path = ['l'], start_s = 1 }]";
        let run = sabul_scenario::read(text, "x.toml", &[]).unwrap().remove(0);
        let both = ["a".to_owned(), "b".to_owned()];
        let after = |b: &[f64]| alike_after(&both, &run, &series(&[1.0; 8], [&[10.0; 8], b]));
        // Alike for a moment, then different, then alike from the second that begins at 2.5 s.
        assert_eq!(after(&[0.0, 0.0, 10.0, 10.0, 2.0, 10.0, 10.0, 9.0]), Some(1.5));
        assert_eq!(after(&[10.0; 8]), Some(0.0));
        assert_eq!(after(&[5.0; 8]), None);
    }
}
