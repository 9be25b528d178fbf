//! Settings of a router, checked before any device is created.

use sabul_cc::router::Router;
use sabul_lab_cc::routers;
use sabul_net::{Discipline, Drr, LinkConfig, QueueLimit};
use sabul_units::{Bytes, Rate, Span};

use crate::bottleneck::{EXPLICIT, PLAIN};
use crate::error::RouterError;

/// A frame of full size; one turn of both classes together is at least two frames.
const FULL_FRAME: u32 = 1514;
/// Least quantum of the round robin, in bytes.
const QUANTUM_MIN: u32 = 256;
/// Rates of the link in bit/s: below, one packet takes seconds; above, no machine forwards.
const RATES: std::ops::RangeInclusive<u64> = 100_000..=100_000_000_000;
/// Shares of the explicit class under full load of both classes, in percent.
const SHARES: std::ops::RangeInclusive<u32> = 5..=95;
/// Bounds of a class's queue: from a few packets to ten seconds.
const QUEUE_BYTES_MIN: u64 = 3 * 1514;
const QUEUE_SPAN_MAX: Span = Span::from_secs(10);

/// Size of each class's queue in front of the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueSize {
    /// Size in bytes.
    Bytes(u64),
    /// Amount that the link sends in this time.
    Time(Span),
}

impl QueueSize {
    /// Returns the size in bytes for a link of that rate.
    pub fn bytes(self, rate: Rate) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Time(span) => rate.bytes_in(span).0,
        }
    }
}

impl std::str::FromStr for QueueSize {
    type Err = String;

    /// Parses `100ms`, `0.1s` or a size such as `512K`.
    fn from_str(text: &str) -> Result<Self, String> {
        let units = [("ms", 1e-3), ("s", 1.0)];
        let time = units.into_iter().find_map(|(unit, seconds)| {
            let number: f64 = text.trim().strip_suffix(unit)?.trim().parse().ok()?;
            Some(number * seconds)
        });
        match time {
            Some(seconds) if seconds > 0.0 && seconds <= QUEUE_SPAN_MAX.as_secs_f64() => {
                Ok(Self::Time(Span::from_secs_f64(seconds)))
            }
            Some(_) => Err(format!("'{text}' is not a time above 0 and up to 10s")),
            None => sabul_units::parse_bytes(text).map(Self::Bytes).map_err(|_| {
                format!("'{text}' is neither a time such as 100ms nor a size such as 512K")
            }),
        }
    }
}

/// Settings of a router and its link.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Rate of the outgoing link, counting each packet with `framing_bytes`: 100 kb/s to 100 Gb/s.
    pub rate: Rate,
    /// Bytes that each packet takes on the link besides its IP bytes; 38 for Ethernet.
    pub framing_bytes: u32,
    /// Queue size of each class.
    pub queue: QueueSize,
    /// Name of the algorithm whose headers the router rewrites.
    pub algorithm: String,
    /// Settings of the router half, as names and values.
    pub params: Vec<(String, String)>,
    /// Least share of the link for the explicit class while that class is backlogged, in percent: 5
    /// to 95. The plain class has the rest.
    pub share_percent: u32,
    /// Number that distinguishes this router from others on a path in congestion headers; never 0.
    pub id: u32,
}

impl Settings {
    /// Returns the configuration of the link with its two classes.
    ///
    /// # Errors
    /// If a setting is outside its range.
    pub(crate) fn link(&self) -> Result<LinkConfig, RouterError> {
        self.check()?;
        let (explicit, plain) = (self.share_percent, 100 - self.share_percent);
        let divisor = common_divisor(explicit, plain);
        let (explicit, plain) = (explicit / divisor, plain / divisor);
        let quantum_bytes = (2 * FULL_FRAME / (explicit + plain)).max(QUANTUM_MIN);
        let weights = [(EXPLICIT, explicit), (PLAIN, plain)].into_iter().collect();
        LinkConfig::builder()
            .with_rate(Some(self.rate))
            .with_framing(self.framing_bytes)
            .with_queue(QueueLimit::Bytes(self.queue.bytes(self.rate)))
            .with_discipline(Discipline::Drr(Drr { quantum_bytes, weights, is_dedicated: true }))
            .build()
            .map_err(|error| RouterError::setting("the link", "as it is", error.to_string()))
    }

    /// Returns the router half.
    ///
    /// # Errors
    /// If the algorithm does not exist, or does not have these settings.
    pub(crate) fn router(&self) -> Result<Router, RouterError> {
        let wrong = |error: sabul_cc::ConfigError| {
            RouterError::setting("--algorithm", self.algorithm.clone(), error.to_string())
        };
        let entry = routers::find(&self.algorithm).map_err(wrong)?;
        entry.router(&self.params, self.rate, self.id).map_err(wrong)
    }

    /// Returns the least rate of the explicit class.
    pub fn share(&self) -> Rate {
        self.rate.mul_ratio(u64::from(self.share_percent), 100)
    }

    fn check(&self) -> Result<(), RouterError> {
        let shown = format!("{} Mb/s", self.rate.as_mbps_f64());
        if self.rate.0 == 0 {
            let allowed = "a link without capacity has nothing to share out; give what the \
                           outgoing link carries, in Mb/s";
            return Err(RouterError::setting("--rate-mbps", shown, allowed));
        }
        if !RATES.contains(&self.rate.0) {
            return Err(RouterError::setting("--rate-mbps", shown, "0.1 to 100000"));
        }
        if !SHARES.contains(&self.share_percent) {
            let shown = format!("{} %", self.share_percent);
            return Err(RouterError::setting("--share", shown, "5 to 95, in percent"));
        }
        let (least, most) = (QUEUE_BYTES_MIN, self.rate.bytes_in(QUEUE_SPAN_MAX));
        let bytes = self.queue.bytes(self.rate);
        if bytes < least || Bytes(bytes) > most.max(Bytes(least)) {
            let allowed = format!(
                "{least} bytes (three packets) to {} bytes (ten seconds of the link)",
                most.0
            );
            return Err(RouterError::setting("--queue", format!("{bytes} bytes"), allowed));
        }
        Ok(())
    }
}

const fn common_divisor(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { common_divisor(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bottleneck::testing::settings;

    fn message(change: impl FnOnce(&mut Settings)) -> String {
        let mut settings = settings();
        change(&mut settings);
        let wrong = settings.link().map(drop).and_then(|()| settings.router().map(drop));
        wrong.unwrap_err().to_string()
    }

    #[test]
    fn a_link_without_capacity_is_refused_with_a_hint() {
        let text = message(|settings| settings.rate = Rate(0));
        assert!(text.contains("--rate-mbps cannot be 0 Mb/s"), "{text}");
        assert!(text.contains("nothing to share out"), "{text}");
    }

    #[test]
    fn each_invalid_setting_is_refused_with_name_and_range() {
        let text = message(|settings| settings.rate = Rate(99_999));
        assert!(text.contains("0.1 to 100000"), "{text}");
        let text = message(|settings| settings.share_percent = 96);
        assert!(text.contains("--share cannot be 96 %: 5 to 95"), "{text}");
        let text = message(|settings| settings.queue = QueueSize::Bytes(1000));
        assert!(text.contains("--queue cannot be 1000 bytes"), "{text}");
        let text = message(|settings| settings.algorithm = "jetmx".to_owned());
        assert!(text.contains("'jetmax' (the nearest)"), "{text}");
        let text = message(|settings| {
            settings.params = vec![("gamma".to_owned(), "1".to_owned())];
        });
        assert!(text.contains("gamma"), "{text}");
    }

    #[test]
    fn a_queue_is_a_time_or_a_size() {
        assert_eq!("100ms".parse(), Ok(QueueSize::Time(Span::from_millis(100))));
        assert_eq!("0.5 s".parse(), Ok(QueueSize::Time(Span::from_millis(500))));
        assert_eq!("64K".parse(), Ok(QueueSize::Bytes(65_536)));
        assert_eq!(QueueSize::Time(Span::from_millis(100)).bytes(Rate::from_mbps(8)), 100_000);
        for wrong in ["0ms", "11s", "fast", "-1ms", "NaNs"] {
            assert!(wrong.parse::<QueueSize>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_turn_of_both_classes_is_about_two_frames_for_all_shares() {
        for share_percent in [5, 30, 50, 77, 95] {
            let settings = Settings { share_percent, ..settings() };
            let link = settings.link().unwrap();
            let Discipline::Drr(drr) = link.discipline() else { panic!("{link:?}") };
            let (explicit, plain) = (drr.weight(EXPLICIT), drr.weight(PLAIN));
            assert_eq!(explicit * (100 - share_percent), plain * share_percent);
            let turn = drr.quantum_bytes * (explicit + plain);
            assert!((2_400..=26_000).contains(&turn), "{share_percent}: {turn}");
        }
    }
}
