#!/usr/bin/env python3
"""Reads what `sabul lab compare --json` printed: simulated and measured goodput, and by how much they differ."""
import json
import sys

within, all_ = {}, {}
for line in open(sys.argv[1]):
    for run in json.loads(line)["comparisons"]:
        rows = [row for row in run["rows"] if row["kind"] == "flow" and row["quantity"] == "goodput_bps"]
        if any(row["measured"] is None for row in rows): continue
        cells = [f"{row['simulated'] / 1e6:.1f} / {row['measured'] / 1e6:.1f} ({row['difference_percent']:+.1f} %)" for row in rows]
        name, _, path = run["scenario"].partition(": ")
        controller = name.rpartition("-")[0]
        if not run["is_valid"]:
            print(f"{name:14} {path:52} invalid: {run['faults'][0][:70] if run['faults'] else ''}")
            continue
        print(f"{name:14} {path:52} {'; '.join(cells)}")
        all_[controller] = all_.get(controller, 0) + 1
        within[controller] = within.get(controller, 0) + all(abs(row["difference_percent"]) <= 10 for row in rows)
for controller, count in all_.items():
    print(f"{controller}: {within[controller]} of {count} valid runs within 10 %")
