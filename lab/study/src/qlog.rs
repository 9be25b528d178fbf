//! qlog writer, for viewers of QUIC connections (draft-ietf-quic-qlog-main-schema and
//! draft-ietf-quic-qlog-quic-events, version 0.3, as a JSON text sequence).
//!
//! | our event | qlog's |
//! |---|---|
//! | event of a controller | `recovery:metrics_updated`, with `congestion_window` and `pacing_rate`; all our columns under `sabul` |
//! | the same, with a new phase | `recovery:congestion_state_updated` first; `trigger` is the first reason |
//! | timer `expiry` or `ack` | `recovery:loss_timer_updated`, expired; `timer_type` `pto` or `ack` |
//! | other timers | `sabul:timer_fired` |
//! | drop | `sabul:drop` |
//!
//! The source of an event is its `group_id`. qlog counts bytes, but our events count packets; a
//! packet counts as [`PACKET_BYTES`].

use std::collections::BTreeMap;

use serde_json::{Value, json};

/// Bytes per packet, for windows and inter-packet gaps.
pub const PACKET_BYTES: f64 = 1500.0;
/// Precedes each record of a JSON text sequence [RFC 7464].
const RECORD_SEPARATOR: char = '\u{1e}';

/// Converts lines of events to qlog.
#[derive(Clone, Debug, Default)]
pub struct Qlog {
    /// Last reported phase by source.
    phases: BTreeMap<String, String>,
}

impl Qlog {
    /// Returns the header of a qlog file.
    pub fn head(title: &str) -> String {
        record(&json!({
            "qlog_version": "0.3",
            "qlog_format": "JSON-SEQ",
            "title": title,
            "trace": {
                "common_fields": { "time_format": "relative", "reference_time": 0 },
                "vantage_point": { "name": title, "type": "unknown" },
            },
        }))
    }

    /// Returns the records for one line ([`sabul_run::events`]); empty if the line is not an event.
    pub fn records(&mut self, line: &str) -> String {
        let Ok(seen) = serde_json::from_str::<Value>(line) else { return String::new() };
        let (Some(time_s), Some(source)) = (seen["t_s"].as_f64(), seen["source"].as_str()) else {
            return String::new();
        };
        let group =
            seen["host"].as_str().map_or_else(|| source.to_owned(), |h| format!("{source}/{h}"));
        let event = |name: &str, data: Value| {
            record(&json!({ "time": time_s * 1e3, "group_id": group, "name": name, "data": data }))
        };
        match seen["event"].as_str() {
            Some("drop") => event("sabul:drop", seen.clone()),
            Some("timer") => match seen["timer"].as_str() {
                Some(timer @ ("expiry" | "ack")) => {
                    let kind = if timer == "ack" { "ack" } else { "pto" };
                    let data =
                        json!({ "timer_type": kind, "event_type": "expired", "sabul": &seen });
                    event("recovery:loss_timer_updated", data)
                }
                _ => event("sabul:timer_fired", seen.clone()),
            },
            _ => {
                let phase = seen["phase"].as_str().unwrap_or_default().to_owned();
                let old = self.phases.insert(group.clone(), phase.clone());
                let mut records = String::new();
                if old.as_deref() != Some(&phase) {
                    let trigger = &seen["reasons"][0];
                    let data = json!({ "old": old, "new": phase, "trigger": trigger });
                    records += &event("recovery:congestion_state_updated", data);
                }
                records + &event("recovery:metrics_updated", metrics(&seen))
            }
        }
    }
}

/// Returns the limits of a controller, in qlog's fields and in ours.
fn metrics(seen: &Value) -> Value {
    let mut data = json!({ "sabul": seen });
    if let Some(packets) = seen["window_packets"].as_f64() {
        data["congestion_window"] = json!(packets * PACKET_BYTES);
    }
    if let Some(gap_ns) = seen["gap_ns"].as_f64().filter(|gap_ns| *gap_ns > 0.0) {
        data["pacing_rate"] = json!((PACKET_BYTES * 8.0 / gap_ns * 1e9).round());
    }
    data
}

fn record(value: &Value) -> String {
    format!("{RECORD_SEPARATOR}{value}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(records: &str) -> Vec<Value> {
        let each = records.split(RECORD_SEPARATOR).skip(1);
        each.map(|record| serde_json::from_str(record).unwrap()).collect()
    }

    #[test]
    fn every_record_of_a_file_is_one_of_a_json_text_sequence() {
        let head = values(&Qlog::head("why"));
        assert_eq!(head[0]["qlog_format"], "JSON-SEQ");
        let mut qlog = Qlog::default();
        let line = r#"{"t_s":1.5,"source":"flow:a","event":"on_loss","phase":"slow","gap_ns":12000,"window_packets":10,"hold_until_s":null,"reasons":["loss-epoch"],"host":"near"}"#;
        let found = values(&qlog.records(line));
        assert_eq!(found.len(), 2, "{found:?}");
        assert_eq!(found[0]["name"], "recovery:congestion_state_updated");
        assert_eq!(found[0]["data"]["new"], "slow");
        assert_eq!(found[0]["data"]["trigger"], "loss-epoch");
        assert_eq!(found[1]["name"], "recovery:metrics_updated");
        assert_eq!(
            (&found[1]["time"], &found[1]["group_id"]),
            (&1500.0.into(), &"flow:a/near".into())
        );
        assert_eq!(found[1]["data"]["congestion_window"], 15_000.0);
        // 12000 bits in 12 us.
        assert_eq!(found[1]["data"]["pacing_rate"], 1e9);
        assert_eq!(found[1]["data"]["sabul"]["reasons"][0], "loss-epoch");
        assert_eq!(values(&qlog.records(line)).len(), 1, "the phase is the same");
        let timer =
            r#"{"t_s":2,"source":"flow:a","event":"timer","timer":"expiry","why":"no-feedback"}"#;
        let found = values(&qlog.records(timer));
        assert_eq!(found[0]["data"]["timer_type"], "pto");
        let drop = r#"{"t_s":2,"source":"link:l","event":"drop","way":"back","why":"full","packets":3,"flow":"a"}"#;
        assert_eq!(values(&qlog.records(drop))[0]["name"], "sabul:drop");
        assert_eq!(qlog.records("nonsense"), "");
    }
}
