//! Rights of one key or ticket.

use std::fmt;
use std::net::IpAddr;
use std::time::SystemTime;

use sabul_cc::Policy;
use sabul_units::Rate;

use crate::expiry::Expiry;
use crate::origin::Origins;

/// A kind of operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Right {
    /// Read files; includes lists.
    Read,
    /// Write files and create directories.
    Write,
    /// List directories and show attributes.
    List,
    /// Remove files, if the server permits removal at all.
    Remove,
    /// Measure the path.
    Measure,
    /// Register at an introducer.
    Introduce,
    /// Have the server dial another server, if the server permits that at all.
    Dial,
}

impl Right {
    /// All rights, in the order shown to users.
    pub const ALL: [Self; 7] = [
        Self::Read,
        Self::Write,
        Self::List,
        Self::Remove,
        Self::Measure,
        Self::Introduce,
        Self::Dial,
    ];

    /// Returns the name that users type.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::List => "list",
            Self::Remove => "remove",
            Self::Measure => "measure",
            Self::Introduce => "introduce",
            Self::Dial => "dial",
        }
    }
}

/// A set of rights. The default is all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rights([bool; Right::ALL.len()]);

impl Default for Rights {
    fn default() -> Self {
        Self([true; Right::ALL.len()])
    }
}

impl Rights {
    /// Parses names separated by commas.
    ///
    /// # Errors
    /// If a name is unknown.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut rights = Self([false; Right::ALL.len()]);
        for name in text.split(',').map(str::trim) {
            let at = Right::ALL.iter().position(|right| right.name() == name).ok_or_else(|| {
                let known = Right::ALL.map(Right::name).join(", ");
                format!("'{name}' is not a right: choose from {known}")
            })?;
            rights.0[at] = true;
        }
        Ok(rights)
    }

    /// The set of this right only.
    pub fn only(right: Right) -> Self {
        Self(Right::ALL.map(|it| it == right))
    }

    /// Returns whether the set has this right. The right to read includes the right to list.
    pub fn allow(self, right: Right) -> bool {
        let has =
            |wanted: Right| Right::ALL.iter().zip(self.0).any(|(it, has)| has && *it == wanted);
        has(right) || (right == Right::List && has(Right::Read))
    }
}

impl fmt::Display for Rights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = Right::ALL.iter().zip(self.0).filter(|(_, has)| *has);
        f.write_str(&names.map(|(right, _)| right.name()).collect::<Vec<_>>().join(","))
    }
}

/// Rights of one key or ticket. The default has all rights.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Grant {
    /// Directory below the root of the server, without `.` and `..`; empty for the root itself.
    pub root: Vec<u8>,
    /// Permitted operations.
    pub rights: Rights,
    /// Upper limit of the rate of each transfer.
    pub rate: Option<Rate>,
    /// Policy of each transfer towards other traffic.
    pub policy: Option<Policy>,
    /// End of the grant.
    pub expires: Option<Expiry>,
    /// Accepted addresses of clients.
    pub from: Option<Origins>,
}

impl Grant {
    /// Sets an option by its name in the file of keys, and returns `false` if there is no such option.
    ///
    /// # Errors
    /// If the value is invalid.
    pub fn set(&mut self, name: &str, value: &str) -> Result<bool, String> {
        match name {
            "root" => self.root = parse_root(value)?,
            "rights" => self.rights = Rights::parse(value)?,
            "rate" => {
                let rate: Rate = value.parse().map_err(|error| format!("rate: {error}"))?;
                if rate.0 == 0 {
                    return Err("a rate of 0 would send nothing".to_owned());
                }
                self.rate = Some(rate);
            }
            "policy" => {
                let known = || Policy::ALL.map(Policy::name).join(", ");
                let policy = Policy::named(value)
                    .ok_or_else(|| format!("'{value}' is not a policy: choose from {}", known()))?;
                self.policy = Some(policy);
            }
            "expiry-time" => self.expires = Some(Expiry::parse(value)?),
            "from" => self.from = Some(Origins::parse(value)?),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Returns the reason why a client at this address is refused now.
    pub fn refusal(&self, client: IpAddr, now: SystemTime) -> Option<String> {
        if let Some(expires) = self.expires.filter(|expires| expires.is_over(now)) {
            return Some(format!("expired at {expires}"));
        }
        let is_elsewhere = self.from.as_ref().is_some_and(|from| !from.allow(client));
        is_elsewhere.then(|| format!("not accepted from {}", client.to_canonical()))
    }
}

/// Parses a directory below the root of the server. A leading `/` stands for that root.
fn parse_root(text: &str) -> Result<Vec<u8>, String> {
    let names: Vec<&str> =
        text.split('/').filter(|name| !name.is_empty() && *name != ".").collect();
    if names.contains(&"..") || text.contains('\0') {
        return Err(format!(
            "root '{text}' leads out: write a directory below the root of the server"
        ));
    }
    Ok(names.join("/").into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read_and_unknown_ones_reported() {
        let mut grant = Grant::default();
        for (name, value) in [
            ("root", "/a//./b/"),
            ("rights", "read, write"),
            ("rate", "10M"),
            ("policy", "low"),
            ("expiry-time", "20300101Z"),
            ("from", "192.0.2.0/24"),
        ] {
            assert_eq!(grant.set(name, value), Ok(true), "{name}");
        }
        assert_eq!(grant.root, b"a/b");
        assert_eq!(grant.rights.to_string(), "read,write");
        assert_eq!(grant.rate, Some(Rate::from_mbps(10)));
        assert_eq!(grant.set("command", "x"), Ok(false));
        for (name, value) in [
            ("root", "a/../b"),
            ("rights", "read,all"),
            ("rate", "0"),
            ("rate", "fast"),
            ("policy", "rude"),
            ("expiry-time", "soon"),
            ("from", "example.org"),
        ] {
            assert!(grant.set(name, value).is_err(), "{name} {value}");
        }
    }

    #[test]
    fn reading_includes_listing_and_nothing_else() {
        let allowed = |text: &str| {
            let rights = Rights::parse(text).unwrap();
            Right::ALL.into_iter().filter(|right| rights.allow(*right)).collect::<Vec<_>>()
        };
        assert_eq!(allowed("read"), [Right::Read, Right::List]);
        assert_eq!(allowed("write"), [Right::Write]);
        assert!(Right::ALL.iter().all(|right| Rights::default().allow(*right)));
    }

    #[test]
    fn an_expired_grant_or_another_place_is_refused() {
        let now = SystemTime::now();
        let here = "192.0.2.1".parse().unwrap();
        let mut grant = Grant::default();
        assert_eq!(grant.refusal(here, now), None);
        grant.set("from", "198.51.100.0/24").unwrap();
        assert!(grant.refusal(here, now).unwrap().contains("from 192.0.2.1"));
        grant.set("from", "192.0.2.1").unwrap();
        grant.set("expiry-time", "20200101Z").unwrap();
        assert!(grant.refusal(here, now).unwrap().contains("expired at 20200101000000Z"));
    }
}
