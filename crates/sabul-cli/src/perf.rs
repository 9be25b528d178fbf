//! `sabul perf`: how fast a path is from memory to memory, and what that costs.

use std::time::{Duration, Instant};

use sabul::{
    ChannelStats, Direction, Interval, MeasureLimit, Report, Session, Transfer, TransferOptions,
};
use sabul_run::statistics;
use sabul_study::processor::{cpu_mhz, mhz_per_mbps};
use serde::Serialize;

use crate::address::Host;
use crate::args::TestArgs;
use crate::error::CliError;
use crate::interrupt::Interrupt;
use crate::json::{self, ErrorJson, TransferJson, loss_rate, rate_bps};
use crate::output;
use crate::size::{show_bytes, show_rate};

/// How long a test takes where nothing else is asked for, in seconds.
const DEFAULT_TIME_S: f64 = 10.0;

/// What `perf --json` prints: all that `cp --json` has, and more.
#[derive(Debug, Serialize)]
struct PerfJson {
    #[serde(flatten)]
    transfer: TransferJson,
    role: &'static str,
    streams: u16,
    intervals: Vec<IntervalJson>,
    cpu_percent_sender: Option<f64>,
    cpu_percent_receiver: Option<f64>,
    mhz_per_mbps_sender: Option<f64>,
    mhz_per_mbps_receiver: Option<f64>,
    cpu_mhz: Option<f64>,
}

/// One interval, as counted at the receiver.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct IntervalJson {
    /// End of the interval, in seconds since the start.
    t_s: f64,
    goodput_bps: f64,
    rtt_ms: f64,
    loss_rate: f64,
    gap_ns: f64,
}

/// Runs the command; the result is the exit code.
pub(crate) async fn run(args: TestArgs) -> Result<u8, CliError> {
    output::warn_of_debug_build();
    let role = if args.reverse { "receiver" } else { "sender" };
    let mut document = PerfJson {
        transfer: TransferJson::nothing(&args.channel.cc),
        role,
        streams: args.streams,
        intervals: Vec::new(),
        cpu_percent_sender: None,
        cpu_percent_receiver: None,
        mhz_per_mbps_sender: None,
        mhz_per_mbps_receiver: None,
        cpu_mhz: cpu_mhz(),
    };
    let result = test(&args, &mut document).await;
    if let Err(error) = &result {
        document.transfer.errors.push(ErrorJson::of_error(error));
    }
    if args.json {
        json::print(&document)?;
    } else if result.is_ok() {
        output::print(summary(&document))?;
    }
    result.map(|()| 0)
}

async fn test(args: &TestArgs, document: &mut PerfJson) -> Result<(), CliError> {
    let address = args.address.as_deref().ok_or_else(|| {
        CliError::usage("name the server as ADDR:PORT, or run `sabul perf serve` there")
    })?;
    let host = Host::parse(address).map_err(|why| {
        CliError::usage(format!("'{address}' {why}; write ADDR:PORT, an IPv6 address in brackets"))
    })?;
    let options = options(args)?;
    let interrupt = Interrupt::listen()?;
    let events = args.channel.event_file()?;
    let session = args.channel.connect(&host, &interrupt, events.as_ref()).await?;
    let (transfers, was_stopped) = measure(args, &session, &options, &interrupt).await?;
    let mut reports = Vec::with_capacity(transfers.len());
    for transfer in transfers {
        reports.push(transfer.finish().await.map_err(|error| match was_stopped {
            true => CliError::interrupted("interrupted: the test ended before its time"),
            false => error.into(),
        })?);
    }
    session.close().await;
    events.map_or(Ok(()), |events| events.finish())?;
    fill(document, args, &reports);
    Ok(())
}

/// The options of each stream.
fn options(args: &TestArgs) -> Result<TransferOptions, CliError> {
    let mut channel = args.channel.clone();
    let mut rate_limit_bps = None;
    if let Some(rate) = args.rate {
        if channel.cc == "fixed" {
            if channel.cc_params.iter().any(|(key, _)| key == "rate_mbps") {
                return Err(CliError::usage(
                    "--rate and --cc-param rate_mbps say the same; use one",
                ));
            }
            channel.cc_params.push(("rate_mbps".to_owned(), rate.as_mbps_f64().to_string()));
        } else {
            rate_limit_bps = Some(rate.0);
        }
    }
    let mut options = TransferOptions { rate_limit_bps, ..channel.transfer_options()? };
    if let Some(window) = args.window {
        options.window_bytes = window;
        // A block has to fit the window; blocks are powers of two.
        while u64::from(options.block_bytes) > window && options.block_bytes > 4096 {
            options.block_bytes /= 2;
        }
    }
    Ok(options)
}

/// Starts all streams and follows them to their end, or to an interrupt: then the second value is
/// true.
async fn measure(
    args: &TestArgs,
    session: &Session,
    options: &TransferOptions,
    interrupt: &Interrupt,
) -> Result<(Vec<Transfer>, bool), CliError> {
    let direction = if args.reverse { Direction::Receive } else { Direction::Send };
    let seconds = args.time.or_else(|| args.bytes.is_none().then_some(DEFAULT_TIME_S));
    let limit = MeasureLimit { bytes: args.bytes, time: seconds.map(Duration::from_secs_f64) };
    let mut transfers = Vec::new();
    for _ in 0..args.streams {
        let started = tokio::select! {
            started = session.measure(direction, limit, options) => started?,
            () = interrupt.wait() => {
                return Err(CliError::interrupted("interrupted before the test began"));
            }
        };
        transfers.push(started);
    }
    let mut lines = Lines::new(args);
    let begun = Instant::now();
    let mut next = args.interval;
    loop {
        let elapsed = begun.elapsed().as_secs_f64();
        let progress: Vec<_> = transfers.iter().map(Transfer::progress).collect();
        let is_finished = progress.iter().all(|progress| progress.is_finished);
        // The rest after the last whole interval is for the summary.
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

/// The lines that appear while a test runs.
#[derive(Debug)]
struct Lines {
    is_silent: bool,
    has_head: bool,
    /// End of the last line, in seconds, and the bytes until then.
    last: (f64, u64),
}

impl Lines {
    const fn new(args: &TestArgs) -> Self {
        Self { is_silent: args.json, has_head: false, last: (0.0, 0) }
    }

    fn print(&mut self, at_s: f64, bytes: u64, channels: &[&ChannelStats]) -> Result<(), CliError> {
        let (from_s, before) = std::mem::replace(&mut self.last, (at_s, bytes));
        if self.is_silent {
            return Ok(());
        }
        if !self.has_head {
            self.has_head = true;
            output::print_line("interval           transferred        goodput      RTT     loss")?;
        }
        let new = bytes.saturating_sub(before);
        let rtt_ms = mean(channels.iter().map(|channel| channel.rtt_ms));
        let loss = mean(channels.iter().map(|channel| loss_rate(channel))) * 100.0;
        output::print_line(format_args!(
            "{from_s:6.1}-{at_s:<6.1} s {:>14} {:>14} {rtt_ms:5.1} ms {loss:6.3} %",
            show_bytes(new),
            show_rate(rate_bps(new, at_s - from_s)),
        ))
    }
}

/// The mean; zero of nothing.
fn mean(values: impl IntoIterator<Item = f64>) -> f64 {
    statistics::mean(values).unwrap_or(0.0)
}

/// Sums up all streams.
fn fill(document: &mut PerfJson, args: &TestArgs, reports: &[Report]) {
    let mut total = TransferJson::nothing(&args.channel.cc);
    let streams = reports.iter().map(|report| TransferJson::of_report(&args.channel.cc, report));
    let streams: Vec<_> = streams.collect();
    let (mut weight, mut lost) = (0.0, 0.0);
    for stream in &streams {
        total.bytes += stream.bytes;
        total.goodput_bps += stream.goodput_bps;
        total.seconds = total.seconds.max(stream.seconds);
        total.packets_sent += stream.packets_sent;
        total.packets_retransmitted += stream.packets_retransmitted;
        total.packets_lost += stream.packets_lost;
        total.packets_overflowed += stream.packets_overflowed;
        total.mtu = total.mtu.max(stream.mtu);
        weight += stream.packets_sent as f64;
        lost += stream.loss_rate * stream.packets_sent as f64;
        for (name, share) in &stream.limiter {
            *total.limiter.entry(name.clone()).or_default() += share / streams.len() as f64;
        }
        // Both count the whole process, so that streams at the same time count the same seconds.
        total.cpu_seconds_sender = larger(total.cpu_seconds_sender, stream.cpu_seconds_sender);
        total.cpu_seconds_receiver =
            larger(total.cpu_seconds_receiver, stream.cpu_seconds_receiver);
        total.errors.extend(stream.errors.iter().cloned());
    }
    total.loss_rate = if weight > 0.0 { lost / weight } else { 0.0 };
    total.rtt_ms = mean(streams.iter().map(|stream| stream.rtt_ms));
    let smallest = streams.iter().map(|stream| stream.rtt_ms_min).reduce(f64::min);
    total.rtt_ms_min = smallest.unwrap_or_default();
    total.verified = !streams.is_empty() && streams.iter().all(|stream| stream.verified);

    let courses: Vec<_> = reports.iter().map(|report| report.intervals.as_slice()).collect();
    document.intervals = intervals(&courses, args.interval);
    let mhz = document.cpu_mhz;
    let percent = |cpu: Option<f64>| cpu.map(|cpu_s| cpu_s / total.seconds.max(1e-9) * 100.0);
    let cost = |cpu| mhz_per_mbps(cpu, mhz, total.seconds, total.goodput_bps);
    document.cpu_percent_sender = percent(total.cpu_seconds_sender);
    document.cpu_percent_receiver = percent(total.cpu_seconds_receiver);
    document.mhz_per_mbps_sender = cost(total.cpu_seconds_sender);
    document.mhz_per_mbps_receiver = cost(total.cpu_seconds_receiver);
    document.transfer = total;
}

fn larger(a: Option<f64>, b: Option<f64>) -> Option<f64> {
    a.into_iter().chain(b).reduce(f64::max)
}

/// A last interval shorter than this share of the others belongs to the one before it.
const SHORT_SHARE: f64 = 0.1;

/// Spreads the library's short intervals over those asked for. Bytes of all streams add up, the
/// rest is averaged over time.
fn intervals(streams: &[&[Interval]], length_s: f64) -> Vec<IntervalJson> {
    let last = streams.iter().filter_map(|samples| samples.last());
    let end_s = last.map(|sample| sample.t_s).fold(0.0, f64::max);
    let mut result = Vec::new();
    let mut from_s = 0.0;
    while end_s - from_s > 0.0 {
        let is_last = end_s - from_s < length_s * (1.0 + SHORT_SHARE);
        let to_s = if is_last { end_s } else { from_s + length_s };
        result.push(between(streams, from_s, to_s));
        from_s = to_s;
    }
    result
}

fn between(streams: &[&[Interval]], from_s: f64, to_s: f64) -> IntervalJson {
    let (mut time_s, mut bytes, mut rtt, mut loss, mut gap) = (0.0, 0.0, 0.0, 0.0, 0.0);
    for samples in streams {
        let mut begin_s = 0.0;
        for sample in *samples {
            let shared_s = sample.t_s.min(to_s) - from_s.max(begin_s);
            if shared_s > 0.0 {
                bytes += sample.bytes as f64 * shared_s / (sample.t_s - begin_s);
                rtt += sample.rtt_ms * shared_s;
                loss += sample.loss_rate * shared_s;
                gap += sample.gap_ns * shared_s;
                time_s += shared_s;
            }
            begin_s = sample.t_s;
        }
    }
    let mean = |sum: f64| if time_s > 0.0 { sum / time_s } else { 0.0 };
    IntervalJson {
        t_s: to_s,
        goodput_bps: bytes * 8.0 / (to_s - from_s),
        rtt_ms: mean(rtt),
        loss_rate: mean(loss),
        gap_ns: mean(gap),
    }
}

/// The result in words.
fn summary(document: &PerfJson) -> String {
    let transfer = &document.transfer;
    let mut text = format!(
        "total: {} in {:.2} s, {} at the receiver\n\
         path:  RTT {:.2} ms (least {:.2}), loss {:.3} %, packets of {} bytes, {} sent, {} again\n",
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_share_out_samples_that_cross_their_ends() {
        let sample = |t_s, bytes| Interval { t_s, bytes, rtt_ms: t_s, loss_rate: 0.0, gap_ns: 0.0 };
        // 1000 bytes a second, in samples that end beside whole seconds.
        let stream = [sample(0.75, 750), sample(1.25, 500), sample(2.05, 800)];
        let shown = intervals(&[&stream, &stream], 1.0);
        assert_eq!(shown.len(), 2, "the last 0.05 s belong to the second interval: {shown:?}");
        for interval in &shown {
            assert!((interval.goodput_bps - 16_000.0).abs() < 1e-6, "{shown:?}");
        }
        assert!((shown[0].rtt_ms - (0.75 * 0.75 + 0.25 * 1.25)).abs() < 1e-9, "{shown:?}");
        assert_eq!(intervals(&[], 1.0), []);
        assert_eq!(intervals(&[&stream], 0.1).len(), 21);
    }
}
