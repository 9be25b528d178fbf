//! Random paths for the contract: distributions, run length, and the scenarios of one path.
//!
//! A path depends only on the seed of the draw and on its own number. A larger draw therefore
//! begins with the paths of a smaller draw. Each property has its own random stream, so a new
//! property does not change the others.

use sabul_units::math::{exp, ln};
use sabul_units::{Random as _, SeededRandom};
use serde::{Deserialize, Serialize};

use super::super::plan::{Exam, Subject, Times, link, tcp};

/// Ranges of the draw.
const RATE_MBPS: (f64, f64) = (0.5, 10_000.0);
const RTT_MS: (f64, f64) = (0.2, 500.0);
const QUEUE_BDP_MAX: f64 = 8.0;
const LOSS: (f64, f64) = (1e-5, 0.05);
/// Share of the paths without random loss.
const LOSSLESS: f64 = 0.4;
/// Number of flows of either kind.
const FLOWS: [u32; 3] = [1, 4, 16];
/// Peak rate of a shaper as a multiple of the link's rate. A cable modem in our tests had 20.
const BURST_FACTOR: (f64, f64) = (1.5, 20.0);
/// Depth of a shaper's bucket, in seconds of the link's rate.
const BUCKET_S: (f64, f64) = (0.01, 2.0);
/// Range of a bucket in bytes: two packets, and the limit of the scenario key.
const BUCKET_BYTES: (f64, f64) = (3_000.0, 1e9);
/// Largest share of the link's rate that inelastic load takes.
const LOAD_MAX: f64 = 0.9;
/// Smallest rate that the scenario key allows.
const LOAD_MBPS_MIN: f64 = 0.001;

/// Duration of a run in seconds, unless a limit below applies.
const DURATION_S: f64 = 120.0;
/// Warm-up: share of a run before averages begin.
const WARMUP: f64 = 0.3;
/// Shortest measured part of a run: in seconds, and in base RTTs.
const MEASURED_S_MIN: f64 = 20.0;
const MEASURED_RTTS_MIN: f64 = 100.0;
/// Most full packets that the link carries in a run. The bucket of a shaper adds to this number.
pub(super) const PACKETS_MAX: f64 = 20e6;
/// Bits of a full packet, IP header included.
const PACKET_BITS: f64 = 12_000.0;
/// Flows of a group start at random times within this interval: in seconds, and in base RTTs.
const SPREAD_S: f64 = 1.0;
const SPREAD_RTTS: f64 = 10.0;

/// Below either limit, a flow's own loss is compared with CUBIC's loss instead of a constant.
const SHARE_PACKETS_MIN: f64 = 2.0;
const QUEUE_PACKETS_MIN: u64 = 5;

/// Names of the flows and prefixes of the scenarios.
pub(super) const OURS: &str = "ours";
pub(super) const THEIRS: &str = "theirs";
/// CUBIC flows in the place of the controller's flows. The name selects different start times.
pub(super) const PLACE: &str = "place";

/// The group of flows that starts first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum First {
    /// Flows of the controller.
    #[default]
    Ours,
    /// CUBIC flows.
    Theirs,
}

/// Other traffic or a token bucket on the link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(tag = "background", rename_all = "kebab-case")]
pub(super) enum Background {
    /// No background.
    #[default]
    None,
    /// A token-bucket shaper: bursts pass at a higher rate.
    Shaper { burst_mbps: f64, bucket_bytes: u64 },
    /// UDP at a constant rate.
    Load { load_mbps: f64 },
    /// A CUBIC flow in the opposite direction.
    TwoWay,
}

/// A path of the draw with its flows and the length of its runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(in super::super) struct Path {
    /// From 1.
    pub(super) number: u32,
    pub(super) rate_mbps: f64,
    /// Rate as drawn, before the limit on packets lowered the rate.
    pub(super) rate_drawn_mbps: f64,
    pub(super) rtt_ms: f64,
    pub(super) queue_packets: u64,
    pub(super) queue_bdp: f64,
    /// Share of the packets that the link loses at random.
    pub(super) loss: f64,
    /// Flows of the controller.
    pub(super) ours: u32,
    /// CUBIC flows.
    pub(super) theirs: u32,
    pub(super) first: First,
    #[serde(flatten)]
    pub(super) background: Background,
    pub(super) duration_s: f64,
    pub(super) warmup_s: f64,
    /// Whether the limit on packets shortened the runs.
    pub(super) is_shortened: bool,
}

/// Role of a run on a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// One flow of the controller.
    Alone,
    /// Flows of the controller beside CUBIC flows.
    Beside,
    /// CUBIC flows in the place of the controller's flows.
    Reference,
}

impl Role {
    pub(super) const ALL: [Self; 3] = [Self::Alone, Self::Beside, Self::Reference];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Alone => "alone",
            Self::Beside => "beside",
            Self::Reference => "reference",
        }
    }
}

/// A scenario of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) struct Question {
    /// Position in the list of paths.
    pub(super) path: usize,
    pub(super) role: Role,
}

/// Returns a uniform number from 0 up to, but not including, 1.
fn unit(random: &mut SeededRandom) -> f64 {
    (random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
}

/// Returns a random index below `count`.
#[expect(clippy::cast_possible_truncation, reason = "below a count of this type")]
pub(super) fn pick(random: &mut SeededRandom, count: usize) -> usize {
    random.below(count as u64) as usize
}

/// Rounds to three significant digits, as in a scenario file.
fn rounded(value: f64) -> f64 {
    format!("{value:.2e}").parse().unwrap_or(value)
}

fn log_uniform(random: &mut SeededRandom, (low, high): (f64, f64)) -> f64 {
    low * exp(unit(random) * ln(high / low))
}

/// Converts a positive value to a whole number.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "positive; `as` saturates"
)]
fn whole(value: f64) -> u64 {
    value.round() as u64
}

/// Returns rate and duration of the runs: 120 s, shortened to at most 20 million packets, but not
/// below the shortest measured part. Where the shortest duration has more packets, the rate is
/// lowered.
fn fitted(rate_mbps: f64, rtt_ms: f64) -> (f64, f64) {
    let measured_s = MEASURED_S_MIN.max(MEASURED_RTTS_MIN * rtt_ms / 1e3);
    // Rounded up to tenths of a second.
    let least_s = (measured_s / (1.0 - WARMUP) * 10.0).ceil() / 10.0;
    let affordable_s = PACKETS_MAX * PACKET_BITS / (rate_mbps * 1e6);
    if affordable_s < least_s {
        let rate_mbps = PACKETS_MAX * PACKET_BITS / (least_s * 1e6);
        return ((rate_mbps * 10.0).floor() / 10.0, least_s);
    }
    let affordable_s = (affordable_s * 10.0).floor() / 10.0;
    (rate_mbps, affordable_s.min(DURATION_S).max(least_s))
}

impl Path {
    /// Returns the path of this number in the draw of a seed.
    pub(super) fn drawn(seed: u64, number: u32) -> Self {
        let random = SeededRandom::new(seed).fork(&format!("path {number}"));
        let stream = |name: &str| random.fork(name);
        let log = |name: &str, range| rounded(log_uniform(&mut stream(name), range));
        let flows = |name: &str| FLOWS[pick(&mut stream(name), FLOWS.len())];
        let rate_drawn_mbps = log("rate", RATE_MBPS);
        let rtt_ms = log("rtt", RTT_MS);
        let (rate_mbps, duration_s) = fitted(rate_drawn_mbps, rtt_ms);
        let bdp = bdp_packets(rate_mbps, rtt_ms);
        let queue = log_uniform(&mut stream("queue"), (1.0, (QUEUE_BDP_MAX * bdp).max(1.0)));
        let queue_packets = whole(queue).max(1);
        let is_lossless = unit(&mut stream("lossless")) < LOSSLESS;
        Self {
            number,
            rate_mbps,
            rate_drawn_mbps,
            rtt_ms,
            queue_packets,
            queue_bdp: queue_packets as f64 / bdp,
            loss: if is_lossless { 0.0 } else { log("loss", LOSS) },
            ours: flows("ours"),
            theirs: flows("theirs"),
            first: if stream("first").below(2) == 0 { First::Ours } else { First::Theirs },
            background: Background::drawn(&random, rate_mbps),
            duration_s,
            warmup_s: (WARMUP * duration_s * 1e3).round() / 1e3,
            is_shortened: duration_s < DURATION_S,
        }
    }

    pub(super) fn bdp_packets(&self) -> f64 {
        bdp_packets(self.rate_mbps, self.rtt_ms)
    }

    /// Returns the share of the link's rate that inelastic load leaves.
    pub(super) fn left(&self) -> f64 {
        match self.background {
            Background::Load { load_mbps } => 1.0 - load_mbps / self.rate_mbps,
            _ => 1.0,
        }
    }

    /// Returns whether BDP or queue is too small for a constant limit on a flow's own loss.
    pub(super) fn is_tiny(&self) -> bool {
        let share = self.bdp_packets() * self.left() / f64::from(self.ours + self.theirs);
        share < SHARE_PACKETS_MIN || self.queue_packets < QUEUE_PACKETS_MIN
    }

    /// Returns whether the path has one flow of the controller, one CUBIC flow and no background.
    pub(super) fn is_plain(&self) -> bool {
        (self.ours, self.theirs, self.background) == (1, 1, Background::None)
    }

    /// Returns the number of full packets that the link carries in a run.
    pub(super) fn packets(&self) -> f64 {
        self.rate_mbps * 1e6 * self.duration_s / PACKET_BITS
    }

    /// Returns the scenarios of this path, in the order of [`Role::ALL`].
    pub(super) fn exams(&self, subject: &Subject<'_>, place: usize) -> [Exam<Question>; 3] {
        let spread_s = SPREAD_S.max(SPREAD_RTTS * self.rtt_ms / 1e3);
        let group = |count: u32, is_first: bool| {
            let start = if is_first { String::new() } else { format!("start_s = {spread_s}\n") };
            format!("count = {count}\nspread_s = {spread_s}\n{start}")
        };
        let theirs = tcp(THEIRS, "cubic", &group(self.theirs, self.first == First::Theirs));
        let ours = group(self.ours, self.first == First::Ours);
        Role::ALL.map(|role| {
            let mut flows = match role {
                Role::Alone => vec![subject.flow(OURS, &group(1, true))],
                Role::Beside => vec![theirs.clone(), subject.flow(OURS, &ours)],
                Role::Reference => vec![theirs.clone(), tcp(PLACE, "cubic", &ours)],
            };
            let mut shaper = String::new();
            match self.background {
                Background::None => {}
                Background::Shaper { burst_mbps, bucket_bytes } => {
                    shaper = format!(
                        "shaper = {{ burst_mbps = {burst_mbps}, bucket_bytes = {bucket_bytes} }}\n"
                    );
                }
                Background::Load { load_mbps } => flows.push(format!(
                    "[[flow]]\nid = \"load\"\ntransport = \"udp-cbr\"\npath = [\"bottleneck\"]\n\
                     rate_mbps = {load_mbps}\n"
                )),
                Background::TwoWay => flows.push(tcp("back", "cubic", "reverse = true\n")),
            }
            let Self { queue_packets, loss, warmup_s, .. } = *self;
            subject.exam(
                Question { path: place, role },
                format!("path-{}-{}", self.number, role.name()),
                Times::new((warmup_s, self.duration_s - warmup_s), 1000),
                &link(
                    self.rate_mbps,
                    self.rtt_ms,
                    &format!("queue_packets = {queue_packets}\nloss = {loss}\n{shaper}"),
                ),
                &flows.join("\n"),
            )
        })
    }
}

fn bdp_packets(rate_mbps: f64, rtt_ms: f64) -> f64 {
    rate_mbps * rtt_ms * 1e3 / PACKET_BITS
}

impl Background {
    /// Draws one of four kinds with equal probability.
    fn drawn(random: &SeededRandom, rate_mbps: f64) -> Self {
        match random.fork("background").below(4) {
            0 => Self::None,
            1 => {
                let factor = log_uniform(&mut random.fork("burst"), BURST_FACTOR);
                let bucket_s = log_uniform(&mut random.fork("bucket"), BUCKET_S);
                let (least, most) = BUCKET_BYTES;
                let bucket_bytes = rounded(bucket_s * rate_mbps * 1e6 / 8.0).clamp(least, most);
                Self::Shaper {
                    burst_mbps: rounded(factor * rate_mbps),
                    bucket_bytes: whole(bucket_bytes),
                }
            }
            2 => {
                let share = unit(&mut random.fork("load")) * LOAD_MAX;
                Self::Load { load_mbps: rounded(share * rate_mbps).max(LOAD_MBPS_MIN) }
            }
            _ => Self::TwoWay,
        }
    }

    /// Returns the background in words.
    pub(super) fn text(self) -> String {
        match self {
            Self::None => "–".to_owned(),
            Self::Shaper { burst_mbps, bucket_bytes } => {
                format!("shaper {burst_mbps} Mb/s, {} kB", bucket_bytes / 1000)
            }
            Self::Load { load_mbps } => format!("UDP {load_mbps} Mb/s"),
            Self::TwoWay => "two-way data".to_owned(),
        }
    }

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Shaper { .. } => "shaper",
            Self::Load { .. } => "load",
            Self::TwoWay => "two-way",
        }
    }
}

#[cfg(test)]
mod tests;
