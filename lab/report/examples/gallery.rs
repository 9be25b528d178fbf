//! Picture gallery for visual inspection: writes one picture of each kind, with made-up data. Run:
//! `cargo run -p sabul-report --example gallery -- OUTDIR`.

use std::error::Error;
use std::fs;
use std::path::Path;

use sabul_report::{
    Axis, Band, Bar, BarChart, BarSeries, Cell, Chart, Column, Heatmap, Item, Line, Mark, Page,
    Section, Style, Table, sparkline,
};

/// Deterministic random generator from 0 up to 1, so every run draws the same pictures.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> f64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 40) as f64 / (1u64 << 24) as f64
    }
}

/// Returns a sawtooth that rises and falls by an eighth, like a rate controller: b/s over seconds.
fn saw(seed: u64, count: u32, seconds: f64, top: f64) -> Vec<(f64, f64)> {
    let mut noise = Noise(seed);
    let mut level = top * 0.2;
    (0..count)
        .map(|i| {
            level += top * 25.0 * noise.next() / f64::from(count);
            if level > top * (0.85 + 0.2 * noise.next()) {
                level *= 7.0 / 8.0;
            }
            (f64::from(i) * seconds / f64::from(count), level * (0.97 + 0.06 * noise.next()))
        })
        .collect()
}

fn rates() -> Chart {
    let mut late = saw(5, 6000, 60.0, 3.0e8);
    for point in &mut late {
        if point.0 < 12.0 || (30.0..33.0).contains(&point.0) {
            point.1 = f64::NAN;
        }
    }
    Chart::new(
        "Goodput of three flows (made-up data)",
        Axis::new("time", "s"),
        Axis::new("goodput", "b/s"),
    )
    .with_line(Line::new("sabul", saw(1, 60_000, 60.0, 4.6e8)))
    .with_line(Line::new("reno, joins at 12 s, silent from 30 to 33 s", late))
    .with_line(
        Line::new("model", vec![(0.0, 3.0e8), (12.0, 3.0e8), (60.0, 2.4e8)])
            .with_style(Style::Dashed),
    )
    .with_mark(Mark::level(4.4e8, "published 440"))
    .with_mark(Mark::at(12.0, "second flow starts"))
    .with_band(Band::x(0.0, 3.0, "warm-up"))
}

fn queue() -> Chart {
    let mut noise = Noise(9);
    let points = (0..3000)
        .map(|i| (f64::from(i) * 0.02, (f64::from(i % 400) * noise.next()).floor()))
        .collect();
    Chart::new(
        "Bottleneck queue (made-up data)",
        Axis::new("time", "s"),
        Axis::new("queue", "packets"),
    )
    .with_line(Line::new("queue", points).with_style(Style::Step))
}

fn sweep() -> Chart {
    let rtts = [1.0e-3, 2.0e-3, 5.0e-3, 1.0e-2, 2.0e-2, 5.0e-2, 0.1, 0.2, 0.5];
    let curve = |top: f64, half: f64| rtts.iter().map(|r| (*r, top / (1.0 + r / half))).collect();
    Chart::new(
        "Goodput over round-trip time at 0.01 % loss (made-up data)",
        Axis::new("round-trip time", "s").with_log(),
        Axis::new("goodput", "b/s").with_log(),
    )
    .with_line(Line::new("sabul", curve(9.4e8, 3.0)))
    .with_line(Line::new("cubic", curve(9.4e8, 0.02)))
    .with_line(Line::new("reno", curve(9.3e8, 0.003)))
    .with_line(Line::new("Mathis et al.", curve(1.0e9, 0.0022)).with_style(Style::Dashed))
}

fn ten() -> Chart {
    let mut chart = Chart::new(
        "Ten series of 20 000 points (made-up data)",
        Axis::new("time", "s"),
        Axis::new("rate", "Mb/s"),
    );
    for k in 0..10u32 {
        let mut noise = Noise(u64::from(k) + 40);
        let points = (0..20_000)
            .map(|i| {
                let t = f64::from(i) * 0.001;
                let base = 60.0 + 80.0 * f64::from(k) + 25.0 * (t * 0.7 + f64::from(k)).sin();
                (t, base + 12.0 * noise.next())
            })
            .collect();
        chart = chart.with_line(Line::new(format!("flow {}", k + 1), points));
    }
    chart
}

fn phase() -> Chart {
    let spiral = |turn: f64| {
        (0..1500)
            .map(|i| {
                let t = f64::from(i) * 0.02;
                let r = 45.0 * (-t * 0.12).exp();
                (50.0 + r * (t + turn).cos(), 50.0 + r * (t + turn).sin())
            })
            .collect()
    };
    Chart::new(
        "Shares of two flows approach fairness (made-up data)",
        Axis::new("rate of flow 1", "Mb/s").with_range(0.0, 105.0),
        Axis::new("rate of flow 2", "Mb/s").with_range(0.0, 105.0),
    )
    .with_line(Line::new("from the right", spiral(0.0)))
    .with_line(Line::new("from the left", spiral(3.1)))
    .with_line(Line::new("fair", vec![(0.0, 0.0), (100.0, 100.0)]).with_style(Style::Dashed))
}

fn bars() -> BarChart {
    let groups = ["Amsterdam – Chicago, 110 ms", "Ottawa – Chicago, 16 ms", "local, 0.04 ms"];
    BarChart::new(
        "Goodput by path (made-up data)",
        Axis::new("goodput", "b/s"),
        groups.map(str::to_owned).to_vec(),
    )
    .with_series(BarSeries::new(
        "simulator",
        vec![
            Bar::new(4.31e8).with_range(4.1e8, 4.5e8).with_published(4.4e8),
            Bar::new(6.3e8).with_range(5.2e8, 6.9e8).with_published(6.8e8),
            Bar::new(9.4e8).with_published(9.5e8),
        ],
    ))
    .with_series(BarSeries::new(
        "lab",
        vec![
            Bar::new(4.05e8).with_range(3.3e8, 4.7e8).with_published(4.4e8),
            Bar::new(f64::NAN),
            Bar::new(9.1e8).with_published(9.5e8),
        ],
    ))
    .with_series(BarSeries::new(
        "kernel TCP",
        vec![Bar::new(5.0e6), Bar::new(9.1e7), Bar::new(9.4e8)],
    ))
}

fn changes() -> BarChart {
    let mut noise = Noise(3);
    let groups: Vec<String> = (0..14).map(|i| format!("scenario {}", i + 1)).collect();
    let bars = groups.iter().map(|_| Bar::new(40.0 * noise.next() - 18.0)).collect();
    BarChart::new("Change against the last run (made-up data)", Axis::new("change", "%"), groups)
        .with_series(BarSeries::new("goodput", bars))
}

fn heat() -> Heatmap {
    let rtts = ["1 ms", "10 ms", "50 ms", "100 ms", "200 ms", "500 ms"];
    let mut map =
        Heatmap::new("Goodput by loss and delay (made-up data)", Axis::new("goodput", "b/s"))
            .with_x("round-trip time", rtts.map(str::to_owned).to_vec());
    map.y_label = "loss rate".to_owned();
    for (r, loss) in ["0", "1e-6", "1e-5", "1e-4", "1e-3", "1e-2"].iter().enumerate() {
        let row = (0..6u32)
            .map(|c| {
                if r == 5 && c == 5 {
                    f64::NAN
                } else {
                    9.5e8 / (1.0 + (r as f64 * f64::from(c)).powi(2) / 20.0)
                }
            })
            .collect();
        map = map.with_row(*loss, row);
    }
    map
}

fn fairness() -> Heatmap {
    let names = ["sabul", "reno", "cubic", "bbr-like", "xcp"];
    let mut map = Heatmap::new(
        "Share of the row's flow beside the column's, 1 = even (made-up data)",
        Axis::new("share", ""),
    )
    .with_x("against", names.map(str::to_owned).to_vec());
    map.center = Some(1.0);
    map.y_label = "flow".to_owned();
    let mut noise = Noise(12);
    for name in names {
        map = map.with_row(name, names.iter().map(|_| 0.3 + 1.4 * noise.next()).collect());
    }
    map
}

fn table() -> Table {
    let columns = vec![
        Column::text("path"),
        Column::number("published", "Mb/s"),
        Column::number("ours", "Mb/s"),
        Column::number("loss rate", ""),
        Column::text("verdict"),
    ];
    let row = |path: &str, published: f64, ours: f64, loss: f64, good: bool| {
        let verdict =
            if good { Cell::Pass("within 5 %".into()) } else { Cell::Fail("off by 12 %".into()) };
        vec![path.into(), Cell::Fixed(published, 0), Cell::Fixed(ours, 1), loss.into(), verdict]
    };
    Table::new("Published and ours (made-up data)", columns)
        .with_row(row("Amsterdam – Chicago", 440.0, 431.2, 1.2e-5, true))
        .with_row(row("Ottawa – Chicago", 680.0, 598.7, 0.000_34, false))
        .with_row(row("local", 950.0, f64::NAN, f64::NAN, true))
}

fn page() -> Page {
    let hostile = "</script><img src=x onerror=alert(1)>";
    let empty = Chart::new(
        "A chart without data (made-up)",
        Axis::new("time", "s"),
        Axis::new("rate", "b/s"),
    )
    .with_line(Line::new("nothing", vec![(f64::NAN, 1.0)]));
    let mut tricky = queue();
    tricky.title = format!("A hostile title {hostile} (made-up data)");
    tricky.lines[0].name = hostile.to_owned();
    Page::new("Gallery of report items", "Every number on this page is made-up data.")
        .with_summary("One flow reaches 431 Mb/s where 440 were published (made-up).")
        .with_summary("Two flows share a link 52 to 48 (made-up).")
        .with_section(
            Section::new("Over time", "The two charts share their time axis: zoom in one and the other follows.\n\nThe queue is sampled every 20 ms.")
                .with_item(Item::Chart(rates()))
                .with_item(Item::Chart(queue()))
                .with_item(Item::Table(table()))
                .with_item(Item::Pre {
                    title: "Scenario (made-up)".into(),
                    text: "[link.bottleneck]\nrate_mbps = 1000\ndelay_ms = 55\nqueue = \"<drop-tail>\"\n".into(),
                }),
        )
        .with_section(Section::new("Sweeps and phase planes", "").with_item(Item::Chart(sweep())).with_item(Item::Chart(phase())))
        .with_section(
            Section::new("Bars and maps", "")
                .with_item(Item::Bar(bars()))
                .with_item(Item::Bar(changes()))
                .with_item(Item::Heat(heat()))
                .with_item(Item::Heat(fairness())),
        )
        .with_section(
            Section::new("Edge cases", "")
                .with_item(Item::Chart(ten()))
                .with_item(Item::Chart(empty))
                .with_item(Item::Chart(tricky)),
        )
}

fn main() -> Result<(), Box<dyn Error>> {
    let out = std::env::args().nth(1).ok_or("name a folder to write to")?;
    let out = Path::new(&out);
    fs::create_dir_all(out)?;
    for (name, chart) in [
        ("rates", rates()),
        ("queue", queue()),
        ("sweep", sweep()),
        ("ten", ten()),
        ("phase", phase()),
    ] {
        fs::write(
            out.join(format!("{name}.svg")),
            chart.to_svg(900, if name == "phase" { 560 } else { 360 }),
        )?;
        fs::write(out.join(format!("{name}-narrow.svg")), chart.to_svg(360, 320))?;
    }
    for (name, chart) in [("bars", bars()), ("changes", changes())] {
        fs::write(out.join(format!("{name}.svg")), chart.to_svg(900, 360))?;
        fs::write(out.join(format!("{name}-narrow.svg")), chart.to_svg(360, 320))?;
    }
    for (name, map) in [("heat", heat()), ("fairness", fairness())] {
        fs::write(out.join(format!("{name}.svg")), map.to_svg(900, 330))?;
        fs::write(out.join(format!("{name}-narrow.svg")), map.to_svg(360, 320))?;
    }
    fs::write(out.join("page.html"), page().to_html())?;
    let spark: Vec<f64> = saw(1, 60, 60.0, 4.6e8).iter().map(|p| p.1).collect();
    let text = format!(
        "{}\n{}\nsabul {}\n",
        table().to_text(80),
        table().to_markdown(),
        sparkline(&spark)
    );
    fs::write(out.join("table.txt"), &text)?;
    print!("{text}");
    Ok(())
}
