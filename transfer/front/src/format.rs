//! Formatting of remote files for users, one line each.

use std::borrow::Cow;

use sabul::files::{Facts, SeenKind};
use sabul_units::show_bytes;
use time::OffsetDateTime;

/// Returns the word for a kind in JSON documents.
pub const fn word(kind: SeenKind) -> &'static str {
    match kind {
        SeenKind::File => "file",
        SeenKind::Directory => "directory",
        SeenKind::Link => "link",
        SeenKind::Other => "other",
    }
}

/// Formats a time in UTC to the second, as `2026-11-23 02:45:56Z`. `None` outside the years 1678 to
/// 2262.
pub fn time(modified_ns: Option<i64>) -> Option<String> {
    let time = OffsetDateTime::from_unix_timestamp_nanos(modified_ns?.into()).ok()?;
    let (date, hours, minutes, seconds) = (time.date(), time.hour(), time.minute(), time.second());
    Some(format!(
        "{:04}-{:02}-{:02} {hours:02}:{minutes:02}:{seconds:02}Z",
        date.year(),
        u8::from(date.month()),
        date.day()
    ))
}

/// Formats kind and permission bits like `ls -l`, such as `drwxr-xr-x`.
pub fn bits(facts: &Facts) -> String {
    let mut text = String::with_capacity(10);
    text.push(match facts.kind {
        SeenKind::File => '-',
        SeenKind::Directory => 'd',
        SeenKind::Link => 'l',
        SeenKind::Other => '?',
    });
    for (shift, special, letter) in [(6, 0o4000, 's'), (3, 0o2000, 's'), (0, 0o1000, 't')] {
        let bit = |bit: u32, letter| if facts.mode >> shift & bit != 0 { letter } else { '-' };
        text.push(bit(4, 'r'));
        text.push(bit(2, 'w'));
        text.push(match (facts.mode & special != 0, facts.mode >> shift & 1 != 0) {
            (true, true) => letter,
            (true, false) => letter.to_ascii_uppercase(),
            (false, true) => 'x',
            (false, false) => '-',
        });
    }
    text
}

/// Returns a name for a listing: a directory with a trailing `/`, and without the listed place in
/// front.
pub fn name<'a>(path: &'a str, facts: &Facts, place: Option<&str>) -> Cow<'a, str> {
    let short = place.and_then(|place| {
        let rest = path.strip_prefix(place.trim_end_matches('/'))?.trim_start_matches('/');
        (!rest.is_empty()).then_some(rest)
    });
    let path = short.unwrap_or(path);
    match facts.kind {
        SeenKind::Directory if !path.ends_with('/') => format!("{path}/").into(),
        _ => path.into(),
    }
}

/// Formats the columns before the name: permission bits, numeric owner and group, size, time.
pub fn facts(facts: &Facts) -> String {
    format!(
        "{} {:>5} {:>5} {:>10} {:<20}",
        bits(facts),
        facts.owner,
        facts.group,
        show_bytes(facts.size),
        time(facts.modified_ns).unwrap_or_else(|| "-".to_owned())
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_facts_are_formatted_like_ls() {
        let mut some = Facts {
            mode: 0o1755,
            group: 100,
            ..Facts::new(SeenKind::Directory, 4096, Some(1_795_401_956_000_000_000))
        };
        assert_eq!(bits(&some), "drwxr-xr-t");
        assert_eq!(time(some.modified_ns).unwrap(), "2026-11-23 02:45:56Z");
        assert_eq!(name("data/x", &some, Some("data/")), "x/");
        assert_eq!(name("data", &some, Some("data")), "data/");
        some.kind = SeenKind::File;
        some.mode = 0o4644;
        assert_eq!(bits(&some), "-rwSr--r--");
        assert_eq!(name("a/b", &some, None), "a/b");
        assert_eq!(time(Some(i64::MIN)).unwrap(), "1677-09-21 00:12:43Z");
        assert_eq!(time(None), None);
    }
}
