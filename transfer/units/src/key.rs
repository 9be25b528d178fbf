//! Keys of configuration files: name, type, bounds, default, owners, meaning and target field.
//!
//! A [`Key`] stands next to the field that it fills and is the only source of this information. The
//! parser, error messages, arms and the manual all read the key.

use std::fmt;

use crate::{Probability, Rate, Span};

/// Picoseconds in a second.
const PS_PER_S: f64 = 1e12;
/// Picoseconds in a millisecond.
const PS_PER_MS: f64 = 1e9;

/// Range of allowed numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Range {
    /// Lower bound.
    pub low: f64,
    /// Upper bound; allowed.
    pub high: f64,
    /// Whether the lower bound itself is allowed.
    pub is_low_allowed: bool,
}

impl Range {
    /// Creates a range from `low` to `high`, both allowed.
    pub const fn of(low: f64, high: f64) -> Self {
        Self { low, high, is_low_allowed: true }
    }
    /// Creates a range above `low`, up to and including `high`.
    pub const fn over(low: f64, high: f64) -> Self {
        Self { low, high, is_low_allowed: false }
    }
    /// Whether the range contains `number`.
    pub fn contains(&self, number: f64) -> bool {
        (self.low..=self.high).contains(&number) && (self.is_low_allowed || number > self.low)
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { low, high, is_low_allowed } = self;
        if *is_low_allowed {
            write!(f, "from {low} to {high}")
        } else {
            write!(f, "over {low} up to {high}")
        }
    }
}

/// Type and bounds of a key's value, and the setter of its field.
#[derive(Debug)]
pub enum Takes<T: 'static> {
    /// A number.
    Number(Range, fn(&mut T, f64)),
    /// A whole number; both bounds are allowed.
    Whole(u64, u64, fn(&mut T, u64)),
    /// A whole number of at most 32 bits; both bounds are allowed.
    Whole32(u32, u32, fn(&mut T, u32)),
    /// A rate in megabits per second.
    Mbps(Range, fn(&mut T, Rate)),
    /// A time in milliseconds.
    Millis(Range, fn(&mut T, Span)),
    /// A time in seconds.
    Seconds(Range, fn(&mut T, Span)),
    /// A probability. Where the range starts above zero, the value must also be above zero after
    /// rounding to parts per billion.
    Chance(Range, fn(&mut T, Probability)),
    /// True or false.
    Flag(fn(&mut T, bool)),
    /// One of these words.
    Word(&'static [&'static str], fn(&mut T, &'static str)),
    /// One of the words that the function returns.
    Name(fn() -> &'static [&'static str], fn(&mut T, &'static str)),
    /// Any of these words, in a list.
    Words(&'static [&'static str], fn(&mut T, &'static str)),
    /// A table with its own keys: a function that lists the keys, and an example.
    Table(fn() -> Vec<&'static str>, &'static str),
    /// A table from flow names to whole numbers, both bounds allowed. The setter receives the
    /// flow's position.
    ByFlow(u32, u32, fn(&mut T, u32, u32)),
    /// A table with the keys of a controller.
    Map,
    /// A value with its own parser; the text describes the allowed values.
    Own(&'static str),
}

/// Value that applies where a key is not given.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Unset {
    /// The key is required; the text describes the value.
    Required(&'static str),
    /// A number, in the key's unit.
    Number(f64),
    /// True or false.
    Flag(bool),
    /// A word.
    Word(&'static str),
    /// A default that depends on other settings, in words; empty where there is no default.
    Said(&'static str),
}

/// A value as parsed from a file.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Given<'a> {
    /// A whole number.
    Integer(i64),
    /// Any other number.
    Float(f64),
    /// True or false.
    Flag(bool),
    /// A text.
    Text(&'a str),
    /// Anything else.
    Other,
}

/// Why a value is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The value has the wrong type.
    Type,
    /// The value is out of range.
    Range,
    /// The value is above zero, but rounds to zero.
    TooSmall,
    /// The value is none of the allowed words.
    Word,
}

/// Allowed values of a key, for tests of the bounds and for the manual.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bounds {
    /// Any number in a range.
    Number(Range),
    /// A whole number; both bounds are allowed.
    Whole(u64, u64),
    /// True or false.
    Flag,
    /// One of these words.
    Words(&'static [&'static str]),
    /// A whole number for each flow; both bounds are allowed.
    ByFlow(u32, u32),
    /// A table.
    Table,
    /// Another kind of value, described in words.
    Said(&'static str),
}

/// A setting that the lab does not support.
#[derive(Debug)]
pub struct NotInLab<T: 'static> {
    /// Returns whether the target uses the setting.
    pub is_requested: fn(&T) -> bool,
    /// Why the setting is unsupported, and an alternative.
    pub why: &'static str,
}

/// One key of a file; values go into a `T`.
#[derive(Debug)]
pub struct Key<T: 'static> {
    /// Name, which ends in the unit.
    pub name: &'static str,
    /// Type, bounds and setter of the value.
    pub takes: Takes<T>,
    /// Default.
    pub unset: Unset,
    /// Transports, disciplines or kinds to which the key belongs; empty for all.
    pub owners: &'static [&'static str],
    /// Advice for a use of the key where the key does not belong.
    pub elsewhere: &'static str,
    /// Keys that cannot be given together with this key.
    pub rivals: &'static [&'static str],
    /// Settings of this key that the lab does not support.
    pub not_in_lab: Option<NotInLab<T>>,
    /// Meaning, in a few words.
    pub doc: &'static str,
    /// Source of the default or the bounds.
    pub source: &'static str,
}

impl<T> Key<T> {
    /// Creates an optional key that belongs everywhere.
    pub const fn new(name: &'static str, takes: Takes<T>) -> Self {
        Self {
            name,
            takes,
            unset: Unset::Said(""),
            owners: &[],
            elsewhere: "remove this key",
            rivals: &[],
            not_in_lab: None,
            doc: "",
            source: "",
        }
    }
    /// Sets the meaning, in a few words.
    pub const fn doc(self, doc: &'static str) -> Self {
        Self { doc, ..self }
    }
    /// Makes the key required; `what` describes the value.
    pub const fn required(self, what: &'static str) -> Self {
        Self { unset: Unset::Required(what), ..self }
    }
    /// Sets a numeric default, in the key's unit.
    pub const fn or(self, number: f64) -> Self {
        Self { unset: Unset::Number(number), ..self }
    }
    /// Sets a default of true or false.
    pub const fn or_flag(self, flag: bool) -> Self {
        Self { unset: Unset::Flag(flag), ..self }
    }
    /// Sets a default word.
    pub const fn or_word(self, word: &'static str) -> Self {
        Self { unset: Unset::Word(word), ..self }
    }
    /// Describes a default that depends on other settings.
    pub const fn or_else(self, words: &'static str) -> Self {
        Self { unset: Unset::Said(words), ..self }
    }
    /// Sets the owners of the key.
    pub const fn of(self, owners: &'static [&'static str]) -> Self {
        Self { owners, ..self }
    }
    /// Sets the advice for a use of the key where the key does not belong.
    pub const fn elsewhere(self, elsewhere: &'static str) -> Self {
        Self { elsewhere, ..self }
    }
    /// Sets the keys that cannot be given together with this key.
    pub const fn against(self, rivals: &'static [&'static str]) -> Self {
        Self { rivals, ..self }
    }
    /// Declares settings that the lab does not support, and why.
    pub const fn not_in_lab(self, is_requested: fn(&T) -> bool, why: &'static str) -> Self {
        Self { not_in_lab: Some(NotInLab { is_requested, why }), ..self }
    }
    /// Sets the source of the default or the bounds.
    pub const fn source(self, source: &'static str) -> Self {
        Self { source, ..self }
    }

    /// Returns why the lab does not support this key's setting in `target`; `None` if supported.
    pub fn lab_refusal(&self, target: &T) -> Option<&'static str> {
        self.not_in_lab.as_ref().filter(|lab| (lab.is_requested)(target)).map(|lab| lab.why)
    }

    /// Returns the allowed values.
    pub fn bounds(&self) -> Bounds {
        match &self.takes {
            Takes::Number(range, _)
            | Takes::Mbps(range, _)
            | Takes::Millis(range, _)
            | Takes::Seconds(range, _)
            | Takes::Chance(range, _) => Bounds::Number(*range),
            Takes::Whole(low, high, _) => Bounds::Whole(*low, *high),
            Takes::Whole32(low, high, _) => Bounds::Whole((*low).into(), (*high).into()),
            Takes::Flag(_) => Bounds::Flag,
            Takes::Word(words, _) | Takes::Words(words, _) => Bounds::Words(words),
            Takes::Name(words, _) => Bounds::Words(words()),
            Takes::ByFlow(low, high, _) => Bounds::ByFlow(*low, *high),
            Takes::Table(..) | Takes::Map => Bounds::Table,
            Takes::Own(words) => Bounds::Said(words),
        }
    }

    /// Describes the allowed values, as text for error messages.
    pub fn allowed(&self) -> String {
        match self.bounds() {
            Bounds::Number(range) => format!("a number {range}"),
            Bounds::Whole(low, high) => format!("a whole number from {low} to {high}"),
            Bounds::Flag => "true or false".to_owned(),
            Bounds::Words(words) if matches!(self.takes, Takes::Words(..)) => {
                format!("a list of: {}", words.join(", "))
            }
            Bounds::Words(words) => format!("one of: {}", words.join(", ")),
            Bounds::ByFlow(low, high) => {
                format!("a table of whole numbers from {low} to {high}, such as {{ a = 2, b = 1 }}")
            }
            Bounds::Table => match self.takes {
                Takes::Table(_, example) => example.to_owned(),
                _ => "a table".to_owned(),
            },
            Bounds::Said(words) => words.to_owned(),
        }
    }

    /// Checks a value and stores it in its field.
    ///
    /// # Errors
    /// If the value is not allowed; nothing is stored then. Keys with their own parser and table
    /// keys are always rejected.
    pub fn put(&self, target: &mut T, given: Given<'_>) -> Result<(), Refused> {
        match &self.takes {
            Takes::Number(range, set) => set(target, number(given, *range)?),
            Takes::Whole(low, high, set) => set(target, whole(given, *low, *high)?),
            Takes::Whole32(low, high, set) => {
                let whole = whole(given, (*low).into(), (*high).into())?;
                set(target, u32::try_from(whole).map_err(|_| Refused::Range)?);
            }
            Takes::Mbps(range, set) => set(target, Rate(rounded(number(given, *range)? * 1e6))),
            Takes::Millis(range, set) => {
                set(target, Span(rounded(number(given, *range)? * PS_PER_MS)));
            }
            Takes::Seconds(range, set) => {
                set(target, Span(rounded(number(given, *range)? * PS_PER_S)));
            }
            Takes::Chance(range, set) => {
                let chance = Probability::new(number(given, *range)?);
                let chance = chance.map_err(|_| Refused::Range)?;
                if chance == Probability::ZERO && !range.is_low_allowed {
                    return Err(Refused::TooSmall);
                }
                set(target, chance);
            }
            Takes::Flag(set) => match given {
                Given::Flag(flag) => set(target, flag),
                _ => return Err(Refused::Type),
            },
            Takes::Word(words, set) | Takes::Words(words, set) => set(target, word(given, words)?),
            Takes::Name(words, set) => set(target, word(given, words())?),
            Takes::ByFlow(..) | Takes::Table(..) | Takes::Map | Takes::Own(_) => {
                return Err(Refused::Type);
            }
        }
        Ok(())
    }

    /// Stores a number for the flow at position `flow`.
    ///
    /// # Errors
    /// As for [`Self::put`].
    pub fn put_for_flow(&self, target: &mut T, flow: u32, given: Given<'_>) -> Result<(), Refused> {
        let Takes::ByFlow(low, high, set) = &self.takes else { return Err(Refused::Type) };
        let whole = whole(given, (*low).into(), (*high).into())?;
        set(target, flow, u32::try_from(whole).map_err(|_| Refused::Range)?);
        Ok(())
    }

    /// Stores the default in its field, if the default is a value.
    ///
    /// # Errors
    /// If the key does not allow its own default, which is a bug in the key.
    pub fn put_default(&self, target: &mut T) -> Result<(), Refused> {
        match self.unset {
            Unset::Required(_) | Unset::Said(_) => Ok(()),
            Unset::Number(number) => self.put(target, Given::Float(number)),
            Unset::Flag(flag) => self.put(target, Given::Flag(flag)),
            Unset::Word(word) => self.put(target, Given::Text(word)),
        }
    }

    /// Returns a description of the key without the target type.
    pub fn row(&self) -> Row {
        Row {
            name: self.name,
            bounds: self.bounds(),
            allowed: self.allowed(),
            is_list: matches!(self.takes, Takes::Words(..)),
            unset: self.unset,
            owners: self.owners,
            rivals: self.rivals,
            is_all_in_lab: self.not_in_lab.is_none(),
            doc: self.doc,
            source: self.source,
        }
    }
}

/// Description of a key without the target type: a row of the manual.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Name.
    pub name: &'static str,
    /// Allowed values.
    pub bounds: Bounds,
    /// Allowed values, as text for error messages.
    pub allowed: String,
    /// Whether the value is a list of words.
    pub is_list: bool,
    /// Default.
    pub unset: Unset,
    /// Owners; empty for all.
    pub owners: &'static [&'static str],
    /// Keys that cannot be given together with this key.
    pub rivals: &'static [&'static str],
    /// Whether the lab supports every setting of the key.
    pub is_all_in_lab: bool,
    /// Meaning.
    pub doc: &'static str,
    /// Source of the default or the bounds.
    pub source: &'static str,
}

/// Returns the names of keys, in order.
pub fn names<T>(keys: &[Key<T>]) -> Vec<&'static str> {
    keys.iter().map(|key| key.name).collect()
}

/// Returns descriptions of keys without the target type.
pub fn rows<T>(keys: &[Key<T>]) -> Vec<Row> {
    keys.iter().map(Key::row).collect()
}

/// Reads a number within a range.
fn number(given: Given<'_>, range: Range) -> Result<f64, Refused> {
    let number = match given {
        // Exact up to 2^53; all ranges end far below.
        Given::Integer(number) => number as f64,
        Given::Float(number) => number,
        _ => return Err(Refused::Type),
    };
    if range.contains(number) { Ok(number) } else { Err(Refused::Range) }
}

/// Reads a whole number from `low` to `high`; `1e9` counts as a whole number.
#[expect(clippy::cast_possible_truncation, reason = "a float is compared before it is cast")]
fn whole(given: Given<'_>, low: u64, high: u64) -> Result<u64, Refused> {
    let number = match given {
        Given::Integer(number) => number,
        Given::Float(number) if number.fract() == 0.0 && number.abs() < 9e15 => number as i64,
        Given::Float(_) => return Err(Refused::Range),
        _ => return Err(Refused::Type),
    };
    let whole = u64::try_from(number).ok().filter(|number| (low..=high).contains(number));
    whole.ok_or(Refused::Range)
}

/// Reads one of `words`.
fn word(given: Given<'_>, words: &[&'static str]) -> Result<&'static str, Refused> {
    let Given::Text(text) = given else { return Err(Refused::Type) };
    words.iter().find(|word| **word == text).copied().ok_or(Refused::Word)
}

/// Rounds to the nearest whole number.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "`as` saturates")]
pub fn rounded(number: f64) -> u64 {
    number.round() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Default, PartialEq)]
    struct Filled {
        packets: u64,
        delay: Span,
        loss: Probability,
        word: &'static str,
    }

    const KEYS: &[Key<Filled>] = &[
        Key::<Filled>::new("packets", Takes::Whole(1, 1_000, |it, n| it.packets = n))
            .doc("how many")
            .or(10.0),
        Key::<Filled>::new("delay_ms", Takes::Millis(Range::of(0.0, 5.0), |it, by| it.delay = by))
            .required("the delay"),
        Key::<Filled>::new("loss", Takes::Chance(Range::over(0.0, 1.0), |it, p| it.loss = p))
            .not_in_lab(|it| it.loss > Probability::per_mille(500), "too much"),
        Key::<Filled>::new("word", Takes::Word(&["a", "b"], |it, word| it.word = word))
            .or_word("b"),
    ];

    #[test]
    fn a_key_sets_its_field_in_its_unit() {
        let mut filled = Filled::default();
        for key in KEYS {
            assert_eq!(key.put_default(&mut filled), Ok(()));
        }
        assert_eq!((filled.packets, filled.word), (10, "b"));
        assert_eq!(KEYS[0].put(&mut filled, Given::Float(1e3)), Ok(()));
        assert_eq!(KEYS[1].put(&mut filled, Given::Float(0.5)), Ok(()));
        assert_eq!(KEYS[2].put(&mut filled, Given::Integer(1)), Ok(()));
        assert_eq!(KEYS[3].put(&mut filled, Given::Text("a")), Ok(()));
        let (delay, loss) = (Span::from_micros(500), Probability::ONE);
        assert_eq!(filled, Filled { packets: 1_000, delay, loss, word: "a" });
    }

    #[test]
    fn an_invalid_key_value_is_refused_and_changes_nothing() {
        let mut filled = Filled::default();
        for (key, given, refused) in [
            (0, Given::Integer(0), Refused::Range),
            (0, Given::Integer(1_001), Refused::Range),
            (0, Given::Float(1.5), Refused::Range),
            (0, Given::Text("1"), Refused::Type),
            (1, Given::Float(5.1), Refused::Range),
            (1, Given::Flag(true), Refused::Type),
            (2, Given::Integer(0), Refused::Range),
            (2, Given::Float(1e-12), Refused::TooSmall),
            (3, Given::Text("c"), Refused::Word),
            (3, Given::Integer(1), Refused::Type),
        ] {
            assert_eq!(
                KEYS[key].put(&mut filled, given),
                Err(refused),
                "{} {given:?}",
                KEYS[key].name
            );
        }
        assert_eq!(filled, Filled::default());
    }

    #[test]
    fn the_lab_refusal_depends_on_the_value() {
        let most = Filled { loss: Probability::per_mille(501), ..Filled::default() };
        assert_eq!(KEYS[2].lab_refusal(&most), Some("too much"));
        assert_eq!(KEYS[2].lab_refusal(&Filled::default()), None);
        assert_eq!(KEYS[0].lab_refusal(&most), None);
    }

    #[test]
    fn a_key_row_lists_the_allowed_values_of_the_refusal() {
        let rows: Vec<Row> = KEYS.iter().map(Key::row).collect();
        let allowed: Vec<&str> = rows.iter().map(|row| row.allowed.as_str()).collect();
        let whole = "a whole number from 1 to 1000";
        let number = "a number from 0 to 5";
        assert_eq!(allowed, [whole, number, "a number over 0 up to 1", "one of: a, b"]);
        assert_eq!(names(KEYS), ["packets", "delay_ms", "loss", "word"]);
    }
}
