//! Rendering of a draw: text, one page, and comma-separated values.

use std::fmt::Write as _;

use sabul_report::{Cell, Column, Item, Page, Section, Table, significant};

use super::super::head::{how, title};
use super::judge::{Finding, PathResult, Verdict};
use super::paths::First;
use super::{Sheet, Tally};

const TEXT_WIDTH: usize = 240;
/// Limits between the classes of queues (packets) and of rates (Mb/s) in the table of classes.
const QUEUES: [u64; 2] = [5, 20];
const RATES_MBPS: [f64; 2] = [10.0, 1000.0];

/// Returns the text for a terminal.
pub(in super::super) fn text(sheet: &Sheet) -> String {
    let mut text = format!("{}: {}\n\n", name(sheet), how_so(sheet));
    for table in [paths_table(sheet), questions_table(sheet), classes_table(sheet)] {
        text += &table.to_text(TEXT_WIDTH);
        text.push('\n');
    }
    for line in summary(sheet) {
        text += &format!("{line}\n");
    }
    text
}

/// Returns the page `report.html`.
pub(in super::super) fn page(sheet: &Sheet) -> Page {
    let terms = &sheet.terms;
    let page =
        summary(sheet).into_iter().fold(Page::new(name(sheet), how_so(sheet)), Page::with_summary);
    let requested = format!(
        "Alone: one flow has at least {} of what can arrive, loses less than {} beyond the path's random loss, \
         and the mean queue is at most {} BDP or {} packets. CUBIC keeps: goodput of the CUBIC flows beside \
         flows of the controller, as a part of the same beside CUBIC flows in their place, at least {} with one \
         flow each and no background, {} elsewhere. Ours have: goodput of the controller's flows, as a part of \
         that of CUBIC flows in their place, at least {}. Own loss: below {} beside CUBIC; where an equal share is \
         below two packets a round trip or the queue below five packets, only own loss counts, and is at most that of \
         CUBIC flows in their place.",
        percent(terms.alone_share_min),
        percent(terms.alone_own_loss_max),
        terms.alone_queue_bdp_max,
        terms.alone_queue_packets_max,
        terms.cubic_keeps_plain_min,
        terms.cubic_keeps_min,
        terms.ours_have_min,
        percent(terms.own_loss_max),
    );
    let intervals = format!(
        "In brackets: intervals of 95 % by a percentile bootstrap over seeds, {} resamples. An answer is yes or \
         no where the whole interval is on one side of the bound, else open. The lower bound of a count is \
         Wilson's (95 %, one-sided); an open path is not a yes.",
        sheet.resamples
    );
    let untitled = |table: Table| Item::Table(Table { title: String::new(), ..table });
    page.with_section(
        Section::new("Questions", requested).with_item(untitled(questions_table(sheet))),
    )
    .with_section(
        Section::new("Classes of paths", "Paths where every answer is yes.")
            .with_item(untitled(classes_table(sheet))),
    )
    .with_section(Section::new("Paths", intervals).with_item(untitled(paths_table(sheet))))
}

fn name(sheet: &Sheet) -> String {
    title("Contract on random paths of", sheet.head.cc, &sheet.head.params)
}

fn how_so(sheet: &Sheet) -> String {
    format!(
        "{}; {} paths of the draw {}",
        how(&sheet.head),
        sheet.paths.len(),
        if sheet.draw == sheet.draw_seed.to_string() {
            format!("with seed {}", sheet.draw_seed)
        } else {
            format!("'{}' (seed {})", sheet.draw, sheet.draw_seed)
        }
    )
}

fn percent(share: f64) -> String {
    format!("{} %", significant(share * 100.0, 3))
}

fn summary(sheet: &Sheet) -> Vec<String> {
    let met = &sheet.met;
    let mut lines = vec![format!(
        "Contract met on {} of {} paths (at least {} of such paths, 95 %); open on {}, not met on {}",
        met.yes,
        met.count(),
        percent(met.yes_at_least),
        met.open,
        met.no,
    )];
    let numbers = |is_meant: fn(&PathResult) -> bool| {
        let meant = sheet.paths.iter().filter(|result| is_meant(result));
        meant.map(|result| result.path.number.to_string()).collect::<Vec<_>>().join(", ")
    };
    let shortened = numbers(|result| result.path.is_shortened);
    if !shortened.is_empty() {
        lines.push(format!(
            "Shorter than 120 s, so that a run has at most 20 million packets: {shortened}"
        ));
    }
    let lowered = numbers(|result| result.path.rate_mbps < result.path.rate_drawn_mbps);
    if !lowered.is_empty() {
        lines.push(format!("Rate lowered for the same reason: {lowered}"));
    }
    for result in &sheet.paths {
        if let Some(fault) = &result.fault {
            lines.push(format!(
                "Path {} is not met: {} runs failed, the first so: {fault}",
                result.path.number, result.failed_runs
            ));
        }
    }
    if sheet.head.seeds < 5 {
        lines.push(format!(
            "Intervals of {} seeds are too short: an answer needs ten",
            sheet.head.seeds
        ));
    }
    lines
}

fn verdict(verdict: Verdict) -> Cell {
    match verdict {
        Verdict::Yes => Cell::Pass("yes".to_owned()),
        Verdict::No => Cell::Fail("no".to_owned()),
        Verdict::Open => Cell::Text("open".to_owned()),
    }
}

/// Returns a number with its interval.
fn interval(finding: &Finding, scale: f64, decimals: usize) -> Cell {
    let Finding { value, low, high, .. } = finding;
    format!(
        "{:.decimals$} [{:.decimals$}, {:.decimals$}]",
        value * scale,
        low * scale,
        high * scale
    )
    .into()
}

fn paths_table(sheet: &Sheet) -> Table {
    Table::of("Random paths", &sheet.paths)
        .number("path", "", |result| Cell::Text(result.path.number.to_string()))
        .number("rate", "Mb/s", |result| Cell::Number(result.path.rate_mbps))
        .number("RTT", "ms", |result| Cell::Number(result.path.rtt_ms))
        .text("queue (BDP)", |PathResult { path, .. }| {
            format!("{} ({})", path.queue_packets, significant(path.queue_bdp, 2)).into()
        })
        .number("loss", "%", |result| Cell::Number(result.path.loss * 100.0))
        .text("flows, first", |PathResult { path, .. }| {
            let first = if path.first == First::Ours { "ours" } else { "CUBIC" };
            format!("{} + {}, {first}", path.ours, path.theirs).into()
        })
        .text("background", |result| result.path.background.text().into())
        .number("alone", "%", |result| Cell::Fixed(result.alone_share.value * 100.0, 1))
        .number("its loss", "%", |result| Cell::Fixed(result.alone_own_loss.value * 100.0, 2))
        .number("its queue", "packets", |result| Cell::Fixed(result.alone_queue_packets.value, 1))
        .text("CUBIC keeps", |result| interval(&result.cubic_keeps, 1.0, 2))
        .text("ours have", |result| interval(&result.ours_have, 1.0, 2))
        .text("own loss (%)", |result| interval(&result.own_loss, 100.0, 2))
        .text("answers", |result| {
            let PathResult { alone_verdict, keeps_verdict, .. } = *result;
            let verdicts = [alone_verdict, keeps_verdict, result.have_verdict, result.loss_verdict];
            verdicts.map(Verdict::name).join(" ").into()
        })
        .text("met", |result| verdict(result.met))
        .table()
}

fn tally_columns(first: &str) -> Vec<Column> {
    let mut columns = vec![Column::text(first)];
    columns.extend(["paths", "yes", "open", "no"].map(|name| Column::number(name, "")));
    columns.push(Column::number("yes at least", "%"));
    columns
}

fn tally_row(name: String, tally: &Tally) -> Vec<Cell> {
    let counts = [tally.count(), tally.yes, tally.open, tally.no];
    let mut row = vec![Cell::Text(name)];
    row.extend(counts.map(|count| Cell::Text(count.to_string())));
    row.push(Cell::Fixed(tally.yes_at_least * 100.0, 1));
    row
}

fn questions_table(sheet: &Sheet) -> Table {
    let rows = [
        ("alone: full, short queue, no loss", &sheet.alone),
        ("CUBIC keeps its goodput", &sheet.cubic_keeps),
        ("ours have theirs", &sheet.ours_have),
        ("own loss beside CUBIC", &sheet.own_loss),
        ("all four", &sheet.met),
    ];
    let rows = rows.into_iter().map(|(name, tally)| tally_row(name.to_owned(), tally)).collect();
    Table { title: "Questions".to_owned(), columns: tally_columns("question"), rows }
}

/// A class of paths: name and members.
type Class = (String, Box<dyn Fn(&PathResult) -> bool>);

/// Returns the verdicts on all four questions by class of path.
fn classes_table(sheet: &Sheet) -> Table {
    let [small, large] = QUEUES;
    let [slow, fast] = RATES_MBPS;
    let class = |name: String, is_in: fn(&PathResult) -> bool| -> Class { (name, Box::new(is_in)) };
    let mut classes: Vec<Class> = vec![
        (
            format!("queue below {small} packets"),
            Box::new(move |result| result.path.queue_packets < small),
        ),
        (
            format!("queue of {small} to {} packets", large - 1),
            Box::new(move |result| (small..large).contains(&result.path.queue_packets)),
        ),
        (
            format!("queue of {large} packets or more"),
            Box::new(move |result| result.path.queue_packets >= large),
        ),
        (format!("below {slow} Mb/s"), Box::new(move |result| result.path.rate_mbps < slow)),
        (
            format!("{slow} to {fast} Mb/s"),
            Box::new(move |result| (slow..fast).contains(&result.path.rate_mbps)),
        ),
        (format!("from {fast} Mb/s"), Box::new(move |result| result.path.rate_mbps >= fast)),
        class("no random loss".to_owned(), |result| result.path.loss <= 0.0),
        class("random loss".to_owned(), |result| result.path.loss > 0.0),
        class("one flow each".to_owned(), |result| {
            (result.path.ours, result.path.theirs) == (1, 1)
        }),
        class("more flows".to_owned(), |result| (result.path.ours, result.path.theirs) != (1, 1)),
        class("ours first".to_owned(), |result| result.path.first == First::Ours),
        class("CUBIC first".to_owned(), |result| result.path.first == First::Theirs),
    ];
    for name in ["none", "shaper", "load", "two-way"] {
        let is_in = move |result: &PathResult| result.path.background.name() == name;
        classes.push((format!("background: {name}"), Box::new(is_in)));
    }
    let tallies = classes.into_iter().map(|(name, is_in)| {
        let verdicts = sheet.paths.iter().filter(|result| is_in(result)).map(|result| result.met);
        (name, Tally::new(verdicts))
    });
    let rows = tallies
        .filter(|(_, tally)| tally.count() > 0)
        .map(|(name, tally)| tally_row(name, &tally))
        .collect();
    Table { title: "Classes of paths".to_owned(), columns: tally_columns("class"), rows }
}

/// Returns comma-separated values, one line per path.
pub(in super::super) fn csv(sheet: &Sheet) -> String {
    const FINDINGS: [&str; 6] = [
        "alone_share",
        "alone_own_loss",
        "alone_queue_packets",
        "cubic_keeps",
        "ours_have",
        "own_loss",
    ];
    let mut text =
        "number,rate_mbps,rate_drawn_mbps,rtt_ms,queue_packets,queue_bdp,loss,ours,theirs,first,\
                    background,burst_mbps,bucket_bytes,load_mbps,duration_s,is_tiny,failed_runs"
            .to_owned();
    for name in FINDINGS {
        // Writing to a string cannot fail, here and below.
        let _ = write!(text, ",{name},{name}_low,{name}_high,{name}_bound");
    }
    text += ",cubic_bps,ours_bps,reference_cubic_bps,reference_ours_bps,reference_own_loss,alone_verdict,keeps_verdict,have_verdict,loss_verdict,met\n";
    for result in &sheet.paths {
        let path = &result.path;
        let (burst_mbps, bucket_bytes, load_mbps) = background(result);
        let first = if path.first == First::Ours { "ours" } else { "theirs" };
        let _ = write!(
            text,
            "{},{},{},{},{},{:.4},{},{},{},{first},{},{burst_mbps},{bucket_bytes},{load_mbps},{},{},{}",
            path.number,
            path.rate_mbps,
            path.rate_drawn_mbps,
            path.rtt_ms,
            path.queue_packets,
            path.queue_bdp,
            path.loss,
            path.ours,
            path.theirs,
            path.background.name(),
            path.duration_s,
            result.is_tiny,
            result.failed_runs,
        );
        for finding in [
            &result.alone_share,
            &result.alone_own_loss,
            &result.alone_queue_packets,
            &result.cubic_keeps,
            &result.ours_have,
            &result.own_loss,
        ] {
            let Finding { value, low, high, bound, .. } = finding;
            let _ = write!(text, ",{value:.6},{low:.6},{high:.6},{bound:.4}");
        }
        let _ = writeln!(
            text,
            ",{:.0},{:.0},{:.0},{:.0},{:.6},{},{},{},{},{}",
            result.cubic_bps,
            result.ours_bps,
            result.reference_cubic_bps,
            result.reference_ours_bps,
            result.reference_own_loss,
            result.alone_verdict.name(),
            result.keeps_verdict.name(),
            result.have_verdict.name(),
            result.loss_verdict.name(),
            result.met.name(),
        );
    }
    text
}

/// Returns the columns of the background; a column without a value is empty.
fn background(result: &PathResult) -> (String, String, String) {
    use super::paths::Background;
    match result.path.background {
        Background::Shaper { burst_mbps, bucket_bytes } => {
            (burst_mbps.to_string(), bucket_bytes.to_string(), String::new())
        }
        Background::Load { load_mbps } => (String::new(), String::new(), load_mbps.to_string()),
        Background::None | Background::TwoWay => Default::default(),
    }
}
