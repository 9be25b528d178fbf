//! Rendering of a contract: text, one page, and comma-separated values.

use std::fmt::Write as _;

use sabul_report::{Axis, Cell, Heatmap, Item, Page, Section, Table, significant};

use super::super::head::{how, title};
use super::super::lab::LabPart;
use super::measure::CellResult;
use super::{Numbers, Sheet, links, others};

const TEXT_WIDTH: usize = 140;

/// Returns the text for a terminal.
pub(in super::super) fn text(sheet: &Sheet) -> String {
    let mut text = format!("{}: {}\n\n", name(sheet), how_so(sheet));
    let others = others::table(&sheet.numbers.others, sheet.head.cc);
    let links = links::table(&sheet.numbers.links);
    for table in [cells_table(sheet), others, links].iter().filter(|table| !table.rows.is_empty()) {
        text += &table.to_text(TEXT_WIDTH);
        text.push('\n');
    }
    for line in summary(sheet).into_iter().chain(sheet.head.lab.iter().flat_map(LabPart::invalid)) {
        text += &format!("{line}\n");
    }
    text
}

/// Returns the page with all sections and heat maps.
pub(in super::super) fn page(sheet: &Sheet) -> Page {
    let page = Page::new(name(sheet), how_so(sheet));
    let invalid = sheet.head.lab.iter().flat_map(LabPart::invalid);
    let page = invalid.chain(summary(sheet)).fold(page, Page::with_summary);
    let sections = [
        (!sheet.numbers.cells.is_empty()).then(|| cells_section(sheet)),
        (!sheet.numbers.others.is_empty()).then(|| others_section(sheet)),
        (!sheet.numbers.links.is_empty()).then(|| links_section(sheet)),
    ];
    let page = sections.into_iter().flatten().fold(page, Page::with_section);
    sheet.head.lab.iter().fold(page, |page, lab| page.with_section(lab.section()))
}

fn name(sheet: &Sheet) -> String {
    title("Contract with TCP of", sheet.head.cc, &sheet.head.params)
}

fn how_so(sheet: &Sheet) -> String {
    let order = match sheet.order {
        "together" => "both flows start at once",
        "cubic-last" => "CUBIC starts a second later",
        _ => "CUBIC starts a second earlier",
    };
    format!("{}; {order}", how(&sheet.head))
}

fn percent(share: f64) -> String {
    format!("{} %", significant(share * 100.0, 3))
}

/// Returns the path of a cell in words.
fn place(result: &CellResult) -> String {
    let cell = result.cell;
    format!(
        "{} Mb/s × {} ms, queue {} BDP, loss {}",
        cell.rate_mbps,
        cell.rtt_ms,
        cell.queue_bdp,
        percent(cell.loss),
    )
}

fn summary(sheet: &Sheet) -> Vec<String> {
    let Numbers { cells_judged, cells_met, cells, worst, .. } = &sheet.numbers;
    if cells.is_empty() {
        return Vec::new();
    }
    let mut lines = vec![format!(
        "{cells_met} of {cells_judged} cells met; of those whose queue holds {} packets or more, {} of {}",
        sheet.terms.tiny_queue_packets,
        sheet.numbers.cells_met_with_room,
        sheet.numbers.cells_judged_with_room,
    )];
    if let Some(worst) = worst {
        lines.push(format!(
            "CUBIC keeps least, {} of what it has beside another CUBIC, at {}: {} Mb/s, {} beside it",
            significant(worst.kept, 3),
            place(worst),
            significant(worst.cubic_bps / 1e6, 3),
            significant(worst.cc_bps / 1e6, 3),
        ));
    }
    let shares: Vec<f64> =
        cells.iter().map(|result| result.cc_bps / (result.cell.rate_mbps * 1e6)).collect();
    if let Some(median) = sabul_run::statistics::median(shares.clone()) {
        lines.push(format!(
            "{} itself has {} to {} of the link, {} in the median cell",
            sheet.head.cc,
            percent(shares.iter().copied().fold(f64::NAN, f64::min)),
            percent(shares.iter().copied().fold(f64::NAN, f64::max)),
            percent(median),
        ));
    }
    lines
}

fn verdict(result: &CellResult) -> Cell {
    match (result.is_kept, result.is_full) {
        (true, true) => Cell::Pass("ok".to_owned()),
        (false, true) => Cell::Fail("miss: CUBIC".to_owned()),
        (true, false) => Cell::Fail("miss: link".to_owned()),
        (false, false) => Cell::Fail("miss: both".to_owned()),
    }
}

fn cells_table(sheet: &Sheet) -> Table {
    Table::of("One CUBIC flow beside it", &sheet.numbers.cells)
        .number("rate", "Mb/s", |result| Cell::Number(result.cell.rate_mbps))
        .number("RTT", "ms", |result| Cell::Number(result.cell.rtt_ms))
        .text("queue, BDP", |result| {
            let tiny = if result.has_tiny_queue { " (tiny)" } else { "" };
            format!("{}{tiny}", result.cell.queue_bdp).into()
        })
        .number("loss", "%", |result| Cell::Number(result.cell.loss * 100.0))
        .number("CUBIC keeps", "", |result| Cell::Fixed(result.kept, 2))
        .number("CUBIC", "Mb/s", |result| Cell::Fixed(result.cubic_bps / 1e6, 1))
        .number(sheet.head.cc, "Mb/s", |result| Cell::Fixed(result.cc_bps / 1e6, 1))
        .number("its share", "%", |result| {
            Cell::Fixed(result.cc_bps / (result.cc_bps + result.cubic_bps) * 100.0, 0)
        })
        .text("two CUBICs, Mb/s", |result| {
            let (first, second) = (result.reference_first_bps, result.reference_second_bps);
            format!("{:.1} + {:.1}", first / 1e6, second / 1e6).into()
        })
        .number("link", "%", |result| Cell::Fixed(result.utilisation * 100.0, 1))
        .number("two CUBICs", "%", |result| Cell::Fixed(result.reference_utilisation * 100.0, 1))
        .text("verdict", verdict)
        .table()
}

/// Returns the distinct values in ascending order.
fn distinct(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.dedup();
    values
}

fn cells_section(sheet: &Sheet) -> Section {
    let cells = &sheet.numbers.cells;
    let terms = &sheet.terms;
    let text = format!(
        "A cell is met where CUBIC keeps at least {} of half of what two CUBIC flows have together on the \
         same path, and the link is as full as with these, within {}, and at least {} full where loss \
         keeps them from filling it so far. In a queue marked tiny there is room for fewer than {} packets. \
         Medians over seeds; the first quarter of each run is left out.",
        terms.kept_min,
        percent(terms.emptier_max),
        percent(terms.utilisation_min),
        terms.tiny_queue_packets,
    );
    let mut section = Section::new("One CUBIC flow beside it", text);
    for rate_mbps in distinct(cells.iter().map(|result| result.cell.rate_mbps)) {
        for loss in distinct(cells.iter().map(|result| result.cell.loss)) {
            let is_here = |result: &&CellResult| {
                result.cell.rate_mbps.total_cmp(&rate_mbps).is_eq()
                    && result.cell.loss.total_cmp(&loss).is_eq()
            };
            let here: Vec<&CellResult> = cells.iter().filter(is_here).collect();
            let title = format!("What CUBIC keeps: {rate_mbps} Mb/s, loss {}", percent(loss));
            section = section.with_item(Item::Heat(heat(title, &here)));
        }
    }
    section.with_item(Item::Table(cells_table(sheet)))
}

fn others_section(sheet: &Sheet) -> Section {
    let text = "Four CUBIC flows and one of BBR 1; short transfers of CUBIC that arrive at random moments; and what \
                waits in the queue before the link, looked at ten times a second, as a ping would see it. Beside \
                the controller, beside CUBIC in its place (BBR: half of two), and alone.";
    let table = others::table(&sheet.numbers.others, sheet.head.cc);
    Section::new("Others beside it", text)
        .with_item(Item::Table(Table { title: String::new(), ..table }))
}

fn links_section(sheet: &Sheet) -> Section {
    let text = "One flow alone, held against controllers that people know: a policer drops what exceeds a bucket and has no \
                queue, a shaper lets bursts pass, and a walk is a rate as of a cell.";
    let table = Table { title: String::new(), ..links::table(&sheet.numbers.links) };
    Section::new("Where the rate is not constant", text).with_item(Item::Table(table))
}

fn heat(title: String, cells: &[&CellResult]) -> Heatmap {
    let rtts = distinct(cells.iter().map(|result| result.cell.rtt_ms));
    let mut heat =
        Heatmap::new(title, Axis::new("of what it has beside CUBIC", "%").with_range(0.0, 200.0));
    heat.center = Some(100.0);
    heat.y_label = "queue (BDP)".to_owned();
    heat = heat.with_x("base RTT (ms)", rtts.iter().map(f64::to_string).collect());
    for queue in distinct(cells.iter().map(|result| result.cell.queue_bdp)).into_iter().rev() {
        let value = |rtt: &f64| {
            let is_here = |result: &&&CellResult| {
                result.cell.rtt_ms.total_cmp(rtt).is_eq()
                    && result.cell.queue_bdp.total_cmp(&queue).is_eq()
            };
            cells.iter().find(is_here).map_or(f64::NAN, |result| result.kept * 100.0)
        };
        heat = heat.with_row(queue.to_string(), rtts.iter().map(value).collect());
    }
    heat
}

/// Returns comma-separated values, one line per cell.
pub(in super::super) fn csv(sheet: &Sheet) -> String {
    let mut text =
        "rate_mbps,rtt_ms,queue_bdp,loss,queue_packets,cubic_bps,cc_bps,reference_first_bps,\
                    reference_second_bps,kept,utilisation,reference_utilisation,met\n"
            .to_owned();
    for result in &sheet.numbers.cells {
        let cell = result.cell;
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "{},{},{},{},{},{:.0},{:.0},{:.0},{:.0},{:.4},{:.4},{:.4},{}",
            cell.rate_mbps,
            cell.rtt_ms,
            cell.queue_bdp,
            cell.loss,
            result.queue_packets,
            result.cubic_bps,
            result.cc_bps,
            result.reference_first_bps,
            result.reference_second_bps,
            result.kept,
            result.utilisation,
            result.reference_utilisation,
            result.is_met,
        );
    }
    text
}
