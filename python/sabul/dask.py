"""Sweeps of the simulator on many processes or machines, by any `distributed.Client`.

    from distributed import Client
    import sabul.dask

    table = sabul.dask.sweep(
        "two-flows.toml", {"link.bottleneck.rate_mbps": [10, 100, 1000], "seed": range(10)}, Client("tcp://head:8786")
    )

Needs pandas; without a client the runs use local processes and need no Dask. Workers need this package, not the file of
the scenario.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import __version__, sim
from .errors import UsageError

if TYPE_CHECKING:
    import pandas

__all__ = ["runs", "sweep"]

Run = tuple[dict[str, Any], dict[str, Any]]
"""Settings of a run, and its results."""


def sweep(
    scenario: sim.Scenario,
    values: Mapping[str, Iterable[Any]],
    client: Any = None,
    *,
    directory: str | os.PathLike[str] | None = None,
) -> pandas.DataFrame:
    """Simulates every combination of values, and returns one row for each flow of each run.

    `values` has settings as of `sabul sim run --set`, with `seed` among them; each setting has a list of values. The
    rows have the settings, `flow`, and the numbers of the flow; numbers of the run, such as `jain`, are the same for
    all of its flows. `client` is a `distributed.Client`.

    With a `directory`, each result is kept there as the document of `sabul sim run --json`. A sweep that is started
    again with the same directory runs only the missing combinations.
    """
    import pandas

    rows = [row for run in runs(scenario, values, client, directory=directory) for row in _rows(*run)]
    return pandas.DataFrame(rows)


def runs(
    scenario: sim.Scenario,
    values: Mapping[str, Iterable[Any]],
    client: Any = None,
    *,
    directory: str | os.PathLike[str] | None = None,
) -> list[Run]:
    """As `sweep`, but returns the settings and the whole results of each run, in the order of the combinations."""
    if not isinstance(scenario, Mapping):
        scenario = tomllib.loads(Path(scenario).read_text(encoding="utf-8"))
    several = {key: list(values[key]) for key in values}
    empty = next((key for key, found in several.items() if not found), None)
    if empty is not None:
        raise UsageError(f"{empty} has no values; name at least one")
    all_settings = [dict(zip(several, found, strict=True)) for found in itertools.product(*several.values())]
    folder = None if directory is None else Path(directory)
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    places = [None if folder is None else folder / _name(scenario, settings) for settings in all_settings]
    documents = [_kept(place) for place in places]
    missing = [at for at, document in enumerate(documents) if document is None]
    found = _map(client, [(dict(scenario), all_settings[at]) for at in missing])
    for at, document in zip(missing, found, strict=True):
        documents[at] = document
        if (place := places[at]) is not None:
            _keep(place, document)
    return [(settings, json.loads(document or "")) for settings, document in zip(all_settings, documents, strict=True)]


def _map(client: Any, tasks: list[tuple[dict[str, Any], dict[str, Any]]]) -> Iterator[str]:
    """Yields the documents of all tasks in order, as they become ready."""
    if not tasks:
        return
    if client is None:
        # A forked process would share the threads of this one.
        with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
            yield from pool.map(_run, tasks)
        return
    # The same run again is another task: a kept result belongs to its directory only.
    futures = client.map(_run, tasks, pure=False)
    try:
        for future in futures:
            yield future.result()
    finally:
        client.cancel(futures)


def _run(task: tuple[dict[str, Any], dict[str, Any]]) -> str:
    """Simulates one combination; runs on a worker."""
    scenario, settings = task
    return json.dumps(sim.run(scenario, settings=settings))


def _name(scenario: Mapping[str, Any], settings: Mapping[str, Any]) -> str:
    """Returns a file name that differs for each version, scenario and combination."""
    text = json.dumps([__version__, scenario, settings], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:32] + ".json"


def _kept(place: Path | None) -> str | None:
    """Returns the document of an earlier sweep."""
    if place is not None:
        with suppress(FileNotFoundError, ValueError):
            text = place.read_text(encoding="utf-8")
            json.loads(text)
            return text
    return None


def _keep(place: Path, document: str) -> None:
    """Writes a document under its name once it is complete."""
    part = place.with_suffix(f".{os.getpid()}.part")
    part.write_text(document, encoding="utf-8")
    part.replace(place)


def _rows(settings: Mapping[str, Any], results: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    common = {key: value for key, value in results.items() if isinstance(value, int | float) and key != "schema"}
    for flow in results["flows"]:
        row: dict[str, Any] = {**settings, "flow": flow["id"]}
        for key, value in flow.items():
            if isinstance(value, Mapping):
                row |= {f"{key}_{name}": number for name, number in value.items()}
            elif key != "id":
                row[key] = value
        yield common | row
