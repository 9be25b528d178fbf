#!/usr/bin/env python3
"""Copies over the lab's path of 1 Gb/s x 100 ms: one large file, many small ones, half a gigabyte, and so on.

    run.py SABUL WHAT [ROUNDS [SHELL FLAG...]]     WHAT: small, half, half-lossy, one, many

Needs root. Prints wall time, what of it the path took, and the rate of wall time, for each round.
"""

import json
import os
import subprocess
import sys
import tempfile
import time

CASES = {
    # name: files, bytes of each, folders, flags of the path
    "small": (1000, 16 << 10, 20, []),
    "half": (1, 512 << 20, 1, []),
    "half-lossy": (1, 512 << 20, 1, ["--loss", "0.1%"]),
    "one": (1, 1_000_000_000, 1, []),
    "many": (100_000, 10_000, 100, []),
    "ten": (1, 10_000_000, 1, []),
}


def make(folder, files, size, folders):
    for number in range(files):
        place = os.path.join(folder, f"d{number % folders:03}")
        os.makedirs(place, exist_ok=True)
        with open(os.path.join(place, f"f{number}"), "wb") as file:
            file.write(os.urandom(size))


def main():
    sabul, what = sys.argv[1], sys.argv[2]
    rounds = int(sys.argv[3]) if len(sys.argv) > 3 else 5
    files, size, folders, flags = CASES[what]
    with tempfile.TemporaryDirectory(prefix="sabul-copies-") as work:
        source = os.path.join(work, "from")
        make(source, files, size, folders)
        total = files * size
        for _ in range(rounds):
            root = tempfile.mkdtemp(dir=work)
            ticket = os.path.join(work, "ticket")
            if os.path.exists(ticket):
                os.remove(ticket)
            copy = (
                f"while [ ! -s {ticket} ]; do sleep 0.01; done; "
                f"sabul=$(date +%s%N); {sabul} cp -r -q --json --ticket {ticket} {source}/. sabul://far:4900/x/; code=$?; "
                f"echo $(( ($(date +%s%N) - sabul) / 1000 )) $code"
            )
            serve = f"{sabul} serve --once --root {root} --listen 0.0.0.0:4900 --ticket-file {ticket}"
            command = [sabul, "lab", "shell", "--rate", "1G", "--rtt", "100", "--queue", "1bdp", *flags, *sys.argv[4:]]
            command += ["--peer", serve, "--", "bash", "-c", copy]
            result = subprocess.run(command, capture_output=True, text=True, timeout=300)
            lines = [line for line in result.stdout.splitlines() if line.strip()]
            try:
                told = json.loads(lines[0])
                wall_us, code = map(int, lines[-1].split())
            except (ValueError, IndexError):
                print(what, "FAILED", result.stdout[-300:], result.stderr[-600:])
                continue
            print(
                f"{what}: wall {wall_us / 1e6:.3f} s = {total * 8 / wall_us:.0f} Mb/s, code {code}, "
                f"transfer {told.get('elapsed_s', 0):.3f} s, lost {told.get('packets_lost')} of {told.get('packets')}",
                flush=True,
            )
            subprocess.run(["rm", "-rf", root], check=True)
            time.sleep(0.5)


main()
