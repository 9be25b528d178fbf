"""The examples of the manual."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from conftest import Server

import sabul

PAGE = Path(__file__).parents[2] / "docs" / "manual" / "python.md"


def test_the_examples_of_the_manual_run(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("pyarrow")
    examples = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.M | re.S)
    assert len(examples) >= 8
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SABUL_TICKET_FILE", str(server.ticket))
    Path("results.h5").write_bytes(bytes(500_000))
    Path("data").mkdir()
    for name in ("x.bin", "y.tmp"):
        (Path("data") / name).write_bytes(bytes(range(250)) * 40)
    with sabul.connect() as session:
        session.mkdir(["incoming", "backup"])
    names: dict[str, Any] = {}
    for example in examples:
        exec(compile(example, str(PAGE), "exec"), names)
    assert (server.root / "incoming" / "results.h5").stat().st_size == 500_000
    assert [path.name for path in (server.root / "backup" / "data").iterdir()] == ["x.bin"]
    assert Path("here/x.bin").read_bytes() == Path("data/x.bin").read_bytes()
    assert len(names["again"]) == 1000
    assert (server.root / "tables" / "note.txt").exists()
    assert "1 not-found" in capsys.readouterr().out


def test_the_table_of_the_manual_names_each_exception() -> None:
    rows = dict(re.findall(r"^\| (\d+) \| `(\w+)`", PAGE.read_text(), re.M))
    assert {int(code): getattr(sabul, name).exit_code for code, name in rows.items()} == {
        int(code): int(code) for code in rows
    }
    assert len(rows) == 8
