//! Tests of pages: one well-formed file that loads nothing and runs only its own script.

use roxmltree::{Document, Node, ParsingOptions};
use sabul_report::{
    Axis, Band, Bar, BarChart, BarSeries, Cell, Chart, Column, Heatmap, Item, Line, Page,
    Reference, Section, Style, Table,
};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

/// The library in each page, with its licence.
const UPLOT: [(&str, &str); 3] = [
    ("LICENSE", include_str!("../../src/page/uplot/LICENSE")),
    ("uPlot.iife.min.js", include_str!("../../src/page/uplot/uPlot.iife.min.js")),
    ("uPlot.min.css", include_str!("../../src/page/uplot/uPlot.min.css")),
];

const HOSTILE: &str = "</script></title></style><img src=x onerror=\"alert('1')\"><!-- &amp; \u{0}";

/// Splits a page into its markup and the contents of its scripts.
fn split(html: &str) -> (String, Vec<String>) {
    let (mut markup, mut scripts) = (String::new(), Vec::new());
    let mut parts = html.split("<script");
    markup.push_str(parts.next().unwrap_or_default());
    for part in parts {
        let (attributes, rest) = part.split_once('>').expect("a script element is closed");
        let (script, after) = rest.split_once("</script>").expect("a script ends");
        markup.push_str(&format!("<script{attributes}></script>{after}"));
        scripts.push(script.to_owned());
    }
    (markup, scripts)
}

fn parsed(markup: &str) -> Document<'_> {
    let options = ParsingOptions { allow_dtd: true, ..ParsingOptions::default() };
    Document::parse_with_options(markup, options).unwrap_or_else(|e| panic!("{e}\n{markup}"))
}

/// Returns the data of all charts on a page.
fn specs(html: &str) -> Vec<Value> {
    let (_, scripts) = split(html);
    let json = scripts.iter().filter(|s| s.starts_with("{\"link\""));
    json.map(|s| serde_json::from_str(s).unwrap_or_else(|e| panic!("{e} in {s}"))).collect()
}

fn chart(points: Vec<(f64, f64)>) -> Chart {
    Chart::new("rates", Axis::new("time", "s"), Axis::new("goodput", "b/s"))
        .with_line(Line::new("sabul", points))
}

fn rising(count: u32) -> Vec<(f64, f64)> {
    (0..count).map(|i| (f64::from(i) * 0.01, f64::from(i % 1000) * 1e6)).collect()
}

/// Returns a page with one item of each kind, with the caller's text everywhere.
fn everything(text: &str) -> Page {
    let (x, y) = (Axis::new(text, text), Axis::new(text, text));
    let lines = Chart::new(text, x, y.clone())
        .with_line(Line::new(text, rising(100)))
        .with_line(Line::new(text, rising(100)).with_style(Style::Step))
        .with_reference(Reference::level(2.0, text))
        .with_band(Band::x(0.1, 0.2, text));
    let bars = BarChart::new(text, y.clone(), vec![text.to_owned()])
        .with_series(BarSeries::new(text, vec![Bar::new(1.0).with_published(2.0)]));
    let map = Heatmap::new(text, y).with_x(text, vec![text.to_owned()]).with_row(text, vec![1.0]);
    let columns = vec![Column::text(text), Column::number(text, text)];
    let table = Table::new(text, columns).with_row(vec![text.into(), Cell::Pass(text.to_owned())]);
    let section = || {
        Section::new(text, text)
            .with_item(Item::Chart(lines.clone()))
            .with_item(Item::Bar(bars.clone()))
            .with_item(Item::Heat(map.clone()))
            .with_item(Item::Table(table.clone()))
            .with_item(Item::Pre { title: text.to_owned(), text: text.to_owned() })
    };
    let page = Page::new(text, text).with_summary(text);
    (0..4).fold(page, |page, _| page.with_section(section()))
}

#[test]
fn a_page_is_well_formed_with_any_text() {
    for text in ["plain", HOSTILE, "", "\u{1b}]0;x\u{7}", "日本語 – ü"] {
        let html = everything(text).to_html();
        let (markup, scripts) = split(&html);
        // One script with numbers per chart, uPlot, and the page's own script.
        assert_eq!(scripts.len(), 4 + 2);
        let document = parsed(&markup);
        let elements = || document.descendants().filter(Node::is_element);
        assert_eq!(elements().filter(|n| n.has_tag_name("script")).count(), 6);
        assert_eq!(elements().filter(|n| n.has_tag_name("img")).count(), 0);
        for attribute in elements().flat_map(|n| n.attributes().collect::<Vec<_>>()) {
            assert!(!attribute.name().starts_with("on"), "{attribute:?}");
        }
        assert_eq!(specs(&html).len(), 4);
    }
}

#[test]
fn a_page_loads_no_external_resources() {
    let html = everything("plain").to_html();
    assert!(html.contains("default-src 'none'"));
    let known = ["http://www.w3.org/2000/svg", "https://github.com/leeoniya/uPlot"];
    let foreign = known.iter().fold(html.clone(), |html, address| html.replace(address, ""));
    for needle in ["http://", "https://", "url(", "@import", "<link", "<iframe", "fetch(", "eval("]
    {
        assert!(!foreign.contains(needle), "{needle}");
    }
    let (markup, _) = split(&html);
    for node in parsed(&markup).descendants() {
        for name in ["src", "href"] {
            if let Some(value) = node.attribute(name) {
                assert!(value.starts_with('#'), "{value}");
            }
        }
    }
}

#[test]
fn the_checked_in_uplot_is_the_published_release_and_its_licence_is_in_each_page() {
    let sums = include_str!("../../src/page/uplot/SHA256SUMS");
    let html = everything("plain").to_html();
    for (name, text) in UPLOT {
        let sum = Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        assert!(sums.contains(&format!("{sum}  {name}\n")), "{name} has {sum}, not in {sums}");
        assert!(html.contains(text), "{name} is not in the page");
    }
}

#[test]
fn an_empty_page_is_well_formed() {
    let html = Page::default().to_html();
    let (markup, scripts) = split(&html);
    parsed(&markup);
    assert!(scripts.is_empty());
}

#[test]
fn every_chart_is_drawn_for_readers_without_scripts() {
    let page = Page::new("p", "")
        .with_section(Section::new("s", "").with_item(Item::Chart(chart(rising(50)))));
    let html = page.to_html();
    let (markup, _) = split(&html);
    let document = parsed(&markup);
    let host = document.descendants().find(|n| n.attribute("class") == Some("wide")).unwrap();
    assert!(host.descendants().any(|n| n.tag_name().name() == "path"));
}

#[test]
fn values_that_are_not_finite_never_reach_the_numbers() {
    let bad = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, f64::MAX, 1.0, -1e12, 5e-324];
    for a in bad {
        for b in bad {
            let one = chart(vec![(0.0, 1.0), (a, b), (2.0, 3.0), (b, a), (4.0, b)])
                .with_reference(Reference::level(a, "m"))
                .with_reference(Reference::at(b, "a"))
                .with_band(Band::x(a, b, "b"));
            let page =
                Page::new("p", "").with_section(Section::new("s", "").with_item(Item::Chart(one)));
            let html = page.to_html();
            let spec = &specs(&html)[0];
            let line = &spec["lines"][0];
            let (xs, ys) = (line["x"].as_array().unwrap(), line["y"].as_array().unwrap());
            assert_eq!(xs.len(), ys.len());
            assert!(xs.iter().all(Value::is_number), "{xs:?}");
            assert!(ys.iter().all(|y| y.is_number() || y.is_null()), "{ys:?}");
            for mark in spec["marks"].as_array().unwrap() {
                assert!(mark["at"].as_array().unwrap().iter().any(Value::is_number), "{mark}");
            }
        }
    }
}

#[test]
fn a_chart_without_data_shows_no_data_and_needs_no_script() {
    let empty = chart(vec![(f64::NAN, 1.0)]);
    let page = Page::new("p", "").with_section(Section::new("s", "").with_item(Item::Chart(empty)));
    let html = page.to_html();
    assert!(html.contains("no data") && split(&html).1.is_empty());
}

#[test]
fn long_series_are_thinned_with_a_note_on_the_page() {
    let mut points = rising(100_000);
    points[54_321].1 = 7.5e9;
    let section = Section::new("s", "").with_item(Item::Chart(chart(points)));
    let html = Page::new("p", "").with_section(section).to_html();
    assert!(html.contains("100000 points, thinned to about 2000 a series"));
    let spec = &specs(&html)[0];
    let ys = spec["lines"][0]["y"].as_array().unwrap();
    assert!(ys.len() <= 2000 && ys.len() > 1000, "{}", ys.len());
    assert!(ys.contains(&serde_json::json!(7.5e9)));
    assert!(html.len() < 200_000, "{}", html.len());

    let short = Section::new("s", "").with_item(Item::Chart(chart(rising(2000))));
    let html = Page::new("p", "").with_section(short).to_html();
    assert!(!html.contains("thinned to"));
    assert_eq!(specs(&html)[0]["lines"][0]["y"].as_array().unwrap().len(), 2000);
}

#[test]
fn charts_of_one_section_share_their_time_axis() {
    let early = chart(vec![(0.0, 1.0), (10.0, 2.0)]);
    let late = chart(vec![(5.0, 1.0), (60.0, 2.0)]);
    let mut other = early.clone();
    other.x.label = "rtt".to_owned();
    let plane = chart(vec![(0.0, 1.0), (10.0, 2.0), (3.0, 1.0)]);
    let section = Section::new("s", "")
        .with_item(Item::Chart(early.clone()))
        .with_item(Item::Chart(late))
        .with_item(Item::Chart(other))
        .with_item(Item::Chart(plane));
    let next = Section::new("t", "").with_item(Item::Chart(early));
    let html = Page::new("p", "").with_section(section).with_section(next).to_html();
    let specs = specs(&html);
    let x =
        |i: usize| (specs[i]["x"]["lo"].as_f64().unwrap(), specs[i]["x"]["hi"].as_f64().unwrap());
    assert_eq!((x(0), x(1)), ((0.0, 60.0), (0.0, 60.0)));
    assert_eq!((x(2), x(4)), ((0.0, 10.0), (0.0, 10.0)));
    assert_eq!(specs[0]["link"], specs[1]["link"]);
    assert_ne!(specs[0]["link"], specs[2]["link"]);
    assert_ne!(specs[0]["link"], specs[4]["link"]);
    assert_eq!(specs[3]["link"], "");
}

#[test]
fn scenario_text_is_collapsed_and_unchanged() {
    let text = "a < b && c\n\n  indented\n";
    let item = Item::Pre { title: "scenario".into(), text: text.into() };
    let html = Page::new("p", "").with_section(Section::new("s", "").with_item(item)).to_html();
    let (markup, _) = split(&html);
    let document = parsed(&markup);
    let details = document.descendants().find(|n| n.has_tag_name("details")).unwrap();
    let pre = details.descendants().find(|n| n.has_tag_name("pre")).unwrap();
    assert_eq!(pre.text(), Some(text));
}

#[test]
fn the_same_page_gives_the_same_bytes() {
    assert_eq!(everything("x").to_html(), everything("x").to_html());
}
