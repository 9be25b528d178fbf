"""Streaming join: batches, errors, and the end of the program."""

from __future__ import annotations

from pathlib import Path

import pandas
import pytest
from conftest import Server

import sabul


def tables(folder: Path, tmp_path: Path, rows: int = 3000) -> tuple[str, str]:
    """Writes a table at the server and a local table; returns their places."""
    pandas.DataFrame({"id": range(rows), "x": [2 * at for at in range(rows)]}).to_parquet(folder / "far.parquet")
    pandas.DataFrame({"id": range(0, rows, 3), "y": range(rows // 3)}).to_csv(tmp_path / "near.csv", index=False)
    return f"sabul:///{folder.name}/far.parquet", str(tmp_path / "near.csv")


def test_a_join_yields_batches_of_all_rows(server: Server, folder: Path, tmp_path: Path) -> None:
    far, near = tables(folder, tmp_path)
    with sabul.join((far, server.ticket), near, on="id", where="y < 500", select=["id", "x", "y"]) as joined:
        assert joined.schema.names == ["id", "x", "y"]
        found = joined.read_all().to_pandas().sort_values("id")
    assert list(found["id"]) == list(range(0, 1500, 3))
    assert (found["x"] == 2 * found["id"]).all() and (found["y"] == found["id"] // 3).all()
    other = sabul.join(near, far, on=["id"], type="anti", ticket_file=server.ticket, memory=1000)
    assert sum(batch.num_rows for batch in other) == 0


def test_errors_of_a_join_are_those_of_the_program(server: Server, folder: Path, tmp_path: Path) -> None:
    far, near = tables(folder, tmp_path)
    with pytest.raises(sabul.UsageError, match="nothing"):
        sabul.join(far, near, on="nothing", ticket_file=server.ticket)
    with pytest.raises(sabul.FailedError, match="missing"):
        sabul.join(str(tmp_path / "missing.csv"), near, on="id")
    with pytest.raises(sabul.UnreachableError):
        sabul.join("sabul://127.0.0.1:9/x.csv", near, on="id", ticket_file=server.ticket)


def test_a_closed_join_leaves_no_program(server: Server, folder: Path, tmp_path: Path) -> None:
    far, near = tables(folder, tmp_path, rows=300_000)
    joined = sabul.join(far, near, on="id", ticket_file=server.ticket)
    next(iter(joined))
    joined.close()
    assert joined._running.exit_code is not None
