//! Joins of local and served tables.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow_ipc::reader::StreamReader;
use arrow_ipc::writer::{FileWriter, StreamWriter};
use rustix::process::Signal;

use crate::common::{Bench, Running, expect_code, json, run, slow_link, stderr};

fn people(bench: &Bench, first: u32, last: u32) {
    let rows = (first..last).map(|id| format!("{id},name{id},{}\n", id * 2));
    fs::write(bench.root("people.csv"), format!("id,name,size\n{}", rows.collect::<String>()))
        .unwrap();
}

#[test]
fn a_served_table_is_joined_with_a_local_table_and_the_result_joined_again() {
    let bench = Bench::new();
    people(&bench, 0, 20_000);
    let rows = (0..3000).map(|row| format!("{},{row},x\n", row * 7));
    fs::write(bench.path("orders.csv"), format!("id,order,size\n{}", rows.collect::<String>()))
        .unwrap();
    let url = bench.url("people.csv");
    let output = run(bench
        .sabul()
        .args(["join", "orders.csv", &url, "--on", "id", "--memory", "20k", "--json"])
        .args(["-o", "root/joined.parquet"]));
    expect_code(&output, 0);
    let document = json(&output);
    // Every seventh id below 20 000.
    assert_eq!(document["rows"], 2858, "{document}");
    assert!(document["spilled_bytes"].as_u64().unwrap() > 0, "{document}");
    assert_eq!(document["tables"][1]["rows"], 20_000);
    crate::common::schema::expect(&document, "join");

    // Rows of people without an order, with the Parquet file as the served table.
    let url = bench.url("*.parquet");
    let output = run(bench
        .sabul()
        .args(["join", "root/people.csv", &url, "--on", "id", "--type", "anti", "--json"])
        .args(["--where", "id < 70 AND NOT people.name = 'name1'", "-o", "anti.parquet"]));
    expect_code(&output, 0);
    assert_eq!(json(&output)["rows"], 59, "{}", json(&output));
    expect_nothing_left(&bench);
}

/// Fails if a part of a result or spilled rows remain.
#[track_caller]
fn expect_nothing_left(bench: &Bench) {
    let left: Vec<_> = fs::read_dir(bench.folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.starts_with(".sabul-join"))
        .collect();
    assert_eq!(left, [""; 0]);
}

/// Writes people with these numbers as Arrow IPC.
fn arrow_people(bench: &Bench, name: &str, is_file: bool, ids: std::ops::Range<i64>) {
    let names: ArrayRef =
        Arc::new(ids.clone().map(|id| Some(format!("n{id}"))).collect::<StringArray>());
    let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(ids));
    let batch = RecordBatch::try_from_iter([("id", ids), ("name", names)]).unwrap();
    let file = fs::File::create(bench.root(name)).unwrap();
    if is_file {
        let mut writer = FileWriter::try_new(file, &batch.schema()).unwrap();
        writer.write(&batch).unwrap();
        writer.finish().unwrap();
    } else {
        let mut writer = StreamWriter::try_new(file, &batch.schema()).unwrap();
        writer.write(&batch).unwrap();
        writer.finish().unwrap();
    }
}

#[test]
fn a_panic_of_a_decoder_is_only_an_error() {
    let bench = Bench::new();
    arrow_people(&bench, "people.arrows", false, 0..10);
    fs::write(bench.path("orders.csv"), "id,order\n1,1\n").unwrap();
    let right = fs::read(bench.root("people.arrows")).unwrap();
    // The width of the integers in the schema; the library panics on widths that Arrow does not have.
    let width = 64_u32.to_le_bytes();
    let places = (0..right.len().min(1000)).filter(|&at| right[at..].starts_with(&width));
    let mut malformed = 0;
    for at in places {
        let mut wrong = right.clone();
        wrong[at] = 24;
        fs::write(bench.path("wrong.arrows"), wrong).unwrap();
        let words = ["join", "orders.csv", "wrong.arrows", "--on", "id", "-o", "o.parquet"];
        let text = stderr(&run(bench.sabul().args(words).env_remove("RUST_BACKTRACE")));
        malformed += usize::from(text.contains("the content is malformed"));
        assert!(!text.contains("panicked"), "{text}");
    }
    assert!(malformed > 0, "no panic was caught");
}

#[test]
fn a_table_of_arrow_files_and_streams_is_joined_with_csv() {
    let bench = Bench::new();
    fs::create_dir(bench.root("people")).unwrap();
    arrow_people(&bench, "people/1.arrow", true, 0..5000);
    arrow_people(&bench, "people/2.arrows", false, 5000..9000);
    let rows = (0..100).map(|row| format!("{},{row}\n", row * 100));
    fs::write(bench.path("orders.csv"), format!("id,order\n{}", rows.collect::<String>())).unwrap();
    for people in ["root/people".to_owned(), bench.url("people")] {
        // Rows of orders without people stay, as their name is NULL.
        let mut command = bench.sabul();
        command.args(["join", "orders.csv", &people, "--on", "id", "--type", "left", "--json"]);
        let output =
            run(command.args(["--where", "people.name is null or id = 300", "-o", "out.parquet"]));
        expect_code(&output, 0);
        let document = json(&output);
        assert_eq!(document["rows"], 11, "{document}");
        assert_eq!(document["tables"][1]["rows"], 9000, "{document}");
        assert_eq!(document["tables"][1]["files"], 2, "{document}");
    }
}

#[test]
fn malformed_tables_are_refused_with_the_name_of_the_file() {
    let bench = Bench::new();
    people(&bench, 0, 10);
    fs::create_dir(bench.root("mixed")).unwrap();
    fs::write(bench.root("mixed/1.csv"), "id,x\n1,2\n").unwrap();
    fs::write(bench.root("mixed/2.csv"), "x,id\n1,2\n").unwrap();
    let mut long = b"PAR1".repeat(100);
    long.extend_from_slice(&[0xff, 0xff, 0, 0]);
    long.extend_from_slice(b"PAR1");
    for (name, content, text) in [
        ("short.parquet", &b"PAR1"[..], "short.parquet"),
        ("long.parquet", &long, "long.parquet"),
        ("bad.arrow", b"ARROW1\0\0\xff\xff\xff\xff\x08\0\0\0abcdefgh", "bad.arrow"),
        ("huge.arrow", b"\xff\xff\xff\xff\0\0\0\xf0", "an Arrow message has 4026531840 bytes"),
        ("bad.csv", b"id,x\n1,2\n3\n", "bad.csv"),
        ("text.csv", b"id,x\n1,\xff\xfe\n", "text.csv"),
        ("empty.csv", b"", "empty"),
    ] {
        fs::write(bench.root(name), content).unwrap();
        for place in [format!("root/{name}"), bench.url(name)] {
            let output = run(bench
                .sabul()
                .args(["join", "root/people.csv", &place, "--on", "id"])
                .args(["-o", "o"]));
            let code = if name == "empty.csv" { 2 } else { 1 };
            expect_code(&output, code);
            assert!(stderr(&output).contains(text), "{name}: {}", stderr(&output));
        }
    }
    let output =
        run(bench.sabul().args(["join", "root/people.csv", "root/mixed", "--on", "id", "-o", "o"]));
    expect_code(&output, 1);
    let text = stderr(&output);
    assert!(text.contains("mixed/2.csv") && text.contains("header"), "{text}");
    assert!(!bench.path("o").exists());
    expect_nothing_left(&bench);
}

/// Starts a join of a local table with a table behind a slow link.
fn slow_join(bench: &Bench) -> (Running, sabul_emu::Relay) {
    people(bench, 0, 800_000);
    fs::write(bench.path("few.csv"), "id,x\n1,2\n").unwrap();
    let relay = bench.relay(slow_link(), false);
    let url = format!("sabul://{}/people.csv", relay.addr());
    let mut command = bench.sabul();
    command.args(["join", "few.csv", &url, "--on", "id", "-o", "out.parquet", "--timeout", "3"]);
    let running = Running::start(&mut command);
    std::thread::sleep(Duration::from_millis(1500));
    (running, relay)
}

#[test]
fn a_source_that_is_killed_ends_the_join_without_a_result() {
    let mut bench = Bench::new();
    let (join, _relay) = slow_join(&bench);
    bench.server.take().unwrap().signal(Signal::KILL);
    let output = join.finish();
    expect_code(&output, 3);
    assert!(stderr(&output).contains("people.csv"), "{}", stderr(&output));
    assert!(!bench.path("out.parquet").exists());
    expect_nothing_left(&bench);
}

#[test]
fn an_interrupted_join_leaves_nothing() {
    let bench = Bench::new();
    let (join, _relay) = slow_join(&bench);
    join.signal(Signal::INT);
    let output = join.finish();
    expect_code(&output, 130);
    assert!(!bench.path("out.parquet").exists());
    expect_nothing_left(&bench);
}

#[test]
fn a_wrong_request_or_source_is_refused_and_leaves_no_file() {
    let bench = Bench::new();
    people(&bench, 0, 10);
    fs::write(bench.path("other.csv"), "id,flag\nx,1\ny,2\n").unwrap();
    let url = bench.url("people.csv");
    let missing = bench.url("nothing.parquet");
    for (arguments, code, text) in [
        (["other.csv", &url, "--on", "id"], 2, "the types cannot be compared without loss"),
        (["other.csv", &url, "--on", "name"], 2, "table 'other' has no column 'name'"),
        (["other.csv", &missing, "--on", "id"], 1, "nothing.parquet"),
        (["other.csv", "ticket", "--on", "id"], 2, "the format of a table is its extension"),
    ] {
        let output = run(bench.sabul().arg("join").args(arguments).args(["-o", "out.parquet"]));
        expect_code(&output, code);
        assert!(stderr(&output).contains(text), "{}", stderr(&output));
        assert!(!bench.path("out.parquet").exists());
    }
}

#[test]
fn a_result_in_stdout_is_an_arrow_stream() {
    let bench = Bench::new();
    people(&bench, 0, 5000);
    people_of_orders(&bench);
    let url = bench.url("people.csv");
    let words = ["join", "orders.csv", &url, "--on", "id", "-o", "-"];
    let output = run(bench.sabul().args(words));
    expect_code(&output, 0);
    let reader = StreamReader::try_new(&output.stdout[..], None).unwrap();
    let rows: usize = reader.map(|batch| batch.unwrap().num_rows()).sum();
    assert_eq!(rows, 715);
    assert!(stderr(&output).contains("715 rows from"), "{}", stderr(&output));
    let output = run(bench.sabul().args(words).arg("--json"));
    expect_code(&output, 2);
    assert!(stderr(&output).contains("leave out --json"), "{}", stderr(&output));
}

/// Writes orders of every seventh person.
fn people_of_orders(bench: &Bench) {
    let rows = (0..1000).map(|row| format!("{},{row}\n", row * 7)).collect::<String>();
    fs::write(bench.path("orders.csv"), format!("id,order\n{rows}")).unwrap();
}
