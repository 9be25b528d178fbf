//! Parameters of controllers: named, ranged, with a source; rejected, never clamped.

use std::collections::BTreeMap;
use std::fmt;

use sabul_units::Rate;

/// Unit of a parameter's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Milliseconds.
    Millis,
    /// Megabits per second.
    Mbps,
    /// Packets.
    Packets,
    /// A plain number or fraction.
    Number,
    /// One of these words.
    Word(&'static [&'static str]),
    /// A plain number, or this word in its place.
    NumberOr(&'static str),
}

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Millis => f.write_str("ms"),
            Self::Mbps => f.write_str("Mb/s"),
            Self::Packets => f.write_str("packets"),
            Self::Number => f.write_str("number"),
            Self::Word(words) => f.write_str(&words.join(" | ")),
            Self::NumberOr(word) => write!(f, "number | {word}"),
        }
    }
}

/// One parameter of one controller.
#[derive(Clone, Copy, Debug)]
pub struct ParamSpec {
    /// Key; its last part names the unit.
    pub name: &'static str,
    /// Unit of the value.
    pub unit: Unit,
    /// Default value, as a user would write it.
    pub default: &'static str,
    /// Smallest and largest value, both allowed; not used for words.
    pub range: (f64, f64),
    /// Effect of the parameter.
    pub doc: &'static str,
    /// Source of the default.
    pub source: &'static str,
}

impl ParamSpec {
    /// Creates a numeric parameter without description and source.
    pub const fn new(
        name: &'static str,
        unit: Unit,
        default: &'static str,
        range: (f64, f64),
    ) -> Self {
        Self { name, unit, default, range, doc: "", source: "" }
    }

    /// Creates a parameter with one of these words as its value.
    pub const fn word(
        name: &'static str,
        words: &'static [&'static str],
        default: &'static str,
    ) -> Self {
        Self::new(name, Unit::Word(words), default, (0.0, 0.0))
    }

    /// Sets the effect of the parameter, in words.
    pub const fn doc(self, doc: &'static str) -> Self {
        Self { doc, ..self }
    }

    /// Sets the source of the default.
    pub const fn source(self, source: &'static str) -> Self {
        Self { source, ..self }
    }
}

/// Invalid setting: its name, the rejected value, and the allowed values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// Name of the setting.
    pub setting: String,
    /// The rejected value.
    pub value: String,
    /// Description of the allowed values.
    pub allowed: String,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: '{}' is not allowed; use {}", self.setting, self.value, self.allowed)
    }
}

impl std::error::Error for ConfigError {}

/// Checked values for every parameter of one controller.
#[derive(Clone, Debug)]
pub struct ParamValues {
    controller: String,
    values: BTreeMap<&'static str, String>,
}

impl ParamValues {
    /// Checks `given` against `specs` and fills in defaults.
    ///
    /// # Errors
    /// On an unknown key (naming the known ones) or a value outside its range.
    pub fn check(
        controller: &str,
        specs: &'static [ParamSpec],
        given: &[(String, String)],
    ) -> Result<Self, ConfigError> {
        let mut values: BTreeMap<_, _> =
            specs.iter().map(|spec| (spec.name, spec.default.to_owned())).collect();
        for (key, value) in given {
            let setting = format!("parameter {key} of {controller}");
            let Some(spec) = specs.iter().find(|spec| spec.name == key) else {
                let names: Vec<_> = specs.iter().map(|spec| spec.name).collect();
                let allowed = if names.is_empty() {
                    "no parameter: it has none".to_owned()
                } else {
                    format!("one of: {}", names.join(", "))
                };
                return Err(ConfigError { setting, value: value.clone(), allowed });
            };
            let is_in_range = || {
                value
                    .parse::<f64>()
                    .is_ok_and(|number| (spec.range.0..=spec.range.1).contains(&number))
            };
            let fits = match spec.unit {
                Unit::Word(words) => words.contains(&value.as_str()),
                Unit::NumberOr(word) => value == word || is_in_range(),
                _ => is_in_range(),
            };
            if !fits {
                let allowed = match spec.unit {
                    Unit::Word(words) => format!("one of: {}", words.join(", ")),
                    Unit::NumberOr(word) => {
                        format!("{} to {}, or '{word}'", spec.range.0, spec.range.1)
                    }
                    unit => format!("{} to {} {unit}", spec.range.0, spec.range.1),
                };
                return Err(ConfigError { setting, value: value.clone(), allowed });
            }
            values.insert(spec.name, value.clone());
        }
        Ok(Self { controller: controller.to_owned(), values })
    }

    /// Returns the name of the controller, for a constructor of several controllers.
    pub fn controller(&self) -> &str {
        &self.controller
    }

    /// Returns a number, in the unit of its spec.
    ///
    /// # Panics
    /// If the specs do not list this parameter.
    pub fn number(&self, name: &str) -> f64 {
        self.word(name).parse().expect("checked against the spec when it was given")
    }

    /// Returns a number, or `None` if the value is the spec's word.
    ///
    /// # Panics
    /// If the specs do not list this parameter.
    pub fn number_or_word(&self, name: &str) -> Option<f64> {
        self.word(name).parse().ok()
    }

    /// Returns a rate whose spec is in megabits per second.
    ///
    /// # Panics
    /// If the specs do not list this parameter.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a spec's range begins at zero or above, and a cast saturates"
    )]
    pub fn rate(&self, name: &str) -> Rate {
        Rate((self.number(name) * 1e6) as u64)
    }

    /// Returns the table's entry for a word.
    ///
    /// # Panics
    /// If the table lacks the word, or if the specs do not list this parameter.
    pub fn choice<T: Copy>(&self, name: &str, table: &[(&str, T)]) -> T {
        let given = self.word(name);
        let found = table.iter().find(|(word, _)| *word == given);
        found.expect("the table has each word of the parameter's spec").1
    }

    /// Returns whether an "on" or "off" parameter is on.
    ///
    /// # Panics
    /// As [`Self::choice`].
    pub fn is_on(&self, name: &str) -> bool {
        self.choice(name, &[("on", true), ("off", false)])
    }

    /// Returns a word.
    ///
    /// # Panics
    /// If the specs do not list this parameter.
    pub fn word(&self, name: &str) -> &str {
        self.values.get(name).expect("a controller asks only for parameters in its own specs")
    }
}
