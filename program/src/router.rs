//! `sabul router`: forwarder for a machine in front of a bottleneck.

use std::time::{Duration, Instant};

use sabul_front::json::Document;
use sabul_router::{Session, SessionPlan, Settings};
use sabul_units::{Random as _, Rate, SeededRandom};

use crate::args::RouterArgs;
use crate::error::CliError;
use crate::exit;
use crate::json;
use crate::output;
use crate::stop::Stop;

/// Polling interval for signals.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
const SECOND: Duration = Duration::from_secs(1);

/// Runs `sabul router` and returns the exit code.
pub(crate) fn run(args: RouterArgs) -> Result<u8, CliError> {
    let is_json = args.json;
    let stop = Stop::listen()?;
    let mut session = Session::start(&plan(args)?)?;
    output::warn_of_debug_build();
    if let Some(address) = session.metrics_address() {
        output::note(format_args!("metrics: http://{address}/metrics"));
    }
    output::note("forwarding");
    let mut due = Instant::now() + SECOND;
    while !stop.is_requested() && session.is_running() {
        std::thread::sleep(POLL_INTERVAL);
        if Instant::now() < due {
            continue;
        }
        due += SECOND;
        let (line, notices) = session.second();
        notices.iter().for_each(output::note);
        if is_json {
            json::print(&Document::of(line))?;
        }
    }
    output::note(session.finish()?);
    Ok(exit::DONE)
}

fn plan(args: RouterArgs) -> Result<SessionPlan, CliError> {
    let devices: Result<[String; 2], _> = args.devices.try_into();
    let [near, far] = devices.map_err(|_| {
        let what = "give --device exactly twice: where traffic enters, and where it leaves";
        CliError::usage(what)
    })?;
    if !args.rate_mbps.is_finite() || args.rate_mbps < 0.0 {
        return Err(CliError::usage("--rate-mbps must be from 0.1 to 100000 (Mb/s)"));
    }
    // A random id, so that two routers on one path differ.
    let drawn = SeededRandom::new(seed()).next_u64();
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
    let (rate, id) = (Rate((args.rate_mbps * 1e6) as u64), (drawn as u32).max(1));
    Ok(SessionPlan {
        settings: Settings {
            rate,
            framing_bytes: args.framing_bytes,
            queue: args.queue,
            algorithm: args.algorithm,
            params: args.params,
            share_percent: args.share,
            id,
        },
        near,
        far,
        uplink: args.uplink,
        metrics: args.metrics,
    })
}

/// Returns a seed from the process id and the sub-second time.
fn seed() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let nanos = since.unwrap_or_default().subsec_nanos();
    u64::from(std::process::id()) << 32 | u64::from(nanos)
}
