"""Report cards of congestion controllers: `sabul card` in a process of its own.

card = sabul.card.run("cubic", only="queue")
print(card["standing_queue"]["mean_ms"])
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from ._program import documents, flags
from .sim import _setting

__all__ = ["run"]


def run(
    cc: str,
    *,
    only: str | Sequence[str] = (),
    seeds: int | None = None,
    contract: bool = False,
    quick: bool = False,
    order: Literal["cubic-first", "together", "cubic-last"] | None = None,
    draw: int | None = None,
    draw_seed: Literal["tune", "judge"] | int | None = None,
    arm: Literal["sim", "lab"] = "sim",
    transport: Literal["sabul", "tcp"] | None = None,
    cc_params: Mapping[str, Any] | None = None,
    seconds_per_flow: float | None = None,
    settings: Mapping[str, Any] | None = None,
    threads: int | None = None,
    out: str | os.PathLike[str] | None = None,
) -> dict[str, Any]:
    """Tests one controller and returns the document of `sabul card CC --json` (docs/manual/card.md).

    The arguments are those of the program: `only` names tests or paths, `contract` measures the effect on TCP, with
    `draw` on that many random paths, and `out` is a directory for the report. With the arm `lab`, an invalid run raises
    FailedError, whose `results` contain the card without the numbers of the run.
    """
    given = {
        "only": only,
        "seeds": seeds,
        "contract": contract or draw is not None,
        "quick": quick,
        "order": order,
        "draw": draw,
        "draw-seed": draw_seed,
        "arm": arm,
        "transport": transport,
        "cc-param": cc_params,
        "seconds-per-flow": seconds_per_flow,
        "set": {key: _setting(value) for key, value in (settings or {}).items()},
        "threads": threads,
        "out": out,
    }
    (found,) = documents(["card", "--json", "--quiet", *flags(given), "--", cc])
    return found
