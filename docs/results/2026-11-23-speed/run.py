#!/usr/bin/env python3
"""Real sockets over the lab's path of 1 Gb/s x 100 ms: what each sender carries at each loss.

    run.py SABUL [ROUNDS]

Senders take turns on each path. Prints goodput of 5 to 15 s and of the first 15 s in Mb/s, the share lost, and packets queued.
"""
import csv
import json
import subprocess
import sys
import tempfile

sabul, rounds = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 1
for queue, loss in [(1, 0), (1, 0.001), (1, 0.01), (0.1, 0), (0.1, 0.001), (0.1, 0.01), (1, 0.05), (1, 0.1), (1, 0.2)]:
    for _ in range(rounds):
        for transport, cc in [("sabul", "sabul2026"), ("tcp", "bbr")]:
            with tempfile.TemporaryDirectory() as out:
                sets = [f"link.b.queue_bdp={queue}", f"link.b.loss={loss}", f"flow.a.transport={transport}", f"flow.a.cc={cc}"]
                command = [sabul, "lab", "run", "lab.toml", "--out", out, "--json"] + [w for s in sets for w in ("--set", s)]
                result = subprocess.run(command, capture_output=True, text=True, timeout=120)
                name = f"{queue} BDP, loss {loss}, {transport} {cc}:"
                try:
                    told = json.load(open(f"{out}/results.json"))
                    series = [float(row["goodput_bps"]) for row in csv.DictReader(open(f"{out}/series.csv"))]
                except OSError:
                    print(name, "FAILED", result.stderr[-300:].replace("\n", " "), flush=True)
                    continue
                flow, link = told["flows"][0], told["links"][0]
                valid = "" if result.returncode == 0 else " INVALID: " + result.stderr.strip().splitlines()[-1][:120]
                print(
                    f"{name} {flow['goodput_bps'] / 1e6:.0f} Mb/s, first 15 s {sum(series[:150]) / len(series[:150]) / 1e6:.0f}, "
                    f"lost {flow['loss_rate'] * 100:.2f} %, queue {link['queue_packets']}{valid}",
                    flush=True,
                )
