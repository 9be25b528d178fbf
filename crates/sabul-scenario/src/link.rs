//! A `[[link]]` of the file.

use sabul_path::{BurstLoss, LinkConfig, LinkPlan, Outage, QueueLimit};
use sabul_run::scenario::FlowPlan;
use sabul_units::{Instant, Rate, Span};

use crate::discipline::{self, PACKETS_MAX, above_zero};
use crate::error::unknown;
use crate::keys::{BURST_LOSS, OUTAGE, RIVALS, ROUTERS};
use crate::plan::SECONDS_MAX;
use crate::table::{PS_PER_MS, PS_PER_S, Range, Table, rounded};

/// The packet that `queue_bdp` counts in: the usual Ethernet MTU, in bytes.
const FULL_PACKET: f64 = 1_500.0;
/// The longest delay of a link: an hour.
pub(crate) const DELAY_MS: Range = Range::of(0.0, 3_600_000.0);
/// Most bytes in a queue.
const QUEUE_BYTES_MAX: u64 = 1_000_000_000_000;
/// The least and largest MTU of a link.
/// Far beyond any frame of a real link.
const FRAMING_MAX: u32 = 1_000;
const MTU: (u32, u32) = (68, 65_575);

/// What flows need to know of a link, before its queue can be sized by theirs.
#[derive(Clone, Debug)]
pub(crate) struct Draft<'a> {
    pub(crate) id: &'a str,
    pub(crate) delay: Span,
    pub(crate) mtu: Option<u32>,
    table: Table<'a>,
}

impl<'a> Draft<'a> {
    /// The name, delay and MTU of a `[[link]]`.
    pub(crate) fn read(table: Table<'a>) -> Self {
        let id = table.id().unwrap_or_default();
        if !table.has("delay_ms") {
            table.missing("delay_ms", "the delay one way, in milliseconds");
        }
        Self {
            id,
            delay: table.span("delay_ms", DELAY_MS, PS_PER_MS).unwrap_or_default(),
            mtu: table.whole_u32("mtu", MTU.0, MTU.1),
            table,
        }
    }

    /// The link in both directions; `place` is its position, `flows` are all of the scenario.
    pub(crate) fn finish(self, place: usize, flows: &[FlowPlan], delays: &[Span]) -> LinkPlan {
        let Self { id, delay, mtu, table } = self;
        if !table.has("rate_mbps") {
            table.missing("rate_mbps", "the rate in megabits per second");
        }
        let rate = table.rate("rate_mbps").unwrap_or(Rate::from_mbps(1));
        let back_rate = table.rate("back_rate_mbps").unwrap_or(rate);
        refuse_router(&table);
        let queue = queue(&table, rate, longest_rtt(place, flows, delays));
        let flow_ids: Vec<&str> = flows.iter().map(|flow| flow.id.as_str()).collect();
        let outages = outages(&table);
        let (reorder, reorder_by) = reorder(&table);
        let framing = table.whole_u32("framing_bytes", 0, FRAMING_MAX).unwrap_or(0);
        let forward = LinkConfig::builder()
            .with_rate(Some(rate))
            .with_delay(delay)
            .with_jitter(table.span("jitter_ms", DELAY_MS, PS_PER_MS).unwrap_or_default())
            .with_queue(queue)
            .with_discipline(discipline::read(&table, rate, &flow_ids))
            .with_loss(table.probability("loss").unwrap_or_default())
            .with_burst_loss(burst_loss(&table))
            .with_reorder(reorder, reorder_by)
            .with_duplicate(table.probability("duplicate").unwrap_or_default())
            .with_corrupt(table.probability("corrupt").unwrap_or_default())
            .with_outages(outages.clone())
            .with_mtu(mtu)
            .with_framing(framing);
        let back = LinkConfig::builder()
            .with_rate(Some(back_rate))
            .with_delay(delay)
            .with_queue(queue)
            .with_loss(table.probability("loss_back").unwrap_or_default())
            .with_outages(outages)
            .with_mtu(mtu)
            .with_framing(framing);
        let [forward, back] = [forward, back].map(|link| {
            link.build().unwrap_or_else(|error| {
                // Whatever was noted already is more precise.
                if table.log().is_empty() {
                    table.refuse_whole(error.to_string());
                }
                LinkConfig::default()
            })
        });
        LinkPlan { id: id.to_owned(), forward, back }
    }
}

fn refuse_router(table: &Table<'_>) {
    let Some(router) = table.text("router", "\"none\"") else { return };
    if !ROUTERS.contains(&router) {
        table.refuse("router", unknown("word", router, ROUTERS));
    } else if router != "none" {
        table.refuse("router", format!("\"{router}\" is not built yet; use \"none\""));
    }
}

/// The largest base round trip of the flows that cross a link; of the link alone where none does.
fn longest_rtt(place: usize, flows: &[FlowPlan], delays: &[Span]) -> Span {
    let of_flow = |flow: &FlowPlan| {
        let links = flow.path.iter().fold(Span::ZERO, |sum, link| sum + delays[*link]);
        (links + flow.access_delay).mul_ratio(2, 1)
    };
    let crossing = flows.iter().filter(|flow| flow.path.contains(&place));
    crossing.map(of_flow).max().unwrap_or_else(|| delays[place].mul_ratio(2, 1))
}

fn queue(table: &Table<'_>, rate: Rate, rtt: Span) -> QueueLimit {
    let given: Vec<&str> = RIVALS[0].iter().copied().filter(|key| table.has(key)).collect();
    if let [first, second, ..] = given.as_slice() {
        table.refuse(second, format!("contradicts {first}; use one of {}", RIVALS[0].join(", ")));
    }
    let packets = table.whole("queue_packets", 1, PACKETS_MAX);
    let bytes = table.whole("queue_bytes", 1, QUEUE_BYTES_MAX);
    let share = table.number("queue_bdp", Range::over(0.0, 1_000.0));
    match (packets, bytes) {
        (Some(packets), _) => QueueLimit::Packets(packets),
        (_, Some(bytes)) => QueueLimit::Bytes(bytes),
        _ => {
            let bdp_packets = rate.bytes_in(rtt).0 as f64 / FULL_PACKET;
            let packets = rounded(bdp_packets * share.unwrap_or(1.0));
            QueueLimit::Packets(packets.max(2))
        }
    }
}

fn reorder(table: &Table<'_>) -> (sabul_units::Probability, Span) {
    if table.has("reorder_ms") && !table.has("reorder") {
        table.refuse("reorder_ms", "says how late reordered packets are, but there is no reorder");
    }
    let by = table.span("reorder_ms", Range::of(1e-6, 3_600_000.0), PS_PER_MS);
    (table.probability("reorder").unwrap_or_default(), by.unwrap_or(Span::from_millis(1)))
}

fn burst_loss(table: &Table<'_>) -> Option<BurstLoss> {
    const EXAMPLE: &str =
        "{ to_bad = 0.001, to_good = 0.1, loss_good = 0, loss_bad = 1 }, all probabilities";
    let bursts = table.table("burst_loss", Some(BURST_LOSS), EXAMPLE)?;
    for key in ["to_bad", "to_good", "loss_bad"] {
        if !bursts.has(key) {
            bursts.missing(key, EXAMPLE);
        }
    }
    Some(BurstLoss {
        to_bad: above_zero(&bursts, "to_bad")?,
        to_good: above_zero(&bursts, "to_good")?,
        loss_good: bursts.probability("loss_good").unwrap_or_default(),
        loss_bad: bursts.probability("loss_bad")?,
    })
}

fn outages(table: &Table<'_>) -> Vec<Outage> {
    const EXAMPLE: &str = "a list such as [{ at_s = 10, for_s = 1 }]";
    let mut outages: Vec<Outage> = Vec::new();
    for item in table.tables("outage", OUTAGE, EXAMPLE) {
        for key in OUTAGE {
            if !item.has(key) {
                item.missing(key, EXAMPLE);
            }
        }
        let at = item.span("at_s", Range::of(0.0, SECONDS_MAX), PS_PER_S);
        let lasts = item.span("for_s", Range::of(1e-9, SECONDS_MAX), PS_PER_S);
        let (Some(at), Some(lasts)) = (at, lasts) else { continue };
        let outage = Outage { at: Instant::ZERO + at, lasts };
        if let Some(before) = outages.last()
            && before.end() > outage.at
        {
            let end = before.end().elapsed().as_secs_f64();
            item.refuse("at_s", format!("is before the end of the one before it, at {end} s"));
            continue;
        }
        outages.push(outage);
    }
    outages
}
