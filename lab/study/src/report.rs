//! Pages, charts and tables of runs on either arm.

mod lab;

use sabul_model::grid::HeatMap;
use sabul_model::series::{self as model, PhasePlane};
use sabul_report::{Axis, Cell, Chart, Column, Heatmap, Item, Line, Page, Section, Style, Table};
use sabul_run::results::{FlowSeries, LinkSeries, Results, Series};
use sabul_scenario::Run;

use crate::built::COMMIT;
use crate::runs::Finished;
pub use lab::{INVALID, calibration_table, lateness, left_out};

/// Most flows drawn in a chart. A chart with more flows cannot be read.
const LINES_MAX: usize = 10;

/// Returns the page of one run. The page of an invalid run has reasons instead of numbers.
pub fn run_page(run: &Run, finished: &Finished) -> Page {
    let Finished { results, series, .. } = finished;
    let scenario = &run.scenario;
    let mut page = Page::new(
        scenario.name.clone(),
        format!(
            "{}: {} s, warm-up {} s, seed {}, commit {COMMIT}",
            how(finished),
            scenario.duration.as_secs_f64(),
            scenario.warmup.as_secs_f64(),
            scenario.seed,
        ),
    );
    if let Some(facts) = &finished.lab {
        page = lab::with_verdict(page, facts);
    }
    if finished.is_valid() {
        for flow in &results.flows {
            page = page.with_summary(format!(
                "{} ({} {}): {:.1} Mb/s goodput, {:.3} % lost, RTT {:.1} ms on average",
                flow.id,
                flow.transport,
                flow.cc,
                flow.goodput_bps / 1e6,
                flow.loss_rate * 100.0,
                flow.rtt_ms.mean,
            ));
        }
        page = page.with_summary(format!("Jain's index {:.4}", results.jain));
    }
    if let Some(facts) = &finished.lab {
        page = page.with_section(lab::validity_section(facts));
    }
    if finished.is_valid() {
        page = page
            .with_section(
                Section::new("Averages", "From the end of the warm-up to the end of the run.")
                    .with_item(Item::Table(flow_table(results)))
                    .with_item(Item::Table(link_table(results)))
                    .with_item(Item::Table(region_table(results))),
            )
            .with_section(flows_section(series))
            .with_section(links_section(series));
        if let Some(section) = finished.why.section() {
            page = page.with_section(section);
        }
        if let Some(facts) = &finished.lab {
            page = page.with_section(lab::conversations_section(run, facts));
        }
    }
    page.with_section(
        Section::new("Scenario", "The file that repeats this run, every setting applied.")
            .with_item(Item::Pre { title: "scenario.toml".to_owned(), text: run.text.clone() }),
    )
}

/// Returns how a run was made: measured or simulated.
const fn how(finished: &Finished) -> &'static str {
    if finished.lab.is_some() {
        "Measured in the lab: real sockets over an emulated path"
    } else {
        "Simulated"
    }
}

fn flows_section(series: &Series) -> Section {
    let chart = |title: &str, axis: Axis, value: fn(&FlowSeries) -> &[f64]| {
        Item::Chart(flow_chart(series, title, axis, value))
    };
    let text = if series.flows.len() > LINES_MAX {
        format!("The first {LINES_MAX} of {} flows.", series.flows.len())
    } else {
        String::new()
    };
    let mut section = Section::new("Flows over time", text)
        .with_item(Item::Chart(goodput_chart(series)))
        .with_item(chart("Sending rate", Axis::new("rate", "b/s"), |flow| &flow.rate_bps))
        .with_item(chart("Inter-packet gap", Axis::new("gap", "ns"), |flow| &flow.gap_ns))
        .with_item(chart("Round trip", Axis::new("RTT", "ms"), |flow| &flow.rtt_ms))
        .with_item(chart("Packets in flight", Axis::new("in flight", "packets"), |flow| {
            &flow.in_flight_pkts
        }))
        .with_item(chart("Loss", Axis::new("lost ÷ sent", ""), |flow| &flow.loss_rate));
    if has_any(series, |flow| &flow.cwnd_pkts) {
        let axis = Axis::new("window", "packets");
        section = section.with_item(chart("Congestion window", axis, |flow| &flow.cwnd_pkts));
    }
    if has_any(series, |flow| &flow.delivery_bps) {
        let axis = Axis::new("acknowledged", "b/s");
        section = section.with_item(chart("Delivery rate", axis, |flow| &flow.delivery_bps));
    }
    section
}

/// Returns whether any drawn flow has finite values of this kind.
fn has_any(series: &Series, value: fn(&FlowSeries) -> &[f64]) -> bool {
    series.flows.iter().take(LINES_MAX).flat_map(value).any(|value| value.is_finite())
}

fn links_section(series: &Series) -> Section {
    let chart = |title: &str, axis: Axis, value: fn(&LinkSeries) -> &[f64]| {
        let mut chart = Chart::new(title, time_axis(), axis);
        for link in series.links.iter().take(LINES_MAX) {
            chart = chart.with_line(line(&link.id, &series.t_s, value(link)));
        }
        Item::Chart(chart)
    };
    Section::new("Links over time", "")
        .with_item(chart("Queue", Axis::new("waiting", "packets"), |link| &link.queue_pkts))
        .with_item(chart("Drops", Axis::new("dropped", "packets"), |link| &link.drops))
        .with_item(chart("Utilisation", Axis::new("used ÷ rate", ""), |link| &link.utilisation))
}

/// Returns a chart of the goodput of each flow over time.
pub fn goodput_chart(series: &Series) -> Chart {
    flow_chart(series, "Goodput", Axis::new("goodput", "b/s"), |flow| &flow.goodput_bps)
}

/// Returns a chart of one quantity of each flow over time.
pub fn flow_chart(
    series: &Series,
    title: &str,
    axis: Axis,
    value: fn(&FlowSeries) -> &[f64],
) -> Chart {
    let mut chart = Chart::new(title, time_axis(), axis);
    for flow in series.flows.iter().take(LINES_MAX) {
        chart = chart.with_line(line(&flow.id, &series.t_s, value(flow)));
    }
    chart
}

/// Returns the phase plane of the gaps of two flows of the model.
pub fn phase_chart(title: &str, plane: &PhasePlane) -> Chart {
    let micros = |points: &[(f64, f64)]| -> Vec<(f64, f64)> {
        points.iter().map(|(x, y)| (x * 1e-6, y * 1e-6)).collect()
    };
    let dashed = |name: &str, points: &[(f64, f64)]| Line {
        style: Style::Dashed,
        ..Line::new(name, micros(points))
    };
    let far = plane.path_us.iter().fold(0.0_f64, |far, (x, y)| far.max(*x).max(*y));
    let axis = |flow: &str| {
        Axis::new(format!("gap of the {flow} flow"), "s").with_range(0.0, far * 1.05e-6)
    };
    let near: Vec<(f64, f64)> =
        plane.overload_us.iter().copied().filter(|(x, y)| x.max(*y) <= far).collect();
    Chart::new(title, axis("first"), axis("second"))
        .with_line(Line::new("rounds", micros(&plane.path_us)))
        .with_line(dashed("equal gaps", &plane.fairness_us))
        .with_line(dashed("target loss", &near))
}

/// Returns the charts of one flow of the model over time.
pub fn model_charts(series: &model::Series) -> [Chart; 3] {
    let chart = |title: &str, axis: Axis, points: &[(f64, f64)], factor: f64| {
        let points = points.iter().map(|(t_s, value)| (*t_s, value * factor)).collect();
        Chart::new(title, time_axis(), axis).with_line(Line::new("flow", points))
    };
    [
        chart("Rate", Axis::new("rate", "b/s"), &series.rate_mbps, 1e6),
        chart("Loss", Axis::new("lost ÷ sent", ""), &series.loss, 1.0),
        chart("Queue", Axis::new("waiting", "packets"), &series.queue_packets, 1.0),
    ]
}

/// Returns a heat map of the average loss over a grid, compared with the target.
pub fn grid_map(map: &HeatMap) -> Heatmap {
    let name = |value: &f64| sabul_report::significant(*value, 3);
    let mut heat = Heatmap::new("Average loss γ", Axis::new("γ", "").with_log())
        .with_x(map.x, map.x_values.iter().map(name).collect());
    heat.y_label = map.y.to_owned();
    for (y, row) in map.y_values.iter().zip(&map.gamma).rev() {
        heat = heat.with_row(name(y), row.iter().map(|gamma| gamma.unwrap_or(f64::NAN)).collect());
    }
    heat
}

fn time_axis() -> Axis {
    Axis::new("time", "s")
}

fn line(name: &str, t_s: &[f64], values: &[f64]) -> Line {
    let points = t_s.iter().copied().zip(values.iter().copied()).collect();
    Line { style: Style::Line, ..Line::new(name, points) }
}

/// Returns a table with the averages of each flow.
pub fn flow_table(results: &Results) -> Table {
    Table::of("Flows", &results.flows)
        .text("flow", |flow| flow.id.clone().into())
        .text("transport", |flow| flow.transport.clone().into())
        .text("cc", |flow| flow.cc.clone().into())
        .number("goodput", "Mb/s", |flow| Cell::Fixed(flow.goodput_bps / 1e6, 2))
        .number("throughput", "Mb/s", |flow| Cell::Fixed(flow.throughput_bps / 1e6, 2))
        .number("lost", "%", |flow| Cell::Fixed(flow.loss_rate * 100.0, 4))
        .number("sent again", "packets", |flow| Cell::Fixed(flow.retransmissions as f64, 0))
        .number("RTT min", "ms", |flow| Cell::Fixed(flow.rtt_ms.min, 2))
        .number("RTT mean", "ms", |flow| Cell::Fixed(flow.rtt_ms.mean, 2))
        .number("RTT p99", "ms", |flow| Cell::Fixed(flow.rtt_ms.p99, 2))
        .number("stability", "SD/mean", |flow| Cell::Fixed(flow.stability, 3))
        .number("completed", "s", |flow| {
            flow.completed_s.map_or(Cell::Empty, |s| Cell::Fixed(s, 3))
        })
        .table()
}

/// Returns a table with the averages of each link.
pub fn link_table(results: &Results) -> Table {
    Table::of("Links", &results.links)
        .text("link", |link| link.id.clone().into())
        .number("utilisation", "%", |link| Cell::Fixed(link.utilisation * 100.0, 2))
        .number("drops", "packets", |link| Cell::Fixed(link.drops as f64, 0))
        .number("marks", "packets", |link| Cell::Fixed(link.marks as f64, 0))
        .number("queue mean", "packets", |link| Cell::Fixed(link.queue_packets.mean, 1))
        .number("queue p99", "packets", |link| Cell::Fixed(link.queue_packets.p99, 0))
        .number("queue max", "packets", |link| Cell::Fixed(link.queue_packets.max as f64, 0))
        .table()
}

fn region_table(results: &Results) -> Table {
    Table::of("Regions: whenever a long flow enters or leaves", &results.regions)
        .number("from", "s", |region| Cell::Fixed(region.from_s, 1))
        .number("to", "s", |region| Cell::Fixed(region.to_s, 1))
        .number("flows", "", |region| Cell::Fixed(region.flows.len() as f64, 0))
        .number("aggregate", "Mb/s", |region| Cell::Fixed(region.aggregate_bps / 1e6, 2))
        .number("stability", "SD/mean", |region| Cell::Fixed(region.stability, 3))
        .number("Jain's index", "", |region| Cell::Fixed(region.jain, 4))
        .table()
}

/// Returns one table of all runs of a sweep: a row per flow of each run.
pub fn sweep_table(runs: &[(&Run, &Finished)]) -> Table {
    let mut settings: Vec<&str> = Vec::new();
    for (key, _) in runs.iter().flat_map(|(run, _)| &run.settings) {
        if !settings.contains(&key.as_str()) {
            settings.push(key);
        }
    }
    let mut columns: Vec<Column> = settings.iter().copied().map(Column::text).collect();
    columns.extend([
        Column::text("flow"),
        Column::number("goodput", "Mb/s"),
        Column::number("lost", "%"),
        Column::number("RTT mean", "ms"),
        Column::number("stability", "SD/mean"),
        Column::number("completed", "s"),
        Column::number("Jain's index", ""),
    ]);
    let mut rows = Vec::new();
    for (run, finished) in runs {
        let values: Vec<Cell> = settings
            .iter()
            .map(|wanted| {
                let found = run.settings.iter().find(|(key, _)| key == wanted);
                found.map_or(Cell::Empty, |(_, value)| value.clone().into())
            })
            .collect();
        if !finished.is_valid() {
            rows.push([values, vec![Cell::Fail("invalid".to_owned())]].concat());
            continue;
        }
        for flow in &finished.results.flows {
            let mut row = values.clone();
            row.extend([
                flow.id.clone().into(),
                Cell::Fixed(flow.goodput_bps / 1e6, 2),
                Cell::Fixed(flow.loss_rate * 100.0, 4),
                Cell::Fixed(flow.rtt_ms.mean, 2),
                Cell::Fixed(flow.stability, 3),
                flow.completed_s.map_or(Cell::Empty, |s| Cell::Fixed(s, 3)),
                Cell::Fixed(finished.results.jain, 4),
            ]);
            rows.push(row);
        }
    }
    Table { title: "Runs".to_owned(), columns, rows }
}

/// Returns the page of a sweep.
pub fn sweep_page(runs: &[(&Run, &Finished)]) -> Page {
    let name = runs.first().map_or("sweep", |(run, _)| run.scenario.name.as_str());
    let how = runs.first().map_or("", |(_, finished)| how(finished));
    let subtitle = format!("{how}: {} runs, commit {COMMIT}", runs.len());
    let mut page = Page::new(name, subtitle).with_section(
        Section::new("All runs", "Each run's own report is in its folder, run-0001 and so on.")
            .with_item(Item::Table(sweep_table(runs))),
    );
    if let Some((run, _)) = runs.first() {
        let pre = Item::Pre { title: "of the first run".to_owned(), text: run.text.clone() };
        page = page.with_section(Section::new("Scenario", "").with_item(pre));
    }
    page
}
