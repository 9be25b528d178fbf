//! Times of the day and dates, in the time zone of the system.

use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

use jiff::civil::{DateTime, Time};
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan as _, Zoned};

/// Returns the time of the system in milliseconds since 1970.
pub fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// The text is not a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimeError {
    text: String,
}

impl fmt::Display for TimeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "'{}' is not a time: write a time of the day (22:00), a date (2026-12-24 or 2026-12-24T22:00), or a time \
             from now (90s, 30m, 12h or 2d)",
            self.text
        )
    }
}

impl std::error::Error for TimeError {}

/// Returns the time in milliseconds since 1970. A time of the day is the next such time after `now_ms`.
///
/// # Errors
///
/// If the text is not a time.
pub fn parse_time(text: &str, now_ms: i64) -> Result<i64, TimeError> {
    in_zone(text, now_ms, TimeZone::system()).ok_or_else(|| TimeError { text: text.to_owned() })
}

fn in_zone(text: &str, now_ms: i64, zone: TimeZone) -> Option<i64> {
    let text = text.trim();
    let units = [("s", 1), ("m", 60), ("h", 3600), ("d", 86_400)];
    let span = units.iter().find_map(|(unit, seconds)| {
        let number: u32 = text.strip_suffix(unit)?.trim().parse().ok()?;
        Some(i64::from(number) * seconds * 1000)
    });
    if let Some(span) = span {
        return now_ms.checked_add(span);
    }
    if let Ok(moment) = text.parse::<Timestamp>() {
        return Some(moment.as_millisecond());
    }
    if let Some(time) = time_of_day(text) {
        let now = zoned(now_ms, zone)?;
        let today = now.with().time(time).build().ok()?;
        let next = if today > now { today } else { today.checked_add(1.day()).ok()? };
        return Some(next.timestamp().as_millisecond());
    }
    let date: DateTime = text.parse().ok()?;
    Some(date.to_zoned(zone).ok()?.timestamp().as_millisecond())
}

/// Parses `HH:MM`.
pub(crate) fn time_of_day(text: &str) -> Option<Time> {
    let (hour, minute) = text.split_once(':')?;
    let number = |digits: &str| {
        let is_number =
            (1..=2).contains(&digits.len()) && digits.bytes().all(|it| it.is_ascii_digit());
        is_number.then(|| digits.parse::<i8>().ok()).flatten()
    };
    Time::new(number(hour)?, number(minute)?, 0, 0).ok()
}

/// Returns the local time.
pub(crate) fn zoned(ms: i64, zone: TimeZone) -> Option<Zoned> {
    Some(Timestamp::from_millisecond(ms).ok()?.to_zoned(zone))
}

/// Formats a time in milliseconds since 1970 as local date and time.
pub fn show_time(ms: i64) -> String {
    zoned(ms, TimeZone::system())
        .map_or_else(|| "-".to_owned(), |time| time.strftime("%Y-%m-%d %H:%M:%S").to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2026-11-27 12:00 UTC.
    const NOON: i64 = 1_795_780_800_000;
    const HOUR: i64 = 3_600_000;

    #[test]
    fn times_are_spans_times_of_the_day_or_dates() {
        let at = |text: &str| in_zone(text, NOON, TimeZone::UTC).map(|ms| ms - NOON);
        assert_eq!(at("90s"), Some(90_000));
        assert_eq!(at("2d"), Some(48 * HOUR));
        assert_eq!(at("13:30"), Some(3 * HOUR / 2));
        assert_eq!(at("12:00"), Some(24 * HOUR), "the time has come already, so tomorrow");
        assert_eq!(at("2026-11-27T22:00"), Some(10 * HOUR));
        assert_eq!(at("2026-11-28"), Some(12 * HOUR));
        assert_eq!(at("2026-11-27T13:00:00+01:00"), Some(0));
        for wrong in ["", "soon", "25:00", "1:2:3", "-5m", "2026-13-01", "99999999999d"] {
            assert_eq!(at(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_time_of_the_day_is_in_the_local_zone() {
        let zone = TimeZone::fixed(jiff::tz::offset(1));
        assert_eq!(in_zone("14:00", NOON, zone), Some(NOON + HOUR));
    }
}
