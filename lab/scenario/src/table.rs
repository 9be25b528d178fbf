//! Checked access to a table: returns values of the right type and range, or logs a problem.

use std::borrow::Cow;
use std::cell::RefCell;
use std::fmt;

use sabul_units::key::{Bounds, Given, Key, Refused, Takes, Unset};
use sabul_units::nearest;

use crate::error::{Origin, Problem, shorten, unknown};
use crate::tree::{Field, Node, Value, find};

/// Problems logged at most; more problems would not help.
const PROBLEMS_MAX: usize = 100;

/// Log of problems.
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

/// A table, its name in messages, and the log for its problems.
#[derive(Clone, Debug)]
pub(crate) struct Table<'a> {
    fields: &'a [Field],
    at: &'a Origin,
    /// Such as `link "bottleneck"`; empty for the file itself.
    place: String,
    /// Such as `burst_loss.` for an inner table of `place`.
    prefix: String,
    /// Allowed keys; `None` if any key is allowed.
    known: Option<Cow<'static, [&'static str]>>,
    log: &'a Log,
}

impl<'a> Table<'a> {
    /// Checks the keys of a table; unknown keys are logged. `known` is `None` if any key is
    /// allowed.
    pub(crate) fn new(
        fields: &'a [Field],
        at: &'a Origin,
        place: String,
        known: Option<&'static [&'static str]>,
        log: &'a Log,
    ) -> Self {
        let known = known.map(Cow::Borrowed);
        Self { fields, at, place, prefix: String::new(), known, log }.checked()
    }

    fn checked(self) -> Self {
        if let Some(known) = &self.known {
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

    /// Returns the origin of a key's value; the origin of the table if the key is missing.
    pub(crate) fn origin(&self, key: &str) -> &'a Origin {
        find(self.fields, key).map_or(self.at, |field| &field.node.at)
    }

    fn note(&self, at: &Origin, key: &str, what: impl Into<String>) {
        let Self { place, prefix, .. } = self;
        let comma = if place.is_empty() { "" } else { ", " };
        let place = format!("{place}{comma}key {prefix}{}", shorten(key));
        self.log.note(Problem::new(at, &place, what));
    }

    /// Logs that a key is wrong.
    pub(crate) fn refuse(&self, key: &str, what: impl Into<String>) {
        self.note(self.origin(key), key, what);
    }

    /// Logs that a key's value is not allowed, with the allowed values.
    pub(crate) fn refuse_value(&self, key: &str, allowed: impl fmt::Display) {
        let shown = find(self.fields, key)
            .map_or_else(|| "nothing".to_owned(), |field| field.node.value.shown());
        self.refuse(key, format!("{shown} is not allowed; use {allowed}"));
    }

    /// Logs that a key is missing, unless the table has a misspelling of that key.
    pub(crate) fn missing(&self, key: &str, wanted: impl fmt::Display) {
        let known = self.known.as_deref().unwrap_or_default();
        let is_misspelt = |field: &Field| {
            let word = field.key.as_str();
            !known.contains(&word) && nearest(word, known) == Some(key)
        };
        if !self.fields.iter().any(is_misspelt) {
            self.note(self.at, key, format!("is missing; give {wanted}"));
        }
    }

    /// Logs a problem of the table as a whole.
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

    /// Sets the field of each key to the key's value, or to the default. `owner` is a selector key
    /// and its word: only keys of that owner are allowed. Keys of other owners and mutually
    /// exclusive keys are logged.
    pub(crate) fn take_all<T>(&self, keys: &[Key<T>], target: &mut T, owner: Option<(&str, &str)>) {
        for (n, key) in keys.iter().enumerate() {
            if let Some((kind, word)) = owner
                && !key.owners.is_empty()
                && !key.owners.contains(&word)
            {
                if self.has(key.name) {
                    let (owners, elsewhere) = (key.owners.join(" and "), key.elsewhere);
                    let what = format!(
                        "contradicts {kind} {word}: the key belongs to {owners}; {elsewhere}"
                    );
                    self.refuse(key.name, what);
                }
                continue;
            }
            let is_before = |key: &&Key<T>| self.has(key.name);
            let rival = keys[..n].iter().filter(is_before).find(|it| key.rivals.contains(&it.name));
            if let Some(rival) = rival.filter(|_| self.has(key.name)) {
                let all = [&[key.name], key.rivals].concat().join(", ");
                let what = format!("contradicts {}; use one of {all}", rival.name);
                self.refuse(key.name, what);
            }
            self.take(key, target);
        }
    }

    /// Sets the field of one key to the key's value, or to the default.
    fn take<T>(&self, key: &Key<T>, target: &mut T) {
        let Some(value) = self.value(key.name) else {
            let has_rival = key.rivals.iter().any(|rival| self.has(rival));
            if let Unset::Required(what) = key.unset
                && !has_rival
            {
                self.missing(key.name, what);
            }
            key.put_default(target).expect("the default of a key is a value of it, and tested");
            return;
        };
        match &key.takes {
            Takes::ByFlow(..) | Takes::Table(..) | Takes::Map | Takes::Own(_) => {}
            Takes::Words(..) => {
                for node in self.list(key.name, &key.allowed()).unwrap_or_default() {
                    self.put(key, target, &node.value);
                }
            }
            _ => self.put(key, target, value),
        }
    }

    fn put<T>(&self, key: &Key<T>, target: &mut T, value: &Value) {
        let Err(refused) = key.put(target, given(value)) else { return };
        let is_of_list = matches!(key.takes, Takes::Words(..));
        match (refused, key.bounds(), value) {
            (Refused::Word, Bounds::Words(words), Value::Text(text)) => {
                self.refuse(key.name, unknown("word", text, words));
            }
            (Refused::Type, ..) if !is_of_list => self.wrong_type(key.name, key.allowed()),
            (Refused::TooSmall, ..) => self.refuse_value(key.name, "0.000000001 or more"),
            _ => {
                let what = format!("{} is not allowed; use {}", value.shown(), key.allowed());
                self.refuse(key.name, what);
            }
        }
    }

    /// Reads a table whose first key is a selector of the other keys; `None` if the selector is
    /// missing or wrong.
    pub(crate) fn take_kind<T>(&self, keys: &[Key<T>], target: &mut T) -> Option<&'static str> {
        let (kind, others) = keys.split_first()?;
        self.take(kind, target);
        let word = self.word(kind)?;
        self.take_all(others, target, Some((kind.name, word)));
        Some(word)
    }

    /// Reads a table of numbers by flow name, if present.
    pub(crate) fn take_by_flow<T>(&self, key: &Key<T>, target: &mut T, flow_ids: &[&str]) {
        if !matches!(key.takes, Takes::ByFlow(..)) || !self.has(key.name) {
            return;
        }
        let Some(table) = self.table(key.name, None, &key.allowed()) else { return };
        for field in table.fields() {
            let place = flow_ids.iter().position(|id| *id == field.key);
            let Some(place) = place.and_then(|place| u32::try_from(place).ok()) else {
                table.refuse(&field.key, unknown("flow", &field.key, flow_ids));
                continue;
            };
            if key.put_for_flow(target, place, given(&field.node.value)).is_err() {
                table.refuse_value(&field.key, key.allowed());
            }
        }
    }

    /// Returns the word of a key, if the word is allowed.
    pub(crate) fn word<T>(&self, key: &Key<T>) -> Option<&'static str> {
        match (key.bounds(), self.value(key.name)) {
            (Bounds::Words(words), Some(Value::Text(text))) => {
                words.iter().find(|word| **word == text.as_str()).copied()
            }
            _ => None,
        }
    }

    /// Returns a text value.
    pub(crate) fn text(&self, key: &str, allowed: &str) -> Option<&'a str> {
        match self.value(key)? {
            Value::Text(text) => Some(text),
            _ => {
                self.wrong_type(key, allowed);
                None
            }
        }
    }

    /// Returns a name that is usable as label, column and file name.
    pub(crate) fn id(&self) -> Option<&'a str> {
        const ALLOWED: &str = "1 to 64 of the characters a-z, A-Z, 0-9, - and _";
        let text = self.text("id", ALLOWED)?;
        let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        if (1..=64).contains(&text.len()) && text.chars().all(is_plain) {
            return Some(text);
        }
        self.refuse_value("id", ALLOWED);
        None
    }

    /// Returns a list value.
    pub(crate) fn list(&self, key: &str, allowed: &str) -> Option<&'a [Node]> {
        match self.value(key)? {
            Value::List(nodes) => Some(nodes),
            _ => {
                self.wrong_type(key, allowed);
                None
            }
        }
    }

    /// Returns the inner table of a key.
    pub(crate) fn table_of<T>(&self, keys: &[Key<T>], name: &str) -> Option<Self> {
        let key = keys.iter().find(|key| key.name == name)?;
        let Takes::Table(known, example) = key.takes else { return None };
        self.table(name, Some(known()), example)
    }

    /// Returns an inner table.
    pub(crate) fn table(
        &self,
        key: &str,
        known: Option<Vec<&'static str>>,
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

    /// Returns the inner tables of a list.
    pub(crate) fn tables(&self, key: &str, known: &[&'static str], allowed: &str) -> Vec<Self> {
        let mut tables = Vec::new();
        for node in self.list(key, allowed).unwrap_or_default() {
            if let Value::Table(fields) = &node.value {
                tables.push(self.inner(key, fields, &node.at, Some(known.to_vec())));
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
        known: Option<Vec<&'static str>>,
    ) -> Self {
        let known = known.map(Cow::Owned);
        let prefix = format!("{}{key}.", self.prefix);
        Self { fields, at, place: self.place.clone(), prefix, known, log: self.log }.checked()
    }
}

/// Converts a value to the input type of keys.
fn given(value: &Value) -> Given<'_> {
    match value {
        Value::Integer(number) => Given::Integer(*number),
        Value::Float(number) => Given::Float(*number),
        Value::Flag(flag) => Given::Flag(*flag),
        Value::Text(text) => Given::Text(text),
        Value::Date(_) | Value::List(_) | Value::Table(_) => Given::Other,
    }
}
