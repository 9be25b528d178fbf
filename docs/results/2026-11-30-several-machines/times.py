#!/usr/bin/env python3
"""Times at which three machines have all files: SABUL=… times.py FILES BYTES RATE [RUNS [FLAG...]].

The machines are home directories of this machine, entered by a program in place of ssh. RATE limits each hop. A machine
is complete when all files have their names and sizes there; afterwards the content is compared. One line of JSON for
each run.
"""
import filecmp
import importlib.util
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

spec = importlib.util.spec_from_file_location("kills", Path(__file__).resolve().parent.parent / "2026-11-27-several-machines/kills.py")
kills = importlib.util.module_from_spec(spec)
spec.loader.exec_module(kills)


def is_complete(data, names, size):
    try:
        return all((data / name).stat().st_size == size for name in names)
    except FileNotFoundError:
        return False


def main():
    files, size, rate = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    runs = int(sys.argv[4]) if len(sys.argv) > 4 else 3
    for number in range(runs):
        draw = random.Random(number)
        with tempfile.TemporaryDirectory() as name:
            folder, data = kills.machines(name)
            names = [f"f{file}" for file in range(files)]
            for file in names:
                with (data / file).open("wb") as out:
                    for start in range(0, size, 1 << 24):
                        out.write(draw.randbytes(min(1 << 24, size - start)))
            env = os.environ | {"SABUL_SSH": f"{name}/ssh", "XDG_RUNTIME_DIR": name, "XDG_CACHE_HOME": f"{name}/cache"}
            start = time.monotonic()
            copy = subprocess.Popen([kills.SABUL, "cp", "-r", "--json", "--bwlimit", rate, *sys.argv[5:], "data", "a:x", "b:x", "c:x"],
                                    cwd=folder / "near", env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            complete = {}
            while len(complete) < 3:
                is_over = copy.poll() is not None
                now = time.monotonic() - start
                complete |= {host: round(now, 2) for host in "abc"
                             if host not in complete and is_complete(folder / host / "x/data", names, size)}
                if is_over:
                    break
                time.sleep(0.02)
            output, errors = copy.communicate(timeout=300)
            seconds = time.monotonic() - start
            same = all(filecmp.cmpfiles(data, folder / host / "x/data", names, shallow=False)[1:] == ([], []) for host in "abc")
            left = [path.name for host in "abc" for path in (folder / host).rglob("*.sabul-part")]
            sites = [json.loads(line) for line in output.decode().splitlines()]
            print(json.dumps({"files": files, "bytes": size, "rate": rate, "run": number, "complete_s": complete,
                              "ratio": round(complete.get("c", 0) / complete.get("a", 1), 3), "seconds": round(seconds, 1),
                              "code": copy.returncode, "same": same, "left": left,
                              "sites": [{key: site.get(key) for key in ("place", "from", "bytes", "seconds", "packets_sent",
                                                                      "packets_retransmitted")}
                                        for site in sites]}), flush=True)
            if not same or copy.returncode:
                sys.stderr.write(errors.decode())
                sys.exit(1)


if __name__ == "__main__":
    main()
