//! `sabul demo`: one real file between two processes over an emulated path.
//!
//! Where hosts can be made, the file goes from one to another beside a TCP connection of the kernel.
//! Elsewhere, or where asked for, sender and receiver are children of this process and a relay plays the
//! path.

use std::net::SocketAddr;
use std::path::Path;

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use sabul::Ticket;
use sabul_lab::isolate;
use sabul_study::demo::{self, Request};
use sabul_study::path::find_preset;
use serde_json::Value;

use crate::args::DemoArgs;
use crate::error::CliError;
use crate::exit::{self, VERIFICATION};
use crate::json;
use crate::options::check_controller;
use crate::output;
use crate::stop::Stop;

/// Runs the command. The process must have one thread until then.
pub(crate) fn run(args: &DemoArgs) -> Result<u8, CliError> {
    if isolate::is_inside() {
        isolate::settle()?;
        return beside_tcp(args, &request(args)?);
    }
    output::warn_of_debug_build();
    let request = request(args)?;
    check_controller(&args.cc, &args.cc_params)?;
    if !args.relay {
        match isolate::probe().and_then(|()| isolate::run_inside()) {
            Ok(code) => return Ok(code),
            Err(error) if !is_loud(args) => drop(error),
            Err(error) => output::note(format_args!(
                "no hosts here, so nothing runs beside the copy: {error}"
            )),
        }
    }
    output::start_log(output::WARN);
    let shown = demo::over_relay(&request, &Stop::listen()?.observer(!is_loud(args)))?;
    show(args, shown.is_verified(), || shown.json(), || shown.text())
}

const fn is_loud(args: &DemoArgs) -> bool {
    !args.quiet && !args.json
}

fn request(args: &DemoArgs) -> Result<Request, CliError> {
    let path = find_preset(&args.path)?;
    let program = std::env::current_exe()
        .map_err(|error| CliError::failed(format!("cannot find this program: {error}")))?;
    Ok(Request {
        program,
        path,
        bytes: args.size,
        cc: args.cc.clone(),
        params: args.cc_params.clone(),
        seed: args.seed,
        is_quiet: !is_loud(args),
        read_address,
    })
}

fn read_address(ticket: &Path) -> Result<SocketAddr, String> {
    let ticket = Ticket::read_file(ticket).map_err(|error| error.to_string())?;
    let address = ticket.addresses().iter().find_map(|address| address.parse().ok());
    address.ok_or_else(|| "the ticket of the demo's server holds no IP address".to_owned())
}

/// Runs the demo inside the lab; the result is the exit code.
fn beside_tcp(args: &DemoArgs, request: &Request) -> Result<u8, CliError> {
    let observer = Stop::listen()?.observer(!is_loud(args));
    let bars = is_loud(args).then(|| {
        let all = MultiProgress::with_draw_target(ProgressDrawTarget::stderr());
        let style = ProgressStyle::with_template("{msg}").expect("the template is right");
        [(); 2].map(|()| all.add(ProgressBar::new_spinner().with_style(style.clone())))
    });
    let drawn = bars.clone();
    let shown = demo::beside_tcp(request, &observer, move |lines| {
        for (bar, line) in drawn.iter().flatten().zip(lines) {
            bar.set_message(line);
        }
    });
    bars.iter().flatten().for_each(ProgressBar::abandon);
    let shown = shown?;
    show(args, shown.is_verified(), || shown.json(), || shown.text())
}

/// Prints what was shown; the result is the exit code.
fn show(
    args: &DemoArgs,
    is_verified: bool,
    document: impl FnOnce() -> Value,
    text: impl FnOnce() -> String,
) -> Result<u8, CliError> {
    if args.json {
        json::print(&document())?;
    } else {
        output::print(text())?;
    }
    if is_verified {
        return Ok(exit::DONE);
    }
    output::complain("the file that arrived differs from the one that was sent");
    Ok(VERIFICATION)
}
