//! Timetable of rate limits by day of the week and time of the day.
//!
//! A line or a part between commas is one window: `[DAY[-DAY]] HH:MM-HH:MM RATE`. The first window that contains the
//! local time applies; outside of all windows there is no limit. A window whose end is not after its start ends on the
//! next day. `none` as RATE is no limit.

use std::fmt;
use std::str::FromStr;

use jiff::civil::{Time, Weekday};
use jiff::tz::TimeZone;
use sabul_units::Rate;

use crate::times::{time_of_day, zoned};

/// Ours: maximum number of windows.
const WINDOWS_MAX: usize = 1000;

/// Rate limits by time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Timetable {
    windows: Vec<Window>,
}

/// A window of the week.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Window {
    /// First and last day of the week on which the window starts.
    days: Option<(Weekday, Weekday)>,
    from: Time,
    /// `None` is the end of the day.
    to: Option<Time>,
    rate: Option<Rate>,
}

/// A window of a timetable is invalid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimetableError {
    window: String,
    why: String,
}

impl fmt::Display for TimetableError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { window, why } = self;
        write!(
            f,
            "'{window}' is no window of a timetable ({why}); write windows such as '08:00-18:00 100M' or \
             'Mon-Fri 08:00-18:00 100M'"
        )
    }
}

impl std::error::Error for TimetableError {}

impl FromStr for Timetable {
    type Err = TimetableError;

    /// Parses windows in lines or between commas. Text from `#` to the end of a line is a comment.
    fn from_str(text: &str) -> Result<Self, TimetableError> {
        let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default());
        let parts = lines.flat_map(|line| line.split(',')).map(str::trim);
        let windows = parts.filter(|part| !part.is_empty()).map(|part| {
            window(part).map_err(|why| TimetableError { window: part.to_owned(), why })
        });
        let windows: Vec<Window> = windows.collect::<Result<_, _>>()?;
        if windows.is_empty() || windows.len() > WINDOWS_MAX {
            let why = format!("{} windows; from 1 to {WINDOWS_MAX} are possible", windows.len());
            return Err(TimetableError { window: String::new(), why });
        }
        Ok(Self { windows })
    }
}

fn window(text: &str) -> Result<Window, String> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let (days, times, rate) = match words[..] {
        [times, rate] => (None, times, rate),
        [days, times, rate] => (Some(parse_days(days)?), times, rate),
        _ => return Err("days, times and rate are expected".to_owned()),
    };
    let (from, to) = times.split_once('-').ok_or("no '-' between two times")?;
    let time = |text: &str| time_of_day(text).ok_or_else(|| format!("'{text}' is not HH:MM"));
    let to = if to == "24:00" { None } else { Some(time(to)?) };
    let rate = match rate {
        "none" => None,
        rate => Some(rate.parse::<Rate>().map_err(|error| error.to_string())?),
    };
    Ok(Window { days, from: time(from)?, to, rate })
}

fn parse_days(text: &str) -> Result<(Weekday, Weekday), String> {
    let day = |name: &str| {
        let days = [
            ("mon", Weekday::Monday),
            ("tue", Weekday::Tuesday),
            ("wed", Weekday::Wednesday),
            ("thu", Weekday::Thursday),
            ("fri", Weekday::Friday),
            ("sat", Weekday::Saturday),
            ("sun", Weekday::Sunday),
        ];
        let found = days.iter().find(|(short, _)| name.eq_ignore_ascii_case(short));
        found.map(|(_, day)| *day).ok_or_else(|| format!("'{name}' is none of Mon to Sun"))
    };
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    Ok((day(first)?, day(last)?))
}

impl Window {
    /// Whether the window contains this time of a day of the week.
    fn contains(&self, day: Weekday, time: Time) -> bool {
        let starts_on = |day: Weekday| {
            self.days.is_none_or(|(first, last)| {
                first.until(day).unsigned_abs() <= first.until(last).unsigned_abs()
            })
        };
        match self.to {
            Some(to) if to <= self.from => {
                time >= self.from && starts_on(day) || time < to && starts_on(day.previous())
            }
            to => time >= self.from && to.is_none_or(|to| time < to) && starts_on(day),
        }
    }
}

impl Timetable {
    /// Returns the limit at this time in milliseconds since 1970, in the time zone of the system.
    pub fn limit(&self, now_ms: i64) -> Option<Rate> {
        self.in_zone(now_ms, TimeZone::system())
    }

    fn in_zone(&self, now_ms: i64, zone: TimeZone) -> Option<Rate> {
        let now = zoned(now_ms, zone)?;
        let (day, time) = (now.weekday(), now.time());
        self.windows.iter().find(|window| window.contains(day, time))?.rate
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2026-11-23 00:00 UTC, a Monday.
    const MONDAY: i64 = 1_795_392_000_000;

    /// Returns the limit in Mb/s on a day of that week, 0 without a limit.
    fn limit(table: &str, day: i64, time: &str) -> u64 {
        let table: Timetable = table.parse().unwrap();
        let (hour, minute) = time.split_once(':').unwrap();
        let minutes = hour.parse::<i64>().unwrap() * 60 + minute.parse::<i64>().unwrap();
        let at = MONDAY + day * 86_400_000 + minutes * 60_000;
        table.in_zone(at, TimeZone::UTC).map_or(0, |rate| rate.0 / 1_000_000)
    }

    #[test]
    fn the_first_window_that_contains_the_time_applies() {
        let table = "12:00-13:00 none, 08:00-18:00 100M # by day\n18:00-24:00 500M";
        let limits = ["07:59", "08:00", "12:30", "13:00", "17:59", "18:00", "23:59"]
            .map(|time| limit(table, 2, time));
        assert_eq!(limits, [0, 100, 0, 100, 100, 500, 500]);
    }

    #[test]
    fn a_window_over_midnight_belongs_to_the_day_of_its_start() {
        let table = "Fri 22:00-06:00 50M";
        assert_eq!([3, 4, 5].map(|day| limit(table, day, "23:00")), [0, 50, 0]);
        assert_eq!([4, 5, 6].map(|day| limit(table, day, "05:59")), [0, 50, 0]);
    }

    #[test]
    fn days_are_single_or_ranges_also_over_the_end_of_the_week() {
        let on = |days: &str| -> Vec<i64> {
            (0..7)
                .filter(|day| limit(&format!("{days} 08:00-18:00 1M"), *day, "09:00") == 1)
                .collect()
        };
        assert_eq!(on("Mon-Fri"), [0, 1, 2, 3, 4]);
        assert_eq!(on("sat"), [5]);
        assert_eq!(on("Sat-Mon"), [0, 5, 6]);
        assert_eq!(on("Mon-Sun"), [0, 1, 2, 3, 4, 5, 6]);
    }

    #[test]
    fn invalid_windows_are_refused_with_the_reason() {
        for (text, why) in [
            ("", "0 windows"),
            ("08:00 100M", "no '-'"),
            ("08:00-25:00 100M", "'25:00'"),
            ("08:00-18:00 fast", "'fast'"),
            ("Mun 08:00-18:00 1M", "'Mun'"),
            ("08:00-18:00", "expected"),
        ] {
            let error = text.parse::<Timetable>().unwrap_err().to_string();
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
