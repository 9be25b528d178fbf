"""The lab: scenarios on real sockets over an emulated path, by `sabul lab run` in a process of its own.

results = sabul.lab.run("two-flows.toml", settings={"duration_s": 10})
print([flow["goodput_bps"] for flow in results["flows"]])

The lab needs root or unprivileged user namespaces, and /dev/net/tun (docs/manual/lab.md).
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ._program import argument, documents, flags
from .errors import UsageError
from .sim import Scenario, _setting, _toml

__all__ = ["run", "sweep"]


def run(
    scenario: Scenario,
    *,
    seed: int | None = None,
    settings: Mapping[str, Any] | None = None,
    skip_calibration: bool = False,
    out: str | os.PathLike[str] | None = None,
) -> dict[str, Any]:
    """Runs a scenario in the lab, in real time, and returns the document of `sabul lab run --json`.

    Arguments as of `sabul.sim.run`. Traces of a scenario that is a mapping need absolute paths. `out` is a directory
    for series and report. Raises UsageError if this system does not permit the lab, and FailedError if the run is
    invalid: the `results` of the error have the reasons.
    """
    results = sweep(scenario, seed=seed, settings=settings, skip_calibration=skip_calibration, out=out)
    if len(results) != 1:
        raise UsageError(f"the scenario has {len(results)} runs; call sabul.lab.sweep, which returns a list")
    return results[0]


def sweep(
    scenario: Scenario,
    *,
    seed: int | None = None,
    settings: Mapping[str, Any] | None = None,
    skip_calibration: bool = False,
    out: str | os.PathLike[str] | None = None,
) -> list[dict[str, Any]]:
    """Runs each run of a scenario with a sweep, one after another, and returns the documents in order.

    If a run is invalid, the others are run, too; the `results` of the error are the documents of all.
    """
    given = {
        "seed": seed,
        "set": {key: _setting(value) for key, value in (settings or {}).items()},
        "skip-calibration": skip_calibration,
        "out": out,
    }
    command = ["lab", "run", "--json", "--quiet", *flags(given)]
    if not isinstance(scenario, Mapping):
        return documents([*command, argument(scenario)])
    with tempfile.TemporaryDirectory(prefix="sabul-") as folder:
        file = Path(folder) / "scenario.toml"
        file.write_text(_toml(scenario), encoding="utf-8")
        return documents([*command, str(file)])
