//! Path presets with their sources: a table, a page, and a document.

use sabul_net::{LinkConfig, PathPreset, QueueLimit};
use sabul_report::{Column, Table, significant};
use sabul_units::{Probability, Span};
use serde_json::{Value, json};

use crate::path::{show_chance, show_ms, show_outages, show_queue, show_rate, show_share};

/// Width of wrapped text in characters.
const TEXT_WIDTH: usize = 78;
/// Index of the summary column, and its least width.
const SUMMARY: usize = 5;
const SUMMARY_WIDTH: usize = 24;
/// Table width without a terminal; wide enough for every summary.
pub const TABLE_WIDTH: usize = 240;

fn rtt(preset: &PathPreset) -> Span {
    preset.forward.delay() + preset.back.delay()
}

fn rate(link: &LinkConfig) -> String {
    link.rate().map_or_else(|| "none".to_owned(), show_rate)
}

/// Returns the mean loss, random and in bursts; outages are not counted.
fn mean_loss(link: &LinkConfig) -> f64 {
    let passed = link.burst_loss().map_or(1.0, |bursts| 1.0 - bursts.mean_loss());
    1.0 - (1.0 - link.loss().as_f64()) * passed
}

fn queue(link: &LinkConfig) -> String {
    match link.queue() {
        QueueLimit::Packets(packets) => format!("{packets} packets"),
        QueueLimit::Bytes(bytes) => format!("{bytes} bytes"),
        QueueLimit::Unlimited => "unlimited".to_owned(),
    }
}

/// Returns one row per preset, in `width` columns of text. If the directions differ, a cell has
/// both: there / back. Names are never cut. Columns that do not fit are omitted, the summary first.
pub fn table(presets: &[PathPreset], width: usize) -> Table {
    let both = |preset: &PathPreset, value: fn(&LinkConfig) -> String| {
        let (there, back) = (value(&preset.forward), value(&preset.back));
        if there == back { there } else { format!("{there} / {back}") }
    };
    let row = |preset: &PathPreset| {
        [
            preset.name.to_owned(),
            both(preset, rate),
            show_ms(rtt(preset)),
            both(preset, |link| show_share(mean_loss(link))),
            both(preset, queue),
            preset.summary.to_owned(),
        ]
    };
    let rows: Vec<_> = presets.iter().map(row).collect();
    let widest = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
        // A cut summary is still readable.
        if column == SUMMARY { cells.min(SUMMARY_WIDTH) } else { cells }
    };
    let mut taken = 0;
    let fitting = (0..=SUMMARY).take_while(|column| {
        taken += widest(*column) + 2;
        *column == 0 || taken <= width + 2
    });
    let fitting = fitting.count();
    let mut columns = vec![
        Column::text("name"),
        Column::number("rate", ""),
        Column::number("RTT", ""),
        Column::number("loss", ""),
        Column::number("queue", ""),
        Column::text("summary"),
    ];
    columns.truncate(fitting);
    let cells =
        |row: [String; SUMMARY + 1]| row.into_iter().take(fitting).map(Into::into).collect();
    let rows = rows.into_iter().map(cells).collect();
    Table { title: String::new(), columns, rows }
}

/// Returns all properties of one preset as text.
pub fn details(preset: &PathPreset) -> String {
    let mut text = format!("{}\n", preset.name);
    text += &wrap(preset.summary, "  ");
    let ways = if preset.forward == preset.back {
        vec![("both ways", &preset.forward)]
    } else {
        vec![("near to far", &preset.forward), ("far to near", &preset.back)]
    };
    for (way, link) in ways {
        text += &format!("\n  {way}\n");
        for (name, value) in settings(link, rtt(preset)) {
            text += &format!("    {name:<12}{value}\n");
        }
    }
    text += &format!("\n  {:<14}{}\n\n", "round trip", show_ms(rtt(preset)));
    text + &wrap(&format!("Source: {}", preset.source), "  ")
}

fn settings(link: &LinkConfig, rtt: Span) -> Vec<(&'static str, String)> {
    let mut all = vec![
        ("rate", rate(link)),
        ("delay", show_ms(link.delay())),
        ("queue", show_queue(link, rtt)),
        ("discipline", link.discipline().name().to_owned()),
        ("loss", show_chance(link.loss())),
        ("jitter", show_ms(link.jitter())),
        ("repeated", show_chance(link.duplicate())),
        ("damaged", show_chance(link.corrupt())),
    ];
    let mut held_back = show_chance(link.reorder());
    if link.reorder() > Probability::ZERO {
        held_back += &format!(" by {}", show_ms(link.reorder_by()));
    }
    all.push(("held back", held_back));
    let mtu = link.mtu().map_or_else(|| "none".to_owned(), |mtu| format!("{mtu} bytes"));
    all.push(("MTU", mtu));
    if let Some(bursts) = link.burst_loss() {
        let length = significant(1.0 / bursts.to_good.as_f64(), 3);
        let mean = show_share(bursts.mean_loss());
        all.push(("bursts", format!("{mean} lost in bad spells of {length} packets on average")));
    }
    all.extend(show_outages(link).map(|silence| ("silent", silence)));
    all
}

/// Returns one preset as a document in plain units.
pub fn document(preset: &PathPreset) -> Value {
    json!({
        "name": preset.name,
        "summary": preset.summary,
        "source": preset.source,
        "rtt_ms": rtt(preset).as_millis_f64(),
        "forward": link_document(&preset.forward),
        "back": link_document(&preset.back),
    })
}

fn link_document(link: &LinkConfig) -> Value {
    let (packets, bytes) = match link.queue() {
        QueueLimit::Packets(packets) => (Some(packets), None),
        QueueLimit::Bytes(bytes) => (None, Some(bytes)),
        QueueLimit::Unlimited => (None, None),
    };
    let outages: Vec<Value> = link
        .outages()
        .iter()
        .map(|outage| {
            json!({
                "at_s": outage.at.elapsed().as_secs_f64(),
                "for_s": outage.lasts.as_secs_f64(),
            })
        })
        .collect();
    let bursts = link.burst_loss().map(|bursts| {
        json!({
            "to_bad": bursts.to_bad.as_f64(),
            "to_good": bursts.to_good.as_f64(),
            "loss_good": bursts.loss_good.as_f64(),
            "loss_bad": bursts.loss_bad.as_f64(),
        })
    });
    json!({
        "rate_bps": link.rate().map(|rate| rate.0),
        "delay_ms": link.delay().as_millis_f64(),
        "jitter_ms": link.jitter().as_millis_f64(),
        "queue_packets": packets,
        "queue_bytes": bytes,
        "discipline": link.discipline().name(),
        "loss": link.loss().as_f64(),
        "burst_loss": bursts,
        "duplicate": link.duplicate().as_f64(),
        "corrupt": link.corrupt().as_f64(),
        "reorder": link.reorder().as_f64(),
        "reorder_ms": link.reorder_by().as_millis_f64(),
        "mtu": link.mtu(),
        "outage": outages,
    })
}

/// Wraps text into lines of at most [`TEXT_WIDTH`] characters, each prefixed with `indent`.
fn wrap(text: &str, indent: &str) -> String {
    let mut out = String::new();
    let mut line = String::new();
    for word in text.split_whitespace() {
        let length = indent.len() + line.chars().count() + 1 + word.chars().count();
        if !line.is_empty() && length > TEXT_WIDTH {
            out += &format!("{indent}{line}\n");
            line.clear();
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line += word;
    }
    out + &format!("{indent}{line}\n")
}

#[cfg(test)]
mod tests {
    use sabul_net::{BurstLoss, presets};
    use sabul_units::Rate;

    use super::*;
    use crate::path::find_preset;

    #[test]
    fn the_table_has_a_row_for_each_preset_with_its_numbers_and_its_whole_summary() {
        let text = table(&presets(), TABLE_WIDTH).to_text(TABLE_WIDTH);
        assert_eq!(text.lines().count(), 2 + presets().len(), "{text}");
        for preset in presets() {
            let row = text.lines().find(|line| line.starts_with(preset.name)).unwrap();
            assert!(row.ends_with(preset.summary), "{row}");
        }
        let row = text.lines().find(|line| line.starts_with("satellite")).unwrap();
        for part in ["50 Mbit/s", "558 ms", "0.12 %", "2325 packets"] {
            assert!(row.contains(part), "{part}: {row}");
        }
    }

    #[test]
    fn preset_names_are_not_truncated_at_eighty_columns_and_below() {
        for width in [40, 80, 100, 120] {
            let text = table(&presets(), width).to_text(width);
            assert!(text.lines().all(|line| line.chars().count() <= width), "{text}");
            for preset in presets() {
                let is_row = |line: &str| line.split_whitespace().next() == Some(preset.name);
                assert!(text.lines().any(is_row), "{} is cut at {width}: {text}", preset.name);
            }
        }
    }

    #[test]
    fn preset_details_show_numbers_and_source_within_the_line_width() {
        let text = details(&find_preset("lossy").unwrap());
        for part in [
            "rate        200 Mbit/s",
            "delay       20 ms",
            "loss        5 %",
            "held back   1 % by 3 ms",
            "silent      from 2 s for 3000 ms",
            "MTU         1500 bytes",
            "round trip    40 ms",
            "Source: Our choice",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        for preset in presets() {
            let text = details(&preset);
            assert!(text.lines().all(|line| line.chars().count() <= TEXT_WIDTH), "{text}");
            let flat = text.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(flat.contains(preset.source), "{text}");
        }
    }

    #[test]
    fn a_path_with_different_directions_shows_both() {
        let link = |mbps, bursts| {
            let builder = LinkConfig::builder()
                .with_rate(Some(Rate::from_mbps(mbps)))
                .with_queue(QueueLimit::Packets(mbps))
                .with_delay(Span::from_millis(7))
                .with_loss(Probability::per_mille(500));
            builder.with_burst_loss(bursts).build().unwrap()
        };
        // Half of the time is spent in bad periods of two packets that lose half of the packets.
        // Independent loss then drops half of the rest.
        let half = Probability::per_mille(500);
        let bursts =
            BurstLoss { to_bad: half, to_good: half, loss_good: Probability::ZERO, loss_bad: half };
        let path = PathPreset {
            name: "uneven",
            summary: "up and down",
            source: "a test",
            forward: link(20, Some(bursts)),
            back: link(200, None),
        };
        let text = table(std::slice::from_ref(&path), TABLE_WIDTH).to_text(TABLE_WIDTH);
        for part in ["20 Mbit/s / 200 Mbit/s", "14 ms", "62.5 % / 50 %", "20 packets / 200 packets"]
        {
            assert!(text.contains(part), "{part}: {text}");
        }
        let text = details(&path);
        for part in ["near to far", "25 % lost in bad spells of 2 packets", "far to near"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert_eq!(document(&path)["forward"]["burst_loss"]["to_good"], 0.5);
    }

    #[test]
    fn a_preset_document_has_both_directions_in_base_units() {
        let lossy = document(&find_preset("lossy").unwrap());
        assert_eq!(lossy["forward"], lossy["back"]);
        let link = &lossy["forward"];
        assert_eq!((&link["rate_bps"], &link["queue_packets"]), (&200_000_000.into(), &667.into()));
        assert_eq!((&link["loss"], &link["queue_bytes"]), (&0.05.into(), &Value::Null));
        assert_eq!(link["outage"], json!([{ "at_s": 2.0, "for_s": 3.0 }]));
        assert_eq!(lossy["rtt_ms"], 40.0);
    }
}
