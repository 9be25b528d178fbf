"""Cards and runs in the lab, which the program does in a process of its own."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from conftest import program
from test_sim import SCENARIO, as_toml

import sabul
import sabul.card
import sabul.lab
from sabul import _program


def test_a_card_is_the_document_of_the_program(tmp_path: Path) -> None:
    command = [program(), "card", "cubic", "--only", "queue", "--set", "link.bottleneck.rate_mbps=10", "--json"]
    printed = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    card = sabul.card.run(
        "cubic", only="queue", settings={"link.bottleneck.rate_mbps": 10}, out=tmp_path / "card", threads=1
    )
    assert (tmp_path / "card" / "report.html").exists()
    for document in (card, printed):
        del document["wall_s"], document["commit"]
    assert card == printed and card["standing_queue"]["mean_ms"] > 0 and card["cross"] is None


def test_a_card_of_the_contract_has_its_cells() -> None:
    only = ["rate_mbps=100", "rtt_ms=10", "queue_bdp=1", "loss=0"]
    card = sabul.card.run("sabul2003", contract=True, only=only, seeds=2, cc_params={"syn_interval_ms": 20})
    assert [(cell["rtt_ms"], cell["loss"]) for cell in card["cells"]] == [(10, 0)]
    assert (card["seeds"], card["params"]) == (2, {"syn_interval_ms": "20"})


def test_errors_are_those_of_the_program(tmp_path: Path) -> None:
    with pytest.raises(sabul.UsageError, match="unknown controller 'none'"):
        sabul.card.run("none")
    with pytest.raises(sabul.UsageError, match="no such test"):
        sabul.card.run("cubic", only=["none"])
    with pytest.raises(sabul.UsageError, match="draw"):
        sabul.card.run("cubic", draw=0)
    (tmp_path / "file").write_text("")
    with pytest.raises(sabul.FailedError, match="file") as caught:
        sabul.card.run("cubic", only="queue", out=tmp_path / "file")
    assert caught.value.results == []
    with pytest.raises(sabul.UsageError, match="durations_s"):
        sabul.lab.run({**SCENARIO, "durations_s": 1.0})


def in_lab(scenario: Any, **arguments: Any) -> list[dict[str, Any]]:
    """Returns the documents of all runs, valid or not: this machine may be busy."""
    try:
        return sabul.lab.sweep(scenario, skip_calibration=True, **arguments)
    except sabul.FailedError as error:
        assert "invalid" in str(error)
        return error.results or []


def test_a_scenario_runs_in_the_lab(tmp_path: Path) -> None:
    file = as_toml(tmp_path / "one.toml")
    check = subprocess.run([program(), "lab", "run", file, "--check"], capture_output=True, text=True)
    if check.returncode != 0:
        with pytest.raises(sabul.UsageError) as caught:
            sabul.lab.run(file)
        assert str(caught.value) in check.stderr
        pytest.skip(f"this system does not permit the lab: {check.stderr}")
    settings = {"duration_s": 0.5, "link.bottleneck.rate_mbps": [5, 10]}
    found = in_lab(SCENARIO, seed=7, settings=settings)
    assert [(run["arm"], run["seed"], run["scenario"]) for run in found] == [("lab", 7, "one flow")] * 2
    (found_of_file,) = in_lab(file, settings={"duration_s": 0.5}, out=tmp_path / "out")
    assert found_of_file["notes"] and (tmp_path / "out" / "results.json").exists()


def test_flags_of_the_program() -> None:
    given = {
        "on": ["a", "b"],
        "one": "text",
        "seeds": 3,
        "contract": True,
        "quick": False,
        "none": None,
        "set": {"key": "1", "other": '"x"'},
        "out": Path("dir"),
    }
    assert _program.flags(given) == [
        "--on=a",
        "--on=b",
        "--one=text",
        "--seeds=3",
        "--contract",
        "--set=key=1",
        '--set=other="x"',
        "--out=dir",
    ]
    assert _program.argument("-x") == "./-x" and _program.argument(Path("/a")) == "/a"
