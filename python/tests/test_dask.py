"""Sweeps of the simulator on local processes and on a Dask cluster."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from conftest import Server
from distributed import Client, LocalCluster
from test_sim import SCENARIO

import sabul.dask
from sabul import sim

VALUES: dict[str, Any] = {"link.bottleneck.rate_mbps": [5, 10], "seed": range(3)}


def bits(results: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in results.items() if key not in ("wall_s", "commit")}


def test_a_sweep_on_local_processes_has_the_results_of_single_runs() -> None:
    found = sabul.dask.runs(SCENARIO, VALUES)
    assert [settings["seed"] for settings, _ in found] == [0, 1, 2, 0, 1, 2]
    for settings, results in found:
        assert bits(results) == bits(sim.run(SCENARIO, settings=settings))


def test_a_cluster_gives_the_same_bits_and_one_row_for_each_flow(tmp_path: Path) -> None:
    file = tmp_path / "one.toml"
    file.write_text(sim._toml(SCENARIO))
    cluster: Any = LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None)
    with cluster, Client(cluster) as client:
        table = sabul.dask.sweep(file, VALUES, client)
        with pytest.raises(sabul.UsageError, match="speed"):
            sabul.dask.sweep(file, {"flow.a.params.speed": [1]}, client)
    assert len(table) == 6 and set(table["flow"]) == {"a"}
    expected = sim.run(SCENARIO, settings={"link.bottleneck.rate_mbps": 10, "seed": 2})["flows"][0]
    row = table[(table["link.bottleneck.rate_mbps"] == 10) & (table["seed"] == 2)].iloc[0]
    assert row["goodput_bps"] == expected["goodput_bps"] and row["rtt_ms_p99"] == expected["rtt_ms"]["p99"]


def test_a_sweep_that_is_started_again_runs_only_the_missing_combinations(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = sabul.dask.sweep(SCENARIO, VALUES, directory=tmp_path / "kept")
    kept = sorted((tmp_path / "kept").iterdir())
    assert len(kept) == 6
    kept[0].unlink()
    kept[1].write_text("{")
    tasks: list[int] = []
    run_all = sabul.dask._map

    def counted(client: Any, all_tasks: list[Any]) -> Any:
        tasks.append(len(all_tasks))
        return run_all(client, all_tasks)

    monkeypatch.setattr(sabul.dask, "_map", counted)
    again = sabul.dask.sweep(SCENARIO, VALUES, directory=tmp_path / "kept")
    assert tasks == [2]
    columns = [name for name in first.columns if name != "wall_s"]
    assert first[columns].equals(again[columns])
    assert json.loads(kept[1].read_text())["schema"] == 1


def test_values_without_elements_are_refused() -> None:
    with pytest.raises(sabul.UsageError, match="seed has no values"):
        sabul.dask.sweep(SCENARIO, {"seed": []})


def test_worker_processes_of_a_cluster_read_remote_tables(server: Server, folder: Path) -> None:
    dataframe = pytest.importorskip("dask.dataframe")
    pandas = pytest.importorskip("pandas")
    for part in range(6):
        pandas.DataFrame({"a": range(part, 1000), "b": "x"}).to_parquet(folder / f"{part}.parquet")
    urls = [f"sabul:///{folder.name}/{part}.parquet" for part in range(6)]
    cluster: Any = LocalCluster(n_workers=3, threads_per_worker=2, dashboard_address=None)
    with cluster, Client(cluster):
        table = dataframe.read_parquet(urls, storage_options={"ticket_file": str(server.ticket)})
        assert table["a"].sum().compute() == sum(sum(range(part, 1000)) for part in range(6))
