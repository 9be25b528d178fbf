//! `sabul sim`: scenario files in virtual time.

use std::fs;
use std::io::{self, BufWriter, Write as _};
use std::path::Path;
use std::time::Instant as Clock;

use sabul_report::Table;
use sabul_scenario::{Manifest, Override, Run, RunDocument};
use sabul_sim::{Outcome, World};

use crate::args::SimRunArgs;
use crate::error::CliError;
use crate::{output, report};

/// The source this program was built from.
pub(crate) const COMMIT: &str = env!("SABUL_COMMIT");
const ARM: &str = "sim";

/// A run and what it has shown.
#[derive(Debug)]
pub(crate) struct Simulated {
    pub(crate) outcome: Outcome,
    pub(crate) wall_s: f64,
}

/// Lets one run happen.
pub(crate) fn simulate(run: &Run) -> Result<Simulated, CliError> {
    let world = World::new(run.scenario.clone())
        .map_err(|error| CliError::usage(format!("{}: {error}", run.label)))?;
    let started = Clock::now();
    let outcome = world.run();
    Ok(Simulated { outcome, wall_s: started.elapsed().as_secs_f64() })
}

/// Runs `sabul sim run`.
pub(crate) fn run(args: &SimRunArgs) -> Result<u8, CliError> {
    let mut overrides: Vec<Override> = args.set.clone();
    if let Some(seed) = args.seed {
        let text = format!("seed={seed}");
        overrides.push(sabul_scenario::parse_override(&text).map_err(|e| usage(&e))?);
    }
    let runs =
        sabul_scenario::read_file(&args.scenario, &overrides).map_err(|error| usage(&error))?;
    if let Some(dir) = &args.out {
        fs::create_dir_all(dir).map_err(|error| cannot_write(dir, &error))?;
    }
    let count = runs.len();
    let show_progress = count > 1 && !args.quiet;
    let progress = |done: usize| {
        if show_progress {
            output::note(format_args!("{done} of {count} runs done"));
        }
    };
    let results = sabul_scenario::run_all_with_progress(&runs, args.threads, progress, simulate);
    let results: Vec<Simulated> = results.into_iter().collect::<Result<_, _>>()?;
    if let Some(dir) = &args.out {
        write_all(dir, &runs, &results)?;
    }
    for (run, simulated) in runs.iter().zip(&results) {
        if args.json {
            output::print_line(document(run, simulated)?.to_json())?;
        } else {
            output::print(text(run, simulated, count > 1))?;
        }
    }
    if let (false, Some(dir)) = (args.json || args.quiet, &args.out) {
        output::note(format_args!("wrote {}", dir.join("report.html").display()));
    }
    Ok(0)
}

fn usage(error: &dyn std::fmt::Display) -> CliError {
    CliError::usage(error.to_string())
}

fn document<'a>(run: &'a Run, simulated: &'a Simulated) -> Result<RunDocument<'a>, CliError> {
    RunDocument::new(ARM, run, COMMIT, simulated.wall_s, &simulated.outcome.results)
        .map_err(|error| CliError::failed(error.to_string()))
}

/// What a person reads in a terminal.
fn text(run: &Run, simulated: &Simulated, is_sweep: bool) -> String {
    let results = &simulated.outcome.results;
    let scenario = &run.scenario;
    let label = if is_sweep { format!(" [{}]", run.label) } else { String::new() };
    let mut text = format!(
        "{}{label}: {} s simulated in {:.2} s, seed {}\n\n",
        scenario.name,
        scenario.duration.as_secs_f64(),
        simulated.wall_s,
        scenario.seed,
    );
    for table in [report::flow_table(results), report::link_table(results)] {
        text += &table.to_text(TEXT_WIDTH);
        text.push('\n');
    }
    text + &format!("Jain's index {:.4}\n", results.jain)
}

const TEXT_WIDTH: usize = 120;
const MANIFEST: &str = "manifest.json";

/// Writes the files of each run. The manifest comes last: where it is, everything is.
fn write_all(dir: &Path, runs: &[Run], results: &[Simulated]) -> Result<(), CliError> {
    if let ([run], [simulated]) = (runs, results) {
        return write_run(dir, run, simulated).map_err(|error| cannot_write(dir, &error));
    }
    for (index, (run, simulated)) in runs.iter().zip(results).enumerate() {
        let dir = dir.join(format!("run-{:04}", index + 1));
        fs::create_dir_all(&dir)
            .and_then(|()| write_run(&dir, run, simulated))
            .map_err(|error| cannot_write(&dir, &error))?;
    }
    let pairs: Vec<_> = runs.iter().zip(results.iter().map(|one| &one.outcome)).collect();
    let page = report::sweep_page(&pairs);
    let table = report::sweep_table(&pairs);
    fs::write(dir.join("report.html"), page.to_html())
        .and_then(|()| fs::write(dir.join("runs.csv"), csv(&table)))
        .map_err(|error| cannot_write(dir, &error))
}

fn write_run(dir: &Path, run: &Run, simulated: &Simulated) -> io::Result<()> {
    let outcome = &simulated.outcome;
    // What an earlier run left here is whole no longer.
    match fs::remove_file(dir.join(MANIFEST)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut files = Vec::new();
    let mut write = |name: &str, bytes: &[u8]| {
        files.push(name.to_owned());
        fs::write(dir.join(name), bytes)
    };
    let document = document(run, simulated).map_err(|error| io::Error::other(error.to_string()))?;
    write("results.json", document.to_json().as_bytes())?;
    write("plot.svg", report::goodput_chart(&outcome.series).to_svg(900, 380).as_bytes())?;
    write("report.html", report::run_page(run, outcome).to_html().as_bytes())?;
    write("scenario.toml", run.text.as_bytes())?;
    for name in ["series.csv", "links.csv"] {
        files.push(name.to_owned());
        let mut file = BufWriter::new(fs::File::create(dir.join(name))?);
        if name == "series.csv" {
            sabul_scenario::write_series(&outcome.series, &mut file)?;
        } else {
            sabul_scenario::write_links(&outcome.series, &mut file)?;
        }
        file.flush()?;
    }
    let manifest = Manifest::new(ARM, run, env!("CARGO_PKG_VERSION"), COMMIT, &files);
    fs::write(dir.join(MANIFEST), manifest.to_json())
}

/// A table as comma-separated values.
fn csv(table: &Table) -> String {
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

fn cannot_write(dir: &Path, error: &io::Error) -> CliError {
    CliError::failed(format!(
        "cannot write to {}: {error}; choose another directory with --out",
        dir.display()
    ))
}
