//! Settings from outside the file's own keys: `--set KEY=VALUE` and sweeps.

use std::sync::Arc;

use sabul_lab_cc::registry;

use crate::arm::Arm;
use crate::error::{Error, Origin, Problem, shorten, unknown};
use crate::keys::{FLOW_NAMES, Inner, LINK_NAMES, RUN_NAMES, disciplines_of, inner, rivals};
use crate::tree::{Field, Node, Value, find, parse_value};

/// Most values of one setting.
pub(crate) const VALUES_MAX: usize = 10_000;
/// Longest override in bytes; long overrides are lists of values.
const TEXT_MAX: usize = 64 * 1024;

/// A setting that takes precedence over the file's. Several values make a sweep.
#[derive(Clone, Debug)]
pub struct Override {
    pub(crate) key: String,
    pub(crate) at: Origin,
    /// One or more values.
    pub(crate) values: Vec<Node>,
}

impl Override {
    /// Returns the key as written.
    pub fn key(&self) -> &str {
        &self.key
    }
    /// Returns the number of values.
    pub fn value_count(&self) -> usize {
        self.values.len()
    }
}

/// Parses the text of an override, `KEY=VALUE`.
///
/// KEY is a top-level key of the file (`duration_s`), or `link.ID.KEY` or `flow.ID.KEY`. `*` as ID
/// stands for all links or flows. A key of an inner table may follow
/// (`flow.a.params.syn_interval_ms`). VALUE is a TOML value or a bare word. `1,2,5`, `1..10` and
/// `10..100:10` (whole numbers, both ends included) are several values, which make a sweep.
///
/// # Errors
/// If the text does not have that form. Whether link, flow and key exist is checked when a file is
/// read.
pub fn parse_override(text: &str) -> Result<Override, Error> {
    let at = Origin::Set(Arc::from(shorten(text)));
    let refuse = |what: String| Error::new("", vec![Problem::new(&at, "", what)]);
    if text.len() > TEXT_MAX {
        return Err(refuse(format!("is longer than {TEXT_MAX} bytes; use a file's [sweep]")));
    }
    let Some((key, value)) = text.split_once('=') else {
        let example = "KEY=VALUE, such as link.bottleneck.rate_mbps=100";
        return Err(refuse(format!("has no '='; write {example}")));
    };
    let key = key.trim();
    if key.is_empty() {
        return Err(refuse("has no key before its '='; write KEY=VALUE".to_owned()));
    }
    let values = parse_values(value, &at).map_err(|problem| Error::new("", vec![problem]))?;
    Ok(Override { key: key.to_owned(), at, values })
}

/// Parses one value or a list of values in short form.
pub(crate) fn parse_values(text: &str, at: &Origin) -> Result<Vec<Node>, Problem> {
    let text = text.trim();
    if let Some(node) = parse_value(text, at) {
        return Ok(vec![node?]);
    }
    let mut values = Vec::new();
    for part in split(text) {
        let part = part.trim();
        if let Some((low, rest)) = part.split_once("..") {
            let range = range(low, rest)
                .map_err(|what| Problem::new(at, "", format!("'{}' {what}", shorten(part))))?;
            values.extend(range.map(|n| Node { at: at.clone(), value: Value::Integer(n) }));
        } else if let Some(node) = parse_value(part, at) {
            values.push(node?);
        } else if is_bare_word(part) {
            values.push(Node { at: at.clone(), value: Value::Text(part.to_owned()) });
        } else {
            let forms = "a number, true, false, a word, or a text in \"quotes\"";
            let what = format!("'{}' is not a value; write {forms}", shorten(part));
            return Err(Problem::new(at, "", what));
        }
        if values.len() > VALUES_MAX {
            let what = format!("has more than {VALUES_MAX} values; use fewer");
            return Err(Problem::new(at, "", what));
        }
    }
    Ok(values)
}

/// Splits at commas outside of brackets and quotes.
fn split(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let (mut depth, mut quote, mut start) = (0_usize, None, 0);
    for (at, c) in text.char_indices() {
        match (quote, c) {
            (Some(open), _) if open == c => quote = None,
            (Some(_), _) => {}
            (None, '"' | '\'') => quote = Some(c),
            (None, '[' | '{') => depth += 1,
            (None, ']' | '}') => depth = depth.saturating_sub(1),
            (None, ',') if depth == 0 => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            (None, _) => {}
        }
    }
    parts.push(&text[start..]);
    parts
}

fn is_bare_word(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
}

/// Parses `low..high` or `low..high:step`, both ends included.
fn range(low: &str, rest: &str) -> Result<impl Iterator<Item = i64> + use<>, String> {
    let (high, step) = rest.split_once(':').unwrap_or((rest, "1"));
    let whole = |text: &str| {
        let form = "is not a range; write LOW..HIGH or LOW..HIGH:STEP in whole numbers";
        text.trim().parse::<i64>().map_err(|_| form.to_owned())
    };
    let (low, high, step) = (whole(low)?, whole(high)?, whole(step)?);
    if low > high {
        return Err("ends before it begins; write the smaller number first".to_owned());
    }
    let step = usize::try_from(step).ok().filter(|step| *step > 0);
    let step = step.ok_or("has a step that is not over 0; use 1 or more")?;
    let count = low.abs_diff(high) / step as u64;
    if count >= VALUES_MAX as u64 {
        return Err(format!("has more than {VALUES_MAX} values; use a larger step"));
    }
    Ok((low..=high).step_by(step))
}

/// Fields that a key refers to in a given file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    /// The list and the positions in that list; `None` for a key of the file itself.
    items: Option<(&'static str, Vec<usize>)>,
    key: String,
    /// The key within the table at `key`.
    inner: Option<String>,
}

impl Target {
    /// Whether setting this target also sets everything that `other` sets.
    pub(crate) fn covers(&self, other: &Self) -> bool {
        let has_items = match (&self.items, &other.items) {
            (None, None) => true,
            (Some((list, mine)), Some((other_list, others))) => {
                list == other_list && others.iter().all(|place| mine.contains(place))
            }
            _ => false,
        };
        has_items && self.key == other.key && (self.inner.is_none() || self.inner == other.inner)
    }
}

/// Resolves a key in a file.
pub(crate) fn resolve(fields: &[Field], key: &str, at: &Origin) -> Result<Target, Problem> {
    let refuse = |what: String| Problem::new(at, &format!("key {}", shorten(key)), what);
    let parts: Vec<&str> = key.split('.').collect();
    let (list, keys) = match parts[0] {
        "link" => ("link", &LINK_NAMES),
        "flow" => ("flow", &FLOW_NAMES),
        top if parts.len() == 1 => {
            if RUN_NAMES.contains(&top) {
                return Ok(Target { items: None, key: top.to_owned(), inner: None });
            }
            let mut known = RUN_NAMES.clone();
            known.extend(["link.ID.KEY", "flow.ID.KEY"]);
            return Err(refuse(unknown("key", top, &known)));
        }
        other => return Err(refuse(unknown("list", other, &["link", "flow"]))),
    };
    let [_, id, rest @ ..] = parts.as_slice() else {
        return Err(refuse(format!("is not a setting; write {list}.ID.KEY")));
    };
    let ids = ids(fields, list);
    let names: Vec<&str> = ids.iter().copied().flatten().collect();
    let places: Vec<usize> = match *id {
        "*" => (0..ids.len()).collect(),
        id => (0..ids.len()).filter(|place| ids[*place] == Some(id)).collect(),
    };
    if places.is_empty() {
        return Err(refuse(unknown(list, id, &names)));
    }
    let (key, within) = match rest {
        [key] => (*key, None),
        [key, within] => (*key, Some(*within)),
        _ => return Err(refuse(format!("is not a setting; write {list}.ID.KEY"))),
    };
    if key == "id" {
        return Err(refuse("names cannot be set from outside the file".to_owned()));
    }
    if !keys.contains(&key) {
        return Err(refuse(unknown("key", key, &keys[1..])));
    }
    if let Some(word) = within {
        match inner(list, key) {
            Inner::None => return Err(refuse(format!("{key} has no keys of its own"))),
            Inner::Known(known) if !known.contains(&word) => {
                return Err(refuse(unknown("key", word, &known)));
            }
            Inner::Known(_) | Inner::Any => {}
        }
    }
    let inner = within.map(str::to_owned);
    Ok(Target { items: Some((list, places)), key: key.to_owned(), inner })
}

/// Returns the names of the items of a list; `None` for items without a name.
fn ids<'a>(fields: &'a [Field], list: &str) -> Vec<Option<&'a str>> {
    let Some(Value::List(nodes)) = find(fields, list).map(|field| &field.node.value) else {
        return Vec::new();
    };
    let id = |node: &'a Node| match &node.value {
        Value::Table(fields) => match find(fields, "id").map(|field| &field.node.value) {
            Some(Value::Text(id)) => Some(id.as_str()),
            _ => None,
        },
        _ => None,
    };
    nodes.iter().map(id).collect()
}

/// Sets a value and removes settings of the file that contradict the value on that arm.
pub(crate) fn apply(fields: &mut Vec<Field>, target: &Target, node: &Node, arm: Arm) {
    let Some((list, places)) = &target.items else {
        put(fields, &target.key, node);
        return;
    };
    let all = fields.iter_mut().find(|field| field.key == *list);
    let Some(Value::List(items)) = all.map(|field| &mut field.node.value) else { return };
    for place in places {
        if let Some(Value::Table(item)) = items.get_mut(*place).map(|item| &mut item.value) {
            put_in_item(item, list, target, node, arm);
        }
    }
}

fn put_in_item(item: &mut Vec<Field>, list: &str, target: &Target, node: &Node, arm: Arm) {
    let key = target.key.as_str();
    let rivals = rivals(list, key);
    item.retain(|field| !(field.is_from_file && rivals.contains(&field.key.as_str())));
    let Some(inner) = &target.inner else {
        put(item, key, node);
        if let Value::Text(word) = &node.value {
            match key {
                "discipline" => drop_settings_of_other_disciplines(item, word),
                "cc" => drop_params_of_other_controllers(item, word, arm),
                _ => {}
            }
        }
        return;
    };
    if !matches!(find(item, key).map(|field| &field.node.value), Some(Value::Table(_))) {
        put(item, key, &Node { at: node.at.clone(), value: Value::Table(Vec::new()) });
    }
    let table = item.iter_mut().find(|field| field.key == key);
    if let Some(Value::Table(table)) = table.map(|field| &mut field.node.value) {
        put(table, inner, node);
    }
}

fn put(fields: &mut Vec<Field>, key: &str, node: &Node) {
    let field =
        Field { key: key.to_owned(), at: node.at.clone(), node: node.clone(), is_from_file: false };
    match fields.iter_mut().find(|field| field.key == key) {
        Some(place) => *place = field,
        None => fields.push(field),
    }
}

fn drop_settings_of_other_disciplines(link: &mut Vec<Field>, discipline: &str) {
    link.retain(|field| {
        let owners = disciplines_of(&field.key);
        let is_of_other = !owners.is_empty() && !owners.contains(&discipline);
        !(field.is_from_file && is_of_other)
    });
}

fn drop_params_of_other_controllers(flow: &mut Vec<Field>, cc: &str, arm: Arm) {
    let known = match (registry::find(cc), find(flow, "transport").map(|field| &field.node.value)) {
        // The kernel's algorithms have no parameters, even where our algorithm of the same name has
        // some.
        (_, Some(Value::Text(transport))) if arm.leaves_to_the_kernel(transport) => &[],
        (Ok(entry), _) => entry.params,
        (Err(_), _) => return,
    };
    let is_known = |key: &str| known.iter().any(|spec| spec.name == key);
    flow.retain(|field| {
        !(field.is_from_file && field.key == "rate_mbps_initial" && !is_known(&field.key))
    });
    let params = flow.iter_mut().find(|field| field.key == "params");
    if let Some(Value::Table(params)) = params.map(|field| &mut field.node.value) {
        params.retain(|field| !field.is_from_file || is_known(&field.key));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(text: &str) -> Vec<String> {
        let given = parse_override(&format!("k={text}")).unwrap();
        given.values.iter().map(|node| node.value.plain()).collect()
    }

    fn refusal(text: &str) -> String {
        parse_override(text).unwrap_err().to_string()
    }

    #[test]
    fn values_are_toml_words_lists_and_ranges() {
        assert_eq!(values("5"), ["5"]);
        assert_eq!(values(" 0.5 "), ["0.5"]);
        assert_eq!(values("true"), ["true"]);
        assert_eq!(values("tcp-lp"), ["tcp-lp"]);
        assert_eq!(values("\"two words, one text\""), ["two words, one text"]);
        assert_eq!(values("10,100,1000"), ["10", "100", "1000"]);
        assert_eq!(values("cubic, sabul2003"), ["cubic", "sabul2003"]);
        assert_eq!(values("1..4"), ["1", "2", "3", "4"]);
        assert_eq!(values("10..100:30"), ["10", "40", "70", "100"]);
        assert_eq!(values("-2..0,7"), ["-2", "-1", "0", "7"]);
        assert_eq!(values("[\"a\",\"b\"]"), ["[\"a\", \"b\"]"]);
        assert_eq!(values("[\"a\"],[\"a\",\"b\"]"), ["[\"a\"]", "[\"a\", \"b\"]"]);
        assert_eq!(values("{ a = 1, b = 2 },{ a = 2 }"), ["{ a = 1, b = 2 }", "{ a = 2 }"]);
    }

    #[test]
    fn an_invalid_override_is_refused_with_the_accepted_forms() {
        for (text, part) in [
            ("duration_s", "no '='"),
            ("=5", "no key"),
            ("k=", "'' is not a value"),
            ("k=1,,2", "'' is not a value"),
            ("k=two words", "'two words' is not a value"),
            ("k=007", "'007' is not a value"),
            ("k=1..", "is not a range"),
            ("k=0.1..0.5", "is not a range"),
            ("k=5..1", "the smaller number first"),
            ("k=1..5:0", "not over 0"),
            ("k=1..5:-1", "not over 0"),
            ("k=1..9223372036854775807", "more than 10000 values"),
            ("k=-9223372036854775808..9223372036854775807", "more than 10000 values"),
            ("k=1..9999,1..9999", "more than 10000 values"),
            ("k=1\nx=2", "is not a value"),
            ("k=inf", "inf is not allowed"),
        ] {
            let refusal = refusal(text);
            assert!(refusal.contains(part), "{text}: {refusal}");
            assert!(refusal.starts_with("--set "), "{refusal}");
        }
        assert!(refusal(&format!("k={}", "1,".repeat(60_000))).contains("longer than"));
    }
}
