//! Reader for a `[[flow]]` of the file: path, times, controller, traffic, and programs of a user.

use sabul_cc::{ChannelRules, ConfigError, ParamValues};
use sabul_lab_cc::registry::{self, Entry, Family};
use sabul_run::scenario::{
    ARRIVALS, Arrivals, Carrier, Defects, FLOW, FlowDraft, FlowPlan, FlowSize, Profile, SIZE,
    SabulEnds, Transport,
};
use sabul_units::{Bytes, Instant, Span};

use crate::arm::Arm;
use crate::error::unknown;
use crate::link::Draft;
use crate::table::Table;
use crate::tree::{Value, find};

/// Default controller of a TCP flow.
const TCP_DEFAULT: &str = "cubic";
/// Full packet for building a controller whose channel rules are read, in bytes.
const FULL_PACKET: u64 = 1_500;
/// Longest name of an algorithm in the kernel: 16 bytes, including a terminating zero.
const KERNEL_NAME_MAX: usize = 15;
/// Largest expected number of Poisson arrivals of a flow.
const ARRIVALS_MAX: f64 = 1_000_000.0;
/// Bytes of IP and transport headers in a packet of a fixed-size object: 20 bytes each.
const HEADER_BYTES: u64 = 40;
/// Most arguments of a command, program name included.
const TEXTS_MAX: usize = 200;
const COMMAND_EXAMPLE: &str =
    "a list of texts, program first, such as [\"iperf3\", \"-c\", \"{far}\"]";

/// Reads a flow that crosses some of `links`, in a run that ends at `end`.
pub(crate) fn read(table: &Table<'_>, links: &[Draft<'_>], end: Instant, arm: Arm) -> FlowPlan {
    let transport = transport(table);
    let mut draft = FlowDraft::new(transport.into());
    table.take_all(FLOW, &mut draft, Some(("transport", transport.name())));
    table.id().unwrap_or_default().clone_into(&mut draft.plan.id);
    draft.plan.path = path(table, links, draft.plan.packet_bytes);
    (draft.plan.cc, draft.plan.params) = if arm.leaves_to_the_kernel(transport.name()) {
        (kernel_algorithm(table, transport), Vec::new())
    } else {
        controller(table, transport, &draft)
    };
    let FlowDraft { plan, rtt, .. } = &mut draft;
    plan.access_delay = access_delay(table, plan, *rtt, links);
    check_times(table, plan, end);
    let life = Life { start: plan.start, end: plan.stop.unwrap_or(end).min(end) };
    if transport != Transport::Command {
        plan.size = size(table, plan.size, plan.packet_bytes);
        plan.arrivals = arrivals(table, plan.arrivals, plan.size, life);
    }
    match &mut plan.carrier {
        Carrier::Sabul(ends) => finish_sabul(table, ends, &plan.cc, &plan.params),
        Carrier::Tcp(_) if table.has("striping") && !table.has("streams") => {
            table.refuse("striping", "needs several connections; set streams, or remove this key");
        }
        Carrier::Command { near, far } => (*near, *far) = commands(table, arm),
        Carrier::Tcp(_) | Carrier::UdpCbr { .. } => {}
    }
    if arm == Arm::Lab {
        for key in FLOW.iter().filter(|key| table.has(key.name)) {
            if let Some(why) = key.lab_refusal(&draft) {
                table.refuse(key.name, format!("the lab does not support this setting: {why}"));
            }
        }
    }
    draft.plan
}

/// Returns the transport, or the default if the key is missing or wrong.
fn transport(table: &Table<'_>) -> Transport {
    let key = FLOW.iter().find(|key| key.name == "transport");
    match key.and_then(|key| table.word(key)) {
        Some("tcp") => Transport::Tcp,
        Some("udp-cbr") => Transport::UdpCbr,
        Some("command") => Transport::Command,
        _ => Transport::Sabul,
    }
}

/// Returns the path as positions of links.
fn path(table: &Table<'_>, links: &[Draft<'_>], packet_bytes: u32) -> Vec<usize> {
    let ids: Vec<&str> = links.iter().map(|link| link.id).collect();
    let example = format!("a list of one link or more, of: {}", ids.join(", "));
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
                table.refuse("path", format!("link '{id}' appears twice; name each link once"));
            }
            Some(place) => path.push(place),
            None => table.refuse("path", unknown("link", id, &ids)),
        }
    }
    for link in path.iter().map(|place| &links[*place]) {
        if let Some(mtu) = link.mtu().filter(|mtu| *mtu < packet_bytes) {
            let what =
                format!("{packet_bytes} bytes do not pass link '{}', whose mtu is {mtu}", link.id);
            table.refuse("packet_bytes", format!("{what}; use {mtu} or less"));
        }
    }
    path
}

fn access_delay(
    table: &Table<'_>,
    plan: &FlowPlan,
    rtt: Option<Span>,
    links: &[Draft<'_>],
) -> Span {
    let Some(rtt) = rtt else { return plan.access_delay };
    let one_way = plan.path.iter().fold(Span::ZERO, |sum, link| sum + links[*link].delay());
    let least = one_way.mul_ratio(2, 1);
    if rtt < least {
        let least = least.as_millis_f64();
        table.refuse_value("rtt_ms", format_args!("{least} or more, twice the delays of its path"));
    }
    rtt.saturating_sub(least).mul_ratio(1, 2)
}

/// Logs a problem for a flow that can never start.
fn check_times(table: &Table<'_>, plan: &FlowPlan, end: Instant) {
    let FlowPlan { start, stop, .. } = *plan;
    let start_s = start.elapsed().as_secs_f64();
    if start >= end && end > Instant::ZERO {
        let end_s = end.elapsed().as_secs_f64();
        let what = format!("the flow never starts: {start_s} is not before duration_s, {end_s}");
        table.refuse("start_s", format!("{what}; use less"));
    }
    if stop.is_some_and(|stop| stop <= start) {
        let what = format!("the flow never starts: stop_s is not after start_s, {start_s}");
        table.refuse("stop_s", format!("{what}; use more"));
    }
}

/// Checks combinations of profile, controller and defects.
fn finish_sabul(table: &Table<'_>, ends: &mut SabulEnds, cc: &str, params: &[(String, String)]) {
    let rules = registry::find(cc)
        .ok()
        .and_then(|entry| entry.build(params, Bytes(FULL_PACKET)).ok())
        .map_or(ChannelRules::STANDARD, |controller| controller.constants().rules);
    if !rules.has_naks && ends.profile != Profile::Current {
        let what = format!("controller {cc} requires {} channel rules", rules.name);
        table.refuse("profile", format!("{what}; remove this key"));
    }
    if let Ok(entry) = registry::find(cc)
        && let Err(error) = registry::check_policy(entry, ends.policy)
    {
        table.refuse("policy", format!("is not for controller {cc}; use {}", error.allowed));
    }
    if ends.remembered_rate.is_some() != ends.remembered_rtt.is_some() {
        let (given, missing) = match ends.remembered_rate {
            Some(_) => ("remembered_mbps", "remembered_rtt_ms"),
            None => ("remembered_rtt_ms", "remembered_mbps"),
        };
        table.refuse(given, format!("requires {missing}; give both keys, or remove both"));
    }
    if ends.remembered().is_some()
        && let Ok(entry) = registry::find(cc)
        && let Err(error) = registry::check_memory(entry)
    {
        table.refuse(
            "remembered_mbps",
            format!("is not for controller {cc}; use {}", error.allowed),
        );
    }
    if cc == "sabul2002" && !table.has("profile") {
        ends.profile = Profile::Sabul2002;
    }
    if ends.profile != Profile::Sabul2002 && ends.defects != Defects::default() {
        table.refuse(
            "defects",
            "belongs to profile sabul2002; set this profile, or remove this key",
        );
    }
}

/// Returns the default controller of a transport; `None` for transports without a controller.
pub(crate) fn default_controller(transport: &str) -> Option<&'static str> {
    match transport {
        "sabul" => Some(registry::DEFAULT),
        "tcp" => Some(TCP_DEFAULT),
        _ => None,
    }
}

/// Returns the kernel's name of an algorithm, or a name of ours that the lab translates; empty for
/// the system's default. Support by the running kernel is checked when hosts are made.
fn kernel_algorithm(table: &Table<'_>, transport: Transport) -> String {
    const ALLOWED: &str = "a name of the kernel's, such as cubic, reno or bbr: 1 to 15 of the \
                           characters a-z, 0-9, - and _";
    let params = find(table.fields(), "params").map(|field| &field.node.value);
    let has_params =
        params.is_some_and(|params| !matches!(params, Value::Table(fields) if fields.is_empty()));
    // For a command the `params` have been refused already.
    if has_params && transport == Transport::Tcp {
        table.refuse("params", "the kernel's algorithm has no parameters; remove this key");
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

/// Returns the controller's name and parameters, after building that controller once.
fn controller(
    table: &Table<'_>,
    transport: Transport,
    draft: &FlowDraft,
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
    let Some(params) = params(table, entry, draft.rate_mbps_initial) else { return none() };
    if transport == Transport::Tcp && entry.family == Family::Rate {
        let what = format!("'{name}' sets a rate, and TCP needs a window");
        table.refuse("cc", format!("{what}; use newreno or cubic, or transport sabul"));
    }
    if let Err(error) = entry.build(&params, Bytes(draft.plan.packet_bytes.into())) {
        let ConfigError { setting, value, allowed } = error;
        let key = if table.has("params") { "params" } else { "cc" };
        table.refuse(key, format!("{setting}: '{value}' is not allowed; use {allowed}"));
    }
    (name.to_owned(), params)
}

/// Checks each parameter alone, so that the problem has a line; `None` if any parameter is wrong.
fn params(
    table: &Table<'_>,
    entry: &Entry,
    rate_mbps_initial: Option<f64>,
) -> Option<Vec<(String, String)>> {
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
            table.refuse(RATE, "is also in params; use one of the two keys");
            is_right = false;
        }
        if known.contains(&RATE) {
            is_right &= rate_mbps_initial.is_some_and(|number| {
                check_param(table, entry, &known, RATE, &number.to_string(), &mut params)
            });
        } else {
            let what = format!("controller {} has no such parameter; remove this key", entry.name);
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

/// Lifetime of a flow: from its start to its stop or the end of the run.
#[derive(Clone, Copy, Debug)]
struct Life {
    start: Instant,
    end: Instant,
}

impl Life {
    fn room(self) -> Span {
        self.end.since(self.start)
    }
}

/// Returns the size of each copy of a flow from the `size` table; `size` if there is no such table.
fn size(flow: &Table<'_>, size: FlowSize, packet_bytes: u32) -> FlowSize {
    let Some(table) = flow.table_of(FLOW, "size") else { return size };
    let mut size = FlowSize::Endless;
    table.take_kind(SIZE, &mut size);
    if let FlowSize::Bytes(packets) = &mut size {
        *packets *= u64::from(packet_bytes) - HEADER_BYTES;
    }
    size
}

/// Returns the arrivals of a flow from the `arrivals` table; based on `arrivals` if there is no
/// such table.
fn arrivals(flow: &Table<'_>, mut arrivals: Arrivals, size: FlowSize, life: Life) -> Arrivals {
    let table = flow.table_of(FLOW, "arrivals");
    if let Some(table) = &table {
        table.take_kind(ARRIVALS, &mut arrivals);
    }
    let table = table.as_ref().unwrap_or(flow);
    match arrivals {
        Arrivals::Together { spread, .. } if spread > life.room() => {
            let room = life.room().as_secs_f64();
            table.refuse_value(
                "spread_s",
                format_args!("at most {room} (otherwise some copies never start)"),
            );
        }
        Arrivals::Together { .. } => {}
        Arrivals::Chain { .. } => refuse_endless(flow, size),
        Arrivals::Poisson { mean_interval } => {
            refuse_endless(flow, size);
            let room = life.room().as_secs_f64();
            if room / mean_interval.as_secs_f64() > ARRIVALS_MAX {
                let least = room / ARRIVALS_MAX;
                table.refuse_value(
                    "mean_interval_s",
                    format_args!("{least} or more: at most 1000000 copies arrive"),
                );
            }
        }
    }
    arrivals
}

fn refuse_endless(flow: &Table<'_>, size: FlowSize) {
    if size == FlowSize::Endless {
        let what = "copies without an end accumulate; set bytes or size";
        flow.refuse("arrivals", what);
    }
}

/// Returns the commands of the near and the far host.
fn commands(table: &Table<'_>, arm: Arm) -> (Vec<String>, Vec<String>) {
    if arm == Arm::Sim {
        let what = "transport command runs only in the lab; use `sabul lab run`";
        table.refuse("transport", what);
    }
    let command = texts(table, "command");
    if table.has("command") && command.as_ref().is_some_and(Vec::is_empty) {
        table.refuse("command", format!("is empty; use {COMMAND_EXAMPLE}"));
    }
    (command.unwrap_or_default(), texts(table, "peer_command").unwrap_or_default())
}

/// Returns the arguments of a command; `None` after a logged problem.
fn texts(table: &Table<'_>, key: &str) -> Option<Vec<String>> {
    let nodes = table.list(key, COMMAND_EXAMPLE)?;
    if nodes.len() > TEXTS_MAX {
        let count = nodes.len();
        table.refuse(key, format!("has {count} texts; use from 1 to {TEXTS_MAX}"));
        return None;
    }
    let mut texts = Vec::new();
    for (n, node) in nodes.iter().enumerate() {
        let shown = node.value.shown();
        let wrong = match &node.value {
            Value::Text(text) if n == 0 && text.is_empty() => {
                format!("has no program: the first text is empty; use {COMMAND_EXAMPLE}")
            }
            // An argument ends at its first zero byte.
            Value::Text(text) if text.contains('\0') => {
                format!(
                    "{shown} contains a zero byte, which an argument cannot contain; remove the byte"
                )
            }
            Value::Text(text) => {
                texts.push(text.clone());
                continue;
            }
            Value::Integer(_) | Value::Float(_) | Value::Flag(_) | Value::Date(_) => {
                format!("{shown} is not a text; write \"{shown}\"")
            }
            Value::List(_) | Value::Table(_) => {
                format!("{shown} is not a text; use {COMMAND_EXAMPLE}")
            }
        };
        table.refuse(key, wrong);
        return None;
    }
    Some(texts)
}
