//! `sabul serve` and `sabul perf serve`: answer the requests of ticket holders.

use std::io::IsTerminal as _;
use std::path::Path;
use std::time::Duration;

use sabul::{Controllers, Listener, ListenerConfig, MemoryBudget, SendPolicy, Service, Session};
use sabul_study::words::count;
use sabul_units::show_bytes;
use tokio::task::JoinSet;

use crate::args::{AllowArgs, ListenArgs, ServeArgs};
use crate::error::CliError;
use crate::events::EventFile;
use crate::exit::{self, FAILED, INTERRUPTED};
use crate::interrupt::Interrupt;
use crate::output;

/// How long sessions get to clean up after an interrupt.
const CLEAN_UP: Duration = Duration::from_secs(3);

/// Runs `sabul serve`; the result is the exit code.
pub(crate) async fn files(args: ServeArgs) -> Result<u8, CliError> {
    let root = std::fs::canonicalize(&args.root).map_err(|error| {
        CliError::usage(format!(
            "cannot serve '{}': {error}; give --root a directory that exists",
            args.root.display()
        ))
    })?;
    if !root.is_dir() {
        return Err(CliError::usage(format!(
            "cannot serve '{}': it is not a directory",
            args.root.display()
        )));
    }
    let what = format!(
        "serving {}{}",
        root.display(),
        if args.read_only { ", for reading only" } else { "" }
    );
    let service = Service { root: Some(root), read_only: args.read_only, measure: true };
    let example = if args.read_only {
        |address: &str| format!("sabul cp sabul://{address}/FILE .")
    } else {
        |address: &str| format!("sabul cp FILE sabul://{address}/")
    };
    let controllers = controllers(args.allow)?;
    run(&args.listen, service, controllers, &what, example).await
}

/// Runs `sabul perf serve`; the result is the exit code.
pub(crate) async fn perf(args: ListenArgs) -> Result<u8, CliError> {
    output::warn_of_debug_build();
    let service = Service { root: None, read_only: true, measure: true };
    // Measuring is what it is for.
    let example = |address: &str| format!("sabul perf {address}");
    run(&args, service, Controllers::Any, "answering tests", example).await
}

/// Which controllers clients may choose.
fn controllers(args: AllowArgs) -> Result<Controllers, CliError> {
    for name in &args.allow_cc {
        sabul_cc::registry::find(name)?;
    }
    Ok(match args {
        AllowArgs { any_cc: true, .. } => Controllers::Any,
        AllowArgs { allow_cc, .. } if !allow_cc.is_empty() => Controllers::Named(allow_cc),
        AllowArgs { .. } => Controllers::Adaptive,
    })
}

async fn run(
    args: &ListenArgs,
    service: Service,
    controllers: Controllers,
    what: &str,
    example: fn(&str) -> String,
) -> Result<u8, CliError> {
    sabul::allow_many_files();
    let interrupt = Interrupt::listen()?;
    let address = args.listen;
    let mut config = ListenerConfig::new(address);
    let rate_limit_bps = args.bwlimit.map(|rate| rate.0);
    config.memory = args.memory.map_or_else(MemoryBudget::default, MemoryBudget::new);
    config.patience = config.patience.with_silence(args.timeout);
    let events = args.events.as_deref().map(EventFile::create).transpose()?;
    config.events = events.as_ref().map(EventFile::sink);
    config.sending = SendPolicy { controllers, rate_limit_bps };
    let listener = Listener::bind(config).await.map_err(|error| {
        CliError::usage(format!("cannot serve at {address}: {error}; give another --listen"))
    })?;
    announce(args, &listener, what, example)?;
    let mut sessions = JoinSet::new();
    loop {
        // The interrupt first: sessions that it ended must still count as cut off.
        tokio::select! {
            biased;
            () = interrupt.wait() => break,
            accepted = listener.accept() => {
                let session = accepted?;
                if args.once {
                    drop(sessions.spawn(answer(session, service.clone(), interrupt.clone())));
                    // Whoever else calls is not answered, and hears so at once.
                    drop(listener);
                    let code = sessions.join_next().await.and_then(Result::ok).unwrap_or(FAILED);
                    return Ok(code);
                }
                drop(sessions.spawn(answer(session, service.clone(), interrupt.clone())));
            }
            Some(_) = sessions.join_next() => {}
        }
    }
    let were_cut_off = !sessions.is_empty();
    let clean_up = async { while sessions.join_next().await.is_some() {} };
    if tokio::time::timeout(CLEAN_UP, clean_up).await.is_err() {
        output::complain("some sessions did not end in time and were cut off");
    }
    events.map_or(Ok(()), |events| events.finish())?;
    Ok(if were_cut_off { INTERRUPTED } else { exit::DONE })
}

/// Says what is there, and hands out the ticket last: whoever has it may call at once.
fn announce(
    args: &ListenArgs,
    listener: &Listener,
    what: &str,
    example: fn(&str) -> String,
) -> Result<(), CliError> {
    let ticket = listener.ticket();
    let address = listener.local_addr();
    let dial = ticket.addresses().first().map_or_else(|| address.to_string(), String::clone);
    output::note(format_args!("{what}, at {address} (TCP and UDP)"));
    let file = args.ticket_file.as_deref().unwrap_or_else(|| Path::new("TICKET"));
    let line = format!("{} --ticket {}", example(&dial), file.display());
    if args.ticket_file.is_some() {
        ticket.write_file(file).map_err(|error| CliError::usage(error.to_string()))?;
        output::note(format_args!("ready: {line}"));
    } else {
        output::note(format_args!(
            "ready: save the line below as a file TICKET of mode 0600 (it is a secret), then: {line}"
        ));
        if !std::io::stdout().is_terminal() {
            output::note(
                "the ticket goes to standard output, which is no terminal: whoever can read where that \
                 ends, such as the log of a service, has it; --ticket-file writes it for you alone",
            );
        }
        output::print_line(ticket)?;
    }
    Ok(())
}

/// Serves one session to its end, or to an interrupt; the result is the exit code for it.
async fn answer(session: Session, service: Service, interrupt: Interrupt) -> u8 {
    let peer = session.peer_addr();
    let result = tokio::select! {
        result = session.serve(&service) => result,
        () = interrupt.wait() => {
            session.close().await;
            return INTERRUPTED;
        }
    };
    match result {
        Ok(summary) => {
            let mut line = count(summary.transfers, "transfer");
            if summary.failed > 0 {
                line += &format!(", {} more failed", summary.failed);
            }
            if summary.entries_failed > 0 {
                line += &format!(", {} failed", count(summary.entries_failed, "file"));
            }
            output::note(format_args!("{peer}: {line}, {}", show_bytes(summary.bytes)));
            match summary.last_error {
                Some(error) => {
                    output::complain(format_args!("{peer}: {error}"));
                    exit::code_of(error.kind())
                }
                None if summary.failed + summary.entries_failed > 0 => FAILED,
                None => exit::DONE,
            }
        }
        Err(error) => {
            output::complain(format_args!("{peer}: {error}"));
            exit::code_of(error.kind())
        }
    }
}
