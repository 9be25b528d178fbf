//! Event log of a run, with reasons: one JSON object per line, in the order in which events were
//! recorded.
//!
//! | column | of | is |
//! |---|---|---|
//! | `t_s` | all | seconds since the start of the run |
//! | `source` | all | `flow:ID` or `link:ID` |
//! | `event` | all | the controller callback (`on_ack`, `on_loss`, `on_timeout`, `on_undo`, `on_interval`, `on_report`), or `timer`, or `drop` |
//! | `phase`, `gap_ns`, `window_packets`, `hold_until_s`, `reasons` | a controller | phase and limits after the callback, and the reasons: `sabul_cc::events` |
//! | `timer`, `why` | a timer of the protocol | which timer fired, and why: `sabul_channel::Fired` |
//! | `way`, `why`, `packets`, `flow` | a drop | `forward` or `back`; `full`, `early`, `loss`, `outage` or `too-large`; number of packets; the flow, `null` where the link dropped another packet than the arriving packet |

use sabul_cc::events::json_text;
use sabul_net::{DropEvent, Way};

/// Formats a drop as one JSON line; `flow` is the name of the flow whose packets were dropped.
pub fn drop_line(drop: &DropEvent, link: &str, flow: Option<&str>) -> String {
    let way = match drop.way {
        Way::Forward => "forward",
        Way::Back => "back",
    };
    format!(
        "{{\"t_s\":{:.6},\"source\":{},\"event\":\"drop\",\"way\":\"{way}\",\"why\":\"{}\",\"packets\":{},\"flow\":{}}}",
        drop.at.elapsed().as_secs_f64(),
        json_text(&format!("link:{link}")),
        drop.why.word(),
        drop.packets,
        flow.map_or_else(|| "null".to_owned(), json_text)
    )
}
