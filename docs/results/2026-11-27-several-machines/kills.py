#!/usr/bin/env python3
"""Copies to three machines of which one dies at a drawn moment: SABUL=… kills.py [COPIES [SEED [large]]].

The machines are home directories of this machine, entered by a program in place of ssh. All processes of a machine are
ended by SIGKILL, and from then on the machine is unreachable. The other two must have the same files as the source,
and the exit code must show the failure, unless the dead machine was complete before. One line of JSON for each copy. With
`large`: few files of up to 24 MB, which are passed on while they arrive.
"""
import filecmp
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SABUL = os.path.abspath(os.environ.get("SABUL", "target/release/sabul"))
SSH = """#!/usr/bin/env python3
import os, sys
words = sys.argv[1:]
if "-G" in words:
    print("hostname 127.0.0.1")
    sys.exit(0)
host, command = words[words.index("--") + 1:][:2]
home = "FOLDER/" + host
if os.path.exists(home + ".dead"):
    print("ssh: connect to host: Connection refused", file=sys.stderr)
    sys.exit(255)
os.chdir(home)
os.environ |= {"HOME": home, "SSH_CONNECTION": "127.0.0.1 9 127.0.0.1 22", "PATH": "FOLDER/bin:/usr/bin:/bin"}
os.execv("/bin/sh", ["sh", "-c", "exec " + command])
"""


def machines(name):
    """Makes the near machine and three others in a directory. Returns the directory, and that of the data."""
    folder = Path(name)
    data = folder / "near/data"
    data.mkdir(parents=True)
    for part in ("a", "b", "c", "bin"):
        (folder / part).mkdir()
    (folder / "bin/sabul").symlink_to(SABUL)
    (folder / "ssh").write_text(SSH.replace("FOLDER", name))
    (folder / "ssh").chmod(0o755)
    return folder, data


def kill_machine(home):
    """Ends all processes of this home directory."""
    Path(f"{home}.dead").touch()
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and f"HOME={home}\0".encode() in (entry / "environ").read_bytes() + b"\0":
                os.kill(int(entry.name), signal.SIGKILL)
        except (FileNotFoundError, PermissionError, ProcessLookupError):
            pass


def equal(one, other):
    names = sorted(path.name for path in one.iterdir())
    there = sorted(path.name for path in other.iterdir() if not path.name.endswith(".sabul-part")) if other.exists() else []
    return names == there and not any(filecmp.cmpfiles(one, other, names, shallow=False)[1:])


def main():
    copies = int(sys.argv[1]) if len(sys.argv) > 1 else 50
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    files, sizes, seconds_max = (40, [10, 100_000, 1_000_000], 4)
    if "large" in sys.argv[3:]:
        files, sizes, seconds_max = (8, [10, 1_000_000, 8_000_000, 24_000_000], 8)
    for number in range(seed, seed + copies):
        draw = random.Random(number)
        with tempfile.TemporaryDirectory() as name:
            folder, data = machines(name)
            for file in range(draw.randrange(1, files)):
                (data / f"f{file}").write_bytes(draw.randbytes(draw.choice(sizes)))
            dead, moment = draw.choice("abc"), draw.uniform(0, seconds_max)
            env = os.environ | {"SABUL_SSH": f"{name}/ssh", "XDG_RUNTIME_DIR": name, "XDG_CACHE_HOME": f"{name}/cache"}
            start = time.monotonic()
            copy = subprocess.Popen([SABUL, "cp", "-r", "--bwlimit", "60M", "--timeout", "5", "data", "a:x", "b:x", "c:x"],
                                    cwd=folder / "near", env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
            time.sleep(moment)
            kill_machine(f"{name}/{dead}")
            _, errors = copy.communicate(timeout=120)
            seconds = time.monotonic() - start
            same = {host: equal(data, folder / host / "x/data") for host in "abc"}
            right = all(same[host] for host in "abc" if host != dead) and (copy.returncode != 0 or same[dead])
            print(json.dumps({"seed": number, "dead": dead, "moment_s": round(moment, 2), "seconds": round(seconds, 1),
                              "code": copy.returncode, "same": same, "right": right}), flush=True)
            if not right:
                sys.stderr.write(errors.decode())
                sys.exit(1)


if __name__ == "__main__":
    main()
