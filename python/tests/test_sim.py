"""Simulations in this process, compared with the program."""

from __future__ import annotations

import json
import pickle
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pandas
import pytest
from conftest import program

import sabul
from sabul import sim

SCENARIO: dict[str, Any] = {
    "name": "one flow",
    "duration_s": 2.0,
    "seed": 3,
    "link": [{"id": "bottleneck", "rate_mbps": 20.0, "delay_ms": 5.0, "queue_packets": 100, "loss": 0.001}],
    "flow": [
        {"id": "a", "transport": "sabul", "cc": "sabul2003", "path": ["bottleneck"], "params": {"syn_interval_ms": 100}}
    ],
}


def as_toml(path: Path) -> Path:
    path.write_text(sim._toml(SCENARIO))
    assert tomllib.loads(path.read_text()) == SCENARIO
    return path


def test_a_mapping_a_file_and_the_program_have_the_same_results(tmp_path: Path) -> None:
    file = as_toml(tmp_path / "one.toml")
    command = [program(), "sim", "run", str(file), "--seed", "7", "--json"]
    printed = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    results = [sim.run(SCENARIO, seed=7), sim.run(file, seed=7), printed]
    for result in results:
        del result["wall_s"], result["commit"]
    assert results[0] == results[1] == results[2]
    assert results[0]["seed"] == 7 and results[0]["flows"][0]["goodput_bps"] > 1e6


def test_a_seed_repeats_a_run_and_another_seed_does_not() -> None:
    flows = [sim.run(SCENARIO, seed=seed)["flows"] for seed in (1, 1, 2)]
    assert flows[0] == flows[1] != flows[2]


def test_settings_replace_keys_and_several_values_make_a_sweep() -> None:
    rates = {"link.bottleneck.rate_mbps": [5, 10]}
    slow, fast = sim.sweep(SCENARIO, settings=rates)
    assert slow["flows"][0]["goodput_bps"] < 5e6 < fast["flows"][0]["goodput_bps"]
    with pytest.raises(sabul.UsageError, match="2 runs"):
        sim.run(SCENARIO, settings=rates)


def test_a_wrong_key_is_a_usage_error_that_names_the_key() -> None:
    with pytest.raises(sabul.UsageError, match="duration"):
        sim.run({**SCENARIO, "durations_s": 1.0})
    with pytest.raises(TypeError, match="set"):
        sim.run({**SCENARIO, "name": {1}})


def test_the_series_are_those_of_the_program(tmp_path: Path) -> None:
    flows = [{**SCENARIO["flow"][0], "id": name} for name in ("a", "b")]
    scenario = {**SCENARIO, "flow": flows}
    file = tmp_path / "two.toml"
    file.write_text(sim._toml(scenario))
    subprocess.run([program(), "sim", "run", str(file), "--out", str(tmp_path / "out"), "--quiet"], check=True)
    results = sim.run(scenario)
    for found, name, by in [(results.series, "series.csv", "flow"), (results.link_series, "links.csv", "link")]:
        written = pandas.read_csv(tmp_path / "out" / name)
        # Rows of the file are in the order of time, rows of the table in that of flows.
        written = written.sort_values([by, "t_s"], ignore_index=True).astype({by: "str"})
        read = pandas.DataFrame.from_arrow(found).astype({by: "str"})
        assert found.column_names == list(written.columns) and len(found) == len(read) > 0
        pandas.testing.assert_frame_equal(read, written, check_exact=False, rtol=1e-12, check_dtype=False)


def test_the_series_are_read_without_a_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    pyarrow, polars = pytest.importorskip("pyarrow"), pytest.importorskip("polars")
    duckdb = pytest.importorskip("duckdb")
    series = sim.run(SCENARIO).series
    tables = [pyarrow.table(series) for _ in range(2)]
    assert tables[0].schema == tables[1].schema and tables[0].num_rows == len(series) == 20
    for name in ("t_s", "goodput_bps", "rtt_ms"):
        places = {table[name].chunk(0).buffers()[1].address for table in tables}
        assert len(places) == 1, name
    # Before the first ACK there is no RTT, and this controller has no window.
    assert tables[0]["cwnd_pkts"].null_count + tables[0]["delivery_bps"].null_count > 0
    mean = sum(tables[0]["goodput_bps"].to_pylist()) / 20
    del tables
    found = polars.DataFrame(series)
    assert found.columns == series.column_names and abs(found["goodput_bps"].mean() - mean) < 1e-6
    assert duckdb.sql("select count(*) from series").fetchall() == [(20,)]


def test_results_are_a_plain_document_elsewhere() -> None:
    results = sim.run(SCENARIO)
    again = pickle.loads(pickle.dumps(results))
    assert type(again) is dict and again == results == json.loads(json.dumps(results))
