//! Reader for `size` and `arrivals` of a `[[flow]]`.

use sabul_run::scenario::{ARRIVALS, Arrivals, FLOW, FlowSize, SIZE};
use sabul_units::{Instant, Span};

use crate::table::Table;

/// Largest expected number of Poisson arrivals of a flow.
const ARRIVALS_MAX: f64 = 1_000_000.0;
/// Bytes of IP and transport headers in a packet of a fixed-size object: 20 bytes each.
const HEADER_BYTES: u64 = 40;

/// Lifetime of a flow: from its start to its stop or the end of the run.
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

/// Returns the size of each copy of a flow from the `size` table; `size` if there is no such table.
pub(crate) fn size(flow: &Table<'_>, size: FlowSize, packet_bytes: u32) -> FlowSize {
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
