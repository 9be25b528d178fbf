//! Expiry times as in OpenSSH's `expiry-time=`: `YYYYMMDD[HHMM[SS]][Z]`, in the time zone of the system, or in UTC
//! with `Z`.

use std::fmt;
use std::sync::LazyLock;
use std::time::SystemTime;

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;

/// Time zone of the system, read once: a server in its sandbox cannot read the time zone later.
static ZONE: LazyLock<TimeZone> = LazyLock::new(|| TimeZone::try_system().unwrap_or(TimeZone::UTC));

/// A time from which a key or ticket is no longer accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Expiry(Timestamp);

impl Expiry {
    /// Reads the time zone of the system, for later.
    pub fn prepare() {
        LazyLock::force(&ZONE);
    }

    /// Parses `YYYYMMDD[HHMM[SS]][Z]`.
    ///
    /// # Errors
    /// If the text has another form or is no date.
    pub fn parse(text: &str) -> Result<Self, String> {
        let fail =
            || format!("'{text}' is not a time: write YYYYMMDD[HHMM[SS]][Z], such as 20301231Z");
        let (digits, zone) = match text.strip_suffix('Z') {
            Some(digits) => (digits, TimeZone::UTC),
            None => (text, ZONE.clone()),
        };
        if !matches!(digits.len(), 8 | 12 | 14) || !digits.bytes().all(|b| b.is_ascii_digit()) {
            return Err(fail());
        }
        let part = |from: usize, to: usize| -> i8 {
            digits.get(from..to).and_then(|part| part.parse().ok()).unwrap_or(0)
        };
        let year = digits[..4].parse().map_err(|_| fail())?;
        DateTime::new(year, part(4, 6), part(6, 8), part(8, 10), part(10, 12), part(12, 14), 0)
            .and_then(|time| zone.to_timestamp(time))
            .map(Self)
            .map_err(|_| fail())
    }

    /// Returns the time after this number of seconds from now; the greatest time if there is no such time.
    pub fn after_seconds(seconds: u64) -> Self {
        let now = Timestamp::now().as_second();
        let seconds = i64::try_from(seconds).unwrap_or(i64::MAX);
        Self(Timestamp::from_second(now.saturating_add(seconds)).unwrap_or(Timestamp::MAX))
    }

    /// Returns whether the time has come.
    pub fn is_over(self, now: SystemTime) -> bool {
        // A clock outside the years of `Timestamp` ends everything.
        Timestamp::try_from(now).map_or(true, |now| now >= self.0)
    }
}

/// Writes the time in UTC in the form that [`Expiry::parse`] reads.
impl fmt::Display for Expiry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = TimeZone::UTC.to_datetime(self.0);
        write!(f, "{:04}{:02}{:02}", time.year(), time.month(), time.day())?;
        write!(f, "{:02}{:02}{:02}Z", time.hour(), time.minute(), time.second())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn times_are_read_as_openssh_reads_them() {
        let at = |text: &str| Expiry::parse(text).unwrap().to_string();
        assert_eq!(at("20300102Z"), "20300102000000Z");
        assert_eq!(at("203001021530Z"), "20300102153000Z");
        assert_eq!(at("20300102153045Z"), "20300102153045Z");
        assert!(Expiry::parse("20300102").is_ok());
        for wrong in
            ["", "2030", "20301302Z", "20300230Z", "2030010Z", "+2030010Z", "203001022460Z"]
        {
            assert!(Expiry::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_key_ends_at_its_expiry_time() {
        let expiry = Expiry::parse("20300101Z").unwrap();
        let at = SystemTime::UNIX_EPOCH + Duration::from_secs(1_893_456_000);
        assert!(expiry.is_over(at));
        assert!(!expiry.is_over(at - Duration::from_secs(1)));
        assert!(!Expiry::after_seconds(60).is_over(SystemTime::now()));
        assert!(Expiry::after_seconds(0).is_over(SystemTime::now()));
    }
}
