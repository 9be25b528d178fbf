//! `sabul lab compare`: compares scenarios in the simulator with the lab.

use sabul_study::compare::{self, Request};
use sabul_study::runs;

use crate::args::LabCompareArgs;
use crate::error::CliError;
use crate::exit::{self, FAILED};
use crate::output;
use crate::stop::{Stop, isolated};

/// Runs `sabul lab compare` and returns the exit code.
pub(super) fn run(args: &LabCompareArgs) -> Result<u8, CliError> {
    let mut pairs = Vec::new();
    for file in &args.scenarios {
        pairs.extend(compare::read_both(file)?);
    }
    if let Some(dir) = &args.output.out {
        runs::make_directory(dir, "--out")?;
    }
    let request = Request { pairs, repeat: args.repeat, out: args.output.out.clone() };
    isolated(|| compare_all(args, &request))
}

fn compare_all(args: &LabCompareArgs, request: &Request) -> Result<u8, CliError> {
    output::warn_of_debug_build();
    let observer = Stop::listen()?.observer(args.output.quiet);
    let show = |text: &str| if args.output.json { Ok(()) } else { output::print(text) };
    let compared = compare::compare(request, &observer, show)?;
    if args.output.json {
        output::print_line(compared.to_json()?)?;
    } else if let (false, Some(dir)) = (args.output.quiet, &args.output.out) {
        output::note(format_args!("wrote {}", dir.join("report.html").display()));
    }
    Ok(if compared.is_valid() { exit::DONE } else { FAILED })
}
