//! Every controller by name: what it is, its parameters, how to build it.
//!
//! Program, scenarios, simulator and lab all read this table. A program may [`add`] controllers of its
//! own, once, before anything else.

use std::sync::OnceLock;

use sabul_units::Bytes;

use crate::bulk::{fobs, netblt, rbudp, tsunami};
use crate::controller::Controller;
use crate::guard::Guard;
use crate::params::{ConfigError, ParamSpec, ParamValues};
use crate::tcp::{
    bbr1, bbr3, bic, cubic, dctcp, fast, highspeed, htcp, lowpriority, ltcp, multcp, newreno, reno,
    scalable,
};
use crate::udt::{udt1, udt2, udt4};
use crate::{fixed, sabul2002, sabul2003};

/// The controller used where none is named.
pub const DEFAULT: &str = "bbr3";

/// Makes a controller.
pub type Build = fn(&ParamValues, Bytes) -> Result<Box<dyn Controller>, ConfigError>;

/// What a controller limits at all times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// The gap between packets.
    Rate,
    /// The packets on the way: what a TCP host needs.
    Window,
    /// Both, each in need of the other: a TCP host that keeps the gap.
    PacedWindow,
}

/// One registered controller.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// The name users type.
    pub name: &'static str,
    /// One line for lists.
    pub summary: &'static str,
    /// Where the algorithm comes from.
    pub source: &'static str,
    /// Its parameters.
    pub params: &'static [ParamSpec],
    /// What it limits.
    pub family: Family,
    /// Whether it reacts to loss; baselines do not.
    pub is_adaptive: bool,
    /// Makes one from checked parameters and the size of a full packet on the wire.
    pub build: Build,
}

/// Longest name of a controller.
const NAME_MAX: usize = 32;

/// What this program has added; set at most once.
static ADDED: OnceLock<&'static [Entry]> = OnceLock::new();

/// The controllers of this crate, in the order shown to users. [`all`] has those of the program too.
pub const ENTRIES: &[Entry] = &[
    Entry {
        name: "sabul2003",
        summary: "SABUL's rate control as published in 2003, started by a search for the rate",
        source: "[SABUL] Gu, Hong, Mazzucco, Grossman 2003, sections II-D and II-E",
        params: sabul2003::PARAMS,
        family: Family::Rate,
        is_adaptive: true,
        build: sabul2003::build,
    },
    Entry {
        name: "sabul2002",
        summary: "SABUL's first rate control, multiplicative both ways: a historical reference",
        source: "[OVV-T §II] Oothongsap, Viniotis, Vouk; defects after [OVV04 §3]",
        params: sabul2002::PARAMS,
        family: Family::Rate,
        is_adaptive: true,
        build: sabul2002::build,
    },
    Entry {
        name: "newreno",
        summary: "TCP NewReno's window: one packet a round trip more, half at each loss; paced",
        source: "[RFC5681 §3.1], [RFC6582 §3.2]",
        params: newreno::PARAMS,
        family: Family::Window,
        is_adaptive: true,
        build: newreno::build,
    },
    Entry {
        name: "cubic",
        summary: "TCP CUBIC's window: a cubic curve of the time since the last loss; paced",
        source: "[RFC9438 §4], [RFC9406 §4]",
        params: cubic::PARAMS,
        family: Family::Window,
        is_adaptive: true,
        build: cubic::build,
    },
    Entry {
        name: "reno",
        summary: "TCP Reno's window: as newreno, but a decrease answers the losses of one round trip",
        source: "[RFC5681 §3.1], [RFC5681 §3.2]",
        params: reno::PARAMS,
        family: Family::Window,
        is_adaptive: true,
        build: reno::build,
    },
    Entry {
        name: "highspeed",
        summary: "HighSpeed TCP's window: the larger it is, the more it grows and the less it falls; paced",
        source: "[RFC3649 §5], [RFC3649 §7]",
        params: highspeed::PARAMS,
        family: Family::Window,
        is_adaptive: true,
        build: highspeed::build,
    },
    Entry {
        name: "scalable",
        summary: "Scalable TCP's window: 1 % a round trip more, an eighth less at each loss; paced",
        source: "[STCP] Kelly 2003",
        params: scalable::PARAMS,
        family: Family::Window,
        is_adaptive: true,
        build: scalable::build,
    },
    Entry {
        name: "htcp",
        summary: "H-TCP's window: the longer ago the last loss, the faster it grows; paced",
        source: "[HTCP] Shorten, Leith 2004; details after [LINUX tcp_htcp.c]",
        params: htcp::PARAMS,
        family: Family::Window,
        is_adaptive: true,
        build: htcp::build,
    },
    Entry {
        name: "bic",
        summary: "BIC's window: a binary search for where the last loss came; paced",
        source: "[BIC] Xu, Harfoush, Rhee 2004; constants of [LINUX tcp_bic.c]",
        params: bic::PARAMS,
        family: Family::Window,
        is_adaptive: true,
        build: bic::build,
    },
    Entry {
        name: "ltcp",
        summary: "LTCP's window: grows like as many flows as it has layers; paced",
        source: "[LTCP] Bhandarkar, Jain, Reddy 2006",
        params: ltcp::PARAMS,
        family: Family::Window,
        is_adaptive: true,
        build: ltcp::build,
    },
    Entry {
        name: "multcp",
        summary: "MulTCP's window: that of several newreno flows together; paced",
        source: "[MULTCP] Crowcroft, Oechslin 1998",
        params: multcp::PARAMS,
        family: Family::Window,
        is_adaptive: true,
        build: multcp::build,
    },
    Entry {
        name: "fast",
        summary: "FAST's window: a fixed number of packets queued, told by the delay; paced",
        source: "[FAST] Jin, Wei, Low 2004",
        params: fast::PARAMS,
        family: Family::Window,
        is_adaptive: true,
        build: fast::build,
    },
    Entry {
        name: "tcp-lp",
        summary: "TCP-LP's window: newreno that makes room when the delay grows; paced",
        source: "[TCPLP] Kuzmanovic, Knightly 2003",
        params: lowpriority::PARAMS,
        family: Family::Window,
        is_adaptive: true,
        build: lowpriority::build_tcp_lp,
    },
    Entry {
        name: "hstcp-lp",
        summary: "HSTCP-LP's window: highspeed that makes room when the delay grows; paced",
        source: "[HSTCPLP] Kuzmanovic, Knightly, Cottrell 2004",
        params: lowpriority::PARAMS,
        family: Family::Window,
        is_adaptive: true,
        build: lowpriority::build_hstcp_lp,
    },
    Entry {
        name: "dctcp",
        summary: "DCTCP's window: a mark takes as much as the share of marked packets; paced",
        source: "[RFC8257 §3.3]",
        params: dctcp::PARAMS,
        family: Family::Window,
        is_adaptive: true,
        build: dctcp::build,
    },
    Entry {
        name: "bbr1",
        summary: "BBR version 1: paces at the largest rate at which packets were seen to arrive",
        source: "[BBR] Cardwell, Cheng, Gunn, Yeganeh, Jacobson 2016; details after [LINUX tcp_bbr.c]",
        params: bbr1::PARAMS,
        family: Family::PacedWindow,
        is_adaptive: true,
        build: bbr1::build,
    },
    Entry {
        name: "bbr3",
        summary: "BBR version 3: as bbr1, but loss bounds what it keeps on the way and how it probes",
        source: "[BBR3] Cardwell, Swett, Beshay (editors), Internet-Draft of 2026",
        params: bbr3::PARAMS,
        family: Family::PacedWindow,
        is_adaptive: true,
        build: bbr3::build,
    },
    Entry {
        name: "udt1",
        summary: "UDT 1's rate and window: SABUL's decrease, an increase by what is free",
        source: "[UDT1] Gu, Grossman 2003",
        params: udt1::PARAMS,
        family: Family::Rate,
        is_adaptive: true,
        build: udt1::build,
    },
    Entry {
        name: "udt2",
        summary: "UDT 2's rate and window: chance says which loss reports lower the rate",
        source: "[UDT2] Gu 2006; [DAIMD] Gu, Hong, Grossman 2004",
        params: udt2::PARAMS,
        family: Family::Rate,
        is_adaptive: true,
        build: udt2::build,
    },
    Entry {
        name: "udt4",
        summary: "UDT 4's rate and window: starts at the speed of arrival, five cuts an epoch at most",
        source: "[UDT4 §7.2], [UDT4 ccc.cpp] Gu 2010, 2013",
        params: udt4::PARAMS,
        family: Family::Rate,
        is_adaptive: true,
        build: udt4::build,
    },
    Entry {
        name: "rbudp",
        summary: "RBUDP: one constant rate; what a round lost is sent in the next, deaf to loss",
        source: "[RBUDP] He, Leigh, Yu 2002",
        params: rbudp::PARAMS,
        family: Family::Rate,
        is_adaptive: false,
        build: rbudp::build,
    },
    Entry {
        name: "tsunami",
        summary: "Tsunami: the gap follows the share of blocks that the receiver asks for again",
        source: "[TSUNAMI] Indiana University's client and server, 2006 to 2010",
        params: tsunami::PARAMS,
        family: Family::Rate,
        is_adaptive: true,
        build: tsunami::build,
    },
    Entry {
        name: "fobs",
        summary: "FOBS: round and round over what is not acknowledged, never waiting",
        source: "[FOBS] Dickens, Gropp 2002",
        params: fobs::PARAMS,
        family: Family::Rate,
        is_adaptive: false,
        build: fobs::build,
    },
    Entry {
        name: "netblt",
        summary: "NETBLT: bursts at fixed times, buffer by buffer; the receiver asks for what is missing",
        source: "[RFC998] Clark, Lambert, Zhang 1987",
        params: netblt::PARAMS,
        family: Family::Rate,
        is_adaptive: false,
        build: netblt::build,
    },
    Entry {
        name: "fixed",
        summary: "One constant rate, deaf to loss: a baseline, for paths that are yours alone",
        source: "ours",
        params: fixed::PARAMS,
        family: Family::Rate,
        is_adaptive: false,
        build: fixed::build,
    },
];

impl Entry {
    /// A controller of this kind; `packet_bytes` is the full packet's size on the wire. Panics and
    /// impossible answers of it become its [`Controller::fault`].
    ///
    /// # Errors
    /// On an unknown parameter or a value out of its range.
    pub fn build(
        &self,
        params: &[(String, String)],
        packet_bytes: Bytes,
    ) -> Result<Box<dyn Controller>, ConfigError> {
        let values = ParamValues::check(self.name, self.params, params)?;
        Ok(Box::new(Guard::build(self, &values, packet_bytes)?))
    }
}

/// Adds a program's own controllers to every list and choice. Once, before anything asks for one.
///
/// # Errors
/// If controllers were added before; if a name is not 1 to 32 letters, digits, `-` and `_`, beginning
/// with a letter, or is taken; if a parameter's name is malformed or comes twice, or its default is
/// not within its range. Nothing is added then.
pub fn add(entries: &'static [Entry]) -> Result<(), ConfigError> {
    check_added(entries)?;
    ADDED.set(entries).map_err(|_| {
        let names: Vec<_> = entries.iter().map(|entry| entry.name).collect();
        refusal("added controllers".to_owned(), &names.join(", "), "one call of add for all")
    })
}

/// The controllers that this program has added.
pub fn added() -> &'static [Entry] {
    ADDED.get().copied().unwrap_or_default()
}

/// Every controller, in the order shown to users: those of this crate, then those added.
pub fn all() -> impl Iterator<Item = &'static Entry> {
    ENTRIES.iter().chain(added())
}

fn refusal(setting: String, value: &str, allowed: &str) -> ConfigError {
    ConfigError { setting, value: value.to_owned(), allowed: allowed.to_owned() }
}

fn check_added(entries: &'static [Entry]) -> Result<(), ConfigError> {
    const NAME: &str = "1 to 32 letters, digits, '-' and '_', beginning with a letter";
    for (index, entry) in entries.iter().enumerate() {
        let Entry { name, params, .. } = *entry;
        if !is_name(name) {
            return Err(refusal("name of an added controller".to_owned(), name, NAME));
        }
        if ENTRIES.iter().chain(&entries[..index]).any(|taken| taken.name == name) {
            let setting = "name of an added controller".to_owned();
            return Err(refusal(setting, name, "a name that no other controller has"));
        }
        for (index, spec) in params.iter().enumerate() {
            let setting = || format!("name of a parameter of {name}");
            if !is_name(spec.name) {
                return Err(refusal(setting(), spec.name, NAME));
            }
            if params[..index].iter().any(|taken| taken.name == spec.name) {
                return Err(refusal(setting(), spec.name, "each name once"));
            }
            // A default stands by the same rules as what a user gives.
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

/// The entry of this name.
///
/// # Errors
/// If there is none; the error names the nearest and lists all.
pub fn find(name: &str) -> Result<&'static Entry, ConfigError> {
    all().find(|entry| entry.name == name).ok_or_else(|| {
        let names: Vec<_> = all().map(|entry| entry.name).collect();
        let nearest = names.iter().min_by_key(|known| distance(name, known));
        // A short name must share a letter with what it is said to be near to.
        let most = name.chars().count().saturating_sub(1).min(3);
        let hint = nearest
            .filter(|known| distance(name, known) <= most)
            .map_or_else(String::new, |known| format!("'{known}' (the nearest), or "));
        ConfigError {
            setting: "controller".to_owned(),
            value: name.to_owned(),
            allowed: format!("{hint}one of: {}", names.join(", ")),
        }
    })
}

/// Letters to insert, drop or change to make one word the other.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let change = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = change.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::params::Unit;

    #[test]
    fn an_unknown_name_suggests_the_nearest() {
        let text = find("sabul2004").unwrap_err().to_string();
        assert!(text.contains("'sabul2003' (the nearest)"), "{text}");
        for (typed, meant) in [("hstcp", "htcp"), ("renno", "reno"), ("bick", "bic")] {
            let text = find(typed).unwrap_err().to_string();
            assert!(text.contains(&format!("'{meant}' (the nearest)")), "{text}");
        }
        for stranger in ["zzz", "", "q"] {
            let text = find(stranger).unwrap_err().to_string();
            assert!(!text.contains("nearest") && text.contains("highspeed"), "{text}");
        }
        assert!(find(DEFAULT).is_ok());
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
            ("fixed", "rate_mbps", "-1"),
            ("fixed", "rate_mbps", "inf"),
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

    const RANGED: ParamSpec = ParamSpec {
        name: "share",
        unit: Unit::Number,
        default: "0.5",
        range: (0.0, 1.0),
        doc: "",
        source: "",
    };

    fn named(name: &'static str, params: &'static [ParamSpec]) -> Entry {
        Entry { name, params, ..ENTRIES[0] }
    }

    fn refused(entries: Vec<Entry>) -> String {
        check_added(entries.leak()).unwrap_err().to_string()
    }

    #[test]
    fn a_program_adds_controllers_under_new_and_plain_names() {
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
        assert_eq!(check_added(good.leak()), Ok(()));
    }

    #[test]
    fn the_parameters_of_an_added_controller_are_checked_before_anybody_uses_it() {
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
    fn every_parameter_takes_its_default_and_its_bounds_and_names_them_beyond() {
        for entry in ENTRIES {
            for spec in entry.params {
                let build = |value: &str| {
                    entry.build(&[(spec.name.to_owned(), value.to_owned())], Bytes(1500))
                };
                assert!(build(spec.default).is_ok(), "{} {}", entry.name, spec.name);
                if let Unit::Word(words) = spec.unit {
                    assert!(words.contains(&spec.default), "{} {}", entry.name, spec.name);
                    continue;
                }
                let error = build(&(spec.range.1 * 2.0 + 1.0).to_string()).unwrap_err();
                let range = format!("{} to {}", spec.range.0, spec.range.1);
                assert!(error.allowed.contains(&range), "{} {}: {error}", entry.name, spec.name);
            }
        }
    }
}
