//! Registry of controllers: names, descriptions, parameters and constructors.
//!
//! Three tables in a row: the controllers of this crate, those of another crate ([`include()`]), and
//! those of a program ([`add`]). The second and the third are filled once, before any other use.

use std::fmt;
use std::sync::OnceLock;

use sabul_units::near;

use crate::params::{ConfigError, ParamSpec, ParamValues};
use crate::policy::Policy;
use crate::tcp::{bbr3, cubic, newreno};
use crate::{fixed, sabul2026};

pub use crate::entry::{Build, Entry, Family};

/// Controller used if no controller is named.
pub const DEFAULT: &str = "sabul2026";

/// Longest name of a controller, in bytes.
const NAME_MAX: usize = 32;

/// Controllers included by another crate; set at most once.
static INCLUDED: OnceLock<&'static [Entry]> = OnceLock::new();

/// Controllers added by the program; set at most once.
static ADDED: OnceLock<&'static [Entry]> = OnceLock::new();

/// Controllers of this crate, in the order shown to users. [`all`] has the included and the added
/// controllers as well.
pub const ENTRIES: &[Entry] =
    &[sabul2026::ENTRY, newreno::ENTRY, cubic::ENTRY, bbr3::ENTRY, fixed::ENTRY];

/// Includes the controllers of a crate with further built-in controllers. Call before [`add`] and
/// before any look-up. A second call with the same names has no effect.
///
/// # Errors
/// As [`add`], and if other controllers were included before.
pub fn include(entries: &'static [Entry]) -> Result<(), ConfigError> {
    if INCLUDED.get().is_none() {
        check_new(entries, added())?;
    }
    let names = |entries: &[Entry]| -> Vec<_> { entries.iter().map(|entry| entry.name).collect() };
    let present = names(INCLUDED.get_or_init(|| entries));
    let given = names(entries);
    if present == given {
        return Ok(());
    }
    Err(refusal("included controllers".to_owned(), &given.join(", "), "one table for all"))
}

/// Adds a program's own controllers to every list and choice. Call once, before any look-up.
///
/// # Errors
/// If controllers were added before; if a name is not 1 to 32 letters, digits, `-` and `_`,
/// beginning with a letter; if a name is taken; if a parameter's name is malformed or duplicate; or
/// if its default is outside its range. After an error no controller was added.
pub fn add(entries: &'static [Entry]) -> Result<(), ConfigError> {
    check_new(entries, included())?;
    ADDED.set(entries).map_err(|_| {
        let names: Vec<_> = entries.iter().map(|entry| entry.name).collect();
        refusal("added controllers".to_owned(), &names.join(", "), "one call of add for all")
    })
}

/// Returns the controllers that another crate has included.
pub fn included() -> &'static [Entry] {
    INCLUDED.get().copied().unwrap_or_default()
}

/// Returns the controllers that this program has added.
pub fn added() -> &'static [Entry] {
    ADDED.get().copied().unwrap_or_default()
}

/// Returns all controllers in the order shown to users: first those of this crate, then the
/// included, then the added.
pub fn all() -> impl Iterator<Item = &'static Entry> {
    ENTRIES.iter().chain(included()).chain(added())
}

fn refusal(setting: String, value: &str, allowed: &str) -> ConfigError {
    ConfigError { setting, value: value.to_owned(), allowed: allowed.to_owned() }
}

/// Checks the names and parameters of `entries` beside the controllers of this crate and `others`.
fn check_new(entries: &'static [Entry], others: &[Entry]) -> Result<(), ConfigError> {
    let new: Vec<_> = entries.iter().map(|entry| (entry.name, entry.params)).collect();
    let is_taken = |name: &str| ENTRIES.iter().chain(others).any(|entry| entry.name == name);
    check_entries("controller", &new, is_taken)
}

/// Checks the names and parameters of new entries of a registry. `kind` names the entries in errors.
///
/// # Errors
/// As [`add`].
pub fn check_entries(
    kind: &str,
    new: &[(&'static str, &'static [ParamSpec])],
    is_taken: impl Fn(&str) -> bool,
) -> Result<(), ConfigError> {
    const NAME: &str = "1 to 32 letters, digits, '-' and '_', beginning with a letter";
    for (index, &(name, params)) in new.iter().enumerate() {
        let setting = || format!("name of an added {kind}");
        if !is_name(name) {
            return Err(refusal(setting(), name, NAME));
        }
        if is_taken(name) || new[..index].iter().any(|(taken, _)| *taken == name) {
            return Err(refusal(setting(), name, &format!("a name that no other {kind} has")));
        }
        for (index, spec) in params.iter().enumerate() {
            let setting = || format!("name of a parameter of {name}");
            if !is_name(spec.name) {
                return Err(refusal(setting(), spec.name, NAME));
            }
            if params[..index].iter().any(|taken| taken.name == spec.name) {
                return Err(refusal(setting(), spec.name, "each name once"));
            }
            // A default must pass the same check as a value from a user.
            let default = [(spec.name.to_owned(), spec.default.to_owned())];
            ParamValues::check(name, params, &default).map_err(|error| ConfigError {
                setting: format!("default of {}", error.setting),
                ..error
            })?;
        }
    }
    Ok(())
}

fn is_name(name: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    name.len() <= NAME_MAX
        && name.starts_with(|c: char| c.is_ascii_alphabetic())
        && name.chars().all(is_plain)
}

/// The registry has no controller of this name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownController {
    /// The name that was looked up.
    pub name: String,
    /// Similar names, the most similar first.
    pub near: Vec<&'static str>,
}

impl fmt::Display for UnknownController {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unknown controller '{}'; ", self.name)?;
        if !self.near.is_empty() {
            write!(f, "nearest: {}; ", self.near.join(", "))?;
        }
        f.write_str("'sabul cc list' lists all")
    }
}

impl std::error::Error for UnknownController {}

impl From<UnknownController> for ConfigError {
    fn from(error: UnknownController) -> Self {
        let names: Vec<_> = all().map(|entry| entry.name).collect();
        let hint = error.near.first();
        let hint = hint.map(|known| format!("'{known}' (the nearest), or ")).unwrap_or_default();
        let allowed = format!("{hint}one of: {}", names.join(", "));
        refusal("controller".to_owned(), &error.name, &allowed)
    }
}

/// Returns the entry with this name.
///
/// # Errors
/// If the registry has no such name; the error lists similar names.
pub fn find(name: &str) -> Result<&'static Entry, UnknownController> {
    all().find(|entry| entry.name == name).ok_or_else(|| {
        let names: Vec<_> = all().map(|entry| entry.name).collect();
        UnknownController { name: name.to_owned(), near: near(name, &names) }
    })
}

/// Rejects a policy that the controller would ignore. `Policy::Fair` is valid for every controller.
///
/// # Errors
/// If the controller follows no policy; the error lists the controllers that do.
pub fn check_policy(entry: &Entry, policy: Policy) -> Result<(), ConfigError> {
    if policy == Policy::Fair || entry.follows_policy {
        return Ok(());
    }
    let able: Vec<_> = all().filter(|entry| entry.follows_policy).map(|entry| entry.name).collect();
    let allowed = format!("fair, or a controller that follows policies: {}", able.join(", "));
    Err(refusal(format!("policy of controller {}", entry.name), policy.name(), &allowed))
}

/// Rejects a remembered path for a controller that would ignore it.
///
/// # Errors
/// If the controller ignores remembered paths; the error lists the controllers that use them.
pub fn check_memory(entry: &Entry) -> Result<(), ConfigError> {
    if entry.remembers_path {
        return Ok(());
    }
    let able: Vec<_> = all().filter(|entry| entry.remembers_path).map(|entry| entry.name).collect();
    let allowed = format!("none, or a controller that remembers paths: {}", able.join(", "));
    Err(refusal(format!("remembered path of controller {}", entry.name), "one", &allowed))
}

#[cfg(test)]
mod tests {
    use sabul_units::Bytes;

    use super::*;
    use crate::params::Unit;

    #[test]
    fn an_unknown_name_suggests_the_nearest() {
        let text = |name| find(name).unwrap_err().to_string();
        assert_eq!(
            text("bbr"),
            "unknown controller 'bbr'; nearest: bbr3; 'sabul cc list' lists all"
        );
        for (typed, meant) in
            [("sabul2027", "sabul2026"), ("newrno", "newreno"), ("qubic", "cubic")]
        {
            assert!(find(typed).unwrap_err().near.contains(&meant), "{}", text(typed));
        }
        for stranger in ["zzz", "", "q"] {
            assert!(!text(stranger).contains("nearest"), "{}", text(stranger));
        }
        // A policy without a named controller applies to the default controller.
        assert!(find(DEFAULT).is_ok_and(|entry| entry.follows_policy));
    }

    #[test]
    fn a_policy_the_controller_ignores_is_refused_with_alternatives() {
        for entry in ENTRIES {
            assert_eq!(check_policy(entry, Policy::Fair), Ok(()));
            for policy in [Policy::High, Policy::Low] {
                assert_eq!(
                    check_policy(entry, policy).is_ok(),
                    entry.follows_policy,
                    "{}",
                    entry.name
                );
            }
        }
        let text = check_policy(find("cubic").unwrap(), Policy::Low).unwrap_err().to_string();
        assert!(text.contains("cubic: 'low'") && text.contains("sabul2026"), "{text}");
    }

    #[test]
    fn parameters_are_rejected_never_clamped() {
        let build = |name: &str, key: &str, value: &str| {
            find(name).unwrap().build(&[(key.to_owned(), value.to_owned())], Bytes(1500))
        };
        assert!(build("bbr3", "loss", "draft").is_ok());
        for (name, key, value) in [
            ("bbr3", "loss", "slow"),
            ("cubic", "speed", "9"),
            ("cubic", "initial_window", "0.5"),
            ("newreno", "initial_window", "nan"),
            ("newreno", "ssthresh_packets", "many"),
            ("fixed", "rate_mbps", "-1"),
            ("fixed", "rate_mbps", "inf"),
        ] {
            let error = build(name, key, value).unwrap_err();
            assert!(error.setting.contains(key), "{error}");
            assert!(error.to_string().contains(value), "{error}");
        }
    }

    const RANGED: ParamSpec = ParamSpec::new("share", Unit::Number, "0.5", (0.0, 1.0));

    fn named(name: &'static str, params: &'static [ParamSpec]) -> Entry {
        Entry { name, params, ..ENTRIES[0] }
    }

    fn refused(entries: Vec<Entry>) -> String {
        check_new(entries.leak(), &[]).unwrap_err().to_string()
    }

    #[test]
    fn added_controllers_need_new_and_plain_names() {
        for name in ["", "a b", "1st", "-x", "naïve", "a/b", "x".repeat(33).leak()] {
            let text = refused(vec![named("fine", &[]), named(name, &[])]);
            assert!(text.contains("name of an added controller") && text.contains(name), "{text}");
        }
        for taken in ["cubic", "twice"] {
            let text = refused(vec![named("twice", &[]), named(taken, &[])]);
            assert!(text.contains(taken) && text.contains("no other controller has"), "{text}");
        }
        let most = "x".repeat(32).leak();
        let good = vec![named("gentle", &[RANGED]), named("Gentle-2_b", &[]), named(most, &[])];
        assert_eq!(check_new(good.leak(), &[]), Ok(()));
    }

    #[test]
    fn parameters_of_an_added_controller_are_checked_when_it_is_added() {
        const BAD: [(&str, &str, (f64, f64), &str); 5] = [
            ("share", "1.5", (0.0, 1.0), "0 to 1"),
            ("share", "half", (0.0, 1.0), "0 to 1"),
            ("share", "0.5", (1.0, 0.0), "1 to 0"),
            ("share", "0.5", (f64::NAN, 1.0), "default of"),
            ("a share", "0.5", (0.0, 1.0), "letters, digits"),
        ];
        for (name, default, range, part) in BAD {
            let spec = ParamSpec { name, default, range, ..RANGED };
            let text = refused(vec![named("gentle", vec![spec].leak())]);
            assert!(text.contains("gentle") && text.contains(part), "{text}");
        }
        let word = ParamSpec { unit: Unit::Word(&["a", "b"]), default: "c", ..RANGED };
        assert!(refused(vec![named("gentle", vec![word].leak())]).contains("one of: a, b"));
        assert!(refused(vec![named("gentle", &[RANGED, RANGED])]).contains("each name once"));
    }

    #[test]
    fn another_crate_includes_its_controllers_once_and_names_stay_unique() {
        let other: &'static [Entry] = vec![named("other", &[])].leak();
        let twin: &'static [Entry] = vec![named("twin", &[])].leak();
        assert!(include(vec![named("cubic", &[])].leak()).is_err());
        assert_eq!((include(other), include(other)), (Ok(()), Ok(())));
        assert!(include(twin).unwrap_err().to_string().contains("one table for all"));
        assert!(find("other").is_ok() && included().len() == 1);
        let taken = add(vec![named("other", &[])].leak()).unwrap_err().to_string();
        assert!(taken.contains("no other controller has"), "{taken}");
    }
}
