#!/usr/bin/env python3
"""Compares a sweep of 1,000 runs on a `LocalCluster` with `sabul sim run` of the same version: `run.py SABUL`.

Needs the Python package with pandas and distributed. Prints the times of both and the number of equal results.
"""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import sabul.dask
from distributed import Client, LocalCluster

SCENARIO = """
name = "two flows"
duration_s = 5.0
warmup_s = 1.0

[[link]]
id = "bottleneck"
rate_mbps = 50.0
delay_ms = 10.0
queue_packets = 100

[[flow]]
id = "a"
path = ["bottleneck"]

[[flow]]
id = "b"
transport = "tcp"
cc = "cubic"
path = ["bottleneck"]
"""
VALUES = {
    "link.bottleneck.rate_mbps": [2.0, 4.0, 8.0, 16.0, 32.0, 48.0, 64.0, 96.0, 128.0, 160.0],
    "link.bottleneck.delay_ms": [1.0, 5.0, 20.0, 50.0, 120.0],
    "link.bottleneck.loss": [0.0, 0.001],
    "seed": list(range(1, 11)),
}


def of(document):
    """Returns a result without the time that the run took."""
    document = dict(document)
    document.pop("wall_s", None)
    return json.dumps(document, sort_keys=True)


def main():
    program = str(Path(sys.argv[1]).resolve())
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "two-flows.toml")
        path.write_text(SCENARIO)
        with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster, Client(cluster) as client:
            began = time.monotonic()
            runs = sabul.dask.runs(path, VALUES, client)
            print(f"LocalCluster of 2 workers: {len(runs)} runs, {time.monotonic() - began:.1f} s")
        sets = [f"--set={key}={','.join(map(str, values))}" for key, values in VALUES.items()]
        began = time.monotonic()
        done = subprocess.run([program, "sim", "run", path, "--json", "-q", *sets], capture_output=True, check=True)
        print(f"sabul sim run: {time.monotonic() - began:.1f} s")
    decoder, text, documents = json.JSONDecoder(), done.stdout.decode(), []
    while text := text.lstrip():
        document, end = decoder.raw_decode(text)
        documents.append(document)
        text = text[end:]
    ours, theirs = sorted(of(results) for _, results in runs), sorted(map(of, documents))
    equal = sum(one == other for one, other in zip(ours, theirs, strict=True))
    print(f"{equal} of {len(ours)} results have the same bits, {len(set(ours))} of them different")


if __name__ == "__main__":
    main()
