//! Tests of the report card as a library.

use std::fs;
use std::sync::{Arc, Mutex};

use sabul_study::card::{Contract, Draw, DrawSeed, Request, Sitting, card};
use sabul_study::{Cause, Observer};

fn request() -> Request {
    Request { only: vec!["cross".to_owned()], ..Request::new("newreno") }
}

#[test]
fn the_card_library_returns_the_printed_card_and_reports_progress() {
    let folder = tempfile::tempdir().unwrap();
    let received = Arc::new(Mutex::new(Vec::new()));
    let ear = Arc::clone(&received);
    let observer =
        Observer::silent().with_notes(move |line| ear.lock().unwrap().push(line.to_owned()));
    let out = Some(folder.path().to_owned());
    let card = card(Request { out, ..request() }, &observer).unwrap();
    assert!(card.is_valid() && card.invalid().next().is_none());
    let value = card.to_value().unwrap();
    assert_eq!((&value["cc"], &value["arm"]), (&"newreno".into(), &"sim".into()));
    assert!(card.text().contains("newreno"), "{}", card.text());
    let written = fs::read_to_string(folder.path().join("card.json")).unwrap();
    assert_eq!(written, card.to_json().unwrap());
    assert!(folder.path().join("manifest.json").exists(), "the manifest says that all is there");
    assert_eq!(*received.lock().unwrap(), ["1 of 1 runs done"]);
}

#[test]
fn invalid_requests_are_refused_before_anything_runs() {
    for (wrong, part) in [
        (Request::new("no-such-one"), "no-such-one"),
        (Request { only: vec!["tea".to_owned()], ..request() }, "no such test"),
        (Request { params: vec![("tea".to_owned(), "1".to_owned())], ..request() }, "tea"),
    ] {
        let error = Sitting::new(wrong).unwrap_err();
        assert_eq!(error.cause(), Cause::Request, "{error}");
        assert!(error.to_string().contains(part), "{error}");
    }
}

#[test]
fn the_contract_reports_the_share_cubic_keeps_on_each_selected_path() {
    let folder = tempfile::tempdir().unwrap();
    let only = ["rate_mbps=100", "rtt_ms=10", "queue_bdp=1,4", "loss=0"].map(str::to_owned);
    let request = Request {
        only: only.to_vec(),
        contract: Some(Contract::default()),
        out: Some(folder.path().to_owned()),
        ..Request::new("newreno")
    };
    let card = card(request, &Observer::silent()).unwrap();
    let value = card.to_value().unwrap();
    assert_eq!((&value["cells_judged"], &value["order"]), (&2.into(), &"cubic-first".into()));
    for cell in value["cells"].as_array().unwrap() {
        // At this BDP CUBIC behaves as Reno, so the share is about even.
        let number = |key: &str| cell[key].as_f64().unwrap();
        assert!((0.5..1.5).contains(&number("kept")), "{cell}");
        assert!((number("kept") * number("reference_bps") - number("cubic_bps")).abs() < 1.0);
        assert!(number("utilisation") > 0.9 && number("cc_bps") > 0.0, "{cell}");
    }
    assert!(card.text().contains("cells met"), "{}", card.text());
    let read = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap();
    assert_eq!(read("contract.json"), card.to_json().unwrap());
    assert_eq!(read("contract.csv").lines().count(), 3);
    assert!(read("report.html").contains("What CUBIC keeps: 100 Mb/s"));
    assert!(read("manifest.json").contains("reference-100mbps-10ms-1bdp-0pct.toml"));
}

/// Returns a request for small paths of the draw with seed 7.
fn draw(only: &str) -> Request {
    Request {
        only: vec![only.to_owned()],
        seeds: 2,
        draw: Some(Draw { paths: 40, seed: DrawSeed::Number(7) }),
        ..Request::new("cubic")
    }
}

#[test]
fn a_draw_judges_each_path_on_four_questions_and_resumes() {
    let folder = tempfile::tempdir().unwrap();
    let out = Some(folder.path().to_owned());
    let received = Arc::new(Mutex::new(Vec::new()));
    let ear = Arc::clone(&received);
    let observer =
        Observer::silent().with_notes(move |line| ear.lock().unwrap().push(line.to_owned()));
    card(Request { out: out.clone(), ..draw("18") }, &observer).unwrap();
    let whole = card(Request { out, ..draw("18,27") }, &observer).unwrap();
    let received = received.lock().unwrap().join("\n");
    for part in ["1 paths, 6 runs", "1 paths of an earlier run are kept", "path 27: "] {
        assert!(received.contains(part), "{part}: {received}");
    }
    assert_eq!(received.matches("path 18: ").count(), 1, "{received}");

    // The numbers equal those without an interruption, on any number of threads.
    let at_once = card(Request { threads: Some(1), ..draw("18,27") }, &Observer::silent()).unwrap();
    let (whole, at_once) = (whole.to_value().unwrap(), at_once.to_value().unwrap());
    assert_eq!(whole["met"], at_once["met"]);
    let paths = whole["paths"].as_array().unwrap();
    assert_eq!(paths.len(), 2);
    for (path, other) in paths.iter().zip(at_once["paths"].as_array().unwrap()) {
        for key in ["number", "cubic_bps", "met", "background"] {
            assert_eq!(path[key], other[key], "{key}");
        }
        // CUBIC replaces CUBIC, so the ratio is near 1.
        let keeps = path["cubic_keeps"]["value"].as_f64().unwrap();
        assert!((0.6..1.7).contains(&keeps), "{path}");
        let ratio = |above: &str, below: &str| {
            path[above].as_f64().unwrap() / path[below].as_f64().unwrap()
        };
        assert!((ratio("cubic_bps", "reference_cubic_bps") - keeps).abs() < 1e-6, "{path}");
        assert_ne!(path["ours_bps"], path["reference_ours_bps"], "their starts differ");
    }
    let read = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap();
    assert_eq!(read("draw.csv").lines().count(), 3);
    assert_eq!(read("paths.jsonl").lines().count(), 3);
    assert!(read("report.html").contains("Contract met on "));
    assert!(read("manifest.json").contains("path-27-reference.toml"));
}
