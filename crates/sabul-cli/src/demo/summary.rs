//! What a demo run has shown, in words and as JSON.

use std::time::Duration;

use sabul_path::LinkStats;
use sabul_study::processor::mhz_per_mbps;
use sabul_units::Span;
use serde_json::{Value, json};

use super::Outcome;
use crate::json::{SCHEMA, rate_bps};
use crate::size::{show_bytes, show_rate};

/// Cost of UDTv2 and of TCP Reno in MHz of processor per Mb/s. [SLAC Table 1].
const COST_UDT2: f64 = 16.2;
const COST_RENO: f64 = 0.63;
/// A relay that is late by more than this share of the one-way delay has bent the path. Ours.
const LATE_SHARE: u64 = 20;
/// Lateness below this counts as none, however short the path: the relay's own step and a wake-up.
const LATE_FLOOR: Span = Span::from_micros(500);

impl Outcome {
    fn goodput_bps(&self) -> f64 {
        rate_bps(self.bytes, self.wall.as_secs_f64())
    }

    fn cost(&self, cpu_seconds: Option<f64>) -> Option<f64> {
        mhz_per_mbps(cpu_seconds, self.cpu_mhz, self.wall.as_secs_f64(), self.goodput_bps())
    }

    fn is_verified(&self) -> bool {
        self.hashes[0] == self.hashes[1]
    }

    fn number(&self, key: &str) -> f64 {
        self.copy[key].as_f64().unwrap_or(0.0)
    }

    fn disturbances(&self) -> Vec<String> {
        let relay = &self.relay;
        let bound = (self.path.forward.delay() / LATE_SHARE).max(LATE_FLOOR);
        let mut found = Vec::new();
        if relay.socket_drops > 0 {
            found.push(format!("its sockets overflowed by {} packets", relay.socket_drops));
        }
        if relay.memory_drops > 0 {
            found.push(format!("it had no memory for {} packets", relay.memory_drops));
        }
        if relay.lateness.p99 > bound {
            found.push(format!(
                "1 % of the packets left it over {:.2} ms late",
                relay.lateness.p99.as_millis_f64()
            ));
        }
        found
    }
}

/// Packets that the link lost, without those that asked how large a packet may be.
const fn lost(link: &LinkStats) -> u64 {
    link.dropped_full + link.dropped_loss + link.dropped_outage
}

fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// The result in words.
pub(super) fn text(outcome: &Outcome) -> String {
    let link = &outcome.relay.forward;
    let verdict =
        if outcome.is_verified() { "BLAKE3 is equal at both ends" } else { "THE FILES DIFFER" };
    let mut lines = vec![
        format!("path     {}: {}", outcome.path.name, outcome.path.summary),
        format!("file     {}, {verdict}", show_bytes(outcome.bytes)),
        format!(
            "goodput  {} with {}: the file's bits over {:.2} s from start to end of `sabul cp`",
            show_rate(outcome.goodput_bps()),
            outcome.cc,
            seconds(outcome.wall),
        ),
        format!(
            "loss     the path lost {} of {} packets ({:.3} %), {} of them in its full queue, and \
             {} larger than it carries",
            lost(link),
            link.arrived,
            share(lost(link), link.arrived) * 100.0,
            link.dropped_full,
            link.dropped_too_large,
        ),
        format!(
            "resent   {} of {} packets",
            outcome.number("packets_retransmitted"),
            outcome.number("packets_sent"),
        ),
        format!(
            "RTT      {:.1} ms on average, {:.1} ms at least",
            outcome.number("rtt_ms"),
            outcome.number("rtt_ms_min"),
        ),
    ];
    let costs =
        (outcome.cost(outcome.sender.cpu_seconds), outcome.cost(outcome.receiver.cpu_seconds));
    if let (Some(sender), Some(receiver)) = costs {
        lines.push(format!(
            "cpu      sender {sender:.2}, receiver {receiver:.2} MHz/Mbps, encrypted and verified \
             (UDTv2 {COST_UDT2}, TCP Reno {COST_RENO} in [SLAC] Table 1)"
        ));
    } else {
        lines.push("cpu      this system does not tell processor times and clock".to_owned());
    }
    let peaks = (outcome.sender.memory_peak_bytes, outcome.receiver.memory_peak_bytes);
    if let (Some(sender), Some(receiver)) = peaks {
        lines.push(format!(
            "memory   sender {}, receiver {} at most",
            show_bytes(sender),
            show_bytes(receiver)
        ));
    }
    let late = outcome.relay.lateness;
    let disturbances = outcome.disturbances();
    lines.push(if disturbances.is_empty() {
        format!(
            "relay    kept the path's schedule: 99 % of packets at most {:.2} ms late, the latest \
             {:.2} ms",
            late.p99.as_millis_f64(),
            late.max.as_millis_f64()
        )
    } else {
        format!(
            "relay    THIS RUN WAS DISTURBED, its numbers are about this machine and not about \
             the path: {}",
            disturbances.join("; ")
        )
    });
    lines.join("\n") + "\n"
}

fn seconds(time: Duration) -> f64 {
    time.as_secs_f64()
}

/// The result as a document.
pub(super) fn json(outcome: &Outcome) -> Value {
    let relay = &outcome.relay;
    json!({
        "schema": SCHEMA,
        "path": outcome.path.name,
        "cc": outcome.cc,
        "bytes": outcome.bytes,
        "seconds": seconds(outcome.wall),
        "goodput_bps": outcome.goodput_bps(),
        "verified": outcome.is_verified(),
        "blake3": outcome.hashes[1].to_hex().as_str(),
        "rtt_ms": outcome.copy["rtt_ms"],
        "rtt_ms_min": outcome.copy["rtt_ms_min"],
        "packets_sent": outcome.copy["packets_sent"],
        "packets_retransmitted": outcome.copy["packets_retransmitted"],
        "path_packets": relay.forward.arrived,
        "path_packets_lost": lost(&relay.forward),
        "path_packets_lost_queue_full": relay.forward.dropped_full,
        "path_packets_too_large": relay.forward.dropped_too_large,
        "path_loss_rate": share(lost(&relay.forward), relay.forward.arrived),
        "cpu_seconds_sender": outcome.sender.cpu_seconds,
        "cpu_seconds_receiver": outcome.receiver.cpu_seconds,
        "cpu_mhz": outcome.cpu_mhz,
        "mhz_per_mbps_sender": outcome.cost(outcome.sender.cpu_seconds),
        "mhz_per_mbps_receiver": outcome.cost(outcome.receiver.cpu_seconds),
        "memory_peak_bytes_sender": outcome.sender.memory_peak_bytes,
        "memory_peak_bytes_receiver": outcome.receiver.memory_peak_bytes,
        "relay_late_ms_p50": relay.lateness.p50.as_millis_f64(),
        "relay_late_ms_p99": relay.lateness.p99.as_millis_f64(),
        "relay_late_ms_max": relay.lateness.max.as_millis_f64(),
        "relay_dropped_packets": relay.socket_drops + relay.memory_drops,
        "disturbed": !outcome.disturbances().is_empty(),
        "disturbances": outcome.disturbances(),
        "copy": outcome.copy,
    })
}
