#!/usr/bin/env python3
"""The papers' cases of several SABUL flows, on the same paths with another controller: how even, and how steady.

    papers.py SABUL REPRODUCTIONS [SEEDS]

A case keeps its links, round trips and the traffic of others; what belongs to the papers' controllers (first rates, SYN intervals,
defects, bounds) goes. Simulated. Prints Jain's index of our flows, the largest difference between two of them as a part of their
mean, the largest stability index (standard deviation of a flow's samples over their mean), mean of the seeds.
"""
import json
import os
import re
import subprocess
import sys
import tempfile
import tomllib

sabul, root, seeds = sys.argv[1], sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else 3
OURS = re.compile(r"^(params|defects|profile|rate_mbps_initial|spread_s|cc) = .*\n", re.M)


def flows_of(text, cc):
    """The scenario with our flows' controller replaced."""
    head, *flows = text.split("[[flow]]\n")
    made = [head]
    for flow in flows:
        if 'transport = "sabul"' in flow:
            flow = OURS.sub("", flow).replace('transport = "sabul"\n', f'transport = "sabul"\ncc = "{cc}"\n')
        made.append(flow)
    return "[[flow]]\n".join(made)


for paper in ["sabul-figure2", "ovvt-table1", "ovvt-table2"]:
    plan = tomllib.load(open(f"{root}/{paper}/plan.toml", "rb"))
    for case in plan["case"]:
        place = case["scenario"] if "/" in case["scenario"] else f"{paper}/{case['scenario']}"
        for cc in ["sabul2003", "sabul2026"]:
            with tempfile.TemporaryDirectory() as work:
                path = os.path.join(work, "s.toml")
                open(path, "w").write(flows_of(open(f"{root}/{place}").read(), cc))
                sets = [s for s in case.get("set", []) if ".params." not in s and "rate_mbps_initial" not in s]
                found = []
                for seed in range(1, seeds + 1):
                    command = [sabul, "sim", "run", path, "--json", "-q", "--seed", str(seed)]
                    out = subprocess.run(command + [w for s in sets for w in ("--set", s)], capture_output=True, text=True)
                    if out.returncode:
                        sys.exit(f"{paper} {case['id']} {cc}: {out.stderr.strip()[-400:]}")
                    mine = [flow for flow in json.loads(out.stdout)["flows"] if flow["transport"] == "sabul"]
                    rates = [flow["goodput_bps"] / 1e6 for flow in mine]
                    jain = sum(rates) ** 2 / len(rates) / sum(rate * rate for rate in rates)
                    spread = (max(rates) - min(rates)) / (sum(rates) / len(rates))
                    found.append((jain, spread, max(flow["stability"] for flow in mine), rates))
            mean = [sum(run[at] for run in found) / len(found) for at in range(3)]
            rates = " ".join(f"{rate:.0f}" for rate in found[0][3])
            print(
                f"{paper:14} {case['id']:8} {cc}: Jain {mean[0]:.4f}, spread {mean[1]:.3f}, stability {mean[2]:.3f}, seed 1 Mb/s {rates}",
                flush=True,
            )
