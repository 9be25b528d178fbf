//! Registry of router halves: names, parameters and constructors.

use sabul_cc::ConfigError;
use sabul_units::nearest;

pub use super::router::{BuildRouter, RouterEntry};
use super::{emkc, jetmax, maxnet, piqi_rcp, rcp, xcp};

/// All router halves, in the order shown to users.
pub const ROUTERS: &[RouterEntry] =
    &[jetmax::ROUTER, rcp::ROUTER, piqi_rcp::ROUTER, xcp::ROUTER, emkc::ROUTER, maxnet::ROUTER];

/// Names of all router halves.
pub const ROUTER_NAMES: &[&str] = &{
    let mut names = [""; ROUTERS.len()];
    let mut n = 0;
    while n < names.len() {
        names[n] = ROUTERS[n].name;
        n += 1;
    }
    names
};

/// Returns the entry with this name.
///
/// # Errors
/// If the registry has no such name; the error names the nearest and lists all.
pub fn find(name: &str) -> Result<&'static RouterEntry, ConfigError> {
    ROUTERS.iter().find(|entry| entry.name == name).ok_or_else(|| {
        let hint = nearest(name, ROUTER_NAMES)
            .map_or_else(String::new, |known| format!("'{known}' (the nearest), or "));
        ConfigError {
            setting: "router".to_owned(),
            value: name.to_owned(),
            allowed: format!("{hint}one of: {}", ROUTER_NAMES.join(", ")),
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
        for entry in ROUTERS {
            let host = registry::find(entry.name).unwrap();
            let host = host.build(&[], sabul_units::Bytes(1500)).unwrap();
            assert_eq!(host.header().map(|fields| fields.form()), Some(entry.form));
            assert!(entry.router(&[], Rate::from_mbps(100), 0).is_ok(), "{}", entry.name);
        }
        let text = find("jetmx").unwrap_err().to_string();
        assert!(text.contains("'jetmax' (the nearest)"), "{text}");
    }
}
