//! `cp --policy`, `--rate` and `--min-rate`: what is asked for together, and whether it is kept.

use std::collections::VecDeque;
use std::time::Duration;

use sabul::{ChannelStats, TransferOptions};
use sabul_cc::registry;
use sabul_study::words::show_rate;
use sabul_units::Rate;

use crate::args::{CpArgs, PolicyArg};
use crate::error::CliError;

/// The highest rate that can be asked for, in bit/s: that of the fastest links there are.
const RATE_MAX: u64 = 1_000_000_000_000;
/// Time from the start that no minimum counts.
const START_UP: Duration = Duration::from_secs(5);
/// Over how long a transfer has to be too slow.
const WINDOW: Duration = Duration::from_secs(30);
/// How often that is looked at.
pub(crate) const LOOK: Duration = Duration::from_secs(1);

/// The controller of a copy: the one that was named, `fixed` for a fixed rate, else the default, which follows
/// policies.
pub(crate) fn controller(args: &CpArgs) -> &str {
    match (&args.channel.cc, args.policy) {
        (Some(name), _) => name,
        (None, PolicyArg::Fixed) => "fixed",
        (None, _) => registry::DEFAULT,
    }
}

/// Puts policy and rates into the options of a transfer; contradictions are refused.
pub(crate) fn apply(args: &CpArgs, options: &mut TransferOptions) -> Result<(), CliError> {
    let refuse = |text: String| Err(CliError::usage(text));
    for (flag, rate) in
        [("--bwlimit", args.bwlimit), ("--rate", args.rate), ("--min-rate", args.min_rate)]
    {
        if rate.is_some_and(|rate| rate.0 == 0 || rate.0 > RATE_MAX) {
            return refuse(format!("{flag}: give a rate above 0 and up to 1T, in bits per second"));
        }
    }
    match (args.policy, args.rate) {
        (PolicyArg::Fixed, None) => {
            return refuse("--policy fixed needs the rate to send at: give --rate".to_owned());
        }
        (PolicyArg::Fixed, Some(rate)) => {
            if options.controller != "fixed" {
                let name = &options.controller;
                return refuse(format!(
                    "--policy fixed is the controller fixed: leave out --cc {name}"
                ));
            }
            if options.controller_params.iter().any(|(name, _)| name == "rate_mbps") {
                return refuse("--rate and --cc-param rate_mbps are the same; give one".to_owned());
            }
            options.controller_params.push(("rate_mbps".to_owned(), mbps(rate)));
        }
        (_, Some(_)) => {
            return refuse("--rate is the rate of --policy fixed; a limit is --bwlimit".to_owned());
        }
        (_, None) => {}
    }
    let most =
        [args.bwlimit.map(|rate| ("--bwlimit", rate)), args.rate.map(|rate| ("--rate", rate))];
    for (flag, most) in most.into_iter().flatten() {
        if args.min_rate.is_some_and(|least| least > most) {
            return refuse(format!("--min-rate is above {flag}, so it would never be reached"));
        }
        if args.rate.is_some_and(|rate| rate > most) {
            return refuse(format!(
                "--rate is above {flag}, so it would not be the rate; give one of them"
            ));
        }
    }
    if let Some(policy) = args.policy.of_controller() {
        registry::check_policy(registry::find(&options.controller)?, policy)?;
        options.policy = policy;
    }
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "at most 10^12")]
fn mbps(rate: Rate) -> String {
    (rate.0 as f64 / 1e6).to_string()
}

/// Looks whether a transfer is slower than it may be: content that has arrived over the last [`WINDOW`], from
/// [`START_UP`] on, until all of it has.
#[derive(Debug)]
pub(crate) struct MinRate {
    least: Rate,
    seen: VecDeque<(Duration, u64)>,
}

impl MinRate {
    pub(crate) const fn new(least: Rate) -> Self {
        Self { least, seen: VecDeque::new() }
    }

    /// Takes in how far a transfer is; its rate in bit/s, if that is too low.
    #[expect(clippy::cast_precision_loss, reason = "a rate needs few digits")]
    pub(crate) fn look(&mut self, at: Duration, bytes: u64, total: Option<u64>) -> Option<f64> {
        if at < START_UP || total.is_some_and(|total| bytes >= total) {
            return None;
        }
        self.seen.push_back((at, bytes));
        while self.seen.get(1).is_some_and(|(next, _)| at.saturating_sub(*next) >= WINDOW) {
            self.seen.pop_front();
        }
        let (from, before) = *self.seen.front()?;
        let time = at.saturating_sub(from);
        let rate = bytes.saturating_sub(before) as f64 * 8.0 / time.as_secs_f64().max(1e-9);
        (time >= WINDOW && rate < self.least.0 as f64).then_some(rate)
    }

    /// What is said of a transfer that was so slow.
    #[expect(clippy::cast_precision_loss, reason = "a rate needs few digits")]
    pub(crate) fn verdict(&self, rate_bps: f64, channel: &ChannelStats) -> String {
        let mut shares = channel.limiter.clone();
        shares.sort_by(|one, other| other.1.total_cmp(&one.1));
        let shares: Vec<_> = shares
            .iter()
            .filter(|(_, share)| *share >= 0.01)
            .map(|(name, share)| format!("{name} {:.0} % of the time", share * 100.0))
            .collect();
        let limiter = match shares.as_slice() {
            [] => "what limited it, the end that sends knows".to_owned(),
            shares => format!("limited by: {}", shares.join(", ")),
        };
        format!(
            "slower than --min-rate: {} over the last {} s instead of {}; {limiter}",
            show_rate(rate_bps),
            WINDOW.as_secs(),
            show_rate(self.least.0 as f64),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn second(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    #[test]
    fn half_a_minute_below_the_minimum_is_too_slow_and_less_is_not() {
        let mut watch = MinRate::new(Rate(8_000_000));
        // 1 MB a second is the minimum itself; then half of it.
        for s in 0..60 {
            assert_eq!(watch.look(second(s), s * 1_000_000, None), None, "{s}");
        }
        let slow = (60..90).find_map(|s| {
            let bytes = 59_000_000 + (s - 59) * 500_000;
            watch.look(second(s), bytes, None).map(|rate| (s, rate))
        });
        // The second of half a megabyte takes the mean of the thirty below.
        let (at, rate) = slow.unwrap();
        assert_eq!(at, 60);
        assert!(rate < 8e6 && rate > 7.8e6, "{rate}");
    }

    #[test]
    fn the_start_does_not_count_and_neither_does_what_follows_the_last_byte() {
        let mut watch = MinRate::new(Rate(8_000_000));
        assert!((0..35).all(|s| watch.look(second(s), 0, Some(9)).is_none()));
        assert_eq!(watch.look(second(35), 9, Some(9)), None, "it waits for a disk");
        assert_eq!(watch.look(second(35), 0, Some(9)), Some(0.0));
    }

    #[test]
    fn the_verdict_names_what_limited_it_first() {
        let limiter = vec![("network", 0.2), ("receiver", 0.7), ("loss", 0.001)];
        let channel = ChannelStats { limiter, ..ChannelStats::default() };
        let text = MinRate::new(Rate(8_000_000)).verdict(1e6, &channel);
        assert!(
            text.ends_with("limited by: receiver 70 % of the time, network 20 % of the time"),
            "{text}"
        );
        let text = MinRate::new(Rate(8_000_000)).verdict(1e6, &ChannelStats::default());
        assert!(text.contains("the end that sends"), "{text}");
    }
}
