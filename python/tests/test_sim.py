"""Simulations in this process, compared with the program."""

from __future__ import annotations

import json
import subprocess
import tomllib
from pathlib import Path
from typing import Any

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
