#!/usr/bin/env python3
"""Paths with short round trips in the simulator, with two builds: short.py OLD NEW."""
import json
import os
import subprocess
import sys
import tempfile

BATCHES = "gso_packets = 44\ngro_packets = 64"
# Mb/s, round trip in ms, settings of the link, settings of the flow, seconds, of them not measured.
PATHS = [
    (10000, 0.02, "queue_packets = 4000", "", 3, 1),
    (10000, 0.02, "queue_packets = 4000", BATCHES, 3, 1),
    (10000, 0.02, "queue_packets = 4000\njitter_ms = 0.1", BATCHES, 3, 1),
    (10000, 0.1, "queue_packets = 4000", BATCHES, 3, 1),
    (1000, 0.1, "queue_packets = 2000", "", 6, 2),
    (1000, 0.1, "queue_packets = 500", BATCHES, 6, 2),
    (100, 0.1, "queue_packets = 100", "", 10, 3),
    (1000, 0.1, "queue_packets = 32", "", 6, 2),
    (10000, 0.1, "queue_packets = 100", "", 4, 1),
    (10000, 0.1, "queue_packets = 300", "", 4, 1),
    (1000, 0.1, "queue_packets = 2000", "count = 2", 20, 10),
    (1000, 0.2, "queue_packets = 500", "count = 4\nspread_s = 2", 20, 10),
    (10000, 0.04, "queue_packets = 4000", "count = 2\nspread_s = 1", 5, 2),
    (1000, 0.204, "queue_packets = 1000", "count = 3", 120, 60),
    (1000, 100, "", "count = 2", 20, 5),
    (1000, 100, "loss = 0.001", "count = 2", 20, 5),
    (1000, 100, "", BATCHES, 20, 5),
]

print("| path | build | Mb/s | Jain | lost | mean, most of queue in packets |")
print("| --- | --- | --: | --: | --: | --: |")
for mbps, rtt, link, flow, seconds, warmup in PATHS:
    for build, program in zip(("before", "after"), sys.argv[1:3]):
        with tempfile.TemporaryDirectory() as work:
            path = os.path.join(work, "run.toml")
            with open(path, "w", encoding="utf-8") as file:
                file.write(f"duration_s = {seconds}\nwarmup_s = {warmup}\n[[link]]\nid = \"l\"\nrate_mbps = {mbps}\n"
                           f"delay_ms = {rtt / 2}\n{link}\n[[flow]]\nid = \"f\"\npath = [\"l\"]\n{flow}\n")
            run = subprocess.run([program, "sim", "run", path, "--json", "-q"], check=True, stdout=subprocess.PIPE)
        result = json.loads(run.stdout)
        queue = result["links"][0]["queue_packets"]
        speed = sum(flow["goodput_bps"] for flow in result["flows"]) / 1e6
        lost = max(flow["loss_rate"] for flow in result["flows"])
        name = " ".join(f"{mbps} x {rtt} ms {link} {flow}".replace("queue_packets = ", "queue ").split())
        print(f"| {name} | {build} | {speed:.1f} | {result['jain']:.3f} | {lost:.4f} | {queue['mean']:.1f}, {queue['max']:.0f} |",
              flush=True)
