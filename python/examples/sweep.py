"""Simulates one flow on many drawn paths: `python sweep.py [PATHS] [ADDRESS OF A DASK SCHEDULER]`.

Without a scheduler the runs use the processors of this machine. An interrupted sweep continues with the
missing runs.
"""

from __future__ import annotations

import random
import sys
import tempfile
from typing import Any

import sabul.dask

SCENARIO: dict[str, Any] = {
    "name": "one flow on a drawn path",
    "duration_s": 5.0,
    "warmup_s": 2.0,
    "link": [{"id": "bottleneck", "rate_mbps": 50.0, "delay_ms": 10.0, "queue_packets": 100}],
    "flow": [{"id": "a", "transport": "sabul", "cc": "sabul2026", "path": ["bottleneck"]}],
}


def main() -> None:
    """Prints the paths with the least use."""
    paths = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    client: Any = None
    if len(sys.argv) > 2:
        from distributed import Client

        client = Client(sys.argv[2])
    draw = random.Random(1)
    rates = sorted(round(10 ** draw.uniform(0.3, 2.3), 3) for _ in range(max(paths // 5, 1)))
    with tempfile.TemporaryDirectory() as folder:
        values = {"link.bottleneck.rate_mbps": rates, "seed": range(min(paths, 5))}
        table = sabul.dask.sweep(SCENARIO, values, client, directory=folder)
    table["use"] = table["goodput_bps"] / (table["link.bottleneck.rate_mbps"] * 1e6)
    print(f"{len(table)} runs; the flow uses {table['use'].median():.2f} of the link in the median")
    print(table.nsmallest(3, "use")[["link.bottleneck.rate_mbps", "seed", "use", "loss_rate"]].to_string(index=False))


if __name__ == "__main__":
    main()
