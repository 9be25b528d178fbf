//! The queue discipline of a link and its settings.

use std::collections::BTreeMap;

use sabul_path::{Codel, Discipline, Drr, EcnThreshold, FqCodel, Red};
use sabul_units::{Probability, Rate};

use crate::error::unknown;
use crate::keys::{DISCIPLINE_SETTINGS, DISCIPLINES};
use crate::table::{PS_PER_MS, Range, Table};

/// No queue holds more packets.
pub(crate) const PACKETS_MAX: u64 = 1_000_000_000;
/// Largest weight of a flow, quantum and number of queues that a link takes.
const WEIGHT_MAX: u32 = 65_535;
const QUANTUM_BYTES: (u32, u32) = (256, 1 << 20);
const QUEUES_MAX: u32 = 65_536;
/// Longest time that a discipline takes: an hour.
const MS_MAX: f64 = 3_600_000.0;

/// The discipline that a `[[link]]` asks for; `rate` is the link's.
///
/// Weights are by position in `flow_ids`.
pub(crate) fn read(link: &Table<'_>, rate: Rate, flow_ids: &[&str]) -> Discipline {
    let name = link.choice("discipline", DISCIPLINES);
    if name.is_none() && link.has("discipline") {
        // What the settings belong to is unknown then.
        return Discipline::DropTail;
    }
    let name = name.unwrap_or("droptail");
    refuse_settings_of_others(link, name);
    match name {
        "red" => Discipline::Red(red(link, rate)),
        "codel" => Discipline::Codel(codel(link, Codel::default())),
        "fq-codel" => Discipline::FqCodel(fq_codel(link)),
        "drr" => Discipline::Drr(drr(link, flow_ids)),
        "ecn-threshold" => {
            if !link.has("mark_packets") {
                link.missing("mark_packets", "the queue length from which on packets are marked");
            }
            let mark_packets = link.whole("mark_packets", 1, PACKETS_MAX).unwrap_or(1);
            Discipline::EcnThreshold(EcnThreshold { mark_packets })
        }
        _ => Discipline::DropTail,
    }
}

fn refuse_settings_of_others(link: &Table<'_>, name: &str) {
    for (key, owners) in DISCIPLINE_SETTINGS {
        if link.has(key) && !owners.contains(&name) {
            let owners = owners.join(" or ");
            let advice = "leave it out, or change the discipline";
            link.refuse(key, format!("contradicts discipline {name}, it is of {owners}; {advice}"));
        }
    }
}

fn red(link: &Table<'_>, rate: Rate) -> Red {
    let mut red = Red::for_rate(rate);
    if let Some(packets) = link.whole("red_min_packets", 1, PACKETS_MAX) {
        red.min_packets = packets;
        red.max_packets = 3 * packets;
    }
    red.max_packets = link.whole("red_max_packets", 2, 3 * PACKETS_MAX).unwrap_or(red.max_packets);
    if red.max_packets <= red.min_packets {
        let what = format!("must be more than red_min_packets, which is {}", red.min_packets);
        link.refuse("red_max_packets", what);
    }
    if let Some(p) = above_zero(link, "red_max_probability") {
        red.max_probability = p;
    }
    if let Some(p) = above_zero(link, "red_weight") {
        red.weight = p;
    }
    red.is_gentle = link.flag("red_gentle").unwrap_or(red.is_gentle);
    red.is_marking = link.flag("ecn").unwrap_or(red.is_marking);
    red
}

/// A probability above zero, which has to survive the step of one part per billion.
pub(crate) fn above_zero(table: &Table<'_>, key: &str) -> Option<Probability> {
    let p = Probability::new(table.number(key, Range::over(0.0, 1.0))?).ok()?;
    if p == Probability::ZERO {
        table.refuse_value(key, "0.000000001 or more");
        return None;
    }
    Some(p)
}

fn codel(link: &Table<'_>, mut codel: Codel) -> Codel {
    let range = Range::of(0.001, MS_MAX);
    codel.interval = link.span("codel_interval_ms", range, PS_PER_MS).unwrap_or(codel.interval);
    codel.target = link.span("codel_target_ms", range, PS_PER_MS).unwrap_or(codel.target);
    if codel.target > codel.interval {
        let interval = codel.interval.as_millis_f64();
        let key = if link.has("codel_target_ms") { "codel_target_ms" } else { "codel_interval_ms" };
        let target = codel.target.as_millis_f64();
        let what = format!("the target of {target} ms is over the interval of {interval} ms");
        link.refuse(key, format!("{what}; use a target of at most the interval"));
    }
    codel.is_marking = link.flag("ecn").unwrap_or(codel.is_marking);
    codel
}

fn quantum(link: &Table<'_>, default: u32) -> u32 {
    let (low, high) = QUANTUM_BYTES;
    link.whole_u32("quantum_bytes", low, high).unwrap_or(default)
}

fn fq_codel(link: &Table<'_>) -> FqCodel {
    let default = FqCodel::default();
    FqCodel {
        codel: codel(link, default.codel),
        quantum_bytes: quantum(link, default.quantum_bytes),
        queues: link.whole_u32("fq_queues", 1, QUEUES_MAX).unwrap_or(default.queues),
    }
}

fn drr(link: &Table<'_>, flow_ids: &[&str]) -> Drr {
    let default = Drr::default();
    let mut weights = BTreeMap::new();
    let of_flows = link.table("drr_weights", None, "a table of weights, such as { a = 2, b = 1 }");
    if let Some(table) = of_flows {
        for field in table.fields() {
            let place = flow_ids.iter().position(|id| *id == field.key);
            let weight = table.whole_u32(&field.key, 1, WEIGHT_MAX);
            match (place.and_then(|place| u32::try_from(place).ok()), weight) {
                (Some(place), Some(weight)) => {
                    weights.insert(place, weight);
                }
                (None, _) => table.refuse(&field.key, unknown("flow", &field.key, flow_ids)),
                (Some(_), None) => {}
            }
        }
    }
    Drr {
        quantum_bytes: quantum(link, default.quantum_bytes),
        weights,
        is_dedicated: link.flag("drr_dedicated").unwrap_or(default.is_dedicated),
    }
}
