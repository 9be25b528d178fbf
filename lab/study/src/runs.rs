//! Finished runs of scenarios on either arm: documents, texts and files.
//!
//! A run in the lab may be invalid. All outputs then have reasons instead of numbers.

use std::fs;
use std::io::{self, BufWriter, Write as _};
use std::path::{Path, PathBuf};

use sabul_emu::{Calibration, FlowCpu, LabOutcome, RouterSnapshot, TupleSnapshot};
use sabul_report::Table;
use sabul_run::results::{Results, Series};
use sabul_scenario::{Arm, LabNotes, Manifest, Override, Run, RunDocument};
use serde_json::{Map, Value, json};

use crate::built::COMMIT;
use crate::error::Error;
use crate::folder::{self, Folder};
use crate::why::Why;
use crate::{conversations, report};

/// Most conversations shown in a text.
pub(crate) const CONVERSATIONS_SHOWN: usize = 20;
const TEXT_WIDTH: usize = 120;
/// Files of numbers. An invalid run does not keep these files.
const NUMBERS: [&str; 4] = ["plot.svg", "series.csv", "links.csv", TUPLES];
const TUPLES: &str = "tuples.csv";

/// Results of a finished run.
#[derive(Clone, Debug)]
pub struct Finished {
    /// Averages.
    pub results: Results,
    /// Series over time.
    pub series: Series,
    /// Wall-clock time of the run, in seconds.
    pub wall_s: f64,
    /// Facts of the lab; `None` for a run in virtual time.
    pub lab: Option<LabFacts>,
    /// Reasons of rate changes, if events were recorded.
    pub why: Why,
}

/// Facts on how well the lab matched the requested path.
#[derive(Clone, Debug)]
pub struct LabFacts {
    /// Results of calibration.
    pub calibrations: Vec<Calibration>,
    /// Reasons why the run is invalid; empty for a valid run.
    pub faults: Vec<String>,
    /// Remarks on a valid run.
    pub notes: Vec<String>,
    /// Final state of the router.
    pub router: RouterSnapshot,
    /// Every direction of every conversation.
    pub tuples: Vec<TupleSnapshot>,
    /// Processor time of the flows' hosts.
    pub cpu: Vec<FlowCpu>,
}

impl From<LabOutcome> for Finished {
    fn from(outcome: LabOutcome) -> Self {
        let LabOutcome { results, series, calibrations, faults, notes, router, tuples, cpu, wall } =
            outcome;
        let lab = Some(LabFacts { calibrations, faults, notes, router, tuples, cpu });
        Self { results, series, wall_s: wall.as_secs_f64(), lab, why: Why::default() }
    }
}

impl Finished {
    /// Returns the arm of the run.
    pub const fn arm(&self) -> Arm {
        if self.lab.is_some() { Arm::Lab } else { Arm::Sim }
    }

    /// Returns the reasons why the run is invalid; empty for a valid run.
    pub fn faults(&self) -> &[String] {
        self.lab.as_ref().map_or(&[], |lab| &lab.faults)
    }

    /// Returns whether the run is valid.
    pub fn is_valid(&self) -> bool {
        self.faults().is_empty()
    }
}

impl LabFacts {
    fn document(&self) -> LabNotes<'_> {
        LabNotes {
            is_valid: self.faults.is_empty(),
            faults: &self.faults,
            notes: &self.notes,
            details: self.details(),
        }
    }

    fn details(&self) -> Value {
        let RouterSnapshot {
            lateness,
            malformed,
            refused,
            longest_pause,
            cpu_seconds,
            unrecorded,
            ..
        } = &self.router;
        let micros = |span: sabul_units::Span| span.as_secs_f64() * 1e6;
        json!({
            "calibrations": self.calibrations,
            "lateness": {
                "packets": lateness.packets,
                "p50_us": micros(lateness.p50),
                "p99_us": micros(lateness.p99),
                "max_us": micros(lateness.max),
            },
            "router": {
                "frames_malformed": malformed,
                "frames_refused": refused,
                "longest_pause_ms": longest_pause.as_millis_f64(),
                "packets_unrecorded": unrecorded,
                "cpu_seconds": cpu_seconds,
            },
            "conversations": self.tuples.len(),
            "flows_cpu_seconds": self.cpu.iter().map(flow_cpu).collect::<Map<_, _>>(),
        })
    }
}

/// Returns the processor time of a flow's hosts at the end of the run.
fn flow_cpu(flow: &FlowCpu) -> (String, Value) {
    let last = |side: &[f64]| side.last().copied();
    let both = json!({ "sender": last(&flow.sender_s), "receiver": last(&flow.receiver_s) });
    (flow.id.clone(), both)
}

/// Combines the overrides of `--set` and `--seed`.
///
/// # Errors
/// If the seed is invalid.
pub fn overrides(set: &[Override], seed: Option<u64>) -> Result<Vec<Override>, Error> {
    let mut overrides = set.to_vec();
    if let Some(seed) = seed {
        let seed = sabul_scenario::parse_override(&format!("seed={seed}"));
        overrides.push(seed.map_err(|error| Error::usage(error.to_string()))?);
    }
    Ok(overrides)
}

/// Returns the results of a run as a JSON document.
///
/// # Errors
/// If the results cannot be serialized.
pub fn document<'a>(run: &'a Run, finished: &'a Finished) -> Result<RunDocument<'a>, Error> {
    let document =
        RunDocument::new(finished.arm().name(), run, COMMIT, finished.wall_s, &finished.results)
            .map_err(|error| Error::failed(error.to_string()))?;
    Ok(match &finished.lab {
        Some(lab) => document.with_lab(lab.document()),
        None => document,
    })
}

/// Returns the results as text for a terminal.
pub fn text(run: &Run, finished: &Finished, is_sweep: bool) -> String {
    let results = &finished.results;
    let scenario = &run.scenario;
    let label = if is_sweep { format!(" [{}]", run.label) } else { String::new() };
    let name = &scenario.name;
    if !finished.is_valid() {
        let mut text = format!("{name}{label}: INVALID, {}:\n", report::INVALID);
        for fault in finished.faults() {
            text += &format!("  - {fault}\n");
        }
        return text + &notes(finished);
    }
    let how = if finished.lab.is_some() { "measured in the lab" } else { "simulated" };
    let mut text = format!(
        "{name}{label}: {} s {how} in {:.2} s, seed {}\n\n",
        scenario.duration.as_secs_f64(),
        finished.wall_s,
        scenario.seed,
    );
    let mut tables = vec![report::flow_table(results), report::link_table(results)];
    if let Some(lab) = &finished.lab {
        if !lab.calibrations.is_empty() {
            tables.push(report::calibration_table(&lab.calibrations));
        }
        tables.push(conversations::table(&lab.tuples, &flow_ids(run), CONVERSATIONS_SHOWN));
    }
    for table in tables {
        text += &table.to_text(TEXT_WIDTH);
        text.push('\n');
    }
    text += &format!("Jain's index {:.4}\n", results.jain);
    if let Some(lab) = &finished.lab {
        text += &format!("{}\n", report::lateness(&lab.router));
        for why in report::left_out(&lab.calibrations) {
            text += &format!("{why}\n");
        }
    }
    text + &notes(finished)
}

/// Returns the names of the pairs of hosts: each flow has one pair.
pub(crate) fn flow_ids(run: &Run) -> Vec<&str> {
    run.scenario.flows.iter().map(|flow| flow.id.as_str()).collect()
}

fn notes(finished: &Finished) -> String {
    let notes = finished.lab.iter().flat_map(|lab| &lab.notes);
    notes.map(|note| format!("Note: {note}\n")).collect()
}

/// Returns the folder for the files of one of `count` runs.
pub fn folder(dir: &Path, index: usize, count: usize) -> PathBuf {
    if count == 1 { dir.to_owned() } else { dir.join(format!("run-{:04}", index + 1)) }
}

/// Writes the files of one run. The manifest is written last: if it exists, all files are complete.
///
/// # Errors
/// If the folder or a file in it cannot be written.
pub fn write(dir: &Path, run: &Run, finished: &Finished) -> Result<(), Error> {
    let document = document(run, finished)?;
    fs::create_dir_all(dir)
        .and_then(|()| write_files(dir, run, finished, &document))
        .map_err(|error| cannot_write(dir, &error))
}

fn write_files(
    dir: &Path,
    run: &Run,
    finished: &Finished,
    document: &RunDocument<'_>,
) -> io::Result<()> {
    let mut folder = Folder::begin(dir)?;
    let series = &finished.series;
    folder.write("results.json", document.to_json())?;
    if finished.is_valid() {
        folder.write("plot.svg", report::goodput_chart(series).to_svg(900, 380))?;
    }
    folder.write("report.html", report::run_page(run, finished).to_html())?;
    folder.write("scenario.toml", &run.text)?;
    if finished.is_valid() {
        if let Some(lab) = &finished.lab {
            folder.write(TUPLES, conversations::csv(&lab.tuples, &flow_ids(run)))?;
        }
        let mut file = BufWriter::new(fs::File::create(folder.add("series.csv"))?);
        sabul_scenario::write_series(series, &mut file)?;
        file.flush()?;
        let mut file = BufWriter::new(fs::File::create(folder.add("links.csv"))?);
        sabul_scenario::write_links(series, &mut file)?;
        file.flush()?;
    }
    // Files of an earlier run do not belong to this run.
    folder.remove_others(&NUMBERS)?;
    let version = env!("CARGO_PKG_VERSION");
    folder.end(|files| {
        Ok(Manifest::new(finished.arm().name(), run, version, COMMIT, files).to_json())
    })
}

/// Removes the manifest after a failed run, so that an earlier run's files do not count as its
/// results.
///
/// # Errors
/// If the manifest cannot be removed.
pub fn remove_manifest(dir: &Path) -> Result<(), Error> {
    folder::remove_manifest(dir).map_err(|error| cannot_write(dir, &error))
}

/// Writes the page and the table of all runs of a sweep.
///
/// # Errors
/// If a file cannot be written.
pub fn write_sweep(dir: &Path, runs: &[Run], finished: &[Finished]) -> Result<(), Error> {
    let pairs: Vec<_> = runs.iter().zip(finished).collect();
    let page = report::sweep_page(&pairs);
    let table = report::sweep_table(&pairs);
    fs::write(dir.join("report.html"), page.to_html())
        .and_then(|()| fs::write(dir.join("runs.csv"), csv(&table)))
        .map_err(|error| cannot_write(dir, &error))
}

/// Creates the output directory before the runs, so that an unusable directory fails early. `flag`
/// is the command-line flag for messages.
///
/// # Errors
/// If the directory cannot be created.
pub fn make_directory(dir: &Path, flag: &str) -> Result<(), Error> {
    fs::create_dir_all(dir).map_err(|error| cannot_write_to(dir, flag, &error))
}

/// Returns a table as comma-separated values.
pub(crate) fn csv(table: &Table) -> String {
    let quoted = |text: &str| {
        if text.contains([',', '"', '\n']) {
            format!("\"{}\"", text.replace('"', "\"\""))
        } else {
            text.to_owned()
        }
    };
    let heads = table.columns.iter().map(|column| match column.unit.as_str() {
        "" => quoted(&column.name),
        unit => quoted(&format!("{} ({unit})", column.name)),
    });
    let mut text = heads.collect::<Vec<_>>().join(",") + "\n";
    for row in &table.rows {
        let cells = row.iter().map(|cell| match cell {
            sabul_report::Cell::Number(number) | sabul_report::Cell::Fixed(number, _) => {
                if number.is_finite() { number.to_string() } else { String::new() }
            }
            sabul_report::Cell::Empty => String::new(),
            sabul_report::Cell::Text(text)
            | sabul_report::Cell::Pass(text)
            | sabul_report::Cell::Fail(text) => quoted(text),
        });
        text += &(cells.collect::<Vec<_>>().join(",") + "\n");
    }
    text
}

/// Builds the error for an unwritable `--out` directory.
pub(crate) fn cannot_write(dir: &Path, error: &io::Error) -> Error {
    cannot_write_to(dir, "--out", error)
}

fn cannot_write_to(dir: &Path, flag: &str, error: &io::Error) -> Error {
    Error::failed(format!(
        "cannot write to {}: {error}; choose another directory with {flag}",
        dir.display()
    ))
}

#[cfg(test)]
pub(crate) mod tests {
    use sabul_emu::{Check, Lateness};
    use sabul_net::Way;
    use sabul_units::{Instant, Span};

    use super::*;
    use crate::conversations::tests::snapshot;

    /// Returns a run with numbers that are recognizable in every output.
    fn simulated() -> (Run, Finished) {
        let text = "name = 'twin'\nduration_s = 4\nsample_ms = 1000\n\
            link = [{ id = 'wire', rate_mbps = 10, delay_ms = 1 }]\n\
            flow = [{ id = 'a', transport = 'udp-cbr', rate_mbps = 3, path = ['wire'] }]";
        let run = sabul_scenario::read(text, "x.toml", &[]).unwrap().remove(0);
        let finished = crate::simulate(&run).unwrap();
        (run, finished)
    }

    fn measured(faults: &[&str]) -> (Run, Finished) {
        let (run, mut finished) = simulated();
        finished.wall_s = 5.25;
        let faults = faults.iter().map(|&fault| fault.to_owned()).collect();
        finished.lab = Some(LabFacts { faults, ..facts() });
        (run, finished)
    }

    /// Returns the lab facts of a valid run.
    pub(crate) fn facts() -> LabFacts {
        let check = Check {
            quantity: "rate_mbps".to_owned(),
            wanted: 10.0,
            measured: 9.97,
            tolerance: 0.1,
            is_met: true,
        };
        let late = Span::from_micros(35);
        LabFacts {
            calibrations: vec![Calibration {
                path: "wire".to_owned(),
                checks: vec![check],
                skipped: vec!["loss: none was asked for".to_owned()],
            }],
            faults: Vec::new(),
            notes: vec!["the host answers for itself".to_owned()],
            router: RouterSnapshot {
                at: Instant::ZERO + Span::from_secs(4),
                lateness: Lateness { packets: 977, p50: late, p99: late, max: late },
                ..RouterSnapshot::default()
            },
            tuples: vec![snapshot(Way::Forward, 4321, 1_500_000)],
            cpu: Vec::new(),
        }
    }

    const FAULT: &str = "the router was too late";

    #[test]
    fn simulated_and_lab_runs_print_the_same_tables() {
        let (run, finished) = simulated();
        let simulated = text(&run, &finished, false);
        assert!(simulated.starts_with("twin: 4 s simulated in "), "{simulated}");
        assert!(!simulated.contains("lab") && !simulated.contains("Calibration"), "{simulated}");
        let (run, finished) = measured(&[]);
        let text = text(&run, &finished, true);
        assert!(
            text.starts_with("twin [twin]: 4 s measured in the lab in 5.25 s, seed 1"),
            "{text}"
        );
        for part in [
            "udp-cbr",
            "Jain's index 1.0000",
            "rate_mbps",
            "9.97",
            "met",
            "Not calibrated on wire: loss: none was asked for",
            "10.0.0.2:4321",
            "half of 977 packets left at most 0.035 ms late",
            "Note: the host answers for itself",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let tables = simulated.split_once("\n\n").unwrap().1.split("Jain").next().unwrap();
        assert!(text.contains(tables), "the same tables: {text}");
    }

    #[test]
    fn an_invalid_run_shows_reasons_and_no_numbers() {
        let (run, finished) = measured(&[FAULT, "calibration: rate"]);
        let text = text(&run, &finished, false);
        let wanted = format!(
            "twin: INVALID, {}:\n  - {FAULT}\n  - calibration: rate\n\
             Note: the host answers for itself\n",
            report::INVALID
        );
        assert_eq!(text, wanted);
        assert!(!text.chars().any(|c| c.is_ascii_digit()), "{text}");
        let page = report::run_page(&run, &finished).to_html();
        for part in ["INVALID: ", FAULT, "rate_mbps", "Measured in the lab"] {
            assert!(page.contains(part), "{part}");
        }
        for part in ["Goodput", "goodput,", "Jain", "Averages", "Conversations", "<svg"] {
            assert!(!page.contains(part), "{part}");
        }
    }

    #[test]
    fn a_page_states_the_origin_and_validity_of_its_numbers() {
        let (run, finished) = measured(&[]);
        let page = report::run_page(&run, &finished).to_html();
        for part in [
            "Measured in the lab: real sockets over an emulated path: 4 s",
            "Valid: the path met its calibration, ",
            "Calibration and validity",
            "Conversations",
            "Averages",
        ] {
            assert!(page.contains(part), "{part}");
        }
        let summary = page.find("Valid: ").unwrap();
        assert!(summary < page.find("Mb/s goodput").unwrap(), "validity comes first");
        let (run, finished) = simulated();
        let page = report::run_page(&run, &finished).to_html();
        assert!(page.contains("Simulated: 4 s") && !page.contains("Calibration"));
    }

    fn names(dir: &Path) -> Vec<String> {
        let entries = fs::read_dir(dir).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn an_invalid_run_removes_old_result_files() {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path();
        let (run, finished) = measured(&[]);
        write(dir, &run, &finished).unwrap();
        let all = [
            "links.csv",
            "manifest.json",
            "plot.svg",
            "report.html",
            "results.json",
            "scenario.toml",
            "series.csv",
            "tuples.csv",
        ];
        assert_eq!(names(dir), all);
        let manifest = fs::read_to_string(dir.join("manifest.json")).unwrap();
        assert!(manifest.contains("\"arm\": \"lab\"") && manifest.contains("tuples.csv"));
        let (run, finished) = measured(&[FAULT]);
        write(dir, &run, &finished).unwrap();
        assert_eq!(names(dir), ["manifest.json", "report.html", "results.json", "scenario.toml"]);
        let manifest = fs::read_to_string(dir.join("manifest.json")).unwrap();
        assert!(!manifest.contains(".csv\""), "{manifest}");
    }

    #[test]
    fn a_sweep_lists_invalid_runs_and_shows_numbers_of_valid_runs() {
        let folder = tempfile::tempdir().unwrap();
        let (run, valid) = measured(&[]);
        let (_, invalid) = measured(&[FAULT]);
        let mut runs = vec![run.clone(), run];
        for (run, value) in runs.iter_mut().zip(["1", "2"]) {
            run.settings = vec![("seed".to_owned(), value.to_owned())];
        }
        write_sweep(folder.path(), &runs, &[valid, invalid]).unwrap();
        let table = fs::read_to_string(folder.path().join("runs.csv")).unwrap();
        let rows: Vec<&str> = table.lines().collect();
        assert!(rows[1].starts_with("1,a,2.9"), "{table}");
        assert_eq!(rows[2..], ["2,invalid"]);
    }
}
