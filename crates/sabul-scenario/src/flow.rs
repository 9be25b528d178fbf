//! A `[[flow]]` of the file.

use sabul_cc::registry::{self, Entry, Family};
use sabul_cc::{ChannelRules, ConfigError, ParamValues};
use sabul_run::scenario::{
    Arrivals, Carrier, Defects, FlowPlan, FlowSize, Profile, SabulEnds, Striping, TcpEnds,
    Transport,
};
use sabul_units::{Bytes, Instant, Span};

use crate::Arm;
use crate::command;
use crate::error::unknown;
use crate::keys::{DEFECTS, PROFILES, STRIPINGS, TRANSPORT_SETTINGS, TRANSPORTS};
use crate::link::{DELAY_MS, Draft};
use crate::plan::SECONDS_MAX;
use crate::table::{PS_PER_MS, PS_PER_S, Range, Table};
use crate::traffic::{self, Life};
use crate::tree::{Value, find};

/// The controller of a TCP flow where none is named.
const TCP_DEFAULT: &str = "cubic";
/// Twice the longest delay of a link.
const RTT_MS: Range = Range::of(0.0, 7_200_000.0);
/// From the least IPv4 datagram that every host takes [RFC791 §3.1] to the largest.
const PACKET_BYTES: (u32, u32) = (576, 65_535);
/// The usual Ethernet MTU.
const PACKET_BYTES_DEFAULT: u32 = 1_500;
const WINDOW_MAX: u64 = 1_000_000_000;
const INITIAL_WINDOW_MAX: u32 = 100_000;
/// Most connections of one flow.
const STREAMS_MAX: u32 = 256;
/// Longest name of an algorithm in the kernel: 16 bytes, the last of them zero.
const KERNEL_NAME_MAX: usize = 15;

/// Reads a flow that crosses some of `links` in a run on an arm that ends at `end`.
pub(crate) fn read(table: &Table<'_>, links: &[Draft<'_>], end: Instant, arm: Arm) -> FlowPlan {
    let id = table.id().unwrap_or_default().to_owned();
    let transport = match table.choice("transport", TRANSPORTS) {
        Some("tcp") => Transport::Tcp,
        Some("udp-cbr") => Transport::UdpCbr,
        Some("command") => Transport::Command,
        _ => Transport::Sabul,
    };
    refuse_settings_of_others(table, transport);
    let (low, high) = PACKET_BYTES;
    let packet_bytes = table.whole_u32("packet_bytes", low, high).unwrap_or(PACKET_BYTES_DEFAULT);
    let path = path(table, links, packet_bytes);
    let (cc, params) = if arm.leaves_to_the_kernel(transport.name()) {
        (kernel_algorithm(table, transport), Vec::new())
    } else {
        controller(table, transport, packet_bytes)
    };
    let (start, stop) = times(table, end);
    let life = Life { start, end: stop.unwrap_or(end).min(end) };
    let (size, arrivals) = traffic(table, transport, packet_bytes, life);
    let carrier = carrier(table, transport, &cc, &params, arm);
    FlowPlan {
        id,
        carrier,
        cc,
        params,
        access_delay: access_delay(table, &path, links),
        path,
        start,
        stop,
        size,
        arrivals,
        packet_bytes,
        window_packets: table.whole("window_packets", 1, WINDOW_MAX),
    }
}

/// Who carries the flow, with the settings of that transport.
fn carrier(
    table: &Table<'_>,
    transport: Transport,
    cc: &str,
    params: &[(String, String)],
    arm: Arm,
) -> Carrier {
    let profile = profile(table, transport, cc, params);
    let sabul = SabulEnds {
        profile,
        defects: defects(table, profile),
        nic_rate: table.rate("nic_mbps"),
        source_rate: table.rate("source_mbps"),
        sink_rate: table.rate("sink_mbps"),
    };
    let default = TcpEnds::default();
    let tcp = TcpEnds {
        initial_window: table
            .whole_u32("initial_window", 1, INITIAL_WINDOW_MAX)
            .unwrap_or(default.initial_window),
        is_ecn_capable: table.flag("ecn").unwrap_or(default.is_ecn_capable),
        streams: table.whole_u32("streams", 1, STREAMS_MAX).unwrap_or(default.streams),
        striping: striping(table, transport),
    };
    let rate = constant_rate(table, transport);
    match transport {
        Transport::Sabul => Carrier::Sabul(sabul),
        Transport::Tcp => Carrier::Tcp(tcp),
        Transport::UdpCbr => rate.map_or_else(|| transport.into(), |rate| Carrier::UdpCbr { rate }),
        Transport::Command => {
            let (near, far) = command::read(table, arm);
            Carrier::Command { near, far }
        }
    }
}

/// How much the flow sends, and how many there are of it.
fn traffic(
    table: &Table<'_>,
    transport: Transport,
    packet_bytes: u32,
    life: Life,
) -> (FlowSize, Arrivals) {
    if transport == Transport::Command {
        // Whatever stands there has been refused already.
        return (FlowSize::Endless, Arrivals::Together { count: 1, spread: Span::ZERO });
    }
    let size = traffic::size(table, packet_bytes);
    (size, traffic::arrivals(table, size, life))
}

fn striping(table: &Table<'_>, transport: Transport) -> Striping {
    if transport == Transport::Tcp && table.has("striping") && !table.has("streams") {
        table.refuse("striping", "is of several connections; set streams, or leave it out");
    }
    match table.choice("striping", STRIPINGS) {
        Some("on-demand") => Striping::OnDemand,
        _ => Striping::RoundRobin,
    }
}

fn refuse_settings_of_others(table: &Table<'_>, transport: Transport) {
    let name = transport.name();
    for (key, owners, instead) in TRANSPORT_SETTINGS {
        if table.has(key) && !owners.contains(&name) {
            let owners = owners.join(" and ");
            table
                .refuse(key, format!("contradicts transport {name}, it is of {owners}; {instead}"));
        }
    }
}

fn constant_rate(table: &Table<'_>, transport: Transport) -> Option<sabul_units::Rate> {
    if transport == Transport::UdpCbr && !table.has("rate_mbps") {
        table.missing("rate_mbps", "the rate of the flow, in megabits per second");
    }
    table.rate("rate_mbps")
}

/// Links by position.
fn path(table: &Table<'_>, links: &[Draft<'_>], packet_bytes: u32) -> Vec<usize> {
    let ids: Vec<&str> = links.iter().map(|link| link.id).collect();
    let example = format!("a list of one link or more, of: {}", ids.join(", "));
    if !table.has("path") {
        table.missing("path", &example);
    }
    let mut path = Vec::new();
    let Some(nodes) = table.list("path", &example) else { return path };
    if nodes.is_empty() {
        table.refuse("path", format!("is empty; use {example}"));
    }
    for node in nodes {
        let Value::Text(id) = &node.value else {
            let shown = node.value.shown();
            table.refuse("path", format!("{shown} is not the name of a link; use {example}"));
            continue;
        };
        match ids.iter().position(|known| known == id) {
            Some(place) if path.contains(&place) => {
                table.refuse("path", format!("link '{id}' comes twice; name each link once"));
            }
            Some(place) => path.push(place),
            None => table.refuse("path", unknown("link", id, &ids)),
        }
    }
    for link in path.iter().map(|place| &links[*place]) {
        if let Some(mtu) = link.mtu.filter(|mtu| *mtu < packet_bytes) {
            let what =
                format!("{packet_bytes} bytes do not pass link '{}', whose mtu is {mtu}", link.id);
            table.refuse("packet_bytes", format!("{what}; use {mtu} or less"));
        }
    }
    path
}

fn access_delay(table: &Table<'_>, path: &[usize], links: &[Draft<'_>]) -> Span {
    if table.has("rtt_ms") && table.has("access_delay_ms") {
        table.refuse("access_delay_ms", "contradicts rtt_ms; use one of rtt_ms, access_delay_ms");
    }
    let access = table.span("access_delay_ms", DELAY_MS, PS_PER_MS);
    let Some(rtt) = table.span("rtt_ms", RTT_MS, PS_PER_MS) else {
        return access.unwrap_or_default();
    };
    let one_way = path.iter().fold(Span::ZERO, |sum, link| sum + links[*link].delay);
    let least = one_way.mul_ratio(2, 1);
    if rtt < least {
        let least = least.as_millis_f64();
        table.refuse_value("rtt_ms", format_args!("{least} or more, twice the delays of its path"));
    }
    rtt.saturating_sub(least).mul_ratio(1, 2)
}

/// When the flow starts and stops; one that never could is refused.
fn times(table: &Table<'_>, end: Instant) -> (Instant, Option<Instant>) {
    let range = Range::of(0.0, SECONDS_MAX);
    let start = Instant::ZERO + table.span("start_s", range, PS_PER_S).unwrap_or_default();
    let stop = table.span("stop_s", range, PS_PER_S).map(|span| Instant::ZERO + span);
    let start_s = start.elapsed().as_secs_f64();
    if start >= end && end > Instant::ZERO {
        let end_s = end.elapsed().as_secs_f64();
        let what = format!("the flow never starts: {start_s} is not before duration_s, {end_s}");
        table.refuse("start_s", format!("{what}; use less"));
    }
    if stop.is_some_and(|stop| stop <= start) {
        let what = format!("the flow never starts: it stops no later than its start_s, {start_s}");
        table.refuse("stop_s", format!("{what}; use more"));
    }
    (start, stop)
}

fn profile(
    table: &Table<'_>,
    transport: Transport,
    cc: &str,
    params: &[(String, String)],
) -> Profile {
    let given = table.choice("profile", PROFILES);
    let rules = registry::find(cc)
        .and_then(|entry| entry.build(params, Bytes(PACKET_BYTES_DEFAULT.into())))
        .map_or(ChannelRules::Standard, |controller| controller.rules());
    if rules != ChannelRules::Standard && given.is_some_and(|given| given != "current") {
        let what = format!("{cc} brings {} channel rules of its own", rules.name());
        table.refuse("profile", format!("{what}; leave it out"));
    }
    match given.unwrap_or(if cc == "sabul2002" { cc } else { "current" }) {
        _ if transport != Transport::Sabul => Profile::Current,
        "sabul2002" => Profile::Sabul2002,
        "sabul2003" => Profile::Sabul2003,
        _ => Profile::Current,
    }
}

fn defects(table: &Table<'_>, profile: Profile) -> Defects {
    let mut defects = Defects::default();
    let example = format!("a list of: {}", DEFECTS.join(", "));
    let Some(nodes) = table.list("defects", &example) else { return defects };
    if profile != Profile::Sabul2002 && !nodes.is_empty() {
        table.refuse("defects", "are of profile sabul2002; set that, or leave them out");
    }
    for node in nodes {
        let shown = node.value.shown();
        match &node.value {
            Value::Text(name) => match name.as_str() {
                "periodic-err" => defects.periodic_err = true,
                "rtt-once" => defects.rtt_once = true,
                "expire-all" => defects.expire_all = true,
                "one-report-per-packet" => defects.one_report_per_packet = true,
                name => table.refuse("defects", unknown("defect", name, DEFECTS)),
            },
            _ => table.refuse("defects", format!("{shown} is not a defect; use {example}")),
        }
    }
    defects
}

/// The controller of a flow that names none; `None` where nothing controls it.
pub(crate) fn default_controller(transport: &str) -> Option<&'static str> {
    match transport {
        "sabul" => Some(registry::DEFAULT),
        "tcp" => Some(TCP_DEFAULT),
        _ => None,
    }
}

/// The kernel's name of an algorithm, or one of ours that the lab translates; empty for the
/// system's own choice. Whether this kernel has it shows when hosts are made.
fn kernel_algorithm(table: &Table<'_>, transport: Transport) -> String {
    const ALLOWED: &str = "a name of the kernel's, such as cubic, reno or bbr: 1 to 15 of the \
                           characters a-z, 0-9, - and _";
    let params = find(table.fields(), "params").map(|field| &field.node.value);
    let has_params =
        params.is_some_and(|params| !matches!(params, Value::Table(fields) if fields.is_empty()));
    // Of a command they have been refused already.
    if has_params && transport == Transport::Tcp {
        table.refuse("params", "the kernel's algorithm takes no parameters; leave it out");
    }
    let Some(name) = table.text("cc", ALLOWED) else {
        let is_given = table.has("cc");
        let default = default_controller(transport.name()).filter(|_| !is_given);
        return default.unwrap_or_default().to_owned();
    };
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '_';
    if !(1..=KERNEL_NAME_MAX).contains(&name.len()) || !name.chars().all(is_plain) {
        table.refuse_value("cc", ALLOWED);
    }
    name.to_owned()
}

/// The controller's name and parameters, which have proved to build one.
fn controller(
    table: &Table<'_>,
    transport: Transport,
    packet_bytes: u32,
) -> (String, Vec<(String, String)>) {
    let none = || (String::new(), Vec::new());
    let Some(default) = default_controller(transport.name()) else { return none() };
    let name = match table.text("cc", "the name of a controller") {
        Some(name) => name,
        None if table.has("cc") => return none(),
        None => default,
    };
    let Ok(entry) = registry::find(name) else {
        let names: Vec<&str> = registry::all().map(|entry| entry.name).collect();
        table.refuse("cc", unknown("controller", name, &names));
        return none();
    };
    let Some(params) = params(table, entry) else { return none() };
    if transport == Transport::Tcp && entry.family == Family::Rate {
        let what = format!("'{name}' sets a rate, and TCP needs a window");
        table.refuse("cc", format!("{what}; use newreno or cubic, or transport sabul"));
    }
    if let Err(error) = entry.build(&params, Bytes(packet_bytes.into())) {
        let ConfigError { setting, value, allowed } = error;
        let key = if table.has("params") { "params" } else { "cc" };
        table.refuse(key, format!("{setting}: '{value}' is not allowed; use {allowed}"));
    }
    (name.to_owned(), params)
}

/// Each parameter checked alone, so that the problem has its line; `None` if one is wrong.
fn params(table: &Table<'_>, entry: &Entry) -> Option<Vec<(String, String)>> {
    const RATE: &str = "rate_mbps_initial";
    let known: Vec<&str> = entry.params.iter().map(|spec| spec.name).collect();
    let mut params = Vec::new();
    let mut is_right = true;
    let given = table.table("params", None, "a table, such as { syn_interval_ms = 10 }");
    if let Some(given) = &given {
        for field in given.fields() {
            is_right &= match &field.node.value {
                Value::List(_) | Value::Table(_) | Value::Date(_) => {
                    given.refuse_value(&field.key, "a number or a word");
                    false
                }
                value => check_param(given, entry, &known, &field.key, &value.plain(), &mut params),
            };
        }
    }
    if table.has(RATE) {
        if given.is_some_and(|given| given.has(RATE)) {
            table.refuse(RATE, "stands in params as well; use one of them");
            is_right = false;
        }
        if known.contains(&RATE) {
            let number = table.number(RATE, Range::of(0.0, 1e6));
            is_right &= number.is_some_and(|number| {
                check_param(table, entry, &known, RATE, &number.to_string(), &mut params)
            });
        } else {
            let what = format!("controller {} has no such parameter; leave it out", entry.name);
            table.refuse(RATE, what);
            is_right = false;
        }
    }
    is_right.then_some(params)
}

fn check_param(
    table: &Table<'_>,
    entry: &Entry,
    known: &[&str],
    key: &str,
    value: &str,
    params: &mut Vec<(String, String)>,
) -> bool {
    if !known.contains(&key) {
        table.refuse(key, unknown(&format!("parameter of {}", entry.name), key, known));
        return false;
    }
    let param = (key.to_owned(), value.to_owned());
    match ParamValues::check(entry.name, entry.params, std::slice::from_ref(&param)) {
        Ok(_) => {
            params.push(param);
            true
        }
        Err(error) => {
            table.refuse_value(key, error.allowed);
            false
        }
    }
}
