//! Parser for parameter files in TOML.
//!
//! ```toml
//! set = "pr0"              # every value of a published set; keys below override single ones
//! service_mbps = 900
//! variant = "full"         # or "recursion"
//! equation3 = false        # whether a loss on target adds d to the gap
//! ```
//!
//! All other keys are those of [`Key`]. Errors name line, key, value and the allowed values.

use sabul_units::nearest;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::params::{Builder, Key, Params, ParamsError, Set, Variant, check_range};

/// Keys whose values are not numbers.
pub(crate) const WORDS: [&str; 3] = ["set", "variant", "equation3"];

/// Reads a parameter file.
///
/// # Errors
/// If the text is not TOML, a key is unknown, or a value is missing or out of range.
///
/// ```
/// let params = sabul_model::file::read_params("set = 'pr1'\nalpha = 0.002")?;
/// assert_eq!(params.alpha(), 0.002);
/// let error = sabul_model::file::read_params("set = 'pr1'\nalhpa = 0.002").unwrap_err();
/// assert_eq!(error.to_string(), "line 2: there is no key 'alhpa': did you mean 'alpha'?");
/// # Ok::<(), sabul_model::ParamsError>(())
/// ```
pub fn read_params(text: &str) -> Result<Params, ParamsError> {
    let table = parse(text)?;
    let mut builder = Params::builder();
    let mut given = Vec::new();
    for (name, value) in table.get_ref() {
        let line = line_of(text, name.span().start);
        let name = name.get_ref().as_ref();
        if let Some(key) = Key::find(name) {
            let value = number(name, value).map_err(|error| at(line, error))?;
            check_range(key, value).map_err(|error| at(line, error))?;
            builder = builder.with(key, value);
            given.push((key, line));
        } else {
            builder = word(builder, name, value, &[]).map_err(|error| at(line, error))?;
        }
    }
    reject_duplicates(&given)?;
    builder.build().map_err(|error| place(error, &given))
}

/// Parses TOML. An error is one sentence with its line.
pub(crate) fn parse(text: &str) -> Result<Spanned<DeTable<'_>>, ParamsError> {
    DeTable::parse(text).map_err(|error| ParamsError {
        line: error.span().map(|span| line_of(text, span.start)),
        message: format!("this is not TOML: {}", error.message()),
    })
}

/// Returns the line of a byte, from 1.
pub(crate) fn line_of(text: &str, byte: usize) -> usize {
    text.bytes().take(byte).filter(|&b| b == b'\n').count() + 1
}

/// Adds the line to an error, unless the error already has a line.
pub(crate) fn at(line: usize, error: ParamsError) -> ParamsError {
    ParamsError { line: error.line.or(Some(line)), ..error }
}

/// Finds the line of an error of the builder, whose message begins with the name of the key.
fn place(error: ParamsError, given: &[(Key, usize)]) -> ParamsError {
    let line = given
        .iter()
        .filter(|(key, _)| error.message.starts_with(&format!("{} =", key.name())))
        .map(|&(_, line)| line)
        .next();
    ParamsError { line, ..error }
}

/// Rejects a quantity that is given both as a value and as a share.
pub(crate) fn reject_duplicates(given: &[(Key, usize)]) -> Result<(), ParamsError> {
    for &(key, line) in given {
        let twin = given.iter().find(|(other, _)| key.twin() == Some(*other));
        if let Some((twin, other)) = twin {
            let (name, twin) = (key.name(), twin.name());
            let message = format!("'{name}' says what '{twin}' in line {other} says: remove one");
            return Err(ParamsError { line: Some(line), message });
        }
    }
    Ok(())
}

/// Parses a number, whole or not.
pub(crate) fn number(name: &str, value: &Spanned<DeValue<'_>>) -> Result<f64, ParamsError> {
    let found = match value.get_ref() {
        DeValue::Integer(number) if number.radix() == 10 => number.as_str().parse().ok(),
        DeValue::Float(number) => number.as_str().parse().ok(),
        _ => None,
    };
    found.ok_or_else(|| {
        let kind = value.get_ref().type_str();
        ParamsError::new(format!("'{name}' has to be a number, and this is a {kind}"))
    })
}

/// Parses a whole number from `least` to `most`.
pub(crate) fn whole(
    name: &str,
    value: &Spanned<DeValue<'_>>,
    least: u64,
    most: u64,
) -> Result<u64, ParamsError> {
    let found = match value.get_ref() {
        DeValue::Integer(number) if number.radix() == 10 => number.as_str().parse::<u64>().ok(),
        _ => None,
    };
    found.filter(|number| (least..=most).contains(number)).ok_or_else(|| {
        ParamsError::new(format!("'{name}' has to be a whole number from {least} to {most}"))
    })
}

/// Parses a word out of a list.
pub(crate) fn text<'a>(
    name: &str,
    value: &'a Spanned<DeValue<'_>>,
    allowed: &str,
) -> Result<&'a str, ParamsError> {
    value.get_ref().as_str().ok_or_else(|| {
        let kind = value.get_ref().type_str();
        ParamsError::new(format!("'{name}' has to be one of {allowed}, and this is a {kind}"))
    })
}

/// Sets one of [`WORDS`] in the builder, or rejects the key. `others` are further keys that the
/// file may contain.
pub(crate) fn word(
    builder: Builder,
    name: &str,
    value: &Spanned<DeValue<'_>>,
    others: &[&'static str],
) -> Result<Builder, ParamsError> {
    let not_one_of = |value: &str, allowed: &str| {
        ParamsError::new(format!("{name} = \"{value}\" is not allowed: it is one of {allowed}"))
    };
    match name {
        "set" => {
            let word = text(name, value, SETS)?;
            let set = Set::find(word).ok_or_else(|| not_one_of(word, SETS))?;
            Ok(builder.with_set(set))
        }
        "variant" => match text(name, value, VARIANTS)? {
            "recursion" => Ok(builder.with_variant(Variant::Recursion)),
            "full" => Ok(builder.with_variant(Variant::Full)),
            word => Err(not_one_of(word, VARIANTS)),
        },
        "equation3" => match value.get_ref().as_bool() {
            Some(is_applied) => Ok(builder.with_equation3(is_applied)),
            None => Err(ParamsError::new("'equation3' has to be true or false")),
        },
        _ => Err(unknown(name, others)),
    }
}

const SETS: &str = "\"pr0\", \"pr1\"";
const VARIANTS: &str = "\"recursion\", \"full\"";

fn unknown(name: &str, others: &[&'static str]) -> ParamsError {
    let names = Key::ALL.into_iter().map(Key::name).chain(WORDS).chain(others.iter().copied());
    let names: Vec<&str> = names.collect();
    let hint = nearest(name, &names).map_or_else(
        || format!("; the keys are {}", names.join(", ")),
        |known| format!(": did you mean '{known}'?"),
    );
    ParamsError::new(format!("there is no key '{name}'{hint}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        read_params(text).unwrap_err().to_string()
    }

    #[test]
    fn single_values_override_a_set_before_or_after_it() {
        for text in ["service_mbps = 900\nset = 'pr0'", "set = 'pr0'\nservice_mbps = 9e2"] {
            let params = read_params(text).unwrap();
            assert!((params.value(Key::ServiceMbps) - 900.0).abs() < 1e-9);
            assert!((params.value(Key::K2) - 10.0).abs() < 1e-9);
        }
    }

    #[test]
    fn every_key_can_be_written_and_is_read_back() {
        let written = "capacity_mbps = 2_000\nservice_mbps = 700.5\npacket_bits = 9000\n\
            queue_packets = 50\nround_ms = 10\nk1 = 0.2\nk2 = 20\nalpha = 0.01\nc_us = 0.25\n\
            d_us = 0.5\nrate_mbps_initial = 10\nrate_mbps_initial_second = 20\n\
            feedback_lag_rounds = 1\nvariant = 'full'\nequation3 = true\n";
        let params = read_params(written).unwrap();
        for line in written.lines() {
            let (name, value) = line.split_once(" = ").unwrap();
            if let Some(key) = Key::find(name) {
                let value: f64 = value.replace('_', "").parse().unwrap();
                assert!((params.value(key) - value).abs() < 1e-12, "{line}");
            }
        }
        assert_eq!((params.variant(), params.equation3()), (Variant::Full, true));
        let again = params.to_string().replace(", ", "\n");
        assert_eq!(read_params(&again).unwrap(), params);
    }

    #[test]
    fn errors_name_line_key_value_and_range() {
        assert_eq!(
            error("set = 'pr0'\n\nk2 = -1"),
            "line 3: k2 = -1 is not allowed: it goes from 0.000000001 to 1000000"
        );
        assert_eq!(
            error("set = 'pr0'\nservice_mbps = 2000"),
            "line 2: service_mbps = 2000 is not allowed: it has to be below capacity_mbps = 1000"
        );
        assert_eq!(
            error("set = 'pr2'"),
            "line 1: set = \"pr2\" is not allowed: it is one of \"pr0\", \"pr1\""
        );
        assert_eq!(
            error("set = 'pr0'\nk1 = 'x'"),
            "line 2: 'k1' has to be a number, and this is a string"
        );
        assert!(error("set = 'pr0'\nk1 = nan").starts_with("line 2: k1 = NaN is not allowed"));
        assert!(error("set = 'pr0'\nequation3 = 1").contains("true or false"));
    }

    #[test]
    fn an_unknown_key_names_the_nearest() {
        assert!(error("set = 'pr0'\nservise_mbps = 1").ends_with("did you mean 'service_mbps'?"));
        assert!(error("varient = 'full'").ends_with("did you mean 'variant'?"));
    }

    #[test]
    fn a_quantity_given_twice_is_refused() {
        let message = error("set = 'pr0'\nservice_mbps = 1\nservice_share = 0.1");
        assert!(message.contains("'service_share'") && message.contains("remove one"), "{message}");
    }

    #[test]
    fn invalid_toml_is_refused_with_its_line() {
        assert!(error("set = 'pr0'\nk1 = = 2").starts_with("line 2: this is not TOML"));
        for junk in ["\u{0}", "[[[", "k1", "= 1", "k1 = 1\nk1 = 2"] {
            assert!(read_params(junk).is_err(), "{junk:?}");
        }
    }
}
