//! Results are written in the documented format, with the same bytes each time.

use std::sync::Mutex;

use sabul_run::results::{
    Completion, FlowResult, FlowSeries, LinkResult, LinkSeries, Queue, Region, Results, Rtt, Series,
};
use sabul_scenario::{
    LabNotes, Manifest, Run, RunDocument, parse_override, read, run_all, run_all_with_progress,
    write_links, write_series,
};

fn runs(seeds: &str) -> Vec<Run> {
    let text = "name = \"two-flows\"\nduration_s = 10\n\
                link = [{ id = \"bottleneck\", rate_mbps = 1, delay_ms = 1 }]\n\
                flow = [{ id = \"a\", path = [\"bottleneck\"], cc = \"sabul2003\" }]\n";
    let seeds = parse_override(&format!("seed={seeds}")).expect("a range or list of numbers");
    read(text, "t.toml", &[seeds]).expect("a file without fault")
}

fn results() -> Results {
    Results {
        flows: vec![FlowResult {
            id: "a".to_owned(),
            transport: "sabul".to_owned(),
            cc: "sabul2003".to_owned(),
            goodput_bps: 4.4e8,
            throughput_bps: 4.5e8,
            packets_sent: 3,
            packets_lost: 1,
            loss_rate: 1.0 / 3.0,
            retransmissions: 1,
            breaker_opened: None,
            rtt_ms: Rtt { min: 1.0, mean: 1.5, p99: 2.0 },
            stability: 0.3,
            completed_s: None,
            started: 1,
            completed: 0,
            completion: None,
        }],
        links: vec![LinkResult {
            id: "bottleneck".to_owned(),
            utilisation: 0.9,
            drops: 1,
            marks: 0,
            queue_packets: Queue { mean: 1.0, p99: 1.0, max: 1 },
        }],
        jain: 1.0,
        regions: vec![Region {
            from_s: 0.0,
            to_s: 120.0,
            aggregate_bps: 1.0,
            stability: 1.0,
            jain: 1.0,
            flows: [("a".to_owned(), 1.0)].into(),
        }],
    }
}

#[test]
fn the_document_has_the_documented_fields_in_order() {
    let (run, results) = (&runs("5")[0], results());
    let json = RunDocument::new("sim", run, "abc", 1.25, &results).unwrap().to_json();
    let expected = concat!(
        r#"{"schema":1,"arm":"sim","scenario":"two-flows","seed":5,"commit":"abc","wall_s":1.25,"#,
        r#""flows":[{"id":"a","transport":"sabul","cc":"sabul2003","goodput_bps":440000000.0,"#,
        r#""throughput_bps":450000000.0,"packets_sent":3,"packets_lost":1,"#,
        r#""loss_rate":0.3333333333333333,"retransmissions":1,"#,
        r#""rtt_ms":{"min":1.0,"mean":1.5,"p99":2.0},"stability":0.3,"completed_s":null,"#,
        r#""started":1,"completed":0}],"#,
        r#""links":[{"id":"bottleneck","utilisation":0.9,"drops":1,"marks":0,"#,
        r#""queue_packets":{"mean":1.0,"p99":1.0,"max":1}}],"jain":1.0,"#,
        r#""regions":[{"from_s":0.0,"to_s":120.0,"aggregate_bps":1.0,"stability":1.0,"jain":1.0,"#,
        r#""flows":{"a":1.0}}],"settings":{"seed":"5"}}"#,
    );
    assert_eq!(json, expected);
    let again = RunDocument::new("sim", run, "abc", 1.25, &results).unwrap().to_json();
    assert_eq!(json, again);
}

/// The document of a lab run.
fn of_lab(is_valid: bool, faults: &[&str]) -> serde_json::Value {
    let (run, results) = (&runs("5")[0], results());
    let texts = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect::<Vec<_>>();
    let (faults, notes) = (texts(faults), texts(&["no capture"]));
    let details = serde_json::json!({ "lateness": { "p99_us": 12 } });
    let notes = LabNotes { is_valid, faults: &faults, notes: &notes, details };
    let document = RunDocument::new("lab", run, "abc", 1.25, &results).expect("finite numbers");
    serde_json::from_str(&document.with_lab(notes).to_json()).expect("a document is JSON")
}

#[test]
fn a_valid_lab_run_has_results_and_lab_measurements() {
    let document = of_lab(true, &[]);
    assert_eq!((&document["arm"], &document["valid"]), (&"lab".into(), &true.into()));
    assert_eq!(document["faults"], serde_json::json!([]));
    assert_eq!(document["notes"], serde_json::json!(["no capture"]));
    assert_eq!(document["lab"]["lateness"]["p99_us"], 12);
    assert_eq!(document["jain"], 1.0);
    assert_eq!(document["flows"][0]["goodput_bps"], 4.4e8);
    assert_eq!(document["settings"]["seed"], "5");
    assert!(document.get("discarded").is_none(), "{document}");
}

#[test]
fn an_invalid_run_has_no_results() {
    for (is_valid, faults) in
        [(false, &["the router was late"][..]), (false, &[]), (true, &["the router was late"])]
    {
        let document = of_lab(is_valid, faults);
        assert_eq!((&document["valid"], &document["jain"]), (&false.into(), &().into()));
        assert_eq!(document["faults"], serde_json::json!(faults));
        for list in ["flows", "links", "regions"] {
            assert_eq!(document[list], serde_json::json!([]), "{list}");
            assert_eq!(document["discarded"][list].as_array().unwrap().len(), 1, "{list}");
        }
        assert_eq!(document["discarded"]["jain"], 1.0);
        assert_eq!(document["discarded"]["flows"][0]["goodput_bps"], 4.4e8);
        assert_eq!(document["lab"]["lateness"]["p99_us"], 12);
    }
}

#[test]
fn a_simulator_document_has_no_lab_fields() {
    let (run, results) = (&runs("5")[0], results());
    let json = RunDocument::new("sim", run, "abc", 1.25, &results).unwrap().to_json();
    for field in ["valid", "faults", "notes", "discarded", "\"lab\""] {
        assert!(!json.contains(field), "{json}");
    }
}

/// Makes one number invalid.
type Change = fn(&mut Results);

#[test]
fn a_number_without_a_json_form_is_refused_by_name() {
    let run = &runs("5")[0];
    let refusal = |change: Change| {
        let mut results = results();
        change(&mut results);
        RunDocument::new("sim", run, "abc", 1.0, &results).unwrap_err().to_string()
    };
    let cases: [(Change, &str); 12] = [
        (|r| r.jain = f64::NAN, "jain"),
        (|r| r.flows[0].goodput_bps = f64::INFINITY, "goodput_bps of flow 'a'"),
        (|r| r.flows[0].throughput_bps = f64::NAN, "throughput_bps of flow 'a'"),
        (|r| r.flows[0].loss_rate = f64::NAN, "loss_rate of flow 'a'"),
        (|r| r.flows[0].rtt_ms.p99 = f64::NAN, "rtt_ms of flow 'a'"),
        (|r| r.flows[0].stability = f64::NAN, "stability of flow 'a'"),
        (|r| r.flows[0].completed_s = Some(f64::NAN), "completed_s of flow 'a'"),
        (
            |r| r.flows[0].completion = Some(Completion { median_s: 1.0, p99_s: f64::NAN }),
            "completion of flow 'a'",
        ),
        (|r| r.links[0].utilisation = f64::NAN, "utilisation of link 'bottleneck'"),
        (|r| r.links[0].queue_packets.mean = f64::NAN, "queue_packets of link 'bottleneck'"),
        (|r| r.regions[0].stability = f64::NAN, "of the region from 0 s"),
        (|r| *r.regions[0].flows.get_mut("a").unwrap() = f64::NAN, "from 0 s, flow 'a'"),
    ];
    for (change, name) in cases {
        let refusal = refusal(change);
        assert!(refusal.contains(name), "{name} is not in: {refusal}");
    }
    let results = results();
    assert!(RunDocument::new("sim", run, "abc", f64::NAN, &results).is_err());
}

#[test]
fn series_rows_have_empty_cells_for_missing_values() {
    let flow = |id: &str, rtt_ms| FlowSeries {
        id: id.to_owned(),
        goodput_bps: vec![0.0, 1e8],
        rate_bps: vec![1.5e8, 2e8],
        gap_ns: vec![0.0, 120_000.5],
        rtt_ms,
        in_flight_pkts: vec![1.0, 2.0],
        loss_rate: vec![0.0, 1e-7],
        cwnd_pkts: vec![f64::NAN, 10.0],
        delivery_bps: vec![9e7, f64::NAN],
    };
    let series = Series {
        t_s: vec![0.1, 0.2],
        flows: vec![flow("a", vec![f64::NAN, 20.5]), flow("b", vec![])],
        links: vec![LinkSeries {
            id: "l".to_owned(),
            queue_pkts: vec![3.0, 4.0],
            drops: vec![0.0, 1.0],
            utilisation: vec![0.25, f64::INFINITY],
        }],
    };
    let mut out = Vec::new();
    write_series(&series, &mut out).unwrap();
    assert_eq!(
        String::from_utf8(out).unwrap(),
        "t_s,flow,goodput_bps,rate_bps,gap_ns,rtt_ms,in_flight_pkts,loss_rate,cwnd_pkts,delivery_bps\n\
         0.1,a,0,150000000,0,,1,0,,90000000\n\
         0.1,b,0,150000000,0,,1,0,,90000000\n\
         0.2,a,100000000,200000000,120000.5,20.5,2,0.0000001,10,\n\
         0.2,b,100000000,200000000,120000.5,,2,0.0000001,10,\n"
    );
    let mut out = Vec::new();
    write_links(&series, &mut out).unwrap();
    assert_eq!(
        String::from_utf8(out).unwrap(),
        "t_s,link,queue_pkts,drops,utilisation\n0.1,l,3,0,0.25\n0.2,l,4,1,\n"
    );
}

#[test]
fn the_manifest_contains_everything_to_repeat_the_run() {
    let run = &runs("5,6")[1];
    let files = ["series.csv".to_owned(), "links.csv".to_owned()];
    let json = Manifest::new("sim", run, "0.1.0", "abc", &files).to_json();
    let value: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!((value["schema"].as_u64(), value["seed"].as_u64()), (Some(1), Some(6)));
    assert_eq!((value["version"].as_str(), value["commit"].as_str()), (Some("0.1.0"), Some("abc")));
    assert_eq!(value["label"], "seed=6");
    assert_eq!(value["settings"]["seed"], "6");
    assert_eq!(value["files"], serde_json::json!(["series.csv", "links.csv"]));
    let again = read(value["scenario"].as_str().unwrap(), "again.toml", &[]).unwrap();
    assert_eq!(again[0].scenario, run.scenario);
}

#[test]
fn results_are_in_run_order_with_any_number_of_threads() {
    let runs = runs("1..50");
    let expected: Vec<u64> = (1..=50).collect();
    for threads in [None, Some(1), Some(2), Some(7)] {
        let answers = run_all(&runs, threads, |run| {
            // The first runs take longest, so that they finish last where there are threads.
            std::thread::sleep(std::time::Duration::from_micros(2_000 / run.scenario.seed));
            run.scenario.seed
        });
        assert_eq!(answers, expected, "{threads:?}");
    }
    assert!(run_all(&[], None, |run| run.scenario.seed).is_empty());
}

#[test]
fn progress_is_reported_once_for_each_run() {
    let runs = runs("1..20");
    let reported = Mutex::new(Vec::new());
    run_all_with_progress(&runs, Some(3), |done| reported.lock().unwrap().push(done), |_| ());
    let mut reported = reported.into_inner().unwrap();
    reported.sort_unstable();
    assert_eq!(reported, (1..=20).collect::<Vec<_>>());
}
