//! Number formatting: significant digits, SI prefixes, no `-0`.

/// Largest magnitude that is drawn. Beyond this limit, differences of two values could overflow.
pub(crate) const LARGEST: f64 = 1e150;

/// Units that take SI prefixes. All other units stay unchanged.
const BASE_UNITS: &[&str] =
    &["b/s", "bit/s", "bps", "B/s", "b", "bit", "B", "s", "Hz", "pkt/s", "W", "J"];

/// Prefixes and their powers of ten.
const PREFIXES: &[(&str, i32)] = &[
    ("n", -9),
    ("µ", -6),
    ("u", -6),
    ("m", -3),
    ("", 0),
    ("k", 3),
    ("M", 6),
    ("G", 9),
    ("T", 12),
    ("P", 15),
];

/// Returns whether a value can be drawn and written.
pub(crate) fn usable(value: f64) -> bool {
    value.is_finite() && value.abs() <= LARGEST
}

/// Returns the power of ten at or below a positive value; within ±400 for any other value.
pub(crate) fn decade(value: f64) -> i32 {
    let guess = whole(value.log10().floor()).clamp(-400, 400);
    // log10 may be slightly below a whole number; the next power decides.
    if value >= 10f64.powi(guess + 1) { guess + 1 } else { guess }
}

/// Returns the nearest whole number.
#[expect(clippy::cast_possible_truncation, reason = "saturates, NaN becomes 0")]
pub(crate) fn whole(value: f64) -> i32 {
    value.round() as i32
}

/// Returns the whole part of a list position; 0 for a negative position.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "saturates at both ends, NaN becomes 0"
)]
pub(crate) fn index(value: f64) -> usize {
    value as usize
}

/// Formats a value with a fixed number of decimals, never as `-0`.
pub(crate) fn fixed(value: f64, decimals: usize) -> String {
    let text = format!("{value:.decimals$}");
    match text.strip_prefix('-') {
        Some(rest) if rest.chars().all(|c| c == '0' || c == '.') => rest.to_owned(),
        _ => text,
    }
}

/// Formats a value with this number of significant digits and no trailing zeros; `–` if it is not
/// finite. Values from 10^7 and below 10^-4 have an exponent. Whole parts are never rounded.
///
/// # Examples
/// ```
/// assert_eq!(sabul_report::significant(439.96, 4), "440");
/// assert_eq!(sabul_report::significant(0.012345, 3), "0.0123");
/// assert_eq!(sabul_report::significant(f64::NAN, 4), "–");
/// ```
#[must_use]
pub fn significant(value: f64, digits: usize) -> String {
    if !value.is_finite() {
        return "–".to_owned();
    }
    let size = value.abs();
    if size <= f64::MIN_POSITIVE {
        return "0".to_owned();
    }
    let digits = digits.clamp(1, 15);
    let power = decade(size);
    if (-4..7).contains(&power) {
        let wanted = i32::try_from(digits).unwrap_or(15) - 1 - power;
        return trimmed(&fixed(value, usize::try_from(wanted).unwrap_or(0)));
    }
    let text = format!("{value:.*e}", digits - 1);
    match text.split_once('e') {
        Some((mantissa, exponent)) => format!("{}e{exponent}", trimmed(mantissa)),
        None => text,
    }
}

/// Removes trailing zeros of the fraction.
fn trimmed(text: &str) -> String {
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text.to_owned()
    }
}

/// Formats a value with its unit and the best prefix: `440 Mb/s` for 4.4e8 `b/s`.
///
/// The unit stays unchanged if the number is readable without a prefix, or if the unit takes no SI
/// prefix.
///
/// # Examples
/// ```
/// assert_eq!(sabul_report::quantity(4.4e8, "b/s"), "440 Mb/s");
/// assert_eq!(sabul_report::quantity(0.00012, "s"), "120 µs");
/// assert_eq!(sabul_report::quantity(12.0, "flows"), "12 flows");
/// ```
#[must_use]
pub fn quantity(value: f64, unit: &str) -> String {
    let shown = Unit::for_size(unit, value);
    let number = significant(value / shown.divisor, 4);
    if shown.name.is_empty() { number } else { format!("{number} {}", shown.name) }
}

/// The unit shown instead of the caller's unit, and the divisor of the values.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Unit {
    /// Shown value = caller's value ÷ this.
    pub(crate) divisor: f64,
    /// The shown unit; may be empty.
    pub(crate) name: String,
}

impl Unit {
    /// Returns the caller's unit.
    pub(crate) fn plain(unit: &str) -> Self {
        Self { divisor: 1.0, name: unit.to_owned() }
    }

    /// Returns the best unit for values up to this size: the caller's unit from 1 to 10,000,
    /// otherwise the prefix that leaves one to three digits.
    pub(crate) fn for_size(unit: &str, largest: f64) -> Self {
        let size = largest.abs();
        let own = Self::plain(unit);
        if !usable(size) || size <= f64::MIN_POSITIVE || (1.0..1e4).contains(&size) {
            return own;
        }
        let Some((power, base)) = split(unit) else { return own };
        // Millibits do not exist, and kiloseconds are not used.
        let (least, most) = match base {
            "s" => (-9, 0),
            "W" | "J" => (-9, 15),
            _ => (0, 15),
        };
        let best = ((decade(size) + power).div_euclid(3) * 3).clamp(least, most);
        let found = PREFIXES.iter().find(|(prefix, p)| *p == best && *prefix != "u");
        found.map_or(own, |(prefix, _)| Self {
            divisor: 10f64.powi(best - power),
            name: format!("{prefix}{base}"),
        })
    }
}

/// Returns the power of ten of a unit's prefix, and the unit without the prefix.
fn split(unit: &str) -> Option<(i32, &str)> {
    PREFIXES
        .iter()
        .filter_map(|(prefix, power)| Some((*power, unit.strip_prefix(prefix)?)))
        .find(|(_, base)| BASE_UNITS.contains(base))
}

/// Replaces `-` by the typographic minus, for pictures.
pub(crate) fn minus(text: &str) -> String {
    text.replace('-', "−")
}

/// Formats a number with a suffix instead of thousands: `1.5k`, `20M`.
pub(crate) fn short(value: f64) -> String {
    let size = value.abs();
    if !(1e4..1e18).contains(&size) {
        return significant(value, 4);
    }
    let power = decade(size).div_euclid(3) * 3;
    format!("{}{}", significant(value / 10f64.powi(power), 4), suffix(power))
}

/// Returns the letter of a power of ten that is a multiple of three.
pub(crate) fn suffix(power: i32) -> &'static str {
    PREFIXES.iter().find(|(_, p)| *p == power).map_or("", |(prefix, _)| prefix)
}

/// Estimates the width of a text in a proportional sans-serif font, in units of the font size. The
/// estimate is on the wide side, because no font file is read.
pub(crate) fn text_width(text: &str) -> f64 {
    text.chars()
        .map(|c| match c {
            'i' | 'j' | 'l' | '.' | ',' | ':' | ';' | '\'' | '|' | '!' => 0.32,
            ' ' | 'f' | 't' | 'r' | '(' | ')' | '[' | ']' | '/' | '-' | 'I' => 0.40,
            'm' | 'w' | 'M' | 'W' | '@' | '%' => 0.95,
            'A'..='Z' | '−' | '+' | '=' | '<' | '>' | '×' => 0.72,
            c if c.is_ascii() => 0.61,
            c if u32::from(c) < 0x1100 => 0.65,
            _ => 1.05,
        })
        .sum()
}

/// Returns as much of a text as fits in a width, with `…` at the cut.
pub(crate) fn shortened(text: &str, size: f64, room: f64) -> String {
    if text_width(text) * size <= room {
        return text.to_owned();
    }
    let mut kept = String::new();
    let mut used = text_width("…") * size;
    for c in text.chars() {
        used += text_width(c.encode_utf8(&mut [0; 4])) * size;
        if used > room {
            break;
        }
        kept.push(c);
    }
    format!("{}…", kept.trim_end())
}

/// Breaks a text into at most `most` lines of a width. Lines that are too long are shortened.
pub(crate) fn wrapped(text: &str, size: f64, room: f64, most: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        let full = lines.len() >= most;
        match lines.last_mut() {
            Some(line) if full || text_width(&format!("{line} {word}")) * size <= room => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines.iter().map(|line| shortened(line, size, room)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_four_digits_and_all_of_the_integer_part() {
        for (value, text) in [
            (0.0, "0"),
            (-0.0, "0"),
            (440.0, "440"),
            (0.99999, "1"),
            (123_456.0, "123456"),
            (-1.5, "-1.5"),
            (1e12, "1e12"),
            (1.25e-9, "1.25e-9"),
            (f64::INFINITY, "–"),
        ] {
            assert_eq!(significant(value, 4), text);
        }
    }

    #[test]
    fn a_unit_prefix_leaves_one_to_three_integer_digits() {
        for (value, unit, text) in [
            (4.4e8, "b/s", "440 Mb/s"),
            (9.4e9, "bit/s", "9.4 Gbit/s"),
            (1e12, "b/s", "1 Tb/s"),
            (25_000.0, "Mb/s", "25 Gb/s"),
            (940.0, "Mb/s", "940 Mb/s"),
            (0.012, "s", "12 ms"),
            (0.5, "Mb/s", "500 kb/s"),
            (0.004, "ms", "4 µs"),
            (86_400.0, "s", "86400 s"),
            (0.001, "b/s", "0.001 b/s"),
            (50_000.0, "flows", "50000 flows"),
            (f64::NAN, "b/s", "– b/s"),
            (3.0, "", "3"),
        ] {
            assert_eq!(quantity(value, unit), text);
        }
    }

    #[test]
    fn powers_of_ten_are_their_own_decade() {
        for power in -20..20 {
            assert_eq!(decade(10f64.powi(power)), power);
            assert_eq!(decade(9.99 * 10f64.powi(power)), power);
        }
    }

    #[test]
    fn a_negative_number_rounded_to_zero_has_no_sign() {
        assert_eq!(fixed(-0.001, 1), "0.0");
        assert_eq!(fixed(-0.06, 1), "-0.1");
    }

    #[test]
    fn long_texts_are_truncated_to_the_available_width() {
        assert_eq!(shortened("abc", 10.0, 100.0), "abc");
        let cut = shortened(&"x".repeat(100), 10.0, 100.0);
        assert!(cut.ends_with('…') && text_width(&cut) * 10.0 <= 100.0, "{cut}");
        assert_eq!(shortened("abc", 10.0, 0.0), "…");
    }

    #[test]
    fn texts_break_between_words() {
        assert_eq!(wrapped("one two three", 10.0, 45.0, 3), ["one two", "three"]);
        assert_eq!(wrapped("one two three", 10.0, 45.0, 1), ["one t…"]);
        assert!(wrapped("  ", 10.0, 45.0, 2).is_empty());
    }
}
