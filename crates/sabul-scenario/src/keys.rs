//! Every key that a scenario may hold, by table.

/// Keys of the file itself.
pub(crate) const TOP: &[&str] =
    &["name", "duration_s", "warmup_s", "sample_ms", "seed", "link", "flow", "sweep"];

/// Those of them that an override or sweep may set.
pub(crate) const TOP_SETTABLE: &[&str] = &["name", "duration_s", "warmup_s", "sample_ms", "seed"];

/// Keys of a `[[link]]`.
pub(crate) const LINK: &[&str] = &[
    "id",
    "rate_mbps",
    "back_rate_mbps",
    "delay_ms",
    "queue_packets",
    "queue_bytes",
    "queue_bdp",
    "discipline",
    "red_min_packets",
    "red_max_packets",
    "red_max_probability",
    "red_weight",
    "red_gentle",
    "ecn",
    "codel_target_ms",
    "codel_interval_ms",
    "quantum_bytes",
    "fq_queues",
    "drr_weights",
    "drr_dedicated",
    "mark_packets",
    "loss",
    "loss_back",
    "burst_loss",
    "reorder",
    "reorder_ms",
    "duplicate",
    "corrupt",
    "jitter_ms",
    "outage",
    "mtu",
    "framing_bytes",
    "router",
];

/// Which disciplines a setting belongs to.
pub(crate) const DISCIPLINE_SETTINGS: &[(&str, &[&str])] = &[
    ("red_min_packets", &["red"]),
    ("red_max_packets", &["red"]),
    ("red_max_probability", &["red"]),
    ("red_weight", &["red"]),
    ("red_gentle", &["red"]),
    ("ecn", &["red", "codel", "fq-codel"]),
    ("codel_target_ms", &["codel", "fq-codel"]),
    ("codel_interval_ms", &["codel", "fq-codel"]),
    ("quantum_bytes", &["fq-codel", "drr"]),
    ("fq_queues", &["fq-codel"]),
    ("drr_weights", &["drr"]),
    ("drr_dedicated", &["drr"]),
    ("mark_packets", &["ecn-threshold"]),
];

/// Keys of a link's `burst_loss`.
pub(crate) const BURST_LOSS: &[&str] = &["to_bad", "to_good", "loss_good", "loss_bad"];

/// Keys of one `outage`.
pub(crate) const OUTAGE: &[&str] = &["at_s", "for_s"];

/// Keys of a `[[flow]]`.
pub(crate) const FLOW: &[&str] = &[
    "id",
    "transport",
    "cc",
    "params",
    "profile",
    "defects",
    "path",
    "rtt_ms",
    "access_delay_ms",
    "start_s",
    "stop_s",
    "bytes",
    "size",
    "arrivals",
    "count",
    "spread_s",
    "rate_mbps",
    "rate_mbps_initial",
    "nic_mbps",
    "source_mbps",
    "sink_mbps",
    "packet_bytes",
    "window_packets",
    "initial_window",
    "ecn",
    "streams",
    "striping",
    "command",
    "peer_command",
];

/// Which transports a setting belongs to, where not to all, and what to use elsewhere.
pub(crate) const TRANSPORT_SETTINGS: &[(&str, &[&str], &str)] = &[
    ("cc", &["sabul", "tcp", "command"], "leave it out: nothing controls a constant rate"),
    ("params", &["sabul", "tcp"], "leave it out"),
    ("profile", &["sabul"], "leave it out"),
    ("defects", &["sabul"], "leave it out"),
    ("nic_mbps", &["sabul"], "leave it out"),
    ("source_mbps", &["sabul"], "leave it out"),
    ("sink_mbps", &["sabul"], "leave it out"),
    ("rate_mbps", &["udp-cbr"], "leave it out; sabul begins at rate_mbps_initial"),
    ("rate_mbps_initial", &["sabul"], "leave it out; a constant rate is rate_mbps"),
    ("window_packets", &["sabul", "tcp"], "leave it out"),
    ("initial_window", &["tcp"], "leave it out"),
    ("ecn", &["tcp"], "leave it out"),
    ("streams", &["tcp"], "leave it out; several flows of a kind are count"),
    ("striping", &["tcp"], "leave it out"),
    ("bytes", OURS, "leave it out: the program knows what it sends"),
    ("size", OURS, "leave it out: the program knows what it sends"),
    ("arrivals", OURS, "leave it out: a program runs once; use a flow for each"),
    ("count", OURS, "leave it out: a program runs once; use a flow for each"),
    ("spread_s", OURS, "leave it out: a program runs once; use start_s"),
    ("command", &["command"], "leave it out, or use transport command"),
    ("peer_command", &["command"], "leave it out, or use transport command"),
];

/// Transports whose traffic is made here and not by a program of the user's.
const OURS: &[&str] = &["sabul", "tcp", "udp-cbr"];

/// Keys of a flow's `size`.
pub(crate) const SIZE: &[&str] = &["distribution", "shape", "mean_packets", "packets"];

/// Keys of a flow's `arrivals`.
pub(crate) const ARRIVALS: &[&str] =
    &["process", "mean_interval_s", "count", "spread_s", "parallel"];

/// Keys that exclude each other: an override of one takes the others out of the file.
pub(crate) const RIVALS: &[&[&str]] = &[
    &["queue_packets", "queue_bytes", "queue_bdp"],
    &["rtt_ms", "access_delay_ms"],
    &["bytes", "size"],
    &["arrivals", "count"],
    &["arrivals", "spread_s"],
];

/// Keys whose values are tables, with the keys of those tables; `None` where they are names of the
/// user's own or a controller's.
pub(crate) const TABLES: &[(&str, Option<&[&str]>)] = &[
    ("burst_loss", Some(BURST_LOSS)),
    ("drr_weights", None),
    ("params", None),
    ("size", Some(SIZE)),
    ("arrivals", Some(ARRIVALS)),
];

/// Queue disciplines.
pub(crate) const DISCIPLINES: &[&str] =
    &["droptail", "red", "codel", "fq-codel", "drr", "ecn-threshold"];

/// Algorithms in routers that scenarios name but no arm runs yet.
pub(crate) const ROUTERS: &[&str] = &["none", "xcp", "rcp", "piqi-rcp", "jetmax", "maxnet", "emkc"];

/// Faults of the first implementation that belong to its channel or host. [OVV04 §3]
pub(crate) const DEFECTS: &[&str] =
    &["periodic-err", "rtt-once", "expire-all", "one-report-per-packet"];

/// Which connection of several carries what.
pub(crate) const STRIPINGS: &[&str] = &["round-robin", "on-demand"];

/// Who may carry a flow.
pub(crate) const TRANSPORTS: &[&str] = &["sabul", "tcp", "udp-cbr", "command"];

/// Published protocols that a channel may follow.
pub(crate) const PROFILES: &[&str] = &["current", "sabul2003", "sabul2002"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manual_names_every_key_and_every_word() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/manual/scenarios.md");
        let manual = std::fs::read_to_string(path).unwrap();
        let lists: [&[&str]; 10] =
            [TOP, LINK, BURST_LOSS, OUTAGE, FLOW, SIZE, ARRIVALS, DISCIPLINES, ROUTERS, TRANSPORTS];
        for word in lists.concat().into_iter().chain([PROFILES, STRIPINGS].concat()) {
            // In a table of keys, as a header, or in an example of an inner table.
            let forms = [format!("`{word}`"), format!("[{word}]"), format!(" {word} = ")];
            assert!(forms.iter().any(|form| manual.contains(form)), "{word} is not in the manual");
        }
    }

    #[test]
    fn settings_and_rivals_are_known_keys() {
        let settings = DISCIPLINE_SETTINGS.iter().map(|(key, _)| *key);
        for key in settings.chain(RIVALS[0].iter().copied()) {
            assert!(LINK.contains(&key), "{key}");
        }
        let settings = TRANSPORT_SETTINGS.iter().map(|(key, _, _)| *key);
        for key in settings.chain(RIVALS[1..].concat()) {
            assert!(FLOW.contains(&key), "{key}");
        }
        for (_, owners) in DISCIPLINE_SETTINGS {
            assert!(owners.iter().all(|owner| DISCIPLINES.contains(owner)), "{owners:?}");
        }
        for (_, owners, _) in TRANSPORT_SETTINGS {
            assert!(owners.iter().all(|owner| TRANSPORTS.contains(owner)), "{owners:?}");
        }
    }
}
