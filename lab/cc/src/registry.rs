//! Registry of all controllers, those of this crate included: [`sabul_cc::registry`] after
//! [`register`], and controllers of the simulator only ([`add_simulated`]).

use std::sync::{Once, PoisonError, RwLock};

use sabul_cc::registry::check_entries;
use sabul_cc::{ConfigError, Policy};
use sabul_units::near;

pub use sabul_cc::registry::{Build, DEFAULT, Entry, Family, UnknownController};

use crate::bulk::{fobs, netblt, rbudp, tsunami};
use crate::explicit::{emkc, jetmax, maxnet, piqi_rcp, rcp, xcp};
use crate::tcp::{
    bbr1, bic, copa, dctcp, fast, highspeed, htcp, ledbatpp, lowpriority, ltcp, multcp, reno,
    scalable,
};
use crate::udt::{udt1, udt2, udt4};
use crate::{sabul2002, sabul2003, tfrc};

/// Controllers of this crate, in the order shown to users. [`all`] has every controller.
pub const ENTRIES: &[Entry] = &[
    sabul2003::ENTRY,
    sabul2002::ENTRY,
    reno::ENTRY,
    highspeed::ENTRY,
    scalable::ENTRY,
    htcp::ENTRY,
    bic::ENTRY,
    ltcp::ENTRY,
    multcp::ENTRY,
    fast::ENTRY,
    lowpriority::TCP_LP,
    lowpriority::HSTCP_LP,
    ledbatpp::ENTRY,
    copa::ENTRY,
    tfrc::ENTRY,
    dctcp::ENTRY,
    bbr1::ENTRY,
    udt1::ENTRY,
    udt2::ENTRY,
    udt4::ENTRY,
    rbudp::ENTRY,
    tsunami::ENTRY,
    fobs::ENTRY,
    netblt::ENTRY,
    jetmax::ENTRY,
    rcp::ENTRY,
    piqi_rcp::ENTRY,
    xcp::ENTRY,
    emkc::ENTRY,
    maxnet::ENTRY,
];

static REGISTERED: Once = Once::new();

/// Controllers of the simulator only, the oldest first.
static SIMULATED: RwLock<Vec<&'static Entry>> = RwLock::new(Vec::new());

/// Adds the controllers of this crate to [`sabul_cc::registry`], and its channel rules to
/// [`sabul_channel::rules`]. Further calls have no effect. A program calls it once at its start; the
/// functions of this module call it themselves.
///
/// # Panics
/// If the program has already added a controller with one of these names, or included controllers or
/// rules of another crate.
pub fn register() {
    REGISTERED.call_once(|| {
        sabul_channel::rules::include(crate::rules::ENTRIES)
            .expect("register before other channel rules are added");
        sabul_cc::registry::include(ENTRIES).expect("register before other controllers are added");
    });
}

/// Adds a program's own controllers, as [`sabul_cc::registry::add`].
///
/// # Errors
/// As [`sabul_cc::registry::add`].
pub fn add(entries: &'static [Entry]) -> Result<(), ConfigError> {
    register();
    sabul_cc::registry::add(entries)
}

/// Adds a controller that only the simulator finds, at any time. [`sabul_cc::registry`], and with it
/// every real transfer, does not have the controller. There is no removal: the entry is leaked.
///
/// # Errors
/// If the name is invalid or taken, or if a parameter is, as in [`add`].
pub fn add_simulated(entry: Entry) -> Result<(), ConfigError> {
    register();
    let mut simulated = SIMULATED.write().unwrap_or_else(PoisonError::into_inner);
    let is_taken = |name: &str| {
        let mut known = sabul_cc::registry::all().chain(simulated.iter().copied());
        known.any(|entry| entry.name == name)
    };
    check_entries("controller", &[(entry.name, entry.params)], is_taken)?;
    simulated.push(Box::leak(Box::new(entry)));
    Ok(())
}

/// Returns the controllers that only the simulator finds.
fn simulated() -> Vec<&'static Entry> {
    SIMULATED.read().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Returns the controllers that this program has added.
pub fn added() -> &'static [Entry] {
    sabul_cc::registry::added()
}

/// Returns all controllers in the order shown to users: those offered to users, those of this
/// crate, those that the program has added, and those of the simulator only.
pub fn all() -> impl Iterator<Item = &'static Entry> {
    register();
    sabul_cc::registry::all().chain(simulated())
}

/// Returns the entry with this name.
///
/// # Errors
/// As [`sabul_cc::registry::find`].
pub fn find(name: &str) -> Result<&'static Entry, UnknownController> {
    all().find(|entry| entry.name == name).ok_or_else(|| {
        let names: Vec<_> = all().map(|entry| entry.name).collect();
        UnknownController { name: name.to_owned(), near: near(name, &names) }
    })
}

/// Rejects a policy that the controller would ignore, as [`sabul_cc::registry::check_policy`].
///
/// # Errors
/// If the controller follows no policy; the error lists the controllers that do.
pub fn check_policy(entry: &Entry, policy: Policy) -> Result<(), ConfigError> {
    register();
    sabul_cc::registry::check_policy(entry, policy)
}

/// Rejects a remembered path for a controller that would ignore it, as
/// [`sabul_cc::registry::check_memory`].
///
/// # Errors
/// If the controller ignores remembered paths; the error lists the controllers that use them.
pub fn check_memory(entry: &Entry) -> Result<(), ConfigError> {
    register();
    sabul_cc::registry::check_memory(entry)
}

#[cfg(test)]
mod tests {
    use sabul_units::Bytes;

    use super::*;

    #[test]
    fn an_unknown_name_suggests_the_nearest_of_both_crates() {
        let text = |name| find(name).unwrap_err().to_string();
        assert_eq!(
            text("bbr"),
            "unknown controller 'bbr'; nearest: bbr3, bbr1; 'sabul cc list' lists all"
        );
        for (typed, meant) in [("sabul2004", "sabul2003"), ("hstcp", "htcp"), ("renno", "reno")] {
            assert!(find(typed).unwrap_err().near.contains(&meant), "{}", text(typed));
        }
    }

    #[test]
    fn the_offered_come_first_then_these_then_those_of_a_program_then_the_simulated() {
        const OWN: &[Entry] = &[Entry { name: "own", ..sabul2003::ENTRY }];
        let taken = add(ENTRIES).unwrap_err().to_string();
        assert!(taken.contains("a name that no other controller has"), "{taken}");
        assert_eq!(add(OWN), Ok(()));
        register();
        assert!(find("late").is_err());
        assert_eq!(add_simulated(Entry { name: "late", ..sabul2003::ENTRY }), Ok(()));
        let offered = sabul_cc::registry::ENTRIES.iter().chain(ENTRIES).chain(OWN);
        let expected: Vec<_> = offered.map(|entry| entry.name).chain(["late"]).collect();
        assert_eq!(all().map(|entry| entry.name).collect::<Vec<_>>(), expected);
        assert_eq!(added().len(), 1);
        // Real transfers use the registry below, which has no simulated controllers.
        assert!(find("late").is_ok() && sabul_cc::registry::find("late").is_err());
        assert!(find("lated").unwrap_err().near.contains(&"late"));
        for name in ["late", "own", "xcp", "cubic", "a b"] {
            let text = add_simulated(Entry { name, ..sabul2003::ENTRY }).unwrap_err().to_string();
            assert!(text.contains(name), "{text}");
        }
    }

    #[test]
    fn a_policy_the_controller_ignores_is_refused_with_alternatives() {
        for entry in ENTRIES {
            assert_eq!(check_policy(entry, Policy::Fair), Ok(()));
            for policy in [Policy::High, Policy::Low] {
                let is_allowed = check_policy(entry, policy).is_ok();
                assert_eq!(is_allowed, entry.follows_policy, "{}", entry.name);
            }
        }
        let text = check_policy(find("reno").unwrap(), Policy::Low).unwrap_err().to_string();
        assert!(text.contains("reno: 'low'") && text.contains("sabul2026"), "{text}");
    }

    #[test]
    fn parameters_are_rejected_never_clamped() {
        let build = |name: &str, key: &str, value: &str| {
            find(name).unwrap().build(&[(key.to_owned(), value.to_owned())], Bytes(1500))
        };
        assert!(build("sabul2003", "start", "published").is_ok());
        for (name, key, value) in [
            ("sabul2003", "start", "slow"),
            ("sabul2003", "syn_interval_ms", "0"),
            ("sabul2003", "syn_interval_ms", "nan"),
            ("sabul2003", "speed", "9"),
            ("sabul2003", "rate_mbps_initial", "0.5"),
            ("bic", "decrease", "0.95"),
            ("htcp", "rtt_scaling", "maybe"),
            ("ltcp", "layer_packets", "0.5"),
            ("scalable", "legacy_window_packets", "many"),
        ] {
            let error = build(name, key, value).unwrap_err();
            assert!(error.setting.contains(key), "{error}");
            assert!(error.to_string().contains(value), "{error}");
        }
    }
}
