"""The simulator: scenario files in virtual time, in this process.

results = sabul.sim.run("scenarios/arms/08-sabul2003.toml", seed=7)
print(results["flows"][0]["goodput_bps"], polars.DataFrame(results.series))
"""

from __future__ import annotations

import atexit
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from . import _sabul
from ._sabul import Acked, IntervalReport, Limits, LossReport, Table

__all__ = [
    "Acked",
    "Controller",
    "IntervalReport",
    "Limits",
    "LossReport",
    "Results",
    "Scenario",
    "Table",
    "register",
    "run",
    "sweep",
]

Scenario: TypeAlias = str | os.PathLike[str] | Mapping[str, Any]
"""A scenario file, or its content as a mapping with the keys of docs/manual/scenarios.md."""


class Results(dict[str, Any]):
    """The document of `sabul sim run --json`, with the numbers over time as Arrow tables.

    `pyarrow.table`, `polars.DataFrame`, `pandas.DataFrame.from_arrow` and DuckDB take the tables, without a copy. A
    value that does not exist, such as an RTT before the first sample, is null. Pickled results are the plain document.
    """

    series: Table
    """The columns of `series.csv`, one row for each flow and sample; the rows of a flow follow one another."""
    link_series: Table
    """The columns of `links.csv`, one row for each link and sample."""

    def __init__(self, document: Mapping[str, Any], series: Table, link_series: Table) -> None:
        super().__init__(document)
        self.series = series
        self.link_series = link_series

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (dict(self),)


# A thread of a simulation must not be in a controller when the interpreter ends.
atexit.register(_sabul.stop_controllers)


class Controller(Protocol):
    """A congestion controller for the simulator.

    It may also have the methods `on_ack(acked: Acked)`, `on_loss(loss: LossReport)`, `on_timeout()` and
    `on_interval(report: IntervalReport)`, one for each event. The simulator skips the methods that it does not have.
    """

    def limits(self) -> Limits:
        """Returns the limits of the sender; called at the start and after each of the other methods."""


def register(name: str, make: Callable[[], Controller]) -> None:
    """Adds a controller: scenarios of this process then use it as `"cc": name`, and real transfers cannot.

    `make` is a class, or a function without arguments. It is called for each flow, and once more when the scenario is
    checked. `UsageError` if the name is taken or invalid.
    """
    _sabul.register(name, make)


def run(scenario: Scenario, *, seed: int | None = None, settings: Mapping[str, Any] | None = None) -> Results:
    """Simulates a scenario and returns its results.

    The same scenario, seed and version give the same results, `wall_s` aside. `settings` are those of `--set`, such as
    `{"link.bottleneck.rate_mbps": 100}`.
    """
    results = sweep(scenario, seed=seed, settings=settings)
    if len(results) != 1:
        from .errors import UsageError

        raise UsageError(f"the scenario has {len(results)} runs; call sabul.sim.sweep, which returns a list")
    return results[0]


def sweep(scenario: Scenario, *, seed: int | None = None, settings: Mapping[str, Any] | None = None) -> list[Results]:
    """Simulates each run of a scenario with a sweep, several at the same time, and returns the results in order."""
    if isinstance(scenario, Mapping):
        text, name = _toml(scenario), "scenario"
    else:
        text, name = Path(scenario).read_text(encoding="utf-8"), os.fspath(scenario)
    given = [f"{key}={_setting(value)}" for key, value in (settings or {}).items()]
    if seed is not None:
        given.append(f"seed={seed}")
    found = _sabul.simulate(text, name, given, True)
    return [Results(json.loads(document), series, link_series) for document, series, link_series in found]


def _setting(value: Any) -> str:
    """Returns a value of `--set`; a list is several values."""
    if isinstance(value, list | tuple | range):
        return ",".join(_value(item) for item in value)
    return _value(value)


def _toml(tables: Mapping[str, Any]) -> str:
    """Returns a mapping as TOML; nested tables are inline."""
    return "".join(f"{_key(key)} = {_value(value)}\n" for key, value in tables.items())


def _key(key: str) -> str:
    return json.dumps(key, ensure_ascii=False)


def _value(value: Any) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case int() | float():
            return repr(value)
        case str():
            return json.dumps(value, ensure_ascii=False)
        case Mapping():
            return "{" + ", ".join(f"{_key(key)} = {_value(item)}" for key, item in value.items()) + "}"
        case list() | tuple():
            return "[" + ", ".join(_value(item) for item in value) + "]"
    raise TypeError(f"a scenario has no values of type {type(value).__name__}; use numbers, text, lists and mappings")
