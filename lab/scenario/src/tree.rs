//! Syntax tree of a scenario file, with the origin of each value.

use std::fmt::Write as _;
use std::ops::Range;

use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

use crate::error::{Origin, Problem, shorten};

/// A value and its origin.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) at: Origin,
    pub(crate) value: Value,
}

#[derive(Clone, Debug)]
pub(crate) enum Value {
    Integer(i64),
    Float(f64),
    Flag(bool),
    Text(String),
    /// A date or time; no key accepts dates.
    Date(String),
    List(Vec<Node>),
    Table(Vec<Field>),
}

/// One `key = value`.
#[derive(Clone, Debug)]
pub(crate) struct Field {
    pub(crate) key: String,
    /// Origin of the key.
    pub(crate) at: Origin,
    pub(crate) node: Node,
    /// False if set by a sweep or an override.
    pub(crate) is_from_file: bool,
}

impl Value {
    /// Returns the value as the user would write the value, shortened for messages.
    pub(crate) fn shown(&self) -> String {
        match self {
            Self::Text(text) => format!("\"{}\"", shorten(text)),
            Self::List(_) => "a list".to_owned(),
            Self::Table(_) => "a table".to_owned(),
            other => other.plain(),
        }
    }

    /// Returns the value as plain text without quotes, for labels and controllers.
    pub(crate) fn plain(&self) -> String {
        match self {
            Self::Integer(number) => number.to_string(),
            Self::Float(number) => format!("{number:?}"),
            Self::Flag(flag) => flag.to_string(),
            Self::Text(text) | Self::Date(text) => text.clone(),
            Self::List(_) | Self::Table(_) => {
                let mut text = String::new();
                self.write(&mut text);
                text
            }
        }
    }

    /// Writes the value as TOML on one line.
    fn write(&self, out: &mut String) {
        match self {
            Self::Text(text) => write_text(out, text),
            Self::List(nodes) => {
                out.push('[');
                for (n, node) in nodes.iter().enumerate() {
                    out.push_str(if n > 0 { ", " } else { "" });
                    node.value.write(out);
                }
                out.push(']');
            }
            Self::Table(fields) => {
                out.push('{');
                for (n, field) in fields.iter().enumerate() {
                    out.push_str(if n > 0 { ", " } else { " " });
                    write_key(out, &field.key);
                    out.push_str(" = ");
                    field.node.value.write(out);
                }
                out.push_str(" }");
            }
            other => out.push_str(&other.plain()),
        }
    }
}

fn write_key(out: &mut String, key: &str) {
    let is_bare = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if !key.is_empty() && key.chars().all(is_bare) {
        out.push_str(key);
    } else {
        write_text(out, key);
    }
}

fn write_text(out: &mut String, text: &str) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => {
                out.push('\\');
                out.push(c);
            }
            c if c.is_control() => {
                // Writing to a string cannot fail.
                let _ = write!(out, "\\u{:04X}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

/// Returns the field of this name.
pub(crate) fn find<'a>(fields: &'a [Field], key: &str) -> Option<&'a Field> {
    fields.iter().find(|field| field.key == key)
}

/// Formats the whole tree as a file: plain keys first, then lists of tables in long form.
pub(crate) fn write_file(fields: &[Field]) -> String {
    let mut out = String::new();
    let tables_of = |field: &Field| match &field.node.value {
        Value::List(nodes) => nodes
            .iter()
            .map(|node| match &node.value {
                Value::Table(fields) => Some(fields.clone()),
                _ => None,
            })
            .collect::<Option<Vec<_>>>()
            .filter(|tables| !tables.is_empty()),
        _ => None,
    };
    let (long, plain): (Vec<_>, Vec<_>) =
        fields.iter().partition(|field| tables_of(field).is_some());
    for field in plain {
        write_field(&mut out, field);
    }
    for field in long {
        for table in tables_of(field).into_iter().flatten() {
            out.push_str("\n[[");
            write_key(&mut out, &field.key);
            out.push_str("]]\n");
            for field in &table {
                write_field(&mut out, field);
            }
        }
    }
    out
}

fn write_field(out: &mut String, field: &Field) {
    write_key(out, &field.key);
    out.push_str(" = ");
    field.node.value.write(out);
    out.push('\n');
}

/// Parses a file.
pub(crate) fn parse_file(text: &str) -> Result<Vec<Field>, Problem> {
    let lines = Lines::new(text);
    let table = DeTable::parse(text).map_err(|error| {
        let at = error.span().map_or(Origin::File, |span| lines.origin(&span));
        Problem::new(&at, "", format!("this is not TOML: {}", error.message().replace('\n', "; ")))
    })?;
    let at = |span: &Range<usize>| lines.origin(span);
    fields(table.get_ref(), &at, true)
}

/// Parses one value of an override or of a list in short form; `None` for other text.
pub(crate) fn parse_value(text: &str, at: &Origin) -> Option<Result<Node, Problem>> {
    let value = DeValue::parse(text).ok()?;
    Some(node(&value, &|_| at.clone(), false))
}

fn fields(
    table: &DeTable<'_>,
    at: &dyn Fn(&Range<usize>) -> Origin,
    is_from_file: bool,
) -> Result<Vec<Field>, Problem> {
    let mut entries: Vec<(&Spanned<DeString<'_>>, &Spanned<DeValue<'_>>)> = table.iter().collect();
    // The parser sorts keys by name; messages and output use the file's order.
    entries.sort_by_key(|(key, _)| key.span().start);
    entries
        .into_iter()
        .map(|(key, value)| {
            let node = node(value, at, is_from_file).map_err(|mut problem| {
                let key = shorten(key.get_ref());
                problem.place = match problem.place.strip_prefix("key ") {
                    Some(inner) => format!("key {key}.{inner}"),
                    None => format!("key {key}"),
                };
                problem
            })?;
            Ok(Field { key: key.get_ref().to_string(), at: at(&key.span()), node, is_from_file })
        })
        .collect()
}

fn node(
    value: &Spanned<DeValue<'_>>,
    at: &dyn Fn(&Range<usize>) -> Origin,
    is_from_file: bool,
) -> Result<Node, Problem> {
    let origin = at(&value.span());
    let too_large = |number: &str, allowed: &str| {
        let what = format!("{} is not allowed; use {allowed}", shorten(number));
        Problem::new(&origin, "", what)
    };
    let converted = match value.get_ref() {
        DeValue::Integer(number) => {
            let parsed = i64::from_str_radix(number.as_str(), number.radix());
            Value::Integer(parsed.map_err(|_| {
                too_large(number.as_str(), "a whole number of at most 9223372036854775807")
            })?)
        }
        DeValue::Float(number) => {
            let parsed = number.as_str().parse::<f64>().ok().filter(|number| number.is_finite());
            Value::Float(parsed.ok_or_else(|| too_large(number.as_str(), "a finite number"))?)
        }
        DeValue::Boolean(flag) => Value::Flag(*flag),
        DeValue::String(text) => Value::Text(text.to_string()),
        DeValue::Datetime(date) => Value::Date(date.to_string()),
        DeValue::Array(items) => Value::List(
            items.iter().map(|item| node(item, at, is_from_file)).collect::<Result<_, _>>()?,
        ),
        DeValue::Table(table) => Value::Table(fields(table, at, is_from_file)?),
    };
    Ok(Node { at: origin, value: converted })
}

/// Converts byte positions to lines.
struct Lines {
    starts: Vec<usize>,
}

impl Lines {
    fn new(text: &str) -> Self {
        let after_breaks = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n');
        let starts = std::iter::once(0).chain(after_breaks.map(|(at, _)| at + 1)).collect();
        Self { starts }
    }

    fn origin(&self, span: &Range<usize>) -> Origin {
        Origin::Line(self.starts.partition_point(|start| *start <= span.start))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_parsed_value_has_its_line_number() {
        let tree = parse_file("a = 1\n\n[[link]]\nid = \"x\"\n[[link]]\nid = 'y'\n").unwrap();
        assert_eq!(tree[0].at, Origin::Line(1));
        let Value::List(links) = &tree[1].node.value else { panic!("a list of tables") };
        assert_eq!((&links[0].at, &links[1].at), (&Origin::Line(3), &Origin::Line(5)));
        let Value::Table(second) = &links[1].value else { panic!("a table") };
        assert_eq!(second[0].node.at, Origin::Line(6));
    }

    #[test]
    fn written_toml_reads_back_unchanged() {
        let text = "name = \"a \\\"b\\\" \\\\ \\u0007 é\"\nd = -0.1\ne = 1e-7\nn = -3\nt = true\n\
                    list = [1, [\"x\"], { \"odd key\" = 2 }]\n\n[[link]]\nid = \"x\"\n";
        let once = write_file(&parse_file(text).unwrap());
        assert_eq!(once, write_file(&parse_file(&once).unwrap()));
        assert!(once.contains("\\\"b\\\" \\\\ \\u0007 é"), "{once}");
        assert!(once.contains("list = [1, [\"x\"], { \"odd key\" = 2 }]"), "{once}");
        assert!(once.ends_with("\n[[link]]\nid = \"x\"\n"), "{once}");
    }

    #[test]
    fn numbers_that_do_not_fit_are_named_with_their_key() {
        for (text, part) in [
            ("a = 99999999999999999999", "key a: 99999999999999999999 is not allowed"),
            ("a = { b = 1e400 }", "key a.b: 1e400 is not allowed"),
            ("a = [inf]", "key a: inf is not allowed"),
            ("a = nan", "key a: nan is not allowed"),
        ] {
            let problem = parse_file(text).unwrap_err();
            let shown = crate::Error::new("f", vec![problem]).to_string();
            assert!(shown.contains(part), "{shown}");
        }
    }
}
