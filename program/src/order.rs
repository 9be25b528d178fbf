//! Orders for a copy between two servers, as a client sends them to each server.
//!
//! An order is one line of JSON in the stream [`ORDER`] to the server. The names of a selection follow: each ends with a
//! zero byte, and the last is empty. The answer is the stream [`ANSWER`] from the server: lines of JSON. The client first orders a ticket for one copy from one server, and then the copy from the other.

use sabul::files::{Rule, RuleKind};
use sabul::settings::Carrier;
use sabul::{Policy, TransferOptions};
use sabul_units::{Bytes, Rate};
use serde::{Deserialize, Serialize};

/// Name of the stream with an order; the number is the version of the documents.
pub(crate) const ORDER: &str = "sabul.order.3";
/// Name of the stream with the answer.
pub(crate) const ANSWER: &str = "sabul.answer.1";
/// Ours: longest order in bytes.
pub(crate) const ORDER_MAX: u64 = 256 << 10;
/// Ours: most rules of an order; the server compiles them.
const RULES_MAX: usize = 1000;
/// Longest pattern of a rule in bytes, as in the protocol.
const PATTERN_MAX: usize = 1024;

/// An order. It has no `Debug`, because the ticket is a secret.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Order {
    /// Make a ticket with which the other server may write at this destination.
    AdmitPut(String),
    /// Make a ticket with which the other server may read these sources.
    AdmitGet(Vec<String>),
    /// Send files to the server of the ticket.
    Send(Box<CopyOrder>),
    /// Receive files from the server of the ticket.
    Fetch(Box<CopyOrder>),
}

impl Order {
    /// Whether names follow.
    pub(crate) const fn is_selected(&self) -> bool {
        match self {
            Self::AdmitPut(_) | Self::AdmitGet(_) => false,
            Self::Send(order) | Self::Fetch(order) => order.selected,
        }
    }
}

/// Answer to the order of a ticket.
#[derive(Serialize, Deserialize)]
pub(crate) struct Admitted {
    /// The ticket.
    pub(crate) ticket: String,
}

/// A copy between the server of the order and the server of the ticket.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CopyOrder {
    /// Addresses, fingerprint and secret of the other server.
    pub(crate) ticket: String,
    pub(crate) sources: Vec<String>,
    pub(crate) recursive: bool,
    /// Only the entries whose names follow the order are copied.
    pub(crate) selected: bool,
    pub(crate) destination: String,
    pub(crate) files: FileSettings,
    pub(crate) channel: ChannelSettings,
}

/// Settings about files.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct FileSettings {
    preserve: bool,
    archive: bool,
    hard_links: bool,
    sync: bool,
    resume: bool,
    read_back: bool,
    growing: bool,
    new_names: bool,
    rules: Vec<OrderRule>,
}

/// A rule for names. The form of a [`Rule`] on the wire cannot be read from JSON.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct OrderRule {
    kind: RuleKind,
    pattern: Vec<u8>,
}

/// Settings of the channel.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ChannelSettings {
    cc: String,
    cc_params: Vec<(String, String)>,
    policy: String,
    rate_bps: Option<u64>,
    carrier: String,
    tcp: u8,
    channels: Option<u8>,
    mtu_max: Option<u64>,
}

/// Names of the carriers in orders.
const CARRIERS: [(&str, Carrier); 3] =
    [("auto", Carrier::Auto), ("udp", Carrier::Udp), ("tcp", Carrier::Tcp)];

impl FileSettings {
    /// Returns the settings of these options.
    pub(crate) fn of(options: &TransferOptions) -> Self {
        Self {
            preserve: options.preserve,
            archive: options.archive_mode,
            hard_links: options.hard_links,
            sync: options.sync,
            resume: options.resume,
            read_back: options.read_back,
            growing: options.growing,
            new_names: options.new_names,
            rules: options
                .rules
                .iter()
                .map(|Rule { kind, pattern }| OrderRule { kind: *kind, pattern: pattern.clone() })
                .collect(),
        }
    }
}

impl ChannelSettings {
    /// Returns the settings of these options; `None` for a carrier that no server has.
    pub(crate) fn of(options: &TransferOptions) -> Option<Self> {
        let (carrier, _) = CARRIERS.iter().find(|(_, carrier)| *carrier == options.carrier)?;
        Some(Self {
            cc: options.controller.clone(),
            cc_params: options.controller_params.clone(),
            policy: options.policy.name().to_owned(),
            rate_bps: options.rate_limit.map(|rate| rate.0),
            carrier: (*carrier).to_owned(),
            tcp: options.tcp_connections,
            channels: options.channels,
            mtu_max: options.mtu_max.map(|bytes| bytes.0),
        })
    }
}

impl CopyOrder {
    /// Returns the transfer options. The library checks their values when the transfer starts.
    ///
    /// # Errors
    /// If a name is unknown, or there are too many rules.
    pub(crate) fn options(&self) -> Result<TransferOptions, String> {
        let Self { files, channel, .. } = self;
        let policy = Policy::named(&channel.policy)
            .ok_or_else(|| format!("the order has the unknown policy {:?}", channel.policy))?;
        let (_, carrier) = CARRIERS
            .iter()
            .find(|(name, _)| *name == channel.carrier)
            .ok_or_else(|| format!("the order has the unknown carrier {:?}", channel.carrier))?;
        if files.rules.len() > RULES_MAX {
            return Err(format!(
                "the order has {} rules for names: give at most {RULES_MAX}",
                files.rules.len()
            ));
        }
        if files.rules.iter().any(|rule| rule.pattern.len() > PATTERN_MAX) {
            return Err(format!("the order has a pattern of more than {PATTERN_MAX} bytes"));
        }
        let rules = files.rules.iter();
        let rules: Vec<_> =
            rules.map(|it| Rule { kind: it.kind, pattern: it.pattern.clone() }).collect();
        Ok(TransferOptions::default()
            .controller(channel.cc.clone())
            .controller_params(channel.cc_params.clone())
            .policy(policy)
            .rate_limit(channel.rate_bps.map(Rate))
            .carrier(*carrier)
            .tcp_connections(channel.tcp)
            .channels(channel.channels)
            .mtu_max(channel.mtu_max.map(Bytes))
            .preserve(files.preserve)
            .archive_mode(files.archive)
            .hard_links(files.hard_links)
            .sync(files.sync)
            .resume(files.resume)
            .read_back(files.read_back)
            .growing(files.growing)
            .new_names(files.new_names)
            .rules(rules))
    }

    /// Whether the destination is written as a directory.
    pub(crate) fn is_into_directory(&self) -> bool {
        self.sources.len() > 1
            || self.sources.iter().any(|source| source.ends_with('/'))
            || self.destination.is_empty()
            || self.destination.ends_with('/')
    }
}

#[cfg(test)]
mod tests {
    use sabul_units::{Random as _, SeededRandom};

    use super::*;

    #[test]
    fn an_order_is_read_as_it_was_written() {
        let options = TransferOptions::default()
            .controller("cubic")
            .rate_limit(Rate(7))
            .carrier(Carrier::Tcp)
            .preserve(true)
            .rules(vec![Rule { kind: RuleKind::Exclude, pattern: b"*.o\xff".to_vec() }])
            .sync(false);
        let order = Order::Send(Box::new(CopyOrder {
            ticket: "secret".to_owned(),
            sources: vec!["a".to_owned()],
            recursive: true,
            selected: false,
            destination: "in/".to_owned(),
            files: FileSettings::of(&options),
            channel: ChannelSettings::of(&options).unwrap(),
        }));
        let text = serde_json::to_string(&order).unwrap();
        let Order::Send(copy) = serde_json::from_str(&text).unwrap() else { panic!("{text}") };
        assert_eq!(copy.options().unwrap(), options);
        assert!(copy.is_into_directory());
        for (from, to) in [("\"fair\"", "\"rude\""), (":\"tcp\"", ":\"ssh\"")] {
            let other: Order = serde_json::from_str(&text.replace(from, to)).unwrap();
            let Order::Send(copy) = other else { panic!("{from}") };
            assert!(copy.options().unwrap_err().contains(to.trim_matches([':', '"'])), "{from}");
        }
        let unknown = text.replace("\"recursive\"", "\"unknown\":1,\"recursive\"");
        assert!(serde_json::from_str::<Order>(&unknown).is_err());
    }

    /// Reads an order as a server does, up to its options. Returns whether it is one.
    fn is_order(text: &[u8]) -> bool {
        match serde_json::from_slice::<Order>(text) {
            Ok(Order::Send(order) | Order::Fetch(order)) => {
                let _ = (order.is_into_directory(), order.ticket.parse::<sabul::Ticket>());
                order.options().is_ok()
            }
            Ok(Order::AdmitPut(_) | Order::AdmitGet(_)) => true,
            Err(error) => {
                assert!(!error.to_string().is_empty());
                false
            }
        }
    }

    #[test]
    fn any_bytes_are_an_order_or_an_error() {
        let options = TransferOptions::default();
        let copy = CopyOrder {
            ticket: "sabul1-AAAA".to_owned(),
            sources: vec!["a".to_owned(), "b/".to_owned()],
            recursive: true,
            selected: false,
            destination: String::new(),
            files: FileSettings::of(&options),
            channel: ChannelSettings::of(&options).unwrap(),
        };
        let valid = [
            Order::Send(Box::new(copy.clone())),
            Order::Fetch(Box::new(copy)),
            Order::AdmitPut("a".to_owned()),
            Order::AdmitGet(vec!["a".to_owned()]),
        ];
        let valid = valid.map(|order| serde_json::to_vec(&order).unwrap());
        assert!(valid.iter().all(|text| is_order(text)));
        let pieces: [&[u8]; 12] = [
            b"{", b"}", b"[", b"]", b"\"", b"\\ud800", b"1e999", b"-0", b"null", b"\xff", b":",
            b",",
        ];
        let mut random = SeededRandom::new(1);
        let mut below = |end: usize| usize::try_from(random.below(end as u64)).unwrap();
        for _ in 0..20_000 {
            let mut text = valid[below(4)].clone();
            for _ in 0..=below(4) {
                let at = below(text.len());
                let end = (at + below(9)).min(text.len());
                let piece = pieces[below(12)];
                match below(4) {
                    0 => drop(text.splice(at..at, piece.repeat(1 + below(200)))),
                    1 => drop(text.splice(at..end, piece.iter().copied())),
                    2 => text[at] = u8::try_from(below(256)).unwrap(),
                    _ => text.extend_from_within(at..end),
                }
            }
            is_order(&text);
        }
    }
}
