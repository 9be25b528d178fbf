//! A table under inspection: values come out with the right type and in range, or a problem is noted.

use std::cell::RefCell;
use std::fmt;

use sabul_units::{Probability, Rate, Span, nearest};

use crate::error::{Origin, Problem, shorten, unknown};
use crate::tree::{Field, Node, Value, find};

/// More problems than this say nothing new.
const PROBLEMS_MAX: usize = 100;

/// Picoseconds in a second.
pub(crate) const PS_PER_S: f64 = 1e12;
/// Picoseconds in a millisecond.
pub(crate) const PS_PER_MS: f64 = 1e9;

/// Where problems are noted.
#[derive(Debug, Default)]
pub(crate) struct Log {
    problems: RefCell<Vec<Problem>>,
}

impl Log {
    pub(crate) fn note(&self, problem: Problem) {
        let mut problems = self.problems.borrow_mut();
        if problems.len() < PROBLEMS_MAX {
            problems.push(problem);
        }
    }
    pub(crate) fn is_empty(&self) -> bool {
        self.problems.borrow().is_empty()
    }
    pub(crate) fn into_problems(self) -> Vec<Problem> {
        self.problems.into_inner()
    }
}

/// Numbers that a key may have.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Range {
    low: f64,
    high: f64,
    is_low_allowed: bool,
}

impl Range {
    /// From `low` to `high`, both allowed.
    pub(crate) const fn of(low: f64, high: f64) -> Self {
        Self { low, high, is_low_allowed: true }
    }
    /// Over `low`, up to `high`, which is allowed.
    pub(crate) const fn over(low: f64, high: f64) -> Self {
        Self { low, high, is_low_allowed: false }
    }
    fn contains(&self, number: f64) -> bool {
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

/// A table, what to call it, and where to note what is wrong with it.
#[derive(Clone, Debug)]
pub(crate) struct Table<'a> {
    fields: &'a [Field],
    at: &'a Origin,
    /// `link "bottleneck"`; empty for the file itself.
    place: String,
    /// `burst_loss.` in a table within that place.
    prefix: String,
    /// The keys it may have; `None` where any may be.
    known: Option<&'static [&'static str]>,
    log: &'a Log,
}

impl<'a> Table<'a> {
    /// A table with known keys; others are noted at once. `known` is `None` where any key may be.
    pub(crate) fn new(
        fields: &'a [Field],
        at: &'a Origin,
        place: String,
        known: Option<&'static [&'static str]>,
        log: &'a Log,
    ) -> Self {
        Self { fields, at, place, prefix: String::new(), known, log }.checked()
    }

    fn checked(self) -> Self {
        if let Some(known) = self.known {
            for field in self.fields.iter().filter(|field| !known.contains(&field.key.as_str())) {
                self.note(&field.at, &field.key, unknown("key", &field.key, known));
            }
        }
        self
    }

    pub(crate) fn fields(&self) -> &'a [Field] {
        self.fields
    }

    pub(crate) fn log(&self) -> &'a Log {
        self.log
    }

    pub(crate) fn has(&self, key: &str) -> bool {
        find(self.fields, key).is_some()
    }

    /// Where a key's value was written; the table where there is none.
    pub(crate) fn origin(&self, key: &str) -> &'a Origin {
        find(self.fields, key).map_or(self.at, |field| &field.node.at)
    }

    fn note(&self, at: &Origin, key: &str, what: impl Into<String>) {
        let Self { place, prefix, .. } = self;
        let comma = if place.is_empty() { "" } else { ", " };
        let place = format!("{place}{comma}key {prefix}{}", shorten(key));
        self.log.note(Problem::new(at, &place, what));
    }

    /// Notes that a key is wrong.
    pub(crate) fn refuse(&self, key: &str, what: impl Into<String>) {
        self.note(self.origin(key), key, what);
    }

    /// Notes that a key's value is not allowed, and what is.
    pub(crate) fn refuse_value(&self, key: &str, allowed: impl fmt::Display) {
        let shown = find(self.fields, key)
            .map_or_else(|| "nothing".to_owned(), |field| field.node.value.shown());
        self.refuse(key, format!("{shown} is not allowed; use {allowed}"));
    }

    /// Notes that a key is missing, unless it is there in a wrong spelling.
    pub(crate) fn missing(&self, key: &str, wanted: impl fmt::Display) {
        let known = self.known.unwrap_or_default();
        let is_misspelt = |field: &Field| {
            let word = field.key.as_str();
            !known.contains(&word) && nearest(word, known) == Some(key)
        };
        if !self.fields.iter().any(is_misspelt) {
            self.note(self.at, key, format!("is missing; give {wanted}"));
        }
    }

    /// Notes a problem of the table as a whole.
    pub(crate) fn refuse_whole(&self, what: impl Into<String>) {
        self.log.note(Problem::new(self.at, &self.place, what));
    }

    fn value(&self, key: &str) -> Option<&'a Value> {
        find(self.fields, key).map(|field| &field.node.value)
    }

    fn wrong_type(&self, key: &str, allowed: impl fmt::Display) {
        let (Some(value), origin) = (self.value(key), self.origin(key)) else { return };
        let kind = match value {
            Value::Integer(_) | Value::Float(_) => "a number",
            Value::Flag(_) => "true or false",
            Value::Text(_) => "a text",
            Value::Date(_) => "a date",
            Value::List(_) => "a list",
            Value::Table(_) => "a table",
        };
        let shown = match value {
            Value::List(_) | Value::Table(_) => kind.to_owned(),
            value => format!("{}, {kind},", value.shown()),
        };
        self.note(origin, key, format!("{shown} is not allowed; use {allowed}"));
    }

    /// A number in a range.
    pub(crate) fn number(&self, key: &str, range: Range) -> Option<f64> {
        let number = match self.value(key)? {
            // Exact up to 2^53; ranges end far below.
            Value::Integer(number) => *number as f64,
            Value::Float(number) => *number,
            _ => {
                self.wrong_type(key, format_args!("a number {range}"));
                return None;
            }
        };
        if range.contains(number) {
            return Some(number);
        }
        self.refuse_value(key, format_args!("a number {range}"));
        None
    }

    /// A whole number from `low` to `high`; `1e9` counts as one.
    #[expect(clippy::cast_possible_truncation, reason = "a float is compared before it is cast")]
    pub(crate) fn whole(&self, key: &str, low: u64, high: u64) -> Option<u64> {
        let allowed = format!("a whole number from {low} to {high}");
        let number = match self.value(key)? {
            Value::Integer(number) => Some(*number),
            Value::Float(number) if number.fract() == 0.0 && number.abs() < 9e15 => {
                Some(*number as i64)
            }
            Value::Float(_) => None,
            _ => {
                self.wrong_type(key, allowed);
                return None;
            }
        };
        let whole = number
            .and_then(|number| u64::try_from(number).ok())
            .filter(|number| (low..=high).contains(number));
        if whole.is_none() {
            self.refuse_value(key, allowed);
        }
        whole
    }

    /// A whole number that fits in 32 bits.
    pub(crate) fn whole_u32(&self, key: &str, low: u32, high: u32) -> Option<u32> {
        let whole = self.whole(key, low.into(), high.into())?;
        u32::try_from(whole).ok()
    }

    /// A time, given in a unit of so many picoseconds.
    pub(crate) fn span(&self, key: &str, range: Range, unit_ps: f64) -> Option<Span> {
        self.number(key, range).map(|number| Span(rounded(number * unit_ps)))
    }

    /// A rate in Mb/s.
    pub(crate) fn rate(&self, key: &str) -> Option<Rate> {
        self.number(key, RATE_MBPS).map(|mbps| Rate(rounded(mbps * 1e6)))
    }

    /// A probability.
    pub(crate) fn probability(&self, key: &str) -> Option<Probability> {
        Probability::new(self.number(key, Range::of(0.0, 1.0))?).ok()
    }

    /// True or false.
    pub(crate) fn flag(&self, key: &str) -> Option<bool> {
        match self.value(key)? {
            Value::Flag(flag) => Some(*flag),
            _ => {
                self.wrong_type(key, "true or false");
                None
            }
        }
    }

    /// A text.
    pub(crate) fn text(&self, key: &str, allowed: &str) -> Option<&'a str> {
        match self.value(key)? {
            Value::Text(text) => Some(text),
            _ => {
                self.wrong_type(key, allowed);
                None
            }
        }
    }

    /// One of a few words.
    pub(crate) fn choice(&self, key: &str, words: &'static [&'static str]) -> Option<&'static str> {
        let text = self.text(key, &format!("one of: {}", words.join(", ")))?;
        let found = words.iter().find(|word| **word == text).copied();
        if found.is_none() {
            self.refuse(key, unknown("word", text, words));
        }
        found
    }

    /// A name that serves as label, column and file name.
    pub(crate) fn id(&self) -> Option<&'a str> {
        const ALLOWED: &str = "1 to 64 of the characters a-z, A-Z, 0-9, - and _";
        if !self.has("id") {
            self.missing("id", ALLOWED);
        }
        let text = self.text("id", ALLOWED)?;
        let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        if (1..=64).contains(&text.len()) && text.chars().all(is_plain) {
            return Some(text);
        }
        self.refuse_value("id", ALLOWED);
        None
    }

    /// A list.
    pub(crate) fn list(&self, key: &str, allowed: &str) -> Option<&'a [Node]> {
        match self.value(key)? {
            Value::List(nodes) => Some(nodes),
            _ => {
                self.wrong_type(key, allowed);
                None
            }
        }
    }

    /// A table within this one.
    pub(crate) fn table(
        &self,
        key: &str,
        known: Option<&'static [&'static str]>,
        allowed: &str,
    ) -> Option<Self> {
        match self.value(key)? {
            Value::Table(fields) => Some(self.inner(key, fields, self.origin(key), known)),
            _ => {
                self.wrong_type(key, allowed);
                None
            }
        }
    }

    /// Tables in a list within this one.
    pub(crate) fn tables(
        &self,
        key: &str,
        known: &'static [&'static str],
        allowed: &str,
    ) -> Vec<Self> {
        let mut tables = Vec::new();
        for node in self.list(key, allowed).unwrap_or_default() {
            if let Value::Table(fields) = &node.value {
                tables.push(self.inner(key, fields, &node.at, Some(known)));
            } else {
                let what = format!("{} is not allowed; use {allowed}", node.value.shown());
                self.note(&node.at, key, what);
            }
        }
        tables
    }

    fn inner(
        &self,
        key: &str,
        fields: &'a [Field],
        at: &'a Origin,
        known: Option<&'static [&'static str]>,
    ) -> Self {
        let prefix = format!("{}{key}.", self.prefix);
        Self { fields, at, place: self.place.clone(), prefix, known, log: self.log }.checked()
    }
}

/// The rates that links know: 1 kbit/s to 1 Tbit/s.
const RATE_MBPS: Range = Range::of(0.001, 1e6);

/// The nearest whole number.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "`as` saturates")]
pub(crate) fn rounded(number: f64) -> u64 {
    number.round() as u64
}
