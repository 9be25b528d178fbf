//! Registry of router halves: names, parameters and constructors.
//!
//! Two tables in a row: the algorithms of this crate ([`ENTRIES`]), and those of a program ([`add`]).
//! The interface is [`sabul_cc::router`].

use std::sync::OnceLock;

use sabul_cc::ConfigError;
use sabul_cc::registry::check_entries;
use sabul_cc::router::RouterEntry;
use sabul_units::nearest;

use crate::explicit::{emkc, jetmax, maxnet, piqi_rcp, rcp, xcp};

/// Router halves of this crate, in the order shown to users. [`all`] has the added ones as well.
pub const ENTRIES: &[RouterEntry] =
    &[jetmax::ROUTER, rcp::ROUTER, piqi_rcp::ROUTER, xcp::ROUTER, emkc::ROUTER, maxnet::ROUTER];

/// Router halves added by the program; set at most once.
static ADDED: OnceLock<&'static [RouterEntry]> = OnceLock::new();

/// Adds a program's own router halves to every list and choice. Call once, before any look-up. A
/// half with a header of its own uses [`CongestionForm::Own`](sabul_units::CongestionForm::Own).
///
/// # Errors
/// As [`sabul_cc::registry::add`]. After an error no router half was added.
pub fn add(entries: &'static [RouterEntry]) -> Result<(), ConfigError> {
    let new: Vec<_> = entries.iter().map(|entry| (entry.name, entry.params)).collect();
    // A link without a router has the word `none` in its file.
    let is_taken = |name: &str| name == "none" || ENTRIES.iter().any(|entry| entry.name == name);
    check_entries("router", &new, is_taken)?;
    ADDED.set(entries).map_err(|_| ConfigError {
        setting: "added routers".to_owned(),
        value: new.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", "),
        allowed: "one call of add for all".to_owned(),
    })
}

/// Returns all router halves in the order shown to users: those of this crate, then the added.
pub fn all() -> impl Iterator<Item = &'static RouterEntry> {
    ENTRIES.iter().chain(ADDED.get().copied().unwrap_or_default())
}

/// Returns the names of [`all`] router halves.
pub fn names() -> Vec<&'static str> {
    all().map(|entry| entry.name).collect()
}

/// Returns the entry with this name.
///
/// # Errors
/// If the registry has no such name; the error names the nearest and lists all.
pub fn find(name: &str) -> Result<&'static RouterEntry, ConfigError> {
    all().find(|entry| entry.name == name).ok_or_else(|| {
        let names = names();
        let hint = nearest(name, &names)
            .map_or_else(String::new, |known| format!("'{known}' (the nearest), or "));
        ConfigError {
            setting: "router".to_owned(),
            value: name.to_owned(),
            allowed: format!("{hint}one of: {}", names.join(", ")),
        }
    })
}

#[cfg(test)]
mod tests {
    use sabul_units::Rate;

    use super::*;
    use crate::registry;

    #[test]
    fn each_router_half_has_a_host_half_with_its_name_and_form() {
        for entry in ENTRIES {
            let host = registry::find(entry.name).unwrap();
            let host = host.build(&[], sabul_units::Bytes(1500)).unwrap();
            assert_eq!(host.header().map(|fields| fields.form()), Some(entry.form));
            assert!(entry.router(&[], Rate::from_mbps(100), 0).is_ok(), "{}", entry.name);
        }
        let text = find("jetmx").unwrap_err().to_string();
        assert!(text.contains("'jetmax' (the nearest)"), "{text}");
    }

    #[test]
    fn an_added_router_half_needs_a_new_name_and_is_found() {
        let named = |name| -> &'static [RouterEntry] {
            vec![RouterEntry { name, ..jetmax::ROUTER }].leak()
        };
        for name in ["jetmax", "none"] {
            let text = add(named(name)).unwrap_err().to_string();
            assert!(text.contains("a name that no other router has"), "{text}");
        }
        assert_eq!(add(named("own")), Ok(()));
        assert!(find("own").is_ok() && names().len() == ENTRIES.len() + 1);
        let text = add(named("second")).unwrap_err().to_string();
        assert!(text.contains("added routers: 'second'"), "{text}");
    }
}
