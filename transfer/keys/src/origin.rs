//! Addresses from which a key is accepted, as in OpenSSH's `from=`.

use std::net::IpAddr;

/// Patterns for the address of a client, in the order of the file: networks such as `192.0.2.0/24`, addresses with `*`
/// and `?`, and either with `!` in front. Names of hosts are not supported, because they need a query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origins(Vec<Pattern>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Pattern {
    is_negated: bool,
    kind: Kind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    Network(IpAddr, u8),
    Text(String),
}

impl Origins {
    /// Parses patterns separated by commas.
    ///
    /// # Errors
    /// If a pattern is neither an address nor a network.
    pub fn parse(text: &str) -> Result<Self, String> {
        text.split(',').map(Pattern::parse).collect::<Result<_, _>>().map(Self)
    }

    /// Returns whether a client with this address is accepted: a pattern matches, and no negated pattern does.
    /// The unspecified address stands for an unknown address: only rules for every address accept the client.
    pub fn allow(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        if address.is_unspecified() {
            return self.0.iter().any(|pattern| pattern.kind.matches_every())
                && !self.0.iter().any(|pattern| pattern.is_negated);
        }
        let text = address.to_string();
        let matches = |pattern: &&Pattern| pattern.kind.matches(address, &text);
        let mut found = self.0.iter().filter(matches).peekable();
        found.peek().is_some() && found.all(|pattern| !pattern.is_negated)
    }
}

impl Pattern {
    fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let (is_negated, bare) = match text.strip_prefix('!') {
            Some(bare) => (true, bare),
            None => (false, text),
        };
        let fail = || {
            format!(
                "'{text}' is neither an address, such as 192.0.2.*, nor a network, such as 2001:db8::/32"
            )
        };
        let kind = if let Some((network, bits)) = bare.split_once('/') {
            let network: IpAddr = network.parse().map_err(|_| fail())?;
            let bits: u8 = bits.parse().map_err(|_| fail())?;
            if bits > if network.is_ipv4() { 32 } else { 128 } {
                return Err(fail());
            }
            Kind::Network(network, bits)
        } else if let Ok(address) = bare.parse::<IpAddr>() {
            Kind::Text(address.to_string())
        } else {
            let is_address = |b: u8| b.is_ascii_hexdigit() || b".:*?".contains(&b);
            if bare.is_empty() || !bare.bytes().all(is_address) {
                return Err(fail());
            }
            Kind::Text(bare.to_ascii_lowercase())
        };
        Ok(Self { is_negated, kind })
    }
}

impl Kind {
    fn matches(&self, address: IpAddr, text: &str) -> bool {
        match self {
            Self::Network(network, bits) => is_within(address, *network, *bits),
            Self::Text(pattern) => matches(pattern.as_bytes(), text.as_bytes()),
        }
    }

    fn matches_every(&self) -> bool {
        match self {
            Self::Network(_, bits) => *bits == 0,
            Self::Text(pattern) => pattern.bytes().all(|byte| byte == b'*'),
        }
    }
}

fn is_within(address: IpAddr, network: IpAddr, bits: u8) -> bool {
    let prefix = |value: u128, width: u32| value.checked_shr(width - u32::from(bits)).unwrap_or(0);
    match (address, network) {
        (IpAddr::V4(address), IpAddr::V4(network)) => {
            let value = |address: std::net::Ipv4Addr| u128::from(u32::from(address));
            prefix(value(address), 32) == prefix(value(network), 32)
        }
        (IpAddr::V6(address), IpAddr::V6(network)) => {
            prefix(u128::from(address), 128) == prefix(u128::from(network), 128)
        }
        _ => false,
    }
}

/// Matches `*` and `?`; the time grows with the product of the lengths at most.
fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut at, mut of_text, mut star) = (0, 0, None);
    while of_text < text.len() {
        match pattern.get(at) {
            Some(b'*') => {
                star = Some((at, of_text));
                at += 1;
            }
            Some(&byte) if byte == b'?' || byte == text[of_text] => {
                at += 1;
                of_text += 1;
            }
            _ => match &mut star {
                Some((after, skipped)) => {
                    *skipped += 1;
                    (at, of_text) = (*after + 1, *skipped);
                }
                None => return false,
            },
        }
    }
    pattern[at..].iter().all(|&byte| byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_needs_a_matching_pattern_and_no_negated_one() {
        let allow = |patterns: &str, address: &str| {
            Origins::parse(patterns).unwrap().allow(address.parse().unwrap())
        };
        for (patterns, address, expected) in [
            ("192.0.2.0/24", "192.0.2.9", true),
            ("192.0.2.0/24", "::ffff:192.0.2.9", true),
            ("192.0.2.0/24", "192.0.3.9", false),
            ("0.0.0.0/0", "198.51.100.1", true),
            ("0.0.0.0/0", "2001:db8::1", false),
            ("::/0", "2001:db8::1", true),
            ("*", "::", true),
            ("192.0.2.1,0.0.0.0/0", "0.0.0.0", true),
            ("*,!192.0.2.7", "::", false),
            ("0.*", "0.0.0.0", false),
            ("::", "::", false),
            ("2001:db8::/32", "2001:db9::1", false),
            ("192.0.2.*", "192.0.2.77", true),
            ("192.0.2.?", "192.0.2.77", false),
            ("*.7", "192.0.2.77", false),
            ("*7", "192.0.2.77", true),
            ("2001:DB8:0::1", "2001:db8::1", true),
            ("*,!192.0.2.7", "192.0.2.7", false),
            ("!192.0.2.7,*", "192.0.2.7", false),
            ("!192.0.2.7,*", "192.0.2.8", true),
            ("!192.0.2.7", "192.0.2.8", false),
        ] {
            assert_eq!(allow(patterns, address), expected, "{patterns} {address}");
        }
    }

    #[test]
    fn names_and_impossible_networks_are_refused() {
        for text in ["", "example.org", "192.0.2.0/33", "::/129", "192.0.2/24", "a,", "!"] {
            assert!(Origins::parse(text).is_err(), "{text}");
        }
    }
}
