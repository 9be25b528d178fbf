//! Walk over the table of keys. Both ends of every range are accepted, and values just beyond are
//! refused with key, value and range. Missing keys and keys of another transport or arm are refused
//! too.

use std::collections::BTreeMap;

use sabul_scenario::keys::{Section, sections};
use sabul_scenario::{Arm, read_for};
use sabul_units::key::{Bounds, Row, Unset};

/// A file as keys and values, by table. `inner` holds an inner table of a link or flow.
#[derive(Clone, Debug, Default)]
struct File {
    run: BTreeMap<String, String>,
    link: BTreeMap<String, String>,
    flow: BTreeMap<String, String>,
    inner: BTreeMap<String, String>,
}

fn set(table: &mut BTreeMap<String, String>, pairs: &[(&str, &str)]) {
    table.extend(pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())));
}

fn lines(table: &BTreeMap<String, String>, end: &str) -> String {
    table.iter().map(|(key, value)| format!("{key} = {value}{end}")).collect()
}

impl File {
    /// A file in which the keys of a section for an owner are valid.
    fn of(section: &str, owner: &str) -> Self {
        let mut file = Self::default();
        set(&mut file.run, &[("duration_s", "10")]);
        set(&mut file.link, &[("id", "\"l\""), ("rate_mbps", "100"), ("delay_ms", "5")]);
        set(&mut file.flow, &[("id", "\"a\""), ("path", "[\"l\"]")]);
        match (section, owner) {
            ("flow", "") => {}
            ("flow", transport) => {
                set(&mut file.flow, &[("transport", &format!("\"{transport}\""))]);
                match transport {
                    "udp-cbr" => set(&mut file.flow, &[("rate_mbps", "1")]),
                    "command" => set(&mut file.flow, &[("command", "[\"true\"]")]),
                    _ => {}
                }
            }
            ("flow.size", "fixed") => {
                set(&mut file.inner, &[("distribution", "\"fixed\""), ("packets", "5")]);
            }
            ("flow.size", _) => {
                let pareto =
                    [("distribution", "\"pareto\""), ("shape", "2"), ("mean_packets", "9")];
                set(&mut file.inner, &pareto);
            }
            ("flow.arrivals", process) => {
                set(&mut file.flow, &[("bytes", "1000")]);
                set(
                    &mut file.inner,
                    &match process {
                        "poisson" => [("process", "\"poisson\""), ("mean_interval_s", "1")],
                        "chain" => [("process", "\"chain\""), ("count", "2")],
                        _ => [("process", "\"together\""), ("count", "2")],
                    },
                );
            }
            ("link.burst_loss", _) => {
                set(&mut file.inner, &[("to_bad", "0.1"), ("to_good", "0.1"), ("loss_bad", "1")]);
            }
            ("link.outage", _) => set(&mut file.inner, &[("at_s", "1"), ("for_s", "1")]),
            ("link.policer", _) => {
                set(&mut file.inner, &[("rate_mbps", "5"), ("bucket_bytes", "9000")]);
            }
            ("link.shaper", _) => {
                set(&mut file.inner, &[("burst_mbps", "500"), ("bucket_bytes", "9000")]);
            }
            ("link.rate_walk", _) => {
                set(&mut file.inner, &[("low_mbps", "1"), ("every_ms", "100")]);
            }
            ("link.rate_steps", _) => set(&mut file.inner, &[("at_s", "1"), ("rate_mbps", "5")]),
            ("link.delay_steps", _) => set(&mut file.inner, &[("at_s", "1"), ("delay_ms", "5")]),
            ("run" | "link", _) => {}
            (discipline, _) => {
                let name = discipline.trim_start_matches("link.");
                set(&mut file.link, &[("discipline", &format!("\"{name}\""))]);
                if name == "ecn-threshold" {
                    set(&mut file.link, &[("mark_packets", "5")]);
                }
            }
        }
        file
    }

    fn put(&mut self, section: &str, key: &str, value: &str) {
        let table = match section {
            "run" => &mut self.run,
            "flow" => &mut self.flow,
            "flow.size" | "flow.arrivals" | "link.burst_loss" | "link.outage" | "link.policer"
            | "link.shaper" | "link.rate_walk" | "link.rate_steps" | "link.delay_steps" => {
                &mut self.inner
            }
            _ => &mut self.link,
        };
        table.insert(key.to_owned(), value.to_owned());
    }

    /// Adds the settings that make the end of a range valid.
    fn companions(&mut self, section: &str, key: &str, is_low: bool) {
        const LONG: [(&str, &str); 2] = [("duration_s", "1e6"), ("sample_ms", "1e6")];
        match (section, key, is_low) {
            ("run", "duration_s", false) => set(&mut self.run, &LONG[1..]),
            ("run", "sample_ms", true) => set(&mut self.run, &[("duration_s", "0.001")]),
            ("flow" | "flow.arrivals", "spread_s", false) => set(&mut self.run, &LONG),
            ("flow.arrivals", "mean_interval_s", true) => {
                set(&mut self.run, &[("duration_s", "0.001")]);
            }
            ("link", "router_rate_mbps", _) => set(&mut self.link, &[("router", "\"rcp\"")]),
            ("link", "reorder_ms", _) => set(&mut self.link, &[("reorder", "0.1")]),
            (_, "red_max_packets", true) => set(&mut self.link, &[("red_min_packets", "1")]),
            (_, "codel_interval_ms", true) => set(&mut self.link, &[("codel_target_ms", "0.001")]),
            (_, "codel_target_ms", false) => set(&mut self.link, &[("codel_interval_ms", "3.6e6")]),
            ("flow", "rtt_ms", true) => set(&mut self.link, &[("delay_ms", "0")]),
            ("flow", "remembered_mbps", _) => {
                set(&mut self.flow, &[("cc", "\"sabul2026\""), ("remembered_rtt_ms", "100")]);
            }
            ("flow", "remembered_rtt_ms", _) => {
                set(&mut self.flow, &[("cc", "\"sabul2026\""), ("remembered_mbps", "100")]);
            }
            ("flow", "rate_mbps_initial", _) => set(&mut self.flow, &[("cc", "\"sabul2003\"")]),
            _ => {}
        }
    }

    fn text(&self, section: &str) -> String {
        let Self { run, link, flow, inner } = self;
        let (mut link, mut flow) = (link.clone(), flow.clone());
        let inner = lines(inner, ", ");
        let inner = format!("{{ {} }}", inner.trim_end_matches(", "));
        match section {
            "flow.size" | "flow.arrivals" => {
                flow.insert(section.trim_start_matches("flow.").to_owned(), inner);
            }
            "link.burst_loss" | "link.policer" | "link.shaper" | "link.rate_walk" => {
                link.insert(section.trim_start_matches("link.").to_owned(), inner);
            }
            "link.outage" | "link.rate_steps" | "link.delay_steps" => {
                let key = section.trim_start_matches("link.");
                link.insert(key.to_owned(), format!("[{inner}]"));
            }
            _ => {}
        }
        let [run, link, flow] = [run, &link, &flow].map(|table| lines(table, "\n"));
        format!("{run}[[link]]\n{link}[[flow]]\n{flow}")
    }

    /// Returns all problems of the file on an arm; empty for a valid file.
    fn wrong(&self, section: &str, arm: Arm) -> String {
        let text = self.text(section);
        read_for(arm, &text, "walk.toml", &[])
            .map_or_else(|error| error.to_string(), |_| String::new())
    }
}

fn rows() -> impl Iterator<Item = (String, Row)> {
    let rows = |Section { name, rows }: Section| {
        rows.into_iter().map(move |row| (name.clone(), row)).collect::<Vec<_>>()
    };
    sections().into_iter().flat_map(rows)
}

/// Returns an owner and an arm for testing a key.
fn owner_and_arm(row: &Row) -> (&'static str, Arm) {
    let owner = row.owners.first().copied().unwrap_or_default();
    (owner, if owner == "command" { Arm::Lab } else { Arm::Sim })
}

/// Returns the expected message where another check is stricter than the end of the key's own
/// range.
fn last_word(section: &str, key: &str, is_low: bool) -> Option<&'static str> {
    match (section, key, is_low) {
        ("run", "warmup_s", false) => Some("less than duration_s"),
        ("link", "mtu", true) => Some("1500 bytes do not pass"),
        ("flow", "start_s", false) | ("flow", "stop_s", true) => Some("never starts"),
        // Range of the controller's own parameter.
        ("flow", "rate_mbps_initial", _) => Some("use 1 to 100000 Mb/s"),
        _ => None,
    }
}

fn try_end(section: &str, row: &Row, is_low: bool, value: &str) {
    let (owner, arm) = owner_and_arm(row);
    let mut file = File::of(section, owner);
    file.put(section, row.name, value);
    file.companions(section, row.name, is_low);
    let wrong = file.wrong(section, arm);
    match last_word(section, row.name, is_low) {
        Some(part) => assert!(wrong.contains(part), "{section} {} = {value}: {wrong}", row.name),
        None => assert_eq!(wrong, "", "{section} {} = {value}", row.name),
    }
}

fn try_beyond(section: &str, row: &Row, value: &str) {
    let (owner, arm) = owner_and_arm(row);
    let mut file = File::of(section, owner);
    file.put(section, row.name, value);
    let wrong = file.wrong(section, arm);
    // Numbers beyond TOML's range are refused before the key's range is known.
    let allowed = if value == "9223372036854775808" { "a whole number" } else { &row.allowed };
    let part = format!("{}: {value} is not allowed; use {allowed}", row.name);
    assert!(wrong.contains(&part), "'{part}' is not in: {wrong}");
}

#[test]
fn range_limits_are_accepted_and_values_beyond_are_refused() {
    let mut tried = 0;
    for (section, row) in rows() {
        match row.bounds {
            Bounds::Number(range) => {
                let least = if range.is_low_allowed { range.low } else { range.low + 1e-6 };
                try_end(&section, &row, true, &format!("{least:?}"));
                try_end(&section, &row, false, &format!("{:?}", range.high));
                let below = match (range.is_low_allowed, range.low) {
                    (false, low) => low,
                    (true, 0.0) => -1e-6,
                    (true, low) => low * (1.0 - 1e-6),
                };
                try_beyond(&section, &row, &format!("{below:?}"));
                try_beyond(&section, &row, &format!("{:?}", range.high * (1.0 + 1e-6)));
            }
            Bounds::Whole(low, high) => {
                try_end(&section, &row, true, &low.to_string());
                try_end(&section, &row, false, &high.to_string());
                try_beyond(&section, &row, &(i128::from(low) - 1).to_string());
                try_beyond(&section, &row, &(i128::from(high) + 1).to_string());
            }
            Bounds::ByFlow(low, high) => {
                for number in [low, high] {
                    let mut file = File::of(&section, "");
                    file.put(&section, row.name, &format!("{{ a = {number} }}"));
                    assert_eq!(file.wrong(&section, Arm::Sim), "", "{}", row.name);
                }
                for number in [i64::from(low) - 1, i64::from(high) + 1] {
                    let mut file = File::of(&section, "");
                    file.put(&section, row.name, &format!("{{ a = {number} }}"));
                    let wrong = file.wrong(&section, Arm::Sim);
                    let range = format!("from {low} to {high}");
                    let part = format!("{}.a: {number} is not allowed", row.name);
                    assert!(wrong.contains(&part) && wrong.contains(&range), "{wrong}");
                }
            }
            _ => continue,
        }
        tried += 1;
    }
    assert!(tried > 55, "only {tried} keys have a range");
}

#[test]
fn listed_words_are_accepted_and_other_words_refused() {
    for (section, row) in rows() {
        let (owner, arm) = owner_and_arm(&row);
        let wrong = |value: &str, arm: Arm| {
            let mut file = File::of(&section, owner);
            file.put(&section, row.name, value);
            file.wrong(&section, arm)
        };
        match row.bounds {
            Bounds::Flag => {
                for value in ["true", "false"] {
                    assert_eq!(wrong(value, arm), "", "{section} {}", row.name);
                }
                let part = format!("{}: 1, a number, is not allowed; use true or false", row.name);
                assert!(wrong("1", arm).contains(&part), "{}", wrong("1", arm));
            }
            Bounds::Words(words) => {
                for word in words {
                    let value = format!("\"{word}\"");
                    let value = if row.is_list { format!("[{value}]") } else { value };
                    let wrong = wrong(&value, arm);
                    assert!(!wrong.contains("unknown word"), "{section} {}: {wrong}", row.name);
                }
                let value = if row.is_list { "[\"nonesuch\"]" } else { "\"nonesuch\"" };
                let wrong = wrong(value, arm);
                let part = format!("{}: unknown word 'nonesuch'", row.name);
                assert!(wrong.contains(&part) && wrong.contains(&words.join(", ")), "{wrong}");
            }
            _ => {}
        }
    }
}

#[test]
fn a_key_used_with_the_wrong_owner_is_refused_with_its_owners() {
    let mut tried = 0;
    for (section, row) in rows().filter(|(_, row)| !row.owners.is_empty()) {
        let others: &[&str] = match section.as_str() {
            "flow" => &["sabul", "tcp", "udp-cbr", "command"],
            "flow.size" => &["pareto", "fixed"],
            _ => &["poisson", "together", "chain"],
        };
        for other in others.iter().filter(|other| !row.owners.contains(other)) {
            let mut file = File::of(&section, other);
            file.put(&section, row.name, "1");
            let wrong = file.wrong(&section, Arm::Lab);
            let owners = row.owners.join(" and ");
            for part in
                [format!("{}: contradicts", row.name), format!("the key belongs to {owners}")]
            {
                assert!(wrong.contains(&part), "'{part}' is not in: {wrong}");
            }
            tried += 1;
        }
    }
    assert!(tried > 30, "only {tried}");
}

#[test]
fn keys_unsupported_by_the_lab_are_refused_only_in_the_lab() {
    let mut tried = Vec::new();
    for (section, row) in rows().filter(|(_, row)| !row.is_all_in_lab) {
        let (owner, _) = owner_and_arm(&row);
        let value = match row.bounds {
            Bounds::Number(range) => format!("{:?}", range.high),
            Bounds::Whole(_, high) => high.to_string(),
            Bounds::Flag => "true".to_owned(),
            Bounds::Words(words) if row.is_list => format!("[\"{}\"]", words.last().unwrap()),
            Bounds::Words(words) => format!("\"{}\"", words.last().unwrap()),
            other => panic!("{other:?}"),
        };
        let mut file = File::of(&section, owner);
        file.put(&section, row.name, &value);
        let refusal = format!("key {}: the lab does not support this setting", row.name);
        assert!(file.wrong(&section, Arm::Lab).contains(&refusal), "{}", row.name);
        assert!(!file.wrong(&section, Arm::Sim).contains(&refusal), "{}", row.name);
        tried.push(row.name);
    }
    let wanted = "profile defects breaker group remembered_mbps remembered_rtt_ms nic_mbps source_mbps sink_mbps gso_packets gro_packets ack_bunch_ms busy_ms \
                  reverse initial_window streams";
    assert_eq!(tried.join(" "), wanted);
}

#[test]
fn contradicting_keys_are_refused_in_either_order() {
    for Section { name, rows } in sections() {
        let find = |key: &str| rows.iter().find(|row| row.name == key).unwrap();
        for row in &rows {
            for rival in row.rivals {
                assert!(find(rival).rivals.contains(&row.name), "{name}: {} {rival}", row.name);
            }
        }
    }
}

#[test]
fn defaults_are_valid_values_and_missing_required_keys_are_reported() {
    for (section, row) in rows() {
        let in_range = match (row.unset, row.bounds) {
            (Unset::Number(number), Bounds::Number(range)) => range.contains(number),
            (Unset::Number(number), Bounds::Whole(low, high)) => {
                (low as f64..=high as f64).contains(&number) && number.fract() == 0.0
            }
            (Unset::Flag(_), Bounds::Flag) | (Unset::Said(_) | Unset::Required(_), _) => true,
            (Unset::Word(word), Bounds::Words(words)) => words.contains(&word),
            _ => false,
        };
        assert!(in_range, "{section} {}: {:?}", row.name, row.unset);
        if let Unset::Required(_) = row.unset {
            let (owner, arm) = owner_and_arm(&row);
            let mut file = File::of(&section, owner);
            for table in [&mut file.run, &mut file.link, &mut file.flow, &mut file.inner] {
                let is_other = section.starts_with("flow.") && row.name == "count";
                if !is_other || table.contains_key("process") {
                    table.remove(row.name);
                }
            }
            let wrong = file.wrong(&section, arm);
            let part = format!("{}: is missing", row.name);
            assert!(wrong.contains(&part), "{section}: '{part}' is not in: {wrong}");
        }
    }
}
