//! Results of a demonstration: bars for the terminal, a page, and a document.

use sabul_net::PathPreset;
use sabul_report::{Axis, Bar, BarChart, BarSeries, Cell, Column, Item, Page, Section, Table};
use sabul_units::{show_bytes, show_rate};
use serde_json::{Value, json};

use super::losses::Losses;
use crate::built::COMMIT;

/// The competing TCP controller: the default of Linux.
pub(super) const RIVAL: &str = "cubic";
/// Length of the longest bar in columns.
const BAR: usize = 24;
/// Ends of bars, in eighths of a column.
const EIGHTHS: [char; 8] = [' ', '▏', '▎', '▍', '▌', '▋', '▊', '▉'];

/// One transfer alone on the path.
#[derive(Clone, Debug)]
pub(super) struct Alone {
    /// Whether the transfer is `sabul cp`, as opposed to the kernel's TCP.
    pub(super) is_ours: bool,
    pub(super) losses: Losses,
    /// Bytes that arrived. Less than the file only if TCP hit its time limit.
    pub(super) bytes: u64,
    pub(super) seconds: f64,
    pub(super) rtt_ms: f64,
    /// Reasons why the machine, not the path, limited the transfer.
    pub(super) faults: Vec<String>,
}

impl Alone {
    pub(super) fn goodput_bps(&self) -> f64 {
        self.bytes as f64 * 8.0 / self.seconds.max(1e-9)
    }
}

/// Both flows on the path at the same time.
#[derive(Clone, Debug)]
pub(super) struct Together {
    /// Averaged interval, in seconds since the start of both flows.
    pub(super) from_s: f64,
    pub(super) to_s: f64,
    pub(super) tcp_bps: f64,
    pub(super) sabul_bps: f64,
    pub(super) faults: Vec<String>,
}

/// Results of a demonstration.
#[derive(Debug)]
pub struct Shown {
    path: PathPreset,
    cc: String,
    bytes: u64,
    pub(super) alone: Vec<Alone>,
    pub(super) together: Option<Together>,
    /// Omitted measurements, with the reason.
    left_out: Option<&'static str>,
    pub(super) is_verified: bool,
    /// Document of the first copy.
    pub(super) document: Value,
}

impl Shown {
    pub(super) fn of_lab(path: &PathPreset, cc: &str, bytes: u64) -> Self {
        Self {
            path: path.clone(),
            cc: cc.to_owned(),
            bytes,
            alone: Vec::new(),
            together: None,
            left_out: None,
            is_verified: true,
            document: Value::Null,
        }
    }

    pub(super) fn of_relay(path: &PathPreset, cc: &str, bytes: u64) -> Self {
        let left_out = "the kernel's TCP, alone and together with sabul: a relay carries only the program's own \
            packets. For these bars run the demo as root or where users may make namespaces.";
        Self { left_out: Some(left_out), ..Self::of_lab(path, cc, bytes) }
    }

    /// Returns whether the received file equals the sent file in every copy.
    pub fn is_verified(&self) -> bool {
        self.is_verified
    }

    fn name(&self, is_ours: bool) -> String {
        if is_ours { format!("sabul ({})", self.cc) } else { format!("kernel TCP ({RIVAL})") }
    }

    fn link_bps(&self) -> f64 {
        self.path.forward.rate().map_or(0.0, |rate| rate.0 as f64)
    }

    fn faults(&self) -> Vec<&String> {
        let together = self.together.iter().flat_map(|together| &together.faults);
        self.alone.iter().flat_map(|alone| &alone.faults).chain(together).collect()
    }

    fn heading(&self) -> String {
        format!(
            "{} over the path {}: {}",
            show_bytes(self.bytes),
            self.path.name,
            self.path.summary
        )
    }

    /// Returns the duration, or the share of the file that arrived before the time limit.
    fn how_long(&self, alone: &Alone) -> String {
        if alone.bytes >= self.bytes {
            return format!("{:.1} s", alone.seconds);
        }
        let share = alone.bytes as f64 / self.bytes as f64 * 100.0;
        format!("{share:.0} % of it in {:.1} s, then stopped", alone.seconds)
    }

    /// Returns the remarks below the bars.
    fn remarks(&self) -> Vec<String> {
        let verdict = if self.is_verified {
            "sabul: the whole command sabul cp, encrypted, on the disk; BLAKE3 is equal at both ends."
        } else {
            "sabul: THE FILES DIFFER."
        };
        let mut remarks = vec![verdict.to_owned()];
        if self.alone.iter().any(|alone| !alone.is_ours) {
            remarks.push(
                "kernel TCP: one connection of this machine's kernel, as many bytes from memory, not encrypted."
                    .to_owned(),
            );
        }
        if let Some(together) = &self.together {
            remarks.push(format!(
                "together: both at once with {}, the mean of seconds {:.0} to {:.0}.",
                Losses::Own.words(&self.path),
                together.from_s,
                together.to_s
            ));
        }
        remarks.extend(self.left_out.map(|what| format!("left out: {what}")));
        let faults = self.faults();
        if !faults.is_empty() {
            let mut faults: Vec<_> = faults.into_iter().map(String::as_str).collect();
            faults.dedup();
            remarks.push(format!(
                "INVALID: this machine was too busy, also at a second try, so these numbers are about the machine and \
                 not about the path: {}",
                faults.join("; ")
            ));
        }
        remarks
    }

    /// Returns the bars as text.
    pub fn text(&self) -> String {
        let top = self.rates().fold(self.link_bps(), f64::max);
        let width = [true, false].map(|is_ours| self.name(is_ours).len()).into_iter().max();
        let width = width.unwrap_or(0);
        let line = |group: &str, is_ours: bool, bps: f64, rest: &str| {
            let (name, bar) = (self.name(is_ours), bar(bps / top.max(1.0)));
            let line = format!("{group:<11} {name:<width$}  {bar} {:>12}  {rest}", show_rate(bps));
            line.trim_end().to_owned() + "\n"
        };
        let mut text = self.heading() + "\n\n";
        let mut before = None;
        for alone in &self.alone {
            let is_new = before.replace(alone.losses) != Some(alone.losses);
            let group = if is_new { alone.losses.words(&self.path) } else { String::new() };
            text += &line(&group, alone.is_ours, alone.goodput_bps(), &self.how_long(alone));
        }
        if let Some(together) = &self.together {
            text += &line("together", false, together.tcp_bps, "");
            text += &line("", true, together.sabul_bps, "");
        }
        text += &format!("\nA full bar is {}.\n", show_rate(top));
        self.remarks().into_iter().for_each(|remark| text += &(remark + "\n"));
        text
    }

    fn rates(&self) -> impl Iterator<Item = f64> {
        let together = self.together.iter().flat_map(|both| [both.tcp_bps, both.sabul_bps]);
        self.alone.iter().map(Alone::goodput_bps).chain(together)
    }

    /// Returns the bars as one HTML file.
    pub fn page(&self) -> String {
        let subtitle = format!("Measured by sabul demo on this machine, commit {COMMIT}");
        let page = self
            .remarks()
            .into_iter()
            .fold(Page::new("One file, by TCP and by sabul", subtitle), Page::with_summary);
        let section = Section::new("Goodput", self.heading())
            .with_item(Item::Bar(self.chart()))
            .with_item(Item::Table(self.table()));
        page.with_section(section).to_html()
    }

    fn chart(&self) -> BarChart {
        let mut groups: Vec<String> = Vec::new();
        let mut bars = [Vec::new(), Vec::new()];
        for losses in Losses::BOTH {
            groups.push(format!("alone, {}", losses.words(&self.path)));
            for (is_ours, bars) in [false, true].into_iter().zip(&mut bars) {
                let found =
                    self.alone.iter().find(|it| it.losses == losses && it.is_ours == is_ours);
                bars.push(Bar::new(found.map_or(f64::NAN, Alone::goodput_bps)));
            }
        }
        if let Some(together) = &self.together {
            groups.push(format!("together, {}", Losses::Own.words(&self.path)));
            bars[0].push(Bar::new(together.tcp_bps));
            bars[1].push(Bar::new(together.sabul_bps));
        }
        let axis = Axis::new("goodput", "b/s").with_range(0.0, self.link_bps());
        let chart = BarChart::new("Goodput of one file", axis, groups);
        let [tcp, sabul] = bars;
        let chart = if self.left_out.is_none() {
            chart.with_series(BarSeries::new(self.name(false), tcp))
        } else {
            chart
        };
        chart.with_series(BarSeries::new(self.name(true), sabul))
    }

    fn table(&self) -> Table {
        let columns = vec![
            Column::text("path"),
            Column::text("by"),
            Column::number("goodput", "Mb/s"),
            Column::text("time"),
            Column::number("mean RTT", "ms"),
        ];
        let table = Table::new("All runs", columns);
        let table = self.alone.iter().fold(table, |table, alone| {
            table.with_row(vec![
                Cell::from(format!("alone, {}", alone.losses.words(&self.path))),
                Cell::from(self.name(alone.is_ours)),
                Cell::Fixed(alone.goodput_bps() / 1e6, 1),
                Cell::from(self.how_long(alone)),
                Cell::Fixed(alone.rtt_ms, 1),
            ])
        });
        let Some(both) = &self.together else { return table };
        let rows = [(false, both.tcp_bps), (true, both.sabul_bps)];
        rows.into_iter().fold(table, |table, (is_ours, bps)| {
            table.with_row(vec![
                Cell::from(format!("together, {}", Losses::Own.words(&self.path))),
                Cell::from(self.name(is_ours)),
                Cell::Fixed(bps / 1e6, 1),
                Cell::from(format!("seconds {:.0} to {:.0}", both.from_s, both.to_s)),
                Cell::Empty,
            ])
        })
    }

    /// Returns the document of the first copy with the numbers of all bars.
    pub fn json(&self) -> Value {
        let alone = self.alone.iter().map(|alone| {
            json!({
                "transport": if alone.is_ours { "sabul" } else { "tcp" },
                "cc": if alone.is_ours { self.cc.as_str() } else { RIVAL },
                "loss_rate": alone.losses.rate(&self.path),
                "bytes": alone.bytes,
                "seconds": alone.seconds,
                "goodput_bps": alone.goodput_bps(),
                "rtt_ms": alone.rtt_ms,
                "completed": alone.bytes >= self.bytes,
            })
        });
        let together = self.together.as_ref().map(|both| {
            json!({
                "from_s": both.from_s,
                "to_s": both.to_s,
                "tcp_goodput_bps": both.tcp_bps,
                "sabul_goodput_bps": both.sabul_bps,
            })
        });
        let mut document = self.document.clone();
        document["alone"] = Value::Array(alone.collect());
        document["together"] = together.unwrap_or(Value::Null);
        document["verified"] = self.is_verified.into();
        document["disturbed"] = (!self.faults().is_empty()).into();
        document["disturbances"] = json!(self.faults());
        document
    }
}

/// Returns a bar for a share of the longest bar, from 0 to 1, in eighths of a column.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "bounded by clamp")]
fn bar(share: f64) -> String {
    let eighths = (share.clamp(0.0, 1.0) * BAR as f64 * 8.0).round() as usize;
    let mut bar = "█".repeat(eighths / 8);
    if !eighths.is_multiple_of(8) {
        bar.push(EIGHTHS[eighths % 8]);
    }
    bar + &" ".repeat(BAR - eighths.div_ceil(8))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::find_preset;

    fn shown() -> Shown {
        let alone = |is_ours, losses, bytes, seconds| Alone {
            is_ours,
            losses,
            bytes,
            seconds,
            rtt_ms: 100.0,
            faults: Vec::new(),
        };
        let megabytes = 10_000_000;
        Shown {
            path: find_preset("100mbit-100ms").unwrap(),
            cc: "sabul2026".to_owned(),
            bytes: megabytes,
            alone: vec![
                alone(false, Losses::Own, megabytes, 1.0),
                alone(true, Losses::Own, megabytes, 1.0),
                alone(false, Losses::More, megabytes / 4, 4.0),
                alone(true, Losses::More, megabytes, 1.25),
            ],
            together: Some(Together {
                from_s: 10.0,
                to_s: 20.0,
                tcp_bps: 60e6,
                sabul_bps: 30e6,
                faults: Vec::new(),
            }),
            left_out: None,
            is_verified: true,
            document: json!({}),
        }
    }

    #[test]
    fn a_bar_is_proportional_to_its_share() {
        assert_eq!(bar(1.0), "█".repeat(BAR));
        assert_eq!(bar(0.0).trim(), "");
        assert_eq!(bar(0.5).trim(), "█".repeat(BAR / 2));
        assert_eq!(bar(f64::NAN).chars().count(), BAR);
    }

    #[test]
    fn the_screen_has_four_bars_and_both_together_with_their_seconds() {
        let text = shown().text();
        let line = |start: &str| {
            text.lines().find(|line| line.starts_with(start)).unwrap_or_else(|| panic!("{text}"))
        };
        assert!(line("no loss").contains("80.0 Mbit/s  1.0 s"), "{text}");
        let lossy = line("0.1 % loss");
        assert!(lossy.contains("25 % of it in 4.0 s, then stopped"), "{text}");
        assert!(line("together").contains("60.0 Mbit/s"), "{text}");
        assert!(text.contains("the mean of seconds 10 to 20"), "{text}");
        assert!(!text.contains("INVALID"), "{text}");
        for line in text.lines().filter(|line| line.contains('█')) {
            assert!(line.chars().count() < 110, "{} in {line}", line.chars().count());
        }
    }

    #[test]
    fn a_disturbed_run_is_marked_invalid_on_screen_and_page() {
        let mut shown = shown();
        shown.alone[1].faults.push("the router was starved".to_owned());
        assert!(shown.text().contains("INVALID") && shown.page().contains("INVALID"));
        assert_eq!(shown.json()["disturbed"], true);
    }

    #[test]
    fn the_page_has_the_bars_and_their_numbers() {
        let page = shown().page();
        assert!(page.contains("<svg") && page.contains("kernel TCP (cubic)"), "{page}");
        assert!(page.contains("alone, 0.1 % loss") && page.contains("together, no loss"));
    }

    #[test]
    fn without_hosts_the_screen_names_the_omitted_parts() {
        let mut shown = shown();
        shown.alone.retain(|alone| alone.is_ours);
        shown.together = None;
        shown.left_out = Some("the kernel's TCP");
        let text = shown.text();
        assert!(text.contains("left out: the kernel's TCP"), "{text}");
        assert!(!text.contains("kernel TCP (cubic)"), "{text}");
    }
}
