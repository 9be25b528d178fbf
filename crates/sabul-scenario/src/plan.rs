//! The scenario as a whole, out of the tree of its file.

use sabul_run::scenario::{Arrivals, FlowPlan, Scenario};
use sabul_units::{Instant, Span};

use crate::Arm;
use crate::error::{Origin, Problem, shorten};
use crate::flow;
use crate::keys::{FLOW, LINK, TOP};
use crate::link::Draft;
use crate::table::{Log, PS_PER_MS, PS_PER_S, Range, Table};
use crate::tree::{Field, Value, find};

/// The longest run: eleven days, far from the 213 that time can count.
pub(crate) const SECONDS_MAX: f64 = 1e6;
/// Rows of the series that a run may ask for.
const ROWS_MAX: u64 = 1_000_000;
/// Seeds are whole numbers as TOML has them.
const SEED_MAX: u64 = i64::MAX as u64;
/// No scenario needs more; more is a file that a program has written by mistake.
const LINKS_MAX: usize = 1_000;
const FLOWS_MAX: usize = 10_000;
/// Copies of all flows that start together.
const COPIES_MAX: u64 = 1_000_000;

/// Reads the scenario in a tree, for an arm; `name` is what it is called where the file does not say.
pub(crate) fn read(fields: &[Field], name: &str, arm: Arm) -> Result<Scenario, Vec<Problem>> {
    let log = Log::default();
    let top = Table::new(fields, &Origin::File, String::new(), Some(TOP), &log);
    let scenario = read_top(&top, name, arm);
    let problems = log.into_problems();
    if problems.is_empty() { Ok(scenario) } else { Err(problems) }
}

fn read_top(top: &Table<'_>, name: &str, arm: Arm) -> Scenario {
    let (duration, warmup, sample) = times(top);
    let link_tables = items(top, "link", LINK, LINKS_MAX);
    let flow_tables = items(top, "flow", FLOW, FLOWS_MAX);
    let drafts: Vec<Draft<'_>> = link_tables.iter().cloned().map(Draft::read).collect();
    let delays: Vec<Span> = drafts.iter().map(|draft| draft.delay).collect();
    let end = Instant::ZERO + duration;
    let flows: Vec<_> =
        flow_tables.iter().map(|table| flow::read(table, &drafts, end, arm)).collect();
    let link_ids: Vec<&str> = drafts.iter().map(|draft| draft.id).collect();
    let flow_ids: Vec<&str> = flows.iter().map(|flow| flow.id.as_str()).collect();
    refuse_twins(&link_tables, &link_ids, "link");
    refuse_twins(&flow_tables, &flow_ids, "flow");
    refuse_crowd(&flow_tables, &flows);
    let links = drafts
        .into_iter()
        .enumerate()
        .map(|(place, draft)| draft.finish(place, &flows, &delays))
        .collect();
    Scenario {
        name: scenario_name(top, name),
        duration,
        warmup,
        sample,
        seed: top.whole("seed", 0, SEED_MAX).unwrap_or(1),
        links,
        flows,
    }
}

fn scenario_name(top: &Table<'_>, default: &str) -> String {
    const ALLOWED: &str = "a text of 1 to 100 printable characters";
    let Some(name) = top.text("name", ALLOWED) else { return default.to_owned() };
    if name.is_empty() || name.chars().count() > 100 || name.chars().any(char::is_control) {
        top.refuse_value("name", ALLOWED);
    }
    name.to_owned()
}

/// Duration, warm-up and time between two samples.
fn times(top: &Table<'_>) -> (Span, Span, Span) {
    if !top.has("duration_s") {
        top.missing("duration_s", "how long the run lasts, in seconds");
    }
    let given = top.span("duration_s", Range::of(0.001, SECONDS_MAX), PS_PER_S);
    // Without a duration nothing can be held against it; the run is refused anyway.
    let duration = given.unwrap_or(Span::from_secs(1_000_000));
    let seconds = Range::of(0.0, SECONDS_MAX);
    let warmup = top.span("warmup_s", seconds, PS_PER_S).unwrap_or_default();
    if warmup >= duration {
        let duration_s = duration.as_secs_f64();
        top.refuse_value("warmup_s", format_args!("less than duration_s, {duration_s}"));
    }
    let sample = top.span("sample_ms", Range::of(0.001, SECONDS_MAX * 1e3), PS_PER_MS);
    let sample = sample.unwrap_or(Span::from_millis(100));
    if given.is_some() && sample > Span::ZERO && duration.0 / sample.0 > ROWS_MAX {
        let least = duration.as_millis_f64() / ROWS_MAX as f64;
        top.refuse_value("sample_ms", format_args!("{least} or more: a series has 1000000 rows"));
    }
    (duration, warmup, sample)
}

/// The tables of a `[[link]]` or `[[flow]]` list.
fn items<'a>(
    top: &Table<'a>,
    kind: &str,
    known: &'static [&'static str],
    most: usize,
) -> Vec<Table<'a>> {
    let form = format!("a [[{kind}]] for each {kind}");
    if !top.has(kind) {
        top.missing(kind, &form);
        return Vec::new();
    }
    let Some(nodes) = top.list(kind, &form) else { return Vec::new() };
    if nodes.is_empty() || nodes.len() > most {
        let what = format!("there are {} of them; use from 1 to {most}", nodes.len());
        top.refuse(kind, what);
        return Vec::new();
    }
    let mut tables = Vec::new();
    for (n, node) in nodes.iter().enumerate() {
        let Value::Table(fields) = &node.value else {
            let what = format!("{} is not allowed; use {form}", node.value.shown());
            top.log().note(Problem::new(&node.at, &format!("key {kind}"), what));
            continue;
        };
        let place = match find(fields, "id").map(|field| &field.node.value) {
            Some(Value::Text(id)) => format!("{kind} \"{}\"", shorten(id)),
            _ => format!("{kind} {}", n + 1),
        };
        tables.push(Table::new(fields, &node.at, place, Some(known), top.log()));
    }
    tables
}

/// Notes links or flows of the same name.
fn refuse_twins(tables: &[Table<'_>], ids: &[&str], kind: &str) {
    let mut seen = std::collections::BTreeSet::new();
    for (table, id) in tables.iter().zip(ids) {
        if !id.is_empty() && !seen.insert(*id) {
            table.refuse("id", format!("there is another {kind} of this name; use one for each"));
        }
    }
}

/// Notes the flow whose copies are one too many.
fn refuse_crowd(tables: &[Table<'_>], flows: &[FlowPlan]) {
    let mut copies = 0;
    for (table, flow) in tables.iter().zip(flows) {
        let Arrivals::Together { count, .. } = flow.arrivals else { continue };
        copies += u64::from(count);
        if copies > COPIES_MAX {
            let what =
                format!("this and the flows before it are {copies}; use {COPIES_MAX} in all");
            table.refuse("count", what);
            return;
        }
    }
}
