//! How much a `[[flow]]` sends, how many there are of it and when.

use sabul_run::scenario::{ARRIVALS, Arrivals, FLOW, FlowSize, SIZE};
use sabul_units::{Instant, Span};

use crate::table::Table;

/// Most copies of a flow that may be expected to arrive one after another.
const ARRIVALS_MAX: f64 = 1_000_000.0;
/// What `packets` of a fixed size leave to IP and transport headers: 20 bytes each.
const HEADER_BYTES: u64 = 40;

/// When a flow is there: from its start to its stop or the end of the run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Life {
    pub(crate) start: Instant,
    pub(crate) end: Instant,
}

impl Life {
    fn room(self) -> Span {
        self.end.since(self.start)
    }
}

/// How much each copy of a flow sends, where it says so in a table; `size` is what it says otherwise.
pub(crate) fn size(flow: &Table<'_>, size: FlowSize, packet_bytes: u32) -> FlowSize {
    let Some(table) = flow.table_of(FLOW, "size") else { return size };
    let mut size = FlowSize::Endless;
    table.take_kind(SIZE, &mut size);
    if let FlowSize::Bytes(packets) = &mut size {
        *packets *= u64::from(packet_bytes) - HEADER_BYTES;
    }
    size
}

/// When the copies of a flow start, where it says so in a table; `arrivals` is what it says otherwise.
pub(crate) fn arrivals(
    flow: &Table<'_>,
    mut arrivals: Arrivals,
    size: FlowSize,
    life: Life,
) -> Arrivals {
    let table = flow.table_of(FLOW, "arrivals");
    if let Some(table) = &table {
        table.take_kind(ARRIVALS, &mut arrivals);
    }
    let table = table.as_ref().unwrap_or(flow);
    match arrivals {
        Arrivals::Together { spread, .. } if spread > life.room() => {
            let room = life.room().as_secs_f64();
            table.refuse_value("spread_s", format_args!("at most {room}, or some never start"));
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
        let what = "the copies that arrive never end, so they pile up; use bytes or size as well";
        flow.refuse("arrivals", what);
    }
}
