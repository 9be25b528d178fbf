//! `sabul perf`: memory-to-memory throughput of a path, and its processor cost.

use std::ffi::OsStr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sabul::internal::ssh::UploadObserver;
use sabul::internal::{AggregateInterval, Host, Location, Server};
use sabul::settings::{Direction, MeasureLimit};
use sabul::{ChannelStats, Report, Session, Transfer, TransferOptions};
use sabul_front::control_socket::Job;
use sabul_front::json::{Document, IntervalJson, PerfJson, TransferJson, rate_bps};
use sabul_front::lines::{LineBuilder, PerfEvent};
use sabul_front::progress_line::carrier_name;
use sabul_run::statistics;
use sabul_study::processor::{cpu_mhz, mhz_per_mbps};
use sabul_units::show_rate;
use sabul_units::{Bytes, show_bytes};

use crate::args::TestArgs;
use crate::error::CliError;
use crate::exit;
use crate::files::dial;
use crate::interrupt::Interrupt;
use crate::upload::UploadProgress;
use crate::{control_socket, json, output};

/// Default duration of a test in seconds.
const DEFAULT_TIME_S: f64 = 10.0;

/// Runs `sabul perf` and returns the exit code.
pub(crate) async fn run(args: TestArgs) -> Result<u8, CliError> {
    output::warn_of_debug_build();
    let role = if args.reverse { "receiver" } else { "sender" };
    let line_builder = LineBuilder::default();
    let mut document = PerfJson {
        transfer: TransferJson::nothing(args.channel.controller()),
        role,
        streams: args.streams,
        intervals: Vec::new(),
        cpu_percent_sender: None,
        cpu_percent_receiver: None,
        mhz_per_mbps_sender: None,
        mhz_per_mbps_receiver: None,
        cpu_mhz: cpu_mhz(),
    };
    let result = test(&args, &mut document, &line_builder).await;
    if let Err(error) = &result {
        document.transfer.errors.push(json::error(error));
        document.transfer.exit = error.code();
    }
    if args.json_lines {
        json::print(&line_builder.line(PerfEvent::Done(Box::new(document))))?;
    } else if args.json {
        json::print(&Document::of(&document))?;
    } else if result.is_ok() {
        output::print(summary(&document))?;
    }
    result.map(|()| exit::DONE)
}

async fn test(
    args: &TestArgs,
    document: &mut PerfJson,
    line_builder: &LineBuilder,
) -> Result<(), CliError> {
    let server = server(args.address.as_deref())?;
    let options = options(args)?;
    let interrupt = Interrupt::listen()?;
    let events = args.channel.event_file()?;
    let is_silent = args.json || args.json_lines;
    let observer: Arc<dyn UploadObserver> = Arc::new(UploadProgress::new(is_silent, true));
    let dialled = dial(&args.channel, &args.ssh, &server, &interrupt, events.as_ref(), &observer);
    let (session, bridge) = dialled.await?;
    let (transfers, was_stopped) =
        measure(args, &session, &options, &interrupt, line_builder).await?;
    let mut reports = Vec::with_capacity(transfers.len());
    for transfer in transfers {
        reports.push(transfer.finish().await.map_err(|error| match was_stopped {
            true => CliError::interrupted("interrupted: the test ended early"),
            false => error.into(),
        })?);
    }
    session.close().await;
    if let Some(bridge) = bridge {
        bridge.close().await;
    }
    events.map_or(Ok(()), |events| events.finish())?;
    fill(document, args, &reports);
    Ok(())
}

/// Parses the server: `HOST:` through ssh, `ADDR:PORT` with a ticket or key, or `sabul://HOST/`.
pub(crate) fn server(address: Option<&str>) -> Result<Server, CliError> {
    const FORMS: &str = "write HOST: for a host reached through ssh, or ADDR:PORT of a `sabul perf serve` (IPv6 \
         addresses in brackets)";
    let address = address.ok_or_else(|| CliError::usage(format!("no host: {FORMS}")))?;
    if address.ends_with(':') || address.starts_with("sabul://") {
        return match Location::parse(OsStr::new(address))? {
            Location::Remote(remote) => Ok(remote.server),
            Location::Local(_) => {
                Err(CliError::usage(format!("'{address}' names no host: {FORMS}")))
            }
        };
    }
    let host = Host::parse(address);
    host.map(Server::Listener).map_err(|why| CliError::usage(format!("'{address}' {why}; {FORMS}")))
}

/// Returns the options of each stream.
fn options(args: &TestArgs) -> Result<TransferOptions, CliError> {
    let mut channel = args.channel.clone();
    let mut rate_limit = None;
    if let Some(rate) = args.rate {
        if channel.controller() == "fixed" {
            if channel.cc_params.iter().any(|(key, _)| key == "rate_mbps") {
                return Err(CliError::usage(
                    "--rate and --cc-param rate_mbps set the same value; give only one",
                ));
            }
            channel.cc_params.push(("rate_mbps".to_owned(), rate.as_mbps_f64().to_string()));
        } else {
            rate_limit = Some(rate);
        }
    }
    let mut options = channel.transfer_options(channel.controller())?.rate_limit(rate_limit);
    if let Some(window) = args.window {
        options.window = Bytes(window);
        // A block must fit into the window. Block sizes are powers of two.
        while options.block_size > options.window && options.block_size > Bytes(4096) {
            options.block_size.0 /= 2;
        }
    }
    Ok(options)
}

/// Starts all streams and follows them until they end or an interrupt arrives. The second value is
/// true after an interrupt.
async fn measure(
    args: &TestArgs,
    session: &Session,
    options: &TransferOptions,
    interrupt: &Interrupt,
    line_builder: &LineBuilder,
) -> Result<(Vec<Transfer>, bool), CliError> {
    let direction = if args.reverse { Direction::Receive } else { Direction::Send };
    let seconds = args.time.or_else(|| args.bytes.is_none().then_some(DEFAULT_TIME_S));
    let limit = MeasureLimit::default().bytes(args.bytes.map(Bytes));
    let limit = limit.time(seconds.map(Duration::from_secs_f64));
    let controller = args.channel.controller();
    let policy = if controller == "fixed" { controller } else { "fair" };
    let job = Job::new("perf", args.address.as_deref().unwrap_or_default());
    let job = job.with_rates(policy, options.rate_limit.map(|rate| rate.0), None);
    let _control_socket = control_socket::open(&job);
    let mut transfers = Vec::new();
    for _ in 0..args.streams {
        let started = tokio::select! {
            started = session.measure(direction, limit, options) => started?,
            () = interrupt.wait() => {
                return Err(CliError::interrupted("interrupted before the test began"));
            }
        };
        job.begins(&started);
        transfers.push(started);
    }
    if args.json_lines {
        let (cc, streams) = (args.channel.controller().to_owned(), args.streams);
        json::print(&line_builder.line(PerfEvent::Started { cc, streams }))?;
    }
    let mut lines = Lines::new(args, line_builder);
    let started = Instant::now();
    let mut next = args.interval;
    loop {
        let elapsed = started.elapsed().as_secs_f64();
        let progress: Vec<_> = transfers.iter().map(Transfer::progress).collect();
        let is_finished = progress.iter().all(|progress| progress.is_finished);
        // The remainder after the last whole interval belongs to the summary.
        if elapsed >= next && !is_finished {
            let bytes = progress.iter().map(|progress| progress.bytes).sum();
            let channels: Vec<_> = progress.iter().map(|progress| &progress.channel).collect();
            lines.print(elapsed, bytes, &channels)?;
            next +=
                args.interval * ((elapsed - next) / args.interval).floor().max(0.0) + args.interval;
        }
        if is_finished {
            return Ok((transfers, false));
        }
        let until_next = Duration::from_secs_f64((next - elapsed).max(0.001));
        let Some(first) = transfers.iter_mut().find(|it| !it.progress().is_finished) else {
            continue;
        };
        tokio::select! {
            () = first.changed() => {}
            () = tokio::time::sleep(until_next) => {}
            () = interrupt.wait() => {
                transfers.iter().for_each(Transfer::cancel);
                return Ok((transfers, true));
            }
        }
    }
}

/// Interval lines of a running test.
#[derive(Debug)]
struct Lines<'a> {
    is_silent: bool,
    /// Present if the lines are JSON.
    line_builder: Option<&'a LineBuilder>,
    has_head: bool,
    /// End of the previous line in seconds, and the byte count at that time.
    last: (f64, u64),
}

impl<'a> Lines<'a> {
    fn new(args: &TestArgs, line_builder: &'a LineBuilder) -> Self {
        let line_builder = args.json_lines.then_some(line_builder);
        Self { is_silent: args.json, line_builder, has_head: false, last: (0.0, 0) }
    }

    fn print(&mut self, at_s: f64, bytes: u64, channels: &[&ChannelStats]) -> Result<(), CliError> {
        let (from_s, before) = std::mem::replace(&mut self.last, (at_s, bytes));
        if self.is_silent {
            return Ok(());
        }
        let new = bytes.saturating_sub(before);
        let rtt_ms = mean(channels.iter().map(|channel| channel.rtt_ms));
        let loss_rate = mean(channels.iter().map(|channel| channel.loss_rate()));
        let goodput_bps = rate_bps(new, at_s - from_s);
        if let Some(line_builder) = self.line_builder {
            let gap_ns = mean(channels.iter().map(|channel| channel.gap_ns));
            let interval = IntervalJson { t_s: at_s, goodput_bps, rtt_ms, loss_rate, gap_ns };
            return json::print(&line_builder.line(PerfEvent::Interval { interval }));
        }
        if !self.has_head {
            self.has_head = true;
            output::print_line("interval           transferred        goodput      RTT     loss")?;
        }
        output::print_line(format_args!(
            "{from_s:6.1}-{at_s:<6.1} s {:>14} {:>14} {rtt_ms:5.1} ms {:6.3} %",
            show_bytes(new),
            show_rate(goodput_bps),
            loss_rate * 100.0,
        ))
    }
}

/// Returns the mean, or 0 for no values.
fn mean(values: impl IntoIterator<Item = f64>) -> f64 {
    statistics::mean(values).unwrap_or(0.0)
}

/// Fills in the totals over all streams.
fn fill(document: &mut PerfJson, args: &TestArgs, reports: &[Report]) {
    let total = TransferJson::of_report(args.channel.controller(), &Report::aggregate(reports));
    let intervals = AggregateInterval::of_all(reports, args.interval);
    document.intervals = intervals.into_iter().map(IntervalJson::from).collect();
    let mhz = document.cpu_mhz;
    let percent = |cpu: Option<f64>| cpu.map(|cpu_s| cpu_s / total.seconds.max(1e-9) * 100.0);
    let cost = |cpu| mhz_per_mbps(cpu, mhz, total.seconds, total.goodput_bps);
    document.cpu_percent_sender = percent(total.cpu_seconds_sender);
    document.cpu_percent_receiver = percent(total.cpu_seconds_receiver);
    document.mhz_per_mbps_sender = cost(total.cpu_seconds_sender);
    document.mhz_per_mbps_receiver = cost(total.cpu_seconds_receiver);
    document.transfer = total;
}

/// Formats the result for users.
fn summary(document: &PerfJson) -> String {
    let transfer = &document.transfer;
    let mut text = format!(
        "total: {} in {:.2} s, {} at the receiver\n\
         path:  RTT {:.2} ms (minimum {:.2}), loss {:.3} %, MTU {} bytes, {} packets sent, {} retransmitted\n",
        show_bytes(transfer.bytes),
        transfer.seconds,
        show_rate(transfer.goodput_bps),
        transfer.rtt_ms,
        transfer.rtt_ms_min,
        transfer.loss_rate * 100.0,
        transfer.mtu,
        transfer.packets_sent,
        transfer.packets_retransmitted,
    );
    if let Some(carrier) = carrier_name(transfer.carrier) {
        text += &format!("carrier: {carrier}, {}\n", transfer.carrier_reason);
    } else if transfer.paths > 1 {
        text += &format!("carrier: UDP over {} channels\n", transfer.paths);
    }
    let sides = [
        ("sender", document.cpu_percent_sender, document.mhz_per_mbps_sender),
        ("receiver", document.cpu_percent_receiver, document.mhz_per_mbps_receiver),
    ];
    for (side, percent, cost) in sides {
        let Some(percent) = percent else { continue };
        text += &format!("cpu:   {side} {percent:.0} % of one core");
        if let Some(cost) = cost {
            text += &format!(", {cost:.2} MHz/Mbps");
        }
        text.push('\n');
    }
    if let Some((name, share)) = transfer.limiter.iter().max_by(|a, b| a.1.total_cmp(b.1)) {
        text += &format!("limit: {name} for {:.0} % of the time\n", share * 100.0);
    }
    text
}
