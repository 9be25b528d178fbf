//! Reader for a `[[link]]` of the file.

use sabul_cc::ParamValues;
use sabul_lab_cc::routers;
use sabul_net::{
    BURST_LOSS, BurstLoss, DELAY_STEP, DelayStep, Fill, LINK, LinkConfig, LinkDraft, LinkError,
    LinkPlan, OUTAGE, Outage, POLICER, QueueLimit, RATE_STEP, RATE_WALK, RateStep, RateWalk,
    SHAPER, TokenBucket,
};
use sabul_run::scenario::FlowPlan;
use sabul_units::key::{Key, names, rounded};
use sabul_units::{Instant, Probability, Rate, Span};

use crate::error::unknown;
use crate::keys::disciplines_of;
use crate::table::Table;
use crate::traces::Traces;
use crate::tree::Value;

/// Packet size for `queue_bdp`: the usual Ethernet MTU, in bytes.
const FULL_PACKET: f64 = 1_500.0;

/// A link before its queue is sized by the flows that cross the link.
#[derive(Clone, Debug)]
pub(crate) struct Draft<'a> {
    pub(crate) id: &'a str,
    draft: LinkDraft,
    table: Table<'a>,
}

impl<'a> Draft<'a> {
    /// Reads the keys of a `[[link]]` that do not depend on flows.
    pub(crate) fn read(table: Table<'a>, traces: &Traces) -> Self {
        let mut draft = LinkDraft::default();
        take_trace(&table, &mut draft, traces);
        table.take_all(LINK, &mut draft, None);
        Self { id: table.id().unwrap_or_default(), draft, table }
    }

    pub(crate) fn delay(&self) -> Span {
        self.draft.forward.delay()
    }

    pub(crate) fn mtu(&self) -> Option<u32> {
        self.draft.forward.mtu()
    }

    /// Returns the link in both directions. `place` is the link's position; `flows` are all flows
    /// of the scenario.
    pub(crate) fn finish(self, place: usize, flows: &[FlowPlan], delays: &[Span]) -> LinkPlan {
        let Self { id, mut draft, table } = self;
        let flow_ids: Vec<&str> = flows.iter().map(|flow| flow.id.as_str()).collect();
        take_router(&table, &mut draft);
        take_discipline(&table, &mut draft, &flow_ids);
        if table.has("reorder_ms") && !table.has("reorder") {
            let what =
                "has no effect, because there is no reorder; set reorder, or remove this key";
            table.refuse("reorder_ms", what);
        }
        let queue = queue(&draft, longest_rtt(place, flows, delays));
        let outages = outages(&table);
        let rate_steps = rate_steps(&table);
        let delay_steps = delay_steps(&table);
        let LinkDraft { forward, mut back, .. } = draft;
        if !table.has("back_rate_mbps") {
            back = back.with_rate_steps(rate_steps.clone());
        }
        let forward = forward
            .with_burst_loss(burst_loss(&table))
            .with_policer(bucket(&table, "policer", POLICER))
            .with_shaper(bucket(&table, "shaper", SHAPER))
            .with_rate_walk(rate_walk(&table))
            .with_rate_steps(rate_steps);
        let [forward, back] = [forward, back].map(|link| {
            let link = link.with_queue(queue).with_outages(outages.clone());
            link.with_delay_steps(delay_steps.clone()).build().unwrap_or_else(|error| {
                // Problems logged earlier are more precise.
                if table.log().is_empty() {
                    refuse(&table, &error);
                }
                LinkConfig::default()
            })
        });
        LinkPlan { id: id.to_owned(), forward, back }
    }
}

/// Sets the link's trace. The trace's mean rate is the default rate of both directions.
fn take_trace(table: &Table<'_>, draft: &mut LinkDraft, traces: &Traces) {
    let Some(path) = table.text("trace", "the path of a trace file") else { return };
    match traces.get(path) {
        Ok(trace) => {
            draft.back = std::mem::take(&mut draft.back).with_rate(Some(trace.mean_rate()));
            draft.forward = std::mem::take(&mut draft.forward).with_trace(Some(trace));
        }
        Err(problem) => table.refuse("trace", problem),
    }
}

/// Logs an invalid combination of settings: at the named setting if the file has that key,
/// otherwise at another setting of the discipline.
fn refuse(table: &Table<'_>, error: &LinkError) {
    let LinkError { setting, value, allowed } = error;
    if table.has(setting) {
        table.refuse(setting, format!("is {value}, which is not allowed; use {allowed}"));
        return;
    }
    let what = format!("{setting} is {value}, which is not allowed; use {allowed}");
    match table.fields().iter().find(|field| !disciplines_of(&field.key).is_empty()) {
        Some(other) => table.refuse(&other.key, what),
        None => table.refuse_whole(what),
    }
}

/// Reads the settings of the link's discipline and refuses settings of other disciplines.
fn take_discipline(table: &Table<'_>, draft: &mut LinkDraft, flow_ids: &[&str]) {
    if table.has("discipline")
        && !LINK.iter().any(|key| key.name == "discipline" && table.word(key).is_some())
    {
        // The discipline is unknown, so its settings cannot be checked.
        return;
    }
    let discipline = draft.forward.discipline_mut();
    let name = discipline.name();
    for field in table.fields() {
        let owners = disciplines_of(&field.key);
        if !owners.is_empty() && !owners.contains(&name) {
            let owners = owners.join(" or ");
            let advice = "remove this key, or change the discipline";
            let what =
                format!("contradicts discipline {name}: the key belongs to {owners}; {advice}");
            table.refuse(&field.key, what);
        }
    }
    discipline.fill(&mut Filling { table, flow_ids });
    if let Err(error) = discipline.check() {
        refuse(table, &error);
    }
}

/// Fills a discipline's settings from a table.
struct Filling<'t, 'a> {
    table: &'t Table<'a>,
    flow_ids: &'t [&'t str],
}

impl Fill for Filling<'_, '_> {
    fn fill<T>(&mut self, keys: &[Key<T>], settings: &mut T) {
        self.table.take_all(keys, settings, None);
        for key in keys {
            self.table.take_by_flow(key, settings, self.flow_ids);
        }
    }
}

/// Reads the parameters of the link's router; each parameter is checked alone.
fn take_router(table: &Table<'_>, draft: &mut LinkDraft) {
    const EXAMPLE: &str = "a table, such as { eta = 0.9 }";
    if table.has("router_rate_mbps") && !table.has("router") {
        table
            .refuse("router_rate_mbps", "is a setting of a router; set router, or remove this key");
    }
    let Some(given) = table.table("router_params", None, EXAMPLE) else { return };
    let Some(mut plan) = draft.forward.router().cloned() else {
        table.refuse("router_params", "belongs to a router; set router, or remove this key");
        return;
    };
    let Ok(entry) = routers::find(&plan.algorithm) else { return };
    let known: Vec<&str> = entry.params.iter().map(|spec| spec.name).collect();
    for field in given.fields() {
        if !known.contains(&field.key.as_str()) {
            let what = format!("parameter of router {}", entry.name);
            given.refuse(&field.key, unknown(&what, &field.key, &known));
            continue;
        }
        let param = (field.key.clone(), field.node.value.plain());
        match ParamValues::check(entry.name, entry.params, std::slice::from_ref(&param)) {
            Ok(_) => plan.params.push(param),
            Err(error) => given.refuse_value(&field.key, error.allowed),
        }
    }
    draft.forward = std::mem::take(&mut draft.forward).with_router(Some(plan));
}

/// Returns the largest base RTT of the flows that cross a link; the RTT of the link alone if no
/// flow crosses the link.
fn longest_rtt(place: usize, flows: &[FlowPlan], delays: &[Span]) -> Span {
    let of_flow = |flow: &FlowPlan| {
        let links = flow.path.iter().fold(Span::ZERO, |sum, link| sum + delays[*link]);
        (links + flow.access_delay).mul_ratio(2, 1)
    };
    let crossing = flows.iter().filter(|flow| flow.path.contains(&place));
    crossing.map(of_flow).max().unwrap_or_else(|| delays[place].mul_ratio(2, 1))
}

fn queue(draft: &LinkDraft, rtt: Span) -> QueueLimit {
    match draft.forward.queue() {
        QueueLimit::Unlimited => {
            // A link without a rate is refused elsewhere.
            let rate = draft.forward.rate().unwrap_or(Rate::from_mbps(1));
            let bdp_packets = rate.bytes_in(rtt).0 as f64 / FULL_PACKET;
            QueueLimit::Packets(rounded(bdp_packets * draft.queue_bdp).max(2))
        }
        given => given,
    }
}

fn burst_loss(table: &Table<'_>) -> Option<BurstLoss> {
    let bursts = table.table_of(LINK, "burst_loss")?;
    let none = Probability::ZERO;
    let mut read = BurstLoss { to_bad: none, to_good: none, loss_good: none, loss_bad: none };
    bursts.take_all(BURST_LOSS, &mut read, None);
    Some(read)
}

fn bucket(table: &Table<'_>, name: &str, keys: &[Key<TokenBucket>]) -> Option<TokenBucket> {
    let given = table.table_of(LINK, name)?;
    let mut read = TokenBucket { rate: Rate::from_mbps(1), bytes: 1 };
    given.take_all(keys, &mut read, None);
    Some(read)
}

fn rate_walk(table: &Table<'_>) -> Option<RateWalk> {
    let given = table.table_of(LINK, "rate_walk")?;
    let mut read = RateWalk { low: Rate::from_mbps(1), every: Span::from_millis(1) };
    given.take_all(RATE_WALK, &mut read, None);
    Some(read)
}

fn outages(table: &Table<'_>) -> Vec<Outage> {
    let none = Outage { at: Instant::ZERO, lasts: Span::ZERO };
    timed(table, "outage", OUTAGE, none, |before, next| {
        let end = before.end();
        (end > next.at).then(|| {
            let end_s = end.elapsed().as_secs_f64();
            format!(
                "is before the end of the previous outage, at {end_s} s; write outages in order \
                 without overlap"
            )
        })
    })
}

fn rate_steps(table: &Table<'_>) -> Vec<RateStep> {
    let none = RateStep { at: Instant::ZERO, rate: Rate::from_mbps(1) };
    timed(table, "rate_steps", RATE_STEP, none, |before, next| too_early(before.at, next.at))
}

fn delay_steps(table: &Table<'_>) -> Vec<DelayStep> {
    let none = DelayStep { at: Instant::ZERO, delay: Span::ZERO };
    timed(table, "delay_steps", DELAY_STEP, none, |before, next| too_early(before.at, next.at))
}

/// Returns the problem of a step that is not later than the preceding step; `None` for a valid
/// step.
fn too_early(before: Instant, at: Instant) -> Option<String> {
    (before >= at).then(|| {
        let before_s = before.elapsed().as_secs_f64();
        format!(
            "is not later than the previous step, at {before_s} s; write steps in order of time"
        )
    })
}

/// Reads a list of tables in order of time. `wrong` returns the problem with the time of the second
/// of two neighbours.
fn timed<T: Copy>(
    table: &Table<'_>,
    name: &str,
    keys: &[Key<T>],
    blank: T,
    wrong: impl Fn(&T, &T) -> Option<String>,
) -> Vec<T> {
    let allowed = LINK.iter().find(|key| key.name == name).map_or_else(String::new, Key::allowed);
    let mut all: Vec<T> = Vec::new();
    for item in table.tables(name, &names(keys), &allowed) {
        let mut next = blank;
        item.take_all(keys, &mut next, None);
        let problem = all.last().and_then(|before| wrong(before, &next));
        if let Some(problem) = problem.filter(|_| is_number(&item, "at_s")) {
            item.refuse("at_s", problem);
            continue;
        }
        all.push(next);
    }
    all
}

fn is_number(table: &Table<'_>, key: &str) -> bool {
    table.fields().iter().any(|field| {
        field.key == key && matches!(field.node.value, Value::Integer(_) | Value::Float(_))
    })
}
