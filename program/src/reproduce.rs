//! `sabul reproduce`: reruns tables and figures of the papers and checks the verdicts.

use sabul_study::{Observer, reproduce};
use sabul_units::count;

use crate::args::ReproduceRunArgs;
use crate::error::CliError;
use crate::exit;
use crate::output;

/// Lists the reproductions.
pub(crate) fn list() -> Result<u8, CliError> {
    let all = reproduce::list()?;
    let width = all.iter().map(|one| one.name.len()).max().unwrap_or(0);
    for one in &all {
        output::print_line(format_args!(
            "{:width$}  {}: {} ({})",
            one.name,
            one.source,
            one.title,
            count(one.cases as u64, "case"),
        ))?;
    }
    Ok(exit::DONE)
}

/// Runs one reproduction, or all.
pub(crate) fn run(args: &ReproduceRunArgs) -> Result<u8, CliError> {
    let observer = Observer::silent().with_notes(|line| output::note(line));
    let judged = reproduce::reproduce(&args.name, args.out.as_deref(), &observer)?;
    if args.json {
        output::print_line(&judged.json)?;
    } else {
        judged.texts.iter().try_for_each(output::print)?;
    }
    for line in &judged.changed {
        output::error(format_args!("a verdict changed: {line}"));
    }
    Ok(if judged.changed.is_empty() { exit::DONE } else { exit::FAILED })
}
