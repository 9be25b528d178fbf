//! Rendering of reproductions: text, tables and pictures.

use sabul_report::{Axis, Bar, BarChart, BarSeries, Cell, Chart, Column, Item, Section, Table};
use sabul_run::results::Series;
use sabul_run::statistics;

use super::found::{Found, Reproduced, Reproduction, Variation};
use super::judge::{judge, misfit};
use super::plan::{Open, Verdict};
use super::regions;
use crate::card::Trial;
use crate::report;

/// Most cases whose series are drawn. More cases would make a page too large.
const DRAWN_MAX: usize = 16;
const TEXT_WIDTH: usize = 140;

/// Returns the text for a terminal.
pub(crate) fn text(one: &Reproduced<'_>) -> String {
    let mut text = format!("{}: {}\n\n", one.plan.source, one.plan.title);
    for table in tables(one) {
        text += &table.to_text(TEXT_WIDTH);
        text.push('\n');
    }
    text
}

/// Returns the same content as Markdown.
pub(crate) fn markdown(one: &Reproduced<'_>) -> String {
    let mut text =
        format!("## {}: {}\n\n{}\n\n", one.plan.source, one.plan.title, one.plan.about.trim());
    for table in tables(one) {
        text += &format!("{}\n", table.to_markdown());
    }
    text
}

/// Returns the section of a report.
pub(crate) fn section(one: &Reproduced<'_>) -> Section {
    let heading = format!("{}: {}", one.plan.source, one.plan.title);
    let mut section = Section::new(heading, one.plan.about.clone()).with_item(Item::Bar(bars(one)));
    for table in tables(one) {
        section = section.with_item(Item::Table(table));
    }
    for reproduction in one.cases.iter().take(DRAWN_MAX) {
        let Some(found) = reproduction.chosen() else { continue };
        let case = reproduction.case;
        let title = match case.figure.as_str() {
            "" => case.id.clone(),
            figure => format!("{} (figure {figure})", case.id),
        };
        if let Some(plane) = &found.phase {
            section = section.with_item(Item::Chart(report::phase_chart(&title, plane)));
        }
        let Some(Trial { run, finished }) = found.trials.first() else { continue };
        for chart in charts(one, &title, &finished.series) {
            section = section.with_item(Item::Chart(chart));
        }
        let text = run.text.clone();
        section = section.with_item(Item::Pre { title: format!("scenario of {}", case.id), text });
    }
    section
}

/// Returns the charts of one run over time.
fn charts(one: &Reproduced<'_>, title: &str, series: &Series) -> Vec<Chart> {
    if one.plan.ranks.is_empty() {
        let axis = Axis::new("sending rate", "b/s");
        return vec![report::flow_chart(series, title, axis, |flow| &flow.rate_bps)];
    }
    // As in [SLAC] figure 2.
    let goodput = Axis::new("goodput", "b/s");
    let rtt = Axis::new("round trip", "ms");
    vec![
        report::flow_chart(series, title, goodput, |flow| &flow.goodput_bps),
        report::flow_chart(series, &format!("{title}: round trip"), rtt, |flow| &flow.rtt_ms),
    ]
}

/// Returns the main picture of a reproduction as SVG.
pub(crate) fn picture_svg(one: &Reproduced<'_>) -> String {
    let last = one.cases.last().and_then(Reproduction::chosen);
    match last.and_then(|found| found.phase.as_ref()) {
        Some(plane) => report::phase_chart(&title(one), plane).to_svg(700, 560),
        None => bars(one).to_svg(900, 420),
    }
}

fn title(one: &Reproduced<'_>) -> String {
    format!("{}: {}", one.plan.source, one.plan.title)
}

/// Returns the rates of all cases beside the published rates: of each flow, or of all flows
/// together if flows start and stop.
fn bars(one: &Reproduced<'_>) -> BarChart {
    let groups = one.cases.iter().map(|reproduction| reproduction.case.id.clone()).collect();
    if !one.plan.ranks.is_empty() {
        let bars = one.cases.iter().map(regions::bar).collect();
        return BarChart::new(title(one), Axis::new("mean goodput of all flows", "b/s"), groups)
            .with_series(BarSeries::new("ours", bars));
    }
    let mut chart = BarChart::new(title(one), Axis::new("rate", "b/s"), groups);
    let width = one.cases.iter().map(|reproduction| flows(reproduction).len()).max().unwrap_or(0);
    for column in 0..width {
        let bars = one.cases.iter().map(|reproduction| {
            let flow = flows(reproduction).into_iter().nth(column);
            let rate = flow.as_ref().and_then(|flow| reproduction.chosen()?.rates.get(flow));
            let Some((flow, rate)) = flow.zip(rate) else { return Bar::new(f64::NAN) };
            let bar = Bar::new(rate.mean * 1e6).with_range(rate.least * 1e6, rate.most * 1e6);
            match reproduction.case.published_mbps.get(&flow) {
                Some(published) => bar.with_published(published * 1e6),
                None => bar,
            }
        });
        let names: Vec<String> =
            one.cases.iter().filter_map(|case| flows(case).into_iter().nth(column)).collect();
        let all_same = names.windows(2).all(|pair| pair[0] == pair[1]);
        let name = match names.first() {
            Some(name) if all_same => name.clone(),
            _ => format!("flow {}", column + 1),
        };
        chart.series.push(BarSeries::new(name, bars.collect()));
    }
    chart
}

/// Returns the flows of a case to show: flows with published rates first, then others.
fn flows(reproduction: &Reproduction<'_>) -> Vec<String> {
    let case = reproduction.case;
    let shown = case.shown.iter().filter(|flow| !case.published_mbps.contains_key(*flow));
    case.published_mbps.keys().chain(shown).cloned().collect()
}

fn tables(one: &Reproduced<'_>) -> Vec<Table> {
    let mut tables = vec![rates_table(one), claims_table(one)];
    tables.retain(|table| !table.rows.is_empty());
    tables.extend(regions::tables(one));
    tables.extend(open_tables(one));
    tables
}

fn rates_table(one: &Reproduced<'_>) -> Table {
    let mut rates = Vec::new();
    for reproduction in &one.cases {
        let found = reproduction.chosen();
        for flow in flows(reproduction) {
            let published = reproduction.case.published_mbps.get(&flow).copied();
            let rate = found.and_then(|found| found.rates.get(&flow));
            rates.extend(rate.map(|rate| (reproduction.case, flow, published, rate)));
        }
    }
    Table::of("Rates", &rates)
        .text("case", |(case, ..)| case.id.clone().into())
        .text("figure", |(case, ..)| case.figure.clone().into())
        .text("flow", |(_, flow, ..)| flow.clone().into())
        .number("published", "Mb/s", |(.., mbps, _)| mbps.map_or(Cell::Empty, Cell::Number))
        .number("ours", "Mb/s", |(.., rate)| Cell::Fixed(rate.mean, 1))
        .number("over seeds from", "Mb/s", |(.., rate)| Cell::Fixed(rate.least, 1))
        .number("to", "Mb/s", |(.., rate)| Cell::Fixed(rate.most, 1))
        .number("difference", "%", |(.., mbps, rate)| {
            mbps.map_or(Cell::Empty, |mbps| Cell::Fixed((rate.mean / mbps - 1.0) * 100.0, 1))
        })
        .table()
}

fn claims_table(one: &Reproduced<'_>) -> Table {
    let judged = one.cases.iter().flat_map(|all| all.judged.iter().map(move |one| (all.case, one)));
    Table::of("Claims", &judged.collect::<Vec<_>>())
        .text("case", |(case, _)| case.id.clone().into())
        .text("claim", |(_, judged)| judged.claim.says.clone().into())
        .number("published", "", |(_, judged)| {
            judged.claim.published.map_or(Cell::Empty, Cell::Number)
        })
        .number("ours", "", |(_, judged)| Cell::Number(judged.ours))
        .number("tolerance", "", |(_, judged)| Cell::Number(judged.claim.tolerance))
        .text("verdict", |(_, judged)| judged.verdict.cell(judged.is_changed()))
        .text("why", |(_, judged)| judged.claim.cause.clone().into())
        .table()
}

/// Returns how the results depend on settings that the paper leaves open: one table per setting.
fn open_tables(one: &Reproduced<'_>) -> Vec<Table> {
    let opens = one.plan.open.iter().enumerate();
    opens.map(|(index, open)| open_table(one, index, open)).collect()
}

fn open_table(one: &Reproduced<'_>, index: usize, open: &Open) -> Table {
    let columns = vec![
        Column::text("option"),
        Column::number("misfit", "%"),
        Column::number("claims that hold", ""),
        Column::number("of", ""),
    ];
    let title = format!("Not stated in the paper: {}", open.what);
    let mut table = Table::new(title, columns);
    for (position, option) in open.options.iter().enumerate() {
        let is_chosen = option.name == open.chosen;
        let is_this = |found: &&Found| match found.variation {
            None => is_chosen,
            Some(variation) => variation == Variation { open: index, option: position },
        };
        let concerned =
            one.cases.iter().filter(|reproduction| open.is_varied_in(reproduction.case));
        let at: Vec<_> =
            concerned.filter_map(|one| Some((one.case, one.found.iter().find(is_this)?))).collect();
        let misfits = at.iter().filter_map(|(case, found)| misfit(case, found));
        let misfit = statistics::mean(misfits).unwrap_or(f64::NAN);
        let judged: Vec<_> = at.iter().flat_map(|(case, found)| judge(case, found)).collect();
        let holding = judged.iter().filter(|judged| judged.verdict != Verdict::Differs).count();
        table = table.with_row(vec![
            format!("{}{}", option.name, if is_chosen { " (chosen)" } else { "" }).into(),
            Cell::Fixed(misfit * 100.0, 1),
            Cell::Fixed(holding as f64, 0),
            Cell::Fixed(judged.len() as f64, 0),
        ]);
    }
    table
}
