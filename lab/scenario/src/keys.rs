//! All keys of scenario files, by table, collected from the crates that define them.
//!
//! Each key is defined beside the field that the key fills. Keys of the run, of flows and of their
//! traffic are in `sabul-run`, keys of links in `sabul-net`. Settings of a discipline are beside
//! that discipline.

use std::sync::LazyLock;

use sabul_net::{
    BURST_LOSS, DELAY_STEP, DISCIPLINES, LINK, OUTAGE, POLICER, RATE_STEP, RATE_WALK, SHAPER,
};
use sabul_run::scenario::{ARRIVALS, FLOW, PARTS, RUN, SIZE};
use sabul_units::key::{Bounds, Key, Row, Takes, names, rows};

/// Keys of one table of a scenario file.
#[derive(Clone, Debug, PartialEq)]
pub struct Section {
    /// Name of the table: `run`, `link`, `flow`; for inner tables with the parent, such as
    /// `flow.size`; for settings of a link's discipline with that discipline, such as `link.red`.
    pub name: String,
    /// Keys of the table.
    pub rows: Vec<Row>,
}

/// Returns all keys of scenario files, by table.
pub fn sections() -> Vec<Section> {
    fn section<T>(name: &str, keys: &[Key<T>]) -> Section {
        Section { name: name.to_owned(), rows: rows(keys) }
    }
    let mut sections = vec![section("run", RUN), section("link", LINK)];
    let of_discipline = |entry: &sabul_net::DisciplineEntry| Section {
        name: format!("link.{}", entry.name),
        rows: (entry.rows)(),
    };
    sections.extend(DISCIPLINES.iter().map(of_discipline));
    sections.extend([
        section("link.burst_loss", BURST_LOSS),
        section("link.outage", OUTAGE),
        section("link.policer", POLICER),
        section("link.shaper", SHAPER),
        section("link.rate_walk", RATE_WALK),
        section("link.rate_steps", RATE_STEP),
        section("link.delay_steps", DELAY_STEP),
        section("flow", FLOW),
        section("flow.size", SIZE),
        section("flow.arrivals", ARRIVALS),
    ]);
    sections
}

/// Keys at the top level of the file.
pub(crate) static TOP_NAMES: LazyLock<Vec<&str>> =
    LazyLock::new(|| [names(RUN).as_slice(), PARTS].concat());

/// Top-level keys that an override or sweep may set.
pub(crate) static RUN_NAMES: LazyLock<Vec<&str>> = LazyLock::new(|| names(RUN));

/// Keys of a `[[link]]`, including the settings of all disciplines.
pub(crate) static LINK_NAMES: LazyLock<Vec<&str>> = LazyLock::new(|| {
    let mut all = names(LINK);
    for row in DISCIPLINES.iter().flat_map(|entry| (entry.rows)()) {
        if !all.contains(&row.name) {
            all.push(row.name);
        }
    }
    all
});

/// Keys of a `[[flow]]`.
pub(crate) static FLOW_NAMES: LazyLock<Vec<&str>> = LazyLock::new(|| names(FLOW));

/// Returns the disciplines that have this setting; empty for other keys.
pub(crate) fn disciplines_of(key: &str) -> Vec<&'static str> {
    let has =
        |entry: &&sabul_net::DisciplineEntry| (entry.rows)().iter().any(|own| own.name == key);
    DISCIPLINES.iter().filter(has).map(|entry| entry.name).collect()
}

/// Returns the keys of a `[[link]]` or `[[flow]]` that are mutually exclusive with `key`. An
/// override of `key` removes those keys of the file.
pub fn rivals(list: &str, key: &str) -> &'static [&'static str] {
    fn of<T>(keys: &[Key<T>], name: &str) -> &'static [&'static str] {
        keys.iter().find(|key| key.name == name).map_or(&[], |key| key.rivals)
    }
    if list == "link" { of(LINK, key) } else { of(FLOW, key) }
}

/// Keys of a table within a `[[link]]` or `[[flow]]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Inner {
    /// The key is not a table.
    None,
    /// These keys.
    Known(Vec<&'static str>),
    /// Names of flows, or a controller's parameters.
    Any,
}

/// Returns the keys that the table at a key of a `[[link]]` or `[[flow]]` may have.
pub(crate) fn inner(list: &str, key: &str) -> Inner {
    fn of<T>(keys: &[Key<T>], name: &str) -> Option<Inner> {
        keys.iter().find(|key| key.name == name).map(|key| match key.takes {
            Takes::Table(keys, _) => Inner::Known(keys()),
            Takes::ByFlow(..) | Takes::Map => Inner::Any,
            _ => Inner::None,
        })
    }
    let is_by_flow = |row: &Row| row.name == key && matches!(row.bounds, Bounds::ByFlow(..));
    let of_disciplines = || {
        let is_map = DISCIPLINES.iter().any(|entry| (entry.rows)().iter().any(is_by_flow));
        is_map.then_some(Inner::Any)
    };
    let found = if list == "link" { of(LINK, key).or_else(of_disciplines) } else { of(FLOW, key) };
    found.unwrap_or(Inner::None)
}
