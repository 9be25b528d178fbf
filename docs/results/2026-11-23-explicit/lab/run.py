#!/usr/bin/env python3
"""The six experiments at what this machine sustains, in the simulator and in the lab, from the same files.

run.py SABUL OUT sim|lab [E1 E3-xcp ...]  runs them, six algorithms each; as root for the lab, on a quiet machine
run.py table OUT                          the table of what is in OUT

Each run leaves OUT/NAME.json and OUT/NAME/. The lab has no `nic_mbps`, so neither arm has it in E5, whose file is beside this one.
Both have fallback=off: what is compared are the laws, not how soon the guard of each leaves them on a late machine.
"""
import csv, json, pathlib, subprocess, sys

HERE = pathlib.Path(__file__).resolve().parent
PLANS = HERE.parents[3] / "reproductions"
LAWS = ["jetmax", "rcp", "piqi-rcp", "xcp", "maxnet", "emkc"]
SLOW = ["link.*.rate_mbps=100", "link.*.queue_packets=2000"]
# File, what is changed in it, seconds, from when on rates are averaged, when the last flow joins.
PLAN = {
    "E1": ("ecc/single.toml", SLOW + ["flow.f2.start_s=4", "flow.f3.start_s=8"], 14, 0, 8),
    "E2": ("ecc/rtts.toml", SLOW + ["flow.f2.start_s=6"], 14, 11, 6),
    "E3": ("ecc-maxmin/maxmin.toml", [], 14, 10, 0),
    "E4": ("ecc-mice/mice.toml", SLOW, 14, 4, 0),
    "E5": (HERE / "surge.toml", [], 12, 6, 6),
    "E6": ("ecc/links.toml", SLOW + ["link.l1.rate_mbps=97", "link.l2.rate_mbps=80", "flow.first.start_s=4",
                                     "flow.second.start_s=8"], 14, 11, 8),
}
OWN = {"maxnet": ["flow.*.params.rate_mbps_max=100"], "emkc": ["flow.*.params.alpha_mbps=0.5"]}


def run(sabul, out, arm, wanted):
    for one in wanted:
        name, _, only = one.partition("-")
        file, sets, seconds, warmup, _ = PLAN[name]
        for law in [only] if only else LAWS:
            sets_of = sets + [f"duration_s={seconds}", f"warmup_s={warmup}", f"link.*.router={law}",
                              f"flow.*.cc={law}", "flow.*.params.fallback=off"] + OWN.get(law, [])
            stem = f"{name}-{law}-{arm}"
            call = [sabul, arm, "run", str(PLANS / file), "--json", "--out", str(out / stem)]
            call += ["--skip-calibration"] if arm == "lab" else []
            for one in sets_of:
                call += ["--set", one]
            done = subprocess.run(call, capture_output=True, text=True, timeout=120)
            (out / f"{stem}.json").write_text(done.stdout)
            print(stem, done.returncode, done.stderr.strip().splitlines()[-1:], flush=True)


def series(folder):
    """Use of the first link, and rate of each flow in Mb/s, over each tenth of a second."""
    used, rates = [], {}
    if (folder / "links.csv").exists():
        with open(folder / "links.csv") as file:
            rows = list(csv.reader(file))
        first = rows[1][1]
        used = [float(row[4]) for row in rows[1:] if row[1] == first]
    if (folder / "series.csv").exists():
        with open(folder / "series.csv") as file:
            for row in csv.DictReader(file):
                rates.setdefault(row["flow"], []).append(float(row["rate_bps"] or 0) / 1e6)
    return used, rates


def full_after(used):
    for i in range(len(used) - 9):
        if sum(used[i : i + 10]) / 10 >= 0.9:
            return f"{i / 10:.1f}"
    return "never"


def alike_after(rates, join, flows):
    rows = [rates[name] for name in flows if name in rates]
    if len(rows) < 2:
        return ""
    count = min(map(len, rows))
    alike = "never"
    for i in range(count - 10, int(join * 10) - 1, -1):
        means = [sum(row[i : i + 10]) / 10 for row in rows]
        mean = sum(means) / len(means)
        if mean <= 0 or any(abs(one / mean - 1) > 0.1 for one in means):
            break
        alike = f"{i / 10 - join:.1f}"
    return alike


def table(out):
    print("| | law | arm | used | lost | queue mean | peak | full after, s | alike after, s | rates, Mb/s |")
    print("| --- | --- | --- | --: | --: | --: | --: | --: | --: | --- |")
    for name, (_, _, _, _, join) in PLAN.items():
        for law in LAWS:
            for arm in ["sim", "lab"]:
                file = out / f"{name}-{law}-{arm}.json"
                if not file.exists() or not file.read_text().strip():
                    continue
                found = json.loads(file.read_text().splitlines()[0])
                seen = found if "links" in found else found.get("discarded", {})
                if not seen.get("links"):
                    print(f"| {name} | `{law}` | {arm} *invalid* | | | | | | | |")
                    continue
                used, rates = series(out / f"{name}-{law}-{arm}")
                link = seen["links"][0]
                alike = alike_after(rates, join, {"E1": ["f1", "f2", "f3"], "E2": ["f1", "f2"]}.get(name, []))
                goods = ", ".join(f"{flow['throughput_bps'] / 1e6:.1f}" for flow in seen["flows"][:3])
                mark = "" if found.get("valid", True) else " *invalid*"
                lost = sum(one["drops"] for one in seen["links"])
                print(f"| {name} | `{law}` | {arm}{mark} | {link['utilisation']:.3f} | {lost} | "
                      f"{link['queue_packets']['mean']:.1f} | {link['queue_packets']['max']} | "
                      f"{full_after(used)} | {alike} | {goods} |")


if sys.argv[1] == "table":
    table(pathlib.Path(sys.argv[2]))
else:
    place = pathlib.Path(sys.argv[2])
    place.mkdir(parents=True, exist_ok=True)
    run(sys.argv[1], place, sys.argv[3], sys.argv[4:] or list(PLAN))
