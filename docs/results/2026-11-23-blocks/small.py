#!/usr/bin/env python3
"""Many small files and one file of the same total size over the lab's path of 1 Gb/s x 100 ms, by turns.

    small.py LAB SABUL FILES SIZE LOSS ROUNDS [cp options]
"""
import json, os, statistics, subprocess, sys, tempfile, time
lab, sabul, files, size, loss, rounds = sys.argv[1:7]
files, size, rounds = int(files), int(size), int(rounds)
opts = " ".join(sys.argv[7:])

def make(folder):
    for n in range(files):
        place = os.path.join(folder, "many", f"d{n % 100:03}")
        if n < 100: os.makedirs(place, exist_ok=True)
        with open(os.path.join(place, f"f{n}"), "wb") as f: f.write(os.urandom(size))
    os.makedirs(os.path.join(folder, "one"))
    with open(os.path.join(folder, "one", "big"), "wb") as f:
        for n in range(files): f.write(os.urandom(size))

def copy_once(work, source):
    root = tempfile.mkdtemp(dir=work)
    ticket = os.path.join(work, "ticket")
    if os.path.exists(ticket): os.remove(ticket)
    copy = (f"while [ ! -s {ticket} ]; do sleep 0.01; done; began=$(date +%s%N); {sabul} cp -r -q --fresh --json {opts} --ticket {ticket} {source}/. sabul://far:4900/x/; code=$?; "
            f"echo $(( ($(date +%s%N) - began) / 1000 )) $code")
    serve = f"{sabul} serve --once --root {root} --listen 0.0.0.0:4900 --ticket-file {ticket}"
    command = [lab, "lab", "shell", "--rate", "1G", "--rtt", "100", "--queue", "1bdp"]
    command += ["--loss", loss] if loss != "0" else []
    command += ["--peer", serve, "--", "bash", "-c", copy]
    r = subprocess.run(command, capture_output=True, text=True, timeout=300)
    lines = [l for l in r.stdout.splitlines() if l.strip()]
    try:
        told = json.loads(lines[0]); wall, code = map(int, lines[-1].split())
    except (ValueError, IndexError):
        print("FAILED", r.stdout[-300:], r.stderr[-600:]); return None
    subprocess.run(["sync"], check=True)
    return wall / 1e6, code, told

walls = {"many": [], "one": []}
with tempfile.TemporaryDirectory(prefix="sabul-small-", dir=os.environ.get("WORK", "/tmp")) as work:
    make(work + "/from")
    os.sync()
    for n in range(rounds):
        for kind in ("many", "one") if n % 2 == 0 else ("one", "many"):
            found = copy_once(work, f"{work}/from/{kind}")
            if found is None: continue
            walls[kind].append(found[0])
            print(f"loss {loss} {kind}: wall {found[0]:.3f} s, code {found[1]}, lost {found[2].get('packets_lost')}", flush=True)
            time.sleep(0.5)
for kind, w in walls.items():
    if w: print(f"{files} x {size} loss {loss} {kind}: median {statistics.median(w):.3f} s of {len(w)}, {min(w):.3f} to {max(w):.3f}")
