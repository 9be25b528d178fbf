#!/usr/bin/env python3
"""Medians of what turns.sh printed: table.py FILE."""
import json
import statistics
import sys

runs = {}
for line in open(sys.argv[1], encoding="utf-8"):
    label, load, rest = line.split(" ", 2)
    counts, brace, text = rest.partition("{")
    if not brace:
        continue
    result = json.loads(brace + text)
    row = {"Gb/s": result["goodput_bps"] / 1e9, "load": float(load)}
    gigabytes = result["bytes"] / 1e9
    if label == "quinn":
        for end in ("sender", "receiver"):
            row[end] = result[f"cpu_percent_{end}"] / 100 * result["seconds"] / gigabytes
    else:
        row["sender"] = result["cpu_seconds_sender"] / gigabytes
        row["receiver"] = result["cpu_seconds_receiver"] / gigabytes
        row["held"] = result["limiter"]["network"] + result["limiter"]["window"]
    counts = dict(pair.split("=") for pair in counts.split())
    if counts:
        row["batch"] = result["packets_sent"] / float(counts["sendmsg"])
        row["waits"] = float(counts["ppoll"]) / gigabytes
        row["switches"] = float(counts["switches"]) / gigabytes
    runs.setdefault(label, []).append(row)

quinn = statistics.median(row["Gb/s"] for row in runs["quinn"]) if "quinn" in runs else None
print("| case | runs | Gb/s: least, median, most | of quinn | s/GB: sender, receiver | held back | load |")
print("| --- | --: | --- | --: | --- | --: | --: |")
for label, rows in runs.items():
    speeds = sorted(row["Gb/s"] for row in rows)
    middle = {key: statistics.median(row[key] for row in rows) for key in rows[0]}
    ratio = f"{middle['Gb/s'] / quinn:.2f}" if quinn else ""
    held = f"{middle['held']:.2f}" if "held" in middle else ""
    print(f"| {label} | {len(rows)} | {speeds[0]:.2f}, {middle['Gb/s']:.2f}, {speeds[-1]:.2f} | {ratio} "
          f"| {middle['sender']:.3f}, {middle['receiver']:.3f} | {held} | {middle['load']:.1f} |")
    if "batch" in middle:
        print(f"  batch {middle['batch']:.1f}, waits/GB {middle['waits']:.0f}, switches/GB {middle['switches']:.0f}")
