//! Rendering of a card: tables, text, and one page.

use sabul_report::{
    Axis, Band, Bar, BarChart, BarSeries, Cell, Chart, Column, Heatmap, Item, Line, Page,
    Reference, Section, Style, Table, quantity, significant,
};
use sabul_run::results::FlowSeries;

use super::Sheet;
use super::cost::Cost;
use super::head::{how, title};
use super::lab::{COST, LabPart};
use super::measure::{Answer, MiceTest, Numbers, RegionResult, RegionTest, Trial, rtts_ms};
use super::plan::Question;
use crate::runs::Finished;

const TEXT_WIDTH: usize = 120;
/// Statistics of short transfers that are shown.
const MICE: [&str; 2] = ["median", "99th percentile"];

/// Returns the text for a terminal.
pub(crate) fn text(card: &Sheet) -> String {
    let mut text = format!("{}: {}\n\n", heading(card), how(&card.head));
    let numbers = &card.numbers;
    let tables =
        [regions_table(numbers), loss_table(numbers), beside_table(numbers), others_table(numbers)];
    for table in tables.into_iter().filter(|table| !table.rows.is_empty()) {
        text += &table.to_text(TEXT_WIDTH);
        text.push('\n');
    }
    for sentence in card.head.lab.iter().flat_map(LabPart::invalid) {
        text += &format!("{sentence}\n");
    }
    text
}

/// Function that builds a section of the page.
type MakeSection = fn(&Sheet, &[Answer]) -> Section;

/// Returns the page with all charts.
pub(crate) fn page(card: &Sheet, answers: &[Answer]) -> Page {
    let page = Page::new(heading(card), how(&card.head));
    let invalid = card.head.lab.iter().flat_map(LabPart::invalid);
    let page = invalid.chain(summary(&card.numbers)).fold(page, Page::with_summary);
    let numbers = &card.numbers;
    let has_sharing = numbers.convergence_within_s.is_some() || numbers.rtt_fairness.is_some();
    let sections: [(bool, MakeSection); 7] = [
        (!numbers.regions.is_empty(), regions_section),
        (!numbers.loss.is_empty(), loss_section),
        (!numbers.beside.is_empty(), beside_section),
        (has_sharing, sharing_section),
        (numbers.standing_queue.is_some(), queue_section),
        (numbers.mice.is_some(), mice_section),
        (numbers.cross.is_some(), cross_section),
    ];
    let sections = sections.into_iter().filter(|(has_numbers, _)| *has_numbers);
    let page = sections.fold(page, |page, (_, make)| page.with_section(make(card, answers)));
    card.head.lab.iter().fold(page, |page, lab| page.with_section(lab.section()))
}

fn heading(card: &Sheet) -> String {
    title("Report card of", card.head.cc, &card.head.params)
}

/// Returns one line per RTT for the test of seven regions.
fn regions_summary(numbers: &Numbers) -> Vec<String> {
    numbers
        .regions
        .iter()
        .map(|test| {
            let cost = test.cost.map_or_else(String::new, |cost| {
                format!(
                    ", {} MHz/Mbps sending and {} receiving",
                    significant(cost.mhz_per_mbps_sender, 3),
                    significant(cost.mhz_per_mbps_receiver, 3),
                )
            });
            format!(
                "Seven regions at {} ms: {} on average ({} % of the link), stability {}, Jain's index \
                 {} to {}, round trip {} ms{cost}",
                test.rtt_ms,
                quantity(test.mean_bps, "b/s"),
                significant(test.mean_bps / test.link_bps * 100.0, 3),
                significant(test.stability, 2),
                significant(test.jain_min, 2),
                significant(test.jain_max, 2),
                significant(test.rtt_ms_mean, 3),
            )
        })
        .collect()
}

/// Returns the main results, one line each.
fn summary(numbers: &Numbers) -> Vec<String> {
    let mut lines = regions_summary(numbers);
    if let Some(point) = numbers.loss.iter().find(|point| (point.loss - 0.01).abs() < 1e-9) {
        let percent = significant(point.share_of_link * 100.0, 3);
        lines.push(format!("At 1 % random loss: {percent} % of the link"));
    }
    let shares = || numbers.beside.iter().map(|point| point.cubic_share * 100.0);
    if !numbers.beside.is_empty() {
        lines.push(format!(
            "Beside it, one CUBIC flow keeps {} to {} % (50 would be even)",
            significant(shares().fold(f64::NAN, f64::min), 2),
            significant(shares().fold(f64::NAN, f64::max), 2),
        ));
    }
    if let Some(test) = &numbers.rtt_fairness {
        lines.push(format!(
            "A flow over {} ms gets {} times as much as one over {} ms",
            test.near_ms,
            significant(test.ratio, 3),
            test.far_ms,
        ));
    }
    if let Some(within) = numbers.convergence_within_s {
        lines.push(match numbers.convergence_s {
            Some(s) => format!("A second flow has its share after {} s", significant(s, 3)),
            None => format!("A second flow never has its share for 5 s within {within} s"),
        });
    }
    if let Some(queue) = &numbers.standing_queue {
        lines.push(format!(
            "Standing queue: {} ms on average of {} ms, 99 % of the time at most {} ms",
            significant(queue.mean_ms, 3),
            significant(queue.full_ms, 3),
            significant(queue.p99_ms, 3),
        ));
    }
    if let Some(MiceTest { beside: Some(beside), alone: Some(alone), .. }) = &numbers.mice {
        lines.push(format!(
            "Short transfers beside it take {} s, alone {} s (medians)",
            significant(beside.median_s, 3),
            significant(alone.median_s, 3),
        ));
    }
    if let Some(cross) = &numbers.cross {
        lines.push(format!(
            "Of what cross traffic leaves it uses {} %, and lets {} % of that traffic through",
            significant(cross.share * 100.0, 3),
            significant(cross.cross_delivered * 100.0, 3),
        ));
    }
    lines
}

// ---- tables -------------------------------------------------------------------------------------

fn regions_table(numbers: &Numbers) -> Table {
    let mut columns = vec![
        Column::number("base RTT", "ms"),
        Column::text("region"),
        Column::number("flows", ""),
        Column::number("mean", "Mb/s"),
        Column::number("SD", "Mb/s"),
        Column::number("stability", "SD/mean"),
        Column::number("Jain's index", ""),
        Column::number("RTT", "ms"),
    ];
    let has_cost = numbers.regions.iter().any(|test| test.cost.is_some());
    if has_cost {
        columns.extend([
            Column::number("CPU sending", "%"),
            Column::number("receiving", "%"),
            Column::number("sending", "MHz/Mbps"),
            Column::number("receiving", "MHz/Mbps"),
        ]);
    }
    let mut table = Table::new("Seven regions", columns);
    let mut add = |mut row: Vec<Cell>, cost: Option<Cost>| {
        if has_cost {
            let number =
                |of: fn(Cost) -> f64| cost.map_or(Cell::Empty, |cost| Cell::Fixed(of(cost), 1));
            row.extend([
                number(|cost| cost.cpu_percent_sender),
                number(|cost| cost.cpu_percent_receiver),
                number(|cost| cost.mhz_per_mbps_sender),
                number(|cost| cost.mhz_per_mbps_receiver),
            ]);
        }
        table.rows.push(row);
    };
    for test in &numbers.regions {
        for (index, region) in test.regions.iter().enumerate() {
            add(region_row(test.rtt_ms, index, region), region.cost);
        }
        let (least, most) = (significant(test.jain_min, 3), significant(test.jain_max, 3));
        let whole = vec![
            Cell::Number(test.rtt_ms),
            "all".into(),
            Cell::Empty,
            Cell::Fixed(test.mean_bps / 1e6, 1),
            Cell::Fixed(test.sd_bps / 1e6, 1),
            Cell::Fixed(test.stability, 3),
            format!("{least}–{most}").into(),
            Cell::Fixed(test.rtt_ms_mean, 1),
        ];
        add(whole, test.cost);
    }
    table
}

fn region_row(rtt_ms: f64, index: usize, region: &RegionResult) -> Vec<Cell> {
    vec![
        Cell::Number(rtt_ms),
        format!("R{}", index + 1).into(),
        Cell::Fixed(region.flows as f64, 0),
        Cell::Fixed(region.mean_bps / 1e6, 1),
        Cell::Fixed(region.sd_bps / 1e6, 1),
        Cell::Fixed(region.stability, 3),
        Cell::Fixed(region.jain, 3),
        Cell::Fixed(region.rtt_ms_mean, 1),
    ]
}

fn loss_table(numbers: &Numbers) -> Table {
    Table::of("Random loss", &numbers.loss)
        .number("random loss", "%", |point| Cell::Number(point.loss * 100.0))
        .number("goodput", "Mb/s", |point| Cell::Fixed(point.goodput_bps / 1e6, 2))
        .number("of the link", "%", |point| Cell::Fixed(point.share_of_link * 100.0, 2))
        .number("RTT", "ms", |point| Cell::Fixed(point.rtt_ms_mean, 1))
        .table()
}

fn beside_table(numbers: &Numbers) -> Table {
    Table::of("One flow beside one of CUBIC", &numbers.beside)
        .number("base RTT", "ms", |point| Cell::Number(point.rtt_ms))
        .number("queue", "BDP", |point| Cell::Number(point.queue_bdp))
        .number("CUBIC's share", "%", |point| Cell::Fixed(point.cubic_share * 100.0, 1))
        .number("CUBIC", "Mb/s", |point| Cell::Fixed(point.cubic_bps / 1e6, 2))
        .number("this one", "Mb/s", |point| Cell::Fixed(point.cc_bps / 1e6, 2))
        .table()
}

/// Returns the table of the tests that have few numbers each.
fn others_table(numbers: &Numbers) -> Table {
    let columns = vec![
        Column::text("test"),
        Column::text("what"),
        Column::number("value", ""),
        Column::text("unit"),
    ];
    let mut table = Table::new("One number each", columns);
    let mut row = |test: &str, what: &str, value: f64, unit: &str| {
        table.rows.push(vec![test.into(), what.into(), Cell::Number(value), unit.into()]);
    };
    if let Some(pair) = &numbers.rtt_fairness {
        let test = "RTT fairness";
        row(test, &format!("goodput at {} ms", pair.near_ms), pair.near_bps / 1e6, "Mb/s");
        row(test, &format!("goodput at {} ms", pair.far_ms), pair.far_bps / 1e6, "Mb/s");
        row(test, "near ÷ far", pair.ratio, "");
    }
    if numbers.convergence_within_s.is_some() {
        let convergence_s = numbers.convergence_s.unwrap_or(f64::NAN);
        row("convergence", "from entry to a fair share; – if never", convergence_s, "s");
    }
    if let Some(queue) = &numbers.standing_queue {
        row("standing queue", "mean", queue.mean_ms, "ms");
        row("standing queue", "99th percentile", queue.p99_ms, "ms");
        row("standing queue", "a full one", queue.full_ms, "ms");
        row("standing queue", "goodput", queue.goodput_bps / 1e6, "Mb/s");
    }
    if let Some(MiceTest { beside, alone, .. }) = &numbers.mice {
        for (place, mice) in [("beside it", beside), ("alone", alone)] {
            if let Some(mice) = mice {
                row("mice", &format!("{} {place}", MICE[0]), mice.median_s, "s");
                row("mice", &format!("{} {place}", MICE[1]), mice.p99_s, "s");
            }
        }
    }
    if let Some(cross) = &numbers.cross {
        row("cross traffic", "used of what it leaves", cross.share * 100.0, "%");
        row("cross traffic", "the same while it is there", cross.share_during * 100.0, "%");
        row("cross traffic", "the same while it is not", cross.share_between * 100.0, "%");
        row("cross traffic", "got through itself", cross.cross_delivered * 100.0, "%");
    }
    table
}

// ---- sections -----------------------------------------------------------------------------------

/// Returns the first run of each answer whose question is wanted.
fn trials<'a>(
    answers: &'a [Answer],
    is_wanted: impl Fn(Question) -> bool + 'a,
) -> impl Iterator<Item = (&'a Answer, &'a Trial)> {
    let wanted = answers.iter().filter(move |answer| is_wanted(answer.exam.question));
    wanted.filter_map(|answer| Some((answer, answer.trials.first()?)))
}

/// Adds the scenarios of a section, folded.
fn with_scenarios(
    section: Section,
    answers: &[Answer],
    is_wanted: impl Fn(Question) -> bool,
) -> Section {
    let files = trials(answers, is_wanted)
        .map(|(answer, trial)| format!("# {}.toml\n{}", answer.exam.name, trial.run.text));
    let text = files.collect::<Vec<_>>().join("\n");
    section.with_item(Item::Pre { title: "Scenarios".to_owned(), text })
}

fn regions_section(card: &Sheet, answers: &[Answer]) -> Section {
    let is_wanted = |question| matches!(question, Question::Regions { .. });
    let mut text = format!(
        "Four flows come one every {} s and leave last in, first out, so that 1, 2, 3, 4, 3, 2 and 1 of \
         them share the link; its queue has one bandwidth-delay product. Means and deviations are over \
         reports of one second.",
        card.seconds_per_flow,
    );
    if card.head.lab.is_some() {
        text += &format!("\n\n{COST}");
    }
    let mut section = Section::new("Seven regions", text);
    let mut tests: Vec<(&Answer, &Trial)> = trials(answers, is_wanted).collect();
    // Runs are ordered by decreasing length.
    tests.reverse();
    for ((_, trial), test) in tests.iter().zip(&card.numbers.regions) {
        let title = format!("Goodput at {} ms", test.rtt_ms);
        section = section.with_item(Item::Chart(with_regions(lives_chart(trial, title), test)));
    }
    let mut rtts = Chart::new(
        "Round trip while it runs",
        Axis::new("time", "s"),
        Axis::new("mean RTT of the flows present", "ms"),
    );
    for ((_, trial), test) in tests.iter().zip(&card.numbers.regions) {
        let series = &trial.finished.series;
        let values = rtts_ms(series, &trial.finished.results.regions);
        let points = series.t_s.iter().copied().zip(values).collect();
        rtts = rtts.with_line(Line::new(format!("{} ms", test.rtt_ms), points));
    }
    section =
        section.with_item(Item::Chart(rtts)).with_item(Item::Table(regions_table(&card.numbers)));
    with_scenarios(section, answers, is_wanted)
}

/// Returns a chart of each flow's goodput while the flow is present.
fn lives_chart(trial: &Trial, title: String) -> Chart {
    let Finished { results, series, .. } = &trial.finished;
    let is_present = |id: &str, t_s: f64| {
        let here = results.regions.iter().find(|region| region.from_s < t_s && t_s <= region.to_s);
        here.is_some_and(|region| region.flows.contains_key(id))
    };
    let chart = Chart::new(title, Axis::new("time", "s"), Axis::new("goodput", "b/s"));
    series.flows.iter().fold(chart, |chart, flow| {
        let points = series.t_s.iter().zip(&flow.goodput_bps).map(|(t_s, goodput)| {
            (*t_s, if is_present(&flow.id, *t_s) { *goodput } else { f64::NAN })
        });
        chart.with_line(Line::new(flow.id.clone(), points.collect()))
    })
}

/// Shades every other region of a chart.
fn with_regions(chart: Chart, test: &RegionTest) -> Chart {
    let regions = test.regions.iter().enumerate().filter(|(index, _)| index % 2 == 1);
    regions.fold(chart, |chart, (index, region)| {
        chart.with_band(Band::x(region.from_s, region.to_s, format!("R{}", index + 1)))
    })
}

fn loss_section(card: &Sheet, answers: &[Answer]) -> Section {
    let points = &card.numbers.loss;
    let names = points.iter().map(|point| format!("{} %", significant(point.loss * 100.0, 3)));
    let bars = points.iter().map(|point| Bar::new(point.goodput_bps)).collect();
    let chart =
        BarChart::new("Goodput over random loss", Axis::new("goodput", "b/s"), names.collect())
            .with_series(BarSeries::new(card.head.cc, bars));
    let text = "One flow; the link loses packets by chance, each by itself.";
    let section = Section::new("Random loss", text)
        .with_item(Item::Bar(chart))
        .with_item(Item::Table(loss_table(&card.numbers)));
    with_scenarios(section, answers, |question| matches!(question, Question::Loss { .. }))
}

fn beside_section(card: &Sheet, answers: &[Answer]) -> Section {
    let points = &card.numbers.beside;
    let mut rtts: Vec<f64> = points.iter().map(|point| point.rtt_ms).collect();
    let mut queues: Vec<f64> = points.iter().map(|point| point.queue_bdp).collect();
    for values in [&mut rtts, &mut queues] {
        values.sort_by(f64::total_cmp);
        values.dedup();
    }
    let mut heat = Heatmap::new("Share left to one CUBIC flow", Axis::new("CUBIC's share", "%"));
    heat.value = heat.value.with_range(0.0, 100.0);
    heat.center = Some(50.0);
    heat.y_label = "queue (BDP)".to_owned();
    heat = heat.with_x("base RTT (ms)", rtts.iter().map(f64::to_string).collect());
    for queue in queues.iter().rev() {
        let is_here = |a: f64, b: f64| (a - b).abs() < 1e-9;
        let cell = |rtt: &f64| {
            let found = points
                .iter()
                .find(|point| is_here(point.rtt_ms, *rtt) && is_here(point.queue_bdp, *queue));
            found.map_or(f64::NAN, |point| point.cubic_share * 100.0)
        };
        heat = heat.with_row(queue.to_string(), rtts.iter().map(cell).collect());
    }
    let text = "One flow and one CUBIC flow over the same link, on every round trip and queue: CUBIC's \
                part of the goodput of both. 50 is even; below it CUBIC is pushed aside.";
    let section = Section::new("Beside CUBIC", text)
        .with_item(Item::Heat(heat))
        .with_item(Item::Table(beside_table(&card.numbers)));
    with_scenarios(section, answers, |question| matches!(question, Question::Beside { .. }))
}

fn sharing_section(card: &Sheet, answers: &[Answer]) -> Section {
    let text = "A second flow enters while the first has the link: the time until each has half of what \
                they have together, a fifth more or less, over every second of five. And two flows of \
                10 and 80 ms, which differ in nothing else.";
    let mut section = Section::new("Convergence and RTT fairness", text);
    for (answer, trial) in
        trials(answers, |question| matches!(question, Question::Convergence { .. }))
    {
        let Question::Convergence { entry_s, .. } = answer.exam.question else { continue };
        let mut chart = goodput_chart(trial, "Goodput as a second flow enters", FAIR_NAMES);
        let fair_s = card.numbers.convergence_s;
        // Labels of marks at nearly the same position would overlap.
        chart = match fair_s.filter(|s| *s < 15.0) {
            Some(s) => {
                chart.with_reference(Reference::at(entry_s, format!("entry; fair after {s:.1} s")))
            }
            None => chart.with_reference(Reference::at(entry_s, "entry")),
        };
        if let Some(s) = fair_s.filter(|s| *s >= 15.0) {
            chart =
                chart.with_reference(Reference::at(entry_s + s, format!("fair after {s:.1} s")));
        }
        section = section.with_item(Item::Chart(chart));
    }
    for (_, trial) in trials(answers, |question| question == Question::RttFairness) {
        let chart = goodput_chart(trial, "Goodput over two round trips", ["10 ms", "80 ms"]);
        section = section.with_item(Item::Chart(chart));
    }
    section = section
        .with_item(Item::Table(part_of_others(&card.numbers, &["convergence", "RTT fairness"])));
    with_scenarios(section, answers, |question| {
        matches!(question, Question::Convergence { .. } | Question::RttFairness)
    })
}

const FAIR_NAMES: [&str; 2] = ["first", "second"];

/// Returns a chart of the goodput of the first two flows, with these names.
fn goodput_chart(trial: &Trial, title: &str, names: [&str; 2]) -> Chart {
    let series = &trial.finished.series;
    let line = |(flow, name): (&FlowSeries, &str)| {
        let points = series.t_s.iter().copied().zip(flow.goodput_bps.iter().copied()).collect();
        Line::new(name, points)
    };
    let chart = Chart::new(title, Axis::new("time", "s"), Axis::new("goodput", "b/s"));
    series.flows.iter().zip(names).map(line).fold(chart, Chart::with_line)
}

fn queue_section(card: &Sheet, answers: &[Answer]) -> Section {
    let text = "One flow, and room for four bandwidth-delay products in front of the link: how long \
                what waits there takes to leave. Beyond what keeps the link busy, waiting is a cost to \
                everybody on it.";
    let mut section = Section::new("Standing queue", text);
    let full_ms = card.numbers.standing_queue.map_or(f64::NAN, |queue| queue.full_ms);
    for (_, trial) in trials(answers, |question| question == Question::Queue) {
        let series = &trial.finished.series;
        let packet_ms = trial.packet_ms();
        let waiting =
            series.links.first().map(|link| link.queue_pkts.as_slice()).unwrap_or_default();
        let points = series.t_s.iter().zip(waiting).map(|(t_s, queue)| (*t_s, queue * packet_ms));
        let axis = Axis::new("delay in the queue", "ms");
        let chart = Chart::new("Queueing delay", Axis::new("time", "s"), axis)
            .with_line(Line::new(card.head.cc, points.collect()))
            .with_reference(Reference::level(full_ms, "full"));
        section = section.with_item(Item::Chart(chart));
    }
    section = section.with_item(Item::Table(part_of_others(&card.numbers, &["standing queue"])));
    with_scenarios(section, answers, |question| question == Question::Queue)
}

fn mice_section(card: &Sheet, answers: &[Answer]) -> Section {
    let test = card.numbers.mice.unwrap_or_default();
    let groups = MICE.iter().map(|&name| name.to_owned()).collect();
    let mut chart = BarChart::new("Completion of short transfers", Axis::new("time", "s"), groups);
    let mut text =
        "TCP transfers of 30 packets, ten a second on average, with and without a long flow \
                    of the controller."
            .to_owned();
    let beside = format!("beside {}", card.head.cc);
    for (place, mice) in [("alone", test.alone), (&beside, test.beside)] {
        if let Some(mice) = mice {
            let bars = vec![Bar::new(mice.median_s), Bar::new(mice.p99_s)];
            chart = chart.with_series(BarSeries::new(place, bars));
            text += &format!(" {} of {} completed {place}.", mice.completed, mice.started);
        }
    }
    if test.beside.is_some() {
        text += &format!(" The long flow had {} meanwhile.", quantity(test.goodput_bps, "b/s"));
    }
    let section = Section::new("Mice", text)
        .with_item(Item::Bar(chart))
        .with_item(Item::Table(part_of_others(&card.numbers, &["mice"])));
    with_scenarios(section, answers, |question| {
        matches!(question, Question::Mice | Question::MiceAlone)
    })
}

fn cross_section(card: &Sheet, answers: &[Answer]) -> Section {
    let text = "A constant rate that answers to nothing comes and goes: how much of what it leaves is \
                used, in payload, so that 100 % cannot be had. More means that it was pushed aside.";
    let mut section = Section::new("Cross traffic", text);
    for (_, trial) in trials(answers, |question| matches!(question, Question::Cross { .. })) {
        let series = &trial.finished.series;
        let goodput = series.flows.first().map(|flow| flow.goodput_bps.clone()).unwrap_or_default();
        let points = |values: Vec<f64>| series.t_s.iter().copied().zip(values).collect();
        let axis = Axis::new("rate", "b/s");
        let chart =
            Chart::new("Goodput as cross traffic comes and goes", Axis::new("time", "s"), axis)
                .with_line(Line::new(format!("goodput of {}", card.head.cc), points(goodput)))
                .with_line(
                    Line::new("left by cross traffic", points(trial.free_bps()))
                        .with_style(Style::Dashed),
                );
        section = section.with_item(Item::Chart(chart));
    }
    section = section.with_item(Item::Table(part_of_others(&card.numbers, &["cross traffic"])));
    with_scenarios(section, answers, |question| matches!(question, Question::Cross { .. }))
}

/// Returns the rows of some tests.
fn part_of_others(numbers: &Numbers, tests: &[&str]) -> Table {
    let mut table = others_table(numbers);
    table.rows.retain(
        |row| matches!(row.first(), Some(Cell::Text(test)) if tests.contains(&test.as_str())),
    );
    Table { title: String::new(), ..table }
}
