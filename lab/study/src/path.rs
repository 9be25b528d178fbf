//! Paths built from user options, and descriptions of paths. Missing options come from a preset or
//! the default.

use sabul_net::{
    Codel, Discipline, FqCodel, LinkConfig, LinkError, LinkPlan, Outage, PathPreset, QueueLimit,
    Red, RouterPlan, preset, presets,
};
use sabul_report::significant;
use sabul_units::{Probability, Rate, Span, parse_bytes};

use crate::error::Error;

/// Ours: default rate without a preset. Round numbers of a long path that any machine can emulate.
const RATE: Rate = Rate::from_mbps(100);
/// Ours: default one-way delay, see [`RATE`].
const DELAY: Span = Span::from_millis(50);
/// The usual Ethernet MTU. Queue sizes in BDPs count packets of this size, as in scenario files.
const FULL_PACKET: u32 = 1_500;
/// Smallest queue in packets for sizes in BDPs, as in scenario files.
const BDP_PACKETS_MIN: u64 = 2;
/// Most outages that are listed individually.
const OUTAGES_SHOWN: usize = 3;
/// Longest delay of a link, in milliseconds: an hour.
const MS_MAX: f64 = 3_600_000.0;

/// Queue size as given by the user.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum QueueSize {
    /// In packets.
    Packets(u64),
    /// In bytes.
    Bytes(u64),
    /// In BDPs.
    Bdp(f64),
}

impl QueueSize {
    /// Returns the limit on a link of this rate and RTT.
    fn limit(self, rate: Rate, rtt: Span) -> QueueLimit {
        match self {
            Self::Packets(packets) => QueueLimit::Packets(packets),
            Self::Bytes(bytes) => QueueLimit::Bytes(bytes),
            Self::Bdp(share) => {
                let packets = rate.bytes_in(rtt).0 as f64 / f64::from(FULL_PACKET) * share;
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "not negative, and `as` saturates"
                )]
                let packets = packets.round() as u64;
                QueueLimit::Packets(packets.max(BDP_PACKETS_MIN))
            }
        }
    }
}

/// Queue discipline, without settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueDiscipline {
    /// First in, first out; drops at the tail.
    DropTail,
    /// CoDel, with a target of 5 ms and an interval of 100 ms.
    Codel,
    /// A queue per flow, each under CoDel.
    FqCodel,
    /// Random early detection, with thresholds by the rate.
    Red,
}

/// Requested properties of a path. Missing properties come from the preset, or from the default
/// without a preset.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PathOverrides {
    /// Name of the preset to start from.
    pub preset: Option<String>,
    /// Rate in both directions.
    pub rate: Option<Rate>,
    /// One-way delay; takes precedence over `rtt`.
    pub delay: Option<Span>,
    /// RTT of the empty path.
    pub rtt: Option<Span>,
    /// Loss probability in both directions.
    pub loss: Option<Probability>,
    /// Loss probability from the far end only.
    pub loss_back: Option<Probability>,
    /// Queue size before the link.
    pub queue: Option<QueueSize>,
    /// Largest added delay of a packet.
    pub jitter: Option<Span>,
    /// MTU in bytes, IP header included. Larger packets are dropped without a message.
    pub mtu: Option<u32>,
    /// Queue discipline.
    pub discipline: Option<QueueDiscipline>,
    /// Name of the explicit controller whose router part runs before the queue, in both directions.
    pub router: Option<String>,
}

/// Parses a time: `50`, `0.5`, `50ms`, `1.5s` or `200us`. Milliseconds without a unit.
///
/// # Errors
/// If the text is not a valid delay of a link. The message explains the format.
pub fn parse_ms(text: &str) -> Result<Span, String> {
    let trimmed = text.trim();
    let units = [("ms", 1.0), ("us", 1e-3), ("µs", 1e-3), ("s", 1e3)];
    let (number, factor) = units
        .iter()
        .find_map(|(unit, factor)| Some((trimmed.strip_suffix(unit)?, *factor)))
        .unwrap_or((trimmed, 1.0));
    let ms = number.trim().parse::<f64>().ok().map(|number| number * factor);
    let ms = ms.filter(|ms| (0.0..=MS_MAX).contains(ms)).ok_or_else(|| {
        format!(
            "'{text}' is not a time: write milliseconds from 0 to {MS_MAX}, such as 50, or with a \
             unit, such as 1.5s or 200us"
        )
    })?;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "range checked")]
    Ok(Span((ms * 1e9 + 0.5) as u64))
}

/// Parses a loss probability: `0.01` or `1%`.
///
/// # Errors
/// If the text is not a probability. The message explains the format.
pub fn parse_loss(text: &str) -> Result<Probability, String> {
    let trimmed = text.trim();
    let share = match trimmed.strip_suffix('%') {
        Some(percent) => percent.trim().parse::<f64>().map(|percent| percent / 100.0),
        None => trimmed.parse(),
    };
    share.ok().and_then(|share| Probability::new(share).ok()).ok_or_else(|| {
        format!(
            "'{text}' is not a chance of loss: write a fraction from 0 to 1 or percent, such as \
             0.01 or 1%"
        )
    })
}

/// Parses a queue size: `800` packets, `512kB`, or `0.5bdp`.
///
/// # Errors
/// If the text is not a queue size. The message explains the format.
pub fn parse_queue(text: &str) -> Result<QueueSize, String> {
    let lower = text.trim().to_ascii_lowercase();
    let size = if lower.bytes().all(|byte| byte.is_ascii_digit()) {
        lower.parse().ok().filter(|packets| *packets > 0).map(QueueSize::Packets)
    } else if let Some(share) = lower.strip_suffix("bdp") {
        let share = share.trim_end().trim_end_matches(['x', '×']).trim_end().parse::<f64>().ok();
        share.filter(|share| *share > 0.0 && *share <= 1_000.0).map(QueueSize::Bdp)
    } else {
        parse_bytes(text).ok().map(QueueSize::Bytes)
    };
    size.ok_or_else(|| {
        format!(
            "'{text}' is not a queue: write packets from 1 up, such as 800, bytes with a unit, such \
             as 512kB, or bandwidth-delay products over 0 up to 1000, such as 0.5bdp"
        )
    })
}

/// Returns the preset with this name.
///
/// # Errors
/// If no preset has this name. The message lists the names.
pub fn find_preset(name: &str) -> Result<PathPreset, Error> {
    preset(name).ok_or_else(|| {
        let names: Vec<_> = presets().iter().map(|preset| preset.name).collect();
        Error::usage(format!("no path is called '{name}'; use one of: {}", names.join(", ")))
    })
}

/// Builds the requested path.
///
/// # Errors
/// If no link can have these properties, or no preset has this name.
pub fn plan(overrides: &PathOverrides) -> Result<LinkPlan, Error> {
    let (id, base) = match &overrides.preset {
        Some(name) => {
            let preset = find_preset(name)?;
            (preset.name, [preset.forward, preset.back])
        }
        None => ("path", [default_link()?, default_link()?]),
    };
    let delay = overrides.delay.or_else(|| overrides.rtt.map(|rtt| rtt / 2));
    let delays = base.each_ref().map(|link| delay.unwrap_or_else(|| link.delay()));
    let rtt = delays[0] + delays[1];
    // A preset's queue is a number of packets, even if its rate or delay is overridden.
    let queue =
        overrides.queue.or_else(|| overrides.preset.is_none().then_some(QueueSize::Bdp(1.0)));
    let losses = [overrides.loss, overrides.loss_back.or(overrides.loss)];
    let build = |way: usize| {
        let link = &base[way];
        let rate = overrides.rate.or_else(|| link.rate());
        let mut builder = link
            .to_builder()
            .with_rate(rate)
            .with_delay(delays[way])
            .with_loss(losses[way].unwrap_or_else(|| link.loss()))
            .with_jitter(overrides.jitter.unwrap_or_else(|| link.jitter()))
            .with_mtu(overrides.mtu.or_else(|| link.mtu()));
        if let (Some(queue), Some(rate)) = (queue, rate) {
            builder = builder.with_queue(queue.limit(rate, rtt));
        }
        if let (Some(discipline), Some(rate)) = (overrides.discipline, rate) {
            builder = builder.with_discipline(discipline.for_rate(rate));
        }
        if let Some(name) = &overrides.router {
            builder = builder.with_router(Some(RouterPlan::new(name)));
        }
        builder.build().map_err(|error| refusal(&error))
    };
    Ok(LinkPlan { id: id.to_owned(), forward: build(0)?, back: build(1)? })
}

fn default_link() -> Result<LinkConfig, Error> {
    LinkConfig::builder()
        .with_rate(Some(RATE))
        .with_delay(DELAY)
        .with_mtu(Some(FULL_PACKET))
        .build()
        .map_err(|error| refusal(&error))
}

fn refusal(error: &LinkError) -> Error {
    let LinkError { setting, value, allowed } = error;
    Error::usage(format!("--{setting}: {value} is not allowed; use {allowed}"))
}

impl QueueDiscipline {
    /// Returns the discipline with settings for a link of this rate.
    fn for_rate(self, rate: Rate) -> Discipline {
        match self {
            Self::DropTail => Discipline::DropTail,
            Self::Codel => Discipline::Codel(Codel::default()),
            Self::FqCodel => Discipline::FqCodel(FqCodel::default()),
            Self::Red => Discipline::Red(Red::for_rate(rate)),
        }
    }
}

/// Describes a path: one line, or one line per direction if the directions differ.
pub fn describe(plan: &LinkPlan) -> Vec<String> {
    let rtt = plan.forward.delay() + plan.back.delay();
    let round = format!("{} round trip", show_ms(rtt));
    if plan.forward == plan.back {
        return vec![format!("{}, {round}", describe_link(&plan.forward, rtt))];
    }
    vec![
        format!("near to far: {}", describe_link(&plan.forward, rtt)),
        format!("far to near: {}", describe_link(&plan.back, rtt)),
        round,
    ]
}

fn describe_link(link: &LinkConfig, rtt: Span) -> String {
    let rate = link.rate().map_or_else(|| "no limit of rate".to_owned(), show_rate);
    let mut parts = vec![
        rate,
        format!("{} one way", show_ms(link.delay())),
        format!("queue {}", show_queue(link, rtt)),
    ];
    if *link.discipline() != Discipline::DropTail {
        parts.push(link.discipline().name().to_owned());
    }
    if let Some(router) = link.router() {
        parts.push(format!("a router of {}", router.algorithm));
    }
    if link.jitter() > Span::ZERO {
        parts.push(format!("jitter up to {}", show_ms(link.jitter())));
    }
    let chances = [
        ("lost", link.loss()),
        ("repeated", link.duplicate()),
        ("held back", link.reorder()),
        ("damaged", link.corrupt()),
    ];
    for (what, chance) in chances {
        if chance > Probability::ZERO {
            parts.push(format!("{} {what}", show_chance(chance)));
        }
    }
    if let Some(bursts) = link.burst_loss() {
        parts.push(format!("{} lost in bursts", show_share(bursts.mean_loss())));
    }
    parts.extend(show_outages(link).map(|silence| format!("silent {silence}")));
    if let Some(mtu) = link.mtu().filter(|mtu| *mtu != FULL_PACKET) {
        parts.push(format!("larger than {mtu} bytes vanish"));
    }
    parts.join(", ")
}

/// Describes a queue with its size in BDPs.
pub fn show_queue(link: &LinkConfig, rtt: Span) -> String {
    let (size, bytes) = match link.queue() {
        QueueLimit::Packets(packets) => {
            (format!("{packets} packets"), packets as f64 * f64::from(FULL_PACKET))
        }
        QueueLimit::Bytes(bytes) => (format!("{bytes} bytes"), bytes as f64),
        QueueLimit::Unlimited => return "unlimited".to_owned(),
    };
    let bdp = link.rate().map_or(0, |rate| rate.bytes_in(rtt).0) as f64;
    if bdp > 0.0 { format!("{size} ({} BDP)", significant(bytes / bdp, 2)) } else { size }
}

/// Describes the outages of a link: all if there are few, otherwise the number and the first one.
pub fn show_outages(link: &LinkConfig) -> Option<String> {
    let show = |outage: &Outage| {
        let from = significant(outage.at.elapsed().as_secs_f64(), 4);
        format!("from {from} s for {}", show_ms(outage.lasts))
    };
    match link.outages() {
        [] => None,
        few if few.len() <= OUTAGES_SHOWN => {
            Some(few.iter().map(show).collect::<Vec<_>>().join(" and "))
        }
        many => Some(format!("{} times, first {}", many.len(), show(&many[0]))),
    }
}

/// Formats a rate without trailing digits, such as `100 Mbit/s`.
pub fn show_rate(rate: Rate) -> String {
    let bps = rate.0 as f64;
    let units = [(1e9, "Gbit/s"), (1e6, "Mbit/s"), (1e3, "kbit/s")];
    let (factor, unit) =
        units.into_iter().find(|(factor, _)| bps >= *factor).unwrap_or((1.0, "bit/s"));
    format!("{} {unit}", significant(bps / factor, 4))
}

/// Formats a time in milliseconds, such as `0.25 ms`.
pub fn show_ms(span: Span) -> String {
    format!("{} ms", significant(span.as_millis_f64(), 4))
}

/// Formats a probability in percent, such as `0.12 %`.
pub fn show_chance(chance: Probability) -> String {
    show_share(chance.as_f64())
}

/// Formats a fraction in percent.
pub fn show_share(share: f64) -> String {
    format!("{} %", significant(share * 100.0, 4))
}

#[cfg(test)]
mod tests {
    use sabul_units::Instant;

    use super::*;

    /// Builds a path from options as on a command line.
    fn path(options: &[&str]) -> Result<LinkPlan, String> {
        let mut overrides = PathOverrides::default();
        for option in options.chunks(2) {
            let [flag, value] = option else { panic!("{option:?}") };
            let in_flag = |error: String| format!("{flag}: {error}");
            match *flag {
                "--preset" => overrides.preset = Some((*value).to_owned()),
                "--rate" => overrides.rate = Some(value.parse().unwrap()),
                "--delay" => overrides.delay = Some(parse_ms(value).map_err(in_flag)?),
                "--rtt" => overrides.rtt = Some(parse_ms(value).map_err(in_flag)?),
                "--loss" => overrides.loss = Some(parse_loss(value).map_err(in_flag)?),
                "--loss-back" => overrides.loss_back = Some(parse_loss(value).map_err(in_flag)?),
                "--queue" => overrides.queue = Some(parse_queue(value).map_err(in_flag)?),
                "--jitter" => overrides.jitter = Some(parse_ms(value).map_err(in_flag)?),
                "--router" => overrides.router = Some((*value).to_owned()),
                "--mtu" => overrides.mtu = Some(value.parse().unwrap()),
                "--discipline" => {
                    overrides.discipline = Some(match *value {
                        "droptail" => QueueDiscipline::DropTail,
                        "codel" => QueueDiscipline::Codel,
                        "fq-codel" => QueueDiscipline::FqCodel,
                        _ => QueueDiscipline::Red,
                    });
                }
                flag => panic!("{flag}"),
            }
        }
        plan(&overrides).map_err(|error| error.to_string())
    }

    fn forward(options: &[&str]) -> LinkConfig {
        path(options).unwrap().forward
    }

    #[test]
    fn without_options_a_path_has_the_documented_defaults() {
        // 100 Mb/s × 100 ms = 1.25 MB = 833.3 packets of 1500 bytes.
        let wanted = LinkConfig::droptail(Rate::from_mbps(100), Span::from_millis(50), 833)
            .with_mtu(Some(1500))
            .build()
            .unwrap();
        let path = path(&[]).unwrap();
        assert_eq!((&path.forward, &path.back), (&wanted, &wanted));
    }

    #[test]
    fn a_queue_is_packets_bytes_or_a_share_of_rate_and_round_trip() {
        let queue = |options: &[&str]| forward(options).queue();
        // 1 Gb/s × 40 ms = 5 MB = 3333.3 packets; half of it 1666.7.
        let path = ["--rate", "1G", "--rtt", "40"];
        let with = |size: &str| queue(&[&path[..], &["--queue", size]].concat());
        assert_eq!(with("1bdp"), QueueLimit::Packets(3333));
        assert_eq!(with("0.5BDP"), QueueLimit::Packets(1667));
        assert_eq!(with("2 x bdp"), QueueLimit::Packets(6667));
        assert_eq!(with("77"), QueueLimit::Packets(77));
        assert_eq!(with("512kB"), QueueLimit::Bytes(512_000));
        assert_eq!(with("1MiB"), QueueLimit::Bytes(1 << 20));
        // 1 Mb/s × 2 ms = 250 bytes: the least.
        assert_eq!(queue(&["--rate", "1M", "--delay", "1"]), QueueLimit::Packets(2));
    }

    #[test]
    fn a_router_applies_to_both_directions_and_unknown_names_are_refused() {
        let routed = path(&["--router", "jetmax"]).unwrap();
        assert!(routed.forward.router().is_some() && routed.back == routed.forward);
        assert!(describe(&routed)[0].contains("a router of jetmax"), "{:?}", describe(&routed));
        let error = path(&["--router", "jetmox"]).unwrap_err();
        assert!(error.contains("--router: jetmox"), "{error}");
    }

    #[test]
    fn a_round_trip_is_twice_the_delay() {
        assert_eq!(forward(&["--rtt", "25"]), forward(&["--delay", "12.5"]));
        assert_eq!(forward(&["--delay", "1.5s"]).delay(), Span::from_millis(1_500));
        assert_eq!(forward(&["--delay", "200us"]).delay(), Span::from_micros(200));
        assert_eq!(forward(&["--delay", "0"]).delay(), Span::ZERO);
    }

    #[test]
    fn loss_applies_to_both_directions_unless_the_reverse_has_its_own() {
        let losses = |options: &[&str]| {
            let path = path(options).unwrap();
            [path.forward.loss(), path.back.loss()]
        };
        let per_mille = Probability::per_mille;
        assert_eq!(losses(&["--loss", "1%"]), [per_mille(10); 2]);
        assert_eq!(losses(&["--loss", "0.01", "--loss-back", "0"]), [per_mille(10), per_mille(0)]);
        assert_eq!(losses(&["--loss-back", "0.2 %"]), [per_mille(0), per_mille(2)]);
        let lossy = ["--preset", "lossy"];
        assert_eq!(losses(&lossy), [per_mille(50); 2]);
        let mended = [&lossy[..], &["--loss", "0"]].concat();
        assert_eq!(losses(&mended), [per_mille(0); 2]);
    }

    #[test]
    fn options_override_only_their_part_of_a_preset() {
        let satellite = preset("satellite").unwrap();
        let plan = path(&["--preset", "satellite"]).unwrap();
        assert_eq!((plan.id.as_str(), &plan.forward), ("satellite", &satellite.forward));
        assert_eq!(plan.back, satellite.back);
        let link = forward(&["--preset", "satellite", "--rate", "10M", "--mtu", "1280"]);
        let wanted = satellite
            .forward
            .to_builder()
            .with_rate(Some(Rate::from_mbps(10)))
            .with_mtu(Some(1280))
            .build()
            .unwrap();
        assert_eq!(link, wanted);
    }

    #[test]
    fn discipline_defaults_depend_on_the_rate() {
        let discipline = |name| {
            let link = forward(&["--rate", "1200M", "--discipline", name, "--jitter", "2"]);
            assert_eq!(link.jitter(), Span::from_millis(2));
            link.discipline().clone()
        };
        assert_eq!(discipline("droptail"), Discipline::DropTail);
        assert_eq!(discipline("codel"), Discipline::Codel(Codel::default()));
        assert_eq!(discipline("fq-codel"), Discipline::FqCodel(FqCodel::default()));
        // Half of 5 ms of 100 000 packets a second.
        let Discipline::Red(red) = discipline("red") else { panic!("red") };
        assert_eq!(red.min_packets, 250);
    }

    #[test]
    fn invalid_link_options_are_refused_by_flag() {
        for (options, parts) in [
            (&["--preset", "moon"][..], &["moon", "satellite"][..]),
            (&["--rate", "100"], &["--rate: 100 bit/s", "1 kbit/s to 1 Tbit/s"]),
            (&["--rate", "2T"], &["--rate", "1 Tbit/s"]),
            (&["--delay", "3600001"], &["--delay", "3600000"]),
            (&["--queue", "1001bdp"], &["--queue", "up to 1000"]),
            (&["--queue", "-1"], &["-1"]),
            (&["--queue", "bdp"], &["'bdp'", "0.5bdp"]),
            (&["--loss", "nan"], &["'nan'", "fraction"]),
        ] {
            let error = path(options).expect_err("is refused");
            for part in parts {
                assert!(error.contains(part), "{options:?}: {part}: {error}");
            }
        }
    }

    #[test]
    fn many_outages_are_summarised_by_their_count() {
        let outages = |count: u64| -> LinkConfig {
            let outage = |n| Outage {
                at: Instant::ZERO + Span::from_secs(15 * n),
                lasts: Span::from_millis(100),
            };
            LinkConfig::builder().with_outages((1..=count).map(outage).collect()).build().unwrap()
        };
        let reported = |count| show_outages(&outages(count));
        assert_eq!(reported(0), None);
        assert_eq!(reported(2).unwrap(), "from 15 s for 100 ms and from 30 s for 100 ms");
        assert_eq!(reported(240).unwrap(), "240 times, first from 15 s for 100 ms");
    }

    #[test]
    fn a_path_is_described_in_one_line_or_one_per_direction() {
        let reported = |options: &[&str]| describe(&path(options).unwrap());
        assert_eq!(
            reported(&[]),
            ["100 Mbit/s, 50 ms one way, queue 833 packets (1 BDP), 100 ms round trip"]
        );
        let lines = reported(&["--loss-back", "0.5%", "--discipline", "codel", "--jitter", "0.25"]);
        assert_eq!(lines.len(), 3);
        assert!(!lines[0].contains("lost") && lines[1].contains("0.5 % lost"), "{lines:?}");
        assert!(lines[1].contains("codel, jitter up to 0.25 ms"), "{lines:?}");
        let lines = reported(&["--preset", "lossy", "--mtu", "1280"]);
        for part in ["5 % lost", "1 % repeated", "silent from 2 s for 3000 ms", "1280 bytes"] {
            assert!(lines[0].contains(part), "{part}: {lines:?}");
        }
    }
}
