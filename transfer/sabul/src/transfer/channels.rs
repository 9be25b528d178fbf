//! Channels of a transfer that this side opens, and the result for the next one.
//!
//! Not here:    downloads, whose sending end alone has the times of its limiters, use one channel.

use std::num::NonZeroUsize;
use std::thread;
use std::time::{Duration, SystemTime};

use sabul_cc::registry;
use sabul_units::{Bytes, Rate, Span};
use sabul_wire::control::ChannelParams;

use super::context::{Context, Side};
use super::progress::Report;
use crate::channels::MeasuredChannels;
use crate::config::{Carrier, Direction, TransferOptions};
use crate::error::{Error, ErrorKind};

/// Least share of the time in which a core limited the transfer. Ours: the rest are the start and the end.
const CPU_SHARE_MIN: f64 = 0.8;
/// Least time of a transfer whose goodput counts. Ours: the start and the final flush of shorter transfers hide the
/// rate.
const TIME_MIN: Duration = Duration::from_secs(2);
/// Sets the paths of a transfer that this side opens: one for each local address and channel.
///
/// # Errors
/// If the carrier or the number of channels does not permit that.
pub(crate) fn use_paths(
    cx: &Context,
    direction: Direction,
    options: &TransferOptions,
    params: &mut ChannelParams,
) -> Result<(), Error> {
    if let Side::Connector { peer, bind, through: None, .. } = &cx.side {
        let is_automatic = bind.len() <= 1
            && direction == Direction::Send
            && options.controller == registry::DEFAULT
            && options.rate_limit.is_none()
            && matches!(options.carrier, Carrier::Auto | Carrier::Udp);
        let channels = options.channels.unwrap_or_else(|| {
            let processors = thread::available_parallelism().map_or(1, NonZeroUsize::get);
            let rates = cx.endpoint.paths.channels(peer.ip());
            if is_automatic { rates.next(processors, SystemTime::now()) } else { 1 }
        });
        if bind.len() > 1 || channels != 1 {
            options.use_paths(bind.len().max(1), channels, params)?;
        }
    }
    #[cfg(test)]
    if let Side::World(end) = &cx.side {
        params.paths = end.paths();
        // Two channels for each address, if the number is even.
        params.channels = 2 - params.paths % 2;
        params.channels = params.channels.min(params.paths);
    }
    Ok(())
}

/// Stores the result of a sent transfer for the next one. If several channels cannot open a path, the next transfer
/// uses one, beside which TCP can take over.
pub(crate) fn note(cx: &Context, params: &ChannelParams, outcome: &Result<Report, Error>) {
    let Side::Connector { peer, through: None, .. } = &cx.side else { return };
    let result = match outcome {
        _ if params.paths != params.channels || params.controller != registry::DEFAULT => return,
        Ok(report) if report.channel.carrier == "udp" => measured(params.channels, report),
        Err(error) if error.kind() == ErrorKind::Unreachable && params.channels > 1 => {
            Some(MeasuredChannels::new(1, Rate(0), false, SystemTime::now()))
        }
        _ => return,
    };
    if let Some(result) = result {
        cx.endpoint.paths.note_channels(peer.ip(), result);
    }
}

/// Result of a transfer that took long enough.
fn measured(channels: u8, report: &Report) -> Option<MeasuredChannels> {
    let is_cpu = |name: &str| matches!(name, "sender-cpu" | "receiver-cpu");
    let limiter = report.channel.limiter.iter();
    let cpu_share: f64 = limiter.filter(|(name, _)| is_cpu(name)).map(|(_, share)| share).sum();
    let time = report.elapsed.saturating_sub(report.waited);
    (time >= TIME_MIN).then(|| {
        let goodput = Rate::from_size_over(
            Bytes(report.bytes.saturating_sub(report.bytes_resumed)),
            Span::from(time),
        );
        MeasuredChannels::new(channels, goodput, cpu_share >= CPU_SHARE_MIN, SystemTime::now())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_transfers_and_other_limiters_do_not_count() {
        let report = |seconds, limiter: &[(&'static str, f64)]| {
            let mut report = Report { elapsed: Duration::from_secs(seconds), ..Report::default() };
            report.channel.limiter = limiter.to_vec();
            measured(1, &report).map(|it| it.is_cpu_limited)
        };
        assert_eq!(report(1, &[("sender-cpu", 1.0)]), None);
        assert_eq!(report(2, &[("sender-cpu", 0.5), ("receiver-cpu", 0.4)]), Some(true));
        assert_eq!(report(2, &[("sender-cpu", 0.5), ("path", 0.5)]), Some(false));
    }
}
