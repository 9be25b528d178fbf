//! Reader for the scenario as a whole, from the tree of a file.

use sabul_run::scenario::{Arrivals, FlowPlan, RUN, Scenario};
use sabul_units::{Instant, Span};

use crate::arm::Arm;
use crate::error::{Origin, Problem, shorten};
use crate::flow;
use crate::keys::{FLOW_NAMES, LINK_NAMES, TOP_NAMES};
use crate::link::Draft;
use crate::table::{Log, Table};
use crate::traces::Traces;
use crate::tree::{Field, Value, find};

/// Most rows of the series of a run.
const ROWS_MAX: u64 = 1_000_000;
/// Limits on links and flows; larger scenarios are taken for errors of a generating program.
const LINKS_MAX: usize = 1_000;
const FLOWS_MAX: usize = 10_000;
/// Most copies of all flows that start together.
const COPIES_MAX: u64 = 1_000_000;

/// Reads the scenario of a tree, for `arm`; `name` is the default name.
pub(crate) fn read(
    fields: &[Field],
    name: &str,
    arm: Arm,
    traces: &Traces,
) -> Result<Scenario, Vec<Problem>> {
    let log = Log::default();
    let top = Table::new(fields, &Origin::File, String::new(), Some(&TOP_NAMES), &log);
    let scenario = read_top(&top, name, arm, traces);
    let problems = log.into_problems();
    if problems.is_empty() { Ok(scenario) } else { Err(problems) }
}

fn read_top(top: &Table<'_>, name: &str, arm: Arm, traces: &Traces) -> Scenario {
    let scenario = run(top, name);
    let link_tables = items(top, "link", &LINK_NAMES, LINKS_MAX);
    let flow_tables = items(top, "flow", &FLOW_NAMES, FLOWS_MAX);
    let tables = link_tables.iter().cloned();
    let drafts: Vec<Draft<'_>> = tables.map(|table| Draft::read(table, traces)).collect();
    let delays: Vec<Span> = drafts.iter().map(Draft::delay).collect();
    let end = Instant::ZERO + scenario.duration;
    let flows: Vec<_> =
        flow_tables.iter().map(|table| flow::read(table, &drafts, end, arm)).collect();
    let link_ids: Vec<&str> = drafts.iter().map(|draft| draft.id).collect();
    let flow_ids: Vec<&str> = flows.iter().map(|flow| flow.id.as_str()).collect();
    reject_duplicates(&link_tables, &link_ids, "link");
    reject_duplicates(&flow_tables, &flow_ids, "flow");
    reject_too_many_copies(&flow_tables, &flows);
    let links = drafts
        .into_iter()
        .enumerate()
        .map(|(place, draft)| draft.finish(place, &flows, &delays))
        .collect();
    Scenario { links, flows, ..scenario }
}

fn scenario_name(top: &Table<'_>, default: &str) -> String {
    const ALLOWED: &str = "a text of 1 to 100 printable characters";
    let Some(name) = top.text("name", ALLOWED) else { return default.to_owned() };
    if name.is_empty() || name.chars().count() > 100 || name.chars().any(char::is_control) {
        top.refuse_value("name", ALLOWED);
    }
    name.to_owned()
}

/// Reads the keys of the run as a whole.
fn run(top: &Table<'_>, name: &str) -> Scenario {
    let mut run = Scenario { name: scenario_name(top, name), ..Scenario::default() };
    top.take_all(RUN, &mut run, None);
    if run.duration == Span::ZERO {
        // Without a duration no limit can be checked against the duration. The run is refused
        // anyway.
        run.duration = Span::from_secs(1_000_000);
        return run;
    }
    if run.warmup >= run.duration {
        let duration_s = run.duration.as_secs_f64();
        top.refuse_value("warmup_s", format_args!("less than duration_s, {duration_s}"));
    }
    if run.sample > Span::ZERO && run.duration.0 / run.sample.0 > ROWS_MAX {
        let least = run.duration.as_millis_f64() / ROWS_MAX as f64;
        top.refuse_value("sample_ms", format_args!("{least} or more: a series has 1000000 rows"));
    }
    run
}

/// Returns the tables of a `[[link]]` or `[[flow]]` list.
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
        let what = format!("the file has {} of these tables; use from 1 to {most}", nodes.len());
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

/// Logs links or flows of the same name.
fn reject_duplicates(tables: &[Table<'_>], ids: &[&str], kind: &str) {
    let mut seen = std::collections::BTreeSet::new();
    for (table, id) in tables.iter().zip(ids) {
        if !id.is_empty() && !seen.insert(*id) {
            table.refuse("id", format!("there is another {kind} of this name; use a unique name"));
        }
    }
}

/// Logs the first flow that exceeds the limit on copies.
fn reject_too_many_copies(tables: &[Table<'_>], flows: &[FlowPlan]) {
    let mut copies = 0;
    for (table, flow) in tables.iter().zip(flows) {
        let Arrivals::Together { count, .. } = flow.arrivals else { continue };
        copies += u64::from(count);
        if copies > COPIES_MAX {
            let what = format!(
                "the flows up to this flow have {copies} copies; use at most {COPIES_MAX} in total"
            );
            table.refuse("count", what);
            return;
        }
    }
}
