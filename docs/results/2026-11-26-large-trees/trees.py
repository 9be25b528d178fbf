#!/usr/bin/env python3
"""Peak memory (VmHWM) of both ends of `sabul sync` for trees with many entries.

Makes trees of N empty files on a tmpfs or in FOLDER: all files in one directory (one), 5 files in each of N/5 directories
(many), or a tenth in one directory and the rest in directories of 100 (mixed). With `same`, the destination is the source
itself, so that one tree is enough; the first step is left out. A server on loopback has the destination; each step is one `sabul sync`. Prints seconds and the peak resident memory of the
client and of the server, which starts again before each step.

    trees.py PROGRAM ENTRIES [one|many|mixed] [FOLDER] [same]
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time

STEPS = [
    ("first", []),
    ("again", []),
    ("again --delete", ["--delete"]),
    ("again -n", ["-n"]),
    ("again -n --delete", ["-n", "--delete"]),
]


def make(root, shape, entries):
    os.mkdir(root)
    if shape == "mixed":
        make(f"{root}/one", "one", entries // 10)
        for folder in range(entries * 9 // 1000):
            make(f"{root}/{folder:06}", "one", 100)
        return
    if shape == "one":
        for number in range(entries):
            os.close(os.open(f"{root}/file-{number:09}.dat", os.O_CREAT | os.O_WRONLY, 0o644))
        return
    for folder in range(entries // 5):
        if folder % 1000 == 0:
            os.mkdir(f"{root}/{folder // 1000:06}")
        path = f"{root}/{folder // 1000:06}/{folder % 1000:03}"
        os.mkdir(path)
        for number in range(5):
            os.close(os.open(f"{path}/{number}.dat", os.O_CREAT | os.O_WRONLY, 0o644))


def peak(pid):
    try:
        with open(f"/proc/{pid}/status") as status:
            lines = [line for line in status if line.startswith("VmHWM")]
        return int(lines[0].split()[1]) / 1024 if lines else 0
    except OSError:
        return 0


def sync(program, source, root, ticket, flags):
    serve = [program, "serve", "--root", root, "--allow-rm", "--listen", "127.0.0.1:0", "--ticket-file", ticket]
    server = subprocess.Popen(serve, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while not (os.path.exists(ticket) and os.path.getsize(ticket)):
        time.sleep(0.05)
    start = time.monotonic()
    command = [program, "sync", "-q", "--no-sync", *flags, "--ticket", ticket, f"{source}/", "sabul:///tree/"]
    client = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    most = 0
    while client.poll() is None:
        most = max(most, peak(client.pid))
        time.sleep(0.05)
    seconds = time.monotonic() - start
    at_server = peak(server.pid)
    server.terminate()
    server.wait(20)
    os.remove(ticket)
    return client.returncode, seconds, most, at_server


def main():
    program, entries = os.path.abspath(sys.argv[1]), int(sys.argv[2])
    shapes = [sys.argv[3]] if len(sys.argv) > 3 else ["one", "many"]
    base = sys.argv[4] if len(sys.argv) > 4 else "/dev/shm"
    is_same = "same" in sys.argv[5:]
    for shape in shapes:
        folder = tempfile.mkdtemp(dir=base)
        try:
            root = f"{folder}/root"
            os.mkdir(root)
            source = f"{root}/tree" if is_same else f"{folder}/source"
            make(source, shape, entries)
            os.makedirs(f"{root}/tree", exist_ok=True)
            for name, flags in STEPS[is_same:]:
                code, seconds, client, server = sync(program, source, root, f"{folder}/ticket", flags)
                print(
                    f"{shape:5} {entries:9} {name:18} exit {code} {seconds:7.1f} s   client {client:7.1f} MB   "
                    f"server {server:7.1f} MB",
                    flush=True,
                )
        finally:
            shutil.rmtree(folder)


if __name__ == "__main__":
    main()
