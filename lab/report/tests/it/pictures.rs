//! Tests of pictures with normal, odd and hostile data: well-formed, finite, small, and correct.

use roxmltree::{Document, Node};
use sabul_report::{Axis, Band, Bar, BarChart, BarSeries, Chart, Heatmap, Line, Reference, Style};

const HOSTILE: &str = "</text></svg><script>alert('1')</script>&\"\u{0}\u{1b}\u{ffff}";
const STYLES: [Style; 3] = [Style::Line, Style::Step, Style::Dashed];

/// Parses a picture and checks the properties that all pictures have.
fn checked(svg: &str) -> Document<'_> {
    let document = Document::parse(svg).unwrap_or_else(|e| panic!("{e}\n{svg}"));
    for node in document.descendants().filter(Node::is_element) {
        let name = node.tag_name().name();
        let known = ["svg", "title", "rect", "line", "path", "text"];
        assert!(known.contains(&name), "{name} in {svg}");
        for attribute in node.attributes() {
            let value = attribute.value();
            assert!(!value.contains("NaN") && !value.contains("inf"), "{value} in {svg}");
            let numeric = ["x", "y", "x1", "x2", "y1", "y2", "width", "height"];
            if numeric.contains(&attribute.name()) {
                let number: f64 = value.parse().expect("a coordinate is a number");
                assert!(number.is_finite() && number.abs() <= 1e6, "{attribute:?}");
            }
        }
    }
    document
}

fn texts<'a>(document: &'a Document<'_>) -> Vec<&'a str> {
    document.descendants().filter(|n| n.has_tag_name("text")).filter_map(|n| n.text()).collect()
}

fn named<'a, 'i>(document: &'a Document<'i>, text: &str) -> Node<'a, 'i> {
    let mut nodes = document.descendants().filter(|n| n.tag_name().name() == "text");
    nodes.find(|n| n.text() == Some(text)).unwrap_or_else(|| panic!("no text {text}"))
}

fn number(node: &Node<'_, '_>, name: &str) -> f64 {
    let value = node.attribute(name).expect("the element has this coordinate");
    value.parse().expect("a coordinate is a number")
}

/// Returns the absolute points of the longest path without fill, as the lines of a chart are drawn.
fn longest_line(document: &Document<'_>) -> Vec<(f64, f64)> {
    let lines = document.descendants().filter(|n| n.attribute("stroke-width") == Some("1.8"));
    let data =
        lines.filter_map(|n| n.attribute("d")).max_by_key(|d| d.len()).expect("a line is drawn");
    let mut at = (0.0, 0.0);
    let mut points = Vec::new();
    let mut rest = data;
    while let Some(command) = rest.chars().next() {
        let end = rest[1..].find(|c: char| c.is_ascii_alphabetic()).map_or(rest.len(), |i| i + 1);
        let spaced = rest[1..end].replace('-', " -");
        let numbers: Vec<f64> =
            spaced.split_whitespace().map(|n| n.parse().expect("path data are numbers")).collect();
        match (command, numbers.as_slice()) {
            ('M', [x, y]) => at = (*x, *y),
            ('l', [x, y]) => at = (at.0 + x, at.1 + y),
            ('h', [x]) => at.0 += x,
            ('v', [y]) => at.1 += y,
            other => panic!("unexpected {other:?}"),
        }
        points.push(at);
        rest = &rest[end..];
    }
    points
}

fn axes() -> (Axis, Axis) {
    (Axis::new("time", "s"), Axis::new("goodput", "b/s"))
}

fn chart(points: Vec<(f64, f64)>) -> Chart {
    let (x, y) = axes();
    Chart::new("made-up", x, y).with_line(Line::new("series", points))
}

/// Repeatable noise from 0 to 1.
fn noise(i: u32) -> f64 {
    f64::from(i.wrapping_mul(2_654_435_761) >> 8) / f64::from(1u32 << 24)
}

#[test]
fn a_picture_without_data_shows_no_data() {
    let (nan, inf) = (f64::NAN, f64::INFINITY);
    for points in [vec![], vec![(nan, 1.0)], vec![(1.0, inf), (-inf, 2.0)], vec![(1e200, 1.0)]] {
        let svg = chart(points).to_svg(600, 300);
        assert!(texts(&checked(&svg)).contains(&"no data"));
    }
    let svg = Chart::default().to_svg(0, 0);
    assert!(texts(&checked(&svg)).contains(&"no data"));
    let mut log = chart(vec![(1.0, 0.0), (2.0, -5.0)]);
    log.y.log = true;
    let svg = log.to_svg(600, 300);
    assert!(texts(&checked(&svg)).iter().any(|t| t.contains("nothing positive")));
    for svg in [BarChart::default().to_svg(300, 200), Heatmap::default().to_svg(300, 200)] {
        assert!(texts(&checked(&svg)).contains(&"no data"));
    }
}

#[test]
fn any_values_make_a_well_formed_picture() {
    let odd = [
        0.0,
        -0.0,
        1.0,
        -3.5,
        1e12,
        -1e12,
        1e-12,
        5e-324,
        1e149,
        -1e149,
        f64::MAX,
        f64::NAN,
        f64::INFINITY,
        f64::NEG_INFINITY,
    ];
    for style in STYLES {
        for log in [false, true] {
            for (i, a) in odd.iter().enumerate() {
                for b in odd {
                    let line = vec![(*a, b), (b, *a), (i as f64, b)];
                    let mut chart = chart(line);
                    chart.lines[0].style = style;
                    (chart.x.log, chart.y.log) = (log, log);
                    chart.y.range = Some((b, *a));
                    chart = chart
                        .with_reference(Reference::level(b, "level"))
                        .with_reference(Reference::at(*a, "at"))
                        .with_band(Band::x(*a, b, "band"))
                        .with_band(Band::x(b, *a, ""));
                    checked(&chart.to_svg(300, 200));
                }
            }
        }
    }
}

#[test]
fn any_values_make_well_formed_bars_and_maps() {
    let odd = [0.0, -3.5, 1e12, 1e-12, 1e149, f64::MAX, f64::NAN, f64::NEG_INFINITY];
    for log in [false, true] {
        for a in odd {
            for b in odd {
                let value = Axis { log, ..Axis::new("value", "B") };
                let bar = Bar::new(a).with_range(b, a).with_published(b);
                let bars = BarChart::new("made-up", value.clone(), vec!["g".into(), "h".into()])
                    .with_series(BarSeries::new("s", vec![bar, Bar::new(b)]))
                    .with_series(BarSeries::new("t", vec![Bar::new(1.0), bar, bar, bar]));
                checked(&bars.to_svg(300, 200));
                let mut map = Heatmap::new("made-up", value)
                    .with_x("x", vec!["c".into(), "d".into()])
                    .with_row("r", vec![a, b, 1.0])
                    .with_row("short", vec![]);
                checked(&map.to_svg(300, 200));
                map.center = Some(a);
                checked(&map.to_svg(300, 200));
            }
        }
    }
}

#[test]
fn hostile_text_stays_text() {
    let (x, y) = (Axis::new(HOSTILE, HOSTILE), Axis::new(HOSTILE, HOSTILE));
    let points = vec![(0.0, 1.0), (1.0, 2.0)];
    let chart = Chart::new(HOSTILE, x, y.clone())
        .with_line(Line::new(HOSTILE, points))
        .with_reference(Reference::level(1.5, HOSTILE))
        .with_reference(Reference::at(0.5, HOSTILE))
        .with_band(Band::x(0.1, 0.9, HOSTILE));
    checked(&chart.to_svg(900, 400));
    checked(&chart.to_svg(200, 140));
    let names = vec![HOSTILE.to_owned(); 3];
    let bars = BarChart::new(HOSTILE, y.clone(), names.clone())
        .with_series(BarSeries::new(HOSTILE, vec![Bar::new(1.0); 3]));
    checked(&bars.to_svg(900, 400));
    let map = Heatmap::new(HOSTILE, y).with_x(HOSTILE, names).with_row(HOSTILE, vec![1.0; 3]);
    checked(&map.to_svg(900, 400));
}

#[test]
fn rates_are_labelled_in_megabits_and_marks_keep_their_labels() {
    let chart = chart(vec![(0.0, 1.0e8), (60.0, 4.31e8)])
        .with_reference(Reference::level(4.4e8, "published 440"));
    let svg = chart.to_svg(900, 340);
    let document = checked(&svg);
    let all = texts(&document);
    for wanted in ["goodput (Mb/s)", "time (s)", "0", "400", "60", "published 440", "series"] {
        assert!(all.contains(&wanted), "{wanted} in {all:?}");
    }
}

#[test]
fn the_legend_is_drawn_above_the_data() {
    let mut chart = chart(vec![(0.0, 1.0), (1.0, 2.0)]);
    for i in 0..9 {
        let name = format!("quite a long name of line {i}");
        chart = chart.with_line(Line::new(name, vec![(0.0, f64::from(i)), (1.0, 3.0)]));
    }
    for (width, height) in [(900, 340), (360, 400)] {
        let svg = chart.to_svg(width, height);
        let document = checked(&svg);
        let top = document
            .descendants()
            .filter(|n| n.attribute("stroke") == Some("#e2e2e2"))
            .map(|n| number(&n, "y1").min(number(&n, "y2")))
            .fold(f64::INFINITY, f64::min);
        for line in &chart.lines {
            assert!(number(&named(&document, &line.name), "y") < top, "{}", line.name);
        }
    }
}

#[test]
fn a_truncated_legend_shows_how_many_entries_are_missing() {
    let mut chart = chart(vec![(0.0, 1.0), (1.0, 2.0)]);
    for i in 0..40 {
        chart = chart.with_line(Line::new(format!("line number {i}"), vec![(0.0, 1.0)]));
    }
    let svg = chart.to_svg(300, 300);
    assert!(texts(&checked(&svg)).iter().any(|t| t.starts_with("… and ") && t.ends_with(" more")));
}

#[test]
fn ten_long_series_stay_below_300_kilobytes() {
    for style in STYLES {
        let (x, y) = axes();
        let mut chart = Chart::new("made-up", x, y);
        for k in 0..10 {
            let points = (0..50_000).map(|i| (f64::from(i), 1e9 * noise(i * 10 + k))).collect();
            chart = chart.with_line(Line::new(format!("line {k}"), points).with_style(style));
        }
        for width in [400, 1200, 4000] {
            let svg = chart.to_svg(width, 900);
            checked(&svg);
            assert!(svg.len() < 300_000, "{style:?} at {width} takes {}", svg.len());
        }
    }
}

#[test]
fn a_single_spike_among_many_points_is_drawn() {
    let points = (0..200_000).map(|i| (f64::from(i), if i == 123_457 { 1000.0 } else { 1.0 }));
    let svg = chart(points.collect()).to_svg(900, 340);
    let document = checked(&svg);
    let top = number(&named(&document, "1000"), "y") - 4.0;
    let line = longest_line(&document);
    let highest = line.iter().map(|p| p.1).fold(f64::INFINITY, f64::min);
    assert!((highest - top).abs() < 0.3, "{highest} against {top}");
}

#[test]
fn a_value_that_is_not_finite_is_a_gap() {
    let mut points: Vec<(f64, f64)> = (0..100).map(|i| (f64::from(i), 1.0 + noise(i))).collect();
    points[50].1 = f64::NAN;
    let svg = chart(points).to_svg(900, 340);
    let line = longest_line(&checked(&svg));
    assert_eq!(line.len(), 99);
    let path = svg.lines().find(|l| l.contains("stroke-width=\"1.8\"")).unwrap();
    assert_eq!(path.matches('M').count(), 2);
}

#[test]
fn isolated_points_are_drawn_as_dots() {
    let svg = chart(vec![(3.0, 4.0)]).to_svg(300, 200);
    checked(&svg);
    assert!(svg.contains("h0\"") && svg.contains("stroke-linecap=\"round\""));
}

#[test]
fn steps_are_horizontal_before_vertical() {
    let mut step = chart(vec![(0.0, 1.0), (1.0, 2.0), (2.0, 1.0)]);
    step.lines[0].style = Style::Step;
    let svg = step.to_svg(300, 200);
    let line = longest_line(&checked(&svg));
    assert_eq!(line.len(), 5);
    for pair in line.windows(2) {
        let (dx, dy) = (pair[1].0 - pair[0].0, pair[1].1 - pair[0].1);
        assert!(dx.abs() < 0.01 || dy.abs() < 0.01, "{line:?}");
    }
}

#[test]
fn values_outside_a_requested_range_are_clipped() {
    let mut chart = chart((0..100).map(|i| (f64::from(i), f64::from(i))).collect());
    chart.x.range = Some((0.0, 10.0));
    chart.y.unit = String::new();
    let svg = chart.to_svg(600, 300);
    let document = checked(&svg);
    assert!(texts(&document).contains(&"10") && !texts(&document).contains(&"100"));
    assert!(document.descendants().any(|n| n.attribute("overflow") == Some("hidden")));
}

#[test]
fn lines_differ_by_marker_and_bars_by_hatching() {
    let data = || vec![(0.0, 1.0), (1.0, 2.0)];
    let mut lines = chart(data());
    let mut bars = BarChart::new("made-up", Axis::new("v", ""), vec!["g".into()]);
    for _ in 0..4 {
        lines = lines.with_line(Line::new("next", data()));
    }
    for _ in 0..5 {
        bars = bars.with_series(BarSeries::new("s", vec![Bar::new(1.0)]));
    }
    let svg = lines.to_svg(600, 400);
    let document = checked(&svg);
    let looks = |n: &Node<'_, '_>| {
        let shape = n.attribute("d")?.split_once('m')?.1;
        Some(shape.split('M').next()?.to_owned())
    };
    let shapes: std::collections::BTreeSet<_> =
        document.descendants().filter_map(|n| looks(&n)).collect();
    assert_eq!(shapes.len(), 5, "{shapes:?}");
    let svg = bars.to_svg(600, 400);
    let hatched = checked(&svg);
    let count =
        hatched.descendants().filter(|n| n.attribute("stroke-width") == Some("1.1")).count();
    // Four of five kinds have lines, once in the legend and once in the chart.
    assert_eq!(count, 8);
}

#[test]
fn bars_show_published_values_and_missing_ones() {
    let bars = BarChart::new("made-up", Axis::new("goodput", "b/s"), vec!["path".into()])
        .with_series(BarSeries::new("ours", vec![Bar::new(4.31e8).with_published(4.4e8)]))
        .with_series(BarSeries::new("none", vec![Bar::new(f64::NAN)]));
    let svg = bars.to_svg(600, 300);
    let document = checked(&svg);
    for wanted in ["published", "431", "–", "path", "goodput (Mb/s)"] {
        assert!(texts(&document).contains(&wanted), "{wanted}");
    }
    let plain = BarChart { series: vec![BarSeries::new("ours", vec![Bar::new(1.0)])], ..bars };
    let svg = plain.to_svg(600, 300);
    assert!(!texts(&checked(&svg)).contains(&"published"));
}

#[test]
fn bars_start_at_zero_in_both_directions() {
    let groups = vec!["up".to_owned(), "down".to_owned()];
    let bars = BarChart::new("made-up", Axis::new("change", "%"), groups)
        .with_series(BarSeries::new("s", vec![Bar::new(50.0), Bar::new(-50.0)]));
    let svg = bars.to_svg(600, 300);
    let document = checked(&svg);
    let zero = number(&named(&document, "0"), "y") - 4.0;
    let rects: Vec<_> = document
        .descendants()
        .filter(|n| {
            n.has_tag_name(("http://www.w3.org/2000/svg", "rect"))
                && n.attribute("stroke").is_some()
        })
        .collect();
    // The first rectangle is the swatch of the legend.
    let (up, down) = (&rects[1], &rects[2]);
    assert!((number(up, "y") + number(up, "height") - zero).abs() < 0.2);
    assert!((number(down, "y") - zero).abs() < 0.2);
    assert!((number(up, "height") - number(down, "height")).abs() < 0.2);
}

#[test]
fn heat_maps_print_values_and_leave_missing_cells_white() {
    let map = Heatmap::new("made-up", Axis::new("goodput", "b/s"))
        .with_x("rtt", vec!["1 ms".into(), "100 ms".into()])
        .with_row("no loss", vec![9.5e8, 4.4e8])
        .with_row("loss", vec![1.0e8]);
    let svg = map.to_svg(600, 300);
    let document = checked(&svg);
    for wanted in ["950", "440", "100", "–", "1 ms", "no loss", "rtt", "goodput (Mb/s)"] {
        assert!(texts(&document).contains(&wanted), "{wanted} in {:?}", texts(&document));
    }
}

#[test]
fn the_same_data_gives_the_same_bytes() {
    let points: Vec<(f64, f64)> = (0..5000).map(|i| (f64::from(i), noise(i))).collect();
    let turning = Line::new("turning", points.iter().map(|p| (p.1, p.0)).collect());
    let chart = || chart(points.clone()).with_line(turning.clone());
    assert_eq!(chart().to_svg(900, 340), chart().to_svg(900, 340));
}
