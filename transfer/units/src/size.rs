//! Parser and formatter for byte sizes.

/// Units by the letter before `iB` or `B`, with their powers of 1024 and of 1000.
const UNITS: [(char, u64, u64); 4] = [
    ('k', 1 << 10, 1_000),
    ('m', 1 << 20, 1_000_000),
    ('g', 1 << 30, 1_000_000_000),
    ('t', 1 << 40, 1_000_000_000_000),
];

/// Parses a size in bytes such as `4096`, `512M`, `512MiB` or `1.5GB`. `K M G T` and `KiB …` are
/// powers of 1024, `kB …` powers of 1000.
///
/// # Errors
/// If the text is not a size of at least one byte; the error text explains the format.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    let fail = || {
        format!(
            "'{text}' is not a size: write bytes as a positive number, with K, M, G, T or KiB, \
             MiB … (powers of 1024) or kB, MB … (powers of 1000), such as 512M"
        )
    };
    let lower = text.trim().to_ascii_lowercase();
    let split = lower.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(lower.len());
    let (number, unit) = lower.split_at(split);
    let unit = unit.trim();
    let factor = if matches!(unit, "" | "b") {
        1
    } else {
        let (letter, binary, decimal) =
            UNITS.into_iter().find(|(letter, ..)| unit.starts_with(*letter)).ok_or_else(fail)?;
        match unit.strip_prefix(letter) {
            Some("" | "ib") => binary,
            Some("b") => decimal,
            _ => return Err(fail()),
        }
    };
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(factor).filter(|&bytes| bytes > 0).ok_or_else(fail);
    }
    let bytes = number.parse::<f64>().map_err(|_| fail())? * factor as f64;
    // 2^53: up to this value a floating-point number holds every whole byte.
    if !(1.0..=9_007_199_254_740_992.0).contains(&bytes) {
        return Err(fail());
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "range checked")]
    Ok(bytes as u64)
}

/// Formats bytes with a binary unit, such as `1.5 GiB`.
pub fn show_bytes(bytes: u64) -> String {
    let names = ["KiB", "MiB", "GiB", "TiB"];
    let unit = UNITS.iter().zip(names).rev().find(|((_, binary, _), _)| bytes >= *binary);
    match unit {
        Some(((_, binary, _), name)) => format!("{:.1} {name}", bytes as f64 / *binary as f64),
        None => format!("{bytes} B"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_distinguish_powers_of_1024_and_of_1000() {
        for (text, bytes) in [
            ("4096", 4096),
            ("1B", 1),
            ("512M", 512 << 20),
            ("512MiB", 512 << 20),
            ("512 mib", 512 << 20),
            ("512MB", 512_000_000),
            ("1kB", 1000),
            ("1K", 1024),
            ("1.5G", 3 << 29),
            ("2TiB", 2 << 40),
        ] {
            assert_eq!(parse_bytes(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn an_invalid_size_is_refused_with_an_example() {
        for text in
            ["", "0", "-1", "M", "1X", "1MBit", "1..5M", "nan", "99999999999999999999", "0.5"]
        {
            assert!(parse_bytes(text).is_err_and(|error| error.contains("512M")), "{text}");
        }
    }

    #[test]
    fn sizes_are_shown_with_their_unit() {
        assert_eq!(show_bytes(1023), "1023 B");
        assert_eq!(show_bytes(3 << 29), "1.5 GiB");
    }
}
