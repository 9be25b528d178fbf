//! Comparison of simulator and lab on the same scenarios.
//!
//! Each run happens once in virtual time and N times on real sockets. The comparison uses the
//! median of the valid measurements of each quantity. A difference is a result, not an error.

use std::fs;
use std::path::{Path, PathBuf};

use sabul_report::{Cell, Column, Item, Page, Section, Table};
use sabul_run::results::Results;
use sabul_run::statistics::median;
use sabul_scenario::{Arm, Run};
use serde::Serialize;

use crate::runs::{self, Finished};
use crate::{COMMIT, Error, Measuring, Observer, SCHEMA, measure, report, simulate};

/// Ours: a difference larger than this many percent is marked.
const MARKED_PERCENT: f64 = 10.0;
const TEXT_WIDTH: usize = 120;

/// The runs to compare, and the options.
#[derive(Clone, Debug)]
pub struct Request {
    /// Pairs of runs: the same run as read for the simulator and for the lab.
    pub pairs: Vec<(Run, Run)>,
    /// Number of measurements of each run, at least 1.
    pub repeat: u32,
    /// Output directory, if any.
    pub out: Option<PathBuf>,
}

/// Reads the runs of a file for both arms.
///
/// # Errors
/// If the file is not a valid scenario for both arms.
pub fn read_both(file: &Path) -> Result<Vec<(Run, Run)>, Error> {
    let read = |arm| {
        sabul_scenario::read_file_for(arm, file, &[])
            .map_err(|error| Error::usage(error.to_string()))
    };
    Ok(read(Arm::Sim)?.into_iter().zip(read(Arm::Lab)?).collect())
}

/// All comparisons.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison(Vec<Compared>);

impl Comparison {
    /// Returns whether all measurements were valid.
    pub fn is_valid(&self) -> bool {
        self.0.iter().all(|one| one.faults.is_empty())
    }

    /// Returns all comparisons as one JSON document.
    ///
    /// # Errors
    /// If the comparison cannot be serialized.
    pub fn to_json(&self) -> Result<String, Error> {
        serde_json::to_string(&document(&self.0))
            .map_err(|error| Error::failed(format!("cannot write JSON: {error}")))
    }
}

/// Runs everything on both arms. `show` receives each comparison as text as soon as the comparison
/// is complete. The caller must have isolated the process with `sabul_emu::isolate`.
///
/// # Errors
/// If a run fails on either arm, the observer interrupts the runs, or files cannot be written.
pub fn compare<E: From<Error>>(
    request: &Request,
    observer: &Observer,
    mut show: impl FnMut(&str) -> Result<(), E>,
) -> Result<Comparison, E> {
    let mut compared = Vec::new();
    for (index, pair) in request.pairs.iter().enumerate() {
        let out = request.out.as_ref().map(|dir| dir.join(format!("run-{:04}", index + 1)));
        let one = compare_pair(pair, request.repeat, out.as_deref(), observer)?;
        show(&text(&one))?;
        compared.push(one);
    }
    if let Some(dir) = &request.out {
        write(dir, &compared)?;
    }
    Ok(Comparison(compared))
}

fn compare_pair(
    (for_sim, for_lab): &(Run, Run),
    repeat: u32,
    out: Option<&Path>,
    observer: &Observer,
) -> Result<Compared, Error> {
    let simulated = simulate(for_sim)?;
    if let Some(dir) = out {
        runs::write(&dir.join("sim"), for_sim, &simulated)?;
    }
    let (mut valid, mut faults) = (Vec::new(), Vec::new());
    for n in 1..=repeat {
        let title = format!("{}: measurement {n} of {repeat}", for_lab.label);
        let measuring = Measuring { title, ..Measuring::default() };
        let finished = measure(for_lab, measuring, observer)?;
        if let Some(dir) = out {
            runs::write(&dir.join(format!("lab-{n}")), for_lab, &finished)?;
        }
        if finished.is_valid() {
            valid.push(finished.results);
        } else {
            faults.push(format!("measurement {n}: {}", finished.faults().join("; ")));
        }
    }
    Ok(Compared::new(for_lab, &simulated, &valid, faults))
}

/// One run on both arms.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Compared {
    scenario: String,
    label: String,
    seed: u64,
    /// Number of valid measurements that the medians are computed from.
    measurements: usize,
    is_valid: bool,
    /// Reasons why measurements were invalid.
    faults: Vec<String>,
    rows: Vec<Row>,
}

/// One quantity.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Row {
    /// `flow`, `link` or `run`.
    kind: &'static str,
    /// Name of the flow or link; for `run`, the name of the run.
    id: String,
    quantity: &'static str,
    simulated: f64,
    /// Median of the valid measurements; `None` without a valid measurement.
    measured: Option<f64>,
    /// (measured − simulated) ÷ simulated, in percent. `None` without a measurement, or if only the
    /// simulated value is zero.
    difference_percent: Option<f64>,
    /// Whether the difference exceeds the tolerance.
    is_marked: bool,
}

impl Compared {
    fn new(run: &Run, simulated: &Finished, measured: &[Results], faults: Vec<String>) -> Self {
        let mut rows = Vec::new();
        let mut add = |kind, id: &str, quantity, value: &dyn Fn(&Results) -> Option<f64>| {
            let Some(simulated) = value(&simulated.results) else { return };
            let measured = median(measured.iter().filter_map(value).collect());
            rows.push(Row::new(kind, id, quantity, simulated, measured));
        };
        for (n, flow) in run.scenario.flows.iter().enumerate() {
            let id = &flow.id;
            add("flow", id, "goodput_bps", &|results| Some(results.flows.get(n)?.goodput_bps));
            add("flow", id, "loss_rate", &|results| Some(results.flows.get(n)?.loss_rate));
        }
        for (n, link) in run.scenario.links.iter().enumerate() {
            add("link", &link.id, "queue_packets_mean", &|results| {
                Some(results.links.get(n)?.queue_packets.mean)
            });
        }
        add("run", &run.scenario.name, "jain", &|results| Some(results.jain));
        Self {
            scenario: run.scenario.name.clone(),
            label: run.label.clone(),
            seed: run.scenario.seed,
            measurements: measured.len(),
            is_valid: faults.is_empty(),
            faults,
            rows,
        }
    }

    fn title(&self) -> String {
        if self.label == self.scenario {
            self.scenario.clone()
        } else {
            format!("{} [{}]", self.scenario, self.label)
        }
    }

    fn marked(&self) -> usize {
        self.rows.iter().filter(|row| row.is_marked).count()
    }
}

impl Row {
    fn new(
        kind: &'static str,
        id: &str,
        quantity: &'static str,
        simulated: f64,
        measured: Option<f64>,
    ) -> Self {
        let difference_percent = measured.and_then(|measured| difference(simulated, measured));
        let is_far = difference_percent.is_none_or(|percent| percent.abs() > MARKED_PERCENT);
        Self {
            kind,
            id: id.to_owned(),
            quantity,
            simulated,
            measured,
            difference_percent,
            is_marked: measured.is_some() && is_far,
        }
    }

    /// Returns the displayed name, the factor from the stored unit, and the number of decimals.
    fn shown(&self) -> (&'static str, f64, usize) {
        match self.quantity {
            "goodput_bps" => ("goodput (Mb/s)", 1e-6, 2),
            "loss_rate" => ("lost (%)", 100.0, 4),
            "queue_packets_mean" => ("mean queue (packets)", 1.0, 1),
            _ => ("Jain's index", 1.0, 4),
        }
    }

    fn cells(&self) -> Vec<Cell> {
        let (name, factor, decimals) = self.shown();
        let number = |value: Option<f64>| {
            value.map_or(Cell::Empty, |value| Cell::Fixed(value * factor, decimals))
        };
        let what = if self.kind == "run" {
            "run".to_owned()
        } else {
            format!("{} {}", self.kind, self.id)
        };
        let mark = match (self.is_marked, self.measured) {
            (_, None) => Cell::Fail("invalid".to_owned()),
            (true, _) => Cell::Fail(format!("over {MARKED_PERCENT} %")),
            (false, _) => Cell::Empty,
        };
        vec![
            what.into(),
            name.into(),
            number(Some(self.simulated)),
            number(self.measured),
            self.difference_percent.map_or(Cell::Empty, |percent| Cell::Fixed(percent, 1)),
            mark,
        ]
    }
}

/// Returns (measured − simulated) ÷ simulated in percent; `None` if only the simulated value is
/// zero.
fn difference(simulated: f64, measured: f64) -> Option<f64> {
    if measured.total_cmp(&simulated).is_eq() {
        return Some(0.0);
    }
    (simulated.abs() > 0.0).then(|| (measured - simulated) / simulated * 100.0)
}

fn columns() -> Vec<Column> {
    vec![
        Column::text("of"),
        Column::text("quantity"),
        Column::number("simulated", ""),
        Column::number("measured", ""),
        Column::number("difference", "%"),
        Column::text(""),
    ]
}

fn table(one: &Compared) -> Table {
    let rows = one.rows.iter().map(Row::cells).collect();
    Table { title: one.title(), columns: columns(), rows }
}

fn text(one: &Compared) -> String {
    let mut text = table(one).to_text(TEXT_WIDTH);
    for fault in &one.faults {
        text += &format!("INVALID: {fault}\n");
    }
    text + &format!("{}\n\n", verdict(one))
}

fn verdict(one: &Compared) -> String {
    match (one.measurements, one.marked()) {
        (0, _) => report::INVALID.to_owned(),
        (measured, marked) => format!(
            "{marked} of {} differ by more than {MARKED_PERCENT} %; medians of {measured} valid \
             measurement{}",
            one.rows.len(),
            if measured == 1 { "" } else { "s" },
        ),
    }
}

/// Document of `--json`.
#[derive(Clone, Debug, Serialize)]
struct Document<'a> {
    schema: u32,
    commit: &'static str,
    marked_percent: f64,
    comparisons: &'a [Compared],
}

const fn document(compared: &[Compared]) -> Document<'_> {
    Document {
        schema: SCHEMA,
        commit: COMMIT,
        marked_percent: MARKED_PERCENT,
        comparisons: compared,
    }
}

fn write(dir: &Path, compared: &[Compared]) -> Result<(), Error> {
    let json = serde_json::to_string_pretty(&document(compared))
        .map_err(|error| Error::failed(format!("cannot write the results: {error}")))?;
    let mut page = Page::new(
        "Simulator and lab, side by side",
        format!("Simulated, and measured in the lab over an emulated path; commit {COMMIT}"),
    );
    let mut columns = columns();
    columns.insert(0, Column::text("scenario"));
    let mut all = Table::new("", columns);
    for one in compared {
        page = page.with_summary(format!("{}: {}", one.title(), verdict(one)));
        let faults: String =
            one.faults.iter().map(|fault| format!("INVALID: {fault}\n\n")).collect();
        let section = Section::new(one.title(), faults).with_item(Item::Table(table(one)));
        page = page.with_section(section);
        for row in &one.rows {
            all = all.with_row([vec![one.title().into()], row.cells()].concat());
        }
    }
    fs::write(dir.join("compare.json"), json)
        .and_then(|()| fs::write(dir.join("compare.csv"), runs::csv(&all)))
        .and_then(|()| fs::write(dir.join("report.html"), page.to_html()))
        .map_err(|error| runs::cannot_write(dir, &error))
}

#[cfg(test)]
mod tests {
    use sabul_run::results::{FlowResult, LinkResult, Queue};

    use super::*;

    const TEXT: &str = "duration_s = 1\nlink = [{ id = 'l', rate_mbps = 1, delay_ms = 1 }]\n\
        flow = [{ id = 'a', transport = 'udp-cbr', rate_mbps = 1, path = ['l'] }]";

    fn run() -> Run {
        sabul_scenario::read(TEXT, "x.toml", &[]).unwrap().remove(0)
    }

    fn results(goodput_bps: f64, loss_rate: f64, queue: f64) -> Results {
        let queue_packets = Queue { mean: queue, ..Queue::default() };
        Results {
            flows: vec![FlowResult { goodput_bps, loss_rate, ..FlowResult::default() }],
            links: vec![LinkResult { queue_packets, ..LinkResult::default() }],
            jain: 1.0,
            ..Results::default()
        }
    }

    fn compared(measured: &[Results], faults: &[&str]) -> Compared {
        let simulated = Finished {
            results: results(10e6, 0.0, 50.0),
            series: sabul_run::results::Series::default(),
            wall_s: 1.0,
            lab: None,
            why: crate::Why::default(),
        };
        let faults = faults.iter().map(|&fault| fault.to_owned()).collect();
        Compared::new(&run(), &simulated, measured, faults)
    }

    #[test]
    fn differences_are_in_percent_of_the_simulated_value() {
        assert_eq!(difference(80.0, 100.0), Some(25.0));
        assert_eq!(difference(80.0, 60.0), Some(-25.0));
        assert_eq!(difference(0.0, 0.0), Some(0.0));
        assert_eq!(difference(0.0, 0.1), None);
        assert_eq!(difference(0.1, 0.0), Some(-100.0));
    }

    #[test]
    fn each_quantity_is_a_median_and_differences_over_a_tenth_are_marked() {
        let one = compared(
            &[results(9e6, 0.0, 10.0), results(9.5e6, 0.001, 56.0), results(20e6, 0.0, 54.0)],
            &[],
        );
        let rows: Vec<_> = one
            .rows
            .iter()
            .map(|row| (row.quantity, row.measured, row.difference_percent, row.is_marked))
            .collect();
        assert_eq!(
            rows,
            [
                ("goodput_bps", Some(9.5e6), Some(-5.0), false),
                ("loss_rate", Some(0.0), Some(0.0), false),
                ("queue_packets_mean", Some(54.0), Some(8.0), false),
                ("jain", Some(1.0), Some(0.0), false),
            ]
        );
        assert_eq!(one.measurements, 3);
        let one = compared(&[results(8.9e6, 0.001, 55.0)], &[]);
        let marked: Vec<_> =
            one.rows.iter().filter(|row| row.is_marked).map(|row| row.quantity).collect();
        // 11 % less; a value where zero was simulated; 10 % more does not exceed 10 %.
        assert_eq!(marked, ["goodput_bps", "loss_rate"]);
        let text = text(&one);
        for part in ["flow a", "8.90", "-11.0  over 10 %", "2 of 4 differ", "1 valid measurement\n"]
        {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn without_a_valid_measurement_the_measured_column_is_empty() {
        let one = compared(&[], &["measurement 1: too late"]);
        assert!(!one.is_valid && one.marked() == 0);
        assert!(one.rows.iter().all(|row| row.measured.is_none()));
        let text = text(&one);
        assert!(text.contains("INVALID: measurement 1: too late"), "{text}");
        let value = serde_json::to_value(document(&[one])).unwrap();
        assert_eq!(
            (&value["schema"], &value["comparisons"][0]["is_valid"]),
            (&1.into(), &false.into())
        );
        assert_eq!(value["comparisons"][0]["rows"][0]["measured"], serde_json::Value::Null);
        assert_eq!(value["comparisons"][0]["rows"][0]["simulated"], 10e6);
    }

    #[test]
    fn csv_json_and_report_contain_the_same_numbers() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), &[compared(&[results(9e6, 0.0, 50.0)], &[])]).unwrap();
        let read = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap();
        let csv = read("compare.csv");
        assert!(
            csv.starts_with("scenario,of,quantity,simulated,measured,difference (%),\n"),
            "{csv}"
        );
        assert!(csv.contains("x,flow a,goodput (Mb/s),10,9,-10,\n"), "{csv}");
        let json: serde_json::Value = serde_json::from_str(&read("compare.json")).unwrap();
        assert_eq!(json["comparisons"][0]["rows"][0]["difference_percent"], -10.0);
        assert!(read("report.html").contains("Simulator and lab"));
    }
}
