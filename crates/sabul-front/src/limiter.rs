//! What held a transfer back, in words, and what there is to do about it.

use sabul::ChannelStats;

/// Below this share of the time nothing is named.
const NOTABLE: f64 = 0.01;

/// For each name of [`ChannelStats::limiter`]: what it means, and what to do.
pub const MEANINGS: &[(&str, &str, &str)] = &[
    (
        "network",
        "the rate that the path bears beside others",
        "nothing here is slower than the path; --policy high takes the share of two",
    ),
    (
        "loss",
        "pauses after losses",
        "see whether the path drops packets (sabul perf), or take another --cc",
    ),
    (
        "window",
        "data that may be under way, by the controller's or the user's limit",
        "give both sides more --memory where the path is long, or raise the limit",
    ),
    (
        "receiver",
        "the other end's memory and disk",
        "a faster disk there, more --memory there, or --no-sync",
    ),
    ("source", "reading what is sent", "a faster disk or program on the side that sends"),
    ("sender", "this program's own work", "a faster processor on the side that sends"),
];

/// What took most of the time, the most first, as `network 70 %, receiver 20 %`. Empty where this end does not
/// know, since the other one sends.
pub fn shares(channel: &ChannelStats) -> String {
    let notable: Vec<String> = sorted(channel)
        .into_iter()
        .map(|(name, share)| format!("{name} {:.0} %", share * 100.0))
        .collect();
    notable.join(", ")
}

/// The name of what took most of the time.
pub fn main(channel: &ChannelStats) -> Option<&'static str> {
    sorted(channel).first().map(|&(name, _)| name)
}

/// One sentence: what limited a transfer most, and what to do.
pub fn advice(channel: &ChannelStats) -> Option<String> {
    let &(name, share) = sorted(channel).first()?;
    let (_, what, remedy) = MEANINGS.iter().find(|(known, ..)| *known == name)?;
    Some(format!("limited by {name} for {:.0} % of the time ({what}): {remedy}", share * 100.0))
}

fn sorted(channel: &ChannelStats) -> Vec<(&'static str, f64)> {
    let mut shares = channel.limiter.clone();
    shares.retain(|(_, share)| *share >= NOTABLE);
    shares.sort_by(|one, other| other.1.total_cmp(&one.1));
    shares
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_share_comes_first_and_small_ones_are_left_out() {
        let limiter = vec![("network", 0.2), ("receiver", 0.7), ("loss", 0.001)];
        let channel = ChannelStats { limiter, ..ChannelStats::default() };
        assert_eq!(shares(&channel), "receiver 70 %, network 20 %");
        assert_eq!(main(&channel), Some("receiver"));
        assert!(advice(&channel).unwrap().contains("--no-sync"));
        let unknown = ChannelStats::default();
        assert_eq!(
            (shares(&unknown), main(&unknown), advice(&unknown)),
            (String::new(), None, None)
        );
    }

    #[test]
    fn the_manual_has_every_name() {
        let manual = include_str!("../../../docs/manual/limiters.md");
        for (name, what, _) in MEANINGS {
            assert!(manual.contains(&format!("| `{name}` | {what} |")), "{name}: {what}");
        }
    }
}
