//! `sabul model`: deterministic model of SABUL 2002 and its lemmas.

use std::fs::{self, File};
use std::io::Read as _;
use std::path::Path;
use std::time::Instant;

use sabul_model::{ParamsError, file, grid, report};
use sabul_study::report as charts;

use crate::args::{ModelArgs, ModelCheckArgs, ModelCommand, ModelGridArgs, ModelIterateArgs};
use crate::error::CliError;
use crate::exit;
use crate::output;

/// Runs `sabul model` and returns the exit code.
pub(crate) fn run(args: &ModelArgs) -> Result<u8, CliError> {
    match &args.command {
        ModelCommand::Check(args) => check(args),
        ModelCommand::Iterate(args) => iterate(args),
        ModelCommand::Grid(args) => grid(args),
    }
}

/// Checks the eight lemmas against the model. The exit code is 0 even if a lemma as printed fails,
/// because that is a result. It is 1 if a corrected lemma fails.
fn check(args: &ModelCheckArgs) -> Result<u8, CliError> {
    let started = Instant::now();
    let given = match &args.params {
        Some(path) => Some((path.display().to_string(), read(path, file::read_params)?)),
        None => None,
    };
    let report = report::check(given, args.grid, args.seed);
    output::print(if args.json { report::json(&report) } else { report.text() })?;
    say_duration(args.json, started);
    if report.has_failed_correction() {
        return Err(CliError::failed("a corrected lemma does not hold; see the report"));
    }
    Ok(exit::DONE)
}

/// Iterates one parameter set round by round.
fn iterate(args: &ModelIterateArgs) -> Result<u8, CliError> {
    let found = report::iterate(read(&args.params, file::read_params)?, args.rounds);
    if let Some(dir) = &args.out {
        let [rate, loss, queue] = charts::model_charts(&found.series);
        let phase = charts::phase_chart("Two flows in the plane of their gaps", &found.phase_plane);
        let pictures = [("rate.svg", rate), ("loss.svg", loss), ("queue.svg", queue)];
        let pictures = pictures.map(|(name, chart)| (name, chart.to_svg(900, 380)));
        write(dir, pictures.into_iter().chain([("phase-plane.svg", phase.to_svg(700, 560))]))?;
    }
    output::print(if args.json { report::json(&found) } else { found.text() })?;
    Ok(exit::DONE)
}

/// Classifies many parameter sets into regions.
fn grid(args: &ModelGridArgs) -> Result<u8, CliError> {
    let started = Instant::now();
    let report = report::grid(&read(&args.grid, grid::read_grid)?);
    if let Some(dir) = &args.out {
        let map = report.heat_map.as_ref().ok_or_else(|| {
            CliError::usage("cannot draw a map: the grid file lacks x and y; add them")
        })?;
        write(dir, [("map.svg", charts::grid_map(map).to_svg(900, 600))])?;
    }
    output::print(if args.json { report::json(&report) } else { report.text() })?;
    say_duration(args.json, started);
    Ok(exit::DONE)
}

fn write(
    dir: &Path,
    pictures: impl IntoIterator<Item = (&'static str, String)>,
) -> Result<(), CliError> {
    let written = fs::create_dir_all(dir).and_then(|()| {
        pictures.into_iter().try_for_each(|(name, svg)| fs::write(dir.join(name), svg))
    });
    written.map_err(|error| {
        CliError::failed(format!(
            "cannot write to {}: {error}; choose another directory with --out",
            dir.display()
        ))
    })
}

/// Ours: largest input file in bytes. Parameter files are far smaller.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Reads and parses a file. Errors name the file and, where known, the line.
fn read<T>(path: &Path, parse: impl Fn(&str) -> Result<T, ParamsError>) -> Result<T, CliError> {
    let refuse = |what: String| CliError::usage(format!("{}: {what}", path.display()));
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|file| file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes))
        .map_err(|error| refuse(format!("cannot be read: {error}; give the path of a file")))?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(refuse(format!("is too large; at most {FILE_BYTES_MAX} bytes are allowed")));
    }
    let text = String::from_utf8(bytes)
        .map_err(|_| refuse("is not UTF-8 text; convert the file to UTF-8".to_owned()))?;
    parse(&text).map_err(|error| refuse(error.to_string()))
}

/// Prints the run time for users only, because a JSON document must be equal on every machine.
fn say_duration(is_json: bool, started: Instant) {
    if !is_json {
        output::note(format_args!("took {:.1} s", started.elapsed().as_secs_f64()));
    }
}
