//! How much a `[[flow]]` sends, how many there are of it and when.

use sabul_run::scenario::{Arrivals, FlowSize};
use sabul_units::{Instant, Span};

use crate::keys::{ARRIVALS, SIZE};
use crate::plan::SECONDS_MAX;
use crate::table::{PS_PER_S, Range, Table};

/// The most that a flow sends.
const BYTES_MAX: u64 = 1_000_000_000_000_000;
/// Most copies of a flow that start together.
const COUNT_MAX: u32 = 100_000;
/// Most copies of a flow that may be expected to arrive one after another.
const ARRIVALS_MAX: f64 = 1_000_000.0;
/// Packets in one object.
const PACKETS_MAX: u64 = 1_000_000_000;
/// What `packets` of a fixed size leave to IP and transport headers: 20 bytes each.
const HEADER_BYTES: u64 = 40;

/// When a flow is there: from its start to its stop or the end of the run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Life {
    pub(crate) start: Instant,
    pub(crate) end: Instant,
}

/// How much each copy of a flow sends.
pub(crate) fn size(flow: &Table<'_>, packet_bytes: u32) -> FlowSize {
    const EXAMPLE: &str = "{ distribution = \"pareto\", shape = 1.4, mean_packets = 100 } or \
                           { distribution = \"fixed\", packets = 100 }";
    if flow.has("bytes") && flow.has("size") {
        flow.refuse("size", "contradicts bytes; use one of bytes, size");
    }
    let bytes = flow.whole("bytes", 1, BYTES_MAX);
    let Some(size) = flow.table("size", Some(SIZE), EXAMPLE) else {
        return bytes.map_or(FlowSize::Endless, FlowSize::Bytes);
    };
    if !size.has("distribution") {
        size.missing("distribution", EXAMPLE);
    }
    let refuse_others = |others: &[&str], name: &str| {
        for key in others.iter().filter(|key| size.has(key)) {
            size.refuse(key, format!("contradicts distribution \"{name}\"; use {EXAMPLE}"));
        }
    };
    let need = |key| {
        if !size.has(key) {
            size.missing(key, EXAMPLE);
        }
    };
    match size.choice("distribution", &["pareto", "fixed"]) {
        Some("pareto") => {
            refuse_others(&["packets"], "pareto");
            need("shape");
            need("mean_packets");
            FlowSize::Pareto {
                shape: size.number("shape", Range::over(1.0, 100.0)).unwrap_or(2.0),
                mean_packets: size
                    .number("mean_packets", Range::of(1.0, PACKETS_MAX as f64))
                    .unwrap_or(1.0),
            }
        }
        Some(_) => {
            refuse_others(&["shape", "mean_packets"], "fixed");
            need("packets");
            let packets = size.whole("packets", 1, PACKETS_MAX).unwrap_or(1);
            let payload = u64::from(packet_bytes) - HEADER_BYTES;
            FlowSize::Bytes(packets * payload)
        }
        None => FlowSize::Endless,
    }
}

/// How many copies of a flow there are, and when they start.
pub(crate) fn arrivals(flow: &Table<'_>, size: FlowSize, life: Life) -> Arrivals {
    const EXAMPLE: &str = "{ process = \"poisson\", mean_interval_s = 0.2 } or \
                           { process = \"together\", count = 10, spread_s = 1 } or \
                           { process = \"chain\", count = 100, parallel = 5 }";
    let Some(table) = flow.table("arrivals", Some(ARRIVALS), EXAMPLE) else {
        return together(flow, life);
    };
    for key in ["count", "spread_s"] {
        if flow.has(key) {
            flow.refuse(key, "contradicts arrivals; use one of them");
        }
    }
    if !table.has("process") {
        table.missing("process", EXAMPLE);
    }
    let own = |process: &str, keys: &[&str]| {
        for key in ["mean_interval_s", "count", "spread_s", "parallel"] {
            if table.has(key) && !keys.contains(&key) {
                let keys = keys.join(", ");
                table.refuse(
                    key,
                    format!("contradicts process \"{process}\", whose keys are {keys}"),
                );
            }
        }
    };
    let need_count = || {
        if !table.has("count") {
            table.missing("count", EXAMPLE);
        }
    };
    match table.choice("process", &["poisson", "together", "chain"]) {
        Some("poisson") => {
            own("poisson", &["mean_interval_s"]);
            poisson(flow, &table, size, life)
        }
        Some("chain") => {
            own("chain", &["count", "parallel"]);
            need_count();
            refuse_endless(flow, size);
            let count = table.whole_u32("count", 1, COUNT_MAX).unwrap_or(1);
            let parallel = table.whole_u32("parallel", 1, COUNT_MAX).unwrap_or(1);
            Arrivals::Chain { count, parallel }
        }
        Some(_) => {
            own("together", &["count", "spread_s"]);
            need_count();
            together(&table, life)
        }
        None => Arrivals::Together { count: 1, spread: Span::ZERO },
    }
}

fn together(table: &Table<'_>, life: Life) -> Arrivals {
    let count = table.whole_u32("count", 1, COUNT_MAX).unwrap_or(1);
    let range = Range::of(0.0, SECONDS_MAX);
    let spread = table.span("spread_s", range, PS_PER_S).unwrap_or_default();
    let room = life.end.since(life.start);
    if spread > room {
        let room = room.as_secs_f64();
        table.refuse_value("spread_s", format_args!("at most {room}, or some never start"));
    }
    Arrivals::Together { count, spread }
}

fn refuse_endless(flow: &Table<'_>, size: FlowSize) {
    if size == FlowSize::Endless {
        let what = "the copies that arrive never end, so they pile up; use bytes or size as well";
        flow.refuse("arrivals", what);
    }
}

fn poisson(flow: &Table<'_>, table: &Table<'_>, size: FlowSize, life: Life) -> Arrivals {
    const KEY: &str = "mean_interval_s";
    if !table.has(KEY) {
        table.missing(KEY, "the mean time between two arrivals, in seconds");
    }
    refuse_endless(flow, size);
    let mean = table.span(KEY, Range::of(1e-9, SECONDS_MAX), PS_PER_S);
    let mean_interval = mean.unwrap_or(Span::from_secs(1));
    let room = life.end.since(life.start).as_secs_f64();
    if room / mean_interval.as_secs_f64() > ARRIVALS_MAX {
        let least = room / ARRIVALS_MAX;
        table.refuse_value(KEY, format_args!("{least} or more: at most 1000000 copies arrive"));
    }
    Arrivals::Poisson { mean_interval }
}
