//! Cases in which flows start and stop, as in \[SLAC\]: statistics of the whole run and of each region
//! beside the published statistics, and rank correlations of both.

use sabul_report::{Bar, Cell, Column, Table};
use sabul_run::statistics;
use serde::Serialize;

use super::found::{Found, Ranked, Reproduced, Reproduction};
use super::plan::{Plan, Published, Rank, Statistic, Verdict};
use crate::card::{RegionTest, region_test};

/// Our statistics of a case: means over seeds.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct RegionStatistics {
    pub(crate) mean_mbps: f64,
    pub(crate) sd_mbps: f64,
    pub(crate) stability: f64,
    pub(crate) jain_min: f64,
    pub(crate) rtt_ms: f64,
    pub(crate) regions: Vec<(f64, f64)>,
}

impl RegionStatistics {
    /// Computes the statistics of one case; `None` if the case has no regions.
    pub(crate) fn of(found: &Found) -> Option<Self> {
        let seeds: Vec<RegionTest> = found
            .trials
            .iter()
            .filter(|trial| trial.finished.results.regions.len() > 1)
            .map(|trial| region_test(0.0, std::slice::from_ref(trial), None))
            .collect();
        let over = |number: &dyn Fn(&RegionTest) -> f64| {
            statistics::mean(seeds.iter().map(number)).unwrap_or(f64::NAN)
        };
        let count = seeds.iter().map(|seed| seed.regions.len()).min()?;
        let region = |index: usize| {
            let stability = over(&|seed| seed.regions[index].stability);
            (stability, over(&|seed| seed.regions[index].jain))
        };
        Some(Self {
            mean_mbps: over(&|seed| seed.mean_bps) / 1e6,
            sd_mbps: over(&|seed| seed.sd_bps) / 1e6,
            stability: over(&|seed| seed.stability),
            jain_min: over(&|seed| seed.jain_min),
            rtt_ms: over(&|seed| seed.rtt_ms_mean),
            regions: (0..count).map(region).collect(),
        })
    }
}

/// Returns the deviation from the published statistics: the mean of |ours ÷ published − 1| over mean,
/// stability and smallest Jain's index.
pub(crate) fn misfit(published: &Published, found: &Found) -> Option<f64> {
    let ours = RegionStatistics::of(found)?;
    let off = |ours: f64, published: f64| (ours / published - 1.0).abs();
    let sum = off(ours.mean_mbps, published.mean_mbps)
        + off(ours.stability, published.stability)
        + off(ours.jain_min, published.jain_min);
    Some(sum / 3.0)
}

/// Judges the statements about the order of the cases.
pub(crate) fn rank<'a>(plan: &'a Plan, cases: &[Reproduction<'_>]) -> Vec<Ranked<'a>> {
    let pairs: Vec<(&Published, RegionStatistics)> = cases
        .iter()
        .filter_map(|one| {
            Some((one.case.published.as_ref()?, RegionStatistics::of(one.chosen()?)?))
        })
        .collect();
    let judge = |rank: &'a Rank| {
        let (theirs, ours): (Vec<f64>, Vec<f64>) = pairs
            .iter()
            .map(|(theirs, ours)| match rank.mark {
                Statistic::Mean => (theirs.mean_mbps, ours.mean_mbps),
                Statistic::Stability => (theirs.stability, ours.stability),
                Statistic::JainMin => (theirs.jain_min, ours.jain_min),
            })
            .unzip();
        let correlation = spearman(&theirs, &ours);
        let holds = correlation >= rank.at_least;
        let verdict = if holds { Verdict::Holds } else { Verdict::Differs };
        Ranked { rank, correlation, verdict }
    };
    plan.ranks.iter().map(judge).collect()
}

/// Returns Spearman's rank correlation: Pearson's correlation of the ranks, where equal values
/// share their mean rank.
fn spearman(a: &[f64], b: &[f64]) -> f64 {
    let (a, b) = (ranks(a), ranks(b));
    let mean = (a.len() as f64 + 1.0) / 2.0;
    let product = |x: &[f64], y: &[f64]| -> f64 {
        x.iter().zip(y).map(|(x, y)| (x - mean) * (y - mean)).sum()
    };
    product(&a, &b) / (product(&a, &a) * product(&b, &b)).sqrt()
}

/// Returns the rank of each value, from 1.
fn ranks(values: &[f64]) -> Vec<f64> {
    let rank = |value: &f64| {
        let below = values.iter().filter(|other| *other < value).count() as f64;
        let equal = values.iter().filter(|other| other.total_cmp(value).is_eq()).count() as f64;
        below + (equal + 1.0) / 2.0
    };
    values.iter().map(rank).collect()
}

/// Returns a bar of our mean goodput with its range over seeds, and the published mean.
pub(crate) fn bar(one: &Reproduction<'_>) -> Bar {
    let Some((found, statistics)) =
        one.chosen().and_then(|found| Some((found, RegionStatistics::of(found)?)))
    else {
        return Bar::new(f64::NAN);
    };
    let means =
        found.trials.iter().map(|trial| region_test(0.0, std::slice::from_ref(trial), None));
    let means: Vec<f64> = means.map(|seed| seed.mean_bps).collect();
    let least = means.iter().copied().fold(f64::INFINITY, f64::min);
    let most = means.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let bar = Bar::new(statistics.mean_mbps * 1e6).with_range(least, most);
    match &one.case.published {
        Some(published) => bar.with_published(published.mean_mbps * 1e6),
        None => bar,
    }
}

/// Returns the tables of a plan with regions; empty for any other plan.
pub(crate) fn tables(one: &Reproduced<'_>) -> Vec<Table> {
    let cases: Vec<_> = one
        .cases
        .iter()
        .filter_map(|case| Some((case, RegionStatistics::of(case.chosen()?)?)))
        .collect();
    if cases.is_empty() || one.plan.ranks.is_empty() {
        return Vec::new();
    }
    let mut tables = vec![whole_table(&cases), region_table(&cases)];
    tables.push(rank_table(&one.ranked));
    tables.push(repeat_table(&cases));
    tables
}

fn whole_table(cases: &[(&Reproduction<'_>, RegionStatistics)]) -> Table {
    let theirs = |one: &Reproduction<'_>, number: fn(&Published) -> f64, places: usize| {
        let number = one.case.published.as_ref().map(number);
        number.map_or(Cell::Empty, |number| Cell::Fixed(number, places))
    };
    Table::of("All seven regions together", cases)
        .text("stack", |(one, _)| one.case.id.clone().into())
        .number("mean, published", "Mb/s", |(one, _)| theirs(one, |all| all.mean_mbps, 0))
        .number("ours", "Mb/s", |(_, ours)| Cell::Fixed(ours.mean_mbps, 0))
        .number("SD, published", "Mb/s", |(one, _)| theirs(one, |all| all.sd_mbps, 0))
        .number("ours", "Mb/s", |(_, ours)| Cell::Fixed(ours.sd_mbps, 0))
        .number("SD ÷ mean, published", "", |(one, _)| theirs(one, |all| all.stability, 2))
        .number("ours", "", |(_, ours)| Cell::Fixed(ours.stability, 2))
        .number("least fairness, published", "", |(one, _)| theirs(one, |all| all.jain_min, 2))
        .number("ours", "", |(_, ours)| Cell::Fixed(ours.jain_min, 2))
        .number("RTT, ours", "ms", |(_, ours)| Cell::Fixed(ours.rtt_ms, 0))
        .table()
}

fn region_table(cases: &[(&Reproduction<'_>, RegionStatistics)]) -> Table {
    let count = cases.iter().map(|(_, ours)| ours.regions.len()).max().unwrap_or(0);
    let mut columns = vec![Column::text("stack"), Column::text("whose")];
    columns.extend((1..=count).map(|region| Column::text(format!("region {region}"))));
    let mut table = Table::new("SD ÷ mean / fairness, region by region", columns);
    let cells = |regions: &[(f64, f64)]| -> Vec<Cell> {
        let cells = regions.iter().map(|(stability, jain)| format!("{stability:.2}/{jain:.2}"));
        cells.map(Cell::from).collect()
    };
    for (one, ours) in cases {
        if let Some(theirs) = &one.case.published {
            let mut row = vec![one.case.id.clone().into(), "published".into()];
            row.extend(cells(&theirs.regions));
            table = table.with_row(row);
        }
        let mut row = vec![one.case.id.clone().into(), "ours".into()];
        row.extend(cells(&ours.regions));
        table = table.with_row(row);
    }
    table
}

fn rank_table(ranked: &[Ranked<'_>]) -> Table {
    Table::of("Do ours come in the published order?", ranked)
        .text("claim", |one| one.rank.says.clone().into())
        .number("rank correlation", "", |one| Cell::Fixed(one.correlation, 2))
        .number("at least", "", |one| Cell::Number(one.rank.at_least))
        .text("verdict", |one| one.verdict.cell(one.is_changed()))
        .text("cause", |one| one.rank.cause.clone().into())
        .table()
}

/// Returns a table of rank correlations between regions with the same number of flows, which repeat
/// the same experiment.
fn repeat_table(cases: &[(&Reproduction<'_>, RegionStatistics)]) -> Table {
    let columns = vec![
        Column::text("regions"),
        Column::number("SD ÷ mean, published", ""),
        Column::number("ours", ""),
        Column::number("fairness, published", ""),
        Column::number("ours", ""),
    ];
    let title = "Rank correlation of regions with the same number of flows";
    let mut table = Table::new(title, columns);
    let published = cases.iter().filter_map(|(one, ours)| {
        Some((one.case.published.as_ref()?.regions.clone(), ours.regions.clone()))
    });
    let (theirs, ours): (Vec<_>, Vec<_>) = published.unzip();
    let count = theirs.iter().chain(&ours).map(Vec::len).min().unwrap_or(0);
    let alike = |all: &[Vec<(f64, f64)>], first: usize, statistic: fn(&(f64, f64)) -> f64| {
        let of =
            |region: usize| all.iter().map(|case| statistic(&case[region])).collect::<Vec<_>>();
        let number = spearman(&of(first), &of(count - 1 - first));
        // One flow alone is always fair, so its fairness has no rank correlation.
        if number.is_finite() { Cell::Fixed(number, 2) } else { Cell::Empty }
    };
    for first in 0..count / 2 {
        table = table.with_row(vec![
            format!("{} and {}", first + 1, count - first).into(),
            alike(&theirs, first, |region| region.0),
            alike(&ours, first, |region| region.0),
            alike(&theirs, first, |region| region.1),
            alike(&ours, first, |region| region.1),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rank_correlation_of_small_examples() {
        let close = |a: &[f64], b: &[f64], expected: f64| {
            let found = spearman(a, b);
            assert!((found - expected).abs() < 1e-9, "{found}");
        };
        close(&[1.0, 2.0, 3.0], &[10.0, 20.0, 90.0], 1.0);
        close(&[1.0, 2.0, 3.0], &[3.0, 2.0, 1.0], -1.0);
        // 1 − 6 Σd² ÷ (n (n² − 1)) = 1 − 6 × 2 ÷ 60.
        close(&[1.0, 2.0, 3.0, 4.0], &[1.0, 3.0, 2.0, 4.0], 0.8);
        // Two equal values have rank 1.5 each: 4.5 ÷ √(5 × 4.5).
        close(&[1.0, 2.0, 3.0, 4.0], &[5.0, 5.0, 6.0, 7.0], 4.5 / 22.5_f64.sqrt());
        assert!(spearman(&[1.0, 2.0], &[4.0, 4.0]).is_nan(), "nothing to rank");
    }
}
