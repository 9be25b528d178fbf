#!/usr/bin/env python3
"""Ratios within each round of what turns.sh printed: pairs.py FILE..."""
import json
import statistics
import sys

runs = {}
for name in sys.argv[1:]:
    for line in open(name, encoding="utf-8"):
        label, _, text = line.split(" ", 2)
        runs.setdefault(name, {}).setdefault(label, []).append(json.loads(text))


def ratios(above, below, value):
    """One ratio for each round that has both, in order of size."""
    rounds = [pair for run in runs.values() if above in run and below in run for pair in zip(run[above], run[below])]
    return sorted(value(one) / value(other) for one, other in rounds)


SPEED = ("speed", lambda run: run["goodput_bps"])
COSTS = [(f"s/GB, {end}", lambda run, end=end: run[f"cpu_seconds_{end}"] / run["bytes"]) for end in ("sender", "receiver")]
print("| ratio | rounds | least, median, most | above 1 |")
print("| --- | --: | --- | --: |")
for size in ("1500", "large"):
    for above, below in [("old", "quinn"), ("new", "quinn"), ("fixed", "quinn"), ("new", "old"), ("new", "fixed")]:
        other = below if below == "quinn" else f"{below}-{size}"
        for what, value in [SPEED] + (COSTS if above == "new" and below != "quinn" else []):
            found = ratios(f"{above}-{size}", other, value)
            if found:
                print(f"| {what}: {above}-{size} / {other} | {len(found)} | {found[0]:.2f}, {statistics.median(found):.2f}, "
                      f"{found[-1]:.2f} | {sum(ratio > 1 for ratio in found)} |")
