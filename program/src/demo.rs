//! `sabul demo`: one file over an emulated path, by the kernel's TCP and by sabul.
//!
//! Where the system allows network namespaces, TCP and sabul run between two emulated hosts, alone
//! and together. Otherwise, and with `--relay`, sender and receiver are child processes, a relay
//! emulates the path, and TCP is left out.

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use sabul::Ticket;
use sabul_emu::isolate;
use sabul_study::demo::{self, Draw, Request, Shown};
use sabul_study::path::find_preset;

use crate::args::DemoArgs;
use crate::error::CliError;
use crate::exit::{self, VERIFICATION};
use crate::json;
use crate::links;
use crate::options::check_controller;
use crate::output;
use crate::stop::Stop;

/// Number of flows that run at the same time.
const FLOWS: usize = 2;

/// Runs `sabul demo`. The process must have a single thread until this call.
pub(crate) fn run(args: &DemoArgs) -> Result<u8, CliError> {
    if isolate::is_inside() {
        isolate::init_inside()?;
        let request = request(args)?;
        let observer = Stop::listen()?.observer(is_loud(args));
        let bars = is_loud(args).then(bars);
        let drawn = bars.clone();
        let draw: Draw = Arc::new(move |lines| {
            for (n, bar) in drawn.iter().flatten().enumerate() {
                bar.set_message(lines.get(n).cloned().unwrap_or_default());
            }
        });
        let shown = demo::beside_tcp(&request, &observer, &draw);
        bars.iter().flatten().for_each(ProgressBar::finish_and_clear);
        return show(args, &shown?);
    }
    output::warn_of_debug_build();
    let request = request(args)?;
    check_controller(&args.cc, &args.cc_params)?;
    if !args.relay {
        match isolate::probe().and_then(|()| isolate::run_inside()) {
            Ok(code) => return Ok(code),
            Err(error) if !is_loud(args) => drop(error),
            Err(error) => output::note(format_args!(
                "cannot create emulated hosts, so TCP is left out: {error}"
            )),
        }
    }
    output::start_log(output::WARN);
    show(args, &demo::over_relay(&request, &Stop::listen()?.observer(is_loud(args)))?)
}

const fn is_loud(args: &DemoArgs) -> bool {
    !args.quiet && !args.json
}

/// Creates one live line for each flow.
fn bars() -> [ProgressBar; FLOWS] {
    let all = MultiProgress::with_draw_target(ProgressDrawTarget::stderr());
    let style = ProgressStyle::with_template("{msg}").expect("the template is right");
    [(); FLOWS].map(|()| all.add(ProgressBar::new_spinner().with_style(style.clone())))
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
    address.ok_or_else(|| "the ticket of the demo's server contains no IP address".to_owned())
}

/// Prints the results, writes the page and returns the exit code.
fn show(args: &DemoArgs, shown: &Shown) -> Result<u8, CliError> {
    if args.json {
        json::print(&shown.json())?;
    } else {
        output::print(shown.text())?;
    }
    if !args.json || args.page.is_some() {
        let at = write_page(args.page.as_deref(), &shown.page())?;
        if is_loud(args) {
            output::note(format_args!("Results as an HTML page: {}", at.display()));
        }
    }
    if shown.is_verified() {
        return Ok(exit::DONE);
    }
    output::error("the received file differs from the sent file");
    Ok(VERIFICATION)
}

/// Writes the page into this file, or into a new file in the directory for temporary files.
fn write_page(at: Option<&Path>, page: &str) -> Result<PathBuf, CliError> {
    let fail = |place: &Path, error: std::io::Error| {
        CliError::failed(format!("cannot write the page '{}': {error}", place.display()))
    };
    if let Some(at) = at {
        let written = links::create(at).and_then(|mut file| file.write_all(page.as_bytes()));
        written.map_err(|error| fail(at, error))?;
        return Ok(at.to_owned());
    }
    let folder = std::env::temp_dir();
    let mut builder = tempfile::Builder::new();
    let file = builder.prefix("sabul-demo-").suffix(".html").tempfile_in(&folder);
    let mut file = file.map_err(|error| fail(&folder, error))?;
    file.write_all(page.as_bytes()).map_err(|error| fail(file.path(), error))?;
    let (_, at) = file.keep().map_err(|error| fail(&folder, error.error))?;
    Ok(at)
}
