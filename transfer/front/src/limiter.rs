//! Limiters of a transfer: names, explanations and advice.

use sabul::ChannelStats;

/// Ours: smaller shares of the time are not reported.
const SHARE_MIN: f64 = 0.01;

/// For each name in [`ChannelStats::limiter`]: explanation, and advice.
pub const MEANINGS: &[(&str, &str, &str)] = &[
    ("source", "reading the files to send", "use a faster disk or program on the sending machine"),
    ("sender-cpu", "the work of this program", "use a faster processor on the sending machine"),
    (
        "cap",
        "a configured rate limit: --bwlimit, --rate, a server's --bwlimit-total",
        "raise that rate, if more is needed",
    ),
    (
        "path",
        "the rate that the network carries beside other traffic, as the congestion controller finds it",
        "nothing on the two machines; --policy high takes the share of two flows",
    ),
    (
        "loss",
        "pauses after packet loss",
        "see whether the network drops packets (sabul perf), or use another --cc",
    ),
    (
        "window",
        "unacknowledged data, up to --window or as much as there is memory for",
        "give both sides more --memory where the path is long, or raise the limit",
    ),
    ("outage", "no answer over UDP", "see whether the network or the other machine was down"),
    (
        "receiver-cpu",
        "packets that the receiver's socket dropped, because its machine was too slow",
        "use a faster processor there, or larger socket buffers",
    ),
    (
        "destination",
        "the receiver's disk, program or memory",
        "use a faster disk there, more --memory there, or --no-sync",
    ),
    (
        "policy",
        "other traffic, to which --policy low leaves the path",
        "use --policy fair, if it is urgent",
    ),
];

/// Returns the limiters by decreasing share, as `path 70 %, destination 20 %`. Empty if this end
/// does not send and therefore does not know them.
pub fn shares(channel: &ChannelStats) -> String {
    listed(channel.limiter.iter().copied())
}

/// Like [`shares`], for shares from another source.
pub fn listed<'a>(shares: impl Iterator<Item = (&'a str, f64)>) -> String {
    let notable = sorted(shares).into_iter();
    let notable = notable.map(|(name, share)| format!("{name} {:.0} %", share * 100.0));
    notable.collect::<Vec<_>>().join(", ")
}

/// Returns the name of the limiter with the largest share.
pub fn main(channel: &ChannelStats) -> Option<&'static str> {
    sorted(channel.limiter.iter().copied()).first().map(|&(name, _)| name)
}

/// Returns one sentence with the main limiter and advice.
pub fn advice(channel: &ChannelStats) -> Option<String> {
    let &(name, share) = sorted(channel.limiter.iter().copied()).first()?;
    let (_, what, remedy) = MEANINGS.iter().find(|(known, ..)| *known == name)?;
    Some(format!("limited by {name} for {:.0} % of the time ({what}): {remedy}", share * 100.0))
}

fn sorted<'a>(shares: impl Iterator<Item = (&'a str, f64)>) -> Vec<(&'a str, f64)> {
    let mut shares: Vec<_> = shares.filter(|(_, share)| *share >= SHARE_MIN).collect();
    shares.sort_by(|one, other| other.1.total_cmp(&one.1));
    shares
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limiters_are_sorted_by_share_and_small_ones_omitted() {
        let limiter = vec![("path", 0.2), ("destination", 0.7), ("loss", 0.001)];
        let mut channel = ChannelStats::default();
        channel.limiter = limiter;
        assert_eq!(shares(&channel), "destination 70 %, path 20 %");
        assert_eq!(main(&channel), Some("destination"));
        assert!(advice(&channel).unwrap().contains("--no-sync"));
        let unknown = ChannelStats::default();
        assert_eq!(
            (shares(&unknown), main(&unknown), advice(&unknown)),
            (String::new(), None, None)
        );
    }

    #[test]
    fn the_manual_lists_every_limiter() {
        let manual = include_str!("../../../docs/manual/limiters.md");
        for (name, what, _) in MEANINGS {
            assert!(manual.contains(&format!("| `{name}` | {what} |")), "{name}: {what}");
        }
    }
}
